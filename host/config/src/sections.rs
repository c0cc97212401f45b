//! The keys of `config.yaml`, one struct for each section.
//!
//! [`Config`] is the root. The schema that a file is checked against is derived from these structs:
//! from the types, the `schemars` attributes, the defaults and the doc comments. No other list of
//! keys exists, so a new setting is added here and nowhere else.
//!
//! A field's doc comment is therefore its description for users. It has one paragraph and names the
//! unit. The word "tokens" in the description of a whole number also lets users write it with a
//! unit, as in `200k`. Rules between two sections are not expressed here but checked in the `load`
//! module.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contexture_formats::prompt_cache::CacheTtl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::threshold::{self, ModelCompression, Threshold};

/// The key among an engine's settings that says where the engine runs. The host reads it, and the
/// engine never sees it.
pub(super) const ISOLATION: &str = "isolation";

/// The keys of `compression` that the host reads itself, for every engine. They are no settings of
/// the built-in engine.
pub(super) const HOST_KEYS: [&str; 9] = [
    "wait_for_model", "automatic", "timing", "guidance", "contradicted", "template", "pin",
    "model_tools", "models",
];

/// The whole configuration. Every key has a default, so an empty file is valid and a file needs
/// only the keys that differ.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Which engine runs, where it runs, and what happens to a turn if it cannot run.
    pub context: Context,
    /// Which conversation data the host stores, and whether secrets are masked first.
    pub transcript: Transcript,
    /// When and how much the built-in compressor compacts.
    pub compression: Compression,
    /// The models that do side work, such as writing summaries.
    pub auxiliary: Auxiliary,
    /// How requests are marked for the provider's prompt cache (Anthropic).
    pub prompt_caching: PromptCaching,
    /// The safety net that compacts before a turn, at a fixed 85 % of the context window.
    pub hygiene: Hygiene,
    /// The agent's own model, used if a request does not name it.
    pub model: Model,
    /// Where plugins are, as a list of folders that are searched in order.
    pub plugins: Plugins,
    /// How the gateway (`contexture serve`) treats clients and requests.
    pub gateway: Gateway,
    /// The providers to which the gateway forwards requests.
    pub upstream: Upstream,
    /// What models cost, if that differs from the list prices or is not known.
    pub prices: PriceSettings,
}

/// `context`: which engine runs, and what happens to a turn if the engine is missing, cannot be
/// loaded or fails. By default the built-in compressor stands in and a warning says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Context {
    /// The engine's name; `compressor` is always the built-in one.
    #[schemars(extend("format" = "engine-name"))]
    pub engine: String,
    /// What happens if there is no engine of that name.
    pub on_missing: OnMissing,
    /// What happens if the plugin of that name cannot be loaded.
    pub on_load_failure: OnLoadFailure,
    /// What happens if the engine fails in the middle of a conversation.
    pub on_failure: OnFailure,
    /// Where plugins run, unless an engine's own settings have an `isolation`.
    pub isolation: Isolation,
    /// The program that runs engines in separate processes; by default `contexture-engine-host`
    /// next to this program, or on the PATH.
    pub engine_host: Option<PathBuf>,
    /// How long the engine may take, and how often it may fail.
    pub supervision: Supervision,
    /// Each engine's own settings, under its name.
    pub engines: BTreeMap<String, Map<String, Value>>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            engine: crate::engine_name::BUILT_IN.into(),
            on_missing: OnMissing::default(),
            on_load_failure: OnLoadFailure::default(),
            on_failure: OnFailure::default(),
            isolation: Isolation::default(),
            engine_host: None,
            supervision: Supervision::default(),
            engines: BTreeMap::new(),
        }
    }
}

/// `transcript`: what the host stores of conversations, and where. Ids and hashes of the messages
/// are always stored, the text only if an engine or the user asks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Transcript {
    /// Whether the text of messages is stored.
    pub mode: TranscriptMode,
    /// Whether passwords and keys are masked before a text is stored; the model still sees the
    /// original.
    pub redact: bool,
    /// Where conversations are stored. The keys below are for `postgres`.
    pub store: TranscriptStore,
    /// The environment variable with the URL of the database, as
    /// `postgres://user:password@host:5432/name`.
    #[schemars(length(min = 1))]
    pub url_env: String,
    /// The name under which sessions are stored. Installations that share a database but not their
    /// sessions need different names.
    #[schemars(length(min = 1))]
    pub tenant: String,
    /// The maximum number of database connections per process. One additional connection keeps its
    /// sessions locked.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_connections: u32,
    /// How long a statement may take, in ms.
    #[schemars(range(min = 100, max = 600_000))]
    pub statement_timeout_ms: u64,
    /// A PEM file with certificate authorities to trust for the database server, in addition to the
    /// public ones.
    pub ca_file: Option<PathBuf>,
}

impl Default for Transcript {
    fn default() -> Self {
        Self {
            mode: TranscriptMode::default(),
            redact: false,
            store: TranscriptStore::default(),
            url_env: "CONTEXTURE_DATABASE_URL".to_owned(),
            tenant: "default".to_owned(),
            max_connections: 8,
            statement_timeout_ms: 10_000,
            ca_file: None,
        }
    }
}

/// Where conversations are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TranscriptStore {
    /// In a file of the home directory.
    #[default]
    Sqlite,
    /// In a database of PostgreSQL, which several machines can share.
    Postgres,
}

/// Whether the text of messages is stored. Without the text, an engine that needs it cannot take
/// over a session later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TranscriptMode {
    /// Store the text if the engine reads it, otherwise only ids and hashes.
    #[default]
    Auto,
    /// Store the text with every engine, so that a session can change to an engine that reads it
    /// and lose nothing.
    Full,
}

/// Where the engine of a plugin runs. Linked-in engines always run in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In this process, which is fastest. A crash of the engine ends this process, too.
    #[default]
    None,
    /// In a process of its own. If it crashes, only the calls that it was executing are lost.
    Process,
}

/// What happens if there is no engine of the configured name, for example because its plugin was
/// removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// The built-in compressor runs instead, with a warning, so that the agent is not interrupted.
    #[default]
    Fallback,
    /// No engine runs, and the command or request fails. Use this if another engine must never see
    /// the conversation.
    Fail,
}

/// What happens if the configured plugin exists but cannot be loaded, for example because it is not
/// built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLoadFailure {
    /// The built-in compressor runs instead, with a warning, so that the agent is not interrupted.
    #[default]
    Fallback,
    /// No engine runs, and the command or request fails.
    Fail,
}

/// What happens to a turn if the engine fails in it. An error, a panic and an exceeded deadline all
/// count as failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The built-in compressor compacts instead, so the prompt still fits.
    #[default]
    Fallback,
    /// The conversation is sent unchanged, even if the provider may refuse it as too long.
    Passthrough,
    /// The turn fails, and the caller decides what to send.
    Fail,
}

/// `context.supervision`: how long an engine may take, and how often it may fail before it is
/// quarantined. An engine in quarantine is not called, and `context.on_failure` says what is done
/// instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Supervision {
    /// The deadline of a compaction, in ms. It grows with the number of messages, and the time of a
    /// model call does not count.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub compress_deadline_ms: u64,
    /// The deadline of every other call, in ms. A call that delivers messages to the engine may take
    /// four times as long.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub call_deadline_ms: u64,
    /// How long a call that was told to stop may go on, in ms, before it is abandoned.
    #[schemars(range(max = 60_000))]
    pub grace_ms: u64,
    /// The engine is quarantined for all sessions when this many sessions have abandoned calls that
    /// still run.
    #[schemars(range(min = 1, max = 64))]
    pub abandoned_threads: u32,
    /// The engine is quarantined for a session after this many failures in a row in it, and for all
    /// sessions after it fails in this many sessions in a row (at least two).
    #[schemars(range(min = 1))]
    pub failures_before_quarantine: u32,
    /// How long a quarantined engine is not called, in ms. If another quarantine follows soon, it
    /// is twice as long.
    pub quarantine_ms: u64,
    /// The largest address space of an engine's own process, in MB (2^20 bytes); 0 for no limit.
    #[schemars(range(max = 1_048_576))]
    pub memory_mb: u64,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            compress_deadline_ms: 120_000,
            call_deadline_ms: 10_000,
            grace_ms: 500,
            abandoned_threads: 4,
            failures_before_quarantine: 3,
            quarantine_ms: 300_000,
            memory_mb: 4_096,
        }
    }
}

/// `compression`: when and how much the built-in compressor compacts. The host itself reads
/// all keys that are not about sizes, for every engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Compression {
    /// Whether engines compact conversations automatically.
    pub enabled: bool,
    /// Whether conversations are compacted without being asked to; if not, a body that does not fit
    /// is reported and sent unchanged.
    pub automatic: bool,
    /// When conversations are compacted: at the threshold once that is certain to add no cost, at
    /// the threshold whatever it costs, or as soon as it is likely to save money.
    pub timing: Timing,
    /// The size of the prompt at which to compact: a share of the context window up to 1, or a number
    /// of tokens such as `120k`.
    #[schemars(with = "f64", extend("format" = "threshold"))]
    pub threshold: Threshold,
    /// An absolute cap on the threshold, in tokens. The lower of the two applies.
    #[schemars(range(min = 1))]
    pub max_threshold_tokens: Option<u64>,
    /// The share of the threshold that is kept as the recent part (a ratio).
    #[schemars(range(min = 0.1, max = 0.8))]
    pub target_ratio: f64,
    /// The minimum number of recent messages that stay unchanged, if they leave a quarter of the
    /// threshold free.
    #[schemars(range(min = 1))]
    pub protect_last_n: u64,
    /// Whether a compaction that is due waits for the model's summary instead of using what is
    /// prepared; the command line always waits.
    pub wait_for_model: bool,
    /// Extra instructions for the model that writes summaries, added to every engine's own; at most
    /// 1,000 tokens.
    #[schemars(length(min = 1))]
    pub guidance: Option<String>,
    /// A file with the layout for a model's summary: headings with what belongs under each.
    /// Relative to the config file; at most 1,000 tokens. An engine that parses its summaries keeps
    /// its own layout.
    #[schemars(length(min = 1))]
    pub template: Option<PathBuf>,
    /// What happens if the messages contradict a model's summary, for example because it says that
    /// tests pass although their last run failed.
    pub contradicted: Contradicted,
    /// Words to keep in the window verbatim after every compaction, such as rules or file paths,
    /// one pin per line. A line `/pin WORDS` in a user's message pins words for one session. All
    /// pins together may take a hundredth of the window, from 256 to 2,000 tokens.
    #[schemars(inner(length(min = 1)))]
    pub pin: Vec<String>,
    /// Whether the model gets tools to pin words and to ask for a compaction, with every engine:
    /// `context_pin`, `context_unpin` and `context_reduce`. They take about 240 tokens of every
    /// prompt, and each call takes another request.
    pub model_tools: bool,
    /// Settings for individual models, under a pattern of their names such as `gpt-6*`. `*` matches
    /// any characters and `?` matches one. If several patterns match, the one with the most other
    /// characters applies.
    pub models: BTreeMap<String, ModelCompression>,
}

/// `compression.contradicted`: what happens to a model's summary that claims what the messages
/// contradict. A claim is contradicted if no tool call changed a file that the summary says was
/// changed, or if the last run of tests failed that it says pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Contradicted {
    /// The sentence is marked, with what the messages show.
    #[default]
    Mark,
    /// The summary is extracted from the messages, without the model.
    Extract,
}

/// `compression.timing`: when conversations are compacted. An early compaction makes the next
/// requests smaller, but it discards what the provider's prompt cache holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// From the threshold on. While the provider's prompt cache still has the conversation and the
    /// window does not force a compaction, only if compacting is certain to cost no more than not
    /// compacting.
    #[default]
    Safe,
    /// From the threshold on, even if the provider's prompt cache makes going on cheaper.
    Threshold,
    /// From half the threshold on, as soon as compacting costs less than going on without it, at
    /// the prices of the provider's prompt cache.
    Economy,
}

impl Timing {
    /// All timings, the default first.
    pub const ALL: [Self; 3] = [Self::Safe, Self::Threshold, Self::Economy];

    /// Returns the value of `compression.timing` that selects this timing.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Threshold => "threshold",
            Self::Economy => "economy",
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            enabled: true,
            automatic: true,
            timing: Timing::default(),
            threshold: Threshold::Share(0.50),
            max_threshold_tokens: None,
            target_ratio: 0.20,
            protect_last_n: 20,
            wait_for_model: false,
            guidance: None,
            template: None,
            contradicted: Contradicted::default(),
            pin: Vec::new(),
            model_tools: false,
            models: BTreeMap::new(),
        }
    }
}

impl Compression {
    /// The keys of the section as JSON Schema, for commands that list an engine's settings with
    /// their types, defaults and descriptions.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Returns the entry of `models` for the model with this name, and its pattern. Of several that
    /// match, it is the one with the most characters that are not wildcards, then the one with the
    /// fewest wildcards, then the first in the alphabet.
    ///
    /// `*` stands for any characters and `?` for one. Case does not matter. A pattern without `/`
    /// also matches the part of a name after its last `/`, as `gpt-6*` does with `openai/gpt-6`.
    pub fn for_model(&self, model: &str) -> Option<(&str, &ModelCompression)> {
        threshold::for_model(&self.models, model)
    }
}

/// `auxiliary`: the models that do side work for an engine. They may be smaller and cheaper than
/// the agent's own model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auxiliary {
    /// The model that writes summaries for any engine that asks the host for one.
    pub compression: AuxiliaryModel,
}

/// `auxiliary.compression`: the model that writes summaries. Its API key comes from the environment
/// and never from the file. Without a model the engines work with what they can extract themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuxiliaryModel {
    /// The model's name; none for the agent's own model if it has this provider, and otherwise for the
    /// provider's default. A `base_url` of your own needs a name.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// The provider that writes summaries: `auto` uses the agent's provider if there is one, and
    /// otherwise `none`; `openai` is any compatible server; `main` is the agent's model and
    /// provider; `none` makes no calls.
    #[schemars(extend("enum" = ["auto", "openai", "anthropic", "google", "openrouter", "nous", "main", "none"]))]
    pub provider: String,
    /// The address of the provider's API, for a proxy or a compatible server; none for its usual
    /// one.
    #[schemars(url)]
    pub base_url: Option<String>,
    /// The model's context window, in tokens; none if it is known by the model's name. For an
    /// unknown name 32,768 are assumed.
    #[schemars(range(min = 1))]
    pub context_length: Option<u64>,
    /// How long one request to this model may take, in ms, before it counts as failed.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub timeout_ms: u64,
}

impl Default for AuxiliaryModel {
    fn default() -> Self {
        Self {
            model: None,
            provider: "auto".into(),
            base_url: None,
            context_length: None,
            timeout_ms: 60_000,
        }
    }
}

/// `prompt_caching`: how requests are marked for the prompt cache of Anthropic, directly or through
/// OpenRouter. A cached prefix costs a fraction of the usual price.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PromptCaching {
    /// Whether requests get cache markers; by default only if the model and the provider support
    /// them. `compress` marks its output only if this is true or `--cache-markers` is passed.
    pub enabled: Option<bool>,
    /// How long the provider keeps what is marked: five minutes or an hour.
    pub cache_ttl: CacheTtl,
}

/// `hygiene`: the safety net before a turn, at a fixed 85 % of the context window. It applies with
/// every engine and cannot be switched off here; the section only adds a second limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hygiene {
    /// The number of messages at which to compact regardless of their size; none for no limit.
    #[schemars(range(min = 4))]
    pub max_messages: Option<u64>,
}

/// `model`: the agent's own model, as far as it is not known from the requests. Through the
/// gateway, requests name their model themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Model {
    /// The model's name as the provider calls it, which also tells its context window and
    /// tokenizer.
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// The provider that serves the model, if it is not clear from the request.
    #[schemars(extend("enum" = ["openai", "anthropic", "google", "openrouter", "nous"]))]
    pub provider: Option<String>,
    /// The address of the provider's API, if the agent talks to a proxy or a compatible server;
    /// none for its usual one.
    #[schemars(url)]
    pub base_url: Option<String>,
    /// The model's context window, in tokens; none if it is known by the model's name.
    #[schemars(range(min = 1))]
    pub context_length: Option<u64>,
    /// The number of tokens that is reserved for an answer.
    #[schemars(range(min = 1))]
    pub max_output_tokens: Option<u64>,
}

/// `prices`: what models cost, for the costs that the gateway's page and metrics show. List prices of
/// Claude's, OpenAI's and Google's models are built in, and an entry here takes precedence over them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PriceSettings {
    /// The prices of single models, under a pattern of their names such as `qwen3*`. Patterns work as
    /// in `compression.models`.
    pub models: BTreeMap<String, ModelPrice>,
}

impl PriceSettings {
    /// Returns the entry of `models` for the model with this name, if there is one with an `input`
    /// price. Patterns work as in [`Compression::for_model`].
    pub fn for_model(&self, model: &str) -> Option<&ModelPrice> {
        let (_, price) = threshold::for_model(&self.models, model)?;
        price.input.is_some().then_some(price)
    }
}

/// `prices.models.*`: what the models whose names match the pattern cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelPrice {
    /// US dollars for a million tokens of the prompt; none if the entry says nothing.
    #[schemars(range(min = 0.0))]
    pub input: Option<f64>,
    /// US dollars for a million tokens of the prompt that the provider's cache has; none for a tenth
    /// of `input`.
    #[schemars(range(min = 0.0))]
    pub cached: Option<f64>,
    /// US dollars for a million tokens of the prompt that are written to the provider's cache; none
    /// for the same as `input`.
    #[schemars(range(min = 0.0))]
    pub write: Option<f64>,
    /// US dollars for a million tokens of the answer; none for answers that cost nothing.
    #[schemars(range(min = 0.0))]
    pub output: Option<f64>,
}

/// `plugins`: where plugins are. `contexture plugins install` puts a plugin into the first folder
/// of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Plugins {
    /// The plugin folders, each with a folder for every engine, relative to the config file or with
    /// `~/` to the home directory; none for `plugins/context_engine` beside the config file.
    pub dirs: Option<Vec<String>>,
}

/// `gateway`: the proxy between an agent and the API of its model, started by `contexture serve`
/// and `contexture run`. The limits protect the gateway from clients, and clients from waiting for
/// an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Gateway {
    /// The address to listen on. If other machines can reach it, `gateway.tokens` are required.
    pub listen: String,
    /// Whether requests are managed or only observed.
    pub mode: GatewayMode,
    /// How long the gateway may delay a request, in ms. After that it is sent unchanged.
    #[schemars(range(min = 1, max = 600_000))]
    pub max_hold_ms: u64,
    /// How many times in a row the model may call the engine's tools before it has to answer.
    #[schemars(range(min = 1, max = 100))]
    pub max_rounds: u32,
    /// The largest request, and the largest answer of a provider, in MB (2^20 bytes).
    #[schemars(range(min = 1, max = 1_024))]
    pub max_body_mb: u64,
    /// How many requests are answered at once; further ones get the status 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: u32,
    /// How many sessions stay in memory between their turns.
    #[schemars(range(min = 1, max = 100_000))]
    pub open_sessions: u32,
    /// How long a client may take to send its request, or to read a piece of the answer, in ms.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub client_timeout_ms: u64,
    /// How many connections are open at once; further ones wait until one is closed.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_connections: u32,
    /// How long a connection may take to send the head of its next request, in ms, before it is
    /// closed. The time counts from the end of the previous request, so idle connections are closed
    /// as well.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub header_timeout_ms: u64,
    /// How many requests of one name of `gateway.tokens` are answered at once; further ones get the
    /// status 429. None for an equal share of `max_requests`.
    #[schemars(range(min = 1, max = 100_000))]
    pub tenant_requests: Option<u32>,
    /// How long the gateway waits for answers in progress when it stops, in ms.
    #[schemars(range(max = 3_600_000))]
    pub shutdown_ms: u64,
    /// Who may use the gateway: each user's name, with the environment variable that has the token
    /// for `x-contexture-token`. Each user has separate sessions. If there are no names, everybody
    /// who can reach the gateway may use it.
    pub tokens: BTreeMap<String, String>,
    /// Additional names to accept in the `Host` header, with or without a port, such as that of a
    /// proxy in front of the gateway. The gateway's own address and this machine's names are always
    /// accepted. If other machines can reach the address, every name is accepted unless some are
    /// listed here.
    pub hosts: Vec<String>,
    /// The origins of web pages that may use the gateway besides its own page, such as
    /// `https://ui.example:8443`.
    pub origins: Vec<String>,
    /// Whether the keys of `upstream.*.api_key_env` are added even to requests without a token.
    pub open_key: bool,
    /// The certificate with which `contexture serve` speaks HTTPS instead of HTTP. Both files are
    /// read again when the configuration is. `contexture run` serves this machine alone and stays
    /// with HTTP.
    pub tls: GatewayTls,
    /// Traces of requests for an OpenTelemetry collector. They hold names, sizes and times, and no
    /// text of a conversation. Only `contexture serve` sends them, and reads this section at its
    /// start.
    pub telemetry: Telemetry,
}

/// `gateway.telemetry`: where the gateway sends traces. The variables `OTEL_SERVICE_NAME`,
/// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_EXPORTER_OTLP_HEADERS` apply as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Telemetry {
    /// The collector's base URL for OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is
    /// added. None to send nothing.
    #[schemars(url)]
    pub endpoint: Option<String>,
    /// The share of traces to send (a ratio), for requests whose `traceparent` header does not
    /// decide it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample_ratio: 1.0,
        }
    }
}

/// `gateway.tls`: the certificate with which the gateway serves HTTPS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GatewayTls {
    /// The PEM file with the certificate, followed by those of its intermediate authorities,
    /// relative to the config file. None for HTTP.
    pub certificate: Option<PathBuf>,
    /// The PEM file with the certificate's private key, relative to the config file.
    pub key: Option<PathBuf>,
}

impl Gateway {
    /// Returns the base URL at which a gateway with this configuration answers.
    pub fn url(&self) -> String {
        let scheme = match self.tls.certificate {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}", self.listen)
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8787".into(),
            mode: GatewayMode::default(),
            max_hold_ms: 5_000,
            max_rounds: 8,
            max_body_mb: 64,
            max_requests: 1_024,
            open_sessions: 64,
            client_timeout_ms: 60_000,
            max_connections: 4_096,
            header_timeout_ms: 30_000,
            tenant_requests: None,
            shutdown_ms: 60_000,
            tokens: BTreeMap::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            open_key: false,
            tls: GatewayTls::default(),
            telemetry: Telemetry::default(),
        }
    }
}

/// What the gateway does with requests. Observing is meant for a trial: it shows what an engine
/// would save without any risk to the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayMode {
    /// The engine decides what the model sees.
    #[default]
    Manage,
    /// Every byte is forwarded unchanged, and what managing would have saved is reported.
    Observe,
}

/// `upstream`: the providers to which the gateway forwards requests, one for each kind of API that
/// clients use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Upstream {
    /// Requests for chat completions and Responses.
    pub openai: Provider,
    /// Requests for Anthropic messages.
    pub anthropic: Provider,
    /// Requests of Codex with a ChatGPT login instead of an API key.
    pub chatgpt: Provider,
    /// Requests for the Gemini API.
    pub google: Provider,
    /// How long it may take to connect, in ms.
    #[schemars(range(min = 1, max = 600_000))]
    pub connect_timeout_ms: u64,
    /// How long a provider may be silent, in ms.
    #[schemars(range(min = 1, max = 7_200_000))]
    pub idle_timeout_ms: u64,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            openai: Provider::default(),
            anthropic: Provider::default(),
            chatgpt: Provider::default(),
            google: Provider::default(),
            connect_timeout_ms: 10_000,
            idle_timeout_ms: 600_000,
        }
    }
}

/// `upstream.openai`, `upstream.anthropic`, `upstream.chatgpt` or `upstream.google`: one provider's
/// API. If nothing is set, requests go to the usual address with the key that the client sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Provider {
    /// The base URL in the form that the provider's SDK accepts; none for the default. `/v1` is
    /// appended for OpenAI if the URL has no path, and for Anthropic if it does not end with a
    /// version. For Google the client's version is used.
    #[schemars(url)]
    pub base_url: Option<String>,
    /// The environment variable that holds an API key; none to forward what the client sent. The
    /// key replaces the client's in requests with a token of the gateway, or in all requests if
    /// `gateway.open_key` is true.
    #[schemars(length(min = 1))]
    pub api_key_env: Option<String>,
    /// The certificates for the gateway's connections to this provider, as a company's own proxy or
    /// server may need them. The files are read again when the configuration is.
    pub tls: ProviderTls,
}

/// `upstream.*.tls`: the certificates for the gateway's connections to a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProviderTls {
    /// The PEM file with the client certificate that the gateway presents, relative to the config
    /// file. None to present none.
    pub certificate: Option<PathBuf>,
    /// The PEM file with the client certificate's private key, relative to the config file.
    pub key: Option<PathBuf>,
    /// A PEM file with certificate authorities that are trusted in addition to the usual ones,
    /// relative to the config file.
    pub ca: Option<PathBuf>,
}

impl Config {
    /// Returns where an engine runs: the `isolation` among its own settings if it has one,
    /// otherwise `context.isolation`.
    pub fn isolation_of(&self, name: &str) -> Isolation {
        let own = self.context.engines.get(name);
        let own = own.and_then(|settings| settings.get(ISOLATION)).cloned();
        // The value was checked when the file was read, so it always parses.
        own.and_then(|own| serde_json::from_value(own).ok())
            .unwrap_or(self.context.isolation)
    }

    /// Returns the context window of the model with this name, in tokens, as far as the file says:
    /// in `compression.models`, or else in `model.context_length`.
    pub fn context_length_of(&self, model: &str) -> Option<u64> {
        let entry = self.compression.for_model(model);
        let own = entry.and_then(|(_, entry)| entry.context_length);
        own.or(self.model.context_length)
    }

    /// Returns whether secrets are masked before the messages of a session with this engine are
    /// stored: if `transcript.redact` is true, or a setting `redact` of the engine.
    pub fn redacts(&self, engine: &str) -> bool {
        self.transcript.redact || self.engine_settings(engine)["redact"] == true
    }

    /// Returns the settings of an engine as a JSON object: what stands under
    /// `context.engines.<name>`, or an empty object if nothing does.
    ///
    /// The built-in compressor's settings are those of the `compression` section. What stands under
    /// `context.engines.compressor` overrides them.
    pub fn engine_settings(&self, name: &str) -> Value {
        let mut own = self.context.engines.get(name).cloned().unwrap_or_default();
        // The host reads this key, and an engine would refuse it as unknown.
        own.remove(ISOLATION);
        if name != crate::engine_name::BUILT_IN {
            return Value::Object(own);
        }
        // A struct of plain numbers and words always has a JSON form.
        let mut settings = serde_json::to_value(&self.compression).unwrap_or_default();
        if let Value::Object(settings) = &mut settings {
            // The host reads these keys itself and does not pass them to the engine.
            for key in HOST_KEYS {
                settings.remove(key);
            }
            settings.extend(own);
        }
        settings
    }
}

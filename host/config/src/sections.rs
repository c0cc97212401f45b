//! The keys of `config.yaml`. The doc comments, defaults and ranges here are the schema that a file is
//! checked against; there is no other list of keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contexture_formats::prompt_cache::CacheTtl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key of an engine's settings that says where it runs.
pub(super) const ISOLATION: &str = "isolation";

/// The whole configuration. Every key has a default, so an empty file is a valid one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Which engine runs, and what becomes of a turn when it cannot.
    pub context: Context,
    /// What the host stores of conversations.
    pub transcript: Transcript,
    /// When and how much the built-in compressor compacts.
    pub compression: Compression,
    /// The models that do side work.
    pub auxiliary: Auxiliary,
    /// Prompt cache markers (Anthropic).
    pub prompt_caching: PromptCaching,
    /// The safety net that compacts before a turn, at a fixed 85 % of the context window.
    pub hygiene: Hygiene,
    /// The agent's own model.
    pub model: Model,
    /// Where plugins are.
    pub plugins: Plugins,
    /// The gateway (`contexture serve`).
    pub gateway: Gateway,
    /// Where the gateway sends requests on to.
    pub upstream: Upstream,
}

/// `context`: which engine runs, and what becomes of a turn when it cannot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Context {
    /// The engine's name; `compressor` is always the built-in one.
    #[schemars(extend("format" = "engine-name"))]
    pub engine: String,
    /// When there is no engine of that name.
    pub on_missing: OnMissing,
    /// When the plugin of that name cannot be loaded.
    pub on_load_failure: OnLoadFailure,
    /// When the engine fails in the middle of a conversation.
    pub on_failure: OnFailure,
    /// Where plugins run. An engine's own `isolation`, among its settings, counts before this.
    pub isolation: Isolation,
    /// The program that runs engines in processes of their own; by default the one beside this program, or on the
    /// PATH.
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

/// `transcript`: what the host stores of conversations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Transcript {
    /// Whether the text of messages is stored.
    pub mode: TranscriptMode,
    /// Whether passwords and keys are masked before a text is stored. What the model sees stays as it is.
    pub redact: bool,
}

/// Whether the text of messages is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TranscriptMode {
    /// If the engine reads it. Otherwise only ids and hashes are stored.
    #[default]
    Auto,
    /// With every engine, so that a session can change to an engine that reads it and lose nothing.
    Full,
}

/// Where an engine runs that is a plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In this process.
    #[default]
    None,
    /// In a process of its own, whose end costs no more than the calls that it was at.
    Process,
}

/// What happens when there is no engine of the configured name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// The built-in compressor runs, with a warning.
    #[default]
    Fallback,
    /// Nothing runs.
    Fail,
}

/// What happens when the configured plugin cannot be loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLoadFailure {
    /// The built-in compressor runs, with a warning.
    #[default]
    Fallback,
    /// Nothing runs.
    Fail,
}

/// What happens to a turn in which the engine fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The built-in compressor does what the engine could not.
    #[default]
    Fallback,
    /// The conversation is sent as it is.
    Passthrough,
    /// The turn fails.
    Fail,
}

/// `context.supervision`: how long an engine may take, and how often it may fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Supervision {
    /// The deadline of a compaction, in ms. Deadlines grow with the messages at hand, and the time of a model
    /// call does not count.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub compress_deadline_ms: u64,
    /// The deadline of every other call, in ms. One by which the engine follows the conversation may take four
    /// times as long before it is given up.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub call_deadline_ms: u64,
    /// How long a call may go on after it was told to stop, in ms, before it is abandoned.
    #[schemars(range(max = 60_000))]
    pub grace_ms: u64,
    /// The number of sessions with abandoned calls that still run at which the engine is quarantined for all sessions.
    #[schemars(range(min = 1, max = 64))]
    pub abandoned_threads: u32,
    /// The number of failures in a row of one session at which the engine is quarantined for it, and of sessions in a row
    /// in which it fails at which it is quarantined for all (two at least).
    #[schemars(range(min = 1))]
    pub failures_before_quarantine: u32,
    /// How long a quarantined engine is left alone, in ms. A quarantine that follows soon after another is twice as long.
    pub quarantine_ms: u64,
    /// The most address space of an engine's own process, in MB (2^20 bytes); 0 for any.
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

/// `compression`: when and how much the built-in compressor compacts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Compression {
    /// Whether any engine compacts conversations without being asked to.
    pub enabled: bool,
    /// Whether they are compacted without being asked to. Where not, a body that does not fit is reported, and
    /// leaves as it is.
    pub automatic: bool,
    /// When conversations are compacted: at the threshold once that is sure to cost nothing, at the threshold whatever it
    /// costs, or as soon as it is likely to save money.
    pub timing: Timing,
    /// The share of the context window at which to compact (a ratio).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: f64,
    /// An absolute cap on the threshold, in tokens: the lower of the two counts.
    #[schemars(range(min = 1), extend("ignoreInvalid" = true))]
    pub max_threshold_tokens: Option<u64>,
    /// The share of the threshold that is kept as the recent part (a ratio).
    #[schemars(range(min = 0.1, max = 0.8))]
    pub target_ratio: f64,
    /// The least number of recent messages that are kept as they are, while they leave a quarter of the threshold free.
    #[schemars(range(min = 1))]
    pub protect_last_n: u64,
    /// Whether a compaction that is due waits for the model's summary rather than do with what is prepared. The
    /// command line waits in any case.
    pub wait_for_model: bool,
}

/// `compression.timing`: when conversations are compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// From the threshold on. While the provider's prompt cache holds the conversation and the window does not require
    /// a compaction, not before it is sure to cost no more than going on without one.
    #[default]
    Safe,
    /// From the threshold on, whatever it costs.
    Threshold,
    /// From half the threshold on, as soon as that costs less at the prices of the provider's prompt cache than going
    /// on without it.
    Economy,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            enabled: true,
            automatic: true,
            timing: Timing::default(),
            threshold: 0.50,
            max_threshold_tokens: None,
            target_ratio: 0.20,
            protect_last_n: 20,
            wait_for_model: false,
        }
    }
}

impl Compression {
    /// What the section may hold, as JSON Schema.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }
}

/// `auxiliary`: the models that do side work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auxiliary {
    /// The model that writes summaries.
    pub compression: AuxiliaryModel,
}

/// `auxiliary.compression`: the model that writes summaries. Its key comes from the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuxiliaryModel {
    /// The model's name; none for the agent's own where it has this provider, and else for the provider's usual one. A
    /// `base_url` of one's own needs a name.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Who answers: `auto` follows the agent's own provider where there is one and is `none` otherwise;
    /// `openai` is any compatible server; `main` is the agent's model and provider; `none` makes no
    /// calls.
    #[schemars(extend("enum" = ["auto", "openai", "anthropic", "openrouter", "nous", "main", "none"]))]
    pub provider: String,
    /// The address of the provider's API; none for its usual one.
    #[schemars(url)]
    pub base_url: Option<String>,
    /// The model's context window, in tokens; none where it is known by the model's name. Of a name that is not known
    /// 32,768 are assumed.
    #[schemars(range(min = 1))]
    pub context_length: Option<u64>,
    /// How long one request may take, in ms.
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

/// `prompt_caching`: prompt cache markers (Anthropic).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PromptCaching {
    /// Whether requests carry markers; none for where model and provider know them. `compress` marks its
    /// output where it is true, or asked to.
    pub enabled: Option<bool>,
    /// How long the provider keeps what is marked.
    pub cache_ttl: CacheTtl,
}

/// `hygiene`: the safety net before a turn, at a fixed 85 % of the context window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hygiene {
    /// The number of messages at which to compact regardless of their size; none for no limit.
    #[schemars(range(min = 4))]
    pub max_messages: Option<u64>,
}

/// `model`: the agent's own model, as far as it is not known from the requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Model {
    /// Its name, as the provider calls it.
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Who serves it.
    #[schemars(extend("enum" = ["openai", "anthropic", "openrouter", "nous"]))]
    pub provider: Option<String>,
    /// The address of the provider's API; none for its usual one.
    #[schemars(url)]
    pub base_url: Option<String>,
    /// Its context window, in tokens; none where it is known by the model's name.
    #[schemars(range(min = 1))]
    pub context_length: Option<u64>,
    /// What is reserved for an answer, in tokens.
    #[schemars(range(min = 1))]
    pub max_output_tokens: Option<u64>,
}

/// `plugins`: where plugins are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Plugins {
    /// The plugin folders, each with a folder for every engine: relative to the config file, `~/` to the
    /// home directory; none for `plugins/context_engine` beside the config file.
    pub dirs: Option<Vec<String>>,
}

/// `gateway`: the proxy before a model's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Gateway {
    /// The address to listen on. On any that is not this machine's own, `gateway.tokens` are needed.
    pub listen: String,
    /// Whether requests are managed, or only looked at.
    pub mode: GatewayMode,
    /// How long a request may be held up before it goes on to the model, in ms; then it leaves as it came.
    #[schemars(range(min = 1, max = 600_000))]
    pub max_hold_ms: u64,
    /// How many times in a row the model may call tools of the engine's before it has to answer.
    #[schemars(range(min = 1, max = 100))]
    pub max_rounds: u32,
    /// The largest request, in MB (2^20 bytes).
    #[schemars(range(min = 1, max = 1_024))]
    pub max_body_mb: u64,
    /// How many requests are answered at once; those beyond get the status 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: u32,
    /// How many sessions stay in memory between their turns.
    #[schemars(range(min = 1, max = 100_000))]
    pub open_sessions: u32,
    /// How long a client may take to send its request, or to take a piece of the answer, in ms.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub client_timeout_ms: u64,
    /// How many connections are open at once; those beyond wait until one is closed.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_connections: u32,
    /// How long a connection may take to send the head of its next request, in ms; then it is closed. It counts from the
    /// end of the request before, so that a connection without requests is closed as well.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub header_timeout_ms: u64,
    /// How many requests of one name of `gateway.tokens` are answered at once; those beyond get the status 429. None for
    /// an equal share of `max_requests`.
    #[schemars(range(min = 1, max = 100_000))]
    pub tenant_requests: Option<u32>,
    /// How long answers under way may take to end when the gateway stops, in ms.
    #[schemars(range(max = 3_600_000))]
    pub shutdown_ms: u64,
    /// Who may use it: a name for each, and the environment variable that holds the token which is sent as
    /// `x-contexture-token`. Each name has sessions of its own. Without names, everybody who reaches it may use it.
    pub tokens: BTreeMap<String, String>,
    /// More names that requests may give in their `Host` header, each with or without a port, as of a proxy before the
    /// gateway. Its own address and this machine's own names are always allowed. On an address that other machines
    /// reach, every name is, unless names are listed here.
    pub hosts: Vec<String>,
    /// The origins whose web pages may use the gateway besides its own page, as `https://ui.example:8443`.
    pub origins: Vec<String>,
    /// Whether the keys of `upstream.*.api_key_env` are added to requests without a token, too.
    pub open_key: bool,
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
        }
    }
}

/// What the gateway does with requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayMode {
    /// The engine decides what the model gets to see.
    #[default]
    Manage,
    /// Every byte goes on as it came; what managing would have saved is reported.
    Observe,
}

/// `upstream`: where the gateway sends requests on to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Upstream {
    /// Chat completions and Responses.
    pub openai: Provider,
    /// Anthropic messages.
    pub anthropic: Provider,
    /// What Codex asks with a ChatGPT login in place of an API key.
    pub chatgpt: Provider,
    /// How long a connection may take, in ms.
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
            connect_timeout_ms: 10_000,
            idle_timeout_ms: 600_000,
        }
    }
}

/// `upstream.openai`, `upstream.anthropic`, `upstream.chatgpt`: a provider's API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Provider {
    /// Its base URL as its SDK takes it; none for the usual one. `/v1` is added for OpenAI if the URL has no path, and for
    /// Anthropic if it does not end with a version.
    #[schemars(url)]
    pub base_url: Option<String>,
    /// The environment variable that holds a key. It replaces the client's in requests that present a token of the
    /// gateway's, or in all of them under `gateway.open_key`. None to send on what the client sent.
    #[schemars(length(min = 1))]
    pub api_key_env: Option<String>,
}

impl Config {
    /// Where an engine runs, by its own settings or for all.
    pub fn isolation_of(&self, name: &str) -> Isolation {
        let own = self.context.engines.get(name);
        let own = own.and_then(|settings| settings.get(ISOLATION)).cloned();
        // Checked when they were read.
        own.and_then(|own| serde_json::from_value(own).ok())
            .unwrap_or(self.context.isolation)
    }

    /// The settings of an engine: what stands under `context.engines.<name>`, as a JSON object. The
    /// built-in compressor's are the `compression` section, with what stands under
    /// `context.engines.compressor` over it.
    pub fn engine_settings(&self, name: &str) -> Value {
        let mut own = self.context.engines.get(name).cloned().unwrap_or_default();
        // That one is the host's.
        own.remove(ISOLATION);
        if name != crate::engine_name::BUILT_IN {
            return Value::Object(own);
        }
        // A struct of plain numbers always has a JSON form.
        let mut settings = serde_json::to_value(&self.compression).unwrap_or_default();
        if let Value::Object(settings) = &mut settings {
            // That one is the host's.
            settings.remove("wait_for_model");
            settings.remove("automatic");
            settings.remove("timing");
            settings.extend(own);
        }
        settings
    }
}

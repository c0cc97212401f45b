//! A host for context engines, which keep long conversations inside a language model's window.
//!
//! An agent passes each request to a [`Session`] before it sends the request to the model, and
//! passes the answer to it afterwards. The session does everything else: it finds out what is new
//! in the request, decides with its engine whether the conversation has to get smaller, and returns
//! the body that the model should see.
//!
//! ```
//! use contexture::{Host, HostOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! # let options = HostOptions::in_home(home.path());
//! # let _ = "
//! let options = HostOptions::default(); // ~/.contexture, with its config.yaml
//! # ";
//! let host = Host::open(&options)?;
//! let mut session = host.session("work").model("gpt-4o", 128_000).open()?;
//!
//! let request = r#"{"messages": [{"role": "user", "content": "Hello"}]}"#;
//! let turn = session.turn(request)?;
//! assert_eq!(turn.body, request); // nothing to do yet: the bytes that came
//! // … send `turn.body` to the model, and then:
//! session.answer(&[r#"{"role": "assistant", "content": "Hello!"}"#], None)?;
//! session.end()?;
//! # Ok(())
//! # }
//! ```
//!
//! **Requests.** A request is a body in the format of OpenAI chat completions, OpenAI Responses,
//! Anthropic messages or Gemini. The format is detected, or given to [`Session::turn_with`]. The body may
//! contain the whole history again, continue from the last [`Turn::body`], or mix both.
//! [`TurnOptions`] say whether the turn may compact, what a summary should emphasise, and which
//! message is the first that must stay unchanged. If an agent keeps its history as values of its own,
//! [`Turn::messages`] tells it what happened to each wire message.
//!
//! **Answers.** [`Session::answer`] takes the messages of the answer and the usage that the
//! provider reported. The usage corrects the token counts. If an agent leaves this call out, the
//! answer is taken from the next request.
//!
//! **Tools.** [`Session::tools`] returns the tools that the engine offers to the model, for the
//! `tools` of the request in the provider's format. When the model calls one of them,
//! [`Session::call_tool`] answers the call.
//!
//! **Errors.** With the default configuration, a failing engine does not cost a turn: the built-in
//! compressor takes over, and [`Session::take_warnings`] says so. A [`SessionError`] is returned if
//! a body cannot be read, if the session is open elsewhere, if a request belongs to another
//! conversation and [`Unrelated::Refuse`] is set, and for every failure of an engine if
//! `context.on_failure` is `fail`. After an error, the request can be sent as it is.
//!
//! **Limits.** A call of an engine has 10 seconds plus time for its messages, a compaction has 120
//! seconds, and both have another half second to stop. Calls through which an engine follows the
//! conversation have four times as long (`context.supervision`). If an engine answers later, the
//! answer is dropped: the turn goes on without it, and the engine is opened again for the next
//! turn. Opening a session that is open elsewhere waits for 30 seconds ([`SessionBuilder::wait`]).
//!
//! **Threads.** A [`Host`] is shared by all threads, and a [`Session`] is used by one thread at a
//! time. All calls block, so an async program makes them on a thread that may block
//! (`spawn_blocking`). Model calls between turns are made by a thread of the session, or by the
//! embedding program if it asks for that ([`SessionBuilder::background_by_embedder`]).
//!
//! **Durability.** Ids and hashes of messages are written before an engine sees these messages, and
//! a compaction is written before it is returned. When `turn` and `answer` return, their effects
//! survive the end of the process. A loss of power may lose the latest of them, but never damages
//! the files. The text of the conversation is stored if the engine reads it back, as `lcm` does, or
//! if `transcript.mode` is `full`.
//! If the disk fails, the session goes on in memory and says so.
//!
//! # Features
//!
//! - `network` (default): model calls. Without it, no model is asked
//!   ([`providers::NoModel::NoNetwork`]), and everything works as it does offline.
//! - `postgres`: stores sessions in a database of PostgreSQL if `transcript.store` says so, which
//!   several machines can share.
//! - `lcm`: links the lossless engine into the program, so that `context.engine: lcm` needs no
//!   plugin.
//!
//! # Modules
//!
//! The modules are what the command line is made of, and few embedders need them: conversations in
//! files ([`formats`]), the available engines ([`catalog`], [`engines`]), configuration
//! ([`config`], [`providers`]), the logs of agents on this machine ([`history`]), token counts
//! ([`tokens`]), prompt cache markers ([`prompt_cache`]), and replaying recorded conversations with
//! different engines ([`replay`]).

mod gateway_token;
mod host;
mod open_record;

/// The engines that are available, and the one that is selected. Use this to list engines or to
/// explain a choice. Looking at the catalog runs no code of an engine.
pub mod catalog {
    #[doc(inline)]
    pub use contexture_runtime::catalog::*;
    #[doc(inline)]
    pub use contexture_runtime::manifest_of;
}

/// The configuration file `config.yaml`: its keys, and reading, checking and printing it. Begin
/// with [`Config`](config::Config), whose `load` reads the file.
pub mod config {
    #[doc(inline)]
    pub use contexture_base::Env;
    #[doc(inline)]
    pub use contexture_config::{
        Auxiliary, AuxiliaryModel, Compression, Config, ConfigError, Context, DocumentError,
        Effective, Finding, Gateway, GatewayMode, GatewayTls, Hygiene, Isolation, KeyPath, Loaded,
        Location, Model, ModelCompression, ModelPrice, OnFailure, OnLoadFailure, OnMissing, Origin,
        PathStep, Plugins, PriceSettings, Problem, PromptCaching, Provider, ProviderTls, Schema,
        SchemaError, Setting, Supervision, Telemetry, Threshold, Timing, Transcript,
        TranscriptMode, TranscriptStore, Upstream, editor_schema,
    };
}

/// The engines of a process: each is found and loaded once, and opened for sessions under
/// supervision. Begin with [`Engines`](engines::Engines). If an engine is part of your program,
/// register it here.
pub mod engines {
    #[doc(inline)]
    pub use contexture_runtime::engines::{
        CallError, EngineEntry, EngineHealth, Engines, HealthState, LoadedPlugin, NameTaken,
        OpenError, Opened, RegisterError, Source, catalog, look_for_engine_host_in, open_plugin,
        register_context_engine, registered_engines,
    };
}

/// Wire formats: reading conversations as engines see them, and writing them again. Begin with
/// [`read`](formats::read), which detects the format of a conversation.
pub mod formats {
    #[doc(inline)]
    pub use contexture_formats::{
        BodyEdits, BodyParts, Call, Conversation, Converted, Format, FormatError, Media, MediaKind,
        Message, PlanEntry, RecordedUsage, RenderPlan, SplitBody, WireBody, WrittenBody,
        is_compaction_item, item_lines, known_usage, parse_json, parse_messages, read, read_bytes,
        render_all, replace_half_surrogates, reported_usage, sealed_summary, split, text_bytes,
        tool_list,
    };
}

/// The logs that agents keep on this machine, as a history that can be searched. Begin with
/// [`Importer`](history::Importer), which reads the logs, and [`History`](history::History), which
/// answers.
pub mod history {
    #[doc(inline)]
    pub use contexture_history::{
        AgentReport, Excerpt, FILE_NAME, Found, History, HistoryError, Hit, ImportReport, Importer,
        Kind, Message, Places, Progress, Query, Skipped, agents, is_log, logs_of, parse_since,
        read_conversations,
    };
}

/// Markers for a provider's prompt cache. Begin with [`mark`](prompt_cache::mark), which adds
/// them to a body. The other functions say whether a provider supports them.
pub mod prompt_cache {
    #[doc(inline)]
    pub use contexture_formats::mark;
    #[doc(inline)]
    pub use contexture_formats::prompt_cache::{
        CacheProvider, CacheStatus, CacheTtl, DisabledReason, MarkError, Shape, Ttl, decide,
        provider_at,
    };
}

/// Model calls: finding out which model a configuration means, and asking it. Begin with
/// [`resolve`](providers::resolve) to find it and [`ModelClient`](providers::ModelClient) to ask
/// it.
pub mod providers {
    #[doc(inline)]
    pub use contexture_providers::{
        AgentModel, Ask, Credentials, Endpoint, LentModel, Mask, ModelClient, NoModel, Provider,
        ProviderChoice, ProviderError, Question, Resolved, Secret, UsageByModel, configured_agent,
        configured_client, resolve, resolve_configured,
    };
}

/// One conversation, its window, and the engine that keeps it small. Begin with [`Session`]. The
/// types that an agent needs on every turn are also at the root of this crate.
pub mod session {
    #[cfg(feature = "postgres")]
    pub use crate::open_record::postgres_options;
    pub use crate::open_record::{has_record, open_record, open_record_to_read};
    #[doc(inline)]
    pub use contexture_session::{
        AgentWindow, BackgroundAnswer, BackgroundBy, BackgroundWork, BodyMessage, Canceller,
        Compact, CompactionReport, Comparison, DecisionReport, OutcomeKind, Peers, Relation,
        Revision, Session, SessionError, SessionOptions, SessionReport, Turn, TurnOptions,
        TurnReport, Unrelated, Window,
    };
    #[cfg(feature = "postgres")]
    #[doc(inline)]
    pub use contexture_transcript::PostgresOptions;
    #[doc(inline)]
    pub use contexture_transcript::{
        CopyOutcome, Delivered, Hold, KeptChange, KeptContent, Placed, Record, RecordError,
        RecordRepair, SessionSummary, WireMessage,
    };
}

/// Token counts and window sizes of models. Begin with [`TokenCounter`](tokens::TokenCounter), or
/// use [`known_window`](tokens::known_window) if only the size of a model's window is needed.
pub mod tokens {
    #[doc(inline)]
    pub use contexture_formats::tokens::{ModelWindow, TokenCounter, estimate, known_window};
}

pub use contexture_base::{
    PerProcess, SecretError, lock, now_ms, secret, secret_if_readable, suggest::nearest, user_home,
};
pub use contexture_contract as contract;
pub use contexture_engine_api::{Decision, MessageId, ToolCall, ToolSpec, Usage, WindowState};
pub use contexture_replay as replay;
pub use contexture_secrets::mask_secrets;
#[doc(inline)]
pub use contexture_session::{
    BodyMessage, Canceller, Compact, CompactionReport, OutcomeKind, Session, SessionError, Turn,
    TurnOptions, Unrelated,
};
pub use gateway_token::{GatewayToken, TokenError};
pub use host::{Host, HostError, HostOptions, SessionBuilder};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

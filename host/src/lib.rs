//! Contexture: a host for context engines, which keep long conversations inside a language model's window.
//!
//! An agent gives each request to a [`Session`] before it sends it, and the answer after it. In between
//! everything else is the session's business: what of the request is new, whether the conversation has to get
//! smaller, and what the model is to see.
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
//! **What a request may be.** A body of OpenAI chat completions, OpenAI Responses or Anthropic messages; the
//! format is detected, or given to [`Session::turn_with`]. It may hold the whole history again, carry on from
//! what [`Turn::body`] was, or mix both. [`TurnOptions`] say whether the turn may compact, what a summary
//! should dwell on, and from where on messages stay as they are. [`Turn::messages`] says what became of each wire
//! message, for an agent that keeps its history as values of its own.
//!
//! **The answer.** [`Session::answer`] takes the usage that the provider reported and the messages of the
//! answer; it is what the token counts are corrected by. An agent may leave it out: the answer is then
//! taken from the next request.
//!
//! **Tools.** [`Session::tools`] are what the engine offers to the model, for the `tools` of the request in the
//! provider's own form; a call of one of them is answered by [`Session::call_tool`].
//!
//! **Errors.** With the default configuration an engine that fails costs no turn: the built-in compressor
//! stands in, and [`Session::take_warnings`] says so. [`SessionError`] is for a body that cannot be read, a
//! session that is open elsewhere, another conversation under [`Unrelated::Refuse`], and every failure of
//! an engine under `context.on_failure: fail`. After an error the request can be sent as it is.
//!
//! **Limits.** A call of an engine has 10 seconds and what its messages take, a compaction 120, and half a second
//! more to stop; calls by which an engine follows the conversation have four times as long
//! (`context.supervision`). What comes later is abandoned: the turn goes on without it, and the engine is
//! opened again for the next. Opening a session that is open elsewhere waits half a minute
//! ([`SessionBuilder::wait`]).
//!
//! **Threads.** A [`Host`] is shared by all threads; a [`Session`] is one thread's at a time. All calls block;
//! an async program makes them where blocking is allowed (`spawn_blocking`). Model calls between turns are
//! made by a thread of the session's own, or by the embedder
//! ([`SessionBuilder::background_by_embedder`]).
//!
//! **What is durable when.** Ids and hashes of messages are written before an engine sees these messages, a
//! compaction before it is handed out. When `turn` and `answer` return, what they brought survives the end of
//! the process; a loss of power may take the last of it, and never damages the files. The text of the
//! conversation is kept only by an engine that keeps it (`lcm`). Where the disk fails, the
//! session goes on in memory and says so.
//!
//! # Features
//!
//! - `network` (default): model calls. Without it no model is asked ([`providers::NoModel::NoNetwork`]), and
//!   everything works as it does offline.
//! - `lcm`: links the lossless engine in, so that `context.engine: lcm` needs no plugin.
//!
//! # The rest
//!
//! What the command line is made of, and few embedders need: conversations in files ([`formats`]), which
//! engines there are ([`catalog`], [`engines`]), configuration ([`config`], [`providers`]), token counts
//! ([`tokens`]), prompt cache markers ([`prompt_cache`]), and recorded conversations played through engines
//! ([`replay`]).

mod gateway_token;
mod host;

/// Which engines there are, and which one runs. Looking runs none of their code.
pub mod catalog {
    #[doc(inline)]
    pub use contexture_runtime::catalog::*;
    #[doc(inline)]
    pub use contexture_runtime::manifest_of;
}

/// `config.yaml`: its keys, reading it, checking it and showing it. Begin at [`Config`](config::Config).
pub mod config {
    #[doc(inline)]
    pub use contexture_config::{
        Auxiliary, AuxiliaryModel, Compression, Config, ConfigError, Context, DocumentError,
        Effective, Env, Finding, Gateway, GatewayMode, Hygiene, Isolation, KeyPath, Loaded,
        Location, Model, OnFailure, OnLoadFailure, OnMissing, Origin, PathStep, Plugins, Problem,
        PromptCaching, Provider, Schema, SchemaError, Setting, Supervision, Timing, Transcript,
        TranscriptMode, Upstream, with_text,
    };
}

/// The engines of a process: found, loaded once, and opened for sessions under supervision. Begin at
/// [`Engines`](engines::Engines).
pub mod engines {
    #[doc(inline)]
    pub use contexture_runtime::engines::{
        CallError, EngineHealth, Engines, HealthState, NameTaken, OpenError, Opened, Source,
        catalog, load_plugin, look_for_engine_host_in, register_context_engine, registered_engines,
    };
}

/// Wire formats: conversations in, as engines see them, and out again. Begin at [`read`](formats::read).
pub mod formats {
    #[doc(inline)]
    pub use contexture_formats::{
        Call, Conversation, Converted, Format, FormatError, Media, MediaKind, Message, PlanEntry,
        RecordedUsage, RenderPlan, WireBody, is_compaction_item, item_lines, parse_messages, read,
        read_bytes, render_all, split, with_tools,
    };
}

/// Markers for a provider's prompt cache. Begin at [`apply`](prompt_cache::apply).
pub mod prompt_cache {
    #[doc(inline)]
    pub use contexture_formats::prompt_cache::{
        Breakpoint, BreakpointTarget, CacheProvider, CacheStatus, CacheTtl, DisabledReason,
        MarkError, Marked, Shape, Ttl, apply, decide, provider_at, remove,
    };
}

/// Model calls: which model a configuration means, and asking it. Begin at [`resolve`](providers::resolve) and
/// [`ModelClient`](providers::ModelClient).
pub mod providers {
    #[doc(inline)]
    pub use contexture_providers::{
        AgentModel, Ask, Credentials, Endpoint, LentModel, Mask, ModelClient, ModelSettings,
        NoModel, Provider, ProviderChoice, ProviderError, Resolved, Secret, configured_agent,
        configured_client, resolve, resolve_configured,
    };
}

/// One conversation, its window, and the engine that keeps it small. Begin at [`Session`].
pub mod session {
    #[doc(inline)]
    pub use contexture_session::{
        AgentWindow, BackgroundAnswer, BackgroundBy, BackgroundWork, BodyMessage, Canceller,
        Compact, CompactionReport, Comparison, Delivered, Hold, OutcomeKind, Peers, Placed, Record,
        RecordError, RecordRepair, Revision, Session, SessionError, SessionOptions, Turn,
        TurnOptions, Unrelated, Window,
    };
}

/// Token counts for the windows of models. Begin at [`TokenCounter`](tokens::TokenCounter).
pub mod tokens {
    #[doc(inline)]
    pub use contexture_formats::tokens::{ModelWindow, TokenCounter, estimate, known_window};
}

pub use contexture_base::PerProcess;
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

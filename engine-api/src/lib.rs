//! The interface that a Contexture context engine implements.
//!
//! A *context engine* keeps a long conversation inside a language model's window: it decides when to
//! compact, compacts, may give the agent tools, and tracks token usage. This crate is all that an
//! engine depends on. It holds
//!
//! - [`ContextEngine`], the trait, with a complete example; [`StandaloneEngine`], how it is opened, or
//!   [`EngineFactory`] for engines whose sessions share something;
//! - the types that the trait speaks in: [`MessageView`] in, [`Outcome`] and [`Compaction`] out;
//! - [`Services`], what the host lends;
//! - [`export_engine!`], which makes a cdylib a plugin, and [`register_engine!`], which registers an
//!   engine that is linked in;
//! - with the feature `host`, [`Plugin`], which loads such a cdylib.
//!
//! Every 1.x host runs every 1.x engine, and what only one side has is done without. What crosses is the
//! [`protocol`], whatever carries it; the ABI of a cdylib is a private matter of this crate.

#[macro_use]
mod crossing;

mod abi;
mod about;
mod background;
mod boundary;
mod compaction;
mod definition;
mod delivery;
mod engine;
mod error;
mod files;
mod message;
mod model;
pub mod protocol;
mod services;
mod store;
mod text;
mod timing;
mod tool;
mod transcript;
mod window;

#[cfg(feature = "host")]
pub use abi::exit::{end_watched, end_watched_after, leave, unwatch_exit, watch_exit};
#[cfg(feature = "host")]
pub use abi::load::{LoadError, Plugin};
pub use abi::{ABI_VERSION, panic_text, show_panics_plainly};
pub use about::{API_VERSION, About, EngineDescription, HostInfo};
pub use background::BackgroundCall;
pub use boundary::{
    in_flight, safe_cut, safe_cut_after, thinking_leads_to, tool_groups, whole_groups,
};
pub use compaction::{
    Committed, Compaction, CompressOrder, CompressRequest, CurrentCompaction, Dropped, Entry,
    Floor, Notice, Outcome, Replacement, ShortArguments, Shortened, StubResult, Summary,
};
pub use definition::{EngineDefinition, Owner, linked_engines};
pub use delivery::{Cut, Delivery};
pub use engine::{ContextEngine, EngineFactory, FactoryRequest, StandaloneEngine};
pub use error::EngineError;
pub use files::{immutable_uri, make_private, make_private_folder, private_file_options};
pub use message::{
    CLEARED_TOOL_OUTPUT, COMPACTION_NOTE, MISSING_RESULT, MessageId, MessageKind, MessageView,
    NOTICE_MARK, Observed, OwnedMessage, OwnedToolCall, RESTORE_WISH, RESTORED, SHORTENED_MARK,
    SUMMARY_END_MARK, SUMMARY_MARK, TokenSource, ToolCallView, with_views,
};
pub use model::{Continued, FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
pub use services::{HostServices, LogLevel, OpenRequest, Services};
pub use store::StoreCommand;
pub use text::{grouped, printable};
pub use timing::{CachePrices, roomy};
pub use tool::{ToolCall, ToolSpec};
pub use transcript::{TranscriptPage, TranscriptRange};
pub use window::{Decision, Usage, WindowState};

/// What the macros of this crate expand to. No part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::abi::ABI_VERSION;
    pub use crate::abi::export::{create, describe, lib_header};
    pub use crate::abi::tables::{FactoryObject, PluginModule, PluginModuleRef};
    pub use abi_stable::library::{__call_root_module_loader, LibHeader, RootModuleResult};
    pub use abi_stable::prefix_type::WithMetadata;
    pub use abi_stable::std_types::{RResult, RStr, RString};
    pub use inventory;
}

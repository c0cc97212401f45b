//! The interface that a Contexture context engine implements.
//!
//! A *context engine* keeps a long conversation inside a language model's window: it decides when
//! to compact, compacts, may give the agent tools, and tracks token usage. This crate is all that
//! an engine depends on. It contains
//!
//! - [`ContextEngine`], the trait to implement, with a complete example. [`StandaloneEngine`] says
//!   how such an engine is opened, and [`EngineFactory`] is for engines whose sessions share
//!   something.
//! - the types of the trait: [`MessageView`] goes in, [`Outcome`] and [`Compaction`] come out.
//! - [`Services`], which the host lends to the engine.
//! - [`export_engine!`], which makes a cdylib a plugin, and [`register_engine!`], which registers
//!   an engine that is linked into the program.
//! - [`Plugin`], which loads such a cdylib, if the feature `host` is on.
//!
//! Every 1.x host runs every 1.x engine. If only one side knows a method or a field, both go on
//! without it. The calls between the two sides are defined by the [`protocol`], independent of what
//! carries them. The ABI of a cdylib is private to this crate.

// First, because the other modules use its macros.
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
mod methods;
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
pub use abi::exit::{at_exit, end_watched, end_watched_after, leave, unwatch_exit, watch_exit};
#[cfg(feature = "host")]
pub use abi::load::{LoadError, Plugin};
pub use abi::{ABI_VERSION, panic_text, show_panics_plainly};
pub use about::{API_VERSION, About, EngineDescription, HostInfo};
pub use background::BackgroundCall;
pub use boundary::{
    ToolPairs, continues_last, in_flight, safe_cut, safe_cut_after, thinking_leads_to, tool_groups,
    whole_groups,
};
pub use compaction::{
    Committed, Compaction, CompressOrder, CompressRequest, CurrentCompaction, Dropped, Entry,
    Floor, Notice, Outcome, Replacement, ShortArguments, Shortened, StubResult, Summary,
};
pub use definition::{EngineDefinition, Owner, linked_engines};
pub use delivery::{Cut, Delivery};
pub use engine::{ContextEngine, EngineFactory, FactoryRequest, StandaloneEngine};
pub use error::EngineError;
pub use files::{
    has_sqlite_log, immutable_uri, make_private, make_private_folder, private_file_options,
    sqlite_file,
};
pub use message::{
    CLEARED_TOOL_OUTPUT, COMPACTION_NOTE, MISSING_RESULT, MessageId, MessageKind, MessageView,
    NOTICE_MARK, OwnedMessage, OwnedToolCall, RESTORE_WISH, RESTORED, SHORTENED_MARK,
    SUMMARY_END_MARK, SUMMARY_MARK, TokenSource, ToolCallView, with_views,
};
pub use model::{Continued, FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
pub use services::{HostServices, LogLevel, OpenRequest, Services};
pub use store::StoreCommand;
pub use text::{grouped, is_control, printable};
pub use timing::{REQUIRED_PERCENT, roomy};
pub use tool::{ToolCall, ToolSpec};
pub use transcript::{TranscriptPage, TranscriptRange};
pub use window::{CachePrices, Decision, Usage, WindowState};

/// Re-exports for the code that the macros of this crate expand to. This module is not part of the
/// interface and may change in any version.
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

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

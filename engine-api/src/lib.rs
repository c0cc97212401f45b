//! placeholder
mod abi;
mod background;
mod boundary;
mod compaction;
mod definition;
mod engine;
mod error;
mod message;
mod model;
mod services;
mod tool;
mod window;

pub use background::BackgroundCall;
pub use boundary::{safe_cut, safe_cut_after, tool_groups};
pub use compaction::{
    Compaction, CompressOrder, CompressRequest, CurrentCompaction, Entry, Outcome, Replacement,
    ShortArguments,
};
pub use engine::{ContextEngine, EngineFactory, FactoryRequest};
pub use error::EngineError;
pub use message::{
    CLEARED_TOOL_OUTPUT, COMPACTION_NOTE, MessageId, MessageKind, MessageView, Observed,
    SHORTENED_MARK, SUMMARY_END_MARK, SUMMARY_MARK, TokenSource, ToolCallView,
};
pub use model::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
pub use services::{HostServices, LogLevel, OpenRequest, Services};
pub use tool::{ToolCall, ToolSpec};
pub use window::{Decision, Usage, WindowState};

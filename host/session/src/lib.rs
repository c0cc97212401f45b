//! One session: a conversation, the window that its model sees, and the engine that keeps the
//! window small.
//!
//! An agent sends its whole history with every request. The session finds out what of it is new,
//! shows that to the engine, asks whether to compact, checks what the engine proposes, and renders
//! the body that goes to the model. It also writes what it must know after a restart to the
//! [`Record`](contexture_transcript::Record).
//!
//! Start with [`Session::turn`], which handles one request body. [`Session::turn_over`] does the same
//! for a conversation that was read from a file, and [`Session::answer`] takes the model's reply. The
//! module `turn` shows the steps in order.
//!
//! A session coordinates four values that know nothing of each other and work on the same
//! `ConversationState` (history, window and preamble):
//!
//! | value | job | knows nothing of |
//! |---|---|---|
//! | `Ingest` | split a request, recognise what is known of it, append the rest | engines |
//! | `EngineLink` | show the engine what is new, ask it, call its tools, stand in for it | wire formats |
//! | `Compactor` | check a proposal against the contract and put it in force | requests |
//! | `Renderer` | lay out the window as a `BodyDraft`, which is serialised once | engines |
//!
//! The `Meter` has the usage that was reported, the pauses and the prices. The tools of the host itself
//! are in `host_tools`, and what they hold with the session is in `held`.
//!
//! Wire formats are the business of `contexture_formats`, the supervision of engine calls of
//! `contexture_runtime`, and the rules for a compaction of `contexture_contract`.

mod align;
mod compaction;
mod compactor;
mod conversation;
mod counting;
mod engine_link;
mod engine_transcript;
mod error;
mod held;
mod history;
mod host_tool_calls;
mod host_tools;
mod ingest;
mod lock;
mod meter;
mod options;
mod preamble;
mod renderer;
mod report;
mod request;
mod resume;
mod session;
mod temp_home;
#[cfg(test)]
mod testing;
mod turn;
mod warnings;
mod window;
mod window_entry;

pub use counting::{fixed_tokens, message_tokens};
pub use engine_link::{BackgroundAnswer, BackgroundWork, Canceller};
pub use error::SessionError;
pub use options::{
    AgentWindow, BackgroundBy, BodyMessage, Compact, Comparison, Peers, Relation, Revision,
    SessionOptions, TurnOptions, Unrelated,
};
pub use report::{CompactionReport, DecisionReport, OutcomeKind, SessionReport, TurnReport};
pub use session::Session;
pub use temp_home::{TempHome, TempHomeError};
pub use turn::Turn;
pub use window::Window;

//! What engines share that have summaries written.
//!
//! [`SummaryCycle`] is the life cycle of a session's summaries: prepared between turns, written at a compaction by a model
//! or without one, redone later. An engine gives it a [`Task`] for each summary: what it covers, and how it is worded.
//! [`Notes`] is the task for notes under the [`Headings`] of an engine.
//!
//! - [`material`]: messages in the compact form that is sent to a model. If they do not fit its window, it writes notes on
//!   pieces that are then merged. The prompts are the engine's ([`Prompts`]).
//! - [`Making`]: one text that is asked for between turns, for an engine whose summaries have a life of their own.
//! - [`digested`]: the summary of a model that cannot be asked.
//! - [`CoolDowns`] leaves a model alone after it failed. [`Headroom`] decides when to compact and when to wait.
//! - [`Groups`]: where a window may be cut.
//! - [`both_spellings`]: settings whose keys may also be written in camelCase.

mod answer;
mod brief;
mod cooldown;
mod cycle;
mod excerpt;
mod facts;
mod groups;
mod headroom;
mod material;
mod notes;
mod spelling;
mod summariser;

pub use answer::{summary_in, trim, unmarked, words_of};
pub use brief::{Headings, SEAL_TOKENS, body_of, framing_tokens, marked};
pub use cooldown::{CoolDown, CoolDowns};
pub use cycle::{Making, NO_MODEL, Ready, SummaryCycle, Task, WrittenSummary};
pub use excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};
pub use facts::digested;
pub use groups::Groups;
pub use headroom::{Headroom, Sizes, to_host_tokens};
pub use material::material;
pub use notes::Notes;
pub use spelling::both_spellings;
pub use summariser::{Prompts, Summariser, tagged};

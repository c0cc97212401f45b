//! Shared parts of engines that have a model write summaries.
//!
//! - [`Noted`] and [`units`]: messages in the compact form that is sent to a model.
//! - [`Summariser`] decides what to ask next: one call if the material fits the model's window, else notes on pieces that
//!   are then merged. The prompts are the engine's ([`Prompts`]).
//! - [`ask`] has the questions answered in the foreground, [`Pending`] between turns.
//! - [`Brief`]: notes under the [`Headings`] of an engine. [`Assignment`]: such a summary at a compaction, with or without
//!   a model.
//! - [`both_spellings`]: settings whose keys may also be written in camelCase.
//! - [`digested`] and [`with_facts`]: what replaces a model's summary, and what completes it.
//! - [`CoolDowns`] leaves a model alone after it failed; [`Headroom`] decides when to compact and when to wait.

mod answer;
mod background;
mod brief;
mod cooldown;
mod cycle;
mod excerpt;
mod facts;
mod headroom;
mod material;
mod notes;
mod spelling;
mod summariser;
mod writing;

pub use answer::{is_refusal, notes_in, trim, unmarked, words_of};
pub use background::Pending;
pub use brief::{Brief, Headings, SEAL_TOKENS, body_of, framing_tokens, marked};
pub use cooldown::{CoolDown, CoolDowns};
pub use cycle::{NO_MODEL, Ready, SummaryCycle, Task, WrittenSummary};
pub use excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};
pub use facts::{digested, digested_with_focus, with_facts};
pub use headroom::{Headroom, Sizes};
pub use material::{Noted, call_views, material, noted, units, views};
pub use notes::Notes;
pub use spelling::both_spellings;
pub use summariser::{Prompts, Summariser, ask, tagged};
pub use writing::{Assignment, Staged, Written};

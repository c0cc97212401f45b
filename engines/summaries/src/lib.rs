//! What engines share that have a model write summaries.
//!
//! - [`Noted`] and [`units`]: messages in the compact form in which they go to a model.
//! - [`Summariser`] says what to ask next: one call where the material fits the model's window, else notes on
//!   pieces that are then put together. What it says to the model is its engine's ([`Prompts`]).
//! - [`ask`] has the questions answered while somebody waits; [`Pending`] between turns.
//! - [`Brief`]: notes under the [`Headings`] of an engine; [`Assignment`]: such a summary at a compaction, by the model or
//!   without it.
//! - [`both_spellings`]: settings whose keys may be written in camelCase, too.
//! - [`digested`] and [`with_facts`]: what stands in for the model's words, and what they leave out.

mod answer;
mod background;
mod brief;
mod excerpt;
mod facts;
mod focus;
mod material;
mod spelling;
mod summariser;
mod writing;

pub use answer::{is_refusal, notes_in, trim, unmarked, words_of};
pub use background::Pending;
pub use brief::{Brief, Headings, body_of, marked};
pub use excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};
pub use facts::{digested, with_facts};
pub use focus::digested_with_focus;
pub use material::{Noted, call_views, noted, units, views};
pub use spelling::both_spellings;
pub use summariser::{Prompts, Summariser, ask, tagged};
pub use writing::{Assignment, Staged, Written};

//! Shared parts of the engines whose summaries are written by a model.
//!
//! [`SummaryCycle`] manages the summaries of a session: it prepares them between turns, writes them
//! at a compaction with a model or without one, and redoes later what was written without one. An
//! engine gives it a [`Task`] for each summary, which says what the summary covers and how it is
//! worded. [`Notes`] is a ready-made task for notes under the [`Headings`] of an engine. Read
//! [`SummaryCycle`] first.
//!
//! - [`material`]: messages in the compact form that is sent to a model. If they do not fit its
//!   window, the model writes notes on pieces that are then merged. The prompts come from the
//!   engine ([`Prompts`]).
//! - [`Making`]: one text that is requested between turns, for an engine that manages its summaries
//!   itself.
//! - [`digested`]: the summary that is used if no model can be asked.
//! - [`rules_in`]: the rules of users, which every summary keeps word for word.
//! - [`CoolDowns`] pauses a model after it failed. [`Headroom`] decides when to compact and when to
//!   wait.
//! - [`Groups`]: the positions at which a window may be cut.
//! - [`largest_within`]: how much of something fits into a number of tokens.
//! - [`both_spellings`]: settings whose keys may also be written in camelCase.

mod answer;
mod brief;
mod cooldown;
mod cycle;
mod excerpt;
mod facts;
mod fitting;
mod groups;
mod headroom;
mod material;
mod notes;
mod spelling;
mod summariser;

pub use contexture_digest::keep_rules;

pub use answer::{summary_in, trim};
pub use brief::{Headings, SEAL_TOKENS, WHAT_HOLDS, body_of, framing_tokens, marked};
pub use contexture_digest::unmarked;
pub use cooldown::{CoolDown, CoolDowns};
pub use cycle::{Making, NO_MODEL, Ready, SummaryCycle, Task, WrittenSummary};
pub use excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, excerpt_within, tool_of};
pub use facts::{
    CHARS_PER_TOKEN, checked, digested, digested_beside, rule_section, rules_in, rules_left_out,
    tokens_beside,
};
pub use fitting::{beginning_within, largest_within};
pub use groups::{Groups, is_answer, tail_within};
pub use headroom::{Headroom, Sizes, to_host_tokens};
pub use material::material;
pub use notes::Notes;
pub use spelling::both_spellings;
pub use summariser::{Prompts, Summariser, tagged};

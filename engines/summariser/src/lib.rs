//! What engines share that put a summary in place of messages.
//!
//! - [`noted`] and [`units`]: messages in the compact form in which they go to a model, secrets masked;
//! - [`Summariser`]: what to ask a model, in pieces where the material does not fit its window; [`Pending`] asks between
//!   turns, and [`Staged`] is what came of it;
//! - [`Assignment`]: a summary written at a compaction, by the model or without it.

mod background;
mod excerpt;
mod material;
mod prompt;
mod summariser;
mod summary;
mod writing;

pub use background::{Pending, Staged};
pub use excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};
pub use material::{Noted, call_views, joined, noted, units, views};
pub use prompt::{Brief, NOTES, body_of, marked};
pub use summariser::Summariser;
pub use writing::{Assignment, Written};

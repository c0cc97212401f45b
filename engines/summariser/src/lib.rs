//! What engines share that put a summary in place of messages.
//!
//! - [`noted`] and [`units`]: messages in the compact form in which they go to a model, secrets masked;
//! - [`Summariser`]: what to ask a model, in pieces where the material does not fit its window; [`ask_now`] asks while
//!   somebody waits, [`Pending`] between turns, and [`Staged`] is what came of it;
//! - [`digested`] and [`with_facts`]: a summary without a model, and a model's with the facts that it left out.

mod asking;
mod background;
mod excerpt;
mod material;
mod prompt;
mod summariser;
mod summary;

pub use asking::ask_now;
pub use background::{Pending, Staged};
pub use excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};
pub use material::{Noted, call_views, joined, noted, units, views};
pub use prompt::{Brief, NOTES, body_of, marked};
pub use summariser::Summariser;
pub use summary::{digested, digested_with_focus, with_facts};

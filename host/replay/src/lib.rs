//! Replay: a recorded conversation played turn by turn through an engine, as an agent loop would,
//! to see what the engine would have done to it and what the prompts would have cost.
//!
//! Each answer of the recording belongs to a request: the window as it was before the answer. In
//! each request the engine observes what is new, compacts if it or hygiene asks for it, and may
//! select a view. The recorded answer then joins the window. No model is asked for answers, and a
//! model writes summaries only if one is configured. Prompts are counted, and the provider's prompt
//! cache is simulated.
//!
//! Read [`play`] first, which plays a [`Recording`] through one engine. Other rows of a [`Report`]
//! compare with it: what the log itself recorded, and what the conversation would have cost without
//! any engine. [`Continuation`] measures what was still in the window after each compaction.

mod cache;
mod continuation;
mod figures;
mod identifiers;
mod player;
mod prices;
mod recording;
mod report;
mod script;
mod shared;

pub use contexture_session::{TempHome, TempHomeError};
pub use continuation::{Continuation, Mentions, words_of};
pub use figures::{CompactionCost, Prompts, Spent, Work};
pub use identifiers::identifiers;
pub use player::{
    Played, Step, play, play_observed, recorded, with_context_editing, without_engine,
    without_markers,
};
pub use prices::{ListPrice, PRICES_AS_OF, PriceError, Prices, Shares};
pub use recording::{Recording, Request};
pub use report::{CONTEXT_EDITING, ConversationReport, Report, Row, UNCACHED};

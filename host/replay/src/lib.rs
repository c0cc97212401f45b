//! Replay: a recorded conversation played turn by turn through an engine, as an agent loop would, to see
//! what the engine would have done to it and what the prompts would have cost.
//!
//! Before each answer of the recording stands a *request*: the window as it is then. The engine observes
//! what is new, compacts where it or hygiene asks for it, and may select a view; the recorded answer then
//! joins the window. No model is asked for answers, and a summary is made by a model only where one is
//! configured. Prompts are counted, the provider's prompt cache is simulated, and two
//! more rows stand beside the engines': what the log itself recorded, and what it would have been with no
//! engine at all.

mod cache;
mod figures;
mod player;
mod prices;
mod recording;
mod report;
mod script;
mod shared;

pub use contexture_session::{Stage, StageError};
pub use figures::{CompactionCost, Prompts, Spent, Work};
pub use player::{Played, play, recorded, with_context_editing, without_engine, without_markers};
pub use prices::{PriceError, Prices, Shares};
pub use recording::{Recording, Request};
pub use report::{CONTEXT_EDITING, ConversationReport, Report, Row, UNCACHED};

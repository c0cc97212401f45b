//! The built-in lossy context engine of Contexture.
//!
//! [`Compressor`] follows the document's four phases: old tool results are cleared, the conversation is
//! cut into head, middle and tail at places that part no tool call from its results, the middle becomes
//! a structured summary, and what is kept is put together with tool calls and results in pairs.
//!
//! Three things it does otherwise than its models. Facts are taken out of the *untouched* middle first,
//! so clearing costs none of them. A model is never waited for unless somebody asked for that: the
//! summary is prepared in the background from 80 % of the threshold on, and where it is not there, or
//! the model fails, a digest of the messages takes its place. And a compaction that does not help is
//! not repeated.
//!
//! A compaction always summarises its middle, as in the document, even where clearing old tool results
//! alone would make room: cleared outputs are gone, a summary keeps what they said. The cheaper way is
//! there for a host to choose:
//! [`prune_tool_results`](contexture_engine_api::ContextEngine::prune_tool_results).

mod boundaries;
mod clearing;
mod covered;
mod engine;
mod entries;
mod headings;
mod plan;
mod settings;

pub use engine::Compressor;
pub use settings::{Budgets, CompressionSettings, PROTECT_FIRST_N, SettingsError};

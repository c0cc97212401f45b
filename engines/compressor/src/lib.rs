//! The built-in lossy context engine of Contexture.
//!
//! [`Compressor`] compacts a conversation in four phases. It clears old tool results, cuts the
//! conversation into head, middle and tail without separating a tool call from its results,
//! replaces the middle with a structured summary, and assembles the new window so that every tool
//! call has a result. Start with [`Compressor`]. [`CompressionSettings`] holds the configuration
//! and [`Budgets`] the token budgets that follow from it.
//!
//! Three things differ from comparable engines. Facts are extracted from the *untouched* middle, so
//! clearing a tool result loses none of them. The engine does not wait for a model unless the
//! caller asked for that: the summary is prepared in the background from 80 % of the threshold on,
//! and if it is not ready or the model fails, a digest of the messages replaces it. And if a
//! compaction cannot make room, it is not retried until the prompt has grown.
//!
//! A compaction always summarises its middle, even if clearing old tool results alone would make
//! enough room. A cleared output is lost to the model, but a summary keeps what it said. A host
//! that prefers the cheaper way calls
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
pub use settings::{Budgets, CompressionSettings, PROTECT_FIRST_N};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! An engine with two layers, modelled on the document *上下文压缩* about the `ContextCompactor` of a
//! Java ReAct agent.
//!
//! **Layer 1** runs before every request. Each tool result becomes `[truncated: 5000 chars]`,
//! except in the newest rounds of tool calls, and long arguments and texts are shortened. **Layer
//! 2** runs above a number of tokens, as [estimated](estimate()) without a tokenizer. A model
//! summarizes everything before the recent turns, and `【历史摘要】` with the summary replaces it, in the
//! system role if the format allows that. Conversations of at most two messages are left alone.
//!
//! What Layer 1 shortens is not restored later, although the client still has it. Each round that
//! grows old changes an old message, and the provider's prompt cache is valid only up to the first
//! change.
//!
//! The document names four extensions. Each is a setting that is off by default: a summary for each
//! turn (`per_turn_summaries`), a summary in JSON (`summary_format: json`), messages that are
//! spared for their importance (`keep_important`), and a threshold that follows the model's window
//! (`threshold_share`).
//!
//! The engine differs from the document in three points. No request waits for a summary unless the
//! user asked for one: it is prepared between turns, and if it is not ready or the model fails, a
//! digest replaces it. If the configured number of turns does not fit, fewer are kept. And
//! shortened messages stay valid: arguments are still JSON, no call loses its result, and messages
//! that the model has not seen yet are not changed.
//!
//! [`TwoLayer`] is the engine, and [`Estimate`] its way to count tokens.

mod engine;
mod estimate;
mod importance;
mod layer1;
mod outline;
mod settings;
mod split;
mod wording;

pub use engine::TwoLayer;
pub use estimate::{Estimate, estimate};
pub use wording::SUMMARY_MARK;

/// The value of `context.engine` in the configuration that chooses this engine.
pub const NAME: &str = "two-layer";

contexture_engine_api::register_engine!("two-layer", TwoLayer);

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

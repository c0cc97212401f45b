//! An engine of two layers, after the document *上下文压缩* on the `ContextCompactor` of a Java ReAct agent.
//!
//! **Layer 1** runs before every request: of all but the newest rounds of tool calls each result becomes
//! `[truncated: 5000 chars]`, and long arguments and texts are cut. **Layer 2** runs above a number of tokens, as
//! [estimated](estimate()) without a tokenizer: a model writes a summary of everything before the recent turns, and
//! `【历史摘要】` with that summary stands in its place, in the system role where the format has one there. Two messages or fewer are left alone.
//!
//! What Layer 1 cuts is cut for good (the client has it), and each round that grows old changes an old message: the
//! provider's prompt cache then holds no further than that.
//!
//! The document names four extensions, each a setting that is off by default: a summary for each turn
//! (`per_turn_summaries`), a summary in JSON (`summary_format: json`), messages that are spared for their importance
//! (`keep_important`), and a threshold that follows the model's window (`threshold_share`).
//!
//! Three things it does otherwise than its model. No request waits for a summary unless somebody asked for that: it is
//! prepared between turns, and where it is not there, or the model fails, a digest takes its place. Fewer turns than
//! configured are kept where those do not fit. And what is cut stays valid: arguments are JSON still, no call loses its
//! result, and what the model has not seen yet is not touched.

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

/// What `context.engine` says to choose this engine.
pub const NAME: &str = "two-layer";

contexture_engine_api::register_engine!("two-layer", TwoLayer);

//! An engine of three tiers, after the document on context engineering in AG-Kit.
//!
//! Below 80 % of the pre-rot threshold nothing happens. From there on old messages are **compacted**: each keeps its
//! place, and its text becomes `[COMPACTED: topic]`; the original is in the host's transcript and comes back exactly. Under
//! `__compaction__` in its [state](contexture_engine_api::Replacement::state) stands when and how that was done. A document
//! whose states hold an `original_content` is read with it. From 95 % on a **structured summary**
//! takes the place of all but the newest messages: count, times, goal, last step, decisions, files, context.
//!
//! Compacted messages are restored by the tool `restore` and by `contexture sessions restore`; what a summary covers is
//! not brought back. Each step can be replaced: [`Steps`].
//!
//! ```
//! use contexture_engine_api::export_engine;
//! use contexture_tiered::{COMPACTION_KEY, Compacted, Event, Steps, Tiered};
//!
//! #[derive(Default)]
//! struct Terse;
//!
//! impl Steps for Terse {
//!     fn compact_event(&mut self, event: &Event<'_>) -> Option<Compacted> {
//!         match event.has_code() {
//!             true => Some(event.compacted_to("[COMPACTED: 代码讨论]", "code_compression")),
//!             false => event.compacted(),
//!         }
//!     }
//! }
//!
//! export_engine!("terse", Tiered<Terse>);
//! # assert_eq!(COMPACTION_KEY, "__compaction__");
//! ```

mod engine;
mod event;
mod settings;
mod steps;
mod summary;
mod wording;

pub use engine::Tiered;
pub use event::{COMPACTION_KEY, Compacted, Event};
pub use steps::{Standard, Steps};
pub use summary::{StructuredSummary, TimeRange};

/// What `context.engine` says to choose this engine.
pub const NAME: &str = "tiered";

contexture_engine_api::register_engine!("tiered", Tiered);

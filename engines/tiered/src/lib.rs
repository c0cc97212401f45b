//! An engine with three tiers, modelled on the document about context engineering in AG-Kit.
//!
//! Below 80 % of the pre-rot threshold nothing happens. From there on old messages are
//! **compacted**: each keeps its place, and its text becomes `[COMPACTED: topic]`. The original
//! stays in the host's transcript and can be restored exactly. The
//! [state](contexture_engine_api::Replacement::state) of a compacted message records under
//! `__compaction__` when and how that was done. If the state holds an `original_content`, as in
//! documents of other implementations, that text is restored. From 95 % on a **structured summary**
//! replaces all but the newest messages: count, times, goal, last step, decisions, files and
//! context.
//!
//! The tool `restore` and the command `contexture sessions restore` bring compacted messages back.
//! Messages that a summary replaced are not restored.
//!
//! [`Tiered`] is the engine. To build a variant of it, implement [`Steps`] and replace the steps
//! that differ:
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

/// The name under which the engine is registered. It is the value of `context.engine` in the
/// configuration that chooses this engine.
pub const NAME: &str = "tiered";

contexture_engine_api::register_engine!("tiered", Tiered);

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

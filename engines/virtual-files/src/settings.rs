//! The settings under `context.engines.virtual-files`, and the limits that follow from them in a
//! window.
//!
//! [`Settings`] derives the schema that a configuration is checked against, so its doc comments are
//! shown to users. [`Settings::limits`] adapts the configured numbers to a concrete window: in a
//! small one, messages become files earlier and previews are shorter. All limits are tokens.

use contexture_engine_api::WindowState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of the engine. Every key has a default; an unknown key is an error.
/// The doc comments, defaults and ranges are the schema that a configuration is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Make a file of a user message or tool result with more tokens than this
    #[schemars(range(min = 100))]
    pub file_tokens: u64,
    /// The tokens of a file that are shown in place of the message
    #[schemars(range(min = 10))]
    pub preview_tokens: u64,
    /// The share of the window from which it is compacted
    #[schemars(range(min = 0.1, max = 0.95))]
    pub threshold: f64,
    /// The number of tool calls that the model may make after a user message; 0 for no limit
    pub max_tool_calls: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            file_tokens: 10_000,
            preview_tokens: 1_000,
            threshold: 0.8,
            max_tool_calls: 0,
        }
    }
}

/// A message becomes a file if it takes more than one part in this many of the room for the prompt,
/// even if the setting is higher.
const FILE_SHARE: u64 = 4;
/// A preview is at least this many times shorter than the text that becomes a file.
const PREVIEW_SHARE: u64 = 4;
/// One answer of a tool is this many times shorter than a text that becomes a file, so that no
/// answer becomes a file itself.
const ANSWER_SHARE: u64 = 2;

/// The limits that follow from the settings in a window, in tokens. `preview` is what is shown of a
/// file, and `answer` what one answer of a tool may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) file: u64,
    pub(crate) preview: u64,
    pub(crate) answer: u64,
    /// The size of the prompt at which a compaction is due, or `None` if the window is not known.
    pub(crate) threshold: Option<u64>,
}

impl Settings {
    /// Computes the limits for this window. If the context length is unknown, the settings are used
    /// as they are and nothing is compacted.
    pub(crate) fn limits(&self, window: &WindowState) -> Limits {
        let room = window.room_for_prompt();
        let file = match room {
            None => self.file_tokens,
            Some(room) => self.file_tokens.min((room / FILE_SHARE).max(1)),
        };
        let share = (window.context_length as f64 * self.threshold) as u64;
        let share = window.threshold_tokens.unwrap_or(share);
        Limits {
            file,
            preview: self.preview_tokens.min(file / PREVIEW_SHARE),
            answer: (file / ANSWER_SHARE).max(1),
            threshold: room.map(|room| share.min(room)),
        }
    }
}

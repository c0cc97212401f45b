//! The settings under `context.engines.virtual-files`, and the limits that follow from them in a window.

use contexture_engine_api::WindowState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of the engine. Every key has a default; an unknown key is an error.
/// The doc comments, defaults and ranges are the schema that a configuration is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A user message or tool result of more tokens becomes a file
    #[schemars(range(min = 100))]
    pub file_tokens: u64,
    /// So many tokens of a file are shown where the message was
    #[schemars(range(min = 10))]
    pub preview_tokens: u64,
    /// The share of the window from which it is compacted
    #[schemars(range(min = 0.1, max = 0.95))]
    pub threshold: f64,
    /// The tool calls that the model may make after a user message; 0 for any number
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

/// A message becomes a file from this share of the room for the prompt on, where that is less than the setting.
const FILE_SHARE: u64 = 4;
/// A preview is so many times shorter than what becomes a file, at least.
const PREVIEW_SHARE: u64 = 4;
/// A file's part in a tool's answer is so many times shorter than what becomes a file, so that no answer does.
const ANSWER_SHARE: u64 = 2;

/// What the settings come to in a window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A message of more becomes a file.
    pub(crate) file: u64,
    /// What is shown of a file.
    pub(crate) preview: u64,
    /// What one answer of a tool shows.
    pub(crate) answer: u64,
    /// From here on a compaction is due; none where the window is not known.
    pub(crate) threshold: Option<u64>,
}

impl Settings {
    pub(crate) fn limits(&self, window: &WindowState) -> Limits {
        let usable = window.usable_tokens();
        let file = match usable {
            0 => self.file_tokens,
            usable => self.file_tokens.min((usable / FILE_SHARE).max(1)),
        };
        let share = (window.context_length as f64 * self.threshold) as u64;
        Limits {
            file,
            preview: self.preview_tokens.min(file / PREVIEW_SHARE),
            answer: (file / ANSWER_SHARE).max(1),
            threshold: (window.context_length > 0).then(|| match usable {
                // An answer as large as the window is a wrong setting, not a reason to compact every turn.
                0 => share,
                usable => share.min(usable),
            }),
        }
    }
}

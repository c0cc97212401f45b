//! Reads conversations in the wire formats of the model providers, presents them the way
//! engines see them, and writes the result back.
//!
//! [`read`] and [`read_bytes`] turn a document into [`Conversation`]s. A document is a request
//! body, JSON lines or a session log. A [`RenderPlan`] lists the messages to keep, replace or
//! add, and `Conversation::render` writes it. A proxy that handles one request body uses
//! [`split`] instead.
//!
//! The document is held once and never rebuilt. Messages are spans of it, so a kept message
//! leaves byte for byte. If one view of a wire message changes, only the JSON value that holds
//! the view is rewritten. Which messages to keep is the engine's decision, and storing them is
//! the session's.

mod anatomy;
mod blobs;
mod body;
mod builder;
mod calls;
mod compacted;
mod continued;
mod conversation;
mod convert;
mod draft;
mod error;
mod excerpt;
mod foreign;
mod gemini;
mod item_span;
mod json;
mod kept_view;
mod log_history;
mod log_writer;
mod logged;
mod logs;
mod marked;
mod mend;
mod message;
mod parsed_log;
mod parts;
#[doc(hidden)]
pub mod passes;
mod plan;
pub mod prompt_cache;
mod reader;
mod recorded_usage;
mod render;
mod reported_usage;
mod rewrite;
mod seal;
mod splice;
mod surrogates;
mod time;
pub mod tokens;
mod tools;
mod views;
mod wire_reading;

use std::fmt;
use std::str::FromStr;

pub use blobs::text_bytes;
pub use body::{Beginning, split_again};
pub use body::{BodyParts, Preamble, SplitBody, WireBody, split};
pub use calls::KnownCalls;
pub use continued::continued;
pub use conversation::{Conversation, RecordedUsage, text_in};
pub use convert::Converted;
pub use draft::{BodyEdits, WrittenBody};
pub use error::FormatError;
pub use excerpt::{ExcerptBuilder, continue_after, excerpt, parse_messages_after};
pub use excerpt::{item_lines, parse_messages};
pub use excerpt::{part_of_wire, role_of};
pub use log_history::Resumed;
pub use log_history::is_compaction_item;
pub use logged::{LoggedBy, LoggedMessage, logged_messages, parse_time, time_of_number};
pub use marked::mark;
pub use message::{Call, Media, MediaKind, Message};
pub use plan::{PlanEntry, RenderPlan};
pub use reader::{parse_json, read, read_bytes};
pub use render::render_all;
pub use reported_usage::{known_usage, reported_usage};
pub use seal::{sealed_notice, sealed_short, sealed_summary, unsealed_notice, unsealed_short};
pub use splice::RenderedItem;
pub use surrogates::replace_half_surrogates;
pub use tools::{tool_in, tool_list, tool_names, tool_texts};
pub use views::summary_identity;
pub use wire_reading::{WireReading, excerpt_with};

/// The form that a conversation has on the wire or in a file. Requests have one of the first
/// four formats, session logs and benchmark results one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// OpenAI chat completions: a body with `messages`, one such body per line, or a bare list
    /// of messages.
    OpenAiChat,
    /// OpenAI Responses: a body with `input`, which is a list of items or a single string.
    OpenAiResponses,
    /// Anthropic messages: a body with `messages` and `system`, or a bare list of messages.
    Anthropic,
    /// Google's Gemini API, also as Vertex AI offers it: a body with `contents` and
    /// `systemInstruction`, or a bare list of contents. The model's name is in the URL, not in the
    /// body.
    Gemini,
    /// A session log of Claude Code: one JSON object per line, linked by `uuid` and
    /// `parentUuid`.
    ClaudeCode,
    /// A rollout log of Codex: one JSON object per line, with a `type` and a `payload`.
    Codex,
    /// A trajectory of SWE-agent: a JSON object with a list `history`.
    SweAgent,
    /// Results of tau2-bench: a JSON object with a list `simulations`, each of which is one
    /// conversation.
    Tau2,
    /// One message per line, with the members of OpenAI's chat format and an optional `ts` in
    /// Unix seconds. Also events, `{"message": …, "state": …}`, one per line or in a list, with
    /// messages of the same kind.
    MessageLines,
}

impl Format {
    /// All formats, in the order in which help texts and error messages list them.
    pub const ALL: [Self; 9] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::ClaudeCode,
        Self::Codex,
        Self::SweAgent,
        Self::Tau2,
        Self::MessageLines,
    ];

    /// The name that `--format` and `--to` accept. [`FromStr`] turns it back into the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::SweAgent => "swe-agent",
            Self::Tau2 => "tau2",
            Self::MessageLines => "lines",
        }
    }

    /// The member of a document in this format that holds the messages. Formats without such a
    /// member get the one of OpenAI chat.
    pub const fn list_key(self) -> &'static str {
        match self {
            Self::OpenAiResponses => "input",
            Self::Gemini => "contents",
            Self::SweAgent => "history",
            _ => "messages",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| FormatError::UnknownName(name.to_owned()))
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Reads single lines of a session log, for readers that follow a log while it grows.
//!
//! [`read`](super::read) needs the whole log, because only the whole log tells which branch is
//! live and what the window is. A search index needs neither. [`logged_messages`] returns what one
//! line says, including lines of branches that were abandoned later. It uses the same readers, so a
//! line means the same in both.

use super::json::Raw;
use super::logs::{self, Log, LogBody};
use super::views::Speaker;
use super::{Format, FormatError, time};

/// A message that a line of a log holds, in the wire format of the log's provider.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedMessage {
    /// The message as JSON. Claude Code has messages of Anthropic's format, Codex has items of
    /// OpenAI Responses.
    pub json: String,
    /// Who said it, if the role in the message does not tell.
    pub by: LoggedBy,
    /// The time of the line in milliseconds since the Unix epoch.
    pub time_ms: Option<i64>,
}

/// Who said a message of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedBy {
    /// The role in the message is right.
    Role,
    /// The agent's program added it in the user's name.
    Program,
    /// It is the agent's summary of what came before.
    Summary,
}

/// Returns the messages of one line of a log of Claude Code or Codex. The list is empty if the line
/// is an event without a message, or if the format is not such a log.
///
/// # Errors
/// Fails if the line is not JSON.
pub fn logged_messages(format: Format, line: &str) -> Result<Vec<LoggedMessage>, FormatError> {
    let raw = Raw::parse(line).map_err(|error| FormatError::json(line, 0, error))?;
    let log: Log<'_> = match format {
        Format::ClaudeCode => logs::claude_code(&[raw]),
        Format::Codex => logs::codex(&[raw]),
        _ => Log::default(),
    };
    // The line of a compaction lists the messages that stay. They were logged before.
    let is_compaction = raw.get_string("type").as_deref() == Some("compacted");
    let items =
        (log.items.into_iter()).filter(|item| !is_compaction || item.speaker == Speaker::Summary);
    Ok(items
        .map(|item| LoggedMessage {
            json: match item.body {
                LogBody::Found(raw) => raw.text().to_owned(),
                LogBody::Made(json) => json,
            },
            by: match item.speaker {
                Speaker::Wire => LoggedBy::Role,
                Speaker::Nobody => LoggedBy::Program,
                Speaker::Summary | Speaker::Agent => LoggedBy::Summary,
            },
            time_ms: item.time_ms,
        })
        .collect())
}

/// Parses a point in time as a log writes it, and returns milliseconds since the Unix epoch. A text
/// is ISO 8601, and without an offset it is UTC. A text of digits is a number of seconds,
/// milliseconds, microseconds or nanoseconds, depending on its size. `None` if it is not a time.
pub fn parse_time(text: &str) -> Option<i64> {
    time::parse(text)
}

/// Converts a number of seconds, milliseconds, microseconds or nanoseconds since the Unix epoch to
/// milliseconds. The size of the number tells the unit. `None` if it is thousands of years away.
pub fn time_of_number(number: f64) -> Option<i64> {
    time::number(number)
}

//! The notice that follows what the user or the tools said.
//!
//! A model plans better if it knows how much of its window is left. [`notice`] writes the tokens
//! used and available, the latest files and, if it is reached, the limit of tool calls. [`is_due`]
//! says after which messages a notice belongs. A notice is never updated, because changing an old
//! message would invalidate the provider's prompt cache from there on. Later notices simply have
//! newer figures.

use std::fmt::Write as _;

use contexture_engine_api::{MessageKind, MessageView, WindowState, grouped};

use crate::files::File;

/// The beginning of every notice, by which the host and the engine recognise it.
pub(crate) const NOTICE_MARK: &str = "[virtual files";
/// The number of latest files that a notice names. The others are in `file_list`. Notices stay in
/// the window for long and there are many, so each should be short.
const NAMED_FILES: usize = 12;

/// Writes the notice for a window with `tokens` tokens in it. `files` come the latest first, and
/// `limit` is the reason why no more tools may be called, if there is one.
pub(crate) fn notice<'f>(
    window: &WindowState,
    tokens: u64,
    mut files: impl Iterator<Item = &'f File>,
    limit: Option<&str>,
) -> String {
    let mut text = format!("{NOTICE_MARK}] {} tokens used", grouped(tokens));
    // Writing to a string cannot fail.
    let _ = match window.room_for_prompt() {
        None => writeln!(text, "; how many are available is not known."),
        Some(room) => writeln!(
            text,
            ", {} available.",
            grouped(room.saturating_sub(tokens))
        ),
    };
    let named: Vec<String> = files
        .by_ref()
        .take(NAMED_FILES)
        .map(|file| format!("{} ({} tokens)", file.name, grouped(file.tokens)))
        .collect();
    let _ = match (named.is_empty(), files.count()) {
        (true, _) => write!(text, "There are no files yet."),
        (false, 0) => write!(text, "Files: {}.", named.join(", ")),
        (false, more) => write!(
            text,
            "Files: {}, and {} more in file_list.",
            named.join(", "),
            grouped(more as u64)
        ),
    };
    if let Some(limit) = limit {
        let _ = write!(text, "\n{limit} Answer without calling a tool.");
    }
    text
}

/// Whether a notice is due after the last message. It is due after a message of the user without
/// calls, and after tool results if no call waits for its result.
pub(crate) fn is_due(last: Option<&MessageView<'_>>, in_flight: Option<usize>) -> bool {
    let Some(last) = last else {
        return false;
    };
    let is_said = matches!(last.kind(), MessageKind::Original | MessageKind::Replaced);
    match last.role() {
        "user" => is_said && last.tool_calls().is_empty(),
        "tool" => is_said && in_flight.is_none(),
        _ => false,
    }
}

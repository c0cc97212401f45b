//! The notice after what the user or the tools said: tokens, files, and the limit of tool calls where it is reached.

use std::fmt::Write as _;

use contexture_engine_api::{MessageKind, MessageView, WindowState, grouped};

use crate::files::File;

/// What a notice begins with.
pub(crate) const NOTICE_MARK: &str = "[virtual files";
/// Of the latest files so many are named; the others are in `file_list`. A notice stands in the window for long, and
/// there are many.
const NAMED_FILES: usize = 12;

/// The notice for a window with so many tokens in it.
pub(crate) fn notice<'f>(
    window: &WindowState,
    tokens: u64,
    mut files: impl Iterator<Item = &'f File>,
    limit: Option<&str>,
) -> String {
    let mut text = format!("{NOTICE_MARK}] {} tokens used", grouped(tokens));
    // Writing to a string does not fail.
    let _ = match window.usable_tokens() {
        0 => writeln!(text, "; how many are available is not known."),
        usable => writeln!(
            text,
            ", {} available.",
            grouped(usable.saturating_sub(tokens))
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

/// Whether a notice is due after the last message: after the user's words, or after the results of all calls.
pub(crate) fn is_due(last: Option<&MessageView<'_>>, in_flight: Option<usize>) -> bool {
    let Some(last) = last else {
        return false;
    };
    let is_said = matches!(last.kind(), MessageKind::Original | MessageKind::Replaced);
    match last.role() {
        "user" => is_said,
        "tool" => is_said && in_flight.is_none(),
        _ => false,
    }
}

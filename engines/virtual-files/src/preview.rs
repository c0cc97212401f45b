//! The text that the window shows for a message that became a file, and which messages may become
//! one.
//!
//! [`may_be_file`] and [`is_longer`] decide whether a message is eligible and long enough.
//! [`preview`] writes the shorter form: a line with the name and the size of the file, and the
//! beginning of the text, or both ends of what a user wrote. [`named_in`] reads the name back, so that
//! the engine knows which files a window shows. The files themselves are in `files`.

use contexture_engine_api::{MessageKind, MessageView, Services, grouped};
use contexture_summaries::{beginning_within, excerpt_within};

use crate::files::File;

/// The beginning of a preview, and of the line in a summary that points to the window before it.
pub(crate) const FILE_MARK: &str = "[file ";

/// Whether a message may become a file. It has to be a message of the user or a tool result in its
/// original form, without thinking.
pub(crate) fn may_be_file(message: &MessageView<'_>) -> bool {
    matches!(message.role(), "user" | "tool")
        && message.kind() == MessageKind::Original
        && !message.has_thinking()
        && message.tool_calls().is_empty()
}

/// Whether the text of a message has more than `tokens` tokens. Those of the request format around
/// it do not count.
pub(crate) fn is_longer(message: &MessageView<'_>, tokens: u64, services: &Services) -> bool {
    let text = message.text();
    // A token has at least one byte, and a message at least the tokens of its text, so most
    // messages need no counting.
    text.len() as u64 > tokens && message.tokens() > tokens && services.count_tokens(text) > tokens
}

/// Returns the beginning of a message's text, at most `tokens` tokens, under a line with the name of
/// its file. Of a user's message, both ends are shown, because what the user wants may stand at either.
/// Returns `None` if that would not be shorter than the text.
pub(crate) fn preview(
    file: &File,
    message: &MessageView<'_>,
    tokens: u64,
    services: &Services,
) -> Option<String> {
    let text = message.text();
    let (shown, what) = match message.role() {
        "user" => {
            let shown = excerpt_within(text, tokens, services);
            (
                shown,
                "its beginning and its end follow, file_read reads the rest".to_owned(),
            )
        }
        _ => {
            let shown = beginning_within(text, tokens, services);
            let tokens = grouped(services.count_tokens(shown));
            let what = format!("its first {tokens} tokens follow, file_read reads on");
            (shown.to_owned(), what)
        }
    };
    let short = format!(
        "{FILE_MARK}{}: {} tokens, {} lines; {what} and file_regex searches it]\n{shown}",
        file.name,
        grouped(file.tokens),
        grouped(file.lines),
    );
    (short.len() < text.len() && services.count_tokens(&short) < file.tokens).then_some(short)
}

/// Returns the name of the file that a preview or a summary's pointer names, or `None` if the text
/// has no mark.
pub(crate) fn named_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(FILE_MARK)?;
    let name = rest.split([':', ']', ' ']).next()?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_preview_is_found() {
        assert_eq!(named_in("[file a-1.txt: 3 tokens]\nx"), Some("a-1.txt"));
        assert_eq!(named_in("said\n\n[file w.txt]\n## Goal"), Some("w.txt"));
        assert_eq!(named_in("nothing"), None);
    }
}

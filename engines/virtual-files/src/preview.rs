//! The text that the window shows for a message that became a file, and which messages may become
//! one.
//!
//! [`may_be_file`] and [`is_longer`] decide whether a message is eligible and long enough.
//! [`preview`] writes the shorter form: a line with the name and the size of the file, and the
//! beginning of the text, or both ends of what a user wrote. [`named_in`] reads the name back, so that
//! the engine knows which files a window shows. [`head`] cuts any text to a number of tokens. The files
//! themselves are in `files`.

use contexture_engine_api::{MessageKind, MessageView, Services, grouped};
use contexture_summaries::excerpt_within;

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
            let shown = head(text, tokens, services);
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

/// Returns the longest beginning of a text with at most `tokens` tokens. Counting is expensive, so
/// a few guesses by proportion come before a binary search of the rest.
pub(crate) fn head<'t>(text: &'t str, tokens: u64, services: &Services) -> &'t str {
    let most = usize::try_from(tokens).unwrap_or(usize::MAX);
    let (mut fits, mut end) = (0, text.floor_char_boundary(most.saturating_mul(4)));
    let mut over = text.len() + 1;
    for _ in 0..8 {
        let used = services.count_tokens(&text[..end]);
        if used <= tokens {
            fits = fits.max(end);
            // Within 5 % of the limit, the search below is cheaper than another guess.
            if end == text.len() || used * 20 >= tokens * 19 {
                break;
            }
        } else {
            over = over.min(end);
        }
        // Aim 2 % below the limit, because a guess above it only narrows the range.
        let next = end as u64 * tokens / used.max(1) * 49 / 50;
        let next = (next as usize).min(end.saturating_mul(4));
        let next = text.floor_char_boundary(next);
        if next <= fits || next == end {
            break;
        }
        end = next;
    }
    // The limit is closer now than another guess would be. Few tokens are longer than this.
    over = over.min(fits.saturating_add(most.div_ceil(8).max(64)));
    while fits < text.len() && over - fits > 1 {
        let middle = text.floor_char_boundary(fits + (over - fits) / 2);
        if middle <= fits {
            break;
        }
        match services.count_tokens(&text[..middle]) <= tokens {
            true => fits = middle,
            false => over = middle,
        }
    }
    &text[..fits]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_the_tokens_that_it_may_have() {
        let services = Services::none();
        for text in ["word ".repeat(5_000), "é".repeat(9_000), "short".into()] {
            for tokens in [0, 1, 10, 1_000] {
                let shown = head(&text, tokens, &services);
                let used = services.count_tokens(shown);
                assert!(used <= tokens && text.starts_with(shown));
                let all = services.count_tokens(&text);
                assert!(used + 1 >= tokens.min(all), "{used} of {tokens}");
            }
        }
    }

    #[test]
    fn the_file_of_a_preview_is_found() {
        assert_eq!(named_in("[file a-1.txt: 3 tokens]\nx"), Some("a-1.txt"));
        assert_eq!(named_in("said\n\n[file w.txt]\n## Goal"), Some("w.txt"));
        assert_eq!(named_in("nothing"), None);
    }
}

//! What stands in the window where a message became a file, and who that may happen to.

use contexture_engine_api::{MessageKind, MessageView, Services, grouped};

use crate::files::File;

/// What a preview begins with, and the pointer of a summary to the window before.
pub(crate) const FILE_MARK: &str = "[file ";

/// Whether a message may become a file: the words of the user or a tool's result, as they were said.
pub(crate) fn may_be_file(message: &MessageView<'_>) -> bool {
    matches!(message.role(), "user" | "tool")
        && message.kind() == MessageKind::Original
        && !message.has_thinking()
        && message.tool_calls().is_empty()
}

/// Whether a message's text has more than this many tokens, without the tokens of the wire format around it.
pub(crate) fn is_longer(message: &MessageView<'_>, tokens: u64, services: &Services) -> bool {
    let text = message.text();
    // A token has at least one byte, and a message has at least the tokens of its text. Most messages need no counting.
    text.len() as u64 > tokens && message.tokens() > tokens && services.count_tokens(text) > tokens
}

/// The beginning of a text under the name of the file that it is in; none where that would not be shorter.
pub(crate) fn preview(file: &File, text: &str, tokens: u64, services: &Services) -> Option<String> {
    let shown = head(text, tokens, services);
    let short = format!(
        "{FILE_MARK}{}: {} tokens, {} lines; its first {} tokens follow, file_read reads on and file_regex searches it]\n\
         {shown}",
        file.name,
        grouped(file.tokens),
        grouped(file.lines),
        grouped(services.count_tokens(shown)),
    );
    (short.len() < text.len() && services.count_tokens(&short) < file.tokens).then_some(short)
}

/// The name of the file that a preview, or the pointer in a summary, names.
pub(crate) fn named_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(FILE_MARK)?;
    let name = rest.split([':', ']', ' ']).next()?;
    (!name.is_empty()).then_some(name)
}

/// The longest beginning of a text with at most this many tokens.
pub(crate) fn head<'t>(text: &'t str, tokens: u64, services: &Services) -> &'t str {
    let most = usize::try_from(tokens).unwrap_or(usize::MAX);
    let (mut fits, mut end) = (0, text.floor_char_boundary(most.saturating_mul(4)));
    let mut over = text.len() + 1;
    for _ in 0..8 {
        let used = services.count_tokens(&text[..end]);
        if used <= tokens {
            fits = fits.max(end);
            if end == text.len() || used * 20 >= tokens * 19 {
                break;
            }
        } else {
            over = over.min(end);
        }
        let next = end as u64 * tokens / used.max(1) * 49 / 50;
        let next = (next as usize).min(end.saturating_mul(4));
        let next = text.floor_char_boundary(next);
        if next <= fits || next == end {
            break;
        }
        end = next;
    }
    // The rest is closer than another guess would be. A token is seldom longer than this.
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

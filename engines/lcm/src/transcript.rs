//! Messages as text for a summariser: secrets masked, long outputs as excerpts.

use std::fmt::Write as _;

use contexture_digest::mask_secrets;
use contexture_engine_api::{MessageView, Services};

use crate::clock;

/// The most characters of one text, tried from the first on until all of it fits.
const EXCERPTS: [usize; 6] = [6_000, 2_400, 1_000, 400, 160, 60];

/// The messages as text of at most `max_tokens`.
pub(crate) fn transcript(
    messages: &[MessageView<'_>],
    max_tokens: u64,
    services: &Services,
) -> String {
    let mut text = String::new();
    for chars in EXCERPTS {
        text = render(messages, chars);
        // Four bytes a token is the least that any text needs; counting can wait until it may fit.
        if services.count_tokens(&text) <= max_tokens {
            return text;
        }
    }
    fit(&text, max_tokens, services)
}

fn render(messages: &[MessageView<'_>], chars: usize) -> String {
    let mut text = String::new();
    for message in messages {
        let what = match (message.role(), message.is_error()) {
            ("tool", true) => format!("error of {}", message.tool_name().unwrap_or("tool")),
            ("tool", false) => format!("result of {}", message.tool_name().unwrap_or("tool")),
            (role, _) => role.to_owned(),
        };
        let media = match message.has_media() {
            true => ", with an image or document",
            false => "",
        };
        let at = message
            .time()
            .map_or_else(String::new, |at| format!(" at {}", clock::minutes(at)));
        let body = message.text().trim();
        if !body.is_empty() || message.has_media() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "[{what}{at}{media}] {}", masked(body, chars));
        }
        for call in message.tool_calls() {
            let arguments = masked(call.arguments(), chars);
            let _ = writeln!(text, "[call of {}] {arguments}", call.name());
        }
    }
    text
}

/// The messages word for word, each with who said it.
pub(crate) fn plain(messages: &[MessageView<'_>]) -> String {
    let mut text = String::new();
    for message in messages {
        let role = message.role();
        if !message.text().trim().is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{role}: {}", message.text().trim());
        }
        for call in message.tool_calls() {
            let _ = writeln!(text, "{role} called {} {}", call.name(), call.arguments());
        }
    }
    text
}

/// A text without its secrets, and of a long one its two ends.
fn masked(text: &str, chars: usize) -> String {
    excerpt(&mask_secrets(text), chars)
}

/// Of a long text its two ends, and how much is between them.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
    let count = text.chars().count();
    if count <= chars {
        return text.to_owned();
    }
    let head = chars * 2 / 3;
    let byte_of = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    let start = &text[..byte_of(head)];
    let end = &text[byte_of(count - (chars - head))..];
    format!("{start}\n[... {} characters ...]\n{end}", count - chars)
}

/// The beginning of a text, cut at the end of a line where there is one, of at most `max_tokens`.
pub(crate) fn fit(text: &str, max_tokens: u64, services: &Services) -> String {
    let mut text = text.trim().to_owned();
    loop {
        let tokens = services.count_tokens(&text);
        if tokens <= max_tokens || text.is_empty() {
            return text;
        }
        let chars = text.chars().count();
        // A little less than in proportion, so that a second attempt is usually the last.
        let keep = (chars as f64 * (max_tokens as f64 / tokens as f64) * 0.97) as usize;
        let end = text
            .char_indices()
            .nth(keep.min(chars.saturating_sub(1)))
            .map_or(0, |(at, _)| at);
        let line = text[..end].rfind('\n').filter(|line| *line * 2 > end);
        text.truncate(line.unwrap_or(end));
        text.truncate(text.trim_end().len());
    }
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::MessageId;

    use super::*;

    #[test]
    fn a_transcript_fits_names_errors_and_masks_secrets() {
        let long = format!("BEGIN {} END", "word ".repeat(4_000));
        let messages = [
            MessageView::new(MessageId(1), "user")
                .with_text("use sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCD"),
            MessageView::new(MessageId(2), "tool")
                .with_result_of("c", "bash")
                .with_error(true)
                .with_text(&long),
        ];
        let services = Services::none();
        let text = transcript(&messages, 500, &services);
        assert!(services.count_tokens(&text) <= 500);
        assert!(
            text.contains("[error of bash] BEGIN") && text.contains("END"),
            "{text}"
        );
        assert!(!text.contains("abcdefghijklmnop"), "{text}");
    }

    #[test]
    fn fitting_keeps_whole_lines_and_never_splits_a_character() {
        let services = Services::none();
        let text = "数据库索引重建完成\n".repeat(40);
        for max in 0..60 {
            assert!(services.count_tokens(&fit(&text, max, &services)) <= max);
        }
    }
}

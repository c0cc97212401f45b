//! Messages as text for a summariser: secrets masked, long outputs as excerpts.

use std::fmt::Write as _;

use contexture_engine_api::{MessageView, Services};
use contexture_secrets::mask_secrets;
use contexture_summaries::excerpt;

use crate::dates;

/// The most characters of one text; tried in order until everything fits.
const EXCERPTS: [usize; 6] = [6_000, 2_400, 1_000, 400, 160, 60];

/// The longest name. OpenAI allows 64 characters.
const NAME_BYTES: usize = 256;

/// The messages as texts of at most `max_tokens` each, without those that say nothing.
pub(crate) fn transcript(
    messages: &[MessageView<'_>],
    max_tokens: u64,
    services: &Services,
) -> Vec<String> {
    let said = messages.iter().filter(|message| !is_blank(message));
    said.map(|message| whole_or_excerpt(message, max_tokens, services))
        .collect()
}

/// Whether a message says nothing that a summary could hold.
pub(crate) fn is_blank(message: &MessageView<'_>) -> bool {
    message.text().trim().is_empty() && message.tool_calls().is_empty() && !message.has_media()
}

fn whole_or_excerpt(message: &MessageView<'_>, max_tokens: u64, services: &Services) -> String {
    let mut text = String::new();
    for chars in EXCERPTS {
        text = render(message, chars);
        if services.count_tokens(&text) <= max_tokens {
            return text;
        }
    }
    fit(&text, max_tokens, services)
}

fn render(message: &MessageView<'_>, chars: usize) -> String {
    let mut text = String::new();
    let what = match (message.role(), message.is_error()) {
        ("tool", true) => format!("error of {}", message.tool_name().unwrap_or("tool")),
        ("tool", false) => format!("result of {}", message.tool_name().unwrap_or("tool")),
        _ => speaker(message),
    };
    let media = match message.has_media() {
        true => ", with an image or document",
        false => "",
    };
    let at = message
        .time()
        .map_or_else(String::new, |at| format!(" at {}", dates::minutes(at)));
    let body = message.text().trim();
    if !body.is_empty() || message.has_media() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "[{what}{at}{media}] {}", masked(body, chars));
    }
    for call in message.tool_calls() {
        let arguments = masked(call.arguments(), chars);
        let _ = writeln!(text, "[call of {}] {arguments}", mask_secrets(call.name()));
    }
    text
}

/// The messages word for word but for their secrets, each with its author.
pub(crate) fn plain(messages: &[MessageView<'_>]) -> String {
    let mut text = String::new();
    for message in messages {
        let who = speaker(message);
        let said = mask_secrets(message.text());
        if !said.trim().is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{who}: {}", said.trim());
        }
        for call in message.tool_calls() {
            let arguments = mask_secrets(call.arguments());
            let _ = writeln!(
                text,
                "{who} called {} {arguments}",
                mask_secrets(call.name())
            );
        }
    }
    text
}

/// The author: the role, and the name if there is one.
pub(crate) fn speaker(message: &MessageView<'_>) -> String {
    let role = message.role();
    match message.name() {
        Some(name) => {
            // Whatever the wire contains, reduce it to a few words on one line.
            let name = mask_secrets(name).replace(char::is_whitespace, " ");
            format!("{role} {}", &name[..name.floor_char_boundary(NAME_BYTES)])
        }
        None => role.to_owned(),
    }
}

/// A text with secrets masked; of a long one the two ends.
fn masked(text: &str, chars: usize) -> String {
    excerpt(&mask_secrets(text), chars)
}

/// The beginning of a text of at most `max_tokens`, cut at a line end if possible.
pub(crate) fn fit(text: &str, max_tokens: u64, services: &Services) -> String {
    fit_and_count(text, max_tokens, services).0
}

/// The same, with its tokens.
pub(crate) fn fit_and_count(text: &str, max_tokens: u64, services: &Services) -> (String, u64) {
    let mut text = text.trim().to_owned();
    loop {
        let tokens = services.count_tokens(&text);
        if tokens <= max_tokens || text.is_empty() {
            return (text, tokens);
        }
        let chars = text.chars().count();
        // A little less than proportional, so that a second attempt usually suffices.
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
        let parts = transcript(&messages, 500, &services);
        let fits = |text: &String| services.count_tokens(text) <= 500;
        assert!(parts.len() == 2 && parts.iter().all(fits));
        let text = parts.concat();
        assert!(
            text.contains("[error of bash] BEGIN") && text.contains("END"),
            "{text}"
        );
        assert!(!text.contains("abcdefghijklmnop"), "{text}");
    }

    #[test]
    fn people_are_told_apart_by_name() {
        let messages = [
            MessageView::new(MessageId(1), "user")
                .with_name("dana")
                .with_text("Ship it."),
            MessageView::new(MessageId(2), "user")
                .with_name("Ben\nLi")
                .with_text("Not yet."),
            MessageView::new(MessageId(3), "tool")
                .with_name("dana")
                .with_result_of("c", "bash")
                .with_text("done"),
        ];
        let parts = transcript(&messages, 500, &Services::none());
        assert_eq!(
            parts.concat(),
            "[user dana] Ship it.\n[user Ben Li] Not yet.\n[result of bash] done\n"
        );
        assert_eq!(
            plain(&messages),
            "user dana: Ship it.\nuser Ben Li: Not yet.\ntool: done\n"
        );
        let long = "ä".repeat(1_000);
        let named = MessageView::new(MessageId(1), "user").with_name(&long);
        assert!(speaker(&named).len() < 300);
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

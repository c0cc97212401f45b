//! Messages as text for a summariser.
//!
//! The functions here turn messages into the text that a model summarises or that a leaf contains
//! word for word. Secrets are masked in all of it, because it is sent to the provider or shown in
//! the window. Each line names its author, so that a summary can say who said what.
//!
//! [`transcript`] is the material for the model, in which long outputs become excerpts. [`plain`]
//! keeps the messages in full. [`fit`] cuts any text to a number of tokens.

use std::fmt::Write as _;

use contexture_engine_api::{MessageView, Services};
use contexture_secrets::mask_secrets;
use contexture_summaries::{beginning_within, excerpt};

use crate::dates;

/// The maximum length of one text in characters.
const EXCERPT_CHARS: usize = 6_000;

/// The maximum length of an author's name, in bytes. OpenAI allows 64 characters, so a longer name
/// is not meant to be one.
const NAME_BYTES: usize = 256;

/// Renders each message as a text. Messages that say nothing are left out.
pub(crate) fn transcript(messages: &[MessageView<'_>]) -> Vec<String> {
    let said = messages.iter().filter(|message| !is_blank(message));
    said.map(render).collect()
}

/// Whether a message says nothing that a summary could contain: no text, no tool calls, and no
/// image or document.
pub(crate) fn is_blank(message: &MessageView<'_>) -> bool {
    message.text().trim().is_empty() && message.tool_calls().is_empty() && !message.has_media()
}

fn render(message: &MessageView<'_>) -> String {
    let mut text = String::new();
    let tool = mask_secrets(message.tool_name().unwrap_or("tool"));
    let what = match (message.role(), message.is_error()) {
        ("tool", true) => format!("error of {tool}"),
        ("tool", false) => format!("result of {tool}"),
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
        let _ = writeln!(text, "[{what}{at}{media}] {}", masked(body));
    }
    for call in message.tool_calls() {
        let arguments = masked(call.arguments());
        let _ = writeln!(text, "[call of {}] {arguments}", mask_secrets(call.name()));
    }
    text
}

/// Renders the messages in full, each with its author. Only secrets are masked. Messages without
/// text and without calls leave no line.
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

/// Returns the author of a message: its role, followed by the name if the message has one.
pub(crate) fn speaker(message: &MessageView<'_>) -> String {
    let role = message.role();
    match message.name() {
        Some(name) => {
            // The name comes from outside and could imitate other lines of the transcript. On one
            // line and cut to a few words it cannot.
            let name = mask_secrets(name).replace(char::is_whitespace, " ");
            format!("{role} {}", &name[..name.floor_char_boundary(NAME_BYTES)])
        }
        None => role.to_owned(),
    }
}

/// Masks the secrets of a text and shortens it to its two ends if it is long. Masking comes first,
/// because an excerpt could cut a secret so that it is no longer recognised.
fn masked(text: &str) -> String {
    excerpt(&mask_secrets(text), EXCERPT_CHARS)
}

/// Returns the beginning of a text, at most `max_tokens` long. It ends at a line end if one is in
/// the second half of what fits.
pub(crate) fn fit(text: &str, max_tokens: u64, services: &Services) -> String {
    let text = text.trim();
    let fitting = beginning_within(text, max_tokens, services);
    let is_cut = fitting.len() < text.len();
    let line = fitting
        .rfind('\n')
        .filter(|line| is_cut && *line * 2 > fitting.len());
    let end = line.unwrap_or(fitting.len());
    fitting[..end].trim_end().to_owned()
}

#[cfg(test)]
mod tests;

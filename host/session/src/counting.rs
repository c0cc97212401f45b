//! Token counts of messages: text, thinking, calls and media, each counted once when the message is
//! first needed.
//!
//! [`message_tokens`] counts an unchanged message and [`fixed_tokens`] what stands outside the
//! messages. A message in a shorter form and a text that the host adds are counted as they are on
//! the wire.
//!
//! The tokenizer and the prices of media are in `contexture_formats::tokens`. This module only
//! takes messages apart.

use contexture_engine_api::ShortArguments;
use contexture_formats::tokens::{MESSAGE_TOKENS, MediaSize, MessageParts, TokenCounter};
use contexture_formats::{self as formats, Conversation, Format, Message, Preamble};

/// The tokens of the system prompt, the tools, and the compactions of the provider itself that
/// stand before the messages.
pub fn fixed_tokens(counter: &TokenCounter, preamble: &Preamble<'_>) -> u64 {
    let system =
        (preamble.system.as_ref()).map_or(0, |text| counter.count_text(text) + MESSAGE_TOKENS);
    let tools = preamble.tools.iter().copied();
    let tools: Vec<&str> = tools.flat_map(formats::tool_texts).collect();
    // Anthropic ignores everything before its latest compaction block, so only that one counts.
    let seen = match preamble.format {
        Format::Anthropic => 1,
        _ => usize::MAX,
    };
    let compacted = preamble.compacted.iter().rev().take(seen);
    let compacted = compacted.map(|raw| counter.count_text(raw) + MESSAGE_TOKENS);
    system + compacted.sum::<u64>() + counter.count_tools(&tools)
}

/// The tokens of an unchanged message. The text of a text document is counted. Other media are
/// estimated by their size.
pub fn message_tokens(
    counter: &TokenCounter,
    conversation: &Conversation,
    message: &Message,
) -> u64 {
    let mut of_documents = 0;
    let mut priced_media = Vec::new();
    for media in &message.media {
        match formats::text_in(conversation, media) {
            Some(text) => of_documents += counter.count_text(&text),
            None => priced_media.push(MediaSize::of(media, conversation.media_data(media))),
        }
    }
    count(counter, message, &message.text, &[], &priced_media) + of_documents
}

/// The tokens of a message with a replaced text or shortened arguments. Its media are not counted,
/// because they are not part of the shorter form.
pub(super) fn replaced_tokens(
    counter: &TokenCounter,
    conversation: &Conversation,
    message: &Message,
    text: Option<&str>,
    arguments: &[ShortArguments],
) -> u64 {
    match text {
        Some(text) => count(counter, message, text, arguments, &[]),
        None if arguments.is_empty() => message_tokens(counter, conversation, message),
        None => count(counter, message, &message.text, arguments, &[]),
    }
}

/// The tokens of a text that the host adds as a message of its own.
pub(super) fn text_tokens(counter: &TokenCounter, text: &str) -> u64 {
    counter.count_text(text) + MESSAGE_TOKENS
}

/// Counts a message with the given text and media. Arguments that are not shortened are counted in
/// full.
fn count(
    counter: &TokenCounter,
    message: &Message,
    text: &str,
    arguments: &[ShortArguments],
    media: &[MediaSize],
) -> u64 {
    let calls: Vec<(&str, &str)> = message
        .calls
        .iter()
        .enumerate()
        .map(|(index, call)| {
            let short = arguments.iter().find(|short| short.index == index);
            let arguments = short.map_or(&call.arguments, |short| &short.arguments);
            (call.name.as_str(), arguments.as_str())
        })
        .collect();
    let parts = MessageParts {
        name: message.name.as_deref().unwrap_or(""),
        text,
        thinking: &message.thinking,
        calls: &calls,
        media,
    };
    let opaque = if message.opaque.is_empty() {
        0
    } else {
        counter.count_text(&message.opaque)
    };
    counter.count_message(&parts) + opaque
}

#[cfg(test)]
mod tests;

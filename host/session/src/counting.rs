//! Token counts of a message: its text, thinking, calls and media, counted once when it joins the window.

use contexture_engine_api::ShortArguments;
use contexture_formats::tokens::{
    self, Detail, MESSAGE_TOKENS, MessageParts, TokenCounter, image_size,
};
use contexture_formats::{self as formats, Conversation, Format, MediaKind, Message};

/// The tokens of the system prompt, of what the provider compacted itself, and of the tools.
pub fn fixed_tokens(counter: &TokenCounter, conversation: &Conversation) -> u64 {
    let system = conversation
        .system()
        .map_or(0, |text| counter.count_text(text) + MESSAGE_TOKENS);
    let tools: Vec<&serde_json::value::RawValue> = (conversation.tool_lists())
        .filter_map(|raw| serde_json::from_str::<Vec<_>>(raw).ok())
        .flatten()
        .collect();
    let tools: Vec<&str> = tools.iter().map(|tool| tool.get()).collect();
    // Anthropic leaves out what stands before its block.
    let seen = match conversation.format() {
        Format::Anthropic => 1,
        _ => usize::MAX,
    };
    let compacted = conversation.compacted().rev().take(seen);
    let compacted = compacted.map(|raw| counter.count_text(raw) + MESSAGE_TOKENS);
    system + compacted.sum::<u64>() + counter.count_tools(&tools)
}

/// The tokens of an unchanged message.
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
            None => priced_media.push(priced(conversation, media)),
        }
    }
    count(counter, message, &message.text, &[], &priced_media) + of_documents
}

/// The tokens of a message with another text (its media leave with the old one) and shorter arguments.
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

/// The tokens of a text that the host puts in as a message.
pub(super) fn text_tokens(counter: &TokenCounter, text: &str) -> u64 {
    counter.count_text(text) + MESSAGE_TOKENS
}

fn count(
    counter: &TokenCounter,
    message: &Message,
    text: &str,
    arguments: &[ShortArguments],
    media: &[tokens::Media],
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

fn priced(conversation: &Conversation, media: &formats::Media) -> tokens::Media {
    let data = conversation.media_data(media);
    match media.kind {
        MediaKind::Image => tokens::Media::Image {
            size: media
                .width
                .zip(media.height)
                .or_else(|| media.is_base64.then(|| image_size(data)).flatten()),
            detail: media.detail.as_deref().map_or(Detail::High, Detail::parse),
        },
        MediaKind::Document => tokens::Media::Document {
            pages: None,
            // Base64 takes four characters for three bytes.
            bytes: if media.is_base64 {
                data.len() as u64 / 4 * 3
            } else {
                0
            },
        },
        MediaKind::Audio => tokens::Media::Unknown,
    }
}

#[cfg(test)]
mod tests;

//! How large the new window is.

use contexture_engine_api::{MessageView, Replacement, SUMMARY_MARK};

use super::account::{Account, WindowEntry};
use super::{CALL_TOKENS, MESSAGE_TOKENS, SUMMARY_SEAL};

/// The tokens of the messages of the new window.
pub(super) fn tokens_of(
    messages: &[MessageView<'_>],
    account: &Account<'_>,
    count: &impl Fn(&str) -> u64,
) -> u64 {
    let sizes = account.places.iter().map(|place| match place {
        WindowEntry::Kept(at) => messages[*at].tokens(),
        WindowEntry::Replaced(at, new) => replaced(&messages[*at], new, count),
        WindowEntry::Summary(new) => {
            let text = new.text.as_str();
            let mark = if text.starts_with(SUMMARY_MARK) {
                0
            } else {
                count(SUMMARY_MARK)
            };
            MESSAGE_TOKENS + mark + count(text) + count(SUMMARY_SEAL)
        }
        WindowEntry::Stub { text, .. } => MESSAGE_TOKENS + count(text),
    });
    sizes.fold(0, u64::saturating_add)
}

fn replaced(message: &MessageView<'_>, new: &Replacement, count: &impl Fn(&str) -> u64) -> u64 {
    if message.has_media() {
        // Only the message's own count knows what its images cost.
        let texts = new.text.iter().map(|text| (message.text(), text.as_str()));
        let arguments = new.arguments.iter().filter_map(|short| {
            let call = message.tool_calls().get(short.index)?;
            Some((call.arguments(), short.arguments.as_str()))
        });
        return texts
            .chain(arguments)
            .fold(message.tokens(), |tokens, (old, new)| {
                tokens.saturating_sub(count(old)) + count(new)
            });
    }
    // What leaves is usually long and what comes is short, so only what stays is counted.
    let text = count(new.text.as_deref().unwrap_or(message.text()));
    let mut arguments: Vec<&str> = message
        .tool_calls()
        .iter()
        .map(|call| call.arguments())
        .collect();
    for short in &new.arguments {
        if let Some(place) = arguments.get_mut(short.index) {
            *place = &short.arguments;
        }
    }
    let calls = message.tool_calls().iter().zip(arguments);
    calls.fold(MESSAGE_TOKENS + text, |tokens, (call, arguments)| {
        tokens + CALL_TOKENS + count(call.name()) + count(arguments)
    })
}

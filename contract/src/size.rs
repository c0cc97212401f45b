//! How large the new window is.

use contexture_engine_api::{MessageView, NOTICE_MARK, Notice, Replacement, SUMMARY_MARK};

use super::account::{Account, WindowEntry};
use super::wording::is_marked;
use super::{CALL_TOKENS, MESSAGE_TOKENS, NOTICE_SEAL, SUMMARY_SEAL};

/// The tokens of the messages of the new window.
pub(super) fn tokens_of(
    messages: &[MessageView<'_>],
    account: &Account<'_>,
    marks: &[String],
    count: &impl Fn(&str) -> u64,
) -> u64 {
    let sizes = account.places.iter().map(|place| match place {
        // What a restored message adds is for whoever has it to count.
        WindowEntry::Kept(at) | WindowEntry::Restored(at) => messages[*at].tokens(),
        WindowEntry::Replaced(at, new) => replaced(&messages[*at], new, count),
        WindowEntry::Summary(new) => {
            let text = new.text.as_str();
            let mark = match is_marked(text, &[SUMMARY_MARK], marks) {
                true => 0,
                false => count(SUMMARY_MARK),
            };
            MESSAGE_TOKENS + mark + count(text) + count(SUMMARY_SEAL)
        }
        WindowEntry::Notice(notice) => notice_tokens(notice, marks, count),
        WindowEntry::Stub { text, .. } => MESSAGE_TOKENS + count(text),
    });
    sizes.fold(0, u64::saturating_add)
}

/// The tokens of a notice.
pub(super) fn notice_tokens(
    notice: &Notice,
    marks: &[String],
    count: &impl Fn(&str) -> u64,
) -> u64 {
    let mark = match is_marked(&notice.text, &[], marks) {
        true => 0,
        false => count(NOTICE_MARK),
    };
    MESSAGE_TOKENS + mark + count(&notice.text) + count(NOTICE_SEAL)
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

//! Computes the tokens of the new window.
//!
//! [`tokens_of`] sums up the entries of a proposal. A kept message has a known size. For
//! everything new, the result includes what the host will add when it renders the entry: a mark
//! at the start and a seal at the end. Without this, a proposal could pass the check and exceed
//! the window afterwards.
//!
//! Token counts come from the caller, so this crate does not depend on a tokenizer. Most of the
//! cost is in these calls, so only texts that remain are counted.

use contexture_engine_api::{MessageView, NOTICE_MARK, Notice, Replacement, SUMMARY_MARK};

use super::account::{Account, WindowEntry};
use super::wording::is_marked;
use super::{CALL_TOKENS, MESSAGE_TOKENS, NOTICE_SEAL, SUMMARY_SEAL};

/// Returns the tokens of the messages in the new window, including the marks and seals that the
/// host adds when it renders them. If the sum overflows, it is the largest number.
pub(super) fn tokens_of(
    messages: &[MessageView<'_>],
    account: &Account<'_>,
    marks: &[String],
    count: &impl Fn(&str) -> u64,
) -> u64 {
    let sizes = account.places.iter().map(|place| match place {
        // Only the owner of a restored message knows its full text, and counts what it adds.
        WindowEntry::Kept(at) | WindowEntry::Restored(at) => messages[*at].tokens(),
        WindowEntry::Replaced(at, new) => replaced(&messages[*at], new, count),
        WindowEntry::Summary(new, _) => {
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

/// Returns the tokens of a notice, including its seal and the mark that the host adds if the
/// notice has none.
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

/// Returns the tokens of a message after the replacement of its text or of arguments of its
/// calls.
fn replaced(message: &MessageView<'_>, new: &Replacement, count: &impl Fn(&str) -> u64) -> u64 {
    if message.has_media() {
        // Only the message's own count knows the cost of its images, so the difference of the
        // texts is applied to it.
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
    // The old text is usually long and the new one short, so only what remains is counted.
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

//! Checks the texts that replace messages: they must be shorter, valid, marked, and
//! recognisable as the engine's.
//!
//! [`check_replacement`] compares a shortened message with the original. [`check_summary`] and
//! [`check_notice`] check texts that are new. All three exist for the same reason: the model
//! must never take a text that the engine wrote for something the user said, because it follows
//! the user's instructions.
//!
//! A text is recognised by a mark at its start. Engines may declare marks of their own, within
//! the limits that [`is_marked`] sets. Size in tokens is not checked here but in `size`.

use contexture_engine_api::{
    CLEARED_TOOL_OUTPUT, MessageId, MessageKind, MessageView, NOTICE_MARK, Replacement,
    SHORTENED_MARK, SUMMARY_END_MARK, SUMMARY_MARK,
};
use serde_json::value::RawValue;

use super::pins::without_pins;
use super::violation::{Ids, Violation};

/// Checks a replacement against the message that it shortens. `marks` are those that the engine
/// declares. Fails with the first violation.
pub(super) fn check_replacement(
    message: &MessageView<'_>,
    new: &Replacement,
    marks: &[String],
) -> Result<(), Violation> {
    let id = message.id();
    if new.text.is_none() && new.arguments.is_empty() && new.state.is_none() {
        return Err(Violation::EmptyReplacement { id });
    }
    // If a notice is outdated, the engine drops it and inserts a new one.
    if message.kind() == MessageKind::Notice {
        return Err(Violation::NoticeReplaced { id });
    }
    if new.state.as_ref().is_some_and(|state| !state.is_object()) {
        return Err(Violation::BadState { id });
    }
    if let Some(text) = &new.text {
        let (bytes, was) = (text.len(), message.text().len());
        if bytes > was {
            return Err(Violation::LongerText { id, bytes, was });
        }
        if !is_shortened(message, text, marks) {
            return Err(Violation::Unmarked { id });
        }
    }
    let calls = message.tool_calls();
    let mut changed = vec![false; calls.len()];
    for short in &new.arguments {
        let index = short.index;
        let Some(call) = calls.get(index) else {
            let calls = calls.len();
            return Err(Violation::NoSuchCall { id, index, calls });
        };
        if std::mem::replace(&mut changed[index], true) {
            return Err(Violation::ArgumentsTwice { id, index });
        }
        let (bytes, was) = (short.arguments.len(), call.arguments().len());
        if bytes > was {
            return Err(Violation::LongerArguments {
                id,
                index,
                bytes,
                was,
            });
        }
        let invalid = |reason| Violation::InvalidArguments { id, index, reason };
        serde_json::from_str::<&RawValue>(&short.arguments)
            .map_err(|error| invalid(error.to_string()))?;
        // Providers that require an object reject the whole request if the arguments become
        // anything else.
        if is_object(call.arguments()) && !is_object(&short.arguments) {
            return Err(invalid("they are no longer an object".into()));
        }
    }
    Ok(())
}

fn is_object(json: &str) -> bool {
    json.trim_start().starts_with('{')
}

/// Whether a text begins with one of the host's marks in `own`, or with one that the engine
/// declares. A declared mark counts only if it looks like a mark.
pub fn is_marked(text: &str, own: &[&str], declared: &[String]) -> bool {
    let declared = declared
        .iter()
        .map(String::as_str)
        .filter(|mark| may_mark(mark));
    own.iter()
        .copied()
        .chain(declared)
        .any(|mark| text.starts_with(mark))
}

/// Whether a declared mark is acceptable: it begins with a bracket, has more than two
/// characters, and does not look like a message of the user.
fn may_mark(mark: &str) -> bool {
    mark.starts_with(['[', '【']) && mark.chars().count() > 2 && user_opening(mark).is_none()
}

/// Whether a new text is marked as a shortened form. The text of a cleared tool result needs no
/// mark, and a summary keeps its own.
fn is_shortened(message: &MessageView<'_>, text: &str, marks: &[String]) -> bool {
    is_marked(text, &[SHORTENED_MARK], marks)
        || (message.role() == "tool" && text == CLEARED_TOOL_OUTPUT)
        || (message.kind() == MessageKind::Summary && text.starts_with(SUMMARY_MARK))
}

/// Checks the text of a summary, with or without its marks. It must have text besides its pins,
/// must not contain the end mark, and must not begin like a message of the user.
pub(super) fn check_summary(text: &str, covers: &[MessageId]) -> Result<(), Violation> {
    let covers = || Ids(covers.to_vec());
    let text = text.trim();
    let text = text.strip_prefix(SUMMARY_MARK).unwrap_or(text);
    let text = text.strip_suffix(SUMMARY_END_MARK).unwrap_or(text).trim();
    // The host has written the pins already.
    if without_pins(text).trim().is_empty() {
        return Err(Violation::EmptySummary { covers: covers() });
    }
    if text.contains(SUMMARY_END_MARK) {
        return Err(Violation::ClosedEarly { covers: covers() });
    }
    if let Some(opening) = user_opening(text) {
        return Err(Violation::PosesAsUser {
            covers: covers(),
            opening: opening.to_owned(),
        });
    }
    Ok(())
}

/// Checks the text of a notice, with or without its mark. It must have text and must not begin
/// like a message of the user.
pub(super) fn check_notice(text: &str) -> Result<(), Violation> {
    let text = text.trim();
    let text = text.strip_prefix(NOTICE_MARK).unwrap_or(text).trim();
    match user_opening(text) {
        _ if text.is_empty() => Err(Violation::EmptyNotice),
        Some(opening) => Err(Violation::NoticePosesAsUser {
            opening: opening.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Returns the beginning of `text` if it looks like a message of the user in a transcript: a
/// name and a colon (`User:`, `**Human**:`), a tag (`<user>`, `[user]`) or the mark of a chat
/// template (`<|im_start|>user`). `None` otherwise.
fn user_opening(text: &str) -> Option<&str> {
    const NAMES: [&str; 3] = ["user", "human", "用户"];
    let line = text.lines().next().unwrap_or_default();
    // Markdown around the name does not hide it from a model.
    let start = line.trim_start_matches(|c: char| c.is_whitespace() || "*_#>".contains(c));
    let bracketed = start.starts_with(['<', '[']);
    let name_at = start
        .strip_prefix("<|im_start|>")
        .unwrap_or_else(|| start.trim_start_matches(['<', '[', '|']));
    let templated = start.starts_with("<|im_start|>");
    let after = NAMES.iter().find_map(|name| {
        let (head, rest) = name_at.split_at_checked(name.len())?;
        head.eq_ignore_ascii_case(name).then_some(rest)
    })?;
    let mark = after.trim_start_matches(['*', '_', ' ']);
    let ends = mark.is_empty() && templated
        || mark.starts_with([':', '：'])
        || bracketed && mark.starts_with(['>', ']', '|']);
    // The beginning is quoted in an error message, so it is kept short.
    ends.then(|| &line[..line.floor_char_boundary(40)])
}

#[cfg(test)]
mod tests;

//! Excerpts of texts, and the tool that a result comes from.
//!
//! Messages for a summariser and shortened messages in the window use the same excerpt: the
//! beginning and the end of a text. [`excerpt_within`] is the one for a limit in tokens. [`tool_of`]
//! and [`asks_the_user`] serve to tell tool output, which can be produced again, from an answer of the
//! user that arrived through a tool and must not be lost.

use contexture_engine_api::{MessageView, Services, ToolCallView};

use crate::fitting::largest_within;

/// The end of a shortened string in a tool call's arguments. It contains no character that needs
/// escaping in JSON.
pub const ARGUMENT_MARK: &str = "… [shortened to save context space]";

/// Returns the name of the tool that a result comes from, or an empty string if it is unknown.
/// `caller` is the message with the call.
pub fn tool_of<'a>(result: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> &'a str {
    result.tool_name().unwrap_or_else(|| {
        caller
            .and_then(|caller| {
                let id = result.tool_call_id()?;
                caller.tool_calls().iter().find(|call| call.id() == id)
            })
            .map_or("", ToolCallView::name)
    })
}

/// Whether a tool asks the user something, so that its result is what the user said. This is
/// decided by the name alone, ignoring case and punctuation.
pub fn asks_the_user(tool: &str) -> bool {
    let name: String = tool
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    [
        "askuser",
        "askhuman",
        "askfollowup",
        "askquestion",
        "clarif",
        "userinput",
        "humaninput",
    ]
    .iter()
    .any(|asking| name.contains(asking))
        // As a part of a longer name, "question" is too common to decide anything.
        || name == "question"
}

/// The longest word that an excerpt does not cut, in bytes. A part of a path would be taken for
/// another path.
const WHOLE_WORD: usize = 120;

/// Returns the beginning and the end of a text, at most about `chars` characters together, with a mark
/// between them that says how many characters are missing. Both end at a word. A text that is no
/// longer than that is returned whole.
pub fn excerpt(text: &str, chars: usize) -> String {
    let (head, tail) = (chars.div_ceil(2), chars / 2);
    let Some((head_end, _)) = text.char_indices().nth(head) else {
        return text.to_owned();
    };
    let tail_start = match tail {
        0 => text.len(),
        _ => text
            .char_indices()
            .rev()
            .nth(tail - 1)
            .map_or(0, |(at, _)| at),
    };
    // The two halves meet, so the whole text is within the limit.
    if tail_start <= head_end {
        return text.to_owned();
    }
    let last_word = text[..head_end].rfind(char::is_whitespace);
    let head_end = last_word
        .filter(|at| head_end - at <= WHOLE_WORD)
        .unwrap_or(head_end);
    let first_word = text[tail_start..].find(char::is_whitespace);
    let tail_start = tail_start + first_word.filter(|at| *at <= WHOLE_WORD).unwrap_or(0);
    let omitted = text[head_end..tail_start].chars().count();
    format!(
        "{}\n[… {omitted} characters left out …]\n{}",
        &text[..head_end],
        &text[tail_start..]
    )
}

/// Returns the [`excerpt`] of a text that has at most `tokens` tokens, and few less. A text that has no
/// more is returned whole. If there is no room even for the mark, only the mark is returned.
pub fn excerpt_within(text: &str, tokens: u64, services: &Services) -> String {
    if services.count_tokens(text) <= tokens {
        return text.to_owned();
    }
    let chars = largest_within(text.chars().count(), tokens, |chars| {
        services.count_tokens(&excerpt(text, chars))
    });
    excerpt(text, chars)
}

#[cfg(test)]
mod tests;

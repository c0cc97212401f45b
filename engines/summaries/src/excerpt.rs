//! Excerpts of texts, and which tool a result comes from.

use contexture_engine_api::{MessageView, ToolCallView};

/// Ends a shortened string. Nothing in it needs escaping in JSON.
pub const ARGUMENT_MARK: &str = "… [shortened to save context space]";
/// The name of the tool that a result comes from, where it is known.
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

/// Whether a tool asks the user something: its result is what the user said.
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
        || name == "question"
}

/// The beginning and the end of a text, about `chars` characters in all, with a mark between them. The
/// text itself where it is no longer than that.
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
    if tail_start <= head_end {
        return text.to_owned();
    }
    let omitted = text[head_end..tail_start].chars().count();
    format!(
        "{}\n[… {omitted} characters left out …]\n{}",
        &text[..head_end],
        &text[tail_start..]
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_excerpt_is_bounded_and_keeps_both_ends(text in "\\PC{0,600}", chars in 0usize..300) {
            let short = excerpt(&text, chars);
            if text.chars().count() <= chars {
                prop_assert_eq!(short, text);
            } else {
                prop_assert!(short.chars().count() <= chars + 60);
            }
        }
    }
}

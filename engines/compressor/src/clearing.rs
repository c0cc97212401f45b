//! Phase 1: what old tool calls and their results are shortened to.

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageView, SHORTENED_MARK, ToolCallView};

/// A tool result of more characters than this is worth clearing.
const CLEARED_FROM_CHARS: usize = 200;
/// A string in a tool call's arguments of more bytes than this is shortened,
const LONG_ARGUMENT_BYTES: usize = 400;
/// to about this many bytes and [`ARGUMENT_MARK`].
const SHORT_ARGUMENT_BYTES: usize = 160;
/// Ends a shortened string. Nothing in it needs escaping in JSON.
const ARGUMENT_MARK: &str = "… [shortened to save context space]";

/// The name of the tool that a result comes from, where it is known.
pub(crate) fn tool_of<'a>(result: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> &'a str {
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
pub(crate) fn asks_the_user(tool: &str) -> bool {
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

/// Whether this tool result may be cleared: it is long (or holds media), and not a user's answer.
pub(crate) fn is_clearable<'a>(result: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> bool {
    result.role() == "tool"
        && (result.has_media() || is_long(result.text()))
        && result.text() != CLEARED_TOOL_OUTPUT
        && !asks_the_user(tool_of(result, caller))
}

fn is_long(text: &str) -> bool {
    // Bytes bound characters from both sides, so most texts need no counting.
    text.len() > 4 * CLEARED_FROM_CHARS
        || (text.len() > CLEARED_FROM_CHARS && text.chars().count() > CLEARED_FROM_CHARS)
}

/// The arguments of a call with its long strings cut, still valid JSON: keys, numbers, booleans, nulls
/// and short strings stay as they were written. None where nothing is long, or it is no JSON.
pub(crate) fn shorten_arguments(arguments: &str) -> Option<String> {
    if arguments.len() <= LONG_ARGUMENT_BYTES {
        return None;
    }
    serde_json::from_str::<serde::de::IgnoredAny>(arguments).ok()?;
    let bytes = arguments.as_bytes();
    let mut short = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'"' {
            at += 1;
            continue;
        }
        let string = string_at(arguments, at);
        let is_key = arguments[string.end..].trim_start().starts_with(':');
        if !is_key && string.end - at > LONG_ARGUMENT_BYTES {
            short.push_str(&arguments[copied..string.cut]);
            short.push_str(ARGUMENT_MARK);
            copied = string.end - 1;
        }
        at = string.end;
    }
    if copied == 0 {
        return None;
    }
    short.push_str(&arguments[copied..]);
    Some(short)
}

/// Where a JSON string can be cut and where it ends, its closing quote included.
struct JsonString {
    cut: usize,
    end: usize,
}

/// Reads the string whose opening quote is at `start`. The text is valid JSON.
fn string_at(json: &str, start: usize) -> JsonString {
    let bytes = json.as_bytes();
    let mut at = start + 1;
    let mut cut = at;
    while at < bytes.len() && bytes[at] != b'"' {
        // A surrogate pair is two escapes and no character in its middle.
        let low_surrogate = json[at..].starts_with("\\u")
            && matches!(bytes.get(at + 2), Some(b'd' | b'D'))
            && matches!(bytes.get(at + 3), Some(b'c'..=b'f' | b'C'..=b'F'));
        if at - start <= SHORT_ARGUMENT_BYTES && !low_surrogate {
            cut = at;
        }
        at += match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            (lead, _) => utf8_len(lead),
        };
    }
    JsonString {
        cut,
        end: (at + 1).min(bytes.len()),
    }
}

fn utf8_len(lead: u8) -> usize {
    match lead {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// The beginning and the end of a text, about `chars` characters in all, with a mark between them. The
/// text itself where it is no longer than that.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
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

/// What stands in for a tool result that the model has not seen yet and that fits in no window.
pub(crate) fn preview(text: &str, chars: usize) -> String {
    format!("{SHORTENED_MARK}\n{}", excerpt(text, chars))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use contexture_engine_api::MessageId;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn long_strings_are_cut_and_everything_else_stays_as_written() {
        let long = "x\\n\"é😀 ".repeat(100);
        let arguments = format!(
            r#"{{"n": 12345678901234567890123, "f":1.10, "b":true,"z":null,"s":"short","deep":[{{"content": {}}}], "{}": 1e5}}"#,
            serde_json::to_string(&long).unwrap(),
            "k".repeat(500),
        );
        let short = shorten_arguments(&arguments).unwrap();
        assert!(short.len() < arguments.len() - 600);
        for kept in [
            r#""n": 12345678901234567890123, "f":1.10, "b":true,"z":null,"s":"short""#,
            "1e5",
            &"k".repeat(500),
        ] {
            assert!(short.contains(kept), "{short}");
        }
        let value: Value = serde_json::from_str(&short).unwrap();
        let text = value["deep"][0]["content"].as_str().unwrap();
        assert!(text.ends_with(ARGUMENT_MARK));
        assert!(long.starts_with(text.strip_suffix(ARGUMENT_MARK).unwrap()));
    }

    #[test]
    fn what_is_no_json_or_short_stays() {
        assert_eq!(shorten_arguments(r#"{"a":"b"}"#), None);
        assert_eq!(
            shorten_arguments(&format!("{{\"a\":\"{}", "b".repeat(900))),
            None
        );
        assert_eq!(
            shorten_arguments(&json!({"n": vec![1; 900]}).to_string()),
            None
        );
    }

    #[test]
    fn answers_of_the_user_are_told_from_other_results() {
        for tool in [
            "AskUserQuestion",
            "ask_user",
            "clarify",
            "request_user_input",
            "ask_followup_question",
        ] {
            assert!(asks_the_user(tool), "{tool}");
        }
        for tool in ["read_file", "bash", "task", "get_user_details", ""] {
            assert!(!asks_the_user(tool), "{tool}");
        }
        let text = "yes ".repeat(100);
        let calls = [ToolCallView::new("c", "clarify", "{}")];
        let call = MessageView::new(MessageId(1), "assistant").with_tool_calls(&calls);
        let answer = MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "")
            .with_text(&text);
        assert!(!is_clearable(&answer, Some(&call)));
        assert!(is_clearable(&answer, None));
    }

    #[test]
    fn two_hundred_characters_stay_and_one_more_goes() {
        let result = |text| {
            MessageView::new(MessageId(1), "tool")
                .with_result_of("c", "ls")
                .with_text(text)
        };
        let (at, over) = ("é".repeat(200), "é".repeat(201));
        assert!(!is_clearable(&result(&at), None));
        assert!(is_clearable(&result(&over), None));
        assert!(is_clearable(&result("").with_media(true), None));
        assert!(!is_clearable(&result(CLEARED_TOOL_OUTPUT), None));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,40}|[\"\\\\a\n😀]{300,700}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,12}", inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    /// Equal but for strings, of which the shortened one is a prefix and a mark.
    fn same_shape(long: &Value, short: &Value) -> bool {
        match (long, short) {
            (Value::String(long), Value::String(short)) => {
                long == short
                    || short
                        .strip_suffix(ARGUMENT_MARK)
                        .is_some_and(|prefix| long.starts_with(prefix))
            }
            (Value::Array(long), Value::Array(short)) => {
                long.len() == short.len() && long.iter().zip(short).all(|(l, s)| same_shape(l, s))
            }
            (Value::Object(long), Value::Object(short)) => {
                long.len() == short.len()
                    && long
                        .iter()
                        .zip(short)
                        .all(|((lk, l), (sk, s))| lk == sk && same_shape(l, s))
            }
            _ => long == short,
        }
    }

    proptest! {
        #[test]
        fn shortened_arguments_are_the_same_json_with_shorter_strings(value in any_json()) {
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                if let Some(short) = shorten_arguments(&json) {
                    prop_assert!(short.len() < json.len());
                    prop_assert!(same_shape(&value, &serde_json::from_str(&short).unwrap()));
                }
            }
        }

        #[test]
        fn shortening_survives_any_text(text in "[\"\\\\u{}:d8é, ]{0,900}") {
            shorten_arguments(&text);
        }

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

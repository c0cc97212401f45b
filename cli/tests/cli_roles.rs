//! Who says what in a compacted conversation: whatever its shape, and where it is compacted again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use std::collections::HashSet;

use cli_support::{Home, json};
use serde_json::{Value, json};

/// What stands in one message on the wire.
#[derive(Debug, Default, PartialEq)]
struct Wire {
    role: String,
    texts: Vec<String>,
    calls: Vec<String>,
    results: Vec<String>,
}

impl Wire {
    fn of(message: &Value) -> Self {
        let mut wire = Self {
            role: message["role"].as_str().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            wire.calls.push(id(&call["id"]));
        }
        if wire.role == "tool" {
            wire.results.push(id(&message["tool_call_id"]));
            return wire;
        }
        match message["type"].as_str() {
            Some("function_call") => {
                wire.role = "assistant".into();
                wire.calls.push(id(&message["call_id"]));
            }
            Some("function_call_output") => {
                wire.role = "tool".into();
                wire.results.push(id(&message["call_id"]));
            }
            _ => {}
        }
        match &message["content"] {
            Value::String(text) => wire.texts.push(text.clone()),
            content => {
                for block in content.as_array().into_iter().flatten() {
                    match block["type"].as_str().unwrap() {
                        "tool_use" => wire.calls.push(id(&block["id"])),
                        "tool_result" => wire.results.push(id(&block["tool_use_id"])),
                        _ => wire.texts.push(id(&block["text"])),
                    }
                }
            }
        }
        wire
    }

    /// Whether it is this message, with a summary beside it perhaps.
    fn holds(&self, original: &Self) -> bool {
        self.calls == original.calls
            && original.results.iter().all(|id| self.results.contains(id))
            && original.texts.iter().all(|text| {
                let mut own = self.texts.iter();
                own.any(|own| own.starts_with(text.as_str()) || own.ends_with(text.as_str()))
            })
    }
}

/// The bodies that the same conversations are in three formats.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Api {
    Chat,
    Anthropic,
    Responses,
}

impl Api {
    fn list(self) -> &'static str {
        match self {
            Self::Responses => "input",
            _ => "messages",
        }
    }

    /// The messages of turns: `u` a user's, `a` an answer, `c` a call and its result, `d` the same with text.
    fn messages(self, turns: &str, start: usize) -> Vec<Value> {
        let mut messages = Vec::new();
        for (turn, kind) in turns.chars().enumerate() {
            let at = start + turn;
            let text = |what: &str| {
                format!(
                    "{what} {at}: {}",
                    format!("the part {at} of it is long. ").repeat(12)
                )
            };
            let (said, output, id) = (text("Said"), text("Output"), format!("call_{at}"));
            let input = json!({"path": format!("src/part_{at}.rs")});
            match (self, kind) {
                (_, 'u') => messages.push(json!({"role": "user", "content": said})),
                (_, 'a') => messages.push(json!({"role": "assistant", "content": said})),
                (Self::Chat, _) => {
                    let call = json!({"id": id, "type": "function",
                        "function": {"name": "read_file", "arguments": input.to_string()}});
                    let content = if kind == 'd' {
                        json!(said)
                    } else {
                        Value::Null
                    };
                    messages.push(
                        json!({"role": "assistant", "content": content, "tool_calls": [call]}),
                    );
                    messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
                }
                (Self::Anthropic, _) => {
                    let call =
                        json!({"type": "tool_use", "id": id, "name": "read_file", "input": input});
                    let content = match kind {
                        'd' => json!([{"type": "text", "text": said}, call]),
                        _ => json!([call]),
                    };
                    let result =
                        json!({"type": "tool_result", "tool_use_id": id, "content": output});
                    messages.push(json!({"role": "assistant", "content": content}));
                    messages.push(json!({"role": "user", "content": [result]}));
                }
                (Self::Responses, _) => {
                    if kind == 'd' {
                        messages.push(json!({"role": "assistant", "content": said}));
                    }
                    messages.push(
                        json!({"type": "function_call", "call_id": id, "name": "read_file",
                        "arguments": input.to_string()}),
                    );
                    messages.push(
                        json!({"type": "function_call_output", "call_id": id, "output": output}),
                    );
                }
            }
        }
        messages
    }
}

/// What is wrong with the roles in what a conversation was compacted to.
fn faults(before: &[Value], after: &[Value]) -> Vec<String> {
    let before: Vec<Wire> = before.iter().map(Wire::of).collect();
    let after: Vec<Wire> = after.iter().map(Wire::of).collect();
    let origin: Vec<HashSet<usize>> = after
        .iter()
        .map(|wire| {
            let all = before.iter().enumerate();
            all.filter(|(_, original)| original.role == wire.role && wire.holds(original))
                .map(|(at, _)| at)
                .collect()
        })
        .collect();
    let mut faults = Vec::new();
    for (at, pair) in after.windows(2).enumerate() {
        let doubled = pair[0].role == pair[1].role && pair[0].role != "tool";
        let was_so = origin[at]
            .iter()
            .any(|first| origin[at + 1].contains(&(first + 1)));
        if doubled && !was_so {
            faults.push(format!("two of {} in a row: {pair:#?}", pair[0].role));
        }
    }
    for (wire, origin) in after.iter().zip(&origin) {
        let had_no_text = |at: &usize| before[*at].texts.is_empty();
        if !wire.calls.is_empty() && !wire.texts.is_empty() && origin.iter().any(had_no_text) {
            faults.push(format!("a summary joined calls alone: {wire:#?}"));
        }
    }
    faults
}

#[test]
fn no_compaction_makes_two_messages_of_one_role_stand_in_a_row() {
    let home = Home::new();
    let mut shapes = Vec::new();
    for head in ["u", "ua", "uc", "uca"] {
        for middle in ["cccccccc", "auauauau", "aucccccc"] {
            for tail in [
                "u", "a", "cu", "ca", "cd", "cc", "dc", "uac", "ucu", "auc", "cuc",
            ] {
                shapes.push(format!("{head}{middle}{tail}"));
            }
        }
    }
    let more = ["cua", "uacccc", "accc", "ucccdc"];
    let mut compacted = 0;
    for api in [Api::Chat, Api::Anthropic, Api::Responses] {
        for protect_last_n in [1, 2, 4] {
            let compression = format!("{{protect_last_n: {protect_last_n}, target_ratio: 0.1}}");
            let config = home.put("config.yaml", &format!("compression: {compression}\n"));
            let mut bodies: Vec<Value> = shapes
                .iter()
                .map(|turns| json!({"model": "gpt-5", api.list(): api.messages(turns, 0)}))
                .collect();
            for round in 1..3 {
                let lines: Vec<String> = bodies.iter().map(Value::to_string).collect();
                let input = home.put("in.jsonl", &lines.join("\n"));
                let run = ["compress", &input, "--config", &config, "--force"];
                let ran = home.run(run.into_iter().chain(["--context-length", "6000"]));
                ran.exits(0);
                let smaller = json(&ran.stdout);
                let smaller = smaller.as_array().unwrap().iter();
                for (at, (body, after)) in bodies.iter_mut().zip(smaller).enumerate() {
                    let messages = |body: &Value| body[api.list()].as_array().unwrap().clone();
                    let faults = faults(&messages(body), &messages(after));
                    let shape = &shapes[at];
                    assert!(faults.is_empty(), "{api:?} {shape} {round}: {faults:?}");
                    compacted += usize::from(body != after);
                    *body = after.clone();
                    let more = api.messages(more[at % more.len()], 100 * round);
                    body[api.list()].as_array_mut().unwrap().extend(more);
                }
            }
        }
    }
    assert!(compacted > 2_000, "{compacted}");
}

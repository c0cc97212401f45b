#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Format, split};

const FORMATS: [Format; 4] = [
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Anthropic,
    Format::Gemini,
];

fn message(format: Format, role: &str, text: &str) -> Value {
    match format {
        Format::Gemini => json!({"role": role, "parts": [{"text": text}]}),
        _ => json!({"role": role, "content": text}),
    }
}

/// Members that may be before or after the list of messages. The name of a member may be in
/// both.
fn members(format: Format) -> Vec<(&'static str, Value)> {
    let parts = json!({"parts": [{"text": "rules"}]});
    let mut members = vec![("model", json!("m")), ("stream", json!(true))];
    members.extend(match format {
        Format::Gemini => vec![
            ("systemInstruction", parts),
            (
                "tools",
                json!([{"functionDeclarations": [{"name": "own"}]}]),
            ),
            (
                "toolConfig",
                json!({"functionCallingConfig": {"mode": "ANY"}}),
            ),
            ("tool_config", json!({"retrievalConfig": {}})),
        ],
        Format::OpenAiResponses => vec![
            ("instructions", json!("rules")),
            ("tools", json!([])),
            ("tool_choice", json!("auto")),
        ],
        Format::Anthropic => vec![
            ("system", json!("rules")),
            ("system", json!([{"type": "text", "text": "rules"}])),
            ("tools", json!([{"name": "own", "input_schema": {}}])),
            ("tool_choice", json!({"type": "any"})),
            ("cache_control", json!({"type": "ephemeral"})),
        ],
        _ => vec![("tools", Value::Null), ("tool_choice", json!("required"))],
    });
    members
}

/// The text of a body: how its format, members, messages and white space are chosen.
fn body() -> impl Strategy<Value = (Format, String)> {
    let chosen = prop::collection::vec(any::<(prop::sample::Index, bool)>(), 0..4);
    let roles = prop::collection::vec(0..4_usize, 0..5);
    let formats = prop::sample::select(FORMATS.to_vec());
    (formats, chosen, roles, 0..3_usize, any::<bool>()).prop_map(
        |(format, chosen, roles, space, is_bare)| {
            let gap = ["", " ", "\n  "][space];
            let roles = roles.iter().map(|role| match (format, role) {
                (Format::OpenAiChat | Format::OpenAiResponses, 0) => "system",
                (Format::Gemini, 1) => "model",
                (_, 1) => "assistant",
                _ => "user",
            });
            let items: Vec<String> = roles
                .enumerate()
                .map(|(at, role)| message(format, role, &format!("m{at}")).to_string())
                .collect();
            let list = format!("[{gap}{}{gap}]", items.join(&format!("{gap},{gap}")));
            if is_bare && format != Format::OpenAiResponses {
                return (format, list);
            }
            let all = members(format);
            let mut parts = vec![format!("\"{}\":{gap}{list}", format.list_key())];
            for (index, is_before) in chosen {
                let (name, value) = index.get(&all);
                let member = format!("\"{name}\"{gap}:{value}");
                parts.insert(if is_before { 0 } else { parts.len() }, member);
            }
            (
                format,
                format!("{gap}{{{gap}{}{gap}}}\n", parts.join(&format!(",{gap}"))),
            )
        },
    )
}

proptest! {
    /// A body that was written has its parts where splitting its text would find them, and its
    /// kept messages byte for byte.
    #[test]
    fn a_written_body_is_split_already(
        (format, text) in body(),
        note in prop::option::of("[a-z\"]{1,4}"),
        tools in 0..3_usize,
        denied: bool,
        asks_for_markers: bool,
        kept in prop::option::of(prop::collection::vec(any::<bool>(), 5)),
    ) {
        let wire = split(&text, Some(format)).unwrap();
        let new = message(format, "user", "new").to_string();
        let others = kept.map(|kept| {
            let own = wire.messages.iter().enumerate();
            let own = own.zip(kept).filter(|(_, kept)| *kept);
            let own = own.map(|((at, text), _)| (Some(at), *text));
            own.chain([(None, new.as_str())]).collect::<Vec<_>>()
        });
        let tools: Vec<ToolSpec> = (0..tools)
            .map(|at| ToolSpec::new(format!("tool_{at}"), "does", json!({"type": "object"})))
            .collect();
        let markers = asks_for_markers.then_some((CacheProvider::OpenRouter, Ttl::OneHour));
        let edits = BodyEdits::default().note(note.as_deref()).tools(&tools, denied).markers(markers);
        let changed = match &others {
            Some(others) => wire.with_messages(others.clone()),
            None => wire.clone(),
        };
        let written = changed.write(&edits);
        let out = written.body.text().as_ref();
        let again = split(out, Some(format)).unwrap();
        let shown = |mut wire: WireBody<'_>| {
            Arc::make_mut(&mut wire.parts.body).forget_scan();
            format!("{wire:?}")
        };
        prop_assert_eq!(shown(again), shown(written.body.wire()));

        let value: Value = serde_json::from_str(out).unwrap();
        let list = if wire.parts.body.is_bare { &value } else { &value[format.list_key()] };
        let texts: Vec<&str> = match &others {
            Some(others) => others.iter().map(|(_, text)| *text).collect(),
            None => wire.messages.clone(),
        };
        let is_marked = asks_for_markers && Shape::of(format).is_some();
        if !is_marked {
            for text in &texts {
                prop_assert!(out.contains(text), "{} {}", text, out);
            }
        }
        prop_assert!(list.as_array().unwrap().len() >= texts.len());
        prop_assert_eq!(written.without_tools.is_some(), wire.parts.body.is_bare && (denied || !tools.is_empty()));
        for tool in tools.iter().filter(|_| !wire.parts.body.is_bare) {
            prop_assert!(value["tools"].to_string().contains(&tool.name), "{}", out);
        }
        let is_as_it_came = others.is_none() && note.is_none() && tools.is_empty();
        if is_as_it_came && !denied && !is_marked {
            prop_assert!(matches!(written.body.text(), Cow::Borrowed(same) if *same == text));
        }
    }
}

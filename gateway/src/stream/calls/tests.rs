#![allow(clippy::unwrap_used)]
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::AnswerReader;
use super::super::sse::Events;
use crate::api::Api;

/// How a server differs from OpenAI. A test combines these differences at random, because real
/// servers combine them, too.
#[derive(Debug, Clone, Copy)]
struct ServerQuirks {
    /// 0: counted, 1: left out, 2: always 0.
    index: u8,
    /// 0: with the first piece, 1: with each, 2: empty, 3: left out.
    id: u8,
    is_named_late: bool,
    repeats_name: bool,
    /// In how many pieces the arguments arrive. 0 stands for an object in place of a text.
    pieces: usize,
    begins_empty: bool,
    finish: &'static str,
    finishes_at_once: bool,
    has_done: bool,
    in_one: bool,
}

fn server_quirks() -> impl Strategy<Value = ServerQuirks> {
    let shape = (
        0u8..3,
        0u8..4,
        any::<bool>(),
        any::<bool>(),
        0usize..4,
        any::<bool>(),
    );
    let end = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (shape, end).prop_map(|(shape, end)| {
        let (index, id, is_named_late, repeats_name, pieces, begins_empty) = shape;
        let (stops, finishes_at_once, has_done, in_one) = end;
        ServerQuirks {
            index,
            id,
            // Without an id, only the name marks the beginning of a call.
            is_named_late: is_named_late && (id < 2 || index == 0),
            // The same applies if the next call has the same name.
            repeats_name: repeats_name && (id < 2 || index == 0),
            pieces,
            begins_empty: begins_empty && pieces > 0,
            finish: if stops { "stop" } else { "tool_calls" },
            finishes_at_once,
            has_done,
            in_one,
        }
    })
}

type Named = (String, String);

/// The deltas of these calls, as a server with these differences sends them.
fn deltas(calls: &[Named], odd: ServerQuirks) -> Vec<Value> {
    let mut all = Vec::new();
    for (number, (name, arguments)) in calls.iter().enumerate() {
        let mut parts: Vec<Value> = match odd.pieces {
            0 => vec![serde_json::from_str(arguments).unwrap()],
            pieces => {
                let chars: Vec<char> = arguments.chars().collect();
                let size = chars.len().div_ceil(pieces);
                chars
                    .chunks(size)
                    .map(|part| json!(part.iter().collect::<String>()))
                    .collect()
            }
        };
        if odd.begins_empty || odd.is_named_late {
            parts.insert(0, json!(""));
        }
        for (at, part) in parts.into_iter().enumerate() {
            let mut piece = json!({"type": "function", "function": {"arguments": part}});
            match odd.index {
                0 => piece["index"] = json!(number),
                2 => piece["index"] = json!(0),
                _ => {}
            }
            match odd.id {
                0 if at == 0 => piece["id"] = json!(format!("call_{number}")),
                1 => piece["id"] = json!(format!("call_{number}")),
                2 => piece["id"] = json!(""),
                _ => {}
            }
            let first = usize::from(odd.is_named_late);
            if at == first || (odd.repeats_name && at > first) {
                piece["function"]["name"] = json!(name);
            }
            all.push(piece);
        }
    }
    all
}

fn chunk(delta: &Value, finish: &Value) -> Vec<u8> {
    let data = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {data}\n\n").into_bytes()
}

fn stream(calls: &[Named], odd: ServerQuirks) -> Vec<u8> {
    let pieces = deltas(calls, odd);
    let groups: Vec<Vec<Value>> = match odd.in_one {
        true => vec![pieces],
        false => pieces.into_iter().map(|piece| vec![piece]).collect(),
    };
    let count = groups.len();
    let mut out = chunk(&json!({"role": "assistant", "content": ""}), &Value::Null);
    for (at, group) in groups.into_iter().enumerate() {
        let ends = odd.finishes_at_once && at + 1 == count;
        let finish = if ends { json!(odd.finish) } else { Value::Null };
        out.extend(chunk(&json!({"tool_calls": group}), &finish));
    }
    if !odd.finishes_at_once {
        out.extend(chunk(&json!({}), &json!(odd.finish)));
    }
    if odd.has_done {
        out.extend(b"data: [DONE]\n\n");
    }
    out
}

/// The client's calls in what it receives, assembled by index as strict clients do it.
fn client_calls(out: &[u8]) -> Vec<Named> {
    let mut events = Events::default();
    events.push(out);
    let mut calls: BTreeMap<u64, Named> = BTreeMap::new();
    while let Some(event) = events.next() {
        let Some(data) = event.json() else { continue };
        for piece in data["choices"][0]["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let call = calls.entry(piece["index"].as_u64().unwrap()).or_default();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if call.0.is_empty() {
                call.0 = text(&piece["function"]["name"]);
            }
            call.1 += &match &piece["function"]["arguments"] {
                Value::Object(object) => json!(object).to_string(),
                other => text(other),
            };
        }
    }
    calls.into_values().collect()
}

fn calls() -> impl Strategy<Value = Vec<Named>> {
    let name = prop_oneof![
        Just("lcm_grep"),
        Just("lcm_expand"),
        Just("crane"),
        Just("run")
    ];
    let call = (name, "[a-z\"\\\\ {}é]{0,12}", 0u32..3).prop_map(|(name, text, number)| {
        (
            name.to_owned(),
            json!({"pattern": text, "n": number}).to_string(),
        )
    });
    prop::collection::vec(call, 1..4)
}

fn same(one: &[Named], other: &[Named]) -> bool {
    let parsed = |calls: &[Named]| {
        let each = calls
            .iter()
            .map(|(name, arguments)| (name.clone(), serde_json::from_str::<Value>(arguments).ok()));
        each.collect::<Vec<_>>()
    };
    parsed(one) == parsed(other)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever the deltas look like, the engine receives its calls and the client receives its
    /// own.
    #[test]
    fn calls_are_put_together_whatever_the_deltas_are(calls in calls(), odd in server_quirks()) {
        let tools: HashSet<String> = ["lcm_grep", "lcm_expand"].map(str::to_owned).into();
        let is_own = |call: &Named| tools.contains(&call.0);
        let (own, others): (Vec<Named>, Vec<Named>) = calls.iter().cloned().partition(is_own);
        let mut reader = AnswerReader::new(Api::Chat, Arc::new(tools));
        let (mut events, mut out) = (Events::default(), Vec::new());
        events.push(&stream(&calls, odd));
        while let Some(event) = events.next() {
            reader.event(&event, &mut out);
        }
        prop_assert!(reader.progress().is_whole);
        let round = reader.take_round();
        prop_assert_eq!(round.continues, others.is_empty());
        let found: Vec<Named> = round.calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        prop_assert!(same(&found, &own), "{:?}", found);
        let ids: HashSet<&str> = round.calls.iter().map(|call| call.id.as_str()).collect();
        prop_assert!(ids.len() == own.len() && !ids.contains(""), "{:?}", ids);
        let text = String::from_utf8_lossy(&out).into_owned();
        prop_assert!(!text.contains("lcm_"), "{}", text);
        if !own.is_empty() {
            prop_assert!(same(&client_calls(&out), &others), "{}", text);
        }
        // The message for the provider has all calls, each with an id.
        let message: Value = serde_json::from_str(&round.items[0]).unwrap();
        prop_assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(calls.len()));
    }

    /// The same has to hold for an answer that comes as a whole, in which calls have no deltas
    /// to assemble.
    #[test]
    fn calls_of_a_whole_answer_are_known(calls in calls(), odd in server_quirks()) {
        let odd = ServerQuirks { pieces: odd.pieces.min(1), begins_empty: false, is_named_late: false, repeats_name: false, ..odd };
        let tools: HashSet<String> = ["lcm_grep", "lcm_expand"].map(str::to_owned).into();
        let own: Vec<Named> = calls.iter().filter(|call| tools.contains(&call.0)).cloned().collect();
        let mut reader = AnswerReader::new(Api::Chat, Arc::new(tools));
        reader.json(json!({"id": "c", "choices": [{"index": 0, "finish_reason": odd.finish, "message":
            {"role": "assistant", "content": null, "tool_calls": deltas(&calls, odd)}}]}));
        let round = reader.take_round();
        let found: Vec<Named> = round.calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        prop_assert!(same(&found, &own), "{:?}", found);
        prop_assert_eq!(round.continues, own.len() == calls.len());
        prop_assert!(round.calls.iter().all(|call| !call.id.is_empty()));
    }
}

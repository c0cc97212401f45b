#![allow(clippy::unwrap_used)]
use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::AnswerReader;
use super::super::sse::Events;
use crate::api::Api;

fn part() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("lcm_grep"), Just("run")];
    let call = ("[a-z é\"]{0,5}", name, any::<bool>(), any::<bool>());
    let call = call.prop_map(|(word, name, has_id, is_snake)| {
        let mut call = json!({"name": name, "args": {"pattern": word}});
        if has_id {
            call["id"] = json!(format!("id-{word}"));
        }
        let key = if is_snake {
            "function_call"
        } else {
            "functionCall"
        };
        json!({key: call, "thoughtSignature": "c2ln"})
    });
    let text = ("[a-zé \"\\n]{0,6}", 0..3);
    let text = text.prop_map(|(text, kind)| match kind {
        0 => json!({"text": text}),
        1 => json!({"text": text, "thought": true}),
        _ => json!({"text": text, "thoughtSignature": "c2ln"}),
    });
    prop_oneof![2 => text, 1 => call]
}

/// Rounds of an answer, each with its events, each with its parts.
fn rounds() -> impl Strategy<Value = Vec<Vec<Vec<Value>>>> {
    let event = prop::collection::vec(part(), 0..3);
    let round = prop::collection::vec(event, 1..5);
    prop::collection::vec(round, 1..4)
}

fn call_of(part: &Value) -> Option<&Value> {
    part.get("functionCall").or(part.get("function_call"))
}

fn is_hidden(part: &Value) -> bool {
    call_of(part).is_some_and(|call| call["name"] == "lcm_grep")
}

fn response(parts: &[Value], is_last: bool) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if is_last {
        candidate["finishReason"] = json!("STOP");
    }
    let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "totalTokenCount": 12});
    json!({"candidates": [candidate], "usageMetadata": usage, "responseId": "r"})
}

fn parts_in(response: &Value) -> Vec<Value> {
    let parts = &response["candidates"][0]["content"]["parts"];
    parts.as_array().cloned().unwrap_or_default()
}

/// The texts of the answer or of its thoughts, without white space between rounds.
fn text(parts: &[Value], is_thought: bool) -> String {
    let texts = parts
        .iter()
        .filter(|part| (part["thought"] == true) == is_thought);
    let text: String = texts.filter_map(|part| part["text"].as_str()).collect();
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn calls(parts: &[Value]) -> Vec<Value> {
    parts.iter().filter_map(call_of).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However an answer is cut into events, the client receives its parts without the engine's
    /// calls, the model's message has all of them, and a stream says what a whole body says.
    #[test]
    fn the_client_receives_everything_but_the_engines_calls(all in rounds()) {
        let tools: HashSet<String> = HashSet::from(["lcm_grep".to_owned()]);
        let reader = || AnswerReader::new(Api::Gemini, Arc::new(tools.clone()));
        let (mut streamed, mut whole) = (reader(), reader());
        let (mut out, mut said, mut hidden) = (Vec::new(), Vec::new(), 0);
        for round in &all {
            let parts = round.concat();
            for (at, event) in round.iter().enumerate() {
                let event = format!("data: {}\r\n\r\n", response(event, at + 1 == round.len()));
                let mut events = Events::default();
                events.push(event.as_bytes());
                streamed.event(&events.next().unwrap(), &mut out);
            }
            whole.json(response(&parts, true));
            let is_hidden_round = calls(&parts).len() == parts.iter().filter(|part| is_hidden(part)).count()
                && parts.iter().any(is_hidden);
            for reader in [&mut streamed, &mut whole] {
                prop_assert!(reader.progress().finished);
                let taken = reader.take_round();
                prop_assert_eq!(taken.continues, is_hidden_round);
                prop_assert_eq!(taken.usage.unwrap().output_tokens, 3);
                let kept = parts.iter().filter(|part| part["thought"] != true);
                let kept: Vec<Value> = kept.cloned().collect();
                let message = taken.items.first().map(|item| serde_json::from_str::<Value>(item).unwrap());
                let sent = message.map_or(Vec::new(), |message| message["parts"].as_array().unwrap().clone());
                let waits = parts.iter().any(is_hidden);
                prop_assert_eq!(calls(&sent), calls(&kept));
                prop_assert_eq!(taken.calls.len(), if waits { parts.iter().filter(|part| is_hidden(part)).count() } else { 0 });
                prop_assert_eq!(text(&sent, false), text(&kept, false));
                let signed = |parts: &[Value]| parts.iter().filter(|part| part["thoughtSignature"].is_string()).count();
                prop_assert_eq!(signed(&sent), signed(&kept));
            }
            said.extend(parts);
            hidden += u64::from(is_hidden_round);
            if !is_hidden_round {
                break;
            }
        }
        let visible: Vec<Value> = said.iter().filter(|part| !is_hidden(part)).cloned().collect();
        let mut events = Events::default();
        events.push(&out);
        let mut came = Vec::new();
        let mut last = Value::Null;
        while let Some(event) = events.next() {
            last = event.json().unwrap();
            came.extend(parts_in(&last));
        }
        let composed = whole.composed();
        let composed = composed.map(|body| serde_json::from_str::<Value>(&body).unwrap());
        let body = composed.as_ref().map(parts_in);
        for came in [Some(came), body].iter().flatten() {
            prop_assert_eq!(calls(came), calls(&visible));
            for is_thought in [true, false] {
                prop_assert_eq!(text(came, is_thought), text(&visible, is_thought));
            }
        }
        // Unless the limit of rounds ended it, the answer has its end and the output of all rounds.
        if last["candidates"][0]["finishReason"] == "STOP" && hidden > 0 {
            let usage = &last["usageMetadata"];
            prop_assert_eq!(usage["candidatesTokenCount"].as_u64(), Some(2 + 3 * hidden));
            prop_assert_eq!(usage["totalTokenCount"].as_u64(), Some(12 + 3 * hidden));
        }
    }
}

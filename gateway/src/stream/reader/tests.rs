#![allow(clippy::unwrap_used)]
use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::AnswerReader;
use crate::api::Api;
use crate::stream::sse::Events;

const APIS: [Api; 4] = [Api::Chat, Api::Responses, Api::Messages, Api::Gemini];

/// The name of the tool that a round calls. Which of them is the engine's differs.
const TOOL: &str = "lcm_grep";

/// A round with a text and a call, as events and as a JSON body.
fn round(api: Api) -> (Vec<Value>, Value) {
    match api {
        Api::Chat => {
            let usage = json!({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12});
            let chunk = |delta: Value, finish: Value| json!({"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": "{}"}});
            let events = vec![
                chunk(json!({"role": "assistant", "content": "Té"}), Value::Null),
                chunk(json!({"content": "al."}), Value::Null),
                chunk(json!({"tool_calls": [call]}), Value::Null),
                chunk(json!({}), json!("tool_calls")),
                json!({"id": "c", "choices": [], "usage": usage}),
            ];
            let message = json!({"role": "assistant", "content": "Téal.", "tool_calls": [call]});
            let body = json!({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": usage});
            (events, body)
        }
        Api::Messages => {
            let usage = json!({"input_tokens": 9, "output_tokens": 3});
            let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
            let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
            let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
            let call = json!({"type": "tool_use", "id": "t", "name": TOOL, "input": {}});
            let message = |content: Value, stop: Value| json!({"id": "m", "type": "message", "role": "assistant", "content": content, "stop_reason": stop, "usage": usage});
            let events = vec![
                json!({"type": "message_start", "message": message(json!([]), Value::Null)}),
                start(0, json!({"type": "text", "text": ""})),
                delta(0, json!({"type": "text_delta", "text": "Téal."})),
                delta(
                    0,
                    json!({"type": "citations_delta", "citation": {"url": "u"}}),
                ),
                stop(0),
                start(1, call.clone()),
                delta(1, json!({"type": "input_json_delta", "partial_json": "{}"})),
                stop(1),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}}),
                json!({"type": "message_stop"}),
            ];
            let content = json!([{"type": "text", "text": "Téal."}, call]);
            (events, message(content, json!("tool_use")))
        }
        Api::Responses => {
            let text = json!({"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Téal."}]});
            let call = json!({"id": "f", "type": "function_call", "call_id": "call_1", "name": TOOL, "arguments": "{}"});
            let response = |status: &str, output: Value| json!({"id": "r", "created_at": 1, "status": status, "store": false, "output": output, "tools": [{"type": "function", "name": TOOL}], "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}});
            let item = |kind: &str, number: u64, index: u64, item: &Value| json!({"type": kind, "sequence_number": number, "output_index": index, "item": item});
            let body = response("completed", json!([text, call]));
            let (added, done) = ("response.output_item.added", "response.output_item.done");
            let events = vec![
                json!({"type": "response.created", "sequence_number": 0, "response": response("in_progress", json!([]))}),
                item(added, 1, 0, &text),
                item(done, 2, 0, &text),
                item(added, 3, 1, &call),
                item(done, 4, 1, &call),
                json!({"type": "response.completed", "sequence_number": 5, "response": body}),
            ];
            (events, body)
        }
        Api::Gemini => {
            let response = |parts: Value, finish: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}, "responseId": "r"});
            let call = json!({"functionCall": {"name": TOOL, "args": {}}});
            let events = vec![
                response(json!([{"text": "Té"}]), Value::Null),
                response(json!([{"text": "al."}, call]), json!("STOP")),
            ];
            let body = response(json!([{"text": "Téal."}, call]), json!("STOP"));
            (events, body)
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(1.5)),
        Just(json!(u64::MAX))
    ];
    let text = prop_oneof![Just(""), Just("x"), Just(TOOL), Just("function_call")];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("name|type|text|[a-b]", inner, 0..3)
                .prop_map(|members| Value::Object(serde_json::Map::from_iter(members))),
        ]
    })
}

/// The paths of all values within a value, and of itself.
fn paths(value: &Value, path: &str, all: &mut Vec<String>) {
    all.push(path.to_owned());
    match value {
        Value::Array(list) => {
            (list.iter().enumerate()).for_each(|(at, one)| paths(one, &format!("{path}/{at}"), all))
        }
        Value::Object(members) => {
            (members.iter()).for_each(|(key, one)| paths(one, &format!("{path}/{key}"), all))
        }
        _ => {}
    }
}

/// Puts a value in the place of one within another.
fn replace(value: &mut Value, place: Index, with: &Value) {
    let mut all = Vec::new();
    paths(value, "", &mut all);
    let path: &String = place.get(all.as_slice());
    *value.pointer_mut(path).unwrap() = with.clone();
}

/// Reads events, and checks that a client without tools of the engine gets their bytes.
fn read_events(
    reader: &mut AnswerReader,
    all: &[Value],
    is_own: bool,
) -> Result<(), TestCaseError> {
    for data in all {
        let mut events = Events::default();
        let raw = format!("data: {data}\n\n");
        events.push(raw.as_bytes());
        let mut out = Vec::new();
        reader.event(&events.next().unwrap(), &mut out);
        if !is_own {
            prop_assert_eq!(String::from_utf8_lossy(&out), raw);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever JSON a provider sends in the place of any other, in any round, the answer is read to
    /// its end. If no tool is the engine's, the client receives the provider's bytes.
    #[test]
    fn json_of_any_shape_is_read(
        api in prop::sample::select(APIS.to_vec()),
        is_own in any::<bool>(),
        changes in prop::collection::vec((0..3usize, any::<Index>(), any::<Index>(), any_json()), 1..4),
    ) {
        let tools: HashSet<String> = is_own.then(|| TOOL.to_owned()).into_iter().collect();
        let reader = || AnswerReader::new(api, Arc::new(tools.clone()));
        let (mut streamed, mut whole) = (reader(), reader());
        for number in 0..3 {
            let (mut events, mut body) = round(api);
            for (_, event, place, with) in changes.iter().filter(|change| change.0 == number) {
                let at = event.index(events.len());
                replace(&mut events[at], *place, with);
                replace(&mut body, *place, with);
            }
            if api == Api::Gemini && number == 0 && changes[0].0 == 1 {
                body = json!([body]);
            }
            read_events(&mut streamed, &events, is_own)?;
            whole.json(body);
            for reader in [&mut streamed, &mut whole] {
                let mut out = Vec::new();
                let round = reader.take_round();
                prop_assert!(is_own || !round.continues);
                reader.visible();
                prop_assert!(is_own || reader.composed().is_none());
                if number == 2 {
                    reader.write_error(&api.stream_error("It failed."), &mut out);
                    reader.end_at_limit(&mut out);
                    reader.composed();
                }
            }
            if !is_own {
                break;
            }
        }
    }
}

/// What a provider says beside an answer that is no stream is about its last round. The client knows the answer by how it
/// began.
#[test]
fn what_stands_beside_an_answer_is_of_its_last_round() {
    for (api, calls, id) in [
        (Api::Chat, "/choices/0/message/tool_calls", "id"),
        (Api::Messages, "/content", "id"),
        (Api::Responses, "/output", "id"),
        (Api::Gemini, "/candidates/0/content/parts", "responseId"),
    ] {
        let tools = HashSet::from([TOOL.to_owned()]);
        let mut reader = AnswerReader::new(api, Arc::new(tools));
        let (_, mut hidden) = round(api);
        hidden["beside"] = json!("first");
        let (_, mut last) = round(api);
        last["beside"] = json!("last");
        last[id] = json!("another");
        let list = last.pointer_mut(calls).unwrap().as_array_mut().unwrap();
        list.pop();
        let began = hidden[id].clone();
        reader.json(hidden);
        assert!(reader.take_round().continues, "{api:?}");
        reader.json(last);
        assert!(!reader.take_round().continues, "{api:?}");
        let composed: Value = serde_json::from_str(&reader.composed().unwrap()).unwrap();
        assert_eq!(composed["beside"], "last", "{api:?}: {composed}");
        assert_eq!(composed[id], began, "{api:?}: {composed}");
    }
}

/// What a provider says of each call, such as a verdict, reaches the client for its own calls.
#[test]
fn results_of_hidden_calls_are_hidden() {
    let result = |id: &str| json!({"tool_use_id": id, "verdict": "not_flagged"});
    let results = json!([result("t"), result("own")]);
    let own = json!({"type": "tool_use", "id": "own", "name": "run", "input": {}});
    let reader = || {
        let tools = HashSet::from([TOOL.to_owned()]);
        AnswerReader::new(Api::Messages, Arc::new(tools))
    };
    let (mut events, mut body) = round(Api::Messages);

    body["content"].as_array_mut().unwrap().push(own.clone());
    body["safeguard_results"] = results.clone();
    let mut whole = reader();
    whole.json(body);
    whole.take_round();
    let composed: Value = serde_json::from_str(&whole.composed().unwrap()).unwrap();
    assert_eq!(composed["safeguard_results"], json!([result("own")]));

    let end = events.len() - 2;
    events[end]["delta"]["safeguard_results"] = results;
    let start = json!({"type": "content_block_start", "index": 2, "content_block": own});
    events.insert(end, start);
    let mut streamed = reader();
    let mut out = Vec::new();
    for data in events {
        let mut events = Events::default();
        events.push(format!("data: {data}\n\n").as_bytes());
        streamed.event(&events.next().unwrap(), &mut out);
    }
    let out = String::from_utf8(out).unwrap();
    let results = json!([result("own")]).to_string();
    assert!(
        out.contains(&format!("\"safeguard_results\":{results}")),
        "{out}"
    );
}

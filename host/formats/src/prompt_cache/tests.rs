#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::SUMMARY_MARK;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::mark;
use CacheProvider::{Anthropic, OpenRouter};
use Shape::OpenAiChat;

/// Marks a request, of which everything but the markers must keep its bytes.
fn marked(request: &str, shape: Shape, provider: CacheProvider, ttl: Ttl) -> Value {
    let sent = mark(request, shape, provider, ttl).unwrap();
    assert_eq!(without_markers(&sent, request), request);
    serde_json::from_str(&sent).unwrap()
}

/// What was sent without the markers that were inserted into `request`.
fn without_markers(sent: &str, request: &str) -> String {
    let markers = [
        r#","cache_control":{"type":"ephemeral"}"#,
        r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
    ];
    let (mut rest, mut kept, mut in_block) = (sent, String::new(), false);
    while let Some(next) = rest.chars().next() {
        let marked = markers.iter().find_map(|marker| rest.strip_prefix(marker));
        let is_kept = request[kept.len()..].starts_with(next);
        if let Some(after) = marked.filter(|_| in_block || !is_kept) {
            // A string that became a block ends here.
            let end = if in_block { "}]" } else { "" };
            rest = after.strip_prefix(end).unwrap();
            in_block = false;
        } else if is_kept {
            kept.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            rest = rest.strip_prefix("[{\"type\":\"text\",\"text\":").unwrap();
            in_block = true;
        }
    }
    kept
}

fn openrouter(request: &Value) -> Value {
    marked(
        &request.to_string(),
        OpenAiChat,
        OpenRouter,
        Ttl::FiveMinutes,
    )
}

fn anthropic(request: &Value) -> Value {
    marked(
        &request.to_string(),
        Shape::Anthropic,
        Anthropic,
        Ttl::FiveMinutes,
    )
}

fn ephemeral() -> Value {
    json!({"type": "ephemeral"})
}

fn hour() -> Value {
    json!({"type": "ephemeral", "ttl": "1h"})
}

/// Every marker of a request, at whatever depth, in the order in which the provider reads it.
fn markers(sent: &Value) -> Vec<Value> {
    fn walk(value: &Value, found: &mut Vec<Value>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    if key != "cache_control" {
                        walk(value, found);
                    }
                }
                found.extend(
                    members
                        .get("cache_control")
                        .filter(|v| !v.is_null())
                        .cloned(),
                );
            }
            Value::Array(elements) => elements.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for part in ["tools", "system", "messages"] {
        walk(&sent[part], &mut found);
    }
    found.extend(sent.get("cache_control").cloned());
    found
}

/// The messages of a request that have a marker, from 0.
fn marked_messages(sent: &Value) -> Vec<usize> {
    let messages = sent["messages"].as_array().unwrap().iter().enumerate();
    let is_marked = |message: &Value| !markers(&json!({"messages": [message]})).is_empty();
    let marked = messages.filter(|(_, message)| is_marked(message));
    marked.map(|(at, _)| at).collect()
}

#[test]
fn system_and_the_last_three_messages() {
    let sent = openrouter(&json!({"messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]}));
    let block = |text| json!([{"type": "text", "text": text, "cache_control": ephemeral()}]);
    assert_eq!(sent["messages"][0]["content"], block("You help."));
    assert_eq!(sent["messages"][1]["content"], "one");
    assert_eq!(sent["messages"][2]["content"], block("two"));
    assert_eq!(sent["messages"][3]["content"], block("three"));
    assert_eq!(sent["messages"][4]["content"], block("four"));
}

#[test]
fn in_a_compacted_window_one_marker_stands_before_the_last_summary() {
    let summary =
        |at: usize| json!({"type": "text", "text": format!("{SUMMARY_MARK}\nsummary {at}")});
    let turns = |first: Vec<Value>| {
        let turn = |at: usize| {
            let role = ["assistant", "user"][at % 2];
            json!({"role": role, "content": [{"type": "text", "text": format!("turn {at}")}]})
        };
        let messages = std::iter::once(json!({"role": "user", "content": first}));
        let messages: Vec<_> = messages.chain((0..4).map(turn)).collect();
        json!({"system": "You help.", "messages": messages})
    };
    // Among the blocks of one message: it stands on the one before.
    let said = json!({"type": "text", "text": "go on"});
    let sent = anthropic(&turns(vec![
        summary(1),
        summary(2),
        summary(3),
        said.clone(),
    ]));
    assert_eq!(marked_messages(&sent), [0, 3, 4]);
    let blocks = &sent["messages"][0]["content"];
    let places: Vec<_> = (0..4)
        .filter(|at| blocks[*at].get("cache_control").is_some())
        .collect();
    assert_eq!(places, [1]);
    // Nothing stands before a first summary but the system prompt, which has its own.
    let sent = anthropic(&turns(vec![summary(1), said.clone()]));
    assert_eq!(marked_messages(&sent), [2, 3, 4]);
    // A client that marked it has done that already.
    let mut first = vec![summary(1), summary(2)];
    first[0]["cache_control"] = ephemeral();
    let sent = anthropic(&turns(first));
    assert_eq!(markers(&sent).len(), 4);
    // Messages of their own, as other formats have them; and what somebody quotes is none.
    let own = |at| json!({"role": "user", "content": summary(at)["text"]});
    let quoted = json!({"role": "user", "content": format!("What is {SUMMARY_MARK}?")});
    let messages = json!([{"role": "system", "content": "You help."}, own(1), own(2), quoted,
        {"role": "assistant", "content": "A mark."}, {"role": "user", "content": "I see."}]);
    assert_eq!(
        marked_messages(&openrouter(&json!({"messages": messages}))),
        [0, 1, 4, 5]
    );
}

#[test]
fn a_list_is_marked_on_its_last_element_and_the_rest_keeps_its_bytes() {
    let request = "{\n \"messages\" : [ {\"role\":\"user\",\"content\":[ {\"type\":\"text\",\"text\":\"a\\u00e9\"},\n\
                   {\"text\": \"b\", \"type\": \"text\" } ], \"x\": 1.50 } ] }";
    let marked = mark(request, OpenAiChat, OpenRouter, Ttl::FiveMinutes).unwrap();
    let with_marker = request.replace(
        "\"type\": \"text\" }",
        "\"type\": \"text\" ,\"cache_control\":{\"type\":\"ephemeral\"}}",
    );
    assert_eq!(marked, with_marker);
}

#[test]
fn empty_content_and_tool_messages_follow_the_table() {
    let request = json!({"messages": [
        {"role": "user", "content": "older"},
        {"role": "user", "content": "old"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": "result"},
        {"role": "assistant", "content": ""},
    ]});
    let via_openrouter = openrouter(&request);
    let messages = &via_openrouter["messages"];
    assert_eq!(messages[4]["cache_control"], ephemeral());
    assert_eq!(messages[4]["content"], "", "no empty text block is made");
    assert_eq!(
        messages[3], request["messages"][3],
        "a tool message uses no slot there"
    );
    assert_eq!(messages[2]["cache_control"], ephemeral());
    assert_eq!(messages[1]["content"][0]["cache_control"], ephemeral());
    assert_eq!(messages[0], request["messages"][0]);

    let native = marked(
        &request.to_string(),
        OpenAiChat,
        Anthropic,
        Ttl::FiveMinutes,
    );
    assert_eq!(native["messages"][3]["cache_control"], ephemeral());
    assert_eq!(native["messages"][1], request["messages"][1]);
}

#[test]
fn anthropic_skips_what_cannot_carry_a_marker_and_spends_the_slot_further_back() {
    let sent = anthropic(&json!({
        "system": "",
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": {}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "c", "name": "ls", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "t"},
                {"type": "thinking", "thinking": "hm", "signature": "s"}]},
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "d"}]},
            {"role": "user", "content": [{"type": "text", "text": " \n"}]},
            {"role": "user", "content": ""},
            {"role": "user", "content": []},
        ],
    }));
    let messages = &sent["messages"];
    assert_eq!(messages[0]["content"][0]["cache_control"], ephemeral());
    assert_eq!(messages[1]["content"][1]["cache_control"], ephemeral());
    assert_eq!(messages[2]["content"][0]["cache_control"], ephemeral());
    assert_eq!(markers(&sent).len(), 3);
    assert_eq!(sent["system"], "", "no empty text block is made of it");
}

#[test]
fn the_system_prompt_of_anthropic_as_string_and_as_blocks() {
    let sent = anthropic(&json!({"system": "Be \"brief\".", "messages": []}));
    assert_eq!(
        sent["system"],
        json!([{"type": "text", "text": "Be \"brief\".", "cache_control": ephemeral()}])
    );
    let sent = anthropic(&json!({
        "messages": [],
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }));
    assert_eq!(sent["system"][0].get("cache_control"), None);
    assert_eq!(sent["system"][1]["cache_control"], ephemeral());
}

#[test]
fn several_leading_system_messages_are_one_prompt() {
    let sent = openrouter(&json!({"messages": [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "user", "content": "u"},
        {"role": "system", "content": "in the middle"},
    ]}));
    assert_eq!(sent["messages"][0]["content"], "a");
    assert_eq!(
        sent["messages"][1]["content"][0]["cache_control"],
        ephemeral()
    );
    assert_eq!(
        sent["messages"][2]["content"][0]["cache_control"],
        ephemeral()
    );
    assert_eq!(sent["messages"][3]["content"], "in the middle");
}

#[test]
fn the_clients_markers_stay_and_ours_fill_what_is_left() {
    let client = |text| json!({"type": "text", "text": text, "cache_control": ephemeral()});
    let request = json!({
        "tools": [{"name": "ls", "cache_control": ephemeral()}],
        "system": [client("s"), {"type": "text", "text": "more"}],
        "messages": [
            {"role": "user", "content": "1"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": [client("3")]},
            {"role": "assistant", "content": "4"},
        ],
    });
    let sent = anthropic(&request);
    assert_eq!(markers(&sent).len(), 4);
    assert_eq!(sent["tools"], request["tools"]);
    assert_eq!(sent["system"], request["system"]);
    assert_eq!(sent["messages"][2], request["messages"][2]);
    assert_eq!(
        sent["messages"][3]["content"][0]["cache_control"],
        ephemeral()
    );
}

#[test]
fn markers_inside_tool_results_and_functions_count_and_those_in_arguments_do_not() {
    let inside = json!([{"type": "tool_result", "tool_use_id": "c", "content":
        [{"type": "text", "text": "x", "cache_control": ephemeral()}]}]);
    let fake = json!([{"type": "tool_use", "id": "c", "name": "n",
        "input": {"cache_control": ephemeral()}}]);
    let request = json!({"system": "s", "messages": [
        {"role": "user", "content": inside}, {"role": "user", "content": inside},
        {"role": "user", "content": inside}, {"role": "assistant", "content": fake},
        {"role": "user", "content": "last"},
    ]});
    let sent = anthropic(&request);
    assert_eq!(markers(&sent).len(), markers(&request).len() + 1);
    assert!(sent["system"].is_array(), "the system prompt comes first");
    let tool = json!({"type": "function", "function": {"name": "n", "cache_control": ephemeral()}});
    let request = json!({"tools": [tool, tool, tool, tool], "messages": [
        {"role": "user", "content": "last"}]});
    assert_eq!(openrouter(&request), request);
}

#[test]
fn a_request_with_four_or_more_markers_of_its_own_is_left_alone() {
    let full = json!({"role": "user", "content": [
        {"type": "text", "text": "x", "cache_control": ephemeral()}]});
    let request = json!({"system": "s", "messages": [full, full, full, full, full]});
    let text = request.to_string();
    let marked = mark(&text, Shape::Anthropic, Anthropic, Ttl::OneHour).unwrap();
    assert_eq!(marked, text);
}

#[test]
fn automatic_caching_takes_a_slot_and_the_last_message() {
    let request = json!({"cache_control": ephemeral(), "system": "s", "messages": [
        {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"},
    ]});
    let sent = anthropic(&request);
    assert_eq!(sent["messages"][3], request["messages"][3]);
    assert_eq!(markers(&sent).len(), 4);
}

#[test]
fn a_key_that_is_there_already_is_not_written_twice() {
    let request = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": null}]},
        {"role": "assistant", "content": null, "cache_control": null},
    ]});
    assert_eq!(openrouter(&request), request);

    let user = &request["messages"][0];
    let request = json!({"system": "s", "messages": [user, user, user, user, user]});
    assert_eq!(
        markers(&anthropic(&request)),
        [ephemeral()],
        "a null is no marker"
    );
}

#[test]
fn longer_lifetimes_come_first_whatever_was_asked_for() {
    let with = |control: Value| json!([{"type": "text", "text": "x", "cache_control": control}]);
    let late_hour = json!({"system": "s", "messages": [
        {"role": "user", "content": "1"}, {"role": "user", "content": with(hour())},
        {"role": "user", "content": "3"},
    ]});
    let sent = anthropic(&late_hour);
    assert_eq!(markers(&sent), [hour(), hour(), hour(), ephemeral()]);

    let early_five = json!({"system": with(ephemeral()), "messages": [
        {"role": "user", "content": "1"}, {"role": "user", "content": "2"},
    ]});
    let sent = marked(
        &early_five.to_string(),
        Shape::Anthropic,
        Anthropic,
        Ttl::OneHour,
    );
    assert_eq!(markers(&sent), [ephemeral(), ephemeral(), ephemeral()]);
}

#[test]
fn text_that_only_looks_like_markers_is_text() {
    let text = r#"[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]"#;
    let more = format!("{text},\"cache_control\":{{\"type\":\"ephemeral\"}}}}]");
    let request = json!({"messages": [{"role": "user", "content": text},
        {"role": "user", "content": more}]});
    let sent = openrouter(&request);
    assert_eq!(sent["messages"][1]["content"][0]["text"], more.as_str());
}

#[test]
fn what_is_no_request_is_an_error_that_says_so() {
    for bad in [
        "", "nonsense", "{}", r#"{"messages":7}"#, r#"{"messages":[]"#,
    ] {
        let error = mark(bad, OpenAiChat, OpenRouter, Ttl::FiveMinutes).unwrap_err();
        assert!(matches!(error, MarkError::NotARequest(_)), "{bad}");
    }
    for bad in ["\"hi\"", "7", "null", r#"["user",null,null,null]"#] {
        let request = format!(r#"{{"messages":[{bad}]}}"#);
        let error = mark(&request, OpenAiChat, OpenRouter, Ttl::FiveMinutes).unwrap_err();
        assert!(error.to_string().contains("message 0"), "{error}");
    }
}

#[test]
fn deep_nesting_is_no_stack_overflow() {
    let deep = |levels: usize| {
        format!(
            r#"{{"messages":[{{"role":"user","content":{}"cache_control"{}}}]}}"#,
            r#"[{"type":"text","text":"x","content":"#.repeat(levels),
            "}]".repeat(levels)
        )
    };
    let text = deep(60);
    let marked = mark(&text, Shape::Anthropic, Anthropic, Ttl::FiveMinutes).unwrap();
    assert_eq!(without_markers(&marked, &text), text);
    assert_ne!(marked, text);
    // Deeper than any reader of requests accepts.
    let refused = mark(&deep(50_000), Shape::Anthropic, Anthropic, Ttl::FiveMinutes);
    assert!(matches!(refused, Err(MarkError::NotARequest(_))));
}

#[test]
fn who_takes_markers() {
    let line = |model: &str, provider, base_url, enabled, ttl| {
        decide(model, provider, base_url, enabled, ttl)
            .to_string()
            .replace("💾 Prompt caching: ", "")
    };
    let five = CacheTtl::FiveMinutes;
    let sonnet = "claude-sonnet-4-5";
    assert_eq!(
        line(sonnet, Some("anthropic"), None, true, CacheTtl::OneHour),
        "ENABLED (Claude via Anthropic, 1h TTL)"
    );
    assert_eq!(
        line(sonnet, Some("anthropic"), None, true, CacheTtl::Auto),
        "ENABLED (Claude via Anthropic, auto TTL)"
    );
    assert_eq!(
        line(
            "Anthropic/Claude-X",
            Some("custom"),
            Some("https://openrouter.ai/api/v1"),
            true,
            five
        ),
        "ENABLED (Claude via OpenRouter, 5m TTL)"
    );
    assert_eq!(
        line(
            sonnet,
            Some("anthropic"),
            Some("http://127.0.0.1:8080"),
            true,
            five
        ),
        "ENABLED (Claude via Anthropic, 5m TTL)"
    );
    assert_eq!(
        line(
            sonnet,
            None,
            Some("https://evil-anthropic.com/v1"),
            true,
            five
        ),
        "DISABLED (https://evil-anthropic.com/v1 is neither Anthropic nor OpenRouter, which take the markers)"
    );
    assert_eq!(
        line(sonnet, Some("bedrock"), None, true, five),
        "DISABLED (bedrock is neither Anthropic nor OpenRouter, which take the markers)"
    );
    assert_eq!(
        line("gpt-5", Some("openrouter"), None, true, five),
        "DISABLED (gpt-5 is not a Claude model)"
    );
    assert_eq!(
        line(sonnet, Some("anthropic"), None, false, five),
        "DISABLED (prompt_caching.enabled is false)"
    );
}

/// Whether every `1h` stands before every `5m`.
fn in_order(markers: &[Value]) -> bool {
    let long: Vec<bool> = markers.iter().map(|m| m["ttl"] == "1h").collect();
    !long.windows(2).any(|pair| !pair[0] && pair[1])
}

fn maybe_marker() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        8 => Just(None),
        1 => Just(Some(ephemeral())),
        1 => Just(Some(hour())),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z\"\\\\\t é]{0,12}",
        1 => Just(String::new()),
        1 => Just(r#"[{"type":"text","text":"x"#.to_owned()),
        1 => Just("\",\"cache_control\":{\"type\":\"ephemeral\"}}]".to_owned()),
    ]
}

fn block() -> impl Strategy<Value = Value> {
    let kinds = prop_oneof![
        Just("text"),
        Just("thinking"),
        Just("redacted_thinking"),
        Just("tool_use"),
        Just("tool_result")
    ];
    (kinds, text(), maybe_marker()).prop_map(|(kind, text, marker)| {
        let mut block = json!({"type": kind, "text": text});
        if let Some(marker) = marker {
            block["cache_control"] = marker;
        }
        block
    })
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::String),
        Just(Value::Null),
        prop::collection::vec(block(), 0..4).prop_map(Value::Array),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let roles = prop_oneof![
        Just("system"),
        Just("user"),
        Just("assistant"),
        Just("tool")
    ];
    (roles, content()).prop_map(|(role, content)| json!({"role": role, "content": content}))
}

fn request() -> impl Strategy<Value = Value> {
    (
        content(),
        prop::collection::vec(message(), 0..8),
        maybe_marker(),
    )
        .prop_map(|(system, messages, marker)| {
            let mut request = json!({"system": system, "messages": messages});
            if let Some(marker) = marker {
                request["cache_control"] = marker;
            }
            request
        })
}

/// The empty text blocks of a request, at whatever depth.
fn empty_texts(value: &Value) -> usize {
    let own =
        value["type"] == "text" && value["text"].as_str().is_some_and(|t| t.trim().is_empty());
    let below: usize = match value {
        Value::Array(elements) => elements.iter().map(empty_texts).sum(),
        Value::Object(members) => members.values().map(empty_texts).sum(),
        _ => 0,
    };
    usize::from(own) + below
}

proptest! {
    #[test]
    fn everything_else_keeps_its_bytes_and_the_rules_hold(
        request in request(),
        pretty: bool,
        native: bool,
        anthropic_shape: bool,
        hour: bool,
    ) {
        let text = if pretty {
            serde_json::to_string_pretty(&request).unwrap()
        } else {
            request.to_string()
        };
        let shape = if anthropic_shape { Shape::Anthropic } else { OpenAiChat };
        let provider = if native { Anthropic } else { OpenRouter };
        let ttl = if hour { Ttl::OneHour } else { Ttl::FiveMinutes };
        let sent = marked(&text, shape, provider, ttl);
        let (before, after) = (markers(&request), markers(&sent));
        prop_assert!(after.len() <= before.len().max(MAX_BREAKPOINTS));
        prop_assert!(empty_texts(&sent) == empty_texts(&request));
        // A system message in the middle of a chat may move, so its order is the provider's affair.
        if anthropic_shape && in_order(&before) {
            prop_assert!(in_order(&after), "{}", sent);
        }
    }

    #[test]
    fn no_input_panics(text in "\\PC{0,60}", shaped in "[\\[\\]{}\":,a-z\t]{0,40}") {
        for input in [text.clone(), shaped.clone(), format!("{{\"messages\":[{shaped}]}}")] {
            let _ = mark(&input, OpenAiChat, OpenRouter, Ttl::FiveMinutes);
        }
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn real_conversations_keep_their_bytes() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/data/tau2-bench/train_sft-v1-small.jsonl"
    );
    let lines = std::fs::read_to_string(path).unwrap();
    let mut conversations = 0;
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let sent = marked(line, OpenAiChat, OpenRouter, Ttl::OneHour);
        assert!((1..=MAX_BREAKPOINTS).contains(&markers(&sent).len()));
        conversations += 1;
    }
    assert!(conversations > 0);
}

/// A turn in which the model called a tool so often, as a chat and where its markers are.
fn marked_after_calls(calls: usize) -> Vec<usize> {
    let ids: Vec<String> = (0..calls).map(|at| format!("call_{at}")).collect();
    let function = json!({"name": "look", "arguments": "{}"});
    let made: Vec<Value> = (ids.iter())
        .map(|id| json!({"id": id, "type": "function", "function": function}))
        .collect();
    let mut messages = vec![
        json!({"role": "system", "content": "You help."}),
        json!({"role": "user", "content": "one"}),
        json!({"role": "assistant", "content": null, "tool_calls": made}),
    ];
    let result = |id: &String| json!({"role": "tool", "tool_call_id": id, "content": "seen"});
    messages.extend(ids.iter().map(result));
    let request = json!({"messages": messages});
    let sent = marked(
        &request.to_string(),
        OpenAiChat,
        Anthropic,
        Ttl::FiveMinutes,
    );
    marked_messages(&sent)
        .into_iter()
        .filter(|at| *at > 0)
        .collect()
}

#[test]
fn a_turn_longer_than_the_look_back_has_a_marker_where_the_request_before_ended() {
    // Calls and results are blocks: the third of the last markers reaches back over both.
    assert_eq!(marked_after_calls(5), [5, 6, 7]);
    assert_eq!(marked_after_calls(10), [10, 11, 12]);
    assert_eq!(marked_after_calls(11), [1, 12, 13]);
    assert_eq!(marked_after_calls(40), [1, 41, 42]);
}

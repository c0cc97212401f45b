//! The token count of every kind of item and part in the three published APIs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageId};
use contexture_formats::{PlanEntry, RenderPlan, read};
use serde_json::{Value, json};

use super::*;

/// Members whose strings a model does not read: types, signatures, and what is encrypted or not charged, such as a
/// citation's copy of the cited text.
const UNREAD: [&str; 22] = [
    "type", "role", "id", "status", "signature", "encrypted_content", "detail", "media_type",
    "fingerprint", "format", "execution", "namespace", "citations", "annotations", "toolset_name",
    "mime", "data", "result", "image_url", "file_data", "url", "file_url",
];

/// Whether a model does not read the string of a member. It reads no ids.
fn is_unread(key: &str) -> bool {
    UNREAD.contains(&key) || key.ends_with("_id")
}

/// A picture of 600 by 600 pixels, as large as an uncompressed one.
fn picture() -> String {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend([0, 0, 2, 88, 0, 0, 2, 88, 8, 6, 0, 0, 0]);
    bytes.extend((0_u32..1_000_000).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8));
    STANDARD.encode(bytes)
}

/// Every item of OpenAI's Responses that a request may hold, with all of its possible strings.
fn response_items() -> Vec<Value> {
    let p = "PICTURE";
    let url = "data:image/png;base64,PICTURE";
    json!([
        {"type": "message", "role": "user", "content": "said"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "said"}, {"type": "input_image", "detail": "auto", "image_url": url},
            {"type": "input_file", "filename": "a name", "file_data": "data:application/pdf;base64,JVBERi0="}]},
        {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "said", "annotations": []}, {"type": "refusal", "refusal": "no"}]},
        {"type": "file_search_call", "id": "i", "status": "completed", "queries": ["a query"],
            "results": [{"file_id": "f", "filename": "a name", "score": 0.5, "text": "found", "attributes": {"key": "value"}}]},
        {"type": "computer_call", "id": "i", "call_id": "c", "status": "completed", "action": {"type": "type", "text": "typed"},
            "pending_safety_checks": [{"id": "s", "code": "a code", "message": "a warning"}]},
        {"type": "computer_call", "id": "i", "call_id": "c", "status": "completed", "actions": [{"type": "keypress", "keys": ["a"]}]},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url},
            "acknowledged_safety_checks": [{"id": "s", "code": "a code", "message": "a warning"}]},
        {"type": "web_search_call", "id": "i", "status": "completed", "action": {"type": "search", "query": "a query", "queries": ["one"],
            "sources": [{"type": "url", "url": "https://example.com"}]}},
        {"type": "web_search_call", "id": "i", "status": "completed", "action": {"type": "find_in_page", "pattern": "a pattern", "url": "https://example.com"}},
        {"type": "function_call", "call_id": "c", "name": "a_name", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": url},
            {"type": "input_file", "filename": "a name", "file_data": "data:application/pdf;base64,JVBERi0="}]},
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "status": "completed", "arguments": {"goal": "found"}},
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "status": "completed",
            "tools": [{"type": "function", "name": "a_name", "description": "what for", "parameters": {"title": "a title"}}]},
        {"type": "reasoning", "id": "i", "summary": [{"type": "summary_text", "text": "thought"}], "content": [{"type": "reasoning_text", "text": "thought"}],
            "encrypted_content": "e"},
        {"type": "image_generation_call", "id": "i", "status": "completed", "result": p, "revised_prompt": "a prompt",
            "error": {"code": "a code", "message": "what failed"}},
        {"type": "code_interpreter_call", "id": "i", "status": "completed", "container_id": "c", "code": "print()",
            "outputs": [{"type": "logs", "logs": "written"}, {"type": "image", "url": url}]},
        {"type": "local_shell_call", "id": "i", "call_id": "c", "status": "completed",
            "action": {"type": "exec", "command": ["a"], "env": {"KEY": "value"}, "user": "u", "working_directory": "/w"}},
        {"type": "local_shell_call_output", "id": "c", "output": "done"},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["a"]}, "environment": {"type": "local", "skills": [{"name": "s", "description": "d", "path": "/p"}]}},
        {"type": "shell_call_output", "call_id": "c", "max_output_length": 1000, "output": [{"stdout": "written", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}},
            {"stdout": "", "stderr": "failed", "outcome": {"type": "timeout"}}]},
        {"type": "apply_patch_call", "call_id": "c", "status": "completed", "operation": {"type": "update_file", "diff": "+a", "path": "p"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "did not apply"},
        {"type": "mcp_list_tools", "id": "i", "server_label": "a label", "error": "failed",
            "tools": [{"name": "a_name", "description": "what for", "input_schema": {"title": "a title"}, "annotations": {"title": "a title"}}]},
        {"type": "mcp_approval_request", "id": "i", "server_label": "a label", "name": "a_name", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": true, "reason": "a reason"},
        {"type": "mcp_call", "id": "i", "server_label": "a label", "name": "a_name", "arguments": "{}", "output": "done",
            "error": {"type": "http_error", "code": 500, "message": "what failed"}},
        {"type": "mcp_call", "id": "i", "server_label": "a label", "name": "a_name", "arguments": "{}",
            "output": json!([{"type": "image", "data": p}]).to_string()},
        {"type": "custom_tool_call", "call_id": "c", "name": "a_name", "input": "free text"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}]},
        {"type": "program", "id": "i", "call_id": "c", "code": "await 1", "fingerprint": "f"},
        {"type": "program_output", "id": "i", "call_id": "c", "status": "completed", "result": "RESULT"},
        {"type": "an_item_of_tomorrow", "id": "i", "body": {"list": ["something"]}},
    ])
    .as_array()
    .unwrap()
    .clone()
}

/// Every block of Anthropic's messages, with the role of the messages that hold it.
fn blocks() -> Vec<(&'static str, Value)> {
    let p = "PICTURE";
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": p}});
    let text = json!({"type": "text", "text": "said"});
    let document = json!({"type": "document", "title": "a title", "context": "what for", "source": {"type": "text", "media_type": "text/plain", "data": "DOCUMENT"}});
    let parts = json!({"type": "document", "title": "a title", "source": {"type": "content", "content": [text, image]}});
    let search = json!({"type": "search_result", "source": "a source", "title": "a title", "content": [text]});
    let user = [
        text.clone(),
        image.clone(),
        document.clone(),
        parts.clone(),
        json!({"type": "document", "source": {"type": "content", "content": "said"}}),
        json!({"type": "document", "title": "a title", "context": "what for", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}),
        search.clone(),
        json!({"type": "tool_result", "tool_use_id": "t", "content": "done"}),
        json!({"type": "tool_result", "tool_use_id": "t", "content": [text, image, search, document, parts, {"type": "tool_reference", "tool_name": "a_name"},
            {"type": "browser_state", "tabs": [{"title": "a title", "active": true}]}, {"type": "a_part_of_tomorrow", "body": ["something"]}]}),
    ];
    let result =
        |kind: &str, content: Value| json!({"type": kind, "tool_use_id": "t", "content": content});
    let assistant = [
        text.clone(),
        json!({"type": "thinking", "thinking": "thought", "signature": "s"}),
        json!({"type": "tool_use", "id": "t", "name": "a_name", "input": {"key": "value"}}),
        json!({"type": "server_tool_use", "id": "t", "name": "web_search", "input": {"query": "a query"}}),
        result(
            "web_search_tool_result",
            json!([{"type": "web_search_result", "title": "a title", "url": "u", "encrypted_content": "e", "page_age": "an age"}]),
        ),
        result(
            "web_fetch_tool_result",
            json!({"type": "web_fetch_result", "url": "u", "retrieved_at": "today", "content": parts}),
        ),
        result(
            "code_execution_tool_result",
            json!({"type": "code_execution_result", "stdout": "written", "stderr": "failed", "return_code": 0, "content": []}),
        ),
        result(
            "bash_code_execution_tool_result",
            json!({"type": "bash_code_execution_result", "stdout": "written", "stderr": "failed", "return_code": 0, "content": []}),
        ),
        result(
            "text_editor_code_execution_tool_result",
            json!({"type": "text_editor_code_execution_view_result", "content": "a file", "file_type": "text"}),
        ),
        result(
            "tool_search_tool_result",
            json!({"type": "tool_search_tool_search_result", "tool_references": [{"type": "tool_reference", "tool_name": "a_name"}]}),
        ),
        json!({"type": "mcp_tool_use", "id": "t", "name": "a_name", "server_name": "a server", "input": {"key": "value"}}),
        result("mcp_tool_result", json!([text])),
        json!({"type": "a_block_of_tomorrow", "body": {"list": ["something"]}}),
    ];
    let user = user.into_iter().map(|block| ("user", block));
    user.chain(assistant.into_iter().map(|block| ("assistant", block)))
        .collect()
}

fn chat_messages() -> Vec<Value> {
    let parts = json!([{"type": "text", "text": "said"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,PICTURE", "detail": "auto"}},
        {"type": "file", "file": {"filename": "a name", "file_data": "data:application/pdf;base64,JVBERi0="}}]);
    json!([
        {"role": "developer", "content": "said", "name": "somebody"},
        {"role": "user", "content": "said", "name": "somebody"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "said", "refusal": "no"},
        {"role": "assistant", "content": [{"type": "text", "text": "said"}, {"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": null, "reasoning_content": "thought"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "a_name", "arguments": "{}"}},
            {"id": "d", "type": "custom", "custom": {"name": "a_name", "input": "free text"}}]},
        {"role": "assistant", "content": null, "function_call": {"name": "a_name", "arguments": "{}"}},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "done"}, {"type": "a_part_of_tomorrow", "body": "something"}]},
    ])
    .as_array()
    .unwrap()
    .clone()
}

/// Every kind of item and part, each in a document between two user messages.
fn documents() -> Vec<(String, Value)> {
    let said = |text: &str| json!({"role": "user", "content": text});
    let name = |value: &Value| value.to_string().chars().take(120).collect::<String>();
    let mut all = Vec::new();
    for item in response_items() {
        let answer = json!({"type": "message", "role": "assistant", "content": "ok"});
        all.push((
            name(&item),
            json!({"model": "gpt-5", "input": [said("a"), item, answer, said("b")]}),
        ));
    }
    for (role, block) in blocks() {
        let message = json!({"role": role, "content": [block, {"type": "text", "text": "and"}]});
        let around = |message| json!({"model": "claude-sonnet-4-5", "system": "s", "messages": [said("a"), message, said("b")]});
        all.push((name(&block), around(message)));
    }
    for message in chat_messages() {
        all.push((
            name(&message),
            json!({"model": "gpt-5", "messages": [said("a"), message, said("b")]}),
        ));
    }
    all
}

fn tokens(document: &Value) -> u64 {
    let text = document.to_string();
    let conversation =
        &read(text.as_str(), None).unwrap_or_else(|error| panic!("{error}: {text:.300}"))[0];
    let counter = TokenCounter::for_model(conversation.model().unwrap());
    let messages = conversation.messages().iter();
    messages
        .map(|message| message_tokens(&counter, conversation, message))
        .sum()
}

/// The positions in a document of the strings that a model reads.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let key = path
                .rsplit('/')
                .find(|key| key.parse::<usize>().is_err())
                .unwrap_or_default();
            let is_text = matches!(text.as_str(), "DOCUMENT" | "RESULT");
            if is_text || (!is_unread(key) && !text.contains("PICTURE")) {
                found.push(path.to_owned());
            }
        }
        Value::Array(list) => {
            let each = list.iter().enumerate();
            each.for_each(|(at, value)| places(value, &format!("{path}/{at}"), found));
        }
        Value::Object(map) => {
            for (key, value) in map {
                // The cited text is part of the text that it is cited from.
                if !is_unread(key) || value.is_string() {
                    places(value, &format!("{path}/{key}"), found);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_text_that_a_model_reads_counts_by_its_length() {
    let words = |count: usize| (0..count).map(|at| format!("row{at} ")).collect::<String>();
    let counter = TokenCounter::for_model("gpt-5");
    let (short, long) = (words(100), words(1_100));
    let more = counter.count_text(&long) - counter.count_text(&short);
    for (name, document) in documents() {
        let list = if document["input"].is_null() {
            "/messages/1"
        } else {
            "/input/1"
        };
        let mut found = Vec::new();
        places(document.pointer(list).unwrap(), list, &mut found);
        for place in found {
            let with = |text: &str| {
                let mut document = document.clone();
                *document.pointer_mut(&place).unwrap() = json!(text);
                tokens(&document)
            };
            let grown = with(&long) - with(&short);
            assert!(
                grown * 10 > more * 8 && grown < more * 2,
                "{place} of {name}: {grown} for {more} tokens"
            );
        }
    }
}

#[test]
fn a_picture_costs_its_pixels_wherever_it_stands() {
    let picture = picture();
    let mut seen = 0;
    for (name, document) in documents() {
        let text = document.to_string();
        let pictures = text.matches("PICTURE").count();
        if pictures == 0 {
            continue;
        }
        seen += 1;
        for slash in ["/", "\\/"] {
            let with: Value = serde_json::from_str(&text.replace("PICTURE", &picture)).unwrap();
            let text = with.to_string().replace('/', slash);
            let conversation = &read(text.as_str(), None).unwrap()[0];
            let counter = TokenCounter::for_model(conversation.model().unwrap());
            let messages = conversation.messages().iter();
            let media: usize = messages.clone().map(|message| message.media.len()).sum();
            let cost: u64 = messages
                .map(|message| message_tokens(&counter, conversation, message))
                .sum();
            assert!(media >= pictures, "{media} of {pictures} in {name}");
            let least = 400 * pictures as u64;
            assert!(
                (least..least * 4 + 3_000).contains(&cost),
                "{cost} for {pictures} in {name}"
            );
        }
    }
    assert!(seen > 8);
}

/// A result keeps the required shape of its kind when its text is replaced.
#[test]
fn a_shortened_result_keeps_the_shape_of_its_kind() {
    for item in response_items() {
        let kind = item["type"].as_str().unwrap().to_owned();
        let is_result = kind.ends_with("_output") && kind != "program_output";
        if !is_result {
            continue;
        }
        let document = json!({"model": "gpt-5", "input": [{"role": "user", "content": "a"}, item, {"role": "user", "content": "b"}]});
        let text = document.to_string();
        let conversation = &read(text.as_str(), None).unwrap()[0];
        let entries = vec![
            PlanEntry::Message(0),
            PlanEntry::Replaced {
                index: 1,
                text: Some(CLEARED_TOOL_OUTPUT),
                arguments: &[],
            },
            PlanEntry::Message(2),
        ];
        let plan = RenderPlan {
            entries,
            system_note: None,
            own_summaries: false,
        };
        let written: Value = serde_json::from_str(&conversation.render(&plan).unwrap()).unwrap();
        let (new, old) = (&written["input"][1], &document["input"][1]);
        for (key, value) in old.as_object().unwrap() {
            match key.as_str() {
                "output" | "tools" => {}
                _ => assert_eq!(&new[key], value, "{kind}"),
            }
        }
        match kind.as_str() {
            "computer_call_output" => {
                assert_eq!(new["output"]["type"], "computer_screenshot");
                let url = new["output"]["image_url"].as_str().unwrap();
                assert_eq!(contexture_formats::tokens::image_size(url), Some((1, 1)));
            }
            "tool_search_output" => assert_eq!(new["tools"], json!([])),
            "shell_call_output" => assert_eq!(
                new["output"],
                json!([{"stdout": CLEARED_TOOL_OUTPUT, "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}])
            ),
            _ => assert_eq!(new["output"], CLEARED_TOOL_OUTPUT, "{kind}"),
        }
        let again = written.to_string();
        let again = &read(again.as_str(), None).unwrap()[0];
        let view = again.messages()[1].view(MessageId(2), again.raw(1), &[]);
        if !matches!(kind.as_str(), "computer_call_output" | "tool_search_output") {
            assert_eq!(view.text(), CLEARED_TOOL_OUTPUT, "{kind}");
        }
    }
}

/// Tools count the same wherever a request holds them.
#[test]
fn tools_in_an_item_count_as_tools() {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let tool = json!({"type": "function", "name": "run", "description": "Runs. ".repeat(50), "parameters": parameters});
    let tools = json!([{"type": "namespace", "name": "functions", "tools": [tool]}, tool]);
    let user = json!({"role": "user", "content": "Hello"});
    let counter = TokenCounter::for_model("gpt-4o");
    let fixed = |body: serde_json::Value| {
        let text = body.to_string();
        let wire = formats::split(&text, Some(Format::OpenAiResponses)).unwrap();
        fixed_tokens(&counter, &wire.preamble())
    };
    let own = fixed(json!({"tools": tools, "input": [user]}));
    assert!(own > 200, "{own}");
    for role in [json!({"role": "developer"}), json!({})] {
        let mut item = json!({"type": "additional_tools", "id": "at_1", "tools": tools});
        item.as_object_mut()
            .unwrap()
            .extend(role.as_object().unwrap().clone());
        assert_eq!(fixed(json!({"input": [item, user]})), own);
    }
    // An unknown item counts as its JSON.
    let unknown = json!({"type": "workspace_state", "roots": ["/src".repeat(100)]});
    assert!(fixed(json!({"input": [unknown, user]})) >= counter.count_text(&unknown.to_string()));
}

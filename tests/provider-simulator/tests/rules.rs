//! Each rule, by a request that breaks it alone; and that what breaks none is answered.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::collections::BTreeSet;

use contexture_provider_simulator::{Answer, Options, Simulator, all_rules, encrypted, signature};
use serde_json::{Value, json};
use support::*;

/// A conversation of the Messages API with all that it may hold.
fn messages() -> Value {
    json!({
        "model": "claude-opus-4-5",
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "system": [{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [anthropic_tool("bash"), anthropic_tool("look")],
        "messages": [
            {"role": "user", "content": "Look at both."},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Both.", "signature": signature("Both.")},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"command": "."}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "b"}]},
                {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}},
            ]},
        ],
    })
}

fn chat() -> Value {
    json!({
        "model": "gpt-5.2",
        "tools": [chat_tool("bash"), chat_tool("look")],
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": [{"type": "text", "text": "Look at both."}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
                {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_2", "content": "b"},
            {"role": "tool", "tool_call_id": "call_1", "content": "a"},
        ],
    })
}

fn responses() -> Value {
    json!({
        "model": "gpt-5.2",
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "tools": [responses_tool("bash"), {"type": "web_search"}],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You help."}]},
            {"role": "user", "content": "Look at both."},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted("Both.")},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash", "arguments": "{}"},
            {"type": "function_call", "call_id": "call_2", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "b"}]},
            {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "Both."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
        ],
    })
}

fn gemini() -> Value {
    let call = |id: &str, name: &str| json!({"functionCall": {"id": id, "name": name, "args": {"command": "ls"}}});
    let answer = |id: &str, name: &str| json!({"functionResponse": {"id": id, "name": name, "response": {"output": "a"}}});
    json!({
        "systemInstruction": {"parts": [{"text": "You help."}]},
        "tools": gemini_tools(&["bash", "look"]),
        "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
        "contents": [
            {"role": "user", "parts": [{"text": "Look at both."}]},
            {"role": "model", "parts": [
                {"text": "Both.", "thought": true}, {"text": "I look."}, call("1", "bash"), call("2", "look"),
            ]},
            {"role": "user", "parts": [answer("2", "look"), answer("1", "bash"), {"text": "And?"}]},
        ],
    })
}

/// The rule, what the refusal says, the way, and what makes the right request wrong.
type Case = (&'static str, &'static str, &'static str, fn(&mut Value));

fn at<'a>(body: &'a mut Value, pointer: &str) -> &'a mut Value {
    body.pointer_mut(pointer).unwrap()
}

fn list<'a>(body: &'a mut Value, pointer: &str) -> &'a mut Vec<Value> {
    at(body, pointer).as_array_mut().unwrap()
}

const CASES: &[Case] = &[
    ("server-unanswered", "srvtoolu_1", MESSAGES, |body| {
        list(body, "/messages/1/content").insert(2, search());
    }),
    (
        "server-result-without-call",
        "srvtoolu_1",
        MESSAGES,
        |body| {
            list(body, "/messages/1/content").insert(2, found());
        },
    ),
    // Google
    (
        "gemini-fields",
        "Unknown name \"_contexture\"",
        GEMINI,
        |body| body["_contexture"] = json!(1),
    ),
    ("gemini-fields", "at 'contents[0]'", GEMINI, |body| {
        at(body, "/contents/0")["id"] = json!("x")
    }),
    (
        "gemini-fields",
        "at 'contents[0].parts[0]'",
        GEMINI,
        |body| at(body, "/contents/0/parts/0")["cache_control"] = json!({"type": "ephemeral"}),
    ),
    (
        "gemini-fields",
        "Unknown name \"additionalProperties\"",
        GEMINI,
        |body| {
            at(body, "/tools/0/functionDeclarations/0/parameters")["additionalProperties"] =
                json!(false)
        },
    ),
    (
        "gemini-contents",
        "contents is not specified",
        GEMINI,
        |body| body["contents"] = json!([]),
    ),
    (
        "gemini-cached",
        "CachedContent can not be used",
        GEMINI,
        |body| body["cachedContent"] = json!("cachedContents/1"),
    ),
    ("gemini-role", "valid role", GEMINI, |body| {
        at(body, "/contents/0")["role"] = json!("assistant")
    }),
    ("gemini-role", "function call turn", GEMINI, |body| {
        at(body, "/contents/1")["role"] = json!("user")
    }),
    ("gemini-role", "function response turn", GEMINI, |body| {
        let parts = list(body, "/contents/2/parts").split_off(2);
        let answers = list(body, "/contents/2/parts").clone();
        list(body, "/contents").insert(2, json!({"role": "user", "parts": parts}));
        at(body, "/contents/3")["role"] = json!("model");
        at(body, "/contents/3")["parts"] = json!(answers);
        list(body, "/contents/1/parts").truncate(2);
    }),
    ("gemini-parts", "must not be empty", GEMINI, |body| {
        at(body, "/contents/0")["parts"] = json!([])
    }),
    ("gemini-parts", "one initialized field", GEMINI, |body| {
        list(body, "/contents/0/parts").push(json!({"thought": true}))
    }),
    ("gemini-parts", "empty text", GEMINI, |body| {
        at(body, "/contents/0/parts/0")["text"] = json!("")
    }),
    ("gemini-parts", "Name cannot be empty", GEMINI, |body| {
        at(body, "/contents/1/parts/2/functionCall")["name"] = json!("")
    }),
    ("gemini-parts", "google.protobuf.Struct", GEMINI, |body| {
        at(body, "/contents/2/parts/0/functionResponse")["response"] = json!("a")
    }),
    ("gemini-tools", "Invalid function name", GEMINI, |body| {
        at(body, "/tools/0/functionDeclarations/0")["name"] = json!("1 tool")
    }),
    (
        "gemini-tools",
        "Duplicate function declaration found: bash",
        GEMINI,
        |body| {
            let twice = gemini_tools(&["bash"])[0].clone();
            list(body, "/tools").push(twice);
        },
    ),
    ("gemini-tools", "mutually exclusive", GEMINI, |body| {
        at(body, "/tools/0/functionDeclarations/0")["parametersJsonSchema"] =
            json!({"type": "object"})
    }),
    (
        "gemini-tools",
        "no JSON schema",
        GEMINI,
        |body| body["tools"] = json!([{"functionDeclarations": [{"name": "a", "parametersJsonSchema": {"type": "thing"}}]}]),
    ),
    ("gemini-turns", "alternate", GEMINI, |body| {
        body["contents"] = json!([
            {"role": "model", "parts": [{"text": "Hello."}]}, {"role": "user", "parts": [{"text": "Hello."}]},
        ]);
    }),
    (
        "gemini-turns",
        "immediately after a user turn",
        GEMINI,
        |body| {
            list(body, "/contents")
                .insert(1, json!({"role": "model", "parts": [{"text": "Now."}]}));
        },
    ),
    ("gemini-turns", "end with a user role", GEMINI, |body| {
        list(body, "/contents").push(json!({"role": "model", "parts": [{"text": "Both."}]}));
    }),
    (
        "gemini-responses",
        "number of function response parts",
        GEMINI,
        |body| {
            list(body, "/contents/2/parts").remove(0);
        },
    ),
    (
        "gemini-responses",
        "number of function response parts",
        GEMINI,
        |body| {
            let more = list(body, "/contents/2/parts")[0].clone();
            list(body, "/contents/2/parts").push(more);
        },
    ),
    (
        "gemini-responses",
        "immediately after a function call turn",
        GEMINI,
        |body| {
            list(body, "/contents/1/parts").truncate(2);
        },
    ),
    (
        "gemini-window",
        "exceeds the maximum number of tokens allowed (100000)",
        GEMINI,
        |body| {
            at(body, "/contents/0/parts/0")["text"] = json!("long ".repeat(200_000));
        },
    ),
    (
        "gemini-responses",
        "belongs to the function response",
        GEMINI,
        |body| at(body, "/contents/2/parts/0/functionResponse")["name"] = json!("bash"),
    ),
    // Anthropic
    ("fields", "Extra inputs", MESSAGES, |body| {
        body["_contexture"] = json!(1)
    }),
    ("fields", "Extra inputs", MESSAGES, |body| {
        at(body, "/messages/0")["id"] = json!("x")
    }),
    ("fields", "model: Field required", MESSAGES, |body| {
        body["model"] = json!(null)
    }),
    ("max-tokens", "max_tokens", MESSAGES, |body| {
        body["max_tokens"] = json!(null)
    }),
    ("no-messages", "at least one", MESSAGES, |body| {
        body["messages"] = json!([])
    }),
    ("role", "Unexpected role \"tool\"", MESSAGES, |body| {
        at(body, "/messages/0")["role"] = json!("tool")
    }),
    ("first-user", "first message", MESSAGES, |body| {
        body["messages"] = json!([{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Hello"}]);
    }),
    (
        "system-place",
        "not supported on this model",
        MESSAGES,
        |body| {
            list(body, "/messages").insert(1, json!({"role": "system", "content": "Be brief."}));
        },
    ),
    (
        "system-place",
        "immediately after a user turn",
        MESSAGES,
        |body| {
            body["model"] = json!("claude-opus-4-8");
            body["messages"] = json!([
                {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello"},
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
            ]);
        },
    ),
    ("empty-content", "non-empty content", MESSAGES, |body| {
        at(body, "/messages/0")["content"] = json!("")
    }),
    ("empty-content", "non-empty content", MESSAGES, |body| {
        at(body, "/messages/0")["content"] = json!([])
    }),
    ("empty-text", "must be non-empty", MESSAGES, |body| {
        at(body, "/messages/1/content/1")["text"] = json!("")
    }),
    ("empty-text", "non-whitespace", MESSAGES, |body| {
        at(body, "/messages/1/content/1")["text"] = json!(" \n")
    }),
    ("empty-text", "non-empty", MESSAGES, |body| {
        at(body, "/messages/2/content/1/content/0")["text"] = json!("")
    }),
    ("trailing-space", "trailing whitespace", MESSAGES, |body| {
        body["thinking"] = json!(null);
        list(body, "/messages").push(json!({"role": "assistant", "content": "It is "}));
    }),
    ("prefill", "prefill", MESSAGES, |body| {
        body["model"] = json!("claude-opus-4-6");
        body["thinking"] = json!(null);
        list(body, "/messages").push(json!({"role": "assistant", "content": "It is"}));
    }),
    ("block", "not allowed for role 'user'", MESSAGES, |body| {
        at(body, "/messages/0")["content"] =
            json!([{"type": "tool_use", "id": "a", "name": "bash", "input": {}}]);
    }),
    ("block", "valid dictionary", MESSAGES, |body| {
        at(body, "/messages/1/content/2")["input"] = json!("ls")
    }),
    ("call-id", "tool_use.id", MESSAGES, |body| {
        at(body, "/messages/1/content/2")["id"] = json!("a b");
        at(body, "/messages/2/content/0")["tool_use_id"] = json!("a b");
    }),
    ("call-id-twice", "must be unique", MESSAGES, |body| {
        let again = body["messages"].clone();
        list(body, "/messages").extend(again.as_array().unwrap()[1..].to_vec());
    }),
    (
        "call-unanswered",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_2",
        MESSAGES,
        |body| {
            list(body, "/messages/2/content").remove(1);
        },
    ),
    ("call-unanswered", "toolu_1, toolu_2", MESSAGES, |body| {
        list(body, "/messages").pop();
    }),
    ("call-unanswered", "toolu_1, toolu_2", MESSAGES, |body| {
        list(body, "/messages").insert(2, json!({"role": "user", "content": "Wait."}));
        list(body, "/messages").insert(3, json!({"role": "assistant", "content": "I wait."}));
    }),
    (
        "result-without-call",
        "unexpected `tool_use_id`",
        MESSAGES,
        |body| {
            at(body, "/messages/2/content/0")["tool_use_id"] = json!("toolu_0");
        },
    ),
    ("result-twice", "single result", MESSAGES, |body| {
        let again = at(body, "/messages/2/content/0").clone();
        list(body, "/messages/2/content").insert(1, again);
    }),
    ("results-first", "come first", MESSAGES, |body| {
        list(body, "/messages/2/content").swap(0, 2)
    }),
    // Messages of one role are one turn.
    ("results-first", "come first", MESSAGES, |body| {
        list(body, "/messages").insert(2, json!({"role": "user", "content": "Wait."}));
    }),
    (
        "calls-last",
        "immediately after: toolu_1",
        MESSAGES,
        |body| list(body, "/messages/1/content").swap(1, 2),
    ),
    (
        "thinking-signature",
        "Invalid `signature`",
        MESSAGES,
        |body| {
            at(body, "/messages/1/content/0")["thinking"] = json!("Neither.");
        },
    ),
    (
        "thinking-signature",
        "Invalid `signature`",
        MESSAGES,
        |body| {
            *at(body, "/messages/1/content/0") =
                json!({"type": "redacted_thinking", "data": "gAAAAAB00=="});
        },
    ),
    ("thinking-first", "found `text`", MESSAGES, |body| {
        list(body, "/messages/1/content").remove(0);
    }),
    ("thinking-options", "budget_tokens", MESSAGES, |body| {
        body["thinking"]["budget_tokens"] = json!(500)
    }),
    ("thinking-options", "forces tool use", MESSAGES, |body| {
        body["tool_choice"] = json!({"type": "any"})
    }),
    ("thinking-options", "temperature", MESSAGES, |body| {
        body["temperature"] = json!(0)
    }),
    ("cache-count", "Found 5", MESSAGES, |body| {
        body["cache_control"] = json!({"type": "ephemeral"});
        let marker = json!({"type": "ephemeral", "ttl": "1h"});
        for tool in 0..2 {
            at(body, &format!("/tools/{tool}"))["cache_control"] = marker.clone();
        }
    }),
    ("cache-place", "thinking.cache_control", MESSAGES, |body| {
        at(body, "/messages/1/content/0")["cache_control"] = json!({"type": "ephemeral"});
    }),
    ("cache-place", "empty text", MESSAGES, |body| {
        at(body, "/messages/2/content/2")["text"] = json!("")
    }),
    ("cache-place", "defer_loading", MESSAGES, |body| {
        at(body, "/tools/0")["defer_loading"] = json!(true);
        at(body, "/tools/0")["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
    }),
    ("cache-ttl", "'5m' or '1h'", MESSAGES, |body| {
        at(body, "/system/0/cache_control")["ttl"] = json!("2h")
    }),
    ("cache-ttl", "ephemeral", MESSAGES, |body| {
        at(body, "/system/0/cache_control")["type"] = json!("lasting")
    }),
    ("cache-order", "must not come after", MESSAGES, |body| {
        at(body, "/tools/1")["cache_control"] = json!({"type": "ephemeral"});
    }),
    ("window", "prompt is too long: ", MESSAGES, |body| {
        at(body, "/messages/0")["content"] = json!("long ".repeat(200_000));
    }),
    ("tool-name", "tools.0.custom.name", MESSAGES, |body| {
        at(body, "/tools/0")["name"] = json!("a.b")
    }),
    ("tool-twice", "unique", MESSAGES, |body| {
        at(body, "/tools/1")["name"] = json!("bash")
    }),
    ("tool-schema", "Field required", MESSAGES, |body| {
        at(body, "/tools/0")["input_schema"] = json!(null)
    }),
    ("tool-schema", "'object'", MESSAGES, |body| {
        at(body, "/tools/0/input_schema")["type"] = json!("string")
    }),
    ("tool-schema", "draft 2020-12", MESSAGES, |body| {
        at(body, "/tools/0/input_schema/properties/command")["type"] = json!("text");
    }),
    ("tool-schema", "top level", MESSAGES, |body| {
        at(body, "/tools/0/input_schema")["anyOf"] = json!([{}])
    }),
    ("tool-choice", "while providing tools", MESSAGES, |body| {
        (body["tools"], body["tool_choice"]) = (json!([]), json!({"type": "auto"}));
    }),
    // Chat completions
    (
        "chat-fields",
        "Unknown parameter: 'messages[1]._id'",
        CHAT,
        |body| at(body, "/messages/1")["_id"] = json!(1),
    ),
    ("chat-fields", "cache_control", CHAT, |body| {
        at(body, "/messages/1/content/0")["cache_control"] = json!({"type": "ephemeral"});
    }),
    ("chat-fields", "stream_options", CHAT, |body| {
        body["stream_options"] = json!({"include_usage": true})
    }),
    ("chat-fields", "empty array", CHAT, |body| {
        body["messages"] = json!([])
    }),
    ("chat-role", "Invalid value: 'model'", CHAT, |body| {
        at(body, "/messages/1")["role"] = json!("model")
    }),
    ("chat-content", "got null", CHAT, |body| {
        at(body, "/messages/1")["content"] = json!(null)
    }),
    ("chat-content", "empty array", CHAT, |body| {
        at(body, "/messages/1")["content"] = json!([])
    }),
    ("chat-content", "Invalid value: 'image_url'", CHAT, |body| {
        at(body, "/messages/3")["content"] =
            json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
    }),
    ("chat-calls", "empty array", CHAT, |body| {
        list(body, "/messages").truncate(3);
        (
            at(body, "/messages/2")["content"],
            at(body, "/messages/2")["tool_calls"],
        ) = (json!("No."), json!([]));
    }),
    ("chat-calls", "expected a string", CHAT, |body| {
        at(body, "/messages/2/tool_calls/0/function")["arguments"] = json!({});
    }),
    (
        "chat-unanswered",
        "did not have response messages: call_1",
        CHAT,
        |body| {
            list(body, "/messages").pop();
        },
    ),
    ("chat-unanswered", "call_1", CHAT, |body| {
        list(body, "/messages").insert(4, json!({"role": "user", "content": "Wait."}));
    }),
    (
        "chat-result",
        "must be a response to a preceeding message",
        CHAT,
        |body| {
            list(body, "/messages").remove(2);
        },
    ),
    ("chat-result", "must be a response", CHAT, |body| {
        let again = at(body, "/messages/4").clone();
        list(body, "/messages").push(again);
    }),
    ("chat-id-twice", "Duplicate value", CHAT, |body| {
        let again = list(body, "/messages")[2..].to_vec();
        list(body, "/messages").extend(again);
    }),
    ("openai-tools", "empty array", CHAT, |body| {
        body["tools"] = json!([])
    }),
    ("openai-tools", "maximum length 128", CHAT, |body| {
        body["tools"] = (0..129).map(|at| chat_tool(&format!("bash{at}"))).collect();
    }),
    ("openai-window", "maximum context length", CHAT, |body| {
        at(body, "/messages/0")["content"] = json!("long ".repeat(200_000));
    }),
    ("tool-name", "tools[0].function.name", CHAT, |body| {
        at(body, "/tools/0/function")["name"] = json!("a b")
    }),
    ("tool-name", "at most 64", CHAT, |body| {
        at(body, "/tools/0/function")["name"] = json!("a".repeat(65))
    }),
    ("tool-twice", "unique", CHAT, |body| {
        at(body, "/tools/1/function")["name"] = json!("bash")
    }),
    (
        "tool-schema",
        "Invalid schema for function 'bash'",
        CHAT,
        |body| {
            at(body, "/tools/0/function/parameters")["required"] = json!("command");
        },
    ),
    ("tool-schema", "additionalProperties", CHAT, |body| {
        at(body, "/tools/0/function")["strict"] = json!(true)
    }),
    ("tool-choice", "only allowed when 'tools'", CHAT, |body| {
        (body["tools"], body["tool_choice"]) = (json!(null), json!("auto"));
    }),
    // Responses
    (
        "item",
        "Missing required parameter: 'input[3].arguments'",
        RESPONSES,
        |body| {
            at(body, "/input/3")["arguments"] = json!({});
        },
    ),
    ("item", "'input[1].type'", RESPONSES, |body| {
        *at(body, "/input/1") = json!({"content": "Hello"})
    }),
    ("item-id", "begins with 'fc'", RESPONSES, |body| {
        at(body, "/input/3")["id"] = json!("call_1")
    }),
    ("item-id", "maximum length 64", RESPONSES, |body| {
        let long = "c".repeat(65);
        (
            at(body, "/input/3")["call_id"],
            at(body, "/input/5")["call_id"],
        ) = (json!(long), json!(long));
    }),
    (
        "item-twice",
        "Duplicate item found with id rs_1",
        RESPONSES,
        |body| {
            let again = at(body, "/input/2").clone();
            list(body, "/input").insert(4, again);
        },
    ),
    (
        "item-twice",
        "Duplicate function call output",
        RESPONSES,
        |body| {
            let again = at(body, "/input/5").clone();
            list(body, "/input").push(again);
        },
    ),
    (
        "item-content",
        "Invalid value: 'output_text'",
        RESPONSES,
        |body| {
            at(body, "/input/8/content/0")["type"] = json!("output_text");
        },
    ),
    (
        "item-content",
        "Invalid value: 'input_text'",
        RESPONSES,
        |body| {
            at(body, "/input/7/content/0")["type"] = json!("input_text");
        },
    ),
    (
        "output-without-call",
        "No tool call found for function call output with call_id call_1",
        RESPONSES,
        |body| {
            list(body, "/input").remove(3);
        },
    ),
    ("output-without-call", "call_1", RESPONSES, |body| {
        list(body, "/input").swap(3, 5)
    }),
    (
        "call-without-output",
        "No tool output found for function call call_2",
        RESPONSES,
        |body| {
            list(body, "/input").remove(6);
        },
    ),
    (
        "reasoning-followed",
        "without its required following item",
        RESPONSES,
        |body| {
            let reasoning = list(body, "/input").remove(2);
            list(body, "/input").push(reasoning);
        },
    ),
    (
        "reasoning-intact",
        "could not be verified",
        RESPONSES,
        |body| {
            let other = encrypted("Neither.").replace('7', "8");
            at(body, "/input/2")["encrypted_content"] = json!(other);
        },
    ),
    ("reasoning-intact", "not persisted", RESPONSES, |body| {
        at(body, "/input/2")["encrypted_content"] = json!(null)
    }),
    (
        "output-without-call",
        "No approval request found",
        RESPONSES,
        |body| {
            let answer = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true});
            list(body, "/input").push(answer);
        },
    ),
    (
        "item-reference",
        "Item with id 'msg_0' not found",
        RESPONSES,
        |body| {
            list(body, "/input").push(json!({"type": "item_reference", "id": "msg_0"}));
        },
    ),
    ("previous-response", "not found", RESPONSES, |body| {
        body["previous_response_id"] = json!("resp_0")
    }),
    (
        "openai-window",
        "exceeds the context window",
        RESPONSES,
        |body| {
            at(body, "/input/1")["content"] = json!("long ".repeat(200_000));
        },
    ),
    ("tool-choice", "not found", RESPONSES, |body| {
        body["tool_choice"] = json!({"type": "function", "name": "look"});
    }),
];

/// A call of a tool that the provider runs, and its result.
fn search() -> Value {
    json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}})
}

fn found() -> Value {
    json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
}

/// The rule, the status, the way, the headers and the bytes.
type Odd<'a> = (&'a str, u16, &'a str, Vec<(&'a str, &'a str)>, Vec<u8>);

fn right(path: &str) -> Value {
    match path {
        MESSAGES => messages(),
        CHAT => chat(),
        GEMINI => gemini(),
        _ => responses(),
    }
}

/// What a request was refused for, and that the refusal has the provider's shape.
fn refusal(provider: &Simulator, path: &str, status: u16, body: &Value) -> (&'static str, String) {
    let mut all = provider.violations();
    all.extend(provider.overflows());
    assert_eq!(all.len(), 1, "{body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(all[0].message, message);
    match path {
        MESSAGES => {
            assert_eq!(body["type"], "error");
            assert!(body["request_id"].as_str().unwrap().starts_with("req_"));
        }
        GEMINI => assert_eq!(body["error"]["code"], status),
        _ => assert_eq!(body["error"]["type"], "invalid_request_error"),
    }
    provider.forget();
    (all[0].rule.name, message.to_owned())
}

#[tokio::test]
async fn each_rule_is_broken_by_a_request_that_breaks_it_alone() {
    let provider = Simulator::with(Options {
        window: Some(100_000),
        ..Options::default()
    });
    let mut broken = BTreeSet::new();
    for path in [MESSAGES, CHAT, RESPONSES] {
        let (status, body) = post(&provider, path, &right(path)).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
    assert!(provider.violations().is_empty());
    for (rule, says, path, spoil) in CASES {
        let mut body = right(path);
        spoil(&mut body);
        let (status, answer) = post(&provider, path, &body).await;
        assert_eq!(status, 400, "{rule}: {answer}");
        let (found, message) = refusal(&provider, path, status, &answer);
        assert_eq!(found, *rule, "{message}");
        assert!(message.contains(says), "{rule}: {message}");
        broken.insert(*rule);
    }

    // What lies in headers and bytes.
    let whole = |path: &str| right(path).to_string().into_bytes();
    let huge = vec![b' '; (32 << 20) + 1];
    let odd: Vec<Odd<'_>> = vec![
        (
            "credentials",
            401,
            MESSAGES,
            vec![("anthropic-version", "2023-06-01")],
            whole(MESSAGES),
        ),
        (
            "version",
            400,
            MESSAGES,
            vec![("x-api-key", "k")],
            whole(MESSAGES),
        ),
        (
            "not-json",
            400,
            MESSAGES,
            usual_headers(MESSAGES),
            b"{".to_vec(),
        ),
        ("too-large", 413, MESSAGES, usual_headers(MESSAGES), huge),
        ("openai-credentials", 401, CHAT, vec![], whole(CHAT)),
        ("gemini-credentials", 403, GEMINI, vec![], whole(GEMINI)),
        (
            "gemini-not-json",
            400,
            GEMINI,
            usual_headers(GEMINI),
            b"[".to_vec(),
        ),
        (
            "openai-not-json",
            400,
            RESPONSES,
            usual_headers(RESPONSES),
            b"[".to_vec(),
        ),
    ];
    for (rule, status, path, headers, body) in odd {
        let response = request(&provider, path, &headers, body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), status, "{rule}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(refusal(&provider, path, status, &answer).0, rule);
        broken.insert(rule);
    }

    // What only shows over two requests.
    let mut body = json!({
        "model": "claude-opus-4-8", "max_tokens": 4000, "thinking": {"type": "adaptive"},
        "tools": [anthropic_tool("bash")], "messages": [{"role": "user", "content": "Look."}],
    });
    provider.script([Answer::thinking("Hm.").and_call("bash", json!({"command": "ls"}))]);
    let (_, mut said) = post(&provider, MESSAGES, &body).await;
    let result =
        json!([{"type": "tool_result", "tool_use_id": said["content"][1]["id"], "content": "a"}]);
    list(&mut body, "/messages").push(json!({"role": "assistant", "content": said["content"]}));
    list(&mut body, "/messages").push(json!({"role": "user", "content": result}));
    assert_eq!(post(&provider, MESSAGES, &body).await.0, 200);
    list(&mut said, "/content").remove(0);
    body["messages"][1]["content"] = said["content"].clone();
    let (status, answer) = post(&provider, MESSAGES, &body).await;
    broken.insert(refusal(&provider, MESSAGES, status, &answer).0);
    // When the turn is over, nobody asks for it any more.
    list(&mut body, "/messages").push(json!({"role": "assistant", "content": "Done."}));
    list(&mut body, "/messages").push(json!({"role": "user", "content": "Thanks."}));
    assert_eq!(post(&provider, MESSAGES, &body).await.0, 200);

    let mut body = json!({
        "model": "gpt-5.2", "store": false, "include": ["reasoning.encrypted_content"],
        "tools": [responses_tool("bash")], "input": [{"role": "user", "content": "Look."}],
    });
    provider.script([Answer::thinking("Hm.").and_call("bash", json!({"command": "ls"}))]);
    let (_, said) = post(&provider, RESPONSES, &body).await;
    list(&mut body, "/input").extend(said["output"].as_array().unwrap().clone());
    let output = json!({"type": "function_call_output", "call_id": said["output"][1]["call_id"], "output": "a"});
    list(&mut body, "/input").push(output);
    assert_eq!(post(&provider, RESPONSES, &body).await.0, 200);
    list(&mut body, "/input").remove(1);
    let (status, answer) = post(&provider, RESPONSES, &body).await;
    broken.insert(refusal(&provider, RESPONSES, status, &answer).0);

    let mut body = json!({
        "tools": gemini_tools(&["bash"]), "contents": [{"role": "user", "parts": [{"text": "Look."}]}],
    });
    provider.script([Answer::thinking("Hm.").and_call("bash", json!({"command": "ls"}))]);
    let (_, said) = post(&provider, GEMINI, &body).await;
    let content = said["candidates"][0]["content"].clone();
    let id = &content["parts"][0]["functionCall"]["id"];
    let answer =
        json!({"functionResponse": {"id": id, "name": "bash", "response": {"output": "a"}}});
    list(&mut body, "/contents").push(content);
    list(&mut body, "/contents").push(json!({"role": "user", "parts": [answer]}));
    assert_eq!(post(&provider, GEMINI, &body).await.0, 200);
    at(&mut body, "/contents/1/parts/0")["thoughtSignature"] = json!(null);
    let (status, answer) = post(&provider, GEMINI, &body).await;
    broken.insert(refusal(&provider, GEMINI, status, &answer).0);
    // When the turn is over, nobody asks for it any more.
    list(&mut body, "/contents").push(json!({"role": "model", "parts": [{"text": "Done."}]}));
    list(&mut body, "/contents").push(json!({"role": "user", "parts": [{"text": "Thanks."}]}));
    assert_eq!(post(&provider, GEMINI, &body).await.0, 200);

    let all: BTreeSet<&str> = all_rules().iter().map(|rule| rule.name).collect();
    assert_eq!(broken, all);
    assert!(
        all_rules()
            .iter()
            .all(|rule| rule.source.starts_with("https://"))
    );
}

#[tokio::test]
async fn what_the_rules_leave_open_is_answered() {
    let provider = Simulator::start();
    let mut open: Vec<(&str, Value)> = Vec::new();
    // Results in two messages of one role, and text after them.
    let mut body = messages();
    let rest = list(&mut body, "/messages/2/content").split_off(1);
    list(&mut body, "/messages").push(json!({"role": "user", "content": rest}));
    open.push((MESSAGES, body));
    // An older turn without its thinking, and an answer that is begun.
    let mut body = messages();
    list(&mut body, "/messages/1/content").remove(0);
    list(&mut body, "/messages").push(json!({"role": "assistant", "content": "Both."}));
    list(&mut body, "/messages").push(json!({"role": "user", "content": "Thanks."}));
    open.push((MESSAGES, body));
    // A turn that was paused while the provider searched.
    let mut body = messages();
    let rest = list(&mut body, "/messages/1/content").split_off(2);
    list(&mut body, "/messages/1/content").push(search());
    let resumed = [&[found()], &rest[..]].concat();
    let resumed = json!({"role": "assistant", "content": resumed});
    list(&mut body, "/messages").insert(2, resumed);
    open.push((MESSAGES, body));
    // A system message after a user's, where the model takes it.
    let mut body = messages();
    body["model"] = json!("claude-opus-4-8");
    list(&mut body, "/messages").insert(1, json!({"role": "system", "content": "Be brief."}));
    open.push((MESSAGES, body));
    // With the beta for it, a message that only sets the effort from there on.
    let mut body = messages();
    body["model"] = json!("claude-opus-5-5");
    let sets = json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
    list(&mut body, "/messages").insert(1, sets);
    let mut headers = usual_headers(MESSAGES);
    for (beta, status) in [("none", 400), ("x,per-turn-control-2026-07-01", 200)] {
        headers.push(("anthropic-beta", beta));
        let asked = request(&provider, MESSAGES, &headers, body.to_string().into_bytes());
        assert_eq!(asked.send().await.unwrap().status(), status);
        headers.pop();
    }
    provider.forget();
    // Markers in Claude's name on another provider; an empty text; a result that nobody has to wait for.
    let mut body = chat();
    body["model"] = json!("anthropic/claude-opus-4.5");
    body["messages"][1]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    body["messages"][3]["content"] = json!("");
    open.push((CHAT, body));
    for (path, body) in open {
        let (status, answer) = post(&provider, path, &body).await;
        assert_eq!(status, 200, "{answer}");
    }
    // A stored response is gone on from.
    let (_, first) = post(
        &provider,
        RESPONSES,
        &json!({"model": "gpt-5.2", "input": "Hello."}),
    )
    .await;
    let next = json!({"model": "gpt-5.2", "input": "And?", "previous_response_id": first["id"]});
    assert_eq!(post(&provider, RESPONSES, &next).await.0, 200);
    let stored = first["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!({"type": "item_reference", "id": item["id"]}));
    let user = |text| json!({"role": "user", "content": text});
    let input: Vec<Value> = [user("Hello.")]
        .into_iter()
        .chain(stored)
        .chain([user("And?")])
        .collect();
    let next = json!({"model": "gpt-5.2", "input": input});
    assert_eq!(post(&provider, RESPONSES, &next).await.0, 200);
    assert!(provider.violations().is_empty());
    // Counting checks as asking does, and never says that it is too much.
    let mut long = json!({"model": "claude-opus-4-5", "messages": [{"role": "user", "content": "long ".repeat(300_000)}]});
    let (status, counted) = post(&provider, "/v1/messages/count_tokens", &long).await;
    assert!(
        status == 200 && counted["input_tokens"].as_u64().unwrap() > 300_000,
        "{counted}"
    );
    long["messages"][0]["role"] = json!("tool");
    assert_eq!(
        post(&provider, "/v1/messages/count_tokens", &long).await.0,
        400
    );
}

use super::*;

#[test]
fn entries_of_pi_become_messages() {
    let entries = [
        json!({"type": "model_change", "modelId": "m"}),
        json!({"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": "Go"}, {"type": "image"}]}}),
        json!({"type": "message", "message": {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Reading"},
            {"type": "toolCall", "id": "1", "name": "read", "arguments": {"path": "a"}},
        ]}}),
        json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "1", "content": [{"type": "text", "text": "A"}]}}),
        json!({"type": "compaction", "summary": "old"}),
        json!({"type": "message", "message": {"role": "bashExecution", "command": "ls", "output": "a b"}}),
    ];
    assert_eq!(
        of_pi(&entries),
        [
            json!({"role": "user", "content": "Go\n[image]"}),
            json!({"role": "assistant", "content": "Reading", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "A"}),
            json!({"role": "user", "content": "$ ls\na b"}),
        ]
    );
}

#[test]
fn a_message_of_opencode_has_its_results_after_it() {
    let messages = [
        json!({"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go"}]}),
        json!({"info": {"role": "assistant"}, "parts": [
            {"type": "step-start"}, {"type": "text", "text": "Reading"},
            {"type": "tool", "callID": "1", "tool": "read", "state": {"status": "completed", "input": {"path": "a"}, "output": "A"}},
            {"type": "tool", "callID": "2", "tool": "read", "state": {"status": "error", "input": {}, "error": "no"}},
            {"type": "tool", "callID": "3", "tool": "bash", "state": {"status": "running", "input": {}}},
        ]}),
        json!({"info": {"role": "user"}, "parts": [{"type": "compaction"}]}),
        json!({"info": {"role": "assistant", "summary": true}, "parts": [{"type": "text", "text": "old"}]}),
    ];
    let converted = of_opencode(&messages);
    let roles: Vec<_> = converted.iter().map(|one| one["role"].as_str()).collect();
    assert_eq!(
        roles,
        [Some("user"), Some("assistant"), Some("tool"), Some("tool")]
    );
    assert_eq!(converted[1]["tool_calls"].as_array().map(Vec::len), Some(3));
    assert_eq!(converted[3]["content"], "no");
}

#[test]
fn a_log_of_qwen_is_read_back_from_its_last_record() {
    let record = |id: &str, before: &str, kind: &str, parts: Value| {
        json!({"uuid": id, "parentUuid": before, "type": kind, "message": {"parts": parts}})
            .to_string()
    };
    let call = json!({"functionCall": {"id": "1", "name": "read_file", "args": {"path": "a"}}});
    let result =
        json!({"functionResponse": {"id": "1", "name": "read_file", "response": {"output": "A"}}});
    let log = [
        record("a", "-", "user", json!([{"text": "Go"}])),
        record(
            "b",
            "a",
            "assistant",
            json!([{"text": "hm", "thought": true}, {"text": "Reading"}, call]),
        ),
        record("c", "b", "tool_result", json!([result])),
        record("x", "c", "user", json!([{"text": "rewound"}])),
        json!({"uuid": "d", "parentUuid": "c", "type": "system", "subtype": "chat_compression"})
            .to_string(),
        record("e", "d", "user", json!([{"text": "On"}])),
        "{\"uuid\": \"f\", \"parent".to_owned(),
    ];
    let (messages, left_out) = of_qwen(&log.join("\n"));
    assert_eq!(left_out, 1);
    assert_eq!(
        messages,
        [
            json!({"role": "user", "content": "Go"}),
            json!({"role": "assistant", "content": "Reading", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "A"}),
            json!({"role": "user", "content": "On"}),
        ]
    );
}

//! Every kind of content of every format is found after an import.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_history::Kind::{
    Assistant, Attachment, Note, Summary, Thinking, ToolCall, ToolResult, User,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use support::Machine;

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

#[test]
fn claude_code() {
    let machine = Machine::new();
    let line = |kind: &str, n: u64, more: Value| {
        let mut line = json!({
            "type": kind, "uuid": format!("u{n}"), "parentUuid": format!("u{}", n - 1), "cwd": "/work/shop",
            "sessionId": "s", "timestamp": format!("2026-01-31T09:00:{n:02}Z"),
        });
        line.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        line
    };
    let message =
        |role: &str, content: Value| json!({"message": {"role": role, "content": content}});
    machine.put(
        ".claude/projects/-work-shop/s.jsonl",
        lines(&[
            json!({"type": "summary", "summary": "titleword of the session", "leafUuid": "u1"}),
            line("user", 1, message("user", json!("please fix userword"))),
            line("assistant", 2, message("assistant", json!([{"type": "thinking", "thinking": "thinkword", "signature": "x"}]))),
            line("assistant", 3, message("assistant", json!([{"type": "text", "text": "assistantword"}]))),
            line("assistant", 4, message("assistant", json!([
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cargo argword"}},
            ]))),
            line("user", 5, message("user", json!([
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "resultword"}]},
            ]))),
            line("user", 6, message("user", json!([
                {"type": "document", "title": "filename.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
            ]))),
            line("attachment", 7, json!({"attachment": {"type": "queued_command", "prompt": "queuedword"}})),
            line("attachment", 8, json!({"attachment": {"type": "todo_reminder", "content": "reminderword"}})),
            json!({"type": "system", "subtype": "compact_boundary", "uuid": "u9", "parentUuid": null}),
            line("user", 10, json!({"isCompactSummary": true, "message": {"role": "user", "content": "compactword"}})),
            line("user", 11, json!({"isMeta": true, "message": {"role": "user", "content": "metaword"}})),
            line("assistant", 12, json!({"isApiErrorMessage": true, "message": {"role": "assistant", "content": [{"type": "text", "text": "apierrorword"}]}})),
        ]),
    );
    machine.put(
        ".claude/projects/-work-shop/s/subagents/agent-1.jsonl",
        lines(&[line(
            "user",
            1,
            json!({"isSidechain": true, "message": {"role": "user", "content": "subagentword"}}),
        )]),
    );
    let report = machine.import();
    assert!(report.skipped.is_empty(), "{report:#?}");
    machine.holds(
        "claude-code",
        Some("/work/shop"),
        &[
            ("titleword", Summary),
            ("userword", User),
            ("thinkword", Thinking),
            ("assistantword", Assistant),
            ("Bash argword", ToolCall),
            ("resultword", ToolResult),
            ("filename.pdf", Attachment),
            ("queuedword", User),
            ("reminderword", Note),
            ("compactword", Summary),
            ("metaword", Note),
            ("apierrorword", Note),
            ("subagentword", User),
        ],
    );
    machine.pairs("argword", "resultword");
}

#[test]
fn codex() {
    let machine = Machine::new();
    let line = |kind: &str, payload: Value| json!({"timestamp": "2026-01-31T09:00:00Z", "type": kind, "payload": payload});
    let said = |role: &str, kind: &str, text: &str| {
        line(
            "response_item",
            json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}),
        )
    };
    machine.put(
        ".codex/sessions/2026/01/31/rollout-2026-01-31T09-00-00-id.jsonl",
        lines(&[
            line("session_meta", json!({"id": "id", "cwd": "/work/shop", "instructions": null})),
            said("user", "input_text", "<environment_context> contextword"),
            said("user", "input_text", "userword"),
            line("event_msg", json!({"type": "user_message", "message": "userword"})),
            line("response_item", json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinkword"}], "encrypted_content": "cipherword"})),
            line("response_item", json!({"type": "function_call", "name": "shell", "call_id": "c1", "arguments": "{\"command\":[\"bash\",\"-lc\",\"ls argword\"]}"})),
            line("response_item", json!({"type": "function_call_output", "call_id": "c1", "output": "{\"output\":\"resultword\",\"metadata\":{}}"})),
            line("response_item", json!({"type": "custom_tool_call", "name": "apply_patch", "call_id": "c2", "input": "patchword"})),
            line("response_item", json!({"type": "custom_tool_call_output", "call_id": "c2", "output": "patchedword"})),
            line("response_item", json!({"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "queryword"}})),
            line("response_item", json!({"type": "message", "role": "user", "content": [
                {"type": "input_file", "filename": "filename.csv", "file_data": "data:text/csv;base64,AA"},
            ]})),
            said("assistant", "output_text", "assistantword"),
            line("compacted", json!({"message": "summaryword", "replacement_history": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "userword"}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "summaryword"}]},
            ]})),
        ]),
    );
    machine.import();
    machine.holds(
        "codex",
        Some("/work/shop"),
        &[
            ("contextword", Note),
            ("userword", User),
            ("thinkword", Thinking),
            ("shell argword", ToolCall),
            ("resultword", ToolResult),
            ("apply_patch patchword", ToolCall),
            ("patchedword", ToolResult),
            ("queryword", ToolCall),
            ("filename.csv", Attachment),
            ("assistantword", Assistant),
            ("summaryword", Summary),
        ],
    );
    machine.pairs("argword", "resultword");
    assert_eq!(machine.search("cipherword").matches, 0);
}

/// The messages of Gemini CLI, in both of its forms.
fn gemini_messages() -> Vec<Value> {
    vec![
        json!({"id": "1", "timestamp": "2026-01-31T09:00:00Z", "type": "user", "content": [
            {"text": "userword"}, {"inlineData": {"mimeType": "image/png", "displayName": "filename.png", "data": "AA"}},
        ]}),
        json!({"id": "2", "timestamp": "2026-01-31T09:00:01Z", "type": "gemini", "content": "assistantword",
            "thoughts": [{"subject": "Thinking", "description": "thinkword", "timestamp": "2026-01-31T09:00:01Z"}],
            "toolCalls": [{"id": "c1", "name": "run_shell_command", "args": {"command": "argword"}, "status": "success",
                "timestamp": "2026-01-31T09:00:02Z",
                "result": [{"functionResponse": {"id": "c1", "name": "run_shell_command", "response": {"output": "resultword"}}}]}]}),
        json!({"id": "3", "timestamp": "2026-01-31T09:00:03Z", "type": "error", "content": "errorword"}),
    ]
}

fn check_gemini(machine: &Machine, agent: &str, project: &str) {
    machine.holds(
        agent,
        Some(project),
        &[
            ("userword", User),
            ("filename.png", Attachment),
            ("assistantword", Assistant),
            ("thinkword", Thinking),
            ("run_shell_command argword", ToolCall),
            ("resultword", ToolResult),
            ("errorword", Note),
            ("summaryword", Summary),
        ],
    );
    machine.pairs("argword", "resultword");
}

#[test]
fn gemini_in_one_document() {
    let machine = Machine::new();
    let document = json!({"sessionId": "s", "projectHash": "abc", "summary": "summaryword", "messages": gemini_messages()});
    machine.put(
        ".gemini/tmp/shop/chats/session-1.json",
        document.to_string(),
    );
    machine.put(".gemini/tmp/shop/.project_root", "/work/shop\n");
    machine.import();
    check_gemini(&machine, "gemini", "/work/shop");
}

#[test]
fn gemini_in_lines_with_messages_that_were_written_twice() {
    let machine = Machine::new();
    let mut log = vec![json!({"sessionId": "s", "projectHash": "abc"})];
    let mut messages = gemini_messages();
    // First without the result of the call.
    let mut unfinished = messages[1].clone();
    unfinished["toolCalls"][0]
        .as_object_mut()
        .unwrap()
        .remove("result");
    messages.insert(1, unfinished);
    log.extend(messages);
    log.push(json!({"$set": {"summary": "summaryword", "sessionId": "s", "projectHash": "abc"}}));
    machine.put(".gemini/tmp/shop/chats/session-1.jsonl", lines(&log));
    machine.import();
    check_gemini(&machine, "gemini", "shop");
}

#[test]
fn qwen() {
    let machine = Machine::new();
    let record = |kind: &str, more: Value| {
        let mut record = json!({"uuid": "u", "parentUuid": null, "sessionId": "s", "type": kind, "cwd": "/work/shop",
            "timestamp": "2026-01-31T09:00:00Z"});
        record
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        record
    };
    let said = |role: &str, parts: Value| json!({"message": {"role": role, "parts": parts}});
    machine.put(
        ".qwen/projects/-work-shop/chats/s.jsonl",
        lines(&[
            record("user", said("user", json!([{"text": "userword"}, {"fileData": {"fileUri": "filename.txt"}}]))),
            record("assistant", said("model", json!([
                {"text": "thinkword", "thought": true}, {"text": "assistantword"},
                {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "argword"}}},
            ]))),
            record("tool_result", said("user", json!([
                {"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "resultword"}}},
            ]))),
            record("system", json!({"subtype": "chat_compression", "systemPayload": {"compressedHistory": [
                {"role": "user", "parts": [{"text": "summaryword"}]},
            ]}})),
            record("system", json!({"subtype": "custom_title", "systemPayload": {"customTitle": "titleword"}})),
            record("system", json!({"subtype": "slash_command", "systemPayload": {"rawCommand": "/commandword"}})),
        ]),
    );
    machine.import();
    machine.holds(
        "qwen",
        Some("/work/shop"),
        &[
            ("userword", User),
            ("filename.txt", Attachment),
            ("thinkword", Thinking),
            ("assistantword", Assistant),
            ("read_file argword", ToolCall),
            ("resultword", ToolResult),
            ("summaryword", Summary),
            ("titleword", Summary),
            ("commandword", Note),
        ],
    );
    machine.pairs("argword", "resultword");
}

#[test]
fn qwen_of_older_versions() {
    let machine = Machine::new();
    let document = json!({"sessionId": "s", "projectHash": "abc", "summary": "summaryword", "messages": gemini_messages()});
    machine.put(".qwen/tmp/abc/chats/session-1.json", document.to_string());
    machine.import();
    check_gemini(&machine, "qwen", "abc");
}

/// The messages of OpenCode, each with its parts.
fn opencode_messages() -> [(Value, Vec<Value>); 3] {
    [
        (
            json!({"role": "user", "time": {"created": 1_769_850_000_000_i64}}),
            vec![
                json!({"type": "text", "text": "userword"}),
                json!({"type": "file", "mime": "text/plain", "filename": "filename.txt", "url": "data:text/plain;base64,AA"}),
                json!({"type": "text", "text": "syntheticword", "synthetic": true}),
            ],
        ),
        (
            json!({"role": "assistant", "time": {"created": 1_769_850_001_000_i64}}),
            vec![
                json!({"type": "step-start"}),
                json!({"type": "reasoning", "text": "thinkword", "time": {"start": 1_769_850_001_000_i64}}),
                json!({"type": "tool", "callID": "c1", "tool": "bash", "state": {"status": "completed", "input": {"command": "argword"}, "output": "resultword", "title": "t"}}),
                json!({"type": "tool", "callID": "c2", "tool": "edit", "state": {"status": "error", "input": {"filePath": "otherword"}, "error": "failureword"}}),
                json!({"type": "text", "text": "assistantword"}),
            ],
        ),
        (
            json!({"role": "assistant", "summary": true, "time": {"created": 1_769_850_002_000_i64}}),
            vec![json!({"type": "text", "text": "summaryword"})],
        ),
    ]
}

fn check_opencode(machine: &Machine) {
    machine.holds(
        "opencode",
        Some("/work/shop"),
        &[
            ("titleword", Summary),
            ("userword", User),
            ("filename.txt", Attachment),
            ("syntheticword", Note),
            ("thinkword", Thinking),
            ("bash argword", ToolCall),
            ("resultword", ToolResult),
            ("failureword", ToolResult),
            ("assistantword", Assistant),
            ("summaryword", Summary),
        ],
    );
    machine.pairs("argword", "resultword");
}

#[test]
fn opencode_in_files() {
    let machine = Machine::new();
    let storage = ".local/share/opencode/storage";
    machine.put(
        &format!("{storage}/session/p/ses_1.json"),
        json!({"id": "ses_1", "directory": "/work/shop", "title": "titleword"}).to_string(),
    );
    for (n, (message, parts)) in opencode_messages().iter().enumerate() {
        machine.put(
            &format!("{storage}/message/ses_1/msg_{n}.json"),
            message.to_string(),
        );
        for (at, part) in parts.iter().enumerate() {
            machine.put(
                &format!("{storage}/part/msg_{n}/prt_{n}_{at}.json"),
                part.to_string(),
            );
        }
    }
    machine.import();
    check_opencode(&machine);
}

#[test]
fn opencode_in_a_database_and_what_is_streamed_into_it() {
    let machine = Machine::new();
    let path = machine.put(".local/share/opencode/opencode.db", "");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode=WAL;
         CREATE TABLE session(id TEXT PRIMARY KEY, directory TEXT, title TEXT, time_created INTEGER, time_updated INTEGER);
         CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
         CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
         INSERT INTO session VALUES ('ses_1', '/work/shop', 'titleword', 1, 1);",
    )
    .unwrap();
    for (n, (message, parts)) in opencode_messages().iter().enumerate() {
        let at = n as i64 + 1;
        let row = (format!("msg_{n}"), "ses_1", at, at, message.to_string());
        db.execute("INSERT INTO message VALUES (?1, ?2, ?3, ?4, ?5)", row)
            .unwrap();
        for (part_at, part) in parts.iter().enumerate() {
            let row = (
                format!("prt_{n}_{part_at}"),
                format!("msg_{n}"),
                "ses_1",
                at,
                at,
                part.to_string(),
            );
            db.execute("INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row)
                .unwrap();
        }
    }
    machine.import();
    check_opencode(&machine);
    // A part that is written again replaces what it was, under the same id.
    let before = machine.only("assistantword").message.id;
    let data = json!({"type": "text", "text": "streamedword"}).to_string();
    db.execute(
        "UPDATE part SET data = ?1, time_updated = 9 WHERE data LIKE '%assistantword%'",
        [data],
    )
    .unwrap();
    machine.import();
    assert_eq!(machine.only("streamedword").message.id, before);
    assert_eq!(machine.search("assistantword").matches, 0);
    machine.only("userword");
}

#[test]
fn pi() {
    let machine = Machine::new();
    let entry = |message: Value| json!({"type": "message", "id": "a", "timestamp": "2026-01-31T09:00:00Z", "message": message});
    machine.put(
        ".pi/agent/sessions/--work-shop--/2026_s.jsonl",
        lines(&[
            json!({"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-31T09:00:00Z", "cwd": "/work/shop"}),
            entry(json!({"role": "user", "content": [{"type": "text", "text": "userword"}], "attachments": [{"fileName": "filename.pdf"}]})),
            entry(json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "thinkword"}, {"type": "text", "text": "assistantword"},
                {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "argword"}},
            ]})),
            entry(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [{"type": "text", "text": "resultword"}]})),
            entry(json!({"role": "bashExecution", "command": "owncommand", "output": "ownoutput"})),
            json!({"type": "compaction", "summary": "summaryword", "timestamp": "2026-01-31T09:00:00Z"}),
            json!({"type": "branch_summary", "summary": "branchword", "timestamp": "2026-01-31T09:00:00Z"}),
            json!({"type": "session_info", "name": "titleword"}),
        ]),
    );
    machine.import();
    machine.holds(
        "pi",
        Some("/work/shop"),
        &[
            ("userword", User),
            ("filename.pdf", Attachment),
            ("thinkword", Thinking),
            ("assistantword", Assistant),
            ("argword", ToolCall),
            ("resultword", ToolResult),
            ("owncommand", ToolCall),
            ("ownoutput", ToolResult),
            ("summaryword", Summary),
            ("branchword", Summary),
            ("titleword", Summary),
        ],
    );
    machine.pairs("argword", "resultword");
    machine.pairs("owncommand", "ownoutput");
}

#[test]
fn cline_and_roo() {
    let storage = ".config/Code/User/globalStorage";
    let messages = json!([
        {"role": "user", "ts": 1_769_850_000_000_i64, "content": [
            {"type": "text", "text": "<task>userword</task>"},
            {"type": "text", "text": "<environment_details>\n# Current Working Directory (/work/shop) Files\nenvironmentword"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "thinkword", "signature": "x"},
            {"type": "text", "text": "assistantword"},
            {"type": "tool_use", "id": "c1", "name": "execute_command", "input": {"command": "argword"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "resultword"}]}]},
    ]);
    for (extension, agent) in [
        ("saoudrizwan.claude-dev", "cline"),
        ("rooveterinaryinc.roo-cline", "roo"),
    ] {
        let machine = Machine::new();
        machine.put(
            &format!("{storage}/{extension}/tasks/17/api_conversation_history.json"),
            messages.to_string(),
        );
        machine.import();
        machine.holds(
            agent,
            Some("/work/shop"),
            &[
                ("userword", User),
                ("environmentword", Note),
                ("image/png", Attachment),
                ("thinkword", Thinking),
                ("assistantword", Assistant),
                ("execute_command argword", ToolCall),
                ("resultword", ToolResult),
            ],
        );
        machine.pairs("argword", "resultword");
        assert_eq!(machine.only("userword").message.session, "17");
    }
}

fn goose_messages() -> [(&'static str, Value); 4] {
    [
        (
            "user",
            json!([{"type": "text", "text": "userword"}, {"type": "image", "data": "AA", "mimeType": "image/png"}]),
        ),
        (
            "assistant",
            json!([
                {"type": "thinking", "thinking": "thinkword", "signature": "x"}, {"type": "text", "text": "assistantword"},
                {"type": "toolRequest", "id": "c1", "toolCall": {"status": "success", "value": {"name": "developer__shell", "arguments": {"command": "argword"}}}},
            ]),
        ),
        (
            "user",
            json!([{"type": "toolResponse", "id": "c1", "toolResult": {"status": "success", "value": [{"type": "text", "text": "resultword"}]}}]),
        ),
        (
            "user",
            json!([{"type": "toolResponse", "id": "c2", "toolResult": {"status": "error", "error": "failureword"}}]),
        ),
    ]
}

fn check_goose(machine: &Machine) {
    machine.holds(
        "goose",
        Some("/work/shop"),
        &[
            ("titleword", Summary),
            ("userword", User),
            ("image/png", Attachment),
            ("thinkword", Thinking),
            ("assistantword", Assistant),
            ("developer__shell argword", ToolCall),
            ("resultword", ToolResult),
            ("failureword", ToolResult),
        ],
    );
    machine.pairs("argword", "resultword");
}

#[test]
fn goose_in_lines() {
    let machine = Machine::new();
    let mut log =
        vec![json!({"working_dir": "/work/shop", "description": "titleword", "message_count": 4})];
    let messages = goose_messages();
    log.extend(messages.iter().map(
        |(role, content)| json!({"role": role, "created": 1_769_850_000, "content": content}),
    ));
    machine.put(".local/share/goose/sessions/20260131_1.jsonl", lines(&log));
    machine.import();
    check_goose(&machine);
}

#[test]
fn goose_in_a_database_of_which_a_session_is_written_anew() {
    let machine = Machine::new();
    let path = machine.put(".local/share/goose/sessions/sessions.db", "");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE sessions(id TEXT PRIMARY KEY, description TEXT, working_dir TEXT, created_at TIMESTAMP);
         CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content_json TEXT, created_timestamp INTEGER);
         INSERT INTO sessions VALUES ('s', 'titleword', '/work/shop', '2026-01-31');",
    )
    .unwrap();
    let write = |messages: &[(&str, Value)]| {
        for (role, content) in messages {
            db.execute(
                "INSERT INTO messages(session_id, role, content_json, created_timestamp) VALUES ('s', ?1, ?2, 1769850000)",
                (role, content.to_string()),
            )
            .unwrap();
        }
    };
    write(&goose_messages());
    machine.import();
    check_goose(&machine);
    // A compaction deletes the messages, and writes those that stay once more.
    db.execute("DELETE FROM messages", []).unwrap();
    write(&goose_messages()[2..]);
    write(&[("assistant", json!([{"type": "text", "text": "laterword"}]))]);
    machine.import();
    check_goose(&machine);
    machine.only("laterword");
}

#[test]
fn openhands_of_the_agent_sdk() {
    let machine = Machine::new();
    let folder = ".openhands/conversations/abc";
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let events = [
        json!({"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"text": "systemword"}}),
        json!({"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": [
            {"type": "text", "text": "userword"}, {"type": "image", "image_urls": ["data:image/png;base64,AA"]},
        ]}}),
        json!({"kind": "ActionEvent", "source": "agent", "thought": text("assistantword"), "reasoning_content": "thinkword",
            "tool_name": "terminal", "tool_call_id": "c1", "tool_call": {"id": "c1", "name": "terminal", "arguments": "{\"command\": \"argword\"}"},
            "action": {"kind": "TerminalAction", "command": "argword"}}),
        json!({"kind": "ObservationEvent", "source": "environment", "tool_name": "terminal", "tool_call_id": "c1",
            "observation": {"kind": "TerminalObservation", "content": text("resultword")}}),
        json!({"kind": "AgentErrorEvent", "source": "agent", "tool_name": "terminal", "tool_call_id": "c2", "error": "failureword"}),
        json!({"kind": "Condensation", "source": "environment", "summary": "summaryword"}),
    ];
    for (n, event) in events.iter().enumerate() {
        let mut event = event.clone();
        event["timestamp"] = json!("2026-01-31T09:00:00.123456");
        machine.put(
            &format!("{folder}/events/event-{n:05}-id.json"),
            event.to_string(),
        );
    }
    machine.put(
        &format!("{folder}/base_state.json"),
        json!({"workspace": {"working_dir": "/work/shop"}}).to_string(),
    );
    machine.import();
    machine.holds(
        "openhands",
        Some("/work/shop"),
        &[
            ("userword", User),
            ("image", Attachment),
            ("assistantword", Assistant),
            ("thinkword", Thinking),
            ("terminal argword", ToolCall),
            ("resultword", ToolResult),
            ("failureword", ToolResult),
            ("summaryword", Summary),
        ],
    );
    machine.pairs("argword", "resultword");
    assert_eq!(machine.search("systemword").matches, 0);
}

#[test]
fn openhands_of_older_versions() {
    let machine = Machine::new();
    let metadata = json!({"tool_call_id": "c1", "function_name": "execute_bash"});
    let events = [
        json!({"id": 0, "source": "user", "action": "message", "args": {"content": "userword", "file_urls": ["filename.txt"]}}),
        json!({"id": 1, "source": "agent", "action": "run", "args": {"command": "argword", "thought": "assistantword"}, "tool_call_metadata": metadata}),
        json!({"id": 2, "source": "agent", "observation": "run", "content": "resultword", "cause": 1, "tool_call_metadata": metadata}),
        json!({"id": 3, "source": "agent", "action": "read", "args": {"path": "otherarg"}}),
        json!({"id": 4, "source": "agent", "observation": "read", "content": "otherresult", "cause": 3}),
        json!({"id": 5, "source": "agent", "action": "think", "args": {"thought": "thinkword"}}),
        json!({"id": 6, "source": "agent", "action": "finish", "args": {"final_thought": "finishword"}}),
        json!({"id": 7, "source": "agent", "action": "condensation", "args": {"summary": "summaryword"}}),
    ];
    for event in &events {
        machine.put(
            &format!(".openhands/sessions/abc/events/{}.json", event["id"]),
            event.to_string(),
        );
    }
    machine.import();
    machine.holds(
        "openhands",
        None,
        &[
            ("userword", User),
            ("filename.txt", Attachment),
            ("argword", ToolCall),
            ("assistantword", Assistant),
            ("resultword", ToolResult),
            ("thinkword", Thinking),
            ("finishword", Assistant),
            ("summaryword", Summary),
        ],
    );
    machine.pairs("argword", "resultword");
    machine.pairs("otherarg", "otherresult");
}

#[test]
fn aider() {
    let machine = Machine::new();
    let log = "\n# aider chat started at 2026-01-31 09:00:00\n\n> outputword main.py  \n\n#### please userword  \n#### secondline  \n\n\
               assistantword does it\n\n```python\ncodeword()\n```\n\n> Applied edit to main.py\n\n# aider chat started at 2026-02-01 09:00:00\n\n#### nextword\n";
    machine.put("projects/shop/.aider.chat.history.md", log);
    machine.import();
    let project = machine.path("projects/shop").to_str().unwrap().to_owned();
    machine.holds(
        "aider",
        Some(&project),
        &[
            ("outputword", Note),
            ("userword secondline", User),
            ("assistantword codeword", Assistant),
            ("nextword", User),
        ],
    );
    assert_ne!(
        machine.only("userword").message.session,
        machine.only("nextword").message.session
    );
    assert_eq!(
        machine.only("userword").message.time_ms,
        Some(1_769_850_000_000)
    );
}

#[test]
fn cursor_exports() {
    let machine = Machine::new();
    let path = machine.put(
        "cursor_chat.md",
        "# titleword of the chat\n_Exported on 1/31/2026 at 9:00:00 GMT+1 from Cursor (2.3.4)_\n\n---\n\n**User**\n\nuserword\n\n---\n\n\
         **Cursor**\n\nassistantword\n# a heading\ncodeword\n\n---\n",
    );
    machine.import_named(&path);
    machine.holds(
        "cursor",
        None,
        &[
            ("titleword", Summary),
            ("userword", User),
            ("assistantword heading codeword", Assistant),
        ],
    );
}

#[test]
fn atif() {
    let machine = Machine::new();
    let step = |source: &str, more: Value| {
        let mut step = json!({"step_id": 1, "timestamp": "2026-01-31T09:00:00Z", "source": source});
        step.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        step
    };
    let trajectory = json!({
        "schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "harness", "version": "1"}, "notes": "notesword",
        "steps": [
            step("system", json!({"message": "systemword"})),
            step("user", json!({"message": [{"type": "text", "text": "userword"}, {"type": "image", "source": {"media_type": "image/png", "path": "filename.png"}}]})),
            step("agent", json!({"message": "assistantword", "reasoning_content": "thinkword",
                "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "argword"}}],
                "observation": {"results": [{"source_call_id": "c1", "content": "resultword"}]}})),
        ],
        "subagent_trajectories": [{"schema_version": "ATIF-v1.7", "trajectory_id": "inner", "agent": {"name": "sub", "version": "1"},
            "steps": [step("user", json!({"message": "innerword"}))]}],
    });
    let path = machine.put(
        "trajectory.json",
        serde_json::to_string_pretty(&trajectory).unwrap(),
    );
    machine.import_named(&path);
    machine.holds(
        "atif",
        None,
        &[
            ("notesword", Summary),
            ("systemword", Note),
            ("userword", User),
            ("filename.png", Attachment),
            ("thinkword", Thinking),
            ("assistantword", Assistant),
            ("bash argword", ToolCall),
            ("resultword", ToolResult),
            ("innerword", User),
        ],
    );
    machine.pairs("argword", "resultword");
    assert_eq!(machine.only("innerword").message.session, "inner");
}

#[test]
fn chatgpt_exports() {
    let machine = Machine::new();
    let node = |id: &str, role: &str, time: u64, content: Value, more: Value| {
        let mut message = json!({"id": id, "author": {"role": role, "name": null}, "create_time": time, "content": content, "recipient": "all", "metadata": {}});
        message
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"id": id, "message": message, "parent": null, "children": []})
    };
    let text = |text: &str| json!({"content_type": "text", "parts": [text]});
    let export = json!([{
        "title": "titleword", "create_time": 1_769_850_000, "conversation_id": "one", "current_node": "b",
        "mapping": {
            "root": {"id": "root", "message": null, "parent": null, "children": ["a"]},
            "s": node("s", "system", 1_769_850_000, text("systemword"), json!({})),
            "b": node("b", "assistant", 1_769_850_002, text("assistantword"), json!({})),
            "a": node("a", "user", 1_769_850_001, json!({"content_type": "multimodal_text", "parts": [
                {"content_type": "image_asset_pointer", "asset_pointer": "file-service://picture"}, "userword",
            ]}), json!({"metadata": {"attachments": [{"name": "filename.pdf"}]}})),
            "t": node("t", "assistant", 1_769_850_003, json!({"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "thinkword"}]}), json!({})),
            "c": node("c", "assistant", 1_769_850_004, json!({"content_type": "code", "language": "python", "text": "argword()"}), json!({"recipient": "python"})),
            "r": node("r", "tool", 1_769_850_005, json!({"content_type": "execution_output", "text": "resultword"}), json!({"author": {"role": "tool", "name": "python"}})),
        },
    }, {"title": "second", "conversation_id": "two", "mapping": {"x": node("x", "user", 1_769_850_009, text("secondword"), json!({}))}}]);
    let path = machine.put("export/conversations.json", export.to_string());
    machine.import_named(path.parent().unwrap());
    machine.holds(
        "chatgpt",
        None,
        &[
            ("titleword", Summary),
            ("userword", User),
            ("picture", Attachment),
            ("filename.pdf", Attachment),
            ("assistantword", Assistant),
            ("thinkword", Thinking),
            ("python argword", ToolCall),
            ("resultword", ToolResult),
            ("secondword", User),
        ],
    );
    assert_eq!(machine.search("systemword").matches, 0);
    assert_eq!(machine.only("secondword").message.session, "two");
    let order = machine
        .history()
        .read(&machine.only("userword").message.id, 9)
        .unwrap()
        .unwrap();
    let texts: Vec<_> = order
        .messages
        .iter()
        .map(|message| message.text.as_str())
        .collect();
    let at = |word: &str| texts.iter().position(|text| text.contains(word)).unwrap();
    assert!(at("userword") < at("assistantword") && at("assistantword") < at("argword"));
}

#[test]
fn claude_ai_exports() {
    let machine = Machine::new();
    let export = json!([{
        "uuid": "one", "name": "titleword", "summary": "summaryword", "created_at": "2026-01-31T09:00:00Z",
        "chat_messages": [
            {"uuid": "a", "sender": "human", "created_at": "2026-01-31T09:00:00Z", "text": "userword",
                "content": [{"type": "text", "text": "userword"}],
                "attachments": [{"file_name": "filename.txt", "extracted_content": "extractedword"}], "files": [{"file_name": "picture.png"}]},
            {"uuid": "b", "sender": "assistant", "created_at": "2026-01-31T09:00:01Z", "text": "", "content": [
                {"type": "thinking", "thinking": "thinkword"}, {"type": "text", "text": "assistantword"},
                {"type": "tool_use", "id": "c1", "name": "web_search", "input": {"query": "argword"}},
                {"type": "tool_result", "tool_use_id": "c1", "name": "web_search", "content": [{"type": "text", "text": "resultword"}]},
            ], "attachments": [], "files": []},
            {"uuid": "c", "sender": "human", "created_at": "2026-01-31T09:00:02Z", "text": "oldword", "attachments": [], "files": []},
        ],
    }]);
    let path = machine.put("conversations.json", export.to_string());
    machine.import_named(&path);
    machine.holds(
        "claude-ai",
        None,
        &[
            ("titleword", Summary),
            ("summaryword", Summary),
            ("userword", User),
            ("filename.txt", Attachment),
            ("extractedword", User),
            ("picture.png", Attachment),
            ("thinkword", Thinking),
            ("assistantword", Assistant),
            ("web_search argword", ToolCall),
            ("resultword", ToolResult),
            ("oldword", User),
        ],
    );
    machine.pairs("argword", "resultword");
}

#[test]
fn langchain_in_both_forms() {
    let one = |kind: &str, data: Value| json!({"type": kind, "data": data});
    let dict = json!([
        one("system", json!({"content": "systemword"})),
        one(
            "human",
            json!({"content": [{"type": "text", "text": "userword"}, {"type": "image_url", "image_url": {"url": "https://x/filename.png"}}]})
        ),
        one(
            "ai",
            json!({"content": [{"type": "thinking", "thinking": "thinkword"}, {"type": "text", "text": "assistantword"},
            {"type": "tool_use", "id": "c1", "name": "search", "input": {"query": "argword"}}],
            "tool_calls": [{"name": "search", "args": {"query": "argword"}, "id": "c1", "type": "tool_call"}]})
        ),
        one(
            "tool",
            json!({"content": "resultword", "tool_call_id": "c1", "name": "search"})
        ),
    ]);
    let dumped = |class: &str, kwargs: &Value| json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", class], "kwargs": kwargs});
    let classes = ["SystemMessage", "HumanMessage", "AIMessage", "ToolMessage"];
    let both = dict.as_array().unwrap().iter().zip(classes);
    let dumps = Value::Array(
        both.map(|(message, class)| dumped(class, &message["data"]))
            .collect(),
    );
    for document in [dict, dumps] {
        let machine = Machine::new();
        let path = machine.put("messages.json", document.to_string());
        machine.import_named(&path);
        machine.holds(
            "langchain",
            None,
            &[
                ("systemword", Note),
                ("userword", User),
                ("filename.png", Attachment),
                ("thinkword", Thinking),
                ("assistantword", Assistant),
                ("search argword", ToolCall),
                ("resultword", ToolResult),
            ],
        );
        machine.pairs("argword", "resultword");
    }
}

/// What `contexture compress` reads is found as well, in whatever format it is.
#[test]
fn conversations_in_the_formats_of_providers() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\"query\": \"argword\"}"}});
    let chat = json!([
        {"role": "system", "content": "systemword"},
        {"role": "user", "content": [{"type": "text", "text": "userword"}]},
        {"role": "assistant", "content": "assistantword", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "resultword"},
    ]);
    let lines = lines(chat.as_array().unwrap());
    let body = json!({"model": "m", "messages": chat}).to_string();
    let anthropic = json!({"model": "m", "max_tokens": 9, "system": "systemword", "messages": [
        {"role": "user", "content": "userword"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "assistantword"}, {"type": "tool_use", "id": "c1", "name": "search", "input": {"query": "argword"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "resultword"}]},
    ]});
    let responses = json!({"model": "m", "input": [
        {"role": "user", "content": "userword"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "assistantword"}]},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{\"query\": \"argword\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "resultword"},
    ]});
    let gemini = json!({"contents": [
        {"role": "user", "parts": [{"text": "userword"}]},
        {"role": "model", "parts": [{"text": "assistantword"}, {"functionCall": {"name": "search", "args": {"query": "argword"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "search", "response": {"output": "resultword"}}}]},
    ]});
    let documents = [
        body,
        chat.to_string(),
        lines,
        anthropic.to_string(),
        responses.to_string(),
        gemini.to_string(),
    ];
    for document in documents {
        let machine = Machine::new();
        let path = machine.put("chat.json", &document);
        let report = machine.import_named(&path);
        assert!(report.skipped.is_empty(), "{:?}", report.skipped);
        machine.holds(
            "messages",
            None,
            &[
                ("userword", User),
                ("assistantword", Assistant),
                ("argword", ToolCall),
                ("resultword", ToolResult),
            ],
        );
        machine.pairs("argword", "resultword");
        // Nothing is stored twice.
        machine.put("chat.json", document + "\n");
        machine.import_named(&path);
        machine.only("userword");
    }
}

#[test]
fn ui_messages_of_both_generations() {
    let parts = json!([
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "userword"}, {"type": "file", "mediaType": "text/plain", "filename": "filename.txt", "url": "data:,x"}]},
        {"id": "2", "role": "assistant", "parts": [
            {"type": "step-start"}, {"type": "reasoning", "text": "thinkword"},
            {"type": "tool-search", "toolCallId": "c1", "state": "output-available", "input": {"query": "argword"}, "output": {"found": "resultword"}},
            {"type": "source-url", "url": "https://sourceword", "title": "t"},
            {"type": "text", "text": "assistantword"},
        ]},
    ]);
    let older = json!({"id": "chat", "messages": [
        {"id": "1", "role": "user", "content": "userword", "experimental_attachments": [{"name": "filename.txt", "url": "data:,x"}]},
        {"id": "2", "role": "assistant", "content": "assistantword", "parts": [
            {"type": "reasoning", "reasoning": "x", "details": [], "text": "thinkword"},
            {"type": "tool-invocation", "toolInvocation": {"toolCallId": "c1", "toolName": "search", "state": "result", "args": {"query": "argword"}, "result": "resultword"}},
            {"type": "source", "source": {"url": "https://sourceword"}},
            {"type": "text", "text": "assistantword"},
        ]},
    ]});
    for document in [parts, older] {
        let machine = Machine::new();
        let path = machine.put("chat.json", document.to_string());
        machine.import_named(&path);
        machine.holds(
            "ui-messages",
            None,
            &[
                ("userword", User),
                ("filename.txt", Attachment),
                ("thinkword", Thinking),
                ("search argword", ToolCall),
                ("resultword", ToolResult),
                ("sourceword", Attachment),
                ("assistantword", Assistant),
            ],
        );
        machine.pairs("argword", "resultword");
    }
}

/// Values that are valid JSON and that strict parsers refuse: half of a character, which JavaScript
/// writes if it cuts a text inside it, and a number beyond `f64`.
#[test]
fn values_that_strict_parsers_refuse_cost_nothing_in_any_format() {
    let odd = |json: Value| {
        let json = json.to_string();
        json.replace("ODD", "\\ud83d").replace("\"BIG\"", "1e400")
    };
    let text = |n: u8| json!({"type": "text", "text": format!("partword{n} ODD"), "more": "BIG"});
    let files = |name: &str| {
        let gemini = |kind: &str, n: u8| json!({"id": n.to_string(), "type": kind, "content": format!("partword{n} ODD"), "n": "BIG"});
        let turn = |kind: &str, n: u8| {
            json!({
                "type": kind, "uuid": format!("u{n}"), "parentUuid": format!("u{}", n - 1), "cwd": "/work/ODD",
                "message": {"role": kind, "content": [text(n)]}, "toolUseResult": "BIG", "summary": "ODD",
            })
        };
        let claude_ai = |n: u8| json!({"uuid": n.to_string(), "name": "n", "chat_messages": [{"uuid": "m", "sender": "human", "text": format!("partword{n} ODD"), "more": "BIG"}]});
        let chatgpt = |n: u8| {
            json!({
                "title": "n", "conversation_id": n.to_string(), "current_node": "m", "mapping": {
                    "m": {"id": "m", "parent": null, "children": [], "message": {
                        "id": "m", "author": {"role": "user"}, "weight": "BIG",
                        "content": {"content_type": "text", "parts": [format!("partword{n} ODD")]},
                    }},
                },
            })
        };
        match name {
            ".claude/projects/p/s.jsonl" => vec![(name.to_owned(), odd(turn("user", 1)) + "\n" + &odd(turn("assistant", 2)) + "\n")],
            ".codex/sessions/2026/01/31/rollout-1.jsonl" => {
                let line = |n: u8| odd(json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": [text(n)]}}));
                vec![(name.to_owned(), line(1) + "\n" + &line(2) + "\n")]
            }
            ".gemini/tmp/p/chats/session-1.json" => vec![(name.to_owned(), odd(json!({"sessionId": "s", "messages": [gemini("user", 1), gemini("gemini", 2)]})))],
            ".gemini/tmp/p/chats/session-1.jsonl" => {
                let head = odd(json!({"sessionId": "s", "projectHash": "p", "startTime": "ODD"}));
                vec![(name.to_owned(), [head, odd(gemini("user", 1)), odd(gemini("gemini", 2))].map(|line| line + "\n").concat())]
            }
            ".local/share/goose/sessions/s.jsonl" => {
                let head = odd(json!({"working_dir": "/work/ODD", "description": "d"}));
                let line = |n: u8| odd(json!({"role": "user", "created": 1, "content": [text(n)]}));
                vec![(name.to_owned(), [head, line(1), line(2)].map(|line| line + "\n").concat())]
            }
            ".local/share/opencode/storage/message/s" => [1, 2].into_iter().flat_map(|n| {
                let storage = ".local/share/opencode/storage";
                [
                    (format!("{name}/m{n}.json"), odd(json!({"id": format!("m{n}"), "role": "user", "more": "BIG"}))),
                    (format!("{storage}/part/m{n}/p{n}.json"), odd(text(n))),
                ]
            }).collect(),
            ".openhands/conversations/s" => [1, 2].into_iter().map(|n| {
                let event = json!({"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": [text(n)]}});
                (format!("{name}/events/event-0000{n}-x.json"), odd(event))
            }).chain([(format!("{name}/base_state.json"), odd(json!({"workspace": {"working_dir": "/work/ODD"}})))]).collect(),
            "claude.json" => vec![(name.to_owned(), odd(json!([claude_ai(1), claude_ai(2)])))],
            _ => vec![(name.to_owned(), odd(json!([chatgpt(1), chatgpt(2)])))],
        }
    };
    for name in [
        ".claude/projects/p/s.jsonl",
        ".codex/sessions/2026/01/31/rollout-1.jsonl",
        ".gemini/tmp/p/chats/session-1.json",
        ".gemini/tmp/p/chats/session-1.jsonl",
        ".local/share/goose/sessions/s.jsonl",
        ".local/share/opencode/storage/message/s",
        ".openhands/conversations/s",
        "claude.json",
        "conversations.json",
    ] {
        // A byte order mark, which editors on Windows write, changes nothing either.
        for mark in ["", "\u{feff}"] {
            let machine = Machine::new();
            for (file, text) in files(name) {
                machine.put(&file, format!("{mark}{text}"));
            }
            let report = match name.contains('/') {
                true => machine.import(),
                false => machine.import_named(&machine.path(name)),
            };
            assert!(report.skipped.is_empty(), "{name}: {report:#?}");
            for word in ["partword1", "partword2"] {
                assert!(
                    machine.only(word).message.text.ends_with('\u{fffd}'),
                    "{name}"
                );
            }
        }
    }
    let machine = Machine::new();
    let path = machine.path(".local/share/opencode/opencode.db");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "CREATE TABLE session(id TEXT, directory TEXT, title TEXT, time_created INTEGER);
         CREATE TABLE message(id TEXT, time_created INTEGER, data TEXT);
         CREATE TABLE part(id TEXT, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
         INSERT INTO session VALUES('s', '/work', 't', 1);",
    ).unwrap();
    for n in [1, 2] {
        let id = n.to_string();
        db.execute(
            "INSERT INTO message VALUES(?1, 1, ?2)",
            [&id, &odd(json!({"role": "user", "more": "BIG"}))],
        )
        .unwrap();
        db.execute(
            "INSERT INTO part VALUES(?1, ?1, 's', 1, 1, ?2)",
            [&id, &odd(text(n))],
        )
        .unwrap();
    }
    let report = machine.import();
    assert!(report.skipped.is_empty(), "{report:#?}");
    machine.only("partword1");
    machine.only("partword2");
}

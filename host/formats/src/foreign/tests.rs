#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};

use super::TABLE;
use crate::{Format, FormatError, read};

fn told(document: &str) -> Result<&'static str, String> {
    match read(document, None) {
        Err(FormatError::Foreign { what }) => Ok(what),
        Err(error) => Err(error.to_string()),
        Ok(read) => Err(format!("{} conversations", read.len())),
    }
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn samples() -> Vec<(&'static str, Vec<String>)> {
    let one = |value: Value| value.to_string();
    let qwen = json!({"uuid": "a", "parentUuid": null, "sessionId": "s", "type": "user",
            "message": {"role": "user", "parts": [{"text": "Hi"}]}});
    let langchain = json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema"], "kwargs": {"content": "Hi"}});
    let vercel = json!({"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]});
    let bedrock = json!({"role": "user", "content": [{"text": "Hi"}]});
    let call = json!({"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "n", "input": {}}}]});
    vec![
        ("a Qwen Code session", vec![lines(&[qwen.clone(), qwen])]),
        (
            "a Gemini CLI session",
            vec![
                one(
                    json!({"sessionId": "s", "projectHash": "h", "startTime": "t", "messages": [
                    {"id": "1", "timestamp": "t", "type": "user", "content": "Hi"},
                    {"id": "2", "timestamp": "t", "type": "gemini", "content": "Hello"}]}),
                ),
                lines(&[
                    json!({"sessionId": "s", "projectHash": "h", "startTime": "t"}),
                    json!({"id": "1", "type": "user", "content": [{"text": "Hi"}]}),
                ]),
            ],
        ),
        (
            "Gemini CLI's stream-json output",
            vec![lines(&[
                json!({"type": "init", "timestamp": "t", "session_id": "s", "model": "gemini"}),
                json!({"type": "message", "timestamp": "t", "role": "user", "content": "Hi"}),
                json!({"type": "tool_use", "timestamp": "t", "tool_name": "read", "tool_id": "1", "parameters": {}}),
                json!({"type": "result", "timestamp": "t", "status": "success"}),
            ])],
        ),
        (
            "output of `codex exec --json`",
            vec![lines(&[
                json!({"type": "thread.started", "thread_id": "t"}),
                json!({"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "Hi"}}),
            ])],
        ),
        (
            "a GitHub Copilot CLI session",
            vec![lines(&[
                json!({"type": "session.start", "data": {"sessionId": "s"}, "id": "1"}),
                json!({"type": "user.message", "data": {"content": "Hi"}, "id": "2"}),
            ])],
        ),
        (
            "a session of pi or OpenClaw",
            vec![lines(&[
                json!({"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"}),
                json!({"type": "message", "id": "1", "parentId": null, "message": {"role": "user", "content": "Hi"}}),
            ])],
        ),
        (
            "a Factory Droid session",
            vec![lines(&[
                json!({"type": "session_start", "id": "s", "title": "t"}),
                json!({"type": "message", "id": "1", "message": {"role": "user", "content": []}}),
            ])],
        ),
        (
            "LangChain messages",
            vec![
                one(json!({"messages": [langchain]})),
                one(json!([{"type": "human", "data": {"content": "Hi"}}])),
                one(
                    json!({"messages": [{"type": "human", "content": "Hi"}, {"type": "ai", "content": "Hello", "tool_calls": []}]}),
                ),
                lines(&[
                    json!({"type": "human", "data": {"content": "Hi"}}),
                    json!({"type": "ai", "data": {"content": "Hi"}}),
                ]),
            ],
        ),
        (
            "an opencode session",
            vec![one(
                json!({"info": {"id": "s"}, "messages": [{"info": {"role": "user"}, "parts": [{"type": "text", "text": "Hi"}]}]}),
            )],
        ),
        (
            "Pydantic AI messages",
            vec![one(
                json!([{"parts": [{"content": "Hi", "part_kind": "user-prompt"}], "kind": "request"}]),
            )],
        ),
        (
            "Vercel AI SDK UI messages",
            vec![
                one(json!({"id": "c", "messages": [vercel.clone()]})),
                one(json!([vercel])),
                one(json!([{"role": "assistant", "content": "", "toolInvocations": []}])),
            ],
        ),
        (
            "a Bedrock Converse request",
            vec![
                one(json!({"modelId": "m", "messages": [bedrock.clone()]})),
                one(json!({"messages": [bedrock.clone()]})),
                one(json!([bedrock.clone(), call.clone()])),
                lines(&[bedrock, call]),
            ],
        ),
        (
            "an OpenAI Assistants thread",
            vec![one(
                json!([{"object": "thread.message", "role": "user", "content": []}]),
            )],
        ),
        (
            "an answer from Anthropic, not a request",
            vec![one(
                json!({"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": null, "usage": {}}),
            )],
        ),
        (
            "an Alpaca data set",
            vec![
                one(json!([{"instruction": "Say", "input": "x", "output": "y"}])),
                one(json!({"instruction": "Say", "input": "x", "output": "y"})),
            ],
        ),
        (
            "LlamaIndex messages",
            vec![
                one(
                    json!([{"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "Hi"}]}]),
                ),
                one(
                    json!({"chat_store": {"store": {}}, "chat_store_key": "k", "token_limit": 3000, "class_name": "ChatMemoryBuffer"}),
                ),
            ],
        ),
        (
            "a Goose session",
            vec![
                lines(&[
                    json!({"working_dir": "/", "description": "d", "message_count": 2}),
                    json!({"role": "user", "created": 1, "content": [{"type": "text", "text": "Hi"}]}),
                ]),
                one(json!({"id": "s", "working_dir": "/", "conversation": []})),
                one(
                    json!([{"role": "assistant", "content": [{"type": "toolRequest", "id": "1", "toolCall": {}}]}]),
                ),
            ],
        ),
        (
            "a Zed thread",
            vec![
                one(
                    json!({"version": "0.3.0", "messages": [{"User": {"id": "1", "content": [{"Text": "Hi"}]}}]}),
                ),
                one(
                    json!({"version": "0.2.0", "messages": [{"id": 0, "role": "user", "segments": [{"type": "text", "text": "Hi"}]}]}),
                ),
            ],
        ),
        (
            "AutoGen messages",
            vec![
                one(
                    json!([{"source": "user", "models_usage": null, "content": "Hi", "type": "TextMessage"}]),
                ),
                one(
                    json!({"messages": [{"source": "user", "content": "Hi", "type": "UserMessage"}]}),
                ),
            ],
        ),
        (
            "Semantic Kernel messages",
            vec![one(
                json!([{"role": "user", "items": [{"$type": "TextContent", "text": "Hi"}]}]),
            )],
        ),
        (
            "an Amp thread",
            vec![one(
                json!({"v": 3, "id": "T", "messages": [{"role": "user", "messageId": 0, "content": [{"type": "text", "text": "Hi"}], "meta": {}}]}),
            )],
        ),
        (
            "a Letta agent file",
            vec![one(
                json!([{"id": "m", "message_type": "user_message", "role": "user", "content": "Hi"}]),
            )],
        ),
        (
            "a Cohere request",
            vec![one(
                json!([{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hello"}]),
            )],
        ),
        (
            "an A2A message",
            vec![one(
                json!([{"role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": "Hi"}]}]),
            )],
        ),
    ]
}

#[test]
fn each_format_is_refused_by_its_name() {
    let samples = samples();
    for (name, _) in TABLE {
        let of_row = samples.iter().filter(|(of, _)| *of == name);
        let mut of_row = of_row.flat_map(|(_, documents)| documents);
        // Without its row, it would be taken for one of the formats.
        let is_taken = |document: &String| {
            let mut formats = Format::ALL.into_iter();
            formats.any(|format| read(document.as_str(), Some(format)).is_ok())
        };
        assert!(of_row.any(is_taken), "nothing needs the row of {name}");
    }
    for (name, documents) in samples {
        for document in documents {
            assert_eq!(told(&document), Ok(name), "{document}");
        }
    }
    let Err(error) = read(r#"[{"role":"user","content":[{"text":"Hi"}]}]"#, None) else {
        panic!("it is no conversation")
    };
    let error = error.to_string();
    assert!(
        error.starts_with("this looks like a Bedrock Converse request; supported: openai, "),
        "{error}"
    );
}

#[test]
fn what_is_read_is_not_taken_for_another_programs() {
    for document in [
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}]),
        json!({"messages": [{"role": "user", "content": "Hi", "id": "1", "ts": 1}], "model": "m", "prompt": "x"}),
        json!({"messages": []}),
        json!({"input": "Hi", "instructions": "Be kind"}),
        json!({"input": [{"type": "message", "role": "user", "content": []}, {"type": "reasoning", "summary": []}]}),
        json!({"history": [{"role": "user", "content": "Hi", "message_type": "observation"}], "info": {}}),
        json!([{"role": "user", "content": "Hi", "message_type": "observation", "agent": "main"}]),
        json!({"simulations": []}),
        json!({"contents": [{"parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "Hi"}]}]}),
        json!([{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "Hi"}]}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}], "ts": 1}]),
    ] {
        let read = told(&document.to_string());
        assert!(read.is_err(), "{document}: {read:?}");
    }
    // A document that looks unsupported is still read if its format is named.
    let named = read(
        r#"[{"role":"user","content":"Hi","parts":[]}]"#,
        Some(Format::OpenAiChat),
    );
    assert_eq!(named.unwrap().len(), 1);
}

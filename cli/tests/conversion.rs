//! The output of `--to` is valid for the provider. Unusual conversations of each format are converted to each other
//! format and sent to a provider simulator that refuses what the provider refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{Read, Write};
use std::net::TcpStream;

use contexture::formats::{Format, RenderPlan, read};
use contexture_provider_simulator::{Simulator, signature};
use proptest::prelude::*;
use serde_json::{Value, json};

const FORMATS: [Format; 4] = [
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Anthropic,
    Format::Gemini,
];

/// One step of a conversation.
#[derive(Debug, Clone)]
enum Step {
    User(&'static str),
    Assistant(&'static str),
    /// A message with a role that only its provider, or no provider, knows.
    Role(&'static str, &'static str),
    /// Calls with these ids, of tools with these names.
    Calls(Vec<(&'static str, &'static str)>),
    /// The result of the call with this id, with a picture if the flag is set.
    Result(&'static str, &'static str, bool),
    /// A picture or document, from the user or the assistant.
    Picture(bool),
    Document(&'static str),
    /// The work of a hosted tool.
    Hosted,
    Thinking,
}

const IDS: [&str; 7] = [
    "call_1",
    "call_2",
    "",
    "fc|with:odd/signs é",
    "call_1",
    "an_id_that_is_much_longer_than_sixty_four_characters_which_is_the_most_that_providers_take",
    "toolu_01",
];
const NAMES: [&str; 4] = [
    "bash",
    "mcp.server/read file",
    "über",
    "a_name_that_is_much_longer_than_sixty_four_characters_which_is_the_most_there_can_be",
];
const ROLES: [&str; 4] = ["critic", "mcp_approval_request", "system", "developer"];
const TEXTS: [&str; 6] = [
    "said",
    "",
    "  \n",
    "half \\ud83d a pair",
    "whole \\ud83d\\ude00",
    "said \\\"again\\\" ",
];

fn step() -> impl Strategy<Value = Step> {
    let text = || prop::sample::select(&TEXTS[..]);
    let id = || prop::sample::select(&IDS[..]);
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        3 => text().prop_map(Step::User),
        3 => text().prop_map(Step::Assistant),
        1 => (prop::sample::select(&ROLES[..]), text())
            .prop_map(|(role, text)| Step::Role(role, text)),
        4 => prop::collection::vec((id(), name()), 1..3).prop_map(Step::Calls),
        5 => (id(), text(), any::<bool>()).prop_map(|(id, text, picture)| Step::Result(id, text, picture)),
        1 => any::<bool>().prop_map(Step::Picture),
        1 => prop::sample::select(vec!["text", "pdf", "link", "plain", "word", "id"]).prop_map(Step::Document),
        1 => Just(Step::Hosted),
        1 => Just(Step::Thinking),
    ]
}

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

/// A text as a JSON string. The constants hold escapes.
fn quoted(text: &str) -> String {
    let control = text.replace('\n', "\\n");
    format!("\"{control}\"")
}

fn chat(step: &Step) -> Option<String> {
    let url = format!("data:image/png;base64,{PNG}");
    let picture = json!({"type": "image_url", "image_url": {"url": url}});
    Some(match step {
        Step::User(text) => format!("{{\"role\":\"user\",\"content\":{}}}", quoted(text)),
        Step::Assistant(text) => format!("{{\"role\":\"assistant\",\"content\":{}}}", quoted(text)),
        Step::Role(role, text) => format!("{{\"role\":\"{role}\",\"content\":{}}}", quoted(text)),
        Step::Calls(calls) => {
            let call = |(id, name): &(&str, &str)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"a\": 1}"}});
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({"role": "assistant", "content": null, "tool_calls": calls}).to_string()
        }
        Step::Result(id, text, with) => {
            let id = json!(id);
            match with {
                false => format!(
                    "{{\"role\":\"tool\",\"tool_call_id\":{id},\"content\":{}}}",
                    quoted(text)
                ),
                true => format!(
                    "{{\"role\":\"tool\",\"tool_call_id\":{id},\"content\":[{{\"type\":\"text\",\"text\":{}}},{picture}]}}",
                    quoted(text)
                ),
            }
        }
        Step::Picture(users) => {
            let role = if *users { "user" } else { "assistant" };
            json!({"role": role, "content": [picture]}).to_string()
        }
        Step::Document(kind) => {
            let file = match *kind {
                "pdf" => {
                    json!({"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"})
                }
                "plain" => {
                    json!({"filename": "a.txt", "file_data": "data:text/plain;base64,bGV0IGl0IGJl"})
                }
                "word" => {
                    json!({"filename": "a.docx", "file_data": "data:application/msword;base64,bGV0IGl0IGJl"})
                }
                "id" => json!({"file_id": "file-123"}),
                _ => return None,
            };
            json!({"role": "user", "content": [{"type": "file", "file": file}]}).to_string()
        }
        Step::Thinking => {
            json!({"role": "assistant", "content": "so", "reasoning_content": "hm"}).to_string()
        }
        Step::Hosted => return None,
    })
}

fn responses(step: &Step) -> Vec<String> {
    let url = format!("data:image/png;base64,{PNG}");
    let picture = json!({"type": "input_image", "image_url": url});
    let message = |role: &str, text: &str| {
        format!(
            "{{\"type\":\"message\",\"role\":\"{role}\",\"content\":{}}}",
            quoted(text)
        )
    };
    match step {
        Step::User(text) => vec![message("user", text)],
        Step::Assistant(text) => vec![message("assistant", text)],
        Step::Role("mcp_approval_request", _) => vec![
            json!({"type": "mcp_approval_request", "id": "a", "name": "n", "server_label": "s", "arguments": "{}"}).to_string(),
        ],
        Step::Role(role, text) => vec![message(role, text)],
        Step::Calls(calls) => {
            let call = |(id, name): &(&str, &str)| json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{\"a\": 1}"}).to_string();
            calls.iter().map(call).collect()
        }
        Step::Result(id, text, with) => {
            let id = json!(id);
            vec![match with {
                false => format!("{{\"type\":\"function_call_output\",\"call_id\":{id},\"output\":{}}}", quoted(text)),
                true => format!(
                    "{{\"type\":\"function_call_output\",\"call_id\":{id},\"output\":[{{\"type\":\"input_text\",\"text\":{}}},{picture}]}}",
                    quoted(text)
                ),
            }]
        }
        Step::Picture(users) => {
            let role = if *users { "user" } else { "assistant" };
            vec![json!({"type": "message", "role": role, "content": [picture]}).to_string()]
        }
        Step::Document(kind) => {
            let file = match *kind {
                "pdf" => json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}),
                "plain" => json!({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,bGV0IGl0IGJl"}),
                "word" => json!({"type": "input_file", "filename": "a.docx", "file_data": "data:application/msword;base64,bGV0IGl0IGJl"}),
                "link" => json!({"type": "input_file", "file_url": "https://example.com/a.pdf"}),
                "id" => json!({"type": "input_file", "file_id": "file-123"}),
                _ => return Vec::new(),
            };
            vec![json!({"type": "message", "role": "user", "content": [file]}).to_string()]
        }
        Step::Hosted => vec![
            json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}).to_string(),
        ],
        Step::Thinking => vec![json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}).to_string()],
    }
}

fn anthropic(step: &Step) -> Option<String> {
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}});
    let user = |block: Value| json!({"role": "user", "content": [block]}).to_string();
    Some(match step {
        Step::User(text) => format!("{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":{}}}]}}", quoted(text)),
        Step::Assistant(text) => format!("{{\"role\":\"assistant\",\"content\":{}}}", quoted(text)),
        Step::Role("critic", text) => format!("{{\"role\":\"critic\",\"content\":{}}}", quoted(text)),
        Step::Role(..) => return None,
        Step::Calls(calls) => {
            let call = |(id, name): &(&str, &str)| json!({"type": "tool_use", "id": id, "name": name, "input": {"a": 1}});
            let mut blocks: Vec<Value> = calls.iter().map(call).collect();
            blocks.push(json!({"type": "text", "text": "and"}));
            json!({"role": "assistant", "content": blocks}).to_string()
        }
        Step::Result(id, text, with) => {
            let id = json!(id);
            let content = match with {
                false => quoted(text),
                true => format!("[{{\"type\":\"text\",\"text\":{}}},{picture}]", quoted(text)),
            };
            format!(
                "{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"first\"}},{{\"type\":\"tool_result\",\"tool_use_id\":{id},\"content\":{content}}}]}}"
            )
        }
        Step::Picture(true) => user(picture),
        Step::Picture(false) => json!({"role": "assistant", "content": [picture]}).to_string(),
        Step::Document(kind) => user(json!({"type": "document", "source": match *kind {
            "text" => json!({"type": "text", "media_type": "text/plain", "data": "let it be"}),
            "pdf" => json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}),
            "link" => json!({"type": "url", "url": "https://example.com/a.pdf"}),
            "id" => json!({"type": "file", "file_id": "file_1"}),
            _ => return None,
        }})),
        Step::Hosted => json!({"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "text", "text": "found"},
        ]})
        .to_string(),
        Step::Thinking => json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": signature("hm")},
            {"type": "text", "text": "so"},
        ]})
        .to_string(),
    })
}

/// Gemini's contents. Some calls have no id, and a result may have one that its call has not.
fn gemini(step: &Step) -> Option<String> {
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": PNG}});
    let content = |role: &str, parts: &[Value]| json!({"role": role, "parts": parts}).to_string();
    let said = |role: &str, text: &str| {
        format!(
            "{{\"role\":\"{role}\",\"parts\":[{{\"text\":{}}}]}}",
            quoted(text)
        )
    };
    let media = |mime: &str, data: &str| json!({"inlineData": {"mimeType": mime, "data": data}});
    Some(match step {
        Step::User(text) => format!("{{\"parts\":[{{\"text\":{}}}]}}", quoted(text)),
        Step::Assistant(text) => said("model", text),
        Step::Role("critic", text) => said("critic", text),
        Step::Role(..) => return None,
        Step::Calls(calls) => {
            let call = |(id, name): &(&str, &str)| match *id {
                "" => json!({"functionCall": {"name": name}}),
                id => {
                    json!({"functionCall": {"id": id, "name": name, "args": {"a": 1}}, "thoughtSignature": "c2ln"})
                }
            };
            content("model", &calls.iter().map(call).collect::<Vec<_>>())
        }
        Step::Result(id, text, with) => {
            let id = match *id {
                "" => String::new(),
                id => format!("\"id\":{},", json!(id)),
            };
            let parts = if *with {
                format!(",\"parts\":[{picture}]")
            } else {
                String::new()
            };
            format!(
                "{{\"role\":\"function\",\"parts\":[{{\"text\":\"first\"}},{{\"functionResponse\":{{{id}\"name\":\"bash\",\
                 \"response\":{{\"output\":{}}}{parts}}}}}]}}",
                quoted(text)
            )
        }
        Step::Picture(users) => content(if *users { "user" } else { "model" }, &[picture]),
        Step::Document(kind) => content(
            "user",
            &[match *kind {
                "text" | "plain" => media("text/plain", "bGV0IGl0IGJl"),
                "pdf" => media("application/pdf", "JVBERi0xLjQK"),
                "word" => media("application/msword", "bGV0IGl0IGJl"),
                "link" => json!({"fileData": {"fileUri": "https://example.com/a.pdf"}}),
                _ => {
                    json!({"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf"}})
                }
            }],
        ),
        Step::Hosted => content(
            "model",
            &[
                json!({"executableCode": {"language": "PYTHON", "code": "1"}}),
                json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}),
                json!({"text": "found"}),
            ],
        ),
        Step::Thinking => content(
            "model",
            &[
                json!({"text": "hm", "thought": true}),
                json!({"text": "so", "thoughtSignature": "c2ln"}),
            ],
        ),
    })
}

/// A body of this format with these steps between two user messages.
fn body(format: Format, steps: &[Step]) -> String {
    let all = [&[Step::User("begin")], steps, &[Step::User("go on")]].concat();
    let (key, items): (_, Vec<String>) = match format {
        Format::OpenAiChat => ("messages", all.iter().filter_map(chat).collect()),
        Format::OpenAiResponses => ("input", all.iter().flat_map(responses).collect()),
        Format::Gemini => ("contents", all.iter().filter_map(gemini).collect()),
        _ => ("messages", all.iter().filter_map(anthropic).collect()),
    };
    let names = NAMES.iter().map(|name| match format {
        Format::OpenAiChat => json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}),
        Format::OpenAiResponses => json!({"type": "function", "name": name, "parameters": {"type": "object"}}),
        Format::Gemini => json!({"functionDeclarations": [
            {"name": name, "parameters": {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}}}}]}),
        _ => json!({"name": name, "input_schema": {"type": "object"}}),
    });
    let tools = Value::Array(names.collect());
    let model = match format {
        Format::Gemini => "",
        _ => "\"model\":\"m\",",
    };
    format!(
        "{{{model}\"tools\":{tools},\"{key}\":[{}]}}",
        items.join(",")
    )
}

/// Asks for an answer. Returns the provider's message if it refuses.
fn refusal(provider: &Simulator, format: Format, document: &str) -> Option<String> {
    let mut body: Value = serde_json::from_str(document).unwrap();
    if format != Format::Gemini && body["model"].is_null() {
        // A body of Gemini's names no model, so its reader has to.
        body["model"] = json!("m");
    }
    let path = match format {
        Format::OpenAiChat => "/v1/chat/completions",
        Format::OpenAiResponses => "/v1/responses",
        Format::Gemini => "/v1beta/models/gemini-3-pro:generateContent",
        _ => {
            body["max_tokens"] = json!(1_000);
            "/v1/messages"
        }
    };
    let body = body.to_string();
    let base = provider.base_url();
    let host = base
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAuthorization: Bearer k\r\n\
         x-api-key: k\r\nanthropic-version: 2023-06-01\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (!answer.starts_with("HTTP/1.1 200")).then_some(answer)
}

/// Converts a body and checks that the provider accepts it.
fn check(provider: &Simulator, from: Format, to: Format, document: &str) {
    let write = |document: &str, from| {
        let conversation = read(document, Some(from)).unwrap().remove(0);
        let plan = RenderPlan::whole(conversation.messages().len());
        conversation.convert(&plan, to).unwrap()
    };
    let converted = write(document, from);
    let written = &converted.document;
    if let Some(refusal) = refusal(provider, to, written) {
        panic!("{from} to {to}: {refusal}\n\n{document}\n\n{written}");
    }
    let again = write(written, to);
    assert_eq!(
        again.document.trim_end(),
        written.trim_end(),
        "{from} to {to}, and again: {document}"
    );
    assert!(again.notes.is_empty(), "{:?} of {written}", again.notes);
    let changed = !document.contains(written.trim_end());
    assert!(
        changed || converted.notes.is_empty(),
        "{:?}",
        converted.notes
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_converted_is_taken(steps in prop::collection::vec(step(), 0..9)) {
        let provider = Simulator::start();
        for from in FORMATS {
            let document = body(from, &steps);
            for to in FORMATS {
                check(&provider, from, to, &document);
            }
        }
    }
}

/// Each kind of problem alone, with the note that the reader is given.
#[test]
fn each_kind_is_taken_and_what_became_of_it_is_said() {
    let calls = |id| Step::Calls(vec![(id, "bash")]);
    let result = |id| Step::Result(id, "done", false);
    let kinds = [
        (
            "directly after their calls",
            vec![calls("c"), Step::User("wait"), result("c")],
        ),
        ("without a result", vec![calls("c")]),
        ("a result without a call", vec![result("c")]),
        ("a call's id", vec![calls("fc|é"), result("fc|é")]),
        (
            "a call's id",
            vec![calls("c"), result("c"), calls("c"), result("c")],
        ),
        (
            "tool's name",
            vec![
                Step::Calls(vec![("c", "mcp.server/read file")]),
                result("c"),
            ],
        ),
        ("half of a surrogate pair", vec![Step::User("a \\udc00 b")]),
        (
            "only its provider can read",
            vec![Step::Role("mcp_approval_request", "")],
        ),
        (
            "a picture was moved into a user message",
            vec![calls("c"), Step::Result("c", "seen", true)],
        ),
        (
            "thinking was left out",
            vec![Step::Thinking, Step::Assistant("so")],
        ),
        ("a provider's own tool", vec![Step::Hosted]),
        ("cannot express", vec![Step::Document("id")]),
    ];
    let provider = Simulator::start();
    for (expected, steps) in kinds {
        let mut said = Vec::new();
        for from in FORMATS {
            let document = body(from, &steps);
            for to in FORMATS {
                check(&provider, from, to, &document);
                let conversation = read(document.as_str(), Some(from)).unwrap().remove(0);
                let plan = RenderPlan::whole(conversation.messages().len());
                said.extend(conversation.convert(&plan, to).unwrap().notes);
            }
        }
        assert!(
            said.iter().any(|note| note.contains(expected)),
            "{expected}: {said:?}"
        );
    }
}

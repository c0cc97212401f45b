//! Wire formats at the boundary a user sees: documents in, views and documents out.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::borrow::Cow;
use std::path::PathBuf;

use contexture_engine_api::{
    CLEARED_TOOL_OUTPUT, MISSING_RESULT, MessageId, MessageKind, MessageView, SUMMARY_END_MARK,
    SUMMARY_MARK, ShortArguments, ToolCallView,
};
use contexture_formats::PlanEntry::Message;
use contexture_formats::{
    Conversation, ExcerptBuilder, Format, FormatError, KnownCalls, PlanEntry, RenderPlan,
    RenderedItem, WireReading, excerpt, excerpt_with, item_lines, parse_messages, read, render_all,
    sealed_notice, sealed_summary, split,
};

/// The files of the real conversations beside the repository.
fn shared_files() -> Vec<(PathBuf, String)> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let mut files = Vec::new();
    for folder in ["claude-code", "tau2-bench", "swe-agent"] {
        for entry in std::fs::read_dir(data.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending != "md") && !path.ends_with("LICENSE") {
                let text = std::fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files
}

fn one(document: &str) -> Conversation {
    let mut all = read(document, None).unwrap_or_else(|error| panic!("{error}\n{document}"));
    assert_eq!(all.len(), 1);
    let one = all.remove(0);
    assert_wire_messages_are_read_alone(&one);
    assert_messages_can_be_copied(&one);
    if let Some(whole) = one.whole().unwrap() {
        assert_wire_messages_are_read_alone(&whole);
    }
    one
}

/// A wire message, its reading and the tools of the results in it give the same messages as the document, also with a
/// mask over them.
fn assert_wire_messages_are_read_alone(document: &Conversation) {
    fn mask(text: &str) -> Cow<'_, str> {
        Cow::Owned(text.replace("said", "hidden"))
    }
    let read = |raw: &str, reading: Option<&WireReading>, mut tools: KnownCalls| {
        if let Some(reading) = reading {
            return excerpt_with(document.format(), raw, reading, &mut tools).unwrap();
        }
        let lines = item_lines(raw);
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        excerpt(document.format(), &lines, &mut tools).unwrap()
    };
    let messages = document.messages();
    let mut at = 0;
    for wire in messages.chunk_by(|one, next| one.items == next.items) {
        let raw = document.raw(at);
        let tools: KnownCalls = (wire.iter())
            .filter_map(|message| Some((message.tool_call_id.clone()?, message.tool_name.clone()?)))
            .collect();
        let reading = document.wire_reading(at);
        let alone = read(raw, reading.as_ref(), tools.clone());
        let seen: Vec<_> = (alone.messages().iter())
            .map(|message| (message.identity, message.kind, &message.role, &message.name))
            .collect();
        let expected: Vec<_> = (wire.iter())
            .map(|message| (message.identity, message.kind, &message.role, &message.name))
            .collect();
        assert_eq!(seen, expected, "{raw}");
        if let Some(reading) = reading {
            assert_eq!(alone.raw(0), raw);
            let (masked, reading) = reading.masked(raw, mask);
            let masked = read(&masked, Some(&reading), tools);
            for (message, masked) in alone.messages().iter().zip(masked.messages()) {
                assert_eq!(message.text.replace("said", "hidden"), masked.text, "{raw}");
            }
        }
        at += wire.len();
    }
}

/// Copies of messages are the same messages with the same JSON and media, in whatever order they are copied.
fn assert_messages_can_be_copied(document: &Conversation) {
    let mut copy = ExcerptBuilder::new(document.format());
    let all: Vec<_> = document.messages().iter().enumerate().collect();
    let wires: Vec<_> = all
        .chunk_by(|one, next| one.1.items == next.1.items)
        .rev()
        .collect();
    let mut copied = 0;
    for wire in &wires {
        let (any, _) = wire.last().unwrap();
        assert_eq!(copy.add(document, *any), Some(copied));
        copied += wire.len();
    }
    assert_eq!(copy.add(document, all.len()), None);
    let copy = copy.finish();
    let seen = |from: &Conversation, at: usize| {
        let message = &from.messages()[at];
        let items: Vec<_> = message
            .items
            .clone()
            .map(|item| from.item(item).to_owned())
            .collect();
        let media: Vec<_> = message
            .media
            .iter()
            .map(|media| from.media_data(media).to_owned())
            .collect();
        (
            message.identity,
            message.kind,
            message.tool_name.clone(),
            items,
            media,
        )
    };
    let expected = wires
        .iter()
        .copied()
        .flatten()
        .map(|(at, _)| seen(document, *at));
    let copies = (0..copy.messages().len()).map(|at| seen(&copy, at));
    assert!(copies.eq(expected), "{}", document.document());
}

/// What an engine can tell of a message, but for its raw JSON.
#[derive(Debug, PartialEq)]
struct Seen {
    role: String,
    text: String,
    calls: Vec<(String, String, serde_json::Value)>,
    result_of: Option<(String, Option<String>)>,
    kind: MessageKind,
    thinks: bool,
    media: bool,
    error: bool,
}

/// What `see` makes of each message as engines see it.
fn views<T>(conversation: &Conversation, see: impl Fn(&MessageView<'_>) -> T) -> Vec<T> {
    let messages = conversation.messages().iter().enumerate();
    messages
        .map(|(at, message)| {
            let calls: Vec<_> = (message.calls.iter())
                .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
                .collect();
            see(&message.view(MessageId(at as u64 + 1), conversation.raw(at), &calls))
        })
        .collect()
}

fn seen(conversation: &Conversation) -> Vec<Seen> {
    views(conversation, |view| Seen {
        role: view.role().to_owned(),
        text: view.text().to_owned(),
        calls: view
            .tool_calls()
            .iter()
            .map(|call| {
                let arguments = serde_json::from_str(call.arguments())
                    .unwrap_or_else(|_| call.arguments().into());
                (call.id().to_owned(), call.name().to_owned(), arguments)
            })
            .collect(),
        result_of: view
            .tool_call_id()
            .map(|id| (id.to_owned(), view.tool_name().map(ToOwned::to_owned))),
        kind: view.kind(),
        thinks: view.has_thinking(),
        media: view.has_media(),
        error: view.is_error(),
    })
}

/// Replaces the ids of calls by numbers, in order, so that calls compare equal whatever their ids are.
fn number_calls(views: &mut [Seen]) {
    let mut numbers = std::collections::HashMap::new();
    let mut calls = 0;
    for view in views {
        for (id, ..) in &mut view.calls {
            calls += 1;
            let number = format!("call {calls}");
            numbers.insert(std::mem::replace(id, number.clone()), number);
        }
        if let Some((id, _)) = &mut view.result_of
            && let Some(number) = numbers.get(id)
        {
            id.clone_from(number);
        }
    }
}

fn roles(conversation: &Conversation) -> Vec<&str> {
    conversation
        .messages()
        .iter()
        .map(|message| message.role.as_str())
        .collect()
}

fn summary(text: &str) -> PlanEntry<'_> {
    PlanEntry::Summary {
        text,
        in_system_role: false,
    }
}

#[test]
fn a_summary_is_the_users_if_no_message_of_the_users_stays() {
    let summary = PlanEntry::Summary {
        text: "[CONTEXT COMPACTION] S",
        in_system_role: true,
    };
    let messages = r#"{"role":"user","content":"u"},{"role":"assistant","content":"a"}"#;
    for (format, list) in [
        (Format::OpenAiChat, "messages"),
        (Format::OpenAiResponses, "input"),
    ] {
        let document = one(&format!(r#"{{"{list}":[{messages}]}}"#));
        assert_eq!(document.format(), format);
        let roles = |entries| {
            let out = render(&document, entries);
            let split = split(&out, Some(format)).unwrap();
            let read = |raw: &&str| serde_json::from_str::<serde_json::Value>(raw).unwrap();
            let role = |raw: &&str| read(raw)["role"].as_str().unwrap().to_owned();
            split.messages.iter().map(role).collect::<Vec<_>>()
        };
        let both = roles(vec![summary, Message(0), Message(1)]);
        assert_eq!(both, ["system", "user", "assistant"]);
        assert_eq!(roles(vec![summary, Message(1)]), ["user", "assistant"]);
    }
}

fn render(document: &Conversation, entries: Vec<PlanEntry<'_>>) -> String {
    document.render(&window(entries)).unwrap()
}

fn window<'a>(entries: Vec<PlanEntry<'a>>) -> RenderPlan<'a> {
    RenderPlan {
        entries,
        system_note: None,
        own_summaries: false,
    }
}

const CHAT: &str = r#"{"model":"gpt-x","temperature":0.5,"messages":[
  {"role":"system","content":"Be kind."},
  {"role":"user","content":"list the files"},
  {"role":"assistant","content":"I look.","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"path\": \"/tmp\"}"}},{"id":"c2","type":"function","function":{"name":"cat","arguments":"{\"path\":\"/x\"}"}}],"x_unknown":{"a" : 1}},
  {"role":"tool","tool_call_id":"c1","content":"a.txt"},
  {"role":"tool","tool_call_id":"c2","content":"no such file"},
  {"role":"user","content":"thanks"},
  {"role":"assistant","content":"welcome","annotations":[]}
],"tools":[{"type":"function","function":{"name":"ls","description":"lists","parameters":{"type":"object"}}}],"user":"u1"}"#;

const ANTHROPIC: &str = r#"{"model":"claude-x","max_tokens":100,"system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}],"messages":[
  {"role":"user","content":"list the files"},
  {"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c1","name":"ls","input":{"path": "/tmp"}},{"type":"tool_use","id":"c2","name":"cat","input":{"path":"/x"}}]},
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"a.txt"},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"no such file"}]},{"type":"text","text":"thanks","cache_control":{"type":"ephemeral"}}]},
  {"role":"assistant","content":[{"type":"text","text":"welcome"}]}
],"tools":[{"name":"ls","description":"lists","input_schema":{"type":"object"}}]}"#;

const RESPONSES: &str = r#"{"model":"gpt-x","instructions":"Be kind.","input":[
  {"role":"user","content":"list the files"},
  {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},
  {"type":"function_call","call_id":"c1","id":"fc_1","name":"ls","arguments":"{\"path\": \"/tmp\"}"},
  {"type":"function_call","call_id":"c2","id":"fc_2","name":"cat","arguments":"{\"path\":\"/x\"}"},
  {"type":"function_call_output","call_id":"c1","output":"a.txt"},
  {"type":"function_call_output","call_id":"c2","output":"no such file"},
  {"role":"user","content":[{"type":"input_text","text":"thanks"}]},
  {"type":"message","role":"assistant","content":[{"type":"output_text","text":"welcome"}]}
],"tools":[{"type":"function","name":"ls","description":"lists","parameters":{"type":"object"}}]}"#;

const GEMINI: &str = r#"{"systemInstruction":{"parts":[{"text":"Be kind."}]},"contents":[
  {"role":"user","parts":[{"text":"list the files"}]},
  {"role":"model","parts":[{"text":"I look."},{"functionCall":{"id":"c1","name":"ls","args":{"path": "/tmp"}}},{"functionCall":{"id":"c2","name":"cat","args":{"path":"/x"}}}]},
  {"role":"user","parts":[{"functionResponse":{"id":"c1","name":"ls","response":{"output":"a.txt"}}},{"functionResponse":{"id":"c2","name":"cat","response":{"output":"no such file"}}},{"text":"thanks"}]},
  {"role":"model","parts":[{"text":"welcome"}]}
],"tools":[{"functionDeclarations":[{"name":"ls","description":"lists","parameters":{"type":"OBJECT"}}]}],"generationConfig":{"temperature":0.5}}"#;

#[test]
fn the_same_conversation_looks_the_same_in_every_format() {
    let chat = one(CHAT);
    assert_eq!(
        roles(&chat),
        ["user", "assistant", "tool", "tool", "user", "assistant"]
    );
    assert_eq!(chat.messages()[3].tool_name.as_deref(), Some("cat"));
    assert_eq!(chat.system(), Some("Be kind."));
    assert_eq!(chat.model(), Some("gpt-x"));
    for (document, format) in [
        (ANTHROPIC, Format::Anthropic),
        (RESPONSES, Format::OpenAiResponses),
        (GEMINI, Format::Gemini),
    ] {
        let other = one(document);
        assert_eq!(other.format(), format);
        assert_eq!(other.system(), Some("Be kind."));
        assert_eq!(seen(&other), seen(&chat), "{format}");
        let identities = |conversation: &Conversation| {
            conversation
                .messages()
                .iter()
                .map(|message| message.identity)
                .collect::<Vec<_>>()
        };
        assert_eq!(identities(&other), identities(&chat), "{format}");
    }
}

/// A document of each kind, and what to call it.
fn written_files() -> Vec<(PathBuf, String)> {
    [CHAT, ANTHROPIC, RESPONSES, GEMINI]
        .map(|text| (PathBuf::from(text), text.to_owned()))
        .into()
}

#[test]
fn conversions_keep_what_engines_see() {
    assert_conversions_keep_what_engines_see(written_files());
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn conversions_of_real_files_keep_what_engines_see() {
    assert_conversions_keep_what_engines_see(shared_files());
}

fn assert_conversions_keep_what_engines_see(files: Vec<(PathBuf, String)>) {
    let targets = [
        Format::OpenAiChat,
        Format::OpenAiResponses,
        Format::Anthropic,
        Format::Gemini,
        Format::ClaudeCode,
    ];
    for (path, text) in files {
        for conversation in read(text, None).unwrap() {
            let whole = RenderPlan::whole(conversation.messages().len());
            for to in targets {
                let converted = one(&conversation.convert(&whole, to).unwrap().document);
                assert_eq!(converted.format(), to, "{}", path.display());
                let mut expected = seen(&conversation);
                let mut found = seen(&converted);
                for view in expected.iter_mut().chain(&mut found) {
                    // Only a provider's own thinking goes back to it; only Anthropic says that a result
                    // is an error.
                    view.thinks = false;
                    view.error = false;
                }
                // Where nothing but thinking was said, nothing is left to say.
                let said = |view: &Seen| {
                    !view.text.trim().is_empty()
                        || !view.calls.is_empty()
                        || view.media
                        || view.role == "tool"
                };
                expected.retain(said);
                // A provider requires unique ids and a result for every call.
                number_calls(&mut expected);
                number_calls(&mut found);
                found.retain(|view| said(view) && view.text != MISSING_RESULT);
                if found[0].kind == MessageKind::Summary && expected[0].role == "assistant" {
                    // Anthropic takes the user first; what is put there says that nobody said it.
                    found.remove(0);
                }
                let about = format!("{} to {to}", path.display());
                assert_eq!(found.len(), expected.len(), "{about}");
                for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(found, expected, "message {at} of {about}");
                }
                if to != Format::ClaudeCode {
                    assert_eq!(converted.system(), conversation.system());
                }
            }
        }
    }
}

#[test]
fn an_unchanged_document_leaves_byte_for_byte() {
    assert_unchanged_leaves_byte_for_byte(written_files());
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn an_unchanged_real_file_leaves_byte_for_byte() {
    assert_unchanged_leaves_byte_for_byte(shared_files());
}

fn assert_unchanged_leaves_byte_for_byte(files: Vec<(PathBuf, String)>) {
    for (path, text) in files {
        let conversations = read(text.as_str(), None).unwrap();
        assert!(!conversations.is_empty());
        let windows: Vec<_> = conversations
            .iter()
            .map(|conversation| RenderPlan::whole(conversation.messages().len()))
            .collect();
        let parts: Vec<_> = conversations.iter().zip(&windows).collect();
        for (conversation, window) in parts.iter().take(5) {
            if conversation.format() == Format::ClaudeCode {
                let lines: std::collections::HashSet<_> = text.lines().collect();
                for index in 0..conversation.messages().len() {
                    let mut raw = conversation.raw(index).lines();
                    assert!(raw.all(|line| lines.contains(line)));
                }
                continue;
            }
            let about = path.display();
            assert!(conversation.render(window).unwrap() == text, "{about}");
            if conversation.system().is_some() {
                // Everything is put together anew, and nothing but the note differs.
                let mut noted = (*window).clone();
                noted.system_note = Some("{note}");
                let out = conversation.render(&noted).unwrap();
                let added = [
                    r"\n\n{note}",
                    r#",{"type":"text","text":"{note}"}"#,
                    r#",{"text":"{note}"}"#,
                ];
                let without = added.iter().fold(out, |out, note| out.replace(note, ""));
                assert!(without == text, "{about}");
            }
        }
        if parts[0].0.format() != Format::ClaudeCode {
            assert!(render_all(&parts).unwrap() == text, "{}", path.display());
        }
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn what_is_kept_of_a_changed_document_leaves_byte_for_byte() {
    let cleared = |index| PlanEntry::Replaced {
        index,
        text: Some(CLEARED_TOOL_OUTPUT),
        arguments: &[],
    };
    for (path, text) in shared_files() {
        let conversations = read(text, None).unwrap();
        if conversations[0].format() == Format::ClaudeCode {
            continue;
        }
        let windows: Vec<_> = conversations
            .iter()
            .map(|conversation| {
                let messages = conversation.messages().iter().enumerate();
                window(
                    messages
                        .map(|(index, message)| match message.role.as_str() {
                            "tool" => cleared(index),
                            _ => Message(index),
                        })
                        .collect(),
                )
            })
            .collect();
        let parts: Vec<_> = conversations.iter().zip(&windows).collect();
        let again = read(render_all(&parts).unwrap(), None).unwrap();
        assert_eq!(again.len(), conversations.len());
        for (new, old) in again.iter().zip(&conversations) {
            assert_eq!(
                new.messages().len(),
                old.messages().len(),
                "{}",
                path.display()
            );
            for (at, (a, b)) in new.messages().iter().zip(old.messages()).enumerate() {
                if b.role == "tool" {
                    assert_eq!(
                        (a.kind, a.text.as_str()),
                        (MessageKind::Replaced, CLEARED_TOOL_OUTPUT)
                    );
                    assert_eq!(a.tool_call_id, b.tool_call_id);
                } else {
                    assert_eq!(new.raw(at), old.raw(at), "{}", path.display());
                }
            }
        }
    }
}

#[test]
fn replacing_one_result_leaves_the_other_blocks_alone() {
    let conversation = one(ANTHROPIC);
    let mut entries: Vec<_> = (0..6).map(Message).collect();
    entries[3] = PlanEntry::Replaced {
        index: 3,
        text: Some("gone"),
        arguments: &[],
    };
    let arguments = [ShortArguments::new(1, r#"{"path":"…"}"#.to_owned())];
    entries[1] = PlanEntry::Replaced {
        index: 1,
        text: None,
        arguments: &arguments,
    };
    let expected = ANTHROPIC
        .replace(r#"[{"type":"text","text":"no such file"}]"#, r#""gone""#)
        .replace(r#"{"path":"/x"}"#, r#"{"path":"…"}"#);
    assert_eq!(render(&conversation, entries), expected);
}

#[test]
fn arguments_are_rewritten_in_the_form_they_had() {
    let arguments = [ShortArguments::new(0, r#"{"path":1}"#.to_owned())];
    let replaced = PlanEntry::Replaced {
        index: 1,
        text: None,
        arguments: &arguments,
    };
    for (document, old, new) in [
        (CHAT, r#""{\"path\": \"/tmp\"}""#, r#""{\"path\":1}""#),
        (ANTHROPIC, r#"{"path": "/tmp"}"#, r#"{"path":1}"#),
        (RESPONSES, r#""{\"path\": \"/tmp\"}""#, r#""{\"path\":1}""#),
        (GEMINI, r#"{"path": "/tmp"}"#, r#"{"path":1}"#),
    ] {
        let mut entries: Vec<_> = (0..6).map(Message).collect();
        entries[1] = replaced;
        let out = render(&one(document), entries);
        assert_eq!(out, document.replace(old, new));
    }
    let broken = [ShortArguments::new(0, "{")];
    let places = vec![PlanEntry::Replaced {
        index: 1,
        text: None,
        arguments: &broken,
    }];
    assert!(matches!(
        one(CHAT).render(&window(places)),
        Err(FormatError::Window(_))
    ));
}

/// A rendered text without the checksums of its summaries.
fn without_seals(text: &str) -> String {
    let mut pieces = text.split(SUMMARY_END_MARK);
    let first = pieces.next().unwrap();
    pieces.fold(first.to_owned(), |text, piece| {
        assert!(piece.starts_with(" #"), "{piece}");
        text + SUMMARY_END_MARK + &piece[" #01234567".len()..]
    })
}

#[test]
fn a_summary_takes_the_role_that_does_not_collide() {
    let turns = |roles: &[&str]| {
        let messages: Vec<_> = roles
            .iter()
            .enumerate()
            .map(|(at, role)| format!(r#"{{"role":"{role}","content":"m{at}"}}"#))
            .collect();
        format!(r#"{{"messages":[{}]}}"#, messages.join(","))
    };
    let summary = summary("## Goal");
    let mark = format!("{SUMMARY_MARK}\n## Goal");
    // Between two assistants the user's; between two users the assistant's.
    let document = one(&turns(&["assistant", "user", "assistant"]));
    let out = one(&render(&document, vec![Message(0), summary, Message(2)]));
    assert_eq!(roles(&out), ["assistant", "user", "assistant"]);
    assert_eq!(out.messages()[1].kind, MessageKind::Summary);
    assert_eq!(out.messages()[1].text, mark);
    let document = one(&turns(&["user", "assistant", "user"]));
    let out = one(&render(&document, vec![Message(0), summary, Message(2)]));
    assert_eq!(roles(&out), ["user", "assistant", "user"]);
    // Both collide: it joins the message after it, and leaves it again without a trace.
    let text = turns(&["user", "assistant", "user", "assistant"]);
    let document = one(&text);
    let out = render(&document, vec![Message(0), summary, Message(3)]);
    let joined = one(&out);
    assert_eq!(roles(&joined), ["user", "assistant", "assistant"]);
    assert_eq!(joined.messages()[1].kind, MessageKind::Summary);
    assert_eq!(joined.messages()[1].text, mark);
    assert_eq!(joined.messages()[2].text, "m3");
    let unsealed = without_seals(&out);
    assert!(unsealed.contains(&format!(r"## Goal\n\n{SUMMARY_END_MARK}\n\nm3")));
    let without = render(&joined, vec![Message(0), Message(2)]);
    assert_eq!(
        without,
        r#"{"messages":[{"role":"user","content":"m0"},{"role":"assistant","content":"m3"}]}"#
    );
    // The first message collides with the summary alone before it.
    let out = one(&render(&document, vec![summary, Message(2), Message(3)]));
    assert_eq!(roles(&out), ["user", "user", "assistant"]);
    assert_eq!(out.messages()[0].kind, MessageKind::Summary);
    assert_eq!(out.messages()[1].items, 0..1);
}

#[test]
fn a_joined_summary_is_replaced_by_the_next_one() {
    let text = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d \ud83d\ude00 \"q\""},{"role":"user","content":"e"}]}"#;
    let first = render(
        &one(text),
        vec![Message(0), summary("one"), Message(3), Message(4)],
    );
    let again = one(&first);
    assert_eq!(again.messages().len(), 4);
    let second = render(
        &again,
        vec![Message(0), summary("two"), Message(2), Message(3)],
    );
    let expected = without_seals(&first).replace(r"\none\n", r"\ntwo\n");
    assert_eq!(without_seals(&second), expected);
    // The earlier summary stays while the message that it joined leaves.
    let alone = render(&again, vec![Message(0), Message(1), Message(3)]);
    let alone = one(&alone);
    assert_eq!(roles(&alone), ["user", "assistant", "user"]);
    assert_eq!(alone.messages()[1].kind, MessageKind::Summary);
    assert_eq!(alone.messages()[1].text, format!("{SUMMARY_MARK}\none"));
}

#[test]
fn a_summary_joins_parts_calls_and_pictures() {
    // Parts stay parts; before calls alone it joins the user's message instead.
    let parts = r#"{"role":"assistant","content":[ {"type":"text","text":"x","k":1} , {"type":"text","text":"y"} ],"z":0}"#;
    let calls = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}]}"#;
    for (case, order, said) in [
        (parts, ["user", "assistant", "assistant"], "a"),
        (calls, ["user", "user", "assistant"], "a"),
        (calls, ["user", "user", "assistant"], ""),
    ] {
        let text = format!(
            r#"{{"messages":[{{"role":"user","content":"{said}"}},{{"role":"assistant","content":"b"}},{case}]}}"#
        );
        let document = one(&text);
        let places = vec![Message(0), summary("S"), Message(2)];
        let out = render(&document, places);
        let joined = one(&out);
        assert_eq!(roles(&joined), order, "{out}");
        assert_eq!(joined.messages()[1].kind, MessageKind::Summary);
        for at in [0, 2] {
            let identity = document.messages()[at].identity;
            assert_eq!(joined.messages()[at].identity, identity, "{out}");
        }
        let restored = render(&joined, vec![Message(0), Message(2)]);
        assert!(restored.contains(case), "{restored}");
    }
    // Nor does it join calls behind an earlier summary: the two make one message.
    let document = one(&format!(r#"[{{"role":"user","content":"a"}},{calls}]"#));
    let places = ["S", "T"].map(summary);
    let places = places.into_iter().chain([Message(1)]).collect();
    let out = one(&render(&document, places));
    assert_eq!(roles(&out), ["user", "user", "assistant"]);
    assert_eq!(out.messages()[0].items, out.messages()[1].items);
    assert!(
        out.messages()[..2]
            .iter()
            .all(|message| message.is_summary())
    );
    // A user's turn that is only a picture, at the head.
    let picture = r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}"#;
    let document = one(&format!(r#"[{{"role":"user","content":"a"}},{picture}]"#));
    let media = &document.messages()[1].media[0];
    assert_eq!(document.media_data(media), "AAAA");
    assert_eq!(
        (media.mime.as_deref(), media.detail.as_deref()),
        (Some("image/png"), Some("low"))
    );
    let out = render(&document, vec![summary("S"), Message(1)]);
    let joined = one(&out);
    assert_eq!(roles(&joined), ["user", "user"]);
    assert_eq!(joined.messages()[1].media.len(), 1);
    assert!(render(&joined, vec![Message(1)]).contains(picture));
}

#[test]
fn a_summary_joins_a_turn_of_items() {
    // Before a message item it stands in it; before calls alone it joins the user's message.
    for (drop, kept, summary_of, said) in [
        ("", "I look.", "assistant", "list the files"),
        ("message", "", "user", "list the files"),
        ("message", "", "user", ""),
    ] {
        let document = RESPONSES.replace("list the files", said);
        let lines: Vec<_> = document
            .lines()
            .filter(|line| drop.is_empty() || !line.contains("I look."))
            .collect();
        let document = one(&lines.join("\n"));
        let places = (1..6).map(Message);
        let places = [Message(0), summary("S")].into_iter().chain(places);
        let joined = one(&render(&document, places.collect()));
        let rest = ["assistant", "tool", "tool", "user", "assistant"];
        assert_eq!(roles(&joined)[..2], ["user", summary_of]);
        assert_eq!(roles(&joined)[2..], rest);
        assert_eq!(joined.messages()[1].kind, MessageKind::Summary);
        assert_eq!(joined.messages()[2].text, kept);
        assert_eq!(
            joined.messages()[2].identity,
            document.messages()[1].identity
        );
        let rest: Vec<_> = (0..7).filter(|at| *at != 1).map(Message).collect();
        let restored = one(&render(&joined, rest));
        let identities = |of: &Conversation| -> Vec<u128> {
            of.messages()
                .iter()
                .map(|message| message.identity)
                .collect()
        };
        assert_eq!(identities(&restored), identities(&document));
    }
}

#[test]
fn the_user_opens_a_conversation_where_the_provider_wants_it() {
    for document in [ANTHROPIC, GEMINI] {
        let document = one(document);
        let out = one(&render(&document, vec![Message(5)]));
        assert_eq!(roles(&out), ["user", "assistant"]);
        assert_eq!(out.messages()[0].kind, MessageKind::Summary);
    }
}

#[test]
fn thinking_is_never_joined() {
    let text = r#"{"system":"s","messages":[{"role":"user","content":"go"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"d"}]},{"role":"user","content":"e"}]}"#;
    let document = one(text);
    assert!(document.messages()[3].has_thinking);
    assert_eq!(document.messages()[3].thinking, "hm");
    let places = vec![Message(0), summary("S"), Message(3), Message(4)];
    let out = render(&document, places);
    let joined = one(&out);
    assert_eq!(roles(&joined), ["user", "user", "assistant", "user"]);
    assert_eq!(joined.messages()[1].kind, MessageKind::Summary);
    assert_eq!(joined.messages()[1].items, 0..1);
    assert!(out.contains(document.raw(3)));
    // Before a message that thinks, between users' turns of another kind, it is the user's own.
    let places = vec![summary("S"), Message(3), Message(4)];
    let out = one(&render(&document, places));
    assert_eq!(roles(&out), ["user", "assistant", "user"]);
}

#[test]
fn a_note_stands_in_the_system_prompt_once() {
    let note = "[Note: compacted]";
    let noted = |document: &str| {
        let conversation = one(document);
        let mut window = RenderPlan::whole(conversation.messages().len());
        window.system_note = Some(note);
        let once = conversation.render(&window).unwrap();
        let again = one(&once).render(&window).unwrap();
        assert_eq!(again, once, "the note was added twice");
        let found = one(&once);
        assert_eq!(found.format(), conversation.format());
        assert_eq!(seen(&found), seen(&conversation));
        assert_eq!(found.system().unwrap().matches(note).count(), 1);
        once
    };
    assert!(noted(CHAT).contains(r#""Be kind.\n\n[Note: compacted]""#));
    assert!(
        noted(ANTHROPIC)
            .contains(r#","cache_control":{"type":"ephemeral"}},{"type":"text","text":"[Note"#)
    );
    assert!(noted(RESPONSES).contains(r#""instructions":"Be kind.\n\n[Note: compacted]""#));
    noted(&ANTHROPIC.replace(
        r#"[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}]"#,
        r#""""#,
    ));
    assert!(noted(GEMINI).contains(r#"{"text":"Be kind."},{"text":"[Note"#));
    noted(&GEMINI.replace(r#"{"parts":[{"text":"Be kind."}]}"#, r#""""#));
    noted(r#"{"system_instruction":{},"contents":[{"parts":[{"text":"x"}]}]}"#);
    noted(r#"{"contents":[]}"#);
    noted(r#"{"messages":[{"role":"user","content":"x"}]}"#);
    noted(r#"{"messages":[]}"#);
    noted(r#"{"input":"hello"}"#);
    noted(r#"{"input":[{"role":"developer","content":"d"},{"role":"user","content":"x"}]}"#);
    noted("[{\"role\":\"user\",\"content\":\"x\"}]");
    noted("{\"role\":\"user\",\"content\":\"x\"}\n{\"role\":\"assistant\",\"content\":\"y\"}\n");
}

#[test]
fn a_stub_stands_where_the_format_wants_the_answer() {
    let stub = PlanEntry::Stub {
        message: 1,
        call: 0,
        text: "[lost]",
    };
    let places = || vec![Message(0), Message(1), stub, Message(3), Message(4)];
    for document in [CHAT, ANTHROPIC, RESPONSES, GEMINI] {
        let out = render(&one(document), places());
        let out = one(&out);
        assert_eq!(
            roles(&out),
            ["user", "assistant", "tool", "tool", "user"],
            "{}",
            out.format()
        );
        let answered = &out.messages()[2];
        assert_eq!(answered.tool_call_id.as_deref(), Some("c1"));
        assert_eq!(answered.tool_name.as_deref(), Some("ls"));
        assert_eq!(answered.text, "[lost]");
        if out.format() == Format::Anthropic {
            assert_eq!(
                answered.items,
                out.messages()[4].items,
                "all in one user message"
            );
        }
    }
    let odd = RESPONSES.replacen("function_call", "odd\\n_call", 1);
    let out = render(&one(&odd), places());
    assert!(out.contains(r#""type":"odd\n_call_output""#), "{out}");
    assert_eq!(one(&out).messages()[2].text, "[lost]");
    let orphan = window(vec![Message(0), stub]);
    assert!(matches!(
        one(CHAT).render(&orphan),
        Err(FormatError::Window(_))
    ));
}

#[test]
fn ids_that_are_used_again_pair_by_position() {
    let turn = |name: &str| {
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"same","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"same","content":"ok"}}"#
        )
    };
    let turns: Vec<_> = (0..99).map(|at| turn(&format!("tool{at}"))).collect();
    let document = one(&format!(r#"{{"messages":[{}]}}"#, turns.join(",")));
    for (at, pair) in document.messages().chunks(2).enumerate() {
        assert_eq!(
            pair[1].tool_name.as_deref(),
            Some(format!("tool{at}").as_str())
        );
    }
}

#[test]
fn a_call_that_was_left_without_a_result_takes_none_of_a_later_one() {
    let call = |n: usize| {
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"same","type":"function","function":{{"name":"tool{n}","arguments":"{{}}"}}}}]}}"#
        )
    };
    let result =
        |n: usize| format!(r#"{{"role":"tool","tool_call_id":"same","content":"result {n}"}}"#);
    let user = r#"{"role":"user","content":"go on"}"#.to_owned();
    // Which of the calls are answered.
    for answered in [
        [false, true, true],
        [true, false, true],
        [false, false, true],
    ] {
        let mut messages = vec![user.clone()];
        for (n, answered) in answered.into_iter().enumerate() {
            messages.push(call(n));
            messages.push(if answered { result(n) } else { user.clone() });
        }
        messages.push(user.clone());
        let document = one(&format!(r#"{{"messages":[{}]}}"#, messages.join(",")));
        let whole = RenderPlan::whole(document.messages().len());
        for to in [
            Format::Anthropic,
            Format::OpenAiChat,
            Format::OpenAiResponses,
            Format::Gemini,
        ] {
            let converted = one(&document.convert(&whole, to).unwrap().document);
            let results: Vec<_> = (converted.messages().iter())
                .filter_map(|message| Some((message.tool_name.clone()?, message.text.clone())))
                .collect();
            assert_eq!(results.len(), 3, "{to}: {results:?}");
            for (n, answered) in answered.into_iter().enumerate() {
                let (name, text) = &results[n];
                assert_eq!(*name, format!("tool{n}"), "{to}: {results:?}");
                assert_eq!(
                    *text == format!("result {n}"),
                    answered,
                    "{to}: {results:?}"
                );
            }
        }
    }
}

#[test]
fn results_of_parallel_calls_are_kept_if_their_ids_come_again() {
    let line = |uuid: String, parent: &str, message: serde_json::Value| {
        let role = message["role"].clone();
        serde_json::json!({"type": role, "uuid": uuid, "parentUuid": parent, "message": message})
    };
    for (calls, rounds) in [(1, 3), (2, 2), (3, 4)] {
        let mut lines = vec![line(
            "u".to_owned(),
            "",
            serde_json::json!({"role": "user", "content": "go"}),
        )];
        let mut last = "u".to_owned();
        let mut expected = Vec::new();
        for round in 0..rounds {
            for call in 0..calls {
                let uuid = format!("a{round}_{call}");
                let block = serde_json::json!({"type": "tool_use", "id": format!("Bash:{call}"), "name": "Bash", "input": {}});
                let message = serde_json::json!({"role": "assistant", "id": format!("m{round}"), "content": [block]});
                lines.push(line(uuid.clone(), &last, message));
                last = uuid;
            }
            for call in 0..calls {
                let (uuid, text) = (
                    format!("r{round}_{call}"),
                    format!("round {round} call {call}"),
                );
                let block = serde_json::json!({"type": "tool_result", "tool_use_id": format!("Bash:{call}"), "content": text});
                let message = serde_json::json!({"role": "user", "content": [block]});
                lines.push(line(uuid.clone(), &format!("a{round}_{call}"), message));
                last = uuid;
                expected.push(text);
            }
        }
        lines.push(line(
            "end".to_owned(),
            &last,
            serde_json::json!({"role": "user", "content": "bye"}),
        ));
        // A result on an abandoned branch is none of a call that was left without one.
        let call =
            serde_json::json!([{"type": "tool_use", "id": "Bash:0", "name": "Bash", "input": {}}]);
        let call = |id: &str| serde_json::json!({"role": "assistant", "id": id, "content": call});
        let result = serde_json::json!([{"type": "tool_result", "tool_use_id": "Bash:0", "content": "abandoned"}]);
        let abandoned = [
            lines[0].clone(),
            line("open".to_owned(), "u", call("m1")),
            line("x".to_owned(), "u", call("m2")),
            line(
                "y".to_owned(),
                "x",
                serde_json::json!({"role": "user", "content": result}),
            ),
            line(
                "z".to_owned(),
                "open",
                serde_json::json!({"role": "user", "content": "bye"}),
            ),
        ];
        let read_back = one(&joined(&abandoned));
        assert!(
            read_back
                .messages()
                .iter()
                .all(|message| message.text != "abandoned")
        );
        // A log that goes on elsewhere repeats lines.
        for repeated in [0, lines.len() - 1] {
            let all: Vec<_> = lines
                .iter()
                .chain(lines.iter().take(repeated))
                .cloned()
                .collect();
            let read = one(&joined(&all));
            let results = read
                .messages()
                .iter()
                .filter(|message| message.tool_call_id.is_some());
            let results: Vec<_> = results.map(|message| message.text.clone()).collect();
            assert_eq!(
                results, expected,
                "{calls} calls, {repeated} lines repeated"
            );
        }
        // The same lines as a list, as `jq -s` writes them, are the same conversation.
        let list = serde_json::Value::from(lines.clone()).to_string();
        for format in [None, Some(Format::ClaudeCode)] {
            let read = read(list.clone(), format).unwrap().remove(0);
            assert_eq!(read.messages().len(), one(&joined(&lines)).messages().len());
        }
        assert!(matches!(
            read(joined(&lines), Some(Format::Codex)),
            Err(FormatError::NotThis { .. })
        ));
    }
    let messages = r#"[{"role":"user","type":"message","uuid":"u","content":"a"}]"#;
    assert_eq!(roles(&one(messages)), ["user"]);
    for nothing in [
        r#"[{"type":"foo","x":1}]"#,
        r#"[{"type":"user","text":"hi"},{"type":"assistant","text":"yo"}]"#,
    ] {
        assert!(read(nothing, None).is_err(), "{nothing}");
    }
}

#[test]
fn the_spellings_of_calls_and_results() {
    let legacy = one(
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"},"tool_calls":null},{"role":"function","name":"f","content":"r"}]}"#,
    );
    assert_eq!(roles(&legacy), ["user", "assistant", "tool"]);
    assert_eq!(legacy.messages()[1].calls[0].name, "f");
    assert_eq!(legacy.messages()[2].tool_call_id.as_deref(), Some("f"));
    let custom = one(
        r#"{"input":[{"role":"user","content":"x"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"why"}],"encrypted_content":"abc"},{"type":"custom_tool_call","call_id":"c","name":"patch","input":"*** Begin"},{"type":"custom_tool_call_output","call_id":"c","output":"done"},{"type":"reasoning","summary":[]},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"query":"q"}},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"found"}]},{"type":"local_shell_call","call_id":"s","id":"ls_1","action":{"type":"exec","command":["ls"]}},{"type":"local_shell_call_output","call_id":"s","output":"a"}]}"#,
    );
    assert_eq!(
        roles(&custom),
        ["user", "assistant", "tool", "assistant", "tool"]
    );
    let messages = custom.messages();
    assert_eq!(messages[1].thinking, "why");
    assert_eq!(messages[1].calls[0].arguments, r#"{"input":"*** Begin"}"#);
    assert_eq!(messages[2].tool_name.as_deref(), Some("patch"));
    assert_eq!(messages[3].text, "found");
    assert!(messages[3].opaque.contains("ws_1") && messages[3].has_thinking);
    assert_eq!(messages[3].calls[0].name, "local_shell");
    let short = [ShortArguments::new(0, r#"{"input":"…"}"#.to_owned())];
    let mut entries: Vec<_> = (0..5).map(Message).collect();
    entries[1] = PlanEntry::Replaced {
        index: 1,
        text: None,
        arguments: &short,
    };
    let out = render(&custom, entries);
    assert_eq!(out, custom.document().replace("*** Begin", "…"));
}

#[test]
fn a_server_tool_stays_whole_with_its_message() {
    let document = one(
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"server_tool_use","id":"srv","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"srv","content":[]},{"type":"text","text":"b"}]}]}"#,
    );
    assert_eq!(roles(&document), ["user", "assistant"]);
    assert_eq!(document.messages()[1].text, "a\nb");
    assert!(document.messages()[1].calls.is_empty());
    assert!(
        document.messages()[1]
            .opaque
            .contains("web_search_tool_result")
    );
}

const LOG: &str = concat!(
    r#"{"type":"summary","summary":"t","leafUuid":"u9"}"#,
    "\n",
    r#"{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"first"},"uuid":"u1","timestamp":"2026-01-01T00:00:00.000Z","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u1","isSidechain":false,"type":"assistant","message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"}],"usage":{"input_tokens":1,"output_tokens":1}},"uuid":"u2","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u2","isSidechain":false,"type":"assistant","message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"tool_use","id":"c1","name":"Read","input":{}}],"usage":{"input_tokens":1,"cache_read_input_tokens":7,"cache_creation_input_tokens":2,"output_tokens":5}},"uuid":"u3","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u3","isSidechain":false,"type":"assistant","message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"tool_use","id":"c2","name":"Bash","input":{}}],"usage":{"input_tokens":1,"cache_read_input_tokens":7,"cache_creation_input_tokens":2,"output_tokens":9}},"uuid":"u4","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u3","isSidechain":false,"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r1"}]},"uuid":"u5","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u4","isSidechain":false,"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"r2","is_error":true}]},"uuid":"u6","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u6","isSidechain":true,"type":"user","message":{"role":"user","content":"a subagent"},"uuid":"x1","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u6","isSidechain":false,"type":"user","message":{"role":"user","content":"given up"},"uuid":"u7","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u6","isSidechain":false,"isMeta":true,"type":"user","message":{"role":"user","content":"caveat"},"uuid":"u8","sessionId":"s"}"#,
    "\n",
    r#"{"parentUuid":"u8","isSidechain":false,"type":"user","message":{"role":"user","content":"second"},"uuid":"u9","sessionId":"s"}"#,
    "\n",
);

#[test]
fn a_claude_code_log_is_its_live_branch() {
    let log = one(LOG);
    assert_eq!(
        roles(&log),
        ["user", "assistant", "tool", "tool", "system", "user"]
    );
    let messages = log.messages();
    assert_eq!(messages[1].calls.len(), 2);
    assert!(messages[1].has_thinking);
    assert_eq!(messages[1].items.len(), 3);
    assert_eq!(messages[4].text, "caveat");
    assert_eq!(messages[5].text, "second");
    assert!(messages[3].is_error);
    assert_eq!(messages[0].time_ms, Some(1_767_225_600_000));
    let usage = log.recorded_usage();
    assert_eq!(usage.len(), 1, "counted once for a message");
    assert_eq!(
        (usage[0].usage.input_tokens, usage[0].usage.output_tokens),
        (10, 9)
    );
    assert_eq!(usage[0].model.as_deref(), Some("claude-x"));
}

#[test]
fn a_compacted_claude_code_log_starts_at_its_last_boundary() {
    let log = one(LOG);
    let places = vec![
        summary("the first part"),
        Message(1),
        Message(2),
        Message(3),
        Message(4),
        Message(5),
    ];
    let out = log
        .convert(&window(places), Format::ClaudeCode)
        .unwrap()
        .document;
    assert!(out.starts_with(LOG), "the earlier lines stay");
    let resumed = one(&out);
    assert_eq!(
        roles(&resumed),
        ["user", "assistant", "tool", "tool", "system", "user"]
    );
    assert_eq!(resumed.messages()[0].kind, MessageKind::Summary);
    assert_eq!(resumed.messages()[1].identity, log.messages()[1].identity);
    let added: Vec<serde_json::Value> = out[LOG.len()..]
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(added[0]["subtype"], "compact_boundary");
    assert_eq!(added[1]["isCompactSummary"], true);
    for pair in added.windows(2) {
        assert_eq!(pair[1]["parentUuid"], pair[0]["uuid"]);
        assert!(!LOG.contains(pair[1]["uuid"].as_str().unwrap()));
    }
    // The summary keeps its mark in other formats.
    let whole = RenderPlan::whole(6);
    let anthropic = one(&resumed.convert(&whole, Format::Anthropic).unwrap().document);
    assert_eq!(anthropic.messages()[0].kind, MessageKind::Summary);
    assert_eq!(anthropic.messages()[1].thinking, "hm");
    let native = LOG
        .replace(
            "\"content\":\"second\"",
            "\"content\":\"This session is continued\"",
        )
        .replace(
            "\"uuid\":\"u9\"",
            "\"uuid\":\"u9\",\"isCompactSummary\":true",
        );
    let native = one(&native);
    assert_eq!(roles(&native), ["user"]);
    assert_eq!(native.messages()[0].kind, MessageKind::Summary);
    for to in [
        Format::OpenAiChat,
        Format::Anthropic,
        Format::OpenAiResponses,
        Format::ClaudeCode,
    ] {
        let out = one(&native.convert(&RenderPlan::whole(1), to).unwrap().document);
        assert_eq!(out.messages()[0].kind, MessageKind::Summary, "{to}");
    }
}

#[test]
fn a_live_log_is_read_up_to_its_cut_line() {
    let cut = &LOG[..LOG.len() - 40];
    let log = one(cut);
    assert_eq!(log.messages().last().unwrap().text, "caveat");
    assert!(
        log.warnings()[0].contains("cut off"),
        "{:?}",
        log.warnings()
    );
}

#[test]
fn a_line_of_a_log_that_cannot_be_read_is_left_out_and_named() {
    let log = one(&LOG.replacen("\"type\":\"user\"", "\"type\":user", 1));
    assert_eq!(
        log.messages()[0].role,
        "assistant",
        "the first line is lost"
    );
    assert_eq!(log.messages().last().unwrap().text, "second");
    let named = &log.warnings()[0];
    assert!(
        named.contains("line 2 ") && named.contains("column 47"),
        "{named}"
    );
    let damage = log.damage().unwrap().to_string();
    assert!(damage.starts_with("line 2, column 47:"), "{damage}");
    assert_eq!(one(LOG).damage(), None);
}

#[test]
fn a_chain_of_lines_that_is_damaged_loses_none_of_them() {
    let line = |at: usize| {
        let parent = at.checked_sub(1).map(|before| format!("u{before}"));
        let role = ["user", "assistant"][at % 2];
        serde_json::json!({
            "parentUuid": parent, "type": role, "uuid": format!("u{at}"),
            "message": {"role": role, "id": format!("msg_{at}"), "content": format!("said {at}")},
        })
    };
    for (damage, at, key, value) in [
        ("its own parent", 3, "parentUuid", "u3".into()),
        ("a parent behind it", 3, "parentUuid", "u5".into()),
        ("a parent that is a number", 3, "parentUuid", 3.into()),
        (
            "a parent that is a list",
            3,
            "parentUuid",
            serde_json::json!(["u2"]),
        ),
        ("a parent that is gone", 3, "parentUuid", "gone".into()),
        ("no id", 3, "uuid", serde_json::Value::Null),
        ("an id that is a number", 3, "uuid", 3.into()),
        ("an id that another has, too", 3, "uuid", "u5".into()),
    ] {
        let mut lines: Vec<_> = (0..7).map(line).collect();
        lines[at][key] = value;
        let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let read = one(&log);
        let said: Vec<_> = read
            .messages()
            .iter()
            .map(|message| message.text.as_str())
            .collect();
        let all: Vec<_> = (0..7).map(|at| format!("said {at}")).collect();
        assert_eq!(said, all, "{damage}");
        assert!(!read.warnings().is_empty(), "{damage}");
    }
    // A line that is there twice is no end of another branch.
    let lines: Vec<_> = (0..7).chain([3]).map(line).collect();
    let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let texts: Vec<_> = one(&log)
        .messages()
        .iter()
        .map(|message| message.text.clone())
        .collect();
    assert_eq!(
        texts,
        (0..7).map(|at| format!("said {at}")).collect::<Vec<_>>()
    );
    // Unless it says something else.
    let another = log.replacen("said 3", "said otherwise", 1);
    assert_eq!(one(&another).messages().len(), 8);
    // The first line has no parent.
    assert!(
        one(&format!("{}\n{}\n", line(0), line(1)))
            .warnings()
            .is_empty()
    );
}

#[test]
fn a_codex_log_is_read_from_its_last_compaction() {
    let log = concat!(
        r#"{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"x","instructions":"Be kind."}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:01Z","type":"turn_context","payload":{"model":"gpt-x"}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:02Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"old"}]}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:03Z","type":"compacted","payload":{"message":"what happened"}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:04Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:05Z","type":"response_item","payload":{"type":"reasoning","summary":[],"encrypted_content":"e"}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:05Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:06Z","type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":100,"cached_input_tokens":40,"output_tokens":9,"reasoning_output_tokens":3}}}}"#,
        "\n",
        r#"{"timestamp":"2026-01-01T00:00:07Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"ok"}}"#,
        "\n",
    );
    let log = one(log);
    assert_eq!(log.format(), Format::Codex);
    assert_eq!(
        (log.system(), log.model()),
        (Some("Be kind."), Some("gpt-x"))
    );
    // Codex continues with the user's messages and the summary.
    assert_eq!(roles(&log), ["user", "user", "user", "assistant", "tool"]);
    assert_eq!(log.messages()[0].text, "old");
    assert_eq!(log.messages()[1].kind, MessageKind::Summary);
    let whole = log.whole().unwrap().unwrap();
    assert_eq!(
        roles(&whole),
        ["user", "assistant", "user", "assistant", "tool"]
    );
    assert_eq!(whole.messages()[1].text, "what happened");
    let usage = log.recorded_usage();
    assert_eq!(usage.len(), 1);
    assert_eq!(
        (
            usage[0].index,
            usage[0].usage.input_tokens,
            usage[0].usage.cache_read_tokens
        ),
        (3, 100, 40)
    );
    let items = one(&log
        .convert(&RenderPlan::whole(5), Format::OpenAiResponses)
        .unwrap()
        .document);
    assert_eq!(roles(&items), ["user", "user", "user", "assistant", "tool"]);
    assert_eq!(items.messages()[1].kind, MessageKind::Summary);
    assert!(items.raw(3).contains("encrypted_content"));
}

/// LiteLLM passes Anthropic's figures on beside the whole prompt.
#[test]
fn cached_tokens_are_not_added_to_a_whole_prompt() {
    let chat = one(
        r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello","usage":{"prompt_tokens":5300,"completion_tokens":2,"cache_read_input_tokens":5000}}]}"#,
    );
    let usage = chat.recorded_usage()[0].usage;
    assert_eq!(
        (usage.input_tokens, usage.cache_read_tokens),
        (5_300, 5_000)
    );
}

#[test]
fn several_conversations_in_one_document() {
    let lines = format!(
        "{}\n{}\n",
        CHAT.replace('\n', ""),
        ANTHROPIC.replace('\n', "")
    );
    let both = read(lines.as_str(), None).unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(both[1].format(), Format::Anthropic);
    let places = window(vec![Message(0)]);
    let out = both[1].render(&places).unwrap();
    assert!(
        out.starts_with(&CHAT.replace('\n', "")),
        "the other line stays"
    );
    assert_eq!(read(out, None).unwrap()[1].messages().len(), 1);
}

#[test]
fn one_message_a_line_with_times() {
    let text = "{\"role\":\"user\",\"content\":\"a\",\"ts\":1767225600}\n{\"role\":\"assistant\",\"content\":\"\",\"ts\":1767225630,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"sh\",\"arguments\":\"{}\"}}]}\n{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"c\",\"tool_name\":\"sh\",\"ts\":1767225660.5}\n";
    let lines = one(text);
    assert_eq!(lines.format(), Format::MessageLines);
    assert_eq!(lines.messages()[2].time_ms, Some(1_767_225_660_500));
    let out = render(&lines, vec![summary("S"), Message(1), Message(2)]);
    assert_eq!(out.lines().count(), 3);
    assert!(out.ends_with(text.split_once('\n').unwrap().1));
}

#[test]
fn splitting_gives_the_raw_messages() {
    let body = split(CHAT, None).unwrap();
    assert_eq!(
        (body.format, body.messages.len(), body.system_messages.len()),
        (Format::OpenAiChat, 6, 1)
    );
    assert_eq!(body.model.as_deref(), Some("gpt-x"));
    let conversation = one(CHAT);
    for (at, raw) in body.messages.iter().enumerate() {
        assert_eq!(*raw, conversation.item(at));
    }
    let body = split(ANTHROPIC, None).unwrap();
    assert_eq!((body.format, body.messages.len()), (Format::Anthropic, 4));
    assert!(body.system.unwrap().starts_with('['));
    assert!(matches!(
        split(CHAT, Some(Format::OpenAiResponses)),
        Err(FormatError::NotThis { .. })
    ));
}

#[test]
fn an_error_names_the_place_the_cause_and_the_way_out() {
    let message =
        |document: &str, format: Option<Format>| read(document, format).unwrap_err().to_string();
    for (document, expected) in [
        ("", "line 1, column 1: the document is empty"),
        (
            "{\"messages\":[\n  {\"role\":\"user\",",
            "line 2, column 18: the text ends where a key was expected",
        ),
        (
            "{\"messages\":[{\"content\":\"x\"}]}",
            "message 0: it has no `role`; `user`, `assistant`, `tool` or `system` was expected",
        ),
        (
            "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":3}]}",
            "message 1: its `content` is a number; a string, a list of parts or null was expected",
        ),
        (
            "[1]",
            "message 0: a message object was expected, found a number",
        ),
    ] {
        let error = message(document, None);
        assert!(error.starts_with(expected), "{error}");
    }
    let error = message("{\"dialogue\":[]}", None);
    assert!(
        error.contains("`dialogue`")
            && error.contains("swe-agent needs")
            && error.contains("--format"),
        "{error}"
    );
    let error = message(CHAT, Some(Format::Tau2));
    assert!(
        error.contains("`tau2`") && error.contains("simulations"),
        "{error}"
    );
    let error = "gpt".parse::<Format>().unwrap_err().to_string();
    assert!(
        error.contains("claude-code") && error.contains("swe-agent"),
        "{error}"
    );
    assert!(matches!(
        one(CHAT).convert(&RenderPlan::whole(6), Format::Tau2),
        Err(FormatError::NoWriter(_))
    ));
    assert!(matches!(
        one(CHAT).render(&RenderPlan::whole(7)),
        Err(FormatError::Window(_))
    ));
}

#[test]
fn odd_documents_are_read() {
    assert!(one(r#"{"messages":[]}"#).messages().is_empty());
    let only_system = one(r#"{"messages":[{"role":"system","content":"s"}]}"#);
    assert_eq!(
        (only_system.messages().len(), only_system.system()),
        (0, Some("s"))
    );
    let left_out = only_system.convert(&RenderPlan::whole(0), Format::ClaudeCode);
    assert_eq!(left_out.unwrap().notes.len(), 1);
    let middle = one(r#"[{"role":"user","content":"a"},{"role":"developer","content":"b"}]"#);
    assert_eq!(roles(&middle), ["user", "system"]);
    let surrogate =
        r#"{"messages":[{"role":"user","content":"\ud800 \u0000"},{"role":"user","content":"b"}]}"#;
    let conversation = one(surrogate);
    assert_eq!(conversation.messages()[0].text, "\u{fffd} \0");
    let out = render(&conversation, vec![Message(0)]);
    assert!(out.contains(r#""\ud800 \u0000""#));
    let twice = one(r#"{"messages":[{"role":"user","content":"a","content":"b"}]}"#);
    assert_eq!(twice.messages()[0].text, "b");
    let orphans = one(
        r#"{"messages":[{"role":"tool","tool_call_id":"gone","content":"r"},{"role":"assistant","content":"","tool_calls":[{"id":"open","type":"function","function":{"name":"f","arguments":"{"}}]}]}"#,
    );
    assert_eq!(orphans.messages()[0].tool_name, None);
    assert_eq!(one("{\"input\":\"hello\"}").messages()[0].text, "hello");
    assert_eq!(
        one("\u{feff}[{\"role\":\"user\",\"content\":\"a\"}]")
            .messages()
            .len(),
        1
    );
}

mod any_document {
    use super::*;
    use proptest::prelude::*;

    const NATIVE: [&str; 6] = [CHAT, ANTHROPIC, RESPONSES, GEMINI, LOG, TAU2];
    const TAU2: &str = r#"{"simulations":[{"id":"s","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","name":"f","arguments":{"a":1},"requestor":"assistant"}]},{"id":"c","role":"tool","content":"r","error":false}]}]}"#;

    /// Reads, renders and converts with a window of every kind of place; nothing may panic, and what is
    /// rendered can be read again.
    fn exercise(document: &str, format: Option<Format>, picks: &[u8]) {
        let Ok(conversations) = read(document, format) else {
            return;
        };
        for conversation in &conversations {
            views(conversation, |view| view.text().len());
            let mut entries = Vec::new();
            for (index, message) in conversation.messages().iter().enumerate() {
                match picks.get(index % picks.len().max(1)).copied().unwrap_or(0) % 5 {
                    0 => entries.push(Message(index)),
                    1 => entries.push(PlanEntry::Replaced {
                        index,
                        text: Some("short"),
                        arguments: &[],
                    }),
                    2 => entries.push(summary("## Goal\n\"x\"")),
                    3 => {
                        entries.push(Message(index));
                        entries.extend((0..message.calls.len()).map(|call| PlanEntry::Stub {
                            message: index,
                            call,
                            text: "[lost]",
                        }));
                    }
                    _ => {}
                }
            }
            let places = RenderPlan {
                entries,
                system_note: Some("[Note]"),
                own_summaries: false,
            };
            let out = conversation.render(&places).unwrap();
            let again = read(out.as_str(), None).unwrap_or_else(|error| panic!("{error}\n{out}"));
            assert!(!again.is_empty());
            for to in [
                Format::OpenAiChat,
                Format::Anthropic,
                Format::OpenAiResponses,
                Format::Gemini,
                Format::ClaudeCode,
            ] {
                let out = conversation.convert(&places, to).unwrap().document;
                if !out.is_empty() && to != Format::ClaudeCode {
                    read(out.as_str(), Some(to)).unwrap_or_else(|error| panic!("{error}\n{out}"));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn damage_is_an_error_or_handled(
            which in 0..NATIVE.len(),
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[\\[\\]{}\",:0n\\\\u a]{0,4}"), 0..4),
            picks in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let mut text: Vec<char> = NATIVE[which].chars().collect();
            for (at, length, new) in cuts {
                let start = at.index(text.len().max(1)).min(text.len());
                let end = (start + length).min(text.len());
                text.splice(start..end, new.chars());
            }
            let text: String = text.into_iter().collect();
            exercise(&text, None, &picks);
            for format in Format::ALL {
                let _ = read(text.as_str(), Some(format));
            }
        }

        #[test]
        fn any_window_of_a_sound_document_renders_to_a_sound_one(
            which in 0..NATIVE.len(),
            picks in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            exercise(NATIVE[which], None, &picks);
        }

        /// Two neighbours have the same role in the output only if they were neighbours before, because many clients
        /// join such messages into one. This holds whatever is kept, shortened, left out, summarized or noted, and in
        /// every format.
        #[test]
        fn neighbours_of_one_role_are_never_made(
            fates in prop::collection::vec((any::<bool>(), 0..7u8), 2..14),
            format in 0..4usize,
            own in any::<bool>(),
        ) {
            let role = |at: usize, other: bool| if other != at.is_multiple_of(2) { "user" } else { "assistant" };
            let messages: Vec<_> = fates
                .iter()
                .enumerate()
                .map(|(at, (other, _))| {
                    // A user message comes first. Sometimes two messages of one role follow each other.
                    let role = if at == 0 { "user" } else { role(at, *other && at % 3 == 0) };
                    if format == 3 {
                        let role = role.replace("assistant", "model");
                        return format!(r#"{{"role":"{role}","parts":[{{"text":"m{at}."}}]}}"#);
                    }
                    format!(r#"{{"role":"{role}","content":"m{at}."}}"#)
                })
                .collect();
            let list = messages.join(",");
            let document = one(&match format {
                0 => format!(r#"{{"messages":[{{"role":"system","content":"s"}},{list}]}}"#),
                1 => format!(r#"{{"system":"s","messages":[{list}]}}"#),
                2 => format!(r#"{{"instructions":"s","input":[{list}]}}"#),
                _ => format!(r#"{{"contents":[{list}]}}"#),
            });
            let short: Vec<String> = (0..fates.len()).map(|at| format!("[Shortened to save context space] m{at}.")).collect();
            let mut entries: Vec<PlanEntry<'_>> = Vec::new();
            for (at, (_, fate)) in fates.iter().enumerate() {
                match fate {
                    0 | 1 => entries.push(Message(at)),
                    2 => entries.push(PlanEntry::Replaced { index: at, text: Some(&short[at]), arguments: &[] }),
                    3 => {
                        entries.push(Message(at));
                        entries.push(PlanEntry::Summary { text: "[NOTICE] n\n[notice #00000000]", in_system_role: true });
                    }
                    4 => {}
                    _ => entries.push(summary("S")),
                }
            }
            let plan = RenderPlan { own_summaries: own, ..window(entries) };
            let out = document.render(&plan).unwrap();
            let wire = split(&out, Some(document.format())).unwrap();
            fn texts(value: &serde_json::Value, into: &mut String) {
                match value {
                    serde_json::Value::String(text) => {
                        into.push(' ');
                        into.push_str(text);
                    }
                    serde_json::Value::Array(all) => all.iter().for_each(|one| texts(one, into)),
                    serde_json::Value::Object(all) => all.values().for_each(|one| texts(one, into)),
                    _ => {}
                }
            }
            let numbers = |value: &serde_json::Value| -> Vec<usize> {
                let mut all = String::new();
                texts(value, &mut all);
                let words = all.split(|letter: char| !letter.is_ascii_alphanumeric());
                words.filter_map(|word| word.strip_prefix('m')?.parse().ok()).collect()
            };
            let said: Vec<_> = wire.messages.iter().map(|raw| {
                let value: serde_json::Value = serde_json::from_str(raw).unwrap();
                (value["role"].as_str().unwrap_or_default().to_owned(), numbers(&value))
            }).collect();
            for pair in said.windows(2) {
                let were = pair[0].1.last().zip(pair[1].1.first()).is_some_and(|(one, next)| one + 1 == *next);
                prop_assert!(pair[0].0 != pair[1].0 || were, "{:?}: {}", pair, out);
            }
            let kept: Vec<usize> = (0..fates.len()).filter(|at| fates[*at].1 < 4).collect();
            let there: Vec<usize> = said.iter().flat_map(|(_, numbers)| numbers.clone()).collect();
            prop_assert_eq!(&there, &kept, "{}", out);
            // Anthropic's and Gemini's messages of one role are blocks of one message, which counts as one.
            let originals = one(&out).messages().iter().filter(|message| !message.is_summary()).count();
            prop_assert!(originals == kept.len() || (format % 2 == 1 && originals < kept.len()), "{}", out);
        }

        /// Messages that a client joined into one are separated again by their seals.
        #[test]
        fn what_is_joined_is_taken_apart(
            parts in prop::collection::vec((0..3u8, "[a-z]{1,9}( [a-z\\[\\]#]{0,9})?"), 1..6),
            joiner in prop::sample::select(vec![Some("\n\n"), Some("\n"), Some(" "), Some("\r\n"), None]),
            format in 0..4usize,
        ) {
            // Each text as it leaves the host, alone and sealed.
            let alone = |kind: u8, text: &str| {
                let document = one(r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}"#);
                let entry = PlanEntry::Summary { text, in_system_role: kind == 1 };
                let out = render(&document, vec![Message(0), Message(1), entry]);
                let last = split(&out, Some(document.format())).unwrap().messages[2].to_owned();
                let value: serde_json::Value = serde_json::from_str(&last).unwrap();
                value["content"].as_str().unwrap().to_owned()
            };
            let mut texts = Vec::new();
            let mut expected: Vec<(bool, String)> = Vec::new();
            for (kind, words) in &parts {
                let words = words.trim();
                if *kind == 0 {
                    // Two messages of the same speaker cannot be told apart once joined.
                    match expected.last_mut().filter(|(is_summary, _)| !is_summary) {
                        Some(_) => continue,
                        None => expected.push((false, words.to_owned())),
                    }
                    texts.push(words.to_owned());
                } else {
                    expected.push((true, format!("[CONTEXT COMPACTION]\n{words}")));
                    texts.push(alone(*kind, words));
                }
            }
            let content = match joiner {
                Some(joiner) if format == 3 => serde_json::json!([{"text": texts.join(joiner)}]),
                None if format == 3 => texts.iter().map(|text| serde_json::json!({"text": text})).collect(),
                Some(joiner) => serde_json::json!(texts.join(joiner)),
                None => {
                    let kind = if format == 2 { "input_text" } else { "text" };
                    texts.iter().map(|text| serde_json::json!({"type": kind, "text": text})).collect()
                }
            };
            let key = if format == 3 { "parts" } else { "content" };
            let message = serde_json::json!({"role": "user", key: content});
            let document = one(&match format {
                0 => format!(r#"{{"messages":[{message}]}}"#),
                1 => format!(r#"{{"system":"s","messages":[{message}]}}"#),
                2 => format!(r#"{{"input":[{message}]}}"#),
                _ => format!(r#"{{"contents":[{message}]}}"#),
            });
            let read: Vec<_> = document.messages().iter()
                .map(|message| (message.is_summary(), message.text.clone()))
                .collect();
            prop_assert_eq!(read, expected, "{}", message);
        }
    }
}

/// Three people and an assistant; what a tool's answer calls `name` is the tool.
const NAMED: [&str; 6] = [
    r#"{"role":"user","name":"ana","content":"ls, please"}"#,
    r#"{"role":"assistant","name":"helper","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"ls","arguments":"{}"}}]}"#,
    r#"{"role":"tool","name":"ls","tool_call_id":"c","content":"a.txt"}"#,
    r#"{"role":"function","name":"ls","content":"a.txt"}"#,
    r#"{"role":"user","name":"小明","content":[{"type":"text","text":"谢谢"}]}"#,
    r#"{"role":"user","name":"","content":"ok"}"#,
];
const NAMES: [&str; 6] = ["ana", "helper", "-", "-", "小明", "-"];

/// Who says each message; `-` where nobody is named.
fn names(conversation: &Conversation) -> Vec<String> {
    views(conversation, |view| view.name().unwrap_or("-").to_owned())
}

#[test]
fn who_says_it_is_seen_in_every_format_that_tells() {
    let listed = NAMED.join(",");
    let documents = [
        format!(r#"{{"messages":[{listed}]}}"#),
        format!(r#"{{"input":[{listed}]}}"#),
        format!(r#"{{"history":[{listed}]}}"#),
        format!(r#"{{"simulations":[{{"id":"1","messages":[{listed}]}}]}}"#),
        format!("{}\n", NAMED.join("\n")),
    ];
    for document in &documents {
        let conversation = one(document);
        assert_eq!(names(&conversation), NAMES, "{}", conversation.format());
        let tool = &conversation.messages()[2];
        assert_eq!(tool.tool_name.as_deref(), Some("ls"));
        // As it came, and with a message rewritten.
        let whole = RenderPlan::whole(6);
        assert_eq!(conversation.render(&whole).unwrap(), *document);
        let shorter = PlanEntry::Replaced {
            index: 0,
            text: Some("[Shortened to save context space] ls"),
            arguments: &[],
        };
        let rest = (1..6).map(Message);
        let entries = std::iter::once(shorter).chain(rest).collect();
        let out = one(&render(&conversation, entries));
        assert_eq!(names(&out), NAMES, "{}", conversation.format());
    }
    let lines = one(&documents[4]);
    let chat = lines
        .convert(&RenderPlan::whole(6), Format::OpenAiChat)
        .unwrap()
        .document;
    assert_eq!(names(&one(&chat)), NAMES);
}

#[test]
fn a_result_and_a_summary_in_a_users_message_are_not_said_by_the_user() {
    let document = r#"{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"ls","input":{}}]},{"role":"user","name":"ana","content":[{"type":"tool_result","tool_use_id":"c","content":"a.txt"},{"type":"text","text":"thanks"}]}]}"#;
    let conversation = one(document);
    assert_eq!(names(&conversation), ["-", "-", "-", "ana"]);
    let earlier = r#"{"role":"user","content":"go"},{"role":"assistant","content":"gone"}"#;
    let now =
        r#"{"role":"user","name":"ana","content":"and now?"},{"role":"assistant","content":"so"}"#;
    let summary = summary("earlier");
    let joined = one(&format!(r#"{{"messages":[{earlier},{now}]}}"#));
    let window = window(vec![summary, Message(2)]);
    let conversation = one(&joined.render(&window).unwrap());
    assert_eq!(conversation.messages().len(), 2);
    assert_eq!(names(&conversation), ["-", "ana"]);
}

#[test]
fn the_same_words_of_two_people_are_two_messages() {
    let identity = |raw: &str| {
        let message = parse_messages(Format::OpenAiChat, &[raw]).unwrap();
        message[0].identity
    };
    let said = |name: &str| identity(&format!(r#"{{"role":"user",{name}"content":"ok"}}"#));
    assert_ne!(said(r#""name":"ana","#), said(r#""name":"ben","#));
    assert_ne!(said(r#""name":"ana","#), said(""));
    assert_eq!(said(r#""name":null,"#), said(""));
}

/// What a provider compacted itself is none of the messages, and stays as it is; another provider could not read it.
#[test]
fn what_the_provider_compacted_itself_stays_as_it_is() {
    let anthropic = r#"{"system":"You help.","messages":[{"role":"user","content":"one"},
        {"role":"assistant","content":[ {"type":"compaction","content":"one"}, {"type":"text","text":"two"}]},
        {"role":"user","content":"three"},{"role":"assistant","content":"four"},{"role":"user","content":"five"}]}"#;
    let responses = r#"{"instructions":"You help.","input":[{"role":"user","content":"one"},
        {"type":"compaction", "encrypted_content":"opaque"},
        {"role":"user","content":"three"},{"role":"assistant","content":"four"},{"role":"user","content":"five"}]}"#;
    for document in [anthropic, responses] {
        let conversation = one(document);
        assert_eq!(roles(&conversation), ["user", "assistant", "user"]);
        let whole = conversation.render(&RenderPlan::whole(3)).unwrap();
        assert_eq!(whole, document);
        let summary = summary("earlier");
        let mut plan = window(vec![summary, Message(2)]);
        plan.system_note = Some("a note");
        let shorter = conversation.render(&plan).unwrap();
        let kept = &document[document.find(r#"{"role":"user","content":"one"}"#).unwrap()
            ..document
                .find(r#"{"role":"user","content":"three"}"#)
                .unwrap()];
        assert!(shorter.contains(kept.trim_end()), "{shorter}");
        assert!(
            !shorter.contains("three") && shorter.contains("five"),
            "{shorter}"
        );
        assert_eq!(one(&shorter).system(), Some("You help.\n\na note"));
        let elsewhere = conversation.convert(&RenderPlan::whole(3), Format::OpenAiChat);
        let error = elsewhere.unwrap_err().to_string();
        assert!(error.contains("its provider compacted"), "{error}");
    }
}

#[test]
fn what_the_host_wrote_between_two_messages_leaves_them_two() {
    let notice = sealed_notice("[n]");
    let summary = sealed_summary("s");
    for between in [&notice, &summary] {
        let texts = ["a", between, "b"];
        let parts = |kind: &str| {
            serde_json::json!(texts.map(|text| serde_json::json!({"type": kind, "text": text})))
        };
        let chat = [serde_json::json!(texts.join("\n\n")), parts("text")]
            .map(|content| serde_json::json!({"role": "user", "content": content}));
        let responses =
            serde_json::json!({"type": "message", "role": "user", "content": parts("input_text")});
        let gemini = texts.map(|text| serde_json::json!({"text": text}));
        let gemini = serde_json::json!({"role": "user", "parts": gemini});
        for (format, list, message) in [
            (Format::OpenAiChat, "messages", &chat[0]),
            (Format::OpenAiChat, "messages", &chat[1]),
            (Format::Anthropic, "messages", &chat[0]),
            (Format::Anthropic, "messages", &chat[1]),
            (Format::OpenAiResponses, "input", &responses),
            (Format::Gemini, "contents", &gemini),
        ] {
            let document = serde_json::json!({list: [message]}).to_string();
            let read_as = |document: &str| read(document, Some(format)).unwrap().remove(0);
            let document = read_as(&document);
            assert_eq!(document.messages().len(), 3, "{}", document.document());
            let out = render(&document, vec![Message(0), Message(2)]);
            let again = read_as(&out);
            let said = again.messages().iter().map(|message| &*message.text);
            assert_eq!(said.collect::<Vec<_>>(), ["a", "b"], "{out}");
        }
    }
}

#[test]
fn each_of_several_summaries_is_a_block_of_its_own_for_anthropic() {
    for next in ["user", "assistant"] {
        let document = format!(
            r#"{{"system":"s","messages":[{{"role":"user","content":"a"}},{{"role":"{next}","content":"b"}}]}}"#
        );
        let document = one(&document);
        assert_eq!(document.format(), Format::Anthropic);
        let places = vec![summary("one"), summary("two"), Message(1)];
        let out = render(&document, places);
        let body: serde_json::Value = serde_json::from_str(&out).unwrap();
        let blocks = body["messages"][0]["content"].as_array().unwrap();
        assert!(blocks[0]["text"].as_str().unwrap().contains("one"), "{out}");
        assert!(blocks[1]["text"].as_str().unwrap().contains("two"), "{out}");
        // They are read back, and leave without a trace.
        let again = one(&out);
        let summaries = again
            .messages()
            .iter()
            .filter(|message| message.is_summary());
        assert_eq!(summaries.count(), 2, "{out}");
        assert_eq!(
            again.messages()[2].identity,
            document.messages()[1].identity
        );
        // The first stays byte for byte where the second gives way.
        let places = vec![Message(0), summary("three"), Message(2)];
        let later = render(&again, places);
        let later: serde_json::Value = serde_json::from_str(&later).unwrap();
        let later = later["messages"][0]["content"].as_array().unwrap();
        assert_eq!(later[0], blocks[0]);
        assert!(later[1]["text"].as_str().unwrap().contains("three"));
        assert_eq!(later.get(2), blocks.get(2));
    }
}

/// A line of a Claude Code log with this message.
fn log_line(at: usize, role: &str, more: serde_json::Value) -> serde_json::Value {
    let parent = at.checked_sub(1).map(|before| format!("u{before}"));
    let mut line = serde_json::json!({
        "parentUuid": parent, "isSidechain": false, "sessionId": "s", "type": role, "uuid": format!("u{at}"),
        "message": {"role": role, "content": format!("said {at} – ä")},
    });
    for (key, value) in more.as_object().unwrap() {
        line[key] = value.clone();
    }
    line
}

fn joined(lines: &[serde_json::Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_an_agents_program_puts_in_is_nobodys_word() {
    let attached = |attachment: serde_json::Value| serde_json::json!({"type": "attachment", "message": null, "attachment": attachment});
    let text = serde_json::json!([{"type": "text", "text": "typed"}]);
    for (role, says, line) in [
        (
            "system",
            "said 2",
            serde_json::json!({"isMeta": true, "sourceToolUseID": "t"}),
        ),
        (
            "system",
            "said 2",
            serde_json::json!({"origin": {"kind": "task-notification"}}),
        ),
        (
            "user",
            "said 2",
            serde_json::json!({"origin": {"kind": "human"}}),
        ),
        (
            "system",
            "printed",
            serde_json::json!({"type": "system", "subtype": "local_command", "message": null, "content": "<local-command-stdout>printed"}),
        ),
        (
            "user",
            "typed",
            attached(
                serde_json::json!({"type": "queued_command", "prompt": "typed", "commandMode": "prompt"}),
            ),
        ),
        (
            "user",
            "typed",
            attached(serde_json::json!({"type": "queued_command", "prompt": text})),
        ),
        (
            "system",
            "typed",
            attached(
                serde_json::json!({"type": "queued_command", "prompt": "typed", "commandMode": "task-notification"}),
            ),
        ),
        (
            "system",
            "typed",
            attached(
                serde_json::json!({"type": "queued_command", "prompt": "typed", "isMeta": true}),
            ),
        ),
        (
            "system",
            "filename: /q\nsnippet: 1\tx",
            attached(
                serde_json::json!({"type": "edited_text_file", "filename": "/q", "snippet": "1\tx"}),
            ),
        ),
        (
            "system",
            "content: be kind",
            attached(
                serde_json::json!({"type": "nested_memory", "content": {"path": "/p", "content": "be kind"}}),
            ),
        ),
        (
            "system",
            "content: one\ncontent: two",
            attached(
                serde_json::json!({"type": "hook_additional_context", "content": ["one", "two"], "toolUseID": "t"}),
            ),
        ),
        (
            "system",
            "never seen",
            attached(
                serde_json::json!({"type": "a_kind_of_tomorrow", "deep": {"er": [{"text": "never seen"}]}}),
            ),
        ),
    ] {
        let lines = [
            log_line(0, "user", serde_json::json!({})),
            log_line(1, "assistant", serde_json::json!({})),
            log_line(2, "user", line.clone()),
            log_line(3, "assistant", serde_json::json!({})),
        ];
        let log = one(&joined(&lines));
        assert_eq!(
            roles(&log),
            ["user", "assistant", role, "assistant"],
            "{line}"
        );
        assert!(
            log.messages()[2].text.contains(says),
            "{line}: {}",
            log.messages()[2].text
        );
        assert_eq!(log.raw(2), lines[2].to_string(), "its own line");
        let whole = RenderPlan::whole(4);
        for to in [
            Format::OpenAiChat,
            Format::Anthropic,
            Format::OpenAiResponses,
        ] {
            let out = log.convert(&whole, to).unwrap().document;
            assert!(out.contains(says.lines().next().unwrap()), "{to}: {line}");
        }
        let out = log.convert(&whole, Format::ClaudeCode).unwrap().document;
        assert_eq!(roles(&one(&out)), roles(&log), "{line}");
        let shorter = PlanEntry::Replaced {
            index: 2,
            text: Some("short"),
            arguments: &[],
        };
        let plan = window(vec![Message(0), Message(1), shorter, Message(3)]);
        let out = one(&log.convert(&plan, Format::ClaudeCode).unwrap().document);
        assert_eq!(
            (roles(&out), out.messages()[2].text.as_str()),
            (roles(&log), "short"),
            "{line}"
        );
    }
    let picture = serde_json::json!({"type": "file", "filename": "p.png", "content": {"type": "image", "file": {"base64": "iVBORw0KGgo=", "type": "image/png"}}});
    let lines = [
        log_line(0, "user", serde_json::json!({})),
        log_line(1, "user", attached(picture)),
    ];
    let log = one(&joined(&lines));
    let message = &log.messages()[1];
    assert_eq!(
        (message.media.len(), log.media_data(&message.media[0])),
        (1, "iVBORw0KGgo=")
    );
    assert!(!message.text.contains("iVBOR"), "a picture is no text");
    for left_out in [
        serde_json::json!({"isApiErrorMessage": true}),
        serde_json::json!({"isVisibleInTranscriptOnly": true}),
        attached(serde_json::json!({"type": "queued_command"})),
        attached(serde_json::json!({"type": "empty", "count": 3})),
    ] {
        let lines = [
            log_line(0, "user", serde_json::json!({})),
            log_line(1, "user", left_out.clone()),
        ];
        assert_eq!(one(&joined(&lines)).messages().len(), 1, "{left_out}");
    }
}

#[test]
fn what_stands_between_a_call_and_its_result_stands_behind_it() {
    let call = serde_json::json!({"message": {"role": "assistant", "id": "m", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]}});
    let result = serde_json::json!({"message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}});
    let hook = serde_json::json!({"type": "attachment", "message": null, "attachment": {"type": "hook_additional_context", "content": "hooked"}});
    let lines = [
        log_line(0, "user", serde_json::json!({})),
        log_line(1, "assistant", call),
        log_line(2, "user", hook),
        log_line(3, "user", result),
        log_line(4, "assistant", serde_json::json!({})),
    ];
    assert_eq!(
        roles(&one(&joined(&lines))),
        ["user", "assistant", "tool", "system", "assistant"]
    );
    assert_eq!(
        roles(&one(&joined(&lines[..3]))),
        ["user", "assistant", "system"],
        "and is not lost"
    );
}

#[test]
fn a_subagents_log_reads_back_whole() {
    let of_agent = serde_json::json!({"isSidechain": true, "agentId": "a1"});
    let lines: Vec<_> = (0..6)
        .map(|at| log_line(at, ["user", "assistant"][at % 2], of_agent.clone()))
        .collect();
    let log = one(&joined(&lines));
    let summary = summary("the first part");
    let plan = window(vec![summary, Message(3), Message(4), Message(5)]);
    let out = log.convert(&plan, Format::ClaudeCode).unwrap().document;
    let again = one(&out);
    assert_eq!(roles(&again), ["user", "assistant", "user", "assistant"]);
    assert_eq!(again.messages()[0].kind, MessageKind::Summary);
    for line in out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["isSidechain"], &line["agentId"]),
            (&true.into(), &"a1".into()),
            "{line}"
        );
    }
}

#[test]
fn a_damaged_line_costs_itself_alone() {
    let lines: Vec<String> = (0..7)
        .map(|at| log_line(at, ["user", "assistant"][at % 2], serde_json::json!({})).to_string())
        .collect();
    let said = |log: &[u8]| {
        let read = contexture_formats::read_bytes(log.to_vec(), None)
            .unwrap()
            .remove(0);
        let texts: Vec<usize> = read
            .messages()
            .iter()
            .map(|message| {
                let at = message
                    .text
                    .trim_start_matches("said ")
                    .split(' ')
                    .next()
                    .unwrap();
                at.parse().unwrap()
            })
            .collect();
        (texts, read.damage().is_some(), read.warnings().concat())
    };
    let all = |without: usize| (0..7).filter(|at| *at != without).collect::<Vec<_>>();
    // Half of line 3 before line 4, cut at any byte.
    for cut in 1..lines[3].len() {
        let mut log: Vec<u8> = lines[..3].join("\n").into_bytes();
        log.push(b'\n');
        log.extend(&lines[3].as_bytes()[..cut]);
        log.extend(lines[4..].join("\n").as_bytes());
        let (texts, is_damaged, warnings) = said(&log);
        assert_eq!(texts, all(3), "cut at {cut}");
        assert!(
            is_damaged && warnings.contains("line 4 "),
            "cut at {cut}: {warnings}"
        );
    }
    for at in 0..7 {
        // An invalid UTF-8 byte in each of the lines, with NULs before it.
        let mut broken: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
        let place = lines[at].find("said").unwrap();
        broken[at][place] = 0xff;
        let (texts, is_damaged, warnings) = said(&broken.join(&b'\n'));
        assert_eq!((texts, is_damaged), (all(at), true), "line {at}");
        assert!(
            warnings.contains(&format!("line {} ", at + 1)) && warnings.contains("UTF-8"),
            "{warnings}"
        );
        let mut nulls = lines.clone();
        nulls[at].insert_str(0, &"\0".repeat(5_000));
        let (texts, is_damaged, _) = said(nulls.join("\n").as_bytes());
        assert_eq!((texts, is_damaged), (all(7), true), "NULs before line {at}");
    }
    // Cut inside a character at the end.
    let log = lines.join("\n");
    let cut = log.rfind('ä').unwrap() + 1;
    let (texts, is_damaged, warnings) = said(&log.as_bytes()[..cut]);
    assert_eq!((texts, is_damaged), (all(6), true));
    assert!(warnings.contains("cut off"), "{warnings}");
    // A document that is not a log is refused.
    let body = b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}".to_vec();
    let error = contexture_formats::read_bytes(body, None).unwrap_err();
    assert!(
        error.to_string().starts_with("byte 39 is not UTF-8"),
        "{error}"
    );
}

#[test]
fn a_log_is_recovered_in_linear_time() {
    let line = log_line(0, "user", serde_json::json!({})).to_string();
    for unit in [
        "{\"",
        "\0",
        "{\"type\":",
        "{\"type\":\"user\",\"message\":{\"role\"",
        "}{",
        "\"",
        "{\"a\":{",
    ] {
        let log = format!("{line}\n{}\n{line}\n", unit.repeat(2_000_000 / unit.len()));
        let began = std::time::Instant::now();
        let _ = read(log, None);
        assert!(
            began.elapsed().as_secs() < 20,
            "{unit:?}: {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn a_compacted_log_is_read_whole_beside_its_window() {
    let boundary = |logical: &str, metadata: serde_json::Value| {
        serde_json::json!({
        "parentUuid": null, "logicalParentUuid": logical, "type": "system", "subtype": "compact_boundary",
        "message": null, "compactMetadata": metadata})
    };
    let summary = serde_json::json!({"isCompactSummary": true, "isVisibleInTranscriptOnly": true});
    let texts = |conversation: &Conversation| -> Vec<String> {
        let said = conversation.messages().iter().map(|message| {
            let at = message
                .text
                .trim_start_matches("said ")
                .split(' ')
                .next()
                .unwrap();
            format!("{}{at}", &message.role[..1])
        });
        said.collect()
    };
    let segment = |anchor: &str| serde_json::json!({"preservedSegment": {"headUuid": "u2", "anchorUuid": anchor, "tailUuid": "u3"}});
    let messages = |anchor: &str| serde_json::json!({"preservedMessages": {"anchorUuid": anchor, "uuids": ["u2", "u3"]}});
    for (metadata, goes_on_behind, window) in [
        (serde_json::json!({}), "u5", vec!["u5", "u6", "a7"]),
        (segment("u5"), "u3", vec!["u5", "u2", "a3", "u6", "a7"]),
        (segment("u5"), "u5", vec!["u5", "u2", "a3", "u6", "a7"]),
        (segment("u4"), "u3", vec!["u2", "a3", "u5", "u6", "a7"]),
        (messages("u5"), "u3", vec!["u5", "u2", "a3", "u6", "a7"]),
    ] {
        let mut lines: Vec<_> = (0..4)
            .map(|at| log_line(at, ["user", "assistant"][at % 2], serde_json::json!({})))
            .collect();
        lines.push(log_line(4, "system", boundary("u3", metadata.clone())));
        lines.push(log_line(5, "user", summary.clone()));
        lines.push(log_line(
            6,
            "user",
            serde_json::json!({"parentUuid": goes_on_behind}),
        ));
        lines.push(log_line(7, "assistant", serde_json::json!({})));
        let log = one(&joined(&lines));
        assert_eq!(texts(&log), window, "{metadata}");
        assert!(
            log.warnings().is_empty(),
            "{metadata}: {:?}",
            log.warnings()
        );
        let whole = log.whole().unwrap().unwrap();
        assert_eq!(
            texts(&whole),
            ["u0", "a1", "u2", "a3", "a5", "u6", "a7"],
            "{metadata}"
        );
        assert_eq!(whole.messages()[4].name.as_deref(), Some("compaction"));
        assert!(
            whole
                .messages()
                .iter()
                .all(|message| message.kind == MessageKind::Original)
        );
        assert_eq!(
            texts(&log.uncompacted().unwrap().unwrap()),
            ["u0", "a1", "u2", "a3", "u6", "a7"]
        );
        assert_eq!(log.document(), joined(&lines));
    }
    assert!(one(LOG).whole().unwrap().is_none(), "it is whole");
}

/// Anthropic takes no request that begins with an assistant message, so a removed beginning leaves a user message.
#[test]
fn an_assistant_message_leads_only_if_it_led_before() {
    let said = [
        r#"{"role":"assistant","content":"done"}"#,
        r#"{"role":"user","content":"more"}"#,
    ];
    let kept = excerpt(Format::Anthropic, &said, &mut KnownCalls::default()).unwrap();
    let leaves = |first: usize| {
        let items = kept
            .outgoing(&RenderPlan::whole(2), &|item| first + item)
            .unwrap();
        let text = |item| match item {
            RenderedItem::Original(index) => kept.item(index).to_owned(),
            RenderedItem::New { text, .. } => text,
        };
        items.into_iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(leaves(0), said);
    let [opening, rest @ ..] = leaves(7).try_into().map(|all: [String; 3]| all).unwrap();
    assert!(
        opening.contains(r#""role":"user""#) && opening.contains("were removed"),
        "{opening}"
    );
    assert_eq!(rest, said);
}

#[test]
fn a_reference_to_an_item_is_no_message() {
    let body =
        r#"{"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"msg_1"}]}"#;
    let error = read(body.to_owned(), None).unwrap_err().to_string();
    assert!(
        error.contains("message 1") && error.contains("`store: false`"),
        "{error}"
    );
}

//! The tools as an agent meets them: their answers stay within their size, whatever is in them, and lead on
//! to all the rest; they look into no session that is not open to them; their errors say what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::sync::Arc;

use contexture_engine_api::{
    Committed, CompressOrder, CompressRequest, ContextEngine, Cut, Delivery, EngineError,
    EngineFactory, MessageId, MessageView, Outcome, StoreCommand, ToolCall, ToolCallView,
    WindowState,
};
use contexture_lcm::preview::preview;
use contexture_lcm::store::{FILE_NAME, Source};
use contexture_lcm::{Lcm, Store, StoreSettings};
use contexture_testkit::{MODEL_NAME, ScriptedHost};
use serde_json::{Value, json};

/// Counts like a tokenizer does, and a little more: letters by four, signs by two, each character of
/// another script by itself.
fn tokens(text: &str) -> u64 {
    let (mut count, mut run, mut kind) = (0, 0, 0);
    for c in text.chars().chain(['\0']) {
        let next = match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => 4,
            '\0' | ' ' => 0,
            '!'..='~' => 2,
            _ => 1,
        };
        if next != kind {
            count += u64::div_ceil(run, u64::max(kind, 1));
            (run, kind) = (0, next);
        }
        run += u64::from(next > 0);
    }
    count
}

/// A host whose model, where it has one, always says this.
fn host(model: Option<&'static str>) -> Arc<ScriptedHost> {
    let host = ScriptedHost::without_model();
    host.count_with(tokens);
    if let Some(text) = model {
        host.model.becomes(MODEL_NAME, 20_000);
        host.model.now_says(|_| Ok(text.to_owned()));
    }
    host
}

fn window(prompt_tokens: u64) -> WindowState {
    WindowState::default()
        .context_length(16_000)
        .max_output_tokens(500)
        .prompt_tokens(prompt_tokens)
}

fn factory(host: &ScriptedHost, settings: &Value) -> Lcm {
    Lcm::create(&host.factory_request(&settings.to_string())).unwrap()
}

fn open(
    factory: &Lcm,
    host: &Arc<ScriptedHost>,
    session: &str,
    settings: &Value,
) -> Box<dyn ContextEngine> {
    let (settings, window) = (settings.to_string(), window(0));
    let mut request = host.open_request(&settings, &window);
    request.session = session;
    request.services = host.services_in(session);
    factory.open(&request).unwrap()
}

/// Shows the engine of the session `s` what a host has recorded.
fn show(host: &ScriptedHost, engine: &mut dyn ContextEngine, delivery: &Delivery<'_>) {
    host.record(delivery);
    engine.observe(delivery).unwrap();
}

/// The engine of a session, alone in its store.
fn alone(host: &Arc<ScriptedHost>, settings: &Value) -> Box<dyn ContextEngine> {
    open(&factory(host, settings), host, "s", settings)
}

fn call(
    engine: &mut dyn ContextEngine,
    name: &str,
    arguments: &Value,
) -> Result<String, EngineError> {
    engine.call_tool(&ToolCall::new(name.to_owned(), arguments.to_string()))
}

fn answer(engine: &mut dyn ContextEngine, name: &str, arguments: &Value) -> Value {
    let answer = call(engine, name, arguments);
    let answer = answer.unwrap_or_else(|error| panic!("{name} {arguments}: {error}"));
    let max = arguments["max_tokens"].as_u64().unwrap_or(4_000);
    assert!(
        tokens(&answer) <= max,
        "{name} {arguments}: {} tokens: {answer}",
        tokens(&answer)
    );
    serde_json::from_str(&answer).unwrap()
}

fn error(engine: &mut dyn ContextEngine, name: &str, arguments: &Value) -> String {
    match call(engine, name, arguments) {
        Err(EngineError::InvalidInput(what)) => what,
        other => panic!("{name} {arguments}: {other:?}"),
    }
}

/// All pages of an answer.
fn pages(engine: &mut dyn ContextEngine, name: &str, arguments: &Value) -> Vec<Value> {
    let mut pages: Vec<Value> = Vec::new();
    let mut arguments = arguments.clone();
    loop {
        let page = answer(engine, name, &arguments);
        let cursor = page["next_cursor"].clone();
        pages.push(page);
        if cursor.is_null() {
            return pages;
        }
        assert_ne!(
            arguments["cursor"], cursor,
            "{name} {arguments}: no progress"
        );
        arguments["cursor"] = cursor;
    }
}

fn items<'a>(pages: &'a [Value], key: &str) -> Vec<&'a Value> {
    pages
        .iter()
        .flat_map(|page| page[key].as_array().unwrap())
        .collect()
}

fn ids(items: &[&Value]) -> Vec<String> {
    items
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

/// What is hard to fit: escapes of escapes, scripts of many tokens, long lines, many lines.
fn hard_texts() -> Vec<String> {
    (0..32)
        .map(|at| {
            let what = match at % 4 {
                0 => "\\\"path\\\": \"C:\\\\tmp\\\\x\"\n\t{[\"\"]}".repeat(1 + at),
                1 => "数据库索引重建完成。".repeat(1 + at * 2),
                2 => "plain words go on ".repeat(1 + at * 2),
                _ => format!("{}\u{1}\u{7f}😀", "é\r\n".repeat(at)),
            };
            format!("common text {at}: {what}")
        })
        .collect()
}

fn raw_of(role: &str, text: &str) -> String {
    json!({"role": role, "content": text}).to_string()
}

struct Conversation {
    texts: Vec<String>,
    raws: Vec<String>,
    host: Arc<ScriptedHost>,
    engine: Box<dyn ContextEngine>,
    summaries: Vec<String>,
}

/// A conversation of these texts, most of it under summaries, long texts kept aside.
fn conversation(texts: Vec<String>, model: Option<&'static str>) -> Conversation {
    conversation_at(texts, model, Some(1_767_225_600_000))
}

/// The same, said from a time on, a minute a message, or at no time that is known.
fn conversation_at(
    texts: Vec<String>,
    model: Option<&'static str>,
    from_ms: Option<i64>,
) -> Conversation {
    let host = host(model);
    let settings = json!({"large_message_tokens": 400, "fresh_tail_messages": 2});
    let mut engine = alone(&host, &settings);
    let role = |at: usize| {
        if at.is_multiple_of(2) {
            "user"
        } else {
            "assistant"
        }
    };
    let raws: Vec<String> = (0..)
        .zip(&texts)
        .map(|(at, text)| raw_of(role(at), text))
        .collect();
    let views: Vec<MessageView<'_>> = (0..)
        .zip(texts.iter().zip(&raws))
        .map(|(at, (text, raw))| {
            let view = MessageView::new(MessageId(at as u64 + 1), role(at))
                .with_text(text)
                .with_raw(raw)
                .with_tokens(tokens(text));
            from_ms.map_or(view, |from| view.with_time(from + at as i64 * 60_000))
        })
        .collect();
    show(&host, engine.as_mut(), &Delivery::new(&views));
    let order = CompressOrder::default()
        .window(window(views.iter().map(MessageView::tokens).sum()))
        .force(true);
    let request = CompressRequest::new(&views, &order);
    match engine.compress(&request).unwrap() {
        Outcome::Compacted(_) => engine.committed(&Committed::new(1)),
        other => panic!("{other:?}"),
    }
    let summaries = (1..)
        .map(|id| format!("s{id}"))
        .take_while(|id| call(engine.as_mut(), "lcm_describe", &json!({"id": id})).is_ok())
        .collect();
    Conversation {
        texts,
        raws,
        host,
        engine,
        summaries,
    }
}

const SIZES: [u64; 3] = [100, 200, 4_000];

#[test]
fn every_page_of_a_search_has_its_size_and_together_they_have_every_hit_once() {
    let mut said = conversation(hard_texts(), None);
    let engine = said.engine.as_mut();
    for max in SIZES {
        for (arguments, key) in [
            (json!({"pattern": "common text", "context": 20}), "hits"),
            (
                json!({"pattern": "common", "sort": "oldest", "scope": "messages"}),
                "hits",
            ),
            (
                json!({"pattern": "[a-z]", "mode": "regex", "sort": "relevance"}),
                "hits",
            ),
            (
                json!({"pattern": "\\", "mode": "literal", "limit": 3}),
                "hits",
            ),
            (
                json!({"question": "which plain words are common text?"}),
                "hits",
            ),
            (
                json!({"question": "数据库索引", "scope": "messages"}),
                "hits",
            ),
        ] {
            let mut arguments = arguments;
            arguments["max_tokens"] = json!(max);
            let pages = pages(engine, "lcm_grep", &arguments);
            let hits = items(&pages, key);
            let unique: BTreeSet<String> = ids(&hits).into_iter().collect();
            assert_eq!(unique.len(), hits.len(), "{arguments}: a hit twice");
            for page in &pages {
                assert_eq!(page["total"], json!(hits.len()), "{arguments}");
                for hit in page["hits"].as_array().unwrap() {
                    assert_ne!(hit["snippet"], json!(""), "{arguments}");
                }
                let grouped = page["groups"].as_array().into_iter().flatten();
                let grouped = grouped.flat_map(|group| group["hits"].as_array().unwrap());
                let grouped: BTreeSet<String> = grouped.map(Value::to_string).collect();
                let shown = page["hits"].as_array().unwrap().iter();
                let shown: BTreeSet<String> = shown.map(|hit| hit["id"].to_string()).collect();
                assert!(max < 250 || grouped == shown, "{page}");
            }
            if arguments["pattern"] == json!("common text") {
                let messages = unique.iter().filter(|id| id.starts_with('m')).count();
                assert_eq!(messages, said.texts.len());
            }
        }
    }
}

#[test]
fn messages_come_back_byte_for_byte_in_parts_of_any_size() {
    let mut said = conversation(hard_texts(), None);
    assert!(said.summaries.len() > 1, "{:?}", said.summaries);
    let engine = said.engine.as_mut();
    let mut together = |id: &str, max: u64| {
        let pages = pages(engine, "lcm_expand", &json!({"id": id, "max_tokens": max}));
        let mut messages: Vec<(String, String)> = Vec::new();
        for item in items(&pages, "messages") {
            let (id, text) = (
                item["id"].as_str().unwrap(),
                item["message"].as_str().unwrap(),
            );
            match item["part"]["first_byte"].as_u64() {
                Some(first) if first > 0 => {
                    let (last, whole) = messages.last_mut().unwrap();
                    assert_eq!((last.as_str(), whole.len() as u64), (id, first));
                    whole.push_str(text);
                }
                _ => messages.push((id.to_owned(), text.to_owned())),
            }
        }
        let total = pages[0]["total_messages"].as_u64().unwrap();
        assert_eq!(total, messages.len() as u64);
        messages
    };
    let raws = &said.raws;
    for max in SIZES {
        for summary in &said.summaries {
            for (id, message) in together(summary, max) {
                let at: usize = id[1..].parse().unwrap();
                assert_eq!(message, raws[at - 1], "{id} under {summary} at {max}");
            }
        }
        for (at, raw) in (1..).zip(raws) {
            let id = format!("m{at}");
            assert_eq!(together(&id, max), [(id.clone(), raw.clone())], "{max}");
        }
    }
}

#[test]
fn any_text_is_read_to_its_end_in_parts_of_any_size() {
    let mut said = conversation(hard_texts(), None);
    let engine = said.engine.as_mut();
    for max in SIZES {
        for (at, text) in (1..).zip(&said.texts) {
            let pages = pages(
                engine,
                "lcm_read",
                &json!({"id": format!("m{at}"), "max_tokens": max}),
            );
            let whole: String = pages
                .iter()
                .map(|page| page["text"].as_str().unwrap())
                .collect();
            assert_eq!(&whole, text);
            for page in &pages {
                let first = page["first_byte"].as_u64().unwrap() as usize;
                let line = text[..first].matches('\n').count() + 1;
                assert_eq!(page["first_line"], json!(line), "{page}");
                assert_eq!(page["total_bytes"], json!(text.len()));
                assert_eq!(page["total_lines"], json!(text.lines().count()));
            }
        }
        for summary in &said.summaries {
            let described = answer(
                engine,
                "lcm_describe",
                &json!({"id": summary, "max_tokens": 32_000}),
            );
            let pages = pages(
                engine,
                "lcm_read",
                &json!({"id": summary, "max_tokens": max}),
            );
            let whole: String = pages
                .iter()
                .map(|page| page["text"].as_str().unwrap())
                .collect();
            assert_eq!(json!(whole), described["text"]);
        }
    }
}

#[test]
fn every_other_tool_has_its_size_too() {
    let mut said = conversation(hard_texts(), None);
    let engine = said.engine.as_mut();
    let mut named: Vec<String> = said.summaries.clone();
    named.extend((1..=said.texts.len()).map(|at| format!("m{at}")));
    let files: Vec<String> = (1..)
        .map(|id| format!("f{id}"))
        .take_while(|id| call(engine, "lcm_describe", &json!({"id": id})).is_ok())
        .collect();
    assert!(files.len() > 2);
    named.extend(files);
    let last = named.iter().filter(|id| id.starts_with('s')).count();
    for max in SIZES {
        for id in &named {
            let pages = pages(
                engine,
                "lcm_describe",
                &json!({"id": id, "max_tokens": max}),
            );
            if id.starts_with('s') {
                let children = items(&pages, "children").len();
                assert_eq!(pages[0]["children_total"], json!(children), "{id} {max}");
                assert_ne!(pages[0]["text"], json!(""));
            } else {
                assert_ne!(pages[0]["preview"], json!(""), "{}", pages[0]);
            }
        }
        for role in [None, Some("user")] {
            let mut arguments = json!({"max_tokens": max});
            if let Some(role) = role {
                arguments["role"] = json!(role);
            }
            let pages = pages(engine, "lcm_recent", &arguments);
            let step = if role.is_some() { 2 } else { 1 };
            let newest = (1..=said.texts.len())
                .rev()
                .filter(|at| step == 1 || at % 2 == 1);
            let newest: Vec<String> = newest.map(|at| format!("m{at}")).collect();
            assert_eq!(ids(&items(&pages, "messages")), newest);
        }
        let found = pages(
            engine,
            "lcm_expand_query",
            &json!({"question": "plain words 数据库", "max_tokens": max}),
        );
        let passages = ids(&items(&found, "passages"));
        assert_eq!(
            passages.iter().collect::<BTreeSet<_>>().len(),
            passages.len()
        );
        assert!(passages.len() > 12, "{passages:?}");
        let status = answer(engine, "lcm_status", &json!({"max_tokens": max}));
        assert_eq!(status["messages"], json!(32), "{status}");
        assert_eq!(status["left_out"].is_null(), max == 4_000, "{status}");
        let doctor = pages(engine, "lcm_doctor", &json!({"max_tokens": max}));
        assert_eq!(
            (&doctor[0]["ok"], doctor.len()),
            (&json!(true), 1),
            "{doctor:?}"
        );
        let top = format!("s{last}");
        let below = pages(
            engine,
            "lcm_expand",
            &json!({"id": top, "depth": 1, "max_tokens": max}),
        );
        assert!(!below.is_empty());
    }
}

#[test]
fn a_models_answer_has_its_size_and_names_what_it_rests_on() {
    let long = "It is in [m3], and 数据库 in [m1].\n\\\"".to_owned() + &"More words. ".repeat(400);
    let mut said = conversation(hard_texts(), Some(long.leak()));
    let engine = said.engine.as_mut();
    for max in SIZES {
        let arguments = json!({"question": "common plain words?", "max_tokens": max});
        let answered = answer(engine, "lcm_expand_query", &arguments);
        assert!(
            answered["answer"]
                .as_str()
                .unwrap()
                .starts_with("It is in [m3]")
        );
        let used = answered["used"].as_array().unwrap();
        assert!(
            used.contains(&json!("m3")) && !used.contains(&json!("m30")),
            "{answered}"
        );
    }
}

#[test]
fn a_hit_says_where_to_read_on() {
    let mut text = "line\n".repeat(3_000);
    text.push_str("数据 the NEEDLE is here\n");
    text.push_str(&"more\n".repeat(3_000));
    let texts = vec![
        text.clone(),
        "short\nneedle".to_owned(),
        "x ".repeat(2_000),
        "bye".to_owned(),
    ];
    let mut said = conversation(texts, None);
    let engine = said.engine.as_mut();
    let found = answer(
        engine,
        "lcm_grep",
        &json!({"pattern": "needle", "scope": "messages", "sort": "oldest"}),
    );
    let hit = &found["hits"][0];
    assert_eq!(
        (&hit["kind"], &hit["line"]),
        (&json!("file"), &json!(3_001))
    );
    assert_eq!(hit["byte"], json!(text.find("NEEDLE").unwrap()));
    for id in [&hit["id"], &hit["file"]] {
        let line = json!({"id": id, "from_line": hit["line"], "to_line": hit["line"]});
        let read = answer(engine, "lcm_read", &line);
        assert_eq!(read["text"], json!("数据 the NEEDLE is here\n"));
        let byte = json!({"id": id, "from_byte": hit["byte"], "max_tokens": 100});
        let read = answer(engine, "lcm_read", &byte);
        assert!(
            read["text"]
                .as_str()
                .unwrap()
                .starts_with("NEEDLE is here\nmore"),
            "{read}"
        );
    }
    let last = answer(
        engine,
        "lcm_read",
        &json!({"id": hit["file"], "from_line": 6_001}),
    );
    assert_eq!(
        (&last["text"], &last["first_line"]),
        (&json!("more\n"), &json!(6_001))
    );
    for range in [
        json!({"from_line": 6_002}),
        json!({"from_line": 5, "to_line": 4}),
        json!({"from_byte": 999_999}),
        json!({"from_byte": 7, "to_byte": 7}),
    ] {
        let mut arguments = range;
        arguments["id"] = hit["id"].clone();
        let said = error(engine, "lcm_read", &arguments);
        assert!(said.contains("bytes in 6001 lines"), "{said}");
    }
    assert_eq!(found["hits"][1]["line"], json!(2));
    // However much stands around it, a snippet shows the match.
    for max in SIZES {
        let found = answer(
            engine,
            "lcm_grep",
            &json!({"pattern": "NEEDLE", "mode": "literal", "context": 20, "max_tokens": max}),
        );
        assert!(
            found["hits"][0]["snippet"]
                .as_str()
                .unwrap()
                .contains("NEEDLE"),
            "{found}"
        );
    }
    // What is called is read after what is said, as search sees it.
    let calls = [ToolCallView::new(
        "c1",
        "bash",
        "{\"command\":\"cat src/epoch.rs\"}",
    )];
    let view = MessageView::new(MessageId(5), "assistant")
        .with_text("I look.")
        .with_tool_calls(&calls)
        .with_raw("{}");
    show(&said.host, engine, &Delivery::new(&[view]));
    let found = answer(engine, "lcm_grep", &json!({"pattern": "src/epoch.rs"}));
    let hit = &found["hits"][0];
    let read = answer(
        engine,
        "lcm_read",
        &json!({"id": hit["id"], "from_byte": hit["byte"]}),
    );
    assert_eq!(read["text"], json!("src/epoch.rs\"}"));
    // A file is the text alone.
    let text = "long ".repeat(2_000);
    let view = MessageView::new(MessageId(6), "assistant")
        .with_text(&text)
        .with_tool_calls(&calls)
        .with_raw("{}");
    show(&said.host, engine, &Delivery::new(&[view]));
    let found = answer(
        engine,
        "lcm_grep",
        &json!({"pattern": "src/epoch.rs", "scope": "files"}),
    );
    let hit = &found["hits"][0];
    assert_eq!((&hit["id"], &hit["in_calls"]), (&json!("m6"), &json!(true)));
    assert!(hit["line"].is_null() && hit["byte"].is_null(), "{hit}");
}

#[test]
fn a_file_is_described_by_its_preview() {
    let log: String = (0..9_000)
        .map(|at| format!("2026-01-02T03:04:05Z INFO step {at}\n"))
        .collect();
    let mut said = conversation(vec![log.clone(), "bye".to_owned(), "end".to_owned()], None);
    let engine = said.engine.as_mut();
    let expected = preview(&log, 1_200);
    assert!(expected.contains("step 0\n") && expected.contains("step 8999"));
    let file = json!({"id": "f1"});
    let message = json!({"id": "m1"});
    let whole = answer(engine, "lcm_describe", &file);
    let said_whole = answer(engine, "lcm_describe", &message);
    assert_eq!(
        (&whole["preview"], &said_whole["preview"]),
        (&json!(expected), &json!(expected))
    );
    assert_eq!(said_whole["text_bytes"], log.len());
}

#[test]
fn a_line_is_found_wherever_a_file_is_cut_into_chunks() {
    // Chunks have 64 KiB: many short lines, one line over several chunks, and a last one without its end.
    let mut text: String = (0..30_000).map(|at| format!("{at} 漢\n")).collect();
    text.push_str(&"long ".repeat(60_000));
    text.extend((0..9_000).map(|at| format!("\n\nrow {at}")));
    let texts = vec![
        text.clone(),
        "x ".repeat(2_000),
        "bye".to_owned(),
        "end".to_owned(),
    ];
    let mut said = conversation(texts, None);
    let engine = said.engine.as_mut();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let near = [1, 2, 29_999, 30_000, 30_001, 30_002, 30_003, 30_004];
    let spread = (0..60).map(|at| 1 + at * (lines.len() - 1) / 59);
    for line in near.into_iter().chain(spread) {
        let from_to = json!({"id": "m1", "from_line": line, "to_line": line, "max_tokens": 200});
        let read = answer(engine, "lcm_read", &from_to);
        let shown = read["text"].as_str().unwrap();
        assert_eq!(read["first_line"], json!(line));
        match read["next_cursor"].is_null() {
            true => assert_eq!(shown, lines[line - 1], "{line}"),
            false => assert!(
                line == 30_001 && lines[line - 1].starts_with(shown),
                "{line}"
            ),
        }
        let first: usize = lines[..line - 1].iter().map(|line| line.len()).sum();
        assert_eq!(read["first_byte"], json!(first), "{line}");
    }
    let beyond = json!({"id": "m1", "from_line": lines.len() + 1});
    assert!(error(engine, "lcm_read", &beyond).contains("the range is empty"));
}

#[test]
fn what_an_edit_or_a_rewind_left_is_marked_in_every_answer() {
    let host = host(None);
    let settings = json!({});
    let lcm = factory(&host, &settings);
    let mut engine = open(&lcm, &host, "s", &settings);
    let engine = engine.as_mut();
    let mut say = |id: u64, text: &str, revisions: &[(MessageId, MessageId)]| {
        let raw = raw_of("user", text);
        let views = [MessageView::new(MessageId(id), "user")
            .with_text(text)
            .with_raw(&raw)];
        let delivery = Delivery::new(&views).with_revisions(revisions);
        show(&host, engine, &delivery);
    };
    say(1, "the port is 8080", &[]);
    say(2, "the host is alpha", &[]);
    say(3, "the port is 9090", &[(MessageId(3), MessageId(1))]);
    say(4, "the port is 7070, says a branch that is left", &[]);
    let cut = Cut::after(Some(MessageId(3)));
    show(&host, engine, &Delivery::new(&[]).after(Some(cut)));

    let grep = answer(
        engine,
        "lcm_grep",
        &json!({"pattern": "port", "sort": "oldest"}),
    );
    let hits: Vec<_> = grep["hits"].as_array().unwrap().iter().collect();
    assert_eq!(ids(&hits), ["m1", "m3", "m4"]);
    let marks: Vec<_> = hits
        .iter()
        .map(|hit| hit["in_conversation"] == json!(false))
        .collect();
    assert_eq!(marks, [true, false, true]);
    let recent = answer(engine, "lcm_recent", &json!({}));
    assert_eq!(
        ids(&recent["messages"]
            .as_array()
            .unwrap()
            .iter()
            .collect::<Vec<_>>()),
        ["m3", "m2"]
    );
    for (id, current) in [("m1", false), ("m2", true), ("m3", true), ("m4", false)] {
        let described = answer(engine, "lcm_describe", &json!({"id": id}));
        assert_eq!(described["in_conversation"], json!(current), "{id}");
        let expanded = answer(engine, "lcm_expand", &json!({"id": id}));
        let marked = expanded["messages"][0]["in_conversation"] == json!(false);
        assert_eq!(marked, !current, "{id}");
    }
    assert_eq!(
        answer(engine, "lcm_describe", &json!({"id": "m3"}))["replaces"],
        json!("m1")
    );
    let asked = answer(
        engine,
        "lcm_expand_query",
        &json!({"question": "what is the port?"}),
    );
    for passage in asked["passages"].as_array().unwrap() {
        let withdrawn = ["m1", "m4"].contains(&passage["id"].as_str().unwrap());
        assert_eq!(
            passage["in_conversation"] == json!(false),
            withdrawn,
            "{passage}"
        );
    }
    let status = answer(engine, "lcm_status", &json!({}));
    assert_eq!(
        (&status["messages"], &status["in_conversation"]),
        (&json!(4), &json!(2))
    );
    let show = StoreCommand::Show {
        session: "s".to_owned(),
    };
    let shown = lcm.manage(&show).unwrap();
    assert_eq!(shown["window"]["messages_outside"], json!(2));
}

#[test]
fn a_date_is_its_whole_day_where_it_was_said() {
    let host = host(None);
    let settings = json!({});
    let mut engine = alone(&host, &settings);
    // 2026-01-30T23:30Z, 2026-01-31T12:00Z, 2026-01-31T23:59:59.900Z, 2026-02-01T00:30Z
    let times = [
        1_769_815_800_000, 1_769_860_800_000, 1_769_903_999_900, 1_769_905_800_000,
    ];
    let views: Vec<_> = (1..)
        .zip(times)
        .map(|(id, at)| {
            MessageView::new(MessageId(id), "user")
                .with_text("word")
                .with_time(at)
        })
        .collect();
    show(&host, engine.as_mut(), &Delivery::new(&views));
    let mut found = |since: Value, until: Value| {
        let mut arguments = json!({"pattern": "word", "sort": "oldest"});
        for (key, time) in [("since", since), ("until", until)] {
            if !time.is_null() {
                arguments[key] = time;
            }
        }
        let found = answer(engine.as_mut(), "lcm_grep", &arguments);
        let hits: Vec<_> = found["hits"].as_array().unwrap().iter().collect();
        let ids = ids(&hits).concat();
        (ids, found["hits"][0]["at"].clone())
    };
    for (since, until, expected) in [
        (json!("2026-01-31"), json!("2026-01-31"), "m2m3"),
        (json!("2026-01-31+02:00"), json!("2026-01-31+02:00"), "m1m2"),
        (
            json!("2026-01-31T23:59:59Z"),
            json!("2026-01-31T23:59:59Z"),
            "m3",
        ),
        (json!("2026-02-01T01:30+01:00"), json!(null), "m4"),
        (json!(1_769_860_800), json!(1_769_860_800), "m2"),
        (json!(null), json!("2026-01-30"), "m1"),
    ] {
        assert_eq!(
            found(since.clone(), until.clone()).0,
            expected,
            "{since} {until}"
        );
    }
    assert_eq!(
        found(json!("2026-02-01"), json!(null)).1,
        json!("2026-02-01T00:30:00Z")
    );
    // A chat has no times: when it came is told for what it is.
    let view = MessageView::new(MessageId(5), "user").with_text("later");
    show(&host, engine.as_mut(), &Delivery::new(&[view]));
    let found = answer(
        engine.as_mut(),
        "lcm_grep",
        &json!({"pattern": "later", "since": "2027-01-15"}),
    );
    let hit = &found["hits"][0];
    assert_eq!(
        (&hit["id"], &hit["at_is_approximate"]),
        (&json!("m5"), &json!(true))
    );
    assert_eq!(hit["at"], json!("2027-01-15T08:00:00Z"));
}

/// Many sentences about nothing, each another one.
fn sentences(count: usize, about: &str) -> String {
    let one = |at| format!("Entry {at} of the list has {about} and a remark of no weight. ");
    (0..count).map(one).collect()
}

/// The hits of a question to an engine that has seen these messages.
fn hits_of(said: &[(&str, String)], question: &str) -> Vec<Value> {
    let host = host(None);
    let mut engine = alone(&host, &json!({}));
    let views: Vec<MessageView<'_>> = (0..)
        .zip(said)
        .map(|(id, (role, text))| MessageView::new(MessageId(id), role).with_text(text))
        .collect();
    show(&host, engine.as_mut(), &Delivery::new(&views));
    let found = answer(engine.as_mut(), "lcm_grep", &json!({"question": question}));
    found["hits"].as_array().unwrap().clone()
}

#[test]
fn a_hit_of_a_question_shows_the_passage_by_which_it_is_ranked() {
    // Near its start the page has more of the words within 200 bytes, and all of them only where it answers.
    let told = "The boiler in the cellar was replaced by Henrik, who charged nine hundred for the old valve too.";
    let page = format!(
        "{}Boiler, boiler, cellar. {}{told} {}",
        sentences(30, "nothing"),
        sentences(60, "less"),
        sentences(60, "none")
    );
    let hits = hits_of(
        &[("user", page.clone()), ("user", "Good morning!".into())],
        "Who replaced the boiler in the cellar and its valve?",
    );
    let span = &hits[0]["span"];
    let place = |at: usize| span[at].as_u64().unwrap() as usize;
    let shown = &page[place(0)..place(1)];
    assert!(shown.contains(told) && shown.len() < 600, "{shown}");
    let byte = hits[0]["byte"].as_u64().unwrap() as usize;
    assert!((place(0)..place(1)).contains(&byte), "{}", hits[0]);
}

#[test]
fn what_is_asked_for_is_looked_for_in_the_passage_and_not_in_the_whole_message() {
    let padding = sentences(40, "nothing");
    let said = [
        (
            "assistant",
            format!("The ferry left late. {padding}In 1998 on Monday."),
        ),
        ("assistant", format!("{padding}The ferry left on 12 March.")),
        (
            "assistant",
            format!("The ferry left rather late. {padding}On Friday, 1997."),
        ),
    ];
    let hits = hits_of(&said, "When did the ferry leave?");
    assert_eq!(hits[0]["id"], json!("m1"), "{hits:?}");
}

#[test]
fn what_is_mine_the_user_has_said() {
    let said = [
        ("user", "My locker is number forty, next to the stairs."),
        (
            "assistant",
            "Noted: a locker number is easily forgotten, a locker key too.",
        ),
        ("tool", "locker: number 12, locker: number 13"),
    ]
    .map(|(role, text)| (role, text.to_owned()));
    for question in [
        "Which locker number did I say?",
        "What number is my locker?",
    ] {
        let hits = hits_of(&said, question);
        assert_eq!(hits[0]["id"], json!("m0"), "{question}: {hits:?}");
    }
    let said = [
        ("user", "我的会员号码是四零七。"),
        ("assistant", "会员号码可以在会员卡上找到，会员号码很重要。"),
    ]
    .map(|(role, text)| (role, text.to_owned()));
    assert_eq!(hits_of(&said, "我的会员号码是什么？")[0]["id"], json!("m0"));
}

#[test]
fn what_is_repeated_word_for_word_comes_after_what_is_not() {
    let again = "The backup of the ledger runs at night.";
    let mut said = vec![("tool", again.to_owned()); 12];
    said.insert(5, ("user", "The ledger's backup moved to noon.".to_owned()));
    let hits = hits_of(&said, "When does the backup of the ledger run?");
    let place = hits.iter().position(|hit| hit["id"] == "m5");
    assert!(place.is_some_and(|place| place < 2), "{hits:?}");
}

#[test]
fn a_damaged_summary_hides_nothing_else() {
    let mut said = conversation(hard_texts(), None);
    let path = said.host.data_dir().join(contexture_lcm::store::FILE_NAME);
    let connection = rusqlite::Connection::open(path).unwrap();
    let damaged = connection.execute(
        "UPDATE nodes SET data = x'00' WHERE id = (SELECT min(id) FROM nodes)",
        [],
    );
    assert_eq!(damaged.unwrap(), 1);
    let engine = said.engine.as_mut();
    for arguments in [
        json!({"pattern": ".", "mode": "regex", "scope": "summaries"}),
        json!({"question": "common plain text 数据库", "scope": "summaries"}),
    ] {
        let found = answer(engine, "lcm_grep", &arguments);
        assert_eq!(
            found["searched"]["summaries_unreadable"],
            json!(1),
            "{found}"
        );
        assert_eq!(found["total"], json!(said.summaries.len() - 1), "{found}");
    }
}

#[test]
fn a_message_whose_text_is_lost_is_named_and_hides_no_other() {
    let mut said = conversation(hard_texts(), None);
    said.host.lose_text("s", MessageId(1));
    let engine = said.engine.as_mut();
    for max in SIZES {
        let recent = pages(engine, "lcm_recent", &json!({"max_tokens": max}));
        assert_eq!(items(&recent, "messages").len(), said.texts.len());
        let mut unreadable = 0;
        for summary in &said.summaries {
            let arguments = json!({"id": summary, "max_tokens": max});
            let expanded = pages(engine, "lcm_expand", &arguments);
            let items = items(&expanded, "messages");
            let names: BTreeSet<String> = ids(&items).into_iter().collect();
            assert_eq!(
                expanded[0]["total_messages"],
                json!(names.len()),
                "{summary}"
            );
            unreadable += items
                .iter()
                .filter(|item| item["unreadable"] == json!(true))
                .count();
        }
        assert!(unreadable > 0);
        let question = json!({"question": "plain words", "max_tokens": max});
        assert!(!pages(engine, "lcm_expand_query", &question).is_empty());
    }
}

#[test]
fn a_call_that_is_given_up_ends_soon() {
    let mut said = conversation(hard_texts(), None);
    let engine = said.engine.as_mut();
    let summary = said.summaries[0].as_str();
    for (name, arguments) in [
        ("lcm_grep", json!({"pattern": ".", "mode": "regex"})),
        ("lcm_grep", json!({"question": "plain words"})),
        ("lcm_expand", json!({"id": summary})),
        ("lcm_expand_query", json!({"question": "plain words"})),
        ("lcm_recent", json!({"role": "nobody"})),
        ("lcm_doctor", json!({})),
        ("lcm_doctor", json!({"repair": true})),
    ] {
        said.host.cancel_after(0);
        let given_up = call(engine, name, &arguments);
        said.host.cancel_after(u64::MAX);
        assert_eq!(given_up, Err(EngineError::Cancelled), "{name} {arguments}");
        answer(engine, name, &arguments);
    }
}

#[test]
fn a_cursor_that_was_made_up_is_no_way_to_more() {
    let mut said = conversation(hard_texts(), None);
    let engine = said.engine.as_mut();
    for ask in [
        json!({"pattern": "common"}),
        json!({"question": "common words"}),
    ] {
        let mut arguments = ask;
        arguments["limit"] = json!(3);
        let first = answer(engine, "lcm_grep", &arguments);
        let cursor = first["next_cursor"].as_str().unwrap();
        let (kept, _) = cursor.rsplit_once('.').unwrap();
        arguments["cursor"] = json!(format!("{kept}.4294967295s4294967295"));
        let next = answer(engine, "lcm_grep", &arguments);
        assert_eq!(next["total"], first["total"]);
        assert_eq!(next["searched"]["messages"], json!(said.texts.len()));
    }
}

#[test]
fn a_summary_of_what_has_no_time_is_found_by_when_it_came() {
    let texts: Vec<String> = (0..12)
        .map(|at| format!("word {at} {}", "filler ".repeat(90)))
        .collect();
    let mut said = conversation_at(texts, None, None);
    let engine = said.engine.as_mut();
    let grep = |since: &str| json!({"pattern": "word", "scope": "summaries", "since": since});
    let found = answer(engine, "lcm_grep", &grep("2027-01-15"));
    assert!(found["total"].as_u64() > Some(0), "{found}");
    assert_eq!(found["hits"][0]["at"], json!("2027-01-15T08:00:00Z"));
    assert_eq!(found["hits"][0]["at_is_approximate"], json!(true));
    assert_eq!(
        answer(engine, "lcm_grep", &grep("2027-01-16"))["total"],
        json!(0)
    );
}

#[test]
fn no_session_is_looked_into_that_is_not_granted() {
    let host = host(None);
    let plain = json!({});
    let lcm = factory(&host, &plain);
    let say = |name: &str| {
        let text = format!("the secret of {name}");
        let raw = raw_of("user", &text);
        let view = MessageView::new(MessageId(1), "user")
            .with_text(&text)
            .with_raw(&raw);
        let mut engine = open(&lcm, &host, name, &plain);
        let views = [view];
        let delivery = Delivery::new(&views);
        host.record_in(name, &delivery);
        engine.observe(&delivery).unwrap();
    };
    ["one", "two", "three"].into_iter().for_each(say);
    let total = |engine: &mut dyn ContextEngine, sessions: Value| {
        let grep = json!({"pattern": "secret", "sessions": sessions});
        answer(engine, "lcm_grep", &grep)["total"].as_u64().unwrap()
    };
    let other = |session: &str| {
        [
            (
                "lcm_grep",
                json!({"pattern": "secret", "sessions": [session]}),
            ),
            ("lcm_describe", json!({"id": "m1", "session": session})),
            ("lcm_expand", json!({"id": "m1", "session": session})),
            ("lcm_read", json!({"id": "m1", "session": session})),
            ("lcm_recent", json!({"session": session})),
        ]
    };
    // Nothing is open by default; a session that does not exist is refused in the same words.
    let mut engine = open(&lcm, &host, "one", &plain);
    for (name, arguments) in other("two") {
        let refused = error(engine.as_mut(), name, &arguments);
        assert!(refused.contains("searchable_sessions"), "{refused}");
        let missing = error(
            engine.as_mut(),
            name,
            &serde_json::from_str(&arguments.to_string().replace("two", "none")).unwrap(),
        );
        assert_eq!(missing, refused.replace("two", "none"));
    }
    assert_eq!(total(engine.as_mut(), json!(["one"])), 1);
    assert_eq!(total(engine.as_mut(), json!([])), 1);

    let granted = json!({"searchable_sessions": ["two"]});
    let mut engine = open(&lcm, &host, "one", &granted);
    for (name, arguments) in other("two") {
        let found = answer(engine.as_mut(), name, &arguments).to_string();
        assert!(found.contains("the secret of two"), "{name}: {found}");
    }
    for (name, arguments) in other("three") {
        error(engine.as_mut(), name, &arguments);
    }
    // Named twice is searched once, and where a hit comes from is told.
    assert_eq!(total(engine.as_mut(), json!(["two", "one", "two"])), 2);
    let both = answer(
        engine.as_mut(),
        "lcm_grep",
        &json!({"pattern": "secret", "sessions": ["one", "two"], "sort": "oldest"}),
    );
    let names: Vec<_> = items(std::slice::from_ref(&both), "hits");
    let names: BTreeSet<_> = names
        .iter()
        .map(|hit| hit["session"].as_str().unwrap())
        .collect();
    assert_eq!(names, BTreeSet::from(["one", "two"]));

    let all = json!({"searchable_sessions": ["*"]});
    let mut engine = open(&lcm, &host, "one", &all);
    assert_eq!(total(engine.as_mut(), json!(["three", "two"])), 2);
    let missing = error(engine.as_mut(), "lcm_recent", &json!({"session": "none"}));
    assert_eq!(missing, "there is no session `none`");
}

#[test]
fn what_is_redacted_is_nowhere_in_the_store() {
    let secret = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCD";
    let host = host(None);
    let settings = json!({"redact": true});
    let lcm = factory(&host, &settings);
    let mut engine = open(&lcm, &host, "s", &settings);
    let text = format!("use {secret} for it");
    let arguments = json!({"command": format!("curl -H 'x-api-key: {secret}'")}).to_string();
    let calls = [ToolCallView::new("c1", "bash", &arguments)];
    let raw = json!({"role": "assistant", "content": text, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": arguments}},
    ]});
    let raw = raw.to_string();
    let view = MessageView::new(MessageId(1), "assistant")
        .with_name(secret)
        .with_text(&text)
        .with_tool_calls(&calls)
        .with_raw(&raw);
    show(&host, engine.as_mut(), &Delivery::new(&[view]));
    // Shown again, it is the same message.
    show(&host, engine.as_mut(), &Delivery::new(&[view]));
    let part = &secret[14..30];
    let found = answer(
        engine.as_mut(),
        "lcm_grep",
        &json!({"pattern": part, "mode": "literal"}),
    );
    assert_eq!(found["total"], json!(0));
    for (name, arguments) in [
        ("lcm_expand", json!({"id": "m1"})),
        ("lcm_read", json!({"id": "m1"})),
        ("lcm_describe", json!({"id": "m1"})),
        ("lcm_recent", json!({})),
        ("lcm_grep", json!({"pattern": "use"})),
    ] {
        let said = answer(engine.as_mut(), name, &arguments).to_string();
        assert!(
            said.contains("use") && !said.contains(part),
            "{name}: {said}"
        );
    }
    drop(engine);
    drop(lcm);
    let file = std::fs::read(host.data_dir().join(contexture_lcm::store::FILE_NAME)).unwrap();
    let at = file
        .windows(part.len())
        .position(|window| window == part.as_bytes());
    assert_eq!(at, None);
}

#[test]
fn who_said_it_is_shown() {
    let host = host(None);
    let settings = json!({});
    let mut engine = alone(&host, &settings);
    let engine = engine.as_mut();
    let long = "very long name ".repeat(2_000);
    let view = |id, role| MessageView::new(MessageId(id), role).with_text("the bridge");
    let views = [
        view(1, "user").with_name("ana").with_raw("{}"),
        view(2, "user").with_name("小明").with_raw("{}"),
        view(3, "assistant").with_raw("{}"),
        view(4, "tool").with_name("ana").with_result_of("c", "ls"),
        view(5, "user").with_name(&long).with_raw("{}"),
    ];
    show(&host, engine, &Delivery::new(&views));
    let by_id = |pages: &[Value], key: &str| {
        let mut named: Vec<(String, Value)> = items(pages, key)
            .iter()
            .map(|item| {
                (
                    item["id"].as_str().unwrap().to_owned(),
                    item["name"].clone(),
                )
            })
            .collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    // A name that is too long for the answer is left out of it, and nothing else is.
    let expected = [json!("ana"), json!("小明"), json!(null), json!(null)];
    for (name, arguments, key) in [
        ("lcm_grep", json!({"pattern": "bridge"}), "hits"),
        ("lcm_grep", json!({"question": "which bridge?"}), "hits"),
        ("lcm_recent", json!({}), "messages"),
    ] {
        let found = by_id(&pages(engine, name, &arguments), key);
        assert_eq!(found[..4], expected, "{name}");
        assert_eq!((found.len(), &found[4]), (5, &json!(null)), "{name}");
    }
    for (id, expected) in ["m1", "m2", "m3", "m4"].into_iter().zip(expected) {
        let page = answer(engine, "lcm_expand", &json!({"id": id}));
        assert_eq!(page["messages"][0]["name"], expected, "{id}");
    }
    answer(engine, "lcm_expand", &json!({"id": "m5"}));
    // Only what is nice to know gives way where there is little room.
    let page = answer(engine, "lcm_recent", &json!({"max_tokens": 100}));
    assert_eq!(page["messages"][0]["id"], "m5");
    answer(
        engine,
        "lcm_expand_query",
        &json!({"question": "which bridge?"}),
    );
}

#[test]
fn what_is_wrong_with_a_call_is_said() {
    let texts = vec![
        "hello".to_owned(),
        "x ".repeat(2_000),
        "bye".to_owned(),
        "!".to_owned(),
    ];
    let mut said = conversation(texts, None);
    let engine = said.engine.as_mut();
    for (name, arguments, expected) in [
        ("lcm_grep", json!({}), "`pattern` (exact) or `question`"),
        (
            "lcm_grep",
            json!({"pattern": "x", "question": "y"}),
            "either `pattern`",
        ),
        ("lcm_grep", json!({"patern": "x"}), "unknown field `patern`"),
        ("lcm_grep", json!({"pattern": "--"}), "mode `literal`"),
        ("lcm_grep", json!({"pattern": " \n"}), "mode `literal`"),
        ("lcm_grep", json!({"question": "?!"}), "`literal`"),
        (
            "lcm_grep",
            json!({"pattern": "a \"b c"}),
            "    a \"b c\n      ^\n",
        ),
        (
            "lcm_grep",
            json!({"pattern": "hello[", "mode": "regex"}),
            "    hello[\n         ^\n",
        ),
        (
            "lcm_grep",
            json!({"pattern": "x(?=y)", "mode": "regex"}),
            "look-ahead",
        ),
        (
            "lcm_grep",
            json!({"pattern": "(\\w{500}){500}", "mode": "regex"}),
            "too large",
        ),
        (
            "lcm_grep",
            json!({"pattern": "x", "since": "yesterday"}),
            "2026-01-31",
        ),
        (
            "lcm_grep",
            json!({"pattern": "x", "since": 1_767_225_600_000_i64}),
            "Unix seconds",
        ),
        (
            "lcm_grep",
            json!({"pattern": "x", "since": "2026-02-01", "until": "2026-01-31"}),
            "before `since`",
        ),
        (
            "lcm_grep",
            json!({"pattern": "x", "cursor": "1.2.3"}),
            "another query",
        ),
        ("lcm_expand", json!({"id": "x1"}), "s12, m34, f5"),
        ("lcm_expand", json!({"id": "s999"}), "no summary s999"),
        ("lcm_expand", json!({"id": "m999"}), "no message m999"),
        ("lcm_expand", json!({"id": "f1"}), "lcm_read"),
        (
            "lcm_expand",
            json!({"id": "m1", "cursor": "7"}),
            "not a cursor",
        ),
        (
            "lcm_expand",
            json!({"id": "m1", "cursor": "0.9999"}),
            "not a cursor",
        ),
        (
            "lcm_read",
            json!({"id": "m1", "from_line": 1, "to_byte": 3}),
            "not both",
        ),
        (
            "lcm_read",
            json!({"id": "m1", "cursor": "99"}),
            "not a cursor",
        ),
        ("lcm_read", json!({"id": "f999"}), "no file f999"),
        ("lcm_describe", json!({"id": "f999"}), "no file f999"),
        (
            "lcm_describe",
            json!({"id": "s1", "cursor": "999"}),
            "children",
        ),
        ("lcm_recent", json!({"cursor": "x"}), "not a cursor"),
        ("lcm_doctor", json!({"cursor": "x"}), "not a cursor"),
    ] {
        let error = error(engine, name, &arguments);
        assert!(error.contains(expected), "{name} {arguments}: {error}");
    }
    // A search for signs is a literal one; what a model fills in although it means nothing does no harm.
    for (arguments, total) in [
        (
            json!({"pattern": "!", "mode": "literal", "scope": "messages"}),
            1,
        ),
        (
            json!({"pattern": "hello", "question": "", "role": "", "tool": "", "since": "", "until": "", "cursor": "", "sessions": [], "scope": "messages"}),
            1,
        ),
        (json!({"pattern": "\"hello\"", "scope": "messages"}), 1),
    ] {
        assert_eq!(
            answer(engine, "lcm_grep", &arguments)["total"],
            json!(total),
            "{arguments}"
        );
    }
    let recent = |engine: &mut dyn ContextEngine, role: &str| {
        let arguments = json!({"role": role, "cursor": ""});
        answer(engine, "lcm_recent", &arguments)["messages"]
            .as_array()
            .map(Vec::len)
    };
    assert_eq!(recent(engine, "User"), recent(engine, "user"));
    assert!(recent(engine, "") >= recent(engine, "user") && recent(engine, "user") > Some(0));
    assert!(matches!(
        call(engine, "lcm_dance", &json!({})),
        Err(EngineError::Unsupported(what)) if what.contains("lcm_dance")
    ));
}

#[test]
fn the_doctor_makes_a_wrong_index_anew() {
    let (settings, host) = (json!({}), host(None));
    {
        let lcm = factory(&host, &settings);
        let mut engine = open(&lcm, &host, "s", &settings);
        let view = MessageView::new(MessageId(1), "user")
            .with_text("needle")
            .with_raw("{}");
        show(&host, engine.as_mut(), &Delivery::new(&[view]));
        // The index is there once both are closed.
        engine.end();
    }
    let lcm = factory(&host, &settings);
    let mut engine = open(&lcm, &host, "s", &settings);
    let engine = engine.as_mut();
    let path = host.data_dir().join(contexture_lcm::store::FILE_NAME);
    let break_index = || {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .unwrap();
        let changed = connection.execute(
            "UPDATE term_chunks SET terms = CAST('noodle' || x'0a' AS BLOB)",
            [],
        );
        assert_eq!(changed.unwrap(), 1);
    };
    let sound = answer(engine, "lcm_doctor", &json!({"repair": true}));
    assert_eq!(
        (&sound["ok"], &sound["repair"]["index_made_anew"]),
        (&json!(true), &json!(false))
    );
    for _ in 0..2 {
        host.advance_clock(1);
        break_index();
        let wrong = answer(engine, "lcm_doctor", &json!({"max_tokens": 100}));
        assert_eq!(
            (&wrong["ok"], &wrong["findings_total"]),
            (&json!(false), &json!(1)),
            "{wrong}"
        );
        let repaired = answer(engine, "lcm_doctor", &json!({"repair": true}));
        assert_eq!(
            repaired["repair"]["index_wrong_after"],
            json!(0),
            "{repaired}"
        );
        assert!(
            repaired["findings"][0]
                .as_str()
                .unwrap()
                .contains("search index")
        );
        assert_eq!(answer(engine, "lcm_doctor", &json!({}))["ok"], json!(true));
    }
}

#[test]
fn a_doctor_who_is_called_off_leaves_nothing_half_done() {
    let mut said = conversation(hard_texts(), None);
    let path = said.host.data_dir().join(FILE_NAME);
    let store = Store::open(said.host.data_dir(), StoreSettings::default()).unwrap();
    let store = store.over(Source::new("s", said.host.services(), false));
    let session = store.find_session("s").unwrap().unwrap();
    store.index_now(session).unwrap();
    let engine = said.engine.as_mut();
    let word = json!({"pattern": "plain"});
    let found = answer(engine, "lcm_grep", &word)["total"].clone();
    let mut called_off = 0;
    for patience in 0.. {
        store.index_now(session).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        let wait = std::time::Duration::from_secs(5);
        connection.busy_timeout(wait).unwrap();
        // The first of the messages' segments is no longer there.
        let gone = "DELETE FROM segments WHERE corpus = 0 AND first = 0";
        assert_eq!(connection.execute(gone, []).unwrap(), 1);
        said.host.cancel_after(patience);
        let ended = call(engine, "lcm_doctor", &json!({"repair": true}));
        said.host.cancel_after(u64::MAX);
        assert_eq!(answer(engine, "lcm_grep", &word)["total"], found);
        if ended.is_ok() {
            break;
        }
        assert_eq!(ended, Err(EngineError::Cancelled), "{patience}");
        called_off += 1;
    }
    assert!(called_off > 8, "{called_off}");
    assert_eq!(answer(engine, "lcm_doctor", &json!({}))["ok"], true);
}

#[test]
fn the_schemas_say_what_the_tools_take() {
    let host = host(None);
    let settings = json!({});
    let mut engine = alone(&host, &settings);
    let specs = engine.tools();
    for spec in &specs {
        let said = format!("{} {}", spec.description, spec.parameters);
        assert!(
            tokens(&spec.description) < 120,
            "{}: {}",
            spec.name,
            tokens(&spec.description)
        );
        assert!(tokens(&said) < 1_200, "{}: {}", spec.name, tokens(&said));
        assert_eq!(spec.parameters["type"], json!("object"));
        assert_eq!(spec.parameters["additionalProperties"], json!(false));
        for (name, property) in spec.parameters["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{} {name}", spec.name);
            // What the schema names is known: an unknown argument would be an error that names it.
            let error = call(engine.as_mut(), &spec.name, &json!({name: {"no": "such"}}));
            let error = error.map_err(|error| error.to_string());
            assert!(
                error
                    .as_ref()
                    .is_err_and(|error| !error.contains("unknown field")),
                "{error:?}"
            );
        }
    }
    let all: u64 = specs
        .iter()
        .map(|spec| tokens(&json!(spec).to_string()))
        .sum();
    assert!(all < 2_500, "the tools take {all} tokens of every request");
}

/// A search finds content of a message's wire JSON that is neither text, calls nor thinking. It does not find calls of
/// the engine's own tools and their results.
#[test]
fn a_search_finds_what_hosted_tools_did_and_not_itself() {
    let host = host(None);
    let mut engine = alone(&host, &json!({}));
    let hosted = json!({"type": "web_search_call", "id": "ws", "status": "completed",
        "action": {"type": "search", "query": "zanzibar ferries"}})
    .to_string();
    let document =
        json!({"role": "user", "content": [{"type": "document", "title": "zanzibar charter",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}]})
        .to_string();
    let own = [ToolCallView::new(
        "c1",
        "lcm_grep",
        r#"{"pattern":"zanzibar"}"#,
    )];
    let other = [ToolCallView::new(
        "c2",
        "mcp__maps__find",
        r#"{"place":"zanzibar"}"#,
    )];
    let said = "I look for it";
    let messages = [
        MessageView::new(MessageId(1), "assistant").with_raw(&hosted),
        MessageView::new(MessageId(2), "user")
            .with_raw(&document)
            .with_media(true),
        MessageView::new(MessageId(3), "assistant")
            .with_text(said)
            .with_tool_calls(&own),
        MessageView::new(MessageId(4), "tool")
            .with_text(r#"{"total":1,"hits":[{"snippet":"zanzibar ferries"}]}"#)
            .with_result_of("c1", "lcm_grep"),
        MessageView::new(MessageId(5), "assistant").with_tool_calls(&other),
        MessageView::new(MessageId(6), "tool")
            .with_text("zanzibar is an island")
            .with_result_of("c2", "mcp__maps__find"),
    ];
    show(&host, engine.as_mut(), &Delivery::new(&messages));
    for mode in ["full_text", "literal", "regex"] {
        let found = answer(
            engine.as_mut(),
            "lcm_grep",
            &json!({"pattern": "zanzibar", "mode": mode, "sort": "oldest"}),
        );
        assert_eq!(found["total"], 4, "{found}");
        assert_eq!(found["total_is_exact"], true);
        let hits: Vec<&Value> = found["hits"].as_array().unwrap().iter().collect();
        assert_eq!(ids(&hits), ["m1", "m2", "m5", "m6"]);
    }
    let asked = answer(
        engine.as_mut(),
        "lcm_grep",
        &json!({"question": "where is zanzibar?"}),
    );
    let hits = asked["hits"].as_array().unwrap();
    assert!(hits.iter().all(|hit| hit["id"] != "m4"), "{asked}");
    let beside = answer(engine.as_mut(), "lcm_grep", &json!({"pattern": "look"}));
    assert_eq!(
        beside["total"], 1,
        "what is said beside such a call is found"
    );
    // The result is stored and can be read.
    let read = answer(engine.as_mut(), "lcm_read", &json!({"id": "m4"}));
    assert!(read.to_string().contains("zanzibar ferries"), "{read}");
}

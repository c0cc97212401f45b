//! Every engine over every real conversation at hand: the contract holds, and what is rendered reads
//! back as what was kept.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::PathBuf;
use std::sync::Arc;

use contexture::engines::{Engines, register_context_engine};
use contexture::formats::{self, Conversation, Format, Message};
use contexture::session::{AgentWindow, Compact, OutcomeKind, Session, SessionOptions};
use contexture_engine_api::{
    COMPACTION_NOTE, Compaction, CompressRequest, ContextEngine, Decision, EngineError, Entry,
    MessageKind, MessageView, OpenRequest, Outcome, StandaloneEngine, WindowState, define_engine,
    safe_cut,
};
use contexture_tests::{Home, compact, engines, shared_data};

/// A registered engine that drops to the last third of the conversation.
struct LastThird;

impl StandaloneEngine for LastThird {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for LastThird {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::Yes("always".into())
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        let user = messages.iter().rposition(MessageView::is_real_user);
        let cut = messages.len() * 2 / 3;
        let cut = safe_cut(messages, cut.min(user.unwrap_or(cut)));
        if cut < 3 {
            return Ok(Outcome::NothingToDo("too short".into()));
        }
        let mut entries = vec![Entry::summary(
            "Earlier.",
            messages[..cut].iter().map(MessageView::id).collect(),
        )];
        entries.extend(messages[cut..].iter().map(|m| Entry::Keep(m.id())));
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }
}

fn files() -> Vec<PathBuf> {
    let data = shared_data();
    ["claude-code", "tau2-bench", "swe-agent"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(data.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e != "md") && !path.ends_with("LICENSE"))
        .collect()
}

fn open(engines: &Arc<Engines>, conversation: &Conversation, context_length: u64) -> Session {
    let agent = AgentWindow::new(
        conversation.model().unwrap_or("gpt-5").to_owned(),
        context_length,
        4_096,
    );
    Session::open(engines, None, "real", agent, SessionOptions::default()).unwrap()
}

fn last_user(messages: &[Message]) -> Option<&Message> {
    messages.iter().rev().find(|message| {
        message.role == "user"
            && message.kind == MessageKind::Original
            && !message.text.trim().is_empty()
    })
}

/// No result without its call before it, and no more unanswered calls than the original had.
fn orphans(messages: &[Message]) -> usize {
    let mut open: Vec<&str> = Vec::new();
    let mut orphans = 0;
    for message in messages {
        open.extend(message.calls.iter().map(|call| call.id.as_str()));
        if let Some(id) = message.tool_call_id.as_deref() {
            match open.iter().rposition(|call| *call == id) {
                Some(at) => drop(open.remove(at)),
                None => orphans += 1,
            }
        }
    }
    orphans
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn every_engine_over_every_conversation() {
    register_context_engine(define_engine!("last-third", LastThird)).unwrap();
    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    let mut compacted = 0;
    for engine in ["compressor", "last-third", "keep-tail"] {
        home.configure(&format!(
            "context:\n  engine: {engine}\n  on_failure: fail\n"
        ));
        let engines = engines(&home);
        for file in files() {
            let document = std::fs::read_to_string(&file).unwrap();
            for (at, conversation) in formats::read(document, None)
                .unwrap()
                .into_iter()
                .enumerate()
            {
                let conversation = Arc::new(conversation);
                let place = format!("{engine} on {} #{at}", file.display());
                let mut session = open(&engines, &conversation, 100_000);
                // A second compaction right after the first is still valid.
                for round in 1..=2 {
                    let place = format!("{place}, round {round}");
                    let report = compact(&mut session, &conversation, Compact::Force).unwrap();
                    let report = report.expect("a report");
                    let reason = &report.reason;
                    assert_ne!(report.outcome, OutcomeKind::Failed, "{place}: {reason}");
                    check_rendered(&conversation, at, &session, &place);
                    compacted += usize::from(report.outcome == OutcomeKind::Compacted);
                }
            }
        }
    }
    eprintln!("{compacted} compactions");
}

fn check_rendered(conversation: &Arc<Conversation>, at: usize, session: &Session, place: &str) {
    let window = session.render_plan(conversation);
    for to in [
        None,
        Some(Format::OpenAiChat),
        Some(Format::Anthropic),
        Some(Format::OpenAiResponses),
        Some(Format::Gemini),
        Some(Format::ClaudeCode),
    ] {
        let place = format!("{place} to {to:?}");
        let rendered = match to {
            None => conversation.render(&window),
            Some(to) => conversation
                .convert(&window, to)
                .map(|converted| converted.document),
        };
        let rendered = rendered.unwrap_or_else(|error| panic!("{place}: {error}"));
        let named = to.or(match conversation.format() {
            Format::ClaudeCode | Format::Codex => Some(Format::OpenAiChat),
            _ => None,
        });
        let back =
            formats::read(rendered, named).unwrap_or_else(|error| panic!("{place}: {error}"));
        // Its own format is the whole document, a conversion this conversation alone.
        let back = if back.len() > 1 { &back[at] } else { &back[0] };
        assert!(
            orphans(back.messages()) <= orphans(conversation.messages()),
            "{place}"
        );
        assert_eq!(
            last_user(back.messages()).map(|message| message.text.trim()),
            last_user(conversation.messages()).map(|message| message.text.trim()),
            "{place}"
        );
        let summaries = back
            .messages()
            .iter()
            .filter(|message| message.is_summary())
            .count();
        // Anthropic's and Gemini's first message must be the user's. If it was not, a marked one is put there.
        let opened = matches!(
            to,
            Some(Format::Anthropic | Format::Gemini | Format::ClaudeCode)
        ) && conversation
            .messages()
            .first()
            .is_some_and(|m| m.role != "user");
        let expected = session.window().summaries().count();
        assert!(
            summaries == expected || (opened && summaries == expected + 1),
            "{place}: {summaries} summaries, {expected} expected"
        );
        if to != Some(Format::ClaudeCode) && session.window().system_note().is_some() {
            let system = back.system().unwrap_or_default();
            assert_eq!(system.matches(COMPACTION_NOTE).count(), 1, "{place}");
        }
        // Lines of one role may follow each other in a log.
        if summaries > 0 && to != Some(Format::ClaudeCode) {
            let mut roles = Vec::new();
            for message in back.messages() {
                roles.push(message.role.as_str());
            }
            let at = back
                .messages()
                .iter()
                .position(Message::is_summary)
                .unwrap();
            let same = |other: Option<&&str>| other.is_some_and(|role| *role == roles[at]);
            // A summary that shares its neighbour's wire message has its role.
            let shares = |other: usize| {
                back.messages()
                    .get(other)
                    .is_some_and(|m| m.items == back.messages()[at].items)
            };
            assert!(
                !same(roles.get(at + 1)) || shares(at + 1),
                "{place}: {roles:?}"
            );
            assert!(
                at == 0 || !same(roles.get(at - 1)) || shares(at - 1),
                "{place}: {roles:?}"
            );
        }
    }
}

/// An engine never makes things worse than doing nothing. Of the real conversations a few; with
/// `CONTEXTURE_ALL_DATA=1` all, in larger and smaller windows too.
#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn no_conversation_overflows_more_often_with_an_engine_than_without() {
    let all = std::env::var_os("CONTEXTURE_ALL_DATA").is_some();
    let few = shared_data().join("tau2-bench/train_sft-v1-small.jsonl");
    let files = if all { files() } else { vec![few] };
    let home = Home::new();
    let (mut with, mut without) = (0, 0);
    for window in ["4000", "8000", "16000"] {
        if window != "8000" && !all {
            continue;
        }
        let mut arguments = vec!["replay", "--context-length", window, "--report", "-"];
        arguments.extend(["--engine", "compressor", "--engine", "lcm"]);
        arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
        let (report, _) = home.command(&arguments);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        for conversation in report["conversations"].as_array().unwrap() {
            let rows = conversation["rows"].as_array().unwrap();
            let overflows = |engine: &str| {
                let row = rows.iter().find(|row| row["engine"] == engine).unwrap();
                row["overflows"].as_u64().unwrap()
            };
            for engine in ["compressor", "lcm"] {
                let what = format!("{engine}, {window}, {}", conversation["input"]);
                assert!(overflows(engine) <= overflows("none"), "{what}");
                with += overflows(engine);
            }
            without += 2 * overflows("none");
        }
    }
    assert!(with < without, "{with} and {without}");
}

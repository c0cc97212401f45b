//! Engines swapped by one line of `config.yaml`, and engines that misbehave: whatever happens, the
//! conversation is whole, and the message says which engine, what happened and what to do.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture::engines::{Engines, RegisterError, Source, register_context_engine};
use contexture::formats::Conversation;
use contexture::session::{
    AgentWindow, BackgroundBy, Compact, CompactionReport, OutcomeKind, Session, SessionError,
    SessionOptions,
};
use contexture_engine_api::{
    BackgroundCall, Compaction, CompressRequest, ContextEngine, Decision, EngineDefinition,
    EngineError, Entry, FailureKind, MessageView, ModelFailure, ModelRequest, OpenRequest, Outcome,
    StandaloneEngine, ToolCall, Usage, WindowState, define_engine, safe_cut,
};
use contexture_tests::{Home, chat, compact, conversation, engines, session};
use serde_json::json;

/// An engine that is registered in this process: it keeps the last six messages.
struct LastSix;

impl StandaloneEngine for LastSix {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for LastSix {
    fn should_compress(&self, window: &WindowState) -> Decision {
        if window.best_prompt_tokens() * 2 >= window.context_length {
            Decision::Yes("half full".into())
        } else {
            Decision::No("not half full".into())
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        let cut = safe_cut(messages, messages.len().saturating_sub(6));
        let mut entries = vec![Entry::summary(
            format!("{cut} messages were left out."),
            messages[..cut].iter().map(MessageView::id).collect(),
        )];
        entries.extend(messages[cut..].iter().map(|m| Entry::Keep(m.id())));
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }
}

fn register() {
    register_context_engine(define_engine!("last-six", LastSix)).unwrap();
}

fn run(home: &Home, engine: &str) -> (Arc<Engines>, Session, CompactionReport) {
    home.configure(&format!("context:\n  engine: {engine}\n"));
    run_as_configured(home)
}

fn run_as_configured(home: &Home) -> (Arc<Engines>, Session, CompactionReport) {
    let engines = engines(home);
    let conversation = conversation(&chat(30, 2_000).to_string());
    let (mut session, decision) = session(&engines, &conversation, 30_000).unwrap();
    assert!(decision.is_yes(), "{decision:?}");
    let report = compact(&mut session, &conversation, Compact::Auto).unwrap();
    (engines, session, report.expect("a compaction was due"))
}

#[test]
fn one_line_of_the_configuration_swaps_the_engine() {
    register();
    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    let expected = [
        ("compressor", Source::Builtin),
        ("last-six", Source::Registered),
        ("keep-tail", Source::Plugin),
    ];
    for (name, source) in expected {
        let (_, mut session, report) = run(&home, name);
        assert_eq!(
            (report.engine.as_str(), report.source),
            (name, source),
            "{:?} {:?}",
            report.notes,
            session.take_warnings()
        );
        assert_eq!(
            report.outcome,
            OutcomeKind::Compacted,
            "{name}: {}",
            report.reason
        );
        assert!(report.tokens_after < report.tokens_before, "{name}");
        assert!(report.messages_after < report.messages_before, "{name}");
        assert_eq!(session.take_warnings(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn an_engine_that_is_defined_at_run_time_needs_a_name_of_its_own() {
    let register = |name: &str, version: &str| {
        let open = |_: &OpenRequest<'_>| Ok(Box::new(LastSix) as Box<dyn ContextEngine>);
        let defined = EngineDefinition::at_run_time(name, version, "", "tests", open);
        register_context_engine(defined)
    };
    assert_eq!(register("compressor", "1"), Err(RegisterError::BuiltIn));
    for name in ["", "A", "../x"] {
        let refused = Err(RegisterError::BadName(name.to_owned()));
        assert_eq!(register(name, "1"), refused);
    }
    // More of them than a table would have places.
    for number in 0..40 {
        register(&format!("at-run-time-{number}"), "1").unwrap();
    }
    let taken = register("at-run-time-39", "2");
    assert!(matches!(taken, Err(RegisterError::Taken(_))), "{taken:?}");
    let (_, _, report) = run(&Home::new(), "at-run-time-39");
    assert_eq!(
        (report.engine.as_str(), report.source),
        ("at-run-time-39", Source::Registered)
    );
}

#[test]
fn a_library_is_read_once_for_all_sessions() {
    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    home.configure("context:\n  engine: keep-tail\n");
    let engines = engines(&home);
    let conversation = conversation(&chat(2, 10).to_string());
    let names = [false, true].map(|is_damaged| {
        if is_damaged {
            let folder = std::fs::read_dir(home.plugin_dir("keep-tail")).unwrap();
            let mut files = folder.map(|file| file.unwrap().path());
            let ending = std::env::consts::DLL_EXTENSION;
            let is_library =
                |file: &std::path::PathBuf| file.extension().is_some_and(|it| it == ending);
            std::fs::write(files.find(is_library).unwrap(), "damaged").unwrap();
        }
        let (mut session, _) = session(&engines, &conversation, 30_000).unwrap();
        assert_eq!(session.take_warnings(), Vec::<String>::new());
        session.engine().name().to_owned()
    });
    assert_eq!(names, ["keep-tail", "keep-tail"]);
}

#[test]
fn compressor_is_the_built_in_whatever_lies_in_the_plugin_folder() {
    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    std::fs::rename(home.plugin_dir("keep-tail"), home.plugin_dir("compressor")).unwrap();
    let (_, mut session, report) = run(&home, "compressor");
    assert_eq!(report.source, Source::Builtin);
    let warnings = session.take_warnings();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("always the built-in")),
        "{warnings:?}"
    );
}

#[test]
fn a_missing_engine_falls_back_in_one_loud_warning_or_fails() {
    register();
    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    let (_, mut session, report) = run(&home, "keep-tial");
    assert_eq!(report.source, Source::Builtin);
    let warnings = session.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in ["keep-tial", "keep-tail", "last-six", "context_engine"] {
        assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
    }

    home.configure("context:\n  engine: keep-tial\n  on_missing: fail\n");
    let engines = engines(&home);
    let conversation = conversation(&chat(3, 10).to_string());
    let error = session_error(&engines, &conversation);
    assert!(error.to_string().contains("keep-tail"), "{error}");
}

fn session_error(engines: &Arc<Engines>, conversation: &Arc<Conversation>) -> SessionError {
    session(engines, conversation, 20_000).expect_err("an error")
}

#[test]
fn a_plugin_that_does_not_load_never_falls_through_to_a_namesake() {
    for (name, says) in [
        ("wrong-abi-version", "version 99"),
        ("wrong-layout", "layout"),
    ] {
        let home = Home::new();
        home.install(&format!("tests/plugins/{name}"), name);
        let (_, mut session, report) = run(&home, name);
        assert_eq!(report.source, Source::Builtin);
        let warnings = session.take_warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains(name) && warnings[0].contains(says),
            "{}",
            warnings[0]
        );

        home.configure(&format!(
            "context:\n  engine: {name}\n  on_load_failure: fail\n"
        ));
        let engines = engines(&home);
        let conversation = conversation(&chat(3, 10).to_string());
        let error = session_error(&engines, &conversation).to_string();
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
}

#[test]
fn an_engine_that_calls_itself_otherwise_than_its_manifest_is_refused() {
    let home = Home::new();
    home.install("tests/plugins/misbehaving", "misbehaving");
    std::fs::rename(
        home.plugin_dir("misbehaving"),
        home.plugin_dir("well-behaved"),
    )
    .unwrap();
    let manifest = home.plugin_dir("well-behaved").join("plugin.yaml");
    let yaml = "name: well-behaved\nversion: 0.1.0\ndescription: lies\nlibrary: misbehaving\n";
    std::fs::write(manifest, yaml).unwrap();
    let (_, mut session, report) = run(&home, "well-behaved");
    assert_eq!(report.source, Source::Builtin);
    let warnings = session.take_warnings();
    assert!(
        warnings[0].contains("calls its engine `misbehaving`"),
        "{warnings:?}"
    );
}

/// Every fault of a proposal: the compaction is the built-in's, and the note says why.
#[test]
fn proposals_that_break_the_contract_are_discarded() {
    let faults = [
        ("id-twice", "m1 occurs twice"),
        ("id-missing", "m121 would vanish"),
        ("id-unknown", "m999999 is not a message"),
        ("drops-user", "the user's last message"),
        ("splits-group", "they stay or leave together"),
        ("grows", "must make it smaller"),
        ("reorders", "comes after m121"),
        ("wrong-arguments", "invalid arguments"),
        ("empty", "only system messages"),
    ];
    for (fault, says) in faults {
        let home = Home::new();
        home.misbehave(fault, "");
        let (_, session, report) = run_as_configured(&home);
        assert_eq!(report.source, Source::Builtin, "{fault}: {report:?}");
        assert_eq!(report.outcome, OutcomeKind::Compacted, "{fault}");
        let note = &report.notes[0];
        assert!(
            note.contains("`misbehaving`") && note.contains(says),
            "{fault}: {note}"
        );
        assert!(session.window().len() < 121, "{fault}");
    }
}

#[test]
fn passthrough_and_fail_leave_the_conversation_as_it_was() {
    for (policy, outcome) in [("passthrough", Some(OutcomeKind::Failed)), ("fail", None)] {
        let home = Home::new();
        home.misbehave("error:compress", &format!("  on_failure: {policy}\n"));
        let engines = engines(&home);
        let conversation = conversation(&chat(30, 2_000).to_string());
        let (mut session, _) = session(&engines, &conversation, 20_000).unwrap();
        let before = session.window().message_tokens();
        match compact(&mut session, &conversation, Compact::Auto) {
            Ok(report) => {
                let report = report.expect("a compaction was due");
                assert_eq!(Some(report.outcome), outcome);
                assert!(
                    report.reason.contains("it is broken, on purpose"),
                    "{}",
                    report.reason
                );
            }
            Err(SessionError::EngineFailed { reason, report }) => {
                assert_eq!(outcome, None);
                assert!(reason.contains("misbehaving"), "{reason}");
                assert_eq!(report.messages_after, 121);
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(session.window().len(), 121);
        assert_eq!(session.window().message_tokens(), before);
    }
}

/// A panic in any method: the session goes on under the built-in.
#[test]
fn a_panic_in_any_method_closes_the_session_to_the_engine() {
    for method in [
        "open", "observe", "should_compress", "compress", "committed",
    ] {
        let home = Home::new();
        home.misbehave(&format!("panic:{method}"), "");
        let (engines, mut session, report) = run_as_configured(&home);
        assert_eq!(report.outcome, OutcomeKind::Compacted, "{method}");
        let mut said = session.take_warnings();
        said.extend(report.notes.clone());
        assert!(
            said.iter()
                .any(|line| line.contains("misbehaving") && line.contains(method)),
            "{method}: {said:?}"
        );
        if method != "committed" {
            assert_eq!(report.source, Source::Builtin, "{method}");
        }
        let health = engines.health();
        let misbehaving = health
            .iter()
            .find(|health| health.engine == "misbehaving")
            .unwrap();
        assert!(misbehaving.failed >= 1);
    }
}

/// The methods that are called outside of a compaction, by turns and each in its own way.
fn call_everything(engines: &Arc<Engines>) -> Vec<String> {
    let agent = |model: &str| AgentWindow::new(model.to_owned(), 200_000, 1_000);
    let options = SessionOptions::default().background(BackgroundBy::Embedder);
    let mut session = Session::open(engines, None, "test", agent("gpt-5"), options).unwrap();
    let mut said = Vec::new();
    let mut note = |result: Result<(), SessionError>| {
        said.extend(result.err().map(|error| error.to_string()));
    };
    note(session.preflight(150_000).map(drop));
    let long = chat(3, 100).to_string();
    note(session.turn(&long).map(drop));
    let answer = json!({"role": "assistant", "content": "It is fine."}).to_string();
    note(
        session
            .answer(&[&answer], Some(&Usage::default().input_tokens(1_000)))
            .map(drop),
    );
    // The client goes back.
    note(session.turn(&chat(2, 100).to_string()).map(drop));
    note(session.tools().map(drop));
    let call = ToolCall::new("x", "{}");
    note(session.call_tool(call).map(drop));
    note(session.background().map(drop));
    let request = ModelRequest::new("summary", String::new(), String::new(), 1);
    let call = BackgroundCall::new(1, Vec::new(), request);
    let failure = ModelFailure::new(FailureKind::NoProvider, "none");
    note(session.background_done(vec![(call, Err(failure))]));
    note(session.set_model(agent("gpt-4o")));
    note(session.status().map(drop));
    note(session.reset());
    said.extend(session.take_warnings());
    session.end().unwrap();
    said
}

#[test]
fn a_panic_in_any_other_method_is_told_and_ends_nothing() {
    let methods = [
        "select", "tools", "call_tool", "background", "background_done", "model_changed",
        "update_usage", "turn_complete", "status", "reset",
    ];
    for method in methods {
        let home = Home::new();
        home.misbehave(&format!("panic:{method}"), "");
        let (engines, session, report) = run_as_configured(&home);
        let mut said = call_everything(&engines);
        said.extend(report.notes);
        assert!(
            said.iter()
                .any(|line| line.contains("`misbehaving` panicked") && line.contains(method)),
            "{method}: {said:?}"
        );
        session.end().unwrap();
    }
    let home = Home::new();
    home.misbehave("panic:end", "");
    let (_, session, _) = run_as_configured(&home);
    session.end().unwrap();
}

const SHORT: &str =
    "  supervision:\n    compress_deadline_ms: 300\n    call_deadline_ms: 300\n    grace_ms: 100\n";

#[test]
fn a_hang_in_any_method_costs_its_deadline_and_no_more() {
    for method in [
        "open", "observe", "should_compress", "compress", "committed",
    ] {
        let home = Home::new();
        home.misbehave(&format!("hang:{method}"), SHORT);
        let began = Instant::now();
        let (_, mut session, report) = run_as_configured(&home);
        assert!(began.elapsed() < Duration::from_secs(15), "{method}");
        assert_eq!(report.outcome, OutcomeKind::Compacted, "{method}");
        let mut said = session.take_warnings();
        said.extend(report.notes.clone());
        assert!(
            said.iter().any(|line| line.contains("did not return")),
            "{method}: {said:?}"
        );
    }
}

#[test]
fn what_a_late_call_borrowed_stays_whole_until_it_returns() {
    let home = Home::new();
    home.misbehave("reads-past-deadline", SHORT);
    let note = home.path().join("engines/misbehaving/borrowed");
    {
        let (_, _session, report) = run_as_configured(&home);
        assert_eq!(report.source, Source::Builtin);
        assert!(!note.exists(), "the call still reads");
        // The session, its window and the conversation are gone now; the call is not.
    }
    let until = Instant::now() + Duration::from_secs(20);
    while !note.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(std::fs::read_to_string(note).unwrap(), "whole");
}

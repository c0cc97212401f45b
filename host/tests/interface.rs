//! What an engine can say, from its proposal to the body that leaves: an engine that is told what to do, and a
//! client that sends everything again or carries on from what it was handed.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::fs;
use std::sync::Arc;

use contexture::formats::{self, Format, PlanEntry, RenderPlan};
use contexture::session::{
    AgentWindow, Compact, OutcomeKind, Record, Session, SessionOptions, Turn, TurnOptions,
};
use contexture_engine_api::{
    About, BackgroundCall, Compaction, CompressRequest, ContextEngine, Decision, EngineError,
    Entry, HostInfo, MessageId, MessageKind, MessageView, ModelRequest, OpenRequest, Outcome,
    Replacement, StandaloneEngine, Summary, ToolCall, ToolSpec, WindowState, register_engine,
};
use contexture_testkit::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tempfile::TempDir;

use support::engines_in;

register_engine!("scripted", ScriptedEngine<true>);
register_engine!("undeclared", ScriptedEngine<false>);

register_engine!("decides-late", DecidesLate);

/// An engine that knows whether a compaction is due once it was shown the whole window.
struct DecidesLate {
    was_shown: bool,
}

impl StandaloneEngine for DecidesLate {
    fn about(_host: &HostInfo) -> About {
        About::default().rewrites(true)
    }

    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self { was_shown: false })
    }
}

impl ContextEngine for DecidesLate {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        match self.was_shown {
            true => Decision::Yes("it was shown".into()),
            false => Decision::No("it was not".into()),
        }
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::NothingToDo("nothing is long".into()))
    }

    fn rewrite(
        &mut self,
        _request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        self.was_shown = true;
        Ok(None)
    }
}

register_engine!("halves", Halves);

/// An engine that makes what stands before the last message half as long, however long that still is.
struct Halves;

impl StandaloneEngine for Halves {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for Halves {
    fn should_compress(&self, window: &WindowState) -> Decision {
        match window.best_prompt_tokens() > 5_000 {
            true => Decision::Yes("long".into()),
            false => Decision::No("short".into()),
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let (last, old) = request.messages.split_last().unwrap();
        let words = old.iter().map(|message| message.text().split(' ').count());
        let text = "word ".repeat(words.sum::<usize>() / 2);
        let covers = old.iter().map(MessageView::id).collect();
        let entries = vec![Entry::summary(text, covers), Entry::Keep(last.id())];
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }
}

/// A home, and an engine's session in it.
struct Agent {
    home: TempDir,
    id: String,
    script: Script,
}

impl Agent {
    /// `id` is the test's own.
    fn new(id: &str, engine: &str, more: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let yaml = format!("context:\n  engine: {engine}\n{more}");
        fs::write(home.path().join("config.yaml"), yaml).unwrap();
        Self {
            home,
            id: id.to_owned(),
            script: Script::of(id),
        }
    }

    fn session(&self) -> Session {
        self.session_of(10_000)
    }

    fn session_of(&self, context_length: u64) -> Session {
        let engines = engines_in(self.home.path());
        let agent = AgentWindow::new("gpt-4o", context_length, 100);
        let record = Record::open(self.home.path()).unwrap();
        Session::open(
            &engines,
            Some(&record),
            &self.id,
            agent,
            SessionOptions::default(),
        )
        .unwrap()
    }
}

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn chat(messages: &[Value]) -> String {
    json!({"model": "gpt-4o", "messages": messages}).to_string()
}

fn turn<'b>(session: &mut Session, body: &'b str) -> Turn<'b> {
    let turn = session.turn(body).unwrap();
    assert_eq!(session.take_warnings(), Vec::<String>::new());
    turn
}

fn messages_of(body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

fn texts(messages: &[Value]) -> Vec<(String, String)> {
    let text = |content: &Value| match content.as_str() {
        Some(text) => text.to_owned(),
        None => content.to_string(),
    };
    messages
        .iter()
        .map(|message| {
            (
                message["role"].as_str().unwrap().to_owned(),
                text(&message["content"]),
            )
        })
        .collect()
}

fn keep_all(request: &CompressRequest<'_>) -> Vec<Entry> {
    request
        .messages
        .iter()
        .map(|message| Entry::Keep(message.id()))
        .collect()
}

/// Puts one notice after what is new, unless one stands there.
fn notices(request: &CompressRequest<'_>) -> Option<Compaction> {
    let last = request.messages.last()?;
    if last.kind() == MessageKind::Notice {
        return None;
    }
    let mut entries = keep_all(request);
    entries.push(Entry::notice(format!(
        "[status of {}]",
        request.messages.len()
    )));
    Some(Compaction::new(entries))
}

#[test]
fn a_notice_is_put_in_once_marked_and_is_nobodys_words() {
    let agent = Agent::new("notices", "scripted", "");
    agent.script.rewrites(notices);
    let mut session = agent.session();
    let mut said = vec![message("system", "Be brief."), message("user", "hello")];
    let body = chat(&said);
    let first = turn(&mut session, &body);
    let handed = messages_of(&first.body);
    assert_eq!(handed[..2], said[..]);
    assert_eq!(handed[2]["role"], "system");
    let notice = handed[2]["content"].as_str().unwrap().to_owned();
    assert!(notice.starts_with("[status of 1]\n[notice #"), "{notice}");
    assert_eq!(agent.script.take_committed()[0].inserted.len(), 1);

    // A client that sends everything again: the first notice stays where and as it was.
    said.extend([message("assistant", "hi"), message("user", "and now?")]);
    let body = chat(&said);
    let second = turn(&mut session, &body);
    let handed_again = messages_of(&second.body);
    assert_eq!(handed_again[..3], handed[..]);
    assert_eq!(texts(&handed_again)[3..5], texts(&said)[2..]);
    assert!(texts(&handed_again)[5].1.starts_with("[status of 4]"));

    // One that carries on from what it was handed, after a restart, with and without the record.
    let mut carried = handed_again.clone();
    carried.extend([message("assistant", "fine"), message("user", "go on")]);
    drop(session);
    agent.script.take_observed();
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(agent.home.path().join("sessions.sqlite3")).unwrap();
        }
        let mut session = agent.session();
        let body = chat(&carried);
        let third = turn(&mut session, &body);
        let out = messages_of(&third.body);
        assert_eq!(texts(&out)[..8], texts(&carried)[..], "{is_lost}");
        assert_eq!(out.len(), 9);
        // What nobody said is never shown as said.
        let shown = agent.script.take_observed().len();
        assert_eq!(shown, if is_lost { 5 } else { 2 });
    }
}

#[test]
fn a_notice_goes_with_what_it_follows_and_is_never_changed() {
    let agent = Agent::new("notice-cut", "scripted", "");
    agent.script.rewrites(notices);
    let mut session = agent.session();
    let said = [
        message("user", "one"),
        message("assistant", "two"),
        message("user", "three"),
    ];
    turn(&mut session, &chat(&said[..1]));
    turn(&mut session, &chat(&said));
    // Cut back to another second question: the notice after `three` goes, the one after `one` stays.
    let other = [said[0].clone(), said[1].clone(), message("user", "other")];
    let body = chat(&other);
    let cut = turn(&mut session, &body);
    let out = texts(&messages_of(&cut.body));
    let roles: Vec<&str> = out.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(
        roles,
        ["user", "system", "assistant", "user", "system"],
        "{out:?}"
    );

    agent.script.rewrites(|request| {
        let mut entries = keep_all(request);
        let notice = request
            .messages
            .iter()
            .position(|m| m.kind() == MessageKind::Notice)?;
        let id = request.messages[notice].id();
        entries[notice] = Entry::Replace(Replacement::new(id).text(Some("[status]".into())));
        Some(Compaction::new(entries))
    });
    let again = session.turn(&body).unwrap();
    assert_eq!(texts(&messages_of(&again.body)), out);
    assert!(agent.script.take_discarded()[0].contains("is a notice"));
}

#[test]
fn on_anthropic_a_notice_is_a_block_at_the_end_of_the_users_message() {
    let agent = Agent::new("notice-anthropic", "scripted", "");
    agent.script.rewrites(notices);
    let mut session = agent.session();
    let use_tool = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}]});
    let result = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a b"}]});
    let said = vec![message("user", "list"), use_tool, result];
    let body = |messages: &[Value]| {
        json!({"model": "claude", "max_tokens": 100, "messages": messages}).to_string()
    };
    let sent = body(&said);
    let first = session
        .turn_with(&sent, Some(Format::Anthropic), &TurnOptions::default())
        .unwrap();
    let handed = messages_of(&first.body);
    assert_eq!(handed.len(), 3, "{handed:?}");
    let blocks = handed[2]["content"].as_array().unwrap();
    assert_eq!(blocks[0]["type"], "tool_result");
    assert_eq!((blocks.len(), &blocks[1]["type"]), (2, &json!("text")));
    assert!(
        blocks[1]["text"]
            .as_str()
            .unwrap()
            .starts_with("[status of 3]\n[notice #")
    );
    // The client carries on: nothing of it is said by anybody.
    let mut carried = handed.clone();
    carried.extend([message("assistant", "done"), message("user", "thanks")]);
    agent.script.take_observed();
    let sent = body(&carried);
    let second = session
        .turn_with(&sent, Some(Format::Anthropic), &TurnOptions::default())
        .unwrap();
    assert_eq!(messages_of(&second.body)[..3], handed[..]);
    assert_eq!(agent.script.take_observed().len(), 2);
    assert_eq!(session.take_warnings(), Vec::<String>::new());
}

/// Shortens the first long message under a mark of the engine's own, with what it keeps of it.
fn shorten(request: &CompressRequest<'_>) -> Option<Compaction> {
    let mut entries = keep_all(request);
    let is_long = |message: &&MessageView<'_>| {
        message.kind() == MessageKind::Original && message.text().len() > 1_000
    };
    let long = request.messages.iter().find(is_long)?;
    let at = request
        .messages
        .iter()
        .position(|message| message.id() == long.id())?;
    let state = json!({"__compaction__": {"original_content": long.text(), "strategy": "test"}});
    entries[at] = Entry::Replace(
        Replacement::new(long.id())
            .text(Some("[COMPACTED: a long story]".into()))
            .state(Some(state)),
    );
    Some(Compaction::new(entries))
}

#[test]
fn an_engine_marks_keeps_a_state_and_brings_the_original_back() {
    let agent = Agent::new("restore", "scripted", "transcript: {mode: full}\n");
    let mut session = agent.session();
    let long = "once upon a time ".repeat(200);
    let said = [
        message("user", &long),
        message("assistant", "nice"),
        message("user", "and now?"),
    ];
    let body = chat(&said);
    agent.script.rewrites(shorten);
    let short = turn(&mut session, &body);
    let report = short.rewrite.as_ref().unwrap();
    assert_eq!((report.replaced, report.states.len()), (1, 1));
    assert_eq!(report.states[&1]["__compaction__"]["strategy"], "test");
    let out = messages_of(&short.body);
    let text = out[0]["content"].as_str().unwrap();
    assert!(text.starts_with("[COMPACTED: a long story]\n[#"), "{text}");
    assert!(!short.body.contains("__compaction__"));
    let states: Vec<(MessageId, Value)> = (session.window().states())
        .map(|(id, state)| (id, serde_json::from_str(state).unwrap()))
        .collect();
    assert_eq!(states.len(), 1);
    assert_eq!(
        states[0].1["__compaction__"]["original_content"],
        long.as_str()
    );
    drop(session);

    // After a restart the engine finds its state with the message, and has the original put back, byte for byte:
    // from the request, or, if the client carries on, from the transcript.
    let client_has = [said.to_vec(), out.clone()];
    for (round, messages) in client_has.into_iter().enumerate() {
        let mut session = agent.session();
        agent.script.rewrites(|request| {
            let is_short = |message: &&MessageView<'_>| message.state().is_some();
            let short = request.messages.iter().find(is_short)?;
            let state: Value = serde_json::from_str(short.state()?).unwrap();
            assert!(state["__compaction__"]["original_content"].is_string());
            let mut entries = keep_all(request);
            entries[0] = Entry::Restore(short.id());
            Some(Compaction::new(entries))
        });
        let body = chat(&messages);
        let restored = turn(&mut session, &body);
        assert_eq!(messages_of(&restored.body), said, "round {round}");
        assert_eq!(session.window().states().count(), 0);
        agent.script.rewrites(shorten);
        turn(&mut session, &body);
    }

    // If nobody has it, because no text is stored, nothing is restored, and that is told.
    let agent = Agent::new("restore-hashes", "scripted", "");
    agent.script.rewrites(shorten);
    let body = chat(&said);
    let out = messages_of(&turn(&mut agent.session(), &body).body);
    let mut session = agent.session();
    agent.script.rewrites(|request| {
        let mut entries = keep_all(request);
        entries[0] = Entry::Restore(request.messages[0].id());
        Some(Compaction::new(entries))
    });
    let body = chat(&out);
    assert_eq!(session.turn(&body).unwrap().body, body);
    let warnings = session.take_warnings().join("\n");
    assert!(
        warnings.contains("but the original no longer exists"),
        "{warnings}"
    );
}

#[test]
fn marks_that_are_not_declared_are_refused() {
    let agent = Agent::new("undeclared", "undeclared", "  on_failure: passthrough\n");
    let mut session = agent.session();
    agent.script.decides(Decision::Yes("always".into()));
    agent.script.compacts(|request| {
        shorten(request).map_or(Outcome::Deferred("no".into()), Outcome::Compacted)
    });
    let said = [
        message("user", &"x y ".repeat(600)),
        message("assistant", "a"),
        message("user", "b"),
    ];
    let report = session.turn(&chat(&said)).unwrap().compaction.unwrap();
    assert_eq!(report.outcome, OutcomeKind::Failed);
    assert!(
        report.reason.contains("a mark that the engine declares"),
        "{}",
        report.reason
    );
    // Neither does it rewrite, nor are its tools offered, nor can it forbid any.
    agent.script.rewrites(|_| panic!("it was asked to rewrite"));
    agent.script.forbids_tools(Some("never"));
    agent
        .script
        .has_tools(vec![ToolSpec::new("peek", "", json!({"type": "object"}))]);
    let body = chat(&said);
    let turn = session.turn(&body).unwrap();
    assert_eq!(
        (turn.body.as_ref(), turn.tools_denied),
        (body.as_str(), None)
    );
}

#[test]
fn a_summary_in_the_system_role_is_known_again_before_and_after_the_prompt() {
    let agent = Agent::new("system-role", "scripted", "");
    agent.script.decides(Decision::Yes("once".into()));
    agent.script.compacts(|request| {
        let cut = request.messages.len() - 1;
        let covers = request.messages[..cut]
            .iter()
            .map(MessageView::id)
            .collect();
        let summary = Summary::default()
            .text("【历史摘要】\nThey spoke of pumps.".into())
            .covers(covers)
            .in_system_role(true);
        let last = Entry::Keep(request.messages[cut].id());
        assert_eq!(request.order.system.as_deref(), Some("Be brief."));
        Outcome::Compacted(Compaction::new(vec![Entry::Summary(summary), last]))
    });
    let mut session = agent.session();
    let said = [
        message("system", "Be brief."),
        message("user", &"pumps ".repeat(300)),
        message("assistant", "yes"),
        message("user", "and now?"),
    ];
    let body = chat(&said);
    let first = turn(&mut session, &body);
    let handed = messages_of(&first.body);
    let roles: Vec<_> = handed.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "system", "user"]);
    let summary = handed[1]["content"].as_str().unwrap();
    assert!(summary.starts_with("【历史摘要】\nThey spoke"), "{summary}");
    let committed = agent.script.take_committed();
    assert_eq!(committed[0].entries.len(), 2);
    assert_eq!(committed[0].inserted.len(), 1);
    drop(session);

    // It stands right after the prompt, and is no part of it: with the record and without.
    agent.script.decides(Decision::No("enough".into()));
    let mut carried = handed.clone();
    carried.extend([message("assistant", "well"), message("user", "go on")]);
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(agent.home.path().join("sessions.sqlite3")).unwrap();
        }
        let mut session = agent.session();
        let body = chat(&carried);
        let next = session.turn(&body).unwrap();
        assert_eq!(next.body, body, "{is_lost}");
        assert_eq!(session.window().summaries().count(), 1);
        assert_eq!(session.window().len(), 4);
    }
}

#[test]
fn what_is_rewritten_may_not_grow_but_by_notices() {
    let agent = Agent::new("rewrite-size", "scripted", "");
    agent.script.rewrites(|request| {
        let covers = vec![request.messages[0].id()];
        let mut entries = vec![Entry::summary("a long way to say it ".repeat(50), covers)];
        entries.extend(request.messages[1..].iter().map(|m| Entry::Keep(m.id())));
        Some(Compaction::new(entries))
    });
    let mut session = agent.session();
    let said = [
        message("user", "a"),
        message("assistant", "b"),
        message("user", "c"),
    ];
    let body = chat(&said);
    let turn = session.turn(&body).unwrap();
    assert_eq!(turn.body, body);
    assert!(turn.rewrite.is_none());
    let warnings = session.take_warnings().join("\n");
    assert!(warnings.contains("must make it smaller"), "{warnings}");
    assert!(agent.script.take_discarded()[0].contains("must make it smaller"));
}

#[test]
fn its_tools_are_in_every_request_and_at_its_limit_none_may_be_called() {
    let agent = Agent::new("tools", "scripted", "");
    let tool = |name: &str| ToolSpec::new(name, "reads", json!({"type": "object"}));
    agent
        .script
        .has_tools(vec![tool("file_read"), tool("grep")]);
    let mut session = agent.session();
    let own =
        json!({"type": "function", "function": {"name": "grep", "parameters": {"type": "object"}}});
    let body = json!({"model": "gpt-4o", "messages": [message("user", "hello")], "tools": [own]});
    let body = body.to_string();
    let first: Value = serde_json::from_str(&turn(&mut session, &body).body).unwrap();
    let names = |body: &Value| -> Vec<String> {
        let tools = body["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&first), ["grep", "file_read", "scripted_grep"]);
    assert_eq!(first["tool_choice"], Value::Null);
    // Only what was offered is answered, and under the engine's own name.
    let answer = session.call_tool(ToolCall::new("scripted_grep", "{}"));
    assert_eq!(answer.unwrap(), "grep with {}");
    assert!(session.call_tool(ToolCall::new("grep", "{}")).is_err());

    // Another list of tools waits for a compaction, and then only grows.
    agent.script.has_tools(vec![tool("file_regex")]);
    let again: Value = serde_json::from_str(&turn(&mut session, &body).body).unwrap();
    assert_eq!(names(&again), names(&first));
    agent.script.compacts(|request| {
        let (last, covered) = request.messages.split_last().unwrap();
        let covers = covered.iter().map(MessageView::id).collect();
        let entries = vec![Entry::summary("short", covers), Entry::Keep(last.id())];
        Outcome::Compacted(Compaction::new(entries))
    });
    agent.script.forbids_tools(Some("20 calls are enough"));
    let long = [
        message("user", &"pumps ".repeat(300)),
        message("assistant", "yes"),
        message("user", "so?"),
    ];
    let body =
        json!({"model": "gpt-4o", "messages": &long, "tools": [&own], "tool_choice": "auto"});
    let body = body.to_string();
    let options = TurnOptions::default().compact(Compact::Force);
    let compacted = session.turn_with(&body, None, &options).unwrap();
    assert_eq!(
        compacted.tools_denied.as_deref(),
        Some("20 calls are enough")
    );
    let out: Value = serde_json::from_str(&compacted.body).unwrap();
    assert_eq!(
        names(&out),
        ["grep", "file_read", "scripted_grep", "file_regex"]
    );
    assert_eq!(out["tool_choice"], "none");

    // What no provider takes is not offered, and is told.
    agent.script.has_tools(vec![
        tool("two words"),
        ToolSpec::new("list", "", json!([])),
    ]);
    let options = TurnOptions::default().compact(Compact::Force);
    let more = [
        message("assistant", &"pumps ".repeat(300)),
        message("user", "and now?"),
    ];
    let longer = [&long[..], &more].concat();
    let body = json!({"model": "gpt-4o", "messages": longer, "tools": [&own]}).to_string();
    let out = session.turn_with(&body, None, &options).unwrap();
    assert!(!out.body.contains("two words") && !out.body.contains("\"list\""));
    assert_eq!(session.take_warnings().len(), 2);

    // Nor does an agent get it that adds the tools itself.
    agent.script.has_tools(vec![
        tool("two words"),
        ToolSpec::new("list", "", json!([])),
        tool("grep"),
        tool("grep"),
    ]);
    assert_eq!(session.tools().unwrap(), [tool("grep")]);
    assert_eq!(session.engine_tools().unwrap(), [tool("grep")]);
    assert_eq!(session.take_warnings().len(), 3);
    let large = ToolSpec::new("grep", "reads ".repeat(100_000), json!({"type": "object"}));
    agent.script.has_tools(vec![large]);
    assert_eq!(session.tools().unwrap(), []);
    let warned = session.take_warnings().join("\n");
    assert!(warned.contains("a quarter is the most"), "{warned}");

    // Anthropic's way to say both.
    let agent = Agent::new("tools-anthropic", "scripted", "");
    agent.script.has_tools(vec![tool("file_read")]);
    agent.script.forbids_tools(Some("enough"));
    let mut session = agent.session();
    let body = json!({"model": "claude", "max_tokens": 9, "messages": [message("user", "hello")]})
        .to_string();
    let turn = session
        .turn_with(&body, Some(Format::Anthropic), &TurnOptions::default())
        .unwrap();
    let out: Value = serde_json::from_str(&turn.body).unwrap();
    assert_eq!(
        out["tools"],
        json!([{"name": "file_read", "description": "reads", "input_schema": {"type": "object"}}])
    );
    assert_eq!(out["tool_choice"], json!({"type": "none"}));
}

#[test]
fn a_users_huge_message_is_put_away_by_an_engine_that_declares_it_alone() {
    let put_away = |request: &CompressRequest<'_>| {
        let last = request.messages.last()?;
        let preview: String = last.text().chars().take(40).collect();
        let mut entries = keep_all(request);
        entries.pop();
        let text = format!("[truncated: {} chars] {preview}", last.text().len());
        entries.push(Entry::Replace(Replacement::new(last.id()).text(Some(text))));
        (last.kind() == MessageKind::Original).then(|| Compaction::new(entries))
    };
    let said = [
        message("user", "hi"),
        message("assistant", "yes?"),
        message("user", &"data ".repeat(500)),
    ];
    let body = chat(&said);

    let agent = Agent::new("user-file", "scripted", "");
    agent.script.rewrites(put_away);
    let mut session = agent.session();
    let turn = turn(&mut session, &body);
    let out = texts(&messages_of(&turn.body));
    assert!(
        out[2].1.starts_with("[truncated: 2500 chars] data data"),
        "{out:?}"
    );
    let notes = &turn.rewrite.unwrap().notes;
    assert!(
        notes[0].contains("m3, the user's last message, was shortened"),
        "{notes:?}"
    );

    let agent = Agent::new(
        "user-file-undeclared",
        "undeclared",
        "  on_failure: passthrough\n",
    );
    agent.script.decides(Decision::Yes("always".into()));
    agent.script.compacts(move |request| {
        put_away(request).map_or(Outcome::Deferred("no".into()), Outcome::Compacted)
    });
    let report = agent.session().turn(&body).unwrap().compaction.unwrap();
    assert!(
        report.reason.contains("must be kept verbatim"),
        "{}",
        report.reason
    );
}

/// Puts the user's first message away, once.
fn put_first_away(request: &CompressRequest<'_>) -> Option<Compaction> {
    let first = request.messages.first()?;
    let text = format!("[truncated: {} chars]\ndata data", first.text().len());
    let mut entries = keep_all(request);
    entries[0] = Entry::Replace(Replacement::new(first.id()).text(Some(text)));
    (first.kind() == MessageKind::Original).then(|| Compaction::new(entries))
}

#[test]
fn a_preview_of_the_users_last_message_is_still_the_users_last_message() {
    let agent = Agent::new("user-preview", "scripted", "  on_failure: passthrough\n");
    agent.script.rewrites(put_first_away);
    let mut session = agent.session();
    let huge = message("user", &"data ".repeat(500));
    let body = chat(std::slice::from_ref(&huge));
    turn(&mut session, &body);
    agent.script.rewrites(|_| None);

    // It may not leave the window with what followed it.
    agent.script.decides(Decision::Yes("always".into()));
    agent.script.compacts(|request| {
        assert!(request.messages[0].is_real_user());
        let covers = request.messages.iter().map(MessageView::id).collect();
        Outcome::Compacted(Compaction::new(vec![Entry::summary("data", covers)]))
    });
    let said = [huge.clone(), message("assistant", &"looking ".repeat(200))];
    let body = chat(&said);
    let report = session.turn(&body).unwrap().compaction.unwrap();
    assert!(
        report.reason.contains("m1 is the user's last message"),
        "{}",
        report.reason
    );

    // Asked again after a rewind, it stands there as the preview that was in force.
    agent.script.decides(Decision::No("enough".into()));
    let body = chat(std::slice::from_ref(&huge));
    let again = session.turn(&body).unwrap();
    let out = texts(&messages_of(&again.body));
    assert!(out[0].1.starts_with("[truncated: 2500 chars]"), "{out:?}");
}

#[test]
fn strictly_manual_means_that_nothing_is_compacted_but_when_asked() {
    let agent = Agent::new("manual", "scripted", "compression:\n  automatic: false\n");
    agent.script.decides(Decision::Yes("always".into()));
    agent.script.rewrites(notices);
    agent.script.compacts(|request| {
        let cut = request.messages.len() - 1;
        let covers = request.messages[..cut]
            .iter()
            .map(MessageView::id)
            .collect();
        let last = Entry::Keep(request.messages[cut].id());
        Outcome::Compacted(Compaction::new(vec![Entry::summary("short", covers), last]))
    });
    let mut session = agent.session_of(1_000);
    let mut said = vec![
        message("user", "one"),
        message("assistant", "two"),
        message("user", "three"),
    ];
    let body = chat(&said);
    let small = turn(&mut session, &body);
    assert_eq!(
        (small.body.as_ref(), small.compaction),
        (body.as_str(), None)
    );
    // Far above what the window holds, hygiene does not overrule it either.
    for at in 0..6 {
        said.extend([
            message("assistant", &format!("{at} ").repeat(200)),
            message("user", "go on"),
        ]);
    }
    let body = chat(&said);
    let large = turn(&mut session, &body);
    let report = large.compaction.unwrap();
    assert_eq!(report.outcome, OutcomeKind::FloorTooHigh);
    assert!(
        report.reason.contains("compression.automatic: false"),
        "{}",
        report.reason
    );
    assert_eq!(large.body, body);
    let options = TurnOptions::default().compact(Compact::Force);
    let forced = session.turn_with(&body, None, &options).unwrap();
    assert_eq!(forced.compaction.unwrap().outcome, OutcomeKind::Compacted);
}

#[test]
fn an_engine_sees_the_pause_the_window_in_the_background_and_everything_again() {
    let agent = Agent::new("sees", "scripted", "");
    agent.script.rewrites(|request| {
        let idle = request.order.window.idle_ms;
        let warm = request.order.window.cache_is_warm();
        let is_first = request.messages.len() == 1;
        assert_eq!(
            (idle.is_none(), warm),
            (is_first, (!is_first).then_some(true))
        );
        assert_eq!(request.order.window.pauses_ms.last().copied(), idle);
        None
    });
    agent.script.wants_made(|request| {
        let texts: Vec<&str> = request.messages.iter().map(MessageView::text).collect();
        let covers = request.messages.iter().map(MessageView::id).collect();
        vec![BackgroundCall::new(
            1,
            covers,
            ModelRequest::new("t", "", texts.join("|"), 9),
        )]
    });
    let mut session = agent.session();
    let body = chat(&[message("user", "one")]);
    turn(&mut session, &body);
    session
        .answer(&[&message("assistant", "two").to_string()], None)
        .unwrap();
    let work = session.background().unwrap();
    assert!(format!("{work:?}").contains("one|two"), "{work:?}");

    // When it is opened again it is shown nothing twice.
    let said = [
        message("user", "one"),
        message("assistant", "two"),
        message("user", "three"),
    ];
    let body = chat(&said);
    turn(&mut session, &body);
    agent.script.take_observed();
    drop(session);
    agent.script.rewrites(|_| None);
    let mut session = agent.session();
    session.turn(&body).unwrap();
    assert_eq!(agent.script.take_observed(), []);
}

#[test]
fn the_kit_and_the_host_agree_on_what_is_supported() {
    let agent = Agent::new("supports", "scripted", "");
    let session = agent.session();
    let about = session.engine().about();
    assert!(about.rewrites && about.marks.len() == 4);
    let host: Arc<contexture_testkit::ScriptedHost> =
        contexture_testkit::ScriptedHost::without_model();
    assert!(
        ["notice", "restore", "rewrite", "complete"]
            .iter()
            .all(|it| host.services().supports(it))
    );
    assert!(!host.services().supports("sparkle"));
}

#[test]
fn a_notice_and_a_summary_in_the_system_role_are_known_again_in_every_format() {
    let said = [
        message("user", "pumps, please"),
        message("assistant", "yes"),
        message("user", "go on"),
    ];
    let document = Arc::new(formats::read(&*chat(&said), None).unwrap().remove(0));
    let put_in = |text, in_system_role| PlanEntry::Summary {
        text,
        in_system_role,
    };
    let sealed = {
        let agent = Agent::new("sealed", "scripted", "");
        agent.script.rewrites(notices);
        let body = chat(&said[..1]);
        let out = turn(&mut agent.session(), &body).body.into_owned();
        messages_of(&out)[1]["content"].as_str().unwrap().to_owned()
    };
    let plan = RenderPlan {
        entries: vec![
            put_in("【历史摘要】\nthey spoke", true),
            PlanEntry::Message(0),
            put_in(&sealed, true),
            PlanEntry::Message(1),
            PlanEntry::Message(2),
        ],
        ..RenderPlan::default()
    };
    let writable = [
        Format::OpenAiChat,
        Format::OpenAiResponses,
        Format::Anthropic,
        Format::Gemini,
        Format::ClaudeCode,
    ];
    for to in writable {
        let written = document.convert(&plan, to).unwrap().document;
        let read = formats::read(&*written, Some(to)).unwrap().remove(0);
        let kinds: Vec<MessageKind> = read.messages().iter().map(|message| message.kind).collect();
        let (said, summary, notice) = (
            MessageKind::Original,
            MessageKind::Summary,
            MessageKind::Notice,
        );
        assert_eq!(
            kinds,
            [summary, said, notice, said, said],
            "{to:?}: {written}"
        );
        // An agent that resumes from a log begins at its newest summary.
        let summaries = written.matches("\"isCompactSummary\":true").count();
        assert_eq!(summaries, usize::from(to == Format::ClaudeCode));
        let takes_system = matches!(to, Format::OpenAiChat | Format::OpenAiResponses);
        assert_eq!(
            written.matches("\"role\":\"system\"").count(),
            if takes_system { 2 } else { 0 },
            "{written}"
        );
    }
}

#[test]
fn responses_take_a_notice_as_an_item_of_the_system() {
    let agent = Agent::new("notice-responses", "scripted", "");
    agent.script.rewrites(notices);
    let mut session = agent.session();
    let item = |role: &str, text: &str| json!({"type": "message", "role": role, "content": text});
    let body = |items: &[Value]| {
        json!({"model": "gpt-5", "instructions": "Be brief.", "input": items}).to_string()
    };
    let call = json!({"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": "a b"});
    let said = vec![item("user", "list"), call, output];
    let sent = body(&said);
    let out: Value = serde_json::from_str(&turn(&mut session, &sent).body).unwrap();
    let items = out["input"].as_array().unwrap();
    assert_eq!(items[..3], said[..]);
    assert_eq!((&items[3]["role"], items.len()), (&json!("system"), 4));
    let mut carried = items.clone();
    carried.extend([item("assistant", "done"), item("user", "thanks")]);
    agent.script.take_observed();
    let sent = body(&carried);
    let out: Value = serde_json::from_str(&turn(&mut session, &sent).body).unwrap();
    assert_eq!(out["input"].as_array().unwrap()[..6], carried[..]);
    assert_eq!(agent.script.take_observed().len(), 2);
}

#[test]
fn an_engine_that_rewrites_decides_once_it_was_shown_the_window() {
    let agent = Agent::new("decides-late", "decides-late", "");
    let mut session = agent.session();
    let body = chat(&[message("user", "hello")]);
    let turn = turn(&mut session, &body);
    assert!(turn.rewrite.is_none() && turn.decision.is_yes());
    assert_eq!(turn.compaction.unwrap().outcome, OutcomeKind::NothingToDo);
}

/// What does not fit yet is compacted further at once, and not when the client asks the same again: that body is the same.
#[test]
fn what_a_compaction_leaves_too_large_is_compacted_further_in_the_same_turn() {
    for (words, fits) in [(25_000, true), (200_000, false)] {
        let agent = Agent::new(&format!("halves {words}"), "halves", "");
        let mut session = agent.session();
        let mut messages: Vec<Value> = (0..4)
            .map(|at| message(["user", "assistant"][at % 2], &"word ".repeat(words / 4)))
            .collect();
        messages.push(message("user", "go on"));
        let body = chat(&messages);
        let first = turn(&mut session, &body);
        let report = first.compaction.unwrap();
        assert_eq!(report.outcome, OutcomeKind::Compacted);
        assert!(report.tokens_before > words as u64, "{report:?}");
        assert_eq!((report.messages_before, report.messages_after), (5, 2));
        assert_eq!(report.tokens_after <= 9_900, fits, "{report:?}");
        let has_no_room = report.reason.contains("that the window has room for");
        assert_eq!(has_no_room, !fits, "{report:?}");
        let again = turn(&mut session, &body);
        assert_eq!(again.body, first.body);
        let outcome = again.compaction.map(|report| report.outcome);
        assert_eq!(outcome, (!fits).then_some(OutcomeKind::NothingToDo));
        // What is new is a reason to try once more.
        messages.extend([message("assistant", "yes"), message("user", "and now?")]);
        let next = chat(&messages);
        let next = turn(&mut session, &next);
        assert_eq!(
            next.compaction.is_some(),
            !fits || report.tokens_after > 5_000
        );
    }
}

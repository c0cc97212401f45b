//! The transcript that the host stores: what an engine reads of it, the artifacts beside it, and what damage costs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::fs;

use contexture::session::{AgentWindow, Record, Session, SessionOptions};
use contexture_engine_api::{
    About, CompressRequest, ContextEngine, Decision, EngineError, HostInfo, MessageId, OpenRequest,
    Outcome, Services, StandaloneEngine, ToolCall, ToolSpec, TranscriptRange, WindowState,
    register_engine,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use support::engines_in;

register_engine!("reader", Reader<true>);
register_engine!("hashes-only", Reader<false>);

/// An engine that does nothing but read the transcript, and store artifacts, if its tools are called.
struct Reader<const READS: bool>(Services);

impl<const READS: bool> StandaloneEngine for Reader<READS> {
    fn about(_host: &HostInfo) -> About {
        About::default().offers_tools(true).reads_transcript(READS)
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self(request.services.clone()))
    }
}

impl<const READS: bool> ContextEngine for Reader<READS> {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No("it never does".into())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::NothingToDo("it never does".into()))
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let tools = ["read", "put", "get", "list"].iter();
        tools
            .map(|name| ToolSpec::new(*name, "", json!({"type": "object"})))
            .collect()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let name = arguments["name"].as_str().unwrap_or_default();
        Ok(match call.name.as_str() {
            "read" => {
                let range: TranscriptRange = serde_json::from_value(arguments).unwrap();
                let page = self.0.transcript(&range)?;
                let messages: Vec<Value> = (page.messages.iter())
                    .map(|message| json!([message.id, message.role, message.text]))
                    .collect();
                json!({"messages": messages, "next": page.next}).to_string()
            }
            "put" => {
                self.0.put_artifact(name, arguments["text"].as_str())?;
                "null".to_owned()
            }
            "get" => json!(self.0.artifact(name)?).to_string(),
            _ => json!(self.0.artifacts(name)?).to_string(),
        })
    }
}

/// A home directory, and a session of an engine in it.
struct Agent {
    home: TempDir,
    said: Vec<Value>,
}

impl Agent {
    fn new(engine: &str, more: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let yaml = format!("context:\n  engine: {engine}\n{more}");
        fs::write(home.path().join("config.yaml"), yaml).unwrap();
        Self {
            home,
            said: Vec::new(),
        }
    }

    fn session(&self, id: &str) -> Session {
        let record = Record::open(self.home.path()).unwrap();
        self.session_in(id, Some(&record))
    }

    fn session_in(&self, id: &str, record: Option<&std::sync::Arc<Record>>) -> Session {
        let engines = engines_in(self.home.path());
        let agent = AgentWindow::new("gpt-4o", 100_000, 100);
        let options = SessionOptions::default();
        Session::open(&engines, record, id, agent, options).unwrap()
    }

    /// Sends the conversation with this at its end.
    fn say(&mut self, session: &mut Session, role: &str, text: &str) {
        self.said.push(json!({"role": role, "content": text}));
        self.send(session);
    }

    fn send(&self, session: &mut Session) {
        let body = json!({"model": "gpt-4o", "messages": self.said}).to_string();
        session.turn(&body).unwrap();
    }
}

fn call(session: &mut Session, name: &str, arguments: &Value) -> Value {
    let call = ToolCall::new(name.to_owned(), arguments.to_string());
    serde_json::from_str(&session.call_tool(call).unwrap()).unwrap()
}

/// The texts that the engine reads, and where the next page begins.
fn read(session: &mut Session, range: &Value) -> (Vec<String>, Option<u64>) {
    let page = call(session, "read", range);
    let messages = page["messages"].as_array().unwrap().iter();
    let texts = messages.map(|message| message[2].as_str().unwrap().to_owned());
    (texts.collect(), page["next"].as_u64())
}

fn all() -> Value {
    json!({"limit": 100})
}

#[test]
fn an_engine_reads_what_was_said_in_pages_and_by_id() {
    let mut agent = Agent::new("reader", "");
    let mut session = agent.session("s");
    for text in ["one", "two", "three"] {
        agent.say(&mut session, "user", text);
    }
    let said = ["one", "two", "three"].map(str::to_owned).to_vec();
    assert_eq!(read(&mut session, &all()), (said.clone(), None));
    let (first, next) = read(&mut session, &json!({"limit": 2}));
    assert_eq!(first, said[..2]);
    let (last, next) = read(&mut session, &json!({"limit": 2, "after": next}));
    assert_eq!((&last[..], next), (&said[2..], None));
    assert_eq!(
        read(&mut session, &json!({"ids": [3, 1], "limit": 2})).0,
        ["three", "one"]
    );
    // Also in another process, and without a store.
    session.end().unwrap();
    assert_eq!(read(&mut agent.session("s"), &all()).0, said);
    let mut nowhere = agent.session_in("n", None);
    agent.send(&mut nowhere);
    assert_eq!(read(&mut nowhere, &all()).0, said);
}

#[test]
fn what_is_edited_or_cut_is_read_only_if_it_is_asked_for() {
    let mut agent = Agent::new("reader", "");
    let mut session = agent.session("s");
    for text in ["one", "two", "three"] {
        agent.say(&mut session, "user", text);
    }
    agent.said.truncate(1);
    agent.say(&mut session, "user", "other");
    assert_eq!(read(&mut session, &all()).0, ["one", "other"]);
    agent.said[0]["content"] = json!("first");
    agent.say(&mut session, "user", "last");
    let mut current = read(&mut session, &all()).0;
    current.sort_unstable();
    assert_eq!(current, ["first", "last", "other"]);
    let outdated = read(&mut session, &json!({"outdated": true, "limit": 100})).0;
    for text in ["one", "two", "three"] {
        assert!(outdated.iter().any(|other| other == text), "{outdated:?}");
    }
    let record = Record::open(agent.home.path()).unwrap();
    let conversation = record.conversation("s").unwrap();
    let said: Vec<String> = agent.said.iter().map(Value::to_string).collect();
    let stored: Vec<String> = (conversation.iter())
        .map(|text| serde_json::from_str::<Value>(text).unwrap().to_string())
        .collect();
    assert_eq!(stored, said);
}

#[test]
fn artifacts_are_stored_with_the_turn_and_are_the_engines_own() {
    let mut agent = Agent::new("reader", "");
    let mut session = agent.session("s");
    agent.say(&mut session, "user", "one");
    let put = |name: &str, text: Value| json!({"name": name, "text": text});
    for (name, text) in [
        ("a/1", "first"),
        ("a/2", "second"),
        ("b", "third"),
        ("b", "again"),
    ] {
        call(&mut session, "put", &put(name, json!(text)));
    }
    call(&mut session, "put", &put("a/1", Value::Null));
    let check = |session: &mut Session| {
        assert_eq!(
            call(session, "list", &json!({"name": "a/"})),
            json!(["a/2"])
        );
        assert_eq!(call(session, "get", &json!({"name": "b"})), json!("again"));
        assert_eq!(call(session, "get", &json!({"name": "a/1"})), Value::Null);
    };
    check(&mut session);
    agent.say(&mut session, "user", "two");
    session.end().unwrap();
    let mut session = agent.session("s");
    check(&mut session);
    let mut other = agent.session("t");
    assert_eq!(call(&mut other, "list", &json!({"name": ""})), json!([]));
}

#[test]
fn texts_are_stored_if_the_engine_reads_them_or_the_configuration_says_so() {
    for (engine, more, is_stored) in [
        ("reader", "", true),
        ("hashes-only", "", false),
        ("hashes-only", "transcript: {mode: full}\n", true),
    ] {
        let mut agent = Agent::new(engine, more);
        agent.say(&mut agent.session("s"), "user", "one");
        let stored = Record::open(agent.home.path()).unwrap().conversation("s");
        assert_eq!(!stored.unwrap().is_empty(), is_stored, "{engine} {more}");
    }
}

#[test]
fn what_was_said_before_texts_were_stored_is_stored_as_soon_as_it_is_sent_again() {
    let mut agent = Agent::new("hashes-only", "");
    let mut session = agent.session("s");
    for text in ["one", "two"] {
        agent.say(&mut session, "user", text);
    }
    session.end().unwrap();
    let yaml = "context:\n  engine: reader\n";
    fs::write(agent.home.path().join("config.yaml"), yaml).unwrap();
    let mut session = agent.session("s");
    assert_eq!(read(&mut session, &all()).0, <[String; 0]>::default());
    agent.say(&mut session, "user", "three");
    assert_eq!(read(&mut session, &all()).0, ["one", "two", "three"]);
}

#[test]
fn passwords_are_masked_if_the_configuration_says_so() {
    let key = format!("sk-ant-api03-{}", "aB3dE6gH9j".repeat(9));
    for (more, is_masked) in [("", false), ("transcript: {redact: true}\n", true)] {
        let mut agent = Agent::new("reader", more);
        let mut session = agent.session("s");
        agent.say(&mut session, "user", &format!("my key is {key}, use it"));
        let (texts, _) = read(&mut session, &all());
        assert_eq!(!texts[0].contains(&key), is_masked, "{texts:?}");
        assert!(texts[0].starts_with("my key is "), "{texts:?}");
        // The masked form is not taken for another message.
        agent.say(&mut session, "user", "two");
        assert_eq!(read(&mut session, &all()).0.len(), 2);
    }
}

#[test]
fn a_damaged_byte_costs_one_message_and_is_said() {
    let mut agent = Agent::new("reader", "");
    let mut session = agent.session("s");
    for text in ["one", "two", "three"] {
        agent.say(&mut session, "user", text);
    }
    call(&mut session, "put", &json!({"name": "a", "text": "kept"}));
    agent.say(&mut session, "user", "four");
    session.end().unwrap();
    let file = agent.home.path().join("sessions.sqlite3");
    let database = rusqlite::Connection::open(&file).unwrap();
    let damage = "UPDATE texts SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE number = 2";
    assert_eq!(database.execute(damage, []).unwrap(), 1);
    drop(database);
    assert_eq!(
        read(&mut agent.session("s"), &all()).0,
        ["one", "three", "four"]
    );
    let found = Record::verify(agent.home.path()).unwrap();
    assert!(
        found.len() == 1 && found[0].contains("the text of 1 messages (m2)"),
        "{found:?}"
    );
    let repaired = Record::repair(agent.home.path()).unwrap();
    assert!(
        repaired
            .lost
            .iter()
            .any(|line| line.contains("1 messages (m2)")),
        "{repaired:?}"
    );
    assert_eq!(
        Record::verify(agent.home.path()).unwrap(),
        <[String; 0]>::default()
    );
    let mut session = agent.session("s");
    assert_eq!(
        call(&mut session, "get", &json!({"name": "a"})),
        json!("kept")
    );
    // The client still has it.
    agent.say(&mut session, "user", "five");
    let (texts, _) = read(&mut session, &all());
    assert_eq!(texts, ["one", "two", "three", "four", "five"]);
    let ids = call(&mut session, "read", &all());
    assert_eq!(ids["messages"][1][0], json!(MessageId(2)));
}

/// Texts that are alike, as the results of tools are. A session with all of them has a dictionary.
fn alike() -> Vec<String> {
    let text = |at: usize| {
        let line = |line: usize| {
            let id = (at * 31 + line) * 7_919 % 9_973;
            format!("src/module_{line}.rs:{id}: the value {id} is never read in function {at}\n")
        };
        (0..12).map(line).collect()
    };
    (0..120).map(text).collect()
}

#[test]
fn a_damaged_byte_of_the_dictionary_costs_no_message() {
    const OF_TEXTS: &str = "texts SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE number = 0";
    const OF_COPY: &str = "artifacts SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE engine = ''";
    const OF_ONE: &str = "texts SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE number = 100";
    let mut agent = Agent::new("reader", "");
    let mut session = agent.session("s");
    let said = alike();
    for text in &said {
        agent
            .said
            .push(json!({"role": "user", "content": text.clone()}));
    }
    agent.send(&mut session);
    call(&mut session, "put", &json!({"name": "a", "text": said[0]}));
    agent.say(&mut session, "user", "one more");
    session.end().unwrap();
    let file = agent.home.path().join("sessions.sqlite3");
    let whole = fs::read(&file).unwrap();
    let read_all = || {
        let mut session = agent.session("s");
        let (mut texts, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = read(&mut session, &json!({"limit": 50, "after": after}));
            texts.extend(page);
            after = next;
            if after.is_none() {
                let artifact = call(&mut session, "get", &json!({"name": "a"}));
                return (texts, artifact);
            }
        }
    };
    let before = read_all();
    assert_eq!(before.0[..120], said);
    assert_eq!(before.1, json!(said[0]));
    for (damages, is_read, lost) in [
        (&[OF_TEXTS][..], true, None),
        (&[OF_COPY], true, None),
        (&[OF_ONE, OF_TEXTS], false, Some("1 messages (m100)")),
        (
            &[OF_TEXTS, OF_COPY],
            false,
            Some("a copy of its dictionary"),
        ),
    ] {
        let repaired = {
            fs::write(&file, &whole).unwrap();
            let database = rusqlite::Connection::open(&file).unwrap();
            for damage in damages {
                assert_eq!(
                    database.execute(&format!("UPDATE {damage}"), []).unwrap(),
                    1
                );
            }
            drop(database);
            assert_eq!(read_all() == before, is_read, "{damages:?}");
            let found = Record::verify(agent.home.path()).unwrap();
            assert!(
                found.len() == 1 && found[0].contains("a copy of its dictionary"),
                "{found:?}"
            );
            Record::repair(agent.home.path()).unwrap()
        };
        match lost {
            Some(lost) => assert!(
                repaired.lost.iter().any(|line| line.contains(lost)),
                "{repaired:?}"
            ),
            None => assert!(repaired.lost.is_empty(), "{repaired:?}"),
        }
        assert_eq!(
            Record::verify(agent.home.path()).unwrap(),
            <[String; 0]>::default()
        );
        assert_eq!(read_all() == before, is_read, "{damages:?}");
        // The next texts can be stored and read, whatever became of the dictionary.
        let mut session = agent.session("s");
        agent.send(&mut session);
        session.end().unwrap();
        assert_eq!(read_all().0.len(), before.0.len(), "{damages:?}");
    }
}

#[test]
fn the_lines_of_an_agents_log_are_read_back_as_messages() {
    let key = format!("sk-ant-api03-{}", "aB3dE6gH9j".repeat(9));
    let claude = [
        json!({"type": "user", "uuid": "1", "parentUuid": null, "message": {"role": "user", "content": format!("use {key}")}}),
        json!({"type": "assistant", "uuid": "2", "parentUuid": "1", "message": {"role": "assistant", "id": "a",
            "content": [{"type": "text", "text": "I look"}]}}),
        json!({"type": "assistant", "uuid": "3", "parentUuid": "2", "message": {"role": "assistant", "id": "a",
            "content": [{"type": "tool_use", "id": "c", "name": "ls", "input": {}}]}}),
        json!({"type": "user", "uuid": "4", "parentUuid": "3", "toolUseResult": {"stdout": "a.rs"}, "message":
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a.rs"}]}}),
        json!({"type": "user", "uuid": "5", "parentUuid": "4", "isMeta": true, "message":
            {"role": "user", "content": "a reminder"}}),
    ];
    let codex = [
        json!({"type": "session_meta", "payload": {"id": "x"}}),
        json!({"type": "response_item", "payload": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": format!("use {key}")}]}}),
        json!({"type": "response_item", "payload": {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "I look"}]}}),
        json!({"type": "response_item", "payload": {"type": "function_call", "name": "ls", "arguments": "{}",
            "call_id": "c"}}),
        json!({"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c",
            "output": "a.rs"}}),
    ];
    for (log, count) in [(&claude[..], 4), (&codex[..], 3)] {
        for more in ["", "transcript: {redact: true}\n"] {
            let agent = Agent::new("reader", more);
            let mut session = agent.session("s");
            let lines: String = log.iter().map(|line| format!("{line}\n")).collect();
            let conversation = contexture::formats::read(lines.as_str(), None)
                .unwrap()
                .remove(0);
            let expected: Vec<(String, String)> = (conversation.messages().iter())
                .map(|message| (message.role.clone(), message.text.clone()))
                .collect();
            assert_eq!(expected.len(), count);
            let conversation = std::sync::Arc::new(conversation);
            let options = contexture::session::TurnOptions::default();
            session
                .turn_over(&conversation, &options, &mut |_| {})
                .unwrap();
            let page = call(&mut session, "read", &all());
            let found: Vec<(String, String)> = (page["messages"].as_array().unwrap().iter())
                .map(|message| {
                    let text = |at: usize| message[at].as_str().unwrap().to_owned();
                    (text(1), text(2))
                })
                .collect();
            assert_eq!(found[1..], expected[1..], "{more}");
            assert_eq!(found[0].1.contains(&key), more.is_empty());
            assert!(found[0].1.starts_with("use "));
        }
    }
}

//! The engine of virtual files over the host: what a client is handed, what the model reads back, and what is on the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use contexture::engines::Engines;
use contexture::formats::Format;
use contexture::session::{
    AgentWindow, OutcomeKind, Record, Session, SessionOptions, Turn, TurnOptions,
};
use contexture_engine_api::ToolCall;
use contexture_tests::{Home, engines};
// Linked in, and registered with that.
use contexture_tiered as _;
use contexture_virtual_files as _;
use serde_json::{Value, json};

/// A home whose engine is `virtual-files`, and the engines of a process in it.
struct Agent {
    home: Home,
    engines: Arc<Engines>,
    record: Arc<Record>,
}

impl Agent {
    /// `settings` are those of the engine, as YAML in one line.
    fn new(settings: &str) -> Self {
        let home = Home::new();
        home.configure(&format!(
            "context:\n  engine: virtual-files\n  on_failure: fail\n  engines:\n    virtual-files: {settings}\n"
        ));
        Self {
            engines: engines(&home),
            record: Record::open(home.path()).unwrap(),
            home,
        }
    }

    fn session(&self, context_length: u64) -> Session {
        self.session_of(None, context_length)
    }

    fn session_of(&self, engine: Option<&str>, context_length: u64) -> Session {
        let agent = AgentWindow::new("gpt-5", context_length, context_length / 10);
        let options = SessionOptions::default().engine(engine.map(str::to_owned));
        Session::open(&self.engines, Some(&self.record), "one", agent, options).unwrap()
    }

    /// Opens the home anew, as another process does.
    fn reopened(self) -> Self {
        let home = self.home;
        drop((self.engines, self.record));
        Self {
            engines: engines(&home),
            record: Record::open(home.path()).unwrap(),
            home,
        }
    }
}

/// Requests in three formats, with the same in them.
#[derive(Debug, Clone, Copy)]
enum Wire {
    Chat,
    Anthropic,
    Responses,
}

impl Wire {
    const ALL: [Self; 3] = [Self::Chat, Self::Anthropic, Self::Responses];

    fn format(self) -> Format {
        match self {
            Self::Chat => Format::OpenAiChat,
            Self::Anthropic => Format::Anthropic,
            Self::Responses => Format::OpenAiResponses,
        }
    }

    fn body(self, messages: &[Value]) -> String {
        let body = match self {
            Self::Chat => json!({"model": "gpt-5", "messages": messages}),
            Self::Anthropic => json!({"model": "gpt-5", "max_tokens": 99, "messages": messages}),
            Self::Responses => json!({"model": "gpt-5", "input": messages}),
        };
        body.to_string()
    }

    fn messages(self, body: &str) -> Vec<Value> {
        let body: Value = serde_json::from_str(body).unwrap();
        let key = if matches!(self, Self::Responses) {
            "input"
        } else {
            "messages"
        };
        body[key].as_array().unwrap().clone()
    }

    fn call(self, id: &str) -> Value {
        match self {
            Self::Chat => json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "Read Log", "arguments": "{}"}}]}),
            Self::Anthropic => json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": id, "name": "Read Log", "input": {}}]}),
            Self::Responses => {
                json!({"type": "function_call", "call_id": id, "name": "Read Log", "arguments": "{}"})
            }
        }
    }

    fn result(self, id: &str, text: &str) -> Value {
        match self {
            Self::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
            Self::Anthropic => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": text}]}),
            Self::Responses => {
                json!({"type": "function_call_output", "call_id": id, "output": text})
            }
        }
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn turn<'b>(session: &mut Session, wire: Wire, body: &'b str) -> Turn<'b> {
    let options = TurnOptions::default();
    let turn = session
        .turn_with(body, Some(wire.format()), &options)
        .unwrap();
    assert_eq!(session.take_warnings(), Vec::<String>::new());
    turn
}

fn tool(session: &mut Session, name: &str, arguments: Value) -> Result<String, String> {
    let call = ToolCall::new(name, arguments.to_string());
    session.call_tool(call).map_err(|error| error.to_string())
}

fn lines(count: usize) -> String {
    (1..=count)
        .map(|line| format!("line {line} of the log says nothing\n"))
        .collect()
}

/// The name of the file that a body shows first.
fn file_in(body: &str) -> String {
    let (_, rest) = body.split_once("[file ").expect("a file is shown");
    rest.split_once(':').unwrap().0.to_owned()
}

#[test]
fn what_is_large_becomes_a_file_in_every_format_and_the_model_reads_it_back() {
    for wire in Wire::ALL {
        let agent = Agent::new("{file_tokens: 1000, preview_tokens: 100}");
        let mut session = agent.session(100_000);
        let log = lines(400);
        let mut said = vec![user("look"), wire.call("c1"), wire.result("c1", &log)];
        let body = wire.body(&said);
        let first = turn(&mut session, wire, &body).body.into_owned();
        let out = wire.messages(&first);
        let name = file_in(&first);
        assert!(
            name.starts_with("read-log-") && name.ends_with(".txt"),
            "{name}"
        );
        assert!(
            first.contains("line 5 of") && !first.contains("line 300 of"),
            "{first}"
        );
        let text = out.last().unwrap().to_string();
        let marks = (
            text.matches("[virtual files] ").count(),
            text.matches(&name).count(),
        );
        match wire {
            // The result, and the notice after it in the same message.
            Wire::Anthropic => assert_eq!((out.len(), marks), (3, (1, 2)), "{text}"),
            _ => assert_eq!((out.len(), marks), (4, (1, 1)), "{text}"),
        }
        for tool in ["file_list", "file_read", "file_regex"] {
            assert!(first.contains(&format!("\"name\":\"{tool}\"")), "{tool}");
        }

        // The next body begins with the bytes of this one, whether the client sends everything or carries on.
        let common = |body: &str| {
            let list = if matches!(wire, Wire::Responses) {
                "\"input\":["
            } else {
                "\"messages\":["
            };
            let from = body.find(list).unwrap() + list.len();
            let until = body.find("[notice #").unwrap();
            body[from..until].to_owned()
        };
        let more = [assistant("a long log"), user("and its middle?")];
        let mut carried = out.clone();
        carried.extend(more.clone());
        said.extend(more);
        let body = wire.body(&said);
        let second = turn(&mut session, wire, &body).body.into_owned();
        assert_eq!(common(&second), common(&first));
        drop(session);
        let mut session = agent.session(100_000);
        let body = wire.body(&carried);
        let again = turn(&mut session, wire, &body).body.into_owned();
        assert_eq!(again, second, "after a restart, from what was handed out");
        // The call may come before the next request, of a process that was started anew.
        drop(session);
        let mut session = agent.session(100_000);

        let list = tool(&mut session, "file_list", json!({})).unwrap();
        assert!(
            list.starts_with(&format!("{name}: the result of Read Log, ")),
            "{list}"
        );
        assert!(list.ends_with("400 lines\n"), "{list}");
        let part = json!({"name": name, "start_line": 300, "lines": 2});
        let read = tool(&mut session, "file_read", part).unwrap();
        assert_eq!(
            read,
            format!(
                "[{name}: lines 300 to 301 of 400; 99 lines are left: continue with {{\"start_line\":302}}]\n\
                 line 300 of the log says nothing\nline 301 of the log says nothing\n"
            )
        );
        let found = tool(
            &mut session,
            "file_regex",
            json!({"pattern": "^line 39[89]"}),
        )
        .unwrap();
        assert_eq!(
            found,
            format!(
                "{name}:398: line 398 of the log says nothing\n{name}:399: line 399 of the log says nothing\n"
            )
        );
    }
}

#[test]
fn a_whole_file_is_read_in_bounded_parts_none_of_which_becomes_a_file() {
    let agent = Agent::new("{file_tokens: 1000, preview_tokens: 100}");
    let mut session = agent.session(100_000);
    let text = format!("{}{}", lines(300), "日本語の長い一行".repeat(400));
    let body = Wire::Chat.body(&[user(&text)]);
    let name = file_in(&turn(&mut session, Wire::Chat, &body).body);
    let mut back = String::new();
    let mut next = json!({"name": name});
    loop {
        let answer = tool(&mut session, "file_read", next.clone()).unwrap();
        let (head, part) = answer.split_once("]\n").unwrap();
        assert!(part.len() < 6_000, "{}", part.len());
        back.push_str(part);
        let Some((_, on)) = head.split_once("continue with ") else {
            break;
        };
        let on: Value = serde_json::from_str(on).unwrap();
        next = json!({"name": name});
        next.as_object_mut()
            .unwrap()
            .extend(on.as_object().unwrap().clone());
    }
    assert_eq!(back, text);
}

#[test]
fn wrong_arguments_are_told() {
    let agent = Agent::new("{file_tokens: 1000, preview_tokens: 100}");
    let mut session = agent.session(100_000);
    let body = Wire::Chat.body(&[user(&lines(400))]);
    let name = file_in(&turn(&mut session, Wire::Chat, &body).body);
    std::fs::write(agent.home.path().join("secret.txt"), "not for the model").unwrap();
    for (tool_name, arguments, expected) in [
        ("file_read", json!({}), "missing field `name`"),
        (
            "file_read",
            json!({"name": "../../../secret.txt"}),
            "there is no file",
        ),
        (
            "file_read",
            json!({"name": "journal.jsonl"}),
            "there is no file",
        ),
        (
            "file_read",
            json!({"name": name, "start_line": 401}),
            "has 400 lines",
        ),
        (
            "file_read",
            json!({"name": name, "lines": 0}),
            "must be at least 1",
        ),
        (
            "file_read",
            json!({"name": name, "start_char": 99_999_999}),
            "characters",
        ),
        (
            "file_read",
            json!({"name": name, "lines": 1, "chars": 1}),
            "not both",
        ),
        (
            "file_read",
            json!({"name": name, "line": 1}),
            "unknown field `line`",
        ),
        (
            "file_regex",
            json!({"pattern": "("}),
            "not a valid regular expression",
        ),
        (
            "file_regex",
            json!({"pattern": "(a{1000}){1000}"}),
            "not a valid regular expression",
        ),
        ("file_regex", json!({"pattern": ""}), "1 to 1000"),
        (
            "file_regex",
            json!({"pattern": "line", "offset": 400}),
            "400 lines match",
        ),
        ("file_list", json!({"offset": 1}), "there are 1 files"),
        ("file_write", json!({}), "file_write"),
    ] {
        let error = tool(&mut session, tool_name, arguments.clone()).unwrap_err();
        assert!(error.contains(expected), "{tool_name} {arguments}: {error}");
    }
    let answer = tool(
        &mut session,
        "file_regex",
        json!({"pattern": "LINE", "ignore_case": true}),
    );
    let answer = answer.unwrap();
    assert!(answer.lines().count() <= 51, "{answer}");
    assert!(
        answer.contains("more matches: continue with {\"offset\":"),
        "{answer}"
    );
    let none = tool(
        &mut session,
        "file_regex",
        json!({"pattern": "(a*)*$^b", "name": name}),
    );
    assert_eq!(none.unwrap(), "No line matches in 1 files.");
}

#[test]
fn an_image_beside_a_large_text_stays() {
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    for wire in Wire::ALL {
        let agent = Agent::new("{file_tokens: 1000, preview_tokens: 100}");
        let mut session = agent.session(100_000);
        let url = format!("data:image/png;base64,{pixel}");
        let (text, image) = match wire {
            Wire::Chat => (
                "text",
                json!({"type": "image_url", "image_url": {"url": url}}),
            ),
            Wire::Responses => (
                "input_text",
                json!({"type": "input_image", "image_url": url}),
            ),
            Wire::Anthropic => (
                "text",
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": pixel}}),
            ),
        };
        let said = json!({"role": "user", "content": [{"type": text, "text": lines(300)}, image]});
        let body = wire.body(&[said]);
        let out = turn(&mut session, wire, &body).body.into_owned();
        assert!(
            out.contains("[file user-") && !out.contains("line 200 of"),
            "{wire:?} {out}"
        );
        assert!(out.contains(pixel), "{wire:?}");
    }
}

#[test]
fn a_name_that_the_client_uses_becomes_one_of_the_engines() {
    let agent = Agent::new("{}");
    let mut session = agent.session(100_000);
    let own = json!({"type": "function", "function": {"name": "file_read", "parameters": {"type": "object"}}});
    let body = json!({"model": "gpt-5", "messages": [user("hi")], "tools": [own]}).to_string();
    turn(&mut session, Wire::Chat, &body);
    let names: Vec<String> = session.offered_tools().map(str::to_owned).collect();
    assert_eq!(
        names,
        ["file_list", "virtual-files_file_read", "file_regex"]
    );
    assert!(tool(&mut session, "file_read", json!({"name": "x.txt"})).is_err());
    let error = tool(
        &mut session,
        "virtual-files_file_read",
        json!({"name": "x.txt"}),
    )
    .unwrap_err();
    assert!(error.contains("there is no file \"x.txt\""), "{error}");
    assert_eq!(
        tool(&mut session, "file_list", json!({})).unwrap(),
        "There are no files yet."
    );
}

/// The names of the files that are listed.
fn names(session: &mut Session) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let list = tool(session, "file_list", json!({"offset": names.len()})).unwrap();
        let (files, more): (Vec<&str>, Vec<&str>) =
            list.lines().partition(|line| !line.starts_with('['));
        let named = files.iter().filter_map(|line| line.split_once(": "));
        names.extend(named.map(|(name, _)| name.to_owned()));
        if more.is_empty() {
            return names;
        }
    }
}

/// The whole text of a file.
fn whole(session: &mut Session, name: &str) -> String {
    let (mut text, mut start) = (String::new(), 0);
    loop {
        let part = json!({"name": name, "start_char": start});
        let answer = tool(session, "file_read", part).unwrap();
        let (head, part) = answer.split_once("]\n").unwrap();
        text.push_str(part);
        start += part.chars().count();
        if !head.contains("continue with") {
            return text;
        }
    }
}

#[test]
fn what_was_cut_off_leaves_the_list_and_can_be_read_under_its_name() {
    let agent = Agent::new("{file_tokens: 1000, preview_tokens: 100}");
    let mut session = agent.session(100_000);
    let (one, two) = (
        format!("one\n{}", lines(300)),
        format!("two\n{}", lines(300)),
    );
    let said = [user(&one), assistant("yes"), user(&two)];
    let wire = Wire::Chat;
    turn(&mut session, wire, &wire.body(&said));
    let [second, first]: [String; 2] = names(&mut session).try_into().unwrap();
    // Another second question.
    let body = wire.body(&[said[0].clone(), said[1].clone(), user("other")]);
    let rewound = turn(&mut session, wire, &body).body.into_owned();
    assert_eq!(names(&mut session), std::slice::from_ref(&first));
    let notice = rewound.rsplit_once("[virtual files]").unwrap().1;
    assert!(
        notice.contains(&first) && !notice.contains(&second),
        "{notice}"
    );
    for (name, text) in [(&first, &one), (&second, &two)] {
        assert_eq!(whole(&mut session, name), *text);
    }
    // Back to the branch that shows both, and the same text said once more is the same file.
    let mut said = said.to_vec();
    said.extend([assistant("well"), user(&one)]);
    let body = wire.body(&said);
    turn(&mut session, wire, &body);
    assert_eq!(names(&mut session), [first, second]);
}

/// Numbers that look random, from 0 to below `below`.
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

#[test]
fn whatever_befalls_the_engines_folder_everything_can_be_read_again() {
    let mut windows = 0;
    for seed in 1..=4 {
        let mut state = seed * 0x9e37_79b9;
        let mut agent = Agent::new("{file_tokens: 400, preview_tokens: 50}");
        let folder = agent.home.path().join("engines/virtual-files");
        let mut session = agent.session(4_000);
        let mut said: Vec<Value> = Vec::new();
        // What each file was when it was first read.
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for round in 0..40 {
            let at = format!("seed {seed}, round {round}");
            let large = random(&mut state, 2) == 0;
            let text = format!("{round}: {}", lines(if large { 80 } else { 25 }));
            said.push(user(&text));
            match random(&mut state, 10) {
                // A process that ends, and what lies in the engine's folder is gone or in the way.
                0..4 => {
                    drop(session);
                    let _ = std::fs::remove_dir_all(&folder);
                    if random(&mut state, 2) == 0 {
                        std::fs::create_dir_all(&folder).unwrap();
                        std::fs::write(folder.join("cooldown.json"), "{\"tr").unwrap();
                    }
                    agent = agent.reopened();
                    session = agent.session(4_000);
                }
                // Another engine has the session for a turn.
                4..6 => {
                    drop(session);
                    let other = ["compressor", "tiered"][random(&mut state, 2) as usize];
                    session = agent.session_of(Some(other), 4_000);
                    session.turn(&Wire::Chat.body(&said)).unwrap();
                    session.take_warnings();
                    said.extend([assistant("yes"), user(&format!("{round} under {other}"))]);
                    drop(session);
                    session = agent.session(4_000);
                }
                // The user goes back.
                6 if said.len() > 6 => {
                    said.truncate(said.len() - 5);
                    said.push(user(&format!("{round}, another way")));
                }
                _ => {}
            }
            session.turn(&Wire::Chat.body(&said)).unwrap();
            assert_eq!(session.take_warnings(), [""; 0], "{at}");
            let listed = names(&mut session);
            for name in &listed {
                let text = whole(&mut session, name);
                if !texts.contains_key(name) {
                    let is_window = name.starts_with("window-");
                    let is_said = said.iter().any(|said| said["content"] == text.as_str());
                    assert!(is_said != is_window, "{at}: {name}");
                    windows += usize::from(is_window);
                    texts.insert(name.clone(), text);
                }
            }
            let all = if round % 8 == 7 { texts.len() } else { 2 };
            for (name, text) in texts.iter().take(all) {
                assert_eq!(whole(&mut session, name), *text, "{at}: {name}");
            }
            let large: BTreeSet<&str> = (said.iter())
                .filter_map(|said| said["content"].as_str())
                .filter(|text| text.len() > 2_000)
                .collect();
            let is_listed = |text: &&str| listed.iter().any(|name| texts[name] == **text);
            let unlisted: Vec<&&str> = large.iter().filter(|text| !is_listed(text)).collect();
            assert!(unlisted.is_empty(), "{at}: {unlisted:.100?} of {listed:?}");
            said.push(assistant("yes"));
        }
        assert!(texts.len() > 8, "seed {seed}: {} files", texts.len());
    }
    assert!(windows > 4, "{windows} windows");
}

#[test]
fn at_the_limit_no_tool_may_be_called_and_one_notice_says_so() {
    for wire in Wire::ALL {
        let agent = Agent::new("{max_tool_calls: 2}");
        let mut session = agent.session(100_000);
        let mut said = vec![user("look")];
        for round in 0..3 {
            let body = wire.body(&said);
            let turn = turn(&mut session, wire, &body);
            let out: Value = serde_json::from_str(&turn.body).unwrap();
            let choice = match wire {
                Wire::Anthropic => json!({"type": "none"}),
                _ => json!("none"),
            };
            assert_eq!(turn.tools_denied.is_some(), round == 2, "{wire:?} {round}");
            assert_eq!(out["tool_choice"] == choice, round == 2, "{wire:?} {round}");
            let told = turn.body.matches("limit of 2 tool calls").count();
            assert_eq!(told, usize::from(round == 2), "{wire:?} {round}");
            let id = format!("c{round}");
            said.extend([wire.call(&id), wire.result(&id, "nothing")]);
        }
        // The same after a restart, and told no second time; the user's next word begins anew.
        said.truncate(5);
        drop(session);
        let mut session = agent.session(100_000);
        let body = wire.body(&said);
        let again = turn(&mut session, wire, &body);
        assert!(again.tools_denied.unwrap().contains("`max_tool_calls`"));
        assert_eq!(again.body.matches("limit of 2 tool calls").count(), 1);
        said.extend([assistant("I give up"), user("try once more")]);
        let body = wire.body(&said);
        assert_eq!(turn(&mut session, wire, &body).tools_denied, None);
    }
}

#[test]
fn a_full_window_becomes_a_summary_and_a_file_that_is_searched() {
    for wire in Wire::ALL {
        let agent = Agent::new("{}");
        let mut session = agent.session(8_000);
        let mut said = vec![user("The needle is 4711-amber. Never touch the schema.")];
        let mut compacted = None;
        for round in 0..40 {
            let body = wire.body(&said);
            let turn = turn(&mut session, wire, &body);
            let usage = turn
                .compaction
                .filter(|report| report.outcome == OutcomeKind::Compacted);
            if let Some(report) = usage {
                compacted = Some((report, turn.body.into_owned()));
                break;
            }
            let id = format!("c{round}");
            said.extend([wire.call(&id), wire.result(&id, &lines(30))]);
        }
        let (report, body) = compacted.expect("a compaction");
        assert!(
            !report.degraded,
            "no model is configured, so none was wanted"
        );
        assert!(report.tokens_after < 6_400, "{}", report.reason);
        assert!(
            body.contains("The needle is 4711-amber"),
            "the user's last words"
        );
        let name = file_in(&body);
        assert!(name.starts_with("window-"), "{name}");
        let notice = body.rsplit_once("[virtual files] ").unwrap().1;
        assert!(notice.contains(&name), "{notice}");
        assert_eq!(body.matches("[virtual files] ").count(), 1, "{wire:?}");
        let found = tool(&mut session, "file_regex", json!({"pattern": "4711"})).unwrap();
        assert!(
            found.starts_with(&format!("{name}:2: The needle")),
            "{found}"
        );
        let text = whole(&mut session, &name);
        assert!(!text.contains("[virtual files]") && text.contains("line 30 of the log"));
        assert!(text.contains("=== the result of Read Log ==="));

        // A cut to before the compaction takes the window from the list.
        let body = wire.body(&[user("Something else.")]);
        session.turn(&body).unwrap();
        assert_eq!(
            tool(&mut session, "file_list", json!({})).unwrap(),
            "There are no files yet."
        );
    }
}

#[test]
fn what_no_compaction_makes_room_for_becomes_files() {
    let agent = Agent::new("{}");
    let mut session = agent.session(20_000);
    let wire = Wire::Chat;
    let ids: Vec<String> = (0..6).map(|at| format!("c{at}")).collect();
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "cat", "arguments": "{}"}}))
        .collect();
    let mut said = vec![
        user("read them"),
        json!({"role": "assistant", "content": null, "tool_calls": calls}),
    ];
    // None of them is large alone, and all of them are one turn that the model has not answered.
    said.extend(
        ids.iter()
            .map(|id| wire.result(id, &format!("{id}\n{}", lines(430)))),
    );
    let body = wire.body(&said);
    let turn = turn(&mut session, wire, &body);
    let report = turn.compaction.unwrap();
    assert_eq!(report.outcome, OutcomeKind::Compacted, "{}", report.reason);
    assert!(report.tokens_after < 16_000, "{}", report.reason);
    assert!(turn.body.contains("[file cat-"));
}

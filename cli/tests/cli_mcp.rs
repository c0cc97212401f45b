//! `contexture mcp`, as a client of the Model Context Protocol speaks to it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

use cli_support::{Home, claude_code_log};
use serde_json::{Value, json};

struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    /// Starts the server, and shakes hands with it.
    fn start(home: &Home, session: &str) -> Self {
        Self::of(home, &["mcp", "--session", session])
    }

    fn of(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(args.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self {
            child,
            out,
            next: 1,
        };
        let lacking = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        let told = client.ask("initialize", lacking);
        assert!(
            told["error"]["message"]
                .to_string()
                .contains("`clientInfo`"),
            "{told}"
        );
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": [], "clientInfo": {"name": "t", "version": "1"}});
        let told = client.ask("initialize", about);
        assert_eq!(told["result"]["serverInfo"]["name"], "contexture", "{told}");
        assert!(told["result"]["capabilities"]["tools"].is_object());
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        self.write(message.to_string().as_bytes());
    }

    fn write(&mut self, line: &[u8]) {
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(&[line, b"\n"].concat()).unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "it ended");
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let told = self.read();
        assert_eq!(told["id"], id, "{told}");
        told
    }

    /// What a tool says, and whether that is an error.
    fn call(&mut self, name: &str, arguments: Value) -> (String, bool) {
        let told = self.ask("tools/call", json!({"name": name, "arguments": arguments}));
        let result = &told["result"];
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (text, result["isError"] == true)
    }
}

fn conversation(messages: usize) -> String {
    let line = |at: usize| {
        let role = ["user", "assistant"][at % 2];
        format!(
            "{}\n",
            json!({"role": role, "content": format!("item-{at} is on the shelf")})
        )
    };
    (0..messages).map(line).collect()
}

#[test]
fn a_client_has_the_tools_of_a_stored_session() {
    let home = Home::new();
    home.put("log.jsonl", &conversation(40));
    home.done("import log.jsonl --session s");
    let mut client = Client::start(&home, "s");
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let grep = tools
        .iter()
        .find(|tool| tool["name"] == "lcm_grep")
        .unwrap();
    assert_eq!(grep["inputSchema"]["type"], "object");
    assert!(!grep["description"].as_str().unwrap().is_empty());
    let (found, is_error) = client.call("lcm_grep", json!({"pattern": "item-17"}));
    assert!(
        !is_error && found.contains("item-17 is on the shelf"),
        "{found}"
    );
    let (message, is_error) = client.call("lcm_expand", json!({"id": "m18"}));
    assert!(!is_error && message.contains("item-17"), "{message}");
    for (tool, arguments) in [
        ("lcm_grep", json!({"unknown": true})),
        ("lcm_nothing", json!({})),
    ] {
        let (said, is_error) = client.call(tool, arguments);
        assert!(is_error && !said.is_empty(), "{tool}: {said}");
    }
    // What came since is found, too.
    home.put("log.jsonl", &conversation(60));
    home.done("import log.jsonl --session s");
    let (found, is_error) = client.call("lcm_grep", json!({"pattern": "item-55"}));
    assert!(!is_error && found.contains("item-55 is"), "{found}");
    drop(client.child.stdin.take());
    assert_eq!(client.child.wait().unwrap().code(), Some(0));
}

/// The window is that of the agent whose session it was, and not of who reads it.
#[test]
fn a_small_window_in_the_configuration_takes_no_tools_from_a_reader() {
    let home = Home::new();
    home.put("log.jsonl", &conversation(4));
    home.done("import log.jsonl --session s");
    home.put("home/config.yaml", "model: {context_length: 8000}\n");
    home.done("tool --session s").stdout_has("lcm_grep");
}

/// A client that is not answered waits until its own timeout.
#[test]
fn every_line_but_a_notification_is_answered() {
    let home = Home::new();
    home.put("log.jsonl", &conversation(4));
    home.done("import log.jsonl --session s");
    let mut client = Client::start(&home, "s");
    let call = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)
    };
    let half = call(r#"{"name":"lcm_grep","arguments":{"question":"which item is \ud83d on"}}"#);
    for (line, id, code) in [
        (half.as_bytes(), json!(7), Value::Null),
        (b"no JSON", Value::Null, json!(-32700)),
        (
            b"{\"jsonrpc\": \"2.0\", \"id\": 7",
            Value::Null,
            json!(-32700),
        ),
        (b"\"\xff\"", Value::Null, json!(-32700)),
        (b"[]", Value::Null, json!(-32600)),
        (br#"{"jsonrpc":"2.0","id":7}"#, json!(7), json!(-32600)),
        (
            br#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
            json!("a"),
            json!(-32600),
        ),
        (
            br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            Value::Null,
            json!(-32600),
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[]}"#,
            json!(7),
            Value::Null,
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"nothing"}"#,
            json!(7),
            json!(-32601),
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
            json!(7),
            json!(-32602),
        ),
        (
            call(r#"{"name":"lcm_grep","arguments":"x"}"#).as_bytes(),
            json!(7),
            json!(-32602),
        ),
        (call(r#"{"name":7}"#).as_bytes(), json!(7), json!(-32602)),
    ] {
        client.write(b"");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/nothing"}));
        client.write(line);
        let told = client.read();
        let line = String::from_utf8_lossy(line);
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&id, &code),
            "{line}: {told}"
        );
    }
    // The words of a refusal are the engine's, and not those of a crash.
    for none in [json!({}), json!([])] {
        let (said, is_error) = client.call("lcm_grep", none);
        assert!(is_error && said.starts_with("lcm_grep takes"), "{said}");
    }
    let (said, is_error) = client.call("nothing", json!({}));
    assert!(is_error && !said.contains("failed"), "{said}");
}

#[test]
fn a_session_that_is_not_there_is_said_at_once() {
    let home = Home::new();
    let ran = home.contexture("mcp --session nobody");
    ran.exits(2);
    assert!(ran.stderr.contains("nobody") && ran.stdout.is_empty());
}

/// A log of pi with many messages, a call of a tool and its long result.
fn history(home: &Home) {
    let mut log = format!(
        "{}\n",
        json!({"type": "session", "id": "s", "cwd": "/work/shop"})
    );
    let mut say = |message: Value| {
        let line =
            json!({"type": "message", "timestamp": "2026-01-31T09:00:00Z", "message": message});
        log.push_str(&format!("{line}\n"));
    };
    for n in 0..60 {
        say(json!({"role": "user", "content": format!("pageword number {n} of the list")}));
    }
    say(json!({"role": "assistant", "content": [
        {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "cargo fixword"}},
    ]}));
    let result = format!(
        "resultword password=hunter2secret {}lastword",
        "line of output\n".repeat(5_000)
    );
    say(json!({"role": "toolResult", "toolCallId": "c", "toolName": "bash", "content": result}));
    home.put(".pi/agent/sessions/--work-shop--/s.jsonl", &log);
    home.done("import --all");
}

#[test]
fn the_history_is_searched_and_read_in_pages_within_a_budget() {
    let home = Home::new();
    history(&home);
    let mut client = Client::of(&home, &["mcp"]);
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["history_search", "history_read"]);

    // All pages together have every message once.
    let (mut offset, mut seen) = (0, Vec::new());
    loop {
        let arguments = json!({"query": "pageword", "offset": offset, "max_tokens": 500});
        let (page, is_error) = client.call("history_search", arguments);
        assert!(
            !is_error && page.len() < 500 * 5,
            "{} bytes: {page}",
            page.len()
        );
        let ids = page.lines().filter(|line| line.starts_with('m'));
        seen.extend(ids.map(|line| line.split_whitespace().next().unwrap().to_owned()));
        match page
            .lines()
            .find_map(|line| line.strip_prefix("More: offset "))
        {
            Some(next) => offset = next.parse::<usize>().unwrap(),
            None => break,
        }
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (60, 60));

    // How a command was run, and what it answered, without secrets and within the budget.
    let (found, _) = client.call(
        "history_search",
        json!({"query": "fixword", "kind": "tools", "project": "shop"}),
    );
    let id = found.lines().find(|line| line.starts_with('m')).unwrap();
    let id = id.split_whitespace().next().unwrap().to_owned();
    let (read, is_error) = client.call("history_read", json!({"id": id, "context": 0}));
    assert!(
        !is_error && read.contains("cargo fixword") && read.contains("resultword"),
        "{read}"
    );
    assert!(
        !read.contains("hunter2secret") && read.len() < 2_000 * 5,
        "{read}"
    );

    // The rest of a long message is a page away.
    let (found, _) = client.call("history_search", json!({"query": "resultword"}));
    let id = found.lines().find(|line| line.starts_with('m')).unwrap();
    let id = id.split_whitespace().next().unwrap().to_owned();
    let mut from = 0;
    let mut pages = 0;
    loop {
        let arguments = json!({"id": id, "context": 0, "from": from, "max_tokens": 20_000});
        let (page, _) = client.call("history_read", arguments);
        pages += 1;
        match page.split_once(" and from ") {
            Some((_, next)) => from = next.split(']').next().unwrap().parse::<usize>().unwrap(),
            None => {
                assert!(page.contains("lastword"), "{page}");
                break;
            }
        }
        assert!(pages < 20);
    }
    for (tool, arguments) in [
        ("history_search", json!({"query": "x", "unknown": 1})),
        ("history_search", json!({"query": "x", "since": "soon"})),
        (
            "history_search",
            json!({"query": "x", "project": "nothing"}),
        ),
        ("history_read", json!({"id": "m999999"})),
        ("other", json!({})),
    ] {
        let (said, is_error) = client.call(tool, arguments);
        assert!(is_error && !said.is_empty(), "{tool}: {said}");
    }
    drop(client.child.stdin.take());
    assert_eq!(client.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_session_has_the_tools_of_the_history_if_there_is_one() {
    let home = Home::new();
    home.put("log.jsonl", &conversation(4));
    home.done("import log.jsonl --session s");
    let names = |client: &mut Client| {
        let listed = client.ask("tools/list", json!({}));
        listed["result"]["tools"].to_string()
    };
    let mut client = Client::start(&home, "s");
    assert!(!names(&mut client).contains("history_search"));
    history(&home);
    let listed = names(&mut client);
    assert!(
        listed.contains("history_search") && listed.contains("lcm_grep"),
        "{listed}"
    );
    drop(client.child.stdin.take());
    client.child.wait().unwrap();
}

/// An agent starts its servers before it has compacted anything.
#[test]
fn an_agent_has_the_tools_of_its_session_in_this_folder() {
    let home = Home::new();
    home.put("home/config.yaml", "context: {engine: lcm}\n");
    home.put("log.jsonl", &claude_code_log(60));
    let mut client = Client::of(&home, &["mcp", "--agent", "claude"]);
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    assert!(
        tools.iter().any(|tool| tool["name"] == "lcm_grep"),
        "{listed}"
    );
    let question = json!({"pattern": "file_7"});
    let (answer, is_error) = client.call("lcm_grep", question.clone());
    assert!(is_error && answer.contains("was compacted yet"), "{answer}");
    let event = json!({
        "session_id": "s-1", "transcript_path": home.path("log.jsonl"), "cwd": home.path("."),
        "hook_event_name": "PreCompact",
    });
    home.pipe(["hook", "claude"], event.to_string().as_bytes())
        .exits(0);
    let (answer, is_error) = client.call("lcm_grep", question.clone());
    assert!(!is_error && answer.contains("src/file_7.rs"), "{answer}");
    // Another agent has no session here.
    let mut client = Client::of(&home, &["mcp", "--agent", "codex"]);
    let (answer, is_error) = client.call("lcm_grep", question);
    assert!(is_error, "{answer}");
}

#[test]
fn a_client_pins_words_of_a_stored_session() {
    let home = Home::new();
    home.put("home/config.yaml", "compression: {model_tools: true}\n");
    home.put("log.jsonl", &conversation(40));
    home.done("import log.jsonl --session s");
    let mut client = Client::start(&home, "s");
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let is_there = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    assert!(is_there("context_pin") && is_there("context_unpin"));
    // A session that gets no requests cannot compact.
    assert!(!is_there("context_reduce"));
    let pin = json!({"text": "The port is 8123."});
    let (said, is_error) = client.call("context_pin", pin.clone());
    assert!(!is_error && said.contains("- The port is 8123."), "{said}");
    let (said, is_error) = client.call("context_unpin", json!({"text": "The port"}));
    assert!(
        is_error && said.contains("no pin with these words"),
        "{said}"
    );
    // It is stored with the session.
    let mut other = Client::start(&home, "s");
    let (said, is_error) = other.call("context_unpin", pin);
    assert!(!is_error && said.contains("none"), "{said}");
}

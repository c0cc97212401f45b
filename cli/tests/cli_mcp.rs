//! `contexture mcp`, as a client of the Model Context Protocol speaks to it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

use cli_support::Home;
use serde_json::{Value, json};

struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    /// Starts the server, and shakes hands with it.
    fn start(home: &Home, session: &str) -> Self {
        let mut command = home.command(["mcp", "--session", session]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self {
            child,
            out,
            next: 1,
        };
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let told = client.ask("initialize", about);
        assert_eq!(told["result"]["serverInfo"]["name"], "contexture", "{told}");
        assert!(told["result"]["capabilities"]["tools"].is_object());
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        let mut input = self.child.stdin.as_ref().unwrap();
        writeln!(input, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "it ended");
        let told: Value = serde_json::from_str(&line).unwrap();
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

#[test]
fn a_session_that_is_not_there_is_said_at_once() {
    let home = Home::new();
    let ran = home.contexture("mcp --session nobody");
    ran.exits(2);
    assert!(ran.stderr.contains("nobody") && ran.stdout.is_empty());
}

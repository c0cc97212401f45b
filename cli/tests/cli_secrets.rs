//! Every kind of secret in every place of every format, through the command: none is stored by `lcm` under `redact`,
//! and none is sent to the model that summarises. `CONTEXTURE_SECRET_DOCUMENTS=…` plays so many of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;
#[path = "../../engines/secrets/tests/support/secrets.rs"]
mod corpus;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use cli_support::Home;
use contexture::session::Record;
use corpus::{Case, Random, assigned, keys, leak, notations, secrets};
use serde_json::{Value, json};

/// A model server that notes what it is asked.
struct Model {
    address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Model {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Ok(asked) = answer(&stream) {
                    notes.lock().unwrap().push(asked);
                }
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

fn answer(mut stream: &TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut asked = vec![0; length];
    reader.read_exact(&mut asked)?;
    let message = json!({"role": "assistant", "content": "They talked about keys."});
    let body = json!({"choices": [{"message": message, "finish_reason": "stop"}]}).to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    Ok(String::from_utf8_lossy(&asked).into_owned())
}

/// A text where something else would stand: of one placement, or nowhere.
struct Places<'a> {
    text: &'a str,
    /// Behind a line break, which is an escape in JSON.
    lines: String,
    arguments: Value,
    nested: String,
}

impl<'a> Places<'a> {
    fn of(text: &'a str) -> Self {
        let lines = format!("keys:\n{text}\nand so on");
        let arguments = json!({"command": "run", "stdin": lines});
        let nested = json!({"body": arguments.to_string(), "n": [1, [{"log": lines}]]}).to_string();
        Self {
            text,
            lines,
            arguments,
            nested,
        }
    }

    /// What the calls of a conversation are: an id, a name, arguments and the result.
    fn calls(&self) -> Vec<(String, String, String, String)> {
        let result = json!({"exit": 0, "stdout": self.lines});
        let within = json!({"result": result.to_string()}).to_string();
        let call = |id: &str, name: &str, arguments: &str, result: &str| {
            [id, name, arguments, result].map(str::to_owned).into()
        };
        let plain = self.arguments.to_string();
        vec![
            call("call_1", "run", &plain, "ok"),
            call("call_2", "run", &self.nested, "ok"),
            call("call_3", "run", "{}", &self.lines),
            call("call_4", "run", "{}", &result.to_string()),
            call("call_5", "run", "{}", &within),
            call("call_6", self.text, "{}", "ok"),
            call(self.text, "run", "{}", "ok"),
            call("call_7", "run", "{}", &format!("Exit code 0\n{result}")),
        ]
    }

    fn chat(&self) -> String {
        let mut messages = vec![
            json!({"role": "system", "content": self.lines}),
            json!({"role": "user", "content": self.text}),
            json!({"role": "assistant", "content": self.lines}),
            json!({"role": "user", "name": self.text, "content": "hello"}),
            json!({"role": "user", "content": [{"type": "text", "text": self.lines},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}),
            json!({"role": "assistant", "content": "so", "reasoning_content": self.lines}),
            json!({"role": "model", "content": "", "parts": [{"functionCall": {"name": "run", "args": self.arguments}}]}),
            json!({"role": "user", "content": "", "parts": [{"functionResponse": {"name": "run", "response": self.arguments}}]}),
        ];
        for (id, name, arguments, result) in self.calls() {
            let function = json!({"name": name, "arguments": arguments});
            messages.push(json!({"role": "assistant", "content": null, "tool_calls":
                [{"id": id, "type": "function", "function": function}]}));
            messages
                .push(json!({"role": "tool", "tool_call_id": id, "name": name, "content": result}));
        }
        messages.extend(go_on());
        json!({"model": "gpt-4o", "messages": messages}).to_string()
    }

    fn anthropic_messages(&self) -> Vec<Value> {
        let mut messages = vec![
            json!({"role": "user", "content": self.text}),
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": self.lines, "signature": "s"},
                {"type": "text", "text": self.lines}]}),
        ];
        for (id, name, arguments, result) in self.calls() {
            let input: Value = serde_json::from_str(&arguments).unwrap();
            let part = json!({"type": "text", "text": result});
            messages.push(json!({"role": "assistant", "content":
                [{"type": "tool_use", "id": id, "name": name, "input": input}]}));
            messages.push(json!({"role": "user", "content":
                [{"type": "tool_result", "tool_use_id": id, "content": [part]}]}));
        }
        messages.push(json!({"role": "assistant", "content": "yes"}));
        messages.extend(go_on());
        messages
    }

    fn anthropic(&self) -> String {
        let messages = self.anthropic_messages();
        json!({"model": "claude-sonnet-4-5", "system": [{"type": "text", "text": self.lines}], "messages": messages})
            .to_string()
    }

    fn responses(&self) -> String {
        let mut input = vec![
            json!({"role": "user", "content": [{"type": "input_text", "text": self.lines}]}),
            json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": self.lines}]}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": self.text}]}),
        ];
        for (id, name, arguments, result) in self.calls() {
            input.push(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}));
            input.push(json!({"type": "function_call_output", "call_id": id, "output": result}));
        }
        input.extend(go_on());
        json!({"model": "gpt-4o", "instructions": self.lines, "input": input}).to_string()
    }

    fn claude_code(&self) -> String {
        let mut log = String::new();
        for (at, message) in self.anthropic_messages().iter().enumerate() {
            let parent = (at > 0).then(|| format!("u{}", at - 1));
            let line = json!({"parentUuid": parent, "isSidechain": false, "cwd": "/w", "sessionId": "s",
                "version": "2.0.0", "type": message["role"], "uuid": format!("u{at}"),
                "timestamp": format!("2026-11-20T10:{:02}:{:02}.000Z", at / 60, at % 60),
                "toolUseResult": {"stdout": self.lines}, "message": message});
            log.push_str(&format!("{line}\n"));
        }
        log
    }

    fn codex(&self) -> String {
        let body: Value = serde_json::from_str(&self.responses()).unwrap();
        let mut log = format!(
            "{}\n",
            json!({"timestamp": "2026-11-20T10:00:00.000Z", "type": "session_meta", "payload":
                {"id": "s", "cwd": "/w", "instructions": self.lines}})
        );
        for item in body["input"].as_array().unwrap() {
            let mut payload = item.clone();
            if payload.get("type").is_none() {
                payload["type"] = json!("message");
            }
            let line = json!({"timestamp": "2026-11-20T10:00:01.000Z", "type": "response_item", "payload": payload});
            log.push_str(&format!("{line}\n"));
        }
        log
    }

    fn documents(&self) -> [(&'static str, String); 5] {
        [
            ("openai", self.chat()),
            ("anthropic", self.anthropic()),
            ("responses", self.responses()),
            ("claude-code", self.claude_code()),
            ("codex", self.codex()),
        ]
    }
}

/// An end that is kept, so that all before it can be summarised.
fn go_on() -> Vec<Value> {
    let turn = |number| {
        let words =
            format!("Step {number}: the plan stays as it is, and the next part of it is done. ");
        [
            json!({"role": "user", "content": words.repeat(4)}),
            json!({"role": "assistant", "content": words.repeat(6)}),
        ]
    };
    (0..24).flat_map(turn).collect()
}

/// What of a secret can be read where; `found` is told of it.
fn look(what: &str, text: &str, case: &Case, found: &mut Vec<String>) {
    if leak(text, std::slice::from_ref(case)).is_none() {
        return;
    }
    let pieces = case
        .secrets
        .iter()
        .flat_map(|secret| secret.as_bytes().windows(8.min(secret.len())));
    let at = pieces
        .filter_map(|piece| text.find(std::str::from_utf8(piece).ok()?))
        .min()
        .unwrap_or(0);
    let from = text.floor_char_boundary(at.saturating_sub(120));
    let around = &text[from..text.ceil_char_boundary((at + 60).min(text.len()))];
    found.push(format!("{}: {what}: …{around}…", case.kind));
}

fn look_in_files(folder: &Path, what: &str, case: &Case, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            look_in_files(&path, what, case, found);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().display();
        look(
            &format!("{what}, {name}"),
            &String::from_utf8_lossy(&bytes),
            case,
            found,
        );
    }
}

/// What lies compressed in the record of sessions, and whether all of it is JSON.
fn look_in_store(home: &Home, what: &str, case: &Case, found: &mut Vec<String>) {
    let record = Record::open_to_read(Path::new(&home.path("home"))).unwrap();
    let sessions = record.sessions().unwrap();
    assert!(!sessions.is_empty(), "{what}");
    for session in sessions {
        for message in record.conversation(&session.session).unwrap() {
            // A wire message may be several items: with commas between them, or lines of a log.
            let is_json = |text: &str| serde_json::from_str::<Value>(&format!("[{text}]")).is_ok();
            let is_valid = is_json(&message) || message.lines().all(is_json);
            assert!(is_valid, "{what}: {message:.300}");
            look(&format!("{what}, {message:.300}"), &message, case, found);
        }
    }
}

/// How many rows of the tables stand in one document.
const TOGETHER: usize = 12;

/// Several cases as one.
fn together(cases: &[Case]) -> Case {
    let texts: Vec<_> = cases.iter().map(|case| case.text.as_str()).collect();
    Case {
        kind: cases[0].kind,
        text: texts.join("\n\nThe next one, which has nothing to do with it:\n\n"),
        secrets: cases.iter().flat_map(|case| case.secrets.clone()).collect(),
    }
}

#[test]
fn no_secret_is_stored_under_redact_or_sent_to_a_model() {
    let mut cases = secrets(11, 1);
    // The rows of the tables are many: a document holds several of them, apart from each other.
    let random = &mut Random(12);
    let rows = [keys(random), notations(random), assigned(random)].concat();
    cases.splice(0..0, rows.chunks(TOGETHER).map(together));
    // Those of several lines come last.
    let documents = || {
        let cases = cases.iter().rev();
        cases.flat_map(|case| {
            Places::of(&case.text)
                .documents()
                .map(|document| (case, document))
        })
    };
    let all = documents().count();
    let wanted = std::env::var("CONTEXTURE_SECRET_DOCUMENTS").ok();
    let wanted = wanted.map_or(6, |number| number.parse().unwrap());
    // Coprime to the number of formats, so that every format has its turn.
    let step = match all / wanted {
        0 | 1 => 1,
        step => step / 5 * 5 + 1,
    };
    let model = Model::start();
    let mut found = Vec::new();
    let (mut played, mut requests) = (0, 0);
    for (case, (format, document)) in documents().step_by(step) {
        played += 1;
        let home = Home::new();
        home.put("document", &document);
        home.put(
                "home/config.yaml",
                &format!(
                    "context: {{engines: {{lcm: {{redact: true, fresh_tail_messages: 4}}}}}}\n\
                     auxiliary: {{compression: {{model: m, provider: openai, base_url: 'http://{}/v1', context_length: 200000}}}}\n",
                    model.address
                ),
            );
        let run = |args: &[&str]| {
            let mut command = home.command(args.iter().copied());
            let ran = cli_support::ran(command.env("OPENAI_API_KEY", "k").output().unwrap());
            assert_eq!(
                ran.code, 0,
                "{} {format} {args:?}: {}",
                case.kind, ran.stderr
            );
            ran
        };
        let said = run(&["import", "document", "--session", "s"]).stderr;
        look(
            &format!("{format}, said by import"),
            &said,
            case,
            &mut found,
        );
        look_in_store(&home, &format!("{format}, store"), case, &mut found);
        for (engine, session, offline) in [
            ("lcm", "s", false),
            ("lcm", "l", true),
            ("compressor", "c", false),
            ("compressor", "d", true),
        ] {
            let said = run(&[
                "compress",
                "document",
                "--session",
                session,
                "--engine",
                engine,
                "--force",
                "--context-length",
                "12000",
                "-o",
                "out",
                "--report",
                "report.json",
                if offline { "--offline" } else { "-v" },
            ]);
            let what = format!("{format}, {engine}, offline: {offline}");
            look(&format!("{what}, said"), &said.stderr, case, &mut found);
            let heard = model.heard();
            assert_eq!(heard.is_empty(), offline, "{what}: {}", said.stderr);
            requests += heard.len();
            for request in heard {
                look(&format!("{what}, sent"), &request, case, &mut found);
            }
            look(
                &format!("{what}, report"),
                &home.read("report.json"),
                case,
                &mut found,
            );
            look_in_files(Path::new(&home.path("home")), &what, case, &mut found);
        }
        look_in_store(&home, &format!("{format}, store after"), case, &mut found);
        let verified = run(&["sessions", "verify"]).stdout;
        assert!(verified.contains("\"ok\": true"), "{verified}");
    }
    println!("{played} of {all} documents, {requests} requests to the model");
    found.dedup();
    assert!(
        found.is_empty(),
        "{} leaks:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// A conversation in which every message has words of its own, with calls and their results.
fn words_of_their_own() -> (String, Vec<String>) {
    let words: Vec<String> = (0..60)
        .map(|number| format!("quokka{number}zephyr"))
        .collect();
    let mut messages = vec![json!({"role": "system", "content": "You are an agent."})];
    for (at, word) in words.iter().enumerate() {
        let text = format!("{word} ").repeat(120);
        let id = format!("call_{at}");
        let arguments = json!({"path": format!("/w/{word}.rs"), "text": text}).to_string();
        messages.push(json!({"role": "user", "content": format!("Now do {word}: {text}")}));
        messages.push(json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": id, "type": "function", "function": {"name": "write_file", "arguments": arguments}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
        messages.push(json!({"role": "assistant", "content": format!("{word} is done. {text}")}));
    }
    let document = json!({"model": "gpt-4o", "messages": messages}).to_string();
    (document, words)
}

#[test]
fn a_report_holds_no_text_of_a_message_unless_it_is_asked_for() {
    let (document, words) = words_of_their_own();
    let mut with_text = 0;
    for engine in ["compressor", "lcm", "tiered", "two-layer", "virtual-files"] {
        let home = Home::new();
        home.put("document", &document);
        let compress = |more: &[&str]| {
            let args = [
                "compress", "document", "--session", "s", "--engine", engine, "--force",
                "--offline", "--context-length", "32000", "-o", "out", "--report", "report.json",
            ];
            let args = args.iter().chain(more).copied();
            cli_support::ran(home.command(args).output().unwrap());
            home.read("report.json")
        };
        let plain = compress(&[]);
        assert!(plain.contains("\"outcome\""), "{engine}: {plain}");
        let found = words.iter().find(|word| plain.contains(*word));
        assert!(found.is_none(), "{engine}: {found:?} in {plain}");
        home.put("document", &document);
        with_text += usize::from(compress(&["--report-text"]).contains("states"));
        let replayed = home.contexture(format!(
            "replay document --engine {engine} --report - --offline"
        ));
        let found = words.iter().find(|word| replayed.stdout.contains(*word));
        assert!(
            found.is_none(),
            "{engine}: {found:?} in {}",
            replayed.stdout
        );
    }
    assert!(with_text > 0, "no engine keeps anything with a message");
}

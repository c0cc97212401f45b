//! Damaged and odd documents of every format through the command: what is kept is the user's to the byte, the output is
//! valid, what cannot be read is refused, and nothing panics or hangs. `CONTEXTURE_MUTATIONS=…` tries so many,
//! `CONTEXTURE_MUTATION=…` one alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;
#[path = "../../engines/secrets/tests/support/random.rs"]
mod random;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cli_support::{Home, Ran, chat, claude_code_log};
use contexture::formats::{self, Conversation, Format};
use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MISSING_RESULT, SHORTENED_MARK, SUMMARY_MARK};
use random::Random;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// Precedes a result whose call the conversation does not have.
const WITHOUT_ITS_CALL: &str = "[The result of a tool call that is not in the conversation]";

/// No run takes so long but one that hangs.
const HANGS: Duration = Duration::from_secs(120);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A turn with a call, which every format has its own form for: who, the text, the call and its result.
fn turns() -> impl Iterator<Item = (String, String, String, String)> {
    (0..8).map(|turn| {
        let text = |what: &str| {
            format!("{what} {turn}: look at src/part_{turn}.rs, \"quoted\" – ünïcode 🦀. ")
        };
        (
            text("Question").repeat(3),
            text("Answer").repeat(4),
            format!("call_{turn}"),
            text("line\n").repeat(8),
        )
    })
}

fn seeds() -> Vec<(Format, String)> {
    let (mut anthropic, mut responses, mut history, mut tau2) = (vec![], vec![], vec![], vec![]);
    let mut with_calls = vec![json!({"role": "system", "content": "You help."})];
    let mut lines = String::new();
    let mut codex = format!(
        "{}\n",
        json!({"timestamp": "2026-11-20T10:00:00.000Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/w"}})
    );
    for (asked, said, id, result) in turns() {
        let arguments = json!({"path": "a", "lines": [1, 2.50]});
        with_calls.extend([
            json!({"role": "user", "content": [{"type": "text", "text": asked}, {"type": "image_url",
                "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "read", "arguments": arguments.to_string()}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": result}),
            json!({"role": "assistant", "content": said}),
        ]);
        anthropic.extend([
            json!({"role": "user", "content": asked}),
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "so", "signature": "s"},
                {"type": "text", "text": said}, {"type": "tool_use", "id": id, "name": "read", "input": arguments}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}),
            json!({"role": "assistant", "content": [{"type": "text", "text": said}]}),
        ]);
        let items = [
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]}),
            json!({"type": "reasoning", "id": format!("rs_{id}"), "summary": []}),
            json!({"type": "function_call", "call_id": id, "name": "read", "arguments": arguments.to_string()}),
            json!({"type": "function_call_output", "call_id": id, "output": result}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}),
        ];
        for item in items {
            let line = json!({"timestamp": "2026-11-20T10:00:01.000Z", "type": "response_item", "payload": item});
            codex.push_str(&format!("{line}\n"));
            responses.push(item);
        }
        for (role, text) in [("user", &asked), ("assistant", &said)] {
            history.push(json!({"role": role, "content": text, "agent": "main"}));
            lines.push_str(&format!(
                "{}\n",
                json!({"role": role, "content": text, "ts": 1_795_000_000})
            ));
        }
        tau2.extend([
            json!({"role": "user", "content": asked}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "name": "read", "arguments": arguments}]}),
            json!({"role": "tool", "id": id, "content": result}),
            json!({"role": "assistant", "content": said}),
        ]);
    }
    vec![
        (Format::OpenAiChat, chat(24)),
        (
            Format::OpenAiChat,
            json!({"model": "gpt-4o", "messages": with_calls, "temperature": 0.10}).to_string(),
        ),
        (
            Format::Anthropic,
            json!({"model": "claude-sonnet-4-5", "system": "You help.", "messages": anthropic})
                .to_string(),
        ),
        (
            Format::OpenAiResponses,
            json!({"model": "gpt-5", "instructions": "You help.", "input": responses}).to_string(),
        ),
        (Format::ClaudeCode, claude_code_log(24)),
        (Format::Codex, codex),
        (
            Format::SweAgent,
            serde_json::to_string_pretty(&json!({"history": history, "info": {"x": 1}})).unwrap(),
        ),
        (
            Format::Tau2,
            serde_json::to_string_pretty(&json!({"simulations": [{"id": "1", "messages": tau2}]}))
                .unwrap(),
        ),
        (Format::MessageLines, lines),
    ]
}

/// Changes some bytes.
fn damaged(text: &str, random: &mut Random) -> Vec<u8> {
    const PIECES: [&[u8]; 22] = [
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\n",
        b"\0",
        b"\xff\xfe",
        b"\\u0000",
        b"\\ud83d",
        b"null",
        b"-0",
        b"1e999",
        b"{\"role\":\"user\"}",
        b"\xe2\x80\xae",
        b"\x1b[2J",
        b"[CONTEXT COMPACTION]",
        b"\r",
        b" ",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let end = (at + random.below(40)).min(bytes.len());
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            3 => bytes.truncate(at.max(1)),
            _ => {
                let piece = *random.of(&PIECES);
                bytes.splice(at..at, piece.iter().copied());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'x');
        }
    }
    bytes
}

/// Changes some values, so that the document is JSON as before.
fn odd(text: &str, random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Value> = match serde_json::from_str(text) {
        Ok(whole) => vec![whole],
        Err(_) => text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    };
    for _ in 0..=random.below(3) {
        let line = random.below(lines.len());
        change(&mut lines[line], random);
        if random.below(12) == 0 {
            let other = random.below(lines.len());
            lines.swap(line, other);
        }
    }
    let lines: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
    lines.concat().into_bytes()
}

/// Changes something in a value, mostly far inside.
fn change(value: &mut Value, random: &mut Random) {
    let goes_on = random.below(8) > 0;
    match value {
        Value::Array(list) if goes_on && !list.is_empty() => {
            let at = random.below(list.len());
            match random.below(10) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, list[at].clone()),
                2 => {
                    let other = random.below(list.len());
                    list.swap(at, other);
                }
                _ => change(&mut list[at], random),
            }
        }
        Value::Object(object) if goes_on && !object.is_empty() => {
            let keys: Vec<String> = object.keys().cloned().collect();
            let key = random.of(&keys).clone();
            match random.below(8) {
                0 => drop(object.remove(&key)),
                1 => drop(object.insert("extra".to_owned(), json!({"k": [key]}))),
                _ => change(&mut object[&key], random),
            }
        }
        value => {
            let others = [
                json!(null),
                json!(true),
                json!(-1),
                json!(1e300),
                json!(""),
                json!("user"),
                json!("assistant"),
                json!("tool"),
                json!("system"),
                json!("tool_result"),
                json!("call_1"),
                json!([]),
                json!({}),
                json!([null]),
                json!({"type": "text", "text": "x"}),
                json!([{"type": "text", "text": "x"}]),
                json!("[CONTEXT COMPACTION]\nold"),
                json!("\u{0}\u{202e}\u{1b}[2J"),
                json!("word ".repeat(900)),
            ];
            *value = random.of(&others).clone();
        }
    }
}

/// Runs it, and kills it where it hangs.
fn run(home: &Home, args: &[&str]) -> Result<Ran, String> {
    let mut command = home.command(args.iter().copied());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What it says is little, but for an export.
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let read = |from: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).map_err(|_| "its output is not text".to_owned())
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read(&mut stdout));
        let err = scope.spawn(move || read(&mut stderr));
        let began = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Ok(status),
                None if began.elapsed() > HANGS => {
                    child.kill().unwrap();
                    break Err(format!("{args:?} hangs"));
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let (stdout, stderr) = (out.join().unwrap()?, err.join().unwrap()?);
        let status = status?;
        let code = status.code().ok_or_else(|| format!("{args:?}: {status}"))?;
        for bad in [
            "panicked",
            "please report",
            "breaks the contract",
            "\u{1b}",
            "\0",
            "\u{202e}",
        ] {
            if stderr.contains(bad) {
                return Err(format!("{args:?} says {bad:?}: {stderr}"));
            }
        }
        if !matches!(code, 0 | 2) || (code == 2) != stderr.contains("error: ") {
            return Err(format!("{args:?} ends with {code}: {stderr}"));
        }
        Ok(Ran {
            command: args.join(" "),
            code,
            stdout,
            stderr,
        })
    })
}

fn items(conversation: &Conversation) -> Vec<&str> {
    let count = conversation
        .messages()
        .iter()
        .map(|message| message.items.end)
        .max();
    (0..count.unwrap_or(0))
        .map(|item| conversation.item(item))
        .collect()
}

/// Whether the host wrote it, or a part of it.
fn is_written(item: &str) -> bool {
    [
        SUMMARY_MARK, SHORTENED_MARK, CLEARED_TOOL_OUTPUT, MISSING_RESULT,
    ]
    .iter()
    .any(|mark| item.contains(mark))
}

/// Whether it is made of messages of one role that became neighbours because a result without its call went from
/// between them: each of its parts is one of theirs, to the byte.
fn is_joined(input: &[&str], item: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Parts<'a> {
        #[serde(borrow)]
        content: Vec<&'a serde_json::value::RawValue>,
    }
    let stands = |part: &str| input.iter().any(|item| item.contains(part));
    serde_json::from_str::<Parts<'_>>(item).is_ok_and(|parts| {
        parts.content.len() > 1 && parts.content.iter().all(|part| stands(part.get()))
    })
}

/// What is kept stands in the input, to the byte and in this order; what is not there was summarised.
fn kept(input: &[&str], output: &[&str]) -> Result<(), String> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    // A bare string is no message; among others it becomes one.
    let as_message = |text: &str| format!(r#"{{"type":"message","role":"user","content":{text}}}"#);
    let strings: Vec<_> = input
        .iter()
        .map(|item| item.starts_with('"').then(|| as_message(item)))
        .collect();
    for (at, item) in input.iter().enumerate() {
        places.entry(item).or_default().push(at);
        if let Some(string) = &strings[at] {
            places.entry(string).or_default().push(at);
        }
    }
    let (mut next, mut same, mut written) = (0, 0, 0);
    for item in output {
        let at = places
            .get(item)
            .and_then(|places| places.iter().find(|at| **at >= next));
        match at {
            Some(at) => (next, same) = (at + 1, same + 1),
            None if is_written(item) || is_joined(input, item) => written += 1,
            None => {
                return Err(format!(
                    "it is neither the user's nor the host's: {item:.600}"
                ));
            }
        }
    }
    match same < input.len() && written == 0 {
        true => Err(format!(
            "{} of {} are gone",
            input.len() - same,
            input.len()
        )),
        false => Ok(()),
    }
}

/// Every member of a body but the messages and the system prompt is as it was.
fn frame(input: &str, output: &str) -> Result<(), String> {
    let members = |text: &str| match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(mut object)) => {
            for list in [
                "messages", "input", "history", "simulations", "system", "instructions",
            ] {
                object.remove(list);
            }
            Some(object)
        }
        _ => None,
    };
    match members(input).zip(members(output)) {
        Some((before, after)) if before != after => Err(format!("{before:?} became {after:?}")),
        _ => Ok(()),
    }
}

fn is_json(text: &str, lines: bool) -> bool {
    let is_value = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    match lines {
        true => text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .all(is_value),
        false => is_value(text),
    }
}

/// Compresses a document with an engine, and holds the output to what was read.
fn compress(home: &Home, bytes: &[u8], engine: &str, window: &str) -> Result<bool, String> {
    let read = formats::read_bytes(bytes.to_vec(), None).ok();
    let read = read.filter(|conversations| !conversations.is_empty());
    // A log may have lines that are not UTF-8.
    let input = &*String::from_utf8_lossy(bytes);
    let format = read.as_ref().map(|all| all[0].format());
    let is_log = matches!(format, Some(Format::ClaudeCode | Format::Codex));
    let mut args = vec![
        "compress", "document", "-o", "out", "--report", "report", "--engine", engine, "--force",
    ];
    args.extend(["--context-length", window]);
    if format == Some(Format::ClaudeCode) {
        args.extend(["--to", "claude-code"]);
    }
    let ran = run(home, &args)?;
    let out = std::fs::read_to_string(home.path("out")).ok();
    let _ = std::fs::remove_file(home.path("out"));
    let Some(conversations) = read else {
        return match (ran.code, out) {
            (2, None) => Ok(false),
            (code, out) => Err(format!("it cannot be read, and ends with {code}: {out:?}")),
        };
    };
    let (0, Some(output)) = (ran.code, out) else {
        return Err(format!("it can be read, and is refused: {}", ran.stderr));
    };
    let report = home.read("report");
    if format == Some(Format::ClaudeCode) {
        let begins = output.starts_with(input) || output.starts_with(&format!("{input}\n"));
        let added = output.get(input.len()..).unwrap_or_default();
        return match begins && is_json(added, true) {
            true => Ok(true),
            false => Err(format!(
                "the log is not what it was, and lines: {output:.600}"
            )),
        };
    }
    if !report.contains("\"outcome\": \"compacted\"") && !is_log && output != input {
        return Err("nothing was compacted, and the document is another".to_owned());
    }
    if conversations.len() > 1 {
        let list: Vec<IgnoredAny> =
            serde_json::from_str(&output).map_err(|error| error.to_string())?;
        return match list.len() == conversations.len() || output == input {
            true => Ok(true),
            false => Err(format!(
                "{} conversations became {}",
                conversations.len(),
                list.len()
            )),
        };
    }
    // A line that cannot be read stays where it is.
    let in_lines = input.trim().lines().count() > 1 && !is_json(input, false);
    let there: HashSet<&str> = if in_lines {
        input.lines().collect()
    } else {
        HashSet::new()
    };
    let bad = output
        .lines()
        .find(|line| !there.contains(line) && !is_json(line, true));
    if !is_json(&output, false) && (!in_lines || bad.is_some()) {
        return Err(format!("what is written is no JSON: {bad:?}"));
    }
    let again =
        formats::read(output.as_str(), None).map_err(|error| format!("{error}: {output:.2000}"))?;
    if again.len() != conversations.len() {
        return Err(format!(
            "{} conversations became {}",
            conversations.len(),
            again.len()
        ));
    }
    for (before, after) in conversations.iter().zip(&again) {
        if is_log {
            let texts = |all: &'_ Conversation| -> Vec<String> {
                let texts = all
                    .messages()
                    .iter()
                    .map(|message| message.text.trim().to_owned());
                texts.filter(|text| !text.is_empty()).collect()
            };
            let (before, after) = (texts(before), texts(after));
            let borrowed = |all: &'_ [String]| {
                all.iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            for text in after.iter().filter(|text| !is_written(text)) {
                // A log that is written for other programs says so if a result's call is missing.
                let said = text.strip_prefix(WITHOUT_ITS_CALL).unwrap_or(text);
                if !borrowed(&before).contains(said.trim()) {
                    return Err(format!("nobody said {text:.600}"));
                }
            }
            continue;
        }
        kept(&items(before), &items(after))?;
    }
    if !is_log {
        frame(input, &output)?;
    }
    Ok(true)
}

/// Keeps a document, and gives it back: every wire message is as it came.
fn keep(home: &Home, bytes: &[u8]) -> Result<(), String> {
    let read = formats::read_bytes(bytes.to_vec(), None).unwrap_or_default();
    let imported = run(home, &["import", "document", "--session", "s"])?;
    if imported.code != 0 || read.len() != 1 {
        return match (read.len(), imported.code) {
            (1, code) if !read[0].messages().is_empty() => {
                Err(format!("one conversation, and {code}: {}", imported.stderr))
            }
            (1, _) | (_, 2) => Ok(()),
            (count, code) => Err(format!("{count} conversations, and {code}")),
        };
    }
    let exported = run(home, &["sessions", "export", "s"])?.stdout;
    let mut given = Vec::new();
    let mut seen = 0;
    for (index, message) in read[0].messages().iter().enumerate() {
        if message.items.start >= seen {
            let lines = formats::item_lines(read[0].raw(index));
            given.extend(lines.into_iter().map(|line| line.into_owned()));
        }
        seen = seen.max(message.items.end);
    }
    let lines: Vec<_> = exported.lines().collect();
    match lines == given {
        true => Ok(()),
        false => {
            let at = lines
                .iter()
                .zip(&given)
                .position(|(one, other)| one != other)
                .unwrap_or(lines.len().min(given.len()));
            let (one, other) = (lines.get(at), given.get(at));
            Err(format!(
                "{} lines of {}, the {at}th {one:?} was {other:?}",
                lines.len(),
                given.len()
            ))
        }
    }
}

fn try_one(number: u64, seeds: &[(Format, String)]) -> Result<bool, String> {
    let mut random = Random(number);
    let (_, seed) = &seeds[number as usize % seeds.len()];
    let bytes = match random.below(2) {
        0 => damaged(seed, &mut random),
        _ => odd(seed, &mut random),
    };
    let home = Home::new();
    home.put_bytes("document", &bytes);
    if std::env::var_os("CONTEXTURE_MUTATION").is_some() {
        println!("{}", String::from_utf8_lossy(&bytes));
    }
    let window = *random.of(&["2000", "3000", "6000"]);
    let engine = *random.of(&["compressor", "lcm"]);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let is_read = compress(&home, &bytes, engine, window);
        let is_read = is_read.map_err(|what| format!("{engine}, {window}: {what}"))?;
        keep(&home, &bytes).map_err(|what| format!("kept: {what}"))?;
        Ok(is_read)
    }));
    tried.unwrap_or_else(|_| Err("the test panicked".to_owned()))
}

#[test]
fn what_is_damaged_or_odd_is_kept_to_the_byte_or_refused() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|value| value.parse::<u64>().unwrap())
    };
    let one = number("CONTEXTURE_MUTATION");
    // Another seed tries other documents.
    let seed = number("CONTEXTURE_ATTACK_SEED").unwrap_or(0);
    let first = one.unwrap_or(seed << 16);
    let last = first + one.map_or(number("CONTEXTURE_MUTATIONS").unwrap_or(18), |_| 1);
    let seeds = seeds();
    for (format, text) in &seeds {
        assert_eq!(
            formats::read(text.as_str(), None).unwrap()[0].format(),
            *format
        );
    }
    let (next, read) = (AtomicU64::new(first), AtomicU64::new(0));
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= last {
                        break;
                    }
                    match try_one(number, &seeds) {
                        Ok(is_read) => drop(read.fetch_add(u64::from(is_read), Ordering::Relaxed)),
                        Err(what) => {
                            let format = seeds[number as usize % seeds.len()].0;
                            found
                                .lock()
                                .unwrap()
                                .push(format!("CONTEXTURE_MUTATION={number} ({format}): {what}"));
                        }
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    println!(
        "{} documents, {} of them read, the others refused",
        last - first,
        read.into_inner()
    );
    assert!(
        found.is_empty(),
        "{} are wrong:\n{}",
        found.len(),
        found.join("\n")
    );
}

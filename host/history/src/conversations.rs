//! A log as conversations that can be played, instead of entries that can be found.
//!
//! [`read_conversations`] reads a log of any agent and hands out its conversations one by one, each
//! as JSON lines: a message per line, with the members of OpenAI's chat format and the time. That is
//! a format which `contexture-formats` reads.
//!
//! Texts of users and agents, tool calls and their results are handed out. Thinking, summaries,
//! attachments and notes of the agent's program are left out, because a log does not tell which of
//! them were sent to the model. The arguments of a call are the readable text that a reader makes of
//! them. As in the history, branches that the user left are part of the conversation.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use serde_json::{Value, json};

use crate::entry::{Entry, Kind};
use crate::import::{WAITING, read_log};
use crate::output::Event;
use crate::readers::{Log, recognise};
use crate::sources::Skipped;

/// Whether a file or folder is a log of an agent. The beginning of a file is read for that. `false`
/// if it cannot be read.
pub fn is_log(path: &Path) -> bool {
    matches!(recognise(path), Ok(Some(_)))
}

/// Reads the conversations of a log and hands each to `each` as JSON lines, until it returns false.
/// Only one conversation is held at a time. Returns what could not be read of the log, and `None`
/// if the path is not a log.
///
/// # Errors
/// The file cannot be opened to see what it is.
pub fn read_conversations(
    path: &Path,
    each: &mut dyn FnMut(String) -> bool,
) -> std::io::Result<Option<Vec<Skipped>>> {
    let Some(format) = recognise(path)? else {
        return Ok(None);
    };
    let log = Log {
        path: path.to_owned(),
        format,
    };
    let (sender, receiver) = sync_channel::<Vec<Event>>(WAITING);
    let goes_on = AtomicBool::new(true);
    let read = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            // The channel closes when the reader ends, so it has to own the sender.
            let sender = sender;
            read_log(&log, &sender, &mut |_| goes_on.load(Ordering::Relaxed))
        });
        let mut session = None;
        let mut lines = ConversationLines::default();
        let mut wants_more = true;
        for event in receiver.iter().flatten() {
            match event {
                Event::Conversation { session: next, .. } if session.as_ref() != Some(&next) => {
                    session = Some(next);
                    wants_more = lines.hand_out(each);
                }
                Event::Entry(prepared) => lines.push(prepared.entry),
                _ => {}
            }
            if !wants_more {
                break;
            }
        }
        if wants_more {
            lines.hand_out(each);
        }
        goes_on.store(false, Ordering::Relaxed);
        drop(receiver);
        reading.join()
    });
    match read {
        Ok(skipped) => Ok(Some(skipped)),
        // A panic is a bug of this program, not damage of the log.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The lines of one conversation.
#[derive(Default)]
struct ConversationLines {
    text: String,
    /// The agent's message that is not complete yet: a text and the calls after it.
    answer: Option<Answer>,
    /// The ids and names of calls without a result, in order.
    open: VecDeque<(String, Option<String>)>,
    calls: usize,
}

/// A message of the agent.
#[derive(Default)]
struct Answer {
    said: Vec<String>,
    calls: Vec<Value>,
    time_ms: Option<i64>,
}

impl ConversationLines {
    fn push(&mut self, entry: Entry) {
        match entry.kind {
            Kind::Assistant => {
                let answer = self.answer.get_or_insert_default();
                answer.time_ms = answer.time_ms.or(entry.time_ms);
                answer.said.push(entry.text);
            }
            Kind::ToolCall => {
                self.calls += 1;
                let id = (entry.call).unwrap_or_else(|| format!("call_{}", self.calls));
                let answer = self.answer.get_or_insert_default();
                answer.time_ms = answer.time_ms.or(entry.time_ms);
                answer
                    .calls
                    .push(json!({"id": id, "type": "function", "function": {
                        "name": entry.name.as_deref().unwrap_or("tool"),
                        "arguments": arguments(&entry.text).to_string(),
                    }}));
                self.open.push_back((id, entry.name));
            }
            Kind::ToolResult => {
                self.end_answer();
                let Some(id) = self.answered(&entry) else {
                    // A result without a call would be refused by every provider.
                    return self.line(
                        json!({"role": "user", "content": entry.text}),
                        entry.time_ms,
                    );
                };
                let result = json!({"role": "tool", "tool_call_id": id, "content": entry.text});
                self.line(result, entry.time_ms);
            }
            Kind::User => {
                self.end_answer();
                self.line(
                    json!({"role": "user", "content": entry.text}),
                    entry.time_ms,
                );
            }
            Kind::Thinking | Kind::Summary | Kind::Attachment | Kind::Note => {}
        }
    }

    /// Returns the id of the call that a result answers: the one that it names, or else the oldest
    /// open one of the same tool.
    fn answered(&mut self, result: &Entry) -> Option<String> {
        let at = self.open.iter().position(|(id, name)| match &result.call {
            Some(call) => call == id,
            None => result.name.is_none() || result.name == *name,
        })?;
        self.open.remove(at).map(|(id, _)| id)
    }

    fn end_answer(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        let mut message = json!({"role": "assistant", "content": answer.said.join("\n")});
        if !answer.calls.is_empty() {
            message["tool_calls"] = Value::Array(answer.calls);
        }
        self.line(message, answer.time_ms);
    }

    fn line(&mut self, mut message: Value, time_ms: Option<i64>) {
        if let Some(time_ms) = time_ms {
            message["ts"] = json!(time_ms as f64 / 1_000.0);
        }
        self.text.push_str(&message.to_string());
        self.text.push('\n');
    }

    /// Hands the conversation out, if it has messages, and begins the next one. Returns whether more
    /// is wanted.
    fn hand_out(&mut self, each: &mut dyn FnMut(String) -> bool) -> bool {
        self.end_answer();
        let ended = std::mem::take(self);
        ended.text.is_empty() || each(ended.text)
    }
}

/// Returns the arguments of a call as an object. Their readable text begins with the name of the
/// first one. The end of its value cannot be told, so the rest of the text is its value.
fn arguments(text: &str) -> Value {
    match text.split_once(": ") {
        Some((name, value))
            if name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
        {
            json!({name: value})
        }
        _ => json!({"input": text}),
    }
}

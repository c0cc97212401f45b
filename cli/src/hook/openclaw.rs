//! Answers OpenClaw, which takes a window of messages and not one text.
//!
//! OpenClaw asks its context engine for the messages of every request (`assemble`), and to compact
//! (`compact`). Either way, [`window`] passes the conversation to the session and returns the
//! session's window, in which a message of OpenClaw's is named by its index and every other one is
//! written in OpenClaw's form. [`call_tool`] calls a tool of the session's engine.
//!
//! OpenClaw's messages have the form of pi's. A message that the engine is not shown, such as the
//! state of the machine that OpenClaw adds to a turn, stays behind the one before it and goes with
//! that one. OpenClaw itself joins and orders messages as a provider wants them.

use std::ops::Range;
use std::sync::Arc;

use contexture::formats::{PlanEntry, RenderPlan, sealed_summary};
use contexture::session::{Compact, OutcomeKind, TurnOptions};
use contexture::{Host, HostError};
use contexture_engine_api::{ShortArguments, ToolCall};
use serde_json::{Value, json};

use super::folder::Folder;
use super::{Caller, Event, failed, messages, missing, read, session_id};
use crate::error::CliError;
use crate::{terminal, window};

/// Returns the answer to an event.
///
/// # Errors
/// Fails if the event is unknown or lacks a field, or if the session or its engine fails.
pub(super) fn answer(host: &Host, event: &Event) -> Result<Value, CliError> {
    match event.event.as_str() {
        "assemble" => window(host, event, Compact::Auto),
        "compact" => window(host, event, Compact::Force),
        "tool" => call_tool(host, event),
        _ => Err(missing(Caller::Openclaw, "known name")),
    }
}

/// Returns the window of the event's conversation: `messages`, which is null if the window is the
/// conversation as it is, its size in `tokens`, and whether the turn `compacted` it, and why.
fn window(host: &Host, event: &Event, compact: Compact) -> Result<Value, CliError> {
    let own = event.messages.as_deref();
    let own = own.ok_or_else(|| missing(Caller::Openclaw, "messages"))?;
    let (at, shown): (Vec<usize>, Vec<Value>) = messages::of_openclaw(own).into_iter().unzip();
    let conversation = Arc::new(read(shown)?);
    let engines = host.engines();
    let chosen = window::choose(event.window, None, event.model.as_deref(), engines.config());
    // OpenClaw has the system prompt, and reserves the room for it and for the answer.
    let id = session_id(Caller::Openclaw, event);
    let session = host.session(&id);
    let session = session.model(&chosen.agent.model, chosen.agent.context_length);
    let mut session = session.note(false).open().map_err(|error| failed(&error))?;
    let options = TurnOptions::default()
        .compact(compact)
        .focus(event.focus())
        .wait_for_model(Some(true));
    let turn = session.turn_over(&conversation, &options, &mut |_| {});
    let turn = turn.map_err(|error| failed(&error))?;
    let (changed, made) = (turn.changed, turn.compaction);
    let window = Window { own, at };
    let rendered = changed.then(|| window.rendered(&session.render_plan(&conversation)));
    let made = made.as_ref();
    let compacted = made.is_some_and(|made| made.outcome == OutcomeKind::Compacted);
    let answer = json!({
        "messages": rendered,
        "compacted": compacted,
        "reason": made.map(|made| &made.reason),
        "tokens_before": made.map(|made| made.tokens_before),
        "tokens": session.state().prompt_tokens,
    });
    for warning in session.take_warnings() {
        terminal::warn(&warning);
    }
    session.end().map_err(|error| failed(&error))?;
    if compacted {
        Folder::note(host, Caller::Openclaw, &event.cwd, &id)?;
    }
    Ok(answer)
}

/// Calls a tool of the session's engine, and returns its answer as `text`, or why it has none as
/// `error`. Both are for the model.
fn call_tool(host: &Host, event: &Event) -> Result<Value, CliError> {
    let name = event.tool.clone();
    let name = name.ok_or_else(|| missing(Caller::Openclaw, "tool"))?;
    let failed = |error: HostError| failed(&error);
    let id = session_id(Caller::Openclaw, event);
    let Some(mut session) = host.read_only_session(&id).map_err(failed)? else {
        return Ok(
            json!({"error": "nothing of this conversation was compacted yet, so all of it is in the window"}),
        );
    };
    let arguments = event
        .arguments
        .as_ref()
        .map_or_else(|| "{}".to_owned(), Value::to_string);
    Ok(match session.call_tool(ToolCall::new(name, arguments)) {
        Ok(text) => {
            host.note_restored(&mut session).map_err(failed)?;
            json!({"text": text})
        }
        Err(error) => json!({"error": error.to_string()}),
    })
}

/// The messages of OpenClaw, and which of them the engine was shown.
struct Window<'a> {
    own: &'a [Value],
    /// The index of each shown message in `own`.
    at: Vec<usize>,
}

impl Window<'_> {
    /// Returns a window as OpenClaw's messages: the index of each that stays as it is, and the
    /// others in full.
    fn rendered(&self, plan: &RenderPlan<'_>) -> Vec<Value> {
        let mut out = Vec::new();
        for entry in &plan.entries {
            let (shown, new) = match *entry {
                PlanEntry::Message(shown) => (shown, None),
                PlanEntry::Replaced {
                    index,
                    text,
                    arguments,
                } => (index, Some((text, arguments))),
                PlanEntry::Summary { text, .. } => {
                    // OpenClaw writes the time of a user's message in front of it, if it has one.
                    out.push(
                        json!({"role": "user", "content": [text_part(&sealed_summary(text))]}),
                    );
                    continue;
                }
                PlanEntry::Stub { .. } => continue,
            };
            let mut indexes = self.with_hidden(shown);
            let Some(first) = indexes.next() else {
                continue;
            };
            out.push(match new {
                None => first.into(),
                Some((text, arguments)) => changed(&self.own[first], text, arguments),
            });
            out.extend(plan.entries.iter().filter_map(|entry| {
                match *entry {
                    PlanEntry::Stub {
                        message,
                        call,
                        text,
                    } if message == shown => calls(&self.own[first])
                        .nth(call)
                        .map(|call| stub(call, text)),
                    _ => None,
                }
            }));
            out.extend(indexes.map(Value::from));
        }
        out
    }

    /// Returns the index of a shown message and those of the hidden ones behind it.
    fn with_hidden(&self, shown: usize) -> Range<usize> {
        let index = |shown: usize| self.at.get(shown).copied().unwrap_or(self.own.len());
        index(shown)..index(shown + 1)
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn calls(message: &Value) -> impl Iterator<Item = &Value> {
    let parts = message["content"].as_array().into_iter().flatten();
    parts.filter(|part| part["type"] == "toolCall")
}

/// Returns the result of a call whose own result was removed.
fn stub(call: &Value, text: &str) -> Value {
    json!({
        "role": "toolResult", "toolCallId": call["id"], "toolName": call["name"], "content": [text_part(text)],
        "isError": false,
    })
}

/// Returns a message of OpenClaw's with another text and other arguments of its calls. Thinking and
/// ids stay, because providers check them.
fn changed(own: &Value, text: Option<&str>, arguments: &[ShortArguments]) -> Value {
    let mut own = own.clone();
    if let Some(text) = text {
        let parts = own["content"].as_array().into_iter().flatten();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for part in parts.filter(|_| own["role"] == "assistant") {
            match part["type"].as_str() {
                Some("thinking") => before.push(part.clone()),
                Some("toolCall") => after.push(part.clone()),
                _ => {}
            }
        }
        before.push(text_part(text));
        own["content"] = [before, after].concat().into();
    }
    let parts = own["content"].as_array_mut().into_iter().flatten();
    let calls = parts.filter(|part| part["type"] == "toolCall");
    for (at, call) in calls.enumerate() {
        let new = arguments.iter().find(|new| new.index == at);
        if let Some(Ok(new)) = new.map(|new| serde_json::from_str(&new.arguments)) {
            call["arguments"] = new;
        }
    }
    own
}

#[cfg(test)]
mod tests;

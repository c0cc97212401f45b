//! Compares importing a session log repeatedly while it grows, as in a series of checkpoints, with importing it once at
//! its end. The session is the same, continues in the same window, and holds each message of the log once.

use std::collections::HashMap;
use std::sync::Arc;

use contexture::engines::Engines;
use contexture::formats::{self, Format};
use contexture::session::{Compact, Record, Session, TurnOptions};
use contexture_tests::{Home, under};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{LCM, agent};

/// What an agent does next.
#[derive(Debug, Clone, Copy)]
enum Act {
    Turn {
        calls: u8,
    },
    Compact {
        kept: u8,
    },
    /// The user goes back this many turns.
    Back(u8),
    /// The agent's program adds a message, and a prompt was typed meanwhile.
    PutIn,
    /// The session ends and is resumed.
    Resume,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (0..3u8).prop_map(|calls| Act::Turn { calls }),
        2 => (0..3u8).prop_map(|kept| Act::Compact { kept }),
        1 => (1..3u8).prop_map(Act::Back),
        1 => Just(Act::PutIn),
        1 => Just(Act::Resume),
    ];
    prop::collection::vec(act, 1..14)
}

/// The texts of the conversation, and the log that its agent writes.
#[derive(Default)]
struct Writer {
    lines: Vec<Value>,
    /// The live part of the log, in order: a mark in each text that was said, and its line.
    said: Vec<(String, usize)>,
    /// Where turns begin, as indexes into `said`.
    turns: Vec<usize>,
    parent: Option<String>,
    next: usize,
}

impl Writer {
    fn mark(&mut self) -> String {
        self.next += 1;
        format!("MARK{:04}", self.next)
    }
}

/// A log of Claude Code.
fn claude_code(acts: &[Act]) -> Writer {
    let mut log = Writer::default();
    let said = |log: &mut Writer, kind: &str, own: Value, mark: String| {
        log.said.push((mark, log.lines.len()));
        line_of(log, kind, own);
    };
    for act in acts {
        match act {
            Act::Turn { calls } => {
                log.turns.push(log.said.len());
                let mark = log.mark();
                let own = json!({"message": {"role": "user", "content": mark.clone()}});
                said(&mut log, "user", own, mark);
                for call in 0..*calls {
                    let (asked, answered) = (log.mark(), log.mark());
                    let id = format!("call{}-{call}", log.next);
                    let content = json!([{"type": "text", "text": asked},
                        {"type": "tool_use", "id": id, "name": "run", "input": {}}]);
                    let own = json!({"message": {"role": "assistant", "id": asked.clone(), "content": content}});
                    said(&mut log, "assistant", own, asked);
                    let content =
                        json!([{"type": "tool_result", "tool_use_id": id, "content": answered}]);
                    let own = json!({"message": {"role": "user", "content": content}});
                    said(&mut log, "user", own, answered);
                }
                let mark = log.mark();
                let content = json!([{"type": "text", "text": mark}]);
                let own = json!({"message": {"role": "assistant", "id": mark.clone(), "content": content}});
                said(&mut log, "assistant", own, mark);
            }
            Act::Compact { kept } if !log.said.is_empty() => {
                let (boundary, summary) = (log.lines.len(), log.lines.len() + 1);
                let first = log.said.len().saturating_sub(usize::from(*kept));
                let tail = log.said.last().unwrap().1;
                let mut metadata = json!({"trigger": "auto", "preTokens": 9});
                if *kept > 0 {
                    metadata["preservedSegment"] = json!({
                        "headUuid": format!("u{}", log.said[first].1),
                        "anchorUuid": format!("u{summary}"), "tailUuid": format!("u{tail}"),
                    });
                }
                let own = json!({"parentUuid": null, "logicalParentUuid": log.parent, "subtype": "compact_boundary",
                    "content": "c", "compactMetadata": metadata});
                line_of(&mut log, "system", own);
                assert_eq!(log.lines.len(), boundary + 1);
                let mark = log.mark();
                let own = json!({"isCompactSummary": true, "message": {"role": "user", "content": mark.clone()}});
                log.said.push((mark, log.lines.len()));
                line_of(&mut log, "user", own);
                if *kept > 0 {
                    log.parent = Some(format!("u{tail}"));
                }
            }
            Act::Back(turns) => {
                // Not to before a compaction, because the agent does not allow that.
                let place = log.turns.len().saturating_sub(usize::from(*turns));
                let Some(start) = log.turns.get(place).copied() else {
                    continue;
                };
                let is_compacted = log.said[start..]
                    .iter()
                    .any(|(_, at)| log.lines[*at].get("isCompactSummary").is_some());
                if start == 0 || is_compacted {
                    continue;
                }
                log.turns.truncate(place);
                log.said.truncate(start);
                log.parent = Some(format!("u{}", log.said.last().unwrap().1));
                // Only the next message shows that the user went back.
                let mark = log.mark();
                log.turns.push(log.said.len());
                let own = json!({"message": {"role": "user", "content": mark.clone()}});
                log.said.push((mark, log.lines.len()));
                line_of(&mut log, "user", own);
            }
            Act::PutIn if !log.said.is_empty() => {
                for attachment in [
                    json!({"type": "edited_text_file", "filename": "f"}),
                    json!({"type": "queued_command", "commandMode": "prompt"}),
                ] {
                    let mark = log.mark();
                    let mut attachment = attachment;
                    let key = if attachment.get("filename").is_some() {
                        "snippet"
                    } else {
                        "prompt"
                    };
                    attachment[key] = mark.clone().into();
                    log.said.push((mark, log.lines.len()));
                    line_of(&mut log, "attachment", json!({"attachment": attachment}));
                }
            }
            Act::Resume if !log.said.is_empty() => {
                // Some lines are repeated.
                let again = log.lines[log.said.last().unwrap().1].clone();
                log.lines.push(again);
            }
            _ => {}
        }
    }
    log
}

fn line_of(log: &mut Writer, kind: &str, mut own: Value) {
    let uuid = format!("u{}", log.lines.len());
    let all = own.as_object_mut().unwrap();
    all.insert("type".into(), kind.into());
    all.insert("uuid".into(), uuid.clone().into());
    let parent = json!(log.parent);
    all.entry("parentUuid").or_insert(parent);
    all.insert("isSidechain".into(), false.into());
    all.insert("sessionId".into(), "s".into());
    log.lines.push(own);
    log.parent = Some(uuid);
}

/// A rollout of Codex.
fn codex(acts: &[Act]) -> Writer {
    let mut log = Writer::default();
    let meta = json!({"type": "session_meta", "payload": {"id": "c", "cwd": "/"}});
    log.lines.push(meta);
    let message = |role: &str, mark: &str| {
        let kind = if role == "assistant" {
            "output_text"
        } else {
            "input_text"
        };
        json!({"type": "message", "role": role, "content": [{"type": kind, "text": mark}]})
    };
    let item = |log: &mut Writer, payload: Value, mark: String| {
        log.said.push((mark, log.lines.len()));
        log.lines
            .push(json!({"type": "response_item", "payload": payload}));
    };
    let event = |log: &mut Writer, payload: Value| {
        log.lines
            .push(json!({"type": "event_msg", "payload": payload}));
    };
    for act in acts {
        match act {
            Act::Turn { calls } => {
                log.turns.push(log.said.len());
                event(&mut log, json!({"type": "task_started", "turn_id": "t"}));
                let mark = log.mark();
                item(&mut log, message("user", &mark), mark);
                for call in 0..*calls {
                    let (asked, answered) = (log.mark(), log.mark());
                    let id = format!("call{}-{call}", log.next);
                    let payload = json!({"type": "function_call", "name": "run", "call_id": id,
                        "arguments": json!({"of": asked}).to_string()});
                    item(&mut log, payload, asked);
                    let payload =
                        json!({"type": "function_call_output", "call_id": id, "output": answered});
                    item(&mut log, payload, answered);
                }
                let mark = log.mark();
                item(&mut log, message("assistant", &mark), mark);
                event(&mut log, json!({"type": "task_complete", "turn_id": "t"}));
            }
            Act::Compact { kept } if !log.said.is_empty() => {
                let mark = log.mark();
                let mut payload = json!({"message": mark});
                if *kept > 0 {
                    let users = log.said.iter().filter_map(|(_, at)| {
                        let payload = log.lines[*at].get("payload")?;
                        (payload["role"] == "user").then(|| payload.clone())
                    });
                    let mut list: Vec<Value> = users.collect();
                    list.insert(
                        0,
                        message("user", "<environment_context>again</environment_context>"),
                    );
                    list.push(message("user", &mark));
                    payload["replacement_history"] = list.into();
                }
                log.said.push((mark, log.lines.len()));
                log.lines
                    .push(json!({"type": "compacted", "payload": payload}));
            }
            Act::Back(turns) => {
                let place = log.turns.len().saturating_sub(usize::from(*turns));
                let Some(start) = log.turns.get(place).copied() else {
                    continue;
                };
                if start == 0 {
                    continue;
                }
                let taken = log.turns.len() - place;
                log.turns.truncate(place);
                log.said.truncate(start);
                event(
                    &mut log,
                    json!({"type": "thread_rolled_back", "num_turns": taken}),
                );
            }
            _ => event(&mut log, json!({"type": "token_count", "info": null})),
        }
    }
    log
}

struct Store {
    engines: Arc<Engines>,
    record: Arc<Record>,
    _home: Home,
}

impl Store {
    fn new() -> Self {
        let home = Home::new();
        home.configure(LCM);
        let engines = contexture_tests::engines(&home);
        let record = Record::open(&engines.loaded().home).unwrap();
        Self {
            engines,
            record,
            _home: home,
        }
    }

    /// Imports a log as the command does. Returns the window that the session has afterwards.
    fn import(&self, log: &str) -> Option<String> {
        let conversation = formats::read(log, None).ok()?.pop()?;
        let whole = conversation.whole().unwrap().map(Arc::new);
        let conversation = Arc::new(conversation);
        let history = whole.as_ref().unwrap_or(&conversation);
        let mut session = Session::open(
            &self.engines,
            Some(&self.record),
            "s",
            agent(1_000_000),
            under("lcm"),
        )
        .unwrap();
        let options = TurnOptions::default().compact(Compact::Never);
        session.turn_over(history, &options, &mut |_| {}).unwrap();
        if whole.is_some() {
            session.resume_log(&conversation, history);
        }
        let plan = session.render_plan(history);
        let window = history.convert(&plan, Format::OpenAiChat).unwrap().document;
        session.end().unwrap();
        Some(window)
    }

    /// The messages of the conversation in their wire form.
    fn exported(&self) -> Vec<String> {
        self.record.conversation("s").unwrap()
    }
}

fn check(log: &Writer, step: usize) -> Result<(), TestCaseError> {
    let lines: Vec<String> = log.lines.iter().map(ToString::to_string).collect();
    let (growing, once) = (Store::new(), Store::new());
    let mut window = None;
    for end in (1..lines.len()).step_by(step).chain([lines.len()]) {
        window = growing.import(&(lines[..end].join("\n") + "\n"));
    }
    let at_once = once.import(&(lines.join("\n") + "\n"));
    prop_assert_eq!(&window, &at_once);
    if at_once.is_none() {
        return Ok(());
    }
    let exported = once.exported();
    prop_assert_eq!(growing.exported(), exported.clone());
    let mut found: HashMap<&str, usize> = HashMap::new();
    for (mark, _) in &log.said {
        let times = exported
            .iter()
            .filter(|text| text.contains(mark.as_str()))
            .count();
        found.insert(mark, times);
    }
    // A summary that is also in a window's list counts as one message.
    prop_assert!(found.values().all(|times| *times == 1), "{:?}", found);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_growing_log_of_claude_code_is_the_log_at_its_end(acts in acts(), step in 1..6usize) {
        check(&claude_code(&acts), step)?;
    }

    #[test]
    fn a_growing_rollout_of_codex_is_the_rollout_at_its_end(acts in acts(), step in 1..6usize) {
        check(&codex(&acts), step)?;
    }
}

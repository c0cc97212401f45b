//! Writes a window as a session log that Claude Code can resume.
//!
//! [`write_log`] is the entry point. A log of Claude Code keeps all its lines. After them
//! follow a compaction boundary and the lines of the window again, with new ids, because Claude
//! Code continues after the last boundary. Any other conversation becomes a new log whose lines
//! contain only what Claude Code requires.
//!
//! Each line names the line before it, so the writer keeps the id of the last line. The ids are
//! derived from the document, so writing the same window twice gives the same log.

use xxhash_rust::xxh3::xxh3_128;

use super::conversation::Conversation;
use super::json::{Edits, Raw, on_one_line, quote};
use super::kept_view::{Turn, list};
use super::parts::text_part;
use super::plan::{PlannedMessage, RenderPlan, planned_messages};
use super::render::tool_result;
use super::seal::unsealed_notice;
use super::splice::{RenderedItem, splice};
use super::views::Speaker;
use super::{Format, FormatError, time};

/// Writes the window as a log. A log of Claude Code keeps its lines, and a compaction with the
/// kept lines under new ids follows. Any other conversation becomes a new log. Fails if the
/// window does not fit the conversation.
pub(super) fn write_log(
    conversation: &Conversation,
    plan: &RenderPlan<'_>,
) -> Result<String, FormatError> {
    let mut log = LogWriter::new(conversation);
    if conversation.format() == Format::ClaudeCode {
        log.out.push_str(conversation.document());
        // The last line may lack its newline, and the next line must not join it.
        if !log.out.ends_with('\n') {
            log.out.push('\n');
        }
        log.boundary();
        log.kept_lines(plan)?;
        return Ok(log.out);
    }
    let turns = conversation.turns(plan, Format::ClaudeCode)?;
    if turns.iter().any(|turn| turn.is_summary) {
        log.boundary();
    }
    for turn in &turns {
        log.turn(turn);
    }
    Ok(log.out)
}

/// The log under construction, and the state that the next line depends on.
struct LogWriter<'a> {
    conversation: &'a Conversation,
    out: String,
    /// The members that all lines share, such as the session id and the working directory.
    common: String,
    parent: Option<String>,
    /// The source of the ids: a hash of the document, combined with the number of ids so far.
    seed: u128,
    ids: u64,
    time_ms: i64,
}

impl<'a> LogWriter<'a> {
    fn new(conversation: &'a Conversation) -> Self {
        // New lines copy these members from the last line, so that Claude Code takes them for
        // the same session.
        let line = conversation.items.last().map(|item| item.outer.clone());
        let line = line
            .filter(|_| conversation.format() == Format::ClaudeCode)
            .map(|span| Raw::trusted(conversation.document(), span));
        let mut log = Self {
            conversation,
            out: String::new(),
            common: String::new(),
            parent: line.and_then(|line| line.get_string("uuid")),
            seed: xxh3_128(conversation.document().as_bytes()),
            ids: 0,
            time_ms: 0,
        };
        let session = quote(&log.uuid());
        let member = |key: &str, otherwise: &str| {
            let own = line.and_then(|line| line.get(key));
            format!(",\"{key}\":{}", own.map_or(otherwise, Raw::text))
        };
        // Every line of a subagent's log is marked as a side chain, and so are the new lines.
        let of_agent = line.and_then(|line| line.get("agentId"));
        log.common = [
            member("isSidechain", "false"),
            ",\"userType\":\"external\"".to_owned(),
            of_agent.map_or_else(String::new, |_| member("agentId", "null")),
            member("cwd", "\".\""),
            member("sessionId", &session),
            member("version", "\"2.0.0\""),
            member("gitBranch", "\"\""),
        ]
        .concat();
        log
    }

    /// Returns a new id. The ids are the same whenever the same conversation is written.
    fn uuid(&mut self) -> String {
        self.ids += 1;
        let mixed = xxh3_128(&self.seed.wrapping_add(u128::from(self.ids)).to_le_bytes());
        // Version 4 and variant 1 make the id a valid random UUID, which Claude Code expects.
        let id = (mixed & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{id:032x}");
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
        parts.map(|part| hex.get(part).unwrap_or("")).join("-")
    }

    /// Writes a line with the given members of its own, linked to the line before it.
    fn line(&mut self, members: &str) {
        let parent = link(self.parent.as_deref());
        let uuid = self.uuid();
        let time = time::format(self.time_ms);
        self.out.push_str(&format!(
            "{{\"parentUuid\":{parent}{},{members},\"uuid\":\"{uuid}\",\"timestamp\":\"{time}\"}}\n",
            self.common
        ));
        self.parent = Some(uuid);
    }

    /// Writes the compaction boundary, which ends the history that the model no longer sees.
    fn boundary(&mut self) {
        let last = self
            .conversation
            .messages()
            .iter()
            .rev()
            .find_map(|message| message.time_ms);
        self.time_ms = last.unwrap_or(self.time_ms);
        // A boundary starts a new chain. Claude Code finds the old one through this second
        // link.
        let logical_parent = link(self.parent.take().as_deref());
        self.line(&format!(
            "\"logicalParentUuid\":{logical_parent},\"type\":\"system\",\"subtype\":\"compact_boundary\",\
             \"content\":\"Conversation compacted\",\"isMeta\":false,\"level\":\"info\",\
             \"compactMetadata\":{{\"trigger\":\"manual\",\"preTokens\":0}}"
        ));
    }

    /// Writes a line for one message. An assistant message gets the members that Claude Code
    /// reads from a response, with zero usage.
    fn turn(&mut self, turn: &Turn) {
        self.time_ms = turn.time_ms.unwrap_or(self.time_ms);
        let content = list(&turn.blocks);
        // Each line of the log is one JSON value, so a newline would split it in two.
        let content = on_one_line(&content);
        if turn.role == "assistant" && !turn.is_summary {
            let id = self.uuid().replace('-', "");
            let model = quote(self.conversation.model().unwrap_or("unknown"));
            self.line(&format!(
                "\"type\":\"assistant\",\"message\":{{\"id\":\"msg_{id}\",\"type\":\"message\",\
                 \"role\":\"assistant\",\"model\":{model},\"content\":{content},\"stop_reason\":null,\
                 \"stop_sequence\":null,\"usage\":{{\"input_tokens\":0,\"output_tokens\":0}}}}"
            ));
        } else {
            let summary = if turn.is_summary {
                ",\"isCompactSummary\":true"
            } else {
                ""
            };
            let role = turn.role;
            self.line(&format!(
                "\"type\":\"{role}\",\"message\":{{\"role\":\"{role}\",\"content\":{content}}}{summary}"
            ));
        }
    }

    /// Writes the window of a Claude Code log by repeating its own lines with all their
    /// members.
    fn kept_lines(&mut self, plan: &RenderPlan<'_>) -> Result<(), FormatError> {
        let conversation = self.conversation;
        for out in planned_messages(conversation, plan, Format::ClaudeCode, &|item| item)? {
            let kept = match out {
                PlannedMessage::Summary { role, text } => {
                    let blocks = vec![text_part("text", &quote(&text))];
                    self.turn(&Turn {
                        role,
                        blocks,
                        is_summary: unsealed_notice(&text).is_none(),
                        time_ms: None,
                    });
                    continue;
                }
                PlannedMessage::Kept(kept) => kept,
            };
            for item in splice(conversation, &kept)? {
                let (index, body) = match &item {
                    RenderedItem::Original(index) => (Some(*index), None),
                    RenderedItem::New { text, of } => (*of, Some(text)),
                };
                let span = index.and_then(|index| conversation.items.get(index));
                match (span, body) {
                    // The message was made from an attachment. It is not part of its line, so
                    // the line cannot be repeated with another message in it.
                    (Some(span), Some(body)) if span.body.end > span.outer.end => {
                        self.put_in(body, span.speaker);
                    }
                    (Some(span), body) => {
                        self.line_again(span.outer.clone(), span.body.clone(), body);
                    }
                    (None, _) => {}
                }
            }
            let mut stubs = Vec::new();
            for (call, text) in &kept.stubs {
                let message = kept
                    .parts
                    .first()
                    .and_then(|part| conversation.messages().get(part.index));
                if let Some(call) = message.and_then(|message| message.calls.get(*call)) {
                    stubs.push(tool_result(&call.id, &quote(text), false));
                }
            }
            if !stubs.is_empty() {
                self.turn(&Turn {
                    role: "user",
                    blocks: stubs,
                    is_summary: false,
                    time_ms: None,
                });
            }
        }
        Ok(())
    }

    /// Writes a changed form of a message that has no line of its own. If the user did not say
    /// it, the line is marked as written by the program.
    fn put_in(&mut self, message: &str, speaker: Speaker) {
        let message = on_one_line(message);
        let mark = match speaker {
            Speaker::Wire => "",
            _ => "\"isMeta\":true,",
        };
        self.line(&format!("\"type\":\"user\",{mark}\"message\":{message}"));
    }

    /// Repeats a line of the log under a new id and parent. If `new_body` is given, it replaces
    /// the message of the line.
    fn line_again(
        &mut self,
        line: std::ops::Range<usize>,
        body: std::ops::Range<usize>,
        new_body: Option<&String>,
    ) {
        let uuid = self.uuid();
        let parent = link(self.parent.as_deref());
        let document = self.conversation.document();
        let raw = Raw::trusted(document, line.clone());
        // The line is parsed on its own, so that the spans are relative to it.
        let own = Raw::whole(raw.text());
        let mut edits = Edits::default();
        for (key, value) in [("uuid", format!("\"{uuid}\"")), ("parentUuid", parent)] {
            match own.get(key) {
                Some(old) => edits.replace(old.span(), value),
                None => super::json::insert_member(own, key, &value, &mut edits),
            }
        }
        if let Some(new) = new_body {
            edits.replace(body.start - line.start..body.end - line.start, new.clone());
        }
        self.out.push_str(&edits.apply(own.text(), own.span()));
        self.out.push('\n');
        self.parent = Some(uuid);
    }
}

/// The JSON of a link to the line with this id.
fn link(line: Option<&str>) -> String {
    line.map_or_else(|| "null".to_owned(), quote)
}

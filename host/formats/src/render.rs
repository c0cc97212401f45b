//! Renders a window into the document that the conversation was read from.
//!
//! [`Conversation::render`] is the entry point for one conversation, and [`render_all`] for
//! documents with several. Both change only the messages of the document. If a plan keeps
//! everything, the result equals the document byte for byte.
//!
//! Rendering has three steps. `plan` decides which wire messages are sent, `splice` edits the
//! JSON of each, and this module writes answers for open calls, merges neighbours of one role
//! for Anthropic and Gemini, and puts the list back into the document. Rendering into another
//! format is left to `convert`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::anatomy::{CallStyle, PieceKind, anatomy};
use super::body::split;
use super::conversation::{Container, Conversation};
use super::draft::BodyEdits;
use super::gemini;
use super::json::{Edits, Raw, quote};
use super::parts::{new_message, text_part};
use super::plan::{
    KeptMessage, PlanEntry, PlannedMessage, RenderPlan, follow, planned_messages, results_are_users,
};
use super::rewrite::system_items_with;
use super::splice::{RenderedItem, splice};
use super::{Format, FormatError};

/// Renders the windows of several conversations of one document. Only their messages change in
/// the result. If nothing changes, the document is returned byte for byte.
///
/// # Errors
/// Fails if a window does not fit its conversation, or if the conversations belong to different
/// documents. Also fails for a changed session log, because a log holds more than a window. Use
/// [`Conversation::convert`] for these.
pub fn render_all(parts: &[(&Conversation, &RenderPlan<'_>)]) -> Result<String, FormatError> {
    let Some((first, _)) = parts.first() else {
        return Err(FormatError::Window(
            "there is no conversation to render".to_owned(),
        ));
    };
    let document = first.document();
    let mut edits = Edits::default();
    for (conversation, plan) in parts {
        // Edits are byte ranges, so they are only valid for one and the same text.
        if !std::ptr::eq(conversation.document(), document) {
            return Err(FormatError::Window(
                "the conversations are of different documents".to_owned(),
            ));
        }
        // Without edits, the text of this conversation stays byte for byte.
        if conversation.is_whole(plan) {
            continue;
        }
        conversation.edit_document(plan, &mut edits)?;
    }
    Ok(edits.apply(document, 0..document.len()))
}

/// A wire message of the result, as one or several items.
struct RenderedMessage<'a> {
    role: Cow<'static, str>,
    /// The wire items that it stands for, or `None` if the host added it.
    items: Option<Range<usize>>,
    out: Vec<RenderedItem>,
    /// The ids of the calls that it makes, in order.
    calls: Vec<&'a str>,
    /// The ids of the calls that its results answer, in order.
    answers: Vec<&'a str>,
}

impl Conversation {
    /// Renders a window as the whole document in its own format, with this conversation's
    /// messages changed. A session log holds more than a window, so it is rendered as an OpenAI
    /// chat document.
    ///
    /// # Errors
    /// Fails if the window does not fit the conversation.
    pub fn render(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        match self.container {
            Container::Log => Ok(self.convert(plan, Format::OpenAiChat)?.document),
            Container::List(_) | Container::Lines(_) => render_all(&[(self, plan)]),
        }
    }

    /// Renders a window in the conversation's own format, without the other contents of its
    /// document, such as other conversations.
    pub(super) fn render_alone(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        let Container::List(span) = &self.container else {
            return self.render(plan);
        };
        let mut edits = Edits::default();
        if !self.is_whole(plan) {
            self.edit_document(plan, &mut edits)?;
        }
        Ok(edits.apply(self.document(), span.clone()))
    }

    /// Whether the window holds every message unchanged.
    fn is_whole(&self, plan: &RenderPlan<'_>) -> bool {
        let mut entries = plan.entries.iter().enumerate();
        let all_kept = plan.entries.len() == self.messages().len()
            && entries
                .all(|(at, entry)| matches!(entry, PlanEntry::Message(index) if *index == at));
        all_kept && self.new_note(plan).is_none()
    }

    /// Returns the plan's note, unless the system prompt already contains it.
    pub(super) fn new_note<'a>(&self, plan: &RenderPlan<'a>) -> Option<&'a str> {
        plan.system_note
            .filter(|note| !self.system().is_some_and(|system| system.contains(note)))
    }

    /// Adds the edits that turn the document into one with this window. Fails for a session
    /// log.
    fn edit_document(&self, plan: &RenderPlan<'_>, edits: &mut Edits) -> Result<(), FormatError> {
        let note = self.new_note(plan);
        let items = self.outgoing(plan, &|item| item)?;
        match &self.container {
            Container::List(span) => {
                let body = self.document().get(span.clone()).unwrap_or("");
                let messages = items.iter().map(|item| match item {
                    RenderedItem::Original(index) => (Some(*index), self.text_of(item)),
                    RenderedItem::New { .. } => (None, self.text_of(item)),
                });
                let body = split(body, Some(self.format()))?.with_messages(messages.collect());
                let written = body.write(&BodyEdits::default().note(note)).body;
                edits.replace(span.clone(), written.text);
            }
            Container::Lines(span) => {
                let system =
                    system_items_with(self.document(), self.format(), &self.system_items, note);
                let lines: Vec<_> = system
                    .iter()
                    .map(Cow::as_ref)
                    .chain(self.compacted())
                    .chain(items.iter().map(|item| self.text_of(item)))
                    .collect();
                edits.replace(span.clone(), lines.join("\n"));
            }
            Container::Log => return Err(FormatError::NoWriter(self.format())),
        }
        Ok(())
    }

    /// Returns the wire messages of a window in order, in the conversation's own format.
    /// `place` returns the position of a wire item in its source, which shows whether two
    /// messages were neighbours. Fails if the window does not fit the conversation.
    pub fn outgoing(
        &self,
        plan: &RenderPlan<'_>,
        place: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<RenderedItem>, FormatError> {
        let wires = self.wires(plan, place)?;
        Ok(wires.into_iter().flat_map(|wire| wire.out).collect())
    }

    /// Builds the wire messages of the window, in the conversation's own format.
    fn wires(
        &self,
        plan: &RenderPlan<'_>,
        place: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<RenderedMessage<'_>>, FormatError> {
        let format = self.format();
        let mut wires = Vec::new();
        for out in planned_messages(self, plan, format, place)? {
            match out {
                PlannedMessage::Summary { role, text } => wires.push(RenderedMessage {
                    role: role.into(),
                    items: None,
                    out: vec![RenderedItem::new(new_message(format, role, &text))],
                    calls: Vec::new(),
                    answers: Vec::new(),
                }),
                PlannedMessage::Kept(kept) => {
                    let message = kept
                        .parts
                        .first()
                        .and_then(|part| self.messages().get(part.index));
                    let Some(message) = message else { continue };
                    let role = match message.role.as_str() {
                        "tool" if results_are_users(format) => "user".into(),
                        role => Cow::Owned(role.to_owned()),
                    };
                    let kept_messages =
                        (kept.parts.iter()).filter_map(|part| self.messages().get(part.index));
                    let calls = kept_messages.clone().flat_map(|message| &message.calls);
                    wires.push(RenderedMessage {
                        role,
                        items: Some(message.items.clone()),
                        out: splice(self, &kept)?,
                        calls: calls.map(|call| call.id.as_str()).collect(),
                        answers: kept_messages
                            .filter_map(|message| message.tool_call_id.as_deref())
                            .collect(),
                    });
                    wires.extend(self.stubs(&kept)?);
                }
            }
        }
        Ok(match format {
            Format::Anthropic | Format::Gemini => self.merge_roles(wires, place),
            _ => wires,
        })
    }

    /// Returns the answers that the host writes for calls of a message, in the order of the calls.
    /// Anthropic and Gemini get all of them in one user message.
    fn stubs(&self, kept: &KeptMessage<'_>) -> Result<Vec<RenderedMessage<'_>>, FormatError> {
        let mut stubs = kept.stubs.clone();
        stubs.sort_by_key(|(call, _)| *call);
        let answers = stubs
            .iter()
            .map(|(call, text)| self.stub(kept, *call, text))
            .collect::<Result<Vec<_>, _>>()?;
        let (ids, parts): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
        let joined = match self.format() {
            Format::Anthropic => Some(format!(
                "{{\"role\":\"user\",\"content\":[{}]}}",
                parts.join(",")
            )),
            Format::Gemini => Some(gemini::content("user", &parts)),
            _ => None,
        };
        let message = |role: &'static str, json: String, answers: Vec<_>| RenderedMessage {
            role: role.into(),
            items: None,
            out: vec![RenderedItem::new(json)],
            calls: Vec::new(),
            answers,
        };
        Ok(match joined {
            _ if parts.is_empty() => Vec::new(),
            Some(joined) => vec![message("user", joined, ids)],
            None => (ids.into_iter().zip(parts))
                .map(|(id, part)| message("tool", part, vec![id]))
                .collect(),
        })
    }

    /// Returns the id of a call and the JSON of one answer to it. The form of the answer depends on
    /// the format and on the style of the call.
    fn stub(
        &self,
        kept: &KeptMessage<'_>,
        call: usize,
        text: &str,
    ) -> Result<(&str, String), FormatError> {
        let owner = kept
            .parts
            .iter()
            .filter_map(|part| self.messages().get(part.index))
            .find(|message| call < message.calls.len());
        let Some((message, data)) =
            owner.and_then(|message| Some((message, message.calls.get(call)?)))
        else {
            return Err(FormatError::Window(format!(
                "there is no call {call} to answer"
            )));
        };
        let (id, name, content) = (quote(&data.id), quote(&data.name), quote(text));
        let (style, item_type) = self.call_style(message.items.clone(), call);
        let answer = match (self.format(), style) {
            (Format::Gemini, style) => {
                let own = (style == CallStyle::Id).then_some(data.id.as_str());
                gemini::result_part(own, &data.name, text, false)
            }
            (Format::Anthropic | Format::ClaudeCode, _) => tool_result(&data.id, &content, false),
            (Format::OpenAiResponses | Format::Codex, CallStyle::Item) => {
                let kind = quote(&format!("{item_type}_output"));
                format!("{{\"type\":{kind},\"call_id\":{id},\"output\":{content}}}")
            }
            (Format::OpenAiResponses | Format::Codex, CallStyle::Approval) => format!(
                "{{\"type\":\"mcp_approval_response\",\"approval_request_id\":{id},\"approve\":false,\"reason\":{content}}}"
            ),
            (Format::OpenAiResponses | Format::Codex, _) => call_output(&data.id, &content),
            (_, CallStyle::Name) => {
                format!("{{\"role\":\"function\",\"name\":{name},\"content\":{content}}}")
            }
            (Format::Tau2, _) => format!("{{\"id\":{id},\"role\":\"tool\",\"content\":{content}}}"),
            (Format::SweAgent, _) => {
                format!("{{\"role\":\"tool\",\"content\":{content},\"tool_call_ids\":[{id}]}}")
            }
            _ => tool_message(&data.id, &content),
        };
        Ok((&data.id, answer))
    }

    /// Returns how the call with this index within these items expects its answer, and the type
    /// of the call's item. An unknown call gets the default style.
    fn call_style(&self, items: Range<usize>, call: usize) -> (CallStyle, String) {
        let mut before = 0;
        for item in items {
            let raw = Raw::whole(self.item(item));
            let Ok(anatomy) = anatomy(raw) else { continue };
            for piece in &anatomy.pieces {
                if let PieceKind::Call(found) = &piece.kind {
                    if before == call {
                        return (found.style, raw.get_string("type").unwrap_or_default());
                    }
                    before += 1;
                }
            }
        }
        (CallStyle::Id, String::new())
    }

    /// Merges adjacent wire messages of the same role for Anthropic and Gemini. Neighbours that
    /// were already adjacent in the source are left alone. Results come first in a merged message.
    fn merge_roles<'a>(
        &self,
        wires: Vec<RenderedMessage<'a>>,
        place: &dyn Fn(usize) -> usize,
    ) -> Vec<RenderedMessage<'a>> {
        let mut merged: Vec<RenderedMessage<'a>> = Vec::with_capacity(wires.len());
        let mut calls: HashMap<&str, usize> = HashMap::new();
        for mut wire in wires {
            if !wire.calls.is_empty() {
                calls = wire.calls.drain(..).zip(0..).collect();
            }
            let Some(last) = merged.last_mut().filter(|last| last.role == wire.role) else {
                merged.push(wire);
                continue;
            };
            let were_neighbours = matches!(
                (&last.items, &wire.items),
                (Some(a), Some(b)) if follow(a, b, place)
            );
            // Results without ids have to be in the order of their calls, also if a stub came first.
            let is_made = matches!(last.out.as_slice(), [RenderedItem::New { of: None, .. }]);
            let joins_results =
                self.format() == Format::Gemini && is_made && !wire.answers.is_empty();
            // The client sent these two messages separately, so they stay separate.
            if were_neighbours && !joins_results {
                merged.push(wire);
                continue;
            }
            let texts = last
                .out
                .iter()
                .chain(&wire.out)
                .map(|item| self.text_of(item));
            last.answers.append(&mut wire.answers);
            let places: Vec<_> = (last.answers.iter())
                .map(|id| calls.get(id).copied())
                .collect();
            let message = merge_messages(self.format(), &texts.collect::<Vec<_>>(), &places);
            last.answers.sort_by_key(|id| calls.get(id));
            last.out = vec![RenderedItem::new(message)];
            // The next message is compared with the message that was merged in last.
            last.items = wire.items;
        }
        merged
    }

    /// The JSON of an item of the new window.
    pub(super) fn text_of<'a>(&'a self, item: &'a RenderedItem) -> &'a str {
        match item {
            RenderedItem::Original(index) => self.item(*index),
            RenderedItem::New { text, .. } => text,
        }
    }
}

/// Merges messages of Anthropic or Gemini into one that has the blocks of all of them, with results
/// first. Other members come from the first message. `calls` has the place of the call of each
/// result.
fn merge_messages(format: Format, messages: &[&str], calls: &[Option<usize>]) -> String {
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for block in messages.iter().flat_map(|message| blocks_of(message)) {
        match is_result(&block) {
            true => results.push(block),
            false => others.push(block),
        }
    }
    if format == Format::Gemini && results.len() == calls.len() {
        // Results without ids answer the calls of their tool in order.
        let mut ordered: Vec<_> = calls.iter().zip(results).collect();
        ordered.sort_by_key(|(call, _)| **call);
        results = ordered.into_iter().map(|(_, result)| result).collect();
    }
    // Anthropic requires results before all other blocks.
    results.append(&mut others);
    let blocks = format!("[{}]", results.join(","));
    let first = messages.first().copied().unwrap_or("{}");
    let raw = Raw::whole(first);
    let key = match format {
        Format::Gemini => "parts",
        _ => "content",
    };
    let mut edits = Edits::default();
    match raw.get(key) {
        Some(content) => edits.replace(content.span(), blocks),
        None => super::json::insert_member(raw, key, &blocks, &mut edits),
    }
    edits.apply(first, 0..first.len())
}

pub(super) fn is_result(block: &str) -> bool {
    let raw = Raw::whole(block);
    raw.has("type", "tool_result") || gemini::result_in(raw).is_some()
}

/// Returns the content blocks of an Anthropic message, or the parts of a Gemini content. A string
/// becomes one block, or none if it is blank.
pub(super) fn blocks_of(message: &str) -> Vec<String> {
    let raw = Raw::whole(message);
    let Some(content) = raw.get("content").or_else(|| raw.get("parts")) else {
        return Vec::new();
    };
    match content.string() {
        Some(text) if text.trim().is_empty() => Vec::new(),
        Some(_) => vec![text_part("text", content.text())],
        None => content
            .elements()
            .map(|block| block.text().to_owned())
            .collect(),
    }
}

/// Returns Anthropic's answer to a call. `content` is JSON.
pub(super) fn tool_result(id: &str, content: &str, is_error: bool) -> String {
    let error = if is_error { ",\"is_error\":true" } else { "" };
    format!(
        "{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{content}{error}}}",
        quote(id)
    )
}

/// Returns the answer of OpenAI chat to a call. `content` is JSON.
pub(super) fn tool_message(id: &str, content: &str) -> String {
    format!(
        "{{\"role\":\"tool\",\"tool_call_id\":{},\"content\":{content}}}",
        quote(id)
    )
}

/// Returns the answer of the Responses API to a function call. `output` is JSON.
pub(super) fn call_output(id: &str, output: &str) -> String {
    format!(
        "{{\"type\":\"function_call_output\",\"call_id\":{},\"output\":{output}}}",
        quote(id)
    )
}

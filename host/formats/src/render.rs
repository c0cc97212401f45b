//! Renders a conversation into the document it was read from.

use std::borrow::Cow;
use std::ops::Range;

use super::anatomy::{CallStyle, PieceKind, anatomy};
use super::conversation::{Container, Conversation};
use super::json::{Edits, Raw, quote};
use super::plan::{
    Kept, PlanEntry, PlannedMessage, RenderPlan, planned_messages, results_are_users,
};
use super::rewrite::{Rewrite, system_items_with};
use super::splice::{Item, new_message, splice, text_part};
use super::{Format, FormatError};

/// Renders the windows of several conversations of one document: the whole document, in which only their
/// messages have changed. A document without changes is returned byte for byte.
///
/// # Errors
/// Where a window does not fit its conversation, where the conversations are not of one document, or
/// where they are of a session log, which holds more than a window (see [`Conversation::convert`]).
pub fn render_all(parts: &[(&Conversation, &RenderPlan<'_>)]) -> Result<String, FormatError> {
    let Some((first, _)) = parts.first() else {
        return Err(FormatError::Window(
            "there is no conversation to render".to_owned(),
        ));
    };
    let document = first.document();
    let mut edits = Edits::default();
    for (conversation, plan) in parts {
        if !std::ptr::eq(conversation.document(), document) {
            return Err(FormatError::Window(
                "the conversations are of different documents".to_owned(),
            ));
        }
        if conversation.is_whole(plan) {
            continue;
        }
        conversation.edit_document(plan, &mut edits)?;
    }
    Ok(edits.apply(document, 0..document.len()))
}

/// A wire message on its way out.
struct Wire {
    role: Cow<'static, str>,
    /// The wire items it stands for, where it stands for any.
    items: Option<Range<usize>>,
    out: Vec<Item>,
}

impl Conversation {
    /// Renders a window: the whole document in its own format, with this conversation's messages
    /// changed. A session log, which holds more than a window, renders as an OpenAI chat document.
    ///
    /// # Errors
    /// Where the window does not fit the conversation.
    pub fn render(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        match self.container {
            Container::Log => Ok(self.convert(plan, Format::OpenAiChat)?.document),
            Container::List(_) | Container::Lines(_) => render_all(&[(self, plan)]),
        }
    }

    /// Renders a window in the conversation's own format, without what else its document holds.
    pub(super) fn render_alone(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        let Container::List(body) = &self.container else {
            return self.render(plan);
        };
        let mut edits = Edits::default();
        if !self.is_whole(plan) {
            self.edit_document(plan, &mut edits)?;
        }
        Ok(edits.apply(self.document(), body.span.clone()))
    }

    /// Whether the window holds every message as it is.
    fn is_whole(&self, plan: &RenderPlan<'_>) -> bool {
        let mut entries = plan.entries.iter().enumerate();
        let all_kept = plan.entries.len() == self.messages().len()
            && entries
                .all(|(at, entry)| matches!(entry, PlanEntry::Message(index) if *index == at));
        all_kept && self.new_note(plan).is_none()
    }

    /// The note that the system prompt still lacks.
    pub(super) fn new_note<'a>(&self, plan: &RenderPlan<'a>) -> Option<&'a str> {
        plan.system_note
            .filter(|note| !self.system().is_some_and(|system| system.contains(note)))
    }

    fn edit_document(&self, plan: &RenderPlan<'_>, edits: &mut Edits) -> Result<(), FormatError> {
        let note = self.new_note(plan);
        let items = self.outgoing(plan, &|item| item)?;
        match &self.container {
            Container::List(body) => {
                let leading = self.system_items.len() + self.compacted_items.len();
                let messages: Vec<_> = items
                    .iter()
                    .map(|item| match item {
                        Item::Original(index) => (Some(leading + index), self.text_of(item)),
                        Item::New { .. } => (None, self.text_of(item)),
                    })
                    .collect();
                let rewrite = Rewrite {
                    document: self.document(),
                    format: self.format(),
                    body,
                    system_items: &self.system_items,
                    compacted_items: &self.compacted_items,
                };
                rewrite.edit(note, &messages, edits);
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

    /// The wire messages of a window, in order, in the conversation's own format. `place` says where a wire
    /// item stood, so that neighbours are known.
    pub fn outgoing(
        &self,
        plan: &RenderPlan<'_>,
        place: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<Item>, FormatError> {
        let wires = self.wires(plan, place)?;
        Ok(wires.into_iter().flat_map(|wire| wire.out).collect())
    }

    /// The wire messages of the window, in the conversation's own format.
    fn wires(
        &self,
        plan: &RenderPlan<'_>,
        place: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<Wire>, FormatError> {
        let format = self.format();
        let mut wires = Vec::new();
        for out in planned_messages(self, plan, format, place)? {
            match out {
                PlannedMessage::Summary { role, text } => wires.push(Wire {
                    role: role.into(),
                    items: None,
                    out: vec![Item::new(new_message(format, role, &text))],
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
                    wires.push(Wire {
                        role,
                        items: Some(message.items.clone()),
                        out: splice(self, &kept)?,
                    });
                    wires.extend(self.stubs(&kept)?);
                }
            }
        }
        Ok(if format == Format::Anthropic {
            self.merge_roles(wires, place)
        } else {
            wires
        })
    }

    /// The answers made up for the calls of a message.
    fn stubs(&self, kept: &Kept<'_>) -> Result<Vec<Wire>, FormatError> {
        let mut answers = Vec::new();
        for (call, text) in &kept.stubs {
            answers.push(self.stub(kept, *call, text)?);
        }
        if self.format() == Format::Anthropic && !answers.is_empty() {
            answers = vec![format!(
                "{{\"role\":\"user\",\"content\":[{}]}}",
                answers.join(",")
            )];
        }
        let role = if results_are_users(self.format()) {
            "user"
        } else {
            "tool"
        };
        Ok(answers
            .into_iter()
            .map(|answer| Wire {
                role: role.into(),
                items: None,
                out: vec![Item::new(answer)],
            })
            .collect())
    }

    fn stub(&self, kept: &Kept<'_>, call: usize, text: &str) -> Result<String, FormatError> {
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
        Ok(match (self.format(), style) {
            (Format::Anthropic | Format::ClaudeCode, _) => tool_result(&data.id, &content, false),
            (Format::OpenAiResponses | Format::Codex, CallStyle::Item) => {
                let kind = quote(&format!("{item_type}_output"));
                format!("{{\"type\":{kind},\"call_id\":{id},\"output\":{content}}}")
            }
            (Format::OpenAiResponses | Format::Codex, _) => call_output(&data.id, &content),
            (_, CallStyle::Name) => {
                format!("{{\"role\":\"function\",\"name\":{name},\"content\":{content}}}")
            }
            (Format::Tau2, _) => format!("{{\"id\":{id},\"role\":\"tool\",\"content\":{content}}}"),
            (Format::SweAgent, _) => {
                format!("{{\"role\":\"tool\",\"content\":{content},\"tool_call_ids\":[{id}]}}")
            }
            _ => tool_message(&data.id, &content),
        })
    }

    /// How the call `call` of the message in these items wants to be answered, and the type of its item.
    fn call_style(&self, items: Range<usize>, call: usize) -> (CallStyle, String) {
        let mut before = 0;
        for item in items {
            let raw = Raw::trusted(self.item(item), 0..self.item(item).len());
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

    /// Anthropic: wire messages that came to stand side by side and are of one role become one. The
    /// results in them lead.
    fn merge_roles(&self, wires: Vec<Wire>, place: &dyn Fn(usize) -> usize) -> Vec<Wire> {
        let mut merged: Vec<Wire> = Vec::with_capacity(wires.len());
        for wire in wires {
            let Some(last) = merged.last_mut().filter(|last| last.role == wire.role) else {
                merged.push(wire);
                continue;
            };
            let were_neighbours = matches!(
                (&last.items, &wire.items),
                (Some(a), Some(b)) if a.end > 0 && place(a.end - 1) + 1 == place(b.start)
            );
            if were_neighbours {
                merged.push(wire);
                continue;
            }
            let texts = last
                .out
                .iter()
                .chain(&wire.out)
                .map(|item| self.text_of(item));
            let message = merge_messages(&texts.collect::<Vec<_>>());
            last.out = vec![Item::new(message)];
            // What follows is a neighbour of what was merged in.
            last.items = wire.items;
        }
        merged
    }

    /// The JSON of an item of the new window.
    pub(super) fn text_of<'a>(&'a self, item: &'a Item) -> &'a str {
        match item {
            Item::Original(index) => self.item(*index),
            Item::New { text, .. } => text,
        }
    }
}

/// One of Anthropic's messages with the blocks of all of these, results first; what else the first has
/// stays.
fn merge_messages(messages: &[&str]) -> String {
    let mut blocks = Vec::new();
    for message in messages {
        blocks.extend(blocks_of(message));
    }
    blocks.sort_by_key(|block| !is_result(block));
    let blocks = format!("[{}]", blocks.join(","));
    let first = messages.first().copied().unwrap_or("{}");
    let raw = Raw::trusted(first, 0..first.len());
    let mut edits = Edits::default();
    match raw.get("content") {
        Some(content) => edits.replace(content.span(), blocks),
        None => super::splice::insert_member(raw, "content", &blocks, &mut edits),
    }
    edits.apply(first, 0..first.len())
}

pub(super) fn is_result(block: &str) -> bool {
    let raw = Raw::trusted(block, 0..block.len());
    raw.get("type").and_then(Raw::string).as_deref() == Some("tool_result")
}

/// The content blocks of one of Anthropic's messages; a string becomes a block, a blank one none.
pub(super) fn blocks_of(message: &str) -> Vec<String> {
    let raw = Raw::trusted(message, 0..message.len());
    let Some(content) = raw.get("content") else {
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

/// Anthropic's answer to a call; `content` is JSON.
pub(super) fn tool_result(id: &str, content: &str, is_error: bool) -> String {
    let error = if is_error { ",\"is_error\":true" } else { "" };
    format!(
        "{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{content}{error}}}",
        quote(id)
    )
}

/// OpenAI chat's answer to a call; `content` is JSON.
pub(super) fn tool_message(id: &str, content: &str) -> String {
    format!(
        "{{\"role\":\"tool\",\"tool_call_id\":{},\"content\":{content}}}",
        quote(id)
    )
}

/// The Responses API's answer to a function's call; `output` is JSON.
pub(super) fn call_output(id: &str, output: &str) -> String {
    format!(
        "{{\"type\":\"function_call_output\",\"call_id\":{},\"output\":{output}}}",
        quote(id)
    )
}

//! A conversation out again, in the document it came in.

use std::borrow::Cow;
use std::ops::Range;

use super::anatomy::{CallStyle, PieceKind, anatomy};
use super::body::Body;
use super::conversation::{Conversation, Layout};
use super::json::{Edits, Raw, escape, quote, skip_space};
use super::plan::{Kept, Place, Slot, Window, plan, results_are_users};
use super::splice::{Item, new_message, part_type, splice, text_part};
use super::{Format, FormatError};

/// Renders the windows of several conversations of one document: the whole document, in which only their
/// messages have changed. A document of which nothing changes is answered byte for byte.
///
/// # Errors
/// Where a window does not fit its conversation, where the conversations are not of one document, or
/// where they are of a session log, which holds more than a window (see [`Conversation::convert`]).
pub fn render_all(parts: &[(&Conversation, &Window<'_>)]) -> Result<String, FormatError> {
    let Some((first, _)) = parts.first() else {
        return Err(FormatError::Window(
            "there is no conversation to render".to_owned(),
        ));
    };
    let document = first.document();
    let mut edits = Edits::default();
    for (conversation, window) in parts {
        if !std::sync::Arc::ptr_eq(conversation.document(), document) {
            return Err(FormatError::Window(
                "the conversations are of different documents".to_owned(),
            ));
        }
        if conversation.is_whole(window) {
            continue;
        }
        conversation.edit_document(window, &mut edits)?;
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
    pub fn render(&self, window: &Window<'_>) -> Result<String, FormatError> {
        match self.layout {
            Layout::Log => self.convert(window, Format::OpenAiChat),
            Layout::List(_) | Layout::Lines(_) => render_all(&[(self, window)]),
        }
    }

    /// Renders a window in the conversation's own format, without what else its document holds.
    pub(super) fn render_alone(&self, window: &Window<'_>) -> Result<String, FormatError> {
        let Layout::List(body) = &self.layout else {
            return self.render(window);
        };
        let mut edits = Edits::default();
        if !self.is_whole(window) {
            self.edit_document(window, &mut edits)?;
        }
        Ok(edits.apply(self.document(), body.span.clone()))
    }

    /// Whether the window holds every message as it is.
    fn is_whole(&self, window: &Window<'_>) -> bool {
        let all_read = match &self.layout {
            Layout::List(body) => body.items.len() == self.system_items.len() + self.items.len(),
            Layout::Lines(_) | Layout::Log => true,
        };
        let all_kept = all_read
            && window.entries.len() == self.messages().len()
            && window
                .entries
                .iter()
                .enumerate()
                .all(|(at, place)| matches!(place, Place::Message(index) if *index == at));
        all_kept && self.new_note(window).is_none()
    }

    /// The note that the system prompt still lacks.
    pub(super) fn new_note<'a>(&self, window: &Window<'a>) -> Option<&'a str> {
        window
            .system_note
            .filter(|note| !self.system().is_some_and(|system| system.contains(note)))
    }

    fn edit_document(&self, window: &Window<'_>, edits: &mut Edits) -> Result<(), FormatError> {
        let note = self.new_note(window);
        let wires = self.wires(window)?;
        match &self.layout {
            Layout::List(body) => {
                let system = self.system_items_with(note.filter(|_| !self.note_in_member(body)));
                if let Some(note) = note.filter(|_| self.note_in_member(body)) {
                    self.edit_system_member(body, note, edits);
                }
                if let Some(list) = &body.list {
                    edits.replace(list.clone(), self.list(body, list, &system, &wires));
                }
            }
            Layout::Lines(span) => {
                let system = self.system_items_with(note);
                let lines: Vec<_> = system
                    .iter()
                    .map(Cow::as_ref)
                    .chain(
                        wires
                            .iter()
                            .flat_map(|wire| &wire.out)
                            .map(|item| self.text_of(item)),
                    )
                    .collect();
                edits.replace(span.clone(), lines.join("\n"));
            }
            Layout::Log => return Err(FormatError::NoWriter(self.format())),
        }
        Ok(())
    }

    /// The wire messages of the window, in the conversation's own format.
    fn wires(&self, window: &Window<'_>) -> Result<Vec<Wire>, FormatError> {
        let format = self.format();
        let mut wires = Vec::new();
        for slot in plan(self, window, format)? {
            match slot {
                Slot::Summary { role, text } => wires.push(Wire {
                    role: role.into(),
                    items: None,
                    out: vec![Item::new(new_message(format, role, &text))],
                }),
                Slot::Kept(kept) => {
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
            self.merge_roles(wires)
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
                format!("{{\"type\":\"{item_type}_output\",\"call_id\":{id},\"output\":{content}}}")
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
    fn merge_roles(&self, wires: Vec<Wire>) -> Vec<Wire> {
        let mut merged: Vec<Wire> = Vec::with_capacity(wires.len());
        for wire in wires {
            let Some(last) = merged.last_mut().filter(|last| last.role == wire.role) else {
                merged.push(wire);
                continue;
            };
            let were_neighbours = matches!(
                (&last.items, &wire.items),
                (Some(a), Some(b)) if a.end == b.start
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

    /// The list of messages with its brackets. What stood between two messages that still follow one
    /// another stays between them.
    fn list(
        &self,
        body: &Body,
        list: &Range<usize>,
        system: &[Cow<'_, str>],
        wires: &[Wire],
    ) -> String {
        let document = self.document();
        let was_leading = system.len().saturating_sub(self.system_items.len());
        // Not every item of the list need have been read.
        let place = |index: usize| {
            let start = self.items.get(index)?.outer.start;
            body.items
                .binary_search_by_key(&start, |item| item.start)
                .ok()
        };
        let mut all: Vec<(Option<usize>, Cow<'_, str>)> = system
            .iter()
            .enumerate()
            .map(|(at, text)| (at.checked_sub(was_leading), Cow::Borrowed(text.as_ref())))
            .collect();
        for item in wires.iter().flat_map(|wire| &wire.out) {
            let text = self.text_of(item);
            let origin = match item {
                Item::Original(index) => place(*index),
                Item::New { .. } => None,
            };
            // A bare string is a message only as the whole of `input`.
            let text = if text.starts_with('{') {
                Cow::Borrowed(text)
            } else {
                Cow::Owned(format!(
                    "{{\"type\":\"message\",\"role\":\"user\",\"content\":{text}}}"
                ))
            };
            all.push((origin, text));
        }
        let between = |at: usize| {
            let start = match at.checked_sub(1).and_then(|before| body.items.get(before)) {
                Some(before) => before.end,
                None => list.start + 1,
            };
            let end = body.items.get(at).map_or(start, |item| item.start);
            document.get(start..end).unwrap_or("")
        };
        let usual_gap = if body.items.len() > 1 {
            between(1)
        } else {
            ","
        };
        let usual_gap = usual_gap
            .get(usual_gap.find(',').map_or(0, |comma| comma + 1)..)
            .unwrap_or("");
        let mut out = String::from("[");
        out.push_str(
            if document
                .get(list.clone())
                .is_some_and(|text| text.starts_with('['))
            {
                between(0)
            } else {
                ""
            },
        );
        let mut previous = None;
        for (at, (origin, text)) in all.iter().enumerate() {
            if at > 0 {
                match origin {
                    Some(index) if *index > 0 && previous == Some(index - 1) => {
                        out.push_str(between(*index))
                    }
                    _ => {
                        out.push(',');
                        out.push_str(usual_gap);
                    }
                }
            }
            out.push_str(text);
            previous = *origin;
        }
        let tail = body
            .items
            .last()
            .and_then(|last| document.get(last.end..list.end - 1));
        out.push_str(tail.filter(|tail| tail.trim().is_empty()).unwrap_or(""));
        out.push(']');
        out
    }

    /// Whether the system prompt, and so a note, stands in a member of the body.
    fn note_in_member(&self, body: &Body) -> bool {
        match self.format() {
            Format::Anthropic => !body.is_bare && self.system_items.is_empty(),
            Format::OpenAiResponses => {
                body.system.is_some() || (self.system_items.is_empty() && !body.is_bare)
            }
            _ => false,
        }
    }

    /// The leading system messages with the note in the first; one is made where there is none.
    fn system_items_with(&self, note: Option<&str>) -> Vec<Cow<'_, str>> {
        let mut items: Vec<Cow<'_, str>> = self
            .system_items
            .iter()
            .map(|span| Cow::Borrowed(self.document().get(span.clone()).unwrap_or("")))
            .collect();
        let Some(note) = note else { return items };
        match items.first_mut() {
            Some(first) => {
                let raw = Raw::trusted(first, 0..first.len());
                let part = part_type(self.format(), "system");
                let mut edits = Edits::default();
                match raw.get("content") {
                    Some(content) => append_text(content, note, part, &mut edits),
                    None => super::splice::insert_member(raw, "content", &quote(note), &mut edits),
                }
                *first = Cow::Owned(edits.apply(first, 0..first.len()));
            }
            // A bare list of Anthropic's messages has no place for a system prompt.
            None if self.format() == Format::Anthropic => {}
            None => items.push(Cow::Owned(new_message(self.format(), "system", note))),
        }
        items
    }

    fn edit_system_member(&self, body: &Body, note: &str, edits: &mut Edits) {
        if let Some(span) = &body.system {
            append_text(
                Raw::trusted(self.document(), span.clone()),
                note,
                "text",
                edits,
            );
            return;
        }
        let key = if self.format() == Format::Anthropic {
            "system"
        } else {
            "instructions"
        };
        let start = skip_space(self.document(), body.span.start + 1);
        edits.replace(start..start, format!("\"{key}\":{},", quote(note)));
    }
}

/// Appends a paragraph to a text: to a string inside its quotes, to a list as one more part.
fn append_text(text: Raw<'_>, note: &str, part: &str, edits: &mut Edits) {
    let end = text.span().end - 1;
    match text.inner() {
        Some("") => edits.replace(text.span(), quote(note)),
        Some(_) => edits.replace(end..end, escape(&format!("\n\n{note}"))),
        None if text.is_array() => {
            let comma = if text.elements().next().is_some() {
                ","
            } else {
                ""
            };
            let part = text_part(part, &quote(note));
            let end = text.elements().last().map_or(end, |last| last.span().end);
            edits.replace(end..end, format!("{comma}{part}"));
        }
        None => edits.replace(text.span(), quote(note)),
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

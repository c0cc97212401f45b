//! Writes a conversation in another format.
//!
//! [`Conversation::convert`] is the entry point. It writes a request body for OpenAI chat,
//! Anthropic, Responses or Gemini, or a session log that Claude Code can resume. It then lets
//! `mend` fix whatever the target provider would reject, and reports these changes as notes.
//! [`Conversation::written_as`] does the same without fixes.
//!
//! Within a family of formats, such as Anthropic and Claude Code, blocks are copied byte for
//! byte. Between families each message is written anew from its views, and what only its own
//! provider can read is left out. The placement of summaries is the same as for rendering and
//! is decided in `plan`.

use super::conversation::Conversation;
use super::gemini;
use super::json::{Raw, quote};
use super::kept_view::{Turn, is_family, list, merged};
use super::log_writer::write_log;
use super::mend::{Notes, mend};
use super::parts::new_message;
use super::plan::{PlanEntry, PlannedMessage, RenderPlan, planned_messages};
use super::render::{call_output, is_result, tool_message};
use super::seal::sealed_summary;
use super::splice::splice;
use super::tools::function_in;
use super::{Format, FormatError};

/// The result of converting a conversation to another format, with a list of what the
/// conversion changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// The text of the new document.
    pub document: String,
    /// What was changed or left out so that the provider accepts the document. Each entry is
    /// one sentence for one kind of change, with a count.
    pub notes: Vec<String>,
}

impl Conversation {
    /// Renders a window as a new document: `openai`, `anthropic`, `responses`, `gemini`, or a log
    /// that Claude Code can resume. If the source is such a log, its earlier lines stay and the
    /// window follows as a compaction.
    ///
    /// Between formats of one family (Anthropic and Claude Code, Responses and Codex) blocks
    /// are copied byte for byte. Between families thinking is left out, because a provider
    /// accepts only its own. Anything else that the target provider would reject is fixed, see
    /// [`Converted::notes`].
    ///
    /// # Errors
    /// Fails if the window does not fit the conversation, if its provider compacted it and `to`
    /// is another provider's format, or if there is no writer for the format `to`.
    pub fn convert(&self, plan: &RenderPlan<'_>, to: Format) -> Result<Converted, FormatError> {
        let mut notes = Notes::default();
        let document = self.written_as(plan, to)?;
        let is_gemini = |format| format == Format::Gemini;
        if is_family(self.format()) != is_family(to)
            || is_gemini(self.format()) != is_gemini(to)
            || to == Format::OpenAiChat
        {
            self.note_what_stays_behind(plan, to, &mut notes);
        }
        if to == Format::ClaudeCode && self.format() != to && self.system().is_some() {
            notes.add(
                "the system prompt was left out: the log has no place for it",
                1,
            );
        }
        let document = match to {
            Format::OpenAiChat | Format::Anthropic | Format::OpenAiResponses | Format::Gemini => {
                mend(document, to, &mut notes)
            }
            _ => document,
        };
        Ok(Converted {
            document,
            notes: notes.sentences(),
        })
    }

    /// Counts the parts of messages that the format `to` cannot represent and adds them to the
    /// notes. Does nothing if the format stays the same.
    fn note_what_stays_behind(&self, plan: &RenderPlan<'_>, to: Format, notes: &mut Notes) {
        if self.format() == to {
            return;
        }
        let kept = plan.entries.iter().filter_map(|entry| match entry {
            PlanEntry::Message(index) | PlanEntry::Replaced { index, .. } => {
                self.messages().get(*index)
            }
            _ => None,
        });
        for message in kept {
            if message.has_thinking {
                notes.add("thinking was left out: a provider accepts only its own", 1);
            }
            if !message.opaque.is_empty() {
                notes.add(
                    "the work of a provider's own tool, or the title of a document, was left out",
                    1,
                );
            }
            let media = message.media.iter();
            let lost = media.filter(|media| self.media_part(media, to).is_none());
            notes.add(
                "a picture, document or recording that the format cannot express was left out",
                lost.count(),
            );
        }
    }

    /// Writes the window in another format without any fixes, message for message. The provider
    /// may reject the result. Fails for the same reasons as [`convert`](Self::convert).
    pub fn written_as(&self, plan: &RenderPlan<'_>, to: Format) -> Result<String, FormatError> {
        match to {
            _ if !self.is_own_request(to) && !self.compacted_items.is_empty() => {
                Err(FormatError::OnlyItsProvider(to))
            }
            Format::ClaudeCode => write_log(self, plan),
            _ if to == self.format() && to != Format::Codex => self.render_alone(plan),
            Format::OpenAiChat => self.to_chat(plan),
            Format::Anthropic => self.to_anthropic(plan),
            Format::OpenAiResponses => self.to_responses(plan),
            Format::Gemini => self.to_gemini(plan),
            _ => Err(FormatError::NoWriter(to)),
        }
    }

    /// Whether a request of the format `to` can hold this conversation's items unchanged.
    fn is_own_request(&self, to: Format) -> bool {
        to == self.format() || (self.format(), to) == (Format::Codex, Format::OpenAiResponses)
    }

    /// The text of the system prompt with the window's note after it. `None` if there is
    /// neither.
    fn system_with_note(&self, plan: &RenderPlan<'_>) -> Option<String> {
        match (self.system(), self.new_note(plan)) {
            (Some(system), Some(note)) if !system.is_empty() => Some(format!("{system}\n\n{note}")),
            (_, Some(note)) => Some(note.to_owned()),
            (system, None) => system.map(ToOwned::to_owned),
        }
    }

    fn to_chat(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        let mut messages: Vec<String> = self
            .system_with_note(plan)
            .iter()
            .map(|system| new_message(Format::OpenAiChat, "system", system))
            .collect();
        for out in planned_messages(self, plan, Format::OpenAiChat, &|item| item)? {
            match out {
                PlannedMessage::Summary { role, text } => {
                    messages.push(new_message(Format::OpenAiChat, role, &text))
                }
                PlannedMessage::Kept(kept) => {
                    for view in self.kept_views(&kept)? {
                        if view.is_hosted_alone() {
                            continue;
                        }
                        messages.push(self.chat_message(&view));
                        let stubs = view
                            .stubs
                            .iter()
                            .map(|(call, text)| tool_message(&call.id, &quote(text)));
                        messages.extend(stubs);
                    }
                }
            }
        }
        Ok(self.document_of(&[("messages", list(&messages))], Format::OpenAiChat))
    }

    fn to_responses(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        const TO: Format = Format::OpenAiResponses;
        let mut items: Vec<String> = self.compacted().map(str::to_owned).collect();
        for out in planned_messages(self, plan, TO, &|item| item)? {
            match out {
                PlannedMessage::Summary { role, text } => items.push(new_message(TO, role, &text)),
                // A rollout holds items of the Responses API, so they are copied. Its own
                // summaries carry no mark and are written anew.
                PlannedMessage::Kept(kept) if self.format() == Format::Codex => {
                    let summaries = kept.parts.iter().filter_map(|part| {
                        let message = self.messages().get(part.index)?;
                        message
                            .is_summary()
                            .then_some(part.text.unwrap_or(&message.text))
                    });
                    let summaries: Vec<_> = summaries.map(sealed_summary).collect();
                    if !summaries.is_empty() {
                        items.extend(summaries.iter().map(|text| new_message(TO, "user", text)));
                        continue;
                    }
                    let kept_items = splice(self, &kept)?;
                    items.extend(kept_items.iter().map(|item| self.text_of(item).to_owned()));
                    for view in self.kept_views(&kept)? {
                        items.extend(
                            view.stubs
                                .iter()
                                .map(|(call, text)| call_output(&call.id, &quote(text))),
                        );
                    }
                }
                PlannedMessage::Kept(kept) => {
                    for view in self.kept_views(&kept)? {
                        if !view.is_hosted_alone() {
                            self.push_response_items(&view, &mut items);
                        }
                    }
                }
            }
        }
        let mut members = Vec::new();
        if let Some(system) = self.system_with_note(plan) {
            members.push(("instructions", quote(&system)));
        }
        members.push(("input", list(&items)));
        Ok(self.document_of(&members, TO))
    }

    fn to_anthropic(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        let turns = merged(self.turns(plan, Format::Anthropic)?);
        let messages: Vec<_> = turns
            .iter()
            .map(|turn| {
                format!(
                    "{{\"role\":\"{}\",\"content\":{}}}",
                    turn.role,
                    list(&turn.blocks)
                )
            })
            .collect();
        let mut members = Vec::new();
        if let Some(system) = self.system_with_note(plan) {
            members.push(("system", quote(&system)));
        }
        members.push(("messages", list(&messages)));
        Ok(self.document_of(&members, Format::Anthropic))
    }

    fn to_gemini(&self, plan: &RenderPlan<'_>) -> Result<String, FormatError> {
        let mut turns = merged(self.turns(plan, Format::Gemini)?);
        let asks = |turn: &Turn| turn.role == "user" && !turn.blocks.iter().all(|it| is_result(it));
        // The calls of the turn in progress have to be signed, or those of another model marked.
        let begin = turns.iter().rposition(asks).unwrap_or(0);
        for turn in turns.iter_mut().skip(begin) {
            let call = |block: &&mut String| gemini::call_in(Raw::whole(block)).is_some();
            if let Some(block) = turn.blocks.iter_mut().find(call) {
                *block = gemini::signed(block);
            }
        }
        let contents: Vec<_> = turns
            .iter()
            .map(|turn| gemini::content(turn.role, &turn.blocks))
            .collect();
        let mut members = Vec::new();
        if let Some(system) = self.system_with_note(plan) {
            members.push(("systemInstruction", gemini::instruction(&system)));
        }
        members.push(("contents", list(&contents)));
        Ok(self.document_of(&members, Format::Gemini))
    }

    /// Builds a request body from these members. The model and the first list of tools are
    /// added if the conversation has them. The URL of a request names Gemini's model.
    fn document_of(&self, members: &[(&str, String)], to: Format) -> String {
        let model = self.model().filter(|_| to != Format::Gemini);
        let model = model.map(|model| ("model", quote(model)));
        let tools = self
            .tool_lists()
            .next()
            .map(|tools| ("tools", convert_tools(tools, to)));
        let members: Vec<_> = model
            .iter()
            .chain(members)
            .chain(&tools)
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("{{{}}}\n", members.join(","))
    }
}

/// Converts a list of tools to the form of `to`. If a tool has an unknown form, it stays as it
/// is.
fn convert_tools(tools: &str, to: Format) -> String {
    let raw = Raw::whole(tools);
    let (mut written, mut declared) = (Vec::new(), Vec::new());
    for entry in raw.elements() {
        let is_gemini = gemini::declarations(entry).is_some();
        for tool in gemini::declared(entry) {
            let is_function = tool.get_string("type").as_deref() == Some("function");
            let inner = tool
                .get("function")
                .filter(|inner| inner.is_object())
                .unwrap_or(tool);
            let schema = inner
                .get("input_schema")
                .or_else(|| gemini::member(inner, &gemini::SCHEMA));
            // A function without parameters may have no schema.
            let schema = match (schema, is_gemini) {
                (Some(schema), true) => Some(gemini::json_schema(schema)),
                (Some(schema), false) => Some(schema.text().to_owned()),
                (None, _) if is_gemini || (is_function && to == Format::Gemini) => {
                    Some("{\"type\":\"object\"}".to_owned())
                }
                (None, _) => None,
            };
            let (Some(name), Some(schema)) = (inner.get("name"), schema) else {
                written.push(tool.text().to_owned());
                continue;
            };
            let description = inner.get("description").map(Raw::text);
            let function = function_in(to, name.text(), description, &schema);
            match to {
                Format::Gemini => declared.push(function),
                _ => written.push(function),
            }
        }
    }
    if !declared.is_empty() {
        written.insert(
            0,
            format!("{{\"functionDeclarations\":{}}}", list(&declared)),
        );
    }
    list(&written)
}

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
use super::json::{Raw, escape, quote};
use super::log_writer::write_log;
use super::mend::{Notes, mend};
use super::message::{Call, Media, MediaKind, Message};
use super::plan::{KeptMessage, KeptPart, PlanEntry, PlannedMessage, RenderPlan, planned_messages};
use super::render::{blocks_of, call_output, is_result, tool_message, tool_result};
use super::seal::{sealed_summary, unsealed_notice};
use super::splice::{new_message, part_type, splice, text_part};
use super::views::Speaker;
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

/// Whether messages of this format are Anthropic messages, so that their blocks can be copied.
fn is_family(format: Format) -> bool {
    matches!(format, Format::Anthropic | Format::ClaudeCode)
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
            let call = |block: &&mut String| {
                gemini::call_in(Raw::trusted(block, 0..block.len())).is_some()
            };
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

    /// Returns what is kept of a wire message, view by view. If a summary shares the message,
    /// it joins the view beside it. Fails if new arguments name a call that does not exist.
    fn kept_views<'a>(&'a self, kept: &KeptMessage<'a>) -> Result<Vec<KeptView<'a>>, FormatError> {
        let mut views: Vec<KeptView<'a>> = Vec::new();
        let mut before: Vec<String> = kept.before.clone();
        let last = kept.parts.len().saturating_sub(1);
        for (at, part) in kept.parts.iter().enumerate() {
            let Some(message) = self.messages().get(part.index) else {
                continue;
            };
            let text = part.text.unwrap_or(&message.text);
            if message.is_summary() && last > 0 {
                match views.last_mut() {
                    Some(view) if at == last => view.after.push(sealed_summary(text)),
                    _ => before.push(sealed_summary(text)),
                }
                continue;
            }
            let stubs = kept
                .stubs
                .iter()
                .filter_map(|(call, text)| Some((message.calls.get(*call)?, *text)));
            let mut calls = Vec::new();
            for call in &message.calls {
                calls.push(match call.arguments.as_str() {
                    // Gemini leaves out the arguments of a call without any.
                    "" if self.format() == Format::Gemini => "{}",
                    arguments => arguments,
                });
            }
            for new in part.arguments {
                match calls.get_mut(new.index) {
                    Some(arguments) => *arguments = &new.arguments,
                    None => {
                        return Err(FormatError::Window(format!(
                            "it shortens call {} of message {}, but the message has {} calls",
                            new.index,
                            part.index,
                            calls.len()
                        )));
                    }
                }
            }
            let is_summary = message.is_summary();
            views.push(KeptView {
                message,
                text: if is_summary {
                    sealed_summary(text)
                } else {
                    text.to_owned()
                },
                // The new text of a result replaces all of it, including its images.
                keeps_media: part.text.is_none() || message.role != "tool",
                arguments: calls,
                // A tool result can hold no text but its own, so a summary waits for the next
                // view.
                before: if message.role == "tool" {
                    Vec::new()
                } else {
                    std::mem::take(&mut before)
                },
                after: Vec::new(),
                stubs: stubs.collect(),
            });
        }
        if let Some(view) = views.last_mut() {
            view.before.append(&mut before);
            view.after.extend(kept.after.iter().cloned());
        }
        Ok(views)
    }

    fn chat_message(&self, view: &KeptView<'_>) -> String {
        let message = view.message;
        let mut content = self.content(view, Format::OpenAiChat);
        if message.role == "tool" {
            return tool_message(message.tool_call_id.as_deref().unwrap_or(""), &content);
        }
        let calls: Vec<_> = message
            .calls
            .iter()
            .zip(&view.arguments)
            .map(|(call, arguments)| {
                format!(
                    "{{\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}",
                    quote(&call.id),
                    quote(&call.name),
                    quote(arguments)
                )
            })
            .collect();
        let mut tool_calls = String::new();
        if !calls.is_empty() {
            tool_calls = format!(",\"tool_calls\":{}", list(&calls));
            // A message that only calls tools has the content null in OpenAI's format.
            if content == "\"\"" {
                content = "null".to_owned();
            }
        }
        let mut role = quote(&message.role);
        if let Some(name) = &message.name {
            role.push_str(&format!(",\"name\":{}", quote(name)));
        }
        format!("{{\"role\":{role},\"content\":{content}{tool_calls}}}")
    }

    fn push_response_items(&self, view: &KeptView<'_>, items: &mut Vec<String>) {
        let message = view.message;
        let content = self.content(view, Format::OpenAiResponses);
        if message.role == "tool" {
            items.push(call_output(
                message.tool_call_id.as_deref().unwrap_or(""),
                &content,
            ));
            return;
        }
        // Calls are items of their own, so no empty message is needed before them.
        if content != "\"\"" || message.calls.is_empty() {
            items.push(format!(
                "{{\"type\":\"message\",\"role\":{},\"content\":{content}}}",
                quote(&message.role)
            ));
        }
        for (call, arguments) in message.calls.iter().zip(&view.arguments) {
            items.push(format!(
                "{{\"type\":\"function_call\",\"call_id\":{},\"name\":{},\"arguments\":{}}}",
                quote(&call.id),
                quote(&call.name),
                quote(arguments)
            ));
        }
        items.extend(
            view.stubs
                .iter()
                .map(|(call, text)| call_output(&call.id, &quote(text))),
        );
    }

    /// Returns the content of a view as JSON. It is a string, or a list of parts if the view
    /// has media or is followed by a summary.
    fn content(&self, view: &KeptView<'_>, to: Format) -> String {
        let part_type = part_type(to, &view.message.role);
        let media: Vec<_> = view
            .media()
            .filter_map(|media| self.media_part(media, to))
            .collect();
        if media.is_empty() && view.after.is_empty() {
            let mut text: String = view
                .before
                .iter()
                .map(|text| format!("{}\n\n", sealed_summary(text)))
                .collect();
            text.push_str(&view.text);
            return quote(&text);
        }
        let text = |text: &str| text_part(part_type, &quote(text));
        let parts: Vec<_> = view
            .before
            .iter()
            .map(|summary| text(&sealed_summary(summary)))
            .chain((!view.text.is_empty()).then(|| text(&view.text)))
            .chain(media)
            .chain(
                view.after
                    .iter()
                    .map(|summary| text(&sealed_summary(summary))),
            )
            .collect();
        list(&parts)
    }

    /// Returns an image, document or recording as a part in the format `to`. `None` if the
    /// format has no such part, or if the data is a reference to a stored file.
    fn media_part(&self, media: &Media, to: Format) -> Option<String> {
        let data = self.media_data(media);
        // A file that is stored at one provider cannot be referenced at another.
        let is_link = data.starts_with("http");
        if data.is_empty() || !(media.is_base64 || is_link) {
            return None;
        }
        let is_pdf = media
            .mime
            .as_deref()
            .is_none_or(|mime| mime == "application/pdf");
        let mime = media.mime.as_deref().unwrap_or(match media.kind {
            MediaKind::Image => "image/png",
            MediaKind::Document => "application/pdf",
            MediaKind::Audio if to == Format::Gemini => "audio/wav",
            MediaKind::Audio => "wav",
        });
        let mime = escape(mime);
        if to == Format::Gemini {
            let known = (media.mime.is_some() || media.is_base64).then_some(mime.as_str());
            return Some(gemini::media_part(known, data, media.is_base64));
        }
        let url = if media.is_base64 {
            format!("data:{mime};base64,{data}")
        } else {
            data.to_owned()
        };
        Some(match (to, media.kind) {
            (Format::Anthropic | Format::ClaudeCode, MediaKind::Audio) => return None,
            (Format::Anthropic | Format::ClaudeCode, MediaKind::Document)
                if media.is_base64 && !is_pdf =>
            {
                return self.text_document(media);
            }
            (Format::Anthropic | Format::ClaudeCode, kind) => {
                let kind = if kind == MediaKind::Image {
                    "image"
                } else {
                    "document"
                };
                let source = if media.is_base64 {
                    format!("{{\"type\":\"base64\",\"media_type\":\"{mime}\",\"data\":\"{data}\"}}")
                } else {
                    format!("{{\"type\":\"url\",\"url\":\"{data}\"}}")
                };
                format!("{{\"type\":\"{kind}\",\"source\":{source}}}")
            }
            (Format::OpenAiResponses, MediaKind::Image) => {
                format!("{{\"type\":\"input_image\",\"image_url\":\"{url}\"}}")
            }
            (Format::OpenAiResponses, MediaKind::Document) => {
                let key = if media.is_base64 {
                    "file_data"
                } else {
                    "file_url"
                };
                let name = match media.is_base64 {
                    true => format!("\"filename\":\"{}\",", file_name(&mime)),
                    false => String::new(),
                };
                format!("{{\"type\":\"input_file\",{name}\"{key}\":\"{url}\"}}")
            }
            (_, MediaKind::Image) => {
                format!("{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"{url}\"}}}}")
            }
            // Chat completions do not accept links to files, so the link becomes text.
            (_, MediaKind::Document) if !media.is_base64 => {
                text_part("text", &format!("\"[Document: {url}]\""))
            }
            (_, MediaKind::Document) => {
                let name = file_name(&mime);
                format!(
                    "{{\"type\":\"file\",\"file\":{{\"filename\":\"{name}\",\"file_data\":\"{url}\"}}}}"
                )
            }
            (_, MediaKind::Audio) => {
                let format = mime.rsplit('/').next().unwrap_or("wav");
                format!(
                    "{{\"type\":\"input_audio\",\"input_audio\":{{\"data\":\"{data}\",\"format\":\"{format}\"}}}}"
                )
            }
        })
    }

    /// Returns a document in Anthropic's form if its base64 decodes to text, and `None` for any
    /// other document.
    fn text_document(&self, media: &Media) -> Option<String> {
        let text = quote(&super::text_in(self, media)?);
        Some(format!(
            "{{\"type\":\"document\",\"source\":{{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":{text}}}}}"
        ))
    }

    /// Returns the window as messages of Anthropic's or Gemini's format, one for each wire message
    /// or view, before neighbours are merged. Empty messages are left out.
    pub(super) fn turns(
        &self,
        plan: &RenderPlan<'_>,
        to: Format,
    ) -> Result<Vec<Turn>, FormatError> {
        let is_family = is_family(self.format()) && is_family(to);
        let text = |text: &str| text_part(part_type(to, ""), &quote(text));
        let mut turns = Vec::new();
        let mut time_ms = None;
        for out in planned_messages(self, plan, to, &|item| item)? {
            let kept = match out {
                PlannedMessage::Summary {
                    role,
                    text: summary,
                } => {
                    turns.push(Turn {
                        role,
                        blocks: vec![text(&summary)],
                        is_summary: unsealed_notice(&summary).is_none(),
                        time_ms,
                    });
                    continue;
                }
                PlannedMessage::Kept(kept) => kept,
            };
            let views = self.kept_views(&kept)?;
            time_ms = views
                .iter()
                .find_map(|view| view.message.time_ms)
                .or(time_ms);
            let role = |message: &Message| {
                if message.role == "assistant" {
                    "assistant"
                } else {
                    "user"
                }
            };
            let first_item = views.first().map_or(0, |view| view.message.items.start);
            if is_family {
                let is_summary = self
                    .items
                    .get(first_item)
                    .is_some_and(|item| item.speaker == Speaker::Summary)
                    || views.iter().all(|view| view.message.is_summary());
                let mut blocks = Vec::new();
                if is_summary && kept.parts.iter().all(KeptPart::is_unchanged) && views.len() == 1 {
                    // A log's own summary carries no mark, and `splice` would add one.
                    blocks.extend(views.iter().map(|view| text(&view.text)));
                } else {
                    for item in splice(self, &kept)? {
                        blocks.extend(blocks_of(self.text_of(&item)));
                    }
                }
                let role = views.first().map_or("user", |view| role(view.message));
                turns.push(Turn {
                    role,
                    blocks,
                    is_summary,
                    time_ms,
                });
            } else {
                for view in &views {
                    turns.push(Turn {
                        role: role(view.message),
                        blocks: self.blocks(view, to),
                        is_summary: view.message.is_summary(),
                        time_ms,
                    });
                }
            }
            let stubs: Vec<_> = views
                .iter()
                .flat_map(|view| &view.stubs)
                .map(|(call, text)| match to {
                    Format::Gemini => gemini::result_part(Some(&call.id), &call.name, text, false),
                    _ => tool_result(&call.id, &quote(text), false),
                })
                .collect();
            if !stubs.is_empty() {
                turns.push(Turn {
                    role: "user",
                    blocks: stubs,
                    is_summary: false,
                    time_ms,
                });
            }
        }
        turns.retain(|turn| !turn.blocks.is_empty());
        Ok(turns)
    }

    /// Writes a view as content blocks of an Anthropic message or parts of a Gemini content. A tool
    /// result becomes one block with its text and media inside.
    fn blocks(&self, view: &KeptView<'_>, to: Format) -> Vec<String> {
        let message = view.message;
        let text = |text: &str| text_part(part_type(to, ""), &quote(text));
        let media = view.media().filter_map(|media| self.media_part(media, to));
        let has_text = !view.text.trim().is_empty();
        if message.role == "tool" {
            let id = message.tool_call_id.as_deref().unwrap_or("");
            let media: Vec<_> = media.collect();
            if to == Format::Gemini {
                let name = message.tool_name.as_deref().unwrap_or("");
                let result = gemini::result_part(Some(id), name, &view.text, message.is_error);
                return vec![gemini::with_media(&result, &media)];
            }
            let content = if media.is_empty() {
                quote(&view.text)
            } else {
                list(
                    &has_text
                        .then(|| text(&view.text))
                        .into_iter()
                        .chain(media)
                        .collect::<Vec<_>>(),
                )
            };
            return vec![tool_result(id, &content, message.is_error)];
        }
        view.before
            .iter()
            .map(|summary| text(&sealed_summary(summary)))
            .chain(has_text.then(|| text(&view.text)))
            .chain(media)
            .chain(
                message
                    .calls
                    .iter()
                    .zip(&view.arguments)
                    .map(|(call, arguments)| {
                        // Only an object is accepted here, so other arguments are wrapped in one.
                        let input = match Raw::parse(arguments) {
                            Ok(raw) if raw.is_object() => raw.text().to_owned(),
                            Ok(raw) => format!("{{\"arguments\":{}}}", raw.text()),
                            Err(_) if arguments.trim().is_empty() => "{}".to_owned(),
                            Err(_) => format!("{{\"arguments\":{}}}", quote(arguments)),
                        };
                        if to == Format::Gemini {
                            return gemini::call_part(call, &input);
                        }
                        format!(
                            "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{input}}}",
                            quote(&call.id),
                            quote(&call.name)
                        )
                    }),
            )
            .chain(
                view.after
                    .iter()
                    .map(|summary| text(&sealed_summary(summary))),
            )
            .collect()
    }
}

/// A file name for a document that has none, because OpenAI requires a name. Its extension
/// tells the type of the file.
fn file_name(mime: &str) -> &'static str {
    match mime {
        "application/pdf" => "document.pdf",
        "application/json" => "document.json",
        mime if mime.starts_with("text/") => "document.txt",
        _ => "document",
    }
}

/// A view that is kept, with its changes and the texts that join it.
struct KeptView<'a> {
    message: &'a Message,
    text: String,
    keeps_media: bool,
    arguments: Vec<&'a str>,
    before: Vec<String>,
    after: Vec<String>,
    /// Answers to its calls, as the call and the text.
    stubs: Vec<(&'a Call, &'a str)>,
}

impl KeptView<'_> {
    /// Whether the message holds only the work of a tool that the provider hosts, which no
    /// other provider can read.
    fn is_hosted_alone(&self) -> bool {
        let says =
            !self.text.trim().is_empty() || !self.before.is_empty() || !self.after.is_empty();
        let does = !self.arguments.is_empty() || self.message.role == "tool";
        !self.message.opaque.is_empty() && !says && !does && self.media().next().is_none()
    }

    fn media(&self) -> impl Iterator<Item = &Media> {
        self.message.media.iter().filter(|_| self.keeps_media)
    }
}

/// A message of Anthropic's or Gemini's format whose blocks are complete JSON values.
pub(super) struct Turn {
    pub(super) role: &'static str,
    pub(super) blocks: Vec<String>,
    pub(super) is_summary: bool,
    /// The time of this message, or else of an earlier one, in milliseconds since the Unix
    /// epoch.
    pub(super) time_ms: Option<i64>,
}

/// Merges adjacent user messages as Anthropic and Gemini require: all results of one message are in
/// the next one, before its text.
fn merged(turns: Vec<Turn>) -> Vec<Turn> {
    let mut merged: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        match merged.last_mut() {
            Some(last)
                if last.role == "user"
                    && turn.role == "user"
                    && last.blocks.iter().all(|block| is_result(block)) =>
            {
                last.blocks.extend(turn.blocks);
                last.blocks.sort_by_key(|block| !is_result(block));
            }
            _ => merged.push(turn),
        }
    }
    merged
}

pub(super) fn list(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

/// Converts a list of tools to the form of `to`. If a tool has an unknown form, it stays as it
/// is.
fn convert_tools(tools: &str, to: Format) -> String {
    let raw = Raw::trusted(tools, 0..tools.len());
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
            let description = inner
                .get("description")
                .map(|description| format!("\"description\":{},", description.text()))
                .unwrap_or_default();
            let name = name.text();
            written.push(match to {
                Format::Gemini => {
                    declared.push(format!("{{\"name\":{name},{description}\"parametersJsonSchema\":{schema}}}"));
                    continue;
                }
                Format::Anthropic => format!("{{\"name\":{name},{description}\"input_schema\":{schema}}}"),
                Format::OpenAiResponses => {
                    format!("{{\"type\":\"function\",\"name\":{name},{description}\"parameters\":{schema}}}")
                }
                _ => format!(
                    "{{\"type\":\"function\",\"function\":{{\"name\":{name},{description}\"parameters\":{schema}}}}}"
                ),
            });
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

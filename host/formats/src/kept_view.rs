//! The JSON of kept messages in another format, view by view.
//!
//! A [`KeptView`] is a view that a plan keeps, with its changes. `convert` makes documents of these,
//! and `log_writer` the lines of a log.

use super::conversation::{Conversation, text_in};
use super::gemini;
use super::json::{Raw, escape, quote};
use super::message::{Call, Media, MediaKind, Message};
use super::parts::{part_type, text_part};
use super::plan::{KeptMessage, KeptPart, PlannedMessage, RenderPlan, planned_messages};
use super::render::{blocks_of, call_output, is_result, tool_message, tool_result};
use super::seal::{sealed_summary, unsealed_notice};
use super::splice::splice;
use super::views::Speaker;
use super::{Format, FormatError};

/// Whether messages of this format are Anthropic messages, so that their blocks can be copied.
pub(super) fn is_family(format: Format) -> bool {
    matches!(format, Format::Anthropic | Format::ClaudeCode)
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
pub(super) struct KeptView<'a> {
    message: &'a Message,
    text: String,
    keeps_media: bool,
    arguments: Vec<&'a str>,
    before: Vec<String>,
    after: Vec<String>,
    /// Answers to its calls, as the call and the text.
    pub(super) stubs: Vec<(&'a Call, &'a str)>,
}

impl KeptView<'_> {
    /// Whether the message holds only the work of a tool that the provider hosts, which no
    /// other provider can read.
    pub(super) fn is_hosted_alone(&self) -> bool {
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
pub(super) fn merged(turns: Vec<Turn>) -> Vec<Turn> {
    let mut merged: Vec<Turn> = Vec::with_capacity(turns.len());
    // Whether the last message is the user's and has nothing but results.
    let mut only_results = false;
    for mut turn in turns {
        let is_user = turn.role == "user";
        let joins = only_results && is_user;
        only_results = is_user && turn.blocks.iter().all(|block| is_result(block));
        match merged.last_mut() {
            Some(last) if joins => {
                turn.blocks.sort_by_key(|block| !is_result(block));
                last.blocks.extend(turn.blocks);
            }
            _ => merged.push(turn),
        }
    }
    merged
}

pub(super) fn list(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

impl Conversation {
    /// Returns what is kept of a wire message, view by view. If a summary shares the message,
    /// it joins the view beside it. Fails if new arguments name a call that does not exist.
    pub(super) fn kept_views<'a>(
        &'a self,
        kept: &KeptMessage<'a>,
    ) -> Result<Vec<KeptView<'a>>, FormatError> {
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

    pub(super) fn chat_message(&self, view: &KeptView<'_>) -> String {
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

    pub(super) fn push_response_items(&self, view: &KeptView<'_>, items: &mut Vec<String>) {
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
        let summary = |summary: &String| text(&sealed_summary(summary));
        let parts: Vec<_> = (view.before.iter().map(summary))
            .chain((!view.text.is_empty()).then(|| text(&view.text)))
            .chain(media)
            .chain(view.after.iter().map(summary))
            .collect();
        list(&parts)
    }

    /// Returns an image, document or recording as a part in the format `to`. `None` if the
    /// format has no such part, or if the data is a reference to a stored file.
    pub(super) fn media_part(&self, media: &Media, to: Format) -> Option<String> {
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
        let text = quote(&text_in(self, media)?);
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
            let role = |message: &Message| match message.role.as_str() {
                "assistant" => "assistant",
                _ => "user",
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
        let call = |(call, arguments): (&Call, &&str)| {
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
        };
        let summary = |summary: &String| text(&sealed_summary(summary));
        (view.before.iter().map(summary))
            .chain(has_text.then(|| text(&view.text)))
            .chain(media)
            .chain(message.calls.iter().zip(&view.arguments).map(call))
            .chain(view.after.iter().map(summary))
            .collect()
    }
}

//! A document read: the conversation in it, and where each of its messages stands.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageView, ToolCallView, Usage};

use super::body::{Body, is_system, system_text};
use super::json::{JsonError, Raw, on_one_line, skip_space, value_end};
use super::logs::{self, Log, LoggedUsage};
use super::message::{Media, Message};
use super::plan::Kept;
use super::splice::splice;
use super::views::{WireItem, read_items};
use super::{Format, FormatError};

/// A conversation and the document it stands in, which is held once and never changed.
#[derive(Debug, Clone)]
pub struct Conversation {
    pub(super) document: Arc<str>,
    pub(super) format: Format,
    pub(super) container: Container,
    /// The messages at the head that are the system prompt.
    pub(super) system_items: Vec<Range<usize>>,
    pub(super) items: Vec<ItemSpan>,
    messages: Vec<Message>,
    /// The JSON of messages whose lines do not follow one another, by message.
    scattered: HashMap<usize, String>,
    system: Option<String>,
    tools: Option<Range<usize>>,
    model: Option<String>,
    usage: Vec<RecordedUsage>,
    warnings: Vec<String>,
}

/// How the messages stand in the document.
#[derive(Debug, Clone)]
pub(super) enum Container {
    /// In a list.
    List(Body),
    /// One a line; the span of the lines.
    Lines(Range<usize>),
    /// Among the events of a log.
    Log,
}

/// Where a wire item stands in the document, in bytes.
#[derive(Debug, Clone)]
pub(super) struct ItemSpan {
    /// With all that the document puts around it: the line of a log.
    pub(super) outer: Range<usize>,
    /// The message itself.
    pub(super) body: Range<usize>,
    pub(super) is_summary: bool,
    continues: bool,
    time_ms: Option<i64>,
}

impl ItemSpan {
    fn bare(span: Range<usize>) -> Self {
        Self {
            outer: span.clone(),
            body: span,
            is_summary: false,
            continues: false,
            time_ms: None,
        }
    }
}

/// What a provider reported for one assistant message of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedUsage {
    /// The message, by its index in [`Conversation::messages`].
    pub index: usize,
    /// The model that answered, where recorded.
    pub model: Option<String>,
    /// The tokens it reported.
    pub usage: Usage,
    /// When, in milliseconds since the Unix epoch, where recorded.
    pub time_ms: Option<i64>,
}

/// Reads a document: every conversation in it, in order.
///
/// # Errors
/// Where the document is no JSON, no format fits it (each that was tried, and why), or a message is not
/// one of its format.
pub fn read(
    document: impl Into<Arc<str>>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    let document: Arc<str> = document.into();
    match syntax(&document)? {
        Syntax::Value(span) => read_value(&document, span, format),
        Syntax::Lines { lines, warnings } => read_lines(&document, &lines, warnings, format),
    }
}

/// Reads a request body (`openai`, `responses` or `anthropic`) of which only the wire messages that
/// `wanted` names are parsed, by their index in [`WireBody::messages`](super::WireBody::messages). The
/// others are not among its messages, so they are in no window of it.
///
/// # Errors
/// As for [`read`].
pub fn read_part(
    body: impl Into<Arc<str>>,
    format: Format,
    wanted: impl Fn(usize) -> bool,
) -> Result<Conversation, FormatError> {
    let document = body.into();
    let start = skip_space(&document, 0);
    read_body(&document, start, Some(format), Vec::new(), &wanted)
}

/// The outer form of a document.
enum Syntax {
    Value(Range<usize>),
    Lines {
        lines: Vec<Range<usize>>,
        warnings: Vec<String>,
    },
}

fn syntax(document: &str) -> Result<Syntax, FormatError> {
    let fail = |error| FormatError::json(document, 0, error);
    // A byte order mark is no JSON, but Windows tools write it.
    let start = skip_space(
        document,
        if document.starts_with('\u{feff}') {
            3
        } else {
            0
        },
    );
    if start == document.len() {
        return Err(fail(JsonError {
            at: start,
            what: "the document is empty",
        }));
    }
    let end = value_end(document, start).map_err(fail)?;
    let next = skip_space(document, end);
    if next == document.len() {
        return Ok(Syntax::Value(start..end));
    }
    if !document.get(end..next).unwrap_or("").contains('\n') {
        return Err(fail(JsonError {
            at: next,
            what: "a new line or the end was expected here",
        }));
    }
    let (mut lines, mut warnings) = (Vec::new(), Vec::new());
    lines.push(start..end);
    let mut at = next;
    while at < document.len() {
        let line_end = memchr::memchr(b'\n', document.get(at..).unwrap_or("").as_bytes())
            .map_or(document.len(), |length| at + length);
        let line = document.get(at..line_end).unwrap_or("");
        let next = skip_space(document, line_end);
        match Raw::parse(line) {
            Ok(raw) => lines.push(at + raw.span().start..at + raw.span().end),
            Err(error) if next == document.len() && error.what != CUT_IS_NO_EXCUSE => {
                warnings.push(format!(
                    "the last line is cut off ({}); read up to there",
                    FormatError::json(document, at, error)
                ));
            }
            Err(error) => return Err(FormatError::json(document, at, error)),
        }
        at = next;
    }
    Ok(Syntax::Lines { lines, warnings })
}

/// What only a damaged line shows: a line that is cut off ends early, it never goes on too long.
const CUT_IS_NO_EXCUSE: &str = "something follows after the end of the value";

fn read_value(
    document: &Arc<str>,
    span: Range<usize>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    let raw = Raw::trusted(document, span.clone());
    let has_list = |key| raw.get(key).is_some_and(Raw::is_array);
    let detected = if raw.is_array() {
        None
    } else if has_list("simulations") {
        Some(Format::Tau2)
    } else if has_list("messages") {
        None
    } else if raw
        .get("input")
        .is_some_and(|input| input.is_array() || input.is_string())
    {
        Some(Format::OpenAiResponses)
    } else if has_list("history") {
        Some(Format::SweAgent)
    } else {
        let one_line = [span];
        return read_lines(document, &one_line, Vec::new(), format);
    };
    if !raw.is_array() && !raw.is_object() {
        return Err(unrecognised(raw));
    }
    match format.or(detected) {
        Some(Format::Tau2) => read_tau2(document, raw),
        Some(Format::ClaudeCode | Format::Codex) => {
            read_lines(document, &[span], Vec::new(), format)
        }
        Some(Format::MessageLines) if !raw.is_array() => {
            read_lines(document, &[span], Vec::new(), format)
        }
        wanted => Ok(vec![read_body(
            document,
            span.start,
            wanted,
            Vec::new(),
            &|_| true,
        )?]),
    }
}

/// A body with a list of messages, or the bare list, that starts at `at`.
fn read_body(
    document: &Arc<str>,
    at: usize,
    format: Option<Format>,
    warnings: Vec<String>,
    wanted: &dyn Fn(usize) -> bool,
) -> Result<Conversation, FormatError> {
    let body = Body::scan(document, at).map_err(|error| FormatError::json(document, 0, error))?;
    let format = format.unwrap_or_else(|| body.dialect(document));
    let list_key = match format {
        Format::OpenAiResponses => "input",
        Format::SweAgent => "history",
        _ => "messages",
    };
    if !body.is_bare && (body.list.is_none() || body.list_key != list_key) {
        return Err(FormatError::NotThis {
            format,
            what: format!("it has no list `{list_key}`"),
        });
    }
    let mut builder = Builder::new(document, format);
    builder.warnings = warnings;
    builder.tools = body.tools.clone();
    builder.model = body
        .model
        .clone()
        .and_then(|span| Raw::trusted(document, span).string())
        .map(Into::into);
    builder.system = body
        .system
        .clone()
        .and_then(|span| system_text(Raw::trusted(document, span)))
        .into_iter()
        .collect();
    let leading = body.leading_system(document);
    builder.items = body
        .items
        .iter()
        .enumerate()
        .filter(|(at, _)| at.checked_sub(leading).is_none_or(wanted))
        .map(|(_, span)| ItemSpan::bare(span.clone()))
        .collect();
    builder.finish(Container::List(body))
}

fn read_tau2(document: &Arc<str>, raw: Raw<'_>) -> Result<Vec<Conversation>, FormatError> {
    let not_this = |what: &str| FormatError::NotThis {
        format: Format::Tau2,
        what: what.to_owned(),
    };
    let Some(simulations) = raw.get("simulations").filter(|list| list.is_array()) else {
        return Err(not_this("it has no list `simulations`"));
    };
    simulations
        .elements()
        .map(|simulation| {
            if !simulation.is_object() {
                return Err(not_this("an entry of `simulations` is no object"));
            }
            read_body(
                document,
                simulation.span().start,
                Some(Format::Tau2),
                Vec::new(),
                &|_| true,
            )
        })
        .collect()
}

fn read_lines(
    document: &Arc<str>,
    lines: &[Range<usize>],
    warnings: Vec<String>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    let raws: Vec<_> = lines
        .iter()
        .map(|line| Raw::trusted(document, line.clone()))
        .collect();
    let detected = raws.iter().find_map(|line| line_kind(*line));
    let kind = match (format, detected) {
        (Some(Format::ClaudeCode), _) => LineKind::ClaudeCode,
        (Some(Format::Codex), _) => LineKind::Codex,
        (Some(Format::MessageLines), _) => LineKind::Message,
        (_, Some(LineKind::Body)) => LineKind::Body,
        (Some(format), _) => {
            return Err(FormatError::NotThis {
                format,
                what: "it holds one JSON object a line, none with a list of messages".to_owned(),
            });
        }
        (None, Some(kind)) => kind,
        (None, None) => {
            let first = raws.first().copied();
            return Err(first.map_or_else(|| unrecognised(Raw::trusted("{}", 0..2)), unrecognised));
        }
    };
    match kind {
        LineKind::Body => raws
            .iter()
            .enumerate()
            .map(|(at, line)| {
                let warnings = if at == 0 {
                    warnings.clone()
                } else {
                    Vec::new()
                };
                read_body(document, line.span().start, format, warnings, &|_| true)
            })
            .collect(),
        LineKind::Message => {
            // Of the formats with a message a line only Responses has items without a role.
            let is_item = |line: &Raw<'_>| line.get("role").is_none() && line.get("type").is_some();
            let format = match raws.iter().any(is_item) {
                true => Format::OpenAiResponses,
                false => Format::MessageLines,
            };
            let mut builder = Builder::new(document, format);
            builder.warnings = warnings;
            builder.items = lines.iter().cloned().map(ItemSpan::bare).collect();
            let start = lines.first().map_or(0, |line| line.start);
            let end = lines.last().map_or(0, |line| line.end);
            Ok(vec![builder.finish(Container::Lines(start..end))?])
        }
        LineKind::ClaudeCode => {
            let log = logs::claude_code(&raws);
            Ok(vec![read_log(document, Format::ClaudeCode, log, warnings)?])
        }
        LineKind::Codex => {
            let log = logs::codex(&raws);
            Ok(vec![read_log(document, Format::Codex, log, warnings)?])
        }
    }
}

fn read_log(
    document: &Arc<str>,
    format: Format,
    log: Log<'_>,
    mut warnings: Vec<String>,
) -> Result<Conversation, FormatError> {
    if log.items.is_empty() {
        let what = "none of its lines holds a message".to_owned();
        return Err(FormatError::NotThis { format, what });
    }
    let mut builder = Builder::new(document, format);
    warnings.extend(log.warnings);
    builder.warnings = warnings;
    builder.model = log.model;
    builder.system = log.system.and_then(system_text).into_iter().collect();
    builder.logged = log.usage;
    builder.items = log
        .items
        .into_iter()
        .map(|item| ItemSpan {
            outer: item.line.span(),
            body: item.body.span(),
            is_summary: item.is_summary,
            continues: item.continues,
            time_ms: item.time_ms,
        })
        .collect();
    builder.finish(Container::Log)
}

/// What a line of a document of lines is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Body,
    Message,
    ClaudeCode,
    Codex,
}

fn line_kind(line: Raw<'_>) -> Option<LineKind> {
    let has = |key| line.get(key).is_some();
    let kind = line.get("type").is_some_and(Raw::is_string);
    if line.get("messages").is_some_and(Raw::is_array)
        || line.get("input").is_some_and(Raw::is_array)
    {
        Some(LineKind::Body)
    } else if kind && has("payload") {
        Some(LineKind::Codex)
    } else if kind
        && ["uuid", "sessionId", "messageId", "leafUuid"]
            .into_iter()
            .any(has)
    {
        Some(LineKind::ClaudeCode)
    } else if line.get("role").is_some_and(Raw::is_string) {
        Some(LineKind::Message)
    } else {
        None
    }
}

/// Why nothing fits a document: what each format would have needed.
fn unrecognised(raw: Raw<'_>) -> FormatError {
    let found = if raw.is_object() {
        let keys: Vec<_> = raw
            .members()
            .map(|(key, _)| format!("`{key}`"))
            .take(6)
            .collect();
        format!(
            "an object with {}",
            if keys.is_empty() {
                "no members".to_owned()
            } else {
                keys.join(", ")
            }
        )
    } else {
        raw.kind().to_owned()
    };
    FormatError::Unrecognised {
        tried: vec![
            format!("found {found}"),
            "openai and anthropic need a list `messages`, or a bare list of messages".to_owned(),
            "responses needs `input`".to_owned(),
            "swe-agent needs a list `history`".to_owned(),
            "tau2 needs a list `simulations`".to_owned(),
            "claude-code needs lines with `type` and `uuid` or `sessionId`".to_owned(),
            "codex needs lines with `type` and `payload`".to_owned(),
            "lines needs a `role` in every line".to_owned(),
        ],
    }
}

/// A conversation being read.
struct Builder<'d> {
    document: &'d Arc<str>,
    format: Format,
    items: Vec<ItemSpan>,
    /// The texts of the system prompt, in order.
    system: Vec<String>,
    tools: Option<Range<usize>>,
    model: Option<String>,
    logged: Vec<(usize, LoggedUsage)>,
    warnings: Vec<String>,
}

impl<'d> Builder<'d> {
    fn new(document: &'d Arc<str>, format: Format) -> Self {
        Self {
            document,
            format,
            items: Vec::new(),
            system: Vec::new(),
            tools: None,
            model: None,
            logged: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn finish(mut self, container: Container) -> Result<Conversation, FormatError> {
        let document = self.document;
        let raw = |span: &Range<usize>| Raw::trusted(document, span.clone());
        let leading = self
            .items
            .iter()
            .take_while(|item| is_system(raw(&item.body)))
            .count();
        let items = self.items.split_off(leading);
        let system_items: Vec<_> = self.items.into_iter().map(|item| item.body).collect();
        self.system.extend(
            system_items
                .iter()
                .filter_map(|item| system_text(raw(item))),
        );
        let wire = items.iter().map(|item| WireItem {
            raw: raw(&item.body),
            continues: item.continues,
            is_summary: item.is_summary,
            time_ms: item.time_ms,
        });
        let messages =
            read_items(self.format, wire, &mut HashMap::new()).map_err(|error| match error {
                FormatError::Message { index, what } => FormatError::Message {
                    index: index + leading,
                    what,
                },
                other => other,
            })?;
        let mut conversation = Conversation {
            document: Arc::clone(document),
            format: self.format,
            container,
            system_items,
            items,
            messages,
            scattered: HashMap::new(),
            system: (!self.system.is_empty()).then(|| self.system.join("\n\n")),
            tools: self.tools,
            model: self.model,
            usage: Vec::new(),
            warnings: self.warnings,
        };
        conversation.scattered = conversation.gather_scattered();
        conversation.usage = conversation.gather_usage(&self.logged, leading);
        Ok(conversation)
    }
}

impl Conversation {
    /// The format it was read from.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The document it was read from.
    pub fn document(&self) -> &Arc<str> {
        &self.document
    }

    /// The model's name, where the document says; of a log the last.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The text of the system prompt.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// The JSON of the list of tools.
    pub(crate) fn tools_raw(&self) -> Option<&str> {
        self.document.get(self.tools.clone()?)
    }

    /// The messages, in order; the system prompt is not among them.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What a reader of this conversation should know: a cut line, a lost parent.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the providers reported, for each assistant message that has it.
    pub fn recorded_usage(&self) -> Vec<RecordedUsage> {
        self.usage.clone()
    }

    /// The tools of the results in it, by their calls' ids.
    fn tool_names(&self) -> HashMap<String, String> {
        let results = self.messages.iter().filter_map(|message| {
            Some((message.tool_call_id.clone()?, message.tool_name.clone()?))
        });
        results.collect()
    }

    /// The JSON of the wire item `index`: the message itself, without what a log puts around it.
    pub fn item(&self, index: usize) -> &str {
        self.items
            .get(index)
            .and_then(|item| self.document.get(item.body.clone()))
            .unwrap_or("")
    }

    /// The base64 data, URL or file id of an image or document of this conversation.
    pub fn media_data(&self, media: &Media) -> &str {
        self.item(media.item).get(media.data.clone()).unwrap_or("")
    }

    /// The JSON of the wire message that the message `index` stands in; several lines where a log
    /// splits it.
    pub fn raw(&self, index: usize) -> &str {
        if let Some(lines) = self.scattered.get(&index) {
            return lines;
        }
        let span = self.messages.get(index).and_then(|message| {
            let items = self.items.get(message.items.clone())?;
            Some(items.first()?.outer.start..items.last()?.outer.end)
        });
        span.and_then(|span| self.document.get(span)).unwrap_or("")
    }

    /// The views of all calls, in order, for [`views`](Self::views) to borrow.
    pub fn call_views(&self) -> Vec<ToolCallView<'_>> {
        self.messages
            .iter()
            .flat_map(|message| &message.calls)
            .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
            .collect()
    }

    /// The views of all messages under these ids. `calls` is what [`call_views`](Self::call_views)
    /// gave; a message for which `ids` has no id gets its place, from 1.
    pub fn views<'a>(
        &'a self,
        calls: &'a [ToolCallView<'a>],
        ids: &[MessageId],
    ) -> Vec<MessageView<'a>> {
        let mut next_call = 0;
        self.messages
            .iter()
            .enumerate()
            .map(|(at, message)| {
                let own = next_call..next_call + message.calls.len();
                next_call = own.end;
                let id = ids.get(at).copied().unwrap_or(MessageId(at as u64 + 1));
                message.view(id, self.raw(at), calls.get(own).unwrap_or(&[]))
            })
            .collect()
    }

    fn gather_scattered(&self) -> HashMap<usize, String> {
        let contiguous = |pair: &[ItemSpan]| match pair {
            [a, b] => self
                .document
                .get(a.outer.end..b.outer.start)
                .is_some_and(|between| between.trim().trim_start_matches(',').trim().is_empty()),
            _ => true,
        };
        let mut scattered = HashMap::new();
        for (at, message) in self.messages.iter().enumerate() {
            let items = self.items.get(message.items.clone()).unwrap_or(&[]);
            if !items.windows(2).all(contiguous) {
                let lines: Vec<_> = items
                    .iter()
                    .filter_map(|item| self.document.get(item.outer.clone()))
                    .collect();
                scattered.insert(at, lines.join("\n"));
            }
        }
        scattered
    }

    /// Usage inside the messages (once for a message, though every line of it repeats it), and usage
    /// that a log puts beside them, which is the last assistant message's before it.
    fn gather_usage(&self, logged: &[(usize, LoggedUsage)], leading: usize) -> Vec<RecordedUsage> {
        let mut found = Vec::new();
        let mut logged = logged.iter().peekable();
        let mut last_assistant = None;
        let mut flush = |through: usize, last: Option<usize>, found: &mut Vec<RecordedUsage>| {
            while let Some((_, entry)) = logged.next_if(|(items, _)| *items <= through + leading) {
                let Some(index) = last else { continue };
                found.push(RecordedUsage {
                    index,
                    model: entry.model.clone(),
                    usage: entry.usage,
                    time_ms: entry.time_ms,
                });
            }
        };
        for (index, message) in self.messages.iter().enumerate() {
            flush(message.items.start, last_assistant, &mut found);
            if message.role != "assistant" || message.is_summary() {
                continue;
            }
            last_assistant = Some(index);
            // The last line has the final count of the answer.
            let recorded = message.items.clone().rev().find_map(|item| {
                let span = self.items.get(item)?.body.clone();
                let raw = Raw::trusted(&self.document, span);
                let usage = logs::usage(raw.get("usage").filter(|usage| usage.is_object())?)?;
                Some((raw.get_string("model"), usage))
            });
            // Nobody answers for nothing: zeros are what a writer puts that does not know.
            let recorded = recorded.filter(|(_, usage)| *usage != Usage::default());
            if let Some((model, usage)) = recorded {
                found.push(RecordedUsage {
                    index,
                    model: model.or_else(|| self.model.clone()),
                    usage,
                    time_ms: message.time_ms,
                });
            }
        }
        flush(usize::MAX - leading, last_assistant, &mut found);
        found
    }
}

/// Reads wire messages on their own, one after another: what a session does with those that are new. The
/// tools of results whose calls came earlier are found through `earlier`, which maps a call's id to its
/// tool's name and is brought up to date.
///
/// # Errors
/// Which of the messages is not one of this format, and why.
pub(crate) fn parse_messages_after(
    format: Format,
    raw: &[&str],
    earlier: &mut HashMap<String, String>,
) -> Result<Vec<Message>, FormatError> {
    let mut items = Vec::with_capacity(raw.len());
    for (index, text) in raw.iter().enumerate() {
        let raw = Raw::parse(text).map_err(|error| {
            FormatError::message(
                index,
                format!("it is not valid JSON at byte {}: {}", error.at, error.what),
            )
        })?;
        items.push(WireItem {
            raw,
            continues: false,
            is_summary: false,
            time_ms: None,
        });
    }
    read_items(format, items.into_iter(), earlier)
}

/// Reads wire messages on their own, as [`parse_messages_after`] does, into a conversation that holds
/// nothing else: their bytes, one a line, and no system prompt (a message of the role `system` is one of
/// its messages, even the first).
///
/// # Errors
/// Which of the messages is not one of this format, and why.
pub(crate) fn excerpt(
    format: Format,
    raw: &[&str],
    earlier: &mut HashMap<String, String>,
) -> Result<Conversation, FormatError> {
    let messages = parse_messages_after(format, raw, earlier)?;
    let mut document = String::with_capacity(raw.iter().map(|raw| raw.len() + 1).sum());
    let mut items = Vec::with_capacity(raw.len());
    for raw in raw {
        let start = document.len();
        document.push_str(raw);
        items.push(ItemSpan::bare(start..document.len()));
        document.push('\n');
    }
    let end = document.len();
    Ok(Conversation {
        document: document.into(),
        format,
        container: Container::Lines(0..end),
        system_items: Vec::new(),
        items,
        messages,
        scattered: HashMap::new(),
        system: None,
        tools: None,
        model: None,
        usage: Vec::new(),
        warnings: Vec::new(),
    })
}

/// The message `index` of a conversation in a wire message of its own, where a summary shares the one that it
/// stands in; with its index there.
pub(crate) fn words_alone(
    conversation: &Conversation,
    index: usize,
) -> Option<(Conversation, usize)> {
    let message = conversation.messages.get(index)?;
    let shares = |other: &&Message| other.items == message.items;
    let shared = conversation.messages.iter().filter(shares);
    if message.is_summary() || !shared.clone().any(Message::is_summary) {
        return None;
    }
    let mut parts = Vec::new();
    for (at, other) in conversation.messages.iter().enumerate() {
        if other.items == message.items && !other.is_summary() {
            parts.push(at);
        }
    }
    let place = parts.iter().position(|at| *at == index)?;
    let kept = Kept::of(&parts);
    let items = splice(conversation, &kept).ok()?;
    let texts: Vec<&str> = items
        .iter()
        .map(|item| conversation.text_of(item))
        .collect();
    let mut names = conversation.tool_names();
    let alone = excerpt(conversation.format, &texts, &mut names).ok()?;
    Some((alone, place))
}

/// Reads wire messages on their own, as where nothing came earlier.
///
/// # Errors
/// Which of the messages is not one of this format, and why.
pub fn parse_messages(format: Format, raw: &[&str]) -> Result<Vec<Message>, FormatError> {
    parse_messages_after(format, raw, &mut HashMap::new())
}

/// A message as [`Conversation::raw`] gives it, its wire items one a line: what [`read`] takes as a document.
/// Whitespace between them, and the commas of a list, are left out; a line break within one becomes a space.
///
/// ```
/// let raw = "{\"type\": \"reasoning\"},\n {\"type\":\n\"function_call\"}";
/// let lines = contexture::formats::item_lines(raw);
/// assert_eq!(lines, ["{\"type\": \"reasoning\"}", "{\"type\": \"function_call\"}"]);
/// ```
pub fn item_lines(raw: &str) -> Vec<Cow<'_, str>> {
    let mut lines = Vec::new();
    let mut at = skip_space(raw, 0);
    while let Ok(end) = value_end(raw, at) {
        lines.push(on_one_line(&raw[at..end]));
        at = skip_space(raw, end);
        if raw[at..].starts_with(',') {
            at = skip_space(raw, at + 1);
        }
    }
    let rest = raw[at..].trim();
    if !rest.is_empty() {
        lines.push(on_one_line(rest));
    }
    lines
}

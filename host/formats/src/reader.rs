//! Reads a document: detects its format and builds the conversations in it.
//!
//! [`read`] is the entry point. It first determines the syntax of the document, which is either
//! one JSON value or one value per line, and then the format, from members that only one format
//! has. Documents of other programs are recognised and rejected with their name. [`Builder`]
//! turns the items that were found into a [`Conversation`].
//!
//! A session log may be damaged, because its program can crash while it writes. The reader
//! skips lines that it cannot read and reports them as warnings. Every other document must be
//! valid, except that a last line may be cut off. How the lines of a log form a conversation is
//! left to the `logs` modules.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::anatomy::time_of;
use super::body::{BodySpans, LIST_KEYS, is_setup, message_dialect, system_text};
use super::builder::Builder;
use super::conversation::{Container, Conversation};
use super::foreign;
use super::item_span::ItemSpan;
use super::json::{JsonError, Raw, skip_space, value_end};
use super::logs::{self, Log};
use super::parsed_log::ParsedLog;
use super::{Format, FormatError};

/// Reads every conversation of a document, in order. A document holds several if it has one
/// request body per line, or a list of bodies. If `format` is `None`, the format is detected.
///
/// In a session log, lines that cannot be read are skipped. If the last line of a document of
/// lines is cut off, it is skipped too. A warning names these lines, and
/// [`Conversation::damage`] returns the first one. Two values on one line of a log are read as
/// two lines.
///
/// # Errors
/// Fails if the document is not JSON, if no format fits it, or if a message does not follow the
/// format. If no format fits, the error lists what each format would have needed.
pub fn read(
    document: impl Into<Arc<str>>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    read_text(&document.into(), format, &[])
}

/// Like [`read`], for bytes that may not be valid UTF-8, for example because a log was cut
/// inside a character. In a session log, lines that are not valid UTF-8 are skipped like other
/// unreadable lines. The document keeps these lines with U+FFFD in place of the invalid bytes.
///
/// # Errors
/// Fails for the same reasons as [`read`], or if the document is compressed, or neither UTF-8 nor a
/// session log.
pub fn read_bytes(
    document: Vec<u8>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    if let Some((_, what)) = ENCODED
        .iter()
        .find(|(start, _)| document.starts_with(start))
    {
        return Err(FormatError::Encoded { what });
    }
    let bytes = match String::from_utf8(document) {
        Ok(text) => return read(text, format),
        Err(error) => error.into_bytes(),
    };
    let mut text = String::with_capacity(bytes.len());
    let mut not_text: Vec<(usize, usize)> = Vec::new();
    let (mut at, mut line) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        text.push_str(valid);
        at += valid.len();
        line += newlines_in(valid.as_bytes());
        if !chunk.invalid().is_empty() {
            // One entry per line is enough, because the whole line is skipped.
            if not_text.last().is_none_or(|(last, _)| *last != line) {
                not_text.push((line, at));
            }
            text.push(char::REPLACEMENT_CHARACTER);
            at += chunk.invalid().len();
        }
    }
    read_text(&text.into(), format, &not_text)
}

/// The first bytes of documents that have to be unpacked or converted. PowerShell writes UTF-16.
const ENCODED: [(&[u8], &str); 9] = [
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
    (b"{\0", "UTF-16"),
    (b"[\0", "UTF-16"),
    (b"\0{", "UTF-16"),
    (b"\0[", "UTF-16"),
];

/// Reads a document in which some lines are not UTF-8. Each such line is given as its index and
/// the offset of its first invalid byte in the original.
fn read_text(
    document: &Arc<str>,
    format: Option<Format>,
    not_text: &[(usize, usize)],
) -> Result<Vec<Conversation>, FormatError> {
    match syntax(document, not_text)? {
        Syntax::Value(span) => match not_text.first() {
            Some((_, at)) => Err(FormatError::NotText { at: *at }),
            None => read_value(document, span, format),
        },
        Syntax::Lines(lines) => read_lines(document, lines, format),
    }
}

/// The outer syntax of a document: a single JSON value, or one value per line.
enum Syntax {
    Value(Range<usize>),
    Lines(Lines),
}

/// The number of unreadable lines that a warning names after the first one. Further ones are
/// only counted.
const NAMED_LINES: usize = 9;

/// The number of attempts to find another line inside an unreadable one. The bound keeps a long
/// damaged line from taking quadratic time.
const TRIES: usize = 16;

/// The first characters of every line of a log.
const OBJECT: &str = "{\"";

/// A document with one JSON value per line, and the defects that were found in it.
#[derive(Default)]
struct Lines {
    values: Vec<Range<usize>>,
    /// The first place at which a line is not exactly one value. Only a log may have such
    /// places.
    damage: Option<FormatError>,
    /// The numbers, from 1, of the lines that hold something other than values.
    unread: Vec<usize>,
    /// The error of the last line, if it merely ends too early.
    cut: Option<FormatError>,
    /// The list that contains the values, if they are elements of a list rather than lines.
    whole: Option<Range<usize>>,
}

impl Lines {
    fn one(value: Range<usize>) -> Self {
        Self {
            values: vec![value],
            ..Self::default()
        }
    }

    /// Reads the values of a line that is not a single value. After a crash, lines can run
    /// together, or follow NUL bytes or a fragment of another line. After such a fragment, only
    /// values that a log would write count.
    fn take_values(&mut self, line: &str, starts: usize, number: usize) {
        let mut at = skip_space(line, 0);
        let (mut is_whole, mut tried) = (true, 0);
        while at < line.len() {
            let nulls = line.get(at..).unwrap_or("");
            let nulls = nulls.len() - nulls.trim_start_matches('\0').len();
            if nulls > 0 {
                at = skip_space(line, at + nulls);
                continue;
            }
            let error = match line.as_bytes().get(at) {
                Some(b'{') => match value_end(line, at) {
                    Ok(end) => {
                        let value = at..end;
                        let is_line = is_whole
                            || line_kind(Raw::trusted(line, value.clone()))
                                .is_some_and(LineKind::is_log);
                        if is_line {
                            self.values.push(starts + value.start..starts + value.end);
                        }
                        at = skip_space(line, end);
                        continue;
                    }
                    Err(error) => error.at,
                },
                _ => at,
            };
            is_whole = false;
            // The attempts are bounded, because a line can contain any number of places that
            // look like an object.
            tried += 1;
            if tried > TRIES {
                break;
            }
            // The other line begins at the place at which this one stops being JSON, or later.
            // If this one merely ends too early, the other line may have been parsed as one of
            // its values.
            let part = |from: usize, to: usize| line.get(from..to).unwrap_or("");
            let find = |from: usize| {
                part(from, line.len())
                    .find(OBJECT)
                    .map(|found| from + found)
            };
            let near = (error + "fals{\"".len()).min(line.len());
            let near = (near..line.len())
                .find(|end| line.is_char_boundary(*end))
                .unwrap_or(line.len());
            let next = match error == line.len() || error == at {
                true => find(at + 1),
                false => part(at + 1, near)
                    .rfind(OBJECT)
                    .map(|found| at + 1 + found)
                    .filter(|_| tried % 2 == 1)
                    .or_else(|| find(near)),
            };
            let Some(next) = next else {
                break;
            };
            at = next;
        }
        if !is_whole {
            self.unread.push(number);
        }
    }

    /// The warnings for people about lines that were skipped or cut off.
    fn warnings(&self) -> Vec<String> {
        let unread = (self.damage.as_ref()).and_then(|damage| unread_lines(&self.unread, damage));
        let cut = (self.cut.as_ref())
            .map(|cut| format!("the last line is cut off ({cut}); read up to there"));
        unread.into_iter().chain(cut).collect()
    }
}

/// Names the unreadable lines of a log in one sentence, with the reason for the first one.
/// `None` if there are no such lines.
fn unread_lines(lines: &[usize], damage: &FormatError) -> Option<String> {
    let (first, more) = lines.split_first()?;
    let named = more.iter().take(NAMED_LINES);
    let mut rest: String = named.map(|line| format!(", {line}")).collect();
    if more.len() > NAMED_LINES {
        rest.push_str(&format!(" and {} more", more.len() - NAMED_LINES));
    }
    let s = if more.is_empty() { "" } else { "s" };
    Some(format!(
        "what cannot be read in line{s} {first}{rest} of the log is left out of the conversation, but stays in \
         the log ({damage})"
    ))
}

/// Determines the syntax of a document and the place of each value. A text that starts with a
/// value but continues on the same line is treated as damaged lines.
fn syntax(document: &str, not_text: &[(usize, usize)]) -> Result<Syntax, FormatError> {
    let fail = |error| FormatError::json(document, 0, error);
    // A byte order mark is not JSON, but Windows tools write one.
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
    let mut lines = Lines::default();
    let mut at = start;
    match value_end(document, start) {
        Ok(end) => {
            let next = skip_space(document, end);
            if next == document.len() {
                return Ok(Syntax::Value(start..end));
            }
            if document.get(end..next).unwrap_or("").contains('\n') {
                lines.values.push(start..end);
                at = next;
            } else {
                lines.damage = Some(fail(JsonError {
                    at: next,
                    what: "a new line or the end was expected here",
                }));
            }
        }
        Err(error) => {
            lines.damage = Some(match document.as_bytes().get(start) {
                Some(b'{' | b'[') => fail(error),
                _ => FormatError::NotJson,
            });
        }
    }
    let mut number = 1 + newlines(document, 0..at);
    let mut not_text = not_text.iter().peekable();
    if let Some((line, byte)) = not_text.peek()
        && *line + 1 < number
    {
        // The first line is a value only because U+FFFD replaced its invalid bytes.
        lines.values.clear();
        lines.unread.push(line + 1);
        lines
            .damage
            .get_or_insert(FormatError::NotText { at: *byte });
        not_text.next();
    }
    while at < document.len() {
        let line_end = memchr::memchr(b'\n', document.get(at..).unwrap_or("").as_bytes())
            .map_or(document.len(), |length| at + length);
        let line = document.get(at..line_end).unwrap_or("");
        let next = skip_space(document, line_end);
        let broken = not_text.next_if(|(line, _)| *line + 1 == number);
        match Raw::parse(line) {
            Ok(_) if broken.is_some() => {
                let damage = broken.map_or(FormatError::NotJson, |(_, at)| FormatError::NotText {
                    at: *at,
                });
                lines.damage.get_or_insert(damage);
                lines.unread.push(number);
            }
            Ok(raw) => lines
                .values
                .push(at + raw.span().start..at + raw.span().end),
            Err(error)
                if next == document.len()
                    && error.what != CUT_IS_NO_EXCUSE
                    && !lines.values.is_empty() =>
            {
                // A complete line may follow a fragment or NUL bytes.
                let (values, unread) = (lines.values.len(), lines.unread.len());
                lines.take_values(line, at, number);
                let error = FormatError::json(document, at, error);
                match lines.values.len() > values {
                    true => {
                        lines.damage.get_or_insert(error);
                    }
                    false => {
                        lines.unread.truncate(unread);
                        lines.cut = Some(error);
                    }
                }
            }
            Err(error) => {
                let damage = || FormatError::json(document, at, error);
                lines.damage.get_or_insert_with(damage);
                lines.take_values(line, at, number);
            }
        }
        number += newlines(document, at..next);
        at = next;
    }
    match lines.damage {
        Some(damage) if lines.values.is_empty() => Err(damage),
        _ => Ok(Syntax::Lines(lines)),
    }
}

fn newlines(document: &str, span: Range<usize>) -> usize {
    newlines_in(document.get(span).unwrap_or("").as_bytes())
}

fn newlines_in(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// The error of a line with extra text after its value. A line that is merely cut off ends
/// early instead, which is tolerated at the end of a document.
const CUT_IS_NO_EXCUSE: &str = "unexpected text follows the end of the value";

/// Reads a document that is one JSON value. If the value is neither a body nor a list, it is
/// read as the only line of a document of lines.
fn read_value(
    document: &Arc<str>,
    span: Range<usize>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    let raw = Raw::trusted(document, span.clone());
    // Each `get` crosses the whole document, so the members are collected once.
    let members: Vec<_> = raw.members().collect();
    let get =
        |key| (members.iter().rev()).find_map(|(name, value)| (name == key).then_some(*value));
    let has_list = |key| get(key).is_some_and(Raw::is_array);
    if format.is_none()
        && let Some(what) = foreign::document(raw, &members)
    {
        return Err(FormatError::Foreign { what });
    }
    let detected = if raw.is_array() {
        None
    } else if has_list("simulations") {
        Some(Format::Tau2)
    } else if has_list("messages") {
        None
    } else if get("input").is_some_and(|input| input.is_array() || input.is_string()) {
        Some(Format::OpenAiResponses)
    } else if has_list("contents") {
        Some(Format::Gemini)
    } else if has_list("history") {
        Some(Format::SweAgent)
    } else {
        return read_lines(document, Lines::one(span), format);
    };
    if !raw.is_array() && !raw.is_object() {
        return Err(unrecognised(raw));
    }
    let is_body = |value: Raw<'_>| {
        let mut lists = LIST_KEYS.into_iter();
        value.is_object() && lists.any(|key| value.get(key).is_some_and(Raw::is_array))
    };
    // The first element decides. A list that mixes bodies and messages fails to read either
    // way.
    if raw.is_array() && raw.elements().next().is_some_and(is_body) {
        return read_bodies(document, raw, format);
    }
    let is_event = |value| line_kind(value) == Some(LineKind::Event);
    // A log may begin with lines of which no kind is known. A message with an id is no line of it.
    let is_log = |value: Raw<'_>| {
        value.get("role").is_none() && line_kind(value).is_some_and(LineKind::is_log)
    };
    let is_lines = raw.is_array()
        && match format {
            Some(Format::ClaudeCode | Format::Codex) => raw.elements().any(is_log),
            Some(Format::MessageLines) => raw.elements().next().is_some_and(is_event),
            Some(_) => false,
            None => {
                raw.elements().next().is_some_and(is_event)
                    || raw.elements().take(foreign::LOOKED_AT).any(is_log)
            }
        };
    if is_lines {
        let lines = Lines {
            values: raw.elements().map(Raw::span).collect(),
            whole: Some(span),
            ..Lines::default()
        };
        return read_lines(document, lines, format);
    }
    match format.or(detected) {
        Some(Format::Tau2) => read_tau2(document, raw),
        Some(Format::ClaudeCode | Format::Codex) => read_lines(document, Lines::one(span), format),
        Some(Format::MessageLines) if !raw.is_array() => {
            read_lines(document, Lines::one(span), format)
        }
        wanted => Ok(vec![read_body(document, span.start, wanted, Vec::new())?]),
    }
}

/// Reads the body with a list of messages, or the bare list, that starts at byte `at`.
fn read_body(
    document: &Arc<str>,
    at: usize,
    format: Option<Format>,
    warnings: Vec<String>,
) -> Result<Conversation, FormatError> {
    let mut body =
        BodySpans::scan(document, at).map_err(|error| FormatError::json(document, 0, error))?;
    let format = format.unwrap_or_else(|| body.dialect(document));
    let list_key = format.list_key();
    // Items that only set a conversation up are no conversation.
    let is_setup = |item: &Range<usize>| is_setup(Raw::trusted(document, item.clone()));
    if body.is_bare && !body.items.is_empty() && body.items.iter().all(is_setup) {
        return Err(unrecognised(Raw::trusted(document, body.span)));
    }
    if !body.is_bare && (body.list.is_none() || body.list_key != list_key) {
        let what = format!("it has no list `{list_key}`");
        return Err(FormatError::NotThis { format, what });
    }
    let mut builder = Builder::new(document, format);
    builder.warnings = warnings;
    builder.tools = body.tools;
    builder.model = body
        .model
        .and_then(|span| Raw::trusted(document, span).string())
        .map(Into::into);
    builder.system = body
        .system
        .and_then(|span| system_text(Raw::trusted(document, span)))
        .into_iter()
        .collect();
    builder.items = body.items.into_iter().map(ItemSpan::bare).collect();
    builder.finish(Container::List(body.span))
}

fn read_tau2(document: &Arc<str>, raw: Raw<'_>) -> Result<Vec<Conversation>, FormatError> {
    let Some(simulations) = raw.get("simulations").filter(|list| list.is_array()) else {
        let (format, what) = (Format::Tau2, "it has no list `simulations`".to_owned());
        return Err(FormatError::NotThis { format, what });
    };
    read_bodies(document, simulations, Some(Format::Tau2))
}

/// Reads a list of bodies, each of which is one conversation. Fails if an entry is not an
/// object.
fn read_bodies(
    document: &Arc<str>,
    list: Raw<'_>,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    list.elements()
        .map(|body| match body.is_object() {
            true => read_body(document, body.span().start, format, Vec::new()),
            false => Err(FormatError::NotThis {
                format: format.unwrap_or(Format::OpenAiChat),
                what: "an entry of its list of conversations is not an object".to_owned(),
            }),
        })
        .collect()
}

/// Reads a document of lines. If no format was named, the first line that fits a format
/// decides. Damage is only tolerated in a session log, and only if more of its lines are
/// readable than damaged.
fn read_lines(
    document: &Arc<str>,
    lines: Lines,
    format: Option<Format>,
) -> Result<Vec<Conversation>, FormatError> {
    let mut warnings = lines.warnings();
    let Lines {
        values,
        damage,
        unread,
        cut,
        whole,
    } = lines;
    let raws: Vec<_> = values
        .iter()
        .map(|line| Raw::trusted(document, line.clone()))
        .collect();
    if format.is_none()
        && let Some(what) = foreign::lines(&raws)
    {
        return Err(FormatError::Foreign { what });
    }
    let detected = raws.iter().find_map(|line| line_kind(*line));
    let is_log = match format {
        Some(format) => matches!(format, Format::ClaudeCode | Format::Codex),
        None => detected.is_some_and(LineKind::is_log),
    };
    // If most of the document is unreadable, it is not a damaged log but something else. The
    // error then says more than the few lines that can be read.
    let damage = match damage {
        Some(damage) if !is_log || unread.len() >= values.len() => return Err(damage),
        damage => damage.or(cut),
    };
    let is_other = |detected: LineKind| match format {
        Some(Format::ClaudeCode) => detected == LineKind::Codex,
        Some(Format::Codex) => detected == LineKind::ClaudeCode,
        _ => false,
    };
    if let Some(format) = format
        && detected.is_some_and(is_other)
    {
        let what = "it is the session log of another agent".to_owned();
        return Err(FormatError::NotThis { format, what });
    }
    let kind = match (format, detected) {
        (Some(Format::ClaudeCode), _) => LineKind::ClaudeCode,
        (Some(Format::Codex), _) => LineKind::Codex,
        (Some(Format::MessageLines), Some(LineKind::Event)) => LineKind::Event,
        (Some(Format::MessageLines), _) => LineKind::Message,
        (_, Some(LineKind::Body)) => LineKind::Body,
        (Some(format), _) => {
            let what =
                "it holds one JSON object a line, but none has a list of messages".to_owned();
            return Err(FormatError::NotThis { format, what });
        }
        (None, Some(kind)) => kind,
        (None, None) => {
            let first = raws.first().copied();
            return Err(first.map_or_else(|| unrecognised(Raw::trusted("{}", 0..2)), unrecognised));
        }
    };
    let mut conversations = match kind {
        LineKind::Body => raws
            .iter()
            .map(|line| {
                let warnings = std::mem::take(&mut warnings);
                read_body(document, line.span().start, format, warnings)
            })
            .collect::<Result<_, _>>()?,
        LineKind::Event => {
            let mut builder = Builder::new(document, Format::MessageLines);
            builder.warnings = warnings;
            builder.items = raws.iter().filter_map(|line| event(*line)).collect();
            let left = raws.len() - builder.items.len();
            if left > 0 {
                let what = format!("{left} of its lines are not events with a `message`");
                builder.warnings.push(what);
            }
            let lines = whole.unwrap_or_else(|| span_of(&values));
            vec![builder.finish(Container::Lines(lines))?]
        }
        LineKind::Message => {
            // Among the formats with one message per line, only Responses has items without a
            // role, and only Gemini has parts.
            let is_item = |line: &Raw<'_>| line.get("role").is_none() && line.get("type").is_some();
            let is_content = |line: &Raw<'_>| message_dialect(*line) == Some(Format::Gemini);
            let format = match raws.iter().any(is_item) {
                true => Format::OpenAiResponses,
                false if raws.iter().any(is_content) => Format::Gemini,
                false => Format::MessageLines,
            };
            let mut builder = Builder::new(document, format);
            builder.warnings = warnings;
            builder.items = values.iter().cloned().map(ItemSpan::bare).collect();
            vec![builder.finish(Container::Lines(span_of(&values)))?]
        }
        LineKind::ClaudeCode => {
            let log = logs::claude_code(&raws);
            vec![read_log(document, Format::ClaudeCode, log, warnings)?]
        }
        LineKind::Codex => {
            let log = logs::codex(&raws);
            vec![read_log(document, Format::Codex, log, warnings)?]
        }
    };
    if let Some(first) = conversations.first_mut() {
        first.damage = damage.or(first.damage.take());
    }
    Ok(conversations)
}

/// The part of the document from the first of these values to the last.
fn span_of(values: &[Range<usize>]) -> Range<usize> {
    let start = values.first().map_or(0, |line| line.start);
    let end = values.last().map_or(0, |line| line.end);
    start..end
}

/// Builds the conversation of a session log, and reports the lines whose message could not be
/// read as warnings and as damage.
fn read_log(
    document: &Arc<str>,
    format: Format,
    mut log: Log<'_>,
    mut warnings: Vec<String>,
) -> Result<Conversation, FormatError> {
    warnings.append(&mut log.warnings);
    let mut unreadable = log.take_unreadable();
    // The newlines are counted in one pass, which needs the lines in the order of the document.
    unreadable.sort_unstable_by_key(|(at, _)| *at);
    let (mut number, mut counted) = (1, 0);
    let lines = unreadable.iter().map(|(at, _)| {
        number += newlines(document, counted..*at);
        counted = *at;
        number
    });
    let lines: Vec<_> = lines.collect();
    let first = unreadable.into_iter().next();
    let damage = first.map(|(at, what)| FormatError::at(document, at, what));
    warnings.extend(
        damage
            .as_ref()
            .and_then(|damage| unread_lines(&lines, damage)),
    );
    let mut conversation = ParsedLog::of(document, format, log)?.into_window(warnings)?;
    conversation.damage = damage;
    Ok(conversation)
}

/// What one line of a document of lines holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Body,
    /// An event with the form `{"message": …, "state": …}`.
    Event,
    Message,
    ClaudeCode,
    Codex,
}

impl LineKind {
    fn is_log(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex)
    }
}

/// Detects what a line holds, from members that only one kind has. `None` if nothing fits.
fn line_kind(line: Raw<'_>) -> Option<LineKind> {
    let has = |key| line.get(key).is_some();
    let has_type = line.get("type").is_some_and(Raw::is_string);
    let bodies = ["messages", "input", "contents"];
    if (bodies.iter()).any(|key| line.get(key).is_some_and(Raw::is_array)) {
        Some(LineKind::Body)
    } else if (has_type && has("payload")) || logs::is_bare_line(line) {
        Some(LineKind::Codex)
    } else if has_type
        && ["uuid", "sessionId", "messageId", "leafUuid"]
            .into_iter()
            .any(has)
    {
        Some(LineKind::ClaudeCode)
    } else if line.get("role").is_some_and(Raw::is_string) {
        Some(LineKind::Message)
    } else if !has_type && event(line).is_some() {
        Some(LineKind::Event)
    } else {
        None
    }
}

/// Reads a line as an event: a message and the state kept with it. `None` if the message has no
/// role or no content.
fn event(line: Raw<'_>) -> Option<ItemSpan> {
    let message = line.get("message")?;
    let role = message.get("role")?;
    let is_event = role.is_string() && message.get("content").is_some();
    let time = message.get("timestamp").or_else(|| line.get("timestamp"));
    is_event.then(|| ItemSpan {
        outer: line.span(),
        time_ms: time.and_then(time_of),
        state: line
            .get("state")
            .filter(|state| state.is_object())
            .map(Raw::span),
        ..ItemSpan::bare(message.span())
    })
}

/// Builds the error for a document that fits no format. It says what was found and what each
/// format would have needed.
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
            "gemini needs a list `contents`, or a bare list of contents".to_owned(),
            "swe-agent needs a list `history`".to_owned(),
            "tau2 needs a list `simulations`".to_owned(),
            "claude-code needs lines with `type` and `uuid` or `sessionId`".to_owned(),
            "codex needs lines with `type` and `payload`".to_owned(),
            "lines needs a `role` in every line, or events with a `message`".to_owned(),
        ],
    }
}

/// Parses JSON, also if it has values that are valid but that [`Value`] cannot hold. Half of a
/// surrogate pair, which JavaScript writes if it cuts a text inside a character, becomes U+FFFD. A
/// number beyond the range of `f64` becomes a string.
///
/// # Errors
/// Fails if the text is not a single JSON value, or if values are nested too deep.
pub fn parse_json(text: &str) -> Result<Value, FormatError> {
    serde_json::from_str(text).or_else(|_| {
        let raw = Raw::parse(text).map_err(|error| FormatError::json(text, 0, error))?;
        Ok(raw.value())
    })
}

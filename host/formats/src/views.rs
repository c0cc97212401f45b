//! Turns wire items into messages: which items form one message, and which views a message
//! holds.
//!
//! [`read_items`] is the entry point. It groups items that belong to one turn, splits each
//! group into views, and builds a [`Message`] from each view. Each tool result is a view, and
//! so is each summary or notice that the host put into a message. Everything else between them
//! is one more view.
//!
//! Splitting has to find the host's own texts exactly, because the client sends them back as
//! part of ordinary messages. If it failed, the identity of a message would change from one
//! request to the next. The marks are defined in `seal`.

use std::ops::Range;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageKind};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::anatomy::{Anatomy, Piece, PieceKind, ResultShape, anatomy, media_within};
use super::blobs::without_blobs;
use super::calls::KnownCalls;
use super::json::{Raw, hash_text};
use super::message::{Call, Media, Message};
use super::seal::{Sealed, sealed_parts, unsealed_notice, unsealed_short};
use super::{Format, FormatError};

/// A wire item that is about to be read, with what its line of a log says about it.
pub(super) struct WireItem<'a> {
    pub(super) raw: Raw<'a>,
    /// Whether the item belongs to the same message as the one before it. Only a log says so.
    pub(super) continues: bool,
    pub(super) speaker: Speaker,
    /// The time of its log line, in milliseconds since the Unix epoch.
    pub(super) time_ms: Option<i64>,
}

/// Who said an item of a log, if its line tells more than the role in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Speaker {
    /// The role in the message is right.
    #[default]
    Wire,
    /// A reminder that the agent's program added. It is read with the role `system`.
    Nobody,
    /// The agent's summary of everything before it, at the place from which the agent
    /// continues.
    Summary,
    /// The same summary in the whole history, which still contains the messages that it
    /// summarises. It is read as a message of the assistant.
    Agent,
}

/// The name that the agent's own summary gets in the whole history.
const AGENT_SUMMARY: &str = "compaction";

/// Reads wire items in order into messages. `calls` are those before them, and is extended. Fails
/// if an item is not a valid message.
pub(super) fn read_items<'a>(
    format: Format,
    items: impl Iterator<Item = WireItem<'a>>,
    calls: &mut KnownCalls,
) -> Result<Vec<Message>, FormatError> {
    let mut messages = Vec::new();
    let mut group: Vec<Anatomy<'a>> = Vec::new();
    let mut first = 0;
    let mut speaker = Speaker::Wire;
    for (at, item) in items.enumerate() {
        let mut next = anatomy(item.raw).map_err(|what| FormatError::message(at, what))?;
        next.time_ms = item.time_ms.or(next.time_ms);
        let joins = match (format, group.last()) {
            (_, None) => true,
            // A text that the program added must not merge with what the user said.
            (_, Some(_)) if speaker != item.speaker => false,
            (Format::OpenAiResponses | Format::Codex, Some(last)) => same_turn(last, &next),
            (_, Some(_)) => item.continues,
        };
        if !joins {
            push_group(&group, first, speaker, calls, &mut messages);
            group.clear();
            first = at;
        }
        speaker = item.speaker;
        group.push(next);
    }
    push_group(&group, first, speaker, calls, &mut messages);
    Ok(messages)
}

/// Whether an item of the Responses API continues the assistant's turn that `last` belongs to.
/// A turn consists of reasoning and tools that the provider ran, then the message, then the
/// calls.
fn same_turn(last: &Anatomy<'_>, next: &Anatomy<'_>) -> bool {
    let rank = |item: &Anatomy<'_>| match item.pieces.first().map(|piece| &piece.kind) {
        Some(PieceKind::Call(_)) if item.content.is_none() => 2,
        _ if item.content.is_some() => 1,
        _ => 0,
    };
    last.role == "assistant"
        && next.role == "assistant"
        && (rank(last) < rank(next) || (rank(last) == rank(next) && rank(last) != 1))
}

/// The pieces of a group of wire items that form one view. An engine sees a view as a message.
pub(super) struct ViewSpan {
    /// The indices of the pieces, in the order of [`flatten`].
    pub(super) pieces: Range<usize>,
    /// The start of the view in its first piece, in bytes of the text. A text of the host may
    /// share a piece with other text.
    pub(super) from: usize,
    pub(super) until: Option<usize>,
    /// Whether this is a tool result inside a message of the user.
    pub(super) is_result: bool,
    pub(super) is_summary: bool,
}

impl ViewSpan {
    /// Returns the range that belongs to the view in the text of piece `at`, which is `length`
    /// bytes long.
    pub(super) fn within(&self, at: usize, length: usize) -> Range<usize> {
        let from = if at == self.pieces.start {
            self.from
        } else {
            0
        };
        let is_last = at + 1 == self.pieces.end;
        let until = self.until.filter(|_| is_last).unwrap_or(length);
        from.min(until)..until
    }
}

/// Lists the pieces of a group of items, each with the index of its item within the group.
pub(super) fn flatten<'g, 'a>(group: &'g [Anatomy<'a>]) -> Vec<(usize, &'g Piece<'a>)> {
    group
        .iter()
        .enumerate()
        .flat_map(|(at, item)| item.pieces.iter().map(move |piece| (at, piece)))
        .collect()
}

/// Splits the pieces of a group into views. Each tool result is a view, each summary or notice
/// that shares the message is a view, and so is each stretch between these. The result is never
/// empty.
pub(super) fn view_spans(pieces: &[(usize, &Piece<'_>)]) -> Vec<ViewSpan> {
    let mut views = Vec::new();
    let mut start = 0;
    for (at, (_, piece)) in pieces.iter().enumerate() {
        if matches!(piece.kind, PieceKind::Result(_)) {
            push_run(pieces, start..at, &mut views);
            views.push(ViewSpan {
                pieces: at..at + 1,
                from: 0,
                until: None,
                is_result: true,
                is_summary: false,
            });
            start = at + 1;
        }
    }
    // A message without any content is still a message and needs a view.
    if start < pieces.len() || pieces.is_empty() {
        push_run(pieces, start..pieces.len(), &mut views);
    }
    views
}

/// A piece, or a section of a text piece.
struct Span {
    piece: usize,
    from: usize,
    /// The end of the section, or `None` if it ends with the piece.
    until: Option<usize>,
    kind: SpanKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpanKind {
    /// A piece that is not text.
    Other,
    Said,
    Sealed(Sealed),
}

/// Splits a run of pieces at each boundary between the host's texts and other text.
fn spans_of(pieces: &[(usize, &Piece<'_>)], run: Range<usize>) -> Vec<Span> {
    // The host never puts a summary into a message with thinking. If a mark occurs there, the
    // model repeats one.
    let thinks = (pieces.get(run.clone()))
        .is_some_and(|run| run.iter().any(|(_, piece)| piece.has_thinking()));
    let mut spans = Vec::new();
    for piece in run {
        let text = match pieces.get(piece).map(|(_, piece)| &piece.kind) {
            Some(PieceKind::Text(text)) => text.string(),
            _ => None,
        };
        let span = |from, until, kind| Span {
            piece,
            from,
            until,
            kind,
        };
        let Some(text) = text else {
            spans.push(span(0, None, SpanKind::Other));
            continue;
        };
        // If a document quotes a mark, the mark belongs to the document.
        let is_document = pieces
            .get(piece)
            .is_some_and(|(_, piece)| piece.is_document);
        let sealed = match thinks || is_document {
            true => Vec::new(),
            false => sealed_parts(&text),
        };
        if sealed.is_empty() {
            spans.push(span(0, None, SpanKind::Said));
            continue;
        }
        let said = |from: usize, until: usize| {
            let own = without_joiners(&text, from..until);
            let is_blank = text
                .get(own.clone())
                .is_none_or(|own| own.trim().is_empty());
            let ends = (own.end < text.len()).then_some(own.end);
            // The host joins a summary to the text after it with an empty line, even if that
            // text is blank.
            let is_joined = text.get(until.saturating_sub(2)..until) == Some("\n\n");
            let says_nothing = from > 0 && until == text.len() && own.is_empty() && is_joined;
            (!is_blank || says_nothing).then(|| span(own.start, ends, SpanKind::Said))
        };
        let mut from = 0;
        for part in sealed {
            spans.extend(said(from, part.range.start));
            from = part.range.end;
            spans.push(span(
                part.range.start,
                Some(part.until),
                SpanKind::Sealed(part.kind),
            ));
        }
        spans.extend(said(from, text.len()));
    }
    spans
}

/// Shrinks the range of a text between two texts of the host by the separator on either side,
/// which is a line end, an empty line or a space.
fn without_joiners(text: &str, range: Range<usize>) -> Range<usize> {
    let whole = text.get(range.clone()).unwrap_or("");
    let mut own = whole;
    let joiners = ["\r\n\r\n", "\n\n", "\r\n", "\n", " "];
    if range.start > 0 {
        own = joiners
            .iter()
            .find_map(|joiner| own.strip_prefix(joiner))
            .unwrap_or(own);
    }
    let start = range.end - own.len();
    if range.end < text.len() {
        own = joiners
            .iter()
            .find_map(|joiner| own.strip_suffix(joiner))
            .unwrap_or(own);
    }
    start..start + own.len()
}

/// Splits a run of pieces into views: one for each summary and notice of the host, and one for
/// each stretch between them. The shortened form of a message forms a view together with the
/// pieces beside it that are not text.
fn push_run(pieces: &[(usize, &Piece<'_>)], run: Range<usize>, views: &mut Vec<ViewSpan>) {
    if run.is_empty() && !pieces.is_empty() {
        return;
    }
    let mut groups: Vec<Vec<Span>> = Vec::new();
    for span in spans_of(pieces, run.clone()) {
        let is_short = SpanKind::Sealed(Sealed::Short);
        let joins = groups.last().is_some_and(|group| {
            let has = |kind: SpanKind| group.iter().any(|span| span.kind == kind);
            match (group.first().map(|span| span.kind), span.kind) {
                (_, SpanKind::Sealed(Sealed::Summary | Sealed::Notice)) => false,
                (Some(SpanKind::Sealed(Sealed::Summary | Sealed::Notice)), _) => false,
                (_, SpanKind::Other) => true,
                // A shortened form replaces the entire text of its message, so no other text
                // can belong to it.
                (_, SpanKind::Said) => !has(is_short),
                (_, SpanKind::Sealed(Sealed::Short)) => !has(is_short) && !has(SpanKind::Said),
            }
        });
        match groups.last_mut() {
            Some(group) if joins => group.push(span),
            _ => groups.push(vec![span]),
        }
    }
    let before = views.len();
    views.extend(groups.iter().filter_map(|group| {
        let (first, last) = (group.first()?, group.last()?);
        Some(ViewSpan {
            pieces: first.piece..last.piece + 1,
            from: first.from,
            until: last.until,
            is_result: false,
            is_summary: matches!(
                first.kind,
                SpanKind::Sealed(Sealed::Summary | Sealed::Notice)
            ),
        })
    }));
    if views.len() == before {
        views.push(ViewSpan {
            pieces: run,
            from: 0,
            until: None,
            is_result: false,
            is_summary: false,
        });
    }
}

/// Returns the part of the text of piece `at` that belongs to `view`. If the piece is not at an
/// edge of the view, it is the whole text.
pub(super) fn own_text<'t>(view: &ViewSpan, at: usize, text: &'t str) -> &'t str {
    text.get(view.within(at, text.len())).unwrap_or("")
}

/// Builds the messages of one group of items and appends them. The name of a tool comes from
/// the result, or else from the nearest call with the same id.
fn push_group(
    group: &[Anatomy<'_>],
    first: usize,
    speaker: Speaker,
    calls: &mut KnownCalls,
    messages: &mut Vec<Message>,
) {
    let Some(head) = group.first() else { return };
    let pieces = flatten(group);
    let before = messages.len();
    for (index, view) in view_spans(&pieces).into_iter().enumerate() {
        let role = match speaker {
            _ if view.is_result => "tool",
            Speaker::Wire | Speaker::Summary => &head.role,
            Speaker::Nobody => "system",
            Speaker::Agent => "assistant",
        };
        let mut message = Message {
            role: role.to_owned(),
            time_ms: group.iter().find_map(|item| item.time_ms),
            continues: index == 0 && group.iter().any(|item| item.continues),
            items: first..first + group.len(),
            view_index: index,
            ..Message::default()
        };
        let unread = fill(&mut message, &view, group, &pieces);
        calls.learn(&message.calls);
        if is_response(&view, &pieces) {
            let tool = message.tool_name.as_deref().unwrap_or("");
            message.tool_call_id = message.tool_call_id.map(|own| calls.answered(own, tool));
        }
        if message.tool_name.is_none() {
            let tool = (message.tool_call_id.as_ref()).and_then(|id| calls.tool(id));
            message.tool_name = tool.map(ToOwned::to_owned);
        }
        message.kind = kind_of(
            &mut message,
            view.is_summary || (speaker == Speaker::Summary && !view.is_result),
        );
        if !view.is_result && !message.is_summary() {
            message.name = match speaker {
                Speaker::Agent => Some(AGENT_SUMMARY.to_owned()),
                _ => group.iter().find_map(|item| item.name.clone()),
            };
        }
        message.identity = identity(&message, &unread);
        messages.push(message);
    }
    let new = messages.get(before..).unwrap_or(&[]);
    calls.open(new.iter().flat_map(|message| &message.calls));
}

/// Whether the view is a result that may name only its tool, as Gemini's do.
fn is_response(view: &ViewSpan, pieces: &[(usize, &Piece<'_>)]) -> bool {
    let kind = pieces.get(view.pieces.start).map(|(_, piece)| &piece.kind);
    matches!(kind, Some(PieceKind::Result(result)) if result.shape == ResultShape::Response)
}

/// Fills in what the pieces of `view` hold. Returns the JSON values whose content is in no
/// field of the message, because the identity must cover these too.
fn fill<'a>(
    message: &mut Message,
    view: &ViewSpan,
    group: &[Anatomy<'a>],
    pieces: &[(usize, &Piece<'a>)],
) -> Vec<Raw<'a>> {
    let mut unread = Vec::new();
    let mut texts = 0;
    let own = pieces
        .iter()
        .enumerate()
        .skip(view.pieces.start)
        .take(view.pieces.len());
    for (at, (item, piece)) in own {
        let mut media = Vec::new();
        message.has_thinking |= piece.has_thinking();
        match &piece.kind {
            PieceKind::Text(text) => {
                if texts > 0 {
                    message.text.push('\n');
                }
                let text = text.string().unwrap_or_default();
                message.text.push_str(own_text(view, at, &text));
                texts += 1;
            }
            PieceKind::Thinking(text) => {
                message.thinking.push_str(text);
                // Redacted thinking has no text, so only its data tells two of them apart.
                if text.is_empty() {
                    unread.push(piece.raw);
                }
            }
            PieceKind::Call(call) => message.calls.push(Call {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments_text(),
            }),
            PieceKind::Result(result) => {
                message.text = result.text();
                message.is_error = result.is_error;
                message.tool_name = result.name.clone();
                message.tool_call_id = Some(result.call_id.clone());
                media = result.media();
                // The text does not tell two results with different images apart.
                unread.extend(result.content.filter(|_| !media.is_empty()));
            }
            PieceKind::Media(found) => {
                media = vec![found.clone()];
                unread.push(piece.raw);
            }
            PieceKind::Opaque => {
                message.opaque.push_str(&without_blobs(piece.raw));
                media = media_within(piece.raw);
                unread.push(piece.raw);
            }
        }
        message.opaque.push_str(&piece.beside());
        let start = group.get(*item).map_or(0, |item| item.raw.span().start);
        message.media.extend(media.into_iter().map(|found| Media {
            item: message.items.start + item,
            data: found.data.start.saturating_sub(start)..found.data.end.saturating_sub(start),
            ..found
        }));
    }
    unread
}

/// Determines the kind of a message from the marks in its text. If the message was shortened,
/// the mark is removed from the text.
fn kind_of(message: &mut Message, is_summary: bool) -> MessageKind {
    if is_summary {
        return match unsealed_notice(&message.text) {
            Some(_) => MessageKind::Notice,
            None => MessageKind::Summary,
        };
    }
    if let Some(short) = unsealed_short(&message.text) {
        message.text = short.to_owned();
        return MessageKind::Replaced;
    }
    match message.role == "tool" && message.text == CLEARED_TOOL_OUTPUT {
        true => MessageKind::Replaced,
        false => MessageKind::Original,
    }
}

/// The identity of a summary with this text. It ignores the role and the message that holds the
/// summary, because the host chooses both.
pub fn summary_identity(text: &str) -> u128 {
    let mut hash = Xxh3::new();
    hash_text("summary", &mut hash);
    hash_text(text.trim(), &mut hash);
    hash.digest128()
}

/// Hashes what a message says, see [`Message::identity`].
fn identity(message: &Message, unread: &[Raw<'_>]) -> u128 {
    let mut hash = Xxh3::new();
    if message.is_summary() {
        return summary_identity(&message.text);
    }
    for text in [&message.role, message.text.trim(), &message.thinking] {
        hash_text(text, &mut hash);
    }
    for call in &message.calls {
        hash_text(&call.id, &mut hash);
        hash_text(&call.name, &mut hash);
        // Clients may format arguments anew, so the identity uses their meaning if they are
        // JSON.
        match Raw::parse(&call.arguments) {
            Ok(arguments) => arguments.hash_meaning(&mut hash),
            Err(_) => hash_text(&call.arguments, &mut hash),
        }
    }
    if let Some(name) = &message.name {
        hash_text("name", &mut hash);
        hash_text(name, &mut hash);
    }
    if let Some(id) = &message.tool_call_id {
        hash_text(id, &mut hash);
        hash.update(&[u8::from(message.is_error)]);
    }
    for raw in unread {
        raw.hash_meaning(&mut hash);
    }
    hash.digest128()
}

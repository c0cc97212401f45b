//! Edits the JSON of one wire message so that only the kept views remain. Everything that does
//! not change keeps its bytes.
//!
//! [`splice`] is the entry point. It takes what a plan keeps of a wire message and returns the
//! items to send. If all views are kept unchanged, these are the original items. Otherwise it
//! decides for each piece whether to keep, drop or change it, and then applies these edits to
//! the text.
//!
//! The difficult cases are texts that several views share and summaries that join a message. A
//! client sends the result back with its next request, and `views` must then split it into the
//! same views again. Which summary joins which message is decided in `plan`.

use std::ops::Range;

use super::anatomy::{Anatomy, Piece, PieceKind, anatomy};
use super::conversation::Conversation;
use super::gemini;
use super::json::{Edits, Raw, escape, escaped_offset, insert_member, quote, skip_space};
use super::message::Message;
use super::parts::{new_message, part_type, text_part};
use super::plan::{KeptMessage, KeptPart, results_are_users};
use super::seal::sealed_summary;
use super::views::{ViewSpan, flatten, own_text, view_spans};
use super::{Format, FormatError};

/// A wire item of the new window. Its text is either that of an item of the conversation or
/// new.
pub enum RenderedItem {
    /// The unchanged item with this index.
    Original(usize),
    /// A changed or added item, with its JSON.
    New {
        /// The JSON of the item as it is sent.
        text: String,
        /// The index of the original item, if this is a changed form of one.
        of: Option<usize>,
    },
}

impl RenderedItem {
    /// Creates an item that the conversation did not have before.
    pub(super) fn new(text: String) -> Self {
        Self::New { text, of: None }
    }
}

/// What happens to one piece of the message when the message is written again.
enum PieceEdit {
    Keep,
    Drop,
    /// Replace the text, arguments or content of the piece with this JSON.
    Change(String),
}

/// Returns the items to send for what is kept of one wire message. Fails if new arguments do
/// not fit their call.
pub(super) fn splice(
    conversation: &Conversation,
    kept: &KeptMessage<'_>,
) -> Result<Vec<RenderedItem>, FormatError> {
    let messages = conversation.messages();
    let Some(first) = kept.parts.first().and_then(|part| messages.get(part.index)) else {
        return Ok(Vec::new());
    };
    let range = first.items.clone();
    // The views of one wire message are adjacent among the messages.
    let first_view = kept.parts.first().map_or(0, |part| part.index) - first.view_index;
    let view_count = messages
        .iter()
        .skip(first_view)
        .take_while(|message| message.items == range)
        .count();
    let joined = !kept.before.is_empty() || !kept.after.is_empty();
    // The usual case is that nothing changes. The items are then copied without parsing them.
    if !joined && kept.parts.len() == view_count && kept.parts.iter().all(KeptPart::is_unchanged) {
        return Ok(range.map(RenderedItem::Original).collect());
    }
    let group = range
        .clone()
        .map(|item| {
            let raw = Raw::whole(conversation.item(item));
            anatomy(raw).map_err(|what| FormatError::message(item, what))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let Some(head) = group.first() else {
        return Ok(Vec::new());
    };
    let pieces = flatten(&group);
    let views = view_spans(&pieces);
    let (mut piece_edits, new_text) = piece_edits(messages, kept, &pieces, &views)?;
    let format = conversation.format();

    let mut out = Vec::new();
    // The item that receives summaries, and text that the message did not have before.
    let host = group.iter().position(|item| item.is_message);
    let mut insert = Insert {
        before: kept
            .before
            .iter()
            .map(|text| sealed_summary(text))
            .collect(),
        text: new_text.map(ToOwned::to_owned),
        after: kept.after.iter().map(|text| sealed_summary(text)).collect(),
        part_type: part_type(format, &head.role),
        format,
        is_led_by_parts: results_are_users(format) && kept.before.len() > 1,
        has_empty_parts: !results_are_users(format),
    };
    // If a text shared its string with a summary in front of it, it shares the string with the
    // new summary too.
    let first = (kept.parts.first())
        .and_then(|part| views.get(messages.get(part.index)?.view_index))
        .filter(|view| view.from > 0 && !insert.is_led_by_parts);
    if let Some(PieceEdit::Change(text)) =
        first.and_then(|view| piece_edits.get_mut(view.pieces.start))
    {
        text.insert_str(1, &escape(&led_by(&insert.before)));
        insert.before.clear();
    }
    if host.is_none() {
        // The turn consists of call items only, so the text becomes an item before it.
        let texts: Vec<_> = insert.before.drain(..).chain(insert.text.take()).collect();
        if !texts.is_empty() {
            out.push(RenderedItem::new(new_message(
                format,
                &head.role,
                &texts.join("\n\n"),
            )));
        }
    }
    for (at, item) in group.iter().enumerate() {
        let own: Vec<_> = pieces
            .iter()
            .zip(&piece_edits)
            .filter(|((owner, _), _)| *owner == at)
            .map(|((_, piece), edit)| (*piece, edit))
            .collect();
        let hosts = host == Some(at) && !insert.is_empty();
        // An item whose pieces are all dropped is left out, unless it has to hold a summary.
        let gone = !own.is_empty() && own.iter().all(|(_, edit)| matches!(edit, PieceEdit::Drop));
        if gone && !hosts {
            continue;
        }
        let mut edits = Edits::default();
        edit_pieces(item, &own, &mut edits);
        edit_content(item, &own, hosts.then_some(&insert), &mut edits);
        out.push(if edits.is_empty() {
            RenderedItem::Original(range.start + at)
        } else {
            RenderedItem::New {
                text: edits.apply(item.raw.text(), item.raw.span()),
                of: Some(range.start + at),
            }
        });
    }
    Ok(out)
}

/// Decides the edit of each piece. Also returns a new text for which the message has no piece
/// yet.
fn piece_edits<'a>(
    messages: &[Message],
    kept: &KeptMessage<'a>,
    pieces: &[(usize, &Piece<'_>)],
    views: &[ViewSpan],
) -> Result<(Vec<PieceEdit>, Option<&'a str>), FormatError> {
    let mut piece_edits: Vec<PieceEdit> = pieces.iter().map(|_| PieceEdit::Drop).collect();
    let mut new_text = None;
    // The parts of one wire message are sorted by view, so they can be found by binary search.
    let part_of = |view: usize| {
        let view_of =
            |part: &KeptPart<'_>| messages.get(part.index).map(|message| message.view_index);
        let at = kept.parts.binary_search_by_key(&Some(view), view_of).ok()?;
        kept.parts.get(at)
    };
    for (at, view) in views.iter().enumerate() {
        let Some(part) = part_of(at) else { continue };
        let mut call = 0;
        let mut text = part.text;
        for (piece_at, (_, piece)) in pieces
            .iter()
            .enumerate()
            .skip(view.pieces.start)
            .take(view.pieces.len())
        {
            let edit = match (&piece.kind, text) {
                (PieceKind::Text(raw), _) => {
                    let sharers: Vec<_> = views
                        .iter()
                        .enumerate()
                        .filter(|(_, view)| view.pieces.contains(&piece_at))
                        .map(|(at, view)| (view, part_of(at)))
                        .collect();
                    text = None;
                    text_edit(*raw, piece_at, &sharers, |view| first_text(pieces, view))
                }
                (PieceKind::Result(result), Some(new)) => {
                    text = None;
                    PieceEdit::Change(result.encode_text(new))
                }
                (PieceKind::Call(piece), _) => {
                    let new = part.arguments.iter().find(|new| new.index == call);
                    call += 1;
                    match new {
                        None => PieceEdit::Keep,
                        Some(new) => PieceEdit::Change(
                            piece.encode_arguments(&new.arguments).map_err(|what| {
                                FormatError::Window(format!(
                                    "call {} of message {}: {what}",
                                    new.index, part.index
                                ))
                            })?,
                        ),
                    }
                }
                _ => PieceEdit::Keep,
            };
            if let Some(place) = piece_edits.get_mut(piece_at) {
                *place = edit;
            }
        }
        if let Some(missing) = part.arguments.iter().find(|new| new.index >= call) {
            return Err(FormatError::Window(format!(
                "it shortens call {} of message {}, but the message has {call} calls",
                missing.index, part.index
            )));
        }
        // The text is still there if the view has no piece that could hold it.
        new_text = text.filter(|text| !text.is_empty()).or(new_text);
    }
    Ok((piece_edits, new_text))
}

/// Returns the index of the piece that the new text of a view replaces. It is the first text,
/// and a text that was said takes precedence over an attached document.
fn first_text(pieces: &[(usize, &Piece<'_>)], view: &ViewSpan) -> Option<usize> {
    let is_text = |at: &usize, or_document: bool| {
        pieces.get(*at).is_some_and(|(_, piece)| {
            matches!(piece.kind, PieceKind::Text(_)) && (or_document || !piece.is_document)
        })
    };
    let mut all = view.pieces.clone();
    let said = all.clone().find(|at| is_text(at, false));
    said.or_else(|| all.find(|at| is_text(at, true)))
}

/// Computes the edit of a text that several views may share, for example if the host joined a
/// summary to it. `first_text` returns the piece that a view's new text replaces.
fn text_edit(
    raw: Raw<'_>,
    at: usize,
    sharers: &[(&ViewSpan, Option<&KeptPart<'_>>)],
    first_text: impl Fn(&ViewSpan) -> Option<usize>,
) -> PieceEdit {
    if sharers
        .iter()
        .all(|(_, part)| part.is_some_and(|part| part.text.is_none()))
    {
        return PieceEdit::Keep;
    }
    let text = raw.string().unwrap_or_default();
    let kept: Vec<(&ViewSpan, Option<&str>)> = sharers
        .iter()
        .filter_map(|(view, part)| Some((*view, (*part)?.text)))
        // If a view has several texts, the new text replaces the first and the others are
        // dropped.
        .filter(|(view, new)| new.is_none() || first_text(view) == Some(at))
        .collect();
    if let [(view, None)] = kept.as_slice()
        && !view.is_summary
    {
        // The escaped form is copied, because quoting the text again could change its bytes.
        let inner = raw.inner().unwrap_or("");
        let own = view.within(at, text.len());
        let own = escaped_offset(inner, own.start)..match own.end == text.len() {
            true => inner.len(),
            false => escaped_offset(inner, own.end),
        };
        return PieceEdit::Change(format!("\"{}\"", inner.get(own).unwrap_or("")));
    }
    let texts: Vec<_> = kept
        .iter()
        .map(|(view, new)| {
            let own = new.unwrap_or_else(|| own_text(view, at, &text));
            if view.is_summary {
                sealed_summary(own)
            } else {
                own.to_owned()
            }
        })
        .collect();
    match texts.is_empty() {
        true => PieceEdit::Drop,
        false => PieceEdit::Change(quote(&texts.join("\n\n"))),
    }
}

/// Applies the changes inside pieces, except for a `content` that is a string. [`edit_content`]
/// handles that.
fn edit_pieces(item: &Anatomy<'_>, own: &[(&Piece<'_>, &PieceEdit)], edits: &mut Edits) {
    for (piece, edit) in own {
        let PieceEdit::Change(new) = edit else {
            continue;
        };
        let place = match &piece.kind {
            PieceKind::Text(raw) if !is_string_content(item, piece) => Some(*raw),
            PieceKind::Call(call) => call.arguments,
            PieceKind::Result(result) => result.content,
            _ => continue,
        };
        match place {
            Some(old) => edits.replace(old.span(), new.clone()),
            None => {
                // An output of the Responses API has no role and stores its content in
                // `output`.
                let (holder, key) = match (&piece.kind, gemini::call_in(piece.raw)) {
                    (PieceKind::Call(_), Some(call)) => (call, "args"),
                    (PieceKind::Call(_), None) => (piece.raw, "arguments"),
                    _ if item.raw.get("role").is_none() && !piece.in_list => (piece.raw, "output"),
                    _ => (piece.raw, "content"),
                };
                insert_member(holder, key, new, edits);
            }
        }
    }
}

fn is_string_content(item: &Anatomy<'_>, piece: &Piece<'_>) -> bool {
    item.content
        .is_some_and(|content| content.is_string() && content.span() == piece.raw.span())
}

/// Text to add to the content of a message: summaries, and a new text for a message that had
/// none.
struct Insert {
    before: Vec<String>,
    text: Option<String>,
    after: Vec<String>,
    part_type: &'static str,
    format: Format,
    /// Whether several summaries before a text become parts of their own, because Anthropic
    /// caches each block separately.
    is_led_by_parts: bool,
    /// Whether the format allows empty parts. Anthropic and Gemini reject them.
    has_empty_parts: bool,
}

impl Insert {
    fn is_empty(&self) -> bool {
        self.before.is_empty() && self.text.is_none() && self.after.is_empty()
    }

    fn part(&self, text: &str) -> String {
        text_part(self.part_type, &quote(text))
    }
}

/// Edits the `content` of a message: removes dropped parts, changes a string, and adds the text
/// to insert.
fn edit_content(
    item: &Anatomy<'_>,
    own: &[(&Piece<'_>, &PieceEdit)],
    insert: Option<&Insert>,
    edits: &mut Edits,
) {
    let Some(content) = item.content.filter(|_| item.is_message) else {
        match insert {
            Some(insert) if insert.format == Format::Gemini => {
                let part = text_part(insert.part_type, &fresh_content(insert));
                insert_member(item.raw, "parts", &format!("[{part}]"), edits);
            }
            Some(insert) => insert_member(item.raw, "content", &fresh_content(insert), edits),
            None => {}
        }
        return;
    };
    if content.is_array() {
        let listed: Vec<_> = own.iter().filter(|(piece, _)| piece.in_list).collect();
        let spans: Vec<_> = listed
            .iter()
            .map(|(piece, edit)| (piece.raw.span(), !matches!(edit, PieceEdit::Drop)))
            .collect();
        remove_elements(item.raw, content, &spans, edits);
        if let Some(insert) = insert {
            // Anthropic requires tool results first, so a text is inserted after them.
            let results = listed
                .iter()
                .take_while(|(piece, _)| matches!(piece.kind, PieceKind::Result(_)))
                .filter(|(_, edit)| !matches!(edit, PieceEdit::Drop))
                .map(|(piece, _)| piece.raw.span().end)
                .last();
            let any_left = spans.iter().any(|(_, keep)| *keep);
            insert_parts(content, insert, results, &spans, any_left, edits);
        }
        return;
    }
    // The content is a string or null from here on.
    let edit = own
        .iter()
        .find(|(piece, _)| is_string_content(item, piece))
        .map(|(_, edit)| *edit);
    let string = match edit {
        Some(PieceEdit::Keep) => Some(content.text().to_owned()),
        Some(PieceEdit::Change(new)) => Some(new.clone()),
        Some(PieceEdit::Drop) | None => None,
    };
    let new = match (insert, string) {
        (None, Some(string)) => string,
        (None, None) => "null".to_owned(),
        (Some(insert), None) => fresh_content(insert),
        (Some(insert), Some(string)) if insert.after.is_empty() && !insert.is_led_by_parts => {
            format!(
                "\"{}{}",
                escape(&led_by(&insert.before)),
                string.strip_prefix('"').unwrap_or(&string)
            )
        }
        (Some(insert), Some(string)) => {
            // A client that sends this back also sends the message itself, even if its text is
            // empty.
            let stays = insert.has_empty_parts || string != "\"\"";
            let parts: Vec<_> = insert
                .before
                .iter()
                .map(|text| insert.part(text))
                .chain(stays.then(|| text_part(insert.part_type, &string)))
                .chain(insert.after.iter().map(|text| insert.part(text)))
                .collect();
            format!("[{}]", parts.join(","))
        }
    };
    if new != content.text() {
        edits.replace(content.span(), new);
    }
}

/// Joins summaries that precede a text, with an empty line after each one.
fn led_by(summaries: &[String]) -> String {
    summaries.iter().map(|text| format!("{text}\n\n")).collect()
}

/// Returns content for a message that has none: the texts to insert, as one string.
fn fresh_content(insert: &Insert) -> String {
    let texts: Vec<_> = insert
        .before
        .iter()
        .chain(insert.text.as_ref())
        .chain(&insert.after)
        .map(String::as_str)
        .collect();
    quote(&texts.join("\n\n"))
}

/// Adds the texts to insert to a list of parts. Texts at the head go after tool results,
/// because Anthropic requires results to come first.
fn insert_parts(
    list: Raw<'_>,
    insert: &Insert,
    after_results: Option<usize>,
    spans: &[(Range<usize>, bool)],
    any_left: bool,
    edits: &mut Edits,
) {
    let head: Vec<_> = insert
        .before
        .iter()
        .chain(insert.text.as_ref())
        .map(|text| insert.part(text))
        .collect();
    let tail: Vec<_> = insert.after.iter().map(|text| insert.part(text)).collect();
    // No element is left, so no comma may be left either.
    if !any_left {
        let all: Vec<_> = head.into_iter().chain(tail).collect();
        edits.replace(list.span(), format!("[{}]", all.join(",")));
        return;
    }
    if !head.is_empty() {
        match after_results {
            Some(end) => edits.replace(end..end, format!(",{}", head.join(","))),
            None => {
                let start = list.span().start + 1;
                edits.replace(start..start, format!("{},", head.join(",")));
            }
        }
    }
    if let (Some((last, _)), false) = (spans.last(), tail.is_empty()) {
        edits.replace(last.end..last.end, format!(",{}", tail.join(",")));
    }
}

/// Removes elements from a list, each with one comma. It is the comma before the element, or
/// the one after it if no element before it is left. What the host once put at the head then
/// leaves no trace.
fn remove_elements(
    item: Raw<'_>,
    list: Raw<'_>,
    elements: &[(Range<usize>, bool)],
    edits: &mut Edits,
) {
    let after_comma =
        |end: usize| skip_space(item.text(), end - item.span().start) + item.span().start + 1;
    let mut any_left = false;
    for (at, (span, keep)) in elements.iter().enumerate() {
        any_left |= keep;
        if *keep {
            continue;
        }
        let before = at
            .checked_sub(1)
            .and_then(|at| elements.get(at))
            .map(|(span, _)| span.end);
        let removed = if any_left {
            before.unwrap_or(span.start)..span.end
        } else {
            let start = before.map_or(list.span().start + 1, after_comma);
            let is_last = at + 1 == elements.len();
            start..if is_last {
                span.end
            } else {
                after_comma(span.end)
            }
        };
        edits.replace(removed, "");
    }
}

//! `lcm_read`: a stored text by line or byte range.
//!
//! A long tool result or file is shown in the window as a preview only. With this tool the model
//! reads the rest in parts. The text is read from the transcript as a whole, and the answer shows
//! as much of the range as fits into its token limit.
//!
//! The cursor of an answer is the byte at which the next part begins, so a range can be read to its
//! end with the same arguments.

use std::ops::Range;

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{MAX_BYTES_A_TOKEN, longest, within};
use super::{Context, Id, cursor_schema, invalid, max_tokens_schema, object, session_schema};
use crate::store::SessionId;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    id: String,
    from_line: Option<u64>,
    to_line: Option<u64>,
    from_byte: Option<u64>,
    to_byte: Option<u64>,
    max_tokens: Option<u64>,
    cursor: Option<String>,
    session: Option<String>,
}

pub(super) fn parameters() -> Value {
    let place =
        |what: &str, least: u64| json!({"type": "integer", "minimum": least, "description": what});
    object(
        json!({
            "id": {"type": "string", "description": "A message (m34), a file (f5) or a summary (s12)"},
            "from_line": place("First line, from 1", 1),
            "to_line": place("Last line", 1),
            "from_byte": place("Or: first byte, from 0", 0),
            "to_byte": place("Or: byte after the last", 0),
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &["id"],
    )
}

/// The text that is read: a file, the body of a message or a summary. Positions are bytes of it.
struct StoredText(String);

pub(super) fn run(
    context: &mut Context<'_>,
    arguments: ReadArguments,
) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let source = StoredText::of(context, session, Id::parse(&arguments.id)?)?;
    let (bytes, lines) = (source.bytes(), source.lines());
    let range = range(&source, &arguments)?;
    let start = match &arguments.cursor {
        None => range.start,
        Some(cursor) => (cursor.parse().ok())
            .filter(|start| range.contains(start))
            .ok_or_else(|| {
                invalid(format!(
                    "`{cursor}` is not a cursor of this id and range; repeat those that it came with"
                ))
            })?,
    };
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room| {
        // A part that is longer than any answer does not have to be copied and measured.
        let reach = room.saturating_mul(MAX_BYTES_A_TOKEN as u64);
        let (first_byte, text) = source.part(start..range.end.min(start.saturating_add(reach)));
        let before = &source.0.as_bytes()[..first_byte];
        let first_line = memchr::memchr_iter(b'\n', before).count() as u64 + 1;
        let answer = |end: usize| {
            let next = (first_byte + end) as u64;
            json!({
                "id": arguments.id,
                "first_line": first_line,
                "first_byte": first_byte,
                "end_byte": next,
                "total_bytes": bytes,
                "total_lines": lines,
                "text": text.get(..end).unwrap_or(""),
                "next_cursor": (next < range.end).then(|| next.to_string()),
            })
        };
        let end = match longest(text, 0, room, services, answer) {
            // One character at least has to be shown, or the next call would begin at the same
            // place.
            0 => text.chars().next().map_or(0, char::len_utf8),
            end => end,
        };
        Ok(answer(end))
    })
}

/// Returns the range of bytes that the arguments ask for. Lines are converted to bytes. An empty
/// range is an error that says how large the text is, unless the text itself is empty.
fn range(source: &StoredText, arguments: &ReadArguments) -> Result<Range<u64>, EngineError> {
    let by_line = arguments.from_line.is_some() || arguments.to_line.is_some();
    let by_byte = arguments.from_byte.is_some() || arguments.to_byte.is_some();
    if by_line && by_byte {
        return Err(invalid("lcm_read takes lines or bytes, not both"));
    }
    let bytes = source.bytes();
    let (start, end) = if by_line {
        let from = arguments.from_line.unwrap_or(1).max(1);
        let start = source.line_start(from);
        let end = match arguments.to_line {
            Some(to) if to < from => None,
            Some(to) => source.line_start(to.saturating_add(1)).or(Some(bytes)),
            None => Some(bytes),
        };
        (start, end)
    } else {
        let start = Some(arguments.from_byte.unwrap_or(0));
        (start, Some(arguments.to_byte.unwrap_or(bytes).min(bytes)))
    };
    match (start, end) {
        // An empty text has no range with anything in it. Reading all of it is not an error.
        (None | Some(0), _) if bytes == 0 => Ok(0..0),
        (Some(start), Some(end)) if start < end => Ok(start..end),
        _ => Err(invalid(format!(
            "the range is empty: {} has {bytes} bytes in {} lines",
            arguments.id,
            source.lines()
        ))),
    }
}

impl StoredText {
    fn of(context: &Context<'_>, session: SessionId, id: Id) -> Result<Self, EngineError> {
        let store = &context.session.store;
        let text = match id {
            Id::File(file) => store.payload_text(context.file(session, file)?.id)?,
            Id::Message(id) => {
                let message = store.message(session, id)?;
                match message.row.payload {
                    Some(_) => message.text,
                    None => message.body(),
                }
            }
            Id::Summary(id) => context.summary(session, id)?.text,
        };
        Ok(Self(text))
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn lines(&self) -> u64 {
        self.0.split_inclusive('\n').count() as u64
    }

    /// Returns the byte at which a line starts. Lines count from 1. Returns None if the text has
    /// fewer lines.
    fn line_start(&self, line: u64) -> Option<u64> {
        let skipped = usize::try_from(line - 1).unwrap_or(usize::MAX);
        let mut lines = self.0.split_inclusive('\n');
        let start = (lines.by_ref().take(skipped).map(str::len)).sum::<usize>();
        lines.next().map(|_| start as u64)
    }

    /// Returns the text of a range of bytes, with the byte at which it starts. If the range starts or
    /// ends within a character, it is widened to include it.
    fn part(&self, range: Range<u64>) -> (usize, &str) {
        let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        let start = self.0.floor_char_boundary(at(range.start));
        let end = self.0.ceil_char_boundary(at(range.end));
        (start, self.0.get(start..end).unwrap_or(""))
    }
}

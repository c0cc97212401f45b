//! `lcm_read`: a stored text by line or byte range.

use std::ops::Range;

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{MAX_BYTES_A_TOKEN, longest, within};
use super::{Context, Id, cursor_schema, invalid, max_tokens_schema, object, session_schema};
use crate::store::nodes;
use crate::store::{PayloadId, PayloadPart, SessionId};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
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
            "to_byte": place("Or: the byte after the last", 0),
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &["id"],
    )
}

/// What is read.
enum StoredText {
    Inline(String),
    Aside {
        file: PayloadId,
        bytes: u64,
        lines: u64,
    },
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let source = StoredText::of(context, session, Id::parse(&arguments.id)?)?;
    let (bytes, lines) = (source.bytes(), source.lines());
    let range = range(context, &source, &arguments)?;
    let start = match &arguments.cursor {
        None => range.start,
        Some(cursor) => (cursor.parse().ok())
            .filter(|start| range.contains(start))
            .ok_or_else(|| {
                invalid(format!(
                    "`{cursor}` is no cursor of this lcm_read; repeat the id and range it came with"
                ))
            })?,
    };
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room, meter| {
        let reach = room.saturating_mul(MAX_BYTES_A_TOKEN as u64);
        let part = source.part(context, start..range.end.min(start.saturating_add(reach)))?;
        let answer = |end: usize| {
            let next = part.first_byte + end as u64;
            json!({
                "id": arguments.id,
                "first_line": part.first_line,
                "first_byte": part.first_byte,
                "end_byte": next,
                "total_bytes": bytes,
                "total_lines": lines,
                "text": part.text.get(..end).unwrap_or(""),
                "next_cursor": (next < range.end).then(|| next.to_string()),
            })
        };
        let end = match longest(&part.text, 0, room, meter, answer) {
            // One character at least, so that there is always progress.
            0 => part.text.chars().next().map_or(0, char::len_utf8),
            end => end,
        };
        Ok(answer(end))
    })
}

/// The requested bytes.
fn range(
    context: &Context<'_>,
    source: &StoredText,
    arguments: &Arguments,
) -> Result<Range<u64>, EngineError> {
    let by_line = arguments.from_line.is_some() || arguments.to_line.is_some();
    let by_byte = arguments.from_byte.is_some() || arguments.to_byte.is_some();
    if by_line && by_byte {
        return Err(invalid("lcm_read takes lines or bytes, not both"));
    }
    let bytes = source.bytes();
    let (start, end) = if by_line {
        let from = arguments.from_line.unwrap_or(1).max(1);
        let start = source.line_start(context, from)?;
        let end = match arguments.to_line {
            Some(to) if to < from => None,
            Some(to) => source
                .line_start(context, to.saturating_add(1))?
                .or(Some(bytes)),
            None => Some(bytes),
        };
        (start, end)
    } else {
        let start = Some(arguments.from_byte.unwrap_or(0));
        (start, Some(arguments.to_byte.unwrap_or(bytes).min(bytes)))
    };
    match (start, end) {
        // Of nothing, all can be read.
        (None | Some(0), _) if bytes == 0 => Ok(0..0),
        (Some(start), Some(end)) if start < end => Ok(start..end),
        _ => Err(invalid(format!(
            "there is nothing in this range: {} has {bytes} bytes in {} lines",
            arguments.id,
            source.lines()
        ))),
    }
}

impl StoredText {
    fn of(context: &Context<'_>, session: SessionId, id: Id) -> Result<Self, EngineError> {
        let store = &context.session.store;
        match id {
            Id::File(file) => Self::aside(context, session, file),
            Id::Message(id) => {
                let message = store.message(session, id)?;
                match message.row.payload {
                    Some(file) => Self::aside(context, session, file),
                    None => Ok(Self::Inline(message.body())),
                }
            }
            Id::Summary(id) => match nodes::node(store, session, id)? {
                Some(placed) => Ok(Self::Inline(placed.node.text)),
                None => Err(invalid(format!("there is no summary {id} in this session"))),
            },
        }
    }

    fn aside(
        context: &Context<'_>,
        session: SessionId,
        file: PayloadId,
    ) -> Result<Self, EngineError> {
        let info = context.file(session, file)?;
        Ok(Self::Aside {
            file,
            bytes: info.bytes,
            lines: info.lines,
        })
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Inline(text) => text.len() as u64,
            Self::Aside { bytes, .. } => *bytes,
        }
    }

    fn lines(&self) -> u64 {
        match self {
            Self::Inline(text) => text.split_inclusive('\n').count() as u64,
            Self::Aside { lines, .. } => *lines,
        }
    }

    /// The start of a line, counted from 1; none if there are fewer lines.
    fn line_start(&self, context: &Context<'_>, line: u64) -> Result<Option<u64>, EngineError> {
        match self {
            Self::Aside { file, .. } => {
                Ok(context.session.store.payload_line_start(*file, line)?)
            }
            Self::Inline(text) => {
                let skipped = usize::try_from(line - 1).unwrap_or(usize::MAX);
                let mut lines = text.split_inclusive('\n');
                let start = (lines.by_ref().take(skipped).map(str::len)).sum::<usize>();
                Ok(lines.next().map(|_| start as u64))
            }
        }
    }

    /// The bytes of a range, widened to whole characters.
    fn part(&self, context: &Context<'_>, range: Range<u64>) -> Result<PayloadPart, EngineError> {
        match self {
            Self::Aside { file, .. } => {
                Ok(context.session.store.read_payload_bytes(*file, range)?)
            }
            Self::Inline(text) => {
                let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
                let start = text.floor_char_boundary(at(range.start));
                let end = text.ceil_char_boundary(at(range.end));
                let before = &text.as_bytes()[..start];
                Ok(PayloadPart {
                    text: text.get(start..end).unwrap_or("").to_owned(),
                    first_byte: start as u64,
                    first_line: memchr::memchr_iter(b'\n', before).count() as u64 + 1,
                })
            }
        }
    }
}

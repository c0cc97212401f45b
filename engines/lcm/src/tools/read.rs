//! `lcm_read`: a stored message or file by line or byte range.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{char_start, piece_end};
use super::{
    Context, Id, bounded, cursor_schema, invalid, max_tokens_schema, object, session_schema,
};
use crate::store::{PayloadId, PayloadPart, SessionId};

/// Tokens set aside for what stands around the text.
const FRAME_TOKENS: u64 = 80;
/// No tokenizer makes fewer tokens than this many bytes each, for long.
const MAX_BYTES_A_TOKEN: u64 = 16;

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
            "id": {"type": "string", "description": "A message (m34) or a file (f5)"},
            "from_line": place("The first line, from 1", 1),
            "to_line": place("The last line", 1),
            "from_byte": place("The first byte, from 0", 0),
            "to_byte": place("The byte after the last", 0),
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &["id"],
    )
}

/// What is read.
enum Source {
    Inline(String),
    Aside(PayloadId, u64, u64),
}

impl Source {
    fn bytes(&self) -> u64 {
        match self {
            Self::Inline(text) => text.len() as u64,
            Self::Aside(_, bytes, _) => *bytes,
        }
    }

    fn lines(&self) -> u64 {
        match self {
            Self::Inline(text) => text.lines().count() as u64,
            Self::Aside(_, _, lines) => *lines,
        }
    }
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let source = source(context, session, Id::parse(&arguments.id)?)?;
    let total = source.bytes();
    let by_line = arguments.from_line.is_some() || arguments.to_line.is_some();
    let by_byte = arguments.from_byte.is_some() || arguments.to_byte.is_some();
    if by_line && by_byte {
        return Err(invalid("lcm_read takes lines or bytes, not both"));
    }
    let range = match by_line {
        true => {
            let from = arguments.from_line.unwrap_or(1).max(1);
            let to = arguments.to_line.unwrap_or(u64::MAX - 1);
            line_bytes(context, &source, from, to)?
        }
        false => arguments.from_byte.unwrap_or(0)..arguments.to_byte.unwrap_or(total).min(total),
    };
    let start = match &arguments.cursor {
        None => range.start,
        Some(cursor) => cursor
            .parse()
            .map_err(|_| invalid(format!("`{cursor}` is no cursor of lcm_read")))?,
    };
    if start > range.end || range.start > total {
        return Err(invalid(format!(
            "{} has {total} bytes in {} lines; the range begins after its end",
            arguments.id,
            source.lines()
        )));
    }
    let room = bounded(arguments.max_tokens)
        .saturating_sub(FRAME_TOKENS)
        .max(20);
    let end = range
        .end
        .min(start.saturating_add(room * MAX_BYTES_A_TOKEN));
    let part = bytes(context, &source, start..end)?;
    let cut = piece_end(&part.text, 0, room, &context.session.services);
    let next = part.first_byte + cut as u64;
    Ok(json!({
        "id": arguments.id,
        "text": part.text.get(..cut).unwrap_or(""),
        "first_line": part.first_line,
        "first_byte": part.first_byte,
        "end_byte": next,
        "total_bytes": total,
        "total_lines": source.lines(),
        "next_cursor": (next < range.end).then(|| next.to_string()),
    }))
}

fn source(context: &Context<'_>, session: SessionId, id: Id) -> Result<Source, EngineError> {
    let store = &context.session.store;
    let aside = |file: PayloadId| -> Result<Source, EngineError> {
        let info = store.payload_info(file)?;
        match info.session == session {
            true => Ok(Source::Aside(file, info.bytes, info.lines)),
            false => Err(invalid(format!(
                "there is no file f{} in this session",
                file.0
            ))),
        }
    };
    match id {
        Id::File(file) => aside(file),
        Id::Message(id) => {
            let message = store.message(session, id)?;
            match message.row.payload {
                Some(file) => aside(file),
                None => Ok(Source::Inline(message.text)),
            }
        }
        Id::Summary(_) => Err(invalid(
            "lcm_read takes a message or a file; a summary is expanded with lcm_expand",
        )),
    }
}

/// The bytes of the lines `from` to `to`, counted from 1.
fn line_bytes(
    context: &Context<'_>,
    source: &Source,
    from: u64,
    to: u64,
) -> Result<std::ops::Range<u64>, EngineError> {
    match source {
        Source::Inline(text) => {
            let start_of = |line: u64| -> u64 {
                let skipped = usize::try_from(line - 1).unwrap_or(usize::MAX);
                let lines = text.split_inclusive('\n').take(skipped);
                lines.map(|line| line.len() as u64).sum()
            };
            Ok(start_of(from)..start_of(to.saturating_add(1)))
        }
        Source::Aside(file, ..) => {
            let lines = from..to.saturating_add(1);
            let part = context.session.store.read_payload_lines(*file, lines)?;
            Ok(part.first_byte..part.first_byte + part.text.len() as u64)
        }
    }
}

fn bytes(
    context: &Context<'_>,
    source: &Source,
    range: std::ops::Range<u64>,
) -> Result<PayloadPart, EngineError> {
    match source {
        Source::Aside(file, ..) => Ok(context.session.store.read_payload_bytes(*file, range)?),
        Source::Inline(text) => {
            let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
            let start = char_start(text, at(range.start));
            let end = (at(range.end)..=text.len())
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(text.len());
            Ok(PayloadPart {
                text: text.get(start..end).unwrap_or("").to_owned(),
                first_byte: start as u64,
                first_line: text.as_bytes()[..start]
                    .iter()
                    .filter(|b| **b == b'\n')
                    .count() as u64
                    + 1,
            })
        }
    }
}

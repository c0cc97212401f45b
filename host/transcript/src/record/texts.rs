//! The text of a session's messages, and the artifacts that engines store with a session.
//!
//! A wire message is stored once, as the client sent it, for all messages in it. Each text is
//! compressed on its own and has a checksum, so one damaged byte costs one wire message and not the
//! whole transcript. What texts of a session have in common is in its `dictionary`.
//!
//! [`NewText`] and [`NewArtifact`] are what a save writes. Reading is done by the methods of
//! [`Record`]: [`Record::transcript`] serves engines page by page, and [`Record::conversation`]
//! returns the conversation as it stands.

use std::borrow::Cow;
use std::sync::Arc;

use contexture_engine_api::{
    MessageId, OwnedMessage, ToolCallView, TranscriptPage, TranscriptRange,
};
use contexture_formats::{self as formats, Conversation, Format, KnownCalls, WireReading};
use contexture_secrets::mask_secrets;
use serde::Serialize;
use serde_json::Value;
use zstd::zstd_safe::CDict;

use super::{Record, StoredSession};
use crate::error::RecordError;
use crate::rows::message_id;
use crate::store::{
    ArtifactChange, MessagePage, MessageRow, NewTextRow, Packed, PageRange, Select, TextPart,
    TextRow,
};

/// The number of bytes of wire messages after which a page of the transcript ends: 4 MB. It limits
/// the memory that an engine needs for one page.
const PAGE_BYTES: usize = 4 << 20;

/// How many wire messages are read at once. The compressed texts of a long conversation are then
/// never all in memory.
pub(super) const TEXTS: usize = 200;

/// A wire message that is to be stored.
#[derive(Debug, Clone)]
pub struct NewText {
    /// The conversation that has the wire message.
    pub conversation: Arc<Conversation>,
    /// The index of the first message of the conversation that stands in the wire message.
    pub message: usize,
    /// The messages in it that belong to the session: the index within the wire message, and the
    /// id.
    pub parts: Vec<(usize, MessageId)>,
}

impl NewText {
    /// Whether it is the wire message of this conversation whose first message has the index
    /// `first`.
    pub fn is_wire(&self, of: &Arc<Conversation>, first: usize) -> bool {
        Arc::ptr_eq(&self.conversation, of) && self.message == first
    }
}

/// An artifact that is to be stored, or to be deleted if there is no text.
#[derive(Debug, Clone)]
pub struct NewArtifact {
    /// The engine that stores it.
    pub engine: String,
    /// A name of the engine's choice.
    pub name: String,
    /// The text. None deletes the artifact.
    pub text: Option<String>,
}

/// A message that was read back: its wire message as a conversation, and its index in that.
#[derive(Debug, Clone)]
pub struct StoredMessage {
    /// The id of the message.
    pub id: MessageId,
    /// When it was said, in milliseconds since the Unix epoch, if the client's document tells.
    pub said_ms: Option<i64>,
    /// Its wire message as a conversation.
    pub conversation: Arc<Conversation>,
    /// The index of the message in it.
    pub part: usize,
}

/// The JSON of a wire message as it is stored, before it is compressed, and how its messages are
/// read from it.
pub(super) struct RawText<'a> {
    pub(super) json: Cow<'a, str>,
    reading: Option<WireReading>,
}

impl NewText {
    /// The JSON to store. If `redacts` is set, passwords and keys are masked.
    pub(super) fn raw(&self, redacts: bool) -> RawText<'_> {
        let raw = self.conversation.raw(self.message);
        let reading = self.conversation.wire_reading(self.message);
        let (json, reading) = match (reading, redacts) {
            (Some(reading), true) => {
                let (json, reading) = reading.masked(raw, mask_secrets);
                (json, Some(reading))
            }
            (None, true) => (mask_secrets(raw), None),
            (reading, false) => (Cow::Borrowed(raw), reading),
        };
        RawText { json, reading }
    }

    /// The row to store for the text that [`raw`](Self::raw) returned. If `redacts` is set,
    /// passwords and keys are masked.
    pub(super) fn row(
        &self,
        raw: &RawText<'_>,
        redacts: bool,
        encoder: Option<&CDict<'_>>,
    ) -> std::io::Result<NewTextRow> {
        let conversation = &self.conversation;
        let messages = (conversation.messages().get(self.message..)).unwrap_or_default();
        // The messages of one wire message follow each other.
        let in_it = messages
            .chunk_by(|one, next| one.items == next.items)
            .next();
        let in_it = in_it.unwrap_or_default();
        // A result names only its call, and the call is in another wire message. Without the tool's
        // name the result could not be read on its own. A call id is masked as in the message, or
        // it would not be found there. The order tells which call a result without an id answers.
        let tools: serde_json::Map<String, Value> = (in_it.iter())
            .filter_map(|message| {
                let (id, name) = (
                    message.tool_call_id.as_deref()?,
                    message.tool_name.as_deref()?,
                );
                Some(match redacts {
                    true => (mask_secrets(id).into(), mask_secrets(name).into()),
                    false => (id.to_owned(), name.into()),
                })
            })
            .collect();
        let parts = self.parts.iter().map(|(part, id)| TextPart {
            id: id.0.cast_signed(),
            part: *part as i64,
            said_ms: in_it.get(*part).and_then(|message| message.time_ms),
        });
        let row = TextRow {
            number: 0,
            format: conversation.format().name().to_owned(),
            tools: json_of((!tools.is_empty()).then_some(&tools))?,
            reading: json_of(raw.reading.as_ref())?,
            text: Packed::of(raw.json.as_bytes(), encoder)?,
        };
        Ok(NewTextRow {
            row,
            parts: parts.collect(),
        })
    }
}

/// A value as JSON text. None if there is none.
fn json_of(value: Option<&impl Serialize>) -> std::io::Result<Option<String>> {
    let json = value.map(serde_json::to_string).transpose();
    json.map_err(std::io::Error::other)
}

impl NewArtifact {
    /// The row to store.
    pub(super) fn row(&self, encoder: Option<&CDict<'_>>) -> std::io::Result<ArtifactChange> {
        let text = self.text.as_deref();
        let packed = text.map(|text| Packed::of(text.as_bytes(), encoder));
        Ok(ArtifactChange {
            engine: self.engine.clone(),
            name: self.name.clone(),
            text: packed.transpose()?,
        })
    }
}

/// Parses a wire message with this JSON. None if its format is unknown, or if its text is not valid
/// in it.
fn conversation_of(row: &TextRow, text: &str) -> Option<Conversation> {
    let format: Format = row.format.parse().ok()?;
    let tools = (row.tools.as_deref()).and_then(|tools| serde_json::from_str(tools).ok());
    let tools: serde_json::Map<String, Value> = tools.unwrap_or_default();
    let calls = (tools.into_iter()).filter_map(|(id, name)| Some((id, name.as_str()?.to_owned())));
    let mut calls: KnownCalls = calls.collect();
    if let Some(reading) = &row.reading {
        let reading: WireReading = serde_json::from_str(reading).ok()?;
        return formats::excerpt_with(format, text, &reading, &mut calls).ok();
    }
    let lines = formats::item_lines(text);
    let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
    formats::excerpt(format, &lines, &mut calls).ok()
}

impl StoredMessage {
    /// The message in the form that engines read. Tokens are not counted for a transcript.
    fn owned(&self) -> Option<OwnedMessage> {
        let message = self.conversation.messages().get(self.part)?;
        let calls: Vec<_> = (message.calls.iter())
            .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
            .collect();
        let view = message
            .view(self.id, self.conversation.raw(self.part), &calls)
            .with_tokens(0);
        Some(OwnedMessage::from(&view).time_ms(self.said_ms))
    }
}

impl StoredSession {
    /// The stored messages with these ids, and those that share a wire message with them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn messages(&self, ids: &[MessageId]) -> Result<Vec<StoredMessage>, RecordError> {
        let (record, session) = (&self.record, &self.key.session);
        let places = (record.store).messages(session, Select::SharingWire(ids))?;
        record.messages_at(session, &places.unwrap_or_default())
    }

    /// The messages of the conversation, earlier forms included, whose text is not stored.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn without_text(&self) -> Result<Vec<MessageId>, RecordError> {
        let store = &self.record.store;
        let rows = store.messages(&self.key.session, Select::WithoutText)?;
        let rows = rows.unwrap_or_default().into_iter();
        Ok(rows.map(|row| message_id(row.id)).collect())
    }
}

impl Record {
    /// Reads the messages at these places. If a wire message is missing or damaged, its messages are
    /// left out.
    fn messages_at(
        &self,
        session: &str,
        places: &[MessageRow],
    ) -> Result<Vec<StoredMessage>, RecordError> {
        let runs: Vec<_> = places.chunk_by(|one, next| one.wire == next.wire).collect();
        let mut messages = Vec::with_capacity(places.len());
        for runs in runs.chunks(TEXTS) {
            let numbers: Vec<i64> = runs.iter().filter_map(|run| run.first()?.wire).collect();
            let mut texts = self.store.texts(session, &numbers)?.into_iter().peekable();
            for run in runs {
                let wire = run.first().and_then(|place| place.wire);
                // The store leaves out what it does not have and keeps the order, so the next text
                // belongs to this run or to a later one.
                let text = texts.next_if(|text| Some(text.number) == wire);
                let Some(row) = text else { continue };
                let text = self.unpack(session, &row.text)?;
                let conversation = text.and_then(|text| conversation_of(&row, &text));
                let Some(conversation) = conversation else {
                    continue;
                };
                let conversation = Arc::new(conversation);
                messages.extend(run.iter().map(|place| StoredMessage {
                    id: message_id(place.id),
                    said_ms: place.said_ms,
                    conversation: Arc::clone(&conversation),
                    part: place.part.unwrap_or_default() as usize,
                }));
            }
        }
        Ok(messages)
    }

    /// Messages of a session as an engine reads them. `range` selects them by id, or page by page
    /// in the order of arrival. Messages whose text is not stored or is damaged are left out.
    /// Returns `None` if there is no such session.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn transcript(
        &self,
        session: &str,
        range: &TranscriptRange,
    ) -> Result<Option<TranscriptPage>, RecordError> {
        let page = match range.ids.is_empty() {
            true => {
                let page = PageRange {
                    after: range.after.unwrap_or_default(),
                    outdated: range.outdated,
                    limit: range.limit,
                    bytes: (!range.without_messages).then_some(PAGE_BYTES),
                };
                self.store.page(session, page)?
            }
            false => {
                let rows = self.store.messages(session, Select::Ids(&range.ids))?;
                rows.map(|mut messages| {
                    messages.retain(|place| range.outdated || !place.is_outdated);
                    MessagePage {
                        messages,
                        has_more: false,
                    }
                })
            }
        };
        let Some(MessagePage {
            messages: places,
            has_more,
        }) = page
        else {
            return Ok(None);
        };
        let found = match range.without_messages {
            true => Vec::new(),
            false => self.messages_at(session, &places)?,
        };
        let messages = found.iter().filter_map(StoredMessage::owned).collect();
        let id = |place: &MessageRow| message_id(place.id);
        let outdated = places.iter().filter(|place| place.is_outdated).map(id);
        let hashes = places.iter().map(|place| {
            let identity = u128::from_le_bytes(place.identity);
            (id(place), identity as u64)
        });
        let is_untimed = |place: &&MessageRow| !range.without_messages && place.said_ms.is_none();
        let untimed = places.iter().filter(is_untimed);
        let arrived = untimed.filter_map(|place| Some((id(place), place.arrived_ms?)));
        let revisions =
            (places.iter()).filter_map(|place| Some((id(place), message_id(place.replaces?))));
        let next = places.last().filter(|_| has_more).map(id);
        let page = TranscriptPage::default()
            .messages(messages)
            .outdated(outdated.collect())
            .revisions(revisions.collect())
            .hashes(hashes.collect())
            .arrived(arrived.collect())
            .next(next);
        Ok(Some(page))
    }

    /// The text of an artifact of an engine. `None` if there is none, or if it is damaged.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn artifact(
        &self,
        session: &str,
        engine: &str,
        name: &str,
    ) -> Result<Option<String>, RecordError> {
        let packed = self.store.artifact(session, engine, name)?;
        let text = packed.map(|packed| self.unpack(session, &packed));
        Ok(text.transpose()?.flatten())
    }

    /// The names of an engine's artifacts that begin with `prefix`, in alphabetical order.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn artifacts(
        &self,
        session: &str,
        engine: &str,
        prefix: &str,
    ) -> Result<Vec<String>, RecordError> {
        self.store.artifact_names(session, engine, prefix)
    }
}

//! Rows as values: what the columns of a [`Store`](crate::store::Store) mean.
//!
//! Both backends return the same rows, so everything that can be wrong with a row is checked here,
//! once. Every function that reads a row returns what is wrong with it, in words, if it makes no
//! sense. The backend adds the file or the server and makes an error of it.
//!
//! [`logged`], [`wire_log`], [`host_text`] and [`window`] read one kind of row each. [`problem`]
//! checks all rows of a session together, as `sessions verify` does. Compressed texts are read by
//! `packed`.

use std::collections::HashSet;

use contexture_engine_api::MessageId;

use crate::host_text::HostText;
use crate::message_log::{Fingerprint, Logged, chain_link};
use crate::packed::Dictionary;
use crate::saved_window::SavedWindow;
use crate::store::{
    DICTIONARY, DICTIONARY_COPY, MessageRow, Packed, SessionDump, WireRow, WrittenRow,
};
use crate::wire_entries::{UNIT_BYTES, decode};
use crate::wire_log::WireLog;

/// A message id from its column. Databases have no unsigned integers, so ids are stored as signed
/// ones with the same bits. Ids count from one, so in practice none is negative.
pub(crate) fn message_id(id: i64) -> MessageId {
    MessageId(id.cast_unsigned())
}

/// A message of the log, from its row. Every row has a value: what is wrong with it shows only in
/// the chain, see [`broken_link`].
pub(crate) fn logged(row: &MessageRow) -> Logged {
    Logged {
        id: message_id(row.id),
        fingerprint: Fingerprint {
            identity: u128::from_le_bytes(row.identity),
            shape: row.shape.cast_unsigned(),
        },
        chain: row.chain.cast_unsigned(),
        replaces: row.replaces.map(message_id),
    }
}

/// The last message of a log whose chain hash does not follow from the message before it. Messages
/// up to `recovered` are not checked, because some of them are known to be lost. None if the chain
/// is unbroken.
///
/// It is the last and not the first one, because a repair accepts everything up to it as recovered:
/// after it the log is whole.
pub(crate) fn broken_link(log: &[Logged], recovered: MessageId) -> Option<MessageId> {
    let (mut chain, mut broken) = (0, None);
    for logged in log {
        let follows = chain_link(chain, logged.id, logged.fingerprint.identity);
        // The stored hash is continued, not the computed one. Otherwise one damaged row would make
        // every later message look broken.
        chain = logged.chain;
        if follows != chain && logged.id > recovered {
            broken = Some(logged.id);
        }
    }
    broken
}

/// A wire log, from its rows in the order of their places.
///
/// # Errors
/// A wire message is missing or its list of messages is incomplete. A log with a gap must not be
/// used: the places of all later wire messages would be wrong, and the session would take them for
/// others.
pub(crate) fn wire_log<'a>(rows: impl Iterator<Item = &'a WireRow>) -> Result<WireLog, String> {
    let mut log = WireLog::default();
    for row in rows {
        let (records, rest) = row.messages.as_chunks::<UNIT_BYTES>();
        if !rest.is_empty() {
            return Err("a wire message's list of messages is cut off".to_owned());
        }
        if row.place != log.raw.len() as i64 {
            return Err("a wire message is missing".to_owned());
        }
        log.push(&[row.raw.cast_unsigned()], records.iter().map(decode));
    }
    Ok(log)
}

/// A text that the host wrote in a session. `id` is the session's id, for the error. It fails if
/// the list of covered messages is not valid JSON.
pub(crate) fn host_text(row: &WrittenRow, id: &str) -> Result<HostText, String> {
    let covers = serde_json::from_str(&row.covers)
        .map_err(|error| format!("what was written in session `{id}`: {error}"))?;
    Ok(HostText {
        identity: u128::from_le_bytes(row.identity),
        id: message_id(row.id),
        shortens: row.shortens,
        covers,
    })
}

/// The window of a compaction. `id` is the session's id, for the error. It fails if the window is
/// not valid JSON, or lacks a field that this program needs.
pub(crate) fn window(entries: &str, id: &str) -> Result<SavedWindow, String> {
    serde_json::from_str(entries)
        .map_err(|error| format!("the compaction of session `{id}`: {error}"))
}

/// What of a session makes no sense or cannot be read. `id` is the session's id, for the message.
/// Returns the first problem that is found, because one is enough to call the session damaged.
pub(crate) fn problem(session: &SessionDump, id: &str) -> Option<String> {
    let row = &session.row;
    let in_log = || session.messages.iter().filter(|row| !row.cut);
    if in_log()
        .next_back()
        .is_some_and(|last| last.id >= row.next_id)
    {
        // The next message would get an id that is in use, and engines would take the two for one.
        return Some("a message has an id that is not given yet".to_owned());
    }
    let log: Vec<Logged> = in_log().map(logged).collect();
    if let Some(id) = broken_link(&log, message_id(row.recovered.unwrap_or_default())) {
        return Some(format!(
            "what is recorded of {id} does not follow from the message before it"
        ));
    }
    // Each form is a log of its own, with places that begin at zero. The rows are sorted by form.
    let forms = session.wire.chunk_by(|one, next| one.form == next.form);
    let wires = forms.map(|rows| wire_log(rows.iter()).map(|_| ()));
    let texts = session.written.iter();
    let texts = texts.map(|row| host_text(row, id).map(|_| ()));
    let compaction = session.compaction.iter();
    let compaction = compaction.map(|row| window(&row.entries, id).map(|_| ()));
    let mut rows = wires.chain(texts).chain(compaction);
    rows.find_map(Result::err).or_else(|| {
        let damaged = Damage::of(session).lines();
        (!damaged.is_empty()).then(|| format!("{} cannot be read", damaged.join(" and ")))
    })
}

/// The compressed texts of a session that cannot be read.
pub(crate) struct Damage {
    /// The messages whose text is missing or damaged.
    pub(crate) texts: Vec<MessageId>,
    /// The damaged artifacts of engines, as pairs of engine and name.
    pub(crate) artifacts: Vec<(String, String)>,
    /// The dictionary of the session, if there is one and a copy of it can be read.
    pub(crate) dictionary: Option<Dictionary>,
    /// Whether both copies of the dictionary are sound, or there are none.
    pub(crate) has_whole_dictionary: bool,
}

impl Damage {
    /// Decompresses each text of the session once, so this takes time.
    pub(crate) fn of(session: &SessionDump) -> Self {
        let (engine, name) = DICTIONARY_COPY;
        let copies = [
            (session.texts.iter())
                .find(|row| row.number == DICTIONARY)
                .map(|row| &row.text),
            (session.artifacts.iter())
                .find(|row| row.engine == engine && row.name == name)
                .and_then(|row| row.text.as_ref()),
        ];
        let (dictionary, has_whole_dictionary) = Dictionary::of_copies(copies);
        let is_whole = |text: &Packed| text.text(dictionary.as_ref()).is_some();
        let whole = session.texts.iter().filter(|row| is_whole(&row.text));
        let whole: HashSet<i64> = whole.map(|row| row.number).collect();
        let texts = (session.messages.iter())
            .filter(|row| row.wire.is_some_and(|wire| !whole.contains(&wire)))
            .map(|row| message_id(row.id));
        let artifacts = (session.artifacts.iter())
            .filter(|row| row.engine != engine && !row.text.as_ref().is_none_or(is_whole))
            .map(|row| (row.engine.clone(), row.name.clone()));
        Self {
            texts: texts.collect(),
            artifacts: artifacts.collect(),
            dictionary,
            has_whole_dictionary,
        }
    }

    /// Describes the damage: one line for all texts, with at most ten ids, one for each artifact,
    /// and one for the dictionary if its copies are not whole. A transcript can lose thousands of
    /// texts at once, and their ids would bury everything else that the user has to read.
    pub(crate) fn lines(&self) -> Vec<String> {
        let named: Vec<String> = (self.texts.iter().take(10))
            .map(MessageId::to_string)
            .collect();
        let of_texts = (!self.texts.is_empty()).then(|| {
            format!(
                "the text of {} messages ({})",
                self.texts.len(),
                named.join(", ")
            )
        });
        let of_artifacts = (self.artifacts.iter())
            .map(|(engine, name)| format!("what the engine `{engine}` stored as `{name}`"));
        let of_dictionary =
            (!self.has_whole_dictionary).then(|| "a copy of its dictionary".to_owned());
        (of_texts.into_iter().chain(of_artifacts))
            .chain(of_dictionary)
            .collect()
    }
}

//! Reading a session from the record: [`Saved`] is what is stored of it, without the text of its
//! messages.
//!
//! Hashes and ids of the whole conversation are read at once: they are small, and the alignment of
//! the next request needs all of them. Text is read later and only on demand, by `texts`.

use contexture_engine_api::MessageId;
use contexture_formats::Format;
use contexture_formats::prompt_cache::Pauses;

use super::{InForce, WireForm};
use crate::host_text::HostText;
use crate::message_log::Logged;
use crate::rows;
use crate::store::Snapshot;
use crate::wire_log::WireLog;

/// What is known of a session as a whole.
#[derive(Debug, Clone, Default)]
pub struct SessionFacts {
    /// What the pauses between requests cost with each lifetime of the prompt cache.
    pub pauses: Pauses,
    /// The number of compactions so far, which is also the number of the last one.
    pub compactions: u64,
    /// The last message that was recovered from an engine's store. For messages up to it there is
    /// no record of what the host wrote.
    pub recovered: Option<MessageId>,
    /// The format of the last request.
    pub format: Option<Format>,
    /// What was learned from the provider's usage reports, in the session's own form. Empty if there
    /// is nothing.
    pub usage: String,
}

/// What the record has of a session. For a new one, everything but the next id is empty.
#[derive(Debug, Default)]
pub struct Saved {
    /// The id of the next new message.
    pub next_id: u64,
    /// The engine that was shown the messages. Empty for a new session.
    pub engine: String,
    /// The last message that the engine was shown.
    pub cursor: Option<MessageId>,
    /// A cut that the engine was not told of, as the last message that stays.
    pub pending_cut: Option<Option<MessageId>>,
    /// What is known of the session as a whole.
    pub facts: SessionFacts,
    /// Every message of the conversation in the order of arrival, earlier forms included.
    pub log: Vec<Logged>,
    /// What the client sent last.
    pub sent: WireLog,
    /// What was sent to the model in place of it.
    pub rendered: WireLog,
    /// The texts that the host wrote.
    pub host_texts: Vec<HostText>,
    /// The compaction in force.
    pub compaction: Option<InForce>,
}

impl Saved {
    /// Reads the rows of a session. `id` is the session's id, for the error.
    ///
    /// # Errors
    /// A value makes no sense. The error says which.
    pub(super) fn of(snapshot: &Snapshot, id: &str) -> Result<Self, String> {
        let row = &snapshot.session;
        // Zero stands for no message, as in a cut after which none stays.
        let last = |id: i64| (id > 0).then(|| rows::message_id(id));
        let wire = |form: WireForm| {
            let rows = snapshot.wire.iter();
            rows::wire_log(rows.filter(|row| row.form == form as i64))
        };
        let compaction = snapshot.compaction.as_ref().map(|row| {
            Ok::<_, String>(InForce {
                number: row.number.cast_unsigned(),
                engine: row.engine.clone(),
                window: rows::window(&row.entries, id)?,
            })
        });
        Ok(Self {
            next_id: row.next_id.cast_unsigned(),
            engine: row.engine.clone(),
            cursor: row.shown_last.and_then(last),
            pending_cut: row.pending_cut.map(last),
            facts: SessionFacts {
                pauses: Pauses::stored(row.pauses_more, row.pauses_saved),
                compactions: row.compactions.cast_unsigned(),
                recovered: row.recovered.map(rows::message_id),
                // A format that this program does not know counts as none. The next request sets it.
                format: row.format.parse().ok(),
                usage: row.usage.clone(),
            },
            log: snapshot.log.iter().map(rows::logged).collect(),
            sent: wire(WireForm::SentPrompt)?,
            rendered: wire(WireForm::Rendered)?,
            host_texts: (snapshot.written.iter())
                .map(|row| rows::host_text(row, id))
                .collect::<Result<_, _>>()?,
            compaction: compaction.transpose()?,
        })
    }
}

//! Writing what changed in a session to the record.

use std::collections::BTreeMap;
use std::sync::Arc;

use contexture_engine_api::{MessageId, Observed};
use contexture_formats::Format;
use contexture_formats::prompt_cache::Pauses;
use rusqlite::{Transaction, TransactionBehavior, params};

use super::texts::{NewArtifact, NewText, StoredMessage, rename, write_artifacts, write_texts};
use super::units::encode;
use super::{Form, InForce, Logged, Record, RecordError};
use crate::trail::Trail;
use crate::written::{IdSet, WrittenText};

/// What changed in a session. The record writes that and no more.
#[derive(Debug)]
pub(crate) struct SessionChange<'a> {
    pub(crate) next_id: u64,
    pub(crate) pauses: Pauses,
    pub(crate) compactions: u64,
    pub(crate) recovered: Option<MessageId>,
    pub(crate) format: Option<Format>,
    /// The usage that the provider reported, in the form of [`UsageMemory`](crate::state::UsageMemory).
    pub(crate) usage: &'a str,
    pub(crate) log: &'a [Logged],
    /// Where the log differs from what is stored.
    pub(crate) log_from: usize,
    pub(crate) sent: &'a Trail,
    pub(crate) sent_from: usize,
    pub(crate) handed: &'a Trail,
    pub(crate) handed_from: usize,
    /// The wire messages that are new in the log, if their text is kept.
    pub(crate) texts: &'a [NewText],
    /// Messages that have other ids now: the earlier one, and the new one.
    pub(crate) renamed: &'a [(MessageId, MessageId)],
    /// What engines stored.
    pub(crate) artifacts: &'a [NewArtifact],
    /// Whether what the host wrote before is nothing any more.
    pub(crate) forgot: bool,
    /// What the host wrote since.
    pub(crate) written: &'a [WrittenText],
    /// The compaction in force, where that changed.
    pub(crate) in_force: Option<Option<&'a InForce>>,
    /// How far the engine was shown the conversation, where that changed.
    pub(crate) shown: Option<(Option<Observed>, bool)>,
    /// What each engine lacks, by its name, where that changed.
    pub(crate) lacking: Option<BTreeMap<String, IdSet>>,
}

impl SessionChange<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        let from = [self.log_from, self.sent_from, self.handed_from];
        from == [usize::MAX; 3]
            && self.written.is_empty()
            && self.in_force.is_none()
            && self.shown.is_none()
            && self.lacking.is_none()
            && self.texts.is_empty()
            && self.artifacts.is_empty()
    }
}

/// A session in the store: what writes its changes.
#[derive(Debug)]
pub(crate) struct StoredSession {
    pub(super) record: Arc<Record>,
    pub(super) key: i64,
    /// The engine that it runs under.
    pub(crate) engine: String,
    /// Whether passwords and keys in texts are masked before they are written.
    pub(crate) redacts: bool,
}

impl StoredSession {
    pub(crate) fn is_in_file(&self) -> bool {
        !self.record.is_in_memory()
    }

    /// The stored messages of these ids.
    pub(crate) fn messages(&self, ids: &[MessageId]) -> Result<Vec<StoredMessage>, RecordError> {
        self.record.stored_messages(self.key, ids)
    }

    /// The current messages whose text is not stored.
    pub(crate) fn without_text(&self) -> Result<Vec<MessageId>, RecordError> {
        self.record.without_text(self.key)
    }

    /// Writes what changed, in one transaction.
    pub(crate) fn save(&self, change: &SessionChange<'_>) -> Result<(), RecordError> {
        self.write(|transaction| {
            let format = change.format.map_or("", Format::name);
            transaction
                .prepare_cached(
                    "UPDATE sessions SET next_id = ?2, format = ?3, compactions = max(compactions, ?4),
                         recovered = ?5, pauses_more = ?6, pauses_saved = ?7, usage = ?8
                     WHERE key = ?1",
                )?
                .execute(params![
                    self.key,
                    change.next_id.cast_signed(),
                    format,
                    change.compactions.cast_signed(),
                    change.recovered.map(|last| last.0.cast_signed()),
                    change.pauses.to_store().0,
                    change.pauses.to_store().1,
                    change.usage,
                ])?;
            if let Some((shown, remembers)) = change.shown {
                self.write_shown(transaction, shown, remembers)?;
            }
            if let Some(lacking) = &change.lacking {
                let lacking = serde_json::to_string(lacking)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
                transaction.execute(
                    "UPDATE sessions SET lacking = ?2 WHERE key = ?1",
                    params![self.key, lacking],
                )?;
            }
            rename(transaction, self.key, change.renamed)?;
            self.write_log(transaction, change)?;
            write_texts(transaction, self.key, change.texts, self.redacts)?;
            write_artifacts(transaction, self.key, change.artifacts)?;
            self.write_trail(transaction, Form::Sent, change.sent, change.sent_from)?;
            self.write_trail(transaction, Form::Handed, change.handed, change.handed_from)?;
            if change.forgot {
                transaction.execute("DELETE FROM written WHERE session = ?1", [self.key])?;
            }
            for text in change.written {
                self.write_text(transaction, text)?;
            }
            match change.in_force {
                Some(in_force) => self.write_compaction(transaction, in_force),
                None => Ok(()),
            }
        })
    }

    fn write_log(
        &self,
        transaction: &Transaction<'_>,
        change: &SessionChange<'_>,
    ) -> rusqlite::Result<()> {
        let Some(new) = change.log.get(change.log_from..) else {
            return Ok(());
        };
        let kept = change.log.get(..change.log_from).and_then(<[_]>::last);
        let kept = kept.map_or(0, |last| last.id.0).cast_signed();
        for cut in [
            "DELETE FROM messages WHERE session = ?1 AND id > ?2 AND wire IS NULL",
            "UPDATE messages SET cut = 1 WHERE session = ?1 AND id > ?2",
        ] {
            transaction.prepare_cached(cut)?.execute([self.key, kept])?;
        }
        let mut insert = transaction.prepare_cached(
            "INSERT INTO messages (session, id, identity, shape, chain, replaces)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET identity = excluded.identity, shape = excluded.shape, chain = excluded.chain,
                                       replaces = excluded.replaces, cut = 0,
                                       wire = CASE identity WHEN excluded.identity THEN wire END",
        )?;
        for message in new {
            insert.execute(params![
                self.key,
                message.id.0.cast_signed(),
                message.mark.identity.to_le_bytes(),
                message.mark.shape.cast_signed(),
                message.chain.cast_signed(),
                message.replaces.map(|old| old.0.cast_signed()),
            ])?;
        }
        Ok(())
    }

    fn write_trail(
        &self,
        transaction: &Transaction<'_>,
        form: Form,
        trail: &Trail,
        from: usize,
    ) -> rusqlite::Result<()> {
        if from == usize::MAX {
            return Ok(());
        }
        transaction
            .prepare_cached("DELETE FROM wire WHERE session = ?1 AND form = ?2 AND place >= ?3")?
            .execute(params![self.key, form as i64, from as i64])?;
        let mut insert = transaction.prepare_cached(
            "INSERT INTO wire (session, form, place, raw, messages) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut blob = Vec::new();
        for (place, raw) in trail.raw.iter().enumerate().skip(from) {
            blob.clear();
            for unit in trail.beginning_in(place) {
                encode(unit, &mut blob);
            }
            insert.execute(params![
                self.key,
                form as i64,
                place as i64,
                raw.cast_signed(),
                blob
            ])?;
        }
        Ok(())
    }

    fn write_shown(
        &self,
        transaction: &Transaction<'_>,
        shown: Option<Observed>,
        remembers: bool,
    ) -> rusqlite::Result<()> {
        transaction
            .prepare_cached(
                "UPDATE sessions SET engine = ?2, shown_last = ?3, shown_chain = ?4, remembers = ?5
                 WHERE key = ?1",
            )?
            .execute(params![
                self.key,
                self.engine,
                shown.map(|shown| shown.last.0.cast_signed()),
                shown.map(|shown| shown.chain.cast_signed()),
                remembers,
            ])?;
        Ok(())
    }

    fn write_text(
        &self,
        transaction: &Transaction<'_>,
        text: &WrittenText,
    ) -> rusqlite::Result<()> {
        let covers = serde_json::to_string(&text.covers)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO written (session, identity, id, shortens, covers)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                self.key,
                text.identity.to_le_bytes(),
                text.id.0.cast_signed(),
                text.shortens,
                covers
            ])?;
        Ok(())
    }

    fn write_compaction(
        &self,
        transaction: &Transaction<'_>,
        compaction: Option<&InForce>,
    ) -> rusqlite::Result<()> {
        let Some(compaction) = compaction else {
            transaction.execute("DELETE FROM compactions WHERE session = ?1", [self.key])?;
            return Ok(());
        };
        let entries = serde_json::to_string(&compaction.window)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction.execute(
            "INSERT OR REPLACE INTO compactions (session, number, engine, entries)
             VALUES (?1, ?2, ?3, ?4)",
            params![
                self.key,
                compaction.number.cast_signed(),
                compaction.engine,
                entries
            ],
        )?;
        Ok(())
    }

    fn write(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), RecordError> {
        let mut connection = self.record.lock();
        let run = || {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            work(&transaction)?;
            transaction.commit()
        };
        run().map_err(|error| self.record.error(error.into()))?;
        drop(connection);
        if !self.record.is_in_memory() {
            self.record.checkpoints.note_write(&self.record.path);
        }
        // What was written into a file that was removed is gone with it.
        match self.record.is_in_memory() || self.record.path.exists() {
            true => Ok(()),
            false => Err(RecordError::Gone {
                path: self.record.path.clone(),
            }),
        }
    }
}

//! Copying sessions from one store to another, whatever their kinds.
//!
//! A session is copied whole, in one transaction, and then read back and compared by a checksum over
//! everything that is stored of it. So a copy that was interrupted goes on with the sessions that are
//! not there yet: those that are there are equal, and are skipped.

use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::Record;
use crate::error::RecordError;
use crate::store::{Dump, Packed};

/// What became of a session that was to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyOutcome {
    /// It was copied, read back, and is equal.
    Copied,
    /// The other store had it already, and it is equal.
    Unchanged,
    /// The other store has a session of this name with other content. Nothing was written.
    Differs,
    /// There is no such session in this store.
    Missing,
}

impl Record {
    /// The names under which anything is stored, sorted. For some there are only texts of embedders.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn names(&self) -> Result<Vec<String>, RecordError> {
        self.store.names()
    }

    /// Copies a session with everything that is stored of it to another store. If that has a session
    /// of this name with other content, the session is copied only if `replaces` is set. It is locked
    /// in both stores meanwhile, for which this waits for at most `wait`.
    ///
    /// # Errors
    /// A store cannot be read or written, the session is open elsewhere, or what was read back is not
    /// what was written.
    pub fn copy_session(
        &self,
        to: &Self,
        session: &str,
        replaces: bool,
        wait: Duration,
    ) -> Result<CopyOutcome, RecordError> {
        to.is_itself()?;
        let _from = self.hold(session, wait)?;
        let Some(dump) = self.store.dump(session)? else {
            return Ok(CopyOutcome::Missing);
        };
        let checksum = dump.checksum();
        // Two copies in opposite directions would wait for each other here, but for no longer than
        // `wait`.
        let _to = to.hold(session, wait)?;
        if let Some(there) = to.store.dump(session)? {
            if there.checksum() == checksum {
                return Ok(CopyOutcome::Unchanged);
            }
            if !replaces {
                return Ok(CopyOutcome::Differs);
            }
        }
        to.store.restore(session, dump)?;
        // The original may be deleted after this, so the copy must be known to be readable.
        let back = to.store.dump(session)?;
        if back.is_none_or(|back| back.checksum() != checksum) {
            let what = format!("the copy of the session `{session}` is not equal to its original");
            return Err(to.store.damaged(what));
        }
        Ok(CopyOutcome::Copied)
    }
}

impl Dump {
    /// A checksum over everything, which does not depend on the kind of the store. Texts count in
    /// their compressed form, since a copy does not compress them again.
    fn checksum(&self) -> u64 {
        let mut sum = Checksum(Xxh3::new());
        for (name, text) in &self.kept {
            sum.text(name);
            sum.text(text);
        }
        let Some(session) = &self.session else {
            return sum.0.digest();
        };
        // Every column that is stored must be among these. A copy that lost one would be called
        // equal otherwise.
        sum.number(session.created_ms);
        sum.optional(session.used_ms);
        sum.optional(session.archived_ms);
        let row = &session.row;
        sum.number(row.next_id);
        sum.text(&row.engine);
        sum.text(&row.format);
        sum.optional(row.shown_last);
        sum.optional(row.pending_cut);
        sum.optional(row.recovered);
        sum.number(row.pauses_more);
        sum.number(row.pauses_saved);
        sum.number(row.compactions);
        sum.text(&row.usage);
        for message in &session.messages {
            sum.number(message.id);
            sum.bytes(&message.identity);
            sum.number(message.shape);
            sum.number(message.chain);
            sum.optional(message.replaces);
            sum.optional(message.said_ms);
            sum.optional(message.arrived_ms);
            sum.optional(message.wire);
            sum.optional(message.part);
            sum.number(message.cut.into());
        }
        for text in &session.texts {
            sum.number(text.number);
            sum.text(&text.format);
            sum.text(text.tools.as_deref().unwrap_or_default());
            sum.text(text.reading.as_deref().unwrap_or_default());
            sum.packed(&text.text);
        }
        for artifact in &session.artifacts {
            sum.text(&artifact.engine);
            sum.text(&artifact.name);
            if let Some(text) = &artifact.text {
                sum.packed(text);
            }
        }
        for wire in &session.wire {
            sum.number(wire.form);
            sum.number(wire.place);
            sum.number(wire.raw);
            sum.bytes(&wire.messages);
        }
        for text in &session.written {
            sum.bytes(&text.identity);
            sum.number(text.id);
            sum.number(text.shortens.into());
            sum.text(&text.covers);
        }
        if let Some(compaction) = &session.compaction {
            sum.number(compaction.number);
            sum.text(&compaction.engine);
            sum.text(&compaction.entries);
        }
        sum.0.digest()
    }
}

/// A hash in which every value has its length before it, so that no two lists of values are alike.
struct Checksum(Xxh3);

impl Checksum {
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn number(&mut self, number: i64) {
        self.0.update(&number.to_le_bytes());
    }

    fn optional(&mut self, number: Option<i64>) {
        self.0.update(&[u8::from(number.is_some())]);
        self.number(number.unwrap_or_default());
    }

    fn packed(&mut self, text: &Packed) {
        self.number(text.bytes);
        self.number(text.checksum);
        self.bytes(&text.data);
    }
}

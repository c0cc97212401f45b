//! The current conversation: the messages that were neither cut off nor replaced by a revision.
//!
//! The host decides what is current. Each row has a flag that repeats what the host said: messages
//! of a delivery are current, and messages after a cut and earlier forms of a revised message are
//! not. Rows are never deleted for that, since everything can still be found by search, and a later
//! cut can make an earlier form current again.
//!
//! [`CurrentMessages`] answers which messages belong to the conversation, as runs of ordinals. Runs
//! are compact, because most conversations are cut rarely.

use std::ops::Range;

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::sessions::info_in;
use super::{Key, SessionId, Store, query_all};
use crate::error::StoreError;

/// The messages of a session's current conversation, as runs of ordinals. It is a snapshot and does
/// not follow later deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CurrentMessages {
    session: SessionId,
    runs: Vec<Range<u32>>,
}

impl Store {
    /// Returns the current conversation of a session.
    ///
    /// # Errors
    /// Returns [`StoreError::SessionDeleted`] if there is no such session, or an error of the
    /// store.
    pub(crate) fn current_messages(
        &self,
        session: SessionId,
    ) -> Result<CurrentMessages, StoreError> {
        self.read(|connection| CurrentMessages::read(connection, session))
    }

    /// Returns the ordinals of the current messages as disjoint runs, in order.
    ///
    /// # Errors
    /// Returns [`StoreError::SessionDeleted`] if there is no such session, or an error of the
    /// store.
    pub fn current(&self, session: SessionId) -> Result<Vec<Range<u32>>, StoreError> {
        Ok(self.current_messages(session)?.runs)
    }
}

impl CurrentMessages {
    pub(crate) fn read(connection: &Connection, session: SessionId) -> Result<Self, StoreError> {
        let all = 0..info_in(connection, session)?.messages;
        let sql = "SELECT id FROM messages WHERE session = ?1 AND NOT is_current ORDER BY id";
        let ordinal = |row: &Row<'_>| Ok(Key(row.get(0)?).ordinal());
        let outdated: Vec<u32> = query_all(connection, sql, [session.0], ordinal)?;
        Ok(Self {
            session,
            runs: without(&[all], outdated.into_iter()),
        })
    }

    /// Returns whether a message is part of the conversation. It is false for messages of other
    /// sessions.
    pub(crate) fn contains(&self, key: Key) -> bool {
        // Runs are sorted and disjoint, so only the last one that starts before the message can contain
        // it.
        let after = self.runs.partition_point(|run| run.start <= key.ordinal());
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        key.session() == self.session && run.is_some_and(|run| run.contains(&key.ordinal()))
    }

    /// Returns the ordinals of the conversation as disjoint runs, in order.
    pub(crate) fn runs(&self) -> &[Range<u32>] {
        &self.runs
    }

    /// Returns how many messages the conversation has.
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.len() as u64).sum()
    }
}

/// Cuts the conversation back to the message `last`, or to nothing if that is None. Later messages
/// can still be found. If a later form of a message is cut off, the earlier form is current again.
pub(super) fn cut_in(
    transaction: &Transaction<'_>,
    session: SessionId,
    last: Option<MessageId>,
) -> Result<(), StoreError> {
    let last = last.map_or(-1, |last| last.0.cast_signed());
    let cut = params![session.0, last];
    transaction
        .prepare_cached(
            "WITH RECURSIVE earlier(id) AS (
                 SELECT replaces FROM messages WHERE session = ?1 AND host > ?2 AND replaces NOT NULL
                 UNION SELECT m.replaces FROM messages m JOIN earlier USING(id) WHERE m.replaces NOT NULL)
             UPDATE messages SET is_current = 1
             WHERE id IN (SELECT id FROM earlier) AND host <= ?2
                 AND NOT EXISTS(SELECT 1 FROM messages r WHERE r.replaces = messages.id AND r.host <= ?2)",
        )?
        .execute(cut)?;
    transaction
        .prepare_cached(
            "UPDATE messages SET is_current = 0, replaces = NULL
             WHERE session = ?1 AND host > ?2",
        )?
        .execute(cut)?;
    Ok(())
}

/// Returns the key of the message with this host id, or None if it is not stored.
pub(super) fn key_in(
    connection: &Connection,
    session: SessionId,
    id: MessageId,
) -> Result<Option<Key>, StoreError> {
    let key = connection
        .prepare_cached("SELECT id FROM messages WHERE session = ?1 AND host = ?2")?
        .query_row([session.0, id.0.cast_signed()], |row| row.get(0).map(Key));
    Ok(key.optional()?)
}

/// Returns the keys of a run of ordinals as SQL parameters: the first key, and one past the last.
pub(crate) fn keys(session: SessionId, range: &Range<u32>) -> [i64; 2] {
    [
        Key::new(session, range.start).0,
        Key::new(session, range.end).0,
    ]
}

/// Removes ordinals from runs. `left_out` must be in ascending order. Ordinals outside of the runs
/// are ignored.
fn without(runs: &[Range<u32>], left_out: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
    let mut left_out = left_out.peekable();
    let mut rest = Vec::with_capacity(runs.len());
    for run in runs {
        let mut start = run.start;
        while let Some(ordinal) = left_out.next_if(|ordinal| *ordinal < run.end) {
            if ordinal >= start {
                rest.push(start..ordinal);
                start = ordinal + 1;
            }
        }
        rest.push(start..run.end);
    }
    rest.retain(|run| !run.is_empty());
    rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use contexture_engine_api::{Delivery, MessageId, MessageView};

    use super::*;
    use crate::store::StoreSettings;

    #[test]
    fn ordinals_are_taken_out_of_runs() {
        let left = |runs: &[Range<u32>], out: &[u32]| without(runs, out.iter().copied());
        assert_eq!(left(&[0..3, 5..8], &[]), [0..3, 5..8]);
        assert_eq!(left(&[0..3, 5..8], &[0, 1, 4, 6, 6, 7, 9]), [2..3, 5..6]);
        assert_eq!(left(&[2..4, 6..7], &[0, 1, 2, 3, 6]), []);
    }

    #[test]
    fn neither_a_cut_nor_an_edit_leaves_its_old_words_in_the_conversation() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s", 0).unwrap();
        let revise = |id: u64, text: &str, revisions: &[(MessageId, MessageId)]| {
            let views = [MessageView::new(MessageId(id), "user").with_text(text)];
            let delivery = Delivery::new(&views).with_revisions(revisions);
            store.deliver(session, &delivery, 0).unwrap();
        };
        let say = |id: u64, text: &str| revise(id, text, &[]);
        let ids = || -> Vec<u64> {
            let current = store.current_messages(session).unwrap();
            let rows = store.rows(session, 0..u32::MAX).unwrap();
            let inside: Vec<u64> = rows
                .iter()
                .filter(|row| current.contains(row.key))
                .map(|row| row.id.0)
                .collect();
            assert_eq!(inside.len() as u64, current.count());
            inside
        };
        for id in 1..=4 {
            say(id, &format!("text {id}"));
        }
        assert_eq!(ids(), [1, 2, 3, 4]);
        revise(5, "another form of 2", &[(MessageId(5), MessageId(2))]);
        assert_eq!(ids(), [1, 3, 4, 5]);
        // The cut removes the edit, so the old form is current again.
        store.cut(session, Some(MessageId(3))).unwrap();
        assert_eq!(ids(), [1, 2, 3]);
        say(6, "goes on");
        assert_eq!(ids(), [1, 2, 3, 6]);
        // Each of two edits that follow each other is undone by a cut between them.
        revise(7, "a third form of 2", &[(MessageId(7), MessageId(2))]);
        revise(8, "a fourth form of 2", &[(MessageId(8), MessageId(7))]);
        assert_eq!(ids(), [1, 3, 6, 8]);
        store.cut(session, Some(MessageId(7))).unwrap();
        assert_eq!(ids(), [1, 3, 6, 7]);
        store.cut(session, Some(MessageId(6))).unwrap();
        assert_eq!(ids(), [1, 2, 3, 6]);
    }
}

//! The current conversation: the messages that were neither cut off nor replaced by a revision.
//!
//! The host decides what is current. Each row has a flag that repeats what the host said: messages
//! of a delivery are current, and messages after a cut and earlier forms of a revised message are
//! not. Rows are never deleted for that, since everything can still be found by search, and a later
//! cut can make an earlier form current again.
//!
//! [`Store::outdated`] returns the others, which are few in most conversations.

use std::collections::HashSet;
use std::ops::Range;

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{Key, SessionId, Store, query_all};
use crate::error::StoreError;

impl Store {
    /// Returns the messages of a session that are not part of its current conversation.
    pub(crate) fn outdated(&self, session: SessionId) -> Result<HashSet<Key>, StoreError> {
        let sql = "SELECT id FROM messages WHERE session = ?1 AND NOT is_current";
        let key = |row: &Row<'_>| row.get(0).map(Key);
        self.read(|connection| query_all(connection, sql, [session.0], key))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use contexture_engine_api::{Delivery, MessageId, MessageView};

    use super::*;
    use crate::store::StoreSettings;

    #[test]
    fn neither_a_cut_nor_an_edit_leaves_its_old_words_in_the_conversation() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s").unwrap();
        let revise = |id: u64, text: &str, revisions: &[(MessageId, MessageId)]| {
            let views = [MessageView::new(MessageId(id), "user").with_text(text)];
            let delivery = Delivery::new(&views).with_revisions(revisions);
            store.deliver(session, &delivery, 0).unwrap();
        };
        let say = |id: u64, text: &str| revise(id, text, &[]);
        let ids = || -> Vec<u64> {
            let outdated = store.outdated(session).unwrap();
            let rows = store.rows(session, 0..u32::MAX).unwrap();
            let current = rows.iter().filter(|row| row.is_current);
            let current: Vec<_> = current.map(|row| (row.key, row.id.0)).collect();
            assert_eq!(current.len() + outdated.len(), rows.len());
            assert!(current.iter().all(|(key, _)| !outdated.contains(key)));
            current.into_iter().map(|(_, id)| id).collect()
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

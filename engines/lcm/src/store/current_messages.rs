//! The current conversation: messages that were neither cut off nor revised.

use std::ops::Range;

use rusqlite::Connection;

use super::live::{keys, live_ranges};
use super::{Key, SessionId, Store};
use crate::error::StoreError;

/// The messages of a session's current conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CurrentMessages {
    session: SessionId,
    runs: Vec<Range<u32>>,
}

impl Store {
    /// A session's current conversation.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub(crate) fn current_messages(
        &self,
        session: SessionId,
    ) -> Result<CurrentMessages, StoreError> {
        self.read(|connection| CurrentMessages::read(connection, session))
    }
}

impl CurrentMessages {
    pub(crate) fn read(connection: &Connection, session: SessionId) -> Result<Self, StoreError> {
        let live = live_ranges(connection, session)?;
        let replaced = connection
            .prepare_cached(
                "SELECT replaces, id FROM messages WHERE replaces >= ?1 AND replaces < ?2
                 ORDER BY replaces",
            )?
            .query_map(keys(session, &(0..u32::MAX)), |row| {
                Ok((Key(row.get(0)?).ordinal(), Key(row.get(1)?).ordinal()))
            })?
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            // A revision that was itself cut off replaces nothing.
            .filter(|(_, by)| live.iter().any(|range| range.contains(by)))
            .map(|(old, _)| old);
        Ok(Self {
            session,
            runs: without(&live, replaced),
        })
    }

    /// Whether a message is part of the conversation.
    pub(crate) fn contains(&self, key: Key) -> bool {
        let after = self.runs.partition_point(|run| run.start <= key.ordinal());
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        key.session() == self.session && run.is_some_and(|run| run.contains(&key.ordinal()))
    }

    /// The ordinals of the conversation: disjoint runs, in order.
    pub(crate) fn runs(&self) -> &[Range<u32>] {
        &self.runs
    }

    /// How many messages the conversation has.
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.len() as u64).sum()
    }
}

/// Removes some ordinals, given in order, from runs.
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
            let delivery = Delivery::new(&views, id).with_revisions(revisions);
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
    }
}

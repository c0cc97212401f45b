//! Updates, checks and rebuilds the search index of a session.
//!
//! Search never depends on the index being complete: it reads the texts that are not covered. So
//! indexing can wait, may be interrupted, and runs on a background thread as a rule.
//! [`Store::index_soon`] wakes that thread. [`Store::index_now`] does the same work at once, for
//! commands and tests.
//!
//! [`Store::check_index`] builds every segment again in memory and compares hashes.
//! [`Store::rebuild_index`] throws the index away and starts again. Both read all texts of the
//! session, so they take long for a large one.

use super::build;
use super::corpus::Corpus;
use super::segment::{indexed_end, segments, stored_digest};
use crate::error::StoreError;
use crate::store::{SessionId, Store};

/// The result of checking a session's search index against its texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// The number of segments that were built again in memory and compared.
    pub segments: u64,
    /// The runs of numbers for which a segment is missing or differs from the texts.
    pub wrong: Vec<std::ops::Range<u32>>,
    /// How many messages and summaries are not indexed yet. Search reads them.
    pub waiting: u32,
}

impl Store {
    /// Indexes the texts of a session that are not in the index yet. Search is complete without
    /// this, but slower.
    ///
    /// # Errors
    /// Returns an error if the store or the transcript fails. Search then reads what is missing.
    pub fn index_now(&self, session: SessionId) -> Result<(), StoreError> {
        build::catch_up(self.database(), self.source()?, session, || self.go_on())
    }

    /// Indexes the texts of a session in the background. Closing the store waits until this is
    /// done. If the store has no such thread or no transcript, nothing happens.
    pub fn index_soon(&self, session: SessionId) {
        if let (Some(worker), Ok(source)) = (&self.handle.worker, self.source()) {
            worker.wake(session, source);
        }
    }

    /// Returns how many of a session's messages are indexed. The others are read by each search.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn indexed(&self, session: SessionId) -> Result<u32, StoreError> {
        self.read(|connection| indexed_end(connection, session, Corpus::Messages))
    }

    /// Compares the search index of a session with its messages and summaries, as far as these can
    /// be read.
    ///
    /// # Errors
    /// Returns an error if anything other than damage to the index stops the check.
    pub fn check_index(&self, session: SessionId) -> Result<IndexCheck, StoreError> {
        self.read(|connection| {
            let mut check = IndexCheck::default();
            for corpus in Corpus::ALL {
                let mut covered = 0;
                for segment in segments(connection, session, corpus)? {
                    if segment.ordinals.start != covered {
                        check.wrong.push(covered..segment.ordinals.start);
                    }
                    covered = segment.ordinals.end;
                    let numbers = segment.ordinals.clone();
                    // The stored segment covers all of these texts, so the new one must not stop
                    // early.
                    let (_, fresh) =
                        build::build(connection, session, corpus, numbers, usize::MAX)?;
                    let same = match stored_digest(connection, segment.id) {
                        Ok(stored) => stored == fresh.digest(),
                        Err(StoreError::Damaged(_)) => false,
                        Err(error) => return Err(error),
                    };
                    if !same {
                        check.wrong.push(segment.ordinals);
                    }
                    check.segments += 1;
                }
                let end = corpus.end(connection, session)?;
                check.waiting += end.saturating_sub(covered);
            }
            Ok(check)
        })
    }

    /// Builds the search index of a session again from its messages and summaries, as far as these
    /// can be read. If it is cancelled, the rest follows in the background.
    ///
    /// # Errors
    /// Returns an error if the store or the transcript fails. Search is complete in any case.
    pub fn rebuild_index(&self, session: SessionId) -> Result<(), StoreError> {
        self.go_on()?;
        // Committed first, so that no search uses the wrong index in the meantime.
        self.write(|transaction| build::forget(transaction, session))?;
        let made = self.index_now(session);
        if matches!(made, Err(StoreError::Cancelled)) {
            self.index_soon(session);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use contexture_engine_api::{Delivery, MessageId, MessageView};
    use contexture_testkit::ScriptedHost;

    use crate::error::StoreError;
    use crate::store::{Source, Store, StoreSettings};

    /// A host whose transcript of the session `name` has these texts, and the store as its engine sees
    /// it.
    fn host_with(store: &Store, name: &str, texts: &[&str]) -> (Arc<ScriptedHost>, Store) {
        let host = ScriptedHost::without_model();
        let ids = (1..).map(MessageId);
        let views: Vec<_> = (ids.zip(texts))
            .map(|(id, text)| MessageView::new(id, "user").with_text(text))
            .collect();
        host.record_in(name, &Delivery::new(&views));
        let source = Source::new(name, host.services_in(name), false);
        (host, store.over(source))
    }

    /// All conversations of up to three messages with two texts.
    fn small_conversations() -> Vec<Vec<&'static str>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..3 {
            let longest = all[from..].to_vec();
            from = all.len();
            let longer = |short: &Vec<_>| ["one", "two"].map(|text| [&short[..], &[text]].concat());
            all.extend(longest.iter().flat_map(longer));
        }
        all
    }

    #[test]
    fn what_one_transcript_left_is_never_taken_for_another() {
        let directory = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            background_index: false,
            ..StoreSettings::default()
        };
        let store = Store::open(directory.path(), settings).unwrap();
        let all = small_conversations();
        for (before, after) in all
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)))
        {
            let name = format!("{before:?} and then {after:?}");
            let session = store.open_session(&name).unwrap();
            let (_before, then) = host_with(&store, &name, before);
            let (session, _) = then.follow_transcript(session, false).unwrap();
            then.index_now(session).unwrap();
            let (_after, now) = host_with(&store, &name, after);
            let (followed, _) = now.follow_transcript(session, false).unwrap();
            // Whoever still reads the transcript of before indexes nothing that it does not have.
            let late = then.index_now(followed);
            assert!(late.is_ok(), "{name}: {late:?}");
            now.index_now(followed).unwrap();
            let rows = now.messages(followed, 0..u32::MAX).unwrap();
            assert!(
                rows.iter().map(|row| &row.text).eq(after),
                "{name}: {rows:?}"
            );
            let check = now.check_index(followed).unwrap();
            assert!(
                check.wrong.is_empty() && check.waiting == 0,
                "{name}: {check:?}"
            );
            let is_continued = after.starts_with(before);
            assert_eq!(followed == session, is_continued, "{name}");
        }
    }

    #[test]
    fn who_still_reads_a_lost_transcript_indexes_nothing_of_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            background_index: false,
            ..StoreSettings::default()
        };
        let store = Store::open(directory.path(), settings).unwrap();
        let (_lost, lost) = host_with(&store, "s", &["one", "two", "three"]);
        let session = store.open_session("s").unwrap();
        let (before, _) = lost.follow_transcript(session, false).unwrap();
        // The record is lost, and the client begins again with other messages under the same ids.
        let (_next, next) = host_with(&store, "s", &["un", "deux"]);
        let (after, _) = next.follow_transcript(before, false).unwrap();
        assert_ne!(after, before);
        assert!(matches!(
            lost.index_now(before),
            Err(StoreError::SessionDeleted(_))
        ));
        next.index_now(after).unwrap();
        let check = next.check_index(after).unwrap();
        assert!(check.wrong.is_empty() && check.waiting == 0, "{check:?}");
        assert_eq!(next.find_own_session().unwrap(), Some(after));
        assert_eq!(next.session_info(after).unwrap().messages, 2);
        // Opened again, it is the same session.
        let again = next.follow_transcript(after, false).unwrap();
        assert_eq!(again, (after, false));
    }
}

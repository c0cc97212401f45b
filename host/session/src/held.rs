//! What a session holds beside its messages: pins that were made or ended outside the text, and the
//! model's request for a compaction.
//!
//! It is stored with the session in the record, so it survives a restart and a change of the engine,
//! and a session that is opened beside another one can add to it. It is therefore read when it is
//! needed, which is for a compaction and for a call of the host's tools. A session without a record
//! has it in memory.
//!
//! Start with [`HeldState`].

use std::sync::Arc;

use contexture_contract::{HeldPin, PinnedBy, is_same_pin};
use contexture_transcript::{KeptContent, Record, RecordError};
use serde::{Deserialize, Serialize};

/// The name under which it is stored with the session.
const HELD: &str = "held";

/// Where a session holds its pins and the request for a compaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldState {
    session: String,
    record: Option<Arc<Record>>,
    /// What was read or written last. It counts if there is no record, or if the record fails.
    last: Held,
}

/// What is held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Held {
    /// The pins, oldest first. Words occur once.
    pub(crate) pins: Vec<HeldPin>,
    /// What the next summary should keep in more detail, if the model asked for a compaction. Empty
    /// if it asked for nothing in particular.
    #[serde(rename = "wish")]
    pub(crate) requested: Option<String>,
}

impl Held {
    /// What is held, from its stored form. Nothing if there is none or it cannot be parsed.
    fn of_text(text: Option<&str>) -> Self {
        let held = text.and_then(|text| serde_json::from_str(text).ok());
        held.unwrap_or_default()
    }

    /// Whether it is held that these words are pinned by this one.
    pub(crate) fn has(&self, words: &str, by: PinnedBy) -> bool {
        let mut pins = self.pins.iter();
        pins.any(|pin| pin.words == words && pin.by == by)
    }

    /// Sets who pinned these words, as the newest pin. A pin that is held already keeps its place.
    pub(crate) fn pin(&mut self, words: &str, by: PinnedBy) {
        if self.has(words, by) {
            return;
        }
        self.forget(&[words.to_owned()]);
        let words = words.to_owned();
        self.pins.push(HeldPin { words, by });
    }

    /// Forgets what is held about these words, because the text says something newer of them.
    fn forget(&mut self, words: &[String]) {
        let is_meant = |pin: &HeldPin| words.iter().any(|words| is_same_pin(words, &pin.words));
        self.pins.retain(|pin| !is_meant(pin));
    }
}

impl HeldState {
    /// What is held of a session that is stored in `record`, or nowhere.
    pub(crate) fn of(session: &str, record: Option<&Arc<Record>>) -> Self {
        Self {
            session: session.to_owned(),
            record: record.cloned(),
            last: Held::default(),
        }
    }

    /// Reads what is held. If the record cannot be read, that is logged, and what was read last
    /// counts.
    pub(crate) fn read(&self) -> Held {
        let Some(record) = &self.record else {
            return self.last.clone();
        };
        match record.kept_text(&self.session, HELD) {
            Ok(text) => Held::of_text(text.as_deref()),
            Err(error) => {
                tracing::warn!(session = %self.session, "cannot read the pins: {error}");
                self.last.clone()
            }
        }
    }

    /// Changes what is held. Nothing is written if nothing changes. What others change at the same
    /// time is not lost.
    ///
    /// # Errors
    /// The record cannot be written. The change may then be lost.
    pub(crate) fn change(&mut self, mut change: impl FnMut(&mut Held)) -> Result<(), RecordError> {
        let Some(record) = &self.record else {
            change(&mut self.last);
            return Ok(());
        };
        // A pin is repeated word for word, so it is stored as it is.
        record.change_kept(&self.session, HELD, KeptContent::Exact, |text| {
            let before = Held::of_text(text.as_deref());
            self.last = before.clone();
            change(&mut self.last);
            let is_changed = self.last != before;
            let text = serde_json::to_string(&self.last).unwrap_or_default();
            let changed = is_changed.then(|| (HELD.to_owned(), text));
            changed.into_iter().collect()
        })
    }

    /// Forgets everything that is held.
    pub(crate) fn forget(&mut self) -> Result<(), RecordError> {
        self.change(|held| *held = Held::default())
    }

    /// Drops what is held about words that a new message of the user pins or ends.
    pub(crate) fn said(&mut self, words: &[String]) -> Result<(), RecordError> {
        match words {
            [] => Ok(()),
            words => self.change(|held| held.forget(words)),
        }
    }

    /// Drops what a new window of the session has itself: pins that have ended, and after a
    /// compaction the request for one.
    pub(crate) fn committed(&mut self, is_compaction: bool) -> Result<(), RecordError> {
        self.change(|held| {
            held.pins.retain(|pin| pin.by != PinnedBy::Nobody);
            held.requested.take_if(|_| is_compaction);
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_held_is_read_by_everybody_who_has_the_record() {
        let record = Record::in_memory().unwrap();
        let mut own = HeldState::of("s", Some(&record));
        let mut beside = HeldState::of("s", Some(&record));
        own.change(|held| held.pin("a", PinnedBy::Model)).unwrap();
        beside.change(|held| held.pin("b", PinnedBy::User)).unwrap();
        beside
            .change(|held| held.pin("a", PinnedBy::Nobody))
            .unwrap();
        beside
            .change(|held| held.requested = Some(String::new()))
            .unwrap();
        let words = |held: &Held| -> Vec<String> {
            held.pins.iter().map(|pin| pin.words.clone()).collect()
        };
        assert_eq!(words(&own.read()), ["b", "a"]);
        own.committed(false).unwrap();
        assert_eq!(words(&beside.read()), ["b"]);
        assert!(beside.read().requested.is_some());
        own.committed(true).unwrap();
        own.said(&["b".to_owned()]).unwrap();
        assert_eq!(beside.read(), Held::default());
        assert_eq!(HeldState::of("t", Some(&record)).read(), Held::default());
    }

    #[test]
    fn without_a_record_it_is_in_memory() {
        let mut held = HeldState::of("s", None);
        held.change(|held| held.pin("a", PinnedBy::Model)).unwrap();
        assert_eq!(held.read().pins.len(), 1);
    }
}

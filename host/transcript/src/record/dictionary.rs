//! The dictionary of a session: when it is made, and how it is found.
//!
//! It is made of the first texts of the session, in the save that completes them, and is never
//! changed. It is stored twice, as the text with the number [`DICTIONARY`] and as an artifact that
//! belongs to no engine. So no single damaged page costs all texts.
//!
//! A writer keeps a [`Packing`] between its saves. Readers use [`Record::unpack`].

use std::sync::Arc;

use contexture_base::lock;

use super::Record;
use super::texts::TEXTS;
use crate::error::RecordError;
use crate::packed::{Dictionary, Samples};
use crate::store::{DICTIONARY, DICTIONARY_COPY, Packed};

/// The most dictionaries that a record keeps to read texts with. Each takes 40 KB.
const KEPT: usize = 64;

/// How a session packs its next texts.
#[derive(Debug, Default)]
pub(super) enum Packing {
    /// It has to be read from the store.
    #[default]
    Unread,
    /// Without a dictionary, until there are enough texts for one.
    Collecting(Samples),
    /// With the dictionary of the session.
    With(Arc<Dictionary>),
    /// Without a dictionary, because that of the session is damaged. Another one must not take its
    /// place before a repair.
    Plain,
}

impl Packing {
    /// Goes on with the texts of the next save. If they complete the samples, the dictionary is
    /// made, and the second value is true: it has to be stored with these texts.
    pub(super) fn with_texts<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> (Self, bool) {
        let Self::Collecting(mut samples) = self else {
            return (self, false);
        };
        if !texts.into_iter().any(|text| samples.add(text)) {
            return (Self::Collecting(samples), false);
        }
        match samples.dictionary() {
            Some(dictionary) => (Self::With(Arc::new(dictionary)), true),
            // These texts have too little in common. Later ones may have more.
            None => (Self::Collecting(Samples::default()), false),
        }
    }

    /// The dictionary, if there is one.
    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        match self {
            Self::With(dictionary) => Some(dictionary),
            _ => None,
        }
    }
}

impl Record {
    /// How the next texts of a session are packed, from what is stored of it.
    pub(super) fn packing(&self, session: &str) -> Result<Packing, RecordError> {
        match self.stored_dictionary(session)? {
            (Some(dictionary), _) => return Ok(Packing::With(Arc::new(dictionary))),
            (None, true) => return Ok(Packing::Plain),
            (None, false) => {}
        }
        let mut samples = Samples::default();
        for first in (1..).step_by(TEXTS) {
            let numbers: Vec<i64> = (first..).take(TEXTS).collect();
            let texts = self.store.texts(session, &numbers)?;
            let mut known = texts.iter().filter_map(|row| row.text.text(None));
            if known.any(|text| samples.add(&text)) || texts.len() < TEXTS {
                break;
            }
        }
        Ok(Packing::Collecting(samples))
    }

    /// Decompresses a text of a session. `None` if it is damaged.
    ///
    /// # Errors
    /// The dictionary that it needs cannot be read.
    pub(super) fn unpack(
        &self,
        session: &str,
        packed: &Packed,
    ) -> Result<Option<String>, RecordError> {
        let needed = packed.needs();
        if needed.is_none() {
            return Ok(packed.text(None));
        }
        let known = lock(&self.dictionaries).get(session).cloned();
        // A session that was deleted and created again has another dictionary.
        let known = known.filter(|known| known.id() == needed);
        let dictionary = match known {
            Some(known) => known,
            None => match self.stored_dictionary(session)?.0 {
                Some(dictionary) => Arc::new(dictionary),
                None => return Ok(None),
            },
        };
        let text = packed.text(Some(&dictionary));
        let mut kept = lock(&self.dictionaries);
        if kept.len() >= KEPT && !kept.contains_key(session) {
            kept.clear();
        }
        kept.insert(session.to_owned(), dictionary);
        Ok(text)
    }

    /// The dictionary of a session from one of its copies, or `None` if both are missing or damaged,
    /// and whether there is a copy at all.
    fn stored_dictionary(&self, session: &str) -> Result<(Option<Dictionary>, bool), RecordError> {
        let (first, is_there) = match self.store.texts(session, &[DICTIONARY]) {
            // The page with it may be what is damaged.
            Err(error) if error.is_damage() => (None, true),
            stored => {
                let stored = stored?;
                let first = stored.first().and_then(|row| Dictionary::of(&row.text));
                (first, !stored.is_empty())
            }
        };
        if first.is_some() {
            return Ok((first, is_there));
        }
        let (engine, name) = DICTIONARY_COPY;
        let copy = self.store.artifact(session, engine, name)?;
        let second = copy.as_ref().and_then(Dictionary::of);
        Ok((second, is_there || copy.is_some()))
    }
}

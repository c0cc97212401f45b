//! Access to the host's transcript, from which the texts of messages are read.
//!
//! The store has no copy of the texts. A [`Source`] reads them through the services that the host
//! gave to a session when it was opened. It can read the transcripts of other sessions, too, if the
//! host allows it.
//!
//! If the settings ask for it, passwords and keys are masked in everything that is read, so that
//! neither the index nor a tool ever sees them. The `read` module turns messages into searchable
//! bodies and decides how many are requested at once.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{
    EngineError, MessageId, OwnedMessage, Services, TranscriptPage, TranscriptRange,
};
use contexture_secrets::mask_secrets;

use crate::error::StoreError;

/// How many messages a page has when the whole transcript is read.
const PAGE: usize = 512;

/// The host's hashes of messages, by which a row is of the message with its id and of no other.
pub(crate) type Hashes = HashMap<MessageId, u64>;

/// The messages of a transcript, without their texts.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    pub(crate) hashes: Hashes,
    /// The messages that are no longer part of the conversation.
    pub(crate) outdated: HashSet<MessageId>,
}

/// Reads transcripts with the rights of one session: its own transcript and, if the host allows it,
/// those of others.
#[derive(Debug, Clone)]
pub struct Source {
    session: String,
    services: Services,
    redacts: bool,
}

impl Source {
    /// Creates the source of a session from its services. If `redacts` is set, passwords and keys
    /// in messages are masked.
    pub fn new(session: &str, services: Services, redacts: bool) -> Self {
        Self {
            session: session.to_owned(),
            services,
            redacts,
        }
    }

    /// Returns the services of the session, for artifacts and for counting tokens.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the name of the session that this source belongs to.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Returns whether this source belongs to the session of this name.
    pub(crate) fn is_of(&self, session: &str) -> bool {
        self.session == session
    }

    /// Returns the messages of a session with these ids, in any order. Messages that the transcript
    /// does not have are left out, and so are all messages of a session that is not stored.
    pub(crate) fn messages(
        &self,
        session: &str,
        ids: &[MessageId],
    ) -> Result<Vec<OwnedMessage>, StoreError> {
        let mut range = TranscriptRange::of(ids.to_vec());
        let mut messages = Vec::with_capacity(ids.len());
        loop {
            let page = self.read(session, &range)?;
            messages.extend(page.messages);
            // The host may return fewer messages than were requested, to limit the size of a page.
            if page.next.is_none() {
                return Ok(messages);
            }
            range.after = page.next;
        }
    }

    /// Returns the next messages of its own session after `after`, or the first ones if that is
    /// None. Messages that are no longer part of the conversation are included.
    pub(crate) fn page(&self, after: Option<MessageId>) -> Result<TranscriptPage, StoreError> {
        let mut range = TranscriptRange::page(after).limit(PAGE);
        range.outdated = true;
        self.read(&self.session, &range)
    }

    /// Returns which messages its own session has. If `reads_texts` is set, only messages whose text
    /// can be read are included, and finding that out takes long for a large session.
    pub(crate) fn overview(&self, reads_texts: bool) -> Result<Overview, StoreError> {
        let limit = if reads_texts { PAGE } else { usize::MAX };
        let mut range = TranscriptRange::page(None).limit(limit);
        (range.outdated, range.without_messages) = (true, !reads_texts);
        let mut overview = Overview::default();
        loop {
            let page = self.read(&self.session, &range)?;
            let read: HashSet<MessageId> = page.messages.iter().map(|one| one.id).collect();
            let hashes = page.hashes.iter().copied();
            let found = hashes.filter(|(id, _)| !reads_texts || read.contains(id));
            overview.hashes.extend(found);
            overview.outdated.extend(page.outdated);
            if page.next.is_none() {
                return Ok(overview);
            }
            range.after = page.next;
        }
    }

    /// Returns the hashes of these messages of a session, without those that are not stored.
    pub(crate) fn hashes(&self, session: &str, ids: Vec<MessageId>) -> Result<Hashes, StoreError> {
        let mut range = TranscriptRange::of(ids);
        range.without_messages = true;
        let page = self.read(session, &range)?;
        Ok(page.hashes.into_iter().collect())
    }

    fn read(&self, session: &str, range: &TranscriptRange) -> Result<TranscriptPage, StoreError> {
        let mut range = range.clone();
        range.session = (!self.is_of(session)).then(|| session.to_owned());
        let mut page = match self.services.transcript(&range) {
            // The session was deleted, or the host does not store it. It has no messages then.
            Err(EngineError::InvalidInput(_)) => TranscriptPage::default(),
            page => page?,
        };
        if self.redacts {
            page.messages.iter_mut().for_each(redact);
        }
        Ok(page)
    }
}

/// Masks the passwords and keys in a message, in its text, its JSON and its calls.
pub(crate) fn redact(message: &mut OwnedMessage) {
    let mask = |text: &mut String| *text = mask_secrets(text).into_owned();
    let optional = [
        &mut message.name,
        &mut message.tool_call_id,
        &mut message.tool_name,
    ];
    optional.into_iter().flatten().for_each(mask);
    [&mut message.text, &mut message.raw]
        .into_iter()
        .for_each(mask);
    for call in &mut message.tool_calls {
        [&mut call.id, &mut call.name, &mut call.arguments]
            .into_iter()
            .for_each(mask);
    }
}

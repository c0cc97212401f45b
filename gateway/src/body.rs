//! The bodies of requests, which are split once: when they are read, or while they are written.
//!
//! [`History`] is what the gateway changes in the messages of a request before its turn. It is no
//! text: the session takes the messages and writes the body.

use std::borrow::Cow;
use std::sync::Arc;

use bytestring::ByteString;
use contexture::Turn;
use contexture::formats::{SplitBody, WireBody};

/// A request body, and where its parts are. Its text is checked to be UTF-8 once, and shares its bytes
/// with the client's request, so that a body that nobody changes leaves without a copy.
pub(crate) type SharedBody = SplitBody<ByteString>;

/// The body of a turn. It shares the bytes of `given`, the body that the turn was made of, if it is
/// the same. None if it was taken before.
pub(crate) fn of_turn(turn: &mut Turn<'_>, given: &SharedBody) -> Option<SharedBody> {
    let split = turn.take_split()?;
    Some(split.map(|text| match text {
        Cow::Borrowed(_) => given.text().clone(),
        Cow::Owned(text) => text.into(),
    }))
}

/// A message of a history that is not exactly the client's.
#[derive(Debug, Clone)]
pub(crate) enum HistoryMessage {
    /// The client's message with this index.
    Client(usize),
    /// The JSON of a message that the client did not send in this form.
    Other(Arc<str>),
}

impl HistoryMessage {
    pub(crate) fn other(text: impl Into<Arc<str>>) -> Self {
        Self::Other(text.into())
    }
}

/// The messages of a request with hidden rounds put back, and with those of the rounds since.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(Option<Arc<[HistoryMessage]>>);

impl History {
    /// The history with these messages. None if it is the client's.
    pub(crate) fn new(messages: Option<Vec<HistoryMessage>>) -> Self {
        Self(messages.map(Arc::from))
    }

    /// The client's body with this history.
    pub(crate) fn of<'a>(&'a self, body: &'a SharedBody) -> WireBody<'a> {
        let wire = body.wire();
        match &self.0 {
            Some(messages) => with_messages(&wire, messages),
            None => wire,
        }
    }

    /// This history of the client's body, with these messages after it.
    pub(crate) fn continued(&self, body: &SharedBody, new: &[String]) -> Self {
        let own = match &self.0 {
            Some(messages) => messages.to_vec(),
            None => clients(body.wire().messages.len()).collect(),
        };
        let new = new.iter().map(|text| HistoryMessage::other(text.as_str()));
        Self::new(Some(own.into_iter().chain(new).collect()))
    }
}

/// So many messages of the client.
pub(crate) fn clients(count: usize) -> impl Iterator<Item = HistoryMessage> {
    (0..count).map(HistoryMessage::Client)
}

/// The body with these messages.
pub(crate) fn with_messages<'a>(
    wire: &WireBody<'a>,
    messages: &'a [HistoryMessage],
) -> WireBody<'a> {
    let messages = messages.iter().map(|message| match message {
        HistoryMessage::Client(at) => {
            let text = wire.messages.get(*at).copied();
            (Some(*at), text.unwrap_or_default())
        }
        HistoryMessage::Other(text) => (None, &**text),
    });
    wire.with_messages(messages.collect())
}

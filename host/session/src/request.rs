//! A request: what a client sends, split into wire messages. Only the new ones are parsed.
//!
//! [`Request::of`] takes a body that was split, and hashes each wire message. [`Request::body`]
//! splits the body first. A client repeats its history with every request, so the beginning that
//! equals the last body is not split again ([`BodyBefore`]). [`Request::document`] makes a request of
//! a conversation that was read from a file. It was parsed when it was read, so its messages are not
//! parsed again.
//!
//! [`Request::read`] parses selected wire messages into [`ReadMessage`]s and remembers them. One
//! wire message may hold several messages, and in some formats one message spans several wire
//! messages. What the messages are to the session is found out in `compare`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use contexture_formats::{
    self as formats, Beginning, Conversation, Format, FormatError, KnownCalls, Message, Preamble,
    WireBody,
};

use crate::align::raw_hash;

/// What a client sends: a request body, or a conversation that was read from a document.
pub(crate) struct Request<'b> {
    pub(crate) format: Format,
    /// The JSON of each wire message. The system prompt and compactions of the provider itself are
    /// not among them.
    wires: Vec<&'b str>,
    /// The hash of each wire message.
    pub(crate) raw: Vec<u64>,
    /// Whether the request begins with a compaction that the provider made itself.
    pub(crate) is_compacted: bool,
    /// The body that the messages are put back into. None if the request is not sent to the model,
    /// because the caller renders the conversation itself.
    pub(crate) body: Option<WireBody<'b>>,
    /// The conversation that was read, if the request has no body.
    document: Option<&'b Conversation>,
    /// For each wire message, the messages that it holds a part of. Empty if it was not parsed.
    parsed: RefCell<Vec<Vec<ReadMessage>>>,
}

/// What is remembered of the last body, so that the next one is split only after the common
/// beginning.
#[derive(Debug)]
pub(crate) struct BodyBefore {
    beginning: Beginning,
    /// The hashes of its wire messages, see [`Request::raw`].
    raw: Vec<u64>,
    /// How many wire messages of the body come before the hashed ones. If the number differs in the
    /// next body, the hashes do not line up.
    leading: usize,
}

/// A message that was parsed, and the wire messages of the request that hold it.
#[derive(Debug, Clone)]
pub(crate) struct ReadMessage {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) index: usize,
    pub(crate) wires: Range<usize>,
}

impl ReadMessage {
    /// The message. There is one wherever a `ReadMessage` was made, so `None` does not occur in
    /// practice.
    pub(crate) fn message(&self) -> Option<&Message> {
        self.conversation.messages().get(self.index)
    }
}

impl<'b> Request<'b> {
    /// Splits a body into wire messages. The beginning that it shares with the body in `before` is
    /// not split again. Afterwards `before` holds this body.
    pub(crate) fn body(
        text: &'b str,
        format: Option<Format>,
        before: &mut Option<BodyBefore>,
    ) -> Result<Self, FormatError> {
        let earlier = before.as_ref().map(|before| &before.beginning);
        let (body, beginning, known) = formats::split_again(text, format, earlier)?;
        let leading = body.leading();
        let known = known.saturating_sub(leading);
        let before_it = before.take().filter(|before| before.leading == leading);
        let mut raw = before_it.map_or_else(Vec::new, |before| before.raw);
        raw.truncate(known);
        let new = body.messages.iter().skip(raw.len());
        raw.extend(new.map(|wire| raw_hash(wire)));
        *before = beginning.map(|beginning| BodyBefore {
            beginning,
            raw: raw.clone(),
            leading,
        });
        Ok(Self::hashed(body, raw))
    }

    /// A request for a body that was split already.
    pub(crate) fn of(body: WireBody<'b>) -> Self {
        let raw = body.messages.iter().map(|wire| raw_hash(wire)).collect();
        Self::hashed(body, raw)
    }

    fn hashed(body: WireBody<'b>, raw: Vec<u64>) -> Self {
        Self {
            format: body.format,
            wires: body.messages.clone(),
            parsed: RefCell::new(vec![Vec::new(); raw.len()]),
            raw,
            is_compacted: !body.compacted.is_empty(),
            body: Some(body),
            document: None,
        }
    }

    /// A request that holds a conversation which was already parsed. It is not sent to the model.
    pub(crate) fn document(conversation: &'b Arc<Conversation>) -> Self {
        let ends = conversation.messages().iter();
        let items = ends.map(|message| message.items.end).max().unwrap_or(0);
        let wires: Vec<&str> = (0..items).map(|item| conversation.item(item)).collect();
        let request = Self {
            format: conversation.format(),
            raw: wires.iter().map(|wire| raw_hash(wire)).collect(),
            wires,
            is_compacted: conversation.is_compacted_by_provider(),
            body: None,
            document: Some(conversation),
            parsed: RefCell::new(vec![Vec::new(); items]),
        };
        request.remember(conversation, 0);
        request
    }

    /// The JSON of a wire message of the request, or an empty string if there is none with this
    /// index.
    pub(crate) fn wire_text(&self, wire: usize) -> &str {
        self.wires.get(wire).copied().unwrap_or("")
    }

    /// The number of items before the wire messages.
    pub(crate) fn leading(&self) -> usize {
        self.body.as_ref().map_or(0, WireBody::leading)
    }

    /// Whether the result of the turn goes to the model.
    pub(crate) fn is_sent(&self) -> bool {
        self.body.is_some()
    }

    /// Whether a message may span several wire messages.
    pub(crate) fn joins(&self) -> bool {
        matches!(
            self.format,
            Format::OpenAiResponses | Format::Codex | Format::ClaudeCode
        )
    }

    /// Whether equal bytes are an equal message. In Gemini's format the same results may answer
    /// other calls.
    pub(crate) fn bytes_tell(&self) -> bool {
        !self.joins() && self.format != Format::Gemini
    }

    /// The system prompt and the tools.
    pub(crate) fn preamble(&self) -> Option<Preamble<'b>> {
        let document = self.document.map(Conversation::preamble);
        document.or_else(|| self.body.as_ref().map(WireBody::preamble))
    }

    /// Returns the messages in these wire messages, each once and in order. Those that were not
    /// parsed before are parsed now. `calls` are the calls so far, and the calls found are added
    /// to them.
    pub(crate) fn read(
        &self,
        wires: impl IntoIterator<Item = usize>,
        calls: &mut KnownCalls,
    ) -> Result<Vec<ReadMessage>, FormatError> {
        let wires: BTreeSet<usize> = wires.into_iter().collect();
        let is_unread = |at: &&usize| self.parsed.borrow().get(**at).is_some_and(Vec::is_empty);
        let unread: Vec<usize> = wires.iter().filter(is_unread).copied().collect();
        // Consecutive wire messages are parsed together, because a message may span several of
        // them.
        for run in unread.chunk_by(|one, next| one + 1 == *next) {
            let texts: Vec<&str> = run.iter().map(|at| self.wire_text(*at)).collect();
            let first = run.first().copied().unwrap_or(0);
            let before = self.wires.get(..first).unwrap_or(&[]);
            formats::continue_after(self.format, before, calls);
            let conversation = formats::excerpt(self.format, &texts, calls)?;
            self.remember(&Arc::new(conversation), first);
        }
        let parsed = self.parsed.borrow();
        let begin_in = |at: &usize| {
            let messages = parsed.get(*at).into_iter().flatten();
            let at = *at;
            messages.filter(move |read| read.wires.start == at).cloned()
        };
        Ok(wires.iter().flat_map(begin_in).collect())
    }

    /// Remembers messages that were parsed. Their conversation begins in the wire message `first`.
    fn remember(&self, conversation: &Arc<Conversation>, first: usize) {
        let mut parsed = self.parsed.borrow_mut();
        for (index, message) in conversation.messages().iter().enumerate() {
            let wires = first + message.items.start..first + message.items.end;
            for held in parsed.get_mut(wires.clone()).into_iter().flatten() {
                held.push(ReadMessage {
                    conversation: Arc::clone(conversation),
                    index,
                    wires: wires.clone(),
                });
            }
        }
    }

    /// Adds all calls in the request to `calls`.
    pub(crate) fn learn_calls(&self, calls: &mut KnownCalls) -> Result<(), FormatError> {
        // What is parsed for its calls alone is not kept: the window holds few of these messages,
        // and each of them would keep the text of all in memory.
        let parsed = self.parsed.borrow();
        let wires = self.wires.iter().zip(&*parsed);
        let unread = wires.filter_map(|(wire, held)| held.is_empty().then_some(*wire));
        formats::parse_messages_after(self.format, &unread.collect::<Vec<_>>(), calls)?;
        for read in parsed.iter().flatten().filter_map(ReadMessage::message) {
            calls.learn(&read.calls);
        }
        Ok(())
    }
}

/// Removes the host's words from a wire message that holds them beside messages of the client. An
/// engine is shown the result, and the record stores it.
///
/// `messages` are all messages of the wire message. For one of the client's, `said` returns what was
/// read of it.
pub(crate) fn split_off_host_words<M>(
    messages: &mut [M],
    said: impl Fn(usize, &mut M) -> Option<&mut ReadMessage>,
) {
    let all = messages.len();
    let messages = messages.iter_mut().enumerate();
    let mut said: Vec<&mut ReadMessage> = messages.filter_map(|(at, one)| said(at, one)).collect();
    if said.len() == all {
        return;
    }
    // Text of the host between two messages separates them. Each of them may get another neighbour.
    for run in said.chunk_by_mut(|one, next| one.index + 1 == next.index) {
        let Some(first) = run.first() else { continue };
        let whole = Arc::clone(&first.conversation);
        let places: Vec<usize> = run.iter().map(|read| read.index).collect();
        if let Some(part) = formats::part_of_wire(&whole, &places) {
            let part = Arc::new(part);
            for (index, read) in run.iter_mut().enumerate() {
                read.conversation = Arc::clone(&part);
                read.index = index;
            }
        }
    }
}

#[cfg(test)]
mod tests;

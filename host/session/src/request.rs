//! A request: what a client sends, split into wire messages. Only the new ones are parsed.
//!
//! [`Request::body`] splits a request body and hashes each wire message. A client repeats its
//! history with every request, so the beginning that equals the last body is not split again
//! ([`BodyBefore`]). [`Request::document`] makes a request of a conversation that was read from a
//! file.
//!
//! [`Request::read`] parses selected wire messages into [`ReadMessage`]s. One wire message may hold
//! several messages, and in some formats one message spans several wire messages. What the messages
//! are to the session is found out in `compare`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use contexture_formats::{
    self as formats, Beginning, Conversation, Format, FormatError, Message, WireBody,
};

use crate::align::raw_hash;

/// What a client sends: a request body, or a conversation that was read from a document.
pub(crate) struct Request<'b> {
    pub(crate) format: Format,
    /// The hash of each wire message. The system prompt and compactions of the provider itself are
    /// not among them.
    pub(crate) raw: Vec<u64>,
    pub(crate) source: Source<'b>,
}

/// The text that the messages of a request are read from.
pub(crate) enum Source<'b> {
    Body {
        text: &'b str,
        wire: Box<WireBody<'b>>,
    },
    Document(&'b Arc<Conversation>),
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
    ///
    /// # Errors
    /// The text is not a request body of this format.
    pub(crate) fn body(
        text: &'b str,
        format: Option<Format>,
        before: &mut Option<BodyBefore>,
    ) -> Result<Self, FormatError> {
        let earlier = before.as_ref().map(|before| &before.beginning);
        let (wire, beginning, known) = formats::split_again(text, format, earlier)?;
        let leading = wire.leading();
        let known = known.saturating_sub(leading);
        let before_it = before.take().filter(|before| before.leading == leading);
        let mut raw = before_it.map_or_else(Vec::new, |before| before.raw);
        raw.truncate(known);
        raw.extend(
            wire.messages
                .iter()
                .skip(raw.len())
                .map(|raw| raw_hash(raw)),
        );
        *before = beginning.map(|beginning| BodyBefore {
            beginning,
            raw: raw.clone(),
            leading,
        });
        Ok(Self {
            format: wire.format,
            raw,
            source: Source::Body {
                text,
                wire: Box::new(wire),
            },
        })
    }

    /// A request that holds a conversation which was already parsed.
    pub(crate) fn document(conversation: &'b Arc<Conversation>) -> Self {
        let items = conversation
            .messages()
            .iter()
            .map(|message| message.items.end);
        let items = items.max().unwrap_or(0);
        Self {
            format: conversation.format(),
            raw: (0..items)
                .map(|item| raw_hash(conversation.item(item)))
                .collect(),
            source: Source::Document(conversation),
        }
    }

    /// The JSON of a wire message of the request, or an empty string if there is none with this
    /// index.
    pub(crate) fn wire_text(&self, wire: usize) -> &str {
        match &self.source {
            Source::Body { wire: body, .. } => body.messages.get(wire).copied().unwrap_or(""),
            Source::Document(conversation) => conversation.item(wire),
        }
    }

    /// Whether the request is a body that goes to the model, and not a document.
    pub(crate) fn is_body(&self) -> bool {
        matches!(self.source, Source::Body { .. })
    }

    /// Whether the request begins with a compaction that the provider made itself.
    pub(crate) fn is_compacted(&self) -> bool {
        match &self.source {
            Source::Body { wire, .. } => !wire.compacted.is_empty(),
            Source::Document(conversation) => conversation.compacted().next().is_some(),
        }
    }

    /// Whether a message may span several wire messages.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.source, Source::Document(_))
            || matches!(self.format, Format::OpenAiResponses | Format::Codex)
    }

    /// Parses these wire messages, whose indexes must rise. `names` maps the calls so far to their
    /// tools, and the calls found are added to it.
    ///
    /// # Errors
    /// One of them is not a valid message of the format.
    pub(crate) fn read(
        &self,
        wires: &[usize],
        names: &mut HashMap<String, String>,
    ) -> Result<Vec<ReadMessage>, FormatError> {
        let wire = match &self.source {
            Source::Document(conversation) => return Ok(read_document(conversation, wires)),
            Source::Body { wire, .. } => wire,
        };
        let mut all = Vec::with_capacity(wires.len());
        // Consecutive wire messages are parsed together, because a message may span several of
        // them.
        for run in wires.chunk_by(|one, next| one + 1 == *next) {
            let texts: Vec<&str> = run
                .iter()
                .filter_map(|at| wire.messages.get(*at).copied())
                .collect();
            let conversation = Arc::new(formats::excerpt(self.format, &texts, names)?);
            let first = run.first().copied().unwrap_or(0);
            let messages = conversation.messages().iter().enumerate();
            all.extend(messages.map(|(index, message)| ReadMessage {
                conversation: Arc::clone(&conversation),
                index,
                wires: first + message.items.start..first + message.items.end,
            }));
        }
        Ok(all)
    }

    /// Adds the tool names of all calls in the request to `names`.
    ///
    /// # Errors
    /// One of its messages is not valid in its format.
    pub(crate) fn learn_names(
        &self,
        names: &mut HashMap<String, String>,
    ) -> Result<(), FormatError> {
        if let Source::Body { wire, .. } = &self.source {
            formats::parse_messages_after(self.format, &wire.messages, names)?;
        }
        Ok(())
    }
}

/// Removes the host's words from a wire message that holds them beside messages of the client.
/// `said` are the client's messages in it, and `all` is the number of all messages in it. Does
/// nothing if these are all.
pub(crate) fn keep_what_was_said(mut said: Vec<&mut ReadMessage>, all: usize) {
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

/// The messages of a document that begin in one of these wire messages.
fn read_document(conversation: &Arc<Conversation>, wires: &[usize]) -> Vec<ReadMessage> {
    let messages = conversation.messages().iter().enumerate();
    let wanted = messages.filter(|(_, message)| wires.binary_search(&message.items.start).is_ok());
    wanted
        .map(|(index, message)| ReadMessage {
            conversation: Arc::clone(conversation),
            index,
            wires: message.items.clone(),
        })
        .collect()
}

//! A request: what a client sends, split into wire messages, of which only the new ones are read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use contexture_formats::{
    self as formats, Beginning, Conversation, Format, FormatError, Message, WireBody,
};

use super::align::raw_hash;

/// What a client sends: a request body, or a conversation that was read from a document of any format.
pub(super) struct Request<'b> {
    pub(super) format: Format,
    /// The hash of each wire message after the system prompt, and after what the provider compacted itself.
    pub(super) raw: Vec<u64>,
    pub(super) source: Source<'b>,
}

pub(super) enum Source<'b> {
    Body {
        text: &'b str,
        wire: Box<WireBody<'b>>,
    },
    Document(&'b Arc<Conversation>),
}

/// What is remembered of a body, so that the next one is split only where it goes on.
#[derive(Debug)]
pub(super) struct BodyBefore {
    beginning: Beginning,
    /// [`Request::raw`] of it.
    raw: Vec<u64>,
    /// How many wire messages stood before these.
    leading: usize,
}

/// A message that was read, and the wire messages of the request that it stands in.
#[derive(Debug, Clone)]
pub(super) struct ReadMessage {
    pub(super) conversation: Arc<Conversation>,
    pub(super) index: usize,
    pub(super) wires: Range<usize>,
}

impl ReadMessage {
    /// The message; there is one wherever a `ReadMessage` was made.
    pub(super) fn message(&self) -> Option<&Message> {
        self.conversation.messages().get(self.index)
    }

    /// Whether two messages that were read on their own stand in one wire message.
    pub(super) fn shares_wire(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.conversation, &other.conversation)
    }
}

impl<'b> Request<'b> {
    /// Splits a body; what it begins with as the one `before` did is known. `before` becomes this one.
    ///
    /// # Errors
    /// It is no request body of this format.
    pub(super) fn body(
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

    /// A conversation that was read already.
    pub(super) fn document(conversation: &'b Arc<Conversation>) -> Self {
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

    /// Whether it begins with a compaction of the provider's own.
    pub(super) fn is_compacted(&self) -> bool {
        match &self.source {
            Source::Body { wire, .. } => !wire.compacted.is_empty(),
            Source::Document(conversation) => conversation.compacted().next().is_some(),
        }
    }

    /// Whether a message may stand in several wire messages.
    pub(super) fn joins(&self) -> bool {
        matches!(self.source, Source::Document(_))
            || matches!(self.format, Format::OpenAiResponses | Format::Codex)
    }

    /// Reads these wire messages, which are in rising order. `names` maps the calls so far to their tools.
    ///
    /// # Errors
    /// One of them is no message of the format.
    pub(super) fn read(
        &self,
        wires: &[usize],
        names: &mut HashMap<String, String>,
    ) -> Result<Vec<ReadMessage>, FormatError> {
        let wire = match &self.source {
            Source::Document(conversation) => return Ok(read_document(conversation, wires)),
            Source::Body { wire, .. } => wire,
        };
        let mut all = Vec::with_capacity(wires.len());
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

    /// Learns the tools of all calls in the request.
    ///
    /// # Errors
    /// One of its messages is none of its format.
    pub(super) fn learn_names(
        &self,
        names: &mut HashMap<String, String>,
    ) -> Result<(), FormatError> {
        if let Source::Body { wire, .. } = &self.source {
            formats::parse_messages_after(self.format, &wire.messages, names)?;
        }
        Ok(())
    }
}

/// Takes what the host wrote out of a wire message that holds something else too, of which the session keeps what
/// was said: `said` are these messages of it, `all` is how many are in it.
pub(super) fn keep_what_was_said(mut said: Vec<&mut ReadMessage>, all: usize) {
    if said.len() == all {
        return;
    }
    // What the host wrote between two of them parts them: each may get another neighbour.
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

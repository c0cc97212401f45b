//! Finds where a request can carry markers, and where the client put some.

use std::borrow::Cow;

use memchr::memmem;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{BreakpointTarget, CacheProvider, MarkError, ROLLING_MESSAGES, Shape, Ttl};

/// A position in the order in which the provider reads a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Position {
    Tools,
    /// The index of the system message if the system prompt is a message, otherwise 0.
    System(usize),
    Message(usize),
    /// A marker on the request itself (Anthropic's automatic caching) works on the last message.
    Request,
}

/// A marker set by the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marker {
    pub(super) position: Position,
    pub(super) ttl: Ttl,
}

/// A breakpoint that the strategy wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) place: BreakpointTarget,
    pub(super) position: Position,
    pub(super) site: MarkerSite,
}

/// Bytes of the text that can take a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkerSite {
    /// A JSON string from `start` to `end`, quotes included: it becomes a list with one text block.
    Text { start: usize, end: usize },
    /// An object with at least one member, whose closing brace stands at this offset.
    Object { brace: usize },
}

impl MarkerSite {
    pub(super) fn start(self) -> usize {
        match self {
            Self::Text { start, .. } => start,
            Self::Object { brace } => brace,
        }
    }
}

/// A request, parsed no deeper than necessary.
pub(super) struct Document<'a> {
    text: &'a str,
    shape: Shape,
    body: Body<'a>,
}

#[derive(Default, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cache_control: Option<&'a RawValue>,
}

/// The fields of a message, a block, a tool or a tool's function that matter here.
#[derive(Default, Deserialize)]
struct MessageFields<'a> {
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function: Option<&'a RawValue>,
    /// Some even if the value is null, because the key must not be added twice.
    #[serde(borrow, default, deserialize_with = "present")]
    cache_control: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

impl<'a> MessageFields<'a> {
    fn parse(object: &'a RawValue) -> Result<Self, serde_json::Error> {
        // Serde would also accept a list of the members in order.
        if object.get().starts_with('[') {
            return Err(serde::de::Error::custom("a list where an object must be"));
        }
        serde_json::from_str(object.get())
    }

    fn is_system(&self) -> bool {
        matches!(self.role.as_deref(), Some("system" | "developer"))
    }
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str, shape: Shape) -> Result<Self, MarkError> {
        let body = if text.trim_start().starts_with('[') {
            serde_json::from_str(text).map(|messages| Body {
                messages,
                ..Body::default()
            })
        } else {
            serde_json::from_str(text)
        }
        .map_err(MarkError::NotARequest)?;
        Ok(Self { text, shape, body })
    }

    fn message(&self, index: usize) -> Result<MessageFields<'a>, MarkError> {
        MessageFields::parse(self.body.messages[index])
            .map_err(|cause| MarkError::NotAMessage { index, cause })
    }

    /// The messages at the head that are the system prompt, in shapes that keep it there.
    fn leading_system(&self) -> Result<usize, MarkError> {
        let mut leading = 0;
        while self.shape == Shape::OpenAiChat
            && leading < self.body.messages.len()
            && self.message(leading)?.is_system()
        {
            leading += 1;
        }
        Ok(leading)
    }

    /// The client's markers, wherever the providers take them.
    pub(super) fn client_markers(&self) -> Result<Vec<Marker>, MarkError> {
        let mut markers = Vec::new();
        if memmem::find(self.text.as_bytes(), b"cache_control").is_none() {
            return Ok(markers);
        }
        let mut add = |position, ttls: Vec<Ttl>| {
            markers.extend(ttls.into_iter().map(|ttl| Marker { position, ttl }));
        };
        for tool in self.body.tools.map(elements).unwrap_or_default() {
            add(Position::Tools, ttls_of(tool, 1));
        }
        if let Some(system) = self.body.system {
            for block in elements(system) {
                add(Position::System(0), ttls_of(block, 1));
            }
        }
        let leading = self.leading_system()?;
        for (index, message) in self.body.messages.iter().enumerate() {
            let position = if index < leading {
                Position::System(index)
            } else {
                Position::Message(index)
            };
            add(position, ttls_of(message, 2));
        }
        if let Some(marker) = self.body.cache_control {
            add(Position::Request, vec![ttl_of(marker)]);
        }
        Ok(markers)
    }

    /// The breakpoints that the strategy wants and the client did not set, the most important first: the
    /// system prompt, then the messages from the last one on.
    pub(super) fn wanted(
        &self,
        provider: CacheProvider,
        markers: &[Marker],
    ) -> Result<Vec<Wanted>, MarkError> {
        let is_marked = |wanted: Position| markers.iter().any(|m| m.position == wanted);
        let mut wanted = Vec::new();
        let leading = self.leading_system()?;
        let system_is_marked = markers
            .iter()
            .any(|marker| matches!(marker.position, Position::System(_)));
        if !system_is_marked {
            wanted.extend(
                self.system_prompt(leading, provider)?
                    .map(|(position, site)| Wanted {
                        place: BreakpointTarget::System,
                        position,
                        site,
                    }),
            );
        }
        let mut rolling = 0;
        // Automatic caching puts its breakpoint on the last message.
        let mut taken_by_request = is_marked(Position::Request);
        for index in (leading..self.body.messages.len()).rev() {
            if rolling == ROLLING_MESSAGES {
                break;
            }
            let message = self.message(index)?;
            if message.is_system() {
                continue;
            }
            if is_marked(Position::Message(index)) || std::mem::take(&mut taken_by_request) {
                rolling += 1;
            } else if let Some(site) = self.in_message(index, &message, provider) {
                wanted.push(Wanted {
                    place: BreakpointTarget::Message(index),
                    position: Position::Message(index),
                    site,
                });
                rolling += 1;
            }
        }
        Ok(wanted)
    }

    /// Where the system prompt can carry a marker: as close to its end as possible.
    fn system_prompt(
        &self,
        leading: usize,
        provider: CacheProvider,
    ) -> Result<Option<(Position, MarkerSite)>, MarkError> {
        if let Some(site) = self.body.system.and_then(|system| self.in_content(system)) {
            return Ok(Some((Position::System(0), site)));
        }
        for index in (0..leading).rev() {
            if let Some(site) = self.in_message(index, &self.message(index)?, provider) {
                return Ok(Some((Position::System(index), site)));
            }
        }
        Ok(None)
    }

    /// Where this message can carry a marker, by the document's table.
    fn in_message(
        &self,
        index: usize,
        message: &MessageFields<'a>,
        provider: CacheProvider,
    ) -> Option<MarkerSite> {
        let is_empty = match message.content {
            None => true,
            Some(content) => is_blank_string(content) || elements_are_none(content),
        };
        let on_the_message = || {
            let bare = message.cache_control.is_none();
            bare.then(|| self.object(self.body.messages[index]))
        };
        match (self.shape, message.role.as_deref()) {
            (_, None) => None,
            (Shape::OpenAiChat, Some("tool")) => match provider {
                CacheProvider::Anthropic => on_the_message(),
                CacheProvider::OpenRouter => None,
            },
            (Shape::OpenAiChat, _) if is_empty => on_the_message(),
            _ => message.content.and_then(|content| self.in_content(content)),
        }
    }

    /// Where this content, a string or a list of blocks, can carry a marker.
    fn in_content(&self, content: &'a RawValue) -> Option<MarkerSite> {
        let start = self.offset(content);
        match content.get().as_bytes().first()? {
            b'"' if !is_blank_string(content) => Some(MarkerSite::Text {
                start,
                end: start + content.get().len(),
            }),
            b'[' => {
                let last = *elements(content).last()?;
                let block = MessageFields::parse(last).ok()?;
                let can_carry = match block.kind.as_deref()? {
                    "thinking" | "redacted_thinking" => false,
                    "text" => !is_blank_string(block.text?),
                    _ => true,
                };
                (can_carry && block.cache_control.is_none()).then(|| self.object(last))
            }
            _ => None,
        }
    }

    fn object(&self, object: &RawValue) -> MarkerSite {
        MarkerSite::Object {
            brace: self.offset(object) + object.get().len() - 1,
        }
    }

    /// The offset of a borrowed piece of the document within it.
    fn offset(&self, piece: &RawValue) -> usize {
        piece.get().as_ptr() as usize - self.text.as_ptr() as usize
    }
}

/// The elements of a list; empty for anything else.
fn elements(list: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(list.get()).unwrap_or_default()
}

fn elements_are_none(list: &RawValue) -> bool {
    list.get().starts_with('[') && elements(list).is_empty()
}

fn is_blank_string(value: &RawValue) -> bool {
    value.get().starts_with('"')
        && serde_json::from_str::<Cow<'_, str>>(value.get())
            .is_ok_and(|text| text.trim().is_empty())
}

/// The lifetimes of the markers on a message, block or tool, and on its contents, down to this many levels:
/// a message holds blocks, and a block that is a tool's result holds blocks.
fn ttls_of(item: &RawValue, levels: usize) -> Vec<Ttl> {
    let mut ttls = Vec::new();
    // Most items have none, and a search is much cheaper than a parse.
    if memmem::find(item.get().as_bytes(), b"cache_control").is_none() {
        return ttls;
    }
    let Ok(item) = MessageFields::parse(item) else {
        return ttls;
    };
    ttls.extend(
        item.cache_control
            .filter(|marker| marker.get() != "null")
            .map(ttl_of),
    );
    if let Some(below) = levels.checked_sub(1) {
        let blocks = item.content.map(elements).unwrap_or_default();
        for inner in blocks.into_iter().chain(item.function) {
            ttls.extend(ttls_of(inner, below));
        }
    }
    ttls
}

fn ttl_of(marker: &RawValue) -> Ttl {
    #[derive(Deserialize)]
    struct Lifetime {
        ttl: Ttl,
    }
    // A marker without a lifetime has the default one.
    serde_json::from_str::<Lifetime>(marker.get())
        .map(|lifetime| lifetime.ttl)
        .unwrap_or_default()
}

//! Finds the places of a request that can carry a marker, and the markers that the client set.
//!
//! [`Document`] has the parts of the request. [`Document::wanted`] returns the breakpoints of the
//! strategy in order of importance, each with the place in the text for its marker, and
//! [`Document::client_markers`] returns the client's own. A [`Position`] orders both the way
//! the provider reads a request.
//!
//! Parsing goes no deeper than necessary: a message is looked into only if it may get a marker
//! or contains one. Which of the wanted breakpoints are set is decided by the parent module,
//! and `splice` writes them.

use std::borrow::Cow;

use contexture_engine_api::SUMMARY_MARK;
use memchr::memmem;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::splice::Spot;
use super::{CacheProvider, LOOK_BACK, MarkError, ROLLING_MESSAGES, Shape, Ttl};

/// A position in the order in which the provider reads a request: tools, system prompt,
/// messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Position {
    Tools,
    /// The index of the system message if the system prompt is a message, otherwise 0.
    System(usize),
    Message(usize),
    /// A marker on the request itself, which is Anthropic's automatic caching. It works on the
    /// last message.
    Request,
}

/// A marker set by the client, which stays in the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marker {
    pub(super) position: Position,
    pub(super) ttl: Ttl,
}

/// A breakpoint that the strategy asks for, with the bytes that can take its marker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) position: Position,
    pub(super) site: MarkerSite,
}

/// The bytes that can take a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MarkerSite {
    /// The index of the piece of the body that has them.
    pub(crate) piece: usize,
    pub(crate) spot: Spot,
}

/// A request whose text is not written yet. Its parts are pieces of the body.
pub(crate) struct Document<'a> {
    pub(crate) shape: Shape,
    /// The items of the list, each with the index of its piece.
    pub(crate) messages: Vec<(usize, &'a str)>,
    /// The number of messages up to the newest compaction that the provider made itself. If
    /// there is none, it is the number of system messages.
    pub(crate) leading: usize,
    /// The member with the system prompt and the index of its piece.
    pub(crate) system: Option<(usize, &'a str)>,
    pub(crate) tools: Option<&'a str>,
    pub(crate) cache_control: Option<&'a str>,
}

/// The members of a message, a block, a tool or a tool's function that matter here.
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
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    /// `Some` even if the value is null, because the key must not be added a second time.
    #[serde(borrow, default, deserialize_with = "present")]
    cache_control: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

impl<'a> MessageFields<'a> {
    fn parse(object: &'a str) -> Result<Self, serde_json::Error> {
        // Serde would also accept a list with the members in order.
        if object.starts_with('[') {
            return Err(serde::de::Error::custom("a list instead of an object"));
        }
        serde_json::from_str(object)
    }

    /// The number of blocks that the provider counts for this message, which is at least 1.
    fn blocks(&self) -> usize {
        let listed = |list: Option<&RawValue>| list.map_or(0, |list| elements(list.get()).len());
        (listed(self.content) + listed(self.tool_calls)).max(1)
    }

    fn is_system(&self) -> bool {
        matches!(self.role.as_deref(), Some("system" | "developer"))
    }
}

impl<'a> Document<'a> {
    fn message(&self, index: usize) -> Result<MessageFields<'a>, MarkError> {
        MessageFields::parse(self.messages[index].1)
            .map_err(|cause| MarkError::NotAMessage { index, cause })
    }

    /// The number of messages at the head that are the system prompt. It is 0 for Anthropic,
    /// which stores the prompt in a member.
    fn leading_system(&self) -> Result<usize, MarkError> {
        let mut leading = 0;
        while self.shape == Shape::OpenAiChat
            && leading < self.messages.len()
            && self.message(leading)?.is_system()
        {
            leading += 1;
        }
        Ok(leading)
    }

    /// Returns the client's markers, in all places in which the providers accept them: tools,
    /// system prompt, messages and the request itself.
    pub(super) fn client_markers(&self) -> Result<Vec<Marker>, MarkError> {
        let mut markers = Vec::new();
        let mut add = |position, ttls: Vec<Ttl>| {
            markers.extend(ttls.into_iter().map(|ttl| Marker { position, ttl }));
        };
        for tool in self.tools.map(marked_elements).unwrap_or_default() {
            add(Position::Tools, ttls_of(tool, 1));
        }
        if let Some((_, system)) = self.system {
            for block in marked_elements(system) {
                add(Position::System(0), ttls_of(block, 1));
            }
        }
        let leading = self.leading_system()?;
        for (index, (_, message)) in self.messages.iter().enumerate() {
            let position = if index < leading {
                Position::System(index)
            } else {
                Position::Message(index)
            };
            add(position, ttls_of(message, 2));
        }
        if let Some(marker) = self.cache_control {
            add(Position::Request, vec![ttl_of(marker)]);
        }
        Ok(markers)
    }

    /// Returns the breakpoints that the strategy asks for and that the client did not set, the
    /// most important first. These are the system prompt and then the last messages, starting
    /// at the end.
    ///
    /// If the earliest of them is so far from the end of the previous request that the provider
    /// would not find the cached prefix there, it moves to that end. If the window has
    /// summaries, the earliest one gives way to a breakpoint before the last summary.
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
                    .map(|(position, site)| Wanted { position, site }),
            );
        }
        // What the provider compacted must keep its bytes, so it cannot take a marker.
        let first_own = leading.max(self.leading);
        let before_summary = (self.before_last_summary(first_own, provider)?)
            .filter(|(at, _)| !is_marked(Position::Message(*at)));
        // The breakpoint before the summary takes the place of one of the others.
        let most = ROLLING_MESSAGES - usize::from(before_summary.is_some());
        let mut rolling = Vec::new();
        let mut places = 0;
        // Automatic caching puts a breakpoint on the last message.
        let mut taken_by_request = is_marked(Position::Request);
        for index in (first_own..self.messages.len()).rev() {
            if places == most {
                break;
            }
            let message = self.message(index)?;
            if message.is_system() {
                continue;
            }
            if is_marked(Position::Message(index)) || std::mem::take(&mut taken_by_request) {
                places += 1;
            } else if let Some(site) = self.in_message(index, &message, provider) {
                rolling.push((index, site));
                places += 1;
            }
        }
        if rolling.len() == most
            && let Some(last) = rolling.last_mut()
            && let Some(moved) = self.out_of_reach(first_own, last.0, provider)?
            && !is_marked(Position::Message(moved.0))
        {
            *last = moved;
        }
        rolling.extend(before_summary.filter(|new| rolling.iter().all(|(_, site)| *site != new.1)));
        wanted.extend(rolling.into_iter().map(|(index, site)| Wanted {
            position: Position::Message(index),
            site,
        }));
        Ok(wanted)
    }

    /// Returns the end of the previous request as far as it can carry a marker, if the provider
    /// would not find it from a marker on the message `first`. `None` if the provider finds it,
    /// or if there was no previous request.
    fn out_of_reach(
        &self,
        first_own: usize,
        first: usize,
        provider: CacheProvider,
    ) -> Result<Option<(usize, MarkerSite)>, MarkError> {
        let mut blocks = 0;
        let mut is_answered = false;
        for index in (first_own..=first).rev() {
            let message = self.message(index)?;
            let site = match is_answered && !message.is_system() {
                true => self.in_message(index, &message, provider),
                false => None,
            };
            if let Some(site) = site {
                return Ok((blocks >= LOOK_BACK).then_some((index, site)));
            }
            // The previous request ended before the last answer, so the search starts there.
            is_answered |= message.role.as_deref() == Some("assistant");
            blocks += message.blocks();
        }
        Ok(None)
    }

    /// Returns the last place before the last summary that can carry a marker. The next
    /// compaction rewrites that summary and may leave everything before it unchanged.
    fn before_last_summary(
        &self,
        first_own: usize,
        provider: CacheProvider,
    ) -> Result<Option<(usize, MarkerSite)>, MarkError> {
        let mark = format!("\"{SUMMARY_MARK}");
        let is_summary = |text: &RawValue| text.get().starts_with(&mark);
        for index in (first_own..self.messages.len()).rev() {
            // Most messages contain no summary, and a search is much cheaper than parsing.
            let (piece, text) = self.messages[index];
            if memmem::find(text.as_bytes(), mark.as_bytes()).is_none() {
                continue;
            }
            let Some(content) = self.message(index)?.content else {
                continue;
            };
            let blocks = elements(content.get());
            let summary = blocks.iter().rposition(|block| {
                MessageFields::parse(block).is_ok_and(|block| block.text.is_some_and(is_summary))
            });
            if summary.is_none() && !is_summary(content) {
                continue;
            }
            let mut before = blocks[..summary.unwrap_or(0)].iter().rev();
            if let Some(site) = before.find_map(|block| in_block((piece, text), block)) {
                return Ok(Some((index, site)));
            }
            if index == first_own {
                return Ok(None);
            }
            let before = self.message(index - 1)?;
            let site = self.in_message(index - 1, &before, provider);
            return Ok(site
                .filter(|_| !before.is_system())
                .map(|site| (index - 1, site)));
        }
        Ok(None)
    }

    /// Returns the place in the system prompt for a marker, as close to its end as possible.
    fn system_prompt(
        &self,
        leading: usize,
        provider: CacheProvider,
    ) -> Result<Option<(Position, MarkerSite)>, MarkError> {
        if let Some(site) = self.system.and_then(|system| in_content(system, system.1)) {
            return Ok(Some((Position::System(0), site)));
        }
        for index in (0..leading).rev() {
            if let Some(site) = self.in_message(index, &self.message(index)?, provider) {
                return Ok(Some((Position::System(index), site)));
            }
        }
        Ok(None)
    }

    /// Returns the place in this message for a marker, by the rules of its format and provider.
    /// `None` if the message cannot carry one.
    fn in_message(
        &self,
        index: usize,
        message: &MessageFields<'a>,
        provider: CacheProvider,
    ) -> Option<MarkerSite> {
        let is_empty = match message.content {
            None => true,
            Some(content) => is_blank_string(content.get()) || elements_are_none(content.get()),
        };
        let within = self.messages[index];
        let on_the_message = || {
            let bare = message.cache_control.is_none();
            bare.then(|| object(within, within.1))
        };
        match (self.shape, message.role.as_deref()) {
            (_, None) => None,
            (Shape::OpenAiChat, Some("tool")) => match provider {
                CacheProvider::Anthropic => on_the_message(),
                CacheProvider::OpenRouter => None,
            },
            (Shape::OpenAiChat, _) if is_empty => on_the_message(),
            _ => message
                .content
                .and_then(|content| in_content(within, content.get())),
        }
    }
}

/// Returns the place in this content for a marker. The content is a string or a list of blocks. If
/// it is a list, only its last block counts. `within` is the piece that the content is a slice of.
fn in_content(within: (usize, &str), content: &str) -> Option<MarkerSite> {
    match content.as_bytes().first()? {
        b'"' if !is_blank_string(content) => {
            let start = offset(within, content);
            let end = start + content.len();
            Some(MarkerSite {
                piece: within.0,
                spot: Spot::Text { start, end },
            })
        }
        b'[' => in_block(within, elements(content).last()?),
        _ => None,
    }
}

/// Returns the place in this block for a marker. Thinking and blank texts cannot carry one, and
/// neither can a block that has one.
fn in_block(within: (usize, &str), block: &str) -> Option<MarkerSite> {
    let fields = MessageFields::parse(block).ok()?;
    let can_carry = match fields.kind.as_deref()? {
        "thinking" | "redacted_thinking" => false,
        "text" => !is_blank_string(fields.text?.get()),
        _ => true,
    };
    (can_carry && fields.cache_control.is_none()).then(|| object(within, block))
}

fn object(within: (usize, &str), object: &str) -> MarkerSite {
    let brace = offset(within, object) + object.len() - 1;
    MarkerSite {
        piece: within.0,
        spot: Spot::Object { brace },
    }
}

/// Returns the offset of a slice of a piece within the piece.
fn offset((_, whole): (usize, &str), slice: &str) -> usize {
    slice.as_ptr().addr() - whole.as_ptr().addr()
}

/// Returns the elements of a JSON list if one of them may have a marker.
fn marked_elements(list: &str) -> Vec<&str> {
    match memmem::find(list.as_bytes(), b"cache_control") {
        Some(_) => elements(list),
        None => Vec::new(),
    }
}

/// Returns the elements of a JSON list, or nothing for any other value.
fn elements(list: &str) -> Vec<&str> {
    let elements: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    elements.into_iter().map(RawValue::get).collect()
}

fn elements_are_none(list: &str) -> bool {
    list.starts_with('[') && elements(list).is_empty()
}

fn is_blank_string(value: &str) -> bool {
    let text = value.strip_prefix('"').map(str::trim_start);
    // Any other character makes the text not blank, so a long text is not read.
    text.is_some_and(|text| text.starts_with(['"', '\\']))
        && serde_json::from_str::<Cow<'_, str>>(value).is_ok_and(|text| text.trim().is_empty())
}

/// Returns the lifetimes of the markers on a message, block or tool and on its contents, down
/// to this many levels. A message holds blocks, and a block that is a tool result holds blocks
/// itself.
fn ttls_of(item: &str, levels: usize) -> Vec<Ttl> {
    let mut ttls = Vec::new();
    // Most items have no marker, and a search is much cheaper than parsing.
    if memmem::find(item.as_bytes(), b"cache_control").is_none() {
        return ttls;
    }
    let Ok(item) = MessageFields::parse(item) else {
        return ttls;
    };
    ttls.extend(
        item.cache_control
            .filter(|marker| marker.get() != "null")
            .map(|marker| ttl_of(marker.get())),
    );
    if let Some(below) = levels.checked_sub(1) {
        let blocks = item.content.map(|content| elements(content.get()));
        let function = item.function.map(RawValue::get);
        for inner in blocks.unwrap_or_default().into_iter().chain(function) {
            ttls.extend(ttls_of(inner, below));
        }
    }
    ttls
}

fn ttl_of(marker: &str) -> Ttl {
    #[derive(Deserialize)]
    struct Lifetime {
        ttl: Ttl,
    }
    // A marker without a lifetime has the default one.
    serde_json::from_str::<Lifetime>(marker)
        .map(|lifetime| lifetime.ttl)
        .unwrap_or_default()
}

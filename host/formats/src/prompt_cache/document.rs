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

use super::splice::Spot;
use super::{CacheProvider, LOOK_BACK, ROLLING_MESSAGES, Shape, Ttl};
use crate::json::Raw;

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
    /// The items of the list, each with the index of its piece. All of them are objects.
    pub(crate) messages: Vec<(usize, Raw<'a>)>,
    /// The number of messages up to the newest compaction that the provider made itself. If
    /// there is none, it is the number of system messages.
    pub(crate) leading: usize,
    /// The member with the system prompt and the index of its piece.
    pub(crate) system: Option<(usize, Raw<'a>)>,
    pub(crate) tools: Option<Raw<'a>>,
    pub(crate) cache_control: Option<Raw<'a>>,
}

fn role(message: Raw<'_>) -> Option<Cow<'_, str>> {
    message.get("role")?.string()
}

/// The value of a member, unless it is null.
fn present<'a>(object: Raw<'a>, key: &str) -> Option<Raw<'a>> {
    object.get(key).filter(|value| !value.is_null())
}

fn is_system(message: Raw<'_>) -> bool {
    matches!(role(message).as_deref(), Some("system" | "developer"))
}

/// The number of blocks that the provider counts for a message, which is at least 1.
fn blocks(message: Raw<'_>) -> usize {
    let lists = ["content", "tool_calls"].map(|key| message.get(key));
    let blocks = lists.into_iter().flatten().flat_map(Raw::elements);
    blocks.count().max(1)
}

impl Document<'_> {
    /// The number of messages at the head that are the system prompt. It is 0 for Anthropic,
    /// which stores the prompt in a member.
    fn leading_system(&self) -> usize {
        let messages = self
            .messages
            .iter()
            .filter(|_| self.shape == Shape::OpenAiChat);
        messages
            .take_while(|(_, message)| is_system(*message))
            .count()
    }

    /// Returns the client's markers, in all places in which the providers accept them: tools,
    /// system prompt, messages and the request itself.
    pub(super) fn client_markers(&self) -> Vec<Marker> {
        let mut markers = Vec::new();
        let mut add = |position, ttls: Vec<Ttl>| {
            markers.extend(ttls.into_iter().map(|ttl| Marker { position, ttl }));
        };
        for tool in self.tools.into_iter().flat_map(marked_elements) {
            add(Position::Tools, ttls_of(tool, 1));
        }
        for block in (self.system.into_iter()).flat_map(|(_, system)| marked_elements(system)) {
            add(Position::System(0), ttls_of(block, 1));
        }
        let leading = self.leading_system();
        for (index, (_, message)) in self.messages.iter().enumerate() {
            let position = if index < leading {
                Position::System(index)
            } else {
                Position::Message(index)
            };
            add(position, ttls_of(*message, 2));
        }
        if let Some(marker) = self.cache_control {
            add(Position::Request, vec![ttl_of(marker)]);
        }
        markers
    }

    /// Returns the breakpoints that the strategy asks for and that the client did not set, the
    /// most important first. These are the system prompt and then the last messages, starting
    /// at the end.
    ///
    /// If the earliest of them is so far from the end of the previous request that the provider
    /// would not find the cached prefix there, it moves to that end. If the window has
    /// summaries, the earliest one gives way to a breakpoint before the last summary.
    pub(super) fn wanted(&self, provider: CacheProvider, markers: &[Marker]) -> Vec<Wanted> {
        let is_marked = |wanted: Position| markers.iter().any(|m| m.position == wanted);
        let mut wanted = Vec::new();
        let leading = self.leading_system();
        let system_is_marked = markers
            .iter()
            .any(|marker| matches!(marker.position, Position::System(_)));
        if !system_is_marked {
            wanted.extend(
                self.system_prompt(leading, provider)
                    .map(|(position, site)| Wanted { position, site }),
            );
        }
        // What the provider compacted must keep its bytes, so it cannot take a marker.
        let first_own = leading.max(self.leading);
        let before_summary = (self.before_last_summary(first_own, provider))
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
            if is_system(self.messages[index].1) {
                continue;
            }
            if is_marked(Position::Message(index)) || std::mem::take(&mut taken_by_request) {
                places += 1;
            } else if let Some(site) = self.in_message(index, provider) {
                rolling.push((index, site));
                places += 1;
            }
        }
        if rolling.len() == most
            && let Some(last) = rolling.last_mut()
            && let Some(moved) = self.out_of_reach(first_own, last.0, provider)
            && !is_marked(Position::Message(moved.0))
        {
            *last = moved;
        }
        rolling.extend(before_summary.filter(|new| rolling.iter().all(|(_, site)| *site != new.1)));
        wanted.extend(rolling.into_iter().map(|(index, site)| Wanted {
            position: Position::Message(index),
            site,
        }));
        wanted
    }

    /// Returns the end of the previous request as far as it can carry a marker, if the provider
    /// would not find it from a marker on the message `first`. `None` if the provider finds it,
    /// or if there was no previous request.
    fn out_of_reach(
        &self,
        first_own: usize,
        first: usize,
        provider: CacheProvider,
    ) -> Option<(usize, MarkerSite)> {
        let mut passed = 0;
        let mut is_answered = false;
        for index in (first_own..=first).rev() {
            let message = self.messages[index].1;
            if is_answered
                && !is_system(message)
                && let Some(site) = self.in_message(index, provider)
            {
                return (passed >= LOOK_BACK).then_some((index, site));
            }
            // The previous request ended before the last answer, so the search starts there.
            is_answered |= role(message).as_deref() == Some("assistant");
            passed += blocks(message);
        }
        None
    }

    /// Returns the last place before the last summary that can carry a marker. The next
    /// compaction rewrites that summary and may leave everything before it unchanged.
    fn before_last_summary(
        &self,
        first_own: usize,
        provider: CacheProvider,
    ) -> Option<(usize, MarkerSite)> {
        let mark = format!("\"{SUMMARY_MARK}");
        let is_summary = |text: Raw<'_>| text.text().starts_with(&mark);
        for index in (first_own..self.messages.len()).rev() {
            // Most messages contain no summary, and a search is much cheaper than parsing.
            let (piece, message) = self.messages[index];
            if memmem::find(message.text().as_bytes(), mark.as_bytes()).is_none() {
                continue;
            }
            let Some(content) = message.get("content") else {
                continue;
            };
            let blocks: Vec<Raw<'_>> = content.elements().collect();
            let summary = blocks
                .iter()
                .rposition(|block| block.get("text").is_some_and(is_summary));
            if summary.is_none() && !is_summary(content) {
                continue;
            }
            let mut before = blocks[..summary.unwrap_or(0)].iter().rev();
            if let Some(site) = before.find_map(|block| in_block(piece, *block)) {
                return Some((index, site));
            }
            let before = index.checked_sub(1).filter(|before| *before >= first_own)?;
            let site = self.in_message(before, provider);
            return site
                .filter(|_| !is_system(self.messages[before].1))
                .map(|site| (before, site));
        }
        None
    }

    /// Returns the place in the system prompt for a marker, as close to its end as possible.
    fn system_prompt(
        &self,
        leading: usize,
        provider: CacheProvider,
    ) -> Option<(Position, MarkerSite)> {
        let in_member = self
            .system
            .and_then(|(piece, system)| in_content(piece, system));
        if let Some(site) = in_member {
            return Some((Position::System(0), site));
        }
        (0..leading).rev().find_map(|index| {
            let site = self.in_message(index, provider)?;
            Some((Position::System(index), site))
        })
    }

    /// Returns the place in this message for a marker, by the rules of its format and provider.
    /// `None` if the message cannot carry one.
    fn in_message(&self, index: usize, provider: CacheProvider) -> Option<MarkerSite> {
        let (piece, message) = self.messages[index];
        let content = present(message, "content");
        let on_the_message = || {
            let bare = message.get("cache_control").is_none();
            bare.then(|| object(piece, message))
        };
        match (self.shape, role(message)?.as_ref()) {
            (Shape::OpenAiChat, "tool") => match provider {
                CacheProvider::Anthropic => on_the_message(),
                CacheProvider::OpenRouter => None,
            },
            (Shape::OpenAiChat, _) if content.is_none_or(is_empty) => on_the_message(),
            _ => in_content(piece, content?),
        }
    }
}

/// Returns the place in this content for a marker. The content is a string or a list of blocks. If
/// it is a list, only its last block counts. `piece` is the piece that the content is a part of.
fn in_content(piece: usize, content: Raw<'_>) -> Option<MarkerSite> {
    if content.is_string() && !is_blank(content) {
        let (start, end) = (content.span().start, content.span().end);
        let spot = Spot::Text { start, end };
        return Some(MarkerSite { piece, spot });
    }
    in_block(piece, content.elements().last()?)
}

/// Returns the place in this block for a marker. Thinking and blank texts cannot carry one, and
/// neither can a block that has one.
fn in_block(piece: usize, block: Raw<'_>) -> Option<MarkerSite> {
    let can_carry = match block.get("type")?.string()?.as_ref() {
        "thinking" | "redacted_thinking" => false,
        "text" => !is_blank(present(block, "text")?),
        _ => true,
    };
    // A marker that is null counts too, because the key must not be added a second time.
    (can_carry && block.get("cache_control").is_none()).then(|| object(piece, block))
}

fn object(piece: usize, object: Raw<'_>) -> MarkerSite {
    let brace = object.span().end - 1;
    let spot = Spot::Object { brace };
    MarkerSite { piece, spot }
}

/// Returns the elements of a list if one of them may have a marker.
fn marked_elements(list: Raw<'_>) -> impl Iterator<Item = Raw<'_>> {
    let marked = Some(list).filter(|list| may_be_marked(*list));
    marked.into_iter().flat_map(Raw::elements)
}

/// Most values have no marker, and a search is much cheaper than parsing.
fn may_be_marked(value: Raw<'_>) -> bool {
    memmem::find(value.text().as_bytes(), b"cache_control").is_some()
}

fn is_empty(content: Raw<'_>) -> bool {
    is_blank(content) || (content.is_array() && content.elements().next().is_none())
}

fn is_blank(value: Raw<'_>) -> bool {
    let text = value.inner().map(str::trim_start);
    // Any other character makes the text not blank, so a long text is not read.
    text.is_some_and(|text| text.is_empty() || text.starts_with('\\'))
        && value.string().is_some_and(|text| text.trim().is_empty())
}

/// Returns the lifetimes of the markers on a message, block or tool and on its contents, down
/// to this many levels. A message holds blocks, and a block that is a tool result holds blocks
/// itself.
fn ttls_of(item: Raw<'_>, levels: usize) -> Vec<Ttl> {
    if !may_be_marked(item) {
        return Vec::new();
    }
    let marker = present(item, "cache_control");
    let mut ttls: Vec<Ttl> = marker.into_iter().map(ttl_of).collect();
    if let Some(below) = levels.checked_sub(1) {
        let blocks = item.get("content").into_iter().flat_map(Raw::elements);
        for inner in blocks.chain(item.get("function")) {
            ttls.extend(ttls_of(inner, below));
        }
    }
    ttls
}

/// The lifetime of a marker. One that states none has the default one.
fn ttl_of(marker: Raw<'_>) -> Ttl {
    match marker.has("ttl", "1h") {
        true => Ttl::OneHour,
        false => Ttl::default(),
    }
}

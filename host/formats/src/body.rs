//! Finds the parts of a request body, or of another document with a list of messages, in one
//! pass over its text.
//!
//! [`split`] is the entry point for a proxy: it returns the raw messages of a body as a
//! [`WireBody`], without looking into them. [`split_again`] does the same for a body that
//! repeats the beginning of an earlier one, as chat clients do with every request. Both work on
//! a [`BodySpans`], which records the byte range of each part. A [`SplitBody`] owns the text, so
//! that a body that was split once can travel to another thread.
//!
//! This module also decides what belongs to the system prompt and which provider's the messages
//! are. The messages themselves are read elsewhere, in `anatomy` and `views`.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use contexture_engine_api::SUMMARY_END_MARK;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::anatomy::{PieceKind, anatomy};
use super::compacted::{newest, through};
use super::json::{
    JsonError, Raw, skip_space, value_end, walk_array, walk_array_on, walk_object, walk_object_on,
};
use super::seal::leading_summary;
use super::{Format, FormatError, passes};

/// The byte range of each part of a body in its text. A part that the body does not have is
/// `None` or empty.
#[derive(Debug, Clone, Default)]
pub(super) struct BodySpans {
    /// The whole object, or the list if the body is a bare list.
    pub(super) span: Range<usize>,
    pub(super) is_bare: bool,
    /// The list of messages. In a Responses body it may be a string, which then is the only
    /// item.
    pub(super) list: Option<Range<usize>>,
    pub(super) items: Vec<Range<usize>>,
    /// The member with the system prompt, if the format does not store it as a message.
    pub(super) system: Option<Range<usize>>,
    pub(super) tools: Option<Range<usize>>,
    pub(super) model: Option<Range<usize>>,
    /// The name and the value of each member in order, apart from the list of messages.
    members: Vec<(Box<str>, Range<usize>)>,
    /// The name of the list, one of [`LIST_KEYS`], and empty for a bare list.
    pub(super) list_key: &'static str,
    /// The number of items that were examined to detect the dialect, and the result. A later
    /// scan continues from there.
    asked: (usize, Option<Format>),
    /// The number of items that were searched for a compaction by the provider, and the index
    /// of the newest one found.
    compacted: (usize, Option<usize>),
    /// Whether a member occurs twice. The last one counts, so the beginning of such a body does
    /// not determine it.
    repeats: bool,
}

impl BodySpans {
    /// Scans the body that starts at byte `at` of `text`. If the body has several lists, the
    /// order of precedence is that of [`LIST_KEYS`]. Fails if the body is not valid JSON.
    pub(super) fn scan(text: &str, at: usize) -> Result<Self, JsonError> {
        passes::split();
        let mut body = Self::default();
        // A bare list has no members, so only its messages can tell its format.
        if text.as_bytes().get(at) == Some(&b'[') {
            let end = walk_array(text, at, |item| body.items.push(item))?;
            body.span = at..end;
            body.list = Some(at..end);
            body.is_bare = true;
            return Ok(body);
        }
        let end = walk_object(text, at, |key, start| body.member(text, &key, start))?;
        body.span = at..end;
        Ok(body)
    }

    /// Scans the rest of a body that equals this one up to the end of its last item. Fails if
    /// the rest is not valid JSON.
    fn scan_on(mut self, text: &str) -> Result<Self, JsonError> {
        passes::split();
        let at = self.items.last().map_or(0, |item| item.end);
        let mut end = walk_array_on(text, at, |item| self.items.push(item))?;
        self.list = self.list.map(|list| list.start..end);
        if !self.is_bare {
            end = walk_object_on(text, end, |key, start| self.member(text, &key, start))?;
        }
        self.span.end = end;
        Ok(self)
    }

    /// Returns this body without the members that follow its last item. `None` if it has no
    /// list with an item, or if a repeated member could override one before the list.
    fn beginning(&self, text: &str) -> Option<Self> {
        let end = self.items.last()?.end;
        let list = self.list.clone()?;
        let before = |part: &Option<Range<usize>>| part.clone().filter(|part| part.end <= end);
        let members = self.members.iter().filter(|(_, value)| value.end <= end);
        let is_list = text.as_bytes().get(list.start) == Some(&b'[');
        // If a member after the list repeats one before it, the earlier value is already lost.
        (is_list && !self.repeats).then(|| Self {
            system: before(&self.system),
            tools: before(&self.tools),
            model: before(&self.model),
            members: members.cloned().collect(),
            ..self.clone()
        })
    }

    /// Records the member whose value begins at byte `start`, and returns the end of the value.
    fn member(&mut self, text: &str, key: &str, start: usize) -> Result<usize, JsonError> {
        let list_key = LIST_KEYS.into_iter().find(|name| key == *name);
        if let Some(list_key) = list_key {
            // A list stays if a later one has a lower precedence. If both have the same name,
            // the later one counts, as for any repeated member.
            let outranked = self.list.is_some() && rank(self.list_key) < rank(list_key);
            let first = text.as_bytes().get(start);
            let is_list = first == Some(&b'[') || (first == Some(&b'"') && list_key == "input");
            if !outranked && is_list {
                let mut items = Vec::new();
                let end = if first == Some(&b'[') {
                    walk_array(text, start, |item| items.push(item))?
                } else {
                    let end = value_end(text, start)?;
                    items.push(start..end);
                    end
                };
                if let Some(outranked) = self.list.replace(start..end) {
                    self.members.push((self.list_key.into(), outranked));
                }
                self.items = items;
                self.list_key = list_key;
                return Ok(end);
            }
        }
        let end = value_end(text, start)?;
        self.add_member(key, start..end);
        Ok(end)
    }

    /// Records a member that is not the list of messages.
    pub(super) fn add_member(&mut self, key: &str, value: Range<usize>) {
        self.members.push((key.into(), value.clone()));
        let place = match key {
            "system" | "instructions" | "systemInstruction" | "system_instruction" => {
                &mut self.system
            }
            "tools" => &mut self.tools,
            "model" => &mut self.model,
            _ => return,
        };
        self.repeats |= place.replace(value).is_some();
    }

    /// Removes what only a scan knows.
    #[cfg(test)]
    pub(super) fn forget_scan(&mut self) {
        (self.asked, self.compacted, self.repeats) = Default::default();
    }

    /// The members in order, apart from the list of messages.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Range<usize>)> {
        self.members
            .iter()
            .map(|(key, value)| (key.as_ref(), value))
    }

    /// The value of the member `name`. If several members share the name, the last one counts.
    pub(super) fn value_of(&self, name: &str) -> Option<&Range<usize>> {
        let mut values = self.members.iter().rev();
        values.find_map(|(key, value)| (**key == *name).then_some(value))
    }

    /// Returns how many of the first items form the system prompt. These are messages with the
    /// role `system` or `developer` that the host did not add, and items that set up the
    /// conversation.
    pub(super) fn leading_system(&self, text: &str) -> usize {
        let items = self.items.iter();
        let texts = items.map(|item| text.get(item.clone()).unwrap_or(""));
        texts.take_while(|item| is_system(item)).count()
    }

    /// Returns how many items after the `leading` ones are covered by the newest compaction
    /// that the provider made itself. It is 0 if the provider compacted nothing.
    pub(super) fn compacted(&mut self, text: &str, leading: usize) -> usize {
        let raw = |at: usize| Some(Raw::trusted(text, self.items.get(at)?.clone()));
        let (looked, known) = self.compacted;
        let found = newest(looked.max(leading)..self.items.len(), raw).or(known);
        let through = found.map_or(leading, |newest| through(newest, raw));
        self.compacted = (self.items.len(), found);
        through - leading
    }

    /// Detects whose messages these are, by the name of the list or else by the first feature that
    /// only one provider has. If nothing decides, it is OpenAI chat.
    pub(super) fn dialect(&mut self, text: &str) -> Format {
        let raw = |span: &Range<usize>| Raw::trusted(text, span.clone());
        match self.list_key {
            "input" => return Format::OpenAiResponses,
            "contents" => return Format::Gemini,
            _ => {}
        }
        // OpenAI chat has no member for the system prompt.
        if self.system.is_some() {
            return Format::Anthropic;
        }
        let tools = self.tools.iter().flat_map(|tools| raw(tools).elements());
        for tool in tools {
            if tool.get("input_schema").is_some() {
                return Format::Anthropic;
            }
            if tool.get("function").is_some() {
                return Format::OpenAiChat;
            }
            // Messages are only ever added, so a verdict from an earlier scan stays valid.
        }
        let (asked, told) = self.asked;
        let mut rest = self.items.iter().skip(asked);
        let told = told.or_else(|| rest.find_map(|item| message_dialect(raw(item))));
        self.asked = (self.items.len(), told);
        told.unwrap_or(Format::OpenAiChat)
    }
}

/// The names that the list of messages has in the formats. If a body has several lists, the first
/// of these names counts.
pub(super) const LIST_KEYS: [&str; 4] = ["messages", "input", "contents", "history"];

/// The precedence of a list among several lists of one body, the lowest first.
fn rank(list_key: &str) -> Option<usize> {
    LIST_KEYS.iter().position(|name| *name == list_key)
}

/// Whether an item at the head of a list is part of the system prompt.
pub(super) fn is_system(item: &str) -> bool {
    let raw = Raw::whole(item);
    is_prompt(raw) || is_setup(raw)
}

/// Whether an item at the head of a list is a message of the system prompt, and not a summary
/// or notice that the host stored in a system message.
pub(super) fn is_prompt(item: Raw<'_>) -> bool {
    let role = item.get("role").and_then(Raw::string);
    matches!(role.as_deref(), Some("system" | "developer")) && !is_put_in(item)
}

/// Whether an item at the head of a list is not a message but sets up the conversation, like
/// Codex's `additional_tools`. Such an item stays whole and in its place. It has no role, and
/// its type is not one that items of a conversation have.
pub(super) fn is_setup(item: Raw<'_>) -> bool {
    const OF_CONVERSATIONS: [&str; 4] = ["message", "reasoning", "item_reference", "compaction"];
    const ENDS: [&str; 8] = [
        "_call", "_output", "_result", "_request", "_response", "_search", "_compaction",
        "_summary",
    ];
    let Some(kind) = item.get("type").and_then(Raw::string) else {
        return false;
    };
    let is_said = OF_CONVERSATIONS.contains(&kind.as_ref())
        || ENDS.iter().any(|end| kind.ends_with(end))
        || ["role", "call_id", "content"]
            .iter()
            .any(|key| item.get(key).is_some());
    !is_said
}

/// Returns the span of the tool list in an item at the head of a list. `None` if the item has
/// content of its own, because then it is a message.
pub(super) fn tools_of(item: Raw<'_>) -> Option<Range<usize>> {
    let tools = item.get("tools").filter(|tools| tools.is_array())?;
    item.get("content").is_none().then(|| tools.span())
}

/// Whether a system message is a summary or a notice of the host.
fn is_put_in(item: Raw<'_>) -> bool {
    // The host's mark is near the end. A system prompt is long and examined in every turn, so
    // only its end is searched.
    const NEAR: usize = 256;
    let bytes = item.text().as_bytes();
    let end = bytes.get(bytes.len().saturating_sub(NEAR)..);
    let has =
        |mark: &str| end.is_some_and(|end| end.windows(mark.len()).any(|at| at == mark.as_bytes()));
    (has("[notice #") || has(SUMMARY_END_MARK))
        && system_text(item).is_some_and(|text| matches!(leading_summary(&text), Some((_, None))))
}

/// The format of the first feature in a message that only one format has. `None` if the message
/// could be of any.
pub(super) fn message_dialect(item: Raw<'_>) -> Option<Format> {
    let (mut role, mut kind, mut calls, mut content) = (None, None, None, None);
    let mut parts = false;
    for (key, value) in item.members() {
        match key.as_ref() {
            "role" => role = Some(value),
            "type" => kind = Some(value),
            "tool_calls" => calls = Some(value),
            "content" => content = Some(value),
            "parts" => parts = value.is_array(),
            _ => {}
        }
    }
    if parts && content.is_none() {
        return Some(Format::Gemini);
    }
    // Items without a role exist only in the Responses API.
    let Some(role) = role.and_then(Raw::string) else {
        return kind.map(|_| Format::OpenAiResponses);
    };
    if matches!(role.as_ref(), "system" | "developer" | "tool" | "function") || calls.is_some() {
        return Some(Format::OpenAiChat);
    }
    content?
        .elements()
        .find_map(|part| match part.get("type")?.string()?.as_ref() {
            "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "server_tool_use"
            | "image" | "document" => Some(Format::Anthropic),
            "image_url" | "input_audio" | "file" => Some(Format::OpenAiChat),
            "input_text" | "output_text" | "input_image" | "input_file" => {
                Some(Format::OpenAiResponses)
            }
            _ => None,
        })
}

/// Returns the text of a system prompt, which is a string, a list of blocks or a message with
/// the role `system`. `None` if the item only lists tools.
pub(super) fn system_text(raw: Raw<'_>) -> Option<String> {
    if let Some(text) = raw.string() {
        return Some(text.into_owned());
    }
    if raw.is_object() && tools_of(raw).is_some() {
        // Such an item counts as tools, so its text must not count a second time.
        return None;
    }
    if raw.is_object() && is_setup(raw) {
        return Some(raw.text().to_owned());
    }
    if raw.is_object() {
        let item = anatomy(raw).ok()?;
        let texts: Vec<_> = item
            .pieces
            .iter()
            .filter_map(|piece| match piece.kind {
                PieceKind::Text(text) => text.string(),
                _ => None,
            })
            .collect();
        return Some(texts.join("\n"));
    }
    let texts: Vec<_> = raw
        .elements()
        .filter_map(|block| block.get_string("text"))
        .collect();
    raw.is_array().then(|| texts.join("\n"))
}

/// A request body split into raw JSON pieces that borrow from its text. [`split`] builds it.
/// Use it if the messages are passed on and only some of them are read. A body with other
/// messages is made with [`with_messages`](Self::with_messages), and its text with
/// [`write`](Self::write).
#[derive(Debug, Clone)]
pub struct WireBody<'a> {
    /// The format of the body: `openai`, `responses`, `anthropic` or `gemini`.
    pub format: Format,
    /// The JSON of the member `system` (Anthropic), `instructions` (Responses) or
    /// `systemInstruction` (Gemini), if the body has it.
    pub system: Option<&'a str>,
    /// The JSON of the leading messages with the role `system` or `developer`, and of the items
    /// that set up the conversation. Together they are the system prompt.
    pub system_messages: Vec<&'a str>,
    /// The JSON of the member `tools`, if the body has it.
    pub tools: Option<&'a str>,
    /// The model's name, if the body states it. Gemini's URL states it instead.
    pub model: Option<Cow<'a, str>>,
    /// The JSON of the messages from there up to the newest compaction that the provider made
    /// itself. Nobody else can read that block or item, so these are sent unchanged and are not
    /// part of `messages`.
    pub compacted: Vec<&'a str>,
    /// The JSON of each wire message after these, in order.
    pub messages: Vec<&'a str>,
    pub(super) text: &'a str,
    /// Where the parts of the text are.
    pub(super) parts: BodyParts,
    /// The index in the list of the text that each of `messages` has. None for a message from
    /// elsewhere. None for all if they are exactly the messages of the text.
    pub(super) origins: Option<Vec<Option<usize>>>,
}

impl<'a> WireBody<'a> {
    /// Whether an item before the messages defines tools, like Codex's `additional_tools`. If
    /// so, the model looks for tools there.
    pub fn has_tool_items(&self) -> bool {
        self.tool_items().next().is_some()
    }

    /// Whether the model is offered any tools, in the body's list or in items before the messages.
    pub fn offers_tools(&self) -> bool {
        let list = self
            .tools
            .and_then(|tools| tools.trim_start().strip_prefix('['));
        list.is_some_and(|list| !list.trim_start().starts_with(']')) || self.has_tool_items()
    }

    /// The lists of tools in the items before the messages.
    fn tool_items(&self) -> impl Iterator<Item = &'a str> {
        self.system_messages.iter().filter_map(|text| {
            let raw = Raw::whole(text);
            text.get(tools_of(raw)?)
        })
    }

    /// The number of wire messages before the first of [`messages`](Self::messages).
    pub fn leading(&self) -> usize {
        self.system_messages.len() + self.compacted.len()
    }

    /// Returns the JSON of the member `name` of the body, or `None` if there is no such member.
    /// The list of messages is not accessible this way.
    pub fn member(&self, name: &str) -> Option<&'a str> {
        self.text.get(self.parts.body.value_of(name)?.clone())
    }

    /// What stands outside the messages.
    pub fn preamble(&self) -> Preamble<'a> {
        let raw = |text: &&'a str| Raw::whole(text);
        let system = self.system.iter().chain(&self.system_messages);
        let system: Vec<String> = system.filter_map(|text| system_text(raw(text))).collect();
        Preamble {
            format: self.format,
            system: (!system.is_empty()).then(|| system.join("\n\n").into()),
            tools: self.tools.into_iter().chain(self.tool_items()).collect(),
            compacted: self.compacted.clone(),
        }
    }

    /// Returns the body with these messages in place of its own. If a message is one of
    /// [`messages`](Self::messages) and unchanged, give its index there. The text between such
    /// neighbours is then kept when the body is written.
    pub fn with_messages<'m>(&self, messages: Vec<(Option<usize>, &'m str)>) -> WireBody<'m>
    where
        'a: 'm,
    {
        let leading = self.leading();
        let origin = |index: usize| match &self.origins {
            Some(origins) => origins.get(index).copied().flatten(),
            None => Some(leading + index),
        };
        let (origins, messages) = (messages.into_iter())
            .map(|(index, text)| (index.and_then(origin), text))
            .unzip();
        WireBody {
            messages,
            origins: Some(origins),
            ..self.clone()
        }
    }
}

/// What stands outside the messages of a body: the system prompt, the tools, and what the provider
/// compacted itself.
#[derive(Debug, Clone)]
pub struct Preamble<'a> {
    /// The format of the body.
    pub format: Format,
    /// The text of the system prompt, its parts separated by an empty line. `None` if there is
    /// none.
    pub system: Option<Cow<'a, str>>,
    /// The JSON of each list of tools: the request's own list, and the lists in items at its head.
    pub tools: Vec<&'a str>,
    /// The JSON of each item up to the newest compaction that the provider made itself.
    pub compacted: Vec<&'a str>,
}

/// A request body that owns its text, or shares it, and knows where its parts are. It was split
/// once, or was written by [`WireBody::write`], and need not be split again.
#[derive(Debug, Clone)]
pub struct SplitBody<T> {
    pub(super) text: T,
    pub(super) parts: BodyParts,
}

/// A [`SplitBody`] without its text: where the parts of the body are in it.
#[derive(Debug, Clone)]
pub struct BodyParts {
    pub(super) format: Format,
    pub(super) body: Arc<BodySpans>,
    /// The number of items that form the system prompt.
    pub(super) system: usize,
    /// The number of items after these that the provider compacted itself.
    pub(super) compacted: usize,
    /// The length of the text in bytes.
    pub(super) len: usize,
}

impl BodyParts {
    /// Joins the parts with their text. `None` if this cannot be their text, because its length
    /// differs.
    pub fn with_text<T: AsRef<str>>(self, text: T) -> Option<SplitBody<T>> {
        let is_same = self.len == text.as_ref().len();
        is_same.then_some(SplitBody { text, parts: self })
    }

    /// The parts of the text that they were found in.
    fn of<'a>(&self, text: &'a str) -> WireBody<'a> {
        let body = &self.body;
        let slice = |span: &Range<usize>| text.get(span.clone()).unwrap_or("");
        let (system_messages, messages) = body.items.split_at(self.system);
        let (compacted, messages) = messages.split_at(self.compacted);
        WireBody {
            format: self.format,
            system: body.system.as_ref().map(slice),
            system_messages: system_messages.iter().map(slice).collect(),
            compacted: compacted.iter().map(slice).collect(),
            tools: body.tools.as_ref().map(slice),
            model: (body.model.clone()).and_then(|span| Raw::trusted(text, span).string()),
            messages: messages.iter().map(slice).collect(),
            text,
            parts: self.clone(),
            origins: None,
        }
    }
}

impl<T: AsRef<str>> SplitBody<T> {
    /// Splits a body like [`split`].
    ///
    /// # Errors
    /// Fails for the same reasons as [`split`].
    pub fn split(text: T, format: Option<Format>) -> Result<Self, FormatError> {
        let parts = split_text(text.as_ref(), format)?;
        Ok(Self { text, parts })
    }

    /// The format of the body.
    pub fn format(&self) -> Format {
        self.parts.format
    }

    /// The text of the body.
    pub fn text(&self) -> &T {
        &self.text
    }

    /// The parts of the body. They are slices of its text, so this is no second split.
    pub fn wire(&self) -> WireBody<'_> {
        self.parts.of(self.text.as_ref())
    }

    /// Puts the text into another owner, which must leave it as it is.
    pub fn map<U>(self, owner: impl FnOnce(T) -> U) -> SplitBody<U> {
        SplitBody {
            text: owner(self.text),
            parts: self.parts,
        }
    }

    /// The text of the body, and where its parts are.
    pub fn into_parts(self) -> (T, BodyParts) {
        (self.text, self.parts)
    }
}

/// The start of a request body, up to the end of its last message. A client sends the whole
/// conversation with each request, so the next body usually starts with the same bytes, and
/// these need not be split again.
#[derive(Debug, Clone)]
pub struct Beginning {
    body: BodySpans,
    hash: u128,
    /// A hash of the last bytes of the beginning. It usually suffices to detect a change.
    last: u64,
}

impl Beginning {
    /// The number of bytes at the end of the beginning that are compared first.
    const LAST: usize = 256;

    fn len(&self) -> usize {
        self.body.items.last().map_or(0, |item| item.end)
    }

    /// Returns the hash of the start of `text` if `text` starts with this beginning, so that
    /// the caller can continue it.
    fn found_in(&self, text: &str) -> Option<Xxh3> {
        let bytes = text.as_bytes().get(..self.len())?;
        let last = bytes.get(bytes.len().saturating_sub(Self::LAST)..)?;
        // Most changes move the text after them, so they show here without a hash of the whole
        // text.
        if xxh3_64(last) != self.last {
            return None;
        }
        let mut hash = Xxh3::new();
        hash.update(bytes);
        (hash.digest128() == self.hash).then_some(hash)
    }
}

/// Like [`split`], for a body that may start like an earlier one. Also returns the beginning of
/// this body for the next call, and how many of its items are in the earlier beginning. That
/// number is 0 if the body starts differently.
///
/// # Errors
/// Fails for the same reasons as [`split`].
pub fn split_again<'a>(
    text: &'a str,
    format: Option<Format>,
    before: Option<&Beginning>,
) -> Result<(WireBody<'a>, Option<Beginning>, usize), FormatError> {
    let again = before.and_then(|before| Some((before, before.found_in(text)?)));
    // The hash of the earlier beginning is continued, so that its bytes are not hashed a second
    // time.
    let (wire, mut hash, hashed, known) = match again {
        Some((before, hash)) => {
            let found = before.body.clone().scan_on(text);
            let wire = parts_of(text, format, found)?.of(text);
            (wire, hash, before.len(), before.body.items.len())
        }
        None => (split(text, format)?, Xxh3::new(), 0, 0),
    };
    let beginning = wire.parts.body.beginning(text).map(|body| {
        let end = body.items.last().map_or(0, |item| item.end);
        let bytes = text.as_bytes().get(..end).unwrap_or(&[]);
        hash.update(bytes.get(hashed..).unwrap_or(&[]));
        let last = bytes.len().saturating_sub(Beginning::LAST);
        Beginning {
            body,
            hash: hash.digest128(),
            last: xxh3_64(bytes.get(last..).unwrap_or(&[])),
        }
    });
    Ok((wire, beginning, known))
}

/// Splits a request body into its raw messages without looking into them, in one validating
/// pass. If `format` is `None`, the format is detected.
///
/// # Errors
/// Fails if the text is not valid JSON, or if the body lacks the list of messages that the
/// format requires.
pub fn split<'a>(body: &'a str, format: Option<Format>) -> Result<WireBody<'a>, FormatError> {
    Ok(split_text(body, format)?.of(body))
}

fn split_text(body: &str, format: Option<Format>) -> Result<BodyParts, FormatError> {
    let start = skip_space(body, 0);
    parts_of(body, format, BodySpans::scan(body, start))
}

fn parts_of(
    body: &str,
    format: Option<Format>,
    found: Result<BodySpans, JsonError>,
) -> Result<BodyParts, FormatError> {
    let mut found = found.map_err(|error| FormatError::json(body, 0, error))?;
    if skip_space(body, found.span.end) != body.len() {
        let error = JsonError {
            at: found.span.end,
            what: "unexpected text follows the end of the body",
        };
        return Err(FormatError::json(body, 0, error));
    }
    let format = format.unwrap_or_else(|| found.dialect(body));
    let list_key = format.list_key();
    if !found.is_bare && (found.list.is_none() || found.list_key != list_key) {
        let what = format!("the body has no list `{list_key}`");
        return Err(FormatError::NotThis { format, what });
    }
    let system = found.leading_system(body);
    let compacted = found.compacted(body, system);
    Ok(BodyParts {
        format,
        body: Arc::new(found),
        system,
        compacted,
        len: body.len(),
    })
}

#[cfg(test)]
mod tests;

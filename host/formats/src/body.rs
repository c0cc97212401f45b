//! Request bodies and other documents with a list of messages in them: where everything stands, in one
//! pass over the text.

use std::borrow::Cow;
use std::ops::Range;

use contexture_engine_api::SUMMARY_END_MARK;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::anatomy::{PieceKind, anatomy};
use super::compacted::{newest, through};
use super::json::{
    JsonError, Raw, skip_space, value_end, walk_array, walk_array_on, walk_object, walk_object_on,
};
use super::rewrite::Rewrite;
use super::seal::leading_summary;
use super::{Format, FormatError};

/// Where the parts of a body stand in its text, in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    /// The object, or the list where the body is a bare list.
    pub(super) span: Range<usize>,
    /// Whether the body is a bare list of messages.
    pub(super) is_bare: bool,
    /// The list of messages; for Responses it may be a string.
    pub(super) list: Option<Range<usize>>,
    /// The items of the list, in order.
    pub(super) items: Vec<Range<usize>>,
    /// The member that the system prompt stands in, where it is no message.
    pub(super) system: Option<Range<usize>>,
    pub(super) tools: Option<Range<usize>>,
    pub(super) model: Option<Range<usize>>,
    /// The name of the list: `messages`, `input` or `history`.
    pub(super) list_key: &'static str,
    /// How many items were asked for their dialect, and what they said.
    asked: (usize, Option<Format>),
    /// How many items were looked at for what a provider compacted itself, and the newest that is or holds such.
    compacted: (usize, Option<usize>),
    /// Whether a member stands there twice, of which the last counts.
    repeats: bool,
}

impl Body {
    /// Scans the body that starts at `at` of `text`. Of lists with several names the first of
    /// `messages`, `input` and `history` that is there counts.
    pub(super) fn scan(text: &str, at: usize) -> Result<Self, JsonError> {
        let mut body = Self::default();
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

    /// Scans the rest of a body that begins as this one does, up to the end of its last item.
    fn scan_on(mut self, text: &str) -> Result<Self, JsonError> {
        let at = self.items.last().map_or(0, |item| item.end);
        let mut end = walk_array_on(text, at, |item| self.items.push(item))?;
        self.list = self.list.map(|list| list.start..end);
        if !self.is_bare {
            end = walk_object_on(text, end, |key, start| self.member(text, &key, start))?;
        }
        self.span.end = end;
        Ok(self)
    }

    /// What of it stands before the end of its last item; none where it has no list with an item, or where a member
    /// behind the list hides one before it.
    fn beginning(&self, text: &str) -> Option<Self> {
        let end = self.items.last()?.end;
        let list = self.list.clone()?;
        let before = |part: &Option<Range<usize>>| part.clone().filter(|part| part.end <= end);
        let is_list = text.as_bytes().get(list.start) == Some(&b'[');
        (is_list && !self.repeats).then(|| Self {
            system: before(&self.system),
            tools: before(&self.tools),
            model: before(&self.model),
            ..self.clone()
        })
    }

    /// Takes in the member whose value begins at `start`; answers where that ends.
    fn member(&mut self, text: &str, key: &str, start: usize) -> Result<usize, JsonError> {
        let list_key = ["messages", "input", "history"]
            .into_iter()
            .find(|name| key == *name);
        if let Some(list_key) = list_key {
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
                self.list = Some(start..end);
                self.items = items;
                self.list_key = list_key;
                return Ok(end);
            }
        }
        let end = value_end(text, start)?;
        let place = match key {
            "system" | "instructions" => &mut self.system,
            "tools" => &mut self.tools,
            "model" => &mut self.model,
            _ => return Ok(end),
        };
        self.repeats |= place.replace(start..end).is_some();
        Ok(end)
    }

    /// How many of the first items form the system prompt: messages with the role `system` or `developer` that the host
    /// did not add, and items that set up the conversation.
    pub(super) fn leading_system(&self, text: &str) -> usize {
        let raw = |item: &Range<usize>| Raw::trusted(text, item.clone());
        self.items
            .iter()
            .map(raw)
            .take_while(|item| is_prompt(*item) || is_setup(*item))
            .count()
    }

    /// How many items behind the `leading` ones of the system prompt stand up to the newest compaction of the provider's
    /// own.
    pub(super) fn compacted(&mut self, text: &str, leading: usize) -> usize {
        let raw = |at: usize| Some(Raw::trusted(text, self.items.get(at)?.clone()));
        let (looked, known) = self.compacted;
        let found = newest(looked.max(leading)..self.items.len(), raw).or(known);
        let through = found.map_or(leading, |newest| through(newest, raw));
        self.compacted = (self.items.len(), found);
        through - leading
    }

    /// Whether the messages are OpenAI's or Anthropic's, by the first thing that only one of them has.
    pub(super) fn dialect(&mut self, text: &str) -> Format {
        let raw = |span: &Range<usize>| Raw::trusted(text, span.clone());
        if self.list_key == "input" {
            return Format::OpenAiResponses;
        }
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
        }
        let (asked, told) = self.asked;
        let mut rest = self.items.iter().skip(asked);
        let told = told.or_else(|| rest.find_map(|item| message_dialect(raw(item))));
        self.asked = (self.items.len(), told);
        told.unwrap_or(Format::OpenAiChat)
    }
}

fn rank(list_key: &str) -> u8 {
    match list_key {
        "messages" => 0,
        "input" => 1,
        _ => 2,
    }
}

/// Whether an item at the head of a list is part of the system prompt.
pub(super) fn is_prompt(item: Raw<'_>) -> bool {
    let role = item.get("role").and_then(Raw::string);
    matches!(role.as_deref(), Some("system" | "developer")) && !is_put_in(item)
}

/// Whether an item at the head of a list is not a message but sets up the conversation, like Codex's
/// `additional_tools`. Such an item stays whole and in its place. Its type is not one of the conversation item types,
/// and it has no role.
pub(super) fn is_setup(item: Raw<'_>) -> bool {
    const OF_CONVERSATIONS: [&str; 4] = ["message", "reasoning", "item_reference", "compaction"];
    const ENDS: [&str; 8] = [
        "_call",
        "_output",
        "_result",
        "_request",
        "_response",
        "_search",
        "_compaction",
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

/// The span of the JSON of the tool list that an item at the head of a list holds.
pub(super) fn tools_of(item: Raw<'_>) -> Option<Range<usize>> {
    let tools = item.get("tools").filter(|tools| tools.is_array())?;
    item.get("content").is_none().then(|| tools.span())
}

/// Whether a system message is a summary or a notice of the host's.
fn is_put_in(item: Raw<'_>) -> bool {
    // A seal stands near the end; a system prompt is long, and looked at in every turn.
    const NEAR: usize = 256;
    let bytes = item.text().as_bytes();
    let end = bytes.get(bytes.len().saturating_sub(NEAR)..);
    let has =
        |mark: &str| end.is_some_and(|end| end.windows(mark.len()).any(|at| at == mark.as_bytes()));
    (has("[notice #") || has(SUMMARY_END_MARK))
        && system_text(item).is_some_and(|text| matches!(leading_summary(&text), Some((_, None))))
}

fn message_dialect(item: Raw<'_>) -> Option<Format> {
    let (mut role, mut kind, mut calls, mut content) = (None, None, None, None);
    for (key, value) in item.members() {
        match key.as_ref() {
            "role" => role = Some(value),
            "type" => kind = Some(value),
            "tool_calls" => calls = Some(value),
            "content" => content = Some(value),
            _ => {}
        }
    }
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

/// The text of a system prompt: a string, a list of blocks, or a message of the role `system`.
pub(super) fn system_text(raw: Raw<'_>) -> Option<String> {
    if let Some(text) = raw.string() {
        return Some(text.into_owned());
    }
    if raw.is_object() && tools_of(raw).is_some() {
        // They count as tools.
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

/// A request body split into raw pieces, borrowed from its text. See [`split`].
#[derive(Debug, Clone)]
pub struct WireBody<'a> {
    /// The format: `openai`, `responses` or `anthropic`.
    pub format: Format,
    /// The JSON of the member `system` (Anthropic) or `instructions` (Responses).
    pub system: Option<&'a str>,
    /// The JSON of the leading messages with the role `system` or `developer`, and of the items that set up the
    /// conversation: together, the system prompt.
    pub system_messages: Vec<&'a str>,
    /// The JSON of the member `tools`.
    pub tools: Option<&'a str>,
    /// The model's name.
    pub model: Option<Cow<'a, str>>,
    /// The JSON of what stands behind them up to the newest compaction that the provider made itself: a block or item that
    /// nobody else can read. It is kept as it is, and none of the messages.
    pub compacted: Vec<&'a str>,
    /// The JSON of each wire message after these, in order.
    pub messages: Vec<&'a str>,
    text: &'a str,
    body: Body,
}

impl WireBody<'_> {
    /// The whole of it.
    pub fn text(&self) -> &str {
        self.text
    }

    /// Whether items before the messages define tools, like Codex's `additional_tools`.
    pub fn has_tool_items(&self) -> bool {
        let raw = |text: &&str| tools_of(Raw::trusted(text, 0..text.len())).is_some();
        self.system_messages.iter().any(raw)
    }

    /// How many wire messages stand before [`messages`](Self::messages).
    pub fn leading(&self) -> usize {
        self.system_messages.len() + self.compacted.len()
    }

    /// The JSON of a member of the body that is not its list of messages.
    pub fn member(&self, name: &str) -> Option<&str> {
        let mut found = None;
        let list = self.body.list.clone().unwrap_or(0..0);
        // What was split is valid.
        let _ = walk_object(self.text, self.body.span.start, |key, start| {
            if start == list.start {
                return Ok(list.end);
            }
            let end = value_end(self.text, start)?;
            if key == name {
                found = self.text.get(start..end);
            }
            Ok(end)
        });
        found
    }

    /// The body with other messages, and with `note` appended to the system prompt. With each message comes its
    /// index in [`messages`](Self::messages) where it is one of them, byte for byte.
    pub fn with_messages(&self, note: Option<&str>, messages: &[(Option<usize>, &str)]) -> String {
        let (system, leading) = (self.system_messages.len(), self.leading());
        let messages: Vec<_> = (messages.iter())
            .map(|(index, text)| (index.map(|index| index + leading), *text))
            .collect();
        let rewrite = Rewrite {
            document: self.text,
            format: self.format,
            body: &self.body,
            system_items: self.body.items.get(..system).unwrap_or(&[]),
            compacted_items: self.body.items.get(system..leading).unwrap_or(&[]),
        };
        rewrite.document_with(note, &messages)
    }
}

/// What a request body begins with, up to the end of its last message: a client that sends everything sends the
/// same bytes again, which need not be split again.
#[derive(Debug, Clone)]
pub struct Beginning {
    body: Body,
    hash: u128,
    /// A hash of the last bytes: mostly enough to see that something changed.
    last: u64,
}

impl Beginning {
    /// How many bytes at its end are looked at first.
    const LAST: usize = 256;

    fn len(&self) -> usize {
        self.body.items.last().map_or(0, |item| item.end)
    }

    /// The hash of the beginning of `text`, to go on with where it is this one.
    fn found_in(&self, text: &str) -> Option<Xxh3> {
        let bytes = text.as_bytes().get(..self.len())?;
        let last = bytes.get(bytes.len().saturating_sub(Self::LAST)..)?;
        if xxh3_64(last) != self.last {
            return None;
        }
        let mut hash = Xxh3::new();
        hash.update(bytes);
        (hash.digest128() == self.hash).then_some(hash)
    }
}

/// As [`split`], for a body that may begin as one did before. Answers the beginning of this one, and how many of its
/// items stand in that of the one before.
///
/// # Errors
/// As [`split`].
pub fn split_again<'a>(
    text: &'a str,
    format: Option<Format>,
    before: Option<&Beginning>,
) -> Result<(WireBody<'a>, Option<Beginning>, usize), FormatError> {
    let again = before.and_then(|before| Some((before, before.found_in(text)?)));
    let (wire, mut hash, hashed, known) = match again {
        Some((before, hash)) => {
            let found = before.body.clone().scan_on(text);
            let wire = split_scanned(text, format, found)?;
            (wire, hash, before.len(), before.body.items.len())
        }
        None => (split(text, format)?, Xxh3::new(), 0, 0),
    };
    let beginning = wire.body.beginning(text).map(|body| {
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

/// Splits a request body into its raw messages, without looking into them: one validating pass.
///
/// # Errors
/// Where the text is no JSON, or what is missing for a request body of this format.
pub fn split<'a>(body: &'a str, format: Option<Format>) -> Result<WireBody<'a>, FormatError> {
    let start = skip_space(body, 0);
    split_scanned(body, format, Body::scan(body, start))
}

fn split_scanned<'a>(
    body: &'a str,
    format: Option<Format>,
    found: Result<Body, JsonError>,
) -> Result<WireBody<'a>, FormatError> {
    let mut found = found.map_err(|error| FormatError::json(body, 0, error))?;
    if skip_space(body, found.span.end) != body.len() {
        let error = JsonError {
            at: found.span.end,
            what: "something follows after the end of the body",
        };
        return Err(FormatError::json(body, 0, error));
    }
    let format = format.unwrap_or_else(|| found.dialect(body));
    let list_key = match format {
        Format::OpenAiResponses => "input",
        Format::SweAgent => "history",
        _ => "messages",
    };
    if !found.is_bare && (found.list.is_none() || found.list_key != list_key) {
        return Err(FormatError::NotThis {
            format,
            what: format!("the body has no list `{list_key}`"),
        });
    }
    let slice = |span: &Range<usize>| body.get(span.clone()).unwrap_or("");
    let leading = found.leading_system(body);
    let compacted = found.compacted(body, leading);
    let (system_messages, messages) = found.items.split_at(leading);
    let (compacted, messages) = messages.split_at(compacted);
    Ok(WireBody {
        format,
        system: found.system.as_ref().map(slice),
        system_messages: system_messages.iter().map(slice).collect(),
        compacted: compacted.iter().map(slice).collect(),
        tools: found.tools.as_ref().map(slice),
        model: found
            .model
            .clone()
            .and_then(|span| Raw::trusted(body, span).string()),
        messages: messages.iter().map(slice).collect(),
        text: body,
        body: found,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            r#"{"role":"system","content":"be kind"}"#,
            r#"{"role":"user","content":"a \"b\" ]}"}"#,
            r#"{"role":"assistant","content":[{"type":"thinking"}]}"#,
            r#"{"role":"tool","content":"x","tool_call_id":"c"}"#,
            r#" {"type":"reasoning"} "#,
            "7",
        ])
    }

    fn body() -> impl Strategy<Value = (Vec<&'static str>, String, &'static str)> {
        let member = prop::sample::select(vec![
            r#""model":"m","#,
            r#""system":"s","#,
            r#""tools":[{"input_schema":{}}],"#,
            r#""history":["h"],"#,
            r#""input":"one","#,
            "",
        ]);
        let list = prop::sample::select(vec![
            "{M\"messages\":[",
            "{M\"input\":[",
            "[",
            " {M\"messages\" : [",
        ]);
        let ends = vec![
            r#"],"system":"late"}"#,
            r#"],"input":["other"]}"#,
            "]}",
            "]",
            "] } ",
            r#"],"tools":[]"#,
        ];
        let begin = (list, prop::collection::vec(member, 0..3));
        let begin = begin.prop_map(|(list, members)| list.replace('M', &members.concat()));
        (
            prop::collection::vec(item(), 0..6),
            begin,
            prop::sample::select(ends),
        )
    }

    proptest! {
        /// Whatever came before: a body is split as it is split alone.
        #[test]
        fn a_known_beginning_changes_nothing(
            bodies in prop::collection::vec((body(), 0..4_usize), 1..8)
        ) {
            let mut known: Option<(Vec<&str>, String)> = None;
            let mut before = None;
            for ((items, begin, end), how) in bodies {
                // Mostly the same body goes on, with another end.
                let (all, begin) = match known.take() {
                    Some((mut all, begin)) if how > 0 => {
                        all.extend(items);
                        (all, begin)
                    }
                    _ => (items, begin),
                };
                let text = format!("{begin}{}{end}", all.join(","));
                known = Some((all, begin));
                let again = split_again(&text, None, before.as_ref());
                let alone = split(&text, None);
                let again = again.map(|(wire, beginning, _)| {
                    before = beginning;
                    wire
                });
                let shown = |wire: Result<WireBody<'_>, FormatError>| {
                    let wire = wire.map(|mut wire| {
                        wire.body.asked = (0, None);
                        wire
                    });
                    format!("{wire:?}")
                };
                prop_assert_eq!(shown(again), shown(alone));
            }
        }
    }
}

//! Takes one wire item apart into pieces: texts, thinking, tool calls, tool results and media.
//!
//! [`anatomy`] is the entry point. It accepts the messages of OpenAI chat and Anthropic, the
//! items of OpenAI Responses, the contents of Gemini, and the variants that other programs write.
//! It looks at nothing but the item, and does not need to know the format. The result is an
//! [`Anatomy`] with a list of [`Piece`]s, each of which knows its place in the JSON.
//!
//! Which items form one message, and how messages split into views, is decided in `views`. The
//! pieces are also the places that `splice` edits when a message is shortened.

pub(super) mod contents;
mod server_tools;

use std::borrow::Cow;

use super::blobs::{blobs, without_blobs};
use super::gemini;
use super::json::{Raw, on_one_line, quote};
use super::message::{Media, MediaKind};
use super::time;

/// One wire item: a message, or one of the other items of the Responses API, such as a call.
pub(super) struct Anatomy<'a> {
    pub(super) raw: Raw<'a>,
    pub(super) role: Cow<'static, str>,
    /// Who speaks, if the message says so. In a tool's answer the name belongs to the tool, so
    /// this is `None`.
    pub(super) name: Option<String>,
    /// Whether this is a message with content of its own, and not a tool's answer or another
    /// kind of item.
    pub(super) is_message: bool,
    /// The value of `content`, or of Gemini's `parts`, if the item has that member.
    pub(super) content: Option<Raw<'a>>,
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) time_ms: Option<i64>,
    /// Whether a part of it is a result of a tool that the provider runs, and the call is in an
    /// earlier message.
    pub(super) continues: bool,
}

/// A part of an item, with its place in the item's JSON.
pub(super) struct Piece<'a> {
    /// The whole part. If the content is a single string, this is that string.
    pub(super) raw: Raw<'a>,
    /// Whether the part is an element of the `content` list.
    pub(super) in_list: bool,
    /// Whether the text is that of an attached document, and not something that was said.
    pub(super) is_document: bool,
    /// Whether the part carries Gemini's signature of the thinking that led to it.
    pub(super) is_signed: bool,
    pub(super) kind: PieceKind<'a>,
}

impl Piece<'_> {
    /// Whether this is thinking, or a part that carries the signature of some.
    pub(super) fn has_thinking(&self) -> bool {
        self.is_signed || matches!(self.kind, PieceKind::Thinking(_))
    }

    /// Returns what a model reads of the piece besides its text, call, result or data, such as
    /// a document's title or a warning that came with a call. It is used to count tokens.
    pub(super) fn beside(&self) -> String {
        match &self.kind {
            PieceKind::Call(CallPiece { beside, .. })
            | PieceKind::Result(ResultPiece { beside, .. }) => beside.clone(),
            PieceKind::Text(_) if !self.is_document => String::new(),
            PieceKind::Text(_) | PieceKind::Media(_) => titles(self.raw),
            PieceKind::Thinking(_) | PieceKind::Opaque => String::new(),
        }
    }
}

/// The JSON strings that name and describe a document or a picture, concatenated.
fn titles(part: Raw<'_>) -> String {
    let inner = part.get("file").filter(|inner| inner.is_object());
    let titles = ["title", "context", "filename"].iter();
    let titles = titles.filter_map(|key| part.get(key).or_else(|| inner?.get(key)));
    titles
        .filter(|value| value.is_string())
        .map(Raw::text)
        .collect()
}

/// What a piece is, with the values that its kind has.
pub(super) enum PieceKind<'a> {
    /// Text, as the JSON string that holds it.
    Text(Raw<'a>),
    /// Thinking, with the text as far as it is readable. Redacted thinking has an empty text.
    Thinking(String),
    Call(CallPiece<'a>),
    Result(ResultPiece<'a>),
    Media(Media),
    /// Any other part. It is kept and counted, but not interpreted.
    Opaque,
}

/// A tool call, with what is needed to answer it and to replace its arguments.
#[derive(Default)]
pub(super) struct CallPiece<'a> {
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments, either as a string that holds JSON or as the JSON value itself.
    pub(super) arguments: Option<Raw<'a>>,
    /// Whether the tool takes text instead of JSON. If so, engines see it wrapped as `{"input":
    /// …}`.
    pub(super) free_text: bool,
    pub(super) style: CallStyle,
    /// The JSON of other members of the item, such as a pending safety check.
    pub(super) beside: String,
}

/// The form in which a call expects its answer. It matters when the host writes an answer
/// itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CallStyle {
    /// A message or item that names the call's id.
    #[default]
    Id,
    /// A message that names the function, as in OpenAI's first form of tool calls, or for a call
    /// of Gemini's without an id.
    Name,
    /// An item whose type is derived from the call's type, such as `custom_tool_call_output`.
    Item,
    /// An `mcp_approval_response`, for a call that the provider makes if the user allows it.
    Approval,
}

impl CallPiece<'_> {
    /// The arguments as JSON text, as an engine sees them. Empty if the call has none.
    pub(super) fn arguments_text(&self) -> String {
        let Some(raw) = self.arguments else {
            return String::new();
        };
        match raw.string() {
            Some(_) if self.free_text => format!("{{\"input\":{}}}", raw.text()),
            Some(text) => text.into_owned(),
            None => raw.text().to_owned(),
        }
    }

    /// Encodes new arguments in the form that this call uses on the wire. Fails with the reason
    /// if the arguments are not JSON, or lack what this kind of call requires.
    pub(super) fn encode_arguments(&self, arguments: &str) -> Result<String, String> {
        let new = Raw::parse(arguments)
            .map_err(|error| format!("the new arguments are not JSON: {}", error.what))?;
        if self.free_text {
            return match new.get("input") {
                Some(input) if input.is_string() => Ok(input.text().to_owned()),
                _ => Err("the new arguments lack the string `input`".to_owned()),
            };
        }
        match self.arguments {
            Some(old) if old.is_string() => Ok(quote(arguments)),
            Some(old) if old.is_object() && !new.is_object() => Err(format!(
                "the new arguments are {}, not an object",
                new.kind()
            )),
            // Gemini leaves out the arguments of a call without any.
            None if !new.is_object() => Err(format!(
                "the new arguments are {}, not an object",
                new.kind()
            )),
            // The message may be a line of a file, so its JSON must not contain a newline.
            _ => Ok(on_one_line(new.text()).into_owned()),
        }
    }
}

/// The answer to a tool call, with what is needed to replace its content.
#[derive(Default)]
pub(super) struct ResultPiece<'a> {
    pub(super) call_id: String,
    pub(super) name: Option<String>,
    pub(super) content: Option<Raw<'a>>,
    pub(super) is_error: bool,
    pub(super) shape: ResultShape,
    /// The JSON of other members of the item.
    pub(super) beside: String,
}

/// The required shape of a result's content. Providers reject a result of a hosted tool if its
/// content has another shape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ResultShape {
    /// A string, or a list of content parts.
    #[default]
    Text,
    /// A list with each command's output, for `shell_call_output`.
    Shell,
    /// A screenshot and nothing else, for `computer_call_output`.
    Screenshot,
    /// Tool definitions and nothing else, for `tool_search_output`.
    Tools,
    /// `true` or `false`, for `mcp_approval_response`. What the user decided cannot be shortened.
    Decision,
    /// An object, for Gemini's `functionResponse`. The content of such a result is the whole
    /// `functionResponse`, because media are beside that object.
    Response,
}

/// A picture of one pixel, which takes the place of a removed screenshot.
pub(super) const NO_PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

impl ResultPiece<'_> {
    /// Returns the text of the result, with its parts joined by newlines. A part that is
    /// neither text nor media is given as its readable text, or else as its JSON.
    pub(super) fn text(&self) -> String {
        let Some(content) = self.content.filter(|content| !content.is_null()) else {
            return String::new();
        };
        if self.shape == ResultShape::Response {
            return contents::result_text(content);
        }
        if let Some(text) = content.string() {
            return text.into_owned();
        }
        let texts: Vec<_> = parts_of(content)
            .filter_map(|piece| part_text(&piece))
            .collect();
        texts.join("\n")
    }

    /// The images and documents in the result, including those inside parts of other kinds.
    pub(super) fn media(&self) -> Vec<Media> {
        if self.shape == ResultShape::Response {
            return (self.content.into_iter().flat_map(contents::result_media)).collect();
        }
        let parts = self.content.into_iter().flat_map(parts_of);
        parts.flat_map(|piece| part_media(&piece)).collect()
    }

    /// Returns content that says `text`, in the shape that this kind of result requires. A
    /// screenshot or a list of tools cannot carry text, so these become the smallest valid
    /// content.
    pub(super) fn encode_text(&self, text: &str) -> String {
        match self.shape {
            ResultShape::Text => quote(text),
            ResultShape::Screenshot => {
                format!("{{\"type\":\"computer_screenshot\",\"image_url\":\"{NO_PICTURE}\"}}")
            }
            ResultShape::Tools => "[]".to_owned(),
            ResultShape::Decision => self.content.map_or("false", Raw::text).to_owned(),
            ResultShape::Response => {
                (self.content).map_or_else(String::new, |result| gemini::with_text(result, text))
            }
            ResultShape::Shell => {
                let first = self.content.and_then(|content| content.elements().next());
                let outcome = first.and_then(|first| first.get("outcome"));
                let outcome = outcome.map_or("{\"type\":\"exit\",\"exit_code\":0}", Raw::text);
                let stdout = quote(text);
                format!("[{{\"stdout\":{stdout},\"stderr\":\"\",\"outcome\":{outcome}}}]")
            }
        }
    }
}

/// The parts of a result's content, which is a list of parts or a single part.
fn parts_of(content: Raw<'_>) -> impl Iterator<Item = Piece<'_>> {
    let alone = content.is_object().then(|| part_piece(content));
    parts(content).chain(alone)
}

/// The readable text of a part of a result. `None` if a part other than text has nothing to
/// read.
fn part_text(piece: &Piece<'_>) -> Option<String> {
    let titles = piece.beside();
    let text = match &piece.kind {
        PieceKind::Text(text) => text.string()?.into_owned(),
        PieceKind::Media(_) => String::new(),
        // The output of a command.
        _ if piece.raw.get("stdout").is_some() => {
            let texts = ["stdout", "stderr"].map(|key| piece.raw.get_string(key));
            texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
        }
        _ => without_blobs(piece.raw),
    };
    let text = match titles.is_empty() {
        true => text,
        false => format!("{titles}\n{text}"),
    };
    Some(text).filter(|text| !text.is_empty() || matches!(piece.kind, PieceKind::Text(_)))
}

/// The media in a part of a result. Text parts have none.
fn part_media(piece: &Piece<'_>) -> Vec<Media> {
    match &piece.kind {
        PieceKind::Media(media) => vec![media.clone()],
        PieceKind::Text(_) => Vec::new(),
        _ => media_within(piece.raw),
    }
}

/// The media inside an item or part that is not media itself, such as an image that a hosted
/// tool produced or saw.
pub(super) fn media_within(raw: Raw<'_>) -> Vec<Media> {
    let mut found = blobs(raw);
    linked_media(raw, &mut found);
    found
}

/// Appends the pictures that are given as URLs. Base64 data is left out, because `blobs` finds
/// it.
fn linked_media(raw: Raw<'_>, found: &mut Vec<Media>) {
    if let PieceKind::Media(media) = part_kind(raw)
        && !media.is_base64
        && !media.data.is_empty()
    {
        found.push(media);
        return;
    }
    let members = raw.members().map(|(_, value)| value);
    for value in members.chain(raw.elements()) {
        if value.is_object() || value.is_array() {
            linked_media(value, found);
        }
    }
}

/// The members of a message that matter, collected in one walk over the object.
#[derive(Default)]
struct MessageMembers<'a> {
    role: Option<Raw<'a>>,
    kind: Option<Raw<'a>>,
    content: Option<Raw<'a>>,
    parts: Option<Raw<'a>>,
    refusal: Option<Raw<'a>>,
    reasoning: Option<Raw<'a>>,
    reasoning_details: Option<Raw<'a>>,
    tool_calls: Option<Raw<'a>>,
    function_call: Option<Raw<'a>>,
    tool_call_id: Option<Raw<'a>>,
    tool_call_ids: Option<Raw<'a>>,
    call_id: Option<Raw<'a>>,
    id: Option<Raw<'a>>,
    name: Option<Raw<'a>>,
    tool_name: Option<Raw<'a>>,
    error: Option<Raw<'a>>,
    ts: Option<Raw<'a>>,
    timestamp: Option<Raw<'a>>,
}

impl<'a> MessageMembers<'a> {
    fn of(raw: Raw<'a>) -> Self {
        let mut members = Self::default();
        for (key, value) in raw.members() {
            let place = match key.as_ref() {
                "role" => &mut members.role,
                "type" => &mut members.kind,
                "content" => &mut members.content,
                "parts" => &mut members.parts,
                "refusal" => &mut members.refusal,
                "reasoning_content" | "reasoning" | "thinking" => &mut members.reasoning,
                "reasoning_details" | "thinking_blocks" => &mut members.reasoning_details,
                "tool_calls" => &mut members.tool_calls,
                "function_call" => &mut members.function_call,
                "tool_call_id" => &mut members.tool_call_id,
                "tool_call_ids" => &mut members.tool_call_ids,
                "call_id" => &mut members.call_id,
                "id" => &mut members.id,
                "name" => &mut members.name,
                "tool_name" => &mut members.tool_name,
                "error" | "is_error" => &mut members.error,
                "ts" => &mut members.ts,
                "timestamp" => &mut members.timestamp,
                _ => continue,
            };
            *place = Some(value);
        }
        // With a `content`, it is an ordinary message with additional members.
        members.parts =
            (members.parts).filter(|parts| parts.is_array() && members.content.is_none());
        members
    }

    fn text(raw: Option<Raw<'a>>) -> Option<String> {
        raw?.string()
            .map(Cow::into_owned)
            .filter(|text| !text.is_empty())
    }

    /// The id of the call that a tool's message answers. Programs spell this member
    /// differently, so the spellings are tried in turn.
    fn answered(&self) -> Option<String> {
        let listed = self.tool_call_ids.and_then(|ids| ids.elements().next());
        Self::text(self.tool_call_id)
            .or_else(|| Self::text(listed))
            .or_else(|| Self::text(self.call_id))
            .or_else(|| Self::text(self.id))
            .or_else(|| Self::text(self.name))
    }

    fn time_ms(&self) -> Option<i64> {
        time_of(self.ts?).or_else(|| time_of(self.timestamp?))
    }
}

/// Parses a point in time, as milliseconds since the Unix epoch. The value is a number in any
/// of the usual units, or a string in ISO 8601. `None` if it is neither.
pub(super) fn time_of(raw: Raw<'_>) -> Option<i64> {
    match raw.string() {
        Some(text) => time::parse(&text),
        None => time::number(raw.number()?),
    }
}

/// Takes a wire item apart into its pieces.
///
/// # Errors
/// Fails if the item is neither a string nor an object, or if its role, content or calls have
/// the wrong type. The error says what was expected and what was found.
pub(super) fn anatomy(raw: Raw<'_>) -> Result<Anatomy<'_>, String> {
    if raw.is_string() {
        // The Responses API accepts a bare string in place of a single user message.
        return Ok(Anatomy {
            raw,
            role: "user".into(),
            name: None,
            is_message: true,
            content: Some(raw),
            pieces: vec![piece(raw, PieceKind::Text(raw))],
            time_ms: None,
            continues: false,
        });
    }
    if !raw.is_object() {
        return Err(format!(
            "a message object was expected, found {}",
            raw.kind()
        ));
    }
    let members = MessageMembers::of(raw);
    if let Some(content) = gemini_content(raw, &members) {
        return Ok(content);
    }
    let (role, pieces) = match (members.role, members.kind.and_then(Raw::string)) {
        (Some(role), _) if role.is_string() => {
            let role = known_role(&role.string().unwrap_or_default());
            if role.is_empty() {
                return Err(
                    "its `role` is empty; `user`, `assistant`, `tool` or `system` was expected"
                        .to_owned(),
                );
            }
            let pieces = message_pieces(raw, &role, &members)?;
            (role, pieces)
        }
        (Some(role), _) => {
            return Err(format!(
                "its `role` is {}; a string was expected",
                role.kind()
            ));
        }
        (None, Some(kind)) if kind == "item_reference" => {
            return Err(
                "it refers to an item that the provider stores; send the item itself, as a client with `store: false` does"
                    .to_owned(),
            );
        }
        (None, Some(kind)) => item_pieces(raw, &kind, &members),
        (None, None) => {
            return Err(
                "it has no `role`; `user`, `assistant`, `tool` or `system` was expected".to_owned(),
            );
        }
    };
    let is_message = members.role.is_some() && role != "tool";
    Ok(Anatomy {
        raw,
        is_message,
        name: MessageMembers::text(members.name)
            .filter(|name| is_message && !name.trim().is_empty()),
        role,
        content: members.content,
        pieces,
        time_ms: members.time_ms(),
        continues: members.content.is_some_and(server_tools::continues),
    })
}

/// Reads a content of Gemini. `None` if the item is none. The API also returns contents without
/// parts, which only their role tells.
fn gemini_content<'a>(raw: Raw<'a>, members: &MessageMembers<'a>) -> Option<Anatomy<'a>> {
    let role = MessageMembers::text(members.role);
    let is_empty = role.as_deref() == Some("model") && members.content.is_none();
    if members.parts.is_none() && !is_empty {
        return None;
    }
    Some(Anatomy {
        raw,
        role: known_role(gemini::role(role.as_deref())),
        name: None,
        is_message: true,
        content: members.parts,
        pieces: members.parts.map(contents::pieces).unwrap_or_default(),
        time_ms: members.time_ms(),
        continues: members.parts.is_some_and(server_tools::continues),
    })
}

/// Maps a role to the one that engines see. `function` becomes `tool` and `developer` becomes
/// `system`. Other roles stay.
fn known_role(role: &str) -> Cow<'static, str> {
    match role {
        "user" => "user".into(),
        "assistant" => "assistant".into(),
        "tool" | "function" => "tool".into(),
        "system" | "developer" => "system".into(),
        other => other.to_owned().into(),
    }
}

/// Reads the pieces of a message in the order in which models produce them: thinking, content,
/// refusal, calls.
fn message_pieces<'a>(
    raw: Raw<'a>,
    role: &str,
    members: &MessageMembers<'a>,
) -> Result<Vec<Piece<'a>>, String> {
    if role == "tool" {
        let result = ResultPiece {
            call_id: members.answered().unwrap_or_default(),
            name: MessageMembers::text(members.tool_name)
                .or_else(|| MessageMembers::text(members.name)),
            content: members.content,
            is_error: members.error.is_some_and(Raw::is_true),
            ..ResultPiece::default()
        };
        return Ok(vec![piece(raw, PieceKind::Result(result))]);
    }
    let mut pieces = Vec::new();
    // The details repeat the plain text, so they are read only if it is missing.
    let reasoning = members
        .reasoning
        .filter(|raw| raw.string().is_some_and(|text| !text.is_empty()));
    if let Some(raw) = reasoning {
        pieces.push(piece(
            raw,
            PieceKind::Thinking(MessageMembers::text(Some(raw)).unwrap_or_default()),
        ));
    } else if let Some(raw) = members
        .reasoning_details
        .filter(|list| list.elements().next().is_some())
    {
        let texts: Vec<_> = raw
            .elements()
            .filter_map(|part| {
                part.get_string("text")
                    .or_else(|| part.get_string("thinking"))
            })
            .collect();
        pieces.push(piece(raw, PieceKind::Thinking(texts.join("\n"))));
    }
    match members.content {
        Some(content) if content.is_string() => {
            pieces.push(piece(content, PieceKind::Text(content)))
        }
        Some(content) if content.is_array() => pieces.extend(parts(content)),
        None => {}
        Some(content) if content.is_null() => {}
        Some(content) => {
            return Err(format!(
                "its `content` is {}; a string, a list of parts or null was expected",
                content.kind()
            ));
        }
    }
    if let Some(refusal) = members.refusal.filter(|raw| raw.is_string()) {
        pieces.push(piece(refusal, PieceKind::Text(refusal)));
    }
    if let Some(calls) = members.tool_calls.filter(|calls| !calls.is_null()) {
        if !calls.is_array() {
            return Err(format!(
                "its `tool_calls` are {}; a list was expected",
                calls.kind()
            ));
        }
        pieces.extend(
            calls
                .elements()
                .map(|call| piece(call, PieceKind::Call(chat_call(call)))),
        );
    }
    if let Some(call) = members.function_call.filter(|call| call.is_object()) {
        let name = call.get_string("name").unwrap_or_default();
        let call_piece = CallPiece {
            id: name.clone(),
            name,
            arguments: call.get("arguments"),
            style: CallStyle::Name,
            ..CallPiece::default()
        };
        pieces.push(piece(call, PieceKind::Call(call_piece)));
    }
    Ok(pieces)
}

/// Reads a call in the form of OpenAI chat, or in the flat form of tau2, which has no
/// `function` object.
fn chat_call(call: Raw<'_>) -> CallPiece<'_> {
    let custom = call.get("custom").filter(|inner| inner.is_object());
    let inner = custom
        .or_else(|| call.get("function").filter(|inner| inner.is_object()))
        .unwrap_or(call);
    CallPiece {
        id: call.get_string("id").unwrap_or_default(),
        name: inner.get_string("name").unwrap_or_default(),
        arguments: inner.get(custom.map_or("arguments", |_| "input")),
        free_text: custom.is_some(),
        ..CallPiece::default()
    }
}

/// The elements of a list of content parts, each as a piece. For anything but a list there are
/// none.
fn parts(list: Raw<'_>) -> impl Iterator<Item = Piece<'_>> {
    list.elements().map(part_piece)
}

fn part_piece(part: Raw<'_>) -> Piece<'_> {
    let kind = if part.is_string() {
        PieceKind::Text(part)
    } else {
        part_kind(part)
    };
    Piece {
        raw: part,
        in_list: true,
        is_document: matches!(kind, PieceKind::Text(_)) && part.get("source").is_some(),
        is_signed: false,
        kind,
    }
}

/// Interprets a content part by its `type`. A part without a type counts as text if it has a
/// `text` member.
fn part_kind(part: Raw<'_>) -> PieceKind<'_> {
    let string = |key| part.get(key).filter(|value| value.is_string());
    let kind = part.get("type").and_then(Raw::string).unwrap_or_default();
    match kind.as_ref() {
        "refusal" => string("refusal").map_or(PieceKind::Opaque, PieceKind::Text),
        "thinking" => PieceKind::Thinking(part.get_string("thinking").unwrap_or_default()),
        // The thinking is encrypted, so there is no text to count.
        "redacted_thinking" => PieceKind::Thinking(String::new()),
        "tool_use" => PieceKind::Call(CallPiece {
            id: part.get_string("id").unwrap_or_default(),
            name: part.get_string("name").unwrap_or_default(),
            arguments: part.get("input"),
            ..CallPiece::default()
        }),
        "tool_result" => PieceKind::Result(ResultPiece {
            call_id: part.get_string("tool_use_id").unwrap_or_default(),
            content: part.get("content"),
            is_error: part.get("is_error").is_some_and(Raw::is_true),
            ..ResultPiece::default()
        }),
        "image" | "image_url" | "input_image" | "computer_screenshot" => {
            PieceKind::Media(media(part, MediaKind::Image))
        }
        // A plain-text document is priced as text, and not as pages of a PDF.
        "document" if let Some(text) = document_text(part) => text,
        "document" | "file" | "input_file" => PieceKind::Media(media(part, MediaKind::Document)),
        "input_audio" | "audio" => PieceKind::Media(media(part, MediaKind::Audio)),
        "" | "text" | "input_text" | "output_text" => {
            string("text").map_or(PieceKind::Opaque, PieceKind::Text)
        }
        _ => PieceKind::Opaque,
    }
}

/// The text of a plain-text document. A document that consists of parts is opaque, and other
/// documents give `None`.
fn document_text(document: Raw<'_>) -> Option<PieceKind<'_>> {
    let source = document.get("source")?;
    match source.get("type")?.string()?.as_ref() {
        "text" => {
            let text = source.get("data").filter(|data| data.is_string())?;
            Some(PieceKind::Text(text))
        }
        "content" => Some(match source.get("content")? {
            text if text.is_string() => PieceKind::Text(text),
            _ => PieceKind::Opaque,
        }),
        _ => None,
    }
}

/// Reads the media of a part, in any of the forms that the formats use. If the data is in none
/// of them, its span is empty.
fn media(part: Raw<'_>, kind: MediaKind) -> Media {
    let inner = ["source", "image_url", "file", "input_audio"]
        .iter()
        .find_map(|key| part.get(key))
        .unwrap_or(part);
    let data = if inner.is_string() {
        Some(inner)
    } else {
        [
            "data", "url", "file_data", "image_url", "file_url", "file_id",
        ]
        .iter()
        .find_map(|key| inner.get(key))
        .filter(|value| value.is_string())
    };
    let mut mime = inner.get_string("media_type");
    // OpenAI's audio is always base64 and does not say so.
    let mut is_base64 = inner.has("type", "base64") || kind == MediaKind::Audio;
    let mut span = data.map_or(0..0, |raw| raw.span().start + 1..raw.span().end - 1);
    let data_url = data
        .and_then(Raw::inner)
        .and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"));
    // A data URL states its own MIME type, and only what follows the header is base64.
    if let Some((head, base64)) = data_url {
        mime = mime.or_else(|| Some(head.replace("\\/", "/")));
        span.start = span.end - base64.len();
        is_base64 = true;
    }
    let size = |key| {
        let value = inner.get(key).or_else(|| part.get(key))?.number()?;
        (value >= 1.0 && value <= f64::from(u32::MAX)).then_some(value as u32)
    };
    Media {
        kind,
        mime,
        item: 0,
        data: span,
        is_base64,
        width: size("width"),
        height: size("height"),
        detail: inner
            .get_string("detail")
            .or_else(|| part.get_string("detail")),
    }
}

/// Reads an item of the Responses API that is not a message: reasoning, a call, a result, or an
/// opaque item.
fn item_pieces<'a>(
    raw: Raw<'a>,
    kind: &str,
    members: &MessageMembers<'a>,
) -> (Cow<'static, str>, Vec<Piece<'a>>) {
    if kind == "reasoning" {
        let texts: Vec<_> = ["summary", "content"]
            .iter()
            .filter_map(|key| raw.get(key))
            .flat_map(Raw::elements)
            .filter_map(|part| part.get_string("text"))
            .collect();
        return (
            "assistant".into(),
            vec![piece(raw, PieceKind::Thinking(texts.join("\n")))],
        );
    }
    let call_id = MessageMembers::text(members.call_id);
    if kind == "mcp_approval_response" {
        let result = ResultPiece {
            call_id: raw.get_string("approval_request_id").unwrap_or_default(),
            content: raw.get("approve"),
            shape: ResultShape::Decision,
            beside: other_members(raw, &["approve", "approval_request_id"]),
            ..ResultPiece::default()
        };
        return ("tool".into(), vec![piece(raw, PieceKind::Result(result))]);
    }
    if kind.ends_with("_output") {
        let result = ResultPiece {
            call_id: call_id
                .or_else(|| MessageMembers::text(members.id))
                .unwrap_or_default(),
            content: raw
                .get("output")
                .or_else(|| raw.get("tools"))
                .or_else(|| raw.get("result")),
            shape: match kind {
                "shell_call_output" => ResultShape::Shell,
                "computer_call_output" => ResultShape::Screenshot,
                "tool_search_output" => ResultShape::Tools,
                _ => ResultShape::Text,
            },
            beside: other_members(raw, &["output", "tools", "result"]),
            ..ResultPiece::default()
        };
        return ("tool".into(), vec![piece(raw, PieceKind::Result(result))]);
    }
    let asks = kind == "mcp_approval_request";
    let base = kind.strip_suffix("_call").or_else(|| asks.then_some(kind));
    // An unknown item gets its type as its role, so that it never joins the message of another
    // role.
    let Some(base) = base else {
        let role = if kind == "mcp_list_tools" {
            "assistant".into()
        } else {
            kind.to_owned().into()
        };
        return (role, vec![piece(raw, PieceKind::Opaque)]);
    };
    let own_id = || MessageMembers::text(members.id).filter(|_| asks);
    let Some(id) = call_id.or_else(own_id) else {
        // The provider ran this call and answered it, so the whole item belongs to the
        // assistant's turn.
        return ("assistant".into(), vec![piece(raw, PieceKind::Opaque)]);
    };
    const ARGUMENTS: [&str; 5] = ["arguments", "input", "action", "actions", "operation"];
    let key = ARGUMENTS.iter().find(|key| raw.get(key).is_some());
    let arguments = key.and_then(|key| raw.get(key));
    let call = CallPiece {
        id,
        name: MessageMembers::text(members.name).unwrap_or_else(|| base.to_owned()),
        arguments,
        free_text: base == "custom_tool",
        style: match base {
            "function" => CallStyle::Id,
            _ if asks => CallStyle::Approval,
            _ => CallStyle::Item,
        },
        beside: other_members(raw, key.map_or(&[], std::slice::from_ref)),
    };
    ("assistant".into(), vec![piece(raw, PieceKind::Call(call))])
}

/// The JSON of the members of an item that are neither read elsewhere nor mere names,
/// concatenated.
fn other_members(item: Raw<'_>, read: &[&str]) -> String {
    const NAMES: [&str; 12] = [
        "type",
        "id",
        "call_id",
        "name",
        "namespace",
        "status",
        "caller",
        "created_by",
        "execution",
        "fingerprint",
        "max_output_length",
        "internal_chat_message_metadata_passthrough",
    ];
    let others = item.members().filter(|(key, value)| {
        let is_read = NAMES.contains(&key.as_ref()) || read.contains(&key.as_ref());
        !is_read && !value.is_null() && !matches!(value.text(), "[]" | "{}" | "\"\"")
    });
    others.map(|(_, value)| without_blobs(value)).collect()
}

fn piece<'a>(raw: Raw<'a>, kind: PieceKind<'a>) -> Piece<'a> {
    Piece {
        raw,
        in_list: false,
        is_document: false,
        is_signed: false,
        kind,
    }
}

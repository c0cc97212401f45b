//! Messages and what they contain, independent of the wire format.
//!
//! [`Message`] is what an engine sees of a conversation: a role, a text, calls, results and
//! media. All formats are read into it, and [`Message::view`] lends its data to an engine. A
//! wire message can hold several of these, because each tool result in it is a message of its
//! own.
//!
//! A message copies its texts but not its media. [`Media`] only records the byte range of its
//! data within the wire item. The original JSON stays in the `Conversation`, which also writes
//! it.

use std::ops::Range;
use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind, MessageView, ToolCallView};

/// A message as engines see it, whatever the format of the document. A wire message with
/// several tool results becomes several of these.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// `user`, `assistant`, `tool`, `system` for a message in the middle of the history, or any
    /// other role that the wire states.
    pub role: String,
    /// Who speaks, if the wire says so. A tool's name is in `tool_name` instead.
    pub name: Option<String>,
    /// The whole text, with its parts joined by newlines. Thinking is not part of it.
    pub text: String,
    /// The text of the thinking, which is only used to count tokens.
    pub thinking: String,
    /// The JSON of everything that is neither text, thinking, a call nor media, such as a
    /// server tool's call and result or the title of a document. It is used to count tokens.
    /// Base64 in it is left out, because the file that it encodes is counted among the media.
    pub opaque: String,
    /// The tool calls that the message makes, in order.
    pub calls: Vec<Call>,
    /// For a tool result: the id of the call that it answers. It is empty if the wire does not
    /// say.
    pub tool_call_id: Option<String>,
    /// For a tool result: the tool's name, from the wire or else from the nearest earlier call
    /// with the same id.
    pub tool_name: Option<String>,
    /// The time of the message in milliseconds since the Unix epoch, if the document states it.
    pub time_ms: Option<i64>,
    /// Whether this is an original, a summary or a shortened form. The marks that the host puts
    /// into the text decide.
    pub kind: MessageKind,
    /// Whether the message holds thinking or redacted thinking, which a provider requires to
    /// come back unchanged.
    pub has_thinking: bool,
    /// Whether this is a tool result that reports an error.
    pub is_error: bool,
    /// Whether the message has a result of a tool that the provider runs, and the call is in an
    /// earlier message. It then stays together with the message before it.
    pub continues: bool,
    /// The images, documents and recordings of the message, in order.
    pub media: Vec<Media>,
    /// xxh3-128 of the canonical content: role, name, text, thinking, calls, results and media.
    /// The identity stays the same if only cache markers, key order or white space around the
    /// text differ, or if a text is a string in one request and a single part in the next.
    pub identity: u128,
    /// The state that the document keeps with the message, a JSON object. Only documents of
    /// events have it, in the member `state`.
    pub state: Option<Arc<str>>,
    /// The wire items that hold the message. It is one item, except in formats that split a
    /// message over several.
    pub items: Range<usize>,
    /// The index of this view among the views of its wire items, from 0.
    pub(super) view_index: usize,
}

impl Message {
    /// Whether an earlier compaction put this message in, as a summary or as a notice.
    pub fn is_summary(&self) -> bool {
        matches!(self.kind, MessageKind::Summary | MessageKind::Notice)
    }

    /// Returns the message as a view with the given id, to pass it to an engine. `raw` is its
    /// JSON, and `calls` are the views of its calls.
    pub fn view<'a>(
        &'a self,
        id: MessageId,
        raw: &'a str,
        calls: &'a [ToolCallView<'a>],
    ) -> MessageView<'a> {
        let mut view = MessageView::new(id, &self.role)
            .with_name(self.name.as_deref().unwrap_or(""))
            .with_text(&self.text)
            .with_tool_calls(calls)
            .with_raw(raw)
            .with_kind(self.kind)
            .with_thinking(self.has_thinking)
            .with_media(!self.media.is_empty())
            .with_error(self.is_error)
            .with_continuation(self.continues);
        if let Some(call_id) = &self.tool_call_id {
            view = view.with_result_of(call_id, self.tool_name.as_deref().unwrap_or(""));
        }
        if let Some(time) = self.time_ms {
            view = view.with_time(time);
        }
        view
    }
}

/// A tool call made by a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id that the result of this call names. Models do reuse ids, so pair calls and
    /// results by position.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments: JSON text exactly as the model wrote it, which may be invalid.
    pub arguments: String,
}

/// The kind of a piece of media. It decides how its tokens are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A document, such as a PDF or another file.
    Document,
    /// A sound recording.
    Audio,
}

/// An image, document or recording in a message. Its data is not copied.
/// [`Conversation::media_data`](super::Conversation::media_data) returns it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Media {
    /// Whether it is an image, a document or a recording.
    pub kind: MediaKind,
    /// The MIME type, if the wire states it.
    pub mime: Option<String>,
    /// The index of the wire item that holds it.
    pub item: usize,
    /// The byte range of its base64 data, URL or file id within that item's JSON, without the
    /// quotes. It is empty if the wire has the data in an unknown form.
    pub data: Range<usize>,
    /// Whether the data is base64 rather than a URL or a file id.
    pub is_base64: bool,
    /// The width in pixels, if the wire states it.
    pub width: Option<u32>,
    /// The height in pixels, if the wire states it.
    pub height: Option<u32>,
    /// The requested detail (`low`, `high`, `auto`), if the wire states it.
    pub detail: Option<String>,
}

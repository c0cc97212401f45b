//! The data behind an engine's view of a message.

use std::ops::Range;
use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind, MessageView, ToolCallView};

/// A message as engines see it, whatever the format it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `user`, `assistant`, `tool`, `system` (in the middle of the history), or whatever else the wire said.
    pub role: String,
    /// Who says it, where the wire tells; a tool's name is `tool_name`.
    pub name: Option<String>,
    /// All its text, the parts joined by newlines; thinking is not part of it.
    pub text: String,
    /// The text of its thinking, for counting.
    pub thinking: String,
    /// The JSON of everything that is neither text, thinking, calls nor media, such as a server tool's call and result
    /// or the title of a document. Used for counting. Base64 in it is left out, because the file that it encodes is
    /// counted among the media.
    pub opaque: String,
    /// The tools it calls, in order.
    pub calls: Vec<Call>,
    /// For a tool result: the id of the call it answers; empty where the wire does not say.
    pub tool_call_id: Option<String>,
    /// For a tool result: the tool's name, from the wire or from the nearest call before it with its id.
    pub tool_name: Option<String>,
    /// When it was said, in milliseconds since the Unix epoch, where the document tells.
    pub time_ms: Option<i64>,
    /// Whether it is an original, a summary or a shorter form, told by its mark.
    pub kind: MessageKind,
    /// Whether it holds thinking or redacted thinking that a provider wants back unchanged.
    pub has_thinking: bool,
    /// Whether it is a tool result that reports an error.
    pub is_error: bool,
    /// Its images, documents and recordings.
    pub media: Vec<Media>,
    /// xxh3-128 of its canonical content: role, name, text, thinking, calls, results and media. Cache markers,
    /// key order, whitespace around text, and whether a text is a string or one part make no difference.
    pub identity: u128,
    /// The state that the document keeps with the message, a JSON object, if the document holds events with a `state`.
    pub state: Option<Arc<str>>,
    /// The wire items it stands in: one, but for formats that split a message over several.
    pub items: Range<usize>,
    /// Which of the views of its wire items it is, from 0.
    pub(super) view_index: usize,
}

impl Message {
    /// Whether it is a summary or a notice, which an earlier compaction put in.
    pub fn is_summary(&self) -> bool {
        matches!(self.kind, MessageKind::Summary | MessageKind::Notice)
    }

    /// Its view, under this id; `calls` are the views of its calls.
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
            .with_error(self.is_error);
        if let Some(call_id) = &self.tool_call_id {
            view = view.with_result_of(call_id, self.tool_name.as_deref().unwrap_or(""));
        }
        if let Some(time) = self.time_ms {
            view = view.with_time(time);
        }
        view
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id that its result names. Models do reuse ids: pair by position.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments: JSON text as the model wrote it.
    pub arguments: String,
}

/// What a piece of media is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A document: a PDF or another file.
    Document,
    /// A recording.
    Audio,
}

/// An image, document or recording in a message. Its data is not copied: see
/// [`Conversation::media_data`](super::Conversation::media_data).
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    /// What it is.
    pub kind: MediaKind,
    /// Its MIME type, where stated.
    pub mime: Option<String>,
    /// The wire item that it stands in.
    pub item: usize,
    /// Where in that item's JSON its base64 data, URL or file id stands, in bytes, quotes excluded. Empty
    /// where the wire has it in a form that is not known.
    pub data: Range<usize>,
    /// Whether the data is base64 rather than a URL or a file id.
    pub is_base64: bool,
    /// Its width in pixels, where stated.
    pub width: Option<u32>,
    /// Its height in pixels, where stated.
    pub height: Option<u32>,
    /// The detail that was asked for (`low`, `high`, `auto`), where stated.
    pub detail: Option<String>,
}

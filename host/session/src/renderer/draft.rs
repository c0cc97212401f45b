//! A body before it is serialised: what the renderer laid out, with the engine's tools and the
//! markers for the provider's prompt cache.
//!
//! [`BodyDraft`] collects all changes of a request, and [`BodyDraft::serialise`] writes the text
//! once, at the end. If nothing changes, the text is that of the request, byte for byte. A change
//! that cannot be made, such as tools in a body that has no place for them, is left out with a
//! warning, because the request can go to the model without it.

use std::borrow::Cow;

use contexture_engine_api::ToolSpec;
use contexture_formats::prompt_cache::{CacheProvider, Ttl};
use contexture_formats::{BodyEdits, SplitBody};

use super::{RenderedBody, RenderedWire};
use crate::options::BodyMessage;
use crate::request::Request;
use crate::warnings::Warnings;

/// The body of a request as the model is to see it. [`BodyDraft::serialise`] makes the text of it.
pub(crate) struct BodyDraft<'r, 'b> {
    request: &'r Request<'b>,
    /// None if the messages are those of the request.
    rendered: Option<RenderedBody>,
    /// What is appended to the system prompt.
    note: Option<String>,
    tools: Vec<ToolSpec>,
    /// Whether the provider is told that the model must not call tools.
    denied: bool,
    markers: Option<(CacheProvider, Ttl)>,
}

impl<'r, 'b> BodyDraft<'r, 'b> {
    pub(super) fn new(
        request: &'r Request<'b>,
        rendered: Option<RenderedBody>,
        note: Option<&str>,
    ) -> Self {
        Self {
            request,
            rendered,
            note: note.map(str::to_owned),
            tools: Vec::new(),
            denied: false,
            markers: None,
        }
    }

    /// Adds the engine's tools. If `denied`, the body also tells the provider that the model must
    /// not call any tool.
    pub(crate) fn tools(self, tools: Vec<ToolSpec>, denied: bool) -> Self {
        Self {
            tools,
            denied,
            ..self
        }
    }

    /// Adds markers for the provider's prompt cache, if the format takes any.
    pub(crate) fn markers(self, markers: Option<(CacheProvider, Ttl)>) -> Self {
        Self { markers, ..self }
    }

    /// Whether the model is to see anything other than what the client sent. Tools and markers do
    /// not count.
    pub(crate) fn is_changed(&self) -> bool {
        self.rendered.is_some() || self.note.is_some()
    }

    /// The items of the body's list before the messages: the system prompt and what the provider
    /// compacted itself. Empty for a document.
    pub(crate) fn leading(&self) -> Vec<BodyMessage> {
        let Some(body) = &self.request.body else {
            return Vec::new();
        };
        let system = body.system_messages_with(self.note.as_deref()).into_iter();
        let system = system.take(body.system_messages.len()).enumerate();
        let mut items: Vec<_> = system
            .map(|(at, text)| match text {
                Cow::Borrowed(_) => BodyMessage::Kept(at),
                Cow::Owned(text) => BodyMessage::Changed(at, text),
            })
            .collect();
        items.extend((items.len()..body.leading()).map(BodyMessage::Kept));
        items
    }

    /// The messages of the body, in order.
    pub(crate) fn messages(&self) -> Vec<BodyMessage> {
        match &self.rendered {
            Some(rendered) => rendered.messages(),
            None => {
                let wires = 0..self.request.raw.len();
                wires.map(BodyMessage::Kept).collect()
            }
        }
    }

    /// Writes the body. The text is that of the request if nothing changes. None for a document,
    /// which the caller renders in the format that it wants. If the tools or the markers cannot be
    /// added, the body goes without them, with a warning.
    pub(crate) fn serialise(self, warnings: &Warnings) -> Option<SplitBody<Cow<'b, str>>> {
        let wire = self.request.body.as_ref()?;
        let edits = BodyEdits::default()
            .note(self.note.as_deref())
            .tools(&self.tools, self.denied)
            .markers(self.markers);
        let written = match &self.rendered {
            None => wire.write(&edits),
            Some(rendered) => {
                let messages = rendered.out.iter().map(|out| {
                    let kept = match out {
                        RenderedWire::Kept(wire) => Some(*wire),
                        RenderedWire::Made(..) => None,
                    };
                    (kept, RenderedBody::text(out, self.request))
                });
                wire.with_messages(messages.collect())
                    .write(&edits)
                    .into_owned()
            }
        };
        if let Some(error) = written.without_tools {
            warnings.add(format!(
                "the engine's tools could not be put into the request: {error}"
            ));
        }
        if let Some(error) = written.unmarked {
            warnings.add(error.to_string());
        }
        Some(written.body)
    }
}

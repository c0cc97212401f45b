//! A body before it is serialised: what the renderer laid out, with the engine's tools and the
//! markers for the provider's prompt cache.
//!
//! [`BodyDraft`] collects all changes of a request, and [`BodyDraft::serialise`] makes the text
//! once, at the end. If nothing changes, the text is that of the request, byte for byte. A change
//! that cannot be made, such as tools in a body that has no place for them, is left out with a
//! warning, because the request can go to the model without it.
//!
//! The markers come last: where they stand depends on what is in the body by then.

use std::borrow::Cow;

use contexture_engine_api::ToolSpec;
use contexture_formats as formats;
use contexture_formats::prompt_cache::{self, CacheProvider, Ttl};

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

    /// The text of the body. It is the text of the request if nothing changes, and empty for a
    /// document, which the caller renders in the format that it wants. If the tools or the markers
    /// cannot be added, the body goes without them, with a warning.
    pub(crate) fn serialise(self, warnings: &Warnings) -> Cow<'b, str> {
        let Some(wire) = &self.request.body else {
            return Cow::Borrowed("");
        };
        let mut body = match (&self.rendered, &self.note) {
            (None, None) => Cow::Borrowed(wire.text()),
            (rendered, note) => {
                let whole = RenderedBody::whole(self.request);
                let rendered = rendered.as_ref().unwrap_or(&whole);
                let messages: Vec<_> = (rendered.out.iter())
                    .map(|out| match out {
                        RenderedWire::Kept(wire) => {
                            (Some(*wire), RenderedBody::text(out, self.request))
                        }
                        RenderedWire::Made(..) => (None, RenderedBody::text(out, self.request)),
                    })
                    .collect();
                Cow::Owned(wire.with_messages(note.as_deref(), &messages))
            }
        };
        if self.denied || !self.tools.is_empty() {
            let tools: Vec<&ToolSpec> = self.tools.iter().collect();
            match formats::with_tools(&body, self.request.format, &tools, self.denied) {
                Ok(changed) => body = Cow::Owned(changed),
                Err(error) => warnings.add(format!(
                    "the engine's tools could not be put into the request: {error}"
                )),
            }
        }
        let shape = prompt_cache::Shape::of(self.request.format);
        let Some(((provider, ttl), shape)) = self.markers.zip(shape) else {
            return body;
        };
        let marked = match &body {
            Cow::Borrowed(_) => prompt_cache::apply_to(wire, shape, provider, ttl),
            Cow::Owned(made) => prompt_cache::apply(made, shape, provider, ttl),
        };
        match marked {
            Ok(marked) if marked.applied.is_empty() => body,
            Ok(marked) => Cow::Owned(marked.document),
            Err(error) => {
                warnings.add(error.to_string());
                body
            }
        }
    }
}

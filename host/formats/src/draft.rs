//! Writes a body with everything that is changed in it, in one pass.
//!
//! [`WireBody::write`] is the entry point. The changes of one body come from several places: other
//! messages, a note in the system prompt, tools, and markers for the provider's prompt cache. They
//! are collected as [`BodyPiece`]s, which are slices of the text that the body was split from or new
//! texts, and the pieces are written one after another. Where the parts of the new body are is known
//! from writing them, so the result is a [`SplitBody`] and is not split again.
//!
//! What to change is decided by the caller. Where a change goes is decided by `rewrite` for the
//! list of messages and the note, by `tools`, and by `prompt_cache`.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use contexture_engine_api::ToolSpec;

use super::body::{BodyParts, BodySpans, SplitBody, WireBody, is_system};
use super::json::{Edits, Raw};
use super::prompt_cache::{
    CacheProvider, Document, MARKER_BYTES, MarkError, MarkerSite, Shape, Ttl, choose, write_marked,
};
use super::rewrite::{ListPiece, Rewrite, new_system};
use super::tools::{ToolChanges, tool_changes};
use super::{FormatError, passes};

/// What is to be changed in a body, apart from its messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct BodyEdits<'e> {
    note: Option<&'e str>,
    tools: &'e [ToolSpec],
    denied: bool,
    markers: Option<(CacheProvider, Ttl)>,
    /// The names of members and their new values. A member that the body does not have is not added.
    values: &'e [(&'static str, &'static str)],
}

impl<'e> BodyEdits<'e> {
    /// Appends a paragraph to the system prompt.
    pub fn note(self, note: Option<&'e str>) -> Self {
        Self { note, ..self }
    }

    /// Adds tools. If `denied`, the body also forbids the model to call any tool.
    pub fn tools(self, tools: &'e [ToolSpec], denied: bool) -> Self {
        Self {
            tools,
            denied,
            ..self
        }
    }

    /// Adds markers for the provider's prompt cache, if the format takes any.
    pub fn markers(self, markers: Option<(CacheProvider, Ttl)>) -> Self {
        Self { markers, ..self }
    }

    /// Replaces the values of the members with these names, if the body has them.
    pub(super) fn values(self, values: &'e [(&'static str, &'static str)]) -> Self {
        Self { values, ..self }
    }
}

/// A body that was written.
#[derive(Debug)]
pub struct WrittenBody<'a> {
    /// The body. Its text is the one that was split if nothing was changed.
    pub body: SplitBody<Cow<'a, str>>,
    /// Why the tools are not in the body, if they have no place there.
    pub without_tools: Option<FormatError>,
    /// Why the body has no markers, if they were asked for.
    pub unmarked: Option<MarkError>,
}

impl WrittenBody<'_> {
    /// The same with a text of its own.
    pub fn into_owned(self) -> WrittenBody<'static> {
        let SplitBody { text, parts } = self.body;
        let text = Cow::Owned(text.into_owned());
        WrittenBody {
            body: SplitBody { text, parts },
            without_tools: self.without_tools,
            unmarked: self.unmarked,
        }
    }
}

/// What a piece of the new body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The text from this offset of the document on.
    Document(usize),
    /// An item of the list of messages.
    Item,
    /// A bracket of the list, or the text between two items.
    Between,
    /// The new value of the member whose value begins at this offset of the document.
    Value(usize),
    /// The value of a new member.
    Member(&'static str),
    /// Other new text.
    New,
}

/// A piece of the new body. The pieces together are its text.
#[derive(Debug)]
struct BodyPiece<'p> {
    text: Cow<'p, str>,
    role: Role,
}

/// The pieces that replace parts of the document, each with the bytes that it replaces.
#[derive(Debug, Default)]
struct Changes<'p>(Vec<(Range<usize>, BodyPiece<'p>)>);

impl<'p> Changes<'p> {
    fn put(&mut self, span: Range<usize>, role: Role, text: impl Into<Cow<'p, str>>) {
        let text = text.into();
        self.0.push((span, BodyPiece { text, role }));
    }

    /// The document with these changes. If several are at the same place, they keep their order.
    fn pieces(mut self, document: &'p str) -> Vec<BodyPiece<'p>> {
        self.0.sort_by_key(|(span, _)| (span.start, span.end));
        let mut pieces = Vec::with_capacity(2 * self.0.len() + 1);
        let mut done = 0;
        let kept = |span: Range<usize>| BodyPiece {
            role: Role::Document(span.start),
            text: Cow::Borrowed(document.get(span).unwrap_or("")),
        };
        for (span, piece) in self.0 {
            if done < span.start {
                pieces.push(kept(done..span.start));
            }
            pieces.push(piece);
            done = span.end;
        }
        pieces.push(kept(done..document.len()));
        pieces
    }
}

impl<'a> WireBody<'a> {
    /// Returns [`system_messages`](Self::system_messages) as [`write`](Self::write) writes them with
    /// this note. Those that differ are owned. If none of them can hold the note and it belongs in the
    /// list, a message with it is added.
    pub fn system_messages_with(&self, note: Option<&str>) -> Vec<Cow<'_, str>> {
        self.rewrite().system_items_with(note)
    }

    fn rewrite(&self) -> Rewrite<'_> {
        let items = &self.parts.body.items;
        let (system_items, others) = items.split_at(self.parts.system);
        Rewrite {
            document: self.text,
            format: self.format,
            body: &self.parts.body,
            system_items,
            compacted_items: others.get(..self.parts.compacted).unwrap_or(&[]),
        }
    }

    /// Writes the body with these changes. If there are none, the result is the text that was
    /// split, without a copy. A change that cannot be made is left out, and the result says why.
    pub fn write(&self, edits: &BodyEdits<'_>) -> WrittenBody<'a> {
        let asks_for_tools = edits.denied || !edits.tools.is_empty();
        let tools = asks_for_tools.then(|| tool_changes(self, edits.tools, edits.denied));
        let (tools, without_tools) = match tools.transpose() {
            Ok(tools) => (tools.unwrap_or_default(), None),
            Err(error) => (ToolChanges::default(), Some(error)),
        };
        let values = edits.values.iter();
        let values: Vec<_> = values
            .filter_map(|(name, value)| Some((self.parts.body.value_of(name)?, *value)))
            .collect();
        let is_kept =
            self.origins.is_none() && edits.note.is_none() && tools.is_empty() && values.is_empty();
        let shape = Shape::of(self.format).zip(edits.markers);
        let mut written = WrittenBody {
            body: SplitBody {
                text: Cow::Borrowed(self.text),
                parts: self.parts.clone(),
            },
            without_tools,
            unmarked: None,
        };
        if is_kept && shape.is_none() {
            return written;
        }
        let layout = Layout::of(self, edits.note, tools, &values);
        let mut sites = Vec::new();
        if let Some((shape, (provider, ttl))) = shape {
            match choose(&layout.document(shape), provider, ttl) {
                Ok(chosen) => sites = chosen,
                Err(error) => written.unmarked = Some(error),
            }
        }
        if is_kept && sites.is_empty() {
            return written;
        }
        let (text, parts) = layout.write(&sites);
        let text = Cow::Owned(text);
        written.body = SplitBody { text, parts };
        written
    }
}

/// The pieces of a body that is not written yet.
struct Layout<'w> {
    wire: &'w WireBody<'w>,
    pieces: Vec<BodyPiece<'w>>,
    /// The number of items that form the system prompt.
    system: usize,
    /// Whether the whole list was laid out, and not only items of it.
    has_new_list: bool,
}

impl<'w> Layout<'w> {
    fn of(
        wire: &'w WireBody<'w>,
        note: Option<&str>,
        tools: ToolChanges,
        values: &[(&Range<usize>, &'static str)],
    ) -> Self {
        let body = &*wire.parts.body;
        let items = &body.items;
        let (first, leading) = (wire.parts.system, wire.parts.system + wire.parts.compacted);
        let rewrite = wire.rewrite();
        let mut changes = Changes::default();
        for (span, value) in values {
            changes.put((*span).clone(), Role::Value(span.start), *value);
        }
        match (&body.system, note.filter(|_| rewrite.note_in_member())) {
            (Some(span), note) => {
                let value = match note {
                    Some(note) => Cow::Owned(rewrite.system_with(span, note)),
                    None => Cow::Borrowed(wire.text.get(span.clone()).unwrap_or("")),
                };
                changes.put(span.clone(), Role::Value(span.start), value);
            }
            (None, Some(note)) => {
                let (name, value) = new_system(wire.format, note);
                let start = rewrite.first_member();
                changes.put(start..start, Role::New, format!("\"{name}\":"));
                changes.put(start..start, Role::Member(name), value);
                changes.put(start..start, Role::New, ",");
            }
            (None, None) => {}
        }
        let mut system = rewrite.system_items_with(note);
        let list = body.list.clone().unwrap_or_default();
        let (in_items, outside): (Vec<_>, Vec<_>) = (tools.edits.into_parts().into_iter())
            .partition(|(span, _)| list.start <= span.start && span.end <= list.end);
        for (item, text) in rewrite.system_items.iter().zip(&mut system) {
            let mut edits = Edits::default();
            let own = in_items
                .iter()
                .filter(|(span, _)| item.start <= span.start && span.end <= item.end);
            own.for_each(|(span, new)| edits.replace(span.clone(), new.as_str()));
            if !edits.is_empty() {
                *text = Cow::Owned(edits.apply(wire.text, item.clone()));
            }
        }
        let system_items = system.len();
        let has_new_list = wire.origins.is_some() || system_items > first;
        if has_new_list {
            let kept = (0..wire.messages.len()).map(|at| Some(leading + at));
            let origins = (wire.origins.clone()).unwrap_or_else(|| kept.collect());
            let messages: Vec<_> = origins
                .into_iter()
                .zip(wire.messages.iter().copied())
                .collect();
            // The first piece replaces the list, and the others follow it.
            let mut span = list.clone();
            rewrite.list(&list, system, &messages, |piece, text| {
                let role = match piece {
                    ListPiece::Item => Role::Item,
                    ListPiece::Between => Role::Between,
                };
                changes.put(span.clone(), role, text);
                span = list.end..list.end;
            });
        } else {
            let others = wire.compacted.iter().chain(&wire.messages);
            let texts = system.into_iter().chain(others.copied().map(Cow::Borrowed));
            for (item, text) in items.iter().zip(texts) {
                changes.put(item.clone(), Role::Item, text);
            }
        }
        for (span, text) in outside {
            let is_value = |(_, value): &(&str, &Range<usize>)| **value == span;
            let role = match body.members().find(is_value) {
                Some((_, value)) => Role::Value(value.start),
                None => Role::New,
            };
            changes.put(span, role, text);
        }
        // The body has a list of messages, so a new member is never the first one.
        let end = body.span.end - 1;
        for (name, value) in tools.members {
            changes.put(end..end, Role::New, format!(",\"{name}\":"));
            changes.put(end..end, Role::Member(name), value);
        }
        Self {
            wire,
            pieces: changes.pieces(wire.text),
            system: system_items,
            has_new_list,
        }
    }

    /// The parts of the body that matter for markers.
    fn document(&self, shape: Shape) -> Document<'_> {
        let system = self.wire.parts.body.system.as_ref().map(|span| span.start);
        let pieces = self.pieces.iter().enumerate();
        let is_system = |piece: &BodyPiece<'_>| match piece.role {
            Role::Value(start) => Some(start) == system,
            Role::Member(name) => name == "system",
            _ => false,
        };
        let of = |is: &dyn Fn(&BodyPiece<'_>) -> bool| {
            let found = pieces.clone().filter(|(_, piece)| is(piece));
            found
                .map(|(at, piece)| (at, Raw::whole(&piece.text)))
                .collect::<Vec<_>>()
        };
        Document {
            shape,
            messages: of(&|piece| piece.role == Role::Item),
            leading: self.system + self.wire.parts.compacted,
            system: of(&is_system).into_iter().next(),
            tools: self.wire.tools.map(Raw::whole),
            cache_control: self.wire.member("cache_control").map(Raw::whole),
        }
    }

    /// Writes the pieces with markers at these sites, which are in the order of the pieces.
    fn write(&self, mut sites: &[(MarkerSite, Ttl)]) -> (String, BodyParts) {
        passes::written();
        let bytes: usize = self.pieces.iter().map(|piece| piece.text.len()).sum();
        let mut out = String::with_capacity(bytes + sites.len() * MARKER_BYTES);
        let mut spans = Vec::with_capacity(self.pieces.len());
        for (at, piece) in self.pieces.iter().enumerate() {
            let own = sites.iter().take_while(|(site, _)| site.piece == at);
            let (own, rest) = sites.split_at(own.count());
            sites = rest;
            let start = out.len();
            write_marked(&mut out, &piece.text, own);
            spans.push(start..out.len());
        }
        // If nothing is left before a system message, it is part of the system prompt.
        let first = self.wire.messages.iter();
        let first = first.filter(|_| self.wire.compacted.is_empty());
        let system = first.take_while(|text| is_system(text)).count();
        let parts = BodyParts {
            format: self.wire.format,
            body: Arc::new(self.spans(&spans)),
            system: self.system + system,
            compacted: self.wire.parts.compacted,
            len: out.len(),
        };
        (out, parts)
    }

    /// Where the parts of the new body are, given where each piece is.
    fn spans(&self, spans: &[Range<usize>]) -> BodySpans {
        let old = &*self.wire.parts.body;
        let pieces = || self.pieces.iter().zip(spans);
        // A byte of the document that was kept.
        let byte = |at: usize| {
            pieces().find_map(|(piece, span)| match piece.role {
                Role::Document(start) => {
                    let offset = at.checked_sub(start)?;
                    (offset < piece.text.len()).then(|| span.start + offset)
                }
                _ => None,
            })
        };
        let moved = |value: &Range<usize>| {
            let replaced = pieces().find(|(piece, _)| piece.role == Role::Value(value.start));
            match replaced {
                Some((_, span)) => Some(span.clone()),
                None => Some(byte(value.start)?..byte(value.end - 1)? + 1),
            }
        };
        let of = |role| pieces().filter(move |(piece, _)| piece.role == role);
        let items: Vec<_> = of(Role::Item).map(|(_, span)| span.clone()).collect();
        let list = match self.has_new_list {
            true => {
                let mut brackets = of(Role::Between).map(|(_, span)| span);
                let start = brackets.next().map(|span| span.start);
                start.zip(brackets.next_back().map(|span| span.end))
            }
            // A list that is a single string is its only item.
            false => (old.list.as_ref().and_then(moved))
                .or_else(|| items.first().cloned())
                .map(|list| (list.start, list.end)),
        };
        let list = list.map(|(start, end)| start..end);
        let whole = match old.is_bare {
            true => list.clone(),
            false => moved(&old.span),
        };
        let mut new = BodySpans::default();
        new.span = whole.unwrap_or_default();
        (new.is_bare, new.list_key) = (old.is_bare, old.list_key);
        (new.list, new.items) = (list, items);
        let kept = old
            .members()
            .filter_map(|(name, value)| Some((name, moved(value)?)));
        let added = pieces().filter_map(|(piece, span)| match piece.role {
            Role::Member(name) => Some((name, span.clone())),
            _ => None,
        });
        let mut members: Vec<_> = kept.chain(added).collect();
        members.sort_by_key(|(_, value)| value.start);
        for (name, value) in members {
            new.add_member(name, value);
        }
        new
    }
}

#[cfg(test)]
mod tests;

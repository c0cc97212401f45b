//! Rendering: the body for the model, and the record of which message went into which wire message.
//!
//! Messages that stay as they are leave with the bytes of the request. When a window changes, it is
//! laid out as wire messages. A turn that only adds messages appends them to the last rendered body,
//! so the new body begins with the same bytes, and the provider's prompt cache still matches them.
//!
//! Read [`Renderer::render`] first. It lays out the window and returns a [`BodyDraft`], which takes
//! the engine's tools and the cache markers before it is serialised. `log_of` reads the result of a
//! new layout back to learn what each wire message is, so that a client that continues from it is
//! understood. How a format writes its messages is left to `contexture_formats`, and nothing here
//! knows of engines.

mod draft;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use contexture_engine_api::MessageId;
use contexture_formats::{self as formats, Conversation, FormatError, RenderedItem};

pub(crate) use self::draft::BodyDraft;
use contexture_transcript::{Fingerprint, HostText, IdMap, Origin, WireEntry, WireLog};

use super::align::raw_hash;
use super::conversation::ConversationState;
use super::history::History;
use super::options::BodyMessage;
use super::request::Request;
use super::warnings::Warnings;
use super::window::Window;
use super::window_entry::WindowEntry;

/// One wire message of a body.
#[derive(Debug, Clone)]
enum RenderedWire {
    /// A wire message of the request, byte for byte, by its index.
    Kept(usize),
    /// A wire message that the host wrote: its JSON, and the index of the request's wire message
    /// that it is another form of. No index if the host added it.
    Made(Arc<str>, Option<usize>),
}

/// A window as a list of wire messages.
#[derive(Debug, Clone)]
struct RenderedBody {
    out: Vec<RenderedWire>,
    /// The number of wire messages in the request that the body was rendered for.
    wires: usize,
}

impl RenderedBody {
    /// This body for a request that continues the one that it was made for.
    fn continued(mut self, request: &Request<'_>) -> Self {
        let wires = request.raw.len();
        (self.out).extend((self.wires..wires).map(RenderedWire::Kept));
        Self { wires, ..self }
    }

    /// Whether the body ends with a message of the host and the next message of the request has the
    /// same role. Many clients join such neighbours into one message, which would attribute the
    /// host's words to the user or the model.
    fn ends_in_role_of_next(&self, request: &Request<'_>) -> bool {
        let Some(RenderedWire::Made(text, None)) = self.out.last() else {
            return false;
        };
        let role = formats::role_of(text);
        self.wires < request.raw.len()
            && role.is_some()
            && role == formats::role_of(request.wire_text(self.wires))
    }

    /// The JSON of a wire message of this body. It comes from the request if the message was kept.
    fn text<'t>(out: &'t RenderedWire, request: &'t Request<'_>) -> &'t str {
        match out {
            RenderedWire::Kept(wire) => request.wire_text(*wire),
            RenderedWire::Made(text, _) => text,
        }
    }

    fn messages(&self) -> Vec<BodyMessage> {
        let message = |out: &RenderedWire| match out {
            RenderedWire::Kept(wire) => BodyMessage::Kept(*wire),
            RenderedWire::Made(text, Some(wire)) => BodyMessage::Changed(*wire, text.to_string()),
            RenderedWire::Made(text, None) => BodyMessage::Added(text.to_string()),
        };
        self.out.iter().map(message).collect()
    }
}

/// Renders windows as bodies, and remembers the last one.
#[derive(Debug, Clone)]
pub(crate) struct Renderer {
    /// Whether a summary at the beginning of the window gets a message of its own.
    own_summaries: bool,
    /// The window as wire messages. None if it is what the client sent, or if it was not rendered
    /// since it was replaced.
    rendered: Option<RenderedBody>,
    /// The value of [`ConversationState::replaced`] that `rendered` was made at.
    rendered_at: u64,
    /// The identity that each shorter form in the window has on the wire, by the id of its message.
    short_forms: IdMap<u128>,
    warnings: Warnings,
}

impl Renderer {
    /// `history` is what was said so far. The shorter forms that the last body had are in force.
    pub(crate) fn new(own_summaries: bool, history: &History, warnings: Warnings) -> Self {
        Self {
            own_summaries,
            rendered: None,
            rendered_at: 0,
            short_forms: history.last_body().short_forms(),
            warnings,
        }
    }

    /// Forgets the last rendered body if the request does not continue the one that it was made for.
    /// A rendered body refers to the wire messages of that request, so these must all be there again:
    /// `common` of them are.
    pub(crate) fn continue_from(&mut self, common: usize) {
        self.rendered.take_if(|rendered| rendered.wires > common);
    }

    /// Keeps the shorter forms of messages that are said again in force under their new ids. `new`
    /// has the new id of each old one.
    pub(crate) fn rename(&mut self, new: &IdMap<MessageId>) {
        for (old, new) in new {
            if let Some(form) = self.short_forms.remove(old) {
                self.short_forms.insert(*new, form);
            }
        }
    }

    /// The last rendered body, if the window was not replaced since.
    fn last(&self, current: &ConversationState) -> Option<&RenderedBody> {
        let rendered = self.rendered.as_ref();
        rendered.filter(|_| self.rendered_at == current.replaced)
    }

    fn remember(&mut self, current: &ConversationState, rendered: Option<RenderedBody>) {
        self.rendered = rendered;
        self.rendered_at = current.replaced;
    }

    /// Renders the body for the model: the window, or the engine's `view` of it for this request
    /// alone. If nothing differs from what the client sent, these are the client's bytes.
    ///
    /// If the window or the view cannot be rendered, the session adds a warning and sends what it
    /// can: the window in place of the view, or the request as it came in place of the window.
    pub(crate) fn render<'r, 'b>(
        &mut self,
        current: &mut ConversationState,
        request: &'r Request<'b>,
        view: Option<&Window>,
    ) -> BodyDraft<'r, 'b> {
        // The window is always laid out, because a client continues from the window. A view is for
        // one request.
        let rendered = self.render_body(current, request).unwrap_or_else(|error| {
            self.warnings.add(format!(
                "the compaction in force could not be applied, so the request is sent unchanged: {error}"
            ));
            self.rendered = None;
            current.history.set_rendered(WireLog::default());
            None
        });
        let rendered = match view.map(|view| self.rendered_from(current, request, view)) {
            Some(Ok(rendered)) => Some(rendered),
            Some(Err(error)) => {
                self.warnings.add(format!(
                    "the engine's view could not be applied, so the window is sent unchanged: {error}"
                ));
                rendered
            }
            None => rendered,
        };
        BodyDraft::new(request, rendered, current.note_of(&current.window))
    }

    /// Lays out the window and records what goes to the model. None if the window is what the
    /// client sent.
    ///
    /// # Errors
    /// A message cannot be rendered in the format of the request.
    fn render_body(
        &mut self,
        current: &mut ConversationState,
        request: &Request<'_>,
    ) -> Result<Option<RenderedBody>, FormatError> {
        if self.is_as_it_came(current) {
            self.rendered = None;
            current.history.set_rendered(WireLog::default());
            return Ok(None);
        }
        // Appending keeps the bytes that the provider has cached. Rendering the whole body again
        // may change them.
        let going_on = self.last(current).cloned();
        self.rendered = None;
        if let Some(rendered) = going_on.filter(|rendered| !rendered.ends_in_role_of_next(request))
        {
            let rendered = rendered.continued(request);
            // Nothing was rendered if the request before it was not sent to the model.
            if !current.history.rendered().is_empty() {
                // The recorded answer holds the bytes that the model returned. The client may write
                // the same answer differently, and its bytes count.
                let is_kept = |at: usize, raw: u64| match rendered.out.get(at) {
                    Some(RenderedWire::Kept(wire)) => request.raw.get(*wire) == Some(&raw),
                    Some(RenderedWire::Made(..)) => true,
                    None => false,
                };
                let known = current.history.keep_rendered(is_kept);
                for out in rendered.out.iter().skip(known) {
                    if let RenderedWire::Kept(wire) = out {
                        current.history.append_sent_wire(*wire);
                    }
                }
            }
            self.remember(current, Some(rendered.clone()));
            return Ok(Some(rendered));
        }
        let window = Arc::clone(&current.window);
        let rendered = self.rendered_from(current, request, &window)?;
        let log = self.log_of(current, request, &window, &rendered)?;
        for unit in &log.units {
            note_written(&mut current.history, unit);
        }
        // A client may send what the window shows in a spelling of its own. Only the layout tells
        // which short forms that is.
        if self.is_as_it_came(current) {
            current.history.set_rendered(WireLog::default());
            return Ok(None);
        }
        let log = request.is_sent().then_some(log);
        current.history.set_rendered(log.unwrap_or_default());
        self.remember(current, Some(rendered.clone()));
        Ok(Some(rendered))
    }

    /// Whether the window shows exactly what the client sent.
    fn is_as_it_came(&self, current: &ConversationState) -> bool {
        let window = &current.window;
        let sent = &current.history.sent.units;
        let entries = window.entries();
        entries.len() == sent.len()
            && entries
                .iter()
                .zip(sent)
                .all(|(entry, unit)| match unit.origin {
                    Origin::Said(id) => entry.is_verbatim() && entry.id() == id,
                    // The client sends a form that the host wrote. It must be the one that is in
                    // force now.
                    Origin::Shortened(id) => {
                        let form = self.short_forms.get(&id);
                        let is_short =
                            !entry.is_verbatim() && form == Some(&unit.fingerprint.identity);
                        entry.id() == id && (entry.is_of_lost_record() || is_short)
                    }
                    Origin::Host(id) => entry.id() == id,
                })
    }

    /// Lays out a window: collects its messages, renders them, and maps the result back to the wire
    /// messages of the request.
    ///
    /// # Errors
    /// A message cannot be read or rendered in the format of the request.
    fn rendered_from(
        &self,
        current: &mut ConversationState,
        request: &Request<'_>,
        window: &Window,
    ) -> Result<RenderedBody, FormatError> {
        let source = material(current, request, window)?;
        let index = |entry: &WindowEntry| source.index.get(&entry.id()).copied();
        // `material` has the full form of every message that the window shows in full.
        let entries = window.plan_entries(index, |_| false);
        let new_window = formats::RenderPlan {
            entries,
            system_note: None,
            own_summaries: self.own_summaries,
        };
        let wire = |item: usize| source.wires.get(item).copied();
        // Messages that are not in the request get positions far apart, so that none counts as a
        // neighbour of another.
        let place = |item: usize| wire(item).unwrap_or(usize::MAX / 2 + item * 2);
        let items = source.conversation.outgoing(&new_window, &place)?;
        let out: Vec<RenderedWire> = items
            .into_iter()
            .map(|item| match item {
                RenderedItem::Original(item) => match wire(item) {
                    Some(wire) => RenderedWire::Kept(wire),
                    None => RenderedWire::Made(source.conversation.item(item).into(), None),
                },
                RenderedItem::New { text, of } => {
                    RenderedWire::Made(text.into(), of.and_then(wire))
                }
            })
            .collect();
        Ok(RenderedBody {
            out,
            wires: request.raw.len(),
        })
    }

    /// Finds out what each wire message of a rendered body is. Kept wire messages are known from
    /// the request. The host's are parsed again and matched with the entries of the window, because
    /// only the parser knows how a format splits messages.
    ///
    /// # Errors
    /// A wire message that the host rendered cannot be read.
    fn log_of(
        &mut self,
        current: &mut ConversationState,
        request: &Request<'_>,
        window: &Window,
        rendered: &RenderedBody,
    ) -> Result<WireLog, FormatError> {
        let mut order: VecDeque<&WindowEntry> = window.leaving_order().into();
        let mut log = WireLog::default();
        let joins = request.joins();
        let mut before: Vec<&str> = Vec::with_capacity(rendered.out.len());
        let runs = rendered.out.chunk_by(|one, next| {
            joins || matches!((one, next), (RenderedWire::Kept(_), RenderedWire::Kept(_)))
        });
        for run in runs {
            let texts: Vec<&str> = run
                .iter()
                .map(|out| RenderedBody::text(out, request))
                .collect();
            let raw: Vec<u64> = texts.iter().map(|text| raw_hash(text)).collect();
            if let (false, [RenderedWire::Kept(_), ..]) = (joins, run) {
                for out in run {
                    let RenderedWire::Kept(wire) = out else {
                        continue;
                    };
                    for unit in current.history.sent.beginning_in(*wire) {
                        let id = unit.origin.id();
                        // Usually it is the first one, so this search is short.
                        if let Some(at) = order.iter().position(|entry| entry.id() == id) {
                            order.remove(at);
                        }
                    }
                    current.history.sent.copy_wire(*wire, &mut log);
                }
                before.extend(texts);
                continue;
            }
            let calls = &mut current.history.calls;
            formats::continue_after(request.format, &before, calls);
            let conversation = formats::excerpt(request.format, &texts, calls)?;
            before.extend(texts);
            let mut units = Vec::new();
            for message in conversation.messages() {
                let fingerprint = Fingerprint::of(message);
                let found = order.iter().position(|entry| entry.may_be(message));
                let origin = match found.and_then(|at| order.remove(at)) {
                    Some(entry) if entry.is_summary() || entry.is_stub() => {
                        Origin::Host(entry.id())
                    }
                    Some(entry) if entry.is_verbatim() && !entry.is_of_lost_record() => {
                        Origin::Said(entry.id())
                    }
                    Some(entry) => Origin::Shortened(entry.id()),
                    None => Origin::Host(Arc::make_mut(&mut current.window).fresh_id()),
                };
                units.push(WireEntry {
                    origin,
                    fingerprint,
                    wires: message.items.clone(),
                });
            }
            log.push(&raw, units);
        }
        // Those that are kept in the client's bytes are in force too.
        self.short_forms = log.short_forms();
        Ok(log)
    }
}

/// Records a message that the host wrote under its identity on the wire, so that it is
/// recognised when a client sends it back. Messages of the client are skipped.
fn note_written(history: &mut History, unit: &WireEntry) {
    let (id, shortens) = match unit.origin {
        Origin::Said(_) => return,
        Origin::Shortened(id) => (id, true),
        Origin::Host(id) => (id, false),
    };
    let covers = history.host_texts.covers(id).cloned();
    history.write(HostText {
        identity: unit.fingerprint.identity,
        id,
        shortens,
        covers: covers.unwrap_or_default(),
    });
}

/// Collects the messages of a window into one conversation that can be rendered. A message
/// comes from the request if that holds it in the form that is needed, otherwise from memory.
///
/// # Errors
/// A wire message cannot be read, or it does not hold the messages that it is recorded for.
fn material(
    current: &mut ConversationState,
    request: &Request<'_>,
    window: &Window,
) -> Result<Material, FormatError> {
    let History { sent, calls, .. } = &mut current.history;
    let unit_of: IdMap<&WireEntry> = (sent.units.iter())
        .map(|unit| (unit.origin.id(), unit))
        .collect();
    // If a message was restored, the request has only its shorter form, so memory has to provide it.
    let in_request = |entry: &&WindowEntry| {
        let unit = unit_of.get(&entry.id()).copied();
        unit.filter(|unit| unit.is_said() || !entry.is_original())
    };
    let shown = window.entries().iter();
    let shown = shown.filter(|entry| entry.message().is_some());
    let wires = shown.clone().filter_map(|entry| in_request(&entry));
    let read = request.read(wires.flat_map(|unit| unit.wires.clone()), calls)?;
    let mut excerpt = formats::ExcerptBuilder::new(request.format);
    let mut index = IdMap::default();
    let mut wires = Vec::new();
    for held in read.chunk_by(|one, next| one.wires.start == next.wires.start) {
        let Some(first) = held.first() else { continue };
        let Some(at) = excerpt.add(&first.conversation, first.index) else {
            continue;
        };
        wires.extend(first.wires.clone());
        let units = sent.beginning_in(first.wires.start);
        if units.len() != held.len() {
            return Err(FormatError::Window(format!(
                "wire message {} holds {} messages where {} were recorded",
                first.wires.start,
                held.len(),
                units.len()
            )));
        }
        index.extend((units.iter().map(|unit| unit.origin.id())).zip(at..));
    }
    // The first message in the excerpt of each wire message that memory provides.
    let mut remembered: HashMap<_, Option<usize>> = HashMap::new();
    for entry in shown.filter(|entry| in_request(entry).is_none()) {
        let Some((conversation, message, place)) = entry.in_wire() else {
            continue;
        };
        let wire = (Arc::as_ptr(conversation), message - place);
        let first = *(remembered.entry(wire)).or_insert_with(|| excerpt.add(conversation, message));
        index.extend(first.map(|first| (entry.id(), first + place)));
    }
    Ok(Material {
        conversation: excerpt.finish(),
        index,
        wires,
    })
}

/// The messages of a window as a conversation that can be rendered.
struct Material {
    conversation: Conversation,
    /// The index of each window message in the conversation.
    index: IdMap<usize>,
    /// The request's wire message that each item of the conversation is. The items after these come
    /// from memory.
    wires: Vec<usize>,
}

#[cfg(test)]
mod tests;

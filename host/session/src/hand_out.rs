//! Handing out: the body for the model, and where each message went in it.
//!
//! What is kept leaves with the bytes of the request. The layout of a window is made when it changes; a turn
//! that only adds messages adds them to it, so that the body begins with the bytes of the last one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use contexture_engine_api::MessageId;
use contexture_formats::{
    self as formats, Conversation, Format, FormatError, Item, summary_identity,
};

use super::Session;
use super::align::{Mark, raw_hash};
use super::ids::IdMap;
use super::options::{BodyMessage, Compact, TurnOptions};
use super::request::{Request, Source};
use super::slot::Slot;
use super::trail::{Origin, Trail, Unit};
use super::window::Window;
use super::written::{IdSet, WrittenText};

/// A wire message on its way out.
#[derive(Debug, Clone)]
enum Out {
    /// The request's, byte for byte.
    Kept(usize),
    /// The host's: its JSON, and the request's message that it is another form of.
    Made(Arc<str>, Option<usize>),
}

/// A window as wire messages.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    out: Vec<Out>,
    /// How many wire messages the request had.
    pub(super) wires: usize,
}

impl Layout {
    /// The request unchanged.
    fn whole(request: &Request<'_>) -> Self {
        let wires = request.raw.len();
        Self {
            out: (0..wires).map(Out::Kept).collect(),
            wires,
        }
    }

    /// Whether the host's own message is the last one and the next message of the request has the same role. Many
    /// clients join such neighbours into one message, which would attribute the host's words to somebody else.
    fn ends_in_role_of_next(&self, request: &Request<'_>) -> bool {
        let Some(Out::Made(text, None)) = self.out.last() else {
            return false;
        };
        let role = formats::role_of(text);
        self.wires < request.raw.len()
            && role.is_some()
            && role == formats::role_of(request.wire_text(self.wires))
    }

    /// The JSON of a wire message.
    fn text<'t>(out: &'t Out, request: &'t Request<'_>) -> &'t str {
        match out {
            Out::Kept(wire) => request.wire_text(*wire),
            Out::Made(text, _) => text,
        }
    }

    fn messages(&self) -> Vec<BodyMessage> {
        let message = |out: &Out| match out {
            Out::Kept(wire) => BodyMessage::Kept(*wire),
            Out::Made(text, Some(wire)) => BodyMessage::Changed(*wire, text.to_string()),
            Out::Made(text, None) => BodyMessage::Added(text.to_string()),
        };
        self.out.iter().map(message).collect()
    }
}

/// What is handed out for a request.
pub(super) struct Handed<'b> {
    pub(super) body: Cow<'b, str>,
    pub(super) messages: Vec<BodyMessage>,
    /// Whether it is anything but what the client sent.
    pub(super) changed: bool,
}

impl Session {
    /// The body for the model: the window, or what the engine would show of it this once. Where that is what
    /// came, these are the bytes that came.
    pub(super) fn hand_out<'b>(
        &mut self,
        request: &Request<'b>,
        view: Option<&Window>,
    ) -> Handed<'b> {
        // A client carries on from the window: a view holds for its request alone.
        let layout = self.lay_out(request).unwrap_or_else(|error| {
            self.warn(format!(
                "the compaction in force could not be applied, so the request leaves as it came: {error}"
            ));
            self.layout = None;
            self.history.set_handed(Trail::default());
            None
        });
        let layout = match view.map(|view| self.layout_of(request, view)) {
            Some(Ok(layout)) => Some(layout),
            Some(Err(error)) => {
                self.warn(format!(
                    "the engine's view could not be applied, so the window leaves as it is: {error}"
                ));
                layout
            }
            None => layout,
        };
        let note = self.note_to_add();
        let body = match (&request.source, &layout) {
            (Source::Body { text, .. }, None) if note.is_none() => Cow::Borrowed(*text),
            (Source::Body { wire, .. }, layout) => {
                let whole = Layout::whole(request);
                let layout = layout.as_ref().unwrap_or(&whole);
                let messages: Vec<_> = (layout.out.iter())
                    .map(|out| match out {
                        Out::Kept(wire) => (Some(*wire), Layout::text(out, request)),
                        Out::Made(..) => (None, Layout::text(out, request)),
                    })
                    .collect();
                Cow::Owned(wire.with_messages(note, &messages))
            }
            // A document is rendered by whoever read it, in the format that is wanted.
            (Source::Document(_), _) => Cow::Borrowed(""),
        };
        let changed = layout.is_some() || note.is_some();
        let messages = match layout {
            Some(layout) => layout.messages(),
            None => (0..request.raw.len()).map(BodyMessage::Kept).collect(),
        };
        Handed {
            body,
            messages,
            changed,
        }
    }

    /// The body that would be handed out for this one, which is not taken in: none where it does not begin with what
    /// the client sent last, or cannot be read. It has no prompt cache markers.
    pub fn preview(&mut self, body: &str, format: Format, without_tools: bool) -> Option<String> {
        if self.history.resumed {
            self.lay_out_again(body, format, without_tools)?;
        }
        let request = Request::body(body, Some(format), &mut None).ok()?;
        let Source::Body { wire, .. } = &request.source else {
            return None;
        };
        let known = self.layout.as_ref().map_or(1, |layout| layout.wires);
        if self.history.sent.common(&request.raw) < known {
            return None;
        }
        let out = match &self.layout {
            Some(layout) => {
                let rest = (layout.wires..request.raw.len()).map(Out::Kept);
                layout.out.iter().cloned().chain(rest).collect()
            }
            None => Layout::whole(&request).out,
        };
        let messages: Vec<_> = (out.iter())
            .map(|out| match out {
                Out::Kept(wire) => (Some(*wire), Layout::text(out, &request)),
                Out::Made(..) => (None, Layout::text(out, &request)),
            })
            .collect();
        let body = wire.with_messages(self.note_to_add(), &messages);
        let tools = self.tools_in(without_tools);
        match tools.is_empty() {
            true => Some(body),
            false => formats::with_tools(&body, format, &tools, false).ok(),
        }
    }

    /// Lays the window out as it was before the session was opened anew: as if what the client sent last came again, as
    /// far as this request holds that, so that nothing is taken in.
    fn lay_out_again(&mut self, body: &str, format: Format, without_tools: bool) -> Option<()> {
        let wire = formats::split(body, Some(format)).ok()?;
        let sent = wire.messages.iter().take(self.history.sent.raw.len());
        let sent: Vec<_> = sent.enumerate().map(|(at, raw)| (Some(at), *raw)).collect();
        let again = wire.with_messages(None, &sent);
        let request = Request::body(&again, Some(format), &mut None).ok()?;
        let compared = self.comparison(&request).ok()?;
        if (compared.common, compared.new + compared.revised) != (compared.held, 0) {
            return None;
        }
        let options = TurnOptions {
            compact: Compact::Never,
            without_tools,
            saves_later: true,
            ..TurnOptions::default()
        };
        self.turn_with(&again, Some(format), &options).ok()?;
        Some(())
    }

    /// Lays the window out, and notes what is handed out; none for a window that is what the client sent.
    fn lay_out(&mut self, request: &Request<'_>) -> Result<Option<Layout>, FormatError> {
        let window = Arc::clone(&self.window);
        if self.is_as_it_came(&window) {
            self.layout = None;
            self.history.set_handed(Trail::default());
            return Ok(None);
        }
        let going_on = self.layout.take();
        if let Some(mut layout) = going_on.filter(|layout| !layout.ends_in_role_of_next(request)) {
            layout
                .out
                .extend((layout.wires..request.raw.len()).map(Out::Kept));
            layout.wires = request.raw.len();
            if matches!(request.source, Source::Body { .. }) {
                // The answer stands in it as it was given; the client's copy of it counts.
                let is_kept = |at: usize, raw: u64| match layout.out.get(at) {
                    Some(Out::Kept(wire)) => request.raw.get(*wire) == Some(&raw),
                    Some(Out::Made(..)) => true,
                    None => false,
                };
                let known = self.history.keep_handed(is_kept);
                for out in layout.out.iter().skip(known) {
                    if let Out::Kept(wire) = out {
                        self.history.hand_out_as_sent(*wire);
                    }
                }
            }
            self.layout = Some(layout.clone());
            return Ok(Some(layout));
        }
        let layout = self.layout_of(request, &window)?;
        let trail = self.trail_of(request, &window, &layout)?;
        for unit in &trail.units {
            self.note_written(unit);
        }
        let handed = match request.source {
            Source::Body { .. } => trail,
            Source::Document(_) => Trail::default(),
        };
        self.history.set_handed(handed);
        self.layout = Some(layout.clone());
        Ok(Some(layout))
    }

    /// Notes what the host wrote by what it reads like on the wire.
    fn note_written(&mut self, unit: &Unit) {
        let (id, shortens) = match unit.origin {
            Origin::Said(_) => return,
            Origin::Shortened(id) => (id, true),
            Origin::Host(id) => (id, false),
        };
        let covers = self.history.written.covers(id).cloned();
        self.history.write(WrittenText {
            identity: unit.mark.identity,
            id,
            shortens,
            covers: covers.unwrap_or_default(),
        });
    }

    /// Whether a window is what the client sent.
    fn is_as_it_came(&self, window: &Window) -> bool {
        let sent = &self.history.sent.units;
        let slots = window.slots();
        slots.len() == sent.len()
            && slots
                .iter()
                .zip(sent)
                .all(|(slot, unit)| match unit.origin {
                    Origin::Said(id) => slot.is_verbatim() && slot.id() == id,
                    // The host's own form, if it is the one that is in force.
                    Origin::Shortened(id) => {
                        let is_short = !slot.is_verbatim() && self.reads_as(slot, unit);
                        slot.id() == id && (slot.is_of_lost_record() || is_short)
                    }
                    Origin::Host(id) => slot.id() == id,
                })
    }

    /// Whether a shorter form on the wire is the one that a place holds.
    fn reads_as(&self, slot: &Slot, unit: &Unit) -> bool {
        match self.short_forms.get(&slot.id()) {
            Some(identity) => *identity == unit.mark.identity,
            // The record knows what was written last.
            None => self.history.written.last_short_form(slot.id()) == Some(unit.mark.identity),
        }
    }

    /// Lays a window out: its wire messages.
    fn layout_of(&mut self, request: &Request<'_>, window: &Window) -> Result<Layout, FormatError> {
        let source = self.material(request, window)?;
        let index = |slot: &Slot| source.index.get(&slot.id()).copied();
        // A document may have only the shorter form of a message that was restored. From a request, `material` took
        // the message itself.
        let is_document = matches!(request.source, Source::Document(_));
        let is_short = |at| is_document && self.history.sent.is_short(at);
        let entries = window.plan_entries(index, is_short);
        let new_window = formats::RenderPlan {
            entries,
            system_note: None,
            own_summaries: self.options.own_summaries,
        };
        // A message that is not in the request has no neighbours there.
        let place = |item: usize| {
            let wire = source.wires.get(item).copied().flatten();
            wire.unwrap_or(usize::MAX / 2 + item * 2)
        };
        let items = source.conversation.outgoing(&new_window, &place)?;
        let out: Vec<Out> = items
            .into_iter()
            .map(|item| {
                let wire = |item: usize| source.wires.get(item).copied().flatten();
                match item {
                    Item::Original(item) => match wire(item) {
                        Some(wire) => Out::Kept(wire),
                        None => Out::Made(source.conversation.item(item).into(), None),
                    },
                    Item::New { text, of } => Out::Made(text.into(), of.and_then(wire)),
                }
            })
            .collect();
        Ok(Layout {
            out,
            wires: request.raw.len(),
        })
    }

    /// The messages of a window as a conversation that can be rendered.
    fn material(
        &mut self,
        request: &Request<'_>,
        window: &Window,
    ) -> Result<Material, FormatError> {
        let units = &self.history.sent.units;
        if let Source::Document(conversation) = request.source {
            let ids = units.iter().map(|unit| unit.origin.id());
            return Ok(Material {
                conversation: Arc::clone(conversation),
                index: ids.enumerate().map(|(at, id)| (id, at)).collect(),
                wires: (0..request.raw.len()).map(Some).collect(),
            });
        }
        let unit_of: IdMap<&Unit> = units.iter().map(|unit| (unit.origin.id(), unit)).collect();
        let (mut texts, mut wires): (Vec<&str>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
        // The ids of the messages in these texts, in order.
        let mut ids: Vec<Option<MessageId>> = Vec::new();
        let mut taken: HashSet<usize> = HashSet::new();
        let mut remembered = HashMap::new();
        // Where in the request the last of these texts ends.
        let mut end = None;
        for slot in window
            .slots()
            .iter()
            .filter(|slot| slot.message().is_some())
        {
            // What was restored does not stand in the request as it was said.
            let in_request = unit_of.get(&slot.id());
            match in_request.filter(|unit| unit.is_said() || !slot.is_original()) {
                Some(unit) if taken.insert(unit.wires.start) => {
                    if request.joins() && end != Some(unit.wires.start) {
                        texts.push(NOBODYS);
                        wires.push(None);
                        ids.push(None);
                    }
                    end = Some(unit.wires.end);
                    for wire in unit.wires.clone() {
                        texts.push(request.wire_text(wire));
                        wires.push(Some(wire));
                    }
                    let in_it = self.history.sent.beginning_in(unit.wires.start);
                    ids.extend(in_it.iter().map(|unit| Some(unit.origin.id())));
                }
                Some(_) => {}
                // The request has not got it any more; memory has.
                None => {
                    let Some(wire) = slot.wire() else { continue };
                    let first = *remembered.entry(wire.key).or_insert_with(|| {
                        if request.joins() {
                            texts.push(NOBODYS);
                            wires.push(None);
                            ids.push(None);
                        }
                        end = None;
                        wires.extend(wire.texts.iter().map(|_| None));
                        texts.extend(wire.texts);
                        ids.extend(std::iter::repeat_n(None, wire.views));
                        ids.len() - wire.views
                    });
                    if let Some(id) = ids.get_mut(first + wire.place) {
                        *id = Some(slot.id());
                    }
                }
            }
        }
        let conversation = formats::excerpt(request.format, &texts, &mut self.history.names)?;
        if conversation.messages().len() != ids.len() {
            return Err(FormatError::Window(format!(
                "{} messages were read where {} stand",
                conversation.messages().len(),
                ids.len()
            )));
        }
        let places = ids.into_iter().enumerate();
        Ok(Material {
            conversation: Arc::new(conversation),
            index: places.filter_map(|(at, id)| Some((id?, at))).collect(),
            wires,
        })
    }

    /// What stands in each wire message of a layout.
    fn trail_of(
        &mut self,
        request: &Request<'_>,
        window: &Window,
        layout: &Layout,
    ) -> Result<Trail, FormatError> {
        let mut order: VecDeque<&Slot> = window.leaving_order().into();
        let mut trail = Trail::default();
        self.short_forms.clear();
        let joins = request.joins();
        let runs = layout
            .out
            .chunk_by(|one, next| joins || matches!((one, next), (Out::Kept(_), Out::Kept(_))));
        for run in runs {
            let texts: Vec<&str> = run.iter().map(|out| Layout::text(out, request)).collect();
            let raw: Vec<u64> = texts.iter().map(|text| raw_hash(text)).collect();
            if let (false, [Out::Kept(_), ..]) = (joins, run) {
                for out in run {
                    let Out::Kept(wire) = out else { continue };
                    for unit in self.history.sent.beginning_in(*wire) {
                        let id = unit.origin.id();
                        // Mostly the next one.
                        if let Some(at) = order.iter().position(|slot| slot.id() == id) {
                            order.remove(at);
                        }
                    }
                    self.history.sent.copy_wire(*wire, &mut trail);
                }
                continue;
            }
            let conversation = formats::excerpt(request.format, &texts, &mut self.history.names)?;
            let mut units = Vec::new();
            for message in conversation.messages() {
                let mark = Mark::of(message);
                let found = order.iter().position(|slot| slot.may_be(message));
                let origin = match found.and_then(|at| order.remove(at)) {
                    Some(slot) if slot.is_summary() || slot.is_stub() => Origin::Host(slot.id()),
                    Some(slot) if slot.is_verbatim() => Origin::Said(slot.id()),
                    Some(slot) => {
                        self.short_forms.insert(slot.id(), mark.identity);
                        Origin::Shortened(slot.id())
                    }
                    None => Origin::Host(Arc::make_mut(&mut self.window).fresh_id()),
                };
                units.push(Unit {
                    origin,
                    mark,
                    wires: message.items.clone(),
                });
            }
            trail.push(&raw, units);
        }
        Ok(trail)
    }
}

/// Stands between messages that are no neighbours in the request, lest they be read as one.
const NOBODYS: &str = r#"{"type":"message","role":"user","content":""}"#;

/// The messages of a window, read.
struct Material {
    conversation: Arc<Conversation>,
    /// Where the messages of the window are in it.
    index: IdMap<usize>,
    /// The request's wire message that each of its items is.
    wires: Vec<Option<usize>>,
}

/// The hash by which a summary is known.
pub(super) fn summary_text(id: MessageId, text: &str, covers: IdSet) -> WrittenText {
    WrittenText {
        identity: summary_identity(text),
        id,
        shortens: false,
        covers,
    }
}

impl Request<'_> {
    fn wire_text(&self, wire: usize) -> &str {
        match &self.source {
            Source::Body { wire: body, .. } => body.messages.get(wire).copied().unwrap_or(""),
            Source::Document(conversation) => conversation.item(wire),
        }
    }
}

/// The formats whose prompt caches take markers.
pub(super) fn marker_shape(format: Format) -> Option<contexture_formats::prompt_cache::Shape> {
    match format {
        Format::OpenAiChat => Some(contexture_formats::prompt_cache::Shape::OpenAiChat),
        Format::Anthropic => Some(contexture_formats::prompt_cache::Shape::Anthropic),
        _ => None,
    }
}

//! A turn: what happens to every request.
//!
//! The steps are the same for a request body and for a conversation read from a document. The
//! session aligns the request with the conversation, saves what is new, and shows it to the engine.
//! The engine may rewrite the window, and it decides whether to compact. If a compaction is due, it
//! is made. Then the session renders the body for the model and adds the engine's tools and the
//! markers for the prompt cache.
//!
//! Read [`Session::run`] first. [`Session::turn`], [`Session::turn_with`], [`Session::turn_split`]
//! and [`Session::turn_over`] are its entry points, and [`Session::answer`] completes the turn. When a
//! compaction is due is in `compaction`, the compaction itself in `compactor`, the alignment in
//! `ingest`, and the rendering in `renderer`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture_contract::commanded;
use contexture_engine_api::{Decision, MessageId, ToolSpec, Usage};
use contexture_formats::prompt_cache::{self, CacheProvider, CacheStatus, CacheTtl, Ttl};
use contexture_formats::{self as formats, BodyParts, Conversation, Format, SplitBody, WireBody};

use contexture_transcript::IdMap;

use super::conversation::ConversationState;
use super::engine_link::{EngineLink, SentPrompt, ToolRoom};
use super::error::SessionError;
use super::held::HeldState;
use super::ingest::compare::comparison;
use super::ingest::{Ingest, Ingested};
use super::options::{BodyMessage, Comparison, Relation, Revision, TurnOptions, Unrelated};
use super::report::{CompactionReport, TurnReport};
use super::request::Request;
use super::session::Session;
use super::window::Window;

/// The result of a turn: the body to send, and what was decided on the way to it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Turn<'b> {
    /// The body to send. These are the bytes of the request if nothing changes. Empty for a
    /// conversation that was read from a document: render that one with [`Session::render_plan`],
    /// in any format.
    pub body: Cow<'b, str>,
    /// The messages of the body, in order. Markers for the prompt cache are not in them.
    pub messages: Vec<BodyMessage>,
    /// The tokens of the messages if the engine selected a view for this request alone. None if the
    /// body is the window.
    pub selected: Option<u64>,
    /// Whether the model is to see anything other than what the client sent. The engine's tools and
    /// the markers for the prompt cache do not count.
    pub changed: bool,
    /// Whether the engine wants a compaction, and why. If automatic compaction is off, a yes of the
    /// engine becomes a no that names the configuration key.
    pub decision: Decision,
    /// What the engine changed in the window before this request, apart from a compaction. None if
    /// it changed nothing.
    pub rewrite: Option<CompactionReport>,
    /// The reason why the model must not call tools in its answer. None if it may.
    pub tools_denied: Option<String>,
    /// The compaction that was made or tried in this turn. None if none was due.
    pub compaction: Option<CompactionReport>,
    /// The messages that were not known before, in order, revisions included.
    pub new: Vec<MessageId>,
    /// The messages that now have another form, with the new and the old id of each.
    pub revised: Vec<Revision>,
    /// How the request relates to the conversation before it.
    pub relation: Relation,
    /// How many messages of the conversation are found neither in the request nor in any store. The
    /// engine does not have them.
    pub without_text: u64,
    /// The items of the body's list before the messages. Empty for a conversation that was read from
    /// a document.
    pub(crate) leading: Vec<BodyMessage>,
    /// Where the parts of `body` are. None for a conversation that was read from a document.
    pub(crate) parts: Option<BodyParts>,
}

impl<'b> Turn<'b> {
    /// Takes the body out of the turn, with the places of its parts. Use it to do more with the
    /// body than to send it, because it need not be split again. None for a conversation that was
    /// read from a document, or if the body was replaced.
    pub fn take_split(&mut self) -> Option<SplitBody<Cow<'b, str>>> {
        self.parts.take()?.with_text(std::mem::take(&mut self.body))
    }

    /// Takes all items of the body's list out of the turn: [`messages`](Self::messages), and before
    /// them the system prompt and what the provider compacted itself. Indexes count all items of the
    /// request, so a caller can change its own list in the same way. Tools, markers for the prompt
    /// cache, and a system message that the host adds are not in them.
    pub fn take_items(&mut self) -> Vec<BodyMessage> {
        let mut items = std::mem::take(&mut self.leading);
        let leading = items.len();
        let messages = std::mem::take(&mut self.messages).into_iter();
        items.extend(messages.map(|message| match message {
            BodyMessage::Kept(at) => BodyMessage::Kept(at + leading),
            BodyMessage::Changed(at, text) => BodyMessage::Changed(at + leading, text),
            added @ BodyMessage::Added(_) => added,
        }));
        items
    }

    /// Returns what happened in the turn, for a caller in another language. `warnings` are those of
    /// the session since the last turn ([`Session::take_warnings`]).
    pub fn report(&self, warnings: Vec<String>) -> TurnReport {
        TurnReport {
            changed: self.changed,
            decision: (&self.decision).into(),
            compaction: self.compaction.clone(),
            rewrite: self.rewrite.clone(),
            selected_tokens: self.selected,
            tools_denied: self.tools_denied.clone(),
            new: self.new.len(),
            revised: self.revised.len(),
            branched: self.relation != Relation::Continues,
            new_root: self.relation == Relation::NewRoot,
            without_text: self.without_text,
            warnings,
        }
    }
}

impl Session {
    /// Runs a turn for a request body. The session finds out what of it is new, shows that to the
    /// engine, compacts if hygiene or the engine says so, and returns the body to send to the
    /// model.
    ///
    /// The client may send the whole history again, continue from the body that the last turn
    /// returned, or mix both. Messages that stay as they are leave with the bytes of this request.
    ///
    /// # Errors
    /// The body is not valid in its format. It belongs to another conversation and
    /// [`Unrelated::Refuse`](crate::Unrelated::Refuse) is set. The engine failed and
    /// `context.on_failure` is `fail`.
    pub fn turn<'b>(&mut self, body: &'b str) -> Result<Turn<'b>, SessionError> {
        self.turn_with(body, None, &TurnOptions::default())
    }

    /// Same as [`turn`](Self::turn), with a known format and options for this turn. If `format` is
    /// `None`, it is detected.
    ///
    /// # Errors
    /// The same as [`turn`](Self::turn).
    pub fn turn_with<'b>(
        &mut self,
        body: &'b str,
        format: Option<Format>,
        options: &TurnOptions,
    ) -> Result<Turn<'b>, SessionError> {
        let request = self.ingest.split(body, format)?;
        self.run(&request, options, &mut |_| {})
    }

    /// Same as [`turn_with`](Self::turn_with), for a body that was split already. Its messages may be
    /// others than those of the text that it was split from.
    ///
    /// # Errors
    /// The same as [`turn`](Self::turn).
    pub fn turn_split<'b>(
        &mut self,
        body: WireBody<'b>,
        options: &TurnOptions,
    ) -> Result<Turn<'b>, SessionError> {
        self.run(&Request::of(body), options, &mut |_| {})
    }

    /// Runs a turn for a conversation that was read from a document. It counts as a client that
    /// sends everything. After each delivery to the engine, `progress` is called with the number of
    /// messages in it.
    ///
    /// # Errors
    /// The same as [`turn`](Self::turn).
    pub fn turn_over<'b>(
        &mut self,
        conversation: &'b Arc<Conversation>,
        options: &TurnOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Turn<'b>, SessionError> {
        let request = Request::document(conversation);
        self.run(&request, options, progress)
    }

    /// Compares a conversation with the one that the session holds. The conversation is not
    /// ingested.
    ///
    /// # Errors
    /// A message of the conversation cannot be read.
    pub fn compare(
        &mut self,
        conversation: &Arc<Conversation>,
    ) -> Result<Comparison, SessionError> {
        let request = Request::document(conversation);
        Ok(comparison(&mut self.current.history, &request)?)
    }

    /// The window as a plan from which a format can render it. `conversation` must be the one of
    /// the last turn.
    pub fn render_plan(&self, conversation: &Arc<Conversation>) -> formats::RenderPlan<'_> {
        let units = &self.current.history.sent.units;
        let index: IdMap<usize> = (units.iter().enumerate())
            .take(conversation.messages().len())
            .map(|(at, unit)| (unit.origin.id(), at))
            .collect();
        formats::RenderPlan {
            entries: self.current.window.plan_entries(
                |entry| index.get(&entry.id()).copied(),
                |at| self.current.history.sent.is_short(at),
            ),
            system_note: (self.current.window.system_note()).filter(|_| self.options.note),
            own_summaries: self.options.own_summaries,
        }
    }

    /// The steps that every kind of turn shares.
    fn run<'b>(
        &mut self,
        request: &Request<'b>,
        options: &TurnOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Turn<'b>, SessionError> {
        // 1. What of the request is new?
        let ingested = self.ingest_request(request, options)?;
        // 2. The engine is shown it, and decides.
        self.deliver_background()?;
        // The tools are part of the prompt, so they must be known before anything is counted.
        offer_tools(&mut self.link, &mut self.current, request, false)?;
        let (mut decision, without_text) = self.sync_engine(Some(request), progress)?;
        let mut rewrite = None;
        if self.may_rewrite(options.compact) {
            rewrite = self.rewrite()?;
            // The first decision was made about what is new. For the rewrite the engine saw the
            // whole window, so it may decide otherwise now.
            decision = self.link.should_compress(&self.current)?;
        }
        let decision = self.if_automatic(decision);
        // 3. If a compaction is due, it is made.
        let keep_from = (options.keep_from).map(|item| item.saturating_sub(request.leading()));
        let keep_from = self
            .ingest
            .allow_missing_from(&self.current.history, keep_from);
        let compaction = self.compact_in_turn(&decision, rewrite.is_some(), options, keep_from)?;
        // A compaction hides messages, so the engine's tools that find them again may be needed
        // from now on.
        if compaction.as_ref().is_some_and(CompactionReport::is_made) {
            offer_tools(&mut self.link, &mut self.current, request, true)?;
        }
        // 4. The window, or the engine's view of it for this request alone, becomes a body.
        let view = self.select()?;
        let draft = (self.renderer).render(&mut self.current, request, view.as_ref());
        let denied = (self.link).tools_denied(&self.current)?;
        let tools = self.tools_in(options.without_tools);
        let draft = draft.tools(tools, denied.is_some());
        let draft = draft.markers(self.cache_markers());
        let (leading, messages, changed) = (draft.leading(), draft.messages(), draft.is_changed());
        let body = draft.serialise(&self.warnings);
        // The model's cache holds the old conversation, so no question can continue it.
        if !ingested.only_appends() {
            self.link.asking().set_sent(None);
        }
        let continues = self.link.asking().client().continues(request.format);
        let rendered = body.as_ref().filter(|_| continues);
        self.rendered_body = rendered.map(|body| body.clone().map(Cow::into_owned));
        let (body, parts) = body.map(SplitBody::into_parts).unzip();
        self.current.keep_artifacts();
        // If only the cursor has changed, it can wait for the next save.
        if self.current.history.has_more_to_save() && !options.saves_later {
            self.current.save();
        }
        Ok(Turn {
            body: body.unwrap_or_default(),
            parts,
            leading,
            messages,
            selected: view.as_ref().map(Window::message_tokens),
            changed,
            decision,
            rewrite,
            tools_denied: denied,
            compaction,
            new: ingested.new,
            revised: ingested.revised,
            relation: ingested.relation,
            without_text,
        })
    }

    /// Takes a request into the conversation, and saves what an engine must find in the transcript.
    fn ingest_request(
        &mut self,
        request: &Request<'_>,
        options: &TurnOptions,
    ) -> Result<Ingested, SessionError> {
        let (ingest, current) = (&mut self.ingest, &mut self.current);
        if ingest.read_preamble(current, request, options.fixed_tokens) {
            self.settled = false;
        }
        self.current
            .meter
            .note_request(options.time_ms, request.is_sent());
        let engines = self.link.engines();
        if engines.config().prompt_caching.cache_ttl == CacheTtl::Auto {
            let prompt = self.current.rough_state().prompt_tokens;
            let pauses = &mut self.current.history.facts.pauses;
            (self.current.meter).choose_cache_ttl(prompt, pauses, engines);
        }
        self.link.reopen(&self.current);
        let ingested = self.ingest.ingest(&mut self.current, request);
        let common = ingested.as_ref().map_or(0, |ingested| ingested.common);
        self.renderer.continue_from(common);
        let ingested = ingested?;
        self.renderer.rename(&ingested.unsent_again);
        self.settled &= ingested.new.is_empty() && ingested.relation == Relation::Continues;
        self.current.meter.ingested(ingested.relation);
        self.note_pins(&ingested);
        // An engine that reads the transcript must find there what it is shown.
        if !options.saves_later || self.engine().about().reads_transcript {
            self.current.save();
        }
        Ok(ingested)
    }

    /// Lets the commands in new messages of the user count before what is held about the same words.
    fn note_pins(&mut self, ingested: &Ingested) {
        if ingested.relation == Relation::NewRoot && !ingested.compacted {
            self.current.update_held(HeldState::forget);
        }
        // Ids only rise, so all from the first new one on are new.
        let Some(first) = ingested.new.iter().min() else {
            return;
        };
        let entries = self.current.window.entries().iter();
        let new = entries.filter(|entry| entry.id() >= *first && entry.is_real_user());
        let texts = new.filter_map(|entry| Some(entry.message()?.text.as_str()));
        let words: Vec<String> = texts.flat_map(commanded).collect();
        self.current.update_held(|held| held.said(&words));
    }

    /// Shows the engine everything that it has not seen. Returns its decision whether to compact,
    /// and how many messages it could not be shown because their text was found nowhere. `request`
    /// is `None` after an answer: nothing is sent then, so there is nothing to decide.
    fn sync_engine(
        &mut self,
        request: Option<&Request<'_>>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(Decision, u64), SessionError> {
        let (unseen, lost) = self.current.unseen(request)?;
        if lost > 0 {
            self.warnings.add(format!(
                "{lost} earlier messages are no longer in the request or in a store, so engine `{}` does not \
                 have them; later messages are kept",
                self.engine().name()
            ));
        }
        let state = request.map(|_| self.current.rough_state());
        let (link, current) = (&mut self.link, &mut self.current);
        let decision = match link.deliver(current, unseen, state, progress) {
            Ok(Some(decision)) => decision,
            Ok(None) => self.link.should_compress(&self.current)?,
            Err(error) => {
                let state = self.state();
                (self.link).decide_without_engine(error, &state, &self.current)?
            }
        };
        Ok((decision, lost))
    }

    /// The engine's tools that a request gets. Empty if they are `withheld` from it.
    fn tools_in(&mut self, withheld: bool) -> Vec<ToolSpec> {
        let tools = self.link.tools_in(withheld);
        // The engine may have been closed during this turn.
        self.current.tool_tokens = self.link.tool_tokens();
        tools
    }

    /// The provider whose prompt cache takes markers, and the lifetime to ask for. None if the
    /// options or the configuration turn them off, or if the model's provider does not use them.
    fn cache_markers(&self) -> Option<(CacheProvider, Ttl)> {
        let config = self.link.engines().config();
        let caching = &config.prompt_caching;
        let provider = self.options.provider.as_deref();
        let base_url = config.model.base_url.as_deref();
        let status = prompt_cache::decide(
            &self.current.meter.agent().model,
            provider.or(config.model.provider.as_deref()),
            base_url.filter(|_| provider.is_none()),
            self.options.cache_markers && caching.enabled != Some(false),
            caching.cache_ttl,
        );
        match status {
            CacheStatus::Enabled { provider, .. } => Some((provider, self.cache_ttl())),
            _ => None,
        }
    }

    /// Renders a body as the next turn would, without running a turn. Use it for a request that is
    /// not part of the conversation's history, such as one that only counts tokens or asks for a
    /// summary. The engine is shown nothing of it. If the body stays as it is, it also gets no
    /// markers for the prompt cache.
    ///
    /// Returns `None` if the body has nothing in common with the conversation.
    pub fn preview<'b>(
        &mut self,
        body: &WireBody<'b>,
        without_tools: bool,
    ) -> Option<Cow<'b, str>> {
        let request = Request::of(body.clone());
        // The copies take the request in, and are stored nowhere.
        let mut current = self.current.clone();
        let mut ingest = Ingest::new(self.id(), Unrelated::Refuse, self.warnings.clone());
        ingest.read_preamble(&mut current, &request, None);
        let ingested = ingest.ingest(&mut current, &request).ok()?;
        let mut renderer = self.renderer.clone();
        renderer.continue_from(ingested.common);
        renderer.rename(&ingested.unsent_again);
        // A session that was just opened has not offered any tools yet.
        if self.current.history.resumed {
            offer_tools(&mut self.link, &mut current, &request, false).ok()?;
        }
        let draft = renderer.render(&mut current, &request, None);
        let tools = self.tools_in(without_tools);
        let is_changed = draft.is_changed() || !tools.is_empty();
        let markers = self.cache_markers().filter(|_| is_changed);
        let draft = draft.tools(tools, false).markers(markers);
        Some(draft.serialise(&self.warnings)?.into_parts().0)
    }

    /// The tokens of the first `wires` wire messages of the body that was rendered last. Messages
    /// that are not in the window count as zero.
    pub fn head_tokens(&self, wires: usize) -> u64 {
        let log = self.current.history.last_body();
        let tokens: IdMap<u64> = (self.current.window.entries().iter())
            .map(|entry| (entry.id(), entry.tokens()))
            .collect();
        let units = log.units.iter().take(log.units_within(wires));
        units.filter_map(|unit| tokens.get(&unit.origin.id())).sum()
    }

    /// Adds the complete answer of the last turn to the conversation. `items` holds the JSON of its
    /// message, or of each item for the Responses API. `usage` is what the provider reported for
    /// the answer. The turn ends with this call, and background work begins. Returns the ids of the
    /// new messages.
    ///
    /// # Errors
    /// An item is not a valid message in the format of the last turn, or there was no turn yet. The
    /// engine failed and `context.on_failure` is `fail`.
    pub fn answer(
        &mut self,
        items: &[&str],
        usage: Option<&Usage>,
    ) -> Result<Vec<MessageId>, SessionError> {
        let taken = self.take_answer(items, usage);
        // Saved after the delivery, so that one transaction holds the answer and the cursor, and
        // whether or not the engine failed, so that it does not lose the answer.
        self.current.save();
        taken
    }

    /// Like [`answer`](Self::answer), but what it adds is stored with the next save of the session,
    /// also if it fails. Use it if [`release_with`](Self::release_with) follows.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn take_answer(
        &mut self,
        items: &[&str],
        usage: Option<&Usage>,
    ) -> Result<Vec<MessageId>, SessionError> {
        let history = &mut self.current.history;
        let format = history.format().ok_or(SessionError::NoTurn)?;
        let answer = Arc::new(formats::excerpt(format, items, &mut history.calls)?);
        if let Some(usage) = usage {
            // The usage is about the prompt, so it is compared with the window before the answer
            // joins it.
            self.update_usage(usage);
        }
        self.note_sent();
        let new = self.ingest.answer(&mut self.current, items, &answer);
        self.settled = false;
        if self.engine().about().reads_transcript {
            // The engine may read the answer from the transcript as soon as it is shown it.
            self.current.save();
        }
        self.sync_engine(None, &mut |_| {})?;
        (self.link).tell("turn_complete", |engine| engine.turn_complete())?;
        self.link.start_background(&self.current)?;
        Ok(new)
    }

    /// Records that the agent's model has now read the body that was rendered last. The engine's
    /// next question may continue it from the provider's cache.
    fn note_sent(&mut self) {
        let ids = self.current.history.branch().iter().map(|known| known.id);
        let sent = self.rendered_body.take().zip(ids.max());
        let sent = sent.map(|(body, through)| SentPrompt {
            body,
            through,
            tokens: self.current.rough_state().best_prompt_tokens(),
            prices: self.current.meter.prices(),
            warm_until: Instant::now() + Duration::from_millis(self.cache_ttl().ms()),
        });
        self.link.asking().set_sent(sent);
    }
}

/// Decides which tools of the engine are in the requests. `is_compacted` says that a compaction was
/// just made, so that more tools may be added.
fn offer_tools(
    link: &mut EngineLink,
    current: &mut ConversationState,
    request: &Request<'_>,
    is_compacted: bool,
) -> Result<(), SessionError> {
    if !request.is_sent() {
        return Ok(());
    }
    let preamble = current.preamble.as_ref();
    let room = ToolRoom {
        is_compacted,
        hides_something: current.hides_something(request),
        taken: preamble.map_or(&[], |preamble| &preamble.tools),
        room: current.room_for_tools(),
        cost: &|tool| current.tool_cost(tool, request.format),
    };
    current.tool_tokens = link.offer_tools(&room)?;
    Ok(())
}

//! A turn: the one way of a request through the host.
//!
//! A request is taken in and aligned with the conversation, the engine is shown what is new and decides, the
//! window is compacted where that is due, and what the model is to see is handed out.

use std::borrow::Cow;
use std::sync::Arc;

use contexture_engine_api::MessageKind;
use contexture_engine_api::{Decision, MessageId, Usage, grouped};
use contexture_formats::prompt_cache::{self, CacheStatus};
use contexture_formats::{self as formats, Conversation, Format, FormatError};

use super::align::{Known, Mark, raw_hash};
use super::asking::{Sent, warm_until};
use super::hand_out::marker_shape;
use super::ids::IdMap;
use super::options::{BodyMessage, Compact, Comparison, Revision, TurnOptions};
use super::report::{CompactionReport, OutcomeKind};
use super::request::{Request, Source};
use super::slot::Slot;
use super::tools::tool_names;
use super::trail::{Origin, Unit};
use super::{Ask, Frame, Session, SessionError, Window};
use crate::hygiene::{self, Hygiene};

/// Part of the message for a prompt that does not fit while automatic compaction is off.
const OFF: &str = "nothing is compacted by itself";

/// How often what a compaction leaves too large is compacted further in the same turn.
const FURTHER: usize = 2;

/// The result of a turn.
#[derive(Debug)]
pub struct Turn<'b> {
    /// The body to send: the bytes of the request where nothing changes. Empty for a conversation that
    /// was read from a document, which [`Session::render_plan`] lays out for any format.
    pub body: Cow<'b, str>,
    /// The messages of the body, in order, without prompt cache markers.
    pub messages: Vec<BodyMessage>,
    /// The tokens of the messages of a view that the engine selected for this request alone; none where the body
    /// is the window.
    pub selected: Option<u64>,
    /// Whether the model is to see anything but what the client sent.
    pub changed: bool,
    /// Whether a compaction was due, and why.
    pub decision: Decision,
    /// What the engine changed of the window before this request, a compaction aside.
    pub rewrite: Option<CompactionReport>,
    /// Why the model may not call tools in its answer; none where it may.
    pub tools_denied: Option<String>,
    /// The compaction that was made, or tried.
    pub compaction: Option<CompactionReport>,
    /// The messages that were not known before, in order; revisions are among them.
    pub new: Vec<MessageId>,
    /// The messages that have another form now.
    pub revised: Vec<Revision>,
    /// Whether the conversation was cut back, and the last message before the cut.
    pub branched: Option<Option<MessageId>>,
    /// Whether the request has nothing in common with what the session held, and begins anew.
    pub new_root: bool,
    /// Messages of the conversation that neither the request nor any store has any more.
    pub missing: u64,
}

impl Session {
    /// Takes in a request of the client: finds out what of it is new, shows that to the engine, compacts
    /// where hygiene or the engine says so, and answers the body to send to the model.
    ///
    /// The client may send the whole history again, carry on from what was handed out, or mix both. Kept
    /// messages leave with the bytes of this request.
    ///
    /// # Errors
    /// The body is not one of its format; it is of another conversation and such are refused; or the engine
    /// failed and `context.on_failure` is `fail`.
    pub fn turn<'b>(&mut self, body: &'b str) -> Result<Turn<'b>, SessionError> {
        self.turn_with(body, None, &TurnOptions::default())
    }

    /// As [`turn`](Self::turn), for a body of this format and with wishes of the caller's.
    ///
    /// # Errors
    /// As there.
    pub fn turn_with<'b>(
        &mut self,
        body: &'b str,
        format: Option<Format>,
        options: &TurnOptions,
    ) -> Result<Turn<'b>, SessionError> {
        let request = Request::body(body, format, &mut self.body_before)?;
        self.take_frame(&request, options)?;
        self.run(&request, options, &mut |_| {})
    }

    /// A turn over a conversation that was read from a document: a client that sends everything. `progress` is
    /// told the number of messages after each delivery to the engine.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn turn_over<'b>(
        &mut self,
        conversation: &'b Arc<Conversation>,
        options: &TurnOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Turn<'b>, SessionError> {
        let request = Request::document(conversation);
        self.set_frame(conversation, options);
        self.run(&request, options, progress)
    }

    /// Compares a conversation with the one that the session holds, and takes nothing in.
    ///
    /// # Errors
    /// A message of the conversation cannot be read.
    pub fn compare(
        &mut self,
        conversation: &Arc<Conversation>,
    ) -> Result<Comparison, SessionError> {
        let request = Request::document(conversation);
        self.recover_from_engine(request.format);
        self.comparison(&request)
    }

    /// The window in the terms of the format that renders it, for the conversation of the last turn.
    pub fn render_plan(&self, conversation: &Arc<Conversation>) -> formats::RenderPlan<'_> {
        let units = &self.history.sent.units;
        let index: IdMap<usize> = (units.iter().enumerate())
            .take(conversation.messages().len())
            .map(|(at, unit)| (unit.origin.id(), at))
            .collect();
        formats::RenderPlan {
            entries: self.window.plan_entries(
                |slot| index.get(&slot.id()).copied(),
                |at| self.history.sent.is_short(at),
            ),
            system_note: self.window.system_note().filter(|_| self.options.note),
            own_summaries: self.options.own_summaries,
        }
    }

    /// What every kind of turn does.
    fn run<'b>(
        &mut self,
        request: &Request<'b>,
        options: &TurnOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Turn<'b>, SessionError> {
        let is_sent = matches!(request.source, Source::Body { .. });
        self.note_request(options.time_ms, is_sent);
        self.reopen_engine();
        self.recover_from_engine(request.format);
        self.missing = 0;
        let arrival = self.take_in(request)?;
        if arrival.new_root {
            self.ledger = self.ledger.of_a_new_conversation();
        } else if arrival.branched.is_some() {
            self.ledger.cut_back();
        }
        let is_read = self.engine.about().reads_transcript;
        let must_be_stored = self.history.may_be_remembered() || is_read;
        if !options.saves_later || must_be_stored {
            self.save();
        }
        self.deliver_background()?;
        // Before anything is counted: they are part of the prompt.
        self.offer_tools(request, false)?;
        let is_automatic = self.by_itself().is_ok();
        let mut decision = self.show(Some(request), progress)?;
        let rewrites = match options.compact {
            Compact::Auto => is_automatic,
            Compact::Force => true,
            Compact::Never => false,
        };
        let mut rewrite = None;
        if rewrites && self.engine.about().rewrites {
            rewrite = self.rewrite()?;
            // It was shown the whole window just now, and may see more in it than in what is new.
            decision = self.should_compress()?;
        }
        if let Err(key) = self.by_itself()
            && decision.is_yes()
        {
            decision = Decision::No(format!("{} (`{key}`): {}", OFF, decision.reason()));
        }
        let keep_from = self.lend(options.keep_from);
        let is_settled = self.settled && rewrite.is_none();
        let is_as_small_as_it_gets = is_settled && !self.new_since_compaction && !self.fits();
        let compaction = match options.compact {
            Compact::Never => None,
            Compact::Auto if !is_automatic => self.does_not_fit(),
            Compact::Auto if is_settled && self.fits_roughly() => None,
            Compact::Auto if is_as_small_as_it_gets => Some(self.still_too_large()),
            Compact::Auto => self.compact_if_due(&decision, &self.ask(options, keep_from))?,
            Compact::Force => Some(self.compact(&self.ask(options, keep_from))?),
        };
        let is_final = |report: &CompactionReport| report.outcome == OutcomeKind::Compacted;
        let is_decided = compaction.as_ref().is_none_or(is_final);
        let is_compacted = compaction.as_ref().is_some_and(is_final);
        self.settled = options.compact != Compact::Never && (is_decided || is_as_small_as_it_gets);
        if is_compacted {
            self.offer_tools(request, true)?;
        }
        let view = self.select()?;
        let handed = self.hand_out(request, view.as_ref());
        let selected = view.as_ref().map(Window::message_tokens);
        let denied = self.tools_denied()?;
        let body = self.with_tools(
            handed.body,
            request,
            options.without_tools,
            denied.is_some(),
        );
        let body = self.with_cache_markers(body, request);
        if arrival.new_root || arrival.branched.is_some() || !arrival.revised.is_empty() {
            self.asking.set_sent(None);
        }
        let continues = self.asking.client().continues(request.format);
        self.handed_body = continues.then(|| body.clone().into_owned());
        // How far the engine was shown the conversation is worth no transaction of its own.
        self.history.keep_artifacts(self.transcript.take_staged());
        if self.history.has_more_to_save() && !options.saves_later {
            self.save();
        }
        Ok(Turn {
            body,
            messages: handed.messages,
            selected,
            changed: handed.changed,
            decision,
            rewrite,
            tools_denied: denied,
            compaction,
            new: arrival.new,
            revised: arrival.revised,
            branched: arrival.branched,
            new_root: arrival.new_root,
            missing: self.missing,
        })
    }

    /// The tokens of the first `wires` wire messages of what was handed out last.
    pub fn head_tokens(&self, wires: usize) -> u64 {
        let handed = self.history.handed();
        let trail = match handed.is_empty() {
            true => &self.history.sent,
            false => handed,
        };
        let tokens: IdMap<u64> = (self.window.slots().iter())
            .map(|slot| (slot.id(), slot.tokens()))
            .collect();
        let units = trail.units.iter().take(trail.units_within(wires));
        units.filter_map(|unit| tokens.get(&unit.origin.id())).sum()
    }

    /// Where nothing is compacted by itself, and the prompt does not fit: what to do about it.
    fn does_not_fit(&self) -> Option<CompactionReport> {
        if self.fits_roughly() {
            return None;
        }
        let state = self.state();
        let (tokens, usable) = (state.best_prompt_tokens(), state.usable_tokens());
        let reason = format!(
            "the prompt has {} tokens, and the window has room for {}; {OFF} (`{}`): ask for it (`contexture compress \
             --force`), or choose a model with a larger window",
            grouped(tokens),
            grouped(usable),
            self.by_itself().err().unwrap_or_default()
        );
        (tokens > usable).then(|| self.unchanged(&self.engine, OutcomeKind::FloorTooHigh, reason))
    }

    /// Whether conversations are compacted automatically.
    ///
    /// # Errors
    /// The configuration key that turns it off, with its value.
    fn by_itself(&self) -> Result<(), &'static str> {
        let compression = &self.engines.config().compression;
        match (compression.enabled, compression.automatic) {
            (false, _) => Err("compression.enabled: false"),
            (true, false) => Err("compression.automatic: false"),
            (true, true) => Ok(()),
        }
    }

    fn ask(&self, options: &TurnOptions, keep_from: Option<MessageId>) -> Ask {
        let by_config = self.engines.config().compression.wait_for_model;
        Ask {
            force: options.compact == Compact::Force,
            by_hygiene: false,
            focus: options.focus.clone(),
            memory: options.memory.clone(),
            may_wait_for_model: options.wait_for_model.unwrap_or(by_config),
            keep_from,
        }
    }

    /// The message that the wire message `wire` begins with; what stands from there on may be left out of the
    /// next request.
    fn lend(&mut self, wire: Option<usize>) -> Option<MessageId> {
        let wire = wire?;
        let units = self.history.sent.units.iter();
        let lent: Vec<MessageId> = units
            .filter(|unit| unit.wires.start >= wire)
            .map(|unit| unit.origin.id())
            .collect();
        let first = lent.first().copied();
        self.provisional = lent.into_iter().collect();
        first
    }

    /// Takes in the complete answer to the last turn: the usage that the provider reported for it, then the
    /// answer itself, as the JSON of its message (for Responses: of each of its items). The turn is over with
    /// it, and background work begins. Answers the ids of its messages.
    ///
    /// # Errors
    /// It is not a message of the format of the last turn, or there was no turn yet; or the engine failed
    /// and `context.on_failure` is `fail`.
    pub fn answer(
        &mut self,
        items: &[&str],
        usage: Option<&Usage>,
    ) -> Result<Vec<MessageId>, SessionError> {
        let format = self.history.format().ok_or(SessionError::NoTurn)?;
        let conversation = Arc::new(formats::excerpt(format, items, &mut self.history.names)?);
        if let Some(usage) = usage {
            self.update_usage(usage);
        }
        let raw: Vec<u64> = items.iter().map(|raw| raw_hash(raw)).collect();
        self.note_sent(format);
        let window = Arc::make_mut(&mut self.window);
        let (mut units, mut new) = (Vec::new(), Vec::new());
        for (index, message) in conversation.messages().iter().enumerate() {
            let read = super::request::ReadMessage {
                conversation: Arc::clone(&conversation),
                index,
                wires: message.items.clone(),
            };
            let id = window.fresh_id();
            let slot = Slot::new(id, MessageKind::Original, &read, &self.counter);
            window.push_slot(slot.clone());
            self.history.keep([&slot]);
            self.unshown.insert(id, slot);
            let mark = Mark::of(message);
            self.history.append(Known { id, mark }, None);
            units.push(Unit {
                origin: Origin::Said(id),
                mark,
                wires: message.items.clone(),
            });
            new.push(id);
        }
        self.new_since_compaction |= !new.is_empty();
        self.settled = false;
        self.history.answered(&raw, &units);
        if self.engine.about().reads_transcript {
            self.save();
        }
        let shown = self.show(None, &mut |_| {});
        // In one transaction with how far the engine was shown it.
        self.save();
        shown?;
        self.tell("turn_complete", |engine| engine.turn_complete())?;
        self.start_background()?;
        Ok(new)
    }

    /// Notes that the agent's model has read what was handed out last.
    fn note_sent(&mut self, format: Format) {
        let ids = self.history.branch().iter().map(|known| known.id);
        let sent = self.handed_body.take().zip(ids.max());
        let sent = sent.map(|(body, through)| Sent {
            body,
            format,
            through,
            tokens: self.rough_state().best_prompt_tokens(),
            prices: prompt_cache::prices(&self.agent.model, self.cache_ttl),
            warm_until: warm_until(self.cache_ttl.ms()),
        });
        self.asking.set_sent(sent);
    }

    /// System prompt and tools, read only where they changed.
    fn take_frame(
        &mut self,
        request: &Request<'_>,
        options: &TurnOptions,
    ) -> Result<(), FormatError> {
        let Source::Body { text, wire } = &request.source else {
            return Ok(());
        };
        let parts = wire
            .system
            .iter()
            .chain(&wire.tools)
            .chain(&wire.system_messages);
        // It is never changed, only replaced by a newer one.
        let parts = parts.chain(wire.compacted.last());
        let hash = parts.fold(wire.format as u64, |hash, part| {
            hash.rotate_left(1) ^ raw_hash(part)
        });
        let is_known = self.frame.as_ref().is_some_and(|frame| frame.hash == hash);
        if !is_known {
            let conversation = formats::read_frame(*text, wire.format)?;
            self.set_frame(&conversation, options);
            if let Some(frame) = &mut self.frame {
                frame.hash = hash;
            }
        }
        if let Some(tokens) = options.fixed_tokens {
            self.fixed_tokens = tokens;
        }
        Ok(())
    }

    /// Sets what stands outside the history: system prompt and tools, and the grouping rules of the format.
    fn set_frame(&mut self, conversation: &Conversation, options: &TurnOptions) {
        let counted = || super::counting::fixed_tokens(&self.counter, conversation);
        self.fixed_tokens = options.fixed_tokens.unwrap_or_else(counted);
        self.settled = false;
        self.grouping = super::grouping_of(conversation.format());
        self.frame = Some(Frame {
            hash: 0,
            system: conversation.system().map(str::to_owned),
            tools: tool_names(conversation),
        });
    }

    /// Compacts where the engine decided so, or hygiene does: what happens before every request.
    fn compact_if_due(
        &mut self,
        decision: &Decision,
        ask: &Ask,
    ) -> Result<Option<CompactionReport>, SessionError> {
        let rules = Hygiene {
            max_messages: self.engines.config().hygiene.max_messages,
        };
        let due = decision.is_yes() || hygiene::check(&self.rough_state(), &rules).is_yes();
        if !due {
            return Ok(None);
        }
        let safety_net = hygiene::check(&self.state(), &rules);
        let compacted = |report: &Option<CompactionReport>| {
            (report.as_ref()).is_some_and(|report| report.outcome == OutcomeKind::Compacted)
        };
        let mut report = match decision.is_yes() {
            true => Some(self.compact(ask)?),
            false => None,
        };
        let failed = report
            .as_ref()
            .is_some_and(|report| report.outcome == OutcomeKind::Failed);
        let is_overruled =
            safety_net.is_yes() && self.new_since_compaction && !self.state().rests();
        // An engine that does nothing beyond the safety net is overruled, once for what there is.
        if is_overruled && !compacted(&report) && !failed {
            let ask = Ask {
                force: true,
                by_hygiene: true,
                ..ask.clone()
            };
            let mut forced = self.compact(&ask)?;
            forced.notes.extend(report.map(|report| report.reason));
            let reason = safety_net.reason();
            forced.notes.push(format!("session hygiene: {reason}"));
            report = Some(forced);
        }
        let state = self.state();
        if !compacted(&report)
            && state.best_prompt_tokens() > state.usable_tokens()
            && let Some(mut pruned) = self.prune(ask)?
        {
            pruned.notes.extend(report.map(|report| report.reason));
            report = Some(pruned);
        }
        for _ in 0..FURTHER {
            if !compacted(&report) || self.fits() {
                break;
            }
            match self.compact(ask) {
                Ok(further) if further.outcome == OutcomeKind::Compacted => {
                    report = report.map(|first| further.after(first));
                }
                Ok(_) => break,
                // What is in force stays so.
                Err(error) => {
                    self.warn(error.to_string());
                    break;
                }
            }
        }
        if report.is_some() {
            self.new_since_compaction = false;
        }
        Ok(report)
    }

    /// Where the same request comes again, of which the last compaction made as much as there is to make.
    fn still_too_large(&self) -> CompactionReport {
        let state = self.state();
        let reason = format!(
            "the prompt has {} tokens, still above the {} that the window has room for, and nothing has come since it \
             was compacted",
            grouped(state.best_prompt_tokens()),
            grouped(state.usable_tokens())
        );
        self.unchanged(&self.engine, OutcomeKind::NothingToDo, reason)
    }

    /// The last step: markers for the provider's prompt cache, where the configuration has them for this model.
    fn with_cache_markers<'b>(
        &mut self,
        body: Cow<'b, str>,
        request: &Request<'_>,
    ) -> Cow<'b, str> {
        let Source::Body { wire, .. } = &request.source else {
            return body;
        };
        let Some(shape) = marker_shape(request.format).filter(|_| self.options.cache_markers)
        else {
            return body;
        };
        let config = self.engines.config();
        let caching = &config.prompt_caching;
        let provider = self.options.provider.as_deref();
        let status = prompt_cache::decide(
            &self.agent.model,
            provider.or(config.model.provider.as_deref()),
            config
                .model
                .base_url
                .as_deref()
                .filter(|_| provider.is_none()),
            caching.enabled != Some(false),
            caching.cache_ttl,
        );
        let CacheStatus::Enabled { provider, .. } = status else {
            return body;
        };
        let ttl = self.cache_ttl;
        let marked = match &body {
            Cow::Borrowed(_) => prompt_cache::apply_to(wire, shape, provider, ttl),
            Cow::Owned(made) => prompt_cache::apply(made, shape, provider, ttl),
        };
        match marked {
            Ok(marked) if marked.applied.is_empty() => body,
            Ok(marked) => Cow::Owned(marked.document),
            Err(error) => {
                self.warn(error.to_string());
                body
            }
        }
    }

    /// The window now. A caller that keeps a copy of it makes the next message copy the whole window.
    pub fn window(&self) -> &Arc<Window> {
        &self.window
    }
}

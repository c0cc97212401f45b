//! The session as its callers see it, apart from turns and compactions: opening and closing, the
//! model, background work, tools and figures.
//!
//! [`Session`] owns the four values, the state that they work on, and the lock in the record. Most
//! methods here only pass a call on to one of them. What is decided here is the order at both ends
//! of a session. [`Session::open`] locks the session before it reads the record, and opens the
//! engine before it decides whether texts are stored. When a session is released or dropped, it is
//! saved before the lock is given up, since the next holder reads what is stored.
//!
//! A request is handled in `turn`, a compaction in `compaction`, and a compaction that an agent
//! made itself in `resume`.

use std::sync::Arc;
use std::time::Duration;

use contexture_config::{Config, TranscriptMode};
use contexture_engine_api::{
    CurrentCompaction, Decision, MessageId, ToolCall, ToolSpec, Usage, WindowState,
};
use contexture_formats::prompt_cache::{CacheTtl, Ttl};
use contexture_formats::{Format, SplitBody};
use contexture_providers::{ModelClient, UsageByModel};
use contexture_runtime::engines::{Engines, Opened};

use contexture_transcript::{KeptChange, Record, RecordError, StoredSession};

use super::compactor::Compactor;
use super::conversation::ConversationState;
use super::engine_link::{BackgroundAnswer, BackgroundWork, Canceller, EngineLink, ToolRoom};
use super::engine_transcript::EngineTranscript;
use super::error::SessionError;
use super::held::HeldState;
use super::history::{self, History};
use super::ingest::Ingest;
use super::lock::SessionLock;
use super::meter::Meter;
use super::options::{AgentWindow, ConfiguredAgent, SessionOptions};
use super::renderer::Renderer;
use super::report::SessionReport;
use super::warnings::Warnings;
use super::window::Window;

/// One conversation and its engine.
///
/// A session is used by one thread at a time. Its slow operations, such as model calls and disk
/// writes, have a time limit. When [`turn`](Self::turn) or [`answer`](Self::answer) returns, what
/// it added to the conversation is durable, unless
/// [`TurnOptions::saves_later`](super::TurnOptions::saves_later) asked for less.
#[derive(Debug)]
pub struct Session {
    id: String,
    pub(crate) options: SessionOptions,
    /// The engine that had the session before, if it was another one.
    previous_engine: Option<String>,
    pub(crate) current: ConversationState,
    pub(crate) ingest: Ingest,
    pub(crate) link: EngineLink,
    pub(crate) compactor: Compactor,
    pub(crate) renderer: Renderer,
    /// The body that the last turn rendered. Kept until the answer arrives, and only if the client
    /// that answers the engine's questions can continue a prompt of this format.
    pub(crate) rendered_body: Option<SplitBody<String>>,
    /// Whether the decision to compact still holds because nothing that it depends on has changed.
    /// If so, the same request again gives the same body.
    pub(crate) settled: bool,
    pub(crate) warnings: Warnings,
    /// The lock on the session. This is the last field, so that everything else is dropped before
    /// the lock is released.
    lock: SessionLock,
}

impl Session {
    /// Opens a session. If `record` has it, the session continues: known messages keep their ids,
    /// the compaction in force stays in force, and the engine is shown only what it has not seen.
    /// Without a record the session lives in memory alone.
    ///
    /// A session can be open only once across all processes. If it is open elsewhere, this call
    /// waits until it is closed or `options.wait` has passed. If the record cannot be used for
    /// another reason, the session continues in memory and adds a warning.
    ///
    /// # Errors
    /// No engine can be opened. With the default configuration this happens only if an engine was
    /// named. Also if the session is still open elsewhere after the wait.
    pub fn open(
        engines: &Arc<Engines>,
        record: Option<&Arc<Record>>,
        id: &str,
        agent: AgentWindow,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let warnings = Warnings::of(id);
        let config = engines.config();
        let agent = configured(agent, config, &warnings);
        let read_only = options.read_only.as_ref().filter(|_| record.is_none());
        let (lock, loaded) = SessionLock::take(record, id, options.wait)?;
        let (saved, not_stored) = match loaded {
            Some(Err(error)) => {
                let why = history::without_record(&error);
                warnings.add(&*why);
                (None, Some(why))
            }
            loaded => (loaded.and_then(Result::ok), None),
        };
        if let Some(record) = record
            && config.prompt_caching.cache_ttl == CacheTtl::Auto
        {
            // The pauses of all sessions are a better sample for the choice of a cache lifetime
            // than this one's.
            engines.know_pauses(|| record.pauses());
        }
        let readable = record.filter(|_| saved.is_some()).or(read_only);
        let transcript = EngineTranscript::of(id, readable);
        let held = HeldState::of(id, readable);
        let next_id = saved.as_ref().map_or(1, |(_, saved)| saved.next_id);
        let mut history = saved.map_or_else(History::default, |(stored, saved)| {
            History::of(stored, saved)
        });
        history.not_stored = not_stored;
        let compaction = match read_only {
            Some(record) => stored_compaction(record, id, options.engine.as_deref())?,
            None => history.current_compaction(),
        };
        let link = EngineLink::open(
            engines,
            id,
            &agent,
            &options,
            &transcript,
            compaction.as_ref(),
            warnings.clone(),
        )?;
        let is_full = config.transcript.mode == TranscriptMode::Full;
        let is_stored = history.is_stored();
        // Only an engine that reads the transcript needs the text of messages. Otherwise storing it
        // is the user's choice.
        let reads = link.engine().about().reads_transcript;
        if read_only.is_none() && (reads || is_full && is_stored) {
            // Such an engine must find a transcript even if the session has no record. It gets one
            // in memory.
            if !is_stored {
                let record = Record::in_memory().map_err(SessionError::InUse)?;
                let (stored, _) = StoredSession::open(&record, id).map_err(SessionError::InUse)?;
                transcript.set_record(&record);
                history.store_in(stored);
            }
            history.keep_texts(config.redacts(link.engine().name()));
        }
        let previous_engine = history.set_engine(link.engine().name());
        let (timing, ttl) = (config.compression.timing, config.prompt_caching.cache_ttl);
        let meter = Meter::new(agent, &history.facts.usage, timing, ttl);
        let renderer = Renderer::new(options.own_summaries, &history, warnings.clone());
        let mut current =
            ConversationState::new(history, next_id, meter, transcript, warnings.clone());
        (current.takes_note, current.held) = (options.note, held);
        Ok(Self {
            id: id.to_owned(),
            previous_engine,
            current,
            ingest: Ingest::new(id, options.unrelated, warnings.clone()),
            link,
            compactor: Compactor::new(config, warnings.clone()),
            renderer,
            options,
            rendered_body: None,
            settled: false,
            warnings,
            lock,
        })
    }

    /// Warns if another engine had the session before this one. Without a previous engine it does
    /// nothing. The warning is returned by [`take_warnings`](Self::take_warnings).
    pub fn warn_of_takeover(&mut self) {
        if let Some(previous) = &self.previous_engine {
            let (engine, id) = (self.engine().name(), &self.id);
            self.warnings.add(format!(
                "the engine `{engine}` takes over the session `{id}` from `{previous}`"
            ));
        }
    }

    /// Lets `client` answer the engine's questions for as long as the caller keeps the `Arc`. Use
    /// it to answer with the agent's own model and the credentials of the request at hand. If it is
    /// cheaper, a question continues the prompt that this model was sent last.
    pub fn with_model(&mut self, client: &Arc<ModelClient>) {
        self.link.asking().set_client(Arc::downgrade(client));
    }

    /// The session's id, as it was given to [`open`](Self::open).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The engine that the session runs under, with its description and its source. The fallback
    /// that stands in for a failed call is not reported here.
    pub fn engine(&self) -> &Opened {
        self.link.engine()
    }

    /// A handle with which another thread can stop the work of this session. Call it before each
    /// piece of work that a user may stop, because a cancel that happened before this call no
    /// longer has an effect.
    pub fn canceller(&self) -> Canceller {
        self.link.asking().resume();
        Canceller(Arc::clone(self.link.asking()))
    }

    /// Whether the session was opened with this very set of engines. Another set does not count,
    /// even if its configuration is equal.
    pub fn runs_with(&self, engines: &Arc<Engines>) -> bool {
        Arc::ptr_eq(self.link.engines(), engines)
    }

    /// Returns the warnings for the user since the last call, and clears them. They concern the
    /// choice of the engine and failures since.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }

    /// The number of model calls made for this session since it was opened, background calls
    /// included.
    pub fn model_calls(&self) -> u64 {
        self.link.asking().model_calls()
    }

    /// What the model calls for this session used, background calls included. The caller takes it
    /// from there, also without the session at hand.
    pub fn model_usage(&self) -> &Arc<UsageByModel> {
        &self.link.asking().used
    }

    /// How often the engine failed or broke the contract since the session was opened. Failures of
    /// the fallback are not counted.
    pub fn engine_failures(&self) -> u64 {
        self.engine().failures()
    }

    /// Why the last save did not reach the session's record, as with a full disk or a damaged file.
    /// The session then continues in memory. None if it did, or if the session was opened without a
    /// record.
    pub fn not_stored(&self) -> Option<&str> {
        self.current.history.not_stored.as_deref()
    }

    /// The total time spent in calls of the engine, including calls of the fallback.
    pub fn engine_time(&self) -> Duration {
        self.link.busy()
    }

    /// Forgets the conversation and begins a new one under the same id. Message ids are not reused.
    ///
    /// # Errors
    /// The engine failed. Both the engine and the session then still have the conversation.
    pub fn reset(&mut self) -> Result<(), SessionError> {
        self.link.reset()?;
        self.current.forget();
        self.current.save();
        Ok(())
    }

    /// Tells the engine that the agent's model or its window changed. If the model is another one,
    /// usage that was reported for the old model no longer counts, and all messages are counted
    /// again.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn set_model(&mut self, agent: AgentWindow) -> Result<(), SessionError> {
        // If a stalled engine object came back after this call, it would not know the new model.
        self.link.reopen(&self.current);
        let agent = configured(agent, self.link.engines().config(), &self.warnings);
        self.current.set_agent(agent);
        self.link.set_counter(self.current.counter);
        self.settled = false;
        let state = self.state();
        (self.link).tell("model_changed", move |engine| engine.model_changed(&state))
    }

    /// Releases the lock, so that others can open the session, in other processes too. What is in
    /// memory stays there, so [`reacquire`](Self::reacquire) is cheap if nobody used the session
    /// in between.
    pub fn release(&mut self) {
        // Whoever opens the session next reads the record, so it must be complete before the lock
        // is released.
        self.current.save();
        self.lock.release(self.current.history.has_place());
    }

    /// Like [`release`](Self::release), with `changes` of texts in `record`, the session's own. In a
    /// file they share the transaction of what the session saves, which costs less than one for each.
    ///
    /// # Errors
    /// The changes could not be written on their own. The session is released all the same.
    pub fn release_with(
        &mut self,
        record: &Record,
        mut changes: Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError> {
        self.current.save_with(&mut changes);
        let made = record.make_changes(changes);
        self.lock.release(self.current.history.has_place());
        made
    }

    /// Locks a released session again. If it is open elsewhere, this waits for at most `wait`.
    /// Returns `false` if this value is out of date: drop it then, and open the session again.
    /// Somebody else has used or deleted the session in the meantime, or its record could not be read
    /// before, and now can. A session that was not released returns `true`.
    ///
    /// # Errors
    /// The session is still open elsewhere after the wait, or its lock cannot be used.
    pub fn reacquire(&mut self, wait: Duration) -> Result<bool, SessionError> {
        self.lock.reacquire(wait)
    }

    /// Tells the engine that the session ends, and closes it.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn end(mut self) -> Result<(), SessionError> {
        self.link.end()
    }

    /// The current window. If a caller keeps the `Arc`, the next new message makes the session copy
    /// the whole window.
    pub fn window(&self) -> &Arc<Window> {
        &self.current.window
    }

    /// How full the window is, with exact token counts and everything else that an engine is told
    /// about it. Counts the messages that were not counted yet.
    pub fn state(&self) -> WindowState {
        self.current.state()
    }

    /// The tokens of the system prompt, the client's and the engine's tools, and the note that a
    /// compaction appended.
    pub fn overhead_tokens(&self) -> u64 {
        self.current.overhead_tokens(&self.current.window)
    }

    /// How long the provider keeps the prompt of this request in its cache.
    pub fn cache_ttl(&self) -> Ttl {
        self.current.meter.cache_ttl()
    }

    /// Records the usage that the provider reported for the answer to the last prompt. Call it
    /// before the answer joins the window. The engine learns of the usage with its next call.
    ///
    /// A report that cannot be about this prompt is ignored: zero, far fewer tokens than were
    /// counted (as with a report of only the uncached tokens), far more (as with a sum over several
    /// requests), or more than the window holds if the request was answered.
    pub fn update_usage(&mut self, usage: &Usage) {
        let counted = self.current.counted_tokens();
        if self.current.meter.update_usage(counted, usage) {
            self.link.update_usage(usage);
        }
    }

    /// Records that the provider refused the last body as too long: `tokens` tokens by its own
    /// count. From now on, counts are corrected to the provider's tokens. Returns the ratio: how
    /// many of the provider's tokens correspond to one that is counted here.
    pub fn prompt_was_refused(&mut self, tokens: u64) -> f64 {
        self.settled = false;
        let counted = self.current.counted_tokens();
        self.current.meter.prompt_was_refused(counted, tokens)
    }

    /// Asks the engine whether a prompt of about `estimated` tokens would make it compact. Nothing
    /// is tokenised for this, so it is cheap enough for every request. If the answer is no, a
    /// request can go to the model without waiting for the turn.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn preflight(&mut self, estimated: u64) -> Result<Decision, SessionError> {
        self.link.preflight(estimated, &self.current)
    }

    /// The model calls that the engine wants made between turns, with the client to make them. Call
    /// [`BackgroundWork::run`] on a thread that does not delay a turn, then pass the answers to
    /// [`background_done`](Self::background_done). Use this only with
    /// [`BackgroundBy::Embedder`](super::BackgroundBy::Embedder), because otherwise the host makes
    /// the calls.
    ///
    /// # Errors
    /// The engine failed.
    pub fn background(&mut self) -> Result<BackgroundWork, SessionError> {
        self.link.background(&self.current)
    }

    /// Hands the answers of background calls to the engine. Answers about messages that are no
    /// longer part of the conversation are discarded.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn background_done(&mut self, answers: Vec<BackgroundAnswer>) -> Result<(), SessionError> {
        self.link.background_done(&self.current, answers)
    }

    /// Hands the engine the answers that the host's thread has brought since the last turn.
    pub(crate) fn deliver_background(&mut self) -> Result<(), SessionError> {
        // With the answers the engine may decide otherwise about the same request.
        self.settled &= !self.link.deliver_background(&self.current)?;
        Ok(())
    }

    /// Waits until the host's thread is done with the calls of this session, and hands over the
    /// answers. Use it in a program that runs turns without pauses, in place of the time that
    /// usually passes between turns.
    ///
    /// # Errors
    /// The same as [`background_done`](Self::background_done).
    pub fn finish_background(&mut self) -> Result<(), SessionError> {
        self.link.wait_for_background();
        self.deliver_background()
    }

    /// The tools of the session under their own names: those of the host, if
    /// `compression.model_tools` is on, and those of the engine. It warns of tools of the engine that
    /// a provider would refuse, and leaves them out. If the session is not
    /// [for reading only](SessionOptions::read_only), that holds for tools that are too large for its
    /// window as well.
    ///
    /// # Errors
    /// The engine failed.
    pub fn tools(&mut self) -> Result<Vec<ToolSpec>, SessionError> {
        let current = &self.current;
        let room = ToolRoom {
            is_compacted: false,
            hides_something: false,
            taken: &[],
            // Who reads a session adds the tools to requests of another window.
            room: match self.options.read_only {
                Some(_) => None,
                None => current.room_for_tools(),
            },
            // The format of the requests is not known, and the sizes differ little.
            cost: &|tool| current.tool_cost(tool, Format::OpenAiChat),
        };
        let own = self.link.tools_within(&room)?;
        let mut tools = self.link.host_tools().to_vec();
        // The host answers first, so nobody can call an engine's tool of the same name.
        let is_free = |tool: &ToolSpec| tools.iter().all(|one| one.name != tool.name);
        let own: Vec<ToolSpec> = own.into_iter().filter(is_free).collect();
        tools.extend(own);
        Ok(tools)
    }

    /// The tools that the engine offers to the agent, under the engine's own names.
    ///
    /// # Errors
    /// The engine failed.
    pub fn engine_tools(&mut self) -> Result<Vec<ToolSpec>, SessionError> {
        self.link.tools()
    }

    /// The names that the tools of the session have in the requests.
    pub fn offered_tools(&self) -> impl Iterator<Item = &str> {
        self.link.offered_tools()
    }

    /// Answers a call of one of the session's tools, a tool of the host or of the engine. If the
    /// session adds the tools to requests, use the name that the tool has there. The call may come
    /// before the first request of a session that was opened again.
    ///
    /// # Errors
    /// The tool failed or refused the arguments, or no request offered it.
    pub fn call_tool(&mut self, call: ToolCall) -> Result<String, SessionError> {
        match self.link.host_tool(&call) {
            Some(name) => self.call_host_tool(&name, &call),
            None => self.link.call_tool(call),
        }
    }

    /// The reason why the session does not run under the engine that it should. Another one was
    /// opened in its place, its engine panicked and is no longer called, or it is in
    /// [quarantine](Opened::quarantine). `None` if it runs under the right engine.
    pub fn stands_in(&self) -> Option<String> {
        self.engine().stands_in()
    }

    /// The messages that the engine's tool calls asked to restore since the last call of this
    /// function. The engine restores them with the session's next request. If this session is
    /// [for reading only](SessionOptions::read_only), write them to the record with
    /// [`Record::wish_restored`], where the session that gets the requests finds them.
    ///
    /// # Errors
    /// The engine failed.
    pub fn wants_restored(&mut self) -> Result<Vec<MessageId>, SessionError> {
        self.link.wants_restored()
    }

    /// Whether the text of messages is stored, because the engine reads the transcript or the user
    /// asked for it. Otherwise the record has only ids and hashes of them.
    pub fn stores_texts(&self) -> bool {
        self.current.history.texts.are_kept()
    }

    /// The engine's own status, as JSON for the user.
    ///
    /// # Errors
    /// The engine failed.
    pub fn status(&mut self) -> Result<serde_json::Value, SessionError> {
        self.link.status()
    }

    /// How full the window is, which engine runs, and what the engine says about itself, for a caller
    /// in another language.
    ///
    /// # Errors
    /// The engine failed.
    pub fn report(&mut self) -> Result<SessionReport, SessionError> {
        let status = self.status()?;
        Ok(SessionReport {
            session: self.id().to_owned(),
            engine: self.engine().name().to_owned(),
            source: self.engine().source(),
            window: self.state(),
            model_calls: self.model_calls(),
            status,
        })
    }
}

impl Drop for Session {
    /// Saves a turn that no answer followed: its cursor is not written yet.
    fn drop(&mut self) {
        // After a release somebody else may have written newer state, which this save would
        // overwrite.
        if !self.lock.is_released() {
            self.current.save();
        }
    }
}

/// Applies the configuration to the agent's model, and warns about what does not fit it.
fn configured(agent: AgentWindow, config: &Config, warnings: &Warnings) -> ConfiguredAgent {
    let (agent, warning) = ConfiguredAgent::of(agent, config);
    warning
        .into_iter()
        .for_each(|warning| warnings.add(warning));
    agent
}

/// The compaction in force of a session that is open elsewhere. None if another engine made it or
/// if no shortened message has state, because state is of use only to the engine that stored it.
fn stored_compaction(
    record: &Record,
    id: &str,
    engine: Option<&str>,
) -> Result<Option<CurrentCompaction>, SessionError> {
    Ok(record
        .current_compaction(id)?
        .filter(|current| Some(current.engine.as_str()) == engine && !current.shortened.is_empty()))
}

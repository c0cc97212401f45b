//! A session: one conversation, its window, and the engine that keeps it small.
//!
//! Every request goes one way, [`Session::turn`]; whoever reads a conversation from a file takes it too, by
//! [`Session::turn_over`].

mod align;
mod asking;
mod background;
mod compact;
mod compare;
mod counting;
mod engine_calls;
mod engine_transcript;
mod error;
mod hand_out;
mod history;
mod hold;
mod hygiene;
mod ids;
mod lacking;
mod next_window;
mod options;
mod own_ids;
mod recall;
mod record;
mod report;
mod request;
mod resume;
mod rewrite;
mod select;
mod services;
mod show;
mod slot;
mod stage;
mod state;
mod take_in;
mod tools;
mod trail;
mod turn;
mod window;
mod written;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contexture_config::{OnFailure, TranscriptMode};
use contexture_engine_api::CurrentCompaction;
use contexture_formats::Format;
use contexture_formats::prompt_cache::{CacheTtl, Ttl};
use contexture_formats::tokens::{Correction, TokenCounter};
use contexture_providers::ModelClient;
use contexture_runtime::engines::{Engines, Occasion, Opened};
use contexture_runtime::supervision::Pace;

use crate::services::lender;
use contexture_contract::Grouping;

use asking::Asking;
pub use asking::Canceller;
pub use background::{BackgroundAnswer, BackgroundBy, BackgroundWork};
pub use counting::{fixed_tokens, message_tokens};
use engine_transcript::EngineTranscript;
pub use error::SessionError;
pub use hold::Hold;
pub use options::{
    AgentWindow, BodyMessage, Compact, Comparison, Peers, Revision, SessionOptions, TurnOptions,
    Unrelated,
};
pub use record::{Delivered, Placed, Record, RecordError, RecordRepair};
pub use report::{CompactionReport, OutcomeKind};
pub use stage::{Stage, StageError};
pub use turn::Turn;
pub use window::Window;

use background::Background;
use compact::Ask;
use hand_out::Layout;
use history::History;
use ids::{IdMap, Ids};
use request::BodyBefore;
use show::LatePiece;
use slot::Slot;
use state::{Frame, Ledger, Reported, UsageMemory, empty_state};
use tools::Offered;

/// One conversation and its engine.
///
/// A session is used by one thread at a time; what is slow in it (a model, a disk) has a bound. What a turn
/// brought is durable when [`turn`](Self::turn) and [`answer`](Self::answer) return.
#[derive(Debug)]
pub struct Session {
    id: String,
    engines: Arc<Engines>,
    record: Option<Arc<Record>>,
    engine: Opened,
    fallback: Option<Opened>,
    /// The engine that had the session before this one, until it was asked for what it keeps.
    previous_engine: Option<String>,
    on_failure: OnFailure,
    options: SessionOptions,
    agent: AgentWindow,
    counter: TokenCounter,
    correction: Correction,
    asking: Arc<Asking>,
    /// What was handed out for the last request, where a question may continue it once it is answered.
    handed_body: Option<String>,
    model_calls: Arc<AtomicU64>,
    transcript: Arc<EngineTranscript>,
    background: Background,
    window: Arc<Window>,
    grouping: Grouping,
    fixed_tokens: u64,
    /// The engine's tools that are in every request.
    offered: Vec<Offered>,
    offered_tokens: u64,
    /// When the last request was made, in ms since the Unix epoch.
    last_request_ms: Option<i64>,
    /// How long ago the request before this one was.
    idle_ms: Option<u64>,
    /// The pauses before the last requests, `idle_ms` the last of them.
    pauses_ms: Vec<u64>,
    ledger: Ledger,
    /// How long the provider keeps the prompt, by configuration or choice.
    cache_ttl: Ttl,
    /// The prompt at the request before, in tokens.
    prompt_before: u64,
    reported: Option<Reported>,
    new_since_compaction: bool,
    /// It was decided whether to compact, and nothing that this depends on has changed since: the same request
    /// again gives the same body.
    settled: bool,
    warnings: Vec<String>,
    history: History,
    /// Messages that the engine was not shown yet.
    unshown: IdMap<Slot>,
    /// What the engine was shown in a call that was given up.
    late_piece: Option<LatePiece>,
    /// Messages that the next request may come without.
    provisional: Ids,
    /// Messages whose text was found nowhere in this turn.
    missing: u64,
    /// Whether the engine was asked for a conversation that the record has not got.
    recovered: bool,
    frame: Option<Frame>,
    body_before: Option<BodyBefore>,
    /// How the window was laid out last, where it has not changed since but at its end.
    layout: Option<Layout>,
    /// What the shorter forms in the window read like on the wire.
    short_forms: IdMap<u128>,
    /// The session was let go, with this word.
    let_go: Option<Option<hold::Token>>,
    /// Let go last.
    hold: Option<Hold>,
}

impl Session {
    /// Opens a session, or goes on with it where `record` has it: what was seen keeps its ids, the compaction
    /// in force stays in force, and the engine is shown only what it has not seen. Without a record the session
    /// lives in memory alone.
    ///
    /// A session is open once at a time, in all processes together: until this one is ended or dropped, another
    /// waits for it, as long as the options say. A record that cannot be used is a warning.
    ///
    /// # Errors
    /// No engine can be had (with the default configuration only where one was named); or somebody else has
    /// the session open.
    pub fn open(
        engines: &Arc<Engines>,
        record: Option<&Arc<Record>>,
        id: &str,
        agent: AgentWindow,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let mut warnings = Vec::new();
        let beside = options.beside.as_ref().filter(|_| record.is_none());
        let mut hold = None;
        let mut saved = None;
        if let Some(record) = record {
            let loaded = match record.hold(id, options.wait) {
                Ok(held) => {
                    hold = Some(held);
                    record.load(id)
                }
                Err(error @ RecordError::InUse { .. }) => return Err(SessionError::InUse(error)),
                Err(error) => Err(error),
            };
            match loaded {
                Ok(loaded) => saved = Some(loaded),
                Err(error) => {
                    let warning = history::without_record(&error);
                    tracing::warn!("{warning}");
                    warnings.push(warning);
                }
            }
        }
        if let Some(record) = record
            && engines.config().prompt_caching.cache_ttl == CacheTtl::Auto
        {
            engines.know_pauses(|| record.pauses());
        }
        let asking = Arc::new(Asking::new(engines.client().clone()));
        let readable = record.filter(|_| saved.is_some()).or(beside);
        let transcript = EngineTranscript::of(id, readable);
        let model_calls = Arc::new(AtomicU64::new(0));
        let counter = TokenCounter::for_model(&agent.model);
        let next_id = saved.as_ref().map_or(1, |(_, saved)| saved.next_id);
        let last_engine = saved.as_ref().map(|(_, saved)| saved.engine.clone());
        let mut history = saved.map_or_else(History::default, |(stored, saved)| {
            History::of(stored, saved)
        });
        let compaction = match beside {
            Some(record) => compaction_beside(record, id, options.engine.as_deref())?,
            None => history.current_compaction(),
        };
        let occasion = Occasion {
            session: id,
            window: &empty_state(&agent),
            services: &lender(
                &asking,
                counter,
                &model_calls,
                options.peers.as_ref(),
                &transcript,
            ),
            compaction: compaction.as_ref(),
        };
        let engine = engines.open(options.engine.as_deref(), &occasion, &mut warnings)?;
        let is_full = engines.config().transcript.mode == TranscriptMode::Full;
        let is_stored = history.is_stored();
        if beside.is_none() && (engine.about().reads_transcript || is_full && is_stored) {
            if !is_stored {
                let record = Record::in_memory().map_err(SessionError::InUse)?;
                let (stored, _) = record.load(id).map_err(SessionError::InUse)?;
                transcript.set_record(&record);
                history.store_in(stored);
            }
            history.keep_texts(engines.config().transcript.redact);
        }
        history.set_engine(engine.name());
        let remembered = UsageMemory::of(&history.usage, &agent.model);
        Ok(Self {
            id: id.to_owned(),
            engines: Arc::clone(engines),
            record: record.cloned(),
            previous_engine: last_engine.filter(|last| !last.is_empty() && last != engine.name()),
            engine,
            fallback: None,
            on_failure: engines.config().context.on_failure,
            options,
            counter,
            correction: remembered.correction,
            asking,
            handed_body: None,
            agent,
            model_calls,
            transcript,
            background: Background::default(),
            window: Arc::new(Window::of(Vec::new(), None, next_id)),
            grouping: Grouping::Chat,
            fixed_tokens: 0,
            offered: Vec::new(),
            offered_tokens: 0,
            last_request_ms: None,
            idle_ms: None,
            pauses_ms: Vec::new(),
            ledger: Ledger::default(),
            cache_ttl: engines.config().prompt_caching.cache_ttl.at_first(),
            prompt_before: 0,
            reported: remembered.reported,
            new_since_compaction: false,
            settled: false,
            warnings,
            history,
            unshown: IdMap::default(),
            late_piece: None,
            provisional: Ids::default(),
            missing: 0,
            recovered: false,
            frame: None,
            body_before: None,
            layout: None,
            short_forms: IdMap::default(),
            let_go: None,
            hold,
        })
    }

    /// Says that another engine had the session before, where one did.
    pub fn warn_of_takeover(&mut self) {
        if let Some(previous) = &self.previous_engine {
            let (engine, id) = (self.engine.name(), &self.id);
            let warning =
                format!("the engine `{engine}` takes the session `{id}` over from `{previous}`");
            self.warn(warning);
        }
    }

    /// Has the engine's questions answered by this client for as long as the caller keeps it: by the agent's own model,
    /// say, with what the request at hand is let in with. A question may continue what this model was sent last, where
    /// that is cheaper.
    pub fn lend_model(&mut self, client: &Arc<ModelClient>) {
        self.asking.lend(Arc::downgrade(client));
    }

    /// Writes what changed; a failure is a warning.
    fn save(&mut self) {
        self.history.keep_artifacts(self.transcript.take_staged());
        self.history.usage = self.usage_memory();
        if let Some(lost) = self.history.save(self.window.next_id()) {
            self.warn(lost);
        }
    }

    fn warn(&mut self, warning: String) {
        tracing::warn!(session = %self.id, "{warning}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The engine that the session runs under, and where it comes from.
    pub fn engine(&self) -> &Opened {
        &self.engine
    }

    /// A handle to stop, from another thread, what the session does next. A cancel from before this call no longer has
    /// an effect.
    pub fn canceller(&self) -> Canceller {
        self.asking.resume();
        Canceller(Arc::clone(&self.asking))
    }

    /// Whether the session's engine is one of these.
    pub fn runs_with(&self, engines: &Arc<Engines>) -> bool {
        Arc::ptr_eq(&self.engines, engines)
    }

    /// What a person should know of the choice of engine and of failures since, and forgets it.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Model calls made for this session so far.
    pub fn model_calls(&self) -> u64 {
        self.model_calls.load(Ordering::Relaxed)
    }

    /// How often the engine failed or broke the contract so far. What stands in for it is not counted.
    pub fn engine_failures(&self) -> u64 {
        self.engine.failures()
    }

    /// Whether the session is written to its record. False if the record was lost, as with a full disk or a damaged
    /// file, and the session continues in memory.
    pub fn is_recorded(&self) -> bool {
        self.record.is_none() || self.history.is_stored()
    }

    /// How long the calls of the engine took in all, those of the one that stands in for it included.
    pub fn engine_time(&self) -> std::time::Duration {
        let standing_in = self.fallback.as_ref().map(Opened::busy);
        self.engine.busy() + standing_in.unwrap_or_default()
    }

    /// Forgets the conversation and begins anew under the same id.
    ///
    /// # Errors
    /// The engine failed: it and the session then still have the conversation.
    pub fn reset(&mut self) -> Result<(), SessionError> {
        self.engine
            .call("reset", Pace::Short, |engine| engine.reset())?;
        self.begin_anew();
        self.save();
        Ok(())
    }

    /// Forgets the conversation; the engine goes on with what it has.
    fn begin_anew(&mut self) {
        let next_id = self.window.next_id();
        self.window = Arc::new(Window::of(Vec::new(), None, next_id));
        self.reported = None;
        self.new_since_compaction = false;
        self.layout = None;
        self.unshown.clear();
        self.short_forms.clear();
        self.history.forget();
    }

    /// Tells the engine that the agent's model or its window changed. Usage reported for another model no longer
    /// counts.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn set_model(&mut self, agent: AgentWindow) -> Result<(), SessionError> {
        // An object that came back after this would not know of the model.
        self.reopen_engine();
        let is_another = self.agent.model != agent.model;
        self.agent = agent;
        if is_another {
            self.counter = TokenCounter::for_model(&self.agent.model);
            self.reported = None;
            self.correction = Correction::default();
            Arc::make_mut(&mut self.window).recount(&self.counter);
            self.frame = None;
        }
        self.settled = false;
        let state = self.state();
        self.tell("model_changed", move |engine| engine.model_changed(&state))
    }

    /// Lets others, in other processes too, open the session, until [`take_again`](Self::take_again). What is in
    /// memory stays there, so that going on costs little where nobody does.
    pub fn let_go(&mut self) {
        self.save();
        if let Some(hold) = self.hold.take() {
            self.let_go = Some(hold.let_go());
        }
    }

    /// Goes on with a session that was let go. Where the answer is no, somebody else has had it meanwhile: drop this
    /// one, and open it again.
    ///
    /// # Errors
    /// It is open elsewhere, or its lock cannot be used.
    pub fn take_again(&mut self) -> Result<bool, SessionError> {
        let Some(token) = &self.let_go else {
            return Ok(true);
        };
        let Some(record) = &self.record else {
            return Ok(true);
        };
        let hold = (record.hold(&self.id, self.options.wait)).map_err(SessionError::InUse)?;
        let unchanged = token.as_ref().is_some_and(|token| hold.follows(token));
        if unchanged {
            self.let_go = None;
            self.hold = Some(hold);
        }
        Ok(unchanged)
    }

    /// Closes the session.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn end(mut self) -> Result<(), SessionError> {
        let ended = self.engine.call("end", Pace::Short, |engine| {
            engine.end();
            Ok(())
        });
        ended.or_else(|error| self.not_told(error.into()))
    }
}

impl Drop for Session {
    /// Of a turn that no answer followed, how far the engine was shown it is not written yet.
    fn drop(&mut self) {
        // Once it was let go, what is here may be older than what is written.
        if self.let_go.is_none() {
            self.save();
        }
    }
}

/// The compaction in force of a session that is open elsewhere. What is kept with messages is of use only to the engine
/// that keeps it.
fn compaction_beside(
    record: &Record,
    id: &str,
    engine: Option<&str>,
) -> Result<Option<CurrentCompaction>, SessionError> {
    Ok(record
        .current_compaction(id)?
        .filter(|current| Some(current.engine.as_str()) == engine && !current.shortened.is_empty()))
}

fn grouping_of(format: Format) -> Grouping {
    match format {
        Format::Anthropic | Format::ClaudeCode => Grouping::Anthropic,
        Format::OpenAiResponses | Format::Codex => Grouping::Responses,
        _ => Grouping::Chat,
    }
}

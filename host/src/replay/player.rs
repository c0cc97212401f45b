//! Playing a recording.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contexture_engine_api::Usage;

use super::cache::{Billed, PromptCache};
use super::figures::{Prompts, Work};
use super::recording::{Recording, Request};
use super::stage::Stage;
use crate::engines::Source;
use crate::prompt_cache::Ttl;
use crate::session::{CompactionReport, OutcomeKind, Session, SessionError, Window};
use crate::tokens::{TOOL_TOKENS, TokenCounter};

/// What an engine made of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The engine's name.
    pub engine: String,
    /// Whence it came.
    pub source: Source,
    /// The prompts as they would have been sent.
    pub prompts: Prompts,
    /// What the engine did.
    pub work: Work,
    /// What a person should know: failures, and why the engine first refused a
    /// compaction that was due. Each once.
    pub warnings: Vec<String>,
}

/// The prompts as the log reported them; none where it reported nothing.
pub fn recorded(recording: &Recording) -> Option<Prompts> {
    let mut prompts = Prompts::default();
    for usage in recording
        .requests()
        .iter()
        .filter_map(|request| request.usage)
    {
        let billed = Billed {
            cached: usage.cache_read_tokens,
            written: usage.cache_write_tokens,
        };
        prompts.count(usage.input_tokens, billed, recording.agent.context_length);
    }
    (prompts.requests > 0).then_some(prompts)
}

/// The prompts as they would have been without any engine, whether they fit the window or not.
pub fn without_engine(recording: &Recording, cache_ttl: Ttl) -> Prompts {
    let mut prompts = Prompts::default();
    let mut cache = PromptCache::new(cache_ttl);
    let mut window = Window::new();
    let fixed = recording.fixed_tokens();
    let mut before = 0;
    for request in recording.requests() {
        window.append(
            &recording.conversation,
            window.len()..request.answer,
            &recording.counter,
        );
        let tokens = fixed + window.message_tokens();
        let billed = cache.request(tokens, before, request.time_ms);
        prompts.count(tokens, billed, recording.agent.context_length);
        before = tokens;
    }
    prompts
}

/// Plays a recording through the engine that `named` or the configuration chooses, in a session of its
/// own. `progress` is called after each request.
///
/// # Errors
/// No engine can be had, or it failed and `context.on_failure` is `fail`.
pub fn play(
    recording: &Recording,
    stage: &Stage,
    named: Option<&str>,
    cache_ttl: Ttl,
    progress: &mut dyn FnMut(),
) -> Result<Played, SessionError> {
    let mut player = Player::open(recording, stage, named, cache_ttl)?;
    for request in recording.requests() {
        let began = player.session.engine_time();
        player.turn(request)?;
        let turn_ms = milliseconds(player.session.engine_time() - began);
        player.work.worst_turn_ms = player.work.worst_turn_ms.max(turn_ms);
        progress();
    }
    player.finish()
}

struct Player<'a> {
    recording: &'a Recording,
    session: Session,
    cache: PromptCache,
    fixed_tokens: u64,
    /// Messages of the recording that the session has.
    seen: usize,
    sent: Option<Sent>,
    has_model: bool,
    prompts: Prompts,
    work: Work,
    warnings: Vec<String>,
}

/// The prompt that was sent last.
struct Sent {
    tokens: u64,
    /// Messages in it.
    messages: usize,
    /// The view that it was, where it was not the window.
    view: Option<Window>,
}

impl<'a> Player<'a> {
    fn open(
        recording: &'a Recording,
        stage: &Stage,
        named: Option<&str>,
        cache_ttl: Ttl,
    ) -> Result<Self, SessionError> {
        let engines = stage.engines();
        let id = stage.fresh_session();
        let mut session = Session::open(engines, &id, named, recording.agent.clone())?;
        session.set_frame(&recording.conversation);
        let mut warnings = session.take_warnings();
        // What the engine's tools cost, every prompt costs.
        let tools = session.tools().unwrap_or_else(|error| {
            warnings.push(error.to_string());
            Vec::new()
        });
        let tools: u64 = tools
            .iter()
            .filter_map(|tool| serde_json::to_string(tool).ok())
            .map(|tool| recording.counter.count_text(&tool) + TOOL_TOKENS)
            .sum();
        session.add_fixed_tokens(recording.unseen_tokens() + tools);
        Ok(Self {
            cache: PromptCache::new(cache_ttl),
            fixed_tokens: session.state().fixed_tokens,
            recording,
            session,
            seen: 0,
            sent: None,
            has_model: engines.client().endpoint().is_ok(),
            prompts: Prompts::default(),
            work: Work::default(),
            warnings,
        })
    }

    /// One request, from the messages before it to its answer.
    fn turn(&mut self, request: &Request) -> Result<(), SessionError> {
        let conversation = &self.recording.conversation;
        let decision = self
            .session
            .observe(conversation, self.seen..request.answer)?;
        let before = Arc::clone(self.session.window());
        if let Some(report) = self.session.compact_if_due(&decision)? {
            self.note(report);
        }
        let view = self.session.select()?;
        let usage = self.send(request, &before, view);
        drop(before);
        self.session.update_usage(&usage);
        self.session
            .observe(conversation, request.answer..request.answer + 1)?;
        self.seen = request.answer + 1;
        self.session.turn_complete()?;
        self.background();
        for warning in self.session.take_warnings() {
            self.warn(warning);
        }
        Ok(())
    }

    /// Counts the prompt and answers what a provider would have reported for it.
    /// `uncompacted` is the window before a compaction may have changed it.
    fn send(
        &mut self,
        request: &Request,
        uncompacted: &Arc<Window>,
        view: Option<Window>,
    ) -> Usage {
        let window = self.session.window();
        let shown: &Window = view.as_ref().unwrap_or(window);
        let frame = self.fixed_tokens + note_tokens(shown, &self.recording.counter);
        let tokens = frame + shown.message_tokens();
        let shared = match &self.sent {
            None => 0,
            // Nothing but growth since: all of it is the beginning of this one.
            Some(sent)
                if Arc::ptr_eq(uncompacted, window) && view.is_none() && sent.view.is_none() =>
            {
                sent.tokens
            }
            Some(sent) => {
                let before = sent.view.as_ref().unwrap_or(uncompacted);
                if before.system_note() == shown.system_note() {
                    frame + before.shared_head_tokens(shown, sent.messages)
                } else {
                    // The note stands at the end of the system prompt.
                    self.fixed_tokens
                }
            }
        };
        let billed = self.cache.request(tokens, shared, request.time_ms);
        self.prompts
            .count(tokens, billed, self.recording.agent.context_length);
        let original = self.work.compactions == 0 && view.is_none();
        let reported = request
            .usage
            .filter(|_| original && self.recording.same_tokens);
        let usage = reported.unwrap_or_else(|| Usage {
            input_tokens: match view {
                Some(_) => tokens,
                // With what was learned from earlier reports.
                None => self.session.state().prompt_tokens,
            },
            output_tokens: self.answer_tokens(request),
            cache_read_tokens: billed.cached,
            cache_write_tokens: billed.written,
            reasoning_tokens: 0,
        });
        self.sent = Some(Sent {
            tokens,
            messages: shown.len(),
            view,
        });
        usage
    }

    fn answer_tokens(&self, request: &Request) -> u64 {
        if let Some(usage) = request.usage {
            return usage.output_tokens;
        }
        let mut answer = Window::new();
        answer.append(
            &self.recording.conversation,
            request.answer..request.answer + 1,
            &self.recording.counter,
        );
        answer.message_tokens()
    }

    /// What a host does between turns, where there is a model to do it.
    fn background(&mut self) {
        if !self.has_model {
            return;
        }
        let work = match self.session.background() {
            Ok(work) if work.is_empty() => return,
            Ok(work) => work,
            Err(error) => return self.warn(error.to_string()),
        };
        let answers = work.run(&AtomicBool::new(false));
        if let Err(error) = self.session.background_done(answers) {
            self.warn(error.to_string());
        }
    }

    fn note(&mut self, report: CompactionReport) {
        if report.outcome == OutcomeKind::Compacted {
            self.work.compactions += 1;
            self.work.degraded += u64::from(report.degraded);
        }
        let stood_in = report.engine != self.session.engine().name();
        if report.outcome == OutcomeKind::Failed || stood_in {
            self.work.failures += 1;
            self.warn(match report.notes.into_iter().next() {
                Some(why) if stood_in => why,
                _ => report.reason,
            });
        } else if report.outcome != OutcomeKind::Compacted {
            self.work.refused += 1;
            // The reason changes with every turn's figures; the first is enough.
            if self.work.refused == 1 {
                self.warn(format!(
                    "a compaction was due before request {}, and the engine refused: {}",
                    self.prompts.requests + 1,
                    report.reason
                ));
            }
        }
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn finish(mut self) -> Result<Played, SessionError> {
        let engine = self.session.engine();
        let (name, source) = (engine.name().to_owned(), engine.source());
        self.work.model_calls = self.session.model_calls();
        self.work.engine_ms = milliseconds(self.session.engine_time());
        self.session.end()?;
        Ok(Played {
            engine: name,
            source,
            prompts: self.prompts,
            work: self.work,
            warnings: self.warnings,
        })
    }
}

/// The tokens of what a compaction appended to the system prompt.
fn note_tokens(window: &Window, counter: &TokenCounter) -> u64 {
    window
        .system_note()
        .map_or(0, |note| counter.count_text(note))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

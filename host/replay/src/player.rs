//! Plays a recording through an engine, and computes the rows to compare with.
//!
//! [`play`] opens a session and sends it the recorded requests one by one. After each, it counts
//! the prompt that the session would have sent, asks the simulated cache how that prompt would be
//! billed, and passes the recorded answer and its usage back. The session is a real one, so the
//! engine is called exactly as in an agent.
//!
//! [`recorded`], [`without_engine`], [`without_markers`] and [`with_context_editing`] need no
//! session. They compute prompts from the log alone.
//!
//! Read [`play`] and then `Player::turn`. Finding the requests is left to `recording`, their bodies
//! to `script`, the cache to `cache`, and costs in dollars to `report` and `prices`.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Duration;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, Usage};
use contexture_formats::prompt_cache::{CacheTtl, Ttl};
use contexture_formats::tokens::MESSAGE_TOKENS;
use contexture_formats::{FormatError, SplitBody};
use contexture_runtime::engines::Source;
use contexture_session::{
    CompactionReport, OutcomeKind, Session, SessionError, SessionOptions, TurnOptions,
    message_tokens,
};
use xxhash_rust::xxh3::xxh3_64;

use super::cache::{Billed, PromptCache};
use super::figures::{Before, CompactionCost, Prompts, Spent, Work};
use super::recording::{Recording, Request};
use super::script::Script;
use super::shared::part_shared;
use contexture_session::TempHome;

/// The result of playing a recording through one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// Name of the engine that the session had at the end of the replay.
    pub engine: String,
    /// Where this engine comes from. If it is not the configured one, `warnings` say why.
    pub source: Source,
    /// The prompts as they would have been sent, with the simulated cache.
    pub prompts: Prompts,
    /// What the engine did: its compactions, failures, model calls and time.
    pub work: Work,
    /// What the user should know, each only once: failures, and why the engine first refused a
    /// compaction that was due.
    pub warnings: Vec<String>,
}

/// Returns the prompts as the log reported them, at the sizes and with the cached tokens that the
/// provider counted. Why they were cached is unknown, so [`Prompts::spent`] stays 0. Returns `None`
/// if the log has no usage.
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
        let unknown = Spent::default();
        prompts.count(
            usage.input_tokens,
            billed,
            unknown,
            recording.agent.context_length,
        );
    }
    (prompts.requests > 0).then_some(prompts)
}

/// Returns the prompts as they would have been without any engine, even if they do not fit the
/// window. It is the baseline for what an engine saves. `cache_ttl` is the lifetime of the
/// simulated prompt cache.
pub fn without_engine(recording: &Recording, cache_ttl: Ttl) -> Prompts {
    without_engine_edited(recording, cache_ttl, |_, _| {})
}

/// Returns the prompts without any engine and without markers for the prompt cache, so that nothing
/// is read from the cache or written to it. It is meant for providers that need markers.
pub fn without_markers(recording: &Recording) -> Prompts {
    let mut prompts = without_engine(recording, Ttl::default());
    (prompts.cached_tokens, prompts.written_tokens) = (0, 0);
    prompts.spent = Spent::default();
    prompts
}

/// Returns the prompts without any engine, but with the provider's own context editing by its
/// published rules and defaults (platform.claude.com, "Context editing",
/// `clear_tool_uses_20250919`). If a request has more than 100,000 tokens, all tool results but the
/// last three are cleared.
pub fn with_context_editing(recording: &Recording, cache_ttl: Ttl) -> Prompts {
    const TRIGGER: u64 = 100_000;
    const KEPT: usize = 3;
    let messages = recording.conversation.messages();
    let placeholder =
        recording.scaled(MESSAGE_TOKENS + recording.counter.count_text(CLEARED_TOOL_OUTPUT));
    without_engine_edited(recording, cache_ttl, |prompt, sizes| {
        if prompt <= TRIGGER {
            return;
        }
        let results = sizes.iter_mut().zip(messages).rev();
        let results = results.filter(|(_, message)| message.role == "tool");
        for (size, _) in results.skip(KEPT) {
            // A result that is shorter than the placeholder does not grow.
            *size = placeholder.min(*size);
        }
    })
}

/// Computes the prompts without an engine. `edit` gets the tokens of each prompt and of its
/// messages, and may reduce the latter.
fn without_engine_edited(
    recording: &Recording,
    cache_ttl: Ttl,
    edit: impl Fn(u64, &mut [u64]),
) -> Prompts {
    let mut prompts = Prompts::default();
    let mut cache = PromptCache::new(&recording.agent.model, cache_ttl);
    let messages = recording.message_tokens();
    let fixed = recording.fixed_tokens();
    let mut before: Option<Vec<u64>> = None;
    for request in recording.requests() {
        let sent = messages.iter().take(request.answer);
        let mut sizes: Vec<u64> = sent.copied().collect();
        edit(fixed + sizes.iter().sum::<u64>(), &mut sizes);
        let tokens = fixed + sizes.iter().sum::<u64>();
        let known = before.as_deref().unwrap_or(&[]);
        // Only the sizes are known here, so a message counts as unchanged if its size is.
        let same = known.iter().zip(&sizes).take_while(|(a, b)| a == b);
        let shared = before
            .as_ref()
            .map_or(0, |_| fixed + same.map(|(size, _)| size).sum::<u64>());
        let new = sizes.iter().skip(known.len()).sum();
        let stood = stood(&cache, before.is_some(), request.time_ms);
        let billed = cache.request(tokens, shared, request.time_ms);
        let spent = Spent::of(billed, fixed, new, stood);
        prompts.count(tokens, billed, spent, recording.agent.context_length);
        before = Some(sizes);
    }
    prompts
}

/// Returns the state of the cache when a prompt arrives. `is_later` is false for the first one.
fn stood(cache: &PromptCache, is_later: bool, time_ms: Option<i64>) -> Before {
    match is_later {
        false => Before::Nothing,
        true if cache.is_alive(time_ms) => Before::Kept,
        true => Before::Forgotten,
    }
}

/// Plays a recording through the engine that `named` or the configuration chooses, in a new
/// session. `progress` is called after each request. If the engine fails and the configuration
/// allows a fallback, the replay continues, and the failures are counted in [`Work::failures`].
///
/// # Errors
/// Returns [`SessionError`] if no engine can be opened, or if the engine fails and
/// `context.on_failure` is `fail`.
pub fn play(
    recording: &Recording,
    stage: &TempHome,
    named: Option<&str>,
    progress: &mut dyn FnMut(),
) -> Result<Played, SessionError> {
    let mut player = Player::open(recording, stage, named)?;
    // This observer never stops the replay.
    let _ = player.turns(&mut |_| {
        progress();
        ControlFlow::Continue(())
    })?;
    player.finish()
}

/// Does the same as [`play`], and shows `observe` each request after it was played. If it breaks,
/// the replay stops and `None` is returned.
///
/// # Errors
/// The same as [`play`].
pub fn play_observed(
    recording: &Recording,
    stage: &TempHome,
    named: Option<&str>,
    observe: &mut dyn FnMut(&Step<'_>) -> ControlFlow<()>,
) -> Result<Option<Played>, SessionError> {
    let mut player = Player::open(recording, stage, named)?;
    match player.turns(observe)? {
        ControlFlow::Continue(()) => player.finish().map(Some),
        ControlFlow::Break(()) => Ok(None),
    }
}

/// A request of a replay after it was played, see [`play_observed`].
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The recorded answer to the request, as an index into the conversation's messages.
    pub answer: usize,
    /// Whether the engine itself made a compaction before this request.
    pub is_compacted: bool,
    /// The body that would have been sent.
    pub body: &'a SplitBody<String>,
}

/// A replay in progress: the session, the simulated cache, and what was counted so far.
struct Player<'a> {
    recording: &'a Recording,
    script: Script,
    session: Session,
    cache: PromptCache,
    /// Whether the session chooses the lifetime of the cache, so that writes for an hour are
    /// counted apart.
    chooses_ttl: bool,
    fixed_tokens: u64,
    time_ms: i64,
    sent: Option<SentPrompt>,
    prompts: Prompts,
    work: Work,
    /// How many failures of the engine have been counted.
    failures: u64,
    warnings: Vec<String>,
}

/// The prompt that was sent last, to find what the next one shares with it.
struct SentPrompt {
    body: SplitBody<String>,
    tokens: u64,
    /// The hashes of its wire messages, in order.
    wires: Vec<u64>,
    noted: bool,
    /// How many tools of the engine it offered.
    tools: usize,
}

impl<'a> Player<'a> {
    /// Opens a session in the data directory of the stage. The engine's tools are offered as in an
    /// agent, because they are part of every prompt.
    fn open(
        recording: &'a Recording,
        stage: &TempHome,
        named: Option<&str>,
    ) -> Result<Self, SessionError> {
        let engines = stage.engines();
        let caching = &engines.config().prompt_caching;
        let id = stage.fresh_session();
        let options = SessionOptions::default()
            .engine(named.map(str::to_owned))
            // Markers would be part of the bodies that are compared, and would move with each
            // request.
            .cache_markers(false)
            .offer_tools(true);
        let record = stage.record();
        let agent = recording.agent.clone();
        let mut session = Session::open(engines, record, &id, agent, options)?;
        let warnings = session.take_warnings();
        Ok(Self {
            script: Script::of(recording)?,
            cache: PromptCache::new(&recording.agent.model, caching.cache_ttl.at_first()),
            chooses_ttl: caching.cache_ttl == CacheTtl::Auto,
            fixed_tokens: recording.fixed_tokens(),
            recording,
            session,
            time_ms: 0,
            sent: None,
            prompts: Prompts::default(),
            work: Work::default(),
            failures: 0,
            warnings,
        })
    }

    /// Plays all requests, until `observe` breaks.
    fn turns(
        &mut self,
        observe: &mut dyn FnMut(&Step<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, SessionError> {
        for request in self.recording.requests() {
            let began = self.session.engine_time();
            let compactions = self.work.compactions;
            self.turn(request)?;
            self.note_failure();
            let turn_ms = milliseconds(self.session.engine_time() - began);
            self.work.worst_turn_ms = self.work.worst_turn_ms.max(turn_ms);
            let Some(sent) = &self.sent else { continue };
            let step = Step {
                answer: request.answer,
                is_compacted: self.work.compactions > compactions,
                body: &sent.body,
            };
            if observe(&step).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Plays one request, from the body that the client sends to the answer that comes back.
    fn turn(&mut self, request: &Request) -> Result<(), SessionError> {
        let body = self.script.request(request.answer);
        // If the request has no time, no time is assumed to have passed.
        self.time_ms = request.time_ms.unwrap_or(self.time_ms);
        let options = TurnOptions::default()
            .fixed_tokens(Some(self.fixed_tokens))
            .time_ms(Some(self.time_ms));
        let format = Some(self.script.format);
        let mut turn = self.session.turn_with(&body, format, &options)?;
        let no_body = || FormatError::Window("the turn has no body".to_owned());
        let body = turn.take_split().ok_or_else(no_body)?.map(Cow::into_owned);
        let selected = turn.selected;
        // The size that the prompt would have had without this turn's compaction or rewrite.
        let reports = turn.rewrite.iter().chain(&turn.compaction);
        let uncompacted = reports.map(|report| report.counted_tokens.0).next();
        let uncompacted = uncompacted.map(|tokens| self.prompt(tokens));
        let compacted = turn.compaction.and_then(|report| {
            let sizes = report.counted_tokens;
            self.note(report).then_some(sizes)
        });
        let compacted = compacted.map(|(before, after)| (self.prompt(before), self.prompt(after)));
        let messages = selected.unwrap_or_else(|| self.session.window().message_tokens());
        let tokens = self.prompt(self.session.overhead_tokens() + messages);
        let usage = self.send(
            request,
            tokens,
            uncompacted,
            compacted,
            body,
            selected.is_some(),
        );
        let answer = self.script.answer(request.answer);
        self.session.answer(&answer, Some(&usage))?;
        // A replay has no time between turns in which background work could finish.
        self.session.finish_background()?;
        for warning in self.session.take_warnings() {
            self.warn(warning);
        }
        Ok(())
    }

    /// Converts a size that this host counted to one that the log's provider would have counted.
    /// Only the messages are scaled, not the system prompt and tools.
    fn prompt(&self, counted: u64) -> u64 {
        let fixed = self.fixed_tokens.min(counted);
        fixed + self.recording.scaled(counted - fixed)
    }

    /// Counts the prompt, and returns the usage that a provider would have reported for it.
    fn send(
        &mut self,
        request: &Request,
        tokens: u64,
        uncompacted: Option<u64>,
        compacted: Option<(u64, u64)>,
        body: SplitBody<String>,
        selected: bool,
    ) -> Usage {
        let wire = body.wire();
        let wires: Vec<u64> = (wire.messages.iter())
            .map(|text| xxh3_64(text.as_bytes()))
            .collect();
        let noted = self.session.window().system_note().is_some();
        let tools = self.session.offered_tools().count();
        let shared = match &self.sent {
            None => 0,
            // The tools come first in a prompt, so nothing is shared if they change.
            Some(sent) if sent.tools != tools => 0,
            // The note is at the end of the system prompt, so only the tokens before the messages
            // are shared.
            Some(sent) if sent.noted != noted => self.fixed_tokens,
            // The tokens of a view's messages are not known, so the shared part is estimated from
            // the bytes.
            Some(sent) if selected => {
                let (before, now) = (sent.body.text(), body.text());
                let same = before.bytes().zip(now.bytes());
                let same = same.take_while(|(a, b)| a == b);
                tokens * same.count() as u64 / now.len().max(1) as u64
            }
            Some(sent) => {
                let shared = self.shared_tokens(sent, &wires, &wire.messages);
                self.prompt(self.session.overhead_tokens() + shared)
            }
        };
        let stood = stood(&self.cache, self.sent.is_some(), request.time_ms);
        let billed = self.cache.request(tokens, shared, request.time_ms);
        let before = self
            .sent
            .as_ref()
            .map_or(self.fixed_tokens, |sent| sent.tokens);
        let new = uncompacted.unwrap_or(tokens).saturating_sub(before);
        let spent = Spent::of(billed, self.fixed_tokens, new, stood);
        let ttl = self.session.cache_ttl();
        self.cache.keep_for(ttl);
        if self.chooses_ttl && ttl == Ttl::OneHour {
            self.prompts.long_written_tokens += billed.written;
        }
        self.prompts
            .count(tokens, billed, spent, self.recording.agent.context_length);
        self.note_saving(compacted, billed, spent, stood);
        // Recorded usage is valid only as long as the prompt is the recorded one.
        let original = self.work.compactions == 0 && !selected;
        let reported = request
            .usage
            .filter(|_| original && self.recording.same_tokens);
        let usage = reported.unwrap_or_else(|| {
            Usage::default()
                .input_tokens(match selected || self.recording.scale() != 1.0 {
                    true => tokens,
                    // The session's own estimate, which includes what it learned from earlier
                    // reports.
                    false => self.session.state().prompt_tokens,
                })
                .output_tokens(self.answer_tokens(request))
                .cache_read_tokens(billed.cached)
                .cache_write_tokens(billed.written)
                .reasoning_tokens(0)
        });
        self.sent = Some(SentPrompt {
            body,
            tokens,
            wires,
            noted,
            tools,
        });
        usage
    }

    /// Returns the tokens of the messages with which this prompt and the one before begin alike.
    /// `wires` are the hashes of its wire messages. If they differ first within a message, the
    /// shared part of that message counts as well.
    fn shared_tokens(&self, sent: &SentPrompt, wires: &[u64], messages: &[&str]) -> u64 {
        let head = |wires: usize| self.session.head_tokens(wires);
        let same = sent.wires.iter().zip(wires).take_while(|(a, b)| a == b);
        let same = same.count();
        let (true, Some(now)) = (same < sent.wires.len(), messages.get(same)) else {
            return head(same);
        };
        let before = sent.body.wire();
        let before = before.messages.get(same).copied().unwrap_or_default();
        let part = part_shared(before, now, self.script.format);
        head(same) + ((head(same + 1) - head(same)) as f64 * part) as u64
    }

    /// Records what a new compaction costs, and adds what the last one saves in this request.
    fn note_saving(
        &mut self,
        compacted: Option<(u64, u64)>,
        billed: Billed,
        spent: Spent,
        stood: Before,
    ) {
        if let Some((before, after)) = compacted {
            self.work.costs.push(CompactionCost {
                request: self.prompts.requests,
                tokens_before: before,
                tokens_after: after,
                cache_was_cold: stood == Before::Forgotten,
                rewritten_tokens: spent.rewritten_tokens,
                ..CompactionCost::default()
            });
        }
        let Some(cost) = self.work.costs.last_mut() else {
            return;
        };
        let saved = cost.tokens_before.saturating_sub(cost.tokens_after);
        match (stood, compacted) {
            (Before::Kept, Some((before, _))) => {
                // Without the compaction, everything but the new messages would have been read from
                // the cache.
                let would_be_read = before.saturating_sub(spent.new_written_tokens);
                cost.reads_saved_tokens += would_be_read.saturating_sub(billed.cached);
            }
            (Before::Kept, None) => cost.reads_saved_tokens += saved,
            (Before::Nothing | Before::Forgotten, _) => cost.writes_saved_tokens += saved,
        }
    }

    /// Returns the tokens of the answer: as the provider reported them, or counted from the message
    /// if it did not.
    fn answer_tokens(&self, request: &Request) -> u64 {
        let recorded = request.usage.map(|usage| usage.output_tokens);
        recorded.unwrap_or_else(|| {
            let conversation = &self.recording.conversation;
            let answer = conversation.messages().get(request.answer);
            answer.map_or(0, |answer| {
                message_tokens(&self.recording.counter, conversation, answer)
            })
        })
    }

    /// Counts the request as failed if the engine failed in it, once even if it failed several
    /// times, or if the engine is no longer called after an earlier failure.
    fn note_failure(&mut self) {
        let failures = self.session.engine_failures();
        let engine = self.session.engine();
        let is_called = !engine.is_closed() && !engine.is_stalled();
        self.work.failures += u64::from(!is_called || failures > self.failures);
        self.failures = failures;
    }

    /// Counts the outcome of a compaction. Returns whether the engine itself made it and it came
    /// into force.
    fn note(&mut self, report: CompactionReport) -> bool {
        let stood_in = report.engine != self.session.engine().name();
        let is_own = report.outcome == OutcomeKind::Compacted && !stood_in;
        if is_own {
            self.work.compactions += 1;
            self.work.degraded += u64::from(report.degraded);
        }
        if report.outcome == OutcomeKind::Failed || stood_in {
            self.warn(match report.notes.into_iter().next() {
                Some(why) if stood_in => why,
                _ => report.reason,
            });
        } else if report.outcome != OutcomeKind::Compacted {
            self.work.refused += 1;
            // The reason contains numbers that change in every turn, so only the first one is
            // reported.
            if self.work.refused == 1 {
                self.warn(format!(
                    "a compaction was due before request {}, and the engine refused: {}",
                    self.prompts.requests + 1,
                    report.reason
                ));
            }
        }
        is_own
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Ends the session and returns what was counted. The engine's name is read before the end,
    /// because a fallback may have replaced the configured one.
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

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

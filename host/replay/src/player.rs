//! Playing a recording.

use std::time::Duration;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, Usage};
use contexture_formats::prompt_cache::{CacheTtl, Ttl};
use contexture_formats::tokens::MESSAGE_TOKENS;
use contexture_formats::{self as formats, FormatError};
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
use contexture_session::Stage;

/// What an engine made of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The engine's name.
    pub engine: String,
    /// Where it comes from.
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

/// The prompts as they would have been without any engine, whether they fit the window or not.
pub fn without_engine(recording: &Recording, cache_ttl: Ttl) -> Prompts {
    without_engine_edited(recording, cache_ttl, |_, _| {})
}

/// The same without markers for the provider's prompt cache, where it takes those.
pub fn without_markers(recording: &Recording) -> Prompts {
    let mut prompts = without_engine(recording, Ttl::default());
    (prompts.cached_tokens, prompts.written_tokens) = (0, 0);
    prompts.spent = Spent::default();
    prompts
}

/// The same with the provider's own context editing, by its published rules and defaults (platform.claude.com, "Context
/// editing", `clear_tool_uses_20250919`): in each request of more than 100,000 tokens all tool results but the last
/// three are cleared.
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
            *size = placeholder.min(*size);
        }
    })
}

/// The prompts without an engine, where `edit` is given the tokens of each prompt and of its messages, and may make these
/// fewer.
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

/// How things stood when a prompt came.
fn stood(cache: &PromptCache, is_later: bool, time_ms: Option<i64>) -> Before {
    match is_later {
        false => Before::Nothing,
        true if cache.is_alive(time_ms) => Before::Kept,
        true => Before::Forgotten,
    }
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
    progress: &mut dyn FnMut(),
) -> Result<Played, SessionError> {
    let mut player = Player::open(recording, stage, named)?;
    for request in recording.requests() {
        let began = player.session.engine_time();
        player.turn(request)?;
        player.note_failure();
        let turn_ms = milliseconds(player.session.engine_time() - began);
        player.work.worst_turn_ms = player.work.worst_turn_ms.max(turn_ms);
        progress();
    }
    player.finish()
}

struct Player<'a> {
    recording: &'a Recording,
    script: Script,
    session: Session,
    cache: PromptCache,
    /// Whether the session chooses the lifetime of the cache.
    chooses_ttl: bool,
    fixed_tokens: u64,
    time_ms: i64,
    sent: Option<Sent>,
    prompts: Prompts,
    work: Work,
    /// Failures of the engine that were counted.
    failures: u64,
    warnings: Vec<String>,
}

/// The prompt that was sent last.
struct Sent {
    body: String,
    tokens: u64,
    /// The hashes of its wire messages.
    wires: Vec<u64>,
    noted: bool,
    /// How many tools of the engine it had.
    tools: usize,
}

impl<'a> Player<'a> {
    fn open(
        recording: &'a Recording,
        stage: &Stage,
        named: Option<&str>,
    ) -> Result<Self, SessionError> {
        let engines = stage.engines();
        let caching = &engines.config().prompt_caching;
        let id = stage.fresh_session();
        let options = SessionOptions {
            engine: named.map(str::to_owned),
            cache_markers: false,
            offer_tools: true,
            ..SessionOptions::default()
        };
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

    /// One request, from the body that the client sends to the answer that comes back.
    fn turn(&mut self, request: &Request) -> Result<(), SessionError> {
        let body = self.script.request(request.answer);
        // Without a time of its own none has passed.
        self.time_ms = request.time_ms.unwrap_or(self.time_ms);
        let options = TurnOptions {
            fixed_tokens: Some(self.fixed_tokens),
            time_ms: Some(self.time_ms),
            ..TurnOptions::default()
        };
        let format = Some(self.script.format);
        let turn = self.session.turn_with(&body, format, &options)?;
        let (body, selected) = (turn.body.into_owned(), turn.selected);
        // What the prompt would have been.
        let reports = turn.rewrite.iter().chain(&turn.compaction);
        let uncompacted = reports.map(|report| report.tokens_before).next();
        let uncompacted = uncompacted.map(|tokens| self.prompt(tokens));
        let compacted = turn.compaction.and_then(|report| {
            let sizes = (report.tokens_before, report.tokens_after);
            self.note(report).then_some(sizes)
        });
        let compacted = compacted.map(|(before, after)| (self.prompt(before), self.prompt(after)));
        let messages = selected.unwrap_or_else(|| self.session.window().message_tokens());
        let tokens = self.prompt(self.session.frame_tokens() + messages);
        let usage = self.send(
            request,
            tokens,
            uncompacted,
            compacted,
            body,
            selected.is_some(),
        )?;
        let answer = self.script.answer(request.answer);
        self.session.answer(&answer, Some(&usage))?;
        // No time passes between the turns of a recording.
        self.session.finish_background()?;
        for warning in self.session.take_warnings() {
            self.warn(warning);
        }
        Ok(())
    }

    /// The size of a prompt by the count of the log's provider, for a prompt that counts `counted` tokens here.
    fn prompt(&self, counted: u64) -> u64 {
        let fixed = self.fixed_tokens.min(counted);
        fixed + self.recording.scaled(counted - fixed)
    }

    /// Counts the prompt and answers what a provider would have reported for it.
    fn send(
        &mut self,
        request: &Request,
        tokens: u64,
        uncompacted: Option<u64>,
        compacted: Option<(u64, u64)>,
        body: String,
        selected: bool,
    ) -> Result<Usage, SessionError> {
        let wire = formats::split(&body, Some(self.script.format))?;
        let wires: Vec<u64> = (wire.messages.iter())
            .map(|text| xxh3_64(text.as_bytes()))
            .collect();
        let noted = self.session.window().system_note().is_some();
        let tools = self.session.offered_tools().count();
        let shared = match &self.sent {
            None => 0,
            // The tools stand before all else.
            Some(sent) if sent.tools != tools => 0,
            // The note stands at the end of the system prompt.
            Some(sent) if sent.noted != noted => self.fixed_tokens,
            // Of a view only the bytes are known.
            Some(sent) if selected => {
                let same = sent
                    .body
                    .bytes()
                    .zip(body.bytes())
                    .take_while(|(a, b)| a == b);
                tokens * same.count() as u64 / body.len().max(1) as u64
            }
            Some(sent) => {
                let shared = self.shared_tokens(sent, &wires, &wire.messages)?;
                self.prompt(self.session.frame_tokens() + shared)
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
        let original = self.work.compactions == 0 && !selected;
        let reported = request
            .usage
            .filter(|_| original && self.recording.same_tokens);
        let usage = reported.unwrap_or_else(|| {
            Usage::default()
                .input_tokens(match selected || self.recording.scale() != 1.0 {
                    true => tokens,
                    // With what was learned from earlier reports.
                    false => self.session.state().prompt_tokens,
                })
                .output_tokens(self.answer_tokens(request))
                .cache_read_tokens(billed.cached)
                .cache_write_tokens(billed.written)
                .reasoning_tokens(0)
        });
        self.sent = Some(Sent {
            body,
            tokens,
            wires,
            noted,
            tools,
        });
        Ok(usage)
    }

    /// The tokens of the messages that this prompt begins with as the one before it does. `wires` are the hashes of its
    /// wire messages.
    fn shared_tokens(
        &self,
        sent: &Sent,
        wires: &[u64],
        messages: &[&str],
    ) -> Result<u64, FormatError> {
        let head = |wires: usize| self.session.head_tokens(wires);
        let same = sent.wires.iter().zip(wires).take_while(|(a, b)| a == b);
        let same = same.count();
        let (true, Some(now)) = (same < sent.wires.len(), messages.get(same)) else {
            return Ok(head(same));
        };
        let before = formats::split(&sent.body, Some(self.script.format))?;
        let before = before.messages.get(same).copied().unwrap_or_default();
        let part = part_shared(before, now, self.script.format);
        Ok(head(same) + ((head(same + 1) - head(same)) as f64 * part) as u64)
    }

    /// What the last compaction saved in this request, or what a new one costs and saves in it.
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
                let would_be_read = before.saturating_sub(spent.new_written_tokens);
                cost.reads_saved_tokens += would_be_read.saturating_sub(billed.cached);
            }
            (Before::Kept, None) => cost.reads_saved_tokens += saved,
            (Before::Nothing | Before::Forgotten, _) => cost.writes_saved_tokens += saved,
        }
    }

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

    /// Counts the request among the failed ones if the engine failed in it.
    fn note_failure(&mut self) {
        let failures = self.session.engine_failures();
        self.work.failures += u64::from(failures > self.failures);
        self.failures = failures;
    }

    /// Counts what became of a compaction. Whether it is one of the engine's own that came into force.
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
            // The reason changes with every turn's figures; the first is enough.
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

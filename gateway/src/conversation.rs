//! A request on its way through the host, and the rounds of its answer. Everything here blocks.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use contexture::formats::{self, Format};
use contexture::providers::ModelClient;
use contexture::session::{
    AgentWindow, CompactionReport, OutcomeKind, Session, SessionError, SessionOptions,
};
use contexture::{Compact, ToolCall, TurnOptions, Usage};
use tokio::sync::OwnedMutexGuard;
use xxhash_rust::xxh3::xxh3_64;

use crate::account::{self, Over};
use crate::agent_model;
use crate::api::Api;
use crate::diff::Sent;
use crate::heal;
use crate::hidden::{self, Hidden};
use crate::lineage::{self, Seen};
use crate::session_key::{self, Key};
use crate::sessions::{Held, Opening, Place, Slot};
use crate::stream::{Call, Round, Tools, result_blocks, results};
use crate::work::Work;
use crate::{Shared, settings::Settings, window};

/// Why a request leaves as it came.
#[derive(Debug)]
pub(crate) struct Failure {
    /// In a word, for the metrics.
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(reason: &'static str, detail: impl ToString) -> Self {
        Self {
            reason,
            detail: detail.to_string(),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let reason = match error {
            SessionError::InUse(_) => "session_in_use",
            SessionError::Format(_) => "format",
            SessionError::Open(_) => "engine_not_open",
            _ => "engine",
        };
        Self::new(reason, error)
    }
}

/// What a request is, before anything is done with it.
pub(crate) enum Kind {
    /// A turn of a conversation.
    Turn(Arc<Asked>),
    /// It goes on as it came, for this reason.
    Untouched(&'static str),
}

/// A turn that is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) api: Api,
    pub(crate) body: Bytes,
    pub(crate) opening: Opening,
    /// What writes summaries, with the client's credentials.
    agent_model: Option<Arc<ModelClient>>,
    found: lineage::Found,
    without_tools: bool,
    /// What the last message says.
    last: u64,
    /// What each message says, where hidden rounds may have to be put back.
    said: Vec<u64>,
}

/// What a turn made of a request.
#[derive(Debug)]
pub(crate) struct Turned {
    /// What goes to the model.
    pub(crate) body: Bytes,
    pub(crate) session: String,
    /// The names of the engine's tools in it.
    pub(crate) tools: Tools,
    /// The body with the hidden rounds in it, which the next round goes on from.
    restored: Bytes,
    pub(crate) turn: u64,
    pub(crate) compaction: Option<String>,
    pub(crate) prompt_tokens: u64,
    /// What the compaction was, and what it changed.
    report: Option<Compacted>,
}

/// A compaction that was made.
type Compacted = Arc<(CompactionReport, serde_json::Value)>;

fn as_text(body: &Bytes) -> Result<&str, Failure> {
    std::str::from_utf8(body).map_err(|error| Failure::new("not_text", error))
}

/// Finds out what a request is.
///
/// # Errors
/// It cannot be read, or its session cannot be found.
pub(crate) fn read(
    shared: &Shared,
    settings: &Settings,
    api: Api,
    headers: &http::HeaderMap,
    url: &str,
    tenant: Option<&str>,
    body: &Bytes,
) -> Result<Kind, Failure> {
    let text = as_text(body)?;
    let format = api.format();
    let wire = formats::split(text, Some(format)).map_err(|error| Failure::new("format", error))?;
    if session_key::is_side_call(api, headers, &wire) {
        return Ok(Kind::Untouched("side call"));
    }
    if let Some(why) = session_key::provider_manages(&wire) {
        return Ok(Kind::Untouched(why));
    }
    if wire.messages.is_empty() {
        return Ok(Kind::Untouched("no messages"));
    }
    let model = wire.model.as_deref().unwrap_or_default();
    let Some(agent) = window::of(settings, headers, &wire, model) else {
        return Err(Failure::new(
            "unknown_window",
            format!("the window of the model `{model}` is not known: set `model.context_length`"),
        ));
    };
    let said = shared.identities.of(format, &wire.messages);
    let system = system_hash(&wire);
    let key = session_key::key(headers, &wire);
    let name = name_of(&key, tenant, system, &said);
    let is_answer = |raw: &&str| raw.contains("\"assistant\"") || raw.contains("\"function_call\"");
    let answer = wire.messages.iter().rposition(is_answer);
    let seen = Seen {
        system,
        messages: &said,
        answer: answer.and_then(|at| said.get(at)).copied(),
        is_continued: session_key::is_continued(&wire) || !wire.compacted.is_empty(),
        is_exact: key.is_exact,
    };
    let found = lineage::find(shared.host.record(), &name, &seen)
        .map_err(|error| Failure::new("record", error))?;
    let without_tools = matches!(
        wire.member("tool_choice"),
        Some("\"none\"" | "{\"type\":\"none\"}" | "{\"type\": \"none\"}")
    );
    let engines = shared.host.engines();
    let is_asked = !settings.observe;
    let agent_model = is_asked.then(|| {
        let headers = settings.headers(api, headers);
        agent_model::of(
            engines.config(),
            api,
            url,
            headers,
            model,
            agent.context_length,
        )
    });
    Ok(Kind::Turn(Arc::new(Asked {
        agent_model: agent_model.flatten(),
        api,
        opening: Opening {
            id: found.session.clone(),
            agent,
            provider: api.provider().name(),
            offer_tools: !settings.observe,
            wait: settings.max_hold,
        },
        found,
        without_tools,
        last: said.last().copied().unwrap_or_default(),
        said,
        body: body.clone(),
    })))
}

fn name_of(key: &Key, tenant: Option<&str>, system: u64, said: &[u64]) -> String {
    let name = match &key.name {
        Some(name) => name.clone(),
        None => {
            let first = said.first().copied().unwrap_or_default();
            format!("h-{:016x}", system.rotate_left(1) ^ first)
        }
    };
    match tenant {
        Some(tenant) => format!("{tenant}/{name}"),
        None => name,
    }
}

/// What tells system prompts apart: their bytes without the line that says whom a request is billed to.
fn system_hash(wire: &formats::WireBody<'_>) -> u64 {
    let parts = wire.system.iter().chain(&wire.system_messages);
    parts.fold(0, |hash, part| {
        let lines = part
            .split("\\n")
            .filter(|line| !line.contains("x-anthropic-billing-header"));
        lines.fold(hash, |hash: u64, line| {
            hash.rotate_left(5) ^ xxh3_64(line.as_bytes())
        })
    })
}

impl Asked {
    /// Takes the request through the host.
    ///
    /// # Errors
    /// Why it has to leave as it came.
    pub(crate) fn turn(&self, shared: &Shared, place: &mut Place) -> Result<Turned, Failure> {
        let mut held = place.hold(&shared.host, &self.opening)?;
        held.stays = true;
        if let Some(model) = &self.agent_model {
            held.session.lend_model(model);
        }
        let text = as_text(&self.body)?;
        let format = self.api.format();
        let mut tools: Vec<String> = held.session.offered_tools().map(str::to_owned).collect();
        if tools.is_empty() {
            // A session that was opened just now has offered none yet.
            tools.extend_from_slice(held.own_tools);
        }
        let is_named =
            |name: &String| memchr::memmem::find(text.as_bytes(), name.as_bytes()).is_some();
        let restored = match held.hidden.is_empty() && !tools.iter().any(is_named) {
            true => None,
            false => {
                let wire = formats::split(text, Some(format)).map_err(SessionError::from)?;
                let healed = heal::heal(self.api, &wire, &tools);
                let again = healed
                    .as_deref()
                    .map(|healed| formats::split(healed, Some(format)));
                let wire = again
                    .transpose()
                    .map_err(SessionError::from)?
                    .unwrap_or(wire);
                hidden::put_back(self.api, &wire, &self.said, held.hidden).or(healed)
            }
        };
        let restored = restored.map_or_else(|| self.body.clone(), Bytes::from);
        let turned = self.run(shared, held, restored, Compact::Auto);
        place.turns += 1;
        Ok(Turned {
            turn: place.turns,
            ..turned?
        })
    }

    /// Takes the request through the host, and tells of it before the rest of it is written: that overlaps the model's
    /// answer.
    pub(crate) fn turn_in(
        &self,
        shared: &Shared,
        slot: &Slot,
        mut place: OwnedMutexGuard<Place>,
        tell: impl FnOnce(Result<Turned, Failure>),
    ) {
        let ended = take_in_ended(shared, slot, &mut place, true);
        let turned = self.turn(shared, &mut place);
        let is_taken_in = turned.is_ok();
        tell(turned);
        if is_taken_in && let Err(error) = self.found.note(shared.host.record()) {
            tracing::warn!("session `{}`: {error}", self.opening.id);
        }
        place.let_go();
        drop(place);
        ended.iter().for_each(|rounds| rounds.note(shared));
    }

    /// The body that would be sent for this one, with nothing taken in; none where it goes on with no session.
    pub(crate) fn preview(
        &self,
        shared: &Shared,
        place: &mut Place,
    ) -> Result<Option<Bytes>, Failure> {
        if !self.found.is_known {
            return Ok(None);
        }
        let held = place.hold_as_it_is(&shared.host, &self.opening)?;
        let (text, format) = (as_text(&self.body)?, self.api.format());
        let wire = formats::split(text, Some(format)).map_err(SessionError::from)?;
        let restored = hidden::put_back(self.api, &wire, &self.said, held.hidden);
        let text = restored.as_deref().unwrap_or(text);
        Ok(held
            .session
            .preview(text, format, self.without_tools)
            .map(Bytes::from))
    }

    /// The same with a window of at most `window` tokens, because the provider said that the request does not fit.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub(crate) fn turn_within(
        &self,
        shared: &Shared,
        place: &mut Place,
        before: &Turned,
        window: u64,
    ) -> Result<Turned, Failure> {
        let mut opening = self.opening.clone();
        opening.agent = AgentWindow {
            context_length: window,
            max_output_tokens: opening.agent.max_output_tokens.min(window / 10),
            ..opening.agent
        };
        let held = place.hold(&shared.host, &opening)?;
        let turned = self.run(shared, held, before.restored.clone(), Compact::Force);
        place.turns += 1;
        Ok(Turned {
            turn: place.turns,
            ..turned?
        })
    }

    fn run(
        &self,
        shared: &Shared,
        held: Held<'_>,
        restored: Bytes,
        compact: Compact,
    ) -> Result<Turned, Failure> {
        let options = TurnOptions {
            compact,
            without_tools: self.without_tools,
            saves_later: true,
            ..TurnOptions::default()
        };
        let text = as_text(&restored)?;
        let turn = held
            .session
            .turn_with(text, Some(self.api.format()), &options)?;
        let compaction = turn.compaction.as_ref().map(|report| {
            let outcome = match report.outcome {
                OutcomeKind::Compacted => "compacted",
                OutcomeKind::NothingToDo => "nothing_to_do",
                OutcomeKind::Deferred => "deferred",
                OutcomeKind::FloorTooHigh => "floor_too_high",
                OutcomeKind::Failed => "failed",
            };
            shared
                .metrics
                .add("compactions_total", &format!("outcome=\"{outcome}\""), 1.0);
            tracing::info!(
                session = %self.opening.id, engine = %report.engine, outcome,
                before = report.tokens_before, after = report.tokens_after,
                elapsed_ms = report.elapsed_ms as u64, reason = %report.reason,
                "compaction"
            );
            format!("{outcome}; {}", report.reason)
        });
        if turn.changed {
            let saved = self.body.len().saturating_sub(turn.body.len()) as f64;
            shared
                .metrics
                .add("saved_tokens_total", "", (saved / 4.0).round());
        }
        let is_made = |report: &&CompactionReport| matches!(report.outcome, OutcomeKind::Compacted);
        let report = turn.compaction.as_ref().filter(is_made).map(|report| {
            let wire = formats::split(text, Some(self.api.format()));
            let request = wire.map(|wire| wire.messages).unwrap_or_default();
            let changes = held.sent.changes(&request, &turn.messages);
            Arc::new((report.clone(), changes))
        });
        *held.sent = Sent::now(turn.messages);
        let body = match turn.body {
            std::borrow::Cow::Borrowed(_) => restored.clone(),
            std::borrow::Cow::Owned(body) => Bytes::from(body),
        };
        let tools: HashSet<String> = held.session.offered_tools().map(str::to_owned).collect();
        for warning in held.session.take_warnings() {
            tracing::warn!(session = %self.opening.id, "{warning}");
        }
        let prompt_tokens = held.session.state().best_prompt_tokens();
        Ok(Turned {
            body,
            session: self.opening.id.clone(),
            tools: Arc::new(tools),
            restored,
            turn: 0,
            compaction,
            prompt_tokens,
            report,
        })
    }
}

impl Asked {
    /// Whether nobody needs to count to see that it does not fit.
    pub(crate) fn is_surely_too_large(&self) -> bool {
        (self.body.len() / 4) as u64 > self.opening.agent.context_length
    }

    /// The body made to fit by the built-in engine, without a session: what is left where the session cannot be had.
    pub(crate) fn fit(&self, shared: &Shared) -> Option<Bytes> {
        let options = SessionOptions {
            engine: Some("compressor".to_owned()),
            provider: Some(self.opening.provider.to_owned()),
            ..SessionOptions::default()
        };
        let agent = self.opening.agent.clone();
        let engines = shared.host.engines();
        let session = Session::open(&engines, None, &self.opening.id, agent, options);
        let fitted = session.and_then(|mut session| {
            let options = TurnOptions {
                compact: Compact::Force,
                ..TurnOptions::default()
            };
            let text = std::str::from_utf8(&self.body).unwrap_or_default();
            let turn = session.turn_with(text, Some(self.api.format()), &options)?;
            Ok(Bytes::from(turn.body.into_owned()))
        });
        fitted
            .inspect_err(|error| tracing::warn!("a request that does not fit: {error}"))
            .ok()
    }
}

impl Turned {
    /// What another try goes on from.
    pub(crate) fn again(&self) -> Self {
        Self {
            body: self.body.clone(),
            session: self.session.clone(),
            tools: Arc::clone(&self.tools),
            restored: self.restored.clone(),
            turn: self.turn,
            compaction: None,
            prompt_tokens: self.prompt_tokens,
            report: None,
        }
    }
}

/// How long an answer is left for the next request, before it is taken in by itself.
const SOON: Duration = Duration::from_millis(1);

/// The rounds of one answer.
#[derive(Debug)]
pub(crate) struct Rounds {
    asked: Arc<Asked>,
    turned: Turned,
    /// Wire messages that stand in place of what the client has.
    real: Vec<String>,
    /// Results that join those of the client's tools.
    results: Vec<String>,
    pub(crate) hidden: u32,
    /// Of all rounds, and of the last one.
    usage: Usage,
    last_usage: Usage,
    /// How long the request was held up.
    held: Duration,
}

impl Rounds {
    pub(crate) fn new(asked: Arc<Asked>, turned: Turned, held: Duration) -> Self {
        Self {
            asked,
            turned,
            real: Vec::new(),
            results: Vec::new(),
            hidden: 0,
            usage: Usage::default(),
            last_usage: Usage::default(),
            held,
        }
    }

    /// Notes what the turn was, for the page. A failure is logged.
    fn note(&self, shared: &Shared) {
        let report = self.turned.report.as_deref();
        if self.usage == Usage::default() && report.is_none() {
            return;
        }
        let (asked, session) = (&self.asked, &self.turned.session);
        let has_markers = memchr::memmem::find(&asked.body, b"\"cache_control\"").is_some();
        let over = Over {
            api: asked.api,
            model: &asked.opening.agent.model,
            window: asked.opening.agent.context_length,
            held_ms: self.held.as_secs_f64() * 1e3,
            last: self.last_usage,
            all: self.usage,
            hidden_rounds: self.hidden,
            asked_bytes: asked.body.len(),
            sent_bytes: self.turned.body.len(),
            has_markers,
            compaction: report.map(|(report, _)| report),
        };
        // One at a time.
        let mut diffs = shared.diffs.lock().unwrap_or_else(PoisonError::into_inner);
        match account::note(shared.host.record(), session, &over) {
            Ok(turn) => {
                if let Some((_, diff)) = report {
                    diffs.push(session, turn, diff.clone());
                }
            }
            Err(error) => tracing::warn!(session, "the page lacks a turn: {error}"),
        }
    }

    pub(crate) fn tools(&self) -> Tools {
        Arc::clone(&self.turned.tools)
    }

    /// Whether the model had its say about being called too often, and calls all the same.
    pub(crate) fn is_exhausted(&self, settings: &Settings) -> bool {
        self.hidden > settings.max_rounds
    }

    /// As [`next`](Self::next), where waiting does not block.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn next_in(
        mut self,
        shared: &Arc<Shared>,
        settings: &Settings,
        slot: &Slot,
        round: Round,
    ) -> Result<(Self, Bytes), Failure> {
        let (own, most) = (Arc::clone(shared), settings.max_rounds);
        let work = with_place(&shared.work, slot, move |place| {
            let body = self.next(&own, place, round, most)?;
            Ok((self, body))
        });
        work.await
    }

    /// As [`end`](Self::end), where waiting does not block. A failure costs the client nothing, and is logged. Answers
    /// the usage of all rounds, once nothing is left that only the gateway knows: what the client is given whole, it
    /// brings back with its next request, which finds it left for it.
    pub(crate) async fn end_in(
        mut self,
        shared: &Arc<Shared>,
        settings: &Settings,
        slot: &Slot,
        round: Round,
        visible: Option<Vec<String>>,
    ) -> Usage {
        self.count(shared, &round);
        let usage = self.usage;
        let session = self.turned.session.clone();
        let is_whole = visible.is_none();
        slot.leave(Ended {
            rounds: self,
            round,
            visible,
        });
        let (shared, slot) = (Arc::clone(shared), slot.clone());
        if is_whole {
            tokio::spawn(async move {
                // A request that comes at once takes it in with its own turn.
                tokio::time::sleep(SOON).await;
                if slot.has_ended() {
                    take_in_left(&shared, slot).await;
                }
            });
        } else {
            let taken_in = tokio::spawn(async move { take_in_left(&shared, slot).await });
            if tokio::time::timeout(settings.max_hold, taken_in)
                .await
                .is_err()
            {
                tracing::warn!(session, "an answer was not taken in yet");
            }
        }
        usage
    }

    fn count(&mut self, shared: &Shared, round: &Round) {
        let Some(usage) = round.usage else { return };
        let kinds = [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ];
        for (kind, tokens) in kinds {
            shared
                .metrics
                .add("tokens_total", &format!("kind=\"{kind}\""), tokens as f64);
        }
        self.last_usage = usage;
        self.usage.input_tokens += usage.input_tokens;
        self.usage.output_tokens += usage.output_tokens;
        self.usage.cache_read_tokens += usage.cache_read_tokens;
        self.usage.cache_write_tokens += usage.cache_write_tokens;
    }

    /// Answers the engine's calls of a round and goes on with the conversation: the body of the next round.
    ///
    /// # Errors
    /// The answer cannot go on.
    fn next(
        &mut self,
        shared: &Shared,
        place: &mut Place,
        round: Round,
        most: u32,
    ) -> Result<Bytes, Failure> {
        self.count(shared, &round);
        self.hidden += 1;
        shared.metrics.add("hidden_rounds_total", "", 1.0);
        if place.turns != self.turned.turn {
            return Err(Failure::new(
                "overtaken",
                "another request of the session came in between",
            ));
        }
        let Some(mut held) = place.hold_again()? else {
            return Err(Failure::new(
                "overtaken",
                "another gateway went on with the session",
            ));
        };
        let items: Vec<&str> = round.items.iter().map(String::as_str).collect();
        held.session.answer(&items, round.usage.as_ref())?;
        let answers = match self.hidden > most {
            false => call_all(shared, &mut held, round.calls),
            true => round
                .calls
                .into_iter()
                .map(|call| (call, Err(too_often(most))))
                .collect(),
        };
        let added: Vec<String> = (round.items.into_iter())
            .chain(results(self.asked.api, &answers))
            .collect();
        let restored = append(self.asked.api.format(), &self.turned.restored, &added)?;
        self.real.extend(added);
        let turned = self.asked.run(shared, held, restored, Compact::Auto)?;
        let body = turned.body.clone();
        self.turned = Turned {
            turn: self.turned.turn,
            report: turned.report.or(self.turned.report.take()),
            ..turned
        };
        Ok(body)
    }

    /// Feeds the last round of the answer back; `visible` is what the client has of all of them, where that is not
    /// what came. Where the session has gone on meanwhile, or the next request `is_here`, that brings the answer.
    ///
    /// # Errors
    /// The answer could not be taken in.
    fn end(
        &mut self,
        shared: &Shared,
        place: &mut Place,
        (round, visible): (Round, Option<Vec<String>>),
        is_here: bool,
    ) -> Result<(), Failure> {
        if place.turns != self.turned.turn {
            return Ok(());
        }
        let Some(mut held) = place.hold_again()? else {
            return Ok(());
        };
        held.stays = true;
        if visible.is_none() && is_here {
            if let Some(usage) = &round.usage {
                held.session.update_usage(usage);
            }
            return Ok(());
        }
        let answers = call_all(shared, &mut held, round.calls);
        if !round.items.is_empty() {
            let items: Vec<&str> = round.items.iter().map(String::as_str).collect();
            held.session.answer(&items, round.usage.as_ref())?;
        }
        self.results = match self.asked.api {
            Api::Messages => result_blocks(&answers)
                .iter()
                .map(ToString::to_string)
                .collect(),
            _ => results(self.asked.api, &answers),
        };
        self.real.extend(round.items);
        if let Some(visible) = visible {
            let one = Hidden {
                before: self.asked.last,
                visible: shared.identities.of(self.asked.api.format(), &visible),
                real: std::mem::take(&mut self.real),
                results: std::mem::take(&mut self.results),
            };
            hidden::keep(shared.host.record(), &self.turned.session, held.hidden, one)
                .map_err(|error| Failure::new("record", error))?;
        }
        Ok(())
    }
}

/// An answer that came to its end.
#[derive(Debug)]
pub(crate) struct Ended {
    rounds: Rounds,
    round: Round,
    visible: Option<Vec<String>>,
}

/// Takes in the answers that were left in a slot, before the next request where that `is_here`, and answers what is to be
/// noted of them.
fn take_in_ended(shared: &Shared, slot: &Slot, place: &mut Place, is_here: bool) -> Vec<Rounds> {
    let take_in = |ended: Ended| {
        let mut rounds = ended.rounds;
        let answer = (ended.round, ended.visible);
        if let Err(failure) = rounds.end(shared, place, answer, is_here) {
            let (session, reason) = (&rounds.turned.session, failure.reason);
            tracing::warn!(
                session,
                reason,
                "an answer was not taken in: {}",
                failure.detail
            );
        }
        rounds
    };
    slot.take_ended().into_iter().map(take_in).collect()
}

/// The same for nobody's turn, where waiting does not block.
async fn take_in_left(shared: &Arc<Shared>, slot: Slot) {
    let mut place = Arc::clone(&slot.place).lock_owned().await;
    let own = Arc::clone(shared);
    let work = move || {
        let ended = take_in_ended(&own, &slot, &mut place, false);
        place.let_go();
        // Nobody need wait for the rest.
        drop(place);
        ended.iter().for_each(|rounds| rounds.note(&own));
    };
    if let Err(failure) = shared.work.done(work).await {
        tracing::warn!("an answer was not taken in: {}", failure.detail);
    }
}

fn too_often(most: u32) -> String {
    format!(
        "this tool was called {most} times in a row, which is as often as it may be: answer now, with what you have"
    )
}

fn call_all(
    shared: &Shared,
    held: &mut Held<'_>,
    calls: Vec<Call>,
) -> Vec<(Call, Result<String, String>)> {
    let mut one = |call: Call| {
        shared
            .metrics
            .add("tool_calls_total", &format!("tool=\"{}\"", call.name), 1.0);
        let asked = ToolCall::new(call.name.clone(), call.arguments.clone());
        let answer = held
            .session
            .call_tool(asked)
            .map_err(|error| error.to_string());
        (call, answer)
    };
    calls.into_iter().map(&mut one).collect()
}

/// A body with more messages at its end.
fn append(format: Format, body: &Bytes, messages: &[String]) -> Result<Bytes, Failure> {
    let wire = formats::split(as_text(body)?, Some(format)).map_err(SessionError::from)?;
    let own = wire
        .messages
        .iter()
        .enumerate()
        .map(|(at, raw)| (Some(at), *raw));
    let all: Vec<(Option<usize>, &str)> = own
        .chain(messages.iter().map(|raw| (None, raw.as_str())))
        .collect();
    Ok(Bytes::from(wire.with_messages(None, &all)))
}

/// A slot, held for one piece of work.
pub(crate) async fn with_place<T: Send + 'static>(
    room: &Work,
    slot: &Slot,
    work: impl FnOnce(&mut Place) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let mut place = Arc::clone(&slot.place).lock_owned().await;
    room.done(move || work(&mut place))
        .await
        .and_then(|done| done)
}

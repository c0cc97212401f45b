//! Runs a request through the host as a turn of its session. All functions here block.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use contexture::formats::text_bytes;
use contexture::providers::UsageByModel;
use contexture::session::{AgentWindow, CompactionReport, OutcomeKind, Session, SessionOptions};
use contexture::tokens::TokenCounter;
use contexture::{Compact, TurnOptions};
use contexture_engine_api::Decision;

use super::TurnRequest;
use crate::account::{Cause, Compacted};
use crate::body::{self, History, HistoryMessage, SharedBody};
use crate::diff::SentMessages;
use crate::failure::Failure;
use crate::health::Failed;
use crate::hidden::{self, HiddenRound};
use crate::repair;
use crate::sessions::{SessionCell, SessionGuard, WindowLimit};
use crate::stream::ToolNames;
use crate::unmanaged::{Status, UnmanagedReason};
use crate::{Shared, trace};

/// How often an engine is asked to compact further if its result is still too large for the
/// provider.
const MAX_RECOMPACTIONS: usize = 2;

/// The result of a turn: the body for the provider, and what the rounds of its answer need to know.
#[derive(Debug, Clone)]
pub(crate) struct TurnResult {
    /// The body. Once it is sent, it is the client's, see [`take_body`](Self::take_body).
    pub(crate) body: SharedBody,
    /// The length in bytes of the body that was sent.
    pub(crate) sent_bytes: usize,
    /// Whether the body that was sent is another one than the client's.
    pub(crate) is_changed: bool,
    /// Whether more was changed than the markers for the provider's cache.
    pub(crate) is_rewritten: bool,
    /// How many times as many tokens the client's own body has, roughly.
    pub(crate) client_ratio: f64,
    pub(crate) session: String,
    /// The engine that the session runs.
    pub(crate) engine: String,
    /// The names of the engine's tools that this body offers to the model.
    pub(crate) tools: ToolNames,
    /// The client's messages with hidden rounds put back, before compaction. The next round appends
    /// to them.
    pub(crate) history: History,
    /// The number of this turn in the session cell. If the cell has moved on, this turn was
    /// overtaken.
    pub(crate) turn: u64,
    pub(crate) compaction: Option<String>,
    /// The size of the prompt, as the session estimates it.
    pub(crate) prompt_tokens: u64,
    /// A compaction that was made. Shared because a turn is cloned for each round.
    pub(crate) compacted: Option<Arc<Compacted>>,
    /// The engine's decision about a compaction, in its own words.
    pub(crate) decision: String,
    /// Whether the record has the text of the session's messages.
    pub(crate) stores_texts: bool,
    /// Why an earlier turn of the session is not stored. None if all are.
    pub(crate) not_stored: Option<String>,
    /// What the models that write the session's summaries used.
    pub(crate) used: Arc<UsageByModel>,
    /// Why the session runs another engine than the configured one. None if it runs the configured
    /// one.
    pub(crate) fallback: Option<UnmanagedReason>,
}

impl TurnResult {
    /// Takes the body to send it, and leaves the client's in its place. An answer may take minutes,
    /// and a gateway may have many, so nothing keeps a body that was sent.
    pub(crate) fn take_body(&mut self, request: &TurnRequest) -> Bytes {
        let body = std::mem::replace(&mut self.body, request.body.clone());
        self.is_changed = body.text().as_ptr() != request.body.text().as_ptr();
        let (text, _) = request.references.restore(body).into_parts();
        self.sent_bytes = text.len();
        text.into_bytes()
    }
}

/// The limits that a request has to fit after the provider refused it. All values are in the
/// provider's tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FitLimits {
    /// The whole window, including the answer.
    pub(crate) limit: u64,
    pub(crate) size: u64,
    pub(crate) answer: u64,
    /// The size that the prompt should have at most.
    pub(crate) goal: u64,
}

impl TurnRequest {
    /// Runs the request as a turn of its session.
    ///
    /// Takes the session, checks that it has not moved on in the meantime, puts hidden rounds back,
    /// and calls the engine. The session stays held afterwards, so that the caller can save it
    /// without another gateway getting in between.
    ///
    /// Does nothing if the request `is_given_up` by the time that the session is free. It was then
    /// passed on without its turn, and the client may have sent it again.
    ///
    /// # Errors
    /// The session cannot be opened, the engine failed, or another request of the session came
    /// first. After the last one, the caller may try again ([`Failure::is_overtaken`]).
    pub(crate) fn turn(
        &self,
        shared: &Shared,
        cell: &mut SessionCell,
        is_given_up: impl Fn() -> bool,
    ) -> Result<TurnResult, Failure> {
        let given_up = || Failure::new("given_up", "nobody waits for the turn any more");
        if is_given_up() {
            return Err(given_up());
        }
        let mut guard = cell.acquire(&shared.host, &self.spec)?;
        if !self.found.still_holds(shared.host.record())? {
            return Err(Failure::overtaken());
        }
        if is_given_up() {
            return Err(given_up());
        }
        self.found.begin(&shared.sessions);
        guard.keeps_session = true;
        if let Some(model) = &self.agent_model {
            guard.session.with_model(model);
        }
        self.note_pins(guard.session);
        let mut tools: Vec<String> = guard.session.offered_tools().map(str::to_owned).collect();
        if tools.is_empty() {
            // A session that was just opened has not offered any tools yet.
            tools.extend_from_slice(guard.own_tools);
        }
        let text = self.body.text().as_bytes();
        let is_named = |name: &String| memchr::memmem::find(text, name.as_bytes()).is_some();
        // Comparing the history is only necessary if something may have been hidden in it.
        let history = match guard.hidden.all.is_empty() && !tools.iter().any(is_named) {
            true => History::default(),
            false => self.history(&tools, &guard.hidden.all),
        };
        // The count goes up even if the engine fails, because the session may have taken the
        // request in.
        let result = self.run(shared, guard, history, Compact::Auto);
        cell.turns += 1;
        Ok(TurnResult {
            turn: cell.turns,
            ..result?
        })
    }

    /// The client's messages with hidden rounds put back, and without its answers to calls of these
    /// tools.
    fn history(&self, tools: &[String], hidden: &[HiddenRound]) -> History {
        let wire = self.body.wire();
        let repaired = repair::repair(self.api, &wire.messages, tools);
        let messages = match &repaired {
            Some(repaired) => body::with_messages(&wire, repaired).messages,
            None => wire.messages,
        };
        let restored = hidden::restore(self.api, &messages, &self.identities, hidden);
        // The restored history consists of the repaired messages.
        let repaired_at = |message: HistoryMessage| match (message, &repaired) {
            (HistoryMessage::Client(at), Some(repaired)) => repaired.get(at).cloned(),
            (message, _) => Some(message),
        };
        let restored = restored.map(|all| all.into_iter().filter_map(repaired_at).collect());
        History::new(restored.or(repaired))
    }

    /// The body that a turn would send, without changing the session, and the names of the engine's
    /// tools in it. Token counting and requests for summaries use it. Returns None if the request
    /// continues no known session, because then there is nothing to compact yet.
    ///
    /// # Errors
    /// The session cannot be opened.
    pub(crate) fn preview(
        &self,
        shared: &Shared,
        cell: &mut SessionCell,
    ) -> Result<Option<(Bytes, ToolNames)>, Failure> {
        if !self.found.is_known {
            return Ok(None);
        }
        let guard = cell.acquire_unchanged(&shared.host, &self.spec)?;
        let history = self.history(&[], &guard.hidden.all);
        let wire = history.of(&self.body);
        let preview = guard.session.preview(&wire, self.without_tools);
        let body = preview.map(|text| match text {
            Cow::Borrowed(_) => self.body.text().as_bytes().clone(),
            Cow::Owned(text) => Bytes::from(text),
        });
        let tools = guard.session.offered_tools().map(str::to_owned);
        let tools: HashSet<String> = tools.filter(|_| !self.without_tools).collect();
        Ok(body.map(|body| (body, Arc::new(tools))))
    }

    /// Runs the turn again in a smaller window, after the provider said that the request does not
    /// fit.
    ///
    /// The limit is stored with the session, so that later requests are not refused first. If the
    /// result is still above `fit.goal`, the engine is asked to compact further, and at last the
    /// built-in engine shortens the body.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub(crate) fn turn_within(
        &self,
        shared: &Shared,
        cell: &mut SessionCell,
        before: &TurnResult,
        fit: &FitLimits,
    ) -> Result<TurnResult, Failure> {
        let (model, answer) = (self.spec.agent.model.clone(), fit.answer);
        let limit = WindowLimit {
            model: model.clone(),
            // The gateway's token counts are estimates, so five percent stay free.
            tokens: fit.limit / 20 * 19,
            answer,
        };
        cell.learn_limit(&shared.host, &self.spec.id, limit);
        let mut spec = self.spec.clone();
        spec.agent = AgentWindow::new(model, answer + fit.goal, answer);
        let guard = cell.acquire(&shared.host, &spec)?;
        let ratio = guard.session.prompt_was_refused(fit.size);
        let mut result = self.run(shared, guard, before.history.clone(), Compact::Force)?;
        for _ in 0..MAX_RECOMPACTIONS {
            if result.prompt_tokens <= fit.goal {
                break;
            }
            let guard = cell.acquire(&shared.host, &spec)?;
            let again = self.run(shared, guard, before.history.clone(), Compact::Force)?;
            // More attempts would not help either.
            if again.prompt_tokens >= result.prompt_tokens {
                break;
            }
            result = TurnResult {
                compacted: again.compacted.or(result.compacted),
                ..again
            };
        }
        if result.prompt_tokens > fit.goal {
            // The engine cannot compact further, so the built-in engine shortens this one request.
            // The session keeps its history.
            let goal = (fit.goal as f64 / ratio.max(0.5)) as u64;
            let window = AgentWindow::new(spec.agent.model, goal, 0);
            let size = |body: &SharedBody| body.text().len();
            if let Some(body) = self.shortened(shared, &result.body, window)
                && size(&body) < size(&result.body)
            {
                result.client_ratio = self.client_ratio(&body, true);
                result.is_rewritten = true;
                result.body = body;
            }
        }
        cell.turns += 1;
        result.turn = cell.turns;
        Ok(result)
    }

    /// Runs one turn of a session that is already held, and collects its result. Rounds of an
    /// answer call this directly, because they continue the turn of their request.
    ///
    /// Also counts the compaction and the saved tokens in the metrics. The turn number in the
    /// result is 0, and the caller sets it.
    ///
    /// # Errors
    /// The engine or the format of the body.
    pub(crate) fn run(
        &self,
        shared: &Shared,
        guard: SessionGuard<'_>,
        history: History,
        compact: Compact,
    ) -> Result<TurnResult, Failure> {
        let options = TurnOptions::default()
            .compact(compact)
            .without_tools(self.without_tools)
            // The record is written while the model answers, see `answer::turn_in`.
            .saves_later(true);
        let span = trace::turn_span(&self.spec.id);
        let body = history.of(&self.body);
        let mut turn = span.in_scope(|| guard.session.turn_split(body, &options))?;
        let due = turn.compaction.as_ref();
        let due = due.map(|report| (report, trigger(compact, &turn.decision, report)));
        let compaction = due.as_ref().map(|(report, (_, trigger))| {
            self.note_compaction(shared, &span, report, trigger, guard.session)
        });
        let made = due.filter(|(report, _)| report.outcome == OutcomeKind::Compacted);
        let compacted = made.map(|(report, (cause, trigger))| {
            let messages = history.of(&self.body).messages;
            Arc::new(Compacted {
                report: report.clone(),
                cause,
                trigger,
                diff: guard.sent.changes(&messages, &turn.messages),
            })
        });
        let decision = turn.decision.reason().to_owned();
        let body = body::of_turn(&mut turn, &self.body);
        let body = body.ok_or_else(|| Failure::new("format", "the turn has no body"))?;
        *guard.sent = SentMessages::now(turn.messages);
        let tools: HashSet<String> = guard.session.offered_tools().map(str::to_owned).collect();
        // The host has already logged the warnings.
        drop(guard.session.take_warnings());
        self.note_health(shared, guard.session, guard.failures);
        let prompt_tokens = guard.session.state().best_prompt_tokens();
        let client_ratio = self.client_ratio(&body, turn.changed);
        if turn.changed {
            let saved = prompt_tokens as f64 * (client_ratio - 1.0).max(0.0);
            (shared.metrics).add("saved_tokens_total", "", saved.round());
        }
        Ok(TurnResult {
            body,
            sent_bytes: 0,
            is_changed: false,
            is_rewritten: turn.changed || !tools.is_empty(),
            client_ratio,
            session: self.spec.id.clone(),
            engine: guard.session.engine().name().to_owned(),
            tools: Arc::new(tools),
            history,
            turn: 0,
            compaction,
            prompt_tokens,
            compacted,
            decision,
            stores_texts: guard.session.stores_texts(),
            not_stored: guard.session.not_stored().map(str::to_owned),
            used: Arc::clone(guard.session.model_usage()),
            fallback: fallback_of(guard.session),
        })
    }

    /// How many times as many tokens the client's body has as the one that is sent, roughly. If no
    /// message was changed, both have the same files, which then need not be found.
    fn client_ratio(&self, sent: &SharedBody, is_changed: bool) -> f64 {
        let counter = TokenCounter::for_model(&self.spec.agent.model);
        let size = |body: &SharedBody| match is_changed {
            true => text_bytes(body.text(), &counter) as f64,
            false => body.text().len() as f64,
        };
        size(&self.body) / size(sent)
    }

    /// Counts and logs a compaction. Returns what the answer's headers say of it.
    fn note_compaction(
        &self,
        shared: &Shared,
        span: &tracing::Span,
        report: &CompactionReport,
        trigger: &str,
        session: &Session,
    ) -> String {
        let outcome = match report.outcome {
            OutcomeKind::Compacted => "compacted",
            OutcomeKind::NothingToDo => "nothing_to_do",
            OutcomeKind::Deferred => "deferred",
            OutcomeKind::FloorTooHigh => "floor_too_high",
            OutcomeKind::Failed => "failed",
        };
        let engine = format!("engine=\"{}\"", report.engine);
        let labels = format!("outcome=\"{outcome}\",{engine}");
        shared.metrics.add("compactions_total", &labels, 1.0);
        let time = Duration::from_secs_f64(report.elapsed_ms.max(0.0) / 1e3);
        shared.metrics.observe("compaction_seconds", &engine, time);
        trace::compacted(span, outcome, report);
        // The notes of a summary that the configured model did not write say why.
        let summary = match report.degraded {
            true => format!("; summary=digest: {}", report.notes.join("; ")),
            false => String::new(),
        };
        tracing::info!(
            session = %self.spec.id, engine = %report.engine, outcome,
            before = report.tokens_before, after = report.tokens_after,
            window = session.state().context_length,
            elapsed_ms = report.elapsed_ms as u64, trigger,
            reason = %format_args!("{}{summary}", report.reason), "compaction"
        );
        format!("{outcome}; {}{summary}", report.reason)
    }

    /// Pins and unpins what the request's headers say. A pin that cannot be changed is logged, and the
    /// request goes on.
    fn note_pins(&self, session: &mut Session) {
        let unpinned = self.unpins.iter().map(|words| (false, words));
        let pinned = self.pins.iter().map(|words| (true, words));
        for (is_pinned, words) in unpinned.chain(pinned) {
            let done = match is_pinned {
                true => session.pin(words),
                false => session.unpin(words),
            };
            if let Err(error) = done {
                tracing::warn!(session = %self.spec.id, "cannot change a pin: {error}");
            }
        }
    }

    /// Records for the health check whether the session's engine works. `failures_seen` is
    /// the number of engine failures that were recorded earlier. It is updated, so that each failure
    /// counts once.
    fn note_health(&self, shared: &Shared, session: &Session, failures_seen: &mut u64) {
        let (id, engines) = (&self.spec.id, shared.host.engines());
        let (wanted, failures) = (&engines.config().context.engine, session.engine_failures());
        let failed = |part, why: &str| {
            let what = (&**id, Failed::Engine);
            shared.health.failed(&shared.metrics, what, part, why);
        };
        let has_failed = failures > std::mem::replace(failures_seen, failures);
        if let Some(why) = session.stands_in() {
            failed("engine", &why);
        } else if has_failed {
            let part = match session.engine().failed_in_store() {
                true => "store",
                false => "engine",
            };
            failed(part, &format!("engine `{wanted}` failed; see the log"));
        } else if session.engine().name() != wanted {
            let runs = session.engine().name();
            failed("engine", &format!("`{runs}` runs instead of `{wanted}`"));
        } else {
            shared.health.works(id, Failed::Engine);
        }
    }

    /// The body shortened by the built-in engine, without a session. Used if the session cannot be
    /// opened and the body would not fit unchanged. Returns None if the engine fails.
    pub(crate) fn shorten(&self, shared: &Shared) -> Option<Bytes> {
        let body = self.shortened(shared, &self.body, self.spec.agent.clone());
        body.map(|body| body.text().as_bytes().clone())
    }

    /// Runs a forced compaction of a body in a temporary session with the `compressor` engine.
    /// Errors are logged and become None.
    fn shortened(
        &self,
        shared: &Shared,
        body: &SharedBody,
        agent: AgentWindow,
    ) -> Option<SharedBody> {
        let options = SessionOptions::default()
            .engine(Some("compressor".to_owned()))
            .provider(Some(self.spec.provider.to_owned()));
        let engines = shared.host.engines();
        let session = Session::open(&engines, None, &self.spec.id, agent, options);
        let fitted = session.and_then(|mut session| {
            let options = TurnOptions::default().compact(Compact::Force);
            let mut turn = session.turn_split(body.wire(), &options)?;
            Ok(body::of_turn(&mut turn, body))
        });
        fitted
            .inspect_err(|error| {
                tracing::warn!("cannot shorten a request that does not fit: {error}")
            })
            .ok()
            .flatten()
    }
}

/// Why the session runs another engine than the configured one. None if it runs that one.
fn fallback_of(session: &Session) -> Option<UnmanagedReason> {
    let why = session.stands_in()?;
    let reason = match session.engine().quarantine() {
        Some(_) => "quarantine",
        None => "fallback",
    };
    Some(UnmanagedReason::new(Status::Fallback, reason, why))
}

/// Why a compaction was due, in a word and with the figures. If the safety net overruled the engine,
/// its note with the numbers is returned instead of the engine's reason.
fn trigger(compact: Compact, decision: &Decision, report: &CompactionReport) -> (Cause, String) {
    if compact == Compact::Force {
        let trigger = "the provider refused the request as too long";
        return (Cause::Refusal, trigger.to_owned());
    }
    let safety_net = report
        .notes
        .iter()
        .find(|note| note.starts_with("session hygiene"));
    match safety_net {
        Some(note) => (Cause::SafetyNet, note.clone()),
        None => (Cause::Engine, decision.reason().to_owned()),
    }
}

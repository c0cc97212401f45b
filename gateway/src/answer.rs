//! The answer to a turn: executes the engine's tool calls between rounds and feeds the finished
//! answer back to the session.
//!
//! One answer may take several requests to the provider, called rounds. [`Rounds`] follows them.
//! [`Rounds::next_round`] executes the calls of a round and prepares the next request.
//! [`Rounds::finish`] is called after the last round and hands the answer over to the session.
//!
//! The end of an answer is one piece of work, and in a file one transaction: the session takes the
//! answer in, and the answer is noted as a proof. If the client received something else than the
//! model wrote, the difference is stored with the session by [`hidden`](crate::hidden).
//!
//! [`run_turn_in`] runs the turn of a request. Reading the provider's bytes is up to
//! [`stream`](crate::stream), and sending them is up to [`exchange`](crate::exchange).

use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture::session::KeptChange;
use contexture::{Compact, ToolCall, Usage};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tracing::Instrument;

use crate::Shared;
use crate::account::{self, TurnStats};
use crate::api::Api;
use crate::conversation::{TurnRequest, TurnResult, log_record_error};
use crate::failure::Failure;
use crate::hidden::HiddenRound;
use crate::sessions::{SessionCell, SessionGuard, SessionSlot};
use crate::settings::Settings;
use crate::stream::{Call, Round, ToolNames, result_parts, results};
use crate::trace::ModelCall;

/// All rounds of one answer. It begins with the turn of the client's request, and its end is
/// recorded for the status page.
#[derive(Debug)]
pub(crate) struct Rounds {
    request: Arc<TurnRequest>,
    result: TurnResult,
    /// Wire messages of hidden rounds, which the client never receives. They are stored with the
    /// session at the end of the answer.
    real: Vec<String>,
    /// Results of the engine's calls that have to be sent together with the client's own results.
    results: Vec<String>,
    pub(crate) hidden: u32,
    /// The usage of all rounds together, and of the last round.
    usage: Usage,
    last_usage: Usage,
    /// How long the gateway held the request before it was sent, and when it sent it.
    hold_time: Duration,
    sent_at: Instant,
    /// From the arrival of the request to the head and to the end of the answer.
    first_time: Duration,
    total_time: Duration,
    /// The model call under way.
    call: Option<ModelCall>,
}

impl Rounds {
    /// The answer that this model call begins.
    pub(crate) fn new(
        request: Arc<TurnRequest>,
        result: TurnResult,
        hold_time: Duration,
        call: ModelCall,
    ) -> Self {
        Self {
            request,
            result,
            real: Vec::new(),
            results: Vec::new(),
            hidden: 0,
            usage: Usage::default(),
            last_usage: Usage::default(),
            hold_time,
            sent_at: call.began,
            first_time: hold_time + call.began.elapsed(),
            total_time: Duration::ZERO,
            call: Some(call),
        }
    }

    /// The change of the record that adds the turn to the status page. Turns without reported usage
    /// and without a compaction are left out. The metrics count what was used for summaries.
    fn change<'a>(&'a self, shared: &'a Shared) -> Option<KeptChange<'a>> {
        let compaction = self.result.compacted.as_deref();
        let summaries = self.result.used.take();
        if self.usage == Usage::default() && compaction.is_none() && summaries.is_empty() {
            return None;
        }
        let (metrics, spec) = (&shared.metrics, &self.request.spec);
        for (model, usage) in &summaries {
            let (engine, tenant) = (&self.result.engine, spec.tenant.as_deref());
            let labels = metrics.call_labels(model, engine, self.request.sender, tenant);
            metrics.add_tokens("summary_tokens_total", &labels, usage);
        }
        let (request, session) = (&self.request, &self.result.session);
        let text = request.body.text().as_bytes();
        let has_markers = memchr::memmem::find(text, b"\"cache_control\"").is_some();
        let stats = TurnStats {
            api: request.api,
            model: &request.spec.agent.model,
            agent: request.sender,
            window: request.spec.agent.context_length,
            held: self.hold_time,
            first: self.first_time,
            total: self.total_time,
            last: self.last_usage,
            all: self.usage,
            hidden_rounds: self.hidden,
            request: &request.body,
            client_ratio: self.result.client_ratio,
            is_changed: self.result.is_changed || self.hidden > 0,
            has_markers,
            stores_texts: self.result.stores_texts,
            decision: &self.result.decision,
            compaction,
            summaries,
        };
        Some(account::change(shared, session, stats))
    }

    /// The client's request and the turn whose body the next round sends.
    pub(crate) fn to_send(&self) -> (Arc<TurnRequest>, TurnResult) {
        (Arc::clone(&self.request), self.result.clone())
    }

    /// Replaces the turn with the one that this model call really sent, which is a smaller one if
    /// the provider refused the first.
    pub(crate) fn sent(&mut self, result: TurnResult, call: ModelCall) {
        self.call = Some(call);
        self.set_result(result);
    }

    /// Replaces the turn. A report of an earlier compaction is kept.
    fn set_result(&mut self, result: TurnResult) {
        self.result = TurnResult {
            compacted: result.compacted.or(self.result.compacted.take()),
            ..result
        };
    }

    /// The time since the request arrived.
    pub(crate) fn time(&self) -> Duration {
        self.hold_time + self.sent_at.elapsed()
    }

    pub(crate) fn tools(&self) -> ToolNames {
        Arc::clone(&self.result.tools)
    }

    /// Whether the limit of hidden rounds is reached. The model was told that the last one was the
    /// last, so another call is not answered.
    pub(crate) fn is_exhausted(&self, settings: &Settings) -> bool {
        self.hidden >= settings.config.gateway.max_rounds
    }

    /// Executes the engine's calls of a round on a worker thread, and prepares the request for the
    /// next round.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) async fn next_round(
        mut self,
        shared: &Arc<Shared>,
        settings: &Settings,
        slot: &SessionSlot,
        round: Round,
    ) -> Result<Self, Failure> {
        let (own, most) = (Arc::clone(shared), settings.config.gateway.max_rounds);
        self.end_call(shared, &round);
        let work = slot.with_cell(&shared.work, move |cell| {
            self.next(&own, cell, round, most)?;
            Ok(self)
        });
        work.instrument(tracing::info_span!("hidden round")).await
    }

    /// Ends the answer after its last round. Returns the usage of all rounds once the record has what
    /// the next request needs: the proof that the client shows by sending the answer back, since it
    /// may send it to another gateway, and what was hidden from it.
    ///
    /// `visible` holds the messages that the client received, or None if it received exactly what
    /// the model wrote. Waits at most `gateway.max_hold_ms`. Errors are logged and do not affect the
    /// client.
    pub(crate) async fn finish(
        mut self,
        shared: &Arc<Shared>,
        settings: &Settings,
        slot: &SessionSlot,
        round: Round,
        visible: Option<Vec<String>>,
    ) -> Usage {
        self.end_call(shared, &round);
        self.total_time = self.time();
        let usage = self.usage;
        let session = self.result.session.clone();
        // The next request may refer to them.
        let items = visible.as_ref().unwrap_or(&round.items);
        self.request.remember(shared, items);
        let (stored, storing) = oneshot::channel();
        let (own, slot) = (Arc::clone(shared), slot.clone());
        let ending = async move {
            // The request is stored while the model answers, and comes first.
            self.request.found.until_noted().await;
            let cell = Arc::clone(&slot.cell);
            let cell = match &visible {
                Some(_) => Some(cell.lock_owned().await),
                // A request that has the session now has gone on without this answer, and brings it.
                None => cell.try_lock_owned().ok(),
            };
            let shared = Arc::clone(&own);
            let work = move || self.end_in(&shared, cell, (round, visible), stored);
            if let Err(failure) = own.work.end(work).await {
                tracing::warn!("cannot store an answer: {}", failure.detail);
            }
        };
        // If it takes longer than the client waits, it must not be lost.
        shared.work.start(ending);
        // Nothing is sent: it ends with an error when the sender is dropped.
        if tokio::time::timeout(settings.max_hold, storing)
            .await
            .is_err()
        {
            tracing::warn!(
                session,
                "storing an answer takes longer than `gateway.max_hold_ms`"
            );
        }
        usage
    }

    /// Ends the model call. Adds the usage of its round to its span, to the metrics and to the sums
    /// of this answer, if the provider reported it.
    fn end_call(&mut self, shared: &Shared, round: &Round) {
        let (metrics, request) = (&shared.metrics, &self.request);
        let (spec, engine) = (&request.spec, &self.result.engine);
        let (model, tenant) = (&spec.agent.model, spec.tenant.as_deref());
        let labels = metrics.call_labels(model, engine, request.sender, tenant);
        let call = self.call.take();
        if let Some(call) = &call {
            metrics.observe("model_call_seconds", &labels, call.began.elapsed());
        }
        let Some(usage) = round.usage else { return };
        if let Some(call) = call {
            call.answered(&usage);
        }
        metrics.add_tokens("tokens_total", &labels, &usage);
        self.last_usage = usage;
        self.usage += usage;
    }

    /// Executes the engine's calls of a round and runs the longer conversation through the host.
    /// Afterwards [`to_send`](Self::to_send) returns the body for the next round.
    ///
    /// After the last allowed round, the results tell the model to answer now. If another request or
    /// another gateway continued the session in the meantime, the session returns to this request.
    ///
    /// # Errors
    /// The session cannot be opened again, or the engine failed.
    fn next(
        &mut self,
        shared: &Shared,
        cell: &mut SessionCell,
        round: Round,
        most: u32,
    ) -> Result<(), Failure> {
        self.hidden += 1;
        shared.metrics.add("hidden_rounds_total", "", 1.0);
        let items: Vec<&str> = round.items.iter().map(String::as_str).collect();
        let mut is_overtaken = cell.turns != self.result.turn;
        let wait = self.request.spec.wait;
        let mut guard = if !is_overtaken && let Some(guard) = cell.reacquire(wait)? {
            guard.session.answer(&items, round.usage.as_ref())?;
            guard
        } else {
            // The answer is not the last thing that was said there. It is part of the next body.
            is_overtaken = true;
            cell.acquire(&shared.host, &self.request.spec)?
        };
        let mut answers = execute_calls(shared, &mut guard, round.calls);
        if self.hidden >= most
            && let Some((_, Ok(text) | Err(text))) = answers.last_mut()
        {
            text.push_str(&last_round(most));
        }
        let added: Vec<String> = (round.items.into_iter())
            .chain(results(self.request.api, &answers))
            .collect();
        let history = (self.result.history).continued(&self.request.body, &added);
        self.real.extend(added);
        let result = self.request.run(shared, guard, history, Compact::Auto)?;
        // The other request is overtaken in turn.
        cell.turns += u64::from(is_overtaken);
        let turn = cell.turns;
        self.set_result(TurnResult { turn, ..result });
        Ok(())
    }

    /// Stores the end of the answer in the record: the session takes it in, and it is noted as a
    /// proof and for the status page. `stored` is dropped as soon as the next request may come.
    ///
    /// Without a `cell`, or if another request or gateway has moved the session on, the session does
    /// not take it in, because the next request brings it. Errors are logged.
    fn end_in(
        mut self,
        shared: &Shared,
        mut cell: Option<OwnedMutexGuard<SessionCell>>,
        (round, visible): (Round, Option<Vec<String>>),
        stored: oneshot::Sender<()>,
    ) {
        let (record, request) = (shared.host.record(), Arc::clone(&self.request));
        let failed = |failure: Failure| {
            let (session, reason) = (&request.spec.id, failure.reason);
            tracing::warn!(
                session,
                reason,
                "cannot store an answer: {}",
                failure.detail
            );
        };
        let answer = visible.as_ref().unwrap_or(&round.items);
        let mut changes = request.answer_changes(shared, answer);
        changes.extend(request.item_changes(answer));
        // The client waits for what only the gateway knows. Otherwise it does not wait for another
        // gateway that has the session.
        let wait = visible
            .as_ref()
            .map_or(Duration::ZERO, |_| request.spec.wait);
        let turn = self.result.turn;
        let current = cell.as_mut().filter(|cell| cell.turns == turn);
        let held = current.and_then(|cell| {
            cell.reacquire(wait).unwrap_or_else(|error| {
                if visible.is_some() {
                    failed(error.into());
                }
                None
            })
        });
        // The client waits until the session has the answer only if the engine takes no time and one
        // transaction stores all of it.
        let is_slow = |guard: &SessionGuard<'_>| {
            !(guard.session.engine().is_builtin() && record.joins_changes())
        };
        let mut stored = Some(stored);
        if visible.is_none() && held.as_ref().is_some_and(is_slow) {
            log_record_error(record.make_changes(std::mem::take(&mut changes)));
            stored = None;
        }
        let ended = held.map(|guard| self.end(shared, guard, round, visible));
        let is_held = ended.is_some();
        if let Some(Err(failure)) = ended {
            failed(failure);
        }
        changes.extend(self.change(shared));
        log_record_error(match cell.as_mut().filter(|_| is_held) {
            Some(cell) => cell.release(record, changes),
            None => record.make_changes(changes),
        });
        // The next request finds the session free.
        drop(cell);
        drop(stored);
    }

    /// Feeds the last round of the answer to the session, and stores what the client received
    /// instead, if that differs.
    ///
    /// # Errors
    /// The engine or the record failed.
    fn end(
        &mut self,
        shared: &Shared,
        mut guard: SessionGuard<'_>,
        round: Round,
        visible: Option<Vec<String>>,
    ) -> Result<(), Failure> {
        guard.keeps_session = true;
        let answers = execute_calls(shared, &mut guard, round.calls);
        if !round.items.is_empty() {
            let items: Vec<&str> = round.items.iter().map(String::as_str).collect();
            guard.session.take_answer(&items, round.usage.as_ref())?;
        }
        self.results = match self.request.api {
            // These want all results of a message in one user message, so single parts are kept
            // here.
            api @ (Api::Messages | Api::Gemini) => result_parts(api, &answers)
                .iter()
                .map(ToString::to_string)
                .collect(),
            api => results(api, &answers),
        };
        self.real.extend(round.items);
        if let Some(visible) = visible {
            let one = HiddenRound {
                before: self.request.last,
                visible: shared
                    .identities
                    .hashes(self.request.api.format(), &visible),
                real: std::mem::take(&mut self.real),
                results: std::mem::take(&mut self.results),
            };
            let stored = guard
                .hidden
                .store(shared.host.record(), &self.result.session, one);
            stored?;
        }
        Ok(())
    }
}

/// The text that is appended to the results of the last allowed round. Without it, the model would
/// call again and get no answer.
fn last_round(most: u32) -> String {
    format!(
        "\n\n(Tools of this kind were called {most} times in a row, which is as often as it may be: answer now, with \
         what you have.)"
    )
}

/// Executes calls of the engine's tools in order. A call that fails has its error text as the
/// result, because the model can deal with it.
fn execute_calls(
    shared: &Shared,
    guard: &mut SessionGuard<'_>,
    calls: Vec<Call>,
) -> Vec<(Call, Result<String, String>)> {
    let mut one = |call: Call| {
        shared
            .metrics
            .add("tool_calls_total", &format!("tool=\"{}\"", call.name), 1.0);
        let request = ToolCall::new(call.name.clone(), call.arguments.clone());
        let answer = guard
            .session
            .call_tool(request)
            .map_err(|error| error.to_string());
        (call, answer)
    };
    calls.into_iter().map(&mut one).collect()
}

/// Runs a turn and sends what `report` makes of its result as soon as the body is ready. The rest of
/// the work follows afterwards and overlaps with the model's answer: noting the request and saving
/// the session, in one transaction if possible. If nobody waits for the result, there is no turn.
pub(crate) fn run_turn_in<T>(
    request: &TurnRequest,
    shared: &Shared,
    mut cell: OwnedMutexGuard<SessionCell>,
    sender: oneshot::Sender<T>,
    report: impl FnOnce(Result<TurnResult, Failure>) -> T,
) {
    let result = request.turn(shared, &mut cell, || sender.is_closed());
    let is_ingested = result.is_ok();
    // The receiver is gone if the request was held too long.
    drop(sender.send(report(result)));
    let changes = is_ingested.then(|| request.changes());
    let changes = changes.into_iter().flatten().collect();
    let written = cell.release(shared.host.record(), changes);
    if is_ingested {
        if written.is_ok() {
            let tenant = request.spec.tenant.as_deref();
            request.references.saved(&shared.items, tenant);
        }
        request.note_stored(shared, cell.not_stored());
    }
    log_record_error(written);
    drop(cell);
    request.found.noted();
}

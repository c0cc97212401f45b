//! The answer to a turn: executes the engine's tool calls between rounds and feeds the finished
//! answer back to the session.
//!
//! One answer may take several requests to the provider, called rounds. [`Rounds`] follows them.
//! [`Rounds::next_round`] executes the calls of a round and prepares the next request.
//! [`Rounds::finish`] is called after the last round and hands the answer over to the session.
//!
//! An answer that the client received unchanged is not ingested at once. It is left in the
//! session's [`AnswerSlot`], because the client sends it back with its next request anyway. If the
//! client received something else than the model wrote, the difference is stored with the session
//! by [`hidden`](crate::hidden).
//!
//! [`run_turn_in`] runs the turn of a request. Reading the provider's bytes is up to
//! [`stream`](crate::stream), and sending them is up to [`exchange`](crate::exchange).

use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture::session::KeptChange;
use contexture::{Compact, ToolCall, Usage};
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument;

use crate::Shared;
use crate::account::{self, TurnStats};
use crate::api::Api;
use crate::conversation::{TurnRequest, TurnResult, log_record_error};
use crate::failure::Failure;
use crate::hidden::{self, HiddenRound};
use crate::sessions::{self, SessionCell, SessionGuard};
use crate::settings::Settings;
use crate::stream::{Call, Round, ToolNames, result_parts, results};
use crate::trace::ModelCall;

/// A session in memory, with finished answers that the session has not ingested yet.
pub(crate) type AnswerSlot = sessions::SessionSlot<FinishedAnswer>;

/// How long an answer waits for the next request of its session before it is ingested on its own.
const INGEST_DELAY: Duration = Duration::from_millis(1);

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
    /// and without a compaction are left out.
    fn change<'a>(&'a self, shared: &'a Shared) -> Option<KeptChange<'a>> {
        let compaction = self.result.compacted.as_deref();
        if self.usage == Usage::default() && compaction.is_none() {
            return None;
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
            sent_bytes: self.result.body.text().len(),
            has_markers,
            stores_texts: self.result.stores_texts,
            decision: &self.result.decision,
            compaction,
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
        self.hidden >= settings.max_rounds
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
        slot: &AnswerSlot,
        round: Round,
    ) -> Result<Self, Failure> {
        let (own, most) = (Arc::clone(shared), settings.max_rounds);
        self.end_call(shared, &round);
        let work = slot.with_cell(&shared.work, move |cell| {
            self.next(&own, cell, round, most)?;
            Ok(self)
        });
        work.instrument(tracing::info_span!("hidden round")).await
    }

    /// Ends the answer after its last round. Returns the usage of all rounds.
    ///
    /// `visible` holds the messages that the client received, or None if it received exactly what
    /// the model wrote. In the first case this waits until the difference is stored, because only
    /// the gateway knows it. In the second case the answer is left for the next request. Waits at
    /// most `gateway.max_hold_ms` each time. Errors are logged and do not affect the client.
    pub(crate) async fn finish(
        mut self,
        shared: &Arc<Shared>,
        settings: &Settings,
        slot: &AnswerSlot,
        round: Round,
        visible: Option<Vec<String>>,
    ) -> Usage {
        self.end_call(shared, &round);
        self.total_time = self.time();
        let usage = self.usage;
        let session = self.result.session.clone();
        let is_whole = visible.is_none();
        // The client may send its next request as soon as it has the end of this answer, and may
        // send it to another gateway. The proof has to be in the record by then.
        let (own, request) = (Arc::clone(shared), Arc::clone(&self.request));
        let answer = visible.clone().unwrap_or_else(|| round.items.clone());
        let noting = shared.work.run(move || request.note_answer(&own, &answer));
        if tokio::time::timeout(settings.max_hold, noting)
            .await
            .is_err()
        {
            tracing::warn!(
                session,
                "recording an answer takes longer than `gateway.max_hold_ms`"
            );
        }
        slot.defer(FinishedAnswer {
            rounds: self,
            round,
            visible,
        });
        let (shared, slot) = (Arc::clone(shared), slot.clone());
        let announced = shared.work.later().await;
        if is_whole {
            // The request is over, so its span must not last until this is done.
            tokio::spawn(async move {
                // If the next request comes immediately, it ingests the answer in its own turn,
                // which saves a write.
                tokio::time::sleep(INGEST_DELAY).await;
                if slot.has_deferred() {
                    ingest_deferred(&shared, slot).await;
                }
                drop(announced);
            });
        } else {
            let ingesting = async move {
                ingest_deferred(&shared, slot).await;
                drop(announced);
            };
            let ingested = tokio::spawn(ingesting.in_current_span());
            if tokio::time::timeout(settings.max_hold, ingested)
                .await
                .is_err()
            {
                tracing::warn!(
                    session,
                    "storing an answer takes longer than `gateway.max_hold_ms`"
                );
            }
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
        // Each token counts as one kind, so that the kinds add up to the prompt.
        let cached = usage.cache_read_tokens + usage.cache_write_tokens;
        let kinds = [
            ("input", usage.input_tokens.saturating_sub(cached)),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ];
        for (kind, tokens) in kinds {
            let labels = format!("kind=\"{kind}\",{labels}");
            metrics.add("tokens_total", &labels, tokens as f64);
        }
        self.last_usage = usage;
        self.usage.input_tokens += usage.input_tokens;
        self.usage.output_tokens += usage.output_tokens;
        self.usage.cache_read_tokens += usage.cache_read_tokens;
        self.usage.cache_write_tokens += usage.cache_write_tokens;
    }

    /// Executes the engine's calls of a round and runs the longer conversation through the host.
    /// Afterwards [`to_send`](Self::to_send) returns the body for the next round.
    ///
    /// After the last allowed round, the results tell the model to answer now.
    ///
    /// # Errors
    /// Another request or another gateway continued the session in the meantime, with the reason
    /// `overtaken`, or the engine failed.
    fn next(
        &mut self,
        shared: &Shared,
        cell: &mut SessionCell,
        round: Round,
        most: u32,
    ) -> Result<(), Failure> {
        self.hidden += 1;
        shared.metrics.add("hidden_rounds_total", "", 1.0);
        if cell.turns != self.result.turn {
            return Err(Failure::new(
                "overtaken",
                "another request continued the session in the meantime",
            ));
        }
        let Some(mut guard) = cell.reacquire()? else {
            return Err(Failure::new(
                "overtaken",
                "another gateway continued the session in the meantime",
            ));
        };
        let items: Vec<&str> = round.items.iter().map(String::as_str).collect();
        guard.session.answer(&items, round.usage.as_ref())?;
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
        let turn = self.result.turn;
        self.set_result(TurnResult { turn, ..result });
        Ok(())
    }

    /// Feeds the last round of the answer to the session, and stores what the client received
    /// instead, if that differs.
    ///
    /// Does nothing if the session has moved on, because the next request brings the answer. If the
    /// next request `is_here` already and the client received everything unchanged, only the usage
    /// is recorded.
    ///
    /// # Errors
    /// The session cannot be held, or the engine or the record failed.
    fn end(
        &mut self,
        shared: &Shared,
        cell: &mut SessionCell,
        (round, visible): (Round, Option<Vec<String>>),
        is_here: bool,
    ) -> Result<(), Failure> {
        // A later request has changed the session, and the results no longer fit its history.
        if cell.turns != self.result.turn {
            return Ok(());
        }
        let Some(mut guard) = cell.reacquire()? else {
            return Ok(());
        };
        guard.keeps_session = true;
        if visible.is_none() && is_here {
            if let Some(usage) = &round.usage {
                guard.session.update_usage(usage);
            }
            return Ok(());
        }
        let answers = execute_calls(shared, &mut guard, round.calls);
        if !round.items.is_empty() {
            let items: Vec<&str> = round.items.iter().map(String::as_str).collect();
            guard.session.answer(&items, round.usage.as_ref())?;
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
            hidden::store(
                shared.host.record(),
                &self.result.session,
                guard.hidden,
                one,
            )
            .map_err(|error| Failure::new("record", error))?;
        }
        Ok(())
    }
}

/// A finished answer that waits in the slot until it is ingested, either by the session's next
/// request or by a task of its own.
#[derive(Debug)]
pub(crate) struct FinishedAnswer {
    rounds: Rounds,
    round: Round,
    visible: Option<Vec<String>>,
}

/// Ingests the answers that wait in a slot. `is_here` says that the session's next request
/// follows in the same piece of work. Returns the answers, so that they can be recorded for the
/// status page afterwards.
fn ingest_finished(
    shared: &Shared,
    slot: &AnswerSlot,
    cell: &mut SessionCell,
    is_here: bool,
) -> Vec<Rounds> {
    let ingest = |finished: FinishedAnswer| {
        let mut rounds = finished.rounds;
        let answer = (finished.round, finished.visible);
        if let Err(failure) = rounds.end(shared, cell, answer, is_here) {
            let (session, reason) = (&rounds.result.session, failure.reason);
            tracing::warn!(
                session,
                reason,
                "cannot store an answer: {}",
                failure.detail
            );
        }
        rounds
    };
    slot.take_deferred().into_iter().map(ingest).collect()
}

/// Ingests the waiting answers without a request, and releases the session. Waits for the session
/// and for a worker thread.
async fn ingest_deferred(shared: &Arc<Shared>, slot: AnswerSlot) {
    let mut cell = Arc::clone(&slot.cell).lock_owned().await;
    let own = Arc::clone(shared);
    let work = move || {
        let finished = ingest_finished(&own, &slot, &mut cell, false);
        save_and_release(cell, Vec::new(), &finished, &own);
    };
    if let Err(failure) = shared.work.run(work).await {
        tracing::warn!("cannot store an answer: {}", failure.detail);
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

/// Runs a turn and passes its result to `report` as soon as the body is ready. The rest of the work
/// follows afterwards and overlaps with the model's answer: noting the request and saving the
/// session.
pub(crate) fn run_turn_in(
    request: &TurnRequest,
    shared: &Shared,
    slot: &AnswerSlot,
    mut cell: OwnedMutexGuard<SessionCell>,
    report: impl FnOnce(Result<TurnResult, Failure>),
) {
    let finished = ingest_finished(shared, slot, &mut cell, true);
    let result = request.turn(shared, &mut cell);
    let is_ingested = result.is_ok();
    report(result);
    let changes = is_ingested.then(|| request.changes());
    let changes = changes.into_iter().flatten().collect();
    save_and_release(cell, changes, &finished, shared);
    request.noted();
}

/// Saves and releases the session. `changes` of the record and the ingested answers, for the status
/// page, are written with it, in one transaction if possible: at many requests a second, most of
/// their cost is that of the transactions.
fn save_and_release<'a>(
    mut cell: OwnedMutexGuard<SessionCell>,
    mut changes: Vec<KeptChange<'a>>,
    finished: &'a [Rounds],
    shared: &'a Shared,
) {
    changes.extend(finished.iter().filter_map(|rounds| rounds.change(shared)));
    log_record_error(cell.release(shared.host.record(), changes));
}

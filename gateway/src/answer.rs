//! The answer to a request: its rounds, where the engine's tools are called, and its end.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use contexture::formats::{self, Format};
use contexture::session::SessionError;
use contexture::{Compact, ToolCall, Usage};
use tokio::sync::OwnedMutexGuard;

use crate::Shared;
use crate::account::{self, Over};
use crate::api::Api;
use crate::conversation::{Asked, Turned, as_text};
use crate::failure::Failure;
use crate::hidden::{self, Hidden};
use crate::sessions::{self, Held, Place};
use crate::settings::Settings;
use crate::stream::{Call, Round, Tools, result_blocks, results};

/// A session in memory, with the answers that came to their end and are not taken in yet.
pub(crate) type Slot = sessions::Slot<Ended>;

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
        match account::note(shared, session, &over) {
            Ok(turn) => {
                if let Some((_, diff)) = report {
                    diffs.push(session, turn, diff.clone());
                }
            }
            Err(error) => tracing::warn!(session, "the page lacks a turn: {error}"),
        }
    }

    /// The client's request, and the turn to send for the next round.
    pub(crate) fn to_send(&self) -> (Arc<Asked>, Turned) {
        (Arc::clone(&self.asked), self.turned.clone())
    }

    /// Records what was sent for the round.
    pub(crate) fn sent(&mut self, turned: Turned) {
        self.turned = Turned {
            report: turned.report.or(self.turned.report.take()),
            ..turned
        };
    }

    pub(crate) fn tools(&self) -> Tools {
        Arc::clone(&self.turned.tools)
    }

    /// Whether the model still calls a tool although it was told that this was the last round.
    pub(crate) fn is_exhausted(&self, settings: &Settings) -> bool {
        self.hidden >= settings.max_rounds
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
    ) -> Result<Self, Failure> {
        let (own, most) = (Arc::clone(shared), settings.max_rounds);
        let work = slot.with_place(&shared.work, move |place| {
            self.next(&own, place, round, most)?;
            Ok(self)
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
        // The next request may come as soon as the client has the end, and be for another gateway.
        let (own, asked) = (Arc::clone(shared), Arc::clone(&self.asked));
        let answer = visible.clone().unwrap_or_else(|| round.items.clone());
        let noting = shared.work.done(move || asked.note_answer(&own, &answer));
        if tokio::time::timeout(settings.max_hold, noting)
            .await
            .is_err()
        {
            tracing::warn!(session, "an answer was not noted yet");
        }
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
                if slot.has_left() {
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
        let cached = usage.cache_read_tokens + usage.cache_write_tokens;
        let kinds = [
            ("input", usage.input_tokens.saturating_sub(cached)),
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

    /// Answers the engine's calls of a round and continues the conversation. Returns what the next round sends.
    ///
    /// # Errors
    /// The answer cannot go on.
    fn next(
        &mut self,
        shared: &Shared,
        place: &mut Place,
        round: Round,
        most: u32,
    ) -> Result<(), Failure> {
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
        let mut answers = call_all(shared, &mut held, round.calls);
        if self.hidden >= most
            && let Some((_, Ok(text) | Err(text))) = answers.last_mut()
        {
            text.push_str(&last_round(most));
        }
        let added: Vec<String> = (round.items.into_iter())
            .chain(results(self.asked.api, &answers))
            .collect();
        let restored = append(self.asked.api.format(), &self.turned.restored, &added)?;
        self.real.extend(added);
        let turned = self.asked.run(shared, held, restored, Compact::Auto)?;
        let turn = self.turned.turn;
        self.sent(Turned { turn, ..turned });
        Ok(())
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
    slot.take_left().into_iter().map(take_in).collect()
}

/// The same for nobody's turn, where waiting does not block.
async fn take_in_left(shared: &Arc<Shared>, slot: Slot) {
    let mut place = Arc::clone(&slot.place).lock_owned().await;
    let own = Arc::clone(shared);
    let work = move || {
        let ended = take_in_ended(&own, &slot, &mut place, false);
        leave(place, &ended, &own);
    };
    if let Err(failure) = shared.work.done(work).await {
        tracing::warn!("an answer was not taken in: {}", failure.detail);
    }
}

/// What the model is told together with the results of its last allowed round.
fn last_round(most: u32) -> String {
    format!(
        "\n\n(Tools of this kind were called {most} times in a row, which is as often as it may be: answer now, with \
         what you have.)"
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

/// Takes a request through the host, and tells of it before the rest of it is written: that overlaps the model's answer.
pub(crate) fn turn_in(
    asked: &Asked,
    shared: &Shared,
    slot: &Slot,
    mut place: OwnedMutexGuard<Place>,
    tell: impl FnOnce(Result<Turned, Failure>),
) {
    let ended = take_in_ended(shared, slot, &mut place, true);
    let turned = asked.turn(shared, &mut place);
    let is_taken_in = turned.is_ok();
    tell(turned);
    if is_taken_in {
        asked.note(shared);
    }
    leave(place, &ended, shared);
}

/// Lets the session go, and then notes what was taken in, for which nobody need wait.
fn leave(mut place: OwnedMutexGuard<Place>, ended: &[Rounds], shared: &Shared) {
    place.let_go();
    drop(place);
    ended.iter().for_each(|rounds| rounds.note(shared));
}

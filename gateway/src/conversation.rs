//! A request on its way through the host. Everything here blocks.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use contexture::formats;
use contexture::providers::ModelClient;
use contexture::session::{
    AgentWindow, CompactionReport, OutcomeKind, RecordError, Session, SessionError, SessionOptions,
};
use contexture::{Compact, TurnOptions};
use contexture_engine_api::Decision;
use xxhash_rust::xxh3::xxh3_64;

use crate::agent_model;
use crate::api::Api;
use crate::diff::Sent;
use crate::endpoint::COMPACT;
use crate::failure::Failure;
use crate::headers;
use crate::heal;
use crate::hidden;
use crate::identity::Said;
use crate::lineage::{self, Seen};
use crate::session_key::{self, Key, Scope};
use crate::sessions::{Held, Limit, Opening, Place};
use crate::side_call;
use crate::stream::Tools;
use crate::unmanaged::{Status, Why};
use crate::{Shared, settings::Settings, window};

/// What a request is, before anything is done with it.
pub(crate) enum Kind {
    /// A turn of a conversation.
    Turn(Arc<Asked>),
    /// The request is passed on unchanged.
    Untouched(Untouched),
}

/// A request that is passed on unchanged.
pub(crate) struct Untouched {
    pub(crate) why: Why,
    /// The client's name for its session.
    pub(crate) session: Option<String>,
    /// Where to remember the answer, if it sums a session up.
    pub(crate) sums_up: Option<lineage::Place>,
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
    pub(crate) last: u64,
    /// What each message says, where hidden rounds may have to be put back.
    said: Vec<u64>,
}

/// What a turn made of a request.
#[derive(Debug, Clone)]
pub(crate) struct Turned {
    /// What goes to the model.
    pub(crate) body: Bytes,
    pub(crate) session: String,
    /// The names of the engine's tools in it.
    pub(crate) tools: Tools,
    /// The body with the hidden rounds in it, which the next round goes on from.
    pub(crate) restored: Bytes,
    pub(crate) turn: u64,
    pub(crate) compaction: Option<String>,
    pub(crate) prompt_tokens: u64,
    /// What the compaction was, and what it changed.
    pub(crate) report: Option<Compacted>,
    /// Why the session runs an engine other than the configured one.
    pub(crate) fallback: Option<Why>,
}

/// How often an engine is asked to compact further if its compaction is still too large for the provider.
const HARDER: usize = 2;

/// The limits that a request has to fit, in the provider's tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    /// The whole window.
    pub(crate) limit: u64,
    /// The size of the refused request.
    pub(crate) asked: u64,
    /// The part of the window that is reserved for the answer.
    pub(crate) answer: u64,
    /// The size that the request should have at most.
    pub(crate) goal: u64,
}

/// A compaction that was made.
pub(crate) type Compacted = Arc<(CompactionReport, serde_json::Value)>;

pub(crate) fn as_text(body: &Bytes) -> Result<&str, Failure> {
    std::str::from_utf8(body).map_err(|error| Failure::new("not_text", error))
}

/// A request whose body may be a turn.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub(crate) api: Api,
    pub(crate) headers: http::HeaderMap,
    /// The upstream URL.
    pub(crate) url: String,
    pub(crate) tenant: Option<String>,
    pub(crate) is_owner: bool,
    pub(crate) body: Bytes,
}

impl Posted {
    /// Whose sessions it may have anything to do with.
    fn scope(&self) -> Scope<'_> {
        Scope {
            tenant: self.tenant.as_deref(),
        }
    }

    /// Whether it came with a token, so that a session's name is enough to go on with it.
    fn is_trusted(&self) -> bool {
        self.is_owner || self.tenant.is_some()
    }
}

/// Finds out what a request is.
///
/// # Errors
/// It cannot be read, or its session cannot be found.
pub(crate) fn read(shared: &Shared, settings: &Settings, posted: &Posted) -> Result<Kind, Failure> {
    let Posted {
        api,
        headers,
        url,
        body,
        ..
    } = posted;
    let api = *api;
    let text = as_text(body)?;
    let format = api.format();
    let wire = formats::split(text, Some(format)).map_err(|error| Failure::new("format", error))?;
    let asks_for_block = url
        .split('?')
        .next()
        .is_some_and(|path| path.ends_with(COMPACT));
    let why = if asks_for_block {
        Some(Why::new(Status::SideCall, "side call", "compact"))
    } else if let Some(purpose) = side_call::purpose(&wire) {
        Some(Why::new(Status::SideCall, "side call", purpose))
    } else if let Some(manages) = session_key::provider_manages(&wire) {
        Some(Why::new(Status::NotManaged, manages, ""))
    } else if wire.messages.is_empty() {
        Some(Why::new(Status::NotManaged, "no messages", ""))
    } else {
        None
    };
    let key = session_key::key(headers, &wire);
    let system = system_hash(&wire);
    if let Some(why) = why {
        let sums_up = sums_up(shared, posted, &wire, &key, system, &why);
        return Ok(Kind::Untouched(Untouched {
            sums_up: sums_up.map_err(|error| Failure::new("record", error))?,
            session: key.name,
            why,
        }));
    }
    let model = wire.model.as_deref().unwrap_or_default();
    let Some(agent) = window::of(settings, headers, &wire, model) else {
        return Err(Failure::new(
            "unknown_window",
            format!("the window of the model `{model}` is not known: set `model.context_length`"),
        ));
    };
    let said = shared.identities.said(format, &wire.messages);
    let name = name_of(&key, system, &said);
    let seen = Seen {
        format,
        system,
        messages: &wire.messages,
        said: &said,
        compacted: &wire.compacted,
        said_before: &shared.identities.said(format, &wire.compacted),
        is_continued: session_key::is_continued(&wire) || !wire.compacted.is_empty(),
        is_exact: key.is_exact,
        is_trusted: posted.is_trusted(),
    };
    let (record, scope) = (shared.host.record(), posted.scope());
    let found = lineage::find(record, &shared.sessions, &scope, &name, &seen)
        .map_err(|error| Failure::new("record", error))?;
    let said: Vec<u64> = said.iter().map(|said| said.identity).collect();
    let without_tools = matches!(
        wire.member("tool_choice"),
        Some("\"none\"" | "{\"type\":\"none\"}" | "{\"type\": \"none\"}")
    );
    let engines = shared.host.engines();
    let is_asked = !settings.observe;
    let agent_model = is_asked.then(|| {
        let headers = headers::upstream(&posted.headers, true);
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
            tenant: posted.tenant.clone(),
            agent,
            provider: settings.cache_provider(api),
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

/// Why a compaction was due. If the safety net overruled the engine, these are its figures.
fn trigger(decision: &Decision, report: &CompactionReport) -> String {
    let safety_net = report
        .notes
        .iter()
        .find(|note| note.starts_with("session hygiene"));
    safety_net.map_or_else(|| decision.reason().to_owned(), Clone::clone)
}

/// Where the answer of a side call is to be remembered: of the session that the call shows to belong to, if it asks for a
/// summary of that. An agent that begins anew with the summary shows then where it comes from.
fn sums_up(
    shared: &Shared,
    posted: &Posted,
    wire: &formats::WireBody<'_>,
    key: &Key,
    system: u64,
    why: &Why,
) -> Result<Option<lineage::Place>, RecordError> {
    let messages = match (why.reason, why.detail.as_str(), wire.messages.split_last()) {
        (_, "compact", _) => &wire.messages,
        // The last message asks for the summary.
        (_, "summary", Some((_, messages))) | ("compaction_trigger", _, Some((_, messages))) => {
            messages
        }
        _ => return Ok(None),
    };
    let format = posted.api.format();
    let said = shared.identities.said(format, messages);
    let seen = Seen {
        format,
        system,
        messages,
        said: &said,
        compacted: &wire.compacted,
        said_before: &shared.identities.said(format, &wire.compacted),
        is_continued: false,
        // Whatever was changed for the summary, it is one of this conversation.
        is_exact: true,
        is_trusted: posted.is_trusted(),
    };
    let name = name_of(key, system, &said);
    lineage::find_known(shared.host.record(), &posted.scope(), &name, &seen)
}

/// What the conversations of a request go by: the client's name for its session, or how it begins.
fn name_of(key: &Key, system: u64, said: &[Said]) -> String {
    match &key.name {
        Some(name) => name.clone(),
        None => {
            let first = said.first().map_or(0, |said| said.identity);
            format!("h-{:016x}", system.rotate_left(1) ^ first)
        }
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
        let holds = self.found.still_holds(shared.host.record());
        if !holds.map_err(|error| Failure::new("record", error))? {
            let detail = "another request went on with the session at the same time";
            return Err(Failure::new("overtaken", detail));
        }
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

    /// Notes that its conversation had it. A failure is logged.
    pub(crate) fn note(&self, shared: &Shared) {
        self.noted(self.found.note(shared.host.record()));
    }

    /// Notes what the client is answered, which shows later that it goes on with the session. A failure is logged.
    pub(crate) fn note_answer(&self, shared: &Shared, answer: &[String]) {
        let said = shared.identities.said(self.api.format(), answer);
        if let Some(mark) = lineage::mark_of_answer(&said) {
            self.noted(self.found.note_answer(shared.host.record(), mark));
        }
    }

    fn noted(&self, noted: Result<(), RecordError>) {
        if let Err(error) = noted {
            tracing::warn!("session `{}`: {error}", self.opening.id);
        }
    }

    /// The session that it may go on with, although nothing shows that it does.
    pub(crate) fn follows(&self) -> Option<&str> {
        self.found.follows.as_deref()
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

    /// Like [`turn`](Self::turn) in a smaller window, after the provider said that the request does not fit. The window
    /// is remembered for the session.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub(crate) fn turn_within(
        &self,
        shared: &Shared,
        place: &mut Place,
        before: &Turned,
        fit: &Fit,
    ) -> Result<Turned, Failure> {
        let (model, answer) = (self.opening.agent.model.clone(), fit.answer);
        let limit = Limit {
            model: model.clone(),
            tokens: fit.limit / 20 * 19,
            answer,
        };
        place.learn_limit(&shared.host, &self.opening.id, limit);
        let mut opening = self.opening.clone();
        opening.agent = AgentWindow {
            model,
            context_length: answer + fit.goal,
            max_output_tokens: answer,
        };
        let held = place.hold(&shared.host, &opening)?;
        let ratio = held.session.prompt_was_refused(fit.asked);
        let mut turned = self.run(shared, held, before.restored.clone(), Compact::Force)?;
        for _ in 0..HARDER {
            if turned.prompt_tokens <= fit.goal {
                break;
            }
            let held = place.hold(&shared.host, &opening)?;
            let again = self.run(shared, held, before.restored.clone(), Compact::Force)?;
            if again.prompt_tokens >= turned.prompt_tokens {
                break;
            }
            turned = Turned {
                report: again.report.or(turned.report),
                ..again
            };
        }
        if turned.prompt_tokens > fit.goal {
            // The engine cannot compact further, so this one request is shortened without it.
            let window = AgentWindow {
                context_length: (fit.goal as f64 / ratio.max(0.5)) as u64,
                max_output_tokens: 0,
                ..opening.agent
            };
            if let Some(body) = self.fitted(shared, &turned.body, window)
                && body.len() < turned.body.len()
            {
                turned.body = body;
            }
        }
        place.turns += 1;
        turned.turn = place.turns;
        Ok(turned)
    }

    pub(crate) fn run(
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
                window = held.session.state().context_length,
                elapsed_ms = report.elapsed_ms as u64, trigger = %trigger(&turn.decision, report),
                reason = %report.reason, "compaction"
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
        // The warnings are in the log already.
        drop(held.session.take_warnings());
        self.note_health(shared, held.session, held.failures);
        let prompt_tokens = held.session.state().best_prompt_tokens();
        let fallback = held.session.stands_in();
        let reason = match held.session.engine().quarantine() {
            Some(_) => "quarantine",
            None => "fallback",
        };
        let fallback = fallback.map(|why| Why::new(Status::Fallback, reason, why));
        Ok(Turned {
            body,
            session: self.opening.id.clone(),
            tools: Arc::new(tools),
            restored,
            turn: 0,
            compaction,
            prompt_tokens,
            report,
            fallback,
        })
    }
}

impl Asked {
    /// Records whether engine and record work. `told` is the number of engine failures that were recorded earlier.
    fn note_health(&self, shared: &Shared, session: &Session, told: &mut u64) {
        let (id, engines) = (&self.opening.id, shared.host.engines());
        let (wanted, failures) = (&engines.config().context.engine, session.engine_failures());
        let failed = |part, why: &str| shared.health.failed(&shared.metrics, id, part, why);
        let has_failed = failures > std::mem::replace(told, failures);
        if let Some(why) = session.stands_in() {
            failed("engine", &why);
        } else if has_failed {
            failed("engine", &format!("`{wanted}` failed; see the log"));
        } else if session.engine().name() != wanted {
            let runs = session.engine().name();
            failed("engine", &format!("`{runs}` runs in place of `{wanted}`"));
        } else if !session.is_recorded() {
            failed("store", "the session goes on in memory; see the log");
        } else {
            shared.health.is_well(id);
        }
    }

    /// The limit on the answer's tokens that the request names, or 0 if it names none.
    pub(crate) fn longest_answer(&self) -> u64 {
        let text = std::str::from_utf8(&self.body).unwrap_or_default();
        let wire = formats::split(text, Some(self.api.format()));
        wire.ok()
            .and_then(|wire| window::longest_answer(&wire))
            .unwrap_or(0)
    }

    /// Whether nobody needs to count to see that it does not fit.
    pub(crate) fn is_surely_too_large(&self) -> bool {
        (self.body.len() / 4) as u64 > self.opening.agent.context_length
    }

    /// The body made to fit by the built-in engine, without a session: what is left where the session cannot be had.
    pub(crate) fn fit(&self, shared: &Shared) -> Option<Bytes> {
        self.fitted(shared, &self.body, self.opening.agent.clone())
    }

    fn fitted(&self, shared: &Shared, body: &Bytes, agent: AgentWindow) -> Option<Bytes> {
        let options = SessionOptions {
            engine: Some("compressor".to_owned()),
            provider: Some(self.opening.provider.to_owned()),
            ..SessionOptions::default()
        };
        let engines = shared.host.engines();
        let session = Session::open(&engines, None, &self.opening.id, agent, options);
        let fitted = session.and_then(|mut session| {
            let options = TurnOptions {
                compact: Compact::Force,
                ..TurnOptions::default()
            };
            let text = std::str::from_utf8(body).unwrap_or_default();
            let turn = session.turn_with(text, Some(self.api.format()), &options)?;
            Ok(Bytes::from(turn.body.into_owned()))
        });
        fitted
            .inspect_err(|error| tracing::warn!("a request that does not fit: {error}"))
            .ok()
    }
}

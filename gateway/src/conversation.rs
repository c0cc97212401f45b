//! Reads one request and runs it through the host as a turn of a session. All functions here block.
//!
//! [`read`] comes first. It splits the body, recognizes requests that are no turns,
//! and finds the session by means of [`lineage`](crate::lineage). The result is a [`RequestKind`]:
//! either the request is passed on unchanged, or it becomes a [`TurnRequest`].
//! [`TurnRequest::turn`] then opens the session, puts hidden rounds back into the history, and lets
//! the engine compact. The result is a [`TurnResult`] with the body for the provider.
//!
//! If the provider says that this body is too long, [`TurnRequest::turn_within`] makes a smaller
//! one. If the host fails, [`TurnRequest::shorten`] shortens the body without a session.
//!
//! Sending the body and reading the answer is up to [`exchange`](crate::exchange).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use contexture::formats;
use contexture::providers::{ModelClient, UsageByModel};
use contexture::session::{
    AgentWindow, CompactionReport, KeptChange, OutcomeKind, RecordError, Session, SessionOptions,
};
use contexture::{Compact, TurnOptions};
use contexture_engine_api::Decision;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::account::{Cause, Compacted};
use crate::agent_model;
use crate::api::Api;
use crate::body::{self, History, HistoryMessage, SharedBody};
use crate::diff::SentMessages;
use crate::endpoint::{self, COMPACT};
use crate::failure::Failure;
use crate::gemini;
use crate::headers;
use crate::health::Failed;
use crate::hidden::{self, HiddenRound};
use crate::identity::MessageIdentity;
use crate::lineage::{self, LineageQuery};
use crate::references::{self, References};
use crate::repair;
use crate::session_key::{self, Scope, SessionKey};
use crate::sessions::{SessionCell, SessionGuard, SessionSpec, WindowLimit};
use crate::side_call;
use crate::stream::ToolNames;
use crate::trace;
use crate::unmanaged::{Status, UnmanagedReason};
use crate::{Shared, metrics, settings::Settings, window};

/// What kind of request this is, before anything is done with it.
pub(crate) enum RequestKind {
    /// The request is a turn of a conversation and goes through the host.
    Turn(Arc<TurnRequest>),
    PassThrough(PassThrough),
}

/// A request that is passed on unchanged, because it is a side call, has no messages, or belongs to
/// a conversation that the provider manages.
pub(crate) struct PassThrough {
    pub(crate) why: UnmanagedReason,
    /// The client's name for its session, if it sends one. Only the status page and the log use it.
    pub(crate) session: Option<String>,
    /// If the request asks for a summary of a known session: the conversation under which the
    /// answer is noted as a proof.
    pub(crate) summary_target: Option<lineage::SummaryTarget>,
    /// The same request as a turn of that session, so that its window can take the place of the
    /// client's history. It is never run.
    pub(crate) as_turn: Option<Arc<TurnRequest>>,
}

/// A request that becomes a turn: its body, the session that it belongs to, and how to open that
/// session.
#[derive(Debug)]
pub(crate) struct TurnRequest {
    pub(crate) api: Api,
    /// The program that sent it, for the metrics.
    pub(crate) sender: &'static str,
    pub(crate) body: SharedBody,
    /// What of the body was a reference to an item when it came.
    pub(crate) references: References,
    pub(crate) spec: SessionSpec,
    /// The agent's own model, with the client's credentials. It writes summaries if the
    /// configuration says so.
    agent_model: Option<Arc<ModelClient>>,
    found: lineage::LineageMatch,
    without_tools: bool,
    /// What the client pins and unpins with the headers of the request.
    pins: Vec<String>,
    unpins: Vec<String>,
    /// The identity of the last message, or 0 if there is none. Hidden rounds are stored by it.
    pub(crate) last: u64,
    /// The identity of each message, to find the positions at which hidden rounds are put back.
    identities: Vec<u64>,
    /// Why the turn could not be stored, once that is known. The inner None means that it is stored.
    pub(crate) not_stored: OnceLock<Option<String>>,
}

/// The result of a turn: the body for the provider, and what the rounds of its answer need to know.
#[derive(Debug, Clone)]
pub(crate) struct TurnResult {
    /// The body. Once it is sent, it is the client's, see [`take_body`](Self::take_body).
    pub(crate) body: SharedBody,
    /// The length in bytes of the body that was sent.
    pub(crate) sent_bytes: usize,
    /// Whether the body that was sent is another one than the client's.
    pub(crate) is_changed: bool,
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

/// The most messages of a request that becomes a turn. A message of a few bytes costs as much time
/// and memory as one of a few kilobytes, so the limit on bytes does not bound them.
const MAX_MESSAGES: usize = 50_000;

/// How often an engine is asked to compact further if its result is still too large for the
/// provider.
const MAX_RECOMPACTIONS: usize = 2;

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

/// A request whose body may be a turn, with everything that is needed to read it on another thread.
#[derive(Debug, Clone)]
pub(crate) struct PostRequest {
    pub(crate) api: Api,
    pub(crate) headers: http::HeaderMap,
    pub(crate) url: String,
    pub(crate) tenant: Option<String>,
    pub(crate) is_owner: bool,
    pub(crate) body: Bytes,
}

impl PostRequest {
    /// The scope of sessions that this request may see: its tenant's, or those without a tenant.
    fn scope(&self) -> Scope<'_> {
        Scope {
            tenant: self.tenant.as_deref(),
        }
    }

    /// Whether the request came with a token. If so, the session's name alone is enough to continue
    /// the session.
    fn is_trusted(&self) -> bool {
        self.is_owner || self.tenant.is_some()
    }
}

/// Reads a request, decides what kind it is, and finds or begins its session.
///
/// Side calls, requests without messages and conversations that the provider manages are passed on
/// unchanged. Everything else becomes a turn.
///
/// # Errors
/// The body is not text or not in the API's format, the model's window is unknown, or the record
/// cannot be read.
pub(crate) fn read(
    shared: &Shared,
    settings: &Settings,
    post: &PostRequest,
) -> Result<RequestKind, Failure> {
    let PostRequest {
        api,
        headers,
        url,
        body,
        ..
    } = post;
    let _span = tracing::info_span!("ingest").entered();
    let api = *api;
    let format = api.format();
    let text = ByteString::try_from(body.clone())
        .map_err(|error| Failure::new("not_text", format!("the body is not UTF-8: {error}")))?;
    let body =
        SharedBody::split(text, Some(format)).map_err(|error| Failure::new("format", error))?;
    let wire = body.wire();
    // OpenAI's compact endpoint shares its format with Responses, so only the path tells them
    // apart.
    let asks_for_block = url
        .split('?')
        .next()
        .is_some_and(|path| path.ends_with(COMPACT));
    let why = if asks_for_block {
        Some(UnmanagedReason::new(
            Status::SideCall,
            "side call",
            "compact",
        ))
    } else if let Some(purpose) = side_call::purpose(&wire) {
        Some(UnmanagedReason::new(Status::SideCall, "side call", purpose))
    } else if let Some(manages) = session_key::provider_manages(&wire) {
        Some(UnmanagedReason::new(Status::NotManaged, manages, ""))
    } else if wire.messages.is_empty() {
        Some(UnmanagedReason::new(Status::NotManaged, "no messages", ""))
    } else {
        None
    };
    let key = session_key::key(headers, &wire);
    let Some(why) = why else {
        let request = turn_request(shared, settings, post, body, &key)?;
        return Ok(match request {
            Ok(request) => RequestKind::Turn(Arc::new(request)),
            Err(why) => RequestKind::PassThrough(PassThrough {
                why,
                session: key.name,
                summary_target: None,
                as_turn: None,
            }),
        });
    };
    let summary_target = summary_target(shared, post, &wire, &key, system_hash(&wire), &why)
        .map_err(|error| Failure::new("record", error))?;
    let as_turn = summary_target.as_ref().and_then(|_| {
        let request = turn_request(shared, settings, post, body, &key);
        let request = request.ok()?.ok()?;
        let request = TurnRequest {
            // The client would be given a call that it does not know.
            without_tools: true,
            ..request
        };
        let is_of_session = request.found.is_known && request.references.is_empty();
        is_of_session.then(|| Arc::new(request))
    });
    Ok(RequestKind::PassThrough(PassThrough {
        summary_target,
        as_turn,
        session: key.name,
        why,
    }))
}

/// Finds or begins the session of a request that is to become a turn. Returns the reason if it
/// cannot become one, because it refers to items that are not known.
///
/// # Errors
/// The request has too many messages, the model's window is unknown, or the record cannot be read.
fn turn_request(
    shared: &Shared,
    settings: &Settings,
    post: &PostRequest,
    body: SharedBody,
    key: &SessionKey,
) -> Result<Result<TurnRequest, UnmanagedReason>, Failure> {
    let PostRequest {
        api, headers, url, ..
    } = post;
    let api = *api;
    let format = api.format();
    let wire = body.wire();
    let system = system_hash(&wire);
    let stored = |id: &str| stored_item(shared, post, &wire, key, id);
    let expanded = references::expand(&shared.items, post.tenant.as_deref(), &body, stored);
    let (body, references) = match expanded {
        Ok(Some(expanded)) => expanded,
        Ok(None) => (body, References::default()),
        Err(id) => {
            let detail = format!(
                "the item {id} did not come through this gateway; a client that sends whole items (`store: false`) is managed"
            );
            let why = UnmanagedReason::new(Status::NotManaged, "item_reference", detail);
            return Ok(Err(why));
        }
    };
    let wire = body.wire();
    let model = wire.model.as_deref();
    // Azure and Gemini name the model in the path.
    let model = model
        .or_else(|| endpoint::model_in(url))
        .unwrap_or_default();
    let count = wire.messages.len();
    if count > MAX_MESSAGES {
        return Err(Failure::new(
            "too_many_messages",
            format!("the request has {count} messages, and a session at most {MAX_MESSAGES}"),
        ));
    }
    // Without a window, no engine could decide when to compact.
    let Some(agent) = window::of(settings, headers, &wire, model) else {
        return Err(Failure::new(
            "unknown_window",
            format!(
                "the context window of model `{model}` is unknown: set `context_length` in `compression.models` or in `model`"
            ),
        ));
    };
    let identities = shared.identities.identify(format, &wire.messages);
    let name = name_of(key, &identities);
    let query = LineageQuery {
        format,
        system,
        messages: &wire.messages,
        identities: &identities,
        compacted: &wire.compacted,
        identities_before: &shared.identities.identify(format, &wire.compacted),
        is_continued: session_key::is_continued(&wire) || !wire.compacted.is_empty(),
        is_exact: key.is_exact,
        is_named: key.name.is_some(),
        is_trusted: post.is_trusted(),
    };
    let (record, scope) = (shared.host.record(), post.scope());
    let found = lineage::find(record, &shared.sessions, &scope, &name, &query)
        .map_err(|error| Failure::new("record", error))?;
    let identities: Vec<u64> = identities.iter().map(|message| message.identity).collect();
    let without_tools = forbids_tools(api, &wire);
    let engines = shared.host.engines();
    // In observe mode nobody waits for the result, so the client's credentials must not pay for
    // summaries.
    let is_asked = !settings.observe;
    let agent_model = is_asked.then(|| {
        let headers = headers::upstream(&post.headers, true);
        agent_model::of(
            engines.config(),
            api,
            url,
            headers,
            model,
            agent.context_length,
        )
    });
    Ok(Ok(TurnRequest {
        agent_model: agent_model.flatten(),
        api,
        sender: metrics::agent(headers),
        spec: SessionSpec {
            id: found.session.clone(),
            tenant: post.tenant.clone(),
            agent,
            provider: settings.cache_provider(api),
            offer_tools: !settings.observe,
            wait: settings.max_hold,
        },
        found,
        without_tools,
        pins: headers::texts(headers, headers::PIN),
        unpins: headers::texts(headers, headers::UNPIN),
        last: identities.last().copied().unwrap_or_default(),
        identities,
        not_stored: OnceLock::new(),
        body,
        references,
    }))
}

/// The item with this id, if it is stored with a session that the request may continue. A record
/// that cannot be read has none.
fn stored_item(
    shared: &Shared,
    post: &PostRequest,
    wire: &formats::WireBody<'_>,
    key: &SessionKey,
    id: &str,
) -> Option<String> {
    let record = shared.host.record();
    let first = wire.messages.get(..1)?;
    let identities = shared.identities.identify(post.api.format(), first);
    let name = name_of(key, &identities);
    let sessions = lineage::sessions(record, &post.scope(), &name).ok()?;
    let mut found = (sessions.iter()).filter_map(|session| {
        let item = record.kept_text(session, &references::key(id));
        item.ok().flatten()
    });
    found.next()
}

/// Whether the engine may offer no tools with this request. A client that forbids tool calls must not
/// get one, and neither must a client that fetches the answer with another request, because that one
/// passes unchanged. Most models of the Gemini API refuse functions beside Google's own tools.
fn forbids_tools(api: Api, wire: &formats::WireBody<'_>) -> bool {
    if api != Api::Gemini {
        let is_fetched = wire.member("background") == Some("true");
        return is_fetched
            || matches!(
                wire.member("tool_choice"),
                Some("\"none\"" | "{\"type\":\"none\"}" | "{\"type\": \"none\"}")
            );
    }
    let config = gemini::member(wire, "toolConfig");
    let mode = &gemini::field(&config, "functionCallingConfig")["mode"];
    let tools: Value = wire
        .tools
        .and_then(|tools| serde_json::from_str(tools).ok())
        .unwrap_or_default();
    let is_googles = |tool: &Value| gemini::field(tool, "functionDeclarations").is_null();
    mode.as_str()
        .is_some_and(|mode| mode.eq_ignore_ascii_case("none"))
        || tools
            .as_array()
            .is_some_and(|tools| tools.iter().any(is_googles))
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

/// Finds the session that a side call asks a summary of, so that the summary can be noted there.
/// Returns None if the side call asks for something else, or if the request shows no session.
///
/// An agent that compacts its own history begins the next request with this summary. The noted
/// fingerprints then show that the request continues the session.
///
/// # Errors
/// The record cannot be read.
fn summary_target(
    shared: &Shared,
    post: &PostRequest,
    wire: &formats::WireBody<'_>,
    key: &SessionKey,
    system: u64,
    why: &UnmanagedReason,
) -> Result<Option<lineage::SummaryTarget>, RecordError> {
    let messages = match (why.reason, why.detail.as_str(), wire.messages.split_last()) {
        (_, "compact", _) => &wire.messages,
        // The last message is the agent's order, and is not part of the history.
        (_, "summary", Some((_, messages))) | ("compaction_trigger", _, Some((_, messages))) => {
            messages
        }
        _ => return Ok(None),
    };
    let format = post.api.format();
    let identities = shared.identities.identify(format, messages);
    let query = LineageQuery {
        format,
        system,
        messages,
        identities: &identities,
        compacted: &wire.compacted,
        identities_before: &shared.identities.identify(format, &wire.compacted),
        is_continued: false,
        // Agents change the history for a summary request. It is still the same conversation.
        is_exact: true,
        is_named: key.name.is_some(),
        is_trusted: post.is_trusted(),
    };
    let name = name_of(key, &identities);
    lineage::find_known(shared.host.record(), &post.scope(), &name, &query)
}

/// The name under which conversations of this request are kept. It is the client's name for its
/// session, or a hash of the first message if the client sends no name. The system prompt is not part
/// of it, because many agents write the time or the state of the project there.
fn name_of(key: &SessionKey, identities: &[MessageIdentity]) -> String {
    match &key.name {
        Some(name) => name.clone(),
        None => {
            let first = identities.first().map_or(0, |message| message.identity);
            format!("h-{first:016x}")
        }
    }
}

/// Hashes the system prompt. Lines with Claude Code's billing header are left out, because they
/// change from request to request.
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

/// Logs an error of the record. The request continues without the note.
pub(crate) fn log_record_error(written: Result<(), RecordError>) {
    if let Err(error) = written {
        tracing::warn!("cannot update the record: {error}");
    }
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
    /// first. The last one has the reason `overtaken`, and the caller may try again.
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
        let holds = self.found.still_holds(shared.host.record());
        if !holds.map_err(|error| Failure::new("record", error))? {
            let detail = "another request continued the session at the same time";
            return Err(Failure::new("overtaken", detail));
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

    /// The changes of the record that note that the conversation had this request. Call
    /// [`noted`](Self::noted) after they were made.
    pub(crate) fn changes(&self) -> impl Iterator<Item = KeptChange<'_>> {
        let items = self.references.changes(&self.spec.id);
        self.found.changes().chain(items)
    }

    /// Wakes up [`until_noted`](Self::until_noted), also if the request could not be noted.
    pub(crate) fn noted(&self) {
        self.found.noted();
    }

    /// Waits until the request is noted in the record, or cannot be.
    pub(crate) async fn until_noted(&self) {
        self.found.until_noted().await;
    }

    /// The changes of the record that note the model's answer. When the client sends it back, the
    /// answer proves that the request continues this session. Empty if there is nothing to note.
    pub(crate) fn answer_changes(&self, shared: &Shared, answer: &[String]) -> Vec<KeptChange<'_>> {
        let identities = shared.identities.identify(self.api.format(), answer);
        self.found.answer_changes(&identities)
    }

    /// Remembers the items of an answer, if the client may refer to them.
    pub(crate) fn remember(&self, shared: &Shared, answer: &[String]) {
        if references::are_stored(self.api, &self.body) {
            let tenant = self.spec.tenant.as_deref();
            let is_saved = !self.references.is_empty();
            shared.items.remember(tenant, answer, is_saved);
        }
    }

    /// The changes of the record that store the items of an answer. There are none if the client did
    /// not refer to items so far.
    pub(crate) fn item_changes(&self, answer: &[String]) -> Vec<KeptChange<'static>> {
        if self.references.is_empty() || !references::are_stored(self.api, &self.body) {
            return Vec::new();
        }
        let items = answer.iter();
        items
            .filter_map(|item| references::change(&self.spec.id, item))
            .collect()
    }

    /// The session that this request may continue, although it began its own. None if the session was
    /// found, or if there is no candidate.
    pub(crate) fn follows(&self) -> Option<&lineage::Follows> {
        self.found.follows.as_ref()
    }

    /// The body that a turn would send, without changing the session. Token counting uses it.
    /// Returns None if the request continues no known session, because then there is nothing to
    /// compact yet.
    ///
    /// # Errors
    /// The session cannot be opened.
    pub(crate) fn preview(
        &self,
        shared: &Shared,
        cell: &mut SessionCell,
    ) -> Result<Option<Bytes>, Failure> {
        if !self.found.is_known {
            return Ok(None);
        }
        let guard = cell.acquire_unchanged(&shared.host, &self.spec)?;
        let history = self.history(&[], &guard.hidden.all);
        let wire = history.of(&self.body);
        let preview = guard.session.preview(&wire, self.without_tools);
        Ok(preview.map(|text| match text {
            Cow::Borrowed(_) => self.body.text().as_bytes().clone(),
            Cow::Owned(text) => Bytes::from(text),
        }))
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
        let compaction = turn.compaction.as_ref().map(|report| {
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
            trace::compacted(&span, outcome, report);
            // The notes of a summary that the configured model did not write say why.
            let summary = match report.degraded {
                true => format!("; summary=digest: {}", report.notes.join("; ")),
                false => String::new(),
            };
            tracing::info!(
                session = %self.spec.id, engine = %report.engine, outcome,
                before = report.tokens_before, after = report.tokens_after,
                window = guard.session.state().context_length,
                elapsed_ms = report.elapsed_ms as u64,
                trigger = %trigger(compact, &turn.decision, report).1,
                reason = %format_args!("{}{summary}", report.reason), "compaction"
            );
            format!("{outcome}; {}{summary}", report.reason)
        });
        if turn.changed {
            let bytes = self.body.text().len();
            let saved = bytes.saturating_sub(turn.body.len()) as f64;
            shared
                .metrics
                // A rough estimate of four bytes per token is enough for a total.
                .add("saved_tokens_total", "", (saved / 4.0).round());
        }
        let is_made = |report: &&CompactionReport| matches!(report.outcome, OutcomeKind::Compacted);
        let compacted = turn.compaction.as_ref().filter(is_made).map(|report| {
            let messages = history.of(&self.body).messages;
            let (cause, trigger) = trigger(compact, &turn.decision, report);
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
        let fallback = guard.session.stands_in();
        let reason = match guard.session.engine().quarantine() {
            Some(_) => "quarantine",
            None => "fallback",
        };
        let fallback = fallback.map(|why| UnmanagedReason::new(Status::Fallback, reason, why));
        Ok(TurnResult {
            body,
            sent_bytes: 0,
            is_changed: false,
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
            fallback,
        })
    }
}

impl TurnRequest {
    /// Pins and unpins what the request's headers say. Words that cannot be pinned cost no request.
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

    /// Records for the health check whether the session's engine works. `told` is the number of
    /// engine failures that were recorded earlier. It is updated, so that each failure counts once.
    fn note_health(&self, shared: &Shared, session: &Session, told: &mut u64) {
        let (id, engines) = (&self.spec.id, shared.host.engines());
        let (wanted, failures) = (&engines.config().context.engine, session.engine_failures());
        let failed = |part, why: &str| {
            let what = (&**id, Failed::Engine);
            shared.health.failed(&shared.metrics, what, part, why);
        };
        let has_failed = failures > std::mem::replace(told, failures);
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

    /// Records for the health check and for the headers of the answer whether the turn is stored.
    pub(crate) fn note_stored(&self, shared: &Shared, not_stored: Option<&str>) {
        let (id, health) = (&self.spec.id, &shared.health);
        match not_stored {
            Some(why) => health.failed(&shared.metrics, (id, Failed::Record), "store", why),
            None => health.works(id, Failed::Record),
        }
        // The request may have been stored before.
        let _ = self.not_stored.set(not_stored.map(str::to_owned));
    }

    /// The limit on the answer's tokens that the request names. Returns 0 if it names none or
    /// cannot be parsed.
    pub(crate) fn longest_answer(&self) -> u64 {
        window::longest_answer(&self.body.wire()).unwrap_or(0)
    }

    /// Whether the body certainly exceeds the window. It divides the bytes by four, so that no
    /// tokenizer has to run.
    pub(crate) fn is_surely_too_large(&self) -> bool {
        (self.body.text().len() / 4) as u64 > self.spec.agent.context_length
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

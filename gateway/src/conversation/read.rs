//! Reads a request: decides what kind it is, and finds or begins its session. Blocks.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use bytestring::ByteString;
use contexture::formats::{self, FormatError};
use contexture::providers::ModelClient;
use contexture::session::{AgentWindow, RecordError};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{NoTurn, PassThrough, TurnRequest, is_surely_too_large};
use crate::agent_model;
use crate::api::Api;
use crate::body::SharedBody;
use crate::endpoint::{self, COMPACT};
use crate::failure::Failure;
use crate::gemini;
use crate::headers;
use crate::identity::MessageIdentity;
use crate::lineage::{self, LineageQuery};
use crate::references::{self, References};
use crate::session_key::{self, COMPACTION_TRIGGER, Scope, SessionKey};
use crate::sessions::SessionSpec;
use crate::side_call;
use crate::unmanaged::{Status, UnmanagedReason};
use crate::{Shared, metrics, settings::Settings, window};

/// The most messages of a request that becomes a turn. A message of a few bytes costs as much time
/// and memory as one of a few kilobytes, so the limit on bytes does not bound them.
const MAX_MESSAGES: usize = 50_000;

/// The purpose of a request to OpenAI's compact endpoint.
const COMPACT_CALL: &str = "compact";

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
/// # Errors
/// Side calls, requests without messages and conversations that the provider manages are passed on
/// unchanged. Everything else becomes a turn, or fails: the body is not text or not in the API's
/// format, the model's window is unknown, or the record cannot be read.
pub(crate) fn read(
    shared: &Shared,
    settings: &Settings,
    post: &PostRequest,
) -> Result<Arc<TurnRequest>, NoTurn> {
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
    let no_messages = || UnmanagedReason::new(Status::NotManaged, "no messages", "");
    let body = match SharedBody::split(text, Some(format)) {
        // Responses takes a template in place of an input.
        Err(FormatError::NotThis { .. }) => {
            return Err(NoTurn::passed_on(no_messages(), None));
        }
        split => split.map_err(|error| Failure::new("format", error))?,
    };
    let wire = body.wire();
    // OpenAI's compact endpoint shares its format with Responses, so only the path tells them
    // apart.
    let asks_for_block = url
        .split('?')
        .next()
        .is_some_and(|path| path.ends_with(COMPACT));
    let key = session_key::key(headers, &wire);
    let why = if asks_for_block {
        Some(UnmanagedReason::new(
            Status::SideCall,
            "side call",
            COMPACT_CALL,
        ))
    } else if let Some(purpose) = side_call::purpose(&wire) {
        Some(UnmanagedReason::new(Status::SideCall, "side call", purpose))
    } else if let Some(manages) = session_key::provider_manages(&wire) {
        Some(UnmanagedReason::new(Status::NotManaged, manages, ""))
    } else if wire.messages.is_empty() && !begins_at_boundary(&wire, &key) {
        Some(no_messages())
    } else {
        None
    };
    let Some(why) = why else {
        return turn_request(shared, settings, post, body, &key).map(Arc::new);
    };
    let summary_target = summary_target(shared, post, &wire, &key, &why).map_err(Failure::from)?;
    // It may bring the history as a text of its own, which is no message of the session. Finding a
    // session for it reserves an id, which a turn may need, so it is done only to shorten the text.
    let is_too_large = || {
        let agent = window::of(settings, headers, &wire, model_of(post, &wire));
        agent.is_some_and(|agent| is_surely_too_large(body.text().as_bytes(), &agent))
    };
    let sums_up = why.detail == side_call::SUMMARY;
    let as_turn = match summary_target.is_some() || (sums_up && is_too_large()) {
        true => as_turn(shared, settings, post, body, &key, summary_target.as_ref()),
        false => None,
    };
    Err(NoTurn::PassThrough(Box::new(PassThrough {
        summary_target,
        as_turn,
        session: key.name,
        why,
    })))
}

/// Whether a request ends with a compaction that the provider made itself, as Codex sends one in the
/// middle of its work. Without a name, nothing would tell whose it is.
fn begins_at_boundary(wire: &formats::WireBody<'_>, key: &SessionKey) -> bool {
    !wire.compacted.is_empty() && key.name.is_some()
}

/// The turn that a request for a summary of the session `target` would be. None if it cannot be one,
/// or refers to items.
fn as_turn(
    shared: &Shared,
    settings: &Settings,
    post: &PostRequest,
    body: SharedBody,
    key: &SessionKey,
    target: Option<&lineage::SummaryTarget>,
) -> Option<Arc<TurnRequest>> {
    let mut request = turn_request(shared, settings, post, body, key).ok()?;
    if !request.references.is_empty() {
        return None;
    }
    if let Some(target) = target {
        request.spec.id = target.session().to_owned();
        request.found.is_known = true;
    }
    // The engine's tools are in the prompt that the provider has cached, and stay if the client's do.
    // Without the client's, nothing of it is read from the cache.
    request.without_tools |= !request.body.wire().offers_tools();
    Some(Arc::new(request))
}

/// The model that a request names. Azure and Gemini name it in the path.
fn model_of<'r>(post: &'r PostRequest, wire: &'r formats::WireBody<'_>) -> &'r str {
    let named = wire.model.as_deref();
    named
        .or_else(|| endpoint::model_in(&post.url))
        .unwrap_or_default()
}

/// Finds or begins the session of a request that is to become a turn.
///
/// # Errors
/// The request refers to items that are not known, or has too many messages, the model's window is
/// unknown, or the record cannot be read.
fn turn_request(
    shared: &Shared,
    settings: &Settings,
    post: &PostRequest,
    body: SharedBody,
    key: &SessionKey,
) -> Result<TurnRequest, NoTurn> {
    let PostRequest { api, headers, .. } = post;
    let api = *api;
    let format = api.format();
    let wire = body.wire();
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
            return Err(NoTurn::passed_on(why, key.name.clone()));
        }
    };
    let wire = body.wire();
    let model = model_of(post, &wire);
    let count = wire.messages.len();
    if count > MAX_MESSAGES {
        let detail =
            format!("the request has {count} messages, and a session at most {MAX_MESSAGES}");
        return Err(Failure::new("too_many_messages", detail).into());
    }
    // Without a window, no engine could decide when to compact.
    let Some(agent) = window::of(settings, headers, &wire, model) else {
        let detail = format!(
            "the context window of model `{model}` is unknown: set `context_length` in `compression.models` or in `model`"
        );
        return Err(Failure::new("unknown_window", detail).into());
    };
    let identities = shared.identities.identify(format, &wire.messages);
    let name = name_of(key, &identities);
    let identities_before = shared.identities.identify(format, &wire.compacted);
    let query = query(post, &wire, key, &identities, &identities_before);
    let (record, scope) = (shared.host.record(), post.scope());
    let found =
        lineage::find(record, &shared.sessions, &scope, &name, &query).map_err(Failure::from)?;
    let identities: Vec<u64> = identities.iter().map(|message| message.identity).collect();
    let without_tools = forbids_tools(api, &wire);
    Ok(TurnRequest {
        agent_model: agent_model(shared, settings, post, model, &agent),
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
    })
}

/// The agent's own model with the client's credentials, if the configuration says that it writes
/// summaries. None in observe mode, because nobody waits for the result there, so the client must not
/// pay for it.
fn agent_model(
    shared: &Shared,
    settings: &Settings,
    post: &PostRequest,
    model: &str,
    agent: &AgentWindow,
) -> Option<Arc<ModelClient>> {
    if settings.observe {
        return None;
    }
    let headers = headers::upstream(&post.headers, true);
    let engines = shared.host.engines();
    let (config, window) = (engines.config(), agent.context_length);
    agent_model::of(config, post.api, &post.url, headers, model, window)
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
    why: &UnmanagedReason,
) -> Result<Option<lineage::SummaryTarget>, RecordError> {
    let said = side_call::before_instructions(&wire.messages);
    let messages = match (why.reason, why.detail.as_str(), said.split_last()) {
        (_, COMPACT_CALL, _) => wire.messages.as_slice(),
        // The last message that was said is the agent's order, and is not part of the history.
        (_, side_call::SUMMARY, Some((_, messages)))
        | (COMPACTION_TRIGGER, _, Some((_, messages))) => messages,
        _ => return Ok(None),
    };
    let format = post.api.format();
    let identities = shared.identities.identify(format, messages);
    let identities_before = shared.identities.identify(format, &wire.compacted);
    let query = LineageQuery {
        messages,
        is_continued: false,
        // Agents change the history for a summary request. It is still the same conversation.
        is_exact: true,
        ..query(post, wire, key, &identities, &identities_before)
    };
    let name = name_of(key, &identities);
    lineage::find_known(shared.host.record(), &post.scope(), &name, &query)
}

/// What a request tells of its conversation.
fn query<'r>(
    post: &PostRequest,
    wire: &'r formats::WireBody<'_>,
    key: &SessionKey,
    identities: &'r [MessageIdentity],
    identities_before: &'r [MessageIdentity],
) -> LineageQuery<'r> {
    LineageQuery {
        format: post.api.format(),
        system: system_hash(wire),
        messages: &wire.messages,
        identities,
        compacted: &wire.compacted,
        identities_before,
        is_continued: session_key::is_continued(wire) || !wire.compacted.is_empty(),
        is_exact: key.is_exact,
        is_named: key.name.is_some(),
        is_trusted: post.is_trusted(),
    }
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

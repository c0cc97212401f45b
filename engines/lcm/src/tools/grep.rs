//! `lcm_grep`: a search over everything that was ever said, its hits by the summary that covers them.

use std::collections::HashMap;

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::Page;
use super::{Context, bounded, cursor_schema, invalid, max_tokens_schema, object};
use crate::clock::{parse, rfc3339};
use crate::dag::NodeId;
use crate::nodes;
use crate::search::{Answer, Ask, Hit, HitKind, Mode, Pattern, Query, Scope, Sort};
use crate::store::{Key, SessionId};

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 200;
const MAX_CONTEXT: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pattern: Option<String>,
    question: Option<String>,
    mode: Option<ModeName>,
    scope: Option<ScopeName>,
    sessions: Option<Vec<String>>,
    role: Option<String>,
    tool: Option<String>,
    since: Option<Value>,
    until: Option<Value>,
    context: Option<usize>,
    limit: Option<usize>,
    cursor: Option<String>,
    sort: Option<SortName>,
    case: Option<bool>,
    max_tokens: Option<u64>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ModeName {
    Regex,
    FullText,
    Literal,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ScopeName {
    Messages,
    Summaries,
    Files,
    All,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum SortName {
    Relevance,
    Recency,
    Oldest,
}

pub(super) fn parameters() -> Value {
    let time = |what: &str| {
        json!({"type": ["string", "number"],
               "description": format!("{what}: 2026-01-31, 2026-01-31T23:59:59Z, or Unix seconds")})
    };
    object(
        json!({
            "pattern": {"type": "string", "description": "What to find, exactly"},
            "question": {
                "type": "string",
                "description": "In place of `pattern`: ranks what shares words with it; candidates, not a complete list",
            },
            "mode": {
                "enum": ["full_text", "literal", "regex"],
                "description": "full_text (default): every term as a whole word, quotes make a phrase, case ignored; \
                                literal: the text anywhere; regex: linear-time, `(?i)` ignores case",
            },
            "scope": {"enum": ["all", "messages", "summaries", "files"], "description": "Where to look; all by default"},
            "sessions": {
                "type": "array", "items": {"type": "string"},
                "description": "Other sessions to search, where the configuration grants it; this one by default",
            },
            "role": {"type": "string", "description": "Only messages of this role: user, assistant or tool"},
            "tool": {"type": "string", "description": "Only results of this tool"},
            "since": time("Only what was said then or later"),
            "until": time("Only what was said then or before"),
            "context": {"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT, "description": "Lines around each match"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "Hits on a page; 20 by default"},
            "cursor": cursor_schema(),
            "sort": {"enum": ["relevance", "recency", "oldest"]},
            "case": {"type": "boolean", "description": "Whether case matters; by default only in literal and regex"},
            "max_tokens": max_tokens_schema(),
        }),
        &[],
    )
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let max_tokens = bounded(arguments.max_tokens);
    let mut query = query(context, &arguments)?;
    let answer = search(context, &query)?;
    let (hits, shown) = hits(context, &answer, max_tokens)?;
    let mut next_cursor = answer.next_cursor.clone();
    if shown < answer.hits.len() {
        // The size ended the page before its limit did: the same page, as long as it was, has its cursor.
        query.limit = shown;
        next_cursor = search(context, &query)?.next_cursor;
    }
    Ok(json!({
        "total": answer.total,
        "total_is_exact": answer.total_is_exact,
        "searched": {
            "sessions": answer.searched.sessions,
            "messages": answer.searched.messages,
            "summaries": answer.searched.summaries,
            "messages_read": answer.searched.messages_read,
            "bytes_read": answer.searched.bytes_read,
            "messages_not_indexed": answer.searched.messages_not_indexed,
        },
        "groups": groups(context, &hits)?,
        "hits": hits.into_iter().map(|(_, hit)| hit).collect::<Vec<_>>(),
        "next_cursor": next_cursor,
    }))
}

/// Searches; a call that the host gives up ends soon.
pub(super) fn search(context: &Context<'_>, query: &Query) -> Result<Answer, EngineError> {
    let services = &context.session.services;
    Ok(context
        .session
        .store
        .search(query, &|| services.is_cancelled())?)
}

fn query(context: &Context<'_>, arguments: &Arguments) -> Result<Query, EngineError> {
    let ask = match (&arguments.pattern, &arguments.question) {
        (Some(pattern), None) => Ask::Pattern(Pattern {
            mode: match arguments.mode {
                None | Some(ModeName::FullText) => Mode::FullText,
                Some(ModeName::Literal) => Mode::Literal,
                Some(ModeName::Regex) => Mode::Regex,
            },
            text: pattern.clone(),
            case_sensitive: arguments.case,
        }),
        (None, Some(question)) => Ask::Question(question.clone()),
        _ => {
            return Err(invalid(
                "lcm_grep takes either `pattern` (exact) or `question` (ranked)",
            ));
        }
    };
    let time = |key: &str, value: &Option<Value>| -> Result<Option<i64>, EngineError> {
        let Some(value) = value else { return Ok(None) };
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let time = parse(&text).ok_or_else(|| {
            invalid(format!(
                "`{key}` is {value}; a time is 2026-01-31, 2026-01-31T23:59:59Z, or Unix seconds"
            ))
        });
        time.map(Some)
    };
    let sessions = match &arguments.sessions {
        None => vec![context.session.id],
        Some(names) => {
            let ids = names.iter().map(|name| context.scope(Some(name)));
            ids.collect::<Result<_, _>>()?
        }
    };
    Ok(Query {
        scope: match arguments.scope {
            None | Some(ScopeName::All) => Scope::All,
            Some(ScopeName::Messages) => Scope::Messages,
            Some(ScopeName::Summaries) => Scope::Summaries,
            Some(ScopeName::Files) => Scope::Files,
        },
        sessions,
        role: arguments.role.clone(),
        tool: arguments.tool.clone(),
        since_ms: time("since", &arguments.since)?,
        until_ms: time("until", &arguments.until)?,
        sort: arguments.sort.map(|sort| match sort {
            SortName::Relevance => Sort::Relevance,
            SortName::Recency => Sort::Recency,
            SortName::Oldest => Sort::Oldest,
        }),
        limit: arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT),
        context_lines: arguments.context.unwrap_or(0).min(MAX_CONTEXT),
        cursor: arguments.cursor.clone(),
        ..Query::new(context.session.id, ask)
    })
}

/// The summary that covers a hit, in which session.
type Covered = Option<(SessionId, NodeId)>;

/// The hits as JSON, as many as there is room for, each with the summary that covers it.
fn hits(
    context: &Context<'_>,
    answer: &Answer,
    max_tokens: u64,
) -> Result<(Vec<(Covered, Value)>, usize), EngineError> {
    let mut of_session: HashMap<SessionId, Vec<Key>> = HashMap::new();
    for hit in &answer.hits {
        if hit.kind != HitKind::Summary {
            of_session
                .entry(hit.key.session())
                .or_default()
                .push(hit.key);
        }
    }
    let mut covering: HashMap<Key, NodeId> = HashMap::new();
    for (session, keys) in of_session {
        covering.extend(nodes::covering(&context.session.store, session, &keys)?);
    }
    let names: HashMap<SessionId, String> = match answer.searched.sessions > 1 {
        true => {
            let sessions = context.session.store.sessions()?;
            sessions
                .into_iter()
                .map(|info| (info.id, info.name))
                .collect()
        }
        false => HashMap::new(),
    };
    let mut page = Page::new(max_tokens, &context.session.services);
    let mut covered = Vec::new();
    for hit in &answer.hits {
        let node = match hit.kind {
            HitKind::Summary => Some(nodes::id_of(hit.key.0)),
            _ => covering.get(&hit.key).copied(),
        };
        let mut item = item(hit, node);
        if let Some(name) = names.get(&hit.key.session()) {
            item["session"] = json!(name);
        }
        if !page.push(item) {
            break;
        }
        covered.push(node.map(|node| (hit.key.session(), node)));
    }
    let shown = page.items.len();
    Ok((covered.into_iter().zip(page.items).collect(), shown))
}

fn item(hit: &Hit, covered_by: Option<NodeId>) -> Value {
    let (id, kind, file) = match hit.kind {
        HitKind::Message { id } => (id.to_string(), "message", None),
        HitKind::File { id, file } => (id.to_string(), "file", Some(format!("f{}", file.0))),
        HitKind::Summary => (nodes::id_of(hit.key.0).to_string(), "summary", None),
    };
    let mut item = json!({
        "id": id,
        "kind": kind,
        "role": hit.role,
        "at": hit.at_ms.map(rfc3339),
        "snippet": hit.snippet.text,
        "line": hit.snippet.line,
        "matches": hit.snippet.matches,
    });
    if let Some(tool) = &hit.tool {
        item["tool"] = json!(tool);
    }
    if let Some(file) = file {
        item["file"] = json!(file);
    }
    if let Some(node) = covered_by.filter(|_| hit.kind != HitKind::Summary) {
        item["covered_by"] = json!(node.to_string());
    }
    if !hit.live {
        item["in_conversation"] = json!(false);
    }
    item
}

/// The hits of this page by the summary of the window that covers them; those that none covers last.
fn groups(context: &Context<'_>, hits: &[(Covered, Value)]) -> Result<Vec<Value>, EngineError> {
    let mut order: Vec<Covered> = Vec::new();
    let mut ids: HashMap<Covered, Vec<&Value>> = HashMap::new();
    for (covered, hit) in hits {
        if !ids.contains_key(covered) {
            order.push(*covered);
        }
        ids.entry(*covered).or_default().push(&hit["id"]);
    }
    order.sort_by_key(Option::is_none);
    let mut groups = Vec::new();
    for covered in order {
        let mut group = json!({"summary": null, "hits": ids.get(&covered)});
        if let Some((session, node)) = covered
            && let Some(placed) = nodes::node(&context.session.store, session, node)?
        {
            let node = placed.node;
            group["summary"] = json!(node.id.to_string());
            group["messages"] = json!(node.messages);
            group["first"] = json!(node.first.to_string());
            group["last"] = json!(node.last.to_string());
            group["from"] = json!(node.from_ms.map(rfc3339));
            group["to"] = json!(node.to_ms.map(rfc3339));
        }
        groups.push(group);
    }
    Ok(groups)
}

//! `lcm_grep`: a search over all stored messages and summaries.
//!
//! The tool turns its arguments into a query, see `arguments`, and runs the search. What it adds is
//! the connection to the window. Each hit says which summary covers it, and the hits of a page are
//! grouped by that summary. The model can then expand one summary instead of reading many hits.
//!
//! If there is little room, groups and optional fields are left out. Hits that do not fit come with
//! the next page, since each hit has a cursor of its own.

mod arguments;

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::EngineError;
use serde_json::{Value, json};

use super::page::{Page, is_lean, within};
use super::{Context, put, put_time};
use crate::dag::{Node, NodeId};
use crate::dates::rfc3339;
use crate::search::{Answer, Hit, HitKind, Query, Searched};
use crate::store::nodes;
use crate::store::{Key, SessionId};

use arguments::query;
pub(super) use arguments::{GrepArguments, parameters};

pub(super) fn run(
    context: &mut Context<'_>,
    arguments: GrepArguments,
) -> Result<Value, EngineError> {
    let query = query(context, &arguments)?;
    let answer = search(context, &query)?;
    let covering = Covering::read(context, &answer)?;
    let names = session_names(context, &answer)?;
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room| {
        let lean = is_lean(room);
        // The cursor is chosen at the end. The page is measured with the longest that these hits
        // can have.
        let cursor = answer.hits.iter().map(|hit| &hit.cursor);
        let cursor = cursor.max_by_key(|cursor| cursor.len()).cloned();
        let frame = frame_of(&answer, lean, Vec::new(), Vec::new(), cursor);
        let mut page = Page::new(room, &frame, services);
        let mut groups: Vec<Group<'_>> = Vec::new();
        for hit in &answer.hits {
            let covered = covering.node(hit.key);
            let text = &hit.snippet.text;
            let item = |part: Range<usize>| {
                let mut item = item(hit, part, covered, lean);
                put(&mut item, "session", names.get(&hit.key.session()));
                item
            };
            let group = groups.iter_mut().find(|group| group.is_of(hit, covered));
            // Besides the item itself, a hit adds its id to a group, and the first hit of a group
            // adds the group. Both count against the room of the page.
            let grouped = match (lean, &group) {
                (true, _) => Value::Null,
                (false, Some(_)) => json!(id(hit)),
                (false, None) => Group::of(hit, covered).line(),
            };
            if !page.push_with(item(0..text.len()), &grouped) {
                if !page.items.is_empty() {
                    break;
                }
                // Not even the first hit fits, so its snippet is cut to the match.
                let start = hit.snippet.short_start();
                page.push_part(text, start, |end| item(start..end));
            }
            match group {
                Some(group) => group.hits.push(id(hit)),
                None => groups.push(Group::of(hit, covered)),
            }
        }
        // Hits that no summary covers offer nothing to expand, so their group comes last.
        groups.sort_by_key(|group| group.covered.is_none());
        let groups = groups.iter().filter(|_| !lean).map(Group::line).collect();
        let shown = page.items.len();
        let cursor = match shown < answer.hits.len() {
            true => shown
                .checked_sub(1)
                .map(|last| answer.hits[last].cursor.clone()),
            false => answer.next_cursor.clone(),
        };
        Ok(frame_of(&answer, lean, groups, page.items, cursor))
    })
}

/// Returns the answer with these groups and hits. The counts of unreadable messages and summaries
/// are left out if they are zero.
fn frame_of(
    answer: &Answer,
    lean: bool,
    groups: Vec<Value>,
    hits: Vec<Value>,
    cursor: Option<String>,
) -> Value {
    let Searched {
        sessions,
        messages,
        summaries,
        messages_read,
        bytes_read,
        messages_not_indexed,
        messages_unreadable,
        summaries_unreadable,
    } = answer.searched;
    let mut searched = json!({"messages": messages, "summaries": summaries});
    if !lean {
        searched["sessions"] = json!(sessions);
        searched["messages_read"] = json!(messages_read);
        searched["bytes_read"] = json!(bytes_read);
        searched["messages_not_indexed"] = json!(messages_not_indexed);
    }
    for (name, count) in [
        ("messages_unreadable", messages_unreadable),
        ("summaries_unreadable", summaries_unreadable),
    ] {
        put(&mut searched, name, (count > 0).then_some(count));
    }
    let mut framed = json!({"total": answer.total});
    if !lean || !answer.total_is_exact {
        framed["total_is_exact"] = json!(answer.total_is_exact);
    }
    put(&mut framed, "note", note_of(answer));
    framed["searched"] = searched;
    if !lean {
        framed["groups"] = json!(groups);
    }
    framed["hits"] = json!(hits);
    framed["next_cursor"] = json!(cursor);
    framed
}

/// Returns what the reader of a ranking has to know about the question: that its last words were
/// not looked for because it is too long. None if all were.
pub(super) fn note_of(answer: &Answer) -> Option<String> {
    let left_out = answer.words_left_out;
    (left_out > 0).then(|| {
        format!(
            "the question is too long: its last {left_out} words were ignored; ask a shorter one"
        )
    })
}

/// Runs a search. It ends soon after the host has cancelled the call.
pub(super) fn search(context: &Context<'_>, query: &Query) -> Result<Answer, EngineError> {
    let services = &context.session.services;
    Ok(context
        .session
        .store
        .search(query, &|| services.is_cancelled())?)
}

/// The summaries of the window that cover the hits of an answer. A summary that is a hit covers
/// itself.
struct Covering {
    of: HashMap<Key, NodeId>,
    nodes: HashMap<(SessionId, NodeId), Node>,
}

impl Covering {
    fn read(context: &Context<'_>, answer: &Answer) -> Result<Self, EngineError> {
        let store = &context.session.store;
        let mut of = HashMap::new();
        let mut messages: HashMap<SessionId, Vec<Key>> = HashMap::new();
        for Hit { key, kind, .. } in &answer.hits {
            match kind {
                HitKind::Summary => {
                    of.insert(*key, nodes::id_of(key.0));
                }
                _ => messages.entry(key.session()).or_default().push(*key),
            }
        }
        for (session, keys) in messages {
            of.extend(nodes::covering(store, session, &keys)?);
        }
        let mut nodes = HashMap::new();
        for (key, id) in &of {
            let place = (key.session(), *id);
            if !nodes.contains_key(&place)
                && let Some(node) = nodes::node(store, place.0, place.1)?
            {
                nodes.insert(place, node);
            }
        }
        Ok(Self { of, nodes })
    }

    fn node(&self, key: Key) -> Option<&Node> {
        self.nodes.get(&(key.session(), *self.of.get(&key)?))
    }
}

/// Returns the names of all sessions if several were searched, and none if only one was. A hit then
/// needs no session.
fn session_names(
    context: &Context<'_>,
    answer: &Answer,
) -> Result<HashMap<SessionId, String>, EngineError> {
    if answer.searched.sessions < 2 {
        return Ok(HashMap::new());
    }
    let sessions = context.session.store.sessions()?;
    let names = sessions.into_iter().map(|info| (info.id, info.name));
    Ok(names.collect())
}

fn id(hit: &Hit) -> String {
    match hit.kind {
        HitKind::Message { id } | HitKind::File { id, .. } => id.to_string(),
        HitKind::Summary => nodes::id_of(hit.key.0).to_string(),
    }
}

/// Makes the JSON of a hit with a part of its snippet. If `lean` is set, optional fields are left
/// out.
fn item(hit: &Hit, part: Range<usize>, covered_by: Option<&Node>, lean: bool) -> Value {
    let (kind, file, in_calls) = match hit.kind {
        HitKind::Message { .. } => ("message", None, false),
        HitKind::File { file, in_calls, .. } => ("file", Some(file), in_calls),
        HitKind::Summary => ("summary", None, false),
    };
    let mut item = json!({"id": id(hit)});
    if !lean {
        item["kind"] = json!(kind);
    }
    item["role"] = json!(hit.role);
    if !lean {
        // Null if it is unknown.
        item["at"] = Value::Null;
        put_time(&mut item, hit.at_ms, hit.at_is_exact);
        put(&mut item, "name", hit.name.as_ref());
        put(&mut item, "tool", hit.tool.as_ref());
    }
    put(&mut item, "file", file.map(|file| format!("f{}", file.0)));
    put(&mut item, "in_conversation", (!hit.live).then_some(false));
    let covered_by = covered_by.filter(|_| !lean && hit.kind != HitKind::Summary);
    put(
        &mut item,
        "covered_by",
        covered_by.map(|node| node.id.to_string()),
    );
    if in_calls {
        item["in_calls"] = json!(true);
    } else {
        item["line"] = json!(hit.snippet.line);
        if !lean {
            item["byte"] = json!(hit.snippet.byte);
            let span = hit.span.as_ref();
            put(&mut item, "span", span.map(|span| [span.start, span.end]));
        }
    }
    if !lean {
        item["matches"] = json!(hit.snippet.matches);
    }
    let text = &hit.snippet.text;
    let before = if part.start > 0 { "…" } else { "" };
    let after = if part.end < text.len() { "…" } else { "" };
    item["snippet"] = json!(format!("{before}{}{after}", &text[part]));
    item
}

/// The hits of a page under one summary of the window, or under none.
struct Group<'a> {
    session: SessionId,
    covered: Option<&'a Node>,
    hits: Vec<String>,
}

impl<'a> Group<'a> {
    fn of(hit: &Hit, covered: Option<&'a Node>) -> Self {
        Self {
            session: hit.key.session(),
            covered,
            hits: vec![id(hit)],
        }
    }

    fn is_of(&self, hit: &Hit, covered: Option<&Node>) -> bool {
        match (self.covered, covered) {
            (Some(one), Some(other)) => one.id == other.id && self.session == hit.key.session(),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    fn line(&self) -> Value {
        match self.covered {
            None => json!({"summary": null, "hits": self.hits}),
            Some(node) => json!({
                "summary": node.id.to_string(),
                "first": node.first.to_string(),
                "last": node.last.to_string(),
                "from": node.from_ms.map(rfc3339),
                "to": node.to_ms.map(rfc3339),
                "hits": self.hits,
            }),
        }
    }
}

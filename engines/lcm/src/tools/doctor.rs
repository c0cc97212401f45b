//! `lcm_doctor`: whether everything is present and intact.

use std::path::{Path, PathBuf};

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Page, is_lean, within};
use super::{Context, invalid, max_tokens_schema, object};
use crate::store::Store;
use crate::store::nodes;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default)]
    repair: bool,
    max_tokens: Option<u64>,
    cursor: Option<String>,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "repair": {
                "type": "boolean", "default": false,
                "description": "Make a wrong search index anew",
            },
            "max_tokens": max_tokens_schema(),
            "cursor": {"type": "string", "description": "`next_cursor` of the page before: further findings"},
        }),
        &[],
    )
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let first: usize = match &arguments.cursor {
        None => 0,
        Some(cursor) => cursor
            .parse()
            .map_err(|_| invalid(format!("`{cursor}` is no cursor of lcm_doctor")))?,
    };
    let services = context.session.services.clone();
    let store = &context.session.store.until(move || services.is_cancelled());
    let id = context.session.id;
    let lineage = lineage(context, store)?;
    let check = store.check(|_, _| {})?;
    let index = store.check_index(id)?;
    let mut findings = check.problems.clone();
    let mut elsewhere = 0;
    for key in &check.damaged {
        let row = match key.session() == id {
            true => store.rows(id, key.ordinal()..key.ordinal() + 1)?.pop(),
            // The contents of other sessions are not shown.
            false => None,
        };
        match row {
            Some(row) => findings.push(format!("message {} is damaged", row.id)),
            None => elsewhere += 1,
        }
    }
    for key in &check.damaged_summaries {
        match key.session() == id {
            true => findings.push(format!("summary {} is damaged", nodes::id_of(key.0))),
            false => elsewhere += 1,
        }
    }
    if elsewhere > 0 {
        findings.push(format!(
            "{elsewhere} messages and summaries of other sessions are damaged"
        ));
    }
    let wrong = index.wrong.iter();
    findings.extend(wrong.map(|range| {
        format!(
            "the search index is wrong about the {} texts from number {} on",
            range.len(),
            range.start
        )
    }));
    findings.extend(lineage.findings);
    let ok = findings.is_empty();
    let repair = match arguments.repair {
        false => None,
        true if index.wrong.is_empty() => Some(json!({"index_made_anew": false})),
        true => Some(repair(context, store)?),
    };
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room, meter| {
        let lean = is_lean(room);
        let answer = |items: Vec<Value>, next: Option<usize>| {
            let mut answer = json!({"ok": ok});
            if let Some(repair) = &repair {
                answer["repair"] = repair.clone();
            }
            if !lean {
                answer["file"] = json!({
                    "problems": check.problems.len(),
                    "messages_read": check.messages,
                    "damaged": check.damaged.len(),
                });
                answer["index"] = json!({
                    "segments": index.segments,
                    "wrong": index.wrong.len(),
                    "waiting": index.waiting,
                });
                answer["lineage"] = lineage.counts.clone();
            }
            answer["findings_total"] = json!(findings.len());
            answer["findings"] = json!(items);
            answer["next_cursor"] = json!(next.map(|next| next.to_string()));
            answer
        };
        let mut page = Page::new(room, &answer(Vec::new(), Some(findings.len())), meter);
        let mut next = first.min(findings.len());
        while let Some(finding) = findings.get(next) {
            if !page.push(json!(finding)) {
                if page.items.is_empty() {
                    page.push_part(finding, 0, |end| json!(finding[..end]));
                    next += 1;
                }
                break;
            }
            next += 1;
        }
        Ok(answer(page.items, (next < findings.len()).then_some(next)))
    })
}

/// Copies the store, then rebuilds the search index of the session. Copies of earlier repairs are removed
/// once the new one is complete, so that repeated repairs do not fill the disk.
fn repair(context: &Context<'_>, store: &Store) -> Result<Value, EngineError> {
    let id = context.session.id;
    let earlier = copies(store);
    let now = context.session.services.now_ms();
    let backup = store.path().with_extension(format!("{COPY}{now}.sqlite3"));
    store.backup(&backup, |_, _| {})?;
    for copy in earlier.iter().filter(|copy| **copy != backup) {
        // A copy that cannot be removed only takes up space.
        let _ = std::fs::remove_file(copy);
    }
    store.rebuild_index(id)?;
    Ok(json!({
        "index_made_anew": true,
        "index_wrong_after": store.check_index(id)?.wrong.len(),
        "backup": backup.file_name().map(|name| name.to_string_lossy()),
    }))
}

/// The prefix of the copies' names, followed by the time.
const COPY: &str = "before-repair-";

/// The copies that earlier repairs made.
fn copies(store: &Store) -> Vec<PathBuf> {
    let stem = store
        .path()
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let prefix = format!("{stem}.{COPY}");
    let directory = store.path().parent().unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(".sqlite3")
        })
        .collect()
}

/// Checks the summaries against the messages.
struct Lineage {
    counts: Value,
    findings: Vec<String>,
}

/// Whether each message of the conversation is outside the frontier or under exactly one node of it.
fn lineage(context: &Context<'_>, store: &Store) -> Result<Lineage, EngineError> {
    let broken = nodes::broken(store, context.session.id)?;
    let coverage = context.session.coverage(store)?;
    let sources = (broken.iter()).map(|id| format!("summary {id} has wrong sources"));
    let twice = coverage.twice.iter();
    let nowhere = coverage.nowhere.iter();
    let left_behind = (coverage.left_behind > 0).then(|| {
        format!(
            "{} messages that an edit or a rewind left are still summarised in the window",
            coverage.left_behind
        )
    });
    let findings: Vec<String> = sources
        .chain(twice.map(|id| format!("message {id} is in the window twice")))
        .chain(nowhere.map(|id| format!("message {id} is not in the window, in no way")))
        .chain(left_behind)
        .collect();
    Ok(Lineage {
        counts: json!({
            "ok": findings.is_empty(),
            "messages_outside": coverage.outside,
            "messages_under_summaries": coverage.under_one,
            "messages_said_twice": coverage.twice.len(),
            "messages_nowhere": coverage.nowhere.len(),
            "messages_left_behind_and_summarised": coverage.left_behind,
            "summaries_with_wrong_sources": broken.len(),
        }),
        findings,
    })
}

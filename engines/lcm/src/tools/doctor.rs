//! `lcm_doctor`: whether everything stored is present and intact.
//!
//! The tool checks four things: the file with the hashes of its summaries, the search index, the
//! lineage, and whether the transcript has the text of every message. The lineage is sound if each
//! message is outside the frontier or under exactly one node of it. Every problem becomes a
//! finding, a sentence that the model can pass on to the user.
//!
//! The index can be rebuilt from the messages, and the tool does so if asked. A text that is
//! missing from the transcript cannot be restored here, because the host keeps the transcript.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Page, is_lean, within};
use super::{Context, cursor_schema, max_tokens_schema, object, page_start};
use crate::store::nodes;
use crate::store::{Key, Store};

/// The maximum number of messages without a text that a finding names. The others are counted.
const NAMED: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DoctorArguments {
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
                "description": "Rebuild a wrong search index",
            },
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
        }),
        &[],
    )
}

pub(super) fn run(
    context: &mut Context<'_>,
    arguments: DoctorArguments,
) -> Result<Value, EngineError> {
    let first = page_start(arguments.cursor.as_deref(), "lcm_doctor")?.unwrap_or(0);
    let services = context.session.services.clone();
    let store = &context.session.store.until(move || services.is_cancelled());
    let examined = Examination::of(context, store)?;
    // After the checks, so that the findings describe what was wrong before.
    let repair = match arguments.repair {
        false => None,
        true if examined.is_index_wrong => Some(repair(context, store)?),
        true => Some(json!({"index_made_anew": false})),
    };
    let findings = &examined.findings;
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room| {
        let lean = is_lean(room);
        let answer = |items: Vec<Value>, next: Option<usize>| {
            let mut answer = json!({"ok": findings.is_empty()});
            if let Some(repair) = &repair {
                answer["repair"] = repair.clone();
            }
            for (name, counts) in examined.counts.iter().filter(|_| !lean) {
                answer[name] = counts.clone();
            }
            answer["findings_total"] = json!(findings.len());
            answer["findings"] = json!(items);
            answer["next_cursor"] = json!(next.map(|next| next.to_string()));
            answer
        };
        let mut page = Page::new(room, &answer(Vec::new(), Some(findings.len())), services);
        let mut next = first.min(findings.len());
        while let Some(finding) = findings.get(next) {
            // A finding that is longer than the page is cut. Otherwise the page would stay empty
            // and the next call would start at the same finding.
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

/// The result of all checks: a sentence for each problem, and counts for an answer that has room for
/// them.
struct Examination {
    findings: Vec<String>,
    counts: [(&'static str, Value); 3],
    is_index_wrong: bool,
}

impl Examination {
    fn of(context: &Context<'_>, store: &Store) -> Result<Self, EngineError> {
        let id = context.session.id;
        let (lineage, wrong_lineage) = lineage(context, store)?;
        let check = store.check(|_, _| {})?;
        let index = store.check_index(id)?;
        let file_problems = check.problems.len();
        // The check covers the whole store, but the findings must not reveal what other sessions
        // contain.
        let mut findings = check.problems;
        // All messages are read, so this is the slowest of the checks.
        let unread = store.without_text(id)?;
        if !unread.is_empty() {
            let named: Vec<String> = unread.iter().take(NAMED).map(ToString::to_string).collect();
            findings.push(format!(
                "the record of the session lacks the text of {} messages ({})",
                unread.len(),
                named.join(", ")
            ));
        }
        let damaged = check.damaged_summaries;
        let (own, others): (Vec<Key>, Vec<Key>) =
            damaged.into_iter().partition(|key| key.session() == id);
        let number = |key: &Key| nodes::id_of(key.0);
        findings.extend((own.iter().map(number)).map(|node| format!("summary {node} is damaged")));
        if !others.is_empty() {
            let count = others.len();
            findings.push(format!("{count} summaries of other sessions are damaged"));
        }
        findings.extend(index.wrong.iter().map(|range| {
            format!(
                "the search index is wrong for {} texts, beginning with number {}",
                range.len(),
                range.start
            )
        }));
        findings.extend(wrong_lineage);
        let file = json!({
            "problems": file_problems,
            "messages_read": store.session_info(id)?.messages as usize - unread.len(),
            "damaged": unread.len(),
        });
        let counts = json!({
            "segments": index.segments,
            "wrong": index.wrong.len(),
            "waiting": index.waiting,
        });
        Ok(Self {
            findings,
            counts: [("file", file), ("index", counts), ("lineage", lineage)],
            // Rows that refer to missing rows are left over from an index that was damaged.
            is_index_wrong: !index.wrong.is_empty() || file_problems > 0,
        })
    }
}

/// Rebuilds the search index of the session and checks the result. A number other than 0 in
/// `index_wrong_after` means that rebuilding did not help.
fn repair(context: &Context<'_>, store: &Store) -> Result<Value, EngineError> {
    let id = context.session.id;
    store.rebuild_index(id)?;
    Ok(json!({
        "index_made_anew": true,
        "index_wrong_after": store.check_index(id)?.wrong.len(),
    }))
}

/// Checks that the sources of every summary are right, and that each message of the conversation is
/// outside the frontier or under exactly one node of it. Returns counts for the answer, and a finding
/// for each problem.
fn lineage(context: &Context<'_>, store: &Store) -> Result<(Value, Vec<String>), EngineError> {
    let broken = nodes::broken(store, context.session.id)?;
    let coverage = context.session.coverage(store)?;
    let sources = (broken.iter()).map(|id| format!("summary {id} has wrong sources"));
    let twice = coverage.twice.iter();
    let nowhere = coverage.nowhere.iter();
    let left_behind = (coverage.left_behind > 0).then(|| {
        format!(
            "{} messages that were edited or rewound away are still summarised in the window",
            coverage.left_behind
        )
    });
    let findings: Vec<String> = sources
        .chain(twice.map(|id| format!("message {id} is in the window twice")))
        .chain(
            nowhere.map(|id| format!("message {id} is neither in the window nor under a summary")),
        )
        .chain(left_behind)
        .collect();
    let counts = json!({
        "ok": findings.is_empty(),
        "messages_outside": coverage.outside,
        "messages_under_summaries": coverage.under_one,
        "messages_said_twice": coverage.twice.len(),
        "messages_nowhere": coverage.nowhere.len(),
        "messages_left_behind_and_summarised": coverage.left_behind,
        "summaries_with_wrong_sources": broken.len(),
    });
    Ok((counts, findings))
}

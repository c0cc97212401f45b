//! The arguments of `lcm_grep`, and the search that they describe.
//!
//! Models fill in arguments in different ways, so this module is tolerant in some respects: a time
//! may be a date, a time with an offset or a number, and a limit out of range is clamped. It is
//! strict if a guess could give a wrong result, for example if both a pattern and a question are
//! given. The errors say which values are allowed.

use std::ops::Range;

use contexture_engine_api::{EngineError, printable};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dates::parse;
use crate::search::{Ask, MAX_SESSIONS, Mode, Pattern, Query, Scope, Sort};
use crate::tools::{Context, SHOWN, cursor_schema, invalid, max_tokens_schema, object};

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 200;
const MAX_CONTEXT: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct GrepArguments {
    pattern: Option<String>,
    question: Option<String>,
    mode: Option<Mode>,
    scope: Option<Scope>,
    sessions: Option<Vec<String>>,
    role: Option<String>,
    tool: Option<String>,
    since: Option<Value>,
    until: Option<Value>,
    context: Option<usize>,
    limit: Option<usize>,
    cursor: Option<String>,
    sort: Option<Sort>,
    case: Option<bool>,
    pub(super) max_tokens: Option<u64>,
}

pub(in crate::tools) fn parameters() -> Value {
    let time = |what: &str, day: &str| {
        json!({
            "type": "string",
            "description": format!(
                "{what}: 2026-01-31 ({day}, UTC), 2026-01-31T09:30+02:00, or Unix seconds"
            ),
        })
    };
    object(
        json!({
            "pattern": {"type": "string", "description": "What to find, exactly. Or give `question`"},
            "question": {
                "type": "string",
                "description": "Rank messages that share words with it, best first",
            },
            "mode": {
                "type": "string", "enum": ["full_text", "literal", "regex"], "default": "full_text",
                "description": "full_text: every term as a whole word, in any order; \"quotes\" make a phrase. \
                                literal: the text itself, anywhere. regex: no look-around, no backreferences",
            },
            "case": {
                "type": "boolean",
                "description": "Whether case (and in full_text accents) matters. Default: not in full_text",
            },
            "scope": {
                "type": "string", "enum": ["all", "messages", "summaries", "files"], "default": "all",
                "description": "`files`: only long messages, stored as files",
            },
            "role": {"type": "string", "description": "Only messages of this role: user, assistant, tool"},
            "tool": {"type": "string", "description": "Only results of this tool"},
            "since": time("Earliest time", "its start"),
            "until": time("Latest time", "its end"),
            "sort": {
                "type": "string", "enum": ["relevance", "recency", "oldest"],
                "description": "Default: recency for a pattern, relevance for a question",
            },
            "context": {
                "type": "integer", "minimum": 0, "maximum": MAX_CONTEXT, "default": 0,
                "description": "Lines shown around the first match",
            },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT,
                "description": "Hits on a page",
            },
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "sessions": {
                "type": "array", "items": {"type": "string"},
                "description": "Other sessions, if allowed",
            },
        }),
        &[],
    )
}

/// Makes the query that the arguments describe.
///
/// # Errors
/// [`EngineError::InvalidInput`] if an argument is wrong, with what is wrong about it. A session
/// that may not be read is such an error too.
pub(super) fn query(
    context: &Context<'_>,
    arguments: &GrepArguments,
) -> Result<Query, EngineError> {
    let ask = match (arguments.pattern.clone(), arguments.question.clone()) {
        (Some(pattern), None) => Ask::Pattern(Pattern {
            mode: arguments.mode.unwrap_or(Mode::FullText),
            text: pattern,
            case_sensitive: arguments.case,
        }),
        (None, Some(question)) => Ask::Question(question),
        _ => {
            return Err(invalid(
                "lcm_grep takes either `pattern` (exact) or `question` (ranked)",
            ));
        }
    };
    let time = |key: &str, value: &Option<Value>| -> Result<Option<Range<i64>>, EngineError> {
        let Some(value) = value else { return Ok(None) };
        // A model may write seconds as a number although the schema says text.
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let time = parse(&text).ok_or_else(|| {
            invalid(format!(
                "`{key}` is {}; a time is 2026-01-31, 2026-01-31T09:30+02:00, 2026-01-31T23:59:59Z, or Unix seconds",
                printable(&value.to_string(), SHOWN)
            ))
        });
        time.map(Some)
    };
    let since = time("since", &arguments.since)?.map(|time| time.start);
    // `until` is inclusive, but the parsed range does not contain its end.
    let until = time("until", &arguments.until)?.map(|time| time.end - 1);
    if let (Some(since), Some(until)) = (since, until)
        && until < since
    {
        return Err(invalid("`until` is before `since`, so nothing can match"));
    }
    let sessions = match arguments.sessions.as_deref() {
        None | Some([]) => vec![context.session.id],
        Some(names) if names.len() > MAX_SESSIONS => {
            return Err(invalid(format!(
                "`sessions` has {} names, but may have {MAX_SESSIONS}; search fewer at a time",
                names.len()
            )));
        }
        Some(names) => {
            let ids = names.iter().map(|name| context.scope(Some(name)));
            ids.collect::<Result<_, _>>()?
        }
    };
    Ok(Query {
        scope: arguments.scope.unwrap_or_default(),
        sessions,
        role: arguments.role.clone(),
        tool: arguments.tool.clone(),
        since_ms: since,
        until_ms: until,
        sort: arguments.sort,
        limit: arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT),
        context_lines: arguments.context.unwrap_or(0).min(MAX_CONTEXT),
        cursor: arguments.cursor.clone(),
        ..Query::new(context.session.id, ask)
    })
}

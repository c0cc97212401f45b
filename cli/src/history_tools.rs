//! The tools of the history for models: `history_search` and `history_read`.
//!
//! [`specs`] describes them and [`call`] answers. An answer has at most as many tokens as the
//! caller allows, and says how to get the rest. Secrets are masked, because the answer goes to a
//! model of some provider, and the history has the sessions of all projects.

use std::path::Path;

use contexture::history::{History, Kind, Message, Query, parse_since};
use contexture::mask_secrets;
use contexture::tokens::estimate;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::history::head;

/// The tokens of an answer if the caller does not say, and the most that it can ask for.
const MAX_TOKENS: u64 = 2_000;
const MOST_TOKENS: u64 = 50_000;

pub(crate) const SEARCH: &str = "history_search";
pub(crate) const READ: &str = "history_read";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    project: Option<String>,
    agent: Option<String>,
    kind: Option<Kinds>,
    since: Option<String>,
    offset: Option<usize>,
    max_tokens: Option<u64>,
}

/// A selection of kinds, in the words of a model.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kinds {
    Said,
    Tools,
    Summaries,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    id: String,
    context: Option<usize>,
    from: Option<usize>,
    max_tokens: Option<u64>,
}

/// The name, the description and the schema of the arguments of each tool.
pub(crate) fn specs() -> [(&'static str, &'static str, Map<String, Value>); 2] {
    let tokens = json!({
        "type": "integer", "minimum": 100, "maximum": MOST_TOKENS,
        "description": format!("the most tokens of the answer, {MAX_TOKENS} by default"),
    });
    let search = json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "the words to search for; all have to occur. \"in quotes\": words that follow each other. \
                                conf*: words that begin so. Use names, paths, error texts and commands",
            },
            "project": {"type": "string", "description": "only this project: its folder or the last part of it"},
            "agent": {"type": "string", "description": "only this agent, such as claude-code or codex"},
            "kind": {
                "enum": ["said", "tools", "summaries"],
                "description": "said: what the user and the assistant wrote; tools: tool calls and results, such as \
                                commands; summaries: summaries and titles. All by default",
            },
            "since": {"type": "string", "description": "only since then: 12h, 7d, 2w, or a date"},
            "offset": {"type": "integer", "minimum": 0, "description": "the number of hits to leave out, for the next page"},
            "max_tokens": tokens,
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let read = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "the id of a message, as history_search gives it"},
            "context": {
                "type": "integer", "minimum": 0, "maximum": 50,
                "description": "how many messages before and after it to show, 2 by default",
            },
            "from": {"type": "integer", "minimum": 0, "description": "the character to begin with, for the rest of a long message"},
            "max_tokens": tokens,
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    let schema = |value: Value| match value {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    [
        (
            SEARCH,
            "Search all earlier sessions of all coding agents on this machine: what was decided about a file, how a \
             command was run and what it answered, how an error was fixed. Returns snippets with ids for history_read.",
            schema(search),
        ),
        (
            READ,
            "Read a message of an earlier session with its neighbours. A tool call comes with its result.",
            schema(read),
        ),
    ]
}

/// Answers a call of one of the tools. `None` if the tool is another one. Errors are for the model.
pub(crate) fn call(home: &Path, name: &str, arguments: Value) -> Option<Result<String, String>> {
    let answer = match name {
        SEARCH => search as fn(&History, Value) -> Result<String, String>,
        READ => read,
        _ => return None,
    };
    Some(match History::open(home) {
        Ok(Some(history)) => answer(&history, arguments),
        Ok(None) => Err(
            "nothing was imported yet: the user has to run `contexture import --all`".to_owned(),
        ),
        Err(error) => Err(error.to_string()),
    })
}

fn search(history: &History, arguments: Value) -> Result<String, String> {
    let args: Search = serde_json::from_value(arguments).map_err(|error| error.to_string())?;
    let mut query = Query::new(args.query);
    query.project = args.project;
    query.agent = args.agent;
    query.kinds = match args.kind {
        None => Vec::new(),
        Some(Kinds::Said) => vec![Kind::User, Kind::Assistant],
        Some(Kinds::Tools) => vec![Kind::ToolCall, Kind::ToolResult],
        Some(Kinds::Summaries) => vec![Kind::Summary],
    };
    query.since_ms = match args.since {
        None => None,
        Some(since) => Some(
            parse_since(&since)
                .ok_or_else(|| format!("`{since}` is not a time: write 7d or 2026-01-31"))?,
        ),
    };
    query.offset = args.offset.unwrap_or(0);
    query.limit = 100;
    let found = history.search(&query).map_err(|error| error.to_string())?;
    if found.matches == 0 {
        return Ok("No message matches. Try fewer or other words.".to_owned());
    }
    let mut budget = AnswerBudget::new(args.max_tokens);
    let more = if found.is_complete { "" } else { "More than " };
    let words = match found.has_all_words {
        true => "",
        false => " No message has all words; these have some of them.",
    };
    budget.add(
        &format!("{more}{} messages match.{words}\n", found.matches),
        true,
    );
    let mut shown = 0;
    for hit in &found.hits {
        let copies = match hit.copies {
            0 => String::new(),
            copies => format!(" (and {copies} copies)"),
        };
        let text = format!("{}{copies}\n  {}\n", head(&hit.message), hit.snippet);
        // One hit is shown in any case, so that a page always leads on.
        if !budget.add(&text, shown == 0) {
            break;
        }
        shown += 1;
    }
    let next = query.offset + shown;
    if next < found.matches {
        budget.add(&format!("More: offset {next}\n"), true);
    }
    Ok(budget.text)
}

fn read(history: &History, arguments: Value) -> Result<String, String> {
    let args: Read = serde_json::from_value(arguments).map_err(|error| error.to_string())?;
    let excerpt = history.read(&args.id, args.context.unwrap_or(2).min(50));
    let excerpt = excerpt.map_err(|error| error.to_string())?;
    let excerpt = excerpt.ok_or_else(|| {
        format!(
            "there is no message `{}`; history_search gives ids",
            args.id
        )
    })?;
    let budget = AnswerBudget::new(args.max_tokens);
    let asked = excerpt.at;
    // The message itself comes first in the budget, then its neighbours from near to far.
    let mut order: Vec<usize> = (0..excerpt.messages.len()).collect();
    order.sort_by_key(|at| at.abs_diff(asked));
    let mut left = budget.left;
    let mut parts: Vec<(usize, String)> = Vec::new();
    for at in order {
        let Some(message) = excerpt.messages.get(at) else {
            continue;
        };
        let from = if at == asked {
            args.from.unwrap_or(0)
        } else {
            0
        };
        // Neighbours share what is left, so that one long result does not push the others out.
        let share = if at == asked { left } else { left / 2 };
        if share < 40 {
            break;
        }
        let part = part(message, from, share);
        left = left.saturating_sub(estimate(&part));
        parts.push((at, part));
    }
    let shown = parts.len();
    parts.sort_by_key(|(at, _)| *at);
    let mut text: String = parts.into_iter().map(|(_, part)| part).collect();
    if shown < excerpt.messages.len() || excerpt.has_earlier || excerpt.has_later {
        text.push_str("The conversation has more messages around these; ask with more context or max_tokens.\n");
    }
    Ok(text)
}

/// A message from a character on, with at most so many tokens.
fn part(message: &Message, from: usize, tokens: u64) -> String {
    let masked = mask_secrets(&message.text);
    let text: String = masked.chars().skip(from).collect();
    let head = head(message);
    let room = usize::try_from(tokens.saturating_sub(estimate(&head) + 20)).unwrap_or(usize::MAX);
    // No text has fewer characters than tokens, so this is short enough in any script.
    let mut end = text
        .char_indices()
        .nth(room.saturating_mul(4))
        .map_or(text.len(), |(at, _)| at);
    while estimate(&text[..end]) > room as u64 {
        end = text.floor_char_boundary(end * 3 / 4);
    }
    let rest = text[end..].chars().count();
    let begins = if from > 0 { "…" } else { "" };
    let ends = match rest {
        0 => String::new(),
        rest => {
            let next = from + text[..end].chars().count();
            format!(
                "…\n[{rest} more characters: history_read with id {} and from {next}]",
                message.id
            )
        }
    };
    format!("## {head}\n{begins}{}{ends}\n\n", &text[..end])
}

/// Text that grows up to a number of tokens.
struct AnswerBudget {
    text: String,
    left: u64,
}

impl AnswerBudget {
    fn new(max_tokens: Option<u64>) -> Self {
        Self {
            text: String::new(),
            left: max_tokens.unwrap_or(MAX_TOKENS).clamp(100, MOST_TOKENS),
        }
    }

    /// Adds a text if there is room for it, or if it must be there. Returns whether it was added.
    fn add(&mut self, text: &str, must: bool) -> bool {
        let masked = mask_secrets(text);
        let tokens = estimate(&masked);
        if tokens > self.left && !must {
            return false;
        }
        self.left = self.left.saturating_sub(tokens);
        self.text.push_str(&masked);
        true
    }
}

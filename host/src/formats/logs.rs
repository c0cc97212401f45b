//! Session logs: one line an event, the conversation among them.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::Usage;

use super::anatomy::time_of;
use super::json::Raw;

/// What a log holds.
#[derive(Default)]
pub(super) struct Log<'a> {
    /// The wire items of the conversation that the model still sees, in order.
    pub(super) items: Vec<LogItem<'a>>,
    pub(super) model: Option<String>,
    /// The system prompt, where the log has it: a string.
    pub(super) system: Option<Raw<'a>>,
    /// Usage that stands beside the messages, each with the number of items before it.
    pub(super) usage: Vec<(usize, LoggedUsage)>,
    pub(super) warnings: Vec<String>,
}

/// A wire item and the line it stands in.
pub(super) struct LogItem<'a> {
    pub(super) line: Raw<'a>,
    pub(super) body: Raw<'a>,
    pub(super) continues: bool,
    pub(super) is_summary: bool,
    pub(super) time_ms: Option<i64>,
}

pub(super) struct LoggedUsage {
    pub(super) model: Option<String>,
    pub(super) usage: Usage,
    pub(super) time_ms: Option<i64>,
}

/// The usage that `raw` reports, in the spelling of any of the providers.
pub(super) fn usage(raw: Raw<'_>) -> Option<Usage> {
    let tokens = |raw: Raw<'_>, names: &[&str]| {
        names
            .iter()
            .find_map(|name| raw.get(name)?.number())
            .map(|number| number.max(0.0) as u64)
    };
    let detail =
        |list: &[&str], name: &str| list.iter().find_map(|key| tokens(raw.get(key)?, &[name]));
    let input = tokens(raw, &["input_tokens", "prompt_tokens"]);
    let output = tokens(raw, &["output_tokens", "completion_tokens"]);
    if input.is_none() && output.is_none() {
        return None;
    }
    // Anthropic counts what was cached beside the input; everybody else as a part of it.
    let read = tokens(raw, &["cache_read_input_tokens"]);
    let written = tokens(raw, &["cache_creation_input_tokens"]);
    let beside = read.unwrap_or(0) + written.unwrap_or(0);
    Some(
        Usage::default()
            .input_tokens(input.unwrap_or(0) + beside)
            .output_tokens(output.unwrap_or(0))
            .cache_read_tokens(
                read.or_else(|| tokens(raw, &["cached_input_tokens"]))
                    .or_else(|| {
                        detail(
                            &["prompt_tokens_details", "input_tokens_details"],
                            "cached_tokens",
                        )
                    })
                    .unwrap_or(0),
            )
            .cache_write_tokens(written.unwrap_or(0))
            .reasoning_tokens(
                tokens(raw, &["reasoning_output_tokens"])
                    .or_else(|| {
                        detail(
                            &["completion_tokens_details", "output_tokens_details"],
                            "reasoning_tokens",
                        )
                    })
                    .unwrap_or(0),
            ),
    )
}

/// A line of a Claude Code log.
struct Line<'a> {
    raw: Raw<'a>,
    uuid: Option<String>,
    parent: Option<String>,
    /// Whether it says that nothing is before it.
    is_root: bool,
    message: Option<Raw<'a>>,
    /// The id that lines of one assistant message share.
    message_id: Option<String>,
    is_assistant: bool,
    /// Whether the line is part of the history that the model is sent.
    is_conversation: bool,
    is_sidechain: bool,
    is_boundary: bool,
    is_summary: bool,
    /// The calls that a line with nothing but tool results answers.
    answers: Vec<String>,
}

impl<'a> Line<'a> {
    fn read(raw: Raw<'a>) -> Self {
        let mut line = Self {
            raw,
            uuid: None,
            parent: None,
            is_root: false,
            message: None,
            message_id: None,
            is_assistant: false,
            is_conversation: false,
            is_sidechain: false,
            is_boundary: false,
            is_summary: false,
            answers: Vec::new(),
        };
        let (mut kind, mut subtype, mut left_out) = (None, None, false);
        for (key, value) in raw.members() {
            match key.as_ref() {
                "type" => kind = value.string(),
                "subtype" => subtype = value.string(),
                "uuid" => line.uuid = value.string().map(Into::into),
                "parentUuid" => {
                    line.parent = value.string().map(Into::into);
                    line.is_root = value.is_null();
                }
                "message" => line.message = Some(value).filter(|value| value.is_object()),
                "isSidechain" => line.is_sidechain = value.is_true(),
                "isCompactSummary" => line.is_summary = value.is_true(),
                // Neither what the client says to itself nor an error it shows reaches the model.
                "isMeta" | "isApiErrorMessage" => left_out |= value.is_true(),
                _ => {}
            }
        }
        line.is_assistant = kind.as_deref() == Some("assistant");
        line.is_boundary =
            kind.as_deref() == Some("system") && subtype.as_deref() == Some("compact_boundary");
        line.is_conversation = (line.is_assistant || kind.as_deref() == Some("user"))
            && line.message.is_some()
            && !left_out;
        if let Some(message) = line.message {
            line.message_id = message.get_string("id").filter(|_| line.is_assistant);
            let blocks = message.get("content").into_iter().flat_map(Raw::elements);
            let mut ids = Vec::new();
            for block in blocks {
                match block.get_string("tool_use_id") {
                    Some(id) => ids.push(id),
                    None => {
                        ids.clear();
                        break;
                    }
                }
            }
            line.answers = ids;
        }
        line
    }

    fn calls(&self) -> impl Iterator<Item = String> {
        self.message
            .and_then(|message| message.get("content"))
            .into_iter()
            .flat_map(Raw::elements)
            .filter(|block| block.get("type").and_then(Raw::string).as_deref() == Some("tool_use"))
            .filter_map(|block| block.get_string("id"))
    }
}

/// Reads a Claude Code log: the branch that ends in the last message, from the last compaction on.
pub(super) fn claude_code<'a>(lines: &[Raw<'a>]) -> Log<'a> {
    let mut log = Log::default();
    let mut lines: Vec<_> = lines.iter().map(|raw| Line::read(*raw)).collect();
    if !lines
        .iter()
        .any(|line| line.is_conversation && !line.is_sidechain)
    {
        // The log of a subagent is a side chain from end to end.
        for line in &mut lines {
            line.is_sidechain = false;
        }
    }
    let live = live_branch(&lines, &mut log.warnings);
    let kept = |at: &usize| live.get(*at).copied().unwrap_or(false);
    let last = |is_it: fn(&Line<'_>) -> bool| {
        (0..lines.len()).rfind(|at| kept(at) && lines.get(*at).is_some_and(is_it))
    };
    let boundary = last(|line| line.is_boundary);
    let summary = || last(|line| line.is_summary && line.is_conversation);
    let start = boundary.or_else(summary).unwrap_or(0);

    // Lines of one assistant message come together, though results may stand between them.
    let mut groups: Vec<Vec<&Line<'_>>> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate().skip(start) {
        if !kept(&at) || !line.is_conversation {
            continue;
        }
        if !line.is_assistant && line.answers.is_empty() {
            open.clear();
        }
        let id = line.message_id.as_deref();
        match id
            .and_then(|id| open.get(id))
            .and_then(|group| groups.get_mut(*group))
        {
            Some(group) => group.push(line),
            None => {
                if let Some(id) = id {
                    open.insert(id, groups.len());
                }
                groups.push(vec![line]);
            }
        }
    }
    for group in groups {
        for (at, line) in group.into_iter().enumerate() {
            let Some(body) = line.message else { continue };
            let model = body
                .get_string("model")
                .filter(|model| model != "<synthetic>");
            log.model = model.or(log.model.take());
            log.items.push(LogItem {
                line: line.raw,
                body,
                continues: at > 0,
                is_summary: line.is_summary,
                time_ms: line.raw.get("timestamp").and_then(time_of),
            });
        }
    }
    log
}

/// Which lines are on the branch that ends in the last message. A rewind leaves the lines of the branch
/// that was given up in the log.
fn live_branch(lines: &[Line<'_>], warnings: &mut Vec<String>) -> Vec<bool> {
    let mut live = vec![false; lines.len()];
    let mut by_uuid: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let places = line
            .uuid
            .as_deref()
            .map(|uuid| by_uuid.entry(uuid).or_default());
        places.into_iter().for_each(|places| places.push(at));
    }
    let is_repeated = |at: usize, line: &Line<'_>| {
        let places = line.uuid.as_deref().and_then(|uuid| by_uuid.get(uuid));
        places.is_some_and(|places| places.first() != Some(&at))
    };
    let leaf = lines.iter().enumerate().rfind(|(at, line)| {
        line.message.is_some() && !line.is_sidechain && !is_repeated(*at, line)
    });
    let Some((leaf, last)) = leaf else {
        return live;
    };
    if last.uuid.is_none() {
        // No chain to follow: the order of the file is all there is.
        return lines.iter().map(|line| !line.is_sidechain).collect();
    }
    let mut next = Some(leaf);
    let mut lost_parents = 0;
    while let Some(at) = next {
        let (Some(line), Some(seen)) = (lines.get(at), live.get_mut(at)) else {
            break;
        };
        *seen = true;
        let is_new = |at: &&usize| live.get(**at) == Some(&false);
        // Of lines with one id the one before is meant.
        let places = line
            .parent
            .as_deref()
            .and_then(|parent| by_uuid.get(parent));
        let parent = places.and_then(|places| {
            let before = places.iter().rev().filter(|place| **place < at);
            before.chain(places).find(is_new).copied()
        });
        next = parent.or_else(|| {
            if line.is_root {
                return None;
            }
            let before = (0..at).rev().find(|before| {
                let line = lines.get(*before);
                is_new(&before)
                    && line.is_some_and(|line| {
                        !line.is_sidechain && (line.uuid.is_some() || line.message.is_some())
                    })
            });
            lost_parents += usize::from(line.parent.is_some() || before.is_some());
            before
        });
    }
    if lost_parents > 0 {
        warnings.push(format!(
            "the parent of {lost_parents} of the log's lines is missing; the line before was taken for it"
        ));
    }
    adopt_parallel_lines(lines, &mut live);
    live
}

/// Parallel calls hang side by side on the chain: the other lines of a live assistant message and the
/// results of its calls are live too.
fn adopt_parallel_lines(lines: &[Line<'_>], live: &mut [bool]) {
    let (mut messages, mut calls, mut answered) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut ids = HashMap::new();
    let on_chain = lines.iter().zip(live.iter()).filter(|(_, live)| **live);
    for (line, _) in on_chain {
        messages.extend(line.message_id.clone());
        answered.extend(line.answers.iter().cloned());
        ids.extend(line.uuid.as_deref().map(|id| (id, line)));
    }
    for (line, live) in lines.iter().zip(live.iter_mut()) {
        if line.is_sidechain {
            continue;
        }
        let twin = line.uuid.as_deref().and_then(|id| ids.get(id));
        if let Some(twin) = twin.filter(|_| !*live) {
            // A line that is there twice is live once; two lines with one id are two.
            *live = line.message.map(Raw::text) != twin.message.map(Raw::text);
            continue;
        }
        if line.is_assistant {
            *live |= line
                .message_id
                .as_ref()
                .is_some_and(|id| messages.contains(id));
            if *live {
                calls.extend(line.calls());
            }
        } else if !*live && !line.answers.is_empty() {
            *live = line
                .answers
                .iter()
                .all(|id| calls.contains(id) && !answered.contains(id));
            if *live {
                answered.extend(line.answers.iter().cloned());
            }
        }
    }
}

/// Reads a Codex rollout log: the items since the last compaction.
pub(super) fn codex<'a>(lines: &[Raw<'a>]) -> Log<'a> {
    let mut log = Log::default();
    for line in lines {
        let time_ms = line.get("timestamp").and_then(time_of);
        let kind = line.get("type").and_then(Raw::string).unwrap_or_default();
        let Some(payload) = line.get("payload") else {
            continue;
        };
        let item = |body: Raw<'a>, is_summary| LogItem {
            line: *line,
            body,
            continues: false,
            is_summary,
            time_ms,
        };
        match kind.as_ref() {
            "session_meta" => {
                let instructions = payload
                    .get("base_instructions")
                    .map(|base| base.get("text").unwrap_or(base))
                    .or_else(|| payload.get("instructions"));
                log.system = instructions.filter(|text| text.is_string()).or(log.system);
            }
            "turn_context" => log.model = payload.get_string("model").or(log.model.take()),
            "response_item" => log.items.push(item(payload, false)),
            "compacted" => {
                // What stood before is history that the model no longer sees.
                log.items.clear();
                log.usage.clear();
                match payload
                    .get("replacement_history")
                    .filter(|list| list.is_array())
                {
                    Some(list) => log
                        .items
                        .extend(list.elements().map(|body| item(body, false))),
                    None => log.items.extend(
                        payload
                            .get("message")
                            .filter(|message| message.is_string())
                            .map(|message| item(message, true)),
                    ),
                }
            }
            "event_msg" if payload.get_string("type").as_deref() == Some("token_count") => {
                let last = payload
                    .get("info")
                    .and_then(|info| info.get("last_token_usage"));
                if let Some(usage) = last.and_then(usage) {
                    let model = log.model.clone();
                    log.usage.push((
                        log.items.len(),
                        LoggedUsage {
                            model,
                            usage,
                            time_ms,
                        },
                    ));
                }
            }
            _ => {}
        }
    }
    log
}

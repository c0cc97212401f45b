//! Reads session logs of Claude Code.
//!
//! Each line names the line before it in `parentUuid`, so the lines form a tree. After a
//! rewind, the log still holds the abandoned branch. [`claude_code`] finds the branch that ends
//! in the last message, groups the lines of each message, and determines the window after the
//! last compaction.
//!
//! The chain has irregular places that this module repairs: a missing parent, lines that a
//! resumed log repeats, results of parallel calls, and compactions beside the chain.
//! Attachments, which the program adds to a prompt, are read in [`attachment`].

mod attachment;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::super::anatomy::time_of;
use super::super::json::Raw;
use super::super::views::Speaker;
use super::{Log, LogBody, LogItem};

/// One line of the log, with the members that decide whether and how it is read.
#[derive(Default)]
struct Line<'a> {
    raw: Raw<'a>,
    uuid: Option<String>,
    parent: Option<String>,
    /// For a boundary: the id of the last line before it.
    logical_parent: Option<String>,
    /// Whether the line states that no line precedes it.
    is_root: bool,
    message: Option<Raw<'a>>,
    attachment: Option<Raw<'a>>,
    /// The output of a command that the user ran in the program.
    output: Option<Raw<'a>>,
    /// The id that all lines of one assistant message share.
    message_id: Option<String>,
    is_assistant: bool,
    /// Whether the line is part of what the program sends to the model.
    is_conversation: bool,
    is_sidechain: bool,
    is_boundary: bool,
    is_summary: bool,
    /// Whether the agent's program wrote the line in the user's name.
    is_reminder: bool,
    /// For a boundary: the metadata of the compaction.
    compaction: Option<Raw<'a>>,
    /// The calls that the line answers, if it holds nothing but tool results.
    answers: Vec<String>,
}

impl<'a> Line<'a> {
    fn read(raw: Raw<'a>) -> Self {
        let mut line = Self {
            raw,
            ..Self::default()
        };
        let (mut kind, mut subtype, mut content) = (None, None, None);
        let (mut is_error, mut is_shown_only) = (false, false);
        for (key, value) in raw.members() {
            match key.as_ref() {
                "type" => kind = value.string(),
                "subtype" => subtype = value.string(),
                "uuid" => line.uuid = value.string().map(Into::into),
                "parentUuid" => {
                    line.parent = value.string().map(Into::into);
                    line.is_root = value.is_null();
                }
                "logicalParentUuid" => line.logical_parent = value.string().map(Into::into),
                "message" => line.message = Some(value).filter(|value| value.is_object()),
                "attachment" => line.attachment = Some(value).filter(|value| value.is_object()),
                "content" => content = Some(value).filter(|value| value.is_string()),
                "compactMetadata" => line.compaction = Some(value),
                "isSidechain" => line.is_sidechain = value.is_true(),
                "isCompactSummary" => line.is_summary = value.is_true(),
                "isMeta" => line.is_reminder |= value.is_true(),
                "origin" => line.is_reminder |= !is_of_user(value),
                // Error messages of the client and lines that only the transcript shows never
                // reach the model.
                "isApiErrorMessage" => is_error = value.is_true(),
                "isVisibleInTranscriptOnly" => is_shown_only = value.is_true(),
                _ => {}
            }
        }
        let kind = kind.unwrap_or_default();
        let subtype = subtype.unwrap_or_default();
        line.is_assistant = kind == "assistant";
        line.is_boundary = kind == "system" && subtype == "compact_boundary";
        line.attachment = line.attachment.filter(|_| kind == "attachment");
        line.output = content.filter(|_| kind == "system" && subtype == "local_command");
        line.message = line
            .message
            .filter(|_| line.is_assistant || kind == "user" || kind.is_empty());
        let is_said = line.message.is_some() && !kind.is_empty();
        // A compaction summary is marked as visible in the transcript only, but the model does
        // get it.
        let is_left_out = is_error || (is_shown_only && !line.is_summary);
        // A line without a type can be a link in the chain, but it is never sent.
        line.is_conversation =
            (is_said || line.attachment.is_some() || line.output.is_some()) && !is_left_out;
        line.is_reminder |= line.output.is_some();
        if let Some(message) = line.message {
            line.message_id = message.get_string("id").filter(|_| line.is_assistant);
            // If a line has anything besides results, it also says something, and counts as a
            // message of its own.
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

    /// The ids of the tool calls in the line's message.
    fn calls(&self) -> impl Iterator<Item = String> {
        self.message
            .and_then(|message| message.get("content"))
            .into_iter()
            .flat_map(Raw::elements)
            .filter(|block| block.has("type", "tool_use"))
            .filter_map(|block| block.get_string("id"))
    }

    /// Whether the line can be a link in the chain, that is, whether another line may follow
    /// it.
    fn is_link(&self) -> bool {
        !self.is_sidechain
            && (self.uuid.is_some() || self.message.is_some() || self.attachment.is_some())
    }

    /// Returns what the line sends to the model, and who said it. `None` if the line sends
    /// nothing.
    fn item(&self) -> Option<(LogBody<'a>, Speaker)> {
        if let Some(attachment) = self.attachment {
            let (body, is_users) = attachment::message_of(attachment)?;
            let speaker = match is_users && !self.is_reminder {
                true => Speaker::Wire,
                false => Speaker::Nobody,
            };
            return Some((LogBody::Made(body), speaker));
        }
        if let Some(output) = self.output {
            let body = format!("{{\"role\":\"user\",\"content\":{}}}", output.text());
            return Some((LogBody::Made(body), Speaker::Nobody));
        }
        let speaker = match (self.is_summary, self.is_reminder && !self.is_assistant) {
            (true, _) => Speaker::Summary,
            (false, true) => Speaker::Nobody,
            (false, false) => Speaker::Wire,
        };
        Some((LogBody::Found(self.message?), speaker))
    }
}

/// Whether an origin such as `{"kind": "human"}` means the user. An origin without a kind does.
fn is_of_user(origin: Raw<'_>) -> bool {
    let kind = origin.get("kind").and_then(Raw::string);
    kind.is_none_or(|kind| kind == "human")
}

/// Reads a log of Claude Code: the branch that ends in the last message. Messages on abandoned
/// branches are counted in a warning.
pub(in super::super) fn claude_code<'a>(lines: &[Raw<'a>]) -> Log<'a> {
    let mut log = Log::default();
    let mut lines: Vec<_> = lines.iter().map(|raw| Line::read(*raw)).collect();
    if !lines
        .iter()
        .any(|line| line.is_conversation && !line.is_sidechain)
    {
        // Every line of a subagent's log is marked as a side chain. If there are no others,
        // they are the conversation.
        for line in &mut lines {
            line.is_sidechain = false;
        }
    }
    let by_uuid = places_of(&lines);
    let live = live_branch(&lines, &by_uuid, &mut log.warnings);
    let is_live = |at: usize| live.get(at).copied().unwrap_or(false);
    let given_up = lines.iter().enumerate().filter(|(at, line)| {
        let is_said = line.is_conversation && line.message.is_some() && !line.is_sidechain;
        let is_repeated = line.uuid.as_deref().is_some_and(|uuid| {
            let places = by_uuid.get(uuid).map_or(&[][..], Vec::as_slice);
            places.iter().any(|place| is_live(*place))
        });
        is_said && !is_live(*at) && !is_repeated
    });
    let given_up = given_up.count();
    if given_up > 0 {
        log.warnings.push(format!(
            "{given_up} of the log's messages are on branches that the user abandoned, and are left out"
        ));
    }
    let last = |is_it: fn(&Line<'_>) -> bool| {
        (0..lines.len()).rfind(|at| is_live(*at) && lines.get(*at).is_some_and(is_it))
    };
    let boundary = last(|line| line.is_boundary);
    let summary = || last(|line| line.is_summary && line.is_conversation);
    let start = boundary.or_else(summary);
    let kept = boundary.and_then(|at| kept_segment(&lines, &by_uuid, at));

    // The index of the line that each item came from.
    let mut owners: Vec<usize> = Vec::new();
    for group in groups(&lines, &live) {
        let mut continues = false;
        for at in group {
            let Some(line) = lines.get(at) else { continue };
            let Some((body, speaker)) = line.item() else {
                continue;
            };
            let model = line
                .message
                .and_then(|body| body.get_string("model"))
                // Claude Code states this instead of a model in messages that it wrote itself.
                .filter(|model| model != "<synthetic>");
            log.model = model.or(log.model.take());
            log.items.push(LogItem {
                line: Some(line.raw),
                body,
                continues,
                speaker,
                is_copy: false,
                time_ms: line.raw.get("timestamp").and_then(time_of),
            });
            owners.push(at);
            continues = true;
        }
    }
    let items_in = |range: Range<usize>| {
        let owners = owners.iter().enumerate();
        owners.filter_map(move |(item, owner)| range.contains(owner).then_some(item))
    };
    let start = start.unwrap_or(0);
    log.window = items_in(start..lines.len()).collect();
    // The kept messages come before the boundary in the file, but the agent sends them at the
    // anchor.
    if let Some(kept) = kept {
        let place = match kept.anchor.filter(|anchor| *anchor != start) {
            None => 0,
            Some(anchor) => log
                .window
                .iter()
                .position(|item| owners.get(*item).is_some_and(|owner| *owner > anchor))
                .unwrap_or(log.window.len()),
        };
        let before = kept.lines.start..kept.lines.end.min(start);
        let segment: Vec<usize> = items_in(before).collect();
        log.window.splice(place..place, segment);
    }
    log
}

/// The indices of the lines with each id. A resumed log can hold an id more than once.
fn places_of<'l>(lines: &'l [Line<'_>]) -> HashMap<&'l str, Vec<usize>> {
    let mut by_uuid: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(uuid) = line.uuid.as_deref() {
            by_uuid.entry(uuid).or_default().push(at);
        }
    }
    by_uuid
}

/// Returns the lines in the order in which they form messages. The lines of one assistant
/// message are grouped even if results are between them. A line that was inserted between a
/// call and its result moves behind the result, because providers require the result to come
/// next.
fn groups(lines: &[Line<'_>], live: &[bool]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut unanswered: HashSet<String> = HashSet::new();
    let mut held: Vec<Vec<usize>> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !live.get(at).copied().unwrap_or(false) {
            continue;
        }
        if line.is_boundary {
            open.clear();
            unanswered.clear();
        }
        if !line.is_conversation {
            continue;
        }
        let is_put_in = line.attachment.is_some() || line.output.is_some() || line.is_reminder;
        if is_put_in && line.answers.is_empty() && !line.is_assistant && !unanswered.is_empty() {
            // The line waits until the results of the open calls have come.
            held.push(vec![at]);
            continue;
        }
        let id = line.message_id.as_deref();
        let group = id.and_then(|id| open.get(id)).copied();
        if !line.is_assistant && line.answers.is_empty() {
            unanswered.clear();
        }
        if unanswered.is_empty() || (line.is_assistant && group.is_none()) {
            groups.append(&mut held);
        }
        if !line.is_assistant && line.answers.is_empty() && !is_put_in {
            open.clear();
        }
        match group.and_then(|group| groups.get_mut(group)) {
            Some(group) => group.push(at),
            None => {
                if let Some(id) = id {
                    open.insert(id, groups.len());
                }
                groups.push(vec![at]);
            }
        }
        if line.is_assistant {
            if group.is_none() {
                unanswered.clear();
            }
            unanswered.extend(line.calls());
        }
        for id in &line.answers {
            unanswered.remove(id);
        }
        if unanswered.is_empty() {
            groups.append(&mut held);
        }
    }
    groups.append(&mut held);
    groups
}

/// The messages that a compaction kept unchanged, as a range of lines before its boundary.
struct KeptLines {
    lines: Range<usize>,
    /// The line after which the messages are sent. If it is the boundary itself or `None`, they
    /// come first.
    anchor: Option<usize>,
}

/// Returns which lines before the boundary at index `at` are still part of the window after it.
/// `None` if the compaction kept none.
fn kept_segment(
    lines: &[Line<'_>],
    by_uuid: &HashMap<&str, Vec<usize>>,
    at: usize,
) -> Option<KeptLines> {
    let told = lines.get(at)?.compaction?;
    let place = |uuid: &str| {
        let places = by_uuid.get(uuid)?;
        places.iter().rev().find(|place| **place < at).copied()
    };
    let (anchor, first, last) = match told.get("preservedMessages") {
        Some(kept) => {
            let uuids = kept.get("allUuids").or_else(|| kept.get("uuids"))?;
            let places: Vec<usize> = uuids
                .elements()
                .filter_map(|uuid| place(&uuid.string()?))
                .collect();
            let ends = (places.iter().min().copied()?, places.iter().max().copied()?);
            (kept.get_string("anchorUuid"), ends.0, ends.1)
        }
        None => {
            let kept = told.get("preservedSegment")?;
            let first = place(&kept.get_string("headUuid")?)?;
            let last = place(&kept.get_string("tailUuid")?)?;
            (kept.get_string("anchorUuid"), first, last)
        }
    };
    let anchor = anchor.and_then(|uuid| by_uuid.get(uuid.as_str())?.last().copied());
    let summary = || {
        let mut after = lines.iter().enumerate().skip(at);
        after.find(|(_, line)| line.is_summary).map(|(at, _)| at)
    };
    (first <= last).then(|| KeptLines {
        lines: first..last + 1,
        anchor: anchor.filter(|anchor| *anchor >= at).or_else(summary),
    })
}

/// Determines which lines are on the branch that ends in the last message. After a rewind, the
/// log still holds the lines of the abandoned branch. Missing parents are replaced by the
/// nearest line before, with a warning.
fn live_branch(
    lines: &[Line<'_>],
    by_uuid: &HashMap<&str, Vec<usize>>,
    warnings: &mut Vec<String>,
) -> Vec<bool> {
    let mut live = vec![false; lines.len()];
    let is_repeated = |at: usize, line: &Line<'_>| {
        let places = line.uuid.as_deref().and_then(|uuid| by_uuid.get(uuid));
        places.is_some_and(|places| places.first() != Some(&at))
    };
    // A resumed log repeats old lines at its end. These must not count as the last message.
    let leaf = lines.iter().enumerate().rfind(|(at, line)| {
        (line.message.is_some() || line.attachment.is_some())
            && !line.is_sidechain
            && !is_repeated(*at, line)
    });
    let Some((leaf, last)) = leaf else {
        return live;
    };
    if last.uuid.is_none() {
        // There is no chain to follow, so the order of the file decides.
        return lines.iter().map(|line| !line.is_sidechain).collect();
    }
    let mut before = Before::of(lines);
    let mut next = Some(leaf);
    let (mut lost_parents, mut beginnings) = (0, 0);
    while let Some(at) = next {
        let (Some(line), Some(seen)) = (lines.get(at), live.get_mut(at)) else {
            break;
        };
        *seen = true;
        // If several lines share an id, the nearest one before this line is meant.
        let parent = line.logical_parent.as_deref().filter(|_| line.is_boundary);
        let parent = parent.or(line.parent.as_deref());
        let places = parent.and_then(|parent| by_uuid.get(parent));
        let parent = places.and_then(|places| {
            let is_new = |at: &&usize| live.get(**at) == Some(&false);
            let before = places.iter().rev().filter(|place| **place < at);
            before.chain(places).find(is_new).copied()
        });
        let is_taken = |at: usize| {
            let twins = lines
                .get(at)
                .and_then(|line| by_uuid.get(line.uuid.as_deref()?));
            let is_live = |at: usize| live.get(at) == Some(&true);
            is_live(at) || twins.is_some_and(|twins| twins.iter().any(|twin| is_live(*twin)))
        };
        next = parent.or_else(|| {
            let before = before.nearest(at, is_taken);
            if line.is_root && !line.is_boundary {
                beginnings += usize::from(before.is_some());
            } else if !line.is_boundary {
                lost_parents += usize::from(line.parent.is_some() || before.is_some());
            }
            before
        });
    }
    if lost_parents > 0 {
        warnings.push(format!(
            "the parent of {lost_parents} of the log's lines is missing; the line before it was used instead"
        ));
    }
    if beginnings > 0 {
        warnings.push(format!(
            "{beginnings} of the log's lines begin a new chain without a parent; they are read as following the \
             line before"
        ));
    }
    adopt_compactions(lines, by_uuid, &mut live);
    adopt_parallel_lines(lines, by_uuid, &mut live);
    live
}

/// For each line, the nearest earlier line that others may follow. Path compression avoids
/// visiting a line twice, which would make long logs quadratic.
struct Before(Vec<Option<usize>>);

impl Before {
    fn of(lines: &[Line<'_>]) -> Self {
        let mut last = None;
        let before = lines.iter().enumerate().map(|(at, line)| {
            let before = last;
            if line.is_link() {
                last = Some(at);
            }
            before
        });
        Self(before.collect())
    }

    /// Returns the nearest line before `at` that is not taken and does not repeat a taken one.
    /// `None` if there is none.
    fn nearest(&mut self, at: usize, is_taken: impl Fn(usize) -> bool) -> Option<usize> {
        let step = |places: &[Option<usize>], at: usize| places.get(at).copied().flatten();
        let mut found = step(&self.0, at);
        let mut passed = vec![at];
        while let Some(place) = found.filter(|place| is_taken(*place)) {
            passed.push(place);
            found = step(&self.0, place);
        }
        for place in passed {
            if let Some(before) = self.0.get_mut(place) {
                *before = found;
            }
        }
        found
    }
}

/// Adds compactions that kept messages unchanged. Such a compaction is beside the chain,
/// because the chain continues from the last kept message. The compaction is live if that
/// message is, and so are the lines attached to it.
fn adopt_compactions(lines: &[Line<'_>], by_uuid: &HashMap<&str, Vec<usize>>, live: &mut [bool]) {
    let end = live.iter().rposition(|live| *live).unwrap_or(0);
    let mut adopted: HashSet<&str> = HashSet::new();
    for (at, line) in lines.iter().enumerate().take(end) {
        // A resumed log may hold the line twice.
        let is_copy = (line.uuid.as_deref()).is_some_and(|id| adopted.contains(id));
        if live.get(at) != Some(&false) || line.is_sidechain || is_copy {
            continue;
        }
        let is_it = match line.is_boundary {
            true => kept_segment(lines, by_uuid, at)
                .is_some_and(|kept| live.get(kept.lines.end - 1) == Some(&true)),
            false => {
                let is_put_in = line.is_summary || line.is_reminder || line.attachment.is_some();
                is_put_in
                    && line
                        .parent
                        .as_deref()
                        .is_some_and(|id| adopted.contains(id))
            }
        };
        if let Some(live) = live.get_mut(at).filter(|_| is_it) {
            *live = true;
            adopted.extend(line.uuid.as_deref());
        }
    }
}

/// Adds the lines of parallel calls, which are beside the chain. If an assistant message is
/// live, its other lines and the results of its calls are live too.
fn adopt_parallel_lines(
    lines: &[Line<'_>],
    by_uuid: &HashMap<&str, Vec<usize>>,
    live: &mut [bool],
) {
    let mut messages = HashSet::new();
    let mut ids = HashMap::new();
    // The results found beside the chain, whose attached lines are live too.
    let mut hung: HashSet<&str> = HashSet::new();
    let on_chain = lines.iter().zip(live.iter()).filter(|(_, live)| **live);
    for (line, _) in on_chain {
        messages.extend(line.message_id.clone());
        ids.extend(line.uuid.as_deref().map(|id| (id, line)));
    }
    // Models use the ids of calls again, so each result belongs to the line of a call: its parent,
    // or else the nearest one before it.
    let (mut calls, mut callers) = (HashMap::new(), HashSet::new());
    let mut calls_of: Vec<Vec<Option<usize>>> = vec![Vec::new(); lines.len()];
    let mut answered: HashSet<(&str, Option<usize>)> = HashSet::new();
    for (at, line) in lines.iter().enumerate() {
        let is_live = live.get(at) == Some(&true);
        let is_known = |id: &String| messages.contains(id);
        let is_repeated = !is_live && (line.uuid.as_deref()).is_some_and(|id| ids.contains_key(id));
        if line.is_sidechain || is_repeated {
            continue;
        }
        if line.is_assistant && (is_live || line.message_id.as_ref().is_some_and(is_known)) {
            calls.extend(line.calls().map(|id| (id, at)));
            callers.insert(at);
        }
        let parents = line.parent.as_deref().and_then(|id| by_uuid.get(id));
        let parent = parents.and_then(|places| places.iter().copied().find(|place| *place < at));
        let calls_it = |at: usize, id: &String| {
            let line = lines.get(at);
            line.is_some_and(|line| line.calls().any(|call| call == *id))
        };
        for id in &line.answers {
            let nearest = calls.get(id).copied();
            let parent = parent.filter(|parent| nearest != Some(*parent) && calls_it(*parent, id));
            let call = match parent {
                // A call on an abandoned branch has its result there.
                Some(parent) => callers.contains(&parent).then_some(parent),
                None => nearest,
            };
            if let Some(calls) = calls_of.get_mut(at) {
                calls.push(call);
            }
            if is_live {
                answered.insert((id, call));
            }
        }
    }
    for ((line, live), calls) in lines.iter().zip(live.iter_mut()).zip(&calls_of) {
        if line.is_sidechain {
            continue;
        }
        let twin = line.uuid.as_deref().and_then(|id| ids.get(id));
        if let Some(twin) = twin.filter(|_| !*live) {
            // A duplicated line is live once, but two different lines with one id are both
            // live.
            *live = line.message.map(Raw::text) != twin.message.map(Raw::text);
            continue;
        }
        if line.is_assistant {
            *live |= line
                .message_id
                .as_ref()
                .is_some_and(|id| messages.contains(id));
        } else if !*live && line.attachment.is_some() {
            // A line that was inserted after a result is attached to it.
            *live = line.parent.as_deref().is_some_and(|id| hung.contains(id));
        } else if !*live && !line.answers.is_empty() {
            let is_copy = line.uuid.as_deref().is_some_and(|id| hung.contains(id));
            let answers = || {
                line.answers
                    .iter()
                    .map(String::as_str)
                    .zip(calls.iter().copied())
            };
            *live = !is_copy
                && calls.len() == line.answers.len()
                && answers().all(|answer| answer.1.is_some() && !answered.contains(&answer));
            if *live {
                answered.extend(answers());
                hung.extend(line.uuid.as_deref());
            }
        }
        if *live
            && line.attachment.is_some()
            && line.parent.as_deref().is_some_and(|id| hung.contains(id))
        {
            hung.extend(line.uuid.as_deref());
        }
    }
}

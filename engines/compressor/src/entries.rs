//! Turns the decisions of a plan into the entries of a compaction.
//!
//! Every message of the request must occur in exactly one entry, or the host rejects the
//! compaction. `entries` serves a full compaction: it keeps, replaces or drops each message outside
//! the summary and adds a stub for every call whose result is missing. `pruned` serves the cheaper
//! `prune_tool_results`, which shortens old tool calls and results and writes no summary. Which
//! messages are kept is decided in `boundaries` and `plan`.

use std::collections::HashMap;

use contexture_digest::shorten_arguments;
use contexture_engine_api::{
    CLEARED_TOOL_OUTPUT, Entry, MISSING_RESULT, MessageView, Replacement, ShortArguments,
};
use contexture_summaries::ARGUMENT_MARK;

use crate::boundaries::{Outline, Split};
use crate::clearing::is_clearable;
use crate::plan::Plan;

/// The entries of the new window, in order. The summary, if there is one, stands at the plan's
/// `summary_before` and covers the whole middle.
pub(crate) fn entries(
    outline: &Outline<'_, '_>,
    plan: &Plan,
    summary: Option<String>,
) -> Vec<Entry> {
    let messages = outline.messages;
    let mut entries = Vec::with_capacity(messages.len());
    let mut replaced: HashMap<usize, &str> = plan
        .replaced
        .iter()
        .map(|(at, text)| (*at, text.as_str()))
        .collect();
    let mut summary = summary.map(|text| {
        Entry::summary(
            text,
            plan.split.middle().map(|at| messages[at].id()).collect(),
        )
    });
    let summarised = summary.is_some();
    let orphans_leave = orphans_leave(outline, plan, summarised);
    for (at, message) in messages.iter().enumerate() {
        if at == plan.split.summary_before {
            entries.extend(summary.take());
        }
        if summarised && !plan.split.keeps(at) {
            continue;
        }
        if orphans_leave && outline.is_orphan(at) {
            entries.push(Entry::dropped(
                message.id(),
                format!(
                    "the call {:?} that this is the result of is not part of the conversation",
                    message.tool_call_id().unwrap_or_default()
                ),
            ));
            continue;
        }
        match replaced.remove(&at) {
            Some(text) => entries.push(Entry::Replace(
                Replacement::new(message.id()).text(Some(text.to_owned())),
            )),
            None => entries.push(Entry::Keep(message.id())),
        }
        for index in outline.unanswered(at) {
            entries.push(Entry::stub(message.id(), index, MISSING_RESULT.to_owned()));
        }
    }
    entries
}

/// Whether tool results without a call can be dropped. They can if something else remains in the
/// window, and if the window still begins with the user if it did before.
fn orphans_leave(outline: &Outline<'_, '_>, plan: &Plan, summarised: bool) -> bool {
    let is_assistant = |at: usize| outline.messages[at].role() == "assistant";
    let first = (0..outline.messages.len()).find(|at| {
        let is_summary = summarised && *at == plan.split.summary_before;
        let stays = !summarised || plan.split.keeps(*at);
        let is_said = outline.messages[*at].role() != "system" && !outline.is_orphan(*at);
        is_summary || stays && is_said
    });
    first.is_some_and(|first| {
        let is_summary = summarised && first == plan.split.summary_before;
        is_summary || !is_assistant(first) || is_assistant(0)
    })
}

/// Keeps every message in place and shortens those outside the protected ones if possible. Returns
/// the entries and the number of messages that were shortened.
pub(crate) fn pruned(outline: &Outline<'_, '_>, split: &Split) -> (Vec<Entry>, usize) {
    let mut pruned = 0;
    let entries = outline
        .messages
        .iter()
        .enumerate()
        .map(|(at, message)| {
            let shorter = match split.keeps(at) {
                true => None,
                false => pruned_form(message, outline.caller(at)),
            };
            pruned += usize::from(shorter.is_some());
            shorter.map_or(Entry::Keep(message.id()), Entry::Replace)
        })
        .collect();
    (entries, pruned)
}

/// The shorter form of a message outside the protected ones, or `None` if it has none. Long tool
/// results are cleared and long arguments of tool calls shortened.
fn pruned_form(message: &MessageView<'_>, caller: Option<&MessageView<'_>>) -> Option<Replacement> {
    let text = is_clearable(message, caller).then(|| CLEARED_TOOL_OUTPUT.to_owned());
    // A provider may want a message with thinking back unchanged, so such a message stays whole or
    // leaves whole.
    let arguments: Vec<ShortArguments> = message
        .tool_calls()
        .iter()
        .enumerate()
        .filter(|_| !message.has_thinking())
        .filter_map(|(index, call)| {
            let arguments = shorten_arguments(call.arguments(), ARGUMENT_MARK)?;
            Some(ShortArguments::new(index, arguments))
        })
        .collect();
    (text.is_some() || !arguments.is_empty()).then(|| {
        Replacement::new(message.id())
            .text(text)
            .arguments(arguments)
    })
}

//! Where a conversation may be cut: never between a tool call and its results.

use crate::message::MessageView;

/// The largest index at or below `index` at which the messages can be cut in two without parting a
/// tool call from its results. 0 and `messages.len()` always can.
///
/// A result belongs to the nearest call before it with its id, so an id that a model uses again pairs
/// by position.
///
/// ```
/// use contexture_engine_api::{MessageId, MessageView, ToolCallView, safe_cut};
///
/// let calls = [ToolCallView::new("c1", "ls", "{}")];
/// let messages = [
///     MessageView::new(MessageId(1), "user").with_text("list"),
///     MessageView::new(MessageId(2), "assistant").with_tool_calls(&calls),
///     MessageView::new(MessageId(3), "tool").with_result_of("c1", "ls"),
///     MessageView::new(MessageId(4), "assistant").with_text("done"),
/// ];
/// assert_eq!(safe_cut(&messages, 2), 1);
/// assert_eq!(safe_cut(&messages, 3), 3);
/// ```
pub fn safe_cut(messages: &[MessageView<'_>], index: usize) -> usize {
    let index = index.min(messages.len());
    tool_groups(messages)
        .into_iter()
        .filter(|group| group.start < index && index < group.end)
        .map(|group| group.start)
        .min()
        .unwrap_or(index)
}

/// The smallest index at or above `index` at which the messages can be cut without parting a tool call
/// from its results.
pub fn safe_cut_after(messages: &[MessageView<'_>], index: usize) -> usize {
    let index = index.min(messages.len());
    tool_groups(messages)
        .into_iter()
        .filter(|group| group.start < index && index < group.end)
        .map(|group| group.end)
        .max()
        .unwrap_or(index)
}

/// The spans that must not be cut: each reaches from a message with tool calls to the last of their
/// results. Spans that overlap (results that come late) are joined, so the result is disjoint and in order.
pub fn tool_groups(messages: &[MessageView<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut open: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        for call in message.tool_calls() {
            open.insert(call.id(), at);
        }
        if !message.tool_calls().is_empty() {
            groups.push(at..at + 1);
        }
        if let Some(start) = message.tool_call_id().and_then(|id| open.get(id)) {
            // Everything since the call belongs to the span, later groups included.
            while groups.last().is_some_and(|group| group.start > *start) {
                groups.pop();
            }
            if let Some(group) = groups.last_mut() {
                group.end = at + 1;
            }
        }
    }
    groups
}

/// [`tool_groups`], and messages that are nothing but thinking with the message that follows them, which some
/// providers take as one: disjoint, in order.
pub fn whole_groups(messages: &[MessageView<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut groups = tool_groups(messages);
    let led_to = (1..messages.len()).filter(|at| thinking_leads_to(messages, *at));
    groups.extend(led_to.map(|at| at - 1..at + 1));
    groups.sort_unstable_by_key(|group| group.start);
    let mut joined: Vec<std::ops::Range<usize>> = Vec::with_capacity(groups.len());
    for group in groups {
        match joined.last_mut() {
            Some(last) if group.start < last.end => last.end = last.end.max(group.end),
            _ => joined.push(group),
        }
    }
    joined
}

/// Whether the message at this place is the model's and follows one that is nothing but thinking.
pub fn thinking_leads_to(messages: &[MessageView<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| messages.get(before));
    let follows = before.is_some_and(|before| {
        before.has_thinking() && before.text().trim().is_empty() && before.tool_calls().is_empty()
    });
    follows
        && messages
            .get(at)
            .is_some_and(|message| message.role() == "assistant")
}

/// The message whose calls are still waited for: the last that the assistant said, or that calls, where one of its
/// calls has no result. It is left as it is, and so are the results that it has.
pub fn in_flight(messages: &[MessageView<'_>]) -> Option<usize> {
    let last = messages
        .iter()
        .rposition(|message| message.role() == "assistant" || !message.tool_calls().is_empty())?;
    let mut answers: Vec<&str> = messages[last + 1..]
        .iter()
        .filter_map(MessageView::tool_call_id)
        .collect();
    let mut is_answered = |id: &str| {
        let answer = answers.iter().position(|answer| *answer == id);
        answer.map(|at| answers.swap_remove(at)).is_some()
    };
    let calls = messages[last].tool_calls();
    let waits = calls.iter().any(|call| !is_answered(call.id()));
    waits.then_some(last)
}

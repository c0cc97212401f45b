//! Plans the new window: which wire messages are sent, and in which place and role summaries
//! and stubs appear.
//!
//! A caller describes the window as a [`RenderPlan`]. [`planned_messages`] turns it into a list
//! of [`PlannedMessage`]s, each of which becomes one or several wire items in `splice` and
//! `render`.
//!
//! The difficulty is the roles. Providers expect user and assistant messages to alternate, and
//! some clients join neighbours of the same role. The planner therefore gives each summary the
//! role that fits between its neighbours, and joins it to a neighbour if no role fits. If two
//! messages of one role become adjacent because others were removed, it inserts a message that
//! says so.

use std::collections::VecDeque;
use std::ops::Range;

use contexture_engine_api::{MessageKind, ShortArguments};

use super::conversation::Conversation;
use super::message::Message;
use super::seal::{sealed_summary, unsealed_notice};
use super::{Format, FormatError};

/// What a model will see of a conversation. Messages are given by their index in
/// [`Conversation::messages`](super::Conversation::messages), and summaries and shortened forms
/// by their text.
#[derive(Debug, Clone, Default)]
pub struct RenderPlan<'a> {
    /// The entries of the window, in order.
    pub entries: Vec<PlanEntry<'a>>,
    /// A note to append to the system prompt, unless the prompt already contains it.
    pub system_note: Option<&'a str>,
    /// Whether a summary at the head becomes a message of its own, even if it must be an
    /// assistant message, which not every provider accepts as the first one. If this is false,
    /// the summary joins the user message after it.
    pub own_summaries: bool,
}

impl RenderPlan<'_> {
    /// Returns the plan that keeps all of `messages` messages unchanged.
    pub fn whole(messages: usize) -> Self {
        Self {
            entries: (0..messages).map(PlanEntry::Message).collect(),
            system_note: None,
            own_summaries: false,
        }
    }
}

/// One entry of a [`RenderPlan`]: a message, a summary or an answer to a call.
#[derive(Debug, Clone, Copy)]
pub enum PlanEntry<'a> {
    /// The message with this index, byte for byte.
    Message(usize),
    /// A shortened form of a message.
    Replaced {
        /// The index of the message.
        index: usize,
        /// The new text, or `None` to keep the old one. The new text of a tool result also
        /// replaces its images.
        text: Option<&'a str>,
        /// New arguments for some of the message's calls.
        arguments: &'a [ShortArguments],
    },
    /// A summary, in the role that fits between its neighbours.
    Summary {
        /// The text of the summary. If it lacks the host's mark, the mark is added.
        text: &'a str,
        /// Whether the summary gets the role `system` if the format has such messages. Notices
        /// use this.
        in_system_role: bool,
    },
    /// An answer that the host writes in place of a removed result. It is sent right after the
    /// message with the call, regardless of its position in the plan.
    Stub {
        /// The index of the message with the call.
        message: usize,
        /// The index of the call within that message, from 0.
        call: usize,
        /// The text of the answer.
        text: &'a str,
    },
}

/// A wire message of the new window whose summaries have no place yet.
enum Unplaced<'a> {
    Kept(KeptMessage<'a>),
    Summary {
        text: String,
        /// See [`PlanEntry::Summary`].
        in_system_role: bool,
    },
}

/// A wire message of the new window: one of the conversation's, or a summary with its final
/// role.
pub(super) enum PlannedMessage<'a> {
    Kept(KeptMessage<'a>),
    Summary { role: &'static str, text: String },
}

/// What is kept of one wire message, and which texts join it.
#[derive(Default)]
pub(super) struct KeptMessage<'a> {
    pub(super) parts: Vec<KeptPart<'a>>,
    /// Summaries that are placed before its text.
    pub(super) before: Vec<String>,
    /// Summaries that are placed at its end.
    pub(super) after: Vec<String>,
    /// Answers to its calls, as the index of the call and the text.
    pub(super) stubs: Vec<(usize, &'a str)>,
}

impl KeptMessage<'_> {
    /// Keeps these messages unchanged. All of them must belong to the same wire message.
    pub(super) fn of(messages: &[usize]) -> Self {
        Self {
            parts: messages.iter().copied().map(KeptPart::whole).collect(),
            ..Self::default()
        }
    }
}

/// A message that is kept, with its new text and arguments if it is shortened.
#[derive(Clone, Copy)]
pub(super) struct KeptPart<'a> {
    pub(super) index: usize,
    pub(super) text: Option<&'a str>,
    pub(super) arguments: &'a [ShortArguments],
}

impl KeptPart<'_> {
    /// Keeps the message with this index unchanged.
    fn whole(index: usize) -> Self {
        Self {
            index,
            text: None,
            arguments: &[],
        }
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.text.is_none() && self.arguments.is_empty()
    }
}

/// Whether tool results are part of user messages in this format.
pub(super) fn results_are_users(format: Format) -> bool {
    matches!(
        format,
        Format::Anthropic | Format::ClaudeCode | Format::Gemini
    )
}

/// Plans the wire messages of the window for the format `target`. `place` returns the position
/// of a wire item in its source, which shows whether two messages were neighbours. Fails if an
/// entry names a message or call that does not exist, or answers a call of a message that the
/// window leaves out.
pub(super) fn planned_messages<'a>(
    conversation: &Conversation,
    plan: &RenderPlan<'a>,
    target: Format,
    place: &dyn Fn(usize) -> usize,
) -> Result<Vec<PlannedMessage<'a>>, FormatError> {
    let messages = conversation.messages();
    let mut planned = group_entries(messages, &plan.entries)?;
    // Must come before the roles are assigned, because it creates more summaries.
    for out in &mut planned {
        free_summary(messages, out);
    }
    add_stubs(messages, &plan.entries, &mut planned)?;
    let wire = FormatPair {
        source: conversation.format(),
        target,
    };
    let mut planned = place_summaries(messages, planned, wire, plan.own_summaries);
    if target != Format::ClaudeCode {
        // Lines of one role may follow each other in a log.
        planned = part_neighbours(messages, planned, wire, place);
    }
    if results_are_users(target) {
        open_with_user(conversation, &mut planned, place);
    }
    Ok(planned)
}

/// Returns the message that an entry names.
fn message_at(messages: &[Message], index: usize) -> Result<&Message, FormatError> {
    messages.get(index).ok_or_else(|| {
        FormatError::Window(format!(
            "it names message {index}, but there are {}",
            messages.len()
        ))
    })
}

/// Groups the messages of a plan to wire messages, in order, with the summaries between them.
fn group_entries<'a>(
    messages: &[Message],
    entries: &[PlanEntry<'a>],
) -> Result<Vec<Unplaced<'a>>, FormatError> {
    let mut grouped: Vec<Unplaced<'a>> = Vec::with_capacity(entries.len());
    for entry in entries {
        let part = match *entry {
            PlanEntry::Message(index) => KeptPart::whole(index),
            PlanEntry::Replaced {
                index,
                text,
                arguments,
            } => KeptPart {
                index,
                text,
                arguments,
            },
            PlanEntry::Summary {
                text,
                in_system_role,
            } => {
                grouped.push(Unplaced::Summary {
                    text: sealed_summary(text),
                    in_system_role,
                });
                continue;
            }
            PlanEntry::Stub { .. } => continue,
        };
        let message = message_at(messages, part.index)?;
        let shares_wire = |last: &KeptPart<'_>| {
            last.index < part.index
                && messages.get(last.index).is_some_and(|before| {
                    before.items == message.items && !would_merge(before, message)
                })
        };
        match grouped.last_mut() {
            Some(Unplaced::Kept(kept)) if kept.parts.last().is_some_and(shares_wire) => {
                kept.parts.push(part);
            }
            _ => grouped.push(Unplaced::Kept(KeptMessage {
                parts: vec![part],
                ..KeptMessage::default()
            })),
        }
    }
    Ok(grouped)
}

/// Adds the answers of a plan to the messages with their calls. The entry of an answer may precede
/// that of its message.
fn add_stubs<'a>(
    messages: &[Message],
    entries: &[PlanEntry<'a>],
    grouped: &mut [Unplaced<'a>],
) -> Result<(), FormatError> {
    for entry in entries {
        let PlanEntry::Stub {
            message: index,
            call,
            text,
        } = *entry
        else {
            continue;
        };
        let calls = message_at(messages, index)?.calls.len();
        if call >= calls {
            return Err(FormatError::Window(format!(
                "it answers call {call} of message {index}, which has {calls} calls"
            )));
        }
        let owner = grouped.iter_mut().find_map(|out| match out {
            Unplaced::Kept(kept) if kept.parts.iter().any(|part| part.index == index) => Some(kept),
            _ => None,
        });
        match owner {
            Some(kept) => kept.stubs.push((call, text)),
            None => {
                return Err(FormatError::Window(format!(
                    "it answers a call of message {index}, which it does not hold"
                )));
            }
        }
    }
    Ok(())
}

/// Whether two messages of one wire message would be read as a single one if nothing were between
/// them: both are texts, and what kept them apart is not in the window, for example a notice.
fn would_merge(before: &Message, after: &Message) -> bool {
    let is_said = |message: &Message| message.role != "tool" && !message.is_summary();
    before.view_index + 1 < after.view_index && is_said(before) && is_said(after)
}

/// Inserts a user message before an assistant message at the head, because Anthropic and Gemini
/// require a user message first. The inserted text carries the host's mark. If the conversation
/// already started with an assistant message in one of these formats, it stays as it was.
fn open_with_user(
    conversation: &Conversation,
    planned: &mut Vec<PlannedMessage<'_>>,
    place: &dyn Fn(usize) -> usize,
) {
    let Some(PlannedMessage::Kept(first)) = planned.first() else {
        return;
    };
    let message = (first.parts.first()).and_then(|part| conversation.messages().get(part.index));
    let Some(message) = message.filter(|message| message.role == "assistant") else {
        return;
    };
    let spoke_first = place(message.items.start) == 0;
    if !(spoke_first && results_are_users(conversation.format())) {
        let text = match spoke_first {
            true => "The assistant spoke first.",
            false => REMOVED,
        };
        planned.insert(
            0,
            PlannedMessage::Summary {
                role: "user",
                text: sealed_summary(text),
            },
        );
    }
}

/// Turns an earlier summary into a message of its own if the message that it shared is removed.
fn free_summary(messages: &[Message], out: &mut Unplaced<'_>) {
    let Unplaced::Kept(kept) = out else {
        return;
    };
    let own: Vec<&Message> = kept
        .parts
        .iter()
        .filter_map(|part| messages.get(part.index))
        .collect();
    let [first, ..] = own.as_slice() else {
        return;
    };
    if !own.iter().all(|message| message.is_summary()) {
        return;
    }
    let shared = messages
        .iter()
        .filter(|message| message.items == first.items)
        .count();
    if shared > own.len() {
        let texts: Vec<_> = kept
            .parts
            .iter()
            .zip(&own)
            .map(|(part, message)| sealed_summary(part.text.unwrap_or(&message.text)))
            .collect();
        *out = Unplaced::Summary {
            text: texts.join("\n\n"),
            in_system_role: (own.iter()).any(|message| message.kind == MessageKind::Notice),
        };
    }
}

/// Gives each summary its place.
fn place_summaries<'a>(
    messages: &[Message],
    grouped: Vec<Unplaced<'a>>,
    wire: FormatPair,
    own: bool,
) -> Vec<PlannedMessage<'a>> {
    let is_of_user = |kept: &KeptMessage<'_>| {
        let first = kept.parts.first().and_then(|part| messages.get(part.index));
        first.is_some_and(|message| wire.role(message) == "user")
    };
    // Providers refuse a request without a message of the user's.
    let has_user = grouped.iter().any(|out| match out {
        Unplaced::Kept(kept) => is_of_user(kept),
        Unplaced::Summary { .. } => false,
    });
    let mut placed: Vec<PlannedMessage<'a>> = Vec::with_capacity(grouped.len());
    let mut joining: Vec<String> = Vec::new();
    let mut rest = grouped.into_iter();
    let mut ahead: VecDeque<Unplaced<'a>> = VecDeque::new();
    while let Some(out) = ahead.pop_front().or_else(|| rest.next()) {
        let (text, in_system_role) = match out {
            Unplaced::Kept(mut kept) => {
                kept.before.append(&mut joining);
                placed.push(PlannedMessage::Kept(kept));
                continue;
            }
            Unplaced::Summary {
                text,
                in_system_role,
            } => (text, in_system_role),
        };
        let is_notice = unsealed_notice(&text).is_some();
        let takes_system = !results_are_users(wire.target) && (has_user || is_notice);
        let place = if in_system_role && takes_system {
            Placement::Own("system")
        } else if is_notice || wire.target == Format::ClaudeCode {
            // Anthropic merges a notice into the user message before it, as a block of its own at
            // the end. Claude Code expects a summary on a line of its own.
            Placement::Own("user")
        } else {
            // The role of the next message decides, so the search looks past further summaries.
            while (ahead.iter()).all(|out| matches!(out, Unplaced::Summary { .. })) {
                let Some(next) = rest.next() else { break };
                ahead.push_back(next);
            }
            let next = ahead.iter().find_map(|out| match out {
                Unplaced::Kept(kept) => Some(messages.get(kept.parts.first()?.index)?),
                Unplaced::Summary { .. } => None,
            });
            placement(messages, placed.last(), next, wire, own)
        };
        match (place, placed.last_mut()) {
            (Placement::Own(role), _) => placed.push(PlannedMessage::Summary { role, text }),
            (Placement::InPrevious, Some(PlannedMessage::Summary { text: before, .. })) => {
                *before = format!("{before}\n\n{text}");
            }
            (Placement::InPrevious, Some(PlannedMessage::Kept(kept))) => kept.after.push(text),
            (Placement::InPrevious, None) | (Placement::InNext, _) => joining.push(text),
        }
    }
    placed
}

/// Where a summary goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// Into a message of its own in this role.
    Own(&'static str),
    /// To the end of the message before it.
    InPrevious,
    /// Before the text of the message after it.
    InNext,
}

/// Decides where a summary goes between `previous` and `next`. `own` is
/// [`RenderPlan::own_summaries`]. If either role would repeat that of a neighbour, the summary joins
/// a neighbour instead: a summary before it, else the message after it, else the user message before
/// it.
fn placement(
    messages: &[Message],
    previous: Option<&PlannedMessage<'_>>,
    next: Option<&Message>,
    wire: FormatPair,
    own: bool,
) -> Placement {
    let are_users = results_are_users(wire.target);
    let previous_role = previous.map(|out| wire.last_role(messages, out));
    let next_role = next.map(|next| wire.role(next));
    let is_beside = |role| previous_role == Some(role) || next_role == Some(role);
    if !is_beside("user") {
        return Placement::Own("user");
    }
    // The model's answer follows the last message. If that were an assistant message, the answer
    // would repeat its role, and Anthropic would even continue the message instead of answering.
    // Anthropic also requires its system messages to follow a user message
    // (platform.claude.com, "Mid-conversation system messages").
    let may_answer = next_role.is_some_and(|role| !are_users || role != "system");
    let may_begin = previous.is_some() || own && !are_users;
    let next_thinks = next.is_some_and(|next| next.has_thinking);
    if !is_beside("assistant") && may_begin && may_answer && !next_thinks {
        return Placement::Own("assistant");
    }
    match previous {
        // The two become blocks of one message, which Anthropic caches separately.
        Some(&PlannedMessage::Summary { role, .. }) if wire.source == wire.target && are_users => {
            Placement::Own(role)
        }
        Some(PlannedMessage::Summary { .. }) => Placement::InPrevious,
        _ if may_answer && next.is_some_and(takes_a_summary) => Placement::InNext,
        Some(PlannedMessage::Kept(kept)) if ends_as_user(messages, kept) => Placement::InPrevious,
        // The message before ends with tool results, which are part of a user message that the
        // summary then joins.
        _ => Placement::Own("user"),
    }
}

/// Prevents new pairs of neighbours with the same role. Many clients join such messages into
/// one, which would attribute the host's text to somebody else. A message that the host added
/// joins its neighbour. If two messages of the conversation become neighbours, a message of the
/// other role between them says that something was removed.
fn part_neighbours<'a>(
    messages: &[Message],
    planned: Vec<PlannedMessage<'a>>,
    wire: FormatPair,
    place: &dyn Fn(usize) -> usize,
) -> Vec<PlannedMessage<'a>> {
    let mut parted: Vec<PlannedMessage<'a>> = Vec::with_capacity(planned.len());
    for out in planned {
        let role = wire.first_role(messages, &out).to_owned();
        // Anthropic messages of one role later become blocks of one message, each of which is
        // cached separately. So do Gemini's of the user, but two answers may each have thinking.
        let are_blocks =
            results_are_users(wire.target) && (wire.target != Format::Gemini || role == "user");
        let last = parted.last().map(|last| wire.last_role(messages, last));
        let is_said = matches!(role.as_str(), "user" | "assistant" | "system");
        if are_blocks || !is_said || last != Some(role.as_str()) {
            parted.push(out);
            continue;
        }
        match (parted.pop(), out) {
            (
                Some(PlannedMessage::Summary { role, text }),
                PlannedMessage::Summary { text: more, .. },
            ) => {
                let text = format!("{text}\n\n{more}");
                parted.push(PlannedMessage::Summary { role, text });
            }
            (Some(PlannedMessage::Summary { text, .. }), PlannedMessage::Kept(mut kept))
                if role == "user" =>
            {
                kept.before.insert(0, text);
                parted.push(PlannedMessage::Kept(kept));
            }
            (Some(PlannedMessage::Kept(mut kept)), PlannedMessage::Summary { text, .. })
                if ends_as_user(messages, &kept) =>
            {
                kept.after.push(text);
                parted.push(PlannedMessage::Kept(kept));
            }
            // Only new neighbours are separated. If the client already sent two messages of
            // this role in a row, they stay adjacent.
            (Some(PlannedMessage::Kept(before)), PlannedMessage::Kept(after))
                if role != "system" && !were_neighbours(messages, &before, &after, place) =>
            {
                let other = if role == "user" { "assistant" } else { "user" };
                parted.push(PlannedMessage::Kept(before));
                parted.push(PlannedMessage::Summary {
                    role: other,
                    text: sealed_summary(REMOVED),
                });
                parted.push(PlannedMessage::Kept(after));
            }
            (last, out) => parted.extend(last.into_iter().chain([out])),
        }
    }
    parted
}

/// The text of a message that the roles require and the window lacks.
const REMOVED: &str = "Earlier messages were removed.";

/// Whether the second message directly followed the first one in their source, or both belong
/// to the same wire message.
fn were_neighbours(
    messages: &[Message],
    before: &KeptMessage<'_>,
    after: &KeptMessage<'_>,
    place: &dyn Fn(usize) -> usize,
) -> bool {
    let items =
        |part: Option<&KeptPart<'_>>| messages.get(part?.index).map(|message| &message.items);
    match (items(before.parts.last()), items(after.parts.first())) {
        (Some(before), Some(after)) => follow(before, after, place),
        _ => false,
    }
}

/// The same for the wire items of two messages.
pub(super) fn follow(
    before: &Range<usize>,
    after: &Range<usize>,
    place: &dyn Fn(usize) -> usize,
) -> bool {
    before == after || (before.end > 0 && place(before.end - 1) + 1 == place(after.start))
}

/// Whether a summary may be placed in a message before its text. It may not if the message is a
/// tool result, has thinking, is blank or consists of calls alone, because the model would take
/// the summary for its own words.
fn takes_a_summary(message: &Message) -> bool {
    let says_something =
        !message.text.trim().is_empty() || (message.calls.is_empty() && !message.media.is_empty());
    message.role != "tool" && !message.has_thinking && says_something
}

/// Whether a kept message ends with text of the user, so that a summary can be appended to it.
fn ends_as_user(messages: &[Message], kept: &KeptMessage<'_>) -> bool {
    let last = kept.parts.last().and_then(|part| messages.get(part.index));
    last.is_some_and(|last| last.role == "user") && kept.stubs.is_empty()
}

/// The formats between which messages move.
#[derive(Clone, Copy)]
struct FormatPair {
    source: Format,
    target: Format,
}

impl FormatPair {
    /// The role that a message gets in the target format.
    fn role(self, message: &Message) -> &str {
        match message.role.as_str() {
            "system" if results_are_users(self.source) => "system",
            "tool" | "system" if results_are_users(self.target) => "user",
            role => role,
        }
    }

    fn first_role<'m>(self, messages: &'m [Message], out: &PlannedMessage<'m>) -> &'m str {
        match out {
            PlannedMessage::Summary { role, .. } => role,
            PlannedMessage::Kept(kept) => (kept.parts.first())
                .and_then(|part| messages.get(part.index))
                .map_or("", |message| self.role(message)),
        }
    }

    fn last_role<'m>(self, messages: &'m [Message], out: &PlannedMessage<'_>) -> &'m str {
        match out {
            PlannedMessage::Summary { role, .. } => role,
            PlannedMessage::Kept(kept) if !kept.stubs.is_empty() => {
                if results_are_users(self.target) {
                    "user"
                } else {
                    "tool"
                }
            }
            PlannedMessage::Kept(kept) => kept
                .parts
                .last()
                .and_then(|part| messages.get(part.index))
                .map_or("", |message| self.role(message)),
        }
    }
}

#[cfg(test)]
mod tests;

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
        let part = |index: &usize| KeptPart {
            index: *index,
            text: None,
            arguments: &[],
        };
        Self {
            parts: messages.iter().map(part).collect(),
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
    let message = |index: usize| {
        messages.get(index).ok_or_else(|| {
            FormatError::Window(format!(
                "it names message {index}, but there are {}",
                messages.len()
            ))
        })
    };
    let mut planned: Vec<PlannedMessage<'a>> = Vec::with_capacity(plan.entries.len());
    for entry in &plan.entries {
        let part = match *entry {
            PlanEntry::Message(index) => KeptPart {
                index,
                text: None,
                arguments: &[],
            },
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
                planned.push(PlannedMessage::Summary {
                    role: if in_system_role { "system" } else { "" },
                    text: sealed_summary(text),
                });
                continue;
            }
            PlanEntry::Stub { .. } => continue,
        };
        let message = message(part.index)?;
        let items = &message.items;
        match planned.last_mut() {
            Some(PlannedMessage::Kept(kept))
                if kept.parts.last().is_some_and(|last| {
                    last.index < part.index
                        && messages.get(last.index).is_some_and(|before| {
                            before.items == *items && !would_merge(before, message)
                        })
                }) =>
            {
                kept.parts.push(part);
            }
            _ => planned.push(PlannedMessage::Kept(KeptMessage {
                parts: vec![part],
                ..KeptMessage::default()
            })),
        }
    }
    // Must come before the roles are assigned, because it creates more summaries.
    for out in &mut planned {
        free_summary(messages, out);
    }
    for entry in &plan.entries {
        // The entry of a stub may precede that of its message, so stubs need a pass of their
        // own.
        let PlanEntry::Stub {
            message: index,
            call,
            text,
        } = *entry
        else {
            continue;
        };
        if message(index)?.calls.get(call).is_none() {
            return Err(FormatError::Window(format!(
                "it answers call {call} of message {index}, which has {} calls",
                message(index)?.calls.len()
            )));
        }
        let owner = planned.iter_mut().find_map(|out| match out {
            PlannedMessage::Kept(kept) if kept.parts.iter().any(|part| part.index == index) => {
                Some(kept)
            }
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
fn free_summary(messages: &[Message], out: &mut PlannedMessage<'_>) {
    let PlannedMessage::Kept(kept) = out else {
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
        let is_notice = own
            .iter()
            .any(|message| message.kind == MessageKind::Notice);
        *out = PlannedMessage::Summary {
            role: if is_notice { "system" } else { "" },
            text: texts.join("\n\n"),
        };
    }
}

/// Gives each summary its role. If either role would repeat that of a neighbour, the summary
/// joins a neighbour instead: a summary before it, else the message after it, else the user
/// message before it.
fn place_summaries<'a>(
    messages: &[Message],
    planned: Vec<PlannedMessage<'a>>,
    wire: FormatPair,
    own: bool,
) -> Vec<PlannedMessage<'a>> {
    let target = wire.target;
    // Providers refuse a request without a message of the user's.
    let has_user = planned.iter().any(|out| match out {
        PlannedMessage::Kept(kept) => (kept.parts.first())
            .and_then(|part| messages.get(part.index))
            .is_some_and(|message| wire.role(message) == "user"),
        PlannedMessage::Summary { .. } => false,
    });
    let mut placed: Vec<PlannedMessage<'a>> = Vec::with_capacity(planned.len());
    let mut joining: Vec<String> = Vec::new();
    let mut rest = planned.into_iter().peekable();
    let mut ahead: std::collections::VecDeque<PlannedMessage<'a>> =
        std::collections::VecDeque::new();
    while let Some(out) = ahead.pop_front().or_else(|| rest.next()) {
        let text = match out {
            PlannedMessage::Kept(mut kept) => {
                kept.before.append(&mut joining);
                placed.push(PlannedMessage::Kept(kept));
                continue;
            }
            PlannedMessage::Summary {
                role: "system",
                text,
            } if !results_are_users(target) && (has_user || unsealed_notice(&text).is_some()) => {
                placed.push(PlannedMessage::Summary {
                    role: "system",
                    text,
                });
                continue;
            }
            // Anthropic merges this into the user message before it, as a block of its own at
            // the end.
            PlannedMessage::Summary { text, .. } if unsealed_notice(&text).is_some() => {
                placed.push(PlannedMessage::Summary { role: "user", text });
                continue;
            }
            PlannedMessage::Summary { text, .. } => text,
        };
        if target == Format::ClaudeCode {
            // The agent expects a summary on a line of its own.
            placed.push(PlannedMessage::Summary { role: "user", text });
            continue;
        }
        // The role of the next message decides, so the search looks past further summaries.
        while ahead
            .iter()
            .all(|out| matches!(out, PlannedMessage::Summary { .. }))
        {
            let Some(next) = rest.next() else { break };
            ahead.push_back(next);
        }
        let next = ahead.iter().find_map(|out| match out {
            PlannedMessage::Kept(kept) => Some(messages.get(kept.parts.first()?.index)?),
            PlannedMessage::Summary { .. } => None,
        });
        let previous_role = placed.last().map(|out| wire.last_role(messages, out));
        let next_role = next.map(|next| wire.role(next));
        let next_thinks = next.is_some_and(|next| next.has_thinking);
        let user = Some("user");
        let assistant = Some("assistant");
        // The model's answer follows the last message. If that were an assistant message, the
        // answer would repeat its role, and Anthropic would even continue the message instead
        // of answering. Anthropic also requires its system messages to follow a user message
        // (platform.claude.com, "Mid-conversation system messages").
        let may_answer =
            next_role.is_some_and(|role| !results_are_users(target) || role != "system");
        if previous_role != user && next_role != user {
            placed.push(PlannedMessage::Summary { role: "user", text });
        } else if previous_role != assistant
            && next_role != assistant
            && (previous_role.is_some() || (own && !results_are_users(target)))
            && !next_thinks
            && may_answer
        {
            placed.push(PlannedMessage::Summary {
                role: "assistant",
                text,
            });
        } else if let Some(PlannedMessage::Summary { role, text: before }) = placed.last_mut() {
            if wire.source == target && results_are_users(target) {
                // The two become blocks of one message, which Anthropic caches separately.
                let role = *role;
                placed.push(PlannedMessage::Summary { role, text });
            } else {
                *before = format!("{before}\n\n{text}");
            }
        } else if may_answer && next.is_some_and(takes_a_summary) {
            joining.push(text);
        } else {
            match placed.last_mut() {
                Some(PlannedMessage::Kept(kept)) if ends_as_user(messages, kept) => {
                    kept.after.push(text)
                }
                // The message before ends with tool results, which are part of a user message
                // that the summary then joins.
                _ => placed.push(PlannedMessage::Summary { role: "user", text }),
            }
        }
    }
    placed
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

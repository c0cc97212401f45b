//! The new window, laid out: which wire messages leave, and where summaries and stubs stand among them.

use contexture_engine_api::{MessageKind, ShortArguments};

use super::conversation::Conversation;
use super::message::Message;
use super::seal::{sealed_summary, unsealed_notice};
use super::{Format, FormatError};

/// What a model is to see of a conversation: its messages by their index in
/// [`Conversation::messages`](super::Conversation::messages), and what stands in place of others.
#[derive(Debug, Clone, Default)]
pub struct RenderPlan<'a> {
    /// The window, in order.
    pub entries: Vec<PlanEntry<'a>>,
    /// A note to append to the system prompt, unless it is there already.
    pub system_note: Option<&'a str>,
    /// Whether a summary at the head becomes a message of its own, even if that has to be an assistant message, which
    /// not every provider accepts as the first one. If not, the summary joins the user message after it.
    pub own_summaries: bool,
}

impl RenderPlan<'_> {
    /// The window that holds all `messages` messages as they are.
    pub fn whole(messages: usize) -> Self {
        Self {
            entries: (0..messages).map(PlanEntry::Message).collect(),
            system_note: None,
            own_summaries: false,
        }
    }
}

/// One entry of a [`RenderPlan`].
#[derive(Debug, Clone, Copy)]
pub enum PlanEntry<'a> {
    /// The message as it is, byte for byte.
    Message(usize),
    /// A shorter form of a message.
    Replaced {
        /// Which message.
        index: usize,
        /// Its new text; none keeps the text. The new text of a tool result replaces its images too.
        text: Option<&'a str>,
        /// New arguments for some of its calls.
        arguments: &'a [ShortArguments],
    },
    /// A summary, in the role that fits between its neighbours.
    Summary {
        /// Its text; the mark is put before it where it lacks it.
        text: &'a str,
        /// Whether it is to stand in the role `system`, where the format has such messages, as a notice does.
        in_system_role: bool,
    },
    /// A made-up answer to a call. It leaves right after the message with the call, wherever it stands.
    Stub {
        /// The message with the call.
        message: usize,
        /// Which of its calls, from 0.
        call: usize,
        /// The text.
        text: &'a str,
    },
}

/// A wire message of the new window.
pub(super) enum PlannedMessage<'a> {
    Kept(Kept<'a>),
    Summary { role: &'static str, text: String },
}

/// What is kept of one wire message, and what joins it.
#[derive(Default)]
pub(super) struct Kept<'a> {
    pub(super) parts: Vec<Part<'a>>,
    /// Summaries to stand before its text.
    pub(super) before: Vec<String>,
    /// Summaries to stand at its end.
    pub(super) after: Vec<String>,
    /// Answers to its calls: the call and the text.
    pub(super) stubs: Vec<(usize, &'a str)>,
}

impl Kept<'_> {
    /// These messages of one wire message, as they are.
    pub(super) fn of(messages: &[usize]) -> Self {
        let part = |index: &usize| Part {
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

/// A message that is kept, and its changes.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) index: usize,
    pub(super) text: Option<&'a str>,
    pub(super) arguments: &'a [ShortArguments],
}

impl Part<'_> {
    pub(super) fn is_unchanged(&self) -> bool {
        self.text.is_none() && self.arguments.is_empty()
    }
}

/// Whether tool results are part of the user's messages.
pub(super) fn results_are_users(format: Format) -> bool {
    matches!(format, Format::Anthropic | Format::ClaudeCode)
}

/// Plans the messages of the window for `target`.
///
/// `place` returns the position of a wire item in its source, so that neighbours are known.
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
                "it names message {index}, and there are {}",
                messages.len()
            ))
        })
    };
    let mut planned: Vec<PlannedMessage<'a>> = Vec::with_capacity(plan.entries.len());
    for entry in &plan.entries {
        let part = match *entry {
            PlanEntry::Message(index) => Part {
                index,
                text: None,
                arguments: &[],
            },
            PlanEntry::Replaced {
                index,
                text,
                arguments,
            } => Part {
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
        let items = &message(part.index)?.items;
        match planned.last_mut() {
            Some(PlannedMessage::Kept(kept))
                if kept.parts.last().is_some_and(|last| {
                    last.index < part.index
                        && messages
                            .get(last.index)
                            .is_some_and(|last| last.items == *items)
                }) =>
            {
                kept.parts.push(part);
            }
            _ => planned.push(PlannedMessage::Kept(Kept {
                parts: vec![part],
                ..Kept::default()
            })),
        }
    }
    for out in &mut planned {
        free_summary(messages, out);
    }
    for entry in &plan.entries {
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
    let wire = Wire {
        source: conversation.format(),
        target,
    };
    let mut planned = place_summaries(messages, planned, wire, plan.own_summaries);
    if target != Format::ClaudeCode {
        // In a log, lines of one role may follow each other.
        planned = part_neighbours(messages, planned, wire, place);
    }
    if results_are_users(target) {
        open_with_user(conversation, &mut planned);
    }
    Ok(planned)
}

/// Anthropic takes the user's message first. Where an answer came to stand there, what is marked as
/// the host's goes before it; a conversation that came so from Anthropic stays so.
fn open_with_user(conversation: &Conversation, planned: &mut Vec<PlannedMessage<'_>>) {
    let Some(PlannedMessage::Kept(first)) = planned.first() else {
        return;
    };
    let Some(index) = first.parts.first().map(|part| part.index) else {
        return;
    };
    let answers = conversation
        .messages()
        .get(index)
        .is_some_and(|message| message.role == "assistant");
    if answers && !(index == 0 && results_are_users(conversation.format())) {
        let text = if index == 0 {
            "The assistant spoke first."
        } else {
            REMOVED
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

/// An earlier summary becomes a message of its own where the message that it shared leaves.
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

/// Gives each summary its role. Where either role would stand twice in a row it joins a neighbour: a
/// summary before it, else the message after it, else the user's message before it.
fn place_summaries<'a>(
    messages: &[Message],
    planned: Vec<PlannedMessage<'a>>,
    wire: Wire,
    own: bool,
) -> Vec<PlannedMessage<'a>> {
    let target = wire.target;
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
            } if !results_are_users(target) => {
                placed.push(PlannedMessage::Summary {
                    role: "system",
                    text,
                });
                continue;
            }
            // It joins the user's message before it, as a block of its own at the end.
            PlannedMessage::Summary { text, .. } if unsealed_notice(&text).is_some() => {
                placed.push(PlannedMessage::Summary { role: "user", text });
                continue;
            }
            PlannedMessage::Summary { text, .. } => text,
        };
        if target == Format::ClaudeCode {
            // The agent expects a summary in a line of its own.
            placed.push(PlannedMessage::Summary { role: "user", text });
            continue;
        }
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
        // The model's answer follows the last message. After an assistant message it would be the second of its role,
        // and Anthropic even continues an answer that stands at the end. Its system messages have to follow a user
        // message (platform.claude.com, "Mid-conversation system messages").
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
            if (wire.source, target) == (Format::Anthropic, Format::Anthropic) {
                // They become one message, and each is a block of it, cached apart.
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
                // After tool results, which are part of a user's message that the summary joins.
                _ => placed.push(PlannedMessage::Summary { role: "user", text }),
            }
        }
    }
    placed
}

/// Prevents new pairs of neighbours with the same role. Many clients join such messages into one, which would attribute
/// the host's words to somebody else. A message that the host added joins its neighbour. Between two messages of the
/// conversation whose neighbours were removed, a message of the other role says that something is missing.
fn part_neighbours<'a>(
    messages: &[Message],
    planned: Vec<PlannedMessage<'a>>,
    wire: Wire,
    place: &dyn Fn(usize) -> usize,
) -> Vec<PlannedMessage<'a>> {
    let mut parted: Vec<PlannedMessage<'a>> = Vec::with_capacity(planned.len());
    // Anthropic's messages later become blocks of one message, each cached separately.
    let are_blocks = results_are_users(wire.target);
    for out in planned {
        let role = wire.first_role(messages, &out).to_owned();
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

/// Fills a place where the roles require a message and the window has none.
const REMOVED: &str = "Earlier messages were removed.";

/// Whether a message followed the other one in their source, or both belong to the same message.
fn were_neighbours(
    messages: &[Message],
    before: &Kept<'_>,
    after: &Kept<'_>,
    place: &dyn Fn(usize) -> usize,
) -> bool {
    let items = |part: Option<&Part<'_>>| messages.get(part?.index).map(|message| &message.items);
    match (items(before.parts.last()), items(after.parts.first())) {
        (Some(before), Some(after)) => {
            before == after || (before.end > 0 && place(before.end - 1) + 1 == place(after.start))
        }
        _ => false,
    }
}

/// Whether a summary may stand in a message before its own text: not where that is a result, is thought
/// about, is blank, or is calls alone, of which the model would take it for its own words.
fn takes_a_summary(message: &Message) -> bool {
    let says_something =
        !message.text.trim().is_empty() || (message.calls.is_empty() && !message.media.is_empty());
    message.role != "tool" && !message.has_thinking && says_something
}

fn ends_as_user(messages: &[Message], kept: &Kept<'_>) -> bool {
    let last = kept.parts.last().and_then(|part| messages.get(part.index));
    last.is_some_and(|last| last.role == "user") && kept.stubs.is_empty()
}

/// From which format to which one messages go.
#[derive(Clone, Copy)]
struct Wire {
    source: Format,
    target: Format,
}

impl Wire {
    /// The role that a message has where it goes.
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

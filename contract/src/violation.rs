//! Every way in which a proposal can break the contract.

use contexture_engine_api::{MessageId, grouped};
use thiserror::Error;

/// Why a proposal is refused. The conversation stays as it was; the text goes to the engine, the log and
/// the report as it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// Nothing of the proposal would be in the window but system messages.
    #[error("the proposal leaves no message and no summary in the window but system messages")]
    EmptyResult,
    /// An entry names a message that was not in the request.
    #[error("{id} is not a message of the request")]
    UnknownId {
        /// The unknown id.
        id: MessageId,
    },
    /// An entry is of a kind that this host does not know.
    #[error(
        "the entry `{name}` is of a later version of the interface than this host's; an engine asks \
         `services.supports(\"{name}\")` before it proposes one"
    )]
    UnknownEntry {
        /// The entry's name.
        name: String,
    },
    /// A message is accounted for by two entries, or twice by one.
    #[error("{id} occurs twice in the proposal; every message must occur exactly once")]
    Twice {
        /// The message.
        id: MessageId,
    },
    /// Messages are accounted for by no entry.
    #[error("{ids} would vanish: keep, replace, summarise or drop every message of the request")]
    Missing {
        /// The messages.
        ids: Ids,
    },
    /// What is kept stands in another order than before.
    #[error("{id} comes after {after} in the proposal but before it in the conversation")]
    OrderChanged {
        /// The message that came too late.
        id: MessageId,
        /// The message that it follows in the proposal.
        after: MessageId,
    },
    /// The last real user message leaves the window.
    #[error("{id} is the last message of the user and would leave the window; it must be kept")]
    LastUserRemoved {
        /// The message.
        id: MessageId,
    },
    /// The last real user message is changed.
    #[error("{id} is the last message of the user and would be changed; it must be kept verbatim")]
    LastUserReplaced {
        /// The message.
        id: MessageId,
    },
    /// A call stays and its result leaves.
    #[error(
        "{call} stays with its tool call `{tool_call_id}`, but the result {result} would leave; \
         they stay or leave together"
    )]
    CallWithoutResult {
        /// The message with the call.
        call: MessageId,
        /// The message with the result.
        result: MessageId,
        /// The call's id on the wire.
        tool_call_id: String,
    },
    /// A result stays and its call leaves.
    #[error(
        "{result} stays with the result of tool call `{tool_call_id}`, but the call in {call} would \
         leave; they stay or leave together"
    )]
    ResultWithoutCall {
        /// The message with the result.
        result: MessageId,
        /// The message with the call.
        call: MessageId,
        /// The call's id on the wire.
        tool_call_id: String,
    },
    /// A message with calls in flight, or a result of the same batch, is changed, removed or answered.
    #[error(
        "{id} would be touched while tool calls of {call} are in flight; these calls and the results \
         that are there already must be kept"
    )]
    InFlight {
        /// What is touched.
        id: MessageId,
        /// The message with the unanswered calls.
        call: MessageId,
    },
    /// Something new stands between messages that belong together.
    #[error("a summary would stand between {first} and {last}, which belong together")]
    GroupSplit {
        /// The message with the call or the thinking.
        first: MessageId,
        /// The last message that belongs to it.
        last: MessageId,
    },
    /// A replacement replaces nothing.
    #[error("the replacement of {id} changes neither text nor arguments; keep the message instead")]
    EmptyReplacement {
        /// The message.
        id: MessageId,
    },
    /// A message is to be restored of which no shorter form is in the window.
    #[error(
        "{id} is no shorter form of a message, so there is nothing to restore; keep it instead"
    )]
    NothingToRestore {
        /// The message.
        id: MessageId,
    },
    /// A notice is changed.
    #[error("{id} is a notice, which is never changed once it is in the window; keep or drop it")]
    NoticeReplaced {
        /// The notice.
        id: MessageId,
    },
    /// The state of a message is no object.
    #[error("the replacement of {id} has a state that is no JSON object")]
    BadState {
        /// The message.
        id: MessageId,
    },
    /// The new text is longer than the old one.
    #[error("the replacement of {id} has {bytes} bytes of text where the message has {was}")]
    LongerText {
        /// The message.
        id: MessageId,
        /// Bytes of the new text.
        bytes: usize,
        /// Bytes of the old text.
        was: usize,
    },
    /// The new text could be taken for the message's own.
    #[error(
        "the new text of {id} is not marked as shortened; it must begin with {:?} or a mark that the engine \
         declares, or for a tool result be {:?}",
        contexture_engine_api::SHORTENED_MARK,
        contexture_engine_api::CLEARED_TOOL_OUTPUT
    )]
    Unmarked {
        /// The message.
        id: MessageId,
    },
    /// An entry names a call that the message does not have.
    #[error("{id} has no tool call {index} (counted from 0; it has {calls})")]
    NoSuchCall {
        /// The message.
        id: MessageId,
        /// The call that was named.
        index: usize,
        /// How many it has.
        calls: usize,
    },
    /// The arguments of one call are replaced twice.
    #[error("the replacement of {id} gives new arguments for tool call {index} twice")]
    ArgumentsTwice {
        /// The message.
        id: MessageId,
        /// The call, from 0.
        index: usize,
    },
    /// The new arguments are longer than the old ones.
    #[error(
        "the replacement of {id} has {bytes} bytes of arguments for tool call {index}, which has {was}"
    )]
    LongerArguments {
        /// The message.
        id: MessageId,
        /// The call, from 0.
        index: usize,
        /// Bytes of the new arguments.
        bytes: usize,
        /// Bytes of the old arguments.
        was: usize,
    },
    /// The new arguments are no JSON, or no object where the old ones are one.
    #[error("the replacement of {id} has invalid arguments for tool call {index}: {reason}")]
    InvalidArguments {
        /// The message.
        id: MessageId,
        /// The call, from 0.
        index: usize,
        /// What is wrong with them.
        reason: String,
    },
    /// A message with thinking is changed in the round whose answers the provider wants back as they were.
    #[error(
        "{id} holds thinking about what the user said last; keep the message whole or remove it"
    )]
    ThinkingReplaced {
        /// The message.
        id: MessageId,
    },
    /// Thinking and what it leads to are one message to the provider, and one half of it leaves.
    #[error("{thinking} holds the thinking of {next}; they stay or leave together")]
    ThinkingParted {
        /// The message with the thinking.
        thinking: MessageId,
        /// The message that goes with it.
        next: MessageId,
    },
    /// A summary has no text.
    #[error("the summary of {covers} is empty")]
    EmptySummary {
        /// What it covers.
        covers: Ids,
    },
    /// A notice has no text.
    #[error("a notice is empty")]
    EmptyNotice,
    /// A notice begins like a turn of the user.
    #[error("a notice begins with {opening:?}, as if the user were speaking")]
    NoticePosesAsUser {
        /// How it begins.
        opening: String,
    },
    /// A summary begins like a turn of the user.
    #[error("the summary of {covers} begins with {opening:?}, as if the user were speaking")]
    PosesAsUser {
        /// What it covers.
        covers: Ids,
        /// How it begins.
        opening: String,
    },
    /// A summary holds the mark that ends summaries, so that its rest would pass for a message.
    #[error(
        "the summary of {covers} has text after {:?}, which would be taken for somebody's words",
        contexture_engine_api::SUMMARY_END_MARK
    )]
    ClosedEarly {
        /// What it covers.
        covers: Ids,
    },
    /// A made-up result has no text.
    #[error("the stub for tool call {index} of {call} is empty")]
    EmptyStub {
        /// The message with the call.
        call: MessageId,
        /// Which of its calls, from 0.
        index: usize,
    },
    /// A made-up result does not stand with its call.
    #[error(
        "the stub for tool call {index} of {call} does not follow that message and its results"
    )]
    StubAstray {
        /// The message with the call.
        call: MessageId,
        /// Which of its calls, from 0.
        index: usize,
    },
    /// A made-up result for a call that has one.
    #[error("tool call {index} of {call} has a result already and may not get a stub")]
    StubForAnswered {
        /// The message with the call.
        call: MessageId,
        /// Which of its calls, from 0.
        index: usize,
    },
    /// The window would begin with the assistant where the provider wants the user first.
    #[error("the window would begin with {id}, an assistant's message; the first must be a user's")]
    FirstIsNotUser {
        /// The message.
        id: MessageId,
    },
    /// The window would not get smaller.
    #[error(
        "the window would have {} tokens after {}; a compaction must make it smaller",
        grouped(*after), grouped(*before)
    )]
    NotSmaller {
        /// Tokens now.
        before: u64,
        /// Tokens of the proposal.
        after: u64,
    },
}

/// Some messages, named in full up to a few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids(pub Vec<MessageId>);

impl std::fmt::Display for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMED: usize = 5;
        if self.0.is_empty() {
            return f.write_str("no message");
        }
        for (at, id) in self.0.iter().take(NAMED).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{id}")?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

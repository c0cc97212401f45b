//! Defines every way in which a proposal can break the contract.
//!
//! [`Violation`] has one variant per rule, with the ids of the messages involved. Its text is
//! shown to the engine's author, in the log and in the report, so it names the message, the
//! rule and what to do instead.
//!
//! The variants are grouped by subject: the account of the messages, groups, replacements,
//! thinking, summaries, stubs and the window as a whole. If a proposal breaks several rules,
//! only the first violation that is found is reported. The checks themselves are in `account`,
//! `grouping`, `wording` and the crate root.

use contexture_engine_api::{MessageId, grouped};
use thiserror::Error;

/// Why a proposal is rejected. The conversation stays as it was, and the text of the violation
/// goes unchanged to the engine, the log and the report.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// Nothing but system messages would remain in the window. Providers reject such a prompt,
    /// and the model would have nothing to answer. Keep a message, or insert a summary of those
    /// that are removed.
    #[error(
        "the proposal leaves only system messages in the window; keep or summarise at least one other message"
    )]
    EmptyResult,
    /// An entry names a message that is not part of the request, for example because the engine
    /// remembered the id from an earlier window. Only ids from the views of this request are
    /// valid.
    #[error("{id} is not a message of the request")]
    UnknownId {
        /// The id that the request does not contain.
        id: MessageId,
    },
    /// An entry has a kind that this host does not know, because the engine uses a later
    /// version of the interface. Ask the host with `services.supports` before using a new kind.
    #[error(
        "the entry `{name}` is newer than this host's interface; call `services.supports(\"{name}\")` before \
         proposing one"
    )]
    UnknownEntry {
        /// The name of the kind of entry, as the interface spells it.
        name: String,
    },
    /// A message is accounted for by two entries, or twice by the same summary. This happens,
    /// for example, if a message is kept and also covered by a summary.
    #[error("{id} occurs twice in the proposal; every message must occur exactly once")]
    Twice {
        /// The id of the message that occurs twice.
        id: MessageId,
    },
    /// Some messages are not accounted for by any entry. If an engine wants to remove a
    /// message, it must drop it explicitly, so that a forgotten message is never lost.
    #[error("{ids} would vanish: keep, replace, summarise or drop every message of the request")]
    Missing {
        /// The ids of all messages without an entry, in the order of the conversation.
        ids: Ids,
    },
    /// The kept messages are in another order than before. A compaction may remove and shorten
    /// messages, but the model must see the remaining ones in the order in which they were
    /// said.
    #[error("{id} comes after {after} in the proposal but before it in the conversation")]
    OrderChanged {
        /// The message that comes too late in the proposal.
        id: MessageId,
        /// The message that precedes it in the proposal but follows it in the conversation.
        after: MessageId,
    },
    /// A summary comes after a message that is later than all that it covers, such as the user's
    /// last one, so the model would take old events for new ones. Put it where the first of the
    /// covered messages was, or before.
    #[error(
        "the summary of {covers} comes after {after} in the proposal, but all that it covers comes before it in \
         the conversation"
    )]
    SummaryTooLate {
        /// The messages that the summary covers, to tell which summary is meant.
        covers: Ids,
        /// The latest message that precedes the summary in the proposal, kept or covered by
        /// another summary.
        after: MessageId,
    },
    /// The last real user message would be removed or covered by a summary, so the model would
    /// not know what to answer. If the message is too large for the window, a preview may
    /// replace it.
    #[error("{id} is the user's last message and must stay in the window")]
    LastUserRemoved {
        /// The id of the last real user message.
        id: MessageId,
    },
    /// The last real user message would be changed. This is only allowed when the message does
    /// not fit into the window, or when the engine declares that it keeps such messages
    /// elsewhere.
    #[error("{id} is the last message of the user and would be changed; it must be kept verbatim")]
    LastUserReplaced {
        /// The id of the last real user message.
        id: MessageId,
    },
    /// A tool call would stay while its result is removed, and providers reject a call without
    /// a result. Keep both or remove both. If the result is too long, shorten it instead.
    #[error(
        "{call} stays with its tool call `{tool_call_id}`, but the result {result} would leave; \
         they stay or leave together"
    )]
    CallWithoutResult {
        /// The id of the message with the call.
        call: MessageId,
        /// The id of the message with the result.
        result: MessageId,
        /// The id of the call on the wire. Models reuse ids, so it may not be unique.
        tool_call_id: String,
    },
    /// A tool result would stay while its call is removed, and providers reject a result
    /// without a call. Keep both or remove both. If the arguments are too long, shorten them
    /// instead.
    #[error(
        "{result} stays with the result of tool call `{tool_call_id}`, but the call in {call} would \
         leave; they stay or leave together"
    )]
    ResultWithoutCall {
        /// The id of the message with the result.
        result: MessageId,
        /// The id of the message with the call.
        call: MessageId,
        /// The id of the call on the wire. Models reuse ids, so it may not be unique.
        tool_call_id: String,
    },
    /// A message would stay without the one that continues it, or the other way round. One has the
    /// call of a tool that the provider runs itself, and the other its result. Providers reject a
    /// request with only one of the two.
    #[error(
        "{next} continues {id} with the result of a tool that the provider runs; they stay or leave together"
    )]
    ContinuationParted {
        /// The id of the message that is continued.
        id: MessageId,
        /// The id of the message that continues it.
        next: MessageId,
    },
    /// A message with calls in flight, or a result of the same batch, would be changed, removed
    /// or answered by a stub. The agent is still running these tools and will add the other
    /// results.
    #[error(
        "{id} would be changed while tool calls of {call} are in flight; keep these calls and the results that \
         already exist"
    )]
    InFlight {
        /// The id of the message that would be touched.
        id: MessageId,
        /// The id of the message with the unanswered calls.
        call: MessageId,
    },
    /// A summary or notice would be placed between messages that belong together, such as a
    /// call and its result. Place it before the first or after the last message of the group.
    #[error("a summary would separate {first} and {last}, which belong together")]
    GroupSplit {
        /// The id of the message that begins the group, with the call or the thinking.
        first: MessageId,
        /// The id of the last message of the group that stays in the window.
        last: MessageId,
    },
    /// A replacement has neither a new text nor new arguments nor a new state. If the message
    /// should stay as it is, keep it instead.
    #[error("the replacement of {id} changes neither text nor arguments; keep the message instead")]
    EmptyReplacement {
        /// The id of the message that the entry would replace.
        id: MessageId,
    },
    /// A message would be restored although the window does not hold a shortened form of it.
    /// Only a message of the kind `Replaced` can be restored. Keep the message if it is already
    /// complete.
    #[error("{id} is not a shortened message, so there is nothing to restore; keep it instead")]
    NothingToRestore {
        /// The id of the message that the entry would restore.
        id: MessageId,
    },
    /// A notice would be changed. Once a notice is in the window, it may only be kept or
    /// dropped. If it is outdated, drop it and insert a new one.
    #[error("{id} is a notice, which is never changed once it is in the window; keep or drop it")]
    NoticeReplaced {
        /// The id of the notice that would be changed.
        id: MessageId,
    },
    /// The new state of a message is not a JSON object. The state is stored beside the message
    /// in formats that have one, and these require an object.
    #[error("the state in the replacement of {id} is not a JSON object")]
    BadState {
        /// The id of the message that the entry would replace.
        id: MessageId,
    },
    /// The new text of a message is longer than the old one. A replacement must shorten its
    /// message, and the length in bytes counts, including the mark.
    #[error(
        "the replacement of {id} has {bytes} bytes of text, but the message has only {was}; it must be shorter"
    )]
    LongerText {
        /// The id of the message that the entry would replace.
        id: MessageId,
        /// The length of the new text in bytes.
        bytes: usize,
        /// The length of the old text in bytes.
        was: usize,
    },
    /// The new text has no mark at its start, so it could be mistaken for what the message
    /// originally said. The text of a cleared tool result is the only one that needs no mark.
    #[error(
        "the new text of {id} is not marked as shortened; it must begin with {:?} or a mark that the engine \
         declares, or for a tool result be {:?}",
        contexture_engine_api::SHORTENED_MARK,
        contexture_engine_api::CLEARED_TOOL_OUTPUT
    )]
    Unmarked {
        /// The id of the message that the entry would replace.
        id: MessageId,
    },
    /// An entry names a tool call that the message does not have. Calls are counted from 0
    /// within their message, not within the window.
    #[error("{id} has no tool call {index} (counted from 0; it has {calls})")]
    NoSuchCall {
        /// The id of the message that the entry names.
        id: MessageId,
        /// The index of the call that the entry names, from 0.
        index: usize,
        /// The number of calls that the message really has.
        calls: usize,
    },
    /// A replacement has two values for the arguments of the same call, so it is not clear
    /// which one should be used.
    #[error("the replacement of {id} gives new arguments for tool call {index} twice")]
    ArgumentsTwice {
        /// The id of the message that the entry would replace.
        id: MessageId,
        /// The index of the call among the calls of its message, from 0.
        index: usize,
    },
    /// The new arguments of a call are longer than the old ones. A replacement must shorten its
    /// message, and the length in bytes counts.
    #[error(
        "the replacement of {id} has {bytes} bytes of arguments for tool call {index}, which has only {was}; \
         they must be shorter"
    )]
    LongerArguments {
        /// The id of the message that the entry would replace.
        id: MessageId,
        /// The index of the call among the calls of its message, from 0.
        index: usize,
        /// The length of the new arguments in bytes.
        bytes: usize,
        /// The length of the old arguments in bytes.
        was: usize,
    },
    /// The new arguments of a call are not valid JSON, or they are not an object although the
    /// old ones are. Providers reject the whole request when the arguments of a call have the
    /// wrong form.
    #[error("the replacement of {id} has invalid arguments for tool call {index}: {reason}")]
    InvalidArguments {
        /// The id of the message that the entry would replace.
        id: MessageId,
        /// The index of the call among the calls of its message, from 0.
        index: usize,
        /// What is wrong with the new arguments, as the end of a sentence.
        reason: String,
    },
    /// A message with thinking would be shortened although it comes after the last real user
    /// message. The provider requires these messages unchanged when the model continues its
    /// work. Keep the message or remove it.
    #[error(
        "{id} holds thinking about what the user said last; keep the message whole or remove it"
    )]
    ThinkingReplaced {
        /// The id of the message with the thinking.
        id: MessageId,
    },
    /// Thinking would be separated from the message that it led to, or one of the two would be
    /// changed. The provider treats them as one message, so they stay unchanged or leave
    /// together.
    #[error("{thinking} contains the thinking of {next}; keep both or remove both")]
    ThinkingParted {
        /// The id of the message with the thinking.
        thinking: MessageId,
        /// The id of the message that the thinking led to.
        next: MessageId,
    },
    /// A summary has no text apart from its marks, its pins and white space. If the covered messages need
    /// no summary, drop them instead.
    #[error("the summary of {covers} is empty")]
    EmptySummary {
        /// The messages that the summary covers, to tell which summary is meant.
        covers: Ids,
    },
    /// A notice has no text apart from its mark and white space. If there is nothing to say,
    /// leave it out.
    #[error("a notice is empty")]
    EmptyNotice,
    /// A notice begins like a message of the user in a transcript, for example with `User:`.
    /// The model could follow such a text as if it were an instruction of the user.
    #[error("a notice begins with {opening:?}, as if the user were speaking")]
    NoticePosesAsUser {
        /// The first characters of the notice, as a quotation for the error message.
        opening: String,
    },
    /// A summary begins like a message of the user in a transcript, for example with `User:`.
    /// The model could follow such a text as if it were an instruction of the user.
    #[error("the summary of {covers} begins with {opening:?}, as if the user were speaking")]
    PosesAsUser {
        /// The messages that the summary covers, to tell which summary is meant.
        covers: Ids,
        /// The first characters of the summary, as a quotation for the error message.
        opening: String,
    },
    /// A summary contains the mark that ends summaries. When the window is read again, the text
    /// after the mark would be taken for a message that somebody wrote.
    #[error(
        "the summary of {covers} has text after {:?}, which would be read as part of the conversation",
        contexture_engine_api::SUMMARY_END_MARK
    )]
    ClosedEarly {
        /// The messages that the summary covers, to tell which summary is meant.
        covers: Ids,
    },
    /// A pin would be lost, although it fits its share of the window. The host writes pins into the
    /// proposals that it gets, so an engine sees this only if it checks a proposal itself.
    #[error("the window would not have the pin {pin:?} word for word")]
    PinLost {
        /// The words that the user pinned.
        pin: String,
    },
    /// A stub has no text. A stub is a result that the engine writes for a call without one,
    /// and the model must be able to read why the real result is missing.
    #[error("the stub for tool call {index} of {call} is empty")]
    EmptyStub {
        /// The id of the message with the call.
        call: MessageId,
        /// The index of the call among the calls of its message, from 0.
        index: usize,
    },
    /// A stub does not follow the message with its call, or other messages than the results of
    /// that message are in between. Providers require results right after their call.
    #[error(
        "the stub for tool call {index} of {call} does not follow that message and its results"
    )]
    StubAstray {
        /// The id of the message with the call.
        call: MessageId,
        /// The index of the call among the calls of its message, from 0.
        index: usize,
    },
    /// A stub answers a call that already has a result or another stub. Each call has exactly
    /// one result, so use a stub only when the call has none.
    #[error("tool call {index} of {call} has a result already and may not get a stub")]
    StubForAnswered {
        /// The id of the message with the call.
        call: MessageId,
        /// The index of the call among the calls of its message, from 0.
        index: usize,
    },
    /// The window would begin with an assistant message, but Anthropic requires a user message
    /// first. Keep an earlier message, or let a summary come first. It is allowed if the old
    /// window also began this way.
    #[error("the window would begin with {id}, an assistant's message; the first must be a user's")]
    FirstIsNotUser {
        /// The id of the assistant message that would come first.
        id: MessageId,
    },
    /// The window would not get smaller. For a rewrite before a request, it would grow by more
    /// than its notices. Token counts include the marks and seals that the host adds.
    #[error(
        "the window would have {} tokens after {}; a compaction must make it smaller",
        grouped(*after), grouped(*before)
    )]
    NotSmaller {
        /// The tokens of the whole prompt before the change, with system prompt and tools.
        before: u64,
        /// The tokens of the whole prompt as proposed, with system prompt and tools.
        after: u64,
    },
}

/// Some messages, for an error text. Up to five ids are written out, and the others are
/// counted.
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

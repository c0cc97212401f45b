//! The contract between host and engine: the rules that every proposal must obey before it
//! becomes the window.
//!
//! 1. The last real user message is kept verbatim, or as a marked preview if it does not fit or
//!    if the engine declares that it keeps such messages itself. The system prompt is not part
//!    of the history.
//! 2. A tool call and its results stay together, calls in flight are untouched, and no call or
//!    result loses its counterpart.
//! 3. Every message is accounted for exactly once, kept messages stay in order, and no summary
//!    stands after a message that is later than all that it covers.
//! 4. The grouping rules of the provider are obeyed.
//! 5. The window gets smaller.
//! 6. Summaries, notices and replaced texts are marked and cannot be mistaken for what a user
//!    said.
//! 7. What is pinned and fits its share of the window is there verbatim ([`Pins`]).
//!
//! [`check`] is the entry point. It works on views and entries only, and leaves the choice of
//! roles to rendering. Its time is linear in the number of messages, calls and entries.

mod account;
mod grouping;
mod own_words;
mod pins;
mod size;
#[cfg(test)]
mod tests;
mod violation;
mod wording;

use contexture_engine_api::{Compaction, MessageId, MessageView, WindowState};

use account::{Account, Disposition, WindowEntry};
pub use own_words::{OwnWords, own_words};
pub use pins::{
    HeldPin, MODEL_PINS_HEADING, PINS_HEADING, PinLists, PinnedBy, Pins, commanded, is_pinnable,
    is_same_pin, most_pin_tokens, without_pins,
};
pub use violation::{Ids, Violation};
pub use wording::is_marked;

/// The tokens that a chat format adds around one message: its role, its start and its end.
/// OpenAI's cookbook counts three and the role. Other providers add about as much.
pub const MESSAGE_TOKENS: u64 = 4;

/// The tokens that a chat format adds around the name and arguments of one tool call: its id,
/// its type and the braces.
pub const CALL_TOKENS: u64 = 8;

/// What the host appends to a summary: an end mark and a checksum, by which it recognises the
/// summary without a record. The constant has the right length for counting tokens, and not a
/// valid checksum.
pub const SUMMARY_SEAL: &str = "\n\n[END OF CONTEXT COMPACTION] #01234567";

/// What the host appends to a notice, for counting its tokens. The checksum is a placeholder.
pub const NOTICE_SEAL: &str = "\n[notice #01234567]";

/// The provider whose grouping rules a window must obey. In all formats, a message with
/// thinking after the last real user message is kept whole or removed whole. Before that
/// message, its text and calls may be shortened, but the thinking itself stays byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// OpenAI chat completions and compatible formats, which have no further rules.
    Chat,
    /// Anthropic messages. The first message is the user's. After the last real user message,
    /// thinking that is alone in its message stays with the message after it.
    Anthropic,
    /// OpenAI Responses, in which reasoning always stays with the item after it.
    Responses,
}

/// The purpose of a proposal, which decides how large it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A compaction, which must be smaller.
    Compaction,
    /// A change before a request (`rewrite`). It may only grow by notices and by what is
    /// restored.
    Rewrite,
    /// A view for one request (`select`), which may have any size.
    View,
}

/// The limits that a proposal is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The grouping rules of the wire format in which the window will be sent.
    pub grouping: Grouping,
    /// What the proposal is for, which decides whether it has to be smaller than the old
    /// window.
    pub purpose: Purpose,
    /// The tokens of the system prompt and the tools. These are not part of the history, but
    /// they count when the size of the whole prompt is compared.
    pub fixed_tokens: u64,
    /// Whether the last real user message may be replaced by a marked preview. It may if the
    /// floor alone exceeds the window, or if the engine declares that it keeps such messages
    /// itself.
    pub may_shorten_last_user: bool,
    /// The marks that the engine's own texts may begin with, besides those of the interface.
    pub marks: Vec<String>,
    /// The pins that have to be in the window afterwards, see [`Pins::fitting`].
    pub pins: PinLists,
}

impl Limits {
    /// Returns the limits for a compaction of these messages. If the system prompt, the tools and
    /// the last user message alone exceed the window, that message may be shortened.
    pub fn of(window: &WindowState, messages: &[MessageView<'_>], grouping: Grouping) -> Self {
        let last_user = messages.iter().rfind(|message| message.is_real_user());
        let floor = window.fixed_tokens + last_user.map_or(0, MessageView::tokens);
        Self {
            grouping,
            purpose: Purpose::Compaction,
            fixed_tokens: window.fixed_tokens,
            may_shorten_last_user: !window.has_room_for(floor),
            marks: Vec::new(),
            pins: PinLists::default(),
        }
    }
}

/// The size and composition of a proposal that obeys the contract. All tokens are those of the
/// whole prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// The tokens of the prompt before the change, as the views of the messages state them.
    pub tokens_before: u64,
    /// The tokens of the prompt after the change. A system note is counted by the host when it
    /// appends the note.
    pub tokens_after: u64,
    /// The number of messages that stay unchanged. A message that is restored to its full
    /// length counts here too.
    pub kept: usize,
    /// The number of messages that stay in a shorter form, including the last user message if a
    /// preview replaces it.
    pub replaced: usize,
    /// The number of messages that summaries replace. Each covered message counts once.
    pub summarised: usize,
    /// The number of messages that are removed without a replacement.
    pub dropped: usize,
    /// The number of new entries: summaries, notices and stub results.
    pub inserted: usize,
    /// The last real user message, if a marked preview replaces it. `None` when it is kept
    /// verbatim or when there is no such message.
    pub previewed: Option<MessageId>,
}

/// Checks a proposal against the contract. `count` returns the tokens of a text. It is only
/// called for new texts and for what remains of replaced messages, because the views know their
/// own tokens.
///
/// ```
/// use contexture_contract::{Grouping, Limits, Purpose, Violation, check};
/// use contexture_engine_api::{Compaction, Entry, MessageId, MessageView};
///
/// let long = "tell me more ".repeat(100);
/// let messages = [
///     MessageView::new(MessageId(1), "user").with_text("hello"),
///     MessageView::new(MessageId(2), "assistant").with_text(&long),
///     MessageView::new(MessageId(3), "user").with_text("and now?"),
/// ];
/// let limits = Limits {
///     grouping: Grouping::Chat,
///     purpose: Purpose::Compaction,
///     fixed_tokens: 0,
///     may_shorten_last_user: false,
///     marks: Vec::new(),
///     pins: Default::default(),
/// };
/// let count = |text: &str| text.len() as u64 / 4;
/// let summary = |covers| Entry::summary("A greeting.", covers);
///
/// let covers = vec![MessageId(1), MessageId(2)];
/// let proposal = Compaction::new(vec![summary(covers), Entry::Keep(MessageId(3))]);
/// let checked = check(&messages, &proposal, &limits, count)?;
/// assert_eq!(checked.summarised, 2);
///
/// let covers = vec![MessageId(1), MessageId(2), MessageId(3)];
/// let proposal = Compaction::new(vec![summary(covers)]);
/// let refused = check(&messages, &proposal, &limits, count);
/// assert_eq!(refused, Err(Violation::LastUserRemoved { id: MessageId(3) }));
/// # Ok::<(), Violation>(())
/// ```
///
/// # Errors
/// Returns the first [`Violation`] that is found. The conversation then stays as it was.
pub fn check(
    messages: &[MessageView<'_>],
    proposal: &Compaction,
    limits: &Limits,
    count: impl Fn(&str) -> u64,
) -> Result<Checked, Violation> {
    let account = Account::of(messages, &proposal.entries)?;
    let last_user = messages.iter().rposition(MessageView::is_real_user);
    if let Some(at) = last_user {
        check_last_user(&messages[at], account.dispositions[at], limits)?;
    }
    grouping::check(messages, &account, last_user, limits)?;
    account.check_summaries(messages)?;
    for place in &account.places {
        match place {
            WindowEntry::Replaced(at, new) => {
                wording::check_replacement(&messages[*at], new, &limits.marks)?;
            }
            WindowEntry::Summary(new, _) => wording::check_summary(&new.text, &new.covers)?,
            WindowEntry::Notice(notice) => wording::check_notice(&notice.text)?,
            WindowEntry::Kept(_) | WindowEntry::Restored(_) | WindowEntry::Stub { .. } => {}
        }
    }
    if let Some(pin) = pins::lost(messages, &proposal.entries, &limits.pins) {
        let pin = pin.clone();
        return Err(Violation::PinLost { pin });
    }

    let tokens_before = messages
        .iter()
        .map(MessageView::tokens)
        .fold(limits.fixed_tokens, u64::saturating_add);
    let tokens_after = size::tokens_of(messages, &account, &limits.marks, &count)
        .saturating_add(limits.fixed_tokens);
    let notices = account.places.iter().map(|place| match place {
        WindowEntry::Notice(notice) => size::notice_tokens(notice, &limits.marks, &count),
        _ => 0,
    });
    // Notices are what a rewrite may add, so they do not count against it.
    let is_too_large = match limits.purpose {
        Purpose::View => false,
        Purpose::Rewrite => tokens_after.saturating_sub(notices.sum()) > tokens_before,
        Purpose::Compaction => tokens_after >= tokens_before,
    };
    if is_too_large {
        return Err(Violation::NotSmaller {
            before: tokens_before,
            after: tokens_after,
        });
    }
    let kept = account.count(Disposition::Kept);
    let replaced = account.count(Disposition::Replaced);
    Ok(Checked {
        tokens_before,
        tokens_after,
        kept,
        replaced,
        summarised: account.count(Disposition::Summarised),
        dropped: account.count(Disposition::Dropped),
        previewed: last_user
            .filter(|at| account.dispositions[*at] == Disposition::Replaced)
            .map(|at| messages[at].id()),
        inserted: account.places.len() - kept - replaced,
    })
}

/// Checks rule 1 for the last real user message: it is kept, or replaced by a preview if the
/// limits allow it.
fn check_last_user(
    message: &MessageView<'_>,
    disposition: Disposition,
    limits: &Limits,
) -> Result<(), Violation> {
    let id = message.id();
    match disposition {
        Disposition::Kept => Ok(()),
        Disposition::Replaced if limits.may_shorten_last_user => Ok(()),
        Disposition::Replaced => Err(Violation::LastUserReplaced { id }),
        Disposition::Summarised | Disposition::Dropped => Err(Violation::LastUserRemoved { id }),
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

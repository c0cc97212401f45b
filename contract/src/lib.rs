//! The contract: what every proposal of an engine is held to before it becomes the window.
//!
//! 1. The last real user message is there verbatim, or as a marked preview where it does not fit or the engine
//!    declares that it keeps it. (The system prompt is outside the history.)
//! 2. A tool call and its results stay together; calls in flight are untouched; no new orphan.
//! 3. Every message is accounted for exactly once, and the order of what is kept is unchanged.
//! 4. The provider's own grouping rules hold.
//! 5. It got smaller, and [`Checked::fits`] says whether it is small enough.
//! 6. Summaries, notices and replaced text are marked as such and are never taken for a user's words.
//!
//! The check works on views and entries alone; roles are checked where the window is rendered. Its time
//! is linear in the number of messages, calls and entries.

mod account;
mod grouping;
mod pairs;
mod size;
#[cfg(test)]
mod tests;
mod violation;
mod wording;

use contexture_engine_api::{Compaction, CompressOrder, MessageId, MessageView};

use account::{Account, Disposition, WindowEntry};
pub use violation::{Ids, Violation};
pub use wording::is_marked;

/// Tokens that wrap one message in a chat format: its role, its start and its end. OpenAI's cookbook
/// counts three and the role; what other providers add is of the same size.
pub const MESSAGE_TOKENS: u64 = 4;

/// Tokens that wrap one tool call beside its name and arguments: its id, its type and the braces.
pub const CALL_TOKENS: u64 = 8;

/// What the host closes a summary with, to count its tokens: an end mark and a checksum, by which a summary is
/// recognised without a record.
pub const SUMMARY_SEAL: &str = "\n\n[END OF CONTEXT COMPACTION] #01234567";

/// What the host closes a notice with, to count its tokens.
pub const NOTICE_SEAL: &str = "\n[notice #01234567]";

/// Whose grouping rules a window is held to. In all, from the last real user message on a message with thinking is kept
/// whole or leaves whole. Before it what it says and calls may be shortened; the thinking itself stays byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// OpenAI chat completions and what follows them.
    Chat,
    /// Anthropic messages: the first message is the user's, and since the last real user message thinking that stands
    /// alone stays with the message after it.
    Anthropic,
    /// OpenAI responses: reasoning stays with the item after it.
    Responses,
}

/// What a proposal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A compaction that the trigger asked for: smaller, and it should fit below the trigger.
    Compaction,
    /// A forced compaction: it has only to be smaller.
    Forced,
    /// A change before a request (`rewrite`): it grows by notices and by what is restored alone.
    Rewrite,
    /// A view for one request (`select`): its size is free.
    View,
}

/// What a proposal is held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The wire format's grouping rules.
    pub grouping: Grouping,
    /// What the proposal is for.
    pub purpose: Purpose,
    /// Tokens of system prompt and tools, which stand outside the history.
    pub fixed_tokens: u64,
    /// Tokens of the whole prompt at which a compaction is asked for.
    pub trigger_tokens: u64,
    /// Tokens that the whole prompt may have at most: the window less the reserved answer.
    pub usable_tokens: u64,
    /// Whether the last real user message may be replaced by a marked preview of itself: where the floor alone
    /// exceeds the window, or the engine declares that it keeps such messages.
    pub may_shorten_last_user: bool,
    /// What the engine's own texts may begin with, beside the marks of the interface.
    pub marks: Vec<String>,
}

impl Limits {
    /// What the answer to an order to compact these messages is held to.
    pub fn of(order: &CompressOrder, messages: &[MessageView<'_>], grouping: Grouping) -> Self {
        let (fixed_tokens, usable) = (order.window.fixed_tokens, order.window.usable_tokens());
        let last_user = messages.iter().rfind(|message| message.is_real_user());
        let floor = fixed_tokens + last_user.map_or(0, MessageView::tokens);
        Self {
            grouping,
            purpose: if order.force {
                Purpose::Forced
            } else {
                Purpose::Compaction
            },
            fixed_tokens,
            trigger_tokens: usable,
            usable_tokens: usable,
            may_shorten_last_user: floor > usable,
            marks: Vec::new(),
        }
    }
}

/// A proposal that holds the contract, in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Tokens of the whole prompt as it is.
    pub tokens_before: u64,
    /// Tokens of the whole prompt as proposed. A system note counts where the host appends it.
    pub tokens_after: u64,
    /// Messages that stay as they are.
    pub kept: usize,
    /// Messages that stay in a shorter form.
    pub replaced: usize,
    /// Messages that a summary stands for.
    pub summarised: usize,
    /// Messages that leave without a trace.
    pub dropped: usize,
    /// Summaries and stub results that are new.
    pub inserted: usize,
    /// The last message of the user, where a preview stands in its place.
    pub previewed: Option<MessageId>,
    /// Whether it is small enough: below the trigger (a forced compaction or a view: whatever it is) and
    /// within the usable window. Where it is not, the outcome has to say so.
    pub fits: bool,
}

/// Holds a proposal to the contract. `count` gives the tokens of a text; it is asked only about text that
/// is new, and about what stays of replaced messages.
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
///     trigger_tokens: 100,
///     usable_tokens: 200,
///     may_shorten_last_user: false,
///     marks: Vec::new(),
/// };
/// let count = |text: &str| text.len() as u64 / 4;
/// let summary = |covers| Entry::summary("A greeting.", covers);
///
/// let covers = vec![MessageId(1), MessageId(2)];
/// let proposal = Compaction::new(vec![summary(covers), Entry::Keep(MessageId(3))]);
/// let checked = check(&messages, &proposal, &limits, count)?;
/// assert!(checked.fits && checked.summarised == 2);
///
/// let covers = vec![MessageId(1), MessageId(2), MessageId(3)];
/// let proposal = Compaction::new(vec![summary(covers)]);
/// let refused = check(&messages, &proposal, &limits, count);
/// assert_eq!(refused, Err(Violation::LastUserRemoved { id: MessageId(3) }));
/// # Ok::<(), Violation>(())
/// ```
///
/// # Errors
/// The first [`Violation`] found.
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
    for place in &account.places {
        match place {
            WindowEntry::Replaced(at, new) => {
                wording::check_replacement(&messages[*at], new, &limits.marks)?;
            }
            WindowEntry::Summary(new) => wording::check_summary(&new.text, &new.covers)?,
            WindowEntry::Notice(notice) => wording::check_notice(&notice.text)?,
            WindowEntry::Kept(_) | WindowEntry::Restored(_) | WindowEntry::Stub { .. } => {}
        }
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
    let is_too_large = match limits.purpose {
        Purpose::View => false,
        Purpose::Rewrite => tokens_after.saturating_sub(notices.sum()) > tokens_before,
        Purpose::Compaction | Purpose::Forced => tokens_after >= tokens_before,
    };
    if is_too_large {
        return Err(Violation::NotSmaller {
            before: tokens_before,
            after: tokens_after,
        });
    }
    let below_trigger =
        limits.purpose != Purpose::Compaction || tokens_after < limits.trigger_tokens;
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
        fits: below_trigger && tokens_after <= limits.usable_tokens,
    })
}

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

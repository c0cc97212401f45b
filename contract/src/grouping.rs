//! Checks that messages which belong together stay together.
//!
//! Four groups exist: a tool call with its results, a message with the one that continues it,
//! thinking with the message that it led to, and calls in flight with the results so far.
//! [`check`] applies rules 2 and 4 of the contract to them. It also checks that nothing is inserted
//! into a group and that each stub follows its call.
//!
//! Which thinking is protected depends on the provider's [`Grouping`]. The pairs of calls and
//! results come from [`ToolPairs`], and `account` knows what stays. Every rule looks at positions in
//! the old window, so the check is linear in the number of messages.

use contexture_engine_api::{
    MessageId, MessageKind, MessageView, ToolPairs, continues_last, in_flight,
};

use super::account::{Account, Disposition, WindowEntry};
use super::violation::Violation;
use super::{Grouping, Limits};

/// Checks rules 2 and 4. `last_user` is the position of the last real user message, if there is
/// one. Fails with the first violation.
pub(super) fn check(
    messages: &[MessageView<'_>],
    account: &Account<'_>,
    last_user: Option<usize>,
    limits: &Limits,
) -> Result<(), Violation> {
    let round = last_user.map_or(0, |at| at + 1);
    let window = GroupingCheck {
        messages,
        account,
        pairs: ToolPairs::of(messages),
        in_flight: in_flight(messages),
        thinking_from: match limits.grouping {
            Grouping::Chat => messages.len(),
            Grouping::Anthropic => round,
            Grouping::Responses => 0,
        },
        thinks_from: round,
    };
    window.check_in_flight()?;
    window.check_pairs()?;
    window.check_thinking()?;
    window.check_inserted()?;
    if limits.grouping == Grouping::Anthropic {
        window.check_first()?;
    }
    Ok(())
}

/// The data that the rules work on, computed once per check.
struct GroupingCheck<'a> {
    messages: &'a [MessageView<'a>],
    account: &'a Account<'a>,
    pairs: ToolPairs,
    /// The message whose calls still lack results because the agent is running them.
    in_flight: Option<usize>,
    /// The position from which thinking may not be separated from what follows it.
    thinking_from: usize,
    /// The position from which a message with thinking may not be shortened, not even its text
    /// and calls.
    thinks_from: usize,
}

impl GroupingCheck<'_> {
    fn id(&self, at: usize) -> MessageId {
        self.messages[at].id()
    }

    /// Checks that calls in flight, and the results of the same batch that have arrived, are
    /// kept unchanged. The agent will add the other results to them.
    fn check_in_flight(&self) -> Result<(), Violation> {
        let Some(call) = self.in_flight else {
            return Ok(());
        };
        let touched = (call..self.messages.len())
            .filter(|at| *at == call || self.pairs.call_of(*at) == Some(call))
            .find(|at| self.account.dispositions[*at] != Disposition::Kept);
        match touched {
            Some(at) => Err(Violation::InFlight {
                id: self.id(at),
                call: self.id(call),
            }),
            None => Ok(()),
        }
    }

    /// Checks that no call loses its result and no result its call, also if the provider runs the
    /// tool. If one was alone already before, that is not an error.
    fn check_pairs(&self) -> Result<(), Violation> {
        for (at, message) in self.messages.iter().enumerate() {
            if continues_last(self.messages, at)
                && self.account.stays(at - 1) != self.account.stays(at)
            {
                return Err(Violation::ContinuationParted {
                    id: self.id(at - 1),
                    next: message.id(),
                });
            }
            if self.account.stays(at) {
                for (call, answer) in message.tool_calls().iter().zip(self.pairs.answers(at)) {
                    if let Some(answer) = answer.filter(|answer| !self.account.stays(*answer)) {
                        return Err(Violation::CallWithoutResult {
                            call: message.id(),
                            result: self.id(answer),
                            tool_call_id: call.id().to_owned(),
                        });
                    }
                }
                if let Some(call) = self
                    .pairs
                    .call_of(at)
                    .filter(|call| !self.account.stays(*call))
                {
                    return Err(Violation::ResultWithoutCall {
                        result: message.id(),
                        call: self.id(call),
                        tool_call_id: message.tool_call_id().unwrap_or_default().to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the position of the message that the thinking at `at` belongs to. `None` if the
    /// thinking is not protected, shares its message with text or calls, or has no answer after
    /// it.
    fn thought_leads_to(&self, at: usize) -> Option<usize> {
        let message = &self.messages[at];
        let next = self.messages.get(at + 1)?;
        let alone = message.has_thinking()
            && message.text().trim().is_empty()
            && message.tool_calls().is_empty();
        (at >= self.thinking_from && alone && next.role() == "assistant").then_some(at + 1)
    }

    /// Checks that protected thinking is neither shortened nor separated from the message that
    /// it led to.
    fn check_thinking(&self) -> Result<(), Violation> {
        for at in 0..self.messages.len() {
            if at >= self.thinks_from
                && self.messages[at].has_thinking()
                && self.account.dispositions[at] == Disposition::Replaced
            {
                return Err(Violation::ThinkingReplaced { id: self.id(at) });
            }
            // The provider signs thinking together with what follows it, so both stay unchanged
            // or both leave.
            if let Some(next) = self.thought_leads_to(at) {
                let unchanged = |at: usize| self.account.dispositions[at] == Disposition::Kept;
                let gone = |at: usize| !self.account.stays(at);
                if !(unchanged(at) && unchanged(next) || gone(at) && gone(next)) {
                    return Err(Violation::ThinkingParted {
                        thinking: self.id(at),
                        next: self.id(next),
                    });
                }
            }
        }
        Ok(())
    }

    /// Checks the places of inserted entries: summaries and notices may not be inside a group,
    /// and a stub must follow its own call.
    fn check_inserted(&self) -> Result<(), Violation> {
        let ends = self.group_ends();
        // The first and last position of the group that reaches furthest among those that have
        // begun.
        let mut open: Option<(usize, usize)> = None;
        let mut seen: Option<usize> = None;
        // The message whose calls a stub at this place may answer.
        let mut answering: Option<usize> = None;
        let mut stubbed = std::collections::HashSet::new();
        for place in &self.account.places {
            match place {
                WindowEntry::Kept(at)
                | WindowEntry::Restored(at)
                | WindowEntry::Replaced(at, _) => {
                    let at = *at;
                    seen = Some(at);
                    if ends[at] > at && open.is_none_or(|(_, end)| end < ends[at]) {
                        open = Some((at, ends[at]));
                    }
                    if !self.messages[at].tool_calls().is_empty() {
                        answering = Some(at);
                    } else if self.pairs.call_of(at) != answering {
                        answering = None;
                    }
                }
                WindowEntry::Summary(..) | WindowEntry::Notice(_) => {
                    answering = None;
                    // The group is complete once its last message has been passed, and an
                    // insertion after it is allowed.
                    if let Some((first, end)) = open.filter(|(_, end)| Some(*end) > seen) {
                        return Err(Violation::GroupSplit {
                            first: self.id(first),
                            last: self.id(end.min(self.messages.len() - 1)),
                        });
                    }
                }
                WindowEntry::Stub { call, index, text } => {
                    let (at, index) = (*call, *index);
                    let call = self.id(at);
                    let answers = self.pairs.answers(at);
                    let Some(answer) = answers.get(index) else {
                        return Err(Violation::NoSuchCall {
                            id: call,
                            index,
                            calls: answers.len(),
                        });
                    };
                    // The real result is still to come and would then be a second one.
                    if self.in_flight == Some(at) {
                        return Err(Violation::InFlight { id: call, call });
                    }
                    if answer.is_some() || !stubbed.insert((at, index)) {
                        return Err(Violation::StubForAnswered { call, index });
                    }
                    if answering != Some(at) {
                        return Err(Violation::StubAstray { call, index });
                    }
                    if text.trim().is_empty() {
                        return Err(Violation::EmptyStub { call, index });
                    }
                }
            }
        }
        Ok(())
    }

    /// For each position, the position of the last remaining message that belongs to it. If
    /// none belongs to it, it is the position itself. A result that came after a compaction had put
    /// a summary behind its call no longer belongs to it.
    fn group_ends(&self) -> Vec<usize> {
        let mut ends: Vec<usize> = (0..self.messages.len()).collect();
        let mut inserted = None;
        for at in 0..self.messages.len() {
            if matches!(
                self.messages[at].kind(),
                MessageKind::Summary | MessageKind::Notice
            ) {
                inserted = Some(at);
            }
            let call = self.pairs.call_of(at).filter(|_| self.account.stays(at));
            if let Some(call) = call.filter(|call| Some(*call) > inserted) {
                ends[call] = at;
            }
            if continues_last(self.messages, at) && self.account.stays(at) {
                ends[at - 1] = at;
            }
            if let Some(next) = self
                .thought_leads_to(at)
                .filter(|at| self.account.stays(*at))
            {
                ends[at] = next;
            }
        }
        // Results that are still to come must directly follow their call, so the group extends
        // to the end.
        if let Some(call) = self.in_flight
            && (call + 1..ends.len()).all(|at| self.pairs.call_of(at) == Some(call))
        {
            ends[call] = self.messages.len();
        }
        ends
    }

    /// Checks that the window does not start with an assistant message, which Anthropic
    /// rejects. It may if the old window already did. If a summary comes first, it gets the
    /// role that is needed.
    fn check_first(&self) -> Result<(), Violation> {
        let is_assistant = |at: usize| self.messages[at].role() == "assistant";
        match self.account.places.first().and_then(WindowEntry::message) {
            Some(first) if first != 0 && is_assistant(first) && !is_assistant(0) => {
                Err(Violation::FirstIsNotUser { id: self.id(first) })
            }
            _ => Ok(()),
        }
    }
}

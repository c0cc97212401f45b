//! What belongs together stays together: calls with their results, thinking with what it leads to, and
//! what the provider wants first.

use contexture_engine_api::{MessageId, MessageView};

use super::account::{Account, Disposition, WindowEntry};
use super::pairs::Pairs;
use super::violation::Violation;
use super::{Grouping, Limits};

/// Checks rules 2 and 4.
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
        pairs: Pairs::of(messages),
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

struct GroupingCheck<'a> {
    messages: &'a [MessageView<'a>],
    account: &'a Account<'a>,
    pairs: Pairs,
    /// The position from which thinking may not be parted from what follows it.
    thinking_from: usize,
    /// The position from which what a message says and calls beside its thinking may not be shortened.
    thinks_from: usize,
}

impl GroupingCheck<'_> {
    fn id(&self, at: usize) -> MessageId {
        self.messages[at].id()
    }

    /// Calls in flight and the results of the same batch are kept as they are.
    fn check_in_flight(&self) -> Result<(), Violation> {
        let Some(call) = self.pairs.in_flight else {
            return Ok(());
        };
        let touched = (call..self.messages.len())
            .filter(|at| *at == call || self.pairs.call_of[*at] == Some(call))
            .find(|at| self.account.dispositions[*at] != Disposition::Kept);
        match touched {
            Some(at) => Err(Violation::InFlight {
                id: self.id(at),
                call: self.id(call),
            }),
            None => Ok(()),
        }
    }

    /// No new orphan. A call or a result that was alone before is nobody's fault.
    fn check_pairs(&self) -> Result<(), Violation> {
        for (at, message) in self.messages.iter().enumerate() {
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
                if let Some(call) = self.pairs.call_of[at].filter(|call| !self.account.stays(*call))
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

    /// The position of the message that the thinking at `at` belongs to, where it stands alone there.
    fn thought_leads_to(&self, at: usize) -> Option<usize> {
        let message = &self.messages[at];
        let next = self.messages.get(at + 1)?;
        let alone = message.has_thinking()
            && message.text().trim().is_empty()
            && message.tool_calls().is_empty();
        (at >= self.thinking_from && alone && next.role() == "assistant").then_some(at + 1)
    }

    fn check_thinking(&self) -> Result<(), Violation> {
        for at in 0..self.messages.len() {
            if at >= self.thinks_from
                && self.messages[at].has_thinking()
                && self.account.dispositions[at] == Disposition::Replaced
            {
                return Err(Violation::ThinkingReplaced { id: self.id(at) });
            }
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

    /// Where summaries and stubs may stand: no summary inside a group, each stub in its own.
    fn check_inserted(&self) -> Result<(), Violation> {
        let ends = self.group_ends();
        // The group that reaches furthest of those begun so far: its first and last position.
        let mut open: Option<(usize, usize)> = None;
        let mut seen: Option<usize> = None;
        // The message whose calls a stub may answer here.
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
                    } else if self.pairs.call_of[at] != answering {
                        answering = None;
                    }
                }
                WindowEntry::Summary(_) | WindowEntry::Notice(_) => {
                    answering = None;
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
                    if self.pairs.in_flight == Some(at) {
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

    /// For each position the last one that belongs with it and stays; its own where nothing does.
    fn group_ends(&self) -> Vec<usize> {
        let mut ends: Vec<usize> = (0..self.messages.len()).collect();
        for at in 0..self.messages.len() {
            if let Some(call) = self.pairs.call_of[at].filter(|_| self.account.stays(at)) {
                ends[call] = at;
            }
            if let Some(next) = self
                .thought_leads_to(at)
                .filter(|at| self.account.stays(*at))
            {
                ends[at] = next;
            }
        }
        // Results that are still to come must find their call right before them.
        if let Some(call) = self.pairs.in_flight
            && (call + 1..ends.len()).all(|at| self.pairs.call_of[at] == Some(call))
        {
            ends[call] = self.messages.len();
        }
        ends
    }

    /// Anthropic: the first message is the user's. (A summary gets the role that is needed.)
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

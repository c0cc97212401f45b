//! Where a conversation is cut into head, middle and tail. No cut parts a tool call from its results.

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView};
use contexture_summaries::Groups;

use crate::settings::PROTECT_FIRST_N;

/// Messages at the end that are protected whatever they cost.
pub(crate) const MIN_TAIL: usize = 3;

/// What the boundaries depend on, read once from the messages.
pub(crate) struct Outline<'m, 'a> {
    pub(crate) messages: &'m [MessageView<'a>],
    /// The tokens of each message.
    pub(crate) tokens: Vec<u64>,
    /// For each message that is a tool result: the message that holds its call.
    pub(crate) call_of: Vec<Option<usize>>,
    /// Calls without a result that are not in flight: message, and which of its calls.
    pub(crate) unanswered: Vec<(usize, usize)>,
    /// The last assistant message with unanswered calls, and everything after it.
    pub(crate) in_flight: Option<Range<usize>>,
    /// The last message written by the user.
    pub(crate) last_user: Option<usize>,
    /// The last assistant message with text.
    pub(crate) last_answer: Option<usize>,
    /// The last assistant message, and with it everything that the model has not reacted to yet.
    pub(crate) last_turn: usize,
    groups: Groups,
}

/// Which messages a compaction leaves alone. Everything else is its middle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    /// The head is `0..head`.
    pub(crate) head: usize,
    /// Kept though they stand before the tail: the user's last message and the last answer, each with
    /// its tool group.
    pub(crate) anchors: Vec<Range<usize>>,
    /// The tail is `tail..`.
    pub(crate) tail: usize,
    /// The summary stands before this message.
    pub(crate) summary_before: usize,
}

/// How much of the conversation is protected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protection {
    /// Messages at the start.
    pub(crate) first: usize,
    /// Messages at the end, at least.
    pub(crate) last: usize,
    /// Tokens at the end, at least as long as they last.
    pub(crate) tail_tokens: u64,
}

impl<'m, 'a> Outline<'m, 'a> {
    pub(crate) fn of(messages: &'m [MessageView<'a>]) -> Self {
        let mut call_of = vec![None; messages.len()];
        let mut open: HashMap<&str, OpenCalls> = HashMap::new();
        let mut unanswered = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            for (index, call) in message.tool_calls().iter().enumerate() {
                let calls = open.entry(call.id()).or_insert_with(|| OpenCalls::at(at));
                if calls.message != at {
                    // The id is used again: whatever the earlier calls lack will not come any more.
                    unanswered.extend(calls.waiting.drain(..).map(|index| (calls.message, index)));
                    calls.message = at;
                }
                calls.waiting.push(index);
            }
            if let Some(calls) = message.tool_call_id().and_then(|id| open.get_mut(id)) {
                call_of[at] = Some(calls.message);
                if !calls.waiting.is_empty() {
                    calls.waiting.remove(0);
                }
            }
        }
        for calls in open.into_values() {
            unanswered.extend(calls.waiting.iter().map(|index| (calls.message, *index)));
        }

        let last_assistant = last(messages, |message| message.role() == "assistant");
        let in_flight = last_assistant
            .filter(|at| unanswered.iter().any(|(message, _)| message == at))
            .map(|at| at..messages.len());
        unanswered.retain(|(message, _)| Some(*message) != in_flight.as_ref().map(|r| r.start));
        unanswered.sort_unstable();

        let mut outline = Self {
            messages,
            tokens: messages.iter().map(MessageView::tokens).collect(),
            call_of,
            unanswered,
            in_flight,
            last_user: last(messages, MessageView::is_real_user),
            last_answer: last(messages, |message| {
                message.role() == "assistant"
                    && message.kind() != MessageKind::Summary
                    && !message.text().trim().is_empty()
            }),
            last_turn: messages.len(),
            groups: Groups::of(messages),
        };
        if let Some(at) = last_assistant {
            outline.last_turn = outline.groups.cut_before(at);
        }
        outline
    }

    /// The message that holds the call of a tool result, where it is known.
    pub(crate) fn caller(&self, at: usize) -> Option<&'m MessageView<'a>> {
        self.call_of[at].map(|call| &self.messages[call])
    }

    /// Whether this is a tool result whose call is nowhere before it.
    pub(crate) fn is_orphan(&self, at: usize) -> bool {
        self.messages[at].role() == "tool" && self.call_of[at].is_none()
    }

    /// Whether an earlier compaction left its summary here.
    pub(crate) fn was_compacted(&self) -> bool {
        self.messages
            .iter()
            .any(|message| message.kind() == MessageKind::Summary)
    }

    /// How many messages of the history stand protected at its start. The system prompt is outside the
    /// history and counts as the first. After a compaction none: the summary says what still matters,
    /// and the first messages of a long session are stale.
    pub(crate) fn protected_first(&self, has_system_prompt: bool) -> usize {
        if self.was_compacted() {
            0
        } else {
            PROTECT_FIRST_N - usize::from(has_system_prompt)
        }
    }

    /// Cuts the conversation. Both boundaries are moved backward to the start of a tool group that
    /// they would part, so the head gets shorter and the tail longer.
    pub(crate) fn split(&self, protection: Protection) -> Split {
        let len = self.messages.len();
        let mut by_tokens = len;
        let mut used = 0;
        while by_tokens > 0 {
            used += self.tokens[by_tokens - 1];
            if used > protection.tail_tokens {
                break;
            }
            by_tokens -= 1;
        }
        let mut tail = self
            .groups
            .cut_before(by_tokens.min(len.saturating_sub(protection.last)));
        if let Some(in_flight) = &self.in_flight {
            tail = tail.min(self.groups.cut_before(in_flight.start));
        }
        let mut head = self.groups.cut_before(protection.first.min(len)).min(tail);
        if self.is_led_by_orphans(head) {
            head = 0;
        }

        let mut anchors: Vec<Range<usize>> = [self.last_user, self.last_answer]
            .into_iter()
            .flatten()
            .filter(|at| (head..tail).contains(at))
            .map(|at| self.groups.whole(at))
            .collect();
        anchors.sort_unstable_by_key(|range| range.start);
        anchors.dedup();
        let summary_before = self.part_roles(head, &mut anchors, &mut tail);
        Split {
            head,
            anchors,
            tail,
            summary_before,
        }
    }

    /// What is kept may come to stand beside a message of its own role. One such gap is where the summary
    /// goes, the last; each other is closed from behind, up to a message of another role. Answers the
    /// place of the summary: where no roles collide, right after the head.
    fn part_roles(&self, head: usize, anchors: &mut [Range<usize>], tail: &mut usize) -> usize {
        // A window begins with words of the user's, or with the summary.
        let first = anchors.first().map_or(*tail, |anchor| anchor.start);
        let first = self.messages.get(first).map(MessageView::role);
        let mut summary_before = (head == 0 && first == Some("assistant")).then_some(head);
        let mut after = *tail;
        for at in (0..=anchors.len()).rev() {
            let before = at.checked_sub(1).map_or(head, |before| anchors[before].end);
            while before < after && self.same_role(before, after) {
                if summary_before.is_none() {
                    summary_before = Some(before);
                    break;
                }
                after = self.groups.whole(after - 1).start.max(before);
                match anchors.get_mut(at) {
                    Some(anchor) => anchor.start = after,
                    None => *tail = after,
                }
            }
            if let Some(before) = at.checked_sub(1) {
                after = anchors[before].start;
            }
        }
        summary_before.unwrap_or(head)
    }

    /// Whether results without a call stand before the assistant's first words in a head. Without them the window would
    /// begin with the assistant.
    fn is_led_by_orphans(&self, head: usize) -> bool {
        let first = (0..head).find(|at| !self.is_orphan(*at));
        first.is_some_and(|first| first > 0 && self.messages[first].role() == "assistant")
    }

    /// Whether the last message before one index and the first from another on are of one role.
    fn same_role(&self, before: usize, after: usize) -> bool {
        let role = |at: &usize| self.messages[*at].role();
        let last = (0..before).rfind(|at| !self.is_orphan(*at));
        let first = (after..self.messages.len()).find(|at| !self.is_orphan(*at));
        last.as_ref().map(role) == first.as_ref().map(role) && last.is_some()
    }
}

impl Split {
    /// Whether the message at this index stays.
    pub(crate) fn keeps(&self, at: usize) -> bool {
        at < self.head || at >= self.tail || self.anchors.iter().any(|range| range.contains(&at))
    }

    /// Whether the middle holds what no compaction has summarised yet. The head of the first compaction
    /// stands before its summary; that it is protected no longer is nothing new.
    pub(crate) fn something_new(&self, outline: &Outline<'_, '_>) -> bool {
        let is_summary = |at: &usize| outline.messages[*at].kind() == MessageKind::Summary;
        match self.middle().filter(is_summary).last() {
            Some(summary) => self.middle().any(|at| at > summary),
            None => self.middle().next().is_some(),
        }
    }

    /// The indices of the middle, in order.
    pub(crate) fn middle(&self) -> impl Iterator<Item = usize> + '_ {
        (self.head..self.tail).filter(|at| !self.keeps(*at))
    }
}

/// The calls of one id that wait for a result.
struct OpenCalls {
    message: usize,
    waiting: Vec<usize>,
}

impl OpenCalls {
    fn at(message: usize) -> Self {
        Self {
            message,
            waiting: Vec::new(),
        }
    }
}

fn last<'a>(
    messages: &[MessageView<'a>],
    wanted: impl Fn(&MessageView<'a>) -> bool,
) -> Option<usize> {
    messages.iter().rposition(wanted)
}

//! Cuts a conversation into head, middle and tail without separating a tool call from its results.
//!
//! [`Outline`] reads the messages once and records what every cut depends on: token counts, which
//! result answers which call, calls without a result, and the last message of each role.
//! [`Outline::split`] then cuts for a given [`Protection`] and returns a [`Split`]. Both cuts move
//! backward to the start of a tool group. The user's last message and the last answer are kept even
//! if they fall into the middle.
//!
//! The summary is placed so that messages of the same role do not stand next to each other. How
//! much is protected is decided in `plan`.

use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, ToolPairs, in_flight};
use contexture_summaries::{Groups, is_answer, tail_within};

use crate::settings::PROTECT_FIRST_N;

/// The number of messages at the end that are protected however many tokens they have.
pub(crate) const MIN_TAIL: usize = 3;

/// What the boundaries depend on, read once from the messages. All positions are indices into
/// `messages`.
pub(crate) struct Outline<'m, 'a> {
    pub(crate) messages: &'m [MessageView<'a>],
    pub(crate) tokens: Vec<u64>,
    pub(crate) pairs: ToolPairs,
    /// The message whose calls are in flight, and everything after it.
    pub(crate) in_flight: Option<Range<usize>>,
    pub(crate) last_user: Option<usize>,
    /// The last assistant message with text that is not a summary.
    pub(crate) last_answer: Option<usize>,
    /// The start of the last assistant message, moved back to the start of its tool group. The
    /// model has not reacted to anything after it yet. Equal to the number of messages if no
    /// assistant message exists.
    pub(crate) last_turn: usize,
    groups: Groups,
}

/// Which messages a compaction keeps: the head `0..head`, the anchors and the tail `tail..`.
/// Everything else is its middle, and the summary of the middle stands before the message at
/// `summary_before`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) head: usize,
    /// Ranges that are kept although they stand before the tail: the user's last message and the
    /// last answer, each with its tool group.
    pub(crate) anchors: Vec<Range<usize>>,
    pub(crate) tail: usize,
    pub(crate) summary_before: usize,
}

/// How much of the conversation is protected: the number of messages at its start, and at its end
/// at least `last` messages and as many as fit into `tail_tokens`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protection {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) tail_tokens: u64,
}

impl<'m, 'a> Outline<'m, 'a> {
    /// Reads the messages.
    pub(crate) fn of(messages: &'m [MessageView<'a>]) -> Self {
        let last_assistant = (messages.iter()).rposition(|message| message.role() == "assistant");
        let mut outline = Self {
            messages,
            tokens: messages.iter().map(MessageView::tokens).collect(),
            pairs: ToolPairs::of(messages),
            in_flight: in_flight(messages).map(|at| at..messages.len()),
            last_user: messages.iter().rposition(MessageView::is_real_user),
            last_answer: messages.iter().rposition(is_answer),
            last_turn: messages.len(),
            groups: Groups::of(messages),
        };
        if let Some(at) = last_assistant {
            outline.last_turn = outline.groups.cut_before(at);
        }
        outline
    }

    /// The message with the call of the tool result at `at`, or `None` if the call is unknown or
    /// the message is no result.
    pub(crate) fn caller(&self, at: usize) -> Option<&'m MessageView<'a>> {
        self.pairs.call_of(at).map(|call| &self.messages[call])
    }

    /// Returns the indices of the message's calls that have no result and will get none. A call in
    /// flight still gets its result.
    pub(crate) fn unanswered(&self, at: usize) -> impl Iterator<Item = usize> {
        let waits = (self.in_flight.as_ref()).is_some_and(|in_flight| in_flight.start == at);
        let calls = self.pairs.answers(at).iter().enumerate();
        calls
            .filter(move |(_, answer)| answer.is_none() && !waits)
            .map(|(index, _)| index)
    }

    /// Whether the message is a tool result whose call does not stand anywhere before it.
    pub(crate) fn is_orphan(&self, at: usize) -> bool {
        self.messages[at].role() == "tool" && self.pairs.call_of(at).is_none()
    }

    pub(crate) fn was_compacted(&self) -> bool {
        self.messages
            .iter()
            .any(|message| message.kind() == MessageKind::Summary)
    }

    /// The number of messages protected at the start of the history. The system prompt stands
    /// outside the history and counts as the first. After a compaction the number is 0: the summary
    /// says what still matters, and the first messages of a long session are stale.
    pub(crate) fn protected_first(&self, has_system_prompt: bool) -> usize {
        if self.was_compacted() {
            0
        } else {
            PROTECT_FIRST_N - usize::from(has_system_prompt)
        }
    }

    /// Cuts the conversation. If a boundary falls into a tool group, it moves backward to the start
    /// of that group, so that the head gets shorter and the tail longer.
    pub(crate) fn split(&self, protection: Protection) -> Split {
        let len = self.messages.len();
        let by_tokens = tail_within(&self.tokens, protection.tail_tokens);
        let mut tail = self
            .groups
            .cut_before(by_tokens.min(len.saturating_sub(protection.last)));
        // A call that still waits for its result must stay in the window, or its result would have
        // no call.
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

    /// Chooses where the summary stands, so that no two kept messages of the same role follow each
    /// other. Of the gaps with the same role on both sides, the last one gets the summary. The
    /// others are closed by moving the start of the range behind them back, until a message of
    /// another role precedes it. If no roles collide, the summary stands right after the head.
    fn part_roles(&self, head: usize, anchors: &mut [Range<usize>], tail: &mut usize) -> usize {
        // A window has to begin with the user or with the summary. If there is no head and an
        // assistant message would come first, the summary goes before it.
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
                // Move by whole tool groups, so that the extended range does not begin inside one.
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

    /// Whether a head begins with results without a call, followed by the assistant. Such results
    /// are dropped later, and then the window would begin with the assistant.
    fn is_led_by_orphans(&self, head: usize) -> bool {
        let first = (0..head).find(|at| !self.is_orphan(*at));
        first.is_some_and(|first| first > 0 && self.messages[first].role() == "assistant")
    }

    /// Whether the last message before `before` and the first message from `after` on have the same
    /// role. Results without a call are skipped on both sides, since they are dropped from the
    /// window.
    fn same_role(&self, before: usize, after: usize) -> bool {
        let role = |at: &usize| self.messages[*at].role();
        let last = (0..before).rfind(|at| !self.is_orphan(*at));
        let first = (after..self.messages.len()).find(|at| !self.is_orphan(*at));
        last.as_ref().map(role) == first.as_ref().map(role) && last.is_some()
    }
}

impl Split {
    pub(crate) fn keeps(&self, at: usize) -> bool {
        at < self.head || at >= self.tail || self.anchors.iter().any(|range| range.contains(&at))
    }

    /// Whether the middle holds messages that no compaction has summarised yet. Messages before the
    /// latest summary do not count: they were the protected head of the first compaction, and that
    /// they are no longer protected is not new content.
    pub(crate) fn something_new(&self, outline: &Outline<'_, '_>) -> bool {
        let is_summary = |at: &usize| outline.messages[*at].kind() == MessageKind::Summary;
        match self.middle().filter(is_summary).last() {
            Some(summary) => self.middle().any(|at| at > summary),
            None => self.middle().next().is_some(),
        }
    }

    pub(crate) fn middle(&self) -> impl Iterator<Item = usize> + '_ {
        (self.head..self.tail).filter(|at| !self.keeps(*at))
    }
}

//! The model calls that the engine wants made between turns.
//!
//! A compaction that has to call the model makes the user wait. [`Background`] therefore asks the
//! host for model calls ahead of time. In order of urgency it wants leaves that the next compaction
//! will need, a condensed node if the summaries are over their budget, and better texts for nodes
//! whose text was made without the model or at half the budget.
//!
//! [`Background::calls`] plans the texts and returns the calls to make. [`Background::answered`]
//! takes the answers and puts finished texts into the [`Staging`]. If the model fails at a text
//! although it writes others, that text is held back for a growing time. Failures of the model
//! itself are the business of `ModelTrust`.

use std::collections::{BTreeMap, HashMap, HashSet};

use contexture_engine_api::{
    BackgroundCall, EngineError, LogLevel, MessageId, MessageView, ModelAnswer, ModelFailure,
    OwnedMessage, with_views,
};

use contexture_summaries::Making;

use crate::dag::condense::next_group;
use crate::dag::outline::{Outline, Protection};
use crate::dag::plan::{PlanStep, Run, Spot, layout, leaves};
use crate::dag::{Node, NodeId, NodeSources};
use crate::model_trust::is_about_the_text;
use crate::session_state::{Loose, SessionState};
use crate::settings::{Budgets, CONDENSED_SHARE, HEADING_TOKENS, LEAF_SHARE, LEAST_TEXT, Settings};
use crate::staging::Staging;
use crate::store::Key;
use crate::store::nodes;
use crate::summarise::{Draft, Job, Written};

/// The number of pending calls from which no further text starts its calls. One text may have
/// several calls at once, so the number can be exceeded slightly.
const MAX_CALLS: usize = 8;
/// The newest leaf is prepared once its messages have this share of a leaf's span. It may still
/// grow, so preparing it too early would waste the call.
const NEWEST_SHARE: f64 = 0.75;
/// The smallest number of newest messages that are read for planning. The rules about what stays
/// raw look at the end of the conversation.
const MIN_NEWEST: usize = 20;
/// How long a text that the model failed at is held back, in milliseconds. The time doubles with
/// each failure of the text, up to eight times.
const HOLD_MS: i64 = 600_000;
/// The number of failures up to which a text is retried early, namely when the model has written
/// another text since.
const EARLY_RETRIES: u32 = 2;

/// What a text is written for. It decides into which part of the staging the text goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    Leaf(Vec<MessageId>),
    Condensed(Vec<NodeId>),
    Better(Node),
}

/// The first and the last message under a node. It identifies a text across retries, even if its
/// node has not been created yet.
type Span = (MessageId, MessageId);

/// A text that the model failed at while it wrote others. It is not asked for again until the hold
/// ends.
#[derive(Debug)]
struct FailedText {
    failures: u32,
    since_ms: i64,
    /// The number of texts that the model had written when this one failed. If it has grown since,
    /// the model works and an early retry is worthwhile.
    written: u64,
}

/// The texts that are being written and the calls that are pending for them, with a record of
/// failures. A new set of texts is planned only when all texts of the previous one are finished.
#[derive(Debug, Default)]
pub(crate) struct Background {
    making: Vec<Making<(Purpose, Draft)>>,
    last_call: u64,
    held: HashMap<Span, FailedText>,
    written: u64,
}

/// What an answer of the model led to.
pub(crate) enum Answered {
    /// A text is finished, and the staging or the store has it.
    Written,
    /// The text needs further calls, the failure was reported before, or the answer is no longer
    /// needed.
    Nothing,
    /// The model failed. A failure that is about the text alone is reported once per text, so that
    /// one difficult text does not put the model into cool-down.
    Failed(ModelFailure),
}

impl Background {
    /// Returns the number of pending calls, over all texts.
    pub(crate) fn out(&self) -> usize {
        self.making.iter().map(Making::out).sum()
    }

    /// Whether a leaf is being written. A compaction may then wait for it.
    pub(crate) fn prepares_leaves(&self) -> bool {
        let mut purposes = self.making.iter().map(|making| &making.purpose.0);
        purposes.any(|purpose| matches!(purpose, Purpose::Leaf(_)))
    }

    /// Discards all pending texts, for example after a cut. Answers to their calls are ignored.
    pub(crate) fn forget(&mut self) {
        self.making.clear();
    }

    /// Discards the pending leaves over any of these messages. They are under a node now or no
    /// longer part of the conversation.
    pub(crate) fn forget_leaves_over(&mut self, messages: &HashSet<MessageId>) {
        self.keep(|purpose| match purpose {
            Purpose::Leaf(ids) => ids.iter().all(|id| !messages.contains(id)),
            Purpose::Condensed(_) | Purpose::Better(_) => true,
        });
    }

    /// Discards the pending condensed nodes whose children left the frontier. Call it after the
    /// frontier moved, because such a text has no use any more.
    pub(crate) fn frontier_moved(&mut self, session: &SessionState) {
        self.keep(|purpose| match purpose {
            Purpose::Condensed(nodes) => nodes.iter().all(|id| session.in_frontier(*id).is_some()),
            Purpose::Leaf(_) | Purpose::Better(_) => true,
        });
    }

    fn keep(&mut self, is_wanted: impl Fn(&Purpose) -> bool) {
        self.making.retain(|making| is_wanted(&making.purpose.0));
    }

    /// Returns the calls to make now. If no text is being written, up to `most` new ones are
    /// planned: leaves and a condensed node only if `due` says that the window is full enough, and
    /// better texts at any time.
    pub(crate) fn calls(
        &mut self,
        session: &SessionState,
        settings: &Settings,
        budgets: &Budgets,
        staging: &mut Staging,
        due: bool,
        most: usize,
    ) -> Result<Vec<BackgroundCall>, EngineError> {
        // Planning reads messages, which takes time. It waits until the texts of the last plan are
        // written.
        if self.making.is_empty() {
            if due {
                self.plan_leaves(session, settings, budgets, staging, most)?;
                self.plan_condensed(session, budgets, staging, most);
            }
            self.plan_better(session, budgets, staging, most)?;
        }
        let (now_ms, mut out, mut calls) = (session.services.now_ms(), self.out(), Vec::new());
        for making in &mut self.making {
            if out < MAX_CALLS {
                let new = making.calls(&mut self.last_call, now_ms);
                out += new.len();
                calls.extend(new);
            }
        }
        Ok(calls)
    }

    /// Starts writing a text. If there is no model, or nothing in the material that a model could
    /// write from, the text is extracted and staged at once.
    fn add(&mut self, purpose: Purpose, job: Job, session: &SessionState, staging: &mut Staging) {
        let Job { summariser, draft } = job;
        let model = session.services.model();
        let Some((summariser, model)) = summariser.zip(model) else {
            let written = draft.without_model(&session.services);
            return stage(purpose, written, session, staging);
        };
        let covers = match &purpose {
            Purpose::Leaf(ids) => ids.clone(),
            Purpose::Condensed(_) | Purpose::Better(_) => Vec::new(),
        };
        let making = Making::new((purpose, draft), covers, model.name, summariser);
        self.making.push(making);
    }

    /// Plans leaves over the oldest messages that will leave the window. The plan uses the same
    /// rules as a compaction, so that the prepared leaves have the boundaries that the compaction
    /// will choose.
    fn plan_leaves(
        &mut self,
        session: &SessionState,
        settings: &Settings,
        budgets: &Budgets,
        staging: &mut Staging,
        most: usize,
    ) -> Result<(), EngineError> {
        let protection = Protection {
            messages: settings.fresh_tail_messages,
            tokens: budgets.tail,
        };
        let backlog = Backlog::of(session.loose()?, protection, most, budgets, staging);
        let stored = session.store.owned_messages(&backlog.keys)?;
        let calls: Vec<_> = stored.iter().map(OwnedMessage::call_views).collect();
        let views = stored.iter().zip(&calls);
        let views: Vec<_> = views.map(|(message, calls)| message.view(calls)).collect();
        let outline = Outline::of(&views);
        let split = outline.split(protection);
        // Loose messages are covered by no node, so each of them counts as raw.
        let spots = vec![Spot::Raw; views.len()];
        let segments = layout(&views, &spots, &outline, &split, &[], &HashMap::new());
        let mut spans: Vec<Vec<MessageId>> = Vec::new();
        for units in (segments.iter().filter_map(PlanStep::run)).flat_map(Run::spans) {
            spans.extend(leaves(units, budgets.leaf_span, |first| staging.ids(first)));
        }
        let by_id: HashMap<MessageId, MessageView<'_>> =
            views.iter().map(|view| (view.id(), *view)).collect();
        if let Some(end) = backlog.looked_at {
            // The messages after `end` were not read. The last leaf before it may be incomplete,
            // and its boundaries would change with what follows.
            let begins_before = |ids: &Vec<MessageId>| ids.last().is_some_and(|last| *last < end);
            spans.retain(begins_before);
            spans.pop();
        }
        let newest = match backlog.looked_at {
            Some(_) => spans.len(),
            None => spans.len().saturating_sub(1),
        };
        for (at, ids) in spans.into_iter().enumerate() {
            if self.making.len() >= most {
                break;
            }
            if staging.leaf(&ids).is_some() {
                continue;
            }
            let views: Vec<MessageView<'_>> =
                ids.iter().filter_map(|id| by_id.get(id).copied()).collect();
            let tokens: u64 = views.iter().map(MessageView::tokens).sum();
            // The newest leaf still grows, and a text for only part of it would not be used.
            if at == newest && tokens < (budgets.leaf_span as f64 * NEWEST_SHARE) as u64 {
                continue;
            }
            let budget = budgets.node.min(tokens / LEAF_SHARE).max(LEAST_TEXT);
            let services = &session.services;
            let job = Job::of_messages(&views, budget, None, services.model().as_ref(), services);
            self.add(Purpose::Leaf(ids), job, session, staging);
        }
        Ok(())
    }

    /// Plans one condensed node if the frontier and the prepared leaves together are over the
    /// budget for summaries. Only the group that a compaction would condense next is considered.
    fn plan_condensed(
        &mut self,
        session: &SessionState,
        budgets: &Budgets,
        staging: &mut Staging,
        most: usize,
    ) {
        let frontier = session.frontier();
        let tokens: u64 = (frontier.iter())
            .map(|node| node.tokens + HEADING_TOKENS)
            .sum();
        if tokens + staging.tokens() <= budgets.summaries || self.making.len() >= most {
            return;
        }
        let depths: Vec<u32> = frontier.iter().map(|node| node.depth).collect();
        let Some(group) = next_group(&depths) else {
            return;
        };
        let nodes = &frontier[group];
        let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        if staging.condensed(&ids).is_some() || self.is_held(span_of(nodes.iter()), session) {
            return;
        }
        let texts: Vec<&str> = nodes.iter().map(|node| node.text.as_str()).collect();
        let tokens: u64 = nodes.iter().map(|node| node.tokens).sum();
        let budget = budgets.node.min(tokens / CONDENSED_SHARE).max(LEAST_TEXT);
        let services = &session.services;
        let model = services.model();
        let job = Job::condensed(&texts, tokens, budget, None, model.as_ref(), services);
        self.add(Purpose::Condensed(ids), job, session, staging);
    }

    /// Plans better texts for nodes whose text is of a lower level. A node in the frontier may
    /// become as long as a new one if the summaries have room for it. If not, its text stays as
    /// long as the one it replaces. A node outside the frontier takes no space in the window.
    fn plan_better(
        &mut self,
        session: &SessionState,
        budgets: &Budgets,
        staging: &mut Staging,
        most: usize,
    ) -> Result<(), EngineError> {
        if self.making.len() >= most {
            return Ok(());
        }
        let tokens = |node: &Node| node.tokens + HEADING_TOKENS;
        let used: u64 = (session.frontier().iter()).map(tokens).sum();
        let mut room = budgets.summaries.saturating_sub(used);
        let to_redo = nodes::to_redo(&session.store, session.id)?;
        let waits: HashSet<NodeId> = to_redo.iter().map(|(id, _)| *id).collect();
        for (id, _) in &to_redo {
            if self.making.len() >= most {
                break;
            }
            if staging.better(*id).is_some() {
                continue;
            }
            let Some(node) = nodes::node(&session.store, session.id, *id)? else {
                continue;
            };
            if self.is_held((node.first, node.last), session) {
                continue;
            }
            let in_frontier = session.in_frontier(*id).is_some();
            let services = &session.services;
            let model = services.model();
            let budget = |material: u64, share: u64| {
                let as_new = budgets.node.min(material / share).max(LEAST_TEXT);
                match in_frontier {
                    true => node.tokens.max(as_new.min(node.tokens + room)),
                    false => node.tokens.max(as_new),
                }
            };
            let job = match nodes::sources(&session.store, session.id, *id)? {
                NodeSources::Messages(_) => {
                    let keys = nodes::messages_under(&session.store, session.id, *id)?;
                    let budget = budget(node.source_tokens, LEAF_SHARE);
                    with_views(&session.store.owned_messages(&keys)?, |views| {
                        Job::of_messages(views, budget, None, model.as_ref(), services)
                    })
                }
                // The text is written from the texts of the children, so better ones of those come
                // first.
                NodeSources::Nodes(children) if children.iter().any(|id| waits.contains(id)) => {
                    continue;
                }
                NodeSources::Nodes(children) => {
                    let mut texts = Vec::new();
                    for child in children {
                        let child = nodes::node(&session.store, session.id, child)?;
                        texts.extend(child.map(|node| node.text));
                    }
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let tokens: u64 = texts.iter().map(|t| services.count_tokens(t)).sum();
                    let budget = budget(tokens, CONDENSED_SHARE);
                    Job::condensed(&texts, tokens, budget, None, model.as_ref(), services)
                }
            };
            if in_frontier {
                room = room.saturating_sub(job.draft.budget().saturating_sub(node.tokens));
            }
            self.add(Purpose::Better(node), job, session, staging);
        }
        Ok(())
    }

    /// Whether the model failed at the text over these messages and it is too early to try again.
    fn is_held(&self, span: Span, session: &SessionState) -> bool {
        self.held.get(&span).is_some_and(|held| {
            let answers = held.failures <= EARLY_RETRIES && self.written > held.written;
            let until = held.since_ms + hold_ms(held.failures);
            !answers && (held.since_ms..until).contains(&session.services.now_ms())
        })
    }

    /// Records a failure of the text over these messages and returns how often it has failed by
    /// now.
    fn hold(&mut self, span: Span, session: &SessionState) -> u32 {
        let failures = self.held.get(&span).map_or(0, |held| held.failures) + 1;
        let held = FailedText {
            failures,
            since_ms: session.services.now_ms(),
            written: self.written,
        };
        self.held.insert(span, held);
        failures
    }

    /// Takes the answer to a call. If it completes a text, the text is staged for the next
    /// compaction or, if its node is not in the window, written to the store.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        answer: Result<ModelAnswer, ModelFailure>,
        session: &SessionState,
        staging: &mut Staging,
    ) -> Answered {
        // The text was discarded while the call was pending, for example because of a cut.
        let Some(at) = self.making.iter().position(|making| making.asks(id)) else {
            return Answered::Nothing;
        };
        let Some(finished) = self.making[at].answered(id, answer) else {
            return Answered::Nothing;
        };
        let making = self.making.remove(at);
        let (purpose, draft) = making.purpose;
        let less = making.summariser.asked_for_less();
        let (model, services) = (&making.model, &session.services);
        match finished.and_then(|text| draft.by_model(&text, less, model, services)) {
            Ok(written) => {
                self.written += 1;
                stage(purpose, written, session, staging);
                Answered::Written
            }
            Err(failure) if is_about_the_text(failure.kind) => {
                match self.without(purpose, &draft, session, staging) {
                    1 => Answered::Failed(failure),
                    _ => Answered::Nothing,
                }
            }
            Err(failure) => Answered::Failed(failure),
        }
    }

    /// Gives up a text that the model cannot write, and returns how often it has failed. A leaf is
    /// extracted instead, because the compaction needs some text for it. The other texts are
    /// optional.
    fn without(
        &mut self,
        purpose: Purpose,
        draft: &Draft,
        session: &SessionState,
        staging: &mut Staging,
    ) -> u32 {
        match purpose {
            Purpose::Leaf(ids) => {
                let none = MessageId(0);
                let span = (ids.iter().min(), ids.iter().max());
                let span = (*span.0.unwrap_or(&none), *span.1.unwrap_or(&none));
                staging.add_leaf(ids, draft.without_model(&session.services));
                self.hold(span, session)
            }
            Purpose::Condensed(ids) => {
                let nodes = ids.iter().filter_map(|id| session.in_frontier(*id));
                self.hold(span_of(nodes), session)
            }
            Purpose::Better(node) => self.hold((node.first, node.last), session),
        }
    }
}

/// The loose messages that the next leaves depend on. Planning reads these and not the whole
/// conversation, which may be very long.
struct Backlog {
    keys: Vec<Key>,
    /// The first message that was left out. None if the backlog holds all loose messages.
    looked_at: Option<MessageId>,
}

impl Backlog {
    /// Selects the oldest messages, enough for `most` leaves and some more, and the fresh tail. It
    /// adds the user's last message and the last answer, because the plan keeps them in the window
    /// wherever they are.
    fn of(
        loose: &BTreeMap<MessageId, Loose>,
        protection: Protection,
        most: usize,
        budgets: &Budgets,
        staging: &Staging,
    ) -> Self {
        let enough = budgets.leaf_span.saturating_mul(most as u64 + 2);
        let (mut tokens, mut oldest) = (0, 0);
        for (id, message) in loose {
            if tokens > enough {
                break;
            }
            oldest += 1;
            if !staging.holds(*id) {
                tokens += message.tokens;
            }
        }
        let (mut tokens, mut newest) = (0, 0);
        for message in loose.values().rev() {
            if tokens > protection.tokens && newest >= protection.messages.max(MIN_NEWEST) {
                break;
            }
            newest += 1;
            tokens += message.tokens;
        }
        if oldest + newest >= loose.len() {
            return Self {
                keys: loose.values().map(|message| message.key).collect(),
                looked_at: None,
            };
        }
        let between = || {
            loose
                .values()
                .skip(oldest)
                .take(loose.len() - oldest - newest)
        };
        let last = |is: fn(&Loose) -> bool| between().rfind(|message| is(message));
        let mut keys: Vec<Key> = loose.values().take(oldest).map(|m| m.key).collect();
        keys.extend(last(|message| message.is_user).map(|message| message.key));
        keys.extend(last(|message| message.is_answer).map(|message| message.key));
        keys.extend(loose.values().rev().take(newest).map(|message| message.key));
        keys.sort_unstable();
        keys.dedup();
        Self {
            keys,
            looked_at: loose.keys().nth(oldest).copied(),
        }
    }
}

/// How long a text is held back after so many failures, in milliseconds.
fn hold_ms(failures: u32) -> i64 {
    HOLD_MS << failures.saturating_sub(1).min(8)
}

fn stage(purpose: Purpose, written: Written, session: &SessionState, staging: &mut Staging) {
    match purpose {
        Purpose::Leaf(ids) => staging.add_leaf(ids, written),
        Purpose::Condensed(children) => staging.add_condensed(children, written),
        Purpose::Better(node) if session.in_frontier(node.id).is_some() => {
            staging.add_better(node.id, written);
        }
        // The window does not show this node, so its text can change without a compaction.
        Purpose::Better(node) => {
            let rewritten = nodes::rewrite(&session.store, session.id, node.id, &written);
            if let Err(error) = rewritten {
                let line = format!("the better text of {} could not be kept: {error}", node.id);
                session.services.log(LogLevel::Warn, &line);
            }
        }
    }
}

fn span_of<'n>(nodes: impl Iterator<Item = &'n Node> + Clone) -> Span {
    let first = nodes.clone().map(|node| node.first).min();
    let last = nodes.map(|node| node.last).max();
    let none = MessageId(0);
    (first.unwrap_or(none), last.unwrap_or(none))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SessionId;

    fn loose(count: u32, user: u32) -> BTreeMap<MessageId, Loose> {
        let message = |at: u32| Loose {
            key: Key::new(SessionId(1), at),
            tokens: 100,
            at: None,
            is_user: at == user,
            is_answer: false,
        };
        (0..count)
            .map(|at| (MessageId(u64::from(at) + 1), message(at)))
            .collect()
    }

    fn backlog(loose: &BTreeMap<MessageId, Loose>) -> Backlog {
        let budgets = Settings::default()
            .budgets(&contexture_engine_api::WindowState::default().context_length(100_000));
        let protection = Protection {
            messages: 20,
            tokens: budgets.tail,
        };
        Backlog::of(loose, protection, 8, &budgets, &Staging::default())
    }

    #[test]
    fn the_hold_of_a_text_begins_at_ten_minutes_and_doubles_eight_times() {
        let minutes = |failures| hold_ms(failures) / 60_000;
        assert_eq!([1, 2, 3].map(minutes), [10, 20, 40]);
        assert_eq!([9, 10, u32::MAX].map(minutes), [10 << 8; 3]);
    }

    #[test]
    fn of_a_long_backlog_only_what_the_next_leaves_need_is_read() {
        let all = backlog(&loose(300, 5));
        assert_eq!((all.keys.len(), all.looked_at), (300, None));
        let some = backlog(&loose(100_000, 50_000));
        assert!(some.keys.len() < 1_500, "{}", some.keys.len());
        let place = |at| Key::new(SessionId(1), at);
        for at in [0, 50_000, 99_999] {
            assert!(some.keys.contains(&place(at)), "{at}");
        }
        assert!(some.looked_at.is_some_and(|end| end < MessageId(50_000)));
    }
}

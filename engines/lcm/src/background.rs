//! The model calls that the engine would like made between turns: leaves that the next compaction will
//! need, condensed nodes where summaries are over their budget, and better texts for nodes of a lower level.

use std::collections::{BTreeMap, HashMap, HashSet};

use contexture_engine_api::{
    BackgroundCall, EngineError, LogLevel, MessageId, MessageView, ModelAnswer, ModelFailure,
};

use contexture_summaries::Making;

use crate::dag::condense::next_group;
use crate::dag::outline::{Outline, Protection};
use crate::dag::plan::{PlanStep, RunPart, Spot, layout, leaves};
use crate::dag::{Node, NodeId, Under};
use crate::model_trust::is_about_the_text;
use crate::session_state::{Loose, SessionState};
use crate::settings::{Budgets, CONDENSED_SHARE, HEADING_TOKENS, LEAF_SHARE, LEAST_TEXT, Settings};
use crate::staging::Staging;
use crate::store::Key;
use crate::store::nodes;
use crate::summarise::{Draft, Job, Written};

/// The most concurrent calls.
const MAX_CALLS: usize = 8;
/// The newest leaf is prepared once it has this share of a leaf's span.
const NEWEST_SHARE: f64 = 0.75;
/// The smallest part of the fresh tail that is read, in messages.
const MIN_NEWEST: usize = 20;
/// How long to wait before retrying a text that the model failed at, in milliseconds; doubled after each
/// failure.
const HOLD_MS: i64 = 600_000;
/// How often a success with another text allows an earlier retry.
const EARLY_RETRIES: u32 = 2;

/// The purpose of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    Leaf(Vec<MessageId>),
    Condensed(Vec<NodeId>),
    Better(Node),
}

/// The first and the last message under a node.
type Span = (MessageId, MessageId);

/// A text that the model failed at, although it wrote others.
#[derive(Debug)]
struct Held {
    failures: u32,
    since_ms: i64,
    /// How many texts the model had written at that time.
    written: u64,
}

/// The texts to write, and their pending calls.
#[derive(Debug, Default)]
pub(crate) struct Background {
    making: Vec<Making<(Purpose, Draft)>>,
    last_call: u64,
    held: HashMap<Span, Held>,
    written: u64,
}

/// The result of an answer.
pub(crate) enum Answered {
    /// A text is ready.
    Written,
    /// Nothing yet, or nothing that is still needed.
    Nothing,
    /// The model failed. (Reported once per text.)
    Failed(ModelFailure),
}

impl Background {
    /// The number of pending calls.
    pub(crate) fn out(&self) -> usize {
        self.making.iter().map(Making::out).sum()
    }

    /// Whether a leaf is being written.
    pub(crate) fn prepares_leaves(&self) -> bool {
        let mut purposes = self.making.iter().map(|making| &making.purpose.0);
        purposes.any(|purpose| matches!(purpose, Purpose::Leaf(_)))
    }

    /// Discards all pending calls.
    pub(crate) fn forget(&mut self) {
        self.making.clear();
    }

    /// These messages no longer need a leaf: they are under a node now, or not part of the conversation.
    pub(crate) fn forget_leaves_over(&mut self, messages: &HashSet<MessageId>) {
        self.keep(|purpose| match purpose {
            Purpose::Leaf(ids) => ids.iter().all(|id| !messages.contains(id)),
            Purpose::Condensed(_) | Purpose::Better(_) => true,
        });
    }

    /// The frontier moved.
    pub(crate) fn frontier_moved(&mut self, session: &SessionState) {
        self.keep(|purpose| match purpose {
            Purpose::Condensed(nodes) => nodes.iter().all(|id| session.in_frontier(*id).is_some()),
            Purpose::Leaf(_) | Purpose::Better(_) => true,
        });
    }

    fn keep(&mut self, is_wanted: impl Fn(&Purpose) -> bool) {
        self.making.retain(|making| is_wanted(&making.purpose.0));
    }

    /// The calls to make now, at most `most` texts at once. `due` says whether the window is full enough
    /// for leaves.
    pub(crate) fn calls(
        &mut self,
        session: &SessionState,
        settings: &Settings,
        budgets: &Budgets,
        staging: &mut Staging,
        due: bool,
        most: usize,
    ) -> Result<Vec<BackgroundCall>, EngineError> {
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

    /// Has a text made. What no model has anything to write from is staged at once.
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
        let material = session.stored_views(&backlog.keys)?;
        let calls = material.call_views();
        let views = material.views(&calls);
        let outline = Outline::of(&views);
        let split = outline.split(protection);
        let spots = vec![Spot::Raw; views.len()];
        let segments = layout(&views, &spots, &outline, &split, &[], &HashMap::new());
        let mut spans: Vec<Vec<MessageId>> = Vec::new();
        for segment in &segments {
            let PlanStep::Run(run) = segment else {
                continue;
            };
            for part in &run.parts {
                if let RunPart::Span(units) = part {
                    spans.extend(leaves(units, budgets.leaf_span, |first| staging.ids(first)));
                }
            }
        }
        let by_id: HashMap<MessageId, MessageView<'_>> =
            views.iter().map(|view| (view.id(), *view)).collect();
        if let Some(end) = backlog.looked_at {
            // The leaf at the end of what was read may be incomplete.
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
            // The newest leaf still grows.
            if at == newest && tokens < (budgets.leaf_span as f64 * NEWEST_SHARE) as u64 {
                continue;
            }
            let budget = budgets.node.min(tokens / LEAF_SHARE).max(LEAST_TEXT);
            let services = &session.services;
            let job = Job::leaf(&views, budget, None, services.model().as_ref(), services);
            self.add(Purpose::Leaf(ids), job, session, staging);
        }
        Ok(())
    }

    fn plan_condensed(
        &mut self,
        session: &SessionState,
        budgets: &Budgets,
        staging: &mut Staging,
        most: usize,
    ) {
        let frontier = session.frontier();
        let tokens: u64 = (frontier.iter())
            .map(|placed| placed.node.tokens + HEADING_TOKENS)
            .sum();
        if tokens + staging.tokens() <= budgets.summaries || self.making.len() >= most {
            return;
        }
        let depths: Vec<u32> = frontier.iter().map(|placed| placed.node.depth).collect();
        let Some(group) = next_group(&depths) else {
            return;
        };
        let nodes = &frontier[group];
        let ids: Vec<NodeId> = nodes.iter().map(|placed| placed.node.id).collect();
        if staging.condensed(&ids).is_some()
            || self.is_held(span_of(nodes.iter().map(|p| &p.node)), session)
        {
            return;
        }
        let texts: Vec<&str> = nodes
            .iter()
            .map(|placed| placed.node.text.as_str())
            .collect();
        let tokens: u64 = nodes.iter().map(|placed| placed.node.tokens).sum();
        let budget = budgets.node.min(tokens / CONDENSED_SHARE).max(LEAST_TEXT);
        let services = &session.services;
        let model = services.model();
        let job = Job::condensed(&texts, tokens, budget, None, model.as_ref(), services);
        self.add(Purpose::Condensed(ids), job, session, staging);
    }

    /// Better texts for nodes of a lower level. In the frontier they may be as long as new ones if the
    /// summaries have room for it, otherwise no longer than the texts they replace.
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
        let used: u64 = (session.frontier().iter())
            .map(|placed| tokens(&placed.node))
            .sum();
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
            let Some(placed) = nodes::node(&session.store, session.id, *id)? else {
                continue;
            };
            let node = placed.node;
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
            let job = match nodes::under(&session.store, session.id, *id)? {
                Under::Messages(_) => {
                    let keys = nodes::messages_under(&session.store, session.id, *id)?;
                    let material = session.stored_views(&keys)?;
                    let calls = material.call_views();
                    let views = material.views(&calls);
                    let budget = budget(node.source_tokens, LEAF_SHARE);
                    Job::leaf(&views, budget, None, model.as_ref(), services)
                }
                // Better texts of their children come first.
                Under::Nodes(children) if children.iter().any(|id| waits.contains(id)) => continue,
                Under::Nodes(children) => {
                    let mut texts = Vec::new();
                    for child in children {
                        let child = nodes::node(&session.store, session.id, child)?;
                        texts.extend(child.map(|placed| placed.node.text));
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

    /// Whether the model failed at the text of these messages and it is too early for a retry.
    fn is_held(&self, span: Span, session: &SessionState) -> bool {
        self.held.get(&span).is_some_and(|held| {
            let answers = held.failures <= EARLY_RETRIES && self.written > held.written;
            let until = held.since_ms + (HOLD_MS << held.failures.min(8));
            !answers && (held.since_ms..until).contains(&session.services.now_ms())
        })
    }

    fn hold(&mut self, span: Span, session: &SessionState) -> u32 {
        let failures = self.held.get(&span).map_or(0, |held| held.failures) + 1;
        let held = Held {
            failures,
            since_ms: session.services.now_ms(),
            written: self.written,
        };
        self.held.insert(span, held);
        failures
    }

    /// Takes an answer. A text for the window is only staged.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        answer: Result<ModelAnswer, ModelFailure>,
        session: &SessionState,
        staging: &mut Staging,
    ) -> Answered {
        // It is no longer needed if the conversation was cut back.
        let Some(at) = self.making.iter().position(|making| making.asks(id)) else {
            return Answered::Nothing;
        };
        let Some(finished) = self.making[at].answered(id, answer) else {
            return Answered::Nothing;
        };
        let making = self.making.remove(at);
        let (purpose, draft) = making.purpose;
        match finished {
            Ok(text) => {
                self.written += 1;
                let less = making.summariser.asked_for_less();
                let written = draft.by_model(&text, less, &making.model, &session.services);
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

    /// Gives up a text that the model cannot write. Returns how often it failed.
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
                self.hold(span_of(nodes.map(|placed| &placed.node)), session)
            }
            Purpose::Better(node) => self.hold((node.first, node.last), session),
        }
    }
}

/// The messages that the next leaves depend on.
struct Backlog {
    keys: Vec<Key>,
    /// The first message that is left out, if there are too many to read.
    looked_at: Option<MessageId>,
}

impl Backlog {
    /// The oldest messages, enough for `most` leaves and one more; the fresh tail; and the user's last
    /// message and the last answer, which always stay in the window.
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

fn stage(purpose: Purpose, written: Written, session: &SessionState, staging: &mut Staging) {
    match purpose {
        Purpose::Leaf(ids) => staging.add_leaf(ids, written),
        Purpose::Condensed(children) => staging.add_condensed(children, written),
        Purpose::Better(node) if session.in_frontier(node.id).is_some() => {
            staging.add_better(node.id, written);
        }
        // The window does not show it.
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

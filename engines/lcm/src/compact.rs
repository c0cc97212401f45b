//! One compaction of a window, from the messages to a proposal.
//!
//! The host asks for a compaction, and [`Compactor::run`] makes one in three steps. It first finds
//! out what each position of the window shows. It then arranges the window: what stays raw, and
//! which messages go under summaries. If that is worthwhile, it writes the missing summaries and
//! proposes the new window.
//!
//! Each step is a submodule: `spots`, `arrange` with `shorten`, and `write` with `propose` and
//! `pieces`. Between turns, `prepare` says which summaries the next compaction will need. All of
//! them are methods of [`Compactor`], which holds what a compaction needs to know. Nothing of the
//! session changes until the host has committed the proposal, except that new nodes are stored
//! ahead.

mod arrange;
mod pieces;
mod prepare;
mod propose;
mod shorten;
mod spots;
mod write;

use std::collections::HashMap;

use contexture_engine_api::{
    CompressOrder, CompressRequest, Floor, MessageId, MessageKind, MessageView, Outcome,
    WindowState, grouped, with_views,
};
use contexture_summaries::{Headroom, Sizes, to_host_tokens};

use crate::dag::outline::Outline;
use crate::dag::{Node, NodeId};
use crate::error::StoreError;
use crate::model_trust::ModelTrust;
use crate::session_state::SessionState;
use crate::settings::{Budgets, Settings};
use crate::store::Key;
use crate::summarise::Written;
use crate::texts::Texts;

/// The approximate number of tokens of the text around the nodes of a block: its mark and its first
/// lines.
const PREAMBLE_TOKENS: u64 = 80;

/// How a compaction may use the model. The texts that are ready are used in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelUse {
    /// No model is configured. Missing texts are extracted, and that is final.
    None,
    /// Somebody waits for the result, so the model is called for every missing text.
    Now,
    /// Missing texts are not written. The messages that need one stay in the window until the
    /// background has prepared it.
    Prepared,
    /// Missing texts are extracted and redone later, because the model failed recently or the window
    /// is too full to wait for it.
    Later,
}

/// A proposal that the host has neither committed nor discarded yet. If it is committed, it says
/// how the frontier changes.
pub(crate) struct Proposal {
    pub(crate) frontier: Vec<Node>,
    pub(crate) better: Vec<(NodeId, Written)>,
    /// The new nodes, which are stored already and removed again if the proposal is discarded.
    pub(crate) added: Vec<NodeId>,
    /// The messages that were loose and are under the new frontier.
    pub(crate) covered: Vec<MessageId>,
    /// Whether nodes were replaced by their children. Messages may have become loose then, so the
    /// loose messages have to be read again.
    pub(crate) took_apart: bool,
    pub(crate) sizes: Sizes,
    pub(crate) degraded: bool,
}

/// What a running compaction needs to know. All sizes are in tokens.
pub(crate) struct Compactor<'a, 'm> {
    pub(crate) session: &'a SessionState,
    pub(crate) settings: &'a Settings,
    pub(crate) budgets: Budgets,
    /// The size below which the compaction must bring the prompt. A quarter of it should stay free,
    /// so that the next compaction is not due at once.
    pub(crate) trigger: u64,
    /// The size that an arrangement should not exceed. The first one that reaches it is taken.
    pub(crate) goal: u64,
    pub(crate) texts: &'a Texts,
    pub(crate) views: &'a [MessageView<'m>],
    pub(crate) fixed: u64,
    /// The size of the prompt before the compaction.
    pub(crate) before: u64,
    pub(crate) model: ModelUse,
    /// Why the model is not called now, if it is in a cool-down.
    pub(crate) cool_down: Option<String>,
    pub(crate) order: &'a CompressOrder,
}

impl<'a> Compactor<'a, 'a> {
    /// A compaction without a model. Set `model` and `cool_down` if one is configured.
    pub(crate) fn new(
        session: &'a SessionState,
        settings: &'a Settings,
        texts: &'a Texts,
        window: &WindowState,
        request: &CompressRequest<'a>,
    ) -> Self {
        let before = window.fixed_tokens + sum(request.messages);
        let mut budgets = settings.budgets(window);
        // The budgets count tokens as the host reports them, but here the messages are counted.
        // Scaling the limits makes both comparable.
        let scale = to_host_tokens(before, window);
        for limit in [&mut budgets.soft, &mut budgets.hard, &mut budgets.usable] {
            *limit = (*limit as f64 * scale) as u64;
        }
        Self {
            session,
            settings,
            trigger: budgets.trigger(window),
            goal: budgets.goal(window),
            budgets,
            texts,
            views: request.messages,
            fixed: window.fixed_tokens,
            before,
            model: ModelUse::None,
            cool_down: None,
            order: request.order,
        }
    }
}

impl Compactor<'_, '_> {
    /// Compacts the window. There is no proposal if everything before the fresh tail is
    /// summarised, if the compaction would not save enough, or if it waits for summaries that are
    /// being prepared.
    ///
    /// # Errors
    /// Returns an error if the store fails, if the caller cancels, or if the window shows a message
    /// that this engine was never given.
    pub(crate) fn run(
        self,
        headroom: &mut Headroom,
        trust: &mut ModelTrust,
    ) -> Result<(Outcome, Option<Proposal>), StoreError> {
        let outline = Outline::of(self.views);
        let spots = self.spots()?;
        let floor = self.floor(&outline);

        let arrangement = self.arrange(&outline, &spots)?;
        let waits = self.model == ModelUse::Prepared;
        if !arrangement.does_something() && (waits || !self.can_condense(&arrangement)) {
            // The prompt can be too large although nothing is left to summarise. Saying which parts
            // are too large is the only help then.
            let outcome = match !self.order.force && self.before >= self.budgets.hard {
                _ if waits => Outcome::Deferred(format!(
                    "summaries are being prepared in the background; a compaction does not wait for them from {} \
                     tokens on",
                    self.budgets.hard
                )),
                true => self.floor_too_high(floor.max(arrangement.kept)),
                false => Outcome::NothingToDo(
                    "everything before the fresh tail is summarised already".to_owned(),
                ),
            };
            return Ok((outcome, None));
        }
        let sizes = self.sizes(arrangement.estimate);
        // This is checked before any summary is written, because writing costs time and model
        // calls.
        if let Some(reason) = headroom.refuses(self.order, sizes) {
            return Ok((Outcome::Deferred(reason), None));
        }
        self.propose(&arrangement, floor, headroom, trust)
    }

    /// Reads the messages of new leaves, and passes them on leaf by leaf. Returns their keys, and what
    /// `read` makes of them. Messages that the window shows as they are stored are not read from the
    /// store.
    fn with_messages<T>(
        &self,
        leaves: &[Vec<MessageId>],
        read: impl FnOnce(Vec<Vec<MessageView<'_>>>) -> T,
    ) -> Result<(Vec<Vec<Key>>, T), StoreError> {
        let store = &self.session.store;
        let loose = self.session.loose()?;
        // The store masks what it reads, if secrets are to be masked. The window is as it was sent.
        let may_show = !self.settings.redact;
        let shown = self.views.iter();
        let shown = shown.filter(|view| may_show && view.kind() == MessageKind::Original);
        let shown: HashMap<MessageId, &MessageView<'_>> =
            shown.map(|view| (view.id(), view)).collect();
        let mut unseen = Vec::new();
        let mut found = Vec::with_capacity(leaves.len());
        for ids in leaves {
            let mut leaf = Vec::with_capacity(ids.len());
            for id in ids {
                let loose = loose.get(id);
                let key = match loose {
                    Some(loose) => Some(loose.key),
                    None => store.key(self.session.id, *id)?,
                };
                let Some(key) = key else { continue };
                // The client may have told the time only once.
                let view = loose
                    .zip(shown.get(id))
                    .map(|(loose, view)| match loose.at {
                        Some(at) => view.with_time(at),
                        None => **view,
                    });
                if view.is_none() {
                    unseen.push(key);
                }
                leaf.push((key, view));
            }
            found.push(leaf);
        }
        let stored = store.owned_messages(&unseen)?;
        let result = with_views(&stored, |stored| {
            let mut stored = stored.iter().copied();
            let views = found.iter().map(|leaf| {
                let views = leaf.iter().map(|(_, view)| view.or_else(|| stored.next()));
                views.flatten().collect()
            });
            read(views.collect())
        });
        let keys = |leaf: Vec<(Key, _)>| leaf.into_iter().map(|(key, _)| key).collect();
        Ok((found.into_iter().map(keys).collect(), result))
    }

    fn sizes(&self, after: u64) -> Sizes {
        Sizes {
            before: self.before,
            after,
            trigger: self.trigger,
        }
    }

    /// Returns the tokens that no compaction may remove: the system prompt and the tools, the
    /// messages in flight, and the user's last message.
    fn floor(&self, outline: &Outline) -> u64 {
        let in_flight = outline.in_flight.clone().unwrap_or(0..0);
        let user = outline
            .last_user
            .filter(|at| !in_flight.contains(at))
            .map_or(0, |at| self.views[at].tokens());
        self.fixed + user + sum(&self.views[in_flight])
    }

    fn model_wanted(&self) -> bool {
        self.model != ModelUse::None
    }

    fn floor_too_high(&self, floor_tokens: u64) -> Outcome {
        Outcome::FloorTooHigh(Floor::default().tokens(floor_tokens).reason(format!(
            "the system prompt, the tools, the user's last message and the last turn alone have \
                 {} tokens, and a compaction is due at once from {}: shorten the message, offer \
                 fewer tools, or choose a model with a larger window",
            grouped(floor_tokens),
            grouped(self.budgets.hard)
        )))
    }
}

fn sum(views: &[MessageView<'_>]) -> u64 {
    views.iter().map(MessageView::tokens).sum()
}

//! One compaction of a window, from the messages to a proposal.
//!
//! The host asks for a compaction, and [`Compactor::run`] makes one in three steps. It first finds
//! out what each position of the window shows. It then arranges the window: what stays raw, and
//! which messages go under summaries. If that is worthwhile, it writes the missing summaries and
//! proposes the new window.
//!
//! Each step is a submodule: `spots`, `arrange` with `shorten`, and `write` with `propose` and
//! `pieces`. All of them are methods of [`Compactor`], which holds what a compaction needs to know.
//! Nothing of the session changes until the host has committed the proposal, except that new nodes
//! are stored ahead.

mod arrange;
mod pieces;
mod propose;
mod shorten;
mod spots;
mod write;

use contexture_engine_api::{
    Compaction, CompressOrder, Floor, MessageId, MessageView, Outcome, grouped,
};
use contexture_summaries::{Headroom, Sizes};

use crate::dag::outline::Outline;
use crate::dag::{Node, NodeId};
use crate::error::StoreError;
use crate::session_state::SessionState;
use crate::settings::{Budgets, HEADING_TOKENS, Settings};
use crate::staging::Staging;
use crate::summarise::{Trouble, Written};
use arrange::Arranged;

/// The approximate number of tokens of the text around the nodes of a block: its mark and its first
/// lines.
const PREAMBLE_TOKENS: u64 = 80;

/// How a compaction may use the model. The texts that are prepared are used in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelUse {
    /// There is no model, or it failed recently and is in cool-down. Missing texts are extracted.
    None {
        /// Whether a model is configured. If so, extracts count as degraded and are redone later.
        wanted: bool,
    },
    /// Somebody waits for the result, so the model is called for every missing text.
    Now,
    /// Missing texts are not written. The messages that need one stay in the window until the
    /// background has prepared it.
    Prepared,
    /// Missing texts are extracted, because the window is too full to wait for the model.
    PreparedOrNone,
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
    /// Whether the model wrote some of the new texts, which shows that it works.
    pub(crate) model_wrote: bool,
    pub(crate) sizes: Sizes,
    pub(crate) degraded: bool,
}

/// The result of a compaction: a proposal with what went wrong with the model, if anything did, or
/// the reason why the window stays as it is.
pub(crate) enum Compacted {
    Proposed(Box<Proposal>, Compaction, Option<Trouble>),
    Unchanged(Outcome),
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
    /// The user's last message may be shortened if it and `fixed` together exceed this size. The
    /// request cannot be sent otherwise.
    pub(crate) may_shorten_user: u64,
    pub(crate) staging: &'a Staging,
    pub(crate) views: &'a [MessageView<'m>],
    pub(crate) fixed: u64,
    pub(crate) focus: Option<&'a str>,
    pub(crate) model: ModelUse,
    /// Why the model is not called now, if it is in a cool-down.
    pub(crate) cool_down: Option<String>,
    pub(crate) order: &'a CompressOrder,
}

impl Compactor<'_, '_> {
    /// Compacts the window. The result is unchanged if everything before the fresh tail is
    /// summarised, if the compaction would not save enough, or if it waits for summaries that are
    /// being prepared.
    ///
    /// # Errors
    /// Returns an error if the store fails, if the caller cancels, or if the window shows a message
    /// that this engine was never given.
    pub(crate) fn run(self, headroom: &mut Headroom) -> Result<Compacted, StoreError> {
        let outline = Outline::of(self.views);
        let before = self.fixed + sum(self.views);
        let spots = self.spots()?;
        let floor = self.floor(&outline);

        let arrangement = match self.arrange(&outline, &spots)? {
            Arranged::Window(arrangement) => arrangement,
            Arranged::Wait(reason) => {
                return Ok(Compacted::Unchanged(Outcome::Deferred(reason)));
            }
        };
        if !arrangement.does_something() && !self.can_condense(&arrangement) {
            // The prompt can be too large although nothing is left to summarise. Saying which parts
            // are too large is the only help then.
            let outcome = match !self.order.force && before >= self.budgets.hard {
                true => self.floor_too_high(floor.max(arrangement.kept)),
                false => Outcome::NothingToDo(
                    "everything before the fresh tail is summarised already".to_owned(),
                ),
            };
            return Ok(Compacted::Unchanged(outcome));
        }
        let sizes = self.sizes(before, arrangement.estimate);
        // This is checked before any summary is written, because writing costs time and model
        // calls.
        if let Some(reason) = headroom.refuses(self.order, sizes) {
            return Ok(Compacted::Unchanged(Outcome::Deferred(reason)));
        }
        self.propose(&arrangement, before, floor, headroom)
    }

    fn sizes(&self, before: u64, after: u64) -> Sizes {
        Sizes {
            before,
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
        self.model != ModelUse::None { wanted: false }
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

/// Returns the approximate number of tokens of a node in the window, its heading included.
fn cost(node: &Node) -> u64 {
    node.tokens + HEADING_TOKENS
}

fn sum(views: &[MessageView<'_>]) -> u64 {
    views.iter().map(MessageView::tokens).sum()
}

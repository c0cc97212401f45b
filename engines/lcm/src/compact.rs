//! One compaction: which messages get leaves, which nodes are condensed, what the new window is.

mod arrange;
mod pieces;
mod propose;
mod shorten;
mod spots;
mod write;

use contexture_engine_api::{
    Compaction, CompressOrder, EngineError, Floor, MessageId, MessageView, ModelFailure, Outcome,
    grouped,
};
use contexture_summaries::{Headroom, Sizes};

use crate::dag::NodeId;
use crate::dag::outline::Outline;
use crate::session_state::SessionState;
use crate::settings::{Budgets, HEADING_TOKENS, Settings};
use crate::staging::Staging;
use crate::store::nodes::Placed;
use crate::summarise::Written;
use arrange::Arranged;

/// The approximate tokens of the text around all nodes.
const PREAMBLE_TOKENS: u64 = 64;

/// How a compaction may use the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelUse {
    /// There is no model, or it failed recently and is in cool-down.
    None {
        /// Whether a model was wanted.
        wanted: bool,
    },
    /// Somebody waits for the result, so it is called now.
    Now,
    /// Only prepared texts are used; the rest of the window can wait.
    Prepared,
    /// Prepared texts are used; the rest cannot wait for the model.
    PreparedOrNone,
}

/// A proposal that the host has neither committed nor discarded.
pub(crate) struct Proposal {
    pub(crate) frontier: Vec<Placed>,
    pub(crate) better: Vec<(NodeId, Written)>,
    /// The nodes written for it.
    pub(crate) added: Vec<NodeId>,
    /// The messages that it newly puts under the frontier.
    pub(crate) covered: Vec<MessageId>,
    /// Whether nodes were replaced by their children, so that messages may have become loose.
    pub(crate) took_apart: bool,
    /// Whether the model wrote some of the new texts.
    pub(crate) model_wrote: bool,
    pub(crate) sizes: Sizes,
    pub(crate) degraded: bool,
}

/// The result of a compaction.
pub(crate) enum Compacted {
    Proposed(Box<Proposal>, Compaction, Option<ModelFailure>),
    Unchanged(Outcome),
}

/// A running compaction.
pub(crate) struct Compactor<'a, 'm> {
    pub(crate) session: &'a SessionState,
    pub(crate) settings: &'a Settings,
    pub(crate) budgets: Budgets,
    /// The size below which a compaction makes room. A quarter of it has to stay free.
    pub(crate) trigger: u64,
    /// The target size of an arrangement.
    pub(crate) goal: u64,
    /// The user's last message may be shortened if it and `fixed` together exceed this many tokens.
    pub(crate) may_shorten_user: u64,
    pub(crate) staging: &'a Staging,
    pub(crate) views: &'a [MessageView<'m>],
    pub(crate) fixed: u64,
    pub(crate) focus: Option<&'a str>,
    pub(crate) model: ModelUse,
    pub(crate) order: &'a CompressOrder,
}

impl Compactor<'_, '_> {
    pub(crate) fn run(self, headroom: &mut Headroom) -> Result<Compacted, EngineError> {
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
            let outcome = match !self.order.force && before >= self.budgets.hard {
                true => self.floor_too_high(floor.max(arrangement.kept)),
                false => Outcome::NothingToDo(
                    "everything before the fresh tail is summarised already".to_owned(),
                ),
            };
            return Ok(Compacted::Unchanged(outcome));
        }
        let sizes = self.sizes(before, arrangement.estimate);
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

    /// What no compaction may remove.
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

/// The approximate tokens of a node in the window.
fn cost(placed: &Placed) -> u64 {
    placed.node.tokens + HEADING_TOKENS
}

fn sum(views: &[MessageView<'_>]) -> u64 {
    views.iter().map(MessageView::tokens).sum()
}

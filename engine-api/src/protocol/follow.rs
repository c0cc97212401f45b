//! What a host asks and tells an engine at every request and every answer, in one call: each call of its own would cost
//! an engine in another process a turn of both processes.

use serde::{Deserialize, Serialize};

use super::Delivered;
use crate::delivery::Delivery;
use crate::engine::ContextEngine;
use crate::error::EngineError;
use crate::message::{MessageView, Observed};
use crate::window::{Decision, WindowState};

/// What a host thinks an engine has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Expected {
    /// How far it has seen the conversation.
    pub seen: Option<Observed>,
    /// Whether it has said so itself before.
    pub remembers: bool,
}

impl Expected {
    /// That it has seen so much.
    pub const fn new(seen: Option<Observed>, remembers: bool) -> Self {
        Self { seen, remembers }
    }

    fn allows(&self, seen: Option<Observed>) -> bool {
        match seen {
            // An engine that remembers nothing is shown what is new. One that did remember lost its store.
            None => !self.remembers,
            seen => self.seen == seen,
        }
    }
}

/// What an engine is asked and told, in this order.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Follow<'a> {
    /// What it must have seen for the rest to be said at all; none where that does not matter.
    pub expected: Option<Expected>,
    /// What it is shown.
    pub delivery: Option<Delivery<'a>>,
    /// Whether it would compact this window: by [`should_compress_preflight`](ContextEngine::should_compress_preflight)
    /// where the figures are estimated.
    pub window: Option<&'a WindowState>,
}

impl<'a> Follow<'a> {
    /// All of it.
    pub const fn new(
        expected: Option<Expected>,
        delivery: Option<Delivery<'a>>,
        window: Option<&'a WindowState>,
    ) -> Self {
        Self {
            expected,
            delivery,
            window,
        }
    }
}

/// An engine's answer to [`Follow`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Followed {
    /// It saw it: what it says to have seen now, and whether to compact, where that was asked.
    Seen(Option<Observed>, Option<Decision>),
    /// It has not seen what the host thinks, but this; nothing else was said to it.
    Disagrees(Option<Observed>),
}

/// One call after the other.
pub(crate) fn one_by_one(
    engine: &mut (impl ContextEngine + ?Sized),
    step: &Follow<'_>,
) -> Result<Followed, EngineError> {
    if let Some(expected) = step.expected {
        let seen = engine.observed_through();
        if !expected.allows(seen) {
            return Ok(Followed::Disagrees(seen));
        }
    }
    if let Some(delivery) = &step.delivery {
        engine.observe(delivery)?;
    }
    let decision = step.window.map(|window| match window.estimated {
        true => preflight(engine, window),
        false => engine.should_compress(window),
    });
    Ok(Followed::Seen(engine.observed_through(), decision))
}

/// An engine's decision before anything is counted.
pub fn preflight(engine: &(impl ContextEngine + ?Sized), state: &WindowState) -> Decision {
    let decision = engine.should_compress_preflight(state);
    if decision.is_yes() && engine.defers_preflight_to_reported_usage(state) {
        let reason = "the estimate waits for the usage that the provider reports";
        return Decision::No(reason.to_owned());
    }
    decision
}

/// [`Follow`] beside its messages.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Following {
    expected: Option<Expected>,
    delivery: Option<Delivered>,
    window: Option<WindowState>,
}

impl Following {
    #[cfg(feature = "host")]
    pub(crate) fn of(step: &Follow<'_>) -> Self {
        Self {
            expected: step.expected,
            delivery: step.delivery.as_ref().map(Delivered::of),
            window: step.window.cloned(),
        }
    }

    pub(crate) fn over<'a>(&'a self, messages: &'a [MessageView<'a>]) -> Follow<'a> {
        Follow {
            expected: self.expected,
            delivery: (self.delivery.as_ref()).map(|delivered| delivered.over(messages)),
            window: self.window.as_ref(),
        }
    }
}

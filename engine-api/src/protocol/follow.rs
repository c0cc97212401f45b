//! One call for everything that a host does on each request and each answer.
//!
//! On every turn a host shows an engine what is new and asks whether to compact. If the engine runs
//! in another process, each of these calls costs two context switches. A [`Follow`] therefore
//! combines them.
//!
//! An engine does not implement this. [`one_by_one`] is the default body and makes the separate
//! calls in order, on the engine's side of the process boundary.

use serde::{Deserialize, Serialize};

use super::Delivered;
use crate::delivery::Delivery;
use crate::engine::ContextEngine;
use crate::error::EngineError;
use crate::message::MessageView;
use crate::window::{Decision, WindowState};

/// What an engine is told and asked in one step. The parts are handled in the order of the fields.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Follow<'a> {
    /// What the engine is shown, or `None` if there is nothing new.
    pub delivery: Option<Delivery<'a>>,
    /// The window to decide about, or `None` if no decision is needed.
    pub window: Option<&'a WindowState>,
}

impl<'a> Follow<'a> {
    /// Creates a step with these parts. Each part may be `None`.
    pub const fn new(delivery: Option<Delivery<'a>>, window: Option<&'a WindowState>) -> Self {
        Self { delivery, window }
    }
}

/// Makes the calls of a step one after the other and stops at the first error. Returns the engine's
/// decision if one was asked for.
pub(crate) fn one_by_one(
    engine: &mut (impl ContextEngine + ?Sized),
    step: &Follow<'_>,
) -> Result<Option<Decision>, EngineError> {
    if let Some(delivery) = &step.delivery {
        engine.observe(delivery)?;
    }
    Ok(step.window.map(|window| engine.should_compress(window)))
}

/// A [`Follow`] without the messages of its delivery, which are lent or sent separately.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Following {
    delivery: Option<Delivered>,
    window: Option<WindowState>,
}

impl Following {
    #[cfg(feature = "host")]
    pub(crate) fn of(step: &Follow<'_>) -> Self {
        Self {
            delivery: step.delivery.as_ref().map(Delivered::of),
            window: step.window.cloned(),
        }
    }

    pub(crate) fn over<'a>(&'a self, messages: &'a [MessageView<'a>]) -> Follow<'a> {
        Follow {
            delivery: (self.delivery.as_ref()).map(|delivered| delivered.over(messages)),
            window: self.window.as_ref(),
        }
    }
}

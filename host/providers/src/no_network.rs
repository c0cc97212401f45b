//! Replaces the module `network` in a build without that feature: there is no model to ask.
//!
//! [`Models`] has the same methods as the one with a network, so that the rest of the crate
//! compiles unchanged. No value of it can exist.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contexture_engine_api::{ModelAnswer, ModelFailure};

use super::endpoint::Endpoint;
use super::question::{Mask, Question};
use super::resolve::NoModel;
use super::usage_by_model::UsageByModel;

/// The models of a client that has a network. It has no variants, so [`Models::new`] can only fail.
pub(super) enum Models {}

impl Models {
    pub(super) fn new(
        _endpoint: Endpoint,
        _fallback: Option<Endpoint>,
        _timeout: Duration,
        _mask: Mask,
    ) -> Result<Self, NoModel> {
        Err(NoModel::NoNetwork)
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        match *self {}
    }

    pub(super) fn ask(
        self: &Arc<Self>,
        _questions: Vec<Question<'_>>,
        _used: &Arc<UsageByModel>,
        _cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        match **self {}
    }
}

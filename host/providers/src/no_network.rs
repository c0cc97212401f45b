//! Replaces [`network`](super) in a build without it: there is no model to ask.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contexture_engine_api::{ModelAnswer, ModelFailure};

use super::client::{Mask, Question};
use super::endpoint::Endpoint;
use super::resolve::NoModel;

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
        _cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        match **self {}
    }
}

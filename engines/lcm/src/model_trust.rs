//! Whether the model is called: not during a cool-down, and one call at a time after unusable answers.

use std::path::Path;

use contexture_engine_api::{FailureKind, ModelFailure, Services};
use contexture_summaries::{CoolDown, CoolDowns};

/// After this many consecutive failed texts the model is to blame, not the texts.
const PATIENCE: u32 = 3;

/// What the model's last answers say about it.
pub(crate) struct ModelTrust {
    cool_downs: CoolDowns,
    services: Services,
    /// The number of failed texts since the last success.
    failed_texts: u32,
}

impl ModelTrust {
    pub(crate) fn open(data_dir: &Path, services: Services) -> Self {
        Self {
            cool_downs: CoolDowns::open(data_dir, services.clone()),
            services,
            failed_texts: 0,
        }
    }

    /// The current cool-down of the model, if any.
    pub(crate) fn withheld(&self) -> Option<&CoolDown> {
        self.cool_downs.in_force()
    }

    /// Whether the last answers were unusable, so that a single call must first show whether the model
    /// works again.
    pub(crate) fn in_doubt(&self) -> bool {
        self.failed_texts >= PATIENCE
    }

    /// Starts a cool-down, as long as this kind of failure needs.
    pub(crate) fn failed(&mut self, failure: &ModelFailure) {
        if is_about_the_text(failure.kind) {
            self.failed_texts = self.failed_texts.saturating_add(1);
            if !self.in_doubt() {
                return;
            }
        }
        // A call cancelled by the host says nothing about the model.
        if failure.kind != FailureKind::Cancelled
            && let Some(model) = self.services.model()
        {
            self.cool_downs.failed(&model.name, failure);
        }
    }

    /// The model answered.
    pub(crate) fn succeeded(&mut self) {
        self.failed_texts = 0;
        self.cool_downs.succeeded();
    }
}

/// Whether a failure is about the text to summarise, and not about the model.
pub(crate) fn is_about_the_text(kind: FailureKind) -> bool {
    matches!(
        kind,
        FailureKind::Refused
            | FailureKind::Empty
            | FailureKind::CutOff
            | FailureKind::TooLong
            | FailureKind::Other
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use contexture_testkit::ScriptedHost;

    use super::*;

    #[test]
    fn one_text_that_it_refuses_is_no_fault_of_the_models_and_three_in_a_row_are() {
        let host = ScriptedHost::with_model(1);
        let mut trust = ModelTrust::open(host.data_dir(), host.services());
        let refused = ModelFailure::new(FailureKind::Refused, "no");
        for _ in 0..5 {
            trust.failed(&refused);
            trust.failed(&refused);
            assert!(trust.withheld().is_none());
            trust.succeeded();
        }
        for _ in 0..PATIENCE {
            assert!(!trust.in_doubt());
            trust.failed(&refused);
        }
        assert!(trust.withheld().is_some() && trust.in_doubt());
    }

    #[test]
    fn a_call_that_was_given_up_says_nothing_of_the_model() {
        let host = ScriptedHost::with_model(1);
        let mut trust = ModelTrust::open(host.data_dir(), host.services());
        trust.failed(&ModelFailure::new(FailureKind::Cancelled, "closing"));
        assert!(trust.withheld().is_none());
    }
}

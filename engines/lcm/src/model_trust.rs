//! Whether the model is called at all.
//!
//! A model that fails is not called again until a cool-down has passed, since each failing call
//! costs time and possibly money. A failure may also be about one text only, for example if the
//! provider refuses its content. [`ModelTrust`] tells the two apart: only after several texts
//! failed in a row does it put the blame on the model. Until it has written one again, only one
//! text at a time is asked for.

use std::path::Path;

use contexture_engine_api::{FailureKind, ModelFailure, Services};
use contexture_summaries::{CoolDown, CoolDowns};

/// The number of consecutive failed texts from which the model is to blame and not the texts.
pub(crate) const PATIENCE: usize = 3;

/// What the last answers of the model say about it. The cool-downs are kept in the data directory,
/// so that they survive the process.
pub(crate) struct ModelTrust {
    cool_downs: CoolDowns,
    services: Services,
    /// The number of texts that failed since the last success. Failures of the connection do not
    /// count.
    failed_texts: usize,
}

impl ModelTrust {
    pub(crate) fn open(data_dir: &Path, services: Services) -> Self {
        Self {
            cool_downs: CoolDowns::open(data_dir, services.clone()),
            services,
            failed_texts: 0,
        }
    }

    /// Returns the current cool-down of the model. None if it may be called.
    pub(crate) fn withheld(&self) -> Option<&CoolDown> {
        self.cool_downs.in_force()
    }

    /// Whether the last answers were unusable. If so, only one text at a time is asked for until
    /// one succeeds.
    pub(crate) fn in_doubt(&self) -> bool {
        self.failed_texts >= PATIENCE
    }

    /// Records that the model failed at a text, and returns whether it would fail at any other as
    /// well. If so, a cool-down begins that is as long as this kind of failure needs.
    pub(crate) fn failed(&mut self, failure: &ModelFailure) -> bool {
        if is_about_the_text(failure.kind) {
            self.failed_texts += 1;
            if !self.in_doubt() {
                return false;
            }
        }
        // The host cancels calls for its own reasons, so a cancelled call says nothing about the
        // model.
        if failure.kind != FailureKind::Cancelled
            && let Some(model) = self.services.model()
        {
            self.cool_downs.failed(&model.name, failure);
        }
        true
    }

    /// Records that the model wrote a text, which ends its cool-down and clears the count of failed
    /// texts.
    pub(crate) fn succeeded(&mut self) {
        self.failed_texts = 0;
        self.cool_downs.succeeded();
    }
}

/// Whether a failure may be caused by the text to summarise. All other kinds, such as a rejected
/// key or a timeout, concern the model or the way to it.
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
            assert!(!trust.failed(&refused) && !trust.failed(&refused));
            assert!(trust.withheld().is_none());
            trust.succeeded();
        }
        for at in 1..=PATIENCE {
            assert!(!trust.in_doubt());
            assert_eq!(trust.failed(&refused), at == PATIENCE);
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

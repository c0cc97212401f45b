//! Whether the model is asked: not while it is left alone, and warily while its answers were of no use.

use std::path::Path;

use contexture_cooldown::{CoolDown, CoolDowns};
use contexture_engine_api::{FailureKind, ModelFailure, Services};

/// How many texts in a row a model may fail at before it is to blame, and not the texts.
const PATIENCE: u32 = 3;

/// What the last answers of the model say of it.
pub(crate) struct Trust {
    cool_downs: CoolDowns,
    services: Services,
    /// Texts that the model failed at since it last wrote one.
    failed_texts: u32,
}

impl Trust {
    pub(crate) fn open(data_dir: &Path, services: Services) -> Self {
        Self {
            cool_downs: CoolDowns::open(data_dir, services.clone()),
            services,
            failed_texts: 0,
        }
    }

    /// Why the configured model is left alone now, where it is.
    pub(crate) fn withheld(&self) -> Option<&CoolDown> {
        self.cool_downs.in_force()
    }

    /// Whether the last answers of the model were of no use, so that one call has to show whether it is back.
    pub(crate) fn in_doubt(&self) -> bool {
        self.failed_texts >= PATIENCE
    }

    /// Leaves the model alone for as long as this failure deserves.
    pub(crate) fn failed(&mut self, failure: &ModelFailure) {
        if is_about_the_text(failure.kind) {
            self.failed_texts = self.failed_texts.saturating_add(1);
            if !self.in_doubt() {
                return;
            }
        }
        // A call that was given up for reasons of the host's says nothing of the model.
        if failure.kind != FailureKind::Cancelled
            && let Some(model) = self.services.model()
        {
            self.cool_downs.failed(&model.name, failure);
        }
    }

    /// The model answers.
    pub(crate) fn succeeded(&mut self) {
        self.failed_texts = 0;
        self.cool_downs.succeeded();
    }
}

/// Whether a failure says something of the text that was to be summarised, and not of the model.
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

    use std::sync::Arc;

    use contexture_engine_api::{HostServices, LogLevel, ModelAnswer, ModelInfo, ModelRequest};

    use super::*;

    struct Host;

    impl HostServices for Host {
        fn model(&self) -> Option<ModelInfo> {
            Some(ModelInfo {
                name: "m".to_owned(),
                context_length: 1,
            })
        }
        fn complete(&self, _: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
            Err(ModelFailure::new(FailureKind::Other, "never called"))
        }
        fn complete_many(&self, _: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
            Vec::new()
        }
        fn count_tokens(&self, text: &str) -> u64 {
            text.len() as u64
        }
        fn log(&self, _: LogLevel, _: &str) {}
        fn is_cancelled(&self) -> bool {
            false
        }
        fn now_ms(&self) -> i64 {
            1_800_000_000_000
        }
    }

    #[test]
    fn one_text_that_it_refuses_is_no_fault_of_the_models_and_three_in_a_row_are() {
        let dir = tempfile::tempdir().unwrap();
        let mut trust = Trust::open(dir.path(), Services::new(Arc::new(Host)));
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
        let dir = tempfile::tempdir().unwrap();
        let mut trust = Trust::open(dir.path(), Services::new(Arc::new(Host)));
        trust.failed(&ModelFailure::new(FailureKind::Cancelled, "closing"));
        assert!(trust.withheld().is_none());
    }
}

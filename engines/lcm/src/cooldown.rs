//! How long to leave a model alone after it failed. Kept in a file, so that a restart between failure and
//! retry changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use contexture_engine_api::{FailureKind, LogLevel, ModelFailure, Services};
use serde::{Deserialize, Serialize};

/// How long a model that failed is left alone, in milliseconds, where it does not say itself.
const SHORT_MS: i64 = 60_000;
/// The same, where only a person can mend it.
const LONG_MS: i64 = 600_000;
/// How many texts in a row a model may fail at before it is to blame, and not the texts.
const PATIENCE: u32 = 3;

/// A model that is not asked for now. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CoolDown {
    /// The model that failed; another model is not held back by it.
    model: String,
    failure: ModelFailure,
    since_ms: i64,
    until_ms: i64,
}

/// The cool-down of one data directory.
pub(crate) struct CoolDowns {
    file: PathBuf,
    services: Services,
    current: Option<CoolDown>,
    /// Texts that the model failed at since it last wrote one.
    failed_texts: u32,
}

impl CoolDowns {
    /// Reads what an earlier run left. A file that cannot be read costs a log line and nothing else.
    pub(crate) fn open(data_dir: &Path, services: Services) -> Self {
        let file = data_dir.join("cooldown.json");
        let read = fs::read_to_string(&file)
            .and_then(|text| serde_json::from_str(&text).map_err(std::io::Error::from));
        let current = match read {
            Ok(current) => Some(current),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                let line = format!("{} is unreadable ({error}) and ignored", file.display());
                services.log(LogLevel::Warn, &line);
                None
            }
        };
        Self {
            file,
            services,
            current,
            failed_texts: 0,
        }
    }

    /// Why the configured model is left alone now, where it is.
    pub(crate) fn in_force(&self) -> Option<&ModelFailure> {
        let current = self.current.as_ref()?;
        let now = self.services.now_ms();
        // A clock that was set back must not make it longer.
        let lasts = (current.since_ms..current.until_ms).contains(&now);
        let of_this_model = self.services.model()?.name == current.model;
        (lasts && of_this_model).then_some(&current.failure)
    }

    /// Whether the last answers of the model were of no use, so that one call has to show whether it is back.
    pub(crate) fn in_doubt(&self) -> bool {
        self.failed_texts >= PATIENCE
    }

    /// Leaves the model alone for as long as this failure deserves.
    pub(crate) fn failed(&mut self, failure: &ModelFailure) {
        let default = match failure.kind {
            // Given up for reasons of the host's.
            FailureKind::Cancelled => return,
            FailureKind::NoProvider | FailureKind::Auth | FailureKind::UnknownModel => LONG_MS,
            kind if is_about_the_text(kind) => {
                self.failed_texts = self.failed_texts.saturating_add(1);
                if !self.in_doubt() {
                    return;
                }
                SHORT_MS
            }
            _ => SHORT_MS,
        };
        let Some(model) = self.services.model() else {
            return;
        };
        let asked = failure
            .retry_after_ms
            .map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let since_ms = self.services.now_ms();
        let cool_down = CoolDown {
            model: model.name,
            failure: failure.clone(),
            since_ms,
            until_ms: since_ms.saturating_add(default.max(asked)),
        };
        if let Err(error) = self.write(&cool_down) {
            self.services.log(
                LogLevel::Warn,
                &format!(
                    "{} cannot be written: {error}; a restart forgets the cool-down",
                    self.file.display()
                ),
            );
        }
        self.current = Some(cool_down);
    }

    fn write(&self, cool_down: &CoolDown) -> std::io::Result<()> {
        let text = serde_json::to_string(cool_down)?;
        // The rename makes the write atomic; the process id keeps two processes apart.
        let new = self
            .file
            .with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, text)?;
        fs::rename(&new, &self.file)
    }

    /// The model answers.
    pub(crate) fn succeeded(&mut self) {
        self.failed_texts = 0;
        if self.current.take().is_none() {
            return;
        }
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let line = format!("{} cannot be removed: {error}", self.file.display());
                self.services.log(LogLevel::Warn, &line);
            }
            _ => {}
        }
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
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use contexture_engine_api::{HostServices, ModelAnswer, ModelInfo, ModelRequest};

    use super::*;

    struct Host(Arc<AtomicI64>);

    impl HostServices for Host {
        fn model(&self) -> Option<ModelInfo> {
            Some(ModelInfo {
                name: "m".to_owned(),
                context_length: 1,
            })
        }
        fn complete(&self, _request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
            Err(ModelFailure::new(FailureKind::Other, "never called"))
        }
        fn complete_many(
            &self,
            _requests: &[ModelRequest],
        ) -> Vec<Result<ModelAnswer, ModelFailure>> {
            Vec::new()
        }
        fn count_tokens(&self, text: &str) -> u64 {
            text.len() as u64
        }
        fn log(&self, _level: LogLevel, _message: &str) {}
        fn is_cancelled(&self) -> bool {
            false
        }
        fn now_ms(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    const NOW: i64 = 1_800_000_000_000;

    fn at(clock: &Arc<AtomicI64>, dir: &Path) -> CoolDowns {
        CoolDowns::open(dir, Services::new(Arc::new(Host(Arc::clone(clock)))))
    }

    #[test]
    fn a_restart_keeps_it_and_it_ends_by_time_by_an_answer_and_by_a_clock_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicI64::new(NOW));
        let fail = || at(&clock, dir.path()).failed(&ModelFailure::new(FailureKind::Auth, "key"));
        fail();
        let again = at(&clock, dir.path());
        assert_eq!(again.in_force().unwrap().kind, FailureKind::Auth);
        clock.store(NOW + LONG_MS - 1, Ordering::Relaxed);
        assert!(again.in_force().is_some());
        clock.store(NOW + LONG_MS, Ordering::Relaxed);
        assert!(again.in_force().is_none());
        clock.store(NOW - 86_400_000, Ordering::Relaxed);
        assert!(again.in_force().is_none(), "a day back");

        clock.store(NOW, Ordering::Relaxed);
        fail();
        let mut again = at(&clock, dir.path());
        again.succeeded();
        assert!(again.in_force().is_none());
        assert!(at(&clock, dir.path()).in_force().is_none());
    }

    #[test]
    fn one_text_that_it_refuses_is_no_fault_of_the_models_and_three_in_a_row_are() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicI64::new(NOW));
        let mut cool_downs = at(&clock, dir.path());
        let refused = ModelFailure::new(FailureKind::Refused, "no");
        for _ in 0..5 {
            cool_downs.failed(&refused);
            cool_downs.failed(&refused);
            assert!(cool_downs.in_force().is_none());
            cool_downs.succeeded();
        }
        for _ in 0..PATIENCE {
            assert!(!cool_downs.in_doubt());
            cool_downs.failed(&refused);
        }
        assert!(cool_downs.in_force().is_some() && cool_downs.in_doubt());
        clock.store(NOW + SHORT_MS, Ordering::Relaxed);
        assert!(cool_downs.in_force().is_none() && cool_downs.in_doubt());
    }

    #[test]
    fn an_unreadable_file_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cooldown.json"), "{ not json").unwrap();
        let clock = Arc::new(AtomicI64::new(NOW));
        assert!(at(&clock, dir.path()).in_force().is_none());
    }
}

//! How long to leave a model alone after it failed. Kept in a file, so that a restart between failure
//! and retry changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use contexture_engine_api::{FailureKind, LogLevel, ModelFailure, Services};
use serde::{Deserialize, Serialize};

/// A model that is not asked for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CoolDown {
    /// The model that failed; another model is not held back by it.
    pub(crate) model: String,
    pub(crate) kind: FailureKind,
    /// What happened, for a person.
    pub(crate) message: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) until_ms: i64,
}

/// The cool-downs of one data directory.
pub(crate) struct CoolDowns {
    file: PathBuf,
    services: Services,
    current: Option<CoolDown>,
}

impl CoolDowns {
    /// Reads what an earlier run left. A file that cannot be read costs a log line and nothing else.
    pub(crate) fn open(data_dir: &Path, services: Services) -> Self {
        let file = data_dir.join("cooldown.json");
        let current = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| ignore(&services, &file, &error))
                .ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                ignore(&services, &file, &error);
                None
            }
        };
        Self {
            file,
            services,
            current,
        }
    }

    /// The cool-down in force for this model.
    pub(crate) fn of(&self, model: &str) -> Option<&CoolDown> {
        self.current
            .as_ref()
            .filter(|cool| cool.model == model && cool.until_ms > self.services.now_ms())
    }

    /// Leaves the model alone for as long as this failure deserves.
    pub(crate) fn failed(&mut self, model: &str, failure: &ModelFailure) {
        let cool_down = CoolDown {
            model: model.to_owned(),
            kind: failure.kind,
            message: failure.message.clone(),
            until_ms: self.services.now_ms().saturating_add(length_ms(failure)),
        };
        self.services.log(
            LogLevel::Warn,
            &format!(
                "the summary model {model} failed ({failure}); summaries are made without it for {} s",
                length_ms(failure) / 1_000
            ),
        );
        let stored = serde_json::to_string(&cool_down)
            .map_err(std::io::Error::from)
            .and_then(|text| {
                // The rename makes the write atomic; the process id keeps two processes apart.
                let new = self
                    .file
                    .with_extension(format!("{}.new", std::process::id()));
                fs::write(&new, text)?;
                fs::rename(&new, &self.file)
            });
        if let Err(error) = stored {
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

    /// The model answers again.
    pub(crate) fn succeeded(&mut self) {
        if self.current.take().is_some() && fs::remove_file(&self.file).is_err() {
            self.services.log(
                LogLevel::Debug,
                &format!("{} was gone already", self.file.display()),
            );
        }
    }
}

fn ignore(services: &Services, file: &Path, error: &dyn std::fmt::Display) {
    services.log(
        LogLevel::Warn,
        &format!("{} is unreadable ({error}) and ignored", file.display()),
    );
}

fn length_ms(failure: &ModelFailure) -> i64 {
    let default = match failure.kind {
        FailureKind::RateLimited => 60_000,
        // A person has to mend these.
        FailureKind::Auth | FailureKind::UnknownModel | FailureKind::NoProvider => 600_000,
        _ => 30_000,
    };
    failure
        .retry_after_ms
        .and_then(|ms| i64::try_from(ms).ok())
        .unwrap_or(default)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn seconds_left(cool_downs: &CoolDowns) -> i64 {
        let cool_down = cool_downs.of("m").unwrap();
        (cool_down.until_ms - cool_downs.services.now_ms() + 500) / 1_000
    }

    #[test]
    fn each_kind_of_failure_has_its_own_length() {
        let dir = tempfile::tempdir().unwrap();
        let mut cool_downs = CoolDowns::open(dir.path(), Services::none());
        for (kind, seconds) in [
            (FailureKind::RateLimited, 60),
            (FailureKind::Auth, 600),
            (FailureKind::UnknownModel, 600),
            (FailureKind::Timeout, 30),
            (FailureKind::Overloaded, 30),
        ] {
            cool_downs.failed("m", &ModelFailure::new(kind, "no"));
            assert_eq!(seconds_left(&cool_downs), seconds, "{kind:?}");
        }
        let mut limited = ModelFailure::new(FailureKind::RateLimited, "slow down");
        limited.retry_after_ms = Some(5_000);
        cool_downs.failed("m", &limited);
        assert_eq!(seconds_left(&cool_downs), 5);
        assert!(cool_downs.of("another model").is_none());
    }

    #[test]
    fn a_restart_keeps_it_until_the_model_answers() {
        let dir = tempfile::tempdir().unwrap();
        CoolDowns::open(dir.path(), Services::none())
            .failed("m", &ModelFailure::new(FailureKind::Auth, "bad key"));
        let mut again = CoolDowns::open(dir.path(), Services::none());
        assert_eq!(again.of("m").unwrap().kind, FailureKind::Auth);
        again.succeeded();
        assert!(
            CoolDowns::open(dir.path(), Services::none())
                .of("m")
                .is_none()
        );
    }

    #[test]
    fn an_unreadable_file_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cooldown.json"), "{ not json").unwrap();
        assert!(
            CoolDowns::open(dir.path(), Services::none())
                .of("m")
                .is_none()
        );
    }
}

//! Decides how long an engine leaves a model alone after it failed.
//!
//! Without a pause, every compaction during an outage would wait for the same failure.
//! [`CoolDowns::failed`] starts a pause whose length depends on the kind of failure,
//! [`CoolDowns::in_force`] says whether one is running, and [`CoolDowns::succeeded`] ends it. The
//! state is kept in a file, so that a restart between the failure and the next attempt changes
//! nothing. It applies to one model at one address with one key, so changing any of them ends it too.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use contexture_engine_api::{FailureKind, LogLevel, ModelFailure, Services, private_file_options};
use serde::{Deserialize, Serialize};

/// The longest pause, in milliseconds. A provider may ask for hours, and meanwhile the user may have
/// bought credit.
const LONGEST_MS: i64 = 600_000;

/// A pause during which a model is not called. It is shown in the engine's status and stored as
/// JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoolDown {
    /// The name of the model that failed. Other models are not affected.
    pub model: String,
    /// The [`fingerprint`](contexture_engine_api::ModelInfo::fingerprint) that the model had.
    #[serde(default)]
    pub fingerprint: String,
    /// The failure that started the pause, with its kind and the provider's message.
    #[serde(flatten)]
    pub failure: ModelFailure,
    /// When the model failed, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// When the model may be called again, in milliseconds since the Unix epoch.
    pub until_ms: i64,
}

impl CoolDown {
    /// Says to a person why the model is not called, and for how long.
    pub fn reason(&self, now_ms: i64) -> String {
        let seconds = (self.until_ms - now_ms) / 1_000;
        format!(
            "{} failed ({}) and is not called for another {seconds} s",
            self.model, self.failure
        )
    }
}

/// The cool-down of one engine's data directory, kept in its file `cooldown.json`. At most one is
/// in force at a time.
#[derive(Debug)]
pub struct CoolDowns {
    file: PathBuf,
    services: Services,
    current: Option<CoolDown>,
}

impl CoolDowns {
    /// Reads the state of an earlier run. A missing file means that there is none, and an
    /// unreadable one is logged and ignored.
    pub fn open(data_dir: &Path, services: Services) -> Self {
        let file = data_dir.join("cooldown.json");
        let read = fs::read_to_string(&file)
            .and_then(|text| serde_json::from_str(&text).map_err(std::io::Error::from));
        let current = match read {
            Ok(current) => Some(current),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                let line = format!("{} is not readable and is ignored: {error}", file.display());
                services.log(LogLevel::Warn, &line);
                None
            }
        };
        Self {
            file,
            services,
            current,
        }
    }

    /// Returns the cool-down of the configured model, or `None` if it is over, concerns another
    /// model, address or key, or was never started.
    pub fn in_force(&self) -> Option<&CoolDown> {
        let current = self.current.as_ref()?;
        let now = self.services.now_ms();
        // Setting the clock back must not make the cool-down longer.
        let lasts = (current.since_ms..current.until_ms).contains(&now);
        let model = self.services.model()?;
        let is_same = model.name == current.model && model.fingerprint == current.fingerprint;
        (lasts && is_same).then_some(current)
    }

    /// Starts a cool-down for this model and logs it. It lasts as long as the provider asks for, but
    /// at most ten minutes, or else as long as the kind of failure needs.
    pub fn failed(&mut self, model: &str, failure: &ModelFailure) {
        let length_ms = length_ms(failure);
        let since_ms = self.services.now_ms();
        let info = self.services.model().filter(|info| info.name == model);
        let cool_down = CoolDown {
            model: model.to_owned(),
            fingerprint: info.map_or_else(String::new, |info| info.fingerprint),
            failure: failure.clone(),
            since_ms,
            until_ms: since_ms.saturating_add(length_ms),
        };
        let seconds = length_ms / 1_000;
        let line = format!("{model} failed ({failure}) and is not called for {seconds} s");
        // A failed write is not an error: the cool-down still holds until the process ends.
        self.services.log(LogLevel::Warn, &line);
        if let Err(error) = self.write(&cool_down) {
            let line = format!(
                "{} cannot be written: {error}; a restart forgets the cool-down",
                self.file.display()
            );
            self.services.log(LogLevel::Warn, &line);
        }
        self.current = Some(cool_down);
    }

    fn write(&self, cool_down: &CoolDown) -> std::io::Result<()> {
        let text = serde_json::to_string(cool_down)?;
        // The rename makes the write atomic. The process id keeps two processes from writing the
        // same file.
        let new = self
            .file
            .with_extension(format!("{}.new", std::process::id()));
        let mut file = private_file_options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &self.file)
    }

    /// Ends the cool-down after the model answered, and removes the file.
    pub fn succeeded(&mut self) {
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

fn length_ms(failure: &ModelFailure) -> i64 {
    let default = match failure.kind {
        FailureKind::RateLimited => 60_000,
        // Only the user can fix these, so asking again soon is pointless.
        FailureKind::Auth | FailureKind::UnknownModel | FailureKind::NoProvider => LONGEST_MS,
        _ => 30_000,
    };
    let asked = failure.retry_after_ms;
    asked.map_or(default, |ms| {
        i64::try_from(ms).unwrap_or(LONGEST_MS).min(LONGEST_MS)
    })
}

#[cfg(test)]
mod tests;

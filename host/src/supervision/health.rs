//! The health of each engine, and quarantine for those that keep failing.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{CallError, lock};

/// The health of one engine in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineHealth {
    /// The engine.
    pub engine: String,
    /// Whether it may be called.
    pub state: HealthState,
    /// The number of successful calls.
    pub succeeded: u64,
    /// The number of failed calls.
    pub failed: u64,
    /// Threads that have not returned.
    pub abandoned_threads: u32,
    /// The last failure.
    pub last_error: Option<String>,
}

/// Whether an engine may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// It may.
    Serving,
    /// Not until some time has passed.
    Quarantined {
        /// The remaining time, in milliseconds.
        remaining_ms: u64,
    },
    /// Not until the process ends.
    Barred,
}

#[derive(Debug, Default)]
struct Record {
    succeeded: u64,
    failed: u64,
    failures_in_a_row: u32,
    abandoned_threads: u32,
    quarantined_until: Option<Instant>,
    barred: bool,
    last_error: Option<String>,
}

impl Record {
    fn remaining(&self) -> Option<Duration> {
        let until = self.quarantined_until?;
        until
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}

#[derive(Debug, Default)]
pub(super) struct HealthBook {
    records: Mutex<BTreeMap<String, Record>>,
}

impl HealthBook {
    /// An error if the engine is in quarantine.
    pub(super) fn admit(&self, engine: &str) -> Result<(), CallError> {
        let records = lock(&self.records);
        let Some(record) = records.get(engine) else {
            return Ok(());
        };
        let last = record.last_error.as_deref().unwrap_or("no error recorded");
        let reason = if record.barred {
            format!(
                "{} of its threads never came back, so it is not called again in this process; last: {last}",
                record.abandoned_threads
            )
        } else if let Some(left) = record.remaining() {
            format!(
                "it failed {} times in a row and is tried again in {} s; last: {last}",
                record.failures_in_a_row,
                left.as_secs() + 1
            )
        } else {
            return Ok(());
        };
        Err(CallError::Quarantined {
            engine: engine.to_owned(),
            reason,
        })
    }

    pub(super) fn succeeded(&self, engine: &str) {
        self.update(engine, |record| {
            record.succeeded += 1;
            record.failures_in_a_row = 0;
            record.quarantined_until = None;
        });
    }

    pub(super) fn failed(&self, engine: &str, error: &CallError, limit: u32, pause: Duration) {
        self.update(engine, |record| {
            record.failed += 1;
            record.failures_in_a_row += 1;
            record.last_error = Some(error.to_string());
            if record.failures_in_a_row >= limit {
                record.quarantined_until = Instant::now().checked_add(pause);
            }
        });
    }

    pub(super) fn abandoned_a_thread(&self, engine: &str, limit: u32) {
        self.update(engine, |record| {
            record.abandoned_threads += 1;
            record.barred |= record.abandoned_threads >= limit;
        });
    }

    pub(super) fn came_back(&self, engine: &str) {
        self.update(engine, |record| {
            record.abandoned_threads = record.abandoned_threads.saturating_sub(1);
        });
    }

    pub(super) fn all(&self) -> Vec<EngineHealth> {
        lock(&self.records)
            .iter()
            .map(|(engine, record)| EngineHealth {
                engine: engine.clone(),
                state: match record.remaining() {
                    _ if record.barred => HealthState::Barred,
                    Some(left) => HealthState::Quarantined {
                        remaining_ms: left.as_millis() as u64,
                    },
                    None => HealthState::Serving,
                },
                succeeded: record.succeeded,
                failed: record.failed,
                abandoned_threads: record.abandoned_threads,
                last_error: record.last_error.clone(),
            })
            .collect()
    }

    fn update(&self, engine: &str, change: impl FnOnce(&mut Record)) {
        let mut records = lock(&self.records);
        if let Some(record) = records.get_mut(engine) {
            change(record);
        } else {
            change(records.entry(engine.to_owned()).or_default());
        }
    }
}

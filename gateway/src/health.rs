//! Whether engine and stores do their part. Requests go on when they do not, so that nobody would see it otherwise.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::metrics::Metrics;

/// How many sessions are remembered whose engine or store failed.
const MOST: usize = 1_000;

/// The sessions whose last request was without its engine or its store, and why.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<String, String>>);

impl Health {
    /// Notes that a request was without its engine or its store; `part` is one of `engine` and `store`.
    pub(crate) fn failed(&self, metrics: &Metrics, session: &str, part: &str, why: &str) {
        metrics.add("engine_failures_total", &format!("part=\"{part}\""), 1.0);
        let mut all = self.all();
        if all.len() < MOST || all.contains_key(session) {
            all.insert(session.to_owned(), format!("{part}: {why}"));
        }
    }

    /// Notes that all is well with a session.
    pub(crate) fn is_well(&self, session: &str) {
        self.all().remove(session);
    }

    /// What is wrong, in a few lines; none while all is well.
    pub(crate) fn report(&self) -> Option<String> {
        let all = self.all();
        let (session, why) = all.iter().next()?;
        let count = all.len();
        Some(format!(
            "degraded: the last request of {count} sessions went on without its engine or store\n{session}: {why}\n"
        ))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

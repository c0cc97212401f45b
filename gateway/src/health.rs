//! Tracks whether engines and stores work. Requests continue without them, so a failure would otherwise go unnoticed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contexture::engines::{EngineHealth, HealthState};

use crate::metrics::Metrics;

/// How many sessions with a failed engine or store are remembered.
const MOST: usize = 1_000;

/// The sessions whose last request was handled without engine or store, with the reason.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<String, String>>);

impl Health {
    /// Records that a request was handled without its engine or its store. `part` is `engine` or `store`.
    pub(crate) fn failed(&self, metrics: &Metrics, session: &str, part: &str, why: &str) {
        metrics.add("engine_failures_total", &format!("part=\"{part}\""), 1.0);
        let mut all = self.all();
        if all.len() < MOST || all.contains_key(session) {
            all.insert(session.to_owned(), format!("{part}: {why}"));
        }
    }

    /// Records that a session's engine and store work.
    pub(crate) fn is_well(&self, session: &str) {
        self.all().remove(session);
    }

    /// A few lines on what is wrong, also with these engines; `None` if nothing is. Only the owner is told which session
    /// it is and why: a health check needs no token.
    pub(crate) fn report(&self, engines: &[EngineHealth], is_owner: bool) -> Option<String> {
        let mut report = String::new();
        let all = self.all();
        // A String takes everything.
        if let Some((session, why)) = all.iter().next() {
            let count = all.len();
            let _ = writeln!(
                report,
                "degraded: the last request of {count} sessions was handled without its engine or store"
            );
            let _ = match is_owner {
                true => writeln!(report, "{session}: {why}"),
                false => writeln!(
                    report,
                    "the log says which, and so does this page with the token of the home directory"
                ),
            };
        }
        for EngineHealth {
            engine,
            state,
            sessions_in_quarantine: sessions,
            ..
        } in engines
        {
            if let HealthState::Quarantined { remaining_ms } = state {
                let left = remaining_ms / 1_000 + 1;
                let _ = writeln!(
                    report,
                    "degraded: engine `{engine}` is in quarantine for all sessions, and tried again in {left} s"
                );
            } else if *sessions > 0 {
                let _ = writeln!(
                    report,
                    "degraded: engine `{engine}` is in quarantine for {sessions} sessions"
                );
            }
        }
        (!report.is_empty()).then_some(report)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

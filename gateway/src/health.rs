//! Tracks whether engines and stores work, for the health check at `/healthz`.
//!
//! Requests continue without an engine or a store if it fails, so nobody would notice otherwise.
//! [`Health`] remembers the sessions whose last request was handled in this way, until a request of
//! theirs succeeds. [`Health::report`] renders that together with the engines in quarantine.
//!
//! The report is text for people and monitoring. The HTTP status stays 200, because a restart would
//! not help. Counts over time are in [`metrics`](crate::metrics).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};

use contexture::engines::{EngineHealth, HealthState};
use contexture::lock;

use crate::metrics::Metrics;

/// How many sessions with a failed engine or store are remembered at most. Further ones still count
/// in the metrics.
const MAX_SESSIONS: usize = 1_000;

/// The sessions whose last request was handled without engine or store, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<String, String>>);

impl Health {
    /// Records that a request was handled without its engine or store. `part` is `engine` or
    /// `store`.
    pub(crate) fn failed(&self, metrics: &Metrics, session: &str, part: &str, why: &str) {
        metrics.add("engine_failures_total", &format!("part=\"{part}\""), 1.0);
        let mut all = self.all();
        // A long-running gateway sees any number of sessions, so the list needs a bound.
        if all.len() < MAX_SESSIONS || all.contains_key(session) {
            all.insert(session.to_owned(), format!("{part}: {why}"));
        }
    }

    /// Records that a session's engine and store work, which clears an earlier failure.
    pub(crate) fn recovered(&self, session: &str) {
        self.all().remove(session);
    }

    /// Describes what is wrong in a few lines, including the quarantine of these engines. Returns
    /// None if everything works. Only the owner learns the session and the reason, because the
    /// health check needs no token.
    pub(crate) fn report(&self, engines: &[EngineHealth], is_owner: bool) -> Option<String> {
        let mut report = String::new();
        let all = self.all();
        // Writing to a String never fails.
        if let Some((session, why)) = all.iter().next() {
            let count = all.len();
            let sessions = if count == 1 { "session" } else { "sessions" };
            let _ = writeln!(
                report,
                "degraded: {count} {sessions} handled the last request without engine or store"
            );
            let _ = match is_owner {
                true => writeln!(report, "{session}: {why}"),
                false => writeln!(
                    report,
                    "for the names, see the log, or request this page with the token of the home directory"
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
                // Rounded up, so that it never says 0 s.
                let left = remaining_ms / 1_000 + 1;
                let _ = writeln!(
                    report,
                    "degraded: engine `{engine}` is in quarantine for all sessions; it is tried again in {left} s"
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
        lock(&self.0)
    }
}

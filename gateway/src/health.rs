//! Tracks whether engines and stores work, for the health check at `/healthz`.
//!
//! Requests continue without an engine or a store if it fails, so nobody would notice otherwise.
//! [`Health`] remembers the sessions whose last request was handled in this way, until a request of
//! theirs succeeds, or for some minutes if none comes. [`Health::report`] renders that together with
//! the engines in quarantine.
//!
//! The report is text for people and monitoring. The HTTP status stays 200, because a restart would
//! not help. Counts over time are in [`metrics`](crate::metrics).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use contexture::engines::{EngineHealth, HealthState};
use contexture::lock;

use crate::metrics::Metrics;

/// How many sessions with a failed engine or store are remembered at most. Further ones still count
/// in the metrics.
const MAX_SESSIONS: usize = 1_000;

/// How long a failure is remembered if its session has no further request. The client may be gone.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failed {
    /// The engine of a session.
    Engine,
    /// The record of a session, which cannot be stored.
    Record,
    /// The store of all sessions. It works again as soon as the record of any session does.
    Store,
}

/// The sessions whose last request was handled without engine or store. The empty name stands for
/// requests of no known session.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<(String, Failed), LastFailure>>);

#[derive(Debug)]
struct LastFailure {
    why: String,
    /// How many requests failed since the last success.
    requests: u64,
    /// When it is forgotten.
    until: Instant,
}

impl Health {
    /// Records that a request was handled without its engine or store. `part` is `engine` or
    /// `store`, which an engine may have too.
    pub(crate) fn failed(
        &self,
        metrics: &Metrics,
        (session, failed): (&str, Failed),
        part: &str,
        why: &str,
    ) {
        metrics.add("engine_failures_total", &format!("part=\"{part}\""), 1.0);
        let mut all = self.all();
        let key = (session.to_owned(), failed);
        // A long-running gateway sees any number of sessions, so the list needs a bound.
        if all.len() < MAX_SESSIONS || all.contains_key(&key) {
            let failure = LastFailure {
                why: format!("{part}: {why}"),
                requests: 1 + all.get(&key).map_or(0, |failure| failure.requests),
                until: Instant::now() + REMEMBERED,
            };
            all.insert(key, failure);
        }
    }

    /// Records that a session's engine or the record works, which clears an earlier failure.
    pub(crate) fn works(&self, session: &str, works: Failed) {
        let mut all = self.all();
        if all.is_empty() {
            return;
        }
        for session in [session, ""] {
            all.remove(&(session.to_owned(), works));
        }
        if works == Failed::Record {
            all.retain(|(_, failed), _| *failed != Failed::Store);
        }
    }

    /// Describes what is wrong in a few lines, including the quarantine of these engines. Returns
    /// None if everything works. Only the owner learns the session and the reason, because the
    /// health check needs no token.
    pub(crate) fn report(&self, engines: &[EngineHealth], is_owner: bool) -> Option<String> {
        let mut report = String::new();
        let all = self.all();
        // Writing to a String never fails.
        if let Some(((session, _), failure)) = all.iter().next() {
            let sessions: BTreeSet<&str> = all.keys().map(|(session, _)| &**session).collect();
            let count = sessions.len();
            let requests: u64 = all.values().map(|failure| failure.requests).sum();
            let sessions = if count == 1 { "session" } else { "sessions" };
            let session = if session.is_empty() { "-" } else { session };
            let why = &failure.why;
            let _ = writeln!(
                report,
                "degraded: {count} {sessions} handled the last request without engine or store \
                 ({requests} in all since the last success)"
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

    /// The failures that are still remembered.
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, Failed), LastFailure>> {
        let mut all = lock(&self.0);
        all.retain(|_, failure| failure.until > Instant::now());
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failure_ends_with_a_success_or_with_time() {
        let (health, metrics) = (Health::default(), Metrics::default());
        let report = || health.report(&[], true).unwrap_or_default();
        let failed = |session, what| health.failed(&metrics, (session, what), "store", "full");
        failed("", Failed::Store);
        failed("a", Failed::Record);
        failed("a", Failed::Engine);
        failed("b", Failed::Record);
        for _ in 0..3 {
            failed("c", Failed::Store);
        }
        assert!(report().starts_with("degraded: 4 sessions"), "{}", report());
        assert!(report().contains("(7 in all"), "{}", report());
        health.works("a", Failed::Record);
        assert!(report().contains("2 sessions") && report().contains("a: store: full"));
        health.works("a", Failed::Engine);
        assert!(report().contains("1 session handled"), "{}", report());
        // The client of the other one never comes back.
        for failure in health.0.lock().unwrap().values_mut() {
            failure.until = Instant::now();
        }
        assert_eq!(report(), "");
    }
}

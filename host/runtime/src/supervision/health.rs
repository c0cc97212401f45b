//! The health of each engine, and quarantine for those that keep failing.
//!
//! An engine that keeps failing costs each turn an error or a missed deadline. Quarantine stops
//! calling it for a while. A session in which a method keeps failing, or leaves threads that do not
//! return, does without the engine, and no other session is affected. If a method fails in several
//! sessions and succeeds in none in between, the engine is in quarantine for all of them. Failures
//! are counted by method, because an engine that follows the conversation well may fail in every
//! compaction.
//!
//! Both levels end by themselves. When the time is up, one call is let through as a probe, and its
//! result decides. A quarantine that follows soon after another one lasts twice as long.
//!
//! [`HealthBook`] is the type to read first. Each call is admitted by [`HealthBook::admit`] and
//! reported to [`HealthBook::ended`] with a [`Verdict`]. What to do without the engine is left to
//! the session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{CallError, NO_SESSION, Policy};
use contexture_base::lock;

/// The health of one engine in this process, for status reports. The counters cover all sessions
/// and start at zero when the process starts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineHealth {
    /// Name of the engine, as the configuration uses it.
    pub engine: String,
    /// Whether sessions may call the engine, apart from their own quarantines.
    pub state: HealthState,
    /// The number of sessions that do without the engine for failures of their own. Sessions that
    /// only follow [`state`](Self::state) are not counted.
    pub sessions_in_quarantine: u32,
    /// The number of calls that succeeded. A call that rejects wrong arguments counts neither here
    /// nor as failed.
    pub succeeded: u64,
    /// The number of calls that failed, did not return, or were slow to stop.
    pub failed: u64,
    /// The number of abandoned threads that have not returned. It decreases when one of them
    /// returns.
    pub abandoned_threads: u32,
    /// The message of the last failure. `None` if no call failed.
    pub last_error: Option<String>,
}

/// Whether sessions may call an engine. This is about all sessions: a single session may be in
/// quarantine while the engine serves the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// Sessions may call the engine, unless they are in quarantine themselves.
    Serving,
    /// No session calls the engine until some time has passed. Then one call is let through, which
    /// shows whether the engine works again.
    Quarantined {
        /// The remaining time, in milliseconds. 0 if the time is up and the next call, or one in
        /// progress, is the probe.
        remaining_ms: u64,
    },
}

/// The number of abandoned threads in one session at which the session does without the engine.
/// After the first one, the engine is opened anew.
const STUCK_IN_SESSION: u32 = 2;

/// The most times that the length of a quarantine is doubled.
const DOUBLINGS: u32 = 4;

/// The number of sessions with failures above which healthy ones are forgotten. It bounds the
/// memory of a long-running process.
const SESSIONS: usize = 1_000;

/// What the outcome of a call tells about the engine. The caller judges the outcome, because it
/// knows about deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The engine works: the call succeeded, or the engine rejected wrong arguments or a tool it
    /// does not have.
    Works,
    /// Nothing: no thread could be started, or the call was stopped by whoever asked for it.
    Nothing,
    /// The engine's store failed, as on a full disk. It counts as a failed call and as nothing else:
    /// doing without the engine would only outlast the cause.
    Storage,
    /// The call missed its deadline and stopped when it was told to. It counts only against this
    /// session, because an unusually long conversation may be the cause.
    Slow,
    Failed,
    /// The call did not return, and its thread is abandoned. Such a thread uses memory until it
    /// returns.
    Stuck,
}

/// A period in which an engine is not called, by one session or by all. It keeps its end after it
/// is over, so that the next one knows whether it follows soon after.
#[derive(Debug, Clone, Default)]
struct Quarantine {
    /// When the period ends or ended. `None` if there has been none.
    until: Option<Instant>,
    /// How many times in a row a period followed soon after another.
    repeated: u32,
    /// Whether the probe is in progress: the one call that shows if the engine works again.
    probing: bool,
    /// Why the engine is not called. Empty if it is.
    reason: String,
}

impl Quarantine {
    /// Begins a period, unless one is running. Its length is `base`, doubled for each period that
    /// it follows soon after. "Soon" means within the length that the next period would have.
    fn begin(&mut self, base: Duration, reason: String) {
        if self.remaining().is_some() {
            return;
        }
        let now = Instant::now();
        let pause = |repeated: u32| base.saturating_mul(1 << repeated.min(DOUBLINGS));
        let soon = self
            .until
            .is_some_and(|until| now < until + pause(self.repeated + 1));
        self.repeated = if soon { self.repeated + 1 } else { 0 };
        self.until = now.checked_add(pause(self.repeated));
        self.probing = false;
        self.reason = reason;
    }

    /// Whether the engine has not been shown to work since the period began. This stays true after
    /// the time is up, until a probe succeeds.
    fn is_on(&self) -> bool {
        !self.reason.is_empty()
    }

    /// Returns the remaining time, or `None` if the time is up or no period has begun.
    fn remaining(&self) -> Option<Duration> {
        let left = self.until?.checked_duration_since(Instant::now())?;
        (self.is_on() && !left.is_zero()).then_some(left)
    }

    /// Returns the reason for refusing a call, with the remaining seconds. Returns `None` if the
    /// call may go through. While a probe is in progress, all other calls are refused.
    fn refusal(&self) -> Option<String> {
        match self.remaining() {
            Some(left) => Some(format!(
                "{}; it is tried again in {} s",
                self.reason,
                left.as_secs() + 1
            )),
            None if self.probing => Some(format!("{}; it is being tried again", self.reason)),
            None => None,
        }
    }

    fn end(&mut self) {
        self.probing = false;
        self.reason.clear();
    }
}

/// The record of an engine in one session. Calls that belong to no session, such as loading a
/// library, are recorded under [`NO_SESSION`], and neither affect nor depend on the other sessions.
#[derive(Debug, Default)]
struct InSession {
    /// The number of failures of each method since it succeeded last.
    failures_in_a_row: BTreeMap<&'static str, u32>,
    /// The number of abandoned threads that have not returned.
    stuck: u32,
    quarantine: Quarantine,
}

/// The record of one engine over all sessions.
#[derive(Debug, Default)]
struct Record {
    succeeded: u64,
    failed: u64,
    abandoned_threads: u32,
    last_error: Option<String>,
    /// The sessions in which a call failed. A session is removed when it works and nothing is left
    /// to remember.
    sessions: HashMap<String, InSession>,
    /// The sessions and the methods that failed in them since that method succeeded in any session.
    failing: BTreeSet<(String, &'static str)>,
    /// The sessions with threads that have not returned. It is cleared when a quarantine for all
    /// sessions ends.
    stuck: BTreeSet<String>,
    quarantine: Quarantine,
}

/// The records of all engines of a process. All methods lock it briefly and may be called from any
/// thread.
#[derive(Debug)]
pub(super) struct HealthBook {
    policy: Policy,
    records: Mutex<BTreeMap<String, Record>>,
}

impl HealthBook {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            records: Mutex::default(),
        }
    }

    /// Lets a call through, unless the engine is in quarantine for this session or for all. If it
    /// lets the call through, the caller must report the outcome to [`ended`](Self::ended).
    ///
    /// # Errors
    /// Returns [`CallError::Quarantined`] with the reason and the remaining seconds.
    pub(super) fn admit(&self, engine: &str, session: &str) -> Result<(), CallError> {
        let mut records = lock(&self.records);
        let Some(record) = records.get_mut(engine) else {
            return Ok(());
        };
        if let Some(reason) = record.refusal(session) {
            return Err(CallError::Quarantined {
                engine: engine.to_owned(),
                reason,
            });
        }
        // The call is let through. If a quarantine is still on, its time is up, and this call is
        // the probe.
        if session != NO_SESSION {
            record.quarantine.probing = record.quarantine.is_on();
        }
        if let Some(own) = record.sessions.get_mut(session) {
            own.quarantine.probing = own.quarantine.is_on();
        }
        Ok(())
    }

    /// Returns why a call of this session would be refused now, without making it the probe.
    /// Returns `None` if it would be let through.
    pub(super) fn refusal(&self, engine: &str, session: &str) -> Option<String> {
        lock(&self.records).get(engine)?.refusal(session)
    }

    /// Records the outcome of a call that was admitted. `error` becomes the engine's last failure
    /// if the verdict counts against it. A success that carries an error, such as a rejected
    /// argument, is not counted as succeeded.
    pub(super) fn ended(
        &self,
        (engine, session): (&str, &str),
        method: &'static str,
        verdict: Verdict,
        error: Option<&CallError>,
    ) {
        let mut records = lock(&self.records);
        let record = match records.get_mut(engine) {
            Some(record) => record,
            None => records.entry(engine.to_owned()).or_default(),
        };
        match verdict {
            Verdict::Works => {
                record.succeeded += u64::from(error.is_none());
                record.works(session, method);
            }
            // The probe gave no result, so the next call is the probe instead.
            Verdict::Nothing | Verdict::Storage => {
                if verdict == Verdict::Storage {
                    record.failed += 1;
                    record.last_error = error.map(ToString::to_string);
                }
                if session != NO_SESSION {
                    record.quarantine.probing = false;
                }
                if let Some(own) = record.sessions.get_mut(session) {
                    own.quarantine.probing = false;
                }
            }
            Verdict::Slow | Verdict::Failed | Verdict::Stuck => {
                record.failed += 1;
                record.last_error = error.map(ToString::to_string);
                record.fails(session, method, verdict, &self.policy);
            }
        }
    }

    /// Records that an abandoned thread has returned. A quarantine that rests only on abandoned
    /// threads ends early: its time is up at once, and the next call is the probe.
    pub(super) fn came_back(&self, engine: &str, session: &str) {
        let policy = &self.policy;
        let mut records = lock(&self.records);
        let Some(record) = records.get_mut(engine) else {
            return;
        };
        record.abandoned_threads = record.abandoned_threads.saturating_sub(1);
        let Some(own) = record.sessions.get_mut(session) else {
            return;
        };
        own.stuck = own.stuck.saturating_sub(1);
        if own.most_in_a_row() < policy.failure_limit {
            // The session had too few failures in a row, so it was in quarantine for its threads
            // alone.
            own.quarantine.until = own.quarantine.until.map(|until| until.min(Instant::now()));
        }
        if own.stuck == 0 {
            let was_full = record.stuck.len() >= policy.abandoned_limit as usize;
            record.stuck.remove(session);
            let is_full = record.stuck.len() >= policy.abandoned_limit as usize;
            if was_full && !is_full {
                let until = record.quarantine.until;
                record.quarantine.until = until.map(|until| until.min(Instant::now()));
            }
        }
    }

    /// Returns the health of every engine that has a record, sorted by name.
    pub(super) fn all(&self) -> Vec<EngineHealth> {
        lock(&self.records)
            .iter()
            .map(|(engine, record)| {
                let refused = record.sessions.values();
                let refused = refused.filter(|own| own.quarantine.refusal().is_some());
                EngineHealth {
                    engine: engine.clone(),
                    state: match record.quarantine.is_on() {
                        true => HealthState::Quarantined {
                            remaining_ms: record
                                .quarantine
                                .remaining()
                                .map_or(0, |left| left.as_millis() as u64),
                        },
                        false => HealthState::Serving,
                    },
                    sessions_in_quarantine: refused.count() as u32,
                    succeeded: record.succeeded,
                    failed: record.failed,
                    abandoned_threads: record.abandoned_threads,
                    last_error: record.last_error.clone(),
                }
            })
            .collect()
    }
}

impl InSession {
    /// The failures in a row of the method that has the most.
    fn most_in_a_row(&self) -> u32 {
        self.failures_in_a_row.values().copied().max().unwrap_or(0)
    }
}

impl Record {
    /// Returns why a call of this session is refused. The session's own quarantine comes first,
    /// because it is the more specific reason. Calls without a session ignore the quarantine for
    /// all sessions: loading the engine must stay possible.
    fn refusal(&self, session: &str) -> Option<String> {
        let own = self.sessions.get(session);
        let own = own.and_then(|own| own.quarantine.refusal());
        match session {
            NO_SESSION => own,
            _ => own.or_else(|| self.quarantine.refusal()),
        }
    }

    /// Records that a method succeeded. It ends the session's quarantine and, if the call belongs to
    /// a session, the quarantine for all sessions. Failures of other methods stay counted, so the
    /// next one may begin another quarantine at once.
    fn works(&mut self, session: &str, method: &'static str) {
        if session != NO_SESSION {
            self.failing.retain(|(_, failed)| *failed != method);
        }
        if session != NO_SESSION && self.quarantine.is_on() {
            self.quarantine.end();
            // Otherwise the threads of the past would start the next quarantine at once. Only
            // threads abandoned from now on count.
            self.stuck.clear();
        }
        if let Some(own) = self.sessions.get_mut(session) {
            own.failures_in_a_row.remove(method);
            own.quarantine.end();
            // A record with a past quarantine is kept: a new one soon after it must last longer.
            let has_failed = !own.failures_in_a_row.is_empty() || own.quarantine.until.is_some();
            if own.stuck == 0 && !has_failed {
                self.sessions.remove(session);
            }
        }
    }

    /// Records a failure, and begins a quarantine of the session or of all sessions if its limit is
    /// reached.
    fn fails(&mut self, session: &str, method: &'static str, verdict: Verdict, policy: &Policy) {
        // Only sessions that are in quarantine or have abandoned threads are needed later.
        if self.sessions.len() >= SESSIONS {
            self.sessions
                .retain(|_, own| own.stuck > 0 || own.quarantine.refusal().is_some());
        }
        let last = self.last_error.clone().unwrap_or_default();
        let own = self.sessions.entry(session.to_owned()).or_default();
        let in_a_row = own.failures_in_a_row.entry(method).or_default();
        *in_a_row += 1;
        let in_a_row = *in_a_row;
        if verdict == Verdict::Stuck {
            own.stuck += 1;
            self.abandoned_threads += 1;
        }
        if verdict == Verdict::Stuck && session != NO_SESSION {
            self.stuck.insert(session.to_owned());
        }
        let place = match session {
            NO_SESSION => "",
            _ => " in this session",
        };
        if own.stuck >= STUCK_IN_SESSION && verdict == Verdict::Stuck {
            let reason = format!(
                "{} of its threads{place} do not return; last: {last}",
                own.stuck
            );
            own.quarantine.begin(policy.quarantine, reason);
        } else if in_a_row >= policy.failure_limit {
            let reason = format!("it failed {in_a_row} times in a row{place}; last: {last}");
            own.quarantine.begin(policy.quarantine, reason);
        } else {
            // If this was the probe, its result is known, so other calls are no longer refused for
            // it.
            own.quarantine.probing = false;
        }
        // A failure outside of any session must not count as the failure of one.
        if session == NO_SESSION {
            return;
        }
        // The conversation of this session may be the cause, so the other sessions are not
        // affected.
        if verdict == Verdict::Slow {
            self.quarantine.probing = false;
            return;
        }
        self.failing.insert((session.to_owned(), method));
        let failing = self.failing.iter().filter(|(_, failed)| *failed == method);
        let failing = failing.count();
        // At least two, even if the limit is one: a single session must never stop the engine for
        // the others.
        let several = (policy.failure_limit as usize).max(2);
        let was_tried = std::mem::take(&mut self.quarantine.probing);
        if self.stuck.len() >= policy.abandoned_limit as usize {
            let reason = format!(
                "threads of {} sessions do not return; last: {last}",
                self.stuck.len()
            );
            self.quarantine.begin(policy.quarantine, reason);
        } else if was_tried || failing >= several {
            let reason = format!("it failed in {failing} sessions in a row; last: {last}");
            self.quarantine.begin(policy.quarantine, reason);
        }
    }
}

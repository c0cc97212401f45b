//! The health of each engine, and quarantine for those that keep failing.
//!
//! Quarantine has two levels. A session whose calls keep failing, or leave threads that do not return, does without the
//! engine for a while, and no other session notices. Only if several sessions fail, and none succeeds in between, is the
//! engine in quarantine for all of them. Both levels end by themselves: when the time is up, one call is let through, and
//! its result decides. Each quarantine that follows soon after another one lasts twice as long.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{CallError, NO_SESSION, Policy};
use contexture_base::lock;

/// The health of one engine in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineHealth {
    /// The engine.
    pub engine: String,
    /// Whether it may be called.
    pub state: HealthState,
    /// The number of sessions that do without it for now, beside those of [`state`](Self::state).
    pub sessions_in_quarantine: u32,
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
    /// Not by any session, until some time has passed. Then one call shows whether it works again.
    Quarantined {
        /// The remaining time, in milliseconds; 0 if the next call is the one that shows it.
        remaining_ms: u64,
    },
}

/// Threads of one session that do not return, at which the session does without the engine. After the first one its
/// engine is opened anew.
const STUCK_IN_SESSION: u32 = 2;

/// A quarantine is doubled so often at most.
const DOUBLINGS: u32 = 4;

/// So many sessions that failed are remembered, if they have no thread that does not return.
const SESSIONS: usize = 1_000;

/// What came of a call, as far as it tells something about the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The engine works: it succeeded, or refused what it was asked.
    Works,
    /// Nothing: no thread could be started, or the call was stopped by whoever asked for it.
    Nothing,
    /// It was slow and stopped when it was told to: the failure of this session, whose conversation it may be.
    Slow,
    /// It failed.
    Failed,
    /// It did not return, and its thread is abandoned.
    Stuck,
}

/// The time in which something is not called.
#[derive(Debug, Clone, Default)]
struct Quarantine {
    until: Option<Instant>,
    /// How many followed upon another.
    repeated: u32,
    /// Whether the one call is under way that shows if it works again.
    probing: bool,
    reason: String,
}

impl Quarantine {
    /// Begins, if it has not.
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

    fn is_on(&self) -> bool {
        !self.reason.is_empty()
    }

    /// The rest of the time; none once it is up.
    fn remaining(&self) -> Option<Duration> {
        let left = self.until?.checked_duration_since(Instant::now())?;
        (self.is_on() && !left.is_zero()).then_some(left)
    }

    /// Why a call is refused; none if it is not.
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

/// An engine in one session. What belongs to no session, such as loading it, is a session without a name
/// ([`NO_SESSION`]), which no other one has an effect on.
#[derive(Debug, Default)]
struct InSession {
    failures_in_a_row: u32,
    /// Threads that have not returned.
    stuck: u32,
    quarantine: Quarantine,
}

#[derive(Debug, Default)]
struct Record {
    succeeded: u64,
    failed: u64,
    abandoned_threads: u32,
    last_error: Option<String>,
    sessions: HashMap<String, InSession>,
    /// The sessions that failed since a call of any session succeeded.
    failing: BTreeSet<String>,
    /// The sessions with threads that have not returned since the last quarantine.
    stuck: BTreeSet<String>,
    quarantine: Quarantine,
}

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

    /// Lets a call through, unless the engine is in quarantine. [`ended`](Self::ended) has to follow.
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
        // The time is up.
        if session != NO_SESSION {
            record.quarantine.probing = record.quarantine.is_on();
        }
        if let Some(own) = record.sessions.get_mut(session) {
            own.quarantine.probing = own.quarantine.is_on();
        }
        Ok(())
    }

    /// Why a session's calls would be refused now; none if they would not.
    pub(super) fn refusal(&self, engine: &str, session: &str) -> Option<String> {
        lock(&self.records).get(engine)?.refusal(session)
    }

    /// Notes what came of a call.
    pub(super) fn ended(
        &self,
        engine: &str,
        session: &str,
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
                record.works(session);
            }
            Verdict::Nothing => {
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
                record.fails(session, verdict, &self.policy);
            }
        }
    }

    /// An abandoned thread has returned.
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
        if own.failures_in_a_row < policy.failure_limit {
            // It was in quarantine for its threads alone.
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

impl Record {
    fn refusal(&self, session: &str) -> Option<String> {
        let own = self.sessions.get(session);
        let own = own.and_then(|own| own.quarantine.refusal());
        match session {
            NO_SESSION => own,
            _ => own.or_else(|| self.quarantine.refusal()),
        }
    }

    fn works(&mut self, session: &str) {
        if session != NO_SESSION {
            self.failing.clear();
        }
        if session != NO_SESSION && self.quarantine.is_on() {
            self.quarantine.end();
            // Only threads that do not return from now on count.
            self.stuck.clear();
        }
        if let Some(own) = self.sessions.get_mut(session) {
            own.failures_in_a_row = 0;
            own.quarantine.end();
            if own.stuck == 0 && own.quarantine.until.is_none() {
                self.sessions.remove(session);
            }
        }
    }

    fn fails(&mut self, session: &str, verdict: Verdict, policy: &Policy) {
        if self.sessions.len() >= SESSIONS {
            self.sessions
                .retain(|_, own| own.stuck > 0 || own.quarantine.refusal().is_some());
        }
        let last = self.last_error.clone().unwrap_or_default();
        let own = self.sessions.entry(session.to_owned()).or_default();
        own.failures_in_a_row += 1;
        if verdict == Verdict::Stuck {
            own.stuck += 1;
            self.abandoned_threads += 1;
        }
        if verdict == Verdict::Stuck && session != NO_SESSION {
            self.stuck.insert(session.to_owned());
        }
        if own.stuck >= STUCK_IN_SESSION && verdict == Verdict::Stuck {
            let reason = format!(
                "{} of its threads do not return to this session; last: {last}",
                own.stuck
            );
            own.quarantine.begin(policy.quarantine, reason);
        } else if own.failures_in_a_row >= policy.failure_limit {
            let reason = format!(
                "it failed {} times in a row in this session; last: {last}",
                own.failures_in_a_row
            );
            own.quarantine.begin(policy.quarantine, reason);
        } else {
            own.quarantine.probing = false;
        }
        if session == NO_SESSION {
            return;
        }
        if verdict == Verdict::Slow {
            self.quarantine.probing = false;
            return;
        }
        self.failing.insert(session.to_owned());
        // One session is never several.
        let several = (policy.failure_limit as usize).max(2);
        let was_tried = std::mem::take(&mut self.quarantine.probing);
        if self.stuck.len() >= policy.abandoned_limit as usize {
            let reason = format!(
                "threads of {} sessions do not return; last: {last}",
                self.stuck.len()
            );
            self.quarantine.begin(policy.quarantine, reason);
        } else if was_tried || self.failing.len() >= several {
            let reason = format!(
                "it failed in {} sessions in a row; last: {last}",
                self.failing.len()
            );
            self.quarantine.begin(policy.quarantine, reason);
        }
    }
}

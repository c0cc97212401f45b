//! What one engine made of one session, or of several.
//!
//! A [`Score`] has the figures of a replay's row that can be summed over thousands of sessions
//! without growing, and what was still in the window after the compactions. Costs are in US dollars.
//! Sums and ratios follow from them, see [`Score::add`].

use serde::Serialize;

use contexture::config::Timing;
use contexture::replay::{Continuation, Row};

/// The ratio to the cost without an engine above which a session counts as dearer. Below it, the
/// difference is within what the simulated cache can tell.
pub(super) const DEARER: f64 = 1.02;

/// The figures of an engine, summed over one or more sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Score {
    /// The engine's name, or `none`.
    pub(super) engine: String,
    /// The value of `compression.timing`. `None` in the row without an engine.
    pub(super) timing: Option<Timing>,
    pub(super) sessions: u64,
    pub(super) requests: u64,
    /// The requests whose prompt was larger than the window.
    pub(super) overflows: u64,
    pub(super) compactions: u64,
    /// The requests in which the engine failed or broke the contract.
    pub(super) failures: u64,
    pub(super) prompt_tokens: u64,
    /// The cost of the prompts, in US dollars.
    pub(super) cost_usd: f64,
    /// The cost of the same sessions without an engine, in US dollars.
    pub(super) none_usd: f64,
    /// `cost_usd` divided by `none_usd`, and 1 if both are 0.
    pub(super) cost_ratio: f64,
    /// The largest `cost_ratio` of a session.
    pub(super) worst_ratio: f64,
    /// The number of sessions that cost more than [`DEARER`] times as much as without an engine.
    pub(super) dearer_sessions: u64,
    #[serde(flatten)]
    pub(super) kept: Continuation,
}

impl Score {
    /// The row of a session without an engine.
    pub(super) fn without_engine(row: &Row) -> Self {
        Self::of(row, None, Continuation::default(), row.cost_usd)
    }

    /// The row of an engine. `none_usd` is what the session costs without one.
    pub(super) fn new(row: &Row, timing: Timing, kept: Continuation, none_usd: f64) -> Self {
        Self::of(row, Some(timing), kept, none_usd)
    }

    fn of(row: &Row, timing: Option<Timing>, kept: Continuation, none_usd: f64) -> Self {
        let ratio = ratio(row.cost_usd, none_usd);
        Self {
            engine: row.engine.clone(),
            timing,
            sessions: 1,
            requests: row.prompts.requests,
            overflows: row.prompts.overflows,
            compactions: row.work.as_ref().map_or(0, |work| work.compactions),
            failures: row.failures(),
            prompt_tokens: row.prompts.prompt_tokens,
            cost_usd: row.cost_usd,
            none_usd,
            cost_ratio: ratio,
            worst_ratio: ratio,
            dearer_sessions: u64::from(ratio > DEARER),
            kept,
        }
    }

    /// Adds the figures of another session, or of several.
    pub(super) fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.requests += other.requests;
        self.overflows += other.overflows;
        self.compactions += other.compactions;
        self.failures += other.failures;
        self.prompt_tokens += other.prompt_tokens;
        self.cost_usd += other.cost_usd;
        self.none_usd += other.none_usd;
        self.cost_ratio = ratio(self.cost_usd, self.none_usd);
        self.worst_ratio = self.worst_ratio.max(other.worst_ratio);
        self.dearer_sessions += other.dearer_sessions;
        self.kept.add(&other.kept);
    }
}

fn ratio(cost: f64, none: f64) -> f64 {
    if none > 0.0 { cost / none } else { 1.0 }
}

//! Records which requests were not managed, and why. Every answer says so in its headers, the metrics count by reason,
//! the log has one line for each session and reason, and the status page has one row.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

use crate::account::now_ms;
use crate::headers;
use crate::metrics::Metrics;

/// How many rows are kept. When there are more, the least recently seen one is dropped.
const ROWS: usize = 500;

/// What became of a request: the value of `x-contexture-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// A turn of a session.
    Managed,
    /// A turn in a session that runs an engine other than the configured one.
    Fallback,
    /// Observed, and passed on unchanged.
    Observed,
    /// A request apart from any conversation.
    SideCall,
    /// Not a turn: another endpoint, a conversation stored at the provider, or an answer of the gateway itself.
    NotManaged,
    /// Should have been a turn, but something failed and it was passed on unchanged.
    FailedOpen,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Fallback => "fallback",
            Self::Observed => "observed",
            Self::SideCall => "side-call",
            Self::NotManaged => "not-managed",
            Self::FailedOpen => "failed-open",
        }
    }
}

/// Why a request was not managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) status: Status,
    /// A keyword for the metrics, from a small fixed set.
    pub(crate) reason: &'static str,
    /// An explanation for people; empty if the keyword is enough.
    pub(crate) detail: String,
}

impl Why {
    pub(crate) fn new(status: Status, reason: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            detail: detail.into(),
        }
    }

    /// The value of `x-contexture-reason`.
    fn words(&self) -> String {
        match self.detail.is_empty() {
            true => self.reason.to_owned(),
            false => format!("{}: {}", self.reason, self.detail),
        }
    }

    /// Adds the reason to the headers of an answer.
    pub(crate) fn tell(&self, answer: &mut Response) {
        headers::set(answer.headers_mut(), headers::STATUS, self.status.name());
        headers::set(answer.headers_mut(), headers::REASON, &self.words());
    }
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    status: Status,
    reason: &'static str,
    detail: String,
    requests: u64,
    at_ms: u64,
}

/// All unmanaged requests since the start.
#[derive(Debug, Default)]
pub(crate) struct Unmanaged(Mutex<HashMap<(String, &'static str), Row>>);

impl Unmanaged {
    /// Records a request. `session` is the name that it gives its session, if any. The first one of each session and
    /// reason is logged.
    pub(crate) fn note(&self, metrics: &Metrics, session: Option<&str>, why: &Why) {
        metrics.add(
            "not_managed_total",
            &format!("reason=\"{}\"", why.reason),
            1.0,
        );
        let session = session.unwrap_or_default();
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() >= ROWS {
            let oldest = rows.iter().min_by_key(|(_, row)| row.at_ms);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                rows.remove(&oldest);
            }
        }
        let row = rows.entry((session.to_owned(), why.reason)).or_insert(Row {
            status: why.status,
            reason: why.reason,
            detail: String::new(),
            requests: 0,
            at_ms: 0,
        });
        row.requests += 1;
        row.at_ms = now_ms();
        row.detail.clone_from(&why.detail);
        let is_first = row.requests == 1;
        drop(rows);
        if !is_first {
            return;
        }
        let (status, reason) = (why.status.name(), why.reason);
        let session = if session.is_empty() { "-" } else { session };
        match why.status {
            Status::FailedOpen => tracing::warn!(session, status, reason, "{}", why.detail),
            // The session has already logged a warning.
            Status::Fallback => tracing::info!(session, status, reason, "{}", why.detail),
            _ => tracing::info!(session, status, reason, "not managed: {}", why.detail),
        }
    }

    /// The rows that a user may see, the latest first.
    pub(crate) fn rows(&self, may_see: impl Fn(&str) -> bool) -> Value {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<(String, Row)> = (rows.iter())
            .filter(|((session, _), _)| may_see(session))
            .map(|((session, _), row)| (session.clone(), row.clone()))
            .collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.at_ms));
        let told = rows.into_iter().map(|(session, row)| {
            let mut told = json!(row);
            told["session"] = json!(session);
            told
        });
        told.collect()
    }
}

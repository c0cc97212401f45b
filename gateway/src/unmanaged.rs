//! Records which requests were not managed, and why.
//!
//! A request that silently bypasses the engine is hard to notice. So each one is reported in four
//! places: the headers of its answer, a counter in the metrics by reason, one line in the log for
//! each session and reason, and a row on the status page. [`UnmanagedReason`] holds the reason, and
//! [`UnmanagedLog::note`] reports it.
//!
//! Reasons are keywords from a small fixed set, because each one is a label of a metric. Whether a
//! request can be managed is decided by [`conversation`](crate::conversation).

use std::collections::HashMap;
use std::sync::Mutex;

use contexture::lock;

use axum::response::Response;
use serde::Serialize;

use crate::account::now_ms;
use crate::headers;
use crate::metrics::Metrics;

/// How many rows the status page keeps. If there are more, the one that was seen least recently is
/// dropped.
const MAX_ROWS: usize = 500;

/// What became of a request. Its name is the value of the header `x-contexture-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    Managed,
    /// The request was a turn, but its session runs another engine than the configured one.
    Fallback,
    /// The request was passed on unchanged, and its turn was only observed.
    Observed,
    SideCall,
    /// The request was not a turn: it was for another endpoint, its conversation is stored at the
    /// provider, or the gateway answered it itself.
    NotManaged,
    /// The request should have been a turn, but something failed and it was passed on unchanged.
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

/// Why a request was not managed, in a form for machines and in one for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnmanagedReason {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
    /// An explanation for people. Empty if the keyword is enough. It may contain text of the
    /// provider.
    pub(crate) detail: String,
}

impl UnmanagedReason {
    pub(crate) fn new(status: Status, reason: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            detail: detail.into(),
        }
    }

    /// The value of the header `x-contexture-reason`: the keyword, and the explanation if there is
    /// one.
    fn header_value(&self) -> String {
        match self.detail.is_empty() {
            true => self.reason.to_owned(),
            false => format!("{}: {}", self.reason, self.detail),
        }
    }

    /// Adds the status and the reason to the headers of an answer, in place of those that it may
    /// have.
    pub(crate) fn set_headers(&self, answer: &mut Response) {
        headers::set(answer.headers_mut(), headers::STATUS, self.status.name());
        headers::set(answer.headers_mut(), headers::REASON, &self.header_value());
    }
}

/// The unmanaged requests of one session for one reason, as the status page gets them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct UnmanagedRow {
    /// Who sent them. The name of the session does not tell, because anybody may name one
    /// `alice/work`.
    #[serde(skip)]
    pub(crate) tenant: Option<String>,
    /// The client's name for the session. Empty if it sends none.
    session: String,
    status: Status,
    reason: &'static str,
    detail: String,
    requests: u64,
    at_ms: u64,
}

/// The tenant, the session and the reason of a row.
type RowKey = (Option<String>, String, &'static str);

/// All unmanaged requests since the start. Kept in memory only.
#[derive(Debug, Default)]
pub(crate) struct UnmanagedLog(Mutex<HashMap<RowKey, UnmanagedRow>>);

impl UnmanagedLog {
    /// Records a request of a tenant. `session` is the name that it gives its session, if any. Only
    /// the first request of each session and reason is logged, because agents send many of the same
    /// kind.
    pub(crate) fn note(
        &self,
        metrics: &Metrics,
        tenant: Option<&str>,
        session: Option<&str>,
        why: &UnmanagedReason,
    ) {
        metrics.add(
            "not_managed_total",
            &format!("reason=\"{}\"", why.reason),
            1.0,
        );
        let (tenant, session) = (tenant.map(str::to_owned), session.unwrap_or_default());
        let mut rows = lock(&self.0);
        // Clients choose the names of sessions, so the table needs a bound.
        if rows.len() >= MAX_ROWS {
            let oldest = rows.iter().min_by_key(|(_, row)| row.at_ms);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                rows.remove(&oldest);
            }
        }
        let row = rows
            .entry((tenant.clone(), session.to_owned(), why.reason))
            .or_insert_with(|| UnmanagedRow {
                tenant,
                session: session.to_owned(),
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
        // Logging may be slow, and needs no lock.
        drop(rows);
        if !is_first {
            return;
        }
        let (status, reason) = (why.status.name(), why.reason);
        let session = if session.is_empty() { "-" } else { session };
        match why.status {
            Status::FailedOpen => tracing::warn!(session, status, reason, "{}", why.detail),
            // The host has already logged a warning for this session.
            Status::Fallback => tracing::info!(session, status, reason, "{}", why.detail),
            _ => tracing::info!(session, status, reason, "not managed: {}", why.detail),
        }
    }

    /// The rows that `may_see` accepts, latest first.
    pub(crate) fn rows(&self, may_see: impl Fn(&UnmanagedRow) -> bool) -> Vec<UnmanagedRow> {
        let rows = lock(&self.0);
        let seen = rows.values().filter(|row| may_see(row));
        let mut rows: Vec<UnmanagedRow> = seen.cloned().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.at_ms));
        rows
    }
}

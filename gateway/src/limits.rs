//! Limits how many requests are answered at once, in total and for each tenant.
//!
//! [`ActiveRequest`] is a guard: while it exists, its request counts. Streams keep it until their
//! last byte is sent. The total is a gauge of [`Metrics`], so `/metrics` shows it. If a limit is
//! reached, [`routes`](crate::routes) refuses the request. It does not wait, because the client
//! knows best when to try again.
//!
//! How many connections may be open is limited in [`serving`](crate::serving).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use contexture::lock;

use tracing::Span;

use crate::metrics::Metrics;

/// A guard that counts a request, in total and for its tenant, until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    metrics: Arc<Metrics>,
    tenant: Option<String>,
    began: Instant,
    /// The endpoint, for the metrics. None if a limit was reached.
    endpoint: Option<&'static str>,
    /// The span of the request, which is over when the last byte is sent.
    _span: Span,
}

/// Whose limit is reached. The client gets a different status for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Gateway,
    Tenant,
}

impl ActiveRequest {
    /// Counts one more request, and one more of its tenant if it has one. `most` and
    /// `most_of_tenant` are the limits.
    ///
    /// # Errors
    /// As many requests as allowed are under way. The request does not count then.
    pub(crate) fn acquire(
        metrics: &Arc<Metrics>,
        endpoint: &'static str,
        most: i64,
        tenant: Option<&str>,
        most_of_tenant: i64,
    ) -> Result<Self, LimitReached> {
        let mut active_request = Self {
            metrics: Arc::clone(metrics),
            tenant: tenant.map(str::to_owned),
            began: Instant::now(),
            endpoint: None,
            _span: Span::current(),
        };
        // Counting first and checking afterwards keeps two requests from taking the last place. If
        // the limit is reached, dropping `active_request` takes it back.
        let before = metrics.active.fetch_add(1, Ordering::Relaxed);
        let before_of_tenant = match tenant {
            Some(tenant) => {
                let mut active = lock(&metrics.active_of_tenants);
                let active = active.entry(tenant.to_owned()).or_default();
                *active += 1;
                *active - 1
            }
            None => 0,
        };
        match () {
            () if before >= most => Err(LimitReached::Gateway),
            () if tenant.is_some() && before_of_tenant >= most_of_tenant => {
                Err(LimitReached::Tenant)
            }
            () => {
                active_request.endpoint = Some(endpoint);
                Ok(active_request)
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.metrics.active.fetch_sub(1, Ordering::Relaxed);
        if let Some(endpoint) = self.endpoint {
            let labels = format!("endpoint=\"{endpoint}\"");
            let time = self.began.elapsed();
            self.metrics.observe("request_seconds", &labels, time);
        }
        if let Some(tenant) = &self.tenant {
            let mut active = lock(&self.metrics.active_of_tenants);
            // Entries are never removed: the names come from the configuration and are few.
            if let Some(active) = active.get_mut(tenant) {
                *active -= 1;
            }
        }
    }
}

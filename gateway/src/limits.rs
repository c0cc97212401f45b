//! Limits how many requests are answered at once, in total and for each tenant.
//!
//! [`ActiveRequest`] is a guard: while it exists, its request counts. Streams keep it until their
//! last byte is sent. The total is a gauge of [`Metrics`], so `/metrics` shows it. If a limit is
//! reached, [`routes`](crate::routes) refuses the request. It does not wait, because the client
//! knows best when to try again.
//!
//! Requests of the status page have the same limits, but are counted on their own. So a tenant whose
//! agents use all of its requests still sees its page, which says why.
//!
//! How many connections may be open is limited in [`serving`](crate::serving).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use contexture::lock;

use tracing::Span;

use crate::metrics::Metrics;

/// The endpoint of the status page's requests.
pub(crate) const PAGE: &str = "page";

/// A guard that counts a request, in total and for its tenant, until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    metrics: Arc<Metrics>,
    /// Under which name the tenant's requests are counted.
    tenant: Option<String>,
    began: Instant,
    endpoint: &'static str,
    /// Whether a limit was reached, so that the request is refused.
    is_refused: bool,
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
            tenant: tenant.map(|tenant| match endpoint {
                // No tenant has this name, because a name has no slash.
                PAGE => format!("{tenant}/{PAGE}"),
                _ => tenant.to_owned(),
            }),
            began: Instant::now(),
            endpoint,
            is_refused: false,
            _span: Span::current(),
        };
        // Counting first and checking afterwards keeps two requests from taking the last place. If
        // the limit is reached, dropping `active_request` takes it back.
        let active = active_request.gauge();
        let before = active.fetch_add(1, Ordering::Relaxed);
        let before_of_tenant = match &active_request.tenant {
            Some(tenant) => {
                let mut active = lock(&metrics.active_of_tenants);
                let active = active.entry(tenant.clone()).or_default();
                *active += 1;
                *active - 1
            }
            None => 0,
        };
        let reached = match () {
            () if before >= most => LimitReached::Gateway,
            () if tenant.is_some() && before_of_tenant >= most_of_tenant => LimitReached::Tenant,
            () => return Ok(active_request),
        };
        active_request.is_refused = true;
        Err(reached)
    }

    /// How many requests of this kind are under way.
    fn gauge(&self) -> &AtomicI64 {
        match self.endpoint {
            PAGE => &self.metrics.active_of_page,
            _ => &self.metrics.active,
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.gauge().fetch_sub(1, Ordering::Relaxed);
        if !self.is_refused {
            let labels = format!("endpoint=\"{}\"", self.endpoint);
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

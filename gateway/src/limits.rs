//! How many requests are answered at once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::metrics::Metrics;

/// A request that is being answered, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Counted {
    metrics: Arc<Metrics>,
    tenant: Option<String>,
}

/// Whose limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Gateway,
    Tenant,
}

impl Counted {
    /// Counts one more request, of this tenant with its own limit.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(crate) fn one_of(
        metrics: &Arc<Metrics>,
        most: i64,
        tenant: Option<&str>,
        most_of_tenant: i64,
    ) -> Result<Self, Full> {
        let counted = Self {
            metrics: Arc::clone(metrics),
            tenant: tenant.map(str::to_owned),
        };
        let before = metrics.active.fetch_add(1, Ordering::Relaxed);
        let before_of_tenant = match tenant {
            Some(tenant) => {
                let mut active = metrics
                    .active_of_tenants
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let active = active.entry(tenant.to_owned()).or_default();
                *active += 1;
                *active - 1
            }
            None => 0,
        };
        match () {
            () if before >= most => Err(Full::Gateway),
            () if tenant.is_some() && before_of_tenant >= most_of_tenant => Err(Full::Tenant),
            () => Ok(counted),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.active.fetch_sub(1, Ordering::Relaxed);
        if let Some(tenant) = &self.tenant {
            let mut active = self
                .metrics
                .active_of_tenants
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // The names are those of the configuration, and few.
            if let Some(active) = active.get_mut(tenant) {
                *active -= 1;
            }
        }
    }
}

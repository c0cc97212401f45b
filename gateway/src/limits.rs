//! How much at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::metrics::Metrics;

/// A request that is being answered, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Metrics>);

impl Counted {
    /// One more; none where there are as many as there may be.
    pub(crate) fn one_of(most: i64, metrics: &Arc<Metrics>) -> Option<Self> {
        let counted = Self(Arc::clone(metrics));
        let before = metrics.active.fetch_add(1, Ordering::Relaxed);
        (before < most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Counts how often whole bodies are split and written, so that a test can hold the rule that each
//! happens once for a request. In a build without debug assertions nothing is counted.

use std::sync::atomic::{AtomicU64, Ordering};

static SPLIT: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// How often this process has split a body or a part of one, and how often it has written one.
#[cfg(debug_assertions)]
pub fn counted() -> (u64, u64) {
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    (count(&SPLIT), count(&WRITTEN))
}

pub(super) fn split() {
    count(&SPLIT);
}

pub(super) fn written() {
    count(&WRITTEN);
}

fn count(of: &AtomicU64) {
    if cfg!(debug_assertions) {
        of.fetch_add(1, Ordering::Relaxed);
    }
}

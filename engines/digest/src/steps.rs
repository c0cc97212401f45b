//! Counts the bytes that are read, in tests: a text of any repetition has to take steps in proportion to its length.
//! Time would tell the same, and fail on a busy machine.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds to the steps of this thread; outside of tests nothing is counted.
#[inline(always)]
pub(crate) fn add(bytes: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + bytes);
    #[cfg(not(test))]
    let _ = bytes;
}

/// The steps since the last call on this thread.
#[cfg(test)]
pub(crate) fn take() -> usize {
    STEPS.take()
}

//! Counts the bytes that are read, in tests. The number of steps has to be proportional to the length of a text,
//! however repetitive it is. Measuring time instead would fail on a busy machine.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds to the steps of this thread. Does nothing outside of tests.
#[inline(always)]
pub(crate) fn add(bytes: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + bytes);
    #[cfg(not(test))]
    let _ = bytes;
}

/// Returns the steps since the last call on this thread.
#[cfg(test)]
pub(crate) fn take() -> usize {
    STEPS.take()
}

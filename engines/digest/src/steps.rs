//! Counts the bytes that are read, in tests. The number of steps has to be proportional to the
//! length of a text, however repetitive it is. A test that measured time instead would fail on a
//! busy machine.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[inline(always)]
pub(crate) fn add(bytes: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + bytes);
    #[cfg(not(test))]
    let _ = bytes;
}

#[cfg(test)]
pub(crate) fn take() -> usize {
    STEPS.take()
}

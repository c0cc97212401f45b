//! CPU time, which a busy machine does not change.
#![allow(dead_code)]

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this thread, in ms.
pub(crate) fn thread_cpu_ms() -> f64 {
    ms(ClockId::ThreadCPUTime)
}

/// The CPU time of all threads, in ms.
pub(crate) fn process_cpu_ms() -> f64 {
    ms(ClockId::ProcessCPUTime)
}

fn ms(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

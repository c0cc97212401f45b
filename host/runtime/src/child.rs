//! What both kinds of engine processes need: their limits, their end, and words for how they ended.

use std::process::Child;
use std::time::{Duration, Instant};

/// Limits the address space of a process that was just started, in bytes. Only Linux can limit
/// another process. A process that has ended already is left alone.
pub(crate) fn limit_memory(child: &Child, most: Option<u64>) {
    #[cfg(target_os = "linux")]
    if let Some(most) = most {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        let _ = prlimit(Some(Pid::from_child(child)), Resource::As, limit);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (child, most);
}

/// Kills a process and waits for it, so that no zombie is left.
pub(crate) fn end(child: &mut Child) {
    // Fails if the process has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Kills a process that leads a group of its own, with the processes that it has started. One of
/// them may hold the pipe open that the host reads from.
pub(crate) fn end_group(child: &mut Child) {
    // The number of a process that was waited for may belong to another one by now.
    #[cfg(unix)]
    if matches!(child.try_wait(), Ok(None)) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    end(child);
}

/// Returns how a process ended, as the rest of a sentence for a person. Waits up to `patience`, and
/// returns `None` if the process still runs then. `memory` is the limit of its address space, which
/// an abort may be due to.
pub(crate) fn how_it_ended(
    child: &mut Child,
    memory: Option<u64>,
    patience: Duration,
) -> Option<String> {
    let began = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            #[cfg(unix)]
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            #[cfg(not(unix))]
            let signal: Option<i32> = None;
            return Some(match (signal, status.code()) {
                // Allocators abort when no memory is left.
                (Some(6), _) => match memory {
                    Some(most) => format!(
                        "aborted (signal 6); it may have reached its memory limit, {} MB \
                         (`context.supervision.memory_mb`)",
                        most >> 20
                    ),
                    None => "aborted (signal 6)".to_owned(),
                },
                (Some(signal), _) => format!("was killed by signal {signal}"),
                (None, code) => format!("exited with code {}", code.unwrap_or(0)),
            });
        }
        if began.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

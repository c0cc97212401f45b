//! What both kinds of engine processes need: their limits, their end, and words for how they ended.

use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use contexture_base::lock;

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

/// The process of an engine, which the host ends.
#[derive(Debug)]
pub(crate) struct EngineChild {
    group: Mutex<Group>,
    /// The limit of address space in bytes, for messages.
    memory: Option<u64>,
    ended: AtomicBool,
    /// Why the host killed the process. Empty if it did not.
    killed: OnceLock<String>,
}

impl EngineChild {
    pub(crate) fn of(child: Child, memory: Option<u64>) -> Self {
        let group = Group {
            leader: child,
            is_reaped: false,
            status: None,
        };
        Self {
            group: Mutex::new(group),
            memory,
            ended: AtomicBool::new(false),
            killed: OnceLock::new(),
        }
    }

    /// Whether the process has ended, by itself or because the host killed it.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_lost() || lock(&self.group).has_ended()
    }

    /// Whether a call has found that the process has ended, or the host has killed it.
    pub(crate) fn is_lost(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Kills the process. `why` becomes the error of all calls in progress and completes a sentence
    /// about the engine. The first reason counts.
    pub(crate) fn kill(&self, why: impl Into<String>) {
        // Set before the process ends, so that a call that notices the end reports the reason and
        // not a signal.
        let _ = self.killed.set(why.into());
        self.ended.store(true, Ordering::Release);
        lock(&self.group).end();
    }

    /// Waits for the end of the process, and kills it if it does not come in time.
    pub(crate) fn end_within(&self, patience: Duration) {
        let mut group = lock(&self.group);
        let _ = group.how_it_ended(None, patience);
        group.end();
    }

    /// Returns why a call has lost its process: the reason if the host killed it, and otherwise how
    /// the process ended. Waits up to `patience` for its end, and returns `None` if it still runs
    /// then.
    pub(crate) fn why_lost(&self, patience: Duration) -> Option<String> {
        self.ended.store(true, Ordering::Release);
        if let Some(why) = self.killed.get() {
            return Some(why.clone());
        }
        let how = lock(&self.group).how_it_ended(self.memory, patience)?;
        Some(format!("its process {how}"))
    }
}

/// A process that may lead a group of its own, which the processes that it has started belong to. One
/// of them may hold the pipe open that the host reads from, so the group is killed whenever its
/// leader has ended.
#[derive(Debug)]
struct Group {
    leader: Child,
    /// Whether the leader was waited for. Its number, which is the group's, may belong to another
    /// process from then on.
    is_reaped: bool,
    status: Option<ExitStatus>,
}

impl Group {
    /// Whether the leader has ended. It is not waited for here, so its number stays that of its
    /// group.
    fn has_ended(&mut self) -> bool {
        self.is_reaped || self.has_exited() != Some(false)
    }

    /// Looks at the leader without waiting for it. `None` if it is not a child of this process, such
    /// as after a fork, or if the operating system has waited for it.
    fn has_exited(&mut self) -> Option<bool> {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
            let leader = WaitId::Pid(Pid::from_child(&self.leader));
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(leader, options).ok().map(|ended| ended.is_some())
        }
        #[cfg(not(unix))]
        self.leader.try_wait().ok().map(|ended| ended.is_some())
    }

    /// Kills the group and waits for its leader, so that no zombie is left.
    fn end(&mut self) {
        if self.is_reaped {
            return;
        }
        #[cfg(unix)]
        if self.has_exited().is_some() {
            use rustix::process::{Pid, Signal, kill_process_group};
            let _ = kill_process_group(Pid::from_child(&self.leader), Signal::KILL);
        }
        // Fails if the process has ended already.
        let _ = self.leader.kill();
        self.status = self.leader.wait().ok();
        self.is_reaped = true;
    }

    /// Returns how the leader ended, as the rest of a sentence for a person, and kills the rest of
    /// its group. Waits up to `patience`, and returns `None` if the leader still runs then.
    fn how_it_ended(&mut self, memory: Option<u64>, patience: Duration) -> Option<String> {
        let began = Instant::now();
        while !self.has_ended() {
            if began.elapsed() >= patience {
                return None;
            }
            std::thread::sleep(STEP);
        }
        self.end();
        self.status.map(|status| words(status, memory))
    }
}

/// How often the host looks whether a process has ended that is about to.
const STEP: Duration = Duration::from_millis(2);

/// How a process ended, as the rest of a sentence for a person. `memory` is the limit of its address
/// space, which an abort may be due to.
fn words(status: ExitStatus, memory: Option<u64>) -> String {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    match (signal, status.code()) {
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
    }
}

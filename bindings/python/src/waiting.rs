//! Runs long operations so that Ctrl-C can end the wait, and so that a fork does not happen in the
//! middle of one.
//!
//! Python handles signals only on its main thread, and only while that thread holds the
//! interpreter. [`wait_for`] therefore runs an operation that the main thread asks for on a
//! separate thread, and checks for signals every 20 milliseconds. [`at_once`] is for operations so
//! short that nobody would interrupt them.
//!
//! A call that `asyncio` makes runs on a thread of a pool, where no signal arrives. An
//! [`Interrupt`] ends its wait instead.
//!
//! The second part of the module counts the calls in progress. `before_fork` waits for them for a
//! short time, because a child that is forked during a call inherits locks whose owners do not
//! exist in it.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use contexture::{PerProcess, lock};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::ContextureError;

/// How often a wait checks for signals. Shorter would cost time in long waits, longer would make
/// Ctrl-C feel slow.
const LOOK: Duration = Duration::from_millis(20);

/// The stack size of the separate thread in bytes, that of a process's main thread on most systems.
const STACK: usize = 8 << 20;

thread_local! {
    static INTERRUPT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs something with the interpreter released.
///
/// If a signal's handler raises meanwhile, or an [`Interrupt`] is set, `cancel` is called and the
/// wait ends. The operation itself then runs to its end on its own thread, and its result is
/// dropped.
///
/// # Errors
/// Returns the errors of `act`, and the exception that a signal's handler raises. If `act` panics,
/// the panic becomes an error, too.
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    cancel: impl FnOnce(),
    act: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let act = move || guarded(act);
    let interrupt = INTERRUPT.with_borrow(Option::clone);
    // If the interpreter is shutting down, `threading` and signals may already be gone.
    if interrupt.is_none() && !is_main_thread(py).unwrap_or(false) {
        return py.detach(act);
    }
    let (sender, mut answer) = sync_channel(1);
    Builder::new()
        .name("contexture-call".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            // The receiver is gone if the wait was interrupted.
            let _ = sender.send(act());
        })
        .map_err(|error| ContextureError::new_err(format!("no thread can be started: {error}")))?;
    loop {
        let received;
        (answer, received) = py.detach(move || {
            let received = answer.recv_timeout(LOOK);
            (answer, received)
        });
        match received {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err(a_bug(&"")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
        let raised = match interrupt.as_ref().is_some_and(is_set) {
            true => Err(PyKeyboardInterrupt::new_err("the call was cancelled")),
            false => py.check_signals(),
        };
        if let Err(raised) = raised {
            cancel();
            return Err(raised);
        }
    }
}

/// Runs something quick on this thread, with the interpreter released. A separate thread would take
/// longer than the operation.
///
/// # Errors
/// Returns the errors of `act`. If it panics, the panic becomes an error, too.
pub(crate) fn at_once<T: Send>(
    py: Python<'_>,
    act: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| guarded(act))
}

/// Runs something as a call in progress, for which a fork waits. A panic becomes an error, because
/// unwinding into Python would raise an exception that `except Exception` does not catch.
fn guarded<T>(act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let _call = Call::begin();
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(a_bug(panic.as_ref())))
}

/// The error for a panic. It asks for a bug report, since no input should make the host panic.
fn a_bug(panic: &(dyn Any + Send)) -> PyErr {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    ContextureError::new_err(format!(
        "the call ended without an answer; please report this as a bug of contexture: {said}"
    ))
}

/// Returns whether this thread is Python's main thread. Signals are handled on that thread only.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let this = threading.call_method0("get_ident")?;
    threading
        .call_method0("main_thread")?
        .getattr("ident")?
        .eq(this)
}

/// How long a fork waits for calls in progress. A call may wait for a slow model, so the wait has a
/// limit.
const FORK_WAITS: Duration = Duration::from_secs(2);

/// The calls in progress in this process.
///
/// Global values are initialised on first use, inside such a call. A child that is forked during
/// the initialisation would wait for it forever, since the thread that does it does not exist in
/// the child.
#[derive(Default)]
struct Calls {
    under_way: Mutex<UnderWay>,
    changed: Condvar,
}

/// The number of calls in progress, and of threads that are about to fork.
#[derive(Default)]
struct UnderWay {
    calls: usize,
    forks: usize,
}

static CALLS: PerProcess<Calls> = PerProcess::new(Calls {
    under_way: Mutex::new(UnderWay { calls: 0, forks: 0 }),
    changed: Condvar::new(),
});

impl Calls {
    fn change(&self, change: impl FnOnce(&mut UnderWay)) {
        change(&mut lock(&self.under_way));
        self.changed.notify_all();
    }
}

/// A call in progress. It ends when this value is dropped, even after a panic.
struct Call {
    process: u32,
}

impl Call {
    /// Begins a call. If threads are about to fork, it first waits for them, so that a process with
    /// many calls can fork at all.
    fn begin() -> Self {
        let calls = CALLS.get();
        let under_way = lock(&calls.under_way);
        let waited = calls
            .changed
            .wait_timeout_while(under_way, 2 * FORK_WAITS, |now| now.forks > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.calls += 1;
        Self {
            process: std::process::id(),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A child that was forked during the call has a count of its own, which began at zero.
        if self.process == std::process::id() {
            CALLS.get().change(|now| now.calls -= 1);
        }
    }
}

/// Waits for calls in progress, before Python forks. After two seconds the fork goes on anyway, so
/// a slow model does not block it.
#[pyfunction]
fn before_fork(py: Python<'_>) {
    py.detach(|| {
        let calls = CALLS.get();
        let mut under_way = lock(&calls.under_way);
        under_way.forks += 1;
        let waited = calls
            .changed
            .wait_timeout_while(under_way, FORK_WAITS, |now| now.calls > 0);
        drop(waited);
    });
}

/// Lets new calls begin. Python calls it in the parent after the fork. The child has a count of its
/// own.
#[pyfunction]
fn after_fork(py: Python<'_>) {
    py.detach(|| {
        CALLS
            .get()
            .change(|now| now.forks = now.forks.saturating_sub(1))
    });
}

/// Adds the class `Interrupt` to the module and registers the hooks for forks, on systems that have
/// `fork`.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Interrupt>()?;
    let os = module.py().import("os")?;
    // Windows has no `fork`, so it needs no hooks.
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let hooks = PyDict::new(module.py());
    hooks.set_item("before", wrap_pyfunction!(before_fork, module)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork, module)?)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// Ends the wait of a call in another thread. The `asyncio` variants use it when their task is
/// cancelled.
#[pyclass(frozen, module = "contexture._native")]
pub(crate) struct Interrupt(Arc<AtomicBool>);

#[pymethods]
impl Interrupt {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Runs a call on this thread. If this interrupt is set, the waits of the call end.
    #[pyo3(signature = (call, *arguments, **named))]
    fn run<'py>(
        &self,
        call: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let before = INTERRUPT.replace(Some(Arc::clone(&self.0)));
        let result = call.call(arguments, named);
        INTERRUPT.set(before);
        result
    }

    /// Ends the waits of the calls that run under this interrupt, and of those that begin later.
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

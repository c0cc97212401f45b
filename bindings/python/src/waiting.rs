//! Runs long operations so that Ctrl-C can end the wait. Python's main thread handles signals, and only while it holds
//! the interpreter. So an operation that the main thread calls runs on a separate thread.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use contexture::PerProcess;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::ContextureError;
use crate::host::lock;

/// How often a wait checks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// The minimum stack size of a process's main thread.
const STACK: usize = 8 << 20;

thread_local! {
    static INTERRUPT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs something with the interpreter released. If a signal's handler raises meanwhile, or an [`Interrupt`] is set,
/// `cancel` is called and the wait ends. The operation itself runs to its end, and its result is dropped.
///
/// # Errors
/// The errors of `act`, and the exception that a signal's handler raises. A panic becomes an error, too.
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    cancel: impl FnOnce(),
    act: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let act = move || guarded(act);
    let interrupt = INTERRUPT.with_borrow(Option::clone);
    // When the interpreter shuts down, `threading` and signals may already be gone.
    if interrupt.is_none() && !is_main_thread(py).unwrap_or(false) {
        return py.detach(act);
    }
    let (sender, mut answer) = sync_channel(1);
    Builder::new()
        .name("contexture-call".to_owned())
        .stack_size(STACK)
        .spawn(move || {
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

/// Runs something quick with the interpreter released. A separate thread would take longer.
///
/// # Errors
/// The errors of `act`. A panic becomes an error, too.
pub(crate) fn at_once<T: Send>(
    py: Python<'_>,
    act: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| guarded(act))
}

fn guarded<T>(act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let _call = Call::begin();
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(a_bug(panic.as_ref())))
}

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

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let this = threading.call_method0("get_ident")?;
    threading
        .call_method0("main_thread")?
        .getattr("ident")?
        .eq(this)
}

/// How long a fork waits for calls in progress.
const FORK_WAITS: Duration = Duration::from_secs(2);

/// The calls in progress in this process. Lazily initialized values are initialized inside such a call. A child that is
/// forked during the initialization would wait for it for ever.
#[derive(Default)]
struct Calls {
    under_way: Mutex<UnderWay>,
    changed: Condvar,
}

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

/// A call in progress; it ends on drop.
struct Call {
    process: u32,
}

impl Call {
    /// Begins a call, after waiting for threads that are about to fork.
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
        // A child that was forked during the call has its own count.
        if self.process == std::process::id() {
            CALLS.get().change(|now| now.calls -= 1);
        }
    }
}

/// Called before Python forks. Waits for calls in progress, but not for a slow model.
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

/// Called in the parent after the fork.
#[pyfunction]
fn after_fork(py: Python<'_>) {
    py.detach(|| {
        CALLS
            .get()
            .change(|now| now.forks = now.forks.saturating_sub(1))
    });
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Interrupt>()?;
    let os = module.py().import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let hooks = PyDict::new(module.py());
    hooks.set_item("before", wrap_pyfunction!(before_fork, module)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork, module)?)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// Ends the wait of a call in another thread, for a call that `asyncio` cancelled.
#[pyclass(frozen, module = "contexture._native")]
pub(crate) struct Interrupt(Arc<AtomicBool>);

#[pymethods]
impl Interrupt {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Runs a call whose waits end when this is set.
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

    /// Ends the waits.
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

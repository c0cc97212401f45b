//! Waiting for what takes its time, so that Ctrl-C ends the wait. Python's signals are handled by its main thread, and
//! only while that has the interpreter; so what a call of the main thread does is done by a thread of its own.

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

/// How often a wait looks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// What the main thread of a process has at least.
const STACK: usize = 8 << 20;

thread_local! {
    static INTERRUPT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Does something without the interpreter. Where a signal's handler raises meanwhile, or an [`Interrupt`] is set, `cancel`
/// is called and the wait ends; what is done goes on to its end, and what comes of it is dropped.
///
/// # Errors
/// Those of `act`; what a signal's handler raises. A panic is an error, too.
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    cancel: impl FnOnce(),
    act: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let act = move || guarded(act);
    let interrupt = INTERRUPT.with_borrow(Option::clone);
    // At the interpreter's end `threading` may be gone, and signals with it.
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

/// Does what takes no time without the interpreter: a thread of its own would take longer.
///
/// # Errors
/// Those of `act`. A panic is an error, too.
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

/// How long a fork waits for the calls that are under way.
const FORK_WAITS: Duration = Duration::from_secs(2);

/// The calls of this process that are under way. What is made once, at its first use, is made in one of them: a child that
/// is forked meanwhile would wait for it for ever.
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

/// A call that is under way, until it is dropped.
struct Call {
    process: u32,
}

impl Call {
    /// Begins one, once no thread is about to fork.
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
        // A child that was forked in the call counts its own.
        if self.process == std::process::id() {
            CALLS.get().change(|now| now.calls -= 1);
        }
    }
}

/// Python is about to fork: waits for what is under way, but not for a model that takes long.
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

/// It has forked, and this is the parent.
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

/// What ends the wait of a call in another thread: that of a call which `asyncio` cancelled.
#[pyclass(frozen, module = "contexture._native")]
pub(crate) struct Interrupt(Arc<AtomicBool>);

#[pymethods]
impl Interrupt {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Makes a call, whose waits end once this is set.
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

    /// Ends them.
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

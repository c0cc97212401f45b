//! Values that a child created by `fork` must not share with its parent. The child has none of
//! the parent's threads. If one of these threads held a lock during the `fork`, the lock would
//! stay locked in the child forever.

use std::sync::OnceLock;

/// A value for a `static` that every process has its own copy of. A child created by `fork`
/// gets a new value at its first use. It neither locks nor drops the value of its parent.
///
/// ```
/// use std::sync::Mutex;
///
/// use contexture_base::PerProcess;
///
/// static NAMES: PerProcess<Mutex<Vec<String>>> = PerProcess::new(Mutex::new(Vec::new()));
/// NAMES.get().lock().unwrap().push("one".to_owned());
/// assert_eq!(NAMES.get().lock().unwrap().len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct PerProcess<T> {
    /// The id of the process that owns the value. It is set at the first use.
    process: OnceLock<u32>,
    value: T,
    /// The value for a child of that process. A child of the child uses the next one, so the
    /// chain is as long as the line of forks.
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> PerProcess<T> {
    /// Creates the cell with the value for the first process that uses it. Being `const`, it
    /// works in a `static`.
    pub const fn new(value: T) -> Self {
        Self {
            process: OnceLock::new(),
            value,
            next: OnceLock::new(),
        }
    }
}

impl<T: Default> PerProcess<T> {
    /// Returns the value of this process, creating it if a `fork` happened since the last call.
    /// Except during the first use, this takes no lock that another thread could hold during a
    /// `fork`.
    pub fn get(&self) -> &T {
        let process = std::process::id();
        let mut one = self;
        // The chain is only ever extended, so a reference into it stays valid.
        while *one.process.get_or_init(|| process) != process {
            one = one.next.get_or_init(Box::default);
        }
        &one.value
    }
}

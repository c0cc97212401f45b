//! Values that a child made by `fork` must not share with its parent. The child has none of the parent's threads, so a
//! lock that one of them held would stay locked in the child for ever.

use std::sync::OnceLock;

/// A value for a `static` of which every process has its own copy. A child made by `fork` gets a new value at its first
/// use. It neither locks nor drops its parent's value.
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
    /// The id of the process that owns the value, set at its first use.
    process: OnceLock<u32>,
    value: T,
    /// The value for a child of that process.
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> PerProcess<T> {
    /// Makes it with the value for the first process that uses it.
    pub const fn new(value: T) -> Self {
        Self {
            process: OnceLock::new(),
            value,
            next: OnceLock::new(),
        }
    }
}

impl<T: Default> PerProcess<T> {
    /// The value of this process. Except during the first use, no lock is taken that another thread could hold during a
    /// `fork`.
    pub fn get(&self) -> &T {
        let process = std::process::id();
        let mut one = self;
        while *one.process.get_or_init(|| process) != process {
            one = one.next.get_or_init(Box::default);
        }
        &one.value
    }
}

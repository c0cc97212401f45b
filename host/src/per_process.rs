//! Values that a child made by `fork` must not share with its parent: of the parent's threads none is in the child, and a
//! lock that one of them held stays locked there for ever.

use std::sync::OnceLock;

/// A value that every process has for itself, for a `static`. A child made by `fork` gets a new one at its first use,
/// and leaves its parent's alone: that is neither locked nor dropped.
///
/// ```
/// use std::sync::Mutex;
///
/// use contexture::PerProcess;
///
/// static NAMES: PerProcess<Mutex<Vec<String>>> = PerProcess::new(Mutex::new(Vec::new()));
/// NAMES.get().lock().unwrap().push("one".to_owned());
/// assert_eq!(NAMES.get().lock().unwrap().len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct PerProcess<T> {
    /// Whose the value is; unset until its first use.
    process: OnceLock<u32>,
    value: T,
    /// The value of a child of that process.
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> PerProcess<T> {
    /// With the value of the first process that uses it.
    pub const fn new(value: T) -> Self {
        Self {
            process: OnceLock::new(),
            value,
            next: OnceLock::new(),
        }
    }
}

impl<T: Default> PerProcess<T> {
    /// The value of this process. Takes no lock that a thread could hold while another one forks, but for the moment
    /// of the first use.
    pub fn get(&self) -> &T {
        let process = std::process::id();
        let mut one = self;
        while *one.process.get_or_init(|| process) != process {
            one = one.next.get_or_init(Box::default);
        }
        &one.value
    }
}

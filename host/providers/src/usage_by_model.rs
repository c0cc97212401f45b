//! What model calls used, added up by model, so that a program can say what they cost.

use std::collections::BTreeMap;
use std::sync::Mutex;

use contexture_base::lock;
use contexture_engine_api::Usage;

/// The tokens that model calls used, by the name of the model that was asked. Give one to
/// [`ModelClient::ask`](crate::ModelClient::ask), which adds every answer that a provider charges
/// for: also those that cannot be used, such as one that was cut off, and those of retries.
///
/// An answer without reported usage adds nothing, and so does a call that was cancelled before its
/// answer came.
#[derive(Debug, Default)]
pub struct UsageByModel(Mutex<BTreeMap<String, Usage>>);

impl UsageByModel {
    /// Adds the usage of one answer of `model`.
    pub fn add(&self, model: &str, usage: Usage) {
        if usage != Usage::default() {
            *lock(&self.0).entry(model.to_owned()).or_default() += usage;
        }
    }

    /// Returns what was added since the last call of this.
    pub fn take(&self) -> BTreeMap<String, Usage> {
        std::mem::take(&mut lock(&self.0))
    }
}

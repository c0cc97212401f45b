//! Asking the model while somebody waits.

use contexture_cooldown::CoolDowns;
use contexture_engine_api::{EngineError, FailureKind, ModelInfo};

use crate::summariser::Summariser;

/// The summary, asked of the model while the caller waits. The inner error says, for a person, why there is none.
///
/// # Errors
/// [`EngineError::Cancelled`] where the host gave the call up.
pub fn ask_now(
    mut summariser: Summariser,
    model: &ModelInfo,
    cool_downs: &mut CoolDowns,
    force: bool,
) -> Result<Result<String, String>, EngineError> {
    let services = summariser.services().clone();
    // A forced compaction may follow a fix of the problem.
    if let Some(cool_down) = cool_downs.in_force().filter(|_| !force) {
        let seconds = (cool_down.until_ms - services.now_ms()) / 1_000;
        return Ok(Err(format!(
            "{} failed ({}) and is left alone for another {seconds} s",
            model.name, cool_down.failure
        )));
    }
    loop {
        if services.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let requests = summariser.requests();
        let answers = match requests.as_slice() {
            [one] => vec![services.complete(one)],
            many => services.complete_many(many),
        };
        match summariser.answered(answers) {
            Ok(Some(notes)) => {
                cool_downs.succeeded();
                return Ok(Ok(notes));
            }
            Ok(None) => {}
            Err(failure) if failure.kind == FailureKind::Cancelled => {
                return Err(EngineError::Cancelled);
            }
            Err(failure) => {
                cool_downs.failed(&model.name, &failure);
                return Ok(Err(failure.message));
            }
        }
    }
}

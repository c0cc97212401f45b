use super::{Context, object};
use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(super) struct Arguments {}

pub(super) fn parameters() -> Value { object(json!({}), &[]) }

pub(super) fn run(_context: &mut Context<'_>, _arguments: Arguments) -> Result<Value, EngineError> {
    Err(EngineError::Unsupported("search".to_owned()))
}

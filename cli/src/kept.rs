//! What an engine keeps, for the commands that only ask.

use contexture::engines::{CallError, Engines, OpenError};
use contexture_engine_api::{EngineError, StoreCommand};
use serde_json::Value;

use crate::error::CliError;

/// What an engine says of all that it keeps; none where it keeps no sessions at all.
pub(crate) fn list(engines: &Engines, engine: &str) -> Result<Option<Value>, CliError> {
    match engines.manage(Some(engine), &StoreCommand::List) {
        Err(OpenError::Call(CallError::Failed {
            error: EngineError::Unsupported(_),
            ..
        })) => Ok(None),
        list => list.map(Some).map_err(CliError::of_keeper),
    }
}

/// How many of a session's messages have vectors.
pub(crate) struct Vectors {
    pub(crate) made: u64,
    pub(crate) missing: u64,
}

impl Vectors {
    /// The counts for one session from an answer to [`StoreCommand::Index`]; `None` if the engine makes no vectors.
    pub(crate) fn of(index: &Value) -> Option<Self> {
        Some(Self {
            made: index["sessions"][0]["embedded"].as_u64()?,
            missing: index["missing"].as_u64()?,
        })
    }

    /// Asks the engine for the counts; `None` if it makes no vectors.
    pub(crate) fn by(engines: &Engines, engine: &str, session: &str) -> Option<Self> {
        let command = StoreCommand::Index {
            session: Some(session.to_owned()),
            dry_run: true,
        };
        Self::of(&engines.manage(Some(engine), &command).ok()?)
    }
}

/// What an engine keeps of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It keeps this session.
    This,
    /// It keeps sessions, and this is none of them.
    Others,
    /// It keeps no sessions at all.
    Nothing,
}

impl Kept {
    /// Asks the engine.
    pub(crate) fn by(engines: &Engines, engine: &str, session: &str) -> Result<Self, CliError> {
        let Some(list) = list(engines, engine)? else {
            return Ok(Self::Nothing);
        };
        let sessions = list.get("sessions").and_then(Value::as_array);
        let is_it = |one: &Value| one.get("session").and_then(Value::as_str) == Some(session);
        Ok(match sessions.is_some_and(|all| all.iter().any(is_it)) {
            true => Self::This,
            false => Self::Others,
        })
    }
}

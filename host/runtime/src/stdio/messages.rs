//! The lines between the host and an engine that is a program: JSON-RPC 2.0, one message in a line.
//!
//! Calls have positional parameters. A method of the owned protocol has one argument: `null` becomes
//! no parameter, a tuple becomes its elements, and everything else is one parameter. The messages of
//! a call come first. In the other direction, the parameters of a service become its argument by
//! the same rule.

use contexture_engine_api::protocol::write;
use contexture_engine_api::{EngineError, MessageView, OwnedMessage, printable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

/// The codes of JSON-RPC for a method that does not exist, for parameters that are wrong, and for
/// everything else.
const NO_METHOD: i64 = -32601;
const WRONG_PARAMETERS: i64 = -32602;
const FAILED: i64 = -32000;

/// The characters besides the line feed that some programs take for the end of a line.
const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// A message that a process wrote.
pub(super) enum Incoming {
    /// The answer to the host's call, as JSON text.
    Answer(Result<String, EngineError>),
    /// A call of a service. It has no id if no answer is wanted. Its argument is an error if the
    /// parameters cannot be read.
    Call {
        id: Option<Value>,
        method: String,
        argument: Result<String, EngineError>,
    },
    /// The answer to another call than the one that waits, with its id.
    Other(Value),
}

#[derive(Deserialize)]
struct LineFields {
    method: Option<String>,
    id: Option<Value>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<ErrorObject>,
}

#[derive(Serialize, Deserialize)]
#[serde(expecting = "an object with `code`, a number, and `message`, a text")]
struct ErrorObject {
    code: i64,
    #[serde(default)]
    message: String,
    /// The error in its own form, such as `{"storage": "the disk is full"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

impl ErrorObject {
    fn of(error: &EngineError) -> Self {
        Self {
            code: match error {
                EngineError::UnknownMethod(_) => NO_METHOD,
                EngineError::Protocol(_) | EngineError::InvalidInput(_) => WRONG_PARAMETERS,
                _ => FAILED,
            },
            message: error.to_string(),
            data: serde_json::to_value(error).ok(),
        }
    }

    fn into_error(mut self) -> EngineError {
        if self.message.trim().is_empty() {
            self.message = format!("an error without a message, code {}", self.code);
        }
        match self.code {
            NO_METHOD => EngineError::UnknownMethod(self.message),
            code => {
                let own = self.data.map(serde_json::from_value::<EngineError>);
                match own {
                    // Only the host says that a process has ended or that an engine panicked.
                    Some(Ok(
                        error @ (EngineError::Settings(_)
                        | EngineError::Storage(_)
                        | EngineError::Model(_)
                        | EngineError::Unsupported(_)
                        | EngineError::InvalidInput(_)
                        | EngineError::Cancelled),
                    )) => error,
                    _ if code == WRONG_PARAMETERS => EngineError::InvalidInput(self.message),
                    _ => EngineError::Other(self.message),
                }
            }
        }
    }
}

impl Incoming {
    /// Reads a line. `call` is the number of the call that waits for an answer.
    ///
    /// # Errors
    /// Returns why the line is neither an answer nor a call, in words for its author.
    pub(super) fn read(line: &[u8], call: u64) -> Result<Self, String> {
        match line.trim_ascii_start().first() {
            Some(b'{') => {}
            Some(b'[') => return Err("a message is an object, and there are no batches".to_owned()),
            _ => return Err("what is meant for people belongs on standard error".to_owned()),
        }
        let line: LineFields = serde_json::from_slice(line).map_err(|error| what(&error, line))?;
        if let Some(method) = line.method {
            return Ok(Self::Call {
                id: line.id,
                method,
                argument: argument_of(line.params.as_deref()),
            });
        }
        let Some(id) = line.id else {
            return Err(
                "it has no `method`, as a call has, and its `id` is null or missing".to_owned(),
            );
        };
        if id != call {
            return Ok(Self::Other(id));
        }
        Ok(Self::Answer(match (line.error, line.result) {
            (Some(error), _) => Err(error.into_error()),
            (None, Some(result)) => Ok(result.get().to_owned()),
            (None, None) => Ok("null".to_owned()),
        }))
    }
}

/// Says what is wrong with a line. If it is not JSON, shows the place.
fn what(error: &serde_json::Error, line: &[u8]) -> String {
    match error.classify() {
        Category::Eof => "the line ends within the message: a message has one line".to_owned(),
        Category::Syntax => {
            let at = line.get(error.column().saturating_sub(1)..);
            let rest = String::from_utf8_lossy(at.unwrap_or_default());
            format!("{error}: `{}`", printable(rest.trim_end(), 40))
        }
        Category::Data | Category::Io => error.to_string(),
    }
}

/// Returns the argument of a service that was called with these parameters.
///
/// # Errors
/// Returns [`EngineError::Protocol`] if they are not a list. JSON-RPC allows an object with names.
fn argument_of(params: Option<&RawValue>) -> Result<String, EngineError> {
    let Some(params) = params else {
        return Ok("null".to_owned());
    };
    let by_position = |_| EngineError::Protocol("parameters are by position, in a list".to_owned());
    let mut params: Vec<&RawValue> = serde_json::from_str(params.get()).map_err(by_position)?;
    match params.len() {
        0 => Ok("null".to_owned()),
        1 => Ok(params.remove(0).get().to_owned()),
        _ => write(&params),
    }
}

/// Writes a call of the engine as a line.
///
/// # Errors
/// Returns [`EngineError::Protocol`] if the argument is not JSON text.
pub(super) fn call_line(
    id: u64,
    method: &str,
    argument: &str,
    messages: Option<&[MessageView<'_>]>,
) -> Result<String, EngineError> {
    #[derive(Serialize)]
    struct CallLine<'a> {
        jsonrpc: &'a str,
        id: u64,
        method: &'a str,
        params: Vec<Box<RawValue>>,
    }
    let mut params = Vec::new();
    if let Some(messages) = messages {
        let owned: Vec<OwnedMessage> = messages.iter().map(OwnedMessage::from).collect();
        params.push(raw(write(&owned)?)?);
    }
    match argument.as_bytes().first() {
        Some(b'[') => {
            let parts: Vec<Box<RawValue>> = serde_json::from_str(argument).map_err(broken)?;
            params.extend(parts);
        }
        _ if argument == "null" => {}
        _ => params.push(raw(argument.to_owned())?),
    }
    line(&CallLine {
        jsonrpc: "2.0",
        id,
        method,
        params,
    })
}

/// Writes the answer to a call of a service as a line.
///
/// # Errors
/// Returns [`EngineError::Protocol`] if the answer is not JSON text.
pub(super) fn answer_line(
    id: &Value,
    answer: Result<String, EngineError>,
) -> Result<String, EngineError> {
    #[derive(Serialize)]
    struct AnswerLine<'a> {
        jsonrpc: &'a str,
        id: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<ErrorObject>,
    }
    let (result, error) = match answer {
        Ok(answer) => (Some(raw(answer)?), None),
        Err(error) => (None, Some(ErrorObject::of(&error))),
    };
    line(&AnswerLine {
        jsonrpc: "2.0",
        id,
        result,
        error,
    })
}

fn line(message: &impl Serialize) -> Result<String, EngineError> {
    let mut line = write(message)?;
    // Node's `readline` and others take these for the ends of lines. In JSON text they only occur
    // in strings, where an escape means the same.
    if line.contains(LINE_ENDS) {
        line = (LINE_ENDS.iter()).fold(line, |line, &end| {
            line.replace(end, &format!("\\u{:04x}", u32::from(end)))
        });
    }
    line.push('\n');
    Ok(line)
}

fn raw(text: String) -> Result<Box<RawValue>, EngineError> {
    RawValue::from_string(text).map_err(broken)
}

fn broken(error: serde_json::Error) -> EngineError {
    EngineError::Protocol(error.to_string())
}

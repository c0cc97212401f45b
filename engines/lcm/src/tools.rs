//! The tools that the engine gives to the agent. Each answers with a JSON object of bounded size, and a
//! cursor where there is more.

mod describe;
mod doctor;
mod expand;
mod grep;
mod page;
mod query;
mod read;
mod recent;

use contexture_engine_api::{EngineError, MessageId, ToolCall, ToolSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::dag::NodeId;
use crate::session::Session;
use crate::settings::Settings;
use crate::store::{PayloadId, SessionId};

/// Tokens of an answer, where the call does not say.
const DEFAULT_TOKENS: u64 = 4_000;
/// Tokens of an answer, at most.
const MAX_TOKENS: u64 = 32_000;

/// What a tool works with.
pub(crate) struct Context<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) settings: &'a Settings,
}

/// The tools, for the model.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, parameters: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
    };
    vec![
        tool(
            "lcm_grep",
            "Searches everything ever said in this conversation, summarised or not. Hits are grouped by the \
             summary that covers them. Use `pattern` for exact search or `question` to rank by relevance.",
            grep::parameters(),
        ),
        tool(
            "lcm_describe",
            "Describes a summary (s12), a message (m34) or a file (f5): sizes, time span, what it is made of \
             and what covers it.",
            describe::parameters(),
        ),
        tool(
            "lcm_expand",
            "Gives back what is under a summary: the original messages word for word, page by page, or with \
             `depth` the summaries that it was made of.",
            expand::parameters(),
        ),
        tool(
            "lcm_expand_query",
            "Answers a question from the history: finds the messages it is about, reads them and answers, with \
             the ids it used. Without a model it gives the best passages.",
            query::parameters(),
        ),
        tool(
            "lcm_read",
            "Reads a stored message (m34) or file (f5) by line or byte range.",
            read::parameters(),
        ),
        tool(
            "lcm_recent",
            "The newest messages of this conversation, newest first.",
            recent::parameters(),
        ),
        tool(
            "lcm_status",
            "How much is stored, summarised and indexed.",
            object(json!({}), &[]),
        ),
        tool(
            "lcm_doctor",
            "Checks that nothing stored is damaged, that every message is accounted for and that the search \
             index is complete; with `repair` makes the index anew, after a backup.",
            doctor::parameters(),
        ),
    ]
}

/// Answers a call.
///
/// # Errors
/// [`EngineError::InvalidInput`] that says what is wrong with the arguments; a store that failed.
pub(crate) fn call(
    context: &mut Context<'_>,
    call: &ToolCall,
    status: impl FnOnce() -> Value,
) -> Result<Value, EngineError> {
    match call.name.as_str() {
        "lcm_grep" => grep::run(context, arguments(call)?),
        "lcm_describe" => describe::run(context, arguments(call)?),
        "lcm_expand" => expand::run(context, arguments(call)?),
        "lcm_expand_query" => query::run(context, arguments(call)?),
        "lcm_read" => read::run(context, arguments(call)?),
        "lcm_recent" => recent::run(context, arguments(call)?),
        "lcm_status" => Ok(status()),
        "lcm_doctor" => doctor::run(context, arguments(call)?),
        other => Err(EngineError::Unsupported(format!("the tool `{other}`"))),
    }
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, EngineError> {
    let text = match call.arguments.trim() {
        "" => "{}",
        text => text,
    };
    serde_json::from_str(text)
        .map_err(|error| EngineError::InvalidInput(format!("{}: {error}", call.name)))
}

/// The schema of an object with these properties.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn max_tokens_schema() -> Value {
    json!({
        "type": "integer", "minimum": 100, "maximum": MAX_TOKENS,
        "description": format!("The size of the answer, in tokens; {DEFAULT_TOKENS} by default"),
    })
}

fn cursor_schema() -> Value {
    json!({"type": "string", "description": "`next_cursor` of the page before"})
}

fn session_schema() -> Value {
    json!({"type": "string", "description": "Another session, where the configuration grants it"})
}

fn bounded(max_tokens: Option<u64>) -> u64 {
    max_tokens.unwrap_or(DEFAULT_TOKENS).clamp(100, MAX_TOKENS)
}

fn invalid(what: impl Into<String>) -> EngineError {
    EngineError::InvalidInput(what.into())
}

/// What an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id {
    Summary(NodeId),
    Message(MessageId),
    File(PayloadId),
}

impl Id {
    fn parse(text: &str) -> Result<Self, EngineError> {
        let text = text.trim();
        let number = || text.get(1..).and_then(|number| number.parse::<u32>().ok());
        let id = match text.get(..1) {
            Some("s") => number().map(|number| Self::Summary(NodeId(number.into()))),
            Some("m") => text
                .get(1..)
                .and_then(|number| number.parse().ok())
                .map(|number| Self::Message(MessageId(number))),
            Some("f") => number().map(|number| Self::File(PayloadId(number.into()))),
            _ => None,
        };
        id.ok_or_else(|| {
            invalid(format!(
                "`{text}` is no id; summaries are `s` and a number, messages `m`, files `f`, such as s12, m34, f5"
            ))
        })
    }
}

impl Context<'_> {
    /// The session that a call is about: this one, or another that it may read.
    fn scope(&self, name: Option<&str>) -> Result<SessionId, EngineError> {
        let Some(name) = name else {
            return Ok(self.session.id);
        };
        let found = self.session.store.find_session(name)?;
        match found {
            Some(id) if id == self.session.id => Ok(id),
            Some(id) if self.settings.may_search(name) => Ok(id),
            // Whether it exists is nobody's business either.
            _ => Err(invalid(format!(
                "the session `{name}` is not open to this one; `context.engines.lcm.searchable_sessions` in the \
                 configuration lists those that are"
            ))),
        }
    }
}

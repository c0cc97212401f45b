//! The tools that the engine gives to the model.
//!
//! A compaction takes messages out of the window, and the tools bring them back when the model
//! needs them: it can search everything said, expand a summary, or read a long text in parts. Each
//! tool is a submodule with its arguments, their JSON schema and a `run` function. [`specs`]
//! describes the tools to the model, and [`call`] runs one.
//!
//! The answer goes into the window, so its size is bounded. The `page` module counts its tokens. If
//! there is more, the answer has a cursor, which the model passes back for the next page. An error
//! says what is wrong with an argument, so that the model can correct its call.

mod describe;
mod doctor;
mod expand;
mod grep;
mod page;
mod query;
mod read;
mod recent;
mod status;

use std::str::FromStr;

use contexture_engine_api::{EngineError, MessageId, ToolCall, ToolSpec, printable};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::dag::{Node, NodeId};
use crate::dates::rfc3339;
use crate::error::StoreError;
use crate::session_state::SessionState;
use crate::settings::Settings;
use crate::store::nodes;
use crate::store::{Key, MessageRow, PayloadId, PayloadInfo, SessionId, StoredMessage};
use page::{MAX_TOKENS, MIN_TOKENS};

/// What a tool works with: the session of the caller, and the settings that say what else it may
/// read.
pub(crate) struct Context<'a> {
    pub(crate) session: &'a mut SessionState,
    pub(crate) settings: &'a Settings,
}

/// The maximum number of characters of a wrong argument that an error shows.
const SHOWN: usize = 80;

/// Returns the descriptions of the tools for the model. The host puts them into every request, so
/// they should be short.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, parameters: Value| {
        ToolSpec::new(name.to_owned(), description.to_owned(), parameters)
    };
    vec![
        tool(
            "lcm_grep",
            "Search everything said in this conversation, summarised or not. `pattern` finds and counts every match; \
             `question` ranks by relevance. A hit has an id (m message, s summary), the line and byte of its first \
             match, for lcm_read, and the summary that covers it. `in_conversation: false` marks what was edited or \
             rewound away.",
            grep::parameters(),
        ),
        tool(
            "lcm_expand",
            "Return the original messages under a summary (s12), or one message (m34), as JSON, word for word, page \
             by page. A long message comes in parts: join the `message` of equal ids.",
            expand::parameters(),
        ),
        tool(
            "lcm_expand_query",
            "Answer a question from the history: a model reads the messages about it and names the ids that the \
             answer rests on. Without a model, return the best passages.",
            query::parameters(),
        ),
        tool(
            "lcm_read",
            "Read the text of a message (m34; tool calls follow the text), a file (f5) or a summary (s12): all of \
             it, or a range of lines or bytes.",
            read::parameters(),
        ),
        tool(
            "lcm_describe",
            "Describe a summary (s12: span, text, sources), a message (m34) or a file (f5, a long text): sizes, \
             time, covering summary, preview.",
            describe::parameters(),
        ),
        tool(
            "lcm_recent",
            "List the last messages, newest first, each cut to 800 characters.",
            recent::parameters(),
        ),
        tool(
            "lcm_status",
            "Show how much is stored, summarised and indexed, and when compaction is next due.",
            status::parameters(),
        ),
        tool(
            "lcm_doctor",
            "Check that nothing stored is damaged, that each message is in the window or under one summary, and \
             that the search index is right. Reads everything: slow.",
            doctor::parameters(),
        ),
    ]
}

/// Answers a call of a tool. `engine` is the status of the engine itself, which only `lcm_status`
/// uses.
///
/// # Errors
/// [`EngineError::InvalidInput`] if an argument is wrong, with what is wrong about it.
/// [`EngineError::Unsupported`] if there is no such tool. Any other error comes from the store.
pub(crate) fn call(
    context: &mut Context<'_>,
    call: &ToolCall,
    engine: &Value,
) -> Result<Value, EngineError> {
    match call.name.as_str() {
        "lcm_grep" => grep::run(context, arguments(call)?),
        "lcm_describe" => describe::run(context, arguments(call)?),
        "lcm_expand" => expand::run(context, arguments(call)?),
        "lcm_expand_query" => query::run(context, arguments(call)?),
        "lcm_read" => read::run(context, arguments(call)?),
        "lcm_recent" => recent::run(context, arguments(call)?),
        "lcm_status" => status::run(context, engine, &arguments(call)?),
        "lcm_doctor" => doctor::run(context, arguments(call)?),
        other => Err(EngineError::Unsupported(format!("the tool `{other}`"))),
    }
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, EngineError> {
    let wrong =
        |error: serde_json::Error| EngineError::InvalidInput(format!("{}: {error}", call.name));
    let mut given: Value = serde_json::from_str(&call.arguments).map_err(wrong)?;
    if let Some(given) = given.as_object_mut() {
        // Some models fill in every argument, and leave those they do not need empty. An empty text
        // is therefore treated as a missing argument.
        given.retain(|_, value| value != "");
    }
    serde_json::from_value(given).map_err(wrong)
}

/// Returns the schema of an object with these properties. No others are allowed, so that a
/// misspelled argument is an error instead of being ignored.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn max_tokens_schema() -> Value {
    json!({"type": "integer", "minimum": MIN_TOKENS, "maximum": MAX_TOKENS, "description": "Maximum answer tokens"})
}

fn cursor_schema() -> Value {
    json!({"type": "string", "description": "`next_cursor` of the previous page"})
}

fn session_schema() -> Value {
    json!({"type": "string", "description": "Another session, if allowed"})
}

/// Adds a time to an item of an answer if it is known, and a mark if it is only an estimate.
fn put_time(item: &mut Value, at_ms: Option<i64>, is_exact: bool) {
    put(item, "at", at_ms.map(rfc3339));
    let is_approximate = at_ms.is_some() && !is_exact;
    put(item, "at_is_approximate", is_approximate.then_some(true));
}

/// Adds a field to an item of an answer if it has a value.
fn put(item: &mut Value, name: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        item[name] = json!(value);
    }
}

fn invalid(what: impl Into<String>) -> EngineError {
    EngineError::InvalidInput(what.into())
}

/// Reads the cursor of a tool whose cursors are plain numbers. Returns None for the first page, which
/// has no cursor.
fn page_start<T: FromStr>(cursor: Option<&str>, tool: &str) -> Result<Option<T>, EngineError> {
    let number = |cursor: &str| {
        cursor.parse().map_err(|_| {
            invalid(format!(
                "`{}` is not a cursor of {tool}; pass `next_cursor` of the previous page",
                printable(cursor, SHOWN)
            ))
        })
    };
    cursor.map(number).transpose()
}

/// What an id names. Ids of different kinds have different letters, so that one argument can take
/// them all.
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
                "`{}` is not an id; ids are like s12, m34, f5 (a summary, a message, a file)",
                printable(text, SHOWN)
            ))
        })
    }
}

impl Context<'_> {
    /// Returns the session that a call is about: this one if no name is given, or another one that
    /// it may read. The settings and the host both have to allow that.
    ///
    /// # Errors
    /// Returns an error if the session may not be read or does not exist.
    fn scope(&self, name: Option<&str>) -> Result<SessionId, EngineError> {
        let Some(name) = name else {
            return Ok(self.session.id);
        };
        let found = self.session.store.find_session(name)?;
        let may_search =
            || self.settings.may_search(name) && self.session.services.may_read_session(name);
        match found {
            Some(id) if id == self.session.id || may_search() => Ok(id),
            None if may_search() => Err(StoreError::Unknown(format!("session `{name}`")).into()),
            // The answer is the same whether the session exists or not, so that a session cannot
            // find out the names of others.
            _ => Err(invalid(format!(
                "this session may not read the session `{}`; `context.engines.lcm.searchable_sessions` in the \
                 configuration lists those it may read",
                printable(name, SHOWN)
            ))),
        }
    }

    /// Returns the row of a message with its content. The content is None if the transcript does not
    /// have the message, so that a tool can still say what it was.
    fn message(&self, key: Key) -> Result<(MessageRow, Option<StoredMessage>), EngineError> {
        let ordinals = key.ordinal()..key.ordinal() + 1;
        let mut found = self.session.store.contents(key.session(), ordinals)?;
        found.pop().ok_or_else(|| {
            EngineError::Storage(format!(
                "message {} is missing from the store",
                key.ordinal()
            ))
        })
    }

    fn summary(&self, session: SessionId, id: NodeId) -> Result<Node, EngineError> {
        nodes::node(&self.session.store, session, id)?
            .ok_or_else(|| invalid(format!("there is no summary {id} in this session")))
    }

    /// Returns the description of a file of a session. A file of another session counts as unknown,
    /// because file ids are unique in the store and could be guessed.
    fn file(&self, session: SessionId, id: PayloadId) -> Result<PayloadInfo, EngineError> {
        let unknown = || invalid(format!("there is no file f{} in this session", id.0));
        match self.session.store.payload_info(id) {
            Ok(info) if info.session == session => Ok(info),
            Ok(_) | Err(StoreError::Unknown(_)) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_names::NAMES;

    #[test]
    fn the_tools_have_the_names_by_which_they_are_recognised() {
        let specs = specs();
        let names = specs.iter().map(|tool| tool.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), NAMES);
    }
}

//! The engine's tools in requests.
//!
//! If the engine asks for it, its tools are in every request from the first one on. Otherwise they
//! are added once a compaction hides something, because before that the model sees everything that
//! the tools could find. An engine may also limit how often they are called, and
//! [`EngineLink::tools_denied`] then forbids them for a request.
//!
//! The list changes only at a compaction, and then only grows. Tools precede all messages in a
//! prompt, so a changed list makes the provider's whole prompt cache useless.
//!
//! Read [`EngineLink::offer_tools`] first. Calls of these tools come back through
//! [`EngineLink::call_tool`].

use contexture_config::OnFailure;
use contexture_engine_api::{EngineError, ToolCall, ToolSpec};
use contexture_runtime::supervision::{CallError, Deadline};

use super::EngineLink;
use crate::conversation::ConversationState;
use crate::error::SessionError;

/// The tools may take up one part in this many of the room for messages, which is the usable window
/// without the system prompt. Larger tools would cause more compactions than what they find is
/// worth.
const ROOM_SHARE: u64 = 4;

/// A tool of the engine that is in the requests.
#[derive(Debug)]
pub(crate) struct Offered {
    /// The engine's own name for the tool.
    own: String,
    /// The tool as requests have it. Its name differs from `own` if the client has a tool with the
    /// same name.
    tool: ToolSpec,
}

/// The engine's tools in the requests of a session.
#[derive(Debug, Default)]
pub(crate) struct OfferedTools {
    /// Whether the options want the tools in requests even if the engine leaves that to the agent.
    wanted: bool,
    /// The tools that are in every request. The list only grows, except that it is emptied when the
    /// engine is closed.
    tools: Vec<Offered>,
    /// Their tokens.
    tokens: u64,
}

impl OfferedTools {
    /// No tools yet. `wanted` is [`SessionOptions::offer_tools`](crate::SessionOptions::offer_tools).
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }
}

/// What decides which tools of the engine a request gets.
pub(crate) struct ToolRoom<'a> {
    /// Whether a compaction was just made, so that more tools may be added.
    pub(crate) is_compacted: bool,
    /// Whether the model does not see everything that was said.
    pub(crate) hides_something: bool,
    /// The names of the client's own tools.
    pub(crate) taken: &'a [String],
    /// The tokens that messages and tools have room in, beside the system prompt.
    pub(crate) room: u64,
    /// The tokens of a tool in the format of the request.
    pub(crate) cost: &'a dyn Fn(&ToolSpec) -> u64,
}

impl EngineLink {
    /// Decides which tools of the engine are in the requests. Returns their tokens.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(crate) fn offer_tools(&mut self, room: &ToolRoom<'_>) -> Result<u64, SessionError> {
        self.withdraw_tools();
        let always = self.engine.about().offers_tools;
        let is_due = always || (self.tools.wanted && room.hides_something);
        let is_known = !self.tools.tools.is_empty() && !room.is_compacted;
        if !is_due || is_known {
            return Ok(self.tools.tokens);
        }
        let tools = match self.tools() {
            Ok(tools) => tools,
            Err(error) => return self.not_told(error).map(|()| self.tools.tokens),
        };
        let mut added = Vec::new();
        let mut added_tokens = 0;
        for tool in tools {
            if self
                .tools
                .tools
                .iter()
                .any(|offered| offered.own == tool.name)
            {
                continue;
            }
            if !is_offerable(&tool) {
                self.warnings.add(format!(
                    "the tool `{}` of engine `{}` is not offered: its name must be letters, digits, `_` and `-`, 64 \
                     at most, and its parameters a JSON schema of an object. Report it to the engine's author.",
                    tool.name.escape_default(),
                    self.engine.name()
                ));
                continue;
            }
            let own = tool.name.clone();
            let name = match room.taken.contains(&own) {
                true => format!("{}_{own}", self.engine.name()),
                false => own.clone(),
            };
            let tool = tool.name(name);
            added_tokens += (room.cost)(&tool);
            added.push(Offered { own, tool });
        }
        let tokens = self.tools.tokens + added_tokens;
        // The result is the same after a restart, because neither figure depends on the messages.
        if always || tokens * ROOM_SHARE <= room.room {
            self.tools.tokens = tokens;
            self.tools.tools.extend(added);
        }
        Ok(self.tools.tokens)
    }

    /// Removes the tools from requests if the engine is no longer called, because nobody would
    /// answer their calls.
    fn withdraw_tools(&mut self) {
        if self.engine.is_closed() {
            self.tools.tools.clear();
            self.tools.tokens = 0;
        }
    }

    /// Whether the session adds the engine's tools to requests at all.
    fn offers_tools(&self) -> bool {
        self.tools.wanted || self.engine.about().offers_tools
    }

    /// The names that the engine's tools have in the requests.
    pub(crate) fn offered_tools(&self) -> impl Iterator<Item = &str> {
        let offered = self.tools.tools.iter();
        offered.map(|offered| offered.tool.name.as_str())
    }

    /// The engine's tools that a request gets. Empty if they are `withheld` from it, or if the
    /// engine is no longer called.
    pub(crate) fn tools_in(&mut self, withheld: bool) -> Vec<ToolSpec> {
        self.withdraw_tools();
        let offered = self.tools.tools.iter().filter(|_| !withheld);
        offered.map(|offered| offered.tool.clone()).collect()
    }

    /// The tokens of the engine's tools in the requests.
    pub(crate) fn tool_tokens(&self) -> u64 {
        self.tools.tokens
    }

    /// Translates a call to the engine's own name for the tool. If the session was opened after the
    /// request that offered the tool, it finds the name that it would have given the tool.
    ///
    /// # Errors
    /// No request offered the tool, or the engine failed.
    pub(crate) fn own_call(&mut self, call: ToolCall) -> Result<ToolCall, SessionError> {
        if !self.offers_tools() {
            return Ok(call);
        }
        let own = match self.tools.tools.is_empty() {
            true => {
                let prefix = format!("{}_", self.engine.name());
                let name = call.name.strip_prefix(&prefix).unwrap_or(&call.name);
                let mut own = self.tools()?.into_iter().map(|tool| tool.name);
                own.find(|own| *own == call.name || own == name)
            }
            false => {
                let mut offered = self.tools.tools.iter();
                let found = offered.find(|offered| offered.tool.name == call.name);
                found.map(|offered| offered.own.clone())
            }
        };
        match own {
            Some(own) => Ok(call.name(own)),
            None => Err(SessionError::Call(CallError::Failed {
                engine: self.engine.name().to_owned(),
                method: "call_tool",
                error: EngineError::Unsupported(format!("the tool `{}`", call.name)),
            })),
        }
    }

    /// Asks the engine whether the model may call tools now. Returns the reason if it may not, and
    /// `None` if it may or if the engine sets no limit.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(crate) fn tools_denied(
        &mut self,
        current: &ConversationState,
    ) -> Result<Option<String>, SessionError> {
        if !self.engine.about().limits_tool_calls {
            return Ok(None);
        }
        let state = current.state();
        let asked = self
            .engine
            .call("may_call_tools", Deadline::Short, move |engine| {
                Ok(engine.may_call_tools(&state))
            });
        match asked {
            Ok(decision) if decision.is_yes() => Ok(None),
            Ok(decision) => Ok(Some(decision.reason().to_owned())),
            Err(error) if self.on_failure() == OnFailure::Fail => Err(error.into()),
            Err(error) => self.not_told(error.into()).map(|()| None),
        }
    }
}

/// Whether providers accept a tool with this name and these parameters.
fn is_offerable(tool: &ToolSpec) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let has_name = (1..=64).contains(&tool.name.len()) && tool.name.chars().all(is_plain);
    has_name
        && tool
            .parameters
            .get("type")
            .is_some_and(|kind| kind == "object")
}

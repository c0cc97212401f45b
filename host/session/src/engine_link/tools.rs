//! The tools of the engine and of the host in requests.
//!
//! If the engine asks for it, its tools are in every request from the first one on. Otherwise they
//! are added once a compaction hides something, because before that the model sees everything that
//! the tools could find. An engine may also limit how often they are called, and
//! [`EngineLink::tools_denied`] then forbids them for a request.
//!
//! The host's own tools (`host_tools`) are in every request from the first one on, if they are turned
//! on and the session offers tools at all. They come first.
//!
//! The list changes only at a compaction, and then only grows. Tools precede all messages in a
//! prompt, so a changed list makes the provider's whole prompt cache useless.
//!
//! Read [`EngineLink::offer_tools`] first. Calls of these tools come back through
//! [`EngineLink::call_tool`].

use contexture_engine_api::{EngineError, ToolCall, ToolSpec};
use contexture_runtime::supervision::CallError;

use super::EngineLink;
use crate::conversation::ConversationState;
use crate::error::SessionError;
use crate::host_tools::PREFIX;

/// The tools may take up one part in this many of the room for messages, which is the usable window
/// without the system prompt. Larger tools would cause more compactions than what they find is
/// worth.
const ROOM_SHARE: u64 = 4;

/// A tool that is in the requests.
#[derive(Debug)]
pub(crate) struct Offered {
    /// Whether the host answers its calls, and not the engine.
    is_hosts: bool,
    /// The own name of the tool.
    own: String,
    /// The tool as requests have it. Its name differs from `own` if the client has a tool with the
    /// same name.
    tool: ToolSpec,
    tokens: u64,
}

/// The tools in the requests of a session.
#[derive(Debug, Default)]
pub(crate) struct OfferedTools {
    /// Whether the options want the tools in requests even if the engine leaves that to the agent.
    wanted: bool,
    /// The tools that are in every request. The list only grows, except that it is emptied when the
    /// engine is closed.
    tools: Vec<Offered>,
    /// The host's own tools. Empty if they are turned off.
    of_host: Vec<ToolSpec>,
}

impl OfferedTools {
    /// No tools yet. `wanted` is [`SessionOptions::offer_tools`](crate::SessionOptions::offer_tools).
    pub(crate) fn new(wanted: bool, of_host: Vec<ToolSpec>) -> Self {
        Self {
            wanted,
            tools: Vec::new(),
            of_host,
        }
    }

    fn of_engine(&self) -> impl Iterator<Item = &Offered> {
        self.tools.iter().filter(|offered| !offered.is_hosts)
    }

    fn of_host(&self) -> impl Iterator<Item = &Offered> {
        self.tools.iter().filter(|offered| offered.is_hosts)
    }

    fn tokens(&self) -> u64 {
        self.tools.iter().map(|offered| offered.tokens).sum()
    }

    /// Adds the host's tools before all others, if they are not there yet and the room is enough. A
    /// tool whose names the client has taken both is left out.
    fn offer_host_tools(&mut self, room: &ToolRoom<'_>) {
        if self.of_host().next().is_some() {
            return;
        }
        let own = self.of_host.iter().filter_map(|tool| {
            let name = self.free_name(&tool.name, PREFIX, &[], room)?;
            Some(Offered::new(true, tool.clone(), name, room))
        });
        let own: Vec<Offered> = own.collect();
        let tokens: u64 = own.iter().map(|offered| offered.tokens).sum();
        if room.is_enough_for(self.tokens() + tokens) {
            self.tools.splice(0..0, own);
        }
    }

    /// The name of a tool in requests: its own, or with the prefix if that is taken. `None` if both
    /// are taken or providers accept neither. `added` are offered with it.
    fn free_name(
        &self,
        own: &str,
        prefix: &str,
        added: &[Offered],
        room: &ToolRoom<'_>,
    ) -> Option<String> {
        let is_free = |name: &String| {
            let mut offered = self.tools.iter().chain(added);
            is_name(name)
                && !room.taken.contains(name)
                && !offered.any(|offered| offered.tool.name == *name)
        };
        let names = [own.to_owned(), format!("{prefix}{own}")];
        names.into_iter().find(is_free)
    }
}

impl Offered {
    fn new(is_hosts: bool, tool: ToolSpec, name: String, room: &ToolRoom<'_>) -> Self {
        let own = tool.name.clone();
        let tool = tool.name(name);
        Self {
            is_hosts,
            own,
            tokens: (room.cost)(&tool),
            tool,
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
    /// The tokens that messages and tools have room in, beside the system prompt. None if the size
    /// of the window is not known, which is never too small.
    pub(crate) room: Option<u64>,
    /// The tokens of a tool in the format of the request.
    pub(crate) cost: &'a dyn Fn(&ToolSpec) -> u64,
}

impl ToolRoom<'_> {
    /// Whether tools may take so many tokens.
    fn is_enough_for(&self, tokens: u64) -> bool {
        self.room.is_none_or(|room| tokens * ROOM_SHARE <= room)
    }
}

impl EngineLink {
    /// Decides which tools are in the requests. Returns their tokens.
    pub(crate) fn offer_tools(&mut self, room: &ToolRoom<'_>) -> Result<u64, SessionError> {
        self.withdraw_tools();
        if self.offers_tools() {
            self.tools.offer_host_tools(room);
        }
        let always = self.engine.about().offers_tools;
        let is_due = always || (self.tools.wanted && room.hides_something);
        let is_known = self.tools.of_engine().next().is_some() && !room.is_compacted;
        if !is_due || is_known {
            return Ok(self.tools.tokens());
        }
        let tools = match self.tools() {
            Ok(tools) => tools,
            Err(error) => return self.not_told(error).map(|()| self.tools.tokens()),
        };
        let prefix = format!("{}_", self.engine.name());
        let mut added: Vec<Offered> = Vec::new();
        for tool in tools {
            let mut known = self.tools.of_engine();
            if known.any(|offered| offered.own == tool.name) {
                continue;
            }
            match self.tools.free_name(&tool.name, &prefix, &added, room) {
                Some(name) => added.push(Offered::new(false, tool, name, room)),
                None => self.not_offered(
                    &tool,
                    "the request has other tools of this name, also behind the engine's",
                ),
            }
        }
        let added_tokens: u64 = added.iter().map(|offered| offered.tokens).sum();
        let tokens = self.tools.tokens() + added_tokens;
        // The result is the same after a restart, because neither figure depends on the messages.
        if room.is_enough_for(tokens) {
            self.tools.tools.extend(added);
        } else if always {
            self.too_large(tokens, room);
        }
        Ok(self.tools.tokens())
    }

    /// The tools that the engine offers to the agent, under the engine's own names. It warns of those
    /// that providers refuse, and leaves them out.
    pub(crate) fn tools(&mut self) -> Result<Vec<ToolSpec>, SessionError> {
        let mut tools: Vec<ToolSpec> = Vec::new();
        for tool in self.ask("tools", |engine| engine.tools())? {
            if tools.iter().any(|one| one.name == tool.name) {
                self.not_offered(&tool, "the engine lists it twice");
            } else if !is_offerable(&tool) {
                self.not_offered(
                    &tool,
                    "its name must be letters, digits, `_` and `-`, 64 at most, and its parameters a JSON schema of \
                     an object",
                );
            } else {
                tools.push(tool);
            }
        }
        Ok(tools)
    }

    /// The same tools for an agent that adds them to its requests itself. There are none if they are
    /// too large for its window.
    pub(crate) fn tools_within(
        &mut self,
        room: &ToolRoom<'_>,
    ) -> Result<Vec<ToolSpec>, SessionError> {
        let mut tools = self.tools()?;
        let tokens = tools.iter().map(room.cost).sum();
        if !room.is_enough_for(tokens) {
            self.too_large(tokens, room);
            tools.clear();
        }
        Ok(tools)
    }

    /// Warns that the tools would take too much of the window.
    fn too_large(&self, tokens: u64, room: &ToolRoom<'_>) {
        self.warnings.add(format!(
            "the tools of engine `{}` are not offered: they take {tokens} tokens of the {} that messages and \
             tools have, and a quarter is the most. Use a model with a larger window, or report it to the \
             engine's author.",
            self.engine.name(),
            room.room.unwrap_or_default()
        ));
    }

    /// Warns that the model does not get a tool.
    fn not_offered(&self, tool: &ToolSpec, why: &str) {
        self.warnings.add(format!(
            "the tool `{}` of engine `{}` is not offered: {why}. Report it to the engine's author.",
            tool.name.escape_default(),
            self.engine.name()
        ));
    }

    /// Removes the engine's tools from requests if the engine is no longer called, because nobody
    /// would answer their calls.
    fn withdraw_tools(&mut self) {
        if self.engine.is_closed() {
            self.tools.tools.retain(|offered| offered.is_hosts);
        }
    }

    /// The host's own tools. Empty if they are turned off.
    pub(crate) fn host_tools(&self) -> &[ToolSpec] {
        &self.tools.of_host
    }

    /// The host's own name for the tool that is called. None if it is not a tool of the host. If the
    /// session was opened after the request that offered the tool, it has one of two names.
    pub(crate) fn host_tool(&self, call: &ToolCall) -> Option<String> {
        let mut offered = self.tools.of_host().peekable();
        if offered.peek().is_some() {
            let found = offered.find(|offered| offered.tool.name == call.name);
            return found.map(|offered| offered.own.clone());
        }
        let name = call.name.strip_prefix(PREFIX).unwrap_or(&call.name);
        let mut own = self.tools.of_host.iter().map(|tool| &tool.name);
        own.find(|own| **own == name).cloned()
    }

    /// Whether the session adds tools to requests at all.
    fn offers_tools(&self) -> bool {
        self.tools.wanted || self.engine.about().offers_tools
    }

    /// The names that the tools have in the requests.
    pub(crate) fn offered_tools(&self) -> impl Iterator<Item = &str> {
        let offered = self.tools.tools.iter();
        offered.map(|offered| offered.tool.name.as_str())
    }

    /// The tools that a request gets. Empty if they are `withheld` from it. An engine that is no
    /// longer called has none.
    pub(crate) fn tools_in(&mut self, withheld: bool) -> Vec<ToolSpec> {
        self.withdraw_tools();
        let offered = self.tools.tools.iter().filter(|_| !withheld);
        offered.map(|offered| offered.tool.clone()).collect()
    }

    /// The tokens of the tools in the requests.
    pub(crate) fn tool_tokens(&self) -> u64 {
        self.tools.tokens()
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
        let is_none_offered = self.tools.of_engine().next().is_none();
        let own = match is_none_offered {
            true => {
                let prefix = format!("{}_", self.engine.name());
                let name = call.name.strip_prefix(&prefix).unwrap_or(&call.name);
                let mut own = self.tools()?.into_iter().map(|tool| tool.name);
                own.find(|own| *own == call.name || own == name)
            }
            false => {
                let mut offered = self.tools.of_engine();
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
    pub(crate) fn tools_denied(
        &mut self,
        current: &ConversationState,
    ) -> Result<Option<String>, SessionError> {
        if !self.engine.about().limits_tool_calls {
            return Ok(None);
        }
        let state = current.state();
        match self.ask("may_call_tools", move |engine| {
            engine.may_call_tools(&state)
        }) {
            Ok(decision) if decision.is_yes() => Ok(None),
            Ok(decision) => Ok(Some(decision.reason().to_owned())),
            Err(error) => self.not_told(error).map(|()| None),
        }
    }
}

/// Whether providers accept a tool with this name and these parameters.
fn is_offerable(tool: &ToolSpec) -> bool {
    is_name(&tool.name)
        && tool
            .parameters
            .get("type")
            .is_some_and(|kind| kind == "object")
}

/// Whether providers accept a tool with this name.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

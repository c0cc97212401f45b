//! The engine's tools in the requests: there from the first request on where the engine says so, else once a compaction
//! hides something, for before it the model sees all that they could find; and forbidden at the engine's limit.
//!
//! What is offered changes at a compaction alone, and then only grows: the tools stand before all messages, so that
//! another list would cost the provider's whole prompt cache.

use std::borrow::Cow;

use contexture_config::OnFailure;
use contexture_engine_api::{EngineError, MessageId, ToolCall, ToolSpec};
use contexture_formats::tokens::TOOL_TOKENS;
use contexture_formats::{self as formats, Conversation};
use contexture_runtime::supervision::{CallError, Pace};

use super::request::{Request, Source};
use super::{Session, SessionError};

/// How much of the room for messages, from the system prompt to the end of the window, the tools may take: in more,
/// they would cost more compactions than what they bring back is worth.
const ROOM_SHARE: u64 = 4;

/// A tool of the engine in the requests.
#[derive(Debug)]
pub(super) struct Offered {
    /// The engine's own name for it.
    own: String,
    /// What it is in the requests, under the name that it has there.
    tool: ToolSpec,
}

impl Session {
    /// Decides which tools of the engine are in the requests; `is_compacted` says that there may be more now.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn offer_tools(
        &mut self,
        request: &Request<'_>,
        is_compacted: bool,
    ) -> Result<(), SessionError> {
        self.withdraw_tools();
        let always = self.engine.about().offers_tools;
        let is_due = always || (self.options.offer_tools && self.hides_something());
        let is_known = !self.offered.is_empty() && !is_compacted;
        let is_body = matches!(request.source, Source::Body { .. });
        if !is_due || is_known || !is_body {
            return Ok(());
        }
        let tools = match self.tools() {
            Ok(tools) => tools,
            Err(error) => return self.not_told(error),
        };
        let taken = self.frame.as_ref().map(|frame| frame.tools.clone());
        let taken = taken.unwrap_or_default();
        let mut added = Vec::new();
        let mut added_tokens = 0;
        for tool in tools {
            if self.offered.iter().any(|offered| offered.own == tool.name) {
                continue;
            }
            if !is_offerable(&tool) {
                self.warn(format!(
                    "the tool `{}` of engine `{}` is not offered: its name must be letters, digits, `_` and `-`, 64 \
                     at most, and its parameters a JSON schema of an object. Report it to the engine's author.",
                    tool.name.escape_default(),
                    self.engine.name()
                ));
                continue;
            }
            let own = tool.name.clone();
            let name = match taken.contains(&own) {
                true => format!("{}_{own}", self.engine.name()),
                false => own.clone(),
            };
            let tool = tool.name(name);
            let text = formats::tool_in(&tool, request.format);
            added_tokens += self.counter.count_text(&text) + TOOL_TOKENS;
            added.push(Offered { own, tool });
        }
        // It stays so after a restart: neither changes with the messages.
        let tokens = self.offered_tokens + added_tokens;
        let room = (self.state().usable_tokens()).saturating_sub(self.fixed_tokens);
        if always || tokens * ROOM_SHARE <= room {
            self.offered_tokens += added_tokens;
            self.offered.extend(added);
        }
        Ok(())
    }

    /// Removes the tools of an engine that is no longer called from the requests, because their calls would not be
    /// answered.
    fn withdraw_tools(&mut self) {
        if self.engine.is_closed() {
            self.offered.clear();
            self.offered_tokens = 0;
        }
    }

    /// Whether the model does not see all that was said: by a compaction that is in force, or because the client began
    /// anew, as it does after one of its own.
    fn hides_something(&self) -> bool {
        let first = self.history.branch().first();
        self.history.in_force().is_some() || first.is_some_and(|first| first.id > MessageId(1))
    }

    /// Whether the engine's tools are put into requests.
    fn offers_tools(&self) -> bool {
        self.options.offer_tools || self.engine.about().offers_tools
    }

    /// The names under which tools of the engine are in the requests.
    pub fn offered_tools(&self) -> impl Iterator<Item = &str> {
        self.offered
            .iter()
            .map(|offered| offered.tool.name.as_str())
    }

    /// The engine's tools that are in a request; none where they are `withheld` from it.
    pub(super) fn tools_in(&self, withheld: bool) -> Vec<&ToolSpec> {
        let offered = self.offered.iter().filter(|_| !withheld);
        offered.map(|offered| &offered.tool).collect()
    }

    /// A call as the engine knows it. A session that was opened since the last request has the names that it would
    /// have put into it.
    ///
    /// # Errors
    /// No request offered the tool; or the engine failed.
    pub(super) fn own_call(&mut self, call: ToolCall) -> Result<ToolCall, SessionError> {
        if !self.offers_tools() {
            return Ok(call);
        }
        let own = match self.offered.is_empty() {
            true => {
                let prefix = format!("{}_", self.engine.name());
                let name = call.name.strip_prefix(&prefix).unwrap_or(&call.name);
                let mut own = self.tools()?.into_iter().map(|tool| tool.name);
                own.find(|own| *own == call.name || own == name)
            }
            false => {
                let mut offered = self.offered.iter();
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

    /// Why the model may not call tools now; none where it may.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn tools_denied(&mut self) -> Result<Option<String>, SessionError> {
        if !self.engine.about().limits_tool_calls {
            return Ok(None);
        }
        let state = self.state();
        let asked = self
            .engine
            .call("may_call_tools", Pace::Short, move |engine| {
                Ok(engine.may_call_tools(&state))
            });
        match asked {
            Ok(decision) if decision.is_yes() => Ok(None),
            Ok(decision) => Ok(Some(decision.reason().to_owned())),
            Err(error) if self.on_failure == OnFailure::Fail => Err(error.into()),
            Err(error) => self.not_told(error.into()).map(|()| None),
        }
    }

    /// The body with the engine's tools in it, and with a word that none may be called where they are `denied`.
    pub(super) fn with_tools<'b>(
        &mut self,
        body: Cow<'b, str>,
        request: &Request<'_>,
        withheld: bool,
        denied: bool,
    ) -> Cow<'b, str> {
        self.withdraw_tools();
        let is_body = matches!(request.source, Source::Body { .. });
        let tools = self.tools_in(withheld);
        if !is_body || (tools.is_empty() && !denied) {
            return body;
        }
        match formats::with_tools(&body, request.format, &tools, denied) {
            Ok(changed) => Cow::Owned(changed),
            Err(error) => {
                self.warn(format!(
                    "the engine's tools could not be put into the request: {error}"
                ));
                body
            }
        }
    }
}

/// Whether providers take a tool of this name and with these parameters.
fn is_offerable(tool: &ToolSpec) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let has_name = (1..=64).contains(&tool.name.len()) && tool.name.chars().all(is_plain);
    has_name
        && tool
            .parameters
            .get("type")
            .is_some_and(|kind| kind == "object")
}

/// The names of a conversation's tools.
pub(super) fn tool_names(conversation: &Conversation) -> Vec<String> {
    conversation
        .tool_lists()
        .flat_map(formats::tool_names)
        .collect()
}

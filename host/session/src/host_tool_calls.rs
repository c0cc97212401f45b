//! Pins of a session that are made outside the text, and the calls of the host's tools.
//!
//! A program pins for the user with [`Session::pin`]. The model pins with a tool, and its pins are
//! refused if they do not fit, because a pin that is silently left out would be a false promise. What
//! the tools say of themselves is in `host_tools`.

use contexture_contract::{PinLists, PinnedBy, Pins, is_pinnable, is_same_pin, most_pin_tokens};
use contexture_engine_api::{EngineError, ToolCall, grouped};
use serde::Deserialize;

use super::error::SessionError;
use super::held::Held;
use super::host_tools::{PIN, UNPIN};
use super::session::Session;

/// The most characters that `context_reduce` takes of what a summary should keep.
const MAX_KEEP_CHARS: usize = 500;

#[derive(Deserialize)]
struct PinArguments {
    text: String,
}

#[derive(Deserialize)]
struct ReduceArguments {
    #[serde(default)]
    keep: String,
}

impl Session {
    /// Pins words for the user, as the line `/pin WORDS` in a message does. They stand in the window
    /// word for word after each compaction, until [`unpin`](Self::unpin) or `/unpin WORDS` ends the
    /// pin. Each line is a pin. This also works for a session that is
    /// [for reading only](crate::SessionOptions::read_only).
    ///
    /// # Errors
    /// A line cannot be pinned, because it is a command or has a mark of a summary, or the record
    /// cannot be written.
    pub fn pin(&mut self, words: &str) -> Result<(), SessionError> {
        let lines = pinnable(words).map_err(|error| refused(PIN, error))?;
        self.hold(&lines, PinnedBy::User)
    }

    /// Ends pins, whoever made them, except those of the configuration. Each line is the words of
    /// a pin. Words that are not pinned are no error.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn unpin(&mut self, words: &str) -> Result<(), SessionError> {
        self.hold(&lines_of(words), PinnedBy::Nobody)
    }

    /// The pins of the session, without those of the configuration. They are complete after a
    /// request. In a session that was only opened, pins are missing that stand in messages.
    pub fn pins(&self) -> PinLists {
        self.pins_with(&[], u64::MAX).all().clone()
    }

    /// All pins, those of the configuration too, of which not more than `most` tokens fit.
    fn all_pins(&self, most: u64) -> Pins {
        self.pins_with(self.compactor.configured_pins(), most)
    }

    fn pins_with(&self, configured: &[String], most: u64) -> Pins {
        let window = &self.current.window;
        let calls = window.call_views();
        let views = window.whole_views(&calls);
        self.current.pins(&views, configured, most)
    }

    fn hold(&mut self, lines: &[&str], by: PinnedBy) -> Result<(), SessionError> {
        // A client may pin with every request, which must not wait for a write each time.
        let held = self.current.held.read();
        if lines.iter().all(|line| held.has(line, by)) {
            return Ok(());
        }
        let change = self.current.held.change(|held| {
            lines.iter().for_each(|line| held.pin(line, by));
        });
        Ok(change?)
    }

    /// Answers a call of a tool of the host. `name` is the host's own name for it.
    ///
    /// # Errors
    /// The arguments make no sense, or the record cannot be written.
    pub(crate) fn call_host_tool(
        &mut self,
        name: &str,
        call: &ToolCall,
    ) -> Result<String, SessionError> {
        let answer = match name {
            PIN => self.pin_for_model(&call.arguments),
            UNPIN => self.unpin_for_model(&call.arguments),
            _ => self.reduce_for_model(&call.arguments),
        };
        answer.map_err(|error| refused(name, error))
    }

    fn pin_for_model(&mut self, arguments: &str) -> Result<String, EngineError> {
        let PinArguments { text } = read(arguments)?;
        let mut lines = pinnable(&text)?;
        // What the user has pinned stays the user's, so that the model cannot end it.
        let users = self.all_pins(u64::MAX).all().user.clone();
        lines.retain(|line| !users.iter().any(|pin| is_same_pin(pin, line)));
        let most = most_pin_tokens(self.current.meter.agent().context_length);
        let before = self.current.held.read();
        self.hold(&lines, PinnedBy::Model).map_err(stored)?;
        // A pin that is not held would be a false promise, and so would an earlier one that it pushes
        // out.
        let pins = self.all_pins(most);
        if pins.fitting().model.len() < pins.all().model.len() {
            let undo = |held: &mut Held| held.pins.clone_from(&before.pins);
            (self.current.held.change(undo)).map_err(|error| stored(error.into()))?;
            let own = list(&pins.all().model);
            return Err(EngineError::InvalidInput(format!(
                "not pinned: all pins together may have {} tokens; pin fewer words, or end a pin of yours \
                 with {UNPIN}: {own}",
                grouped(most)
            )));
        }
        Ok(format!("Pinned. Your pins: {}", list(&pins.all().model)))
    }

    fn unpin_for_model(&mut self, arguments: &str) -> Result<String, EngineError> {
        let PinArguments { text } = read(arguments)?;
        let lines = said_lines(&text)?;
        let pins = self.all_pins(u64::MAX);
        let own = &pins.all().model;
        for line in &lines {
            if own.iter().any(|pin| is_same_pin(pin, line)) {
                continue;
            }
            let why = match pins.all().iter().any(|pin| is_same_pin(pin, line)) {
                true => "the user pinned this, so only the user can end it",
                false => "you have no pin with these words",
            };
            return Err(EngineError::InvalidInput(format!(
                "{why}: {line:?}. Your pins: {}",
                list(own)
            )));
        }
        self.hold(&lines, PinnedBy::Nobody).map_err(stored)?;
        let left = self.all_pins(u64::MAX);
        Ok(format!("Ended. Your pins: {}", list(&left.all().model)))
    }

    fn reduce_for_model(&mut self, arguments: &str) -> Result<String, EngineError> {
        let ReduceArguments { keep } = read(arguments)?;
        let keep: String = keep.trim().chars().take(MAX_KEEP_CHARS).collect();
        let noted = self
            .current
            .held
            .change(|held| held.requested = Some(keep.clone()));
        noted.map_err(|error| stored(error.into()))?;
        Ok("Noted. Earlier messages are summarised when that is cheap.".to_owned())
    }
}

/// Reads the arguments of a call.
fn read<A: serde::de::DeserializeOwned>(arguments: &str) -> Result<A, EngineError> {
    serde_json::from_str(arguments).map_err(|error| EngineError::InvalidInput(error.to_string()))
}

/// The lines of a text that say something.
fn lines_of(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).collect()
}

/// The lines of a text that has some.
fn said_lines(text: &str) -> Result<Vec<&str>, EngineError> {
    match lines_of(text) {
        lines if lines.is_empty() => {
            Err(EngineError::InvalidInput("there are no words".to_owned()))
        }
        lines => Ok(lines),
    }
}

/// The lines of a text, if all of them can be pinned.
fn pinnable(text: &str) -> Result<Vec<&str>, EngineError> {
    let lines = said_lines(text)?;
    match lines.iter().find(|line| !is_pinnable(line)) {
        Some(bad) => Err(EngineError::InvalidInput(format!(
            "a command or a mark of a summary cannot be pinned: {bad:?}"
        ))),
        None => Ok(lines),
    }
}

/// Pins as a list for the model.
fn list(pins: &[String]) -> String {
    match pins {
        [] => "none".to_owned(),
        pins => pins.iter().map(|pin| format!("\n- {pin}")).collect(),
    }
}

fn stored(error: SessionError) -> EngineError {
    EngineError::Storage(error.to_string())
}

fn refused(tool: &str, error: EngineError) -> SessionError {
    let tool = tool.to_owned();
    SessionError::HostTool { tool, error }
}

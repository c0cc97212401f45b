//! `contexture hook`: answers the compaction hooks of agents.
//!
//! `contexture setup` makes an agent run this command when it compacts. [`run`] reads the hook's
//! JSON from stdin. The conversation comes from the agent's log or from the JSON itself (see
//! [`messages`]), goes to the engine as a session that is kept, and what the engine makes of it
//! becomes a text (see [`digest`]) that stands in the agent's window from then on.
//!
//! Claude Code, Codex and Qwen Code ask twice: before their compaction, when the text is made and
//! stored, and after it, when the text is handed over. pi and OpenCode take the text at once.
//! OpenClaw takes the window itself, message by message (see [`openclaw`]).
//!
//! If anything fails, the exit code is 1 and never 2, because agents take 2 as the order to stop.
//! They then go on with their own compaction, and the message on stderr says so.

mod digest;
mod folder;
mod messages;
mod openclaw;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;

use contexture::formats::{self, Conversation, Format};
use contexture::session::{Compact, TurnOptions};
use contexture::{Host, HostError, HostOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::human::counted;
use crate::{Global, NEGATIVE, OK, input, output, terminal, window};
use digest::{Budget, digest};
use folder::Folder;
#[cfg(feature = "mcp")]
pub(crate) use folder::session_of;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture hook claude < event.json

`contexture setup` makes agents call this. claude, codex and qwen: the events PreCompact and SessionStart with the source `compact`, as these agents write them. pi and opencode: {\"event\": \"compact\", \"session_id\", \"cwd\", and \"entries\" or \"messages\"}, answered by {\"summary\"}. openclaw: {\"event\": \"assemble\" or \"compact\", \"session_id\", \"messages\", \"window\"}, answered by the window, and {\"event\": \"tool\", \"session_id\", \"tool\", \"arguments\"}.

The session is kept as AGENT-ID, where `contexture sessions` and `contexture mcp --agent` find it.

Exit codes: 0 answered, 1 failed: the agent goes on with its own compaction.")]
pub(crate) struct HookArgs {
    /// The agent that calls
    agent: Caller,
}

/// An agent that calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Caller {
    Claude,
    Codex,
    Openclaw,
    Opencode,
    Pi,
    Qwen,
}

impl Caller {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Openclaw => "openclaw",
            Self::Opencode => "opencode",
            Self::Pi => "pi",
            Self::Qwen => "qwen",
        }
    }

    /// Returns how long the text may be.
    fn budget(self) -> Budget {
        match self {
            // Claude Code cuts what a hook says after 10,000 characters, Codex after 10,000 bytes.
            Self::Claude | Self::Codex => Budget {
                window: 16_000,
                bytes: 9_000,
            },
            Self::Openclaw | Self::Opencode | Self::Pi | Self::Qwen => Budget {
                window: 64_000,
                bytes: 32_000,
            },
        }
    }
}

/// What an agent says about an event. Fields that an agent does not send are empty.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(alias = "hook_event_name")]
    event: String,
    session_id: String,
    #[serde(default)]
    cwd: PathBuf,
    transcript_path: Option<PathBuf>,
    source: Option<String>,
    /// The subagent whose conversation it is, if it is not the session's own.
    agent_id: Option<Value>,
    /// What the summary is to be about. Claude Code's name for it is that of `/compact WORDS`.
    #[serde(alias = "custom_instructions")]
    focus: Option<String>,
    entries: Option<Vec<Value>>,
    messages: Option<Vec<Value>>,
    /// The tokens that the messages may have.
    window: Option<u64>,
    model: Option<String>,
    tool: Option<String>,
    arguments: Option<Value>,
}

impl Event {
    /// Returns what the summary is to be about, unless that is an empty text.
    fn focus(&self) -> Option<String> {
        self.focus.clone().filter(|words| !words.trim().is_empty())
    }
}

/// What Claude Code's model is told when it writes its own summary.
const SHORT: &str = "\
The history of this conversation is kept by Contexture, which puts its own account of it into the conversation right \
after your summary. Do not repeat the history. Write at most five lines: what is being done now, and the next step.
";

/// Answers the hook. Returns 1 if that failed, after saying so on stderr.
///
/// # Errors
/// None: every failure is an exit code, because an agent may take an error as an order.
pub(crate) fn run(args: &HookArgs, global: &Global) -> Result<u8, CliError> {
    if let Err(error) = answer(args.agent, global) {
        error.print(global.color.on(std::io::stderr().is_terminal()));
        terminal::say("contexture: the agent goes on with its own compaction\n");
        return Ok(NEGATIVE);
    }
    Ok(OK)
}

fn answer(agent: Caller, global: &Global) -> Result<(), CliError> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|source| CliError::Read {
        input: "the hook's event on stdin".to_owned(),
        source,
    })?;
    let no_event = |error: &dyn std::fmt::Display| {
        CliError::usage(
            format!("stdin holds no event of {}: {error}", agent.name()),
            "`contexture setup` makes the agent call this command",
        )
    };
    let event = formats::parse_json(&text).map_err(|error| no_event(&error))?;
    let event: Event = serde_json::from_value(event).map_err(|error| no_event(&error))?;
    // A subagent has a window of its own, which ends with its task.
    if event.agent_id.as_ref().is_some_and(|id| !id.is_null()) {
        return Ok(());
    }
    let options = HostOptions::default()
        .config(global.config.clone())
        .offline(global.offline);
    let host = Host::open(&options).map_err(not_opened)?;
    if agent == Caller::Openclaw {
        return output::print_json(&openclaw::answer(&host, &event)?);
    }
    let folder = Folder::of(&host, agent, &event.session_id);
    match (event.event.as_str(), event.source.as_deref()) {
        ("PreCompact", _) => {
            // An older text must not stand for this compaction if it fails.
            folder.take()?;
            if let Some(text) = compact(&host, agent, &event)? {
                folder.put(&text)?;
                if agent == Caller::Claude {
                    output::print(SHORT)?;
                }
            }
        }
        ("SessionStart", Some("compact")) => {
            if let Some(text) = folder.take()? {
                output::print_json(&json!({
                    "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text},
                }))?;
            }
        }
        ("compact", _) => {
            folder.take()?;
            let text = compact(&host, agent, &event)?;
            if let Some(text) = &text {
                folder.put(text)?;
            }
            output::print_json(&json!({"summary": text}))?;
        }
        ("summary", _) => output::print_json(&json!({"summary": folder.read()?}))?,
        // Agents send every event that a matcher lets through.
        _ => {}
    }
    Ok(())
}

/// Passes the conversation of an event to its session and returns the text that replaces it. `None`
/// if the engine had nothing to compact.
fn compact(host: &Host, agent: Caller, event: &Event) -> Result<Option<String>, CliError> {
    let conversation = conversation(agent, event)?;
    for warning in conversation.warnings() {
        terminal::warn(warning);
    }
    let name = "the agent's conversation";
    let whole = conversation.uncompacted();
    let whole = whole.map_err(|source| CliError::of_format(name.to_owned(), source))?;
    let conversation = Arc::new(whole.unwrap_or(conversation));
    let engines = host.engines();
    let model = window::choose(None, None, conversation.model(), engines.config()).agent;
    let budget = agent.budget();
    let id = session_id(agent, event);
    // The text has to be much smaller than the window, and the engine makes it as small as that.
    let session = host.session(&id).model(&model.model, budget.window);
    let mut session = session.open().map_err(|error| failed(&error))?;
    let options = TurnOptions::default()
        .compact(Compact::Force)
        .focus(event.focus())
        .wait_for_model(Some(true));
    let turn = session.turn_over(&conversation, &options, &mut |_| {});
    drop(turn.map_err(|error| failed(&error))?);
    let tools = session.engine_tools().map_err(|error| failed(&error))?;
    let tools: Vec<_> = tools.into_iter().map(|tool| tool.name).collect();
    let plan = session.render_plan(&conversation);
    let text = digest(&plan, &conversation, &tools, &budget);
    for warning in session.take_warnings() {
        terminal::warn(&warning);
    }
    session.end().map_err(|error| failed(&error))?;
    Folder::note(host, agent, &event.cwd, &id)?;
    Ok(text)
}

fn not_opened(error: HostError) -> CliError {
    match error {
        HostError::Config(error) => CliError::config(error),
        HostError::Provider(error) => CliError::Provider(error),
        HostError::Record(error) => CliError::Sessions(error),
        error => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::engine_failed(error, "the agent has its own compaction")
}

/// Returns the error of an event that lacks a field.
fn missing(agent: Caller, what: &str) -> CliError {
    CliError::usage(
        format!("the event of {} has no {what}", agent.name()),
        "run `contexture setup` again: the agent or Contexture may be newer than the hook",
    )
}

/// Returns the name under which a session of an agent is stored.
fn session_id(agent: Caller, event: &Event) -> String {
    format!("{}-{}", agent.name(), event.session_id)
}

fn conversation(agent: Caller, event: &Event) -> Result<Conversation, CliError> {
    let missing = |what: &str| missing(agent, what);
    let log = || {
        let path = event.transcript_path.as_ref();
        let path = path.ok_or_else(|| missing("transcript_path"))?;
        match std::fs::metadata(path) {
            // A pipe or a device may have no end.
            Ok(found) if !found.is_file() => Err(CliError::Read {
                input: path.display().to_string(),
                source: std::io::Error::other("it is not a regular file"),
            }),
            _ => Ok(path),
        }
    };
    let document = match agent {
        Caller::Claude | Caller::Codex => {
            let format = match agent {
                Caller::Claude => Format::ClaudeCode,
                _ => Format::Codex,
            };
            return input::read(log()?, Some(format), false)?
                .conversations
                .pop()
                .ok_or_else(|| missing("conversation in its log"));
        }
        Caller::Qwen => {
            let path = log()?;
            let bytes = std::fs::read(path).map_err(CliError::read(path))?;
            let (messages, left_out) = messages::of_qwen(&String::from_utf8_lossy(&bytes));
            if left_out > 0 {
                let what = format!(
                    "{} of {} left out of the conversation: not JSON",
                    counted(left_out, "line"),
                    path.display()
                );
                terminal::warn(&what);
            }
            messages
        }
        Caller::Pi => {
            let entries = event.entries.as_ref().ok_or_else(|| missing("entries"))?;
            messages::of_pi(entries)
        }
        // It takes no text, see `openclaw`.
        Caller::Openclaw => return Err(missing("known name")),
        Caller::Opencode => {
            let messages = event.messages.as_ref();
            let messages = messages.ok_or_else(|| missing("messages"))?;
            messages::of_opencode(messages)
        }
    };
    read(document)
}

/// Reads the messages of an agent in the form of OpenAI chat.
fn read(messages: Vec<Value>) -> Result<Conversation, CliError> {
    let document = json!({"messages": messages}).to_string();
    let read = formats::read(document, Some(Format::OpenAiChat));
    let name = || "the agent's conversation".to_owned();
    read.map_err(|source| CliError::of_format(name(), source))?
        .pop()
        .ok_or_else(|| CliError::NoConversation { input: name() })
}

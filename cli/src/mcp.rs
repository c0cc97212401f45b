//! `contexture mcp`: serves the history and the tools of a session's engine over stdin and stdout,
//! to any client of the Model Context Protocol.
//!
//! [`run`] serves until the client closes the connection. Without a session, the tools are those of
//! the history, see `history_tools`. With one, the engine's tools are served too, and those of the
//! history only if something was imported. Each call opens the session anew, read-only beside the
//! agent that may be using it. The client therefore always sees the current state, and the agent is
//! not disturbed.
//!
//! The protocol itself is implemented by `rmcp`, over the connection in [`stdio`]. [`Server`]
//! translates between its requests and the host. Errors of a tool are results for the model, while errors of the list of tools are errors
//! of the protocol.

mod stdio;

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use contexture::history::FILE_NAME;
use contexture::session::Session;
use contexture::{Host, HostError, HostOptions};
use contexture_engine_api::{ToolCall, ToolSpec};
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ConstString,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::Value;
use tokio::io::AsyncWrite;

use crate::error::CliError;
use crate::hook::{self, Caller};
use crate::{Global, OK, history_tools, output, serve, start};
use stdio::Stdio;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  claude mcp add history -- contexture mcp
  contexture mcp --session work
  claude mcp add work -- contexture mcp --session work
  contexture mcp --agent codex

Without --session, the tools history_search and history_read find and show what was said in the sessions of all agents on this machine. `contexture import --all` reads these sessions. With --session, the tools of the session's engine are served as well.

With --agent, it is the session that `contexture hook` last compacted for this agent in the current folder. Before the first compaction there is none, and the whole conversation is in the agent's window.

The session may be in use and may continue meanwhile: each call sees its current state.

Exit codes: 0 the client disconnected, 2 wrong usage or configuration, 3 the engine failed.")]
pub(crate) struct McpArgs {
    /// Serve the tools of this session's engine
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    session: Option<String>,
    /// Serve the session that this agent has in the current folder
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    agent: Option<Caller>,
}

/// How the session is found.
#[derive(Clone)]
enum Which {
    Named(String),
    /// The one that the agent has in this folder, which may be another one with each call.
    Of(Caller, PathBuf),
}

/// A server of the protocol. Clones share the host.
#[derive(Clone)]
struct Server {
    /// The home directory of the history.
    home: PathBuf,
    engine: Option<Engine>,
}

/// A session whose engine's tools are served.
#[derive(Clone)]
struct Engine {
    host: Arc<Host>,
    which: Which,
}

/// Serves until the client closes the connection. Fails before that if there is no such session, so
/// that a wrong id is noticed at once and not at the first call.
pub(crate) fn run(args: &McpArgs, global: &Global) -> Result<u8, CliError> {
    let home = start::load_config(global)?.home;
    let which = match (&args.session, args.agent) {
        (Some(session), _) => Some(Which::Named(session.clone())),
        (None, Some(agent)) => {
            let folder = std::env::current_dir().map_err(failed)?;
            Some(Which::Of(agent, folder))
        }
        (None, None) => None,
    };
    let engine = which.map(|which| Engine::open(which, global)).transpose()?;
    let server = Server { home, engine };
    let ended = serve::runtime()?.block_on(async {
        // If a plugin prints something, it must not get between the answers. Stdout is therefore
        // stderr in this process, and the answers go to the stdout that was kept.
        let out: Box<dyn AsyncWrite + Send + Unpin> = match output::stdout() {
            Some(kept) => Box::new(tokio::fs::File::from_std(kept)),
            None => Box::new(tokio::io::stdout()),
        };
        let serving = server.serve(Stdio::new(tokio::io::stdin(), out));
        // A client that closes the connection before it sends a request is not an error.
        match serving.await {
            Ok(serving) => serving.waiting().await.map(|_| ()),
            Err(error) => {
                tracing::info!("{error}");
                Ok(())
            }
        }
    });
    ended.map_err(failed)?;
    Ok(OK)
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::engine_failed(&error, "a tool belongs to its engine")
}

impl Which {
    /// Returns the id of the session. `None` if the agent has none yet.
    fn session(&self, host: &Host) -> Result<Option<String>, String> {
        match self {
            Self::Named(session) => Ok(Some(session.clone())),
            Self::Of(agent, folder) => {
                hook::session_of(host, *agent, folder).map_err(|error| error.to_string())
            }
        }
    }
}

impl Engine {
    /// Opens a host. Fails if it has no session of this name, so that whoever starts the server
    /// learns at once that it does not exist.
    fn open(which: Which, global: &Global) -> Result<Self, CliError> {
        let options = HostOptions::default()
            .config(global.config.clone())
            .offline(global.offline);
        let host = Host::open(&options).map_err(|error| CliError::of_gateway(error.into()))?;
        if let Which::Named(session) = &which
            && host.read_only_session(session).map_err(failed)?.is_none()
        {
            return Err(CliError::NoSession {
                session: session.clone(),
            });
        }
        Ok(Self {
            host: Arc::new(host),
            which,
        })
    }

    /// The tools of the session's engine. An agent has no session before its first compaction, but
    /// clients ask only once, at the start, so these are then the tools of a new session.
    async fn tools(&self) -> Result<Vec<ToolSpec>, String> {
        let Self { host, which } = self.clone();
        if !matches!(which.session(&host), Ok(None)) {
            return self
                .with(|_, session| session.tools().map_err(|error| error.to_string()))
                .await;
        }
        let tools = tokio::task::spawn_blocking(move || host.tools(None)).await;
        tools
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    }

    /// Opens the session and does something with it on a thread that may block. The error is text
    /// for the client, such as that the session is gone.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host, &mut Session) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let Self { host, which } = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let session = which.session(&host)?.ok_or_else(|| {
                "nothing of this conversation was compacted yet, so all of it is in the window"
                    .to_owned()
            })?;
            let opened = host.read_only_session(&session);
            let opened = opened.map_err(|error: HostError| error.to_string())?;
            let mut opened =
                opened.ok_or_else(|| format!("the session `{session}` no longer exists"))?;
            work(&host, &mut opened)
        });
        done.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("contexture", env!("CARGO_PKG_VERSION")))
            .with_instructions(match self.engine.as_ref().map(|engine| &engine.which) {
                Some(Which::Named(session)) => {
                    format!("The tools of the context engine that keeps the session `{session}`.")
                }
                Some(Which::Of(..)) => {
                    "Tools that find what was said in this conversation before it was compacted."
                        .to_owned()
                }
                None => "What was said in earlier sessions of the agents on this machine. Search before you ask the \
                         user what was decided, how a command was run or how an error was fixed."
                    .to_owned(),
            })
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = Vec::new();
        if let Some(engine) = &self.engine {
            let own = engine.tools().await;
            let own = own.map_err(|error| ErrorData::internal_error(error, None))?;
            tools.extend(own.into_iter().map(|tool| {
                let schema = match tool.parameters {
                    Value::Object(schema) => schema,
                    // An engine may give no schema. The protocol wants an object all the same.
                    _ => serde_json::Map::new(),
                };
                Tool::new(tool.name, tool.description, schema)
            }));
        }
        // If nothing was imported, two more tools beside those of the engine would only cost
        // tokens.
        if self.engine.is_none() || self.home.join(FILE_NAME).exists() {
            let history = history_tools::specs();
            let history = history.map(|(name, about, schema)| Tool::new(name, about, schema));
            tools.extend(history);
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let name = request.name.into_owned();
        let (home, asked, given) = (self.home.clone(), name.clone(), arguments.clone());
        let answered =
            tokio::task::spawn_blocking(move || history_tools::call(&home, &asked, given));
        let called = match (answered.await, &self.engine) {
            (Ok(Some(answer)), _) => answer,
            (Ok(None), Some(engine)) => {
                let call = ToolCall::new(name, arguments.to_string());
                let called = engine.with(|host, session| {
                    let answer = session.call_tool(call).map_err(|error| error.to_string())?;
                    host.note_restored(session)
                        .map_err(|error| error.to_string())?;
                    Ok(answer)
                });
                called.await
            }
            (Ok(None), None) => Err(format!(
                "there is no tool `{name}`; there are {} and {}",
                history_tools::SEARCH,
                history_tools::READ
            )),
            (Err(error), _) => Err(error.to_string()),
        };
        // The error of a tool is meant for the model, so it is a result of the call.
        let result = match called {
            Ok(answer) => CallToolResult::success(vec![ContentBlock::text(answer)]),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error)]),
        };
        Ok(result.into())
    }

    /// Answers what `rmcp` does not know. A call whose parameters have the wrong types is such a
    /// request, too.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match request.method == CallToolRequestMethod::VALUE {
            true => ErrorData::invalid_params(
                "the parameters of a call are its `name`, a string, and `arguments`, an object",
                None,
            ),
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
    }
}

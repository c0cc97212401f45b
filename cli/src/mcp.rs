//! `contexture mcp`: the tools of a session's engine, for any client of the Model Context Protocol, over stdin and stdout.

use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use contexture::session::Session;
use contexture::{Host, HostError, HostOptions};
use contexture_engine_api::ToolCall;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::Value;
use tokio::io::AsyncWrite;

use crate::error::{CliError, Lines};
use crate::{Global, OK, output, serve};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture mcp --session work
  claude mcp add history -- contexture mcp --session work

The session may be in use, and may go on meanwhile: each call sees it as it is then.

Exit codes: 0 the client is done, 2 wrong usage or configuration, 3 the engine failed.")]
pub(crate) struct McpArgs {
    /// The session
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    session: String,
}

/// A session's engine as a server.
#[derive(Clone)]
struct Server {
    host: Arc<Host>,
    session: String,
}

pub(crate) fn run(args: &McpArgs, global: &Global) -> Result<u8, CliError> {
    let options = HostOptions {
        config: global.config.clone(),
        offline: global.offline,
        ..HostOptions::default()
    };
    let host = Host::open(&options).map_err(|error| CliError::Gateway(error.into()))?;
    let server = Server {
        host: Arc::new(host),
        session: args.session.clone(),
    };
    // Whoever starts it is told at once.
    let known = server.host.beside(&args.session).map_err(failed)?;
    if known.is_none() {
        return Err(CliError::NoSession {
            session: args.session.clone(),
        });
    }
    drop(known);
    let ended = serve::runtime()?.block_on(async {
        let out: Box<dyn AsyncWrite + Send + Unpin> = match output::stdout() {
            Some(kept) => Box::new(tokio::fs::File::from_std(kept)),
            None => Box::new(tokio::io::stdout()),
        };
        let serving = server.serve((tokio::io::stdin(), out));
        // A client that leaves before it has said anything is done, too.
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

fn failed(error: impl ToString) -> CliError {
    CliError::EngineFailed {
        because: "a tool is its engine's alone",
        reason: Lines(error.to_string()),
    }
}

impl Server {
    /// Does something with the session where waiting does not block.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host, &mut Session) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let Self { host, session } = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let opened = host.beside(&session);
            let opened = opened.map_err(|error: HostError| error.to_string())?;
            let mut opened =
                opened.ok_or_else(|| format!("there is no session `{session}` any more"))?;
            work(&host, &mut opened)
        });
        done.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("contexture", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!(
                "The tools of the context engine that keeps the session `{}`.",
                self.session
            ))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.with(|_, session| session.tools().map_err(|error| error.to_string()));
        let tools = tools
            .await
            .map_err(|error| ErrorData::internal_error(error, None))?;
        let tools = tools.into_iter().map(|tool| {
            let schema = match tool.parameters {
                Value::Object(schema) => schema,
                _ => serde_json::Map::new(),
            };
            Tool::new(tool.name, tool.description, schema)
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call = ToolCall::new(request.name.into_owned(), arguments);
        let called = self.with(|host, session| {
            let answer = session.call_tool(call).map_err(|error| error.to_string())?;
            host.note_restored(session)
                .map_err(|error| error.to_string())?;
            Ok(answer)
        });
        // What a tool refuses is for the model to read.
        let result = match called.await {
            Ok(answer) => CallToolResult::success(vec![ContentBlock::text(answer)]),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error)]),
        };
        Ok(result.into())
    }
}

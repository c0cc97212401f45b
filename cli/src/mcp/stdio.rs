//! The connection to a client of `contexture mcp`: a message a line, on stdin and stdout.
//!
//! [`Stdio`] is used instead of the transport of `rmcp` for the sake of what that one leaves
//! without an answer, so that a client waits until its own timeout: a line that is not JSON, and one
//! with half of a surrogate pair, which JavaScript writes if it cuts a text inside a character. It also
//! says what is wrong with an `initialize`, after which that one ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use contexture::formats::parse_json;
use rmcp::RoleServer;
use rmcp::model::{
    ConstString, ErrorData, InitializeRequestParams, InitializeResultMethod, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

type Sending = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

/// A client that writes lines to `input` and reads lines from `output`.
pub(super) struct Stdio<R, W> {
    input: BufReader<R>,
    output: Arc<Mutex<W>>,
    /// What was read of the current line.
    line: Vec<u8>,
    /// The answer to a line that is no message, until it is written. It is kept here because
    /// `receive` may be cancelled at each of its `await`s.
    refusal: Option<Sending>,
}

impl<R: AsyncRead + Unpin, W> Stdio<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self {
            input: BufReader::new(input),
            output: Arc::new(Mutex::new(output)),
            line: Vec::new(),
            refusal: None,
        }
    }
}

/// The answer to a line that is no message, with the id of the request if that can be read.
fn refusal(error: ErrorData, id: Option<RequestId>) -> Box<TxJsonRpcMessage<RoleServer>> {
    Box::new(TxJsonRpcMessage::<RoleServer>::error(error, id))
}

/// Reads a message. `None` is a notification that nobody knows, which is not answered.
///
/// # Errors
/// Returns the answer if the line is not JSON or not a message.
fn message(
    line: &[u8],
) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Box<TxJsonRpcMessage<RoleServer>>> {
    let text = std::str::from_utf8(line).ok();
    let value = text.and_then(|text| parse_json(text.trim_start_matches('\u{feff}')).ok());
    let not_json = || refusal(ErrorData::parse_error("the line is not JSON", None), None);
    let mut value = value.ok_or_else(not_json)?;
    let id = value.get("id").cloned();
    let is_notification = value.get("method").is_some() && id.is_none();
    let id = id.and_then(|id| serde_json::from_value(id).ok());
    // PHP writes an object without members as a list.
    for object in ["/params", "/params/arguments", "/params/capabilities"] {
        if let Some(object) = value
            .pointer_mut(object)
            .filter(|object| **object == json!([]))
        {
            *object = json!({});
        }
    }
    if value.get("method") == Some(&json!(InitializeResultMethod::VALUE)) {
        // `rmcp` does not say what is wrong with it, and ends.
        let params = value.get("params").cloned().unwrap_or_default();
        serde_json::from_value::<InitializeRequestParams>(params).map_err(|error| {
            let why = format!("the parameters of `initialize`: {error}");
            refusal(ErrorData::invalid_params(why, None), id.clone())
        })?;
    }
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_notification => Ok(None),
        Err(_) => Err(refusal(
            ErrorData::invalid_request("the line is not a message of JSON-RPC 2.0", None),
            id,
        )),
    }
}

impl<R, W> Transport<RoleServer> for Stdio<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut output = output.lock().await;
            output.write_all(&line).await?;
            output.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusal) = &mut self.refusal {
                let written = refusal.await;
                self.refusal = None;
                written.ok()?;
            }
            // If this is cancelled, `line` keeps what was read.
            let read = self.input.read_until(b'\n', &mut self.line).await;
            if let Err(error) = &read {
                tracing::error!("stdin cannot be read: {error}");
            }
            read.ok()?;
            if self.line.is_empty() {
                return None;
            }
            let line = std::mem::take(&mut self.line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            match message(&line) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(answer) => self.refusal = Some(Box::pin(self.send(*answer))),
            }
        }
    }

    async fn close(&mut self) -> std::io::Result<()> {
        self.output.lock().await.shutdown().await
    }
}

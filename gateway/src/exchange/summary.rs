//! Remembers the summaries that a model writes of a session at the agent's request.
//!
//! Agents such as Claude Code compact their own history: they ask the model for a summary and begin
//! the next request with it. That request shares no message with the session, so
//! [`lineage`](crate::lineage) could not tell where it belongs. Therefore [`relay_and_remember`]
//! reads the summary on its way to the client and stores fingerprints of its lines with the
//! session.
//!
//! If something failed and a request of the Responses API was passed on, its answer is read in the
//! same way, because the client may refer to its items ([`references`](crate::references)).
//!
//! The answer passes byte for byte. Only its last piece waits until all is remembered. Recognizing
//! the summary later is up to [`proof`](crate::proof). If the request offered the engine's tools,
//! [`without_calls`] removes calls of them from the answer first.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{poll_fn, unfold};
use http::header::CONTENT_LENGTH;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::replies::is_event_stream;
use crate::Shared;
use crate::api::Api;
use crate::coding;
use crate::lineage::SummaryTarget;
use crate::proof;
use crate::settings::Settings;
use crate::stream::sse::Events;
use crate::stream::{AnswerReader, ToolNames};

/// The most bytes of an answer that are read. A longer summary is noted in part, if it can still be
/// parsed.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// What is remembered of an answer.
pub(super) enum Remembered {
    /// The fingerprints of the summary in it.
    Summary(SummaryTarget),
    /// Its items, for this tenant.
    Items(Option<String>),
}

/// Relays an answer and remembers something of it. The last piece is held back until that is done,
/// for at most `gateway.max_hold_ms`. An answer that is not successful passes at once.
pub(super) fn relay_and_remember(
    shared: Arc<Shared>,
    settings: &Settings,
    api: Api,
    what: Remembered,
    answer: Response,
) -> Response {
    if !answer.status().is_success() {
        return answer;
    }
    let (parts, body) = answer.into_parts();
    let headers = parts.headers.clone();
    let max_hold: Duration = settings.max_hold;
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, axum::Error>>(16);
    let own = Arc::clone(&shared);
    let relaying = async move {
        let mut body = body.into_data_stream();
        let mut read = Vec::new();
        let mut last: Option<Bytes> = None;
        while let Some(piece) = body.next().await {
            let Ok(piece) = piece else {
                let _ = sender.send(piece).await;
                return;
            };
            if read.len() + piece.len() <= MAX_ANSWER_BYTES {
                read.extend_from_slice(&piece);
            }
            // The client may send its next request as soon as it has the last event, and that
            // request needs the fingerprints.
            if let Some(before) = last.replace(piece)
                && sender.send(Ok(before)).await.is_err()
            {
                return;
            }
        }
        let remembering = Arc::clone(&own);
        let work = move || remember(&remembering, api, what, &headers, read);
        if timeout(max_hold, own.work.run(work)).await.is_err() {
            tracing::warn!(
                "storing an answer takes longer than `gateway.max_hold_ms`, so the next request may begin a \
                 new session"
            );
        }
        if let Some(last) = last {
            let _ = sender.send(Ok(last)).await;
        }
    };
    shared.work.start(relaying);
    let pieces = poll_fn(move |context| receiver.poll_recv(context));
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// Removes calls of the engine's `tools` from an answer as it passes. The model was told to write a
/// summary and not to call anything, so nobody answers them: an answer that waits for nothing else
/// ends normally. Everything else passes byte for byte.
pub(super) fn without_calls(api: Api, tools: ToolNames, answer: Response) -> Response {
    if !answer.status().is_success() {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let reader = AnswerReader::new(api, tools);
    let filter = match is_event_stream(&parts.headers) {
        true => CallFilter::Events(Events::default(), reader),
        false => CallFilter::Json(Vec::new(), reader),
    };
    let pieces = unfold(
        Some((body.into_data_stream(), filter)),
        |state| async move {
            let (mut body, mut filter) = state?;
            Some(match body.next().await {
                Some(Ok(piece)) => (Ok(filter.read(&piece)), Some((body, filter))),
                Some(Err(error)) => (Err(error), None),
                None => (Ok(filter.end()), None),
            })
        },
    );
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// What has been read of an answer from which calls are removed.
enum CallFilter {
    Events(Events, AnswerReader),
    /// A JSON body, which can only be changed as a whole.
    Json(Vec<u8>, AnswerReader),
}

impl CallFilter {
    /// Reads a piece of the answer. Returns what the client gets now.
    fn read(&mut self, piece: &[u8]) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Json(body, _) => body.extend_from_slice(piece),
            Self::Events(events, reader) => {
                events.push(piece);
                while let Some(event) = events.next() {
                    reader.event(&event, &mut out);
                }
            }
        }
        Bytes::from(out)
    }

    /// Ends the answer. Returns what the client still gets.
    fn end(self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Json(body, mut reader) => {
                let text = std::str::from_utf8(&body).ok();
                let Some(value) = text.and_then(|text| reader.parse(text)) else {
                    return Bytes::from(body);
                };
                reader.json(value);
                if reader.take_round().continues {
                    reader.end_at_limit(&mut out);
                }
                reader.composed().map_or(Bytes::from(body), Bytes::from)
            }
            Self::Events(mut events, mut reader) => {
                if let Some(rest) = events.rest() {
                    reader.event(&rest, &mut out);
                }
                if reader.take_round().continues {
                    reader.end_at_limit(&mut out);
                }
                Bytes::from(out)
            }
        }
    }
}

/// Expands an answer and remembers something of it. Errors are logged, because the client has its
/// answer anyway.
fn remember(shared: &Shared, api: Api, what: Remembered, headers: &http::HeaderMap, read: Vec<u8>) {
    let codings = coding::of(headers);
    let body =
        codings.and_then(|codings| coding::expand(Bytes::from(read), &codings, MAX_ANSWER_BYTES));
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            return tracing::warn!(
                "cannot read an answer, so the next request may begin a new session: {error}"
            );
        }
    };
    let items = items(api, &body);
    let target = match what {
        Remembered::Summary(target) => target,
        Remembered::Items(tenant) => {
            return shared.items.remember(tenant.as_deref(), &items, false);
        }
    };
    let fingerprints = proof::summary_fingerprints(api.format(), &items);
    if let Err(error) = target.note_summary(shared.host.record(), &fingerprints) {
        tracing::warn!(
            session = target.session(),
            "cannot store the summary, so the next request may begin a new session: {error}"
        );
    }
}

/// The wire items of an answer, whether it is a JSON body or an event stream. No tools are hidden.
fn items(api: Api, body: &[u8]) -> Vec<String> {
    let mut reader = AnswerReader::new(api, Arc::default());
    let json = std::str::from_utf8(body).ok();
    match json.and_then(|json| reader.parse(json)) {
        Some(body) => reader.json(body),
        None => reader.events(body),
    }
    reader.take_round().items
}

//! Remembers what a model wrote to sum a session up, at its agent's request. The agent begins anew with it, and it shows
//! then which session that goes on with.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Shared;
use crate::api::Api;
use crate::coding;
use crate::lineage::Place;
use crate::proof;
use crate::settings::Settings;
use crate::stream::reader;
use crate::stream::sse::Events;

/// The most of an answer that is read, in bytes.
const LONGEST: usize = 8 << 20;

/// The answer, byte for byte, and read on its way. The client has its end once it is remembered.
pub(super) fn remembered(
    shared: Arc<Shared>,
    settings: &Settings,
    api: Api,
    place: Place,
    answer: Response,
) -> Response {
    if !answer.status().is_success() {
        return answer;
    }
    let (parts, body) = answer.into_parts();
    let headers = parts.headers.clone();
    let max_hold: Duration = settings.max_hold;
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, axum::Error>>(16);
    tokio::spawn(async move {
        let mut body = body.into_data_stream();
        let mut read = Vec::new();
        let mut last: Option<Bytes> = None;
        while let Some(piece) = body.next().await {
            let Ok(piece) = piece else {
                let _ = sender.send(piece).await;
                return;
            };
            if read.len() + piece.len() <= LONGEST {
                read.extend_from_slice(&piece);
            }
            // A client may go on as soon as it has the last event.
            if let Some(before) = last.replace(piece)
                && sender.send(Ok(before)).await.is_err()
            {
                return;
            }
        }
        let own = Arc::clone(&shared);
        let work = move || remember(&own, api, &place, &headers, read);
        if timeout(max_hold, shared.work.done(work)).await.is_err() {
            tracing::warn!("a summary was not remembered yet");
        }
        if let Some(last) = last {
            let _ = sender.send(Ok(last)).await;
        }
    });
    let pieces = poll_fn(move |context| receiver.poll_recv(context));
    Response::from_parts(parts, Body::from_stream(pieces))
}

fn remember(shared: &Shared, api: Api, place: &Place, headers: &http::HeaderMap, read: Vec<u8>) {
    let session = place.session();
    let codings = match coding::of(headers) {
        Ok(codings) => codings,
        Err(error) => return tracing::warn!(session, "a summary cannot be read: {error}"),
    };
    let body = match coding::expand(Bytes::from(read), &codings, LONGEST) {
        Ok(body) => body,
        Err(error) => return tracing::warn!(session, "a summary cannot be read: {error}"),
    };
    let marks = proof::summary_marks(api.format(), &items(api, &body));
    if let Err(error) = place.note_summary(shared.host.record(), &marks) {
        tracing::warn!(session, "a summary is not remembered: {error}");
    }
}

/// The wire items of an answer, streamed or whole.
fn items(api: Api, body: &[u8]) -> Vec<String> {
    let mut reader = reader(api, Arc::default());
    match serde_json::from_slice::<Value>(body) {
        Ok(whole) => reader.whole(&whole),
        Err(_) => {
            let mut events = Events::default();
            events.push(body);
            let mut out = Vec::new();
            while let Some(event) = events.next() {
                reader.event(&event, &mut out);
            }
            if let Some(rest) = events.rest() {
                reader.event(&rest, &mut out);
            }
        }
    }
    reader.take_round().items
}

//! Gives a stream of the Gemini API the form of a JSON list.
//!
//! Without `alt=sse` in its query, a stream of this API is not one of events but a list of the same
//! responses, which grows as the model writes. The gateway always asks the provider for events, and
//! [`as_list`] writes the client's list from what the client may see of them.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};

use super::replies::is_event_stream;
use crate::endpoint;
use crate::stream::sse::{Event, Events};

/// Whether the client of a request expects a list in place of events.
pub(super) fn is_wanted(path: &str, query: &str) -> bool {
    let mut options = query.trim_start_matches('?').split('&');
    endpoint::is_gemini_stream(path) && !options.any(|option| option == EVENTS)
}

/// The option of a query that asks for events.
const EVENTS: &str = "alt=sse";

/// The query that asks for events, in place of one that does not.
pub(super) fn query_for_events(query: &str) -> String {
    let options = query.trim_start_matches('?').split('&');
    let others = options.filter(|option| !option.is_empty() && !option.starts_with("alt="));
    let all: Vec<&str> = others.chain([EVENTS]).collect();
    format!("?{}", all.join("&"))
}

/// Writes the events of an answer as a list. An answer without events, such as an error, stays as it
/// is.
pub(super) fn as_list(answer: Response) -> Response {
    if !is_event_stream(answer.headers()) {
        return answer;
    }
    let (mut parts, inner) = answer.into_parts();
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(CONTENT_TYPE, json);
    let mut list = ListWriter::default();
    // None stands for the end of the stream.
    let frames = BodyStream::new(inner).map(Some);
    let frames = frames.chain(stream::once(async { None }));
    let frames = frames.flat_map(move |frame| stream::iter(list.frames(frame)));
    Response::from_parts(parts, Body::new(StreamBody::new(frames)))
}

type BodyFrame = Result<Frame<Bytes>, axum::Error>;

/// Writes a list from a stream of events.
#[derive(Default)]
struct ListWriter {
    events: Events,
    has_begun: bool,
    has_ended: bool,
}

impl ListWriter {
    /// The frames of the list for the next frame of the stream. Trailers are the last one.
    fn frames(&mut self, frame: Option<BodyFrame>) -> Vec<BodyFrame> {
        if self.has_ended {
            return Vec::new();
        }
        let (list, after) = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => (self.add(&data), None),
            Some(Ok(Err(trailers))) => (self.end(), Some(Ok(trailers))),
            // The client can tell by the missing end that the list is not whole.
            Some(Err(error)) => (Vec::new(), Some(Err(error))),
            None => (self.end(), None),
        };
        self.has_ended |= after.is_some();
        let list = (!list.is_empty()).then(|| Ok(Frame::data(Bytes::from(list))));
        list.into_iter().chain(after).collect()
    }

    fn add(&mut self, data: &[u8]) -> Vec<u8> {
        self.events.push(data);
        let mut out = Vec::new();
        while let Some(event) = self.events.next() {
            write(&event, &mut self.has_begun, &mut out);
        }
        out
    }

    /// The end of the list, with an event that has no end of its own.
    fn end(&mut self) -> Vec<u8> {
        self.has_ended = true;
        let mut out = Vec::new();
        if let Some(event) = self.events.rest() {
            write(&event, &mut self.has_begun, &mut out);
        }
        out.extend_from_slice(if self.has_begun { b"]" } else { b"[]" });
        out
    }
}

/// Writes the response in an event.
fn write(event: &Event<'_>, has_begun: &mut bool, out: &mut Vec<u8>) {
    if let Some(data) = event.data.as_ref().filter(|_| event.json().is_some()) {
        out.extend_from_slice(match std::mem::replace(has_begun, true) {
            true => b",\r\n",
            false => b"[",
        });
        out.extend_from_slice(data.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_wanted_unless_the_query_asks_for_events() {
        let stream = "/v1beta/models/m:streamGenerateContent";
        for (path, query, wanted, asked) in [
            (stream, "", true, "?alt=sse"),
            (stream, "?alt=json&a=1", true, "?a=1&alt=sse"),
            (stream, "?a=1&alt=sse", false, "?a=1&alt=sse"),
            ("/v1beta/models/m:generateContent", "", false, "?alt=sse"),
        ] {
            assert_eq!(is_wanted(path, query), wanted, "{path}{query}");
            assert_eq!(query_for_events(query), asked);
        }
    }
}

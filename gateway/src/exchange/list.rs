//! Gives a stream of the Gemini API the form of a JSON list.
//!
//! Without `alt=sse` in its query, a stream of this API is not one of events but a list of the same
//! responses, which grows as the model writes. The gateway always asks the provider for events, and
//! [`as_list`] writes the client's list from what the client may see of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Frame;

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
    let list = ListBody {
        inner,
        events: Events::default(),
        has_begun: false,
        end: None,
    };
    Response::from_parts(parts, Body::new(list))
}

/// The body of a list that is written from a stream of events.
struct ListBody {
    inner: Body,
    events: Events,
    has_begun: bool,
    /// The last frame of the stream, once the list has its end: its trailers, or none.
    end: Option<Option<Frame<Bytes>>>,
}

impl ListBody {
    /// Adds the response in an event to the list.
    fn add(has_begun: &mut bool, event: &Event<'_>, out: &mut Vec<u8>) {
        if let Some(data) = event.data.as_ref().filter(|_| event.json().is_some()) {
            let before = if std::mem::replace(has_begun, true) {
                ",\r\n"
            } else {
                "["
            };
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(data.as_bytes());
        }
    }

    /// The end of the list, with an event that has no end of its own.
    fn rest(&mut self) -> Bytes {
        let mut out = Vec::new();
        if let Some(event) = self.events.rest() {
            Self::add(&mut self.has_begun, &event, &mut out);
        }
        out.extend_from_slice(if self.has_begun { b"]" } else { b"[]" });
        Bytes::from(out)
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(last) = &mut self.end {
            return Poll::Ready(last.take().map(Ok));
        }
        loop {
            let polled = Pin::new(&mut self.inner).poll_frame(context);
            let Poll::Ready(frame) = polled else {
                return Poll::Pending;
            };
            let trailers = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let this = &mut *self;
                        let mut out = Vec::new();
                        this.events.push(&data);
                        while let Some(event) = this.events.next() {
                            Self::add(&mut this.has_begun, &event, &mut out);
                        }
                        if out.is_empty() {
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from(out)))));
                    }
                    Err(trailers) => Some(trailers),
                },
                // The client can tell by the missing end that the list is not whole.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => None,
            };
            let rest = self.rest();
            self.end = Some(trailers);
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
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

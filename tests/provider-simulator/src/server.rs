//! The server: takes requests in, has them checked and answered, and sends what is answered, or what goes wrong.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, State, connect_info::Connected};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::serve::{IncomingStream, Listener};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::answer::{Answer, Fault, Usage};
use crate::request::{Api, Dialect, Request};
use crate::rules::{self, Refusal, Violation};
use crate::wire::{self, Reply};
use crate::{Shared, lock, prompt};

/// More than any provider takes.
const LARGEST_BODY: usize = 256 << 20;

pub(crate) fn run(
    shared: Arc<Shared>,
    port: u16,
    ready: mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    #[allow(
        clippy::expect_used,
        reason = "a test cannot go on without it, and says why"
    )]
    let runtime = builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system gives threads");
    runtime.block_on(async {
        #[allow(
            clippy::expect_used,
            reason = "a test cannot go on without it, and says why"
        )]
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("the port is free");
        if let Ok(address) = listener.local_addr() {
            let _ = ready.send(address);
        }
        let app = Router::new().fallback(take).with_state(shared);
        let serve = axum::serve(
            Listening(listener),
            app.into_make_service_with_connect_info::<Socket>(),
        );
        tokio::select! {
            _ = serve => {}
            _ = stopped => {}
        }
    });
    // What hangs is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
}

/// Every piece leaves at once.
struct Listening(TcpListener);

impl Listener for Listening {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        let _ = stream.set_nodelay(true);
        (stream, address)
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection's socket, so that it can be reset.
#[derive(Clone)]
struct Socket(Option<Arc<OwnedFd>>);

impl Connected<IncomingStream<'_, Listening>> for Socket {
    fn connect_info(stream: IncomingStream<'_, Listening>) -> Self {
        let own = rustix::io::dup(stream.io());
        Self(own.ok().map(Arc::new))
    }
}

impl Socket {
    /// From now on, closing it sends a reset.
    fn reset(&self) {
        if let Some(socket) = &self.0 {
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
}

/// One request, whose fate is noted however its future or its body ends.
struct Fate {
    shared: Arc<Shared>,
    number: usize,
    finished: bool,
    /// It was broken off here, not there.
    ours: bool,
}

impl Fate {
    fn note(&self, change: impl FnOnce(&mut Request)) {
        let mut requests = lock(&self.shared.requests);
        if let Some(request) = requests
            .iter_mut()
            .rfind(|request| request.number == self.number)
        {
            change(request);
        }
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        let (finished, left) = (self.finished, !self.finished && !self.ours);
        self.note(|request| (request.finished, request.left_early) = (finished, left));
    }
}

async fn take(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(socket): ConnectInfo<Socket>,
    request: axum::extract::Request,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let number = shared.came.fetch_add(1, Ordering::Relaxed);
    let body = to_bytes(body, LARGEST_BODY).await.unwrap_or_default();
    let body = plain(&head.headers, body);
    let mut request = Request {
        number,
        api: Api::of(head.method.as_str(), head.uri.path()),
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers: headers(&head.headers),
        json: serde_json::from_slice(&body).unwrap_or_default(),
        body,
        at: Instant::now(),
        status: None,
        finished: false,
        left_early: false,
    };
    if lock(&shared.options).record {
        lock(&shared.requests).push(request.clone());
    }
    request.resolve(&lock(&shared.issued).items);
    let fate = Fate {
        shared: shared.clone(),
        number,
        finished: false,
        ours: false,
    };
    match request.api {
        Api::Other => other(&request, fate),
        Api::Models => models(&shared, &request, fate),
        _ => {
            let outgoing = answer(&shared, &request);
            outgoing.send(fate, socket).await
        }
    }
}

/// The body without its compression, because OpenAI accepts zstd from Codex. A damaged body is returned unchanged and
/// is not valid JSON.
fn plain(headers: &HeaderMap, body: Bytes) -> Bytes {
    let is_zstd = headers
        .get("content-encoding")
        .is_some_and(|name| name.as_bytes() == b"zstd");
    match is_zstd {
        true => zstd::decode_all(&body[..]).map_or(body, Bytes::from),
        false => body,
    }
}

fn headers(all: &HeaderMap) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    all.iter()
        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
        .collect()
}

/// A whole answer as JSON.
fn whole(status: u16, body: &Value, headers: Vec<(String, String)>, fate: Fate) -> Response<Body> {
    let outgoing = Outgoing {
        status,
        headers,
        pieces: vec![Bytes::from(body.to_string())],
        length: true,
        ..Outgoing::default()
    };
    outgoing.respond(fate, Socket(None))
}

/// A path that no provider has, except for the request that Codex sends to ChatGPT first.
fn other(request: &Request, fate: Fate) -> Response<Body> {
    if request.path == "/backend-api/wham/accounts/check" {
        let account = request.header("chatgpt-account-id").unwrap_or_default();
        let entry = json!({
            "id": account, "workspace_backend_origin": "https://chatgpt.com",
            "account_routing_override": "NO_CONSTRAINT",
        });
        return whole(200, &json!({"accounts": [entry]}), Vec::new(), fate);
    }
    let dialect = request.dialect();
    let upgrades = request.path.trim_end_matches('/').ends_with("/responses")
        && request.header("upgrade").is_some();
    // Over HTTP alone.
    let status = if upgrades { 426 } else { 404 };
    let number = request.number as u64;
    let mut body = wire::error(dialect, 404, None, number);
    if dialect == Dialect::OpenAi {
        body["error"]["message"] =
            json!(format!("Invalid URL ({} {})", request.method, request.path));
    }
    whole(status, &body, wire::limits(dialect, number, false), fate)
}

/// The list of models, or one of them, in the shape of either provider.
/// <https://platform.claude.com/docs/en/api/models-list>, <https://platform.openai.com/docs/api-reference/models>
fn models(shared: &Shared, request: &Request, fate: Fate) -> Response<Body> {
    let dialect = request.dialect();
    let anthropic = dialect == Dialect::Anthropic;
    let show = |id: &String| {
        if anthropic {
            json!({"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z"})
        } else {
            json!({"id": id, "object": "model", "created": 1_767_225_600, "owned_by": "system"})
        }
    };
    let all = lock(&shared.options).models.clone();
    let number = request.number as u64;
    let mut status = 200;
    let body = match request
        .path
        .trim_end_matches('/')
        .strip_prefix("/v1/models/")
    {
        Some(id) => match all.iter().find(|one| *one == id) {
            Some(id) => show(id),
            None => {
                status = 404;
                wire::error(dialect, 404, None, number)
            }
        },
        None if anthropic => json!({
            "data": all.iter().map(show).collect::<Vec<_>>(),
            "has_more": false, "first_id": all.first(), "last_id": all.last(),
        }),
        None => json!({"object": "list", "data": all.iter().map(show).collect::<Vec<_>>()}),
    };
    whole(status, &body, wire::limits(dialect, number, false), fate)
}

/// Checks a request, and has it answered.
fn answer(shared: &Shared, request: &Request) -> Outgoing {
    let options = lock(&shared.options).clone();
    let number = request.number as u64;
    let dialect = request.dialect();
    let blocks = prompt::blocks(request);
    let tokens = blocks.last().map_or(0, |block| block.tokens);
    let long = request
        .header("anthropic-beta")
        .is_some_and(|beta| beta.contains("context-1m"));
    let window = options
        .window
        .unwrap_or(if long { 1_000_000 } else { 200_000 });
    let checked = rules::check(request, &lock(&shared.issued), window, tokens);
    let base = Outgoing {
        headers: wire::limits(dialect, number, false),
        ..Outgoing::default()
    };
    if let Err(refusal) = checked {
        return refused(shared, request, refusal, base);
    }
    match request.api {
        Api::CountTokens => return base.whole(200, &json!({"input_tokens": tokens})),
        Api::GeminiCount => return base.whole(200, &json!({"totalTokens": tokens})),
        _ => {}
    }
    let scripted = lock(&shared.queue).pop_front();
    let answer = scripted.unwrap_or_else(|| {
        let model = lock(&shared.model).clone();
        model(request)
    });
    if let Some(Fault::Status(status)) = answer.fault {
        let mut base = base.but(&answer);
        if status == 429 {
            base.headers = wire::limits(dialect, number, true);
            base.headers
                .push(("retry-after".to_owned(), "1".to_owned()));
        }
        base.headers.extend(answer.headers.iter().cloned());
        let mut error = wire::error(dialect, status, None, number);
        if !answer.said().is_empty() {
            error["error"]["message"] = answer.said().into();
        }
        return base.whole(status, &error);
    }
    let now = shared.began.elapsed() + *lock(&shared.ahead);
    let counted: Usage = lock(&shared.cache).charge(request, &blocks, now);
    let mut reply = Reply::new(request, &answer, counted, number);
    lock(&shared.cache).bill(request.model(), reply.usage());
    if options.record {
        reply.note(&mut lock(&shared.issued));
    }
    if let Some(usage) = answer.usage {
        reply.report(usage);
    }
    lock(&shared.said).extend(options.record.then(|| (request.number, answer.clone())));
    let mut base = base.but(&answer);
    base.headers.extend(answer.headers.iter().cloned());
    base.piece_after = answer.piece_after.unwrap_or(options.piece_after);
    if request.streams_events() {
        base.stream(request.api, reply.events(), &answer, options.piece)
    } else if request.streams() {
        base.single(dialect, number, &reply.list(), &answer)
    } else {
        base.single(dialect, number, &reply.body(), &answer)
    }
}

fn refused(shared: &Shared, request: &Request, refusal: Refusal, base: Outgoing) -> Outgoing {
    let violation = Violation {
        request: request.number,
        rule: refusal.rule,
        message: refusal.message.clone(),
    };
    lock(&shared.refused).push(violation);
    let number = request.number as u64;
    let overflows = refusal.code == Some("context_length_exceeded");
    if request.api == Api::Responses && request.streams() && overflows {
        let events = wire::refused_stream(request, &refusal, number);
        return base.stream(request.api, events, &Answer::default(), 0);
    }
    let body = wire::error(request.dialect(), refusal.status, Some(&refusal), number);
    base.whole(refusal.status, &body)
}

/// How a body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum End {
    #[default]
    Properly,
    /// Says nothing more.
    Hangs,
    Resets,
    /// Closes the connection where it is.
    Closes,
}

/// What is about to leave.
#[derive(Default)]
struct Outgoing {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Bytes>,
    end: End,
    /// Whether the length is told beforehand.
    length: bool,
    streams: bool,
    never: bool,
    headers_after: Duration,
    first_byte_after: Duration,
    piece_after: Duration,
}

impl Outgoing {
    fn but(mut self, answer: &Answer) -> Self {
        self.headers_after = answer.headers_after;
        self.first_byte_after = answer.first_byte_after;
        self.never = answer.fault == Some(Fault::Hang);
        self
    }

    fn whole(mut self, status: u16, body: &Value) -> Self {
        self.status = status;
        self.pieces = vec![Bytes::from(body.to_string())];
        self.length = true;
        self
    }

    /// One body of JSON, whole or not.
    fn single(self, dialect: Dialect, number: u64, body: &Value, answer: &Answer) -> Self {
        if answer.fault == Some(Fault::ErrorEvent) {
            return self.whole(500, &wire::error(dialect, 500, None, number));
        }
        let mut this = self.whole(200, body);
        let bytes = this.pieces.concat();
        let half = bytes.len() / 2;
        match answer.fault {
            Some(Fault::WrongJson) => {
                this.pieces = vec![Bytes::from_static(b"<html>Bad gateway</html>")]
            }
            Some(Fault::HalfAnEvent) => this.pieces = vec![Bytes::copy_from_slice(&bytes[..half])],
            _ => this.cut(&bytes, 0, answer),
        }
        this
    }

    /// A stream of these events, whole or not.
    fn stream(mut self, api: Api, mut events: Vec<String>, answer: &Answer, piece: usize) -> Self {
        self.status = 200;
        self.streams = true;
        let middle = events.len() / 2;
        match answer.fault {
            Some(Fault::ErrorEvent) => {
                events.truncate(middle);
                events.push(wire::error_event(api));
            }
            Some(Fault::HalfAnEvent) => {
                events.truncate(middle + 1);
                if let Some(last) = events.last_mut() {
                    // An event is ASCII up to the text that it carries.
                    let half = (0..=last.len() / 2)
                        .rfind(|at| last.is_char_boundary(*at))
                        .unwrap_or(0);
                    last.truncate(half);
                }
            }
            Some(Fault::WrongJson) => {
                events.truncate(middle);
                events.push("data: {\"type\": oh no\n\n".to_owned());
            }
            _ => {}
        }
        if piece == 0 {
            self.pieces = events.into_iter().map(Bytes::from).collect();
            if self.cuts(answer) {
                let bytes = self.pieces.concat();
                self.cut(&bytes, 0, answer);
            }
        } else {
            let bytes = events.concat().into_bytes();
            self.cut(&bytes, piece, answer);
        }
        self
    }

    fn cuts(&self, answer: &Answer) -> bool {
        matches!(
            answer.fault,
            Some(Fault::HangAfter(_) | Fault::ResetAfter(_) | Fault::CloseAfter(_))
        )
    }

    /// Cuts off what the fault lets through, and cuts it in pieces.
    fn cut(&mut self, bytes: &[u8], piece: usize, answer: &Answer) {
        let (until, end) = match answer.fault {
            Some(Fault::HangAfter(bytes)) => (bytes, End::Hangs),
            Some(Fault::ResetAfter(bytes)) => (bytes, End::Resets),
            Some(Fault::CloseAfter(bytes)) => (bytes, End::Closes),
            _ => (bytes.len(), End::Properly),
        };
        self.end = end;
        self.length &= end == End::Properly;
        let bytes = &bytes[..until.min(bytes.len())];
        let piece = if piece == 0 {
            bytes.len().max(1)
        } else {
            piece
        };
        self.pieces = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
    }

    async fn send(self, fate: Fate, socket: Socket) -> Response<Body> {
        if self.never {
            // Ends when the client leaves: the server drops this.
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.headers_after).await;
        self.respond(fate, socket)
    }

    fn respond(self, fate: Fate, socket: Socket) -> Response<Body> {
        let status = self.status;
        fate.note(|request| request.status = Some(status));
        let mut response =
            Response::builder().status(StatusCode::from_u16(status).unwrap_or_default());
        let kind = if self.streams {
            "text/event-stream; charset=utf-8"
        } else {
            "application/json"
        };
        response = response.header("content-type", kind);
        if self.streams {
            response = response.header("cache-control", "no-cache");
        }
        if self.length {
            response = response.header(
                "content-length",
                self.pieces.iter().map(Bytes::len).sum::<usize>(),
            );
        }
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        response.body(self.body(fate, socket)).unwrap_or_default()
    }

    fn body(self, fate: Fate, socket: Socket) -> Body {
        let length = self.pieces.len();
        let state = (self, fate, socket, 0);
        Body::from_stream(stream::unfold(
            state,
            move |(outgoing, mut fate, socket, at)| async move {
                if at < length {
                    let wait = if at == 0 {
                        outgoing.first_byte_after
                    } else {
                        outgoing.piece_after
                    };
                    if wait.is_zero() {
                        // So that what was said so far leaves before more is said.
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(wait).await;
                    }
                    let piece = outgoing.pieces[at].clone();
                    // The last is the last that the client waits for, whether it asks for more or not.
                    fate.finished = at + 1 == length && outgoing.end == End::Properly;
                    return Some((Ok(piece), (outgoing, fate, socket, at + 1)));
                }
                match outgoing.end {
                    End::Properly => None,
                    End::Hangs => std::future::pending().await,
                    end => {
                        fate.ours = true;
                        if end == End::Resets {
                            socket.reset();
                        }
                        // So that what was said leaves first.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        let broken = std::io::Error::other("broken off on order");
                        Some((Err(broken), (outgoing, fate, socket, at)))
                    }
                }
            },
        ))
    }
}

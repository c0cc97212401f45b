//! Stands in for model providers: Anthropic's Messages API, OpenAI's chat completions and responses, and the Gemini API.
//!
//! It refuses what the provider would refuse, by the published rules, and notes it ([`Simulator::violations`]); answers by
//! script; streams as the provider does, in pieces of any size; fails on order; keeps and bills a prompt cache; and
//! records every request. It shares no code with what is tested against it.
//!
//! ```
//! use contexture_provider_simulator::{Answer, Simulator};
//!
//! let provider = Simulator::start();
//! provider.script([Answer::text("Good morning.")]);
//! // … something asks `provider.base_url()` …
//! assert!(provider.violations().is_empty() && provider.requests().is_empty());
//! ```

mod answer;
mod cache;
mod coder;
mod models;
mod prompt;
mod request;
mod rules;
mod seal;
mod server;
mod wire;

use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use answer::{Answer, AnswerPart, Fault, Usage};
pub use cache::Bill;
pub use coder::Coder;
pub use request::{Api, Request};
pub use rules::{Rule, Violation, all_rules};
pub use seal::{encrypted, signature};

/// Reads what a program that stands before a provider says at its start, up to the address that it listens on.
///
/// # Panics
///
/// Where it ends without.
pub fn address_in(said: &mut impl BufRead) -> String {
    let mut before = String::new();
    for line in said.lines() {
        let line = line.unwrap_or_else(|error| panic!("it says no text: {error}"));
        if let Some((_, rest)) = line.split_once("listening on http://") {
            let address = rest.split(',').next();
            return address.unwrap_or_default().to_owned();
        }
        before += &line;
        before.push('\n');
    }
    panic!("it ended: {before}")
}

/// How a simulator behaves towards everybody.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port on the loopback address; 0 is any that is free.
    pub port: u16,
    /// The window in tokens (of four bytes). None is 200,000, and a million with the beta header `context-1m`.
    pub window: Option<u64>,
    /// How many bytes of a stream are sent at a time, cut wherever they end; 0 sends event by event.
    pub piece: usize,
    /// How long it waits before each piece of a stream but the first.
    pub piece_after: Duration,
    /// Whether requests and what was answered are kept. They fill the memory in a long run. Without, nobody knows what
    /// thinking and reasoning has to come back, and no stored response is gone on from.
    pub record: bool,
    /// The models that `GET /v1/models` names.
    pub models: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            window: None,
            piece: 0,
            piece_after: Duration::ZERO,
            record: true,
            models: [
                "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5", "gpt-5.2",
                "gpt-5.2-codex", "gemini-2.5-pro",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }
}

type Model = dyn Fn(&Request) -> Answer + Send + Sync;

/// All that the answers share.
struct Shared {
    options: Mutex<Options>,
    queue: Mutex<VecDeque<Answer>>,
    model: Mutex<Arc<Model>>,
    said: Mutex<Vec<(usize, Answer)>>,
    requests: Mutex<Vec<Request>>,
    /// How many came, kept or not.
    came: std::sync::atomic::AtomicUsize,
    refused: Mutex<Vec<Violation>>,
    issued: Mutex<rules::Issued>,
    cache: Mutex<cache::Cache>,
    began: Instant,
    /// How far a test moved the clock.
    ahead: Mutex<Duration>,
}

/// What a thread that panicked held is whole: nothing here is changed in two steps.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A provider on a port of its own, in a thread of its own, until it is dropped.
pub struct Simulator {
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Simulator {
    /// Starts one that answers like [`Coder`]`::default()` until it is told otherwise. Ready when this returns; it may be
    /// called from asynchronous code, too.
    ///
    /// # Panics
    ///
    /// Where no port can be opened.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// Starts one with these options.
    ///
    /// # Panics
    ///
    /// Where the port cannot be opened.
    pub fn with(options: Options) -> Self {
        let port = options.port;
        let coder = Coder::default();
        let shared = Arc::new(Shared {
            options: Mutex::new(options),
            queue: Mutex::default(),
            model: Mutex::new(Arc::new(move |request: &Request| coder.answer(request))),
            said: Mutex::default(),
            requests: Mutex::default(),
            came: Default::default(),
            refused: Mutex::default(),
            issued: Mutex::default(),
            cache: Mutex::default(),
            began: Instant::now(),
            ahead: Mutex::default(),
        });
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, address) = std::sync::mpsc::channel();
        let serving = shared.clone();
        let thread = std::thread::spawn(move || server::run(serving, port, ready, stopped));
        #[allow(
            clippy::expect_used,
            reason = "a test cannot go on without it, and says why"
        )]
        let address = address.recv().expect("the simulator opens its port");
        Self {
            shared,
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// `http://127.0.0.1:PORT`, without `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers these, in order, before what else answers.
    pub fn script(&self, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.shared.queue).extend(answers);
    }

    /// How many scripted answers nobody asked for yet.
    pub fn scripted(&self) -> usize {
        lock(&self.shared.queue).len()
    }

    /// Answers by this from now on, where nothing is scripted. It is called on the server's threads.
    pub fn answer_with(&self, model: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        *lock(&self.shared.model) = Arc::new(model);
    }

    /// Changes how it behaves towards the requests that come from now on; the port stays.
    pub fn set(&self, change: impl FnOnce(&mut Options)) {
        change(&mut lock(&self.shared.options));
    }

    /// Every request so far, in the order in which they came, refused ones too.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// Those of one interface.
    pub fn requests_of(&self, api: Api) -> Vec<Request> {
        lock(&self.shared.requests)
            .iter()
            .filter(|request| request.api == api)
            .cloned()
            .collect()
    }

    /// Forgets the requests, the violations and what was said; not what was signed, cached and billed.
    pub fn forget(&self) {
        lock(&self.shared.requests).clear();
        lock(&self.shared.refused).clear();
        lock(&self.shared.said).clear();
    }

    /// Every request that broke a rule. One that was only too large for the window is among [`overflows`](Self::overflows).
    pub fn violations(&self) -> Vec<Violation> {
        let refused = lock(&self.shared.refused);
        refused
            .iter()
            .filter(|one| !one.rule.name.ends_with("window"))
            .cloned()
            .collect()
    }

    /// Every request that was too large for the window, and right otherwise.
    pub fn overflows(&self) -> Vec<Violation> {
        let refused = lock(&self.shared.refused);
        refused
            .iter()
            .filter(|one| one.rule.name.ends_with("window"))
            .cloned()
            .collect()
    }

    /// What was answered so far, each with the number of its request: not what was refused, and no mere status.
    pub fn said(&self) -> Vec<(usize, Answer)> {
        lock(&self.shared.said).clone()
    }

    /// What it all cost.
    pub fn bill(&self) -> Bill {
        lock(&self.shared.cache).bill
    }

    /// Moves the clock by which the prompt cache forgets.
    pub fn advance(&self, time: Duration) {
        *lock(&self.shared.ahead) += time;
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

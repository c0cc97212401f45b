//! A model server of the tests' own, which answers, or fails in the way that it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contexture::config::AuxiliaryModel;
use contexture::providers::{ModelClient, Resolved, resolve};
use serde_json::{Value, json};

/// What the server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// A summary of a line.
    Answers,
    /// This text.
    Says(&'static str),
    /// A text as long as it can be.
    Rambles,
    /// A refusal.
    Refuses,
    /// An answer without text.
    Empty,
    /// An answer that stops at its limit.
    CutOff,
    /// The material is too long.
    TooLong,
    /// Something else is wrong with the request.
    Broken,
    /// One of these, by turns.
    Fickle,
}

const BY_TURNS: [Mood; 7] = [
    Mood::Answers,
    Mood::Refuses,
    Mood::TooLong,
    Mood::Answers,
    Mood::Empty,
    Mood::CutOff,
    Mood::Rambles,
];

/// The server; it ends with the process.
pub struct SummaryModel {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    requests: Arc<AtomicU64>,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl SummaryModel {
    /// Starts it on a free port of this machine.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let mood = Arc::new(Mutex::new(Mood::Answers));
        let requests = Arc::new(AtomicU64::new(0));
        let bodies = Arc::<Mutex<Vec<Value>>>::default();
        let (moods, count) = (Arc::clone(&mood), Arc::clone(&requests));
        let kept = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let mood = *moods.lock().unwrap_or_else(PoisonError::into_inner);
                let kept = Arc::clone(&kept);
                // A client that went away is no trouble of the server's.
                std::thread::spawn(move || drop(answer(&stream, mood, number, &kept)));
            }
        });
        Self {
            address,
            mood,
            requests,
            bodies,
        }
    }

    /// From now on it does this.
    pub fn turns(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// How many requests it had.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The bodies of its requests since the last call.
    pub fn bodies(&self) -> Vec<Value> {
        std::mem::take(&mut *self.bodies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A client of this model.
    pub fn client(&self) -> ModelClient {
        let settings = AuxiliaryModel {
            model: Some("simulator".to_owned()),
            provider: "openai".to_owned(),
            base_url: Some(format!("http://{}/v1", self.address)),
            context_length: Some(4_000),
            timeout_ms: 5_000,
        };
        let key = |_: &str| Some("a-key".to_owned());
        let resolved: Resolved =
            resolve(&settings, None, false, &key).unwrap_or_else(|error| panic!("{error}"));
        ModelClient::new(resolved, Duration::from_secs(5), |text| text.into())
    }
}

fn answer(
    mut stream: &TcpStream,
    mood: Mood,
    number: u64,
    bodies: &Mutex<Vec<Value>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let header = line.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let asked = serde_json::from_slice(&body).unwrap_or_default();
    bodies
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(asked);
    let mood = match mood {
        Mood::Fickle => BY_TURNS[usize::try_from(number).unwrap_or(0) % BY_TURNS.len()],
        mood => mood,
    };
    let (status, body) = reply(mood, number);
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()
}

fn reply(mood: Mood, number: u64) -> (&'static str, Value) {
    let says = |text: &str, finish: &str| {
        json!({
            "model": "simulator",
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        })
    };
    let error = |code: &str, message: &str| json!({"error": {"code": code, "message": message}});
    match mood {
        Mood::Answers | Mood::Fickle => ("200 OK", says(&format!("Summary {number}."), "stop")),
        Mood::Says(text) => ("200 OK", says(text, "stop")),
        Mood::Rambles => ("200 OK", says(&"and so on ".repeat(3_000), "stop")),
        Mood::Refuses => ("200 OK", says("", "content_filter")),
        Mood::Empty => ("200 OK", says("", "stop")),
        Mood::CutOff => ("200 OK", says("It began when", "length")),
        Mood::TooLong => (
            "400 Bad Request",
            error(
                "context_length_exceeded",
                "maximum context length is 100 tokens",
            ),
        ),
        Mood::Broken => ("400 Bad Request", error("invalid_request", "no")),
    }
}

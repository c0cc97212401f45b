//! A proxy between a client and a gateway that passes on every byte and records what the gateway's headers say about
//! each answer.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// What the headers of one answer say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The request line: `POST /v1/messages`.
    pub request: String,
    /// `x-contexture-status`.
    pub status: String,
    /// `x-contexture-reason`.
    pub reason: Option<String>,
    /// `x-contexture-compaction`.
    pub compaction: Option<String>,
}

/// The proxy. It listens on its own address for as long as the test runs.
pub struct Tap {
    address: String,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Tap {
    /// Starts a proxy in front of this address, `127.0.0.1:PORT`.
    ///
    /// # Panics
    ///
    /// If no port can be opened.
    pub fn before(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let (target, all) = (target.to_owned(), told.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&target) else {
                    continue;
                };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                // No client sends another request on a connection before it has its answer.
                let asked: Arc<Mutex<VecDeque<String>>> = Arc::default();
                let asks = asked.clone();
                std::thread::spawn(move || {
                    pass(from, to, |bytes| lock(&asks).extend(first_line(bytes)));
                });
                let all = all.clone();
                std::thread::spawn(move || {
                    let mut heads = Heads::default();
                    pass(server, client, |bytes| {
                        for mut told in heads.take(bytes) {
                            told.request = lock(&asked).pop_front().unwrap_or_default();
                            if !told.status.is_empty() {
                                lock(&all).push(told);
                            }
                        }
                    });
                });
            }
        });
        Self { address, told }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The headers of each answer so far, in order of arrival.
    pub fn told(&self) -> Vec<Told> {
        lock(&self.told).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The method and path of a request that begins with these bytes; `None` if the bytes are from its middle.
fn first_line(bytes: &[u8]) -> Option<String> {
    let methods: [&[u8]; 3] = [b"POST /", b"GET /", b"HEAD /"];
    if !methods.iter().any(|method| bytes.starts_with(method)) {
        return None;
    }
    let line = bytes.split(|byte| *byte == b'\r').next()?;
    let line = String::from_utf8_lossy(line);
    let (asked, _) = line.split_once(" HTTP/1.")?;
    let path = asked.split('?').next()?;
    Some(path.to_owned())
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        note(&bytes[..read]);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Finds the heads of answers in a stream of bytes.
#[derive(Default)]
struct Heads {
    rest: Vec<u8>,
}

impl Heads {
    /// The heads that these bytes complete.
    fn take(&mut self, bytes: &[u8]) -> Vec<Told> {
        self.rest.extend_from_slice(bytes);
        let mut told = Vec::new();
        loop {
            let Some(begin) = find(&self.rest, b"HTTP/1.1 ") else {
                // A head may begin in the last bytes.
                let keep = self.rest.len().saturating_sub(8);
                self.rest.drain(..keep);
                return told;
            };
            let Some(length) = find(&self.rest[begin..], b"\r\n\r\n") else {
                self.rest.drain(..begin);
                return told;
            };
            let head = String::from_utf8_lossy(&self.rest[begin..begin + length]).into_owned();
            let value = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_owned())
            };
            told.push(Told {
                request: String::new(),
                status: value("x-contexture-status").unwrap_or_default(),
                reason: value("x-contexture-reason"),
                compaction: value("x-contexture-compaction"),
            });
            self.rest.drain(..begin + length);
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|at| at == what)
}

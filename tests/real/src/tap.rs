//! Stands between a client and a gateway, passes every byte on, and notes what the gateway says of each answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// What the headers of one answer say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// `x-contexture-status`.
    pub status: String,
    /// `x-contexture-reason`.
    pub reason: Option<String>,
    /// `x-contexture-compaction`.
    pub compaction: Option<String>,
}

/// Listens on an address of its own for as long as the test runs.
pub struct Tap {
    address: String,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Tap {
    /// Stands before this address, `127.0.0.1:PORT`.
    ///
    /// # Panics
    ///
    /// Where no port can be opened.
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
                std::thread::spawn(move || pass(from, to, |_| {}));
                let all = all.clone();
                std::thread::spawn(move || {
                    let mut heads = Heads::default();
                    pass(server, client, |bytes| {
                        let told = heads.take(bytes);
                        all.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .extend(told);
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

    /// What was said of each answer so far, in the order in which they came.
    pub fn told(&self) -> Vec<Told> {
        let told = self.told.lock();
        told.unwrap_or_else(PoisonError::into_inner).clone()
    }
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

/// The heads of answers in a stream of bytes.
#[derive(Default)]
struct Heads {
    rest: Vec<u8>,
}

impl Heads {
    /// What is said in the heads that these bytes bring to their end.
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
            if let Some(status) = value("x-contexture-status") {
                told.push(Told {
                    status,
                    reason: value("x-contexture-reason"),
                    compaction: value("x-contexture-compaction"),
                });
            }
            self.rest.drain(..begin + length);
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|at| at == what)
}

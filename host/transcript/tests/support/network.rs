//! A network before a server that is slow, hangs, or loses connections without a word.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
struct State {
    hangs: AtomicBool,
    /// How many connections there were.
    connections: AtomicU64,
    /// Connections with a lower number pass nothing on any more.
    lost: AtomicU64,
    /// How long each answer takes, in milliseconds.
    delay: AtomicU64,
}

/// Passes connections on to a server.
pub(crate) struct Network {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Network {
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let own = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let number = own.connections.fetch_add(1, Ordering::SeqCst);
                for is_answer in [false, true] {
                    let (client, server) = (client.try_clone(), server.try_clone());
                    let (client, server) = (client.unwrap(), server.unwrap());
                    let state = Arc::clone(&own);
                    std::thread::spawn(move || match is_answer {
                        true => state.pass(number, server, client, true),
                        false => state.pass(number, client, server, false),
                    });
                }
            }
        });
        Self { address, state }
    }

    /// The URL of a server as it is reached through this network.
    pub(crate) fn url(&self, of: &super::server::Server) -> String {
        let [server, own] = [of.address(), self.address].map(|address| address.to_string());
        of.url().replace(&server, &own)
    }

    /// Passes nothing on until it is told otherwise. Then it passes on what was sent meanwhile.
    pub(crate) fn hang(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Passes nothing on any more in the connections that there are. New ones work.
    pub(crate) fn lose_connections(&self) {
        let now = self.state.connections.load(Ordering::SeqCst);
        self.state.lost.store(now, Ordering::SeqCst);
    }

    /// Has each answer take this long from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        let delay = delay.as_millis() as u64;
        self.state.delay.store(delay, Ordering::SeqCst);
    }
}

impl State {
    /// Copies until one side ends, and ends the other side then.
    fn pass(&self, number: u64, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let holds =
                || self.hangs.load(Ordering::SeqCst) || number < self.lost.load(Ordering::SeqCst);
            while holds() {
                std::thread::sleep(Duration::from_millis(5));
            }
            if is_answer {
                let delay = self.delay.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(delay));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

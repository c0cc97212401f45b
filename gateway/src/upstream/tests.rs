#![allow(clippy::unwrap_used)]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::thread;

use super::*;

/// Bytes that say whether they are still in memory.
struct Watched(Vec<u8>, #[expect(dead_code)] Arc<()>);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Reads a request of this length, and answers as soon as its body has left memory. Returns the
/// head, and whether the body did leave.
fn answer(listener: &TcpListener, length: usize, body: &Weak<()>) -> (String, bool) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut read, mut buffer) = (Vec::new(), [0; 1 << 16]);
    let head = loop {
        let size = stream.read(&mut buffer).unwrap();
        read.extend_from_slice(&buffer[..size]);
        let end = memchr::memmem::find(&read, b"\r\n\r\n");
        if let Some(end) = end.filter(|end| read.len() == end + 4 + length) {
            break String::from_utf8_lossy(&read[..end]).into_owned();
        }
    };
    let has_left = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        body.upgrade().is_none()
    });
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(answer).unwrap();
    (head, has_left)
}

#[tokio::test]
async fn a_body_leaves_memory_before_its_answer_begins() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let builder = Client::builder(&config::Upstream::default()).no_proxy();
    let client = Client::build(builder).unwrap();
    let alive = Arc::new(());
    let weak = Arc::downgrade(&alive);
    let body = Bytes::from_owner(Watched(vec![b'a'; 400_000], alive));
    let answering = thread::spawn(move || answer(&listener, 400_000, &weak));
    let sent = client.send(Method::POST, &url, HeaderMap::new(), body);
    assert_eq!(sent.await.unwrap().status(), 200);
    let (head, has_left) = answering.join().unwrap();
    assert!(head.contains("content-length: 400000"), "{head}");
    assert!(has_left);
}

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;

/// A reader of the log that waits until it is told to read.
#[derive(Clone, Default)]
struct Reader(Arc<(Mutex<Option<String>>, Condvar)>);

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let (read, changed) = &*self.0;
        let mut read = changed
            .wait_while(read.lock().unwrap(), |read| read.is_none())
            .unwrap();
        let text = std::str::from_utf8(bytes).unwrap();
        read.as_mut().unwrap().push_str(text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_does_not_read_costs_lines_and_no_time() {
    let (queue, reader) = (Arc::new(Queue::default()), Reader::default());
    let (own, to) = (Arc::clone(&queue), reader.clone());
    std::thread::spawn(move || own.write_all(to));
    queue.push("first\n".to_owned());
    // Until the thread has taken the first line, it counts among those that wait.
    while !queue.lock().is_writing {
        std::thread::yield_now();
    }
    let line = "x".repeat((1 << 20) - 1) + "\n";
    for _ in 0..6 {
        queue.push(line.clone());
    }
    queue.flush(Duration::from_millis(10));
    assert_eq!(queue.lock().lost, 2);

    *reader.0.0.lock().unwrap() = Some(String::new());
    reader.0.1.notify_all();
    queue.flush(Duration::from_secs(20));
    let read = reader.0.0.lock().unwrap().clone().unwrap();
    assert!(
        read == format!("first\n{}", line.repeat(4)),
        "{}",
        read.len()
    );
}

#[test]
fn a_line_has_no_control_characters_and_says_the_same() {
    let all: String = ('\0'..='\u{ff}').collect();
    let value = Value::from(all);
    let json = value.to_string();
    let line = visible(&json);
    assert!(!line.contains(char::is_control), "{line:?}");
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
}

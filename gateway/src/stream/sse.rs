//! Server-sent events: bytes in pieces of any size, out as whole events.

/// One event, with the bytes that it came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'b> {
    /// All of it, the empty line at its end included.
    pub(crate) raw: &'b [u8],
    /// Its data; none of a comment. Providers send it in one line.
    pub(crate) data: Option<&'b str>,
}

impl Event<'_> {
    /// Its data, where that is JSON.
    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_str(self.data?).ok()
    }
}

/// What was received and is no whole event yet.
#[derive(Debug, Default)]
pub(crate) struct Events {
    buffer: Vec<u8>,
    /// Where the next event begins.
    start: usize,
    /// Up to where no end of it was found.
    looked: usize,
}

impl Events {
    /// Takes in what was received.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.looked -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event.
    pub(crate) fn next(&mut self) -> Option<Event<'_>> {
        let mut at = self.looked.max(self.start);
        let end = loop {
            let newline = at + memchr::memchr(b'\n', self.buffer.get(at..)?)?;
            let rest = self.buffer.get(newline + 1..).unwrap_or(&[]);
            match rest {
                [b'\n', ..] => break newline + 2,
                [b'\r', b'\n', ..] => break newline + 3,
                [] | [b'\r'] => {
                    self.looked = newline;
                    return None;
                }
                _ => at = newline + 1,
            }
        };
        let raw = self.buffer.get(self.start..end)?;
        self.start = end;
        self.looked = end;
        Some(Event::of(raw))
    }

    /// What is left when the stream has ended. A stream may lack the empty line at its end and even its last line
    /// break. The remainder is still an event if it can be parsed as one.
    pub(crate) fn rest(&mut self) -> Option<Event<'_>> {
        let raw = self
            .buffer
            .get(self.start..)
            .filter(|raw| !raw.is_empty())?;
        self.start = self.buffer.len();
        self.looked = self.start;
        Some(Event::of(raw))
    }
}

impl<'b> Event<'b> {
    fn of(raw: &'b [u8]) -> Self {
        let lines = raw.split(|byte| *byte == b'\n');
        let data = lines.filter_map(|line| line.strip_prefix(b"data:")).next();
        let data = data.and_then(|data| std::str::from_utf8(data).ok());
        Self {
            raw,
            data: data.map(str::trim),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Whatever pieces it comes in, each event comes out once, with its very bytes.
    #[test]
    fn events_are_found_in_pieces_of_any_size() {
        let text = "event: a\ndata: {\"x\":1}\n\n: ping\n\ndata: é\r\n\r\ndata:[DONE]\n\nhalf";
        for size in 1..text.len() {
            let mut events = Events::default();
            let (mut raw, mut data) = (Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                events.push(piece);
                while let Some(event) = events.next() {
                    raw.extend_from_slice(event.raw);
                    data.push(event.data.map(str::to_owned));
                }
            }
            assert_eq!(raw, text.strip_suffix("half").unwrap().as_bytes(), "{size}");
            assert_eq!(events.rest().map(|rest| rest.raw), Some(&b"half"[..]));
            assert!(events.rest().is_none() && events.next().is_none());
            let expected = [Some("{\"x\":1}"), None, Some("é"), Some("[DONE]")];
            let expected: Vec<_> = expected.iter().map(|one| one.map(str::to_owned)).collect();
            assert_eq!(data, expected, "{size}");
        }
    }
}

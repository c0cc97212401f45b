//! Splits a stream of server-sent events into events.
//!
//! Bytes arrive in pieces of any size. [`Events`] collects them and returns each [`Event`] once it
//! is complete, with the exact bytes that it arrived in, so that it can be passed on unchanged.
//! Only as much of the format is supported as providers use: the event's name is not needed, because
//! the data contains its type. What an event means is decided by the readers in
//! [`stream`](crate::stream).

use std::borrow::Cow;

use super::{BYTE_ORDER_MARK, surrogates};

/// One event, with the bytes that it arrived in. It borrows from [`Events`], so it has to be
/// handled before more bytes are pushed.
#[derive(Debug)]
pub(crate) struct Event<'b> {
    /// The whole event, including the empty line at its end.
    pub(crate) raw: &'b [u8],
    /// The event's data, which may be on several lines. None for a comment, or if the data is not
    /// UTF-8.
    pub(crate) data: Option<Cow<'b, str>>,
}

impl Event<'_> {
    /// The event's data as JSON. None if there is none or it cannot be parsed, as for `[DONE]`. See
    /// [`surrogates`] for texts with half a character.
    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        Some(surrogates::parse(self.data.as_ref()?)?.0)
    }
}

/// The received bytes that are not returned as events yet.
#[derive(Debug, Default)]
pub(crate) struct Events {
    buffer: Vec<u8>,
    /// The position of the first byte of the next event.
    start: usize,
    /// The position before which the next event does not end. It prevents searching the same bytes
    /// again for each piece.
    looked: usize,
}

impl Events {
    /// Appends received bytes and discards those of events that were returned.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Returned events borrow from the buffer, so their bytes can be discarded only now.
        self.buffer.drain(..self.start);
        self.looked -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete event. None until more bytes are pushed. Lines may end with `\n`, `\r\n` or
    /// `\r`.
    pub(crate) fn next(&mut self) -> Option<Event<'_>> {
        let mut at = self.looked.max(self.start);
        // An empty line ends an event.
        let end = loop {
            let Some(step) = memchr::memchr2(b'\n', b'\r', self.buffer.get(at..)?) else {
                self.looked = self.buffer.len();
                return None;
            };
            let line_end = at + step;
            let (is_alone, next) = match self.buffer.get(line_end..)? {
                [b'\r', b'\n', ..] => (false, line_end + 2),
                [first, ..] => (*first == b'\r', line_end + 1),
                [] => return None,
            };
            match self.buffer.get(next..)? {
                [b'\r', b'\n', ..] => break next + 2,
                [b'\n', ..] | [b'\r', _, ..] => break next + 1,
                // If the line before ended with `\r` alone, no `\n` is expected after this one.
                [b'\r'] if is_alone => break next + 1,
                // The line after this one has not arrived yet, so the search continues here.
                [] | [b'\r'] => {
                    self.looked = line_end;
                    return None;
                }
                _ => at = next,
            }
        };
        let raw = self.buffer.get(self.start..end)?;
        self.start = end;
        self.looked = end;
        Some(Event::of(raw))
    }

    /// What is left after the stream has ended. A stream may lack the empty line at its end and
    /// even its last line break, so the rest may still be an event. The caller has to check whether
    /// it can be parsed.
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
        // A stream may begin with a byte order mark.
        let text = raw.strip_prefix(BYTE_ORDER_MARK).unwrap_or(raw);
        let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
        let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
        let mut data = data.map(|data| Some(std::str::from_utf8(data).ok()?.trim()));
        let first = data.next().flatten().map(Cow::Borrowed);
        let data = data.fold(first, |all, line| {
            let (mut all, line) = (all?.into_owned(), line?);
            all.push('\n');
            all.push_str(line);
            Some(Cow::Owned(all))
        });
        Self { raw, data }
    }
}

#[cfg(test)]
mod tests;

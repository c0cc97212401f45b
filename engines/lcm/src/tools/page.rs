//! Answers of bounded size.
//!
//! The model sees the answer of a tool as JSON, and every token of it takes space in the window.
//! [`within`] makes an answer of at most the requested number of tokens. It calls a function that
//! fills a [`Page`] with items until no further one fits, and [`longest`] finds how much of a text
//! fits.
//!
//! What an answer contains is left to the tools.

use contexture_engine_api::{EngineError, Services};
use contexture_summaries::largest_within;
use serde_json::Value;

/// The number of tokens of an answer if the call does not say another one.
pub(super) const DEFAULT_TOKENS: u64 = 4_000;
/// The smallest number of tokens that a call may ask for.
pub(super) const MIN_TOKENS: u64 = 100;
/// The largest number of tokens that a call may ask for.
pub(super) const MAX_TOKENS: u64 = 32_000;

/// Answers with fewer tokens leave out optional fields. The schemas of the tools say so.
const LEAN_BELOW: u64 = 250;

/// A part of a text with fewer tokens than this is not worth adding after other items. It goes to
/// the next page as a whole.
const LEAST_PART: u64 = 64;

/// The number of bytes of a long text that a token covers at most. It limits how much of a text has
/// to be read to fill an answer.
pub(super) const MAX_BYTES_A_TOKEN: usize = 16;

/// Whether there is so little room that optional fields are left out.
pub(super) fn is_lean(room: u64) -> bool {
    room < LEAN_BELOW
}

/// Returns the number of tokens of a piece of an answer.
pub(super) fn count(services: &Services, value: &Value) -> u64 {
    services.count_tokens(&value.to_string())
}

/// Makes an answer of at most `max_tokens`, or [`DEFAULT_TOKENS`] if it is None. `make` gets the
/// number of tokens that it may use. If the answer as a whole is larger than its parts together,
/// `make` is called again with less.
pub(super) fn within(
    max_tokens: Option<u64>,
    services: &Services,
    mut make: impl FnMut(u64) -> Result<Value, EngineError>,
) -> Result<Value, EngineError> {
    let max = max_tokens
        .unwrap_or(DEFAULT_TOKENS)
        .clamp(MIN_TOKENS, MAX_TOKENS);
    let mut room = max;
    loop {
        let answer = make(room)?;
        let tokens = count(services, &answer);
        if tokens <= max || room == 0 {
            return Ok(answer);
        }
        // The parts are counted separately, but the JSON around and between them costs tokens as
        // well. Take off the excess and try again.
        room = room.saturating_sub(tokens - max);
    }
}

/// The items of an answer, as many as fit.
pub(super) struct Page<'a> {
    services: &'a Services,
    left: u64,
    pub(super) items: Vec<Value>,
}

impl<'a> Page<'a> {
    /// Creates a page with this much room. `frame` is the answer without its items, whose tokens
    /// are taken off first.
    pub(super) fn new(room: u64, frame: &Value, services: &'a Services) -> Self {
        Self {
            services,
            left: room.saturating_sub(count(services, frame)),
            items: Vec::new(),
        }
    }

    /// Adds an item if it fits, and returns whether it did.
    pub(super) fn push(&mut self, item: Value) -> bool {
        self.push_with(item, &Value::Null)
    }

    /// Adds an item if it fits together with what it adds elsewhere in the answer. Pass null if it
    /// adds nothing there.
    pub(super) fn push_with(&mut self, item: Value, elsewhere: &Value) -> bool {
        let text = item.to_string();
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        // A text this long cannot fit, and counting its tokens would take long.
        if text.len() > most.saturating_mul(MAX_BYTES_A_TOKEN) {
            return false;
        }
        // The additional token is for the comma between items.
        let mut tokens = self.services.count_tokens(&text) + 1;
        if !elsewhere.is_null() {
            tokens += count(self.services, elsewhere) + 1;
        }
        let fits = tokens <= self.left;
        if fits {
            self.left -= tokens;
            self.items.push(item);
        }
        fits
    }

    /// Adds as much of `text` as fits, from the byte `from` on. `item` makes an item of the part
    /// that ends at a byte. Returns where the part ends, or None if there is not enough room after
    /// other items. The first item gets at least one character, so that every page makes progress.
    pub(super) fn push_part(
        &mut self,
        text: &str,
        from: usize,
        item: impl Fn(usize) -> Value,
    ) -> Option<usize> {
        if !self.items.is_empty() && self.left < LEAST_PART {
            return None;
        }
        let room = self.left.saturating_sub(1);
        let mut end = longest(text, from, room, self.services, &item);
        if end == from {
            if !self.items.is_empty() {
                return None;
            }
            end = text.ceil_char_boundary(from + 1);
        }
        let item = item(end);
        self.left = self.left.saturating_sub(count(self.services, &item) + 1);
        self.items.push(item);
        Some(end)
    }
}

/// Returns the end of the longest part of `text` that fits. The part begins at the byte `from`, and
/// `item` makes of its end what is counted against `room`. If not even one character fits, the
/// result is `from`.
pub(super) fn longest(
    text: &str,
    from: usize,
    room: u64,
    services: &Services,
    item: impl Fn(usize) -> Value,
) -> usize {
    let tokens = |end| count(services, &item(end));
    let reach = usize::try_from(room)
        .unwrap_or(usize::MAX)
        .saturating_mul(MAX_BYTES_A_TOKEN);
    let most = text.len().min(from.saturating_add(reach));
    let base = tokens(from);
    if base > room || from >= text.len() {
        return from;
    }
    let end = |size| text.floor_char_boundary(from + size);
    end(largest_within(most - from, room - base, |size| {
        tokens(end(size)).saturating_sub(base)
    }))
}

#[cfg(test)]
mod tests;

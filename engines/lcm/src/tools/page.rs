//! An answer that stays within its size: items are added while they fit.

use contexture_engine_api::Services;
use serde_json::Value;

/// Tokens set aside for what stands around the items.
const FRAME_TOKENS: u64 = 60;

/// Items of an answer.
pub(crate) struct Page<'a> {
    services: &'a Services,
    left: u64,
    pub(crate) items: Vec<Value>,
}

impl<'a> Page<'a> {
    pub(crate) fn new(max_tokens: u64, services: &'a Services) -> Self {
        Self {
            services,
            left: max_tokens.saturating_sub(FRAME_TOKENS),
            items: Vec::new(),
        }
    }

    /// Tokens that are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Adds an item if it fits; the first one always does, so that there is always progress.
    pub(crate) fn push(&mut self, item: Value) -> bool {
        let tokens = self.services.count_tokens(&item.to_string());
        if tokens > self.left && !self.items.is_empty() {
            return false;
        }
        self.left = self.left.saturating_sub(tokens);
        self.items.push(item);
        true
    }
}

/// The longest beginning of `text`, from the byte `from` on, that takes about `max_tokens`: where it
/// ends. At least one character, where there is one.
pub(crate) fn piece_end(text: &str, from: usize, max_tokens: u64, services: &Services) -> usize {
    let rest = text.get(from..).unwrap_or("");
    // No text has fewer than a sixteenth of a token a byte for long; a cut there keeps counting cheap.
    let mut end = char_start(rest, rest.len().min(max_tokens as usize * 16));
    loop {
        let tokens = services.count_tokens(&rest[..end]);
        if tokens <= max_tokens {
            return from + end;
        }
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let share = max_tokens as f64 / tokens as f64 * 0.95;
        let shorter = char_start(rest, (end as f64 * share) as usize);
        if shorter <= first {
            return from + first;
        }
        end = shorter;
    }
}

/// The nearest place at or before `at` where a character begins.
pub(crate) fn char_start(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

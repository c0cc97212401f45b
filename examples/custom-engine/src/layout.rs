//! What of a window stays, and how what leaves is outlined.
//!
//! Three rules of the host decide: a tool call stays with its results, calls in flight stay, and the user's last
//! message stays where it stands. A [`Layout`] keeps to them.

use std::ops::Range;

use contexture_engine_api::{
    MessageId, MessageView, WindowState, in_flight, roomy, safe_cut, safe_cut_after,
};

/// Which messages a compaction covers.
pub(crate) struct Layout {
    /// Everything before the user's last message, or before the messages at the end.
    pub(crate) earlier: Range<usize>,
    /// What stands between the user's last message and the messages at the end: a long piece of work.
    pub(crate) between: Range<usize>,
    /// The room for what a summary says beside its account, in bytes.
    pub(crate) bytes: usize,
}

impl Layout {
    /// Keeps as many of the last messages as leave a quarter of the threshold free, or as few as possible.
    pub(crate) fn new(
        messages: &[MessageView<'_>],
        window: &WindowState,
        mut keep_last: usize,
        threshold: u64,
    ) -> Self {
        let counted = window.fixed_tokens + tokens(messages);
        // The provider may count differently, so convert the threshold to the tokens of the messages.
        let scale = counted as f64 / window.best_prompt_tokens().max(1) as f64;
        let threshold = (threshold as f64 * scale) as u64;
        // A summary may take a quarter of the threshold; four bytes are about a token.
        let (summaries, bytes) = (threshold / 4, threshold as usize / 2);
        loop {
            let (earlier, between) = spans(messages, keep_last);
            let covered = tokens(&messages[earlier.clone()]) + tokens(&messages[between.clone()]);
            if counted - covered + summaries <= roomy(threshold) || keep_last <= 1 {
                return Self {
                    earlier,
                    between,
                    bytes,
                };
            }
            keep_last /= 2;
        }
    }
}

fn tokens(messages: &[MessageView<'_>]) -> u64 {
    messages.iter().map(MessageView::tokens).sum()
}

/// What leaves if this many of the last messages stay.
fn spans(messages: &[MessageView<'_>], keep_last: usize) -> (Range<usize>, Range<usize>) {
    let tail = messages.len().saturating_sub(keep_last);
    let tail = in_flight(messages).map_or(tail, |calls| tail.min(calls));
    let tail = safe_cut(messages, tail);
    let words = messages.iter().rposition(MessageView::is_real_user);
    match words.filter(|at| *at < tail) {
        None => (0..tail, tail..tail),
        Some(at) => {
            let after = safe_cut_after(messages, at + 1);
            (0..safe_cut(messages, at), after..tail.max(after))
        }
    }
}

/// The ids of messages.
pub(crate) fn ids(messages: &[MessageView<'_>]) -> Vec<MessageId> {
    messages.iter().map(MessageView::id).collect()
}

/// A line for each message, of the last ones that fit: who said it, which tools it calls and how it begins.
pub(crate) fn outline(messages: &[MessageView<'_>], bytes: usize) -> String {
    let mut lines = Vec::new();
    let mut room = bytes;
    for (at, message) in messages.iter().enumerate().rev() {
        let calls: Vec<_> = message
            .tool_calls()
            .iter()
            .map(|call| call.name())
            .collect();
        // An earlier summary comes first, and is carried on.
        let length = if at == 0 { bytes / 4 } else { 120 };
        let text = one_line(message.text(), length);
        let line = format!("- {} {}: {text}", message.role(), calls.join(" "));
        match room.checked_sub(line.len() + 1) {
            Some(left) => room = left,
            None => {
                lines.push(format!("({} earlier messages are not listed.)", at + 1));
                break;
            }
        }
        lines.push(line);
    }
    lines.reverse();
    lines.join("\n")
}

/// The beginning of a text in one line of at most so many bytes.
pub(crate) fn one_line(text: &str, bytes: usize) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    clip(&words.join(" "), bytes).to_owned()
}

/// The beginning of a text, at most so many bytes.
pub(crate) fn clip(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

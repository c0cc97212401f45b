//! The document's estimate of tokens, which needs no tokenizer.
//!
//! Chinese, Japanese and Korean characters count 1.5 to a token, all others 4. [`Estimate`] keeps
//! the two counts of characters apart and divides only at the end, so that estimates of parts can
//! be added without rounding errors. Layer 2 compares these estimates with its threshold. The host
//! counts tokens with a real tokenizer, so both numbers can differ for the same window.

use std::iter::Sum;
use std::ops::Add;

use contexture_engine_api::{MessageView, Replacement};

const CHARS_PER_TOKEN_CJK: f64 = 1.5;
const CHARS_PER_TOKEN_EN: f64 = 4.0;

/// The number of characters in texts, with Chinese, Japanese and Korean ones counted apart.
/// Estimates can be added. Call [`tokens`](Self::tokens) on the sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    cjk: u64,
    other: u64,
}

impl Estimate {
    /// Counts the characters of a text. Characters are Unicode scalar values, not bytes.
    pub fn of(text: &str) -> Self {
        let cjk = text.chars().filter(|c| is_cjk(*c)).count() as u64;
        let other = text.chars().count() as u64 - cjk;
        Self { cjk, other }
    }

    /// Returns the tokens that these characters make. The result is rounded down once, so a short
    /// text can have 0 tokens.
    pub fn tokens(self) -> u64 {
        (self.cjk as f64 / CHARS_PER_TOKEN_CJK + self.other as f64 / CHARS_PER_TOKEN_EN) as u64
    }

    /// Counts the text of a message and the names and arguments of its calls, or what its shorter
    /// form shows instead.
    pub(crate) fn of_message(message: &MessageView<'_>, shorter: Option<&Replacement>) -> Self {
        let text = shorter.and_then(|shorter| shorter.text.as_deref());
        let calls = message.tool_calls().iter().enumerate();
        calls.fold(
            Self::of(text.unwrap_or(message.text())),
            |sum, (index, call)| {
                let arguments = shorter
                    .and_then(|shorter| shorter.arguments.iter().find(|short| short.index == index))
                    .map_or(call.arguments(), |short| &short.arguments);
                sum + Self::of(call.name()) + Self::of(arguments)
            },
        )
    }
}

/// Estimates the tokens of messages: their texts, and the names and arguments of their calls. The
/// estimate of no messages is 0.
pub fn estimate(messages: &[MessageView<'_>]) -> u64 {
    let sum: Estimate = (messages.iter())
        .map(|message| Estimate::of_message(message, None))
        .sum();
    sum.tokens()
}

impl Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cjk: self.cjk + other.cjk,
            other: self.other + other.other,
        }
    }
}

impl Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// Whether a character is Han, kana or hangul, or punctuation or a full-width form of these
/// scripts.
fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11ff}'
        | '\u{2e80}'..='\u{9fff}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ffef}'
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::{MessageId, ToolCallView};

    use super::*;

    #[test]
    fn scripts_are_told_apart_and_the_sum_is_truncated_once() {
        assert_eq!(estimate(&[]), 0);
        assert_eq!(Estimate::of("一二三").tokens(), 2);
        assert_eq!(Estimate::of("abcdefgh").tokens(), 2);
        // 1 / 1.5 + 2 / 4 = 1.17, while each part alone would round down to 0.
        let parts = Estimate::of("一") + Estimate::of("ab");
        assert_eq!(parts.tokens(), 1);
        assert_eq!(Estimate::of("カナ、한글，！").tokens(), 4);
    }

    #[test]
    fn names_and_arguments_of_calls_count() {
        let calls = [ToolCallView::new(
            "an id that counts nothing",
            "bash",
            "{\"a\":1}",
        )];
        let said = MessageView::new(MessageId(1), "assistant").with_text("abcd");
        assert_eq!(estimate(&[said]), 1);
        assert_eq!(estimate(&[said.with_tool_calls(&calls)]), 3);
    }
}

//! The document's estimate of tokens, which needs no tokenizer.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use contexture_engine_api::{MessageView, Replacement};

const CHARS_PER_TOKEN_CJK: f64 = 1.5;
const CHARS_PER_TOKEN_EN: f64 = 4.0;

/// The characters of texts, those of Chinese, Japanese and Korean apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    cjk: u64,
    other: u64,
}

impl Estimate {
    /// The characters of a text.
    pub fn of(text: &str) -> Self {
        let cjk = text.chars().filter(|c| is_cjk(*c)).count() as u64;
        let other = text.chars().count() as u64 - cjk;
        Self { cjk, other }
    }

    /// The tokens that they make, truncated once.
    pub fn tokens(self) -> u64 {
        (self.cjk as f64 / CHARS_PER_TOKEN_CJK + self.other as f64 / CHARS_PER_TOKEN_EN) as u64
    }

    /// A message with the names and the arguments of its calls, as it is or in its shorter form.
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

/// The estimated tokens of messages: their texts, and the names and arguments of their calls; 0 for none.
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

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// Han, kana and hangul, with their punctuation and full-width forms.
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
        // 1 / 1.5 + 2 / 4 = 1.17, where each part alone would be nothing.
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

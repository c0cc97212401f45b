//! Formatting text and numbers for people.
//!
//! Text that comes from a plugin, a file or a model may contain control characters that change a
//! terminal's state, move its cursor or reverse the direction of writing. [`printable`] makes such
//! text safe to print and limits its length. Hosts and engines call it before they show or log text
//! that they did not write themselves.
//!
//! [`grouped`] formats large numbers so that they are easy to read. [`is_control`] is for those who
//! leave such characters out.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns text that somebody else wrote in a form that is safe to print on a terminal. It keeps at
/// most `limit` characters and appends `…` if there were more. Control characters except line feed
/// and tab, and marks that reverse the direction of writing, become `\u` and four hex digits, as in
/// JSON. Nothing is copied if the text is already safe and short enough.
pub fn printable(text: &str, limit: usize) -> Cow<'_, str> {
    let is_long = text.len() > limit && text.chars().nth(limit).is_some();
    if !is_long && !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len().min(limit));
    for character in text.chars().take(limit) {
        match is_control(character) {
            // Writing to a string does not fail.
            true => drop(write!(shown, "\\u{:04x}", u32::from(character))),
            false => shown.push(character),
        }
    }
    if is_long {
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// Returns a number with a comma between groups of three digits, for example `121,301`. Numbers
/// below 1,000 are returned without a comma.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whether a character is one that no text needs and that may change how the text around it is shown:
/// a control character except line feed and tab, or a mark that reverses the direction of writing.
pub fn is_control(character: char) -> bool {
    // These characters are not control characters in Unicode's sense, but they can make text look
    // like other text.
    let reverses = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    reverses || (character.is_control() && !matches!(character, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::{grouped, printable};

    #[test]
    fn thousands_are_set_apart() {
        let numbers = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn control_characters_are_shown_and_long_text_is_cut() {
        assert_eq!(printable("plain\n\tüé", 100), "plain\n\tüé");
        assert_eq!(
            printable("\x1b]0;title\x07\u{9b}31m\r\u{202e}", 100),
            "\\u001b]0;title\\u0007\\u009b31m\\u000d\\u202e"
        );
        assert_eq!(printable("äöü", 2), "äö…");
        assert_eq!(printable("äöü", 3), "äöü");
    }
}

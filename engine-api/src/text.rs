//! Formatting text and numbers for people.
//!
//! Text that comes from a plugin, a file or a model may contain control characters that change a
//! terminal's state, move its cursor or reverse the direction of writing, or that cannot be seen.
//! [`printable`] makes such text safe to print and limits its length. Hosts and engines call it before
//! they show or log text that they did not write themselves.
//!
//! [`grouped`] formats large numbers so that they are easy to read. [`is_control`] is for those who
//! leave such characters out.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns text that somebody else wrote in a form that is safe to print on a terminal. It keeps at
/// most `limit` characters and appends `…` if there were more. What [`is_control`] names becomes `\u`
/// and four hex digits, as in JSON, and so does a joiner that is not between two characters of a
/// script or an emoji that needs it. Nothing is copied if the text is already safe and short enough.
pub fn printable(text: &str, limit: usize) -> Cow<'_, str> {
    let is_long = text.len() > limit && text.chars().nth(limit).is_some();
    if !is_long && !text.chars().any(|c| is_control(c) || JOINERS.contains(&c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len().min(limit));
    let mut before = None;
    let mut characters = text.chars().take(limit).peekable();
    while let Some(character) = characters.next() {
        let needs_joiners =
            |beside: Option<char>| beside.is_some_and(|c| c >= '\u{600}' && !JOINERS.contains(&c));
        let joins = needs_joiners(before) && needs_joiners(characters.peek().copied());
        if is_control(character) || (JOINERS.contains(&character) && !joins) {
            // A character beyond four digits has two units.
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
        before = Some(character);
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

/// The characters that join or separate letters of some scripts, and the parts of an emoji.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// Whether a character is one that no text needs and that may change how the text around it is shown:
/// a control character except line feed and tab, a mark that reverses the direction of writing, a
/// character without width, or a separator of lines or paragraphs. The joiners of some scripts and
/// of emoji are none.
pub fn is_control(character: char) -> bool {
    // These are the categories Cf, Zl and Zp of Unicode, without the joiners and without the signs
    // before Arabic, Syriac and Kaithi numbers, which can be seen.
    let is_invisible = matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    );
    is_invisible || (character.is_control() && !matches!(character, '\n' | '\t'))
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
        assert_eq!(
            printable("ad\u{200b}m\u{200d}in\u{2028}\u{feff}\u{ad}\u{e0041}", 100),
            "ad\\u200bm\\u200din\\u2028\\ufeff\\u00ad\\udb40\\udc41"
        );
        let needed = "می\u{200c}خواهم 👩\u{200d}💻";
        assert_eq!(printable(needed, 100), needed);
        assert_eq!(printable("äöü", 2), "äö…");
        assert_eq!(printable("äöü", 3), "äöü");
    }
}

//! Lines that a text is wrapped into.
//!
//! A rule that an editor or a user broke into lines is read as the one sentence that it is.
//! Otherwise "Never delete the files in build/" would be kept without the "unless" in the next line.
//! Lines without punctuation may as well be rules of their own, so a line goes on in the next one
//! only if there is a sign of it.

use super::words::WORDS;
use super::{declared, own_words};

/// A line that is shorter than this, in columns, is not wrapped for its width.
const WIDE: usize = 40;
/// Japanese particles that end no sentence.
const OPEN_PARTICLES: [char; 4] = ['を', 'は', 'が', 'の'];
/// A paragraph has no more lines than this if its end is looked for.
const MOST_LINES: usize = 20;

/// Replaces each line break within a wrapped sentence by a blank.
pub(super) fn joined(own: String) -> String {
    let mut breaks = Vec::new();
    let mut before = "";
    let mut is_in_item = false;
    let mut at = 0;
    for line in own.split_inclusive('\n') {
        is_in_item |= own_words::is_item(before);
        match goes_on(before, is_in_item, &own[at..]) {
            true => breaks.push(at - 1),
            false => is_in_item = false,
        }
        before = line;
        at += line.len();
    }
    let mut bytes = own.into_bytes();
    breaks.into_iter().for_each(|at| bytes[at] = b' ');
    // Only line breaks are replaced, so the bytes are still UTF-8.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Whether the sentence at the end of a line goes on in the next line, with which `rest` begins.
fn goes_on(line: &str, is_in_item: bool, rest: &str) -> bool {
    let next = rest.lines().next().unwrap_or_default();
    let (before, after) = (line.trim(), next.trim());
    if ends(before) || !is_prose(before) || !is_prose(after) || own_words::is_item(after) {
        return false;
    }
    let last = before.rsplit(' ').next().unwrap_or_default();
    let is_open = before.ends_with([',', '，', '、'])
        || before.ends_with(OPEN_PARTICLES)
        || WORDS.lists("open ends", &last.to_lowercase());
    let is_exception = begins_exception(after) && !after.ends_with([':', '：']);
    if is_open || is_in_item && next.starts_with("  ") || is_exception {
        return true;
    }
    let first = after.split([' ', ',']).next().unwrap_or_default();
    let is_inner = |c: char| c.is_lowercase() || "./`(\"“«".contains(c);
    if !after.starts_with(is_inner) {
        return false;
    }
    if before.chars().count() >= WIDE {
        return !begins_rule(first) || has_stops(rest);
    }
    // Who begins sentences with a capital letter begins none with a small one.
    let is_begun = !before.starts_with(|c: char| c.is_lowercase());
    is_begun && !begins_rule(first) && has_stops(rest)
}

/// Returns a sentence without whom it is said to, if it begins with it: "@agent", or "hey claude".
pub(super) fn without_vocative(sentence: &str) -> Option<&str> {
    let (first, rest) = sentence.trim_start().split_once(' ')?;
    if first.starts_with('@') {
        return Some(rest);
    }
    let is_greeting = WORDS.lists("greetings", &first.to_ascii_lowercase());
    let (name, rest) = rest.split_once(' ')?;
    (is_greeting && !begins_rule(name)).then_some(rest)
}

/// Whether a rule of its own may begin with a word.
pub(super) fn begins_rule(word: &str) -> bool {
    WORDS.lists("first words", word)
}

/// Whether a line may be a part of a wrapped sentence, and is neither a heading nor a table.
fn is_prose(line: &str) -> bool {
    let is_marked = ["#", "|", "```", "~~~"]
        .iter()
        .any(|mark| line.starts_with(mark));
    let is_marked = is_marked || declared::is_declared(line);
    !line.is_empty() && !is_marked && !own_words::announces_rules(line)
}

/// Whether the paragraph that a text begins with ends with a full stop. Then its sentences do, too.
fn has_stops(text: &str) -> bool {
    let lines = text.lines().map(str::trim).take(MOST_LINES);
    let paragraph = lines.take_while(|line| is_prose(line) && !own_words::is_item(line));
    paragraph.last().is_some_and(ends)
}

/// Whether a line ends with a mark that ends a sentence or announces something.
fn ends(line: &str) -> bool {
    line.trim_end_matches(['*', '_', ')', '"', '\'', '”', '»', '」', '）'])
        .ends_with(['.', '!', '?', ':', ';', '…', '。', '！', '？', '：', '；'])
}

/// Whether a sentence limits the rule before it. Such a sentence is kept with its rule: if "Unless
/// I say so." were cut off, "Never push." would be another rule.
pub(super) fn begins_exception(sentence: &str) -> bool {
    WORDS.begins("exceptions", &sentence.to_lowercase())
}

//! What a user wrote in their own words, as opposed to what they quoted or pasted.
//!
//! [`own_words`] returns a message with everything else blanked out, byte for byte at the same
//! place: code, block quotes, inline quotes, logs, text that an introduction announces as somebody
//! else's, and what a client inserted ([`contexture_contract::own_words`]). A cue that is blanked is
//! never taken for a rule, and the rule itself is still cut from the original text.
//!
//! Project files such as `CLAUDE.md` and `AGENTS.md` are the exception. They arrive between tags of
//! the client, and they count as the user's words.

use std::ops::Range;

use contexture_contract::OwnWords;

use super::declared;
use super::words::{WORDS, spaced};

/// A quote is no longer than this, so that a text of nothing but quotation marks takes linear time.
const QUOTE_BYTES: usize = 2_000;
/// A head without a colon has no more words than this.
const HEAD_WORDS: usize = 6;
/// Beginnings of lines that programs print, in lower case.
const LOG_STARTS: [&str; 17] = [
    "error:", "error[", "warning[", "debug:", "fatal:", "npm err", "traceback", "thread '",
    "file \"", "$ ", ">>> ", "@@ ", "diff --git", "--- a/", "+++ b/", "running `", "exit code",
];
/// Beginnings of lines that programs print and users write, in lower case.
const LABELS: [&str; 4] = ["warning:", "note:", "help:", "info:"];
/// Levels as a log writes them before a message. They are compared with case, because in lower case
/// they are ordinary words.
const LEVELS: [&str; 7] = [
    "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "TRACE", "FATAL",
];

/// Returns the text with everything but the user's own words replaced by blanks of the same length.
/// Line breaks stay. If `project_only`, only project files count, which is right for messages that
/// no user wrote.
pub(super) fn own_words(text: &str, project_only: bool) -> OwnWords {
    let mut own = match project_only {
        true => OwnWords::of_project_files(text),
        false => OwnWords::with_project_files(text),
    };
    let mut page = BlankedText {
        text,
        bytes: own.text.into_bytes(),
    };
    let files = &own.project_files;
    page.lines(|at| files.iter().any(|file| file.contains(&at)));
    page.quotes();
    // Only whole characters are replaced, so the bytes are still UTF-8.
    own.text = String::from_utf8(page.bytes).unwrap_or_default();
    own
}

/// Whether a line announces rules, so that the items of the list below it are rules.
pub(super) fn announces_rules(line: &str) -> bool {
    let line = line.trim().trim_matches('*');
    if !(line.ends_with([':', '：']) || line.starts_with('#')) || line.len() >= 160 {
        return false;
    }
    let lower = line.to_lowercase();
    WORDS.is_in("announces rules", &lower) || names_any(&lower) || forbids(&lower)
}

/// Whether the head of a list has more than an adverb that a report may have, too: "It never worked on:".
pub(super) fn says_what_holds(head: &str) -> bool {
    let lower = head.to_lowercase();
    names_any(&lower) || forbids(&lower) || WORDS.has("wants", &spaced(&lower))
}

/// Whether a short line is nothing but the name of what is forbidden.
fn forbids(lower: &str) -> bool {
    let words = spaced(lower);
    words.split_whitespace().count() <= HEAD_WORDS && WORDS.has("forbids", &words)
        || WORDS.is_in("forbids cjk", lower)
        || lower.trim_end_matches([':', '：']).trim() == "ng"
}

/// Whether the head of a list says no more than that the items are rules, as in "House rules:".
pub(super) fn is_name_of_rules(head: &str) -> bool {
    let lower = head.to_lowercase();
    let is_plain = |word: &str| match word.chars().all(|c| c < '\u{2000}') {
        true => WORDS.lists("plain", word) || names_any(word),
        false => {
            let parts = ["names rules", "plain cjk"].map(|name| WORDS.all(name));
            let parts = parts.into_iter().flatten();
            parts
                .fold(word.to_owned(), |rest, part| rest.replace(part, ""))
                .is_empty()
        }
    };
    names_any(&lower) && spaced(&lower).split_whitespace().all(is_plain) && !forbids(&lower)
}

/// Whether the item of a list is a line that a program printed, such as a place in a file.
pub(super) fn is_printed(item: &str) -> bool {
    let is_place = |word: &str| {
        let number = word.rsplit_once(':').map(|(_, number)| number);
        word.contains("::")
            || word.contains('.')
                && number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    writer(item, &item.to_lowercase()) == Writer::Program || item.split_whitespace().any(is_place)
}

/// Whether a line without a colon names rules, which makes it the head of the list that follows it.
pub(super) fn names_rules(line: &str) -> bool {
    let lower = line.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return false;
    };
    let is_sentence = lower.ends_with(['.', '!', '?', ',', ';', '。', '！', '？', '，', '；']);
    // "Fix the rules" is a request, and "Rules for this project" and "Our house rules" are heads.
    let is_head =
        names_any(first) || words.len() <= 3 && names_any(last) && !words.contains(&"the");
    words.len() <= HEAD_WORDS && is_head && !is_sentence
}

fn names_any(lower: &str) -> bool {
    WORDS.is_in("names rules", lower)
}

/// Whether the text before a colon asks to translate what follows it.
pub(super) fn asks_to_translate(lower: &str) -> bool {
    // The last word ends with the text.
    let text = format!("{} ", lower.trim_end_matches([':', '：']));
    WORDS.is_in("translates", &text)
}

/// Whether a line that ends with a colon announces text of somebody else.
fn announces_others(lower: &str, next: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || "'-_.".contains(c);
    let words = lower.split(|c: char| !is_word(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if asks_to_translate(lower)
        || words.iter().any(|word| WORDS.lists("says", word))
        || words.windows(2).any(|two| two == ["got", "this"])
    {
        return true;
    }
    let first = words.first().copied().unwrap_or_default();
    let is_source = |word: &str| WORDS.lists("sources", word);
    let names_source = words.iter().enumerate().any(|(at, word)| {
        let follows = words.get(at + 1);
        let ends = follows.is_none_or(|next| {
            WORDS.lists("behind sources", next)
                || is_source(next)
                || next.starts_with(|c: char| c.is_ascii_digit())
        });
        is_source(word) && ends
    });
    let is_topic = WORDS.lists("topics", first)
        // "In the guide:" may be about the guide as well as a quote from it.
        || first == "in" && super::directive::is_directive(next);
    if names_source && !is_topic {
        return true;
    }
    let head = lower.trim_end_matches([':', '：', ' ']);
    let is_cjk_topic =
        || WORDS.begins("topics", lower) && !first.is_ascii() || WORDS.ends("topic ends", head);
    // ログ is a part of ログイン.
    let is_whole = |(at, word): (usize, &str)| {
        let next = lower[at + word.len()..].chars().next();
        !next.is_some_and(|c| ('\u{30a1}'..='\u{30fe}').contains(&c))
    };
    let has_cjk_source = || {
        let mut words = WORDS.all("sources cjk").iter();
        words.any(|word| lower.match_indices(word).any(is_whole))
    };
    !lower.is_ascii() && has_cjk_source() && !is_cjk_topic()
}

struct BlankedText<'t> {
    text: &'t str,
    bytes: Vec<u8>,
}

impl BlankedText<'_> {
    fn blank(&mut self, range: Range<usize>) {
        self.fill(range, b' ');
    }

    fn fill(&mut self, range: Range<usize>, with: u8) {
        for byte in &mut self.bytes[range] {
            if *byte != b'\n' {
                *byte = with;
            }
        }
    }

    /// Blanks code, block quotes, logs and announced text, line by line and paragraph by paragraph.
    fn lines(&mut self, is_in_file: impl Fn(usize) -> bool) {
        let text = self.text;
        let mut fence: Option<&str> = None;
        let mut is_declared = false;
        let mut is_foreign = false;
        let mut paragraph: Vec<(Range<usize>, Writer)> = Vec::new();
        let mut is_indented = false;
        let mut before_blank = true;
        let mut at = 0;
        while at < text.len() {
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
            let (range, line) = (at..end, &text[at..end]);
            let trimmed = line.trim();
            at = end;
            let mark = ["```", "~~~"]
                .into_iter()
                .find(|mark| trimmed.starts_with(mark));
            if let Some(open) = fence {
                // If a language follows the mark, it opens a block within the block and does not
                // close it.
                let closes = mark == Some(open) && trimmed.trim_matches(['`', '~']).is_empty();
                if !(is_declared && (closes || declared::is_declared(trimmed))) {
                    self.blank(range);
                }
                if closes {
                    fence = None;
                }
                continue;
            }
            if mark.is_some() {
                fence = mark;
                is_foreign = false;
                is_declared = declared::opens(trimmed);
                if !is_declared {
                    self.blank(range);
                }
                continue;
            }
            if trimmed.is_empty() {
                self.end_paragraph(&mut paragraph);
                // The announced text may follow after a blank line, and ends at the next one.
                is_foreign &= before_blank;
                before_blank = false;
                is_indented = false;
                continue;
            }
            let is_item = is_item(trimmed);
            let follows_blank = paragraph.is_empty();
            // As in Markdown, indented code begins after a blank line. Items may be indented as far
            // and are no code.
            let deep = line.starts_with("    ") || line.starts_with('\t');
            is_indented =
                deep && !is_item && (is_indented || follows_blank) && !is_in_file(range.start);
            if trimmed.starts_with('>') || is_indented || is_foreign {
                before_blank &= !is_foreign;
                self.blank(range);
                continue;
            }
            let lower = trimmed.to_lowercase();
            if lower.ends_with([':', '：']) && !announces_rules(&lower) && {
                let next = text[at..].lines().next().unwrap_or_default();
                announces_others(&lower, next)
            } {
                is_foreign = true;
                before_blank = true;
            }
            paragraph.push((range, writer(trimmed, &lower)));
        }
        self.end_paragraph(&mut paragraph);
    }

    /// Blanks a paragraph if half of it or more is log or code.
    fn end_paragraph(&mut self, paragraph: &mut Vec<(Range<usize>, Writer)>) {
        let count = |least| paragraph.iter().filter(|(_, line)| *line >= least).count();
        // A date or a label alone may be the user's. Next to lines of a log it is the log's.
        let has_log = count(Writer::Program) > 0 || count(Writer::Dated) > 1;
        let odd = match has_log {
            true => count(Writer::Labelled),
            false => 0,
        };
        // Many lines of a stack trace look like prose. If half of the paragraph is a log, the rest
        // of it is, too.
        let is_pasted = odd * 2 >= paragraph.len() && odd > 0;
        for (range, line) in paragraph.drain(..) {
            if is_pasted || has_log && line >= Writer::Labelled {
                self.blank(range);
            }
        }
    }

    /// Fills inline code and quotes with letters, so that no cue is found in them and no sentence
    /// ends in them. A quote does not go beyond its line.
    fn quotes(&mut self) {
        const PAIRS: [(char, char); 9] = [
            ('`', '`'),
            ('"', '"'),
            ('“', '”'),
            ('„', '“'),
            ('«', '»'),
            ('「', '」'),
            ('『', '』'),
            ('‘', '’'),
            ('\'', '\''),
        ];
        // The first bytes of the marks above. Few other characters begin with one of them.
        let may_open = |byte: &u8| matches!(byte, b'`' | b'"' | b'\'' | 0xc2 | 0xe2 | 0xe3);
        let text = self.text;
        let mut at = 0;
        while let Some(next) = text.as_bytes()[at..].iter().position(may_open) {
            at += next;
            let Some(open) = text[at..].chars().next() else {
                break;
            };
            let inside = at + open.len_utf8();
            let before = text[..at].chars().next_back();
            at = inside;
            let Some((_, close)) = PAIRS.iter().find(|(first, _)| *first == open) else {
                continue;
            };
            // An apostrophe inside a word is no quote.
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            let is_single = matches!(open, '\'' | '‘');
            if is_single && (is_letter(before) || !is_letter(text[inside..].chars().next())) {
                continue;
            }
            let most = text.floor_char_boundary(inside + QUOTE_BYTES);
            let line_end = text[inside..most]
                .find('\n')
                .map_or(most, |end| inside + end);
            let mut ends = text[inside..line_end].match_indices(*close);
            let end = ends.find_map(|(found, mark)| {
                let after = text[inside + found + mark.len()..].chars().next();
                (!is_single || !is_letter(after)).then_some(inside + found)
            });
            // German and English share a mark, which closes in one and opens in the other.
            let end = match (open, end) {
                ('„', None) => text[inside..line_end].find('”').map(|end| inside + end),
                (_, end) => end,
            };
            if let Some(end) = end {
                // A tag with the name of a file is blank already, and no word of its line.
                if self.bytes[inside..end].iter().any(|byte| *byte != b' ') {
                    self.fill(inside..end, b'x');
                }
                at = text[end..]
                    .chars()
                    .next()
                    .map_or(end, |mark| end + mark.len_utf8());
            }
        }
    }
}

/// Whether a message is the output of a program, though it came as a user's: most of its lines are, and
/// so are the first and the last, which would be a request about it otherwise.
pub(crate) fn is_output(text: &str) -> bool {
    const LEAST_LINES: usize = 3;
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_printed = |line: &str| {
        let is_prompt = line.len() < 80 && !line.contains(' ') && line.ends_with(['$', '#', '%']);
        let is_table = line.contains("   ") && !is_item(line);
        is_prompt || is_table || writer(line, &line.to_lowercase()) >= Writer::Labelled
    };
    let printed = lines().filter(|line| is_printed(line)).count();
    lines().next().is_some_and(is_printed)
        && lines().next_back().is_some_and(is_printed)
        && lines().count() >= LEAST_LINES
        && printed * 2 > lines().count()
}

/// Whether a line is the item of a list.
pub(super) fn is_item(line: &str) -> bool {
    item(line).is_some()
}

/// The text of a list item without its mark.
pub(crate) fn item(line: &str) -> Option<&str> {
    /// Bullets that need no space after them, and are used for nothing else.
    const BULLETS: [char; 13] = [
        '•', '·', '・', '●', '○', '◦', '◆', '◇', '■', '□', '▪', '▸', '‣',
    ];
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix(BULLETS) {
        return Some(rest.trim());
    }
    let rest = line
        .strip_prefix(['-', '*', '–'])
        .or_else(|| numbered(line))?;
    let text = rest.trim_start();
    // `*bold*` and `-v` have no space after the mark, and are no items. A mark of Chinese or Japanese
    // needs none.
    let mark = line[..line.len() - rest.len()].chars().next_back();
    let is_wide = mark.is_some_and(|c| !c.is_ascii() && c != '–');
    (text.len() < rest.len() || is_wide).then_some(text.trim_end())
}

/// What follows the number of an item, as in `1.`, `(2)`, `a)`, `①`, `３．` or `四、`.
fn numbered(line: &str) -> Option<&str> {
    let circled = |c: char| ('①'..='⑳').contains(&c);
    if let Some(rest) = line.strip_prefix(circled) {
        return Some(rest);
    }
    let inner = line.strip_prefix(['(', '（']).unwrap_or(line);
    let is_digit = |c: &char| c.is_ascii_digit() || ('０'..='９').contains(c);
    let is_numeral = |c: &char| "一二三四五六七八九十".contains(*c);
    let count = |is: &dyn Fn(&char) -> bool| inner.chars().take_while(|c| is(c)).count();
    let (digits, numerals) = (count(&is_digit), count(&is_numeral));
    let number = digits.max(numerals);
    let is_letter = number == 0 && inner.starts_with(|c: char| c.is_ascii_lowercase());
    let mut rest = inner.chars();
    // If a line begins with a year, it is no item.
    if !is_letter && !(1..4).contains(&number) {
        return None;
    }
    rest.by_ref().take(number.max(1)).for_each(drop);
    let is_open = inner.len() < line.len();
    let marks: &[char] = match (is_open, is_letter, numerals > 0) {
        (true, ..) | (_, true, _) => &[')', '）'],
        (_, _, true) => &['、', '．', ')', '）'],
        _ => &['.', ')', '、', '．', '）'],
    };
    rest.as_str().strip_prefix(marks)
}

/// Who wrote a line, as far as the line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    Prose,
    /// It begins with a label such as `note:` or `[IMPORTANT]`.
    Labelled,
    /// It begins with a date, a time or a level, as the lines of a log do and those of a diary.
    Dated,
    /// It is log or code.
    Program,
}

fn writer(line: &str, lower: &str) -> Writer {
    let bytes = line.as_bytes();
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let is_date = digits == 4 && bytes.get(4) == Some(&b'-');
    let is_time = (is_date || digits == 2 && bytes.get(2) == Some(&b':'))
        && bytes.get(digits + 1).is_some_and(u8::is_ascii_digit);
    // `[INFO]` or `[12:00:01]`.
    let is_bracket = line.starts_with('[')
        && line[1..].starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    let marks = bytes.iter().filter(|byte| is_mark(**byte)).count();
    // Prose ends with a pair of brackets, too: "Always use tabs (not spaces)".
    let is_prose = || marks == 2 && line.contains(' ') && !line.starts_with('(');
    let ends_as_code = line.ends_with(['{', '}', ';', '\\']) && marks >= 2
        || line.ends_with(')') && marks >= 2 && !is_prose();
    let is_said = LOG_STARTS.iter().any(|start| lower.starts_with(start));
    let is_frame = lower.starts_with("at ") && line.ends_with(')');
    // If a list has plus signs, a space follows each of them.
    let is_diff = line.starts_with('+') && !line.starts_with("+ ") || line.starts_with("//");
    // A fifth of the line. Short lines count as ten bytes, or a pair of brackets would make code of
    // them.
    let is_code = ends_as_code || is_diff || marks * 5 > line.len().max(10);
    if is_said || is_frame || is_code {
        return Writer::Program;
    }
    let first = line.split([' ', ':', '\t']).next().unwrap_or_default();
    let is_level = LEVELS.contains(&first);
    if is_time || is_bracket || is_level {
        // A level in brackets, or a time of the day with seconds, is what a log writes.
        let mut words = line.split([' ', '\t']).take(4);
        let is_logged = words.any(|word| {
            let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
            (is_bracket || word != first) && LEVELS.contains(&inner)
                || inner.bytes().filter(|b| *b == b':').count() >= 2
        });
        return match is_logged {
            true => Writer::Program,
            false if is_bracket => Writer::Labelled,
            false => Writer::Dated,
        };
    }
    match LABELS.iter().any(|label| lower.starts_with(label)) {
        true => Writer::Labelled,
        false => Writer::Prose,
    }
}

/// Whether a byte is a bracket, a semicolon or another mark that code has more of than prose.
fn is_mark(byte: u8) -> bool {
    // A set of bytes is tested at once. A slice would be searched, for each byte of each message.
    matches!(
        byte,
        b'{' | b'}' | b'(' | b')' | b';' | b'=' | b'<' | b'>' | b'[' | b']' | b'|' | b'\\'
    )
}

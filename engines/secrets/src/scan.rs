//! The text that is scanned, and every way to read it around a cue.
//!
//! The time has to stay proportional to the length of the text. So a check may only read a bounded
//! number of bytes around the cue ([`Scan::ahead`], [`Scan::behind`]), or a run, a value or a line
//! whose end is cached ([`Scan::run_of`], [`Scan::value_end`], [`Scan::line_from`]). No check reads
//! the text in any other way, and tests count the bytes that these functions return.

use std::ops::Range;

use crate::charset::is_in;
use crate::steps;

/// The end of a run of at least this many bytes is cached, so that it is read only once.
const LONG_RUN: usize = 16;

/// The state of a scan of one text. The caches make sure that no byte is read again for each cue.
pub(crate) struct Scan<'t> {
    pub(crate) text: &'t str,
    pub(crate) bytes: &'t [u8],
    /// The last long run of each set of characters, the last value without quotes, and the last
    /// line of a header. If several cues are in one of them, its end is found only once.
    runs: Vec<(u16, Range<usize>)>,
    value: Range<usize>,
    line: Range<usize>,
    /// The end of the last closing line of a key block. Text before it does not belong to a later
    /// block.
    pub(crate) block_end: usize,
    /// The positions of names that may head a column of a table.
    pub(crate) headings: Vec<usize>,
    pub(crate) commands: Vec<Command>,
}

/// What is known about the command that the current part of a text belongs to.
pub(crate) struct Command {
    pub(crate) names: &'static str,
    /// The end of the words that were read, and whether one of these names was among them.
    pub(crate) looked_at: usize,
    pub(crate) is_one: bool,
}

impl<'t> Scan<'t> {
    /// Begins to scan `text`.
    pub(crate) fn of(text: &'t str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            runs: Vec::new(),
            value: 0..0,
            line: 0..0,
            block_end: 0,
            headings: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Returns at most `most` bytes from `from` on. They count as read, so tests notice if a check
    /// reads too much.
    pub(crate) fn ahead(&self, from: usize, most: usize) -> &[u8] {
        let ahead = &self.bytes[from..self.bytes.len().min(from + most)];
        steps::add(ahead.len());
        ahead
    }

    /// Returns at most `most` bytes before `to`. They count as read, so tests notice if a check
    /// reads too much.
    pub(crate) fn behind(&self, to: usize, most: usize) -> &[u8] {
        let behind = &self.bytes[to.saturating_sub(most)..to];
        steps::add(behind.len());
        behind
    }

    /// Returns the end of the characters of a set from `from` on. The run may be long, so the last
    /// one of each set is cached.
    pub(crate) fn run_of(&mut self, from: usize, set: u16) -> usize {
        let known = self.runs.iter().position(|(of, _)| *of == set);
        if let Some(known) = known
            && self.runs[known].1.contains(&from)
        {
            return self.runs[known].1.end;
        }
        let run = self.bytes[from..]
            .iter()
            .take_while(|byte| is_in(**byte, set));
        let run = from..from + run.count();
        steps::add(run.len());
        let end = run.end;
        // If a run is short, reading it again is cheaper than looking it up.
        if run.len() >= LONG_RUN {
            match known {
                Some(known) => self.runs[known].1 = run,
                None => self.runs.push((set, run)),
            }
        }
        end
    }

    /// Whether a word may begin at this byte, because no letter or digit is before it.
    pub(crate) fn begins_a_word(&self, at: usize) -> bool {
        match at.checked_sub(1).map(|before| self.bytes[before]) {
            Some(byte) if byte.is_ascii_alphanumeric() => begins_behind_an_escape(self.text, at),
            _ => true,
        }
    }

    /// Returns the rest of a header's line, or of the string that the header is in.
    pub(crate) fn line_from(&mut self, start: usize) -> Range<usize> {
        if !self.line.contains(&start) {
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'\\');
            let len = self.bytes[start..].iter().position(is_end);
            self.line = start..len.map_or(self.bytes.len(), |len| start + len);
            steps::add(self.line.len());
        }
        start..self.line.end
    }

    /// Returns the end of a value without quotes. Closing brackets at its end do not belong to it.
    pub(crate) fn value_end(&mut self, start: usize) -> usize {
        // If several names share a value without quotes, its end is found once.
        if !self.value.contains(&start) {
            let is_end = |c: char| {
                c.is_whitespace()
                    || matches!(
                        c,
                        '"' | '\''
                            | '`'
                            | ','
                            | ';'
                            | '&'
                            | '\\'
                            | '<'
                            | '|'
                            | '，'
                            | '。'
                            | '；'
                            | '、'
                    )
            };
            let len = self.text[start..]
                .find(is_end)
                .unwrap_or(self.text.len() - start);
            steps::add(len);
            let value = self.text[start..start + len].trim_end_matches([')', ']', '}', '*']);
            self.value = start..start + value.len();
            // The brackets that were trimmed end this value only, so the cached range does not
            // include them.
            return self.value.end;
        }
        self.value.end
    }
}

/// Whether the letter or digit before `at` ends an escape of a terminal or a URL, rather than a
/// word.
pub(crate) fn begins_behind_an_escape(text: &str, at: usize) -> bool {
    let before = &text.as_bytes()[at.saturating_sub(12)..at];
    match before {
        [.., b'%', high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        [head @ .., b'm'] => {
            let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
            let len = head.iter().rev().take_while(|byte| digits(byte)).count();
            head[..head.len() - len].ends_with(b"[")
        }
        _ => false,
    }
}

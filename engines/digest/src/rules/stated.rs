//! The rules that a text states, found line by line.
//!
//! A line is one of four things: a part of a declared block, an item of a list of rules, the head of
//! such a list, or sentences of which some are rules. [`stated_in`] reads the lines in order, because
//! an item depends on the head above it, and an exception on the sentence before it.

use std::ops::Range;

use super::wraps::{begins_exception, joined};
use super::{MOST_CHARS, declared, directive, own_words};
use crate::text::{chars, one_line, sentences};

/// Returns the rules that a text states, each in one line, in the words of the text.
pub(crate) fn stated_in(text: &str, project_only: bool) -> Vec<String> {
    let own = joined(own_words::own_words(text, project_only));
    let mut stated = Stated {
        text,
        own: &own,
        found: Vec::new(),
        intro: None,
        is_block: false,
        open: None,
    };
    own.split_inclusive('\n')
        .for_each(|line| stated.read_line(line));
    let mut found = stated.found;
    // Three characters do not say what to do if the text around them is gone.
    found.retain(|rule| chars(rule) <= MOST_CHARS && chars(rule) > 3);
    found
}

/// The rules of a text up to a line.
struct Stated<'t> {
    text: &'t str,
    /// The text with everything blanked that is not the user's own words. Both have equal lengths.
    own: &'t str,
    found: Vec<String>,
    /// The head of the list that the next line may belong to, if it says what the items mean: it is
    /// a part of each rule then. Empty if the items are rules by themselves.
    intro: Option<String>,
    /// Whether the next line is in a declared block.
    is_block: bool,
    /// Where the last sentence of the line before is, if it is a rule.
    open: Option<Range<usize>>,
}

impl Stated<'_> {
    /// Reads the next line of the user's own words.
    fn read_line(&mut self, line: &str) {
        let trimmed = line.trim();
        let before = self.open.take();
        if trimmed.is_empty() {
            return;
        }
        if self.is_block || declared::opens(trimmed) {
            self.read_declared(trimmed);
            return;
        }
        let item = own_words::item(trimmed);
        if self.read_item(line, item) {
            return;
        }
        let has_list = self.has_list_after(line);
        let is_head = item.is_none()
            && (own_words::announces_rules(trimmed) || has_list && own_words::names_rules(trimmed));
        if is_head && !self.read_head(trimmed) {
            return;
        }
        let before = before.filter(|_| item.is_none());
        self.read_sentences(item.unwrap_or(trimmed), before);
        // The intro itself is no rule if a list follows, and it is one if none does.
        if let Some(head) = self.intro.as_ref().filter(|head| !head.is_empty()) {
            match has_list {
                true => self.found.retain(|rule| rule != head),
                false => self.intro = None,
            }
        }
    }

    /// Reads a line of a declared block. Of the block, only its rules and its fences are there.
    fn read_declared(&mut self, line: &str) {
        let is_rule = declared::is_declared(line);
        if is_rule {
            self.found.push(self.original(line));
        }
        self.is_block = is_rule || !self.is_block;
    }

    /// Reads a line as an item of a list of rules. Returns false if it is none. `item` is the text
    /// of the line if it has the form of an item.
    fn read_item(&mut self, line: &str, item: Option<&str>) -> bool {
        let Some(intro) = &self.intro else {
            return false;
        };
        match item {
            Some(item) if !item.is_empty() => {
                let item = self.original(item);
                let is_whole = directive::is_directive(&item);
                let rule = match intro.is_empty() || is_whole {
                    true => item,
                    false => format!("{intro} {item}"),
                };
                self.found.push(rule);
                true
            }
            // If a line is indented, it goes on with the item above it. One at the margin ends the
            // list.
            None if !line.starts_with("  ") => {
                self.intro = None;
                false
            }
            _ => false,
        }
    }

    /// Reads a line as the head of a list of rules. Returns whether it may be a rule itself.
    ///
    /// "Never:" says what the items below it mean, and "House rules:" does not.
    fn read_head(&mut self, line: &str) -> bool {
        let head = self.original(line);
        let head = head.trim_start_matches('#').trim();
        // The `x` stands for an item, because words such as "Don't" are a rule only when something
        // follows.
        let is_part = directive::is_directive(&format!("{} x", head.trim_end_matches(':')));
        self.intro = Some(match is_part {
            true => head.to_owned(),
            false => String::new(),
        });
        is_part
    }

    /// Reads the sentences of a line. `before` is the last sentence of the line before, if it is a
    /// rule and the line may go on with it.
    fn read_sentences(&mut self, line: &str, before: Option<Range<usize>>) {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        for sentence in sentences(line) {
            let from = offset(self.own, sentence);
            let until = from + sentence.len();
            match pieces.last_mut() {
                Some(last) if is_cut_short(&self.own[last.clone()], sentence) => last.end = until,
                _ => pieces.push(from..until),
            }
        }
        let end = pieces.last().map(|last| last.end);
        let mut rules: Vec<Range<usize>> = Vec::new();
        if let Some(rule) = before.filter(|_| begins_exception(line)) {
            // The rule is written anew, with its exception.
            self.found.pop();
            rules.push(rule);
        }
        for piece in pieces {
            let words = &self.own[piece.clone()];
            match rules.last_mut() {
                Some(last) if begins_exception(words) => last.end = piece.end,
                _ if directive::is_directive(words) => rules.push(piece),
                _ => {}
            }
        }
        let in_words = rules.iter().map(|rule| one_line(&self.text[rule.clone()]));
        self.found.extend(in_words);
        self.open = rules.pop().filter(|last| Some(last.end) == end);
    }

    /// Whether a list follows a line. Up to three blank lines may separate a head from its list.
    fn has_list_after(&self, line: &str) -> bool {
        let rest = &self.own[offset(self.own, line) + line.len()..];
        let mut lines = rest.lines().take(4).map(str::trim);
        let next = lines.find(|next| !next.is_empty());
        next.is_some_and(own_words::is_item)
    }

    fn original(&self, part: &str) -> String {
        original(self.text, self.own, part)
    }
}

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// The original words at the place of a part of the blanked text.
pub(super) fn original(text: &str, own: &str, part: &str) -> String {
    let from = offset(own, part);
    one_line(&text[from..from + part.len()])
}

/// Whether a piece is no whole sentence, because it ends with an abbreviation.
fn is_cut_short(before: &str, next: &str) -> bool {
    const SHORT: [&str; 16] = [
        "e.g.", "i.e.", "etc.", "vs.", "z.B.", "bzw.", "d.h.", "Nr.", "p.ej.", "p. ej.", "ca.",
        "cf.", "approx.", "no.", "resp.", "inkl.",
    ];
    // "1." is the number of an item and not a sentence.
    let is_number = before
        .trim_end_matches('.')
        .chars()
        .all(|c| c.is_ascii_digit());
    is_number && before.len() < 4 && before.ends_with('.')
        || SHORT.iter().any(|short| before.ends_with(short))
            && !next.starts_with(char::is_uppercase)
}

//! The rules that a text states, found line by line.
//!
//! A line is one of four things: a part of a declared block, an item of a list of rules, the head of
//! such a list, or sentences of which some are rules. [`statements_in`] reads the lines in order, because
//! an item depends on the heads above it, and an exception on the sentence before it.

use std::ops::Range;

use super::directive::{self, LanguageNumber};
use super::permission::Ending;
use super::topic::{is_name, topic};
use super::words::WORDS;
use super::wraps::{begins_exception, begins_rule, joined, without_vocative};
use super::{MOST_CHARS, declared, own_words};
use crate::text::{chars, clip, one_line, sentences};

/// No more sentences of a message than this are kept because they may end a rule.
const MOST_ENDINGS: usize = 20;
/// A head with more characters than this stands before each of its items only if they would mean the
/// opposite without it.
const HEAD_CHARS: usize = 80;

/// What a text states that is worth keeping, in one line, in the words of the text.
#[derive(Debug)]
pub(super) struct Statement {
    pub text: String,
    /// Whether it says something only if it ends a rule before it: "You can push to main now."
    pub only_ends: bool,
    /// Whether it stands in a project file, which a client may insert again.
    pub is_project: bool,
}

/// Returns the rules that a text states.
pub(crate) fn stated_in(text: &str, project_only: bool) -> Vec<String> {
    let rules = statements_in(text, project_only, false).into_iter();
    rules.map(|rule| rule.text).collect()
}

/// Returns the rules that a text states, and `with_endings` the sentences that may end a rule before it.
pub(super) fn statements_in(text: &str, project_only: bool, with_endings: bool) -> Vec<Statement> {
    let own = own_words::own_words(text, project_only);
    let lines = joined(own.text);
    let mut stated = Stated {
        text,
        own: &lines,
        files: &own.project_files,
        found: Vec::new(),
        endings: match with_endings {
            true => MOST_ENDINGS,
            false => 0,
        },
        heads: Vec::new(),
        is_block: false,
        open: None,
    };
    lines
        .split_inclusive('\n')
        .for_each(|line| stated.read_line(line));
    let mut found = stated.found;
    // Three characters do not say what to do if the text around them is gone.
    found.retain(|statement| chars(&statement.text) > 3);
    found
}

/// What a text states up to a line.
struct Stated<'t> {
    text: &'t str,
    /// The text with everything blanked that is not the user's own words. Both have equal lengths.
    own: &'t str,
    /// Where the project files are in the text.
    files: &'t [Range<usize>],
    found: Vec<Statement>,
    /// How many more sentences that only end a rule are looked for.
    endings: usize,
    /// The heads of the lists that the next line may belong to, from the outermost.
    heads: Vec<ListHead>,
    /// Whether the next line is in a declared block.
    is_block: bool,
    /// Where the last sentence of the line before is, if it is a rule.
    open: Option<Range<usize>>,
}

/// The head of a list of rules.
struct ListHead {
    /// The indentation of its items is larger than this, if it is an item itself.
    indent: Option<usize>,
    /// What it says of each item. Empty if the items are rules by themselves, as below "House rules:".
    text: String,
    /// Whether it withdraws its items, as "Forget these old rules:" does.
    withdraws: bool,
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
        let before = before.filter(|_| item.is_none());
        let mut words = item.unwrap_or(trimmed);
        let mut pieces = self.pieces(words);
        // The line may have sentences before the head.
        if let Some(head) = pieces.pop_if(|last| self.read_head(line, last.clone())) {
            words = &self.own[offset(self.own, words)..head.start];
        }
        self.read_sentences(words, pieces, before);
    }

    /// Reads a line of a declared block. Of the block, only its rules and its fences are there.
    fn read_declared(&mut self, line: &str) {
        let is_rule = declared::is_declared(line);
        if is_rule {
            self.add(self.original(line), line, false);
        }
        self.is_block = is_rule || !self.is_block;
    }

    /// Reads a line as an item of a list of rules. Returns false if it is none. `item` is the text
    /// of the line if it has the form of an item.
    fn read_item(&mut self, line: &str, item: Option<&str>) -> bool {
        if self.heads.is_empty() {
            return false;
        }
        let Some(item) = item.filter(|item| !item.is_empty()) else {
            // If a line is indented, it goes on with the item above it. One at the margin ends the
            // list.
            if item.is_none() && !line.starts_with("  ") {
                self.heads.clear();
            }
            return false;
        };
        let indent = indent(line);
        let is_below = |head: &ListHead| head.indent.is_none_or(|at| at < indent);
        while self.heads.pop_if(|head| !is_below(head)).is_some() {}
        let Some(head) = self.heads.last() else {
            return false;
        };
        let words = self.original(item);
        let is_repeated = head.text.is_empty() || {
            let says_nothing_else = topic(&head.text).is_empty()
                && (directive::is_negative(&words) || !directive::is_negative(&head.text));
            says_nothing_else && !head.withdraws && directive::is_directive(&words)
        };
        let withdraws = head.withdraws;
        let text = match is_repeated {
            true => words,
            false => format!("{} {words}", head.text),
        };
        if item.ends_with([':', '：']) && self.list_after(line, Some(indent)).is_some() {
            let is_long = chars(&text) > HEAD_CHARS && !directive::is_negative(&head.text);
            let text = match own_words::is_name_of_rules(item) {
                true => head.text.clone(),
                false if is_long => self.original(item),
                false => text,
            };
            self.heads.push(ListHead {
                indent: Some(indent),
                text,
                withdraws,
            });
            return true;
        }
        self.add(text, item, withdraws);
        true
    }

    /// Reads the last sentence of a line as the head of a list of rules. Returns false if it is none.
    ///
    /// "Never:" says what the items below it mean, and "House rules:" does not.
    fn read_head(&mut self, line: &str, last: Range<usize>) -> bool {
        let trimmed = line.trim();
        let is_item = own_words::is_item(trimmed);
        let indent = is_item.then(|| indent(line));
        let list = self.list_after(line, indent);
        if is_item && list.is_none() {
            return false;
        }
        let head = one_line(&self.text[last.clone()]);
        let bare = head.trim_matches(['#', '*', ' ']);
        let is_label = head.ends_with([':', '：']) || bare.len() < head.len() && !is_item;
        let bare = bare.trim_end_matches([':', '：', ' ']);
        // The `x` stands for an item, because words such as "Don't" are a rule only when something
        // follows.
        let is_order = || is_rule(&format!("{bare} x"));
        let is_head = match list {
            None => own_words::announces_rules(trimmed) && !is_order(),
            Some(_) if own_words::names_rules(trimmed) => true,
            Some(first) => {
                let label = format!("{bare}:");
                let is_named = own_words::announces_rules(&label);
                // "Fix these first:" is followed by places in files more often than by rules.
                let is_odd = || {
                    own_words::is_printed(first) || is_place(first) && !directive::is_negative(bare)
                };
                is_label
                    && (begins_exception(bare)
                        || is_named && own_words::says_what_holds(&label)
                        || is_order() && (is_named || !is_odd()))
            }
        };
        if !is_head {
            // Without its list, the head of one says nothing.
            return list.is_some() && head.ends_with([':', '：']) && is_order();
        }
        // A sentence such as "The general idea behind these rules is this:" need not be in each rule.
        let is_long = chars(bare) > HEAD_CHARS && !directive::is_negative(bare) && !is_order();
        let text = match own_words::is_name_of_rules(bare) || is_long {
            true => String::new(),
            false if head.trim_end_matches('*').ends_with([':', '：']) => {
                head.trim_matches(['#', '*', ' ']).replace("**", "")
            }
            false => format!("{bare}:"),
        };
        self.heads = vec![ListHead {
            indent,
            withdraws: Ending::of(bare) == Some(Ending::Withdraws),
            text,
        }];
        true
    }

    /// The sentences of a line.
    fn pieces(&self, line: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        for sentence in sentences(line) {
            let from = offset(self.own, sentence);
            let until = from + sentence.len();
            match pieces.last_mut() {
                Some(last) if is_cut_short(&self.own[last.clone()], sentence) => last.end = until,
                _ => pieces.push(from..until),
            }
        }
        pieces
    }

    /// Reads the sentences of a line. `before` is the last sentence of the line before, if it is a
    /// rule and the line may go on with it.
    fn read_sentences(
        &mut self,
        line: &str,
        pieces: Vec<Range<usize>>,
        before: Option<Range<usize>>,
    ) {
        let end = pieces.last().map(|last| last.end);
        // Each with whether it only ends a rule.
        let mut found: Vec<(Range<usize>, bool)> = Vec::new();
        if let Some(rule) = before.filter(|_| begins_exception(line)) {
            // The rule is written anew, with its exception.
            self.found.pop();
            found.push((rule, false));
        }
        for piece in pieces {
            let words = &self.own[piece.clone()];
            match found.last_mut() {
                Some((rule, false)) if begins_exception(words) => rule.end = piece.end,
                _ if is_rule(words) => found.push((piece, false)),
                // The point of an abbreviation ends no clause.
                _ if words.contains(". ") && is_rule(&words.replace(". ", " ")) => {
                    found.push((piece, false));
                }
                _ if self.endings > 0 && Ending::of(words).is_some() => {
                    found.push((piece, true));
                }
                _ => {}
            }
        }
        for (piece, only_ends) in &found {
            let words = &self.own[piece.clone()];
            self.add(self.original(words), words, *only_ends);
        }
        let last = found
            .pop()
            .filter(|(last, only_ends)| !only_ends && Some(last.end) == end);
        self.open = last.map(|(last, _)| last);
    }

    /// Adds a statement, which is at the place of `words`.
    fn add(&mut self, text: String, words: &str, only_ends: bool) {
        let at = offset(self.own, words);
        let is_project = self.files.iter().any(|file| file.contains(&at));
        // A client's file grants nothing.
        if only_ends && (is_project || self.endings == 0) {
            return;
        }
        self.endings -= usize::from(only_ends);
        self.found.push(Statement {
            text: clip(&text, MOST_CHARS).into_owned(),
            only_ends,
            is_project,
        });
    }

    /// The first item of the list that follows a line. Up to three blank lines may separate a head from
    /// its list. The list below an item has a larger `indent`.
    fn list_after(&self, line: &str, indent_of_item: Option<usize>) -> Option<&str> {
        let rest = &self.own[offset(self.own, line) + line.len()..];
        let next = rest.lines().take(4).find(|next| !next.trim().is_empty())?;
        let is_below = indent_of_item.is_none_or(|at| indent(next) > at);
        own_words::item(next).filter(|_| is_below)
    }

    fn original(&self, part: &str) -> String {
        let from = offset(self.own, part);
        one_line(&self.text[from..from + part.len()])
    }
}

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether an item is nothing but a path.
fn is_place(item: &str) -> bool {
    !item.contains(' ') && is_name(item)
}

/// Whether a sentence is a rule, also if it begins with whom it is said to.
fn is_rule(sentence: &str) -> bool {
    directive::is_directive(sentence)
        || without_vocative(sentence).is_some_and(directive::is_directive)
}

/// Whether a piece is no whole sentence, because it ends with an abbreviation or an ordinal number.
fn is_cut_short(before: &str, next: &str) -> bool {
    let Some(bare) = before.strip_suffix('.') else {
        return false;
    };
    let is_open = |c: char| c.is_whitespace() || "'’(\"„“«§".contains(c);
    let word = bare.rsplit(is_open).next().unwrap_or_default();
    let length = chars(word);
    let mut following = next.split(|c: char| !c.is_alphanumeric());
    let first = following.next().unwrap_or_default();
    let is_capital = first.starts_with(char::is_uppercase);
    let is_own = begins_rule(&first.to_lowercase());
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        // "1." at the beginning is the number of an item, and "1. März" is a date.
        let is_ordinal = || !is_capital || directive::reads_as(bare, LanguageNumber::German);
        return (1..=2).contains(&length) && (bare == word || !is_own && is_ordinal());
    }
    if is_own && is_capital {
        return false;
    }
    if word.contains('.') {
        let is_short = |part: &str| chars(part) <= 2 && part.chars().all(char::is_alphabetic);
        return word.split('.').all(is_short);
    }
    if !word.chars().all(char::is_alphabetic) {
        return false;
    }
    let starts_high = word.starts_with(char::is_uppercase);
    let is_small = word.chars().skip(1).all(char::is_lowercase);
    // "Good." is a sentence of one word, and "Dr." is none.
    let is_part = || bare != word || !word.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    // Spanish doubles the letters of a plural: "EE. UU."
    let is_doubled = length == 2 && starts_high && word.chars().all(|c| word.starts_with(c));
    length == 1
        || is_doubled
        || length <= 4 && first.starts_with(|c: char| c.is_ascii_digit())
        || length <= 4 && starts_high && is_small && is_part()
        || !is_capital && WORDS.lists("abbreviations", word)
}

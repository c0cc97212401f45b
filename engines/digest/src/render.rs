//! Fits the outline into a budget and writes it down.
//!
//! Lines that stand for themselves come first, up to a share of the budget; then facts by what they are
//! worth a character, as bare names behind what they belong to; then, with what is left, names are
//! replaced by the words around them, cheapest first; then further lines.

use std::ops::Range;

use crate::outline::Line;
use crate::rank::{Fact, FastMap, value};
use crate::scan::{Found, Kind, scan};
use crate::secrets::mask_secrets;
use crate::sections::Section;
use crate::span::Span;
use crate::text::{chars, clean_line, clip, line_around};

/// The share of the budget for new lines without facts, and for what an earlier summary said.
const NEW_SHARE: f32 = 0.3;
const CARRIED_SHARE: f32 = 0.45;
/// A carried line is clipped to this many characters.
const CARRIED_CHARS: usize = 700;
/// The words quoted around facts, in characters at most, and in bytes on either side.
const QUOTE_CHARS: usize = 130;
const QUOTE_SIDE: usize = 48;

/// A fact chosen already has no owner where it stands in a head.
const IN_A_HEAD: usize = usize::MAX;

pub(crate) struct Page<'d> {
    span: &'d Span<'d>,
    facts: &'d [Fact],
    lines: &'d [Line],
    room: usize,
    chosen_lines: Vec<bool>,
    chosen_facts: Vec<bool>,
    open_sections: Vec<Section>,
    said: FastMap<&'d str, usize>,
}

/// Facts of one line of a source, as they will be written.
struct Piece {
    line: usize,
    source: usize,
    place: Range<usize>,
    facts: Vec<usize>,
    text: String,
    is_quote: bool,
}

impl<'d> Page<'d> {
    pub(crate) fn new(
        span: &'d Span<'d>,
        facts: &'d [Fact],
        lines: &'d [Line],
        max_chars: usize,
    ) -> Self {
        Self {
            span,
            facts,
            lines,
            room: max_chars,
            chosen_lines: vec![false; lines.len()],
            chosen_facts: vec![false; facts.len()],
            open_sections: Vec::new(),
            said: FastMap::default(),
        }
    }

    /// The whole summary.
    pub(crate) fn summary(mut self) -> String {
        let budget = self.room as f32;
        let mut plain: Vec<usize> = (0..self.lines.len())
            .filter(|at| self.lines[*at].value > 0.0)
            .collect();
        plain.sort_by(|a, b| {
            let (a, b) = (&self.lines[*a], &self.lines[*b]);
            b.value.total_cmp(&a.value).then(b.order.cmp(&a.order))
        });
        let mut carried = (budget * CARRIED_SHARE) as usize;
        let mut new = (budget * NEW_SHARE) as usize;
        for at in &plain {
            let share = if self.lines[*at].is_carried {
                &mut carried
            } else {
                &mut new
            };
            let before = self.room;
            if self.line_cost(*at) <= *share && self.choose_line(*at) {
                *share -= (before - self.room).min(*share);
            }
        }
        self.choose_facts();
        let mut pieces = self.pieces();
        self.quote(&mut pieces);
        for at in plain {
            if !self.chosen_lines[at] {
                self.choose_line(at);
            }
        }
        self.write(&pieces)
    }

    /// The facts that `summary` lacks, as lines.
    pub(crate) fn missing(mut self, summary: &'d str) -> String {
        self.say(summary, IN_A_HEAD);
        self.choose_facts();
        for at in 0..self.facts.len() {
            if self.chosen_facts[at] && summary.contains(self.facts[at].text(self.span)) {
                self.chosen_facts[at] = false;
                self.room += self.fact_cost(at);
            }
        }
        let mut pieces = self.pieces();
        self.quote(&mut pieces);
        self.write(&pieces)
    }

    fn head(&self, line: usize) -> std::borrow::Cow<'d, str> {
        let line = &self.lines[line];
        let most = if line.is_carried {
            CARRIED_CHARS
        } else {
            usize::MAX
        };
        clip(&line.head, most)
    }

    /// What a line costs without facts, in characters, with its section's heading if it is the first.
    fn line_cost(&self, line: usize) -> usize {
        let heading = self.lines[line].section.map_or(0, |section| {
            if self.open_sections.contains(&section) {
                return 0;
            }
            let progress =
                section.is_progress() && !self.open_sections.iter().any(|open| open.is_progress());
            section.heading().len() + 2 + if progress { "## Progress\n".len() } else { 0 }
        });
        chars(&self.head(line)) + "- \n".len() + heading
    }

    fn fact_cost(&self, fact: usize) -> usize {
        chars(self.facts[fact].text(self.span)) + ", ".len()
    }

    fn choose_line(&mut self, line: usize) -> bool {
        let cost = self.line_cost(line);
        if cost > self.room {
            return false;
        }
        self.room -= cost;
        self.chosen_lines[line] = true;
        self.open_sections.extend(
            self.lines[line]
                .section
                .filter(|section| !self.open_sections.contains(section)),
        );
        let lines: &'d [Line] = self.lines;
        self.say(&lines[line].head, IN_A_HEAD);
        true
    }

    /// Notes every word and every part of a path in `text` as said, so that none is said twice.
    fn say(&mut self, text: &'d str, owner: usize) {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.len() >= 3 {
                self.say_word(word, owner);
            }
        }
        scan(text, |found| {
            if let Found::Fact(kind, range) = found {
                let fact = &text[range];
                self.say_word(fact, owner);
                if matches!(kind, Kind::Path | Kind::Url | Kind::Slashed) {
                    for (at, _) in fact.match_indices('/') {
                        self.say_word(&fact[at + 1..], owner);
                        self.say_word(&fact[at..], owner);
                        self.say_word(&fact[..at], owner);
                        self.say_word(&fact[..=at], owner);
                    }
                    for segment in fact.split('/') {
                        self.say_word(segment, owner);
                    }
                }
            }
        });
    }

    fn say_word(&mut self, word: &'d str, owner: usize) {
        if let Some(before) = self.said.insert(word, owner)
            && before != owner
            && before != IN_A_HEAD
            && self.chosen_facts[before]
            && self.facts[before].text(self.span) == word
        {
            // A name chosen on its own now stands in something longer.
            self.chosen_facts[before] = false;
            self.room += self.fact_cost(before);
        }
    }

    fn choose_facts(&mut self) {
        let mut candidates: Vec<(f32, usize, usize)> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let fresh = || {
                line.facts
                    .iter()
                    .filter(|fact| !self.said.contains_key(self.facts[**fact].text(self.span)))
            };
            let count = fresh().count();
            if count == 0 {
                continue;
            }
            let head = if self.chosen_lines[at] {
                0
            } else {
                chars(&line.head) + 3
            };
            let share = head as f32 / count as f32;
            for fact in fresh() {
                let cost = self.fact_cost(*fact) as f32 + share;
                candidates.push((value(&self.facts[*fact], self.span) / cost, at, *fact));
            }
        }
        // No fact costs less than five characters, so no more than these can fit.
        let most = self.room / 5 + 1;
        let by_worth = |a: &(f32, usize, usize), b: &(f32, usize, usize)| {
            b.0.total_cmp(&a.0).then(a.2.cmp(&b.2))
        };
        if candidates.len() > 4 * most {
            candidates.select_nth_unstable_by(4 * most, by_worth);
            candidates.truncate(4 * most);
        }
        candidates.sort_unstable_by(by_worth);
        for (_, line, fact) in candidates {
            let text = self.facts[fact].text(self.span);
            if self.said.contains_key(text) || self.is_secret(fact) {
                continue;
            }
            let opening = if self.chosen_lines[line] {
                0
            } else {
                self.line_cost(line)
            };
            if opening + self.fact_cost(fact) > self.room {
                continue;
            }
            if opening > 0 {
                self.choose_line(line);
            }
            self.room -= self.fact_cost(fact);
            self.chosen_facts[fact] = true;
            self.say(text, fact);
        }
    }

    /// The words around bytes `from..to` of a source's line.
    fn around(&self, source: usize, from: usize, to: usize, side: usize) -> &'d str {
        let text: &'d str = &self.span.sources[source].text;
        let mut start = from.saturating_sub(side);
        let mut end = (to + side).min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        while !text.is_char_boundary(end) {
            end += 1;
        }
        let first = text[start..from]
            .rfind('\n')
            .map_or(start, |at| start + at + 1);
        let last = text[to..end].find('\n').map_or(end, |at| to + at);
        &text[first..last]
    }

    /// Whether masking the fact's surroundings takes the fact away.
    fn is_secret(&self, fact: usize) -> bool {
        let fact = &self.facts[fact];
        let around = self.around(fact.source, fact.start, fact.end, 96);
        match mask_secrets(around) {
            std::borrow::Cow::Borrowed(_) => false,
            std::borrow::Cow::Owned(masked) => !masked.contains(fact.text(self.span)),
        }
    }

    /// The chosen facts of every line, those of one source line together.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            for fact in line.facts.iter().filter(|fact| self.chosen_facts[**fact]) {
                let Fact {
                    source, start, end, ..
                } = self.facts[*fact];
                match pieces.last_mut() {
                    Some(last)
                        if last.line == at
                            && last.source == source
                            && last.place.contains(&start) =>
                    {
                        last.facts.push(*fact);
                    }
                    _ => pieces.push(Piece {
                        line: at,
                        source,
                        place: line_around(&self.span.sources[source].text, end),
                        facts: vec![*fact],
                        text: String::new(),
                        is_quote: false,
                    }),
                }
                let _ = start;
            }
        }
        for piece in &mut pieces {
            let names: Vec<&str> = piece
                .facts
                .iter()
                .map(|fact| self.facts[*fact].text(self.span))
                .collect();
            piece.text = names.join(", ");
        }
        pieces
    }

    /// Replaces names by the words around them while there is room, cheapest first.
    fn quote(&mut self, pieces: &mut [Piece]) {
        let mut quotes: Vec<(usize, usize, String)> = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let (Some(first), Some(last)) = (piece.facts.first(), piece.facts.last()) else {
                continue;
            };
            let (from, to) = (self.facts[*first].start, self.facts[*last].end);
            if to - from > 2 * QUOTE_CHARS {
                continue;
            }
            let around = self.around(piece.source, from, to, QUOTE_SIDE);
            let quote = clean_line(trim_to_words(around, &self.span.sources[piece.source].text));
            let holds_all = piece
                .facts
                .iter()
                .all(|fact| quote.contains(self.facts[*fact].text(self.span)));
            let length = chars(&quote);
            if holds_all && length <= QUOTE_CHARS && quote != piece.text {
                quotes.push((length.saturating_sub(chars(&piece.text)), at, quote));
            }
        }
        quotes.sort_by_key(|(cost, at, _)| (*cost, *at));
        for (cost, at, quote) in quotes {
            if cost > self.room {
                break;
            }
            self.room -= cost;
            pieces[at].text = quote;
            pieces[at].is_quote = true;
        }
    }

    fn write(&self, pieces: &[Piece]) -> String {
        let mut page = String::new();
        let mut in_progress = false;
        let mut of_line: Vec<Range<usize>> = vec![0..0; self.lines.len()];
        for (at, piece) in pieces.iter().enumerate() {
            let range = &mut of_line[piece.line];
            *range = if range.end == 0 {
                at..at + 1
            } else {
                range.start..at + 1
            };
        }
        for section in Section::ALL {
            let mut lines: Vec<usize> = (0..self.lines.len())
                .filter(|at| {
                    self.lines[*at].section == Some(section)
                        && self.chosen_lines[*at]
                        && (self.lines[*at].value > 0.0 || of_line[*at].end > 0)
                })
                .collect();
            if lines.is_empty() {
                continue;
            }
            lines.sort_by_key(|at| (self.lines[*at].order, *at));
            if !page.is_empty() {
                page.push('\n');
            }
            if section.is_progress() && !in_progress {
                page.push_str("## Progress\n");
                in_progress = true;
            }
            page.push_str(section.heading());
            page.push('\n');
            for at in lines {
                page.push_str("- ");
                page.push_str(&mask_secrets(&self.head(at)));
                let mut before: Option<&Piece> = None;
                for piece in &pieces[of_line[at].clone()] {
                    page.push_str(match before {
                        None => ": ",
                        Some(before) if before.is_quote || piece.is_quote => "; ",
                        Some(_) => ", ",
                    });
                    page.push_str(&piece.text);
                    before = Some(piece);
                }
                page.push('\n');
            }
        }
        page
    }
}

/// The words of a window that were not cut in two at its ends.
fn trim_to_words<'t>(window: &'t str, text: &str) -> &'t str {
    let start = window.as_ptr() as usize - text.as_ptr() as usize;
    let end = start + window.len();
    let mut trimmed = window;
    let cut_before = text[..start]
        .chars()
        .next_back()
        .is_some_and(|c| !c.is_whitespace());
    if cut_before && let Some((_, rest)) = trimmed.split_once(' ') {
        trimmed = rest;
    }
    let cut_after = text[end..]
        .chars()
        .next()
        .is_some_and(|c| !c.is_whitespace());
    if cut_after && let Some((rest, _)) = trimmed.rsplit_once(' ') {
        trimmed = rest;
    }
    trimmed
}

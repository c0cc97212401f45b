//! Fits the outline into a budget and writes it down.
//!
//! Lines that stand for themselves come first, up to a share of the budget; then facts by what they are
//! worth a character, as bare names behind what they belong to, those of one message first; then, with
//! what is left, the headings over names are written and names are replaced by the words around them,
//! cheapest first; then further lines.

use std::borrow::Cow;
use std::ops::Range;

use crate::outline::Line;
use crate::rank::{Fact, FastMap, value};
use crate::scan::{Found, Kind, scan};
use crate::secrets::mask_secrets;
use crate::sections::Section;
use crate::span::Span;
use crate::text::{chars, clean_line, clip, line_around};

/// The share of the budget for new lines without facts: at least the first, and up to the second where
/// the facts leave as much.
const NEW_SHARE: (f32, f32) = (0.18, 0.35);
/// The share of the budget for what an earlier summary said.
const CARRIED_SHARE: f32 = 0.45;
/// The share that names leave for the words around them.
const WORDS_SHARE: f32 = 0.04;
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
    /// The pieces are laid out: what is chosen stays.
    is_laid_out: bool,
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
    /// The heading in the source under which the facts stand, where it is written.
    place_name: Option<String>,
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
            is_laid_out: false,
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
        let left = self.room.saturating_sub(self.demand()) as f32;
        let mut new = left.clamp(budget * NEW_SHARE.0, budget * NEW_SHARE.1) as usize;
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
        let words = (budget * WORDS_SHARE) as usize;
        self.room = self.room.saturating_sub(words);
        self.choose_facts(|fact| fact.messages == 1);
        self.room += words;
        // What several messages repeat shares with quotes what is left.
        let rest = self.room / 2;
        self.room -= rest;
        self.choose_facts(|_| true);
        self.room += rest;
        let mut pieces = self.pieces();
        self.name_places(&mut pieces);
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
        self.choose_facts(|_| true);
        for at in 0..self.facts.len() {
            if self.chosen_facts[at] && summary.contains(self.facts[at].text(self.span)) {
                self.chosen_facts[at] = false;
                self.room += self.fact_cost(at);
            }
        }
        let mut pieces = self.pieces();
        self.name_places(&mut pieces);
        self.quote(&mut pieces);
        self.write(&pieces)
    }

    fn head(&self, line: usize) -> Cow<'d, str> {
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

    /// What all the facts that stand in one message only would cost, with what they belong to.
    fn demand(&self) -> usize {
        let mut demand = 0;
        for line in self.lines {
            let once = || {
                line.facts
                    .iter()
                    .filter(|fact| self.facts[**fact].messages == 1)
            };
            if once().next().is_some() {
                demand +=
                    chars(&line.head) + once().map(|fact| self.fact_cost(*fact)).sum::<usize>();
            }
        }
        demand
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
            && !self.is_laid_out
            && before != IN_A_HEAD
            && self.chosen_facts[before]
            && self.facts[before].text(self.span) == word
        {
            // A name chosen on its own now stands in something longer.
            self.chosen_facts[before] = false;
            self.room += self.fact_cost(before);
        }
    }

    fn choose_facts(&mut self, of_interest: impl Fn(&Fact) -> bool) {
        let mut candidates: Vec<(f32, usize, usize)> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let fresh = || {
                line.facts.iter().filter(|fact| {
                    let fact = &self.facts[**fact];
                    of_interest(fact) && !self.said.contains_key(fact.text(self.span))
                })
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
            if opening > 0 && self.choose_line(line) && self.said.contains_key(text) {
                continue;
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

    /// Whether there is a secret near these bytes, where a shorter quote might not show what it is.
    fn is_near_a_secret(&self, source: usize, from: usize, to: usize) -> bool {
        matches!(
            mask_secrets(self.around(source, from, to, 3 * QUOTE_SIDE)),
            Cow::Owned(_)
        )
    }

    /// Whether masking the fact's surroundings takes the fact away.
    fn is_secret(&self, fact: usize) -> bool {
        let fact = &self.facts[fact];
        let around = self.around(fact.source, fact.start, fact.end, 96);
        match mask_secrets(around) {
            Cow::Borrowed(_) => false,
            Cow::Owned(masked) => !masked.contains(fact.text(self.span)),
        }
    }

    /// The chosen facts of every line, those of one source line together.
    fn pieces(&mut self) -> Vec<Piece> {
        self.is_laid_out = true;
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
                        place_name: None,
                    }),
                }
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

    /// Writes the heading of the source before the names that stand under it, where there is room: the
    /// headings with the most names first.
    fn name_places(&mut self, pieces: &mut [Piece]) {
        let mut groups: Vec<(usize, Range<usize>, String)> = Vec::new();
        let places: Vec<Option<(String, usize)>> = pieces
            .iter()
            .map(|piece| place_name(&self.span.sources[piece.source].text, piece.place.start))
            .collect();
        let mut at = 0;
        while at < pieces.len() {
            let same = |other: usize| {
                pieces[other].line == pieces[at].line
                    && pieces[other].source == pieces[at].source
                    && places[other] == places[at]
            };
            let end = (at + 1..pieces.len())
                .find(|other| !same(*other))
                .unwrap_or(pieces.len());
            if let Some((name, _)) = &places[at] {
                let facts: usize = pieces[at..end].iter().map(|piece| piece.facts.len()).sum();
                groups.push((chars(name) * 8 / facts, at..end, name.clone()));
            }
            at = end;
        }
        groups.sort_by_key(|(cost, range, _)| (*cost, range.start));
        for (_, range, name) in groups {
            let cost = chars(&name) + "(); ".len();
            if cost <= self.room && !self.lines[pieces[range.start].line].head.contains(&name) {
                self.room -= cost;
                for piece in &mut pieces[range] {
                    piece.place_name = Some(name.clone());
                }
            }
        }
    }

    /// Replaces names by the words around them while there is room, cheapest first.
    fn quote(&mut self, pieces: &mut [Piece]) {
        let mut quotes: Vec<(usize, usize, String)> = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let (Some(first), Some(last)) = (piece.facts.first(), piece.facts.last()) else {
                continue;
            };
            let (from, to) = (self.facts[*first].start, self.facts[*last].end);
            if to - from > 2 * QUOTE_CHARS || self.is_near_a_secret(piece.source, from, to) {
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

    /// Whether a line is worth writing though no fact stands behind it: its facts may all have found a
    /// place in something longer.
    fn says_something(&self, line: usize) -> bool {
        let line = &self.lines[line];
        let in_head = |fact: &usize| line.head.contains(self.facts[*fact].text(self.span));
        line.value > 0.0 || line.facts.iter().any(in_head)
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
                .filter(|at| self.lines[*at].section == Some(section) && self.chosen_lines[*at])
                .filter(|at| of_line[*at].end > 0 || self.says_something(*at))
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
                page.push_str(&self.head(at));
                write_pieces(&pieces[of_line[at].clone()], &mut page);
                page.push('\n');
            }
        }
        page
    }
}

fn write_pieces(pieces: &[Piece], page: &mut String) {
    for (at, group) in pieces
        .chunk_by(|a, b| a.place_name == b.place_name)
        .enumerate()
    {
        page.push_str(if at == 0 { ": " } else { "; " });
        if let Some(name) = &group[0].place_name {
            page.push_str(name);
            page.push_str(" (");
        }
        for (at, piece) in group.iter().enumerate() {
            if at > 0 {
                let quoted = piece.is_quote || group[at - 1].is_quote;
                page.push_str(if quoted { "; " } else { ", " });
            }
            page.push_str(&piece.text);
        }
        if group[0].place_name.is_some() {
            page.push(')');
        }
    }
}

/// The heading over the line at byte `at` and where it begins: a line that begins with `#`, or a short
/// one that ends with a colon.
fn place_name(text: &str, at: usize) -> Option<(String, usize)> {
    const LOOK_BACK: usize = 40;
    const DEFINITIONS: [&str; 4] = ["def ", "class ", "async def ", "### "];
    const STATEMENTS: [&str; 14] = [
        "if", "elif", "else", "for", "while", "with", "try", "except", "finally", "return", "case",
        "match", "default", "-",
    ];
    let mut end = at;
    for _ in 0..LOOK_BACK {
        let before = text[..end].strip_suffix('\n')?;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        end = start;
        let raw = &before[start..];
        if raw.len() > 100 {
            continue;
        }
        let bare = raw.trim_matches(|c: char| c.is_whitespace() || c.is_ascii_digit() || c == '→');
        let is_code = bare.contains(['=', ';', '{', '('])
            || STATEMENTS.contains(
                &bare
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches(':'),
            );
        let is_definition = DEFINITIONS.iter().any(|word| bare.starts_with(word));
        if is_code && !is_definition {
            continue;
        }
        let is_heading = bare.starts_with("# ")
            || bare.starts_with("##")
            || bare.ends_with(':')
            || bare.starts_with("**") && bare.ends_with("**");
        if !is_heading {
            continue;
        }
        let line = clean_line(bare);
        let name = line
            .trim_end_matches(':')
            .trim_start_matches("def ")
            .trim_start_matches("class ");
        let name = name.split('(').next().unwrap_or(name).trim();
        if name.len() > 2 {
            return Some((clip(name, 40).into_owned(), start));
        }
    }
    None
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

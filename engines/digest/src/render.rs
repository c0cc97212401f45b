//! Fits the outline into a budget and writes it down.
//!
//! Lines that stand for themselves come first, up to a share of the budget; then facts by what they are
//! worth a character, as bare names behind what they belong to, those of one message first; then, with
//! what is left, the headings over names are written and names are replaced by the words around them,
//! cheapest first; then further lines.

use std::ops::Range;

use crate::outline::Line;
use crate::place::{Heading, Headings};
use crate::rank::{Fact, Facts};
use crate::scan::{Found, Kind, scan};
use crate::sections::Section;
use crate::span::Span;
use crate::surroundings::Surroundings;
use crate::text::{chars, contains, line_around};

/// The share of the budget for new lines without facts: at least the first, and up to the second where
/// the facts leave as much.
const NEW_SHARE: (f32, f32) = (0.18, 0.35);
/// The share of the budget for what an earlier summary said.
const CARRIED_SHARE: f32 = 0.45;
/// The share that names leave for the words around them.
const WORDS_SHARE: f32 = 0.04;
/// Stands over the sections of progress.
const PROGRESS: &str = "## Progress\n";
/// No fact costs less than this many characters.
const LEAST_COST: usize = 3 + ", ".len();

/// Where a fact was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nowhere,
    /// In the head of a line.
    InHead,
    /// In this fact: itself, or one that contains it.
    In(usize),
}

pub(crate) struct Page<'d, 'l> {
    span: &'d Span<'d>,
    facts: &'d Facts,
    lines: &'d [Line],
    surroundings: &'l mut Surroundings<'d>,
    room: usize,
    chosen_lines: Vec<bool>,
    chosen_facts: Vec<bool>,
    open_sections: Vec<Section>,
    /// The pieces are laid out: what is chosen stays.
    is_laid_out: bool,
    /// For each fact.
    said: Vec<Said>,
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
    heading: Option<String>,
}

/// A fact that may be chosen. The least is the best: by rank, then by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    fact: usize,
    line: usize,
}

impl<'d, 'l> Page<'d, 'l> {
    pub(crate) fn new(
        span: &'d Span<'d>,
        facts: &'d Facts,
        lines: &'d [Line],
        surroundings: &'l mut Surroundings<'d>,
        max_chars: usize,
    ) -> Self {
        Self {
            span,
            facts,
            lines,
            surroundings,
            room: max_chars,
            chosen_lines: vec![false; lines.len()],
            chosen_facts: vec![false; facts.all.len()],
            open_sections: Vec::new(),
            is_laid_out: false,
            said: vec![Said::Nowhere; facts.all.len()],
        }
    }

    fn fact(&self, at: usize) -> &'d Fact {
        &self.facts.all[at]
    }

    fn fact_text(&self, at: usize) -> &'d str {
        self.facts.all[at].text(self.span)
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
    pub(crate) fn missing(mut self, summary: &str) -> String {
        self.say(summary, Said::InHead);
        self.choose_facts(|_| true);
        for at in 0..self.facts.all.len() {
            if self.chosen_facts[at] && contains(summary, self.fact_text(at)) {
                self.chosen_facts[at] = false;
                self.room += self.fact(at).cost;
            }
        }
        let mut pieces = self.pieces();
        self.name_places(&mut pieces);
        self.quote(&mut pieces);
        self.write(&pieces)
    }

    /// What a line costs without facts, in characters, with its section's heading if it is the first.
    fn line_cost(&self, line: usize) -> usize {
        let Line {
            section,
            head_chars,
            ..
        } = self.lines[line];
        let mut cost = "- \n".len() + head_chars;
        if !self.open_sections.contains(&section) {
            cost += section.heading().len() + 2;
            if section.is_progress() && !self.open_sections.iter().any(|open| open.is_progress()) {
                cost += PROGRESS.len();
            }
        }
        cost
    }

    /// What all the facts that stand in one message only would cost, with what they belong to.
    fn demand(&self) -> usize {
        let cost_of = |line: &Line| {
            let facts = line.facts.iter().map(|fact| self.fact(*fact));
            let once: usize = facts
                .filter(|fact| fact.messages == 1)
                .map(|fact| fact.cost)
                .sum();
            if once > 0 { once + line.head_chars } else { 0 }
        };
        self.lines.iter().map(cost_of).sum()
    }

    fn choose_line(&mut self, line: usize) -> bool {
        let cost = self.line_cost(line);
        if cost > self.room {
            return false;
        }
        self.room -= cost;
        self.chosen_lines[line] = true;
        let line = &self.lines[line];
        if !self.open_sections.contains(&line.section) {
            self.open_sections.push(line.section);
        }
        self.say(&line.head, Said::InHead);
        true
    }

    /// Notes every word and every part of a path in `text` as said, so that none is said twice.
    fn say(&mut self, text: &str, said: Said) {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            self.say_word(word, said);
        }
        scan(text, |found| {
            if let Found::Fact(kind, range) = found {
                let fact = &text[range];
                self.say_word(fact, said);
                if matches!(kind, Kind::Path | Kind::Url | Kind::Slashed) {
                    for (at, _) in fact.match_indices('/') {
                        self.say_word(&fact[at + 1..], said);
                        self.say_word(&fact[at..], said);
                        self.say_word(&fact[..at], said);
                        self.say_word(&fact[..=at], said);
                    }
                    for segment in fact.split('/') {
                        self.say_word(segment, said);
                    }
                }
            }
        });
    }

    fn say_word(&mut self, word: &str, said: Said) {
        // Only what is a fact itself could be said again.
        let Some(fact) = self.facts.find(word, self.span) else {
            return;
        };
        let before = std::mem::replace(&mut self.said[fact], said);
        let was_alone = before == Said::In(fact) && before != said && self.chosen_facts[fact];
        if was_alone && !self.is_laid_out {
            // A name chosen on its own now stands in something longer.
            self.chosen_facts[fact] = false;
            self.room += self.fact(fact).cost;
        }
    }

    /// Chooses facts by what they are worth a character, as many as there is room for.
    fn choose_facts(&mut self, is_wanted: impl Fn(&Fact) -> bool) {
        // No more than so many can fit; some of the best will stand in one another.
        let most = 4 * (self.room / LEAST_COST + 1);
        let mut ranked = self.ranked(is_wanted);
        if ranked.len() > most {
            ranked.select_nth_unstable(most);
            ranked.truncate(most);
        }
        // Sorted as far as there is room for, not to the end.
        let mut next = 64 + self.room / 16;
        while !ranked.is_empty() {
            let next_best = next.min(ranked.len());
            if next_best < ranked.len() {
                ranked.select_nth_unstable(next_best);
            }
            let others = ranked.split_off(next_best);
            ranked.sort_unstable();
            for candidate in ranked {
                self.choose_fact(candidate);
            }
            ranked = others;
            ranked.retain(|candidate| self.fact(candidate.fact).cost <= self.room);
            next *= 2;
        }
    }

    /// The facts that are not said yet, to be sorted by worth.
    fn ranked(&self, is_wanted: impl Fn(&Fact) -> bool) -> Vec<Candidate> {
        let mut ranked = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let first = ranked.len();
            for fact in &line.facts {
                if self.said[*fact] == Said::Nowhere && is_wanted(self.fact(*fact)) {
                    ranked.push(Candidate {
                        rank: 0,
                        fact: *fact,
                        line: at,
                    });
                }
            }
            let head = if self.chosen_lines[at] {
                0
            } else {
                line.head_chars + " — ".len()
            };
            let share = head as f32 / (ranked.len() - first) as f32;
            for candidate in &mut ranked[first..] {
                let fact = self.fact(candidate.fact);
                let worth = fact.worth / (fact.cost as f32 + share);
                // The bits of positive numbers are in the order of the numbers.
                candidate.rank = !worth.to_bits();
            }
        }
        ranked
    }

    fn choose_fact(&mut self, Candidate { line, fact, .. }: Candidate) {
        let is_said = |page: &Self| page.said[fact] != Said::Nowhere;
        let cost = self.fact(fact).cost;
        if cost > self.room || is_said(self) {
            return;
        }
        let opening = if self.chosen_lines[line] {
            0
        } else {
            self.line_cost(line)
        };
        if opening + cost > self.room || self.surroundings.hide(self.fact(fact)) {
            return;
        }
        if opening > 0 && self.choose_line(line) && is_said(self) {
            return;
        }
        self.room -= cost;
        self.chosen_facts[fact] = true;
        self.say(self.fact_text(fact), Said::In(fact));
    }

    /// The chosen facts of every line, those of one source line together.
    fn pieces(&mut self) -> Vec<Piece> {
        self.is_laid_out = true;
        let mut pieces: Vec<Piece> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if !self.chosen_lines[at] {
                continue;
            }
            for fact in line.facts.iter().filter(|fact| self.chosen_facts[**fact]) {
                let Fact {
                    source, start, end, ..
                } = *self.fact(*fact);
                match pieces.last_mut() {
                    Some(last)
                        if last.line == at
                            && last.source == source
                            && last.place.contains(&start) =>
                    {
                        last.facts.push(*fact);
                        last.text.push_str(", ");
                        last.text.push_str(self.fact_text(*fact));
                    }
                    _ => pieces.push(Piece {
                        line: at,
                        source,
                        place: line_around(&self.span.sources[source].text, end),
                        facts: vec![*fact],
                        text: self.fact_text(*fact).to_owned(),
                        is_quote: false,
                        heading: None,
                    }),
                }
            }
        }
        pieces
    }

    /// Writes the heading of the source before the names that stand under it, where there is room: the
    /// headings with the most names first.
    fn name_places(&mut self, pieces: &mut [Piece]) {
        struct Group {
            heading: Heading,
            pieces: Range<usize>,
            facts: usize,
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut at = 0;
        for of_source in pieces.chunk_by(|a, b| (a.line, a.source) == (b.line, b.source)) {
            let mut headings = Headings::of(&self.span.sources[of_source[0].source].text);
            let first = at;
            for piece in of_source {
                let heading = headings.over(piece.place.start);
                let facts = piece.facts.len();
                match (heading, groups.last_mut()) {
                    (Some(heading), Some(group))
                        if group.heading == *heading
                            && group.pieces.start >= first
                            && group.pieces.end == at =>
                    {
                        group.pieces.end += 1;
                        group.facts += facts;
                    }
                    (Some(heading), _) => groups.push(Group {
                        heading: heading.clone(),
                        pieces: at..at + 1,
                        facts,
                    }),
                    (None, _) => {}
                }
                at += 1;
            }
        }
        groups.sort_by_cached_key(|group| {
            let per_fact = chars(&group.heading.name) * 8 / group.facts;
            (per_fact, group.pieces.start)
        });
        for Group {
            heading,
            pieces: of_group,
            ..
        } in groups
        {
            let cost = chars(&heading.name) + "(); ".len();
            let line = &self.lines[pieces[of_group.start].line];
            if cost <= self.room && !contains(&line.head, &heading.name) {
                self.room -= cost;
                for piece in &mut pieces[of_group] {
                    piece.heading = Some(heading.name.clone());
                }
            }
        }
    }

    /// Replaces names by the words around them while there is room, those first that take least.
    fn quote(&mut self, pieces: &mut [Piece]) {
        let mut longer: Vec<(usize, usize, Range<usize>)> = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let (Some(first), Some(last)) = (piece.facts.first(), piece.facts.last()) else {
                continue;
            };
            let place = self.fact(*first).start..self.fact(*last).end;
            if let Some(words) = self.surroundings.words(piece.source, place.clone()) {
                let more = chars(words.trim()).saturating_sub(chars(&piece.text));
                longer.push((more, at, place));
            }
        }
        longer.sort_unstable_by_key(|(more, at, _)| (*more, *at));
        for (more, at, place) in longer {
            // Without its marks a quote may be shorter than it stands, but not by much.
            if more > self.room {
                break;
            }
            let piece = &mut pieces[at];
            let known = chars(&piece.text);
            let most = known + self.room;
            let Some(quote) = self.surroundings.quote(piece.source, place, most) else {
                continue;
            };
            let holds_all = piece
                .facts
                .iter()
                .all(|fact| contains(&quote, self.facts.all[*fact].text(self.span)));
            if holds_all && quote != piece.text {
                self.room -= chars(&quote).saturating_sub(known);
                piece.text = quote;
                piece.is_quote = true;
            }
        }
    }

    /// Whether a line is worth writing though no fact stands behind it: its facts may all have found a
    /// place in something longer.
    fn says_something(&self, line: &Line) -> bool {
        let in_head = |fact: &usize| contains(&line.head, self.fact_text(*fact));
        line.value > 0.0 || line.facts.iter().any(in_head)
    }

    fn write(&self, pieces: &[Piece]) -> String {
        let mut of_line: Vec<&[Piece]> = vec![&[]; self.lines.len()];
        for pieces in pieces.chunk_by(|a, b| a.line == b.line) {
            of_line[pieces[0].line] = pieces;
        }
        let mut lines: Vec<usize> = (0..self.lines.len())
            .filter(|at| self.chosen_lines[*at])
            .filter(|at| !of_line[*at].is_empty() || self.says_something(&self.lines[*at]))
            .collect();
        lines.sort_by_key(|at| (self.lines[*at].section, self.lines[*at].order, *at));

        let mut page = String::new();
        let mut last = None;
        for at in lines {
            let Line { section, head, .. } = &self.lines[at];
            if last != Some(*section) {
                if !page.is_empty() {
                    page.push('\n');
                }
                if section.is_progress() && !last.is_some_and(Section::is_progress) {
                    page.push_str(PROGRESS);
                }
                page.push_str(section.heading());
                page.push('\n');
                last = Some(*section);
            }
            page.push_str("- ");
            page.push_str(head);
            write_pieces(of_line[at], &mut page);
            page.push('\n');
        }
        page
    }
}

fn write_pieces(pieces: &[Piece], page: &mut String) {
    for (at, group) in pieces.chunk_by(|a, b| a.heading == b.heading).enumerate() {
        page.push_str(if at == 0 { ": " } else { "; " });
        if let Some(name) = &group[0].heading {
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
        if group[0].heading.is_some() {
            page.push(')');
        }
    }
}

//! Fits the outline into a budget and writes the summary.
//!
//! [`Page::summary`] works in rounds. First it chooses lines that are worth writing without facts,
//! up to a share of the budget. What says how to go on, such as the user's last request, has room of
//! its own. Then it chooses facts by value per character, as bare names after
//! what they belong to. With the rest of the budget it adds headings and replaces names by quotes,
//! the cheapest first, and finally adds further lines. [`Page::with_key_lines`] and
//! [`Page::missing`] do the same for what another summary lacks. A name is never written twice: `say` marks everything that a
//! chosen text mentions, including the parts of a path. All sizes are characters.

use std::ops::Range;

use hashbrown::HashMap;

use crate::beside::{TextsBeside, for_each_mention};
use crate::headings::{Heading, Headings};
use crate::language::{Language, last_said, said};
use crate::outline::{KEY_VALUE, Line};
use crate::rank::{Fact, Facts};
use crate::sections::Section;
use crate::shown::Terms;
use crate::span::Span;
use crate::surroundings;
use crate::text::{LEFT_OUT, chars, contains, line_around, shorten_middle, unmarked};

/// The share of the budget for new lines without facts: at least the first number, and up to the
/// second if the facts leave that much.
const NEW_SHARE: (f32, f32) = (0.12, 0.35);
/// The room for new lines of at least [`KEY_VALUE`], whatever the facts need, in characters. It does not
/// grow with the budget, because how to go on takes as many words in a long summary as in a short one.
const KEY_CHARS: usize = 800;
/// The most of the budget that they may take.
const MOST_KEY_SHARE: f32 = 0.5;
/// None of them is shortened to fewer characters than this.
const LEAST_KEY_CHARS: usize = 60;
/// The share of the budget for lines of an earlier summary.
const CARRIED_SHARE: f32 = 0.45;
/// How much a fact in several messages counts relative to one in a single message: the second
/// number for each further budget that the facts of single messages would need, at least the first
/// number and at most 1. If all of them fit, repetition hardly counts. The less of them fits, the
/// more it matters what is used repeatedly.
///
/// It is also at least the share of repeated facts that stand beside the summary. Repetition counts
/// little because the window mostly keeps what is repeated. The more of it is known to be kept, the
/// less that holds for the rest.
const AGAIN: (f32, f32) = (0.05, 0.6);
/// No fact costs fewer characters than this, which bounds how many can fit.
const LEAST_COST: usize = 3 + ", ".len();

/// Where a fact is mentioned in the summary, if it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mention {
    Nowhere,
    InHead,
    /// In this fact: the fact itself, or a longer one that contains it.
    In(usize),
}

/// What stands beside the summary: each fact that is mentioned there, and each line whose words of the
/// user are.
pub(crate) struct SaidBeside {
    facts: Vec<Mention>,
    lines: Vec<bool>,
}

impl SaidBeside {
    pub(crate) fn of(facts: &Facts, lines: &[Line], beside: &TextsBeside) -> Self {
        let quoted = |line: &Line| {
            let words = said(&line.head).filter(|_| line.section == Section::Constraints);
            // A long quote has lost its middle.
            words.is_some_and(|words| words.split(LEFT_OUT).all(|part| beside.has(part)))
        };
        let mentions = facts.are_beside(beside).into_iter();
        let mentions = mentions.map(|is_beside| match is_beside {
            true => Mention::InHead,
            false => Mention::Nowhere,
        });
        Self {
            facts: mentions.collect(),
            lines: lines.iter().map(quoted).collect(),
        }
    }
}

/// A summary that is being fitted into its budget. `room` is the number of characters left.
pub(crate) struct Page<'d> {
    span: &'d Span<'d>,
    facts: &'d Facts,
    lines: &'d [Line],
    language: Language,
    room: usize,
    /// The weight of a fact in several messages. See [`AGAIN`].
    again: f32,
    /// For each line, whether the user's words in it stand beside the summary.
    said_lines: Vec<bool>,
    chosen_lines: Vec<bool>,
    /// The heads of lines that had to be shortened.
    shortened: HashMap<usize, String>,
    chosen_facts: Vec<bool>,
    open_sections: Vec<Section>,
    /// Whether the excerpts are laid out, so that the choice of facts is final.
    is_laid_out: bool,
    /// For each fact, whether and in what the summary mentions it.
    said: Vec<Mention>,
}

/// The chosen facts of one line of a source, as they will be written: as names or as one quote.
struct Excerpt {
    line: usize,
    source: usize,
    place: Range<usize>,
    facts: Vec<usize>,
    text: String,
    is_quote: bool,
    /// The heading above these facts in the source, if it is written.
    heading: Option<String>,
}

/// A candidate fact. The smallest is the best: by rank first, then by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    fact: usize,
    line: usize,
}

impl<'d> Page<'d> {
    pub(crate) fn new(
        span: &'d Span<'d>,
        facts: &'d Facts,
        lines: &'d [Line],
        language: Language,
        max_chars: usize,
    ) -> Self {
        Self {
            span,
            facts,
            lines,
            language,
            room: max_chars,
            again: 1.0,
            said_lines: vec![false; lines.len()],
            chosen_lines: vec![false; lines.len()],
            shortened: HashMap::new(),
            chosen_facts: vec![false; facts.all.len()],
            open_sections: Vec::new(),
            is_laid_out: false,
            said: vec![Mention::Nowhere; facts.all.len()],
        }
    }

    fn fact(&self, at: usize) -> &'d Fact {
        &self.facts.all[at]
    }

    fn fact_text(&self, at: usize) -> &'d str {
        self.facts.all[at].text(self.span)
    }

    /// Leaves out what stands beside the summary.
    pub(crate) fn beside(self, beside: &SaidBeside) -> Self {
        Self {
            said: beside.facts.clone(),
            said_lines: beside.lines.clone(),
            ..self
        }
    }

    /// Chooses and writes the whole summary.
    pub(crate) fn summary(mut self) -> String {
        let budget = self.room as f32;
        let beside = self.repeated_beside();
        let plain = self.plain_lines();
        let left = self.room.saturating_sub(self.demand()) as f32;
        let new = left.clamp(budget * NEW_SHARE.0, budget * NEW_SHARE.1) as usize;
        let is_carried = |at: &usize| self.lines[*at].is_carried;
        let (carried, others): (Vec<usize>, Vec<usize>) =
            plain.iter().partition(|at| is_carried(at));
        let share = (budget * CARRIED_SHARE) as usize;
        let spent = self.choose_key_lines(&carried, share);
        self.choose_lines(&carried, share.saturating_sub(spent), 0);
        let spent = self.choose_key_lines(&others, key_chars(budget));
        self.choose_lines(&others, new.saturating_sub(spent), 0);
        // The value of several mentions depends on how much does not fit, so it is computed only
        // now.
        let pressure = self.demand() as f32 / self.room.max(1) as f32;
        self.again = (AGAIN.1 * (pressure - 1.0)).clamp(AGAIN.0.max(beside), 1.0);
        self.choose_facts();
        let mut excerpts = self.excerpts();
        self.name_places(&mut excerpts);
        self.quote(&mut excerpts);
        // What the facts and quotes left over goes to lines that were too expensive before.
        for at in plain {
            if !self.chosen_lines[at] {
                self.choose_line(at);
                continue;
            }
            let more = self.lines[at]
                .head_chars
                .saturating_sub(self.head_chars(at));
            if more <= self.room && self.shortened.remove(&at).is_some() {
                self.room -= more;
            }
        }
        self.write(&excerpts)
    }

    /// Chooses the lines that say how to go on and that `summary` lacks. What the earlier summary had is
    /// not added again, because the author of `summary` knew it.
    pub(crate) fn with_key_lines(mut self, summary: &str) -> Self {
        let told = Terms::of(summary);
        let mut lines = self.plain_lines();
        lines.retain(|at| {
            let Line {
                head, is_carried, ..
            } = &self.lines[*at];
            let words = said(head).or(last_said(head)).unwrap_or(head);
            !is_carried && !Terms::of(words).are_all_in(&told)
        });
        self.choose_key_lines(&lines, key_chars(self.room as f32));
        self
    }

    /// Chooses and writes the facts that `summary` lacks, and what was chosen before, as lines under
    /// headings.
    pub(crate) fn missing(mut self, summary: &str) -> String {
        self.say(summary, Mention::InHead);
        self.choose_facts();
        // A name may be part of a longer word in the summary, which `say` does not see.
        for at in 0..self.facts.all.len() {
            if self.chosen_facts[at] && contains(summary, self.fact_text(at)) {
                self.chosen_facts[at] = false;
                self.room += self.fact(at).cost;
            }
        }
        let mut excerpts = self.excerpts();
        self.name_places(&mut excerpts);
        self.quote(&mut excerpts);
        self.write(&excerpts)
    }

    /// Returns the lines that are worth writing without facts, the best first.
    fn plain_lines(&self) -> Vec<usize> {
        let mut plain: Vec<usize> = (0..self.lines.len())
            .filter(|at| self.lines[*at].value > 0.0 && !self.said_lines[*at])
            .collect();
        plain.sort_by(|a, b| {
            let (a, b) = (&self.lines[*a], &self.lines[*b]);
            b.value.total_cmp(&a.value).then(b.order.cmp(&a.order))
        });
        plain
    }

    /// Chooses those of the lines that say how to go on. Returns the characters that they take.
    fn choose_key_lines(&mut self, lines: &[usize], share: usize) -> usize {
        let is_key = |at: &&usize| self.lines[**at].value >= KEY_VALUE;
        let key: Vec<usize> = lines.iter().filter(is_key).copied().collect();
        self.choose_lines(&key, share, LEAST_KEY_CHARS)
    }

    /// Chooses lines in this order, as far as they fit into `share` characters. A line that is too long is
    /// shortened, if it keeps at least `least` characters and that is not 0. Returns the characters that
    /// they take.
    fn choose_lines(&mut self, lines: &[usize], share: usize, least: usize) -> usize {
        let before = self.room;
        for at in lines {
            if self.chosen_lines[*at] {
                continue;
            }
            let left = share.saturating_sub(before - self.room);
            let excess = self.line_cost(*at).saturating_sub(left);
            let shorter = self.head_chars(*at).saturating_sub(excess);
            // A rule without its middle may say something else.
            let may_shorten = least > 0 && self.lines[*at].section != Section::Constraints;
            if excess > 0 && may_shorten && shorter >= least {
                let head = shorten_middle(&self.lines[*at].head, shorter).into_owned();
                self.shortened.insert(*at, head);
            }
            if excess == 0 || self.shortened.contains_key(at) {
                self.choose_line(*at);
            }
        }
        before - self.room
    }

    fn head(&self, line: usize) -> &str {
        let shortened = self.shortened.get(&line);
        shortened.map_or(&self.lines[line].head, String::as_str)
    }

    fn head_chars(&self, line: usize) -> usize {
        let shortened = self.shortened.get(&line);
        shortened.map_or(self.lines[line].head_chars, |head| chars(head))
    }

    /// Returns the cost of a line without facts. It includes the heading of its section if this is
    /// the first line there.
    fn line_cost(&self, line: usize) -> usize {
        let section = self.lines[line].section;
        let mut cost = "- \n".len() + self.head_chars(line);
        if !self.open_sections.contains(&section) {
            cost += chars(self.language.heading(section)) + 2;
            if section.is_progress() && !self.open_sections.iter().any(|open| open.is_progress()) {
                cost += chars(self.language.progress()) + 1;
            }
        }
        cost
    }

    /// Returns the cost of all facts that occur in one message only, together with what they belong
    /// to.
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

    /// Returns the share of the facts in several messages that are mentioned already.
    fn repeated_beside(&self) -> f32 {
        let all = self.facts.all.iter().zip(&self.said);
        let repeated = all.filter(|(fact, _)| fact.messages > 1);
        let beside = (repeated.clone()).filter(|(_, said)| **said != Mention::Nowhere);
        beside.count() as f32 / repeated.count().max(1) as f32
    }

    /// Chooses a line if there is room for it, and marks everything in its head as mentioned.
    fn choose_line(&mut self, line: usize) -> bool {
        let cost = self.line_cost(line);
        if cost > self.room {
            return false;
        }
        self.room -= cost;
        self.chosen_lines[line] = true;
        let section = self.lines[line].section;
        if !self.open_sections.contains(&section) {
            self.open_sections.push(section);
        }
        let head = self.head(line).to_owned();
        self.say(&head, Mention::InHead);
        true
    }

    /// Marks every word in `text`, and every part of a path, as mentioned, so that nothing is
    /// repeated.
    fn say(&mut self, text: &str, said: Mention) {
        for_each_mention(text, |mention| self.say_word(mention, said));
    }

    fn say_word(&mut self, word: &str, said: Mention) {
        // Only facts could be written twice, so other words need no mark.
        let Some(fact) = self.facts.find(word) else {
            return;
        };
        let before = std::mem::replace(&mut self.said[fact], said);
        let was_alone = before == Mention::In(fact) && before != said && self.chosen_facts[fact];
        if was_alone && !self.is_laid_out {
            // A name that was chosen earlier is now part of something longer, so its own mention is
            // dropped.
            self.chosen_facts[fact] = false;
            self.room += self.fact(fact).cost;
        }
    }

    /// Chooses facts by value per character, as many as there is room for.
    fn choose_facts(&mut self) {
        // This is an upper bound of how many fit. It is generous, because some of the best contain
        // each other.
        let most = 4 * (self.room / LEAST_COST + 1);
        let mut ranked = self.ranked();
        if ranked.len() > most {
            ranked.select_nth_unstable(most);
            ranked.truncate(most);
        }
        // Sorting all candidates is expensive, so only as many as may fit are sorted, in growing
        // batches.
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

    /// Returns the facts that are not mentioned yet. Each rank includes a share of the cost of its
    /// line.
    fn ranked(&self) -> Vec<Candidate> {
        let mut ranked = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let first = ranked.len();
            for fact in &line.facts {
                if self.said[*fact] == Mention::Nowhere {
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
                let again = if fact.messages > 1 { self.again } else { 1.0 };
                let worth = fact.worth * again / (fact.cost as f32 + share);
                // The bit patterns of positive floats sort like the floats, and inverting them puts
                // the largest first.
                candidate.rank = !worth.to_bits();
            }
        }
        ranked
    }

    /// Chooses a fact, and its line if that is not chosen yet, provided that there is room for
    /// both.
    fn choose_fact(&mut self, Candidate { line, fact, .. }: Candidate) {
        let is_said = |page: &Self| page.said[fact] != Mention::Nowhere;
        let cost = self.fact(fact).cost;
        if cost > self.room || is_said(self) {
            return;
        }
        let opening = if self.chosen_lines[line] {
            0
        } else {
            self.line_cost(line)
        };
        if opening + cost > self.room {
            return;
        }
        // The head of the line may mention the fact itself, so it is checked again.
        if opening > 0 && self.choose_line(line) && is_said(self) {
            return;
        }
        self.room -= cost;
        self.chosen_facts[fact] = true;
        self.say(self.fact_text(fact), Mention::In(fact));
    }

    /// Groups the chosen facts of every line by the line of the source that they are in.
    fn excerpts(&mut self) -> Vec<Excerpt> {
        self.is_laid_out = true;
        let mut excerpts: Vec<Excerpt> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if !self.chosen_lines[at] {
                continue;
            }
            for fact in line.facts.iter().filter(|fact| self.chosen_facts[**fact]) {
                let Fact {
                    source, start, end, ..
                } = *self.fact(*fact);
                match excerpts.last_mut() {
                    Some(last)
                        if last.line == at
                            && last.source == source
                            && last.place.contains(&start) =>
                    {
                        last.facts.push(*fact);
                        last.text.push_str(", ");
                        last.text.push_str(self.fact_text(*fact));
                    }
                    _ => excerpts.push(Excerpt {
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
        excerpts
    }

    /// Writes the heading from the source before names, if there is room. Headings that cost the
    /// least per name come first.
    fn name_places(&mut self, excerpts: &mut [Excerpt]) {
        struct Group {
            heading: Heading,
            excerpts: Range<usize>,
            facts: usize,
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut at = 0;
        for of_source in excerpts.chunk_by(|a, b| (a.line, a.source) == (b.line, b.source)) {
            let mut headings = Headings::of(&self.span.sources[of_source[0].source].text);
            let first = at;
            for excerpt in of_source {
                let heading = headings.over(excerpt.place.start);
                let facts = excerpt.facts.len();
                match (heading, groups.last_mut()) {
                    (Some(heading), Some(group))
                        if group.heading == *heading
                            && group.excerpts.start >= first
                            && group.excerpts.end == at =>
                    {
                        group.excerpts.end += 1;
                        group.facts += facts;
                    }
                    (Some(heading), _) => groups.push(Group {
                        heading: heading.clone(),
                        excerpts: at..at + 1,
                        facts,
                    }),
                    (None, _) => {}
                }
                at += 1;
            }
        }
        groups.sort_by_cached_key(|group| {
            let per_fact = chars(&group.heading.name) * 8 / group.facts;
            (per_fact, group.excerpts.start)
        });
        for Group {
            heading,
            excerpts: of_group,
            ..
        } in groups
        {
            let cost = chars(&heading.name) + "(); ".len();
            let head = self.head(excerpts[of_group.start].line);
            // If the head has the same words, the heading adds nothing.
            if cost <= self.room && !contains(head, &heading.name) {
                self.room -= cost;
                for excerpt in &mut excerpts[of_group] {
                    excerpt.heading = Some(heading.name.clone());
                }
            }
        }
    }

    /// Replaces names by quotes while there is room, the cheapest first.
    fn quote(&mut self, excerpts: &mut [Excerpt]) {
        let mut longer: Vec<(usize, usize, Range<usize>)> = Vec::new();
        for (at, excerpt) in excerpts.iter().enumerate() {
            let (Some(first), Some(last)) = (excerpt.facts.first(), excerpt.facts.last()) else {
                continue;
            };
            let place = self.fact(*first).start..self.fact(*last).end;
            let source = &self.span.sources[excerpt.source].text;
            if let Some(words) = surroundings::words(source, place.clone()) {
                let more = chars(words.trim()).saturating_sub(chars(&excerpt.text));
                longer.push((more, at, place));
            }
        }
        longer.sort_unstable_by_key(|(more, at, _)| (*more, *at));
        for (more, at, place) in longer {
            // A quote can be a little shorter than in the source, because its marks are removed.
            if more > self.room {
                break;
            }
            let excerpt = &mut excerpts[at];
            let known = chars(&excerpt.text);
            let most = known + self.room;
            let source = &self.span.sources[excerpt.source].text;
            let Some(quote) = surroundings::quote(source, place, most) else {
                continue;
            };
            let holds_all = excerpt
                .facts
                .iter()
                .all(|fact| contains(&quote, self.facts.all[*fact].text(self.span)));
            // A quote has to contain every name that it replaces.
            if holds_all && quote != excerpt.text && !is_code(&quote) {
                self.room -= chars(&quote).saturating_sub(known);
                excerpt.text = quote;
                excerpt.is_quote = true;
            }
        }
    }

    /// Whether a line is worth writing without facts. Its own facts may all have become part of
    /// something longer.
    fn says_something(&self, at: usize) -> bool {
        let line = &self.lines[at];
        let in_head = |fact: &usize| contains(self.head(at), self.fact_text(*fact));
        line.value > 0.0 || line.facts.iter().any(in_head)
    }

    fn write(&self, excerpts: &[Excerpt]) -> String {
        let mut of_line: Vec<&[Excerpt]> = vec![&[]; self.lines.len()];
        for excerpts in excerpts.chunk_by(|a, b| a.line == b.line) {
            of_line[excerpts[0].line] = excerpts;
        }
        let mut lines: Vec<usize> = (0..self.lines.len())
            .filter(|at| self.chosen_lines[*at])
            .filter(|at| !of_line[*at].is_empty() || self.says_something(*at))
            .collect();
        lines.sort_by_key(|at| (self.lines[*at].section, self.lines[*at].order, *at));

        let mut page = String::new();
        let mut last = None;
        for at in lines {
            let section = &self.lines[at].section;
            if last != Some(*section) {
                if !page.is_empty() {
                    page.push('\n');
                }
                if section.is_progress() && !last.is_some_and(Section::is_progress) {
                    page.push_str(self.language.progress());
                    page.push('\n');
                }
                page.push_str(self.language.heading(*section));
                page.push('\n');
                last = Some(*section);
            }
            page.push_str("- ");
            page.push_str(self.head(at));
            write_excerpts(of_line[at], &mut page);
            page.push('\n');
        }
        // A quote may have such a mark.
        unmarked(&page)
    }
}

/// The characters that new lines of at least [`KEY_VALUE`] may take of a budget.
fn key_chars(budget: f32) -> usize {
    KEY_CHARS.min((budget * MOST_KEY_SHARE) as usize)
}

/// Whether a line is source code or data. A quote of it would say no more than its names.
fn is_code(line: &str) -> bool {
    let holds = |marks: &[&str]| marks.iter().any(|mark| line.contains(mark));
    line.contains(['{', '}', ';', '=', '<', '['])
        || line.ends_with([',', ':', '('])
        || line.starts_with(['"', '\'', ':'])
        || holds(&["()", "->", "import ", "def ", "fn "])
}

fn write_excerpts(excerpts: &[Excerpt], page: &mut String) {
    for (at, group) in excerpts.chunk_by(|a, b| a.heading == b.heading).enumerate() {
        page.push_str(if at == 0 { ": " } else { "; " });
        if let Some(name) = &group[0].heading {
            page.push_str(name);
            page.push_str(" (");
        }
        for (at, excerpt) in group.iter().enumerate() {
            if at > 0 {
                let quoted = excerpt.is_quote || group[at - 1].is_quote;
                page.push_str(if quoted { "; " } else { ", " });
            }
            page.push_str(&excerpt.text);
        }
        if group[0].heading.is_some() {
            page.push(')');
        }
    }
}

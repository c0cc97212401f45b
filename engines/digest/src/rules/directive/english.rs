//! Rules in English.

use crate::rules::words::{Table, clauses};

pub(super) fn states_rule(english: &Table, flat: &str) -> bool {
    // What follows a report is somebody else's rule. A rule before it stays one.
    let own = english.before_report(flat);
    if own.len() < flat.len() {
        return states_rule(english, &format!("{own}| "));
    }
    // "It would be great if you could keep it short" is the order at its end.
    if let Some((thanks, order)) = flat.rsplit_once(" if you could ")
        && english.has("thanks", thanks)
    {
        return states_rule(english, &format!(" {order}"));
    }
    // *No* is a word of Spanish, too, and stands before a verb there.
    let is_plural = flat
        .split_whitespace()
        .any(|word| word.ends_with('s') || word.ends_with("ing"));
    let is_rule = is_plural && english.is_ban(flat)
        || english.matches("patterns", flat)
        || clauses(flat).any(|clause| clause_states_rule(english, clause));
    is_rule && !english.has("guesses", flat) && !guesses_past(english, flat)
}

/// Whether a sentence guesses what happened: "They must not have seen it."
fn guesses_past(english: &Table, flat: &str) -> bool {
    let words: Vec<&str> = flat
        .split_whitespace()
        .filter(|word| *word != "not")
        .collect();
    words.windows(2).enumerate().any(|(at, two)| {
        let next = |ahead: usize| words.get(at + ahead).copied().unwrap_or("|");
        two == ["must", "have"]
            && is_past(english, next(2))
            && (next(3) == "|" || english.lists("behind a guess", next(3)))
    })
}

fn clause_states_rule(english: &Table, clause: &str) -> bool {
    let words: Vec<&str> = clause.split_whitespace().collect();
    let lead = words.len() - english.behind("fillers", clause).len();
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let first = word(lead);
    let is_imperative = english.lists("imperatives", first);
    let before = |at: usize| at.checked_sub(1).map_or("", word);
    let relates = |at: usize| {
        words[..at]
            .iter()
            .any(|word| english.lists("relative", word))
    };
    let forbids = |next: &str| !next.is_empty() && !english.lists("no ban behind don't", next);
    (0..words.len()).any(|at| {
        let (previous, next) = (before(at), word(at + 1));
        match words[at] {
            "never" | "always" => {
                let earlier = at.checked_sub(2).map_or("", word);
                let seems = matches!(earlier, "seems" | "seem" | "appears" | "tends");
                (previous.is_empty() || english.lists("before adverbs", previous) || is_imperative)
                    && !(english.lists("no adverb", next) || is_past(english, next))
                    && !seems
            }
            "don't" | "dont" => at == lead && forbids(next),
            "do" => next == "not" && at == lead && forbids(word(at + 2)),
            "must" => {
                let is_guess = english.lists("subjects", previous)
                    && (next != "be" || english.lists("guessed", word(at + 2)))
                    || previous == "you" && next == "be" && is_past(english, word(at + 2));
                !is_guess && !matches!(previous, "" | "a" | "i" | "the")
            }
            "only" => {
                matches!(previous, "must" | "may" | "should" | "shall")
                    || at == lead && !english.lists("no limit", next) && !next.is_empty()
                    || is_imperative && !relates(at)
            }
            "every" | "each" | "all" | "any" | "no" | "nothing" | "nobody" if at == lead => {
                // "All tests pass" is a report. "All tests must pass" is a rule.
                let is_modal = |word: &&str| {
                    matches!(
                        *word,
                        "must" | "should" | "shall" | "gets" | "needs" | "may"
                    )
                };
                let is_duty = |two: &[&str]| {
                    matches!(
                        two,
                        ["has" | "have" | "needs" | "need" | "is" | "are", "to"]
                    )
                };
                let rest = &words[at + 1..];
                rest.iter().any(is_modal) || rest.windows(2).any(is_duty)
            }
            // "Error messages should be in English." With an article it is about one thing.
            "should" | "shouldn't" => {
                (1..=4).contains(&at)
                    && previous.ends_with('s')
                    && !(english.lists("subjects", first)
                        || first.ends_with("ing")
                        || next == "have")
                    && !relates(at)
                    && !matches!(first, "the" | "these" | "those" | "yes" | "always" | "this")
            }
            "instead" => is_imperative && next == "of",
            "rather" => is_imperative && next == "than",
            "alone" | "untouched" => first == "leave",
            _ => false,
        }
    })
}

/// Whether a word is a past participle, by its ending or because it is a common one.
fn is_past(english: &Table, word: &str) -> bool {
    let is_regular = word.ends_with("ed") && !word.ends_with("eed");
    is_regular || english.lists("participles", word)
}

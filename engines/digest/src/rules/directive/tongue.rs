//! What rules look like in a language whose adverbs of rules occur in reports too, and bans.

use super::words::{behind, clauses, has, lists, places};

/// Words of a language, with bars between them.
pub(super) struct Tongue {
    /// Words such as *always*, which count in an order and not in a report.
    pub adverbs: &'static str,
    /// Verbs such as *must*. If a sentence has one, an adverb counts wherever it stands.
    pub modals: &'static str,
    /// Words such as *every*. A clause that begins with one is a rule if the sentence has a modal verb.
    pub all: &'static str,
    /// Words such as *it* or *here*. If a clause begins with one, it is a report, unless the
    /// sentence has a modal verb.
    pub not_first: &'static str,
    /// Verbs such as *fails*. If a clause has one, it is a report.
    pub reports: &'static str,
    /// Words that are passed over at the beginning of a clause, such as *and*.
    pub fillers: &'static str,
}

impl Tongue {
    /// Whether a clause of a sentence is about all of a kind and says what must be, or has an adverb
    /// of rules and is an order. It is an order if the sentence has a modal verb, or if its first word
    /// is such an adverb or an imperative, which `is_imperative` tells of the words of a clause.
    pub(super) fn states_rule(&self, flat: &str, is_imperative: fn(&[&str]) -> bool) -> bool {
        // The verb may be in another clause than the adverb, so it is looked for in the whole
        // sentence.
        let has_modal = has(flat, self.modals);
        clauses(flat).any(|clause| {
            let words = behind(clause, self.fillers);
            let first = words.first().copied().unwrap_or_default();
            if has_modal && lists(self.all, first) {
                return true;
            }
            if has(clause, self.reports) || !has(clause, self.adverbs) {
                return false;
            }
            let is_order = has(first, self.adverbs) || is_imperative(&words);
            has_modal || is_order && !lists(self.not_first, first)
        })
    }
}

/// How a language says that there is to be none of a thing.
pub(super) struct Ban {
    /// What such a sentence begins with.
    pub starts: &'static [&'static str],
    /// Words that make a report or an idiom of it: "no errors found", "no idea".
    pub not_in: &'static str,
    /// Imperatives that an order beside it may begin with: "No jQuery, use the DOM."
    pub orders: &'static str,
}

impl Ban {
    /// Whether a sentence is a ban: "No new dependencies, please." It has no verb, and nothing else.
    pub(super) fn is(&self, flat: &str) -> bool {
        const BESIDE: [&str; 14] = [
            "please", "thanks", "absolutely", "ever", "important", "note", "bitte", "danke",
            "wichtig", "merci", "s'il te plaît", "attention", "por favor", "ojo",
        ];
        let mut has_ban = false;
        clauses(flat).all(|clause| {
            let bare = BESIDE.iter().find_map(|word| clause.strip_prefix(word));
            let clause = bare.unwrap_or(clause).trim();
            let mut words = clause.split(' ');
            let is_ban = self.starts.iter().any(|start| clause.starts_with(start))
                && words.clone().count() <= 7
                && !words.any(|word| lists(self.not_in, word));
            has_ban |= is_ban;
            let first = clause.split(' ').next().unwrap_or_default();
            is_ban || clause.is_empty() || lists(self.orders, first)
        }) && has_ban
    }
}

/// Whether a sentence says no more than which of two things to take: "Tabs, not spaces."
pub(super) fn is_contrast(flat: &str) -> bool {
    // "The blue one, not the red one" is about something at hand.
    const NOT_IN: &str = "the|this|that|these|those|a|an|my|your|it|he|she|they|we|i|you|yes|no|ok|okay|maybe|well|sure|\
        right|good|thanks|sorry|and|but|one|is|was|der|die|das|ein|eine|ja|nein|gut|ich|es|er|sie|le|la|les|un|une|\
        oui|non|il|elle|je|ça|el|los|las|una|sí|eso|esto|yet|sure|now|today|here|if|when|problem|idea|idée|\
        problème|problema|why|so|really|always|all|me|him|her|them|us|great|nice|cool|perfect|fine|fast|super|\
        schön|bien|souci|pas|more|monday|tuesday|wednesday|thursday|friday|saturday|sunday|works|first|second|\
        sorgen|found";
    let mut clauses = clauses(flat);
    let (Some(first), Some(second), None) = (clauses.next(), clauses.next(), clauses.next()) else {
        return false;
    };
    let Some((no, other)) = second.split_once(' ') else {
        return false;
    };
    let is_named = |part: &str| {
        part.split(' ').count() <= 2 && !part.split(' ').any(|word| lists(NOT_IN, word))
    };
    let article = other.strip_prefix("de ").or(other.strip_prefix("des "));
    let this = first.strip_prefix("des ").unwrap_or(first);
    lists("not|nicht|pas|no", no) && is_named(this) && is_named(article.unwrap_or(other))
}

/// Returns the part of a sentence before a verb such as *says*, after which somebody else's words
/// follow. If users repeat what they said themselves, which the words of `own` tell, all is theirs.
pub(super) fn before_report<'a>(flat: &'a str, reported: &str, own: &str) -> &'a str {
    match places(flat, reported).min() {
        Some(at) if !has(flat, own) => &flat[..at],
        _ => flat,
    }
}

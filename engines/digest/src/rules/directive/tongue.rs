//! What rules look like in a language whose adverbs of rules occur in reports too, and bans.

use crate::rules::words::{SHARED, Table, clauses};

impl Table {
    /// Whether a clause of a sentence is about all of a kind and says what must be, or has an adverb
    /// of rules and is an order. It is an order if the sentence has a modal verb, or if its first word
    /// is such an adverb or an imperative, which `is_imperative` tells of the words of a clause.
    pub(super) fn has_order(&self, flat: &str, is_imperative: impl Fn(&[&str]) -> bool) -> bool {
        // The verb may be in another clause than the adverb, so it is looked for in the whole
        // sentence.
        let has_modal = self.has("modals", flat);
        clauses(flat).any(|clause| {
            let words = self.behind("fillers", clause);
            let first = words.first().copied().unwrap_or_default();
            if has_modal && self.lists("all", first) {
                return true;
            }
            if self.has("report verbs", clause) || !self.has("adverbs", clause) {
                return false;
            }
            let is_order = self.has("adverbs", first) || is_imperative(&words);
            has_modal || is_order && !self.lists("not first", first)
        })
    }

    /// Whether a sentence is a ban: "No new dependencies, please." It has no verb, and nothing else.
    pub(super) fn is_ban(&self, flat: &str) -> bool {
        let mut has_ban = false;
        clauses(flat).all(|clause| {
            let mut beside = SHARED.all("beside a ban").iter();
            let bare = beside.find_map(|word| clause.strip_prefix(word));
            let clause = bare.unwrap_or(clause).trim();
            let mut words = clause.split(' ');
            let begins = |ban: &&str| {
                let rest = clause.strip_prefix(ban);
                rest.is_some_and(|rest| rest.starts_with(' ') || ban.ends_with('\''))
            };
            let is_ban = self.all("bans").iter().any(begins)
                && words.clone().count() <= 7
                && !words.any(|word| self.lists("no ban", word));
            has_ban |= is_ban;
            let first = clause.split(' ').next().unwrap_or_default();
            is_ban || clause.is_empty() || self.lists("ban orders", first)
        }) && has_ban
    }

    /// Returns the part of a sentence before a verb such as *says*, after which somebody else's words
    /// follow. If users repeat what they said themselves, all is theirs.
    pub(super) fn before_report<'a>(&self, flat: &'a str) -> &'a str {
        match self.places("reported", flat).min() {
            Some(at) if !self.has("own", flat) => &flat[..at],
            _ => flat,
        }
    }
}

/// Whether a sentence says no more than which of two things to take: "Tabs, not spaces."
pub(super) fn is_contrast(flat: &str) -> bool {
    let mut clauses = clauses(flat);
    let (Some(first), Some(second), None) = (clauses.next(), clauses.next(), clauses.next()) else {
        return false;
    };
    let Some((no, other)) = second.split_once(' ') else {
        return false;
    };
    let is_named = |part: &str| {
        let mut words = part.split(' ');
        words.clone().count() <= 2 && !words.any(|word| SHARED.lists("no contrast", word))
    };
    let article = other.strip_prefix("de ").or(other.strip_prefix("des "));
    let this = first.strip_prefix("des ").unwrap_or(first);
    matches!(no, "not" | "nicht" | "pas" | "no")
        && is_named(this)
        && is_named(article.unwrap_or(other))
}

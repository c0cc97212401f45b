//! Rules in German.

use crate::rules::words::{Table, clauses};

pub(super) fn states_rule(german: &Table, flat: &str) -> bool {
    let flat = german.before_report(flat);
    german.is_ban(flat)
        || german.matches("patterns", flat)
        || german.has_order(flat, |words| is_imperative(german, words))
        || clauses(flat)
            .any(|clause| is_infinitive_order(german, clause) || is_custom(german, clause))
}

/// Whether a clause says what is not done here: "Kunden duzen wir nicht."
fn is_custom(german: &Table, clause: &str) -> bool {
    let words: Vec<&str> = clause.split(' ').collect();
    words.windows(3).any(|three| match three {
        [
            verb,
            "wir",
            "nicht" | "nie" | "niemals" | "kein" | "keine" | "nur",
        ] => verb.ends_with("en") && !german.lists("no custom", verb),
        _ => false,
    })
}

/// Whether a clause begins with an imperative.
fn is_imperative(german: &Table, words: &[&str]) -> bool {
    let first = words.first().copied().unwrap_or_default();
    let second = words.get(1).copied().unwrap_or_default();
    // Imperatives end in -e, or in -en if the user is polite. In speech the -e is dropped. Then the
    // common ones are listed, and others are known by their object. A verb in -t tells of somebody.
    german.lists("imperatives", first)
        || first.len() > 3 && first.ends_with('e')
        || first.len() > 4 && first.ends_with("en")
        || first.len() > 3
            && !first.ends_with(['t', 's', 'r', 'y'])
            && german.lists("objects", second)
            && !german.lists("no imperatives", first)
}

/// Whether a clause is an order in the infinitive: "In scripts/ nur Tabs verwenden."
fn is_infinitive_order(german: &Table, clause: &str) -> bool {
    let last = clause.rsplit(' ').next().unwrap_or_default();
    let is_relative = ["der ", "die ", "das "];
    !is_relative.iter().any(|word| clause.starts_with(word))
        && (german.lists("infinitives", last) || last.ends_with("ieren"))
        && german.has("of infinitives", clause)
        && !german.has("finite", clause)
}

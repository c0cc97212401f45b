//! Rules in French.

use crate::rules::words::{Table, clauses};

pub(super) fn states_rule(french: &Table, flat: &str) -> bool {
    let flat = french.before_report(flat);
    let is_custom = |verb: &str| !french.lists("no custom", verb);
    // An imperative has no subject, so if it is negative, its clause begins with *ne*.
    let is_ban = clauses(flat).any(|clause| match french.behind("fillers", clause)[..] {
        ["ne", "sais" | "marche" | "t'inquiète" | "t'inquiètes", ..] => false,
        ["ne", "vous" | "te", "inquiétez" | "inquiète", ..] => false,
        ["ne", ..] => true,
        ["on", "ne", verb, "pas" | "plus" | "jamais", ..] => is_custom(verb),
        ["on", verb, "uniquement" | "seulement", ..] => is_custom(verb),
        ["n'y", "a" | "est", ..] => false,
        ["on", verb, "pas" | "plus" | "jamais", ..] => {
            verb.starts_with("n'") && !matches!(verb, "n'a" | "n'est" | "n'arrive" | "n'aura")
        }
        [first, ..] => {
            first.starts_with("n'") && !matches!(first, "n'importe" | "n'est" | "n'a" | "n'ai")
        }
        [] => false,
    });
    // If the first word is joined to an article or a pronoun, it is a subject and the clause a
    // report.
    let is_verb = |words: &[&str]| {
        let joined = ["l'", "j'", "c'", "d'"];
        let first = words.first();
        first.is_some_and(|first| !joined.iter().any(|word| first.starts_with(word)))
    };
    let bare = without_pronouns(flat);
    is_ban
        || french.is_ban(flat)
        || french.matches("patterns", flat)
        || bare.is_some_and(|bare| french.matches("patterns", &bare))
        || french.has_order(flat, is_verb)
}

/// Returns the sentence without the pronouns that follow imperatives, if it has any: *réponds* of
/// *réponds-moi*.
fn without_pronouns(flat: &str) -> Option<String> {
    const PRONOUNS: [&str; 9] = [
        "-moi ", "-nous ", "-le ", "-la ", "-les ", "-lui ", "-leur ", "-en ", "-y ",
    ];
    let has_any = PRONOUNS.iter().any(|pronoun| flat.contains(pronoun));
    let without = |text: String, pronoun: &&str| text.replace(pronoun, " ");
    has_any.then(|| PRONOUNS.iter().fold(flat.to_owned(), without))
}

//! Rules in Spanish.

use crate::rules::words::{Table, clauses};

pub(super) fn states_rule(spanish: &Table, flat: &str) -> bool {
    let flat = spanish.before_report(flat);
    // A negative imperative is *no* and a subjunctive, which ends in -es or -as if the user says
    // *tú*. If a common verb ends so in the indicative, too, it is listed: "no sabes" is a report.
    let is_subjunctive = |verb: &str| !spanish.lists("no subjunctive", verb);
    let is_ban = clauses(flat).any(|clause| {
        let verb = match spanish.behind("fillers", clause)[..] {
            ["no", "me" | "lo" | "la" | "los" | "te" | "se", verb, ..] if is_subjunctive(verb) => {
                verb
            }
            ["no", verb, ..] if is_subjunctive(verb) => verb,
            _ => return false,
        };
        verb.len() > 3 && (verb.ends_with("es") || verb.ends_with("as"))
    });
    // "Siempre usamos tabuladores" is a convention, and "siempre tuvimos problemas" is a report.
    let is_report = || {
        let words: Vec<&str> = flat.split_whitespace().collect();
        words.windows(2).any(|two| match two {
            ["no", "siempre"] => true,
            ["siempre" | "nunca" | "jamás", verb] => {
                let is_past = [
                    "mos", "aba", "aban", "ía", "ían", "ó", "é", "í", "aron", "ieron",
                ];
                is_past.iter().any(|end| verb.ends_with(end)) && !spanish.lists("conventions", verb)
                    || matches!(*verb, "pude" | "hice" | "tuve" | "supe" | "vi")
            }
            _ => false,
        })
    };
    let bare = without_pronouns(flat);
    is_ban
        || spanish.is_ban(flat)
        || spanish.matches("patterns", flat)
        || bare.is_some_and(|bare| spanish.matches("patterns", &bare))
        || spanish.has_order(flat, |words| !words.is_empty()) && !is_report()
}

/// Returns the sentence without the pronouns that are joined to imperatives, if it has any: *responde*
/// of *respóndeme*. With such a pronoun, a vowel of the verb has an accent.
fn without_pronouns(flat: &str) -> Option<String> {
    const PRONOUNS: [&str; 8] = ["me", "nos", "lo", "la", "los", "las", "le", "les"];
    const PLAIN: [(char, &str); 5] = [('á', "a"), ('é', "e"), ('í', "i"), ('ó', "o"), ('ú', "u")];
    let verb_of = |word: &str| {
        let verb = PRONOUNS.iter().find_map(|end| word.strip_suffix(end))?;
        let (accent, plain) = PLAIN.iter().find(|(accent, _)| verb.contains(*accent))?;
        (verb.chars().count() > 3).then(|| verb.replace(*accent, plain))
    };
    let words = || flat.split(' ');
    let bare = || words().map(|word| verb_of(word).unwrap_or_else(|| word.to_owned()));
    let has_any = words().any(|word| verb_of(word).is_some());
    has_any.then(|| bare().collect::<Vec<_>>().join(" "))
}

//! Shapes of rules that English, German, French and Spanish share: a condition, a limit, a wish, and a
//! statement with a label.

use crate::rules::words::{SHARED, clauses};

/// Whether a sentence has one of the shapes.
pub(super) fn states_rule(flat: &str) -> bool {
    let mut shapes = SHARED.matching("shapes", flat).into_iter().flatten();
    shapes.any(|shape| shape > 0 || !SHARED.has("news", flat)) || is_condition(flat)
}

/// Whether a sentence says what to do each time that a thing of a kind is changed: "If you rename a
/// column, update the index."
fn is_condition(flat: &str) -> bool {
    let clauses: Vec<&str> = clauses(flat).collect();
    clauses.windows(2).any(|two| {
        let [when, order] = [two[0], two[1]].map(|part| SHARED.behind("condition fillers", part));
        let mut words = when.into_iter();
        let first = words.next().unwrap_or_default();
        let next = words.clone().next().unwrap_or_default();
        let verb = match SHARED.lists("when", first) {
            true => words.find(|word| !SHARED.lists("before verbs", word)),
            // The verb is the last word.
            _ if SHARED.lists("when german", first) && next == "du" => words.next_back(),
            _ => None,
        };
        let is_change = verb.is_some_and(|verb| {
            // "Si cambio un archivo" is about the speaker.
            let is_yours = ["ing", "s", "r"].iter().any(|end| verb.ends_with(end));
            (is_yours || SHARED.lists("before verbs", next))
                && SHARED.begins("verbs of change", verb)
        });
        let is_each = SHARED.lists("each", next) && SHARED.lists("before each", first);
        let is_a_kind = || SHARED.has("a kind", two[0]) || !SHARED.has("one", two[0]);
        (is_each || is_change && is_a_kind())
            && order
                .first()
                .is_some_and(|first| !SHARED.lists("condition subjects", first))
    })
}

//! Rules in Chinese.

use crate::rules::words::Table;

pub(super) fn states_rule(chinese: &Table, text: &str) -> bool {
    // Many write commas of half the width. What follows a question is judged by itself.
    let (_, text) = text.rsplit_once(['?', '？']).unwrap_or(("", text));
    let text = &text.replace(',', "，").replace(':', "：");
    let is_reported = (chinese.is_in("reports", text) || chinese.matches("reported", text))
        && !text.contains("我说")
        && !text.contains("规则");
    let idiomatic: String;
    let mut text = text;
    if text.contains('我') || chinese.is_in("idioms", text) {
        let own = text.split_inclusive(['，', '；', '。', '！', '：']);
        let own: String = own
            .filter(|clause| !is_of_speaker(chinese, clause))
            .collect();
        let idioms = chinese.all("idioms").iter();
        idiomatic = idioms.fold(own, |text, idiom| text.replace(idiom, "x"));
        text = &idiomatic;
    }
    let is_weak = || chinese.is_in("weak", text) && !chinese.is_in("events", text);
    !is_reported && (chinese.matches("patterns", text) || is_weak())
}

/// Whether a clause tells of its speaker: "我必须离开了". What the speaker wants is a rule.
fn is_of_speaker(chinese: &Table, clause: &str) -> bool {
    let mut clause = clause.trim_start();
    let leads = chinese.all("leads");
    while let Some(rest) = leads.iter().find_map(|lead| clause.strip_prefix(lead)) {
        clause = rest;
    }
    clause.starts_with('我') && !chinese.begins("wishes", clause)
}

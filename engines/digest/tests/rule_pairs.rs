//! What a later rule or sentence does to an earlier rule, in six languages.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_digest::{Budget, Rules};
use contexture_engine_api::{MessageId, MessageView};

const PAIRS: &str = include_str!("rule_pairs.tsv");

/// The lines of the section after these messages.
fn listed(texts: &[&str]) -> Vec<String> {
    let messages = texts.iter().zip(1..);
    let messages =
        messages.map(|(text, id)| MessageView::new(MessageId(id), "user").with_text(text));
    let rules = Rules::of(&messages.collect::<Vec<_>>(), None);
    let section = rules.section(Budget::chars(usize::MAX)).text;
    section.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_rule_is_replaced_ended_or_repeated_only_by_what_does_so() {
    let mut wrong = Vec::new();
    for line in PAIRS.lines().filter(|line| line.contains('\t')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [kind, first, second] = fields[..] else {
            panic!("{line}");
        };
        let lines = listed(&[first, second]);
        let marked = format!("- {second} [replaces: ");
        let is_right = match kind {
            "replaced" | "ended" => {
                lines.len() == 2
                    && lines[0] == format!("- {first}")
                    && lines[1].starts_with(&marked)
            }
            "repeated" => lines.len() == 1,
            "compatible" => lines == [listed(&[first]), listed(&[second])].concat(),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{line}\n{lines:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Reads what a model answered, and shortens it to size.
//!
//! [`words_of`] strips what models wrap around their answers, and [`summary_in`] rejects an answer
//! that is empty or a refusal. `notes_in` does the same for notes under headings. [`unmarked`]
//! removes the host's marks from a summary, and [`trim`] shortens notes to a budget by dropping
//! lines from the longest section. None of these functions calls a model. The questions are in
//! `brief` and `summariser`.

use contexture_engine_api::{FailureKind, ModelFailure, SUMMARY_END_MARK, SUMMARY_MARK, Services};

/// An answer of this many bytes or more is not a refusal, even if it begins like one.
const SHORT_ANSWER: usize = 400;

/// Returns an answer without its thinking and without a code fence around all of it. The result is
/// trimmed and may be empty.
pub fn words_of(answer: &str) -> &str {
    let mut text = answer.trim();
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        // If the thinking is not closed, the answer was cut off inside it and has no words at all.
        if let Some(thinking) = text.strip_prefix(open) {
            text = thinking
                .split_once(close)
                .map_or("", |(_, rest)| rest)
                .trim();
        }
    }
    if let Some(fenced) = text
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"))
    {
        text = fenced.split_once('\n').map_or("", |(_, rest)| rest).trim();
    }
    text
}

/// Whether a text begins with a typical phrase of refusal, in English or Chinese. Case and the kind
/// of apostrophe do not matter.
fn is_refusal(text: &str) -> bool {
    let text = text.to_lowercase().replace('’', "'");
    [
        "i'm sorry", "i am sorry", "sorry,", "i can't", "i cannot", "i'm unable", "i am unable",
        "i won't", "抱歉", "对不起", "我无法",
    ]
    .iter()
    .any(|opening| text.starts_with(opening))
}

/// Returns a model's words if they are a summary.
///
/// # Errors
/// [`FailureKind::Empty`] if there are no words, and [`FailureKind::Refused`] if they are a short
/// refusal.
pub fn summary_in(words: String) -> Result<String, ModelFailure> {
    let failed = |kind, why: String| Err(ModelFailure::new(kind, why));
    if words.is_empty() {
        let why = "the summary model answered without a summary";
        return failed(FailureKind::Empty, why.to_owned());
    }
    // A long text that begins with an apology can still be a summary.
    if words.len() < SHORT_ANSWER && is_refusal(&words) {
        let why = format!("the summary model declined: {words}");
        return failed(FailureKind::Refused, why);
    }
    Ok(words)
}

/// Returns notes under headings. If the words have no heading, they are put under one. The words
/// must not contain the marks of a summary.
///
/// # Errors
/// The same as for [`summary_in`], but only for words without a heading.
pub(crate) fn notes_in(words: String) -> Result<String, ModelFailure> {
    if words.lines().any(|line| line.starts_with("## ")) {
        return Ok(words);
    }
    Ok(format!("## Critical Context\n{}", summary_in(words)?))
}

/// Returns the text of a summary without the host's marks. They are removed wherever they stand, so
/// that no summary is ever wrapped in another.
pub fn unmarked(summary: &str) -> String {
    let text = summary.replace(SUMMARY_END_MARK, "");
    text.replace(SUMMARY_MARK, "").trim().to_owned()
}

/// Shortens notes to a budget in tokens. The longest section loses its last lines first, so that
/// each section keeps its beginning and none disappears because it comes last.
pub fn trim(notes: String, budget: u64, services: &Services) -> String {
    let mut notes = notes;
    // Bytes and tokens are not proportional, so a few attempts are needed to get close.
    for _ in 0..4 {
        let tokens = services.count_tokens(&notes);
        if tokens <= budget {
            break;
        }
        let goal = (notes.len() as u64).saturating_mul(budget) / tokens.max(1);
        notes = trim_to_bytes(&notes, goal as usize);
    }
    notes
}

/// Removes lines from the longest sections until the notes have at most `goal` bytes. A single line
/// that is much longer is cut.
fn trim_to_bytes(notes: &str, goal: usize) -> String {
    let mut sections: Vec<Vec<&str>> = Vec::new();
    for line in notes.lines() {
        match sections.last_mut() {
            Some(section) if !line.starts_with('#') => section.push(line),
            _ => sections.push(vec![line]),
        }
    }
    let size = |lines: &[&str]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
    let mut sizes: Vec<usize> = sections.iter().map(|lines| size(lines)).collect();
    let mut total: usize = sizes.iter().sum();
    while total > goal {
        let longest = (0..sections.len())
            .filter(|at| sections[*at].len() > 1)
            .max_by_key(|at| sizes[*at]);
        let Some(at) = longest else { break };
        if let Some(line) = sections[at].pop() {
            sizes[at] -= line.len() + 1;
            total -= line.len() + 1;
        }
    }
    // A heading without lines says nothing, except that Progress has subheadings.
    if sections.len() > 1 {
        sections.retain(|lines| lines.len() > 1 || lines[0].starts_with("## Progress"));
    }
    let mut text = sections.concat().join("\n");
    if text.is_empty() || text.len() > goal.max(1) * 2 {
        // One endless line is left, so cutting it is the only way.
        let source = if text.is_empty() { notes } else { &text };
        text = source[..source.floor_char_boundary(goal)].to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trimming_takes_from_the_longest_section_and_keeps_the_last() {
        let long: String = (0..200)
            .map(|n| format!("- step {n} of a long list\n"))
            .collect();
        let notes = format!(
            "## Goal\nShip it\n\n## Progress\n### Done\n{long}\n## Critical Context\nport 8080"
        );
        let services = Services::none();
        let short = trim(notes.clone(), 300, &services);
        assert!(services.count_tokens(&short) <= 300);
        assert!(
            short.contains("Ship it") && short.contains("port 8080") && short.contains("- step 0 ")
        );
        assert!(!short.contains("step 199"));
        assert_eq!(trim(notes.clone(), 10_000, &services), notes);
    }

    proptest! {
        #[test]
        fn trimmed_notes_fit_and_never_panic(notes in "(#{0,3} ?\\PC{0,80}\n){0,30}", budget in 1u64..200) {
            let services = Services::none();
            let short = trim(notes, budget, &services);
            prop_assert!(services.count_tokens(&short) <= budget + 20);
        }
    }
}

//! Reads what a model answered, and shortens it to size.
//!
//! `text_in` reads every answer, for all engines: it strips what models wrap around their answers,
//! cleans the text, and rejects one that is empty or a refusal. `notes_in` puts notes under a heading
//! if they have none. [`trim`] shortens notes to a budget by dropping lines from the longest section.
//! None of these functions calls a model. The questions are in `brief` and `summariser`.

use std::collections::HashSet;

use contexture_digest::unmarked;
use contexture_engine_api::{FailureKind, ModelFailure, Services, is_control};
use contexture_secrets::mask_secrets;

/// An answer of this many bytes or more is not a refusal, even if it begins like one.
const SHORT_ANSWER: usize = 400;
/// The most lines of a passage that is recognised if a model repeats it over and over.
const LOOP_LINES: usize = 16;

/// Reads the text of an answer to these instructions and prompts, of which one was sent. The text has
/// no secrets, no control characters and no lines of the instructions, and a passage that the model
/// repeated stands in it once. If it has headings that the model was given, it begins with a heading.
///
/// # Errors
/// [`FailureKind::Empty`] if nothing is left, [`FailureKind::Refused`] if the text is a short
/// refusal, and [`FailureKind::Other`] if the model repeated the question.
pub(crate) fn text_in(
    answer: &str,
    system: &str,
    prompts: &[String],
) -> Result<String, ModelFailure> {
    let text: String = (words_of(answer).chars())
        .filter(|c| !is_control(*c))
        .collect();
    let text = unmarked(&mask_secrets(&text));
    let asked = prompts.iter().map(String::as_str).chain([system]);
    let mut openings = asked.filter_map(|asked| asked.lines().find(|line| !line.trim().is_empty()));
    if openings.any(|opening| text.lines().any(|line| line == opening)) {
        let why = "the summary model repeated the question instead of answering it";
        return Err(ModelFailure::new(FailureKind::Other, why));
    }
    let given: HashSet<&str> = system.lines().map(str::trim).collect();
    let is_given = |line: &&str| !line.trim().is_empty() && given.contains(line.trim());
    let is_heading = |line: &&str| line.starts_with('#');
    // The headings that the model was given belong into its text, the other lines do not.
    let lines = (text.lines()).filter(|line| is_heading(line) || !is_given(line));
    // The empty line ends the last passage as all others.
    let lines = without_loops(lines.chain([""]));
    // Text may stand before headings of the model's own.
    let is_laid_out = lines.iter().any(|line| is_heading(line) && is_given(line));
    let start = lines.iter().position(is_heading);
    let lines = &lines[start.filter(|_| is_laid_out).unwrap_or(0)..];
    let is_said = |line: &&str| !line.trim().is_empty() && !is_given(line);
    summary_in(match lines.iter().any(is_said) {
        true => lines.join("\n").trim().to_owned(),
        false => String::new(),
    })
}

/// Returns the lines without passages that follow themselves, which a model writes that is caught in a
/// loop. Lines without letters and digits, such as brackets, may close several blocks of code.
fn without_loops<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut kept: Vec<&str> = Vec::new();
    for line in lines {
        kept.push(line);
        let repeats = |length: &usize| {
            let (before, last) = kept.split_at(kept.len() - length);
            let is_words = |line: &&str| line.contains(char::is_alphanumeric);
            before.ends_with(last) && last.iter().any(is_words)
        };
        if let Some(length) = (1..=LOOP_LINES.min(kept.len() / 2)).find(repeats) {
            kept.truncate(kept.len() - length);
        }
    }
    kept
}

/// Returns an answer without its thinking and without a code fence around all of it. The result is
/// trimmed and may be empty.
fn words_of(answer: &str) -> &str {
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

/// Returns a model's words if they are a summary. Every answer is read by this before an engine gets
/// it. An engine that removes more of it, such as a mark of its own, has to check again.
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
mod tests;

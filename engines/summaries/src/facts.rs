//! Fits a summary into its budget: a model's text with the facts that it left out, or the digest
//! alone.
//!
//! A model drops exact values such as paths and hashes. The digest finds them without a model, so
//! `with_facts` adds the missing ones to the model's notes as far as there is room. If no model
//! wrote the summary, [`digested`] renders the digest itself, and `digested_with_focus` adds the
//! lines on a topic that the user asked for.

use std::collections::HashSet;

use contexture_digest::{Budget, Digest, RuleSection, Rules, TextsBeside, WorkRecord, merge};
use contexture_engine_api::{MessageView, Services};
use contexture_secrets::mask_secrets;

use crate::answer::trim;
use crate::excerpt::excerpt;

/// Characters per token of a text as dense in paths and identifiers as a digest. With its frame and
/// the system note, a summary for a window of 100,000 tokens then has about 12,000 characters.
pub const CHARS_PER_TOKEN: f64 = 2.33;
/// Facts are added only if at least this many tokens are left for them.
const MIN_FACTS_TOKENS: u64 = 48;
const FOCUS_LINE_CHARS: usize = 240;

/// Returns the rules that users stated in these messages, and those of the summaries among them, as a
/// section of at most its [share](Budget::for_rules) of `tokens`.
pub fn rules_in(messages: &[MessageView<'_>], tokens: u64, services: &Services) -> RuleSection {
    rule_section(&Rules::of(messages, None), tokens, services)
}

/// Writes these rules in at most their [share](Budget::for_rules) of `tokens`, which is the budget of the
/// whole summary.
pub fn rule_section(rules: &Rules, tokens: u64, services: &Services) -> RuleSection {
    let count = |text: &str| services.count_tokens(text);
    let whole = Budget::chars(usize::MAX).and_tokens(tokens, &count);
    rules.section(whole.for_rules())
}

/// What a person is told about rules that a section has no room for, or `None` if it has all.
pub fn rules_left_out(section: &RuleSection) -> Option<String> {
    match section.left_out {
        0 => None,
        1 => Some("1 older rule of the user did not fit its share of the summary".to_owned()),
        many => Some(format!(
            "{many} older rules of the user did not fit their share of the summary"
        )),
    }
}

/// Marks what the messages contradict in a model's text. Returns the text and, if there are marks,
/// what a person is told about them.
///
/// # Errors
/// A sentence for a person, if there is such a statement and the text may not be used then.
pub fn checked(
    record: &WorkRecord,
    text: &str,
    services: &Services,
) -> Result<(String, Option<String>), String> {
    let checked = record.check(text);
    let told = match checked.contradictions {
        0 => return Ok((checked.text, None)),
        1 => "the messages contradict 1 statement of the model's summary".to_owned(),
        many => format!("the messages contradict {many} statements of the model's summary"),
    };
    let model = services.model();
    match model.is_some_and(|model| model.extract_if_contradicted) {
        true => Err(told),
        false => Ok((checked.text, Some(format!("{told}, which are marked")))),
    }
}

/// Returns the tokens that a summary of `tokens` tokens has beside its section of rules.
pub fn tokens_beside(section: &RuleSection, tokens: u64, services: &Services) -> u64 {
    match section.text.is_empty() {
        true => tokens,
        false => tokens.saturating_sub(services.count_tokens(&section.text) + 1),
    }
}

/// Renders the digest, without the rules of users, beside the text with these. The facts in that
/// text are not repeated. `tokens` is the budget of the digest alone. This is the summary if no model
/// can be asked.
pub fn digested(digest: &Digest<'_>, beside: &str, tokens: u64, services: &Services) -> String {
    digested_beside(digest, &TextsBeside::of(beside), tokens, services)
}

/// Like [`digested`], beside several texts, which also stand beside other digests.
pub fn digested_beside(
    digest: &Digest<'_>,
    beside: &TextsBeside,
    tokens: u64,
    services: &Services,
) -> String {
    let count = |text: &str| services.count_tokens(text);
    digest.render_beside(beside, budget(tokens, &count))
}

/// Renders the digest together with lines on a topic. A line is on the topic if it contains all of
/// its words, ignoring case. The lines take at most a quarter of the tokens, and the latest come
/// first. Without such lines the digest is rendered alone.
pub(crate) fn digested_with_focus(
    digest: &Digest<'_>,
    messages: &[MessageView<'_>],
    topic: &str,
    rules: &RuleSection,
    tokens: u64,
    services: &Services,
) -> String {
    let words: Vec<String> = topic.split_whitespace().map(str::to_lowercase).collect();
    let mut section = format!("## Critical Context\nOn {topic:?}:");
    let mut used = services.count_tokens(&section);
    let mut seen = HashSet::new();
    let lines = messages.iter().rev().flat_map(|message| {
        let masked = mask_secrets(message.text());
        let lines = masked
            .lines()
            .map(|line| (message.role(), line.trim().to_owned()));
        lines.collect::<Vec<_>>()
    });
    for (role, line) in lines {
        let lower = line.to_lowercase();
        if words.is_empty()
            || !words.iter().all(|word| lower.contains(word))
            || !seen.insert(line.clone())
        {
            continue;
        }
        let line = excerpt(&line, FOCUS_LINE_CHARS).replace('\n', " ");
        let line = format!("\n- {role}: {line:?}");
        used += services.count_tokens(&line);
        if used > tokens / 4 {
            break;
        }
        section.push_str(&line);
    }
    // No line is on the topic, so the section would be an empty heading.
    if !section.contains("\n- ") {
        return digested(digest, &rules.text, tokens, services);
    }
    let rest = digested(
        digest,
        &rules.text,
        tokens - services.count_tokens(&section).min(tokens),
        services,
    );
    merge(&rest, &section)
}

/// Adds to a model's notes the facts that they lack, as far as there is room. The facts go under
/// the headings of the notes, and no heading is repeated.
pub(crate) fn with_facts(
    notes: String,
    digest: &Digest<'_>,
    rules: &RuleSection,
    tokens: u64,
    services: &Services,
) -> String {
    // Merging with nothing puts the notes into the same form as the merged result below.
    let notes = trim(merge(&notes, ""), tokens, services);
    let room = tokens.saturating_sub(services.count_tokens(&notes));
    if room < MIN_FACTS_TOKENS {
        return notes;
    }
    let count = |text: &str| services.count_tokens(text);
    // What the rules mention is not missing.
    let beside = format!("{}\n{notes}", rules.text);
    let facts = digest.missing_from(&beside, budget(room, &count));
    merge(&notes, &facts)
}

fn budget<'c>(tokens: u64, count: &'c dyn Fn(&str) -> u64) -> Budget<'c> {
    Budget::chars((tokens as f64 * CHARS_PER_TOKEN) as usize).and_tokens(tokens, count)
}

//! A summary within its budget: what a model wrote with the facts that it left out, or the digest alone.

use std::collections::HashSet;

use contexture_digest::{Budget, Digest, merge};
use contexture_engine_api::{MessageView, Services};
use contexture_secrets::mask_secrets;

use crate::answer::{trim, unmarked};
use crate::excerpt::excerpt;

/// Text as dense in paths and identifiers as a digest has about this many characters a token. With its
/// frame and the system note, a summary for a window of 100,000 tokens then takes 12,000 characters.
const CHARS_PER_TOKEN: f64 = 2.33;
/// Facts are not added for less room than this, in tokens.
const MIN_FACTS_TOKENS: u64 = 48;
/// Of a line that concerns a topic, so many characters.
const FOCUS_LINE_CHARS: usize = 240;

/// The digest, rendered to at most this many tokens.
pub fn digested(digest: &Digest<'_>, tokens: u64, services: &Services) -> String {
    let count = |text: &str| services.count_tokens(text);
    unmarked(&digest.render(budget(tokens, &count)))
}

/// The digest, and the lines that concern a topic, latest first, in a quarter of the room at most. A
/// model would judge what concerns it; here a line does that names all of its words.
pub(crate) fn digested_with_focus(
    digest: &Digest<'_>,
    messages: &[MessageView<'_>],
    topic: &str,
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
    if !section.contains("\n- ") {
        return digested(digest, tokens, services);
    }
    let rest = digested(
        digest,
        tokens - services.count_tokens(&section).min(tokens),
        services,
    );
    merge(&rest, &section)
}

/// A model's notes together with the facts that they lack, as far as there is room. The facts go under the headings of
/// the notes, and no heading is repeated.
pub(crate) fn with_facts(
    notes: String,
    digest: &Digest<'_>,
    tokens: u64,
    services: &Services,
) -> String {
    let notes = trim(merge(&notes, ""), tokens, services);
    let room = tokens.saturating_sub(services.count_tokens(&notes));
    if room < MIN_FACTS_TOKENS {
        return notes;
    }
    let count = |text: &str| services.count_tokens(text);
    let facts = unmarked(&digest.missing_from(&notes, budget(room, &count)));
    merge(&notes, &facts)
}

fn budget<'c>(tokens: u64, count: &'c dyn Fn(&str) -> u64) -> Budget<'c> {
    Budget::chars((tokens as f64 * CHARS_PER_TOKEN) as usize).and_tokens(tokens, count)
}

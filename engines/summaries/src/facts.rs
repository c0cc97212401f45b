//! A summary within its budget: what a model wrote with the facts that it left out, or the digest alone.

use contexture_digest::{Budget, Digest, merge};
use contexture_engine_api::Services;

use crate::answer::{trim, unmarked};

/// Text as dense in paths and identifiers as a digest has about this many characters a token. With its
/// frame and the system note, a summary for a window of 100,000 tokens then takes 12,000 characters.
const CHARS_PER_TOKEN: f64 = 2.33;
/// Facts are not added for less room than this, in tokens.
const MIN_FACTS_TOKENS: u64 = 48;

/// The digest, rendered to at most this many tokens.
pub fn digested(digest: &Digest<'_>, tokens: u64, services: &Services) -> String {
    let count = |text: &str| services.count_tokens(text);
    unmarked(&digest.render(budget(tokens, &count)))
}

/// A model's notes together with the facts that they lack, as far as there is room. The facts go under the headings of
/// the notes, and no heading is repeated.
pub fn with_facts(notes: String, digest: &Digest<'_>, tokens: u64, services: &Services) -> String {
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

//! The text of a summary, within its budget: what a model wrote with the facts that it left out, or
//! the digest alone.

use contexture_digest::{Budget, Digest};
use contexture_engine_api::Services;

use crate::prompt::{body_of, trim};

/// Text as dense in paths and identifiers as a digest has about this many characters a token.
const CHARS_PER_TOKEN: f64 = 2.4;
/// Facts are not added for less room than this, in tokens.
const MIN_FACTS_TOKENS: u64 = 48;

/// The digest, rendered to at most this many tokens.
pub(crate) fn digested(digest: &Digest<'_>, tokens: u64, services: &Services) -> String {
    let text = fitted(tokens, services, |chars| {
        digest.render(Budget { max_chars: chars })
    });
    trim(body_of(&text), tokens, services)
}

/// A model's notes, and in the room that they leave, the facts that they lack.
pub(crate) fn with_facts(
    notes: String,
    digest: &Digest<'_>,
    tokens: u64,
    services: &Services,
) -> String {
    let notes = trim(notes, tokens, services);
    let room = tokens.saturating_sub(services.count_tokens(&notes));
    if room < MIN_FACTS_TOKENS {
        return notes;
    }
    let facts = fitted(room, services, |chars| {
        digest.missing_from(&notes, Budget { max_chars: chars })
    });
    match facts.trim() {
        "" => notes,
        facts => trim(format!("{notes}\n\n{}", body_of(facts)), tokens, services),
    }
}

/// Renders with a budget in characters until the text has no more than so many tokens.
fn fitted(tokens: u64, services: &Services, render: impl Fn(usize) -> String) -> String {
    let mut chars = tokens as f64 * CHARS_PER_TOKEN;
    let mut text = render(chars as usize);
    for _ in 0..3 {
        let used = services.count_tokens(&text);
        if used <= tokens {
            break;
        }
        chars *= tokens as f64 / used as f64 * 0.95;
        text = render(chars as usize);
    }
    text
}

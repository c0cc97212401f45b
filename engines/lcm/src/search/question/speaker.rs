//! Who takes part in a conversation, as far as a question names them. What a question asks of somebody
//! is mostly told by that person; and a participant's name tells nothing of what a message is about.

use super::retrieve::Holders;
use super::{Form, Question};
use crate::error::StoreError;
use crate::search::run::Search;
use crate::store::{Key, SessionId, row_in};

/// Somebody whom the question names and who takes part in a session.
pub(super) struct Participant {
    session: SessionId,
    /// Folded.
    name: String,
    known_by: KnownBy,
}

enum KnownBy {
    /// The name in front of their messages.
    Prefix,
    /// The role of their messages.
    Role(String),
}

impl Participant {
    /// Whether a message of this speaker and role is theirs.
    pub(super) fn said(&self, session: SessionId, speaker: Option<&str>, role: &str) -> bool {
        session == self.session
            && match &self.known_by {
                KnownBy::Prefix => speaker.is_some_and(|speaker| is_part_of(&self.name, speaker)),
                KnownBy::Role(theirs) => theirs == role,
            }
    }
}

/// Of the messages that hold a name, so many are looked at.
const SAMPLE: usize = 40;

/// Somebody who is named less often is no participant.
const MIN_NAMED: usize = 4;

impl Question {
    /// The participants that the question names. Their names are words to be found no more.
    pub(super) fn participants(
        &mut self,
        search: &mut Search<'_>,
        sessions: &[Holders],
    ) -> Result<Vec<Participant>, StoreError> {
        let mut participants = Vec::new();
        for (name, group) in self.names.clone() {
            for holders in sessions {
                let session = holders.session;
                let named = self.named(group, holders);
                let Some(known_by) = known_by(search, session, &named, &name)? else {
                    continue;
                };
                participants.push(Participant {
                    session,
                    name: name.clone(),
                    known_by,
                });
                for term in self.terms.iter_mut().filter(|term| term.group == group) {
                    term.weight = 0.0;
                }
            }
        }
        Ok(participants)
    }

    /// The messages that hold a name or a short form of it, in order.
    fn named(&self, group: usize, holders: &Holders) -> Vec<u32> {
        let mut named = Vec::new();
        for (term, list) in self.terms.iter().zip(&holders.lists) {
            if term.group == group && matches!(term.form, Form::Stem { .. }) {
                named.extend(list);
            }
        }
        named.sort_unstable();
        named.dedup();
        named
    }
}

/// How the messages of a session that hold a name tell that somebody of this name takes part, if they do.
fn known_by(
    search: &mut Search<'_>,
    session: SessionId,
    named: &[u32],
    name: &str,
) -> Result<Option<KnownBy>, StoreError> {
    if named.len() < MIN_NAMED {
        return Ok(None);
    }
    let (mut looked_at, mut in_front) = (0, 0);
    let mut by_role: Vec<Calls> = Vec::new();
    for ordinal in named.iter().step_by(named.len().div_ceil(SAMPLE)) {
        let key = Key::new(session, *ordinal);
        let Some((speaks, called)) = search.with_body(key, |body| {
            let speaker = speaker_of(body).map(str::to_lowercase);
            let speaks = speaker.is_some_and(|speaker| is_part_of(name, &speaker));
            (speaks, calls(body, name))
        })?
        else {
            continue;
        };
        looked_at += 1;
        in_front += usize::from(speaks);
        let Some(row) = row_in(search.connection, key)? else {
            continue;
        };
        let called = usize::from(called);
        match by_role.iter_mut().find(|calls| calls.role == row.role) {
            Some(calls) => {
                calls.named += 1;
                calls.called += called;
            }
            None => by_role.push(Calls {
                role: row.role,
                named: 1,
                called,
            }),
        }
    }
    if in_front * 4 >= looked_at {
        return Ok(Some(KnownBy::Prefix).filter(|_| in_front > 0));
    }
    // People call others by their name, not themselves, and talk to them more than of them.
    let caller = by_role.iter().find(|calls| {
        calls.called >= 2 && calls.called * 3 >= calls.named && calls.named * 10 >= looked_at * 7
    });
    Ok(match caller.map(|calls| calls.role.as_str()) {
        Some("user") => Some(KnownBy::Role("assistant".into())),
        Some("assistant") => Some(KnownBy::Role("user".into())),
        _ => None,
    })
}

/// How often the messages of a role have a name in them, and call somebody by it.
struct Calls {
    role: String,
    named: usize,
    called: usize,
}

/// Whether a name is one of the words of a whole one.
fn is_part_of(name: &str, whole: &str) -> bool {
    whole.split(' ').any(|part| part == name)
}

/// Who speaks, where a text says so in front: `Ana: hello`, `[8 May] Ana Lima: hello`.
pub(super) fn speaker_of(text: &str) -> Option<&str> {
    let mut text = text.trim_start();
    if let Some(inside) = text.strip_prefix(['[', '(']) {
        let end = inside.find([']', ')']).filter(|end| *end <= 60)?;
        text = inside[end + 1..].trim_start();
    }
    let end = text.find([':', '：']).filter(|end| *end <= 40)?;
    let name = &text[..end];
    let is_name = name.starts_with(char::is_alphabetic)
        && name.split(' ').count() <= 3
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, ' ' | '.' | '-' | '\'' | '_'));
    is_name.then_some(name)
}

/// Whether a text calls somebody by this (folded) name or a short form of it: "Hey Ana!", "Thanks, Mel".
fn calls(text: &str, name: &str) -> bool {
    let mut before = "";
    text.split_whitespace().any(|token| {
        let is_set_off = before.is_empty()
            || before.ends_with([',', '.', '!', '?', ':'])
            || GREETINGS.contains(&before.to_lowercase().as_str());
        before = token;
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let word = word.to_lowercase();
        is_set_off
            && token.ends_with([',', '.', '!', '?'])
            && (word == name || short_forms(name).any(|form| word == form))
    })
}

/// What a name may be shortened to: its first three or four letters.
pub(super) fn short_forms(name: &str) -> impl Iterator<Item = &str> {
    name.char_indices()
        .skip(3)
        .take(2)
        .map(|(end, _)| &name[..end])
}

const GREETINGS: [&str; 14] = [
    "hey", "hi", "hello", "thanks", "wow", "oh", "yes", "yeah", "morning", "congrats", "so",
    "dear", "well", "you",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakers_stand_in_front() {
        for (text, speaker) in [
            ("Ana: hello", Some("Ana")),
            ("[1:56 pm on 8 May, 2023] Ana Lima: hello", Some("Ana Lima")),
            ("小明：你好", Some("小明")),
            ("hello there", None),
            ("I went to the shop, then: nothing", None),
            ("12:30 is too late", None),
            ("", None),
        ] {
            assert_eq!(speaker_of(text), speaker, "{text}");
        }
    }

    #[test]
    fn people_are_called_by_name() {
        for (text, expected) in [
            ("Hey Melanie! How are you?", true),
            ("That is great, Mel.", true),
            ("Melanie, look", true),
            ("I met Melanie yesterday.", false),
            ("Honey melon, and more", false),
        ] {
            assert_eq!(calls(text, "melanie"), expected, "{text}");
        }
    }
}

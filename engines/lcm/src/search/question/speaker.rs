//! The participants of a conversation that a question names.
//!
//! A question about somebody is mostly answered by that person. On the other hand, the name of a
//! participant says nothing about the subject of a message, because it is in all of that person's
//! messages. So messages of a named participant get a bonus, and the name itself is no longer
//! searched for.
//!
//! There are three ways to recognise a participant: by the author's name of messages, by a name at
//! the start of their texts, and by how other messages address them. [`Question::participants`]
//! tries them for each capitalised word of the question.

use super::retrieve::TermHolders;
use super::{Question, TermForm};
use crate::error::StoreError;
use crate::search::run::Search;
use crate::store::{Key, MessageRow, SessionId, names_in, row_in};
use crate::text::fold::fold;
use crate::text::terms::{Class, class, runs};

/// A participant of a session whom the question names, and how to recognise their messages.
pub(super) struct Participant {
    session: SessionId,
    known_by: KnownBy,
}

enum KnownBy {
    /// By the author's name of their messages, which is one of these.
    Name(Vec<String>),
    /// By the name at the start of their texts, in folded form.
    Prefix(String),
    /// By the role of their messages.
    Role(String),
}

impl Participant {
    /// Whether a message is from this participant. `speaker` is the speaker named in its text.
    pub(super) fn said(&self, row: &MessageRow, speaker: Option<&str>) -> bool {
        row.key.session() == self.session
            && match &self.known_by {
                KnownBy::Name(names) => row.name.as_ref().is_some_and(|name| names.contains(name)),
                KnownBy::Prefix(name) => speaker.is_some_and(|speaker| is_part_of(name, speaker)),
                KnownBy::Role(role) => *role == row.role,
            }
    }
}

/// The number of author names of a session that are read. A longer list is not a list of people.
const NAMES: u32 = 1_000;

/// The maximum number of messages with a name that are read to find out how it is used.
const SAMPLE: usize = 40;

/// The minimum number of messages in which a name has to occur to be judged by its use.
const MIN_NAMED: usize = 4;

impl Question<'_> {
    /// Finds the participants that the question names. Their names are then no longer searched for,
    /// unless the session has no other word of the question.
    pub(super) fn participants(
        &mut self,
        search: &mut Search<'_>,
        sessions: &[TermHolders],
    ) -> Result<Vec<Participant>, StoreError> {
        let mut participants = Vec::new();
        let mut is_name = vec![false; self.groups];
        for holders in sessions {
            let session = holders.session;
            let authors = AuthorNames::of(self, search, holders)?;
            let mut add = |known_by| participants.push(Participant { session, known_by });
            for (name, group) in &self.names {
                let names = authors.called(name);
                let known_by = match names.is_empty() {
                    false => Some(KnownBy::Name(names)),
                    true => known_by(search, session, &self.named(*group, holders), name)?,
                };
                if let Some(known_by) = known_by {
                    add(known_by);
                    is_name[*group] = true;
                }
            }
            for (name, folded) in authors.in_one_piece() {
                add(KnownBy::Name(vec![name.to_owned()]));
                for term in &self.terms {
                    is_name[term.group] |= matches!(&term.form, TermForm::Gram(gram) if folded.contains(gram.as_str()));
                }
            }
        }
        self.participants = (self.names.iter())
            .filter(|(_, group)| is_name[*group])
            .map(|(name, _)| name.clone())
            .collect();
        // If no message has another word of the question, the names are all there is to look for.
        let is_found = |at: usize| sessions.iter().any(|session| !session.lists[at].is_empty());
        let mut terms = self.terms.iter().enumerate();
        if terms.any(|(at, term)| !is_name[term.group] && is_found(at)) {
            for term in self.terms.iter_mut().filter(|term| is_name[term.group]) {
                term.weight = 0.0;
            }
        }
        Ok(participants)
    }

    /// Returns the messages that contain a name or a short form of it, in order.
    fn named(&self, group: usize, holders: &TermHolders) -> Vec<u32> {
        let mut named = Vec::new();
        for (term, list) in self.terms.iter().zip(&holders.lists) {
            if term.group == group && matches!(term.form, TermForm::Stem { .. }) {
                named.extend(list);
            }
        }
        named.sort_unstable();
        named.dedup();
        named
    }
}

/// The author names of a session, compared with the words of the question.
struct AuthorNames<'q> {
    question: &'q str,
    /// Each name as it was written and in folded form, and how many of its words are in the
    /// question.
    names: Vec<(String, String, usize)>,
}

impl<'q> AuthorNames<'q> {
    fn of(
        question: &'q Question<'q>,
        search: &Search<'_>,
        holders: &TermHolders,
    ) -> Result<Self, StoreError> {
        let question = question.text.as_str();
        let asked: Vec<&str> = runs(question).map(|run| &question[run.range]).collect();
        let mut names = Vec::new();
        for (name, first) in names_in(search.connection, holders.session, NAMES)? {
            // Later pages must see the same participants as the first one, so authors who first
            // spoke after it are ignored.
            if first.ordinal() < holders.messages {
                let folded = fold(&name);
                let shared = parts(&folded).filter(|part| asked.contains(part)).count();
                names.push((name, folded, shared));
            }
        }
        Ok(Self { question, names })
    }

    /// Returns the names that a folded word of the question refers to. If several names contain it,
    /// the ones that share most words with the question are meant.
    fn called(&self, word: &str) -> Vec<String> {
        let called = |folded: &str| folded == word || parts(folded).any(|part| part == word);
        let called = self.names.iter().filter(|(_, folded, _)| called(folded));
        let most = called.clone().map(|(_, _, shared)| *shared).max();
        called
            .filter(|(_, _, shared)| Some(*shared) == most)
            .map(|(name, _, _)| name.clone())
            .collect()
    }

    /// Returns the names that occur in the question and are in a script without capitals and
    /// spaces, each with its folded form. Such names cannot be recognised word by word.
    fn in_one_piece(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names
            .iter()
            .filter(|(_, folded, _)| {
                folded.chars().nth(1).is_some()
                    && folded.chars().all(|c| class(c) == Class::Gram)
                    && self.question.contains(folded.as_str())
            })
            .map(|(name, folded, _)| (name.as_str(), folded.as_str()))
    }
}

/// Splits a name into its words at any separator: `Ana Lima`, `ana_lima` and `ana-lima` have the
/// same words.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty())
}

/// Finds out from the messages that contain a name whether it is a participant's, and how to
/// recognise them. Returns None if the messages do not show it.
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
    let mut by_role: Vec<NameUses> = Vec::new();
    let sample = named.iter().step_by(named.len().div_ceil(SAMPLE));
    let sample: Vec<u32> = sample.copied().collect();
    search.expect(session, &sample);
    for ordinal in sample {
        let key = Key::new(session, ordinal);
        let Some((speaks, called)) = search.with_body(key, |body| {
            let speaker = speaker_of(body.as_str()).map(str::to_lowercase);
            let speaks = speaker.is_some_and(|speaker| is_part_of(name, &speaker));
            (speaks, calls(body.as_str(), name))
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
            None => by_role.push(NameUses {
                role: row.role,
                named: 1,
                called,
            }),
        }
    }
    if in_front * 4 >= looked_at {
        let known_by = (in_front > 0).then(|| KnownBy::Prefix(name.to_owned()));
        return Ok(known_by);
    }
    // People address others by name but not themselves, and talk to them more than about them. If
    // mostly one role uses a name, and often in an address, the name belongs to the other role.
    let caller = by_role.iter().find(|calls| {
        calls.called >= 2 && calls.called * 3 >= calls.named && calls.named * 10 >= looked_at * 7
    });
    Ok(match caller.map(|calls| calls.role.as_str()) {
        Some("user") => Some(KnownBy::Role("assistant".into())),
        Some("assistant") => Some(KnownBy::Role("user".into())),
        _ => None,
    })
}

/// How many messages of a role contain a name, and how many of them address somebody by it.
struct NameUses {
    role: String,
    named: usize,
    called: usize,
}

/// Whether a name is one of the words of a full name. Both must be folded in the same way.
fn is_part_of(name: &str, whole: &str) -> bool {
    whole.split(' ').any(|part| part == name)
}

/// Returns the speaker that a text names at its start, as in `Ana: hello` or `[8 May] Ana Lima:
/// hello`. Returns None if it begins in another way, or if the words before the colon are not like
/// a name.
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

/// Whether a text addresses somebody by this folded name or a short form of it, as in "Hey Ana!" or
/// "Thanks, Mel".
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

/// Returns the short forms of a name, which are its first three and four letters. A name that is
/// not longer has none.
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

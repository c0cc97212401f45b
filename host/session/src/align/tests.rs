#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

/// A message of the simulated client. `role` is 0 or 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    text: u64,
    role: u64,
}

impl Said {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            identity: u128::from(self.text) * 2 + u128::from(self.role),
            shape: self.role,
        }
    }
}

fn said(text: u64, role: u64) -> Said {
    Said { text, role }
}

/// A minimal session: the known messages, and the id that was given last.
#[derive(Default)]
struct Conversation {
    known: Vec<Known>,
    next: u64,
}

impl Conversation {
    fn advance(&mut self, history: &[Said]) -> Alignment {
        let fingerprints: Vec<Fingerprint> = history.iter().map(Said::fingerprint).collect();
        let mut alignment = align(
            &self.known,
            &fingerprints,
            None,
            &Ids::default(),
            &Ids::default(),
        );
        alignment.branch_at_insertion(&self.known);
        let ids = alignment.matches.iter().map(|matched| match matched {
            Match::Same(id) => *id,
            Match::New | Match::Revises(_) => {
                self.next += 1;
                MessageId(self.next)
            }
        });
        let known = ids.zip(&fingerprints).map(|(id, fingerprint)| Known {
            id,
            fingerprint: *fingerprint,
        });
        self.known = known.collect();
        alignment
    }

    fn ids(&self) -> Vec<u64> {
        self.known.iter().map(|known| known.id.0).collect()
    }
}

fn history(texts: &[u64]) -> Vec<Said> {
    let said = |(at, text): (usize, &u64)| said(*text, at as u64 % 2);
    texts.iter().enumerate().map(said).collect()
}

#[test]
fn a_history_that_lost_its_oldest_messages_or_some_in_the_middle_is_not_cut() {
    let mut session = Conversation::default();
    let all = history(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    session.advance(&all);
    let alignment = session.advance(&all[2..]);
    assert!(!alignment.cut);
    assert_eq!(session.ids(), [3, 4, 5, 6, 7, 8, 9, 10]);
    let mut pruned = all[2..4].to_vec();
    pruned.extend_from_slice(&all[6..]);
    pruned.push(said(11, 0));
    let alignment = session.advance(&pruned);
    assert!(!alignment.cut);
    assert_eq!(alignment.unmatched, [MessageId(5), MessageId(6)]);
    assert_eq!(session.ids(), [3, 4, 7, 8, 9, 10, 11]);
}

#[test]
fn the_same_word_after_a_rewind_is_a_new_message() {
    let mut session = Conversation::default();
    session.advance(&history(&[1, 2, 7, 4, 7, 6, 7]));
    let alignment = session.advance(&history(&[1, 2, 9, 8, 7]));
    assert!(alignment.cut);
    assert_eq!(session.ids(), [1, 2, 8, 9, 10]);
}

#[test]
fn hostile_repetition_takes_linear_time() {
    let mut session = Conversation::default();
    let mut all = vec![said(1, 0)];
    all.resize(100_000, said(2, 0));
    session.advance(&all);
    all[0] = said(3, 0);
    all.push(said(4, 0));
    let alignment = session.advance(&all);
    assert!(!alignment.cut);
    assert_eq!(
        *alignment.matches.first().unwrap(),
        Match::Revises(MessageId(1))
    );
    assert_eq!(session.ids()[1..100_000], (2..=100_000).collect::<Vec<_>>());
}

/// What the simulated client may do between two requests.
#[derive(Debug, Clone)]
enum Act {
    Append(Vec<u64>),
    /// Insert a message anywhere.
    Insert(prop::sample::Index),
    /// Replace the text of several messages in place.
    Edit(Vec<prop::sample::Index>),
    Rewind(prop::sample::Index),
    /// Put a question and a summary in place of all but the last messages.
    Compact(prop::sample::Index),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => prop::collection::vec(0..4u64, 1..4).prop_map(Act::Append),
        1 => any::<prop::sample::Index>().prop_map(Act::Insert),
        1 => prop::collection::vec(any::<prop::sample::Index>(), 1..3).prop_map(Act::Edit),
        1 => any::<prop::sample::Index>().prop_map(Act::Rewind),
        1 => any::<prop::sample::Index>().prop_map(Act::Compact),
    ];
    prop::collection::vec(act, 1..24)
}

/// A word that is said again between messages beside a summary is not the one that the summary
/// hides.
#[test]
fn what_a_summary_hides_is_not_found_in_a_new_word() {
    let mut session = Conversation::default();
    session.advance(&history(&[1, 9, 2, 3, 4, 5]));
    let sent = [said(2, 0), said(3, 1), said(9, 1), said(4, 0), said(5, 1)];
    let fingerprints = sent.each_ref().map(Said::fingerprint);
    let alignment = align(
        &session.known,
        &fingerprints,
        Some(0),
        &Ids::default(),
        &Ids::default(),
    );
    let same = |id| Match::Same(MessageId(id));
    let matches = [same(3), same(4), Match::New, same(5), same(6)];
    assert_eq!(alignment.matches, matches);
    assert_eq!(alignment.abridged, [MessageId(1), MessageId(2)]);
}

/// A message that is inserted stands before the one that the client put it before, whatever
/// summaries hide around the two, and also if the client has not got the last answer.
#[test]
fn hidden_messages_keep_their_place_beside_an_insertion() {
    // Every second message is an answer, and only an answer is lost.
    for (count, lost) in (2..9).flat_map(|count| [(count, false), (count, true)]) {
        if lost && count % 2 == 1 {
            continue;
        }
        for (hidden, at) in
            (0..1 << count).flat_map(|hidden| (0..count).map(move |at| (hidden, at)))
        {
            let mut texts: Vec<u64> = (1..=count).collect();
            let known: Vec<Known> = (history(&texts).iter().zip(&texts))
                .map(|(said, id)| Known {
                    id: MessageId(*id),
                    fingerprint: said.fingerprint(),
                })
                .collect();
            let is_shown = |known: &&Known| {
                let is_hidden = hidden >> (known.id.0 - 1) & 1 == 1;
                known.id.0 == 1 || !is_hidden || lost && known.id.0 == count
            };
            let shown: Vec<Known> = known.iter().filter(is_shown).copied().collect();
            let Some(next) = shown.get(at as usize) else {
                continue;
            };
            let mut sent: Vec<Fingerprint> = shown.iter().map(|known| known.fingerprint).collect();
            if lost {
                sent.pop();
                texts.pop();
                sent.push(said(60, 1).fingerprint());
                texts.push(60);
            }
            sent.insert(at as usize, said(50, 0).fingerprint());
            texts.insert(next.id.0 as usize - 1, 50);
            let mut alignment = align(&shown, &sent, None, &Ids::default(), &Ids::default());
            alignment.branch_at_insertion(&known);
            let stays = known
                .iter()
                .filter(|known| !alignment.unmatched.contains(&known.id));
            let mut now: Vec<u128> = stays.map(|known| known.fingerprint.identity).collect();
            for (place, matched) in alignment.matches.iter().enumerate() {
                let again = alignment.hidden_again.iter();
                let again = again.filter(|(_, before)| *before == place);
                now.extend((*matched == Match::New).then_some(sent[place].identity));
                now.extend(again.map(|(known, _)| known.fingerprint.identity));
            }
            let now: Vec<u64> = now.iter().map(|identity| (identity / 2) as u64).collect();
            assert_eq!(now, texts, "{shown:?} with a message at {at}, lost: {lost}");
        }
    }
}

proptest! {
    /// The reference model keeps each message's id beside the message and applies what the
    /// client does to both.
    #[test]
    fn ids_follow_what_the_client_did(acts in acts()) {
        let mut session = Conversation::default();
        let mut client: Vec<(Said, u64)> = Vec::new();
        let (mut model_next, mut unique) = (0, 1000);
        let mut branched_ids = HashSet::new();
        for act in acts {
            let before = session.ids();
            let mut edited = HashSet::new();
            match act {
                Act::Append(texts) => for text in texts {
                    model_next += 1;
                    client.push((said(text, client.len() as u64 % 2), model_next));
                },
                // Every message after the insertion is said again, under a new id.
                Act::Insert(at) if !client.is_empty() => {
                    unique += 1;
                    let at = at.index(client.len());
                    client.insert(at, (said(unique, 0), 0));
                    for (_, id) in client.iter_mut().skip(at) {
                        model_next += 1;
                        *id = model_next;
                    }
                }
                // All texts are new: if an edit restored an earlier text, it would undo itself.
                Act::Edit(places) if !client.is_empty() => {
                    let places: std::collections::BTreeSet<usize> =
                        places.iter().map(|at| at.index(client.len())).collect();
                    for at in places {
                        unique += 1;
                        model_next += 1;
                        edited.insert(client[at].1);
                        client[at].0.text = unique;
                        client[at].1 = model_next;
                    }
                }
                Act::Rewind(at) if !client.is_empty() => client.truncate(at.index(client.len())),
                // All that is left is said again behind the summary.
                Act::Compact(at) if client.len() > ANCHOR + 4 => {
                    let from = 4 + at.index(client.len() - ANCHOR - 4);
                    let from = from - from % 2;
                    unique += 2;
                    let summary = [said(unique - 1, 0), said(unique, 1)].map(|said| (said, 0));
                    client.splice(..from, summary);
                    for (_, id) in &mut client {
                        model_next += 1;
                        *id = model_next;
                    }
                }
                _ => continue,
            }
            let sent: Vec<Said> = client.iter().map(|(said, _)| said.clone()).collect();
            let alignment = session.advance(&sent);
            let expected: Vec<u64> = client.iter().map(|(_, id)| *id).collect();
            prop_assert_eq!(session.ids(), expected.clone());
            let revised: HashSet<u64> = alignment.matches.iter().filter_map(|matched| match matched {
                Match::Revises(id) => Some(id.0),
                _ => None,
            }).collect();
            prop_assert_eq!(&revised, &edited);
            let cut_off: Vec<u64> = before.iter().copied()
                .filter(|id| !expected.contains(id) && !edited.contains(id)).collect();
            prop_assert_eq!(alignment.cut, !cut_off.is_empty());
            let mut unmatched: Vec<u64> = alignment.unmatched.iter().map(|id| id.0).collect();
            unmatched.sort_unstable();
            let mut cut_sorted = cut_off.clone();
            cut_sorted.sort_unstable();
            prop_assert_eq!(&unmatched, &cut_sorted);
            branched_ids.extend(cut_off);
            prop_assert!(expected.iter().all(|id| !branched_ids.contains(id)));
        }
    }

    /// The same few words over and over do not hide which message was edited.
    #[test]
    fn an_edit_before_a_lost_answer_changes_one_message(
        texts in prop::collection::vec(0..2u64, 5..12),
        at in any::<prop::sample::Index>(),
    ) {
        let mut session = Conversation::default();
        let mut sent = history(&texts);
        session.advance(&sent);
        let mut expected = session.ids();
        let at = at.index(texts.len() / 2);
        sent[at].text = 8;
        let lost = sent.pop().unwrap();
        sent.push(said(9, 1 - lost.role));
        let alignment = session.advance(&sent);
        let next = texts.len() as u64 + 1;
        (expected[at], expected[texts.len() - 1]) = (next, next + 1);
        prop_assert_eq!(session.ids(), expected);
        prop_assert!(alignment.cut);
    }

    /// A client that went on from a summary, and now sends its originals up to the message that it
    /// goes back to, has removed all that follow, those that the summary stood for among them.
    #[test]
    fn a_rewind_of_the_originals_reaches_behind_a_summary(
        mut texts in prop::collection::vec(0..2u64, 3..12),
        summarised in 1..12usize,
        stays in any::<prop::sample::Index>(),
        words in prop::collection::vec(0..2u64, 1..3),
    ) {
        let stays = 1 + stays.index(texts.len() - 2);
        // Unless the last message is like no other, the new words may be the end of the conversation.
        texts.push(8);
        let mut session = Conversation::default();
        let mut sent = history(&texts);
        session.advance(&sent);
        let unsent = session.known.iter().take(summarised).map(|known| known.id).collect();
        sent.truncate(stays);
        sent.extend(words.iter().enumerate().map(|(at, word)| said(*word, (stays + at) as u64 % 2)));
        prop_assume!(sent[stays].text != texts[stays]);
        let fingerprints: Vec<Fingerprint> = sent.iter().map(Said::fingerprint).collect();
        let alignment = align(&session.known, &fingerprints, None, &unsent, &Ids::default());
        let removed: Vec<MessageId> = session.known[stays..].iter().map(|known| known.id).collect();
        prop_assert!(alignment.cut);
        prop_assert_eq!(alignment.unmatched, removed);
    }

    /// A client that goes on from a summary edits some of the messages before it and goes back to one
    /// behind it. The summary stays, whatever share of the messages is edited.
    #[test]
    fn a_summary_stays_between_edits_and_a_rewind(
        texts in prop::collection::vec(0..3u64, 1..9),
        edited in prop::collection::vec(any::<bool>(), 9),
        before in any::<prop::sample::Index>(),
        behind in any::<prop::sample::Index>(),
    ) {
        let before = before.index(texts.len() + 1);
        let mut sent = history(&texts);
        sent.insert(before, said(100, 2));
        let mut session = Conversation::default();
        session.advance(&sent);
        let summaries = Ids::from_iter([session.known[before].id]);
        let stays = before + 1 + behind.index(texts.len() - before + 1);
        sent.truncate(stays);
        for at in (0..before).filter(|at| edited[*at]) {
            sent[at].text = 50;
        }
        sent.push(said(60, 0));
        let fingerprints: Vec<Fingerprint> = sent.iter().map(Said::fingerprint).collect();
        let alignment = align(&session.known, &fingerprints, None, &Ids::default(), &summaries);
        // What is said again and again behind it may be matched in another way.
        for (at, known) in session.known[..=before].iter().enumerate() {
            let expected = match at < before && edited[at] {
                true => Match::Revises(known.id),
                false => Match::Same(known.id),
            };
            prop_assert_eq!(alignment.matches[at], expected);
        }
    }

    /// For any two requests, every message has exactly one id, no id occurs twice, and old ids
    /// keep their order.
    #[test]
    fn whatever_is_sent_ids_are_sound(
        first in prop::collection::vec(0..3u64, 0..12),
        second in prop::collection::vec(0..3u64, 0..12),
    ) {
        let mut session = Conversation::default();
        session.advance(&history(&first));
        let alignment = session.advance(&history(&second));
        let now = session.ids();
        prop_assert_eq!(now.len(), second.len());
        prop_assert_eq!(now.iter().collect::<HashSet<_>>().len(), now.len());
        let old: Vec<u64> = now.iter().copied().filter(|id| *id <= first.len() as u64).collect();
        prop_assert!(old.is_sorted());
        let revised = alignment.matches.iter().filter(|matched| matches!(matched, Match::Revises(_)));
        prop_assert_eq!(old.len() + revised.count() + alignment.unmatched.len(), first.len());
    }
}

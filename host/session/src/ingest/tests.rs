//! What a request is to a conversation, without an engine and without a body that leaves.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::MessageId;
use contexture_formats::{sealed_short, sealed_summary};
use contexture_transcript::{EntryContent, HostText, InForce};

use super::*;
use crate::testing::{body, conversation, ids, message, talk};
use crate::window::Window;

fn new(unrelated: Unrelated) -> Ingest {
    Ingest::new("s", unrelated, Warnings::of("s"))
}

fn send(
    ingest: &mut Ingest,
    current: &mut ConversationState,
    messages: &[String],
) -> Result<Ingested, SessionError> {
    let body = body(messages);
    let request = ingest.split(&body, None)?;
    ingest.ingest(current, &request)
}

/// A conversation that began with these messages.
fn begun(messages: &[String]) -> (Ingest, ConversationState) {
    let (mut ingest, mut current) = (new(Unrelated::NewRoot), conversation(&[]));
    let ingested = send(&mut ingest, &mut current, messages).unwrap();
    assert_eq!(ingested.new, ids(1..=messages.len() as u64));
    (ingest, current)
}

/// Puts a window in force that does not show these messages.
fn put_in_force(
    current: &mut ConversationState,
    window: Window,
    left_out: impl IntoIterator<Item = u64>,
) {
    let saved = window.save(ids(left_out).into_iter().collect());
    current.replace_window(window);
    current.history.set_in_force(Some(InForce {
        number: 1,
        engine: String::new(),
        window: saved,
    }));
}

fn branch(current: &ConversationState) -> Vec<MessageId> {
    current
        .history
        .branch()
        .iter()
        .map(|known| known.id)
        .collect()
}

#[test]
fn only_what_was_not_said_before_is_new() {
    let all = talk(0..6);
    let (mut ingest, mut current) = begun(&all[..4]);
    let again = send(&mut ingest, &mut current, &all[..4]).unwrap();
    assert_eq!((again.new.len(), again.common), (0, 4));
    let more = send(&mut ingest, &mut current, &all).unwrap();
    assert_eq!(more.new, ids([5, 6]));
    assert!(more.only_appends());
    assert_eq!(current.window.len(), 6);
}

#[test]
fn an_equal_message_is_another_message() {
    let yes = vec![message("user", "yes"), message("assistant", "done")];
    let (mut ingest, mut current) = begun(&yes);
    let twice = [yes.clone(), yes].concat();
    let ingested = send(&mut ingest, &mut current, &twice).unwrap();
    assert_eq!(ingested.new, ids([3, 4]));
}

#[test]
fn an_edited_message_is_a_revision() {
    let mut all = talk(0..5);
    let (mut ingest, mut current) = begun(&all);
    all[1] = message("assistant", "in other words");
    let ingested = send(&mut ingest, &mut current, &all).unwrap();
    assert_eq!(ingested.revised, vec![(MessageId(6), MessageId(2))]);
    assert_eq!(ingested.relation, Relation::Continues);
    assert_eq!(branch(&current), ids([1, 6, 3, 4, 5]));
}

#[test]
fn a_shorter_request_cuts_the_conversation_back() {
    let all = talk(0..6);
    let (mut ingest, mut current) = begun(&all);
    let ingested = send(&mut ingest, &mut current, &all[..3]).unwrap();
    assert_eq!(
        ingested.relation,
        Relation::CutBack {
            after: Some(MessageId(3))
        }
    );
    assert_eq!(branch(&current), ids(1..=3));
    assert_eq!(current.window.len(), 3);
}

#[test]
fn what_was_lent_may_be_left_out() {
    let all = talk(0..6);
    let (mut ingest, mut current) = begun(&all);
    assert_eq!(
        ingest.allow_missing_from(&current.history, Some(4)),
        Some(MessageId(5))
    );
    let ingested = send(&mut ingest, &mut current, &all[..4]).unwrap();
    assert_eq!(ingested.relation, Relation::Continues);
}

#[test]
fn a_summary_of_the_host_stands_for_what_it_covers() {
    let all = talk(0..5);
    let (mut ingest, mut current) = begun(&all);
    let summary = "[CONTEXT COMPACTION]\nwhat was said";
    let covers = ids(1..=4).into_iter().collect();
    (current.history).write(HostText::summary(MessageId(50), summary, covers));
    let sent = [
        message("user", &sealed_summary(summary)),
        all[4].clone(),
        message("assistant", "an answer"),
    ];
    let ingested = send(&mut ingest, &mut current, &sent).unwrap();
    assert_eq!(ingested.new, ids([6]));
    assert!(ingested.only_appends());
    assert_eq!(branch(&current), ids(1..=6));
}

#[test]
fn what_a_summary_hides_stays_behind_the_message_before_it() {
    let all = talk(0..6);
    let (mut ingest, mut current) = begun(&all);
    let summary = "[CONTEXT COMPACTION]\nwhat was said";
    let covers = ids(3..=4).into_iter().collect();
    (current.history).write(HostText::summary(MessageId(50), summary, covers));
    let sent = [
        all[0].clone(),
        message("assistant", "inserted"),
        all[1].clone(),
        message("user", &sealed_summary(summary)),
        all[4].clone(),
        all[5].clone(),
    ];
    let ingested = send(&mut ingest, &mut current, &sent).unwrap();
    assert_eq!(ingested.new, ids(7..=12));
    let covers = current.history.host_texts.covers(MessageId(50)).unwrap();
    assert_eq!(covers.iter().collect::<Vec<_>>(), ids(9..=10));
    // The same request again changes nothing.
    let again = send(&mut ingest, &mut current, &sent).unwrap();
    assert!(again.new.is_empty() && again.only_appends());
    assert_eq!(branch(&current), ids([1].into_iter().chain(7..=12)));
}

/// What the client says anew stands behind a summary too, and hides nothing now.
#[test]
fn originals_without_the_summary_that_hid_them_are_a_rewind() {
    let all = talk(0..6);
    let (mut ingest, mut current) = begun(&all);
    let summary = "[CONTEXT COMPACTION]\nwhat was said";
    let covers = ids(3..=4).into_iter().collect();
    (current.history).write(HostText::summary(MessageId(50), summary, covers));
    let mut sent = all.clone();
    sent.splice(2..4, [message("user", &sealed_summary(summary))]);
    send(&mut ingest, &mut current, &sent).unwrap();
    assert_eq!(branch(&current), ids(1..=6));
    sent.truncate(4);
    sent.remove(2);
    send(&mut ingest, &mut current, &sent).unwrap();
    assert_eq!(branch(&current), ids([1, 2, 7]));
}

#[test]
fn the_users_last_words_are_shown_beside_a_summary_if_the_client_sends_them() {
    let all = talk(0..6);
    let (mut ingest, mut current) = begun(&all);
    let texts = [(50, "what was said first", 1..=2), (51, "more", 1..=4)];
    let [earlier, in_force] = texts.map(|(id, text, covers)| {
        let text = format!("[CONTEXT COMPACTION]\n{text}");
        let covers = ids(covers).into_iter().collect();
        (current.history).write(HostText::summary(MessageId(id), &text, covers));
        text
    });
    let content = EntryContent::Summary {
        text: in_force,
        in_system_role: false,
    };
    let mut entries = current.window.entries().get(4..).unwrap().to_vec();
    entries.insert(
        0,
        WindowEntry::put_in(MessageId(51), content, &current.counter),
    );
    put_in_force(&mut current, Window::of(entries, None, 52), 1..=4);
    // The client goes back to an earlier body, and to before words that the summary in force covers.
    let sent = [
        message("user", &sealed_summary(&earlier)),
        all[2].clone(),
        all[3].clone(),
        message("user", ""),
    ];
    send(&mut ingest, &mut current, &sent).unwrap();
    let shown: Vec<MessageId> = current
        .window
        .entries()
        .iter()
        .map(WindowEntry::id)
        .collect();
    assert_eq!(shown, ids([50, 3, 4, 52]));
}

/// An engine may keep a large message of the user's as a file.
#[test]
fn the_users_last_words_stay_shortened_if_only_the_answer_was_lost() {
    let all = talk(0..4);
    let (mut ingest, mut current) = begun(&all[..3]);
    let mut entries = current.window.entries().to_vec();
    let last = entries.pop().unwrap();
    entries.push(last.with_content(EntryContent::Replaced {
        text: Some("number 2".to_owned()),
        arguments: Vec::new(),
        pruned: false,
    }));
    put_in_force(&mut current, Window::of(entries, None, 4), []);
    let is_whole = |current: &ConversationState| {
        let entries = current.window.entries().iter();
        entries.map(WindowEntry::is_verbatim).collect::<Vec<_>>()
    };
    send(&mut ingest, &mut current, &all).unwrap();
    send(&mut ingest, &mut current, &all[..3]).unwrap();
    assert_eq!(is_whole(&current), [true, true, false]);
    // The client goes back to it.
    let longer = talk(0..5);
    send(&mut ingest, &mut current, &longer).unwrap();
    send(&mut ingest, &mut current, &all[..3]).unwrap();
    assert_eq!(is_whole(&current), [true, true, true]);
}

/// An engine may shorten once more what is left of a message of a lost record.
#[test]
fn a_short_form_of_a_lost_record_goes_when_the_client_sends_the_original() {
    let all = talk(0..6);
    let summary = "[CONTEXT COMPACTION]\nof a lost record";
    let short = "[Shortened to save context space] number 2 and so on";
    let sent = [
        all[0].clone(),
        message("assistant", &sealed_summary(summary)),
        message("user", &sealed_short(short)),
        all[3].clone(),
        all[4].clone(),
    ];
    let (mut ingest, mut current) = (new(Unrelated::NewRoot), conversation(&[]));
    send(&mut ingest, &mut current, &sent).unwrap();
    let entries = current.window.entries().iter();
    let shortest = entries.map(|entry| match entry.is_of_lost_record() {
        true => entry.clone().with_content(EntryContent::Replaced {
            text: Some("[Shortened to save context space] number 2".to_owned()),
            arguments: Vec::new(),
            pruned: false,
        }),
        false => entry.clone(),
    });
    let window = Window::of(shortest.collect(), None, current.window.next_id());
    put_in_force(&mut current, window, []);
    let is_short = |entry: &&WindowEntry| entry.message().is_some() && !entry.is_verbatim();
    let count = |current: &ConversationState| {
        let entries = current.window.entries().iter();
        entries.filter(is_short).count()
    };
    assert_eq!(count(&current), 1);
    send(&mut ingest, &mut current, &all).unwrap();
    assert_eq!(count(&current), 0);
}

/// An engine may shorten without a summary. Then only the seals tell that the record was lost, and what
/// is not sealed is what the client said.
#[test]
fn a_sealed_short_form_of_a_lost_record_is_known_without_a_summary() {
    let mut sent = talk(0..6);
    let short = "[COMPACTED: number 2]\n\nwhat it keeps";
    sent[2] = message("user", &sealed_short(short));
    sent[4] = message("user", "[COMPACTED: number 4]");
    let (mut ingest, mut current) = (new(Unrelated::NewRoot), conversation(&[]));
    send(&mut ingest, &mut current, &sent).unwrap();
    let entries = current.window.entries().iter();
    let lost: Vec<bool> = entries.map(WindowEntry::is_of_lost_record).collect();
    assert_eq!(lost, [false, false, true, false, false, false]);
}

/// A message of which only a shorter form is left is a message of the conversation as any other.
#[test]
fn a_message_of_unknown_text_is_said_again_and_cut_off() {
    let all = talk(0..6);
    let summary = message("assistant", &sealed_summary("[CONTEXT COMPACTION]\nlost"));
    let short = sealed_short("[Shortened to save context space] number 2");
    let mut sent = vec![all[0].clone(), summary, message("user", &short)];
    sent.extend_from_slice(&all[3..]);
    let (mut ingest, mut current) = (new(Unrelated::NewRoot), conversation(&[]));
    let ingested = send(&mut ingest, &mut current, &sent).unwrap();
    let (unseen, lost) = current.unseen(None).unwrap();
    assert_eq!((ingested.new.len(), unseen.len(), lost), (4, 4, 1));
    let before = branch(&current);
    assert_eq!(before.len(), 5);
    let of_unknown = |current: &ConversationState| {
        let entries = current.window.entries().iter();
        let lost = entries.filter(|entry| entry.is_of_lost_record());
        lost.map(WindowEntry::id).collect::<Vec<_>>()
    };
    assert_eq!(of_unknown(&current), before[1..2]);
    let words = [message("user", "before it"), message("assistant", "yes")];
    sent.splice(2..2, words);
    send(&mut ingest, &mut current, &sent).unwrap();
    let after = branch(&current);
    assert_eq!((after[0], after.len()), (before[0], 7));
    assert_eq!(of_unknown(&current), after[3..4]);
    let again = send(&mut ingest, &mut current, &sent).unwrap();
    assert!(again.new.is_empty());
    assert_eq!(branch(&current), after);
    send(&mut ingest, &mut current, &sent[..4]).unwrap();
    assert_eq!(branch(&current), after[..3]);
}

/// Two results may have the same shorter form, and a tool may say what stands in place of a cleared
/// one.
#[test]
fn equal_short_forms_of_a_lost_record_are_told_apart_by_their_place() {
    let said = talk(0..6);
    let summary = "[CONTEXT COMPACTION]\nof a lost record";
    let short = message(
        "user",
        &sealed_short("[Shortened to save context space] so on"),
    );
    let mut sent = vec![message("user", &sealed_summary(summary))];
    for answer in [&said[1], &said[3], &said[5]] {
        sent.extend([short.clone(), answer.clone()]);
    }
    let (mut ingest, mut current) = (new(Unrelated::NewRoot), conversation(&[]));
    send(&mut ingest, &mut current, &sent).unwrap();
    let shown = |current: &ConversationState| {
        let entries = current.window.entries().iter();
        let places = entries.map(|entry| (entry.id(), entry.is_of_lost_record()));
        places.collect::<Vec<_>>()
    };
    let before = shown(&current);
    assert_eq!(before.iter().filter(|(_, is_lost)| *is_lost).count(), 3);
    // The same once more, said by the client.
    sent.extend([short.clone(), message("assistant", "seen")]);
    let ingested = send(&mut ingest, &mut current, &sent).unwrap();
    assert_eq!(ingested.new.len(), 2);
    assert_eq!(shown(&current)[..before.len()], before);
    // Without the second one.
    sent.remove(3);
    send(&mut ingest, &mut current, &sent).unwrap();
    let mut without = before.clone();
    without.remove(3);
    assert_eq!(shown(&current)[..without.len()], without);
}

/// A window in force is carried over alike whether its session was just opened or not: with edits,
/// insertions and cuts at each place, of the originals and of the body that was rendered.
#[test]
fn a_restart_does_not_change_what_a_request_makes_of_the_window() {
    let summary = "[CONTEXT COMPACTION]\nwhat was said";
    let short = sealed_short("[Shortened to save context space] so on");
    let originals = talk(0..8);
    let mut rendered = originals.clone();
    rendered[5] = message("assistant", &short);
    rendered.splice(2..4, [message("user", &sealed_summary(summary))]);
    let compacted = || {
        let (ingest, mut current) = begun(&originals);
        let covers = ids(3..=4).into_iter().collect();
        (current.history).write(HostText::summary(MessageId(50), summary, covers));
        let content = EntryContent::Summary {
            text: summary.to_owned(),
            in_system_role: false,
        };
        let mut entries = current.window.entries().to_vec();
        entries[5] = (entries[5].clone()).with_content(EntryContent::Replaced {
            text: Some(short.clone()),
            arguments: Vec::new(),
            pruned: false,
        });
        let summary = WindowEntry::put_in(MessageId(50), content, &current.counter);
        entries.splice(2..4, [summary]);
        put_in_force(&mut current, Window::of(entries, None, 51), 3..=4);
        (ingest, current)
    };
    let of_lost_record = || {
        let (mut ingest, mut current) = (new(Unrelated::NewRoot), conversation(&[]));
        send(&mut ingest, &mut current, &rendered).unwrap();
        (ingest, current)
    };
    // What a client may send that has this list.
    let requests = |sent: &Vec<String>| {
        let mut requests = vec![sent.clone()];
        for at in 0..sent.len() {
            let (mut edited, mut inserted) = (sent.clone(), sent.clone());
            edited[at] = message(["user", "assistant"][at % 2], "in other words");
            inserted.insert(at, message("user", "inserted"));
            requests.extend([edited, inserted]);
            // Nobody takes back what follows a summary and nothing else.
            if !sent[at].contains("[CONTEXT COMPACTION]") {
                requests.push(sent[..=at].to_vec());
            }
        }
        requests
    };
    let states: [&dyn Fn() -> (Ingest, ConversationState); 2] = [&compacted, &of_lost_record];
    let pairs: Vec<(Vec<String>, Vec<String>)> = [&originals, &rendered]
        .into_iter()
        .flat_map(|sent| {
            let (all, then) = (requests(sent), requests(sent));
            all.into_iter().flat_map(move |one| {
                let then = then.clone().into_iter();
                then.map(move |two| (one.clone(), two))
            })
        })
        .collect();
    for state in states {
        for (first, second) in &pairs {
            let windows = [false, true].map(|restarts| {
                let (mut ingest, mut current) = state();
                for request in [first, second] {
                    if restarts {
                        current.history.resumed = true;
                        let next_id = current.window.next_id();
                        current.replace_window(Window::of(Vec::new(), None, next_id));
                        current.unshown.clear();
                    }
                    send(&mut ingest, &mut current, request).unwrap();
                }
                let entries = current.window.entries().iter();
                let shown = entries.map(|entry| (entry.id(), entry.content.clone()));
                shown.collect::<Vec<_>>()
            });
            let brief = |sent: &[String]| -> Vec<String> {
                sent.iter()
                    .map(|sent| sent.chars().take(60).collect())
                    .collect()
            };
            assert_eq!(
                windows[0],
                windows[1],
                "{:#?}, then {:#?}",
                brief(first),
                brief(second)
            );
        }
    }
}

#[test]
fn a_request_of_another_conversation_begins_a_new_one_or_is_refused() {
    let other = [
        message("user", "something else"),
        message("assistant", "entirely"),
    ];
    let (mut ingest, mut current) = begun(&talk(0..4));
    let mut refusing = new(Unrelated::Refuse);
    for other in [&other[..], &other[..1]] {
        let refused = send(&mut refusing, &mut current, other).unwrap_err();
        assert!(matches!(refused, SessionError::Unrelated { .. }));
        assert_eq!(branch(&current), ids(1..=4));
    }
    let ingested = send(&mut ingest, &mut current, &other).unwrap();
    assert_eq!(ingested.relation, Relation::NewRoot);
    assert_eq!(branch(&current), ids([5, 6]));
}

#[test]
fn the_engine_lacks_what_follows_the_cursor() {
    let (_, mut current) = begun(&talk(0..4));
    let unseen = current.unseen(None).unwrap();
    let shown: Vec<MessageId> = unseen.0.iter().map(WindowEntry::id).collect();
    assert_eq!((shown, unseen.1), (ids(1..=4), 0));
    current.history.shown.set_cursor(Some(MessageId(2)));
    // The text is neither in the request nor in memory now.
    current.unshown.clear();
    current.replace_window(Window::of(Vec::new(), None, 5));
    let unseen = current.unseen(None).unwrap();
    assert_eq!((unseen.0.len(), unseen.1), (0, 2));
}

#[test]
fn an_answer_joins_the_conversation() {
    let all = talk(0..2);
    let (mut ingest, mut current) = begun(&all[..1]);
    let items = [all[1].as_str()];
    let calls = &mut current.history.calls;
    let answer = contexture_formats::excerpt(Format::OpenAiChat, &items, calls).unwrap();
    let new = ingest.answer(&mut current, &items, &Arc::new(answer));
    assert_eq!(new, ids([2]));
    // The client sends the answer back, and nothing of it is new.
    let again = send(&mut ingest, &mut current, &all).unwrap();
    assert_eq!((again.new.len(), again.common), (0, 2));
}

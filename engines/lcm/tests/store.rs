//! The store as its user sees it: what goes in comes back, once, whatever happens in between.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init
)]

mod ingest;

use contexture_engine_api::{Delivery, MessageId, MessageView, ToolCallView};
use contexture_lcm::store::PayloadId;
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};
use ingest::Ingest;
use proptest::prelude::*;

struct Said {
    id: u64,
    role: &'static str,
    text: String,
    raw: String,
}

fn said(id: u64, text: &str) -> Said {
    let role = if id.is_multiple_of(2) {
        "assistant"
    } else {
        "user"
    };
    Said {
        id,
        role,
        text: text.to_owned(),
        raw: serde_json::json!({"role": role, "content": text}).to_string(),
    }
}

impl Said {
    fn view(&self) -> MessageView<'_> {
        MessageView::new(MessageId(self.id), self.role)
            .with_text(&self.text)
            .with_raw(&self.raw)
            .with_time(self.id as i64 * 1000)
    }
}

fn deliver(store: &Store, session: SessionId, messages: &[Said]) {
    let views: Vec<_> = messages.iter().map(Said::view).collect();
    store.ingest(session, &views).unwrap();
}

fn open(directory: &tempfile::TempDir) -> (Store, SessionId) {
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    (store, session)
}

fn live_ids(store: &Store, session: SessionId) -> Vec<u64> {
    let rows = store.rows(session, 0..u32::MAX).unwrap().into_iter();
    let live = rows.filter(|row| row.is_current);
    live.map(|row| row.id.0).collect()
}

#[test]
fn the_same_words_said_six_times_are_stored_six_times() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let messages: Vec<Said> = (1..=6).map(|id| said(id * 2, "yes")).collect();
    deliver(&store, session, &messages);
    assert_eq!(live_ids(&store, session).len(), 6);
}

#[test]
fn a_delivery_that_comes_again_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let messages: Vec<Said> = (1..=5).map(|id| said(id, "hello")).collect();
    deliver(&store, session, &messages[..3]);
    deliver(&store, session, &messages[..3]);
    drop(store);
    let (store, session) = open(&directory);
    deliver(&store, session, &messages);
    assert_eq!(live_ids(&store, session), [1, 2, 3, 4, 5]);
}

#[test]
fn an_id_with_another_content_is_refused_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    deliver(&store, session, &[said(1, "a"), said(2, "b")]);
    let (changed, new) = (said(2, "c"), said(3, "d"));
    let error = store
        .ingest(session, &[changed.view(), new.view()])
        .unwrap_err();
    assert!(
        matches!(error, StoreError::IdReused(MessageId(2))),
        "{error}"
    );
    assert_eq!(live_ids(&store, session), [1, 2]);
}

#[test]
fn a_cut_keeps_what_is_common_and_what_it_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    deliver(&store, session, &[said(1, "a"), said(2, "b"), said(3, "c")]);
    deliver(&store, session, &[said(4, "d")]);
    store.cut(session, Some(MessageId(3))).unwrap();
    assert_eq!(live_ids(&store, session), [1, 2, 3]);
    deliver(&store, session, &[said(5, "e")]);
    store.cut(session, Some(MessageId(1))).unwrap();
    assert_eq!(live_ids(&store, session), [1]);
    deliver(&store, session, &[said(1, "a"), said(6, "f")]);
    assert_eq!(live_ids(&store, session), [1, 6]);
    assert_eq!(store.session_info(session).unwrap().messages, 6);
    assert_eq!(store.message(session, MessageId(4)).unwrap().text, "d");
}

#[test]
fn a_large_text_is_a_file_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let text: String = (1..=20_000).map(|i| format!("line {i} 世界\n")).collect();
    deliver(
        &store,
        session,
        &[said(1, &text), said(2, &text), said(3, "small")],
    );
    let payloads = store.payloads(session).unwrap();
    assert_eq!(payloads.len(), 1);
    let payload = &payloads[0];
    assert_eq!((payload.bytes, payload.lines), (text.len() as u64, 20_000));
    for message in store.messages(session, 0..2).unwrap() {
        assert_eq!(message.text, text);
        assert_eq!(message.raw, said(message.row.id.0, &text).raw);
        assert_eq!(message.row.payload, Some(payload.id));
    }
    assert_eq!(store.payload_text(payload.id).unwrap(), text);
    let ids = [MessageId(1), MessageId(2)];
    assert_eq!(store.messages_with(payload.id).unwrap(), ids);
    assert!(matches!(
        store.payload_info(PayloadId(99)),
        Err(StoreError::Unknown(_))
    ));
}

#[test]
fn no_text_of_a_message_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let secret = "zanzibarferry";
    let large = format!("{secret} {}", "filler ".repeat(20_000));
    deliver(&store, session, &[said(1, secret), said(2, &large)]);
    drop(store);
    let path = directory.path().join(contexture_lcm::store::FILE_NAME);
    let connection = rusqlite::Connection::open(&path).unwrap();
    // What the index has of it is words.
    connection.execute("DELETE FROM segments", []).unwrap();
    connection.execute_batch("VACUUM").unwrap();
    drop(connection);
    let bytes = std::fs::read(&path).unwrap();
    let has = |part: &str| bytes.windows(part.len()).any(|at| at == part.as_bytes());
    assert!(!has(secret) && !has("filler"));
    assert!(bytes.len() < 200_000, "{}", bytes.len());
}

#[test]
fn views_of_one_wire_message_come_back_with_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let long = "a result that is long enough to be taken out of the wire message\n".repeat(3);
    let raw = serde_json::json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": long},
        {"type": "text", "text": "and \"this\""},
    ]})
    .to_string();
    let calls = [ToolCallView::new("c2", "ls", "{\"path\":\"/tmp\"}")];
    let views = [
        MessageView::new(MessageId(1), "tool")
            .with_text(&long)
            .with_result_of("c1", "cat")
            .with_raw(&raw),
        MessageView::new(MessageId(2), "user")
            .with_text("and \"this\"")
            .with_tool_calls(&calls)
            .with_raw(&raw),
    ];
    store.ingest(session, &views).unwrap();
    let stored = store.messages(session, 0..2).unwrap();
    assert!(stored.iter().all(|message| message.raw == raw));
    assert_eq!(stored[0].text, long);
    assert_eq!(stored[0].row.tool.as_deref(), Some("cat"));
    assert_eq!(stored[1].calls, "ls {\"path\":\"/tmp\"}");
}

#[test]
fn a_foreign_database_is_refused_and_left_as_it_is() {
    for named in [0, 77] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(contexture_lcm::store::FILE_NAME);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE theirs(a)").unwrap();
        connection
            .pragma_update(None, "application_id", named)
            .unwrap();
        drop(connection);
        let before = std::fs::read(&path).unwrap();
        let error = ingest::open(directory.path(), StoreSettings::default()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign(_)), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    }
}

#[test]
fn two_stores_on_one_file_agree() {
    let directory = tempfile::tempdir().unwrap();
    let (one, session) = open(&directory);
    let (two, same) = open(&directory);
    assert_eq!(session, same);
    std::thread::scope(|scope| {
        for store in [&one, &two] {
            scope.spawn(move || {
                for turn in 0..100u64 {
                    // Both deliver everything: one of them is always the second.
                    let messages: Vec<Said> = (turn * 3 + 1..=turn * 3 + 3)
                        .map(|id| said(id, "both"))
                        .collect();
                    deliver(store, session, &messages);
                }
            });
        }
    });
    assert_eq!(live_ids(&one, session), (1..=300).collect::<Vec<_>>());
}

#[test]
fn a_session_number_is_never_given_out_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(&directory);
    let gone = store.open_session("a").unwrap();
    deliver(&store, gone, &[said(1, &"large ".repeat(30_000))]);
    let file = store.payloads(gone).unwrap()[0].id;
    store.delete_session(gone).unwrap();
    let other = store.open_session("b").unwrap();
    assert_ne!(other, gone);
    // Whoever still has the deleted one open.
    let late = said(2, "for a alone");
    let error = store.ingest(gone, &[late.view()]).unwrap_err();
    assert!(matches!(error, StoreError::SessionDeleted(_)), "{error}");
    assert!(store.cut(gone, None).is_err());
    assert_eq!(store.session_info(other).unwrap().messages, 0);
    deliver(&store, other, &[said(1, &"other ".repeat(30_000))]);
    assert_ne!(store.payloads(other).unwrap()[0].id, file);
}

#[test]
fn what_is_shown_again_after_a_cut_is_live_again_without_a_second_copy() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let four: Vec<Said> = (1..=4).map(|id| said(id, &format!("words {id}"))).collect();
    deliver(&store, session, &four);
    let edit = said(5, "the first words, edited");
    let revise = |messages: &[MessageView<'_>], revisions: &[(MessageId, MessageId)]| {
        let delivery = Delivery::new(messages).with_revisions(revisions);
        store.tell(session, &delivery, 0).unwrap()
    };
    revise(&[edit.view()], &[(MessageId(5), MessageId(1))]);
    // Back to the second message: the edit of the first one is after it in the order of arrival.
    store.cut(session, Some(MessageId(2))).unwrap();
    let next = said(6, "and on");
    let ingested = revise(&[edit.view(), next.view()], &[(MessageId(5), MessageId(1))]);
    assert_eq!(ingested.known, 1);
    assert_eq!(live_ids(&store, session), [2, 5, 6]);
    let rows = store.rows(session, 0..100).unwrap();
    assert_eq!(rows.len(), 6, "nothing twice");
    let edited = rows.iter().find(|row| row.id.0 == 5).unwrap();
    assert_eq!(edited.replaces, Some(rows[0].key));
    drop(store);
    let (store, session) = open(&directory);
    assert_eq!(live_ids(&store, session), [2, 5, 6]);
}

#[test]
fn a_host_that_begins_anew_with_the_same_conversation_stores_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let all: Vec<Said> = (1..=30)
        .map(|id| said(id, &format!("words {id}")))
        .collect();
    deliver(&store, session, &all);
    store.cut(session, None).unwrap();
    for piece in all.chunks(7) {
        deliver(&store, session, piece);
    }
    assert_eq!(live_ids(&store, session), (1..=30).collect::<Vec<_>>());
    assert_eq!(store.session_info(session).unwrap().messages, 30);
}

#[test]
fn rewinding_a_thousand_times_costs_no_more_than_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    deliver(&store, session, &[said(1, "a"), said(2, "b")]);
    for id in 3..1_003 {
        deliver(&store, session, &[said(id, "tried")]);
        store.cut(session, Some(MessageId(2))).unwrap();
    }
    assert_eq!(live_ids(&store, session), [1, 2]);
    deliver(&store, session, &[said(2_000, "kept")]);
    assert_eq!(live_ids(&store, session), [1, 2, 2_000]);
}

#[test]
fn a_revision_is_stored_with_its_message_and_one_of_nothing_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    deliver(&store, session, &[said(1, "a"), said(2, "b")]);
    let (of_two, of_nine) = (said(10, "b2"), said(11, "x2"));
    let views = [of_two.view(), of_nine.view()];
    let revisions = [(MessageId(10), MessageId(2)), (MessageId(11), MessageId(9))];
    let delivery = Delivery::new(&views).with_revisions(&revisions);
    let ingested = store.tell(session, &delivery, 0).unwrap();
    assert_eq!(ingested.replaces_nothing, [(MessageId(11), MessageId(9))]);
    let rows = store.rows(session, 0..10).unwrap();
    let replaces: Vec<_> = rows.iter().map(|row| row.replaces).collect();
    assert_eq!(replaces, [None, None, Some(rows[1].key), None]);
    // Delivered twice: the same.
    assert_eq!(store.tell(session, &delivery, 0).unwrap().known, 2);
    assert_eq!(store.rows(session, 0..10).unwrap(), rows);
}

#[test]
fn a_message_shown_again_with_other_markers_is_the_same_message() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(&directory);
    let text = "the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789 and that is it";
    let first = said(1, text);
    deliver(&store, session, &[first]);
    let mut moved = said(1, text);
    moved.raw = serde_json::json!({
        "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
        "role": "user",
    })
    .to_string();
    deliver(&store, session, &[moved]);
    assert_eq!(store.session_info(session).unwrap().messages, 1);
    assert_eq!(store.message(session, MessageId(1)).unwrap().text, text);
    let other = said(1, "the key is another matter");
    let error = store.ingest(session, &[other.view()]).unwrap_err();
    assert!(matches!(error, StoreError::IdReused(_)), "{error}");
}

/// What may happen to a conversation.
#[derive(Debug, Clone)]
enum Step {
    Deliver(Vec<String>),
    Again(usize),
    Cut(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = prop_oneof!["(\\PC|\\n){0,90}", Just("yes".to_owned())];
    let step = prop_oneof![
        4 => prop::collection::vec(text, 1..5).prop_map(Step::Deliver),
        2 => (0usize..6).prop_map(Step::Again),
        1 => (0usize..30).prop_map(Step::Cut),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_history_comes_back(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, mut session) = open(&directory);
        let (mut live, mut all): (Vec<(u64, String)>, usize) = (Vec::new(), 0);
        let mut next = 1;
        for step in steps {
            match step {
                Step::Deliver(texts) => {
                    let messages: Vec<Said> = texts.iter().map(|text| {
                        next += 1;
                        said(next, text)
                    }).collect();
                    deliver(&store, session, &messages);
                    all += texts.len();
                    live.extend(messages.into_iter().map(|said| (said.id, said.text)));
                }
                Step::Again(count) => {
                    let start = live.len().saturating_sub(count);
                    let messages: Vec<Said> =
                        live[start..].iter().map(|(id, text)| said(*id, text)).collect();
                    deliver(&store, session, &messages);
                }
                Step::Cut(keep) => {
                    live.truncate(keep);
                    store.cut(session, live.last().map(|(id, _)| MessageId(*id))).unwrap();
                }
                Step::Reopen => {
                    drop(store);
                    (store, session) = open(&directory);
                }
            }
            let mut found = Vec::new();
            let stored = store.messages(session, 0..u32::MAX).unwrap();
            for message in stored.into_iter().filter(|message| message.row.is_current) {
                let expected = said(message.row.id.0, &message.text);
                prop_assert_eq!(&message.raw, &expected.raw);
                found.push((message.row.id.0, message.text));
            }
            prop_assert_eq!(&found, &live);
            prop_assert_eq!(store.session_info(session).unwrap().messages as usize, all);
        }
    }
}

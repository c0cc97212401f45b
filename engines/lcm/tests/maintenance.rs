//! Checks, deletion, and what is made anew.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init
)]

mod ingest;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::search::{Ask, Mode, Pattern, Query};
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};
use ingest::Ingest;

fn settings() -> StoreSettings {
    StoreSettings {
        large_tokens: 1_000,
        background_index: false,
        ..StoreSettings::default()
    }
}

/// A store with sessions of `count` messages each; every tenth is kept aside.
fn filled(directory: &tempfile::TempDir, sessions: &[&str], count: u64) -> Store {
    let store = ingest::open(directory.path(), settings()).unwrap();
    for name in sessions {
        let session = store.open_session(name).unwrap();
        for id in 1..=count {
            let text = text(name, id);
            let raw = serde_json::json!({"role": "user", "content": text}).to_string();
            let view = MessageView::new(MessageId(id), "user")
                .with_text(&text)
                .with_raw(&raw)
                .with_time(id as i64);
            store.ingest(session, &[view]).unwrap();
        }
        store.index_now(session).unwrap();
    }
    store
}

fn text(name: &str, id: u64) -> String {
    let words = if id.is_multiple_of(10) { 1_500 } else { 12 };
    (0..words)
        .map(|i| format!("{name} word{} ", (id * 7_919 + i * 104_729) % 1_000_003))
        .collect()
}

fn total(store: &Store, session: SessionId, text: &str) -> u64 {
    let ask = Ask::Pattern(Pattern::new(Mode::FullText, text));
    store
        .search(&Query::new(session, ask), &|| false)
        .unwrap()
        .total
}

/// Flips a bit in the middle of every blob of a column.
fn flip_a_bit(path: &std::path::Path, table: &str, column: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let blobs: Vec<(i64, Vec<u8>)> = connection
        .prepare(&format!("SELECT id, {column} FROM {table}"))
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (id, mut blob) in blobs {
        let middle = blob.len() / 2;
        blob[middle] ^= 1;
        connection
            .execute(
                &format!("UPDATE {table} SET {column} = ?2 WHERE id = ?1"),
                rusqlite::params![id, blob],
            )
            .unwrap();
    }
}

#[test]
fn a_sound_store_is_sound_and_its_index_agrees() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 300);
    let session = store.find_session("one").unwrap().unwrap();
    assert!(store.check(|_, _| ()).unwrap().is_sound());
    let check = store.check_index(session).unwrap();
    assert_eq!((check.wrong.len(), check.waiting), (0, 0));
    assert!(check.segments > 0);
}

#[test]
fn a_lost_and_a_lying_index_are_noticed_and_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 100);
    let session = store.find_session("one").unwrap().unwrap();
    let path = store.path().to_owned();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let lie = "UPDATE term_chunks SET terms = cast(replace(terms, 'one', 'two') AS BLOB)";
    connection.execute(lie, []).unwrap();
    drop(connection);
    let store = ingest::open(directory.path(), settings()).unwrap();
    assert_eq!(
        store.check_index(session).unwrap().wrong.as_slice(),
        std::slice::from_ref(&(0..100))
    );
    store.rebuild_index(session).unwrap();
    assert_eq!(store.check_index(session).unwrap().wrong, []);
    assert_eq!(total(&store, session, "one"), 100);
    drop(store);
    for (table, column) in [
        ("posting_chunks", "lists"),
        ("term_chunks", "terms"),
        ("segments", "signatures"),
    ] {
        flip_a_bit(&path, table, column);
        let store = ingest::open(directory.path(), settings()).unwrap();
        for (mode, text) in [(Mode::FullText, "one"), (Mode::Literal, "ord")] {
            let ask = Ask::Pattern(Pattern::new(mode, text));
            let found = store.search(&Query::new(session, ask), &|| false);
            assert_eq!(
                found.unwrap().total,
                100,
                "search reads what {table} cannot tell"
            );
        }
        let wrong = store.check_index(session).unwrap().wrong;
        assert_eq!(wrong, [0..100], "{table}");
        store.rebuild_index(session).unwrap();
    }
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("DELETE FROM segments", []).unwrap();
    drop(connection);
    let store = ingest::open(directory.path(), settings()).unwrap();
    assert_eq!(
        total(&store, session, "one"),
        100,
        "search reads what no segment holds"
    );
    assert_eq!(store.check_index(session).unwrap().waiting, 100);
    store.index_now(session).unwrap();
    assert_eq!(store.check_index(session).unwrap().waiting, 0);
}

/// Who said each message of a session.
fn names(store: &Store, session: SessionId) -> Vec<Option<String>> {
    let rows = store.rows(session, 0..u32::MAX).unwrap();
    rows.into_iter().map(|row| row.name).collect()
}

#[test]
fn who_said_it_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), settings()).unwrap();
    let session = store.open_session("chat").unwrap();
    let views = [
        MessageView::new(MessageId(1), "user")
            .with_name("ana")
            .with_text("ok"),
        MessageView::new(MessageId(2), "user")
            .with_name("ben")
            .with_text("ok"),
        MessageView::new(MessageId(3), "assistant").with_text("ok"),
        MessageView::new(MessageId(4), "tool")
            .with_name("ana")
            .with_result_of("c", "ls")
            .with_text("ok"),
    ];
    store.ingest(session, &views).unwrap();
    let expected = [Some("ana".to_owned()), Some("ben".to_owned()), None, None];
    assert_eq!(names(&store, session), expected);
    // The same again is known; the same words of somebody else are another message.
    assert_eq!(store.ingest(session, &views).unwrap().known, 4);
    let other = views[0].with_name("cem");
    let error = store.ingest(session, &[other]).unwrap_err();
    assert!(matches!(error, StoreError::IdReused(_)), "{error}");
}

#[test]
fn reading_ends_soon_after_it_was_called_off_and_the_store_goes_on() {
    const PATIENCE: usize = 3;
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 300);
    let session = store.find_session("one").unwrap().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let until = |patience| {
        let asked = Arc::clone(&asked);
        asked.store(0, Ordering::Relaxed);
        store.until(move || asked.fetch_add(1, Ordering::Relaxed) >= patience)
    };
    let check = |store: &Store| store.check(|_, _| ()).map(|check| check.is_sound());
    let check_index = |store: &Store| {
        store
            .check_index(session)
            .map(|index| index.wrong.is_empty())
    };
    for work in [&check as &dyn Fn(&Store) -> _, &check_index] {
        assert!(work(&until(usize::MAX)).unwrap());
        let all = asked.load(Ordering::Relaxed);
        assert!(all > 3 * PATIENCE, "asked {all} times in all");
        for patience in 0..PATIENCE {
            let given_up = work(&until(patience));
            assert!(matches!(given_up, Err(StoreError::Cancelled)));
            assert_eq!(asked.load(Ordering::Relaxed), patience + 1, "at once");
        }
        assert!(work(&store).unwrap());
    }
}

#[test]
fn what_the_transcript_lost_is_reported_and_the_rest_is_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 100);
    let session = store.find_session("one").unwrap().unwrap();
    let host = ingest::host_of(directory.path());
    // Of a small message, and of a large one.
    for id in [30, 41] {
        host.lose_text("one", MessageId(id));
    }
    let lost = [MessageId(30), MessageId(41)];
    assert_eq!(store.without_text(session).unwrap(), lost);
    // The segment was made when they could still be read.
    assert_eq!(store.check_index(session).unwrap().wrong, [0..100]);
    store.rebuild_index(session).unwrap();
    let index = store.check_index(session).unwrap();
    assert_eq!((index.wrong.len(), index.waiting), (0, 0));
    let read = store.messages(session, 0..100);
    assert!(
        matches!(read, Err(StoreError::NoText(MessageId(30)))),
        "{read:?}"
    );
    // Messages go on being taken in.
    let view = MessageView::new(MessageId(101), "user").with_text("one more");
    store.ingest(session, &[view]).unwrap();
    store.index_now(session).unwrap();
    assert_eq!(total(&store, session, "more"), 1);
}

#[test]
fn what_is_deleted_is_gone_and_its_space_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one", "two"], 200);
    let [one, two] = ["one", "two"].map(|name| store.find_session(name).unwrap().unwrap());
    assert_eq!(store.payloads(one).unwrap().len(), 20);
    store.delete_session(one).unwrap();
    assert_eq!(store.payloads(one).unwrap(), []);
    assert!(matches!(
        store.session_info(one),
        Err(StoreError::SessionDeleted(_))
    ));
    assert_eq!(total(&store, two, "two"), 200);
    let free = store.free_bytes().unwrap();
    assert!(free > 100_000, "{free}");
    store.shrink(|_, _| ()).unwrap();
    assert_eq!(store.free_bytes().unwrap(), 0);
    assert!(store.check(|_, _| ()).unwrap().is_sound());
}

#[test]
fn a_deletion_that_is_cut_short_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one", "two"], 50);
    let path = store.path().to_owned();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "UPDATE sessions SET deleted = 1, name = name || char(0) || id WHERE name = 'one';
             DELETE FROM messages WHERE id >> 32 = 1 AND id & 1",
        )
        .unwrap();
    drop(connection);
    let store = ingest::open(directory.path(), settings()).unwrap();
    assert_eq!(store.find_session("one").unwrap(), None);
    assert_eq!(store.sessions().unwrap().len(), 1);
    assert!(store.check(|_, _| ()).unwrap().is_sound());
    assert_eq!(store.free_bytes().unwrap(), 0);
    store.remove_deleted().unwrap();
    store.shrink(|_, _| ()).unwrap();
    let again = store.open_session("one").unwrap();
    assert_eq!(store.session_info(again).unwrap().messages, 0);
    let rows: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row(
            "SELECT count(*) FROM messages WHERE session = 1",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(rows, 0);
    assert!(store.check(|_, _| ()).unwrap().is_sound());
}

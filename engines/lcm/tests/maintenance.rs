//! Checks, backup, deletion and repair.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init
)]

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::search::{Ask, Mode, Pattern, Query};
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};

fn settings() -> StoreSettings {
    StoreSettings {
        large_tokens: 1_000,
        background_index: false,
    }
}

/// A store with sessions of `count` messages each; every tenth is kept aside.
fn filled(directory: &tempfile::TempDir, sessions: &[&str], count: u64) -> Store {
    let store = Store::open(directory.path(), settings()).unwrap();
    for name in sessions {
        let session = store.open_session(name, 5).unwrap();
        for id in 1..=count {
            let text = text(name, id);
            let raw = serde_json::json!({"role": "user", "content": text}).to_string();
            let view = MessageView::new(MessageId(id), "user")
                .with_text(&text)
                .with_raw(&raw)
                .with_time(id as i64);
            store.ingest(session, &[view], id).unwrap();
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
    let store = Store::open(directory.path(), settings()).unwrap();
    assert_eq!(
        store.check_index(session).unwrap().wrong.as_slice(),
        std::slice::from_ref(&(0..100))
    );
    store.rebuild_index(session).unwrap();
    assert_eq!(store.check_index(session).unwrap().wrong, []);
    assert_eq!(total(&store, session, "one"), 100);
    drop(store);
    for (table, column) in [
        ("posting_chunks", "data"),
        ("term_chunks", "terms"),
        ("segments", "signatures"),
    ] {
        flip_a_bit(&path, table, column);
        let store = Store::open(directory.path(), settings()).unwrap();
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
    let store = Store::open(directory.path(), settings()).unwrap();
    assert_eq!(
        total(&store, session, "one"),
        100,
        "search reads what no segment holds"
    );
    assert_eq!(store.check_index(session).unwrap().waiting, 100);
    store.index_now(session).unwrap();
    assert_eq!(store.check_index(session).unwrap().waiting, 0);
}

#[test]
fn a_changed_message_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 20);
    let path = store.path().to_owned();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute("UPDATE messages SET role = 'tool' WHERE host = 7", [])
        .unwrap();
    connection
        .execute(
            "UPDATE blocks SET data = x'00' WHERE id & 0xffffffff = 3",
            [],
        )
        .unwrap();
    drop(connection);
    let store = Store::open(directory.path(), settings()).unwrap();
    let check = store.check(|_, _| ()).unwrap();
    let damaged: Vec<u32> = check.damaged.iter().map(|key| key.ordinal()).collect();
    assert_eq!(damaged, [3, 6]);
}

#[test]
fn a_backup_is_the_same_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one", "two"], 50);
    let other = tempfile::tempdir().unwrap();
    let to = other.path().join(contexture_lcm::store::FILE_NAME);
    store.backup(&to, |_, _| ()).unwrap();
    let error = store.backup(&to, |_, _| ()).unwrap_err();
    assert!(matches!(error, StoreError::File { .. }), "{error}");
    let copy = Store::open(other.path(), settings()).unwrap();
    assert!(copy.check(|_, _| ()).unwrap().is_sound());
    for name in ["one", "two"] {
        let session = copy.find_session(name).unwrap().unwrap();
        assert_eq!(
            copy.messages(session, 0..50).unwrap(),
            store.messages(session, 0..50).unwrap()
        );
    }
}

#[test]
fn an_export_has_every_message_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 20);
    let session = store.find_session("one").unwrap().unwrap();
    let mut out = Vec::new();
    assert_eq!(store.export(session, "out".as_ref(), &mut out).unwrap(), 20);
    for (id, line) in (1..).zip(String::from_utf8(out).unwrap().lines()) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["id"], id);
        assert_eq!(value["message"]["content"], text("one", id));
    }
}

#[test]
fn what_is_deleted_is_gone_and_its_space_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one", "two"], 200);
    let [one, two] = ["one", "two"].map(|name| store.find_session(name).unwrap().unwrap());
    let size = store.size(&[one]).unwrap();
    assert_eq!((size.messages, size.files), (200, 20));
    store.delete_sessions(&[one]).unwrap();
    assert_eq!(store.size(&[one]).unwrap(), Default::default());
    assert!(matches!(
        store.session_info(one),
        Err(StoreError::UnknownSession(_))
    ));
    assert_eq!(total(&store, two, "two"), 200);
    let free = store.free_bytes().unwrap();
    assert!(free > size.bytes / 2, "{free} of {}", size.bytes);
    store.shrink().unwrap();
    assert_eq!(store.free_bytes().unwrap(), 0);
    assert!(store.check(|_, _| ()).unwrap().is_sound());
}

#[test]
fn a_damaged_file_is_repaired_and_kept() {
    for damage in [10_000usize, 200_000] {
        let directory = tempfile::tempdir().unwrap();
        let store = filled(&directory, &["one"], 400);
        store.shrink().unwrap();
        let path = store.path().to_owned();
        drop(store);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        let end = (middle + damage).min(bytes.len());
        bytes[middle..end].fill(0x5a);
        std::fs::write(&path, &bytes).unwrap();
        let report = Store::repair(directory.path()).unwrap();
        assert_eq!(std::fs::read(&report.kept).unwrap(), bytes);
        let store = Store::open(directory.path(), settings()).unwrap();
        let check = store.check(|_, _| ()).unwrap();
        assert!(check.is_sound(), "{check:?}");
        assert_eq!(check.messages, report.messages);
        assert!(report.messages > 0, "{report:?}");
        let session = store.sessions().unwrap()[0].id;
        for row in store.rows(session, 0..400).unwrap() {
            let message = store.message(session, row.id).unwrap();
            assert_eq!(message.text, text("one", row.id.0));
        }
        assert_eq!(total(&store, session, "one"), report.messages);
    }
}

#[test]
fn a_truncated_file_is_repaired_or_refused() {
    for keep in [0.0, 0.01, 0.3, 0.7, 0.98] {
        let directory = tempfile::tempdir().unwrap();
        let store = filled(&directory, &["one"], 200);
        store.shrink().unwrap();
        let path = store.path().to_owned();
        drop(store);
        let bytes = std::fs::read(&path).unwrap();
        let cut = &bytes[..(bytes.len() as f64 * keep) as usize];
        std::fs::write(&path, cut).unwrap();
        match Store::repair(directory.path()) {
            Ok(report) => {
                assert_eq!(std::fs::read(&report.kept).unwrap(), cut);
                let store = Store::open(directory.path(), settings()).unwrap();
                assert!(store.check(|_, _| ()).unwrap().is_sound());
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged(_)), "{error}");
                assert_eq!(std::fs::read(&path).unwrap(), cut, "kept as it was");
            }
        }
    }
}

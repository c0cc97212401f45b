//! Checks, backup, deletion and repair.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init
)]

mod ingest;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contexture_engine_api::{Delivery, MessageId, MessageView};
use contexture_lcm::search::{Ask, Mode, Pattern, Query};
use contexture_lcm::store::FILE_NAME;
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
        ("posting_chunks", "lists"),
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

/// Who said each message of a session.
fn names(store: &Store, session: SessionId) -> Vec<Option<String>> {
    let rows = store.rows(session, 0..u32::MAX).unwrap();
    rows.into_iter().map(|row| row.name).collect()
}

#[test]
fn who_said_it_is_kept_and_a_changed_name_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), settings()).unwrap();
    let session = store.open_session("chat", 0).unwrap();
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
    store.ingest(session, &views, 1).unwrap();
    let expected = [Some("ana".to_owned()), Some("ben".to_owned()), None, None];
    assert_eq!(names(&store, session), expected);
    let exported = store.export(session, None, 10).unwrap().messages;
    assert_eq!(
        exported[0].message.as_deref(),
        Some(r#"{"role":"user","name":"ana","content":"ok"}"#)
    );
    // The same again is known; the same words of somebody else are another message.
    assert_eq!(store.ingest(session, &views, 1).unwrap().known, 4);
    let other = views[0].with_name("cem");
    let error = store.ingest(session, &[other], 1).unwrap_err();
    assert!(matches!(error, StoreError::IdReused(_)), "{error}");

    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join(FILE_NAME);
    store.backup(&path, |_, _| ()).unwrap();
    let backup = Store::open(copy.path(), settings()).unwrap();
    assert_eq!(names(&backup, session), expected);
    drop((store, backup));

    let (store, report) = repaired_after(&directory, "");
    assert_eq!((report.messages, report.lost), (4, Some(0)));
    assert_eq!(names(&store, session), expected);
    drop(store);

    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "UPDATE messages SET name = 'ben' WHERE host = 1;
             UPDATE messages SET name = NULL, tool = name WHERE host = 2;
             UPDATE messages SET name = 'ana' WHERE host = 3;",
        )
        .unwrap();
    drop(connection);
    let store = Store::open(copy.path(), settings()).unwrap();
    let check = store.check(|_, _| ()).unwrap();
    let damaged: Vec<u32> = check.damaged.iter().map(|key| key.ordinal()).collect();
    assert_eq!(damaged, [0, 1, 2]);
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
fn a_backup_is_the_same_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one", "two"], 50);
    let other = tempfile::tempdir().unwrap();
    let to = other.path().join(contexture_lcm::store::FILE_NAME);
    store.backup(&to, |_, _| ()).unwrap();
    let error = store.backup(&to, |_, _| ()).unwrap_err();
    assert!(matches!(error, StoreError::Exists(_)), "{error}");
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
fn what_cannot_be_read_is_reported_and_the_rest_is_checked_indexed_and_exported() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 100);
    let session = store.find_session("one").unwrap().unwrap();
    let path = store.path().to_owned();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    // Of a small message, and of a large one.
    let broken = "UPDATE blocks SET data = x'00' WHERE id & 0xffffffff = 40;
                  UPDATE payload_chunks SET data = x'00' WHERE payload = 3;";
    connection.execute_batch(broken).unwrap();
    drop(connection);
    let store = Store::open(directory.path(), settings()).unwrap();
    let check = store.check(|_, _| ()).unwrap();
    let damaged: Vec<u32> = check.damaged.iter().map(|key| key.ordinal()).collect();
    assert_eq!((check.messages, damaged.as_slice()), (100, &[29, 40][..]));
    // The segment was made when they could still be read.
    assert_eq!(store.check_index(session).unwrap().wrong, [0..100]);
    store.rebuild_index(session).unwrap();
    let index = store.check_index(session).unwrap();
    assert_eq!((index.wrong.len(), index.waiting), (0, 0));
    let page = store.export(session, None, 1_000).unwrap();
    assert_eq!(page.messages.len(), 100);
    let lost: Vec<u64> = page
        .messages
        .iter()
        .filter(|wire| wire.message.is_none())
        .map(|wire| wire.id.0)
        .collect();
    assert_eq!(lost, [30, 41]);
    // Messages go on being taken in.
    let view = MessageView::new(MessageId(101), "user").with_text("one more");
    store.ingest(session, &[view], 101).unwrap();
    store.index_now(session).unwrap();
    assert_eq!(total(&store, session, "more"), 1);
}

#[test]
fn an_export_has_each_wire_message_once_and_edits_where_they_belong() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), settings()).unwrap();
    let session = store.open_session("s", 0).unwrap();
    let results = |texts: [&str; 3]| {
        let blocks: Vec<_> = texts
            .iter()
            .map(|text| serde_json::json!({"type": "tool_result", "content": text}))
            .collect();
        serde_json::json!({"role": "user", "content": blocks}).to_string()
    };
    let plain = |text: &str| serde_json::json!({"role": "user", "content": text}).to_string();
    let long = "a result of some length that is taken out of the wire message".to_owned();
    let (first, old, same) = (plain("go"), results([&long, "b", "c"]), plain("same"));
    let view = |id, text, raw| {
        MessageView::new(MessageId(id), "tool")
            .with_text(text)
            .with_raw(raw)
    };
    let views = [
        view(1, "go", first.as_str()),
        view(2, &long, &old),
        view(3, "b", &old),
        view(4, "c", &old),
        view(5, "same", &same),
    ];
    store.ingest(session, &views, 5).unwrap();
    // The same words in a delivery of their own are another message; the results are edited, one twice.
    let (edit, again) = (results([&long, "b2", "c"]), results([&long, "b3", "c"]));
    for (view, old) in [
        (view(6, "same", &same), None),
        (view(7, "b2", &edit), Some(MessageId(3))),
        (view(8, "b3", &again), Some(MessageId(7))),
    ] {
        let revisions: Vec<_> = old.map(|old| (view.id(), old)).into_iter().collect();
        let views = [view];
        let delivery = Delivery::new(&views, 0).with_revisions(&revisions);
        store.deliver(session, &delivery, 0).unwrap();
    }
    let expected = [&first, &again, &same, &same];
    for limit in [1, 2, 3, 100] {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page = store.export(session, after, limit).unwrap();
            assert!(page.messages.len() <= limit);
            found.extend(page.messages.into_iter().map(|wire| wire.message.unwrap()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{limit} a page");
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
        Err(StoreError::SessionDeleted(_))
    ));
    assert_eq!(total(&store, two, "two"), 200);
    let free = store.free_bytes().unwrap();
    assert!(free > size.bytes / 2, "{free} of {}", size.bytes);
    store.shrink(|_, _| ()).unwrap();
    assert_eq!(store.free_bytes().unwrap(), 0);
    assert!(store.check(|_, _| ()).unwrap().is_sound());
}

#[test]
fn a_damaged_file_is_repaired_and_kept() {
    for damage in [10_000usize, 200_000] {
        let directory = tempfile::tempdir().unwrap();
        let store = filled(&directory, &["one"], 400);
        store.shrink(|_, _| ()).unwrap();
        let path = store.path().to_owned();
        drop(store);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        let end = (middle + damage).min(bytes.len());
        bytes[middle..end].fill(0x5a);
        std::fs::write(&path, &bytes).unwrap();
        let report = Store::repair(directory.path(), |_, _| ()).unwrap();
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
        store.shrink(|_, _| ()).unwrap();
        let path = store.path().to_owned();
        drop(store);
        let bytes = std::fs::read(&path).unwrap();
        let cut = &bytes[..(bytes.len() as f64 * keep) as usize];
        std::fs::write(&path, cut).unwrap();
        match Store::repair(directory.path(), |_, _| ()) {
            Ok(report) => {
                assert_eq!(std::fs::read(&report.kept).unwrap(), cut);
                let store = Store::open(directory.path(), settings()).unwrap();
                assert!(store.check(|_, _| ()).unwrap().is_sound());
            }
            Err(error) => {
                assert!(matches!(error, StoreError::NothingLeft(_)), "{error}");
                assert_eq!(std::fs::read(&path).unwrap(), cut, "kept as it was");
            }
        }
    }
}

/// The keys of a session that the damaged file had, and the texts that were in it.
fn live_texts(store: &Store, session: SessionId) -> Vec<(u64, String)> {
    let mut texts = Vec::new();
    for range in store.live(session).unwrap() {
        for message in store.messages(session, range).unwrap() {
            texts.push((message.row.id.0, message.text));
        }
    }
    texts
}

fn deliver(store: &Store, session: SessionId, ids: std::ops::RangeInclusive<u64>) {
    let texts: Vec<(u64, String)> = ids.map(|id| (id, text("one", id))).collect();
    let raws: Vec<String> = texts
        .iter()
        .map(|(_, text)| serde_json::json!({"role": "user", "content": text}).to_string())
        .collect();
    let views: Vec<_> = texts
        .iter()
        .zip(&raws)
        .map(|((id, text), raw)| {
            MessageView::new(MessageId(*id), "user")
                .with_text(text)
                .with_raw(raw)
                .with_time(*id as i64)
        })
        .collect();
    let last = views.last().unwrap().id().0;
    store.ingest(session, &views, last).unwrap();
}

/// Damages the store in `directory` with SQL, repairs it, and opens it.
fn repaired_after(
    directory: &tempfile::TempDir,
    sql: &str,
) -> (Store, contexture_lcm::store::Repair) {
    let path = directory.path().join(FILE_NAME);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}"))
        .unwrap();
    drop(connection);
    let report = Store::repair(directory.path(), |_, _| ()).unwrap();
    (Store::open(directory.path(), settings()).unwrap(), report)
}

#[test]
fn what_a_repair_lost_is_taken_in_again_when_the_host_shows_it() {
    // The last delivery, one in the middle, a row, and one of several in a block.
    for (lost, sql) in [
        (
            5,
            "UPDATE blocks SET data = x'00' WHERE id & 0xffffffff = 35",
        ),
        (
            5,
            "UPDATE blocks SET data = x'00' WHERE id & 0xffffffff = 15",
        ),
        (1, "DELETE FROM messages WHERE host = 18"),
        (1, "UPDATE messages SET role = 'nobody' WHERE host = 3"),
        (1, "UPDATE payload_chunks SET bytes = 7 WHERE rowid = 1"),
        (40, "DELETE FROM messages; UPDATE blocks SET data = x'00'"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), settings()).unwrap();
        let session = store.open_session("one", 0).unwrap();
        for turn in 0..8 {
            deliver(&store, session, turn * 5 + 1..=turn * 5 + 5);
        }
        let expected = live_texts(&store, session);
        drop(store);
        let (store, report) = repaired_after(&directory, sql);
        assert_eq!(
            (report.messages, report.lost),
            (40 - lost, Some(lost)),
            "{sql}"
        );
        let session = store.find_session("one").unwrap().unwrap();
        let check = store.check(|_, _| ()).unwrap();
        assert!(check.is_sound(), "{sql}: {check:?}");
        // The host goes on from where the store says that it is; what it has in hand, it shows again.
        let seen = store
            .observed(session)
            .unwrap()
            .map_or(0, |seen| seen.last.0);
        deliver(&store, session, seen + 1..=41);
        let mut all = expected;
        all.push((41, text("one", 41)));
        assert_eq!(live_texts(&store, session), all, "{sql}");
        assert_eq!(
            store.observed(session).unwrap().unwrap().last,
            MessageId(41)
        );
        assert_eq!(store.session_info(session).unwrap().messages, 41, "{sql}");
        store.index_now(session).unwrap();
        assert_eq!(total(&store, session, "one"), 41, "{sql}");
        assert_eq!(store.check_index(session).unwrap().wrong, [], "{sql}");
        assert!(store.check(|_, _| ()).unwrap().is_sound());
    }
}

#[test]
fn a_repair_that_is_cut_short_is_finished_or_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 30);
    drop(store);
    let at = |name: &str| directory.path().join(name);
    let whole = std::fs::read(at(FILE_NAME)).unwrap();
    // While the new file was being built: the old one is in its place.
    std::fs::write(at("lcm.sqlite3.repairing"), b"half of it").unwrap();
    std::fs::write(at("lcm.sqlite3.repairing-wal"), b"and of that").unwrap();
    let report = Store::repair(directory.path(), |_, _| ()).unwrap();
    assert_eq!(report.messages, 30);
    assert_eq!(std::fs::read(&report.kept).unwrap(), whole);
    // After it was complete, at each step of the exchange.
    for step in 0..3 {
        let repaired = std::fs::read(at(FILE_NAME)).unwrap();
        std::fs::write(at("lcm.sqlite3.repaired"), &repaired).unwrap();
        std::fs::write(at(FILE_NAME), b"the damaged file").unwrap();
        std::fs::write(at("lcm.sqlite3-wal"), b"its log").unwrap();
        let kept = format!("lcm.sqlite3.damaged-{}", step + 2);
        if step > 0 {
            std::fs::rename(at("lcm.sqlite3-wal"), at(&format!("{kept}-wal"))).unwrap();
        }
        if step > 1 {
            std::fs::rename(at(FILE_NAME), at(&kept)).unwrap();
        }
        let store = Store::open(directory.path(), settings()).unwrap();
        assert_eq!(store.sessions().unwrap()[0].messages, 30);
        assert_eq!(std::fs::read(at(&kept)).unwrap(), b"the damaged file");
        assert_eq!(
            std::fs::read(at(&format!("{kept}-wal"))).unwrap(),
            b"its log"
        );
        assert_eq!(store.copies().unwrap().len(), 1 + 2 * (step + 1));
        drop(store);
    }
}

#[test]
fn a_store_in_use_is_not_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory, &["one"], 3);
    let error = Store::repair(directory.path(), |_, _| ()).unwrap_err();
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    drop(store);
    assert_eq!(
        Store::repair(directory.path(), |_, _| ()).unwrap().lost,
        Some(0)
    );
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
             DELETE FROM blocks WHERE id >> 32 = 1 AND id & 1",
        )
        .unwrap();
    drop(connection);
    let store = Store::open(directory.path(), settings()).unwrap();
    assert_eq!(store.find_session("one").unwrap(), None);
    assert_eq!(store.sessions().unwrap().len(), 1);
    assert!(store.check(|_, _| ()).unwrap().is_sound());
    assert_eq!(store.free_bytes().unwrap(), 0);
    store.sweep(false).unwrap();
    store.shrink(|_, _| ()).unwrap();
    let again = store.open_session("one", 0).unwrap();
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

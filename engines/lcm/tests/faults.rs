//! What happens to disks, files and clocks: nothing that was reported as stored is lost, nothing is stored
//! twice, and whoever waits is told why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init
)]

mod ingest;
mod small_host;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use contexture_engine_api::{
    Delivery, EngineError, EngineFactory, MessageId, MessageView, StoreCommand,
};
use contexture_lcm::search::{Ask, Mode, Pattern, Query, Sort};
use contexture_lcm::store::FILE_NAME;
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};
use ingest::Ingest;
use proptest::prelude::*;
use serde_json::json;
use small_host::{SmallHost, raw, role, text};

const WINDOW: u64 = 4_000;
/// What this very program, run again, is to do, and where.
const CHILD: &str = "CONTEXTURE_LCM_FAULT_CHILD";

/// Runs this program again as a child that does `what` in `directory`.
fn child(what: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["the_child", "--exact", "--nocapture"])
        .env(CHILD, format!("{what}:{}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn the_child() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let (what, directory) = order.split_once(':').unwrap();
    match what {
        "make" => {
            for number in 0.. {
                let new = Path::new(directory).join(number.to_string());
                std::fs::create_dir(&new).unwrap();
                Store::open(&new, StoreSettings::default()).unwrap();
            }
        }
        "hold" => {
            let connection =
                rusqlite::Connection::open(Path::new(directory).join(FILE_NAME)).unwrap();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            std::fs::write(Path::new(directory).join("held"), "").unwrap();
            std::thread::sleep(Duration::from_secs(4));
            connection.execute_batch("ROLLBACK").unwrap();
        }
        own => deliver_both(directory.as_ref(), own),
    }
}

/// Delivers a conversation that another process delivers too, and one of its own.
fn deliver_both(directory: &Path, own: &str) {
    let store = Store::open(directory, StoreSettings::default()).unwrap();
    let (both, own) = (
        store.open_session("both", 0).unwrap(),
        store.open_session(own, 0).unwrap(),
    );
    for turn in 0..150 {
        for session in [both, own] {
            deliver(&store, session, turn * 4 + 1..=turn * 4 + 4).unwrap();
        }
    }
    store.index_now(both).unwrap();
}

fn deliver(
    store: &Store,
    session: SessionId,
    ids: std::ops::RangeInclusive<u64>,
) -> Result<(), StoreError> {
    let last = *ids.end();
    let said: Vec<_> = ids.map(|id| (id, text(id), raw(id))).collect();
    let views: Vec<_> = said
        .iter()
        .map(|(id, text, raw)| small_host::view(*id, text, raw))
        .collect();
    store.ingest(session, &views, last).map(|_| ())
}

fn total(store: &Store, session: SessionId, mode: Mode, text: &str) -> u64 {
    let ask = Ask::Pattern(Pattern::new(mode, text));
    let found = store.search(&Query::new(session, ask), &|| false).unwrap();
    found.total
}

/// Each of these messages is there once, in order and whole.
fn assert_whole(store: &Store, session: SessionId, count: u64) {
    let messages: Vec<_> = store
        .live(session)
        .unwrap()
        .into_iter()
        .flat_map(|range| store.messages(session, range).unwrap())
        .map(|message| (message.row.id.0, message.text, message.raw))
        .collect();
    let expected: Vec<_> = (1..=count).map(|id| (id, text(id), raw(id))).collect();
    assert_eq!(messages.len(), expected.len());
    assert!(messages == expected);
}

#[test]
fn two_processes_write_one_session_and_each_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let children = ["one", "two"].map(|own| child(own, directory.path()));
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    for name in ["both", "one", "two"] {
        let session = store.find_session(name).unwrap().unwrap();
        assert_whole(&store, session, 600);
        assert_eq!(store.session_info(session).unwrap().messages, 600);
        assert_eq!(total(&store, session, Mode::FullText, "needle-77-x"), 1);
        store.index_now(session).unwrap();
        assert_eq!(store.check_index(session).unwrap().wrong, []);
    }
    assert!(store.check(|_, _| ()).unwrap().is_sound());
}

#[test]
fn a_lock_that_outlasts_a_turn_is_said_in_time_and_the_next_turn_makes_up_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    host.turn(3).unwrap();
    let mut holder = child("hold", directory.path());
    while !directory.path().join("held").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let since = Instant::now();
    let error = host.turn(2).unwrap_err();
    let EngineError::Storage(why) = &error else {
        panic!("{error}");
    };
    assert!(why.contains("locked by another process"), "{why}");
    assert!(
        since.elapsed() < Duration::from_secs(2),
        "{:?}",
        since.elapsed()
    );
    // Reading waits for nobody.
    let since = Instant::now();
    let found = host.tool("lcm_grep", &json!({"pattern": "needle-2-x"}));
    assert_eq!(found["total"], 1);
    assert!(since.elapsed() < Duration::from_secs(1));
    // What could not be cut off is cut off later.
    host.rewind(1);
    holder.wait().unwrap();
    host.turn(1).unwrap();
    assert_eq!(host.kept.log, [1, 2, 3, 4, 6]);
    host.check("after the lock");
}

/// A small file system of its own, where this process may mount one.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self { directory });
        }
        println!("skipped: this process may not mount a small file system");
        None
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn remount(&self, how: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(self.path())
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn a_disk_that_is_full_loses_nothing_and_goes_on_once_there_is_room() {
    let Some(disk) = SmallDisk::mount("3m") else {
        return;
    };
    let own = tempfile::tempdir().unwrap();
    let open = || SmallHost::open_apart(own.path(), disk.path(), WINDOW).unwrap();
    let mut host = open();
    for _ in 0..10 {
        host.turn(3).unwrap();
        host.compact_if_due(&mut |_| ()).unwrap();
    }
    // All that is left of the disk, but for a little.
    let filler = disk.path().join("filler");
    let mut rest = vec![0u8; 4 << 20];
    while std::fs::write(&filler, &rest).is_err() {
        rest.truncate(rest.len() - 4096);
    }
    rest.truncate(rest.len().saturating_sub(48 * 1024));
    std::fs::write(&filler, &rest).unwrap();
    let full = format!(
        "storage: the disk is full, so that {} cannot be written; free some space, then try again: nothing was lost",
        disk.path().join("lcm.sqlite3").display()
    );
    let mut why = None;
    for _ in 0..200 {
        if let Err(error) = host.turn(3) {
            why = Some(error.to_string());
            break;
        }
        if let Err(error) = host.compact_if_due(&mut |_| ()) {
            why = Some(error.to_string());
            break;
        }
    }
    assert_eq!(why.as_deref(), Some(full.as_str()));
    let found = host.tool("lcm_grep", &json!({"pattern": "needle-2-x"}));
    assert_eq!(found["total"], 1, "reading goes on");
    let log = host.kept.log.clone();
    drop(host);
    std::fs::remove_file(&filler).unwrap();
    let mut host = open();
    assert_eq!(host.kept.log, log);
    host.turn(3).unwrap();
    host.compact_if_due(&mut |_| ()).unwrap();
    host.check("with room again");
}

#[test]
fn a_store_that_is_removed_while_it_is_open_takes_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("lcm");
    let own = directory.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::create_dir(&place).unwrap();
    let open = || SmallHost::open_apart(&own, &place, WINDOW).unwrap();
    let mut host = open();
    host.turn(3).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let error = host.turn(3).unwrap_err().to_string();
    assert!(error.contains("was removed while it was in use"), "{error}");
    drop(host);
    // The place is there again: all is delivered anew.
    std::fs::create_dir(&place).unwrap();
    let mut host = open();
    host.turn(3).unwrap();
    host.check("in a new store");
}

#[test]
fn a_disk_that_is_read_only_is_said_and_nothing_is_lost() {
    let Some(disk) = SmallDisk::mount("8m") else {
        return;
    };
    let mut host = SmallHost::open(disk.path(), WINDOW).unwrap();
    host.turn(5).unwrap();
    let log = host.kept.log.clone();
    drop(host);
    disk.remount("ro");
    let Err(error) = SmallHost::open(disk.path(), WINDOW) else {
        panic!("a store that cannot be written is no store");
    };
    assert!(
        error.to_string().contains("check the permissions"),
        "{error}"
    );
    disk.remount("rw");
    let mut host = SmallHost::open(disk.path(), WINDOW).unwrap();
    assert_eq!(host.kept.log, log);
    host.check("writable again");
}

#[test]
fn a_directory_that_may_not_be_written_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(directory.path(), 0o555);
    if std::fs::write(directory.path().join("try"), "").is_ok() {
        println!("skipped: permissions do not bind this user");
        set(directory.path(), 0o755);
        return;
    }
    let opened = Store::open(directory.path(), StoreSettings::default());
    set(directory.path(), 0o755);
    assert!(matches!(opened, Err(StoreError::ReadOnly(_))), "{opened:?}");
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    let file = store.path().to_owned();
    drop(store);
    set(&file, 0o444);
    let opened = Store::open(directory.path(), StoreSettings::default());
    set(&file, 0o644);
    assert!(matches!(opened, Err(StoreError::ReadOnly(_))), "{opened:?}");
}

#[test]
fn a_clock_that_goes_back_does_not_change_the_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s", 5_000).unwrap();
    let times = [1_000, 900, 5, 2_000, -40, 1_999];
    for (id, time) in (1..).zip(times) {
        let (text, raw) = (text(id), raw(id));
        let view = small_host::view(id, &text, &raw).with_time(time);
        let now_ms = 10_000 - time;
        store
            .deliver(session, &Delivery::new(&[view], id), now_ms)
            .unwrap();
    }
    let info = store.session_info(session).unwrap();
    assert_eq!((info.touched_at, info.last_at), (8_001, 2_000));
    let ask = Ask::Pattern(Pattern::new(Mode::Literal, "needle"));
    for (sort, ids) in [
        (Sort::Oldest, [1, 2, 3, 4, 5, 6]),
        (Sort::Recency, [6, 5, 4, 3, 2, 1]),
    ] {
        let query = Query {
            sort: Some(sort),
            ..Query::new(session, ask.clone())
        };
        let found = store.search(&query, &|| false).unwrap();
        let order: Vec<u64> = found
            .hits
            .iter()
            .map(|hit| u64::from(hit.key.ordinal()) + 1)
            .collect();
        assert_eq!(order, ids);
    }
    let rows = store.rows(session, 0..6).unwrap();
    let said: Vec<_> = rows.iter().map(|row| row.at.unwrap()).collect();
    assert_eq!(said, times, "each keeps the time at which it was said");
}

#[test]
fn a_session_in_use_is_not_old_though_its_messages_say_no_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    for _ in 0..40 {
        host.turn(2).unwrap();
        host.lends.advance_clock(DAY);
    }
    let now = contexture_testkit::START_MS + 40 * DAY;
    let delete = |older_than_ms| StoreCommand::Delete {
        session: None,
        older_than_ms: Some(older_than_ms),
        dry_run: false,
    };
    let gone = host.factory.manage(&delete(now - 30 * DAY)).unwrap();
    assert_eq!(gone["sessions"], json!([]));
    host.check("still there");
    // Deleted beside its open engine, which then has nowhere to write to.
    let gone = host.factory.manage(&delete(now + DAY)).unwrap();
    assert_eq!(gone["sessions"], json!(["s"]));
    assert_eq!(gone["messages"], 80);
    let error = host.turn(2).unwrap_err().to_string();
    assert!(error.contains("was deleted"), "{error}");
    drop(host);
    // Opened anew, the host shows all that it has.
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    host.check("kept again");
}

/// A store with compactions, of which copies are damaged; and how many messages it holds.
fn sample() -> (Vec<u8>, u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    for turn in 0..120 {
        host.turn(1 + turn % 4).unwrap();
        host.compact_if_due(&mut |_| ()).unwrap();
    }
    host.check("whole");
    assert!(host.tool("lcm_status", &json!({}))["window"]["nodes"].as_u64() > Some(2));
    let count = host.kept.log.len() as u64;
    host.engine.end();
    drop(host);
    let path = directory.path().join(FILE_NAME);
    let truth: Vec<(u64, String)> = {
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.find_session("s").unwrap().unwrap();
        assert_eq!(store.session_info(session).unwrap().messages as u64, count);
        let rows = store.rows(session, 0..u32::MAX).unwrap();
        rows.iter().map(|row| (row.id.0, text(row.id.0))).collect()
    };
    assert_eq!(truth.len() as u64, count);
    (std::fs::read(path).unwrap(), count)
}

/// Whatever of a store can be read is true; gives how many messages that is.
fn assert_true(store: &Store) -> u64 {
    let mut read = 0;
    for info in store.sessions().unwrap_or_default() {
        for ordinal in 0..info.messages.min(10_000) {
            let Ok(messages) = store.messages(info.id, ordinal..ordinal + 1) else {
                continue;
            };
            for message in messages {
                let id = message.row.id.0;
                assert_eq!(message.text, text(id));
                assert_eq!(message.raw, raw(id));
                assert_eq!(message.row.role, role(id));
                read += 1;
            }
        }
        for (mode, pattern) in [(Mode::FullText, "needle"), (Mode::Regex, "needle-[0-9]+-x")] {
            let ask = Ask::Pattern(Pattern::new(mode, pattern));
            let _ = store.search(&Query::new(info.id, ask), &|| false);
        }
        let ask = Ask::Question("which words of it go on".to_owned());
        let _ = store.search(&Query::new(info.id, ask), &|| false);
    }
    read
}

/// Damage is found, what is returned is true, and a repair accounts for the rest.
fn assert_survives(bytes: &[u8], count: u64, context: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join(FILE_NAME);
    std::fs::write(&path, bytes).unwrap();
    match Store::open(directory.path(), StoreSettings::default()) {
        Ok(store) => {
            let read = assert_true(&store);
            let check = store.check(|_, _| ()).unwrap();
            assert!(
                read == count || !check.is_sound(),
                "{context}: {read} of {count} messages and nothing is said"
            );
        }
        Err(StoreError::Damaged(_) | StoreError::Foreign(_) | StoreError::NewerSchema { .. }) => {}
        Err(error) => panic!("{context}: {error}"),
    }
    let before = std::fs::read(&path).unwrap();
    match Store::repair(directory.path(), |_, _| ()) {
        Ok(report) => {
            assert_eq!(std::fs::read(&report.kept).unwrap(), before, "{context}");
            let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
            let check = store.check(|_, _| ()).unwrap();
            assert!(check.is_sound(), "{context}: {check:?}");
            assert_eq!(assert_true(&store), report.messages, "{context}");
            drop(store);
            // A session goes on, whatever its host has.
            let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
            host.turn(3).unwrap();
        }
        // Of another program or version, where its tables do not say otherwise.
        Err(
            StoreError::NothingLeft(_) | StoreError::Foreign(_) | StoreError::NewerSchema { .. },
        ) => {
            assert_eq!(std::fs::read(&path).unwrap(), before, "{context}");
        }
        Err(error) => panic!("{context}: {error}"),
    }
}

/// The tables of the sample that hold what cannot be made anew, and a column that tells their rows apart.
const TABLES: [(&str, &str); 8] = [
    ("sessions", "id"),
    ("live", "session"),
    ("messages", "id"),
    ("blocks", "id"),
    ("nodes", "id"),
    ("node_messages", "message"),
    ("node_children", "child"),
    ("frontier", "position"),
];

#[test]
fn a_summary_of_another_type_is_damage_that_a_repair_mends() {
    let (bytes, count) = sample();
    for column in ["data", "bytes", "hash"] {
        let set = format!("{column} = CASE id % 2 WHEN 0 THEN 7 ELSE 'seven' END");
        assert_changed_survives(&bytes, count, "nodes", &set);
    }
}

#[test]
fn a_value_of_another_type_is_damage_that_a_repair_mends() {
    let (bytes, count) = sample();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    std::fs::write(&path, &bytes).unwrap();
    let whole = rusqlite::Connection::open(&path).unwrap();
    let mut columns_of = whole
        .prepare("SELECT name, type FROM pragma_table_info(?1)")
        .unwrap();
    for (table, key) in TABLES {
        let columns = columns_of.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)));
        let columns: Vec<(String, String)> = columns.unwrap().map(Result::unwrap).collect();
        // A key that is a row's number is of no other type in any file.
        for (column, kind) in columns.into_iter().filter(|(name, _)| name != "id") {
            let [one, another] = match kind.as_str() {
                "INTEGER" => ["x'07'", "'seven'"],
                // A number becomes a text there.
                "TEXT" => ["x'07'", "x'08'"],
                "BLOB" => ["7", "'seven'"],
                other => panic!("{table}.{column} is of the type {other}"),
            };
            let set =
                format!("{column} = iif({key} % 4 = 1, {one}, {another}) WHERE {key} % 2 = 1");
            assert_changed_survives(&bytes, count, table, &set);
        }
    }
}

#[test]
fn a_number_out_of_range_is_damage_that_a_repair_mends() {
    let (bytes, count) = sample();
    for (table, column) in [
        ("sessions", "next_ordinal"),
        ("live", "first"),
        ("live", "end"),
        ("messages", "session"),
        ("nodes", "depth"),
    ] {
        for number in [-7, i64::MAX] {
            assert_changed_survives(&bytes, count, table, &format!("{column} = {number}"));
        }
    }
}

/// [`assert_survives`], of a store with other values in a table.
fn assert_changed_survives(bytes: &[u8], count: u64, table: &str, set: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    std::fs::write(&path, bytes).unwrap();
    let store = rusqlite::Connection::open(&path).unwrap();
    store.pragma_update(None, "foreign_keys", false).unwrap();
    let change = format!("UPDATE OR IGNORE {table} SET {set}");
    assert!(store.execute(&change, []).unwrap() > 0, "{change}");
    drop(store);
    assert_survives(&std::fs::read(&path).unwrap(), count, &change);
}

#[test]
fn a_file_that_is_cut_off_is_repaired_or_refused() {
    let (bytes, count) = sample();
    for part in [0, 1, 10, 60, 99, 100, 512, 4_096, 5_000, 40_960] {
        let cut = part.min(bytes.len());
        assert_survives(&bytes[..cut], count, &format!("cut to {cut}"));
        let cut = bytes.len().saturating_sub(part);
        assert_survives(&bytes[..cut], count, &format!("cut by {part}"));
    }
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_of_which_nothing_is_left_is_refused_untouched_and_repaired() {
    for left in [0, 1, 99] {
        let directory = tempfile::tempdir().unwrap();
        let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
        for _ in 0..5 {
            host.turn(4).unwrap();
        }
        drop(host);
        let path = directory.path().join(FILE_NAME);
        let bytes = std::fs::read(&path).unwrap()[..left].to_vec();
        std::fs::write(&path, &bytes).unwrap();
        let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
        let Err(EngineError::Storage(why)) = SmallHost::open(directory.path(), WINDOW) else {
            panic!("a store that was cut to {left} bytes is taken for a new one");
        };
        for part in [
            path.to_str().unwrap(),
            &format!("has {left} bytes"),
            "contexture sessions repair",
            "keep both",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let factory = small_host::factory(directory.path()).unwrap();
        let dry = factory.manage(&StoreCommand::Repair { dry_run: true });
        assert_eq!(dry.unwrap()["found"]["ok"], false);
        let now = std::fs::metadata(&path).unwrap();
        assert_eq!((now.len(), now.modified().unwrap()), (left as u64, changed));

        let repaired = factory.manage(&StoreCommand::Repair { dry_run: false });
        let repaired = repaired.unwrap();
        assert_eq!(repaired["messages"], 0);
        assert!(repaired["messages_lost"].is_null(), "nobody knows");
        let kept = repaired["kept"].as_str().unwrap();
        assert_eq!(std::fs::read(kept).unwrap(), bytes);
        drop(factory);
        // The host shows again what it has.
        let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
        host.turn(2).unwrap();
        host.check("repaired");
    }
}

#[test]
fn what_the_log_holds_outlives_its_file() {
    // Cut to nothing, or moved away alone.
    for is_there in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let from = tempfile::tempdir().unwrap();
        let store = Store::open(from.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s", 0).unwrap();
        deliver(&store, session, 1..=40).unwrap();
        let path = directory.path().join(FILE_NAME);
        let log = directory.path().join(format!("{FILE_NAME}-wal"));
        std::fs::copy(from.path().join(format!("{FILE_NAME}-wal")), &log).unwrap();
        if is_there {
            std::fs::write(&path, "").unwrap();
        }
        drop(store);
        let bytes = std::fs::read(&log).unwrap();
        let error = Store::open(directory.path(), StoreSettings::default()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged(_)), "{error}");
        assert!(error.to_string().contains("-wal"), "{error}");
        assert_eq!(std::fs::read(&log).unwrap(), bytes);
        assert_eq!(path.exists(), is_there);
        let repaired = Store::repair(directory.path(), |_, _| ()).unwrap();
        assert_eq!((repaired.messages, repaired.lost), (40, None));
        let mut kept = repaired.kept.into_os_string();
        kept.push("-wal");
        assert_eq!(std::fs::read(kept).unwrap(), bytes);
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.find_session("s").unwrap().unwrap();
        assert_whole(&store, session, 40);
        assert!(store.check(|_, _| ()).unwrap().is_sound());
    }
}

#[test]
fn a_store_that_is_being_made_when_the_process_is_killed_is_whole_or_not_there() {
    for round in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let mut maker = child("make", directory.path());
        while !directory.path().join("1").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        maker.kill().unwrap();
        maker.wait().unwrap();
        for made in files_in(directory.path()) {
            let made = directory.path().join(made);
            let store = Store::open(&made, StoreSettings::default()).unwrap();
            let session = store.open_session("s", 0).unwrap();
            deliver(&store, session, 1..=4).unwrap();
            drop(store);
            assert_eq!(files_in(&made), [FILE_NAME]);
        }
    }
}

#[test]
fn one_store_is_made_however_many_make_it_at_once() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for own in 0..6 {
                let directory = directory.path();
                scope.spawn(move || {
                    let store = Store::open(directory, StoreSettings::default()).unwrap();
                    let session = store.open_session(&own.to_string(), 0).unwrap();
                    deliver(&store, session, 1..=4).unwrap();
                });
            }
        });
        // SQLite leaves its log where two close the store at the same moment.
        let files = files_in(directory.path());
        assert!(
            files.iter().all(|file| file.starts_with(FILE_NAME)),
            "{files:?}"
        );
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let sessions = store.sessions().unwrap();
        assert_eq!(sessions.len(), 6);
        for info in sessions {
            assert_whole(&store, info.id, 4);
        }
    }
}

#[test]
fn flipped_bytes_are_noticed_and_never_returned() {
    let cases = std::env::var("CONTEXTURE_LCM_FLIPS").map_or(24, |cases| cases.parse().unwrap());
    let (bytes, count) = sample();
    let pages = bytes.len() / 4_096;
    let damage = prop::collection::vec(
        (
            0..pages,
            prop::collection::vec((0..4_096usize, 1..=255u8), 1..12),
        ),
        1..5,
    );
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 0,
        ..ProptestConfig::with_cases(cases)
    };
    proptest!(config, |(damage in damage)| {
        let mut bytes = bytes.clone();
        for (page, flips) in &damage {
            for (at, by) in flips {
                bytes[page * 4_096 + at] ^= by;
            }
        }
        assert_survives(&bytes, count, &format!("{damage:?}"));
    });
    println!("{cases} flips: damaged copies of a store, none of which gave a wrong message");
}

#[test]
fn a_column_of_another_name_is_damage() {
    let (bytes, count) = sample();
    let description = "CREATE TABLE term_chunks(\n    id ";
    let at = memchr::memmem::find(&bytes, description.as_bytes()).unwrap();
    let mut damaged = bytes.clone();
    damaged[at + description.len() - 2] ^= 1;
    assert_survives(&damaged, count, "another table's key points nowhere");
}

/// Where the cells of a page begin that holds rows of a table, each of 128 bytes to 16 KiB: its size in two
/// bytes, then its key in five.
fn cells(page: &[u8]) -> Vec<usize> {
    if page[0] != 13 {
        return Vec::new();
    }
    let number = |at: usize| usize::from(page[at]) << 8 | usize::from(page[at + 1]);
    let cells = (0..number(3)).map(|cell| number(8 + 2 * cell));
    cells
        .filter(|at| page[*at] >= 128 && page[at + 1] < 128 && page[at + 2] == 0x90)
        .collect()
}

#[test]
fn a_row_that_cannot_be_read_before_one_out_of_order_does_not_hold_a_repair_up() {
    let (bytes, count) = sample();
    let mut tried = 0;
    for first in (PAGE..bytes.len()).step_by(PAGE) {
        let cells = cells(&bytes[first..first + PAGE]);
        for pair in cells.windows(2).take(3) {
            let mut bytes = bytes.clone();
            // Longer than it is, and with a lesser key than it has.
            bytes[first + pair[0]..first + pair[0] + 2].copy_from_slice(&[0xff, 0x7f]);
            bytes[first + pair[1] + 2] = 0x8f;
            let (done, is_done) = std::sync::mpsc::channel();
            let context = format!("page {} at {pair:?}", first / PAGE + 1);
            let named = context.clone();
            std::thread::spawn(move || {
                assert_survives(&bytes, count, &named);
                done.send(()).unwrap();
            });
            let ended = is_done.recv_timeout(Duration::from_secs(30));
            assert!(ended.is_ok(), "{context}");
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn a_hundred_thousand_messages_in_one_session() {
    const COUNT: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let says = |id: u64| format!("{} said-{id} in the {}th hour", role(id), id / 1_000);
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s", 0).unwrap();
    for first in (1..=COUNT).step_by(500) {
        let texts: Vec<(u64, String)> = (first..first + 500).map(|id| (id, says(id))).collect();
        let views: Vec<_> = texts
            .iter()
            .map(|(id, text)| MessageView::new(MessageId(*id), role(*id)).with_text(text))
            .collect();
        store.ingest(session, &views, first + 499).unwrap();
    }
    store.index_soon(session);
    drop(store);
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    assert_eq!(store.session_info(session).unwrap().messages, 100_000);
    assert_eq!(
        store.indexed(session).unwrap(),
        100_000,
        "closing waits for the index"
    );
    let seen = store.observed(session).unwrap().unwrap();
    assert_eq!((seen.last.0, seen.chain), (COUNT, COUNT));
    for (mode, pattern, expected) in [
        (Mode::FullText, "hour", COUNT),
        (Mode::FullText, "assistant", COUNT / 2),
        (Mode::FullText, "7th", 1_000),
        (Mode::Literal, "said-77777", 1),
        (Mode::Literal, "said-9999", 11),
        (Mode::Regex, r"said-\d{5} ", 90_000),
    ] {
        assert_eq!(total(&store, session, mode, pattern), expected, "{pattern}");
    }
    let mut seen = 0;
    for first in (0..COUNT as u32).step_by(5_000) {
        for message in store.messages(session, first..first + 5_000).unwrap() {
            seen += 1;
            assert_eq!((message.row.id.0, message.text), (seen, says(seen)));
        }
    }
    assert_eq!(seen, COUNT);
}

#[test]
fn a_store_that_no_session_can_open_is_repaired_by_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    for _ in 0..20 {
        host.turn(4).unwrap();
        host.compact_if_due(&mut |_| ()).unwrap();
    }
    drop(host);
    let path = directory.path().join(FILE_NAME);
    let mut bytes = std::fs::read(&path).unwrap();
    let schema = bytes
        .windows(22)
        .position(|at| at == b"CREATE TABLE segments(");
    let schema = schema.unwrap();
    bytes[schema..schema + 12].fill(b'#');
    std::fs::write(&path, &bytes).unwrap();
    assert!(SmallHost::open(directory.path(), WINDOW).is_err());
    let factory = small_host::factory(directory.path()).unwrap();
    let error = factory.manage(&StoreCommand::List).unwrap_err().to_string();
    assert!(error.contains("contexture sessions repair"), "{error}");
    let found = factory.manage(&StoreCommand::Repair { dry_run: true });
    assert_eq!(found.unwrap()["found"]["ok"], false);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let repaired = factory.manage(&StoreCommand::Repair { dry_run: false });
    let repaired = repaired.unwrap();
    assert_eq!(
        (&repaired["messages"], &repaired["messages_lost"]),
        (&json!(80), &json!(0))
    );
    let kept = repaired["kept"].as_str().unwrap();
    assert_eq!(std::fs::read(kept).unwrap(), bytes);
    let gc = factory.manage(&StoreCommand::Gc { dry_run: true }).unwrap();
    assert_eq!(gc["copies_beside_the_store"][0]["path"], kept);
    drop(factory);
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    host.turn(2).unwrap();
    host.check("repaired");
}

const PAGE: usize = 4_096;

/// The pages below the first that hold the definitions of tables, from 0.
fn definition_pages(bytes: &[u8]) -> Vec<usize> {
    let defines = |page: &[u8]| page.windows(9).any(|at| at == b"CREATE TA");
    let pages = bytes.chunks(PAGE).enumerate();
    pages
        .filter(|(_, page)| page[0] == 13 && defines(page))
        .map(|(at, _)| at)
        .collect()
}

/// All that was in a store is there after a repair, and the damaged file as it was.
fn assert_saved_whole(bytes: &[u8], log: Option<&[u8]>, count: u64, context: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    std::fs::write(&path, bytes).unwrap();
    if let Some(log) = log {
        std::fs::write(directory.path().join(format!("{FILE_NAME}-wal")), log).unwrap();
    }
    let repaired = Store::repair(directory.path(), |_, _| ());
    let repaired = repaired.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(
        (repaired.messages, repaired.lost, repaired.summaries_lost),
        (count, Some(0), 0),
        "{context}"
    );
    assert!(repaired.summaries > 2, "{context}: {repaired:?}");
    assert!(std::fs::read(&repaired.kept).unwrap() == bytes, "{context}");
    if let Some(log) = log {
        let kept = format!("{}-wal", repaired.kept.display());
        assert!(std::fs::read(kept).unwrap() == log, "{context}");
    }
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    assert!(store.check(|_, _| ()).unwrap().is_sound(), "{context}");
    assert_eq!(assert_true(&store), count, "{context}");
    drop(store);
    let beside = files_in(directory.path());
    assert!(
        beside.iter().all(|name| !name.contains("stand-in")),
        "{beside:?}"
    );
}

/// Ways in which a file no longer says what lies where, while all of what lies there is whole.
fn damaged_definitions(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut cases = Vec::new();
    let mut case = |name: &str, damage: &dyn Fn(&mut [u8])| {
        let mut damaged = bytes.to_vec();
        damage(&mut damaged);
        assert!(damaged != bytes, "{name}");
        cases.push((name.to_owned(), damaged));
    };
    let find = |text: &[u8]| bytes.windows(text.len()).position(|at| at == text).unwrap();
    let messages = find(b"CREATE TABLE messages(");
    for (name, at) in [("keyword", 3), ("name", 15), ("column", 40)] {
        case(&format!("{name} of messages"), &|bytes| {
            bytes[messages + at] ^= 4
        });
    }
    // Its number of the page on which the table begins, before its text.
    case("root of messages", &|bytes| bytes[messages - 1] ^= 2);
    let pages = definition_pages(bytes);
    assert!(pages.len() > 1, "{pages:?}");
    for page in pages.clone() {
        case(&format!("zeros over page {page}"), &|bytes| {
            bytes[page * PAGE..(page + 1) * PAGE].fill(0);
        });
    }
    case("zeros over the first page's definitions", &|bytes| {
        bytes[100..PAGE].fill(0)
    });
    case("zeros over the first page", &|bytes| bytes[..PAGE].fill(0));
    case("zeros over the first page after the magic", &|bytes| {
        bytes[16..PAGE].fill(0)
    });
    case(
        "noise over all that defines tables, and the header",
        &|bytes| {
            for page in pages.iter().chain([&0]) {
                for (at, byte) in bytes[page * PAGE..(page + 1) * PAGE].iter_mut().enumerate() {
                    *byte = ((at * 7_919) >> 3) as u8;
                }
            }
        },
    );
    for at in (0..100).step_by(3) {
        case(&format!("byte {at} of the header"), &|bytes| {
            bytes[at] ^= 0x81;
        });
    }
    for (name, range) in [
        ("the header", 0..100),
        ("all of the header but the magic", 16..100),
        ("the page size", 16..18),
        ("the number of pages", 28..32),
        ("program and version", 60..72),
    ] {
        for by in [0x00, 0xff] {
            case(&format!("{by:x} over {name}"), &|bytes| {
                bytes[range.clone()].fill(by)
            });
        }
    }
    cases
}

#[test]
fn a_file_that_no_longer_says_what_lies_where_is_saved_whole() {
    let (bytes, count) = sample();
    for (context, damaged) in damaged_definitions(&bytes) {
        // Nothing but the repair has to work, and it has to be within reach.
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), &damaged).unwrap();
        let reached = small_host::factory(directory.path()).map(|_| ());
        assert_eq!(reached, Ok(()), "{context}");
        assert_saved_whole(&damaged, None, count, &context);
    }
}

/// Zeros over the first page, and over all other pages that define tables.
fn without_definitions(bytes: &[u8]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for page in definition_pages(bytes).into_iter().chain([0]) {
        damaged[page * PAGE..(page + 1) * PAGE].fill(0);
    }
    damaged
}

#[test]
fn what_lies_where_is_known_after_a_vacuum_and_after_room_was_given_back() {
    let (bytes, count) = sample();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    for how in ["vacuumed", "given back", "rebuilt"] {
        std::fs::write(&path, &bytes).unwrap();
        match how {
            "vacuumed" => {
                let connection = rusqlite::Connection::open(&path).unwrap();
                connection.execute_batch("VACUUM").unwrap();
            }
            "given back" => {
                let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
                let before = store.open_session("before", 0).unwrap();
                deliver(&store, before, 1..=400).unwrap();
                store.delete_sessions(&[before]).unwrap();
                assert!(store.free_bytes().unwrap() > 0);
                store.shrink(|_, _| ()).unwrap();
                assert_eq!(store.free_bytes().unwrap(), 0);
            }
            // In a layout of nobody's, which only the file itself can tell.
            _ => {
                let connection = rusqlite::Connection::open(&path).unwrap();
                let off = "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM;";
                connection.execute_batch(off).unwrap();
                let first = std::fs::read(&path).unwrap();
                assert_saved_whole(&first, None, count, how);
                continue;
            }
        }
        let now = std::fs::read(&path).unwrap();
        assert_saved_whole(&now, None, count, how);
        assert_saved_whole(&without_definitions(&now), None, count, how);
    }
}

#[test]
fn a_log_is_taken_in_where_the_file_does_not_say_what_lies_where() {
    let (bytes, count) = sample();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    std::fs::write(&path, &bytes).unwrap();
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.find_session("s").unwrap().unwrap();
    let last = store.observed(session).unwrap().unwrap().last.0;
    deliver(&store, session, last + 1..=last + 40).unwrap();
    let log = std::fs::read(directory.path().join(format!("{FILE_NAME}-wal"))).unwrap();
    let file = std::fs::read(&path).unwrap();
    drop(store);
    for damaged in [file.clone(), without_definitions(&file)] {
        assert_saved_whole(&damaged, Some(&log), count + 40, "with its log");
    }
}

#[test]
fn another_programs_file_and_a_newer_ones_are_left_alone() {
    type Expected = fn(&StoreError) -> bool;
    let (bytes, _) = sample();
    let foreign: Expected = |error| matches!(error, StoreError::Foreign(_));
    let newer: Expected = |error| matches!(error, StoreError::NewerSchema { found: 3, .. });
    let nothing: Expected =
        |error| matches!(error, StoreError::Damaged(_) | StoreError::NothingLeft(_));
    let cases: [(&str, Expected); 3] = [
        (
            "PRAGMA application_id = 7; ALTER TABLE live RENAME TO dead",
            foreign,
        ),
        (
            "PRAGMA user_version = 3; ALTER TABLE live ADD COLUMN more",
            newer,
        ),
        ("", nothing),
    ];
    for (change, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        match change {
            "" => std::fs::write(&path, "no database at all, but a text. ".repeat(9_000)).unwrap(),
            change => {
                std::fs::write(&path, &bytes).unwrap();
                let connection = rusqlite::Connection::open(&path).unwrap();
                connection.execute_batch(change).unwrap();
            }
        }
        let before = std::fs::read(&path).unwrap();
        let opened = Store::open(directory.path(), StoreSettings::default());
        assert!(opened.is_err_and(|error| expected(&error)), "{change}");
        let repaired = Store::repair(directory.path(), |_, _| ());
        assert!(repaired.is_err_and(|error| expected(&error)), "{change}");
        assert!(std::fs::read(&path).unwrap() == before);
        assert_eq!(files_in(directory.path()), [FILE_NAME], "{change}");
    }
}

#[test]
fn a_check_is_called_off_from_another_thread() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    for _ in 0..100 {
        host.turn(4).unwrap();
    }
    for command in [StoreCommand::Verify, StoreCommand::Repair { dry_run: true }] {
        // Nothing is under way that could be called off.
        host.factory.manage(&StoreCommand::Cancel).unwrap();
        host.factory.manage(&command).unwrap();
        let error = std::thread::scope(|scope| {
            let factory = &host.factory;
            let checks = scope.spawn(|| (0..1_000).find_map(|_| factory.manage(&command).err()));
            while !checks.is_finished() {
                factory.manage(&StoreCommand::Cancel).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            checks.join().unwrap()
        });
        assert_eq!(error, Some(EngineError::Cancelled));
        let copy = StoreCommand::Backup {
            to: directory.path().join("copy"),
        };
        assert!(host.factory.manage(&copy).is_ok(), "the next command runs");
        std::fs::remove_file(directory.path().join("copy")).unwrap();
    }
    host.check("checked");
}

#[test]
fn a_session_is_archived_and_comes_back_when_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    host.turn(2).unwrap();
    let archive = |archived| StoreCommand::Archive {
        session: "s".to_owned(),
        archived,
    };
    let archived = |host: &SmallHost| {
        let list = host.factory.manage(&StoreCommand::List).unwrap();
        !list["sessions"][0]["archived"].is_null()
    };
    host.factory.manage(&archive(true)).unwrap();
    assert!(archived(&host));
    host.factory.manage(&archive(false)).unwrap();
    assert!(!archived(&host));
    host.factory.manage(&archive(true)).unwrap();
    host.turn(2).unwrap();
    assert!(!archived(&host));
    host.check("in use again");
}

#[test]
fn summaries_that_nothing_leads_to_go_and_those_of_the_window_stay() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    let mut compactions = 0;
    while compactions < 4 {
        host.turn(4).unwrap();
        compactions += u32::from(host.compact_if_due(&mut |_| ()).unwrap());
    }
    let window = host.tool("lcm_status", &json!({}))["window"].clone();
    // A proposal that came to nothing, as a process that was killed leaves it, and one that is being decided on.
    let path = directory.path().join(FILE_NAME);
    let orphan = |place: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let id: i64 = connection
            .query_row(&format!("SELECT {place} FROM nodes"), [], |row| row.get(0))
            .unwrap();
        let node = "INSERT INTO nodes SELECT ?1, session, depth, level, degraded, tokens, messages,
                        source_tokens, first, last, first_at, last_at, created_at, model, hash, bytes, data
                    FROM nodes WHERE id = (SELECT min(node) FROM node_messages)";
        let source = "INSERT INTO node_messages SELECT ?1, message FROM node_messages
                      WHERE node = (SELECT min(node) FROM node_messages)";
        for statement in [node, source] {
            connection.execute(statement, [id]).unwrap();
        }
    };
    orphan("min(id) - 1");
    orphan("max(id) + 1");
    let gc = |dry_run| host.factory.manage(&StoreCommand::Gc { dry_run }).unwrap();
    let dry = gc(true)["summaries"].as_u64().unwrap();
    assert!(dry >= 1);
    assert_eq!(gc(false)["summaries"], dry);
    assert_eq!(gc(false)["summaries"], 0);
    assert_eq!(host.tool("lcm_status", &json!({}))["window"], window);
    let newest: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row(
            "SELECT (SELECT max(id) FROM nodes) - (SELECT max(node) FROM frontier)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(newest, 1, "what is being decided on stays");
    host.check("swept");
}

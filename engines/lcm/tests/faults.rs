//! What happens to disks, files and clocks: what is derived of a conversation is made anew, nothing is there twice, and
//! whoever waits is told why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init
)]

mod ingest;
mod small_host;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

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
                ingest::open(&new, StoreSettings::default()).unwrap();
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
    // The host of this process knows only what this one delivers: what is indexed is what it has.
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    let store = ingest::open(directory, settings).unwrap();
    let (both, own) = (
        store.open_session("both").unwrap(),
        store.open_session(own).unwrap(),
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
    let said: Vec<_> = ids.map(|id| (id, text(id), raw(id))).collect();
    let views: Vec<_> = said
        .iter()
        .map(|(id, text, raw)| small_host::view(*id, text, raw))
        .collect();
    store.ingest(session, &views).map(|_| ())
}

fn total(store: &Store, session: SessionId, mode: Mode, text: &str) -> u64 {
    let ask = Ask::Pattern(Pattern::new(mode, text));
    let found = store.search(&Query::new(session, ask), &|| false).unwrap();
    found.total
}

/// Each of these messages is there once, in order and whole.
fn assert_whole(store: &Store, session: SessionId, count: u64) {
    let messages: Vec<_> = store
        .messages(session, 0..u32::MAX)
        .unwrap()
        .into_iter()
        .filter(|message| message.row.is_current)
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
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    for name in ["both", "one", "two"] {
        let session = store.find_session(name).unwrap().unwrap();
        let host = ingest::host_of(directory.path());
        for id in 1..=600 {
            let (text, raw) = (text(id), raw(id));
            let views = [small_host::view(id, &text, &raw)];
            host.record_in(name, &Delivery::new(&views));
        }
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
        "storage: the disk is full, so {} cannot be written; free some space, then try again: nothing was lost",
        disk.path().join(FILE_NAME).display()
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
    let opened = ingest::open(directory.path(), StoreSettings::default());
    set(directory.path(), 0o755);
    assert!(matches!(opened, Err(StoreError::ReadOnly(_))), "{opened:?}");
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let file = store.path().to_owned();
    drop(store);
    set(&file, 0o444);
    let opened = ingest::open(directory.path(), StoreSettings::default());
    set(&file, 0o644);
    assert!(matches!(opened, Err(StoreError::ReadOnly(_))), "{opened:?}");
}

#[test]
fn a_clock_that_goes_back_does_not_change_the_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    let times = [1_000, 900, 5, 2_000, -40, 1_999];
    for (id, time) in (1..).zip(times) {
        let (text, raw) = (text(id), raw(id));
        let view = small_host::view(id, &text, &raw).with_time(time);
        let now_ms = 10_000 - time;
        store
            .tell(session, &Delivery::new(&[view]), now_ms)
            .unwrap();
    }
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
fn a_session_that_is_deleted_beside_its_open_engine_is_built_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    host.turn(2).unwrap();
    let delete = StoreCommand::Delete {
        session: "s".to_owned(),
    };
    host.factory.manage(&delete).unwrap();
    // The engine has nowhere to write to.
    let error = host.turn(2).unwrap_err().to_string();
    assert!(error.contains("was deleted"), "{error}");
    drop(host);
    // Opened anew, the host shows all that it has.
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    host.check("kept again");
}

/// A home with a conversation that was compacted: what the host keeps, and the engine's file.
fn sample_home() -> (tempfile::TempDir, Vec<u8>, serde_json::Value) {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    for turn in 0..60 {
        host.turn(1 + turn % 4).unwrap();
        host.compact_if_due(&mut |_| ()).unwrap();
        if turn % 23 == 22 {
            host.rewind(3);
        }
    }
    host.turn(1).unwrap();
    host.check("whole");
    let summaries = host.tool("lcm_status", &json!({}))["summaries"].clone();
    assert!(summaries[0]["nodes"].as_u64() > Some(1), "{summaries}");
    host.engine.end();
    drop(host);
    let bytes = std::fs::read(directory.path().join(FILE_NAME)).unwrap();
    (directory, bytes, summaries)
}

#[test]
fn whatever_befalls_the_file_all_of_it_is_made_anew() {
    type Damage = fn(&Path, &[u8]);
    let (home, bytes, summaries) = sample_home();
    let sql = |path: &Path, bytes: &[u8], change: &str| {
        std::fs::write(path, bytes).unwrap();
        let connection = rusqlite::Connection::open(path).unwrap();
        connection
            .execute_batch(&format!("PRAGMA foreign_keys = OFF; {change}"))
            .unwrap();
    };
    let changes = [
        "DELETE FROM messages",
        "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages)",
        "UPDATE messages SET hash = 0",
        "UPDATE sessions SET name = 'other'",
        "DELETE FROM nodes; DELETE FROM node_messages; DELETE FROM node_children; DELETE FROM frontier",
        "UPDATE nodes SET data = x'00'",
        "DELETE FROM segments",
        "DROP TABLE messages",
        "ALTER TABLE nodes RENAME COLUMN data TO other",
    ];
    let files: [(&str, Damage); 6] = [
        ("missing", |path, _| std::fs::remove_file(path).unwrap()),
        ("empty", |path, _| std::fs::write(path, "").unwrap()),
        ("a text", |path, _| {
            std::fs::write(path, "no database at all, but a text. ".repeat(9_000)).unwrap();
        }),
        ("half of it", |path, bytes| {
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("a bad page", |path, bytes| {
            let mut bytes = bytes.to_vec();
            bytes[4_096..12_288].fill(0x5a);
            std::fs::write(path, bytes).unwrap();
        }),
        ("a log of another file", |path, bytes| {
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
            let log = path.with_extension("sqlite3-wal");
            std::fs::write(log, &bytes[bytes.len() / 2..]).unwrap();
        }),
    ];
    let path = home.path().join(FILE_NAME);
    type Named<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let mut damages: Vec<Named<'_>> = Vec::new();
    for (name, damage) in files {
        let (path, bytes) = (&path, &bytes);
        damages.push((name, Box::new(move || damage(path, bytes))));
    }
    for change in changes {
        let (path, bytes, sql) = (&path, &bytes, &sql);
        damages.push((change, Box::new(move || sql(path, bytes, change))));
    }
    for (name, damage) in damages {
        damage();
        let mut host = SmallHost::open(home.path(), WINDOW).unwrap();
        host.turn(1).unwrap();
        host.rewind(1);
        host.turn(1).unwrap();
        // If nothing cascades, what belonged to a segment stays behind.
        let leaves_orphans = ["DELETE FROM segments", "DELETE FROM nodes", "UPDATE nodes"];
        if leaves_orphans.iter().any(|change| name.starts_with(change)) {
            host.tool("lcm_doctor", &json!({"repair": true}));
        }
        host.check(name);
        let now = host.tool("lcm_status", &json!({}))["summaries"].clone();
        assert_eq!(now, summaries, "{name}");
        let found = host.tool("lcm_grep", &json!({"pattern": "needle-2-x"}));
        assert_eq!(found["total"].as_u64().unwrap(), 1, "{name}: {found}");
        host.engine.end();
    }
}

/// While a program is updated, the version before may still run on the same home.
#[test]
fn the_file_of_another_version_stays_until_nobody_has_written_it_for_a_day() {
    let directory = tempfile::tempdir().unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
    let make = |name: &str, is_old: bool| {
        let file = std::fs::File::create(directory.path().join(name)).unwrap();
        if is_old {
            file.set_modified(long_ago).unwrap();
        }
    };
    make("lcm-6.sqlite3", false);
    // What was written last is in the log.
    make("lcm-8.sqlite3", true);
    make("lcm-8.sqlite3-wal", false);
    make("lcm.sqlite3", true);
    make("lcm-5.sqlite3", true);
    make("lcm-5.sqlite3-wal", true);
    make("notes.sqlite3", true);
    drop(Store::open(directory.path(), StoreSettings::default()).unwrap());
    assert_eq!(
        files_in(directory.path()),
        [
            "lcm-6.sqlite3", FILE_NAME, "lcm-8.sqlite3", "lcm-8.sqlite3-wal", "notes.sqlite3"
        ]
    );
}

#[test]
fn another_programs_file_is_left_alone() {
    let (home, bytes, _) = sample_home();
    let path = home.path().join(FILE_NAME);
    std::fs::write(&path, &bytes).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("PRAGMA application_id = 7")
        .unwrap();
    drop(connection);
    let before = std::fs::read(&path).unwrap();
    let opened = Store::open(home.path(), StoreSettings::default());
    assert!(matches!(opened, Err(StoreError::Foreign(_))), "{opened:?}");
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn a_conversation_that_the_host_lost_is_not_mixed_with_the_next_one() {
    let (home, ..) = sample_home();
    std::fs::remove_file(home.path().join("host.json")).unwrap();
    let mut host = SmallHost::open(home.path(), WINDOW).unwrap();
    host.turn(2).unwrap();
    host.check("begun anew");
    let found = host.tool("lcm_grep", &json!({"pattern": "needle-3-x"}));
    assert_eq!(found["total"], 0, "{found}");
    let status = host.tool("lcm_status", &json!({}));
    assert_eq!(status["messages"], 2, "{status}");
    assert_eq!(status["summaries"], json!([]), "{status}");
}

#[test]
fn flipped_bytes_change_no_word_that_is_shown() {
    let cases = std::env::var("CONTEXTURE_LCM_FLIPS").map_or(24, |cases| cases.parse().unwrap());
    let (home, bytes, _) = sample_home();
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
    let kept = std::fs::read(home.path().join("host.json")).unwrap();
    proptest!(config, |(damage in damage)| {
        let mut bytes = bytes.clone();
        for (page, flips) in &damage {
            for (at, by) in flips {
                bytes[page * 4_096 + at] ^= by;
            }
        }
        let path = home.path().join(FILE_NAME);
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(home.path().join("host.json"), &kept).unwrap();
        match SmallHost::open(home.path(), WINDOW) {
            Ok(mut host) => {
                host.turn(3).unwrap();
                let call = contexture_engine_api::ToolCall::new("lcm_recent", "{}");
                if let Ok(recent) = host.engine.call_tool(&call) {
                    let recent: serde_json::Value = serde_json::from_str(&recent).unwrap();
                    for message in recent["messages"].as_array().unwrap() {
                        let said = message["text"].as_str().unwrap();
                        let id = said.strip_prefix("message ").and_then(|rest| rest.split_once(','));
                        let id: Option<u64> = id.and_then(|(id, _)| id.parse().ok());
                        prop_assert!(id.is_some_and(|id| text(id) == said), "{}", message);
                    }
                }
            }
            // Its header says that it is another program's.
            Err(error) => prop_assert!(error.to_string().contains("not a store of this engine"), "{}", error),
        }
        let _ = std::fs::remove_file(&path);
        std::fs::write(home.path().join("host.json"), &kept).unwrap();
        let mut host = SmallHost::open(home.path(), WINDOW).unwrap();
        host.check("without the file");
    });
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
            let store = ingest::open(&made, StoreSettings::default()).unwrap();
            let session = store.open_session("s").unwrap();
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
                    let store = ingest::open(directory, StoreSettings::default()).unwrap();
                    let session = store.open_session(&own.to_string()).unwrap();
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
        let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
        let sessions = store.sessions().unwrap();
        assert_eq!(sessions.len(), 6);
        for info in sessions {
            assert_whole(&store, info.id, 4);
        }
    }
}

#[test]
fn a_hundred_thousand_messages_in_one_session() {
    const COUNT: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let says = |id: u64| format!("{} said-{id} in the {}th hour", role(id), id / 1_000);
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    for first in (1..=COUNT).step_by(500) {
        let texts: Vec<(u64, String)> = (first..first + 500).map(|id| (id, says(id))).collect();
        let views: Vec<_> = texts
            .iter()
            .map(|(id, text)| MessageView::new(MessageId(*id), role(*id)).with_text(text))
            .collect();
        store.ingest(session, &views).unwrap();
    }
    store.index_soon(session);
    drop(store);
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    assert_eq!(store.session_info(session).unwrap().messages, 100_000);
    assert_eq!(
        store.indexed(session).unwrap(),
        100_000,
        "closing waits for the index"
    );
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
fn a_check_is_called_off_from_another_thread() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
    for _ in 0..100 {
        host.turn(4).unwrap();
    }
    let command = StoreCommand::Verify;
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
    let list = StoreCommand::List;
    assert!(host.factory.manage(&list).is_ok(), "the next command runs");
    host.check("checked");
}

#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use contexture_engine_api::{Delivery, MessageId, MessageView};
use contexture_testkit::ScriptedHost;

use super::*;

/// So many that they need new pages.
const MORE: u32 = 2_000;

struct StoreSetup {
    _directory: tempfile::TempDir,
    store: Store,
    session: SessionId,
    host: Arc<ScriptedHost>,
}

/// A store with one message, after running this SQL on its writing connection.
fn store_after(sql: &str) -> StoreSetup {
    let directory = tempfile::tempdir().unwrap();
    let host = ScriptedHost::without_model();
    let store = (Store::open(directory.path(), StoreSettings::default()).unwrap())
        .over(Source::new("s", host.services(), false));
    let session = store.open_session("s").unwrap();
    let setup = StoreSetup {
        _directory: directory,
        store,
        session,
        host,
    };
    ingest(&setup, 1..=1).unwrap();
    let writer = setup.store.database().writer.take().unwrap();
    writer.execute_batch(sql).unwrap();
    drop(writer);
    setup
}

fn ingest(setup: &StoreSetup, ids: std::ops::RangeInclusive<u64>) -> Result<(), StoreError> {
    let said: Vec<_> = ids.map(|id| (id, format!("message {id}"))).collect();
    let views: Vec<_> = (said.iter())
        .map(|(id, text)| MessageView::new(MessageId(*id), "user").with_text(text))
        .collect();
    (setup.host).record_in("s", &Delivery::new(&views));
    (setup.store).ingest(setup.session, &views).map(|_| ())
}

fn ingest_more(setup: &StoreSetup) -> Result<(), StoreError> {
    ingest(setup, 2..=u64::from(MORE))
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    let setup = store_after("PRAGMA max_page_count = 1;");
    assert!(matches!(
        ingest_more(&setup),
        Err(StoreError::DiskFull(path)) if path == setup.store.path()
    ));
    assert_eq!(setup.store.session_info(setup.session).unwrap().messages, 1);
    let connection = setup.store.database().writer.take().unwrap();
    connection
        .execute_batch("PRAGMA max_page_count = 100000;")
        .unwrap();
}

#[test]
fn closing_leaves_one_file() {
    let setup = store_after("");
    ingest_more(&setup).unwrap();
    setup.store.index_now(setup.session).unwrap();
    let read = setup.store.messages(setup.session, 0..MORE).unwrap();
    assert_eq!(read.len() as u32, MORE);
    let StoreSetup {
        _directory: directory,
        store,
        ..
    } = setup;
    drop(store);
    let files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(files, [FILE_NAME]);
}

#[test]
fn a_read_only_file_is_said() {
    let setup = store_after("PRAGMA query_only = ON;");
    assert!(matches!(
        ingest_more(&setup),
        Err(StoreError::ReadOnly(path)) if path == setup.store.path()
    ));
    assert_eq!(setup.store.session_info(setup.session).unwrap().messages, 1);
}

#[test]
fn a_lock_is_said_readers_go_on_and_the_writer_recovers() {
    let setup = store_after("");
    let other = Connection::open(setup.store.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let since = std::time::Instant::now();
    let busy: Vec<_> = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| ingest_more(&setup)));
        both.map(|one| one.join().unwrap()).into_iter().collect()
    });
    assert!(
        busy.iter()
            .all(|one| matches!(one, Err(StoreError::Busy(path)) if path == setup.store.path()))
    );
    assert!(
        since.elapsed() < std::time::Duration::from_secs(8),
        "a call has ten seconds, whoever else waits"
    );
    let read = setup.store.messages(setup.session, 0..1).unwrap();
    assert_eq!(read[0].text, "message 1");
    other.execute_batch("ROLLBACK").unwrap();
    ingest_more(&setup).unwrap();
    assert_eq!(
        setup.store.session_info(setup.session).unwrap().messages,
        MORE
    );
}

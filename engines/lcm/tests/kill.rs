//! A process that is killed loses nothing that it had been told was stored, and stores nothing twice.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::{Store, StoreSettings};

const DIRECTORY: &str = "CONTEXTURE_LCM_KILL_TEST";

fn text(id: u64) -> String {
    format!(
        "message {id}: {}",
        "the words of it ".repeat(id as usize % 60)
    )
}

/// Delivers turns of four until it is killed, from wherever the store stands; says so after each.
#[test]
#[ignore = "only as the child of the test below"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let store = Store::open(directory.as_ref(), StoreSettings::default()).unwrap();
    let session = store.open_session("s", 0).unwrap();
    let observed = store.observed(session).unwrap();
    let mut id = observed.map_or(0, |observed| observed.last.0);
    println!("stored {id}");
    loop {
        let texts: Vec<(u64, String)> = (id + 1..=id + 4).map(|id| (id, text(id))).collect();
        let views: Vec<_> = texts
            .iter()
            .map(|(id, text)| {
                MessageView::new(MessageId(*id), "user")
                    .with_text(text)
                    .with_raw(text)
            })
            .collect();
        id += 4;
        store.ingest(session, &views, id * 3).unwrap();
        println!("stored {id}");
    }
}

#[test]
fn survives_being_killed() {
    let rounds: u32 = std::env::var("KILL_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut stored = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // From when it has opened the store.
        let mut start = None;
        let life = Duration::from_millis(u64::from(round.wrapping_mul(2_654_435_761) % 120));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = 0;
        let mut killed = false;
        for line in lines.by_ref() {
            // A line may have been cut off by the end of the process.
            if let Some(id) = line
                .unwrap()
                .strip_prefix("stored ")
                .and_then(|id| id.parse().ok())
            {
                said = id;
                start.get_or_insert_with(Instant::now);
            }
            if !killed && start.is_some_and(|start| start.elapsed() > life) {
                child.kill().unwrap();
                killed = true;
            }
        }
        child.wait().unwrap();
        assert!(said >= stored, "round {round}: {said} after {stored}");
        stored = said;

        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.find_session("s").unwrap().unwrap();
        let Some(observed) = store.observed(session).unwrap() else {
            assert_eq!(
                stored, 0,
                "round {round}: what was said to be stored is gone"
            );
            continue;
        };
        assert!(observed.last.0 >= stored && observed.chain == observed.last.0 * 3);
        let rows = store.rows(session, 0..u32::MAX).unwrap();
        let ids: Vec<u64> = rows.iter().map(|row| row.id.0).collect();
        assert_eq!(ids, (1..=observed.last.0).collect::<Vec<_>>());
        if round % 4 == 3 {
            for message in store.messages(session, 0..u32::MAX).unwrap() {
                assert_eq!(message.text, text(message.row.id.0));
            }
            assert!(store.check(|_, _| ()).unwrap().is_sound());
            assert_eq!(store.check_index(session).unwrap().wrong, []);
        }
    }
    assert!(stored > 0);
}

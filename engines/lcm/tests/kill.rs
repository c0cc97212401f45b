//! A process that is killed at any moment, of ingest and of compaction, loses nothing that it had reported as
//! stored, stores nothing twice, and leaves a store that is sound.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod small_host;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use small_host::{Kept, SmallHost};

/// Names the directory in which this very program, run again, is the child.
const CHILD: &str = "CONTEXTURE_LCM_KILL_CHILD";
/// How often the child is killed.
const ROUNDS: &str = "CONTEXTURE_LCM_KILL_ROUNDS";
/// Small enough that every few turns are compacted.
const WINDOW: u64 = 4_000;

/// Goes on with its conversation until it is killed; says what it has done.
#[test]
fn the_child() {
    let Ok(directory) = std::env::var(CHILD) else {
        return;
    };
    let mut host = SmallHost::open(directory.as_ref(), WINDOW).unwrap();
    println!("\nopened");
    for turn in 0.. {
        let last = host.turn(1 + turn % 4).unwrap();
        println!("stored {last}");
        host.compact_if_due(&mut |step| println!("{step}")).unwrap();
        if turn % 23 == 22 {
            println!("cutting");
            host.rewind(3);
            println!("cut");
        }
    }
}

#[test]
fn survives_being_killed() {
    let rounds: u64 = std::env::var(ROUNDS).map_or(25, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let (mut stored, mut killed_in) = (0, HashMap::<String, u32>::new());
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_child", "--exact", "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let life = Duration::from_micros(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 47);
        // Some live long enough for a compaction on a machine that is busy.
        let life = if round % 4 == 1 { life * 6 } else { life };
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let child = Arc::new(Mutex::new(child));
        let mut last = String::from("opening");
        // From when it has opened the store; every eighth while it opens.
        if round % 8 == 7 {
            std::thread::sleep(life / 4);
            child.lock().unwrap().kill().unwrap();
        }
        for line in lines.by_ref() {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("stored ") {
                // A line may have been cut off by the end of the process.
                stored = id.parse::<u64>().unwrap_or(0).max(stored);
            }
            if line == "opened" {
                let child = Arc::clone(&child);
                std::thread::spawn(move || {
                    std::thread::sleep(life);
                    child.lock().unwrap().kill()
                });
            }
            if !line.is_empty() {
                last = line;
            }
        }
        child.lock().unwrap().wait().unwrap();
        let place = last.split(' ').next().unwrap_or_default().to_owned();
        *killed_in.entry(place).or_default() += 1;

        let kept = Kept::read(directory.path());
        let reported = kept.log.iter().filter(|id| **id <= stored).count();
        if kept.log.is_empty() {
            assert_eq!(stored, 0, "round {round}");
            continue;
        }
        // As the next process does, but without what it would show again: what was reported is there.
        let store =
            contexture_lcm::Store::open(directory.path(), contexture_lcm::StoreSettings::default())
                .unwrap();
        if let Some(session) = store.find_session("s").unwrap() {
            let rows = store.rows(session, 0..u32::MAX).unwrap().into_iter();
            let live = rows.filter(|row| row.is_current);
            let live: Vec<u64> = live.map(|row| row.id.0).collect();
            assert!(
                live.is_sorted_by(|one, next| one < next),
                "round {round}: {live:?}"
            );
            let lost: Vec<&u64> = kept.log[..reported]
                .iter()
                .filter(|id| live.binary_search(id).is_err())
                .collect();
            assert!(lost.is_empty(), "round {round}, {last}: {lost:?} are gone");
        } else {
            assert_eq!(stored, 0, "round {round}");
        }
        drop(store);
        let mut host = SmallHost::open(directory.path(), WINDOW).unwrap();
        host.check(&format!("round {round}, killed in `{last}`"));
    }
    println!("{rounds} times, after: {killed_in:?}; {stored} messages");
    assert!(stored > 0);
}

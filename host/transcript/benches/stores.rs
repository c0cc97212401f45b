//! What a turn costs on each kind of store: `cargo bench -p contexture-transcript --features postgres --bench stores`.
//!
//! One session and 64 at once write turns of two messages with their text, then one of the sessions is opened and read.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[cfg(feature = "postgres")]
#[path = "../tests/support/mod.rs"]
mod support;

#[cfg(feature = "postgres")]
fn main() {
    use std::time::{Duration, Instant};

    use contexture_engine_api::TranscriptRange;
    use contexture_transcript::StoredSession;
    use support::conversation::{Extra, Writer};
    use support::place::Place;

    /// Writes turns, and returns how long each took.
    fn turns(
        record: &std::sync::Arc<contexture_transcript::Record>,
        session: &str,
        count: usize,
    ) -> Vec<Duration> {
        let mut writer = Writer::open(record, session);
        let mut took = Vec::with_capacity(count);
        for turn in 0..count {
            let question = format!(
                "Question {turn}: {}",
                "what does this function do? ".repeat(20)
            );
            let answer = format!(
                "Answer {turn}: {}",
                "it reads a line and returns it. ".repeat(40)
            );
            // As a gateway does: it holds the session for one turn.
            let token = writer.hold.take().unwrap().release().unwrap();
            let began = Instant::now();
            let hold = record.hold_again(session, Duration::from_secs(10), &token);
            writer.hold = hold.unwrap();
            assert!(writer.hold.is_some());
            writer
                .say(&[&question, &answer], true, Extra::default())
                .unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        took
    }
    let at = |took: &[Duration], share: f64| took[((took.len() - 1) as f64 * share) as usize];
    for place in Place::each() {
        let record = place.open();
        let one = turns(&record, "one", 1_000);
        println!(
            "{}: a turn p50 {:?}, p99 {:?}",
            place.name(),
            at(&one, 0.5),
            at(&one, 0.99)
        );
        let began = Instant::now();
        let all: Vec<Duration> = std::thread::scope(|scope| {
            let sessions: Vec<_> = (0..64)
                .map(|session| {
                    let record = &record;
                    scope.spawn(move || turns(record, &format!("s{session}"), 30))
                })
                .collect();
            sessions
                .into_iter()
                .flat_map(|session| session.join().unwrap())
                .collect()
        });
        let total = began.elapsed();
        let mut all = all;
        all.sort();
        println!(
            "{}: 64 sessions at once p50 {:?}, p99 {:?}, {:.0} turns/s",
            place.name(),
            at(&all, 0.5),
            at(&all, 0.99),
            all.len() as f64 / total.as_secs_f64()
        );
        let began = Instant::now();
        let (_, saved) = StoredSession::open(&record, "one").unwrap();
        println!(
            "{}: opened {} messages in {:?}",
            place.name(),
            saved.log.len(),
            began.elapsed()
        );
        let began = Instant::now();
        let (mut range, mut read) = (TranscriptRange::page(None), 0);
        loop {
            let page = record.transcript("one", &range).unwrap().unwrap();
            read += page.messages.len();
            match page.next {
                Some(next) => range.after = Some(next),
                None => break,
            }
        }
        println!(
            "{}: read {read} messages in {:?}",
            place.name(),
            began.elapsed()
        );
    }
}

#[cfg(not(feature = "postgres"))]
fn main() {
    println!("it compares SQLite with PostgreSQL: run it with --features postgres");
}

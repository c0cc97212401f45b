//! Sessions that are released between their turns, and what an embedder keeps with them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use contexture::formats::{Format, split};
use contexture::session::KeptContent;
use contexture::{Host, HostOptions, Session};
use serde_json::json;
use tempfile::TempDir;

fn open(host: &Host) -> Session {
    let session = host.session("s").model("gpt-4o", 128_000);
    session.wait(Duration::ZERO).open().unwrap()
}

fn body(texts: &[&str]) -> String {
    let roles = ["user", "assistant"].iter().cycle();
    let messages: Vec<_> = (texts.iter().zip(roles))
        .map(|(text, role)| json!({"role": role, "content": text}))
        .collect();
    json!({"messages": messages}).to_string()
}

#[test]
fn a_released_session_goes_on_if_nobody_had_it_meanwhile() {
    let home = TempDir::new().unwrap();
    let (one, two) = (
        Host::open(&HostOptions::in_home(home.path())).unwrap(),
        Host::open(&HostOptions::in_home(home.path())).unwrap(),
    );
    let mut session = open(&one);
    session.turn(&body(&["a"])).unwrap();
    for _ in 0..2 {
        session.release();
        assert!(session.reacquire(Duration::ZERO).unwrap());
    }
    assert_eq!(session.turn(&body(&["a", "b", "c"])).unwrap().new.len(), 2);
    // Held again, so that nobody else has it.
    let busy = two
        .session("s")
        .model("gpt-4o", 128_000)
        .wait(Duration::ZERO)
        .open();
    assert!(busy.is_err());
    session.release();
    let mut other = open(&two);
    assert!(
        session.reacquire(Duration::ZERO).is_err(),
        "the other one has it"
    );
    let turn = other
        .turn(&body(&["a", "b", "c", "d", "e"]))
        .unwrap()
        .new
        .len();
    assert_eq!(turn, 2);
    drop(other);
    assert!(
        !session.reacquire(Duration::ZERO).unwrap(),
        "the other one had it"
    );
    // What is old changes nothing of what is written.
    drop(session);
    let mut again = open(&one);
    assert_eq!(
        again
            .turn(&body(&["a", "b", "c", "d", "e"]))
            .unwrap()
            .new
            .len(),
        0
    );
}

/// A newer program may change the tables while this one runs.
#[test]
fn a_session_whose_record_became_too_new_goes_on_in_memory() {
    let home = TempDir::new().unwrap();
    let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
    let mut session = open(&host);
    session.turn(&body(&["a"])).unwrap();
    session.release();
    let rows = rusqlite::Connection::open(home.path().join("sessions.sqlite3")).unwrap();
    rows.pragma_update(None, "user_version", 99).unwrap();
    for said in [&["a", "b", "c"][..], &["a", "b", "c", "d", "e"]] {
        assert!(session.reacquire(Duration::ZERO).unwrap());
        assert_eq!(session.turn(&body(said)).unwrap().new.len(), 2);
        let why = session.not_stored().unwrap();
        assert!(why.contains("a newer Contexture wrote it"), "{why}");
        session.release();
    }
    let stored = rows.query_row("SELECT count(*) FROM messages", [], |row| row.get(0));
    assert_eq!(stored, Ok(1_i64));
    // A session that is opened now, too.
    drop(session);
    let mut session = open(&host);
    assert_eq!(session.turn(&body(&["a"])).unwrap().new.len(), 1);
    assert!(session.not_stored().is_some());
}

#[test]
fn a_session_that_lost_its_place_is_opened_again() {
    let home = TempDir::new().unwrap();
    let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
    let mut session = open(&host);
    session.turn(&body(&["a"])).unwrap();
    // A program that asks for no lock deletes it.
    let rows = rusqlite::Connection::open(home.path().join("sessions.sqlite3")).unwrap();
    rows.execute_batch("PRAGMA foreign_keys = ON; DELETE FROM sessions")
        .unwrap();
    let said = body(&["a", "b", "c"]);
    assert_eq!(session.turn(&said).unwrap().new.len(), 2);
    assert!(session.not_stored().unwrap().contains("deleted"));
    session.release();
    assert!(!session.reacquire(Duration::ZERO).unwrap());
    drop(session);
    let mut session = open(&host);
    assert_eq!(session.turn(&said).unwrap().new.len(), 3);
    assert_eq!(session.not_stored(), None);
    session.release();
    assert!(session.reacquire(Duration::ZERO).unwrap());
}

#[test]
fn a_preview_takes_nothing_in() {
    let home = TempDir::new().unwrap();
    let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
    let mut session = open(&host);
    session.turn(&body(&["a"])).unwrap();
    let next = body(&["a", "b", "c"]);
    let preview = |session: &mut Session, body: &str| {
        let wire = split(body, Some(Format::OpenAiChat)).unwrap();
        session.preview(&wire, false).map(String::from)
    };
    assert_eq!(preview(&mut session, &next).as_deref(), Some(next.as_str()));
    assert_eq!(preview(&mut session, &body(&["of", "another"])), None);
    // Neither does one of a session that was just opened.
    drop(session);
    let mut session = open(&host);
    assert_eq!(preview(&mut session, &body(&["of", "another"])), None);
    assert_eq!(preview(&mut session, &next).as_deref(), Some(next.as_str()));
    assert_eq!(session.turn(&next).unwrap().new.len(), 2);
}

#[test]
fn what_is_kept_with_a_session_goes_with_it() {
    let home = TempDir::new().unwrap();
    let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
    assert_eq!(host.record().kept("s").unwrap(), []);
    host.record()
        .keep("s", KeptContent::Exact, &[("b", "2")])
        .unwrap();
    host.record()
        .keep("s", KeptContent::Exact, &[("a", "1"), ("b", "3")])
        .unwrap();
    host.record()
        .keep("t", KeptContent::Exact, &[("a", "4")])
        .unwrap();
    let kept = [("a", "1"), ("b", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let again = Host::open(&HostOptions::in_home(home.path())).unwrap();
    assert_eq!(again.record().kept("s").unwrap(), kept);
    let hold = host.record().hold("s", Duration::ZERO).unwrap();
    host.record().forget("s", &hold).unwrap();
    assert_eq!(again.record().kept("s").unwrap(), []);
    assert_eq!(again.record().kept("t").unwrap().len(), 1);
}

#[test]
fn what_is_written_comes_out_of_the_log_while_the_record_is_open() {
    let home = TempDir::new().unwrap();
    let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
    let size = || {
        let file = std::fs::metadata(home.path().join("sessions.sqlite3"));
        file.unwrap().len()
    };
    let before = size();
    let long = "text ".repeat(500);
    for at in 0..600 {
        let name = format!("name {at}");
        host.record()
            .keep("s", KeptContent::Exact, &[(&name, &long)])
            .unwrap();
    }
    for _ in 0..200 {
        if size() > before + 500_000 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{before} bytes before, and {} after", size());
}

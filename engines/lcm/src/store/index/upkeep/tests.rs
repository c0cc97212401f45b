#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use contexture_engine_api::{Delivery, MessageId, MessageView};
use contexture_testkit::ScriptedHost;

use crate::error::StoreError;
use crate::store::{Source, Store, StoreSettings};

/// A host whose transcript of the session `name` has these texts, and the store as its engine sees
/// it.
fn host_with(store: &Store, name: &str, texts: &[&str]) -> (Arc<ScriptedHost>, Store) {
    let host = ScriptedHost::without_model();
    let ids = (1..).map(MessageId);
    let views: Vec<_> = (ids.zip(texts))
        .map(|(id, text)| MessageView::new(id, "user").with_text(text))
        .collect();
    host.record_in(name, &Delivery::new(&views));
    let source = Source::new(name, host.services_in(name), false);
    (host, store.over(source))
}

/// All conversations of up to three messages with two texts.
fn small_conversations() -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..3 {
        let longest = all[from..].to_vec();
        from = all.len();
        let longer = |short: &Vec<_>| ["one", "two"].map(|text| [&short[..], &[text]].concat());
        all.extend(longest.iter().flat_map(longer));
    }
    all
}

#[test]
fn what_one_transcript_left_is_never_taken_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    let store = Store::open(directory.path(), settings).unwrap();
    let all = small_conversations();
    for (before, after) in all
        .iter()
        .flat_map(|one| all.iter().map(move |other| (one, other)))
    {
        let name = format!("{before:?} and then {after:?}");
        let session = store.open_session(&name).unwrap();
        let (_before, then) = host_with(&store, &name, before);
        let (session, _) = then.follow_transcript(session, false).unwrap();
        then.index_now(session).unwrap();
        let (_after, now) = host_with(&store, &name, after);
        let (followed, _) = now.follow_transcript(session, false).unwrap();
        // Whoever still reads the transcript of before indexes nothing that it does not have.
        let late = then.index_now(followed);
        assert!(late.is_ok(), "{name}: {late:?}");
        now.index_now(followed).unwrap();
        let rows = now.messages(followed, 0..u32::MAX).unwrap();
        assert!(
            rows.iter().map(|row| &row.text).eq(after),
            "{name}: {rows:?}"
        );
        let check = now.check_index(followed).unwrap();
        assert!(
            check.wrong.is_empty() && check.waiting == 0,
            "{name}: {check:?}"
        );
        let is_continued = after.starts_with(before);
        assert_eq!(followed == session, is_continued, "{name}");
    }
}

#[test]
fn who_still_reads_a_lost_transcript_indexes_nothing_of_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    let store = Store::open(directory.path(), settings).unwrap();
    let (_lost, lost) = host_with(&store, "s", &["one", "two", "three"]);
    let session = store.open_session("s").unwrap();
    let (before, _) = lost.follow_transcript(session, false).unwrap();
    // The record is lost, and the client begins again with other messages under the same ids.
    let (_next, next) = host_with(&store, "s", &["un", "deux"]);
    let (after, _) = next.follow_transcript(before, false).unwrap();
    assert_ne!(after, before);
    assert!(matches!(
        lost.index_now(before),
        Err(StoreError::SessionDeleted(_))
    ));
    next.index_now(after).unwrap();
    let check = next.check_index(after).unwrap();
    assert!(check.wrong.is_empty() && check.waiting == 0, "{check:?}");
    assert_eq!(next.find_own_session().unwrap(), Some(after));
    assert_eq!(next.session_info(after).unwrap().messages, 2);
    // Opened again, it is the same session.
    let again = next.follow_transcript(after, false).unwrap();
    assert_eq!(again, (after, false));
}

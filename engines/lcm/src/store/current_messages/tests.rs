#![allow(clippy::unwrap_used)]
use contexture_engine_api::{Delivery, MessageId, MessageView};

use super::*;
use crate::store::StoreSettings;

#[test]
fn neither_a_cut_nor_an_edit_leaves_its_old_words_in_the_conversation() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    let revise = |id: u64, text: &str, revisions: &[(MessageId, MessageId)]| {
        let views = [MessageView::new(MessageId(id), "user").with_text(text)];
        let delivery = Delivery::new(&views).with_revisions(revisions);
        store.deliver(session, &delivery, 0).unwrap();
    };
    let say = |id: u64, text: &str| revise(id, text, &[]);
    let ids = || -> Vec<u64> {
        let outdated = store.outdated(session).unwrap();
        let rows = store.rows(session, 0..u32::MAX).unwrap();
        let current = rows.iter().filter(|row| row.is_current);
        let current: Vec<_> = current.map(|row| (row.key, row.id.0)).collect();
        assert_eq!(current.len() + outdated.len(), rows.len());
        assert!(current.iter().all(|(key, _)| !outdated.contains(key)));
        current.into_iter().map(|(_, id)| id).collect()
    };
    for id in 1..=4 {
        say(id, &format!("text {id}"));
    }
    assert_eq!(ids(), [1, 2, 3, 4]);
    revise(5, "another form of 2", &[(MessageId(5), MessageId(2))]);
    assert_eq!(ids(), [1, 3, 4, 5]);
    // The cut removes the edit, so the old form is current again.
    store.cut(session, Some(MessageId(3))).unwrap();
    assert_eq!(ids(), [1, 2, 3]);
    say(6, "goes on");
    assert_eq!(ids(), [1, 2, 3, 6]);
    // Each of two edits that follow each other is undone by a cut between them.
    revise(7, "a third form of 2", &[(MessageId(7), MessageId(2))]);
    revise(8, "a fourth form of 2", &[(MessageId(8), MessageId(7))]);
    assert_eq!(ids(), [1, 3, 6, 8]);
    store.cut(session, Some(MessageId(7))).unwrap();
    assert_eq!(ids(), [1, 3, 6, 7]);
    store.cut(session, Some(MessageId(6))).unwrap();
    assert_eq!(ids(), [1, 2, 3, 6]);
}

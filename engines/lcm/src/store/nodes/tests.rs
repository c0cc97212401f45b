#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::MessageView;

use super::*;
use crate::store::{Source, StoreSettings};

fn node(id: i64, sources: NodeSources<Key>) -> NewNode {
    let node = Node {
        id: NodeId(id),
        depth: u32::from(matches!(sources, NodeSources::Nodes(_))),
        level: Level::Normal,
        text: "A text.".to_owned(),
        tokens: 2,
        messages: 1,
        source_tokens: 10,
        first: MessageId(1),
        last: MessageId(1),
        from_ms: None,
        to_ms: None,
        degraded: false,
    };
    NewNode { node, sources }
}

/// A new store in a folder, and a session in it.
fn store_in(dir: &tempfile::TempDir) -> (Store, SessionId) {
    let services = contexture_testkit::ScriptedHost::without_model().services();
    let store = (Store::open(dir.path(), StoreSettings::default()).unwrap())
        .over(Source::new("s", services, false));
    let session = store.open_session("s").unwrap();
    (store, session)
}

#[test]
fn messages_of_a_node_are_found_from_both_ends_whatever_lies_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session) = store_in(&dir);
    let ids = (1..=400).map(MessageId);
    let messages: Vec<_> = ids.map(|id| MessageView::new(id, "user")).collect();
    store.ingest(session, &messages).unwrap();
    let keys = |ordinals: &[u32]| -> Vec<Key> {
        let keys = ordinals.iter().map(|at| Key::new(session, *at));
        keys.collect()
    };
    let long: Vec<u32> = (100..300).collect();
    let gaps: Vec<u32> = (0..100).filter(|at| at % 7 != 3).collect();
    let leaves = [keys(&long), keys(&gaps), keys(&[150, 350])];
    for (id, leaf) in (1..).zip(&leaves) {
        let one = [node(id, NodeSources::Messages(leaf.clone()))];
        add(&store, session, &one, NodeId(id), 0).unwrap();
        assert_eq!(messages_under(&store, session, NodeId(id)).unwrap(), *leaf);
        let of = match sources(&store, session, NodeId(id)).unwrap() {
            NodeSources::Messages(of) => of,
            NodeSources::Nodes(_) => Vec::new(),
        };
        let expected = leaf
            .iter()
            .map(|key| MessageId(u64::from(key.ordinal()) + 1));
        assert_eq!(of, expected.collect::<Vec<_>>());
    }
    for at in 0..400 {
        let key = Key::new(session, at);
        let ids = (1..).map(NodeId);
        let over = ids.zip(&leaves).filter(|(_, leaf)| leaf.contains(&key));
        let expected: HashSet<NodeId> = over.map(|(id, _)| id).collect();
        assert_eq!(above(&store, &[key]).unwrap(), expected, "{at}");
    }
}

#[test]
fn two_proposals_at_once_get_numbers_of_their_own_and_only_one_frontier_follows_another() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session) = store_in(&dir);
    let message = MessageView::new(MessageId(1), "user")
        .with_text("hello")
        .with_raw("{}");
    store.ingest(session, &[message]).unwrap();
    let leaf = |id| node(id, NodeSources::Messages(vec![Key::new(session, 0)]));
    let parent = |id, child| node(id, NodeSources::Nodes(vec![NodeId(child)]));

    let next = next_id(&store, session).unwrap();
    assert_eq!(next, NodeId(1));
    let both = [leaf(1), parent(2, 1)];
    assert_eq!(add(&store, session, &both, next, 0).unwrap(), 0);
    assert_eq!(add(&store, session, &both, next, 0).unwrap(), 2);
    let sources = sources(&store, session, NodeId(4)).unwrap();
    assert_eq!(sources, NodeSources::Nodes(vec![NodeId(3)]));

    let set = |before: &[NodeId], after: &[NodeId]| {
        let moved = FrontierMove {
            before: before.to_vec(),
            after: after.to_vec(),
            compaction: 1,
        };
        move_frontier(&store, session, &moved, &[])
    };
    set(&[], &[NodeId(2)]).unwrap();
    assert!(matches!(
        set(&[], &[NodeId(4)]),
        Err(StoreError::FrontierMoved)
    ));
    assert_eq!(frontier_ids(&store, session).unwrap(), [NodeId(2)]);
}

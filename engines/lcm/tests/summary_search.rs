//! Summaries are found the same whether the index holds them or not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use contexture_lcm::search::{Ask, Hit, HitKind, Mode, Pattern, Query, Scope, Sort};
use contexture_lcm::store::Source;
use contexture_lcm::{Lcm, Store, StoreSettings};
use contexture_testkit::{Chat, ScriptedHost, Session, order};

/// A session of 900 messages, a minute or no time between each, compacted to a few summaries over many.
fn compacted(host: &Arc<ScriptedHost>, minute_ms: i64) {
    let mut chat = Chat::default();
    for at in 0..900 {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        let text = format!(
            "Message {at} names fact-{at}-x and src/part_{}/file_{at}.rs. 第{at}号索引 is {}. {}",
            at % 7,
            if at % 3 == 0 { "ready" } else { "late" },
            "More words follow here. ".repeat(12)
        );
        chat.push(role, text).time_ms = Some(1_700_000_000_000 + (at + 1) * minute_ms);
    }
    let window = chat.window(8_000, 0).max_output_tokens(500);
    let mut session = Session::open_by::<Lcm>(host, "{}", &window);
    session.observe(&chat).unwrap();
    session.compacted(&chat, &order(window));
}

fn open_store(host: &Arc<ScriptedHost>) -> Store {
    let store = Store::open(host.data_dir(), StoreSettings::default()).unwrap();
    store.over(Source::new("s", host.services(), false))
}

fn patterns() -> Vec<Pattern> {
    [
        (Mode::FullText, "ready"),
        (Mode::FullText, "fact-17-x"),
        (Mode::FullText, "索引"),
        (Mode::FullText, "ready late"),
        (Mode::FullText, "nowhere"),
        (Mode::Literal, "part_3/file_"),
        (Mode::Literal, "号索"),
        (Mode::Regex, r"file_[0-9]+5\.rs"),
        (Mode::Regex, r"[0-9]{3}"),
    ]
    .into_iter()
    .map(|(mode, text)| Pattern::new(mode, text))
    .collect()
}

/// The total that a query finds, and its hits over all pages.
fn all_pages(store: &Store, mut query: Query) -> (u64, Vec<Hit>) {
    let mut hits = Vec::new();
    loop {
        let answer = store.search(&query, &|| false).unwrap();
        hits.extend(answer.hits);
        query.cursor = answer.next_cursor;
        if query.cursor.is_none() {
            return (answer.total, hits);
        }
    }
}

/// What each pattern finds in summaries: the total, and the keys in order, over all pages.
fn answers(store: &Store) -> Vec<(u64, Vec<String>)> {
    let session = store.find_session("s").unwrap().unwrap();
    let mut all = Vec::new();
    for pattern in patterns() {
        for sort in [Sort::Recency, Sort::Oldest, Sort::Relevance] {
            for since_ms in [None, Some(1_700_000_000_000 + 400 * 60_000)] {
                let mut query = Query::new(session, Ask::Pattern(pattern.clone()));
                query.scope = Scope::Summaries;
                (query.sort, query.since_ms, query.limit) = (Some(sort), since_ms, 3);
                let (total, hits) = all_pages(store, query);
                let keys: Vec<String> = hits.iter().map(|hit| format!("{:?}", hit.key)).collect();
                assert_eq!(total, keys.len() as u64, "{pattern:?}");
                all.push((total, keys));
            }
        }
    }
    all
}

#[test]
fn the_index_of_summaries_changes_nothing_but_the_time() {
    let host = ScriptedHost::without_model();
    compacted(&host, 60_000);
    let store = open_store(&host);
    let session = store.find_session("s").unwrap().unwrap();
    let database = rusqlite::Connection::open(store.path()).unwrap();
    let count = |sql: &str| -> i64 { database.query_row(sql, [], |row| row.get(0)).unwrap() };

    database
        .execute("DELETE FROM segments WHERE corpus = 1", [])
        .unwrap();
    let read_one_by_one = answers(&store);
    assert!(read_one_by_one.iter().any(|(total, _)| *total > 10));
    assert!(read_one_by_one.iter().any(|(total, _)| *total == 0));

    store.index_now(session).unwrap();
    assert!(count("SELECT count(*) FROM segments WHERE corpus = 1") > 0);
    assert_eq!(answers(&store), read_one_by_one);
    assert!(store.check_index(session).unwrap().wrong.is_empty());

    // A summary that is gone takes the index of its session's summaries with it.
    database
        .execute_batch(
            "DELETE FROM frontier; DELETE FROM node_children;
             DELETE FROM nodes WHERE id = (SELECT max(id) FROM nodes);",
        )
        .unwrap();
    assert_eq!(count("SELECT count(*) FROM segments WHERE corpus = 1"), 0);
    let without_it = answers(&store);
    store.index_now(session).unwrap();
    assert_eq!(answers(&store), without_it);
}

#[test]
fn a_summary_stands_after_the_message_it_ends_with_though_all_came_at_once() {
    let host = ScriptedHost::without_model();
    compacted(&host, 0);
    let store = open_store(&host);
    let session = store.find_session("s").unwrap().unwrap();
    let database = rusqlite::Connection::open(store.path()).unwrap();
    // The host counts from 1.
    let last_of = |number: u32| -> u32 {
        let sql = "SELECT last FROM nodes WHERE id = (session << 32) + ?1";
        database
            .query_row(sql, [number], |row| row.get::<_, u32>(0))
            .unwrap()
            - 1
    };
    for sort in [Sort::Oldest, Sort::Recency] {
        let mut query = Query::new(session, Ask::Pattern(Pattern::new(Mode::Literal, "file_")));
        (query.sort, query.limit) = (Some(sort), 50);
        let (_, hits) = all_pages(&store, query);
        let place = |hit: &Hit| match hit.kind {
            HitKind::Summary => (last_of(hit.key.ordinal()), Some(hit.key.ordinal())),
            _ => (hit.key.ordinal(), None),
        };
        let mut places: Vec<_> = hits.iter().map(place).collect();
        if sort == Sort::Recency {
            places.reverse();
        }
        assert!(places.is_sorted(), "{sort:?}: {places:?}");
        let summaries = places.iter().filter(|(_, summary)| summary.is_some());
        assert!(summaries.count() > 1);
        assert!(places.len() > 900);
    }
}

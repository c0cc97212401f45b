//! A message is its text, then its calls, then its thinking. Search looks through all of these, each by
//! itself: nothing is found across the border of two.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ingest;

use contexture_engine_api::{MessageId, MessageView, ToolCallView};
use contexture_lcm::search::{Answer, Ask, HitKind, Mode, Pattern, Query, Sort};
use contexture_lcm::{SessionId, Store, StoreSettings};
use ingest::Ingest;
use proptest::prelude::*;
use serde_json::json;

/// A message as a test makes it. Each piece of thinking comes on a line of its own, as in a session log.
#[derive(Debug, Clone)]
struct Message {
    text: String,
    arguments: Vec<String>,
    thinking: Vec<String>,
}

impl Message {
    /// What search looks through, one after the other.
    fn parts(&self) -> Vec<String> {
        let mut parts = vec![self.text.clone()];
        parts.extend(self.arguments.iter().map(|part| format!("call {part}")));
        parts.extend(self.thinking.iter().cloned());
        if parts.len() > 1 && parts[0].is_empty() {
            parts.remove(0);
        }
        parts
    }

    fn raw(&self) -> String {
        let line =
            |block| json!({"type": "assistant", "message": {"content": [block]}}).to_string();
        let thinking = self.thinking.iter();
        let mut lines: Vec<String> = thinking
            .map(|text| line(json!({"type": "thinking", "thinking": text, "signature": "c2ln"})))
            .collect();
        lines.push(line(json!({"type": "text", "text": self.text})));
        lines.join("\n")
    }
}

/// A store of these messages: most of them indexed, the last ones not.
fn store_of(messages: &[Message]) -> (tempfile::TempDir, Store, SessionId) {
    let directory = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        large_tokens: 12,
        background_index: false,
        ..StoreSettings::default()
    };
    let store = ingest::open(directory.path(), settings).unwrap();
    let session = store.open_session("s").unwrap();
    for (id, message) in (0..).zip(messages) {
        let calls: Vec<ToolCallView<'_>> = message
            .arguments
            .iter()
            .map(|arguments| ToolCallView::new("c", "call", arguments))
            .collect();
        let raw = message.raw();
        let view = MessageView::new(MessageId(id), "assistant")
            .with_text(&message.text)
            .with_tool_calls(&calls)
            .with_thinking(!message.thinking.is_empty())
            .with_raw(&raw);
        store.ingest(session, &[view]).unwrap();
        if id % 4 == 0 {
            store.index_now(session).unwrap();
        }
    }
    (directory, store, session)
}

fn search(store: &Store, session: SessionId, pattern: Pattern) -> Answer {
    let mut query = Query::new(session, Ask::Pattern(pattern));
    query.sort = Some(Sort::Oldest);
    query.limit = 1_000;
    store.search(&query, &|| false).unwrap()
}

fn total(messages: &[Message], mode: Mode, pattern: &str) -> u64 {
    let (_directory, store, session) = store_of(messages);
    search(&store, session, Pattern::new(mode, pattern)).total
}

/// What is found is what a plain scan finds part by part; and where the first of it stands.
fn check(messages: &[Message], pattern: Pattern, find: impl Fn(&str) -> Vec<(usize, usize)>) {
    let (_directory, store, session) = store_of(messages);
    let answer = search(&store, session, pattern.clone());
    let mut expected = Vec::new();
    for (id, message) in (0..).zip(messages) {
        let mut at = 0;
        let mut places = Vec::new();
        for part in message.parts() {
            let found = find(&part).into_iter();
            places.extend(found.map(|(start, _)| at + start));
            at += part.len() + 1;
        }
        if let Some(first) = places.first() {
            expected.push((id, *first, places.len().min(100)));
        }
    }
    let found: Vec<(u64, usize, usize)> = answer
        .hits
        .iter()
        .map(|hit| match hit.kind {
            HitKind::Message { id } | HitKind::File { id, .. } => {
                (id.0, hit.snippet.byte, hit.snippet.matches)
            }
            HitKind::Summary => panic!("there are no summaries"),
        })
        .collect();
    assert_eq!(found, expected, "{pattern:?}");
    assert_eq!(answer.total, expected.len() as u64, "{pattern:?}");
    for (hit, (id, ..)) in answer.hits.iter().zip(&expected) {
        let message = &messages[*id as usize];
        let is_beside = hit.snippet.byte > message.text.len();
        if let HitKind::File { in_calls, .. } = hit.kind {
            assert_eq!(in_calls, is_beside, "{pattern:?} in {message:?}");
        }
        let joined = message.parts().join("\n");
        let line = joined[..hit.snippet.byte].matches('\n').count() + 1;
        assert_eq!(hit.snippet.line, line, "{pattern:?} in {message:?}");
    }
}

const PIECES: [&str; 14] = [
    "alpha", "beta", "call", " ", " ", "\n", "-", "索", "引", "建", "}", "[m1]", "\u{1e}", "\0",
];

fn pieces(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), count)
        .prop_map(|pieces| pieces.concat())
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let text = prop_oneof![Just(String::new()), pieces(0..5), pieces(10..30)];
    let arguments = prop::collection::vec(pieces(0..4), 0..3);
    let thinking = prop::collection::btree_set(pieces(1..4), 0..3);
    let message = (text, arguments, thinking).prop_map(|(text, arguments, thinking)| Message {
        text,
        arguments,
        thinking: thinking.into_iter().collect(),
    });
    prop::collection::vec(message, 6..30)
}

/// Every place of a text in another, without overlaps.
fn occurrences(text: &str, part: &str) -> Vec<(usize, usize)> {
    let places = text.match_indices(part);
    places.map(|(at, found)| (at, at + found.len())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_regular_expression_matches_within_a_part(
        messages in messages(),
        parts in prop::collection::vec((
            prop::sample::select(&["", "", "^", r"\A", "(?m)^", r"\b"][..]),
            prop::sample::select(&PIECES[..]),
            prop::sample::select(&["", "", "$", r"\z", "(?m)$", r"\s", r"\s+", "(?s).", "(?s).*", r"\b",
                r"[^a-z]", "|"][..]),
        ), 1..4),
        bare in any::<bool>(),
    ) {
        let pattern: String = parts.iter().map(|(before, piece, after)| match bare {
            true => format!("{before}{after}"),
            false => format!("{before}{}{after}", regex::escape(piece)),
        }).collect();
        prop_assume!(!pattern.is_empty());
        let regex = regex::Regex::new(&pattern).unwrap();
        check(&messages, Pattern::new(Mode::Regex, &pattern), |part| {
            regex.find_iter(part).map(|found| (found.start(), found.end())).collect()
        });
    }

    #[test]
    fn a_literal_stands_within_a_part(
        messages in messages(),
        literal in pieces(1..4),
        fold in any::<bool>(),
    ) {
        let mut pattern = Pattern::new(Mode::Literal, &literal);
        pattern.case_sensitive = Some(!fold);
        check(&messages, pattern, |part| occurrences(part, &literal));
    }

    #[test]
    fn a_phrase_and_a_stretch_of_a_spaceless_script_stand_within_a_part(
        messages in messages(),
        words in prop::collection::vec("(alpha|beta|call|[索引建]{1,3})", 1..4),
    ) {
        let pattern = Pattern::new(Mode::FullText, format!("\"{}\"", words.join(" ")));
        let regex = regex::Regex::new(&words.join(r"\s+")).unwrap();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        check(&messages, pattern, |part| {
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(place) = regex.find_at(part, from) {
                let (start, end) = (place.start(), place.end());
                let cut_before = is_letter(part[start..].chars().next())
                    && is_letter(part[..start].chars().next_back());
                let cut_after = is_letter(part[..end].chars().next_back())
                    && is_letter(part[end..].chars().next());
                from = match cut_before || cut_after {
                    true => start + part[start..].chars().next().map_or(1, char::len_utf8),
                    false => {
                        found.push((start, end));
                        end
                    }
                };
            }
            found
        });
    }
}

fn said(text: &str, arguments: &[&str], thinking: &[&str]) -> Message {
    let owned = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    Message {
        text: text.to_owned(),
        arguments: owned(arguments),
        thinking: owned(thinking),
    }
}

#[test]
fn anchors_hold_at_the_ends_of_the_text_and_of_each_call() {
    let messages = [
        said("as said [m1]", &[], &[]),
        said("as said [m2]", &["{\"a\":1}"], &["so be it [m3]"]),
        said("", &["{\"a\":1}"], &[]),
        said("", &[], &[]),
    ];
    for (pattern, expected) in [
        (r"\[m\d+\]$", 2),
        (r"\[m\d+\]\z", 2),
        (r"\}$", 2),
        (r"^call ", 2),
        (r"\Aso be", 1),
        (r"(?m)^\s+\S", 0),
        (r"\]\s", 0),
        (r"^$", 1),
    ] {
        assert_eq!(
            total(&messages, Mode::Regex, pattern),
            expected,
            "{pattern}"
        );
    }
    assert_eq!(total(&messages, Mode::FullText, "\"m2 call\""), 0);
    assert_eq!(total(&messages, Mode::FullText, "m2 call"), 1);
    assert_eq!(total(&messages, Mode::Literal, "]\ncall"), 0);
}

#[test]
fn thinking_is_found_in_every_shape_it_has_on_the_wire() {
    let lines = "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":\"ALPHA plan\"}]}}\n\
                 {\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"said\"}]}}";
    // As it stands in a list, commas and blanks and all.
    let items = "{\"type\":\"reasoning\",\"id\":\"r1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"ALPHA\"}],\
                 \"encrypted_content\":\"SECRET\"},\n  {\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}";
    let behind = "{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"said\"}]}, \
                  {\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"ALPHA\"}]}";
    let details = "{\"role\":\"assistant\",\"content\":\"said\",\"reasoning\":\"ALPHA\",\"reasoning_details\":\
                   [{\"type\":\"reasoning.text\",\"text\":\"ALPHA\",\"signature\":\"SECRET\"}]}";
    let document = "{\n \"content\": [\n  {\"type\": \"thinking\", \"thinking\": \"ALPHA\", \"signature\": \"SECRET\"}]}";
    let called = "{\"content\":[{\"type\":\"thinking\",\"thinking\":\"ALPHA\"},\
                  {\"type\":\"tool_use\",\"name\":\"f\",\"input\":{\"summary\":\"SECRET\"}}]}";
    for raw in [lines, items, behind, details, document, called] {
        let directory = tempfile::tempdir().unwrap();
        let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s").unwrap();
        let view = MessageView::new(MessageId(1), "assistant")
            .with_text("said")
            .with_thinking(true)
            .with_raw(raw);
        store.ingest(session, &[view]).unwrap();
        let count = |word| {
            let answer = search(&store, session, Pattern::new(Mode::FullText, word));
            (answer.hits.iter().map(|hit| hit.snippet.matches)).sum::<usize>()
        };
        assert_eq!(
            (count("ALPHA"), count("SECRET"), count("said")),
            (1, 0, 1),
            "{raw}"
        );
    }
}

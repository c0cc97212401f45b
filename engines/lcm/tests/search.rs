//! Search against a plain scan of the same messages, in every mode.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ingest;

use contexture_engine_api::{Delivery, MessageId, MessageView};
use contexture_lcm::search::{Answer, Ask, HitKind, Mode, Pattern, Query, Scope, Sort};
use contexture_lcm::store::FILE_NAME;
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};
use ingest::Ingest;
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

/// Pieces that texts and patterns are made of: so few that they meet.
const PIECES: [&str; 40] = [
    "alpha",
    "Alpha",
    "ALPHA",
    "beta",
    "x_y",
    "x",
    "y",
    "12",
    "412",
    "a.rs",
    "src/a.rs:12",
    "alpha-beta-1",
    "索引",
    "索",
    "引",
    "データ",
    "데이터",
    "데",
    "É",
    "é",
    "ß",
    "K",
    "\u{212a}",
    "ς",
    "Σ",
    " ",
    " ",
    " ",
    "\n",
    "-",
    ".",
    "/",
    ":",
    "_",
    "\"",
    "?",
    "₂",
    "e\u{301}",
    "0123456789012345678901234567890123456789012345678901234567890123456789",
    "😀",
];

fn pieces(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), count)
        .prop_map(|pieces| pieces.concat())
}

/// A store whose index has several segments, some joined, and a rest that is in none.
fn store_of(texts: &[String]) -> (tempfile::TempDir, Store, SessionId) {
    let directory = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        large_tokens: 60,
        background_index: false,
        ..StoreSettings::default()
    };
    let store = ingest::open(directory.path(), settings).unwrap();
    let session = store.open_session("s").unwrap();
    let per_turn = (texts.len() / 12).max(1);
    for (turn, chunk) in texts.chunks(per_turn).enumerate() {
        let views: Vec<_> = chunk
            .iter()
            .enumerate()
            .map(|(at, text)| {
                let id = (turn * per_turn + at) as u64;
                MessageView::new(
                    MessageId(id),
                    if id.is_multiple_of(2) {
                        "user"
                    } else {
                        "assistant"
                    },
                )
                .with_text(text)
                .with_raw(text)
                .with_time(id as i64 * 1000)
            })
            .collect();
        store.ingest(session, &views).unwrap();
        if turn < 10 {
            store.index_now(session).unwrap();
        }
    }
    (directory, store, session)
}

fn search(store: &Store, query: &Query) -> Result<Answer, StoreError> {
    store.search(query, &|| false)
}

fn ids(answer: &Answer) -> Vec<u64> {
    answer
        .hits
        .iter()
        .map(|hit| match hit.kind {
            HitKind::Message { id } | HitKind::File { id, .. } => id.0,
            HitKind::Summary => panic!("there are no summaries"),
        })
        .collect()
}

/// All pages of a query, three hits each.
fn all_pages(store: &Store, mut query: Query) -> (u64, Vec<u64>) {
    query.limit = 3;
    let mut found = Vec::new();
    loop {
        let answer = search(store, &query).unwrap();
        found.extend(ids(&answer));
        match answer.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return (answer.total, found),
        }
    }
}

fn check(store: &Store, session: SessionId, pattern: Pattern, expected: &[u64]) {
    let mut query = Query::new(session, Ask::Pattern(pattern.clone()));
    for sort in [Sort::Oldest, Sort::Recency, Sort::Relevance] {
        query.sort = Some(sort);
        let (total, mut found) = all_pages(store, query.clone());
        match sort {
            Sort::Oldest => {}
            Sort::Recency => found.reverse(),
            Sort::Relevance => found.sort_unstable(),
        }
        assert_eq!(found, expected, "{pattern:?} {sort:?}");
        assert_eq!(total, expected.len() as u64, "{pattern:?}");
    }
}

fn matching(texts: &[String], is_match: impl Fn(&str) -> bool) -> Vec<u64> {
    (0..)
        .zip(texts)
        .filter(|(_, text)| is_match(text))
        .map(|(id, _)| id)
        .collect()
}

/// What case makes no difference to, written down as plainly as can be: by the `regex` crate.
fn occurrences(text: &str, part: &str, case_sensitive: bool) -> Vec<(usize, usize)> {
    let flags = if case_sensitive { "" } else { "(?i)" };
    let regex = regex::Regex::new(&format!("{flags}{}", regex::escape(part))).unwrap();
    (0..=text.len())
        .filter(|at| text.is_char_boundary(*at))
        .filter_map(|at| regex.find_at(text, at).filter(|found| found.start() == at))
        .map(|found| (found.start(), found.end()))
        .collect()
}

/// A text as a literal or regular expression search sees it: with composed letters.
fn composed(text: &str) -> String {
    text.nfc().collect()
}

/// A text as a full-text search sees it: if case is ignored, accents are ignored too.
fn plain(text: &str, case_sensitive: bool) -> String {
    match case_sensitive {
        true => composed(text),
        false => text.nfd().filter(|c| *c != '\u{301}').nfc().collect(),
    }
}

/// Letters, digits, marks and `_`, without the scripts that put no spaces between words.
fn in_word(c: Option<char>) -> bool {
    let word = regex::Regex::new(r"^[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}ー]]$").unwrap();
    c.is_some_and(|c| word.is_match(&c.to_string()))
}

fn is_whole(text: &str, (start, end): (usize, usize)) -> bool {
    let cut = |before: &str, after: &str| {
        in_word(before.chars().next_back()) && in_word(after.chars().next())
    };
    let inside = &text[start..end];
    !cut(&text[..start], inside) && !cut(inside, &text[end..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn full_text_finds_whole_words_and_all_of_them(
        texts in prop::collection::vec(pieces(0..14), 12..70),
        terms in prop::collection::vec(pieces(1..4), 1..3),
        case in any::<bool>(),
    ) {
        let query = terms.join(" ").replace('"', "");
        // Without a word it is an error.
        prop_assume!(regex::Regex::new(r"\w").unwrap().is_match(&query));
        let expected = matching(&texts, |text| {
            query.split_whitespace().all(|term| {
                let term = plain(term.trim_end_matches(['.', ':', '?']), case);
                let text = plain(text, case);
                term.is_empty() || occurrences(&text, &term, case).into_iter().any(|place| is_whole(&text, place))
            })
        });
        let (_directory, store, session) = store_of(&texts);
        let mut pattern = Pattern::new(Mode::FullText, query);
        pattern.case_sensitive = case.then_some(true);
        check(&store, session, pattern, &expected);
    }

    #[test]
    fn what_surrounds_a_term_makes_no_difference(
        texts in prop::collection::vec(pieces(0..14), 12..70),
        terms in prop::collection::vec((
            prop::sample::select(&["alpha", "beta", "a.rs", "src/a.rs:12", "alpha-beta-1", "索引", "x_y"][..]),
            prop::sample::select(&[("", ""), ("(", ")"), ("[", ""), ("{(", ")}"), ("\"", "\""), ("“", "”"), ("`", "`"),
                ("'", "'"), ("«", "»"), ("(\"", "\")"), ("¿", ""), ("", ")")][..]),
            prop::sample::select(&["", ",", ".", "!?", ":", "。", " ;"][..]),
        ), 1..4),
    ) {
        let query: Vec<String> = terms
            .iter()
            .map(|(term, (open, close), stop)| format!("{open}{term}{close}{stop}"))
            .collect();
        let expected = matching(&texts, |text| {
            terms.iter().all(|(term, ..)| {
                occurrences(text, term, false).into_iter().any(|place| is_whole(text, place))
            })
        });
        let (_directory, store, session) = store_of(&texts);
        check(&store, session, Pattern::new(Mode::FullText, query.join(" ")), &expected);
    }

    #[test]
    fn a_stretch_of_a_spaceless_script_is_found_by_the_index_alone(
        texts in prop::collection::vec("[索引重建]{0,9}([ x][索引重建]{0,9}){0,4}", 12..70),
        stretch in "[索引重建]{1,7}",
    ) {
        let expected = matching(&texts, |text| text.contains(&stretch));
        let (_directory, store, session) = store_of(&texts);
        store.index_now(session).unwrap();
        check(&store, session, Pattern::new(Mode::FullText, &stretch), &expected);
        let mut query = Query::new(session, Ask::Pattern(Pattern::new(Mode::FullText, &stretch)));
        query.limit = 1;
        let answer = search(&store, &query).unwrap();
        // One for the hit that is shown.
        prop_assert_eq!(answer.searched.messages_read, expected.len().min(1) as u64);
    }

    #[test]
    fn a_literal_is_found_wherever_it_stands(
        texts in prop::collection::vec(pieces(0..14), 12..70),
        literal in pieces(1..4).prop_filter("a literal has a character", |pieces| !pieces.is_empty()),
        cut in 0usize..4,
        case in any::<bool>(),
    ) {
        // Maybe without its beginning, but for the last character.
        let cut = cut.min(literal.chars().count() - 1);
        let literal: String = literal.chars().skip(cut).collect();
        let expected = matching(&texts, |text| {
            !occurrences(&composed(text), &composed(&literal), case).is_empty()
        });
        let (_directory, store, session) = store_of(&texts);
        let mut pattern = Pattern::new(Mode::Literal, literal);
        pattern.case_sensitive = Some(case);
        check(&store, session, pattern, &expected);
    }

    #[test]
    fn a_regular_expression_finds_what_it_matches(
        texts in prop::collection::vec(pieces(0..14), 12..70),
        parts in prop::collection::vec((
            prop::sample::select(&PIECES[..]),
            prop::sample::select(&["", "", ".*", r"\s+", r"\b", r"\B", "[a-z]+", "|", "+", "?", "{2}", "$",
                r"[^\w]", r"(?-u:\b)", r"\d*", "[Aa]", "|^"][..]),
        ), 1..5),
        ignore_case in any::<bool>(),
        group in any::<bool>(),
    ) {
        let mut pattern: String =
            parts.iter().map(|(piece, glue)| format!("{}{glue}", regex::escape(piece))).collect();
        if group {
            pattern = format!("(?:{pattern})+");
        }
        if ignore_case {
            pattern.insert_str(0, "(?i)");
        }
        // Word boundaries of both kinds in one pattern are refused.
        let boundaries = pattern.replace(r"(?-u:\b)", "");
        prop_assume!(boundaries.len() == pattern.len() || !boundaries.to_lowercase().contains(r"\b"));
        let Ok(regex) = regex::Regex::new(&composed(&pattern)) else {
            return Ok(());
        };
        let expected = matching(&texts, |text| regex.is_match(&composed(text)));
        let (_directory, store, session) = store_of(&texts);
        check(&store, session, Pattern::new(Mode::Regex, pattern), &expected);
    }

    #[test]
    fn a_question_of_any_kind_is_answered(
        texts in prop::collection::vec(pieces(0..14), 1..40),
        question in pieces(1..8),
    ) {
        let (_directory, store, session) = store_of(&texts);
        match search(&store, &Query::new(session, Ask::Question(question))) {
            Ok(answer) => prop_assert!(answer.hits.len() <= 20),
            Err(error) => prop_assert!(matches!(error, StoreError::Query(_))),
        }
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn total(store: &Store, session: SessionId, mode: Mode, pattern: &str) -> u64 {
    let query = Query::new(session, Ask::Pattern(Pattern::new(mode, pattern)));
    search(store, &query).unwrap().total
}

#[test]
fn words_identifiers_and_paths_are_exact() {
    let (_directory, store, session) = store_of(&texts(&[
        "panics at src/ledger/epoch.rs:412 in reconcile_ledger_epoch()",
        "panics at src/ledger/epoch.rs:4123",
        "needle-5001-alpha and needle-5001-alphabet",
        "needle-5001-alphabet alone",
        "the copper\nlantern protocol",
        "数据库索引重建完成",
        "Mixed索引x",
        "don't stop",
    ]));
    for (pattern, expected) in [
        ("src/ledger/epoch.rs:412", 1),
        ("epoch.rs", 2),
        ("reconcile_ledger_epoch", 1),
        ("reconcile_ledger", 0),
        ("needle-5001-alpha", 1),
        ("needle-5001-alphabet", 2),
        ("\"copper lantern\"", 1),
        ("\"lantern copper\"", 0),
        ("lantern copper", 1),
        ("PANICS", 2),
        ("panic", 0),
        ("索引", 2),
        ("索", 2),
        ("索引重建完", 1),
        ("mixed", 1),
        ("don't", 1),
    ] {
        assert_eq!(
            total(&store, session, Mode::FullText, pattern),
            expected,
            "{pattern}"
        );
    }
}

#[test]
fn letters_are_found_however_they_are_written() {
    let said = [
        "Le café ferme", "The résumé", "Ångström", "파일이름", "でんわ", "йод",
    ];
    let decomposed: Vec<String> = said.iter().map(|text| text.nfd().collect()).collect();
    let all = [texts(&said), decomposed].concat();
    let (_directory, store, session) = store_of(&all);
    for (mode, pattern, expected) in [
        (Mode::FullText, "cafe", 2),
        (Mode::FullText, "CAFÉ", 2),
        (Mode::FullText, "resume angstrom", 0),
        (Mode::FullText, "resume", 2),
        (Mode::FullText, "angstrom", 2),
        (Mode::FullText, "파일이름", 2),
        (Mode::FullText, "иод", 0),
        (Mode::FullText, "йод", 2),
        (Mode::Literal, "café", 2),
        (Mode::Literal, "cafe", 0),
        (Mode::Literal, "caf", 2),
        (Mode::Literal, "んわ", 2),
        (Mode::Regex, "caf[é]", 2),
        (Mode::Regex, "^.{8}$", 2),
    ] {
        for pattern in [pattern.to_owned(), pattern.nfd().collect::<String>()] {
            let found = total(&store, session, mode, &pattern);
            // A class of two characters does not match one composed character.
            assert!(
                found == expected || pattern.contains('['),
                "{mode:?} {pattern}: {found}"
            );
        }
    }
    let mut query = Query::new(
        session,
        Ask::Pattern(Pattern::new(Mode::FullText, "resume")),
    );
    query.sort = Some(Sort::Oldest);
    let shown = search(&store, &query).unwrap().hits;
    assert!(
        shown[1].snippet.text.contains("re\u{301}sume\u{301}"),
        "{:?}",
        shown[1].snippet.text
    );
}

#[test]
fn punctuation_around_a_term_is_none_of_it_and_inside_it_counts() {
    let (_directory, store, session) = store_of(&texts(&[
        "zircon7713 is copper; the copper lantern protocol calls reconcile_ledger_epoch() there",
        "Peregrine flew at src/ledger/epoch.rs:412 over .gitignore",
        "lantern of copper, a protocol in C++ with needle-5001-alpha",
        "main(arr[0]) is `main` at --verbose",
        "索引，重建",
    ]));
    for (pattern, expected) in [
        ("zircon7713, copper", 1),
        ("\"copper lantern protocol\", zircon7713", 1),
        ("(\"copper lantern protocol\")", 1),
        ("“copper lantern protocol”", 1),
        ("„copper lantern protocol“", 1),
        ("«copper lantern protocol».", 1),
        ("「copper lantern protocol」", 1),
        ("'copper lantern protocol'", 1),
        ("`copper lantern protocol`", 1),
        ("“protocol lantern copper”", 0),
        ("copper lantern protocol", 2),
        ("`reconcile_ledger_epoch`", 1),
        ("reconcile_ledger_epoch()", 1),
        ("(reconcile_ledger_epoch()),", 1),
        ("Peregrine!", 1),
        ("Who is Peregrine?!", 0),
        ("[Peregrine]:", 1),
        ("peregrine…", 1),
        ("src/ledger/epoch.rs:412.", 1),
        ("(src/ledger/epoch.rs:412)", 1),
        ("src/ledger/epoch.rs:41", 0),
        ("needle-5001-alpha;", 1),
        ("-needle-5001-alpha", 0),
        (".gitignore", 1),
        (".gitignor", 0),
        ("C++", 1),
        ("C++,", 1),
        ("copper++", 0),
        ("--verbose", 1),
        ("-–verbose", 0),
        ("main()", 0),
        ("main(", 1),
        ("arr[0]", 1),
        ("[arr[0]]", 1),
        ("arr[0](", 1),
        // Quotes keep what stands in them.
        ("\"copper;\"", 1),
        ("\"copper,\" lantern", 1),
        ("\"Peregrine!\"", 0),
        // What is nothing but such punctuation is no term.
        ("zircon7713 , copper ?", 1),
        ("索引。", 1),
        ("「重建」！", 1),
        // An apostrophe is no quote that has to be closed.
        ("'Peregrine flew", 1),
    ] {
        assert_eq!(
            total(&store, session, Mode::FullText, pattern),
            expected,
            "{pattern}"
        );
    }
    for nothing in ["?!", "(\"\")", "“”", "` `", "...", "++"] {
        let query = Query::new(session, Ask::Pattern(Pattern::new(Mode::FullText, nothing)));
        let error = search(&store, &query).unwrap_err().to_string();
        assert!(error.contains("has no word in it"), "{nothing}: {error}");
    }
}

#[test]
fn a_bad_pattern_is_an_error_that_shows_where() {
    let (_directory, store, session) =
        store_of(&texts(&["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab!"]));
    let query = |mode, text: &str| Query::new(session, Ask::Pattern(Pattern::new(mode, text)));
    let error = search(&store, &query(Mode::Regex, "hello["))
        .unwrap_err()
        .to_string();
    assert!(error.contains("hello[\n") && error.contains('^'), "{error}");
    for mode in [Mode::Regex, Mode::Literal, Mode::FullText] {
        assert!(matches!(
            search(&store, &query(mode, "")),
            Err(StoreError::Query(_))
        ));
    }
    assert!(matches!(
        search(&store, &query(Mode::FullText, " \n")),
        Err(StoreError::Query(_))
    ));
    assert_eq!(total(&store, session, Mode::Regex, "(?i)AAB!"), 1);
    assert_eq!(total(&store, session, Mode::Regex, "(a|b)+$"), 0);
    let mut paged = query(Mode::Literal, "a");
    paged.cursor = Some("nonsense".into());
    assert!(matches!(search(&store, &paged), Err(StoreError::Query(_))));
    assert!(matches!(
        search(&store, &Query::new(session, Ask::Question("?!".into()))),
        Err(StoreError::Query(_))
    ));
    assert!(matches!(
        store.search(&query(Mode::Literal, "!"), &|| true),
        Err(StoreError::Cancelled)
    ));
}

#[test]
fn filters_narrow_by_what_was_said_by_whom_and_when() {
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    let other = store.open_session("other").unwrap();
    let large = "word ".repeat(20_000);
    let views = [
        MessageView::new(MessageId(1), "user")
            .with_text("word")
            .with_time(1_000),
        MessageView::new(MessageId(2), "tool")
            .with_text(&large)
            .with_result_of("c", "ls")
            .with_time(5_000),
        // The clock went back.
        MessageView::new(MessageId(3), "tool")
            .with_text("word")
            .with_result_of("d", "cat")
            .with_time(2_000),
        // Has no time: it was said about when the one before it was, by the order of arrival.
        MessageView::new(MessageId(4), "assistant").with_text("word"),
    ];
    store.ingest(session, &views).unwrap();
    store.ingest(other, &views[..1]).unwrap();
    for indexed in [false, true] {
        if indexed {
            store.index_now(session).unwrap();
        }
        let ask = |change: &dyn Fn(&mut Query)| {
            let mut query = Query::new(session, Ask::Pattern(Pattern::new(Mode::FullText, "word")));
            query.sort = Some(Sort::Oldest);
            change(&mut query);
            let answer = search(&store, &query).unwrap();
            assert_eq!(answer.total, answer.hits.len() as u64);
            ids(&answer)
        };
        assert_eq!(ask(&|_| ()), [1, 2, 3, 4]);
        assert_eq!(ask(&|query| query.role = Some("tool".into())), [2, 3]);
        assert_eq!(ask(&|query| query.role = Some("Tool".into())), [2, 3]);
        assert_eq!(ask(&|query| query.tool = Some("cat".into())), [3]);
        assert_eq!(ask(&|query| query.since_ms = Some(2_000)), [2, 3, 4]);
        assert_eq!(ask(&|query| query.until_ms = Some(2_000)), [1, 3]);
        assert_eq!(ask(&|query| query.scope = Scope::Files), [2]);
        assert_eq!(ask(&|query| query.scope = Scope::Summaries), [0u64; 0]);
        assert_eq!(
            ask(&|query| query.sessions = vec![session, other]),
            [1, 1, 2, 3, 4]
        );
        assert_eq!(ask(&|query| query.sessions = vec![other]), [1]);
    }
}

#[test]
fn what_has_no_time_of_its_own_counts_by_its_arrival_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    let say = |id: u64, time: Option<i64>, now_ms: i64| {
        let view = MessageView::new(MessageId(id), "user").with_text("word");
        let view = time.map_or(view, |time| view.with_time(time));
        store
            .tell(session, &Delivery::new(&[view]), now_ms)
            .unwrap();
    };
    say(1, Some(1_000), 9_000);
    say(2, None, 5_000);
    say(3, None, 6_000);
    // The clock went back; what was said still came later.
    say(4, None, 4_000);
    let ask = |since, until| {
        let mut query = Query::new(session, Ask::Pattern(Pattern::new(Mode::FullText, "word")));
        (query.since_ms, query.until_ms, query.sort) = (since, until, Some(Sort::Oldest));
        search(&store, &query).unwrap()
    };
    assert_eq!(ids(&ask(Some(2_000), None)), [2, 3, 4]);
    assert_eq!(ids(&ask(None, Some(5_000))), [1, 2]);
    assert_eq!(ids(&ask(Some(5_001), Some(6_000))), [3, 4]);
    let hits = ask(None, None).hits;
    let times: Vec<_> = hits
        .iter()
        .map(|hit| (hit.at_ms, hit.at_is_exact))
        .collect();
    assert_eq!(
        times,
        [
            (Some(1_000), true),
            (Some(5_000), false),
            (Some(6_000), false),
            (Some(6_000), false)
        ]
    );
}

#[test]
fn what_is_said_after_the_clock_was_years_ahead_is_found_by_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    let (in_2099, in_2026) = (4_080_000_000_000, 1_790_000_000_000);
    for (id, now_ms) in [(1, in_2099), (2, in_2026), (3, in_2026 + 1)] {
        let view = MessageView::new(MessageId(id), "user").with_text("word");
        store
            .tell(session, &Delivery::new(&[view]), now_ms)
            .unwrap();
    }
    let mut query = Query::new(session, Ask::Pattern(Pattern::new(Mode::FullText, "word")));
    (query.until_ms, query.sort) = (Some(in_2026 + 1), Some(Sort::Oldest));
    assert_eq!(ids(&search(&store, &query).unwrap()), [2, 3]);
}

#[test]
fn what_a_cut_left_is_found_and_marked() {
    let (_directory, store, session) = store_of(&texts(&["kept word", "left word"]));
    store.cut(session, Some(MessageId(0))).unwrap();
    let query = Query::new(session, Ask::Pattern(Pattern::new(Mode::FullText, "word")));
    let hits = search(&store, &query).unwrap().hits;
    assert_eq!(
        hits.iter().map(|hit| hit.live).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn a_snippet_shows_the_match_with_its_context() {
    let (_directory, store, session) =
        store_of(&texts(&["one\ntwo\nthe İ NEEDLE here\nfour\nfive"]));
    let mut query = Query::new(
        session,
        Ask::Pattern(Pattern::new(Mode::FullText, "needle")),
    );
    query.context_lines = 1;
    let hit = search(&store, &query).unwrap().hits.remove(0);
    assert_eq!(hit.snippet.text, "two\nthe İ NEEDLE here\nfour");
    assert_eq!(hit.snippet.line, 3);
}

#[test]
fn a_question_finds_other_forms_of_its_words() {
    let (_directory, store, session) = store_of(&texts(&[
        "We talked about the weather in the morning.",
        "My sister bought a red bicycle in Lisbon last spring.",
        "The bicycle race was cancelled.",
        "Nothing to see here, only words about words.",
        "昨天我在里斯本买了一辆自行车。",
    ]));
    let ask = |question: &str| {
        let query = Query::new(session, Ask::Question(question.into()));
        search(&store, &query).unwrap()
    };
    // The assistant said it, so "my sister" would ask for something else.
    let answer = ask("Which bicycles did the sister buy?");
    assert_eq!(ids(&answer)[0], 1);
    assert!(!answer.total_is_exact);
    assert!(answer.hits[0].snippet.text.contains("bought"));
    assert_eq!(ids(&ask("谁买了自行车？"))[0], 4);
}

/// Messages of these texts, the ids going on from `first`.
fn ingest(store: &Store, session: SessionId, first: u64, texts: &[String]) {
    let views: Vec<_> = (first..)
        .zip(texts)
        .map(|(id, text)| MessageView::new(MessageId(id), "user").with_text(text))
        .collect();
    store.ingest(session, &views).unwrap();
}

#[test]
fn pages_go_on_as_they_began_while_messages_arrive() {
    let word = |at: usize| format!("word {} {}", "filler ".repeat(at % 7), at);
    let first: Vec<String> = (0..23).map(word).collect();
    let question = Ask::Question("which word is a filler?".into());
    let pattern = Ask::Pattern(Pattern::new(Mode::FullText, "word"));
    for (ask, sort) in [
        (&pattern, Sort::Oldest),
        (&pattern, Sort::Recency),
        (&pattern, Sort::Relevance),
        (&question, Sort::Relevance),
        (&question, Sort::Oldest),
    ] {
        let (_directory, store, session) = store_of(&first);
        let mut query = Query::new(session, ask.clone());
        query.sort = Some(sort);
        query.limit = 100;
        let expected = ids(&search(&store, &query).unwrap());
        query.limit = 4;
        let mut found = Vec::new();
        for turn in 0.. {
            let answer = search(&store, &query).unwrap();
            assert_eq!(answer.total, 23, "{ask:?} {sort:?}");
            assert_eq!(answer.searched.messages, 23);
            found.extend(ids(&answer));
            let last = answer.hits.last().map(|hit| hit.cursor.clone());
            query.cursor = answer.next_cursor;
            if query.cursor.is_none() {
                break;
            }
            assert_eq!(query.cursor, last);
            // What arrives would stand first in every order but the oldest.
            let more: Vec<String> = (0..5)
                .map(|at| format!("word filler {turn} {at}"))
                .collect();
            ingest(&store, session, 100 + turn * 5, &more);
            if turn % 2 == 0 {
                store.index_now(session).unwrap();
            }
        }
        assert_eq!(found, expected, "{ask:?} {sort:?}");
    }
}

#[test]
fn a_session_named_twice_is_searched_once() {
    let (_directory, store, session) = store_of(&texts(&["word", "word"]));
    for ask in [
        Ask::Pattern(Pattern::new(Mode::FullText, "word")),
        Ask::Question("word?".into()),
    ] {
        let mut query = Query::new(session, ask);
        query.sessions = vec![session, session];
        let answer = search(&store, &query).unwrap();
        assert_eq!((answer.total, answer.hits.len()), (2, 2));
        assert_eq!((answer.searched.sessions, answer.searched.messages), (1, 2));
    }
}

#[test]
fn a_question_keeps_to_its_scope() {
    let large = "a long word ".repeat(60);
    let (_directory, store, session) = store_of(&texts(&["a short word", &large]));
    for (scope, expected) in [
        (Scope::All, vec![0, 1]),
        (Scope::Messages, vec![0, 1]),
        (Scope::Files, vec![1]),
        (Scope::Summaries, vec![]),
    ] {
        let mut query = Query::new(session, Ask::Question("which word?".into()));
        query.scope = scope;
        let answer = search(&store, &query).unwrap();
        let mut found = ids(&answer);
        found.sort_unstable();
        assert_eq!(
            (found, answer.total),
            (expected.clone(), expected.len() as u64),
            "{scope:?}"
        );
    }
}

#[test]
fn a_damaged_index_costs_time_and_no_hits() {
    let said: Vec<String> = (0..60)
        .map(|at| format!("word number {at} 索引重建"))
        .collect();
    for damage in [
        "UPDATE posting_chunks SET lists = x'ffffff'",
        "UPDATE posting_chunks SET lists = x''",
        "UPDATE posting_chunks SET places = x'ffffff'",
        "UPDATE posting_chunks SET places = NULL",
        "DELETE FROM posting_chunks",
        "DELETE FROM segments WHERE id = (SELECT min(id) FROM segments)",
        "UPDATE segments SET first = 'x'",
    ] {
        let (_directory, store, session) = store_of(&said);
        let connection = rusqlite::Connection::open(store.path()).unwrap();
        connection
            .execute_batch("PRAGMA foreign_keys = ON")
            .unwrap();
        assert!(connection.execute(damage, []).unwrap() > 0);
        for (mode, pattern) in [
            (Mode::FullText, "word"),
            (Mode::FullText, "索"),
            (Mode::FullText, "索引重"),
            (Mode::Literal, "ord num"),
            (Mode::Regex, "n.mber"),
        ] {
            assert_eq!(
                total(&store, session, mode, pattern),
                60,
                "{damage}: {pattern}"
            );
        }
        let question = Query::new(session, Ask::Question("which number is the word?".into()));
        assert_eq!(search(&store, &question).unwrap().total, 60, "{damage}");
    }
}

#[test]
fn what_a_killed_process_left_half_indexed_is_not_seen_and_is_swept_up() {
    let said: Vec<String> = (0..60).map(|at| format!("word number {at}")).collect();
    let (directory, store, session) = store_of(&said);
    drop(store);
    let connection = rusqlite::Connection::open(directory.path().join(FILE_NAME)).unwrap();
    let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    // As they stand in the middle of a join: the old ones in force, the new one not whole.
    let copied = connection
        .execute_batch(
            "INSERT INTO segments(session, corpus, first, last, level, state, signatures)
                 SELECT session, corpus, 0, 60, 1, 0, x'' FROM segments LIMIT 1;
             INSERT INTO term_chunks(segment, first, terms)
                 SELECT (SELECT max(id) FROM segments), first, terms FROM term_chunks LIMIT 1;",
        )
        .and_then(|()| count("SELECT count(*) FROM segments WHERE state != 1"));
    assert_eq!(copied, Ok(1));

    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    assert_eq!(total(&store, session, Mode::FullText, "word"), 60);
    assert_eq!(store.check_index(session).unwrap().wrong, []);
    store.index_soon(session);
    drop(store);
    assert_eq!(
        count("SELECT count(*) FROM segments WHERE state != 1"),
        Ok(0)
    );
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    assert_eq!(total(&store, session, Mode::FullText, "word"), 60);
    assert_eq!(store.check_index(session).unwrap().wrong, []);
}

#[test]
fn what_several_threads_index_at_once_is_indexed_once() {
    let long = "so that it takes a while ".repeat(100);
    let said: Vec<String> = (0..60).map(|at| format!("word {at} {long}")).collect();
    let directory = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    let store = ingest::open(directory.path(), settings).unwrap();
    let session = store.open_session("s").unwrap();
    ingest(&store, session, 0, &said);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.index_now(session).unwrap());
        }
    });
    assert_eq!(total(&store, session, Mode::FullText, "word"), 60);
    drop(store);
    let connection = rusqlite::Connection::open(directory.path().join(FILE_NAME)).unwrap();
    let made = "SELECT seq FROM sqlite_sequence WHERE name = 'segments'";
    let made = connection.query_row(made, [], |row| row.get::<_, i64>(0));
    assert_eq!(made, Ok(1));
}

#[test]
fn messages_that_cannot_be_read_are_counted_and_hide_no_others() {
    let said: Vec<String> = (0..60).map(|at| format!("word number {at}")).collect();
    let (directory, store, session) = store_of(&said);
    for id in [3, 4, 5] {
        ingest::host_of(directory.path()).lose_text("s", MessageId(id));
    }
    let query = |ask| {
        let mut query = Query::new(session, ask);
        query.limit = 100;
        search(&store, &query).unwrap()
    };
    let literal = query(Ask::Pattern(Pattern::new(Mode::Literal, "ord number")));
    let unreadable = literal.searched.messages_unreadable;
    assert!(
        unreadable > 0 && literal.total == 60 - unreadable,
        "{literal:?}"
    );
    assert!(!literal.total_is_exact, "they may match");
    // The index alone knows better, and the hits whose text is gone are there without it.
    let words = query(Ask::Pattern(Pattern::new(Mode::FullText, "word")));
    assert_eq!(
        (words.total, words.searched.messages_unreadable),
        (60, unreadable)
    );
    assert!(words.total_is_exact);
    let gone = words.hits.iter().filter(|hit| hit.snippet.text.is_empty());
    assert_eq!(gone.count() as u64, unreadable);
    let asked = query(Ask::Question("which word?".into()));
    assert_eq!(asked.searched.messages_unreadable, unreadable);
    assert_eq!(asked.total, 60 - unreadable);
}

#[test]
fn a_large_text_of_changing_lengths_is_shown_at_the_right_place() {
    // Each capital sharp s is a byte longer than its small one. A search whose work grows with the
    // square of the length would not come to an end here.
    let text = "ẞ needle ".repeat(400_000);
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    ingest(&store, session, 1, std::slice::from_ref(&text));
    let spread = format!("{}ẞ", "x ".repeat(2_000_000));
    ingest(
        &store,
        session,
        2,
        &[format!("{spread} NEEDLE {spread} needle")],
    );
    let query = Query::new(
        session,
        Ask::Pattern(Pattern::new(Mode::FullText, "needle")),
    );
    let hits = search(&store, &query).unwrap().hits;
    assert_eq!(hits[0].snippet.byte, spread.len() + 1);
    assert_eq!((hits[0].snippet.matches, hits[1].snippet.matches), (2, 100));
    assert_eq!(hits[1].snippet.byte, "ẞ ".len());
}

/// Patterns and questions of any size: an answer, or an error that says what to do.
#[test]
fn what_is_asked_is_bounded() {
    let (_directory, store, session) =
        store_of(&texts(&["some words of a text", "word7 and word9"]));
    let long: String = (0..100_000).map(|n| format!("word{n} ")).collect();
    let query = |mode, text: &str| Query::new(session, Ask::Pattern(Pattern::new(mode, text)));
    for mode in [Mode::Regex, Mode::Literal, Mode::FullText] {
        let error = search(&store, &query(mode, &long)).unwrap_err().to_string();
        assert!(
            error.contains("988890 bytes, and may have 10000"),
            "{error}"
        );
    }
    let many: String = (0..300).map(|n| format!("word{n} ")).collect();
    let error = search(&store, &query(Mode::FullText, &many))
        .unwrap_err()
        .to_string();
    assert!(error.contains("300 words, and may have 200"), "{error}");
    let mut sessions = query(Mode::Literal, "word");
    sessions.sessions = vec![session; 101];
    let error = search(&store, &sessions).unwrap_err().to_string();
    assert!(error.contains("101 sessions"), "{error}");
    // An alternation is looked up in the index or not: the texts decide.
    for count in [3, 60, 70, 900] {
        let words: Vec<String> = (0..count).map(|n| format!("word{n}")).collect();
        let found = total(&store, session, Mode::Regex, &words.join("|"));
        assert_eq!(found, u64::from(count > 7), "{count}");
    }
    let question =
        |text: &str| search(&store, &Query::new(session, Ask::Question(text.into()))).unwrap();
    let answer = question(&format!("word9 {long}"));
    assert_eq!(ids(&answer)[0], 1);
    assert_eq!(answer.words_left_out, 100_001 - 200);
    assert_eq!(question("word9").words_left_out, 0);
}

/// One text may be long: the search of it ends when it is told to.
#[test]
fn a_search_ends_within_a_text() {
    let text = format!("{}needle", "ab a ".repeat(800_000));
    let (_directory, store, session) = store_of(&[text]);
    for (mode, pattern) in [
        (Mode::Regex, "(a|b)+z"),
        (Mode::Regex, r"\bb{3}z"),
        (Mode::FullText, "\"a ab a ab a a\""),
    ] {
        let query = Query::new(session, Ask::Pattern(Pattern::new(mode, pattern)));
        let asked = std::cell::Cell::new(0);
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() > 5
        };
        let ended = store.search(&query, &cancelled);
        assert!(
            matches!(ended, Err(StoreError::Cancelled)),
            "{pattern}: {ended:?}"
        );
        let until = std::time::Instant::now() + std::time::Duration::from_millis(20);
        let ended = store.search(&query, &|| std::time::Instant::now() > until);
        assert!(until.elapsed().as_secs() < 2, "{pattern}: {ended:?}");
    }
}

//! Imports of logs that grow, change, are damaged or hold secrets, and what a search says of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_history::{History, HistoryError, Importer, Kind, Places, Query, parse_since};
use serde_json::json;
use support::Machine;

const LOG: &str = ".pi/agent/sessions/--work-shop--/s.jsonl";

fn head(project: &str) -> String {
    format!(
        "{}\n",
        json!({"type": "session", "id": "s", "cwd": project})
    )
}

fn said(text: &str) -> String {
    at("2026-01-31T09:00:00Z", text)
}

fn at(time: &str, text: &str) -> String {
    format!(
        "{}\n",
        json!({"type": "message", "timestamp": time, "message": {"role": "user", "content": text}})
    )
}

#[test]
fn a_second_import_reads_only_what_is_new() {
    let machine = Machine::new();
    machine.put(LOG, head("/work/shop") + &said("firstword"));
    let first = machine.import();
    assert_eq!(first.agents["pi"].read, 1);
    let id = machine.only("firstword").message.id;

    let again = machine.import();
    assert_eq!(
        (
            again.agents["pi"].logs,
            again.agents["pi"].read,
            again.messages()
        ),
        (1, 0, 0)
    );

    let more = said("secondword");
    machine.append(LOG, &more);
    let grown = machine.import();
    assert_eq!(grown.agents["pi"].bytes, more.len() as u64);
    assert_eq!(machine.only("firstword").message.id, id);
    assert_eq!(
        machine.only("secondword").message.project.as_deref(),
        Some("/work/shop")
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_whose_name_is_not_text_is_read_once() {
    use std::os::unix::ffi::OsStrExt;

    let machine = Machine::new();
    machine.put(LOG, head("/work/shop") + &said("firstword"));
    let name = std::ffi::OsStr::from_bytes(b"s\xff.jsonl");
    let log = machine.path(LOG);
    std::fs::rename(&log, log.with_file_name(name)).unwrap();
    assert_eq!(machine.import().agents["pi"].read, 1);
    assert_eq!(machine.import().agents["pi"].read, 0);
    machine.only("firstword");
}

#[test]
fn a_line_that_is_still_being_written_is_read_when_it_is_complete() {
    let machine = Machine::new();
    let line = said("slowword");
    let (begin, end) = line.split_at(line.len() / 2);
    machine.put(LOG, head("/work/shop") + begin);
    assert!(machine.import().skipped.is_empty());
    machine.append(LOG, end);
    machine.import();
    machine.only("slowword");
}

#[test]
fn a_log_that_was_replaced_is_read_again_and_nothing_is_lost_or_doubled() {
    let machine = Machine::new();
    machine.put(
        LOG,
        head("/work/shop") + &said("keptword") + &said("deletedword"),
    );
    machine.import();
    let kept = machine.only("keptword").message.id;
    // Longer, and with another beginning.
    machine.put(
        LOG,
        head("/work/shop") + &said("insertedword is long enough to move all") + &said("keptword"),
    );
    machine.import();
    assert_eq!(machine.only("keptword").message.id, kept);
    machine.only("insertedword");
    machine.only("deletedword");
    // A log that is gone leaves its history.
    std::fs::remove_file(machine.path(LOG)).unwrap();
    machine.import();
    machine.only("keptword");
}

#[test]
fn damaged_lines_are_skipped_and_counted() {
    let machine = Machine::new();
    let mut log = head("/work/shop").into_bytes();
    for piece in [
        said("beforeword").into_bytes(),
        b"{\"type\": \"message\", \"mess\n".to_vec(),
        b"\xff\xfe\x00 not text\n".to_vec(),
        b"[1, 2\n".to_vec(),
        b"\n   \n".to_vec(),
        said("afterword").into_bytes(),
    ] {
        log.extend(piece);
    }
    machine.put(LOG, log);
    let report = machine.import();
    machine.only("beforeword");
    machine.only("afterword");
    let [skipped] = &report.skipped[..] else {
        panic!("{:#?}", report.skipped)
    };
    assert_eq!((skipped.parts, &skipped.path), (3, &machine.path(LOG)));
    assert!(skipped.why.contains("byte"), "{}", skipped.why);
}

#[test]
fn a_document_that_cannot_be_read_stops_nothing() {
    let machine = Machine::new();
    machine.put(".gemini/tmp/p/chats/a.json", "{\"sessionId\": ");
    machine.put(".local/share/goose/sessions/sessions.db", "not a database");
    machine.put(LOG, head("/work/shop") + &said("soundword"));
    let report = machine.import();
    assert_eq!(report.skipped.len(), 2, "{:#?}", report.skipped);
    machine.only("soundword");
    // What was skipped is tried again, and read once it is whole.
    let whole = json!({"sessionId": "s", "projectHash": "p", "messages": [{"id": "1", "type": "user", "content": "wholeword"}]});
    machine.put(".gemini/tmp/p/chats/a.json", whole.to_string());
    machine.import();
    machine.only("wholeword");
}

#[test]
fn of_an_export_that_is_cut_off_the_whole_conversations_are_kept() {
    let machine = Machine::new();
    let one = |id: &str, word: &str| {
        json!({"uuid": id, "name": "n", "chat_messages": [{"uuid": id, "sender": "human", "text": word}]}).to_string()
    };
    let path = machine.put(
        "c.json",
        format!(
            "[{},{},{{\"uuid\": \"c\"",
            one("a", "firstword"),
            one("b", "secondword")
        ),
    );
    let report = machine.import_named(&path);
    assert_eq!(report.skipped.len(), 1, "{report:#?}");
    machine.only("firstword");
    machine.only("secondword");
}

#[test]
fn of_an_export_with_a_conversation_that_cannot_be_read_the_others_are_kept() {
    let one = |id: &str, word: &str| {
        json!({"uuid": id, "name": "n", "chat_messages": [{"uuid": id, "sender": "human", "text": word}]}).to_string()
    };
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for damage in [
        &*deep,
        "{\"a\": 1e}",
        "{\"a\": \"\\x\\\"]\"}",
        "nul",
        "{\"a\" [1, \"}\"]}",
    ] {
        let machine = Machine::new();
        let (first, last) = (one("a", "firstword \"[}, \\"), one("b", "lastword"));
        let path = machine.put("c.json", format!("[{first}, {damage} ,\n{last}]\n"));
        let report = machine.import_named(&path);
        assert_eq!(report.skipped.len(), 1, "{damage}: {report:#?}");
        assert!(report.skipped[0].why.contains("element 2"), "{report:#?}");
        machine.only("firstword");
        machine.only("lastword");
    }
}

#[test]
fn an_import_that_stops_goes_on_where_it_was() {
    let machine = Machine::new();
    let many: String = (0..200).map(|n| said(&format!("word{n}x"))).collect();
    machine.put(LOG, head("/work/shop") + &many);
    let places = Places::new(&machine.path(""), &|_| None);
    let mut importer = Importer::open(&machine.home(), false).unwrap();
    let mut calls = 0;
    let stopped = importer.run(&places, &[], &mut |_| {
        calls += 1;
        calls < 100
    });
    assert!(stopped.unwrap().stopped);
    let rest = importer.run(&places, &[], &mut |_| true).unwrap();
    assert!(
        !rest.stopped && rest.messages() > 0 && rest.messages() < 200,
        "{rest:#?}"
    );
    drop(importer);
    for n in [0, 50, 98, 99, 100, 101, 199] {
        machine.only(&format!("word{n}x"));
    }
}

#[test]
fn only_one_process_imports_and_others_search_meanwhile() {
    let machine = Machine::new();
    machine.put(LOG, head("/work/shop") + &said("someword"));
    machine.import();
    let _importing = Importer::open(&machine.home(), false).unwrap();
    assert!(matches!(
        Importer::open(&machine.home(), false),
        Err(HistoryError::Busy { .. })
    ));
    machine.only("someword");
}

#[test]
fn a_process_that_searches_does_not_keep_the_write_ahead_log() {
    let machine = Machine::new();
    machine.put(LOG, head("/work/shop") + &said("first oldword"));
    machine.import();
    let history = machine.history();
    machine.append(LOG, &said("second newword"));
    machine.import();
    assert_eq!(history.search(&Query::new("newword")).unwrap().matches, 1);
    let log = std::fs::metadata(machine.home().join("history.sqlite3-wal"));
    assert_eq!(log.unwrap().len(), 0);
}

#[test]
fn a_history_of_another_version_is_left_as_it_is() {
    let machine = Machine::new();
    machine.put(LOG, head("/work/shop") + &said("someword"));
    machine.import();
    let path = machine.home().join("history.sqlite3");
    for version in [1, 1_000] {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.pragma_update(None, "user_version", version).unwrap();
        drop(db);
        let before = std::fs::read(&path).unwrap();
        let opened = [
            History::open(&machine.home()).err(),
            Importer::open(&machine.home(), false).err(),
        ];
        for error in opened {
            assert!(matches!(error, Some(HistoryError::OtherVersion { .. })));
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn where_a_table_of_the_index_ends_makes_no_difference() {
    let log = head("/work/shop") + &said("first both1 common");
    let more: String = (2..8)
        .map(|n| {
            let rare = if n == 5 { "rare" } else { "often" };
            at(
                &format!("2026-01-0{n}T10:00:00Z"),
                &format!("both{n} common {rare}"),
            )
        })
        .collect();
    let questions = [
        "common", "both*", "b*", "rare", "both2 common", "\"common often\"", "rare common",
        "rare nowhere", "both7 rare",
    ];
    // How many of the later messages are in the first table.
    let answers = (0..=6).map(|first| {
        let machine = Machine::new();
        machine.put(LOG, &log);
        machine.import();
        let db = rusqlite::Connection::open(machine.home().join("history.sqlite3")).unwrap();
        // A message that no search finds takes the ids between.
        let filler = "INSERT INTO message SELECT ?1, conversation, kind, time, name, call, 0, 0, block, start, length
                      FROM message LIMIT 1";
        let tables = || -> i64 {
            let count = "SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%'";
            db.query_row(count, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(tables(), 1);
        db.execute(filler, [(1 << 15) - 1 - first]).unwrap();
        machine.append(LOG, &more);
        machine.import();
        assert_eq!(tables(), if first < 6 { 2 } else { 1 });
        questions.map(|question| {
            let found = machine.search(question);
            let mut texts: Vec<_> = found.hits.iter().map(|hit| hit.message.text.clone()).collect();
            // How rare a word is counts within a table.
            if !found.has_all_words {
                texts.sort();
            }
            (question, found.matches, found.has_all_words, texts)
        })
    });
    let answers: Vec<_> = answers.collect();
    let (question, matches, _, _) = &answers[0][0];
    assert_eq!((*question, *matches), ("common", 7));
    for answer in &answers {
        assert_eq!(answer, &answers[0]);
    }
}

#[test]
fn secrets_are_masked_before_they_are_stored() {
    let machine = Machine::new();
    let secret = "hunter2secret";
    let call = json!({"type": "message", "message": {"role": "assistant", "content": [
        {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": format!("login --password={secret}")}},
    ]}});
    machine.put(
        LOG,
        head("/work/shop")
            + &said(&format!("the password={secret} is secret"))
            + &format!("{call}\n"),
    );
    machine.import_with(true, &[]);
    assert_eq!(machine.search(secret).matches, 0);
    assert!(
        machine
            .only("password the")
            .message
            .text
            .contains("[secret masked]")
    );
    for name in ["history.sqlite3", "history.sqlite3-wal"] {
        let stored = std::fs::read(machine.home().join(name)).unwrap_or_default();
        assert!(
            !stored
                .windows(secret.len())
                .any(|part| part == secret.as_bytes()),
            "{name}"
        );
    }
}

#[test]
fn pictures_in_results_are_not_indexed() {
    let machine = Machine::new();
    let data = "iVBORw0KGgo".repeat(1_000);
    let result = json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "c", "content": [
        {"type": "text", "text": "resultword"}, {"type": "image", "mimeType": "image/png", "data": data},
    ]}});
    machine.put(LOG, head("/work/shop") + &format!("{result}\n"));
    machine.import();
    let text = machine.only("resultword").message.text;
    assert!(text.len() < 100, "{} bytes", text.len());
    assert_eq!(machine.only("image/png").message.kind, Kind::Attachment);
}

#[test]
fn filters_select_and_say_what_exists() {
    let machine = Machine::new();
    machine.put(
        LOG,
        head("/work/shop")
            + &at("2020-01-01T00:00:00Z", "commonword old")
            + &at("2026-01-31T09:00:00Z", "commonword new"),
    );
    machine.put(
        ".pi/agent/sessions/--work-bank--/t.jsonl",
        head("/work/bank") + &at("2026-01-31T09:00:00Z", "commonword bank"),
    );
    let chat = json!({"sessionId": "s", "projectHash": "p", "messages": [{"id": "1", "type": "gemini", "content": "commonword gemini"}]});
    machine.put(".gemini/tmp/shop/chats/a.json", chat.to_string());
    machine.import();
    let history = machine.history();
    let count = |change: &dyn Fn(&mut Query)| {
        let mut query = Query::new("commonword");
        change(&mut query);
        history.search(&query).map(|found| found.matches)
    };
    assert_eq!(count(&|_| {}).unwrap(), 4);
    assert_eq!(
        count(&|query| query.agent = Some("pi".to_owned())).unwrap(),
        3
    );
    assert_eq!(
        count(&|query| query.project = Some("/work/bank".to_owned())).unwrap(),
        1
    );
    // The last part of a folder, and the same name as another agent keeps it.
    assert_eq!(
        count(&|query| query.project = Some("shop".to_owned())).unwrap(),
        3
    );
    assert_eq!(
        count(&|query| query.project = Some("WORK".to_owned())).unwrap(),
        3
    );
    assert_eq!(
        count(&|query| query.kinds = vec![Kind::Assistant]).unwrap(),
        1
    );
    assert_eq!(
        count(&|query| query.since_ms = parse_since("2025-01-01")).unwrap(),
        2
    );
    assert_eq!(
        count(&|query| query.since_ms = parse_since("9999w")).unwrap(),
        3
    );
    let unknown = count(&|query| query.agent = Some("nobody".to_owned()))
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("nobody") && unknown.contains("gemini, pi"),
        "{unknown}"
    );
    let unknown = count(&|query| query.project = Some("nothing".to_owned()))
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("/work/bank"), "{unknown}");
    assert!(matches!(
        history.search(&Query::new(" ?! ")),
        Err(HistoryError::NoWords(_))
    ));
}

#[test]
fn pages_do_not_overlap_and_copies_are_one_hit() {
    let machine = Machine::new();
    let many: String = (0..25)
        .map(|n| said(&format!("pageword number{n}")))
        .collect();
    machine.put(LOG, head("/work/shop") + &many + &said("pageword number3"));
    // A session that was resumed has the messages of the other.
    machine.put(
        ".pi/agent/sessions/--work-shop--/resumed.jsonl",
        head("/work/shop") + &many,
    );
    machine.import();
    let history = machine.history();
    let mut seen = Vec::new();
    for offset in [0, 10, 20, 30] {
        let mut query = Query::new("pageword");
        (query.limit, query.offset) = (10, offset);
        let found = history.search(&query).unwrap();
        assert_eq!((found.matches, found.is_complete), (25, true));
        assert!(found.hits.iter().all(|hit| hit.copies >= 1));
        seen.extend(found.hits.into_iter().map(|hit| hit.message.text));
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (25, 25));
}

#[test]
fn if_no_message_has_all_words_those_with_some_are_found_and_it_is_said() {
    let machine = Machine::new();
    machine.put(
        LOG,
        head("/work/shop") + &said("the parser fails on unicode") + &said("the weather"),
    );
    machine.import();
    let found = machine.search("parser unicode nonexistent");
    assert!(!found.has_all_words);
    assert_eq!(found.hits[0].message.text, "the parser fails on unicode");
    assert!(machine.search("parser unicode").has_all_words);
    assert_eq!(machine.search("nonexistent").matches, 0);
}

#[test]
fn words_are_found_in_any_script_and_in_long_texts() {
    let machine = Machine::new();
    let long = format!(
        "{} needleword {}",
        "hay ".repeat(50_000),
        "stack ".repeat(50_000)
    );
    machine.put(
        LOG,
        head("/work/shop") + &said("修复数据库连接错误") + &said("Ünïcode Straße") + &said(&long),
    );
    machine.import();
    assert!(machine.only("数据库").message.text.contains("数据库"));
    machine.only("错");
    machine.only("unicode straße");
    let hit = machine.only("needleword");
    assert!(
        hit.snippet.len() < 400 && hit.snippet.contains("needleword"),
        "{}",
        hit.snippet
    );
    assert_eq!(&hit.snippet[hit.matches[0].clone()], "needleword");
    assert_eq!(hit.message.text, long);
}

#[test]
fn neighbours_are_those_of_the_conversation() {
    let machine = Machine::new();
    let log: String = (0..9).map(|n| said(&format!("line{n}"))).collect();
    machine.put(LOG, head("/work/shop") + &log);
    machine.put(
        ".pi/agent/sessions/--work-shop--/other.jsonl",
        head("/work/shop") + &said("otherword"),
    );
    machine.import();
    let read = |context| {
        let excerpt = machine
            .history()
            .read(&machine.only("line4").message.id, context)
            .unwrap()
            .unwrap();
        let texts: Vec<_> = excerpt
            .messages
            .iter()
            .map(|message| message.text.clone())
            .collect();
        (
            texts.join(" "),
            excerpt.messages[excerpt.at].text.clone(),
            excerpt.has_earlier,
            excerpt.has_later,
        )
    };
    assert_eq!(
        read(1),
        (
            "line3 line4 line5".to_owned(),
            "line4".to_owned(),
            true,
            true
        )
    );
    let all: Vec<_> = (0..9).map(|n| format!("line{n}")).collect();
    assert_eq!(read(100), (all.join(" "), "line4".to_owned(), false, false));
    assert!(machine.history().read("m99999", 1).unwrap().is_none());
    assert!(machine.history().read("x", 1).unwrap().is_none());
}

#[test]
fn a_file_whose_format_is_not_known_is_reported() {
    let machine = Machine::new();
    let path = machine.put("notes.txt", "just notes");
    let report = machine.import_named(&path);
    assert!(report.skipped[0].why.contains("claude-code"), "{report:#?}");
    let missing = machine.import_named(&machine.path("missing.json"));
    assert_eq!(missing.skipped.len(), 1);
}

#[test]
fn agents_are_found_where_their_variables_say() {
    let machine = Machine::new();
    let other = machine.path("elsewhere");
    machine.put(
        "elsewhere/sessions/--x--/s.jsonl",
        head("/work/shop") + &said("movedword"),
    );
    let variable =
        |name: &str| (name == "PI_CODING_AGENT_DIR").then(|| other.clone().into_os_string());
    let places = Places::new(&machine.path(""), &variable);
    Importer::open(&machine.home(), false)
        .unwrap()
        .run(&places, &[], &mut |_| true)
        .unwrap();
    machine.only("movedword");
}

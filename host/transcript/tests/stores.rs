//! What is stored is read again, on every kind of store: a file of SQLite and a database of PostgreSQL.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::Duration;

use contexture_engine_api::{MessageId, TranscriptRange};
use contexture_formats::Format;
use contexture_transcript::{
    CopyOutcome, EntryContent, HostText, InForce, KeptChange, KeptContent, NewArtifact, Record,
    RecordError, SavedWindow, StoredSession,
};
use support::conversation::{Extra, WAIT, Writer};
use support::place::{Database, Place};

fn artifact(name: &str, text: Option<&str>) -> NewArtifact {
    NewArtifact {
        engine: "e".to_owned(),
        name: name.to_owned(),
        text: text.map(str::to_owned),
    }
}

fn texts_of(record: &Record, range: &TranscriptRange) -> Vec<String> {
    let page = record.transcript("s", range).unwrap().unwrap();
    let messages = page.messages.into_iter();
    messages.map(|message| message.text).collect()
}

/// An embedder finds a session by its texts, so a process that ends must not leave a session without them.
#[test]
fn texts_are_there_as_soon_as_what_is_saved_with_them() {
    for place in Place::each() {
        let (name, record, other) = (place.name(), place.open(), place.open());
        let mut writer = Writer::open(&record, "s");
        "e".clone_into(&mut writer.stored.engine);
        let change = KeptChange::new("owner", "s", KeptContent::Exact, move |before| {
            assert_eq!(before, None, "{name}");
            let session = other.session("s").unwrap();
            assert_eq!(session.map_or(0, |session| session.messages), 0, "{name}");
            vec![("s".to_owned(), "1".to_owned())]
        });
        let extra = Extra {
            changes: vec![change],
            ..Extra::default()
        };
        writer.say(&["one"], true, extra).unwrap();
        let text = record.kept_text("owner", "s").unwrap();
        assert_eq!(text.as_deref(), Some("1"), "{name}");
        assert_eq!(record.session("s").unwrap().unwrap().messages, 1, "{name}");
    }
}

/// What somebody wrote is masked, however an embedder stores it, and figures stay exact.
#[test]
fn a_record_that_redacts_masks_what_embedders_store() {
    let secret = "password=Tr0ub4dor3xKq9";
    // A hash may have the digits of a payment card.
    let figures = r#"{"hash":4111111111111111}"#;
    for place in Place::each() {
        let (name, record) = (place.name(), place.open());
        record.redact();
        let mut writer = Writer::open(&record, "s");
        "e".clone_into(&mut writer.stored.engine);
        for (content, text) in [
            (KeptContent::Conversation, secret),
            (KeptContent::Exact, figures),
        ] {
            let kept = |at: &str| vec![(format!("{content:?} {at}"), text.to_owned())];
            let by = |at: &str| format!("{content:?} {at}");
            record.keep("s", content, &[(&by("kept"), text)]).unwrap();
            record
                .change_kept("s", &by("changed"), content, |_| kept("changed"))
                .unwrap();
            let saved = [(by("saved"), text.to_owned())];
            let change = KeptChange::new("s", &by("saved"), content, move |_| saved.to_vec());
            let extra = Extra {
                changes: vec![change],
                ..Extra::default()
            };
            writer.say(&[text], true, extra).unwrap();
        }
        for (key, text) in record.kept("s").unwrap() {
            let expected = match key.starts_with("Exact") {
                true => figures,
                false => "password=[secret masked]",
            };
            assert_eq!(text, expected, "{name} {key}");
        }
        assert_eq!(record.kept("s").unwrap().len(), 6, "{name}");
    }
}

/// Only a file can be removed while it is open. The name of a database is not the path of one.
#[test]
fn a_store_that_was_removed_says_so() {
    for place in Place::each() {
        let record = place.open();
        record.check_exists().unwrap();
        if let Place::Sqlite(home) = &place {
            std::fs::remove_dir_all(home.path()).unwrap();
            let gone = record.check_exists();
            assert!(matches!(gone, Err(RecordError::Gone { .. })), "{gone:?}");
        }
    }
    Record::in_memory().unwrap().check_exists().unwrap();
}

/// Gateways count at once what belongs to one session, such as the calls of its agents.
#[test]
fn no_change_overwrites_what_another_one_counted() {
    for place in Place::each() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let record = place.open();
                    for _ in 0..10 {
                        let count = |text: Option<String>| -> Vec<_> {
                            let count = text.map_or(0, |text| text.parse::<u32>().unwrap());
                            // Long enough for others to come between the read and the write.
                            std::thread::sleep(Duration::from_millis(2));
                            vec![("sum".to_owned(), (count + 1).to_string())]
                        };
                        record
                            .change_kept("s", "sum", KeptContent::Exact, count)
                            .unwrap();
                    }
                });
            }
        });
        let sum = place.open().kept_text("s", "sum").unwrap();
        assert_eq!(sum.as_deref(), Some("40"), "{}", place.name());
    }
}

#[test]
fn a_session_is_read_as_it_was_written() {
    for place in Place::each() {
        let record = place.open();
        let mut writer = Writer::open(&record, "s");
        assert!(writer.saved.log.is_empty(), "{}", place.name());
        "e".clone_into(&mut writer.stored.engine);
        let summary = HostText {
            identity: u128::MAX - 5,
            id: MessageId(9),
            shortens: false,
            covers: [MessageId(1), MessageId(2)].into_iter().collect(),
        };
        let window = SavedWindow {
            places: vec![(
                MessageId(9),
                EntryContent::Summary {
                    text: "short".to_owned(),
                    in_system_role: false,
                },
            )],
            system_note: Some("note".to_owned()),
            states: Vec::new(),
            left_out: [MessageId(1)].into_iter().collect(),
        };
        let in_force = InForce {
            number: 3,
            engine: "e".to_owned(),
            window,
        };
        let extra = Extra {
            host_texts: vec![summary],
            in_force: Some(Some(in_force)),
            cursor: Some(MessageId(2)),
            ..Extra::default()
        };
        writer.say(&["one", "two"], false, extra).unwrap();
        writer.say(&["three"], false, Extra::default()).unwrap();
        let written = writer.saved;
        drop(writer.hold.take());

        // As another process would.
        let again = Writer::open(&place.open(), "s");
        let read = again.saved;
        assert_eq!(read.log, written.log, "{}", place.name());
        assert_eq!(read.sent, written.sent, "{}", place.name());
        assert!(read.rendered.raw.is_empty());
        assert_eq!(read.host_texts, written.host_texts, "{}", place.name());
        assert_eq!(read.compaction, written.compaction, "{}", place.name());
        assert_eq!(read.next_id, 4);
        assert_eq!(read.engine, "e");
        assert_eq!(read.facts.format, Some(Format::OpenAiChat));
        assert_eq!((read.cursor, read.pending_cut), (Some(MessageId(2)), None));
        assert_eq!(read.facts.usage, "{\"tokens\": 1}");

        let delivered = record.delivered("s").unwrap().unwrap();
        assert_eq!(
            (delivered.messages, delivered.last),
            (2, Some(MessageId(2)))
        );
        assert_eq!(record.delivered_to("e").unwrap().len(), 1);
        assert!(record.delivered_to("another").unwrap().is_empty());
        let placed = record.placed("s").unwrap().unwrap();
        assert_eq!(placed[0].content.as_deref(), Some("short"));
        let current = record.current_compaction("s").unwrap().unwrap();
        assert_eq!((current.id, &*current.engine), (3, "e"));
    }
}

/// A save writes only the end of a log, and whether it appends or replaces depends on the saves before it.
#[test]
fn a_log_is_stored_as_it_is_after_any_appends_and_cuts() {
    const STEPS: u32 = 4;
    for place in Place::each() {
        let record = place.open();
        for number in 0..4_u32.pow(STEPS) {
            let session = format!("s{number}");
            let mut writer = Writer::open(&record, &session);
            for step in 0..STEPS {
                let texts = [format!("{step}, first"), format!("{step}, second")];
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let (length, keeps) = (writer.saved.log.len(), number % 2 == 0);
                let kept = match number / 4_u32.pow(step) % 4 {
                    0 => length,
                    1 => length.saturating_sub(1),
                    2 => 0,
                    _ => {
                        drop(writer.hold.take());
                        writer = Writer::open(&record, &session);
                        length
                    }
                };
                writer
                    .say_from(kept, &texts, &[], keeps, Extra::default())
                    .unwrap();
            }
            let written = writer.saved;
            drop(writer.hold.take());
            let read = Writer::open(&record, &session).saved;
            assert_eq!(read.log, written.log, "{}, {number}", place.name());
            assert_eq!(read.sent, written.sent, "{}, {number}", place.name());
        }
        assert_eq!(record.problems().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn what_was_said_is_read_in_pages_and_by_id_and_what_was_cut_off_only_if_asked_for() {
    for place in Place::each() {
        let record = place.open();
        let name = place.name();
        let mut writer = Writer::open(&record, "s");
        writer
            .say(&["one", "two", "three"], true, Extra::default())
            .unwrap();
        // The last one is cut off, and the second has another form.
        let replaces = [Some(MessageId(2))];
        writer
            .say_from(2, &["two, corrected"], &replaces, true, Extra::default())
            .unwrap();
        assert_eq!(writer.ids(), [1, 2, 4]);
        // A message whose text is not stored is not in the transcript.
        writer.say(&["not kept"], false, Extra::default()).unwrap();
        assert_eq!(
            writer.stored.without_text().unwrap(),
            [MessageId(5)],
            "{name}"
        );

        let all = TranscriptRange::page(None);
        assert_eq!(texts_of(&record, &all), ["one", "two, corrected"], "{name}");
        let mut outdated = all.clone();
        outdated.outdated = true;
        let page = record.transcript("s", &outdated).unwrap().unwrap();
        assert_eq!(page.messages.len(), 4, "{name}");
        assert_eq!(page.outdated, [MessageId(2), MessageId(3)], "{name}");
        assert_eq!(page.revisions, [(MessageId(4), MessageId(2))], "{name}");
        assert_eq!(page.arrived.len(), 4, "{name}");
        let ids = TranscriptRange::of(vec![MessageId(4), MessageId(1), MessageId(77)]);
        assert_eq!(texts_of(&record, &ids), ["two, corrected", "one"], "{name}");
        let first = record
            .transcript("s", &all.clone().limit(1))
            .unwrap()
            .unwrap();
        assert_eq!((first.messages.len(), first.next), (1, Some(MessageId(1))));
        let rest = TranscriptRange::page(first.next).limit(1);
        assert_eq!(texts_of(&record, &rest), ["two, corrected"], "{name}");
        assert!(record.transcript("none", &all).unwrap().is_none(), "{name}");

        let messages = writer
            .stored
            .messages(&[MessageId(4), MessageId(1)])
            .unwrap();
        let messages: Vec<u64> = messages.iter().map(|message| message.id.0).collect();
        assert_eq!(messages, [4, 1], "{name}");
        let conversation = record.conversation("s").unwrap();
        assert_eq!(conversation.len(), 2, "{name}: {conversation:?}");
        assert!(conversation[1].contains("two, corrected"), "{name}");
        let wires = record.wire_messages("s").unwrap();
        assert_eq!(wires.len(), 3, "{name}: {wires:?}");
        assert_eq!(
            (wires[2].ids.as_slice(), &wires[2].text),
            ([MessageId(5)].as_slice(), &None)
        );
        let all = record.all_wire_messages("s").unwrap().into_iter();
        let all: Vec<Option<String>> = all.map(|wire| wire.text).collect();
        let said = ["one", "two", "three", "two, corrected"];
        assert_eq!(all.len(), said.len() + 1, "{name}: {all:?}");
        for (text, said) in all.iter().zip(said) {
            let is_it = text.as_ref().is_some_and(|text| text.contains(said));
            assert!(is_it, "{name}, {said}: {all:?}");
        }
    }
}

#[test]
fn artifacts_and_texts_of_embedders_are_stored_replaced_and_deleted() {
    for place in Place::each() {
        let record = place.open();
        let name = place.name();
        record.set_tenant("s", "alice").unwrap();
        let mut writer = Writer::open(&record, "s");
        let artifacts = |artifacts| Extra {
            artifacts,
            ..Extra::default()
        };
        let first = vec![
            artifact("a/2", Some("old")),
            artifact("a/2", Some("new")),
            artifact("a/10", Some("ten")),
            artifact("b", Some("b")),
        ];
        writer.say(&["one"], false, artifacts(first)).unwrap();
        assert_eq!(
            record.artifacts("s", "e", "a/").unwrap(),
            ["a/10", "a/2"],
            "{name}"
        );
        assert_eq!(
            record.artifact("s", "e", "a/2").unwrap().as_deref(),
            Some("new")
        );
        assert_eq!(
            record.artifact("s", "another", "a/2").unwrap(),
            None,
            "{name}"
        );
        writer
            .say(&[], false, artifacts(vec![artifact("b", None)]))
            .unwrap();
        assert_eq!(
            record.artifacts("s", "e", "").unwrap(),
            ["a/10", "a/2"],
            "{name}"
        );

        record
            .keep("s", KeptContent::Exact, &[("z", "1"), ("limit", "2")])
            .unwrap();
        record.keep("s", KeptContent::Exact, &[("z", "3")]).unwrap();
        record
            .keep("t", KeptContent::Exact, &[("limit", "4")])
            .unwrap();
        let again = |text: Option<String>| vec![("z".to_owned(), format!("{}+1", text.unwrap()))];
        record
            .change_kept("s", "z", KeptContent::Exact, again)
            .unwrap();
        let first = |text: Option<String>| vec![("new".to_owned(), format!("{text:?}"))];
        record
            .change_kept("s", "new", KeptContent::Exact, first)
            .unwrap();
        record
            .change_kept("s", "limit", KeptContent::Exact, |_| Vec::new())
            .unwrap();
        let kept = record.kept("s").unwrap();
        let kept: Vec<_> = kept.iter().map(|(name, text)| (&**name, &**text)).collect();
        assert_eq!(
            kept,
            [
                ("limit", "2"),
                ("new", "None"),
                ("tenant", "alice"),
                ("z", "3+1")
            ],
            "{name}"
        );
        let limits = record.kept_as("limit", None).unwrap();
        assert_eq!(limits.len(), 2, "{name}: {limits:?}");
        assert_eq!(
            record.tenant("s").unwrap().as_deref(),
            Some("alice"),
            "{name}"
        );
        // A session never changes hands.
        record.set_tenant("s", "bob").unwrap();
        assert_eq!(record.tenants().unwrap()["s"], "alice", "{name}");

        let sessions = record.sessions().unwrap();
        assert_eq!(sessions.len(), 1, "{name}: {sessions:?}");
        assert_eq!(
            (sessions[0].messages, sessions[0].in_conversation),
            (1, 1),
            "{name}"
        );
        assert!(sessions[0].bytes > 0, "{name}");
        assert!(record.archive("s", true).unwrap().is_some());
        assert_eq!(record.archive("unknown", true).unwrap(), None);
        assert!(
            record.session("s").unwrap().unwrap().archived_ms.is_some(),
            "{name}"
        );
        writer.say(&["two"], false, Extra::default()).unwrap();
        assert_eq!(
            record.session("s").unwrap().unwrap().archived_ms,
            None,
            "{name}"
        );
        drop(writer);
        let hold = record.hold("s", Duration::ZERO).unwrap();
        record.forget("s", &hold).unwrap();
        assert!(record.sessions().unwrap().is_empty(), "{name}");
        assert!(record.kept("s").unwrap().is_empty(), "{name}");
        assert!(record.artifacts("s", "e", "").unwrap().is_empty(), "{name}");
        assert_eq!(record.kept("t").unwrap().len(), 1, "{name}");
    }
}

/// Texts are compressed with what the first ones have in common. Whoever opens the session goes on
/// with that, and a copy has it too.
#[test]
fn texts_that_are_alike_take_little_space_and_are_read_by_every_process() {
    let alike = |at: usize| {
        let line = |line: usize| format!("line {line} of the file src/part_{at}.rs is not read\n");
        (0..20).map(line).collect::<String>()
    };
    let texts: Vec<String> = (0..200).map(alike).collect();
    let all = TranscriptRange::page(None).limit(usize::MAX);
    for place in Place::each() {
        let name = place.name();
        let first: Vec<&str> = texts[..60].iter().map(String::as_str).collect();
        Writer::open(&place.open(), "s")
            .say(&first, true, Extra::default())
            .unwrap();
        let mut size = Vec::new();
        for texts in texts[60..].chunks(35) {
            let record = place.open();
            let mut writer = Writer::open(&record, "s");
            let of_chunk: Vec<&str> = texts.iter().map(String::as_str).collect();
            let extra = Extra {
                artifacts: vec![artifact("a", Some(&texts[0]))],
                ..Extra::default()
            };
            writer.say(&of_chunk, true, extra).unwrap();
            assert_eq!(
                record.artifact("s", "e", "a").unwrap(),
                Some(texts[0].clone()),
                "{name}"
            );
            size.push(record.session("s").unwrap().unwrap().bytes);
        }
        let grown = size[3] - size[2];
        assert!(grown * 3 < size[0], "{name}: {size:?}");
        let record = place.open();
        assert_eq!(texts_of(&record, &all), texts, "{name}");
        assert_eq!(record.problems().unwrap(), <[String; 0]>::default());
        let home = tempfile::tempdir().unwrap();
        let copy = Record::open(home.path()).unwrap();
        let copied = record.copy_session(&copy, "s", false, WAIT).unwrap();
        assert_eq!(copied, CopyOutcome::Copied, "{name}");
        assert_eq!(texts_of(&copy, &all), texts, "{name}");
    }
}

#[test]
fn a_session_has_one_holder_who_goes_on_if_nobody_came_between() {
    for place in Place::each() {
        let (one, other) = (place.open(), place.open());
        let name = place.name();
        let mut writer = Writer::open(&one, "s");
        let in_use = other.hold("s", Duration::from_millis(60)).unwrap_err();
        assert!(
            matches!(in_use, RecordError::InUse { .. }),
            "{name}: {in_use}"
        );
        other.hold("another", Duration::ZERO).unwrap();
        writer.say(&["one"], true, Extra::default()).unwrap();
        // What was opened goes on, however often the session is released.
        for text in ["two", "three", "four"] {
            let token = writer.hold.take().unwrap().release().unwrap();
            writer.hold = one.hold_again("s", WAIT, &token).unwrap();
            assert!(writer.hold.is_some(), "{name}");
            writer.say(&[text], true, Extra::default()).unwrap();
        }
        let token = writer.hold.take().unwrap().release().unwrap();
        let mut second = Writer::open(&other, "s");
        second.say(&["five"], true, Extra::default()).unwrap();
        drop(second);
        let again = one.hold_again("s", WAIT, &token).unwrap();
        assert!(again.is_none(), "{name}");
        let all = texts_of(&one, &TranscriptRange::page(None));
        assert_eq!(all, ["one", "two", "three", "four", "five"], "{name}");
    }
}

#[test]
fn the_sessions_of_another_tenant_are_not_seen() {
    let Some(database) = support::place::Database::new() else {
        return;
    };
    let record = database.open();
    Writer::open(&record, "s")
        .say(&["one"], true, Extra::default())
        .unwrap();
    record
        .keep("s", KeptContent::Exact, &[("limit", "1")])
        .unwrap();
    let options = (database.options.clone()).tenant(format!("{}-b", database.options.tenant));
    let other = Record::open_postgres(&options).unwrap();
    assert!(other.sessions().unwrap().is_empty());
    assert!(other.kept_as("limit", None).unwrap().is_empty());
    assert!(
        other
            .transcript("s", &TranscriptRange::page(None))
            .unwrap()
            .is_none()
    );
    // Nor are they locked, written or deleted.
    let mut writer = Writer::open(&other, "s");
    writer.say(&["two"], true, Extra::default()).unwrap();
    drop(writer);
    let hold = other.hold("s", Duration::ZERO).unwrap();
    other.forget("s", &hold).unwrap();
    assert_eq!(texts_of(&record, &TranscriptRange::page(None)), ["one"]);
}

#[test]
fn a_session_that_was_deleted_is_not_written() {
    for place in Place::each() {
        let record = place.open();
        let mut writer = Writer::open(&record, "s");
        writer.say(&["one"], true, Extra::default()).unwrap();
        drop(writer.hold.take());
        let hold = record.hold("s", Duration::ZERO).unwrap();
        record.forget("s", &hold).unwrap();
        drop(hold);
        // A session that is created now must not get what the writer still has to say.
        let mut other = Writer::open(&record, "other");
        other.say(&["theirs"], true, Extra::default()).unwrap();
        let refused = writer.say(&["two"], true, Extra::default()).unwrap_err();
        assert!(
            matches!(refused, RecordError::TakenOver { .. }),
            "{refused}"
        );
        for (id, messages) in [("s", 0), ("other", 1)] {
            let (_, saved) = StoredSession::open(&record, id).unwrap();
            assert_eq!(saved.log.len(), messages, "{} {id}", place.name());
        }
    }
}

/// Fills a store with all that a session can have.
fn fill(record: &std::sync::Arc<Record>) {
    let mut writer = Writer::open(record, "s");
    "e".clone_into(&mut writer.stored.engine);
    let extra = Extra {
        artifacts: vec![artifact("b", Some("two")), artifact("B", Some("one"))],
        host_texts: vec![
            HostText {
                identity: 3,
                id: MessageId(8),
                shortens: true,
                covers: Default::default(),
            },
            HostText {
                identity: 2,
                id: MessageId(8),
                shortens: false,
                covers: [MessageId(1)].into_iter().collect(),
            },
        ],
        in_force: Some(Some(InForce {
            number: 1,
            engine: "e".to_owned(),
            window: SavedWindow::default(),
        })),
        cursor: Some(MessageId(2)),
        ..Extra::default()
    };
    writer.say(&["one", "two \u{0} 你好"], true, extra).unwrap();
    writer
        .say_from(1, &["three"], &[], true, Extra::default())
        .unwrap();
    drop(writer);
    record
        .keep("s", KeptContent::Exact, &[("limit", "1")])
        .unwrap();
    record
        .keep("no session", KeptContent::Exact, &[("row", "2")])
        .unwrap();
    record.archive("s", true).unwrap();
}

#[test]
fn sessions_are_copied_whole_from_one_kind_of_store_to_the_other_and_back() {
    let mut places = Place::each();
    if places.len() < 2 {
        return;
    }
    let (postgres, sqlite) = (places.pop().unwrap(), places.pop().unwrap());
    let (from, to) = (sqlite.open(), postgres.open());
    fill(&from);
    assert_eq!(from.names().unwrap(), ["no session", "s"]);
    for name in ["no session", "s"] {
        let copy = |replaces| from.copy_session(&to, name, replaces, WAIT).unwrap();
        assert_eq!(copy(false), CopyOutcome::Copied, "{name}");
        // Run again, it has nothing to do.
        assert_eq!(copy(true), CopyOutcome::Unchanged, "{name}");
    }
    assert_eq!(to.names().unwrap(), ["no session", "s"]);
    let missing = from.copy_session(&to, "none", false, WAIT).unwrap();
    assert_eq!(missing, CopyOutcome::Missing);
    assert!(to.problems().unwrap().is_empty(), "{:?}", to.problems());
    let range = TranscriptRange::page(None);
    assert_eq!(texts_of(&to, &range), texts_of(&from, &range));

    // And back into another file.
    let home = tempfile::tempdir().unwrap();
    let back = Record::open(home.path()).unwrap();
    to.copy_session(&back, "s", false, WAIT).unwrap();
    let again = back.copy_session(&from, "s", false, WAIT).unwrap();
    assert_eq!(again, CopyOutcome::Unchanged);
    assert!(Record::verify(home.path()).unwrap().is_empty());

    // A session that went on is not overwritten unless that is asked for.
    let mut writer = Writer::open(&to, "s");
    writer.say(&["four"], true, Extra::default()).unwrap();
    drop(writer);
    let copy = |replaces| from.copy_session(&to, "s", replaces, WAIT).unwrap();
    assert_eq!(copy(false), CopyOutcome::Differs);
    assert_eq!(texts_of(&to, &range).last().unwrap(), "four");
    assert_eq!(copy(true), CopyOutcome::Copied);
    assert_eq!(texts_of(&to, &range), texts_of(&from, &range));
    // It can be opened and goes on.
    let mut writer = Writer::open(&to, "s");
    writer.say(&["five"], true, Extra::default()).unwrap();
}

/// A process may run on while another one changes the tables. It writes nothing more then, and says why.
#[test]
fn nothing_is_written_into_tables_that_a_newer_program_has_changed() {
    // Its own server, because the version is that of all tests.
    let postgres = Database::alone().map(|database| Place::Postgres(Box::new(database)));
    let sqlite = Place::Sqlite(tempfile::tempdir().unwrap());
    for place in [Some(sqlite), postgres].into_iter().flatten() {
        let (name, record) = (place.name(), place.open());
        let mut writer = Writer::open(&record, "s");
        writer.say(&["one"], true, Extra::default()).unwrap();
        place.set_newer(true);
        let text = [("limit", "1")];
        let refused = [
            writer.say(&["two"], true, Extra::default()),
            record.keep("s", KeptContent::Exact, &text),
            record.archive("s", true).map(drop),
            StoredSession::open(&record, "t").map(drop),
            record.forget("s", writer.hold.as_ref().unwrap()),
        ];
        for (at, refused) in refused.into_iter().enumerate() {
            let error = refused.unwrap_err();
            let is_newer = error.to_string().contains("a newer Contexture");
            assert!(is_newer && !error.may_pass(), "{name} {at}: {error}");
        }
        place.set_newer(false);
        let range = TranscriptRange::page(None);
        assert_eq!(texts_of(&record, &range), ["one"], "{name}");
        assert_eq!(record.names().unwrap(), ["s"], "{name}");
        assert!(record.kept("s").unwrap().is_empty(), "{name}");
    }
}

/// Whichever statement of a save fails, with whatever error, and how often: once a save succeeds, everything that was
/// said is stored once and in order.
#[test]
fn what_could_not_be_saved_is_stored_once_by_the_next_save_that_succeeds() {
    // A full disk, a statement that took too long, a permission, a bug, and three that are tried again.
    let states = [
        "53100", "57014", "42501", "XX000", "40001", "57P03", "53300",
    ];
    let tables = [
        "sessions", "messages", "texts", "wire", "artifacts", "written",
    ];
    // Its own server, because a broken table is broken for all tests.
    let postgres = Database::alone().map(|mut database| {
        database.options = database.options.retry_for(Duration::from_millis(30));
        Place::Postgres(Box::new(database))
    });
    let sqlite = Place::Sqlite(tempfile::tempdir().unwrap());
    for place in [Some(sqlite), postgres].into_iter().flatten() {
        let (name, record) = (place.name(), place.open());
        let mut writer = Writer::open(&record, "s");
        "e".clone_into(&mut writer.stored.engine);
        let (mut said, mut failed, mut random) = (Vec::new(), 0, 7_usize);
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for round in 0..25 {
            let (table, state) = (tables[next(tables.len())], states[next(states.len())]);
            place.break_table(table, state);
            for turn in 0..=next(3) {
                // Some of what was said last is edited.
                let from = said.len() - next(2).min(said.len());
                said.truncate(from);
                let texts = [format!("{round} {turn} one"), format!("{round} {turn} two")];
                let extra = Extra {
                    artifacts: vec![artifact("a", Some(&texts[0]))],
                    host_texts: vec![HostText {
                        identity: u128::from(writer.saved.next_id),
                        id: MessageId(writer.saved.next_id),
                        shortens: false,
                        covers: [MessageId(1)].into_iter().collect(),
                    }],
                    cursor: Some(MessageId(writer.saved.next_id)),
                    changes: vec![KeptChange::new(
                        "owner",
                        "s",
                        KeptContent::Exact,
                        |before| {
                            let count = before.map_or(0, |text| text.parse::<u32>().unwrap());
                            vec![("s".to_owned(), (count + 1).to_string())]
                        },
                    )],
                    ..Extra::default()
                };
                let saved = writer.say_from(from, &[&texts[0], &texts[1]], &[], true, extra);
                said.extend(texts);
                if let Err(error) = saved {
                    failed += 1;
                    assert!(error.may_pass(), "{name} {table} {state}: {error}");
                    assert!(!writer.stored.is_confirmed());
                }
            }
            place.mend(table);
            if next(3) == 0 {
                writer.save_again().unwrap();
                let stored = texts_of(&record, &TranscriptRange::page(None));
                assert_eq!(stored, said, "{name} {round}");
            }
        }
        assert!(failed > 5, "{name}: {failed}");
        said.push("the end".to_owned());
        let extra = Extra {
            artifacts: vec![artifact("a", Some("the end"))],
            ..Extra::default()
        };
        writer.say(&["the end"], true, extra).unwrap();
        writer.save_again().unwrap();
        assert_eq!(
            texts_of(&record, &TranscriptRange::page(None)),
            said,
            "{name}"
        );
        let stored = record.artifact("s", "e", "a").unwrap();
        assert_eq!(stored.as_deref(), Some("the end"), "{name}");
        assert_eq!(record.problems().unwrap(), [""; 0], "{name}");
        let written = writer.saved;
        drop(writer.hold.take());
        let read = Writer::open(&place.open(), "s").saved;
        assert_eq!((read.log, read.sent), (written.log, written.sent), "{name}");
        assert_eq!(read.host_texts, written.host_texts, "{name}");
    }
}

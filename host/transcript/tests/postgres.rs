//! What only a shared database can have: a writer that was stopped, a server that dies, and tables of other versions.
#![cfg(all(feature = "postgres", unix))]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use contexture_engine_api::TranscriptRange;
use contexture_transcript::{PostgresOptions, Record, RecordError};
use support::conversation::{Extra, WAIT, Writer};
use support::network::Network;
use support::place::{Database, Place};
use support::server::Server;

fn texts_of(record: &Record, session: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut range = TranscriptRange::page(None);
    loop {
        let page = record.transcript(session, &range).unwrap().unwrap();
        texts.extend(page.messages.into_iter().map(|message| message.text));
        match page.next {
            Some(next) => range.after = Some(next),
            None => return texts,
        }
    }
}

/// Another process that has a session open. It is this test's own program.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts it. It holds the session `s` and has said "one".
    fn start(database: &Database) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "another_process", "--ignored", "--nocapture"])
            .env("TEST_URL", &database.url)
            .env("TEST_TENANT", &database.options.tenant)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self {
            child,
            input,
            output,
        };
        assert_eq!(other.answer(), "said");
        other
    }

    /// Its next answer, past what the test runner prints.
    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some((_, answer)) = line.trim().split_once("answer: ") {
                return answer.to_owned();
            }
        }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process of the tests.
#[test]
#[ignore = "a part of other tests"]
fn another_process() {
    let Ok(url) = std::env::var("TEST_URL") else {
        return;
    };
    let options = PostgresOptions::new(&url).unwrap();
    let options = options.tenant(std::env::var("TEST_TENANT").unwrap());
    let record = Record::open_postgres(&options).unwrap();
    let mut writer = Writer::open(&record, "s");
    writer.say(&["one"], true, Extra::default()).unwrap();
    println!("answer: said");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match writer.say(&["late"], true, Extra::default()) {
        Ok(()) => println!("answer: stored"),
        Err(RecordError::TakenOver { .. }) => println!("answer: taken over"),
        Err(error) => println!("answer: {error}"),
    }
}

#[test]
fn a_writer_that_was_stopped_past_its_lease_cannot_commit() {
    let Some(database) = Database::new() else {
        return;
    };
    let mut other = Other::start(&database);
    other.signal("-STOP");
    let record = database.open();
    let mut writer = Writer::open(&record, "s");
    assert_eq!(writer.ids(), [1]);
    writer.say(&["two"], true, Extra::default()).unwrap();
    other.signal("-CONT");
    writeln!(other.input).unwrap();
    assert_eq!(other.answer(), "taken over");
    assert_eq!(texts_of(&record, "s"), ["one", "two"]);
    // Nor does it take the session away.
    writer.say(&["three"], true, Extra::default()).unwrap();
    assert_eq!(texts_of(&record, "s"), ["one", "two", "three"]);
}

#[test]
fn a_writer_that_waits_keeps_its_session() {
    let Some(database) = Database::new() else {
        return;
    };
    let mut other = Other::start(&database);
    let record = database.open();
    // Longer than a lease.
    let in_use = record.hold("s", std::time::Duration::from_secs(3));
    let in_use = in_use.unwrap_err().to_string();
    assert!(
        in_use.contains(&format!("process {}", other.child.id())),
        "{in_use}"
    );
    writeln!(other.input).unwrap();
    assert_eq!(other.answer(), "stored");
    assert_eq!(Writer::open(&record, "s").ids(), [1, 2]);
}

/// The clock of a server that takes over may be behind. The end of a lease is then in the future.
#[test]
fn a_session_that_nobody_holds_is_free_whatever_the_clock_says() {
    let Some(database) = Database::new() else {
        return;
    };
    let record = database.open();
    drop(Writer::open(&record, "s"));
    let tenant = database.options.tenant.clone();
    let place = Place::Postgres(Box::new(database));
    place.execute(&format!(
        "UPDATE contexture.leases SET until = until + interval '1 hour' WHERE tenant = '{tenant}'"
    ));
    record.hold("s", Duration::ZERO).unwrap();
}

#[test]
fn the_session_of_a_process_that_was_killed_goes_on_elsewhere() {
    let Some(database) = Database::new() else {
        return;
    };
    let other = Other::start(&database);
    other.signal("-KILL");
    let began = std::time::Instant::now();
    let writer = Writer::open(&database.open(), "s");
    eprintln!("taken over after {:?}", began.elapsed());
    assert_eq!(writer.ids(), [1]);
}

#[test]
fn a_server_that_dies_and_comes_back_costs_no_message_and_doubles_none() {
    let Some(server) = Server::start() else {
        return;
    };
    let options = PostgresOptions::new(&server.url()).unwrap();
    Record::migrate(&options).unwrap();
    let record = Record::open_postgres(&options).unwrap();
    let is_over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let sessions: Vec<_> = (["a", "b", "c"].iter())
            .map(|session| {
                let (record, is_over) = (&record, &is_over);
                scope.spawn(move || {
                    let mut writer = Writer::open(record, session);
                    let mut said = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let text = format!("{session} {}", said.len());
                        writer.say(&[&text], true, Extra::default()).unwrap();
                        said.push(text);
                    }
                    said
                })
            })
            .collect();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(300));
            server.crash();
            std::thread::sleep(std::time::Duration::from_millis(200));
            server.start_again();
        }
        is_over.store(true, Ordering::Relaxed);
        let said = sessions.into_iter().map(|session| session.join().unwrap());
        said.collect::<Vec<_>>()
    });
    for (session, said) in ["a", "b", "c"].iter().zip(said) {
        assert!(said.len() > 3, "{session}: {}", said.len());
        assert_eq!(texts_of(&record, session), said, "{session}");
        assert_eq!(record.conversation(session).unwrap().len(), said.len());
    }
}

#[test]
fn sessions_stay_held_while_all_connections_are_in_use() {
    let Some(database) = Database::new() else {
        return;
    };
    let options = database.options.clone().max_connections(2);
    let record = Record::open_postgres(&options).unwrap();
    let mut writer = Writer::open(&record, "slow");
    writer.say(&["one"], true, Extra::default()).unwrap();
    let _hold = record.hold("s", WAIT).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let (mut client, connection) = runtime
        .block_on(tokio_postgres::connect(
            &database.url,
            tokio_postgres::NoTls,
        ))
        .unwrap();
    runtime.spawn(connection);
    std::thread::scope(|scope| {
        let lock = runtime.block_on(client.transaction()).unwrap();
        let row =
            "SELECT FROM contexture.sessions WHERE tenant = $1 AND session = 'slow' FOR UPDATE";
        runtime
            .block_on(lock.query_one(row, &[&options.tenant]))
            .unwrap();
        for _ in 0..2 {
            scope.spawn(|| record.archive("slow", true).unwrap());
        }
        // Longer than a lease.
        let taken = database.open().hold("s", std::time::Duration::from_secs(3));
        assert!(matches!(taken, Err(RecordError::InUse { .. })), "{taken:?}");
        // Who waits for a lock waits for no network.
        assert!(record.outage().is_none());
        runtime.block_on(lock.rollback()).unwrap();
    });
}

#[test]
fn many_sessions_stay_held_on_a_slow_network() {
    let Some(server) = Server::start() else {
        return;
    };
    Record::migrate(&PostgresOptions::new(&server.url()).unwrap()).unwrap();
    let other = Record::open_postgres(&PostgresOptions::new(&server.url()).unwrap()).unwrap();
    let network = Network::before(server.address());
    network.delay(Duration::from_millis(30));
    let options = PostgresOptions::new(&network.url(&server)).unwrap();
    let record = Record::open_postgres(&options).unwrap();
    let are_held = std::sync::Barrier::new(9);
    let are_checked = std::sync::Barrier::new(9);
    let taken = std::thread::scope(|scope| {
        for one in 0..8 {
            let (record, are_held, are_checked) = (&record, &are_held, &are_checked);
            scope.spawn(move || {
                let session = |number| format!("{one} {number}");
                let held: Vec<_> = (0..8)
                    .map(|number| record.hold(&session(number), WAIT).unwrap())
                    .collect();
                are_held.wait();
                are_checked.wait();
                drop(held);
            });
        }
        are_held.wait();
        // Longer than a lease.
        std::thread::sleep(std::time::Duration::from_millis(1_600));
        let sessions = (0..8).flat_map(|one| (0..8).map(move |number| format!("{one} {number}")));
        let taken: Vec<_> = sessions
            .filter(|session| other.hold(session, std::time::Duration::ZERO).is_ok())
            .collect();
        are_checked.wait();
        taken
    });
    assert!(taken.is_empty(), "{taken:?}");
}

/// Passes connections on to a server, and cuts off as many as it is told at their next commit: the server makes the
/// commit, and its answer is lost.
struct CutsAnswers {
    address: SocketAddr,
    cuts: Arc<AtomicU32>,
}

impl CutsAnswers {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU32::new(0));
        let left = Arc::clone(&cuts);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(server).unwrap();
                let is_cut = Arc::new(AtomicBool::new(false));
                let (answers, to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (left, cut) = (Arc::clone(&left), Arc::clone(&is_cut));
                std::thread::spawn(move || {
                    copy(answers, to_client, |_| {
                        match is_cut.load(Ordering::SeqCst) {
                            true => Err(std::io::ErrorKind::ConnectionReset.into()),
                            false => Ok(()),
                        }
                    })
                });
                std::thread::spawn(move || {
                    copy(client, server, |bytes| {
                        let commits = bytes.windows(6).any(|part| part == b"COMMIT");
                        let is_next = |cuts: u32| cuts.checked_sub(1);
                        if commits
                            && left
                                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_next)
                                .is_ok()
                        {
                            cut.store(true, Ordering::SeqCst);
                        }
                        Ok(())
                    })
                });
            }
        });
        Self { address, cuts }
    }

    /// The same before a database that is ready for a record, with the options to open it.
    fn before_record(server: &Server) -> (Self, PostgresOptions) {
        Record::migrate(&PostgresOptions::new(&server.url()).unwrap()).unwrap();
        let between = Self::before(server.address());
        let [own, address] = [server.address(), between.address].map(|it| it.to_string());
        let url = server.url().replace(&own, &address);
        (between, PostgresOptions::new(&url).unwrap())
    }
}

/// Copies until one side ends or `check` fails for what was read, and ends the other side then.
fn copy(mut from: TcpStream, mut to: TcpStream, check: impl Fn(&[u8]) -> std::io::Result<()>) {
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if check(&bytes[..count])
            .and_then(|()| to.write_all(&bytes[..count]))
            .is_err()
        {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The next attempt writes what is stored already.
#[test]
fn a_commit_whose_answer_is_lost_is_made_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let (between, options) = CutsAnswers::before_record(&server);
    let record = Record::open_postgres(&options).unwrap();
    let mut writer = Writer::open(&record, "s");
    let said = ["one", "two", "three", "four"];
    for text in said {
        between.cuts.store(1, Ordering::SeqCst);
        writer.say(&[text], true, Extra::default()).unwrap();
        assert_eq!(between.cuts.load(Ordering::SeqCst), 0, "{text}");
    }
    assert_eq!(texts_of(&record, "s"), said);
    drop(writer.hold.take());
    assert_eq!(Writer::open(&record, "s").saved.log.len(), said.len());
}

/// The next save does not know whether the failed one was made. It may not be taken for it, and may not repeat it.
#[test]
fn a_commit_whose_answer_is_lost_for_good_is_made_once_and_so_is_the_next_one() {
    let Some(server) = Server::start() else {
        return;
    };
    let (between, options) = CutsAnswers::before_record(&server);
    let record = Record::open_postgres(&options.retry_for(Duration::ZERO)).unwrap();
    let mut writer = Writer::open(&record, "s");
    let said = ["one", "two", "three", "four", "five"];
    for text in said {
        between.cuts.store(1, Ordering::SeqCst);
        let mut saved = writer.say(&[text], true, Extra::default());
        if saved.is_ok() {
            // It was not tried in the pause after the last failure.
            saved = writer.save_again();
        }
        assert!(saved.is_err(), "{text}");
    }
    between.cuts.store(0, Ordering::SeqCst);
    // The connection may still have to be noticed as dead.
    let saved = (0..3).any(|_| writer.save_again().is_ok());
    assert!(saved);
    assert_eq!(texts_of(&record, "s"), said);
    assert_eq!(record.problems().unwrap(), [""; 0]);
}

/// Whoever has a deadline of its own learns why nothing is answered, and nobody waits for a server that is known to be
/// away.
#[test]
fn a_server_that_is_away_is_known_until_it_answers() {
    let Some(server) = Server::start() else {
        return;
    };
    let options = PostgresOptions::new(&server.url()).unwrap();
    Record::migrate(&options).unwrap();
    let options = options.retry_for(Duration::from_millis(300));
    let record = Record::open_postgres(&options).unwrap();
    assert!(record.outage().is_none());
    server.crash();
    let began = std::time::Instant::now();
    record.kept("s").unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(100));
    let outage = record.outage().unwrap().to_string();
    assert!(outage.contains("postgres://127.0.0.1:"), "{outage}");
    std::thread::sleep(Duration::from_millis(300));
    let began = std::time::Instant::now();
    record.kept("s").unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(200));
    server.start_again();
    record.kept("s").unwrap();
    assert!(record.outage().is_none());
}

/// A network that swallows what is sent looks like one that is slow, so somebody has to wait for it. That is only who
/// waits already.
#[test]
fn a_server_that_hangs_holds_up_only_what_is_under_way() {
    let Some(server) = Server::start() else {
        return;
    };
    let network = Network::before(server.address());
    let options = PostgresOptions::new(&network.url(&server)).unwrap();
    Record::migrate(&options).unwrap();
    let options = options.retry_for(Duration::from_secs(4));
    let record = Record::open_postgres(&options.max_connections(2)).unwrap();
    let mut writer = Writer::open(&record, "s");
    writer.say(&["one"], true, Extra::default()).unwrap();
    let ask = || {
        let began = Instant::now();
        record.kept("s").map(drop).map_err(|_| began.elapsed())
    };
    network.hang(true);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        for asked in asked {
            let took = asked.join().unwrap().unwrap_err();
            assert!(took < Duration::from_secs(6), "{took:?}");
        }
    });
    let outage = record.outage().unwrap().to_string();
    assert!(outage.contains("does not answer"), "{outage}");
    for _ in 0..20 {
        let took = ask().unwrap_err();
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
    network.hang(false);
    let back = Instant::now();
    while ask().is_err() {
        assert!(back.elapsed() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(record.outage().is_none());
    // The lease ended meanwhile, and nobody else took it.
    drop(writer);
    let mut writer = Writer::open(&record, "s");
    writer.say(&["two"], true, Extra::default()).unwrap();
    assert_eq!(texts_of(&record, "s"), ["one", "two"]);
}

#[test]
fn connections_that_are_lost_without_a_word_are_replaced() {
    let Some(server) = Server::start() else {
        return;
    };
    let network = Network::before(server.address());
    let options = PostgresOptions::new(&network.url(&server)).unwrap();
    Record::migrate(&options).unwrap();
    let record = Record::open_postgres(&options.max_connections(4)).unwrap();
    let ask_at_once = || {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| record.kept("s"))).collect();
            for asked in asked {
                asked.join().unwrap().unwrap();
            }
        });
    };
    network.delay(Duration::from_millis(20));
    ask_at_once();
    for _ in 0..2 {
        network.lose_connections();
        let began = Instant::now();
        ask_at_once();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(record.outage().is_none());
    }
}

#[test]
fn a_server_that_was_away_at_the_start_is_checked_when_it_answers() {
    let Some(server) = Server::start() else {
        return;
    };
    let options = PostgresOptions::new(&server.url()).unwrap();
    let options = options.retry_for(Duration::from_millis(300));
    server.crash();
    Record::open_postgres(&options).unwrap_err();
    let record = Record::open_postgres(&options.clone().may_be_away(true)).unwrap();
    assert!(record.outage().is_some());
    server.start_again();
    let missing = record.kept("s").unwrap_err().to_string();
    assert!(missing.contains("contexture store migrate"), "{missing}");
    Record::migrate(&options).unwrap();
    record.kept("s").unwrap();
    assert!(record.outage().is_none());
}

#[test]
fn a_server_that_stays_away_is_an_error_that_names_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.url();
    let options = PostgresOptions::new(&url.replace("contexture@", "contexture:secret@")).unwrap();
    let missing = Record::open_postgres(&options).unwrap_err().to_string();
    assert!(missing.contains("contexture store migrate"), "{missing}");
    Record::migrate(&options).unwrap();
    let record = Record::open_postgres(&options).unwrap();
    let mut writer = Writer::open(&record, "s");
    server.crash();
    let error = writer.say(&["one"], true, Extra::default()).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("postgres://127.0.0.1:") && !said.contains("secret"),
        "{said}"
    );
    server.start_again();
}

#[test]
fn migrations_are_applied_once_however_many_do_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let options = PostgresOptions::new(&server.url()).unwrap();
    let (before, needed) = Record::schema_versions(&options).unwrap();
    assert_eq!(before, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Record::migrate(&options).unwrap());
        }
    });
    assert_eq!(Record::schema_versions(&options).unwrap(), (needed, needed));
    assert_eq!(Record::migrate(&options).unwrap(), needed);
    let record = Record::open_postgres(&options).unwrap();
    assert!(record.hold("s", WAIT).is_ok());
}

/// A clustered engine can distribute the tables by session only if every key has it.
#[test]
fn every_key_begins_with_the_tenant_and_the_session() {
    let Some(database) = Database::new() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let rows = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        // Of each key its table and its first columns; of a foreign key also those that it refers to.
        let keys = "
            SELECT indexed.relname::text, 'unique', (SELECT string_agg(attname, ',' ORDER BY place)
                FROM unnest(indkey::int2[]) WITH ORDINALITY AS part (number, place)
                JOIN pg_attribute ON attrelid = indrelid AND attnum = part.number WHERE place <= 2)
            FROM pg_index JOIN pg_class indexed ON indexed.oid = indrelid
            WHERE relnamespace = 'contexture'::regnamespace AND indisunique
            UNION ALL
            SELECT conrelid::regclass::text, 'foreign', (SELECT string_agg(attname, ',' ORDER BY place)
                FROM unnest(conkey || confkey) WITH ORDINALITY AS part (number, place)
                JOIN pg_attribute ON attrelid = CASE WHEN place <= 2 THEN conrelid ELSE confrelid END
                    AND attnum = part.number)
            FROM pg_constraint WHERE connamespace = 'contexture'::regnamespace AND contype = 'f'
            UNION ALL
            SELECT sequencename::text, 'sequence', '' FROM pg_sequences WHERE schemaname = 'contexture'";
        client.query(keys, &[]).await.unwrap()
    });
    let rows: Vec<(String, String, String)> = (rows.iter())
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .filter(|(table, ..)| table != "migrations")
        .collect();
    for (table, kind, columns) in &rows {
        let wanted = match kind.as_str() {
            "unique" => "tenant,session",
            "foreign" => "tenant,session,tenant,session",
            _ => "no sequence at all",
        };
        assert_eq!(columns, wanted, "{kind} key of {table}");
    }
    let unique = rows.iter().filter(|(_, kind, _)| kind == "unique");
    assert_eq!(unique.count(), 9, "{rows:?}");
    let foreign = rows.iter().filter(|(_, kind, _)| kind == "foreign");
    assert_eq!(foreign.count(), 6, "{rows:?}");
}

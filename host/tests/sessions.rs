//! Sessions turn by turn, as an agent's client and an engine see them: what is observed, what is handed
//! out, and what a restart leaves of it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contexture::formats::Format;
use contexture::session::{
    AgentWindow, BodyMessage, Compact, OutcomeKind, Record, Relation, Session, SessionOptions,
    Turn, TurnOptions,
};
use contexture::{Host, HostOptions};
use contexture_engine_api::{
    Committed, Compaction, CompressRequest, ContextEngine, Decision, Delivery, EngineError,
    EngineFactory, Entry, FactoryRequest, MessageId, MessageView, OpenRequest, Outcome,
    Replacement, SHORTENED_MARK, StandaloneEngine, Usage, WindowState, register_engine, safe_cut,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use support::engines_in;

/// Writes down what it is shown, durably, and summarises all but the last messages.
struct Recorder {
    file: PathBuf,
    journal: PathBuf,
    settings: Settings,
    seen: Vec<(u64, String)>,
}

#[derive(serde::Deserialize, Clone)]
#[serde(default)]
struct Settings {
    compact_at: usize,
    keep: usize,
    fails: bool,
    /// Replaces the user's last message by a preview, with no summary.
    shortens: bool,
    /// Refuses what it is shown.
    refuses: bool,
    /// Refuses to be opened.
    stays_closed: bool,
    /// Ends the process `before` or `after` the write of the observation that holds this text.
    dies: String,
    dies_at: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            compact_at: usize::MAX,
            keep: 4,
            fails: false,
            shortens: false,
            refuses: false,
            stays_closed: false,
            dies: String::new(),
            dies_at: String::new(),
        }
    }
}

register_engine!("recorder", Recorder);

/// Opens recorders, and takes its time to be created.
struct SlowFactory;

static SLOW_FACTORIES: AtomicUsize = AtomicUsize::new(0);

impl EngineFactory for SlowFactory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        SLOW_FACTORIES.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
        Ok(Self)
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        Ok(Box::new(Recorder::open(request)?))
    }
}

register_engine!("slow-factory", factory SlowFactory);

impl Recorder {
    fn note(&self, what: &str) {
        let mut journal = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.journal)
            .unwrap();
        writeln!(journal, "{what}").unwrap();
    }

    fn write(&self) {
        fs::write(&self.file, serde_json::to_string(&self.seen).unwrap()).unwrap();
    }
}

impl StandaloneEngine for Recorder {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let file = request.data_dir.join(format!("{}.json", request.session));
        let seen = fs::read_to_string(&file)
            .map_or_else(|_| Vec::new(), |text| serde_json::from_str(&text).unwrap());
        let engine = Self {
            journal: request.data_dir.join("journal"),
            file,
            settings: request.settings()?,
            seen,
        };
        if engine.settings.stays_closed {
            return Err(EngineError::Other("it is told to stay closed".into()));
        }
        if let Some(compaction) = request.compaction {
            engine.note(&format!(
                "opened {} by {} through {}: {:?}",
                compaction.id, compaction.engine, compaction.through, compaction.summaries
            ));
        }
        Ok(engine)
    }
}

impl ContextEngine for Recorder {
    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let messages = delivery.messages;
        if self.settings.refuses {
            return Err(EngineError::Storage("it is told to refuse".into()));
        }
        if let Some(cut) = delivery.cut {
            self.note(&format!("cut {:?}", cut.last));
            self.seen.retain(|(id, _)| cut.keeps(MessageId(*id)));
        }
        let dies = |at: &str| {
            let texts = messages
                .iter()
                .any(|message| message.text() == self.settings.dies);
            self.settings.dies_at == at && texts
        };
        if dies("before") {
            std::process::abort();
        }
        for message in messages {
            self.note(&format!(
                "{} {} {}",
                message.id(),
                message.role(),
                message.text()
            ));
            // A delivery may come twice.
            let id = message.id().0;
            if !self.seen.iter().any(|(seen, _)| *seen == id) {
                self.seen.push((id, message.text().to_owned()));
            }
        }
        self.write();
        if dies("after") {
            std::process::abort();
        }
        Ok(())
    }

    fn committed(&mut self, committed: &Committed) {
        self.note(&format!("committed {}", committed.id));
    }

    fn discarded(&mut self, compaction: u64, _reason: &str) {
        self.note(&format!("discarded {compaction}"));
    }

    fn should_compress(&self, window: &WindowState) -> Decision {
        let reason = format!("{} messages", window.messages);
        if window.messages >= self.settings.compact_at {
            Decision::Yes(reason)
        } else {
            Decision::No(reason)
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        if self.settings.fails {
            return Err(EngineError::Other("it is told to fail".into()));
        }
        let messages = request.messages;
        if self.settings.shortens {
            let last = messages.iter().rposition(MessageView::is_real_user);
            let entries = messages.iter().enumerate().map(|(at, message)| {
                let preview = format!("{SHORTENED_MARK} a question");
                match Some(at) == last {
                    true => Entry::Replace(Replacement::new(message.id()).text(Some(preview))),
                    false => Entry::Keep(message.id()),
                }
            });
            return Ok(Outcome::Compacted(Compaction::new(entries.collect())));
        }
        let cut = safe_cut(messages, messages.len().saturating_sub(self.settings.keep));
        let mut entries = vec![Entry::summary(
            format!("{cut} messages about pumps"),
            messages[..cut].iter().map(MessageView::id).collect(),
        )];
        entries.extend(
            messages[cut..]
                .iter()
                .map(|message| Entry::Keep(message.id())),
        );
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }
}

/// A home with a configuration and what lies in it.
struct Home(TempDir);

impl Home {
    fn new(settings: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.configure(settings);
        home
    }

    fn configure(&self, settings: &str) {
        let yaml = format!(
            "context:\n  engine: recorder\n  engines:\n    recorder: {{{settings}}}\ntranscript:\n  mode: full\n"
        );
        fs::write(self.path().join("config.yaml"), yaml).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn session(&self) -> Session {
        session_in(self.path())
    }

    /// What the recorder wrote down since the last time.
    fn journal(&self) -> Vec<String> {
        let path = self.path().join("engines/recorder/journal");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(&path);
        text.lines().map(str::to_owned).collect()
    }

    /// Deletes the record, or replaces it by the one of another home.
    fn put_record(&self, other: Option<&Path>) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.path().join(format!("sessions.sqlite3{suffix}")));
        }
        if let Some(other) = other {
            let name = "sessions.sqlite3";
            fs::copy(other.join(name), self.path().join(name)).unwrap();
        }
    }

    fn forget_engine(&self) {
        fs::remove_dir_all(self.path().join("engines/recorder")).unwrap();
    }
}

fn agent() -> AgentWindow {
    AgentWindow::new("gpt-4o", 128_000, 4_096)
}

fn session_in(home: &Path) -> Session {
    session_with(home, agent())
}

fn session_with(home: &Path, agent: AgentWindow) -> Session {
    let record = Record::open(home).unwrap();
    let options = SessionOptions::default();
    Session::open(&engines_in(home), Some(&record), "s", agent, options).unwrap()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn body(messages: &[Value]) -> String {
    let mut all = vec![json!({"role": "system", "content": "Be brief."})];
    all.extend_from_slice(messages);
    json!({"model": "gpt-4o", "messages": all}).to_string()
}

/// A conversation of `turns` questions and answers that ends with a question.
fn talk(turns: usize) -> Vec<Value> {
    let mut messages = Vec::new();
    for turn in 0..turns {
        messages.push(user(&format!(
            "q{turn} {}",
            "about the pump station ".repeat(40)
        )));
        messages.push(assistant(&format!(
            "a{turn} {}",
            "it runs at night ".repeat(40)
        )));
    }
    messages.push(user("and now?"));
    messages
}

fn ids(range: impl IntoIterator<Item = u64>) -> Vec<MessageId> {
    range.into_iter().map(MessageId).collect()
}

fn turn<'b>(session: &mut Session, body: &'b str) -> Turn<'b> {
    turn_in(session, body, Format::OpenAiChat)
}

fn turn_in<'b>(session: &mut Session, body: &'b str, format: Format) -> Turn<'b> {
    let options = TurnOptions::default();
    session.turn_with(body, Some(format), &options).unwrap()
}

fn messages_of(body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    body["messages"].as_array().unwrap()[1..].to_vec()
}

#[test]
fn a_resent_history_is_observed_once_and_leaves_untouched() {
    let home = Home::new("");
    let mut session = home.session();
    let mut history = vec![user("go on")];
    let first = body(&history);
    let done = turn(&mut session, &first);
    assert_eq!((done.body.as_ref(), done.new), (first.as_str(), ids([1])));
    assert_eq!(
        session
            .answer(&[&assistant("yes").to_string()], None)
            .unwrap(),
        ids([2])
    );

    // The same words six times are six messages.
    for round in 1..6 {
        history.extend([assistant("yes"), user("go on")]);
        let next = body(&history);
        let done = turn(&mut session, &next);
        assert_eq!(done.body, next);
        assert_eq!(done.new, ids([2 * round + 1]));
        assert_eq!(
            (done.relation, done.revised.len()),
            (Relation::Continues, 0)
        );
        session
            .answer(&[&assistant("yes").to_string()], None)
            .unwrap();
    }
    let journal = home.journal();
    let expected: Vec<String> = (1..=12)
        .map(|id| {
            format!(
                "m{id} {}",
                if id % 2 == 1 {
                    "user go on"
                } else {
                    "assistant yes"
                }
            )
        })
        .collect();
    assert_eq!(journal, expected);
    // The same request again, answer left out: a retry. The answer is no longer part of it.
    let again = body(&history);
    let done = turn(&mut session, &again);
    assert_eq!(
        (done.new.len(), done.relation),
        (
            0,
            Relation::CutBack {
                after: Some(MessageId(11))
            }
        )
    );
    assert_eq!(home.journal(), ["cut Some(MessageId(11))"]);
}

/// Agents put a question and a summary in the place of all but the last messages. Neither is another form of the first
/// question and its answer.
#[test]
fn a_compaction_by_the_client_begins_the_conversation_anew() {
    let home = Home::new("");
    let mut session = home.session();
    let mut history = talk(8);
    turn(&mut session, &body(&history));
    home.journal();

    let kept = history.split_off(12);
    history = vec![
        user("What did we do so far?"),
        assistant("We looked at it."),
    ];
    history.extend(kept);
    history.extend([assistant("well"), user("more")]);
    let compacted = body(&history);
    let done = turn(&mut session, &compacted);
    assert_eq!(done.body, compacted);
    assert!(done.revised.is_empty(), "{:?}", done.revised);
    assert_eq!(
        (done.new, done.relation),
        (ids(18..=26), Relation::CutBack { after: None })
    );
    let journal = home.journal();
    assert_eq!((journal[0].as_str(), journal.len()), ("cut None", 10));
    // What the record has of the session is what it was, and the conversation is what the client has.
    drop(session);
    let record = Record::open(home.path()).unwrap();
    let stored = record.conversation("s").unwrap();
    assert_eq!(stored.len(), history.len());
}

#[test]
fn an_edit_is_a_revision_and_a_rewind_is_a_branch() {
    let home = Home::new("");
    let mut session = home.session();
    let mut history = talk(3);
    turn(&mut session, &body(&history));
    home.journal();

    history[2]["content"] = "another question".into();
    history.extend([assistant("well"), user("more")]);
    let edited = body(&history);
    let done = turn(&mut session, &edited);
    assert_eq!(done.revised, [(MessageId(8), MessageId(3))]);
    assert_eq!(
        (done.new, done.relation),
        (ids([8, 9, 10]), Relation::Continues)
    );
    assert_eq!(
        home.journal(),
        [
            "m8 user another question",
            "m9 assistant well",
            "m10 user more"
        ]
    );

    // Back to before the last two questions; the edited one stays, and is shown again after the cut.
    history.truncate(4);
    history.push(user("something else"));
    let rewound = body(&history);
    let done = turn(&mut session, &rewound);
    assert_eq!(
        (done.new, done.relation),
        (
            ids([11]),
            Relation::CutBack {
                after: Some(MessageId(4))
            }
        )
    );
    assert_eq!(
        home.journal(),
        [
            "cut Some(MessageId(4))",
            "m8 user another question",
            "m11 user something else"
        ]
    );
    assert_eq!(done.body, rewound);
}

#[test]
fn an_echo_with_other_bytes_is_the_same_answer_and_another_text_revises_it() {
    let home = Home::new("");
    let mut session = home.session();
    turn(&mut session, &body(&[user("hello")]));
    session
        .answer(
            &[r#"{"content":"hi there","role":"assistant","refusal":null}"#],
            None,
        )
        .unwrap();
    let same = body(&[user("hello"), assistant("hi there"), user("two")]);
    let done = turn(&mut session, &same);
    assert_eq!((done.new, done.revised), (ids([3]), vec![]));
    session
        .answer(&[&assistant("second").to_string()], None)
        .unwrap();
    let shorter = body(&[
        user("hello"),
        assistant("hi there"),
        user("two"),
        assistant("seco"),
        user("three"),
    ]);
    let done = turn(&mut session, &shorter);
    assert_eq!(done.revised, [(MessageId(5), MessageId(4))]);
    assert_eq!(
        (done.new, done.relation),
        (ids([5, 6]), Relation::Continues)
    );
}

#[test]
fn an_echo_that_says_who_answered_revises_the_answer_once() {
    let home = Home::new("");
    let mut session = home.session();
    turn(&mut session, &body(&[user("hello")]));
    let answer = assistant("hi there");
    session.answer(&[&answer.to_string()], None).unwrap();
    let mut named = answer;
    named["name"] = "planner".into();
    let mut history = vec![user("hello"), named, user("two")];
    let echoed = body(&history);
    let done = turn(&mut session, &echoed);
    assert_eq!(done.revised, [(MessageId(3), MessageId(2))]);
    assert_eq!(
        (done.new, done.relation),
        (ids([3, 4]), Relation::Continues)
    );
    history.push(user("three"));
    let again = body(&history);
    let done = turn(&mut session, &again);
    assert_eq!((done.new, done.revised), (ids([5]), vec![]));
    // The same words, but of somebody else.
    history[3]["name"] = "ana".into();
    let other = body(&history);
    let done = turn(&mut session, &other);
    assert_eq!(done.revised, [(MessageId(6), MessageId(5))]);
}

#[test]
fn a_compaction_holds_for_a_client_that_sends_everything_again() {
    let home = Home::new("compact_at: 9");
    let mut session = home.session();
    let mut history = talk(5);
    let first = body(&history);
    let done = turn(&mut session, &first);
    let report = done.compaction.unwrap();
    assert_eq!(report.messages_after, 5, "{report:?}");
    let out = messages_of(&done.body);
    assert!(
        out[0]["content"]
            .as_str()
            .unwrap()
            .contains("7 messages about pumps"),
        "{out:?}"
    );
    // What is kept leaves byte for byte.
    for kept in &history[8..] {
        assert!(done.body.contains(&kept.to_string()));
    }
    session
        .answer(&[&assistant("fine").to_string()], None)
        .unwrap();
    home.journal();

    history.extend([assistant("fine"), user("next")]);
    // The client's cache marker moves; the message is the same, and leaves with today's bytes.
    history[9] = json!({"content": history[9]["content"], "role": "assistant"});
    let second = body(&history);
    let done = turn(&mut session, &second);
    assert!(done.compaction.is_none());
    assert_eq!(done.new, ids([14]));
    assert_eq!(home.journal(), ["m14 user next"]);
    let out = messages_of(&done.body);
    assert_eq!(out.len(), 7, "{out:?}");
    assert_eq!(out[1..], history[7..]);
    assert!(done.body.contains(&history[9].to_string()));

    // A rewind into what is kept keeps the compaction; one into what is covered ends it.
    history.truncate(9);
    let back = body(&history);
    let done = turn(&mut session, &back);
    assert_eq!(messages_of(&done.body).len(), 3, "{}", done.body);
    history.truncate(3);
    let further = body(&history);
    let done = turn(&mut session, &further);
    assert_eq!(
        (done.body.as_ref(), done.relation),
        (
            further.as_str(),
            Relation::CutBack {
                after: Some(MessageId(3))
            }
        )
    );
}

#[test]
fn an_unknown_window_is_never_too_small() {
    let unknown = || AgentWindow::new("gpt-4o", 0, 0);
    let force = TurnOptions::default().compact(Compact::Force);
    let home = Home::new("compact_at: 9");
    let request = body(&talk(20));
    for options in [TurnOptions::default(), force.clone()] {
        let mut session = session_with(home.path(), unknown());
        let done = session.turn_with(&request, None, &options).unwrap();
        let report = done.compaction.unwrap();
        assert_eq!(report.outcome, OutcomeKind::Compacted, "{report:?}");
        assert_eq!(report.engine, "recorder", "{report:?}");
        assert!(report.notes.is_empty(), "{report:?}");
        // One compaction is enough, so no further one is tried.
        let asked = |note: &String| note.starts_with("committed") || note.starts_with("discarded");
        assert_eq!(home.journal().iter().filter(|note| asked(note)).count(), 1);
        drop(session);
        home.put_record(None);
        home.forget_engine();
    }

    // If nothing is compacted automatically, there is nothing to report.
    let path = home.path().join("config.yaml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{config}compression:\n  automatic: false\n")).unwrap();
    let mut session = session_with(home.path(), unknown());
    assert_eq!(turn(&mut session, &request).compaction, None);
}

#[test]
fn the_users_last_message_stays_verbatim_in_an_unknown_window() {
    let home = Home::new("shortens: true");
    let unknown = AgentWindow::new("gpt-4o", 0, 0);
    let mut session = session_with(home.path(), unknown);
    let mut history = talk(5);
    history.push(user(&"why does the pump stop? ".repeat(400)));
    let request = body(&history);
    let force = TurnOptions::default().compact(Compact::Force);
    let done = session.turn_with(&request, None, &force).unwrap();
    assert!(done.body == request, "{:?}", done.compaction);
}

#[test]
fn a_client_may_carry_on_from_what_was_handed_out() {
    let home = Home::new("compact_at: 9");
    let mut session = home.session();
    let first = body(&talk(5));
    let done = turn(&mut session, &first);
    let mut carried = messages_of(&done.body);
    session
        .answer(&[&assistant("fine").to_string()], None)
        .unwrap();
    home.journal();
    carried.extend([assistant("fine"), user("next")]);
    let second = body(&carried);
    let done = turn(&mut session, &second);
    assert_eq!((done.new, done.body.as_ref()), (ids([14]), second.as_str()));
    assert_eq!(home.journal(), ["m14 user next"]);
    let kept: Vec<_> = session
        .window()
        .views(&[])
        .iter()
        .map(|view| view.id().0)
        .collect();
    assert_eq!(kept, [12, 8, 9, 10, 11, 13, 14]);

    // On until the next compaction, which covers the first summary.
    session
        .answer(&[&assistant("good").to_string()], None)
        .unwrap();
    carried.extend([assistant("good"), user("again ".repeat(200).trim())]);
    let third = body(&carried);
    let done = turn(&mut session, &third);
    assert!(done.compaction.is_some());
    let out = messages_of(&done.body);
    assert_eq!(done.body.matches("about pumps").count(), 1);
    assert_eq!(out.len(), 5, "{out:?}");
    assert_eq!(out[1..], carried[5..]);
    assert_eq!(
        home.journal(),
        [
            "m15 assistant good",
            &format!("m16 user {}", "again ".repeat(200).trim()),
            "committed 2"
        ]
    );
}

#[test]
fn a_restart_anywhere_shows_the_engine_nothing_twice() {
    for carries_on in [false, true] {
        let home = Home::new("compact_at: 9");
        let mut history = talk(2);
        let mut seen = Vec::new();
        for round in 0..6 {
            // A new process before each request, and one before each answer.
            let mut session = home.session();
            let request = body(&history);
            let done = turn(&mut session, &request);
            if carries_on {
                history = messages_of(&done.body);
            }
            drop(session);
            let mut session = home.session();
            let request = body(&history);
            let done = turn(&mut session, &request);
            assert!(done.new.is_empty() && done.revised.is_empty(), "{done:?}");
            let answer = assistant(&format!("answer {round} {}", "at length ".repeat(50)));
            session.answer(&[&answer.to_string()], None).unwrap();
            history.extend([answer, user(&format!("question {round}"))]);
            seen.extend(home.journal());
        }
        let observed: Vec<&String> = seen.iter().filter(|line| line.starts_with('m')).collect();
        let distinct: HashSet<_> = observed
            .iter()
            .map(|line| line.split_once(' ').unwrap().1)
            .collect();
        assert_eq!(observed.len(), distinct.len(), "{observed:#?}");
        assert_eq!(observed.len(), 5 + 11, "{observed:#?}");
        assert!(
            seen.iter().all(|line| !line.starts_with("cut")),
            "{seen:#?}"
        );
        assert!(
            seen.iter()
                .any(|line| line.starts_with("opened 1 by recorder through m")),
            "{seen:#?}"
        );
    }
}

#[test]
fn the_compaction_in_force_survives_a_restart_to_the_byte() {
    let home = Home::new("compact_at: 9");
    let request = body(&talk(6));
    let handed = turn(&mut home.session(), &request).body.into_owned();
    assert_ne!(handed, request);
    let mut session = home.session();
    assert_eq!(turn(&mut session, &request).body, handed);
    assert!(
        home.journal().contains(
            &"opened 1 by recorder through m9: [\"[CONTEXT COMPACTION]\\n9 messages about pumps\"]"
                .to_owned()
        )
    );
}

#[test]
fn a_fallbacks_compaction_is_the_fallbacks() {
    let home = Home::new("compact_at: 9, fails: true");
    let request = body(&talk(40));
    let small = AgentWindow::new("gpt-4o", 16_000, 4_096);
    let mut session = session_with(home.path(), small);
    let done = turn(&mut session, &request);
    let report = done.compaction.unwrap();
    assert_eq!(report.engine, "compressor", "{report:?}");
    drop(session);
    home.journal();
    home.session();
    let journal = home.journal();
    assert!(
        journal[0].starts_with("opened 1 by compressor through m"),
        "{journal:?}"
    );
}

/// It is the configured engine, so the configuration says what takes its place, as for a new session.
#[test]
fn a_session_whose_engine_can_no_longer_be_opened_goes_on_with_the_built_in_one() {
    let home = Home::new("");
    let open = |id: &str| {
        let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
        host.session(id).model("gpt-4o", 128_000).open().unwrap()
    };
    turn(&mut open("old"), &body(&talk(3)));
    home.configure("stays_closed: true");
    for id in ["new", "old"] {
        let mut session = open(id);
        assert!(session.stands_in().is_some(), "{id}");
        let warnings = session.take_warnings().join("\n");
        assert!(warnings.contains("told to stay closed"), "{id}: {warnings}");
    }
    home.configure("");
    assert_eq!(open("old").stands_in(), None);
}

#[test]
fn the_cursor_stays_whatever_becomes_of_the_engines_files() {
    let home = Home::new("");
    let mut history = talk(3);
    turn(&mut home.session(), &body(&history[..5]));
    let copy = fs::read(home.path().join("engines/recorder/s.json")).unwrap();
    turn(&mut home.session(), &body(&history));
    assert_eq!(home.journal().len(), 7);
    let older = || fs::write(home.path().join("engines/recorder/s.json"), &copy).unwrap();
    for lose in [&older as &dyn Fn(), &|| home.forget_engine()] {
        lose();
        history.extend([assistant("yes"), user("good")]);
        turn(&mut home.session(), &body(&history));
        let last = history.len();
        let expected = [
            format!("m{} assistant yes", last - 1),
            format!("m{last} user good"),
        ];
        assert_eq!(home.journal(), expected);
    }
}

#[test]
fn without_its_record_a_session_is_shown_from_the_beginning() {
    let home = Home::new("");
    let mut history = talk(3);
    turn(&mut home.session(), &body(&history));
    home.journal();
    home.put_record(None);
    history.extend([assistant("yes"), user("good")]);
    let request = body(&history);
    assert_eq!(turn(&mut home.session(), &request).new.len(), 9);
    let journal = home.journal();
    assert_eq!(journal.len(), 9);
    assert!(journal[0].starts_with("m1 user q0"), "{journal:?}");
}

#[test]
fn an_older_copy_of_the_record_goes_on_from_its_own_cursor() {
    let home = Home::new("");
    let mut history = talk(2);
    turn(&mut home.session(), &body(&history));
    let copy = tempfile::tempdir().unwrap();
    let record = Record::open(home.path()).unwrap();
    record.copy_to(copy.path(), "s").unwrap();
    drop(record);
    history.extend([assistant("lost"), user("lost too")]);
    turn(&mut home.session(), &body(&history));
    home.journal();
    home.put_record(Some(copy.path()));
    history.truncate(5);
    history.extend([assistant("yes"), user("good")]);
    let done = turn(&mut home.session(), &body(&history)).new;
    assert_eq!(done, ids([6, 7]));
    assert_eq!(home.journal(), ["m6 assistant yes", "m7 user good"]);
}

/// A cut that the engine was not told of, because its call failed, is told with the next delivery,
/// by another process too.
#[test]
fn a_cut_stays_pending_until_a_call_has_returned() {
    let home = Home::new("");
    let history = talk(3);
    turn(&mut home.session(), &body(&history));
    home.journal();
    home.configure("refuses: true");
    let mut back = history[..3].to_vec();
    let mut session = home.session();
    turn(&mut session, &body(&back));
    assert!(!session.take_warnings().is_empty());
    drop(session);
    assert_eq!(home.journal(), [""; 0]);
    home.configure("");
    back.extend([assistant("yes"), user("good")]);
    turn(&mut home.session(), &body(&back));
    let expected = ["cut Some(MessageId(3))", "m8 assistant yes", "m9 user good"];
    assert_eq!(home.journal(), expected);
}

#[test]
fn an_engine_that_gets_the_session_back_is_shown_it_from_the_beginning() {
    let home = Home::new("");
    let mut history = talk(2);
    turn(&mut home.session(), &body(&history));
    let config = fs::read_to_string(home.path().join("config.yaml")).unwrap();
    let other = config.replace("engine: recorder", "engine: compressor");
    fs::write(home.path().join("config.yaml"), other).unwrap();
    history.extend([assistant("yes"), user("good")]);
    turn(&mut home.session(), &body(&history));
    home.journal();
    home.configure("");
    turn(&mut home.session(), &body(&history));
    let journal = home.journal();
    assert_eq!(journal.len(), 7, "{journal:?}");
    assert!(journal[0].starts_with("m1 user q0"), "{journal:?}");
    turn(&mut home.session(), &body(&history));
    assert_eq!(home.journal(), [""; 0]);
}

#[test]
fn an_engine_that_is_opened_again_is_shown_what_is_new() {
    let home = Home::new("");
    let mut history = talk(2);
    turn(&mut home.session(), &body(&history));
    assert_eq!(home.journal().len(), 5);
    history.extend([assistant("yes"), user("good")]);
    turn(&mut home.session(), &body(&history));
    assert_eq!(home.journal(), ["m6 assistant yes", "m7 user good"]);
}

#[test]
fn a_store_that_is_locked_goes_away_with_one_warning_and_no_stall() {
    let home = Home::new("");
    let mut session = home.session();
    let mut history = talk(2);
    turn(&mut session, &body(&history));
    let other = rusqlite::Connection::open(home.path().join("sessions.sqlite3")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let began = std::time::Instant::now();
    for text in ["one", "two", "three"] {
        history.extend([assistant("yes"), user(text)]);
        let request = body(&history);
        assert_eq!(turn(&mut session, &request).new.len(), 2);
    }
    assert!(
        began.elapsed() < std::time::Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    let warnings = session.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("goes on in memory")
            && warnings[0].contains("another process has it open"),
        "{warnings:?}"
    );
    // What was not written is delivered again.
    drop((other, session));
    home.journal();
    let request = body(&history);
    turn(&mut home.session(), &request);
    assert_eq!(home.journal().len(), history.len());
}

#[test]
fn a_damaged_or_newer_store_is_refused_with_the_way_out() {
    let home = Home::new("");
    let file = home.path().join("sessions.sqlite3");
    fs::write(
        &file,
        "this is no database, whatever it is called".repeat(100),
    )
    .unwrap();
    let error = Record::open(home.path()).unwrap_err().to_string();
    assert!(error.contains("contexture sessions repair"), "{error}");
    assert!(!error.contains("move"), "{error}");
    fs::remove_file(&file).unwrap();
    drop(Record::open(home.path()).unwrap());
    rusqlite::Connection::open(&file)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let error = Record::open(home.path()).unwrap_err().to_string();
    assert!(
        error.contains("version 99") && error.contains("newer"),
        "{error}"
    );
}

#[test]
fn sessions_that_open_at_once_share_one_factory() {
    let home = tempfile::tempdir().unwrap();
    let host = contexture::Host::open(&contexture::HostOptions::in_home(home.path())).unwrap();
    std::thread::scope(|scope| {
        for id in ["one", "other"] {
            let session = host.session(id).engine("slow-factory");
            scope.spawn(move || session.open().unwrap());
        }
    });
    assert_eq!(SLOW_FACTORIES.load(Ordering::Relaxed), 1);
}

/// What a client does between two requests.
#[derive(Debug, Clone)]
enum Act {
    /// The answer came, and the user goes on.
    Talk(u8, u8),
    /// The answer came, and its echo has other words.
    EchoDiffers(u8),
    /// The process restarts.
    Restart,
    /// The client takes over what was handed out.
    CarryOn,
    /// A message is edited in place.
    Edit(prop::sample::Index),
    /// The conversation goes back to one of its user messages.
    Rewind(prop::sample::Index),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..3u8, 0..3u8).prop_map(|(answer, question)| Act::Talk(answer, question)),
        1 => (0..3u8).prop_map(Act::EchoDiffers),
        2 => Just(Act::Restart),
        1 => Just(Act::CarryOn),
        1 => any::<prop::sample::Index>().prop_map(Act::Edit),
        1 => any::<prop::sample::Index>().prop_map(Act::Rewind),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the client does: the engine sees every message once, in order, and all that the client
    /// holds; and what is handed out is a summary and the client's own messages.
    #[test]
    fn an_engine_sees_everything_once_whatever_the_client_does(acts in prop::collection::vec(act(), 1..30)) {
        let home = Home::new("compact_at: 9, keep: 3");
        let mut session = home.session();
        let long = |what: &str, which: u8| format!("{what} {which} {}", "with many words ".repeat(30));
        let mut history = vec![user("begin")];
        let mut unique = 0;
        let mut handed = turn(&mut session, &body(&history)).body.into_owned();
        let mut shown = HashSet::new();
        for act in acts {
            match act {
                Act::Talk(answer, question) => {
                    let answer = assistant(&long("answer", answer));
                    session.answer(&[&answer.to_string()], None).unwrap();
                    history.extend([answer, user(&long("question", question))]);
                }
                Act::EchoDiffers(answer) => {
                    unique += 1;
                    session.answer(&[&assistant(&long("answer", answer)).to_string()], None).unwrap();
                    history.extend([assistant(&format!("echo {unique}")), user("and?")]);
                }
                Act::Restart => {
                    drop(session);
                    session = home.session();
                }
                Act::CarryOn => history = messages_of(&handed),
                Act::Edit(at) => {
                    unique += 1;
                    let at = at.index(history.len());
                    history[at]["content"] = format!("edit {unique}").into();
                }
                Act::Rewind(at) => {
                    let at = at.index(history.len());
                    let last = (0..=at).rev().find(|at| history[*at]["role"] == "user").unwrap_or(0);
                    history.truncate(last + 1);
                }
            }
            let request = body(&history);
            let done = turn(&mut session, &request);
            let out = messages_of(&done.body);
            let tail = |message: &Value| message["content"].as_str().unwrap().to_owned();
            let own = out.last().unwrap();
            prop_assert!(tail(own).ends_with(&tail(history.last().unwrap())), "{out:#?}");
            // The summary covers the beginning; all after it stands as the client sent it.
            prop_assert_eq!(&out[1..], &history[history.len() - (out.len() - 1)..]);
            prop_assert!(done.body.matches("[CONTEXT COMPACTION]").count() <= 1 || done.body == request);
            let (repeated, twice): (bool, Vec<String>) = home.journal().into_iter().fold(
                (false, Vec::new()),
                |(was_cut, mut twice), line| {
                    let id = line.split(' ').next().unwrap().to_owned();
                    if line.starts_with('m') && !shown.insert(id) && !was_cut {
                        twice.push(line.clone());
                    }
                    (was_cut || line.starts_with("cut"), twice)
                },
            );
            prop_assert!(twice.is_empty(), "{twice:?} after {repeated}");
            let seen = fs::read_to_string(home.path().join("engines/recorder/s.json")).unwrap();
            let seen: Vec<(u64, String)> = serde_json::from_str(&seen).unwrap();
            prop_assert!(seen.is_sorted_by(|one, next| one.0 < next.0));
            for message in history.iter().filter(|message| !tail(message).contains("[CONTEXT COMPACTION]")) {
                let text = tail(message);
                prop_assert!(seen.iter().any(|(_, seen)| *seen == text), "{text} not among {seen:?}");
            }
            prop_assert_eq!(session.take_warnings(), Vec::<String>::new());
            handed = done.body.into_owned();
        }
    }
}

/// Not a test of its own: what [`killed_at_any_point`] runs in a process that it kills.
#[test]
fn one_turn_to_be_killed() {
    let Ok(home) = std::env::var("SESSION_TEST_HOME") else {
        return;
    };
    let home = PathBuf::from(home);
    let request = std::env::var("SESSION_TEST_BODY").unwrap();
    turn(&mut session_in(&home), &request);
}

#[test]
fn killed_at_any_point() {
    for dies_at in ["before", "after"] {
        let home = Home::new("");
        let mut history = talk(2);
        turn(&mut home.session(), &body(&history));
        history.extend([assistant("yes"), user("die here")]);
        home.configure(&format!("dies: die here, dies_at: {dies_at}"));
        let killed = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_turn_to_be_killed"])
            .env("SESSION_TEST_HOME", home.path())
            .env("SESSION_TEST_BODY", body(&history))
            .output()
            .unwrap();
        assert!(!killed.status.success());
        home.configure("");
        let request = body(&history);
        assert_eq!(turn(&mut home.session(), &request).new, []);
        let journal = home.journal();
        let texts: HashSet<_> = journal.iter().collect();
        // What it wrote before it died is delivered again, because the record does not have it.
        let again = if dies_at == "after" { 2 } else { 0 };
        assert_eq!(
            (journal.len(), texts.len()),
            (7 + again, 7),
            "{dies_at}: {journal:#?}"
        );
    }
}

#[test]
fn one_of_three_results_in_an_anthropic_message_is_revised_alone() {
    let home = Home::new("");
    let mut session = home.session();
    let result =
        |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "read", "input": {}});
    let mut messages = vec![
        user("look"),
        json!({"role": "assistant", "content": [call("a"), call("b"), call("c")]}),
        json!({"role": "user", "content": [result("a", "one"), result("b", "two"), result("c", "three")]}),
    ];
    let body = |messages: &[Value]| json!({"system": "s", "messages": messages}).to_string();
    let first = body(&messages);
    let done = turn_in(&mut session, &first, Format::Anthropic);
    assert_eq!(done.new, ids(1..=5));
    home.journal();
    messages[2]["content"][1] = result("b", "cleared");
    messages[2]["content"][2]["cache_control"] = json!({"type": "ephemeral"});
    messages.push(json!({"role": "assistant", "content": "seen"}));
    messages.push(user("good"));
    let second = body(&messages);
    let done = turn_in(&mut session, &second, Format::Anthropic);
    assert_eq!(done.revised, [(MessageId(6), MessageId(4))]);
    assert_eq!(done.new, ids(6..=8));
    assert_eq!(
        home.journal(),
        ["m6 tool cleared", "m7 assistant seen", "m8 user good"]
    );
    assert_eq!(done.body, second);
}

#[test]
fn items_of_one_responses_turn_are_one_message_however_they_arrive() {
    let home = Home::new("");
    let mut session = home.session();
    let mut input = vec![json!({"role": "user", "content": "look"})];
    let body = |input: &[Value]| json!({"model": "m", "input": input}).to_string();
    turn_in(&mut session, &body(&input), Format::OpenAiResponses);
    let answer = [
        json!({"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "x"}),
        json!({"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}),
        json!({"type": "function_call", "call_id": "b", "name": "read", "arguments": "{}"}),
    ];
    let texts = answer.each_ref().map(Value::to_string);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(session.answer(&texts, None).unwrap(), ids([2]));
    input.extend(answer);
    input.push(json!({"type": "function_call_output", "call_id": "a", "output": "one"}));
    input.push(json!({"type": "function_call_output", "call_id": "b", "output": "two"}));
    let done_body = body(&input);
    let done = turn_in(&mut session, &done_body, Format::OpenAiResponses);
    assert_eq!(
        (done.new, done.revised, done.relation),
        (ids([3, 4]), vec![], Relation::Continues)
    );
    drop(session);
    let mut session = home.session();
    let done = turn_in(&mut session, &done_body, Format::OpenAiResponses);
    assert_eq!(
        (done.new, done.revised, done.relation),
        (vec![], vec![], Relation::Continues)
    );
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn real_conversations_turn_by_turn_with_restarts_are_observed_once() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/tau2-bench/train_sft-v1-small.jsonl");
    let text = fs::read_to_string(file).unwrap();
    for (number, line) in text.lines().take(6).enumerate() {
        let conversation: Value = serde_json::from_str(line).unwrap();
        let all = conversation["messages"].as_array().unwrap();
        let home = Home::new("compact_at: 14, keep: 6");
        let mut session = home.session();
        let mut observed = 0;
        for end in 1..all.len() {
            if matches!(all[end - 1]["role"].as_str(), Some("assistant" | "system")) {
                continue;
            }
            if end % 3 == number % 3 {
                drop(session);
                session = home.session();
            }
            let request =
                json!({"messages": &all[..end], "tools": conversation["tools"]}).to_string();
            let done = turn(&mut session, &request);
            assert_eq!(
                (done.relation, done.revised.len()),
                (Relation::Continues, 0)
            );
            if done.body != request {
                let read = contexture::formats::read(done.body.as_ref(), Some(Format::OpenAiChat))
                    .unwrap();
                assert_eq!(
                    read[0]
                        .messages()
                        .iter()
                        .filter(|message| message.is_summary())
                        .count(),
                    1
                );
            }
            if all[end]["role"] == "assistant" {
                session.answer(&[&all[end].to_string()], None).unwrap();
            }
            observed = end + usize::from(all[end]["role"] == "assistant");
        }
        let leading = all
            .iter()
            .take_while(|message| message["role"] == "system")
            .count();
        let journal = home.journal();
        let ids: Vec<&str> = journal
            .iter()
            .filter_map(|line| line.split_once(' '))
            .filter(|(id, _)| {
                id.strip_prefix('m')
                    .is_some_and(|id| id.parse::<u64>().is_ok())
            })
            .map(|(id, _)| id)
            .collect();
        assert_eq!(ids.len(), observed - leading, "{ids:?}");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}

#[test]
fn what_a_client_left_out_before_is_not_what_it_edits_now() {
    let home = Home::new("");
    let mut session = home.session();
    let answer = assistant("the same answer");
    let mut history = vec![user("begin")];
    for _ in 0..5 {
        history.extend([answer.clone(), user("the same question")]);
    }
    turn(&mut session, &body(&history));
    history.drain(..4);
    turn(&mut session, &body(&history));
    for (place, old) in [(0, 5), (1, 6), (2, 7)] {
        history[place]["content"] = format!("edit {place}").into();
        let edited = body(&history);
        let done = turn(&mut session, &edited);
        let revised: Vec<MessageId> = done.revised.iter().map(|(_, old)| *old).collect();
        assert_eq!(revised, ids([old]));
    }
}

/// A client that carries on from a summary of the host may write one of its own over it.
#[test]
fn a_text_of_the_client_in_place_of_a_summary_begins_the_conversation_anew() {
    let home = Home::new("compact_at: 9, keep: 6");
    let mut session = home.session();
    let handed = turn(&mut session, &body(&talk(5))).body.into_owned();
    let mut history = messages_of(&handed);
    history[0]["content"] = "in short".into();
    let written = body(&history);
    let done = turn(&mut session, &written);
    assert_eq!((done.new.len(), done.revised.len()), (history.len(), 0));
}

#[test]
fn a_compaction_appends_its_note_to_the_system_prompt_unless_the_embedder_says_no() {
    let system = |note: bool| {
        let home = tempfile::tempdir().unwrap();
        let host = contexture::Host::open(&contexture::HostOptions::in_home(home.path())).unwrap();
        let session = host.session("s").model("gpt-4o", 8_000).note(note).open();
        let mut messages = vec![json!({"role": "system", "content": "Be brief."})];
        for turn in 0..40 {
            let role = ["user", "assistant"][turn % 2];
            messages
                .push(json!({"role": role, "content": format!("{turn}: {}", "word ".repeat(150))}));
        }
        let body = json!({ "messages": messages }).to_string();
        let mut session = session.unwrap();
        let turn = session.turn(&body).unwrap();
        assert!(turn.changed && turn.body.len() < body.len());
        let sent: Value = serde_json::from_str(&turn.body).unwrap();
        sent["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(system(false), "Be brief.");
    assert!(system(true).starts_with("Be brief.") && system(true) != "Be brief.");
}

/// A request of so many turns in which every message of the user holds an image.
fn with_images(format: Format, turns: usize) -> String {
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let url = format!("data:image/png;base64,{data}");
    let message = |turn: usize| {
        let asked = format!("{turn}: {}", "word ".repeat(100));
        let [asked, answer] = match format {
            Format::Anthropic => [
                json!({"role": "user", "content": [{"type": "text", "text": asked},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}),
                assistant("seen"),
            ],
            Format::OpenAiChat => [
                json!({"role": "user", "content": [{"type": "text", "text": asked},
                    {"type": "image_url", "image_url": {"url": url}}]}),
                assistant("seen"),
            ],
            Format::OpenAiResponses => [
                json!({"role": "user", "content": [{"type": "input_text", "text": asked},
                    {"type": "input_image", "image_url": url}]}),
                json!({"role": "assistant", "content": [{"type": "output_text", "text": "seen"}]}),
            ],
            _ => [
                json!({"role": "user", "parts": [{"text": asked},
                    {"inlineData": {"mimeType": "image/png", "data": data}}]}),
                json!({"role": "model", "parts": [{"text": "seen"}]}),
            ],
        };
        [asked, answer]
    };
    let mut messages: Vec<Value> = (0..turns).flat_map(message).collect();
    messages.pop();
    match format {
        Format::OpenAiResponses => json!({"input": messages}).to_string(),
        Format::Gemini => json!({"contents": messages}).to_string(),
        _ => json!({"messages": messages}).to_string(),
    }
}

/// A provider may count images for more than its published price. What triggers a compaction and what it
/// reports are in the same count.
#[test]
fn a_compaction_is_reported_in_the_count_of_its_trigger() {
    let home = tempfile::tempdir().unwrap();
    let host = contexture::Host::open(&contexture::HostOptions::in_home(home.path())).unwrap();
    for format in [
        Format::Anthropic,
        Format::OpenAiChat,
        Format::OpenAiResponses,
        Format::Gemini,
    ] {
        for times in [None, Some(2)] {
            let open = |name: &str| {
                let name = format!("{format:?} {times:?} {name}");
                host.session(&name).model("gpt-4o", 128_000).open().unwrap()
            };
            let mut session = open("compacted");
            let never = TurnOptions::default().compact(Compact::Never);
            let first = with_images(format, 29);
            session.turn_with(&first, Some(format), &never).unwrap();
            let counted = session.state().prompt_tokens;
            if let Some(times) = times {
                session.update_usage(&Usage::default().input_tokens(counted * times));
            }
            let body = with_images(format, 30);
            session.turn_with(&body, Some(format), &never).unwrap();
            let trigger = session.state().best_prompt_tokens();
            let force = TurnOptions::default().compact(Compact::Force);
            let turn = session.turn_with(&body, Some(format), &force).unwrap();
            let report = turn.compaction.unwrap();
            assert_eq!(report.tokens_before, trigger, "{format:?}: {report:?}");
            let mut again = open("again");
            again.turn_with(&turn.body, Some(format), &never).unwrap();
            let sent = again.state().prompt_tokens;
            let after = report.tokens_after as f64 / sent as f64;
            let scale = trigger as f64 / report.counted_tokens.0 as f64;
            assert!(
                (after / scale - 1.0).abs() < 0.02,
                "{format:?}: {sent}, {report:?}"
            );
            assert!(
                scale > times.unwrap_or(1) as f64 * 0.95,
                "{format:?}: {scale}"
            );
        }
    }
}

/// A provider may count far less than the host. Whether a compaction reached its goal is said in the count that triggered
/// it.
#[test]
fn a_compaction_is_judged_in_the_count_of_its_trigger() {
    let home = tempfile::tempdir().unwrap();
    let config = "compression: {timing: threshold}\n";
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let host = contexture::Host::open(&contexture::HostOptions::in_home(home.path())).unwrap();
    let mut session = host.session("s").model("gpt-4o", 128_000).open().unwrap();
    let mut messages =
        vec![json!({"role": "system", "content": "A rule of the house. ".repeat(10_000)})];
    for turn in 0..40 {
        let text = format!("Step {turn}. {}", "A line of the report. ".repeat(250));
        messages.push(json!({"role": "user", "content": text}));
        messages.push(json!({"role": "assistant", "content": "Done."}));
    }
    messages.push(json!({"role": "user", "content": "Go on."}));
    let never = TurnOptions::default().compact(Compact::Never);
    let body = body(&messages);
    session.turn_with(&body, None, &never).unwrap();
    let counted = session.state().prompt_tokens;
    session.update_usage(&Usage::default().input_tokens(counted * 7 / 10));
    let turn = session.turn(&body).unwrap();
    let report = turn.compaction.unwrap();
    assert!(
        report.tokens_before > 64_000 && report.tokens_after < 64_000,
        "{report:?}"
    );
    assert!(report.counted_tokens.1 > 64_000, "{report:?}");
    assert!(!report.reason.contains("still above"), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A client that changes its own list as the items of a turn say has the list of the body.
    #[test]
    fn the_items_of_a_turn_make_the_list_of_its_body(
        format in prop::sample::select(vec![Format::OpenAiChat, Format::OpenAiResponses, Format::Anthropic]),
        prompts in 0..3_usize,
        (setup, compacted, note, is_long) in any::<(bool, bool, bool, bool)>(),
    ) {
        let mut list = Vec::new();
        match format {
            Format::OpenAiChat => list.resize(prompts, json!({"role": "system", "content": "Be brief."})),
            Format::OpenAiResponses => {
                list.resize(usize::from(setup), json!({"type": "additional_tools", "tools": []}));
                list.resize(list.len() + prompts, json!({"role": "developer", "content": "Be brief."}));
                let item = json!({"type": "compaction", "id": "c", "encrypted_content": "x"});
                list.resize(list.len() + usize::from(compacted), item);
            }
            _ if compacted => list.extend([
                user("Begin."),
                json!({"role": "assistant", "content": [{"type": "compaction", "content": "So far."}]}),
            ]),
            _ => {}
        }
        list.extend(talk(if is_long { 40 } else { 2 }));
        let key = format.list_key();
        let request = json!({key: list}).to_string();
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.yaml"), "context: {engine: compressor}\n").unwrap();
        // A note without a message of the system prompt that can hold it is a message of its own.
        let note = note && (prompts > 0 || format == Format::Anthropic);
        let options = SessionOptions::default().cache_markers(false).note(note);
        let agent = AgentWindow::new("gpt-4o", 8_000, 1_000);
        let mut session = Session::open(&engines_in(home.path()), None, "s", agent, options).unwrap();
        let mut turn = turn_in(&mut session, &request, format);
        prop_assert_eq!(turn.changed, is_long);
        let made = turn.take_items().into_iter().map(|item| match item {
            BodyMessage::Kept(at) => list[at].clone(),
            BodyMessage::Changed(_, text) | BodyMessage::Added(text) => serde_json::from_str(&text).unwrap(),
        });
        let sent: Value = serde_json::from_str(&turn.body).unwrap();
        prop_assert_eq!(&made.collect::<Value>(), &sent[key]);
    }
}

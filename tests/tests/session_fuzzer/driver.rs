//! The one place that knows the host's interface: sessions are opened, asked, answered, and what they keep is
//! lost, saved and put back, as a client and a machine do it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contexture::engines::Engines;
use contexture::session::{
    AgentWindow, OutcomeKind, PostgresOptions, Record, RecordError, Session, SessionOptions,
    TurnOptions,
};
use contexture::tokens::TokenCounter;
use contexture_engine_api::{StoreCommand, ToolCall, Usage};
use contexture_tests::{Home, built_plugins, engines};
use serde_json::{Value, json};

use crate::act::Carrier;
use crate::wire::Wire;

const SESSION: &str = "the-session";
/// Lines under `context:` for an engine that never fails, on a machine that may be slow.
pub(crate) const PATIENT: &str =
    "  on_failure: fail\n  supervision:\n    call_deadline_ms: 60000\n";
const MODEL: &str = "gpt-5";

/// What came of a turn, as far as a client can see it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) body: String,
    /// A compaction, or what the engine rewrote, came into force.
    pub(crate) compacted: bool,
    /// That was a rewrite alone: what stands behind the summary is as long as the turns since.
    pub(crate) only_rewritten: bool,
    /// Whether the built-in compacted in the place of the session's engine.
    pub(crate) stood_in: bool,
    /// Why a body may be larger than the window: the reports and warnings.
    pub(crate) excuses: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// Why a compaction was due or not, and the figures.
    pub(crate) decision: String,
}

/// The database that sessions are played in, if `CONTEXTURE_FUZZER_STORE` is `postgres`.
fn database() -> Option<PostgresOptions> {
    std::env::var("CONTEXTURE_FUZZER_STORE")
        .is_ok_and(|store| store == "postgres")
        .then(|| {
            let url = std::env::var("CONTEXTURE_TEST_DATABASE_URL").expect("the URL of a database");
            PostgresOptions::new(&url).unwrap()
        })
}

/// The record of a home directory: its file, or in the database the sessions under its name.
fn open_record(home: &Home) -> Arc<Record> {
    match database() {
        None => Record::open(home.path()).unwrap(),
        Some(options) => {
            Record::migrate(&options).unwrap();
            Record::open_postgres(&options.tenant(home.path().display().to_string())).unwrap()
        }
    }
}

/// A process that has the store and the engines open.
struct Process {
    engines: Arc<Engines>,
    record: Arc<Record>,
}

/// A home directory, two processes that take turns with one session in it, and the engine that is chosen.
pub(crate) struct Driver {
    home: Home,
    carrier: Carrier,
    processes: [Option<Process>; 2],
    at: usize,
    session: Option<Session>,
    engine: &'static str,
    /// The engine of the configuration.
    configured: &'static str,
    window: u64,
    backups: usize,
}

impl Driver {
    /// `more` are lines under `context:` in the configuration.
    pub(crate) fn new(engine: &'static str, carrier: Carrier, window: u64, more: &str) -> Self {
        let home = Home::new();
        if carrier != Carrier::Linked {
            home.install(&format!("plugins/context_engine/{engine}"), engine);
        }
        let driver = Self {
            home,
            carrier,
            processes: [None, None],
            at: 0,
            session: None,
            engine,
            configured: engine,
            window,
            backups: 0,
        };
        driver.configure(more);
        driver
    }

    fn configure(&self, more: &str) {
        let engine = self.configured;
        let isolation = match self.carrier {
            Carrier::Process => {
                let program = built_plugins().join("contexture-engine-host");
                format!(
                    "  isolation: process\n  engine_host: {}\n",
                    program.display()
                )
            }
            _ => String::new(),
        };
        // If compactions waited until they are sure to pay, few would be seen.
        let timing = "compression:\n  timing: threshold\n";
        self.home.configure(&format!(
            "context:\n  engine: {engine}\n{isolation}{more}{timing}transcript:\n  mode: full\n"
        ));
    }

    /// Both processes go on with other lines under `context:`.
    pub(crate) fn set_configuration(&mut self, more: &str) -> Result<(), String> {
        self.shut_down()?;
        self.configure(more);
        Ok(())
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    fn process(&mut self) -> &Process {
        let home = &self.home;
        self.processes[self.at].get_or_insert_with(|| Process {
            engines: engines(home),
            record: open_record(home),
        })
    }

    fn agent(&self) -> AgentWindow {
        AgentWindow::new(MODEL.to_owned(), self.window, self.window / 10)
    }

    fn session(&mut self) -> Result<&mut Session, String> {
        if self.session.is_none() {
            let agent = self.agent();
            // What a configuration chooses may be stood in for, what is named may not.
            let named = (self.engine != self.configured).then_some(self.engine);
            let options = SessionOptions::default().engine(named.map(str::to_owned));
            let Process { engines, record } = self.process();
            let session = Session::open(engines, Some(record), SESSION, agent, options);
            self.session = Some(session.map_err(|error| format!("resume: {error}"))?);
        }
        self.session.as_mut().ok_or_else(String::new)
    }

    pub(crate) fn turn(&mut self, wire: Wire, body: &str) -> Result<Outcome, String> {
        let engine = self.engine;
        let session = self.session()?;
        let turn = session.turn_with(body, Some(wire.format()), &TurnOptions::default());
        let turn = turn.map_err(|error| format!("turn: {error}"))?;
        let report = turn.compaction.as_ref();
        let compacted = report.is_some_and(|report| report.outcome == OutcomeKind::Compacted);
        let rewritten = turn.rewrite.is_some();
        let stood_in = report.is_some_and(|report| report.engine != engine);
        // A compaction whose figures say that all is well is no excuse, and neither is a decision that names
        // figures alone.
        let mut excuses: Vec<String> = report
            .filter(|report| !compacted || report.reason.contains("still above"))
            .map(|report| report.reason.clone())
            .into_iter()
            .collect();
        excuses.extend(
            Some(turn.decision.reason().to_owned())
                .filter(|why| why.contains("could not get") || why.contains("which stay")),
        );
        let decision = turn.decision.reason().to_owned();
        let body = turn.body.into_owned();
        let state = session.state();
        let decision = format!(
            "{decision}; the prompt has {} tokens, or {:?} after the last report",
            state.prompt_tokens, state.reported_tokens
        );
        let warnings = session.take_warnings();
        if let Some(warning) = (warnings.iter()).find(|text| text.contains("could not be applied"))
        {
            return Err(warning.clone());
        }
        excuses.extend(warnings.iter().cloned());
        Ok(Outcome {
            body,
            compacted: compacted || rewritten,
            only_rewritten: rewritten && !compacted,
            stood_in,
            excuses,
            warnings,
            decision,
        })
    }

    pub(crate) fn answer(
        &mut self,
        items: &[&str],
        input_tokens: Option<u64>,
    ) -> Result<(), String> {
        let usage = input_tokens.map(|input_tokens| Usage::default().input_tokens(input_tokens));
        let session = self.session()?;
        session
            .answer(items, usage.as_ref())
            .map(|_| ())
            .map_err(|error| format!("answer: {error}"))
    }

    /// Lets go of the session: as a process does that ends in order, or one that is gone.
    pub(crate) fn leave(&mut self, in_order: bool) -> Result<(), String> {
        match self.session.take() {
            Some(session) if in_order => session.end().map_err(|error| format!("end: {error}")),
            _ => Ok(()),
        }
    }

    /// The same process goes on with nothing in memory.
    pub(crate) fn restart(&mut self, in_order: bool) -> Result<(), String> {
        self.leave(in_order)?;
        self.processes[self.at] = None;
        Ok(())
    }

    /// The other process goes on.
    pub(crate) fn change_process(&mut self) -> Result<(), String> {
        self.leave(true)?;
        self.at = 1 - self.at;
        Ok(())
    }

    fn shut_down(&mut self) -> Result<(), String> {
        self.leave(true)?;
        self.processes = [None, None];
        Ok(())
    }

    pub(crate) fn set_window(&mut self, window: u64, at_once: bool) -> Result<(), String> {
        self.window = window;
        let agent = self.agent();
        match &mut self.session {
            Some(session) if at_once => session
                .set_model(agent)
                .map_err(|error| format!("set_model: {error}")),
            _ => self.leave(true),
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    pub(crate) fn set_engine(&mut self, engine: &'static str) -> Result<(), String> {
        self.leave(true)?;
        self.engine = engine;
        Ok(())
    }

    pub(crate) fn engine(&self) -> &'static str {
        self.engine
    }

    /// The engine of the configuration.
    pub(crate) fn configured(&self) -> &'static str {
        self.configured
    }

    /// Whether a failure shut the engine out of the session as it is open now.
    pub(crate) fn engine_is_shut_out(&mut self) -> bool {
        let engine = self.engine;
        let runs =
            |session: &mut Session| session.engine().name() == engine && session.status().is_ok();
        !self.session().is_ok_and(runs)
    }

    /// The host's record of the session is gone.
    pub(crate) fn lose_record(&mut self) -> Result<(), String> {
        self.shut_down()?;
        if database().is_some() {
            let record = open_record(&self.home);
            let held = record.hold(SESSION, Duration::from_secs(10));
            let forgotten = held.and_then(|hold| record.forget(SESSION, &hold));
            return forgotten.map_err(|error| error.to_string());
        }
        for file in self.record_files() {
            let _ = fs::remove_file(file);
        }
        Ok(())
    }

    fn record_files(&self) -> [PathBuf; 3] {
        ["", "-wal", "-shm"].map(|suffix| {
            let file = format!("sessions.sqlite3{suffix}");
            self.home.path().join(file)
        })
    }

    /// A copy of the record, if it is in a file. Something may still have the file open.
    pub(crate) fn back_up_record(&mut self) -> Result<Option<PathBuf>, String> {
        self.shut_down()?;
        self.backups += 1;
        let home = self.home.path();
        let to = home.join(format!("backup-{}", self.backups));
        let no_engine = &mut |_: &Path, _: &Path| Ok::<_, RecordError>(true);
        Record::back_up(home, &to, no_engine).map_err(|error| error.to_string())?;
        Ok(to.join("sessions.sqlite3").exists().then_some(to))
    }

    /// An earlier copy takes the place of the record.
    pub(crate) fn restore_record(&mut self, backup: &Path) -> Result<(), String> {
        self.lose_record()?;
        for file in self.record_files() {
            let from = backup.join(file.file_name().unwrap_or_default());
            if from.exists() {
                fs::copy(from, file).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn engine_dir(&self) -> PathBuf {
        self.home.path().join("engines").join(self.keeper())
    }

    /// The engine whose store is looked at.
    fn keeper(&self) -> &'static str {
        match self.engine {
            "compressor" | "keep-tail" | "two-layer" | "tiered" => "lcm",
            engine => engine,
        }
    }

    /// What the engine keeps is gone.
    pub(crate) fn lose_store(&mut self) -> Result<(), String> {
        self.shut_down()?;
        let _ = fs::remove_dir_all(self.engine_dir());
        Ok(())
    }

    /// A copy of what the engine derived, if there is anything.
    pub(crate) fn back_up(&mut self) -> Result<Option<PathBuf>, String> {
        self.shut_down()?;
        self.backups += 1;
        let to = self.home.path().join(format!("backup-{}", self.backups));
        let file = self.engine_dir().join(contexture_lcm::store::FILE_NAME);
        match file.exists() {
            true => {
                fs::copy(file, &to).map_err(|error| error.to_string())?;
                Ok(Some(to))
            }
            false => Ok(None),
        }
    }

    /// An earlier copy takes the place of what the engine derived.
    pub(crate) fn put_back(&mut self, backup: &PathBuf) -> Result<(), String> {
        self.lose_store()?;
        fs::create_dir_all(self.engine_dir()).map_err(|error| error.to_string())?;
        let file = self.engine_dir().join(contexture_lcm::store::FILE_NAME);
        fs::copy(backup, file).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn manage(&mut self, command: &StoreCommand) -> Result<Value, String> {
        let keeper = self.keeper();
        let answer = self.process().engines.manage(Some(keeper), command);
        answer.map_err(|error| format!("{command:?}: {error}"))
    }

    /// The conversation as the host stores it, wire messages in order.
    pub(crate) fn transcript(&mut self) -> Result<Vec<String>, String> {
        let record = Arc::clone(&self.process().record);
        record
            .conversation(SESSION)
            .map_err(|error| error.to_string())
    }

    /// Whether the store finds nothing wrong with itself.
    pub(crate) fn verify(&mut self) -> Result<(), String> {
        let verified = self.manage(&StoreCommand::Verify)?;
        match verified["ok"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(format!("verify: {verified}")),
        }
    }

    fn tool(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let call = ToolCall::new(name.to_owned(), arguments.to_string());
        let answer = self.session()?.call_tool(call);
        let answer = answer.map_err(|error| format!("{name} {arguments}: {error}"))?;
        serde_json::from_str(&answer).map_err(|error| format!("{name}: {error}"))
    }

    /// Whether each message of the conversation stands in the window or under one summary.
    pub(crate) fn doctor(&mut self) -> Result<(), String> {
        let answer = self.tool("lcm_doctor", &json!({}))?;
        match answer["ok"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(format!("lcm_doctor: {answer}")),
        }
    }

    /// The ids of all messages, in the conversation or not, in which this stands.
    pub(crate) fn find(&mut self, text: &str) -> Result<Vec<String>, String> {
        let mut arguments = json!({
            "pattern": text, "mode": "literal", "scope": "messages", "limit": 100, "max_tokens": 32_000,
        });
        let mut ids = Vec::new();
        loop {
            let page = self.tool("lcm_grep", &arguments)?;
            let hits = page["hits"].as_array().into_iter().flatten();
            ids.extend(hits.filter_map(|hit| Some(hit["id"].as_str()?.to_owned())));
            match page["next_cursor"].as_str() {
                Some(cursor) => arguments["cursor"] = json!(cursor),
                None => return Ok(ids),
            }
        }
    }

    /// A message of the store, by its id.
    pub(crate) fn stored(&mut self, id: &str) -> Result<String, String> {
        let mut arguments = json!({"id": id, "max_tokens": 32_000});
        let mut raw = String::new();
        loop {
            let page = self.tool("lcm_expand", &arguments)?;
            for part in page["messages"].as_array().into_iter().flatten() {
                raw.push_str(part["message"].as_str().unwrap_or_default());
            }
            match page["next_cursor"].as_str() {
                Some(cursor) => arguments["cursor"] = json!(cursor),
                None => return Ok(raw),
            }
        }
    }
}

/// What a text costs the model.
pub(crate) fn tokens(text: &str) -> u64 {
    TokenCounter::for_model(MODEL).count_text(text)
}

//! Checks that every engine must pass, whatever it does.
//!
//! [`check_engine`] plays conversations of many kinds to an engine, as a host would. Some are
//! written by hand, for cases that engines get wrong, and some are generated from a seed. Each
//! requirement is a [`Row`] of a table, and the [`Report`] says for each row how often it was
//! checked, how often it failed, and why it failed first.
//!
//! Most authors use the macro [`conforms!`](crate::conforms), which defines a test. Call
//! [`check_engine`] directly if a test should change the number of conversations, the seed or the
//! patience in [`Checking`].
//!
//! The submodule `scenes` has the conversations, `play` plays one of them, `asks` checks what is
//! not part of a conversation, and `watch` catches panics and calls that hang.

mod asks;
mod play;
mod scenes;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use contexture_engine_api::{About, EngineDefinition, EngineError, EngineFactory, FactoryRequest};

use crate::Chat;
use watch::Watch;

/// A requirement on engines, and a row of the table that a [`Report`] prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Row {
    /// The engine opens with default settings, with a model and without, for a second session, and
    /// over its existing data.
    Opens,
    /// Every proposal and every view keeps the contract, with the grouping rules of all formats.
    Contract,
    /// What the engine says about an outcome is true: it gives a reason, a floor really is too
    /// high, and a missing model is reported.
    Outcomes,
    /// If the engine is asked twice, it answers the same. If it is told of a compaction twice, the
    /// second time changes nothing.
    Idempotence,
    /// A long session stays inside its window, and the engine does not want to compact again right
    /// after a compaction.
    Growth,
    /// Compactions survive a model that fails or gives odd answers. The engine does not call such a
    /// model without end, and waits for a model only when it may.
    Model,
    /// The engine accepts cuts and revisions, and text that they removed does not come back in a
    /// summary. No summary tells of a message behind all that it covers, because that message may be
    /// cut off while the summary stays.
    Edits,
    /// The engine accepts messages that it is shown again, as after a call that was given up or a
    /// restart.
    Resends,
    /// Background calls have distinct numbers, and the engine stops asking when nothing new is
    /// said.
    Background,
    /// Tools have unique names and a JSON Schema of an object, and wrong calls are refused with an
    /// error.
    Tools,
    /// A session learns nothing of what another session of the same factory was told.
    Sessions,
    /// The status is a JSON object, so that a person or a monitoring tool can read it by key.
    Status,
    /// No call of the engine panics. If one does, the engine is not asked anything else.
    Panics,
    /// Every call of the engine returns within the patience of the check.
    Time,
}

impl Row {
    /// All rows, in the order in which the table prints them.
    pub const ALL: [Self; 14] = [
        Self::Opens,
        Self::Contract,
        Self::Outcomes,
        Self::Idempotence,
        Self::Growth,
        Self::Model,
        Self::Edits,
        Self::Resends,
        Self::Background,
        Self::Tools,
        Self::Sessions,
        Self::Status,
        Self::Panics,
        Self::Time,
    ];

    /// Returns the requirement in one line, as the table prints it.
    pub const fn asks(self) -> &'static str {
        match self {
            Self::Opens => "opens with its defaults, with and without a model",
            Self::Contract => "proposals and views hold the contract in every format",
            Self::Outcomes => "it reports outcomes truthfully",
            Self::Idempotence => "repeated calls change nothing",
            Self::Growth => "a long session stays inside its window",
            Self::Model => "it survives a failing model, and waits for one only if allowed",
            Self::Edits => "it follows cuts and revisions, and never brings back the old text",
            Self::Resends => "it accepts messages that it was shown before",
            Self::Background => "its background calls come to an end",
            Self::Tools => "its tools have schemas and refuse wrong calls",
            Self::Sessions => "no session sees anything of another",
            Self::Status => "its status is a JSON object",
            Self::Panics => "no call panics",
            Self::Time => "every call returns",
        }
    }
}

/// An engine to check. Make one from an [`EngineDefinition`], or with [`Subject::new`] if the
/// engine was loaded as a plugin.
pub struct Subject {
    name: String,
    about: About,
    create: Box<Create>,
}

type Create =
    dyn Fn(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError> + Send + Sync;

impl Subject {
    /// Creates a subject from the engine's name, its description and the function that makes its
    /// factory. The name is used when a session is opened over a compaction.
    pub fn new(
        name: impl Into<String>,
        about: About,
        create: impl Fn(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let create = Box::new(create);
        Self {
            name: name.into(),
            about,
            create,
        }
    }
}

impl From<&EngineDefinition> for Subject {
    fn from(definition: &EngineDefinition) -> Self {
        let host = contexture_engine_api::HostInfo::new(env!("CARGO_PKG_VERSION"));
        let definition = *definition;
        let about = definition.describe(&host).about;
        Self::new(definition.name, about, move |request| {
            definition.create(request)
        })
    }
}

/// How thoroughly an engine is checked. The default takes 24 generated conversations and allows a
/// minute for each call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Checking {
    /// The number of generated conversations. The written ones are always played.
    pub generated: u64,
    /// The seed of the first generated conversation. Each further conversation uses the next
    /// number, so a failure can be reproduced from the name of its conversation.
    pub seed: u64,
    /// How long a call may take before it counts as one that does not return. A call that returns
    /// later is not interrupted.
    pub patience: Duration,
    /// Recorded conversations that are played as well, request by request.
    pub recordings: Vec<Recording>,
}

/// A recorded conversation to play to an engine: a session of the author's own, say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// What reports call it.
    pub name: String,
    /// What was said. A request is made before each answer of the assistant.
    pub chat: Chat,
    /// The window of the agent's model, in tokens. [`new`](Self::new) takes a third of the
    /// conversation's own size, so that compactions become due.
    pub context_length: u64,
}

impl Recording {
    /// A conversation, in a window that it fills about three times. The window is at least 4,000
    /// tokens.
    pub fn new(name: impl Into<String>, chat: Chat) -> Self {
        let context_length = (chat.tokens() / 3).max(4_000);
        Self {
            name: name.into(),
            chat,
            context_length,
        }
    }
}

impl Default for Checking {
    fn default() -> Self {
        Self {
            generated: 24,
            seed: 1,
            patience: Duration::from_secs(60),
            recordings: Vec::new(),
        }
    }
}

/// The result of one row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// How often the row was checked. If this is 0, no conversation reached the situation.
    pub cases: u64,
    /// How often the requirement did not hold.
    pub broken: u64,
    /// The reason of the first failure, with the conversation and the turn in which it happened.
    pub why: Option<String>,
}

/// The results of all rows. It displays as a table, followed by the reason for each row that
/// failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    rows: [Held; Row::ALL.len()],
}

impl Report {
    /// Returns the result of one row.
    pub fn of(&self, row: Row) -> &Held {
        &self.rows[row as usize]
    }

    /// Returns the rows that did not hold, in the order of the table.
    pub fn broken(&self) -> impl Iterator<Item = Row> {
        let is_broken = |row: &Row| self.of(*row).broken > 0;
        Row::ALL.into_iter().filter(is_broken)
    }

    fn note(&mut self, row: Row, found: Result<(), String>) {
        let held = &mut self.rows[row as usize];
        held.cases += 1;
        if let Err(why) = found {
            held.broken += 1;
            // Only the first reason is kept. Later failures are often consequences of it.
            held.why.get_or_insert(why);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>7}  {:<10}  REQUIREMENT",
            "ROW", "CASES", "HELD"
        )?;
        for row in Row::ALL {
            let held = self.of(row);
            let name = format!("{row:?}").to_lowercase();
            let word = match (held.cases, held.broken) {
                (0, _) => "not seen".to_owned(),
                (_, 0) => "yes".to_owned(),
                (_, broken) => format!("no: {broken}"),
            };
            writeln!(
                f,
                "{name:<12} {:>7}  {word:<10}  {}",
                held.cases,
                row.asks()
            )?;
        }
        for row in self.broken() {
            let name = format!("{row:?}").to_lowercase();
            let why = self.of(row).why.as_deref().unwrap_or_default();
            writeln!(f, "\n{name}: {why}")?;
        }
        Ok(())
    }
}

/// Plays all conversations to an engine and returns what held. The check runs on other threads.
///
/// If a call does not return, its thread and the engine are left behind until the process ends, and
/// the remaining conversations are not played.
pub fn check_engine(subject: Subject, how: Checking) -> Report {
    let subject = Arc::new(subject);
    let watch = Watch::new(how.patience);
    for scene in scenes::all(&how) {
        // If a call hangs, its thread keeps the subject, so each thread has a share of its own.
        let subject = Arc::clone(&subject);
        let name = scene.name.clone();
        if watch.over(&name, move |watch| play::play(&subject, scene, watch)) {
            // The engine hangs in a call, so nothing more can be asked of it.
            return watch.report();
        }
    }
    watch.over("asked about its tools and its sessions", move |watch| {
        asks::ask(&subject, watch);
    });
    watch.report()
}

/// Checks an engine as [`check_engine`] does, with the default effort, and prints the table. A test
/// usually calls this through [`conforms!`](crate::conforms).
///
/// # Panics
/// Panics with the table if a row did not hold.
#[track_caller]
pub fn assert_conforms(engine: impl Into<Subject>) {
    let report = check_engine(engine.into(), Checking::default());
    assert!(report.broken().next().is_none(), "\n{report}");
    // Visible when the tests run with `cargo test -- --nocapture`.
    println!("{report}");
}

/// Defines a test that checks the engine of an [`EngineDefinition`]. In a crate that calls
/// `export_engine!`, the definition is `CONTEXTURE_ENGINE`:
///
/// ```ignore
/// #[cfg(test)]
/// contexture_testkit::conforms!(CONTEXTURE_ENGINE);
/// ```
#[macro_export]
macro_rules! conforms {
    ($definition:expr) => {
        #[test]
        fn conforms_to_the_interface() {
            $crate::assert_conforms(&$definition);
        }
    };
}

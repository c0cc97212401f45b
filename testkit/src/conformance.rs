//! What every engine is held to, whatever it does: conversations of every kind are played to it, and each thing that was
//! asked of it is a row of a table.

mod asks;
mod play;
mod scenes;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use contexture_engine_api::{About, EngineDefinition, EngineError, EngineFactory, FactoryRequest};

use watch::Watch;

/// What is asked of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Row {
    /// It opens with its defaults, with a model and without, once more for another session, and over what is kept.
    Opens,
    /// Every proposal and every view holds the contract, in every format.
    Contract,
    /// What it says of an outcome is so: a reason is given, a floor is too high, a model was missed.
    Outcomes,
    /// What is asked twice is answered alike, and a compaction that is told twice counts once.
    Idempotence,
    /// A long session stays inside its window, and what was just compacted is not due again.
    Growth,
    /// A model that fails, in every way, or says odd things, ends no compaction in an error, is not asked without end,
    /// and is not waited for unless somebody waits.
    Model,
    /// A cut and a revision are taken in, and what they took away does not come back.
    Edits,
    /// After a restart it says how far it has seen the conversation, and takes in what it is shown again.
    Resends,
    /// What it gives back is the very message, and nothing that was cut off.
    Recall,
    /// Model calls in the background have numbers of their own, and come to an end.
    Background,
    /// Its tools are described as JSON Schema; wrong calls are refused, and said to be.
    Tools,
    /// A session sees nothing of another.
    Sessions,
    /// Its status is a JSON object.
    Status,
    /// No call panics.
    Panics,
    /// Every call returns.
    Time,
}

impl Row {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 15] = [
        Self::Opens,
        Self::Contract,
        Self::Outcomes,
        Self::Idempotence,
        Self::Growth,
        Self::Model,
        Self::Edits,
        Self::Resends,
        Self::Recall,
        Self::Background,
        Self::Tools,
        Self::Sessions,
        Self::Status,
        Self::Panics,
        Self::Time,
    ];

    /// What it asks, in a line.
    pub const fn asks(self) -> &'static str {
        match self {
            Self::Opens => "opens with its defaults, with and without a model",
            Self::Contract => "proposals and views hold the contract in every format",
            Self::Outcomes => "what it says of an outcome is so",
            Self::Idempotence => "what is asked or told twice changes nothing",
            Self::Growth => "a long session stays inside its window",
            Self::Model => "a failing model is survived, and not waited for unasked",
            Self::Edits => "cuts and revisions are taken in, and do not come back",
            Self::Resends => "after a restart it knows how far it has seen",
            Self::Recall => "what it gives back is the very message",
            Self::Background => "calls in the background come to an end",
            Self::Tools => "tools have schemas, and refuse wrong calls",
            Self::Sessions => "a session sees nothing of another",
            Self::Status => "its status is a JSON object",
            Self::Panics => "no call panics",
            Self::Time => "every call returns",
        }
    }
}

/// An engine to be checked: one linked in, or one that was loaded.
pub struct Subject {
    name: String,
    about: About,
    create: Box<Create>,
}

type Create =
    dyn Fn(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError> + Send + Sync;

impl Subject {
    /// An engine of this name that says this of itself, and is made like this.
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

/// How an engine is checked.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Checking {
    /// How many conversations are generated.
    pub generated: u64,
    /// Where the numbers begin from which they are made.
    pub seed: u64,
    /// How long a call may take until it counts as one that does not return. It ends nothing that returns.
    pub patience: Duration,
}

impl Default for Checking {
    fn default() -> Self {
        Self {
            generated: 24,
            seed: 1,
            patience: Duration::from_secs(60),
        }
    }
}

/// What came of one row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// How often it was looked at.
    pub cases: u64,
    /// How often it did not hold.
    pub broken: u64,
    /// Why it did not hold the first time, and in which conversation.
    pub why: Option<String>,
}

/// What held, and why something did not. Shown as a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    rows: [Held; Row::ALL.len()],
}

impl Report {
    /// What came of a row.
    pub fn of(&self, row: Row) -> &Held {
        &self.rows[row as usize]
    }

    /// The rows that did not hold.
    pub fn broken(&self) -> impl Iterator<Item = Row> {
        let is_broken = |row: &Row| self.of(*row).broken > 0;
        Row::ALL.into_iter().filter(is_broken)
    }

    fn note(&mut self, row: Row, found: Result<(), String>) {
        let held = &mut self.rows[row as usize];
        held.cases += 1;
        if let Err(why) = found {
            held.broken += 1;
            held.why.get_or_insert(why);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>7}  {:<10}  WHAT IS ASKED",
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

/// Plays everything to an engine.
///
/// A call that does not return keeps a thread and the engine until the process ends; what was to come is not played.
pub fn check_engine(subject: Subject, how: Checking) -> Report {
    let subject = Arc::new(subject);
    let watch = Watch::new(how.patience);
    for scene in scenes::all(how) {
        let subject = Arc::clone(&subject);
        let name = scene.name.clone();
        if watch.over(&name, move |watch| play::play(&subject, scene, watch)) {
            return watch.report();
        }
    }
    watch.over("asked about its tools and its sessions", move |watch| {
        asks::ask(&subject, watch);
    });
    watch.report()
}

/// Checks an engine as [`check_engine`] does; what a test says in a line through [`conforms!`](crate::conforms).
///
/// # Panics
/// With the table, where a row did not hold.
#[track_caller]
pub fn assert_conforms(engine: impl Into<Subject>) {
    let report = check_engine(engine.into(), Checking::default());
    assert!(report.broken().next().is_none(), "\n{report}");
    // Shown by `cargo test -- --nocapture`.
    println!("{report}");
}

/// A test that plays everything to the engine of this [`EngineDefinition`]. In a crate that says `export_engine!` that
/// is `CONTEXTURE_ENGINE`:
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

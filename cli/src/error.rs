//! The error type of all commands: what happened, to what, why, and what to do.
//!
//! Each variant of [`CliError`] has a message and most have a help text for the user. The causes
//! stand below the message. [`CliError::print`] shows an error on stderr, [`CliError::log`] logs it, and
//! [`CliError::exit_code`] maps it to the exit code of the process. Errors of the libraries are
//! wrapped, so that their own messages become causes.
//!
//! Everything that is printed passes through a filter that masks secrets and shows control
//! characters, because messages quote files that somebody else wrote. Commands return errors and
//! leave printing to `run_with`.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use contexture_engine_api::EngineError;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};

use crate::interrupt::INTERRUPTED;
use crate::terminal;
use contexture::catalog::Untrusted;
use contexture::config::{ConfigError, DocumentError};
use contexture::engines::CallError;
use contexture::engines::{NameTaken, OpenError};
use contexture::formats::FormatError;
use contexture::history::HistoryError;
use contexture::prompt_cache::MarkError;
use contexture::providers::ProviderError;
use contexture::replay::TempHomeError;
use contexture::session::{RecordError, SessionError};
use contexture::{HostError, mask_secrets, nearest};
use contexture_gateway::GatewayError;

/// The exit code for wrong usage, input or configuration, which the user can correct.
pub(crate) const BAD_INPUT: u8 = 2;
/// The exit code if an engine failed and no other may stand in, or if stored data or the result
/// cannot be read or written.
pub(crate) const ENGINE_FAILED: u8 = 3;

/// An error that ends a command. Most variants have a help text that names the next command to try.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(crate) enum CliError {
    #[error("{what}")]
    Usage {
        what: String,
        #[help]
        way_out: String,
    },
    #[error("cannot read {input}")]
    #[diagnostic(help("name a file with a conversation, or `-` to read one from stdin"))]
    Read {
        input: String,
        source: std::io::Error,
    },
    #[error("{input} is not text: byte {valid} is not UTF-8")]
    #[diagnostic(help(
        "a conversation is JSON or JSON lines in UTF-8; unpack or convert the file first"
    ))]
    NotText { input: String, valid: usize },
    #[error("{input} is not a readable conversation")]
    Format { input: String, source: FormatError },
    #[error("{input} cannot be written in the requested format")]
    Render { input: String, source: FormatError },
    #[error("{input} contains no conversation")]
    #[diagnostic(help("its list of conversations is empty; check whether a filter removed them"))]
    NoConversation { input: String },
    #[error("the configuration cannot be used")]
    Config {
        #[source]
        because: Lines,
        #[help]
        way_out: &'static str,
    },
    #[error("the gateway cannot run")]
    #[diagnostic(help("`contexture serve --help` says what it needs"))]
    Gateway(#[source] GatewayError),
    #[error("cannot run {program}")]
    #[diagnostic(help("name a program that is on the PATH, after `--`"))]
    NotRun {
        program: String,
        source: std::io::Error,
    },
    #[error("the configuration is wrong")]
    Findings(#[source] Lines),
    #[error("the model that writes summaries cannot be used")]
    #[diagnostic(help("or pass --offline to do without a model this time"))]
    Provider(#[source] ProviderError),
    #[error("two engines of this process have the same name")]
    NameTaken(#[source] NameTaken),
    #[error("cannot create a temporary directory for the engines")]
    TempHome(#[source] TempHomeError),
    #[error("the session record cannot be used")]
    Sessions(#[source] RecordError),
    #[error("the history cannot be used")]
    History(#[source] HistoryError),
    #[error("there is no session `{session}`")]
    #[diagnostic(help(
        "`contexture sessions list` lists the stored sessions; `contexture import FILE --session {session}` \
         creates this one"
    ))]
    NoSession { session: String },
    #[error("the engine `{engine}` has no tool `{name}`")]
    NoTool {
        name: String,
        engine: String,
        #[help]
        way_out: String,
    },
    #[error("the engine refused the request")]
    Refused(#[source] Lines),
    #[error("the tool `{tool}` cannot be called with these arguments")]
    Arguments {
        tool: String,
        #[source]
        because: Lines,
        #[help]
        way_out: String,
    },
    #[error("there is no engine to run")]
    #[diagnostic(help(
        "`contexture engines list` lists the engines, and `contexture engines doctor` says what is wrong"
    ))]
    NoEngine(#[source] OpenError),
    #[error("the engine failed, and no other engine takes over because {because}")]
    #[diagnostic(help(
        "the conversation is unchanged; -v logs more, and `contexture engines doctor` tests the engine alone"
    ))]
    EngineFailed {
        because: &'static str,
        #[source]
        reason: Lines,
    },
    #[error("stopped")]
    #[diagnostic(help(
        "nothing was changed, and no partial result is left; run the command again to finish it"
    ))]
    Stopped,
    #[error("{input} cannot be marked for the prompt cache")]
    Mark { input: String, source: MarkError },
    #[error("cannot write {}", path.display())]
    #[diagnostic(help(
        "{}nothing was written, and an existing file is unchanged",
        way_to_write(source)
    ))]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write to stdout")]
    #[diagnostic(help("{}the output is incomplete", way_to_write(_0)))]
    Stdout(#[source] std::io::Error),
    #[error("{what}")]
    Build {
        what: String,
        #[help]
        way_out: String,
    },
    #[error("{} is not a usable plugin", library.display())]
    #[diagnostic(help(
        "build it again: contexture plugins build FOLDER; a program is not built: correct it, or its plugin.yaml"
    ))]
    Unusable {
        library: PathBuf,
        #[source]
        because: Lines,
    },
    /// The reader of stdout has closed the pipe, as `head` does. This ends the command but is not
    /// an error, so the exit code is 0.
    #[error("stdout was closed")]
    ReaderGone,
}

impl From<RecordError> for CliError {
    fn from(error: RecordError) -> Self {
        Self::Sessions(error)
    }
}

/// A cause that is only text, possibly of several lines.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lines(pub(crate) String);

impl CliError {
    /// Converts an error of reading a document. A document that is not text gets a help text of its
    /// own, because it is usually a compressed or binary file.
    pub(crate) fn of_format(input: String, source: FormatError) -> Self {
        match source {
            FormatError::NotText { at } => Self::NotText { input, valid: at },
            source => Self::Format { input, source },
        }
    }

    /// An error that the user can correct by another command line, with the way to do so.
    pub(crate) fn usage(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self::Usage {
            what: what.into(),
            way_out: way_out.into(),
        }
    }

    /// Makes the error for a file or folder that cannot be read.
    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Read {
            input: path.display().to_string(),
            source,
        }
    }

    /// Makes the error for a file or folder that cannot be written.
    pub(crate) fn write(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }

    /// The error for a plugin whose library or program cannot be used.
    pub(crate) fn unusable(library: &Path, problem: &dyn fmt::Display) -> Self {
        Self::Unusable {
            library: library.to_owned(),
            because: Lines(problem.to_string()),
        }
    }

    /// Converts the error for a configuration that cannot be used. The help depends on whether the
    /// file is missing or wrong.
    pub(crate) fn config(error: ConfigError) -> Self {
        let is_missing = matches!(
            &error,
            ConfigError::Document(DocumentError::Untrusted(Untrusted::Unreadable { cause, .. })) if cause.kind() == ErrorKind::NotFound
        );
        Self::Config {
            way_out: match is_missing {
                true => {
                    "name an existing file with --config, or leave --config out to use $CONTEXTURE_HOME/config.yaml"
                }
                false => "`contexture config check` lists every problem in it",
            },
            // The message of the error contains its cause already, so the cause is not passed on.
            because: Lines(error.to_string()),
        }
    }

    /// Converts the error of an engine that was asked about the data that it keeps. A refusal is
    /// passed on in the engine's words, and a cancelled command counts as stopped by the user.
    pub(crate) fn of_keeper(error: OpenError) -> Self {
        if let Some(refusal) = error.refusal() {
            return Self::Refused(Lines(refusal.to_string()));
        }
        match error {
            OpenError::Call(CallError::Failed {
                error: EngineError::Cancelled,
                ..
            }) => Self::Stopped,
            OpenError::Call(error) => {
                Self::engine_failed(&error, "only it can read what it stores")
            }
            error => Self::of_open(error),
        }
    }

    /// The failure of an engine. `because` says why no other engine takes its place.
    pub(crate) fn engine_failed(error: &dyn fmt::Display, because: &'static str) -> Self {
        Self::EngineFailed {
            because,
            reason: Lines(error.to_string()),
        }
    }

    /// Converts the error of a session in a command that no other engine can do. A missing engine and
    /// wrong settings are the user's to correct, and the record is not the engine's. Everything else
    /// is the engine's failure, and `because` says why no other engine takes its place.
    pub(crate) fn of_session(error: SessionError, because: &'static str) -> Self {
        match error {
            SessionError::Open(error @ (OpenError::Resolve(_) | OpenError::Settings { .. })) => {
                Self::of_open(error)
            }
            SessionError::InUse(error) | SessionError::Record(error) => Self::Sessions(error),
            error => Self::engine_failed(&error, because),
        }
    }

    /// Converts the error of a gateway or a host that cannot be opened. The record may be a database
    /// that is away, so that it is not the usage that is wrong.
    pub(crate) fn of_gateway(error: GatewayError) -> Self {
        match error {
            GatewayError::Host(HostError::Record(error)) => Self::Sessions(error),
            error => Self::Gateway(error),
        }
    }

    /// Converts the error of an engine that cannot be opened, for example because its plugin is
    /// missing or its settings are wrong.
    pub(crate) fn of_open(error: OpenError) -> Self {
        match error {
            OpenError::Settings { .. } => Self::Findings(Lines(error.to_string())),
            OpenError::Call(error) => Self::engine_failed(
                &error,
                "it was named with --engine, or `context.on_failure` is `fail`",
            ),
            error => Self::NoEngine(error),
        }
    }

    /// Returns the exit code of the process. It is 2 unless the cause lies outside of what the user
    /// gave.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::EngineFailed { .. } => ENGINE_FAILED,
            // A path that cannot be written is a wrong argument. A disk that is full or fails is
            // not.
            Self::Write { source, .. } | Self::Stdout(source) if !is_of_the_place(source) => {
                ENGINE_FAILED
            }
            Self::Sessions(RecordError::InUse { .. } | RecordError::TooNew { .. }) => BAD_INPUT,
            // The record is then as unusable as an engine's store.
            Self::Sessions(_) => ENGINE_FAILED,
            Self::History(HistoryError::Database { .. } | HistoryError::Create { .. }) => {
                ENGINE_FAILED
            }
            // A failed build is a negative answer and not wrong usage.
            Self::Build { .. } => crate::NEGATIVE,
            Self::Stopped => INTERRUPTED,
            _ => BAD_INPUT,
        }
    }

    /// Prints the error to stderr. If `graphical` is set, it has rules and colours. Otherwise each
    /// part is a plain line that begins with `error`, `because` or `help`, so that `grep` finds it
    /// whole.
    pub(crate) fn print(&self, graphical: bool) {
        if graphical {
            let mut text = String::new();
            let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode());
            // Writing to a string does not fail.
            let _ = handler.render_report(&mut text, &Masked::of(self, self.help()));
            return terminal::say_styled(&text);
        }
        let mut text = format!("error: {self}\n");
        let mut cause = self.source();
        while let Some(because) = cause {
            text.push_str(&format!("  because: {}\n", indented(&because.to_string())));
            cause = because.source();
        }
        if let Some(help) = self.help() {
            text.push_str(&format!("  help: {help}\n"));
        }
        terminal::say(&text);
    }

    /// Logs the error as a single event, with its causes and the help as fields.
    pub(crate) fn log(&self) {
        let mut causes = Vec::new();
        let mut cause = self.source();
        while let Some(because) = cause {
            causes.push(because.to_string());
            cause = because.source();
        }
        let help = self.help().map(|help| help.to_string());
        tracing::error!(because = causes.join(": "), help, "{self}");
    }
}

/// An error whose texts have no secrets and no control characters. The graphical renderer inserts
/// colours and breaks long words, after which half of a secret could no longer be recognised, so
/// everything is masked before.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{what}")]
struct Masked {
    what: String,
    source: Option<Box<Masked>>,
    #[help]
    way_out: Option<String>,
}

impl Masked {
    fn of(error: &dyn Error, help: Option<Box<dyn fmt::Display + '_>>) -> Self {
        let masked = |text: String| terminal::visible(&mask_secrets(&text)).into_owned();
        Self {
            what: masked(error.to_string()),
            source: (error.source()).map(|because| Box::new(Self::of(because, None))),
            way_out: help.map(|help| masked(help.to_string())),
        }
    }
}

/// Returns "did you mean …?" with a space behind it, or an empty text if no name is near.
pub(crate) fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

/// Returns whether something cannot be written because of its path: the folder is missing,
/// read-only or not a folder.
fn is_of_the_place(error: &std::io::Error) -> bool {
    use ErrorKind::{
        InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    matches!(
        error.kind(),
        InvalidFilename
            | InvalidInput
            | IsADirectory
            | NotADirectory
            | NotFound
            | PermissionDenied
            | ReadOnlyFilesystem
    )
}

/// Returns the beginning of the help for something that cannot be written: how to make room if the
/// disk is full, otherwise nothing.
fn way_to_write(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some disk space, or write elsewhere; "
        }
        _ => "",
    }
}

/// Indents all lines but the first, so that a long cause stays recognisable as one.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

//! What ends a command: what happened, where, why, and the way out.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use contexture_engine_api::EngineError;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};

use crate::figures::counted;
use crate::interrupt::INTERRUPTED;
use crate::terminal;
use contexture::catalog::Untrusted;
use contexture::config::{ConfigError, DocumentError};
use contexture::engines::CallError;
use contexture::engines::{NameTaken, OpenError};
use contexture::formats::FormatError;
use contexture::mask_secrets;
use contexture::prompt_cache::MarkError;
use contexture::providers::ProviderError;
use contexture::replay::StageError;
use contexture::session::{Delivered, RecordError};
use contexture_gateway::GatewayError;

/// Wrong usage, input or configuration.
pub(crate) const BAD_INPUT: u8 = 2;
/// An engine failed, and no other may stand in; or what is kept, or the result, cannot be read or written.
pub(crate) const ENGINE_FAILED: u8 = 3;

/// What ends a command.
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
    #[error("{input} is no conversation that can be read")]
    Format { input: String, source: FormatError },
    #[error("{input} cannot be written as asked")]
    Render { input: String, source: FormatError },
    #[error("{input} holds no conversation")]
    #[diagnostic(help("its list of conversations is empty; was something filtered out?"))]
    NoConversation { input: String },
    #[error("there is no conversation {wanted}: {input} holds {count}")]
    #[diagnostic(help("--select takes a number from 1 to {count}"))]
    Select {
        input: String,
        wanted: usize,
        count: usize,
    },
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
    #[error("the engines of this process cannot be told apart")]
    NameTaken(#[source] NameTaken),
    #[error("there is no place to try the engines in")]
    Stage(#[source] StageError),
    #[error("the record of sessions cannot be used")]
    Sessions(#[source] RecordError),
    #[error("there is no session `{session}`")]
    #[diagnostic(help(
        "`contexture sessions list` names those that are kept; `contexture import FILE --session {session}` \
         begins one"
    ))]
    NoSession { session: String },
    #[error(
        "the engine `{engine}` has nothing of the session `{session}`, of which {} delivered to \
         it: its store is gone, or is another one",
        match messages {
            1 => "1 message was".to_owned(),
            messages => format!("{} were", counted(*messages, "message")),
        }
    )]
    #[diagnostic(help(
        "put a backup back (`contexture sessions backup --help` says how), deliver them again with \
         `contexture import FILE --session {session}`, or give them up with `contexture sessions delete {session} --yes`"
    ))]
    Lost {
        session: String,
        engine: String,
        messages: u64,
    },
    #[error("the engine `{engine}` has no tool `{name}`")]
    NoTool {
        name: String,
        engine: String,
        #[help]
        way_out: String,
    },
    #[error("the engine cannot do that")]
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
        "`contexture engines list` names the engines, `contexture engines doctor` says what is wrong"
    ))]
    NoEngine(#[source] OpenError),
    #[error("the engine failed, and no other stands in for it because {because}")]
    #[diagnostic(help(
        "the conversation is unchanged; -v logs more, `contexture engines doctor` tries the engine alone"
    ))]
    EngineFailed {
        because: &'static str,
        #[source]
        reason: Lines,
    },
    #[error("stopped")]
    #[diagnostic(help(
        "what is kept is as it was, and nothing was left behind; run it again to have it done"
    ))]
    Stopped,
    #[error("{input} cannot be marked for the prompt cache")]
    Mark { input: String, source: MarkError },
    #[error("cannot write {}", path.display())]
    #[diagnostic(help(
        "{}nothing of it was written; what was there before is unchanged",
        way_to_write(source)
    ))]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write to stdout")]
    #[diagnostic(help("{}the result is not whole", way_to_write(_0)))]
    Stdout(#[source] std::io::Error),
    #[error("{what}")]
    Build {
        what: String,
        #[help]
        way_out: String,
    },
    #[error("{} is no plugin that can be used", library.display())]
    #[diagnostic(help("build it again: contexture plugins build, with the folder that it is in"))]
    Unusable {
        library: PathBuf,
        #[source]
        because: Lines,
    },
    /// The reader of stdout has closed it, which is no error.
    #[error("stdout was closed")]
    ReaderGone,
}

impl From<RecordError> for CliError {
    fn from(error: RecordError) -> Self {
        Self::Sessions(error)
    }
}

/// A cause that is only text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lines(pub(crate) String);

impl CliError {
    /// The error for a document that could not be read.
    pub(crate) fn of_format(input: String, source: FormatError) -> Self {
        match source {
            FormatError::NotText { at } => Self::NotText { input, valid: at },
            source => Self::Format { input, source },
        }
    }

    pub(crate) fn usage(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self::Usage {
            what: what.into(),
            way_out: way_out.into(),
        }
    }

    /// A configuration that cannot be had.
    pub(crate) fn config(error: ConfigError) -> Self {
        let is_missing = matches!(
            &error,
            ConfigError::Document(DocumentError::Untrusted(Untrusted::Unreadable { cause, .. })) if cause.kind() == ErrorKind::NotFound
        );
        Self::Config {
            way_out: match is_missing {
                true => {
                    "name a file that is there with --config, or leave it out to take $CONTEXTURE_HOME/config.yaml"
                }
                false => "`contexture config check` names every problem in it",
            },
            // Its own cause is in its text.
            because: Lines(error.to_string()),
        }
    }

    /// The messages that were delivered and are missing.
    pub(crate) fn lost(delivered: Delivered) -> Self {
        Self::Lost {
            session: delivered.session,
            engine: delivered.engine,
            messages: delivered.messages,
        }
    }

    /// What an engine says that was asked about what it keeps.
    pub(crate) fn of_keeper(error: OpenError) -> Self {
        match error {
            OpenError::Call(CallError::Failed {
                error: EngineError::Cancelled,
                ..
            }) => Self::Stopped,
            OpenError::Call(CallError::Failed {
                error: error @ (EngineError::InvalidInput(_) | EngineError::Unsupported(_)),
                ..
            }) => Self::Refused(Lines(error.to_string())),
            OpenError::Call(error) => Self::EngineFailed {
                because: "what it keeps is its own",
                reason: Lines(error.to_string()),
            },
            error => Self::of_open(error),
        }
    }

    /// An engine that cannot be had.
    pub(crate) fn of_open(error: OpenError) -> Self {
        match error {
            OpenError::Settings { .. } => Self::Findings(Lines(error.to_string())),
            OpenError::Call(error) => Self::EngineFailed {
                because: "it was named with --engine, or `context.on_failure` says so",
                reason: Lines(error.to_string()),
            },
            error => Self::NoEngine(error),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::EngineFailed { .. } | Self::Lost { .. } => ENGINE_FAILED,
            // A place that is wrong is a wrong argument; a disk that is full, or fails, is none.
            Self::Write { source, .. } | Self::Stdout(source) if !is_of_the_place(source) => {
                ENGINE_FAILED
            }
            Self::Sessions(RecordError::InUse { .. } | RecordError::TooNew { .. }) => BAD_INPUT,
            // As where an engine's store cannot be used.
            Self::Sessions(_) => ENGINE_FAILED,
            Self::Build { .. } => crate::NEGATIVE,
            Self::Stopped => INTERRUPTED,
            _ => BAD_INPUT,
        }
    }

    /// Shows it on stderr: with rules and colours where they are wanted, else as plain lines that `grep`
    /// finds whole.
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
}

/// An error without the secrets and control characters that it quotes, for a renderer that puts colours in and breaks
/// long words: of half a secret nobody can tell that it is one.
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

/// "Did you mean …?", where a word is as near to one of `names` as clap asks of its own.
pub(crate) fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    names
        .into_iter()
        .map(|name| (strsim::osa_distance(word, name), name))
        .filter(|(slips, _)| *slips <= (word.chars().count() / 3).max(1))
        .min_by_key(|(slips, _)| *slips)
        .map_or_else(String::new, |(_, name)| format!("did you mean `{name}`? "))
}

/// Whether something cannot be written because of where it is to go.
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

/// What there is to do where something cannot be written.
fn way_to_write(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room on the disk, or write elsewhere; "
        }
        _ => "",
    }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

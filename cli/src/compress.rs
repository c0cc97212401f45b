//! `contexture compress`: reads a conversation, compacts it and writes it together with a report.
//!
//! [`run`] is the place to start. It reads the input, chooses the engine and the output format, and
//! passes each conversation to a [`Job`]. A job opens a session over the conversation, makes one
//! turn, and renders the result. The same code serves a single file, a file with many
//! conversations, and a session that is kept under an id.
//!
//! Without `--session`, and with `--dry-run`, the engine works in a temporary home, so that nothing
//! is left in its store. The output is written only after everything else has succeeded, and as a
//! whole. Formats are read and written by `contexture::formats`, and the texts for people are in
//! `summary`.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, TypedValueParser};

use crate::choice::EngineChoice;
use crate::dry_run::DryRun;
use crate::error::{CliError, ENGINE_FAILED};
use crate::input::Input;
use crate::terminal::{self, Progress};
use crate::{Global, NEGATIVE, OK, agent_logs, input, output, start, summary, window};
use contexture::config::OnFailure;
use contexture::engines::{Engines, OpenError};
use contexture::formats::{Conversation, Format, FormatError};
use contexture::prompt_cache::{self, CacheProvider, CacheStatus, DisabledReason, Shape};
use contexture::session::{
    AgentWindow, Compact, CompactionReport, OutcomeKind, Record, Session, SessionError,
    SessionOptions, Turn, TurnOptions, Unrelated, has_record,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture compress chat.json > smaller.json
  contexture compress chat.json -o chat.json --report report.json
  contexture compress session.jsonl --context-length 100000 --dry-run
  contexture compress ~/.claude/projects/p/s.jsonl --force --to claude-code -o resumed.jsonl
  cat body.json | contexture compress - --model claude-sonnet-4-5 --cache-markers

Exit codes: 0 compacted, nothing to do, or cannot be made to fit (the report says which), 1 nothing changed
(with --check), 2 wrong usage, input or configuration, 3 the engine failed and no other may replace it or
that one failed too, or the result cannot be written, for example because the disk is full.")]
pub(crate) struct CompressArgs {
    /// A conversation: a request body, a list of messages, JSON lines or a session log; `-` is
    /// stdin [default: choose among the recent sessions of this machine, and write the result
    /// beside the chosen log]
    input: Option<PathBuf>,
    /// The engine that runs, instead of the configured one
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    engine: Option<String>,
    /// Let the engine named with --engine take over the session from the engine that has it
    #[arg(long, requires_all = ["engine", "session"], help_heading = "What to do")]
    rebind: bool,
    /// Keep the session under this id, or continue it: known messages are not stored again, and the
    /// current compaction stays in force
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "What to do")]
    session: Option<String>,
    /// The model's whole window, in tokens: 128000, 64k, 1M
    #[arg(long, value_name = "N", value_parser = window::length, help_heading = "What to do")]
    context_length: Option<u64>,
    /// The agent's model. It determines the window and how tokens are counted (and, for `bench sessions`, the prices)
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    model: Option<String>,
    /// A topic to keep in more detail
    #[arg(long, value_name = "TOPIC", help_heading = "What to do")]
    focus: Option<String>,
    /// Compact even if the engine would still wait
    #[arg(long, help_heading = "What to do")]
    force: bool,
    /// The format of the input [default: detected]
    #[arg(long, value_parser = input::format_parser(), help_heading = "Input and output")]
    format: Option<Format>,
    /// Refuse a log with unreadable lines instead of skipping them
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
    /// The format of the output: openai, anthropic, responses, gemini, claude-code, or the input's own.
    /// What the provider would refuse is fixed or left out, and the command says so [default: the
    /// input's own; for a session log openai, or responses if OpenAI compacted it]
    #[arg(long, value_name = "FORMAT", value_parser = input::format_parser(), hide_possible_values = true, help_heading = "Input and output")]
    to: Option<Format>,
    /// If the file has several conversations, use the N-th (from 1)
    #[arg(long, value_name = "N", help_heading = "Input and output")]
    select: Option<usize>,
    /// Write the conversation to FILE atomically. FILE may be the input. `-` is stdout, which is
    /// the default unless it is a terminal
    #[arg(short, long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(output::destination), help_heading = "Input and output")]
    output: Option<PathBuf>,
    /// Write the report to FILE as JSON, `-` is stdout; it holds no text of a message
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(output::destination), help_heading = "Input and output")]
    report: Option<PathBuf>,
    /// Add the engine's per-message state to the report. It may contain message text and secrets
    #[arg(long, requires = "report", help_heading = "Input and output")]
    report_text: bool,
    /// Put prompt cache markers (Anthropic's `cache_control`) into the output
    #[arg(long, help_heading = "Input and output")]
    cache_markers: bool,
    /// Print only the report, and store nothing
    #[arg(long, conflicts_with = "output", help_heading = "Input and output")]
    dry_run: bool,
    /// Exit with 1 if nothing changed
    #[arg(long, help_heading = "Input and output")]
    check: bool,
}

/// Printed instead of the conversation if stdout is a terminal. A whole conversation would push the
/// report off the screen.
const NOT_SHOWN: &str = "\
note: the conversation is not written to the terminal: add `-o FILE` or `> FILE` to save it, or `-o -` to print it here
";

/// Runs the command and returns its exit code: 1 if `--check` is given and nothing was compacted, 3
/// if the engine failed, otherwise 0.
///
/// # Errors
/// Fails if the arguments contradict each other, the input cannot be read, or the output cannot be
/// written.
pub(crate) fn run(args: &CompressArgs, global: &Global) -> Result<u8, CliError> {
    let output = args.output.as_deref().unwrap_or(Path::new("-"));
    if args.report.as_deref() == Some(output) && !args.dry_run {
        return Err(CliError::usage(
            "--output and --report name the same file",
            "name a different file for each; without --output, the conversation goes to stdout",
        ));
    }
    let mut loaded = start::load_config(global)?;
    let path = match &args.input {
        Some(path) => path.clone(),
        None => match agent_logs::choose()? {
            Some(path) => path,
            None => return Ok(OK),
        },
    };
    if args.engine.is_some() {
        // A user who names an engine wants that one, so no other engine may stand in for it.
        loaded.config.context.on_failure = OnFailure::Fail;
    }
    let engines = start::open_engines(loaded, global.offline, args.model.as_deref())?;
    let mut read = input::read(&path, args.format, args.strict)?;
    let marked = engines.config().prompt_caching.enabled == Some(true);
    let target = Target::choose(args, &read, marked)?;
    input::select(&mut read, args.select)?;
    let store = open_store(args, &engines, &read)?;
    let choice = engine_choice(args, &engines)?;
    let engine = choice.engine(engines.loaded())?;
    // Without a session nothing may be left behind. Engines that store what they see would
    // otherwise keep the conversation.
    let dry_run = match args.dry_run || args.session.is_none() {
        true => Some(DryRun::of(&engines, args.session.as_deref())?),
        false => None,
    };
    let (engines, store) = match &dry_run {
        Some(dry_run) => (dry_run.engines(), dry_run.store()),
        None => (&engines, store),
    };
    let mut job = Job {
        args,
        choice,
        engine,
        engines,
        store,
        input: &read.name,
        target,
        count: read.conversations.len(),
        colors: global.color.on(std::io::stderr().is_terminal()),
        progress: Progress::new(read.conversations.len(), "compacting"),
        reports: Vec::new(),
        said: HashSet::new(),
        session: None,
    };
    let several = job.count > 1;
    let documents = job.compact_all(read.conversations);
    drop(job.progress);
    // The report is written even if the command fails afterwards, because it says what went wrong.
    write_report(args, &job.reports, several)?;
    let documents = documents?;
    if !args.dry_run {
        let text = match several {
            true => list(&documents),
            false => documents.concat(),
        };
        write_conversation(args, &path, target.format, &text)?;
    }
    // The result is written before the engine ends, because an engine may hang at its end.
    if let Some(Err(error)) = job.session.map(Session::end) {
        terminal::warn(&error.to_string());
    }
    Ok(exit_code(args, &job.reports))
}

/// Opens the record in which the session is kept. None if the command keeps no session.
///
/// # Errors
/// Fails if a session is named and the input holds several conversations, or if the record cannot
/// be opened.
fn open_store(
    args: &CompressArgs,
    engines: &Engines,
    read: &Input,
) -> Result<Option<Arc<Record>>, CliError> {
    if args.session.is_none() {
        return Ok(None);
    }
    read.require_one_for("a session")?;
    match args.dry_run {
        true => Ok(None),
        false => start::open_store(engines).map(Some),
    }
}

/// Collects what decides which engine takes the conversation: the session's own engine and the
/// arguments.
fn engine_choice<'a>(
    args: &'a CompressArgs,
    engines: &Engines,
) -> Result<EngineChoice<'a>, CliError> {
    let own = match &args.session {
        Some(id) if has_record(engines.loaded()) => {
            let store = start::open_store_to_read(engines)?;
            start::engine_of(&store, id)?
        }
        _ => None,
    };
    Ok(EngineChoice {
        session: args.session.as_deref(),
        own,
        named: args.engine.as_deref(),
        rebind: args.rebind,
    })
}

/// Writes the reports to the file that `--report` names, or to stdout: a list if the input holds several
/// conversations.
fn write_report(
    args: &CompressArgs,
    reports: &[CompactionReport],
    several: bool,
) -> Result<(), CliError> {
    let (Some(file), Some(first)) = (&args.report, reports.first()) else {
        return Ok(());
    };
    let json = match several {
        true => output::pretty(&reports),
        false => output::pretty(first),
    };
    match file.as_os_str() == "-" {
        true => output::print(&json),
        false => output::write_file(file, &json),
    }
}

/// Writes the resulting document to the file that `--output` names, to stdout if it is not a
/// terminal, or beside the log that the user chose.
fn write_conversation(
    args: &CompressArgs,
    path: &Path,
    format: Format,
    text: &str,
) -> Result<(), CliError> {
    match &args.output {
        Some(file) if file.as_os_str() != "-" => output::write_file(file, text)?,
        None if output::is_terminal() && args.input.is_some() => terminal::say(NOT_SHOWN),
        None if output::is_terminal() => {
            let ending = match format {
                Format::ClaudeCode => "jsonl",
                _ => "json",
            };
            let written = output::write_beside(path, ending, text)?;
            terminal::say(&format!("written to {}\n", written.display()));
        }
        _ => output::print_bytes(text.as_bytes())?,
    }
    Ok(())
}

fn exit_code(args: &CompressArgs, reports: &[CompactionReport]) -> u8 {
    let is = |outcome| reports.iter().any(|report| report.outcome == outcome);
    match is(OutcomeKind::Failed) {
        true => ENGINE_FAILED,
        false if args.check && !is(OutcomeKind::Compacted) => NEGATIVE,
        false => OK,
    }
}

/// Joins several documents into one JSON list, for an input with several conversations. The output
/// of a single conversation is not a list.
fn list(documents: &[String]) -> String {
    let trimmed: Vec<_> = documents.iter().map(|document| document.trim()).collect();
    format!("[\n{}\n]\n", trimmed.join(",\n"))
}

/// What the output is: its format, and how much of the input document it keeps.
#[derive(Clone, Copy)]
struct Target {
    format: Format,
    /// Whether the conversation is the whole document, so that what stands around its messages is
    /// kept as well.
    alone: bool,
    /// Whether `--to` asked for the format. The output then has to be valid for the provider of
    /// that format.
    asked_for: bool,
    /// The form of the prompt cache markers. None if the output has none.
    markers: Option<Shape>,
}

impl Target {
    /// Decides on the output from the arguments and the input. `marked` says whether the
    /// configuration asks for markers.
    ///
    /// # Errors
    /// Fails if the format cannot be written, if a session log would have to hold several
    /// conversations, or if the format has no markers and they are asked for.
    fn choose(args: &CompressArgs, input: &Input, marked: bool) -> Result<Self, CliError> {
        let own = input
            .conversations
            .first()
            .map_or(Format::OpenAiChat, Conversation::format);
        let is_log = matches!(own, Format::ClaudeCode | Format::Codex);
        let format = match args.to {
            Some(format) => format,
            // A conversation that OpenAI compacted has encrypted items, which only the Responses
            // API can read.
            None if is_log
                && input
                    .conversations
                    .iter()
                    .any(Conversation::is_compacted_by_provider) =>
            {
                Format::OpenAiResponses
            }
            None if is_log => Format::OpenAiChat,
            None => own,
        };
        let has_writer = matches!(
            format,
            Format::OpenAiChat
                | Format::Anthropic
                | Format::OpenAiResponses
                | Format::Gemini
                | Format::ClaudeCode
        );
        if !has_writer && (format != own || is_log) {
            return Err(CliError::Render {
                input: input.name.clone(),
                source: FormatError::NoWriter(format),
            });
        }
        if format == Format::ClaudeCode && args.select.is_none() {
            input.require_one_for("a session log")?;
        }
        let shape = Shape::of(format);
        if args.cache_markers && shape.is_none() {
            return Err(CliError::usage(
                format!("a document of the format {format} cannot carry prompt cache markers"),
                "add --to anthropic or --to openai",
            ));
        }
        let markers = shape.filter(|_| args.cache_markers || marked);
        Ok(Self {
            format,
            alone: input.conversations.len() == 1,
            asked_for: args.to.is_some(),
            markers,
        })
    }
}

/// One run over the conversations of a document, with what they share.
struct Job<'a> {
    args: &'a CompressArgs,
    choice: EngineChoice<'a>,
    /// The engine to use. None if the configuration chooses.
    engine: Option<String>,
    engines: &'a Arc<Engines>,
    /// The record in which the session is kept. None if no session is kept.
    store: Option<Arc<Record>>,
    input: &'a str,
    target: Target,
    count: usize,
    colors: bool,
    progress: Progress,
    reports: Vec<CompactionReport>,
    /// The notes that were printed already. Without this, a file of 50 conversations would print
    /// the same warning 50 times.
    said: HashSet<String>,
    /// The last session. It stays open until its result is written.
    session: Option<Session>,
}

impl Job<'_> {
    /// Compacts all conversations, up to the first that fails, and prints the sum of the reports if
    /// there are several. Returns the resulting documents.
    fn compact_all(&mut self, conversations: Vec<Conversation>) -> Result<Vec<String>, CliError> {
        let documents = conversations
            .into_iter()
            .map(|conversation| self.compact(conversation))
            .collect();
        if self.count > 1 {
            self.progress
                .say_styled(&summary::total(&self.reports, self.colors));
        }
        if !self.args.report_text {
            // An engine may keep the original of a message in its state, which the report must not
            // contain unless it was asked for.
            self.reports
                .iter_mut()
                .for_each(|report| report.states.clear());
        }
        documents
    }

    /// Compacts a conversation and returns the document that results, which is empty in a dry run.
    /// The report is printed and added to the list.
    fn compact(&mut self, conversation: Conversation) -> Result<String, CliError> {
        // The previous session ends only now, after its result was rendered.
        if let Some(Err(error)) = self.session.take().map(Session::end) {
            self.warn(&error.to_string());
        }
        let chosen = window::choose(
            self.args.context_length,
            self.args.model.as_deref(),
            conversation.model(),
            self.engines.config(),
        );
        for warning in conversation.warnings() {
            self.warn(warning);
        }
        for note in chosen.notes {
            self.note(&note);
        }
        let marking = self.marking(&conversation, &chosen.agent.model);
        let conversation = Arc::new(conversation);
        let agent = chosen.agent.clone();
        let options = SessionOptions::default()
            .engine(self.engine.clone())
            .unrelated(Unrelated::Refuse)
            .cache_markers(false);
        let id = self.args.session.as_deref().unwrap_or("compress");
        let opened = Session::open(self.engines, self.store.as_ref(), id, agent, options);
        let mut session = opened.map_err(|error| self.failed(error))?;
        let took = session.engine().name();
        if let Some(note) = self.choice.note(took, self.engines.loaded()) {
            self.note(&note);
        }
        let result = self.compact_in(&mut session, &conversation);
        for warning in session.take_warnings() {
            self.warn(&warning);
        }
        let (report, changed) = result?;
        let origin = session.engine().origin().to_owned();
        self.tell(&report, &origin, &chosen.agent);
        self.progress.step();
        let document = match self.args.dry_run {
            true => String::new(),
            false => self.render(&session, &conversation, changed)?,
        };
        let document = match marking.filter(|_| !self.args.dry_run) {
            Some((shape, provider)) => self.mark(&document, shape, provider)?,
            None => document,
        };
        self.reports.push(report);
        self.session = Some(session);
        Ok(document)
    }

    /// Makes a turn with the conversation, and compacts it if that is due or `--force` is given.
    /// Returns the report, and whether anything in the conversation changed.
    fn compact_in(
        &mut self,
        session: &mut Session,
        conversation: &Arc<Conversation>,
    ) -> Result<(CompactionReport, bool), CliError> {
        let began = Instant::now();
        let options = TurnOptions::default()
            .compact(match self.args.force {
                true => Compact::Force,
                false => Compact::Auto,
            })
            .focus(self.args.focus.clone())
            .wait_for_model(Some(true));
        let turn = session.turn_over(conversation, &options, &mut |_| {});
        let Turn {
            rewrite,
            compaction,
            decision,
            changed,
            ..
        } = turn.map_err(|error| self.failed(error))?;
        // If no compaction was due, the engine may still have rewritten messages, and that report
        // says what was done.
        let did_nothing = |report: &CompactionReport| report.outcome == OutcomeKind::NothingToDo;
        let report = match compaction.as_ref().is_none_or(did_nothing) {
            true => rewrite.or(compaction),
            false => compaction,
        };
        let report = report.unwrap_or_else(|| {
            let elapsed_ms = began.elapsed().as_secs_f64() * 1000.0;
            nothing_to_do(session, decision.reason().to_owned(), elapsed_ms)
        });
        Ok((report, changed))
    }

    /// Converts the error of a session. The report of a failure is kept, so that `--report` can
    /// write it.
    fn failed(&mut self, error: SessionError) -> CliError {
        let fails = self.engines.config().context.on_failure == OnFailure::Fail;
        let because = match self.args.engine {
            Some(_) => "it was named with --engine",
            None => "`context.on_failure` is `fail`",
        };
        match error {
            SessionError::Open(OpenError::Call(call)) if fails => {
                CliError::engine_failed(&call, because)
            }
            SessionError::Open(error) => CliError::of_open(error),
            error @ SessionError::Unrelated { .. } => CliError::usage(
                error.to_string(),
                "name another session with --session, or leave it out",
            ),
            SessionError::EngineFailed { reason, report } => {
                self.reports.push(*report);
                CliError::engine_failed(&reason, because)
            }
            error => CliError::of_session(error, because),
        }
    }

    /// Returns the conversation as a document in the output format. If nothing changed and the
    /// format stays, this is the input, byte for byte.
    fn render(
        &self,
        session: &Session,
        conversation: &Arc<Conversation>,
        changed: bool,
    ) -> Result<String, CliError> {
        let own = self.target.format == conversation.format();
        // The provider's rules apply to requests. A session log follows the format of its agent.
        let is_mended = self.target.asked_for && self.target.format != Format::ClaudeCode;
        let stays = own && self.target.alone && !is_mended;
        if stays && !changed {
            return Ok(conversation.document().to_string());
        }
        let window = session.render_plan(conversation);
        // A session log is appended to. Any other document keeps what stands around its
        // conversation.
        let in_place = stays && self.target.format != Format::ClaudeCode;
        let rendered = if in_place {
            conversation.render(&window)
        } else {
            let converted = conversation.convert(&window, self.target.format);
            converted.map(|converted| {
                for note in &converted.notes {
                    let note = format!("--to {}: {note}", self.target.format);
                    terminal::warn(&note);
                }
                converted.document
            })
        };
        rendered.map_err(|source| CliError::Render {
            input: self.input.to_owned(),
            source,
        })
    }

    /// Returns the form of the prompt cache markers and the provider that they are for. None if the
    /// output gets none. If the model is a Claude model, the user is told which it is.
    fn marking(
        &mut self,
        conversation: &Conversation,
        model: &str,
    ) -> Option<(Shape, CacheProvider)> {
        let config = self.engines.config();
        let native = matches!(
            conversation.format(),
            Format::Anthropic | Format::ClaudeCode
        );
        let provider = config
            .model
            .provider
            .as_deref()
            .or(native.then_some("anthropic"));
        let ttl = config.prompt_caching.cache_ttl;
        let status = prompt_cache::decide(
            model,
            provider,
            config.model.base_url.as_deref(),
            config.prompt_caching.enabled != Some(false),
            ttl,
        );
        let marking = self
            .target
            .markers
            .and_then(|shape| match (&status, shape) {
                (CacheStatus::Enabled { provider, .. }, _) => Some((shape, *provider)),
                // If the provider is unknown, the markers are for the provider that the format
                // belongs to.
                (CacheStatus::Disabled(reason), _) if !is_unknown(reason) => None,
                (_, Shape::Anthropic) => Some((shape, CacheProvider::Anthropic)),
                (_, Shape::OpenAiChat) => Some((shape, CacheProvider::OpenRouter)),
            });
        match (status, marking) {
            (_, Some((_, provider))) => {
                self.say_once(status_line(&CacheStatus::Enabled { provider, ttl }));
            }
            (CacheStatus::Enabled { .. }, None) => {
                self.say_once(status_line(&CacheStatus::Disabled(
                    DisabledReason::NotAskedFor,
                )));
            }
            (CacheStatus::Disabled(reason @ DisabledReason::NotClaude(_)), None) => {
                if self.args.cache_markers {
                    self.warn(&format!("no prompt cache markers were added: {reason}"));
                }
            }
            (disabled, None) => self.say_once(status_line(&disabled)),
        }
        marking
    }

    /// Puts the prompt cache markers into a document. Fails if the document has a form that cannot
    /// carry them.
    fn mark(
        &self,
        document: &str,
        shape: Shape,
        provider: CacheProvider,
    ) -> Result<String, CliError> {
        let ttl = self.engines.config().prompt_caching.cache_ttl.at_first();
        prompt_cache::mark(document, shape, provider, ttl).map_err(|source| CliError::Mark {
            input: self.input.to_owned(),
            source,
        })
    }

    /// Prints the report for a person: in full for a single conversation, and as one line for each
    /// of several.
    fn tell(&mut self, report: &CompactionReport, origin: &str, agent: &AgentWindow) {
        let text = match self.count {
            1 => summary::summary(report, origin, agent, self.colors),
            count => summary::line(report, self.reports.len() + 1, count, self.colors),
        };
        self.progress.say_styled(&text);
    }

    fn warn(&mut self, what: &str) {
        self.say_once(terminal::warning(what));
    }

    fn note(&mut self, what: &str) {
        self.say_once(format!("note: {what}"));
    }

    fn say_once(&mut self, what: String) {
        if !self.said.contains(&what) {
            self.progress.say(&format!("{what}\n"));
            self.said.insert(what);
        }
    }
}

/// Returns the status of the prompt cache in a line. Its symbol is left out if stderr is not a
/// terminal, so that logs stay plain.
fn status_line(status: &CacheStatus) -> String {
    let line = status.to_string();
    match std::io::stderr().is_terminal() {
        true => line,
        false => line.trim_start_matches("💾 ").to_owned(),
    }
}

/// Returns whether markers are off only because the model or the provider is unknown. Somebody who
/// asks for markers then gets them.
fn is_unknown(reason: &DisabledReason) -> bool {
    match reason {
        DisabledReason::SwitchedOff | DisabledReason::NotAskedFor => false,
        DisabledReason::NotClaude(name) | DisabledReason::Provider(name) => name.is_empty(),
    }
}

/// Returns the report for a turn in which neither a compaction nor a rewrite took place. All
/// figures are those of the unchanged conversation.
fn nothing_to_do(session: &Session, reason: String, elapsed_ms: f64) -> CompactionReport {
    let state = session.state();
    let tokens = state.best_prompt_tokens();
    CompactionReport {
        engine: session.engine().name().to_owned(),
        source: session.engine().source(),
        outcome: OutcomeKind::NothingToDo,
        reason,
        messages_before: state.messages,
        messages_after: state.messages,
        tokens_before: tokens,
        tokens_after: tokens,
        kept: state.messages,
        model_calls: session.model_calls(),
        elapsed_ms,
        ..CompactionReport::default()
    }
}

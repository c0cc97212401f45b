//! `contexture compress`: a conversation in, a smaller one out, and a report.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::builder::{
    NonEmptyStringValueParser, PathBufValueParser, PossibleValuesParser, TypedValueParser,
};

use crate::choice::Wish;
use crate::error::{CliError, ENGINE_FAILED, Lines};
use crate::figures::counted;
use crate::input::Input;
use crate::rehearsal::Rehearsal;
use crate::terminal::{self, Progress};
use crate::{Global, NEGATIVE, OK, agent_logs, input, output, setup, summary, window};
use contexture::config::OnFailure;
use contexture::engines::{Engines, OpenError};
use contexture::formats::{Conversation, Format, FormatError};
use contexture::prompt_cache::{self, CacheProvider, CacheStatus, DisabledReason, Shape};
use contexture::session::{
    AgentWindow, Compact, CompactionReport, OutcomeKind, Record, Session, SessionError,
    SessionOptions, Turn, TurnOptions, Unrelated,
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
(with --check), 2 wrong usage, input or configuration, 3 the engine failed, and no other may stand in or
it failed, too; or the result cannot be written, for want of room on the disk, say.")]
pub(crate) struct CompressArgs {
    /// A conversation: a request body, a list of messages, JSON lines or a session log; `-` is stdin
    /// [default: choose among the recent sessions of this machine, and write the result beside the chosen log]
    input: Option<PathBuf>,
    /// The engine that runs, instead of the configured one
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    engine: Option<String>,
    /// Have the engine named with --engine take the session over from the one that has it
    #[arg(long, requires_all = ["engine", "session"], help_heading = "What to do")]
    rebind: bool,
    /// Keep the session under this id, or go on with it: what is known is not stored again, and the
    /// compaction in force stays
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "What to do")]
    session: Option<String>,
    /// The model's whole window, in tokens: 128000, 64k, 1M
    #[arg(long, value_name = "N", value_parser = window::length, help_heading = "What to do")]
    context_length: Option<u64>,
    /// The agent's model, which decides on the window and how tokens are counted
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    model: Option<String>,
    /// A topic to keep in more detail
    #[arg(long, value_name = "TOPIC", help_heading = "What to do")]
    focus: Option<String>,
    /// Compact even if the engine would not yet
    #[arg(long, help_heading = "What to do")]
    force: bool,
    /// The format of the input [default: detected]
    #[arg(long, value_parser = format_parser(), help_heading = "Input and output")]
    format: Option<Format>,
    /// Refuse a log with a line that cannot be read, instead of leaving it out
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
    /// The format of the output: openai, anthropic, responses, claude-code, or the input's own. What the
    /// provider would refuse is fixed or left out, and the command says so
    /// [default: the input's own; for a session log openai, or responses if OpenAI compacted it]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), hide_possible_values = true, help_heading = "Input and output")]
    to: Option<Format>,
    /// Of a file with several conversations, take the N-th (from 1)
    #[arg(long, value_name = "N", help_heading = "Input and output")]
    select: Option<usize>,
    /// Write the conversation to FILE, whole or not at all; it may be the input. `-` is stdout, to which it goes
    /// without -o unless that is a terminal
    #[arg(short, long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(output::destination), help_heading = "Input and output")]
    output: Option<PathBuf>,
    /// Write the report to FILE as JSON; it holds no text of a message
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(output::destination), help_heading = "Input and output")]
    report: Option<PathBuf>,
    /// Write into the report what the engine keeps with messages, too, which may be their text, secrets included
    #[arg(long, requires = "report", help_heading = "Input and output")]
    report_text: bool,
    /// Put prompt cache markers (Anthropic's `cache_control`) into the output
    #[arg(long, help_heading = "Input and output")]
    cache_markers: bool,
    /// Print the report alone, and leave what is kept as it is
    #[arg(long, conflicts_with = "output", help_heading = "Input and output")]
    dry_run: bool,
    /// Exit with 1 when nothing changed
    #[arg(long, help_heading = "Input and output")]
    check: bool,
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

/// A whole conversation would push the report off the screen.
const NOT_SHOWN: &str = "\
note: the conversation is not written to the terminal: add `-o FILE` or `> FILE` to have it, or `-o -` to see it here
";

pub(crate) fn run(args: &CompressArgs, global: &Global) -> Result<u8, CliError> {
    if args.report.is_some() && args.report == args.output {
        return Err(CliError::usage(
            "--output and --report name the same file",
            "give each a file of its own",
        ));
    }
    let mut loaded = setup::load_config(global)?;
    let path = match &args.input {
        Some(path) => path.clone(),
        None => match agent_logs::choose()? {
            Some(path) => path,
            None => return Ok(OK),
        },
    };
    if args.engine.is_some() {
        // What is named on the command line is what runs.
        loaded.config.context.on_failure = OnFailure::Fail;
    }
    let engines = setup::open_engines(loaded, global.offline, args.model.as_deref())?;
    let mut read = input::read(&path, args.format, args.strict)?;
    let marked = engines.config().prompt_caching.enabled == Some(true);
    let target = Target::choose(args, &read, marked)?;
    input::select(&mut read, args.select)?;
    let store = match &args.session {
        None => None,
        Some(_) if read.conversations.len() > 1 => {
            return Err(CliError::usage(
                format!(
                    "{} holds {}, and a session is one",
                    read.name,
                    counted(read.conversations.len() as u64, "conversation")
                ),
                "choose one with --select",
            ));
        }
        Some(_) if args.dry_run => None,
        Some(_) => Some(setup::open_store(&engines)?),
    };
    let wish = Wish {
        session: args.session.as_deref(),
        own: match &args.session {
            Some(id) if Record::is_in(&engines.loaded().home) => {
                let store = setup::open_store_to_read(&engines)?;
                setup::engine_of(&store, id)?
            }
            _ => None,
        },
        named: args.engine.as_deref(),
        rebind: args.rebind,
    };
    let engine = wish.engine(engines.loaded())?;
    // Without a session nothing is to be left behind, by engines that keep what they see least of all.
    let rehearsal = match args.dry_run || args.session.is_none() {
        true => Some(Rehearsal::of(
            &engines,
            args.session.as_deref(),
            engine.as_deref(),
        )?),
        false => None,
    };
    let (engines, store) = match &rehearsal {
        Some(rehearsal) => (rehearsal.engines(), rehearsal.store()),
        None => (&engines, store),
    };
    let several = read.conversations.len() > 1;

    let mut job = Job {
        args,
        wish,
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
    let documents: Result<Vec<_>, _> = read
        .conversations
        .into_iter()
        .map(|conversation| job.compact(conversation))
        .collect();
    let (mut reports, session) = job.finish();
    if !args.report_text {
        // An engine may keep a message's original with it.
        reports.iter_mut().for_each(|report| report.states.clear());
    }
    // The report of a failure is worth having, too.
    if let (Some(file), Some(first)) = (&args.report, reports.first()) {
        let json = match several {
            true => output::pretty(&reports),
            false => output::pretty(first),
        };
        output::write_file(file, &json)?;
    }
    let documents = documents?;
    if !args.dry_run {
        let text = match several {
            true => list(&documents),
            false => documents.concat(),
        };
        match &args.output {
            Some(file) if file.as_os_str() != "-" => output::write_file(file, &text)?,
            None if output::is_terminal() && args.input.is_some() => terminal::say(NOT_SHOWN),
            None if output::is_terminal() => {
                let ending = match target.format {
                    Format::ClaudeCode => "jsonl",
                    _ => "json",
                };
                let written = output::write_beside(&path, ending, &text)?;
                terminal::say(&format!("written to {}\n", written.display()));
            }
            _ => output::print_bytes(text.as_bytes())?,
        }
    }
    // The result is written before anything of the engine ends, which may hang.
    if let Some(Err(error)) = session.map(Session::end) {
        terminal::say(&format!("{}\n", terminal::warning(&error.to_string())));
    }
    let is = |outcome| reports.iter().any(|report| report.outcome == outcome);
    Ok(match is(OutcomeKind::Failed) {
        true => ENGINE_FAILED,
        false if args.check && !is(OutcomeKind::Compacted) => NEGATIVE,
        false => OK,
    })
}

/// Several documents as one JSON list.
fn list(documents: &[String]) -> String {
    let trimmed: Vec<_> = documents.iter().map(|document| document.trim()).collect();
    format!("[\n{}\n]\n", trimmed.join(",\n"))
}

/// What the output is to be.
#[derive(Clone, Copy)]
struct Target {
    format: Format,
    /// Whether the conversation is all of its document, so that what is around it is kept, too.
    alone: bool,
    /// Whether `--to` asked for the format, so that the output has to be valid for its provider.
    asked_for: bool,
    /// The form in which markers are put in, where they are.
    markers: Option<Shape>,
}

impl Target {
    fn choose(args: &CompressArgs, input: &Input, marked: bool) -> Result<Self, CliError> {
        let own = input
            .conversations
            .first()
            .map_or(Format::OpenAiChat, Conversation::format);
        let is_log = matches!(own, Format::ClaudeCode | Format::Codex);
        let format = match args.to {
            Some(format) => format,
            // No other program could read it.
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
            Format::OpenAiChat | Format::Anthropic | Format::OpenAiResponses | Format::ClaudeCode
        );
        if !has_writer && (format != own || is_log) {
            return Err(CliError::Render {
                input: input.name.clone(),
                source: FormatError::NoWriter(format),
            });
        }
        let count = input.conversations.len();
        if format == Format::ClaudeCode && count > 1 && args.select.is_none() {
            return Err(CliError::usage(
                format!(
                    "{} holds {}, and a session log holds one",
                    input.name,
                    counted(count as u64, "conversation")
                ),
                "choose one with --select",
            ));
        }
        let shape = match format {
            Format::OpenAiChat => Some(Shape::OpenAiChat),
            Format::Anthropic => Some(Shape::Anthropic),
            _ => None,
        };
        if args.cache_markers && shape.is_none() {
            return Err(CliError::usage(
                format!("a document of the format {format} cannot carry prompt cache markers"),
                "add --to anthropic or --to openai",
            ));
        }
        let markers = shape.filter(|_| args.cache_markers || marked);
        Ok(Self {
            format,
            alone: count == 1,
            asked_for: args.to.is_some(),
            markers,
        })
    }
}

/// One run over the conversations of a document.
struct Job<'a> {
    args: &'a CompressArgs,
    wish: Wish<'a>,
    /// The engine; none where the configuration chooses.
    engine: Option<String>,
    engines: &'a Arc<Engines>,
    /// Where the session is kept, where it is to be.
    store: Option<Arc<Record>>,
    input: &'a str,
    target: Target,
    count: usize,
    colors: bool,
    progress: Progress,
    reports: Vec<CompactionReport>,
    /// What was said already: 50 conversations without a model are worth one warning.
    said: HashSet<String>,
    /// The last one, until its result is written.
    session: Option<Session>,
}

impl Job<'_> {
    /// Compacts a conversation and gives back the document that it becomes.
    fn compact(&mut self, conversation: Conversation) -> Result<String, CliError> {
        if let Some(Err(error)) = self.session.take().map(Session::end) {
            self.warn(&error.to_string());
        }
        let chosen = window::choose(
            self.args.context_length,
            self.args.model.as_deref(),
            conversation.model(),
            &self.engines.config().model,
        );
        for warning in conversation.warnings() {
            self.warn(warning);
        }
        for note in chosen.notes {
            self.say_once(format!("note: {note}"));
        }
        let marking = self.marking(&conversation, &chosen.agent.model);
        let conversation = Arc::new(conversation);
        let agent = chosen.agent.clone();
        let options = SessionOptions {
            engine: self.engine.clone(),
            unrelated: Unrelated::Refuse,
            cache_markers: false,
            ..SessionOptions::default()
        };
        let id = self.args.session.as_deref().unwrap_or("compress");
        let opened = Session::open(self.engines, self.store.as_ref(), id, agent, options);
        let mut session = opened.map_err(|error| self.failed(error))?;
        let took = session.engine().name();
        if let Some(note) = self.wish.note(took, self.engines.loaded()) {
            self.say_once(note);
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

    /// Has the conversation compacted where that is due; says whether anything of it changed.
    fn compact_in(
        &mut self,
        session: &mut Session,
        conversation: &Arc<Conversation>,
    ) -> Result<(CompactionReport, bool), CliError> {
        let began = Instant::now();
        let options = TurnOptions {
            compact: match self.args.force {
                true => Compact::Force,
                false => Compact::Auto,
            },
            focus: self.args.focus.clone(),
            wait_for_model: Some(true),
            ..TurnOptions::default()
        };
        let turn = session.turn_over(conversation, &options, &mut |_| {});
        let Turn {
            rewrite,
            compaction,
            decision,
            changed,
            ..
        } = turn.map_err(|error| self.failed(error))?;
        // Where no compaction was due, what the engine rewrote is what was done.
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

    fn failed(&mut self, error: SessionError) -> CliError {
        let fails = self.engines.config().context.on_failure == OnFailure::Fail;
        let named = self.args.engine.is_some();
        let reason = match error {
            SessionError::Open(OpenError::Call(call)) if fails => call.to_string(),
            SessionError::Open(error) => return CliError::of_open(error),
            error @ SessionError::Unrelated { .. } => {
                return CliError::usage(
                    error.to_string(),
                    "name another session with --session, or leave it out",
                );
            }
            SessionError::EngineFailed { reason, report } => {
                self.reports.push(*report);
                reason
            }
            other => other.to_string(),
        };
        CliError::EngineFailed {
            because: match named {
                true => "it was named with --engine",
                false => "`context.on_failure` is `fail`",
            },
            reason: Lines(reason),
        }
    }

    fn render(
        &self,
        session: &Session,
        conversation: &Arc<Conversation>,
        changed: bool,
    ) -> Result<String, CliError> {
        let own = self.target.format == conversation.format();
        // The provider's rules apply to requests. A log follows the agent's own format.
        let is_mended = self.target.asked_for && self.target.format != Format::ClaudeCode;
        let stays = own && self.target.alone && !is_mended;
        if stays && !changed {
            return Ok(conversation.document().to_string());
        }
        let window = session.render_plan(conversation);
        // A log is appended to; any other document keeps what stands around its conversation.
        let in_place = stays && self.target.format != Format::ClaudeCode;
        let rendered = if in_place {
            conversation.render(&window)
        } else {
            let converted = conversation.convert(&window, self.target.format);
            converted.map(|converted| {
                for note in &converted.notes {
                    let note = format!("--to {}: {note}", self.target.format);
                    terminal::say(&format!("{}\n", terminal::warning(&note)));
                }
                converted.document
            })
        };
        rendered.map_err(|source| CliError::Render {
            input: self.input.to_owned(),
            source,
        })
    }

    /// In which form the output is marked for the prompt cache and for whom, where it is. Says so of a
    /// Claude model's.
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
                // Markers without a provider are for the one that the format belongs to.
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
                    self.warn(&format!("no prompt cache markers are put in: {reason}"));
                }
            }
            (disabled, None) => self.say_once(status_line(&disabled)),
        }
        marking
    }

    fn mark(
        &self,
        document: &str,
        shape: Shape,
        provider: CacheProvider,
    ) -> Result<String, CliError> {
        let ttl = self.engines.config().prompt_caching.cache_ttl.at_first();
        prompt_cache::apply(document, shape, provider, ttl)
            .map(|marked| marked.document)
            .map_err(|source| CliError::Mark {
                input: self.input.to_owned(),
                source,
            })
    }

    /// Prints the report for a person: in full for one conversation, a line for each of several.
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

    fn say_once(&mut self, what: String) {
        if !self.said.contains(&what) {
            self.progress.say(&format!("{what}\n"));
            self.said.insert(what);
        }
    }

    /// Closes the report on several conversations with their sum. The last session is still open.
    fn finish(self) -> (Vec<CompactionReport>, Option<Session>) {
        if self.count > 1 {
            self.progress
                .say_styled(&summary::total(&self.reports, self.colors));
        }
        (self.reports, self.session)
    }
}

/// The status of the prompt cache. Its sign is for people at a terminal.
fn status_line(status: &CacheStatus) -> String {
    let line = status.to_string();
    match std::io::stderr().is_terminal() {
        true => line,
        false => line.trim_start_matches("💾 ").to_owned(),
    }
}

fn is_unknown(reason: &DisabledReason) -> bool {
    match reason {
        DisabledReason::SwitchedOff | DisabledReason::NotAskedFor => false,
        DisabledReason::NotClaude(name) | DisabledReason::Provider(name) => name.is_empty(),
    }
}

fn nothing_to_do(session: &Session, reason: String, elapsed_ms: f64) -> CompactionReport {
    let state = session.state();
    CompactionReport {
        engine: session.engine().name().to_owned(),
        source: session.engine().source(),
        outcome: OutcomeKind::NothingToDo,
        reason,
        messages_before: state.messages,
        messages_after: state.messages,
        tokens_before: state.prompt_tokens,
        tokens_after: state.prompt_tokens,
        kept: state.messages,
        replaced: 0,
        summarised: 0,
        inserted: 0,
        dropped: 0,
        degraded: false,
        model_calls: session.model_calls(),
        elapsed_ms,
        notes: Vec::new(),
        states: Default::default(),
    }
}

//! `contexture bench`: compares the engines on recorded sessions.
//!
//! [`sessions`] plays every log of a folder through each engine, once for each value of
//! `compression.timing`, and prints what they cost and what was still in the window after their
//! compactions. Playing is the task of `contexture::replay`, one conversation at a time. `logs` finds
//! and reads the logs, `score` sums up, and `table` prints.
//!
//! A log that cannot be read does not end the run: it is named on stderr and in the JSON. Ctrl-C ends
//! it early, with the sessions that every engine has played until then.

mod logs;
mod score;
mod table;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::error::CliError;
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::terminal::{self, Progress};
use crate::{Global, OK, engines, output, start, window};
use contexture::config::{Loaded, OnFailure, Timing};
use contexture::formats::Conversation;
use contexture::providers::{NoModel, Resolved, configured_client};
use contexture::replay::{
    Continuation, Mentions, Prices, Recording, Row, TempHome, play_observed, without_engine,
};
use contexture::session::{Session, SessionError, SessionOptions};

use logs::LogFile;
use score::Score;

/// The most skipped files that are named on stderr. The JSON has them all.
const SHOWN_SKIPPED: usize = 20;

/// The most characters of the reason that are shown. The JSON has all of it.
const SHOWN_WHY: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Play a folder of session logs through every engine: cost, compactions, and what was still in
    /// the window
    Sessions(SessionsArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture bench sessions ~/.claude/projects --limit 20
  contexture bench sessions logs/ --engines compressor,lcm --context-length 100k
  contexture bench sessions logs/ --timing economy --per-session --csv > sessions.csv

Every log is played as `contexture replay` plays it: the answers are the recorded ones, and no model is called, neither for answers nor for summaries. Engines work in a temporary directory, so their stores do not change. Files that are no logs are named and skipped, and so are sessions that an engine cannot play. A log that can be read in part is played in part, and named as incomplete.

of none: the cost of all prompts, divided by their cost without an engine, with the provider's prompt cache simulated in both.
needed: the identifiers and paths that the agent used after a compaction, had met before it, and was not shown again first; the share that was in the window after the compaction.
commands: the commands that were run before a compaction and run again after it; the share that was in the window.
rules: the rules that the user had stated before a compaction; the share that was in the window word for word.

Exit codes: 0 played, 2 wrong usage, input or configuration, 130 stopped by Ctrl-C with the rows so far.")]
pub(crate) struct SessionsArgs {
    /// A folder with logs, also in folders below it; or one log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The engines to play through, separated by commas [default: all that can be used]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "What to do"
    )]
    engines: Vec<String>,
    /// A value of compression.timing to test; can be repeated [default: all of them]
    #[arg(
        long = "timing",
        value_parser = timing_parser(),
        value_name = "TIMING",
        help_heading = "What to do"
    )]
    timings: Vec<Timing>,
    /// The model's whole window, in tokens: 128000, 64k, 1M
    #[arg(long, value_name = "N", value_parser = window::length, help_heading = "What to do")]
    context_length: Option<u64>,
    /// The agent's model, which decides on the window, the prices and how tokens are counted
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    model: Option<String>,
    /// Replay only the first N sessions: the largest files first, files of the same size by path
    #[arg(long, value_name = "N", help_heading = "What to do")]
    limit: Option<NonZeroUsize>,
    /// Print the rows of each session as well
    #[arg(long, help_heading = "Output")]
    per_session: bool,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print comma-separated values
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    csv: bool,
}

fn timing_parser() -> impl TypedValueParser<Value = Timing> {
    let find = |name: String| Timing::ALL.into_iter().find(|timing| timing.name() == name);
    PossibleValuesParser::new(Timing::ALL.map(Timing::name))
        .try_map(move |name| find(name).ok_or("not a timing"))
}

/// A way to play the sessions.
#[derive(Debug, Clone)]
struct Variant {
    engine: String,
    timing: Timing,
}

/// The rows of one session.
#[derive(Debug, Serialize)]
struct SessionScores {
    /// Path of the log.
    input: String,
    /// The position of the session in the log, from 1.
    number: usize,
    /// The number of messages, without the system prompt.
    messages: usize,
    /// The model for which the session was played.
    model: String,
    /// The window of that model, in tokens.
    context_length: u64,
    rows: Vec<Score>,
}

/// A file or session that was not played, or a file that was played in part.
#[derive(Debug, Serialize)]
struct NotPlayed {
    path: String,
    why: String,
}

impl NotPlayed {
    fn new(path: &Path, why: String) -> Self {
        Self {
            path: path.display().to_string(),
            why,
        }
    }
}

/// The result of the command. Serialised, it is the JSON output.
#[derive(Debug, Default, Serialize)]
struct Comparison {
    /// The rows summed over all sessions: the one without an engine, then one for each engine and
    /// timing.
    totals: Vec<Score>,
    /// The rows of each session, if they were asked for.
    sessions: Vec<SessionScores>,
    /// The smallest and the largest window, in tokens.
    windows: Option<(u64, u64)>,
    /// The files and sessions that were not played, each with the reason.
    skipped: Vec<NotPlayed>,
    /// The files that were played without a part that cannot be read, each with the reason.
    incomplete: Vec<NotPlayed>,
    /// How many logs were played, at least in part.
    logs: usize,
    /// Whether Ctrl-C ended the run early.
    stopped: bool,
}

pub(crate) fn run(command: &BenchCommand, global: &Global) -> Result<u8, CliError> {
    match command {
        BenchCommand::Sessions(args) => sessions(args, global),
    }
}

/// Plays the logs of a folder and prints the comparison.
///
/// # Errors
/// Fails if the folder cannot be read, if an engine that was named cannot be opened, or if nothing
/// in the folder could be played.
fn sessions(args: &SessionsArgs, global: &Global) -> Result<u8, CliError> {
    let mut loaded = start::load_config(global)?;
    // No other engine may improve the figures of one that fails.
    loaded.config.context.on_failure = OnFailure::Passthrough;
    let mut bench = Bench::new(args, loaded)?;
    let files = logs::find(&args.folder)?;
    let progress = Progress::bytes("playing");
    let total: u64 = files.iter().map(|file| file.size).sum();
    let mut done = 0;
    for file in &files {
        // A log of many sessions stays at its end after the first, because their number is not known.
        let mut most = 0;
        let reached = &mut |part: f64| {
            most = most.max((file.size as f64 * part) as u64);
            progress.reach(done + most, total);
        };
        if bench.play_log(file, reached)?.is_break() {
            break;
        }
        done += file.size;
    }
    drop(progress);

    let found = bench.found;
    say_not_played("skipped", &found.skipped);
    say_not_played("incomplete", &found.incomplete);
    if found.stopped {
        terminal::say("stopped; the rows are those of the sessions that all engines have played\n");
    } else if found.logs == 0 {
        return Err(CliError::usage(
            format!("there is no session to play in {}", args.folder.display()),
            "name a folder with session logs; `contexture replay FILE` says what is wrong with a file",
        ));
    }
    match (args.json, args.csv) {
        (true, _) => output::print_json(&found)?,
        (_, true) => output::print(&table::csv(&found))?,
        _ => output::print(&table::render(&found))?,
    }
    Ok(if found.stopped { INTERRUPTED } else { OK })
}

/// Names the files that were `skipped` or are `incomplete`, up to a number that a person reads.
fn say_not_played(how: &str, files: &[NotPlayed]) {
    for one in files.iter().take(SHOWN_SKIPPED) {
        let why = terminal::one_line(&one.why, SHOWN_WHY);
        terminal::say(&format!("{how} {}: {why}\n", one.path));
    }
    let more = files.len().saturating_sub(SHOWN_SKIPPED);
    if more > 0 {
        terminal::say(&format!("{how}: {more} more; --json lists them all\n"));
    }
}

/// A run of the command.
struct Bench<'a> {
    args: &'a SessionsArgs,
    loaded: Loaded,
    variants: Vec<Variant>,
    interrupt: Interrupt,
    /// How many sessions may still be played.
    left: usize,
    found: Comparison,
}

impl<'a> Bench<'a> {
    /// Chooses the engines and opens each once, because a run may take long. An engine that was not
    /// named and cannot be opened is left out with a warning.
    fn new(args: &'a SessionsArgs, loaded: Loaded) -> Result<Self, CliError> {
        let names: Vec<String> = match args.engines.is_empty() {
            true => engines::choices(&loaded)?
                .into_iter()
                .filter(|engine| engine.problem.is_none())
                .map(|engine| engine.name)
                .collect(),
            false => args.engines.clone(),
        };
        let mut bench = Self {
            args,
            loaded,
            variants: Vec::new(),
            interrupt: Interrupt::listen(),
            left: args.limit.map_or(usize::MAX, NonZeroUsize::get),
            found: Comparison::default(),
        };
        let timings = match args.timings.is_empty() {
            true => Timing::ALL.to_vec(),
            false => args.timings.clone(),
        };
        for engine in names {
            if bench.variants.iter().any(|known| known.engine == engine) {
                continue;
            }
            match bench.check(&engine) {
                Ok(()) => {}
                Err(error) if !args.engines.is_empty() => return Err(error),
                Err(error) => {
                    terminal::warn(&format!("the engine `{engine}` is left out: {error}"));
                    continue;
                }
            }
            bench.variants.extend(timings.iter().map(|timing| Variant {
                engine: engine.clone(),
                timing: *timing,
            }));
        }
        Ok(bench)
    }

    /// Opens a session with an engine, to see whether that works.
    fn check(&self, engine: &str) -> Result<(), CliError> {
        let stage = self.stage(Timing::default())?;
        start::check_settings(stage.engines())?;
        let agent = window::choose(None, None, None, &self.loaded.config).agent;
        let options = SessionOptions::default().engine(Some(engine.to_owned()));
        let opened = Session::open(stage.engines(), None, "check", agent, options);
        opened.and_then(Session::end).map_err(failed)
    }

    /// Makes a temporary home for an engine. It has no model, whatever is configured: a run over
    /// many logs would call it thousands of times.
    fn stage(&self, timing: Timing) -> Result<TempHome, CliError> {
        let mut loaded = start::patient(self.loaded.clone());
        loaded.config.compression.timing = timing;
        let client = configured_client(&loaded.config, Resolved::NoModel(NoModel::Offline));
        TempHome::new(loaded, client).map_err(CliError::TempHome)
    }

    /// Makes a home for each way to play the sessions.
    fn stages(&self) -> Result<Vec<TempHome>, CliError> {
        let variants = self.variants.iter();
        variants.map(|variant| self.stage(variant.timing)).collect()
    }

    /// Plays all sessions of a log. Breaks if no more are to be played. `reached` is told which part
    /// of a session was played, from 0 to 1.
    fn play_log(
        &mut self,
        file: &LogFile,
        reached: &mut dyn FnMut(f64),
    ) -> Result<ControlFlow<()>, CliError> {
        // New homes for each log, so that its figures do not depend on the others. Most files of a
        // folder may be no logs, so they are made when the first session is found.
        let mut stages = Vec::new();
        let mut homeless = None;
        let (mut number, mut played) = (0, 0);
        let read = logs::read(file, &mut |conversation| {
            if stages.is_empty() {
                match self.stages() {
                    Ok(new) => stages = new,
                    Err(error) => {
                        homeless = Some(error);
                        return false;
                    }
                }
            }
            number += 1;
            match self.play_session(&file.path, number, conversation, &stages, reached) {
                Ok(is_played) => played += usize::from(is_played),
                Err(why) => self.skip(&file.path, format!("session {number}: {why}")),
            }
            !self.interrupt.is_pressed() && self.left > 0
        });
        if let Some(error) = homeless {
            return Err(error);
        }
        self.found.stopped = self.interrupt.is_pressed();
        self.found.logs += usize::from(played > 0);
        match read {
            Ok(None) if number > 0 && played == 0 && !self.found.stopped => {
                self.skip(&file.path, "it has no answer of a model".to_owned());
            }
            Ok(None) => {}
            Ok(Some(why)) => {
                let list = match played {
                    0 => &mut self.found.skipped,
                    _ => &mut self.found.incomplete,
                };
                let why = format!("a part of it cannot be read: {why}");
                list.push(NotPlayed::new(&file.path, why));
            }
            Err(why) => self.skip(&file.path, why),
        }
        Ok(match self.found.stopped || self.left == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    fn skip(&mut self, path: &Path, why: String) {
        self.found.skipped.push(NotPlayed::new(path, why));
    }

    /// Plays a session without an engine and through each engine. Returns false if it has nothing
    /// to play, or if Ctrl-C came first. The session counts only if all engines have played it.
    ///
    /// # Errors
    /// Returns the reason in words if an engine cannot play it.
    fn play_session(
        &mut self,
        path: &Path,
        number: usize,
        conversation: Conversation,
        stages: &[TempHome],
        reached: &mut dyn FnMut(f64),
    ) -> Result<bool, String> {
        let config = &self.loaded.config;
        let chosen = window::choose(
            self.args.context_length,
            self.args.model.as_deref(),
            conversation.model(),
            config,
        );
        let ttl = config.prompt_caching.cache_ttl.at_first();
        let prices = Prices::fitting(&chosen.agent.model, ttl);
        let recording = Recording::new(conversation, chosen.agent);
        if recording.requests().is_empty() {
            return Ok(false);
        }
        let mentions = Mentions::of(recording.conversation());
        let none = Row::new("none", None, without_engine(&recording, ttl), None, &prices);
        let mut rows = vec![Score::without_engine(&none)];
        for (variant, stage) in self.variants.iter().zip(stages) {
            let mut kept = Continuation::default();
            let mut unread = None;
            let played = play_observed(&recording, stage, Some(&variant.engine), &mut |step| {
                if let Err(error) = kept.note(&mentions, step) {
                    unread = Some(error);
                }
                match self.interrupt.is_pressed() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            let in_engine = |why: &dyn std::fmt::Display| format!("{}: {why}", variant.engine);
            let Some(played) = played.map_err(|error| in_engine(&error))? else {
                return Ok(false);
            };
            if let Some(error) = unread {
                return Err(in_engine(&error));
            }
            let row = Row::of_played(played, &prices);
            rows.push(Score::new(&row, variant.timing, kept, none.cost_usd));
            reached((rows.len() - 1) as f64 / stages.len() as f64);
        }
        self.left -= 1;
        self.found
            .add(path, number, &recording, rows, self.args.per_session);
        Ok(true)
    }
}

impl Comparison {
    /// Adds the rows of a session to the totals, and to the sessions if they are wanted.
    fn add(
        &mut self,
        path: &Path,
        number: usize,
        recording: &Recording,
        rows: Vec<Score>,
        per_session: bool,
    ) {
        let window = recording.agent().context_length;
        let (least, most) = self.windows.unwrap_or((window, window));
        self.windows = Some((least.min(window), most.max(window)));
        match self.totals.is_empty() {
            true => self.totals.clone_from(&rows),
            false => {
                for (total, row) in self.totals.iter_mut().zip(&rows) {
                    total.add(row);
                }
            }
        }
        if per_session {
            self.sessions.push(SessionScores {
                input: path.display().to_string(),
                number,
                messages: recording.conversation().messages().len(),
                model: recording.agent().model.clone(),
                context_length: window,
                rows,
            });
        }
    }
}

fn failed(error: SessionError) -> CliError {
    CliError::of_session(error, "the benchmark measures each engine alone")
}

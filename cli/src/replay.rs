//! `contexture replay`: plays recorded conversations through engines and reports what they would
//! have cost.
//!
//! [`run`] reads the recordings, plays each one turn by turn through each engine, and prints a
//! table. The answers are those of the recording, so no agent's model is called. Rows without an
//! engine are for comparison: what the log recorded, what it would have been without an engine, and
//! what the provider's own means would have made of it.
//!
//! Every engine works on a stage of its own, a temporary home, so nothing is left in its store.
//! Playing and counting is the task of `contexture::replay`, the table that of `replay_table`, and
//! [`advise`] tries out settings.

mod advise;

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};

use crate::error::{CliError, ENGINE_FAILED};
use crate::human::grouped;
use crate::terminal::{self, Progress};
use crate::{Global, OK, input, output, replay_table, start, window};
use contexture::config::{Loaded, OnFailure};
use contexture::formats::Format;
use contexture::prompt_cache::{CacheTtl, Ttl};
use contexture::replay::{
    CONTEXT_EDITING, ConversationReport, Prices, Recording, Report, Row, TempHome, UNCACHED, play,
    recorded, with_context_editing, without_engine, without_markers,
};
use contexture::session::SessionError;

/// The most warnings of one engine that are printed. The report has them all.
const SHOWN_WARNINGS: usize = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture replay ~/.claude/projects/p/s.jsonl
  contexture replay chats.jsonl --engine compressor --engine lcm --context-length 100000
  contexture replay s.jsonl --price-in 5 --price-cached 0.5 --price-write 6.25 --report replay.json
  contexture replay ~/.claude/projects/p/*.jsonl --advise

Each conversation is played turn by turn through each engine. Before every recorded answer the engine sees the new messages and compacts if it wants to, and the prompt is counted as it would have been sent. The answers are the recorded ones; no model is called for them. Engines work in a temporary directory, so their stores do not change.

If the configured engine fails, its row says in how many requests, and context.on_failure decides what replaces it. Nothing replaces an engine that is named with --engine.

Exit codes: 0 played, 2 wrong usage, input or configuration, 3 an engine failed and no other may replace it.")]
pub(crate) struct ReplayArgs {
    /// Recorded conversations: session logs, request bodies, JSON lines; `-` is stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// An engine to replay with; can be repeated [default: the configured one]
    #[arg(long = "engine", value_name = "NAME", help_heading = "What to do")]
    engines: Vec<String>,
    /// The model's whole window, in tokens: 128000, 64k, 1M
    #[arg(long, value_name = "N", value_parser = window::length, help_heading = "What to do")]
    context_length: Option<u64>,
    /// The agent's model, which decides on the window and on how tokens are counted
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    model: Option<String>,
    /// The price of a million prompt tokens, in US dollars [default: 3]
    #[arg(long, value_name = "USD", help_heading = "Costs")]
    price_in: Option<f64>,
    /// The price of a million tokens read from the prompt cache [default: a tenth of --price-in]
    #[arg(long, value_name = "USD", help_heading = "Costs")]
    price_cached: Option<f64>,
    /// The price of a million tokens written to the prompt cache [default: 3.75 or, for an hour, 6
    /// if no price is given; otherwise --price-in]
    #[arg(long, value_name = "USD", help_heading = "Costs")]
    price_write: Option<f64>,
    /// How long the prompt cache keeps unused entries [default: prompt_caching.cache_ttl]
    #[arg(long, value_name = "TTL", value_parser = ttl_parser(), help_heading = "Costs")]
    cache_ttl: Option<CacheTtl>,
    /// Print the settings that would have been cheapest for these conversations, in place of the
    /// table
    #[arg(long, help_heading = "Costs", conflicts_with = "report")]
    advise: bool,
    /// The format of the inputs [default: detected]
    #[arg(long, value_parser = input::format_parser(), help_heading = "Input and output")]
    format: Option<Format>,
    /// Refuse a log with unreadable lines instead of skipping them
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
    /// Write all figures, including those of each conversation, to FILE as JSON; `-` prints them in
    /// place of the table
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(output::destination), help_heading = "Input and output")]
    report: Option<PathBuf>,
}

fn ttl_parser() -> impl TypedValueParser<Value = CacheTtl> {
    PossibleValuesParser::new(["5m", "1h", "auto"]).map(|ttl| match ttl.as_str() {
        "1h" => CacheTtl::OneHour,
        "auto" => CacheTtl::Auto,
        _ => CacheTtl::FiveMinutes,
    })
}

/// A recording with the name and number under which the report lists it.
struct NamedRecording {
    name: String,
    number: usize,
    recording: Recording,
}

/// Runs the command and returns its exit code: 3 if an engine failed that was named with
/// `--engine`, otherwise 0.
///
/// # Errors
/// Fails if an input cannot be read, a price is wrong, or an engine cannot be opened.
pub(crate) fn run(args: &ReplayArgs, global: &Global) -> Result<u8, CliError> {
    let mut loaded = start::load_config(global)?;
    if !args.engines.is_empty() {
        // A user who names an engine wants its own figures. If it fails, the conversation is sent
        // unchanged, so that no other engine improves them.
        loaded.config.context.on_failure = OnFailure::Passthrough;
    }
    let ttl = args
        .cache_ttl
        .unwrap_or(loaded.config.prompt_caching.cache_ttl);
    // The engines read the lifetime from the configuration, so the option has to be stored there.
    loaded.config.prompt_caching.cache_ttl = ttl;
    let prices = prices(args, ttl)?;
    let inputs = read_all(args, &loaded)?;
    if args.advise {
        return advise::run(args, global, &loaded, &inputs);
    }
    let requests: usize = inputs
        .iter()
        .map(|input| input.recording.requests().len())
        .sum();
    // Each engine has its own stage. It learns only from the conversations that it plays, not from
    // what another engine's stage has seen.
    let engines = engines(args)
        .into_iter()
        .map(|engine| Ok((engine, stage(args, global, loaded.clone())?)))
        .collect::<Result<Vec<_>, CliError>>()?;
    let progress = Progress::new(requests * engines.len(), "replaying");
    let conversations = inputs
        .iter()
        .map(|input| {
            let mut rows = plain_rows(&input.recording, ttl.at_first(), &prices);
            for (engine, stage) in &engines {
                let step = &mut || progress.step();
                let played = play(&input.recording, stage, *engine, step).map_err(failed)?;
                rows.push(Row::of_played(played, &prices));
            }
            // Only Claude models have prompt cache markers and context editing.
            if input.recording.agent().model.contains("claude") {
                rows.extend(provider_rows(&input.recording, ttl.at_first(), &prices));
            }
            Ok(ConversationReport::new(
                &input.name, input.number, &input.recording, rows,
            ))
        })
        .collect::<Result<Vec<_>, CliError>>()?;
    drop(progress);

    let report = Report::new(prices, ttl, conversations);
    show_warnings(&report);
    match &args.report {
        Some(file) if file.as_os_str() == "-" => output::print_json(&report)?,
        Some(file) => {
            output::write_file(file, &output::pretty(&report))?;
            output::print(&replay_table::render(&report))?;
        }
        None => output::print(&replay_table::render(&report))?,
    }
    let failed = report.totals.iter().any(|row| row.failures() > 0);
    Ok(match failed && !args.engines.is_empty() {
        true => ENGINE_FAILED,
        false => OK,
    })
}

/// Returns the prices that were given on the command line, completed for a cache of this lifetime.
/// Fails if a price is negative or not a number.
fn prices(args: &ReplayArgs, ttl: CacheTtl) -> Result<Prices, CliError> {
    Prices::given(
        args.price_in,
        args.price_cached,
        args.price_write,
        ttl.at_first(),
    )
    .map_err(|error| CliError::usage("a price is not valid", error.to_string()))
}

/// Prints the first few warnings of each engine, and how many more there are.
fn show_warnings(report: &Report) {
    for row in &report.totals {
        for warning in row.warnings.iter().take(SHOWN_WARNINGS) {
            terminal::warn(&format!("{}: {warning}", row.engine));
        }
        let more = row.warnings.len().saturating_sub(SHOWN_WARNINGS);
        if more > 0 {
            terminal::warn(&format!(
                "{}: and {} more; --report lists them all",
                row.engine,
                grouped(more as u64)
            ));
        }
    }
}

/// Returns the engines to play through, each once. None stands for the configured engine and is
/// returned if no engine is named.
fn engines(args: &ReplayArgs) -> Vec<Option<&str>> {
    let mut named: Vec<Option<&str>> = Vec::new();
    for engine in &args.engines {
        // An engine named twice would be played twice and give the same row.
        if !named.contains(&Some(engine)) {
            named.push(Some(engine));
        }
    }
    if named.is_empty() {
        named.push(None);
    }
    named
}

/// Reads all inputs and chooses a window for each conversation. Notes and warnings are printed
/// once, even if they apply to many conversations.
fn read_all(args: &ReplayArgs, loaded: &Loaded) -> Result<Vec<NamedRecording>, CliError> {
    let mut inputs = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for path in &args.inputs {
        let read = input::read(path, args.format, args.strict)?;
        for (at, conversation) in read.conversations.into_iter().enumerate() {
            let chosen = window::choose(
                args.context_length,
                args.model.as_deref(),
                conversation.model(),
                &loaded.config,
            );
            let told = conversation.warnings().iter().cloned().chain(chosen.notes);
            for note in told.map(|note| format!("{}: {note}", read.name)) {
                if !notes.contains(&note) {
                    terminal::warn(&note);
                    notes.push(note);
                }
            }
            let recording = Recording::new(conversation, chosen.agent);
            if let Some(note) = calibrated(&recording) {
                terminal::note(&format!("{}: {note}", read.name));
            }
            inputs.push(NamedRecording {
                name: read.name.clone(),
                number: at + 1,
                recording,
            });
        }
    }
    Ok(inputs)
}

/// Returns a note on how far the counted tokens are from what the log recorded. None if the
/// difference is less than a percent. All counts are scaled by it.
fn calibrated(recording: &Recording) -> Option<String> {
    let scale = recording.scale();
    let by = format!("{scale:.2}");
    (by != "1.00").then(|| {
        format!(
            "the recorded prompts grew by {by} tokens for each counted token, and began with {} tokens that the \
             log does not show; all counts are scaled accordingly",
            grouped(recording.unseen_tokens())
        )
    })
}

/// Makes a stage, a temporary home with the engines of a configuration. Fails if a setting of any
/// engine is wrong, since a run may take long.
fn stage(args: &ReplayArgs, global: &Global, loaded: Loaded) -> Result<TempHome, CliError> {
    let client = start::model_client(&loaded.config, global.offline, args.model.as_deref())?;
    let stage = TempHome::new(start::patient(loaded), client).map_err(CliError::TempHome)?;
    start::check_settings(stage.engines())?;
    Ok(stage)
}

fn failed(error: SessionError) -> CliError {
    CliError::of_session(error, "`context.on_failure` is `fail`")
}

/// Returns the row that the log itself recorded, if it did, and the row for no engine at all. They
/// are what engines are compared with.
fn plain_rows(recording: &Recording, ttl: Ttl, prices: &Prices) -> Vec<Row> {
    let log = recorded(recording);
    let none = without_engine(recording, ttl);
    log.map(|prompts| Row::new("recorded", None, prompts, None, prices))
        .into_iter()
        .chain([Row::new("none", None, none, None, prices)])
        .collect()
}

/// Returns the rows for the provider's own means: without markers for the prompt cache, and with
/// the provider's context editing.
fn provider_rows(recording: &Recording, ttl: Ttl, prices: &Prices) -> [Row; 2] {
    let row = |name, prompts| Row::new(name, None, prompts, None, prices);
    [
        row(UNCACHED, without_markers(recording)),
        row(CONTEXT_EDITING, with_context_editing(recording, ttl)),
    ]
}

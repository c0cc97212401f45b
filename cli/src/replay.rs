//! `contexture replay`: what engines would have made of recorded conversations, and what it would have
//! cost.

mod advise;

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};

use crate::error::{CliError, ENGINE_FAILED, Lines};
use crate::figures::grouped;
use crate::terminal::{self, Progress};
use crate::{Global, OK, input, output, replay_table, setup, window};
use contexture::config::{Loaded, OnFailure};
use contexture::formats::Format;
use contexture::prompt_cache::{CacheTtl, Ttl};
use contexture::replay::{
    CONTEXT_EDITING, ConversationReport, Played, Prices, Recording, Report, Row, Stage, UNCACHED,
    play, recorded, with_context_editing, without_engine, without_markers,
};
use contexture::session::SessionError;

/// Warnings that are shown of one engine.
const SHOWN_WARNINGS: usize = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture replay ~/.claude/projects/p/s.jsonl
  contexture replay chats.jsonl --engine compressor --engine lcm --context-length 100000
  contexture replay s.jsonl --price-in 5 --price-cached 0.5 --price-write 6.25 --report replay.json
  contexture replay ~/.claude/projects/p/*.jsonl --advise

Each conversation is played turn by turn through each engine: before every answer of the recording, \
the engine sees what is new and compacts where it wants to, and the prompt is counted as it would have \
been sent. The answers are those of the recording; no model is asked for them. Engines work in a \
temporary directory, so nothing is left in their stores.

Where the configured engine fails, the row says in how many requests, and what stands in is what \
context.on_failure says. Nothing stands in for an engine that is named with --engine.

Exit codes: 0 played, 2 wrong usage, input or configuration, 3 an engine failed and no other may stand \
in.")]
pub(crate) struct ReplayArgs {
    /// Recorded conversations: session logs, request bodies, JSON lines; `-` is stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// An engine to play through; may be given several times [default: the configured one]
    #[arg(long = "engine", value_name = "NAME", help_heading = "What to do")]
    engines: Vec<String>,
    /// The model's whole window, in tokens: 128000, 64k, 1M
    #[arg(long, value_name = "N", value_parser = window::length, help_heading = "What to do")]
    context_length: Option<u64>,
    /// The agent's model, which decides on the window and how tokens are counted
    #[arg(long, value_name = "NAME", help_heading = "What to do")]
    model: Option<String>,
    /// What a million prompt tokens cost, in US dollars [default: 3]
    #[arg(long, value_name = "USD", help_heading = "Costs")]
    price_in: Option<f64>,
    /// What a million tokens read from the prompt cache cost [default: a tenth of --price-in]
    #[arg(long, value_name = "USD", help_heading = "Costs")]
    price_cached: Option<f64>,
    /// What a million tokens written to the prompt cache cost [default: without any price given 3.75, or
    /// 6 for an hour; else --price-in]
    #[arg(long, value_name = "USD", help_heading = "Costs")]
    price_write: Option<f64>,
    /// How long the prompt cache keeps what is not used [default: prompt_caching.cache_ttl]
    #[arg(long, value_name = "TTL", value_parser = ttl_parser(), help_heading = "Costs")]
    cache_ttl: Option<CacheTtl>,
    /// Name the settings that would have been cheapest for these conversations, in place of the table
    #[arg(long, help_heading = "Costs", conflicts_with = "report")]
    advise: bool,
    /// The format of the inputs [default: detected]
    #[arg(long, value_parser = format_parser(), help_heading = "Input and output")]
    format: Option<Format>,
    /// Refuse a log with a line that cannot be read, instead of leaving it out
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
    /// Write all figures, of each conversation too, to FILE as JSON; `-` prints them in place of the table
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(output::destination), help_heading = "Input and output")]
    report: Option<PathBuf>,
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

fn ttl_parser() -> impl TypedValueParser<Value = CacheTtl> {
    PossibleValuesParser::new(["5m", "1h", "auto"]).map(|ttl| match ttl.as_str() {
        "1h" => CacheTtl::OneHour,
        "auto" => CacheTtl::Auto,
        _ => CacheTtl::FiveMinutes,
    })
}

/// A recording, and where it came from.
struct Input {
    name: String,
    number: usize,
    recording: Recording,
}

pub(crate) fn run(args: &ReplayArgs, global: &Global) -> Result<u8, CliError> {
    let mut loaded = setup::load_config(global)?;
    if !args.engines.is_empty() {
        // What is named on the command line is what is measured, and nothing in its place.
        loaded.config.context.on_failure = OnFailure::Passthrough;
    }
    let ttl = args
        .cache_ttl
        .unwrap_or(loaded.config.prompt_caching.cache_ttl);
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
    // One stage for each: what an engine learns of a user's sessions, it learns from those that it played.
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
                rows.push(engine_row(played, &prices));
            }
            if input.recording.agent().model.contains("claude") {
                rows.extend(provider_rows(&input.recording, ttl.at_first(), &prices));
            }
            Ok(conversation_report(input, rows))
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

/// The prices given, for a cache of this lifetime.
fn prices(args: &ReplayArgs, ttl: CacheTtl) -> Result<Prices, CliError> {
    Prices::given(
        args.price_in,
        args.price_cached,
        args.price_write,
        ttl.at_first(),
    )
    .map_err(|error| CliError::usage("a price cannot be used", error.to_string()))
}

fn show_warnings(report: &Report) {
    for row in &report.totals {
        for warning in row.warnings.iter().take(SHOWN_WARNINGS) {
            warn(&format!("{}: {warning}", row.engine));
        }
        let more = row.warnings.len().saturating_sub(SHOWN_WARNINGS);
        if more > 0 {
            warn(&format!(
                "{}: and {} more; --report has them all",
                row.engine,
                grouped(more as u64)
            ));
        }
    }
}

/// The engines to play through, each once, as named or as configured.
fn engines(args: &ReplayArgs) -> Vec<Option<&str>> {
    let mut named: Vec<Option<&str>> = Vec::new();
    for engine in &args.engines {
        if !named.contains(&Some(engine)) {
            named.push(Some(engine));
        }
    }
    if named.is_empty() {
        named.push(None);
    }
    named
}

fn read_all(args: &ReplayArgs, loaded: &Loaded) -> Result<Vec<Input>, CliError> {
    let mut inputs = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for path in &args.inputs {
        let read = input::read(path, args.format, args.strict)?;
        for (at, conversation) in read.conversations.into_iter().enumerate() {
            let chosen = window::choose(
                args.context_length,
                args.model.as_deref(),
                conversation.model(),
                &loaded.config.model,
            );
            let told = conversation.warnings().iter().cloned().chain(chosen.notes);
            for note in told.map(|note| format!("{}: {note}", read.name)) {
                if !notes.contains(&note) {
                    warn(&note);
                    notes.push(note);
                }
            }
            let recording = Recording::new(conversation, chosen.agent);
            if let Some(note) = calibrated(&recording) {
                terminal::say(&format!("note: {}: {note}\n", read.name));
            }
            inputs.push(Input {
                name: read.name.clone(),
                number: at + 1,
                recording,
            });
        }
    }
    Ok(inputs)
}

/// A note on how far the counts were from what the log recorded, if the difference is large.
fn calibrated(recording: &Recording) -> Option<String> {
    let scale = recording.scale();
    let by = format!("{scale:.2}");
    (by != "1.00").then(|| {
        format!(
            "the prompts that the log recorded grew by {by} tokens for each one counted, and began with {} that the \
             log does not show; all counts are scaled to that",
            grouped(recording.unseen_tokens())
        )
    })
}

fn stage(args: &ReplayArgs, global: &Global, loaded: Loaded) -> Result<Stage, CliError> {
    let client = setup::model_client(&loaded.config, global.offline, args.model.as_deref())?;
    let stage = Stage::new(setup::patient(loaded), client).map_err(CliError::Stage)?;
    setup::check_settings(stage.engines())?;
    Ok(stage)
}

fn warn(what: &str) {
    terminal::say(&format!("{}\n", terminal::warning(what)));
}

fn failed(error: SessionError) -> CliError {
    match error {
        SessionError::Open(error) => CliError::of_open(error),
        failed => CliError::EngineFailed {
            because: "`context.on_failure` is `fail`",
            reason: Lines(failed.to_string()),
        },
    }
}

/// What the log recorded, where it did, and what it would have been without an engine.
fn plain_rows(recording: &Recording, ttl: Ttl, prices: &Prices) -> Vec<Row> {
    let log = recorded(recording);
    let none = without_engine(recording, ttl);
    log.map(|prompts| Row::new("recorded", None, prompts, None, prices))
        .into_iter()
        .chain([Row::new("none", None, none, None, prices)])
        .collect()
}

/// What the provider of Claude models would have made of it itself.
fn provider_rows(recording: &Recording, ttl: Ttl, prices: &Prices) -> [Row; 2] {
    let row = |name, prompts| Row::new(name, None, prompts, None, prices);
    [
        row(UNCACHED, without_markers(recording)),
        row(CONTEXT_EDITING, with_context_editing(recording, ttl)),
    ]
}

fn engine_row(played: Played, prices: &Prices) -> Row {
    let mut row = Row::new(
        played.engine,
        Some(played.source),
        played.prompts,
        Some(played.work),
        prices,
    );
    row.warnings = played.warnings;
    row
}

fn conversation_report(input: &Input, rows: Vec<Row>) -> ConversationReport {
    let recording = &input.recording;
    ConversationReport {
        input: input.name.clone(),
        number: input.number,
        messages: recording.conversation().messages().len(),
        requests: recording.requests().len(),
        model: recording.agent().model.clone(),
        context_length: recording.agent().context_length,
        unseen_tokens: recording.unseen_tokens(),
        scale: recording.scale(),
        rows,
    }
}

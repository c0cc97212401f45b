//! `contexture replay --advise`: finds the settings that would have been cheapest.
//!
//! [`run`] plays the recordings through each engine with every timing and every lifetime of the
//! prompt cache, and [`advice`] sorts the results by their cost. The output ends with the lines for
//! `config.yaml`.
//!
//! The costs are those of the prompts at the given prices. What an engine's own model calls cost is
//! not included. Combinations in which an engine failed come last, since their figures are not
//! those of the engine.

use contexture::config::{Loaded, Timing};
use contexture::prompt_cache::{CacheTtl, Ttl};
use contexture::replay::{play, without_engine};

use super::{NamedRecording, ReplayArgs, engines, failed, prices, stage};
use crate::error::CliError;
use crate::replay_table::{dollars, table};
use crate::terminal::Progress;
use crate::{Global, OK, output};

const TTLS: [CacheTtl; 3] = [CacheTtl::FiveMinutes, CacheTtl::OneHour, CacheTtl::Auto];

/// A combination of settings, and what the prompts would have cost with it in US dollars.
struct Tried {
    engine: String,
    timing: &'static str,
    ttl: CacheTtl,
    cost_usd: f64,
    failures: u64,
    is_configured: bool,
}

/// Tries all combinations of settings and prints the advice. If no engine is named, the built-in
/// one and `lcm` are tried. The time is that of a replay for each combination.
pub(super) fn run(
    args: &ReplayArgs,
    global: &Global,
    loaded: &Loaded,
    inputs: &[NamedRecording],
) -> Result<u8, CliError> {
    let named: Vec<Option<&str>> = match args.engines.is_empty() {
        true => vec![Some("compressor"), Some("lcm")],
        false => engines(args),
    };
    let config = &loaded.config;
    let configured = (
        config.context.engine.clone(),
        config.compression.timing,
        config.prompt_caching.cache_ttl,
    );
    let requests: usize = inputs
        .iter()
        .map(|input| input.recording.requests().len())
        .sum();
    let progress = Progress::new(
        requests * named.len() * Timing::ALL.len() * TTLS.len(),
        "trying settings",
    );
    let mut tried = vec![];
    for ttl in TTLS {
        let prices = prices(args, ttl)?;
        for timing in Timing::ALL {
            let mut with = loaded.clone();
            with.config.compression.timing = timing;
            with.config.prompt_caching.cache_ttl = ttl;
            for engine in &named {
                // Each combination has its own stage, so that an engine does not learn from the
                // runs before.
                let stage = stage(args, global, with.clone())?;
                let (mut cost_usd, mut failures) = (0.0, 0);
                let mut name = String::new();
                for input in inputs {
                    let step = &mut || progress.step();
                    let played = play(&input.recording, &stage, *engine, step).map_err(failed)?;
                    cost_usd += prices.cost(&played.prompts);
                    failures += played.work.failures;
                    name = played.engine;
                }
                let is_configured = (name.clone(), timing, ttl) == configured;
                tried.push(Tried {
                    engine: name,
                    timing: timing.name(),
                    ttl,
                    cost_usd,
                    failures,
                    is_configured,
                });
            }
        }
    }
    drop(progress);
    let short = prices(args, CacheTtl::FiveMinutes)?;
    let none =
        |input: &NamedRecording| short.cost(&without_engine(&input.recording, Ttl::FiveMinutes));
    output::print(&advice(tried, inputs.iter().map(none).sum()))?;
    Ok(OK)
}

/// Renders the combinations as a table, the cheapest first, with the share of the cost without an
/// engine. Below it stand the settings to change, or a note if the current ones are the cheapest.
fn advice(mut tried: Vec<Tried>, without: f64) -> String {
    // The figures of an engine that failed are not its own, so they come last.
    tried.sort_by(|one, other| {
        let by_failure = (one.failures > 0).cmp(&(other.failures > 0));
        by_failure.then(one.cost_usd.total_cmp(&other.cost_usd))
    });
    let of_none = |cost: f64| match without > 0.0 {
        true => format!("{:.0} %", cost / without * 100.0),
        false => "–".to_owned(),
    };
    let rows: Vec<[String; 6]> = tried
        .iter()
        .map(|one| {
            [
                one.engine.clone(),
                one.timing.to_owned(),
                one.ttl.to_string(),
                dollars(one.cost_usd),
                of_none(one.cost_usd),
                match (one.failures, one.is_configured) {
                    (0, false) => String::new(),
                    (0, true) => "as configured".to_owned(),
                    (failures, _) => format!("! {failures} failed"),
                },
            ]
        })
        .chain([[
            "none".into(),
            "–".into(),
            "5m".into(),
            dollars(without),
            of_none(without),
            String::new(),
        ]])
        .collect();
    let mut text = String::new();
    let columns = [
        ["", "engine"],
        ["compression.", "timing"],
        ["prompt_caching.", "cache_ttl"],
        ["", "cost"],
        ["of none", ""],
        ["", ""],
    ];
    table(&mut text, &columns, rows);
    let Some(best) = tried.first().filter(|best| best.failures == 0) else {
        return text;
    };
    // If the configured settings were not tried, the saving is measured against no engine.
    let at_stake = tried
        .iter()
        .find(|one| one.is_configured)
        .map_or(without, |one| one.cost_usd);
    let saved = at_stake - best.cost_usd;
    if saved <= 0.0 {
        text.push_str("\nThe current settings would have been the cheapest.\n");
        return text;
    }
    text.push_str(&format!(
        "\nThe first would have saved {} of {} on these conversations:\n\n\
         context:\n  engine: {}\ncompression:\n  timing: {}\nprompt_caching:\n  cache_ttl: {}\n",
        dollars(saved),
        dollars(at_stake),
        best.engine,
        best.timing,
        best.ttl,
    ));
    text
}

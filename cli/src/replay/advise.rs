//! `contexture replay --advise`: the settings that would have been cheapest.

use contexture::config::{Loaded, Timing};
use contexture::prompt_cache::{CacheTtl, Ttl};
use contexture::replay::{play, without_engine};

use super::{Input, ReplayArgs, engines, failed, prices, stage};
use crate::error::CliError;
use crate::replay_table::{dollars, table};
use crate::terminal::Progress;
use crate::{Global, OK, output};

const TIMINGS: [(Timing, &str); 3] = [
    (Timing::Safe, "safe"),
    (Timing::Threshold, "threshold"),
    (Timing::Economy, "economy"),
];
const TTLS: [CacheTtl; 3] = [CacheTtl::FiveMinutes, CacheTtl::OneHour, CacheTtl::Auto];

/// Settings, and what the prompts would have cost with them, in US dollars.
struct Tried {
    engine: String,
    timing: &'static str,
    ttl: CacheTtl,
    cost_usd: f64,
    failures: u64,
    is_configured: bool,
}

pub(super) fn run(
    args: &ReplayArgs,
    global: &Global,
    loaded: &Loaded,
    inputs: &[Input],
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
        requests * named.len() * TIMINGS.len() * TTLS.len(),
        "trying settings",
    );
    let mut tried = vec![];
    for ttl in TTLS {
        let prices = prices(args, ttl)?;
        for (timing, timing_name) in TIMINGS {
            let mut with = loaded.clone();
            with.config.compression.timing = timing;
            with.config.prompt_caching.cache_ttl = ttl;
            for engine in &named {
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
                    timing: timing_name,
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
    let none = |input: &Input| short.cost(&without_engine(&input.recording, Ttl::FiveMinutes));
    output::print(&advice(tried, inputs.iter().map(none).sum()))?;
    Ok(OK)
}

/// The settings as a table, the cheapest first, and those as they stand in a configuration.
fn advice(mut tried: Vec<Tried>, without: f64) -> String {
    // An engine that failed did not do what is measured.
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
    table(&mut text, &columns, &rows);
    let Some(best) = tried.first().filter(|best| best.failures == 0) else {
        return text;
    };
    let at_stake = tried
        .iter()
        .find(|one| one.is_configured)
        .map_or(without, |one| one.cost_usd);
    let saved = at_stake - best.cost_usd;
    if saved <= 0.0 {
        text.push_str("\nThe settings as they are would have been the cheapest.\n");
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

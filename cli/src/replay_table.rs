//! The table that `contexture replay` prints.
//!
//! [`render`] builds the whole text from a [`Report`]: a heading that says what was played, a table
//! with a row for each engine, a table of where the money went, a table of single compactions if
//! there are few, and notes that explain the figures. A note appears only if the report has the
//! figures that it explains.
//!
//! The module formats and adds up, but computes no costs. Costs and shares come from
//! `contexture::replay`. The table fits into 100 columns, and a test pins its exact layout.

use std::collections::BTreeSet;

use crate::human::{counted, duration, grouped};
use crate::terminal::aligned;
use contexture::prompt_cache::CacheTtl;
use contexture::replay::{CONTEXT_EDITING, ConversationReport, Prices, Report, Row, UNCACHED};

/// The columns of the main table, each with the two lines of its heading.
const COLUMNS: [[&str; 2]; 11] = [
    ["", "engine"],
    ["compac-", "tions"],
    ["model", "calls"],
    ["over-", "flows"],
    ["peak", "prompt"],
    ["mean", "prompt"],
    ["all prompts", "tokens"],
    ["from", "cache"],
    ["", "cost"],
    ["time in", "engine"],
    ["worst", "turn"],
];

/// The columns of the table that says where the money went.
const SHARES: [[&str; 2]; 9] = [
    ["where it", "went"],
    ["system,", "tools"],
    ["messages", "read"],
    ["new", "text"],
    ["after", "pauses"],
    ["rewritten by", "compactions"],
    ["", "cost"],
    ["compactions", "cost"],
    ["compactions", "saved"],
];

/// The columns of the table of single compactions.
const COMPACTIONS: [[&str; 2]; 6] = [
    ["", "compactions"],
    ["before", "request"],
    ["prompt", "before"],
    ["", "after"],
    ["", "cost"],
    ["saved until", "the next one"],
];

/// The most compactions of one engine that are listed one by one.
const SHOWN_COMPACTIONS: usize = 12;

/// Renders a report as text: a heading, the totals as a table, where the money went, what each
/// compaction cost, and a few lines that explain the figures. Tables without rows are left out.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}\n\n", heading(&report.conversations));
    table(
        &mut text,
        &COLUMNS,
        report.totals.iter().map(cells).collect(),
    );
    let shares: Vec<_> = report.totals.iter().filter_map(share_cells).collect();
    if !shares.is_empty() {
        text.push('\n');
        table(&mut text, &SHARES, shares);
    }
    let compactions: Vec<_> = report.totals.iter().flat_map(compaction_cells).collect();
    if !compactions.is_empty() {
        text.push('\n');
        table(&mut text, &COMPACTIONS, compactions);
    }
    text.push('\n');
    for note in notes(report) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// Appends a table with a heading of two lines. The first column is aligned to the left and the
/// others, which have numbers, to the right.
pub(crate) fn table<const N: usize>(
    text: &mut String,
    columns: &[[&str; 2]; N],
    rows: Vec<[String; N]>,
) {
    let heading = [0, 1].map(|line| columns.map(|heading| heading[line].to_owned()));
    let rows: Vec<_> = heading.into_iter().chain(rows).collect();
    for line in aligned(&rows, |column| column > 0) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// Returns a row of the table of costs. None if the row has no shares, as the log's own figures do
/// not. Engines alone have compactions, so other rows have dashes there.
fn share_cells(row: &Row) -> Option<[String; SHARES.len()]> {
    // A row whose cost cannot be split into shares would only have dashes here.
    let shares = row.shares?;
    let costs = || row.work.iter().flat_map(|work| &work.costs);
    let of_work = |sum: f64| {
        row.work
            .as_ref()
            .map_or_else(|| "–".to_owned(), |_| dollars(sum))
    };
    Some([
        row.engine.clone(),
        dollars(shares.fixed_usd),
        dollars(shares.messages_read_usd),
        dollars(shares.new_usd),
        dollars(shares.after_pauses_usd),
        dollars(shares.rewritten_usd),
        dollars(row.cost_usd),
        of_work(costs().map(|one| one.cost_usd).sum()),
        of_work(costs().map(|one| one.saved_usd).sum()),
    ])
}

/// Returns the rows of the table of compactions for one engine. Empty if there are too many to
/// list.
fn compaction_cells(row: &Row) -> Vec<[String; COMPACTIONS.len()]> {
    let costs = row.work.iter().flat_map(|work| &work.costs);
    let cells = costs.map(|one| {
        [
            row.engine.clone(),
            grouped(one.request),
            grouped(one.tokens_before),
            grouped(one.tokens_after),
            // After a cache miss the whole prompt is written anyway, so the compaction itself cost
            // nothing.
            match one.cache_was_cold {
                true => "cache cold".to_owned(),
                false => dollars(one.cost_usd),
            },
            dollars(one.saved_usd),
        ]
    });
    let cells: Vec<_> = cells.collect();
    // A list of dozens of compactions would hide the totals, and the JSON report has them all.
    match cells.len() > SHOWN_COMPACTIONS {
        true => Vec::new(),
        false => cells,
    }
}

/// Returns the first line: the numbers of requests, conversations and messages, and the windows.
fn heading(conversations: &[ConversationReport]) -> String {
    let messages: usize = conversations.iter().map(|one| one.messages).sum();
    let requests: usize = conversations.iter().map(|one| one.requests).sum();
    format!(
        "{} in {} of {}, {}",
        counted(requests as u64, "request"),
        counted(conversations.len() as u64, "conversation"),
        counted(messages as u64, "message"),
        windows(conversations)
    )
}

/// Returns the windows and models in words, such as `window of 100,000 tokens (gpt-5)`. Several
/// windows become a range, several models a number.
fn windows(conversations: &[ConversationReport]) -> String {
    let sizes: BTreeSet<u64> = conversations.iter().map(|one| one.context_length).collect();
    let models: BTreeSet<&str> = conversations.iter().map(|one| one.model.as_str()).collect();
    let window = window_range(sizes.first().copied().zip(sizes.last().copied()));
    match models.into_iter().collect::<Vec<_>>().as_slice() {
        [""] | [] => window,
        [model] => format!("{window} ({model})"),
        several => format!("{window} ({} models)", several.len()),
    }
}

/// Returns the smallest and the largest window in words.
pub(crate) fn window_range(range: Option<(u64, u64)>) -> String {
    match range {
        Some((least, most)) if least < most => {
            format!("windows of {} to {} tokens", grouped(least), grouped(most))
        }
        Some((size, _)) => format!("window of {} tokens", grouped(size)),
        None => "no window".to_owned(),
    }
}

/// Returns a row of the main table. A dash stands for a figure that does not exist without an
/// engine.
fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let prompts = &row.prompts;
    let work = row.work.as_ref();
    let done = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
    [
        match row.failures() {
            0 => row.engine.clone(),
            failures => format!("{} ! {} failed", row.engine, grouped(failures)),
        },
        done(work.map(|work| grouped(work.compactions))),
        done(work.map(|work| grouped(work.model_calls))),
        grouped(prompts.overflows),
        grouped(prompts.peak_prompt_tokens),
        grouped(row.mean_prompt_tokens),
        grouped(prompts.prompt_tokens),
        format!("{:.1} %", row.cache_share * 100.0),
        dollars(row.cost_usd),
        done(work.map(|work| duration(work.engine_ms))),
        done(work.map(|work| duration(work.worst_turn_ms))),
    ]
}

/// Returns an amount of money in US dollars: with cents, or below a dollar with hundredths of
/// cents, since a single conversation often costs less than a cent.
pub(crate) fn dollars(amount: f64) -> String {
    if amount < 1.0 {
        return format!("${amount:.4}");
    }
    let cents = (amount * 100.0).round() as u64;
    format!("${}.{:02}", grouped(cents / 100), cents % 100)
}

/// Returns the lines that explain the figures. Each appears only if the figures that it explains
/// are in the report.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = vec![prices(&report.prices, report.cache_ttl)];
    let is_recorded = |row: &&Row| row.engine == "recorded" && row.source.is_none();
    if let Some(row) = report.totals.iter().find(is_recorded) {
        let requests: usize = report.conversations.iter().map(|one| one.requests).sum();
        let reported = row.prompts.requests;
        let of = if reported == requests as u64 {
            String::new()
        } else {
            let (reported, requests) = (grouped(reported), grouped(requests as u64));
            format!(", which covers {reported} of the {requests} requests")
        };
        notes.push(format!("recorded: the log's own usage{of}."));
    }
    notes.push(
        "none: the recording without an engine, even if it does not fit the window.".to_owned(),
    );
    if report.totals.iter().any(|row| row.engine == UNCACHED) {
        notes.push(format!(
            "{UNCACHED}: the same without markers for the prompt cache. {CONTEXT_EDITING}: the same with the provider's own\n\
             context editing, which clears all tool results but the last three of each prompt beyond 100,000 tokens."
        ));
    }
    let work = || report.totals.iter().filter_map(|row| row.work.as_ref());
    if work().any(|work| !work.costs.is_empty()) {
        notes.push(
            "compactions: writing the prompt to the cache again costs, and the tokens removed from later prompts \
             save.\n\
             If the cache had expired, the whole prompt would have been written again anyway."
                .to_owned(),
        );
    }
    if work().any(|work| work.costs.len() > SHOWN_COMPACTIONS) {
        notes.push(format!(
            "compactions of an engine that made more than {SHOWN_COMPACTIONS} are not shown one by one; --report \
             lists them all."
        ));
    }
    if report.totals.iter().any(|row| row.prompts.overflows > 0) {
        notes
            .push("overflows: prompts larger than the window; a provider refuses them.".to_owned());
    }
    if report.totals.iter().any(|row| row.failures() > 0) {
        notes.push(
            "! failed: requests in which the engine failed or broke the contract. They were sent as the fallback \
             made\n\
             them, or unchanged, so the row does not measure the engine."
                .to_owned(),
        );
    }
    let unseen = report.conversations.iter().map(|one| one.unseen_tokens);
    if let (Some(least), Some(most)) = (unseen.clone().min(), unseen.max())
        && most > 0
    {
        let range = match least == most {
            true => grouped(most),
            false => format!("{} to {}", grouped(least), grouped(most)),
        };
        notes.push(format!(
            "prompts: all rows but `recorded` are counted, with {range} tokens of system prompt and tools that\n\
             the log does not show but its first reported prompt contains."
        ));
    }
    notes
}

/// Returns the note about prices and the lifetime of the cache. It says so if the prices are the
/// list prices of Claude Sonnet.
fn prices(prices: &Prices, ttl: CacheTtl) -> String {
    let whose = if *prices == Prices::sonnet(ttl.at_first()) {
        " (list prices of Claude Sonnet)"
    } else {
        ""
    };
    let lifetime = match ttl {
        CacheTtl::FiveMinutes => "5 minutes",
        CacheTtl::OneHour => "an hour",
        CacheTtl::Auto => "5 minutes or,\nif pauses make that cheaper, an hour",
    };
    let price = |price: f64| {
        // A price has cents, unless it has more digits than those.
        let cents = format!("{price:.2}");
        let exact = price.to_string();
        if exact.len() > cents.len() {
            exact
        } else {
            cents
        }
    };
    format!(
        "cost: of the prompts, at ${} a million tokens, ${} read from the prompt cache, ${} written\n\
         to it{whose}. The cache expires after {lifetime} without use.\n\
         Answers and the engines' own model calls are not included.",
        price(prices.input),
        price(prices.cached),
        price(prices.write),
    )
}

#[cfg(test)]
mod tests;

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
use std::fmt::Write as _;

use crate::human::{counted, duration, grouped};
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
    let rows: Vec<_> = report.totals.iter().map(cells).collect();
    table(&mut text, &COLUMNS, &rows);
    let shares: Vec<_> = report.totals.iter().filter_map(share_cells).collect();
    if !shares.is_empty() {
        text.push('\n');
        table(&mut text, &SHARES, &shares);
    }
    let compactions: Vec<_> = report.totals.iter().flat_map(compaction_cells).collect();
    if !compactions.is_empty() {
        text.push('\n');
        table(&mut text, &COMPACTIONS, &compactions);
    }
    text.push('\n');
    for note in notes(report) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// Appends a table with a heading of two lines. The first column is aligned to the left and the
/// others, which have numbers, to the right. Each column is as wide as its widest cell.
pub(crate) fn table<const N: usize>(
    text: &mut String,
    columns: &[[&str; 2]; N],
    rows: &[[String; N]],
) {
    let width = |column: usize| {
        let heading = columns[column].iter().map(|line| line.chars().count());
        let cells = rows.iter().map(|row| row[column].chars().count());
        heading.chain(cells).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut line = |cells: &[&str]| {
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&columns.map(|[above, _]| above));
    line(&columns.map(|[_, below]| below));
    for row in rows {
        line(&row.each_ref().map(String::as_str));
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
    let window = match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) if least < most => {
            format!(
                "windows of {} to {} tokens",
                grouped(*least),
                grouped(*most)
            )
        }
        (Some(size), _) => format!("window of {} tokens", grouped(*size)),
        _ => "no window".to_owned(),
    };
    match models.into_iter().collect::<Vec<_>>().as_slice() {
        [""] | [] => window,
        [model] => format!("{window} ({model})"),
        several => format!("{window} ({} models)", several.len()),
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
             If the cache had expired, the whole prompt had to be written in any case."
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
mod tests {
    use super::*;
    use contexture::engines::Source;
    use contexture::prompt_cache::Ttl;
    use contexture::replay::{Prompts, Work};

    fn row(engine: &str, prompt_tokens: u64, work: Option<Work>) -> Row {
        let prompts = Prompts {
            requests: 40,
            overflows: u64::from(work.is_none()) * 7,
            peak_prompt_tokens: prompt_tokens / 20,
            prompt_tokens,
            cached_tokens: prompt_tokens / 4 * 3,
            written_tokens: prompt_tokens / 4,
            ..Prompts::default()
        };
        let source = work.as_ref().map(|_| Source::Builtin);
        Row::new(
            engine,
            source,
            prompts,
            work,
            &Prices::sonnet(Ttl::FiveMinutes),
        )
    }

    fn report(rows: Vec<Row>) -> Report {
        let conversation = ConversationReport {
            input: "s.jsonl".into(),
            number: 1,
            messages: 1_090,
            requests: 50,
            model: "claude-sonnet-4-5".into(),
            context_length: 200_000,
            unseen_tokens: 26_798,
            scale: 1.0,
            rows,
        };
        let ttl = CacheTtl::FiveMinutes;
        Report::new(Prices::sonnet(ttl.at_first()), ttl, vec![conversation])
    }

    #[test]
    fn the_table_reads_well_in_100_columns() {
        let work = Work {
            compactions: 12,
            model_calls: 14,
            engine_ms: 1_530.0,
            worst_turn_ms: 31.4,
            ..Work::default()
        };
        let text = render(&report(vec![
            row("recorded", 40_000_000, None),
            row("none", 4_000_000, None),
            row("compressor", 400_000, Some(work)),
        ]));
        let expected = "\
50 requests in 1 conversation of 1,090 messages, window of 200,000 tokens (claude-sonnet-4-5)

            compac-  model  over-       peak       mean  all prompts    from           time in  worst
engine        tions  calls  flows     prompt     prompt       tokens   cache     cost   engine   turn
recorded          –      –      7  2,000,000  1,000,000   40,000,000  75.0 %   $46.50        –      –
none              –      –      7    200,000    100,000    4,000,000  75.0 %    $4.65        –      –
compressor       12     14      0     20,000     10,000      400,000  75.0 %  $0.4650    1.5 s  31 ms

cost: of the prompts, at $3.00 a million tokens, $0.30 read from the prompt cache, $3.75 written
to it (list prices of Claude Sonnet). The cache expires after 5 minutes without use.
Answers and the engines' own model calls are not included.
";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("which covers 40 of the 50 requests"),
            "{text}"
        );
        assert!(text.contains("26,798 tokens of system prompt"), "{text}");
    }

    #[test]
    fn money_has_cents_or_hundredths_of_them() {
        assert_eq!(dollars(0.0), "$0.0000");
        assert_eq!(dollars(0.010_339_8), "$0.0103");
        assert_eq!(dollars(1.0), "$1.00");
        assert_eq!(dollars(12_345.678), "$12,345.68");
        assert!(
            prices(
                &Prices {
                    input: 5.0,
                    cached: 0.125,
                    write: 6.25,
                    write_long: 10.0
                },
                CacheTtl::OneHour
            )
            .contains("$5.00 a million tokens, $0.125 read from the prompt cache, $6.25 written")
        );
    }

    #[test]
    fn nothing_that_is_not_there_is_explained() {
        let mut bare = report(vec![row("none", 0, None)]);
        bare.totals[0].prompts.overflows = 0;
        bare.conversations[0].unseen_tokens = 0;
        let text = render(&bare);
        assert!(
            !text.contains("recorded:") && !text.contains("overflows:"),
            "{text}"
        );
        assert!(!text.contains("does not show"), "{text}");
    }
}

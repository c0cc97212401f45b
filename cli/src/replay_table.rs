//! The table that `contexture replay` prints.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::figures::{counted, duration, grouped};
use contexture::prompt_cache::CacheTtl;
use contexture::replay::{CONTEXT_EDITING, ConversationReport, Prices, Report, Row, UNCACHED};

/// The columns, each with the two lines of its heading.
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

/// Compactions of one engine that are shown one by one.
const SHOWN_COMPACTIONS: usize = 12;

/// The totals as a table, with a line above that says what was played, where the money went, what each compaction
/// cost, and a few lines below that say what the figures mean.
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

/// Appends a table: the first column to the left, the others to the right.
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

fn share_cells(row: &Row) -> Option<[String; SHARES.len()]> {
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

fn compaction_cells(row: &Row) -> Vec<[String; COMPACTIONS.len()]> {
    let costs = row.work.iter().flat_map(|work| &work.costs);
    let cells = costs.map(|one| {
        [
            row.engine.clone(),
            grouped(one.request),
            grouped(one.tokens_before),
            grouped(one.tokens_after),
            match one.cache_was_cold {
                true => "cache cold".to_owned(),
                false => dollars(one.cost_usd),
            },
            dollars(one.saved_usd),
        ]
    });
    let cells: Vec<_> = cells.collect();
    match cells.len() > SHOWN_COMPACTIONS {
        true => Vec::new(),
        false => cells,
    }
}

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

/// `window of 100,000 tokens (gpt-5)`.
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

/// An amount of money: cents, and for less than a dollar hundredths of cents.
pub(crate) fn dollars(amount: f64) -> String {
    if amount < 1.0 {
        return format!("${amount:.4}");
    }
    let cents = (amount * 100.0).round() as u64;
    format!("${}.{:02}", grouped(cents / 100), cents % 100)
}

/// What the figures mean.
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
    notes.push("none: the recording without an engine, whether it fits or not.".to_owned());
    if report.totals.iter().any(|row| row.engine == UNCACHED) {
        notes.push(format!(
            "{UNCACHED}: the same without markers for the prompt cache. {CONTEXT_EDITING}: the same with the provider's own\n\
             context editing, which clears all tool results but the last three of each prompt beyond 100,000 tokens."
        ));
    }
    let work = || report.totals.iter().filter_map(|row| row.work.as_ref());
    if work().any(|work| !work.costs.is_empty()) {
        notes.push(
            "compactions: what they had written anew costs, what they took out of later prompts saves. Where the cache\n\
             had forgotten the prompt, all of it was to be written in any case."
                .to_owned(),
        );
    }
    if work().any(|work| work.costs.len() > SHOWN_COMPACTIONS) {
        notes.push(format!(
            "compactions of an engine that made more than {SHOWN_COMPACTIONS} are not shown one by one; --report has \
             them all."
        ));
    }
    if report.totals.iter().any(|row| row.prompts.overflows > 0) {
        notes
            .push("overflows: prompts larger than the window; a provider refuses them.".to_owned());
    }
    if report.totals.iter().any(|row| row.failures() > 0) {
        notes.push(
            "! failed: requests in which the engine failed or broke the contract. What was sent then is what stood in\n\
             for it, or nothing did, so the row's figures are no measure of the engine."
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
            "prompts: all but the recorded are counted, with {range} tokens of system prompt and tools that\n\
             the log does not show, as its first reported prompt tells."
        ));
    }
    notes
}

fn prices(prices: &Prices, ttl: CacheTtl) -> String {
    let whose = if *prices == Prices::sonnet(ttl.at_first()) {
        " (list prices of Claude Sonnet)"
    } else {
        ""
    };
    let lifetime = match ttl {
        CacheTtl::FiveMinutes => "5 minutes",
        CacheTtl::OneHour => "an hour",
        CacheTtl::Auto => "5 minutes or,\nwhere pauses make that cheaper, an hour",
    };
    let price = |price: f64| {
        // Cents, unless the price has more than those.
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
         to it{whose}. The cache forgets what was not used for {lifetime}.\n\
         Answers and an engine's own model calls are not in it.",
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
to it (list prices of Claude Sonnet). The cache forgets what was not used for 5 minutes.
Answers and an engine's own model calls are not in it.
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

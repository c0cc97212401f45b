//! The report of a compaction as a person reads it.
//!
//! [`summary`] is the full report on one conversation, [`line()`] a single line for each of
//! several, and [`total`] the sum of them. All return text with or without colours and print
//! nothing themselves. The JSON report is the serialised `CompactionReport` and does not come from
//! here.
//!
//! Reasons and notes come from engines, so they are masked and made visible before they are shown.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::human::{counted, duration, grouped};
use crate::terminal::visible;
use contexture::engines::Source;
use contexture::mask_secrets;
use contexture::session::{AgentWindow, CompactionReport, OutcomeKind};

const GOOD: Style = AnsiColor::Green.on_default().bold();
const PLAIN: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Returns the origin of an engine in words, as it stands in brackets behind its name.
pub(crate) fn source(source: Source) -> &'static str {
    match source {
        Source::Builtin => "built in",
        Source::Registered => "registered in this program",
        Source::Plugin => "plugin",
    }
}

/// Returns the result in a few words, and its colour. Results that need attention are red.
fn headline(report: &CompactionReport, colors: bool) -> (&'static str, Style) {
    let (words, style) = match report.outcome {
        OutcomeKind::Compacted => ("compacted", GOOD),
        OutcomeKind::NothingToDo => ("nothing to do", PLAIN),
        OutcomeKind::Deferred => ("not now", PLAIN),
        OutcomeKind::FloorTooHigh => ("cannot be made to fit", BAD),
        OutcomeKind::Failed => ("failed, unchanged", BAD),
    };
    (words, if colors { style } else { Style::new() })
}

/// Returns text of an engine as it may be shown, with secrets masked and control characters shown.
fn shown(text: &str) -> String {
    visible(&mask_secrets(text)).into_owned()
}

/// Returns the report on one conversation, with one row for each fact. `origin` is the library or
/// crate that the engine came from. If nothing was compacted, the rows say why and how large the
/// conversation is.
pub(crate) fn summary(
    report: &CompactionReport,
    origin: &str,
    agent: &AgentWindow,
    colors: bool,
) -> String {
    let (words, style) = headline(report, colors);
    let mut text = format!("{style}{words}{style:#}\n");
    let mut row = |label: &str, value: &str| {
        let _ = writeln!(text, "  {label:<10}{}", shown(value));
    };
    let engine = match report.source {
        Source::Builtin => format!("{} (built in)", report.engine),
        from => format!("{} ({}: {origin})", report.engine, source(from)),
    };
    row("engine", &engine);
    if report.outcome == OutcomeKind::Compacted {
        let [messages, tokens] = sizes(report, agent);
        row("messages", &messages);
        row("tokens", &tokens);
        row("", &what_became(report));
    } else {
        row("reason", &report.reason);
        let size = format!(
            "{}, {} tokens of a window of {}",
            counted(report.messages_before as u64, "message"),
            grouped(report.tokens_before),
            grouped(agent.context_length)
        );
        row("size", &size);
    }
    let calls = counted(report.model_calls, "model call");
    row("cost", &format!("{calls}, {}", duration(report.elapsed_ms)));
    // An engine that says why needs no other note.
    if report.degraded && report.notes.is_empty() {
        row(
            "note",
            "the model did not write the summary: it is a digest of the messages",
        );
    }
    // The report has no field for a conversation that is still too large, so its reason tells it.
    if report.outcome == OutcomeKind::Compacted && report.reason.contains("still above") {
        row("note", &report.reason);
    }
    for note in &report.notes {
        row("note", note);
    }
    text
}

/// Returns the report on one of several conversations as a line with its number.
pub(crate) fn line(report: &CompactionReport, number: usize, count: usize, colors: bool) -> String {
    let width = count.to_string().len();
    format!("{number:>width$}/{count}  {}\n", brief(report, colors))
}

/// Returns what came of a compaction in a few words: the sizes before and after, or the reason why
/// nothing was compacted.
pub(crate) fn brief(report: &CompactionReport, colors: bool) -> String {
    let (words, style) = headline(report, colors);
    let figures = match report.outcome {
        OutcomeKind::Compacted => format!(
            "{} → {} messages, {} → {} tokens",
            grouped(report.messages_before as u64),
            grouped(report.messages_after as u64),
            grouped(report.tokens_before),
            grouped(report.tokens_after)
        ),
        _ => shown(&report.reason),
    };
    format!("{style}{words}{style:#}  {figures}")
}

/// Returns the sum of the reports on several conversations: how many were compacted, the tokens
/// before and after, the model calls and the time.
pub(crate) fn total(reports: &[CompactionReport], colors: bool) -> String {
    let sum = |of: fn(&CompactionReport) -> u64| reports.iter().map(of).sum::<u64>();
    let compacted = reports
        .iter()
        .filter(|report| report.outcome == OutcomeKind::Compacted)
        .count();
    let style = if colors { PLAIN } else { Style::new() };
    let before = sum(|report| report.tokens_before);
    let after = sum(|report| report.tokens_after);
    let elapsed: f64 = reports.iter().map(|report| report.elapsed_ms).sum();
    format!(
        "{style}{} of {} compacted{style:#}: {} → {} tokens ({}), {}, {}\n",
        grouped(compacted as u64),
        counted(reports.len() as u64, "conversation"),
        grouped(before),
        grouped(after),
        less(before, after),
        counted(sum(|report| report.model_calls), "model call"),
        duration(elapsed)
    )
}

/// Returns how much smaller `after` is in percent, in words. If it is larger, the text says so.
fn less(before: u64, after: u64) -> String {
    let share = 100.0 * before.abs_diff(after) as f64 / before.max(1) as f64;
    if after > before {
        return format!("{share:.0} % more");
    }
    // 99.8 % must not be rounded to 100 %, which would mean that nothing is left.
    let decimals = usize::from(share > 99.0);
    format!("{share:.decimals$} % less")
}

/// Returns the rows on messages and tokens, with the numbers before and after aligned under each
/// other.
fn sizes(report: &CompactionReport, agent: &AgentWindow) -> [String; 2] {
    let cells = [
        (report.messages_before as u64, report.messages_after as u64),
        (report.tokens_before, report.tokens_after),
    ]
    .map(|(before, after)| (grouped(before), grouped(after)));
    let width = |cell: fn(&(String, String)) -> usize| cells.iter().map(cell).max().unwrap_or(0);
    let (left, right) = (width(|cell| cell.0.len()), width(|cell| cell.1.len()));
    let [messages, tokens] =
        cells.map(|(before, after)| format!("{before:>left$} → {after:>right$}"));
    let filled = 100.0 * report.tokens_after as f64 / agent.context_length.max(1) as f64;
    let tokens = format!(
        "{tokens}  ({}; {filled:.0} % of a window of {})",
        less(report.tokens_before, report.tokens_after),
        grouped(agent.context_length)
    );
    [messages, tokens]
}

/// Returns what happened to the messages: how many were kept, shortened, summarised, dropped and
/// inserted.
fn what_became(report: &CompactionReport) -> String {
    format!(
        "{} kept, {} shortened, {} summarised, {} dropped; {} inserted",
        grouped(report.kept as u64),
        grouped(report.replaced as u64),
        grouped(report.summarised as u64),
        grouped(report.dropped as u64),
        grouped(report.inserted as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_without_the_model_has_one_note_which_is_the_engines_if_it_has_any() {
        let window = AgentWindow::new("m", 1_000, 100);
        let notes = |notes: Vec<String>| {
            let report = CompactionReport {
                engine: "compressor".to_owned(),
                source: Source::Builtin,
                outcome: OutcomeKind::Compacted,
                reason: String::new(),
                messages_before: 3,
                messages_after: 2,
                tokens_before: 900,
                tokens_after: 300,
                kept: 1,
                summarised: 2,
                inserted: 1,
                degraded: true,
                model_calls: 1,
                elapsed_ms: 1.0,
                notes,
                ..CompactionReport::default()
            };
            let text = summary(&report, "", &window, false);
            let notes = text.lines().filter(|line| line.starts_with("  note"));
            notes.map(str::to_owned).collect::<Vec<_>>()
        };
        let own = notes(vec!["the summary model declined".to_owned()]);
        assert_eq!(own, ["  note      the summary model declined"]);
        assert_eq!(notes(Vec::new()).len(), 1);
    }

    #[test]
    fn all_but_nothing_is_not_all() {
        assert_eq!(less(3, 2), "33 % less");
        assert_eq!(less(498_000, 1_175), "99.8 % less");
        assert_eq!(less(0, 0), "0 % less");
        assert_eq!(less(60, 245), "308 % more");
    }
}

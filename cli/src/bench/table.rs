//! The output of `contexture bench sessions` for people and for spreadsheets.
//!
//! [`render`] writes a table of the totals and, if they were asked for, one for each session. [`csv`]
//! writes the same rows as comma-separated values, one line for each.

use std::fmt::Write as _;

use super::Comparison;
use super::score::{DEARER, Score};
use crate::human::{counted, grouped};
use crate::replay_table::{dollars, table, window_range};
use contexture::config::Timing;

/// The columns of a table, each with the two lines of its heading.
const COLUMNS: [[&str; 2]; 11] = [
    ["", "engine"],
    ["", "timing"],
    ["", "cost"],
    ["of", "none"],
    ["dearest", "session"],
    ["compac-", "tions"],
    ["over-", "flows"],
    ["needed,", "in window"],
    ["commands,", "in window"],
    ["rules,", "in window"],
    ["", ""],
];

/// The header of the comma-separated values.
const CSV_HEADER: &str = "input,session,context_length,engine,timing,sessions,requests,prompt_tokens,\
    cost_usd,none_usd,cost_ratio,worst_ratio,dearer_sessions,compactions,overflows,failures,\
    needed,needed_in_window,commands,commands_in_window,rules,rules_in_window\n";

/// Renders the comparison as text: a heading, the totals, the sessions, and notes on the columns.
pub(super) fn render(found: &Comparison) -> String {
    let mut text = String::new();
    for session in &found.sessions {
        let _ = writeln!(
            text,
            "{}, session {}: {} of {}, window of {} tokens\n",
            session.input,
            session.number,
            counted(
                session.rows.first().map_or(0, |row| row.requests),
                "request"
            ),
            counted(session.messages as u64, "message"),
            grouped(session.context_length)
        );
        rows(&session.rows, &mut text);
        text.push('\n');
    }
    let sessions = found.totals.first().map_or(0, |row| row.sessions);
    let requests = found.totals.first().map_or(0, |row| row.requests);
    let windows = window_range(found.windows);
    let _ = writeln!(
        text,
        "{} in {} of {}, {windows}\n",
        counted(requests, "request"),
        counted(sessions, "session"),
        counted(found.logs as u64, "log"),
    );
    rows(&found.totals, &mut text);
    let _ = write!(
        text,
        "\nof none: the cost divided by that without an engine, prompt cache included. dearest session: the\n\
         largest such ratio; ! and a number: sessions above {DEARER}.\n\
         overflows: prompts larger than the window; a provider refuses them.\n\
         needed, commands, rules: of what the agent goes on to use, of the commands that it runs again, and of\n\
         what the user told it to do always or never, the share that was in the window after a compaction.\n\
         What an engine shortens without a compaction, as two-layer does before each request, is not in these shares.\n"
    );
    text
}

fn rows(scores: &[Score], text: &mut String) {
    table(text, &COLUMNS, scores.iter().map(cells).collect());
}

fn cells(score: &Score) -> [String; COLUMNS.len()] {
    let none = score.timing.is_none();
    let dash = || "–".to_owned();
    let share = |part: u64, of: u64| match of {
        0 => dash(),
        of => format!("{:.1} %", 100.0 * part as f64 / of as f64),
    };
    let kept = &score.kept;
    [
        score.engine.clone(),
        score
            .timing
            .map_or_else(dash, |timing| timing.name().to_owned()),
        dollars(score.cost_usd),
        format!("{:.3}", score.cost_ratio),
        format!("{:.3}", score.worst_ratio),
        if none {
            dash()
        } else {
            grouped(score.compactions)
        },
        grouped(score.overflows),
        share(kept.needed_in_window, kept.needed),
        share(kept.commands_in_window, kept.commands),
        share(kept.rules_in_window, kept.rules),
        match (score.failures, score.dearer_sessions) {
            (0, 0) => String::new(),
            (0, dearer) => format!("! {} dearer", grouped(dearer)),
            (failures, _) => format!("! {} failed", grouped(failures)),
        },
    ]
}

/// Renders the rows as comma-separated values. The rows of the totals have no input.
pub(super) fn csv(found: &Comparison) -> String {
    let mut text = CSV_HEADER.to_owned();
    for session in &found.sessions {
        let input = quoted(&session.input);
        let place = format!("{input},{},{}", session.number, session.context_length);
        for row in &session.rows {
            csv_row(&place, row, &mut text);
        }
    }
    for row in &found.totals {
        csv_row(",,", row, &mut text);
    }
    text
}

fn csv_row(place: &str, score: &Score, text: &mut String) {
    let kept = &score.kept;
    let _ = write!(text, "{place},{},", quoted(&score.engine));
    let _ = write!(text, "{},", score.timing.map_or("", Timing::name));
    let _ = write!(
        text,
        "{},{},{},",
        score.sessions, score.requests, score.prompt_tokens
    );
    let _ = write!(
        text,
        "{:.6},{:.6},{:.4},{:.4},{},",
        score.cost_usd, score.none_usd, score.cost_ratio, score.worst_ratio, score.dearer_sessions
    );
    let _ = write!(
        text,
        "{},{},{},",
        score.compactions, score.overflows, score.failures
    );
    let _ = writeln!(
        text,
        "{},{},{},{},{},{}",
        kept.needed,
        kept.needed_in_window,
        kept.commands,
        kept.commands_in_window,
        kept.rules,
        kept.rules_in_window
    );
}

/// Quotes a value if a comma, a quote or a line break in it would end it.
fn quoted(value: &str) -> String {
    match value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}

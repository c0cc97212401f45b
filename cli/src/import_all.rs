//! `contexture import --all`: reads the logs of every agent on this machine into the history.
//!
//! [`run`] prints what was read of each agent as JSON. What was skipped, and why, goes to stderr as
//! well. With `--watch` it looks again every few seconds, until Ctrl-C. An import that is stopped
//! keeps what it read, and the next one goes on there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use contexture::history::{FILE_NAME, ImportReport, Importer, Places, agents};
use serde_json::json;

use crate::error::CliError;
use crate::human::counted;
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::terminal::{self, Progress};
use crate::{Global, OK, output, start};

/// How often `--watch` looks at the logs. A log that did not change is not opened, so a look costs
/// little.
const INTERVAL: Duration = Duration::from_secs(2);

/// The most skipped logs that are shown. The JSON has all.
const SHOWN: usize = 20;

/// Imports, and prints the report. Returns 130 if Ctrl-C stopped the first import, and 0 otherwise.
///
/// # Errors
/// Fails if a named file or folder does not exist, if the history cannot be written, or if another
/// import is running.
pub(crate) fn run(named: &[PathBuf], watch: bool, global: &Global) -> Result<u8, CliError> {
    for path in named {
        std::fs::metadata(path).map_err(CliError::read(path))?;
    }
    let loaded = start::load_config(global)?;
    let variable = |name: &str| std::env::var_os(name);
    let places = Places::of_process(&variable).ok_or_else(|| {
        CliError::usage(
            "the home directory of the user is not known",
            "set HOME, or name the logs: contexture import --all PATH",
        )
    })?;
    let mut importer =
        Importer::open(&loaded.home, loaded.config.transcript.redact).map_err(CliError::History)?;
    let interrupt = Interrupt::listen();
    let progress = Progress::bytes("reading logs");
    let report = importer.run(&places, named, &mut |now| {
        progress.reach(now.done, now.total);
        !interrupt.is_pressed()
    });
    drop(progress);
    let mut report = report.map_err(CliError::History)?;
    say_skipped(&report);
    if report.agents.is_empty() && report.skipped.is_empty() {
        let known = agents().join(", ");
        terminal::say(&format!("no logs were found; known are those of {known}\n"));
    }
    let is_stopped = report.stopped;
    if is_stopped {
        terminal::say("stopped; what was read is stored, and the next import goes on there\n");
    }
    let mut pause = INTERVAL;
    if watch && !is_stopped {
        terminal::say("watching the logs; Ctrl-C ends\n");
    }
    while watch && !interrupt.is_pressed() {
        wait(pause, &interrupt);
        let started = Instant::now();
        let more = importer.run(&places, named, &mut |_| !interrupt.is_pressed());
        let more = more.map_err(CliError::History)?;
        // Looking at very many logs must not keep the machine busy.
        pause = INTERVAL.max(started.elapsed() * 10);
        for (agent, read) in more.agents.iter().filter(|(_, read)| read.messages > 0) {
            let messages = counted(read.messages, "message");
            terminal::say(&format!("{agent}: {messages}\n"));
        }
        add(&mut report, more);
    }
    output::print_json(&json!({
        "history": loaded.home.join(FILE_NAME),
        "messages": report.messages(),
        "agents": report.agents,
        "skipped": report.skipped,
    }))?;
    Ok(if is_stopped { INTERRUPTED } else { OK })
}

/// Waits, and ends early if the user presses Ctrl-C.
fn wait(pause: Duration, interrupt: &Interrupt) {
    let started = Instant::now();
    while started.elapsed() < pause && !interrupt.is_pressed() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Adds what a later round read.
fn add(report: &mut ImportReport, more: ImportReport) {
    for (agent, read) in more.agents {
        let sum = report.agents.entry(agent).or_default();
        sum.logs = read.logs;
        sum.read += read.read;
        sum.bytes += read.bytes;
        sum.messages += read.messages;
    }
    for skipped in more.skipped {
        // A log that cannot be read is tried again in every round.
        if !report
            .skipped
            .iter()
            .any(|known| known.path == skipped.path && known.why == skipped.why)
        {
            terminal::say(&format!(
                "skipped {}: {}\n",
                skipped.path.display(),
                skipped.why
            ));
            report.skipped.push(skipped);
        }
    }
}

fn say_skipped(report: &ImportReport) {
    for skipped in report.skipped.iter().take(SHOWN) {
        let what = match skipped.parts {
            0 => "skipped".to_owned(),
            parts => format!("skipped {} of", counted(parts, "part")),
        };
        terminal::say(&format!(
            "{what} {}: {}\n",
            skipped.path.display(),
            skipped.why
        ));
    }
    if let Some(more) = report
        .skipped
        .len()
        .checked_sub(SHOWN)
        .filter(|more| *more > 0)
    {
        terminal::say(&format!(
            "skipped {} as well, listed in the output\n",
            counted(more as u64, "log")
        ));
    }
}

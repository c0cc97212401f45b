//! What depends on the terminal: colours, the log, progress.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use anstyle::Style;
use contexture::mask_secrets;
use contexture_engine_api::printable;
use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::EnvFilter;

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// Whether a stream gets colours that is a terminal or is not.
    pub(crate) fn on(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                is_terminal && !set("NO_COLOR") && !dumb
            }
        }
    }
}

/// Sends the log to stderr. `RUST_LOG` says more finely than `-v` what is logged.
pub(crate) fn log_to_stderr(verbose: u8) {
    let filter = match verbose {
        // A session's warnings are printed by the command that opened it, and not twice.
        0 => EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| EnvFilter::new("warn,contexture_session=error")),
        1 => EnvFilter::new("warn,contexture=info"),
        2 => EnvFilter::new("warn,contexture=debug"),
        _ => EnvFilter::new("trace"),
    };
    // Only a program that calls `run` after a subscriber of its own was set gets an error here; its own
    // stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| VisibleStderr)
        // Nobody could tell its colours from those in what it quotes.
        .with_ansi(false)
        .without_time()
        .with_target(verbose > 1)
        .try_init();
}

/// Text as it may be shown at a terminal: control characters are visible, whoever wrote them. The colours of the
/// command are put around it afterwards.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    printable(text, usize::MAX)
}

/// Text that somebody else wrote, in one line of at most `limit` characters, its secrets masked.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let masked = mask_secrets(text);
    let words: Vec<_> = masked.split_whitespace().collect();
    printable(&words.join(" "), limit).into_owned()
}

/// Writes text to stderr. What is told there may be kept in a log, so that secrets which it quotes are masked. A
/// closed stderr is ignored.
pub(crate) fn say(text: &str) {
    say_styled(&visible(&mask_secrets(text)));
}

/// The same of text with colours, of which all else is [`visible`] and masked.
pub(crate) fn say_styled(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Stderr for the log, line by line as [`say`] has it.
struct VisibleStderr;

impl Write for VisibleStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        std::io::stderr().write_all(visible(&mask_secrets(&text)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A warning as it is shown.
pub(crate) fn warning(what: &str) -> String {
    format!("warning: {}", what.trim_end().replace('\n', "\n  "))
}

/// How far a long piece of work is; shown on stderr where that is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `steps` steps, or for one step a spinner.
    pub(crate) fn new(steps: usize, what: &str) -> Self {
        let (bar, template) = if steps > 1 {
            (
                ProgressBar::new(steps as u64),
                "{msg} {wide_bar} {human_pos}/{human_len}",
            )
        } else {
            (ProgressBar::new_spinner(), "{spinner} {msg} ({elapsed})")
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// So many steps of so many are done.
    pub(crate) fn reach(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Writes text to stderr above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.0.suspend(|| say(text));
    }

    /// As [`say_styled`].
    pub(crate) fn say_styled(&self, text: &str) {
        self.0.suspend(|| say_styled(text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Columns of text, [`visible`] and as wide as they need; the last one runs on. Columns of numbers end where their heading does.
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
    numbers: &'static [&'static str],
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(head: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![head.map(ToOwned::to_owned)],
            numbers: &[],
        }
    }

    /// The same, with numbers in the columns of these headings.
    pub(crate) fn with_numbers(mut self, numbers: &'static [&'static str]) -> Self {
        self.numbers = numbers;
        self
    }

    pub(crate) fn row(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(|cell| visible(cell).into_owned()));
    }

    pub(crate) fn render(&self, colors: bool) -> String {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            let padded: Vec<_> = row
                .iter()
                .zip(&self.rows[0])
                .zip(widths)
                .filter(|(_, width)| *width > 0)
                .map(
                    |((cell, head), width)| match self.numbers.contains(&head.as_str()) {
                        true => format!("{cell:>width$}"),
                        false => format!("{cell:<width$}"),
                    },
                )
                .collect();
            let line = padded.join("  ");
            let style = match at {
                0 if colors => Style::new().bold(),
                _ => Style::new(),
            };
            text.push_str(&format!("{style}{}{style:#}\n", line.trim_end()));
        }
        text
    }
}

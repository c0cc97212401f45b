//! Everything that depends on the terminal: colours, progress bars and tables.
//!
//! What is meant for people goes to stderr by way of [`say`], while results go to stdout, see
//! `output`. Text that somebody else wrote, such as a message or a file name, may hold secrets and
//! control characters. Every function here therefore masks the former and shows the latter, or
//! documents that its caller does.
//!
//! Read [`say`] and [`visible`] first. [`Progress`] and [`Table`] are the two widgets that several
//! commands share. [`ColorChoice`] is the option `--color`.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use anstyle::Style;
use contexture::mask_secrets;
use contexture_engine_api::printable;
use indicatif::{ProgressBar, ProgressStyle};

/// When to use colours, as the option `--color` takes it. The default is to use them on a terminal
/// only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// Returns whether a stream gets colours. With `auto` it does if it is a terminal, `NO_COLOR`
    /// is not set to anything, and `TERM` is not `dumb`.
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

/// Returns text as it may be shown at a terminal: control characters are replaced by visible
/// escapes, whoever wrote them. Colours of the command itself are put around the text afterwards.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    printable(text, usize::MAX)
}

/// Returns text that somebody else wrote in one line of at most `limit` characters. White space is
/// collapsed, secrets are masked and control characters are shown.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let masked = mask_secrets(text);
    let words: Vec<_> = masked.split_whitespace().collect();
    printable(&words.join(" "), limit).into_owned()
}

/// Writes text to stderr, with secrets masked and control characters shown, because stderr often
/// ends up in a log. If stderr is closed, the text is dropped.
pub(crate) fn say(text: &str) {
    say_styled(&visible(&mask_secrets(text)));
}

/// Writes text that has colours to stderr. Everything else in it must be masked and [`visible`]
/// already.
pub(crate) fn say_styled(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes a warning to stderr, as [`say`] does.
pub(crate) fn warn(what: &str) {
    say(&format!("{}\n", warning(what)));
}

/// Writes a note to stderr, as [`say`] does: what the user may want to know although nothing is
/// wrong.
pub(crate) fn note(what: &str) {
    say(&format!("note: {what}\n"));
}

/// Returns a warning as it is shown: with its prefix, and with all further lines indented.
pub(crate) fn warning(what: &str) -> String {
    format!("warning: {}", what.trim_end().replace('\n', "\n  "))
}

/// The progress of a long piece of work. It is shown on stderr if that is a terminal, and removed
/// when this value is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Shows a bar over `steps` steps. For a single step it is a spinner with the time elapsed.
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

    /// Shows a bar over bytes, with the time that is left. [`Progress::reach`] moves it.
    pub(crate) fn bytes(what: &str) -> Self {
        let progress = Self::new(2, what);
        let template = "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.0.set_style(style);
        }
        progress
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Sets the bar to `done` of `total` steps. The total may change while the work goes on.
    pub(crate) fn reach(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Writes text to stderr above the bar, as [`say`] does. Writing around it would leave parts of
    /// the bar on the screen.
    pub(crate) fn say(&self, text: &str) {
        self.0.suspend(|| say(text));
    }

    /// Writes text with colours above the bar, as [`say_styled`] does.
    pub(crate) fn say_styled(&self, text: &str) {
        self.0.suspend(|| say_styled(text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A table of text. Each cell is [`visible`], each column is as wide as its widest cell, and empty
/// columns are left out. Columns of numbers are aligned to the right.
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

    /// Aligns the columns with these headings to the right, as numbers are.
    pub(crate) fn with_numbers(mut self, numbers: &'static [&'static str]) -> Self {
        self.numbers = numbers;
        self
    }

    pub(crate) fn row(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(|cell| visible(cell).into_owned()));
    }

    pub(crate) fn render(&self, colors: bool) -> String {
        let is_number = |column: usize| self.numbers.contains(&self.rows[0][column].as_str());
        let mut text = String::new();
        for (at, line) in aligned(&self.rows, is_number).enumerate() {
            let style = match at {
                0 if colors => Style::new().bold(),
                _ => Style::new(),
            };
            text.push_str(&format!("{style}{line}{style:#}\n"));
        }
        text
    }
}

/// Returns rows as lines. Each column is as wide as its widest cell, and empty columns are left
/// out. `is_number` says which columns are aligned to the right.
pub(crate) fn aligned<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    is_number: impl Fn(usize) -> bool,
) -> impl Iterator<Item = String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        (column, cells.max().unwrap_or_default())
    };
    let widths: Vec<_> = (0..COLUMNS)
        .map(width)
        .filter(|(_, width)| *width > 0)
        .collect();
    rows.iter().map(move |row| {
        let padded = widths.iter().map(|(column, width)| {
            let cell = &row[*column];
            match is_number(*column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    })
}

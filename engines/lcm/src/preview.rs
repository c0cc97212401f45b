//! The preview that replaces a large text in the window.
//!
//! A preview should let a reader decide whether the whole text is worth reading. What is useful
//! depends on the kind of the text: the shape of JSON, the definitions in source code, the errors
//! of a log, the header of a table. [`TextKind::of`] recognises the kind from the first lines, and
//! [`preview`] writes the preview. Both accept any text, since tool results may contain anything.

mod shape;

use shape::Shape;

/// What a text looks like. It is a guess from its first lines and decides only how the text is
/// previewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextKind {
    /// One JSON object or array, or several JSON values with one on each line.
    Json,
    /// Rows with the same number of fields, separated by commas, semicolons or tabs.
    Csv,
    /// Source code, recognised by definitions, comments and the ends of its lines.
    Code,
    /// A log, whose lines begin with a time or contain a level such as `WARN`.
    Log,
    /// Any other text, which is previewed by its beginning and its end.
    Text,
}

/// The number of lines that are read to recognise the kind of a text. Blank lines do not count.
const SAMPLE_LINES: usize = 60;

/// The number of characters after which a line in a preview is cut, since minified code and logs
/// can have very long lines.
const LINE_CHARS: usize = 160;

impl TextKind {
    /// Recognises the kind of `text` from its first lines. JSON is recognised by parsing, which
    /// reads the whole text if it is one value.
    pub fn of(text: &str) -> Self {
        look_at(text).0
    }

    fn of_other_than_json(text: &str) -> Self {
        let sample: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .take(SAMPLE_LINES)
            .collect();
        let share = |matches: fn(&str) -> bool| {
            let hits = sample.iter().filter(|line| matches(line)).count();
            hits as f64 / sample.len().max(1) as f64
        };
        // The order matters: a log may have the separators of a table, and a table may look like
        // code.
        if share(is_log_line) > 0.4 {
            Self::Log
        } else if separator(&sample).is_some() {
            Self::Csv
        } else if share(looks_like_code) > 0.3 {
            Self::Code
        } else {
            Self::Text
        }
    }

    /// Returns the name of the kind: `json`, `csv`, `code`, `log` or `text`. Tools show it to the
    /// model.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Code => "code",
            Self::Log => "log",
            Self::Text => "text",
        }
    }
}

/// Returns a preview of `text` with about `max_chars` characters at most. It shows the shape of
/// JSON, the definitions in code, the head, tail and errors of a log, the header and first rows of
/// a table, and the beginning and end of anything else. Only an empty text has an empty preview.
pub fn preview(text: &str, max_chars: usize) -> String {
    kind_and_preview(text, max_chars).1
}

/// Returns the kind of `text` together with its [`preview`]. Use it if both are needed, so that the
/// text is analysed once.
pub(crate) fn kind_and_preview(text: &str, max_chars: usize) -> (TextKind, String) {
    let (kind, shape) = look_at(text);
    let mut out = match (kind, shape) {
        (TextKind::Json, Some(shape)) => shape.in_chars(max_chars),
        (TextKind::Json, None) => json_lines_preview(text),
        (TextKind::Csv, _) => csv_preview(text),
        (TextKind::Code, _) => code_preview(text),
        (TextKind::Log, _) => log_preview(text),
        (TextKind::Text, _) => ends_preview(text, max_chars),
    };
    // The preview is empty if, for example, code contains no definition.
    if out.trim().is_empty() || out.chars().count() > max_chars {
        out = clip(&out, text, max_chars);
    }
    (kind, out)
}

/// Recognises the kind of `text`, and returns the shape as well if it is one JSON value.
fn look_at(text: &str) -> (TextKind, Option<Shape>) {
    // Parsing a large text costs time, and no other text can be an object or an array.
    if text.trim_start().starts_with(['{', '[']) {
        if let Ok(shape) = Shape::of(text) {
            return (TextKind::Json, Some(shape));
        }
        if is_json_lines(text) {
            return (TextKind::Json, None);
        }
    }
    (TextKind::of_other_than_json(text), None)
}

fn clip(preview: &str, text: &str, max_chars: usize) -> String {
    if preview.trim().is_empty() {
        return ends_preview(text, max_chars);
    }
    let mut clipped: String = preview.chars().take(max_chars.saturating_sub(1)).collect();
    clipped.push('…');
    clipped
}

fn is_json_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_value = |line: &str| serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok();
    let sample: Vec<&str> = lines.by_ref().take(SAMPLE_LINES).collect();
    sample.len() > 1 && sample.iter().all(|line| is_value(line))
}

fn is_log_line(line: &str) -> bool {
    let head: String = line.chars().take(48).collect();
    let digits = head.bytes().take(24).filter(u8::is_ascii_digit).count();
    let has_time = head.as_bytes().windows(5).any(|w| {
        w[0].is_ascii_digit() && w[1].is_ascii_digit() && w[2] == b':' && w[3].is_ascii_digit()
    });
    has_time && digits >= 6 || LEVELS.iter().any(|level| head.contains(level))
}

const LEVELS: [&str; 8] = [
    "INFO", "WARN", "ERROR", "DEBUG", "TRACE", "FATAL", "[info]", "[error]",
];

fn looks_like_code(line: &str) -> bool {
    let trimmed = line.trim();
    trimmed.ends_with([';', '{', '}', ':'])
        && (trimmed.contains(['(', '=', '{', '}']) || starts_definition(trimmed))
        || starts_definition(trimmed)
        || [
            "//", "/*", "import ", "from ", "use ", "return ", "#include",
        ]
        .iter()
        .any(|start| trimmed.starts_with(start))
}

const DEFINITIONS: [&str; 20] = [
    "fn ", "pub ", "def ", "class ", "func ", "function ", "struct ", "enum ", "trait ", "impl ",
    "interface ", "type ", "mod ", "export ", "async ", "const ", "static ", "public ", "private ",
    "namespace ",
];

fn starts_definition(trimmed: &str) -> bool {
    DEFINITIONS.iter().any(|start| trimmed.starts_with(start))
}

/// Returns the separator that gives all of the lines the same number of fields, at least two.
/// Returns None if there is none or if there are fewer than three lines, which could agree by
/// chance.
fn separator(lines: &[&str]) -> Option<char> {
    [',', '\t', ';'].into_iter().find(|separator| {
        let fields = |line: &&str| fields(line, *separator).count();
        let first = lines.first().map_or(0, fields);
        first > 1 && lines.len() > 2 && lines.iter().all(|line| fields(line) == first)
    })
}

/// Splits a line into its fields. A separator inside double quotes does not separate.
fn fields(line: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |c| {
        if c == '"' {
            quoted = !quoted;
        }
        c == separator && !quoted
    })
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

fn json_lines_preview(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.clone().next().unwrap_or_default();
    let shown = Shape::of(first).map_or_else(|_| shorten(first), |shape| shape.shown(2));
    format!(
        "{} JSON values, one a line; the first:\n{shown}",
        lines.count()
    )
}

fn csv_preview(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(SAMPLE_LINES)
        .collect();
    let header = lines.first().copied().unwrap_or_default();
    let columns = separator(&lines).map_or(0, |separator| fields(header, separator).count());
    // The first line is the header.
    let rows = text.lines().filter(|line| !line.trim().is_empty()).count() - 1;
    let mut out = format!("{rows} rows of {columns} columns\n{}", shorten(header));
    for line in lines.iter().skip(1).take(3) {
        out.push('\n');
        out.push_str(&shorten(line));
    }
    out
}

fn code_preview(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        // Definitions inside a class or module are worth showing, but locals are not. Eight columns
        // are two levels of indentation in most languages.
        let indent = line.len() - line.trim_start().len();
        if indent <= 8 && starts_definition(line.trim_start()) {
            out.push_str(&format!("{}: {}\n", number + 1, shorten(line)));
        }
    }
    out
}

fn log_preview(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_error = |line: &str| {
        let lower = line.to_lowercase();
        [
            "error", "fatal", "panic", "exception", "failed", "traceback",
        ]
        .iter()
        .any(|word| lower.contains(word))
    };
    let (head, tail) = (5.min(lines.len()), lines.len().saturating_sub(8).max(5));
    let errors: Vec<usize> = (head..tail.min(lines.len()))
        .filter(|at| is_error(lines[*at]))
        .collect();
    let number = |at: usize| format!("{}: {}\n", at + 1, shorten(lines[at]));
    let mut out: String = (0..head).map(number).collect();
    if !errors.is_empty() {
        out.push_str(&format!("… {} lines with errors:\n", errors.len()));
        // The first errors tend to show the cause, and the last ones the outcome.
        let skipped = errors.len().saturating_sub(8);
        let shown = errors.iter().take(5).chain(errors.iter().skip(5 + skipped));
        out.extend(shown.map(|at| number(*at)));
    }
    if tail < lines.len() {
        out.push_str("…\n");
        out.extend((tail..lines.len()).map(number));
    }
    out
}

fn ends_preview(text: &str, max_chars: usize) -> String {
    let total = text.chars().count();
    if total <= max_chars {
        return text.to_owned();
    }
    let head: String = text.chars().take(max_chars * 2 / 3).collect();
    let tail: String = text
        .chars()
        .skip(total - max_chars.saturating_sub(max_chars * 2 / 3 + 3))
        .collect();
    format!("{head}\n…\n{tail}")
}

#[cfg(test)]
mod tests;

//! Finds secrets in the columns of a table whose heading names them, and in SQL inserts.
//!
//! While a text is scanned, names that may head a column are collected. [`scan`] then checks
//! whether the line of such a name divides into fields, as in CSV, Markdown or aligned columns, and
//! checks the cells below it until a line has another number of fields. [`insert`] does the same
//! for the columns and rows of an `INSERT` statement. A cell has to look like a secret itself,
//! because a heading such as "password" may also stand above a description.

use std::ops::Range;

use crate::names::named;
use crate::rules::Value;
use crate::steps;
use crate::value::{is_secret, is_strong};

/// The longest first line of a table, in bytes, before and after the name.
const HEADING: usize = 1_024;

/// Appends the secrets below the names at these positions. Each name fills a field of its line. The
/// positions must ascend.
pub(crate) fn scan(text: &str, names: &[usize], secrets: &mut Vec<Range<usize>>) {
    let mut done = 0;
    for name in names {
        // The name is inside a table that was read already.
        if *name < done {
            continue;
        }
        let Some(line) = line_around(text, *name, done) else {
            continue;
        };
        done = line.end;
        let Some((delimiter, columns)) = columns(&text[line.clone()]) else {
            continue;
        };
        let mut at = line.end + 1;
        for row in text.get(at..).unwrap_or_default().split('\n') {
            steps::add(row.len());
            let cells = fields(row, delimiter);
            // A ruler may stand below the headings.
            let is_ruler = |c: char| "-+=:| ".contains(c) || ('─'..='╿').contains(&c);
            // If a row has another number of fields, the table has ended.
            let is_row = cells.len() == columns.len();
            if !is_row && (row.is_empty() || !row.chars().all(is_ruler)) {
                break;
            }
            for (cell, value) in cells.iter().zip(&columns) {
                let place = trimmed(row, cell);
                if let Some(value) = value
                    && holds(&row[place.clone()], *value)
                {
                    secrets.push(at + place.start..at + place.end);
                }
            }
            at += row.len() + 1;
            done = at;
        }
    }
}

/// Returns the line around a position. Returns `None` if it is too long or begins before `from`.
fn line_around(text: &str, place: usize, from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let earliest = place.saturating_sub(HEADING).max(from);
    let start = match memchr::memrchr(b'\n', &bytes[earliest..place]) {
        Some(at) => earliest + at + 1,
        None if earliest == 0 || bytes[earliest - 1] == b'\n' => earliest,
        None => return None,
    };
    let most = bytes.len().min(place + HEADING);
    steps::add(most - start);
    let end = place + memchr::memchr(b'\n', &bytes[place..most])?;
    // The table may be inside a string of code, whose closing quote is in another line.
    let mut quotes = memchr::memchr_iter(b'"', &bytes[start..end]);
    let first = quotes
        .next()
        .filter(|first| start + first < place && quotes.count().is_multiple_of(2));
    Some(first.map_or(start, |first| start + first + 1)..end)
}

/// Returns the secrets in an `INSERT` statement of SQL. `statement` begins after `INTO`, at byte
/// `start` of the text. In each row, only the strings of columns with the name of a secret are
/// checked.
pub(crate) fn insert(statement: &[u8], start: usize, text: &str) -> Vec<Range<usize>> {
    let end = text.floor_char_boundary(start + statement.len());
    let mut secrets = Vec::new();
    let mut rest = &text[start..end];
    let Some((columns, behind)) = rest
        .split_once('(')
        .and_then(|(_, list)| list.split_once(')'))
    else {
        return secrets;
    };
    let columns: Vec<_> = columns
        .split(',')
        .map(|name| named(name.trim_matches(|c: char| !c.is_alphanumeric())))
        .collect();
    let values = behind.trim_start();
    let is_values = |word: &str| word.eq_ignore_ascii_case("values");
    // If no column is secret, the rows need not be read.
    if columns.iter().all(Option::is_none) || !values.get(..6).is_some_and(is_values) {
        return secrets;
    }
    rest = &values[6..];
    while let Some(row) = rest
        .trim_start_matches([' ', ',', '\n', '\r', '\t'])
        .strip_prefix('(')
    {
        let mut column = 0;
        let mut string = None;
        let mut signs = row.char_indices().peekable();
        let close = loop {
            // The statement is cut off here, and a string without its end cannot be judged.
            let Some((at, sign)) = signs.next() else {
                return secrets;
            };
            match (string, sign) {
                (None, '\'') => string = Some(at + 1),
                // A quote inside a string is doubled.
                (Some(_), '\'') if signs.next_if(|(_, next)| *next == '\'').is_some() => {}
                (Some(from), '\'') => {
                    let place = end - row.len() + from..end - row.len() + at;
                    let value = columns.get(column).copied().flatten();
                    if value.is_some_and(|value| is_secret(&text[place.clone()], value, true)) {
                        secrets.push(place);
                    }
                    string = None;
                }
                (None, ',') => column += 1,
                (None, ')') => break at,
                _ => {}
            }
        };
        rest = &row[close + 1..];
    }
    secrets
}

/// Returns the delimiter of the fields in a table's first line, and for each field what a secret
/// below it looks like. Returns `None` if the line is not the head of a table.
fn columns(line: &str) -> Option<(char, Vec<Option<Value>>)> {
    ['|', '│', '\t', ',', ';', ' ']
        .into_iter()
        .find_map(|delimiter| {
            let columns: Vec<_> = fields(line, delimiter)
                .iter()
                .map(|field| named(&line[trimmed(line, field)]))
                .collect();
            // Between spaces, `#` and `...` belong to code or prose and do not head a column.
            let heads = |cell: &&Range<usize>| match delimiter {
                ' ' => line[(*cell).clone()].contains(char::is_alphanumeric),
                _ => !trimmed(line, cell).is_empty(),
            };
            let cells = fields(line, delimiter);
            let filled = cells.iter().filter(heads);
            let is_heading = columns.iter().any(Option::is_some) && filled.count() > 1;
            is_heading.then_some((delimiter, columns))
        })
}

/// Returns the fields of a line. A delimiter inside double quotes does not separate, and neither
/// does a single space.
fn fields(line: &str, delimiter: char) -> Vec<Range<usize>> {
    let mut fields = Vec::new();
    let mut start = 0;
    let mut in_quotes = false;
    for (at, c) in line.char_indices() {
        if c == '"' {
            in_quotes = !in_quotes;
        } else if c == delimiter && !in_quotes {
            if c == ' ' {
                // Two or more spaces separate columns.
                let before = line[..at].ends_with(' ');
                if !line[at + 1..].starts_with(' ') && before {
                    fields.push(start..at);
                    start = at + 1;
                }
                continue;
            }
            fields.push(start..at);
            start = at + c.len_utf8();
        }
    }
    fields.push(start..line.len());
    fields
}

/// Returns the bytes of a field without the white space, quotes and emphasis around its text.
fn trimmed(line: &str, field: &Range<usize>) -> Range<usize> {
    let is_around = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | '*' | '\'');
    let text = line[field.clone()].trim_start_matches(is_around);
    let start = field.end - text.len();
    start..start + text.trim_end_matches(is_around).len()
}

/// Whether a cell below the name of a secret is one. It has to be a single word for a password,
/// because prose is common in tables.
fn holds(cell: &str, value: Value) -> bool {
    let is_word = !cell.contains(' ')
        && (is_strong(cell) || cell.bytes().any(|byte| !byte.is_ascii_alphabetic()));
    match value {
        Value::Password => {
            is_word
                && is_secret(cell, value, true)
                && cell.bytes().any(|b| b.is_ascii_alphanumeric())
        }
        Value::Jwk | Value::Header | Value::Cookie => false,
        _ => is_secret(cell, value, true),
    }
}

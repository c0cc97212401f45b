//! The shapes of keys, read from `keys.txt`.
//!
//! A row of that table describes one kind of key as fixed text and runs of characters, for instance
//! `sk-ant-{w20-}`: a brace holds a letter for the set of characters, and how many there are.
//! `(a|b)` stands for alternatives, and square brackets mark the part to mask if the rest stays
//! visible. [`all`] turns each row into a cue, which is its longest fixed text, and the pieces
//! around it. How a key is matched at its cue is in `shape`.

use crate::charset::{self, ALNUM, BASE64, DOTTED, WORD};

/// A kind of key, as the pieces before and after its cue.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) before: Vec<Piece>,
    pub(crate) after: Vec<Piece>,
    /// Whether only what follows the cue is masked, the part in brackets. This is used if a URL or a
    /// name identifies the key, which may be in any case.
    pub(crate) shown: bool,
}

/// A part of a key: fixed text, or a run of characters.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(String),
    Run(Run),
}

/// A run of characters of one set, with its shortest and its longest length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) set: u16,
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// Whether `least` letters and digits have to stand in one piece, without dashes or underscores
    /// between them.
    pub(crate) whole: bool,
}

/// Returns every key of the table with its cue. A row with alternatives gives several.
pub(crate) fn all() -> impl Iterator<Item = (String, Key)> {
    rows(include_str!("keys.txt"))
        .map(|row| row.split_once("  ").map_or(row, |(shape, _)| shape))
        .flat_map(alternatives)
        .map(|shape| key(&shape))
}

/// Returns the rows of a table without its comments and empty lines.
pub(crate) fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = table.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns one shape for each way to choose between `(a|b)`. A shape may have several choices.
fn alternatives(shape: &str) -> Vec<String> {
    let choice = shape
        .split_once('(')
        .and_then(|(before, rest)| Some((before, rest.split_once(')')?)));
    match choice {
        Some((before, (choice, behind))) => choice
            .split('|')
            .flat_map(|chosen| alternatives(&format!("{before}{chosen}{behind}")))
            .collect(),
        None => vec![shape.replace("{uuid}", "{a8}-{a4}-{a4}-{a4}-{a12}")],
    }
}

fn key(shape: &str) -> (String, Key) {
    let shown = shape.contains('[');
    let mut pieces = pieces(&shape.replace(['[', ']'], ""));
    let length = |piece: &Piece| match piece {
        Piece::Text(text) => text.len(),
        Piece::Run(_) => 0,
    };
    // Of two texts of the same length, the first one is the cue.
    let cue = (0..pieces.len()).max_by_key(|at| (length(&pieces[*at]), usize::MAX - at));
    let after = pieces.split_off(cue.map_or(0, |cue| cue + 1));
    let cue = match pieces.pop() {
        Some(Piece::Text(text)) => text,
        _ => String::new(),
    };
    let before = pieces;
    (
        cue,
        Key {
            before,
            after,
            shown,
        },
    )
}

fn pieces(shape: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = shape;
    while let Some(first) = rest.chars().next() {
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        match inside.and_then(|(inside, behind)| Some((run(inside)?, behind))) {
            Some((run, behind)) => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Run(run));
                rest = behind;
            }
            None => {
                text.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

/// Reads a run such as `w20-` or `a36`. Returns `None` if the text is not one, and then it is
/// literal.
fn run(text: &str) -> Option<Run> {
    let mut chars = text.chars();
    let (set, whole) = match chars.next()? {
        'P' => (WORD, true),
        letter => (set(letter)?, false),
    };
    let (least, most) = lengths(chars.as_str())?;
    Some(Run {
        set,
        least,
        most,
        whole,
    })
}

/// Returns the set of characters that a letter stands for in the tables.
pub(crate) fn set(letter: char) -> Option<u16> {
    Some(match letter {
        'n' => charset::DIGIT,
        'h' => charset::HEX,
        'H' => charset::ANY_HEX,
        'z' => charset::SMALL,
        'u' => charset::CAPITALS,
        'U' => charset::CAPITALS | charset::DASH,
        'a' => ALNUM,
        'w' => WORD,
        'D' => ALNUM | charset::DOT,
        'd' => DOTTED,
        'x' => DOTTED | charset::TILDE,
        'b' => BASE64,
        'c' => BASE64 | charset::DOT,
        't' => charset::TOKEN,
        'g' => charset::SIGNS,
        _ => return None,
    })
}

/// Reads a length such as `20`, `20-40` or `20-`, as the shortest and the longest.
pub(crate) fn lengths(text: &str) -> Option<(usize, usize)> {
    let (least, most) = match text.split_once('-') {
        Some((least, "")) => (least, usize::MAX),
        Some((least, most)) => (least, most.parse().ok()?),
        None => (text, text.parse().ok()?),
    };
    Some((least.parse().ok()?, most))
}

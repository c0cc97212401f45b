//! The shapes of keys, read from `keys.txt`, and how one is matched around its cue.

use crate::rules::{self, ALNUM, BASE64, DOTTED, WORD};

/// A kind of key around its cue.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) before: Vec<Piece>,
    pub(crate) after: Vec<Piece>,
    /// How many pieces before or behind the cue stay visible, with the cue: for a key that a URL or a name gives away.
    pub(crate) shown: bool,
}

/// A part of a key.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(String),
    Run(Run),
}

/// A number of characters of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) set: u16,
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// `least` letters and digits have to stand in one piece.
    pub(crate) whole: bool,
}

/// Every key of the table with its cue.
pub(crate) fn all() -> impl Iterator<Item = (String, Key)> {
    rows(include_str!("keys.txt"))
        .map(|row| row.split_once("  ").map_or(row, |(shape, _)| shape))
        .flat_map(alternatives)
        .map(|shape| key(&shape))
}

/// The rows of a table, which may have comments.
pub(crate) fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = table.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A shape for each way to choose between `(a|b)`.
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

/// `w20-`, `a36` and so on.
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

/// The set of characters that a letter stands for.
pub(crate) fn set(letter: char) -> Option<u16> {
    Some(match letter {
        'n' => rules::DIGIT,
        'h' => rules::HEX,
        'H' => rules::ANY_HEX,
        'z' => rules::SMALL,
        'u' => rules::CAPITALS,
        'U' => rules::CAPITALS | rules::DASH,
        'a' => ALNUM,
        'w' => WORD,
        'D' => ALNUM | rules::DOT,
        'd' => DOTTED,
        'x' => DOTTED | rules::TILDE,
        'b' => BASE64,
        'c' => BASE64 | rules::DOT,
        't' => rules::TOKEN,
        'g' => rules::SIGNS,
        _ => return None,
    })
}

/// `20`, `20-40` or `20-`.
pub(crate) fn lengths(text: &str) -> Option<(usize, usize)> {
    let (least, most) = match text.split_once('-') {
        Some((least, "")) => (least, usize::MAX),
        Some((least, most)) => (least, most.parse().ok()?),
        None => (text, text.parse().ok()?),
    };
    Some((least.parse().ok()?, most))
}

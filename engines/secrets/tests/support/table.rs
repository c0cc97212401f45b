//! Keys of every shape of the tables of the crate, made from the tables.

use super::{Case, DIGITS, HEX, LOWER, PIECE, Random, UPPER};

const KEYS: &str = include_str!("../../src/keys.txt");
const PROVIDERS: &str = include_str!("../../src/providers.txt");

fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn set(letter: char) -> String {
    let alnum = format!("{LOWER}{UPPER}{DIGITS}");
    match letter {
        'n' => DIGITS.to_owned(),
        'h' => HEX.to_owned(),
        'H' => format!("{HEX}ABCDEF"),
        'z' => format!("{LOWER}{DIGITS}"),
        'u' => format!("{UPPER}{DIGITS}"),
        'U' => format!("{UPPER}{DIGITS}-"),
        'D' => format!("{alnum}."),
        'w' => format!("{alnum}-_"),
        'd' | 'x' => format!("{alnum}-_."),
        'b' | 't' | 'c' => format!("{alnum}+/"),
        _ => alnum,
    }
}

/// So many characters of a set, of which the first and the last are letters or digits, and one is a digit.
fn run(random: &mut Random, letter: char, len: usize) -> String {
    let set = set(letter);
    loop {
        let run = random.of(&set, len);
        let is_around = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let has_digit = len < 8 || run.contains(|c: char| c.is_ascii_digit());
        if is_around(run.chars().next()) && is_around(run.chars().last()) && has_digit {
            return run;
        }
    }
}

fn alternatives(shape: &str) -> Vec<String> {
    match shape
        .split_once('(')
        .and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
    {
        Some((before, (choice, behind))) => (choice.split('|'))
            .flat_map(|chosen| alternatives(&format!("{before}{chosen}{behind}")))
            .collect(),
        None => vec![shape.replace("{uuid}", "{h8}-{h4}-{h4}-{h4}-{h12}")],
    }
}

/// A key of a shape, and the parts of it that are secret. A piece that is the same in every key of the shape is in none.
fn key(random: &mut Random, shape: &str) -> (String, Vec<String>) {
    // Each part by its first byte and the byte after its last. The first part begins with the key.
    let (mut text, mut secrets) = (String::new(), vec![(0, 0)]);
    let mut rest = shape;
    while let Some(first) = rest.chars().next() {
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let length = inside.and_then(|(inside, _)| inside[1..].split('-').next()?.parse().ok());
        match (first, inside, length) {
            (_, Some((inside, behind)), Some(least)) => {
                let least: usize = least;
                let most: usize = match inside[1..].split_once('-') {
                    Some((_, "")) => least + 12,
                    Some((_, most)) => most.parse().unwrap_or(least).min(least + 12),
                    None => least,
                };
                let len = least + random.next() as usize % (most - least + 1);
                let letter = inside.chars().next().unwrap_or('a');
                let from = text.len();
                text.push_str(&run(random, letter, len.max(1)));
                match secrets.last_mut() {
                    Some((start, end)) if start != end && *end + PIECE <= from => {
                        *end += PIECE - 1;
                        secrets.push((from + 1 - PIECE, text.len()));
                    }
                    Some((_, end)) => *end = text.len(),
                    None => {}
                }
                rest = behind;
                continue;
            }
            ('[', ..) => secrets = vec![(text.len(), text.len())],
            (']', ..) => {}
            _ => text.push(first),
        }
        rest = &rest[first.len_utf8()..];
    }
    let part = |(start, end): (usize, usize)| text[start..end].to_owned();
    let secrets = secrets.into_iter().map(part).collect();
    (text, secrets)
}

/// A key of every shape of `keys.txt`.
pub fn keys(random: &mut Random) -> Vec<Case> {
    let shapes = rows(KEYS).filter_map(|row| row.split_once("  "));
    let shapes = shapes.flat_map(|(shape, kind)| {
        alternatives(shape)
            .into_iter()
            .map(|shape| (shape, kind.trim()))
    });
    shapes
        .enumerate()
        .map(|(at, (shape, kind))| {
            let (key, secrets) = key(random, &shape);
            let text = match at % 5 {
                0 => format!("use {key} for it"),
                1 => format!("{key}\nnext line"),
                2 => format!("export X={key}"),
                3 => format!("the key \"{key}\", as said"),
                _ => format!("x: {key}, and so on"),
            };
            Case {
                kind,
                text,
                secrets,
            }
        })
        .collect()
}

/// A key of every provider of `providers.txt`, assigned to its name.
pub fn assigned(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for row in rows(PROVIDERS) {
        let mut columns = row.split(' ');
        let letter = columns
            .next()
            .and_then(|letter| letter.chars().next())
            .unwrap_or('a');
        let mut lengths = columns.next().unwrap_or_default().split('-');
        let len = lengths
            .next()
            .and_then(|len| len.parse().ok())
            .unwrap_or(32);
        for (at, name) in columns.enumerate() {
            let is_word = name.ends_with('?');
            let name = name.trim_end_matches('?');
            let value = loop {
                let value = match letter {
                    'u' => key(random, "{h8}-{h4}-{h4}-{h4}-{h12}").0,
                    letter => run(random, letter, len),
                };
                if value.contains(|c: char| c.is_ascii_digit())
                    && value.contains(|c: char| c.is_ascii_alphabetic())
                {
                    break value;
                }
            };
            let text = match at % 5 {
                0 => format!("export {}_API_KEY={value}", name.to_uppercase()),
                1 => format!("{name}_api_token = \"{value}\""),
                2 => format!("  {name}Key: {value}"),
                3 => format!("{{\"{name}_secret\": \"{value}\"}}"),
                _ if is_word || letter == 'u' || len < 20 => format!("{name}.access_token={value}"),
                _ => format!("const {name} = '{value}';"),
            };
            cases.push(Case {
                kind: name,
                text,
                secrets: vec![value],
            });
        }
    }
    cases
}

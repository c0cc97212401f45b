//! A play: a session as a list of acts, and its text form, in which a play that goes wrong is printed and recorded
//! plays are kept.
//!
//! The first line says where the session is played, each further line is an act: its name, and its parameters. A
//! parameter that has its default is left out, and one that is true is its name alone.
//!
//! ```text
//! # A message that was said twice keeps its place after the record was lost.
//! session engine=lcm wire={chat,anthropic} window=8000
//! turn
//! turn say=go-on reply=113
//! lose-record
//! turn holds=handed
//! ```
//!
//! A file holds one play for each alternative in braces. Braces with the same text stand for the same alternative.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::act::{Act, Carrier};
use crate::explore::run;
use crate::wire::Wire;

// An alias, because serde would borrow a `&'static str` from the text.
type Name = &'static str;

/// A session: its engine, its format, the window that it begins with, and what happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename = "session")]
pub(crate) struct Play {
    #[serde(deserialize_with = "leaked")]
    pub(crate) engine: Name,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) carrier: Carrier,
    pub(crate) wire: Wire,
    pub(crate) window: u64,
    #[serde(skip)]
    pub(crate) acts: Vec<Act>,
}

fn leaked<'de, D: Deserializer<'de>>(name: D) -> Result<Name, D::Error> {
    Ok(String::deserialize(name)?.leak())
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl fmt::Display for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", line(self))?;
        self.acts
            .iter()
            .try_for_each(|act| writeln!(f, "{}", line(act)))
    }
}

impl FromStr for Play {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let session = read(lines.next().unwrap_or_default())?;
        let acts = lines.map(read).collect::<Result<_, _>>()?;
        Ok(Self { acts, ..session })
    }
}

fn line(act: &impl Serialize) -> String {
    let act = serde_json::to_value(act).unwrap();
    let words = act.as_object().into_iter().flatten();
    let words = words.map(|(key, value)| match value {
        Value::String(name) if key == "act" => name.clone(),
        Value::String(name) => format!("{key}={name}"),
        Value::Bool(true) => key.clone(),
        value => format!("{key}={value}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Reads a line. What would be printed otherwise is refused, so nothing that is misspelt is overlooked.
fn read<T: Serialize + DeserializeOwned>(text: &str) -> Result<T, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut act = Map::new();
    for (at, word) in words.iter().enumerate() {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, serde_json::from_str(value).unwrap_or(value.into())),
            None if at == 0 => ("act", (*word).into()),
            None => (*word, true.into()),
        };
        act.insert(key.to_owned(), value);
    }
    let act: T = serde_json::from_value(act.into()).map_err(|error| format!("{text}: {error}"))?;
    match line(&act) {
        same if same == words.join(" ") => Ok(act),
        other => Err(format!("{text}: this is written {other}")),
    }
}

/// The plays of a file.
fn plays(text: &str) -> Result<Vec<Play>, String> {
    let is_act = |line: &&str| !line.starts_with("#") && !line.trim().is_empty();
    let lines = text.lines().filter(is_act);
    let texts = alternatives(&lines.collect::<Vec<_>>().join("\n"));
    texts.iter().map(|text| text.parse()).collect()
}

fn alternatives(text: &str) -> Vec<String> {
    let braces = text.find('{').and_then(|from| {
        let length = text[from..].find('}')?;
        Some(&text[from..=from + length])
    });
    let Some(braces) = braces else {
        return vec![text.to_owned()];
    };
    let all = braces[1..braces.len() - 1].split(',');
    all.flat_map(|one| alternatives(&text.replace(braces, one)))
        .collect()
}

/// Plays a recorded file.
fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/session_fuzzer/plays");
    let text = std::fs::read_to_string(folder.join(name).with_extension("play")).unwrap();
    for play in plays(&text).unwrap() {
        if let (_, Err(wrong)) = run(&play) {
            panic!("{}: {}, in\n{play}", wrong.check, wrong.what);
        }
    }
}

// One test for each file.
include!(concat!(env!("OUT_DIR"), "/plays.rs"));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::act::{self, Mix};

    const MIX: Mix = Mix {
        holds: Mix::JOINS.holds,
        faults: 3,
        ..Mix::ALL
    };

    proptest! {
        #[test]
        fn what_is_printed_is_read(play in act::plays(MIX, &Wire::ALL, 40)) {
            let text = play.to_string();
            prop_assert_eq!(text.parse::<Play>(), Ok(play), "{}", text);
        }
    }

    #[test]
    fn what_is_misspelt_is_refused() {
        let session = "session engine=lcm wire=chat window=2000\n";
        for wrong in [
            "trun", "turn sya=4", "turn reply=4", "turn say=go-no", "rewind",
        ] {
            assert!(plays(&format!("{session}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn alternatives_with_the_same_text_vary_together() {
        let text = "# {x,y}\nsession engine=lcm wire=chat window={2000,3000}\nturn {,holds=handed}\nturn {,holds=handed}";
        let printed: Vec<String> = plays(text).unwrap().iter().map(Play::to_string).collect();
        let play = |window, turn| {
            format!("session engine=lcm wire=chat window={window}\n{turn}\n{turn}\n")
        };
        let expected = [
            (2000, "turn"),
            (2000, "turn holds=handed"),
            (3000, "turn"),
            (3000, "turn holds=handed"),
        ];
        assert_eq!(printed, expected.map(|(window, turn)| play(window, turn)));
    }
}

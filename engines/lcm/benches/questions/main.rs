//! How often a message that answers a question is among the first ten, on several kinds of conversations,
//! beside SQLite's FTS5 (porter, the words joined by OR, bm25).
//!
//! `cargo bench -p contexture-lcm --bench questions` prints a row for each kind: by message, and by
//! sitting (a hit from the sitting in which it was said) where a conversation has several.
//! `-- --ablate` leaves each weight and rule out in turn; `-- --misses KIND` lists what was not found;
//! `-- --growth` shows how the time of a question grows with a chat.
//! `-- --locomo FOLDER` adds the conversations of LoCoMo in a folder, in two halves.
//! `-- --embedder FOLDER` makes vectors with the sentence encoder in it (`tests/real/install embedder` installs one), and
//! shows what they add, also with other weights; with `--growth` what they cost.
//!
//! The invented chats are those of `tests/questions`; what is real is in `../shared/data`. The rest is
//! generated: each line of a `.txt` beside this file is a fact in a few values and a question on it in
//! other words; the facts lie in a fixed random order among messages about the same things. `notes.txt` asks
//! real notes, and names the message that answers by some of its words. `README.md` has the figures.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../tests/ingest/mod.rs"]
mod ingest;
mod kinds;
#[path = "../../tests/ranking/mod.rs"]
mod ranking;
#[path = "../../../../tests/tests/lossless/zip.rs"]
mod zip;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use contexture_lcm::Embedder;
use contexture_lcm::search::Weights;
use kinds::{Asked, NO_ANSWER, Set, kinds, locomo, one_chat};
use ranking::{Ours, floor};

/// A set, stored and ready to be asked.
struct Ready {
    set: Set,
    ours: Ours,
    floor: Vec<Vec<u64>>,
}

impl Ready {
    fn new(set: Set, embedder: Option<&Embedder>) -> Self {
        let ours = ours(&set, embedder);
        let floor = floor(&set.sessions.concat());
        let floor = set.questions.iter().map(|asked| floor(&asked.text));
        Self {
            floor: floor.collect(),
            ours,
            set,
        }
    }
}

fn ours(set: &Set, embedder: Option<&Embedder>) -> Ours {
    let sessions: Vec<_> = set.sessions.iter().map(Vec::as_slice).collect();
    Ours::in_sessions(&sessions, embedder)
}

/// How many of the questions were answered among the first ten: by message, by all of the messages that are evidence,
/// and by sitting.
#[derive(Default, Clone, Copy)]
struct Found {
    asked: usize,
    message: usize,
    all: usize,
    sitting: usize,
}

impl Found {
    fn add(&mut self, set: &Set, at: usize, ranking: &[u64]) {
        let first = &ranking[..ranking.len().min(10)];
        let evidence = &set.questions[at].evidence;
        let sitting = |id: &u64| set.sittings[*id as usize];
        let sittings: Vec<usize> = evidence.iter().map(sitting).collect();
        self.asked += 1;
        self.message += usize::from(evidence.iter().any(|id| first.contains(id)));
        self.all += usize::from(evidence.iter().all(|id| first.contains(id)));
        self.sitting += usize::from(first.iter().any(|id| sittings.contains(&sitting(id))));
    }

    fn share(&self, found: usize) -> f64 {
        found as f64 / self.asked as f64
    }
}

/// What was found of each category of the questions.
#[derive(Default)]
struct ByCategory(BTreeMap<usize, Found>);

impl ByCategory {
    fn add(&mut self, set: &Set, at: usize, ranking: &[u64]) {
        let category = set.questions[at].category;
        self.0.entry(category).or_default().add(set, at, ranking);
    }

    /// The sum of all categories of questions that have an answer.
    fn total(&self) -> Found {
        let mut total = Found::default();
        for found in self
            .0
            .iter()
            .filter(|(category, _)| **category != NO_ANSWER)
            .map(|(_, found)| found)
        {
            total.asked += found.asked;
            total.message += found.message;
            total.all += found.all;
            total.sitting += found.sitting;
        }
        total
    }
}

fn ask(kind: &[Ready], weights: &Weights, show_misses: bool) -> ByCategory {
    let mut found = ByCategory::default();
    for ready in kind {
        for (at, asked) in ready.set.questions.iter().enumerate() {
            let ranking = ready.ours.first_by(&asked.text, weights);
            let before = found.total();
            found.add(&ready.set, at, &ranking);
            let after = found.total();
            if show_misses && after.asked > before.asked && after.message == before.message {
                show(ready, asked, &ranking);
            }
        }
    }
    found
}

/// Prints a question whose answer is not among the first ten, with its answers and the first three hits.
fn show(ready: &Ready, asked: &Asked, ranking: &[u64]) {
    let messages = ready.set.sessions.concat();
    match asked.category {
        0 => println!("{}", asked.text),
        category => println!("{category} {}", asked.text),
    }
    let answers = asked.evidence.iter().take(2).map(|id| ("is", id));
    for (what, id) in answers.chain(ranking.iter().take(3).map(|id| ("not", id))) {
        let message = &messages[*id as usize];
        let text: String = message.text.chars().take(160).collect();
        println!("    {what} {id} {}: {text:?}", message.role);
    }
}

/// A weight or rule, and the weights without it.
type Without = (&'static str, fn(&mut Weights));

const WITHOUT: &[Without] = &[
    ("synonyms", |weights| weights.synonym = 0.0),
    ("kinds of things", |weights| weights.member = 0.0),
    ("both lists", |weights| {
        weights.synonym = 0.0;
        weights.member = 0.0;
    }),
    ("stop words", |weights| weights.stop_words = false),
    ("neighbours", |weights| {
        weights.around = [(1, 0.0), (2, 0.0), (3, 0.0), (-1, 0.0), (-2, 0.0)];
        weights.answer = 0.0;
        weights.referred = 0.0;
    }),
    ("far neighbours", |weights| {
        weights.around = [(1, 0.4), (2, 0.0), (3, 0.0), (-1, 0.3), (-2, 0.0)];
    }),
    ("asked", |weights| weights.asked = 1.0),
    ("answer", |weights| weights.answer = weights.around[0].1),
    ("referred", |weights| weights.referred = weights.around[1].1),
    ("beside", |weights| weights.beside = [0.0; 2]),
    ("asking", |weights| weights.asking = 0.0),
    ("pair", |weights| weights.pair = 1.0),
    ("speaker", |weights| weights.speaker = 0.0),
    ("telling", |weights| weights.telling = 0.0),
    ("rarity", |weights| weights.rarity = 0.0),
    ("chances", |weights| weights.chances = 0.0),
    ("repeated", |weights| weights.repeated = 0.0),
    ("period", |weights| weights.period = 0.0),
    ("wanted", |weights| weights.wanted = 0.0),
    ("size", |weights| weights.size = (1.0, 1.0)),
    ("passages", |weights| weights.passage = usize::MAX),
    ("likeness", |weights| weights.alike = 0.0),
    ("likeness before", |weights| weights.alike_before = 0.0),
];

fn ablate(kinds: &[(&str, Vec<Ready>)]) {
    let measure = |weights: &Weights| -> Vec<f64> {
        let found = kinds
            .iter()
            .map(|(_, kind)| ask(kind, weights, false).total());
        found.map(|found| found.share(found.message)).collect()
    };
    let row = |name: &str, shares: &[f64]| {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let shares: Vec<String> = shares.iter().map(|share| format!("{share:>9.3}")).collect();
        println!("{name:<18}{mean:>8.4}{}", shares.join(""));
    };
    let names: Vec<String> = kinds.iter().map(|(name, _)| format!("{name:>9}")).collect();
    println!("{:<18}{:>8}{}", "without", "mean", names.join(""));
    let whole = measure(&Weights::default());
    row("(all)", &whole);
    for (name, leave_out) in WITHOUT {
        let mut weights = Weights::default();
        leave_out(&mut weights);
        let without = measure(&weights);
        let change: Vec<f64> = without.iter().zip(&whole).map(|(a, b)| a - b).collect();
        row(name, &change);
    }
}

/// How long a question takes in a chat of so many messages.
fn growth(embedder: Option<&Embedder>) {
    println!(
        "{:<10}{:>9}{:>9}{:>9}{:>9}",
        "messages", "ms each", "fastest", "median", "slowest"
    );
    // Of a chat that is repeated, each message needs its vectors once.
    let once = embedder.map(|_| {
        let once = ours(&one_chat(None), embedder);
        once.embed();
        once
    });
    for messages in [2_000, 20_000, 100_000] {
        let set = one_chat(Some(messages));
        let ours = ours(&set, embedder);
        if let Some(once) = &once {
            ours.embed_as(once);
        }
        each_takes(&messages.to_string(), &set, |question| {
            drop(ours.first(question))
        });
    }
    if let Some(embedder) = embedder {
        each_takes("(vector)", &one_chat(None), |question| {
            drop(embedder.vector_of(question))
        });
    }
}

/// Prints how long each question of a set takes, in ms.
fn each_takes(what: &str, set: &Set, ask: impl Fn(&str)) {
    let mut took: Vec<f64> = Vec::new();
    for asked in &set.questions {
        let begun = Instant::now();
        ask(&asked.text);
        took.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    took.sort_unstable_by(f64::total_cmp);
    let (fastest, median, slowest) = (took[0], took[took.len() / 2], took[took.len() - 1]);
    println!("{what:<10}{mean:>9.1}{fastest:>9.1}{median:>9.1}{slowest:>9.1}");
}

/// The weights of likeness that are tried.
const TRIED: [f64; 7] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0];

/// Makes the vectors of all kinds, and prints what likeness in meaning adds by its weight; and for each kind what the
/// weight adds that is best for the other kinds.
fn likeness(kinds: &[(&str, Vec<Ready>)]) {
    println!(
        "{:<10}{:>9}{:>12}{:>14}",
        "kind", "messages", "ms each", "bytes each"
    );
    for (name, kind) in kinds {
        let begun = Instant::now();
        let bytes: i64 = kind.iter().map(|ready| ready.ours.embed()).sum();
        let took = begun.elapsed().as_secs_f64() * 1_000.0;
        let messages: usize = kind.iter().map(|ready| ready.set.sittings.len()).sum();
        let (each, size) = (took / messages as f64, bytes as f64 / messages as f64);
        println!("{name:<10}{messages:>9}{each:>12.1}{size:>14.0}");
    }
    let names: Vec<String> = kinds.iter().map(|(name, _)| format!("{name:>9}")).collect();
    println!("\n{:<18}{:>8}{}", "weight", "mean", names.join(""));
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
    let row = |what: &str, shares: &[f64]| {
        let cells: Vec<String> = shares.iter().map(|share| format!("{share:>9.3}")).collect();
        println!("{what:<18}{:>8.4}{}", mean(shares), cells.join(""));
    };
    let measured = TRIED.map(|alike| {
        let weights = Weights {
            alike,
            ..Weights::default()
        };
        let found = kinds
            .iter()
            .map(|(_, kind)| ask(kind, &weights, false).total());
        let shares: Vec<f64> = found.map(|found| found.share(found.message)).collect();
        row(&format!("{alike}"), &shares);
        shares
    });
    let by_others = (0..kinds.len()).map(|left_out| {
        let others = |shares: &Vec<f64>| mean(shares) * shares.len() as f64 - shares[left_out];
        let best = measured
            .iter()
            .max_by(|a, b| others(a).total_cmp(&others(b)));
        best.map_or(0.0, |shares| shares[left_out])
    });
    row("best for others", &by_others.collect::<Vec<_>>());
    println!();
}

fn main() {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let after = |option: &str| {
        let at = options.iter().position(|other| other == option)?;
        Some(options.get(at + 1).cloned().unwrap_or_default())
    };
    let embedder = after("--embedder").map(|folder| {
        let folder = std::path::absolute(folder).unwrap();
        Embedder::open(&folder).unwrap_or_else(|error| panic!("{error}"))
    });
    let embedder = embedder.as_ref();
    if after("--growth").is_some() {
        return growth(embedder);
    }
    let missed = after("--misses");
    let locomo = after("--locomo").map(|folder| locomo(Path::new(&folder)));
    let kinds: Vec<(&str, Vec<Ready>)> = kinds()
        .into_iter()
        .chain(locomo.unwrap_or_default())
        .filter(|(name, _)| missed.as_ref().is_none_or(|missed| missed == name))
        .map(|(name, sets)| {
            (
                name,
                sets.into_iter()
                    .map(|set| Ready::new(set, embedder))
                    .collect(),
            )
        })
        .collect();
    if embedder.is_some() {
        likeness(&kinds);
    }
    if after("--ablate").is_some() {
        return ablate(&kinds);
    }
    let without = Weights {
        alike: 0.0,
        ..Weights::default()
    };
    table(&kinds, &without, missed.is_some() && embedder.is_none());
    if embedder.is_some() {
        println!("\nwith the embedder");
        table(&kinds, &Weights::default(), missed.is_some());
    }
}

fn table(kinds: &[(&str, Vec<Ready>)], weights: &Weights, show_misses: bool) {
    println!(
        "{:<12}{:>9}{:>7}{:>8}{:>8}{:>9}{:>8}{:>12}{:>8}{:>10}",
        "kind", "messages", "asked", "ours", "FTS5", "all", "FTS5", "by sitting", "FTS5", "ms each"
    );
    for (name, kind) in kinds {
        let begun = Instant::now();
        let ours = ask(kind, weights, show_misses);
        let took = begun.elapsed().as_secs_f64() * 1_000.0;
        let mut floor = ByCategory::default();
        for ready in kind {
            for (at, ranking) in ready.floor.iter().enumerate() {
                floor.add(&ready.set, at, ranking);
            }
        }
        let asked: usize = ours.0.values().map(|found| found.asked).sum();
        let messages: usize = kind.iter().map(|ready| ready.set.sittings.len()).sum();
        let mut sittings = kind.iter().flat_map(|ready| &ready.set.sittings);
        let has_sittings = sittings.any(|sitting| *sitting > 0);
        let row = |name: &str, messages: &str, ours: Found, floor: Found, each: &str| {
            let sitting = |found: Found| match has_sittings {
                true => format!("{:.3}", found.share(found.sitting)),
                false => "–".into(),
            };
            println!(
                "{name:<12}{messages:>9}{:>7}{:>8.3}{:>8.3}{:>9.3}{:>8.3}{:>12}{:>8}{each:>10}",
                ours.asked,
                ours.share(ours.message),
                floor.share(floor.message),
                ours.share(ours.all),
                floor.share(floor.all),
                sitting(ours),
                sitting(floor),
            );
        };
        let each = format!("{:.1}", took / asked as f64);
        row(
            name,
            &messages.to_string(),
            ours.total(),
            floor.total(),
            &each,
        );
        for (category, found) in ours.0.iter().filter(|(category, _)| **category > 0) {
            row(&format!("  {category}"), "", *found, floor.0[category], "");
        }
    }
}

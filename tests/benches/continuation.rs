//! What of a conversation is still there when the agent goes on after a compaction: real coding sessions are cut at
//! ten places each and compacted there, and the identifiers that the agent uses from there on, before a tool shows
//! them again, are looked for in the summary and in the whole window. What stands in no message that was summarised can be
//! in no summary: the table says how many could be.
//!
//! What is needed is measured as in `contexture bench sessions`, which measures it after the compactions that an engine
//! makes by itself.
//!
//! `cargo bench -p contexture-tests --bench continuation [-- ENGINE] [lost]`: with `lost` it says what is not in the
//! window.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use contexture::formats::{self, Format, Message, RenderPlan};
use contexture::replay::{Mentions, identifiers, words_of};
use contexture::session::{AgentWindow, Compact, Session, TurnOptions};
use contexture_engine_api::SUMMARY_MARK;
use contexture_tests::{Home, engines, shared_data, under};
use serde_json::{Value, json};

const PLACES: usize = 10;
const WINDOWS: [u64; 3] = [200_000, 100_000, 48_000];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let says = |word: &str| arguments.iter().any(|argument| argument == word);
    let all = !["compressor", "lcm"].iter().any(|engine| says(engine));
    let lists_lost = says("lost");
    let sessions = [
        ("claude-code", vec!["claude-code/main.jsonl"]),
        (
            "swe-agent",
            vec![
                "swe-agent/demonstrations__function_calling_simple.traj",
                "swe-agent/replay__marshmallow-code__marshmallow-1867__function_calling_replace_from_source__marshmallow-code__marshmallow-1867.traj",
                "swe-agent/web__i_got_id_demo.traj",
            ],
        ),
    ]
    .map(|(name, files)| (name, files.into_iter().map(Played::of).collect::<Vec<_>>()));
    println!(
        "{:<12}{:<12}{:>8}{:>8}{:>8}{:>12}{:>8}{:>8}{:>12}{:>8}{:>12}{:>8}",
        "",
        "",
        "window",
        "places",
        "needed",
        "in summary",
        "could",
        "chars",
        "in window",
        "tokens",
        "of once",
        "in sum."
    );
    for (name, sessions) in &sessions {
        for engine in ["compressor", "lcm"] {
            if !all && !says(engine) {
                continue;
            }
            for window in WINDOWS {
                let mut sum = Counted::default();
                for session in sessions {
                    for place in 1..=PLACES {
                        sum += session.compacted_at(place, engine, window);
                    }
                }
                sum.print(name, engine, window);
                if lists_lost {
                    println!("  {:?}", sum.lost);
                }
            }
        }
    }
}

/// A conversation as an OpenAI client sends it.
struct Played {
    messages: Vec<Value>,
    /// The same, read, without the system prompt.
    read: Vec<Message>,
    mentions: Mentions,
}

/// What was found, summed up over the places where something was compacted.
#[derive(Default)]
struct Counted {
    places: usize,
    needed: usize,
    in_summary: usize,
    in_summarised: usize,
    in_window: usize,
    summary_chars: usize,
    window_tokens: u64,
    once: usize,
    once_in_summary: usize,
    lost: BTreeMap<String, usize>,
}

impl std::ops::AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.places += other.places;
        self.needed += other.needed;
        self.in_summary += other.in_summary;
        self.in_summarised += other.in_summarised;
        self.in_window += other.in_window;
        self.summary_chars += other.summary_chars;
        self.window_tokens += other.window_tokens;
        self.once += other.once;
        self.once_in_summary += other.once_in_summary;
        for (name, times) in other.lost {
            *self.lost.entry(name).or_default() += times;
        }
    }
}

impl Counted {
    fn print(&self, name: &str, engine: &str, window: u64) {
        let share = |part: usize, of: usize| match of {
            0 => "-".to_owned(),
            _ => format!("{:.1} %", 100.0 * part as f64 / of as f64),
        };
        let each = self.places.max(1);
        println!(
            "{name:<12}{engine:<12}{window:>8}{:>8}{:>8}{:>12}{:>8}{:>8}{:>12}{:>8}{:>12}{:>8}",
            self.places,
            self.needed,
            share(self.in_summary, self.needed),
            share(self.in_summarised, self.needed),
            self.summary_chars / each,
            share(self.in_window, self.needed),
            self.window_tokens / each as u64,
            self.once,
            share(self.once_in_summary, self.once),
        );
    }
}

impl Played {
    fn of(file: &str) -> Self {
        let text = std::fs::read_to_string(shared_data().join(file)).unwrap();
        let conversation = formats::read(text, None).unwrap().remove(0);
        let whole = RenderPlan::whole(conversation.messages().len());
        let body = conversation
            .convert(&whole, Format::OpenAiChat)
            .unwrap()
            .document;
        let conversation = formats::read(body.clone(), None).unwrap().remove(0);
        let body: Value = serde_json::from_str(&body).unwrap();
        Self {
            messages: body["messages"].as_array().unwrap().clone(),
            read: conversation.messages().to_vec(),
            mentions: Mentions::of(&conversation),
        }
    }

    /// Compacts where `place` of one more than [`PLACES`] parts are over and the agent is next.
    fn compacted_at(&self, place: usize, engine: &str, window: u64) -> Counted {
        let from = self.messages.len() * place / (PLACES + 1);
        let is_agent = |message: &Value| message["role"] == "assistant";
        let Some(next) = self.messages[from..].iter().position(is_agent) else {
            return Counted::default();
        };
        let before = &self.messages[..from + next];
        // The system prompt leads.
        let at = before.len() - (self.messages.len() - self.read.len());

        let home = Home::new();
        let agent = AgentWindow::new("gpt-5", window, window / 10);
        let mut session =
            Session::open(&engines(&home), None, "cut", agent, under(engine)).unwrap();
        let options = TurnOptions::default().compact(Compact::Force);
        let body = json!({"model": "gpt-5", "messages": before}).to_string();
        let turn = session.turn_with(&body, None, &options).unwrap();
        let report = turn.compaction.unwrap();
        if report.summarised == 0 {
            return Counted::default();
        }
        let sent = formats::read(turn.body.into_owned(), None)
            .unwrap()
            .remove(0);
        let (summaries, kept): (Vec<String>, Vec<String>) = (sent.messages().iter())
            .map(words_of)
            .partition(|text| text.contains(SUMMARY_MARK));
        let (summary, kept) = (summaries.join("\n"), kept.join("\n"));

        let needed: BTreeSet<String> = self.mentions.needed(at).map(str::to_owned).collect();
        let before = &self.read[..at];
        let once = mentioned_once(before, &kept);
        let held = |names: &BTreeSet<String>, text: &str| {
            names.iter().filter(|name| text.contains(*name)).count()
        };
        let left = before.iter().map(words_of);
        let left: Vec<String> = left.filter(|text| !kept.contains(text.as_str())).collect();
        let left = left.join("\n");
        let in_window = |name: &String| summary.contains(name) || kept.contains(name);
        Counted {
            places: 1,
            needed: needed.len(),
            in_summary: held(&needed, &summary),
            in_summarised: held(&needed, &left),
            in_window: needed.iter().filter(|name| in_window(name)).count(),
            summary_chars: summary.chars().count(),
            window_tokens: report.tokens_after,
            once: once.len(),
            once_in_summary: held(&once, &summary),
            lost: needed
                .into_iter()
                .filter(|name| !in_window(name))
                .map(|name| (name, 1))
                .collect(),
        }
    }
}

/// The identifiers that stand in one message alone, and not in what was kept.
fn mentioned_once(messages: &[Message], kept: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for message in messages {
        for name in identifiers(&words_of(message)) {
            *times.entry(name).or_default() += 1;
        }
    }
    let once = times.into_iter().filter(|(_, times)| *times == 1);
    once.map(|(name, _)| name)
        .filter(|name| !kept.contains(name.as_str()))
        .collect()
}

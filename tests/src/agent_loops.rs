//! Loops of an agent that reads large results, with their cost compared with the same loop without an engine.
//!
//! Costs are in token equivalents at Anthropic's prices: 1.25 for a token written to the provider's prompt cache, 0.1
//! for one read from it. The cache stays warm throughout, as it does while an agent works.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use contexture::engines::Engines;
use contexture::formats;
use contexture::session::{AgentWindow, OutcomeKind, Session};
use contexture::tokens::TokenCounter;
use contexture_engine_api::Usage;
use serde_json::json;

use crate::under;

/// The engines that must not cost anything while the conversation fits.
pub const AT_NO_COST: [&str; 2] = ["compressor", "lcm"];
/// The number of requests within which no engine compacts twice.
const REST: usize = 5;
const MODEL: &str = "claude-sonnet-4-5";
const WRITE: f64 = 1.25;
const READ: f64 = 0.1;
/// The tokens of the system prompt.
const SYSTEM_TOKENS: usize = 3_000;

/// One loop.
#[derive(Debug, Clone, Copy)]
pub struct Loop {
    /// The engine.
    pub engine: &'static str,
    /// How many tokens each tool result has.
    pub result: usize,
    /// The model's window.
    pub window: u64,
    /// The tokens that the provider reports, as a multiple of the host's count.
    pub usage: f64,
    /// The number of requests.
    pub turns: usize,
}

/// The result of a loop.
#[derive(Debug, Default)]
pub struct Played {
    /// The indexes of compacted requests, and whether the window required each compaction.
    pub compactions: Vec<(usize, bool)>,
    /// The cost of the requests as a share of the same loop's cost without an engine and with an unlimited window.
    pub cost: f64,
    /// Whether the conversation fits the window without an engine, up to the point at which session hygiene fires.
    pub fits: bool,
    /// The number of requests whose prompt was larger than the window minus the answer.
    pub too_large: usize,
}

impl Played {
    /// What is wrong with the result, if anything.
    pub fn fault(&self, played: &Loop) -> Option<String> {
        let pairs = self.compactions.windows(2);
        let mut close = pairs.filter(|pair| pair[1].0 - pair[0].0 <= REST && !pair[1].1);
        if let Some(pair) = close.next() {
            return Some(format!(
                "compacted at requests {} and {}, though the window did not require it",
                pair[0].0, pair[1].0
            ));
        }
        if self.fits && AT_NO_COST.contains(&played.engine) && self.cost > 1.0 {
            return Some(format!("fits the window and costs {:.3}", self.cost));
        }
        (self.too_large > 0).then(|| format!("{} prompts do not fit", self.too_large))
    }
}

impl Loop {
    /// Runs the loop. The client sends the whole conversation each time, as agents do.
    pub fn play(&self, engines: &Arc<Engines>) -> Played {
        let agent = AgentWindow::new(MODEL.to_owned(), self.window, self.window / 10);
        let mut session = Session::open(engines, None, "loop", agent, under(self.engine)).unwrap();
        let mut messages = vec![
            json!({"role": "system", "content": words(1, SYSTEM_TOKENS)}),
            json!({"role": "user", "content": "Find out why the nightly build fails, and mend it."}),
        ];
        let mut played = Played {
            fits: true,
            ..Played::default()
        };
        let (mut with, mut without) = (Bill::default(), Bill::default());
        let mut before: Vec<CountedMessage> = Vec::new();
        let mut whole = 0;
        let mut counted = Counted::default();
        for turn in 0..self.turns {
            let body = json!({"model": MODEL, "messages": messages}).to_string();
            let uncompacted = self.reported(counted.items(&body).iter().map(|item| item.0).sum());
            let stood = session.state();
            let grown = stood.best_prompt_tokens() + uncompacted.saturating_sub(whole);
            let sent = session.turn(&body).unwrap();
            if (sent.compaction.as_ref())
                .is_some_and(|report| report.outcome == OutcomeKind::Compacted)
            {
                let required = stood
                    .clone()
                    .reported_tokens(Some(grown + 64))
                    .requires_compaction();
                played.compactions.push((turn, required));
            }
            let items = counted.items(&sent.body);
            let same = items.iter().zip(&before).take_while(|(a, b)| a == b);
            let cached = same.map(|(item, _)| item.0).sum::<u64>();
            let prompt = items.iter().map(|item| item.0).sum::<u64>();
            let (cached, prompt) = (self.reported(cached), self.reported(prompt));
            with.request(cached, prompt);
            without.request(whole, uncompacted);
            played.fits &= session
                .state()
                .reported_tokens(Some(uncompacted))
                .required_from()
                .is_some_and(|from| uncompacted < from);
            let usable = self.window - self.window / 10;
            played.too_large += usize::from(prompt > usable);
            (before, whole) = (items, uncompacted);

            let answer = json!({"role": "assistant", "content": format!("Step {turn}: I look at the next file."), "tool_calls": [
                {"id": format!("call_{turn}"), "type": "function", "function": {"name": "read_file",
                    "arguments": json!({"path": format!("src/part_{turn}/module.rs")}).to_string()}}]});
            let usage = Usage::default()
                .input_tokens(prompt)
                .output_tokens(self.reported(40));
            session
                .answer(&[&answer.to_string()], Some(&usage))
                .unwrap();
            messages.push(answer);
            messages.push(
                json!({"role": "tool", "tool_call_id": format!("call_{turn}"),
                "content": words(turn + 7, self.result)}),
            );
        }
        played.cost = with.0 / without.0;
        played
    }

    fn reported(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.usage) as u64
    }
}

/// The cost of requests, in tokens of plain input.
#[derive(Default)]
struct Bill(f64);

impl Bill {
    fn request(&mut self, cached: u64, prompt: u64) {
        let written = prompt.saturating_sub(cached);
        self.0 += READ * cached as f64 + WRITE * written as f64;
    }
}

/// A message's tokens and its identity.
type CountedMessage = (u64, String);

/// Token counts that were computed before.
struct Counted {
    counter: TokenCounter,
    tokens: HashMap<String, u64>,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            counter: TokenCounter::for_model(MODEL),
            tokens: HashMap::new(),
        }
    }
}

impl Counted {
    /// The messages of a body, with system prompt and tools first.
    fn items(&mut self, body: &str) -> Vec<CountedMessage> {
        let wire = formats::split(body, None).unwrap();
        let frame = wire.system.iter().chain(&wire.tools);
        let all = frame.chain(&wire.system_messages).chain(&wire.messages);
        all.map(|raw| {
            let counter = &self.counter;
            let tokens = self.tokens.entry((*raw).to_owned());
            let tokens = *tokens.or_insert_with(|| counter.count_text(raw));
            (tokens, (*raw).to_owned())
        })
        .collect()
    }
}

/// A unique text of about this many tokens.
fn words(seed: usize, tokens: usize) -> String {
    let mut state = seed as u64 * 7_919 + 17;
    let mut text = String::new();
    // A line has about twenty tokens.
    for line in 0..tokens / 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pick = |shift: u32| WORDS[(state >> shift) as usize % WORDS.len()];
        let (name, verb, noun, of) = (pick(33), pick(38), pick(43), pick(48));
        writeln!(
            text,
            "{line}: let {name} = {verb}_{noun}({of}, {});",
            state >> 54
        )
        .unwrap();
    }
    text
}

const WORDS: [&str; 12] = [
    "order", "ledger", "config", "token", "index", "shard", "session", "buffer", "queue", "worker",
    "record", "stream",
];

/// All loops, ordered by window, result, usage and engine.
pub fn grid(engines: &[&'static str]) -> Vec<Loop> {
    let mut grid = Vec::new();
    for window in [32_000, 64_000, 128_000, 200_000] {
        for result in [500, 2_000, 6_000, 10_000] {
            for usage in [1.0, 1.25] {
                grid.extend(engines.iter().map(|&engine| Loop {
                    engine,
                    result,
                    window,
                    usage,
                    turns: 60,
                }));
            }
        }
    }
    grid
}

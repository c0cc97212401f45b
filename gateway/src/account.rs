//! What each turn was in tokens and money, as the provider reported it, beside what it would have been without the
//! engine. It is kept with the session, so that it outlives the gateway: the sums, and the last turns.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use contexture::Usage;
use contexture::prompt_cache::Ttl;
use contexture::replay::{Prices, Prompts};
use contexture::session::{CompactionReport, Record, RecordError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Shared;
use crate::api::Api;

/// The name of the sums among what is kept with a session.
pub(crate) const TOTALS: &str = "turns";
/// What the names of turns begin with.
const TURN: &str = "turn ";
/// How many of the last turns are kept.
const TURNS: u64 = 500;
/// The sessions with diffs in memory, and how many diffs.
const DIFFS: usize = 64;

/// What prompts cost, in US dollars.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// With the engine: what was spent.
    engine: f64,
    /// Without it, with markers for the provider's cache.
    markers: f64,
    /// Without both.
    none: f64,
}

/// A turn as it was.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    turn: u64,
    at_ms: u64,
    model: String,
    /// The model's whole window, in tokens.
    window: u64,
    /// The prompt of the last round, in tokens, and the parts of it that the cache served and took.
    prompt: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    hidden_rounds: u32,
    /// What the prompt would have been without the engine (an estimate).
    without: u64,
    /// None where the model's prices are not known.
    cost: Option<Cost>,
    held_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Value>,
}

/// All turns of a session. Tokens are those of all rounds.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    turns: u64,
    compactions: u64,
    hidden_rounds: u64,
    prompt: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    without: u64,
    /// Of the turns whose model has known prices; none where there are none.
    cost: Option<Cost>,
    /// When the last one was.
    at_ms: u64,
    /// What the last one would have been.
    last_without: u64,
}

/// What is known of a turn once it is over.
pub(crate) struct Over<'t> {
    pub(crate) api: Api,
    pub(crate) model: &'t str,
    pub(crate) window: u64,
    pub(crate) held_ms: f64,
    /// Of the last round, and of all.
    pub(crate) last: Usage,
    pub(crate) all: Usage,
    pub(crate) hidden_rounds: u32,
    /// How large the client's request is, and what was sent for it, in bytes.
    pub(crate) asked_bytes: usize,
    pub(crate) sent_bytes: usize,
    /// Whether the client sets markers of its own.
    pub(crate) has_markers: bool,
    pub(crate) compaction: Option<&'t CompactionReport>,
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// What these tokens cost.
fn cost(prices: &Prices, prompt: u64, read: u64, written: u64) -> f64 {
    prices.cost(&Prompts {
        prompt_tokens: prompt,
        cached_tokens: read,
        written_tokens: written,
        ..Prompts::default()
    })
}

/// Notes a turn; answers its number. Two at once may not: the sums are read and written.
///
/// # Errors
/// The record cannot be read or written.
pub(crate) fn note(shared: &Shared, session: &str, over: &Over<'_>) -> Result<u64, RecordError> {
    let record = shared.host.record();
    let mut totals = totals(record, session)?;
    let at_ms = now_ms();
    let (last, all) = (over.last, over.all);
    let without = match over.sent_bytes {
        0 => last.input_tokens,
        sent => (last.input_tokens as f64 * over.asked_bytes as f64 / sent as f64).round() as u64,
    };
    // The cache would hold the request before, where that was lately and this one goes on with it.
    let is_warm = at_ms.saturating_sub(totals.at_ms) < 5 * 60_000;
    let read = match is_warm && without >= totals.last_without {
        true => totals.last_without,
        false => 0,
    };
    let is_cached_anyway = over.has_markers || over.api != Api::Messages;
    let cost = Prices::of_model(over.model, Ttl::FiveMinutes).map(|prices| {
        let markers = cost(&prices, without, read, without.saturating_sub(read));
        Cost {
            engine: cost(
                &prices,
                all.input_tokens,
                all.cache_read_tokens,
                all.cache_write_tokens,
            ),
            markers,
            none: match is_cached_anyway {
                true => markers,
                false => cost(&prices, without, 0, 0),
            },
        }
    });
    totals.turns += 1;
    totals.compactions += u64::from(over.compaction.is_some());
    totals.hidden_rounds += u64::from(over.hidden_rounds);
    totals.prompt += all.input_tokens;
    totals.cache_read += all.cache_read_tokens;
    totals.cache_write += all.cache_write_tokens;
    totals.output += all.output_tokens;
    totals.without += without;
    if let Some(cost) = cost {
        let saved = cost.none.min(cost.markers) - cost.engine;
        let saved = (saved * 1e6) as i64;
        (shared.metrics.saved_microdollars).fetch_add(saved, Ordering::Relaxed);
        let sums = totals.cost.get_or_insert_default();
        sums.engine += cost.engine;
        sums.markers += cost.markers;
        sums.none += cost.none;
    }
    totals.at_ms = at_ms;
    totals.last_without = without;
    let turn = Turn {
        turn: totals.turns,
        at_ms,
        model: over.model.to_owned(),
        window: over.window,
        prompt: last.input_tokens,
        cache_read: last.cache_read_tokens,
        cache_write: last.cache_write_tokens,
        output: all.output_tokens,
        hidden_rounds: over.hidden_rounds,
        without,
        cost,
        held_ms: over.held_ms,
        compaction: over
            .compaction
            .and_then(|report| serde_json::to_value(report).ok()),
    };
    let name = format!("{TURN}{:03}", turn.turn % TURNS);
    // Numbers, texts and JSON values have a JSON form.
    let kept = serde_json::to_string(&turn).unwrap_or_default();
    let sums = serde_json::to_string(&totals).unwrap_or_default();
    record.keep(session, &[(&name, &kept), (TOTALS, &sums)])?;
    Ok(turn.turn)
}

fn totals(record: &Record, session: &str) -> Result<Totals, RecordError> {
    let kept = record.kept_as(TOTALS, Some(session))?;
    let totals = kept
        .first()
        .and_then(|(_, text)| serde_json::from_str(text).ok());
    Ok(totals.unwrap_or_default())
}

/// The sums of a session and its last turns, in order.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn of(record: &Record, session: &str) -> Result<(Totals, Vec<Turn>), RecordError> {
    let (mut all, mut turns) = (Totals::default(), Vec::new());
    for (name, text) in record.kept(session)? {
        if name == TOTALS {
            all = serde_json::from_str(&text).unwrap_or_default();
        } else if name.starts_with(TURN) {
            turns.extend(serde_json::from_str::<Turn>(&text).ok());
        }
    }
    turns.sort_by_key(|turn| turn.turn);
    Ok((all, turns))
}

/// What the last compactions changed, in memory alone: it is text of conversations.
#[derive(Debug, Default)]
pub(crate) struct Diffs(VecDeque<(String, u64, Value)>);

impl Diffs {
    pub(crate) fn push(&mut self, session: &str, turn: u64, diff: Value) {
        self.0.push_back((session.to_owned(), turn, diff));
        if self.0.len() > DIFFS {
            self.0.pop_front();
        }
    }

    /// Those of a session, with the numbers of their turns.
    pub(crate) fn of(&self, session: &str) -> Vec<Value> {
        let own = self.0.iter().filter(|(id, ..)| id == session);
        own.map(|(_, turn, diff)| {
            let mut diff = diff.clone();
            diff["turn"] = Value::from(*turn);
            diff
        })
        .collect()
    }
}

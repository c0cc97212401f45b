//! Keeps account of each turn in tokens and money: what the provider reported, and what it would
//! have been without the engine.
//!
//! [`note`] records a turn as a [`TurnRecord`] and adds it to the session's [`SessionTotals`]. Both
//! are stored with the session in the host's record, so they outlive the gateway. [`of`] reads them
//! for the status page. Costs without the engine are estimates: the size of the client's own
//! request, with and without markers for the provider's prompt cache.
//!
//! [`Diffs`] holds what the last compactions changed. It stays in memory, because it contains text
//! of conversations. Prices come from the host's replay module.

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

/// The key of the totals in the data that is stored with a session.
pub(crate) const TOTALS: &str = "turns";
const TURN_PREFIX: &str = "turn ";
/// How many of the last turns are kept for each session. Older ones are overwritten.
const MAX_TURNS: u64 = 500;
/// How many diffs are kept in memory, over all sessions. If there are more, the oldest is dropped.
const MAX_DIFFS: usize = 64;

/// What prompts cost in US dollars at list prices, in three scenarios. The answer's tokens are not
/// included.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// With the engine, as it was spent.
    engine: f64,
    /// Without the engine, but with markers for the provider's prompt cache.
    markers: f64,
    none: f64,
}

/// A finished turn, as it is stored and as the status page gets it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TurnRecord {
    turn: u64,
    at_ms: u64,
    model: String,
    window: u64,
    /// The prompt of the last round in tokens, and the parts of it that were read from and written
    /// to the provider's cache.
    prompt: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    hidden_rounds: u32,
    /// Estimated tokens of the prompt without the engine: the reported tokens, scaled by the size
    /// of the client's own request.
    without: u64,
    /// The cost of the turn. None if the prices of the model are unknown.
    cost: Option<Cost>,
    held_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Value>,
}

/// The sums over all turns of a session, stored beside the single turns. Tokens include hidden
/// rounds. Entries of older versions can be read, because missing fields get defaults.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionTotals {
    turns: u64,
    compactions: u64,
    hidden_rounds: u64,
    prompt: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    without: u64,
    /// The cost of all turns whose model has known prices. None if there are none.
    cost: Option<Cost>,
    at_ms: u64,
    last_without: u64,
}

/// Everything that is known of a turn once its answer has ended. It is the input of [`note`], with
/// the parts that only the gateway measures.
pub(crate) struct TurnStats<'t> {
    pub(crate) api: Api,
    pub(crate) model: &'t str,
    pub(crate) window: u64,
    pub(crate) held_ms: f64,
    pub(crate) last: Usage,
    pub(crate) all: Usage,
    pub(crate) hidden_rounds: u32,
    /// The size of the client's request and of the one that was sent for it, in bytes.
    pub(crate) request_bytes: usize,
    pub(crate) sent_bytes: usize,
    pub(crate) has_markers: bool,
    pub(crate) compaction: Option<&'t CompactionReport>,
}

/// The current time in milliseconds since the Unix epoch, or 0 if the clock is before it.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The cost of a prompt of `prompt` tokens in US dollars. Of these tokens, `read` were read from
/// the cache and `written` were written to it.
fn cost(prices: &Prices, prompt: u64, read: u64, written: u64) -> f64 {
    prices.cost(&Prompts {
        prompt_tokens: prompt,
        cached_tokens: read,
        written_tokens: written,
        ..Prompts::default()
    })
}

/// Records a turn and adds it to the session's totals. Returns its number. The caller must not run
/// two calls at once, because the totals are read and written back.
///
/// # Errors
/// The record cannot be read or written.
pub(crate) fn note(
    shared: &Shared,
    session: &str,
    stats: &TurnStats<'_>,
) -> Result<u64, RecordError> {
    let record = shared.host.record();
    let mut totals = totals(record, session)?;
    let at_ms = now_ms();
    let (last, all) = (stats.last, stats.all);
    // The provider counted only the request that was sent, so the client's own is estimated by its
    // bytes.
    let without = match stats.sent_bytes {
        0 => last.input_tokens,
        sent => {
            (last.input_tokens as f64 * stats.request_bytes as f64 / sent as f64).round() as u64
        }
    };
    // Without the engine, the cache would hold the previous request, if that was less than five
    // minutes ago and this one continues it.
    let is_warm = at_ms.saturating_sub(totals.at_ms) < 5 * 60_000;
    let read = match is_warm && without >= totals.last_without {
        true => totals.last_without,
        false => 0,
    };
    // Only Anthropic's API needs markers to cache anything.
    let is_cached_anyway = stats.has_markers || stats.api != Api::Messages;
    let cost = Prices::of_model(stats.model, Ttl::FiveMinutes).map(|prices| {
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
    totals.compactions += u64::from(stats.compaction.is_some());
    totals.hidden_rounds += u64::from(stats.hidden_rounds);
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
    let turn = TurnRecord {
        turn: totals.turns,
        at_ms,
        model: stats.model.to_owned(),
        window: stats.window,
        prompt: last.input_tokens,
        cache_read: last.cache_read_tokens,
        cache_write: last.cache_write_tokens,
        output: all.output_tokens,
        hidden_rounds: stats.hidden_rounds,
        without,
        cost,
        held_ms: stats.held_ms,
        compaction: stats
            .compaction
            .and_then(|report| serde_json::to_value(report).ok()),
    };
    let name = format!("{TURN_PREFIX}{:03}", turn.turn % MAX_TURNS);
    // Numbers, texts and JSON values always have a JSON form.
    let kept = serde_json::to_string(&turn).unwrap_or_default();
    let sums = serde_json::to_string(&totals).unwrap_or_default();
    record.keep(session, &[(&name, &kept), (TOTALS, &sums)])?;
    Ok(turn.turn)
}

/// A session's totals. All zero if none are stored or they cannot be parsed.
fn totals(record: &Record, session: &str) -> Result<SessionTotals, RecordError> {
    let kept = record.kept_as(TOTALS, Some(session))?;
    let totals = kept
        .first()
        .and_then(|(_, text)| serde_json::from_str(text).ok());
    Ok(totals.unwrap_or_default())
}

/// The totals of a session and its last turns, oldest first. Entries that cannot be parsed are left
/// out.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn of(
    record: &Record,
    session: &str,
) -> Result<(SessionTotals, Vec<TurnRecord>), RecordError> {
    let (mut all, mut turns) = (SessionTotals::default(), Vec::new());
    for (name, text) in record.kept(session)? {
        if name == TOTALS {
            all = serde_json::from_str(&text).unwrap_or_default();
        } else if name.starts_with(TURN_PREFIX) {
            turns.extend(serde_json::from_str::<TurnRecord>(&text).ok());
        }
    }
    turns.sort_by_key(|turn| turn.turn);
    Ok((all, turns))
}

/// What the last compactions changed, over all sessions. It is kept in memory only, because it
/// contains text of conversations.
#[derive(Debug, Default)]
pub(crate) struct Diffs(VecDeque<(String, u64, Value)>);

impl Diffs {
    /// Adds a diff, and drops the oldest one if there are more than [`MAX_DIFFS`].
    pub(crate) fn push(&mut self, session: &str, turn: u64, diff: Value) {
        self.0.push_back((session.to_owned(), turn, diff));
        if self.0.len() > MAX_DIFFS {
            self.0.pop_front();
        }
    }

    /// The diffs of a session, oldest first, each with the number of its turn.
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

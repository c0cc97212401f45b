//! Keeps account of each turn in tokens and money: what the provider reported, and what it would
//! have been without the engine.
//!
//! [`change`] records a turn as a [`TurnRecord`] and adds it to the session's [`SessionTotals`]. Both
//! are stored with the session in the host's record, so they outlive the gateway. [`of`] reads them
//! for the status page. Costs without the engine are estimates: the size of the client's own
//! request, with and without markers for the provider's prompt cache.
//!
//! [`Diffs`] holds what the last compactions changed. It stays in memory, because it contains text
//! of conversations. Prices come from the configuration and from the list in the host's replay
//! module, see [`price_of`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

use contexture::config::{ModelPrice, PriceSettings};
use contexture::prompt_cache::Ttl;
use contexture::replay::{ListPrice, Prompts};
use contexture::session::{CompactionReport, KeptChange, KeptContent, Record, RecordError};
use contexture::{Usage, lock};
use serde::{Deserialize, Serialize};

use crate::Shared;
use crate::api::Api;
use crate::body::SharedBody;
use crate::diff::Diff;
use crate::subject::Subject;

/// The key of the totals in the data that is stored with a session.
pub(crate) const TOTALS: &str = "turns";
const TURN_PREFIX: &str = "turn ";
/// How many of the last turns are kept for each session. Older ones are overwritten.
const MAX_TURNS: u64 = 500;
/// How many hours with turns are kept for each session. Older ones are missing in the trend.
const MAX_HOURS: usize = 240;
/// How many models without a known price are named for each session. Clients choose the names.
const MAX_UNPRICED: usize = 8;
/// How many diffs are kept in memory, over all sessions. If there are more, the oldest is dropped.
const MAX_DIFFS: usize = 64;

/// Costs in US dollars at list prices. The first three are what prompts cost in three scenarios. The
/// answer costs the same in each of them, and the summaries exist only in the first.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cost {
    /// The prompts with the engine, as they were sent.
    engine: f64,
    /// The prompts without the engine, but with markers for the provider's prompt cache.
    markers: f64,
    none: f64,
    /// The answers.
    output: f64,
    /// The calls of models that write summaries.
    summaries: f64,
}

impl Cost {
    fn add(&mut self, other: &Self) {
        self.engine += other.engine;
        self.markers += other.markers;
        self.none += other.none;
        self.output += other.output;
        self.summaries += other.summaries;
    }

    /// What was spent with the engine.
    fn spent(&self) -> f64 {
        self.engine + self.output + self.summaries
    }

    /// What the engine saved against the cheaper one of the other scenarios. Negative if it cost
    /// more.
    fn saved(&self) -> f64 {
        self.none.min(self.markers) - self.engine - self.summaries
    }
}

/// Why a compaction was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// The engine decided it.
    #[default]
    Engine,
    /// The window was nearly full, so the host overruled the engine.
    SafetyNet,
    /// The provider refused the request as too long.
    Refusal,
}

/// A compaction that was made, with what it changed.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub(crate) report: CompactionReport,
    pub(crate) cause: Cause,
    /// The figures that made it due, in words.
    pub(crate) trigger: String,
    pub(crate) diff: Diff,
}

/// A compaction, as it is stored with its turn.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CompactionRecord {
    #[serde(flatten)]
    report: CompactionReport,
    cause: Cause,
    trigger: String,
}

impl From<&Compacted> for CompactionRecord {
    fn from(compacted: &Compacted) -> Self {
        let mut report = compacted.report.clone();
        // They may be large, and the status page shows none of them.
        report.states.clear();
        Self {
            report,
            cause: compacted.cause,
            trigger: compacted.trigger.clone(),
        }
    }
}

/// A finished turn, as it is stored and as the status page gets it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
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
    /// How long the gateway held the request, and how long it took until the head and until the end
    /// of the answer, in milliseconds. All count from the arrival of the request.
    held_ms: f64,
    first_ms: f64,
    total_ms: f64,
    /// The prompt size from which the engine compacts, in tokens. None if its decision names none.
    due_from: Option<u64>,
    /// The engine's decision about a compaction, in its own words.
    decision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<CompactionRecord>,
}

/// Figures of turns, summed up. Tokens include hidden rounds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sums {
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
    /// The turns that are not in `cost`, or not all of them, because a model has no known price.
    unpriced: u64,
}

impl Sums {
    /// The figure of a column by which lists of sessions are sorted. Costs are in millionths of a
    /// dollar, and shares in millionths. None if there is no such column.
    pub(crate) fn figure(&self, column: &str) -> Option<i64> {
        let millionths = |value: f64| (value * 1e6) as i64;
        Some(match column {
            "turns" => self.turns.cast_signed(),
            "compactions" => self.compactions.cast_signed(),
            "prompt" => self.prompt.cast_signed(),
            "cache" => millionths(self.cache_read as f64 / self.prompt.max(1) as f64),
            // What has no known cost comes after what cost nothing.
            "cost" => self.cost.map_or(-1, |cost| millionths(cost.spent())),
            _ => return None,
        })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.compactions += other.compactions;
        self.hidden_rounds += other.hidden_rounds;
        self.prompt += other.prompt;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.output += other.output;
        self.without += other.without;
        self.unpriced += other.unpriced;
        if let Some(cost) = &other.cost {
            self.cost.get_or_insert_default().add(cost);
        }
    }
}

/// The figures of one hour, for the trend over time.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HourSums {
    /// The number of the hour since the Unix epoch.
    pub(crate) hour: u64,
    #[serde(flatten)]
    pub(crate) sums: Sums,
}

/// What is stored of a session beside the single turns. Entries of older versions can be read,
/// because missing fields get defaults.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionTotals {
    #[serde(flatten)]
    pub(crate) sums: Sums,
    pub(crate) at_ms: u64,
    /// The estimated tokens of the client's last request, and its bytes.
    last_without: u64,
    last_bytes: u64,
    /// The model and the agent of the last turn.
    pub(crate) model: String,
    pub(crate) agent: String,
    /// The models of the turns that count as `unpriced`, at most [`MAX_UNPRICED`].
    pub(crate) unpriced_models: BTreeSet<String>,
    /// None if it was not read yet, or if the session's messages are not stored.
    pub(crate) subject: Option<Subject>,
    /// The hours that had turns, oldest first, at most [`MAX_HOURS`].
    pub(crate) hours: Vec<HourSums>,
}

/// Everything that is known of a turn once its answer has ended. It is the input of [`change`], with
/// the parts that only the gateway measures.
pub(crate) struct TurnStats<'t> {
    pub(crate) api: Api,
    pub(crate) model: &'t str,
    pub(crate) agent: &'t str,
    pub(crate) window: u64,
    /// From the arrival of the request until it was sent, until the head of the answer, and until
    /// its end.
    pub(crate) held: Duration,
    pub(crate) first: Duration,
    pub(crate) total: Duration,
    pub(crate) last: Usage,
    pub(crate) all: Usage,
    pub(crate) hidden_rounds: u32,
    /// The client's request, and how many times as many tokens it has as the one that was sent for it.
    pub(crate) request: &'t SharedBody,
    pub(crate) client_ratio: f64,
    /// Whether anything else was sent than the client's request.
    pub(crate) is_changed: bool,
    pub(crate) has_markers: bool,
    pub(crate) stores_texts: bool,
    pub(crate) decision: &'t str,
    pub(crate) compaction: Option<&'t Compacted>,
    /// What the models that write summaries used since the turn before.
    pub(crate) summaries: BTreeMap<String, Usage>,
}

/// The current time in milliseconds since the Unix epoch, or 0 if the clock is before it.
pub(crate) fn now_ms() -> u64 {
    contexture::now_ms().cast_unsigned()
}

/// The cost of a prompt of `prompt` tokens in US dollars. Of these tokens, `read` were read from
/// the cache and `written` were written to it.
fn tokens_cost(price: &ListPrice, prompt: u64, read: u64, written: u64) -> f64 {
    price.prompts(Ttl::FiveMinutes).cost(&Prompts {
        prompt_tokens: prompt,
        cached_tokens: read,
        written_tokens: written,
        ..Prompts::default()
    })
}

/// The cost of the prompts of these calls in US dollars.
fn prompt_cost(price: &ListPrice, usage: &Usage) -> f64 {
    tokens_cost(
        price,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )
}

/// The cost of the answers of these calls in US dollars.
fn output_cost(price: &ListPrice, usage: &Usage) -> f64 {
    usage.output_tokens as f64 * price.output / 1e6
}

/// What a model costs: by the configuration, or else by the list prices. None if neither has it.
pub(crate) fn price_of(settings: &PriceSettings, model: &str) -> Option<ListPrice> {
    let configured = settings.for_model(model).and_then(|price| {
        let ModelPrice {
            input,
            cached,
            write,
            output,
        } = *price;
        let input = input?;
        Some(ListPrice {
            input,
            cached: cached.unwrap_or(input / 10.0),
            write: write.unwrap_or(input),
            output: output.unwrap_or(0.0),
        })
    });
    configured.or_else(|| ListPrice::of_model(model))
}

/// The prompt size from which an engine compacts, in tokens, as its decision states it. An engine
/// says this only in words. The engines of this project and the safety net write the number after
/// one of a few phrases. None if there is no such number.
fn due_from(decision: &str) -> Option<u64> {
    let after = ["due from ", "fires at ", "compaction from ", "threshold "]
        .into_iter()
        .find_map(|words| Some(decision.split_once(words)?.1))?;
    let is_number = |c: char| c.is_ascii_digit() || c == ',';
    let number: String = (after.chars().take_while(|c| is_number(*c)))
        .filter(char::is_ascii_digit)
        .collect();
    number.parse().ok()
}

/// The change of the record that records a turn and adds it to the session's totals.
pub(crate) fn change<'a>(
    shared: &'a Shared,
    session: &'a str,
    stats: TurnStats<'a>,
) -> KeptChange<'a> {
    KeptChange::new(session, TOTALS, KeptContent::Exact, move |text| {
        let mut totals = SessionTotals::of_text(text.as_deref());
        let turn = add(shared, session, &mut totals, &stats);
        if let Some(compacted) = stats.compaction {
            let mut diffs = lock(&shared.diffs);
            diffs.push(session, turn.turn, compacted.diff.clone());
        }
        let name = format!("{TURN_PREFIX}{:03}", turn.turn % MAX_TURNS);
        // Numbers, texts and JSON values always have a JSON form.
        let kept = serde_json::to_string(&turn).unwrap_or_default();
        let sums = serde_json::to_string(&totals).unwrap_or_default();
        vec![(name, kept), (TOTALS.to_owned(), sums)]
    })
}

/// Adds a turn to the totals of its session, and returns what is recorded of it.
fn add(
    shared: &Shared,
    session: &str,
    totals: &mut SessionTotals,
    stats: &TurnStats<'_>,
) -> TurnRecord {
    let at_ms = now_ms();
    let without = WithoutEngine::of(stats, totals, at_ms);
    let engines = shared.host.engines();
    let (cost, unpriced) = cost_of(stats, &engines.config().prices, &without);
    if let Some(cost) = &cost {
        let saved = (cost.saved() * 1e6) as i64;
        (shared.metrics.saved_microdollars).fetch_add(saved, Ordering::Relaxed);
    }
    let (last, all) = (stats.last, stats.all);
    let sums = Sums {
        turns: 1,
        compactions: u64::from(stats.compaction.is_some()),
        hidden_rounds: u64::from(stats.hidden_rounds),
        prompt: all.input_tokens,
        cache_read: all.cache_read_tokens,
        cache_write: all.cache_write_tokens,
        output: all.output_tokens,
        without: without.tokens,
        cost,
        unpriced: u64::from(!unpriced.is_empty()),
    };
    totals.add(&sums, stats, &without, at_ms);
    totals.note_unpriced(unpriced);
    if totals.subject.is_none() {
        let known = shared.subjects.of(session);
        let subject = known.unwrap_or_else(|| Subject::of(&stats.request.wire()));
        match stats.stores_texts {
            true => totals.subject = Some(subject),
            false => shared.subjects.put(session, subject),
        }
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let trigger = stats.compaction.map(|compacted| compacted.trigger.as_str());
    TurnRecord {
        turn: totals.sums.turns,
        at_ms,
        model: stats.model.to_owned(),
        window: stats.window,
        prompt: last.input_tokens,
        cache_read: last.cache_read_tokens,
        cache_write: last.cache_write_tokens,
        output: all.output_tokens,
        hidden_rounds: stats.hidden_rounds,
        without: without.tokens,
        cost,
        held_ms: ms(stats.held),
        first_ms: ms(stats.first),
        total_ms: ms(stats.total),
        due_from: due_from(trigger.unwrap_or(stats.decision)),
        decision: stats.decision.to_owned(),
        compaction: stats.compaction.map(CompactionRecord::from),
    }
}

/// An estimate of the client's own request, if it had been sent without the engine. The provider
/// counted only the request that was sent.
struct WithoutEngine {
    bytes: u64,
    tokens: u64,
    /// The tokens that the provider's cache would have held.
    cached: u64,
}

impl WithoutEngine {
    fn of(stats: &TurnStats<'_>, totals: &SessionTotals, at_ms: u64) -> Self {
        let last = stats.last;
        let bytes = stats.request.text().len() as u64;
        let tokens = (last.input_tokens as f64 * stats.client_ratio).round() as u64;
        // What the provider read for the engine begins every prompt of the client, such as its system
        // prompt, so it would have been read without the engine, too.
        let cached = totals.cached_without(at_ms, tokens, bytes);
        Self {
            bytes,
            tokens,
            cached: cached.max(last.cache_read_tokens.min(tokens)),
        }
    }
}

/// What a turn cost, or None if its model has no known price, and the models of the turn without one.
fn cost_of(
    stats: &TurnStats<'_>,
    prices: &PriceSettings,
    without: &WithoutEngine,
) -> (Option<Cost>, BTreeSet<String>) {
    let mut unpriced = BTreeSet::new();
    let mut price_of = |model: &str| {
        let price = price_of(prices, model);
        unpriced.extend(price.is_none().then(|| model.to_owned()));
        price
    };
    let summaries = stats.summaries.iter().filter_map(|(model, usage)| {
        let price = price_of(model)?;
        Some(prompt_cost(&price, usage) + output_cost(&price, usage))
    });
    let summaries = summaries.sum();
    // Only Anthropic's API needs markers to cache anything.
    let is_cached_anyway = stats.has_markers || stats.api != Api::Messages;
    let cost = price_of(stats.model).map(|price| {
        let engine = prompt_cost(&price, &stats.all);
        let WithoutEngine { tokens, cached, .. } = *without;
        let markers = match stats.is_changed {
            true => tokens_cost(&price, tokens, cached, tokens.saturating_sub(cached)),
            false => engine,
        };
        Cost {
            engine,
            markers,
            none: match is_cached_anyway || !stats.is_changed {
                true => markers,
                false => tokens_cost(&price, tokens, 0, 0),
            },
            output: output_cost(&price, &stats.all),
            summaries,
        }
    });
    (cost, unpriced)
}

impl SessionTotals {
    /// The totals in their stored form. All zero if there is none or it cannot be parsed.
    pub(crate) fn of_text(text: Option<&str>) -> Self {
        let totals = text.and_then(|text| serde_json::from_str(text).ok());
        totals.unwrap_or_default()
    }

    fn add(&mut self, sums: &Sums, stats: &TurnStats<'_>, without: &WithoutEngine, at_ms: u64) {
        self.sums.add(sums);
        self.add_to_hour(at_ms / 3_600_000, sums);
        self.at_ms = at_ms;
        (self.last_without, self.last_bytes) = (without.tokens, without.bytes);
        stats.model.clone_into(&mut self.model);
        stats.agent.clone_into(&mut self.agent);
    }

    fn note_unpriced(&mut self, models: BTreeSet<String>) {
        self.unpriced_models.extend(models);
        while self.unpriced_models.len() > MAX_UNPRICED {
            self.unpriced_models.pop_last();
        }
    }

    /// How many tokens of a request of the client the provider's cache would hold without the engine:
    /// those of its last request, if that was less than five minutes ago and this one continues it.
    /// The bytes tell that. The tokens are an estimate and may fall a little from turn to turn.
    fn cached_without(&self, at_ms: u64, without: u64, bytes: u64) -> u64 {
        let is_warm = at_ms.saturating_sub(self.at_ms) < 5 * 60_000;
        match is_warm && bytes >= self.last_bytes {
            true => self.last_without.min(without),
            false => 0,
        }
    }

    /// Adds figures to those of their hour.
    fn add_to_hour(&mut self, hour: u64, sums: &Sums) {
        match self.hours.last_mut().filter(|last| last.hour == hour) {
            Some(last) => last.sums.add(sums),
            None => {
                let sums = *sums;
                self.hours.push(HourSums { hour, sums });
            }
        }
        if self.hours.len() > MAX_HOURS {
            self.hours.remove(0);
        }
    }
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
            all = SessionTotals::of_text(Some(&text));
        } else if name.starts_with(TURN_PREFIX) {
            turns.extend(serde_json::from_str::<TurnRecord>(&text).ok());
        }
    }
    turns.sort_by_key(|turn| turn.turn);
    Ok((all, turns))
}

/// The diff of a turn's compaction.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TurnDiff {
    turn: u64,
    #[serde(flatten)]
    diff: Diff,
}

/// What the last compactions changed, over all sessions. It is kept in memory only, because it
/// contains text of conversations.
#[derive(Debug, Default)]
pub(crate) struct Diffs(VecDeque<(String, TurnDiff)>);

impl Diffs {
    /// Adds a diff, and drops the oldest one if there are more than [`MAX_DIFFS`].
    pub(crate) fn push(&mut self, session: &str, turn: u64, diff: Diff) {
        self.0
            .push_back((session.to_owned(), TurnDiff { turn, diff }));
        if self.0.len() > MAX_DIFFS {
            self.0.pop_front();
        }
    }

    /// The diffs of a session, oldest first, each with the number of its turn.
    pub(crate) fn of(&self, session: &str) -> Vec<TurnDiff> {
        let own = self.0.iter().filter(|(id, _)| id == session);
        own.map(|(_, diff)| diff.clone()).collect()
    }

    pub(crate) fn forget(&mut self, session: &str) {
        self.0.retain(|(id, _)| id != session);
    }
}

#[cfg(test)]
mod tests;

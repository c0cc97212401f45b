//! The figures of a session: what the provider reported, when requests came, and what they cost.
//!
//! The host counts tokens with a tokenizer that may differ from the provider's. Each usage report
//! therefore corrects the later counts, and [`Meter::update_usage`] ignores reports that cannot be
//! about the prompt at hand. [`Meter::state`] applies the correction to a count, for an engine.
//!
//! The meter also tracks what compactions cost and saved ([`Ledger`]), the pauses between requests,
//! and the lifetime of the provider's prompt cache that is chosen from them. The decision whether to
//! compact is left to the engine and to `hygiene`.

use contexture_config::Timing;
use contexture_engine_api::{CachePrices, Usage, WindowState};
use contexture_formats::prompt_cache::{self, CacheTtl, Pauses, Ttl};
use contexture_formats::tokens::Correction;
use contexture_runtime::engines::Engines;
use serde::{Deserialize, Serialize};

use super::options::{AgentWindow, ConfiguredAgent, Relation};
use contexture_base::now_ms;

/// How many of the latest pauses an engine is told.
const PAUSES: usize = 32;

/// What the compactions since the session was opened have cost and saved, compared with the same
/// conversation without them. The unit is one token of plain input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ledger {
    pub(crate) requests: u64,
    pub(crate) requests_since_compaction: u64,
    pub(crate) compactions: u64,
    /// The tokens that are no longer in any prompt. Every further request saves them.
    removed: u64,
    pub(crate) saved: i64,
}

impl Ledger {
    /// The ledger at the first request of a new conversation. That request counts if it was sent to
    /// the model.
    fn of_a_new_conversation(self) -> Self {
        Self {
            requests: self.requests.min(1),
            requests_since_compaction: 1,
            ..Self::default()
        }
    }

    /// Accounts for a request. Without the compactions it would have been larger by the removed
    /// tokens, which would have been read from the cache if it is warm, and written to it
    /// otherwise.
    fn request(&mut self, prices: CachePrices, is_warm: bool, is_sent: bool) {
        self.requests += u64::from(is_sent);
        self.requests_since_compaction += 1;
        let percent = match is_warm {
            true => prices.read_percent,
            false => prices.write_percent,
        };
        self.saved += signed(self.removed * u64::from(percent) / 100);
    }

    /// Accounts for a compaction. `sizes` are the tokens of the prompt before and after it, and
    /// those of the system prompt and the tools. If the cache was warm, the compaction costs the
    /// cached prompt. If not, it saves at once.
    fn compacted(&mut self, prices: CachePrices, was_warm: bool, sizes: [u64; 3]) {
        let [before, after, fixed] = sizes;
        let removed = before.saturating_sub(after);
        self.saved += match was_warm {
            true => -signed(prices.cost(before, after, fixed)),
            false => signed(removed * u64::from(prices.write_percent) / 100),
        };
        self.removed += removed;
        self.compactions += 1;
        self.requests_since_compaction = 0;
    }
}

/// A token count as a signed number. The largest value stands for anything above it.
fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// What the provider reported last, with the count that it corresponds to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Reported {
    /// The tokens of the prompt by the provider's count.
    tokens: u64,
    /// The tokens of the same prompt as the host counted them.
    counted: u64,
}

/// A report of more than this many times the counted tokens is not about the counted prompt. It may
/// be the sum over the prompts of a session.
const MOST_TIMES: u64 = 4;

/// How many tokens a provider may add to a prompt without showing them.
const UNSEEN: u64 = 20_000;

/// What was learned from the provider's usage reports. It is stored with the session, so the first
/// request after a restart is judged by the same figures as the last one before it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct UsageMemory {
    /// The model that the reports are about. For another model they mean nothing.
    model: String,
    reported: Option<Reported>,
    correction: Correction,
}

impl UsageMemory {
    /// The stored memory if it is about this model, otherwise an empty one. Unreadable text counts
    /// as empty, because the figures can be learned again.
    fn of(kept: &str, model: &str) -> Self {
        let kept: Self = serde_json::from_str(kept).unwrap_or_default();
        match kept.model == model {
            true => kept,
            false => Self {
                model: model.to_owned(),
                ..Self::default()
            },
        }
    }
}

/// The figures of a session: its size, the usage that was reported, pauses and prices.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    agent: ConfiguredAgent,
    usage: UsageMemory,
    /// When the last request was made, in milliseconds since the Unix epoch.
    last_request_ms: Option<i64>,
    /// The milliseconds between the last two requests. None until there are two of them.
    idle_ms: Option<u64>,
    /// The pauses before the latest requests in milliseconds. The last element is `idle_ms`.
    pauses_ms: Vec<u64>,
    ledger: Ledger,
    /// How long the provider keeps the prompt in its cache. It is configured, or chosen from the
    /// pauses so far if the configuration says `auto`.
    cache_ttl: Ttl,
    /// The tokens of the previous prompt. The difference to the current one is what is new to the
    /// prompt cache.
    prompt_before: u64,
    timing: Timing,
}

impl Meter {
    /// The meter of a session with this agent. `usage` is what was learned before, in its stored
    /// form.
    pub(crate) fn new(agent: ConfiguredAgent, usage: &str, timing: Timing, ttl: CacheTtl) -> Self {
        Self {
            usage: UsageMemory::of(usage, &agent.agent().model),
            agent,
            last_request_ms: None,
            idle_ms: None,
            pauses_ms: Vec::new(),
            ledger: Ledger::default(),
            cache_ttl: ttl.at_first(),
            prompt_before: 0,
            timing,
        }
    }

    pub(crate) fn agent(&self) -> &AgentWindow {
        self.agent.agent()
    }

    /// Sets the agent's model and its window. Usage that was reported for another model no longer
    /// counts. Returns whether it is another model.
    pub(crate) fn set_agent(&mut self, agent: ConfiguredAgent) -> bool {
        let is_another = self.agent().model != agent.agent().model;
        self.agent = agent;
        if is_another {
            self.usage = UsageMemory::of("", &self.agent().model);
        }
        is_another
    }

    /// The stored form of what was learned from the provider's reports. Empty if there is nothing
    /// to store.
    pub(crate) fn usage_memory(&self) -> String {
        if self.usage.reported.is_none() && self.usage.correction.is_empty() {
            return String::new();
        }
        serde_json::to_string(&self.usage).unwrap_or_default()
    }

    /// What an engine is told about a prompt of `tokens` tokens by the host's count: the corrected
    /// count, the usage, the pauses and the prices. `estimated` says that the count is not exact.
    pub(crate) fn state(&self, tokens: u64, estimated: bool) -> WindowState {
        (self.agent.empty_window())
            .prompt_tokens(self.usage.correction.apply(tokens))
            .estimated(estimated)
            .reported_tokens(self.usage.reported.map(|reported| {
                // The messages since the report were counted by the host, so the same correction
                // applies to them.
                let since = tokens.saturating_sub(reported.counted);
                reported.tokens + self.usage.correction.apply(since)
            }))
            .idle_ms(self.idle_ms)
            .pauses_ms(self.pauses_ms.clone())
            .cache_ttl_ms(Some(self.cache_ttl.ms()))
            .cache_prices(Some(self.prices()))
            .timed_by_price(self.timing == Timing::Economy)
            .never_at_a_loss(self.timing == Timing::Safe)
            .requests_since_compaction(self.ledger.requests_since_compaction)
            .requests(self.ledger.requests)
            .compactions(self.ledger.compactions)
            .saved_by_compactions(self.ledger.saved)
    }

    /// Records the time of a request and the pause before it. `time_ms` is in milliseconds since
    /// the Unix epoch, `None` stands for now. `is_sent` says whether the request goes to the model:
    /// a document that a user compacts does not.
    pub(crate) fn note_request(&mut self, time_ms: Option<i64>, is_sent: bool) {
        let now = time_ms.unwrap_or_else(now_ms);
        let last = self.last_request_ms.replace(now);
        self.idle_ms = last.map(|last| now.saturating_sub(last).max(0) as u64);
        if self.pauses_ms.len() == PAUSES {
            self.pauses_ms.remove(0);
        }
        self.pauses_ms.extend(self.idle_ms);
        (self.ledger).request(self.prices(), self.is_warm(), is_sent);
    }

    /// Adds the pause before this request, which has `prompt` tokens, to the session's own
    /// statistics and to those of all sessions, and chooses the lifetime of the prompt
    /// cache from those of all sessions. The lifetime changes only if the cache holds nothing, since
    /// a change would write the prompt again.
    pub(crate) fn choose_cache_ttl(&mut self, prompt: u64, own: &mut Pauses, engines: &Engines) {
        if let Some(idle_ms) = self.idle_ms {
            let new = prompt.saturating_sub(self.prompt_before);
            self.prompt_before = prompt;
            let pause = Pauses::of(&self.agent().model, idle_ms, prompt, new);
            own.add(pause);
            engines.note_pause(pause);
        }
        if self.idle_ms.is_none_or(|idle| idle >= self.cache_ttl.ms()) {
            let mut pauses = engines.pauses();
            pauses.add(*own);
            self.cache_ttl = pauses.cheaper();
        }
    }

    /// How long the provider keeps the prompt of this request in its cache.
    pub(crate) fn cache_ttl(&self) -> Ttl {
        self.cache_ttl
    }

    /// What the provider's prompt cache costs for the agent's model.
    pub(crate) fn prices(&self) -> CachePrices {
        prompt_cache::prices(&self.agent().model, self.cache_ttl)
    }

    /// Whether the provider still had the prompt in its cache when this request came.
    fn is_warm(&self) -> bool {
        self.idle_ms.is_none_or(|idle| idle < self.cache_ttl.ms())
    }

    /// Accounts for a request that began a new conversation, or that cut this one back. The reported
    /// usage includes the messages that were cut off.
    pub(crate) fn ingested(&mut self, relation: Relation) {
        match relation {
            Relation::Continues => return,
            // The removed tokens might be gone even without a compaction, so they no longer count as
            // saved.
            Relation::CutBack { .. } => self.ledger.removed = 0,
            Relation::NewRoot => self.ledger = self.ledger.of_a_new_conversation(),
        }
        self.usage.reported = None;
    }

    /// Accounts for a compaction. `sizes` are the tokens of the prompt before and after it, and those
    /// of the system prompt and the tools. The usage was reported for the old prompt.
    pub(crate) fn compacted(&mut self, sizes: [u64; 3]) {
        self.usage.reported = None;
        (self.ledger).compacted(self.prices(), self.is_warm(), sizes);
    }

    /// Accounts for a change of the window that is not a compaction. The reported usage stays,
    /// unless the prompt that it was reported for is smaller now: it has `counted` tokens.
    pub(crate) fn rewritten(&mut self, counted: u64) {
        self.usage
            .reported
            .take_if(|reported| counted < reported.counted);
    }

    /// Forgets the reported usage, because the prompt is another one now.
    pub(crate) fn forget_usage(&mut self) {
        self.usage.reported = None;
    }

    /// Records the usage that the provider reported for the answer to the last prompt, which has
    /// `counted` tokens by the host's count. Returns whether the report counts.
    ///
    /// A report that cannot be about this prompt is ignored: zero, far fewer tokens than were
    /// counted (as with a report of only the uncached tokens), far more (as with a sum over several
    /// requests), or more than the window holds if the request was answered.
    pub(crate) fn update_usage(&mut self, counted: u64, usage: &Usage) -> bool {
        let tokens = usage.input_tokens;
        if !self.is_plausible(counted, tokens) {
            tracing::debug!(
                counted,
                reported = tokens,
                "the reported usage cannot be right and is ignored"
            );
            self.usage.reported = None;
            return false;
        }
        self.usage.correction.learn(counted, tokens);
        // Only the prompt is taken from the report. The answer joins the window and is counted
        // there.
        self.usage.reported = Some(Reported { tokens, counted });
        true
    }

    /// Whether a reported number of tokens can be about a prompt of `counted` tokens.
    fn is_plausible(&self, counted: u64, reported: u64) -> bool {
        let window = self.agent().context_length;
        reported > 0
            && reported >= counted / 2
            && reported <= counted.saturating_mul(MOST_TIMES).saturating_add(UNSEEN)
            && (window == 0 || reported <= window)
    }

    /// Records that the provider refused the last body as too long: `tokens` tokens by its own
    /// count. From now on, counts are corrected to the provider's tokens. Returns the ratio: how
    /// many of the provider's tokens correspond to one that is counted here.
    pub(crate) fn prompt_was_refused(&mut self, counted: u64, tokens: u64) -> f64 {
        self.usage.correction.learn_exactly(counted, tokens);
        self.usage.reported = Some(Reported { tokens, counted });
        self.usage.correction.ratio()
    }
}

#[cfg(test)]
mod tests;

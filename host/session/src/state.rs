//! How full the window is: what is counted, and what the provider reported.

use std::time::{SystemTime, UNIX_EPOCH};

use contexture_config::Timing;
use contexture_engine_api::{CachePrices, Usage, WindowState};
use contexture_formats::prompt_cache::{self, CacheTtl, Pauses, Ttl};
use contexture_formats::tokens::Correction;
use serde::{Deserialize, Serialize};

use super::{AgentWindow, Session, Window};

/// How many pauses an engine is told.
const PAUSES: usize = 32;

/// What the compactions since the session was opened have cost and saved, in tokens of plain input, compared with the
/// same conversation without them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ledger {
    pub(super) requests: u64,
    pub(super) requests_since_compaction: u64,
    pub(super) compactions: u64,
    /// The number of tokens that are no longer in any prompt.
    removed: u64,
    pub(super) saved: i64,
}

impl Ledger {
    /// The ledger at the first request of a new conversation.
    pub(super) fn of_a_new_conversation(self) -> Self {
        Self {
            requests: self.requests.min(1),
            requests_since_compaction: 1,
            ..Self::default()
        }
    }

    /// The client cut the conversation back. Removed tokens might be gone without an engine, too, so they no longer
    /// count.
    pub(super) fn cut_back(&mut self) {
        self.removed = 0;
    }

    /// Accounts for a request, which would have been larger by the removed tokens.
    fn request(&mut self, prices: CachePrices, is_warm: bool, is_sent: bool) {
        self.requests += u64::from(is_sent);
        self.requests_since_compaction += 1;
        let percent = match is_warm {
            true => prices.read_percent,
            false => prices.write_percent,
        };
        self.saved += signed(self.removed * u64::from(percent) / 100);
    }

    /// Accounts for a compaction in this request from `before` to `after` tokens, `fixed` of which are system prompt
    /// and tools.
    pub(super) fn compacted(&mut self, prices: CachePrices, was_warm: bool, sizes: [u64; 3]) {
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

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// System prompt and tools of the last request.
#[derive(Debug)]
pub(super) struct Frame {
    /// The hash of their bytes.
    pub(super) hash: u64,
    pub(super) system: Option<String>,
    /// The names of the client's tools.
    pub(super) tools: Vec<String>,
}

/// What the provider reported last.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Reported {
    /// Tokens of the prompt.
    pub(super) tokens: u64,
    /// What the window counted when it was sent.
    pub(super) counted: u64,
}

/// A report of more than this many times the counted tokens is not about the counted prompt. It may be the sum of a
/// session's prompts.
const MOST_TIMES: u64 = 4;

/// How many tokens a provider may add to a prompt without showing them.
const UNSEEN: u64 = 20_000;

/// What was learned from the provider's usage reports. It is stored with the session, so that the first request after a
/// restart is judged by the same figures as the last one before it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct UsageMemory {
    /// The model that the reports are about.
    model: String,
    pub(super) reported: Option<Reported>,
    pub(super) correction: Correction,
}

impl UsageMemory {
    /// The stored memory if it is about this model. Unreadable text counts as empty.
    pub(super) fn of(kept: &str, model: &str) -> Self {
        let kept: Self = serde_json::from_str(kept).unwrap_or_default();
        match kept.model == model {
            true => kept,
            false => Self::default(),
        }
    }
}

impl Session {
    /// The stored form of what was learned from the provider's reports; empty if there is nothing to store.
    pub(super) fn usage_memory(&self) -> String {
        if self.reported.is_none() && self.correction.is_empty() {
            return String::new();
        }
        let memory = UsageMemory {
            model: self.agent.model.clone(),
            reported: self.reported,
            correction: self.correction.clone(),
        };
        serde_json::to_string(&memory).unwrap_or_default()
    }

    /// How full the window is, with all that is known of it.
    pub fn state(&self) -> WindowState {
        self.state_of(self.counted_tokens(), false)
    }

    /// An upper bound of how full the window is, without tokenising what is not counted yet.
    pub(super) fn rough_state(&self) -> WindowState {
        match self.window.is_counted() {
            true => self.state(),
            false => self.state_of(
                self.frame_tokens() + self.window.most_message_tokens(),
                true,
            ),
        }
    }

    /// Whether the prompt fits the window, as far as that is known without tokenising.
    pub(super) fn fits_roughly(&self) -> bool {
        let rough = self.rough_state();
        rough.best_prompt_tokens() <= rough.usable_tokens()
    }

    /// Whether the prompt fits the window.
    pub(super) fn fits(&self) -> bool {
        let fits = |state: WindowState| state.best_prompt_tokens() <= state.usable_tokens();
        self.fits_roughly() || fits(self.state())
    }

    pub(super) fn state_of(&self, tokens: u64, estimated: bool) -> WindowState {
        let timing = self.engines.config().compression.timing;
        empty_state(&self.agent)
            .prompt_tokens(self.correction.apply(tokens))
            .estimated(estimated)
            .fixed_tokens(self.frame_tokens())
            .has_system_prompt((self.frame.as_ref()).map(|frame| frame.system.is_some()))
            .reported_tokens(self.reported.map(|reported| {
                // Later messages are counted here. The provider's count differs for them as it does for the rest.
                let since = tokens.saturating_sub(reported.counted);
                reported.tokens + self.correction.apply(since)
            }))
            .idle_ms(self.idle_ms)
            .pauses_ms(self.pauses_ms.clone())
            .cache_ttl_ms(Some(self.cache_ttl.ms()))
            .cache_prices(Some(prompt_cache::prices(
                &self.agent.model,
                self.cache_ttl,
            )))
            .timed_by_price(timing == Timing::Economy)
            .never_at_a_loss(timing == Timing::Safe)
            .requests_since_compaction(self.ledger.requests_since_compaction)
            .requests(self.ledger.requests)
            .compactions(self.ledger.compactions)
            .saved_by_compactions(self.ledger.saved)
            .messages(self.window.len())
            .new_since_compaction(self.new_since_compaction)
    }

    pub(super) fn counted_tokens(&self) -> u64 {
        self.tokens_with(&self.window)
    }

    /// The tokens of system prompt, tools, and the note that a compaction appended.
    pub fn frame_tokens(&self) -> u64 {
        self.fixed_tokens
            + self.offered_tokens
            + self
                .note_to_add()
                .map_or(0, |note| self.counter.count_text(note))
    }

    /// The tokens of the prompt with this window in place of the current one.
    pub(super) fn tokens_with(&self, window: &Window) -> u64 {
        let note = self.note_of(window);
        self.fixed_tokens
            + self.offered_tokens
            + note.map_or(0, |note| self.counter.count_text(note))
            + window.message_tokens()
    }

    /// The system prompt of the last request.
    pub(super) fn system_prompt(&self) -> Option<String> {
        self.frame.as_ref()?.system.clone()
    }

    /// Records the time of a request (ms since the Unix epoch, `None` for now), the time since the previous one, and
    /// whether the request goes to the model. A document that a user has compacted does not go to the model.
    pub(super) fn note_request(&mut self, time_ms: Option<i64>, is_sent: bool) {
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
        };
        let now = time_ms.unwrap_or_else(|| now().as_millis() as i64);
        let last = self.last_request_ms.replace(now);
        self.idle_ms = last.map(|last| now.saturating_sub(last).max(0) as u64);
        if self.pauses_ms.len() == PAUSES {
            self.pauses_ms.remove(0);
        }
        self.pauses_ms.extend(self.idle_ms);
        let is_warm = self.idle_ms.is_none_or(|idle| idle < self.cache_ttl.ms());
        let prices = prompt_cache::prices(&self.agent.model, self.cache_ttl);
        self.ledger.request(prices, is_warm, is_sent);
        self.choose_cache_ttl();
    }

    /// Notes what the pause before this request costs, and chooses the lifetime of the prompt cache, where that is to
    /// be chosen and the cache holds nothing.
    fn choose_cache_ttl(&mut self) {
        if self.engines.config().prompt_caching.cache_ttl != CacheTtl::Auto {
            return;
        }
        if let Some(idle_ms) = self.idle_ms {
            let prompt = self.rough_state().prompt_tokens;
            let new = prompt.saturating_sub(self.prompt_before);
            self.prompt_before = prompt;
            let pause = Pauses::of(&self.agent.model, idle_ms, prompt, new);
            self.history.pauses.add(pause);
            self.engines.note_pause(pause);
        }
        if self.idle_ms.is_none_or(|idle| idle >= self.cache_ttl.ms()) {
            let mut pauses = self.engines.pauses();
            pauses.add(self.history.pauses);
            self.cache_ttl = pauses.cheaper();
        }
    }

    /// How long the provider keeps the prompt of this request.
    pub fn cache_ttl(&self) -> Ttl {
        self.cache_ttl
    }

    /// The note that the system prompt still lacks.
    pub(super) fn note_to_add(&self) -> Option<&str> {
        self.note_of(&self.window)
    }

    /// The window's note, if the system prompt does not hold it yet.
    fn note_of<'w>(&self, window: &'w Window) -> Option<&'w str> {
        let note = window.system_note().filter(|_| self.options.note)?;
        let frame = self.frame.as_ref();
        let system = frame.and_then(|frame| frame.system.as_deref());
        (!system.is_some_and(|system| system.contains(note))).then_some(note)
    }

    /// Records the usage that the provider reported for the answer to the window as it was sent. The answer itself is
    /// observed after this. The engine learns of the usage with its next call.
    ///
    /// A report that cannot be about this prompt is ignored: zeros, far fewer tokens than were counted (as with a
    /// report of only the uncached tokens), far more (as with a sum over several requests), or more than the window
    /// holds if the request was answered.
    pub fn update_usage(&mut self, usage: &Usage) {
        let counted = self.counted_tokens();
        if !self.is_plausible(counted, usage.input_tokens) {
            tracing::debug!(
                session = %self.id, counted, reported = usage.input_tokens,
                "the reported usage cannot be right and is ignored"
            );
            self.reported = None;
            return;
        }
        self.correction.learn(counted, usage.input_tokens);
        // The answer joins the window and is counted there, so only the prompt is taken from the report.
        self.reported = Some(Reported {
            tokens: usage.input_tokens,
            counted,
        });
        self.engine.update_usage(*usage);
    }

    fn is_plausible(&self, counted: u64, reported: u64) -> bool {
        let window = self.agent.context_length;
        reported > 0
            && reported >= counted / 2
            && reported <= counted.saturating_mul(MOST_TIMES).saturating_add(UNSEEN)
            && (window == 0 || reported <= window)
    }

    /// Records that the provider refused the last rendered prompt because it is too long: `tokens` tokens by the
    /// provider's count. From here on counts are in the provider's tokens. Returns how many of those one token counted
    /// here is.
    pub fn prompt_was_refused(&mut self, tokens: u64) -> f64 {
        let counted = self.counted_tokens();
        self.correction.learn_exactly(counted, tokens);
        self.reported = Some(Reported { tokens, counted });
        self.settled = false;
        self.correction.ratio()
    }
}

pub(super) fn empty_state(agent: &AgentWindow) -> WindowState {
    WindowState::default()
        .model(agent.model.clone())
        .context_length(agent.context_length)
        .max_output_tokens(agent.max_output_tokens)
}

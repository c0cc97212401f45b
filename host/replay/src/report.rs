//! The result of a replay, for a table that a person reads and for programs.
//!
//! A [`Report`] holds each conversation with its rows, and the rows summed over all conversations.
//! Each [`Row`] is one way to run a conversation: with an engine, as it was recorded, or without
//! any engine. Rows hold their costs already, so that a program that reads the JSON needs no
//! prices.
//!
//! Read [`Report::new`] first, or [`Report::of_document`], which plays a document through one engine
//! and needs nothing else. The token counts in a row come from `figures`, and costs from
//! `prices`. Printing is left to the caller.

use contexture_formats::Conversation;
use contexture_formats::prompt_cache::CacheTtl;
use contexture_runtime::engines::Source;
use contexture_session::{AgentWindow, SessionError, TempHome};
use serde::Serialize;

use super::figures::{Prompts, Work};
use super::player::{Played, play, without_engine};
use super::prices::{Prices, Shares};
use super::recording::Recording;

/// Name of the row without an engine and without markers for the prompt cache.
pub const UNCACHED: &str = "uncached";

/// Name of the row without an engine, but with the provider's own context editing.
pub const CONTEXT_EDITING: &str = "clear_tool_uses";

/// One way to run a conversation, with its token counts and costs. Rows of one conversation can be
/// compared directly, because all of them send the same messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `recorded`, `none`, [`UNCACHED`], [`CONTEXT_EDITING`], or the engine's name.
    pub engine: String,
    /// Where the engine comes from. `None` for rows without an engine.
    pub source: Option<Source>,
    /// The prompts that were sent. Its fields appear in JSON next to those of the row.
    #[serde(flatten)]
    pub prompts: Prompts,
    /// The mean size of a prompt, in tokens, rounded down. 0 if no prompt was sent.
    pub mean_prompt_tokens: u64,
    /// The part of all prompt tokens that were read from the prompt cache, a ratio from 0 to 1.
    pub cache_share: f64,
    /// The cost of the prompts, in US dollars. Answers are not included.
    pub cost_usd: f64,
    /// The parts of the cost. `None` if they are not known, as in the row of what a log recorded.
    pub shares: Option<Shares>,
    /// What the engine did. In JSON its fields appear next to those of the row, and are absent if
    /// the row has no engine.
    #[serde(flatten)]
    pub work: Option<Work>,
    /// Warnings for the user, each only once, such as that the engine failed.
    pub warnings: Vec<String>,
}

impl Row {
    /// Creates a row and computes its costs from the prompts and the prices. The costs of the
    /// compactions in `work` are computed as well.
    pub fn new(
        engine: impl Into<String>,
        source: Option<Source>,
        prompts: Prompts,
        mut work: Option<Work>,
        prices: &Prices,
    ) -> Self {
        for cost in work.iter_mut().flat_map(|work| &mut work.costs) {
            // Done for the sums again: the mean price of a write depends on all prompts of the row.
            *cost = prices.balanced(&prompts, *cost);
        }
        Self {
            engine: engine.into(),
            source,
            mean_prompt_tokens: prompts.mean_prompt_tokens(),
            cache_share: prompts.cache_share(),
            cost_usd: prices.cost(&prompts),
            shares: prices.shares(&prompts),
            prompts,
            work,
            warnings: Vec::new(),
        }
    }

    /// Creates the row of an engine. The warnings of the run are part of it.
    pub fn of_played(played: Played, prices: &Prices) -> Self {
        Self {
            warnings: played.warnings,
            ..Self::new(
                played.engine,
                Some(played.source),
                played.prompts,
                Some(played.work),
                prices,
            )
        }
    }

    /// Returns the number of requests in which the engine failed or broke the contract. If it is
    /// not 0, the row does not show what the engine alone would have done.
    pub fn failures(&self) -> u64 {
        self.work.as_ref().map_or(0, |work| work.failures)
    }

    /// Adds the row of another conversation. Costs and ratios are computed again from the sums.
    fn add(&mut self, other: &Self, prices: &Prices) {
        let mut prompts = std::mem::take(&mut self.prompts);
        prompts.add(&other.prompts);
        if let (Some(work), Some(more)) = (&mut self.work, &other.work) {
            work.add(more);
        }
        *self = Self {
            warnings: std::mem::take(&mut self.warnings),
            ..Self::new(
                std::mem::take(&mut self.engine),
                self.source,
                prompts,
                self.work.take(),
                prices,
            )
        };
        for warning in &other.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
    }
}

/// One conversation, run in several ways: one row with each engine, and further rows to compare
/// them with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConversationReport {
    /// Path of the file that contains the conversation.
    pub input: String,
    /// The position of the conversation in the file, from 1.
    pub number: usize,
    /// The number of messages, without the system prompt.
    pub messages: usize,
    /// The number of requests, one for each recorded answer of the model.
    pub requests: usize,
    /// The model for which the conversation was played. It decides the window, the count of tokens
    /// and the rules of the cache.
    pub model: String,
    /// The window of that model, in tokens. Prompts above it count as overflows.
    pub context_length: u64,
    /// The tokens that every prompt held and the log does not show, such as the system prompt and
    /// tools. They count in every row.
    pub unseen_tokens: u64,
    /// How many tokens the log's prompts grew for each token counted in its messages. Counts are
    /// multiplied by it, except those that the log recorded. It is 1 if the log does not allow an
    /// estimate.
    pub scale: f64,
    /// The rows: `recorded` if the log has usage, `none`, one for each engine, and for a Claude
    /// model [`UNCACHED`] and [`CONTEXT_EDITING`].
    pub rows: Vec<Row>,
}

impl ConversationReport {
    /// Describes a recording and the ways in which it was run. `input` and `number` say where it
    /// was read, see the fields.
    pub fn new(input: &str, number: usize, recording: &Recording, rows: Vec<Row>) -> Self {
        Self {
            input: input.to_owned(),
            number,
            messages: recording.conversation().messages().len(),
            requests: recording.requests().len(),
            model: recording.agent().model.clone(),
            context_length: recording.agent().context_length,
            unseen_tokens: recording.unseen_tokens(),
            scale: recording.scale(),
            rows,
        }
    }
}

/// The results of a replay of one or more conversations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The prices that all costs in this report are computed with, in US dollars per million
    /// tokens.
    pub prices: Prices,
    /// How long the simulated prompt cache keeps a prompt that is not used, or `auto` if each
    /// session chooses.
    pub cache_ttl: CacheTtl,
    /// The rows summed over all conversations. Engines that failed come after those that did not,
    /// and the rows that only serve as a comparison come last.
    pub totals: Vec<Row>,
    /// The rows of each conversation, in the order in which they were played.
    pub conversations: Vec<ConversationReport>,
}

impl Report {
    /// Plays each conversation of a document without an engine and with one, so that the two rows
    /// can be compared. `engine` names the engine, and `None` takes the configured one. Prices are
    /// those of a Claude Sonnet model. In the report, the path of the file is `document`.
    ///
    /// # Errors
    /// The same as [`play`].
    pub fn of_document(
        conversations: Vec<Conversation>,
        agent: &AgentWindow,
        stage: &TempHome,
        engine: Option<&str>,
    ) -> Result<Self, SessionError> {
        let cache_ttl = stage.engines().config().prompt_caching.cache_ttl;
        let ttl = cache_ttl.at_first();
        let prices = Prices::sonnet(ttl);
        let mut reports = Vec::with_capacity(conversations.len());
        for (at, conversation) in conversations.into_iter().enumerate() {
            let recording = Recording::new(conversation, agent.clone());
            let none = without_engine(&recording, ttl);
            let played = play(&recording, stage, engine, &mut || {})?;
            let rows = vec![
                Row::new("none", None, none, None, &prices),
                Row::of_played(played, &prices),
            ];
            reports.push(ConversationReport::new(
                "document",
                at + 1,
                &recording,
                rows,
            ));
        }
        Ok(Self::new(prices, cache_ttl, reports))
    }

    /// Sums the rows of all conversations. Rows belong together if they have the same engine from
    /// the same source.
    pub fn new(
        prices: Prices,
        cache_ttl: CacheTtl,
        conversations: Vec<ConversationReport>,
    ) -> Self {
        let mut totals: Vec<Row> = Vec::new();
        for row in conversations.iter().flat_map(|one| &one.rows) {
            let same = totals
                .iter_mut()
                .find(|total| (&total.engine, total.source) == (&row.engine, row.source));
            match same {
                Some(total) => total.add(row, &prices),
                None => totals.push(row.clone()),
            }
        }
        // Sorted, because a file without recorded usage may come before one with it. An engine that
        // failed comes after the others even if its prompts cost less, because its row does not
        // show what it does.
        totals.sort_by_key(|row| match (row.source, row.engine.as_str()) {
            (None, "recorded") => 0,
            (None, UNCACHED | CONTEXT_EDITING) => 4,
            (None, _) => 1,
            _ if row.failures() == 0 => 2,
            _ => 3,
        });
        Self {
            prices,
            cache_ttl,
            totals,
            conversations,
        }
    }
}

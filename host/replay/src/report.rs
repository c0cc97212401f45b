//! The result of a replay, for a person's table and for a program.

use contexture_formats::prompt_cache::CacheTtl;
use contexture_runtime::engines::Source;
use serde::Serialize;

use super::figures::{Prompts, Work};
use super::prices::{Prices, Shares};

/// The row without an engine and without markers for the prompt cache.
pub const UNCACHED: &str = "uncached";

/// The row with the provider's own context editing.
pub const CONTEXT_EDITING: &str = "clear_tool_uses";

/// One way to run a conversation, in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `recorded`, `none`, [`UNCACHED`], [`CONTEXT_EDITING`], or the engine's name.
    pub engine: String,
    /// Where the engine comes from; none for the rows that have no engine.
    pub source: Option<Source>,
    /// Its prompts.
    #[serde(flatten)]
    pub prompts: Prompts,
    /// The mean prompt, in tokens.
    pub mean_prompt_tokens: u64,
    /// The part of the prompts that the prompt cache served, a ratio.
    pub cache_share: f64,
    /// What the prompts cost, in US dollars.
    pub cost_usd: f64,
    /// Where that money went; none for what a log recorded.
    pub shares: Option<Shares>,
    /// What the engine did; absent from the rows that have no engine.
    #[serde(flatten)]
    pub work: Option<Work>,
    /// What a person should know of it.
    pub warnings: Vec<String>,
}

impl Row {
    /// A row of these figures.
    pub fn new(
        engine: impl Into<String>,
        source: Option<Source>,
        prompts: Prompts,
        mut work: Option<Work>,
        prices: &Prices,
    ) -> Self {
        for cost in work.iter_mut().flat_map(|work| &mut work.costs) {
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

    /// Requests in which its engine failed or broke the contract: its figures are then not the engine's.
    pub fn failures(&self) -> u64 {
        self.work.as_ref().map_or(0, |work| work.failures)
    }

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

/// One conversation, run in several ways.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConversationReport {
    /// The file.
    pub input: String,
    /// Which conversation of the file, from 1.
    pub number: usize,
    /// Its messages, the system prompt not among them.
    pub messages: usize,
    /// The requests in it.
    pub requests: usize,
    /// The model that it was played for.
    pub model: String,
    /// That model's window, in tokens.
    pub context_length: u64,
    /// Tokens that every prompt held and the document does not show; they count in every row.
    pub unseen_tokens: u64,
    /// By how much the log's prompts grew for each counted token. The counts in all rows are multiplied by it, except
    /// those that the log recorded. It is 1 if the log does not allow an estimate.
    pub scale: f64,
    /// The rows: `recorded` where the log has usage, `none`, one for each engine, and for a Claude model [`UNCACHED`] and
    /// [`CONTEXT_EDITING`].
    pub rows: Vec<Row>,
}

/// All that was played.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What prompts cost, in US dollars a million tokens.
    pub prices: Prices,
    /// How long the prompt cache keeps what is not used.
    pub cache_ttl: CacheTtl,
    /// The rows over all conversations: those of engines that failed after the others, and what there is beside engines
    /// last.
    pub totals: Vec<Row>,
    /// Each conversation.
    pub conversations: Vec<ConversationReport>,
}

impl Report {
    /// The report of these conversations.
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
        // A file without recorded usage may come before one with it. An engine that failed is no better than one
        // that did not, whatever its prompts cost.
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

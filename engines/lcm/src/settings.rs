//! The settings under `context.engines.lcm`, and the token budgets derived from them.
//!
//! [`Settings`] is what the configuration contains: mostly shares between 0 and 1, which hold for a
//! window of any size. [`Settings::budgets`] turns them into [`Budgets`], token counts for one
//! window. The rest of the engine works with budgets only.
//!
//! The constants in between are not configurable. They fix the proportions of the summary DAG, for
//! example how much longer than its summary the span of a leaf is.

use std::path::PathBuf;

use contexture_engine_api::{EngineError, WindowState, roomy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use contexture_embed::Embedder;

/// The settings of the engine. Every key has a default; an unknown key is an error.
/// The doc comments, defaults and ranges are the schema that a configuration is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The share of the window from which summaries are prepared and put in
    #[schemars(range(min = 0.05, max = 0.95))]
    pub soft_threshold: f64,
    /// The share of the window from which a compaction does not wait for the model
    #[schemars(range(min = 0.05, max = 0.98), extend("notBelow" = "soft_threshold"))]
    pub hard_threshold: f64,
    /// The share of the soft threshold that the newest messages may take
    #[schemars(range(min = 0.05, max = 0.8), extend("sumAtMost" = {"summaries": 1.0}))]
    pub fresh_tail: f64,
    /// The minimum number of newest messages that stay as they are, if they fit
    pub fresh_tail_messages: usize,
    /// The share of the soft threshold that all summaries together may take
    #[schemars(range(min = 0.02, max = 0.5))]
    pub summaries: f64,
    /// A message of more tokens is shown as a preview once the model has seen it
    #[schemars(range(min = 1))]
    pub large_message_tokens: u64,
    /// The other sessions of the same tenant that a session may search, by id, or * for all of them
    pub searchable_sessions: Vec<String>,
    /// The folder of a sentence encoder, with which questions find text that shares no words with them (empty for none)
    pub embedder: PathBuf,
    /// Mask secrets in the search index and in what the tools show; transcript.redact masks them in the record
    pub redact: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            soft_threshold: 0.50,
            hard_threshold: 0.80,
            fresh_tail: 0.20,
            fresh_tail_messages: 20,
            summaries: 0.15,
            large_message_tokens: 10_000,
            searchable_sessions: Vec::new(),
            embedder: PathBuf::new(),
            redact: false,
        }
    }
}

/// If compactions are timed by price, one may be due from this share of the soft threshold. The
/// host then decides whether it is worth its price.
const ECONOMY_FROM: f64 = 0.5;
/// The smallest budget of a node's text, in tokens. A shorter summary would say too little to be
/// useful.
const MIN_NODE_TOKENS: u64 = 48;
/// The largest budget of a node's text, in tokens. In large windows it keeps single summaries
/// readable.
const MAX_NODE_TOKENS: u64 = 2_000;
/// The summaries may take their share of at least this part of the window, which is 5 % of the window
/// by default. A large system prompt makes the prompt longer, but no summary of it shorter.
const LEAST_ROOM: f64 = 1.0 / 3.0;
/// The number of nodes that share the budget for summaries. If there are more, the budget is
/// exceeded and the oldest are condensed.
const NODES_IN_BUDGET: u64 = 8;
/// The ratio between the span of a leaf and the budget of its summary, both in tokens.
const LEAF_RATIO: u64 = 10;
/// The text of a leaf is at least this many times shorter than its messages. Without such a minimum
/// a summary of a short span could be about as long as the span.
pub(crate) const LEAF_SHARE: u64 = 4;
/// The text of a condensed node is at least this many times shorter than the summaries under it.
/// The ratio is smaller than that of a leaf, because summaries are dense already.
pub(crate) const CONDENSED_SHARE: u64 = 2;
/// The approximate number of tokens that the heading of a node takes in the window.
pub(crate) const HEADING_TOKENS: u64 = 40;
/// The smallest budget that a node may be shortened to, in tokens. It holds even if the source is
/// so short that the ratios ask for less.
pub(crate) const LEAST_TEXT: u64 = 16;

/// The token budgets in one window, which a compaction plans with. All of them are counts of
/// tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Budgets {
    /// Summaries are prepared near this size, and a compaction is due from it once they are ready.
    pub(crate) soft: u64,
    /// From this size on a compaction is due at once and does not wait for the model.
    pub(crate) hard: u64,
    /// The maximum size of a prompt: the window without the tokens reserved for the answer.
    pub(crate) usable: u64,
    /// The budget of the fresh tail, the newest messages that stay as they are.
    pub(crate) tail: u64,
    /// The budget of all summaries in the window together, including their headings.
    pub(crate) summaries: u64,
    /// The budget of one node's text, if [`NODES_IN_BUDGET`] nodes share the budget for summaries.
    pub(crate) node: u64,
    /// The number of tokens of messages that go under one leaf. It is a target, because tool calls
    /// are not separated from their results.
    pub(crate) leaf_span: u64,
}

impl Settings {
    /// Reads the settings from JSON. The host has checked their ranges against the schema. Missing
    /// keys take their defaults, so `{}` gives [`Settings::default`].
    pub fn read(json: &str) -> Result<Self, EngineError> {
        serde_json::from_str(json).map_err(|error| EngineError::Settings(error.to_string()))
    }

    /// Opens the embedder that the settings name. Returns None if they name none, and questions are
    /// then answered by words alone.
    ///
    /// # Errors
    /// [`EngineError::Settings`] if the embedder cannot be opened. The message names the file and
    /// what is wrong with it.
    pub(crate) fn open_embedder(&self) -> Result<Option<Embedder>, EngineError> {
        let is_named = !self.embedder.as_os_str().is_empty();
        let opened = is_named.then(|| Embedder::open(&self.embedder));
        let way_out = "`context.engines.lcm.embedder` names the folder of a sentence encoder, with `model.onnx` and \
                       `vocab.txt` or `tokenizer.json` in it (`contexture embedder install` gets one); without the \
                       setting none is needed";
        (opened.transpose()).map_err(|error| EngineError::Settings(format!("{error}; {way_out}")))
    }

    /// Whether the settings allow this session to search the other one. They do if they list its id
    /// or `*`.
    pub(crate) fn may_search(&self, other: &str) -> bool {
        let granted = |name: &String| name == "*" || name == other;
        self.searchable_sessions.iter().any(granted)
    }

    /// Derives the token budgets for one window. The budgets for summaries and for the fresh tail
    /// are shares of the soft threshold, less the system prompt and the tools.
    pub(crate) fn budgets(&self, window: &WindowState) -> Budgets {
        let usable = window.room_for_prompt().unwrap_or_default();
        let share = |tokens: u64, ratio: f64| (tokens as f64 * ratio) as u64;
        let soft = share(window.context_length, self.soft_threshold);
        // The user's threshold for the model is where compactions begin. The hard one follows if it
        // would come before.
        let soft = window.threshold_tokens.unwrap_or(soft).min(usable);
        let hard = share(window.context_length, self.hard_threshold).min(usable);
        let hard = hard.max(soft);
        // If the system prompt fills most of the soft threshold, these shares would be close to
        // zero. In that case they are shares of half the space below the hard threshold.
        let room = soft
            .saturating_sub(window.fixed_tokens)
            .max(share(hard.saturating_sub(window.fixed_tokens), 0.5));
        let least = share(window.context_length, LEAST_ROOM);
        let summaries = share(room.max(least), self.summaries);
        let node = (summaries / NODES_IN_BUDGET).clamp(MIN_NODE_TOKENS, MAX_NODE_TOKENS);
        Budgets {
            soft: match window.timed_by_price {
                true => share(soft, ECONOMY_FROM),
                false => soft,
            },
            hard,
            usable,
            tail: share(room, self.fresh_tail),
            summaries,
            node,
            leaf_span: node * LEAF_RATIO,
        }
    }
}

impl Budgets {
    /// Returns the usual budget of a leaf over messages of so many tokens.
    pub(crate) fn leaf(&self, messages: u64) -> u64 {
        self.node.min(messages / LEAF_SHARE)
    }

    /// Returns the usual budget of a node over summaries of so many tokens.
    pub(crate) fn parent(&self, children: u64) -> u64 {
        self.node.min(children / CONDENSED_SHARE)
    }

    /// Returns the size that a compaction must bring the prompt below, with some space to spare. It
    /// is the soft threshold, or the hard one if the system prompt alone fills the soft one. If
    /// compactions are timed by price, one may begin below the soft threshold and still aims at it.
    pub(crate) fn trigger(&self, window: &WindowState) -> u64 {
        match window.timed_by_price {
            _ if window.fixed_tokens >= self.soft => self.hard,
            true => (self.soft as f64 / ECONOMY_FROM) as u64,
            false => self.soft,
        }
    }

    /// Returns the size in tokens that a compaction aims at. If it cannot get there, it takes the
    /// smallest window that it can make.
    pub(crate) fn goal(&self, window: &WindowState) -> u64 {
        roomy(match window.fixed_tokens >= self.soft {
            true => self.hard,
            false => self.soft,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_unknown_setting_is_named() {
        let error = Settings::read(r#"{"sof_threshold": 0.3}"#).unwrap_err();
        assert!(error.to_string().contains("sof_threshold"), "{error}");
        assert_eq!(Settings::read("{}").unwrap(), Settings::default());
    }

    #[test]
    fn budgets_follow_the_window_and_leave_room_beside_a_large_system_prompt() {
        let window = |context_length, fixed_tokens| {
            WindowState::default()
                .context_length(context_length)
                .fixed_tokens(fixed_tokens)
                .max_output_tokens(4_000)
        };
        let budgets = Settings::default().budgets(&window(100_000, 0));
        assert_eq!((budgets.soft, budgets.hard), (50_000, 80_000));
        assert_eq!((budgets.tail, budgets.summaries), (10_000, 7_500));
        let crowded = Settings::default().budgets(&window(100_000, 60_000));
        assert!(crowded.tail > 0 && crowded.summaries > 0);
        let of_model = |tokens| window(100_000, 0).threshold_tokens(Some(tokens));
        let early = Settings::default().budgets(&of_model(30_000));
        assert_eq!((early.soft, early.hard), (30_000, 80_000));
        let late = Settings::default().budgets(&of_model(90_000));
        assert_eq!((late.soft, late.hard), (90_000, 90_000));
        let tiny = Settings::default().budgets(&window(0, 0));
        assert_eq!(tiny.usable, 0);
    }
}

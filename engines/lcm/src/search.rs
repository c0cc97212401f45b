//! Search: complete, counted, and honest about both.
//!
//! Four ways to ask. A **full-text** pattern asks for every one of its terms as a whole word, or, in
//! quotes, for a phrase; a term keeps the separators inside it (`src/epoch.rs:412`, `needle-5001-alpha`) and
//! loses the punctuation around it, and a run of Chinese, Japanese, Korean, Thai, Lao, Khmer or Burmese matches
//! anywhere. A **literal** is found anywhere. A **regular expression** has the syntax of the `regex`
//! crate and runs in linear time. A **question** ranks messages by how well they could answer it.
//!
//! A message is searched part by part: its text, each of its calls, its thinking. What a term, a literal or
//! an expression matches stands within one of these.
//!
//! For a pattern the totals are exact: the index leads to every message that could match (see
//! `index::need`), the text of those decides, and messages that no segment of the index holds yet are
//! read one by one. Nothing is capped.

mod candidates;
mod cursor;
mod lexicon;
mod matcher;
mod page;
mod question;
mod run;
mod snippet;
mod term;

use contexture_engine_api::MessageId;

use crate::error::StoreError;
use crate::store::{Key, PayloadId, SessionId, Store};

pub use snippet::Snippet;

/// How a pattern is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every term as a whole word; quotes make a phrase.
    FullText,
    /// The text itself, anywhere.
    Literal,
    /// A regular expression.
    Regex,
}

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// How it is meant.
    pub mode: Mode,
    /// The pattern as it was typed.
    pub text: String,
    /// Whether case matters; by default it does not in full text, and does in the other modes.
    pub case_sensitive: Option<bool>,
}

impl Pattern {
    /// A pattern with the case rule of its mode.
    pub fn new(mode: Mode, text: impl Into<String>) -> Self {
        Self {
            mode,
            text: text.into(),
            case_sensitive: None,
        }
    }

    fn is_case_sensitive(&self) -> bool {
        self.case_sensitive.unwrap_or(self.mode != Mode::FullText)
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// For what matches: complete, with true totals.
    Pattern(Pattern),
    /// For what could answer a question: ranked candidates.
    Question(String),
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// In messages, those whose text is kept aside included.
    Messages,
    /// In the texts that are kept aside.
    Files,
    /// In summaries.
    Summaries,
    /// Everywhere; a message whose text is kept aside counts once.
    #[default]
    All,
}

/// In which order hits come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// Best first.
    Relevance,
    /// Latest first.
    Recency,
    /// Oldest first.
    Oldest,
}

/// A search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What is asked.
    pub ask: Ask,
    /// Where to look.
    pub scope: Scope,
    /// The sessions to look in.
    pub sessions: Vec<SessionId>,
    /// Only messages of this role; summaries have none.
    pub role: Option<String>,
    /// Only results of this tool.
    pub tool: Option<String>,
    /// Only what was said at or after this time, in ms since the Unix epoch, or about then.
    pub since_ms: Option<i64>,
    /// Only what was said at or before this time, in ms since the Unix epoch, or about then.
    pub until_ms: Option<i64>,
    /// The order; by default relevance for a question, recency for a pattern.
    pub sort: Option<Sort>,
    /// How many hits at most.
    pub limit: usize,
    /// Lines of context before and after the line of a match.
    pub context_lines: usize,
    /// Where an earlier answer to the same query ended: its [`Answer::next_cursor`], or the
    /// [`cursor`](Hit::cursor) of one of its hits. What arrived since is on none of the further pages.
    pub cursor: Option<String>,
}

impl Query {
    /// A search of one session for `ask`: everywhere, unfiltered, the first twenty hits.
    pub fn new(session: SessionId, ask: Ask) -> Self {
        Self {
            ask,
            scope: Scope::All,
            sessions: vec![session],
            role: None,
            tool: None,
            since_ms: None,
            until_ms: None,
            sort: None,
            limit: 20,
            context_lines: 0,
            cursor: None,
        }
    }

    fn order(&self) -> Sort {
        self.sort.unwrap_or(match self.ask {
            Ask::Pattern(_) => Sort::Recency,
            Ask::Question(_) => Sort::Relevance,
        })
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// How many messages and summaries match, all pages together. For a question: how many candidates
    /// were ranked, those among them that only stand beside a word of it.
    pub total: u64,
    /// Whether `total` is all there is: true for patterns, false for questions.
    pub total_is_exact: bool,
    /// What was looked at.
    pub searched: Searched,
    /// The hits of this page.
    pub hits: Vec<Hit>,
    /// Where the next page begins, where there is one.
    pub next_cursor: Option<String>,
}

/// How much a search looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Searched {
    /// Sessions.
    pub sessions: u64,
    /// Messages that the answer accounts for, by the index or by reading them.
    pub messages: u64,
    /// Summaries that the answer accounts for, in the same way.
    pub summaries: u64,
    /// Of the messages, how many had their text read.
    pub messages_read: u64,
    /// The bytes of text that were read.
    pub bytes_read: u64,
    /// Messages that no segment of the index holds yet, and that were read for that.
    pub messages_not_indexed: u64,
    /// Messages that are damaged: whether they match is not known, where the index does not say.
    pub messages_unreadable: u64,
    /// Summaries that are damaged, in the same way.
    pub summaries_unreadable: u64,
}

/// What a hit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitKind {
    /// A message.
    Message {
        /// The host's id.
        id: MessageId,
    },
    /// A message whose text is kept aside.
    File {
        /// The host's id of the message.
        id: MessageId,
        /// The text.
        file: PayloadId,
        /// Whether the match stands in the calls of the message, which are not part of the text.
        in_calls: bool,
    },
    /// A summary, by its key.
    Summary,
}

/// Something found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The message's or the summary's key.
    pub key: Key,
    /// What it is.
    pub kind: HitKind,
    /// `user`, `assistant`, `tool`, …; `summary` for a summary.
    pub role: String,
    /// Who says it, where the wire tells.
    pub name: Option<String>,
    /// For a tool result: the tool.
    pub tool: Option<String>,
    /// When it was said, in ms since the Unix epoch; for a summary, the end of what it covers.
    pub at_ms: Option<i64>,
    /// Whether that is known; else it is when the message arrived, or when the one before it was said.
    pub at_is_exact: bool,
    /// Whether it is part of the conversation now, and not of what a cut or an edit left; a summary is
    /// where the window shows it, or one that was made of it.
    pub live: bool,
    /// The place of the first match.
    pub snippet: Snippet,
    /// How well it fits, where the order is by relevance; else 0.
    pub score: f64,
    /// Where a page would begin that follows this hit, for [`Query::cursor`].
    pub cursor: String,
}

impl Store {
    /// Searches. `cancelled` is asked every few milliseconds.
    ///
    /// # Errors
    /// A pattern or cursor that makes no sense, with what is wrong; [`StoreError::Cancelled`]; a store
    /// that failed.
    pub fn search(
        &self,
        query: &Query,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, StoreError> {
        run::search(self, query, cancelled)
    }
}

//! Search: complete, counted, and honest about both.
//!
//! Four ways to ask. A **full-text** pattern asks for every one of its terms as a whole word, or, in
//! quotes, for a phrase; a term keeps the separators inside it (`src/epoch.rs:412`, `needle-5001-alpha`) and
//! loses the punctuation around it, and a run of Chinese, Japanese, Korean, Thai, Lao, Khmer or Burmese matches
//! anywhere. A **literal** is found anywhere. A **regular expression** has the syntax of the `regex`
//! crate and a bounded cost (`contexture_pattern`). A **question** ranks messages by how well they could answer it.
//!
//! A message is searched part by part: its text, each of its calls, its thinking. A match of a term, a
//! literal or an expression is within one of these parts.
//!
//! What is asked has a size (`bounds`): a pattern that is too long, or a regular expression that would cost too much, is
//! an error that says what to do instead, and of a long question the first words count.
//!
//! For a pattern the totals are exact: the index finds every message that could match (see
//! `store::index::need`), the text of these decides, and messages that are not indexed yet are read one by
//! one. Nothing is capped.

mod bounds;
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

pub(crate) use bounds::{MAX_SESSIONS, cut_question};
#[doc(hidden)]
pub use question::Weights;
pub use snippet::Snippet;

/// How a pattern is interpreted.
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
    /// How it is interpreted.
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

/// The pattern or question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A pattern: all matches, with exact totals.
    Pattern(Pattern),
    /// A question: ranked candidates for its answer.
    Question(String),
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// In messages, including those whose text is kept aside.
    Messages,
    /// In the texts that are kept aside.
    Files,
    /// In summaries.
    Summaries,
    /// Everywhere; a message whose text is kept aside counts once.
    #[default]
    All,
}

/// The order of hits.
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
    /// The pattern or question.
    pub ask: Ask,
    /// Where to look.
    pub scope: Scope,
    /// The sessions to look in.
    pub sessions: Vec<SessionId>,
    /// Only messages of this role; summaries have none.
    pub role: Option<String>,
    /// Only results of this tool.
    pub tool: Option<String>,
    /// Only messages at or after this time, in ms since the Unix epoch (exact or estimated).
    pub since_ms: Option<i64>,
    /// Only messages at or before this time, in ms since the Unix epoch (exact or estimated).
    pub until_ms: Option<i64>,
    /// The order; by default relevance for a question, recency for a pattern.
    pub sort: Option<Sort>,
    /// The most hits.
    pub limit: usize,
    /// Lines of context before and after the line of a match.
    pub context_lines: usize,
    /// Where an earlier answer to the same query ended: its [`Answer::next_cursor`], or the
    /// [`cursor`](Hit::cursor) of one of its hits. Later messages are on none of the further pages.
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

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// How many messages and summaries match, all pages together. For a question: how many candidates were
    /// ranked, including those that are only near a message with a word of it.
    pub total: u64,
    /// Whether `total` is complete: true for patterns, false for questions.
    pub total_is_exact: bool,
    /// What was searched.
    pub searched: Searched,
    /// The hits of this page.
    pub hits: Vec<Hit>,
    /// The cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// The words of a question that were not looked for, because it is too long.
    pub words_left_out: u64,
}

/// How much was searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Searched {
    /// Sessions.
    pub sessions: u64,
    /// The messages searched, by the index or by reading them.
    pub messages: u64,
    /// The summaries searched, in the same way.
    pub summaries: u64,
    /// How many messages were read as text.
    pub messages_read: u64,
    /// The bytes of text that were read.
    pub bytes_read: u64,
    /// Messages that were read because they are not indexed yet.
    pub messages_not_indexed: u64,
    /// Damaged messages: unless the index decides, it is unknown whether they match.
    pub messages_unreadable: u64,
    /// Damaged summaries, likewise.
    pub summaries_unreadable: u64,
}

/// The kind of a hit.
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
    /// The author's name, if the wire has one.
    pub name: Option<String>,
    /// For a tool result: the tool.
    pub tool: Option<String>,
    /// Its time, in ms since the Unix epoch; for a summary, the end of what it covers.
    pub at_ms: Option<i64>,
    /// Whether the time is exact; else it is the time of arrival, or that of the message before.
    pub at_is_exact: bool,
    /// Whether it is part of the current conversation, and not left behind by a cut or an edit. A summary
    /// is if the window shows it, or one made from it.
    pub live: bool,
    /// The place of the first match.
    pub snippet: Snippet,
    /// For a question: where the passage by which it is ranked lies in the text that the snippet is of, in
    /// bytes from 0. A short text is one passage.
    pub span: Option<std::ops::Range<usize>>,
    /// The relevance, in that order; else 0.
    pub score: f64,
    /// The cursor of a page that would follow this hit, for [`Query::cursor`].
    pub cursor: String,
}

impl Store {
    /// Searches. `cancelled` is checked every few milliseconds.
    ///
    /// # Errors
    /// An invalid pattern or cursor, or one that is too large, with what is wrong; [`StoreError::Cancelled`]; a store that
    /// failed.
    pub fn search(
        &self,
        query: &Query,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, StoreError> {
        self.search_weighted(query, &Weights::default(), cancelled)
    }

    /// [`search`](Self::search) with other weights for a question, to measure what each earns.
    ///
    /// # Errors
    /// As for [`search`](Self::search).
    #[doc(hidden)]
    pub fn search_weighted(
        &self,
        query: &Query,
        weights: &Weights,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, StoreError> {
        let (query, words_left_out) = bounds::bounded(query)?;
        let embedder = self.settings().embedder.as_ref();
        let sense = match &query.ask {
            Ask::Question(text) if weights.alike > 0.0 => {
                embedder.and_then(|embedder| question::Sense::new(embedder, text))
            }
            _ => None,
        };
        let mut answer = run::search(self, query.as_ref().clone(), weights, sense, cancelled)?;
        answer.words_left_out += words_left_out;
        Ok(answer)
    }
}

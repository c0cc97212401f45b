//! Search over the messages and summaries of a store.
//!
//! There are four ways to ask:
//!
//! - A **full-text** pattern asks for every one of its terms as a whole word. Quotes make a phrase.
//!   A term keeps the separators inside it, as in `src/epoch.rs:412` or `needle-5001-alpha`, and
//!   loses the punctuation around it. A run of Chinese, Japanese, Korean, Thai, Lao, Khmer or
//!   Burmese matches anywhere.
//! - A **literal** is found anywhere.
//! - A **regular expression** has the syntax of the `regex` crate and a bounded cost, see
//!   `contexture_pattern`.
//! - A **question** ranks messages by how well they could answer it.
//!
//! A message is searched part by part: its text, each of its calls, its thinking. A match of a
//! term, a literal or an expression lies within one of these parts.
//!
//! For a pattern the totals are exact. The index finds every message that could match (see
//! `store::index::need`), and their texts decide. Messages that are not indexed yet are read one by
//! one. The number of matches is not limited. The size of a query is limited instead, by `bounds`.
//! If a pattern is too long or too expensive, the error says what to do. If a question is too long,
//! only its first words count.
//!
//! Start with [`Query`] and [`Store::search`], which returns an [`Answer`].

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
use serde::Deserialize;

use crate::error::StoreError;
use crate::store::{Key, PayloadId, SessionId, Store};

pub(crate) use bounds::{MAX_SESSIONS, cut_question};
#[doc(hidden)]
pub use question::Weights;
pub use snippet::Snippet;

/// How the text of a pattern is interpreted. The mode also decides whether case matters by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every term has to occur as a whole word, in any order. If words are in quotes, they have to
    /// occur as a phrase.
    FullText,
    /// The text itself has to occur, anywhere and with its punctuation. It is not interpreted.
    Literal,
    /// The text is a regular expression, without look-around and backreferences. It may match
    /// anywhere.
    Regex,
}

/// A pattern to search for. It matches a message or does not, so the number of matches is exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// How the text is interpreted.
    pub mode: Mode,
    /// The pattern as it was typed. It is an error if it is empty or longer than the limit.
    pub text: String,
    /// Whether case matters. If it is None, case matters for literals and regular expressions, and
    /// does not for full text, which then ignores accents as well.
    pub case_sensitive: Option<bool>,
}

impl Pattern {
    /// Creates a pattern with the case rule of its mode.
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

/// What to search for. A pattern matches a message or does not, and a question ranks messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Find all matches of a pattern. The total is exact unless something cannot be read.
    Pattern(Pattern),
    /// Rank the messages that may answer a question. Only candidates are ranked, so the total is
    /// not exact.
    Question(String),
}

/// What kind of content is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Search messages, including those whose text is a file because it is long.
    Messages,
    /// Search only messages whose text is a file.
    Files,
    /// Search summaries only.
    Summaries,
    /// Search everything. A message whose text is a file counts once.
    #[default]
    All,
}

/// The order of the hits. It also decides what a page continues with, so a cursor is only valid for
/// the order it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// The best hits come first. For a pattern these are the texts in which it occurs most often
    /// for their length.
    Relevance,
    /// The latest hits come first, by the exact or estimated time of the messages.
    Recency,
    /// The oldest hits come first, by the same time.
    Oldest,
}

/// A search: what is asked, in which sessions, and how much of the result is returned. Start from
/// [`Query::new`] and change the fields that differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The pattern or question to search for.
    pub ask: Ask,
    /// The kind of content to search.
    pub scope: Scope,
    /// The sessions to search. Duplicates are ignored, and more than a hundred are an error.
    pub sessions: Vec<SessionId>,
    /// Returns only messages of this role. Summaries have no role, so they are left out if it is
    /// set.
    pub role: Option<String>,
    /// Returns only results of this tool. If it is set, summaries are left out, because they are not
    /// the result of a tool.
    pub tool: Option<String>,
    /// Returns only messages at or after this time, in milliseconds since the Unix epoch. The time
    /// of a message is exact or estimated.
    pub since_ms: Option<i64>,
    /// Returns only messages at or before this time, in milliseconds since the Unix epoch. If a
    /// message has no time of its own, the estimate counts.
    pub until_ms: Option<i64>,
    /// The order of the hits. If it is None, questions are ordered by relevance and patterns by
    /// recency.
    pub sort: Option<Sort>,
    /// The maximum number of hits on a page. If there are more, [`Answer::next_cursor`] continues.
    pub limit: usize,
    /// The number of lines that are shown before and after the line of a match.
    pub context_lines: usize,
    /// The end of an earlier page of the same query: its [`Answer::next_cursor`], or the
    /// [`cursor`](Hit::cursor) of one of its hits. Messages that were stored after the first page
    /// are on none of the further pages.
    pub cursor: Option<String>,
}

impl Query {
    /// Creates a search of one session for `ask`. It searches everything without filters and
    /// returns the first twenty hits.
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

/// The result of a search: one page of hits, and how much was searched for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The number of messages and summaries that match, over all pages. For a question it is the
    /// number of ranked candidates, which include messages that are only near a message with one of
    /// its words.
    pub total: u64,
    /// Whether `total` is complete. It is false for questions, and for patterns if something that
    /// might match cannot be read.
    pub total_is_exact: bool,
    /// How much was searched to find the hits. If nothing was found, it shows whether anything was
    /// there.
    pub searched: Searched,
    /// The hits of this page, in the order of the query. It is empty if nothing matches.
    pub hits: Vec<Hit>,
    /// The cursor of the next page. None if this is the last one.
    pub next_cursor: Option<String>,
    /// The number of words of a question that were not looked for, because the question is too
    /// long.
    pub words_left_out: u64,
}

/// How much was searched. It lets a reader judge an empty result, and shows the cost of the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Searched {
    /// The number of sessions that were searched.
    pub sessions: u64,
    /// The number of messages that were searched, with the index or by reading them.
    pub messages: u64,
    /// The number of summaries that were searched, in the same way.
    pub summaries: u64,
    /// The number of messages whose text was read.
    pub messages_read: u64,
    /// The number of bytes of text that were read.
    pub bytes_read: u64,
    /// The number of messages that had to be read because they are not indexed yet.
    pub messages_not_indexed: u64,
    /// The number of damaged messages. Unless the index decides, it is unknown whether they match.
    pub messages_unreadable: u64,
    /// The number of damaged summaries. It is unknown whether they match.
    pub summaries_unreadable: u64,
}

/// What kind of content a hit is, with the id to read it by. A summary is identified by the key of
/// the hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitKind {
    /// A message whose text is not large enough to be a file.
    Message {
        /// The id that the host gave the message.
        id: MessageId,
    },
    /// A message whose text is a file because it is long.
    File {
        /// The id that the host gave the message.
        id: MessageId,
        /// The number of the file.
        file: PayloadId,
        /// Whether the match is in the calls of the message, which are not part of the file.
        in_calls: bool,
    },
    /// A summary, which is identified by the key of the hit.
    Summary,
}

/// One message or summary that was found. It describes the match, and the full text can be read by
/// id.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The key of the message or summary in the store.
    pub key: Key,
    /// Whether the hit is a message, a file or a summary.
    pub kind: HitKind,
    /// The role of the message, such as `user`, `assistant` or `tool`. It is `summary` for a
    /// summary.
    pub role: String,
    /// The name of the author, if the message on the wire has one.
    pub name: Option<String>,
    /// The name of the tool, if the hit is a tool result.
    pub tool: Option<String>,
    /// The time of the message in milliseconds since the Unix epoch. For a summary it is the end of
    /// the time it covers. None if it is unknown.
    pub at_ms: Option<i64>,
    /// Whether the time is exact. If not, it is the time of arrival or that of the message before.
    pub at_is_exact: bool,
    /// Whether the message is part of the current conversation, and was not left behind by a cut or
    /// an edit. A summary is if the window shows it or a summary made from it.
    pub live: bool,
    /// The text around the first match.
    pub snippet: Snippet,
    /// For a question, the byte range of the passage by which the hit is ranked, in the text that
    /// the snippet is from. A short text is one passage. None for a pattern.
    pub span: Option<std::ops::Range<usize>>,
    /// The relevance if hits are ordered by it, and 0 otherwise. Higher is better. Scores of
    /// different queries cannot be compared.
    pub score: f64,
    /// The cursor of a page that continues after this hit. Set it as [`Query::cursor`] if only the
    /// hits up to this one were shown.
    pub cursor: String,
}

impl Store {
    /// Searches the store and returns one page of hits. `cancelled` is asked every few milliseconds
    /// whether to stop.
    ///
    /// # Errors
    /// Returns [`StoreError::Query`] if the query is invalid or too large, with what is wrong, and
    /// [`StoreError::Cancelled`] if the caller stopped it. Any other error comes from the store.
    pub fn search(
        &self,
        query: &Query,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, StoreError> {
        self.search_weighted(query, &Weights::default(), cancelled)
    }

    /// Like [`search`](Self::search), with other weights for a question. Benchmarks use it to
    /// measure what each weight contributes.
    ///
    /// # Errors
    /// The same as for [`search`](Self::search).
    #[doc(hidden)]
    pub fn search_weighted(
        &self,
        query: &Query,
        weights: &Weights,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, StoreError> {
        let (query, words_left_out) = bounds::bounded(query)?;
        let embedder = self.settings().embedder.as_ref();
        // Embedding the question costs time, so it is done only if the similarity has a weight.
        let sense = match &query.ask {
            Ask::Question(text) if weights.alike > 0.0 => {
                embedder.map(|embedder| question::Sense::new(embedder, text))
            }
            _ => None,
        };
        let mut answer = run::search(self, query, weights, sense, cancelled)?;
        answer.words_left_out += words_left_out;
        Ok(answer)
    }
}

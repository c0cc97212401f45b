//! Digests a span of messages without a model: a structured summary of facts, quoted from their source.
//!
//! A summary that a model writes reads well and forgets most names. This crate does the opposite, in
//! milliseconds: it takes every path, hash, URL, name, command and result out of a span, ranks them, and
//! writes as many as a budget allows, each in a line with what it belongs to. An engine uses it instead of
//! a model, or to add what the model's text lacks ([`Digest::missing_from`]).
//!
//! # How facts are ranked
//! 1. What users said, rules first, quoted; what they answered to a question.
//! 2. What is under way or blocked at the end of the span; the last to-do list.
//! 3. Facts by their value per character: what users named, what was written over what was read, recent over
//!    old; names of directories alone last. What is said in one message alone counts more where there is
//!    room for all of it; the less of it fits, the more weighs what is used again and again. What a fact
//!    belongs to (a file, a command, a report) is written once for all of its facts, so the facts of a rich
//!    source cost less.
//! 4. With the rest of the budget, bare names become quotes of the line they are in.
//!
//! Each fact is written once. Encoded bytes are never taken for facts, and secrets are masked
//! ([`mask_secrets`]) in everything that is written.
//!
//! ```
//! use contexture_digest::{Budget, Digest};
//! use contexture_engine_api::{MessageId, MessageView, ToolCallView};
//!
//! let calls = [ToolCallView::new("c1", "bash", r#"{"command": "cargo test -p ledger"}"#)];
//! let messages = [
//!     MessageView::new(MessageId(1), "user").with_text("Fix the ledger. Never touch the schema."),
//!     MessageView::new(MessageId(2), "assistant").with_tool_calls(&calls),
//!     MessageView::new(MessageId(3), "tool")
//!         .with_result_of("c1", "bash")
//!         .with_text("test reconcile_epoch ... FAILED\n8 passed; 1 failed"),
//! ];
//! let summary = Digest::of(&messages, None).render(Budget::chars(2_000));
//! assert!(summary.contains("The user said: \"Never touch the schema.\""));
//! assert!(summary.contains("`cargo test -p ledger` → 8 passed; 1 failed"));
//! assert!(summary.contains("reconcile_epoch"));
//! ```

mod arguments;
mod files;
mod headings;
mod language;
mod merge;
mod outline;
mod rank;
mod readings;
mod render;
mod scan;
mod sections;
mod shorten;
mod shown;
mod span;
mod steps;
mod surroundings;
mod text;
mod tool;
mod user;
mod words;

pub use language::Language;
pub use merge::merge;
pub use readings::Readings;
pub use sections::{Section, sections};
pub use shorten::{cut_arguments, shorten_arguments};

use contexture_engine_api::MessageView;

use outline::{Line, outline};
use rank::Facts;
use render::Page;
use span::Span;
use surroundings::Surroundings;

/// How long a text may be.
#[derive(Clone, Copy)]
pub struct Budget<'c> {
    max_chars: usize,
    tokens: Option<(u64, CountTokens<'c>)>,
}

type CountTokens<'c> = &'c dyn Fn(&str) -> u64;

impl<'c> Budget<'c> {
    /// The maximum number of characters (Unicode scalar values, not bytes).
    pub const fn chars(max_chars: usize) -> Self {
        Self {
            max_chars,
            tokens: None,
        }
    }

    /// The maximum number of tokens, as counted by `count`.
    #[must_use]
    pub const fn and_tokens(self, max_tokens: u64, count: &'c dyn Fn(&str) -> u64) -> Self {
        Self {
            tokens: Some((max_tokens, count)),
            ..self
        }
    }

    /// The longest text of `make(characters)` within the budget; empty if there is none.
    fn fit(&self, mut make: impl FnMut(usize) -> String) -> String {
        let mut max_chars = self.max_chars;
        loop {
            let text = make(max_chars);
            let Some((max_tokens, count)) = self.tokens else {
                return text;
            };
            let tokens = count(&text);
            if tokens <= max_tokens || text.is_empty() {
                return text;
            }
            // A little less than proportional, so that a second attempt usually suffices.
            let share = max_tokens as f64 / tokens as f64 * 0.97;
            max_chars = (text::chars(&text).min(max_chars) as f64 * share) as usize;
        }
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("max_chars", &self.max_chars)
            .field("max_tokens", &self.tokens.map(|(max, _)| max))
            .finish()
    }
}

/// The facts of a span of messages.
#[derive(Debug)]
pub struct Digest<'a> {
    span: Span<'a>,
    facts: Facts,
    lines: Vec<Line>,
    language: Language,
}

impl<'a> Digest<'a> {
    /// Digests `messages`. `previous` is the text of the summary before them, by any author; summaries
    /// among the messages are treated alike. Their content is carried over: updated, never repeated.
    pub fn of(messages: &[MessageView<'a>], previous: Option<&str>) -> Self {
        Self::with(&Readings::default(), messages, previous, None)
    }

    /// The same, without looking again at messages that were read when they came. `task` is what a user asked for
    /// before these messages, where they do not begin the conversation: the goal, unless `previous` has one.
    pub fn with(
        readings: &Readings,
        messages: &[MessageView<'a>],
        previous: Option<&str>,
        task: Option<&str>,
    ) -> Self {
        Self::written_in(Language::English, readings, messages, previous, task)
    }

    /// Writes the digest in another language. If an earlier summary has headings in a known language, that one is used
    /// instead.
    pub fn written_in(
        language: Language,
        readings: &Readings,
        messages: &[MessageView<'a>],
        previous: Option<&str>,
        task: Option<&str>,
    ) -> Self {
        let known: Vec<_> = messages
            .iter()
            .map(|message| readings.of(message))
            .collect();
        let mut span = Span::of(messages, &known);
        let facts = Facts::of(&mut span, &known);
        let mut earlier = previous.unwrap_or_default().to_owned();
        for summary in &span.summaries {
            if previous != Some(*summary) {
                earlier.push('\n');
                earlier.push_str(summary);
            }
        }
        let language = Language::of_headings(&earlier).unwrap_or(language);
        let lines = outline(&span, &facts.all, &earlier, task, language);
        Self {
            span,
            facts,
            lines,
            language,
        }
    }

    /// The files that tools changed in the messages, in order of first use.
    pub fn changed_files(&self) -> Vec<String> {
        files::changed(&self.span)
    }

    /// The whole summary under its headings (`## Goal`, `## Constraints & Preferences`, `## Progress`, …),
    /// empty sections left out, without the mark of a compaction.
    pub fn render(&self, budget: Budget<'_>) -> String {
        let mut surroundings = Surroundings::of(&self.span);
        budget.fit(|max_chars| self.page(&mut surroundings, max_chars).summary())
    }

    /// The highest ranked facts that are missing from `summary`, which a model wrote. They are lines under headings, to
    /// be [merged](merge) into the summary. Empty if nothing is missing.
    pub fn missing_from(&self, summary: &str, budget: Budget<'_>) -> String {
        let mut surroundings = Surroundings::of(&self.span);
        budget.fit(|max_chars| self.page(&mut surroundings, max_chars).missing(summary))
    }

    fn page<'d, 'l>(
        &'d self,
        surroundings: &'l mut Surroundings<'d>,
        max_chars: usize,
    ) -> Page<'d, 'l> {
        Page::new(
            &self.span,
            &self.facts,
            &self.lines,
            self.language,
            surroundings,
            max_chars,
        )
    }
}

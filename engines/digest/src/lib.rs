//! Digests a span of messages without a model: a structured summary of facts, quoted from their
//! source.
//!
//! A summary that a model writes reads well but drops most names. This crate does the opposite, in
//! milliseconds: it extracts every path, hash, URL, name, command and result from a span, ranks
//! them, and writes as many as a budget allows, each in a line with what it belongs to. An engine
//! uses it instead of a model, or to add facts that the model's text lacks
//! ([`Digest::missing_from`]). Start with [`Digest::of`] and [`Digest::render`].
//!
//! # How facts are ranked
//! 1. The [rules](Rules) that users stated, word for word, in a tenth of the budget.
//! 2. What users said, quoted, and what they answered to questions.
//! 3. Work that is in progress or blocked at the end of the span, and the last to-do list.
//! 4. Facts by their value per character. Names that users mentioned come before written ones,
//!    written ones before read ones, and recent ones before old ones. Names of directories alone
//!    come last. If there is room for everything that occurs in only one message, such facts count
//!    more. The less of it fits, the more weight facts get that are used repeatedly. What a fact
//!    belongs to, such as a file, a command or a report, is written once for all of its facts, so
//!    the facts of a rich source cost less.
//! 5. With the rest of the budget, bare names become quotes of the line they are in.
//!
//! Each fact is written once. Encoded bytes are never taken for facts, and secrets are masked
//! ([`mask_secrets`](contexture_secrets::mask_secrets)) in everything that is written.
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
//! assert!(summary.starts_with("## Rules the user stated. They still hold:\n- Never touch the schema.\n"));
//! assert!(summary.contains("`cargo test -p ledger` → 8 passed; 1 failed"));
//! assert!(summary.contains("reconcile_epoch"));
//! ```

mod arguments;
mod beside;
mod files;
mod headings;
mod interaction;
mod language;
mod merge;
mod outline;
mod rank;
mod readings;
mod render;
mod rules;
mod scan;
mod sections;
mod shorten;
mod shown;
mod source;
mod span;
mod steps;
mod surroundings;
mod text;
mod tool;
mod user;
mod words;
mod work_record;

pub use beside::TextsBeside;
pub use language::Language;
pub use merge::merge;
pub use readings::Readings;
pub use rules::{RULES_HEADING, RuleSection, Rules, keep_rules, without_rules};
pub use sections::{Section, sections};
pub use shorten::{cut_arguments, shorten_arguments};
pub use text::unmarked;
pub use work_record::{CheckedSummary, WorkRecord};

use contexture_engine_api::MessageView;

use outline::{Line, outline};
use rank::Facts;
use render::{Page, SaidBeside};
use span::Span;

/// The largest size of a text. It limits characters, and optionally tokens too. The text has to
/// keep both limits.
#[derive(Clone, Copy)]
pub struct Budget<'c> {
    max_chars: usize,
    tokens: Option<(u64, CountTokens<'c>)>,
}

type CountTokens<'c> = &'c dyn Fn(&str) -> u64;

impl<'c> Budget<'c> {
    /// Limits the number of characters. These are Unicode scalar values, not bytes. Use this alone
    /// if no tokenizer is at hand.
    pub const fn chars(max_chars: usize) -> Self {
        Self {
            max_chars,
            tokens: None,
        }
    }

    /// Limits the number of tokens too, as counted by `count`. Counting may be expensive, so it is
    /// called as rarely as possible.
    #[must_use]
    pub const fn and_tokens(self, max_tokens: u64, count: &'c dyn Fn(&str) -> u64) -> Self {
        Self {
            tokens: Some((max_tokens, count)),
            ..self
        }
    }

    /// The share of a summary's budget that the rules of users may take. It is a tenth. If that is
    /// less than 256 characters or 64 tokens, it is as much, because a rule or two should fit, but not
    /// more than half.
    #[must_use]
    pub fn for_rules(self) -> Self {
        let (chars, least) = (self.max_chars, LEAST_RULES_CHARS);
        let share = |tokens: u64| (tokens / 10).max(LEAST_RULES_TOKENS.min(tokens / 2));
        Self {
            max_chars: (chars / 10).max(least.min(chars / 2)),
            tokens: (self.tokens).map(|(tokens, count)| (share(tokens), count)),
        }
    }

    /// What this text leaves of the budget, with the blank line after it.
    fn without(self, text: &str) -> Self {
        match text.is_empty() {
            true => self,
            false => Self {
                max_chars: self.max_chars.saturating_sub(text::chars(text) + 2),
                tokens: self
                    .tokens
                    .map(|(tokens, count)| (tokens.saturating_sub(count(text) + 1), count)),
            },
        }
    }

    /// Whether a text is within the budget.
    pub(crate) fn allows(&self, text: &str) -> bool {
        text.chars().count() <= self.max_chars
            && self
                .tokens
                .is_none_or(|(tokens, count)| count(text) <= tokens)
    }

    /// Calls `make` with a number of characters until its text is within the budget, and returns
    /// that text. It is empty if no shorter text fits.
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
            // Take a little less than the proportion, so that a second attempt usually suffices.
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

/// The facts of a span of messages. Creating one reads all messages. It can then be rendered
/// several times, with different budgets.
#[derive(Debug)]
pub struct Digest<'a> {
    span: Span<'a>,
    facts: Facts,
    lines: Vec<Line>,
    language: Language,
    rules: Rules,
}

/// The room that the rules of users have in a small summary.
const LEAST_RULES_CHARS: usize = 256;
const LEAST_RULES_TOKENS: u64 = 64;

impl<'a> Digest<'a> {
    /// Digests `messages`. `previous` is the text of the summary before them, whoever wrote it, and
    /// summaries among the messages are treated the same way. Their content is carried over: it is
    /// updated and never repeated.
    pub fn of(messages: &[MessageView<'a>], previous: Option<&str>) -> Self {
        Self::with(&Readings::default(), messages, previous, None)
    }

    /// Digests messages without scanning those again that `readings` has seen. `task` is what the
    /// user asked for before these messages, if they do not begin the conversation. It becomes the
    /// goal unless `previous` has one. If it is empty, there is no goal, because an earlier text
    /// states it.
    pub fn with(
        readings: &Readings,
        messages: &[MessageView<'a>],
        previous: Option<&str>,
        task: Option<&str>,
    ) -> Self {
        Self::written_in(Language::English, readings, messages, previous, task)
    }

    /// Digests messages and writes in another language. If an earlier summary has headings in a
    /// known language, that language is used instead.
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
        let mut span = Span::of(messages, |at| known[at].is_some());
        let facts = Facts::of(&mut span, &known);
        let mut earlier = previous.unwrap_or_default().to_owned();
        // The previous summary may itself be one of the messages.
        for summary in &span.summaries {
            if previous != Some(*summary) {
                earlier.push('\n');
                earlier.push_str(summary);
            }
        }
        let (rules, stated) = Rules::with_stated(messages, previous);
        span.stated = stated;
        let earlier = without_rules(&earlier);
        let language = Language::of_headings(&earlier).unwrap_or(language);
        let lines = outline(&span, &facts.all, &earlier, task, language);
        Self {
            span,
            facts,
            lines,
            language,
            rules,
        }
    }

    /// Returns the paths of the files that tools changed in these messages, in order of first use.
    /// Patches count as changes too.
    pub fn changed_files(&self) -> Vec<String> {
        files::changed(&self.span)
    }

    /// Returns what these messages show about changed files and tests, to check what a model's summary
    /// claims. `earlier` is the text of the summaries before the messages. Files that it names count
    /// as changed.
    pub fn work_record(&self, earlier: &str) -> WorkRecord {
        WorkRecord::of(&self.span, earlier, self.language)
    }

    /// Writes the whole summary: the [rules](Rules) of users in [their share of the budget](Budget::for_rules), and the rest
    /// under its headings (`## Goal`, `## Constraints & Preferences`, `## Progress`, …). Empty
    /// sections are left out, and the mark of a compaction is not added.
    pub fn render(&self, budget: Budget<'_>) -> String {
        let section = self.rules.section(budget.for_rules());
        let beside = TextsBeside::of(&section.text);
        section.before(&self.render_beside(&beside, budget.without(&section.text)))
    }

    /// Writes the summary without the rules of users, for an engine that shows it beside other
    /// texts, such as their section of rules. The facts and the user's words in these texts are not
    /// repeated, so a rule for which their section has no room is quoted like any other words.
    pub fn render_beside(&self, beside: &TextsBeside, budget: Budget<'_>) -> String {
        let beside = SaidBeside::of(&self.facts, &self.lines, beside);
        budget.fit(|max_chars| self.page(max_chars).beside(&beside).summary())
    }

    /// Returns about how many characters a summary needs to have every line and to name every fact
    /// that is not beside it.
    pub fn whole_chars(&self, beside: &TextsBeside) -> usize {
        let is_beside = self.facts.are_beside(beside);
        let chars_of = |line: &Line| {
            let facts = line.facts.iter().filter(|fact| !is_beside[**fact]);
            let facts: usize = facts.map(|fact| self.facts.all[*fact].cost).sum();
            let is_written = facts > 0 || line.value > 0.0;
            facts + usize::from(is_written) * ("- \n".len() + line.head_chars)
        };
        self.lines.iter().map(chars_of).sum()
    }

    /// Writes what is missing from `summary`, which a model wrote: how to go on, such as the last
    /// requests, and the highest ranked facts. They are lines under headings, to be [merged](merge)
    /// into the summary. The result is empty if nothing is missing.
    pub fn missing_from(&self, summary: &str, budget: Budget<'_>) -> String {
        budget.fit(|max_chars| {
            let page = self.page(max_chars);
            page.with_key_lines(summary).missing(summary)
        })
    }

    /// Like [`missing_from`](Self::missing_from), with facts only. Use it for the summary of a part of
    /// a conversation, which does not say how to go on.
    pub fn facts_missing_from(&self, summary: &str, budget: Budget<'_>) -> String {
        budget.fit(|max_chars| self.page(max_chars).missing(summary))
    }

    fn page(&self, max_chars: usize) -> Page<'_> {
        Page::new(
            &self.span, &self.facts, &self.lines, self.language, max_chars,
        )
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

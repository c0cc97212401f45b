//! Decides whether new messages show that an item of an earlier summary was done.
//!
//! Calling an open item done is worse than calling a finished item open, so in doubt the item stays
//! in its section. It counts as done if a user or the assistant says so in a sentence about it, or
//! if the last to-do list marks it as completed. If the item is about tests or a build, it also
//! counts as done if a test run passed that names everything the item names. A later failure
//! reverses that.
//!
//! [`Evidence::of`] collects what the messages say, once for all items, and [`Evidence::of_item`]
//! judges one item. All of this is comparison of words, so a claim in unusual words is not
//! recognised, and the item stays open.

use hashbrown::HashSet;

use crate::interaction::Todo;
use crate::scan::{Find, scan};
use crate::sections::Section;
use crate::source::Origin;
use crate::span::Span;
use crate::text::sentences;
use crate::tool::Action;

/// What the new messages show about an item. The default in doubt is `Nothing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    Done,
    /// It is no longer wanted, or a newer to-do list contains it, so its line can be dropped.
    Superseded,
}

/// The share of an item's words that a sentence about it has to contain, if the item has no names.
const MOST_WORDS: f32 = 0.75;
/// The same share for pairs of Chinese characters, which vary more because each character is in two
/// pairs.
const MOST_PAIRS: f32 = 0.6;

/// Words that say that something is done. They must be whole words of a sentence.
const DONE: [&str; 11] = [
    "done", "finished", "completed", "fixed", "resolved", "solved", "merged", "shipped",
    "deployed", "passes", "passed",
];
const DONE_PHRASES: [&str; 5] = ["pass now", "now pass", "works now", "now works", "[x]"];
const CHINESE_DONE: [&str; 13] = [
    "完成了", "已完成", "修复了", "已修复", "修好", "解决了", "已解决", "搞定", "做完", "写完",
    "改好", "通过了", "全部通过",
];
const PASTS: [(&str, &str); 8] = [
    ("written", "writ"),
    ("wrote", "writ"),
    ("made", "mak"),
    ("built", "build"),
    ("ran", "run"),
    ("sent", "send"),
    ("found", "find"),
    ("rewritten", "rewrit"),
];
/// A sentence with one of these words does not say that anything is done, unless the item has the
/// word itself.
pub(crate) const DOUBT: [&str; 55] = [
    "not", "never", "still", "yet", "but", "however", "except", "fail", "fails", "failed",
    "failing", "failure", "broken", "error", "errors", "cannot", "unable", "will", "going",
    "should", "would", "could", "can", "may", "might", "need", "needs", "must", "want", "please",
    "todo", "next", "plan", "try", "trying", "tried", "if", "once", "when", "until", "unless",
    "before", "almost", "nearly", "partly", "partially", "remains", "remaining", "pending",
    "continue", "start", "begin", "let", "wait", "half",
];
const CHINESE_DOUBT: [&str; 38] = [
    "失败了", "又失败", "仍", "报错了", "未", "没", "不", "还", "尚", "待", "将", "需", "应该",
    "如果", "正在", "准备", "接下来", "下一步", "但", "吗", "？", "失败", "错误", "报错", "继续",
    "开始", "打算", "计划", "等", "除了", "一半", "部分", "请", "帮我", "想要", "希望", "能否",
    "可以",
];
/// Only a sentence with one of these words can deny a claim. It is a quick test before the full
/// one.
const DENIALS: [&str; 16] = [
    "still", "fail", "broke", "not ", "n't", "n’t", "again", "wrong", "仍", "还", "没", "未",
    "失败", "不", "又", "错",
];
/// The beginnings of sentences with which a user cancels something.
const CANCELLED: [&str; 10] = [
    "never mind", "nevermind", "forget about", "skip", "cancel", "no need to", "不用", "不需要",
    "取消", "算了",
];
/// Words for what a test run or a build can show to be done.
const TESTED: [&str; 15] = [
    "test", "fix", "fail", "build", "compil", "lint", "pass", "bug", "测试", "修复", "失败",
    "编译", "构建", "通过", "用例",
];

/// The evidence in the new messages, collected once for all items.
#[derive(Debug)]
pub(crate) struct Evidence<'s> {
    span: &'s Span<'s>,
    claims: Vec<Claim<'s>>,
    /// Sentences that may deny a claim, each with the index of its message.
    denials: Vec<(usize, &'s str)>,
    /// The runs with a known result, each with the index of its message, whether it passed, and the
    /// index of the call.
    runs: Vec<(usize, bool, usize)>,
    todos: Vec<(Todo, Terms)>,
}

#[derive(Debug)]
struct Claim<'s> {
    message: usize,
    text: &'s str,
    lower: String,
    is_cancelled: bool,
    terms: Terms,
}

/// The names in a text, its other words without their endings, and its pairs of characters in
/// scripts without spaces.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    names: Vec<String>,
    words: HashSet<String>,
    pairs: HashSet<String>,
}

impl<'s> Evidence<'s> {
    pub(crate) fn of(span: &'s Span<'s>, todos: Vec<Todo>) -> Self {
        let (mut claims, mut denials) = (Vec::new(), Vec::new());
        for source in &span.sources {
            let is_user = match source.origin {
                Origin::User => true,
                Origin::Assistant => false,
                Origin::Argument(_) | Origin::Result(_) => continue,
            };
            for text in sentences(&source.text) {
                // A longer sentence was pasted rather than said.
                if text.len() > 1_000 {
                    continue;
                }
                let lower = text.to_lowercase();
                if DENIALS.iter().any(|word| lower.contains(word)) {
                    denials.push((source.message, text));
                }
                // Only a user can cancel something.
                let mut cancels = CANCELLED.iter().filter(|_| is_user);
                let cancelled = cancels.find(|word| lower.starts_with(**word));
                if cancelled.is_some() || may_claim(&lower) {
                    let about = cancelled.and_then(|word| text.get(word.len()..));
                    claims.push(Claim {
                        message: source.message,
                        text,
                        is_cancelled: cancelled.is_some(),
                        terms: Terms::of(about.unwrap_or(text)),
                        lower,
                    });
                }
            }
        }
        let told = span.calls.iter().enumerate().filter_map(|(at, call)| {
            let outcome = call.result.and_then(|result| span.sources[result].outcome);
            let wrong = call.went_wrong(&span.sources);
            let tells = call.action == Action::Run && (wrong || outcome.is_some());
            tells.then_some((call.message, !wrong, at))
        });
        Self {
            runs: told.collect(),
            claims,
            denials,
            todos: todos
                .into_iter()
                .map(|todo| {
                    let terms = Terms::of(&todo.text);
                    (todo, terms)
                })
                .collect(),
            span,
        }
    }

    /// Judges an item that the earlier summary has in this section. The to-do list decides first,
    /// then a cancellation, then what was said and tested.
    pub(crate) fn of_item(&self, section: Section, item: &str) -> Shown {
        let terms = Terms::of(item);
        let lower = item.to_lowercase();
        let same = |(todo, of_todo): &&(Todo, Terms)| {
            todo.text.to_lowercase() == lower
                || terms.are_named_by(of_todo) && of_todo.are_named_by(&terms)
        };
        // If the to-do list has the item, it is a better witness than any sentence.
        if let Some((todo, _)) = self.todos.iter().find(same) {
            match todo.status.as_str() {
                "completed" | "done" => return Shown::Done,
                "cancelled" | "canceled" => return Shown::Superseded,
                // The list has it as work in progress, so the line of the list replaces this one.
                "in_progress" if section == Section::NextSteps => return Shown::Superseded,
                _ => return Shown::Nothing,
            }
        }
        let is_cancelled = |claim: &Claim<'_>| {
            claim.is_cancelled
                && (claim.terms.are_named_by(&terms) || terms.have_names_in(&claim.terms))
        };
        if self.claims.iter().any(is_cancelled) {
            return Shown::Superseded;
        }
        let said = self.claims.iter().any(|claim| {
            !claim.is_cancelled
                && claim.says_done(&terms, &lower)
                && !is_doubted(claim.text, &lower)
                && !self.failed_after(claim.message, &terms)
                && !self.denied_after(claim.message, &terms, &lower)
        });
        let tested = || {
            let at = self.tested_at(&terms, &lower)?;
            (!self.denied_after(at, &terms, &lower)).then_some(at)
        };
        match said || tested().is_some() {
            true => Shown::Done,
            false => Shown::Nothing,
        }
    }

    /// Whether a message after this one says that the item is not done, as in "test_a still fails".
    fn denied_after(&self, message: usize, terms: &Terms, item: &str) -> bool {
        let later = self.denials.iter().filter(|(at, _)| *at > message);
        later.into_iter().any(|(_, text)| {
            let said = Terms::of(text);
            let is_about = terms.names.iter().any(|name| said.names.contains(name))
                || terms.are_named_by(&said);
            is_about && is_doubted(text, item)
        })
    }

    /// Whether a run after this message failed that may be about the item. If the item has no
    /// names, any test run may be.
    fn failed_after(&self, message: usize, terms: &Terms) -> bool {
        let is_test = |call: usize| {
            let result = self.span.calls[call].result;
            result.is_some_and(|result| self.span.sources[result].outcome.is_some())
        };
        self.runs.iter().any(|(at, passed, call)| {
            let is_about = match terms.names.is_empty() {
                true => is_test(*call),
                false => terms.names.iter().any(|name| self.tells_of(*call, name)),
            };
            *at > message && !passed && is_about
        })
    }

    /// Returns the message of the last run that tested the item. For each of its names, the last
    /// run that mentions it has to have passed. Returns `None` if one of them did not, or if the
    /// item is not about tests.
    fn tested_at(&self, terms: &Terms, item: &str) -> Option<usize> {
        if !TESTED.iter().any(|word| item.contains(word)) {
            return None;
        }
        let last = |name: &String| {
            let mut runs = self.runs.iter().rev();
            let (at, passed, _) = runs.find(|(_, _, call)| self.tells_of(*call, name))?;
            passed.then_some(*at)
        };
        let runs: Option<Vec<usize>> = terms.names.iter().map(last).collect();
        runs?.into_iter().max()
    }

    fn tells_of(&self, call: usize, name: &str) -> bool {
        let call = &self.span.calls[call];
        let sources = call.arguments.clone().chain(call.result);
        sources
            .into_iter()
            .any(|source| names(&self.span.sources[source].text, name))
    }
}

impl Terms {
    pub(crate) fn of(text: &str) -> Self {
        let mut terms = Self::default();
        let mut plain = text.to_owned();
        scan(text, |find| {
            if let Find::Fact(_, range) = find {
                let name = &text[range];
                terms.names.push(name.to_owned());
                // A name must not count as a word too, or it would match twice.
                plain = plain.replace(name, " ");
            }
        });
        for word in plain.split(|c: char| !c.is_alphanumeric()) {
            if word.is_ascii() {
                if word.len() > 2 && !STOP_WORDS.contains(&&*word.to_ascii_lowercase()) {
                    terms.words.insert(stem(&word.to_ascii_lowercase()));
                }
                continue;
            }
            let letters: Vec<char> = word.chars().collect();
            terms.pairs.extend(
                letters
                    .windows(2)
                    .map(|pair| pair.iter().collect::<String>()),
            );
        }
        terms
    }

    /// Whether a longer text has all names of this item and most of its words.
    pub(crate) fn are_all_in(&self, text: &Self) -> bool {
        let has = |name: &String| text.names.contains(name);
        self.names.iter().all(has) && self.most_words_are_in(text)
    }

    /// Whether a sentence with the terms `sentence` contains all names of this item. False if the
    /// item has no names.
    fn have_names_in(&self, sentence: &Self) -> bool {
        let has = |name: &String| sentence.names.contains(name);
        !self.names.is_empty() && self.names.iter().all(has)
    }

    /// Whether a sentence with these terms has the same subject, judged by its words. A sentence
    /// with other names does not.
    fn are_named_by(&self, sentence: &Self) -> bool {
        if self.names != sentence.names && !sentence.names.is_empty() && !self.names.is_empty() {
            return false;
        }
        // If only one word is shared, the match may be a coincidence.
        self.words.len() + self.pairs.len() > 1 && self.most_words_are_in(sentence)
    }

    fn most_words_are_in(&self, other: &Self) -> bool {
        let are_most = |mine: &HashSet<String>, others: &HashSet<String>, share: f32| {
            let found = mine.iter().filter(|term| others.contains(*term)).count();
            found as f32 >= share * mine.len() as f32
        };
        are_most(&self.words, &other.words, MOST_WORDS)
            && are_most(&self.pairs, &other.pairs, MOST_PAIRS)
    }
}

impl Claim<'_> {
    /// Whether the sentence says that the item with these terms is done. Words that the item has
    /// itself prove nothing.
    fn says_done(&self, terms: &Terms, item: &str) -> bool {
        let is_new = |word: &&&str| !item.contains(**word);
        let mut words = self.lower.split(|c: char| !c.is_ascii_alphabetic());
        let is_done = words.any(|word| DONE.contains(&word) && !item.contains(word))
            || (DONE_PHRASES.iter().chain(&CHINESE_DONE))
                .filter(is_new)
                .any(|phrase| self.lower.contains(phrase))
            || self.lower.starts_with('✅');
        let does = self.does(terms, item);
        match terms.are_named_by(&self.terms) {
            true => is_done || does,
            // The names match but the words do not, so something else may have been done to the
            // same files.
            false => {
                terms.have_names_in(&self.terms)
                    && (does || is_done && terms.words.is_empty() && terms.pairs.is_empty())
            }
        }
    }

    /// Whether the sentence has the item's verb in the past tense: "Added" for "Add", or 已添加 for
    /// 添加.
    fn does(&self, terms: &Terms, item: &str) -> bool {
        let mut words = self.lower.split(|c: char| !c.is_ascii_alphabetic());
        let past = words.any(|word| {
            let is_past = word.ends_with("ed") || PASTS.iter().any(|(past, _)| *past == word);
            is_past && !item.contains(word) && terms.words.contains(&stem(word))
        });
        if past || self.lower.is_ascii() {
            return past;
        }
        // Chinese marks a finished action with 已 before the verb, or with 了 after it.
        let letters: Vec<char> = self.lower.chars().collect();
        let known = |pair: Option<&[char]>| {
            let pair = pair.map(|pair| pair.iter().collect::<String>());
            pair.is_some_and(|pair| {
                terms.pairs.contains(&pair) && !CHINESE_DOUBT.contains(&pair.as_str())
            })
        };
        letters.iter().enumerate().any(|(at, letter)| match letter {
            '已' => {
                let from = at + 1 + usize::from(letters.get(at + 1) == Some(&'经'));
                known(letters.get(from..from + 2))
            }
            '了' => at >= 2 && known(letters.get(at - 2..at)),
            _ => false,
        })
    }
}

/// Whether a sentence may claim that something is done. This quick test rules out most sentences.
fn may_claim(lower: &str) -> bool {
    let holds = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    holds(&["ed", "pass", "done", "now works", "works now", "[x]"])
        || PASTS.iter().any(|(past, _)| lower.contains(past))
        || !lower.is_ascii()
            && holds(&[
                "已", "了", "修好", "搞定", "做完", "写完", "改好", "通过", "✅",
            ])
}

/// Whether a sentence says that something is not done, or only will be. Words that the item has
/// itself do not count, and neither do those in names and code, as in `src/never.rs`.
pub(crate) fn is_doubted(text: &str, item: &str) -> bool {
    let prose = prose(text).to_lowercase();
    let is_in_item = |word: &str| {
        let mut words = item.split(|c: char| !c.is_ascii_alphabetic());
        words.any(|own| own == word)
    };
    let doubts = |word: &str| DOUBT.contains(&word) && !is_in_item(word);
    text.ends_with('?')
        || ["n't", "n’t", "'ll", "’ll"]
            .iter()
            .any(|short| prose.contains(short))
        || prose.contains("to be ")
        || prose.contains("[ ]")
        || prose.split(|c: char| !c.is_ascii_alphabetic()).any(doubts)
        || !text.is_ascii()
            && CHINESE_DOUBT
                .iter()
                .any(|word| prose.contains(word) && !item.contains(word))
}

/// Returns a sentence without the names and without the code between backticks.
fn prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut parts = text.split('`').enumerate().peekable();
    while let Some((at, part)) = parts.next() {
        // A backtick that nothing closes begins no code.
        if at % 2 == 1 && parts.peek().is_some() {
            continue;
        }
        let mut copied = 0;
        scan(part, |find| {
            if let Find::Fact(_, name) = find {
                prose.push_str(&part[copied..name.start]);
                copied = name.end;
            }
        });
        prose.push_str(&part[copied..]);
        prose.push(' ');
    }
    prose
}

/// Whether a text contains this name as a whole, and not only as part of a longer one.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(name).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + name.len()..].chars().next())
    })
}

const STOP_WORDS: [&str; 23] = [
    "the", "and", "for", "with", "that", "this", "from", "into", "its", "are", "was", "were",
    "has", "have", "all", "now", "our", "your", "some", "any", "then", "also", "please",
];

/// Returns a word without its ending, so that "fixing" and "fixed" are equal. The result need not
/// be a word.
fn stem(word: &str) -> String {
    if let Some((_, stem)) = PASTS.iter().find(|(past, _)| *past == word) {
        return (*stem).to_owned();
    }
    let stem = ["ing", "ed", "es", "s", "e"]
        .iter()
        .find_map(|ending| word.strip_suffix(ending).filter(|stem| stem.len() > 2))
        .unwrap_or(word);
    let stem = stem.strip_suffix('e').unwrap_or(stem);
    // Doubled letters, as in "planned" and "running".
    let mut letters = stem.chars().rev();
    match (letters.next(), letters.next()) {
        (Some(last), Some(before)) if last == before && stem.len() > 3 => {
            stem[..stem.len() - 1].to_owned()
        }
        _ => stem.to_owned(),
    }
}

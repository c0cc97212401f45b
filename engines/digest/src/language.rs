//! The language of a digest's own words: its headings, and the words that introduce a quote.
//!
//! [`Language`] chooses between the variants, and every fixed phrase of a digest is a method of it.
//! Phrases that a later digest has to recognise in an earlier summary have a counterpart, such as
//! [`is_said`] and [`last_said`], which accept every language. To add a language, add a variant and
//! a word to each pair of this file.

use contexture_engine_api::{MessageKind, MessageView};

use crate::sections::Section;

/// The language in which a digest writes everything but quotes.
///
/// Quotes stay in the language of their source. English is the default. If an engine's summaries
/// should match the conversation, it passes the result of [`Language::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// English, which is also used for every language without a variant of its own.
    #[default]
    English,
    /// Chinese, which is chosen if a text has more Chinese characters than words of other scripts.
    Chinese,
}

const PROGRESS: [&str; 2] = ["## Progress", "## 进展"];
const SAID: [&str; 2] = ["The user said: ", "用户说："];
const LAST_SAID: [&str; 2] = [
    "Last worked on, after the user said: ",
    "最后在处理，用户说：",
];
const LEFT: [&str; 2] = ["Left on the to-do list: ", "待办清单上还有："];
const LISTED: [&str; 2] = [" (on the to-do list)", "（在待办清单上）"];

/// What the messages show instead of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contradiction<'s> {
    /// This test failed in its last run.
    Failed(&'s str),
    /// The last run of tests ended with this line.
    LastRun(&'s str),
    /// No tool call changed this file.
    Unchanged(&'s str),
}

impl Language {
    /// Returns the language of the user's words, or of all messages if the user said nothing.
    /// Notices of the host do not count.
    pub fn of(messages: &[MessageView<'_>]) -> Self {
        let said = || {
            let is_said = |message: &&MessageView<'_>| message.kind() != MessageKind::Notice;
            messages.iter().filter(is_said)
        };
        let users = said().filter(|message| message.is_real_user());
        Self::most(users.map(MessageView::text))
            .or_else(|| Self::most(said().map(MessageView::text)))
            .unwrap_or_default()
    }

    /// Returns the language of a summary's headings, or `None` if it has no words in a heading.
    pub(crate) fn of_headings(summary: &str) -> Option<Self> {
        let headings = summary.lines().filter(|line| line.starts_with('#'));
        Self::most(headings)
    }

    /// Returns the language of most words, or `None` if there are none. A Chinese character counts
    /// as one word, and so does a path or an identifier.
    fn most<'t>(texts: impl Iterator<Item = &'t str>) -> Option<Self> {
        let (mut words, mut han, mut other) = (0_usize, 0_usize, 0_usize);
        for text in texts {
            let mut in_word = false;
            for character in text.chars() {
                match character {
                    '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' => han += 1,
                    // Japanese and Korean texts also contain Chinese characters, so their own
                    // scripts are counted against Chinese.
                    '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}' => other += 1,
                    _ if character.is_alphabetic() => {
                        words += usize::from(!in_word);
                        in_word = true;
                        continue;
                    }
                    _ if !character.is_whitespace() => continue,
                    _ => {}
                }
                in_word = false;
            }
        }
        (words + han + other > 0).then_some(match han > words && han > other {
            true => Self::Chinese,
            false => Self::English,
        })
    }

    fn pick(self, words: [&str; 2]) -> &str {
        match self {
            Self::English => words[0],
            Self::Chinese => words[1],
        }
    }

    pub(crate) fn progress(self) -> &'static str {
        self.pick(PROGRESS)
    }

    pub(crate) fn heading(self, section: Section) -> &'static str {
        self.pick(match section {
            Section::Goal => ["## Goal", "## 目标"],
            Section::Constraints => ["## Constraints & Preferences", "## 约束与偏好"],
            Section::Requests => [
                "## Asked Earlier, Done or Not",
                "## 此前的要求（未必已完成）",
            ],
            Section::Done => ["### Done", "### 已完成"],
            Section::InProgress => ["### In Progress", "### 进行中"],
            Section::Blocked => ["### Blocked", "### 受阻"],
            Section::Decisions => ["## Key Decisions", "## 关键决策"],
            Section::Files => ["## Relevant Files", "## 相关文件"],
            Section::NextSteps => ["## Next Steps", "## 下一步"],
            Section::Critical => ["## Critical Context", "## 关键信息"],
        })
    }

    pub(crate) fn said(self, words: &str) -> String {
        format!("{}\"{words}\"", self.pick(SAID))
    }

    /// The line for the user's last request, which stands among the work in progress.
    pub(crate) fn last_said(self, words: &str) -> String {
        format!("{}\"{words}\"", self.pick(LAST_SAID))
    }

    pub(crate) fn answered(self, question: &str, answer: &str) -> String {
        match self {
            Self::English => format!("Asked \"{question}\", the user answered: \"{answer}\""),
            Self::Chinese => format!("问 \"{question}\"，用户答：\"{answer}\""),
        }
    }

    pub(crate) fn left(self, todos: &str) -> String {
        format!("{}{todos}", self.pick(LEFT))
    }

    /// The line for an item of the to-do list that is in progress.
    pub(crate) fn listed(self, todo: &str) -> String {
        format!("{todo}{}", self.pick(LISTED))
    }

    pub(crate) fn reported(self, words: &str) -> String {
        format!("{}{words}", self.pick(["Reported: ", "汇报："]))
    }

    pub(crate) fn named(self) -> String {
        self.pick(["The user also named", "用户还提到"]).to_owned()
    }

    /// Introduces what only an earlier form of the to-do list has.
    pub(crate) fn planned(self) -> String {
        self.pick(["The to-do list also named", "待办清单还提到"])
            .to_owned()
    }

    /// The mark in a sentence that the messages contradict.
    pub(crate) fn contradicted(self, shown: Contradiction<'_>) -> String {
        let (open, close) = self.mark();
        let [before, after] = self.shown(shown);
        let (Contradiction::Failed(what)
        | Contradiction::LastRun(what)
        | Contradiction::Unchanged(what)) = shown;
        format!("{open}{before}{what}{after}{close}")
    }

    /// What the marks in a text say, see [`contradicted`](Self::contradicted).
    pub(crate) fn contradictions_in(self, text: &str) -> impl Iterator<Item = Contradiction<'_>> {
        let (open, close) = self.mark();
        let marks = text.split(open).skip(1);
        let told = marks.filter_map(move |mark| Some(mark.split_once(close)?.0));
        told.filter_map(move |told| {
            [
                Contradiction::Failed,
                Contradiction::LastRun,
                Contradiction::Unchanged,
            ]
            .into_iter()
            .find_map(|shown| {
                let [before, after] = self.shown(shown(""));
                let what = told.strip_prefix(before)?.strip_suffix(after)?;
                Some(shown(what))
            })
        })
    }

    fn mark(self) -> (&'static str, &'static str) {
        match self {
            Self::English => (" [not confirmed: ", "]"),
            Self::Chinese => ("［未经证实：", "］"),
        }
    }

    /// The words before and after what a mark names.
    fn shown(self, shown: Contradiction<'_>) -> [&'static str; 2] {
        match (self, shown) {
            (Self::English, Contradiction::Failed(_)) => ["", " failed in its last run"],
            (Self::English, Contradiction::LastRun(_)) => ["the last test run ended: ", ""],
            (Self::English, Contradiction::Unchanged(_)) => ["no tool call here changed ", ""],
            (Self::Chinese, Contradiction::Failed(_)) => ["", " 最近一次运行失败"],
            (Self::Chinese, Contradiction::LastRun(_)) => ["最近一次测试的结果：", ""],
            (Self::Chinese, Contradiction::Unchanged(_)) => ["这里没有工具调用改动过 ", ""],
        }
    }

    pub(crate) fn failed(self) -> &'static str {
        self.pick([" → failed", " → 失败"])
    }

    /// The words that introduce facts about a file from an earlier summary.
    pub(crate) fn earlier(self) -> &'static str {
        self.pick(["; earlier: ", "；此前："])
    }

    pub(crate) fn written(self) -> &'static str {
        self.pick(["written", "写入"])
    }

    pub(crate) fn edited(self) -> &'static str {
        self.pick(["edited", "修改"])
    }

    pub(crate) fn attempt_failed(self) -> &'static str {
        self.pick(["an attempt failed", "有一次失败"])
    }

    /// Says that these lines of a file were read, or all of it if `lines` is `None`.
    pub(crate) fn read(self, lines: Option<&str>) -> String {
        match (self, lines) {
            (Self::English, Some(lines)) => format!("read (lines {lines})"),
            (Self::Chinese, Some(lines)) => format!("读取（第 {lines} 行）"),
            (_, None) => self.pick(["read", "读取"]).to_owned(),
        }
    }
}

/// Whether a line quotes a user in the form that a digest uses, in any language.
pub(crate) fn is_said(line: &str) -> bool {
    said(line).is_some()
}

/// Returns the words of the user that a line quotes, without quotation marks.
pub(crate) fn said(line: &str) -> Option<&str> {
    quoted_after(&SAID, line)
}

fn quoted_after<'l>(beginnings: &[&str], line: &'l str) -> Option<&'l str> {
    let words = beginnings
        .iter()
        .find_map(|beginning| line.strip_prefix(beginning))?;
    Some(words.trim().trim_matches('"'))
}

/// Returns the quoted words of the user's last request if the line is about that. The quotation
/// marks are removed.
pub(crate) fn last_said(line: &str) -> Option<&str> {
    quoted_after(&LAST_SAID, line)
}

/// Whether a line lists the open items of a plan in the form that a digest uses, in any language.
pub(crate) fn is_left(line: &str) -> bool {
    LEFT.iter().any(|prefix| line.starts_with(prefix))
}

/// Returns the item if the line is one of a plan that is in progress, in any language.
pub(crate) fn listed(line: &str) -> Option<&str> {
    LISTED.iter().find_map(|suffix| line.strip_suffix(suffix))
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::MessageId;

    use super::*;

    #[test]
    fn the_language_is_that_of_the_users_words() {
        let language = |user: &str, assistant: &str| {
            let said = |role, text| MessageView::new(MessageId(1), role).with_text(text);
            let messages = [("user", user), ("assistant", assistant)];
            Language::of(
                &messages
                    .iter()
                    .map(|(role, text)| said(role, text))
                    .collect::<Vec<_>>(),
            )
        };
        for (user, assistant, expected) in [
            (
                "帮我重构 src/main.rs",
                "I will look at it first, all of it.",
                Language::Chinese,
            ),
            (
                "把 retry_policy 的超时改成 30 秒",
                "好的",
                Language::Chinese,
            ),
            ("Rename 数据库 to database", "好的", Language::English),
            ("テストを直してください", "はい", Language::English),
            ("고쳐 주세요", "네", Language::English),
            ("", "好的，我先看一下。", Language::Chinese),
            ("", "", Language::English),
        ] {
            assert_eq!(language(user, assistant), expected, "{user}");
        }
    }
}

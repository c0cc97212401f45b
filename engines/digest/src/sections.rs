//! The sections of a summary, and a parser for the summaries of any author.
//!
//! [`sections`] splits a summary into lines with their [`Section`]. It has to read what a digest
//! wrote as well as what a model wrote, so `Head::of` accepts many words for the same heading, in
//! English and Chinese. Check boxes and the wording of a line can move it to another section. In
//! doubt a line stays in the section of its heading, and text under an unknown heading becomes
//! critical context, so nothing is lost.

use contexture_engine_api::{SUMMARY_END_MARK, SUMMARY_MARK};

/// A section of a summary. The order of the variants is the order in the summary, and more sections
/// may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Section {
    /// What the user wants to reach, in the user's own words.
    Goal,
    /// Requirements on how something is done, such as rules and preferences.
    Constraints,
    /// What the user asked for before the latest request, oldest first. Nobody checked whether it was
    /// done.
    Requests,
    /// Finished work, including commands that succeeded.
    Done,
    /// Work in progress, including the user's latest request.
    InProgress,
    /// Obstacles, such as a command that fails at the end of the messages.
    Blocked,
    /// Decisions with their reasons, and the user's answers to questions.
    Decisions,
    /// Files that were read or changed, with facts about them.
    Files,
    /// Remaining work, such as the open items of a to-do list.
    NextSteps,
    /// Everything else that may matter later, mostly facts without a better place.
    Critical,
}

/// What a heading introduces. The heading above the progress sections has no lines of its own
/// section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Of(Section),
    /// The progress sections together. The heading of each follows.
    Progress,
}

impl Section {
    pub(crate) fn is_progress(self) -> bool {
        matches!(self, Self::Done | Self::InProgress | Self::Blocked)
    }
}

impl Head {
    /// Returns the meaning of a heading, in the various words that models use. Returns `None` if it
    /// means none of the sections.
    pub(crate) fn of(heading: &str) -> Option<Self> {
        let heading = heading.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| heading.contains(word));
        // Check these first, because headings for unfinished work often contain the words for
        // finished work too.
        if has(&["asked earlier", "此前的要求"]) {
            Some(Self::Of(Section::Requests))
        } else if has(&[
            "in progress", "in-progress", "ongoing", "current work", "under way", "进行中", "正在",
            "当前工作",
        ]) {
            Some(Self::Of(Section::InProgress))
        } else if has(&[
            "next step", "not done", "undone", "not yet", "unfinished", "incomplete", "to be ",
            "to do", "to-do", "todo", "remaining", "outstanding", "pending", "open task",
            "left to", "未完成", "待", "尚未", "还没", "下一步", "后续", "接下来", "剩余",
        ]) {
            Some(Self::Of(Section::NextSteps))
        } else if has(&["blocked", "blocker", "阻"]) {
            Some(Self::Of(Section::Blocked))
        } else if has(&["goal", "objective", "目标"]) {
            Some(Self::Of(Section::Goal))
        } else if has(&["constraint", "preference", "约束", "偏好", "限制"]) {
            Some(Self::Of(Section::Constraints))
        } else if has(&["done", "completed", "finished", "accomplished", "完成"]) {
            Some(Self::Of(Section::Done))
        } else if has(&["progress", "进展", "进度"]) {
            Some(Self::Progress)
        } else if has(&["decision", "决定", "决策"]) {
            Some(Self::Of(Section::Decisions))
        } else if has(&["file", "文件"]) {
            Some(Self::Of(Section::Files))
        } else if has(&["critical", "关键信息", "关键上下文", "重要信息"]) {
            Some(Self::Of(Section::Critical))
        } else {
            None
        }
    }
}

/// Returns the lines of a summary with their sections, whether a digest wrote it or a model that
/// varies the headings, in English or Chinese. The marks of the summary, the headings and list
/// marks are removed, and indented continuation lines are joined to the line before. Text under an
/// unknown heading or after a line `---` becomes critical context, and placeholders such as "none"
/// are dropped.
pub fn sections(summary: &str) -> Vec<(Section, String)> {
    let mut lines: Vec<(Section, String)> = Vec::new();
    let mut head = Some(Head::Of(Section::Critical));
    let mut headed = false;
    for line in summary.lines() {
        let line = line
            .trim_end()
            .trim_end_matches(SUMMARY_END_MARK)
            .trim_end();
        let text = line.trim_start();
        if text.is_empty() {
            continue;
        }
        if text == "---" {
            head = Some(Head::Of(Section::Critical));
            continue;
        }
        if let Some(heading) = heading(text) {
            head = Head::of(heading);
            headed = true;
            continue;
        }
        // The mark and its sentence come before the first heading.
        if !headed && text.starts_with(SUMMARY_MARK) {
            continue;
        }
        let bullet = text
            .strip_prefix(['-', '*', '•'])
            .and_then(|rest| rest.strip_prefix(' '));
        let (section, text) = section_of(head, bullet.unwrap_or(text).trim());
        match (bullet, lines.last_mut()) {
            // Without the limit on bytes, a long indented block would become one endless line.
            (None, Some((last, before)))
                if *last == section && line.starts_with("  ") && before.len() < 2000 =>
            {
                before.push(' ');
                before.push_str(text);
            }
            _ => lines.push((section, text.to_owned())),
        }
    }
    // If a model has nothing to say under a heading, it often writes such a placeholder.
    lines.retain(|(_, text)| {
        !matches!(
            text.to_lowercase()
                .trim_matches(['(', ')', '.', '[', ']', '（', '）', '。']),
            "" | "none" | "n/a" | "无" | "暂无"
        )
    });
    lines
}

/// Returns the section of a line under a heading, and the line without its check box. A checked
/// item is done, and an open one is not, whatever the heading says.
fn section_of(head: Option<Head>, line: &str) -> (Section, &str) {
    let checked = ["[x] ", "[X] "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark));
    let open = line.strip_prefix("[ ] ");
    let text = checked.or(open).unwrap_or(line).trim();
    let section = match head {
        None => Section::Critical,
        Some(Head::Progress | Head::Of(Section::NextSteps)) if checked.is_some() => Section::Done,
        Some(Head::Progress | Head::Of(Section::Done)) if open.is_some() => Section::InProgress,
        // Directly under the progress heading, a line about ongoing work is not done.
        Some(Head::Progress) if goes_on(text) => Section::InProgress,
        Some(Head::Progress) => Section::Done,
        Some(Head::Of(section)) => section,
    };
    (section, text)
}

/// Whether a line about progress says that the work goes on, such as one that begins with a word in
/// "-ing".
fn goes_on(line: &str) -> bool {
    let lower = line.to_lowercase();
    let first = lower
        .split(|c: char| !c.is_alphabetic())
        .next()
        .unwrap_or_default();
    first.len() > 5 && first.ends_with("ing")
        || ["in progress", "ongoing", "not yet", "todo", "remains"]
            .iter()
            .chain(&["进行中", "正在", "尚未", "还没", "未完成", "待"])
            .any(|word| lower.contains(word))
}

/// Returns the words of a heading: `## Goal`, `**Goal**` or `**Goal:**`. A bold line counts only if
/// its words name a section.
pub(crate) fn heading(line: &str) -> Option<&str> {
    if line.starts_with('#') {
        return Some(line.trim_start_matches('#').trim());
    }
    let bold = line
        .strip_prefix("**")?
        .trim_end_matches([':', '：'])
        .strip_suffix("**")?;
    let bold = bold.trim_end_matches([':', '：']);
    // Unlike a line with `#`, a bold line is often just emphasis.
    Head::of(bold).is_some().then_some(bold)
}

#[cfg(test)]
mod tests;

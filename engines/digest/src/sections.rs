//! The headings of a summary, and parsing any summary back into sections.

use contexture_engine_api::{SUMMARY_END_MARK, SUMMARY_MARK};

/// A section of a summary, in the order of the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Goal,
    Constraints,
    Done,
    InProgress,
    Blocked,
    Decisions,
    Files,
    NextSteps,
    Critical,
}

impl Section {
    /// Its heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Goal => "## Goal",
            Self::Constraints => "## Constraints & Preferences",
            Self::Done => "### Done",
            Self::InProgress => "### In Progress",
            Self::Blocked => "### Blocked",
            Self::Decisions => "## Key Decisions",
            Self::Files => "## Relevant Files",
            Self::NextSteps => "## Next Steps",
            Self::Critical => "## Critical Context",
        }
    }

    /// Whether it is a subsection of `## Progress`.
    pub(crate) fn is_progress(self) -> bool {
        matches!(self, Self::Done | Self::InProgress | Self::Blocked)
    }

    /// The section that a heading means; models vary the words.
    fn of_heading(heading: &str) -> Option<Self> {
        let heading = heading.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| heading.contains(word));
        if has(&["goal", "objective", "目标"]) {
            Some(Self::Goal)
        } else if has(&["constraint", "preference", "约束"]) {
            Some(Self::Constraints)
        } else if has(&["in progress", "current work", "进行中"]) {
            Some(Self::InProgress)
        } else if has(&["blocked", "blocker", "阻塞"]) {
            Some(Self::Blocked)
        } else if has(&["done", "completed", "progress", "完成"]) {
            Some(Self::Done)
        } else if has(&["decision", "决定", "决策"]) {
            Some(Self::Decisions)
        } else if has(&["file", "文件"]) {
            Some(Self::Files)
        } else if has(&["next step", "下一步"]) {
            Some(Self::NextSteps)
        } else {
            None
        }
    }
}

/// The lines of a summary with their sections. Its mark, headings and list marks are removed, continuation
/// lines are joined, and text under no known heading is critical context.
pub(crate) fn parse(summary: &str) -> Vec<(Section, String)> {
    let mut lines: Vec<(Section, String)> = Vec::new();
    let mut section = Section::Critical;
    let mut headed = false;
    for line in summary.lines() {
        let line = line
            .trim_end()
            .trim_end_matches(SUMMARY_END_MARK)
            .trim_end();
        let text = line.trim_start();
        if text.is_empty() || text == "---" {
            continue;
        }
        if let Some(heading) = heading(text) {
            section = Section::of_heading(heading).unwrap_or(Section::Critical);
            headed = true;
            continue;
        }
        // The sentence of the mark comes before the first heading.
        if !headed && text.starts_with(SUMMARY_MARK) {
            continue;
        }
        let bullet = text
            .strip_prefix(['-', '*', '•'])
            .and_then(|rest| rest.strip_prefix(' '));
        match (bullet, lines.last_mut()) {
            (None, Some((last, before)))
                if *last == section && line.starts_with("  ") && before.len() < 2000 =>
            {
                before.push(' ');
                before.push_str(text);
            }
            _ => lines.push((section, bullet.unwrap_or(text).trim().to_owned())),
        }
    }
    lines.retain(|(_, text)| {
        !matches!(
            text.to_lowercase().trim_matches(['(', ')', '.', '[', ']']),
            "" | "none" | "n/a"
        )
    });
    lines
}

/// The words of a heading: `## Goal`, `**Goal**`, `**Goal:**`.
fn heading(line: &str) -> Option<&str> {
    if line.starts_with('#') {
        return Some(line.trim_start_matches('#').trim());
    }
    let bold = line
        .strip_prefix("**")?
        .trim_end_matches(':')
        .strip_suffix("**")?;
    let bold = bold.trim_end_matches(':');
    Section::of_heading(bold).is_some().then_some(bold)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_models_summary_is_read() {
        let summary = "[CONTEXT COMPACTION] Earlier turns were compacted.\n\n## Goal\nShip it\n\n## Progress\n### Done\n- a\n  more of a\n* b\n### In Progress\n- c\n**Key Decisions:**\n- d\n## Next Steps\n(none)\n## Odd\ne\n[END OF CONTEXT COMPACTION]";
        let expected = [
            (Section::Goal, "Ship it"),
            (Section::Done, "a more of a"),
            (Section::Done, "b"),
            (Section::InProgress, "c"),
            (Section::Decisions, "d"),
            (Section::Critical, "e"),
        ];
        let parsed = parse(summary);
        let parsed: Vec<_> = parsed
            .iter()
            .map(|(section, text)| (*section, text.as_str()))
            .collect();
        assert_eq!(parsed, expected);
    }
}

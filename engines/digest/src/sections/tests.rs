#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn parsed(summary: &str) -> Vec<(Section, String)> {
    sections(summary)
}

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
    let parsed = parsed(summary);
    let parsed: Vec<_> = parsed
        .iter()
        .map(|(section, text)| (*section, text.as_str()))
        .collect();
    assert_eq!(parsed, expected);
}

#[test]
fn what_is_not_done_is_never_read_as_done() {
    for heading in [
        "### In Progress",
        "## Not done",
        "## Undone",
        "## Unfinished work",
        "## Incomplete",
        "## To Be Done",
        "## TODO",
        "## Remaining Work",
        "## Pending Tasks",
        "## 7. Open Tasks",
        "## 进行中",
        "## 未完成",
        "### 待完成",
        "## 尚未完成的工作",
        "## 待办事项",
        "**正在进行：**",
    ] {
        let found = parsed(&format!("## Done\n- a\n{heading}\n- b"));
        assert_eq!(found[0].0, Section::Done);
        let open = [Section::InProgress, Section::NextSteps];
        assert!(open.contains(&found[1].0), "{heading}: {found:?}");
    }
    let progress =
        parsed("## Progress\n- Created main.py\n- Fixing 2 tests\n- [ ] docs\n- [x] setup\n");
    let sections: Vec<_> = progress.iter().map(|(section, _)| *section).collect();
    let (done, open) = (Section::Done, Section::InProgress);
    assert_eq!(sections, [done, open, open, done], "{progress:?}");
}

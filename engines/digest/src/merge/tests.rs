use proptest::prelude::*;

use super::*;

#[test]
fn a_heading_that_stands_twice_stands_once() {
    let twice = "intro\n## Progress\n### Done\n- a\n\n## Goal\n- g\n## Progress\n### Done\n- a\n- b\n### Blocked\n- c";
    let once = "intro\n\n## Progress\n### Done\n- a\n- b\n\n## Goal\n- g\n\n### Blocked\n- c";
    assert_eq!(merge(twice, ""), once);
}

#[test]
fn lines_go_under_the_headings_that_mean_the_same() {
    let notes = "## 目标\n- 修好登录\n\n## 进展\n### 进行中\n- 改 login.rs\n\n## 下一步\n- 写文档";
    let more =
        "## Progress\n### Done\n- `make` → ok\n### In Progress\n- x\n\n## Critical Context\n- y\n";
    assert_eq!(
        merge(notes, more),
        "## 目标\n- 修好登录\n\n## 进展\n### 已完成\n- `make` → ok\n\n### 进行中\n- 改 login.rs\n- x\n\n\
             ## 下一步\n- 写文档\n\n## 关键信息\n- y"
    );
    assert_eq!(
        merge("", more),
        more.trim_end().replace("ok\n###", "ok\n\n###")
    );
    let code = "## Goal\n```\n# not a heading\n```";
    assert_eq!(merge(code, "## Goal\n- a\n"), format!("{code}\n- a"));
}

proptest! {
    #[test]
    fn no_line_is_lost_and_no_heading_stands_twice(
        notes in "((## Goal|## Progress|### Done|### In Progress|## 下一步|## Odd|- [a-z]{1,3}|  [a-z]{1,2}|)\n){0,12}",
        more in "((## Goal|## Progress|### Done|### Blocked|## Next Steps|- [a-z]{1,3})\n){0,8}",
    ) {
        let merged = merge(&notes, &more);
        let is_text = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        for line in notes.lines().chain(more.lines()).filter(is_text) {
            prop_assert!(merged.lines().any(|kept| kept == line), "{line:?} in {merged:?}");
        }
        if merged != notes {
            for title in ["## Goal", "## Progress", "### Done", "## 下一步", "## Next Steps"] {
                let count = merged.lines().filter(|line| *line == title).count();
                prop_assert!(count <= 1, "{title} in {merged:?}");
            }
        }
    }
}

//! Shows a change of a text as a diff, with three lines around each change.
//!
//! [`diff`] returns what `setup` shows before it asks. The diff is for people and not for `patch`:
//! between two pieces stands `@@` without line numbers, and a file that does not exist is called so
//! in the heading.

use similar::TextDiff;

/// The number of unchanged lines around a change.
const AROUND: usize = 3;

/// Returns the diff of a file as text. The headings are the file's name; a file that does not exist
/// has no lines. Empty if nothing changes.
pub(super) fn diff(name: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let heading = |text: Option<&str>| match text {
        Some(_) => name,
        None => "(no file)",
    };
    let mut text = format!("--- {}\n+++ {}\n", heading(before), heading(after));
    let lines = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    for piece in lines.grouped_ops(AROUND) {
        // If the change begins at the first line, no mark is needed.
        if piece
            .first()
            .is_some_and(|first| first.old_range().start + first.new_range().start > 0)
        {
            text.push_str("@@\n");
        }
        for change in piece.iter().flat_map(|part| lines.iter_changes(part)) {
            let line = change.value().trim_end_matches(['\n', '\r']);
            text.push_str(&format!("{}{line}\n", change.tag()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_three_lines_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let after = "1\n2\n3\n4\n5\nnew\n6\n7\n8\n9\n";
        assert_eq!(
            diff("f", Some(before), Some(after)),
            "--- f\n+++ f\n@@\n 3\n 4\n 5\n+new\n 6\n 7\n 8\n"
        );
        assert_eq!(diff("f", None, Some("a\n")), "--- (no file)\n+++ f\n+a\n");
        assert_eq!(
            diff("f", Some("a\nb\n"), None),
            "--- f\n+++ (no file)\n-a\n-b\n"
        );
        assert_eq!(diff("f", Some("a"), Some("a")), "");
    }

    #[test]
    fn two_changes_are_two_pieces() {
        let before: String = (0..30).map(|at| format!("{at}\n")).collect();
        let after = before.replace("3\n4\n", "4\n").replace("25\n", "x\n");
        let shown = diff("f", Some(&before), Some(&after));
        assert!(
            shown.contains("-3\n") && shown.contains("-25\n+x\n"),
            "{shown}"
        );
        assert!(!shown.contains(" 15\n"), "{shown}");
    }
}

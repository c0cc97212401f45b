//! Shows a change of a text as a diff, with three lines around each change.
//!
//! [`diff`] returns what `setup` shows before it asks. The diff is for people and not for `patch`:
//! between two pieces stands `@@` without line numbers, and a file that does not exist is called so
//! in the heading.
//!
//! The lines are compared by their longest common subsequence, after equal lines at both ends are
//! set aside. Settings are short, so the comparison takes no time. If the part that differs is very
//! long, it is shown as removed and added.

/// The number of unchanged lines around a change.
const AROUND: usize = 3;
/// The most lines that are compared with each other. A longer change is shown as removed and added.
/// The table of a comparison has a cell of 8 bytes for each pair of lines, which is 32 MB at this
/// limit.
const COMPARED: usize = 2_000;

/// A line of a diff.
#[derive(Clone, Copy, PartialEq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Returns the diff of a file as text. The headings are the file's name; a file that does not exist
/// has no lines. Empty if nothing changes.
pub(super) fn diff(name: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let old = before.unwrap_or_default();
    let new = after.unwrap_or_default();
    let lines = compare(&split(old), &split(new));
    let heading = |text: Option<&str>| match text {
        Some(_) => name.to_owned(),
        None => "(no file)".to_owned(),
    };
    let mut text = format!("--- {}\n+++ {}\n", heading(before), heading(after));
    let is_near = |at: usize| {
        let range = at.saturating_sub(AROUND)..(at + AROUND + 1).min(lines.len());
        lines[range]
            .iter()
            .any(|line| !matches!(line, Line::Same(_)))
    };
    // If the change begins at the first line, no mark is needed.
    let mut was_near = true;
    for (at, line) in lines.iter().enumerate() {
        let near = is_near(at);
        if near {
            if !was_near {
                text.push_str("@@\n");
            }
            let (sign, line) = match line {
                Line::Same(line) => (' ', line),
                Line::Removed(line) => ('-', line),
                Line::Added(line) => ('+', line),
            };
            text.push_str(&format!("{sign}{}\n", line.trim_end_matches('\r')));
        }
        was_near = near;
    }
    text
}

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n')
        .map(|line| line.strip_suffix('\n').unwrap_or(line))
        .collect()
}

/// Compares two lists of lines by their longest common subsequence.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let pairs = || old.iter().zip(new);
    let head = pairs().take_while(|(old, new)| old == new).count();
    // A line must not count for both ends. If a line is repeated, the two would overlap.
    let rest = old.len().min(new.len()) - head;
    let ends = old.iter().rev().zip(new.iter().rev());
    let tail = ends.take(rest).take_while(|(old, new)| old == new).count();
    let (left, right) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut lines: Vec<Line<'a>> = old[..head].iter().map(|line| Line::Same(line)).collect();
    if left.len() > COMPARED || right.len() > COMPARED {
        lines.extend(left.iter().map(|line| Line::Removed(line)));
        lines.extend(right.iter().map(|line| Line::Added(line)));
    } else {
        // The length of the longest common subsequence of the lines from here on.
        let mut longest = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
        for l in (0..left.len()).rev() {
            for r in (0..right.len()).rev() {
                longest[l][r] = match left[l] == right[r] {
                    true => longest[l + 1][r + 1] + 1,
                    false => longest[l + 1][r].max(longest[l][r + 1]),
                };
            }
        }
        let (mut l, mut r) = (0, 0);
        while l < left.len() || r < right.len() {
            if l < left.len() && r < right.len() && left[l] == right[r] {
                lines.push(Line::Same(left[l]));
                (l, r) = (l + 1, r + 1);
            } else if r == right.len() || (l < left.len() && longest[l + 1][r] >= longest[l][r + 1])
            {
                lines.push(Line::Removed(left[l]));
                l += 1;
            } else {
                lines.push(Line::Added(right[r]));
                r += 1;
            }
        }
    }
    lines.extend(old[old.len() - tail..].iter().map(|line| Line::Same(line)));
    lines
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

//! Rules that are declared in a fenced block of `constraints`, one in each line.
//!
//! The block says by itself that its lines are rules, so nothing is guessed. It is the format of
//! [constraintguard](https://github.com/abhid1234/constraintguard), whose scorer looks for the same
//! lines in the compacted conversation:
//!
//! ````text
//! ```constraints
//! must [no-force-push]: Never force-push to the main branch.
//! should: Explain a term before you use it.
//! ```
//! ````

/// The lines between which the rules stand.
pub(super) const OPEN: &str = "```constraints";
pub(super) const CLOSE: &str = "```";

/// Whether a line opens a block of declared rules.
pub(super) fn opens(line: &str) -> bool {
    let line = line.trim();
    let info = line.trim_start_matches(['`', '~']);
    line.len() - info.len() >= 3 && info.trim().eq_ignore_ascii_case("constraints")
}

/// Whether a line declares a rule: `must: text`, or `should [name]: text`.
pub(super) fn is_declared(line: &str) -> bool {
    let severity = line.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (severity, rest) = line.split_at(severity);
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .map_or("", |(_, rest)| rest.trim_start()),
        None => rest,
    };
    let is_severity = ["must", "should"]
        .iter()
        .any(|word| severity.eq_ignore_ascii_case(word));
    is_severity
        && rest
            .strip_prefix(':')
            .is_some_and(|text| !text.trim().is_empty())
}

//! The names of the tools, by which their calls and results are recognised in a conversation. A
//! search leaves these out, because it would find what it answered before.

/// The names of the tools, as the model calls them.
pub(crate) const NAMES: [&str; 8] = [
    "lcm_grep", "lcm_expand", "lcm_expand_query", "lcm_read", "lcm_describe", "lcm_recent",
    "lcm_status", "lcm_doctor",
];

/// Whether a name is that of one of these tools. The name of the server that provides the tool may
/// stand before it, as in `mcp__memory__lcm_grep`.
pub(crate) fn is_own(name: &str) -> bool {
    let own = name.rfind("lcm_").and_then(|at| name.get(at..));
    let is_alone = |own: &str| {
        let before = name[..name.len() - own.len()].chars().next_back();
        before.is_none_or(|c| !c.is_ascii_alphanumeric())
    };
    own.is_some_and(|own| NAMES.contains(&own) && is_alone(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_tools_are_known_by_their_names() {
        for own in [
            "lcm_grep",
            "mcp__contexture__lcm_read",
            "contexture.lcm_recent",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in ["grep", "xlcm_grep", "lcm_grep_all", "lcm_", ""] {
            assert!(!is_own(other), "{other}");
        }
    }
}

//! The rule for engine names, and the name of the built-in engine.

/// The name of the built-in engine, which is linked into the host and therefore available even if
/// no plugin is installed.
pub const BUILT_IN: &str = "compressor";

/// The rule that [`is_engine_name`] checks, in words. Error messages put it after "must be", so it
/// begins with an article and has no full stop.
pub const NAME_RULE: &str = "a name of lower-case letters, digits, `-` and `_` that begins with a \
                                    letter or digit, of at most 64 characters";

/// What an engine's name must look like, as a regular expression.
pub(super) const PATTERN: &str = "^[a-z0-9][a-z0-9_-]{0,63}$";

/// Returns whether `name` can be an engine's name. Such a name is one folder name on every system and never a path.
pub fn is_engine_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 64
        && name.bytes().next().is_some_and(is_word)
        && name
            .bytes()
            .all(|byte| is_word(byte) || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_plain_word() {
        for name in ["lcm", "keep-tail", "a_b", "9", &"a".repeat(64)] {
            assert!(is_engine_name(name), "{name}");
        }
        for name in [
            "",
            "-a",
            "_a",
            "A",
            "a/b",
            "..",
            "../../x",
            "a b",
            "é",
            "a.b",
            &"a".repeat(65),
        ] {
            assert!(!is_engine_name(name), "{name}");
        }
    }
}

//! Finds identifiers in a text: paths, hashes, and names in camel case or with underscores.
//!
//! The patterns share nothing with the scan by which digests are written. A measure of what a
//! summary keeps must not find only what the writer of the summary looks for.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// The patterns. The first group of a match is the identifier.
const PATTERNS: [&str; 6] = [
    // Paths from a root or a folder above, hidden files.
    r#"(?:^|[\s"'`(=:,\[<])((?:~|\.{1,2})?/(?:[\w.@+-]+/)*[\w.@+-]*[\w-]|\.[a-z][\w-]+(?:[./][\w-]+)*)"#,
    // Paths of three parts or more, and to a file with an extension.
    r"(?:^|[^\w.@+~/-])((?:[\w.@+-]+/){2,}[\w.@+-]*[\w-]|\b(?:[\w.@+-]+/)*[\w@+-]+\.(?:py|rs|jsx?|tsx?|md|jsonl?|txt|toml|ya?ml|sh|go|c|h|cpp|java|db|xml|html|css|sql|log|cfg|ini|lock|rst)\b)",
    r"\b([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b",
    // Hashes, if they have digits and letters.
    r"\b((?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{5,62})\b",
    // camelCase and PascalCase.
    r"\b([a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b",
    // snake_case and CONSTANTS, whatever underscores stand before, behind and within.
    r"\b(_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_*|_+[A-Za-z][A-Za-z0-9]+_*)\b",
];

static COMPILED: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = PATTERNS.iter();
    patterns
        .filter_map(|pattern| Regex::new(pattern).ok())
        .collect()
});

/// Returns the identifiers in a text that have 3 to 200 bytes.
pub fn identifiers(text: &str) -> BTreeSet<String> {
    let found = COMPILED
        .iter()
        .flat_map(|pattern| pattern.captures_iter(text));
    found
        .filter_map(|found| Some(found.get(1)?.as_str().to_owned()))
        .filter(|name| (3..=200).contains(&name.len()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_finds_its_kind() {
        assert_eq!(COMPILED.len(), PATTERNS.len());
        let text = "open ~/notes/a.md and src/lib.rs at 3f2a91c, \
                    id 0a1b2c3d-1111-2222-3333-0123456789ab, in parseLine or MAX_LINE: a plain word";
        let found = identifiers(text);
        let expected = [
            "0a1b2c3d",
            "0a1b2c3d-1111-2222-3333-0123456789ab",
            "3f2a91c",
            "MAX_LINE",
            "parseLine",
            "src/lib.rs",
            "~/notes/a.md",
        ];
        for name in expected {
            assert!(found.contains(name), "{name} in {found:?}");
        }
        assert!(!found.contains("plain"), "{found:?}");
    }
}

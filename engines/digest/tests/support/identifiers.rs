//! Identifiers as a count from outside finds them: by patterns that share nothing with the digest's scan.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// The group of a match is the identifier.
const PATTERNS: [&str; 6] = [
    // Paths from a root or a folder above, hidden files.
    r#"(?:^|[\s"'`(=:,\[<])((?:~|\.{1,2})?/(?:[\w.@+-]+/)*[\w.@+-]*[\w-]|\.[a-z][\w-]+(?:[./][\w-]+)*)"#,
    // Paths of three parts or more, and to a file with an extension.
    r"(?:^|[^\w.@+~/-])((?:[\w.@+-]+/){2,}[\w.@+-]*[\w-]|\b(?:[\w.@+-]+/)*[\w@+-]+\.(?:py|rs|jsx?|tsx?|md|jsonl?|txt|toml|ya?ml|sh|go|c|h|cpp|java|db|xml|html|css|sql|log|cfg|ini|lock|rst)\b)",
    r"\b([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b",
    // Hashes, where they hold digits and letters.
    r"\b((?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{5,62})\b",
    // camelCase and PascalCase.
    r"\b([a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b",
    // snake_case and CONSTANTS, whatever underscores stand before, behind and within.
    r"\b(_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_*|_+[A-Za-z][A-Za-z0-9]+_*)\b",
];

static READ: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = PATTERNS.iter();
    patterns
        .map(|pattern| Regex::new(pattern).unwrap())
        .collect()
});

/// The identifiers in a text, of 3 to 200 bytes.
pub(crate) fn identifiers(text: &str) -> BTreeSet<String> {
    let found = READ.iter().flat_map(|pattern| pattern.captures_iter(text));
    found
        .map(|found| found[1].to_owned())
        .filter(|name| (3..=200).contains(&name.len()))
        .collect()
}

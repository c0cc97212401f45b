//! Compares model names that providers, gateways and users spell differently.
//!
//! [`ModelName`] holds a name in a comparable form. [`ModelName::find_in`] looks it up in a
//! table of name beginnings, which is how prices, windows and encodings are found. It accepts
//! any prefix that a provider or gateway adds.
//!
//! Claude names come in more spellings than others, so [`ModelName::claude_version`] extracts
//! the version by itself. A name without a version counts as the newest model.

/// A model's name in a comparable form. `us.anthropic.claude-opus-4.5`,
/// `openrouter/anthropic/claude-opus-4-5:free` and `Claude-Opus-4-5@20251101` all name the same
/// model.
pub(super) struct ModelName {
    /// The name in lower case, otherwise unchanged.
    lower: String,
    /// The same, with a hyphen for every separator except `/` and `:`.
    hyphens: String,
}

impl ModelName {
    pub(super) fn new(model: &str) -> Self {
        let lower = model.trim().to_ascii_lowercase();
        let hyphens = lower
            .chars()
            .map(|c| {
                if matches!(c, '.' | '_' | '@' | ' ') {
                    '-'
                } else {
                    c
                }
            })
            .collect();
        Self { lower, hyphens }
    }

    /// The part after the last `/`, in lower case.
    pub(super) fn without_provider(&self) -> &str {
        self.lower.rsplit('/').next().unwrap_or_default()
    }

    /// Whether the name ends in `[1m]`, which requests a window of a million tokens.
    pub(super) fn asks_for_1m(&self) -> bool {
        self.lower.ends_with("[1m]")
    }

    pub(super) fn is_claude(&self) -> bool {
        self.lower.contains("claude")
    }

    /// The version of a Claude model as major and minor number. If the name states none, like
    /// `claude-latest`, the major number is the largest possible one. `None` for other models.
    pub(super) fn claude_version(&self) -> Option<(u32, u32)> {
        let at = self.hyphens.find("claude")?;
        let mut numbers = self.hyphens[at..]
            .split('-')
            .skip_while(|word| version_number(word).is_none())
            .map_while(version_number);
        let newest = (u32::MAX, 0);
        Some(
            numbers
                .next()
                .map_or(newest, |major| (major, numbers.next().unwrap_or(0))),
        )
    }

    /// Returns the value in `table` whose key is the longest one that the name begins with. A
    /// key must end at the end of a word, so `gpt-4` does not match `gpt-4o`. The name may
    /// begin after any separator, and the earliest match counts, so prefixes of providers do
    /// not matter.
    pub(super) fn find_in<'t, T>(&self, table: &'t [(&str, T)]) -> Option<&'t T> {
        let bytes = self.hyphens.as_bytes();
        (0..bytes.len())
            .filter(|&at| at == 0 || !bytes[at - 1].is_ascii_alphanumeric())
            .find_map(|at| longest_prefix(&bytes[at..], table))
    }
}

fn longest_prefix<'t, T>(name: &[u8], table: &'t [(&str, T)]) -> Option<&'t T> {
    table
        .iter()
        .filter(|(key, _)| {
            name.strip_prefix(key.as_bytes())
                .is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric))
        })
        .max_by_key(|(key, _)| key.len())
        .map(|(_, value)| value)
}

/// The number at the start of a word like `4`, `5:thinking` or `6[1m]`. `None` if there is none
/// or if it is part of a date.
fn version_number(word: &str) -> Option<u32> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let followed_by_letter = word[digits..].starts_with(|c: char| c.is_ascii_alphabetic());
    // A longer number is a date, and one with a letter, as in `4o`, is part of a name.
    if digits > 2 || followed_by_letter {
        return None;
    }
    word[..digits].parse().ok()
}

/// Returns the family and the version of a Claude model. `None` for other models, and for
/// Claude models whose name does not state the family.
pub fn claude(model: &str) -> Option<(&'static str, (u32, u32))> {
    let name = ModelName::new(model);
    let mut families = ["opus", "sonnet", "haiku"].into_iter();
    let family = families.find(|family| name.lower.contains(family))?;
    Some((family, name.claude_version()?))
}

/// Looks up a model in a table by the longest matching beginning of its name, in any provider's
/// spelling. `None` if nothing matches.
pub(crate) fn by_name_of_model<'t, T>(model: &str, table: &'t [(&str, T)]) -> Option<&'t T> {
    ModelName::new(model).find_in(table)
}

#[cfg(test)]
mod tests {
    use super::ModelName;

    #[test]
    fn reads_the_version_of_a_claude_model() {
        let version = |name| ModelName::new(name).claude_version();
        assert_eq!(version("claude-opus-4-5-20251101"), Some((4, 5)));
        assert_eq!(version("us.anthropic.claude-opus-4-6-v1:0"), Some((4, 6)));
        assert_eq!(version("anthropic/claude-opus-4.7"), Some((4, 7)));
        assert_eq!(version("claude-sonnet-4@20250514"), Some((4, 0)));
        assert_eq!(version("claude-3-5-sonnet-latest"), Some((3, 5)));
        assert_eq!(version("claude-2.1"), Some((2, 1)));
        assert_eq!(version("claude-sonnet-5"), Some((5, 0)));
        assert_eq!(version("claude-opus-4-8[1m]"), Some((4, 8)));
        assert!(version("claude-latest") > Some((9, 9)));
        assert_eq!(version("gpt-4"), None);
    }

    #[test]
    fn finds_the_longest_key_that_ends_at_a_word() {
        let table = [("gpt-4", 1), ("gpt-4-1", 2), ("gpt-4-1-mini", 3), ("o1", 4)];
        let find = |name| ModelName::new(name).find_in(&table).copied();
        assert_eq!(find("gpt-4"), Some(1));
        assert_eq!(find("gpt-4-1106-preview"), Some(1));
        assert_eq!(find("GPT-4.1-2025-04-14"), Some(2));
        assert_eq!(find("azure/openai/gpt-4.1-mini:free"), Some(3));
        assert_eq!(find("gpt-4o"), None);
        assert_eq!(find("o11"), None);
        assert_eq!(find("foo1"), None);
        assert_eq!(find(""), None);
    }
}

//! How large a prompt may get before it is compacted, and for which model.
//!
//! [`Threshold`] is a share of the window or a number of tokens. `compression.threshold` is one, and
//! `compression.models` has one for each pattern of model names. [`for_model`] finds the entry
//! for a model. The most specific pattern that matches counts, so the order of the lines
//! in the file does not matter: a YAML mapping has none.
//!
//! That a threshold fits its window is checked in `load` as far as the file tells the window, and by
//! the session for the window of the model at hand.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The smallest threshold in tokens.
pub(super) const LEAST_TOKENS: f64 = 1_000.0;
/// What a threshold may be, in words that follow "must be".
pub(crate) const RULE: &str = "a share of the window above 0 and up to 1, or a whole number of at least 1000 tokens such \
    as `120k`";

/// The size of a prompt at which a compaction is due. A number up to 1 is a share of the window, and
/// a larger one is a number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "f64", into = "serde_json::Number")]
pub enum Threshold {
    /// A share of the window, above 0 and up to 1.
    Share(f64),
    /// A number of tokens.
    Tokens(u64),
}

impl From<f64> for Threshold {
    fn from(number: f64) -> Self {
        match number <= 1.0 {
            true => Self::Share(number),
            false => Self::Tokens(number as u64),
        }
    }
}

impl From<Threshold> for serde_json::Number {
    fn from(threshold: Threshold) -> Self {
        match threshold {
            // The schema allows no number that JSON does not have.
            Threshold::Share(share) => Self::from_f64(share).unwrap_or_else(|| 0.into()),
            Threshold::Tokens(tokens) => tokens.into(),
        }
    }
}

impl Threshold {
    /// Whether the number is a threshold: a share above 0 and up to 1, or a whole number of at least
    /// 1,000 tokens. A smaller one is meant otherwise, such as `50` for 50 percent.
    pub(crate) fn allows(number: f64) -> bool {
        // Above 1e15, not every whole number is a float.
        let is_tokens = (LEAST_TOKENS..1e15).contains(&number) && number.fract() == 0.0;
        is_tokens || number > 0.0 && number <= 1.0
    }

    /// Returns the threshold in tokens for a window of this many. None if it is a share and the
    /// window is not known, which is 0.
    pub fn tokens(self, context_length: u64) -> Option<u64> {
        match self {
            Self::Share(_) if context_length == 0 => None,
            Self::Share(share) => Some((context_length as f64 * share).round() as u64),
            Self::Tokens(tokens) => Some(tokens),
        }
    }
}

/// `compression.models.*`: settings of the models whose names match the pattern.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelCompression {
    /// The size of the prompt from which any engine compacts with this model, in place of the
    /// engine's own setting: a share of the window, or a number of tokens such as `120k`.
    #[schemars(with = "Option<f64>", extend("format" = "threshold"))]
    pub threshold: Option<Threshold>,
    /// The model's context window, in tokens; none if it is known by the model's name. If a program
    /// states a smaller one, that counts.
    #[schemars(range(min = 1))]
    pub context_length: Option<u64>,
}

/// Returns the entry for the model with this name, and its pattern. See
/// [`Compression::for_model`](crate::Compression::for_model).
pub(crate) fn for_model<'m, T>(
    models: &'m BTreeMap<String, T>,
    model: &str,
) -> Option<(&'m str, &'m T)> {
    let model = model.to_lowercase();
    let short = model.rsplit('/').next().unwrap_or(&model);
    let matching = models.iter().filter(|(pattern, _)| {
        let pattern = pattern.to_lowercase();
        matches(&pattern, &model) || !pattern.contains('/') && matches(&pattern, short)
    });
    let best = matching.min_by_key(|(pattern, _)| {
        let wildcards = pattern.chars().filter(|c| is_wildcard(*c)).count();
        (Reverse(pattern.chars().count() - wildcards), wildcards)
    });
    best.map(|(pattern, entry)| (pattern.as_str(), entry))
}

/// Whether a pattern may stand for other names than itself.
pub(crate) fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(is_wildcard)
}

fn is_wildcard(c: char) -> bool {
    matches!(c, '*' | '?')
}

/// Whether the whole name matches the pattern. Its time is at most the product of both lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of_name) = (0, 0);
    // The last `*`, and how much of the name it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while of_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, of_name));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[of_name] => {
                at += 1;
                of_name += 1;
            }
            _ => {
                let Some((after, upto)) = star else {
                    return false;
                };
                star = Some((after, upto + 1));
                (at, of_name) = (after + 1, upto + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests;

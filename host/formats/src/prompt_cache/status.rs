//! Decides whether requests are marked for the prompt cache, and knows what caching costs.
//!
//! [`decide`] looks at the model, the provider and the base URL, and returns a [`CacheStatus`].
//! Its text is the status line that commands print. Only Claude models need markers, and only
//! Anthropic and OpenRouter are known to accept them.
//!
//! [`prices`] and [`least_prefix`] hold what the providers' documentation says about the cost
//! and the minimum length of a cached prompt. They apply to all models, because OpenAI caches
//! prompts without markers.

use contexture_engine_api::CachePrices;

use super::{CacheProvider, CacheTtl, Ttl};
use crate::tokens::by_name_of_model;

/// Whether requests are marked, and why not. [`Display`](std::fmt::Display) gives the status line
/// that commands print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheStatus {
    /// Requests are marked, because the model is a Claude model and the provider accepts markers.
    Enabled {
        /// The provider that accepts the markers.
        provider: CacheProvider,
        /// How long the provider keeps the marked prefix after its last use.
        ttl: CacheTtl,
    },
    /// Requests are not marked, for the given reason.
    Disabled(DisabledReason),
}

/// Why requests are not marked. Its text follows in parentheses after "DISABLED" in the status
/// line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisabledReason {
    /// The configuration says `prompt_caching.enabled: false`.
    SwitchedOff,
    /// This command sets markers only if asked to, and it was not.
    NotAskedFor,
    /// The model, whose name this is, is not a Claude model. The name is empty if the model is
    /// not known.
    NotClaude(String),
    /// The provider is not known to accept markers. This is its name or address, and empty if
    /// neither is known.
    Provider(String),
}

impl std::fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("💾 Prompt caching: ")?;
        match self {
            Self::Enabled { provider, ttl } => {
                let provider = match provider {
                    CacheProvider::Anthropic => "Anthropic",
                    CacheProvider::OpenRouter => "OpenRouter",
                };
                write!(f, "ENABLED (Claude via {provider}, {ttl} TTL)")
            }
            Self::Disabled(reason) => write!(f, "DISABLED ({reason})"),
        }
    }
}

impl std::fmt::Display for DisabledReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SwitchedOff => f.write_str("prompt_caching.enabled is false"),
            Self::NotAskedFor => f.write_str(
                "the output carries no markers: --cache-markers or prompt_caching.enabled adds them",
            ),
            Self::NotClaude(model) if model.is_empty() => f.write_str("the model is not known"),
            Self::NotClaude(model) => write!(f, "{model} is not a Claude model"),
            Self::Provider(provider) if provider.is_empty() => {
                f.write_str("the provider is not known")
            }
            Self::Provider(provider) => write!(
                f,
                "{provider} is neither Anthropic nor OpenRouter, which take the markers"
            ),
        }
    }
}

/// Decides whether requests are marked. They are for Claude models at Anthropic and at
/// OpenRouter, unless `enabled` is false. A Claude model is recognised by its name. If the host
/// of `base_url` belongs to one of the two providers, it decides. Otherwise the provider's name
/// does, so a proxy in front of Anthropic's API counts as Anthropic.
///
/// ```
/// use contexture_formats::prompt_cache::{CacheTtl, decide};
///
/// let status = decide("anthropic/claude-sonnet-4.5", Some("openrouter"), None, true, CacheTtl::default());
/// assert_eq!(
///     status.to_string(),
///     "💾 Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)"
/// );
/// let status = decide("gpt-5", Some("openai"), None, true, CacheTtl::default());
/// assert_eq!(
///     status.to_string(),
///     "💾 Prompt caching: DISABLED (gpt-5 is not a Claude model)"
/// );
/// ```
pub fn decide(
    model: &str,
    provider: Option<&str>,
    base_url: Option<&str>,
    enabled: bool,
    ttl: CacheTtl,
) -> CacheStatus {
    if !enabled {
        return CacheStatus::Disabled(DisabledReason::SwitchedOff);
    }
    if !is_claude(model) {
        return CacheStatus::Disabled(DisabledReason::NotClaude(model.to_owned()));
    }
    // The address is where requests really go, so it takes precedence over a name.
    match base_url
        .and_then(provider_at)
        .or_else(|| provider.and_then(by_name))
    {
        Some(provider) => CacheStatus::Enabled { provider, ttl },
        None => {
            let named = provider.or(base_url).unwrap_or_default().to_owned();
            CacheStatus::Disabled(DisabledReason::Provider(named))
        }
    }
}

fn is_claude(model: &str) -> bool {
    model.to_ascii_lowercase().contains("claude")
}

/// Returns the prices of the prompt cache of this model's provider, in percent of plain input
/// (platform.claude.com and platform.openai.com, "Prompt caching"). A read costs a tenth. A
/// write costs as much as plain input, except for Claude: a quarter more for five minutes, and
/// twice as much for an hour.
pub fn prices(model: &str, ttl: Ttl) -> CachePrices {
    let write = match ttl {
        _ if !is_claude(model) => 100,
        Ttl::FiveMinutes => 125,
        Ttl::OneHour => 200,
    };
    CachePrices::new(10, write)
}

/// Returns the length of the shortest prefix that the provider caches for this model, in tokens
/// (platform.claude.com and platform.openai.com, "Prompt caching"). If a marked prefix is
/// shorter, the marker has no effect and causes no error.
pub fn least_prefix(model: &str) -> u64 {
    const LEAST: &[(&str, u64)] = &[
        ("claude-haiku-4-5", 4_096),
        ("claude-opus-4-5", 4_096),
        ("claude-opus-4-6", 4_096),
        ("claude-opus-4-7", 4_096),
        ("claude-opus-4-8", 4_096),
        ("claude-sonnet-4-6", 2_048),
        ("claude-3-haiku", 2_048),
        ("claude-3-5-haiku", 2_048),
    ];
    by_name_of_model(model, LEAST).copied().unwrap_or(1_024)
}

/// Returns the provider that the host of this base URL belongs to. `None` if that provider does
/// not accept cache markers, or if the URL is invalid.
pub fn provider_at(base_url: &str) -> Option<CacheProvider> {
    let url: http::Uri = base_url.parse().ok()?;
    let host = url.host()?.to_ascii_lowercase();
    let is_in = |domain: &str| {
        host.strip_suffix(domain)
            .is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
    };
    if is_in("anthropic.com") {
        Some(CacheProvider::Anthropic)
    } else if is_in("openrouter.ai") {
        Some(CacheProvider::OpenRouter)
    } else {
        None
    }
}

fn by_name(provider: &str) -> Option<CacheProvider> {
    match provider.to_ascii_lowercase().as_str() {
        "anthropic" => Some(CacheProvider::Anthropic),
        "openrouter" => Some(CacheProvider::OpenRouter),
        _ => None,
    }
}

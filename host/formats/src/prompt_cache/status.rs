//! Whether requests are marked, and the status line for it.

use contexture_engine_api::CachePrices;

use super::{CacheProvider, CacheTtl, Ttl};
use crate::tokens::by_name_of_model;

/// Whether requests are marked. Its text is the status line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheStatus {
    /// They are.
    Enabled {
        /// The provider that takes the markers.
        provider: CacheProvider,
        /// The lifetime of the marked prefix.
        ttl: CacheTtl,
    },
    /// They are not.
    Disabled(DisabledReason),
}

/// Why requests are not marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisabledReason {
    /// `prompt_caching.enabled: false`.
    SwitchedOff,
    /// Markers have to be asked for here, and were not.
    NotAskedFor,
    /// The model is not a Claude model. Holds its name.
    NotClaude(String),
    /// The provider is not known to take markers. Holds its name or address.
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
                "the output carries no markers: --cache-markers or prompt_caching.enabled puts them in",
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

/// Decides whether requests are marked: for Claude models, recognised by their name, at Anthropic and at
/// OpenRouter, unless `enabled` is false. The host of `base_url` decides if it is one of the two; otherwise
/// the provider's name does, so a proxy before Anthropic's API counts as Anthropic.
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

/// What the prompt cache of this model's provider costs: a read a tenth of plain input (platform.claude.com and
/// platform.openai.com, "Prompt caching"); a write as much as plain input, but for Claude a quarter more, and twice as
/// much for an hour.
pub fn prices(model: &str, ttl: Ttl) -> CachePrices {
    let write = match ttl {
        _ if !is_claude(model) => 100,
        Ttl::FiveMinutes => 125,
        Ttl::OneHour => 200,
    };
    CachePrices::new(10, write)
}

/// The shortest prefix that a provider caches, in tokens (platform.claude.com and platform.openai.com, "Prompt
/// caching"). Markers on less than that are no error, and do nothing.
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

/// The provider that this base URL's host belongs to, if that provider accepts cache markers.
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

//! What the providers publish of their models: what they take, what they cost, from what size on a prompt is cached.

/// Dollars for a million tokens.
pub(crate) struct Price {
    pub(crate) input: f64,
    pub(crate) output: f64,
}

/// The version of a Claude model, as `claude-opus-4-6` → ("opus", 406); of an older name, or none, nothing.
fn version(model: &str) -> Option<(&str, u32)> {
    let rest = &model[model.find("claude-")? + 7..];
    let mut words = rest.split(['-', '.', '[', '@', ':']);
    let family = words.next()?;
    let major: u32 = words.next()?.parse().ok()?;
    // What follows may be a date.
    let minor = words
        .next()
        .and_then(|word| word.parse().ok())
        .filter(|minor| *minor < 100);
    Some((family, major * 100 + minor.unwrap_or(0)))
}

/// <https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages>: from Opus 4.8 on, but for
/// Sonnet 5.
pub(crate) fn takes_system_messages(model: &str) -> bool {
    version(model).is_some_and(|(family, version)| match family {
        "opus" => version >= 408,
        "sonnet" | "haiku" => version > 500,
        _ => true,
    })
}

/// <https://platform.claude.com/docs/en/build-with-claude/working-with-messages>: none from Opus 4.6 on.
pub(crate) fn takes_prefill(model: &str) -> bool {
    version(model).is_none_or(|(_, version)| version < 406)
}

/// <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>: the smallest prompt that is cached, in tokens.
/// OpenAI: <https://platform.openai.com/docs/guides/prompt-caching>.
pub(crate) fn smallest_cacheable(model: &str) -> u64 {
    match version(model) {
        Some(("opus" | "fable" | "mythos", 500..)) => 512,
        Some(("opus", 407)) => 2048,
        Some(("opus", 405 | 406)) | Some(("haiku", 405)) => 4096,
        _ => 1024,
    }
}

/// <https://platform.claude.com/docs/en/about-claude/pricing>, <https://platform.openai.com/docs/pricing>,
/// <https://ai.google.dev/gemini-api/docs/pricing>.
pub(crate) fn price(model: &str) -> Price {
    let (input, output) = match version(model) {
        Some(("opus", 400 | 401)) => (15.0, 75.0),
        Some(("opus", _)) => (5.0, 25.0),
        Some(("haiku", _)) => (1.0, 5.0),
        None if model.starts_with("gpt") || model.starts_with("gemini") => (1.25, 10.0),
        _ => (3.0, 15.0),
    };
    Price { input, output }
}

/// <https://ai.google.dev/gemini-api/docs/function-calling>: from Gemini 3 on, calls have ids, and their signatures have to
/// come back.
pub(crate) fn names_calls(model: &str) -> bool {
    model.starts_with("gemini-3")
}

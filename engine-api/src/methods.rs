//! The names by which host and engine call each other.
//!
//! The [`protocol`](crate::protocol) carries these names, and a host lists them for engines that
//! ask what it supports.

use crate::compaction::Entry;

methods! {
    /// The methods of an engine. The names are part of the protocol, so they never change.
    pub enum EngineMethod {
        ShouldCompress = "should_compress",
        Compress = "compress",
        Observe = "observe",
        Follow = "follow",
        UpdateUsage = "update_usage",
        Prune = "prune_tool_results",
        Rewrite = "rewrite",
        Select = "select",
        Committed = "committed",
        Discarded = "discarded",
        MayCallTools = "may_call_tools",
        Tools = "tools",
        CallTool = "call_tool",
        WantsRestored = "wants_restored",
        TurnComplete = "turn_complete",
        Background = "background",
        BackgroundDone = "background_done",
        ModelChanged = "model_changed",
        Reset = "reset",
        End = "end",
        Status = "status",
    }
}

/// Whether a method of an engine is given messages. A language in which a call has parameters gets
/// them as the first one, even if there are none.
pub fn takes_messages(method: &str) -> bool {
    use EngineMethod as Method;
    let method = Method::called(method);
    matches!(
        method,
        Ok(Method::Compress
            | Method::Observe
            | Method::Prune
            | Method::Rewrite
            | Method::Select
            | Method::Background)
    )
}

methods! {
    /// The services of a host. The names are part of the protocol, so they never change.
    pub enum ServiceMethod {
        Supports = "supports",
        Model = "model",
        Complete = "complete",
        CompleteMany = "complete_many",
        CountTokens = "count_tokens",
        Log = "log",
        IsCancelled = "is_cancelled",
        NowMs = "now_ms",
        MayReadSession = "may_read_session",
        Transcript = "transcript",
        Artifact = "artifact",
        PutArtifact = "put_artifact",
        Artifacts = "artifacts",
    }
}

/// Returns all names that `services.supports` accepts in this version: engine methods, services and
/// entries.
pub(crate) fn features() -> impl Iterator<Item = &'static str> {
    // One list for all three kinds, because an engine asks for a name and not for a kind.
    let all = [EngineMethod::NAMES, ServiceMethod::NAMES, Entry::NAMES];
    all.into_iter().flatten().copied()
}

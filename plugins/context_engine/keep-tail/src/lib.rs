//! A small but complete context engine: it keeps the head and the tail of a conversation and puts a
//! digest in place of the middle. `contexture plugins new` begins an engine of your own with it.

use contexture_digest::{Budget, Digest};
use contexture_engine_api::{
    About, COMPACTION_NOTE, Compaction, CompressRequest, ContextEngine, Decision, EngineError,
    Entry, HostInfo, MessageView, OpenRequest, Outcome, Services, StandaloneEngine, WindowState,
    export_engine, safe_cut,
};
use schemars::{JsonSchema, schema_for};
use serde::Deserialize;

/// The settings under `context.engines.keep-tail`.
#[derive(Deserialize, JsonSchema)]
#[serde(default)]
struct Settings {
    /// Messages kept at the beginning
    keep_first: usize,
    /// Messages kept at the end
    #[schemars(range(min = 1))]
    keep_last: usize,
    /// The share of the window at which to compact
    #[schemars(range(min = 0.1, max = 0.95))]
    threshold: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keep_first: 2,
            keep_last: 20,
            threshold: 0.5,
        }
    }
}

struct KeepTail(Settings, Services);

impl StandaloneEngine for KeepTail {
    fn about(_host: &HostInfo) -> About {
        About::default().settings(Some(schema_for!(Settings).to_value()))
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self(request.settings()?, request.services.clone()))
    }
}

impl ContextEngine for KeepTail {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let tokens = window.best_prompt_tokens();
        let threshold = (window.context_length as f64 * self.0.threshold) as u64;
        let figures = format!("{tokens} tokens, threshold {threshold}");
        match tokens >= threshold {
            true => Decision::Yes(figures),
            false => Decision::No(figures),
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let (Self(settings, services), messages) = (self, request.messages);
        // No cut may part a tool call from its results.
        let head = safe_cut(messages, settings.keep_first);
        let tail = messages.len().saturating_sub(settings.keep_last);
        let tail = safe_cut(messages, tail).max(head);
        // The user's last words stay where they are.
        let words = messages.iter().rposition(MessageView::is_real_user);
        let words = words.filter(|at| (head..tail).contains(at));
        let (until, from) = words.map_or((tail, tail), |at| (at, at + 1));

        let keep = |message: &MessageView<'_>| Entry::Keep(message.id());
        let mut entries: Vec<Entry> = messages.iter().map(keep).collect();
        // From behind, so that what stands before keeps its place.
        for span in [from..tail, head..until] {
            let middle = &messages[span.clone()];
            let text = Digest::of(middle, None).render(Budget::chars(12_000));
            let tokens: u64 = middle.iter().map(MessageView::tokens).sum();
            // The host's marks around a summary and its note cost some 80 tokens.
            if services.count_tokens(&text) + 80 < tokens {
                let covers = middle.iter().map(MessageView::id).collect();
                entries.splice(span, [Entry::summary(text, covers)]);
            }
        }
        if entries.iter().all(|entry| matches!(entry, Entry::Keep(_))) {
            let reason = "what lies between head and tail is too short to be worth a summary";
            return Ok(Outcome::NothingToDo(reason.into()));
        }
        let note = Some(COMPACTION_NOTE.into());
        Ok(Outcome::Compacted(
            Compaction::new(entries).system_note(note),
        ))
    }
}

export_engine!("keep-tail", KeepTail);

#[cfg(test)]
contexture_testkit::conforms!(CONTEXTURE_ENGINE);

//! A small but complete context engine: it keeps the head and the tail of a conversation and puts a
//! digest in place of the middle. `contexture plugins new` begins an engine of your own with it.

use contexture_digest::{Budget, Digest};
use contexture_engine_api::{
    About, COMPACTION_NOTE, Compaction, CompressRequest, ContextEngine, Decision, EngineError,
    Entry, HostInfo, MessageView, OpenRequest, Outcome, Services, StandaloneEngine, WindowState,
    export_engine, in_flight, roomy, safe_cut, safe_cut_after,
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
        let (tokens, threshold) = (window.best_prompt_tokens(), self.threshold(window));
        let figures = format!("{tokens} tokens, threshold {threshold}");
        if tokens < threshold {
            return Decision::No(figures);
        }
        // Do not compact right after the last compaction, or at a loss.
        match window.may_compact(roomy(threshold)) {
            Decision::No(reason) => Decision::No(format!("{figures}; {reason}")),
            _ => Decision::Yes(figures),
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let (messages, window) = (request.messages, &request.order.window);
        let size = |view: &MessageView<'_>| view.tokens();
        let before = window.fixed_tokens + messages.iter().map(size).sum::<u64>();
        // The provider may count differently, so convert the threshold to the tokens of the messages.
        let scale = before as f64 / window.best_prompt_tokens().max(1) as f64;
        let most = roomy((self.threshold(window) as f64 * scale) as u64);

        // Keep as many of the last messages as leave enough room, or else as few as possible.
        let mut keep = self.0.keep_last;
        let (mut entries, mut after) = self.keeping(messages, keep);
        while window.fixed_tokens + after > most && keep > 1 {
            keep /= 2;
            (entries, after) = self.keeping(messages, keep);
        }
        if entries.iter().all(|entry| matches!(entry, Entry::Keep(_))) {
            let reason = "the text between head and tail is too short to be worth a summary";
            return Ok(Outcome::NothingToDo(reason.into()));
        }
        let makes_room = window.fixed_tokens + after <= most;
        if !makes_room && !request.order.force && !window.requires_compaction() {
            let reason = "what has to stay leaves less than a quarter of the threshold free";
            let until = window.until_required();
            return Ok(Outcome::Deferred(format!("{reason}; {until}")));
        }
        let note = Some(COMPACTION_NOTE.into());
        Ok(Outcome::Compacted(
            Compaction::new(entries).system_note(note),
        ))
    }
}

impl KeepTail {
    fn threshold(&self, window: &WindowState) -> u64 {
        (window.context_length as f64 * self.0.threshold) as u64
    }

    /// The window with this many of the last messages, and its tokens.
    fn keeping(&self, messages: &[MessageView<'_>], keep_last: usize) -> (Vec<Entry>, u64) {
        let Self(settings, services) = self;
        // No cut may part a tool call from its results.
        let head = safe_cut(messages, settings.keep_first);
        let tail = messages.len().saturating_sub(keep_last);
        let tail = in_flight(messages).map_or(tail, |calls| tail.min(calls));
        let tail = safe_cut(messages, tail).max(head);
        // The user's last words stay where they are, and whatever lies around them if a call's result comes after them.
        let words = messages.iter().rposition(MessageView::is_real_user);
        let words = words.filter(|at| (head..tail).contains(at));
        let (until, from) = words.map_or((tail, tail), |at| {
            (safe_cut(messages, at), safe_cut_after(messages, at + 1))
        });

        let keep = |message: &MessageView<'_>| Entry::Keep(message.id());
        let mut entries: Vec<Entry> = messages.iter().map(keep).collect();
        let mut after: u64 = messages.iter().map(MessageView::tokens).sum();
        // From behind, so that what stands before keeps its place.
        for span in [from..tail, head..until] {
            let middle = &messages[span.clone()];
            let text = Digest::of(middle, None).render(Budget::chars(12_000));
            let tokens: u64 = middle.iter().map(MessageView::tokens).sum();
            // The host's marks around a summary and its note cost some 80 tokens.
            let summary = services.count_tokens(&text) + 80;
            if summary < tokens {
                let covers = middle.iter().map(MessageView::id).collect();
                entries.splice(span, [Entry::summary(text, covers)]);
                after -= tokens - summary;
            }
        }
        (entries, after)
    }
}

export_engine!("keep-tail", KeepTail);

#[cfg(test)]
contexture_testkit::conforms!(CONTEXTURE_ENGINE);

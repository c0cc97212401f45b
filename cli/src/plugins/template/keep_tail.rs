//! A small but complete context engine: it keeps the head and the tail of a conversation and puts a
//! digest in place of the middle. `contexture plugins new` begins an engine of your own with it.
//!
//! Read `should_compress` and `compress` first, the two methods that every engine has. The first
//! says when a compaction is due, from the state of the window. The second proposes the new window.
//! It keeps fewer messages at the end if the window would otherwise stay too full, and it does
//! nothing if no summary would be shorter than the messages that it replaces.
//!
//! The settings are declared as a struct with a JSON Schema, so the host checks the configuration
//! before it makes the engine. The last lines export the engine and test that it conforms.

use contexture_digest::{Budget, Digest};
use contexture_engine_api::{
    About, COMPACTION_NOTE, Compaction, CompressRequest, ContextEngine, Decision, EngineError,
    Entry, HostInfo, MessageView, OpenRequest, Outcome, Services, StandaloneEngine, WindowState,
    in_flight, roomy, safe_cut, safe_cut_after,
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

/// The engine of one session. It holds its settings and the services of the host, and remembers
/// nothing of the conversation: all that it needs is in the window that it is given. A session can
/// therefore be resumed without a store.
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
    /// Returns the prompt size in tokens at which a compaction is due. It follows the window of the
    /// agent's model, so it changes when the model does.
    fn threshold(&self, window: &WindowState) -> u64 {
        (window.context_length as f64 * self.0.threshold) as u64
    }

    /// Returns the window with the first messages and the last `keep_last` of them, and its tokens.
    ///
    /// A summary takes the place of the messages between the two, unless it would be larger than
    /// they are. If the user's last message is among them, it stays, and what is before and after
    /// it gets a summary of its own.
    fn keeping(&self, messages: &[MessageView<'_>], keep_last: usize) -> (Vec<Entry>, u64) {
        let Self(settings, services) = self;
        // A provider refuses a tool call without its results, so no cut may separate them.
        let head = safe_cut(messages, settings.keep_first);
        let tail = messages.len().saturating_sub(keep_last);
        let tail = in_flight(messages).map_or(tail, |calls| tail.min(calls));
        let tail = safe_cut(messages, tail).max(head);
        // The user's last message stays as it is. If a tool result after it belongs to a call
        // before it, everything between the two stays as well.
        let words = messages.iter().rposition(MessageView::is_real_user);
        let words = words.filter(|at| (head..tail).contains(at));
        let (until, from) = words.map_or((tail, tail), |at| {
            (safe_cut(messages, at), safe_cut_after(messages, at + 1))
        });

        let keep = |message: &MessageView<'_>| Entry::Keep(message.id());
        let mut entries: Vec<Entry> = messages.iter().map(keep).collect();
        let mut after: u64 = messages.iter().map(MessageView::tokens).sum();
        // From back to front, so that the positions of the earlier span stay valid.
        for span in [from..tail, head..until] {
            let middle = &messages[span.clone()];
            let text = Digest::of(middle, None).render(Budget::chars(12_000));
            let tokens: u64 = middle.iter().map(MessageView::tokens).sum();
            // The marks that the host puts around a summary, and its note, cost about 80 tokens.
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

// For a program that links the engine in, and for a host that loads the library.
contexture_engine_api::register_engine!("keep-tail", KeepTail);
#[cfg(feature = "plugin")]
contexture_engine_api::export_engine!("keep-tail", KeepTail);

#[cfg(all(test, feature = "plugin"))]
contexture_testkit::conforms!(CONTEXTURE_ENGINE);

//! A small but complete context engine: it keeps the head and the tail of a conversation and puts a
//! digest in place of the middle. Copy this folder to begin an engine of your own.

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

struct KeepTail {
    settings: Settings,
    services: Services,
}

impl StandaloneEngine for KeepTail {
    fn about(_host: &HostInfo) -> About {
        About::default().settings(Some(schema_for!(Settings).to_value()))
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            settings: request.settings()?,
            services: request.services.clone(),
        })
    }
}

impl ContextEngine for KeepTail {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let tokens = window.best_prompt_tokens();
        let threshold = (window.context_length as f64 * self.settings.threshold) as u64;
        let figures = format!("{tokens} tokens, threshold {threshold}");
        if tokens >= threshold {
            Decision::Yes(figures)
        } else {
            Decision::No(figures)
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        // Neither cut may part a tool call from its results, and the user's last words stay.
        let head = safe_cut(messages, self.settings.keep_first);
        let last_user = messages.iter().rposition(MessageView::is_real_user);
        let tail = messages.len().saturating_sub(self.settings.keep_last);
        let tail = safe_cut(messages, tail.min(last_user.unwrap_or(tail))).max(head);
        let middle = &messages[head..tail];

        let text = Digest::of(middle, None).render(Budget::chars(12_000));
        let tokens: u64 = middle.iter().map(MessageView::tokens).sum();
        // The host's marks around a summary and its note cost some 80 tokens.
        if self.services.count_tokens(&text) + 80 >= tokens {
            let reason = "what lies between head and tail is too short to be worth a summary";
            return Ok(Outcome::NothingToDo(reason.into()));
        }
        let keep = |message: &MessageView<'_>| Entry::Keep(message.id());
        let mut entries: Vec<Entry> = messages[..head].iter().map(keep).collect();
        entries.push(Entry::summary(
            text,
            middle.iter().map(MessageView::id).collect(),
        ));
        entries.extend(messages[tail..].iter().map(keep));
        Ok(Outcome::Compacted(
            Compaction::new(entries).system_note(Some(COMPACTION_NOTE.into())),
        ))
    }
}

export_engine!("keep-tail", KeepTail);

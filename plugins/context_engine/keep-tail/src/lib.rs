//! A small but complete context engine: it keeps the head and the tail of a conversation and puts a
//! digest in place of the middle. Copy this folder to begin an engine of your own.

use contexture_digest::{Budget, Digest};
use contexture_engine_api::{
    COMPACTION_NOTE, Compaction, CompressRequest, ContextEngine, Decision, EngineError, Entry,
    MessageView, OpenRequest, Outcome, WindowState, export_engine, safe_cut, safe_cut_after,
};
use serde::Deserialize;

/// The settings under `context.engines.keep-tail`; `plugin.yaml` describes them for the host.
#[derive(Deserialize)]
#[serde(default)]
struct KeepTail {
    keep_first: usize,
    keep_last: usize,
    threshold: f64,
}

impl Default for KeepTail {
    fn default() -> Self {
        Self {
            keep_first: 2,
            keep_last: 20,
            threshold: 0.5,
        }
    }
}

impl ContextEngine for KeepTail {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        request.settings()
    }

    fn should_compress(&self, window: &WindowState) -> Decision {
        let tokens = window.best_prompt_tokens();
        let threshold = (window.context_length as f64 * self.threshold) as u64;
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
        let head = safe_cut(messages, self.keep_first);
        let last_user = messages.iter().rposition(MessageView::is_real_user);
        let tail = messages.len().saturating_sub(self.keep_last);
        let tail = safe_cut(messages, tail.min(last_user.unwrap_or(tail)));
        if tail <= safe_cut_after(messages, head) {
            return Ok(Outcome::NothingToDo(format!(
                "all {} messages belong to the head or the tail",
                messages.len()
            )));
        }
        let middle = &messages[head..tail];
        let keep = |message: &MessageView<'_>| Entry::Keep(message.id());
        let mut entries: Vec<Entry> = messages[..head].iter().map(keep).collect();
        entries.push(Entry::Summary {
            text: Digest::of(middle, None).render(Budget::chars(12_000)),
            covers: middle.iter().map(MessageView::id).collect(),
        });
        entries.extend(messages[tail..].iter().map(keep));
        let mut compaction = Compaction::new(entries);
        compaction.system_note = Some(COMPACTION_NOTE.to_owned());
        Ok(Outcome::Compacted(compaction))
    }
}

export_engine!("keep-tail", KeepTail);

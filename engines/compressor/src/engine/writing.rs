//! The text of a summary: prepared in the background, asked of the model now, or the digest.

use std::collections::HashSet;

use contexture_digest::Digest;
use contexture_engine_api::{
    CompressOrder, EngineError, FailureKind, MessageId, MessageView, ModelInfo,
};

use super::Compressor;
use crate::covered::Covered;
use crate::material;
use crate::prompt::{Brief, marked};
use crate::summariser::Summariser;
use crate::summary::{digested, digested_with_focus, with_facts};

/// How the text of a summary came about.
pub(super) struct Written {
    pub(super) body: String,
    pub(super) degraded: bool,
    pub(super) note: String,
}

impl Compressor {
    /// The summary's text: the model's where it can be had, else the digest.
    pub(super) fn write(
        &mut self,
        covered: &Covered<'_, '_>,
        tokens: u64,
        order: &CompressOrder,
    ) -> Result<Written, EngineError> {
        let tokens = tokens.saturating_sub(self.services.count_tokens(&marked("")));
        // From the originals, before anything of them is cleared or cut.
        let digest = Digest::with(
            &self.readings,
            &covered.messages,
            covered.previous.as_deref(),
        );
        let services = self.services.clone();
        let without_model = || match order.focus.as_deref() {
            Some(topic) => {
                digested_with_focus(&digest, &covered.messages, topic, tokens, &services)
            }
            None => digested(&digest, tokens, &services),
        };
        let Some(model) = self.services.model() else {
            return Ok(Written {
                body: without_model(),
                degraded: false,
                note:
                    "no summary model is configured, so the summary was extracted from the messages"
                        .into(),
            });
        };
        let answer = match self.staged_for(covered, tokens) {
            Some(prepared) => Ok(prepared),
            None if order.may_wait_for_model => {
                self.ask_now(&model, covered, &digest, tokens, order)?
            }
            None => {
                Err("the summary model's answer was not ready, and nobody may wait for it".into())
            }
        };
        Ok(match answer {
            Ok(notes) => Written {
                body: with_facts(notes, &digest, tokens, &self.services),
                degraded: false,
                note: format!("{} wrote the summary", model.name),
            },
            Err(reason) => Written {
                body: without_model(),
                degraded: true,
                note: format!(
                    "the summary was extracted from the messages without a model: {reason}"
                ),
            },
        })
    }

    /// The summary that was prepared in the background, where it is about this middle. What it does not
    /// cover yet is digested into it.
    fn staged_for(&self, covered: &Covered<'_, '_>, tokens: u64) -> Option<String> {
        let staged = self.staged.as_ref()?;
        let ids: HashSet<MessageId> = covered.messages.iter().map(MessageView::id).collect();
        if staged.previous != covered.previous || !staged.covers.iter().all(|id| ids.contains(id)) {
            return None;
        }
        let done: HashSet<MessageId> = staged.covers.iter().copied().collect();
        let rest: Vec<MessageView<'_>> = covered
            .messages
            .iter()
            .filter(|message| !done.contains(&message.id()))
            .copied()
            .collect();
        if rest.is_empty() {
            return Some(staged.text.clone());
        }
        let update = Digest::with(&self.readings, &rest, Some(&staged.text));
        Some(digested(&update, tokens, &self.services))
    }

    /// Asks the model while the caller waits. The inner error says, for a person, why there is no answer.
    fn ask_now(
        &mut self,
        model: &ModelInfo,
        covered: &Covered<'_, '_>,
        digest: &Digest<'_>,
        tokens: u64,
        order: &CompressOrder,
    ) -> Result<Result<String, String>, EngineError> {
        // A forced compaction may follow a fix of the problem.
        if let Some(cool_down) = self.cool_downs.in_force().filter(|_| !order.force) {
            let seconds = (cool_down.until_ms - self.services.now_ms()) / 1_000;
            return Ok(Err(format!(
                "{} failed ({}) and is left alone for another {seconds} s",
                model.name, cool_down.failure
            )));
        }
        let brief = Brief {
            previous: covered.previous.clone(),
            facts: Some(digested(digest, tokens / 2, &self.services)),
            memory: order.memory.clone(),
            focus: order.focus.clone(),
            budget: tokens,
        };
        let units = material::units(&covered.notes(&self.log));
        let mut summariser =
            Summariser::new(brief, units, model.context_length, self.services.clone());
        loop {
            if self.services.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let requests = summariser.requests();
            let answers = match requests.as_slice() {
                [one] => vec![self.services.complete(one)],
                many => self.services.complete_many(many),
            };
            match summariser.answered(answers) {
                Ok(Some(notes)) => {
                    self.cool_downs.succeeded();
                    return Ok(Ok(notes));
                }
                Ok(None) => {}
                Err(failure) if failure.kind == FailureKind::Cancelled => {
                    return Err(EngineError::Cancelled);
                }
                Err(failure) => {
                    self.cool_downs.failed(&model.name, &failure);
                    return Ok(Err(failure.message));
                }
            }
        }
    }
}

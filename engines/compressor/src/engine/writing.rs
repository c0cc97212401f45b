//! The text of a summary: prepared in the background, asked of the model now, or the digest.

use std::collections::HashSet;

use contexture_digest::Digest;
use contexture_engine_api::{CompressOrder, EngineError, MessageId, MessageView, ModelInfo};
use contexture_summaries::{Summariser, ask, digested, digested_with_focus, units, with_facts};

use super::Compressor;
use crate::covered::Covered;
use crate::prompt::{Brief, marked};

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
        let brief = Brief {
            previous: covered.previous.clone(),
            facts: Some(digested(digest, tokens / 2, &self.services)),
            memory: order.memory.clone(),
            focus: order.focus.clone(),
            budget: tokens,
        };
        let units = units(&covered.notes(&self.log));
        let summariser = Summariser::new(brief, units, model.context_length, self.services.clone());
        ask(summariser, model, &mut self.cool_downs, order.force)
    }
}

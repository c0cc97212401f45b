//! The text of a summary: prepared in the background, asked of the model now, or the digest.

use std::collections::HashSet;

use contexture_cooldown::CoolDowns;
use contexture_digest::Digest;
use contexture_engine_api::{
    CompressOrder, EngineError, MessageId, MessageKind, MessageView, Services,
};
use contexture_summaries::{Summariser, ask, digested, digested_with_focus, with_facts};

use crate::prompt::Brief;

/// A summary that is ready for the next compaction.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The model's notes.
    pub(crate) text: String,
    /// The messages that they are about.
    pub(crate) covers: Vec<MessageId>,
    /// The earlier summary that they update.
    pub(crate) previous: Option<String>,
}

/// A summary to write.
pub(crate) struct Assignment<'t, 'a> {
    /// What it is about, as it was said.
    pub(crate) messages: &'t [MessageView<'a>],
    /// The earlier summary that it updates.
    pub(crate) previous: Option<&'t str>,
    /// What it may take.
    pub(crate) tokens: u64,
    /// The compaction that it is for.
    pub(crate) order: &'t CompressOrder,
    /// What was prepared in the background.
    pub(crate) staged: Option<&'t Staged>,
}

/// How the text of a summary came about.
pub(crate) struct Written {
    /// The text, without what marks it.
    pub(crate) body: String,
    /// Whether a model was wanted for it and could not be had.
    pub(crate) degraded: bool,
    /// Who wrote it, for a person.
    pub(crate) note: String,
}

impl Staged {
    /// The notes on these messages and the earlier summary, where they are about no others. What they do not cover yet
    /// is digested into them.
    fn on(
        &self,
        messages: &[MessageView<'_>],
        previous: Option<&str>,
        tokens: u64,
        services: &Services,
    ) -> Option<String> {
        let ids: HashSet<MessageId> = messages.iter().map(MessageView::id).collect();
        if self.previous.as_deref() != previous || !self.covers.iter().all(|id| ids.contains(id)) {
            return None;
        }
        let done: HashSet<MessageId> = self.covers.iter().copied().collect();
        let mut rest = messages.to_vec();
        rest.retain(|message| !done.contains(&message.id()));
        if rest.is_empty() {
            return Some(self.text.clone());
        }
        let update = Digest::of(&rest, Some(&self.text));
        Some(digested(&update, tokens, services))
    }
}

impl Assignment<'_, '_> {
    /// The summary's text: the model's where it can be had, else the digest. `units` gives the material for the model
    /// where it is asked.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] where the host gave the call up.
    pub(crate) fn write(
        &self,
        units: impl FnOnce() -> Vec<String>,
        cool_downs: &mut CoolDowns,
        services: &Services,
    ) -> Result<Written, EngineError> {
        let (tokens, order) = (self.tokens, self.order);
        let messages: Vec<MessageView<'_>> = self.messages.iter().map(as_said).collect();
        let digest = Digest::of(&messages, self.previous);
        let without_model = || match order.focus.as_deref() {
            Some(topic) => digested_with_focus(&digest, &messages, topic, tokens, services),
            None => digested(&digest, tokens, services),
        };
        let Some(model) = services.model() else {
            return Ok(Written {
                body: without_model(),
                degraded: false,
                note:
                    "no summary model is configured, so the summary was extracted from the messages"
                        .into(),
            });
        };
        let staged = self
            .staged
            .and_then(|staged| staged.on(&messages, self.previous, tokens, services));
        let answer = match staged {
            Some(prepared) => Ok(prepared),
            None if order.may_wait_for_model => {
                let brief = Brief {
                    previous: self.previous.map(str::to_owned),
                    facts: Some(digested(&digest, tokens / 2, services)),
                    memory: order.memory.clone(),
                    focus: order.focus.clone(),
                    budget: tokens,
                };
                let window = model.context_length;
                let summariser = Summariser::new(brief, units(), window, services.clone());
                ask(summariser, &model, cool_downs, order.force)?
            }
            None => {
                Err("the summary model's answer was not ready, and nobody may wait for it".into())
            }
        };
        Ok(match answer {
            Ok(notes) => Written {
                body: with_facts(notes, &digest, tokens, services),
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
}

/// A message of the user without the mark of its file, which nobody said: it is the first line.
fn as_said<'a>(message: &MessageView<'a>) -> MessageView<'a> {
    match message.text().split_once('\n') {
        Some((_, said)) if message.is_real_user() && message.kind() == MessageKind::Replaced => {
            message.with_text(said)
        }
        _ => *message,
    }
}

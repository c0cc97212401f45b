//! The text of a summary: prepared in the background, asked of the model now, or the digest.

use std::collections::HashSet;

use crate::cooldown::CoolDowns;
use contexture_digest::{Digest, Readings};
use contexture_engine_api::{CompressOrder, EngineError, MessageId, MessageView, Services};

use crate::brief::{Brief, Headings};
use crate::facts::{digested, digested_with_focus, with_facts};
use crate::summariser::{Summariser, ask};

/// A summary that is ready for the next compaction.
#[derive(Debug)]
pub struct Staged {
    /// The model's notes.
    pub text: String,
    /// The messages that they are about.
    pub covers: Vec<MessageId>,
    /// The earlier summary that they update.
    pub previous: Option<String>,
}

/// A summary to write.
#[derive(Debug)]
pub struct Assignment<'t, 'a> {
    /// What it is about, as it was said.
    pub messages: &'t [MessageView<'a>],
    /// What was found in them when they came.
    pub readings: &'t Readings,
    /// What it stands under.
    pub headings: &'static Headings,
    /// The earlier summary that it updates.
    pub previous: Option<&'t str>,
    /// What a user asked for before them, in words that stay: the goal where no earlier summary names one.
    pub task: Option<&'t str>,
    /// What it may take, in tokens.
    pub tokens: u64,
    /// The compaction that it is for.
    pub order: &'t CompressOrder,
    /// What was prepared in the background.
    pub staged: Option<&'t Staged>,
}

/// How the text of a summary came about.
#[derive(Debug)]
pub struct Written {
    /// The text, without what marks it.
    pub body: String,
    /// Whether a model was wanted for it and could not be had.
    pub degraded: bool,
    /// Who wrote it, for a person.
    pub note: String,
}

impl Assignment<'_, '_> {
    /// The summary's text: the model's where it can be had, else the digest. `units` gives the material for the model
    /// where it is asked.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] where the host gave the call up.
    pub fn write(
        &self,
        units: impl FnOnce() -> Vec<String>,
        cool_downs: &mut CoolDowns,
        services: &Services,
    ) -> Result<Written, EngineError> {
        let (tokens, order, messages) = (self.tokens, self.order, self.messages);
        let digest = Digest::with(self.readings, messages, self.previous, self.task);
        let without_model = || match order.focus.as_deref() {
            Some(topic) => digested_with_focus(&digest, messages, topic, tokens, services),
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
        let answer = match self.prepared(services) {
            Some(prepared) => Ok(prepared),
            None if order.may_wait_for_model => {
                let brief = Brief {
                    headings: self.headings,
                    previous: self.previous.map(str::to_owned),
                    facts: Some(digested(&digest, tokens / 2, services)),
                    memory: order.memory.clone(),
                    focus: order.focus.clone(),
                    budget: tokens,
                };
                let window = model.context_length;
                let last = messages.last().map(MessageView::id);
                let summariser =
                    Summariser::new(Box::new(brief), units(), window, services.clone())
                        .in_window(last);
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

    /// What was prepared, where it is about these messages and the earlier summary, and about no others. What it does
    /// not cover yet is digested into it.
    fn prepared(&self, services: &Services) -> Option<String> {
        let staged = self.staged?;
        let ids: HashSet<MessageId> = self.messages.iter().map(MessageView::id).collect();
        let is_about_these = staged.covers.iter().all(|id| ids.contains(id));
        if staged.previous.as_deref() != self.previous || !is_about_these {
            return None;
        }
        let done: HashSet<MessageId> = staged.covers.iter().copied().collect();
        let mut rest = self.messages.to_vec();
        rest.retain(|message| !done.contains(&message.id()));
        if rest.is_empty() {
            return Some(staged.text.clone());
        }
        let update = Digest::with(self.readings, &rest, Some(&staged.text), None);
        Some(digested(&update, self.tokens, services))
    }
}

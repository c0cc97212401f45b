//! The text of a summary: prepared in the background, asked of the model now, or the digest.

use contexture_cooldown::CoolDowns;
use contexture_digest::Digest;
use contexture_engine_api::{
    CompressOrder, EngineError, FailureKind, MessageView, ModelInfo, Services,
};

use crate::background::Staged;
use crate::prompt::Brief;
use crate::summariser::Summariser;
use crate::summary::{digested, digested_with_focus, with_facts};

/// A summary to write.
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'t, 'a> {
    /// What it is about, as it was said.
    pub messages: &'t [MessageView<'a>],
    /// The earlier summary that it updates.
    pub previous: Option<&'t str>,
    /// The headings for a model, see [`Brief::headings`].
    pub headings: &'static str,
    /// What it may take.
    pub tokens: u64,
    /// The compaction that it is for.
    pub order: &'t CompressOrder,
    /// What was prepared in the background.
    pub staged: Option<&'t Staged>,
}

/// How the text of a summary came about.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        let (tokens, order) = (self.tokens, self.order);
        // From the originals, before anything of them is cleared or cut.
        let digest = Digest::of(self.messages, self.previous);
        let without_model = || match order.focus.as_deref() {
            Some(topic) => digested_with_focus(&digest, self.messages, topic, tokens, services),
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
            .and_then(|staged| staged.on(self.messages, self.previous, tokens, services));
        let answer = match staged {
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
                let summariser =
                    Summariser::new(brief, units(), model.context_length, services.clone());
                ask_now(summariser, &model, cool_downs, order.force)?
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

/// The summary, asked of the model while the caller waits. The inner error says, for a person, why there is none.
///
/// # Errors
/// [`EngineError::Cancelled`] where the host gave the call up.
fn ask_now(
    mut summariser: Summariser,
    model: &ModelInfo,
    cool_downs: &mut CoolDowns,
    force: bool,
) -> Result<Result<String, String>, EngineError> {
    let services = summariser.services().clone();
    // A forced compaction may follow a fix of the problem.
    if let Some(cool_down) = cool_downs.in_force().filter(|_| !force) {
        let seconds = (cool_down.until_ms - services.now_ms()) / 1_000;
        return Ok(Err(format!(
            "{} failed ({}) and is left alone for another {seconds} s",
            model.name, cool_down.failure
        )));
    }
    loop {
        if services.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let requests = summariser.requests();
        let answers = match requests.as_slice() {
            [one] => vec![services.complete(one)],
            many => services.complete_many(many),
        };
        match summariser.answered(answers) {
            Ok(Some(notes)) => {
                cool_downs.succeeded();
                return Ok(Ok(notes));
            }
            Ok(None) => {}
            Err(failure) if failure.kind == FailureKind::Cancelled => {
                return Err(EngineError::Cancelled);
            }
            Err(failure) => {
                cool_downs.failed(&model.name, &failure);
                return Ok(Err(failure.message));
            }
        }
    }
}

//! Summaries that are made while nobody waits, and what is done with them.

use contexture_engine_api::{BackgroundCall, MessageId, ModelAnswer, ModelFailure};

use crate::summariser::Summariser;

type Answer = Result<ModelAnswer, ModelFailure>;

/// What a summary in the making is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The next compaction.
    Next {
        /// The summary in the window that it updates.
        previous: Option<String>,
    },
    /// To stand in for a summary that had to be made without the model.
    Redo {
        /// Its text.
        of: String,
    },
}

/// A summary that waits for its answers.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: Purpose,
    pub(crate) covers: Vec<MessageId>,
    pub(crate) model: String,
    summariser: Summariser,
    asked: Vec<(u64, Option<Answer>)>,
}

/// A summary that is ready for the next compaction.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) text: String,
    pub(crate) covers: Vec<MessageId>,
    pub(crate) previous: Option<String>,
}

impl Pending {
    pub(crate) fn new(
        purpose: Purpose,
        covers: Vec<MessageId>,
        model: String,
        summariser: Summariser,
    ) -> Self {
        Self {
            purpose,
            covers,
            model,
            summariser,
            asked: Vec::new(),
        }
    }

    /// The calls to make now; none while answers are out.
    pub(crate) fn calls(&mut self, last_id: &mut u64) -> Vec<BackgroundCall> {
        if !self.asked.is_empty() {
            return Vec::new();
        }
        let calls: Vec<BackgroundCall> = self
            .summariser
            .requests()
            .into_iter()
            .map(|request| {
                *last_id += 1;
                BackgroundCall::new(*last_id, self.covers.clone(), request)
            })
            .collect();
        self.asked = calls.iter().map(|call| (call.id, None)).collect();
        calls
    }

    /// Takes an answer. None while there are more to come or to ask for.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        answer: Answer,
    ) -> Option<Result<String, ModelFailure>> {
        let (_, slot) = self.asked.iter_mut().find(|(asked, _)| *asked == id)?;
        *slot = Some(answer);
        if self.asked.iter().any(|(_, answer)| answer.is_none()) {
            return None;
        }
        let answers = self
            .asked
            .drain(..)
            .filter_map(|(_, answer)| answer)
            .collect();
        self.summariser.answered(answers).transpose()
    }
}

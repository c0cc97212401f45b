//! Summaries that are made while nobody waits.

use contexture_engine_api::{BackgroundCall, MessageId, ModelAnswer, ModelFailure};

use crate::summariser::Summariser;

type Answer = Result<ModelAnswer, ModelFailure>;

/// A summary that waits for its answers.
#[derive(Debug)]
pub struct Pending<T> {
    /// What it is for.
    pub purpose: T,
    /// The messages that it is about.
    pub covers: Vec<MessageId>,
    /// The model that is asked.
    pub model: String,
    summariser: Summariser,
    asked: Vec<(u64, Option<Answer>)>,
}

impl<T> Pending<T> {
    /// One that is still to be asked for.
    pub fn new(purpose: T, covers: Vec<MessageId>, model: String, summariser: Summariser) -> Self {
        Self {
            purpose,
            covers,
            model,
            summariser,
            asked: Vec::new(),
        }
    }

    /// The calls to make now; none while answers are out.
    pub fn calls(&mut self, last_id: &mut u64) -> Vec<BackgroundCall> {
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
    ///
    /// The inner error is the first failure that smaller pieces do not mend.
    pub fn answered(&mut self, id: u64, answer: Answer) -> Option<Result<String, ModelFailure>> {
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

//! Summaries that are made while nobody waits, and what is done with them.

use std::collections::HashSet;

use contexture_digest::Digest;
use contexture_engine_api::{
    BackgroundCall, MessageId, MessageView, ModelAnswer, ModelFailure, Services,
};

use crate::summariser::Summariser;
use crate::summary::digested;

type Answer = Result<ModelAnswer, ModelFailure>;

/// A summary that waits for its answers.
#[derive(Debug)]
pub struct Pending<P> {
    /// What it is for, to whoever asks for it.
    pub purpose: P,
    /// The messages that it is about.
    pub covers: Vec<MessageId>,
    /// The model that is asked.
    pub model: String,
    summariser: Summariser,
    asked: Vec<(u64, Option<Answer>)>,
}

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

impl Staged {
    /// The notes on these messages and the earlier summary, where they are about no others. What they do not cover
    /// yet is digested into them.
    pub fn on(
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
        let rest: Vec<MessageView<'_>> = messages
            .iter()
            .filter(|message| !done.contains(&message.id()))
            .copied()
            .collect();
        if rest.is_empty() {
            return Some(self.text.clone());
        }
        let update = Digest::of(&rest, Some(&self.text));
        Some(digested(&update, tokens, services))
    }
}

impl<P> Pending<P> {
    /// A summary that nothing was asked for yet.
    pub fn new(purpose: P, covers: Vec<MessageId>, model: String, summariser: Summariser) -> Self {
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
    /// # Errors
    /// The failure that ends it.
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

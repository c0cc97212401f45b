//! The texts that a model writes ahead of the compaction that uses them.
//!
//! A text is *in the making* while calls for it are due or open, and *ready* until a compaction uses
//! it. If the model fails at a text although it writes others, the text is not asked for again for
//! an hour. Failures of the model itself are the business of [`ModelTrust`].
//!
//! [`Texts`] knows a text by the messages that it is about, whether their node exists or not. Which
//! texts are wanted is decided in `compact`. Nothing here is stored: if the process ends, the texts
//! are written again.
//!
//! The `SummaryCycle` of other engines has one task at a time and keeps what is to be redone in
//! memory. Here several texts are written at once, and what is to be redone is in the store.

use std::collections::HashMap;

use contexture_engine_api::{BackgroundCall, LogLevel, MessageId, ModelAnswer, ModelFailure};
use contexture_summaries::Making;

use crate::dag::{NodeId, Span};
use crate::model_trust::{ModelTrust, is_about_the_text};
use crate::session_state::SessionState;
use crate::store::nodes;
use crate::summarise::{AT_ONCE, Draft, Job, Written};

/// How long a text is left alone after the model failed at it, in milliseconds.
const FAILED_MS: i64 = 3_600_000;

/// What a text is written for.
#[derive(Debug)]
pub(crate) struct Purpose {
    /// The messages that the text is about.
    span: Span,
    /// The messages of a new leaf. It is empty if the text is for another node.
    leaf: Vec<MessageId>,
    /// The stored node that gets a better text. It is None if the node does not exist yet.
    node: Option<NodeId>,
}

impl Purpose {
    /// A text for a new leaf over these messages.
    pub(crate) fn leaf(ids: Vec<MessageId>) -> Self {
        Self {
            span: Span::of_messages(&ids),
            leaf: ids,
            node: None,
        }
    }

    /// A text for a node over other nodes, or a better one for a stored node.
    pub(crate) fn node(span: Span, node: Option<NodeId>) -> Self {
        Self {
            span,
            leaf: Vec::new(),
            node,
        }
    }
}

/// The texts of one session, those in the making and those that are ready.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    making: Vec<Making<(Purpose, Draft)>>,
    ready: Vec<(Purpose, Written)>,
    /// When the model failed at a text, in milliseconds since the Unix epoch.
    failed: HashMap<Span, i64>,
    last_call: u64,
}

impl Texts {
    /// Returns the text about exactly these messages, if it is ready.
    pub(crate) fn get(&self, span: Span) -> Option<&Written> {
        let mut ready = self.ready.iter();
        let (_, written) = ready.find(|(purpose, _)| purpose.span == span)?;
        Some(written)
    }

    /// Returns the texts for new leaves that are ready, each with its messages.
    fn leaves(&self) -> impl Iterator<Item = (&[MessageId], &Written)> {
        let leaves = self.ready.iter().map(|(of, text)| (&of.leaf[..], text));
        leaves.filter(|(ids, _)| !ids.is_empty())
    }

    /// Returns the messages of the ready leaf that begins with this one, so that a plan can keep its
    /// boundaries.
    pub(crate) fn leaf_from(&self, first: MessageId) -> Option<&[MessageId]> {
        let mut leaves = self.leaves().map(|(ids, _)| ids);
        leaves.find(|ids| ids.first() == Some(&first))
    }

    /// Whether a leaf over this message is ready.
    pub(crate) fn covers(&self, message: MessageId) -> bool {
        self.leaves().any(|(ids, _)| ids.contains(&message))
    }

    /// Returns how many leaves are ready.
    pub(crate) fn leaf_count(&self) -> usize {
        self.leaves().count()
    }

    /// Returns the tokens of all leaves that are ready, without the headings that they get in the
    /// window.
    pub(crate) fn leaf_tokens(&self) -> u64 {
        self.leaves().map(|(_, written)| written.tokens).sum()
    }

    /// Returns how many texts are in the making.
    pub(crate) fn in_the_making(&self) -> usize {
        self.making.len()
    }

    /// Whether a leaf is in the making. A compaction may then wait for it.
    pub(crate) fn makes_leaves(&self) -> bool {
        let mut making = self.making.iter();
        making.any(|making| !making.purpose.0.leaf.is_empty())
    }

    /// Returns the number of open calls.
    pub(crate) fn calls_out(&self) -> usize {
        self.making.iter().map(Making::out).sum()
    }

    /// Whether a text about these messages can be added: it is not ready, and the model did not fail
    /// at it in the last hour.
    pub(crate) fn lacks(&self, span: Span, now_ms: i64) -> bool {
        let failed = self.failed.get(&span);
        let is_held = failed.is_some_and(|since| (*since..since + FAILED_MS).contains(&now_ms));
        self.get(span).is_none() && !is_held
    }

    /// Adds a text that is wanted. If no model can write it, it is extracted at once.
    pub(crate) fn add(&mut self, purpose: Purpose, job: Job, session: &SessionState) {
        let Job { summariser, draft } = job;
        let Some((summariser, model)) = summariser.zip(session.services.model()) else {
            let written = draft.without_model(&session.services);
            return self.finished(purpose, written, session);
        };
        let leaf = purpose.leaf.clone();
        let making = Making::new((purpose, draft), leaf, model.name, summariser);
        self.making.push(making);
    }

    /// Returns the calls to make now. One text may have several calls, so there can be more than
    /// [`AT_ONCE`].
    pub(crate) fn calls(&mut self, now_ms: i64) -> Vec<BackgroundCall> {
        let (mut out, mut calls) = (self.calls_out(), Vec::new());
        for making in &mut self.making {
            if out < AT_ONCE {
                let new = making.calls(&mut self.last_call, now_ms);
                out += new.len();
                calls.extend(new);
            }
        }
        calls
    }

    /// Takes the answer to a call. If it completes a text, the text is ready or, if its node is not
    /// in the window, stored. Returns false if the answer changed nothing that a compaction depends
    /// on.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        answer: Result<ModelAnswer, ModelFailure>,
        session: &SessionState,
        trust: &mut ModelTrust,
    ) -> bool {
        // The text may have been dropped while the call was open, for example because of a cut.
        let Some(at) = self.making.iter().position(|making| making.asks(id)) else {
            return false;
        };
        let Some(finished) = self.making[at].answered(id, answer) else {
            return false;
        };
        let (purpose, draft) = self.making.remove(at).purpose;
        let services = &session.services;
        match finished.and_then(|text| draft.by_model(&text, services)) {
            Ok(written) => {
                trust.succeeded();
                self.finished(purpose, written, session);
            }
            Err(failure) => {
                trust.failed(&failure);
                if is_about_the_text(failure.kind) {
                    self.failed.insert(purpose.span, services.now_ms());
                    // A compaction needs some text for a leaf. The other texts are optional.
                    if !purpose.leaf.is_empty() {
                        self.finished(purpose, draft.without_model(services), session);
                    }
                }
            }
        }
        true
    }

    fn finished(&mut self, purpose: Purpose, written: Written, session: &SessionState) {
        match purpose.node {
            // The window does not show this node, so its text can change without a compaction.
            Some(node) if session.in_frontier(node).is_none() => {
                if let Err(error) = nodes::rewrite(&session.store, session.id, node, &written) {
                    let line = format!("the better text of {node} could not be kept: {error}");
                    session.services.log(LogLevel::Warn, &line);
                }
            }
            _ => self.ready.push((purpose, written)),
        }
    }

    /// Follows a change of the frontier or of the conversation. Leaves stay if `keeps` is true for
    /// all of their messages, and the texts for other nodes are dropped.
    pub(crate) fn retain(&mut self, keeps: impl Fn(MessageId) -> bool) {
        let stays = |purpose: &Purpose| {
            !purpose.leaf.is_empty() && purpose.leaf.iter().all(|id| keeps(*id))
        };
        self.making.retain(|making| stays(&making.purpose.0));
        self.ready.retain(|(purpose, _)| stays(purpose));
    }
}

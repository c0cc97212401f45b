//! The text of a summary: prepared in the background, asked of the model now, or the digest.

use std::collections::HashSet;

use contexture_digest::{Digest, Language, Readings};
use contexture_engine_api::{
    CompressOrder, EngineError, MessageId, MessageKind, MessageView, ModelInfo,
};
use contexture_summaries::{Summariser, ask, digested, noted, units};

use super::preparing::Redo;
use super::{Read, TwoLayer};
use crate::settings::SummaryFormat;
use crate::split::Split;
use crate::wording::{Question, SUMMARY_MARK, body_of, cut_to, digest_in_json, marked};

/// The share of the threshold that a summary may take.
const SUMMARY_SHARE: f64 = 0.1;
/// The least tokens of a summary.
const MIN_SUMMARY_TOKENS: u64 = 64;
/// A summary is at most this part of what it covers.
const COVERED_PART: u64 = 3;

/// How the text of a summary came about.
pub(super) struct Written {
    pub(super) body: String,
    pub(super) degraded: bool,
    pub(super) note: String,
    pub(super) redo: Option<Redo>,
}

/// What a summary is made from.
pub(super) struct Covered<'a> {
    pub(super) ids: Vec<MessageId>,
    /// The messages, earlier summaries not among them.
    messages: Vec<MessageView<'a>>,
    previous: Option<String>,
    units: Vec<String>,
    budget: u64,
}

impl Covered<'_> {
    /// How many tokens the summary may have.
    pub(super) fn budget(&self) -> u64 {
        self.budget
    }
}

impl TwoLayer {
    pub(super) fn covered<'a>(&self, read: &Read<'_, 'a>, covers: &[usize]) -> Covered<'a> {
        let outline = &read.outline;
        let views = || covers.iter().map(|at| outline.messages[*at]);
        let is_summary = |view: &MessageView<'_>| view.kind() == MessageKind::Summary;
        let earlier: Vec<String> = views()
            .filter(is_summary)
            .map(|view| {
                let body = body_of(view.text());
                let better = self
                    .improved
                    .iter()
                    .find(|(made_without, _)| *made_without == body);
                better.map_or(body, |(_, better)| better.clone())
            })
            .collect();
        let previous = (!earlier.is_empty()).then(|| earlier.join("\n\n"));
        let said = covers
            .iter()
            .filter(|at| !is_summary(&outline.messages[**at]));
        let notes = noted(
            said.map(|at| (&outline.messages[*at], outline.caller(*at))),
            &[],
        );
        let mut units = units(&notes);
        if let Some(previous) = &previous {
            units.insert(0, marked(previous));
        }
        let tokens: u64 = views().map(|view| view.tokens()).sum();
        let most = (self.settings.threshold(&self.window) as f64 * SUMMARY_SHARE) as u64;
        Covered {
            ids: views().map(|view| view.id()).collect(),
            messages: views().filter(|view| !is_summary(view)).collect(),
            previous,
            units,
            budget: most.min(tokens / COVERED_PART).max(MIN_SUMMARY_TOKENS),
        }
    }

    /// The summaries of a split.
    pub(super) fn write(
        &mut self,
        read: &Read<'_, '_>,
        split: &Split,
        order: &CompressOrder,
    ) -> Result<Vec<Written>, EngineError> {
        let current = current_question(read, order);
        let mut written = Vec::with_capacity(split.summaries.len());
        for covers in &split.summaries {
            let mut covered = self.covered(read, covers);
            if let Some(memory) = &order.memory {
                covered.units.push(format!("[memory] {memory}"));
            }
            written.push(self.write_one(covered, &current, order)?);
        }
        Ok(written)
    }

    fn write_one(
        &mut self,
        covered: Covered<'_>,
        current: &str,
        order: &CompressOrder,
    ) -> Result<Written, EngineError> {
        let Some(model) = self.services.model() else {
            return Ok(Written {
                body: self.digest(
                    &covered.messages,
                    covered.previous.as_deref(),
                    covered.budget,
                ),
                degraded: false,
                note:
                    "no summary model is configured, so the summary was extracted from the messages"
                        .to_owned(),
                redo: None,
            });
        };
        let answer = match self.staged_for(&covered) {
            Some(prepared) => Ok(prepared),
            None if order.may_wait_for_model => {
                let summariser = self.summariser(&model, &covered, current);
                ask(summariser, &model, &mut self.cool_downs, order.force)?
            }
            None => Err(
                "the summary model's answer was not ready, and nobody may wait for it".to_owned(),
            ),
        };
        Ok(match answer {
            Ok(body) => Written {
                body: cut_to(
                    body,
                    self.settings.summary_format,
                    covered.budget,
                    &self.services,
                ),
                degraded: false,
                note: format!("{} wrote the summary", model.name),
                redo: None,
            },
            Err(reason) => {
                let body = self.digest(
                    &covered.messages,
                    covered.previous.as_deref(),
                    covered.budget,
                );
                Written {
                    degraded: true,
                    note: format!(
                        "the summary was extracted from the messages without a model: {reason}"
                    ),
                    redo: Some(Redo {
                        of: body.clone(),
                        covers: covered.ids.clone(),
                        summariser: self.summariser(&model, &covered, current),
                    }),
                    body,
                }
            }
        })
    }

    pub(super) fn summariser(
        &self,
        model: &ModelInfo,
        covered: &Covered<'_>,
        current: &str,
    ) -> Summariser {
        let question = Question {
            current: current.to_owned(),
            format: self.settings.summary_format,
            budget: covered.budget,
        };
        let units = covered.units.clone();
        Summariser::new(
            Box::new(question),
            units,
            model.context_length,
            self.services.clone(),
        )
    }

    /// The summary that was prepared in the background. What it does not cover yet is digested into it.
    fn staged_for(&self, covered: &Covered<'_>) -> Option<String> {
        let ids: HashSet<MessageId> = covered.ids.iter().copied().collect();
        let within = |covers: &[MessageId]| covers.iter().all(|id| ids.contains(id));
        let staged = self.staged.iter().filter(|staged| within(&staged.covers));
        let staged = staged.max_by_key(|staged| staged.covers.len())?;
        let done: HashSet<MessageId> = staged.covers.iter().copied().collect();
        if covered.ids.iter().all(|id| done.contains(id)) {
            return Some(staged.text.clone());
        }
        let rest = covered
            .messages
            .iter()
            .filter(|message| !done.contains(&message.id()));
        let rest: Vec<MessageView<'_>> = rest.copied().collect();
        Some(self.digest(&rest, Some(&staged.text), covered.budget))
    }

    fn digest(&self, messages: &[MessageView<'_>], previous: Option<&str>, budget: u64) -> String {
        let language = Language::of(messages);
        let digest = Digest::written_in(language, &Readings::default(), messages, previous, None);
        let digest = digested(&digest, budget, &self.services);
        match self.settings.summary_format {
            SummaryFormat::Text => digest,
            SummaryFormat::Json => cut_to(
                digest_in_json(&digest),
                SummaryFormat::Json,
                budget,
                &self.services,
            ),
        }
    }
}

/// What a summary is to bring out: the current question, and what the user wants in more detail.
pub(super) fn current_question(read: &Read<'_, '_>, order: &CompressOrder) -> String {
    let question = read
        .outline
        .question
        .map_or("", |at| read.outline.messages[at].text());
    let question = question.trim_start_matches(SUMMARY_MARK);
    match order
        .focus
        .as_deref()
        .filter(|focus| !focus.trim().is_empty())
    {
        Some(focus) => format!("{question}\n(特别关注:{focus})"),
        None => question.to_owned(),
    }
}

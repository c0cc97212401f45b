//! The summaries of a split: when they are prepared, and how one is written.
//!
//! `prepare` starts the summaries between turns, `write` makes those of a compaction, and `budget`
//! says how long each may be. `Covered` is the [`Task`] that connects them to the summary cycle.
//! Without a model, the summary is a digest in the language of the conversation. The prompts and
//! the JSON format are in `wording`, and which messages a summary covers is decided in `split`.

use contexture_digest::{Digest, Language, Readings, RuleSection, WorkRecord, without_rules};
use contexture_engine_api::{
    CompressOrder, CompressRequest, EngineError, MessageId, MessageKind, MessageView, Services,
};
use contexture_summaries::{
    Prompts, Ready, Task, WrittenSummary, digested, material, rules_in, tokens_beside,
};

use super::{Read, TwoLayer, is_short};
use crate::settings::SummaryFormat;
use crate::split::Split;
use crate::wording::{Question, SUMMARY_MARK, body_of, cut_to, digest_in_json, marked};

/// The share of the threshold from which the next summary is prepared.
const PREPARE_FROM: f64 = 0.8;
/// The same share for summaries of single turns, which cover messages that will not change any
/// more.
const PREPARE_TURNS_FROM: f64 = 0.5;
/// The largest share of the threshold that a summary may take, however many messages it covers.
const SUMMARY_SHARE: f64 = 0.1;
const MIN_SUMMARY_TOKENS: u64 = 64;
/// A summary has at most one part in this many of the tokens that it covers.
const COVERED_PART: u64 = 3;

/// The content of a summary: the messages that it covers, the earlier summaries among them, and
/// what goes into the prompt.
struct Covered<'a> {
    ids: Vec<MessageId>,
    messages: Vec<MessageView<'a>>,
    previous: Option<String>,
    memory: Option<String>,
    /// The question to the model. Its budget is that of the summary without the rules.
    question: Question,
    rules: RuleSection,
    services: Services,
}

impl Covered<'_> {
    fn cut(&self, text: String) -> String {
        let Question { format, budget, .. } = self.question;
        cut_to(text, format, budget, &self.services)
    }
}

impl Task for Covered<'_> {
    fn covers(&self) -> Vec<MessageId> {
        self.ids.clone()
    }

    fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }

    fn prompts(&self, _facts: Option<String>) -> Box<dyn Prompts> {
        Box::new(self.question.clone())
    }

    fn material(&self) -> Vec<String> {
        // This engine's prompt has no place for an earlier summary, so it stands at the beginning
        // of the material.
        let previous = self.previous.as_deref().map(marked);
        let memory = self
            .memory
            .iter()
            .map(|memory| format!("[memory] {memory}"));
        let said = material(&self.messages);
        previous.into_iter().chain(said).chain(memory).collect()
    }

    fn extract(&self, ready: Option<&Ready>) -> String {
        let rest = ready.map(|ready| ready.rest(&self.messages));
        let messages = rest.as_ref().unwrap_or(&self.messages);
        let previous = ready.map(|ready| ready.text.as_str()).or(self.previous());
        let digest = digest_of(messages, previous);
        let digest = digested(
            &digest, &self.rules.text, self.question.budget, &self.services,
        );
        match self.question.format {
            SummaryFormat::Text => digest,
            SummaryFormat::Json => self.cut(digest_in_json(&digest)),
        }
    }

    fn rules(&self) -> RuleSection {
        self.rules.clone()
    }

    fn work_record(&self) -> WorkRecord {
        let digest = digest_of(&self.messages, None);
        digest.work_record(self.previous().unwrap_or_default())
    }

    fn finish(&self, text: String) -> String {
        self.cut(text)
    }
}

/// The digest of these messages, in the language of the conversation.
fn digest_of<'a>(messages: &[MessageView<'a>], previous: Option<&str>) -> Digest<'a> {
    let (language, readings) = (Language::of(messages), Readings::default());
    Digest::written_in(language, &readings, messages, previous, None)
}

impl TwoLayer {
    /// Starts the next summaries once the threshold is near. Conversations that are too short to
    /// compact are ignored.
    pub(super) fn prepare(&mut self, request: &CompressRequest<'_>) {
        let (is_wanted, share) = match self.settings.per_turn_summaries {
            // Each turn has its own summary, so several may be ready at once.
            true => (self.cycle.is_free(), PREPARE_TURNS_FROM),
            false => (self.cycle.is_idle(), PREPARE_FROM),
        };
        let from = self.settings.threshold(&self.window) as f64 * share;
        if !is_wanted || is_short(request) || (self.estimated() as f64) < from {
            return;
        }
        let read = self.read(request.messages, false);
        let split = self.split(&read, request.order);
        for covers in &split.summaries {
            let covered = self.covered(&read, covers, request.order);
            self.cycle.prepare(&covered);
        }
    }

    /// Writes the summaries of a split, in its order. Fails if the host cancels one of them.
    pub(super) fn write(
        &mut self,
        read: &Read<'_, '_>,
        split: &Split,
        order: &CompressOrder,
    ) -> Result<Vec<WrittenSummary>, EngineError> {
        let summaries = split.summaries.iter();
        summaries
            .map(|covers| {
                let covered = self.covered(read, covers, order);
                self.cycle.write(&covered, order)
            })
            .collect()
    }

    /// Returns the largest size of the summary of these messages, in tokens: a tenth of the
    /// threshold, or a third of the messages if that is less.
    pub(super) fn budget(&self, read: &Read<'_, '_>, covers: &[usize]) -> u64 {
        let tokens = covers.iter().map(|at| read.outline.messages[*at].tokens());
        (self.most_tokens())
            .min(tokens.sum::<u64>() / COVERED_PART)
            .max(MIN_SUMMARY_TOKENS)
    }

    /// Returns the largest size of any summary, in tokens.
    fn most_tokens(&self) -> u64 {
        (self.settings.threshold(&self.window) as f64 * SUMMARY_SHARE) as u64
    }

    fn covered<'a>(
        &self,
        read: &Read<'_, 'a>,
        covers: &[usize],
        order: &CompressOrder,
    ) -> Covered<'a> {
        let views = covers.iter().map(|at| read.outline.messages[*at]);
        let (summaries, messages): (Vec<_>, Vec<_>) = views
            .clone()
            .partition(|view| view.kind() == MessageKind::Summary);
        let budget = self.budget(read, covers);
        // Their share is that of the largest summary. Old tool output is cut before it is covered, so
        // a summary may be small and still have to hold every rule.
        let all: Vec<_> = views.clone().collect();
        let rules = rules_in(&all, self.most_tokens(), &self.services);
        let earlier: Vec<String> = summaries
            .iter()
            .map(|view| without_rules(&self.earlier(body_of(view.text()))))
            .collect();
        Covered {
            ids: views.map(|view| view.id()).collect(),
            messages,
            previous: (!earlier.is_empty()).then(|| earlier.join("\n\n")),
            memory: order.memory.clone(),
            question: Question {
                current: current_question(read, order),
                format: self.settings.summary_format,
                budget: tokens_beside(&rules, budget, &self.services),
            },
            rules,
            services: self.services.clone(),
        }
    }

    /// Returns the text of an earlier summary, or the text with which the model replaced it since,
    /// shortened to the same size.
    fn earlier(&self, body: String) -> String {
        let Some(better) = self.cycle.better(&body) else {
            return body;
        };
        // The better text must not make the summary that is updated larger than it was.
        let most = self.services.count_tokens(&body).max(1);
        let format = self.settings.summary_format;
        cut_to(without_rules(&better), format, most, &self.services)
    }
}

/// Returns what a summary should emphasise: the current question, and the topic that the user wants
/// in more detail.
fn current_question(read: &Read<'_, '_>, order: &CompressOrder) -> String {
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

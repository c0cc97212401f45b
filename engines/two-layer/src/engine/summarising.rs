//! The summaries of a split: when they are prepared, and how one is written.

use contexture_digest::{Digest, Language, Readings};
use contexture_engine_api::{
    CompressOrder, CompressRequest, EngineError, MessageId, MessageKind, MessageView, Services,
};
use contexture_summaries::{Prompts, Ready, Task, WrittenSummary, digested, material};

use super::{Read, TwoLayer, is_short};
use crate::settings::SummaryFormat;
use crate::split::Split;
use crate::wording::{Question, SUMMARY_MARK, body_of, cut_to, digest_in_json, marked};

/// The share of the threshold from which the next summary is prepared,
const PREPARE_FROM: f64 = 0.8;
/// and from which those of single turns are.
const PREPARE_TURNS_FROM: f64 = 0.5;
/// The share of the threshold that a summary may take.
const SUMMARY_SHARE: f64 = 0.1;
/// The least tokens of a summary.
const MIN_SUMMARY_TOKENS: u64 = 64;
/// A summary is at most this part of what it covers.
const COVERED_PART: u64 = 3;

/// What a summary is made from.
struct Covered<'a> {
    ids: Vec<MessageId>,
    /// The messages, earlier summaries not among them.
    messages: Vec<MessageView<'a>>,
    previous: Option<String>,
    memory: Option<String>,
    question: Question,
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
        let (language, readings) = (Language::of(messages), Readings::default());
        let digest = Digest::written_in(language, &readings, messages, previous, None);
        let digest = digested(&digest, self.question.budget, &self.services);
        match self.question.format {
            SummaryFormat::Text => digest,
            SummaryFormat::Json => self.cut(digest_in_json(&digest)),
        }
    }

    fn finish(&self, text: String) -> String {
        self.cut(text)
    }
}

impl TwoLayer {
    /// Has the next summaries made once the threshold is near.
    pub(super) fn prepare(&mut self, request: &CompressRequest<'_>) {
        let (is_wanted, share) = match self.settings.per_turn_summaries {
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

    /// The summaries of a split.
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

    /// How many tokens the summary of these messages may have.
    pub(super) fn budget(&self, read: &Read<'_, '_>, covers: &[usize]) -> u64 {
        let tokens = covers.iter().map(|at| read.outline.messages[*at].tokens());
        let most = (self.settings.threshold(&self.window) as f64 * SUMMARY_SHARE) as u64;
        most.min(tokens.sum::<u64>() / COVERED_PART)
            .max(MIN_SUMMARY_TOKENS)
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
        let earlier: Vec<String> = summaries
            .iter()
            .map(|view| self.earlier(body_of(view.text())))
            .collect();
        Covered {
            ids: views.map(|view| view.id()).collect(),
            messages,
            previous: (!earlier.is_empty()).then(|| earlier.join("\n\n")),
            memory: order.memory.clone(),
            question: Question {
                current: current_question(read, order),
                format: self.settings.summary_format,
                budget: self.budget(read, covers),
            },
            services: self.services.clone(),
        }
    }

    /// The text of an earlier summary, or a better one that is no longer.
    fn earlier(&self, body: String) -> String {
        let Some(better) = self.cycle.better(&body) else {
            return body;
        };
        let most = self.services.count_tokens(&body).max(1);
        let format = self.settings.summary_format;
        cut_to(better.to_owned(), format, most, &self.services)
    }
}

/// What a summary is to bring out: the current question, and what the user wants in more detail.
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

//! Notes under headings as a [`Task`]: the prompts for the model, and the digest that replaces its
//! answer.
//!
//! [`Notes`] is what an engine with headings passes to [`SummaryCycle`](crate::SummaryCycle). The
//! engine fills its public fields, and the rest is done here: the prompts come from `brief`, the
//! material from `material`, and the facts from `facts`. The digest of the messages is computed
//! only when something needs it, because preparing a summary in the background does not.

use std::cell::OnceCell;

use contexture_digest::{Digest, Readings, RuleSection, WorkRecord, without_rules};
use contexture_engine_api::{CompressOrder, MessageId, MessageView, Services};

use crate::brief::{Brief, Headings};
use crate::cycle::{Ready, Task};
use crate::facts::{digested, digested_with_focus, rules_in, tokens_beside, with_facts};
use crate::material::material;
use crate::summariser::Prompts;

/// A task for notes on some messages. Create it with [`Notes::new`] and set the other fields as
/// needed.
#[derive(Debug)]
pub struct Notes<'t, 'a> {
    /// The messages that the notes are about, with their original texts. Facts are extracted from
    /// these.
    pub messages: &'t [MessageView<'a>],
    /// The same messages as the model reads them. They may be shorter than the originals.
    pub shown: &'t [MessageView<'a>],
    /// The part of the window that the notes replace, in order, including earlier summaries.
    pub window: &'t [MessageView<'a>],
    /// What was found in the messages when they arrived, which saves scanning them again. `None` if
    /// the engine keeps no readings.
    pub readings: Option<&'t Readings>,
    /// The headings that the notes are written under, and what belongs there.
    pub headings: &'static Headings,
    /// The text of the earlier summary that the notes update, or `None` if they are the first. Its
    /// rules are those in `window`.
    pub previous: Option<&'t str>,
    /// What the user asked for in messages that stay in the window. It serves as the goal unless
    /// the earlier summary names one.
    pub goal: Option<&'t str>,
    /// The largest size of the notes, in tokens.
    pub tokens: u64,
    /// The tokens of which the rules of users get their share: the largest summary that the engine
    /// ever writes. Notes on a few short messages are small, and still have to hold every rule.
    pub largest: u64,
    /// The compaction that the notes are for, which may have a focus and texts from memory.
    pub order: &'t CompressOrder,
    /// The host's services, with which tokens are counted.
    pub services: &'t Services,
    digest: OnceCell<Digest<'a>>,
    rules: OnceCell<RuleSection>,
}

impl<'t, 'a> Notes<'t, 'a> {
    /// Creates a task for notes of at most `tokens` tokens on these messages. The model reads the
    /// same messages, and nothing else is set.
    pub fn new(
        messages: &'t [MessageView<'a>],
        headings: &'static Headings,
        tokens: u64,
        order: &'t CompressOrder,
        services: &'t Services,
    ) -> Self {
        Self {
            messages,
            shown: messages,
            window: messages,
            readings: None,
            headings,
            previous: None,
            goal: None,
            tokens,
            largest: tokens,
            order,
            services,
            digest: OnceCell::new(),
            rules: OnceCell::new(),
        }
    }

    fn section(&self) -> &RuleSection {
        (self.rules).get_or_init(|| rules_in(self.window, self.largest, self.services))
    }

    /// The tokens of the notes beside the rules.
    fn room(&self) -> u64 {
        tokens_beside(self.section(), self.tokens, self.services)
    }

    fn digest(&self) -> &Digest<'a> {
        (self.digest).get_or_init(|| self.digest_of(self.messages, self.previous, self.goal))
    }

    fn digest_of(
        &self,
        messages: &[MessageView<'a>],
        previous: Option<&str>,
        goal: Option<&str>,
    ) -> Digest<'a> {
        let none = Readings::default();
        Digest::with(self.readings.unwrap_or(&none), messages, previous, goal)
    }
}

impl Task for Notes<'_, '_> {
    fn covers(&self) -> Vec<MessageId> {
        self.messages.iter().map(MessageView::id).collect()
    }

    fn previous(&self) -> Option<&str> {
        self.previous
    }

    fn prompts(&self, facts: Option<String>) -> Box<dyn Prompts> {
        Box::new(Brief {
            headings: self.headings,
            previous: self.previous.map(without_rules),
            facts,
            memory: self.order.memory.clone(),
            focus: self.order.focus.clone(),
            budget: self.room(),
        })
    }

    fn material(&self) -> Vec<String> {
        material(self.shown)
    }

    fn facts(&self) -> Option<String> {
        let half = self.room() / 2;
        Some(digested(
            self.digest(),
            &self.section().text,
            half,
            self.services,
        ))
    }

    fn rules(&self) -> RuleSection {
        self.section().clone()
    }

    fn extract(&self, ready: Option<&Ready>) -> String {
        let (rules, tokens, services) = (self.section(), self.room(), self.services);
        match (ready, self.order.focus.as_deref()) {
            (Some(ready), _) => {
                let rest = ready.rest(self.messages);
                let update = self.digest_of(&rest, Some(&ready.text), None);
                digested(&update, &rules.text, tokens, services)
            }
            (None, Some(topic)) => {
                let (digest, messages) = (self.digest(), self.messages);
                digested_with_focus(digest, messages, topic, rules, tokens, services)
            }
            (None, None) => digested(self.digest(), &rules.text, tokens, services),
        }
    }

    fn work_record(&self) -> WorkRecord {
        self.digest().work_record(self.previous.unwrap_or_default())
    }

    fn finish(&self, text: String) -> String {
        let (rules, tokens) = (self.section(), self.room());
        with_facts(text, self.digest(), rules, tokens, self.services)
    }
}

//! Notes under headings as a [`Task`]: what the model is asked, and the digest that stands in for its answer.

use std::cell::OnceCell;

use contexture_digest::{Digest, Readings};
use contexture_engine_api::{CompressOrder, MessageId, MessageView, Services};

use crate::brief::{Brief, Headings};
use crate::cycle::{Ready, Task};
use crate::facts::{digested, digested_with_focus, with_facts};
use crate::material::material;
use crate::summariser::Prompts;

/// Notes to write.
#[derive(Debug)]
pub struct Notes<'t, 'a> {
    /// The messages that they are about, as they were said.
    pub messages: &'t [MessageView<'a>],
    /// The same messages as a model reads them.
    pub shown: &'t [MessageView<'a>],
    /// What was found in them when they came.
    pub readings: Option<&'t Readings>,
    /// The headings to use.
    pub headings: &'static Headings,
    /// The earlier summary that they update.
    pub previous: Option<&'t str>,
    /// What a user asked for before them, in words that stay: the goal, unless the earlier summary names one.
    pub goal: Option<&'t str>,
    /// How long they may be, in tokens.
    pub tokens: u64,
    /// The compaction that they are for.
    pub order: &'t CompressOrder,
    /// Counts their tokens.
    pub services: &'t Services,
    digest: OnceCell<Digest<'a>>,
}

impl<'t, 'a> Notes<'t, 'a> {
    /// Notes on these messages.
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
            readings: None,
            headings,
            previous: None,
            goal: None,
            tokens,
            order,
            services,
            digest: OnceCell::new(),
        }
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
            previous: self.previous.map(str::to_owned),
            facts,
            memory: self.order.memory.clone(),
            focus: self.order.focus.clone(),
            budget: self.tokens,
        })
    }

    fn material(&self) -> Vec<String> {
        material(self.shown)
    }

    fn facts(&self) -> Option<String> {
        Some(digested(self.digest(), self.tokens / 2, self.services))
    }

    fn extract(&self, ready: Option<&Ready>) -> String {
        let (tokens, services) = (self.tokens, self.services);
        match (ready, self.order.focus.as_deref()) {
            (Some(ready), _) => {
                let rest = ready.rest(self.messages);
                let update = self.digest_of(&rest, Some(&ready.text), None);
                digested(&update, tokens, services)
            }
            (None, Some(topic)) => {
                digested_with_focus(self.digest(), self.messages, topic, tokens, services)
            }
            (None, None) => digested(self.digest(), tokens, services),
        }
    }

    fn finish(&self, text: String) -> String {
        with_facts(text, self.digest(), self.tokens, self.services)
    }
}

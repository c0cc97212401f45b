//! The span as the digest sees it: every text with its origin, and every tool call with its result.
//!
//! [`Span::of`] flattens messages into [`Source`]s, one for each text and each argument of a call,
//! and masks secrets on the way. Everything after it works on sources, so no later step can write a
//! secret. Summaries among the messages are set aside, because they are carried over rather than
//! scanned for facts. All positions are indices into `sources`, `calls` or the messages of the
//! span.

use std::borrow::Cow;

use contexture_engine_api::{MessageKind, MessageView};
use contexture_secrets::mask_secrets;
use hashbrown::HashMap;

use crate::arguments::arguments;
use crate::rules::is_output;
use crate::source::{Origin, Source};
use crate::tool::{Action, Call};

/// The texts and calls of a span of messages. Texts of nothing but white space are left out.
#[derive(Debug, Default)]
pub(crate) struct Span<'a> {
    pub(crate) sources: Vec<Source<'a>>,
    pub(crate) calls: Vec<Call<'a>>,
    pub(crate) messages: usize,
    pub(crate) summaries: Vec<&'a str>,
    pub(crate) is_masked: bool,
    /// The rules that the text of a user's message states, by the index of the message. If one is
    /// missing, its text has to be read.
    pub(crate) stated: HashMap<usize, Vec<String>>,
    /// Whether the message that is being added was read before and holds no secret, so that masking
    /// can be skipped.
    holds_no_secret: bool,
}

impl<'a> Span<'a> {
    /// Reads the messages. Those for whose index `is_known` returns true were read before and hold
    /// no secret.
    pub(crate) fn of(messages: &[MessageView<'a>], is_known: impl Fn(usize) -> bool) -> Self {
        let mut span = Self {
            messages: messages.len(),
            ..Self::default()
        };
        let mut open: HashMap<&str, usize> = HashMap::new();
        for (at, message) in messages.iter().enumerate() {
            let text = message.text();
            // Only the host knows what it wrote. A file may begin with the mark of a summary.
            if message.kind() == MessageKind::Summary {
                span.summaries.push(text);
                continue;
            }
            span.holds_no_secret = is_known(at);
            match message.tool_call_id() {
                Some(id) => span.add_result(at, message, open.get(id).copied()),
                // Some agents return the output of a command as the user's message. It is never the first,
                // which says what to do.
                None if at > 0 && message.is_real_user() && is_output(text) => {
                    span.add_result(at, message, None);
                }
                None if message.is_real_user() => span.add(at, Origin::User, text),
                None => span.add(at, Origin::Assistant, text),
            }
            for view in message.tool_calls() {
                // If an id is used again, its results belong to the later call from here on.
                open.insert(view.id(), span.calls.len());
                span.add_call(at, view.name(), view.arguments());
            }
        }
        span
    }

    fn mask(&mut self, text: &'a str) -> Cow<'a, str> {
        if self.holds_no_secret {
            return Cow::Borrowed(text);
        }
        let masked = mask_secrets(text);
        self.is_masked |= matches!(masked, Cow::Owned(_));
        masked
    }

    fn add(&mut self, message: usize, origin: Origin, text: &'a str) {
        let text = self.mask(text);
        self.add_named(message, origin, Cow::Borrowed(""), text);
    }

    fn add_named(&mut self, message: usize, origin: Origin, key: Cow<'a, str>, text: Cow<'a, str>) {
        if text.trim().is_empty() {
            return;
        }
        self.sources.push(Source {
            message,
            origin,
            key,
            text,
            error: None,
            outcome: None,
        });
    }

    fn add_call(&mut self, message: usize, name: &'a str, json: &'a str) {
        let call = self.calls.len();
        let first = self.sources.len();
        // Mask the arguments as a whole, because a value may be secret only because of its key.
        match self.mask(json) {
            Cow::Borrowed(json) => {
                for argument in arguments(json) {
                    let key = Cow::Borrowed(argument.key);
                    self.add_named(message, Origin::Argument(call), key, argument.value);
                }
            }
            Cow::Owned(json) => {
                for argument in arguments(&json) {
                    let key = Cow::Owned(argument.key.to_owned());
                    let value = Cow::Owned(argument.value.into_owned());
                    self.add_named(message, Origin::Argument(call), key, value);
                }
            }
        }
        let masked_name = self.mask(name);
        self.calls.push(Call {
            message,
            name: masked_name,
            action: Action::of(name, &self.sources[first..]),
            arguments: first..self.sources.len(),
            result: None,
            is_answered: false,
            is_shortened: false,
            failed: false,
        });
    }

    fn add_result(&mut self, at: usize, message: &MessageView<'a>, call: Option<usize>) {
        // A result is a source of its own if its call is before the span or already has a result.
        let call = call
            .filter(|call| !self.calls[*call].is_answered)
            .unwrap_or_else(|| {
                self.add_call(at, message.tool_name().unwrap_or("tool"), "");
                self.calls.len() - 1
            });
        let before = self.sources.len();
        self.add(at, Origin::Result(call), message.text());
        let answer = &mut self.calls[call];
        answer.result = (self.sources.len() > before).then_some(before);
        answer.is_answered = true;
        answer.is_shortened = message.kind() == MessageKind::Replaced;
        answer.failed = message.is_error();
    }

    /// Returns the sources with a user's own words, each with its index.
    pub(crate) fn user_sources(&self) -> impl DoubleEndedIterator<Item = (usize, &Source<'a>)> {
        let of_user = |(_, source): &(usize, &Source<'_>)| source.origin == Origin::User;
        self.sources.iter().enumerate().filter(of_user)
    }
}

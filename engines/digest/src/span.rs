//! The span as the digest sees it: every text with its origin, and every tool call with its result.

use std::borrow::Cow;

use contexture_engine_api::{MessageKind, MessageView, SUMMARY_MARK};
use contexture_secrets::mask_secrets;
use hashbrown::HashMap;

use crate::arguments::arguments;
use crate::readings::Reading;
use crate::tool::{Action, Call};

/// Where a text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A user's own words.
    User,
    /// Text by the assistant, or by anyone but a user or a tool.
    Assistant,
    /// An argument of this call.
    Argument(usize),
    /// The result of this call.
    Result(usize),
}

/// One text of the span, with its secrets masked.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// The index of its message, from 0.
    pub(crate) message: usize,
    pub(crate) origin: Origin,
    /// For an argument: its key.
    pub(crate) key: Cow<'a, str>,
    pub(crate) text: Cow<'a, str>,
    /// The byte of the first word that reports an error.
    pub(crate) error: Option<usize>,
    /// The byte of the last word that reports the outcome of a test run.
    pub(crate) outcome: Option<usize>,
}

/// The texts and calls of a span of messages.
#[derive(Debug, Default)]
pub(crate) struct Span<'a> {
    pub(crate) sources: Vec<Source<'a>>,
    pub(crate) calls: Vec<Call<'a>>,
    /// The number of messages.
    pub(crate) messages: usize,
    /// The summaries among the messages, in order.
    pub(crate) summaries: Vec<&'a str>,
    /// Whether anything was masked.
    pub(crate) is_masked: bool,
    /// The message that is being added was read before, and holds no secret.
    holds_no_secret: bool,
}

impl<'a> Span<'a> {
    /// What was read of each message, where it was, says that nothing in it is secret.
    pub(crate) fn of(messages: &[MessageView<'a>], known: &[Option<&Reading>]) -> Self {
        let mut span = Self {
            messages: messages.len(),
            ..Self::default()
        };
        let mut open: HashMap<&str, usize> = HashMap::new();
        for (at, message) in messages.iter().enumerate() {
            let text = message.text();
            if message.kind() == MessageKind::Summary || text.starts_with(SUMMARY_MARK) {
                span.summaries.push(text);
                continue;
            }
            span.holds_no_secret = matches!(known.get(at), Some(Some(_)));
            match message.tool_call_id() {
                Some(id) => span.add_result(at, message, open.get(id).copied()),
                None if message.is_real_user() => span.add(at, Origin::User, text),
                None => span.add(at, Origin::Assistant, text),
            }
            for view in message.tool_calls() {
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
        // Masked as a whole: a value may be secret by its key.
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
            failed: false,
        });
    }

    fn add_result(&mut self, at: usize, message: &MessageView<'a>, call: Option<usize>) {
        // A result whose call is before the span, or a second result of a call, is a source of its own.
        let call = call
            .filter(|call| self.calls[*call].result.is_none())
            .unwrap_or_else(|| {
                self.add_call(at, message.tool_name().unwrap_or("tool"), "");
                self.calls.len() - 1
            });
        let before = self.sources.len();
        self.add(at, Origin::Result(call), message.text());
        let answer = &mut self.calls[call];
        answer.result = (self.sources.len() > before).then_some(before);
        answer.failed = message.is_error();
    }

    /// The sources that hold a user's own words, with their index.
    pub(crate) fn user_sources(&self) -> impl DoubleEndedIterator<Item = (usize, &Source<'a>)> {
        let of_user = |(_, source): &(usize, &Source<'_>)| source.origin == Origin::User;
        self.sources.iter().enumerate().filter(of_user)
    }
}

//! What of a conversation is still in the window when the agent goes on after a compaction.
//!
//! The recording shows what the agent used next. [`Mentions`] knows for each message which
//! identifiers, commands and rules are in it. [`Continuation::note`] looks for them in the window
//! that a compaction left: the identifiers and commands that the agent goes on to use, and the rules
//! that the user had stated. What the agent never met before the compaction does not count, nor what
//! a tool or the user shows it again before it uses it.
//!
//! Read [`Continuation`] first. An identifier is what [`identifiers`] finds, a command is an argument
//! of a tool call with a known name, and a rule is a sentence that
//! [`contexture_digest::Rules`] recognises in a user's own words. What an engine's tools could bring
//! back, such as a search, is not measured.

use std::collections::{BTreeSet, HashMap};

use aho_corasick::AhoCorasick;
use contexture_digest::Rules;
use contexture_engine_api::{MessageId, MessageView};
use contexture_formats::{self as formats, Conversation, FormatError, Message};
use serde::Serialize;
use serde_json::Value;

use super::identifiers::identifiers;
use super::player::Step;

/// The arguments of tool calls that hold a command.
const COMMAND_ARGUMENTS: [&str; 4] = ["command", "cmd", "script", "commands"];

/// The shortest command that counts, in bytes. A shorter one, such as `ls`, stands in other words.
const LEAST_COMMAND: usize = 4;

/// What was in the window after the compactions of one or more conversations. Each figure is summed
/// over the compactions, so something that is needed after two of them counts twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Continuation {
    /// The identifiers that the agent used after a compaction, of those that it had met before and
    /// was not shown again first.
    pub needed: u64,
    /// How many of `needed` were in the window that the compaction left.
    pub needed_in_window: u64,
    /// The commands that the agent had run before a compaction and ran again after it.
    pub commands: u64,
    /// How many of `commands` were in the window, word for word.
    pub commands_in_window: u64,
    /// The rules that the user had stated before a compaction.
    pub rules: u64,
    /// How many of `rules` were in the window, word for word.
    pub rules_in_window: u64,
}

impl Continuation {
    /// Counts what is in the window after a compaction. A step without a compaction is ignored.
    ///
    /// # Errors
    /// Returns [`FormatError`] if the request of this step cannot be read.
    pub fn note(&mut self, mentions: &Mentions, step: &Step<'_>) -> Result<(), FormatError> {
        if step.is_compacted {
            let wire = step.body.wire();
            let window: Vec<String> = formats::parse_messages(wire.format, &wire.messages)?
                .iter()
                .map(words_of)
                .collect();
            self.add(&mentions.counted(step.answer, &window.join("\n")));
        }
        Ok(())
    }

    /// Adds the figures of another conversation.
    pub fn add(&mut self, other: &Self) {
        self.needed += other.needed;
        self.needed_in_window += other.needed_in_window;
        self.commands += other.commands;
        self.commands_in_window += other.commands_in_window;
        self.rules += other.rules;
        self.rules_in_window += other.rules_in_window;
    }
}

/// What the messages of a conversation mention. Create it once and use it for every engine that
/// plays the conversation.
#[derive(Debug)]
pub struct Mentions {
    /// Every text that may be looked for. The numbers below are indices into it.
    texts: Vec<String>,
    /// Finds all of `texts`. `None` if there are none.
    finder: Option<AhoCorasick>,
    /// The first message that mentions a text, also as a part of a longer word.
    first_met: Vec<usize>,
    messages: Vec<Mentioned>,
}

/// What one message mentions.
#[derive(Debug, Default)]
struct Mentioned {
    is_agent: bool,
    identifiers: Vec<usize>,
    commands: Vec<usize>,
    rules: Vec<usize>,
    /// The whole message, if it has rules. A rule that was put together from two lines stands only
    /// in this form in a message that was kept.
    whole: Option<usize>,
}

/// Numbers texts in the order in which they come.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(&mut self, text: String) -> usize {
        let next = self.0.len();
        *self.0.entry(text).or_insert(next)
    }

    fn into_texts(self) -> Vec<String> {
        let mut numbered: Vec<_> = self.0.into_iter().collect();
        numbered.sort_unstable_by_key(|(_, number)| *number);
        numbered.into_iter().map(|(text, _)| text).collect()
    }
}

impl Mentions {
    /// Reads the messages of a conversation, without its system prompt.
    pub fn of(conversation: &Conversation) -> Self {
        let words: Vec<String> = conversation.messages().iter().map(words_of).collect();
        let mut numbers = Numbers::default();
        let mut messages: Vec<Mentioned> = Vec::with_capacity(words.len());
        let found = words.iter().map(|words| identifiers(words));
        let found: Vec<BTreeSet<String>> = found.collect();
        // Only what the agent uses is looked for.
        for (message, found) in conversation.messages().iter().zip(&found) {
            let is_agent = message.role == "assistant";
            let mut mentioned = Mentioned {
                is_agent,
                ..Mentioned::default()
            };
            if is_agent {
                let names = found.iter().cloned();
                mentioned.identifiers = names.map(|name| numbers.of(name)).collect();
                let commands = commands_of(message).into_iter();
                mentioned.commands = commands.map(|command| numbers.of(command)).collect();
            } else if message.role == "user" && !message.is_summary() {
                let view = MessageView::new(MessageId(1), "user").with_text(&message.text);
                let rules = Rules::of(&[view], None);
                let rules = rules.iter().map(|rule| numbers.of(rule.to_owned()));
                mentioned.rules = rules.collect();
                if !mentioned.rules.is_empty() {
                    mentioned.whole = Some(numbers.of(words_of(message)));
                }
            }
            messages.push(mentioned);
        }
        for (mentioned, found) in messages.iter_mut().zip(&found) {
            if !mentioned.is_agent {
                let known = found.iter().filter_map(|name| numbers.0.get(name));
                mentioned.identifiers = known.copied().collect();
            }
        }
        let texts = numbers.into_texts();
        let mut mentions = Self {
            // It can only fail if the texts are larger than memory.
            finder: match texts.is_empty() {
                true => None,
                false => AhoCorasick::new(&texts).ok(),
            },
            first_met: vec![usize::MAX; texts.len()],
            texts,
            messages,
        };
        for (at, words) in words.iter().enumerate() {
            for (first, is_in) in mentions.first_met_mut(words) {
                if is_in {
                    *first = (*first).min(at);
                }
            }
        }
        mentions
    }

    fn first_met_mut(&mut self, words: &str) -> impl Iterator<Item = (&mut usize, bool)> {
        let found = self.found_in(words);
        self.first_met.iter_mut().zip(found)
    }

    /// Returns for each text whether it stands in `words`.
    fn found_in(&self, words: &str) -> Vec<bool> {
        let mut found = vec![false; self.texts.len()];
        let finder = self.finder.iter();
        for one in finder.flat_map(|finder| finder.find_overlapping_iter(words)) {
            found[one.pattern().as_usize()] = true;
        }
        found
    }

    /// Returns the identifiers that the agent uses from the message `at` on before anybody shows
    /// them to it, of those that it met before.
    pub fn needed(&self, at: usize) -> impl Iterator<Item = &str> {
        let needed = self.needed_numbers(at).into_iter();
        needed.filter_map(|number| self.texts.get(number).map(String::as_str))
    }

    fn needed_numbers(&self, at: usize) -> BTreeSet<usize> {
        let (mut shown, mut needed) = (BTreeSet::new(), BTreeSet::new());
        for message in self.messages.iter().skip(at) {
            match message.is_agent {
                true => {
                    let used = message.identifiers.iter().copied();
                    let used = used.filter(|name| !shown.contains(name));
                    needed.extend(used.filter(|name| self.first_met[*name] < at));
                }
                false => shown.extend(message.identifiers.iter().copied()),
            }
        }
        needed
    }

    /// Returns the commands that are run before the message `at` and again from it on.
    fn commands_again(&self, at: usize) -> BTreeSet<usize> {
        let (before, after) = self.messages.split_at(at.min(self.messages.len()));
        let all = |messages: &[Mentioned]| -> BTreeSet<usize> {
            let commands = messages.iter().flat_map(|message| &message.commands);
            commands.copied().collect()
        };
        &all(before) & &all(after)
    }

    /// Counts what of the messages before `at` is in the text of a window.
    fn counted(&self, at: usize, window: &str) -> Continuation {
        let is_in = self.found_in(window);
        let count = |numbers: &BTreeSet<usize>| {
            let kept = numbers.iter().filter(|number| is_in[**number]);
            (numbers.len() as u64, kept.count() as u64)
        };
        let mut counted = Continuation::default();
        (counted.needed, counted.needed_in_window) = count(&self.needed_numbers(at));
        (counted.commands, counted.commands_in_window) = count(&self.commands_again(at));
        let mut rules: BTreeSet<usize> = BTreeSet::new();
        let mut kept = rules.clone();
        for message in self.messages.iter().take(at) {
            let is_whole = message.whole.is_some_and(|whole| is_in[whole]);
            let stated = message.rules.iter().copied();
            rules.extend(stated.clone());
            kept.extend(stated.filter(|rule| is_whole || is_in[*rule]));
        }
        counted.rules = rules.len() as u64;
        counted.rules_in_window = kept.len() as u64;
        counted
    }
}

/// Returns everything that a message says: its text, and the values of its calls' arguments.
pub fn words_of(message: &Message) -> String {
    let mut words = message.text.clone();
    for call in &message.calls {
        words.push('\n');
        match serde_json::from_str(&call.arguments) {
            Ok(value) => push_strings(&value, &mut words),
            Err(_) => words.push_str(&call.arguments),
        }
    }
    words
}

fn push_strings(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            into.push_str(text);
            into.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| push_strings(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| push_strings(field, into)),
        _ => {}
    }
}

/// Returns the commands that the calls of a message run.
fn commands_of(message: &Message) -> Vec<String> {
    let arguments = message.calls.iter().filter_map(|call| {
        let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
        COMMAND_ARGUMENTS
            .iter()
            .find_map(|name| command_in(arguments.get(name)?))
    });
    arguments
        .map(|command| command.trim().to_owned())
        .filter(|command| command.len() >= LEAST_COMMAND)
        .collect()
}

/// Returns the command in an argument, which is a text or a list such as `["bash", "-lc", "make"]`.
/// The last element of a list is what the window can be searched for.
fn command_in(argument: &Value) -> Option<String> {
    match argument {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => words.last()?.as_str().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

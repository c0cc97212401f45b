//! One event of the conversation, and its reversible compaction.

use contexture_digest::cut_arguments;
use contexture_engine_api::{MessageView, RESTORED, Replacement, Services, ShortArguments};
use contexture_secrets::mask_secrets;
use contexture_summaries::{SEAL_TOKENS, tool_of};
use serde_json::{Map, Value, json};

/// Under what this stands in the state of a compacted message: when and how it was compacted, and the tokens saved.
pub const COMPACTION_KEY: &str = "__compaction__";
/// What a compacted message begins with.
pub(crate) const MARK: &str = "[COMPACTED: ";

/// The most characters of a topic.
const TOPIC_CHARS: usize = 60;
/// Arguments of more characters are cut,
const LONG_ARGUMENTS: usize = 300;
/// to so many.
const SHORT_ARGUMENTS: usize = 120;
const ARGUMENT_MARK: &str = "… [COMPACTED]";
/// The tokens of the number that distinguishes a compacted form from others.
const NUMBER_TOKENS: u64 = 3;

/// A message that may be compacted.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The message.
    pub message: &'a MessageView<'a>,
    /// For a tool result: the message with its call, where that is known.
    pub caller: Option<&'a MessageView<'a>>,
    /// The host's services, to count tokens with.
    pub services: &'a Services,
}

/// A message in its compacted form.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Compacted {
    /// What stands in its place: `[COMPACTED: topic]`; none leaves its text as it is.
    pub text: Option<String>,
    /// Its calls' arguments that were cut.
    pub arguments: Vec<ShortArguments>,
    /// What stands under [`COMPACTION_KEY`]. The original is not part of it: the transcript has it.
    pub kept: Value,
}

impl<'a> Event<'a> {
    pub(crate) fn new(
        message: &'a MessageView<'a>,
        caller: Option<&'a MessageView<'a>>,
        services: &'a Services,
    ) -> Self {
        Self {
            message,
            caller,
            services,
        }
    }

    /// Whether it holds a block of code.
    pub fn has_code(&self) -> bool {
        self.message.text().contains("```")
    }

    /// Its compacted form as this engine makes it; none where that would be no smaller.
    pub fn compacted(&self) -> Option<Compacted> {
        let strategy = match self.has_code() {
            true => "code_compression",
            false => "compaction",
        };
        let text = format!("{MARK}{}]", self.topic());
        let compacted = self.compacted_to(&text, strategy);
        let is_smaller = compacted.text.is_some() || !compacted.arguments.is_empty();
        is_smaller.then_some(compacted)
    }

    /// Its compacted form with this text, where that is smaller, made by this strategy.
    pub fn compacted_to(&self, text: &str, strategy: &str) -> Compacted {
        let message = self.message;
        let saved = self.saved(message.text(), text, SEAL_TOKENS + NUMBER_TOKENS);
        let mut tokens_saved = saved.unwrap_or(0);
        let mut arguments = Vec::new();
        for (index, call) in message.tool_calls().iter().enumerate() {
            if call.arguments().chars().nth(LONG_ARGUMENTS).is_none() {
                continue;
            }
            let short = cut_arguments(call.arguments(), SHORT_ARGUMENTS, ARGUMENT_MARK);
            let saved = short
                .as_ref()
                .and_then(|short| self.saved(call.arguments(), short, 0));
            if let (Some(short), Some(saved)) = (short, saved) {
                tokens_saved += saved;
                arguments.push(ShortArguments::new(index, short));
            }
        }
        let kept = json!({
            "tokens_saved": tokens_saved,
            "compacted_at": iso(self.services.now_ms()),
            "strategy": strategy,
        });
        Compacted {
            text: saved.map(|_| text.to_owned()),
            arguments,
            kept,
        }
    }

    /// The tokens that the new text saves; none where it saves none.
    fn saved(&self, old: &str, new: &str, added: u64) -> Option<u64> {
        if new.len() >= old.len() {
            return None;
        }
        let old = self.services.count_tokens(old);
        let new = self.services.count_tokens(new);
        (new + added < old).then(|| old - new)
    }

    /// What it is about, in a line: of a result the tool and what it was asked, of words how they begin.
    fn topic(&self) -> String {
        let message = self.message;
        let line = match message.role() {
            "tool" => {
                let id = message.tool_call_id();
                let calls = self.caller.map_or(&[][..], |caller| caller.tool_calls());
                let call = calls.iter().find(|call| Some(call.id()) == id);
                let asked = call.map_or("", |call| call.arguments());
                let asked = match serde_json::from_str::<Map<String, Value>>(asked) {
                    Ok(arguments) => arguments
                        .values()
                        .find_map(|value| value.as_str().map(first_line)),
                    Err(_) => None,
                };
                let failed = if message.is_error() { "error of " } else { "" };
                match asked {
                    Some(asked) => format!("{failed}{} {asked}", tool_of(message, self.caller)),
                    None => format!("{failed}{}", tool_of(message, self.caller)),
                }
            }
            _ => topic_of(message.text()),
        };
        let masked = mask_secrets(&line);
        // A bracket would end it.
        let plain = masked.replace(']', ")").replace('[', "(");
        match plain.char_indices().nth(TOPIC_CHARS) {
            Some((end, _)) => format!("{}…", plain[..end].trim_end()),
            None => plain,
        }
    }
}

impl Compacted {
    /// The entry of a proposal, with what else is in the message's state.
    pub(crate) fn replacement(self, message: &MessageView<'_>) -> Replacement {
        let mut state = state_of(message);
        state.remove(RESTORED);
        state.insert(COMPACTION_KEY.to_owned(), self.kept);
        Replacement::new(message.id())
            .text(self.text)
            .arguments(self.arguments)
            .state(Some(Value::Object(state)))
    }
}

/// What is kept with a message.
pub(crate) fn state_of(message: &MessageView<'_>) -> Map<String, Value> {
    let state = message.state().unwrap_or("{}");
    serde_json::from_str(state).unwrap_or_default()
}

/// A time as text, in milliseconds since the Unix epoch.
pub(crate) fn iso(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().to_owned()
}

/// The first words outside of code; of code alone its language.
fn topic_of(text: &str) -> String {
    let mut in_code = false;
    let mut language = "";
    for line in text.lines().map(str::trim) {
        if let Some(fence) = line.strip_prefix("```") {
            in_code = !in_code;
            if in_code && language.is_empty() {
                language = fence.trim();
            }
        } else if !in_code && !line.is_empty() {
            return line.trim_start_matches(['#', '*', '-', ' ']).to_owned();
        }
    }
    format!("{language} code").trim().to_owned()
}

//! One message as an event of the conversation, and its reversible compaction.
//!
//! [`Event`] is what a step sees: the message, the message with its call, and the services.
//! only on the words. [`Compacted`] is the result. It holds only what is shown, since the original
//! stays in the transcript.

use contexture_digest::cut_arguments;
use contexture_engine_api::{MessageView, RESTORED, Replacement, Services, ShortArguments};
use contexture_secrets::mask_secrets;
use contexture_summaries::{SEAL_TOKENS, tool_of};
use serde_json::{Map, Value, json};

/// The key under which the state of a compacted message records when and how it was compacted, and
/// how many tokens that saved.
pub const COMPACTION_KEY: &str = "__compaction__";
/// The beginning of every compacted text. The model and the engine recognise a compacted message by
/// it, and the host does not add a mark of its own to such a text.
pub(crate) const MARK: &str = "[COMPACTED: ";

const TOPIC_CHARS: usize = 60;
/// Arguments with more characters than this are shortened to `SHORT_ARGUMENTS` characters. The gap
/// between the two makes sure that each shortening saves something.
const LONG_ARGUMENTS: usize = 300;
const SHORT_ARGUMENTS: usize = 120;
const ARGUMENT_MARK: &str = "… [COMPACTED]";
/// The tokens of the number that may be appended to a compacted text to make it unique.
const NUMBER_TOKENS: u64 = 3;

/// A message that may be compacted, with what is needed to decide how. Steps receive it from the
/// engine.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The message itself, with its role, text, calls and kind. The view is valid only during the
    /// call.
    pub message: &'a MessageView<'a>,
    /// For a tool result, the message with its call. `None` if the call is unknown or the message
    /// is no tool result.
    pub caller: Option<&'a MessageView<'a>>,
    /// The host's services, which count tokens and know the time. A step needs them only if it
    /// builds a form by itself.
    pub services: &'a Services,
}

/// A message in its compacted form, as a step returns it. Build it with [`Event::compacted`] or
/// [`Event::compacted_to`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Compacted {
    /// The text shown instead, `[COMPACTED: topic]`. `None` leaves the text as it is, for instance
    /// because it is too short to save anything.
    pub text: Option<String>,
    /// The arguments of its calls that were shortened, by index of the call. Empty if none was.
    pub arguments: Vec<ShortArguments>,
    /// The value under [`COMPACTION_KEY`] in the state of the message. The original is not part of
    /// it, since the transcript has it.
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

    /// Whether the text has a fenced code block. Such a message is recorded with another strategy.
    pub fn has_code(&self) -> bool {
        self.message.text().contains("```")
    }

    /// Returns the compacted form as this engine makes it, or `None` if it would not be smaller
    /// than the original.
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

    /// Returns the compacted form with `text` shown instead, recorded under the name of this
    /// strategy. The text is used only if it saves tokens. Long arguments are shortened in any
    /// case.
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

    /// The tokens that the new text saves, or `None` if it saves none. `added` tokens are appended
    /// to it later.
    fn saved(&self, old: &str, new: &str, added: u64) -> Option<u64> {
        // Longer in bytes is seldom fewer in tokens, and this check costs nothing.
        if new.len() >= old.len() {
            return None;
        }
        let old = self.services.count_tokens(old);
        let new = self.services.count_tokens(new);
        (new + added < old).then(|| old - new)
    }

    /// The topic in one line of at most 60 characters. For a tool result it is the tool and its
    /// first text argument, for other messages the beginning of the text.
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
        // A bracket inside the topic would end the mark early.
        let plain = masked.replace(']', ")").replace('[', "(");
        match plain.char_indices().nth(TOPIC_CHARS) {
            Some((end, _)) => format!("{}…", plain[..end].trim_end()),
            None => plain,
        }
    }
}

impl Compacted {
    /// The entry of a proposal that shows this form. The remaining state of the message is kept.
    pub(crate) fn replacement(self, message: &MessageView<'_>) -> Replacement {
        let mut state = state_of(message);
        // The message is no longer restored once it is compacted again.
        state.remove(RESTORED);
        state.insert(COMPACTION_KEY.to_owned(), self.kept);
        Replacement::new(message.id())
            .text(self.text)
            .arguments(self.arguments)
            .state(Some(Value::Object(state)))
    }
}

/// The state that the host keeps with a message, or an empty one if it has none or it is not a JSON
/// object.
pub(crate) fn state_of(message: &MessageView<'_>) -> Map<String, Value> {
    let state = message.state().unwrap_or("{}");
    serde_json::from_str(state).unwrap_or_default()
}

/// A time in milliseconds since the Unix epoch as ISO 8601 text, or as the bare number if it is out
/// of range.
pub(crate) fn iso(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().to_owned()
}

/// The first line outside of code blocks, without Markdown markers. If there is only code, its
/// language.
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

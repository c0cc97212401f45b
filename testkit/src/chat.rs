//! Conversations to show to an engine.

use contexture_contract::{
    CALL_TOKENS, Checked, Grouping, Limits, MESSAGE_TOKENS, NOTICE_SEAL, SUMMARY_SEAL, Violation,
    check,
};
use contexture_engine_api::{
    Compaction, CompressOrder, Entry, MessageId, MessageKind, MessageView, NOTICE_MARK,
    OwnedMessage, OwnedToolCall, SUMMARY_MARK, WindowState, with_views,
};
use serde_json::{Value, json};

use crate::count;

/// What an image costs, in tokens.
pub const IMAGE_TOKENS: u64 = 1_000;

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id, which its result names.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments: JSON text.
    pub arguments: String,
}

/// A message. Its tokens are those of its text ([`count`]) and of the name and the arguments of each call,
/// with [`MESSAGE_TOKENS`], [`CALL_TOKENS`] for each call and [`IMAGE_TOKENS`] for an image: what the
/// contract counts too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id: from 1 on, in the order of arrival.
    pub id: MessageId,
    /// Who says it: `user`, `assistant`, `tool`.
    pub role: &'static str,
    /// Original, or what a compaction left.
    pub kind: MessageKind,
    /// Its text.
    pub text: String,
    /// The tools that it calls.
    pub calls: Vec<Call>,
    /// The id of the call that it answers, and the tool.
    pub result_of: Option<(String, String)>,
    /// When it was said, in milliseconds since the Unix epoch.
    pub time_ms: Option<i64>,
    /// Whether it holds an image.
    pub has_media: bool,
    /// Whether it holds thinking.
    pub has_thinking: bool,
    /// Whether it reports an error.
    pub is_error: bool,
    /// What the engine keeps with it: a JSON object.
    pub state: Option<Value>,
}

impl Message {
    fn owned(&self) -> OwnedMessage {
        let call = |call: &Call| {
            OwnedToolCall::default()
                .id(call.id.clone())
                .name(call.name.clone())
                .arguments(call.arguments.clone())
        };
        let (answers, tool) = self.result_of.clone().unzip();
        OwnedMessage::default()
            .id(self.id)
            .role(self.role.to_owned())
            .kind(self.kind)
            .text(self.text.clone())
            .tool_calls(self.calls.iter().map(call).collect())
            .tool_call_id(answers)
            .tool_name(tool)
            .raw(self.raw())
            .time_ms(self.time_ms)
            .has_thinking(self.has_thinking)
            .has_media(self.has_media)
            .is_error(self.is_error)
            .state(self.state.as_ref().map(Value::to_string))
            .tokens(self.tokens())
    }

    /// Its tokens.
    pub fn tokens(&self) -> u64 {
        let calls = self.calls.iter();
        let calls = calls.map(|call| CALL_TOKENS + count(&call.name) + count(&call.arguments));
        let media = if self.has_media { IMAGE_TOKENS } else { 0 };
        let seal = match self.kind {
            MessageKind::Summary => count(SUMMARY_SEAL),
            MessageKind::Notice => count(NOTICE_SEAL),
            _ => 0,
        };
        MESSAGE_TOKENS + count(&self.text) + seal + media + calls.sum::<u64>()
    }

    /// What it is on the wire: a message of OpenAI's chat format.
    pub fn raw(&self) -> String {
        let mut raw = json!({"role": self.role, "content": self.text});
        if self.has_media {
            raw["content"] = json!([
                {"type": "text", "text": self.text},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]);
        }
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|call| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            });
            raw["tool_calls"] = Value::Array(calls.collect());
        }
        if let Some((call, _)) = &self.result_of {
            raw["tool_call_id"] = json!(call);
        }
        raw.to_string()
    }
}

/// A conversation, or the window that a compaction made of it. Each builder gives the message that it
/// added, for whatever else is to be said of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chat {
    /// The messages, in order.
    pub messages: Vec<Message>,
    pub(crate) last_id: u64,
    /// Those of which a shorter form is in the window, as they were said.
    originals: Vec<Message>,
}

impl Chat {
    /// Adds a message of this role.
    pub fn push(&mut self, role: &'static str, text: impl Into<String>) -> &mut Message {
        self.last_id += 1;
        self.messages.push(Message {
            id: MessageId(self.last_id),
            role,
            kind: MessageKind::Original,
            text: text.into(),
            calls: Vec::new(),
            result_of: None,
            time_ms: None,
            has_media: false,
            has_thinking: false,
            is_error: false,
            state: None,
        });
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// The user says something.
    pub fn user(&mut self, text: impl Into<String>) -> &mut Message {
        self.push("user", text)
    }

    /// The user shows an image.
    pub fn image(&mut self, text: impl Into<String>) -> &mut Message {
        let message = self.push("user", text);
        message.has_media = true;
        message
    }

    /// The assistant says something.
    pub fn assistant(&mut self, text: impl Into<String>) -> &mut Message {
        self.push("assistant", text)
    }

    /// The assistant calls tools: the id, the tool and the arguments of each call.
    pub fn calls(&mut self, text: &str, calls: &[(&str, &str, &str)]) -> &mut Message {
        let message = self.push("assistant", text);
        let call = |&(id, name, arguments): &(&str, &str, &str)| Call {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        message.calls = calls.iter().map(call).collect();
        message
    }

    /// A tool answers the call of this id.
    pub fn result(&mut self, id: &str, tool: &str, text: impl Into<String>) -> &mut Message {
        let message = self.push("tool", text);
        message.result_of = Some((id.into(), tool.into()));
        message
    }

    /// One call and its result.
    pub fn tool(&mut self, tool: &str, arguments: &str, text: impl Into<String>) -> &mut Message {
        let id = format!("call_{}", self.last_id);
        self.calls("", &[(&id, tool, arguments)]);
        self.result(&id, tool, text)
    }

    /// `turns` exchanges of about `chars` characters each.
    pub fn talk(&mut self, turns: usize, chars: usize) {
        for turn in 0..turns {
            self.user(format!("Question {turn}: {}", filler(turn, chars / 2)));
            self.assistant(format!("Answer {turn}: {}", filler(turn + 7, chars / 2)));
        }
    }

    /// Lends the messages as an engine sees them.
    pub fn with_views<T>(&self, work: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
        views_of(&self.messages, work)
    }

    /// The tokens of all messages.
    pub fn tokens(&self) -> u64 {
        self.messages.iter().map(Message::tokens).sum()
    }

    /// A window of this size with the conversation in it, beside so many tokens of system prompt and tools.
    pub fn window(&self, context_length: u64, fixed_tokens: u64) -> WindowState {
        WindowState::default()
            .context_length(context_length)
            .fixed_tokens(fixed_tokens)
            .prompt_tokens(fixed_tokens + self.tokens())
            .messages(self.messages.len())
    }

    /// The message of this id, where the window still shows it.
    pub fn get(&self, id: MessageId) -> Option<&Message> {
        self.messages.iter().find(|message| message.id == id)
    }

    /// Holds the answer to an order to compact this window to the contract, in a chat format.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(
        &self,
        proposal: &Compaction,
        order: &CompressOrder,
    ) -> Result<Checked, Violation> {
        self.with_views(|views| {
            let limits = Limits::of(order, views, Grouping::Chat);
            check(views, proposal, &limits, count)
        })
    }

    /// The window that a proposal makes of this one. Summaries and notices become messages of the user's
    /// role, marked as a host marks them.
    ///
    /// # Panics
    /// Where the proposal names what is not there; [`check`](Self::check) it first.
    pub fn apply(&self, proposal: &Compaction) -> Self {
        self.apply_marked(proposal, &[])
    }

    /// The same for an engine that has marks of its own.
    ///
    /// # Panics
    /// As there.
    pub fn apply_marked(&self, proposal: &Compaction, marks: &[String]) -> Self {
        let at = |id| self.get(id).expect("a message of the window").clone();
        let marked = |text: &str, mark: &str| {
            let own = marks.iter().map(String::as_str);
            match own.chain([mark]).any(|mark| text.starts_with(mark)) {
                true => text.to_owned(),
                false => format!("{mark}\n{text}"),
            }
        };
        let mut next = Self {
            messages: Vec::new(),
            last_id: self.last_id,
            originals: self.originals.clone(),
        };
        for entry in &proposal.entries {
            match entry {
                Entry::Keep(id) => next.messages.push(at(*id)),
                Entry::Restore(id) => {
                    let original = self.originals.iter().find(|message| message.id == *id);
                    next.messages
                        .push(original.cloned().unwrap_or_else(|| at(*id)));
                }
                Entry::Replace(new) => {
                    let mut message = at(new.id);
                    if message.kind == MessageKind::Original {
                        next.originals.push(message.clone());
                    }
                    // What changes its state alone leaves it as it was said.
                    if new.text.is_some() || !new.arguments.is_empty() {
                        message.kind = MessageKind::Replaced;
                    }
                    message.text = new.text.clone().unwrap_or(message.text);
                    message.state = new.state.clone().or(message.state);
                    for short in &new.arguments {
                        message.calls[short.index]
                            .arguments
                            .clone_from(&short.arguments);
                    }
                    next.messages.push(message);
                }
                Entry::Summary(summary) => {
                    next.user(marked(&summary.text, SUMMARY_MARK)).kind = MessageKind::Summary;
                }
                Entry::Notice(notice) => {
                    next.user(marked(&notice.text, NOTICE_MARK)).kind = MessageKind::Notice;
                }
                Entry::StubResult(stub) => {
                    let call = &at(stub.call).calls[stub.index];
                    next.result(&call.id, &call.name, &stub.text).kind = MessageKind::Replaced;
                }
                // What is of a later version is refused before it comes here.
                _ => {}
            }
        }
        next
    }
}

/// Lends these messages as an engine sees them.
pub(crate) fn views_of<T>(messages: &[Message], work: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
    let owned: Vec<OwnedMessage> = messages.iter().map(Message::owned).collect();
    with_views(&owned, work)
}

/// Words of about this length together, the same for the same seed.
pub fn filler(seed: usize, chars: usize) -> String {
    const WORDS: [&str; 12] = [
        "ledger", "the", "request", "of", "a", "handler", "when", "response", "under", "load",
        "is", "slow",
    ];
    let mut text = String::with_capacity(chars + 12);
    let mut at = seed * 7 + 3;
    while text.len() < chars {
        text.push_str(WORDS[at % WORDS.len()]);
        text.push(' ');
        at = (at * 31 + 17) % 100_003;
    }
    text
}

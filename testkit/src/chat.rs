//! Conversations to show to an engine.
//!
//! A [`Chat`] is a list of [`Message`] values with methods that read like the conversation: `user`,
//! `assistant`, `calls`, `result`. Every method returns the added message, so a test can set
//! whatever else it needs. [`Chat::talk`] adds many exchanges at once, to fill a window.
//!
//! A chat can also be the window after a compaction. [`Chat::check`] holds a proposal to the
//! contract, and [`Chat::apply`] makes the new window of it, as a host would. Tokens are counted
//! with [`count`], so the sizes in a test are easy to calculate by hand.

use contexture_contract::{
    CALL_TOKENS, Checked, Grouping, Limits, MESSAGE_TOKENS, NOTICE_SEAL, SUMMARY_SEAL, Violation,
    check,
};
use contexture_engine_api::{
    Compaction, CompressOrder, Entry, MessageId, MessageKind, MessageView, NOTICE_MARK,
    OwnedMessage, OwnedToolCall, SUMMARY_MARK, WindowState, with_views,
};
use serde_json::{Value, json};

/// Counts the tokens of a text as the kit does: one for every four bytes, rounded up. The figure is
/// easy to predict in a test, unlike that of a real tokenizer.
pub fn count(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// The number of tokens that an image costs in this kit, whatever its size.
pub const IMAGE_TOKENS: u64 = 1_000;

/// A tool call in a [`Message`] of the assistant. The kit does not check that a result follows it,
/// so a test can build calls that are still in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id of the call, which its result names. Two calls may have the same id, as some models
    /// do.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text. They may be invalid, as those of real models are sometimes.
    pub arguments: String,
}

/// One message of a [`Chat`].
///
/// Its tokens are those of its text ([`count`]) and of the name and the arguments of each call,
/// plus [`MESSAGE_TOKENS`], [`CALL_TOKENS`] for each call, and [`IMAGE_TOKENS`] if it holds an
/// image. The contract counts in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The id of the message. Ids begin at 1 and follow the order of arrival.
    pub id: MessageId,
    /// The role: `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// Whether somebody said it, or what a compaction made of it.
    pub kind: MessageKind,
    /// The text of the message. It may be empty, for example if the message only calls tools.
    pub text: String,
    /// The tools that the message calls, in order. Only messages of the assistant call tools.
    pub calls: Vec<Call>,
    /// The id of the call that a tool result answers and the name of the tool, or `None` if the
    /// message is not a tool result.
    pub result_of: Option<(String, String)>,
    /// When it was said, in milliseconds since the Unix epoch, or `None` if that is not known.
    pub time_ms: Option<i64>,
    /// Whether it holds an image. An image adds [`IMAGE_TOKENS`] to the tokens of the message.
    pub has_media: bool,
    /// Whether it holds thinking. The thinking itself is not part of the kit's messages.
    pub has_thinking: bool,
    /// Whether it is a tool result that reports an error.
    pub is_error: bool,
    /// Whether it belongs to the message before it, which calls a tool that the provider runs.
    pub continues: bool,
    /// The state that the engine keeps with the message: a JSON object, or `None`.
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
            .continues(self.continues)
            .state(self.state.as_ref().map(Value::to_string))
            .tokens(self.tokens())
    }

    /// Returns the tokens of the message, including what the host adds around summaries and
    /// notices.
    pub fn tokens(&self) -> u64 {
        let calls = self.calls.iter();
        let calls = calls.map(|call| CALL_TOKENS + count(&call.name) + count(&call.arguments));
        let media = if self.has_media { IMAGE_TOKENS } else { 0 };
        // A host closes summaries and notices with a checksum that counts as part of them.
        let seal = match self.kind {
            MessageKind::Summary => count(SUMMARY_SEAL),
            MessageKind::Notice => count(NOTICE_SEAL),
            _ => 0,
        };
        MESSAGE_TOKENS + count(&self.text) + seal + media + calls.sum::<u64>()
    }

    /// Returns the message as JSON in OpenAI's chat format, as it would be on the wire.
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

/// A conversation, or the window that a compaction made of one. Each builder method returns the
/// message that it added, so that a test can change its other fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chat {
    /// The messages, in order. A test may change them directly, for example to set a time or to
    /// drop a result.
    pub messages: Vec<Message>,
    pub(crate) last_id: u64,
    /// The originals of the messages that are in the window in a shorter form. They are needed to
    /// restore them.
    originals: Vec<Message>,
}

impl Chat {
    /// Adds a message with this role and text. The methods below are shorter for the common roles.
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
            continues: false,
            state: None,
        });
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// Adds a message as a host shows it to an engine, under the next id of this conversation. A
    /// role that the kit does not know becomes `user`.
    pub fn push_view(&mut self, view: &MessageView<'_>) -> &mut Message {
        let role = match view.role() {
            "assistant" => "assistant",
            "tool" => "tool",
            "system" => "system",
            _ => "user",
        };
        let calls = view.tool_calls().iter().map(|call| Call {
            id: call.id().to_owned(),
            name: call.name().to_owned(),
            arguments: call.arguments().to_owned(),
        });
        let message = self.push(role, view.text());
        message.kind = view.kind();
        message.calls = calls.collect();
        message.result_of = view.tool_call_id().map(|id| {
            let tool = view.tool_name().unwrap_or_default();
            (id.to_owned(), tool.to_owned())
        });
        message.time_ms = view.time();
        message.has_media = view.has_media();
        message.has_thinking = view.has_thinking();
        message.is_error = view.is_error();
        message.continues = view.continues();
        message
    }

    /// Adds a message of the user. An empty text is allowed, as clients send such messages too.
    pub fn user(&mut self, text: impl Into<String>) -> &mut Message {
        self.push("user", text)
    }

    /// Adds a message of the user that holds an image next to its text. The image costs
    /// [`IMAGE_TOKENS`].
    pub fn image(&mut self, text: impl Into<String>) -> &mut Message {
        let message = self.push("user", text);
        message.has_media = true;
        message
    }

    /// Adds a message of the assistant without tool calls. Use [`calls`](Self::calls) if it calls
    /// tools.
    pub fn assistant(&mut self, text: impl Into<String>) -> &mut Message {
        self.push("assistant", text)
    }

    /// Adds a message of the assistant that calls tools. Each call is given as its id, the tool's
    /// name and the arguments.
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

    /// Adds the result of the call with this id. If no such call exists, the result is an orphan.
    pub fn result(&mut self, id: &str, tool: &str, text: impl Into<String>) -> &mut Message {
        let message = self.push("tool", text);
        message.result_of = Some((id.into(), tool.into()));
        message
    }

    /// Adds one call and its result, with an id of its own. Returns the result.
    pub fn tool(&mut self, tool: &str, arguments: &str, text: impl Into<String>) -> &mut Message {
        // The last id makes the call's id unique, because every message gets a new one.
        let id = format!("call_{}", self.last_id);
        self.calls("", &[(&id, tool, arguments)]);
        self.result(&id, tool, text)
    }

    /// Adds `turns` exchanges between user and assistant, each of about `chars` characters. The
    /// words are the same in every run.
    pub fn talk(&mut self, turns: usize, chars: usize) {
        for turn in 0..turns {
            self.user(format!("Question {turn}: {}", filler(turn, chars / 2)));
            self.assistant(format!("Answer {turn}: {}", filler(turn + 7, chars / 2)));
        }
    }

    /// Lends the messages as the views that an engine sees. The views are valid only while `work`
    /// runs.
    pub fn with_views<T>(&self, work: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
        views_of(&self.messages, work)
    }

    /// Returns the tokens of all messages together. A system prompt and tools are not included.
    pub fn tokens(&self) -> u64 {
        self.messages.iter().map(Message::tokens).sum()
    }

    /// Returns the state of a window with this conversation in it. `fixed_tokens` is the size of
    /// the system prompt and the tools, which is added to the prompt.
    pub fn window(&self, context_length: u64, fixed_tokens: u64) -> WindowState {
        WindowState::default()
            .context_length(context_length)
            .fixed_tokens(fixed_tokens)
            .prompt_tokens(fixed_tokens + self.tokens())
            .messages(self.messages.len())
    }

    /// Returns the message with this id, or `None` if the window no longer shows it.
    pub fn get(&self, id: MessageId) -> Option<&Message> {
        self.messages.iter().find(|message| message.id == id)
    }

    /// Checks a proposal for this window against the contract, with the grouping rules of a chat
    /// format.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn check(
        &self,
        proposal: &Compaction,
        order: &CompressOrder,
    ) -> Result<Checked, Violation> {
        self.with_views(|views| {
            let limits = Limits::of(&order.window, views, Grouping::Chat);
            check(views, proposal, &limits, count)
        })
    }

    /// Returns the window that a proposal makes of this one. Summaries and notices become messages
    /// of the user and get the marks that a host gives them.
    ///
    /// # Panics
    /// Panics if the proposal names a message that is not in the window. Call
    /// [`check`](Self::check) first.
    pub fn apply(&self, proposal: &Compaction) -> Self {
        self.apply_marked(proposal, &[])
    }

    /// Does the same as [`apply`](Self::apply) for an engine with marks of its own. A text that
    /// begins with one of them gets no other mark.
    ///
    /// # Panics
    /// Panics if the proposal names a message that is not in the window.
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
                    // Only the first replacement knows the original. A later one replaces what is
                    // shorter already.
                    if message.kind == MessageKind::Original {
                        next.originals.push(message.clone());
                    }
                    // If only the state changes, the message is still as it was said.
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
                // An entry of a later version never gets here, because the check refuses the
                // proposal.
                _ => {}
            }
        }
        next
    }
}

/// Lends these messages as the views that an engine sees.
pub(crate) fn views_of<T>(messages: &[Message], work: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
    let owned: Vec<OwnedMessage> = messages.iter().map(Message::owned).collect();
    with_views(&owned, work)
}

/// Returns words of about `chars` characters in total. The same seed always gives the same words,
/// so a test is reproducible.
pub fn filler(seed: usize, chars: usize) -> String {
    const WORDS: [&str; 12] = [
        "ledger", "the", "request", "of", "a", "handler", "were", "response", "there", "load",
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

//! A recorded conversation, and the requests in it.

use std::collections::HashMap;
use std::sync::Arc;

use contexture_engine_api::Usage;

use crate::formats::{Conversation, Format, RecordedUsage};
use crate::session::{AgentWindow, fixed_tokens, message_tokens};
use crate::tokens::TokenCounter;

/// A recorded conversation and the model that it is played for.
#[derive(Debug, Clone)]
pub struct Recording {
    pub(super) conversation: Arc<Conversation>,
    pub(super) agent: AgentWindow,
    pub(super) counter: TokenCounter,
    requests: Vec<Request>,
    /// Whether the recorded usage counts tokens as the agent's model does.
    pub(super) same_tokens: bool,
    unseen_tokens: u64,
}

/// One request of the recording: the messages before `answer` were sent, and `answer` came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The answer, by its index in [`Conversation::messages`].
    pub answer: usize,
    /// When it was sent, in ms since the Unix epoch: the time of the last message sent, else the answer's.
    pub time_ms: Option<i64>,
    /// What the provider reported for it.
    pub usage: Option<Usage>,
}

impl Recording {
    /// Finds the requests of a conversation.
    pub fn new(conversation: Conversation, agent: AgentWindow) -> Self {
        let conversation = Arc::new(conversation);
        let requests = requests_of(&conversation);
        let counter = TokenCounter::for_model(&agent.model);
        let recorded_by = reports(&conversation)
            .find_map(|recorded| recorded.model)
            .map_or(counter, |model| TokenCounter::for_model(&model));
        Self {
            unseen_tokens: unseen_tokens(&conversation, &requests, &recorded_by),
            same_tokens: recorded_by == counter,
            conversation,
            agent,
            counter,
            requests,
        }
    }

    /// The conversation.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// The model that it is played for.
    pub fn agent(&self) -> &AgentWindow {
        &self.agent
    }

    /// Its requests, in order.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The tokens that every prompt of a session log held and the log does not show (system prompt,
    /// tools), as far as the first reported prompt tells; 0 for documents that are whole requests.
    pub fn unseen_tokens(&self) -> u64 {
        self.unseen_tokens
    }

    /// The tokens of each of its messages.
    pub(super) fn message_tokens(&self) -> Vec<u64> {
        let messages = self.conversation.messages().iter();
        messages
            .map(|message| message_tokens(&self.counter, &self.conversation, message))
            .collect()
    }

    /// The tokens of system prompt and tools, shown or not.
    pub(super) fn fixed_tokens(&self) -> u64 {
        fixed_tokens(&self.counter, &self.conversation) + self.unseen_tokens
    }
}

fn requests_of(conversation: &Conversation) -> Vec<Request> {
    // A log may report the same answer more than once; the last report is the whole answer's.
    let reported: HashMap<usize, Usage> = reports(conversation)
        .map(|recorded| (recorded.index, recorded.usage))
        .collect();
    let messages = conversation.messages();
    messages
        .iter()
        .enumerate()
        // An answer to nothing (a greeting that the agent's program puts first) was never asked for.
        .filter(|(at, message)| *at > 0 && message.role == "assistant" && !message.is_summary())
        .map(|(answer, message)| Request {
            answer,
            time_ms: messages[answer - 1].time_ms.or(message.time_ms),
            usage: reported.get(&answer).copied(),
        })
        .collect()
}

/// What was reported. Answers that no model gave (an agent's own notices) stand in logs with no prompt.
fn reports(conversation: &Conversation) -> impl Iterator<Item = RecordedUsage> {
    conversation
        .recorded_usage()
        .into_iter()
        .filter(|recorded| recorded.usage.input_tokens > 0)
}

/// What the first reported prompt holds beyond what the document shows of it. Early in a session that is
/// little but system prompt and tools.
fn unseen_tokens(
    conversation: &Arc<Conversation>,
    requests: &[Request],
    counter: &TokenCounter,
) -> u64 {
    if !matches!(conversation.format(), Format::ClaudeCode | Format::Codex) {
        return 0;
    }
    let first = requests
        .iter()
        .find_map(|request| Some((request.answer, request.usage?)));
    let Some((answer, usage)) = first else {
        return 0;
    };
    let messages = conversation.messages().iter().take(answer);
    let messages = messages.map(|message| message_tokens(counter, conversation, message));
    let shown = fixed_tokens(counter, conversation) + messages.sum::<u64>();
    usage.input_tokens.saturating_sub(shown)
}

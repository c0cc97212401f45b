//! A recorded conversation, and the requests in it.

use std::collections::HashMap;
use std::sync::Arc;

use contexture_engine_api::Usage;
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{Conversation, Format, RecordedUsage};
use contexture_session::{AgentWindow, fixed_tokens, message_tokens};

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
    scale: f64,
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
    /// Finds the requests of a conversation. A log is replayed completely, as if its agent had never compacted it.
    pub fn new(conversation: Conversation, agent: AgentWindow) -> Self {
        let uncompacted = conversation.uncompacted().ok().flatten();
        let conversation = Arc::new(uncompacted.unwrap_or(conversation));
        let requests = requests_of(&conversation);
        let counter = TokenCounter::for_model(&agent.model);
        let recorded_by = reports(&conversation)
            .find_map(|recorded| recorded.model)
            .map_or(counter, |model| TokenCounter::for_model(&model));
        let calibration = Calibration::of(&conversation, &requests, &recorded_by);
        Self {
            unseen_tokens: calibration.unseen_tokens,
            scale: calibration.scale,
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

    /// By how much the prompts in the log grew for each token counted in their messages. It corrects the count, because
    /// the provider counts differently and the log does not show everything. Every count of messages is multiplied by
    /// it. It is 1 if the log does not allow an estimate.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// A count of message tokens, scaled.
    pub(super) fn scaled(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.scale).round() as u64
    }

    /// The scaled tokens of each message.
    pub(super) fn message_tokens(&self) -> Vec<u64> {
        let messages = self.conversation.messages().iter();
        messages
            .map(|message| message_tokens(&self.counter, &self.conversation, message))
            .map(|tokens| self.scaled(tokens))
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

/// How the prompts recorded in a log differ from the count of its messages.
struct Calibration {
    /// What every prompt holds besides the messages, which is mainly the system prompt and the tools.
    unseen_tokens: u64,
    scale: f64,
}

impl Calibration {
    /// How many tokens the messages between recorded prompts need at least for an estimate.
    const LEAST_TOKENS: u64 = 2_000;
    /// How many prompts have to be larger than their predecessors.
    const LEAST_STEPS: usize = 3;
    /// A ratio outside these bounds means that the recorded prompts do not belong to these messages.
    const BOUNDS: (f64, f64) = (0.5, 4.0);

    /// Compares the growth from one recorded prompt to the next with the messages between them. A prompt that is
    /// smaller than its predecessor was compacted or cleared and is skipped.
    fn of(conversation: &Arc<Conversation>, requests: &[Request], counter: &TokenCounter) -> Self {
        let none = Self {
            unseen_tokens: 0,
            scale: 1.0,
        };
        if !matches!(conversation.format(), Format::ClaudeCode | Format::Codex) {
            return none;
        }
        let recorded: Vec<(usize, u64)> = (requests.iter())
            .filter_map(|request| Some((request.answer, request.usage?.input_tokens)))
            .collect();
        let Some((first, first_prompt)) = recorded.first().copied() else {
            return none;
        };
        let mut sums: Vec<u64> = Vec::with_capacity(conversation.messages().len() + 1);
        sums.push(0);
        let mut sum = 0;
        for message in conversation.messages() {
            sum += message_tokens(counter, conversation, message);
            sums.push(sum);
        }
        let before = |answer: usize| sums.get(answer).copied().unwrap_or(sum);
        let (mut counted, mut grown, mut steps) = (0, 0, 0);
        for pair in recorded.windows(2) {
            let [(one, prompt), (next, larger)] = pair else {
                continue;
            };
            if larger > prompt {
                counted += before(*next) - before(*one);
                grown += larger - prompt;
                steps += 1;
            }
        }
        let mut scale = 1.0;
        if counted >= Self::LEAST_TOKENS && steps >= Self::LEAST_STEPS {
            let ratio = grown as f64 / counted as f64;
            if (Self::BOUNDS.0..=Self::BOUNDS.1).contains(&ratio) {
                scale = ratio;
            }
        }
        let fixed = fixed_tokens(counter, conversation);
        let shown = fixed + (before(first) as f64 * scale).round() as u64;
        Self {
            unseen_tokens: first_prompt.saturating_sub(shown),
            scale,
        }
    }
}

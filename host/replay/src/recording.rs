//! A recorded conversation, and the requests in it.
//!
//! A log stores messages and perhaps the usage that the provider reported, but not the requests.
//! [`Recording::new`] finds them: each answer of the model ends one [`Request`], which sent all
//! messages before it.
//!
//! A log also lacks the system prompt and the tools, and its provider counts tokens differently. If
//! the log reports usage, `Calibration` compares it with the counted messages. It yields the tokens
//! that every prompt held besides ([`Recording::unseen_tokens`]) and a factor for all counts
//! ([`Recording::scale`]).
//!
//! Playing the requests is left to `player`, and writing them as request bodies to `script`.

use std::collections::HashMap;
use std::sync::Arc;

use contexture_engine_api::Usage;
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{Conversation, Format, RecordedUsage};
use contexture_session::{AgentWindow, fixed_tokens, message_tokens};

/// A recorded conversation and the model for which it is played. Create it once and play it through
/// several engines: it is not changed by a replay.
#[derive(Debug, Clone)]
pub struct Recording {
    pub(super) conversation: Arc<Conversation>,
    pub(super) agent: AgentWindow,
    pub(super) counter: TokenCounter,
    requests: Vec<Request>,
    /// Whether the model that recorded the usage counts tokens like the agent's model. Only then is
    /// the recorded usage passed to the engine.
    pub(super) same_tokens: bool,
    unseen_tokens: u64,
    scale: f64,
}

/// One request of the recording: the messages before `answer` were sent, and `answer` came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The answer, as an index into [`Conversation::messages`].
    pub answer: usize,
    /// When the request was sent, in milliseconds since the Unix epoch: the time of the last
    /// message in it, or of the answer if that has none. `None` if neither has a time.
    pub time_ms: Option<i64>,
    /// The usage that the provider reported, if the log has it.
    pub usage: Option<Usage>,
}

impl Recording {
    /// Finds the requests of a conversation and calibrates the token counts. If the agent compacted
    /// the conversation, the messages before are restored and its summaries removed, so that the
    /// log is replayed as if it had never been compacted.
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

    /// Returns the conversation that is played, without the compactions of the agent that recorded
    /// it. The answers in [`requests`](Self::requests()) are indices into its messages.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Returns the model for which it is played, and its window. It may differ from the model that
    /// recorded the conversation.
    pub fn agent(&self) -> &AgentWindow {
        &self.agent
    }

    /// Returns the requests, in the order in which they were sent. Empty if the conversation has no
    /// answer of a model.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns the tokens that every prompt of a session log held and the log does not show, such
    /// as the system prompt and tools. They are estimated from the first reported prompt. 0 if
    /// nothing was reported, or if the document is a whole request.
    pub fn unseen_tokens(&self) -> u64 {
        self.unseen_tokens
    }

    /// Returns how many tokens the log's prompts grew for each token counted in its messages. It
    /// corrects the counts, because the provider counts differently and the log does not show
    /// everything. All counts of messages are multiplied by it. It is 1 if the log does not allow
    /// an estimate.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Multiplies a count of message tokens by the scale and rounds it.
    pub(super) fn scaled(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.scale).round() as u64
    }

    /// Returns the scaled tokens of each message, in order.
    pub(super) fn message_tokens(&self) -> Vec<u64> {
        let messages = self.conversation.messages().iter();
        messages
            .map(|message| message_tokens(&self.counter, &self.conversation, message))
            .map(|tokens| self.scaled(tokens))
            .collect()
    }

    /// Returns the tokens of system prompt and tools, whether or not the log shows them.
    pub(super) fn fixed_tokens(&self) -> u64 {
        fixed_tokens(&self.counter, &self.conversation.preamble()) + self.unseen_tokens
    }
}

/// Finds the requests: one for each message of the assistant that is not a summary.
fn requests_of(conversation: &Conversation) -> Vec<Request> {
    // A log may report the same answer more than once. The last report is about the whole answer.
    let reported: HashMap<usize, Usage> = reports(conversation)
        .map(|recorded| (recorded.index, recorded.usage))
        .collect();
    let messages = conversation.messages();
    messages
        .iter()
        .enumerate()
        // The first message may be a greeting that the agent's program wrote. No request preceded
        // it.
        .filter(|(at, message)| *at > 0 && message.role == "assistant" && !message.is_summary())
        .map(|(answer, message)| Request {
            answer,
            time_ms: messages[answer - 1].time_ms.or(message.time_ms),
            usage: reported.get(&answer).copied(),
        })
        .collect()
}

/// Returns the reported usage of answers that a model gave. Notices that the agent's program wrote
/// in the model's name report an empty prompt and are left out.
fn reports(conversation: &Conversation) -> impl Iterator<Item = RecordedUsage> {
    conversation
        .recorded_usage()
        .into_iter()
        .filter(|recorded| recorded.usage.input_tokens > 0)
}

/// How the prompts that a log reports differ from the counts of its messages.
struct Calibration {
    /// What every prompt holds besides the messages, in tokens: mainly the system prompt and the
    /// tools.
    unseen_tokens: u64,
    scale: f64,
}

impl Calibration {
    /// The fewest tokens of messages between the reported prompts that allow an estimate.
    const LEAST_TOKENS: u64 = 2_000;
    /// The fewest prompts that must be larger than the one before to allow an estimate.
    const LEAST_STEPS: usize = 3;
    /// The plausible range of the scale. A ratio outside of it means that the reported prompts do
    /// not belong to these messages.
    const BOUNDS: (f64, f64) = (0.5, 4.0);

    /// Compares the growth from one reported prompt to the next with the messages between them. A
    /// prompt that is smaller than the one before is skipped, because the agent compacted or
    /// cleared the conversation in between.
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
        // Sums of all messages before each one, so that the tokens between two requests are one
        // subtraction.
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
        let fixed = fixed_tokens(counter, &conversation.preamble());
        let shown = fixed + (before(first) as f64 * scale).round() as u64;
        Self {
            unseen_tokens: first_prompt.saturating_sub(shown),
            scale,
        }
    }
}

//! What the simulator is told to answer.

use std::time::Duration;

use serde_json::Value;

/// One piece of what the model says.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerPart {
    /// Reasoning. Signed (Anthropic) or encrypted (Responses) so that it is known when it comes back; chat completions
    /// have no place for it, and do not show it.
    Thinking(String),
    /// Text.
    Text(String),
    /// A summary by the provider itself: text (Anthropic) or encrypted (Responses); chat completions have none, and do
    /// not show it.
    Compaction(String),
    /// A call of a tool.
    Call {
        /// Made up by the simulator if there is none.
        id: Option<String>,
        /// The tool.
        name: String,
        /// An object.
        arguments: Value,
    },
}

/// Where in an answer something goes wrong. Bytes are those of the body, from its beginning; more than it has is its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Takes the request and never answers. Ends when the client leaves.
    Hang,
    /// Sends headers and this many bytes, and then nothing more. Ends when the client leaves.
    HangAfter(usize),
    /// Sends this many bytes and resets the connection.
    ResetAfter(usize),
    /// Sends this many bytes and closes the connection as if that were all: without the end that HTTP or the stream has.
    CloseAfter(usize),
    /// Sends half of the stream's middle event, and then the proper end of the HTTP body. Of an answer that is no
    /// stream, half.
    HalfAnEvent,
    /// Ends the stream in its middle with the provider's error event. An answer that is no stream is a 500.
    ErrorEvent,
    /// A status with the provider's error body: 401, 403, 413, 429, 500, 503, 529 and others. The text of the answer,
    /// if it has one, is the error's message.
    Status(u16),
    /// Status 200 and a body that is no JSON; in a stream, an event whose data is none.
    WrongJson,
}

/// Figures to report in the place of what was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to the prompt cache.
    pub input: u64,
    /// Prompt tokens read from the prompt cache.
    pub cache_read: u64,
    /// Prompt tokens written to the prompt cache for five minutes.
    pub cache_write_5m: u64,
    /// Prompt tokens written to the prompt cache for an hour.
    pub cache_write_1h: u64,
    /// Tokens of the answer.
    pub output: u64,
}

impl Usage {
    /// All tokens of the prompt.
    pub fn prompt(&self) -> u64 {
        self.input + self.cache_read + self.cache_write_5m + self.cache_write_1h
    }
}

/// What the simulator answers to one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub(crate) parts: Vec<AnswerPart>,
    pub(crate) usage: Option<Usage>,
    pub(crate) fault: Option<Fault>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) stop: Option<String>,
    pub(crate) headers_after: Duration,
    pub(crate) first_byte_after: Duration,
    pub(crate) piece_after: Option<Duration>,
}

impl Answer {
    /// An answer that says this.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().and_text(text)
    }

    /// An answer that calls a tool with this object.
    pub fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// An answer that begins with reasoning.
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::default().and(AnswerPart::Thinking(text.into()))
    }

    /// A compaction of the provider's own with this summary in it.
    pub fn compaction(summary: impl Into<String>) -> Self {
        Self::default().and(AnswerPart::Compaction(summary.into()))
    }

    /// An answer that goes wrong. What else it says comes before that, as far as the fault lets it.
    pub fn fault(fault: Fault) -> Self {
        let said = match fault {
            // A status has the provider's own words.
            Fault::Status(_) => Self::default(),
            _ => Self::text(
                "What is said before something goes wrong, and is long enough to be cut in its middle.",
            ),
        };
        said.failing(fault)
    }

    /// And then this.
    pub fn and(mut self, part: AnswerPart) -> Self {
        self.parts.push(part);
        self
    }

    /// And then this text.
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.and(AnswerPart::Text(text.into()))
    }

    /// And then this call; with others in one answer, a parallel one.
    pub fn and_call(self, name: impl Into<String>, arguments: Value) -> Self {
        let name = name.into();
        self.and(AnswerPart::Call {
            id: None,
            name,
            arguments,
        })
    }

    /// Goes wrong there.
    pub fn failing(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Reports these figures, whatever was counted. The bill keeps to what was counted.
    pub fn reporting(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// With this header more.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Ends for this reason, in the provider's own word (`max_tokens`, `length`, `refusal`, …; for `/v1/responses`,
    /// the reason of an incomplete response).
    pub fn stopping(mut self, reason: impl Into<String>) -> Self {
        self.stop = Some(reason.into());
        self
    }

    /// Waits so long before the headers leave.
    pub fn headers_after(mut self, wait: Duration) -> Self {
        self.headers_after = wait;
        self
    }

    /// Waits so long between the headers and the first byte of the body.
    pub fn first_byte_after(mut self, wait: Duration) -> Self {
        self.first_byte_after = wait;
        self
    }

    /// Waits so long before each piece of a stream but the first, in the place of what [`Options`](crate::Options) say.
    pub fn piece_after(mut self, wait: Duration) -> Self {
        self.piece_after = Some(wait);
        self
    }

    /// Whether it calls this tool.
    pub fn calls(&self, tool: &str) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, AnswerPart::Call { name, .. } if name == tool))
    }

    /// All texts that it says, in order, joined.
    pub fn said(&self) -> String {
        let text = |part: &AnswerPart| match part {
            AnswerPart::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }
}

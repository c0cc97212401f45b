//! What a provider refuses. Each rule names the page that publishes it.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod tools;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::request::{Api, Request};

/// A rule of a provider's.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name here, which tests compare.
    pub name: &'static str,
    /// The address of the page that publishes it.
    pub source: &'static str,
}

/// A request that broke a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The request's place among all that came.
    pub request: usize,
    /// The rule.
    pub rule: &'static Rule,
    /// What the provider answered.
    pub message: String,
}

/// A refusal, in the provider's words.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) rule: &'static Rule,
    pub(crate) status: u16,
    /// OpenAI's `param`.
    pub(crate) param: Option<String>,
    /// OpenAI's `code`.
    pub(crate) code: Option<&'static str>,
    pub(crate) message: String,
}

pub(crate) type Checked = Result<(), Refusal>;

impl Refusal {
    pub(crate) fn new(rule: &'static Rule, message: impl Into<String>) -> Self {
        Self {
            rule,
            status: 400,
            param: None,
            code: None,
            message: message.into(),
        }
    }

    fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// Refuses where something is not so.
fn hold(holds: bool, refusal: impl FnOnce() -> Refusal) -> Checked {
    if holds { Ok(()) } else { Err(refusal()) }
}

/// What was handed out, by which the provider knows what has to come back.
#[derive(Default)]
pub(crate) struct Issued {
    /// Of a call's id, the thinking blocks that came before it in the same answer.
    pub(crate) thinking_before: HashMap<String, Vec<Value>>,
    /// Of an item's id, the id of the reasoning item right before it.
    pub(crate) reasoning_before: HashMap<String, String>,
    /// Of a stored response's id, all items of its conversation.
    pub(crate) stored: HashMap<String, Vec<Value>>,
    /// Of an item's id, the item, if it is stored.
    pub(crate) items: HashMap<String, Value>,
    /// Gemini's calls with a signature, see [`call_of`].
    pub(crate) signed_calls: HashSet<String>,
}

/// A call of Gemini's by what it asks for: few have an id.
pub(crate) fn call_of(call: &Value) -> String {
    format!("{} {}", call["name"], call["args"])
}

macro_rules! rules {
    ($($ident:ident = $name:literal, $source:expr;)*) => {
        $(pub(crate) static $ident: Rule = Rule { name: $name, source: $source };)*
        /// Every rule that is held.
        pub fn all_rules() -> Vec<&'static Rule> {
            vec![$(&$ident),*]
        }
    };
}

const MESSAGES: &str = "https://platform.claude.com/docs/en/api/messages";
const ERRORS: &str = "https://platform.claude.com/docs/en/api/errors";
const CALLS: &str =
    "https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls";
const STOPPING: &str =
    "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons";
const DEFINING: &str = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools";
const CACHING: &str = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching";
const THINKING: &str = "https://platform.claude.com/docs/en/build-with-claude/extended-thinking";
const TOOL_WORKFLOWS: &str =
    "https://platform.claude.com/docs/build-with-claude/thinking-tool-workflows";
const MID_CONVERSATION: &str =
    "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages";
const WINDOWS: &str = "https://platform.claude.com/docs/en/build-with-claude/context-windows";
const CHAT: &str = "https://platform.openai.com/docs/api-reference/chat/create";
const RESPONSES: &str = "https://platform.openai.com/docs/api-reference/responses/create";
const FUNCTIONS: &str = "https://platform.openai.com/docs/guides/function-calling";
const REASONING: &str = "https://platform.openai.com/docs/guides/reasoning";
const STATE: &str = "https://platform.openai.com/docs/guides/conversation-state";
const OPENAI_ERRORS: &str = "https://platform.openai.com/docs/guides/error-codes";
const GENERATE: &str = "https://ai.google.dev/api/generate-content";
const CONTENT: &str = "https://ai.google.dev/api/caching#Content";
const GEMINI_FUNCTIONS: &str = "https://ai.google.dev/gemini-api/docs/function-calling";
const GEMINI_ERRORS: &str = "https://ai.google.dev/gemini-api/docs/troubleshooting";

rules! {
    // Anthropic
    CREDENTIALS = "credentials", ERRORS;
    VERSION = "version", "https://platform.claude.com/docs/en/api/versioning";
    TOO_LARGE = "too-large", ERRORS;
    NOT_JSON = "not-json", ERRORS;
    FIELDS = "fields", MESSAGES;
    MAX_TOKENS = "max-tokens", MESSAGES;
    NO_MESSAGES = "no-messages", MESSAGES;
    ROLE = "role", MESSAGES;
    FIRST_USER = "first-user", MESSAGES;
    SYSTEM_PLACE = "system-place", MID_CONVERSATION;
    EMPTY_CONTENT = "empty-content", MESSAGES;
    EMPTY_TEXT = "empty-text", MESSAGES;
    TRAILING_SPACE = "trailing-space", MESSAGES;
    PREFILL = "prefill", "https://platform.claude.com/docs/en/build-with-claude/working-with-messages";
    BLOCK = "block", MESSAGES;
    CALL_ID = "call-id", MESSAGES;
    CALL_ID_TWICE = "call-id-twice", MESSAGES;
    CALL_UNANSWERED = "call-unanswered", CALLS;
    RESULT_WITHOUT_CALL = "result-without-call", CALLS;
    RESULT_TWICE = "result-twice", CALLS;
    RESULTS_FIRST = "results-first", CALLS;
    CALLS_LAST = "calls-last", CALLS;
    SERVER_UNANSWERED = "server-unanswered", STOPPING;
    SERVER_RESULT_WITHOUT_CALL = "server-result-without-call", STOPPING;
    THINKING_SIGNATURE = "thinking-signature", THINKING;
    THINKING_FIRST = "thinking-first", THINKING;
    THINKING_KEPT = "thinking-kept", TOOL_WORKFLOWS;
    THINKING_OPTIONS = "thinking-options", THINKING;
    CACHE_COUNT = "cache-count", CACHING;
    CACHE_PLACE = "cache-place", CACHING;
    CACHE_TTL = "cache-ttl", CACHING;
    CACHE_ORDER = "cache-order", CACHING;
    WINDOW = "window", WINDOWS;
    // Tools, of all providers
    TOOL_NAME = "tool-name", DEFINING;
    TOOL_TWICE = "tool-twice", DEFINING;
    TOOL_SCHEMA = "tool-schema", DEFINING;
    TOOL_CHOICE = "tool-choice", DEFINING;
    // OpenAI
    OPENAI_CREDENTIALS = "openai-credentials", OPENAI_ERRORS;
    OPENAI_NOT_JSON = "openai-not-json", OPENAI_ERRORS;
    CHAT_FIELDS = "chat-fields", CHAT;
    CHAT_ROLE = "chat-role", CHAT;
    CHAT_CONTENT = "chat-content", CHAT;
    CHAT_CALLS = "chat-calls", FUNCTIONS;
    CHAT_UNANSWERED = "chat-unanswered", FUNCTIONS;
    CHAT_RESULT = "chat-result", FUNCTIONS;
    CHAT_ID_TWICE = "chat-id-twice", FUNCTIONS;
    OPENAI_TOOLS = "openai-tools", FUNCTIONS;
    OPENAI_WINDOW = "openai-window", OPENAI_ERRORS;
    ITEM = "item", RESPONSES;
    ITEM_ID = "item-id", RESPONSES;
    ITEM_TWICE = "item-twice", RESPONSES;
    ITEM_CONTENT = "item-content", RESPONSES;
    ITEM_REFERENCE = "item-reference", STATE;
    OUTPUT_WITHOUT_CALL = "output-without-call", FUNCTIONS;
    CALL_WITHOUT_OUTPUT = "call-without-output", FUNCTIONS;
    REASONING_FOLLOWED = "reasoning-followed", REASONING;
    REASONING_KEPT = "reasoning-kept", REASONING;
    REASONING_INTACT = "reasoning-intact", REASONING;
    PREVIOUS_RESPONSE = "previous-response", STATE;
    // Google
    GEMINI_CREDENTIALS = "gemini-credentials", GEMINI_ERRORS;
    GEMINI_NOT_JSON = "gemini-not-json", GEMINI_ERRORS;
    GEMINI_FIELDS = "gemini-fields", GENERATE;
    GEMINI_CONTENTS = "gemini-contents", GENERATE;
    GEMINI_CACHED = "gemini-cached", "https://ai.google.dev/gemini-api/docs/caching";
    GEMINI_ROLE = "gemini-role", CONTENT;
    GEMINI_PARTS = "gemini-parts", CONTENT;
    GEMINI_TOOLS = "gemini-tools", "https://ai.google.dev/api/caching#FunctionDeclaration";
    GEMINI_TURNS = "gemini-turns", GEMINI_FUNCTIONS;
    GEMINI_RESPONSES = "gemini-responses", GEMINI_FUNCTIONS;
    GEMINI_SIGNATURE = "gemini-signature", "https://ai.google.dev/gemini-api/docs/thought-signatures";
    GEMINI_WINDOW = "gemini-window", GEMINI_ERRORS;
}

/// What the provider checks before anything else, and then all the rest. `tokens` is the size of the prompt.
pub(crate) fn check(request: &Request, issued: &Issued, window: u64, tokens: u64) -> Checked {
    match request.api {
        Api::Messages | Api::CountTokens => {
            anthropic::check(request, issued)?;
            // Counting is for finding out whether it fits.
            hold(request.api == Api::CountTokens || tokens <= window, || {
                Refusal::new(
                    &WINDOW,
                    format!("prompt is too long: {tokens} tokens > {window} maximum"),
                )
            })
        }
        Api::Chat => {
            chat::check(request)?;
            hold(tokens <= window, || {
                let message = format!(
                    "This model's maximum context length is {window} tokens. However, your messages resulted in \
                     {tokens} tokens. Please reduce the length of the messages."
                );
                Refusal::new(&OPENAI_WINDOW, message)
                    .at("messages")
                    .code("context_length_exceeded")
            })
        }
        Api::Responses => {
            responses::check(request, issued)?;
            hold(tokens <= window, || {
                let message = "Your input exceeds the context window of this model. Please adjust your input and try again.";
                Refusal::new(&OPENAI_WINDOW, message)
                    .at("input")
                    .code("context_length_exceeded")
            })
        }
        Api::Gemini | Api::GeminiCount => {
            gemini::check(request, issued)?;
            hold(request.api == Api::GeminiCount || tokens <= window, || {
                let message = format!(
                    "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
                );
                Refusal::new(&GEMINI_WINDOW, message)
            })
        }
        Api::Models | Api::Other => Ok(()),
    }
}

/// Whether a text is made of letters, digits, `_` and `-`, and no longer than this.
fn is_plain(text: &str, longest: usize) -> bool {
    let plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    !text.is_empty() && text.len() <= longest && text.chars().all(plain)
}

fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

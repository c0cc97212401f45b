//! A request as it came, and what became of it.

use std::collections::HashMap;
use std::time::Instant;

use axum::body::Bytes;
use serde_json::Value;

/// Which of the providers' interfaces a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `POST /v1/messages`.
    Messages,
    /// `POST /v1/messages/count_tokens`.
    CountTokens,
    /// `POST /v1/chat/completions`, and Azure's `POST /openai/deployments/NAME/chat/completions`.
    Chat,
    /// `POST /v1beta/models/NAME:generateContent` and `:streamGenerateContent`, and the same by the paths of Vertex AI.
    Gemini,
    /// `POST /v1beta/models/NAME:countTokens`.
    GeminiCount,
    /// `POST /v1/responses`, `POST /v1/responses/compact`, and the request of a Codex with a ChatGPT login: `POST /backend-api/codex/responses`.
    Responses,
    /// `GET /v1/models`, and one of them.
    Models,
    /// Anything else: recorded, and answered with 404.
    Other,
}

impl Api {
    pub(crate) fn of(method: &str, path: &str) -> Self {
        // A Codex with a ChatGPT login uses another host's path.
        let path = match path.strip_prefix("/backend-api/codex/") {
            Some(rest) => &format!("/v1/{rest}"),
            None => path,
        };
        // Azure has the deployment in the path, and otherwise OpenAI's paths.
        let own = path.strip_prefix("/openai/");
        let own = own.map(|own| match own.strip_prefix("deployments/") {
            Some(named) => format!("/v1/{}", named.split_once('/').map_or("", |(_, own)| own)),
            None => format!("/{own}"),
        });
        let path = own.as_deref().unwrap_or(path);
        match (method, path.trim_end_matches('/')) {
            ("POST", "/v1/messages") => Self::Messages,
            ("POST", "/v1/messages/count_tokens") => Self::CountTokens,
            ("POST", "/v1/chat/completions") => Self::Chat,
            ("POST", "/v1/responses" | "/v1/responses/compact") => Self::Responses,
            ("GET", "/v1/models") => Self::Models,
            ("GET", path) if path.starts_with("/v1/models/") => Self::Models,
            ("POST", path) => match path.rsplit_once(':') {
                Some((named, "generateContent" | "streamGenerateContent"))
                    if named.contains("/models/") =>
                {
                    Self::Gemini
                }
                Some((named, "countTokens")) if named.contains("/models/") => Self::GeminiCount,
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

/// Whose words a request expects in errors, lists of models and the headers about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Google,
}

/// One request as it came, and what became of it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its place among all that came, from 0.
    pub number: usize,
    /// What it speaks.
    pub api: Api,
    /// The method, in capitals.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// What stands after the `?`.
    pub query: Option<String>,
    /// Names in lower case, in the order in which they came; a value that is no UTF-8 is shown with replacements.
    pub headers: Vec<(String, String)>,
    /// The exact bytes; for a compressed body, the expanded ones.
    pub body: Bytes,
    /// The body read as JSON; null where it is none.
    pub json: Value,
    /// When its body was there.
    pub at: Instant,
    /// The status that it was answered with; none as long as, or because, it was not.
    pub status: Option<u16>,
    /// Whether the whole answer left.
    pub finished: bool,
    /// Whether the client went away before it had the whole answer.
    pub left_early: bool,
}

impl Request {
    /// Puts the stored items in the place of the references to them.
    /// <https://platform.openai.com/docs/api-reference/responses/create>: `input`, "Item reference".
    pub(crate) fn resolve(&mut self, stored: &HashMap<String, Value>) {
        let items = self.json.get_mut("input").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            if item["type"] == "item_reference"
                && let Some(whole) = item["id"].as_str().and_then(|id| stored.get(id))
            {
                *item = whole.clone();
            }
        }
    }

    /// The first header of this name, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(one, _)| one == name);
        all.next().map(|(_, value)| value.as_str())
    }

    /// The model that is asked for, in the body or, as Gemini's and Azure's deployments, in the path; empty if none is
    /// named.
    pub fn model(&self) -> &str {
        if matches!(self.api, Api::Gemini | Api::GeminiCount) {
            let named = self.path.rsplit('/').next().unwrap_or_default();
            return named.split(':').next().unwrap_or_default();
        }
        let deployment = self.path.strip_prefix("/openai/deployments/");
        let deployment = deployment.and_then(|rest| rest.split('/').next());
        let named = self.json["model"].as_str().or(deployment);
        named.unwrap_or_default()
    }

    /// Whether it came by one of Azure's paths.
    pub(crate) fn is_azure(&self) -> bool {
        self.path.starts_with("/openai/")
    }

    /// Whether a stream is asked for.
    pub fn streams(&self) -> bool {
        match self.api {
            Api::Gemini => self.path.ends_with(":streamGenerateContent"),
            _ => self.json["stream"] == true,
        }
    }

    /// Whether the stream is to be one of server-sent events. Gemini's is a JSON array if its query does not say so.
    pub(crate) fn streams_events(&self) -> bool {
        let query = self.query.as_deref().unwrap_or_default();
        self.streams() && (self.api != Api::Gemini || query.split('&').any(|one| one == "alt=sse"))
    }

    /// Whose words it expects, by its path or its headers.
    pub(crate) fn dialect(&self) -> Dialect {
        let is_google =
            self.path.starts_with("/v1beta/") || self.header("x-goog-api-key").is_some();
        match self.api {
            Api::Gemini | Api::GeminiCount => Dialect::Google,
            Api::Messages | Api::CountTokens => Dialect::Anthropic,
            _ if self.header("anthropic-version").is_some() => Dialect::Anthropic,
            _ if is_google => Dialect::Google,
            _ => Dialect::OpenAi,
        }
    }

    /// The conversation that a request of Gemini's carries. Who counts may have it one level deeper.
    pub(crate) fn generated(&self) -> &Value {
        match &self.json["generateContentRequest"] {
            inner @ Value::Object(_) if self.api == Api::GeminiCount => inner,
            _ => &self.json,
        }
    }

    /// The tools that the request offers, in order: those of its member `tools`, and for `/v1/responses` those of the
    /// input items `additional_tools`, which Codex sends instead. A namespace, and one of Gemini's lists of functions, is
    /// replaced by its tools.
    pub fn tools(&self) -> Vec<&Value> {
        fn gather<'v>(tools: &'v Value, all: &mut Vec<&'v Value>) {
            for tool in tools.as_array().into_iter().flatten() {
                let declared = field(tool, "functionDeclarations");
                match tool["type"].as_str() {
                    Some("namespace") => gather(&tool["tools"], all),
                    _ if declared.is_array() => gather(declared, all),
                    _ => all.push(tool),
                }
            }
        }
        let mut all = Vec::new();
        gather(&self.generated()["tools"], &mut all);
        if self.api == Api::Responses {
            let items = self.messages().iter();
            for item in items.filter(|item| item["type"] == "additional_tools") {
                gather(&item["tools"], &mut all);
            }
        }
        all
    }

    /// The names of the tools that it offers, in order.
    pub fn tool_names(&self) -> Vec<&str> {
        let tools = self.tools().into_iter();
        tools
            .filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()))
            .collect()
    }

    /// The size of the prompt, in tokens of four bytes. The answer reports and bills it.
    pub fn prompt_tokens(&self) -> u64 {
        let blocks = crate::prompt::blocks(self);
        blocks.last().map_or(0, |block| block.tokens)
    }

    /// The messages (for `/v1/responses`, the items, and for Gemini, the contents), in order. A string as `input` is none.
    pub fn messages(&self) -> &[Value] {
        let list = match self.api {
            Api::Responses => &self.json["input"],
            Api::Gemini | Api::GeminiCount => &self.generated()["contents"],
            _ => &self.json["messages"],
        };
        list.as_array().map_or(&[], Vec::as_slice)
    }

    /// Every text of its last message, joined; of a tool's result, too.
    pub fn last_text(&self) -> String {
        if let (Api::Responses, Some(text)) = (self.api, self.json["input"].as_str()) {
            return text.to_owned();
        }
        let mut text = String::new();
        if let Some(last) = self.messages().last() {
            gather(last, &mut text);
        }
        text
    }
}

/// A member of one of Gemini's objects, by its name or by the same in snake case: the API takes both.
pub(crate) fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    if let Some(member) = value.get(name) {
        return member;
    }
    let mut snake = String::new();
    for char in name.chars() {
        if char.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(char.to_ascii_lowercase());
    }
    &value[snake.as_str()]
}

/// Every text in a message or one of its parts.
pub(crate) fn gather(value: &Value, text: &mut String) {
    match value {
        Value::String(one) => text.push_str(one),
        Value::Array(parts) => parts.iter().for_each(|part| gather(part, text)),
        Value::Object(fields) => {
            let names = ["text", "content", "output", "parts", "response"];
            for name in names
                .into_iter()
                .chain(["functionResponse", "function_response"])
            {
                if let Some(field) = fields.get(name) {
                    gather(field, text);
                }
            }
        }
        _ => {}
    }
}

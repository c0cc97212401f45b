//! What is said, in the words of each interface: bodies, streams, errors.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde_json::{Value, json};

use crate::answer::{Answer, AnswerPart, Usage};
use crate::prompt::tokens;
use crate::request::{Api, Dialect, Request};
use crate::rules::{Issued, Refusal};
use crate::seal;

/// A piece of an answer, with what the provider makes of it.
enum Piece {
    Thinking {
        id: String,
        text: String,
    },
    Text {
        id: String,
        text: String,
    },
    Compaction {
        id: String,
        text: String,
    },
    Call {
        id: String,
        item_id: String,
        name: String,
        arguments: Value,
        custom: bool,
    },
}

/// An answer as it is told.
pub(crate) struct Reply<'a> {
    request: &'a Request,
    id: String,
    created: u64,
    pieces: Vec<Piece>,
    stop: Option<String>,
    usage: Usage,
}

impl<'a> Reply<'a> {
    /// `number` is different for every answer; `usage` is what the prompt was counted as.
    pub(crate) fn new(
        request: &'a Request,
        answer: &Answer,
        mut usage: Usage,
        number: u64,
    ) -> Self {
        let body = &request.json;
        let thinks = match request.api {
            Api::Messages => matches!(
                body["thinking"]["type"].as_str(),
                Some("enabled" | "adaptive")
            ),
            Api::Responses => true,
            Api::Gemini => gemini::shows_thoughts(request),
            _ => false,
        };
        let omitted = body["thinking"]["display"] == "omitted";
        let mut pieces = Vec::new();
        for (at, part) in answer.parts.iter().enumerate() {
            let unique = format!("{number:08}{at:02}{:012x}", mixed(number * 100 + at as u64));
            pieces.push(match part {
                AnswerPart::Thinking(_) if !thinks => continue,
                AnswerPart::Thinking(text) => Piece::Thinking {
                    id: format!("rs_{unique}"),
                    text: if omitted { String::new() } else { text.clone() },
                },
                AnswerPart::Compaction(_) if matches!(request.api, Api::Chat | Api::Gemini) => {
                    continue;
                }
                AnswerPart::Compaction(text) => Piece::Compaction {
                    id: format!("cmp_{unique}"),
                    text: text.clone(),
                },
                AnswerPart::Text(text) => Piece::Text {
                    id: format!("msg_{unique}"),
                    text: text.clone(),
                },
                AnswerPart::Call {
                    id,
                    name,
                    arguments,
                } => {
                    let begins = if request.api == Api::Messages {
                        "toolu_"
                    } else {
                        "call_"
                    };
                    let tools = request.tools();
                    let custom = tools
                        .iter()
                        .any(|tool| tool["type"] == "custom" && tool["name"] == name.as_str());
                    Piece::Call {
                        id: id.clone().unwrap_or_else(|| format!("{begins}{unique}")),
                        item_id: format!("fc_{unique}"),
                        name: name.clone(),
                        arguments: arguments.clone(),
                        custom: custom && request.api == Api::Responses,
                    }
                }
            });
        }
        let said = pieces.iter().map(|piece| match piece {
            Piece::Thinking { text, .. }
            | Piece::Text { text, .. }
            | Piece::Compaction { text, .. } => text.len(),
            Piece::Call {
                name, arguments, ..
            } => name.len() + arguments.to_string().len() + 20,
        });
        usage.output = tokens(said.sum::<usize>()).max(1);
        let begins = match request.api {
            Api::Chat => "chatcmpl-",
            Api::Responses => "resp_",
            _ => "msg_",
        };
        let id = format!("{begins}{number:08}{:016x}", mixed(number));
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let created = created.map_or(0, |since| since.as_secs());
        Self {
            request,
            id,
            created,
            pieces,
            stop: answer.stop.clone(),
            usage,
        }
    }

    /// What it costs.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Reports other figures.
    pub(crate) fn report(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// The whole of it, as one body.
    pub(crate) fn body(&self) -> Value {
        match self.request.api {
            Api::Messages => anthropic::body(self),
            Api::Chat => chat::body(self),
            Api::Gemini => gemini::body(self),
            _ => responses::body(self),
        }
    }

    /// The events of a stream, each with the empty line that ends it.
    pub(crate) fn events(&self) -> Vec<String> {
        match self.request.api {
            Api::Messages => anthropic::events(self),
            Api::Chat => chat::events(self),
            Api::Gemini => gemini::events(self),
            _ => responses::events(self),
        }
    }

    /// The stream of Gemini's as one JSON array, which it is if nobody asks for events.
    pub(crate) fn list(&self) -> Value {
        gemini::list(self)
    }

    /// Remembers what has to come back.
    pub(crate) fn note(&self, issued: &mut Issued) {
        match self.request.api {
            Api::Messages => anthropic::note(self, issued),
            Api::Responses => responses::note(self, issued),
            Api::Gemini => gemini::note(self, issued),
            _ => {}
        }
    }

    fn calls(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Call { .. }))
    }

    fn encrypted(&self, text: &str) -> Value {
        json!(seal::encrypted(text))
    }
}

/// Bits that look like chance, and are the same each time.
pub(crate) fn mixed(seed: u64) -> u64 {
    // SplitMix64.
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Text in pieces as models say it: some characters at a time, of any length in bytes.
fn deltas(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let lengths = [3, 9, 14, 5, 21, 7];
    let mut at = 0;
    let mut round = 0;
    std::iter::from_fn(move || {
        if at >= characters.len() {
            return None;
        }
        // Long texts in longer pieces, so that a stream has no ten thousand events.
        let length = lengths[round % lengths.len()] * (1 + characters.len() / 2000);
        let end = (at + length).min(characters.len());
        let piece = characters[at..end].iter().collect();
        (at, round) = (end, round + 1);
        Some(piece)
    })
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// An error's body in the provider's shape.
pub(crate) fn error(
    dialect: Dialect,
    status: u16,
    refusal: Option<&Refusal>,
    number: u64,
) -> Value {
    let message = refusal.map(|one| one.message.as_str());
    match dialect {
        Dialect::Anthropic => anthropic::error(status, message, number),
        Dialect::OpenAi => chat::error(status, refusal),
        Dialect::Google => gemini::error(status, message),
    }
}

/// What a stream says in the place of the rest when the provider fails in its middle.
pub(crate) fn error_event(api: Api) -> String {
    match api {
        Api::Messages => event("error", &anthropic::error(529, None, 0)),
        Api::Responses => responses::error_event(),
        Api::Gemini => format!("data: {}\r\n\r\n", gemini::error(503, None)),
        _ => format!("data: {}\n\n", chat::error(500, None)),
    }
}

/// A stream of `/v1/responses` that says that the prompt does not fit.
pub(crate) fn refused_stream(request: &Request, refusal: &Refusal, number: u64) -> Vec<String> {
    responses::refused(request, refusal, number)
}

/// The limits that every answer tells of.
/// <https://platform.claude.com/docs/en/api/rate-limits>, <https://platform.openai.com/docs/guides/rate-limits>
pub(crate) fn limits(dialect: Dialect, number: u64, exhausted: bool) -> Vec<(String, String)> {
    let left = if exhausted { 0 } else { 3999 - number % 1000 };
    let tokens = if exhausted { 0 } else { 1_999_000 };
    let reset = "2026-01-01T00:00:00Z";
    let all: Vec<(&str, String)> = match dialect {
        // Google's say it in the body of the error.
        Dialect::Google => vec![("server-timing", "gfet4t7; dur=12".to_owned())],
        Dialect::Anthropic => vec![
            (
                "request-id",
                format!("req_{number:08}{:016x}", mixed(number)),
            ),
            (
                "anthropic-organization-id",
                "00000000-0000-4000-8000-000000000000".to_owned(),
            ),
            ("anthropic-ratelimit-requests-limit", "4000".to_owned()),
            ("anthropic-ratelimit-requests-remaining", left.to_string()),
            ("anthropic-ratelimit-requests-reset", reset.to_owned()),
            ("anthropic-ratelimit-tokens-limit", "2000000".to_owned()),
            ("anthropic-ratelimit-tokens-remaining", tokens.to_string()),
            ("anthropic-ratelimit-tokens-reset", reset.to_owned()),
        ],
        Dialect::OpenAi => vec![
            (
                "x-request-id",
                format!("req_{:016x}{number:016x}", mixed(number)),
            ),
            ("openai-processing-ms", "12".to_owned()),
            ("openai-version", "2020-10-01".to_owned()),
            ("x-ratelimit-limit-requests", "4000".to_owned()),
            ("x-ratelimit-remaining-requests", left.to_string()),
            ("x-ratelimit-reset-requests", "15ms".to_owned()),
            ("x-ratelimit-limit-tokens", "2000000".to_owned()),
            ("x-ratelimit-remaining-tokens", tokens.to_string()),
            ("x-ratelimit-reset-tokens", "30ms".to_owned()),
        ],
    };
    all.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

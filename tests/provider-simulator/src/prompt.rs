//! A prompt as the model would read it: blocks in order, with a hash of all up to each, and their size.

use hmac_sha256::Hash;
use serde_json::{Value, json};

use crate::request::{Api, Request, field};

/// Bytes of text that are counted as one token.
const BYTES_PER_TOKEN: usize = 4;
/// What an image is counted as. <https://platform.claude.com/docs/en/build-with-claude/vision>
const IMAGE_TOKENS: usize = 1600;

/// How long a prefix is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    FiveMinutes,
    Hour,
}

/// A block, and all that stands before it.
#[derive(Debug)]
pub(crate) struct Block {
    /// Of the model, the credentials, and every block up to this one.
    pub(crate) prefix: [u8; 32],
    /// Tokens up to the end of this block.
    pub(crate) tokens: u64,
    pub(crate) marker: Option<Ttl>,
}

/// Tokens of a text.
pub(crate) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// Every block of a request, in the order in which it is processed: tools, system, messages.
pub(crate) fn blocks(request: &Request) -> Vec<Block> {
    let body = request.generated();
    let mut reader = Reader::new(request);
    for tool in body["tools"].as_array().into_iter().flatten() {
        reader.push("tools", tool);
    }
    match request.api {
        Api::Chat => {
            for message in request.messages() {
                reader.push("message", message);
            }
        }
        Api::Gemini | Api::GeminiCount => {
            reader.content("system", &field(body, "systemInstruction")["parts"]);
            for content in request.messages() {
                reader.mix(content["role"].as_str().unwrap_or("user"));
                reader.content("part", &content["parts"]);
            }
        }
        Api::Responses => {
            if body["instructions"].is_string() {
                reader.push("instructions", &body["instructions"]);
            }
            match &body["input"] {
                text @ Value::String(_) => {
                    reader.push("item", &json!({"role": "user", "content": text}))
                }
                _ => request
                    .messages()
                    .iter()
                    .for_each(|item| reader.push("item", item)),
            }
        }
        _ => {
            reader.content("system", &body["system"]);
            // https://platform.claude.com/docs/en/build-with-claude/prompt-caching, "What invalidates the cache":
            // these leave tools and system as they are, and nothing that comes after.
            reader.mix(&json!([body["tool_choice"], body["thinking"]]).to_string());
            let mut role = "";
            for message in request.messages() {
                let own = message["role"].as_str().unwrap_or_default();
                // Messages of one role in a row are joined.
                if own != role {
                    role = own;
                    reader.mix(role);
                }
                reader.content(role, &message["content"]);
            }
            // The automatic one: on the last block that can carry it.
            let automatic = ttl(&body["cache_control"]);
            if let (Some(_), Some(last)) = (automatic, reader.cacheable) {
                reader.blocks[last].marker = reader.blocks[last].marker.or(automatic);
            }
        }
    }
    reader.blocks
}

struct Reader {
    so_far: [u8; 32],
    bytes: usize,
    blocks: Vec<Block>,
    /// The last block that can carry a marker.
    cacheable: Option<usize>,
}

impl Reader {
    fn new(request: &Request) -> Self {
        // A cache belongs to one account and one model.
        let who = request
            .header("x-api-key")
            .or(request.header("x-goog-api-key"))
            .or(request.header("authorization"));
        let so_far = Hash::hash(format!("{who:?} {}", request.model()).as_bytes());
        Self {
            so_far,
            bytes: 0,
            blocks: Vec::new(),
            cacheable: None,
        }
    }

    fn mix(&mut self, text: &str) {
        self.so_far = Hash::hash(&[&self.so_far[..], text.as_bytes()].concat());
    }

    /// A string is one block of text.
    fn content(&mut self, place: &str, content: &Value) {
        match content {
            Value::String(text) if !text.is_empty() => {
                self.push(place, &json!({"type": "text", "text": text}))
            }
            Value::Array(blocks) => blocks.iter().for_each(|block| self.push(place, block)),
            _ => {}
        }
    }

    fn push(&mut self, place: &str, block: &Value) {
        let mut marker = ttl(&block["cache_control"]);
        let mut plain = block.clone();
        if let Some(fields) = plain.as_object_mut() {
            fields.remove("cache_control");
            // Text within a tool's result may carry one, too, and a result may be a string or a list of one text.
            let content = fields.get_mut("content");
            if let Some(Value::Array(parts)) = content {
                for part in parts.iter_mut() {
                    if let Some(inner) = part
                        .as_object_mut()
                        .and_then(|part| part.remove("cache_control"))
                    {
                        marker = marker.or(ttl(&inner));
                    }
                }
            }
        }
        self.bytes += size(&plain);
        self.mix(&format!("{place}{plain}"));
        let thinks = block["type"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("thinking"));
        if !thinks {
            self.cacheable = Some(self.blocks.len());
        }
        self.blocks.push(Block {
            prefix: self.so_far,
            tokens: tokens(self.bytes),
            marker,
        });
    }
}

fn ttl(marker: &Value) -> Option<Ttl> {
    marker.is_object().then(|| {
        if marker["ttl"] == "1h" {
            Ttl::Hour
        } else {
            Ttl::FiveMinutes
        }
    })
}

/// Bytes of a block as text. A picture is not text.
fn size(block: &Value) -> usize {
    match block {
        Value::Array(all) => all.iter().map(size).sum::<usize>() + 2,
        Value::Object(fields) => {
            let media = ["inlineData", "inline_data", "fileData", "file_data"];
            if media.iter().any(|name| fields.contains_key(*name)) {
                return IMAGE_TOKENS * BYTES_PER_TOKEN;
            }
            if matches!(
                block["type"].as_str(),
                Some("image" | "image_url" | "input_image")
            ) {
                return IMAGE_TOKENS * BYTES_PER_TOKEN;
            }
            fields
                .iter()
                .map(|(key, value)| key.len() + 4 + size(value))
                .sum::<usize>()
                + 2
        }
        Value::String(text) => text.len() + 2,
        other => other.to_string().len(),
    }
}

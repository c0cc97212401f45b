//! The sets, as what a client sends: the beginning of a request body, and wire messages.

use std::path::Path;

use contexture::formats::{self, Conversation, Format, RenderPlan};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::zip;

/// A conversation as a client has it.
pub(crate) struct Chat {
    /// A name for it, unique in its set.
    pub(crate) name: String,
    pub(crate) format: Format,
    /// The members of the body beside the messages: `"model":…,"tools":…,`.
    head: String,
    /// The wire messages, byte for byte.
    pub(crate) messages: Vec<Box<RawValue>>,
}

impl Chat {
    fn of_messages(name: String, messages: &[Value]) -> Self {
        let messages = messages
            .iter()
            .map(|message| RawValue::from_string(message.to_string()).unwrap());
        Self {
            name,
            format: Format::OpenAiChat,
            head: "\"model\":\"gpt-5\",".to_owned(),
            messages: messages.collect(),
        }
    }

    /// A conversation of a file, as the agent that wrote it sent it.
    fn of_file(name: String, conversation: &Conversation) -> Self {
        let format = match conversation.format() {
            Format::ClaudeCode => Format::Anthropic,
            _ => Format::OpenAiChat,
        };
        let whole = RenderPlan::whole(conversation.messages().len());
        let body = conversation.convert(&whole, format).unwrap().document;
        let body: Map<String, Value> = serde_json::from_str(&body).unwrap();
        let mut head = String::new();
        for (key, value) in body.iter().filter(|(key, _)| *key != "messages") {
            head.push_str(&format!("{}:{value},", json!(key)));
        }
        let messages = body["messages"].as_array().unwrap().iter();
        Self {
            name,
            format,
            head,
            messages: messages
                .map(|message| RawValue::from_string(message.to_string()).unwrap())
                .collect(),
        }
    }

    /// A request with the first `count` messages.
    pub(crate) fn body(&self, count: usize) -> String {
        let messages: Vec<&str> = self.messages[..count].iter().map(|raw| raw.get()).collect();
        format!("{{{}\"messages\":[{}]}}", self.head, messages.join(","))
    }

    pub(crate) fn role(&self, at: usize) -> String {
        let message: Value = serde_json::from_str(self.messages[at].get()).unwrap();
        message["role"].as_str().unwrap().to_owned()
    }
}

/// Every conversation of every file of a folder that is in a format of the host.
pub(crate) fn logs(folder: &Path) -> Vec<Chat> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("LICENSE"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let read = formats::read(text, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!read.is_empty(), "{name}");
        for (at, conversation) in read.iter().enumerate() {
            all.push(Chat::of_file(format!("{name} #{at}"), conversation));
        }
    }
    all
}

/// What users said over several sessions with one assistant, a conversation each file.
pub(crate) fn bfcl_memory(folder: &Path) -> Vec<Chat> {
    ["memory_customer.json", "memory_notetaker.json"]
        .map(|name| {
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            let mut messages = Vec::new();
            for line in text.lines() {
                let session: Value = serde_json::from_str(line).unwrap();
                for turn in session["question"].as_array().unwrap() {
                    messages.extend(turn.as_array().unwrap().iter().cloned());
                }
            }
            Chat::of_messages(name.to_owned(), &messages)
        })
        .into()
}

/// Chinese dialogues between a person and a guide.
pub(crate) fn crosswoz(archive: &Path) -> Vec<Chat> {
    let all: Map<String, Value> = serde_json::from_str(&zip::first_file(archive)).unwrap();
    all.iter()
        .map(|(id, dialogue)| {
            let messages = dialogue["messages"].as_array().unwrap().iter();
            let messages: Vec<Value> = messages
                .map(|message| {
                    let role = match message["role"].as_str() {
                        Some("usr") => "user",
                        _ => "assistant",
                    };
                    json!({"role": role, "content": message["content"]})
                })
                .collect();
            Chat::of_messages(id.clone(), &messages)
        })
        .collect()
}

/// Chinese chats with a companion, over days.
pub(crate) fn memorybank(file: &Path) -> Vec<Chat> {
    let all: Map<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    all.iter()
        .map(|(person, chats)| {
            let days = chats["history"].as_object().unwrap().values();
            let messages: Vec<Value> = days
                .flat_map(|day| day.as_array().unwrap())
                .flat_map(|said| {
                    [
                        json!({"role": "user", "content": said["query"]}),
                        json!({"role": "assistant", "content": said["response"]}),
                    ]
                })
                .collect();
            Chat::of_messages(person.clone(), &messages)
        })
        .collect()
}

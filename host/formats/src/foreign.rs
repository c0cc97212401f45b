//! Recognises documents of programs whose formats are not supported, so that they are rejected
//! by name and not mistaken for a supported format.
//!
//! Each format has one row in [`TABLE`] with the features that distinguish it from the
//! supported formats. A format whose documents are refused anyway needs no row: the error says which
//! members were found and which are needed. The entry points are [`document`] and [`lines`]. The
//! table is only consulted if the user did not name a format.
//!
//! A row looks only at the members of the document and at its first entries, so the cost does
//! not grow with the document. To add a format, add a row and a sample to the tests.

use std::borrow::Cow;

use super::json::Raw;

/// The number of entries of a list, or of lines, that are examined.
pub(super) const LOOKED_AT: usize = 32;

/// The maximum size in bytes of a value below an entry whose members are examined. Larger
/// values would take too long to scan.
const SMALL: usize = 32 * 1024;

/// An object whose members are listed once, so that a row can test many keys cheaply.
struct Object<'a>(Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'a> Object<'a> {
    fn of(raw: Raw<'a>) -> Self {
        Self(raw.members().collect())
    }
}

/// Something whose members a row can test: an object, or a value that is not too large.
trait Look<'a> {
    fn at(&self, key: &str) -> Option<Raw<'a>>;
}

impl<'a> Look<'a> for &Object<'a> {
    fn at(&self, key: &str) -> Option<Raw<'a>> {
        // If a key is repeated, the last one counts, as in `Raw::get`.
        let mut same = self.0.iter().rev().filter(|(name, _)| name == key);
        same.next().map(|(_, value)| *value)
    }
}

impl<'a> Look<'a> for Raw<'a> {
    fn at(&self, key: &str) -> Option<Raw<'a>> {
        (self.text().len() <= SMALL)
            .then(|| self.get(key))
            .flatten()
    }
}

/// What a row sees of a document. It is an object with the first entries of its list of
/// messages, or the entries of a list or of lines without an object.
struct Seen<'a> {
    root: Object<'a>,
    entries: Vec<Object<'a>>,
    is_lines: bool,
}

impl<'a> Seen<'a> {
    fn root(&self, key: &str) -> Option<Raw<'a>> {
        (&self.root).at(key)
    }

    fn has(&self, keys: &[&str]) -> bool {
        has(&self.root, keys)
    }

    fn has_list(&self, key: &str) -> bool {
        self.root(key).is_some_and(Raw::is_array)
    }

    fn is(&self, key: &str, wanted: &[&str]) -> bool {
        is(self.root(key), wanted)
    }

    fn any(&self, like: impl Fn(&Object<'a>) -> bool) -> bool {
        self.entries.iter().any(like)
    }

    /// Whether all entries match. It is false if there are none.
    fn all(&self, like: impl Fn(&Object<'a>) -> bool) -> bool {
        !self.entries.is_empty() && self.entries.iter().all(like)
    }

    /// Whether any of the entries has a matching part in its list `key`.
    fn any_part(&self, key: &str, like: impl Fn(&Object<'a>) -> bool) -> bool {
        self.any(|entry| parts(entry, key).iter().any(&like))
    }
}

fn parts<'a>(entry: &Object<'a>, key: &str) -> Vec<Object<'a>> {
    let list = entry.at(key).filter(|list| list.text().len() <= SMALL);
    let parts = list.into_iter().flat_map(Raw::elements);
    parts.take(LOOKED_AT).map(Object::of).collect()
}

fn has<'a>(entry: impl Look<'a>, keys: &[&str]) -> bool {
    keys.iter().all(|key| entry.at(key).is_some())
}

fn is(value: Option<Raw<'_>>, wanted: &[&str]) -> bool {
    let text = value.and_then(Raw::string);
    text.is_some_and(|text| wanted.contains(&text.as_ref()))
}

fn kind_is<'a>(entry: impl Look<'a>, wanted: &[&str]) -> bool {
    is(entry.at("type"), wanted)
}

/// An unsupported format: its name with its article, and the test that recognises it.
type Row = (&'static str, fn(&Seen<'_>) -> bool);

/// The unsupported formats. More specific tests come first, because the first match is
/// reported.
const TABLE: [Row; 24] = [
    ("a Qwen Code session", |seen| {
        seen.is_lines
            && seen.any(|line| line.at("message").is_some_and(|said| has(said, &["parts"])))
    }),
    ("a Gemini CLI session", |seen| {
        let is_its = |entry: &Object<'_>| {
            kind_is(entry, &["user", "gemini"]) && has(entry, &["id", "content"])
        };
        seen.has(&["sessionId", "projectHash"])
            || (seen.any(is_its) && seen.any(|entry| kind_is(entry, &["gemini"])))
            || seen.any(|entry| has(entry, &["sessionId", "projectHash", "startTime"]))
    }),
    ("Gemini CLI's stream-json output", |seen| {
        let is_head = |line: &Object<'_>| kind_is(line, &["init"]) && has(line, &["session_id"]);
        let is_call = |line: &Object<'_>| {
            kind_is(line, &["tool_use"]) && has(line, &["tool_name", "tool_id"])
        };
        let is_said = |line: &Object<'_>| {
            kind_is(line, &["message"]) && has(line, &["role", "content", "timestamp"])
        };
        seen.is_lines && seen.any(|line| is_head(line) || is_call(line) || is_said(line))
    }),
    ("output of `codex exec --json`", |seen| {
        seen.any(|line| kind_is(line, &["thread.started"]) && has(line, &["thread_id"]))
            || (seen.is_lines
                && seen.any(|line| {
                    kind_is(line, &["item.started", "item.completed"]) && has(line, &["item"])
                }))
    }),
    ("a GitHub Copilot CLI session", |seen| {
        seen.any(|line| {
            kind_is(
                line,
                &["session.start", "user.message", "assistant.message"],
            ) && has(line, &["data"])
        })
    }),
    ("a session of pi or OpenClaw", |seen| {
        let is_head = |line: &Object<'_>| kind_is(line, &["session"]) && has(line, &["id", "cwd"]);
        let is_said =
            |line: &Object<'_>| kind_is(line, &["message"]) && has(line, &["message", "parentId"]);
        seen.any(|line| is_head(line) || is_said(line))
    }),
    ("a Factory Droid session", |seen| {
        seen.any(|line| kind_is(line, &["session_start"]) && has(line, &["id"]))
    }),
    ("LangChain messages", |seen| {
        let kinds = [
            "human", "ai", "HumanMessage", "AIMessage", "SystemMessage", "ToolMessage",
            "AIMessageChunk", "HumanMessageChunk", "system", "tool", "function", "chat", "remove",
        ];
        let is_dumped = |entry: &Object<'_>| has(entry, &["lc", "kwargs"]);
        let is_one = |entry: &Object<'_>| {
            kind_is(entry, &kinds)
                && !has(entry, &["role"])
                && (has(entry, &["data"]) || has(entry, &["content"]))
                && !has(entry, &["uuid"])
        };
        seen.any(is_dumped) || seen.all(is_one) || seen.has(&["lc", "kwargs"])
    }),
    ("an opencode session", |seen| {
        seen.any(|entry| has(entry, &["info", "parts"]))
            || (seen.has(&["sessionID", "messageID", "type"]) && !seen.has_list("messages"))
            || seen.any(|entry| has(entry, &["sessionID", "messageID", "type"]))
    }),
    ("Pydantic AI messages", |seen| {
        seen.any_part("parts", |part| has(part, &["part_kind"]))
            || seen.any(|entry| {
                has(entry, &["parts", "kind"]) && is(entry.at("kind"), &["request", "response"])
            })
    }),
    ("Vercel AI SDK UI messages", |seen| {
        seen.any_part("parts", |part| part.at("type").is_some_and(Raw::is_string))
            || seen.any(|entry| has(entry, &["role", "toolInvocations"]))
    }),
    ("an A2A message", |seen| {
        seen.any(|entry| has(entry, &["parts", "messageId"]))
    }),
    ("a Bedrock Converse request", |seen| {
        let is_its = |part: &Object<'_>| {
            let keys = [
                "toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent",
            ];
            !has(part, &["type"]) && keys.iter().any(|key| has(part, &[key]))
        };
        let is_typeless = |part: Raw<'_>| part.is_object() && !has(part, &["type"]);
        let has_parts = |entry: &Object<'_>| {
            entry.at("content").is_some_and(|content| {
                content.is_array()
                    && content.elements().next().is_some()
                    && content.elements().take(LOOKED_AT).all(is_typeless)
            })
        };
        seen.any_part("content", is_its)
            || seen.has(&["messages", "inferenceConfig"])
            || seen.has(&["messages", "modelId"])
            || seen.has(&["messages", "toolConfig"])
            || seen.all(|entry| has(entry, &["role"]) && has_parts(entry))
    }),
    ("an OpenAI Assistants thread", |seen| {
        let kinds = ["thread.message", "thread.run", "thread.run.step"];
        seen.any(|entry| is(entry.at("object"), &kinds))
    }),
    ("an answer from Anthropic, not a request", |seen| {
        seen.is("type", &["message"]) && seen.has(&["role", "content", "stop_reason", "usage"])
    }),
    ("an Alpaca data set", |seen| {
        seen.all(|entry| has(entry, &["instruction", "output"]))
            || seen.has(&["instruction", "output"])
    }),
    ("LlamaIndex messages", |seen| {
        let is_its = |entry: &Object<'_>| {
            has(entry, &["role", "additional_kwargs"]) || has(entry, &["role", "blocks"])
        };
        seen.any(is_its)
            || seen.has(&["chat_store", "class_name"])
            || seen.has(&["chat_store", "token_limit"])
    }),
    ("a Goose session", |seen| {
        let kinds = [
            "toolRequest",
            "toolResponse",
            "toolConfirmationRequest",
            "frontendToolRequest",
        ];
        seen.any_part("content", |part| kind_is(part, &kinds))
            || seen.any(|entry| has(entry, &["working_dir", "message_count"]))
            || seen.any(|entry| has(entry, &["working_dir", "description"]))
            || seen.has(&["working_dir", "conversation"])
    }),
    ("a Zed thread", |seen| {
        let is_its = |entry: &Object<'_>| {
            has(entry, &["User"]) || has(entry, &["Agent"]) || has(entry, &["segments"])
        };
        seen.any(is_its)
    }),
    ("AutoGen messages", |seen| {
        let is_its = |entry: &Object<'_>| {
            let kind = entry.at("type").and_then(Raw::string).unwrap_or_default();
            has(entry, &["source"])
                && !has(entry, &["role"])
                && (kind.ends_with("Message")
                    || kind.ends_with("Event")
                    || has(entry, &["models_usage"]))
        };
        seen.any(is_its)
            || seen.root("agent_states").is_some()
            || seen.root("llm_context").is_some()
    }),
    ("Semantic Kernel messages", |seen| {
        let is_its = |entry: &Object<'_>| {
            has(entry, &["role", "items"])
                && parts(entry, "items")
                    .iter()
                    .any(|item| has(item, &["$type"]) || has(item, &["content_type"]))
        };
        seen.any(is_its)
    }),
    ("an Amp thread", |seen| {
        seen.has(&["v", "messages"]) && seen.any(|entry| has(entry, &["messageId", "meta"]))
    }),
    ("a Letta agent file", |seen| {
        // SWE-agent has this member as well, with other values.
        let is_message = |entry: &Object<'_>| {
            let kind = entry.at("message_type").and_then(Raw::string);
            kind.is_some_and(|kind| kind.ends_with("_message"))
        };
        seen.any(is_message)
    }),
    ("a Cohere request", |seen| {
        seen.all(|entry| {
            has(entry, &["message"]) && is(entry.at("role"), &["USER", "CHATBOT", "SYSTEM", "TOOL"])
        })
    }),
];

/// Returns the name of the unsupported format of an object or a list with these members. `None`
/// if it is not recognised.
pub(super) fn document<'a>(
    raw: Raw<'a>,
    members: &[(Cow<'a, str>, Raw<'a>)],
) -> Option<&'static str> {
    let root = Object(members.to_vec());
    let list = match raw.is_array() {
        true => Some(raw),
        false => (&root).at("messages"),
    };
    let entries = list.into_iter().flat_map(Raw::elements).take(LOOKED_AT);
    found(&Seen {
        entries: entries.map(Object::of).collect(),
        root,
        is_lines: false,
    })
}

/// Returns the name of the unsupported format of a document of lines. `None` if it is not
/// recognised.
pub(super) fn lines<'a>(lines: &[Raw<'a>]) -> Option<&'static str> {
    let told = found(&Seen {
        entries: lines
            .iter()
            .take(LOOKED_AT)
            .copied()
            .map(Object::of)
            .collect(),
        root: match lines {
            [only] => Object::of(*only),
            _ => Object(Vec::new()),
        },
        is_lines: true,
    });
    // Each line may be a whole conversation, so the first one is examined as a document.
    told.or_else(|| {
        let first = *lines.first()?;
        let members = Object::of(first);
        (&members).at("messages")?;
        document(first, &members.0)
    })
}

fn found(seen: &Seen<'_>) -> Option<&'static str> {
    let row = TABLE.iter().find(|(_, is_it)| is_it(seen));
    row.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests;

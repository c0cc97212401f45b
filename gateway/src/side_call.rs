//! Recognizes side calls: requests that an agent makes apart from its conversation, for example for
//! a title, a commit message or a summary. They are passed on unchanged.
//!
//! [`purpose`] is the only entry point. A side call is recognized by what it contains, never by
//! what it lacks, because agents also talk without tools. One of these must hold:
//!
//! 1. **Quota.** It asks for no more than one token.
//! 2. **Riding along.** Its last message has words that only agents write ([`LAST`]).
//! 3. **Material.** Its system prompt says that the messages are material ([`INSTRUCTIONS`]).
//! 4. **A chore.** It is short, offers no tools, and orders one thing from [`MADE`] in one
//!    sentence.
//! 5. **A form.** It is short, offers no tools, and its answer has to be a JSON object of such
//!    things.
//!
//! A conversation that is mistaken for a chore is managed once it has more than
//! [`MAX_CHORE_MESSAGES`] messages. A side call that is not recognized becomes a session of its
//! own.

use contexture::formats::{Format, WireBody};
use serde_json::Value;

use crate::gemini;
use crate::window::longest_answer;

/// What a side call is for, in a word or two. It appears on the status page and in the headers.
pub(crate) type Purpose = &'static str;

/// Phrases in the last message that identify a side call, whatever the messages before it say. Each
/// has its purpose.
const LAST: &[(Purpose, &str)] = &[
    // Claude Code, Roo Code
    (
        "summary",
        "Your task is to create a detailed summary of the conversation so far",
    ),
    // Codex
    (
        "summary",
        "You are performing a CONTEXT CHECKPOINT COMPACTION",
    ),
    // OpenCode
    (
        "summary",
        "Provide a detailed prompt for continuing our conversation above",
    ),
    (
        "summary",
        "Provide a detailed summary for continuing our conversation above",
    ),
    // Cline
    (
        "summary",
        "urgent task is to create a comprehensive detailed summary of the conversation",
    ),
    // Gemini CLI and Qwen Code
    (
        "summary",
        "First, reason in your scratchpad. Then, generate the <state_snapshot>",
    ),
    (
        "summary",
        "First, reason in your scratchpad. Then, generate the updated <state_snapshot>",
    ),
    (
        "next speaker",
        "of your immediately preceding response (your last turn in the conversation history)",
    ),
];

/// Phrases in the system prompt that identify a side call, whatever the messages say. Each has its
/// purpose.
const INSTRUCTIONS: &[(Purpose, &str)] = &[
    // OpenCode
    ("title", "You are a title generator"),
    ("summary", "tasked with summarizing conversations"),
    ("summary", "Summarize what was done in this conversation"),
    // Gemini CLI and Qwen Code
    (
        "summary",
        "summarizes internal chat history into a given structure",
    ),
    (
        "summary",
        "responsible for distilling chat history into a structured XML <state_snapshot>",
    ),
    (
        "loop check",
        "identifying when a conversational AI is stuck",
    ),
    (
        "loop check",
        "determines whether a conversational AI assistant is stuck",
    ),
    ("routing", "You are a specialized Task Routing AI"),
    (
        "edit correction",
        "correcting failed search-and-replace operations",
    ),
    ("edit correction", "analyze a failed edit attempt"),
    (
        "action check",
        "check if a specific tool call complies with a given security policy",
    ),
    ("action check", "generating fine-grained security policies"),
    // aider
    ("summary", "*Briefly* summarize this partial conversation"),
    (
        "commit message",
        "one-line Git commit messages based on the provided diffs",
    ),
    // Hermes
    (
        "summary",
        "You are a summarization agent creating a context checkpoint",
    ),
    // Claude Code
    (
        "command check",
        "Your task is to process Bash commands that an AI coding agent",
    ),
    (
        "command check",
        "Extract any file paths that this command reads or modifies",
    ),
    (
        "topic",
        "Analyze if this message indicates a new conversation topic",
    ),
    (
        "label",
        "Write a short summary label describing what these tool calls",
    ),
    (
        "search",
        "You are an assistant for performing a web search tool use",
    ),
    // Codex
    (
        "action check",
        "You are judging one planned coding-agent action",
    ),
    ("memory", "Memory Writing Agent"),
];

/// Phrases with which the only message of a side call begins.
const ONLY: &[(Purpose, &str)] = &[
    // Claude Code
    ("web page", "Web page content:"),
    ("command check", "<policy_spec>"),
    ("summary", "Summarize this coding conversation"),
    // OpenCode
    ("title", "Generate a title for this conversation"),
    // Gemini CLI
    ("summary", "Summarize the following tool output"),
    ("summary", "The following output from the tool '"),
    (
        "name",
        "Summarize the user's primary intent or goal in this conversation",
    ),
];

/// Verbs and word stems that ask for something to be made, in lower case.
const VERBS: &[&str] = &[
    "generat",
    "write",
    "creat",
    "provide",
    "suggest",
    "craft",
    "extract",
    "come up with",
    "respond with",
    "reply with",
    "return",
    "output",
    "produce",
    "propose",
    "determine",
    "give",
    "pick",
    "choose",
    "summariz",
    "summaris",
];

/// What agents have made for their user interface: the purpose, and the phrase for it in lower
/// case.
const MADE: &[(Purpose, &str)] = &[
    ("title", "title"),
    ("commit message", "commit message"),
    ("branch name", "branch name"),
    ("name", "session name"),
    ("name", "description of this session"),
    ("topic", "topic"),
    ("tags", "tags"),
    ("follow-ups", "follow-up"),
    ("follow-ups", "followup"),
    ("label", "summary label"),
    ("summary", "in under"),
    ("summary", "words or less"),
];

/// Phrases that say what a title or summary is for. A person who asks for a title usually means a
/// title of something else.
const ABOUT: &[&str] = &[
    "conversation",
    "chat",
    "session",
    "thread",
    "exchange",
    "diff",
    "staged changes",
];

/// The member names of JSON forms for such things, each with its purpose.
const FORM: &[(Purpose, &str)] = &[
    ("title", "title"),
    ("topic", "isNewTopic"),
    ("topic", "is_new_topic"),
    ("topic", "topic"),
    ("branch name", "branch"),
    ("branch name", "branchName"),
    ("commit message", "commit_message"),
    ("tags", "tags"),
    ("follow-ups", "follow_ups"),
];

/// The most messages of a chore. It may begin with an example or two.
const MAX_CHORE_MESSAGES: usize = 3;
/// How far from the beginning of a text the order may be, in bytes of its JSON.
const ORDER_BYTES: usize = 1_500;
/// How far after the verb the thing to be made may be named, in bytes.
const OBJECT_BYTES: usize = 90;

/// The purpose of the first phrase that a raw JSON text contains. The phrases need no JSON escapes,
/// so the text is not parsed.
fn holds(raw: &str, cues: &[(Purpose, &str)]) -> Option<Purpose> {
    let bytes = raw.as_bytes();
    let is_in = |cue: &str| memchr::memmem::find(bytes, cue.as_bytes()).is_some();
    cues.iter()
        .find(|(_, cue)| is_in(cue))
        .map(|(purpose, _)| *purpose)
}

/// The purpose of a request if it is a side call, or None if it is part of a conversation.
///
/// The checks go from certain to uncertain. Only short requests without tools get to the last ones,
/// because those could mistake a conversation for a chore.
pub(crate) fn purpose(wire: &WireBody<'_>) -> Option<Purpose> {
    if longest_answer(wire).is_some_and(|tokens| tokens <= 1) {
        return Some("quota");
    }
    let last = wire.messages.last().copied().unwrap_or_default();
    if let Some(purpose) = holds(last, LAST) {
        return Some(purpose);
    }
    let prompts = || wire.system.iter().chain(&wire.system_messages);
    let job = prompts().find_map(|prompt| holds(beginning(prompt), INSTRUCTIONS));
    if job.is_some() {
        return job;
    }
    let has_tools = wire.tools.is_some_and(|tools| tools.trim() != "[]");
    if wire.messages.len() > MAX_CHORE_MESSAGES || has_tools || wire.has_tool_items() {
        return None;
    }
    let only = match wire.messages.as_slice() {
        [only] => Some(beginning(only)),
        _ => None,
    };
    only.and_then(|only| holds(only.get(..200).unwrap_or(only), ONLY))
        .or_else(|| prompts().find_map(|prompt| chore(beginning(prompt), false)))
        .or_else(|| only.and_then(|only| chore(only, true)))
        .or_else(|| form(wire))
}

/// The first [`ORDER_BYTES`] bytes of a text, cut at a character boundary.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(ORDER_BYTES))
        .unwrap_or(text)
}

/// The purpose of a text that orders something from [`MADE`]. If a person may have written the
/// text, it also has to mention one of [`ABOUT`].
fn chore(raw: &str, must_say_of_what: bool) -> Option<Purpose> {
    let text = raw.to_ascii_lowercase().replace("\\n", ". ");
    if must_say_of_what && !ABOUT.iter().any(|about| text.contains(about)) {
        return None;
    }
    let mut sentences = text.split(['.', '?', '!']);
    sentences.find_map(|sentence| {
        VERBS.iter().find_map(|verb| {
            let at = sentence.find(verb)?;
            let rest = sentence.get(at..)?;
            let near = rest
                .get(..rest.floor_char_boundary(OBJECT_BYTES))
                .unwrap_or(rest);
            MADE.iter()
                .find(|(_, made)| near.contains(made))
                .map(|(purpose, _)| *purpose)
        })
    })
}

/// The purpose of a request whose answer has to be a JSON object, if all of its members are in
/// [`FORM`].
fn form(wire: &WireBody<'_>) -> Option<Purpose> {
    let places = [
        ("output_config", "/format/schema/properties"),
        ("output_format", "/schema/properties"),
        ("response_format", "/json_schema/schema/properties"),
        ("text", "/format/schema/properties"),
    ];
    let schema = places.iter().find_map(|(member, path)| {
        let value: Value = serde_json::from_str(wire.member(member)?).ok()?;
        value.pointer(path).cloned()
    });
    let members = match wire.format {
        Format::Gemini => {
            let options = gemini::options(wire);
            let forms =
                ["responseJsonSchema", "responseSchema"].map(|name| gemini::field(&options, name));
            let form = forms.into_iter().find(|form| form.is_object())?;
            form["properties"].clone()
        }
        _ => schema?,
    };
    let mut purposes = members.as_object()?.keys().map(|key| {
        FORM.iter()
            .find(|(_, name)| name == key)
            .map(|(purpose, _)| *purpose)
    });
    let first = purposes.next()??;
    purposes.all(|purpose| purpose.is_some()).then_some(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use contexture::formats::split;
    use serde_json::json;

    /// Side calls as agents make them: format, body and purpose.
    fn side_calls() -> Vec<(Format, Value, Purpose)> {
        let anthropic = |system: &str, user: &str| {
            json!({
                "model": "claude-haiku-4-5", "max_tokens": 512, "messages": [{"role": "user", "content": user}],
                "system": [{"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."},
                    {"type": "text", "text": system}],
            })
        };
        let chat = |system: &str, user: &str| {
            json!({"model": "gpt-4o-mini", "messages": [
            {"role": "system", "content": system}, {"role": "user", "content": user}]})
        };
        let responses = |system: &str, user: &str| {
            json!({"model": "gpt-5.1-codex-mini", "instructions": system,
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": user}]}]})
        };
        let talk = |last: &str| {
            json!({"model": "m", "max_tokens": 20_000, "tools": [{"name": "Bash", "input_schema": {}}],
            "system": "You help with software.", "messages": [{"role": "user", "content": "Fix it."},
            {"role": "assistant", "content": "Done."}, {"role": "user", "content": last}]})
        };
        let form = |members: Value| {
            json!({"model": "m", "max_tokens": 500, "system": "Titel!",
            "messages": [{"role": "user", "content": "Bitte den Test reparieren"}],
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": members}}}})
        };
        let gemini = |system: &str, user: &str, options: Value| {
            json!({"systemInstruction": {"role": "user", "parts": [{"text": system}]}, "generationConfig": options,
            "contents": [{"role": "user", "parts": [{"text": user}]}]})
        };
        let (a, c, r, g) = (
            Format::Anthropic,
            Format::OpenAiChat,
            Format::OpenAiResponses,
            Format::Gemini,
        );
        vec![
            // Claude Code
            (
                a,
                json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}),
                "quota",
            ),
            (
                a,
                anthropic(
                    "Generate a concise, sentence-case title (3-7 words) that captures the main topic or goal of \
                this coding session.",
                    "fix the build",
                ),
                "title",
            ),
            (
                a,
                anthropic(
                    "Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word \
                title.",
                    "fix the build",
                ),
                "topic",
            ),
            (
                a,
                anthropic(
                    "",
                    "Summarize this coding conversation in under 50 characters.",
                ),
                "summary",
            ),
            (
                a,
                anthropic("", "Web page content:\n---\n# Releases\n---\nWhat changed?"),
                "web page",
            ),
            (
                a,
                anthropic(
                    "Your task is to process Bash commands that an AI coding agent wants to run.",
                    "git log",
                ),
                "command check",
            ),
            (
                a,
                anthropic(
                    "Extract any file paths that this command reads or modifies.",
                    "cat a",
                ),
                "command check",
            ),
            (
                a,
                anthropic(
                    "Write a short summary label describing what these tool calls accomplished.",
                    "[]",
                ),
                "label",
            ),
            (
                a,
                talk(
                    "Your task is to create a detailed summary of the conversation so far, paying attention.",
                ),
                "summary",
            ),
            (a, form(json!({"title": {"type": "string"}})), "title"),
            (
                a,
                form(json!({"isNewTopic": {"type": "boolean"}, "title": {"type": "string"}})),
                "topic",
            ),
            // Codex
            (
                r,
                responses(
                    "You are a helpful assistant. You will be presented with a user prompt, and your job is to \
                provide a short title for a task that will be created from that prompt.",
                    "fix it",
                ),
                "title",
            ),
            (
                r,
                json!({"model": "m", "instructions": "You are Codex.", "input": [{"role": "user", "content": "Hi"},
                {"role": "user", "content": "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."}]}),
                "summary",
            ),
            (
                r,
                responses(
                    "You are judging one planned coding-agent action.",
                    "rm -rf /",
                ),
                "action check",
            ),
            (
                r,
                responses("## Memory Writing Agent: Phase 1", "rollout"),
                "memory",
            ),
            // OpenCode
            (
                c,
                chat(
                    "You are a title generator. You output ONLY a thread title. Nothing else.",
                    "Generate a title for this conversation:\n",
                ),
                "title",
            ),
            (
                c,
                chat("", "Generate a title for this conversation:\nfix it"),
                "title",
            ),
            (
                c,
                chat(
                    "You are a helpful AI assistant tasked with summarizing conversations.",
                    "Hi",
                ),
                "summary",
            ),
            (
                a,
                talk("Provide a detailed prompt for continuing our conversation above."),
                "summary",
            ),
            // aider
            (
                c,
                chat(
                    "You are an expert software engineer that generates concise, one-line Git commit messages based on \
                the provided diffs.",
                    "diff --git a b",
                ),
                "commit message",
            ),
            (
                c,
                chat(
                    "*Briefly* summarize this partial conversation about programming.",
                    "# USER\nHi",
                ),
                "summary",
            ),
            // Cline and Roo Code
            (
                a,
                talk(
                    "The current conversation is rapidly running out of context. Now, your urgent task is to create a \
                comprehensive detailed summary of the conversation so far.",
                ),
                "summary",
            ),
            (
                c,
                chat(
                    "You are a helpful assistant that generates informative git commit messages based on git diffs.",
                    "diff",
                ),
                "commit message",
            ),
            // Gemini CLI and Qwen Code
            (
                c,
                chat(
                    "You are the component that summarizes internal chat history into a given structure.",
                    "history",
                ),
                "summary",
            ),
            (
                g,
                gemini(
                    "You are a specialized Task Routing AI. Your sole function is to analyze the user's request and \
                assign a **Complexity Score** from 1 to 100.",
                    "fix it",
                    json!({"responseMimeType": "application/json"}),
                ),
                "routing",
            ),
            (
                g,
                gemini(
                    "You are a diagnostic agent that determines whether a conversational AI assistant is stuck in an \
                unproductive loop.",
                    "fix it",
                    json!({}),
                ),
                "loop check",
            ),
            (
                g,
                gemini(
                    "You are an expert code-editing assistant specializing in debugging and correcting failed \
                search-and-replace operations.",
                    "fix it",
                    json!({}),
                ),
                "edit correction",
            ),
            (
                g,
                gemini(
                    "You are Gemini CLI.",
                    "Summarize the following tool output to be a maximum of 2000 tokens.",
                    json!({}),
                ),
                "summary",
            ),
            (
                g,
                gemini(
                    "You are Gemini CLI.",
                    "Hi",
                    json!({"responseJsonSchema": {"properties": {"title": {"type": "string"}}}}),
                ),
                "title",
            ),
            (
                g,
                gemini("", "quota", json!({"maxOutputTokens": 1})),
                "quota",
            ),
            // Hermes
            (
                c,
                chat(
                    "Generate a short, descriptive title (3-7 words) for a conversation that starts with the following \
                exchange.",
                    "User: fix it",
                ),
                "title",
            ),
            (
                c,
                chat(
                    "You are a summarization agent creating a context checkpoint.",
                    "TURNS",
                ),
                "summary",
            ),
            // Crush, Goose, OpenHands, Open WebUI, Zed
            (
                c,
                chat(
                    "you will generate a short title based on the first message a user begins a conversation with",
                    "fix",
                ),
                "title",
            ),
            (
                c,
                chat(
                    "Based on the conversation so far, provide a concise description of this session in 4 words or less.",
                    "x",
                ),
                "name",
            ),
            (
                c,
                chat(
                    "You are a helpful assistant that generates concise, descriptive titles for conversations.",
                    "x",
                ),
                "title",
            ),
            (
                c,
                json!({"model": "m", "messages": [{"role": "user", "content": "### Task:\nGenerate a concise, 3-5 word title \
                with an emoji summarizing the chat history."}]}),
                "title",
            ),
            (
                c,
                json!({"model": "m", "messages": [{"role": "user", "content": "### Task:\nSuggest 3-5 relevant follow-up \
                questions, from the chat history."}]}),
                "follow-ups",
            ),
            (
                c,
                json!({"model": "m", "messages": [{"role": "user", "content": "Generate a concise 3-7 word title for this \
                conversation, omitting punctuation."}]}),
                "title",
            ),
        ]
    }

    #[test]
    fn side_calls_of_agents_are_known_by_what_they_ask() {
        for (format, body, expected) in side_calls() {
            let body = body.to_string();
            let wire = split(&body, Some(format)).unwrap();
            assert_eq!(purpose(&wire), Some(expected), "{body}");
        }
    }

    /// A request is not a side call merely because something is missing from it.
    #[test]
    fn conversations_are_turns_whatever_they_lack() {
        let item = json!({"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "exec"}]});
        for (format, body) in [
            // Without any tools: `claude --tools ""`, a chat, an agent with edits in its text.
            (
                Format::Anthropic,
                json!({"model": "m", "max_tokens": 4096, "system": "You help with software.",
                "metadata": {"user_id": "{\"session_id\":\"s\"}"}, "messages": [{"role": "user", "content": "Fix it."}]}),
            ),
            (
                Format::OpenAiChat,
                json!({"model": "m", "messages": [{"role": "system", "content": "Act as an expert software \
                developer. Always use best practices when coding."}, {"role": "user", "content": "Rename it."}]}),
            ),
            (
                Format::OpenAiChat,
                json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
            ),
            // A person asks for a title of something else.
            (
                Format::OpenAiChat,
                json!({"model": "m", "messages": [{"role": "user", "content": "Write a title for my novel."}]}),
            ),
            (
                Format::OpenAiResponses,
                json!({"model": "m", "input": [item, {"role": "user", "content": "Fix it."}]}),
            ),
            (
                Format::OpenAiResponses,
                json!({"model": "m", "input": [item, {"role": "developer", "content": "Generate a \
                title for the session as your first step."}, {"role": "user", "content": "Fix it."}]}),
            ),
            (
                Format::Anthropic,
                json!({"model": "m", "max_tokens": 64, "system": "Answer.", "messages": [
                {"role": "user", "content": "Why?"}],
                "output_config": {"format": {"type": "json_schema", "schema": {"properties": {"title": {}, "body": {}}}}}}),
            ),
        ] {
            let body = body.to_string();
            let wire = split(&body, Some(format)).unwrap();
            assert_eq!(purpose(&wire), None, "{body}");
        }
        // More than a few messages are always a conversation.
        for (format, mut body, _) in side_calls() {
            let message = match format {
                Format::Gemini => json!({"role": "user", "parts": [{"text": "And then?"}]}),
                _ => json!({"role": "user", "content": "And then?"}),
            };
            let list = body[format.list_key()].as_array_mut().unwrap();
            list.extend((0..4).map(|_| message.clone()));
            body["max_tokens"] = json!(1_000);
            if format == Format::Gemini {
                body["generationConfig"]["maxOutputTokens"] = json!(1_000);
            }
            let body = body.to_string();
            let wire = split(&body, Some(format)).unwrap();
            let by_instructions = wire.system.iter().chain(&wire.system_messages);
            let is_job = by_instructions
                .into_iter()
                .any(|it| holds(it, INSTRUCTIONS).is_some());
            assert_eq!(purpose(&wire).is_some(), is_job, "{body}");
        }
    }
}

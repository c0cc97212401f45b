//! Recognizes side calls: requests that an agent makes apart from its conversation, for example for
//! a title, a commit message or a summary. They are passed on unchanged.
//!
//! [`purpose`] is the only entry point. A side call is recognized by what it contains, never by
//! what it lacks, because agents also talk without tools. One of these must hold:
//!
//! 1. **Quota.** It asks for no more than one token.
//! 2. **Riding along.** Its last message begins with an order that only agents write ([`LAST`]), or at
//!    length orders a summary with which the work goes on.
//! 3. **Material.** Its system prompt says that the messages are material ([`INSTRUCTIONS`]), or
//!    that the model is there to summarise them, or, without tools, to judge what an agent does.
//!    Without tools, its only message may say so and bring the material.
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
use crate::subject::texts;
use crate::window::longest_answer;

/// What a side call is for, in a word or two. It appears on the status page and in the headers.
pub(crate) type Purpose = &'static str;

/// The purpose of a request for a summary of the conversation before its last message.
pub(crate) const SUMMARY: Purpose = "summary";

/// Phrases at the beginning of a text of the last message that identify a side call, whatever the
/// messages before it say. Each has its purpose.
const LAST: &[(Purpose, &str)] = &[
    // Claude Code, Roo Code
    (
        SUMMARY,
        "Your task is to create a detailed summary of the conversation so far",
    ),
    // Codex
    (
        SUMMARY,
        "You are performing a CONTEXT CHECKPOINT COMPACTION",
    ),
    // OpenCode
    (SUMMARY, "for continuing our conversation above"),
    // Cline
    (
        SUMMARY,
        "urgent task is to create a comprehensive detailed summary of the conversation",
    ),
    // Gemini CLI and Qwen Code
    (SUMMARY, "reason in your scratchpad. Then, generate the"),
    // LangChain
    (
        SUMMARY,
        "Your sole objective in this task is to extract the highest quality/most relevant context",
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
    (SUMMARY, "Summarize what was done in this conversation"),
    // Gemini CLI and Qwen Code
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
    (SUMMARY, "*Briefly* summarize this partial conversation"),
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
        "search",
        "You are an assistant for performing a web search tool use",
    ),
    // Codex
    ("memory", "Memory Writing Agent"),
];

/// How a system prompt begins that gives the model its job, in lower case.
const JOBS: &[&str] = &["you are", "your task", "your job", "your role"];

/// Word stems of the job in a message that brings the material. A system prompt may mention the
/// summary of an agent's own conversation.
const SUMS_UP: &[&str] = &["summar", "distill", "condens", "compact"];

/// Word stems of the job to summarise, and of what is summarised, in lower case.
const SUMMARISES: &[&str] = &["summari", "distill", "condens", "compact"];
const SUMMARISED: &[&str] = &[
    "conversation", "chat", "context", "session", "history", "transcript", "dialog",
];

/// Word stems of the job to judge what another agent does, and of what is judged, in lower case.
const JUDGES: &[&str] = &[
    "monitor", "judg", "classif", "moderat", "guard", "evaluat", "assess", "verif",
];
const JUDGED: &[&str] = &[
    "coding agent", "coding-agent", "ai agent", "agents", "agent's", "tool call", "command",
    "action",
];

/// What an order names that has the model sum up its own conversation, so that work can go on with the
/// summary, in lower case.
const GOES_ON: &[&str] = &[
    "continu", "resum", "handoff", "hand off", "hand-off", "so far", "replace", "cleared",
];

/// How the first sentence begins of a text that announces its material, in lower case.
const ANNOUNCES: &[&str] = &["the following is", "below is", "here is"];

/// Phrases with which the only message of a side call begins.
const ONLY: &[(Purpose, &str)] = &[
    // Claude Code
    ("web page", "Web page content:"),
    ("command check", "<policy_spec>"),
    // Gemini CLI
    (SUMMARY, "Summarize the following tool output"),
    (SUMMARY, "The following output from the tool '"),
    (
        "name",
        "Summarize the user's primary intent or goal in this conversation",
    ),
];

/// Verbs and word stems that ask for something to be made, in lower case.
const VERBS: &[&str] = &[
    "generat", "write", "creat", "provide", "suggest", "craft", "extract", "come up with",
    "respond with", "reply with", "return", "output", "produce", "propose", "determine", "give",
    "pick", "choose", "summariz", "summaris",
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
    (SUMMARY, "in under"),
];

/// Phrases that say what a title or summary is for. A person who asks for a title usually means a
/// title of something else.
const ABOUT: &[&str] = &[
    "conversation", "chat", "session", "thread", "exchange", "diff", "staged changes",
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
/// The fewest messages of a conversation of which an agent orders a summary, with the order.
const MIN_MESSAGES_TO_SUM_UP: usize = 3;
/// The least length of an order to sum up the conversation, in bytes. A person who wants that says it
/// in a sentence. If it takes somebody more, the request still passes, and gets the session's window if
/// the history does not fit.
const LONG_ORDER_BYTES: usize = 300;
/// The least length of a message that brings the material of its order, in bytes of its JSON.
const MATERIAL_BYTES: usize = 2 * ORDER_BYTES;
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
    let messages = before_instructions(&wire.messages);
    let last = messages.last().copied().unwrap_or_default();
    // A message is parsed only if it has such a phrase somewhere.
    let may_sum_up = messages.len() >= MIN_MESSAGES_TO_SUM_UP
        && memchr::memmem::find(last.as_bytes(), b"summar").is_some();
    if (may_sum_up || holds(last, LAST).is_some())
        && let Some(purpose) = ordered(last, may_sum_up)
    {
        return Some(purpose);
    }
    let prompts = || wire.system.iter().chain(&wire.system_messages);
    let job = prompts().find_map(|prompt| {
        let prompt = beginning(prompt);
        holds(prompt, INSTRUCTIONS)
            .or_else(|| is_to_summarise(prompt, 3, SUMMARISES).then_some(SUMMARY))
    });
    if job.is_some() {
        return job;
    }
    if messages.len() > MAX_CHORE_MESSAGES || wire.offers_tools() {
        return None;
    }
    if prompts().any(|prompt| is_to_judge(beginning(prompt))) {
        return Some("action check");
    }
    let only = match messages {
        [only] => Some(beginning(only)),
        _ => None,
    };
    if last.len() >= MATERIAL_BYTES && only.is_some_and(|only| is_to_summarise(only, 1, SUMS_UP)) {
        return Some(SUMMARY);
    }
    only.and_then(|only| holds(only.get(..200).unwrap_or(only), ONLY))
        .or_else(|| prompts().find_map(|prompt| chore(beginning(prompt), false)))
        .or_else(|| only.and_then(|only| chore(only, true)))
        .or_else(|| form(wire))
}

/// The messages without those in the role `system` or `developer` at the end. Claude Code adds such
/// messages after what is said last.
pub(crate) fn before_instructions<'m, 'w>(messages: &'m [&'w str]) -> &'m [&'w str] {
    let may_be = |raw: &str| {
        let mut roles = ["\"system\"", "\"developer\""].iter();
        roles.any(|role| memchr::memmem::find(raw.as_bytes(), role.as_bytes()).is_some())
    };
    let is_instruction = |raw: &&str| {
        let message = may_be(raw).then(|| serde_json::from_str::<Value>(raw));
        let message = message.and_then(Result::ok).unwrap_or_default();
        matches!(message["role"].as_str(), Some("system" | "developer"))
    };
    let last = messages.iter().rposition(|raw| !is_instruction(raw));
    messages
        .get(..last.map_or(0, |last| last + 1))
        .unwrap_or(&[])
}

/// The purpose of a message that begins one of its own texts with an order of an agent. What a tool
/// printed may quote such an order. `may_sum_up` says whether there is enough to order a summary of it.
fn ordered(raw: &str, may_sum_up: bool) -> Option<Purpose> {
    let message: Value = serde_json::from_str(raw).unwrap_or_default();
    let is_result = message["role"] == "tool" || message["role"] == "function";
    let mut own = texts(&message).filter(|_| !is_result);
    own.find_map(|text| {
        let known = holds(beginning(text), LAST);
        let is_long = may_sum_up && text.len() >= LONG_ORDER_BYTES;
        known.or_else(|| (is_long && sums_up(text)).then_some(SUMMARY))
    })
}

/// Whether one of the first three sentences of a text orders a summary, and its beginning says that the
/// conversation goes on with that.
fn sums_up(text: &str) -> bool {
    let text = beginning(text).to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let sentences = text.split(['.', '!', '\n']).map(str::trim);
    let mut sentences = sentences.filter(|sentence| !sentence.is_empty()).take(3);
    let is_order = |sentence: &str| {
        verbs(sentence).any(|(before, near)| {
            let orders = ["to ", "please ", "must "].iter();
            let mut orders = orders.filter(|word| before.ends_with(**word));
            near.contains("summar") && (before.is_empty() || orders.next().is_some())
        })
    };
    has(SUMMARISED) && has(GOES_ON) && sentences.any(is_order)
}

/// What stands before each of [`VERBS`] in a sentence, and the verb with what stands close after it.
fn verbs(sentence: &str) -> impl Iterator<Item = (&str, &str)> {
    VERBS.iter().filter_map(|verb| {
        let (before, rest) = sentence.split_at_checked(sentence.find(verb)?)?;
        Some((before, rest.get(..rest.floor_char_boundary(OBJECT_BYTES))?))
    })
}

/// Whether one of the first `most` sentences of a text, in JSON, says that the model is there to
/// summarise a conversation, in words with these stems. The first sentence may also be the order:
/// "Summarize the session", "You compact conversations". If it announces a conversation, the order may
/// come in one of the next three. Later ones are rules for an agent.
fn is_to_summarise(raw: &str, most: usize, stems: &[&str]) -> bool {
    let text = raw.to_ascii_lowercase().replace("\\n", ". ");
    let has = |sentence: &str, words: &[&str]| words.iter().any(|word| sentence.contains(word));
    // The text begins after the name of a member, and possibly after empty lines.
    let is_said = |sentence: &&str| !sentence.is_empty() && !sentence.ends_with('"');
    let mut sentences = text
        .split(['.', '!'])
        .map(str::trim)
        .filter(is_said)
        .peekable();
    let announces = |first: &&str| has(first, ANNOUNCES) && has(first, SUMMARISED);
    if sentences.next_if(announces).is_some() {
        let is_order = |sentence: &str| verbs(sentence).any(|(_, near)| has(near, SUMS_UP));
        return sentences.take(3).any(is_order);
    }
    sentences.take(most).enumerate().any(|(at, sentence)| {
        let jobs = JOBS.iter().filter_map(|job| sentence.find(job));
        let order = (at == 0).then(|| order(sentence)).flatten();
        let job = jobs.chain(order).min();
        let job = job.and_then(|at| sentence.get(at..)).unwrap_or_default();
        has(job, stems) && has(job, SUMMARISED)
    })
}

/// Whether one of the first three sentences of a system prompt, in JSON, says that the model is there to
/// judge what another agent does: "You are a security monitor for AI agents".
fn is_to_judge(raw: &str) -> bool {
    let text = raw.to_ascii_lowercase().replace("\\n", ". ");
    let first = |text: &str, words: &[&str]| words.iter().filter_map(|word| text.find(word)).min();
    let mut sentences = text.split(['.', '!']).take(3);
    sentences.any(|sentence| {
        let job = first(sentence, JOBS).and_then(|at| sentence.get(at..));
        let judges = job.and_then(|job| job.get(first(job, JUDGES)?..));
        judges.is_some_and(|judges| first(judges, JUDGED).is_some())
    })
}

/// Where the order to summarise is in a sentence, if the sentence begins with it. `sentence` is in
/// JSON and lower case, and may have the name of a member before its first word.
fn order(sentence: &str) -> Option<usize> {
    let mut found = SUMMARISES.iter().filter_map(|stem| sentence.find(stem));
    found.find(|at| {
        let before = sentence.get(..*at).unwrap_or_default();
        let before = before.strip_suffix("you ").unwrap_or(before);
        before.is_empty() || (before.ends_with('"') && !before.ends_with("\\\""))
    })
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
        verbs(sentence).find_map(|(_, near)| {
            let made = MADE.iter().find(|(_, made)| near.contains(made));
            made.map(|(purpose, _)| *purpose)
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
mod tests;

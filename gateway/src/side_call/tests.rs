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
    let sole = |user: &str| json!({"model": "m", "max_tokens": 4_000, "messages": [{"role": "user", "content": user}]});
    let events = "<EVENT>\nThe agent ran the tests, and they passed.\n</EVENT>\n".repeat(80);
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
        // Claude Code's auto mode, and what others have judged
        (
            a,
            anthropic(
                "You are a security monitor for autonomous AI coding agents.\n\n## Context",
                "<transcript>",
            ),
            "action check",
        ),
        (
            r,
            responses(
                "# Role\nYour task is to classify whether the next command is safe.",
                "git push --force",
            ),
            "action check",
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
        // Qwen Code
        (
            c,
            chat(
                "You are the component that summarizes a conversation when its context window is about to run out. \
                The summary is all that the agent remembers.",
                "Summarize it.",
            ),
            "summary",
        ),
        // pi
        (
            a,
            anthropic(
                "You are a context summarization assistant. Your task is to read a conversation between a user and an \
                assistant.",
                "<conversation>Fix it.</conversation>",
            ),
            "summary",
        ),
        // Cline's command line, nanocoder and OpenHands
        (
            c,
            chat(
                "Summarize the provided coding session into a concise continuation note with detailed next steps.",
                "Summarize this session for continuation. Be concise and factual.\n\nConversation:\nFix it.",
            ),
            "summary",
        ),
        (
            c,
            chat(
                "You compact coding-agent conversations without losing information that future turns will need.\n\n\
                Output a single markdown summary of the segment below.",
                "Summarise the following conversation segment.\n<segment>\nFix it.\n</segment>",
            ),
            "summary",
        ),
        (
            c,
            sole(&format!(
                "You are maintaining a context-aware state summary for an interactive agent.\nYou will be given a list of \
                events.\n\n{events}\n\nNow summarize the events using the rules above."
            )),
            "summary",
        ),
        (
            a,
            sole(&format!(
                "\n\nSummarise the following conversation segment.\n\n{events}"
            )),
            "summary",
        ),
        // LangChain
        (
            c,
            talk(
                "<role>\nContext Extraction Assistant\n</role>\n\n<primary_objective>\nYour sole objective in this task is \
                to extract the highest quality/most relevant context from the conversation history below.",
            ),
            "summary",
        ),
        // Kimi Code, and any agent that has the model sum up with all of its tools.
        (
            a,
            talk(&format!(
                "The window is nearly full. Create a handoff summary for the model that takes over when the \
                 conversation above is cleared.\n\n{}",
                "Say what was asked, what was done, and what is still to be done.\n".repeat(6)
            )),
            "summary",
        ),
        // Google ADK
        (
            c,
            sole(&format!(
                "The following is a conversation history between a user and an agent. It may begin with a compacted \
                 one. Please name the request, summarize the context so far, and keep decisions.\n\n{events}"
            )),
            "summary",
        ),
        // LlamaIndex
        (
            c,
            chat(
                "The following is a conversation between the user and assistant. Write a concise summary about the \
                 contents of this conversation.",
                &format!("Transcript so far: {events}"),
            ),
            "summary",
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

/// Claude Code sends its instructions for a mode as a message of their own, after what is said last.
#[test]
fn instructions_after_a_side_call_do_not_hide_it() {
    for (format, mut body, expected) in side_calls() {
        let Some(messages) = body[format.list_key()].as_array_mut() else {
            continue;
        };
        let roles = match format {
            Format::Gemini => continue,
            Format::OpenAiResponses => ["developer", "system"],
            _ => ["system", "system"],
        };
        messages.extend(roles.map(|role| json!({"role": role, "content": "You may use a shell."})));
        let body = body.to_string();
        let wire = split(&body, Some(format)).unwrap();
        assert_eq!(purpose(&wire), Some(expected), "{body}");
    }
}

/// A tool may print an agent's source, and a person may quote it.
#[test]
fn an_order_that_is_only_quoted_is_none() {
    for (_, order) in LAST {
        let quoted = format!(
            "{}\nprompt = \"{order}: be brief.\"",
            "import os\n".repeat(200)
        );
        let messages = [
            (
                Format::Anthropic,
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": order},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": order}]},
                ]}),
            ),
            (
                Format::OpenAiChat,
                json!({"role": "tool", "tool_call_id": "t1", "content": order}),
            ),
            (
                Format::OpenAiResponses,
                json!({"type": "function_call_output", "call_id": "t1", "output": order}),
            ),
            (
                Format::Gemini,
                json!({"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": order}}}]}),
            ),
            (
                Format::Anthropic,
                json!({"role": "user", "content": quoted}),
            ),
            (
                Format::OpenAiResponses,
                json!({"role": "user", "content": [{"type": "input_text", "text": quoted}]}),
            ),
        ];
        for (format, message) in messages {
            let before = match format {
                Format::Gemini => json!({"role": "user", "parts": [{"text": "Read it."}]}),
                _ => json!({"role": "user", "content": "Read it."}),
            };
            let mut body = json!({"model": "m"});
            body[format.list_key()] = json!([before, before, before, message]);
            let body = body.to_string();
            let wire = split(&body, Some(format)).unwrap();
            assert_eq!(purpose(&wire), None, "{body}");
        }
    }
}

/// Whoever orders a summary of something else, or with tools, or as a rule of the work, talks to an agent.
#[test]
fn a_person_or_a_rule_that_asks_for_summaries_makes_no_side_call() {
    let long = "The log of the session says that all is well.\n".repeat(100);
    let tool = json!([{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]);
    let body = |system: &str, user: &str| json!({"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]});
    let with_tools = |system: &str, user: &str| {
        let mut body = body(system, user);
        body["tools"] = tool.clone();
        body
    };
    let agent = "You are a coding agent.";
    for body in [
        with_tools(agent, "Summarize this file"),
        with_tools(agent, &format!("Summarize this session:\n{long}")),
        with_tools(
            agent,
            &format!("You are to keep a summary of this conversation.\n{long}"),
        ),
        body(agent, "Summarize our conversation in one sentence."),
        body(agent, &format!("Summarize this file:\n{long}")),
        body(
            agent,
            &format!("Read this. Then summarize the session.\n{long}"),
        ),
        body(
            "You are a coding agent. Summarize the session when you are done.",
            "Fix it.",
        ),
        body(
            "You are a coding agent with a summary of the conversation so far.",
            "Fix it.",
        ),
        body("The \"summarize\" command is about the session.", "Fix it."),
        body("A compact agent for long sessions.", "Fix it."),
        body(
            "You are a coding agent that reviews and verifies its own work.",
            "Fix it.",
        ),
        body(
            "You are a coding agent. Explain each command. Evaluate actions.",
            "Fix it.",
        ),
        with_tools("You are a monitor for AI agents.", "What happened today?"),
    ] {
        let body = body.to_string();
        let wire = split(&body, Some(Format::OpenAiChat)).unwrap();
        assert_eq!(purpose(&wire), None, "{body}");
    }
}

/// An agent begins anew with a summary in words of its own. That is no order, and what a person says at length about
/// summaries is none if the work does not go on with them.
#[test]
fn a_summary_that_an_agent_begins_anew_with_is_no_side_call() {
    let details = "The parser was rewritten, and its tests pass.\n".repeat(20);
    for text in [
        "Another language model started to solve this problem and produced a summary of what it did so far. The \
         conversation has more.",
        "This session is being continued from a previous conversation that ran out of context. The summary below covers \
         the earlier portion.",
        "The conversation history before this point was compacted into the following summary:",
        "Write a summary of the quarterly figures for our customers. Each section of the report needs one.",
    ] {
        let user = |text: &str| json!({"role": "user", "content": text});
        let messages = [
            user("Fix it."),
            json!({"role": "assistant", "content": "Done."}),
            user(&format!("{text}\n{details}")),
        ];
        let body = json!({"model": "m", "messages": messages}).to_string();
        let wire = split(&body, Some(Format::OpenAiChat)).unwrap();
        assert_eq!(purpose(&wire), None, "{body}");
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
            .any(|it| holds(it, INSTRUCTIONS).is_some() || is_to_summarise(it, 3, SUMMARISES));
        assert_eq!(purpose(&wire).is_some(), is_job, "{body}");
    }
}

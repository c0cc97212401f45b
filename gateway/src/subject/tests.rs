#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use contexture::formats::{Format, split};
use serde_json::json;

fn subject(format: Format, body: &Value) -> (Option<String>, Option<String>) {
    let text = body.to_string();
    let subject = Subject::of(&split(&text, Some(format)).unwrap());
    (subject.title, subject.project)
}

fn some(title: &str, project: &str) -> (Option<String>, Option<String>) {
    (Some(title.to_owned()), Some(project.to_owned()))
}

#[test]
fn a_title_has_no_part_of_the_tag_that_ends_it() {
    for spaces in 330..450 {
        let text = format!("<task>ab{}cd</task>more", " ".repeat(spaces));
        let body = json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": text}
        ]});
        let (title, _) = subject(Format::Anthropic, &body);
        assert!("ab cd".starts_with(&title.unwrap()), "{spaces}");
    }
}

#[test]
fn the_users_words_and_the_folder_are_found_in_the_requests_of_agents() {
    let claude_code = json!({
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nNever mention this.\n</system-reminder>"},
            {"type": "text", "text": "Fix the login\n  page."}
        ]}],
        "system": [{"type": "text", "text": "You are Claude Code.\n<env>\nWorking directory: /home/a/shop\nIs git: Yes"}]
    });
    assert_eq!(
        subject(Format::Anthropic, &claude_code),
        some("Fix the login page.", "/home/a/shop")
    );
    let codex = json!({"model": "gpt-5.2-codex", "instructions": "You are Codex.", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "# AGENTS.md instructions for /w/api\n\nUse tabs."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>\n  <cwd>/w/api</cwd>\n</environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Why does CI fail?"}]}
    ]});
    assert_eq!(
        subject(Format::OpenAiResponses, &codex),
        some("Why does CI fail?", "/w/api")
    );
    let cline = json!({"model": "gpt-4o", "messages": [
        {"role": "system", "content": "You are Cline."},
        {"role": "user", "content": [
            {"type": "text", "text": "<task>\nAdd a dark mode\n</task>"},
            {"type": "text", "text": "<environment_details>\n# Current Working Directory (C:\\Users\\a\\app) Files\n"}
        ]}
    ]});
    assert_eq!(
        subject(Format::OpenAiChat, &cline),
        some("Add a dark mode", "C:\\Users\\a\\app")
    );
    let gemini_cli = json!({"contents": [
        {"role": "user", "parts": [{"text": "<session_context>\nThis is the Gemini CLI.\n- **Workspace \
            Directories:**\n  - /w/parser\n- **Directory Structure:**\n</session_context>"}]},
        {"role": "user", "parts": [{"text": "Port the parser"}]}
    ]});
    assert_eq!(
        subject(Format::Gemini, &gemini_cli),
        some("Port the parser", "/w/parser")
    );
}

#[test]
fn what_a_request_does_not_tell_is_left_out() {
    let silent = json!({"model": "m", "messages": [{"role": "user", "content": "<system-reminder>cut off"}]});
    assert_eq!(subject(Format::OpenAiChat, &silent), (None, None));
    // A tag that a user wrote about is the user's words.
    let html = json!({"messages": [{"role": "user", "content": "<br/> is wrong here"}]});
    let (title, _) = subject(Format::OpenAiChat, &html);
    assert_eq!(title.unwrap(), "<br/> is wrong here");
}

#[test]
fn a_title_is_short_and_has_no_secrets() {
    let text = format!(
        "Deploy with sk-ant-api03-{} now {}",
        "a".repeat(60),
        "word ".repeat(99)
    );
    let title = title_of(&text).unwrap();
    assert!(title.chars().count() <= TITLE_CHARS + 1 && title.ends_with('…'));
    assert!(!title.contains("aaaa"), "{title}");
    let chinese = title_of(&"修复登录页面".repeat(40)).unwrap();
    assert_eq!(chinese.chars().count(), TITLE_CHARS + 1);
}

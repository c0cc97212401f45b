//! Reads what Claude Code adds to a prompt besides the messages: lines of the type
//! `attachment`.
//!
//! [`message_of`] turns an attachment into a message in Anthropic's format. A prompt that the
//! user typed while the agent worked is kept as the user's message. Everything else becomes a
//! `<system-reminder>` with the attachment's texts and pictures.
//!
//! The log does not record the text that Claude Code builds from an attachment. The result
//! therefore contains the same information in a similar form, and not the exact prompt.

use super::super::super::json::{Raw, quote};
use super::super::super::parts::text_part;

/// The members of an attachment that only identify it and that no model sees.
const NAMES: [&str; 4] = ["type", "uuid", "source_uuid", "toolUseID"];

/// Returns an attachment as a message in Anthropic's format, and whether the user wrote it, as
/// with a prompt that was typed while the agent worked. `None` if the attachment has no
/// content.
pub(super) fn message_of(attachment: Raw<'_>) -> Option<(String, bool)> {
    let kind = attachment.get_string("type").unwrap_or_default();
    if kind == "queued_command" {
        let prompt = attachment.get("prompt")?;
        if !prompt.is_string() && !prompt.is_array() {
            return None;
        }
        let mode = attachment.get_string("commandMode");
        let is_prompt = mode.is_none_or(|mode| mode == "prompt");
        let is_meta = attachment.get("isMeta").is_some_and(Raw::is_true);
        let is_users = attachment.get("origin").is_none_or(super::is_of_user);
        return Some((message(prompt.text()), is_prompt && is_users && !is_meta));
    }
    let mut parts = Parts::default();
    parts.add(None, attachment);
    let Parts { lines, media } = parts;
    if lines.is_empty() && media.is_empty() {
        return None;
    }
    let text = format!(
        "<system-reminder>\n{kind}\n{}\n</system-reminder>",
        lines.join("\n")
    );
    let content = match media.is_empty() {
        true => quote(&text),
        false => format!("[{},{}]", text_part("text", &quote(&text)), media.join(",")),
    };
    Some((message(&content), false))
}

fn message(content: &str) -> String {
    format!("{{\"role\":\"user\",\"content\":{content}}}")
}

/// The contents of an attachment: its texts, each with its member's name, and its pictures.
#[derive(Default)]
struct Parts {
    lines: Vec<String>,
    media: Vec<String>,
}

impl Parts {
    /// Adds a value with everything inside it. The recursion is bounded by the nesting limit of
    /// JSON.
    fn add(&mut self, name: Option<&str>, value: Raw<'_>) {
        if let Some(text) = value.string() {
            self.lines.push(match name {
                Some(name) => format!("{name}: {text}"),
                None => text.into_owned(),
            });
        } else if let Some(picture) = picture(value) {
            self.media.push(picture);
        } else if value.is_array() {
            value.elements().for_each(|element| self.add(name, element));
        } else {
            for (key, value) in value.members() {
                if !(NAMES.contains(&key.as_ref()) && value.is_string()) {
                    self.add(Some(&key), value);
                }
            }
        }
    }
}

/// Returns a picture or a PDF as a block in Anthropic's format, from any form that attachments
/// use. `None` if the value is neither.
fn picture(value: Raw<'_>) -> Option<String> {
    let source = value.get("source").unwrap_or(value);
    let data = source
        .get("base64")
        .or_else(|| source.get("data"))?
        .inner()?;
    let mime = (source.get("media_type").or_else(|| source.get("type")))?.inner()?;
    let kind = match mime {
        "application/pdf" => "document",
        mime if mime.starts_with("image/") => "image",
        _ => return None,
    };
    Some(format!(
        "{{\"type\":\"{kind}\",\"source\":{{\"type\":\"base64\",\"media_type\":\"{mime}\",\"data\":\"{data}\"}}}}"
    ))
}

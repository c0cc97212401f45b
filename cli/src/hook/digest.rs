//! Writes a compacted window as one text, for agents that take a text in the place of messages.
//!
//! [`digest`] writes each entry of a plan as a paragraph. A message begins with the name of who
//! speaks. The place that the agent has for the text is limited, so the text keeps to a [`Budget`].
//!
//! If the text is too long, kept messages are left out, from the oldest on. If that is not enough,
//! the summaries and the user's first and last message are cut. The text names the history tools,
//! if there are any, so that the agent can look up what it does not find here.

use contexture::formats::{Conversation, Message, PlanEntry, RenderPlan};

/// How large a text may become.
pub(super) struct Budget {
    /// The window that the engine compacts for, in tokens.
    pub(super) window: u64,
    /// The most bytes that the text may have.
    pub(super) bytes: usize,
}

/// The length of a kept message in the text, in bytes. Longer ones are cut, so that one result does
/// not take the place of all others.
const MESSAGE: usize = 1_500;

/// A part of the text.
struct Piece {
    text: String,
    /// Whether it is a summary, or the user's first or last message. These are left out last.
    is_important: bool,
}

/// Returns the window of a plan as text. `None` if it has no summary, so that nothing was
/// compacted. `tools` are the names of the history tools.
///
/// If the text would be too long, the oldest kept messages are left out, and the text says how
/// many. Then the summaries are cut.
pub(super) fn digest(
    plan: &RenderPlan<'_>,
    conversation: &Conversation,
    tools: &[String],
    budget: &Budget,
) -> Option<String> {
    let messages = conversation.messages();
    let is_user = |message: &Message| message.role == "user" && !message.text.trim().is_empty();
    let first = messages.iter().position(is_user);
    let last = messages.iter().rposition(is_user);
    let is_end = |index| first == Some(index) || last == Some(index);
    let mut has_summary = false;
    let mut pieces: Vec<Piece> = Vec::new();
    for entry in &plan.entries {
        let (text, is_important) = match *entry {
            PlanEntry::Summary { text, .. } => {
                has_summary = true;
                (text.trim().to_owned(), true)
            }
            PlanEntry::Message(index) => (shown(messages.get(index)?, None), is_end(index)),
            PlanEntry::Replaced { index, text, .. } => {
                (shown(messages.get(index)?, text), is_end(index))
            }
            PlanEntry::Stub { text, .. } => (format!("[result] {text}"), false),
        };
        if !text.is_empty() {
            pieces.push(Piece { text, is_important });
        }
    }
    if !has_summary {
        return None;
    }
    // An engine may summarise the task that the user began with. The agent needs it word for word.
    let kept = |index: usize| {
        plan.entries.iter().any(|entry| match *entry {
            PlanEntry::Message(at) | PlanEntry::Replaced { index: at, .. } => at == index,
            _ => false,
        })
    };
    if let Some(first) = first.filter(|first| !kept(*first)) {
        let text = shown(messages.get(first)?, None);
        let is_important = true;
        pieces.insert(0, Piece { text, is_important });
    }
    let mut head =
        "[Contexture] The conversation up to here, as its context engine keeps it.".to_owned();
    if !tools.is_empty() {
        head.push_str(&format!(
            " Every message that is not quoted here is kept: the MCP server `contexture` finds it ({}).",
            tools.join(", ")
        ));
    }
    let length = |pieces: &[Piece]| -> usize {
        // Two bytes are the empty line between paragraphs.
        let lengths = pieces.iter().map(|piece| piece.text.len() + 2);
        lengths.sum()
    };
    // How many messages are left out is known later. The sentence about it has less than 80 bytes.
    let room = budget.bytes.saturating_sub(head.len() + 80);
    let mut left_out = 0;
    while length(&pieces) > room {
        let Some(oldest) = pieces.iter().position(|piece| !piece.is_important) else {
            break;
        };
        pieces.remove(oldest);
        left_out += 1;
    }
    let many = pieces.len().max(1);
    if length(&pieces) > room {
        // All get the same share. If a piece is shorter, the rest of its share is not used.
        for piece in &mut pieces {
            piece.text = cut(&piece.text, room / many);
        }
    }
    if left_out > 0 {
        head.push_str(&format!(" ({left_out} kept messages are not shown.)"));
    }
    let pieces = pieces.into_iter().map(|piece| piece.text);
    let all: Vec<String> = std::iter::once(head).chain(pieces).collect();
    Some(all.join("\n\n"))
}

/// Returns a message as text, with its calls. `text` replaces the message's own.
fn shown(message: &Message, text: Option<&str>) -> String {
    let text = text.unwrap_or(&message.text).trim();
    let who = match (message.role.as_str(), &message.tool_name) {
        ("tool", Some(tool)) => format!("result of {tool}"),
        ("tool", None) => "result".to_owned(),
        (role, _) => role.to_owned(),
    };
    let mut lines = Vec::new();
    if !text.is_empty() {
        lines.push(format!("[{who}] {}", cut(text, MESSAGE)));
    }
    lines.extend(message.calls.iter().map(|call| {
        let arguments = cut(&call.arguments, MESSAGE / 3);
        format!("[{who} calls {}] {arguments}", call.name)
    }));
    lines.join("\n")
}

/// Cuts a text to this many bytes, and says how many characters are missing.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    // 40 bytes are for the note, whose number may have many digits.
    let (kept, rest) = text.split_at(text.floor_char_boundary(most.saturating_sub(40)));
    format!("{kept} … ({} more characters)", rest.chars().count())
}

#[cfg(test)]
mod tests;

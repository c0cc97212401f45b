//! What the engine remembers of one session.
//!
//! A [`Notebook`] is made of the conversation alone: it follows what is delivered, and forgets what is cut off or
//! comes in another form. The engine stores it as an artifact, so the host saves it together with the turn and gives it
//! to the next process. See [`Notebook::follow`].

use contexture_engine_api::{Delivery, MessageId, MessageView};
use serde::{Deserialize, Serialize};

use crate::layout::{clip, one_line};

/// The most requests of the user that are remembered.
const MAX_REQUESTS: usize = 200;

/// What the engine remembers of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notebook {
    /// The last message that was delivered.
    pub(crate) last: Option<MessageId>,
    /// What the user asked for, oldest first.
    pub(crate) requests: Vec<Asked>,
    /// What the model wrote down, oldest first.
    pub(crate) notes: Vec<Note>,
    /// A summary that is ready for the next compaction.
    pub(crate) prepared: Option<Prepared>,
}

/// A message of the user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) id: MessageId,
    /// How it begins.
    pub(crate) line: String,
}

/// A note of the model's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The last message when it was written. If that message is cut off, the note was never written.
    pub(crate) after: Option<MessageId>,
    pub(crate) text: String,
}

/// A summary that a model wrote between two turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// The messages that it stands for.
    pub(crate) covers: Vec<MessageId>,
    pub(crate) text: String,
}

impl Notebook {
    /// Takes in what became of the conversation.
    pub(crate) fn follow(&mut self, delivery: &Delivery<'_>) {
        self.requests.retain(|asked| !is_gone(delivery, asked.id));
        self.prepared
            .take_if(|prepared| prepared.covers.iter().any(|id| is_gone(delivery, *id)));
        if let Some(cut) = delivery.cut {
            self.notes
                .retain(|note| note.after.is_none_or(|id| cut.keeps(id)));
            self.last = self.last.min(cut.last);
        }
        // If the delivery goes back, what comes again is written down again.
        if let Some(first) = delivery.messages.first() {
            self.requests.retain(|asked| asked.id < first.id());
        }
        for message in delivery.messages {
            if message.is_real_user() {
                self.requests.push(Asked {
                    id: message.id(),
                    line: one_line(message.text(), 120),
                });
            }
            self.last = Some(message.id());
        }
        let surplus = self.requests.len().saturating_sub(MAX_REQUESTS);
        self.requests.drain(..surplus);
    }

    /// The beginning of a summary: requests that the rest of the window does not show, and all notes, the last first to
    /// stay if there is too little room.
    pub(crate) fn page(&self, shown: &[MessageView<'_>], bytes: usize) -> String {
        let is_shown = |id| shown.iter().any(|message| message.id() == id);
        let requests = self.requests.iter().filter(|asked| !is_shown(asked.id));
        let requests: Vec<_> = requests.map(|asked| asked.line.as_str()).collect();
        let notes: Vec<_> = self.notes.iter().map(|note| note.text.as_str()).collect();
        let mut page = String::new();
        for (title, lines) in [("The user asked for:", requests), ("Notes:", notes)] {
            let mut room = bytes / 2;
            let fits = |line: &&&str| {
                let left = room.checked_sub(line.len() + 3);
                room = left.unwrap_or(0);
                left.is_some()
            };
            let mut last: Vec<_> = lines.iter().rev().take_while(fits).collect();
            last.reverse();
            if !last.is_empty() {
                page.push_str(title);
                for line in last {
                    page.push_str("\n- ");
                    page.push_str(clip(line, bytes));
                }
                page.push_str("\n\n");
            }
        }
        page
    }
}

/// Whether a message is no longer part of the conversation: it was cut off, or came in another form under a new id,
/// which is among the messages of the delivery.
pub(crate) fn is_gone(delivery: &Delivery<'_>, id: MessageId) -> bool {
    let is_revised = |(_, earlier): &(MessageId, MessageId)| *earlier == id;
    delivery.cut.is_some_and(|cut| !cut.keeps(id)) || delivery.revisions.iter().any(is_revised)
}

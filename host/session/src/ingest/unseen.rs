//! What the engine has not seen: the messages after the cursor, with their text.
//!
//! The history knows these messages by hash alone, so each text is searched for: among the messages
//! that were set aside when they were ingested, in the window, in the request, and last in the
//! transcript. If a text is nowhere, as after a restart of a session that stores none, the message
//! is left out and counted, and the session warns.
//!
//! Read [`ConversationState::unseen`] first. The delivery itself is in `engine_link`.

use contexture_engine_api::MessageId;
use contexture_formats::FormatError;

use contexture_transcript::{IdMap, Ids};

use crate::conversation::ConversationState;
use crate::request::Request;
use crate::window_entry::WindowEntry;

impl ConversationState {
    /// The messages after the cursor with their text, in the order of arrival, and how many messages
    /// of the conversation are left out because their text was found nowhere.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    pub(crate) fn unseen(
        &mut self,
        request: Option<&Request<'_>>,
    ) -> Result<(Vec<WindowEntry>, u64), FormatError> {
        let logged = self.history.after(self.history.shown.cursor()).iter();
        let ids: Vec<MessageId> = logged.map(|logged| logged.id).collect();
        let all: Ids = ids.iter().copied().collect();
        let mut found: IdMap<WindowEntry> = (self.unshown.iter())
            .filter(|(id, _)| all.contains(id))
            .map(|(id, entry)| (*id, entry.clone()))
            .collect();
        if found.len() < ids.len() {
            for entry in self.window.entries() {
                if all.contains(&entry.id()) && entry.is_original() {
                    found.entry(entry.id()).or_insert_with(|| entry.clone());
                }
            }
        }
        if let Some(request) = request.filter(|_| found.len() < ids.len()) {
            let mut read = self.entries_of(request, &IdMap::default(), |id| all.contains(&id))?;
            // Messages of one wire message must come from one source, because an engine recognises
            // by it that they belong together. If the client sends only a part of the wire message
            // that is in memory, memory is better.
            read.retain(|id, entry| {
                let known = found.get(id);
                entry.is_original() && known.is_none_or(|known| known.views() <= entry.views())
            });
            found.extend(read);
        }
        let mut lost = 0;
        let without_text: Ids = (all.iter().copied())
            .filter(|id| !found.contains_key(id))
            .collect();
        if !without_text.is_empty() {
            let stored = self.stored_entries(&without_text);
            found.extend(stored.into_iter().filter(|(id, _)| all.contains(id)));
            lost = self.pass_over(&without_text, &mut found);
        }
        let messages = ids.iter().filter_map(|id| found.remove(id)).collect();
        Ok((messages, lost))
    }

    /// Counts the messages of the conversation whose text was not found. Their earlier forms are not
    /// shown either, because nothing would replace them.
    fn pass_over(&self, without_text: &Ids, found: &mut IdMap<WindowEntry>) -> u64 {
        let mut count = 0;
        for known in self.history.branch() {
            if without_text.contains(&known.id) && !found.contains_key(&known.id) {
                count += 1;
                for form in self.history.earlier_forms(known.id) {
                    found.remove(&form);
                }
            }
        }
        count
    }
}

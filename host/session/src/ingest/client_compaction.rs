//! What stays in force of a conversation that its client compacts itself: the pins and the rules of
//! the user.
//!
//! The client's own summary may lack them, and nobody can tell which of its words are the user's. So
//! they are taken from the window before: from what the user said there, and from its summaries. Pins
//! are held beside the messages from then on. The rules stand in a summary at the head of the new
//! window, in the section that every engine reads.

use contexture_contract::{PinnedBy, most_pin_tokens};
use contexture_digest::{Budget, RuleSection, Rules};
use contexture_engine_api::{MessageId, SUMMARY_MARK};
use contexture_transcript::{BY_AGENT, EntryContent, HostText, Ids, InForce};

use crate::conversation::ConversationState;
use crate::window::Window;
use crate::window_entry::{WindowEntry, marked};

/// How many characters the rules may have for each token that they may take.
const CHARS_PER_TOKEN: u64 = 8;

impl ConversationState {
    /// Holds the pins of the window as it was before the request, and returns the section of its
    /// rules.
    pub(super) fn keep_pins_and_rules(&mut self) -> RuleSection {
        let before = Window::of(self.entries_before(), None, self.window.next_id());
        let calls = before.call_views();
        let pins = self.pins(&before.whole_views(&calls), &[], u64::MAX);
        let pins = pins.all().clone();
        if !pins.is_empty() {
            self.update_held(|held| {
                held.change(|held| {
                    (pins.user.iter()).for_each(|words| held.pin(words, PinnedBy::User));
                    (pins.model.iter()).for_each(|words| held.pin(words, PinnedBy::Model));
                })
            });
        }
        let most = most_pin_tokens(self.meter.agent().context_length);
        let count = |text: &str| self.counter.count_text(text);
        let budget = Budget::chars((most * CHARS_PER_TOKEN) as usize).and_tokens(most, &count);
        Rules::of(&before.views(&calls), None).section(budget)
    }

    /// The entries of the window before the request. After a restart, they come from the record.
    fn entries_before(&self) -> Vec<WindowEntry> {
        if !self.history.resumed {
            return self.window.entries().to_vec();
        }
        let in_force = self.history.in_force().map(|in_force| &in_force.window);
        let is_left_out = |id| in_force.is_some_and(|window| window.left_out.contains(id));
        let branch = self.history.branch().iter().map(|known| known.id);
        let shown: Vec<MessageId> = branch.filter(|id| !is_left_out(*id)).collect();
        let stored = self.stored_entries(&shown.iter().copied().collect());
        let mut entries = in_force.map_or_else(Vec::new, |window| {
            Window::restore(window, &stored, &self.counter)
        });
        let placed: Ids = entries.iter().map(WindowEntry::id).collect();
        let since = shown.iter().filter(|id| !placed.contains(id));
        entries.extend(since.filter_map(|id| stored.get(id).cloned()));
        entries
    }

    /// Begins the window with those of these rules that its messages do not state. They are of the
    /// messages that the client `compacted`.
    pub(super) fn begin_with(&mut self, rules: &RuleSection, compacted: Vec<MessageId>) {
        let calls = self.window.call_views();
        let stated = Rules::of(&self.window.views(&calls), None);
        let rules = rules.part(|rule| stated.iter().all(|stated| stated != rule));
        if rules.shown().next().is_none() {
            return;
        }
        let mut window = Window::clone(&self.window);
        let id = window.fresh_id();
        let text = marked(&rules.text, SUMMARY_MARK, &[]);
        let covers = compacted.into_iter().collect();
        self.history.write(HostText::summary(id, &text, covers));
        let content = EntryContent::Summary {
            text,
            in_system_role: false,
        };
        let mut entries = vec![WindowEntry::put_in(id, content, &self.counter)];
        entries.extend(window.entries().iter().cloned());
        let note = window.system_note().map(str::to_owned);
        let window = Window::of(entries, note, window.next_id());
        let left_out = self.history.in_force();
        let left_out = left_out.map(|in_force| in_force.window.left_out.clone());
        let in_force = InForce {
            number: self.history.facts.compactions,
            engine: BY_AGENT.to_owned(),
            window: window.save(left_out.unwrap_or_default()),
        };
        self.replace_window(window);
        self.history.set_in_force(Some(in_force));
    }
}

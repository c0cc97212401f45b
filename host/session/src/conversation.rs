//! What a session holds of its conversation: the history, the window, the preamble, and the figures
//! of the meter.
//!
//! The four values of a session, from `ingest` to `renderer`, work on it in turn. None of them
//! calls another one: what one finds out, the next one reads from here. So a unit test of one value
//! makes a state by hand and needs none of the others.
//!
//! The history has ids and hashes of all messages, and the window has the text that the model sees.
//! Both describe the same conversation, so whoever changes one must bring the other up to date.
//!
//! Start with [`ConversationState`].

use std::sync::Arc;

use contexture_contract::{Grouping, Pins};
use contexture_engine_api::{
    CompressOrder, Entry, MessageId, MessageKind, MessageView, ToolSpec, WindowState,
};
use contexture_formats::tokens::{TOOL_TOKENS, TokenCounter};
use contexture_formats::{Format, tool_in};

use contexture_transcript::{IdMap, Ids, KeptChange, RecordError};

use super::engine_transcript::EngineTranscript;
use super::held::HeldState;
use super::history::{self, History};
use super::meter::Meter;
use super::options::ConfiguredAgent;
use super::preamble::Preamble;
use super::request::{ReadMessage, Request};
use super::warnings::Warnings;
use super::window::Window;
use super::window_entry::WindowEntry;

/// A session's conversation as it stands. A copy may try a request on. Only the session's own is ever
/// saved.
#[derive(Debug, Clone)]
pub(crate) struct ConversationState {
    /// The ids and hashes of all messages, with the cursor and the compaction in force.
    pub(crate) history: History,
    /// What the model would see now.
    pub(crate) window: Arc<Window>,
    /// How often the window was replaced, other than by new messages at its end. What was rendered
    /// before no longer holds then.
    pub(crate) replaced: u64,
    /// Messages that the engine was not shown yet, with their text.
    pub(crate) unshown: IdMap<WindowEntry>,
    /// Whether messages came since the last compaction.
    pub(crate) new_since_compaction: bool,
    /// Reported usage, pauses and prices.
    pub(crate) meter: Meter,
    /// The system prompt and the tools of the last request. None before the first one.
    pub(crate) preamble: Option<Preamble>,
    /// The tokens of the engine's tools in the requests.
    pub(crate) tool_tokens: u64,
    pub(crate) counter: TokenCounter,
    /// Whether a compaction may append a note to the system prompt.
    pub(crate) takes_note: bool,
    /// The artifacts that engines staged, which are saved together with the messages.
    pub(crate) transcript: Arc<EngineTranscript>,
    /// The pins and the request for a compaction that are not in the text.
    pub(crate) held: HeldState,
    warnings: Warnings,
}

impl ConversationState {
    /// A conversation with an empty window. The next message gets the id `next_id`.
    pub(crate) fn new(
        history: History,
        next_id: u64,
        meter: Meter,
        transcript: Arc<EngineTranscript>,
        warnings: Warnings,
    ) -> Self {
        Self {
            counter: TokenCounter::for_model(&meter.agent().model),
            meter,
            history,
            window: Arc::new(Window::of(Vec::new(), None, next_id)),
            replaced: 0,
            unshown: IdMap::default(),
            new_since_compaction: false,
            preamble: None,
            tool_tokens: 0,
            takes_note: true,
            transcript,
            held: HeldState::default(),
            warnings,
        }
    }

    /// The pins in these messages, those of the configuration, and those that are held beside them.
    /// Of all, not more than `most` tokens fit.
    pub(crate) fn pins(&self, views: &[MessageView<'_>], configured: &[String], most: u64) -> Pins {
        let held = self.held.read().pins;
        let count = |text: &str| self.counter.count_text(text);
        Pins::of(views, configured, &held, most, count)
    }

    /// Changes what is held beside the messages, and warns if it cannot be stored.
    pub(crate) fn update_held(
        &mut self,
        change: impl FnOnce(&mut HeldState) -> Result<(), RecordError>,
    ) {
        if let Err(error) = change(&mut self.held) {
            let warning = format!("a change of the session's pins could not be stored: {error}");
            self.warnings.add(warning);
        }
    }

    /// Sets a window that does not merely continue the last one.
    pub(crate) fn replace_window(&mut self, window: Window) {
        self.window = Arc::new(window);
        self.replaced += 1;
    }

    /// Forgets the conversation. The next message gets the next free id.
    pub(crate) fn forget(&mut self) {
        self.meter.forget_usage();
        self.replace_window(Window::of(Vec::new(), None, self.window.next_id()));
        self.new_since_compaction = false;
        self.unshown.clear();
        self.history.forget();
        self.update_held(HeldState::forget);
    }

    /// Sets the agent's model and its window. If it is another model, everything is counted again.
    pub(crate) fn set_agent(&mut self, agent: ConfiguredAgent) {
        if !self.meter.set_agent(agent) {
            return;
        }
        self.counter = TokenCounter::for_model(&self.meter.agent().model);
        Arc::make_mut(&mut self.window).recount(&self.counter);
        if let Some(preamble) = &mut self.preamble {
            preamble.expire();
        }
    }

    /// Writes what changed to the record. If that fails, the session adds a warning, continues in
    /// memory, and the next call tries again.
    pub(crate) fn save(&mut self) {
        self.save_with(&mut Vec::new());
    }

    /// Like [`save`](Self::save), with `changes` of texts in the same transaction. Those that were
    /// not made stay in the list.
    pub(crate) fn save_with(&mut self, changes: &mut Vec<KeptChange<'_>>) {
        self.keep_artifacts();
        self.history.facts.usage = self.meter.usage_memory();
        let saved = self.history.save(self.window.next_id(), changes);
        let not_stored = &mut self.history.not_stored;
        match saved.map_err(|error| history::without_record(&error)) {
            Err(why) => {
                // It is warned of once, however often it is tried.
                if not_stored.as_ref() != Some(&why) {
                    self.warnings.add(&*why);
                }
                *not_stored = Some(why);
            }
            Ok(()) if self.history.is_confirmed() && self.history.not_stored.take().is_some() => {
                self.warnings
                    .log_end("everything that was said is stored again");
            }
            Ok(()) => {}
        }
    }

    /// Has the artifacts that engines staged written with the next save.
    pub(crate) fn keep_artifacts(&mut self) {
        self.history.keep_artifacts(self.transcript.take_staged());
    }

    /// The tokens of the system prompt and the client's tools.
    pub(crate) fn fixed_tokens(&self) -> u64 {
        self.preamble.as_ref().map_or(0, |preamble| preamble.tokens)
    }

    /// The tokens that messages and the engine's tools have room in. None if the size of the window
    /// is not known.
    pub(crate) fn room_for_tools(&self) -> Option<u64> {
        let room = self.meter.agent().empty_window().room_for_prompt();
        room.map(|room| room.saturating_sub(self.fixed_tokens()))
    }

    /// The tokens of a tool in a request of this format.
    pub(crate) fn tool_cost(&self, tool: &ToolSpec, format: Format) -> u64 {
        self.counter.count_text(&tool_in(tool, format)) + TOOL_TOKENS
    }

    /// What has to stand together in the format of the last request.
    pub(crate) fn grouping(&self) -> Grouping {
        let preamble = self.preamble.as_ref();
        preamble.map_or(Grouping::Chat, |preamble| preamble.grouping)
    }

    /// The system prompt of the last request.
    pub(crate) fn system_prompt(&self) -> Option<&str> {
        self.preamble.as_ref()?.system.as_deref()
    }

    /// What an engine is asked with: the state of the window and the system prompt.
    pub(crate) fn order(&self, window: WindowState) -> CompressOrder {
        CompressOrder::default()
            .window(window)
            .system(self.system_prompt().map(str::to_owned))
    }

    /// The note of a window if it has to be added to the system prompt. None if the options forbid
    /// notes, or if the client already sends it.
    pub(crate) fn note_of<'w>(&self, window: &'w Window) -> Option<&'w str> {
        let note = window.system_note().filter(|_| self.takes_note)?;
        let is_sent = |system: &str| system.contains(note);
        (!self.system_prompt().is_some_and(is_sent)).then_some(note)
    }

    /// Whether the engine has something of what was said that the model does not see. Either a
    /// compaction is in force, or the client started again without its early messages, as it does
    /// after a compaction of its own. What the provider compacted itself, the model still knows.
    pub(crate) fn hides_something(&self, request: &Request<'_>) -> bool {
        let first = self.history.branch().first();
        let begins_anew = || first.is_some_and(|first| first.id > MessageId(1));
        self.history.in_force().is_some() || !request.is_compacted && begins_anew()
    }

    /// The stored messages with these ids, as entries of a window, and those that share a wire
    /// message with them. Messages whose text is not stored are left out.
    pub(crate) fn stored_entries(&self, ids: &Ids) -> IdMap<WindowEntry> {
        let entries = self.history.stored(ids).into_iter().map(|stored| {
            let read = ReadMessage {
                conversation: stored.conversation,
                index: stored.part,
                wires: 0..0,
            };
            let entry = WindowEntry::new(stored.id, MessageKind::Original, &read, &self.counter);
            (stored.id, entry)
        });
        entries.collect()
    }

    /// The window with the full text of every message that `entries` restore. What memory does not
    /// have comes from the transcript. The window is shared, not copied, if nothing has to be found.
    ///
    /// # Errors
    /// The id of a message whose original is found nowhere.
    pub(crate) fn with_originals(
        &self,
        window: &Arc<Window>,
        entries: &[Entry],
    ) -> Result<Arc<Window>, MessageId> {
        let wanted: Ids = (entries.iter())
            .filter_map(|entry| match entry {
                Entry::Restore(id) => Some(*id),
                _ => None,
            })
            .collect();
        let lacks = |entry: &&WindowEntry| wanted.contains(&entry.id()) && !entry.has_original();
        let shortened: Ids = window
            .entries()
            .iter()
            .filter(lacks)
            .map(WindowEntry::id)
            .collect();
        if shortened.is_empty() {
            return Ok(Arc::clone(window));
        }
        let originals = self.stored_entries(&shortened);
        if let Some(id) = shortened.iter().find(|id| !originals.contains_key(id)) {
            return Err(*id);
        }
        let whole = |entry: &WindowEntry| originals.get(&entry.id());
        Ok(Arc::new(window.with_originals(whole)))
    }

    /// How full the window is, with exact token counts and everything else that an engine is told
    /// about it. Counts the messages that were not counted yet.
    pub(crate) fn state(&self) -> WindowState {
        self.state_of(self.counted_tokens(), false)
    }

    /// An upper bound of how full the window is. Messages that were not counted are estimated from
    /// their size, so it takes no tokenising. If all are counted, it is exact.
    pub(crate) fn rough_state(&self) -> WindowState {
        let window = &self.window;
        match window.is_counted() {
            true => self.state(),
            false => {
                let most = self.overhead_tokens(window) + window.most_message_tokens();
                self.state_of(most, true)
            }
        }
    }

    /// Whether the upper bound of the prompt fits the window. If this is false, the prompt may
    /// still fit.
    pub(crate) fn fits_roughly(&self) -> bool {
        self.rough_state().fits()
    }

    /// Whether the prompt fits the window. Tokenises only if the upper bound does not fit.
    pub(crate) fn fits(&self) -> bool {
        self.fits_roughly() || self.state().fits()
    }

    /// The state of the window with `tokens` as the host's count of the whole prompt. `estimated`
    /// says that this is not an exact count.
    fn state_of(&self, tokens: u64, estimated: bool) -> WindowState {
        let preamble = self.preamble.as_ref();
        (self.meter.state(tokens, estimated))
            .fixed_tokens(self.overhead_tokens(&self.window))
            .has_system_prompt(preamble.map(|preamble| preamble.system.is_some()))
            .messages(self.window.len())
            .new_since_compaction(self.new_since_compaction)
    }

    /// The tokens of the whole prompt, as the host counts them.
    pub(crate) fn counted_tokens(&self) -> u64 {
        self.tokens_with(&self.window)
    }

    /// The tokens that the prompt would have with this window in place of the current one.
    pub(crate) fn tokens_with(&self, window: &Window) -> u64 {
        self.overhead_tokens(window) + window.message_tokens()
    }

    /// The tokens of the system prompt, the client's and the engine's tools, and the note that a
    /// compaction appended in this window.
    pub(crate) fn overhead_tokens(&self, window: &Window) -> u64 {
        let note = self.note_of(window);
        self.fixed_tokens()
            + self.tool_tokens
            + note.map_or(0, |note| self.counter.count_text(note))
    }
}

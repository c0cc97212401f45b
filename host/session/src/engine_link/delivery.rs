//! Delivery: showing the engine what it has not seen, in one call together with its decision
//! whether to compact.
//!
//! The cursor of the history says how far the engine was shown the conversation, and nothing else
//! does: the engine is not asked. It moves when a call has returned without an error. What a failed
//! or abandoned call was given is delivered again, and the engine recognises it by the ids. A cut
//! stays pending until a call that told the engine of it has returned.
//!
//! Read [`EngineLink::deliver`] first. [`EngineLink::deliver_piece`] makes one call.

use std::sync::Arc;

use contexture_engine_api::protocol::Follow;
use contexture_engine_api::{Cut, Decision, Delivery, MessageId, WindowState};
use contexture_runtime::supervision::{CallError, Deadline};

use contexture_transcript::Ids;

use super::EngineLink;
use crate::conversation::ConversationState;
use crate::history::History;
use crate::window::Window;
use crate::window_entry::WindowEntry;

/// The most messages and tokens that one call shows an engine. Every call has its own deadline, so
/// a long conversation is shown in several calls.
const PIECE_MESSAGES: usize = 256;
const PIECE_TOKENS: u64 = 200_000;

impl EngineLink {
    /// Shows the engine the messages that it has not seen, and returns its decision whether to
    /// compact. `state` is `None` after an answer: nothing is sent then, so there is nothing to
    /// decide. Returns `None` if the decision has to be asked for again with exact figures. After
    /// each call, `progress` is told the number of messages in it.
    ///
    /// # Errors
    /// A call failed. What it was to show is delivered again with the next one.
    pub(crate) fn deliver(
        &mut self,
        current: &mut ConversationState,
        messages: Vec<WindowEntry>,
        state: Option<WindowState>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<Decision>, CallError> {
        let revisions = revisions_in(&current.history, &messages);
        let mut pieces = pieces(messages);
        let last = pieces.pop().unwrap_or_default();
        // The first delivery of a long conversation would not meet the deadline of a single call.
        for piece in pieces {
            let messages = piece.len();
            self.deliver_piece(current, piece, &revisions, None)?;
            progress(messages);
        }
        let messages = last.len();
        let decision = self.deliver_piece(current, last, &revisions, state)?;
        progress(messages);
        // Messages whose text nobody has are passed over.
        current.history.shown.set_cursor(current.history.end());
        // `clear` would keep the capacity of the largest delivery for as long as the session is
        // open.
        current.unshown = Default::default();
        Ok(decision)
    }

    /// Makes one call to the engine: it is told of a pending cut, shown the messages, and decides
    /// whether to compact if `state` is given. Returns None if the decision has to be asked for
    /// again with exact figures.
    fn deliver_piece(
        &mut self,
        current: &mut ConversationState,
        piece: Window,
        revisions: &[(MessageId, MessageId)],
        state: Option<WindowState>,
    ) -> Result<Option<Decision>, CallError> {
        let ids: Ids = piece.entries().iter().map(WindowEntry::id).collect();
        let revisions = revisions.iter().filter(|(id, _)| ids.contains(id));
        let revised: Vec<_> = revisions.copied().collect();
        let tokens = piece.entries().iter().map(WindowEntry::most_tokens).sum();
        let budget = Deadline::Extended.with(piece.len(), tokens);
        let last = piece.entries().last().map(WindowEntry::id);
        let cut = current.history.shown.pending_cut().map(Cut::after);
        let piece = Arc::new(piece);
        let counted = Arc::clone(&piece);
        let window = state.clone();
        let is_shown = cut.is_some() || !piece.is_empty();
        // An engine that makes both in one call does not say which of them failed.
        let method = match (is_shown, &state) {
            (true, Some(_)) => "observe or should_compress",
            (false, Some(_)) => "should_compress",
            (_, None) => "observe",
        };
        let mut decision = self.engine.call(method, budget, move |engine| {
            let calls = piece.call_views();
            let messages = piece.views(&calls);
            let delivery =
                is_shown.then(|| Delivery::new(&messages).after(cut).with_revisions(&revised));
            engine.follow(&Follow::new(delivery, window.as_ref()))
        })?;
        let shown = &mut current.history.shown;
        shown.set_cursor(last.or(shown.cursor()));
        // The engine may have asked for token counts. They are the same in the window, so they need
        // not be counted again.
        current.window.learn_counts(&counted);
        match &state {
            None => decision = Some(Decision::No("nothing is sent now".into())),
            // The estimate is an upper bound. A no is certain, but a yes must be decided again with
            // exact figures.
            Some(state) if state.estimated => {
                decision.take_if(|decision| decision.is_yes());
            }
            Some(_) => {}
        }
        Ok(decision)
    }
}

/// The messages of a delivery that replace one which the engine was shown before or is shown
/// now, as pairs of the new id and the latest such form.
fn revisions_in(history: &History, shown: &[WindowEntry]) -> Vec<(MessageId, MessageId)> {
    let cursor = history.shown.cursor();
    let ids: Ids = shown.iter().map(WindowEntry::id).collect();
    let is_known = |id: &MessageId| Some(*id) <= cursor || ids.contains(id);
    let pair = |id| Some((id, history.earlier_forms(id).find(is_known)?));
    shown.iter().map(WindowEntry::id).filter_map(pair).collect()
}

/// Splits messages into pieces of limited size.
fn pieces(messages: Vec<WindowEntry>) -> Vec<Window> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut tokens = 0;
    for entry in messages {
        tokens += entry.most_tokens();
        piece.push(entry);
        if piece.len() >= PIECE_MESSAGES || tokens >= PIECE_TOKENS {
            pieces.push(Window::of(std::mem::take(&mut piece), None, 0));
            tokens = 0;
        }
    }
    if !piece.is_empty() {
        pieces.push(Window::of(piece, None, 0));
    }
    pieces
}

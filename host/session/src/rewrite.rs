//! What an engine changes of the window before a request, whether a compaction is due or not.

use std::sync::Arc;

use contexture_engine_api::{
    Compaction, CompressRequest, ContextEngine, EngineError, Entry, MessageId,
};
use contexture_runtime::supervision::Pace;

use super::ids::Ids;
use super::report::CompactionReport;
use super::slot::Slot;
use super::{Session, SessionError, Window};
use contexture_contract::{self as contract, Limits, Purpose};

impl Session {
    /// Has the engine change the window; none where it changes nothing, fails or breaks the contract.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn rewrite(&mut self) -> Result<Option<CompactionReport>, SessionError> {
        let proposed = self.proposed("rewrite", |engine, request| engine.rewrite(request))?;
        let Some((base, proposal)) = proposed else {
            return Ok(None);
        };
        let calls = base.call_views(0);
        let views = base.views(0, &calls);
        let limits = Limits {
            purpose: Purpose::Rewrite,
            ..self.limits(&views, false, false)
        };
        let counter = self.counter;
        let checked = contract::check(&views, &proposal, &limits, |text| counter.count_text(text));
        match checked {
            Ok(checked) => {
                let next = base.apply(&proposal, &limits.marks, &counter);
                // What is new is still to be compacted.
                let is_new = self.new_since_compaction;
                let (reported, ledger) = (self.reported, self.ledger);
                let report = self.commit(next, proposal, &checked, false);
                self.new_since_compaction = is_new;
                self.ledger = ledger;
                // What was reported still holds, unless what it was reported for is smaller now.
                let counted = self.counted_tokens();
                self.reported = reported.filter(|reported| counted >= reported.counted);
                Ok(Some(report))
            }
            Err(violation) => {
                let number = self.history.compactions + 1;
                let reason = violation.to_string();
                self.warn(format!(
                    "engine `{}` rewrote the window in a way that breaks the contract, so it was left as it is: \
                     {reason}.",
                    self.engine.name()
                ));
                self.engine.broke_the_contract();
                self.tell("discarded", move |engine| {
                    engine.discarded(number, &reason);
                })?;
                Ok(None)
            }
        }
    }

    /// Asks the engine for a window that is no compaction, and answers it with the one that it is made from; none where
    /// the engine has none or fails, or restores what is nowhere any more.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn proposed(
        &mut self,
        method: &'static str,
        ask: fn(
            &mut dyn ContextEngine,
            &CompressRequest<'_>,
        ) -> Result<Option<Compaction>, EngineError>,
    ) -> Result<Option<(Arc<Window>, Compaction)>, SessionError> {
        let order = self.order(self.state());
        let window = Arc::clone(&self.window);
        let allowance = Pace::Short.with(window.len(), order.window.prompt_tokens);
        let asked = self.engine.call(method, allowance, move |engine| {
            let calls = window.call_views(0);
            let views = window.views(0, &calls);
            ask(engine, &CompressRequest::new(&views, &order))
        });
        let proposal = match asked {
            Ok(Some(proposal)) => proposal,
            Ok(None) => return Ok(None),
            Err(error) => return self.not_told(error.into()).map(|()| None),
        };
        let window = Arc::clone(&self.window);
        match self.with_originals(&window, &proposal.entries) {
            Ok(base) => Ok(Some((base, proposal))),
            Err(lost) => {
                self.warn(self.lost_original(lost));
                Ok(None)
            }
        }
    }

    /// What to say of a message that cannot be restored.
    pub(super) fn lost_original(&self, lost: MessageId) -> String {
        format!(
            "engine `{}` wants {lost} restored, whose original is nowhere any more: the window was left as it is",
            self.engine.name()
        )
    }

    /// The window with the originals of what is to be restored, from a store where memory lacks one.
    ///
    /// # Errors
    /// A message whose original is nowhere any more.
    pub(super) fn with_originals(
        &mut self,
        window: &Arc<Window>,
        entries: &[Entry],
    ) -> Result<Arc<Window>, MessageId> {
        let wanted: Ids = (entries.iter())
            .filter_map(|entry| match entry {
                Entry::Restore(id) => Some(*id),
                _ => None,
            })
            .collect();
        let lacks = |slot: &&Slot| wanted.contains(&slot.id()) && !slot.has_original();
        let missing: Ids = window.slots().iter().filter(lacks).map(Slot::id).collect();
        if missing.is_empty() {
            return Ok(Arc::clone(window));
        }
        let originals = self.recalled(&missing);
        if let Some(lost) = missing.iter().find(|id| !originals.contains_key(id)) {
            return Err(*lost);
        }
        let slots = window.slots().iter();
        let slots = slots.map(|slot| match originals.get(&slot.id()) {
            Some(original) => (slot.as_shortened(&self.counter)).moved_to(original, &self.counter),
            None => slot.clone(),
        });
        let note = window.system_note().map(str::to_owned);
        Ok(Arc::new(Window::of(
            slots.collect(),
            note,
            window.next_id(),
        )))
    }
}

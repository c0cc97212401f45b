//! Changes of the window that are not compactions: those that an engine makes before every request,
//! and views for one request alone.
//!
//! [`Compactor::rewrite`] asks for a change, checks it against the contract, and commits it like a
//! compaction. The difference is that a rewrite does not count as one: what is new since the last
//! compaction stays new, and the ledger of costs is unchanged. [`Compactor::select`] asks for a view,
//! which is checked and leaves the window as it is.

use std::sync::Arc;

use contexture_contract::Purpose;
use contexture_engine_api::{Compaction, CompressRequest, ContextEngine, EngineError};
use contexture_runtime::engines::Opened;
use contexture_runtime::supervision::{CallError, Deadline};

use super::{Compactor, discard, without_original};
use crate::conversation::ConversationState;
use crate::report::CompactionReport;
use crate::window::Window;

/// How an engine is asked for a change: `rewrite` or `select`.
type Question =
    fn(&mut dyn ContextEngine, &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError>;

impl Compactor {
    /// Lets the engine change the window. Returns `None` if it changes nothing. This is also the
    /// result, with a warning, if it breaks the contract.
    pub(crate) fn rewrite(
        &self,
        engine: &mut Opened,
        current: &mut ConversationState,
    ) -> Result<Option<CompactionReport>, CallError> {
        let ask: Question = |engine, request| engine.rewrite(request);
        let Some((base, mut proposal)) = self.proposed(engine, current, "rewrite", ask)? else {
            return Ok(None);
        };
        let (checked, _) = self.check(engine, current, &base, &mut proposal, Purpose::Rewrite);
        match checked {
            Ok(checked) => {
                let next = base.apply(&proposal, &engine.about().marks, &current.counter);
                let made = (proposal, checked);
                let report = self.commit(engine, current, next, made, Purpose::Rewrite);
                Ok(Some(report))
            }
            Err(violation) => {
                let reason = violation.to_string();
                self.warnings.add(format!(
                    "engine `{}` rewrote the window in a way that breaks the contract, so the window was left \
                     unchanged: {reason}.",
                    engine.name()
                ));
                engine.broke_the_contract();
                discard(engine, current, &reason)?;
                Ok(None)
            }
        }
    }

    /// Asks the engine for a view of the window for this request. Returns `None` if the window is
    /// sent as it is. This is also the result, with a warning, if the view breaks the contract.
    pub(crate) fn select(
        &self,
        engine: &mut Opened,
        current: &ConversationState,
    ) -> Result<Option<Window>, CallError> {
        if !engine.about().selects {
            return Ok(None);
        }
        let ask: Question = |engine, request| engine.select(request);
        let Some((base, mut view)) = self.proposed(engine, current, "select", ask)? else {
            return Ok(None);
        };
        let (checked, _) = self.check(engine, current, &base, &mut view, Purpose::View);
        match checked {
            Ok(_) => {
                let marks = &engine.about().marks;
                Ok(Some(base.apply(&view, marks, &current.counter)))
            }
            Err(violation) => {
                engine.broke_the_contract();
                self.warnings.add(format!(
                    "engine `{}` selected a view that breaks the contract, so the window was sent unchanged: \
                     {violation}.",
                    engine.name()
                ));
                Ok(None)
            }
        }
    }

    /// Asks the engine for a change of the window that is not a compaction. Returns the window that
    /// the change applies to and the change, or `None` if the engine wants none or wants to restore
    /// a message whose original is found nowhere.
    fn proposed(
        &self,
        engine: &mut Opened,
        current: &ConversationState,
        method: &'static str,
        ask: Question,
    ) -> Result<Option<(Arc<Window>, Compaction)>, CallError> {
        let order = current.order(current.state());
        let window = Arc::clone(&current.window);
        let budget = Deadline::Short.with(window.len(), order.window.prompt_tokens);
        let proposed = engine.call(method, budget, move |engine| {
            let calls = window.call_views();
            let views = window.views(&calls);
            ask(engine, &CompressRequest::new(&views, &order))
        })?;
        let Some(proposal) = proposed else {
            return Ok(None);
        };
        match current.with_originals(&current.window, &proposal.entries) {
            Ok(base) => Ok(Some((base, proposal))),
            Err(id) => {
                self.warnings.add(without_original(engine, id));
                Ok(None)
            }
        }
    }
}

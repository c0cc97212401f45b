//! A view for one request: what the engine would show the model this time, and no longer.

use super::{Session, SessionError, Window};
use contexture_contract::{self as contract, Limits, Purpose};

impl Session {
    /// The window as the engine wants this request to show it; none for the window as it is, which is
    /// also the answer where the engine fails or its view breaks the contract.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn select(&mut self) -> Result<Option<Window>, SessionError> {
        if !self.engine.about().selects {
            return Ok(None);
        }
        let proposed = self.proposed("select", |engine, request| engine.select(request))?;
        let Some((base, view)) = proposed else {
            return Ok(None);
        };
        let calls = base.call_views(0);
        let views = base.views(0, &calls);
        let usable = self.state().usable_tokens();
        let limits = Limits {
            grouping: self.grouping,
            purpose: Purpose::View,
            fixed_tokens: self.frame_tokens(),
            trigger_tokens: usable,
            usable_tokens: usable,
            may_shorten_last_user: false,
            marks: self.engine.about().marks.clone(),
        };
        let counter = self.counter;
        match contract::check(&views, &view, &limits, |text| counter.count_text(text)) {
            Ok(_) => Ok(Some(base.apply(&view, &limits.marks, &counter))),
            Err(violation) => {
                let refused = format!(
                    "engine `{}` selected a view that breaks the contract, so the window was sent as it \
                     is: {violation}.",
                    self.engine.name()
                );
                self.engine.broke_the_contract();
                self.warn(refused);
                Ok(None)
            }
        }
    }
}

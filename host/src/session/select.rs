//! A view for one request: what the engine would show the model this time, and no longer.

use std::sync::Arc;

use contexture_engine_api::{CompressOrder, CompressRequest};

use super::{Session, SessionError, Window};
use crate::config::OnFailure;
use crate::contract::{self, Limits, Purpose};
use crate::supervision::{CallError, Pace};

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
        let order = CompressOrder::default().window(self.state());
        let window = Arc::clone(&self.window);
        let allowance = Pace::Short.with(window.len(), order.window.prompt_tokens);
        let asked = self.engine.call("select", allowance, move |engine| {
            let calls = window.call_views(0);
            let views = window.views(0, &calls);
            engine.select(&CompressRequest::new(&views, &order))
        });
        let view = match asked {
            Ok(Some(view)) => view,
            Ok(None) => return Ok(None),
            Err(error) if self.on_failure == OnFailure::Fail => return Err(error.into()),
            // A closed session said so when it was closed.
            Err(CallError::Closed { .. }) => return Ok(None),
            Err(error) => {
                tracing::warn!("{error}");
                self.warnings.push(error.to_string());
                return Ok(None);
            }
        };
        let window = Arc::clone(&self.window);
        let base = match self.with_originals(&window, &view.entries) {
            Ok(base) => base,
            Err(lost) => {
                self.warn(self.lost_original(lost));
                return Ok(None);
            }
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
                tracing::warn!("{refused}");
                self.warnings.push(refused);
                Ok(None)
            }
        }
    }
}

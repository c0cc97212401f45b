//! An engine that does what a test tells it to, for whoever tests a host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use contexture_engine_api::{
    About, BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Decision,
    Delivery, EngineError, HostInfo, MessageId, Observed, OpenRequest, Outcome, StandaloneEngine,
    ToolCall, ToolSpec, WindowState,
};

use crate::locked;

type Answer<T> = Box<dyn FnMut(&CompressRequest<'_>) -> T + Send>;

/// What the [`ScriptedEngine`] of one session is told to do, and what it was told. It survives the engine.
#[derive(Clone, Default)]
pub struct Script(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    decision: Option<Decision>,
    compress: Option<Answer<Outcome>>,
    rewrite: Option<Answer<Option<Compaction>>>,
    background: Option<Answer<Vec<BackgroundCall>>>,
    tool_limit: Option<String>,
    tools: Vec<ToolSpec>,
    observed_through: Option<Observed>,
    originals: HashMap<MessageId, String>,
    observed: Vec<MessageId>,
    committed: Vec<Committed>,
    discarded: Vec<String>,
}

static SCRIPTS: Mutex<Vec<(String, Script)>> = Mutex::new(Vec::new());

impl Script {
    /// The script of the session of this id.
    pub fn of(session: &str) -> Self {
        let mut scripts = locked(&SCRIPTS);
        if let Some((_, script)) = scripts.iter().find(|(id, _)| id == session) {
            return script.clone();
        }
        let script = Self::default();
        scripts.push((session.to_owned(), script.clone()));
        script
    }

    /// What it decides from now on; at first that nothing is due.
    pub fn decides(&self, decision: Decision) {
        locked(&self.0).decision = Some(decision);
    }

    /// What it proposes from now on; at first nothing.
    pub fn compacts(&self, answer: impl FnMut(&CompressRequest<'_>) -> Outcome + Send + 'static) {
        locked(&self.0).compress = Some(Box::new(answer));
    }

    /// How it rewrites from now on; at first not at all.
    pub fn rewrites(
        &self,
        answer: impl FnMut(&CompressRequest<'_>) -> Option<Compaction> + Send + 'static,
    ) {
        locked(&self.0).rewrite = Some(Box::new(answer));
    }

    /// What it wants made in the background from now on; at first nothing.
    pub fn wants_made(
        &self,
        answer: impl FnMut(&CompressRequest<'_>) -> Vec<BackgroundCall> + Send + 'static,
    ) {
        locked(&self.0).background = Some(Box::new(answer));
    }

    /// Why the model may not call tools from now on; none for it may.
    pub fn forbids_tools(&self, reason: Option<&str>) {
        locked(&self.0).tool_limit = reason.map(str::to_owned);
    }

    /// The tools that it has from now on.
    pub fn has_tools(&self, tools: Vec<ToolSpec>) {
        locked(&self.0).tools = tools;
    }

    /// What it says to have seen from now on.
    pub fn says_it_saw(&self, observed: Option<Observed>) {
        locked(&self.0).observed_through = observed;
    }

    /// It loses the originals that it keeps.
    pub fn forgets(&self) {
        locked(&self.0).originals.clear();
    }

    /// The messages that it was shown since this was asked last.
    pub fn take_observed(&self) -> Vec<MessageId> {
        std::mem::take(&mut locked(&self.0).observed)
    }

    /// What was committed since this was asked last.
    pub fn take_committed(&self) -> Vec<Committed> {
        std::mem::take(&mut locked(&self.0).committed)
    }

    /// Why proposals were discarded since this was asked last.
    pub fn take_discarded(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.0).discarded)
    }
}

/// An engine that does what the [`Script`] of its session says. It keeps the originals of what it is shown. With
/// `DECLARED` it declares all that an engine may, and the marks `[truncated:`, `[COMPACTED:`, `[status` and `【历史摘要】`;
/// without, nothing.
pub struct ScriptedEngine<const DECLARED: bool> {
    script: Script,
}

impl<const DECLARED: bool> StandaloneEngine for ScriptedEngine<DECLARED> {
    fn about(_host: &HostInfo) -> About {
        if !DECLARED {
            return About::default();
        }
        let marks = ["[truncated:", "[COMPACTED:", "[status", "【历史摘要】"];
        About::default()
            .rewrites(true)
            .keeps_user_messages(true)
            .offers_tools(true)
            .limits_tool_calls(true)
            .marks(marks.map(str::to_owned).to_vec())
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            script: Script::of(request.session),
        })
    }
}

impl<const DECLARED: bool> ContextEngine for ScriptedEngine<DECLARED> {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        let decision = locked(&self.script.0).decision.clone();
        decision.unwrap_or_else(|| Decision::No("it is not told to".into()))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let answer = &mut locked(&self.script.0).compress;
        let nothing = || Outcome::NothingToDo("it is not told to".into());
        Ok(answer
            .as_mut()
            .map_or_else(nothing, |answer| answer(request)))
    }

    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        let answer = &mut locked(&self.script.0).rewrite;
        Ok(answer.as_mut().and_then(|answer| answer(request)))
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let answer = &mut locked(&self.script.0).background;
        answer
            .as_mut()
            .map_or_else(Vec::new, |answer| answer(request))
    }

    fn may_call_tools(&self, _window: &WindowState) -> Decision {
        match locked(&self.script.0).tool_limit.clone() {
            Some(reason) => Decision::No(reason),
            None => Decision::Yes("there is no limit".into()),
        }
    }

    fn tools(&self) -> Vec<ToolSpec> {
        locked(&self.script.0).tools.clone()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        Ok(format!("{} with {}", call.name, call.arguments))
    }

    fn observed_through(&self) -> Option<Observed> {
        locked(&self.script.0).observed_through
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let mut lines = locked(&self.script.0);
        for message in delivery.messages {
            lines.observed.push(message.id());
            lines
                .originals
                .insert(message.id(), message.raw().to_owned());
        }
        Ok(())
    }

    fn recall(&mut self, ids: &[MessageId]) -> Result<Vec<Option<String>>, EngineError> {
        let lines = locked(&self.script.0);
        Ok(ids
            .iter()
            .map(|id| lines.originals.get(id).cloned())
            .collect())
    }

    fn committed(&mut self, committed: &Committed) {
        locked(&self.script.0).committed.push(committed.clone());
    }

    fn discarded(&mut self, _compaction: u64, reason: &str) {
        locked(&self.script.0).discarded.push(reason.to_owned());
    }
}

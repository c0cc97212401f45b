//! A scripted engine, for people who test a host.
//!
//! A host is easiest to test with an engine whose behaviour the test decides. [`ScriptedEngine`] is
//! such an engine: it looks up the [`Script`] of its session and does what that says. The test gets
//! the same script with [`Script::of`], changes it at any time, and reads from it what the host
//! told the engine.
//!
//! A script belongs to a session id and not to an engine object. It therefore survives when the
//! host closes the engine and opens it again, which makes it possible to test restarts.

use std::sync::{Arc, Mutex};

use contexture_engine_api::{
    About, BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Decision,
    Delivery, EngineError, HostInfo, MessageId, OpenRequest, Outcome, StandaloneEngine, ToolCall,
    ToolSpec, WindowState,
};

use crate::locked;

type Answer<T> = Box<dyn FnMut(&CompressRequest<'_>) -> T + Send>;

/// What the [`ScriptedEngine`] of one session should do, and what it was told so far. It outlives
/// the engine. Clones share their content.
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
    observed: Vec<MessageId>,
    committed: Vec<Committed>,
    discarded: Vec<String>,
}

// A global list, because a host opens engines itself and offers no way to hand a script to them.
static SCRIPTS: Mutex<Vec<(String, Script)>> = Mutex::new(Vec::new());

impl Script {
    /// Returns the script of the session with this id. If there is none yet, it is created and does
    /// nothing.
    pub fn of(session: &str) -> Self {
        let mut scripts = locked(&SCRIPTS);
        if let Some((_, script)) = scripts.iter().find(|(id, _)| id == session) {
            return script.clone();
        }
        let script = Self::default();
        scripts.push((session.to_owned(), script.clone()));
        script
    }

    /// Sets the decision that the engine returns from now on. Until then, it says that no
    /// compaction is due.
    pub fn decides(&self, decision: Decision) {
        locked(&self.0).decision = Some(decision);
    }

    /// Sets what the engine proposes when it is asked to compact. Until then, it has nothing to do.
    /// The script is locked while `answer` runs, so `answer` must not call a method of the script.
    pub fn compacts(&self, answer: impl FnMut(&CompressRequest<'_>) -> Outcome + Send + 'static) {
        locked(&self.0).compress = Some(Box::new(answer));
    }

    /// Sets how the engine rewrites the window before requests. Until then, it never does. As with
    /// [`compacts`](Self::compacts), `answer` must not call a method of the script.
    pub fn rewrites(
        &self,
        answer: impl FnMut(&CompressRequest<'_>) -> Option<Compaction> + Send + 'static,
    ) {
        locked(&self.0).rewrite = Some(Box::new(answer));
    }

    /// Sets the model calls that the engine wants made in the background. Until then, it wants
    /// none. As with [`compacts`](Self::compacts), `answer` must not call a method of the script.
    pub fn wants_made(
        &self,
        answer: impl FnMut(&CompressRequest<'_>) -> Vec<BackgroundCall> + Send + 'static,
    ) {
        locked(&self.0).background = Some(Box::new(answer));
    }

    /// Forbids the model to call tools, for this reason. `None` allows it again, as it is in the
    /// beginning.
    pub fn forbids_tools(&self, reason: Option<&str>) {
        locked(&self.0).tool_limit = reason.map(str::to_owned);
    }

    /// Sets the tools that the engine offers.
    pub fn has_tools(&self, tools: Vec<ToolSpec>) {
        locked(&self.0).tools = tools;
    }

    /// Returns the ids of the messages that the engine was shown since this was last called.
    pub fn take_observed(&self) -> Vec<MessageId> {
        std::mem::take(&mut locked(&self.0).observed)
    }

    /// Returns the compactions that were committed since this was last called.
    pub fn take_committed(&self) -> Vec<Committed> {
        std::mem::take(&mut locked(&self.0).committed)
    }

    /// Returns the reasons why proposals were refused since this was last called.
    pub fn take_discarded(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.0).discarded)
    }
}

/// An engine that does what the [`Script`] of its session says.
///
/// If `DECLARED` is true, its description sets the flags whose methods a script can fill in, and
/// the marks `[truncated:`, `[COMPACTED:`, `[status` and `【历史摘要】`. If it is false, the description
/// is empty.
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
        // The answer repeats the call, so a test sees whether the arguments arrived unchanged.
        Ok(format!("{} with {}", call.name, call.arguments))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let ids = delivery.messages.iter().map(|message| message.id());
        locked(&self.script.0).observed.extend(ids);
        Ok(())
    }

    fn committed(&mut self, committed: &Committed) {
        locked(&self.script.0).committed.push(committed.clone());
    }

    fn discarded(&mut self, _compaction: u64, reason: &str) {
        locked(&self.script.0).discarded.push(reason.to_owned());
    }
}

//! The host's side of the protocol.
//!
//! A [`RemoteEngine`] makes an engine on the other side of a carrier look like a linked one: it
//! implements [`ContextEngine`] by sending each method as a call. [`serve_services`] is the
//! opposite direction and answers the calls that the engine makes to the host's services.
//!
//! An older engine may not have all methods. Such a method is answered by the default body of the
//! trait, so the rest of the host does not have to know which version it talks to. Methods that
//! cannot return an error panic if the answer is broken, and the supervision of the host catches
//! that.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Carrier, Delivered, Following, read, write};
use crate::background::BackgroundCall;
use crate::compaction::{Committed, Compaction, CompressRequest, Outcome};
use crate::delivery::{Delivery, Follow};
use crate::engine::{ContextEngine, one_by_one};
use crate::error::EngineError;
use crate::message::{MessageId, MessageView};
use crate::methods::{EngineMethod as Method, ServiceMethod};
use crate::model::{ModelAnswer, ModelFailure};
use crate::services::{HostServices, LogLevel};
use crate::tool::{ToolCall, ToolSpec};
use crate::window::{Decision, Usage, WindowState};

/// The engine of a session on the other side of a carrier. It can be used like an engine that is
/// linked into the program.
#[derive(Debug)]
pub struct RemoteEngine<C>(pub C);

/// An engine with only the default bodies. If the engine on the other side does not have a method,
/// this one answers.
struct Plain;

impl ContextEngine for Plain {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No(String::new())
    }

    // There is no default for this method, so the error stays what it was.
    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Err(missing(Method::Compress))
    }
}

fn missing(method: Method) -> EngineError {
    EngineError::UnknownMethod(method.name().to_owned())
}

/// Panics with the error of a method that cannot return one.
fn or_unwind<T>(answer: Result<T, EngineError>) -> T {
    // `resume_unwind` does not run the panic hook, so the failure is not also printed as a panic of
    // the host.
    answer.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error)))
}

impl<C: Carrier> RemoteEngine<C> {
    /// Makes a call. If the other side does not have the method, the result is that of `default`.
    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        argument: &(impl Serialize + ?Sized),
        messages: &[MessageView<'_>],
        default: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match self.0.call(method.name(), &write(argument)?, messages) {
            Err(EngineError::UnknownMethod(_)) => default(),
            answer => read(&answer?),
        }
    }

    /// Makes a call of a method that cannot return an error. If the answer is broken, this panics
    /// with the error. The host's supervision catches the panic, as it catches one in a linked
    /// engine.
    fn must<T: DeserializeOwned>(
        &self,
        method: Method,
        argument: &(impl Serialize + ?Sized),
        messages: &[MessageView<'_>],
        default: impl FnOnce() -> T,
    ) -> T {
        or_unwind(self.ask(method, argument, messages, || Ok(default())))
    }
}

// If a method of the trait is forgotten here, it never reaches the engine. This lint finds it.
#[warn(clippy::missing_trait_methods)]
impl<C: Carrier + Send> ContextEngine for RemoteEngine<C> {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let required = || Err(missing(Method::ShouldCompress));
        or_unwind(self.ask(Method::ShouldCompress, window, &[], required))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let default = || Plain.compress(request);
        self.ask(Method::Compress, request.order, request.messages, default)
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let told = Delivered::of(delivery);
        let default = || Plain.observe(delivery);
        self.ask(Method::Observe, &told, delivery.messages, default)
    }

    // An older engine has no `follow`, so the default makes the calls one by one.
    fn follow(&mut self, step: &Follow<'_>) -> Result<Option<Decision>, EngineError> {
        if !self.0.joins_calls() {
            return one_by_one(self, step);
        }
        let told = write(&Following::of(step))?;
        let messages = step.delivery.map_or(&[][..], |delivery| delivery.messages);
        match self.0.call(Method::Follow.name(), &told, messages) {
            Err(EngineError::UnknownMethod(_)) => one_by_one(self, step),
            answer => read(&answer?),
        }
    }

    fn update_usage(&mut self, usage: &Usage) {
        self.must(Method::UpdateUsage, usage, &[], || ());
    }

    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        let default = || Plain.prune_tool_results(request);
        self.ask(Method::Prune, request.order, request.messages, default)
    }

    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        let default = || Plain.rewrite(request);
        self.ask(Method::Rewrite, request.order, request.messages, default)
    }

    fn select(&mut self, request: &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError> {
        let default = || Plain.select(request);
        self.ask(Method::Select, request.order, request.messages, default)
    }

    fn committed(&mut self, committed: &Committed) {
        self.must(Method::Committed, committed, &[], || ());
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        self.must(Method::Discarded, &(compaction, reason), &[], || ());
    }

    fn may_call_tools(&self, window: &WindowState) -> Decision {
        let default = || Plain.may_call_tools(window);
        self.must(Method::MayCallTools, window, &[], default)
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.must(Method::Tools, &(), &[], || Plain.tools())
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        self.ask(Method::CallTool, call, &[], || Plain.call_tool(call))
    }

    fn wants_restored(&mut self) -> Vec<MessageId> {
        self.must(Method::WantsRestored, &(), &[], || Plain.wants_restored())
    }

    fn turn_complete(&mut self) {
        self.must(Method::TurnComplete, &(), &[], || ());
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let default = || Plain.background(request);
        self.must(Method::Background, request.order, request.messages, default)
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        self.must(Method::BackgroundDone, &(id, answer), &[], || ());
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.must(Method::ModelChanged, window, &[], || ());
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.ask(Method::Reset, &(), &[], || Plain.reset())
    }

    fn end(&mut self) {
        self.must(Method::End, &(), &[], || ());
    }

    fn status(&self) -> serde_json::Value {
        self.must(Method::Status, &(), &[], || Plain.status())
    }
}

/// Answers a call of one of the host's services with JSON text.
///
/// # Errors
/// Returns the service's own error, [`EngineError::UnknownMethod`] if this version does not have
/// the service, or [`EngineError::Protocol`] if the argument cannot be read.
pub fn serve_services(
    services: &dyn HostServices,
    method: &str,
    argument: &str,
) -> Result<String, EngineError> {
    match ServiceMethod::called(method)? {
        ServiceMethod::Supports => write(&services.supports(&read::<String>(argument)?)),
        ServiceMethod::Model => write(&services.model()),
        ServiceMethod::Complete => write(&services.complete(&read(argument)?)?),
        ServiceMethod::CompleteMany => write(&services.complete_many(&read::<Vec<_>>(argument)?)),
        ServiceMethod::CountTokens => write(&services.count_tokens(&read::<String>(argument)?)),
        ServiceMethod::Log => {
            let (level, message): (LogLevel, String) = read(argument)?;
            write(&services.log(level, &message))
        }
        ServiceMethod::IsCancelled => write(&services.is_cancelled()),
        ServiceMethod::NowMs => write(&services.now_ms()),
        ServiceMethod::MayReadSession => {
            write(&services.may_read_session(&read::<String>(argument)?))
        }
        ServiceMethod::Transcript => write(&services.transcript(&read(argument)?)?),
        ServiceMethod::Artifact => write(&services.artifact(&read::<String>(argument)?)?),
        ServiceMethod::PutArtifact => {
            let (name, text): (String, Option<String>) = read(argument)?;
            write(&services.put_artifact(&name, text.as_deref())?)
        }
        ServiceMethod::Artifacts => write(&services.artifacts(&read::<String>(argument)?)?),
    }
}

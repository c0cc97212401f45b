//! The engine's side of the protocol.
//!
//! A carrier on this side has two jobs. When a call arrives, it passes it to [`serve`], which reads
//! the argument, calls the engine and writes the answer. When the engine calls a service,
//! [`LentServices`] sends the call to the host.
//!
//! Services that cannot return an error need a value even if the host cannot be reached. The
//! defaults are chosen to be safe: no model, four bytes a token, and "cancelled", so that an engine
//! stops working for a host that is gone.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AnswerToCall, Carrier, Delivered, Following, read, write};
use crate::compaction::{CompressOrder, CompressRequest};
use crate::engine::ContextEngine;
use crate::error::EngineError;
use crate::message::MessageView;
use crate::methods::{EngineMethod as Method, ServiceMethod};
use crate::model::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
use crate::services::{HostServices, LogLevel};
use crate::transcript::{TranscriptPage, TranscriptRange};

/// Makes a call of an engine and returns its answer as JSON text. The `messages` are those of the
/// call and are ignored by methods that take none.
///
/// # Errors
/// Returns the engine's own error, [`EngineError::UnknownMethod`] if this version does not have the
/// method, or [`EngineError::Protocol`] if the argument cannot be read.
pub fn serve(
    engine: &mut dyn ContextEngine,
    method: &str,
    argument: &str,
    messages: &[MessageView<'_>],
) -> Result<String, EngineError> {
    let method = Method::called(method)?;
    let order = || read::<CompressOrder>(argument);
    match method {
        Method::ShouldCompress => write(&engine.should_compress(&read(argument)?)),
        Method::Compress => write(&engine.compress(&CompressRequest::new(messages, &order()?))?),
        Method::Observe => {
            let told: Delivered = read(argument)?;
            write(&engine.observe(&told.over(messages))?)
        }
        Method::Follow => {
            let told: Following = read(argument)?;
            write(&engine.follow(&told.over(messages))?)
        }
        Method::UpdateUsage => write(&engine.update_usage(&read(argument)?)),
        Method::Prune => {
            write(&engine.prune_tool_results(&CompressRequest::new(messages, &order()?))?)
        }
        Method::Rewrite => write(&engine.rewrite(&CompressRequest::new(messages, &order()?))?),
        Method::Select => write(&engine.select(&CompressRequest::new(messages, &order()?))?),
        Method::Committed => write(&engine.committed(&read(argument)?)),
        Method::Discarded => {
            let (compaction, reason): (u64, String) = read(argument)?;
            write(&engine.discarded(compaction, &reason))
        }
        Method::MayCallTools => write(&engine.may_call_tools(&read(argument)?)),
        Method::Tools => write(&engine.tools()),
        Method::CallTool => write(&engine.call_tool(&read(argument)?)?),
        Method::WantsRestored => write(&engine.wants_restored()),
        Method::TurnComplete => write(&engine.turn_complete()),
        Method::Background => write(&engine.background(&CompressRequest::new(messages, &order()?))),
        Method::BackgroundDone => {
            let (id, answer): (u64, AnswerToCall) = read(argument)?;
            write(&engine.background_done(id, answer))
        }
        Method::ModelChanged => write(&engine.model_changed(&read(argument)?)),
        Method::Reset => write(&engine.reset()?),
        Method::End => write(&engine.end()),
        Method::Status => write(&engine.status()),
    }
}

/// The services of a host, called over a carrier. An engine in a plugin gets its
/// [`Services`](crate::Services) from this.
#[derive(Debug)]
pub struct LentServices<C>(pub C);

impl<C: Carrier> LentServices<C> {
    fn ask<T: DeserializeOwned>(
        &self,
        method: ServiceMethod,
        argument: &(impl Serialize + ?Sized),
    ) -> Result<T, EngineError> {
        read(&self.0.call(method.name(), &write(argument)?, &[])?)
    }
}

fn failure(error: EngineError) -> ModelFailure {
    match error {
        EngineError::Model(failure) => failure,
        other => ModelFailure::new(FailureKind::Other, other.to_string()),
    }
}

impl<C: Carrier + Send + Sync> HostServices for LentServices<C> {
    fn supports(&self, feature: &str) -> bool {
        self.ask(ServiceMethod::Supports, feature).unwrap_or(false)
    }

    fn model(&self) -> Option<ModelInfo> {
        self.ask(ServiceMethod::Model, &()).unwrap_or_default()
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        self.ask(ServiceMethod::Complete, request).map_err(failure)
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let answers: Result<Vec<AnswerToCall>, _> = self.ask(ServiceMethod::CompleteMany, requests);
        // The engine matches answers to requests by position, so a wrong number of answers is as
        // bad as none.
        let refused = match answers {
            Ok(answers) if answers.len() == requests.len() => return answers,
            Ok(_) => EngineError::Protocol("the host answered another number of calls".to_owned()),
            Err(error) => error,
        };
        requests
            .iter()
            .map(|_| Err(failure(refused.clone())))
            .collect()
    }

    fn count_tokens(&self, text: &str) -> u64 {
        let asked = || self.ask(ServiceMethod::CountTokens, text);
        let counted = self.0.count_tokens(text).map_or_else(asked, Ok);
        counted.unwrap_or(text.len() as u64 / 4)
    }

    fn log(&self, level: LogLevel, message: &str) {
        // If a log line cannot be delivered, there is nobody to tell.
        let _: Result<(), _> = self.ask(ServiceMethod::Log, &(level, message));
    }

    fn is_cancelled(&self) -> bool {
        let asked = || self.ask(ServiceMethod::IsCancelled, &());
        // If the host cannot be reached, nobody waits for the engine any more, so it should stop.
        self.0.is_cancelled().map_or_else(asked, Ok).unwrap_or(true)
    }

    fn now_ms(&self) -> i64 {
        self.ask(ServiceMethod::NowMs, &()).unwrap_or(0)
    }

    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        self.ask(ServiceMethod::Transcript, range)
    }

    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        self.ask(ServiceMethod::Artifact, name)
    }

    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        self.ask(ServiceMethod::PutArtifact, &(name, text))
    }

    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        self.ask(ServiceMethod::Artifacts, prefix)
    }

    fn may_read_session(&self, session: &str) -> bool {
        // If the host does not have this service, all its sessions belong to one person.
        match self.supports("may_read_session") {
            true => self
                .ask(ServiceMethod::MayReadSession, session)
                .unwrap_or(false),
            false => true,
        }
    }
}

//! A test kit for authors of context engines. Tests written with it need no host, no network and no
//! running clock.
//!
//! - [`Chat`] builds a conversation to show to an engine: who said what, tool calls with their
//!   results, images.
//! - [`ScriptedHost`] lends the services that an engine asks for. Its [`ScriptedModel`] answers or
//!   fails as the test tells it to, and remembers what it was asked.
//! - [`ScriptedEngine`] is an engine that does what the test tells it to, for the tests of a host.
//! - [`Session`] opens an engine, shows it a conversation, asks for a compaction, and checks the
//!   proposal against the [`contract`] as a host would.
//! - [`conforms!`] defines a test that plays many kinds of conversations to an engine and prints a
//!   table of what held.
//!
//! Begin with [`Session`] if you test one behaviour of your engine, and with [`conforms!`] if you
//! want to know whether it works at all. This is a test of an engine that keeps the last ten
//! messages and lets a model write about the others:
//!
//! ```
//! use contexture_engine_api::*;
//! use contexture_testkit::{Chat, ScriptedHost, Session, order};
//! # struct LastTen(Services);
//! # impl StandaloneEngine for LastTen {
//! #     fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
//! #         Ok(LastTen(request.services.clone()))
//! #     }
//! # }
//! # impl ContextEngine for LastTen {
//! #     fn should_compress(&self, window: &WindowState) -> Decision {
//! #         if window.best_prompt_tokens() * 2 >= window.context_length {
//! #             Decision::Yes("half of the window is full".into())
//! #         } else {
//! #             Decision::No("less than half of the window is full".into())
//! #         }
//! #     }
//! #     fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
//! #         let messages = request.messages;
//! #         let cut = safe_cut(messages, messages.len().saturating_sub(10));
//! #         let answer = self.0.complete(&ModelRequest::new(
//! #             "summary",
//! #             "Summarise.",
//! #             messages[..cut].iter().map(|message| message.text()).collect::<String>(),
//! #             500,
//! #         ));
//! #         let mut entries = vec![Entry::summary(
//! #             answer.map_or_else(|_| format!("{cut} messages were left out."), |answer| answer.text),
//! #             messages[..cut].iter().map(|message| message.id()).collect(),
//! #         )];
//! #         entries.extend(messages[cut..].iter().map(|message| Entry::Keep(message.id())));
//! #         Ok(Outcome::Compacted(Compaction::new(entries)))
//! #     }
//! # }
//!
//! let mut chat = Chat::default();
//! chat.user("Which files are there?");
//! chat.tool("ls", r#"{"path": "src"}"#, "lib.rs\nmain.rs");
//! chat.talk(20, 2_000);
//! let window = chat.window(10_000, 0);
//!
//! let host = ScriptedHost::with_model(100_000);
//! host.model.will(Ok("They looked at src/main.rs."));
//! host.model.will(Err(FailureKind::Overloaded));
//!
//! let mut session = Session::open::<LastTen>(&host, "{}", &window);
//! assert!(session.engine.should_compress(&window).is_yes());
//! // Panics with the violation if the proposal breaks the contract.
//! let (mut after, _) = session.compacted(&chat, &order(window));
//! assert_eq!(after.messages.len(), 11);
//! assert!(after.messages[0].text.contains("They looked at src/main.rs."));
//! assert!(host.model.requests()[0].prompt.contains("lib.rs"));
//!
//! // The model is down the second time, and the conversation goes on.
//! after.talk(20, 2_000);
//! let order = order(after.window(10_000, 0));
//! let (last, _) = session.compacted(&after, &order);
//! assert!(last.messages[0].text.contains("were left out"));
//! assert_eq!(host.model.calls(), 2);
//! ```
// The kit runs in tests alone, and there a panic reports what is wrong.
#![allow(clippy::expect_used)]

mod chat;
pub mod conformance;
mod engine;
mod host;
mod model;
mod session;

pub use chat::{Call, Chat, IMAGE_TOKENS, Message, count, filler};
pub use conformance::assert_conforms;
pub use contexture_contract as contract;
pub use engine::{Script, ScriptedEngine};
pub use host::{START_MS, ScriptedHost};
pub use model::{MODEL_NAME, ScriptedModel};
pub use session::{Session, order};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if it is poisoned. A test that panicked while it held the lock has failed
/// already, and the others should go on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

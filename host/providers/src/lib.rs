//! Model providers: the calls behind an engine's `complete` and `complete_many`.
//!
//! [`resolve`] decides from `auxiliary.compression`, and from the model that the agent itself uses,
//! which model answers, or why none does. It opens no connection and reads keys through the closure
//! it is given. A key in the environment alone never makes the host call anyone.
//!
//! [`ModelClient`] makes the calls, from any thread, with time limits, retries and cancellation. It
//! returns text or a typed [`ModelFailure`](contexture_engine_api::ModelFailure). If the feature
//! `network` is off, no model ever answers ([`NoModel::NoNetwork`]), and the rest works as it does
//! offline.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use contexture_config::AuxiliaryModel;
//! use contexture_providers::{ModelClient, resolve};
//! use contexture_engine_api::{FailureKind, ModelRequest};
//!
//! // `provider: auto`, and no agent to follow: no model, no network.
//! let settings = AuxiliaryModel::default();
//! let resolved = resolve(&settings, None, false, &|name| std::env::var(name).ok())?;
//! let client = ModelClient::new(resolved, Duration::from_secs(60), |text| text.into());
//! let request = ModelRequest::new("summary", "Summarise.", "…", 500);
//! let failure = client.complete(&request, &AtomicBool::new(false)).unwrap_err();
//! assert_eq!(failure.kind, FailureKind::NoProvider);
//! # Ok::<(), contexture_providers::ProviderError>(())
//! ```

mod client;
mod configured;
#[cfg_attr(
    not(feature = "network"),
    expect(dead_code, reason = "only a call reads the address and the key")
)]
mod endpoint;
#[cfg_attr(not(feature = "network"), path = "no_network.rs")]
mod network;
mod question;
mod resolve;
mod settings;
mod usage_by_model;

pub use client::{Ask, LentModel, ModelClient};
pub use configured::{configured_agent, configured_client, resolve_configured};
pub use endpoint::Endpoint;
pub use question::{Mask, Question, cancelled};
pub use resolve::{NoModel, Resolved, resolve};
pub use settings::{AgentModel, Credentials, Provider, ProviderChoice, ProviderError, Secret};
pub use usage_by_model::UsageByModel;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Engines at run time: which ones exist, loading them, and calling them under supervision.
//!
//! [`engines::Engines`] are the engines of one configuration; it is the type to read first. It finds an engine in the
//! [`catalog`], which runs none of their code, loads a plugin's library or has a process of its own load it
//! (`context.isolation`), and opens the engine for a session. Every call of an engine has a deadline and a panic guard;
//! an engine that keeps failing is put in quarantine ([`supervision`]).
//!
//! # Features
//!
//! - `lcm`: links the lossless engine in, so that `context.engine: lcm` needs no plugin.

pub mod catalog;
pub mod engines;
mod generate;
#[cfg(unix)]
mod isolation;
#[cfg(not(unix))]
#[path = "no_isolation.rs"]
mod isolation;
pub mod supervision;

use std::sync::LazyLock;

use contexture_engine_api::HostInfo;
pub use generate::manifest_of;

/// What this host is to engines.
pub(crate) static HOST: LazyLock<HostInfo> =
    LazyLock::new(|| HostInfo::new(env!("CARGO_PKG_VERSION")));

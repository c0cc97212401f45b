//! Engines at run time: which ones exist, loading them, and calling them under supervision.
//!
//! Read [`engines::Engines`] first: it holds the engines of one configuration. It looks up an
//! engine in the [`catalog`], which runs none of their code, loads a plugin's library into this
//! process or into a separate one (`context.isolation`), or starts the program that a plugin names
//! (`stdio`), and opens the engine for a session. Every call of an engine has a deadline and a panic
//! guard. An engine that keeps failing is put in quarantine ([`supervision`]).
//!
//! Conversations are left to the session: this crate does not know what it passes to an engine.
//!
//! # Features
//!
//! - `lcm`: links the lossless engine in, so that `context.engine: lcm` needs no plugin.

pub mod catalog;
mod child;
pub mod engines;
mod generate;
#[cfg(unix)]
mod isolation;
#[cfg(not(unix))]
#[path = "no_isolation.rs"]
mod isolation;
mod stdio;
pub mod supervision;

use std::sync::LazyLock;

use contexture_engine_api::HostInfo;
pub use generate::manifest_of;

/// What this host tells engines about itself: its version and the features it supports.
pub(crate) static HOST: LazyLock<HostInfo> =
    LazyLock::new(|| HostInfo::new(env!("CARGO_PKG_VERSION")));

//! Contexture: a host for context engines.
//!
//! A *context engine* keeps a long conversation inside a language model's window. This crate finds the
//! engine that `context.engine` in `config.yaml` names ([`catalog`]), loads it ([`engines`]), keeps it
//! honest ([`supervision`], [`contract`]) and runs it over conversations ([`session`]) in the wire formats
//! of the field ([`formats`]). Around that stand token counts ([`tokens`]), model calls ([`providers`])
//! and the outer layer of session hygiene ([`hygiene`]) and prompt cache markers ([`prompt_cache`]).
//! [`replay`] plays recorded conversations through engines to compare them.

pub mod catalog;
pub mod cli;
pub mod config;
pub mod contract;
pub mod engines;
pub mod formats;
pub mod hygiene;
pub mod prompt_cache;
pub mod providers;
pub mod replay;
pub mod services;
pub mod session;
mod suggest;
pub mod supervision;
pub mod tokens;

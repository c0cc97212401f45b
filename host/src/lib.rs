//! Contexture: a host for context engines.

pub mod catalog;
pub mod config;
pub mod contract;
pub mod formats;
pub mod hygiene;
pub mod prompt_cache;
pub mod providers;
pub mod supervision;
mod suggest;
pub mod tokens;

//! The lossless context engine: nothing that was said in a conversation is lost.
//!
//! The host keeps every message. This crate summarises old messages when the window gets full, and
//! gives the model tools to get back from a summary to what it covers. A [`Store`] derives from the
//! messages what a search needs. [`search`] finds words, identifiers, paths and text in scripts
//! without spaces exactly, in milliseconds.
//!
//! A host uses the engine through [`DEFINITION`] and [`Settings`]. If you only want to search,
//! start with [`Store::open`] and [`Store::search`]. [`preview`] shortens large texts for the
//! window.

mod assemble;
mod compact;
mod dag;
mod dates;
mod engine;
mod error;
mod factory;
mod maintenance;
mod model_trust;
pub mod preview;
pub mod search;
mod session_state;
mod settings;
mod shared;
pub mod store;
mod summarise;
mod text;
mod texts;
mod tool_names;
mod tools;
mod transcript;
mod wire_items;

pub use contexture_embed::{Embedder, EmbedderError};
pub use error::StoreError;
pub use factory::{DEFINITION, Lcm};
pub use settings::Settings;
pub use store::{SessionId, Store, StoreSettings};

/// The name of this engine, which is the value of `context.engine` if a configuration chooses it.
pub const NAME: &str = "lcm";

/// Compiles and runs the examples of the README as tests, so that they stay correct.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The lossless context engine.
//!
//! Nothing said in a conversation is lost: every message goes into a [`Store`], compressed and
//! immutable, and comes back byte for byte. Anything in it is found again in milliseconds by
//! [`search`], whose index is made for transcripts: words, identifiers, paths and scripts without
//! spaces are all exact.

mod assemble;
mod background;
mod compact;
mod dag;
mod dates;
mod embed;
mod engine;
mod error;
mod factory;
mod maintenance;
mod model_trust;
pub mod preview;
pub mod search;
mod session_state;
mod settings;
mod staging;
pub mod store;
mod stored_views;
mod summarise;
mod text;
mod tools;
mod transcript;
mod wire_items;

pub use dag::{Level, NodeId};
pub use embed::{Embedder, EmbedderError};
pub use error::StoreError;
pub use factory::{DEFINITION, Lcm};
pub use settings::Settings;
pub use store::{SessionId, Store, StoreSettings};

/// What `context.engine` says to choose this engine.
pub const NAME: &str = "lcm";

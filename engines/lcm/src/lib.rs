//! The lossless context engine.
//!
//! Nothing said in a conversation is lost: every message goes into a [`Store`], compressed and
//! immutable, and comes back byte for byte. Anything in it is found again in milliseconds by
//! [`search`], whose index is made for transcripts: words, identifiers, paths and scripts without
//! spaces are all exact.

mod assemble;
mod background;
mod clock;
mod compact;
mod dag;
mod engine;
mod error;
mod factory;
mod index;
mod manage;
mod material;
pub mod preview;
pub mod search;
mod session;
mod settings;
mod staging;
pub mod store;
mod summarise;
mod tools;
mod transcript;
mod trust;
mod wire_items;

pub use dag::{Level, NodeId};
pub use error::StoreError;
pub use factory::{DEFINITION, Lcm};
pub use settings::Settings;
pub use store::{SessionId, Store, StoreSettings};

/// What `context.engine` says to choose this engine.
pub const NAME: &str = "lcm";

//! The lossless context engine.
//!
//! Nothing said in a conversation is lost: every message goes into a [`Store`], compressed and
//! immutable, and comes back byte for byte. Anything in it is found again in milliseconds by
//! [`search`], whose index is made for transcripts: words, identifiers, paths and scripts without
//! spaces are all exact.

mod error;
mod index;
pub mod preview;
pub mod search;
pub mod store;

pub use error::StoreError;
pub use store::{SessionId, Store, StoreSettings};

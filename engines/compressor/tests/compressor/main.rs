//! What a host sees of the compressor.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod boundaries;
mod chat;
#[path = "../../../secrets/tests/support/secrets.rs"]
mod corpus;
mod document;
mod model;
mod pressure;
mod properties;
mod real;
mod secrets;

//! What a host sees of the compressor.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod boundaries;
mod chat;
mod document;
mod model;
mod pressure;
mod properties;
mod real;

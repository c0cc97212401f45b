//! What the tests of the stores share.

#![allow(dead_code)]

pub(crate) mod conversation;
pub(crate) mod network;
pub(crate) mod place;
pub(crate) mod server;

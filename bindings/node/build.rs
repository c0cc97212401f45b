//! Lets the library leave Node's functions to the Node that loads it.

fn main() {
    napi_build::setup();
}

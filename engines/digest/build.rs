//! Sets `cfg(shared_data)` for the tests on real conversations. It is not in the package, which has no need of it.

#[path = "../../tests/shared_data.rs"]
mod shared_data;

fn main() {
    shared_data::main();
}

//! An extension module leaves the interpreter's symbols open; macOS has to be told.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}

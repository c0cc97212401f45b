//! Sets `cfg(shared_data)` where the real conversations are that some tests need. They lie beside the
//! repository and are no part of it.

use std::path::Path;

fn main() {
    let data = Path::new("../../shared/data");
    println!("cargo::rustc-check-cfg=cfg(shared_data)");
    println!("cargo::rerun-if-changed=build.rs");
    // To watch a folder that is not there is to build anew each time.
    if data.is_dir() {
        println!("cargo::rustc-cfg=shared_data");
        println!("cargo::rerun-if-changed={}", data.display());
    }
}

//! A part of the build script of every package with tests on real conversations: sets `cfg(shared_data)` if these
//! exist. They lie beside the repository and are not part of it. Sets `cfg(installed_embedder)` if `tests/real/install`
//! has installed a sentence encoder.

use std::path::Path;

/// Prints the instructions to cargo.
pub(crate) fn main() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = package.ancestors();
    let repository = above.find(|dir| dir.join("Cargo.lock").is_file());
    let repository = repository.unwrap_or(package);
    println!("cargo::rustc-check-cfg=cfg(shared_data, installed_embedder)");
    println!(
        "cargo::rerun-if-changed={}",
        repository.join("tests/shared_data.rs").display()
    );
    // To watch a folder that is not there is to build anew each time.
    let data = repository.join("../shared/data");
    if data.is_dir() {
        println!("cargo::rustc-cfg=shared_data");
        println!("cargo::rerun-if-changed={}", data.display());
    }
    let encoder = repository.join("tests/real/installed/embedder/.version");
    if encoder.is_file() {
        println!("cargo::rustc-cfg=installed_embedder");
        println!("cargo::rerun-if-changed={}", encoder.display());
    } else if let Some(folder) = encoder.ancestors().find(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
}

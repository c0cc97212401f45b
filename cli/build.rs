//! Packs the sources that `contexture plugins new` copies into a new crate.
//!
//! A crate outside this repository cannot depend on the engine interface by a path, so the program
//! carries the sources of the interface, its contract and the test kit. This script writes
//! `carried.rs`, a list of pairs of a file name and its text. In the manifests, everything
//! inherited from the workspace is spelled out, because a copy has no workspace.
//!
//! The package from a registry does not have these sources. The list is empty there, and a new
//! crate depends on the published versions.
//!
//! The script also sets `cfg(shared_data)` as `tests/shared_data.rs` does, which is not in the
//! package either.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

#[path = "src/plugins/spelled_out.rs"]
mod spelled_out;

/// The packages to pack. A copy has the same folder names as the repository, so the relative paths
/// between them stay valid.
const CARRIED: [&str; 3] = ["engine-api", "contract", "testkit"];

fn main() -> Result<(), Box<dyn Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rustc-check-cfg=cfg(shared_data)");
    let is_checkout = repository.join("engine-api/Cargo.toml").is_file();
    let files = match is_checkout {
        true => carried(&repository)?,
        false => String::new(),
    };
    let data = repository.join("../shared/data");
    // Cargo would run the script each time if it watched a folder that does not exist.
    if is_checkout && data.is_dir() {
        println!("cargo::rustc-cfg=shared_data");
        println!("cargo::rerun-if-changed={}", data.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("carried.rs"), format!("&[\n{files}]"))?;
    Ok(())
}

/// Returns the pairs of the list as Rust code.
fn carried(repository: &Path) -> Result<String, Box<dyn Error>> {
    let root = read(&repository.join("Cargo.toml"))?;
    let place = |path: &str| {
        assert!(CARRIED.contains(&path), "{path} is not handed out");
        format!("../{path}")
    };
    let mut files = String::new();
    for folder in CARRIED {
        let package = repository.join(folder);
        let manifest = spelled_out::spelled_out(&read(&package.join("Cargo.toml"))?, &root, &place);
        // Writing to a string does not fail.
        let _ = writeln!(
            files,
            "({:?}, {manifest:?}),",
            format!("{folder}/Cargo.toml")
        );
        // The crate includes its README, because the examples in it are doc tests.
        let readme = package.join("README.md");
        let _ = writeln!(
            files,
            "({:?}, include_str!({readme:?})),",
            format!("{folder}/README.md")
        );
        let sources = package.join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        let mut folders = vec![sources];
        while let Some(inner) = folders.pop() {
            for entry in std::fs::read_dir(&inner)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let inside = path.strip_prefix(&package)?;
                let name = format!("{folder}/{}", inside.display()).replace('\\', "/");
                let _ = writeln!(files, "({name:?}, include_str!({path:?})),");
            }
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

//! Writes tiktoken's vocabularies in a form that takes a quarter of the space.
//!
//! `tiktoken-rs` carries them as text in Base64, which is 5 MB of a program. The tables of this
//! script have the tokens in the order of their ranks, each as its length in one byte and its
//! bytes, and are compressed to a quarter of that. `src/tokens/vocabulary.rs` reads them, and a
//! program that links no function of `tiktoken-rs` which reads the text does not contain it.
//!
//! The script also sets `cfg(shared_data)` as `tests/shared_data.rs` does, which is not in the
//! package.

use std::error::Error;
use std::path::Path;

use tiktoken_rs::CoreBPE;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(shared_data)");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = repository.join("../shared/data");
    // Cargo would run the script each time if it watched a folder that does not exist.
    if repository.join("Cargo.lock").is_file() && data.is_dir() {
        println!("cargo::rustc-cfg=shared_data");
        println!("cargo::rerun-if-changed={}", data.display());
    }
    let out = std::env::var("OUT_DIR")?;
    let out = Path::new(&out);
    std::fs::write(out.join("o200k_base"), table(&tiktoken_rs::o200k_base()?)?)?;
    std::fs::write(
        out.join("cl100k_base"),
        table(&tiktoken_rs::cl100k_base()?)?,
    )?;
    Ok(())
}

/// Returns the compressed table of a vocabulary. Its special tokens are left out: text never contains them.
fn table(vocabulary: &CoreBPE) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut table = Vec::new();
    // There is no token between the last ordinary one and the special ones.
    for rank in 0.. {
        let Ok(token) = vocabulary.decode_bytes(&[rank]) else {
            break;
        };
        table.push(u8::try_from(token.len())?);
        table.extend(token);
    }
    // At once and not as a stream: a stream of this level asks its reader for a buffer of 128 MB.
    let level = *zstd::compression_level_range().end();
    Ok(zstd::bulk::compress(&table, level)?)
}

//! Sets `cfg(installed_NAME)` for what `tests/real/install` has installed.

use std::path::Path;

fn main() {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("installed");
    let names = [
        "clients", "claude", "codex", "opencode", "hermes", "qwen", "pi", "cline", "aider",
        "gemini", "openclaw",
    ];
    for name in names {
        println!("cargo::rustc-check-cfg=cfg(installed_{name})");
        // The installer's last act for each.
        let done = installed.join(name).join(".version");
        if done.is_file() {
            println!("cargo::rustc-cfg=installed_{name}");
            println!("cargo::rerun-if-changed={}", done.display());
        }
    }
    // To watch a folder that is not there is to build anew each time; the one around it changes when it comes.
    let watched = match installed.is_dir() {
        true => installed.as_path(),
        false => Path::new(env!("CARGO_MANIFEST_DIR")),
    };
    println!("cargo::rerun-if-changed={}", watched.display());
}

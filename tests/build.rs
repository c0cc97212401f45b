//! Makes one test of each recorded play of the session fuzzer.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

mod shared_data;

fn main() {
    shared_data::main();
    let folder = "tests/session_fuzzer/plays";
    println!("cargo::rerun-if-changed={folder}");
    let mut tests = String::new();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().display();
        writeln!(tests, "#[test]\nfn {name}() {{\n    check(\"{name}\");\n}}").unwrap();
    }
    fs::write(
        PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("plays.rs"),
        tests,
    )
    .unwrap();
}

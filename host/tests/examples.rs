//! The example programs of this crate, as their users run them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::process::Command;

/// Runs a program that `cargo test` builds beside the tests, and answers what it prints.
fn run(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("examples");
    let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.is_file(),
        "{} is not built; run `cargo test -p contexture`, which builds the examples",
        program.display()
    );
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn embed_compacts_the_conversation_and_says_why() {
    let printed = run("embed");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(!lines.is_empty(), "nothing was compacted");
    for line in lines {
        assert!(
            line.contains(" messages said: ") && line.contains("tokens"),
            "{line}"
        );
    }
}

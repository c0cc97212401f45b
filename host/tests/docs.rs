//! The pages of the repository say what is so.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use contexture::{Host, Session};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).unwrap()
}

#[test]
fn the_readme_shows_the_example_that_is_compiled() {
    let example = page("host/examples/embed.rs");
    let code: Vec<&str> = (example.lines())
        .skip_while(|line| line.starts_with("//!"))
        .collect();
    let block = format!("```rust\n{}\n```", code.join("\n"));
    assert!(page("README.md").contains(&block), "{block}");
    let lines = code.iter().filter(|line| !line.is_empty()).count();
    assert!(lines <= 25, "{lines} lines");
}

#[test]
fn every_file_that_a_page_names_is_there() {
    let roots = ["", "host"].map(|root| repository().join(root));
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/embedding.md",
    ] {
        let page = page(name);
        let spans = page.split('`').skip(1).step_by(2);
        let files = spans.filter(|span| {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
            span.chars().all(is_path) && (span.ends_with(".rs") || span.ends_with(".yaml"))
        });
        let mut named = 0;
        for file in files.filter(|file| !["config.yaml", "plugin.yaml"].contains(file)) {
            let is_there = roots.iter().any(|root| root.join(file).is_file());
            assert!(is_there, "{name}: there is no {file}");
            named += 1;
        }
        assert!(named > 0 || name == "README.md", "{name} names no files");
    }
}

#[test]
fn a_host_is_shared_and_a_session_may_move_to_another_thread() {
    fn is_shared<T: Send + Sync>() {}
    fn may_move<T: Send>() {}
    is_shared::<Host>();
    may_move::<Session>();
}

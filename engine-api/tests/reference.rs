//! The page for authors of engines shows every signature of the interface as the sources have it. After a change of the
//! interface, write that part of the page anew:
//! `CONTEXTURE_UPDATE_DOCS=1 cargo test -p contexture-engine-api --test reference`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str =
    "<!-- What follows is written by a test from the sources: engine-api/tests/reference.rs -->\n";
const END: &str = "<!-- Until here. -->\n";

/// The traits that an author implements or calls, with the file of each.
const TRAITS: [(&str, &str); 4] = [
    ("ContextEngine", "engine.rs"),
    ("StandaloneEngine", "engine.rs"),
    ("EngineFactory", "engine.rs"),
    ("HostServices", "services.rs"),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The signatures of a trait, each with whether it has a default body.
fn signatures(name: &str, source: &str) -> (String, Vec<(String, bool)>) {
    let at = source.find(&format!("pub trait {name}")).expect(name);
    let (head, body) = source[at..].split_once(" {\n").unwrap();
    let body = body.split_once("\n}\n").unwrap().0;
    let mut methods = Vec::new();
    let mut hidden = false;
    let mut lines = body.lines();
    while let Some(line) = lines.next() {
        hidden |= line.trim() == "#[doc(hidden)]";
        if !line.starts_with("    fn ") {
            continue;
        }
        let mut signature = line.to_owned();
        while !signature.ends_with(['{', ';', '}']) {
            write!(signature, "\n{}", lines.next().unwrap()).unwrap();
        }
        let has_body = !signature.ends_with(';');
        let end = signature.trim_end_matches(['{', '}', ';', ' ', '\n']);
        let signature = end.trim_end_matches(',').to_owned();
        if !std::mem::take(&mut hidden) {
            methods.push((signature, has_body));
        }
    }
    (head.to_owned(), methods)
}

/// Each trait as a block of Rust.
fn blocks() -> String {
    let mut text = String::new();
    for (name, file) in TRAITS {
        let (head, methods) = signatures(name, &read(&format!("src/{file}")));
        writeln!(text, "\n```rust,ignore\n{head} {{").unwrap();
        for (signature, has_body) in methods {
            // What the host lends is there, whether a host has a default for it or not.
            let required = match has_body || name == "HostServices" {
                true => "",
                false => " // required",
            };
            writeln!(text, "{signature};{required}").unwrap();
        }
        text.push_str("}\n```\n");
    }
    text
}

#[test]
fn the_reference_shows_the_signatures_of_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/engine-reference.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has its marker");
    let (shown, after) = rest
        .split_once(END)
        .expect("the page has its second marker");
    if std::env::var_os("CONTEXTURE_UPDATE_DOCS").is_some() {
        let page = format!("{before}{BEGIN}{}\n{END}{after}", blocks());
        return std::fs::write(path, page).unwrap();
    }
    assert_eq!(
        shown.trim(),
        blocks().trim(),
        "docs/engine-reference.md shows another interface; see the head of engine-api/tests/reference.rs"
    );
}

#[test]
fn the_reference_explains_every_method_and_service() {
    let page = read("../docs/engine-reference.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for (name, file) in [TRAITS[0], TRAITS[3]] {
        let (_, methods) = signatures(name, &read(&format!("src/{file}")));
        assert!(methods.len() > 10, "{name}: {methods:?}");
        for (signature, _) in methods {
            let method = signature.trim_start().trim_start_matches("fn ");
            let method = method.split(['(', '<']).next().unwrap();
            let is_explained = |row: &&str| {
                row.split('|')
                    .nth(1)
                    .unwrap()
                    .contains(&format!("`{method}`"))
            };
            assert!(
                rows.iter().any(is_explained),
                "no table explains `{method}` of {name}"
            );
        }
    }
}

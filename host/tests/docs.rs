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
fn the_pages_show_the_example_that_is_compiled() {
    let example = page("host/examples/embed.rs");
    let code: Vec<&str> = (example.lines())
        .skip_while(|line| line.starts_with("//!"))
        .collect();
    let block = format!("```rust\n{}\n```", code.join("\n"));
    assert!(page("docs/embedding.md").contains(&block), "{block}");
    let lines = code.iter().filter(|line| !line.is_empty()).count();
    assert!(lines <= 25, "{lines} lines");
    let readme = page("README.md");
    let (_, excerpt) = readme.split_once("\n```rust\n").unwrap();
    let (excerpt, _) = excerpt.split_once("\n```").unwrap();
    for line in excerpt.lines() {
        let is_in = code.iter().any(|code| code.trim().starts_with(line));
        assert!(is_in, "the README shows what the example lacks: {line}");
    }
}

/// The blocks of Rust on a page that are meant to compile.
fn rust_blocks(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("\n```rust\n").skip(1);
    blocks.filter_map(|block| Some(block.split_once("\n```")?.0))
}

#[test]
fn the_pages_for_authors_of_engines_quote_the_example_engine() {
    let unindented = |text: &str| -> String {
        let lines = text.lines().map(|line| format!("{}\n", line.trim_start()));
        lines.collect()
    };
    let sources = repository().join("examples/custom-engine/src");
    let sources = std::fs::read_dir(sources).unwrap().map(|file| {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        unindented(&text)
    });
    let sources: Vec<String> = sources.collect();
    let mut quoted = 0;
    for name in ["docs/write-an-engine.md", "docs/engine-cookbook.md"] {
        for block in rust_blocks(&page(name)) {
            let is_quoted = sources
                .iter()
                .any(|source| source.contains(&unindented(block)));
            assert!(is_quoted, "{name} shows what the example lacks:\n{block}");
            quoted += 1;
        }
    }
    assert!(quoted > 15, "{quoted} blocks");
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
        assert!(named > 0, "{name} names no files");
    }
}

/// Every Markdown file of the repository's own.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            let is_source = !["target", "node_modules", "installed", "template"].contains(&name);
            if is_source && (!name.starts_with('.') || name == ".github") {
                pages.extend(self::pages(&path));
            }
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
    pages
}

/// What a page's headings are called in links, as GitHub and mdBook derive it.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let headings = text.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    let anchor = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut checked = 0;
    for path in pages(&repository()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.contains(' ')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: there is no {link}", path.display());
            if !anchor.is_empty() {
                let anchors = anchors(&std::fs::read_to_string(&target).unwrap());
                let is_there = anchors.iter().any(|known| known == anchor);
                assert!(
                    is_there,
                    "{}: {link} is none of {anchors:?}",
                    path.display()
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked} links");
}

/// What a registry shows of a crate, and what a reader of it finds there.
#[test]
fn every_published_crate_has_a_readme_and_says_what_it_is() {
    let workspace = page("Cargo.toml");
    let (_, members) = workspace.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let mut published = 0;
    for folder in members.split('"').skip(1).step_by(2) {
        let manifest = page(&format!("{folder}/Cargo.toml"));
        if manifest.contains("\npublish = false") {
            continue;
        }
        published += 1;
        let value = |key: &str| {
            let mut lines = manifest.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            value.unwrap_or_else(|| panic!("{folder}/Cargo.toml has no `{key}`"))
        };
        let name = value("name").trim_matches('"');
        assert_eq!(value("readme"), "\"README.md\"", "{folder}");
        assert_eq!(
            value("documentation"),
            format!("\"https://docs.rs/{name}\"")
        );
        for list in ["keywords", "categories"] {
            let words = value(list).matches('"').count() / 2;
            assert!((1..=5).contains(&words), "{folder}: {words} {list}");
        }
        let readme = page(&format!("{folder}/README.md"));
        let lines = readme.lines().count();
        assert!(
            (20..=50).contains(&lines),
            "{folder}/README.md has {lines} lines"
        );
        assert!(
            readme.starts_with(&format!("# {name}\n")),
            "{folder}/README.md"
        );
        if readme.contains("\n```rust") {
            let library = page(&format!("{folder}/src/lib.rs"));
            let is_tested = library.contains("include_str!(\"../README.md\")");
            assert!(
                is_tested,
                "the examples of {folder}/README.md are not compiled"
            );
        }
    }
    assert!(published > 15, "{published} crates");
}

#[test]
fn a_host_is_shared_and_a_session_may_move_to_another_thread() {
    fn is_shared<T: Send + Sync>() {}
    fn may_move<T: Send>() {}
    is_shared::<Host>();
    may_move::<Session>();
}

//! What depends on what: every dependency is one that `deny.toml` allows (its licence, its source, and that it is not
//! banned), no crate of the host depends on one above it, and modules of a crate do not depend on each other in circles.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What `deny.toml` says, as far as it is looked at here.
struct Rules {
    licences: Vec<String>,
    /// A crate, and a licence that is allowed to it alone.
    exceptions: Vec<[String; 2]>,
    banned: Vec<String>,
    registry: String,
}

impl Rules {
    fn read() -> Self {
        let text = std::fs::read_to_string(format!("{ROOT}/deny.toml")).unwrap();
        let plain: String = (text.lines())
            .map(|line| line.split(" #").next().unwrap())
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        let all = |pattern: &str, within: &str| -> Vec<Vec<String>> {
            let found = Regex::new(pattern).unwrap();
            let found = found.captures_iter(within);
            let groups = found.map(|one| {
                one.iter()
                    .skip(1)
                    .flatten()
                    .map(|group| group.as_str().to_owned())
                    .collect()
            });
            groups.collect()
        };
        let first = |pattern: &str| all(pattern, &plain)[0][0].clone();
        let licences = first(r"(?s)\[licenses\].*?\nallow = \[(.*?)\]");
        let exceptions = all(r#"crate = "([^"]+)", allow = \["([^"]+)"\]"#, &plain);
        Self {
            licences: all(r#""([^"]+)""#, &licences).concat(),
            exceptions: exceptions
                .into_iter()
                .map(|pair| pair.try_into().unwrap())
                .collect(),
            banned: all(r#"\{ crate = "([^"]+)" \}"#, &plain).concat(),
            registry: first(r#"allow-registry = \["([^"]+)"\]"#),
        }
    }

    fn allow(&self, name: &str, licence: &str) -> bool {
        let excepted = [name.to_owned(), licence.to_owned()];
        self.licences.iter().any(|one| one == licence) || self.exceptions.contains(&excepted)
    }

    /// Whether an expression of SPDX's asks for no more than is allowed. Read as alternatives that all have to hold,
    /// which is never laxer than what its parentheses say.
    fn admit(&self, name: &str, expression: &str) -> bool {
        let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
        let any = |group: &str| group.split(" OR ").any(|one| self.allow(name, one.trim()));
        expression.split(" AND ").all(any)
    }
}

/// The packages of the workspace and all that it depends on, on every system; on this one alone where those of the
/// others were never downloaded.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let run = |program: &str, args: &[&str]| {
        let ran = Command::new(program)
            .args(args)
            .current_dir(ROOT)
            .output()
            .unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        (
            ran.status.success(),
            text,
            String::from_utf8_lossy(&ran.stderr).into_owned(),
        )
    };
    let metadata = [
        "metadata", "--offline", "--locked", "--all-features", "--format-version=1",
    ];
    let (mut done, mut text, mut said) = run(&cargo, &metadata);
    if !done {
        let (_, version, _) = run(&cargo, &["-vV"]);
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .unwrap();
        (done, text, said) = run(
            &cargo,
            &[&metadata[..], &["--filter-platform", host]].concat(),
        );
    }
    assert!(done, "{said}");
    let mut metadata: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

#[test]
fn every_dependency_is_one_that_deny_toml_allows() {
    let rules = Rules::read();
    let packages = packages();
    assert!(packages.len() > 100 && !rules.banned.is_empty());
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !rules.admit(name, licence) {
            wrong.push(format!("{name}: the licence {licence}"));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| source != format!("registry+{}", rules.registry)) {
            wrong.push(format!("{name}: from {source:?}"));
        }
        if rules.banned.iter().any(|banned| banned == name) {
            wrong.push(format!("{name}: banned"));
        }
    }
    for [name, licence] in &rules.exceptions {
        let is_used =
            |package: &Value| package["name"] == **name && package["license"] == **licence;
        if !packages.iter().any(is_used) {
            wrong.push(format!("{name}: an exception that nothing needs"));
        }
    }
    assert!(wrong.is_empty(), "deny.toml does not allow {wrong:#?}");
}

#[test]
fn an_expression_is_read_as_strictly_as_it_is_meant() {
    let rules = Rules::read();
    let strict = |expression| rules.admit("some-crate", expression);
    for allowed in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "Apache-2.0/MIT",
        "(MIT OR GPL-3.0-only) AND Unicode-3.0",
    ] {
        assert!(strict(allowed), "{allowed}");
    }
    for refused in [
        "none",
        "MPL-2.0",
        "MIT AND GPL-3.0-only",
        "GPL-3.0-only OR AGPL-3.0-only",
        "(MIT AND GPL-3.0-only) OR LGPL-2.1-only",
    ] {
        assert!(!strict(refused), "{refused}");
    }
}

/// The crates that the host consists of, the lowest first. Each may depend on those before it.
const HOST_CRATES: [&str; 10] = [
    "contexture-base",
    "contexture-formats",
    "contexture-history",
    "contexture-config",
    "contexture-providers",
    "contexture-runtime",
    "contexture-transcript",
    "contexture-session",
    "contexture-replay",
    "contexture",
];

#[test]
fn no_crate_of_the_host_depends_on_one_above_it() {
    let packages = packages();
    let rank = |name: &str| HOST_CRATES.iter().position(|one| *one == name);
    let mut seen = 0;
    for package in packages
        .iter()
        .filter(|package| package["source"].is_null())
    {
        let name = package["name"].as_str().unwrap();
        let path = package["manifest_path"].as_str().unwrap();
        let is_below = ["/engine-api/", "/contract/", "/engines/", "/plugins/"]
            .iter()
            .any(|folder| path.contains(folder));
        let own = rank(name);
        seen += usize::from(own.is_some());
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            if !dependency["kind"].is_null() {
                continue;
            }
            let Some(other) = rank(on) else { continue };
            assert!(!is_below, "{name} depends on the host: {on}");
            assert!(own.is_none_or(|own| other < own), "{name} depends on {on}");
            // Everything else uses the facade.
            assert!(
                own.is_some() || on == "contexture",
                "{name} depends on {on}"
            );
        }
    }
    assert_eq!(seen, HOST_CRATES.len());
}

#[test]
fn modules_do_not_depend_on_each_other_in_circles() {
    let crates = [
        "cli",
        "contract",
        "engine-api",
        "engines/compressor",
        "engines/digest",
        "engines/embed",
        "engines/lcm",
        "engines/pattern",
        "engines/secrets",
        "engines/summaries",
        "engines/tiered",
        "engines/two-layer",
        "engines/virtual-files",
        "gateway",
        "host/base",
        "host/config",
        "host/formats",
        "host/history",
        "host/providers",
        "host/replay",
        "host/runtime",
        "host/session",
        "host/transcript",
        "testkit",
    ];
    for folder in crates {
        let found = circles(&uses(&Path::new(ROOT).join(folder).join("src")));
        assert!(found.is_empty(), "{folder}: {found:?}");
    }
}

/// The modules at the root of a crate, each with those of them that it names outside its tests, also by what the root
/// takes from them. What else stands in the root is not followed: it declares all of them.
fn uses(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let listed = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let comments = Regex::new(r"//[^\n]*").unwrap();
    let names = Regex::new(r"\bcrate::(?:\{([^;]*?)\};|(\w+))").unwrap();
    let in_braces = Regex::new(r"(?:^|,)\s*(\w+)").unwrap();
    let taken = Regex::new(r"\buse (?:crate::|self::)?(\w+)::([^;]+);").unwrap();
    let names_taken = Regex::new(r"(\w+)\s*(?:[,}]|$)").unwrap();
    let mut modules_of: BTreeMap<String, String> = BTreeMap::new();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut pending: Vec<_> = listed(src).into_iter().map(|path| (path, 1)).collect();
    while let Some((path, depth)) = pending.pop() {
        if stem(&path) == "tests" {
            continue;
        }
        if path.is_dir() {
            pending.extend(listed(&path).into_iter().map(|path| (path, depth + 1)));
            continue;
        }
        let inside = path.strip_prefix(src).unwrap();
        let own = stem(Path::new(inside.components().next().unwrap().as_os_str()));
        let text = std::fs::read_to_string(&path).unwrap();
        let text = comments.replace_all(&text, "");
        if ["lib", "main"].contains(&&*own) {
            for from in taken.captures_iter(&text) {
                let names = names_taken.captures_iter(&from[2]);
                modules_of.extend(names.map(|name| (name[1].to_owned(), from[1].to_owned())));
            }
            continue;
        }
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // As many `super` as the file is deep lead to the root.
        let root = Regex::new(&format!(r"(\W)(?:super::){{{depth}}}")).unwrap();
        let text = root.replace_all(text, "${1}crate::");
        let uses = found.entry(own).or_default();
        for path in names.captures_iter(&text) {
            match (path.get(1), path.get(2)) {
                (Some(list), _) => uses.extend(
                    in_braces
                        .captures_iter(list.as_str())
                        .map(|name| name[1].to_owned()),
                ),
                (_, name) => uses.extend(name.map(|name| name.as_str().to_owned())),
            }
        }
    }
    for uses in found.values_mut() {
        let from: Vec<_> = (uses.iter())
            .filter_map(|name| modules_of.get(name).cloned())
            .collect();
        uses.extend(from);
    }
    found
}

/// The modules that a module names, and those that they name.
fn reach(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut pending) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = pending.pop() {
        for next in uses.get(&module).into_iter().flatten() {
            if next != &module && uses.contains_key(next) && seen.insert(next.clone()) {
                pending.push(next.clone());
            }
        }
    }
    seen
}

/// The groups of modules that reach each other, in order of their names.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<_, _> = (uses.keys())
        .map(|module| (module, reach(uses, module)))
        .collect();
    let groups: BTreeSet<Vec<String>> = (reached.iter())
        .filter(|(module, seen)| seen.contains(**module))
        .map(|(module, seen)| {
            let back = |other: &&String| reached[*other].contains(*module);
            seen.iter().filter(back).cloned().collect()
        })
        .collect();
    groups.into_iter().collect()
}

/// Each can be read, changed and tested without the others and without the session that coordinates them.
#[test]
fn the_four_values_of_a_session_know_nothing_of_each_other() {
    let uses = uses(&Path::new(ROOT).join("host/session/src"));
    let values = ["compactor", "engine_link", "ingest", "renderer"];
    for value in values {
        let reached = reach(&uses, value);
        assert!(reached.contains("conversation"), "{value}: {reached:?}");
        let others = values.iter().filter(|other| **other != value);
        for other in others.chain(&["session", "turn", "compaction"]) {
            assert!(!reached.contains(*other), "{value} reaches {other}");
        }
    }
}

#[test]
fn a_circle_is_found_with_what_is_in_it_alone() {
    let uses = [
        ("a", "b"),
        ("b", "c"),
        ("c", "b"),
        ("d", "d"),
        ("c", "e"),
        ("e", "none"),
    ];
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in uses {
        graph
            .entry(from.to_owned())
            .or_default()
            .insert(to.to_owned());
    }
    assert_eq!(circles(&graph), [["b", "c"]]);
}

#[test]
fn what_a_root_takes_from_a_module_leads_to_it() {
    let src = tempfile::tempdir().unwrap();
    let files = [
        (
            "lib.rs",
            "mod a;\nmod b;\nmod c;\npub use b::{First, Second};\n",
        ),
        ("a.rs", "use crate::{Second, c};\n"),
        ("b.rs", "use super::a::Third;\n"),
        ("c.rs", "// crate::a\nuse crate::First as _;\n"),
    ];
    for (name, text) in files {
        std::fs::write(src.path().join(name), text).unwrap();
    }
    assert_eq!(circles(&uses(src.path())), [["a", "b", "c"]]);
    std::fs::write(src.path().join("b.rs"), "use super::c::Third;\n").unwrap();
    assert_eq!(circles(&uses(src.path())), [["b", "c"]]);
}

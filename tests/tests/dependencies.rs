//! Every dependency is one that `deny.toml` allows: its licence, its source, and that it is not banned. A part of the host
//! uses only parts that stand below it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

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
        "metadata",
        "--offline",
        "--locked",
        "--all-features",
        "--format-version=1",
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

/// The parts of the host, each above those that it may use.
const LAYERS: [&str; 8] = [
    "contexture-base",
    "contexture-formats",
    "contexture-config",
    "contexture-providers",
    "contexture-runtime",
    "contexture-session",
    "contexture-replay",
    "contexture",
];

#[test]
fn a_part_of_the_host_uses_what_stands_below_it() {
    let layer = |name: &Value| LAYERS.iter().position(|layer| name == *layer);
    let mut seen = 0;
    for package in &packages() {
        let Some(own) = layer(&package["name"]) else {
            continue;
        };
        seen += 1;
        for used in package["dependencies"].as_array().unwrap() {
            let (own_name, used_name) = (&package["name"], &used["name"]);
            let is_below = layer(used_name).is_none_or(|layer| layer < own);
            assert!(
                is_below || !used["kind"].is_null(),
                "{own_name} uses {used_name}"
            );
        }
    }
    assert_eq!(seen, LAYERS.len());
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

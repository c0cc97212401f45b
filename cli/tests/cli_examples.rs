//! The programs of `examples/`, as their users run them, before the provider simulator.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::{Home, Ran, json, ran};
use contexture_provider_simulator::{Answer, Api, Simulator};

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(path)
}

/// Runs a Python program of the examples with this home.
fn python(home: &Home, path: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new("python3");
    command
        .arg(example(path))
        .args(arguments)
        .env("CONTEXTURE", assert_cmd::cargo::cargo_bin!("contexture"))
        .env("CONTEXTURE_HOME", home.path("home"))
        .env("OPENAI_API_KEY", "key-of-openai")
        .env("ANTHROPIC_API_KEY", "key-of-anthropic");
    let output = command.output().expect("these examples need python3");
    Ran {
        command: path.to_owned(),
        ..ran(output)
    }
}

#[test]
fn one_gateway_sends_each_request_to_the_upstream_of_its_api() {
    let (openai, anthropic, home) = (Simulator::start(), Simulator::start(), Home::new());
    openai.script([Answer::text("101, says OpenAI.")]);
    anthropic.script([Answer::text("103, says Anthropic.")]);
    let config = std::fs::read_to_string(example("gateway/config.yaml")).unwrap();
    let here = config
        .replace("https://api.openai.com", &openai.base_url())
        .replace("https://api.anthropic.com", &anthropic.base_url());
    assert!(!here.contains("https://"), "{here}");
    let config = home.put("config.yaml", &here);

    let ran = python(&home, "gateway/two_upstreams.py", &[&config]);
    ran.exits(0).stdout_is(
        "/v1/chat/completions (managed): 101, says OpenAI.\n/v1/messages (managed): 103, says Anthropic.\n",
    );
    for (provider, api, key) in [
        (&openai, Api::Chat, "Bearer key-of-openai"),
        (&anthropic, Api::Messages, "key-of-anthropic"),
    ] {
        let requests = provider.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].api, api);
        let sent = requests[0]
            .header("authorization")
            .or(requests[0].header("x-api-key"));
        assert_eq!(sent, Some(key));
        assert!(
            provider.violations().is_empty(),
            "{:?}",
            provider.violations()
        );
    }
}

#[test]
fn a_gateway_that_does_not_start_ends_the_example_with_a_reason() {
    let home = Home::new();
    let config = home.put("config.yaml", "upstream: [\n");
    let ran = python(&home, "gateway/two_upstreams.py", &[&config]);
    ran.exits(1).stderr_has("serve ended with 2");
}

#[test]
fn a_client_of_the_protocol_finds_what_was_said() {
    let home = Home::new();
    let session = example("coding-session.json");
    let session = session.to_str().unwrap();
    home.run(["import", session, "--session", "demo"]).exits(0);
    let ran = python(&home, "mcp/grep.py", &["demo", "epoch"]);
    ran.exits(0);
    let (tools, found) = ran.stdout.split_once('\n').unwrap();
    assert!(
        tools.starts_with("tools: ") && tools.contains("lcm_grep"),
        "{tools}"
    );
    let found = json(found);
    assert!(found["total"].as_u64().unwrap() > 0, "{found}");

    let none = python(&home, "mcp/grep.py", &["nobody", "epoch"]);
    none.exits(2).stderr_has("nobody");
}

/// Everything that engines are held to, played to a program.
fn conforms(name: &str) {
    let (home, folder) = (Home::new(), example(name));
    let ran = home.run(["plugins", "check", folder.to_str().unwrap()]);
    ran.exits(0).stdout_has(&format!("{name} 0.1.0 ("));
    let held = ran.stdout.lines().filter(|line| line.contains(" yes "));
    assert_eq!(held.count(), 14, "{}", ran.stdout);
}

#[test]
fn the_engine_in_python_conforms() {
    conforms("engine-python");
}

#[test]
fn the_engine_for_node_conforms() {
    conforms("engine-typescript");
}

/// The list of the examples names every one, and the files that it names are there.
#[test]
fn the_list_names_every_example() {
    let page = std::fs::read_to_string(example("README.md")).unwrap();
    for named in [
        "host/examples/embed.rs",
        "agent.py",
        "custom-engine/",
        "engine-python/",
        "engine-typescript/",
        "gateway/two_upstreams.py",
        "mcp/grep.py",
        "config.yaml",
        "coding-session.json",
    ] {
        assert!(
            page.contains(named),
            "examples/README.md does not name {named}"
        );
    }
    let known = page.split('`').skip(1).step_by(2).map(str::to_owned);
    let known: Vec<String> = known.collect();
    for file in std::fs::read_dir(example("")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_listed = name == "README.md" || known.iter().any(|part| part.contains(&name));
        assert!(is_listed, "examples/README.md does not list {name}");
    }
}

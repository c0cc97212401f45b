//! Tests that compare the generated pages of `docs/` with what the program prints.
//!
//! `docs/cli.md` contains the help of every command, and `docs/config.schema.json` the schema of
//! the configuration for editors. Both are generated, so a change of a command or a setting makes a
//! test here fail until the pages are written again:
//!
//! ```text
//! CONTEXTURE_UPDATE_DOCS=1 cargo test -p contexture-cli --lib reference
//! ```
//!
//! [`check`] compares one page, or writes it if the variable is set. The text above the marker
//! [`BEGIN`] in `docs/cli.md` is written by hand and stays.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use contexture::config::{Config, editor_schema};

use crate::{Cli, output, start};

const BEGIN: &str =
    "<!-- What follows is written by a test from the program: cli/src/reference.rs -->\n";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Compares a file of `docs/` with the text that it should contain. If `CONTEXTURE_UPDATE_DOCS` is
/// set, writes the file instead.
fn check(name: &str, wanted: &str) {
    let file = docs().join(name);
    if std::env::var_os("CONTEXTURE_UPDATE_DOCS").is_some() {
        std::fs::write(&file, wanted).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&file).unwrap();
    let differs = written
        .lines()
        .zip(wanted.lines())
        .find(|(was, is)| was != is);
    assert!(
        written == wanted,
        "docs/{name} is not what the program says (set CONTEXTURE_UPDATE_DOCS=1 to write it): {differs:?}"
    );
}

/// Appends the help of a command and of each of its subcommands to the page, under headings. The
/// global options appear only once, in the help of the program itself.
fn describe(command: &mut clap::Command, path: &str, depth: usize, page: &mut String) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let marks = "#".repeat(depth + 2);
    page.push_str(&format!(
        "\n{marks} `{path}`\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    ));
    for command in command
        .get_subcommands_mut()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        // `mut_args` takes a command by value.
        let shown = std::mem::take(command).mut_args(|argument| {
            let is_shown = !argument.is_global_set() && argument.get_id() != "help";
            if is_shown {
                argument
            } else {
                argument.hide(true)
            }
        });
        *command = shown;
        let path = format!("{path} {}", command.get_name());
        describe(command, &path, depth + 1, page);
    }
}

#[test]
fn the_page_of_commands_is_what_the_program_prints() {
    // The width is fixed, or the page would depend on the terminal in which the test runs.
    let mut command = Cli::command().term_width(100);
    // This hands the global options down to the subcommands, which is how they are recognised and
    // hidden there.
    command.build();
    let written = std::fs::read_to_string(docs().join("cli.md")).unwrap();
    let (head, _) = written.split_at(written.find(BEGIN).expect("the page has its mark"));
    let mut page = format!("{head}{BEGIN}");
    describe(&mut command, "contexture", 0, &mut page);
    check("cli.md", &page);
}

#[test]
fn the_schema_for_editors_is_what_config_schema_prints() {
    let home = tempfile::tempdir().unwrap();
    let plugins = docs()
        .join("../plugins/context_engine")
        .canonicalize()
        .unwrap();
    let config = format!("plugins: {{dirs: [{}]}}\n", plugins.display());
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let variable = |name: &str| (name == "CONTEXTURE_HOME").then(|| home.path().into());
    let loaded = Config::load(None, &variable).unwrap();
    let catalog = start::scan(&loaded).unwrap();
    let schema = editor_schema(catalog.declared_settings());
    let named = &schema["properties"]["context"]["properties"]["engines"]["properties"];
    assert!(named["lcm"]["properties"]["soft_threshold"].is_object());
    assert!(named["virtual-files"].is_object());
    check("config.schema.json", &output::pretty(&schema));
}

/// The package of this crate includes no file from outside its folder, so it has a copy.
#[test]
fn the_template_of_new_engines_is_the_example_engine() {
    let source = docs().join("../plugins/context_engine/keep-tail/src/lib.rs");
    let source = std::fs::read_to_string(source).unwrap();
    check("../cli/src/plugins/template/keep_tail.rs", &source);
}

//! Which engine runs, and what is said of it: of a new session, of a known one, of one that is handed over.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use cli_support::{Home, Ran, chat, json};

const COMPRESS: [&str; 6] = [
    "compress", "chat.json", "--session", "s", "--context-length", "2000",
];
const IMPORT: [&str; 4] = ["import", "chat.json", "--session", "s"];
const STATUS: [&str; 4] = ["tool", "lcm_status", "--session", "s"];

fn home(config: &str) -> Home {
    let home = Home::new();
    home.put("chat.json", &chat(40));
    home.put("home/config.yaml", config);
    home
}

fn with(args: &[&'static str], more: &[&'static str]) -> Vec<&'static str> {
    [args, more].concat()
}

/// It ends well, and says each of these.
fn says(ran: &Ran, parts: &[&str]) {
    ran.exits(0);
    for part in parts {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
}

fn runs(home: &Home, args: &[&str], engine: &str) -> Ran {
    let ran = home.run(args.iter().copied());
    ran.exits(0);
    let took = format!("engine    {engine} (");
    assert!(ran.stderr.contains(&took), "no {took} in {}", ran.stderr);
    ran
}

const LCM: &str = "context: {engine: lcm}\n";
const COMPRESSOR: &str = "context: {engine: compressor}\n";

#[test]
fn a_new_session_takes_the_named_engine_or_the_configured_one() {
    let plain = home("");
    assert!(
        !runs(&plain, &COMPRESS, "compressor")
            .stderr
            .contains("note: the engine")
    );
    runs(&home(LCM), &COMPRESS, "lcm");
    let named = with(&COMPRESS, &["--engine", "lcm"]);
    runs(&home(COMPRESSOR), &named, "lcm");
}

#[test]
fn an_import_takes_the_configured_engine_where_one_is_written() {
    let plain = home("").run(IMPORT);
    assert_eq!(json(&plain.stdout)["engine"], "lcm");
    let written = home(COMPRESSOR);
    let ran = written.run(IMPORT);
    ran.exits(2);
    ran.stderr_has("`compressor` keeps no sessions");
    let ran = written.run(with(&IMPORT, &["--engine", "lcm"]));
    assert_eq!(json(&ran.stdout)["engine"], "lcm");
}

#[test]
fn a_known_session_goes_on_with_its_own_engine() {
    let home = home("");
    home.run(IMPORT);
    let went_on = runs(&home, &COMPRESS, "lcm");
    says(
        &went_on,
        &["instead of the configured `compressor`: the session `s` belongs to it"],
    );
    let asked = home.run(STATUS);
    says(&asked, &["using the engine `lcm`"]);
    home.done("sessions show s")
        .stdout_has("\"engine\": \"lcm\"");

    for command in [&COMPRESS[..], &with(&COMPRESS, &["--dry-run"]), &IMPORT] {
        let ran = home.run(with(command, &["--engine", "compressor"]));
        assert_eq!(ran.code, 2, "{command:?}: {}", ran.stderr);
        for part in ["the session `s` belongs to the engine `lcm`", "--rebind"] {
            assert!(ran.stderr.contains(part), "{command:?}: {}", ran.stderr);
        }
    }
    assert_eq!(home.run(STATUS).code, 0, "it has the session still");
}

#[test]
fn a_session_is_handed_over_where_that_is_asked_for_and_says_so() {
    let home = home("");
    home.run(IMPORT);
    let rebound = with(&COMPRESS, &["--engine", "compressor", "--rebind"]);
    let dry = runs(&home, &with(&rebound, &["--dry-run"]), "compressor");
    says(&dry, &["takes over the session `s` from `lcm`"]);
    assert_eq!(home.run(STATUS).code, 0, "a dry run changes nothing");
    let ran = runs(&home, &rebound, "compressor");
    says(
        &ran,
        &["`compressor` takes over the session `s` from `lcm`: --rebind"],
    );

    // Its tools went with the engine, and the way to them is said.
    let ran = home.run(STATUS);
    ran.exits(2);
    ran.stderr_has("add --engine lcm");
    assert_eq!(home.run(with(&STATUS, &["--engine", "lcm"])).code, 0);
    for command in ["show s", "show s --engine lcm", "export s"] {
        home.done(format!("sessions {command}"));
    }
    let ran = home.run(IMPORT);
    ran.exits(2);
    ran.stderr_has("--engine lcm --rebind");
    let back = home.run(with(&IMPORT, &["--engine", "lcm", "--rebind"]));
    says(
        &back,
        &["`lcm` takes over the session `s` from `compressor`"],
    );

    // What is written in the configuration counts for known sessions too.
    home.put("home/config.yaml", COMPRESSOR);
    let ran = runs(&home, &COMPRESS, "compressor");
    says(
        &ran,
        &["`compressor` takes over the session `s` from `lcm`: `context.engine`"],
    );
    home.put("home/config.yaml", LCM);
    let ran = home.run(IMPORT);
    says(
        &ran,
        &["`lcm` takes over the session `s` from `compressor`: `context.engine`"],
    );
    let ran = home.run(STATUS);
    says(&ran, &[]);
    ran.stderr_lacks("note:");
}

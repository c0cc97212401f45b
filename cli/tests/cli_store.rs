//! Sessions in a database: prepared, filled from a file, used, and copied back. Skipped, and that is said, if there is no
//! PostgreSQL.
#![cfg(all(feature = "postgres", unix))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;
#[path = "../../host/transcript/tests/support/server.rs"]
mod server;

use cli_support::{Home, Ran, chat, json, ran};
use server::Server;

/// Runs `contexture` with the URL of the server.
fn with(server: &Server, home: &Home, line: &str) -> Ran {
    let mut command = home.command(line.split_whitespace());
    command.env("CONTEXTURE_DATABASE_URL", server.url());
    let output = command.stdin(std::process::Stdio::null()).output();
    Ran {
        command: line.to_owned(),
        ..ran(output.unwrap())
    }
}

#[test]
fn sessions_move_into_a_database_and_back() {
    let Some(server) = Server::start() else {
        return;
    };
    let (home, other) = (Home::new(), Home::new());
    let contexture = |line: &str| with(&server, &home, line);
    let body = home.put("body.json", &chat(6));
    contexture(&format!("compress {body} --session work")).exits(0);
    contexture(&format!("compress {body} --session play")).exits(0);

    // Nothing is stored in the database until it has tables.
    let config = "transcript: {store: postgres, mode: full}\n";
    other.put("home/config.yaml", config);
    let elsewhere = |line: &str| with(&server, &other, line);
    elsewhere("store status")
        .exits(1)
        .stdout_has("\"ready\": false");
    elsewhere("sessions list")
        .exits(3)
        .stderr_has("contexture store migrate");
    contexture("store copy --from sqlite --to postgres").exits(3);
    elsewhere("store migrate").exits(0);
    elsewhere("store migrate").exits(0);
    elsewhere("store status")
        .exits(0)
        .stdout_has("\"ready\": true");

    let copied = contexture("store copy --from sqlite --to postgres");
    let copied = json(&copied.exits(0).stdout);
    assert_eq!(
        (&copied["copied"], &copied["unchanged"]),
        (&2.into(), &0.into()),
        "{copied}"
    );
    let again = contexture("store copy --from sqlite --to postgres");
    let again = json(&again.exits(0).stdout);
    assert_eq!(
        (&again["copied"], &again["unchanged"]),
        (&0.into(), &2.into()),
        "{again}"
    );

    // Another machine goes on with them.
    elsewhere("sessions list").exits(0).stdout_has("work");
    let longer = other.put("body.json", &chat(8));
    elsewhere(&format!("compress {longer} --session work")).exits(0);
    elsewhere("sessions verify").exits(0);
    elsewhere("sessions backup copy")
        .exits(2)
        .stderr_has("pg_dump");
    elsewhere("sessions delete play --yes").exits(0);

    // What was changed there is not overwritten unless that is asked for.
    let differs = contexture("store copy --from postgres --to sqlite work");
    let differs = json(&differs.exits(1).stdout);
    assert_eq!(
        differs["differing"],
        serde_json::json!(["work"]),
        "{differs}"
    );
    contexture("store copy --from postgres --to sqlite work --replace").exits(0);
    let shown = json(&contexture("sessions show work").exits(0).stdout);
    let there = json(&elsewhere("sessions show work").exits(0).stdout);
    assert_eq!(shown["messages"], there["messages"]);
    contexture("sessions verify").exits(0);
}

#[test]
fn tables_of_a_newer_program_are_not_to_be_migrated() {
    let Some(server) = Server::start() else {
        return;
    };
    let home = Home::new();
    let config = "transcript: {store: postgres, mode: full}\n";
    home.put("home/config.yaml", config);
    let contexture = |line: &str| with(&server, &home, line);
    contexture("store status")
        .exits(1)
        .stderr_has("run `contexture store migrate`");
    contexture("store migrate").exits(0);
    let newer = "INSERT INTO contexture.migrations (version) VALUES (99)";
    let psql = std::process::Command::new("psql")
        .args([&*server.url(), "-c", newer])
        .status();
    assert!(psql.unwrap().success());
    for (line, code) in [
        ("store status", 1),
        ("store migrate", 3),
        ("sessions list", 3),
    ] {
        contexture(line)
            .exits(code)
            .stderr_has("update this program")
            .stderr_lacks("run `contexture store migrate`");
    }
}

#[test]
fn an_import_goes_into_the_database() {
    let Some(server) = Server::start() else {
        return;
    };
    let home = Home::new();
    home.put(
        "home/config.yaml",
        "transcript: {store: postgres, mode: full}\n",
    );
    let contexture = |line: &str| with(&server, &home, line);
    contexture("store migrate").exits(0);
    let file = home.put("conversation.json", &chat(6));
    let import = format!("import {file} --session work");
    for new in [6, 0] {
        let imported = contexture(&import);
        let imported = json(&imported.exits(0).stdout);
        assert_eq!(imported["new"], new, "{imported}");
    }

    let exported = contexture("sessions export work");
    assert_eq!(exported.exits(0).stdout.lines().count(), 6);
    for line in [
        "sessions show work",
        "sessions index work",
        "sessions verify",
        "sessions archive work",
        "sessions gc --yes",
        "tool lcm_grep {\"pattern\":\"1\"} --session work",
        "compress conversation.json --session work --dry-run",
    ] {
        contexture(line).exits(0);
    }
    // No command takes the name of the database for a folder.
    assert!(!std::path::Path::new(&home.path("postgres:")).exists());
}

#[test]
fn without_the_url_the_error_names_the_variable() {
    let home = Home::new();
    home.put(
        "home/config.yaml",
        "transcript: {store: postgres, url_env: MY_DATABASE}\n",
    );
    let mut command = home.command(["sessions", "list"]);
    let output = command.env_remove("MY_DATABASE").output().unwrap();
    ran(output).exits(3).stderr_has("MY_DATABASE");
}

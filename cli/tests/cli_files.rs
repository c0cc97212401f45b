//! Whose the files are that the command makes, and what it says of a home that is gone, full or read-only.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cli_support::{Home, Ran, chat, ran};

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Every file and folder under this one.
fn all_under(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(all_under(&path));
        }
        all.push(path);
    }
    all
}

/// Runs it under this umask, in a home that it has to make.
fn run_under(home: &Home, umask: &str, args: &[&str]) -> Ran {
    let plain = home.command(args.iter().copied());
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(plain.get_current_dir().unwrap());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let new_home = home.path("new/home");
    ran(command.env("CONTEXTURE_HOME", new_home).output().unwrap())
}

fn done(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn what_is_made_is_its_owners_alone_whatever_the_umask() {
    for umask in ["000", "022"] {
        let home = Home::new();
        home.put("chat.json", &chat(60));
        home.put("there.json", "{}");
        set_mode(home.path("there.json"), 0o644);
        for args in [
            ["import", "chat.json", "--session", "s"].as_slice(),
            &[
                "compress",
                "chat.json",
                "--session",
                "c",
                "--engine",
                "lcm",
                "--force",
                "--context-length",
                "2000",
                "-o",
                "made.json",
                "--report",
                "report.json",
            ],
            &["compress", "chat.json", "-o", "there.json"],
            &[
                "tool",
                "lcm_grep",
                r#"{"pattern": "number_3"}"#,
                "--session",
                "s",
            ],
            &["sessions", "backup", "backup.sqlite3"],
            &["sessions", "repair", "--yes"],
            &["sessions", "verify"],
        ] {
            done(&run_under(&home, umask, args));
        }
        let made = all_under(Path::new(&home.path("new")));
        assert!(
            made.iter().any(|path| path.ends_with("sessions.sqlite3")),
            "{made:?}"
        );
        assert!(
            made.iter().any(|path| path.ends_with("lcm.sqlite3")),
            "{made:?}"
        );
        for path in made {
            let only = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), only, "{} under {umask}", path.display());
        }
        for file in ["made.json", "report.json", "backup.sqlite3"] {
            assert_eq!(mode(home.path(file)), 0o600, "{file} under {umask}");
        }
        assert_eq!(mode(home.path("there.json")), 0o644);
    }
}

#[test]
fn what_others_could_read_is_narrowed_once_and_said() {
    let home = Home::new();
    home.put("chat.json", &chat(6));
    done(&home.run(["import", "chat.json", "--session", "s"]));
    set_mode(home.path("home"), 0o755);
    for path in all_under(Path::new(&home.path("home"))) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let ran = home.run(["import", "chat.json", "--session", "s"]);
    done(&ran);
    let said = ran.stderr.matches("was open to other users").count();
    let made = all_under(Path::new(&home.path("home")));
    assert_eq!(said, made.len(), "{}", ran.stderr);
    for path in made {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    // It may be a folder that the user made.
    assert_eq!(mode(home.path("home")), 0o755);
    let again = home.run(["import", "chat.json", "--session", "s"]);
    done(&again);
    assert!(!again.stderr.contains("other users"), "{}", again.stderr);
}

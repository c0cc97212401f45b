//! Plugins with faults under the `contexture` command: none of them takes the result away, or passes for one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use contexture_tests::{Home, built_plugins, chat, library_name};
use serde_json::Value;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

const SHORT: &str = "  supervision: {call_deadline_ms: 2000, grace_ms: 100}\n";

const COMPRESS: [&str; 4] = ["compress", "chat.json", "--context-length", "20000"];

/// A home in which `misbehaving` has this fault, with a conversation that is due.
fn misbehaving(fault: &str, more: &str) -> Home {
    let home = Home::new();
    home.misbehave(fault, more);
    put_chat(&home);
    home
}

fn put_chat(home: &Home) {
    std::fs::write(home.path().join("chat.json"), chat(30, 2_000).to_string()).unwrap();
}

fn messages(document: &str) -> usize {
    let document: Value =
        serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document:.300}"));
    document["messages"].as_array().unwrap().len()
}

#[test]
fn a_hang_in_a_destructor_costs_neither_the_result_nor_the_end() {
    let home = misbehaving("hang:drop", SHORT);
    let Ran {
        code,
        stdout,
        stderr,
    } = ran(&mut home.contexture(&COMPRESS));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(messages(&stdout) < 121);
    assert!(stderr.contains("did not return from drop"), "{stderr}");
    assert!(!stderr.contains("somebody waited"), "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_that_hangs_while_it_is_loaded_is_a_clear_error() {
    let home = misbehaving("", SHORT);
    let mut command = home.contexture(&COMPRESS);
    let Ran {
        code,
        stdout,
        stderr,
    } = ran(command.env("MISBEHAVING_CONSTRUCTOR", "hang"));
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    let said = stderr.contains("misbehaving.so did not return from being loaded");
    assert!(said && !stderr.contains("somebody waited"), "{stderr}");
}

#[test]
fn what_a_plugin_prints_is_not_among_the_result() {
    let home = misbehaving("print:compress", "");
    let Ran {
        code,
        stdout,
        stderr,
    } = ran(&mut home.contexture(&COMPRESS));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(messages(&stdout) < 121);
    assert!(
        stderr.contains("printed on purpose in compress"),
        "{stderr}"
    );
}

#[test]
fn a_plugin_that_changes_the_directory_moves_no_file() {
    let home = misbehaving("chdir:compress", "");
    let files = ["-o", "small.json", "--report", "report.json"];
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&[&COMPRESS[..], &files].concat()));
    assert_eq!(code, Some(0), "{stderr}");
    for file in ["small.json", "report.json"] {
        assert!(home.path().join(file).exists(), "{file}");
    }
}

#[test]
fn a_plugin_that_ends_the_process_is_named() {
    for method in ["open", "compress", "end"] {
        let home = misbehaving(&format!("exit:{method}"), "");
        let Ran {
            code,
            stdout,
            stderr,
        } = ran(&mut home.contexture(&COMPRESS));
        assert_eq!(code, Some(3), "{method}: {stderr}");
        assert!(
            stderr.contains("a plugin ended the process") && stderr.contains("misbehaving"),
            "{method}: {stderr}"
        );
        // At the end the result is written already.
        assert_eq!(stdout.is_empty(), method != "end", "{method}");
    }
}

#[test]
fn a_panic_whose_payload_panics_in_its_own_drop_is_a_panic_like_others() {
    for method in ["open", "compress", "drop"] {
        let home = misbehaving(&format!("bomb:{method}"), "");
        let Ran {
            code,
            stdout,
            stderr,
        } = ran(&mut home.contexture(&COMPRESS));
        assert_eq!(code, Some(0), "{method}: {stderr}");
        assert!(messages(&stdout) < 121, "{method}");
    }
}

/// The library is replaced again and again while its digest is checked and it is loaded.
#[cfg(target_os = "linux")]
#[test]
fn code_that_is_not_the_pinned_one_never_runs() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    put_chat(&home);
    let folder = home.plugin_dir("keep-tail");
    let (library, spare) = (folder.join(library_name("keep-tail")), folder.join("spare"));
    let [good, other] =
        ["keep-tail", "misbehaving"].map(|name| built_plugins().join(library_name(name)));
    let pin = contexture_tests::sha256(&good);
    let manifest = folder.join("plugin.yaml");
    let mut text = std::fs::read_to_string(&manifest).unwrap();
    text.push_str(&format!("sha256: {pin}\n"));
    std::fs::write(&manifest, text).unwrap();

    let done = AtomicBool::new(false);
    let runs: Vec<Ran> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for source in [&other, &good] {
                    std::fs::copy(source, &spare).unwrap();
                    std::fs::rename(&spare, &library).unwrap();
                }
            }
        });
        let arguments = [&COMPRESS[..], &["--engine", "keep-tail"]].concat();
        let runs = (0..30).map(|_| {
            ran(home
                .contexture(&arguments)
                .env("MISBEHAVING_CONSTRUCTOR", "say so"))
        });
        let runs = runs.collect();
        done.store(true, Ordering::Relaxed);
        runs
    });
    for Ran { code, stderr, .. } in &runs {
        assert!(!stderr.contains("the constructor ran"), "{stderr}");
        let refused = *code == Some(2) && stderr.contains("but the manifest pins");
        assert!(*code == Some(0) || refused, "{stderr}");
    }
}

#[cfg(unix)]
#[test]
fn a_library_that_everybody_may_write_is_not_loaded() {
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    put_chat(&home);
    let library = home.plugin_dir("keep-tail").join(library_name("keep-tail"));
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o757)).unwrap();
    let arguments = [&COMPRESS[..], &["--engine", "keep-tail"]].concat();
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&arguments));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains(&format!("`chmod o-w '{}'`", library.display())),
        "{stderr}"
    );
}

#[test]
fn a_failed_engine_stops_the_command_or_leaves_the_conversation_as_it_was() {
    for (policy, says) in [
        ("fail", "`context.on_failure` is `fail`"),
        ("passthrough", "failed, unchanged"),
    ] {
        let home = misbehaving("error:compress", &format!("  on_failure: {policy}\n"));
        let report = ["--report", "report.json"];
        let Ran {
            code,
            stdout,
            stderr,
        } = ran(&mut home.contexture(&[&COMPRESS[..], &report].concat()));
        assert_eq!(code, Some(3), "{policy}: {stderr}");
        assert!(
            stderr.contains(says) && stderr.contains("the disk is full"),
            "{stderr}"
        );
        let before = std::fs::read_to_string(home.path().join("chat.json")).unwrap();
        let expected = match policy {
            "fail" => String::new(),
            _ => before,
        };
        assert!(stdout == expected, "{policy}: {stdout:.300}");
        let report = std::fs::read_to_string(home.path().join("report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["outcome"], "failed", "{policy}");
    }
}

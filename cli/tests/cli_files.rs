//! Whose the files are that the command makes, and what it says of a home that is gone, full or read-only.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cli_support::{Home, Ran, chat, json, ran};
use contexture_lcm::store::FILE_NAME;

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
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]);
    let mut command = through(command, &home.command(args.iter().copied()));
    let new_home = home.path("new/home");
    ran(command.env("CONTEXTURE_HOME", new_home).output().unwrap())
}

/// The program with its arguments and environment, run by another one that takes them as its last arguments.
fn through(mut runs: Command, plain: &Command) -> Command {
    runs.arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(plain.get_current_dir().unwrap());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => runs.env(name, value),
            None => runs.env_remove(name),
        };
    }
    runs
}

fn done(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

/// `config.yaml` decides which plugin runs and where requests go, so the rule for plugins applies to it.
#[test]
fn a_configuration_that_others_may_write_is_refused() {
    let home = Home::new();
    home.put("home/config.yaml", "context: {engine: compressor}\n");
    let config = home.path("home/config.yaml");
    for (mode, refused) in [(0o600, false), (0o644, false), (0o646, true), (0o666, true)] {
        set_mode(&config, mode);
        let ran = home.run(["config", "show"]);
        assert_eq!(
            ran.code,
            if refused { 2 } else { 0 },
            "{mode:o}: {}",
            ran.stderr
        );
        let way_out = format!("`chmod o-w '{}'`", config);
        assert_eq!(
            ran.stderr.contains(&way_out),
            refused,
            "{mode:o}: {}",
            ran.stderr
        );
    }
    set_mode(&config, 0o600);
    const ANOTHER: u32 = 12_345;
    if std::os::unix::fs::chown(&config, Some(ANOTHER), None).is_ok() {
        let ran = home.run(["config", "show"]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains("`sudo chown -R "), "{}", ran.stderr);
    }

    // A file that is not regular never blocks the command.
    let fifo = home.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    for (file, kind) in [
        (fifo.as_str(), "a FIFO"),
        ("/dev/zero", "a device"),
        ("/dev/null", "a device"),
        ("/", "a folder"),
    ] {
        let ran = home.run(["--config", file, "config", "show"]);
        assert_eq!(ran.code, 2, "{file}: {}", ran.stderr);
        assert!(
            ran.stderr
                .contains(&format!("is {kind}, not a regular file")),
            "{}",
            ran.stderr
        );
    }
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
                "compress", "chat.json", "--session", "c", "--engine", "lcm", "--force",
                "--context-length", "2000", "-o", "made.json", "--report", "report.json",
            ],
            &["compress", "chat.json", "-o", "there.json"],
            &[
                "tool",
                "lcm_grep",
                r#"{"pattern": "number_3"}"#,
                "--session",
                "s",
            ],
            &["sessions", "backup", "backup"],
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
            made.iter().any(|path| path.ends_with(FILE_NAME)),
            "{made:?}"
        );
        for path in made {
            let only = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), only, "{} under {umask}", path.display());
        }
        for file in ["made.json", "report.json", "backup/sessions.sqlite3"] {
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
    let said = ran.stderr.matches("was accessible to other users").count();
    let made = all_under(Path::new(&home.path("home")));
    assert_eq!(said, made.len(), "{}", ran.stderr);
    for path in made {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    // It may be a folder that the user made.
    assert_eq!(mode(home.path("home")), 0o755);
    for path in [
        home.path("home/engines"),
        home.path("home/engines/lcm"),
        home.lcm_index(),
    ] {
        set_mode(&path, 0o777);
        done(&home.run(["tool", "lcm_recent", "--session", "s"]));
        assert_eq!(mode(&path) & 0o077, 0, "{path}, by a question");
    }
    let again = home.run(["import", "chat.json", "--session", "s"]);
    done(&again);
    assert!(!again.stderr.contains("other users"), "{}", again.stderr);
}

#[test]
fn an_index_that_is_gone_is_made_for_the_next_session_alone() {
    let home = Home::new();
    home.put("chat.json", &chat(6));
    let empty = home.run(["sessions", "verify"]);
    done(&empty);
    assert!(
        empty.stderr.contains("nothing to check"),
        "{}",
        empty.stderr
    );
    done(&home.run(["import", "chat.json", "--session", "s"]));
    done(&home.run(["sessions", "verify"]));
    std::fs::remove_dir_all(home.path("home/engines")).unwrap();
    for command in ["list", "verify", "repair", "gc"] {
        home.run(["sessions", command]);
    }
    home.run(["tool", "lcm_recent", "--session", "s"]);
    let store = home.lcm_index();
    assert!(!Path::new(&store).exists(), "a question makes no store");
    for command in [
        ["sessions", "verify"].as_slice(),
        &["sessions", "repair", "--yes"],
    ] {
        done(&home.run(command.iter().copied()));
    }
    done(&home.run(["import", "chat.json", "--session", "s"]));
    done(&home.run(["sessions", "verify"]));
    // Or it is given up.
    std::fs::remove_dir_all(home.path("home/engines")).unwrap();
    assert_eq!(home.run(["sessions", "delete", "other", "--yes"]).code, 2);
    done(&home.run(["sessions", "delete", "s"]));
    done(&home.run(["sessions", "delete", "s", "--yes"]));
    done(&home.run(["sessions", "verify"]));
}

#[test]
fn a_home_that_is_removed_during_an_import_has_nothing_imported() {
    let home = Home::new();
    let mut command = home.command(["import", "-", "--session", "s"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It opens the record, then waits for its input.
    while !Path::new(&home.path("home/sessions.sqlite3")).exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    while let Err(error) = std::fs::remove_dir_all(home.path("home")) {
        // A file may have been made meanwhile.
        if error.kind() == ErrorKind::NotFound {
            break;
        }
    }
    // It may have ended without reading.
    let _ = child.stdin.take().unwrap().write_all(chat(60).as_bytes());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("\"new\""), "{}", ran.stdout);
    assert!(ran.stderr.contains("sessions.sqlite3"), "{}", ran.stderr);
}

/// A file system of its own in place of the home, where this process may mount one.
struct Disk(String);

impl Disk {
    fn mount(home: &Home, size: &str) -> Option<Self> {
        let place = home.path("home");
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size}"),
                "tmpfs",
                &place,
            ])
            .stderr(Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(place))
    }

    fn remount(&self, how: &str) {
        let mut mount = Command::new("mount");
        let mount = mount.args(["-o", &format!("remount,{how}"), &self.0]);
        assert!(mount.status().unwrap().success());
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut filler = std::fs::File::create(format!("{}/filler", self.0)).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
        while filler.write_all(&[0]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

/// What a home with the session `s` is read with: arguments, and what the answer says.
const READS: [(&[&str], &str); 6] = [
    (&["sessions", "list"], "60  lcm"),
    (&["sessions", "show", "s"], "\"in_conversation\": 60"),
    (&["sessions", "export", "s"], "number_58"),
    (&["sessions", "verify"], "\"ok\": true"),
    (
        &[
            "tool",
            "lcm_grep",
            r#"{"pattern": "number_58"}"#,
            "--session",
            "s",
        ],
        "number_58",
    ),
    (&["compress", "chat.json"], "number_58"),
];

fn check_reads(home: &Home) {
    for (args, says) in READS {
        let ran = home.run(args.iter().copied());
        assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(says), "{args:?}: {}", ran.stdout);
        assert!(
            !ran.stderr.contains("other users"),
            "{args:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_home_that_may_not_be_written_is_read() {
    let home = Home::new();
    home.put("chat.json", &chat(60));
    // Permissions do not bind root, who may mount; whoever may not is bound by them.
    let disk = Disk::mount(&home, "8m");
    done(&home.run(["import", "chat.json", "--session", "s"]));
    let folders = ["home/engines/lcm", "home/engines", "home"];
    match &disk {
        Some(disk) => disk.remount("ro"),
        None => folders
            .iter()
            .for_each(|folder| set_mode(home.path(folder), 0o500)),
    }
    let binds = std::fs::write(home.path("home/try"), "").is_err();
    if binds {
        check_reads(&home);
        done(&home.run(["compress", "chat.json", "--session", "s", "--dry-run"]));
        done(&home.run(["sessions", "backup", "copy"]));
        let copied = put_back(&home.path("copy"));
        copied.put("chat.json", &chat(60));
        check_reads(&copied);
        let ran = home.run(["import", "chat.json", "--session", "another"]);
        assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
        if disk.is_some() {
            assert!(
                ran.stderr.contains("Read-only file system")
                    && ran.stderr.contains("set CONTEXTURE_HOME")
                    && !ran.stderr.contains("permissions"),
                "{}",
                ran.stderr
            );
        }
    } else {
        println!("skipped: this process can neither mount nor be kept from writing");
    }
    if disk.is_none() {
        folders
            .iter()
            .for_each(|folder| set_mode(home.path(folder), 0o700));
    }
}

#[test]
fn too_few_open_files_are_no_matter_of_permissions() {
    let home = Home::new();
    home.put("chat.json", &chat(6));
    done(&home.run(["import", "chat.json", "--session", "s"]));
    let mut told = 0;
    for most in 4..24 {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]);
        let plain = home.command(["import", "chat.json", "--session", &format!("s{most}")]);
        let ran = ran(through(limited, &plain).output().unwrap());
        let of_record = ["sessions.sqlite3", "sessions.locks"];
        if ran.code != 0 && of_record.iter().any(|name| ran.stderr.contains(name)) {
            told += 1;
            assert!(ran.stderr.contains("ulimit -n"), "{most}: {}", ran.stderr);
            assert!(
                !ran.stderr.contains("permissions"),
                "{most}: {}",
                ran.stderr
            );
        }
    }
    assert!(told > 0);
}

#[test]
fn a_full_disk_is_read_and_whoever_would_write_is_told() {
    let home = Home::new();
    home.put("chat.json", &chat(60));
    home.put("longer.json", &chat(600));
    let Some(disk) = Disk::mount(&home, "2m") else {
        println!("skipped: this process may not mount a small file system");
        return;
    };
    done(&home.run(["import", "chat.json", "--session", "s"]));
    home.put("results.json", &with_results(24));
    for engine in ["tiered", "virtual-files"] {
        done(&compacted_by(&home, engine));
    }
    home.put("tidy/plugin.yaml", "name: tidy\nversion: 0.1.0\n");
    let library = format!(
        "{}tidy{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    home.put(&format!("tidy/{library}"), &"no code ".repeat(9_000));
    disk.fill();
    check_reads(&home);
    let before = all_under(Path::new(&home.path("home")));
    // What writes: the arguments, and the file that the error names.
    for (args, file) in [
        (
            ["import", "longer.json", "--session", "s"].as_slice(),
            ".sqlite3",
        ),
        (&["sessions", "delete", "s", "--yes"], ".sqlite3"),
        (&["sessions", "gc", "--yes"], ".sqlite3"),
        (&["sessions", "archive", "s"], ".sqlite3"),
        (&["sessions", "restore", "tiered"], "sessions.sqlite3"),
        (&["plugins", "install", "tidy", "--yes"], "/home/plugins"),
        (
            &["compress", "longer.json", "-o", "home/out.json"],
            "home/out.json",
        ),
        (
            &["compress", "chat.json", "--report", "home/report.json"],
            "home/report.json",
        ),
    ] {
        let ran = home.run(args.iter().copied());
        assert_eq!(ran.code, 3, "{args:?}: {}{}", ran.stdout, ran.stderr);
        let way_out = ["free some space", "free some disk space"];
        let says_it = way_out.iter().any(|says| ran.stderr.contains(says));
        assert!(
            says_it && ran.stderr.contains(file),
            "{args:?}: {}",
            ran.stderr
        );
        // Nothing of it is there, whole or in part.
        let mut made = all_under(Path::new(&home.path("home")));
        made.retain(|path| !before.contains(path));
        made.retain(|path| !path.is_dir() && !path.to_string_lossy().contains("sqlite3-"));
        assert!(made.is_empty(), "{args:?}: {made:?}");
    }
    let mut new = home.command(["plugins", "new", "fresh"]);
    let new = ran(new.current_dir(home.path("home")).output().unwrap());
    assert_eq!(new.code, 3, "{}{}", new.stdout, new.stderr);
    assert!(new.stderr.contains("fresh"), "{}", new.stderr);
    assert!(!Path::new(&home.path("home/fresh")).exists());
    // The result goes to a file that a shell opened there.
    let out = std::fs::File::create(home.path("home/export.jsonl")).unwrap();
    let mut export = home.command(["sessions", "export", "s"]);
    let ran = ran(export.stdout(out).output().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    for says in ["stdout", "No space left", "incomplete"] {
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
    done(&home.run(["tool", "file_list", "--session", "virtual-files"]));
    // A copy is whole or not there.
    let copy = home.path("home/copy");
    {
        let ran = home.run(["sessions", "backup", &copy]);
        assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
        assert!(!Path::new(&copy).exists(), "{}", ran.stderr);
        let left = std::fs::read_dir(home.path("home")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().starts_with(".contexture-")),
            "{left:?}"
        );
    }
    // A turn is answered, and says that it is not kept.
    let ran = home.run([
        "compress", "longer.json", "--session", "s", "--engine", "lcm",
    ]);
    let is_told = ran.stderr.contains("disk is full") || ran.stderr.contains("No space left");
    assert!(is_told, "{}: {}", ran.code, ran.stderr);
    // A repair that has no room leaves the damaged file as it is.
    let record = home.path("home/sessions.sqlite3");
    let mut damaged = std::fs::read(&record).unwrap();
    damaged[..16].fill(0);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(&record)
        .unwrap();
    file.write_all(&damaged[..16]).unwrap();
    drop(file);
    let ran = home.run(["sessions", "repair", "--yes"]);
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(std::fs::read(&record).unwrap() == damaged, "{}", ran.stderr);
    std::fs::remove_file(home.path("home/filler")).unwrap();
    done(&home.run(["sessions", "repair", "--yes"]));
    disk.fill();
    std::fs::remove_file(home.path("home/filler")).unwrap();
    done(&home.run(["import", "longer.json", "--session", "s"]));
    done(&home.run(["sessions", "verify"]));
}

#[test]
#[cfg(target_os = "linux")]
fn a_result_that_cannot_be_written_for_want_of_room_is_no_wrong_usage() {
    let home = Home::new();
    home.put("chat.json", &chat(60));
    let compress = ["compress", "chat.json"];
    for option in ["-o", "--report"] {
        let ran = home.run([&compress[..], &[option, "/dev/full"]].concat());
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        for says in ["/dev/full", "No space left", "free some disk space"] {
            assert!(ran.stderr.contains(says), "{}", ran.stderr);
        }
    }
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = home.command(compress);
    let ran = ran(command.stdout(full).output().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("stdout"), "{}", ran.stderr);
    // A place that is wrong is a wrong argument.
    let ran = home.run(["compress", "chat.json", "-o", "nowhere/out.json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

/// A library that lets no byte of a file be read from one place on, as a failing disk does.
const FAILING_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int fails(int fd, long end) {
    char link[64], path[4096];
    const char *file = getenv("FAILS"), *from = getenv("FAILS_FROM");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (!file || len < (ssize_t)strlen(file) || end <= atol(from)) return 0;
    path[len] = 0;
    if (strcmp(path + len - strlen(file), file)) return 0;
    errno = EIO;
    return 1;
}
ssize_t pread64(int fd, void *to, size_t n, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    return fails(fd, at + n) ? -1 : real(fd, to, n, at);
}
ssize_t read(int fd, void *to, size_t n) {
    ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    return fails(fd, lseek(fd, 0, SEEK_CUR) + n) ? -1 : real(fd, to, n);
}
"#;

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_fails_in_the_middle_of_a_file_is_no_damage_of_the_file() {
    let home = Home::new();
    home.put("chat.json", &chat(600));
    home.put("disk.c", FAILING_DISK);
    let library = home.path("disk.so");
    let built = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-o",
            &library,
            &home.path("disk.c"),
            "-ldl",
        ])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        println!("skipped: there is no `cc` to build a failing disk with");
        return;
    }
    done(&home.run(["import", "chat.json", "--session", "s"]));
    let store = home.lcm_index();
    let size = std::fs::metadata(&store).unwrap().len();
    for from in [4_096, size / 2, size - 4_096] {
        for args in [
            ["sessions", "list"].as_slice(),
            &["sessions", "verify"],
            &["sessions", "export", "s"],
            &["sessions", "repair"],
            &["sessions", "repair", "--yes"],
            &["import", "chat.json", "--session", "s"],
        ] {
            let mut command = home.command(args.iter().copied());
            command
                .env("LD_PRELOAD", &library)
                .env("FAILS", FILE_NAME)
                .env("FAILS_FROM", from.to_string());
            let ran = ran(command.stdin(Stdio::null()).output().unwrap());
            // It may need nothing of what cannot be read.
            let told = ran.stderr.contains("the disk failed") || ran.code == 0;
            assert!(told, "{args:?} from {from}: {}{}", ran.stdout, ran.stderr);
            assert!(
                !ran.stderr.contains("damaged"),
                "{args:?} from {from}: {}",
                ran.stderr
            );
            assert!(
                !ran.stdout.contains("damaged-"),
                "{args:?} from {from}: {}",
                ran.stdout
            );
        }
    }
    done(&home.run(["sessions", "verify"]));
    let export = home.run(["sessions", "export", "s"]);
    assert_eq!(export.stdout.lines().count(), 600);
}

#[test]
fn a_backup_into_a_folder_that_is_not_there_names_it_and_the_way_out() {
    let home = Home::new();
    home.put("chat.json", &chat(6));
    done(&home.run(["import", "chat.json", "--session", "s"]));
    let ran = home.run(["sessions", "backup", "nowhere/deep/copy"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let folder = home.path("nowhere/deep");
    assert!(
        ran.stderr.contains(&format!("no folder {folder}")),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("mkdir -p"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("engine failed"), "{}", ran.stderr);
    // Nor is one in which nothing can be made the engine's fault.
    if !cfg!(target_os = "linux") {
        return;
    }
    let ran = home.run(["sessions", "backup", "/proc/copy"]);
    assert!(
        ran.stderr.contains("cannot write /proc/copy"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("engine failed"), "{}", ran.stderr);
}

/// The size of a page of the record.
const PAGE: usize = 2_048;

/// Ways to damage the record of sessions: what is damaged, and the bytes of the file after it.
fn damages(whole: &[u8]) -> Vec<(String, Vec<u8>)> {
    let with = |at: usize, new: &[u8]| {
        let mut bytes = whole.to_vec();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let mut all = vec![
        ("its header".to_owned(), with(0, &[0; 16])),
        ("its first page".to_owned(), with(0, &[7; PAGE])),
        ("all of it".to_owned(), b"not a database ".repeat(900)),
        ("its end".to_owned(), whole[..whole.len() / 2].to_vec()),
    ];
    // Every page takes minutes: `.ci/long` asks for that.
    let step = match std::env::var_os("CONTEXTURE_EVERY_PAGE") {
        Some(_) => 1,
        None => 10,
    };
    for page in (1..whole.len() / PAGE).step_by(step) {
        all.push((format!("page {page}"), with(page * PAGE, &[0xa5; 600])));
        all.push((
            format!("the end of page {page}"),
            with(page * PAGE + 1_400, &[0xa5; 600]),
        ));
    }
    all
}

/// The commands that cannot do their work while the record is damaged.
const NEEDS_RECORD: [&[&str]; 5] = [
    &["sessions", "list"],
    &["sessions", "show", "s"],
    &["sessions", "export", "s"],
    &["tool", "lcm_recent", "--session", "s"],
    &["import", "chat.json", "--session", "s"],
];

#[test]
fn a_damaged_record_is_seen_and_mended_and_named_by_who_needs_it_meanwhile() {
    let home = Home::new();
    home.put("chat.json", &chat(60));
    done(&home.run(["import", "chat.json", "--session", "s"]));
    done(&home.run([
        "compress", "chat.json", "--session", "s", "--force", "-o", "out.json",
    ]));
    done(&home.run(["import", "chat.json", "--session", "t"]));
    let record = home.path("home/sessions.sqlite3");
    let export = |id: &str| home.run(["sessions", "export", id]);
    let whole = std::fs::read(&record).unwrap();
    let exported = (export("s").stdout, export("t").stdout);
    let engine = home.lcm_index();
    let store = std::fs::read(&engine).unwrap();
    let (mut tried, mut seen) = (0, 0);
    for (what, bytes) in damages(&whole) {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{record}{suffix}"));
            let _ = std::fs::remove_file(format!("{engine}{suffix}"));
        }
        std::fs::write(&record, &bytes).unwrap();
        std::fs::write(&engine, &store).unwrap();
        tried += 1;
        let verified = home.run(["sessions", "verify"]);
        // What is damaged may be a page that nothing is in.
        if verified.code == 0 {
            continue;
        }
        seen += 1;
        assert_eq!(
            verified.code, 1,
            "{what}: {}{}",
            verified.stdout, verified.stderr
        );
        assert!(
            verified.stdout.contains("sessions.sqlite3"),
            "{what}: {}",
            verified.stdout
        );
        for args in NEEDS_RECORD {
            let ran = home.run(args.iter().copied());
            let said = format!("{what}, {args:?}: {}{}", ran.stdout, ran.stderr);
            // The damage may be in a session or a page that the command does not read.
            let is_named = ran.stderr.contains("sessions.sqlite3") && ran.stderr.contains("repair");
            assert!(ran.code == 0 || ran.code == 3 && is_named, "{said}");
            assert!(!tells_to_remove(&ran.stderr), "{said}");
        }
        // A conversation is compacted all the same, from what its file holds.
        let compacts = [
            "compress", "chat.json", "--session", "s", "--dry-run", "--force",
        ];
        let ran = home.run(compacts);
        assert_eq!(ran.code, 0, "{what}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("messages"), "{what}: {}", ran.stderr);
        let looked = home.run(["sessions", "repair"]);
        assert!(
            looked.stdout.contains("\"ok\": false"),
            "{what}: {}{}",
            looked.stdout,
            looked.stderr
        );
        let mended = home.run(["sessions", "repair", "--yes"]);
        assert_eq!(mended.code, 0, "{what}: {}{}", mended.stdout, mended.stderr);
        done(&home.run(["sessions", "verify"]));
        // What the repair could not save is said, and imported again. If nothing of a session is left
        // that the file knows, the command says to delete it first.
        let lost = json(&mended.stdout)["record"]["lost"].to_string();
        for id in ["s", "t"] {
            let import = ["import", "chat.json", "--session", id];
            let again = home.run(import);
            if again.code == 2 && again.stderr.contains("no message in common") {
                done(&home.run(["sessions", "delete", id, "--yes"]));
                done(&home.run(import));
            } else {
                done(&again);
            }
            let is_as_before = again.code == 0 && json(&again.stdout)["new"] == 0;
            assert!(is_as_before || lost != "[]", "{what}: {}", again.stdout);
        }
        done(&home.run([
            "compress", "chat.json", "--engine", "lcm", "--session", "t", "--force", "-o",
            "out.json",
        ]));
        let now = (export("s").stdout, export("t").stdout);
        // The second message of a session may be lost with its place in the conversation.
        assert!(
            now == exported || lost != "[]",
            "{what}: the sessions are others after the repair"
        );
    }
    println!("damaged records: {tried} tried, {seen} seen and mended");
    assert!(seen * 2 > tried, "{seen} of {tried} were seen");
}

/// A conversation with results of tools that every engine shortens.
fn with_results(turns: usize) -> String {
    let turns = (0..turns).flat_map(|turn| {
        let id = format!("call_{turn}");
        let call = serde_json::json!({"id": id, "type": "function",
            "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}});
        [
            serde_json::json!({"role": "user", "content": format!("Look into part {turn}.")}),
            serde_json::json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            serde_json::json!({"role": "tool", "tool_call_id": id,
                "content": format!("needle_{turn} is in the log of the pump station\n").repeat(60 + turn)}),
            serde_json::json!({"role": "assistant", "content": format!("Part {turn} is done.")}),
        ]
    });
    let mut messages: Vec<_> = turns.collect();
    messages.push(serde_json::json!({"role": "user", "content": "Go on."}));
    serde_json::json!({"model": "gpt-5", "messages": messages}).to_string()
}

/// A session of each engine, by the engine's name.
fn sessions_of_all_engines(home: &Home) {
    home.put("results.json", &with_results(24));
    for engine in ENGINES {
        done(&compacted_by(home, engine));
    }
}

/// Compacts `results.json` in a session that is called as its engine is.
fn compacted_by(home: &Home, engine: &str) -> Ran {
    home.run([
        "compress",
        "results.json",
        "--session",
        engine,
        "--engine",
        engine,
        "--context-length",
        "20000",
        "--force",
        "-o",
        &format!("{engine}.json"),
    ])
}

const ENGINES: [&str; 5] = ["compressor", "lcm", "tiered", "two-layer", "virtual-files"];

/// What a home says of the sessions of all engines, and what their tools answer.
fn what_is_kept(home: &Home) -> Vec<String> {
    let mut said = Vec::new();
    for engine in ENGINES {
        let exported = home.run(["sessions", "export", engine]);
        said.push(format!("{engine}: {} {}", exported.code, exported.stdout));
        let again = home.run([
            "compress", "results.json", "--session", engine, "--context-length", "20000",
            "--dry-run",
        ]);
        said.push(format!("{engine}: {}", again.code));
    }
    for (engine, tool, arguments) in [
        (
            "lcm",
            "lcm_grep",
            r#"{"pattern": "needle_3 ", "scope": "messages"}"#,
        ),
        ("virtual-files", "file_list", "{}"),
        ("virtual-files", "file_regex", r#"{"pattern": "needle_5 "}"#),
    ] {
        let ran = home.run(["tool", tool, arguments, "--session", engine]);
        done(&ran);
        assert!(!ran.stdout.trim().is_empty(), "{tool}");
        // How it was found depends on the index, which is made anew.
        let answer = serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap_or_default();
        let hits = answer.get("hits").map(ToString::to_string);
        said.push(hits.unwrap_or(ran.stdout));
    }
    let restored = home.run(["sessions", "restore", "tiered"]);
    done(&restored);
    said.push(restored.stdout);
    said
}

/// Copies a home, or what a backup holds, into a home of its own.
fn put_back(backup: &str) -> Home {
    let home = Home::new();
    let copied = Command::new("cp")
        .args(["-r", &format!("{backup}/."), &home.path("home")])
        .status();
    assert!(copied.unwrap().success());
    home
}

#[test]
fn a_backup_holds_what_every_engine_keeps() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("home")).unwrap();
    sessions_of_all_engines(&home);
    let copy = home.path("copy");
    let ran = home.run(["sessions", "backup", &copy]);
    done(&ran);
    assert!(
        json(&ran.stdout)["bytes"].as_u64() > Some(50_000),
        "{}",
        ran.stdout
    );
    assert_ne!(
        home.run(["sessions", "backup", &copy]).code,
        0,
        "a backup overwrites nothing"
    );
    for path in all_under(Path::new(&copy)) {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    let other = put_back(&copy);
    other.put("results.json", &with_results(24));
    assert_eq!(what_is_kept(&other), what_is_kept(&home));
    done(&other.run(["sessions", "verify"]));
}

#[test]
fn a_backup_beside_sessions_that_are_written_and_deleted_is_whole() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("home")).unwrap();
    sessions_of_all_engines(&home);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        let (home, is_over) = (&home, &is_over);
        scope.spawn(move || {
            for turns in 25.. {
                let file = format!("more-{turns}.json");
                home.put(&file, &with_results(turns));
                for engine in ["lcm", "virtual-files", "tiered"] {
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    done(&home.run([
                        "compress", &file, "--session", engine, "--context-length", "20000", "-o",
                        "more.json",
                    ]));
                }
                done(&home.run([
                    "import",
                    "results.json",
                    "--session",
                    &format!("new-{turns}"),
                    "--engine",
                    "lcm",
                ]));
                done(&home.run(["sessions", "delete", &format!("new-{turns}"), "--yes"]));
            }
        });
        for at in 0..4 {
            let copy = home.path(&format!("copy-{at}"));
            let ran = home.run(["sessions", "backup", &copy]);
            copies.push((copy, ran, home.run(["sessions", "verify"])));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for (copy, ran, verified) in copies {
        done(&ran);
        done(&verified);
        let other = put_back(&copy);
        other.put("results.json", &with_results(24));
        done(&other.run(["sessions", "verify"]));
        what_is_kept(&other);
    }
}

/// The originals of `tiered` stand in the record, so that some damage costs some of them: that is said, and nothing else is
/// lost.
#[test]
fn a_damaged_record_costs_no_engine_more_than_is_said() {
    let origin = Home::new();
    sessions_of_all_engines(&origin);
    let whole = std::fs::read(origin.path("home/sessions.sqlite3")).unwrap();
    let restored = |home: &Home| home.run(["sessions", "restore", "tiered"]);
    let before = restored(&origin).stdout;
    let (mut seen, mut lossless) = (0, 0);
    let all = damages(&whole);
    let step = match std::env::var_os("CONTEXTURE_ATTACK_SEED") {
        Some(_) => 1,
        None => all.len().div_ceil(16),
    };
    for (what, bytes) in all.into_iter().step_by(step) {
        let home = put_back(&origin.path("home"));
        home.put("results.json", &with_results(24));
        let record = home.path("home/sessions.sqlite3");
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{record}{suffix}"));
        }
        std::fs::write(&record, &bytes).unwrap();
        if home.run(["sessions", "verify"]).code == 0 {
            continue;
        }
        seen += 1;
        let mut ways: Vec<Vec<&str>> = vec![vec!["sessions", "list"]];
        for engine in ENGINES {
            ways.push(vec!["sessions", "show", engine]);
            ways.push(vec!["sessions", "export", engine]);
            ways.push(vec![
                "compress", "results.json", "--session", engine, "--dry-run",
            ]);
        }
        for args in ways {
            let ran = home.run(args.iter().copied());
            let said = format!(
                "{what}, {args:?}: {} {}{}",
                ran.code, ran.stdout, ran.stderr
            );
            assert!((0..=3).contains(&ran.code), "{said}");
            assert!(!tells_to_remove(&ran.stderr), "{said}");
            assert_eq!(std::fs::read(&record).unwrap(), bytes, "{said}");
        }
        let mended = home.run(["sessions", "repair", "--yes"]);
        done(&home.run(["sessions", "verify"]));
        let lost = json(&mended.stdout)["record"]["lost"].to_string();
        let is_whole = restored(&home).stdout == before;
        let is_said = ["`tiered`", "nothing of its tables"];
        assert!(
            is_whole || is_said.iter().any(|words| lost.contains(words)),
            "{what}: {lost}"
        );
        lossless += usize::from(is_whole);
    }
    println!(
        "damaged records of all engines: {seen} tried, {lossless} lost none of tiered's originals"
    );
    assert!(seen > 8, "{seen} were seen");
}

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wrong {
    Unreadable,
    ReadOnly,
    AFolder,
    Locked,
    Truncated,
    NotSqlite,
}

impl Wrong {
    /// Does it to a file. A lock lasts as long as what this returns.
    fn befall(self, path: &str) -> Option<rusqlite::Connection> {
        let bytes = std::fs::read(path).unwrap();
        match self {
            Self::Unreadable => set_mode(path, 0),
            Self::ReadOnly => set_mode(path, 0o400),
            Self::AFolder => {
                std::fs::remove_file(path).unwrap();
                std::fs::create_dir(path).unwrap();
            }
            Self::Truncated => std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
            Self::NotSqlite => std::fs::write(path, "not a database ".repeat(900)).unwrap(),
            Self::Locked => {
                let other = rusqlite::Connection::open(path).unwrap();
                let lock = "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE";
                other.execute_batch(lock).unwrap();
                return Some(other);
            }
        }
        None
    }
}

/// A command that permissions bind, also if root runs it.
fn bound(home: &Home, args: &[&str]) -> Command {
    let plain = home.command(args.iter().copied());
    if !rustix::process::geteuid().is_root() {
        return plain;
    }
    const FREEDOMS: &str = "-dac_override,-dac_read_search,-fowner";
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", FREEDOMS, "--inh-caps", FREEDOMS]);
    through(command, &plain)
}

/// Every command that reads or writes what is kept.
const ON_STORES: [&[&str]; 24] = [
    &["sessions", "list"],
    &["sessions", "show", "lcm"],
    &["sessions", "export", "lcm"],
    &["sessions", "export", "tiered"],
    &["sessions", "restore", "tiered"],
    &["sessions", "archive", "lcm"],
    &["sessions", "archive", "lcm", "--undo"],
    &["sessions", "index"],
    &["sessions", "verify"],
    &["sessions", "repair"],
    &["sessions", "repair", "--yes"],
    &["sessions", "backup", "copy"],
    &["sessions", "gc"],
    &["sessions", "gc", "--yes"],
    &["sessions", "delete", "lcm"],
    &["sessions", "delete", "lcm", "--yes"],
    &["sessions", "delete", "virtual-files", "--yes"],
    &["import", "results.json", "--session", "lcm"],
    &[
        "compress", "results.json", "--session", "lcm", "-o", "out.json",
    ],
    &[
        "compress", "results.json", "--session", "tiered", "-o", "out.json",
    ],
    &[
        "compress", "results.json", "--session", "virtual-files", "-o", "out.json",
    ],
    &[
        "tool",
        "lcm_grep",
        r#"{"pattern": "needle_3 ", "scope": "messages"}"#,
        "--session",
        "lcm",
    ],
    &["tool", "file_list", "--session", "virtual-files"],
    &["mcp", "--session", "lcm"],
];

/// Whether somebody is told to take a file away. Each store may hold the only copy of something.
fn tells_to_remove(said: &str) -> bool {
    let words = |line: &str| {
        let words = line.split(|c: char| !c.is_alphanumeric());
        words.map(str::to_lowercase).collect::<Vec<_>>()
    };
    let orders = [
        "move", "remove", "delete", "rename", "erase", "discard", "rm", "mv", "unlink",
    ];
    said.lines()
        .flat_map(words)
        .any(|word| orders.contains(&word.as_str()))
}

#[test]
#[cfg(target_os = "linux")]
fn whatever_is_wrong_with_a_store_its_file_is_named_or_the_answer_is_right() {
    use Wrong::*;

    let origin = Home::new();
    sessions_of_all_engines(&origin);
    let kinds = [Unreadable, ReadOnly, AFolder, Locked, Truncated, NotSqlite];
    let index = format!("home/engines/lcm/{FILE_NAME}");
    let stores = ["home/sessions.sqlite3", index.as_str()];
    let all: Vec<_> = (kinds.iter())
        .flat_map(|kind| stores.map(|store| (*kind, store)))
        .collect();
    // Without the home's own name, and the time.
    let said = |home: &Home, ran: &Ran| {
        let said = ran.stdout.replace(&home.path(""), "");
        let lines = said.lines().filter(|line| !line.contains("\"archived\":"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let home_of = || {
        let home = put_back(&origin.path("home"));
        home.put("results.json", &with_results(24));
        home
    };
    let right: Vec<_> = (ON_STORES.iter())
        .map(|args| {
            let home = home_of();
            let ran = home.run(args.iter().copied());
            (ran.code, said(&home, &ran))
        })
        .collect();
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (right, wrong, said, home_of) = (&right, &wrong, &said, &home_of);
        for part in all.chunks(all.len().div_ceil(4)) {
            scope.spawn(move || {
                for (kind, store) in part {
                    for (args, right) in ON_STORES.iter().zip(right) {
                        let home = home_of();
                        let path = home.path(store);
                        let lock = kind.befall(&path);
                        let before = std::fs::read(&path).ok();
                        let mut command = bound(&home, args);
                        let ran = ran(command.stdin(Stdio::null()).output().unwrap());
                        drop(lock);
                        let is_named = format!("{}{}", ran.stdout, ran.stderr).contains(&path);
                        let is_right = (ran.code, said(&home, &ran)) == *right;
                        let is_untouched = std::fs::read(&path).ok() == before
                            || is_right
                            || args.contains(&"repair");
                        let costs_the_only_copy = tells_to_remove(&ran.stderr);
                        // The index of an engine is made anew from the record, and what it says
                        // of its own making differs then.
                        let is_derived = store.contains("engines");
                        let is_right = is_right || is_derived && ran.code == right.0;
                        let is_untouched = is_untouched || is_derived;
                        if !(0..=3).contains(&ran.code)
                            || !(is_named || is_right)
                            || !is_untouched
                            || costs_the_only_copy
                        {
                            let what = format!(
                                "{kind:?} {store}, {args:?}: {} named {is_named} right {is_right} untouched {is_untouched} \
                                 tells to remove {costs_the_only_copy}\n{}{}",
                                ran.code, ran.stdout, ran.stderr
                            );
                            wrong.lock().unwrap().push(what);
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        all.len() * ON_STORES.len(),
        wrong.join("\n")
    );
}

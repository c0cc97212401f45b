//! What the tests of the command share: a home of its own, runs of the real binary, conversations.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What came of a run.
pub(crate) struct Ran {
    /// What was run, if it is known.
    pub(crate) command: String,
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Checks that show all of the run if they fail.
impl Ran {
    #[track_caller]
    fn check(&self, holds: bool, what: &str) -> &Self {
        let Self {
            command,
            code,
            stdout,
            stderr,
        } = self;
        assert!(
            holds,
            "{what}; `{command}` ended with {code} and said\n{stderr}{stdout}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        self.check(self.code == code, &format!("it should end with {code}"))
    }

    #[track_caller]
    pub(crate) fn stdout_is(&self, text: &str) -> &Self {
        self.check(self.stdout == text, &format!("stdout is not {text:?}"))
    }

    #[track_caller]
    pub(crate) fn stdout_has(&self, part: &str) -> &Self {
        let has = self.stdout.contains(part);
        self.check(has, &format!("stdout lacks {part:?}"))
    }

    #[track_caller]
    pub(crate) fn stdout_lacks(&self, part: &str) -> &Self {
        let has = self.stdout.contains(part);
        self.check(!has, &format!("stdout has {part:?}"))
    }

    #[track_caller]
    pub(crate) fn stderr_has(&self, part: &str) -> &Self {
        let has = self.stderr.contains(part);
        self.check(has, &format!("stderr lacks {part:?}"))
    }

    #[track_caller]
    pub(crate) fn stderr_lacks(&self, part: &str) -> &Self {
        let has = self.stderr.contains(part);
        self.check(!has, &format!("stderr has {part:?}"))
    }
}

/// A directory with a Contexture home (`home/`) in it, for files and runs that touch nothing else.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The search index of `lcm`.
    pub(crate) fn lcm_index(&self) -> String {
        let file = Path::new("home/engines/lcm").join(contexture_lcm::store::FILE_NAME);
        self.0.path().join(file).display().to_string()
    }

    pub(crate) fn put(&self, name: &str, text: &str) -> String {
        self.put_bytes(name, text.as_bytes())
    }

    pub(crate) fn put_bytes(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    pub(crate) fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("contexture"));
        command
            .args(args)
            .current_dir(self.0.path())
            .env("CONTEXTURE_HOME", self.0.path().join("home"))
            .env("HOME", self.0.path());
        for variable in [
            "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "NOUS_API_KEY",
            "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE",
            // Where agents keep their logs, if it is not the home directory.
            "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RUST_LOG",
            "NO_COLOR",
        ] {
            command.env_remove(variable);
        }
        command
    }

    pub(crate) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Ran {
        let mut command = self.command(args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        Ran {
            command: format!("{:?}", command.get_args()),
            ..ran(output)
        }
    }

    /// Runs `contexture` with these words as its arguments.
    pub(crate) fn contexture(&self, line: impl AsRef<str>) -> Ran {
        self.run(line.as_ref().split_whitespace())
    }

    /// The same, and it has to succeed.
    #[track_caller]
    pub(crate) fn done(&self, line: impl AsRef<str>) -> Ran {
        let ran = self.contexture(line);
        ran.exits(0);
        ran
    }

    pub(crate) fn pipe<'a>(&self, args: impl IntoIterator<Item = &'a str>, stdin: &[u8]) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        ran(child.wait_with_output().unwrap())
    }

    /// Runs it with a stdout that nobody reads.
    pub(crate) fn run_into_closed_pipe<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        ran(child.wait_with_output().unwrap())
    }
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        command: String::new(),
        code: output.status.code().expect("not killed by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {:.2000}", text))
}

/// A request body with this many messages, of some 40 tokens each, in one line.
pub(crate) fn chat(messages: usize) -> String {
    let messages: Vec<_> = (0..messages)
        .map(|number| match number % 2 {
            0 => serde_json::json!({"role": "user", "content": format!(
                "Question {number}: what does the function number_{number} in src/part_{number}.rs do, who \
                 calls it, and is there a test that would fail without it?"
            )}),
            _ => serde_json::json!({"role": "assistant", "content": format!("answer {number}")}),
        })
        .collect();
    serde_json::json!({"model": "gpt-4o", "messages": messages}).to_string()
}

/// A session log of Claude Code with this many messages.
pub(crate) fn claude_code_log(messages: usize) -> String {
    let mut log = String::new();
    for number in 0..messages {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        let parent = (number > 0).then(|| format!("u{}", number - 1));
        let text = format!(
            "Message {number}: look at src/file_{number}.rs, its tests and whoever calls it. "
        )
        .repeat(4);
        let line = serde_json::json!({
            "parentUuid": parent, "isSidechain": false, "userType": "external", "cwd": "/w", "sessionId": "s",
            "version": "2.0.0", "type": role, "uuid": format!("u{number}"),
            "timestamp": format!("2026-11-20T10:{:02}:{:02}.000Z", number / 60, number % 60),
            "message": {"role": role, "model": "claude-sonnet-4-5", "id": format!("msg_{number}"),
                "content": [{"type": "text", "text": text}]},
        });
        log.push_str(&format!("{line}\n"));
    }
    log
}

/// Real conversations, which lie beside the repository.
pub(crate) fn shared_data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data")
}

//! `contexture setup` and `contexture hook`, as a user and an agent see them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::path::Path;

use cli_support::{Home, Ran, claude_code_log, json, ran};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Files that the agents' users have, in every style.
const FILES: [(&str, &str, &str); 6] = [
    (
        "claude",
        ".claude/settings.json",
        "{\r\n\t\"model\": \"opus\",\r\n\t\"hooks\": {\"PreCompact\": [{\"hooks\": []}]}\r\n}",
    ),
    (
        "claude",
        ".claude.json",
        "{\"numStartups\":3,\"projects\":{}}",
    ),
    (
        "codex",
        ".codex/config.toml",
        "# mine\nmodel = \"m\" # best\n\n[mcp_servers.other]\ncommand = \"x\"\n",
    ),
    ("codex", ".codex/hooks.json", ""),
    (
        "opencode",
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"mcp\": {},\n}\n",
    ),
    (
        "pi",
        ".pi/agent/mcp.json",
        "\u{feff}{ \"mcpServers\": { \"a\": { \"command\": \"b\" } } }\n",
    ),
];

fn home() -> Home {
    let home = Home::new();
    for (_, file, text) in FILES {
        home.put(file, text);
    }
    home
}

/// All files below the home of the user but Contexture's own, with their texts. Folders end with a slash.
fn all(home: &Home) -> Vec<(String, Vec<u8>)> {
    fn walk(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() {
                walk(&path, found);
                found.push((format!("{name}/"), Vec::new()));
            } else {
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new(&home.path(".")), &mut found);
    let own = home.path("./home");
    found.retain(|(name, _)| !name.starts_with(&own));
    found.sort();
    found
}

/// Runs it if no agent is on the PATH.
fn setup(home: &Home, line: &str) -> Ran {
    let arguments = std::iter::once("setup").chain(line.split_whitespace());
    let mut command = home.command(arguments);
    command.env("PATH", home.path("programs"));
    for variable in [
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "XDG_CONFIG_HOME",
        "PI_CODING_AGENT_DIR",
        "HERMES_HOME",
        "QWEN_HOME",
        "GEMINI_CLI_HOME",
        "OPENCLAW_HOME",
        "OPENCLAW_STATE_DIR",
        "OPENCLAW_CONFIG_PATH",
    ] {
        command.env_remove(variable);
    }
    ran(command.output().unwrap())
}

#[test]
fn an_empty_home_variable_is_not_the_working_directory() {
    let home = home();
    let before = all(&home);
    for arguments in [&["setup"][..], &["setup", "claude", "--yes"]] {
        let mut command = home.command(arguments.iter().copied());
        command.env("HOME", "").env_remove("USERPROFILE");
        let ran = ran(command.output().unwrap());
        ran.exits(2).stderr_has("there is no home directory");
    }
    assert_eq!(all(&home), before);
}

/// An agent and a way to set it up, with the settings files that this changes in an empty home.
#[derive(Debug)]
struct Way {
    line: String,
    files: Vec<(String, String)>,
}

/// Every way of every agent that the command lists.
fn ways() -> Vec<Way> {
    let list = setup(&Home::new(), "");
    let agents = list.stdout.lines().skip(1);
    let agents = agents.filter_map(|line| line.split_whitespace().next());
    let agents: Vec<&str> = agents.collect();
    assert!(agents.len() >= 10, "{agents:?}");
    let mut ways: Vec<Way> = Vec::new();
    for agent in agents {
        for line in [agent.to_owned(), format!("{agent} --gateway")] {
            let home = Home::new();
            home.put(&format!("programs/{agent}"), "");
            let done = setup(&home, &format!("{line} --yes"));
            done.exits(0);
            let root = home.path("./");
            let files = all(&home).into_iter().filter_map(|(path, text)| {
                let name = path.strip_prefix(&root)?.to_owned();
                // Plugins are files of our own.
                let is_plugin = name.contains("/extensions/");
                let is_settings = !is_plugin
                    && ["json", "toml", "yml", "yaml", ".env"]
                        .iter()
                        .any(|kind| name.ends_with(kind));
                is_settings.then(|| (name, String::from_utf8(text).unwrap()))
            });
            let files: Vec<_> = files.collect();
            assert!(!files.is_empty(), "{line} changes no settings");
            // If the gateway is the only way, it is the default, too.
            if ways.last().is_none_or(|last| last.files != files) {
                ways.push(Way { line, files });
            }
        }
    }
    ways
}

/// What a user has in a settings file before.
#[derive(Debug, Clone)]
struct Own {
    keys: Vec<(String, i32)>,
    /// How many of the levels above what is added the file already has.
    depth: usize,
    has_comments: bool,
    has_crlf: bool,
    end: &'static str,
}

fn own() -> impl Strategy<Value = Own> {
    let keys = proptest::collection::btree_map("own_[a-z]{1,6}", any::<i32>(), 1..4);
    let keys = keys.prop_map(|keys| keys.into_iter().collect());
    let end = prop_oneof![Just(""), Just("\n"), Just("\n\n")];
    (keys, 0..4_usize, any::<bool>(), any::<bool>(), end).prop_map(
        |(keys, depth, has_comments, has_crlf, end)| Own {
            keys,
            depth,
            has_comments,
            has_crlf,
            end,
        },
    )
}

impl Own {
    /// The text of a file to which `planned` is what is added.
    fn text(&self, file: &str, planned: &str) -> String {
        let mut lines = Vec::new();
        if file.ends_with("json") {
            self.json(&mut lines, &json(planned), self.depth, 0, "");
        } else if file.ends_with("toml") {
            let planned: toml_edit::DocumentMut = planned.parse().unwrap();
            self.toml(&mut lines, planned.as_table(), self.depth, &[]);
        } else if file.ends_with(".env") {
            let keys = self.keys.iter();
            lines.extend(keys.map(|(name, value)| format!("{name}={value}{}", self.comment("#"))));
        } else {
            self.yaml(
                &mut lines,
                &serde_yaml::from_str(planned).unwrap(),
                self.depth,
                0,
            );
        }
        let text = lines.join("\n") + self.end;
        match self.has_crlf {
            true => text.replace('\n', "\r\n"),
            false => text,
        }
    }

    fn comment(&self, sign: &str) -> String {
        match self.has_comments {
            true => format!(" {sign} mine"),
            false => String::new(),
        }
    }

    /// The containers of a planned document that the file has, too, with keys of the user's.
    fn json(
        &self,
        lines: &mut Vec<String>,
        planned: &Value,
        depth: usize,
        indent: usize,
        end: &str,
    ) {
        let pad = " ".repeat(indent);
        let (members, none) = (planned.as_object(), serde_json::Map::new());
        lines.push(format!("{{{}", self.comment("//")));
        for (name, child) in members.unwrap_or(&none) {
            if depth == 0 || name == "contexture" {
                continue;
            }
            let at = lines.len();
            match child {
                Value::Object(_) => self.json(lines, child, depth - 1, indent + 2, ","),
                Value::Array(_) => lines.extend(["[", "\"own\"", "],"].map(str::to_owned)),
                _ => continue,
            }
            lines[at] = format!("{pad}  \"{name}\": {}", lines[at]);
        }
        for (at, (name, value)) in self.keys.iter().enumerate() {
            let comma = if at + 1 < self.keys.len() { "," } else { "" };
            lines.push(format!(
                "{pad}  \"{name}\":  {value}{comma}{}",
                self.comment("//")
            ));
        }
        lines.push(format!("{pad}}}{end}"));
    }

    fn toml(
        &self,
        lines: &mut Vec<String>,
        planned: &toml_edit::Table,
        depth: usize,
        path: &[&str],
    ) {
        if !path.is_empty() {
            lines.push(format!("[{}]", path.join(".")));
        }
        for (name, value) in &self.keys {
            lines.push(format!("{name}   = {value}{}", self.comment("#")));
        }
        for (name, child) in planned.iter() {
            if let Some(child) = child.as_table()
                && depth > 0
                && name != "contexture"
            {
                self.toml(lines, child, depth - 1, &[path, &[name]].concat());
            }
        }
    }

    fn yaml(&self, lines: &mut Vec<String>, planned: &Value, depth: usize, indent: usize) {
        let pad = " ".repeat(indent);
        for (name, value) in &self.keys {
            lines.push(format!("{pad}{name}:   {value}{}", self.comment("#")));
        }
        for (name, child) in planned.as_object().into_iter().flatten() {
            if depth > 0 && child.is_object() {
                lines.push(format!("{pad}{name}:{}", self.comment("#")));
                self.yaml(lines, child, depth - 1, indent + 4);
            } else if depth > 0 && child.is_array() {
                lines.push(format!("{pad}{name}:\n{pad}- own{}", self.comment("#")));
            }
        }
    }
}

/// Whether all lines of a text are in another one, in their order. A comma may come after one of them.
fn has_lines_of(text: &str, before: &str) -> bool {
    let plain = |line: &str| line.replace(',', "").trim().to_owned();
    let mut lines = text.lines().map(plain);
    before
        .lines()
        .map(plain)
        .all(|line| lines.any(|other| other == line))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// For every agent, whatever its files look like: nothing is written without consent, every line of the user's
    /// stays, a second run changes nothing, and the undo restores every byte, or removes what was added if somebody has
    /// edited the files since. A file that cannot be parsed stops the command.
    #[test]
    fn every_agent_is_set_up_and_restored(own in own()) {
        for Way { line, files } in ways() {
            let agent = line.split(' ').next().unwrap();
            let home = Home::new();
            home.put(&format!("programs/{agent}"), "");
            for (file, planned) in &files {
                home.put(file, &own.text(file, planned));
            }
            let before = all(&home);
            setup(&home, &line).exits(2).stdout_has("+++ ").stderr_has("--yes");
            prop_assert_eq!(&before, &all(&home), "{} wrote without consent", line);
            setup(&home, &format!("{line} --yes")).exits(0).stdout_has("is set up");
            let during = all(&home);
            for (file, planned) in &files {
                let (now, was) = (home.read(file), own.text(file, planned));
                prop_assert!(has_lines_of(&now, &was), "{}: {} became {}", file, was, now);
                prop_assert!(now.contains("contexture") || now.contains("127.0.0.1:8787"), "{}", now);
                let feeds = now.matches('\n').count();
                // A line that does not end says nothing of line ends.
                let has_crlf = was.contains("\r\n");
                prop_assert!(!has_crlf || now.matches("\r\n").count() == feeds, "{:?}", now);
            }
            setup(&home, &format!("{line} --yes")).exits(0).stdout_has("already set up");
            prop_assert_eq!(&during, &all(&home), "a second run of {} changes something", line);
            setup(&home, &format!("--undo {agent} --yes")).exits(0).stdout_has("as it was before");
            prop_assert_eq!(&before, &all(&home), "{}", line);
            setup(&home, &format!("--undo {agent} --yes")).exits(0).stdout_has("is not set up");

            setup(&home, &format!("{line} --yes")).exits(0);
            for (file, _) in &files {
                let sign = if file.ends_with("json") { "//" } else { "#" };
                home.put(file, &format!("{}\n{sign} later\n", home.read(file)));
            }
            setup(&home, &format!("--undo {agent} --yes")).exits(0);
            for (file, planned) in &files {
                let (now, was) = (home.read(file), own.text(file, planned));
                prop_assert!(has_lines_of(&now, &was) && now.contains(" later"), "{}: {}", file, now);
                let is_left = now.contains("contexture") || now.contains("127.0.0.1:8787");
                prop_assert!(!is_left, "{}: {}", file, now);
            }

            for (file, planned) in &files {
                let text = own.text(file, planned);
                home.put(file, &format!("{text}\n] : = :\n"));
                let before = all(&home);
                setup(&home, &format!("{line} --yes"))
                    .exits(2)
                    .stderr_has(file.rsplit('/').next().unwrap())
                    .stderr_has("nothing was written");
                prop_assert_eq!(before, all(&home), "{}", file);
                home.put(file, &text);
            }
        }
    }
}

#[test]
fn hooks_and_the_gateway_replace_each_other() {
    let home = home();
    let before = all(&home);
    setup(&home, "claude --yes").exits(0);
    assert!(home.read(".claude.json").contains("mcpServers"));
    setup(&home, "claude --gateway --yes").exits(0);
    let settings = home.read(".claude/settings.json");
    assert!(settings.contains("http://127.0.0.1:8787") && !settings.contains("hook claude"));
    assert!(!home.read(".claude.json").contains("mcpServers"));
    setup(&home, "").exits(0).stdout_has("gateway");
    setup(&home, "--undo claude --yes").exits(0);
    assert_eq!(before, all(&home));
}

#[test]
fn without_consent_nothing_is_written() {
    let home = home();
    let before = all(&home);
    setup(&home, "codex")
        .exits(2)
        .stdout_has("+[mcp_servers.contexture]")
        .stderr_has("--yes");
    assert_eq!(before, all(&home));
    setup(&home, "codex --yes").exits(0);
    let during = all(&home);
    setup(&home, "--undo codex")
        .exits(2)
        .stdout_has("-[mcp_servers.contexture]");
    assert_eq!(during, all(&home));
}

#[test]
fn a_setting_of_the_users_is_named_and_kept() {
    let home = Home::new();
    let text = "{\"env\": {\"ANTHROPIC_BASE_URL\": \"https://corp.example\"}}";
    home.put(".claude/settings.json", text);
    setup(&home, "claude --gateway --yes")
        .exits(2)
        .stderr_has("ANTHROPIC_BASE_URL")
        .stderr_has("corp.example")
        .stderr_has("--replace");
    assert_eq!(home.read(".claude/settings.json"), text);
    setup(&home, "claude --gateway --replace --yes")
        .exits(0)
        .stderr_has("corp.example");
    let edited = home
        .read(".claude/settings.json")
        .replacen('{', "{\"model\": \"m\", ", 1);
    home.put(".claude/settings.json", &edited);
    setup(&home, "--undo claude --yes").exits(0);
    let left = json(&home.read(".claude/settings.json"));
    let wanted = json!({"model": "m", "env": {"ANTHROPIC_BASE_URL": "https://corp.example"}});
    assert_eq!(left, wanted);
}

#[test]
fn a_file_that_cannot_be_changed_stops_before_anything_is_written() {
    for (agent, file, text) in [
        ("claude", ".claude.json", "{\"a\": "),
        ("claude", ".claude/settings.json", "{\"hooks\": []}"),
        ("codex", ".codex/config.toml", "a = = 1\n"),
        ("codex", ".codex/hooks.json", "[]"),
        ("opencode", ".config/opencode/opencode.jsonc", "{'a': 1}"),
        (
            "opencode",
            ".config/opencode/plugins/contexture.js",
            "// mine",
        ),
        ("pi", ".pi/agent/mcp.json", "{\"mcpServers\": 1}"),
        ("hermes", ".hermes/config.yaml", "context: {engine: a}\n"),
    ] {
        let home = home();
        home.put(file, text);
        let before = all(&home);
        let name = file.rsplit('/').next().unwrap();
        setup(&home, &format!("{agent} --yes"))
            .exits(2)
            .stderr_has(name)
            .stderr_has("nothing was written");
        assert_eq!(before, all(&home), "{file}");
    }
}

/// A user raised the timeout of a hook, or changed the address that a variable got.
#[test]
fn an_entry_that_the_user_edited_is_not_added_a_second_time() {
    for (agent, file, ours, edited) in [
        (
            "claude",
            ".claude/settings.json",
            "\"timeout\": 120",
            "\"timeout\": 600",
        ),
        (
            "qwen",
            ".qwen/settings.json",
            "\"timeout\": 120",
            "\"timeout\": 600",
        ),
        (
            "codex", ".codex/hooks.json", "\"timeout\": 120", "\"timeout\": 600",
        ),
        (
            "aider",
            ".aider.conf.yml",
            "BASE=http://127.0.0.1:8787",
            "BASE=http://10.0.0.1:1",
        ),
    ] {
        let home = Home::new();
        home.put(&format!("programs/{agent}"), "");
        setup(&home, &format!("{agent} --yes")).exits(0);
        let text = home.read(file).replacen(ours, edited, 1);
        assert!(text.contains(edited), "{text}");
        home.put(file, &text);
        setup(&home, &format!("{agent} --yes"))
            .exits(2)
            .stderr_has("--replace")
            .stderr_has("nothing was written");
        assert_eq!(home.read(file), text);
        // It stays, and the command says so.
        let undone = setup(&home, &format!("--undo {agent} --yes"));
        undone
            .exits(0)
            .stderr_has("was changed")
            .stdout_has("as it was before, except for what is left");
        assert!(home.read(file).contains(edited));
        // An entry that was added by hand is one, too.
        setup(&home, &format!("{agent} --yes")).exits(2);
        setup(&home, &format!("{agent} --yes --replace"))
            .exits(0)
            .stderr_has("is replaced");
        let text = home.read(file);
        assert!(text.contains(ours) && !text.contains(edited), "{text}");
        setup(&home, &format!("{agent} --yes"))
            .exits(0)
            .stdout_has("already set up");
    }
}

/// With another way to set the agent up, what stays of the first one is said.
#[test]
fn what_a_change_to_the_gateway_leaves_is_said() {
    let home = home();
    setup(&home, "claude --yes").exits(0);
    let text = home.read(".claude/settings.json");
    home.put(
        ".claude/settings.json",
        &text.replacen("\"timeout\": 120", "\"timeout\": 600", 1),
    );
    setup(&home, "claude --gateway --yes")
        .exits(0)
        .stderr_has("the entry of `hooks.PreCompact` was changed");
}

#[test]
fn settings_without_a_value_get_one() {
    let home = Home::new();
    home.put(
        ".qwen/settings.json",
        "{\"mcpServers\": null, \"hooks\": null}",
    );
    home.put(
        ".gemini/.env",
        "NOTES=\"one\nA=b\ntwo\"\nGOOGLE_GEMINI_BASE_URL=\nGEMINI_API_KEY=k\n",
    );
    let before = all(&home);
    for (line, file) in [
        ("qwen", ".qwen/settings.json"),
        ("gemini --gateway", ".gemini/.env"),
    ] {
        setup(&home, &format!("{line} --yes")).exits(0);
        let text = home.read(file);
        assert!(
            text.contains("contexture") || text.contains("127.0.0.1:8787"),
            "{text}"
        );
        let agent = line.split(' ').next().unwrap();
        setup(&home, &format!("--undo {agent} --yes")).exits(0);
    }
    assert_eq!(before, all(&home));
}

fn is_set_up(home: &Home, agent: &str) -> bool {
    let list = setup(home, "");
    let mut rows = list.exits(0).stdout.lines();
    let row = rows.find(|line| line.starts_with(agent)).unwrap();
    row.split_whitespace().nth(1) != Some("no")
}

/// The settings are a link to a file in a folder in which nothing can be written, as some users have
/// them whose settings are generated.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_written_leaves_no_trace() {
    let home = Home::new();
    let file = "/proc/sys/kernel/ostype";
    std::fs::create_dir(home.path(".gemini")).unwrap();
    std::os::unix::fs::symlink(file, home.path(".gemini/.env")).unwrap();
    let before = all(&home);
    let ran = setup(&home, "gemini --gateway --yes");
    ran.exits(2).stderr_has(".env");
    assert_eq!(before, all(&home));
    assert!(!is_set_up(&home, "gemini"));
    // A file that can be written again is set up and undone as ever.
    std::fs::remove_file(home.path(".gemini/.env")).unwrap();
    home.put(
        ".gemini/.env",
        "GOOGLE_GEMINI_BASE_URL=\r\nGEMINI_API_KEY=k\r\n",
    );
    let before = all(&home);
    setup(&home, "gemini --gateway --yes").exits(0);
    let text = home.read(".gemini/.env");
    assert!(text.ends_with("\r\nGEMINI_API_KEY=k\r\n"), "{text:?}");
    setup(&home, "gemini --undo --yes").exits(0);
    assert_eq!(before, all(&home));
}

/// Reading a pipe would wait forever, and a link whose file is missing would be lost.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_left_alone() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    for name in [".claude/settings.json", ".claude.json"] {
        for is_link in [true, false] {
            let home = Home::new();
            std::fs::create_dir(home.path(".claude")).unwrap();
            let path = home.path(name);
            match is_link {
                true => std::os::unix::fs::symlink("missing", &path).unwrap(),
                false => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            }
            setup(&home, "claude --yes")
                .exits(2)
                .stderr_has(name)
                .stderr_has("nothing was written");
            let there = std::fs::symlink_metadata(&path).unwrap();
            assert!(!there.is_file(), "{name}");
            assert!(!is_set_up(&home, "claude"));
        }
    }
}

/// Names without quotes, single quotes and a list of allowed plugins, to which ours is added.
#[test]
fn the_json5_of_openclaw_is_changed_in_place() {
    let home = Home::new();
    let text = "{\n  // mine\n  agents: { defaults: { model: 'openai/gpt', timeout: 0x1F, }, },\n  plugins: {\n    \
                allow: ['memory-core'], // only these\n    slots: { 'memory': \"memory-core\" },\n  },\n}\n";
    home.put(".openclaw/openclaw.json", text);
    home.put("home/config.yaml", "context: {engine: lcm}\n");
    let before = all(&home);
    setup(&home, "openclaw --yes").exits(0);
    let config = home.read(".openclaw/openclaw.json");
    for part in [
        "allow: ['memory-core', \"contexture\"], // only these",
        "'memory': \"memory-core\",\n",
        "\"contextEngine\": \"contexture\"\n",
        "'openai/gpt', timeout: 0x1F, }",
    ] {
        assert!(config.contains(part), "{part}: {config}");
    }
    let manifest = json(&home.read(".openclaw/extensions/contexture/openclaw.plugin.json"));
    let tools = manifest["contracts"]["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("lcm_grep")), "{manifest}");
    let plugin = home.read(".openclaw/extensions/contexture/index.js");
    assert!(!plugin.contains("__"), "a place is left open: {plugin}");
    setup(&home, "openclaw --yes")
        .exits(0)
        .stdout_has("already set up");
    // Another engine has other tools.
    home.put("home/config.yaml", "context: {engine: compressor}\n");
    setup(&home, "openclaw --yes")
        .exits(0)
        .stdout_has("is set up");
    assert!(
        !home
            .read(".openclaw/extensions/contexture/index.js")
            .contains("lcm_grep")
    );
    setup(&home, "--undo openclaw --yes").exits(0);
    assert_eq!(before, all(&home));

    // A list that is not there, or that allows all, stays so.
    for list in ["", "plugins: {allow: []}"] {
        home.put(".openclaw/openclaw.json", &format!("{{{list}}}"));
        setup(&home, "openclaw --yes").exits(0);
        let config = home.read(".openclaw/openclaw.json");
        assert!(
            !config.contains("allow: [\"") && !config.contains("\"allow\""),
            "{config}"
        );
        setup(&home, "--undo openclaw --yes").exits(0);
    }
    home.put(
        ".openclaw/openclaw.json",
        "{plugins: {slots: {contextEngine: 'other'}}}",
    );
    setup(&home, "openclaw --yes")
        .exits(2)
        .stderr_has("`plugins.slots.contextEngine` is \"other\"");
}

#[test]
fn agents_that_cannot_be_set_up_say_what_to_do() {
    let home = Home::new();
    setup(&home, "claud")
        .exits(2)
        .stderr_has("did you mean `claude`");
    setup(&home, "pi --yes")
        .exits(2)
        .stderr_has("is not installed");
    home.put(".gemini/settings.json", "{}");
    home.put(".env", "export GEMINI_API_KEY='k' # mine\n");
    setup(&home, "gemini --gateway --yes")
        .exits(0)
        .stdout_has("an API key");
    let text = "export GEMINI_API_KEY='k' # mine\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8787\n";
    assert_eq!(home.read(".env"), text);
    home.put(".aider.conf.yml", "# mine\nmodel: m\n");
    setup(&home, "aider --yes")
        .exits(0)
        .stdout_has("`contexture serve`");
    let text = "# mine\nmodel: m\nopenai-api-base: http://127.0.0.1:8787/v1\nset-env:\n- \
                \"ANTHROPIC_API_BASE=http://127.0.0.1:8787\"\n";
    assert_eq!(home.read(".aider.conf.yml"), text);
    setup(&home, "").exits(0).stdout_has("aider");
}

/// The event that Claude Code sends, as a line.
fn event(home: &Home, name: &str, more: serde_json::Value) -> Vec<u8> {
    let mut event = json!({
        "session_id": "s-1", "transcript_path": home.path("log.jsonl"), "cwd": home.path("."), "hook_event_name": name,
    });
    for (key, value) in more.as_object().unwrap() {
        event[key] = value.clone();
    }
    event.to_string().into_bytes()
}

#[test]
fn a_text_is_made_before_the_compaction_and_handed_over_after_it_once() {
    let home = Home::new();
    home.put("log.jsonl", &claude_code_log(60));
    let before = event(&home, "PreCompact", json!({"trigger": "auto"}));
    let after = event(&home, "SessionStart", json!({"source": "compact"}));
    home.pipe(["hook", "claude"], &before)
        .exits(0)
        .stdout_has("kept by Contexture");
    let handed = home.pipe(["hook", "claude"], &after);
    handed.exits(0);
    let output = &json(&handed.stdout)["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "SessionStart");
    let text = output["additionalContext"].as_str().unwrap();
    assert!(
        text.starts_with("[Contexture]") && text.chars().count() <= 10_000,
        "{text}"
    );
    home.pipe(["hook", "claude"], &after).exits(0).stdout_is("");
    home.done("sessions list").stdout_has("claude-s-1");
    // Other beginnings of a session are none of its business.
    let start = event(&home, "SessionStart", json!({"source": "startup"}));
    home.pipe(["hook", "claude"], &before).exits(0);
    home.pipe(["hook", "claude"], &start).exits(0).stdout_is("");
}

/// Qwen Code's own summary stays, so it is not asked for a short one.
#[test]
fn qwen_code_is_handed_the_text_after_its_own_compaction() {
    let home = Home::new();
    let record = |at: usize| {
        let (kind, role) = [("user", "user"), ("assistant", "model")][at % 2];
        let text = format!("item-{at} is on the shelf {}", "x".repeat(3_000));
        json!({"uuid": at.to_string(), "parentUuid": at.checked_sub(1).map(|at| at.to_string()), "type": kind,
            "sessionId": "s-1", "message": {"role": role, "parts": [{"text": text}]}})
    };
    let lines: Vec<String> = (0..60).map(|at| record(at).to_string()).collect();
    home.put("log.jsonl", &lines.join("\n"));
    let before = event(&home, "PreCompact", json!({"trigger": "auto"}));
    let after = event(&home, "SessionStart", json!({"source": "compact"}));
    home.pipe(["hook", "qwen"], &before).exits(0).stdout_is("");
    let handed = home.pipe(["hook", "qwen"], &after);
    handed.exits(0);
    let output = &json(&handed.stdout)["hookSpecificOutput"];
    let text = output["additionalContext"].as_str().unwrap();
    assert!(
        text.starts_with("[Contexture]") && text.contains("item-0 "),
        "{text}"
    );
    assert!(text.len() <= 32_000, "{}", text.len());
    home.pipe(["hook", "qwen"], &after).exits(0).stdout_is("");
    home.done("sessions list").stdout_has("qwen-s-1");
}

/// Whatever a line of the log has become, all others are in the session, and the hook says how many
/// are not.
#[test]
fn a_line_of_qwen_code_that_cannot_be_read_costs_only_itself() {
    let record = |at: usize| {
        let (kind, role) = [("user", "user"), ("assistant", "model")][at % 2];
        json!({"uuid": at.to_string(), "parentUuid": at.checked_sub(1).map(|at| at.to_string()), "type": kind,
            "sessionId": "s-1", "message": {"role": role, "parts": [{"text": format!("item-{at} on the shelf")}]}})
            .to_string()
    };
    for (broken, left_out) in [
        (record(7).replace("item-7", "item-7 \\ud83d"), None),
        (record(7).replace("\"s-1\"", "1e999"), None),
        (record(7)[..40].to_owned(), Some("1 line")),
        ("{\n{".to_owned(), Some("2 lines")),
    ] {
        let home = Home::new();
        home.put("home/config.yaml", "context: {engine: lcm}\n");
        let mut lines: Vec<String> = (0..28).map(record).collect();
        lines[7] = broken.clone();
        home.put("log.jsonl", &lines.join("\n"));
        let before = event(&home, "PreCompact", json!({"trigger": "auto"}));
        let ran = home.pipe(["hook", "qwen"], &before);
        ran.exits(0);
        match left_out {
            Some(lines) => ran
                .stderr_has(&format!("{lines} of "))
                .stderr_has("log.jsonl"),
            None => ran.stderr_lacks("log.jsonl"),
        };
        let export = home.done("sessions export qwen-s-1");
        for at in (0..28).filter(|at| *at != 7) {
            assert!(
                export.stdout.contains(&format!("item-{at} on")),
                "{broken}: {at}"
            );
        }
    }
}

/// JavaScript writes half of a surrogate pair if it cuts a text inside a character.
#[test]
fn half_a_character_does_not_stop_the_hooks_of_plugins() {
    for agent in ["pi", "opencode", "openclaw"] {
        let home = Home::new();
        home.put("home/config.yaml", "context: {engine: lcm}\n");
        let message = |at: usize| {
            let role = ["user", "assistant"][at % 2];
            let parts = json!([{"type": "text", "text": format!("item-{at} cut HALF here {}", "x".repeat(900))}]);
            match agent {
                "pi" => json!({"type": "message", "message": {"role": role, "content": parts}}),
                "opencode" => json!({"info": {"role": role}, "parts": parts}),
                _ => json!({"role": role, "content": parts}),
            }
        };
        let messages: Vec<Value> = (0..60).map(message).collect();
        let member = if agent == "pi" { "entries" } else { "messages" };
        let event = json!({
            "event": "compact", "session_id": "s", "cwd": home.path("."), "window": 16_000, member: messages,
        });
        let event = event.to_string().replace("HALF", "\\ud83d");
        let answered = home.pipe(["hook", agent], event.as_bytes());
        answered.exits(0);
        assert!(json(&answered.stdout).is_object());
        home.done("sessions list").stdout_has(&format!("{agent}-s"));
    }
}

/// Claude Code passes on the words of `/compact WORDS` under a name of its own.
#[test]
fn the_words_of_the_user_say_what_the_summary_is_about() {
    let said = |words: Value| {
        let home = Home::new();
        home.put("log.jsonl", &claude_code_log(200));
        let before = event(&home, "PreCompact", words);
        home.pipe(["hook", "claude"], &before).exits(0);
        let after = event(&home, "SessionStart", json!({"source": "compact"}));
        home.pipe(["hook", "claude"], &after)
            .exits(0)
            .stdout
            .clone()
    };
    let plain = said(json!({}));
    for nothing in ["", " "] {
        assert_eq!(said(json!({"custom_instructions": nothing})), plain);
    }
    let focused = said(json!({"custom_instructions": "file_57"}));
    assert_ne!(focused, plain);
    assert_eq!(said(json!({"focus": "file_57"})), focused);
}

#[test]
fn a_hook_that_fails_never_ends_with_two_and_leaves_no_older_text() {
    let home = Home::new();
    home.put("log.jsonl", &claude_code_log(60));
    let before = event(&home, "PreCompact", json!({}));
    let after = event(&home, "SessionStart", json!({"source": "compact"}));
    home.pipe(["hook", "claude"], &before).exits(0);
    for broken in [
        b"no JSON".to_vec(),
        b"{}".to_vec(),
        event(&home, "PreCompact", json!({"transcript_path": "/nowhere"})),
        event(&home, "PreCompact", json!({"transcript_path": null})),
        // It has no end.
        event(&home, "PreCompact", json!({"transcript_path": "/dev/zero"})),
    ] {
        home.pipe(["hook", "claude"], &broken)
            .exits(1)
            .stdout_is("")
            .stderr_has("own compaction");
    }
    home.pipe(["hook", "claude"], &after).exits(0).stdout_is("");
    home.put("home/config.yaml", "context: [");
    home.pipe(["hook", "claude"], &before)
        .exits(1)
        .stderr_has("own compaction");
}

#[test]
fn a_subagent_compacts_by_itself() {
    let home = Home::new();
    home.put("log.jsonl", &claude_code_log(60));
    let before = event(&home, "PreCompact", json!({"agent_id": "a"}));
    home.pipe(["hook", "claude"], &before)
        .exits(0)
        .stdout_is("");
}

#[test]
fn plugins_get_the_text_at_once_and_a_longer_history_later() {
    let entries = |count: usize| -> Vec<_> {
        (0..count)
            .map(|at| {
                let role = ["user", "assistant"][at % 2];
                let text = format!("item-{at} is on the shelf {}", "x".repeat(3_000));
                json!({"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}]}})
            })
            .collect()
    };
    let messages = |count: usize| -> Vec<_> {
        let entries = entries(count);
        let message = |entry: &serde_json::Value| json!({"info": {"role": entry["message"]["role"]}, "parts": entry["message"]["content"]});
        entries.iter().map(message).collect()
    };
    for agent in ["pi", "opencode"] {
        let home = Home::new();
        for count in [60, 120] {
            let mut event = json!({"event": "compact", "session_id": "s", "cwd": home.path(".")});
            match agent {
                "opencode" => event["messages"] = messages(count).into(),
                _ => event["entries"] = entries(count).into(),
            }
            let answered = home.pipe(["hook", agent], event.to_string().as_bytes());
            answered.exits(0);
            let summary = json(&answered.stdout)["summary"]
                .as_str()
                .unwrap()
                .to_owned();
            let last = format!("item-{} ", count - 2);
            assert!(
                summary.contains("item-0 ") && summary.contains(&last),
                "{summary}"
            );
            assert!(summary.len() < 40_000, "{}", summary.len());
            let event = json!({"event": "summary", "session_id": "s"}).to_string();
            let again = home.pipe(["hook", agent], event.as_bytes());
            assert_eq!(json(&again.stdout)["summary"], summary);
        }
        home.done("sessions list").stdout_has(&format!("{agent}-s"));
    }
}

/// A turn of OpenClaw: the user's message, what OpenClaw adds for the model alone, and an answer.
fn openclaw_turn(at: usize) -> [Value; 3] {
    let said = format!("item-{at} is on the shelf {}", "x".repeat(3_000));
    [
        json!({"role": "user", "content": said, "timestamp": at}),
        json!({"role": "custom", "customType": "openclaw.runtime-context", "content": format!("state-{at}"), "timestamp": at}),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}, {"type": "text", "text": "Noted."},
        ], "stopReason": "stop", "timestamp": at}),
    ]
}

fn openclaw(home: &Home, event: &Value) -> Value {
    let answered = home.pipe(["hook", "openclaw"], event.to_string().as_bytes());
    answered.exits(0);
    json(&answered.stdout)
}

#[test]
fn openclaw_gets_the_window_of_the_engine() {
    let home = Home::new();
    home.put("home/config.yaml", "context: {engine: lcm}\n");
    let messages = |turns: usize| (0..turns).flat_map(openclaw_turn).collect::<Vec<Value>>();
    let event = |name: &str, turns: usize| json!({"event": name, "session_id": "s", "messages": messages(turns), "window": 16_000});
    let whole = openclaw(&home, &event("assemble", 4));
    assert_eq!(whole["messages"], Value::Null, "{whole}");
    assert_eq!(whole["compacted"], false);

    let tool = json!({"event": "tool", "session_id": "s", "tool": "lcm_grep", "arguments": {"pattern": "item-0"}});
    let unknown = json!({"event": "tool", "session_id": "t", "tool": "lcm_grep"});
    assert!(openclaw(&home, &unknown)["error"].is_string());
    let refused = json!({"event": "tool", "session_id": "s", "tool": "lcm_grep", "arguments": {"pattern": 1}});
    assert!(openclaw(&home, &refused)["error"].is_string());

    let mut compacted = 0;
    for turns in [40, 80, 81] {
        let answer = openclaw(&home, &event("assemble", turns));
        compacted += usize::from(answer["compacted"] == true);
        let tokens = answer["tokens"].as_u64().unwrap();
        assert!(0 < tokens && tokens < 16_000, "{answer}");
        let window = answer["messages"].as_array().unwrap();
        let summary = window.iter().find(|entry| entry.is_object()).unwrap();
        assert_eq!(summary["role"], "user");
        let text = summary["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("lcm_"), "{text}");
        // The end is kept, with what OpenClaw had added to each turn.
        let kept: Vec<u64> = window.iter().filter_map(Value::as_u64).collect();
        let last = (turns * 3) as u64;
        assert_eq!(kept[kept.len() - 3..], [last - 3, last - 2, last - 1]);
        assert!(kept.is_sorted());
        for at in kept.iter().filter(|at| *at % 3 == 1) {
            assert!(kept.contains(&(at - 1)), "{kept:?}");
        }
        // The same question has the same answer.
        let again = openclaw(&home, &event("assemble", turns));
        assert_eq!(again["messages"], answer["messages"]);
        let found = openclaw(&home, &tool);
        assert!(
            found["text"].as_str().unwrap().contains("item-0 is on"),
            "{found}"
        );
    }
    assert!(compacted >= 2);
    home.done("sessions list").stdout_has("openclaw-s");

    let forced = openclaw(&home, &event("compact", 90));
    assert_eq!(forced["compacted"], true, "{forced}");
    assert!(forced["tokens"].as_u64() < forced["tokens_before"].as_u64());
    for broken in [
        json!({"event": "assemble", "session_id": "s"}),
        json!({"event": "other", "session_id": "s"}),
    ] {
        home.pipe(["hook", "openclaw"], broken.to_string().as_bytes())
            .exits(1)
            .stdout_is("")
            .stderr_has("own compaction");
    }
}

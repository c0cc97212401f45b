//! A configuration that is read again while sessions are open.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use contexture::config::ConfigError;
use contexture::{Host, HostError, HostOptions, Session, TurnOptions};
use contexture_engine_api::{
    About, Compaction, CompressRequest, ContextEngine, Decision, EngineError, Entry, HostInfo,
    MessageView, OpenRequest, Outcome, StandaloneEngine, WindowState, register_engine, safe_cut,
};
use serde_json::{Value, json};
use tempfile::TempDir;

thread_local! {
    /// What happens while engines are searched for the next time.
    static WHILE_SEARCHED: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Keeps the last messages.
struct Newest(usize);

register_engine!("newest", Newest);

impl StandaloneEngine for Newest {
    fn about(_host: &HostInfo) -> About {
        if let Some(happens) = WHILE_SEARCHED.take() {
            happens();
        }
        let settings = json!({"properties": {"keep": {"type": "integer", "minimum": 1}}});
        About::default().settings(Some(settings))
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let settings: Value = request.settings()?;
        Ok(Self(settings["keep"].as_u64().unwrap_or(4) as usize))
    }
}

impl ContextEngine for Newest {
    fn should_compress(&self, window: &WindowState) -> Decision {
        match window.messages > 12 {
            true => Decision::Yes("more than twelve".into()),
            false => Decision::No("few".into()),
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        let cut = safe_cut(messages, messages.len().saturating_sub(self.0));
        let mut entries = vec![Entry::summary(
            format!("{cut} messages were left out."),
            messages[..cut].iter().map(MessageView::id).collect(),
        )];
        entries.extend(messages[cut..].iter().map(|m| Entry::Keep(m.id())));
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }
}

/// A home, and an agent in it.
struct Agent {
    home: TempDir,
    host: Host,
}

impl Agent {
    fn new(config: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.yaml"), config).unwrap();
        let host = Host::open(&HostOptions::in_home(home.path())).unwrap();
        Self { home, host }
    }

    fn configure(&self, config: &str) {
        fs::write(self.home.path().join("config.yaml"), config).unwrap();
    }

    fn open(&self, id: &str) -> Session {
        let session = self.host.session(id).model("gpt-4o", 128_000);
        session.open().unwrap()
    }
}

/// A conversation of this many messages, and what is handed out of it.
fn turn(session: &mut Session, messages: usize) -> (String, String) {
    let message = |number| {
        let role = ["user", "assistant"][number % 2];
        json!({"role": role, "content": format!("the {number}. thing about pumps")})
    };
    let messages: Vec<_> = (0..messages).map(message).collect();
    let request = json!({"model": "gpt-4o", "messages": messages}).to_string();
    let handed_out = session.turn(&request).unwrap().body.to_string();
    (request, handed_out)
}

/// What is said in the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn of(code: impl FnOnce()) -> String {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, code);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn an_engine_is_swapped_in_the_middle_of_a_session() {
    let agent = Agent::new("context: {engine: compressor}\n");
    let mut stays = agent.open("stays");
    let mut swapped = agent.open("swapped");
    for session in [&mut stays, &mut swapped] {
        let (request, handed_out) = turn(session, 21);
        assert_eq!(request, handed_out);
    }
    agent.configure("context: {engine: newest, engines: {newest: {keep: 6}}}\n");
    agent.host.reload().unwrap();

    // What is open goes on as it is.
    let (request, handed_out) = turn(&mut stays, 23);
    assert_eq!(request, handed_out);
    assert_eq!(stays.engine().name(), "compressor");

    drop(swapped);
    let mut swapped = agent.open("swapped");
    assert_eq!(swapped.engine().name(), "newest");
    assert_eq!(
        swapped.take_warnings(),
        ["the engine `newest` takes over the session `swapped` from `compressor`"]
    );
    let (_, handed_out) = turn(&mut swapped, 23);
    assert!(
        handed_out.contains("17 messages were left out."),
        "{handed_out}"
    );
    assert!(handed_out.contains("the 17. thing"), "{handed_out}");
    drop(swapped);

    for id in ["swapped", "another"] {
        let mut session = agent.open(id);
        assert_eq!(session.engine().name(), "newest");
        assert_eq!(session.take_warnings(), [""; 0], "{id}");
    }

    // And back, with the summary that is in force.
    agent.configure("context: {engine: compressor}\n");
    agent.host.reload().unwrap();
    let mut swapped = agent.open("swapped");
    assert_eq!(swapped.engine().name(), "compressor");
    assert_eq!(swapped.take_warnings().len(), 1);
    let (_, handed_out) = turn(&mut swapped, 25);
    assert!(
        handed_out.contains("17 messages were left out."),
        "{handed_out}"
    );
}

#[test]
fn a_known_session_goes_on_with_its_own_engine() {
    let agent = Agent::new("");
    let named = agent.host.session("s").model("gpt-4o", 128_000);
    turn(&mut named.engine("newest").open().unwrap(), 21);
    let mut own = agent.open("s");
    assert_eq!(own.engine().name(), "newest");
    assert_eq!(own.take_warnings(), [""; 0]);
    drop(own);
    assert_eq!(agent.open("new").engine().name(), "compressor");

    agent.configure("context: {engine: compressor}\n");
    agent.host.reload().unwrap();
    let mut taken_over = agent.open("s");
    assert_eq!(taken_over.engine().name(), "compressor");
    assert_eq!(
        taken_over.take_warnings(),
        ["the engine `compressor` takes over the session `s` from `newest`"]
    );
}

#[test]
fn a_configuration_that_is_read_while_plugins_are_searched_stays_in_force() {
    let agent = Rc::new(Agent::new("context: {engine: compressor}\n"));
    let plugin = agent.home.path().join("plugins/context_engine/new");
    fs::create_dir_all(&plugin).unwrap();
    fs::write(plugin.join("plugin.yaml"), "").unwrap();
    let reloads = Rc::clone(&agent);
    WHILE_SEARCHED.set(Some(Box::new(move || {
        reloads.configure("context: {engine: newest}\n");
        reloads.host.reload().unwrap();
    })));
    agent.host.look_at_plugins();
    assert!(WHILE_SEARCHED.take().is_none(), "the plugins changed");
    assert_eq!(agent.open("s").engine().name(), "newest");
}

#[test]
fn a_wrong_configuration_leaves_the_last_good_one_in_force_and_is_told() {
    let good = "context: {engine: newest, on_failure: passthrough, engines: {newest: {keep: 6}}}\n";
    let agent = Agent::new(good);
    for (wrong, says) in [
        ("context: [", "config.yaml:"),
        (
            "compression: {threshold: 9}\n",
            "`compression.threshold` is 9",
        ),
        (
            "context: {engines: {newest: {kep: 2}}}\n",
            "did you mean `context.engines.newest.keep`?",
        ),
        ("context: {engines: {newest: {keep: 0}}}\n", "at least 1"),
        (
            "compression: {template: missing.md}\n",
            "`compression.template` cannot be used",
        ),
        ("", "config.yaml is empty or gone"),
        ("# nothing yet\n", "config.yaml is empty or gone"),
    ] {
        agent.configure(wrong);
        let mut error = None;
        let log = Log::of(|| error = Some(agent.host.reload().unwrap_err()));
        let error = error.unwrap();
        assert!(error.to_string().contains(says), "{wrong}: {error}");
        assert!(
            matches!(
                error,
                HostError::Config(ConfigError::Document(_) | ConfigError::Invalid(_))
                    | HostError::Emptied(_)
            ),
            "{wrong}: {error:?}"
        );
        assert!(
            log.contains("the last good configuration stays in force"),
            "{log}"
        );
        assert!(log.contains("WARN") && log.contains(says), "{log}");
        let mut session = agent.open(&format!("after {says}"));
        let (_, handed_out) = turn(&mut session, 21);
        assert!(
            handed_out.contains("15 messages were left out."),
            "{handed_out}"
        );
    }
    fs::remove_file(agent.home.path().join("config.yaml")).unwrap();
    let error = agent.host.reload().unwrap_err();
    assert!(matches!(error, HostError::Emptied(_)), "{error:?}");
    agent.configure(&good.replace('6', "3"));
    agent.host.reload().unwrap();
    let (_, handed_out) = turn(&mut agent.open("mended"), 21);
    assert!(
        handed_out.contains("18 messages were left out."),
        "{handed_out}"
    );
}

#[test]
fn pauses_outlive_the_process() {
    const HOUR_TTL: &str = r#""ttl": "1h""#;
    let agent = Agent::new("prompt_caching: {cache_ttl: auto}\n");
    // Asked at these minutes; what the last request is kept for.
    let ask = |host: &Host, id: &str, minutes: &[i64]| {
        let session = host.session(id).model("claude-sonnet-4-5", 200_000);
        let mut session = session.provider("anthropic").open().unwrap();
        let mut messages = Vec::new();
        let mut body = String::new();
        for minute in minutes {
            messages.push(json!({"role": "user", "content": "words of a story ".repeat(2_000)}));
            let request = json!({
                "model": "claude-sonnet-4-5", "max_tokens": 100, "system": "Read.", "messages": messages,
            })
            .to_string();
            let options = TurnOptions::default().time_ms(Some(minute * 60_000));
            let turn = session.turn_with(&request, None, &options).unwrap();
            body = turn.body.replace("\":\"", "\": \"");
            let answer = json!({"role": "assistant", "content": "Yes."});
            session.answer(&[&answer.to_string()], None).unwrap();
            messages.push(answer);
        }
        body
    };
    assert!(!ask(&agent.host, "first", &[0, 1]).contains(HOUR_TTL));
    // Coffee after each question.
    assert!(ask(&agent.host, "first", &[100, 120, 140, 160, 180]).contains(HOUR_TTL));
    let restarted = Host::open(&HostOptions::in_home(agent.home.path())).unwrap();
    assert!(
        ask(&restarted, "second", &[500]).contains(HOUR_TTL),
        "of the same user"
    );
    let elsewhere = Agent::new("prompt_caching: {cache_ttl: auto}\n");
    assert!(!ask(&elsewhere.host, "second", &[500]).contains(HOUR_TTL));
}

//! An engine that does, on purpose, the wrong thing that its setting `fault` names, and is otherwise a
//! plain one: it keeps the first and the last messages and puts one line in place of the middle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contexture_engine_api::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// What to do wrong: `panic:METHOD`, `hang:METHOD`, `spin:METHOD`, `error:METHOD`, `exit:METHOD`,
    /// `segfault:METHOD`, `eat:METHOD` (all memory), `print:METHOD`, `chdir:METHOD`, `bomb:METHOD` (a panic whose payload panics when it is dropped), or one of the
    /// faults of `Misbehaving::spoil`. `METHOD` may be `drop`.
    #[serde(default)]
    fault: String,
    /// Only in sessions whose name begins so.
    #[serde(default)]
    session: String,
    /// Only so often in each session; always if it is missing.
    times: Option<u64>,
}

struct Misbehaving {
    fault: String,
    /// How often it still does it.
    left: AtomicU64,
    data_dir: std::path::PathBuf,
}

const KEEP_LAST: usize = 4;

/// What a panic carries that panics again.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload that panics in its own drop");
    }
}

impl Drop for Misbehaving {
    fn drop(&mut self) {
        self.enter_infallible("drop");
    }
}

/// Does while the library is loaded what the environment says: `hang`, or anything else to say that it was.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        match std::env::var("MISBEHAVING_CONSTRUCTOR").as_deref() {
            Ok("hang") => hang(),
            Ok("abort") => std::process::abort(),
            Ok("exec") => {
                use std::os::unix::process::CommandExt;
                let error = std::process::Command::new("true").exec();
                panic!("{error}");
            }
            Ok("exit") => std::process::exit(0),
            Ok(_) => eprintln!("the constructor ran"),
            Err(_) => {}
        }
    }
    constructor
};

/// Deaf to cancellation, but not for ever, so that a test ends; it says so where somebody waited for it.
fn hang() {
    std::thread::sleep(Duration::from_secs(120));
    eprintln!("somebody waited for the hang to end");
}

/// A title for the terminal, and other sequences that no terminal is to get.
const ESCAPES: &str = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\r\x08";

impl Misbehaving {
    /// Panics, hangs or fails if that is the fault of this method.
    fn enter(&self, method: &str) -> Result<(), EngineError> {
        let is_fault = |(_, at): (&str, &str)| at == method;
        if self.fault.split_once(':').is_some_and(is_fault) {
            let less = |left: u64| left.checked_sub(1);
            let left = (self.left).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            if left.is_err() {
                return Ok(());
            }
        }
        match self.fault.split_once(':') {
            Some(("panic", at)) if at == method => panic!("misbehaving on purpose in {method}"),
            Some(("hang", at)) if at == method => {
                hang();
                Ok(())
            }
            Some(("exit", at)) if at == method => std::process::exit(0),
            Some(("segfault", at)) if at == method => {
                let id = std::process::id().to_string();
                // The first takes away the handler with which Rust looks for stacks that overflow.
                for _ in 0..2 {
                    let mut kill = std::process::Command::new("kill");
                    let killed = kill.args(["-SEGV", &id]).status();
                    assert!(killed.is_ok());
                    std::thread::sleep(Duration::from_millis(50));
                }
                // The signal comes when it comes.
                hang();
                Ok(())
            }
            Some(("spin", at)) if at == method => loop {
                std::hint::spin_loop();
            },
            Some(("eat", at)) if at == method => {
                let mut eaten = Vec::new();
                loop {
                    eaten.push(vec![1_u8; 16 << 20]);
                    std::hint::black_box(&eaten);
                }
            }
            Some(("bomb", at)) if at == method => std::panic::panic_any(Bomb),
            Some(("print", at)) if at == method => {
                println!("printed on purpose in {method}");
                Ok(())
            }
            Some(("chdir", at)) if at == method => std::env::set_current_dir("/")
                .map_err(|error| EngineError::Other(error.to_string())),
            Some(("escape-error", at)) if at == method => Err(EngineError::Other(ESCAPES.into())),
            Some(("escape-panic", at)) if at == method => panic!("{ESCAPES}"),
            Some(("error", at)) if at == method => {
                Err(EngineError::Other("it is broken, on purpose".into()))
            }
            _ => Ok(()),
        }
    }

    fn enter_infallible(&self, method: &str) {
        if let Err(error) = self.enter(method) {
            panic!("{error}");
        }
    }

    /// Turns an honest proposal into the wrong one that the setting names.
    fn spoil(&self, messages: &[MessageView<'_>], mut entries: Vec<Entry>) -> Vec<Entry> {
        let summary_at = entries
            .iter()
            .position(|entry| matches!(entry, Entry::Summary(_)))
            .unwrap_or(0);
        match self.fault.as_str() {
            "id-twice" => entries.push(Entry::Keep(messages[0].id())),
            "id-missing" => {
                entries.pop();
            }
            "id-unknown" => entries.push(Entry::Keep(MessageId(999_999))),
            "drops-user" => {
                let user = messages.iter().rposition(MessageView::is_real_user);
                if let Some(id) = user.map(|at| messages[at].id()) {
                    entries.retain(|entry| !entry.ids().contains(&id) || entry.ids().len() > 1);
                    if !entries.iter().any(|entry| entry.ids().contains(&id)) {
                        let reason = "on purpose";
                        entries.push(Entry::dropped(id, reason));
                    }
                }
            }
            "splits-group" => {
                // Cover a call and keep its result, or the other way round.
                let call = messages
                    .iter()
                    .rev()
                    .find(|message| !message.tool_calls().is_empty());
                if let Some(id) = call.map(MessageView::id) {
                    for entry in &mut entries {
                        if entry.ids() == [id] {
                            let reason = "on purpose";
                            *entry = Entry::dropped(id, reason);
                        }
                    }
                }
            }
            "grows" => {
                if let Some(Entry::Summary(summary)) = entries.get_mut(summary_at) {
                    summary.text = "a very long summary indeed ".repeat(100_000);
                }
            }
            "reorders" => {
                let last = entries.len() - 1;
                entries.swap(last, last - 1);
            }
            "wrong-arguments" => {
                let call = messages.iter().rev().find(|m| !m.tool_calls().is_empty());
                if let Some(id) = call.map(MessageView::id) {
                    for entry in &mut entries {
                        if entry.ids() == [id] {
                            let arguments = vec![ShortArguments::new(0, "{\"cut\": ")];
                            *entry = Entry::Replace(Replacement::new(id).arguments(arguments));
                        }
                    }
                }
            }
            "empty" => entries.clear(),
            _ => {}
        }
        entries
    }

    /// Keeps reading what it borrowed until long after its deadline, and leaves a note of whether it
    /// was still whole.
    fn read_past_the_deadline(&self, messages: &[MessageView<'_>]) {
        let sum = |messages: &[MessageView<'_>]| -> u64 {
            messages
                .iter()
                .flat_map(|message| message.text().bytes())
                .map(u64::from)
                .sum()
        };
        let before = sum(messages);
        let until = Instant::now() + Duration::from_secs(4);
        let mut whole = true;
        while Instant::now() < until {
            whole &= sum(messages) == before;
            std::thread::sleep(Duration::from_millis(20));
        }
        let note = if whole { "whole" } else { "torn" };
        let written = std::fs::write(self.data_dir.join("borrowed"), note);
        assert!(written.is_ok());
    }
}

impl StandaloneEngine for Misbehaving {
    fn about(_host: &HostInfo) -> About {
        About::default().selects(true)
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let settings: Settings = request.settings()?;
        let is_meant = request.session.starts_with(&settings.session);
        let engine = Self {
            fault: if is_meant {
                settings.fault
            } else {
                String::new()
            },
            left: AtomicU64::new(settings.times.unwrap_or(u64::MAX)),
            data_dir: request.data_dir.to_owned(),
        };
        engine.enter("open")?;
        Ok(engine)
    }
}

impl ContextEngine for Misbehaving {
    fn should_compress(&self, window: &WindowState) -> Decision {
        self.enter_infallible("should_compress");
        if self.fault == "escape-reason" {
            return Decision::No(ESCAPES.into());
        }
        if window.best_prompt_tokens() * 2 >= window.context_length {
            Decision::Yes("half full".into())
        } else {
            Decision::No("less than half full".into())
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.enter("compress")?;
        let messages = request.messages;
        if self.fault == "reads-past-deadline" {
            self.read_past_the_deadline(messages);
        }
        match self.fault.as_str() {
            "rests" => return Ok(Outcome::NothingToDo("on purpose".into())),
            "defers" => return Ok(Outcome::Deferred("on purpose".into())),
            _ => {}
        }
        let user = messages.iter().rposition(MessageView::is_real_user);
        let cut = match self.fault.as_str() {
            "too-little" => 4,
            _ => messages.len().saturating_sub(KEEP_LAST),
        };
        let cut = safe_cut(messages, cut.min(user.unwrap_or(cut)));
        if cut < 2 {
            return Ok(Outcome::NothingToDo("too short".into()));
        }
        let mut entries = vec![Entry::summary(
            format!("{cut} earlier messages."),
            messages[..cut].iter().map(MessageView::id).collect(),
        )];
        entries.extend(messages[cut..].iter().map(|m| Entry::Keep(m.id())));
        let entries = self.spoil(messages, entries);
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        self.enter("observe")?;
        let bytes: usize = delivery
            .messages
            .iter()
            .map(|message| message.text().len())
            .sum();
        std::hint::black_box(bytes);
        Ok(())
    }

    fn update_usage(&mut self, _usage: &Usage) {
        self.enter_infallible("update_usage");
    }

    fn committed(&mut self, _committed: &Committed) {
        self.enter_infallible("committed");
    }

    fn discarded(&mut self, _compaction: u64, _reason: &str) {
        self.enter_infallible("discarded");
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.enter_infallible("tools");
        match self.fault.ends_with(":call_tool") {
            true => {
                let parameters = serde_json::json!({"type": "object"});
                vec![ToolSpec::new(
                    "poke",
                    "Does what the fault says.",
                    parameters,
                )]
            }
            false => Vec::new(),
        }
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        self.enter("call_tool")?;
        Err(EngineError::Unsupported(call.name.clone()))
    }

    fn prune_tool_results(
        &mut self,
        _request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        self.enter("prune_tool_results")?;
        Ok(Outcome::NothingToDo("nothing to prune".into()))
    }

    fn select(
        &mut self,
        _request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        self.enter("select")?;
        Ok(None)
    }

    fn turn_complete(&mut self) {
        self.enter_infallible("turn_complete");
    }

    fn background(&mut self, _request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        self.enter_infallible("background");
        Vec::new()
    }

    fn background_done(&mut self, _id: u64, _answer: Result<ModelAnswer, ModelFailure>) {
        self.enter_infallible("background_done");
    }

    fn model_changed(&mut self, _window: &WindowState) {
        self.enter_infallible("model_changed");
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.enter("reset")
    }

    fn status(&self) -> serde_json::Value {
        self.enter_infallible("status");
        serde_json::Value::Null
    }

    fn end(&mut self) {
        self.enter_infallible("end");
    }
}

export_engine!("misbehaving", Misbehaving);

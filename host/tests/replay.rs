//! Recorded conversations played through engines, with figures worked out by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use contexture::config::Config;
use contexture::engines::register_context_engine;
use contexture::formats::{Conversation, read};
use contexture::prompt_cache::{CacheTtl, Ttl};
use contexture::providers::{ModelClient, NoModel, Resolved};
use contexture::replay::{
    ConversationReport, Played, Prices, Prompts, Recording, Report, Row, Spent, TempHome, play,
    recorded, with_context_editing, without_engine, without_markers,
};
use contexture::session::{AgentWindow, SessionError};
use contexture_engine_api::{
    About, Compaction, CompressRequest, ContextEngine, Decision, Delivery, EngineError, Entry,
    HostInfo, MessageView, OpenRequest, Outcome, StandaloneEngine, ToolSpec, Usage, WindowState,
    define_engine, safe_cut,
};
use serde_json::{Value, json};

/// A text of `tokens` tokens: every ` a` is one, and so is the first `a`.
fn words(tokens: usize) -> String {
    vec!["a"; tokens].join(" ")
}

/// What a message of a text takes: its framing is four tokens.
const fn message(tokens: u64) -> u64 {
    tokens + 4
}

fn one(document: &Value) -> Conversation {
    read(document.to_string(), None).unwrap().remove(0)
}

fn agent(context_length: u64) -> AgentWindow {
    AgentWindow::new("gpt-5", context_length, 1_000)
}

/// A first question of 2,000 tokens, then answers and questions of 100 tokens each.
fn chat(answers: usize) -> Value {
    let mut messages = vec![json!({"role": "user", "content": words(2_000)})];
    for _ in 0..answers {
        messages.push(json!({"role": "assistant", "content": words(100)}));
        messages.push(json!({"role": "user", "content": words(100)}));
    }
    json!({"model": "gpt-5", "messages": messages})
}

fn stage_in(home: &Path, config: &str) -> TempHome {
    std::fs::write(home.join("config.yaml"), config).unwrap();
    let loaded = Config::load(None, &|name| {
        (name == "CONTEXTURE_HOME").then(|| home.as_os_str().to_owned())
    })
    .unwrap();
    let nobody = Resolved::NoModel(NoModel::Offline);
    let client = ModelClient::new(nobody, Duration::from_secs(1), |text| text.into());
    TempHome::new(loaded, client).unwrap()
}

fn stage() -> TempHome {
    let home = tempfile::tempdir().unwrap();
    stage_in(home.path(), "")
}

fn played(stage: &TempHome, engine: &str, recording: &Recording) -> Played {
    play(recording, stage, Some(engine), &mut || {}).unwrap()
}

/// At ten messages cuts to the first and the last three; remembers what it sees.
struct CutAtTen;

static SEEN: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
static REPORTED: Mutex<Vec<Usage>> = Mutex::new(Vec::new());

impl StandaloneEngine for CutAtTen {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        std::fs::write(request.data_dir.join("opened"), request.session).unwrap();
        Ok(Self)
    }
}

impl ContextEngine for CutAtTen {
    fn should_compress(&self, window: &WindowState) -> Decision {
        if window.messages >= 10 {
            Decision::Yes("ten messages".into())
        } else {
            Decision::No("fewer than ten messages".into())
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        let cut = safe_cut(messages, messages.len() - 3);
        let mut entries = vec![
            Entry::Keep(messages[0].id()),
            Entry::summary(
                words(100),
                messages[1..cut].iter().map(MessageView::id).collect(),
            ),
        ];
        entries.extend(messages[cut..].iter().map(|kept| Entry::Keep(kept.id())));
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let seen = delivery
            .messages
            .iter()
            .map(|one| (one.id().0, one.role().to_owned()));
        SEEN.lock().unwrap().extend(seen);
        Ok(())
    }

    fn update_usage(&mut self, usage: &Usage) {
        REPORTED.lock().unwrap().push(*usage);
    }
}

/// The same, but remembers nothing, for tests that run beside the one that looks.
struct Unwatched(CutAtTen);

impl StandaloneEngine for Unwatched {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self(CutAtTen))
    }
}

impl ContextEngine for Unwatched {
    fn should_compress(&self, window: &WindowState) -> Decision {
        self.0.should_compress(window)
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.0.compress(request)
    }
}

/// The same with a note of 20 tokens for the system prompt.
struct CutAndNote(CutAtTen);

impl StandaloneEngine for CutAndNote {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self(CutAtTen))
    }
}

impl ContextEngine for CutAndNote {
    fn should_compress(&self, window: &WindowState) -> Decision {
        self.0.should_compress(window)
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let Outcome::Compacted(compaction) = self.0.compress(request)? else {
            panic!("it always compacts");
        };
        Ok(Outcome::Compacted(
            compaction.system_note(Some(vec!["b"; 20].join(" "))),
        ))
    }
}

/// The same with a tool.
struct CutWithTool(CutAtTen);

impl StandaloneEngine for CutWithTool {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self(CutAtTen))
    }
}

impl ContextEngine for CutWithTool {
    fn should_compress(&self, window: &WindowState) -> Decision {
        self.0.should_compress(window)
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.0.compress(request)
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new(
            "recall",
            words(50),
            json!({"type": "object"}),
        )]
    }
}

/// The same, but never asks to.
struct Silent(CutAtTen);

impl StandaloneEngine for Silent {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self(CutAtTen))
    }
}

impl ContextEngine for Silent {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No("never".into())
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.0.compress(request)
    }
}

/// Never compacts; remembers what it is told of usage.
struct Listens;

static HEARD: Mutex<Vec<Usage>> = Mutex::new(Vec::new());

impl StandaloneEngine for Listens {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for Listens {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No("never".into())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::NothingToDo("never".into()))
    }

    fn update_usage(&mut self, usage: &Usage) {
        HEARD.lock().unwrap().push(*usage);
    }
}

/// Shows the model the last question alone.
struct LastQuestion;

impl StandaloneEngine for LastQuestion {
    fn about(_host: &HostInfo) -> About {
        About::default().selects(true)
    }

    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for LastQuestion {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No("never".into())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::NothingToDo("it selects".into()))
    }

    fn select(&mut self, request: &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError> {
        let last = request.messages.len() - 1;
        let entries = request
            .messages
            .iter()
            .enumerate()
            .map(|(at, message)| match at {
                at if at == last => Entry::Keep(message.id()),
                _ => Entry::dropped(message.id(), "old"),
            })
            .collect();
        Ok(Some(Compaction::new(entries)))
    }
}

/// Wants to compact and cannot.
struct Broken;

impl StandaloneEngine for Broken {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for Broken {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::Yes("always".into())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Err(EngineError::Other("the store is gone".into()))
    }
}

fn register_all() {
    register_context_engine(define_engine!("cut-at-ten", CutAtTen)).unwrap();
    register_context_engine(define_engine!("cut-unwatched", Unwatched)).unwrap();
    register_context_engine(define_engine!("cut-with-tool", CutWithTool)).unwrap();
    register_context_engine(define_engine!("cut-and-note", CutAndNote)).unwrap();
    register_context_engine(define_engine!("listens", Listens)).unwrap();
    register_context_engine(define_engine!("silent", Silent)).unwrap();
    register_context_engine(define_engine!("last-question", LastQuestion)).unwrap();
    register_context_engine(define_engine!("broken", Broken)).unwrap();
}

#[test]
fn without_an_engine_each_prompt_is_the_last_and_what_came_since() {
    let recording = Recording::new(one(&chat(3)), agent(2_300));
    let prompts = without_engine(&recording, Ttl::FiveMinutes);
    let (first, more) = (message(2_000), 2 * message(100));
    assert_eq!(
        prompts,
        Prompts {
            requests: 3,
            overflows: 1,
            peak_prompt_tokens: first + 2 * more,
            prompt_tokens: first + (first + more) + (first + 2 * more),
            each_prompt_tokens: vec![first, first + more, first + 2 * more],
            cached_tokens: first + (first + more),
            written_tokens: first + 2 * more,
            long_written_tokens: 0,
            spent: Spent {
                messages_read_tokens: first + (first + more),
                new_written_tokens: first + 2 * more,
                ..Spent::default()
            },
        }
    );
    // 4,216 tokens at $0.30 and 2,420 at $3.75 a million.
    let cost = Prices::sonnet(Ttl::FiveMinutes).cost(&prompts);
    assert!((cost - 0.0103398).abs() < 1e-12, "{cost}");
    assert_eq!(recorded(&recording), None);
}

#[test]
fn the_providers_own_editing_clears_what_is_beyond_its_rules_and_pays_for_it_in_the_cache() {
    let mut messages = vec![json!({"role": "user", "content": "Look."})];
    for at in 0..6 {
        let id = format!("call_{at}");
        let call =
            json!({"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": words(30_000)}));
    }
    messages.push(json!({"role": "assistant", "content": "Done."}));
    let body = json!({"model": "gpt-5", "messages": messages});
    let recording = Recording::new(one(&body), agent(200_000));
    let none = without_engine(&recording, Ttl::FiveMinutes);
    let edited = with_context_editing(&recording, Ttl::FiveMinutes);
    let thousands = |prompts: &Prompts| prompts.prompt_tokens / 1_000;
    // With no result in the first prompt and one more in each; of more than three the last three are left.
    assert_eq!(thousands(&none), 30 * (1 + 2 + 3 + 4 + 5 + 6));
    assert_eq!(thousands(&edited), 30 * (1 + 2 + 3 + 3 + 3 + 3));
    // From the first prompt that was edited on nothing behind the results that are cleared is found again.
    assert_eq!(none.written_tokens / 1_000, 30 * 6);
    assert_eq!(edited.written_tokens / 1_000, 30 * (3 + 3 + 3 + 3));
    let uncached = without_markers(&recording);
    assert_eq!((uncached.cached_tokens, uncached.written_tokens), (0, 0));
    assert_eq!(uncached.prompt_tokens, none.prompt_tokens);
}

#[test]
fn a_pause_longer_than_the_cache_lives_is_paid_for() {
    let line = |ts: u64, role, text| json!({"ts": ts, "role": role, "content": text}).to_string();
    // The pause before the third question is 301 s after the second was sent.
    let lines = [
        line(1_000, "user", words(2_000)),
        line(1_009, "assistant", words(100)),
        line(1_010, "user", words(100)),
        line(1_020, "assistant", words(100)),
        line(1_311, "user", words(100)),
        line(1_320, "assistant", words(100)),
    ];
    let conversation = read(lines.join("\n"), None).unwrap().remove(0);
    let recording = Recording::new(conversation, agent(100_000));
    let (first, more) = (message(2_000), 2 * message(100));
    let cached = |ttl| without_engine(&recording, ttl).cached_tokens;
    assert_eq!(cached(Ttl::FiveMinutes), first);
    assert_eq!(cached(Ttl::OneHour), first + (first + more));
}

#[test]
fn a_compaction_shrinks_the_prompt_and_costs_the_cache_what_follows_it() {
    register_all();
    let home = tempfile::tempdir().unwrap();
    let stage = stage_in(home.path(), "");
    let recording = Recording::new(one(&chat(6)), agent(100_000));
    SEEN.lock().unwrap().clear();
    REPORTED.lock().unwrap().clear();
    let mut steps = 0;
    let result = play(&recording, &stage, Some("cut-at-ten"), &mut || steps += 1).unwrap();

    assert_eq!(steps, 6);
    assert_eq!(
        (result.engine.as_str(), result.warnings.as_slice()),
        ("cut-at-ten", &[][..])
    );
    assert_eq!(result.work.compactions, 1);
    assert!(result.work.engine_ms >= result.work.worst_turn_ms && result.work.worst_turn_ms > 0.0);
    // Five requests grow from 2,004 by 208; before the sixth there are eleven messages, of which the
    // first and the last three stay around a summary of 100 tokens and its marks.
    let (first, more) = (message(2_000), 2 * message(100));
    let grown: Vec<u64> = (0..5).map(|n| first + n * more).collect();
    let prompts = &result.prompts;
    let last = prompts.prompt_tokens - grown.iter().sum::<u64>();
    let summary = last - first - 3 * message(100);
    assert!((104..140).contains(&summary), "{summary}");
    assert_eq!(prompts.peak_prompt_tokens, first + 4 * more);
    assert_eq!(
        prompts.cached_tokens,
        grown[..4].iter().sum::<u64>() + first
    );
    assert_eq!(prompts.written_tokens, grown[4] + last - first);

    let seen = SEEN.lock().unwrap();
    let expected: Vec<(u64, String)> = (1..=12)
        .map(|id| {
            (
                id,
                if id % 2 == 1 { "user" } else { "assistant" }.to_owned(),
            )
        })
        .collect();
    let ids: Vec<u64> = seen.iter().map(|(id, _)| *id).collect();
    let roles: Vec<&String> = seen.iter().map(|(_, role)| role).collect();
    assert_eq!(
        roles,
        expected.iter().map(|(_, role)| role).collect::<Vec<_>>()
    );
    assert!(
        ids.windows(2).all(|pair| pair[0] < pair[1]),
        "each once, in order: {ids:?}"
    );
    let reported = REPORTED.lock().unwrap();
    let inputs: Vec<u64> = reported.iter().map(|usage| usage.input_tokens).collect();
    assert_eq!(inputs, [grown.as_slice(), &[last]].concat());
    assert!(
        reported
            .iter()
            .all(|usage| usage.output_tokens == message(100))
    );

    // Nothing stays in the user's own home.
    assert!(!home.path().join("engines").exists());
}

#[test]
fn of_a_message_that_a_summary_joins_anthropic_finds_the_blocks_before_it() {
    register_all();
    let mut messages = vec![json!({"role": "user", "content": words(2_000)})];
    for call in 0..6 {
        let id = format!("toolu_{call}");
        let asks = json!([{"type": "tool_use", "id": id, "name": "list", "input": {}}]);
        let says = json!([{"type": "tool_result", "tool_use_id": id, "content": words(100)}]);
        messages.push(json!({"role": "assistant", "content": asks}));
        messages.push(json!({"role": "user", "content": says}));
    }
    let body = json!({"model": "gpt-5", "max_tokens": 1_000, "messages": messages});
    let recording = Recording::new(one(&body), agent(100_000));
    let alone = without_engine(&recording, Ttl::default());
    let result = played(&stage(), "cut-unwatched", &recording);
    assert_eq!(result.work.compactions, 1);
    // The sixth prompt begins with the first message, of which the summary became the second block.
    let found = result.prompts.cached_tokens + result.prompts.peak_prompt_tokens;
    let found = found - alone.cached_tokens;
    assert!(found.abs_diff(message(2_000)) < 20, "{found}");
}

#[test]
fn hygiene_has_an_engine_compact_that_did_not_ask_to() {
    register_all();
    let work = |context_length| {
        let recording = Recording::new(one(&chat(6)), agent(context_length));
        played(&stage(), "silent", &recording).work.compactions
    };
    // The sixth prompt has 3,044 tokens; what remains of 4,000 beside the answer is 3,000.
    assert_eq!(work(4_000), 1);
    assert_eq!(work(4_100), 0);
}

#[test]
fn a_note_at_the_end_of_the_system_prompt_costs_the_cache_all_messages_once() {
    register_all();
    let mut body = chat(7);
    let system = json!({"role": "system", "content": words(1_500)});
    body["messages"].as_array_mut().unwrap().insert(0, system);
    let recording = Recording::new(one(&body), agent(100_000));
    let noted = played(&stage(), "cut-and-note", &recording).prompts;
    let plain = played(&stage(), "cut-unwatched", &recording).prompts;
    // The note is in the sixth prompt and the seventh.
    assert_eq!(noted.prompt_tokens, plain.prompt_tokens + 2 * 20);
    // The sixth finds only the system prompt, not the first message after it; the seventh all of the
    // sixth, note included.
    assert_eq!(
        noted.cached_tokens,
        plain.cached_tokens - message(2_000) + 20
    );
}

#[test]
fn a_view_is_what_is_sent() {
    register_all();
    let recording = Recording::new(one(&chat(3)), agent(100_000));
    let result = played(&stage(), "last-question", &recording);
    assert_eq!(result.warnings, Vec::<String>::new());
    let prompts = result.prompts;
    assert_eq!(prompts.peak_prompt_tokens, message(2_000));
    assert_eq!(prompts.prompt_tokens, message(2_000) + 2 * message(100));
    assert_eq!(prompts.cached_tokens, 0, "no two views begin alike");
}

#[test]
fn the_engines_tools_are_in_the_prompts_once_it_compacted_where_there_is_room() {
    register_all();
    let stage = stage();
    let prompts = |engine: &str, window| {
        let recording = Recording::new(one(&chat(7)), agent(window));
        played(&stage, engine, &recording).prompts
    };
    let (with, without) = (
        prompts("cut-with-tool", 100_000),
        prompts("cut-unwatched", 100_000),
    );
    // They are in the sixth prompt and the seventh; the sixth finds nothing in the cache, for they stand before all.
    let tools = (with.prompt_tokens - without.prompt_tokens) / 2;
    assert!((58..100).contains(&tools), "{tools}");
    assert_eq!(with.prompt_tokens, without.prompt_tokens + 2 * tools);
    let kept = message(2_000);
    assert_eq!(with.cached_tokens, without.cached_tokens - kept + tools);
    // A tool of 58 tokens is more than a quarter of what such a window has for messages.
    let (with, without) = (prompts("cut-with-tool", 150), prompts("cut-unwatched", 150));
    assert_eq!(with.prompt_tokens, without.prompt_tokens);
}

#[test]
fn an_engine_that_fails_is_told_of_and_the_built_in_stands_in() {
    register_all();
    let recording = Recording::new(one(&chat(3)), agent(100_000));
    let result = played(&stage(), "broken", &recording);
    assert_eq!(result.engine, "broken");
    assert!(result.work.failures > 0);
    let told = result.warnings.join("\n");
    assert!(told.contains("the store is gone"), "{told}");

    let home = tempfile::tempdir().unwrap();
    let strict = stage_in(home.path(), "context: {on_failure: fail}");
    let error = play(&recording, &strict, Some("broken"), &mut || {}).unwrap_err();
    assert!(
        matches!(error, SessionError::EngineFailed { .. }),
        "{error}"
    );
}

/// A Claude Code log of two answers, the first of them in two lines, and 20,000 tokens of system prompt
/// and tools that it does not show.
fn log() -> String {
    let line = |kind: &str, uuid: &str, parent: Value, at: &str, message: Value| {
        json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s",
            "timestamp": format!("2026-01-06T09:{at}.000Z"), "message": message,
        })
        .to_string()
    };
    let answer = |id: &str, content: Value, usage: [u64; 4]| {
        json!({
            "id": id, "role": "assistant", "model": "claude-opus-4-5", "content": [content],
            "usage": {"input_tokens": usage[0], "cache_read_input_tokens": usage[1],
                "cache_creation_input_tokens": usage[2], "output_tokens": usage[3]},
        })
    };
    let user = |content: Value| json!({"role": "user", "content": content});
    let call = json!({"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}});
    let result = json!([{"type": "tool_result", "tool_use_id": "c1", "content": words(1_000)}]);
    let text = |text: &str| json!({"type": "text", "text": text});
    let first = [8, 15_000, 4_992, 40];
    [
        line("user", "1", Value::Null, "00:00", user(json!("Read a."))),
        line(
            "assistant",
            "2",
            json!("1"),
            "00:05",
            answer("m1", text("I will."), first),
        ),
        line(
            "assistant",
            "3",
            json!("2"),
            "00:06",
            answer("m1", call, first),
        ),
        line("user", "4", json!("3"), "00:10", user(result)),
        line(
            "assistant",
            "5",
            json!("4"),
            "00:15",
            answer("m2", text("Done."), [10, 19_990, 1_300, 60]),
        ),
    ]
    .join("\n")
}

#[test]
fn what_a_log_reported_is_counted_once_a_message_and_shows_what_the_log_leaves_out() {
    let conversation = read(log(), None).unwrap().remove(0);
    let mut window = agent(200_000);
    window.model = "claude-opus-4-5".into();
    let recording = Recording::new(conversation, window);
    let prompts = recorded(&recording).unwrap();
    assert_eq!(
        prompts,
        Prompts {
            requests: 2,
            overflows: 0,
            peak_prompt_tokens: 21_300,
            prompt_tokens: 20_000 + 21_300,
            each_prompt_tokens: vec![20_000, 21_300],
            cached_tokens: 15_000 + 19_990,
            written_tokens: 4_992 + 1_300,
            ..Prompts::default()
        }
    );
    let cost = Prices::sonnet(Ttl::FiveMinutes).cost(&prompts);
    let by_hand = (18.0 * 3.0 + 34_990.0 * 0.3 + 6_292.0 * 3.75) / 1e6;
    assert!((cost - by_hand).abs() < 1e-12);

    // The first question has a handful of tokens, and its prompt was reported with 20,000.
    assert!((19_970..20_000).contains(&recording.unseen_tokens()));
    let counted = without_engine(&recording, Ttl::FiveMinutes);
    assert_eq!(counted.requests, 2);
    // The second has the answer, its call and a result of 1,000 words more: 1.18 tokens a word.
    let second = counted.prompt_tokens - 20_000;
    assert!((21_180..21_300).contains(&second), "{second}");
    assert_eq!(counted.cached_tokens, 20_000);
}

/// The lines that a Codex rollout may contain besides the common ones.
fn lines_of_codex() -> Vec<Value> {
    let item = |payload: Value| json!({"timestamp": "2026-01-06T09:00:00Z", "type": "response_item", "payload": payload});
    let event = |payload: Value| json!({"timestamp": "2026-01-06T09:00:00Z", "type": "event_msg", "payload": payload});
    let message =
        |role: &str, content: Value| json!({"type": "message", "role": role, "content": content});
    let text = |text: &str| json!([{"type": "input_text", "text": text}]);
    let compacted = |payload: Value| json!({"timestamp": "2026-01-06T09:00:00Z", "type": "compacted", "payload": payload});
    vec![
        item(message("developer", text("<permissions instructions>"))),
        item(message(
            "user",
            text("<environment_context>x</environment_context>"),
        )),
        item(message("user", json!([]))),
        item(message("user", text(""))),
        item(message(
            "assistant",
            json!([{"type": "output_text", "text": ""}]),
        )),
        item(message(
            "assistant",
            json!([{"type": "refusal", "refusal": "No."}]),
        )),
        item(message(
            "user",
            json!([{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]),
        )),
        item(
            json!({"type": "reasoning", "id": "r", "summary": [], "content": null, "encrypted_content": "gAA"}),
        ),
        item(json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]})),
        item(json!({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "lone"})),
        item(json!({"type": "function_call_output", "call_id": "nobody", "output": "r"})),
        item(
            json!({"type": "function_call_output", "call_id": "nobody", "output": [{"type": "input_text", "text": "r"}]}),
        ),
        item(
            json!({"type": "custom_tool_call", "call_id": "k", "name": "apply_patch", "input": "*** Begin Patch"}),
        ),
        item(json!({"type": "custom_tool_call_output", "call_id": "k", "output": "ok"})),
        item(
            json!({"type": "local_shell_call", "call_id": "l", "status": "completed", "action": {"type": "exec", "command": ["ls"]}}),
        ),
        item(
            json!({"type": "local_shell_call", "id": "l", "status": "completed", "action": {"type": "exec", "command": ["ls"]}}),
        ),
        item(
            json!({"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}),
        ),
        item(
            json!({"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "open_page", "url": "u"}}),
        ),
        item(
            json!({"type": "image_generation_call", "id": "i", "status": "completed", "result": "iVBORw0KGgo="}),
        ),
        item(
            json!({"type": "tool_search_call", "call_id": "s", "status": "completed", "execution": "client", "arguments": {"query": "q"}}),
        ),
        item(
            json!({"type": "tool_search_output", "call_id": "s", "status": "completed", "execution": "client", "tools": []}),
        ),
        item(json!({"type": "mcp_tool_call_output", "call_id": "m", "output": {"content": []}})),
        item(json!({"type": "ghost_snapshot", "ghost_commit": {"id": "g"}})),
        item(json!({"type": "compaction", "encrypted_content": "gAA"})),
        item(json!({"type": "compaction_summary", "encrypted_content": "gAA"})),
        item(json!({"type": "context_compaction", "encrypted_content": "gAA"})),
        item(json!({"type": "additional_tools", "role": "developer", "tools": []})),
        item(json!({"type": "something_new", "x": 1})),
        item(json!({"type": "other"})),
        event(json!({"type": "token_count", "info": null, "rate_limits": {}})),
        event(
            json!({"type": "token_count", "info": {"last_token_usage": {"input_tokens": 9, "output_tokens": 1}}}),
        ),
        event(json!({"type": "turn_aborted", "reason": "interrupted"})),
        event(json!({"type": "task_started", "turn_id": "t"})),
        event(json!({"type": "user_message", "message": "hm"})),
        event(json!({"type": "thread_rolled_back", "num_turns": 1})),
        event(json!({"type": "thread_rolled_back", "num_turns": 99})),
        event(json!({"type": "context_compacted"})),
        compacted(json!({"message": ""})),
        compacted(json!({"message": "what happened"})),
        compacted(json!({"message": "", "replacement_history": []})),
        compacted(
            json!({"message": "sum", "replacement_history": [message("user", text("Question 0")), message("user", text("sum"))]}),
        ),
        compacted(
            json!({"message": "", "replacement_history": [message("user", text("Question 0")), {"type": "compaction", "encrypted_content": "gAA"}]}),
        ),
        compacted(
            json!({"message": "", "replacement_history": [{"type": "compaction", "encrypted_content": "gAA"}, message("developer", text("again"))]}),
        ),
        json!({"type": "turn_context", "payload": {"model": "gpt-5", "cwd": "/"}}),
        json!({"type": "session_meta", "payload": {"id": "parent", "forked_from_id": "x"}}),
        json!({"type": "world_state", "payload": {"full": true, "state": {"cwd": "/"}}}),
        json!({"type": "token_usage_record", "payload": {"response_id": "r1", "usage": {"input_tokens": 9, "cached_input_tokens": 3, "cache_write_input_tokens": 2, "output_tokens": 1}}}),
        json!({"type": "inter_agent_communication", "payload": {"x": 1}}),
    ]
}

#[test]
fn every_rollout_of_codex_is_played() {
    let plain = || {
        let mut lines = vec![
            json!({"type": "session_meta", "payload": {"id": "c", "instructions": "Be kind."}}),
        ];
        for turn in 0..3 {
            let event = |payload: Value| json!({"type": "event_msg", "payload": payload});
            let item = |payload: Value| json!({"type": "response_item", "payload": payload});
            lines.push(event(
                json!({"type": "task_started", "turn_id": turn.to_string()}),
            ));
            lines.push(item(json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": format!("Question {turn}")}]})));
            lines.push(item(
                json!({"type": "reasoning", "summary": [], "encrypted_content": "gAA"}),
            ));
            lines.push(item(json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": format!("c{turn}")})));
            lines.push(item(json!({"type": "function_call_output", "call_id": format!("c{turn}"), "output": words(50)})));
            lines.push(item(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": format!("Answer {turn}")}]})));
            lines.push(event(
                json!({"type": "task_complete", "turn_id": turn.to_string()}),
            ));
        }
        lines
    };
    let stage = stage();
    for (at, own) in lines_of_codex().into_iter().enumerate() {
        // At the beginning, in the middle of a turn, between a call and its result, between turns, and at the end.
        for place in [1, 10, 11, 15, 22] {
            if own["payload"]["num_turns"] == 99 && place == 22 {
                // No lines are left.
                continue;
            }
            let mut lines = plain();
            lines.insert(place, own.clone());
            let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let read = read(log, None).unwrap_or_else(|error| panic!("{own} at {place}: {error}"));
            let conversation = read.into_iter().next().unwrap();
            conversation.whole().unwrap();
            let window = contexture::formats::RenderPlan::whole(conversation.messages().len());
            let format = contexture::formats::Format::OpenAiResponses;
            conversation
                .convert(&window, format)
                .unwrap_or_else(|error| panic!("{own} at {place}: {error}"));
            let recording = Recording::new(conversation, agent(100_000));
            // Each variant is played once with an engine, and all of them without one.
            let played = match at % 5 == place % 5 {
                true => play(&recording, &stage, Some("compressor"), &mut || {})
                    .map(|played| played.prompts),
                false => Ok(without_engine(&recording, Ttl::FiveMinutes)),
            };
            let prompts = played.unwrap_or_else(|error| panic!("{own} at {place}: {error}"));
            assert!(prompts.requests > 0, "{own} at {place}");
        }
    }
}

#[test]
fn a_log_that_its_agent_compacted_is_played_whole_and_scaled_to_what_it_recorded() {
    let mut lines = vec![json!({"type": "session_meta", "payload": {"id": "c"}})];
    let text = |role: &str, kind: &str, text: String| json!({"type": "response_item", "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}});
    // Each turn has a little more than 300 tokens, and its prompt grew by twice as many.
    let mut prompt = 20_000;
    for turn in 0..20 {
        lines.push(text("user", "input_text", words(200)));
        lines.push(text("assistant", "output_text", words(100)));
        prompt += 2 * (message(200) + message(100));
        lines.push(json!({"type": "token_usage_record", "payload": {"response_id": format!("r{turn}"),
            "usage": {"input_tokens": prompt, "cached_input_tokens": prompt - 700, "cache_write_input_tokens": 600, "output_tokens": 100}}}));
        if turn == 9 {
            lines.push(json!({"type": "token_usage_record", "payload": {"response_id": "sum", "usage": {"input_tokens": 90_000, "output_tokens": 100}}}));
            lines.push(json!({"type": "compacted", "payload": {"message": "what happened", "compaction_response_id": "sum"}}));
            prompt = 21_000;
        }
    }
    let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let recording = Recording::new(read(log, None).unwrap().remove(0), agent(100_000));
    assert_eq!(
        recording.requests().len(),
        20,
        "before and after the compaction"
    );
    assert!(
        (1.95..2.05).contains(&recording.scale()),
        "{}",
        recording.scale()
    );
    let recorded = recorded(&recording).unwrap();
    assert_eq!((recorded.requests, recorded.written_tokens), (20, 20 * 600));
    assert!(
        recorded.peak_prompt_tokens < 90_000,
        "the summary's own prompt is none of them"
    );
    let none = without_engine(&recording, Ttl::FiveMinutes);
    let whole = 20_000 + 2 * 20 * (message(200) + message(100));
    assert!(
        none.peak_prompt_tokens.abs_diff(whole) < 600,
        "{} of {whole}",
        none.peak_prompt_tokens
    );
    let played = played(&stage(), "compressor", &recording);
    assert!(
        played.prompts.peak_prompt_tokens.abs_diff(whole) < 900,
        "{}",
        played.prompts.peak_prompt_tokens
    );
}

#[test]
fn the_engine_hears_what_was_reported_while_the_prompts_are_the_recorded_ones() {
    register_all();
    let heard = |model: &str| {
        let conversation = read(log(), None).unwrap().remove(0);
        let mut window = agent(200_000);
        window.model = model.into();
        HEARD.lock().unwrap().clear();
        played(&stage(), "listens", &Recording::new(conversation, window));
        HEARD.lock().unwrap().clone()
    };
    let reported = |input, output, read, write| {
        Usage::default()
            .input_tokens(input)
            .output_tokens(output)
            .cache_read_tokens(read)
            .cache_write_tokens(write)
            .reasoning_tokens(0)
    };
    assert_eq!(
        heard("claude-opus-4-5"),
        [
            reported(20_000, 40, 15_000, 4_992),
            reported(21_300, 60, 19_990, 1_300)
        ]
    );
    // Another model counts otherwise, so it hears of the count.
    let counted = heard("gpt-5");
    assert_eq!(counted.len(), 2);
    assert!(counted[0].input_tokens < 20_000 && counted[1].input_tokens < 21_100);
    assert_eq!(counted[1].cache_read_tokens, counted[0].input_tokens);
}

#[test]
fn engines_stand_side_by_side_in_one_report() {
    register_all();
    let (prices, stage) = (Prices::sonnet(Ttl::FiveMinutes), stage());
    let report_of = |number: usize, answers: usize| {
        let recording = Recording::new(one(&chat(answers)), agent(4_000));
        let none = without_engine(&recording, Ttl::FiveMinutes);
        let mut rows = vec![Row::new("none", None, none, None, &prices)];
        for engine in ["compressor", "last-question"] {
            let result = played(&stage, engine, &recording);
            rows.push(Row::new(
                result.engine,
                Some(result.source),
                result.prompts,
                Some(result.work),
                &prices,
            ));
        }
        ConversationReport {
            input: "chats.jsonl".into(),
            number,
            messages: recording.conversation().messages().len(),
            requests: recording.requests().len(),
            model: recording.agent().model.clone(),
            context_length: recording.agent().context_length,
            unseen_tokens: recording.unseen_tokens(),
            scale: recording.scale(),
            rows,
        }
    };
    let report = Report::new(
        prices,
        CacheTtl::FiveMinutes,
        vec![report_of(1, 5), report_of(2, 30)],
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["cache_ttl"], "5m");
    assert_eq!(
        json["prices"],
        json!({"input": 3.0, "cached": 0.3, "write": 3.75, "write_long": 6.0})
    );
    let names: Vec<_> = report
        .totals
        .iter()
        .map(|row| row.engine.as_str())
        .collect();
    assert_eq!(names, ["none", "compressor", "last-question"]);
    for (at, total) in report.totals.iter().enumerate() {
        let of = |number: usize| &report.conversations[number].rows[at];
        assert_eq!(total.prompts.requests, 35);
        assert_eq!(
            total.prompts.prompt_tokens,
            of(0).prompts.prompt_tokens + of(1).prompts.prompt_tokens
        );
        assert!((total.cost_usd - of(0).cost_usd - of(1).cost_usd).abs() < 1e-12);
        assert_eq!(total.mean_prompt_tokens, total.prompts.prompt_tokens / 35);
    }
    let [none, compressor, view] = report.totals.as_slice() else {
        panic!("three rows");
    };
    assert!(none.prompts.overflows > 0 && none.work.is_none());
    let work = compressor.work.as_ref().unwrap();
    assert!(work.compactions > 0);
    assert_eq!((compressor.prompts.overflows, work.failures), (0, 0));
    assert!(compressor.prompts.prompt_tokens < none.prompts.prompt_tokens);
    assert!(view.cost_usd < none.cost_usd);
    // Each key that the report promises, flat in its row; none where no engine ran.
    let row = &json["conversations"][1]["rows"][1];
    for key in [
        "engine", "source", "requests", "overflows", "peak_prompt_tokens", "mean_prompt_tokens",
        "prompt_tokens", "cached_tokens", "written_tokens", "cache_share", "cost_usd",
        "compactions", "degraded", "refused", "failures", "model_calls", "engine_ms",
        "worst_turn_ms", "warnings",
    ] {
        assert!(!row[key].is_null(), "{key} in {row}");
    }
    assert_eq!(json["totals"][0].get("compactions"), None);
}

#[test]
fn a_conversation_without_answers_has_no_requests() {
    let greeting = json!({"messages": [
        {"role": "assistant", "content": "How can I help?"}, {"role": "user", "content": "Hello"}
    ]});
    let recording = Recording::new(one(&greeting), agent(1_000));
    assert_eq!(recording.requests(), []);
    let result = played(&stage(), "compressor", &recording);
    assert_eq!(result.prompts, Prompts::default());
    assert_eq!(
        without_engine(&recording, Ttl::FiveMinutes).cache_share(),
        0.0
    );
}

#[test]
fn an_engine_that_nobody_knows_is_refused() {
    let recording = Recording::new(one(&chat(1)), agent(1_000));
    let error = play(&recording, &stage(), Some("compresor"), &mut || {});
    let message = error.unwrap_err().to_string();
    assert!(message.contains("compressor"), "{message}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn a_real_session_stays_in_its_window() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/claude-code/main.jsonl");
    let document = std::fs::read_to_string(path).unwrap();
    let conversation = read(document, None).unwrap().remove(0);
    let model = conversation.model().unwrap().to_owned();
    let recording = Recording::new(conversation, AgentWindow::new(model, 100_000, 16_000));
    let log = recorded(&recording).unwrap();
    let none = without_engine(&recording, Ttl::FiveMinutes);
    let compressor = played(&stage(), "compressor", &recording);
    eprintln!("{log:?}\n{none:?}\n{compressor:?}");
    assert!(none.overflows > 0, "it is a session for a larger window");
    // With what the log does not show, the count comes near what the provider reported.
    let ratio = none.peak_prompt_tokens as f64 / log.peak_prompt_tokens as f64;
    assert!((0.85..1.15).contains(&ratio), "{ratio}");
    assert_eq!(compressor.prompts.requests, none.requests);
    assert_eq!(
        (compressor.prompts.overflows, compressor.work.failures),
        (0, 0)
    );
    assert!((1..20).contains(&compressor.work.compactions));
    assert!(compressor.prompts.cache_share() > 0.5);
}

//! The engine with a model that answers, fails in every way, and comes back; and with a host that dies
//! between its commit and telling the engine.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::sync::{Arc, Mutex};

use contexture_engine_api::{
    Compaction, CompressOrder, CompressRequest, ContextEngine, CurrentCompaction, Decision,
    EngineFactory, Entry, FactoryRequest, FailureKind, HostServices, LogLevel, MessageId,
    MessageView, ModelAnswer, ModelFailure, ModelInfo, ModelRequest, OpenRequest, Outcome,
    Services, ToolCall, WindowState,
};
use contexture_lcm::Lcm;
use serde_json::{Value, json};

type Behaviour = Arc<Mutex<Result<String, FailureKind>>>;

/// A host whose model does what it is told to.
struct Host {
    model: Behaviour,
}

impl HostServices for Host {
    fn model(&self) -> Option<ModelInfo> {
        Some(ModelInfo {
            name: "stand-in".to_owned(),
            context_length: 20_000,
        })
    }

    fn complete(&self, _request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        match &*self.model.lock().unwrap() {
            Ok(text) => Ok(ModelAnswer {
                text: text.clone(),
                model: "stand-in".to_owned(),
                input_tokens: 0,
                output_tokens: 0,
            }),
            Err(kind) => Err(ModelFailure::new(*kind, "as told")),
        }
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        requests
            .iter()
            .map(|request| self.complete(request))
            .collect()
    }

    fn count_tokens(&self, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }

    fn log(&self, _level: LogLevel, _message: &str) {}

    fn is_cancelled(&self) -> bool {
        false
    }

    fn now_ms(&self) -> i64 {
        1_800_000_000_000
    }
}

fn window(prompt_tokens: u64) -> WindowState {
    WindowState {
        context_length: 8_000,
        max_output_tokens: 500,
        prompt_tokens,
        ..WindowState::default()
    }
}

fn open(
    dir: &Path,
    model: &Behaviour,
    compaction: Option<&CurrentCompaction>,
) -> Box<dyn ContextEngine> {
    let factory = Lcm::create(&FactoryRequest {
        settings: "{}",
        data_dir: dir,
    })
    .unwrap();
    let host = Host {
        model: Arc::clone(model),
    };
    factory
        .open(&OpenRequest {
            session: "s",
            settings: "{}",
            data_dir: dir,
            services: Services::new(Arc::new(host)),
            window: &window(0),
            compaction,
        })
        .unwrap()
}

/// Sixty messages of about a hundred tokens.
fn texts() -> Vec<(String, String)> {
    (0..60)
        .map(|at| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            let text = format!(
                "fact-{at}-x is in src/module_{at}.rs. {}",
                "More words follow. ".repeat(18)
            );
            (role.to_owned(), text)
        })
        .collect()
}

fn views<'a>(texts: &'a [(String, String)], raws: &'a [String]) -> Vec<MessageView<'a>> {
    texts
        .iter()
        .zip(raws)
        .enumerate()
        .map(|(at, ((role, text), raw))| {
            MessageView::new(MessageId(at as u64 + 1), role)
                .with_text(text)
                .with_raw(raw)
                .with_tokens((text.len() as u64).div_ceil(4))
        })
        .collect()
}

fn raws(texts: &[(String, String)]) -> Vec<String> {
    let raw = |(role, text): &(String, String)| json!({"role": role, "content": text}).to_string();
    texts.iter().map(raw).collect()
}

fn compress(
    engine: &mut dyn ContextEngine,
    views: &[MessageView<'_>],
    may_wait: bool,
) -> Compaction {
    let order = CompressOrder {
        window: window(views.iter().map(MessageView::tokens).sum()),
        may_wait_for_model: may_wait,
        ..CompressOrder::default()
    };
    let outcome = engine
        .compress(&CompressRequest {
            messages: views,
            order: &order,
        })
        .unwrap();
    match outcome {
        Outcome::Compacted(compaction) => compaction,
        other => panic!("{other:?}"),
    }
}

fn summary(compaction: &Compaction) -> String {
    let texts = compaction.entries.iter().filter_map(|entry| match entry {
        Entry::Summary { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn tool(engine: &mut dyn ContextEngine, name: &str, arguments: Value) -> Value {
    let call = ToolCall {
        name: name.to_owned(),
        arguments: arguments.to_string(),
    };
    serde_json::from_str(&engine.call_tool(&call).unwrap()).unwrap()
}

#[test]
fn whatever_the_model_does_a_compaction_gets_below_the_threshold() {
    let (texts, kinds) = (
        texts(),
        [
            FailureKind::NoProvider,
            FailureKind::Auth,
            FailureKind::RateLimited,
            FailureKind::Overloaded,
            FailureKind::Network,
            FailureKind::Timeout,
            FailureKind::Refused,
            FailureKind::Empty,
            FailureKind::CutOff,
            FailureKind::TooLong,
            FailureKind::UnknownModel,
            FailureKind::Other,
        ],
    );
    let raws = raws(&texts);
    let views = views(&texts, &raws);
    let endless = "words without end ".repeat(4_000);
    let behaviours = kinds
        .into_iter()
        .map(Err)
        .chain([Ok(endless), Ok(String::new())]);
    for behaviour in behaviours {
        let dir = tempfile::tempdir().unwrap();
        let said = format!("{behaviour:.60?}");
        let model: Behaviour = Arc::new(Mutex::new(behaviour));
        let mut engine = open(dir.path(), &model, None);
        engine.observe(&views, 7).unwrap();
        let compaction = compress(engine.as_mut(), &views, true);
        assert!(compaction.degraded, "{said}");
        let text = summary(&compaction);
        assert!(text.len() / 4 < 1_500 && !text.is_empty(), "{said}: {text}");
        engine.committed(1);
        assert!(text.contains("src/module_"), "{said}: {text}");
        for at in [0, 17, 59] {
            let back = tool(
                engine.as_mut(),
                "lcm_expand",
                json!({"id": format!("m{}", at + 1)}),
            );
            assert_eq!(back["messages"][0]["message"], json!(raws[at]), "{said}");
        }
    }
}

#[test]
fn a_degraded_summary_is_redone_when_the_model_is_back() {
    let texts = texts();
    let raws = raws(&texts);
    let views = views(&texts, &raws);
    let dir = tempfile::tempdir().unwrap();
    let model: Behaviour = Arc::new(Mutex::new(Err(FailureKind::Refused)));
    let mut engine = open(dir.path(), &model, None);
    engine.observe(&views, 7).unwrap();
    let compaction = compress(engine.as_mut(), &views, true);
    engine.committed(1);
    assert!(compaction.degraded);

    *model.lock().unwrap() = Ok("The model's own words.".to_owned());
    assert!(matches!(
        engine.should_compress(&window(1_000)),
        Decision::No(_)
    ));
    let calls = engine.background();
    assert!(!calls.is_empty(), "degraded summaries are to be redone");
    for call in calls {
        let answer = ModelAnswer {
            text: "The model's own words.".to_owned(),
            model: "stand-in".to_owned(),
            input_tokens: 0,
            output_tokens: 0,
        };
        engine.background_done(call.id, Ok(answer));
    }
    // Only staged: what is stored changes with the next compaction.
    assert_eq!(
        tool(engine.as_mut(), "lcm_describe", json!({"id": "s1"}))["level"],
        "deterministic"
    );
    let text = summary(&compaction);
    let marked = if text.starts_with("[CONTEXT") {
        text
    } else {
        format!("[CONTEXT COMPACTION]\n{text}")
    };
    let mut next: Vec<MessageView<'_>> = vec![
        MessageView::new(MessageId(100), "user")
            .with_text(&marked)
            .with_kind(contexture_engine_api::MessageKind::Summary)
            .with_tokens((marked.len() as u64).div_ceil(4)),
    ];
    let kept: std::collections::HashSet<MessageId> = compaction
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Keep(id) => Some(*id),
            _ => None,
        })
        .collect();
    next.extend(views.iter().filter(|view| kept.contains(&view.id())));
    let order = CompressOrder {
        window: window(6_000),
        force: true,
        ..CompressOrder::default()
    };
    match engine
        .compress(&CompressRequest {
            messages: &next,
            order: &order,
        })
        .unwrap()
    {
        Outcome::Compacted(again) => assert!(!summary(&again).is_empty()),
        other => panic!("{other:?}"),
    }
    engine.committed(2);
    assert_eq!(
        tool(engine.as_mut(), "lcm_describe", json!({"id": "s1"}))["level"],
        "normal"
    );
}

#[test]
fn a_compaction_that_the_engine_was_never_told_of_is_taken_over() {
    let texts = texts();
    let raws = raws(&texts);
    let views = views(&texts, &raws);
    let dir = tempfile::tempdir().unwrap();
    let model: Behaviour = Arc::new(Mutex::new(Ok("A summary of it.".to_owned())));
    let mut engine = open(dir.path(), &model, None);
    engine.observe(&views, 7).unwrap();
    let compaction = compress(engine.as_mut(), &views, true);
    assert!(!compaction.degraded);
    let text = summary(&compaction);
    // The host has written its record; the process ends before the engine hears of it.
    std::mem::forget(engine);
    let current = CurrentCompaction {
        id: 1,
        engine: "lcm".to_owned(),
        through: MessageId(40),
        summaries: vec![text],
    };
    let mut engine = open(dir.path(), &model, Some(&current));
    let status = engine.status();
    assert!(status["frontier"]["nodes"].as_u64() > Some(0), "{status}");
    assert_eq!(status["frontier"]["compaction"], json!(1));
    let doctor = tool(engine.as_mut(), "lcm_doctor", json!({}));
    assert_eq!(doctor["ok"], json!(true), "{doctor}");
    assert_eq!(engine.observed_through().unwrap().last, MessageId(60));
}

#[test]
fn search_is_exact_and_its_errors_show_where() {
    let texts = texts();
    let raws = raws(&texts);
    let views = views(&texts, &raws);
    let dir = tempfile::tempdir().unwrap();
    let model: Behaviour = Arc::new(Mutex::new(Ok("A summary of it.".to_owned())));
    let mut engine = open(dir.path(), &model, None);
    engine.observe(&views, 7).unwrap();
    compress(engine.as_mut(), &views, true);
    engine.committed(1);
    let found = tool(
        engine.as_mut(),
        "lcm_grep",
        json!({"pattern": "fact-3-x", "scope": "messages"}),
    );
    assert_eq!(
        (&found["total"], &found["hits"][0]["id"]),
        (&json!(1), &json!("m4"))
    );
    assert_eq!(found["groups"][0]["hits"], json!(["m4"]));
    assert_eq!(
        found["groups"][0]["summary"],
        found["hits"][0]["covered_by"]
    );
    let mut ids = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut arguments =
            json!({"pattern": "words", "scope": "messages", "limit": 7, "sort": "oldest"});
        if !cursor.is_null() {
            arguments["cursor"] = cursor;
        }
        let page = tool(engine.as_mut(), "lcm_grep", arguments);
        assert_eq!(page["total"], json!(60));
        ids.extend(
            page["hits"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| hit["id"].to_string()),
        );
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(
        ids,
        (1..=60).map(|at| format!("\"m{at}\"")).collect::<Vec<_>>()
    );
    let bad = ToolCall {
        name: "lcm_grep".to_owned(),
        arguments: json!({"pattern": "hello[", "mode": "regex"}).to_string(),
    };
    let error = engine.call_tool(&bad).unwrap_err();
    assert!(error.to_string().contains("hello["), "{error}");
    let other = ToolCall {
        name: "lcm_grep".to_owned(),
        arguments: json!({"pattern": "x", "sessions": ["another"]}).to_string(),
    };
    assert!(
        engine
            .call_tool(&other)
            .unwrap_err()
            .to_string()
            .contains("searchable_sessions")
    );
}

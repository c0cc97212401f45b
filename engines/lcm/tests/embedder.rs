//! With an embedder: questions find what shares no word with them; vectors are made behind the turns, go with their
//! messages, and are made anew for another embedder; a wrong folder is said.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod ingest;
mod tiny_encoder;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture_engine_api::{
    ContextEngine, Delivery, EngineError, EngineFactory, MessageId, MessageView, StoreCommand,
    ToolCall, WindowState,
};
use contexture_lcm::search::{Ask, Query, Weights};
use contexture_lcm::store::FILE_NAME;
use contexture_lcm::{Embedder, Lcm, StoreSettings};
use contexture_testkit::ScriptedHost;
use ingest::Ingest;
use serde_json::{Value, json};
use tiny_encoder::write_encoder;

const SAID: [&str; 4] = [
    "the doctor moved to tuesday",
    "the garden needs water",
    "we painted the fence",
    "the bread was good",
];

/// The engine of the session `s`, with these settings.
fn open(
    host: &Arc<ScriptedHost>,
    settings: &Value,
) -> Result<(Lcm, Box<dyn ContextEngine>), EngineError> {
    let settings = settings.to_string();
    let factory = Lcm::create(&host.factory_request(&settings))?;
    let window = WindowState::default().context_length(16_000);
    let engine = factory.open(&host.open_request(&settings, &window))?;
    Ok((factory, engine))
}

/// The engine of a session in which these things were said, with an encoder that is read before it is gone.
fn with_encoder(host: &Arc<ScriptedHost>) -> (Lcm, Box<dyn ContextEngine>) {
    let folder = tempfile::tempdir().unwrap();
    write_encoder(folder.path(), &[]);
    let (factory, mut engine) = open(host, &json!({"embedder": folder.path()})).unwrap();
    say(host, engine.as_mut(), 1, &SAID);
    (factory, engine)
}

fn say(host: &ScriptedHost, engine: &mut dyn ContextEngine, first: u64, texts: &[&str]) {
    let views: Vec<MessageView<'_>> = (first..)
        .zip(texts)
        .map(|(id, text)| MessageView::new(MessageId(id), "user").with_text(text))
        .collect();
    let delivery = Delivery::new(&views);
    host.record(&delivery);
    engine.observe(&delivery).unwrap();
}

fn ask(engine: &mut dyn ContextEngine, name: &str, arguments: &Value) -> Value {
    let call = ToolCall::new(name.to_owned(), arguments.to_string());
    serde_json::from_str(&engine.call_tool(&call).unwrap()).unwrap()
}

fn first_hit(engine: &mut dyn ContextEngine, question: &str) -> Value {
    ask(engine, "lcm_grep", &json!({"question": question}))["hits"][0].clone()
}

fn without_vectors(engine: &mut dyn ContextEngine) -> Value {
    ask(engine, "lcm_status", &json!({}))["messages_without_vectors"].clone()
}

/// Waits until the background has made all vectors.
fn settle(engine: &mut dyn ContextEngine) {
    let since = Instant::now();
    while without_vectors(engine) != json!(0) {
        assert!(since.elapsed() < Duration::from_secs(60), "no vectors came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn vectors_in(directory: &Path) -> i64 {
    let connection = rusqlite::Connection::open(directory.join(FILE_NAME)).unwrap();
    let count = "SELECT count(*) FROM vectors";
    connection.query_row(count, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_question_finds_what_shares_no_word_with_it() {
    let host = ScriptedHost::without_model();
    let folder = tempfile::tempdir().unwrap();
    write_encoder(
        folder.path(),
        &[&["doctor", "stethoscope"], &["bread", "crumbs"]],
    );
    let (_factory, mut engine) = open(&host, &json!({"embedder": folder.path()})).unwrap();
    say(&host, engine.as_mut(), 1, &SAID);
    settle(engine.as_mut());
    let hit = first_hit(engine.as_mut(), "stethoscope?");
    assert_eq!(
        (&hit["id"], &hit["snippet"]),
        (&json!("m1"), &json!(SAID[0]))
    );
    assert_eq!(hit["span"], json!([0, SAID[0].len()]));
    assert_eq!(first_hit(engine.as_mut(), "crumbs")["id"], json!("m4"));
    // What comes later is found, too, and what shares a word is found at once.
    say(
        &host,
        engine.as_mut(),
        5,
        &["his surgery called", "crumbs of rye"],
    );
    assert_eq!(first_hit(engine.as_mut(), "rye")["id"], json!("m6"));
    settle(engine.as_mut());
}

#[test]
fn without_one_nothing_is_made_and_words_alone_count() {
    let host = ScriptedHost::without_model();
    let (_factory, mut engine) = open(&host, &json!({})).unwrap();
    say(&host, engine.as_mut(), 1, &SAID);
    assert_eq!(without_vectors(engine.as_mut()), Value::Null);
    assert_eq!(first_hit(engine.as_mut(), "stethoscope"), Value::Null);
    assert_eq!(first_hit(engine.as_mut(), "doctor")["id"], json!("m1"));
    assert_eq!(vectors_in(host.data_dir()), 0);
}

#[test]
fn an_embedder_that_is_set_later_catches_up_and_another_one_begins_anew() {
    let host = ScriptedHost::without_model();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    write_encoder(&first, &[&["doctor", "stethoscope"]]);
    write_encoder(&second, &[&["garden", "scarecrow"]]);
    {
        let (_factory, mut engine) = open(&host, &json!({})).unwrap();
        say(&host, engine.as_mut(), 1, &SAID);
    }
    {
        let (_factory, mut engine) = open(&host, &json!({"embedder": first})).unwrap();
        settle(engine.as_mut());
        assert_eq!(first_hit(engine.as_mut(), "stethoscope")["id"], json!("m1"));
    }
    let (_factory, mut engine) = open(&host, &json!({"embedder": second})).unwrap();
    settle(engine.as_mut());
    assert_eq!(first_hit(engine.as_mut(), "scarecrow")["id"], json!("m2"));
    assert_eq!(
        vectors_in(host.data_dir()),
        4,
        "those of the other one are gone"
    );
}

#[test]
fn vectors_go_with_their_session() {
    let host = ScriptedHost::without_model();
    let (factory, mut engine) = with_encoder(&host);
    settle(engine.as_mut());
    drop(engine);
    assert_eq!(vectors_in(host.data_dir()), 4);
    let delete = StoreCommand::Delete {
        session: "s".to_owned(),
    };
    factory.manage(&delete).unwrap();
    assert_eq!(vectors_in(host.data_dir()), 0);
}

#[test]
fn what_the_encoder_cannot_read_is_found_by_its_words_alone() {
    let host = ScriptedHost::without_model();
    let (_factory, mut engine) = with_encoder(&host);
    say(
        &host,
        engine.as_mut(),
        5,
        &["Пётр купил хлеб", "Анна уехала"],
    );
    settle(engine.as_mut());
    let found = ask(
        engine.as_mut(),
        "lcm_grep",
        &json!({"question": "Кто купил хлеб?"}),
    );
    assert_eq!(found["hits"][0]["id"], json!("m5"));
    // Itself and its neighbours, as without an embedder.
    assert_eq!(found["total"], json!(4), "{found}");
}

#[test]
fn a_long_text_is_found_by_any_of_its_passages() {
    let directory = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_encoder(folder.path(), &[&["doctor", "stethoscope"]]);
    let settings = StoreSettings {
        background_index: false,
        embedder: Some(Embedder::open(folder.path()).unwrap()),
        ..StoreSettings::default()
    };
    let store = ingest::open(directory.path(), settings).unwrap();
    let session = store.open_session("s").unwrap();
    let filler = "we water the garden and paint the fence again. ".repeat(12);
    let long = format!("{filler}The doctor is on Tuesday. {filler}");
    let texts = [
        filler.as_str(),
        "the fence",
        &long,
        "bread",
        "garden and water",
    ];
    let views: Vec<MessageView<'_>> = (1..)
        .zip(texts)
        .map(|(id, text)| MessageView::new(MessageId(id), "user").with_text(text))
        .collect();
    store.ingest(session, &views).unwrap();
    let query = Query::new(session, Ask::Question("stethoscope".to_owned()));
    assert_eq!(store.search(&query, &|| false).unwrap().hits.len(), 0);
    assert_eq!(store.embedded(session).unwrap(), Some(0));
    store.embed_now(session, || ()).unwrap();
    assert_eq!(store.embedded(session).unwrap(), Some(5));
    let answer = store.search(&query, &|| false).unwrap();
    let best = &answer.hits[0];
    assert_eq!(best.key.ordinal(), 2);
    let span = best.span.clone().unwrap();
    assert!(long[span].contains("doctor"));
    let without = Weights {
        alike: 0.0,
        ..Weights::default()
    };
    let answer = store.search_weighted(&query, &without, &|| false).unwrap();
    assert_eq!(answer.hits.len(), 0);
}

#[test]
fn a_wrong_folder_is_said_with_the_file_and_the_way_out() {
    let host = ScriptedHost::without_model();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let problem = |embedder: &Path, parts: &[&str]| {
        let error = match open(&host, &json!({"embedder": embedder})) {
            Err(EngineError::Settings(what)) => what,
            other => panic!("{:?}", other.map(|_| ())),
        };
        for part in parts {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(error.contains("`context.engines.lcm.embedder`"), "{error}");
    };
    problem(Path::new("models/mini"), &["models/mini", "absolute"]);
    problem(&path.join("none"), &["none/model.onnx", "model.onnx`"]);
    write_encoder(path, &[]);
    let (model, words) = (path.join("model.onnx"), path.join("vocab.txt"));
    let (whole, listed) = (
        std::fs::read(&model).unwrap(),
        std::fs::read(&words).unwrap(),
    );
    std::fs::remove_file(&words).unwrap();
    problem(path, &["vocab.txt"]);
    std::fs::write(&words, "a\nb").unwrap();
    problem(path, &["vocab.txt", "[UNK]"]);
    std::fs::write(&words, [&listed[..], b"\nmore".as_slice()].concat()).unwrap();
    problem(path, &["model.onnx", "word pieces"]);
    std::fs::write(&words, &listed).unwrap();
    // Cut off anywhere, or with other bytes, it is refused or read, and nothing worse.
    for cut in [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&model, &whole[..cut]).unwrap();
        problem(path, &["model.onnx: it is"]);
    }
    for at in (0..whole.len()).step_by(whole.len() / 400) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&model, &bytes).unwrap();
        let _ = Embedder::open(path);
    }
}

/// The real encoder that `tests/real/install embedder` installs; its vectors are compared with those of onnxruntime by
/// the numbers that it gives.
#[test]
#[cfg_attr(not(installed_embedder), ignore = "run tests/real/install embedder")]
fn the_real_encoder_finds_what_is_said_in_other_words() {
    let host = ScriptedHost::without_model();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real/installed/embedder");
    let folder = std::path::absolute(folder).unwrap();
    let embedder = Embedder::open(&folder).unwrap();
    let near = |text: &str, expected: [f32; 6]| {
        for (value, expected) in embedder.vector_of(text).iter().zip(expected) {
            assert!(
                (value - expected).abs() < 2e-4,
                "{text}: {value} is not {expected}"
            );
        }
    };
    near(
        "Where does my sister live?",
        [0.10463, 0.00545, 0.01282, -0.0026, -0.04699, 0.00865],
    );
    // Whose pieces are found only by the whole of the normalisation.
    near(
        "Überraschung: café déjà-vu, naïve — 我们 coöperate! 한국어 ёлка ☃ e\u{301}",
        [-0.05266, 0.0504, 0.0702, 0.01168, 0.01813, 0.00278],
    );
    let settings = json!({"embedder": folder});
    let (_factory, mut engine) = open(&host, &settings).unwrap();
    let said = [
        "My sister moved to Lisbon in March.",
        "The invoice is due on Friday.",
        "We had pasta again.",
    ];
    say(&host, engine.as_mut(), 1, &said);
    settle(engine.as_mut());
    let hit = first_hit(engine.as_mut(), "Which payments come up?");
    assert_eq!(hit["id"], json!("m2"));
}

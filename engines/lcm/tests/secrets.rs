//! No secret is stored under `redact`, and none reaches a model, wherever in a message it stands.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../secrets/tests/support/secrets.rs"]
mod corpus;

use std::sync::Arc;

use contexture_engine_api::{
    Committed, CompressOrder, CompressRequest, Delivery, EngineFactory, Entry, MessageId,
    MessageView, Outcome, StoreCommand, ToolCall, ToolCallView, WindowState,
};
use contexture_lcm::store::{FILE_NAME, Source};
use contexture_lcm::{Lcm, Store, StoreSettings};
use contexture_testkit::{ScriptedHost, count};
use corpus::{Case, Placed, leak, placements, secrets};
use serde_json::json;

/// Lends the messages as a host shows them.
fn with_views<T>(placed: &[Placed], work: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
    let calls: Vec<Vec<ToolCallView<'_>>> = (placed.iter())
        .map(|placed| {
            let arguments = placed.arguments.iter();
            arguments
                .map(|json| ToolCallView::new("c", "run", json))
                .collect()
        })
        .collect();
    let views: Vec<MessageView<'_>> = (1..)
        .zip(placed.iter().zip(&calls))
        .map(|(id, (placed, calls))| {
            let tokens = count(&placed.text) + placed.arguments.as_deref().map_or(0, count) + 4;
            let view = MessageView::new(MessageId(id), placed.role)
                .with_text(&placed.text)
                .with_tool_calls(calls)
                .with_thinking(placed.place == "thinking")
                .with_raw(&placed.raw)
                .with_tokens(tokens);
            match placed.role {
                "tool" => view.with_result_of("c", "run"),
                _ => view,
            }
        })
        .collect();
    work(&views)
}

fn check(what: &str, text: &str, cases: &[Case]) {
    if let Some(case) = leak(text, cases) {
        panic!("{what} holds the secret of {}: {text}", case.kind);
    }
}

/// The engine over the messages of these cases: what is stored and what its model is asked.
fn no_leak(cases: &[Case], redact: bool) -> Arc<ScriptedHost> {
    let host = ScriptedHost::with_model(200_000);
    let settings = json!({"redact": redact, "fresh_tail_messages": 4}).to_string();
    let mut placed: Vec<Placed> = cases
        .iter()
        .flat_map(|case| placements(&case.text))
        .collect();
    // A short exchange that a leaf would hold word for word, then the fresh tail.
    placed.extend(placements(&cases[0].text).into_iter().take(2));
    placed.extend((0..12).flat_map(|_| placements("go on").into_iter().take(1)));
    let total: u64 = with_views(&placed, |views| views.iter().map(MessageView::tokens).sum());
    let window = WindowState::default()
        .context_length(total)
        .max_output_tokens(500)
        .prompt_tokens(total)
        .messages(placed.len());
    let lcm = Lcm::create(&host.factory_request(&settings)).unwrap();
    let mut engine = lcm.open(&host.open_request(&settings, &window)).unwrap();
    with_views(&placed, |messages| {
        host.record(&Delivery::new(messages));
        engine.observe(&Delivery::new(messages)).unwrap();
        // Shown again, they are the same messages.
        engine.observe(&Delivery::new(messages)).unwrap();
        for call in engine.background(&CompressRequest::new(messages, &CompressOrder::default())) {
            let answer = host.model.complete(&call.request);
            engine.background_done(call.id, answer);
        }
        let order = CompressOrder::default()
            .window(window.clone())
            .force(true)
            .may_wait_for_model(true)
            .focus(Some(cases[0].text.clone()));
        let outcome = engine
            .compress(&CompressRequest::new(messages, &order))
            .unwrap();
        let Outcome::Compacted(proposal) = outcome else {
            panic!("{outcome:?}");
        };
        for entry in &proposal.entries {
            if let Entry::Summary(summary) = entry {
                check("a summary", &summary.text, cases);
            }
        }
        engine.committed(&Committed::new(1));
    });
    let question = ToolCall::new(
        "lcm_expand_query",
        json!({"question": "which keys were said?"}).to_string(),
    );
    engine.call_tool(&question).unwrap();
    assert!(host.model.calls() > 1);
    for request in host.model.requests() {
        check("a request", &request.system, cases);
        check("a request", &request.prompt, cases);
    }
    if !redact {
        return host;
    }

    let verified = lcm.manage(&StoreCommand::Verify).unwrap();
    assert_eq!(verified["ok"], json!(true), "{verified}");
    for file in std::fs::read_dir(host.data_dir()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            check(
                &path.display().to_string(),
                &String::from_utf8_lossy(&bytes),
                cases,
            );
        }
    }
    drop(engine);
    drop(lcm);
    // What is read from the transcript is masked, too.
    let store = Store::open(host.data_dir(), StoreSettings::default()).unwrap();
    let store = store.over(Source::new("s", host.services(), true));
    let session = store.find_session("s").unwrap().unwrap();
    let stored = store.messages(session, 0..placed.len() as u32).unwrap();
    assert_eq!(stored.len(), placed.len());
    for (message, placed) in stored.iter().zip(&placed) {
        for text in [&message.text, &message.calls, &message.raw] {
            check(placed.place, text, cases);
        }
        let values = serde_json::Deserializer::from_str(&message.raw.replace("},\n", "}\n"))
            .into_iter::<serde_json::Value>()
            .collect::<Result<Vec<_>, _>>();
        assert!(values.is_ok(), "{}: {}", placed.place, message.raw);
    }
    host
}

#[test]
fn no_secret_is_stored_under_redact_or_reaches_a_model() {
    for cases in secrets(4, 1).chunks(10) {
        no_leak(cases, true);
    }
}

#[test]
fn no_secret_reaches_a_model_from_a_store_that_holds_them() {
    for cases in secrets(5, 1).chunks(10) {
        let host = no_leak(cases, false);
        let file = host.data_dir().join(FILE_NAME);
        assert!(file.exists());
    }
}

#[test]
fn a_tools_name_is_masked_under_redact() {
    let case = &secrets(6, 1)[3];
    let host = ScriptedHost::without_model();
    let lcm = Lcm::create(&host.factory_request(r#"{"redact": true}"#)).unwrap();
    let window = WindowState::default();
    let mut engine = lcm
        .open(&host.open_request(r#"{"redact": true}"#, &window))
        .unwrap();
    let calls = [ToolCallView::new("c", &case.text, "{}")];
    let call = MessageView::new(MessageId(1), "assistant")
        .with_tool_calls(&calls)
        .with_raw("{}");
    let result = MessageView::new(MessageId(2), "tool")
        .with_result_of("c", &case.text)
        .with_raw("{}");
    let messages = [call, result];
    host.record(&Delivery::new(&messages));
    engine.observe(&Delivery::new(&messages)).unwrap();
    for file in std::fs::read_dir(host.data_dir()).unwrap() {
        check(
            "the store",
            &String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()),
            std::slice::from_ref(case),
        );
    }
    let grep = ToolCall::new("lcm_recent", "{}");
    let recent = engine.call_tool(&grep).unwrap();
    check(
        "what is recent",
        &format!("{recent:?}"),
        std::slice::from_ref(case),
    );
}

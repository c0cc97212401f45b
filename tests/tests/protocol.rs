//! The owned protocol carries an engine where nothing can be lent: each call is one JSON text, as over a pipe.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use contexture_engine_api::protocol::{Call, Carrier, Follow, RemoteEngine, serve};
use contexture_engine_api::{
    CompressOrder, CompressRequest, ContextEngine, Cut, Decision, Delivery, EngineError, Entry,
    MessageId, MessageKind, MessageView, Outcome, ToolCall, ToolCallView, WindowState, with_views,
};

/// Says back what it was shown.
struct Echo {
    seen: Vec<String>,
}

impl ContextEngine for Echo {
    fn should_compress(&self, window: &WindowState) -> Decision {
        Decision::Yes(format!(
            "{} of {}",
            window.prompt_tokens, window.context_length
        ))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let covers = request.messages.iter().map(MessageView::id).collect();
        let entries = vec![Entry::summary(self.seen.join("|"), covers)];
        Ok(Outcome::Compacted(contexture_engine_api::Compaction::new(
            entries,
        )))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        self.seen
            .push(format!("{:?} {:?}", delivery.cut, delivery.revisions));
        self.seen.extend(delivery.messages.iter().map(|message| {
            let calls = message.tool_calls().iter().map(ToolCallView::name);
            format!(
                "{} {} {:?} {} {:?} {:?} {} {} {:?} {}",
                message.id(),
                message.role(),
                message.kind(),
                message.text(),
                calls.collect::<Vec<_>>(),
                (message.tool_call_id(), message.tool_name(), message.name()),
                message.raw(),
                message.tokens(),
                message.time(),
                message.has_thinking()
                    && message.has_media()
                    && message.is_error()
                    && message.continues(),
            )
        }));
        Ok(())
    }
}

/// The two ends of a pipe that takes text alone.
struct Pipe {
    asks: Sender<String>,
    answers: Mutex<Receiver<String>>,
}

impl Carrier for Pipe {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        let call = Call::new(method, argument, messages);
        self.asks
            .send(serde_json::to_string(&call).unwrap())
            .unwrap();
        let answer = self.answers.lock().unwrap().recv().unwrap();
        serde_json::from_str::<Result<String, EngineError>>(&answer).unwrap()
    }
}

/// An engine in a thread of its own. `knows` says which methods its version has.
fn child(knows: fn(&str) -> bool) -> RemoteEngine<Pipe> {
    let (asks, asked) = channel::<String>();
    let (answer, answers) = channel();
    std::thread::spawn(move || {
        let mut engine = Echo { seen: Vec::new() };
        for text in asked {
            let call: Call = serde_json::from_str(&text).unwrap();
            let answered = match knows(&call.method) {
                true => with_views(&call.messages, |messages| {
                    serve(&mut engine, &call.method, &call.argument, messages)
                }),
                false => Err(EngineError::UnknownMethod(call.method)),
            };
            answer
                .send(serde_json::to_string(&answered).unwrap())
                .unwrap();
        }
    });
    RemoteEngine(Pipe {
        asks,
        answers: Mutex::new(answers),
    })
}

#[test]
fn an_engine_behind_a_pipe_sees_and_answers_what_one_in_the_process_does() {
    let calls = [ToolCallView::new("c1", "ls", "{\"path\": \"ä\"}")];
    let messages = [
        MessageView::new(MessageId(1), "user")
            .with_name("Zoë")
            .with_text("hello\n\"you\"")
            .with_raw("{\"role\":\"user\"}")
            .with_time(7)
            .with_tokens(5),
        MessageView::new(MessageId(2), "assistant")
            .with_tool_calls(&calls)
            .with_thinking(true)
            .with_continuation(true)
            .with_media(true)
            .with_error(true),
        MessageView::new(MessageId(3), "tool")
            .with_result_of("c1", "ls")
            .with_kind(MessageKind::Replaced)
            .with_text("a b"),
    ];
    let (mut here, mut there) = (Echo { seen: Vec::new() }, child(|_| true));
    let window = WindowState::default().context_length(9).prompt_tokens(3);
    assert_eq!(
        there.should_compress(&window),
        here.should_compress(&window)
    );
    let revisions = [(MessageId(3), MessageId(0))];
    let cut = Some(Cut::after(Some(MessageId(0))));
    let delivery = Delivery::new(&messages)
        .after(cut)
        .with_revisions(&revisions);
    here.observe(&delivery).unwrap();
    there.observe(&delivery).unwrap();
    let order = CompressOrder::default();
    let request = CompressRequest::new(&messages, &order);
    let outcome = here.compress(&request);
    assert_eq!(there.compress(&request), outcome);
    assert!(format!("{outcome:?}").contains("m1 user"), "{outcome:?}");
    // An error keeps its kind.
    let call = ToolCall::new("dig", "{}");
    let refused = there.call_tool(&call);
    assert!(
        matches!(refused, Err(EngineError::Unsupported(_))),
        "{refused:?}"
    );
}

#[test]
fn what_the_other_side_has_no_method_for_is_answered_as_the_default_bodies_do() {
    let mut engine = child(|method| matches!(method, "should_compress" | "compress"));
    let window = WindowState::default().context_length(9);
    assert!(engine.may_call_tools(&window).is_yes());
    assert_eq!(engine.tools(), Vec::new());
    assert_eq!(engine.status(), serde_json::json!({}));
    engine.end();
}

#[test]
fn what_comes_with_each_request_is_one_call_where_the_other_side_knows_it() {
    let messages = [MessageView::new(MessageId(1), "user").with_text("hello")];
    let window = WindowState::default().context_length(9).prompt_tokens(3);
    let sides: [fn(&str) -> bool; 2] = [|_| true, |method| method != "follow"];
    for knows in sides {
        let mut engine = child(knows);
        let delivery = Some(Delivery::new(&messages));
        let followed = engine.follow(&Follow::new(delivery, Some(&window)));
        assert_eq!(followed, Ok(Some(Decision::Yes("3 of 9".to_owned()))));
        let order = CompressOrder::default();
        let outcome = engine.compress(&CompressRequest::new(&messages, &order));
        let shown = format!("{outcome:?}");
        assert_eq!(shown.matches("m1 user").count(), 1, "{shown}");
    }
}

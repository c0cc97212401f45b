//! The engine over many turns, between a host and a model that do what they are told: what is refused,
//! what comes late, what comes back, and what the store cannot be told.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contexture_digest::RULES_HEADING;
use contexture_engine_api::{
    BackgroundCall, CompressOrder, Cut, Delivery, Entry, FailureKind, MessageId, MessageKind,
    ModelRequest, Outcome, SUMMARY_MARK, WindowState,
};
use contexture_lcm::Lcm;
use contexture_lcm::store::FILE_NAME;
use contexture_testkit::{Chat, MODEL_NAME, ScriptedHost, ScriptedModel, Session, count};
use rusqlite::Connection;
use serde_json::{Value, json};

/// A host whose model answers like this.
fn host_with(
    model: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
) -> Arc<ScriptedHost> {
    ScriptedHost::new(ScriptedModel::new(model))
}

/// A conversation, and what a host does for it.
struct Play {
    session: Session,
    chat: Chat,
    context_length: u64,
    /// How many tokens the provider counts for one of ours.
    reports: f64,
    /// What came of the last compaction.
    last: Option<Outcome>,
    compress_calls: u64,
}

fn open(host: &Arc<ScriptedHost>) -> Session {
    Session::open_by::<Lcm>(
        host,
        r#"{"fresh_tail_messages": 4}"#,
        &WindowState::default(),
    )
}

impl Play {
    fn new(host: &Arc<ScriptedHost>) -> Self {
        Self {
            session: open(host),
            chat: Chat::default(),
            context_length: 8_000,
            reports: 1.0,
            last: None,
            compress_calls: 0,
        }
    }

    fn database(&self) -> Connection {
        Connection::open(self.session.host.data_dir().join(FILE_NAME)).unwrap()
    }

    fn tokens(&self) -> u64 {
        self.chat.tokens()
    }

    fn window(&self) -> WindowState {
        let tokens = (self.tokens() as f64 * self.reports) as u64;
        self.chat
            .window(self.context_length, 0)
            .max_output_tokens(self.context_length / 16)
            .prompt_tokens(tokens)
    }

    fn order(&self, force: bool, may_wait: bool) -> CompressOrder {
        CompressOrder::default()
            .window(self.window())
            .force(force)
            .may_wait_for_model(may_wait)
    }

    /// Shows the engine what is new.
    fn observe(&mut self) -> Result<(), String> {
        let observed = self.session.observe(&self.chat);
        observed.map_err(|error| error.to_string())
    }

    fn say(&mut self, role: &'static str, text: &str) {
        self.chat.push(role, text);
        self.observe().unwrap();
    }

    /// A user's and an assistant's message of about a hundred tokens each.
    fn chat(&mut self, about: &str) {
        let words = "More words follow. ".repeat(17);
        self.say(
            "user",
            &format!("{about}-asked is in src/{about}.rs. {words}"),
        );
        self.say("assistant", &format!("{about}-answered is done. {words}"));
    }

    /// Compacts if the engine wants to; whether it proposed something.
    fn compress(&mut self, force: bool, may_wait: bool) -> bool {
        self.compress_calls += 1;
        let order = self.order(force, may_wait);
        let outcome = self.session.compress(&self.chat, &order).unwrap();
        let outcome = self.last.insert(outcome);
        let Outcome::Compacted(proposal) = outcome else {
            return false;
        };
        let without_trace = |entry: &Entry| matches!(entry, Entry::Drop(_));
        assert!(!proposal.entries.iter().any(without_trace), "{proposal:?}");
        self.chat = self.session.commit(&self.chat, &order, proposal);
        true
    }

    /// What a host does at the end of each turn.
    fn turn(&mut self) {
        if self.session.engine.should_compress(&self.window()).is_yes() {
            self.compress(false, false);
        }
        let calls = self.background();
        self.session.answer(calls);
    }

    fn background(&mut self) -> Vec<BackgroundCall> {
        let order = self.order(false, false);
        self.session.background_of(&self.chat, &order)
    }

    /// What users are told of the last compaction.
    fn notes(&self) -> String {
        match &self.last {
            Some(Outcome::Compacted(compaction)) => compaction.notes.join("\n"),
            _ => String::new(),
        }
    }

    fn block(&self) -> &str {
        let mut messages = self.chat.messages.iter();
        let summary = messages.find(|message| message.kind == MessageKind::Summary);
        summary.map_or("", |message| &message.text)
    }

    fn to_redo(&self) -> u64 {
        let status = self.session.engine.status();
        let depths = status["summaries"].as_array().unwrap();
        depths.iter().map(|d| d["to_redo"].as_u64().unwrap()).sum()
    }

    fn sound(&mut self) {
        let doctor = self.session.tool("lcm_doctor", &json!({}));
        assert_eq!(doctor["lineage"]["ok"], json!(true), "{doctor:#}");
    }
}

fn summary(request: &ModelRequest) -> Result<String, FailureKind> {
    // Different each time, and short.
    Ok(format!(
        "The model's words on {} bytes.",
        request.prompt.len()
    ))
}

#[test]
fn texts_that_the_model_refuses_cost_two_calls_each_and_hold_nothing_up() {
    let refuses = |request: &ModelRequest| match request.prompt.contains("forbidden") {
        true => Err(FailureKind::Refused),
        false => summary(request),
    };
    let host = host_with(refuses);
    let mut play = Play::new(&host);
    let mut most = 0;
    for at in 0..150 {
        let about = match at % 10 {
            3 => format!("forbidden-{at}"),
            _ => format!("fact-{at}"),
        };
        play.chat(&about);
        most = most.max(play.tokens());
        play.turn();
        // The model is not to blame: it answers everything else.
        assert_eq!(
            play.session.engine.status()["cool_down"],
            Value::Null,
            "at {at}"
        );
    }
    // From the soft threshold on, 4,000, there is always something ready.
    assert!(most < 4_800, "a compaction waited up to {most} tokens");
    assert!(play.session.compactions > 5, "{}", play.session.compactions);
    // A leaf takes some five of the turns here; each that was refused is tried twice, at most three times over.
    assert!(host.model.calls() < 150, "{} calls", host.model.calls());
    let calls = host.model.calls();
    for _ in 0..30 {
        play.turn();
    }
    assert!(
        host.model.calls() <= calls + 40,
        "{} calls while nothing was said",
        host.model.calls() - calls
    );
    play.sound();
}

#[test]
fn where_nothing_was_said_no_model_is_asked_and_nothing_waits_for_one() {
    let blank = Arc::new(AtomicUsize::new(0));
    let seen = blank.clone();
    let host = host_with(move |request| match request.prompt.trim().is_empty() {
        true => {
            seen.fetch_add(1, Ordering::Relaxed);
            // As providers do.
            Err(FailureKind::Other)
        }
        false => summary(request),
    });
    let mut play = Play::new(&host);
    let mut most = 0;
    for at in 0..60 {
        play.chat(&format!("fact-{at}"));
        play.say("assistant", "");
        if at == 20 {
            // More than a leaf of it.
            (0..300).for_each(|_| play.say("assistant", " "));
        }
        most = most.max(play.tokens());
        play.turn();
    }
    assert_eq!(blank.load(Ordering::Relaxed), 0);
    // Some of the leaves are used only if that leaves a quarter of the threshold free. Otherwise the engine waits for
    // the rest, so there are fewer compactions.
    assert!(most < 5_800, "a compaction waited up to {most} tokens");
    assert!(play.session.compactions > 2, "{}", play.session.compactions);
    assert_eq!(play.to_redo(), 0);
    play.sound();
}

#[test]
fn a_model_that_refuses_everything_is_left_alone_for_a_while() {
    let host = host_with(|_| Err(FailureKind::Empty));
    let mut play = Play::new(&host);
    for at in 0..150 {
        play.chat(&format!("fact-{at}"));
        play.turn();
        assert!(play.tokens() < 6_400, "at {at}: {}", play.tokens());
    }
    assert!(host.model.calls() <= 16, "{} calls", host.model.calls());
    host.advance_clock(61_000);
    let calls = host.model.calls();
    for at in 150..200 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    assert!(
        (1..=2).contains(&(host.model.calls() - calls)),
        "one text is tried after a while, not {}",
        host.model.calls() - calls
    );
    play.sound();
}

/// A session of many turns that nothing has summarised yet.
fn long(host: &Arc<ScriptedHost>) -> Play {
    let mut play = Play::new(host);
    for at in 0..60 {
        play.chat(&format!("fact-{at}"));
    }
    play
}

#[test]
fn a_model_that_fails_is_not_asked_for_every_text_while_somebody_waits() {
    for (kind, calls) in [
        (FailureKind::Auth, 3),
        (FailureKind::RateLimited, 3),
        (FailureKind::Timeout, 3),
        // Another form of the question might have helped.
        (FailureKind::Refused, 6),
        (FailureKind::Empty, 6),
    ] {
        let host = host_with(move |_| Err(kind));
        let mut play = long(&host);
        assert!(play.compress(false, true), "{:?}", play.last);
        assert_eq!(host.model.calls(), calls, "{kind:?}");
        for at in 60..110 {
            play.chat(&format!("fact-{at}"));
        }
        assert!(play.compress(false, true), "{:?}", play.last);
        assert_eq!(host.model.calls(), calls, "{kind:?} is in a cool-down");
        let notes = play.notes();
        assert!(notes.contains("is not called for another"), "{notes}");
        // With another key it is asked at once.
        host.model.is_at("another key");
        for at in 110..160 {
            play.chat(&format!("fact-{at}"));
        }
        assert!(play.compress(false, true), "{:?}", play.last);
        assert!(host.model.calls() > calls, "{kind:?}");
    }
}

#[test]
fn one_text_that_the_model_refuses_does_not_cost_the_others() {
    let host = host_with(|request| match request.prompt.contains("fact-30") {
        true => Err(FailureKind::Refused),
        false => summary(request),
    });
    let mut play = long(&host);
    assert!(play.compress(false, true), "{:?}", play.last);
    let notes = play.notes();
    assert!(notes.contains("14 leaf summaries"), "{notes}");
    assert_eq!(host.model.calls(), 15, "the one twice");
    assert_eq!(
        play.session.engine.status()["cool_down"],
        Value::Null,
        "it writes the others"
    );
}

#[test]
fn a_refusal_in_words_is_no_summary() {
    let host = host_with(|_| Ok("I'm sorry, but I can't help with that request.".to_owned()));
    let mut play = long(&host);
    assert!(play.compress(false, true), "{:?}", play.last);
    assert!(!play.block().contains("sorry"), "{}", play.block());
    let notes = play.notes();
    assert!(notes.contains("the summary model declined"), "{notes}");
    assert_eq!(
        play.session.engine.status()["cool_down"]["kind"],
        json!("refused")
    );
}

#[test]
fn everything_of_a_lower_level_is_redone_when_the_model_is_back() {
    let host = host_with(|_| Err(FailureKind::Overloaded));
    let mut play = Play::new(&host);
    for at in 0..150 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    let degraded = play.to_redo();
    let depths = play.session.engine.status()["summaries"]
        .as_array()
        .unwrap()
        .len();
    assert!(
        degraded > 5 && depths > 1,
        "{degraded} nodes, {depths} depths"
    );
    let block = play.block().to_owned();
    // All of it is in the search index.
    play.session.engine.end();

    host.model.now_says(summary);
    let calls = host.model.calls();
    host.advance_clock(61_000);
    for _ in 0..60 {
        let calls = play.background();
        play.session.answer(calls);
        assert_eq!(
            play.block(),
            block,
            "the window changes with a compaction only"
        );
    }
    let made = host.model.calls() - calls;
    assert!(
        made as u64 <= degraded + 8,
        "{made} calls for {degraded} nodes"
    );
    assert!(play.compress(true, true));
    assert_eq!(play.to_redo(), 0, "{:#}", play.session.engine.status());
    assert!(
        play.block().contains("The model's words"),
        "{}",
        play.block()
    );
    // Search knows the new texts, before and after they are in the index.
    for _ in 0..2 {
        let new = json!({"pattern": "The model's words", "mode": "literal", "scope": "summaries"});
        let found = play.session.tool("lcm_grep", &new);
        assert!(found["total"].as_u64() >= Some(degraded), "{found}");
        play.session.engine.end();
        let doctor = play.session.tool("lcm_doctor", &json!({}));
        assert_eq!(doctor["ok"], json!(true), "{doctor:#}");
    }
    let made = host.model.calls();
    for _ in 0..5 {
        let calls = play.background();
        play.session.answer(calls);
    }
    assert!(host.model.calls() - made <= 8, "nothing is redone twice");
    play.sound();
}

#[test]
fn what_the_model_only_manages_in_half_the_room_is_its_summary() {
    let short_only = |request: &ModelRequest| match request.system.contains("shortest list") {
        true => summary(request),
        false => Err(FailureKind::CutOff),
    };
    let host = host_with(short_only);
    let mut play = Play::new(&host);
    for at in 0..40 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.compress(false, true));
    let described = play.session.tool("lcm_describe", &json!({"id": "s1"}));
    assert_eq!(described["level"], json!("normal"), "{described}");
    assert_eq!(play.to_redo(), 0);
}

#[test]
fn answers_that_come_after_a_revision_or_a_cut_are_put_aside() {
    let host = host_with(summary);
    let mut play = Play::new(&host);
    for at in 0..19 {
        play.chat(&format!("fact-{at}"));
    }
    let _ = play.session.engine.should_compress(&play.window());
    let calls = play.background();
    assert!(calls.len() > 1, "{}", calls.len());
    let covered = calls[0].covers[1];
    // The client edits a message that a call is about, and cuts off what another is about.
    let messages = &mut play.chat.messages;
    let place = messages.iter().position(|message| message.id == covered);
    let place = place.unwrap();
    let role = messages[place].role;
    let new = play.chat.push(role, "Other words in its place.").id;
    play.session
        .observe_revised(&play.chat, &[(new, covered)])
        .unwrap();
    play.chat.messages.swap_remove(place);
    let first = calls[0].id;
    let stale: Vec<BackgroundCall> = calls
        .iter()
        .filter(|call| call.id == first)
        .cloned()
        .collect();
    play.session.answer(stale);
    assert_eq!(
        play.session.engine.status()["background"]["leaves_ready"],
        json!(0)
    );
    // The others are good.
    let (good, late) = calls[1..].split_at(1);
    play.session.answer(good.to_vec());
    assert_eq!(
        play.session.engine.status()["background"]["leaves_ready"],
        json!(1)
    );
    let last = play.chat.messages[2].id;
    play.chat.messages.truncate(3);
    // The edit is part of what is left, and came after the place of the cut: it is shown again.
    let mut again = play.chat.clone();
    again.messages.retain(|message| message.id == new);
    again
        .with_views(|views| {
            let cut = Some(Cut::after(Some(last)));
            let delivery = Delivery::new(views).after(cut);
            play.session.host.record(&delivery);
            play.session.engine.observe(&delivery)
        })
        .unwrap();
    play.session.answer(late.to_vec());
    let status = play.session.engine.status();
    assert_eq!(status["background"]["leaves_ready"], json!(0), "{status}");
    assert_eq!(status["background"]["calls_out"], json!(0), "{status}");
    for at in 20..60 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    assert!(play.session.compactions > 0);
    play.sound();
}

#[test]
fn where_a_part_of_the_leaves_is_ready_that_part_goes_in_and_the_rest_waits() {
    let host = host_with(summary);
    let mut play = Play::new(&host);
    for at in 0..22 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.session.engine.should_compress(&play.window()).is_yes());
    let calls = play.background();
    assert!(calls.len() > 2, "{}", calls.len());
    assert!(!play.compress(false, false), "nothing is ready");
    assert!(
        matches!(play.last, Some(Outcome::Deferred(_))),
        "{:?}",
        play.last
    );
    // The second leaf alone is of no use: what is before it is not ready.
    let covers: Vec<usize> = calls.iter().map(|call| call.covers.len()).collect();
    play.session.answer(vec![calls[1].clone()]);
    assert!(!play.compress(false, false));
    play.session.answer(vec![calls[0].clone()]);
    let raw = play.chat.messages.len();
    // Leaves that make too little room wait for the next one.
    let mut ready = 2;
    while !play.compress(false, false) {
        assert!(matches!(play.last, Some(Outcome::Deferred(_))));
        play.session.answer(vec![calls[ready].clone()]);
        ready += 1;
    }
    let covered: usize = covers[..ready].iter().sum();
    assert_eq!(play.chat.messages.len(), raw - covered + 1);
    let frontier = play.session.engine.status()["frontier"].clone();
    assert_eq!(frontier["nodes"], json!(ready), "{frontier}");
    assert_eq!(play.to_redo(), 0, "nothing was extracted");
    // What is still out is not asked for again.
    let made = host.model.calls();
    assert!(ready < calls.len());
    play.session.answer(calls[ready..].to_vec());
    assert!(play.session.engine.status()["background"]["leaves_ready"].as_u64() > Some(0));
    assert_eq!(host.model.calls() - made, calls.len() - ready);
    play.sound();
}

#[test]
fn two_engines_on_one_session_lose_nothing() {
    let host = host_with(|_| Err(FailureKind::NoProvider));
    let mut one = Play::new(&host);
    for at in 0..30 {
        one.chat(&format!("fact-{at}"));
    }
    let mut two = Play::new(&host);
    two.chat = one.chat.clone();

    // Both propose; neither knows of the other's nodes.
    let order = one.order(false, false);
    let Ok(Outcome::Compacted(of_one)) = one.session.compress(&one.chat, &order) else {
        panic!("one proposes");
    };
    let Ok(Outcome::Compacted(of_two)) = two.session.compress(&two.chat, &order) else {
        panic!("two proposes");
    };
    one.chat = one.session.commit(&one.chat, &order, &of_one);
    two.chat = two.session.commit(&two.chat, &order, &of_two);
    let ids = |play: &Play| -> Vec<String> {
        let lines = play.block().lines().filter(|line| line.starts_with("[s"));
        lines
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    assert!(
        ids(&one).iter().all(|id| !ids(&two).contains(id)),
        "no number is used twice"
    );
    one.sound();
    two.sound();
    // The second takes over the first's frontier, whatever its own window shows.
    assert_eq!(
        two.session.engine.status()["frontier"],
        one.session.engine.status()["frontier"]
    );
    two.say("user", &"Words. ".repeat(600));
    two.say("assistant", "Yes.");
    assert!(two.compress(true, false), "{:?}", two.last);
    two.sound();
    for at in 0..30 {
        let found = two.session.tool(
            "lcm_grep",
            &json!({"pattern": format!("fact-{at}-asked"), "scope": "messages"}),
        );
        assert_eq!(found["total"], json!(1), "{found}");
    }
    let covered: u64 = two.session.engine.status()["frontier"]["messages"]
        .as_u64()
        .unwrap();
    let raw = two
        .chat
        .messages
        .iter()
        .filter(|message| message.kind == MessageKind::Original)
        .count();
    assert_eq!(
        covered + raw as u64,
        62,
        "each message is in the window or under one summary"
    );
}

#[test]
fn a_provider_that_counts_a_third_more_is_no_reason_to_compact_every_turn() {
    let host = host_with(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    play.reports = 1.3;
    // Most of the window is a message of the user's own that stays.
    play.say("user", &"My own words, all of which matter. ".repeat(380));
    for at in 0..60 {
        play.say(
            "assistant",
            &format!("step-{at} is done. {}", "More. ".repeat(6)),
        );
        play.turn();
    }
    assert!(
        play.compress_calls <= 12,
        "{} attempts in 60 turns",
        play.compress_calls
    );
    play.sound();
}

#[test]
fn it_gets_below_the_hard_threshold_or_says_that_the_floor_is_too_high() {
    // Of a window of 8,000 the hard threshold is 6,400. The user's words take ever more of it.
    for repeats in (400..600).step_by(20).chain((600..900).step_by(8)) {
        let mut play = Play::new(&host_with(|_| Err(FailureKind::NoProvider)));
        for at in 0..25 {
            play.chat(&format!("fact-{at}"));
        }
        let own = "My own words, all of which matter. ".repeat(repeats);
        play.say("user", &own);
        play.say("assistant", "Working on it.");
        let before = play.tokens();
        let compacted = play.compress(false, false);
        match play.last.clone() {
            Some(Outcome::Compacted(_)) if play.tokens() < 6_400 => assert!(compacted),
            // Nothing else would make the request one that the provider takes.
            Some(Outcome::Compacted(made)) => {
                assert!(
                    before >= 7_500 && play.tokens() < 7_500,
                    "{before} to {}",
                    play.tokens()
                );
                assert!(
                    made.notes.iter().any(|note| note.contains("still has")),
                    "{:?}",
                    made.notes
                );
            }
            Some(Outcome::FloorTooHigh(floor)) => {
                assert!(floor.tokens >= 6_000, "{floor:?}");
            }
            other => panic!("{other:?}"),
        }
        // The floor is the user's words and the last turn; beside them two hundred tokens are enough.
        if count(&own) + 200 < 6_400 {
            assert!(
                compacted && play.tokens() < 6_400,
                "{} beside {}",
                play.tokens(),
                count(&own)
            );
        }
    }
}

#[test]
fn large_arguments_of_a_call_are_shown_shortened_and_come_back_whole() {
    let host = host_with(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    play.context_length = 100_000;
    play.say("user", "Write the file.");
    let content = "A line of the file, one of many. ".repeat(4_000);
    let arguments = json!({"path": "a.txt", "mode": 420, "content": content}).to_string();
    let call = play.chat.calls("", &[("c", "write", &arguments)]);
    let (id, raw) = (call.id, call.raw());
    play.chat.result("c", "write", "Written.");
    play.observe().unwrap();
    play.say("assistant", "Done.");
    play.say("user", "Thanks.");
    play.say("assistant", "You are welcome.");
    assert!(play.compress(true, false), "{:?}", play.last);
    let shown = play.chat.get(id);
    if let Some(shown) = shown {
        let short: Value = serde_json::from_str(&shown.calls[0].arguments).unwrap();
        assert_eq!(
            (&short["path"], &short["mode"]),
            (&json!("a.txt"), &json!(420))
        );
        let text = short["content"].as_str().unwrap();
        assert!(
            text.len() < 400 && text.contains(&format!("lcm_expand with the id {id}")),
            "{text}"
        );
    }
    assert!(
        shown.is_some(),
        "it is part of the fresh tail: {:?}",
        play.chat.messages
    );
    let mut whole = String::new();
    let mut cursor = Value::Null;
    loop {
        let page = play.session.tool(
            "lcm_expand",
            &json!({"id": id.to_string(), "max_tokens": 8_000, "cursor": cursor}),
        );
        for item in page["messages"].as_array().unwrap() {
            whole.push_str(item["message"].as_str().unwrap());
        }
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(whole == raw, "{} bytes of {}", whole.len(), raw.len());
}

#[test]
fn material_too_long_for_a_small_model_is_summarised_in_parts() {
    let host = host_with(|request| {
        let facts: Vec<&str> = request
            .prompt
            .split_whitespace()
            .filter(|word| word.starts_with("fact-"))
            .collect();
        Ok(facts.join(" "))
    });
    host.model.becomes(MODEL_NAME, 2_000);
    let mut play = Play::new(&host);
    play.context_length = 60_000;
    for at in 0..160 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.compress(false, true), "{:?}", play.last);
    assert_eq!(play.to_redo(), 0, "the model wrote all of it");
    let kept = play
        .chat
        .messages
        .iter()
        .filter(|message| message.kind == MessageKind::Original)
        .count()
        / 2;
    for at in 0..160 - kept - 2 {
        assert!(
            play.block().contains(&format!("fact-{at}-asked")),
            "fact-{at} of {}",
            play.block()
        );
    }

    // The window is smaller than the host knows: what is too long is halved.
    let host = host_with(|request| match count(&request.prompt) > 1_000 {
        true => Err(FailureKind::TooLong),
        false => summary(request),
    });
    let mut play = Play::new(&host);
    play.context_length = 60_000;
    for at in 0..160 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.compress(false, true), "{:?}", play.last);
    assert_eq!(play.to_redo(), 0, "the model wrote all of it, in parts");
}

#[test]
fn what_the_store_could_not_be_told_is_settled_before_anything_builds_on_it() {
    let host = host_with(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    for at in 0..30 {
        play.chat(&format!("fact-{at}"));
    }
    let refuse = "CREATE TRIGGER full_disk BEFORE INSERT ON frontier BEGIN SELECT RAISE(ABORT, 'full'); END;
                  CREATE TRIGGER full_disk_too BEFORE DELETE ON frontier BEGIN SELECT RAISE(ABORT, 'full'); END;";
    let room = "DROP TRIGGER full_disk; DROP TRIGGER full_disk_too;";
    let database = play.database();
    database.execute_batch(refuse).unwrap();
    assert!(play.compress(false, false));
    let stored = |play: &Play| -> u64 {
        let frontier = "SELECT count(*) FROM frontier";
        play.database()
            .query_row(frontier, [], |row| row.get::<_, i64>(0))
            .unwrap()
            .unsigned_abs()
    };
    let nodes = |play: &Play| {
        play.session.engine.status()["frontier"]["nodes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(
        (stored(&play), nodes(&play)),
        (0, 0),
        "memory says what the store says"
    );
    // Nothing is observed on top of it.
    play.chat.user("Next.");
    assert!(play.observe().is_err());
    database.execute_batch(room).unwrap();
    play.observe().unwrap();
    assert!(stored(&play) > 0 && stored(&play) == nodes(&play));
    play.sound();

    // A cut that takes nodes apart, and fails.
    let before = nodes(&play);
    database.execute_batch(refuse).unwrap();
    let last = MessageId(5);
    assert!(play.session.cut(Some(last)).is_err());
    assert_eq!(
        nodes(&play),
        before,
        "the frontier in memory is the stored one"
    );
    assert_eq!(stored(&play), before);
    let kept = play.session.tool("lcm_describe", &json!({"id": "m20"}));
    assert_eq!(kept["in_conversation"], json!(true), "{kept}");
    database.execute_batch(room).unwrap();
    play.session.cut(Some(last)).unwrap();
    play.chat.messages.clear();
    play.chat.user("After the cut.");
    play.observe().unwrap();
    assert!(nodes(&play) < before && stored(&play) == nodes(&play));
    let gone = play.session.tool("lcm_describe", &json!({"id": "m20"}));
    assert_eq!(gone["in_conversation"], json!(false), "{gone}");
    play.sound();

    // Nodes that cannot be written: no proposal, and nothing half done.
    for at in 30..60 {
        play.chat(&format!("fact-{at}"));
    }
    database
        .execute_batch("CREATE TRIGGER full_disk BEFORE INSERT ON node_messages BEGIN SELECT RAISE(ABORT, 'full'); END;")
        .unwrap();
    let order = play.order(true, false);
    let failed = play.session.compress(&play.chat, &order);
    assert!(failed.is_err());
    let count: i64 = database
        .query_row("SELECT count(*) FROM nodes n WHERE NOT EXISTS(SELECT 1 FROM node_messages m WHERE m.node = n.id)
                    AND NOT EXISTS(SELECT 1 FROM node_children c WHERE c.node = n.id)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0, "no summary without sources");
    database.execute_batch("DROP TRIGGER full_disk").unwrap();
    assert_eq!(stored(&play), nodes(&play));
    play.sound();
}

#[test]
fn the_doctor_sees_what_is_said_twice_what_is_nowhere_and_what_was_replaced() {
    let host = host_with(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    for at in 0..60 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    play.sound();
    let database = play.database();
    let parent: i64 = database
        .query_row(
            "SELECT node FROM frontier JOIN node_children USING(node) LIMIT 1",
            [],
            |row| row.get(0),
        )
        .unwrap();
    // A child beside its parent: its messages are said twice.
    database
        .execute("INSERT INTO frontier SELECT 1, 1000, child, 1 FROM node_children WHERE node = ?1 LIMIT 1", [parent])
        .unwrap();
    let doctor = play.session.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["lineage"]["ok"], json!(false), "{doctor}");
    assert!(
        doctor["lineage"]["messages_said_twice"].as_u64() > Some(0),
        "{doctor}"
    );
    database
        .execute("DELETE FROM frontier WHERE position = 1000", [])
        .unwrap();
    play.sound();
    // The host says another in place of one that is summarised: its old form is still under the frontier.
    let replace = "UPDATE messages SET is_current = 0
                   WHERE id = (SELECT min(first) FROM node_messages)";
    assert_eq!(database.execute(replace, []).unwrap(), 1);
    let doctor = play.session.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(false), "{doctor}");
    assert_eq!(
        doctor["lineage"]["messages_left_behind_and_summarised"],
        json!(1),
        "{doctor}"
    );
    database
        .execute("UPDATE messages SET is_current = 1", [])
        .unwrap();
    play.sound();
    // A summary leaves the window: its messages are nowhere.
    database
        .execute("DELETE FROM frontier WHERE node = ?1", [parent])
        .unwrap();
    let doctor = play.session.tool("lcm_doctor", &json!({}));
    assert!(
        doctor["lineage"]["messages_nowhere"].as_u64() > Some(0),
        "{doctor}"
    );
}

#[test]
fn a_model_that_failed_is_left_alone_after_a_restart_too() {
    let host = host_with(|_| Err(FailureKind::Auth));
    let mut play = Play::new(&host);
    for at in 0..25 {
        play.chat(&format!("fact-{at}"));
    }
    let _ = play.session.engine.should_compress(&play.window());
    let calls = play.background();
    assert!(!calls.is_empty());
    play.session.answer(calls);
    play.session.engine.end();
    play.session = open(&host);
    let _ = play.session.engine.should_compress(&play.window());
    assert!(play.background().is_empty());
    assert_eq!(
        play.session.engine.status()["cool_down"]["kind"],
        json!("auth")
    );
    // A clock that was set back by a day does not make it a day.
    host.advance_clock(-86_400_000);
    assert!(!play.background().is_empty());
}

#[test]
fn a_summary_is_marked_and_the_prefix_of_the_window_stays_between_compactions() {
    let host = host_with(summary);
    let mut play = Play::new(&host);
    let mut blocks: Vec<(u64, String)> = Vec::new();
    for at in 0..80 {
        play.chat(&format!("fact-{at}"));
        play.turn();
        if play.session.compactions > 0 {
            assert!(play.block().starts_with(SUMMARY_MARK));
            blocks.push((play.session.compactions, play.block().to_owned()));
        }
    }
    let changed = blocks.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    let unannounced = changed.filter(|pair| pair[0].0 == pair[1].0).count();
    assert_eq!(unannounced, 0);
    assert!(play.session.compactions > 2);
}

#[test]
fn what_was_summarised_before_stays_as_a_message_of_its_own() {
    let host = host_with(summary);
    let mut play = Play::new(&host);
    let mut before: Vec<String> = Vec::new();
    let mut with_one_kept = 0;
    for at in 0..80 {
        play.chat(&format!("fact-{at}"));
        play.turn();
        let messages = play.chat.messages.iter();
        let summaries = messages.filter(|message| message.kind == MessageKind::Summary);
        let now: Vec<_> = summaries.map(|message| message.text.clone()).collect();
        if now != before {
            with_one_kept += usize::from(now.len() > 1 && now.first() == before.first());
            play.sound();
        }
        before = now;
    }
    let compactions = play.session.compactions;
    assert!(compactions > 2);
    assert!(with_one_kept > 1, "{with_one_kept} of {compactions}");
}

/// Each summary would otherwise name another goal.
#[test]
fn only_the_first_request_of_a_conversation_is_its_goal() {
    let mut play = Play::new(&host_with(|_| Err(FailureKind::NoProvider)));
    play.say("user", "Build the importer in src/importer.rs, please.");
    play.say("assistant", "I begin with the reader of the files.");
    for at in 0..80 {
        play.chat(&format!("fact-{at}"));
        play.turn();
        let messages = play.chat.messages.iter();
        let summaries = messages.filter(|message| message.kind == MessageKind::Summary);
        let text: String = summaries.map(|message| message.text.as_str()).collect();
        let goals: Vec<&str> = text.split("## Goal\n").skip(1).collect();
        let is_goal = |goal: &&str| goal.starts_with("- The user said: \"Build the importer");
        assert!(goals.len() < 2 && goals.iter().all(is_goal), "{text}");
    }
    assert!(play.session.compactions > 2);
    play.sound();
}

#[test]
fn a_summary_of_messages_that_were_lost_with_the_record_stays() {
    let host = host_with(summary);
    let mut play = Play::new(&host);
    let ban = "- Never push to main.";
    let text = format!(
        "{SUMMARY_MARK}\n{RULES_HEADING}\n{ban}\n(3 older rules do not fit here and are left out)\n\n\
         The harbour was rebuilt in spring."
    );
    play.chat.push("user", &*text).kind = MessageKind::Summary;
    play.say("user", "You may push to main now.");
    for at in 0..80 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    assert!(play.session.compactions > 2);
    assert_eq!(play.block(), text);
    let permission = "- You may push to main now. [replaces: Never push to main.]";
    let mut messages = play.chat.messages.iter();
    assert!(messages.any(|message| message.text.contains(permission)));
    assert!(play.notes().contains("3 older rules"), "{}", play.notes());
    play.sound();
}

#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use proptest::prelude::*;

/// A task with two calls, and what OpenClaw adds to it for the model alone.
fn task(at: usize) -> Vec<Value> {
    let call = |part: &str| json!({"type": "toolCall", "id": format!("{at}{part}"), "name": "exec", "arguments": {"n": 1}});
    let thinking = json!({"type": "thinking", "thinking": "hm", "thinkingSignature": "s"});
    let result = |part: &str| json!({"role": "toolResult", "toolCallId": format!("{at}{part}"), "content": [text_part("out")]});
    vec![
        json!({"role": "user", "content": "do it", "timestamp": at}),
        json!({"role": "custom", "content": "state"}),
        json!({"role": "assistant", "content": [thinking, text_part("on it"), call("a"), call("b")]}),
        json!({"role": "custom", "content": "state"}),
        result("a"),
        result("b"),
        json!({"role": "assistant", "content": [thinking]}),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Kept,
    Shortened,
    Gone,
}

proptest! {
    /// Whatever the engine keeps, shortens and leaves out: the order is OpenClaw's, a hidden message is there
    /// if the one before it is, a shortened message keeps its thinking and its ids, and a call whose result is
    /// gone has another one right after it.
    #[test]
    fn a_window_is_written_in_the_messages_of_openclaw(
        fates in proptest::collection::vec(
            prop_oneof![Just(Fate::Kept), Just(Fate::Shortened), Just(Fate::Gone)], 4..28,
        ),
    ) {
        let own: Vec<Value> = (0..fates.len() / 4).flat_map(task).collect();
        let (at, shown): (Vec<_>, Vec<_>) = messages::of_openclaw(&own).into_iter().unzip();
        prop_assert_eq!(shown.len(), own.len() / 7 * 4);
        let arguments = [ShortArguments::new(1, "{\"n\":2}")];
        let mut entries = vec![PlanEntry::Summary { text: "before", in_system_role: false }];
        for (index, fate) in fates.iter().take(shown.len()).enumerate() {
            match fate {
                Fate::Kept => entries.push(PlanEntry::Message(index)),
                Fate::Shortened => {
                    let arguments: &[_] = if index % 4 == 1 { &arguments } else { &[] };
                    entries.push(PlanEntry::Replaced { index, text: Some("short"), arguments });
                }
                // The second of the results is the one that the first call's stub stands beside.
                Fate::Gone if index % 4 == 2 && fates[index - 1] != Fate::Gone => {
                    entries.push(PlanEntry::Stub { message: index - 1, call: 0, text: "gone" });
                }
                Fate::Gone => {}
            }
        }
        let plan = RenderPlan { entries, system_note: None, own_summaries: false };
        let window = Window { own: &own, at: at.clone() };
        let rendered = window.rendered(&plan);
        let summary = rendered[0]["content"][0]["text"].as_str().unwrap();
        prop_assert!(summary.starts_with("[CONTEXT COMPACTION]") && summary.contains("before"));
        prop_assert_eq!(&rendered[0]["role"], "user");

        let mut rest = rendered[1..].iter().peekable();
        for (index, message) in own.iter().enumerate() {
            let shown = at.partition_point(|at| *at <= index) - 1;
            let fate = fates[shown];
            let is_hidden = at[shown] != index;
            if fate == Fate::Gone {
                continue;
            }
            let next = rest.next().expect("a message that is kept");
            if is_hidden || fate == Fate::Kept {
                prop_assert_eq!(next, &json!(index));
            } else {
                let text = |message: &Value| messages::text_of(&message["content"]);
                prop_assert_eq!(text(next), "short");
                prop_assert_eq!(&next["role"], &message["role"]);
                prop_assert_eq!(&next["toolCallId"], &message["toolCallId"]);
                if message["role"] == "assistant" {
                    let mut wanted = message.clone();
                    wanted["content"][1] = text_part("short");
                    wanted["content"][3]["arguments"]["n"] = 2.into();
                    prop_assert_eq!(next, &wanted);
                }
            }
            let calls = if is_hidden { None } else { calls(message).next() };
            if let Some(call) = calls && fates[shown + 1] == Fate::Gone {
                prop_assert_eq!(rest.next(), Some(&stub(call, "gone")));
            }
        }
        prop_assert_eq!(rest.next(), None);
    }
}

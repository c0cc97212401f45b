#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use contexture::formats::read;

fn conversation() -> Conversation {
    let messages: Vec<_> = (0..40)
            .map(|at| {
                let role = ["user", "assistant"][at % 2];
                serde_json::json!({"role": role, "content": format!("message {at} {}", "é".repeat(300))})
            })
            .collect();
    let document = serde_json::json!({ "messages": messages }).to_string();
    read(document, None).unwrap().remove(0)
}

fn plan(summary: &str) -> RenderPlan<'_> {
    let summary = PlanEntry::Summary {
        text: summary,
        in_system_role: false,
    };
    let mut plan = RenderPlan::whole(40);
    plan.entries.insert(0, summary);
    plan
}

#[test]
fn a_text_keeps_to_its_budget_with_the_summary_and_the_last_words() {
    let conversation = conversation();
    for (bytes, summary) in [
        (9_000, "what was done"),
        (2_000, "what was done"),
        (2_000, &"ä".repeat(5_000)),
    ] {
        let budget = Budget { window: 0, bytes };
        let tools = ["lcm_grep".to_owned()];
        let text = digest(&plan(summary), &conversation, &tools, &budget).unwrap();
        assert!(text.len() <= bytes, "{} of {bytes}", text.len());
        let begin: String = summary.chars().take(10).collect();
        assert!(
            text.contains(&begin)
                && text.contains("[user] message 0 ")
                && text.contains("[user] message 38"),
            "{text}"
        );
        assert!(text.contains("lcm_grep") && text.contains("kept messages are not shown"));
        assert!(!text.contains("message 2 "), "{text}");
    }
}

#[test]
fn without_a_summary_there_is_no_text() {
    let budget = Budget {
        window: 0,
        bytes: 9_000,
    };
    assert_eq!(
        digest(&RenderPlan::whole(40), &conversation(), &[], &budget),
        None
    );
}

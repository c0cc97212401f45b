use contexture_engine_api::{Continued, MessageId};

use super::*;

fn both() -> Guidance {
    Guidance {
        guidance: Some("Name every test.".to_owned()),
        template: Some("## Tests".to_owned()),
        ..Guidance::default()
    }
}

fn request(layout: Option<&str>) -> ModelRequest {
    let continued = Continued::new("Under these:\n## Goal\nNow.", MessageId(1));
    ModelRequest::new(SUMMARY, "Under these:\n## Goal", "## Goal", 100)
        .continued(Some(continued))
        .layout(layout.map(str::to_owned))
}

#[test]
fn the_texts_stand_in_the_instructions_and_in_the_question() {
    let guidance = format!("\n\n{WANTED}\nName every test.");
    for (layout, system, question) in [
        (
            Some("## Goal"),
            "Under these:\n## Tests",
            "Under these:\n## Tests\nNow.",
        ),
        (None, "Under these:\n## Goal", "Under these:\n## Goal\nNow."),
        (
            Some(""),
            "Under these:\n## Goal\n\nLay the summary out like this:\n\n## Tests",
            "Under these:\n## Goal\nNow.\n\nLay the summary out like this:\n\n## Tests",
        ),
    ] {
        let both = both();
        let request = request(layout);
        let applied = both.applied(&request);
        assert_eq!(applied.system, format!("{system}{guidance}"));
        let asked = applied
            .continued
            .as_ref()
            .map(|asked| asked.question.as_str());
        assert_eq!(asked, Some(format!("{question}{guidance}").as_str()));
        // The material is the conversation's.
        assert_eq!(applied.prompt, "## Goal");
    }
}

#[test]
fn other_requests_and_no_texts_change_nothing() {
    let mut other = request(Some("## Goal"));
    other.purpose = "answer".to_owned();
    assert_eq!(*both().applied(&other), other);
    let summary = request(Some("## Goal"));
    assert_eq!(*Guidance::default().applied(&summary), summary);
}

#[test]
fn an_engine_plans_with_what_is_left() {
    let counter = TokenCounter::for_model("gpt-5");
    let request = request(Some(""));
    let tokens = |request: &ModelRequest| counter.count_text(&request.system);
    let added = tokens(&both().applied(&request)) - tokens(&request);
    assert!(both().left_of(10_000, counter) + added <= 10_000);
    assert_eq!(both().left_of(20, counter), 10);
    assert_eq!(Guidance::default().left_of(10_000, counter), 10_000);
}

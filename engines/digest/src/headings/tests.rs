#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn names(text: &str) -> Vec<Option<String>> {
    let mut headings = Headings::of(text);
    let mut place = 0;
    let mut names = Vec::new();
    for line in text.split_inclusive('\n') {
        names.push(headings.over(place).map(|heading| heading.name.clone()));
        place += line.len();
    }
    names
}

#[test]
fn a_line_stands_under_the_nearest_heading() {
    let text = "intro\n## Setup\nrun it\n  12→def load(self):\n  13→    x = 1\n  14→    if x:\n  15→        y\n";
    let names = names(text);
    let names: Vec<_> = names.iter().map(Option::as_deref).collect();
    let (setup, load) = (Some("Setup"), Some("load"));
    assert_eq!(names, [None, None, setup, setup, load, load, load]);
}

#[test]
fn a_heading_far_above_is_none() {
    let text = format!("Steps:\n{}", "a\n".repeat(60));
    let named = names(&text).iter().flatten().count();
    assert_eq!(named, LOOK_BACK);
}

proptest::proptest! {
    #[test]
    fn asked_in_order_or_alone_the_answer_is_the_same(text in "([a#:*→ 1{]{0,4}\n){0,90}") {
        let all = names(&text);
        let mut place = 0;
        for (line, expected) in text.split_inclusive('\n').zip(all) {
            let alone = Headings::of(&text).over(place).map(|heading| heading.name.clone());
            proptest::prop_assert_eq!(alone, expected);
            place += line.len();
        }
    }
}

use super::*;
use crate::text::fold::fold;

fn wanted(question: &str) -> Option<AnswerKind> {
    let folded = fold(question);
    AnswerKind::of(&words(&folded).collect::<Vec<_>>(), &folded)
}

#[test]
fn questions_say_what_they_want() {
    for (question, expected) in [
        ("When did Ana move?", Some(AnswerKind::Time)),
        ("How many cats are there?", Some(AnswerKind::Number)),
        ("Where was she born?", Some(AnswerKind::Place)),
        ("Which Italian city did she like?", Some(AnswerKind::Place)),
        ("With whom did she go?", Some(AnswerKind::Person)),
        ("Why did she leave?", Some(AnswerKind::Reason)),
        ("她是什么时候搬家的？", Some(AnswerKind::Time)),
        ("房租多少钱？", Some(AnswerKind::Number)),
        ("Cuántos gatos hay?", Some(AnswerKind::Number)),
        ("她住在哪里？", Some(AnswerKind::Place)),
        ("What did she paint?", None),
        ("How did she get there?", None),
    ] {
        assert_eq!(wanted(question), expected, "{question}");
    }
}

#[test]
fn texts_have_what_is_wanted() {
    for (text, wanted, expected) in [
        ("We went last week", AnswerKind::Time, true),
        ("It was back in 2019", AnswerKind::Time, true),
        ("I may go and march on", AnswerKind::Time, false),
        ("A dozen of them", AnswerKind::Number, true),
        ("Some of them", AnswerKind::Number, false),
        ("I grew up in Porto", AnswerKind::Place, true),
        ("Sunny here. Warm too", AnswerKind::Place, false),
        ("I met with Ben", AnswerKind::Person, true),
        ("Nothing. Really I can't", AnswerKind::Person, false),
        ("Because I was tired", AnswerKind::Reason, true),
        ("下周三开始", AnswerKind::Time, true),
        ("两只猫", AnswerKind::Number, true),
        ("在长安街上", AnswerKind::Place, true),
        ("好的", AnswerKind::Place, false),
    ] {
        assert_eq!(wanted.is_in(text, &fold(text)), expected, "{text}");
    }
}

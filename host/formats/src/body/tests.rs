use proptest::prelude::*;

use super::*;

fn item() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        r#"{"role":"system","content":"be kind"}"#,
        r#"{"role":"user","content":"a \"b\" ]}"}"#,
        r#"{"role":"assistant","content":[{"type":"thinking"}]}"#,
        r#"{"role":"tool","content":"x","tool_call_id":"c"}"#,
        r#" {"type":"reasoning"} "#,
        r#"{"role":"model","parts":[{"text":"x"}]}"#,
        "7",
    ])
}

fn body() -> impl Strategy<Value = (Vec<&'static str>, String, &'static str)> {
    let member = prop::sample::select(vec![
        r#""model":"m","#,
        r#""system":"s","#,
        r#""tools":[{"input_schema":{}}],"#,
        r#""history":["h"],"#,
        r#""systemInstruction":{"parts":[{"text":"s"}]},"#,
        r#""input":"one","#,
        "",
    ]);
    let list = prop::sample::select(vec![
        "{M\"messages\":[",
        "{M\"input\":[",
        "{M\"contents\":[",
        "[",
        " {M\"messages\" : [",
    ]);
    let ends = vec![
        r#"],"system":"late"}"#,
        r#"],"input":["other"]}"#,
        "]}",
        "]",
        "] } ",
        r#"],"tools":[]"#,
    ];
    let begin = (list, prop::collection::vec(member, 0..3));
    let begin = begin.prop_map(|(list, members)| list.replace('M', &members.concat()));
    (
        prop::collection::vec(item(), 0..6),
        begin,
        prop::sample::select(ends),
    )
}

proptest! {
    /// The result does not depend on the bodies that came before.
    #[test]
    fn a_known_beginning_changes_nothing(
        bodies in prop::collection::vec((body(), 0..4_usize), 1..8)
    ) {
        let mut known: Option<(Vec<&str>, String)> = None;
        let mut before = None;
        for ((items, begin, end), how) in bodies {
            // Usually the same body continues with another end.
            let (all, begin) = match known.take() {
                Some((mut all, begin)) if how > 0 => {
                    all.extend(items);
                    (all, begin)
                }
                _ => (items, begin),
            };
            let text = format!("{begin}{}{end}", all.join(","));
            known = Some((all, begin));
            let again = split_again(&text, None, before.as_ref());
            let alone = split(&text, None);
            let again = again.map(|(wire, beginning, _)| {
                before = beginning;
                wire
            });
            let shown = |wire: Result<WireBody<'_>, FormatError>| {
                let wire = wire.map(|mut wire| {
                    Arc::make_mut(&mut wire.parts.body).asked = (0, None);
                    wire
                });
                format!("{wire:?}")
            };
            prop_assert_eq!(shown(again), shown(alone));
        }
    }
}

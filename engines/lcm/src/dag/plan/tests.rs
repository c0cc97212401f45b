use std::time::Instant;

use contexture_engine_api::{MessageKind, MessageView, ToolCallView};
use proptest::prelude::*;

use super::*;
use crate::dag::outline::Protection;

proptest! {
    /// Whatever the window shows beside what was said, every position has one step, a call and
    /// its results have the same, and something stands in place of all that leaves.
    #[test]
    fn a_call_and_its_results_stay_or_leave_together(
        // Of each group: what it is, and which of its texts were inserted.
        groups in prop::collection::vec((0..6_usize, any::<u8>()), 1..14),
        messages in 1..6_usize,
        tokens in 0..80_u64,
    ) {
        let names: Vec<String> = (0..groups.len() * 3).map(|at| format!("call-{at}")).collect();
        let calls: Vec<Vec<ToolCallView<'_>>> = (groups.iter().zip(names.chunks(3)))
            .map(|((what, _), names)| {
                let calls = names.iter().map(|name| ToolCallView::new(name, "ls", "{}"));
                calls.take(what.saturating_sub(2)).collect()
            })
            .collect();
        // The group, the view and the spot of each position.
        let mut window: Vec<(usize, MessageView<'_>, Spot)> = Vec::new();
        let mut next = 0;
        let mut view = |role| {
            next += 1;
            MessageView::new(MessageId(next), role).with_text("text").with_tokens(10)
        };
        for (group, ((what, inserted), calls)) in groups.iter().zip(&calls).enumerate() {
            match (what, inserted % 3) {
                (0, _) => window.push((group, view("user"), Spot::Raw)),
                (1, _) => window.push((group, view("assistant"), Spot::Raw)),
                (2, 0) => {
                    let notice = view("user").with_kind(MessageKind::Notice);
                    window.push((group, notice, Spot::Inserted));
                }
                (2, kind) => {
                    let summary = view("user").with_kind(MessageKind::Summary);
                    let spot = if kind == 1 { Spot::Foreign } else { Spot::Orphan };
                    window.push((group, summary, spot));
                }
                _ => {
                    let call = view("assistant").with_tool_calls(calls);
                    window.push((group, call, Spot::Raw));
                    window.extend(calls.iter().enumerate().map(|(at, call)| {
                        let result = view("tool").with_result_of(call.id(), "ls");
                        match inserted >> at & 1 {
                            0 => (group, result, Spot::Raw),
                            _ => {
                                let result = result.with_kind(MessageKind::Replaced);
                                (group, result, Spot::Inserted)
                            }
                        }
                    }));
                }
            }
        }
        let views: Vec<MessageView<'_>> = window.iter().map(|(_, view, _)| *view).collect();
        let spots: Vec<Spot> = window.iter().map(|(_, _, spot)| spot.clone()).collect();
        let outline = Outline::of(&views);
        let split = outline.split(Protection { messages, tokens, last_answer: true });
        let steps = layout(&views, &spots, &outline, &split, &[], &HashMap::new());

        let mut step_of = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let places = match step {
                PlanStep::Keep(places) => places.clone(),
                PlanStep::Run(run) => run.places.clone(),
            };
            prop_assert_eq!(places.start, step_of.len());
            step_of.extend(places.clone().map(|_| number));
            if let PlanStep::Run(run) = step {
                let leaves = &spots[places];
                prop_assert!(!leaves.contains(&Spot::Orphan));
                let has_trace = !run.parts.is_empty() || leaves.contains(&Spot::Foreign);
                prop_assert!(has_trace, "nothing stands for {leaves:?}");
            }
        }
        prop_assert_eq!(step_of.len(), views.len());
        for (one, two) in (0..views.len()).zip(1..views.len()) {
            let together = window[one].0 == window[two].0;
            prop_assert!(!together || step_of[one] == step_of[two], "{steps:?}");
        }
    }

    #[test]
    fn chunks_partition_the_units(tokens in prop::collection::vec(0_u64..300, 0..60), span in 1_u64..500) {
        let leaves = leaf_ranges(&tokens, span);
        let flat: Vec<usize> = leaves.iter().cloned().flatten().collect();
        prop_assert_eq!(flat, (0..tokens.len()).collect::<Vec<_>>());
        for leaf in &leaves {
            let sum: u64 = tokens[leaf.clone()].iter().sum();
            prop_assert!(sum <= span + span / 4 || leaf.len() == 1 || tokens[leaf.clone()].iter().any(|unit| *unit > span));
        }
    }
}

#[test]
fn strays_stand_where_they_belong_and_fifty_thousand_take_no_time() {
    let view = |id| {
        MessageView::new(MessageId(id), "user")
            .with_text("text")
            .with_tokens(10)
    };
    // m1, a node over m10 to m19, m60,000, and the tail.
    let views: Vec<MessageView<'_>> = [1, 10, 60_000, 70_000, 70_001, 70_002]
        .into_iter()
        .map(view)
        .collect();
    let node = NodeId(7);
    let spots = [
        Spot::Raw,
        Spot::Ours(vec![node]),
        Spot::Raw,
        Spot::Raw,
        Spot::Raw,
        Spot::Raw,
    ];
    let outline = Outline::of(&views);
    let split = outline.split(Protection::LEAST);
    let message = |id| Stray {
        first: MessageId(id),
        part: StrayPart::Message { tokens: 1 },
    };
    let mut strays = vec![
        message(2),
        Stray {
            first: MessageId(10),
            part: StrayPart::Node(node),
        },
    ];
    strays.extend((20..50_020).map(message));
    let first_of = HashMap::from([(node, MessageId(10))]);
    let begun = Instant::now();
    let steps = layout(&views, &spots, &outline, &split, &strays, &first_of);
    assert!(begun.elapsed().as_secs() < 2);
    let Some(PlanStep::Run(run)) = steps.first() else {
        panic!("{steps:?}");
    };
    let ids = |part: &RunPart| match part {
        RunPart::Node(node) => vec![node.0.unsigned_abs()],
        RunPart::Span(units) => units.iter().flat_map(|u| &u.ids).map(|id| id.0).collect(),
    };
    let parts: Vec<Vec<u64>> = run.parts.iter().map(ids).collect();
    let after: Vec<u64> = (20..50_020).chain([60_000]).collect();
    assert_eq!(parts, [vec![1, 2], vec![7], after]);
}

#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

fn count(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

fn pins(messages: &[MessageView<'_>]) -> Vec<String> {
    Pins::of(messages, &[], &[], 10_000, count).all.user
}

fn said(id: u64, text: &str) -> MessageView<'_> {
    MessageView::new(MessageId(id), "user").with_text(text)
}

#[test]
fn a_users_lines_pin_and_unpin() {
    let code = "```\n/pin in code\n```\n/pinned\n /pin indented\n/pin  src/main.rs \n/pin a\tb";
    assert_eq!(pins(&[said(1, code)]), ["src/main.rs", "a\tb"]);
    let whole = "The port is 8123.\n\n/pin\nUse TLS.\n/pin last";
    assert_eq!(
        pins(&[said(1, whole)]),
        ["The port is 8123.", "Use TLS.", "last"]
    );
    let wide = [
        said(
            1,
            "/pin\u{3000}数据库在五号机。\n/PIN\u{a0}Use TLS.\n/Pin c",
        ),
        said(2, "/unpin\u{3000}数据库在五号机\n/UNPIN use  tls"),
    ];
    assert_eq!(pins(&wide[..1]), ["数据库在五号机。", "Use TLS.", "c"]);
    assert_eq!(pins(&wide), ["c"]);
    let ended = [
        said(1, "/pin a\n/pin b"),
        said(2, "/unpin a"),
        said(3, "/pin c"),
    ];
    assert_eq!(pins(&ended), ["b", "c"]);
    let marked = format!("/pin x {SUMMARY_END_MARK} y");
    let others = [
        MessageView::new(MessageId(1), "assistant").with_text("/pin a"),
        MessageView::new(MessageId(2), "tool").with_text("/pin b"),
        said(3, &marked),
        said(4, "/pin /unpin c"),
    ];
    assert_eq!(pins(&others), [""; 0]);
}

#[test]
fn the_newest_pins_fit_and_those_of_the_configuration_come_first() {
    let long = "word ".repeat(20);
    let text = format!("/pin old {long}\n/pin middle\n/pin new {long}");
    let most = count(PINS_HEADING) + 50;
    let pins = Pins::of(&[said(1, &text)], &["always".to_owned()], &[], most, count);
    let fitting = pins
        .fitting()
        .iter()
        .map(|pin| pin.split(' ').next().unwrap());
    assert_eq!(fitting.collect::<Vec<_>>(), ["always", "middle", "new"]);
    assert!(pins.left_out().eq([format!("old {}", long.trim())]));
}

#[test]
fn the_models_pins_stand_below_the_users_and_give_way_to_them() {
    let held = |words: &str, by| HeldPin {
        words: words.to_owned(),
        by,
    };
    let pins = |messages: &[MessageView<'_>], held: &[HeldPin], most| {
        let pins = Pins::of(messages, &[], held, most, count);
        (pins.fitting.user.clone(), pins.fitting.model.clone(), pins)
    };
    let users = [said(1, "/pin a"), said(2, "go on")];
    let all = [
        held("b", PinnedBy::Model),
        held("a", PinnedBy::Model),
        held("c", PinnedBy::User),
    ];
    let (user, model, found) = pins(&users, &all, 1_000);
    assert_eq!(
        (user, model),
        (vec!["a".into(), "c".into()], vec!["b".into()])
    );
    let least = count(PINS_HEADING) + 2 * count("\n- a");
    let (user, model, _) = pins(&users, &all, least);
    assert_eq!((user.len(), model.len()), (2, 0));

    let summary = || Entry::summary("Notes.", vec![MessageId(1)]);
    let mut proposal = Compaction::new(vec![summary(), Entry::Keep(MessageId(2))]);
    assert!(found.keep_in(&users, &mut proposal));
    let Entry::Summary(written) = &proposal.entries[0] else {
        panic!("{proposal:?}");
    };
    let text = format!("Notes.\n\n{PINS_HEADING}\n- a\n- c\n\n{MODEL_PINS_HEADING}\n- b");
    assert_eq!(written.text, text);
    assert_eq!(without_pins(&text), "Notes.");

    // From now on they are in the window itself, and end as the user says.
    let summary = |text| {
        let view = MessageView::new(MessageId(3), "user").with_text(text);
        view.with_kind(MessageKind::Summary)
    };
    let window = [summary(&text), said(2, "go on")];
    let (user, model, _) = pins(&window, &[], 1_000);
    assert_eq!(
        (user, model),
        (vec!["a".into(), "c".into()], vec!["b".into()])
    );
    let window = [summary(&text), said(4, "/unpin b"), said(5, "/unpin a")];
    let (user, model, _) = pins(&window, &[], 1_000);
    assert_eq!((user, model), (vec!["c".into()], vec![]));
    let (user, model, found) = pins(&window, &[held("c", PinnedBy::Nobody)], 1_000);
    assert!(user.is_empty() && model.is_empty());
    // The summary that has them is kept, so the section ends them.
    let keep = [3, 4, 5].map(|id| Entry::Keep(MessageId(id)));
    let mut proposal = Compaction::new(keep.into());
    assert!(found.keep_in(&window, &mut proposal));
    assert!(pins_after(&window, &proposal.entries).is_empty());
    let Entry::Notice(notice) = &proposal.entries[2] else {
        panic!("{proposal:?}");
    };
    assert_eq!(notice.text, format!("{ENDED_HEADING}\n- c"));
}

#[test]
fn a_section_is_the_hosts_alone() {
    let forged = format!("Notes.\n\n{PINS_HEADING}\n- forged\n");
    assert_eq!(without_pins(&forged), "Notes.");
    let messages = [said(1, "/pin a"), said(2, "go on")];
    let entries = vec![
        Entry::summary(forged, vec![MessageId(1)]),
        Entry::Keep(MessageId(2)),
    ];
    let mut proposal = Compaction::new(entries);
    assert!(Pins::of(&messages, &[], &[], 1_000, count).keep_in(&messages, &mut proposal));
    let Entry::Summary(summary) = &proposal.entries[0] else {
        panic!("{proposal:?}");
    };
    assert_eq!(summary.text, format!("Notes.\n\n{PINS_HEADING}\n- a"));
}

#[test]
fn what_a_user_writes_beside_tags_and_results_pins() {
    for text in [
        "/pin a {b}; c() = <d_e>",
        "/pin Wrap it in <my-tag>x</my-tag>.",
        "[Bug 12] Result: it works\n/pin it",
        "From: 3.1\nTo: 3.2\n/pin it",
        "The output of the tests:\nFAILED\n\n/pin it",
        "<user_query>\n/pin it\n</user_query>",
        "Answer this: <user_query>\n/pin it\n</user_query>",
        "> From: a@b.example\n> Subject: c\n\n/pin it",
        "```\n[tool output]\n```\n/pin it",
    ] {
        let line = text.lines().find(|line| line.starts_with("/pin "));
        assert_eq!(
            pins(&[said(1, text)]),
            line.map(|line| &line[5..]).as_slice()
        );
    }
}

/// A window in which every message has a text of its own, so that it can be played on.
type Told = Vec<(u64, MessageKind, String)>;

fn views(window: &Told) -> Vec<MessageView<'_>> {
    window
        .iter()
        .map(|(id, kind, text)| {
            let view = MessageView::new(MessageId(*id), "user").with_text(text);
            view.with_kind(*kind).with_tokens(count(text))
        })
        .collect()
}

/// What becomes of each message: 0 keeps it, 1 drops it, and 2 goes into the next summary.
fn proposal(window: &Told, fates: &[u8]) -> Compaction {
    let mut entries = Vec::new();
    let mut covers = Vec::new();
    let last = window.len() - 1;
    for (at, (id, _, _)) in window.iter().enumerate() {
        let fate = if at == last {
            0
        } else {
            fates[at % fates.len()]
        };
        match fate {
            0 => entries.push(Entry::Keep(MessageId(*id))),
            1 => entries.push(Entry::dropped(MessageId(*id), "test")),
            _ => covers.push(MessageId(*id)),
        }
        if !covers.is_empty() && fate != 2 {
            let at = entries.len() - 1;
            entries.insert(at, Entry::summary("Notes.", std::mem::take(&mut covers)));
        }
    }
    Compaction::new(entries)
}

proptest! {
    /// Whatever is kept, dropped or summarised, in any number of compactions: what is pinned and
    /// fits is in the window, and what was unpinned is not pinned again.
    #[test]
    fn pins_survive_any_compactions(
        rounds in prop::collection::vec(
            (prop::collection::vec("(/pin [a-d]{1,2}\n|/unpin [a-d]\n|hm\n){1,3}", 1..5),
             prop::collection::vec(0_u8..3, 1..6)),
            1..8,
        ),
        most in 12_u64..40,
    ) {
        let mut window: Told = Vec::new();
        let mut next = 1;
        for (said, fates) in rounds {
            for text in said {
                window.push((next, MessageKind::Original, text));
                next += 1;
            }
            let before = views(&window);
            let pins = Pins::of(&before, &[], &[], most, count);
            let mut proposal = proposal(&window, &fates);
            pins.keep_in(&before, &mut proposal);
            prop_assert_eq!(lost(&before, &proposal.entries, pins.fitting()), None);
            let texts: HashMap<u64, (MessageKind, String)> = window.iter()
                .map(|(id, kind, text)| (*id, (*kind, text.clone()))).collect();
            let mut after: Told = Vec::new();
            for entry in &proposal.entries {
                match entry {
                    Entry::Keep(id) => {
                        let (kind, text) = texts[&id.0].clone();
                        after.push((id.0, kind, text));
                    }
                    Entry::Summary(summary) => {
                        after.push((next, MessageKind::Summary, summary.text.clone()));
                        next += 1;
                    }
                    Entry::Notice(notice) => {
                        after.push((next, MessageKind::Notice, notice.text.clone()));
                        next += 1;
                    }
                    _ => {}
                }
            }
            window = after;
            let now = Pins::of(&views(&window), &[], &[], u64::MAX, count);
            let is_again = now.all.iter().find(|pin| !pins.all.contains(pin));
            prop_assert_eq!(is_again, None);
            for pin in pins.fitting().iter() {
                prop_assert!(now.all.contains(pin), "{} in {:?}", pin, window);
                let is_there = window.iter().any(|(_, _, text)| text.lines().any(|line| {
                    [format!("- {pin}"), format!("/pin {pin}")].contains(&line.to_owned())
                }));
                prop_assert!(is_there, "{} in {:?}", pin, window);
            }
        }
    }
}

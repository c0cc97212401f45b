//! The shortest sessions that went wrong, by what is wrong with them.

use crate::act::{Act, Carrier, Holds, Place, Reply, Script, Words};
use crate::explore::play;
use crate::flaky::{Failure, Fault};
use crate::wire::{Dialect, Wire};

use Holds::{Handed, Joined, Listed, Originals};
use Words::{
    Chinese, Cleared, ClosedSummary, Empty, GoOn, Image, Plain, ShortenedMark, SummaryMark,
};

pub(crate) fn check(wire: Wire, window: u64, acts: &[Act]) {
    check_with("lcm", wire, window, acts);
}

pub(crate) fn check_with(engine: &'static str, wire: Wire, window: u64, acts: &[Act]) {
    let script = Script {
        engine,
        carrier: Carrier::Linked,
        wire,
        window,
        acts: acts.to_vec(),
    };
    if let (_, Err(wrong)) = play(&script) {
        panic!("{}: {}", wrong.check, wrong.what);
    }
}

const REPLY: Reply = Reply::PLAIN;

/// A turn: the client says this, holding that, and the model answers.
pub(crate) fn turn(holds: Holds, words: Words, reply: Reply) -> Act {
    Act::Turn {
        words,
        holds,
        dialect: Dialect::AsIs,
        tries: 1,
        reply,
    }
}

fn answer(words: u16) -> Reply {
    Reply {
        words: Plain(words),
        ..REPLY
    }
}

fn calls(words: u16, calls: u8) -> Reply {
    Reply {
        calls,
        ..answer(words)
    }
}

const FIRST: Place = Place(0);
const LAST: Place = Place(u16::MAX);

/// The host is not told of the answer, and sees it with the next request.
fn untold(reply: Reply) -> Reply {
    Reply {
        told: false,
        ..reply
    }
}

/// A conversation that is compacted with its last turn, in a window of 2,000 tokens.
fn grown(holds: Holds) -> Vec<Act> {
    vec![
        turn(holds, Plain(100), answer(100)),
        turn(holds, Plain(300), answer(300)),
        turn(holds, Plain(300), answer(60)),
        turn(holds, Plain(60), answer(60)),
    ]
}

fn grown_and(holds: Holds, more: &[Act]) -> Vec<Act> {
    let mut acts = grown(holds);
    acts.extend_from_slice(more);
    acts
}

#[test]
fn a_cut_that_a_failed_engine_missed_is_not_hidden_by_a_later_one() {
    let turn = || turn(Originals, Plain(4), REPLY);
    check(
        Wire::Responses,
        3_000,
        &[
            Act::Fail(Fault {
                method: "turn_complete",
                failure: Failure::Error,
                works: true,
            }),
            turn(),
            Act::LoseAnswer,
            turn(),
            turn(),
            Act::SendAgain(REPLY),
        ],
    );
}

#[test]
fn what_grows_is_compacted_and_kept() {
    for wire in Wire::ALL {
        for holds in [Originals, Handed] {
            check(
                wire,
                2_000,
                &grown_and(holds, &[turn(holds, Plain(9), REPLY)]),
            );
        }
    }
}

/// Hermes joins neighbours of one role before each request, and other clients flatten the parts of a message.
#[test]
fn what_a_client_joins_to_one_message_is_taken_apart() {
    for wire in Wire::ALL {
        for joins in [
            Joined("\n\n"),
            Joined("\n"),
            Joined(" "),
            Joined(""),
            Listed,
        ] {
            // After a lost answer there are two user messages in a row.
            let more = [
                Act::LoseAnswer,
                turn(joins, Plain(9), answer(60)),
                turn(joins, Plain(200), answer(200)),
                Act::LoseAnswer,
                turn(joins, Plain(60), answer(60)),
            ];
            check(wire, 2_000, &grown_and(Handed, &more));
            // In the middle of a turn, with nothing but calls after the user's message.
            let mut acts = vec![turn(Handed, Plain(100), calls(40, 1))];
            acts.extend((0..12).map(|_| turn(joins, Plain(150), calls(0, 1))));
            acts.push(turn(joins, Plain(9), answer(9)));
            acts.push(turn(joins, Plain(9), answer(9)));
            for engine in ["lcm", "compressor", "tiered", "two-layer", "virtual-files"] {
                check_with(engine, wire, 2_000, &acts);
            }
        }
    }
}

#[test]
fn a_message_that_came_in_between_is_exported_where_it_stands() {
    let say = turn(Originals, Plain(4), REPLY);
    check(
        Wire::Chat,
        8_000,
        &[
            say.clone(),
            say.clone(),
            Act::Insert(FIRST, Plain(4), false),
            say,
        ],
    );
}

#[test]
fn an_edited_message_stands_where_it_stood_after_the_store_was_lost() {
    for wire in Wire::ALL {
        let acts = [
            turn(Originals, Plain(4), calls(4, 3)),
            turn(Originals, Plain(4), REPLY),
            Act::Edit(Place(35_459), Plain(70)),
            Act::LoseStore,
            turn(Originals, Plain(4), REPLY),
        ];
        check(wire, 8_000, &acts);
    }
}

#[test]
fn the_same_words_twice_in_one_delivery_are_two_messages() {
    let acts = [
        turn(Originals, GoOn, untold(REPLY)),
        Act::LoseAnswer,
        Act::LoseStore,
        turn(Originals, GoOn, untold(REPLY)),
    ];
    check(Wire::Chat, 8_000, &acts);
}

#[test]
fn a_client_carries_on_in_bytes_of_its_own() {
    for dialect in [Dialect::Reordered, Dialect::Spaced, Dialect::Parts] {
        let on = Act::Turn {
            words: Plain(9),
            holds: Handed,
            dialect,
            tries: 1,
            reply: REPLY,
        };
        check(Wire::Chat, 2_000, &grown_and(Handed, &[on]));
    }
}

#[test]
fn a_client_that_carried_on_sends_everything_again() {
    let acts = [
        turn(Handed, Plain(9), REPLY),
        turn(Originals, Plain(9), REPLY),
    ];
    check(Wire::Chat, 2_000, &grown_and(Originals, &acts));
}

#[test]
fn a_client_that_carried_on_sends_everything_again_after_a_restart() {
    let restart = Act::Restart { in_order: true };
    let acts = [
        turn(Handed, Plain(9), REPLY),
        restart,
        turn(Originals, Plain(9), REPLY),
    ];
    check(Wire::Chat, 2_000, &grown_and(Handed, &acts));
}

#[test]
fn a_client_that_sent_everything_carries_on_after_a_restart() {
    let acts = [
        Act::Restart { in_order: true },
        turn(Handed, Plain(9), REPLY),
    ];
    check(Wire::Chat, 2_000, &grown_and(Originals, &acts));
}

#[test]
fn a_client_carries_on_after_the_record_was_lost() {
    check(
        Wire::Chat,
        2_000,
        &grown_and(Handed, &[Act::LoseRecord, turn(Handed, Plain(9), REPLY)]),
    );
}

#[test]
fn a_client_sends_everything_after_the_record_was_lost() {
    check(
        Wire::Chat,
        2_000,
        &grown_and(
            Originals,
            &[Act::LoseRecord, turn(Originals, Plain(9), REPLY)],
        ),
    );
}

#[test]
fn a_client_carries_on_after_the_store_was_lost() {
    check(
        Wire::Chat,
        2_000,
        &grown_and(Handed, &[Act::LoseStore, turn(Handed, Plain(9), REPLY)]),
    );
}

#[test]
fn a_client_carries_on_after_an_older_copy_of_the_store_was_put_back() {
    let mut acts = vec![turn(Handed, Plain(9), REPLY), Act::BackUp];
    acts.extend(grown_and(
        Handed,
        &[Act::PutBack, turn(Handed, Plain(9), REPLY)],
    ));
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn a_shortened_result_is_no_message_after_the_store_was_lost() {
    let acts = [
        turn(Handed, Plain(4), calls(4, 1)),
        turn(Handed, Plain(735), calls(4, 1)),
        turn(Handed, Plain(735), answer(4)),
        turn(Handed, Plain(4), answer(4)),
        Act::LoseStore,
        turn(Handed, Plain(4), REPLY),
    ];
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn a_client_that_carried_on_rewinds_its_originals() {
    let acts = [
        turn(Handed, Plain(9), REPLY),
        Act::Rewind(FIRST),
        turn(Originals, Plain(9), REPLY),
    ];
    check(Wire::Chat, 2_000, &grown_and(Handed, &acts));
}

#[test]
fn a_client_that_carries_on_rewinds() {
    let acts = [
        turn(Handed, Plain(9), REPLY),
        Act::Rewind(LAST),
        turn(Handed, Plain(9), REPLY),
    ];
    for wire in Wire::ALL {
        check(wire, 2_000, &grown_and(Handed, &acts));
    }
}

#[test]
fn a_client_that_carried_on_edits_its_originals() {
    let acts = [
        turn(Handed, Plain(9), REPLY),
        Act::Edit(FIRST, Plain(9)),
        turn(Originals, Plain(9), REPLY),
    ];
    check(Wire::Chat, 2_000, &grown_and(Handed, &acts));
}

#[test]
fn a_client_that_carries_on_edits() {
    let acts = [
        turn(Handed, Plain(9), REPLY),
        Act::Edit(LAST, Plain(9)),
        turn(Handed, Plain(9), REPLY),
    ];
    for wire in Wire::ALL {
        check(wire, 2_000, &grown_and(Handed, &acts));
    }
}

#[test]
fn the_compressor_keeps_the_users_last_words_in_a_round_of_thinking() {
    let thinks = Reply {
        thinks: true,
        ..calls(600, 1)
    };
    let acts = [
        Act::ChangeEngine,
        turn(Originals, Plain(432), thinks),
        turn(Originals, Plain(102), REPLY),
    ];
    check(Wire::Anthropic, 2_000, &acts);
}

#[test]
fn the_lossless_engine_comes_back_to_what_another_shortened() {
    let acts = [
        Act::ChangeEngine,
        turn(Handed, Plain(4), calls(4, 3)),
        turn(Handed, Plain(553), answer(4)),
        Act::ChangeEngine,
        turn(Handed, Plain(4), REPLY),
    ];
    check(Wire::Responses, 2_000, &acts);
}

#[test]
fn words_that_begin_with_the_mark_are_the_users() {
    for words in [SummaryMark, ShortenedMark, ClosedSummary] {
        let acts = [
            turn(Originals, Plain(300), answer(429)),
            turn(Originals, words, calls(4, 3)),
            turn(Originals, Plain(33), REPLY),
        ];
        check(Wire::Chat, 2_000, &acts);
    }
}

#[test]
fn an_answer_that_tells_of_a_summary_stays_whole() {
    let tells = Reply {
        words: ClosedSummary,
        ..calls(4, 1)
    };
    let acts = [
        turn(Originals, Plain(4), answer(99)),
        turn(Originals, Plain(4), tells),
        turn(Originals, Plain(4), REPLY),
        turn(Originals, Plain(881), REPLY),
    ];
    check(Wire::Responses, 2_000, &acts);
}

#[test]
fn the_same_body_again_gives_the_same() {
    let thinks = Reply {
        thinks: true,
        ..calls(870, 1)
    };
    let twice = Act::Turn {
        words: Plain(622),
        holds: Originals,
        dialect: Dialect::AsIs,
        tries: 2,
        reply: REPLY,
    };
    let acts = [
        turn(Originals, Plain(4), REPLY),
        turn(Originals, Plain(4), thinks),
        twice,
    ];
    check(Wire::Anthropic, 2_000, &acts);
}

fn fail(method: &'static str, failure: Failure) -> Act {
    Act::Fail(Fault {
        method,
        failure,
        works: false,
    })
}

#[test]
fn what_was_cut_off_while_the_engine_failed_leaves_the_conversation() {
    for failure in [Failure::Error, Failure::Hang] {
        let acts = [
            fail("cut", failure),
            turn(Originals, Plain(4), REPLY),
            Act::SendAgain(REPLY),
        ];
        check(Wire::Chat, 8_000, &acts);
    }
}

#[test]
fn what_was_cut_off_while_the_engine_did_not_say_what_it_has_seen_leaves_the_conversation() {
    let acts = [
        turn(
            Originals,
            Plain(4),
            Reply {
                words: GoOn,
                ..REPLY
            },
        ),
        fail("observed_through", Failure::Error),
        Act::SendAgain(REPLY),
        turn(Originals, Plain(4), REPLY),
    ];
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn a_client_carries_on_from_the_engine_that_stood_in() {
    let acts = [
        turn(Handed, GoOn, untold(answer(703))),
        turn(Handed, GoOn, untold(calls(61, 1))),
        turn(Handed, Plain(83), untold(REPLY)),
        turn(Handed, Chinese, untold(answer(747))),
        fail("observe", Failure::Panic),
        turn(Handed, Image, untold(calls(7, 1))),
        turn(Handed, Chinese, untold(REPLY)),
    ];
    check(Wire::Chat, 4_000, &acts);
}

#[test]
fn what_was_stored_late_and_cut_off_since_takes_nothing_with_it() {
    let late = Fault {
        method: "observe",
        failure: Failure::Hang,
        works: true,
    };
    let acts = [
        Act::Fail(late),
        turn(Handed, Plain(9), REPLY),
        Act::Rewind(LAST),
        turn(Handed, Plain(9), REPLY),
        turn(Handed, Plain(9), REPLY),
    ];
    check(Wire::Chat, 2_000, &grown_and(Handed, &acts));
}

#[test]
fn an_engine_that_misses_its_deadline_is_shown_the_rest_later() {
    for holds in [Originals, Handed] {
        let acts = [
            fail("observe", Failure::Hang),
            turn(holds, Plain(9), REPLY),
            turn(holds, Plain(9), REPLY),
        ];
        check(Wire::Chat, 2_000, &grown_and(holds, &acts));
    }
}

#[test]
fn a_client_carries_on_from_a_summary_beside_an_empty_message() {
    let acts = [
        turn(Handed, Plain(4), calls(4, 1)),
        turn(Handed, Plain(83), answer(4)),
        turn(Handed, Plain(111), calls(25, 1)),
        turn(Handed, GoOn, answer(112)),
        turn(Handed, Plain(106), calls(9, 2)),
        turn(Handed, Chinese, answer(4)),
        turn(Handed, Empty, answer(4)),
        turn(Handed, Plain(300), answer(4)),
        turn(Handed, Plain(4), REPLY),
    ];
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn a_client_carries_on_with_words_that_were_said_before() {
    let go_on = untold(Reply {
        words: GoOn,
        ..REPLY
    });
    let acts = [
        turn(Handed, GoOn, go_on),
        turn(Handed, Plain(100), answer(100)),
        turn(Handed, Plain(300), answer(300)),
        turn(Handed, Plain(300), go_on),
        turn(Handed, GoOn, REPLY),
    ];
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn what_is_nowhere_once_the_engine_is_back_is_reported() {
    let acts = [
        turn(Handed, Plain(4), untold(answer(4))),
        turn(Handed, Plain(4), untold(calls(4, 2))),
        turn(Handed, Plain(22), untold(answer(4))),
        turn(Handed, Plain(4), untold(calls(70, 2))),
        turn(Handed, Plain(73), untold(calls(4, 3))),
        fail("observe", Failure::Hang),
        turn(Handed, Plain(4), untold(calls(332, 1))),
        turn(Handed, GoOn, untold(REPLY)),
        turn(Handed, Plain(4), REPLY),
    ];
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn what_the_user_said_twice_is_kept_with_the_notices_between() {
    let turn = |holds, dialect| Act::Turn {
        words: Plain(4),
        holds,
        dialect,
        tries: 1,
        reply: REPLY,
    };
    let plain = || turn(Originals, Dialect::AsIs);
    let acts = [
        plain(),
        Act::LoseAnswer,
        plain(),
        plain(),
        turn(Handed, Dialect::Reordered),
        plain(),
        Act::ChangeProcess,
        plain(),
    ];
    check_with("virtual-files", Wire::Anthropic, 4_000, &acts);
}

#[test]
fn a_summary_that_shares_a_text_with_the_words_after_it_stays_there() {
    let acts = [
        turn(
            Originals,
            Plain(4),
            Reply {
                thinks: true,
                ..calls(32, 1)
            },
        ),
        turn(
            Originals,
            ClosedSummary,
            Reply {
                words: ClosedSummary,
                ..calls(4, 1)
            },
        ),
        turn(Originals, Plain(887), answer(618)),
        turn(Originals, Plain(99), answer(4)),
        turn(Handed, Plain(4), answer(4)),
    ];
    check_with("virtual-files", Wire::Anthropic, 2_000, &acts);
}

#[test]
fn what_the_model_has_seen_whole_becomes_no_file_in_a_smaller_window() {
    let acts = [
        turn(Originals, Plain(487), answer(4)),
        Act::Window {
            tokens: 2_000,
            at_once: false,
        },
        turn(Originals, Plain(4), answer(4)),
    ];
    check_with("virtual-files", Wire::Anthropic, 4_000, &acts);
}

#[test]
fn a_short_form_behind_a_summary_is_found_by_its_place_without_a_record() {
    let acts = [
        turn(Originals, Plain(4), calls(88, 2)),
        turn(Originals, Plain(4), answer(4)),
        turn(Originals, Plain(722), answer(745)),
        turn(Originals, Plain(4), answer(4)),
        Act::LoseRecord,
        turn(Handed, Plain(4), answer(4)),
    ];
    check(Wire::Chat, 2_000, &acts);
}

#[test]
fn a_cut_that_comes_when_the_session_has_gone_on_cuts_nothing() {
    let acts = [
        turn(Originals, GoOn, calls(48, 3)),
        turn(Originals, Plain(448), untold(answer(4))),
        Act::Fail(Fault {
            method: "cut",
            failure: Failure::Hang,
            works: true,
        }),
        turn(Handed, Plain(519), answer(4)),
        turn(Handed, GoOn, answer(4)),
        turn(Handed, Plain(4), calls(492, 1)),
        Act::Rewind(Place(45_042)),
        turn(Originals, Chinese, calls(25, 2)),
        turn(Originals, Plain(404), calls(69, 1)),
        turn(Originals, Plain(28), calls(4, 1)),
        turn(Originals, Plain(433), calls(4, 1)),
        turn(Handed, Chinese, untold(calls(81, 1))),
        turn(Handed, Plain(15), answer(4)),
    ];
    check(Wire::Chat, 4_000, &acts);
}

#[test]
fn a_session_is_taken_over_from_the_store_of_an_engine_that_does_not_say_what_it_has_seen() {
    let thinks = |words| Reply {
        thinks: true,
        ..answer(words)
    };
    let acts = [
        turn(Originals, Plain(89), answer(4)),
        turn(Originals, Plain(4), thinks(118)),
        turn(Originals, Plain(4), thinks(58)),
        turn(Originals, Plain(4), answer(379)),
        turn(Originals, Plain(4), calls(4, 2)),
        turn(Originals, Plain(4), answer(4)),
        Act::LoseRecord,
        fail("observed_through", Failure::Error),
        turn(Handed, Plain(4), answer(4)),
    ];
    check(Wire::Anthropic, 2_000, &acts);
}

#[test]
fn a_result_that_the_client_clears_itself_is_kept_as_the_client_has_it() {
    for wire in Wire::ALL {
        for place in 0..16 {
            let acts = [
                turn(Originals, Plain(5), calls(4, 1)),
                turn(Originals, Plain(9), calls(4, 1)),
                turn(Originals, Plain(9), answer(4)),
                turn(Originals, Plain(7), answer(4)),
                Act::Edit(Place(place * 4_096 + 100), Cleared),
                turn(Originals, Plain(4), answer(4)),
                turn(Originals, Plain(4), answer(4)),
            ];
            check(wire, 8_000, &acts);
        }
    }
}

#[test]
fn a_store_is_taken_over_where_its_engine_could_not_be_opened_when_the_record_was_lost() {
    let thinks = |words: Words, calls: u8| Reply {
        thinks: true,
        calls,
        words,
        ..answer(4)
    };
    let say = |words: Words, reply: Reply| turn(Originals, words, reply);
    let acts = [
        say(Image, thinks(Plain(64), 0)),
        say(Plain(4), answer(4)),
        say(Plain(4), thinks(Chinese, 2)),
        say(SummaryMark, answer(4)),
        say(Plain(4), thinks(Chinese, 3)),
        say(Chinese, thinks(Plain(68), 0)),
        say(Plain(89), calls(4, 2)),
        say(ShortenedMark, answer(4)),
        Act::Window {
            tokens: 3_000,
            at_once: true,
        },
        Act::SendAgain(Reply {
            same_ids: true,
            with_usage: true,
            ..thinks(Plain(114), 0)
        }),
        say(Image, thinks(Plain(26), 0)),
        say(Plain(4), answer(4)),
        Act::LoseRecord,
        Act::Fail(Fault {
            method: "open",
            failure: Failure::Panic,
            works: true,
        }),
        turn(Handed, Plain(4), answer(4)),
    ];
    check(Wire::Anthropic, 4_000, &acts);
}

#[test]
fn what_another_engine_had_while_the_record_was_lost_leaves_no_ids_behind() {
    let thinks = |words, calls: u8| Reply {
        thinks: true,
        calls,
        ..answer(words)
    };
    let say = |words: u16, reply: Reply| turn(Originals, Plain(words), reply);
    let acts = [
        say(48, calls(4, 1)),
        say(4, thinks(30, 2)),
        say(73, calls(62, 1)),
        say(4, calls(4, 3)),
        say(4, thinks(451, 0)),
        say(4, thinks(95, 0)),
        Act::ChangeEngine,
        Act::LoseRecord,
        turn(Handed, ShortenedMark, calls(4, 1)),
        Act::ChangeEngine,
        say(4, answer(4)),
        Act::ChangeProcess,
        Act::Insert(Place(13_427), Plain(104), true),
        say(4, answer(4)),
        Act::LoseAnswer,
        say(4, answer(4)),
    ];
    check(Wire::Anthropic, 3_000, &acts);
}

#[test]
fn what_a_tool_said_in_the_words_of_the_host_stays_though_the_record_is_lost() {
    let say = |words, reply| turn(Originals, words, reply);
    check_with(
        "two-layer",
        Wire::Chat,
        8_000,
        &[
            Act::ChangeEngine,
            say(Chinese, answer(584)),
            say(Plain(4), calls(4, 1)),
            say(Plain(4), calls(99, 1)),
            say(Plain(4), calls(90, 1)),
            say(Plain(76), answer(40)),
            say(Plain(96), answer(749)),
            say(Image, REPLY),
            say(Plain(4), answer(87)),
            say(Plain(112), answer(112)),
            say(Plain(65), REPLY),
            say(
                Chinese,
                Reply {
                    words: SummaryMark,
                    ..REPLY
                },
            ),
            say(Plain(4), calls(119, 1)),
            say(Plain(4), answer(322)),
            say(Plain(383), calls(32, 1)),
            say(Plain(62), answer(115)),
            say(ClosedSummary, calls(4, 3)),
            Act::Restart { in_order: true },
            say(Cleared, REPLY),
            Act::LoseRecord,
            turn(Handed, Plain(4), REPLY),
            Act::Rewind(Place(64_946)),
            say(Plain(4), REPLY),
        ],
    );
}

#[test]
fn an_engine_goes_on_after_another_one_without_a_record() {
    let say = |words| turn(Originals, Plain(words), REPLY);
    check(
        Wire::Chat,
        3_000,
        &[
            turn(
                Originals,
                Plain(114),
                Reply {
                    same_ids: true,
                    ..calls(4, 1)
                },
            ),
            say(4),
            say(4),
            turn(Originals, Plain(99), answer(60)),
            Act::Edit(Place(29_021), GoOn),
            turn(Originals, Chinese, REPLY),
            turn(
                Originals,
                Plain(43),
                Reply {
                    same_ids: true,
                    ..calls(114, 1)
                },
            ),
            say(867),
            Act::ChangeEngine,
            say(4),
            say(4),
            say(4),
            Act::LoseRecord,
            turn(Handed, Plain(4), REPLY),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: GoOn,
                    ..REPLY
                },
            ),
            Act::ChangeEngine,
            turn(Handed, Plain(4), REPLY),
        ],
    );
}

#[test]
fn a_word_beside_a_result_stays_where_the_result_is_summarised() {
    let say = |words| turn(Originals, Plain(words), REPLY);
    let asks = |words, reply| turn(Originals, Plain(words), reply);
    let acts = [
        asks(4, calls(4, 1)),
        turn(Originals, GoOn, REPLY),
        Act::LoseAnswer,
        Act::ChangeEngine,
        asks(4, calls(4, 2)),
        asks(4, calls(4, 3)),
        asks(109, calls(4, 2)),
        asks(4, answer(92)),
        say(4),
        Act::Rewind(Place(41_573)),
        asks(35, untold(calls(67, 1))),
        Act::Turn {
            words: Plain(119),
            holds: Originals,
            dialect: Dialect::Spaced,
            tries: 1,
            reply: answer(111),
        },
        asks(
            4,
            Reply {
                thinks: true,
                ..answer(39)
            },
        ),
        say(686),
    ];
    check(Wire::Anthropic, 4_000, &acts);
}

#[test]
fn words_said_twice_stay_in_their_places_when_the_record_is_lost() {
    let say = |words, reply| turn(Originals, words, reply);
    let acts = [
        Act::Window {
            tokens: 3_000,
            at_once: true,
        },
        say(Plain(4), REPLY),
        say(GoOn, answer(113)),
        say(Plain(599), answer(373)),
        say(Plain(105), calls(28, 1)),
        say(GoOn, answer(110)),
        say(Plain(53), REPLY),
        Act::Insert(Place(43_131), GoOn, true),
        Act::LoseRecord,
        turn(Handed, Plain(4), REPLY),
    ];
    check(Wire::Chat, 8_000, &acts);
}

/// Who has just sent a result in its own words clears it itself, whatever was lost before.
#[test]
fn a_result_that_the_client_clears_after_the_record_was_lost_is_cleared() {
    for wire in Wire::ALL {
        for place in 0..16 {
            let acts = [
                turn(Originals, Plain(4), calls(4, 1)),
                turn(Originals, Plain(4), REPLY),
                Act::LoseRecord,
                turn(Originals, Plain(4), REPLY),
                Act::Edit(Place(place * 4_096), Cleared),
                turn(Originals, Plain(4), REPLY),
            ];
            check(wire, 8_000, &acts);
        }
    }
}

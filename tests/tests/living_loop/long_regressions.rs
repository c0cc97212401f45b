//! Longer sessions that went wrong, as short as the search could make them.

use crate::act::{Act, Holds, Place, Reply, Words};
use crate::regressions::{check, turn};
use crate::wire::{Dialect, Wire};

use Holds::{Handed, Originals};
use Words::{Chinese, Cleared, Empty, GoOn, Image, Plain};

const SHORT: Reply = Reply::PLAIN;

#[test]
fn an_answer_and_the_record_are_lost_and_the_client_carries_on() {
    check(
        Wire::Responses,
        4000,
        &[
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(88),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Chinese,
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(92),
                Reply {
                    words: Chinese,
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(87),
                Reply {
                    words: Plain(63),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(31),
                Reply {
                    words: Plain(111),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(117),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(100),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(19),
                Reply {
                    words: Plain(13),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(67), Reply { calls: 1, ..SHORT }),
            Act::Restart { in_order: false },
            turn(Originals, Plain(94), SHORT),
            Act::LoseAnswer,
            Act::LoseRecord,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_cleared_result_is_the_hosts_without_a_record_too() {
    check(
        Wire::Responses,
        2000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            Act::ChangeEngine,
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(Originals, GoOn, SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(42), Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(334), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(104),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(73), SHORT),
            turn(Originals, Plain(97), SHORT),
            Act::ChangeEngine,
            Act::LoseRecord,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn an_edited_message_keeps_its_place_in_an_engine_that_comes_to_it_later() {
    check(
        Wire::Chat,
        8000,
        &[
            turn(Originals, Plain(4), SHORT),
            Act::Edit(Place(18177), Plain(32)),
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            Act::SendAgain(Reply {
                words: Plain(36),
                thinks: true,
                calls: 1,
                told: false,
                ..SHORT
            }),
            Act::LoseStore,
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn what_was_handed_out_in_part_is_stored_whole() {
    check(
        Wire::Anthropic,
        4000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Empty, SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(101),
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(Originals, GoOn, Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            turn(Originals, Plain(661), Reply { calls: 1, ..SHORT }),
            Act::LoseStore,
            turn(Handed, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_tool_says_what_the_host_writes() {
    check(
        Wire::Chat,
        2000,
        &[
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Insert(Place(32666), Plain(119), true),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    calls: 1,
                    same_ids: true,
                    ..SHORT
                },
            ),
            turn(Originals, Cleared, SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(492),
                Reply {
                    calls: 2,
                    same_ids: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(93), Reply { calls: 3, ..SHORT }),
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_summary_in_the_clients_own_bytes_stays_in_them_after_a_restart() {
    check(
        Wire::Chat,
        3000,
        &[
            turn(Originals, Plain(4), SHORT),
            Act::SendAgain(Reply {
                words: Plain(94),
                thinks: true,
                calls: 3,
                with_usage: true,
                ..SHORT
            }),
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(785),
                Reply {
                    words: Plain(684),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            Act::Turn {
                words: Plain(4),
                holds: Handed,
                dialect: Dialect::Parts,
                tries: 1,
                reply: SHORT,
            },
            Act::Restart { in_order: false },
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn what_only_a_lost_record_knew_is_named() {
    check(
        Wire::Anthropic,
        2000,
        &[
            turn(
                Originals,
                Plain(4),
                Reply {
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(685),
                Reply {
                    words: Plain(29),
                    with_usage: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(96),
                Reply {
                    words: Plain(343),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Image, SHORT),
            Act::LoseRecord,
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn summaries_go_with_what_was_cut_off_before_a_restart() {
    check(
        Wire::Responses,
        3000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Rewind(Place(385)),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(79),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    told: false,
                    ..SHORT
                },
            ),
            Act::Rewind(Place(37188)),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(110),
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(103),
                Reply {
                    words: Plain(70),
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Window {
                tokens: 2000,
                at_once: true,
            },
            turn(Originals, GoOn, SHORT),
            Act::LoseAnswer,
            Act::Restart { in_order: false },
            turn(Originals, Plain(4), SHORT),
            Act::Restart { in_order: false },
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

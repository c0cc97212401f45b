//! Longer sessions that went wrong, as short as the search could make them.

use crate::act::{Act, Holds, Place, Reply, Words};
use crate::flaky::{Failure, Fault};
use crate::regressions::{check, check_with, turn};
use crate::wire::{Dialect, Wire};

use Holds::{Handed, Originals};
use Words::{
    Chinese, Cleared, ClosedSummary, Empty, GoOn, Image, Plain, ShortenedMark, SummaryMark,
};

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

#[test]
fn the_same_request_again_after_a_failure_is_decided_alike() {
    check(
        Wire::Responses,
        8000,
        &[
            turn(
                Originals,
                SummaryMark,
                Reply {
                    words: Plain(110),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Plain(73),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(112),
                Reply {
                    words: Plain(104),
                    ..SHORT
                },
            ),
            Act::Window {
                tokens: 3000,
                at_once: false,
            },
            turn(Originals, Plain(4), SHORT),
            Act::SendAgain(Reply {
                words: GoOn,
                told: false,
                ..SHORT
            }),
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(102),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, GoOn, SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(111), Reply { calls: 3, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(899),
                    ..SHORT
                },
            ),
            Act::Edit(Place(63011), Plain(104)),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(678),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                GoOn,
                Reply {
                    words: ClosedSummary,
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(27),
                holds: Originals,
                dialect: Dialect::AsIs,
                tries: 3,
                reply: SHORT,
            },
        ],
    );
}

#[test]
fn what_stands_behind_the_summary_does_not_shrink() {
    check(
        Wire::Chat,
        3000,
        &[
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(
                Originals,
                Plain(108),
                Reply {
                    words: Plain(85),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(105),
                Reply {
                    words: Plain(577),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            Act::ChangeEngine,
            turn(Originals, GoOn, Reply { calls: 1, ..SHORT }),
            Act::Window {
                tokens: 8000,
                at_once: false,
            },
            turn(
                Originals,
                Plain(29),
                Reply {
                    words: Plain(728),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(662),
                Reply {
                    words: Plain(22),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(35),
                Reply {
                    words: Plain(110),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(100),
                Reply {
                    words: Plain(833),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(76), SHORT),
            Act::LoseAnswer,
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(364),
                Reply {
                    with_usage: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_short_form_behind_an_inserted_message_is_the_same_message_again() {
    check(
        Wire::Responses,
        2000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(105), Reply { calls: 2, ..SHORT }),
            turn(Originals, Plain(717), SHORT),
            Act::Insert(Place(28187), Plain(54), false),
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn an_engine_comes_back_after_a_branch_and_a_lost_answer() {
    check(
        Wire::Chat,
        2000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Insert(Place(51843), ShortenedMark, false),
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            Act::LoseAnswer,
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn the_clients_form_of_an_answer_of_several_items_stays() {
    check(
        Wire::Responses,
        3000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Insert(Place(19613), Plain(64), true),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(105),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(64),
                Reply {
                    words: Plain(22),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(636),
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(356),
                holds: Originals,
                dialect: Dialect::Parts,
                tries: 1,
                reply: Reply {
                    thinks: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: Plain(4),
                holds: Originals,
                dialect: Dialect::Parts,
                tries: 1,
                reply: SHORT,
            },
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_result_that_was_cleared_without_a_record_is_cleared_again() {
    check(
        Wire::Chat,
        3000,
        &[
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: SummaryMark,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(104),
                Reply {
                    words: Chinese,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(51),
                Reply {
                    words: Plain(63),
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(45),
                Reply {
                    words: Plain(108),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(19),
                Reply {
                    words: Plain(59),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(88), SHORT),
            turn(
                Originals,
                Plain(67),
                Reply {
                    words: Plain(397),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            Act::LoseRecord,
            turn(Handed, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Turn {
                words: Plain(4),
                holds: Handed,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: SHORT,
            },
        ],
    );
}

#[test]
fn the_same_request_again_is_decided_alike() {
    check(
        Wire::Responses,
        4000,
        &[
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            Act::ChangeEngine,
            turn(Originals, Plain(62), SHORT),
            turn(Originals, Chinese, SHORT),
            Act::Window {
                tokens: 2000,
                at_once: true,
            },
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(95),
                    calls: 1,
                    told: false,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(411),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(31), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(78),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Chinese,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                SummaryMark,
                Reply {
                    words: Plain(18),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                ClosedSummary,
                Reply {
                    words: Plain(14),
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Edit(Place(9197), Plain(24)),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(79),
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(37),
                holds: Originals,
                dialect: Dialect::AsIs,
                tries: 2,
                reply: SHORT,
            },
        ],
    );
}

#[test]
fn an_engine_is_shown_all_that_it_has_to_keep() {
    check(
        Wire::Responses,
        2000,
        &[
            Act::Turn {
                words: Plain(888),
                holds: Handed,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: Reply {
                    words: Plain(41),
                    thinks: true,
                    calls: 1,
                    with_usage: true,
                    ..SHORT
                },
            },
            turn(
                Originals,
                Empty,
                Reply {
                    words: Chinese,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Handed,
                Plain(27),
                Reply {
                    words: Plain(23),
                    with_usage: true,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: GoOn,
                holds: Handed,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: Reply {
                    words: Plain(22),
                    thinks: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: Image,
                holds: Originals,
                dialect: Dialect::Parts,
                tries: 1,
                reply: Reply {
                    words: GoOn,
                    thinks: true,
                    calls: 2,
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: Plain(83),
                holds: Handed,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: Reply {
                    words: Plain(93),
                    thinks: true,
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: GoOn,
                holds: Originals,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: Reply {
                    words: GoOn,
                    thinks: true,
                    ..SHORT
                },
            },
            turn(
                Handed,
                Plain(56),
                Reply {
                    words: Empty,
                    told: false,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(85),
                holds: Handed,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: Reply {
                    words: GoOn,
                    thinks: true,
                    ..SHORT
                },
            },
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Empty,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(16),
                holds: Handed,
                dialect: Dialect::Strings,
                tries: 1,
                reply: Reply {
                    words: Plain(72),
                    thinks: true,
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: Plain(98),
                holds: Originals,
                dialect: Dialect::AsIs,
                tries: 2,
                reply: Reply {
                    words: Plain(6),
                    calls: 1,
                    same_ids: true,
                    ..SHORT
                },
            },
            Act::Restart { in_order: true },
            Act::Turn {
                words: Plain(68),
                holds: Handed,
                dialect: Dialect::Parts,
                tries: 1,
                reply: Reply {
                    words: Plain(23),
                    calls: 3,
                    told: false,
                    ..SHORT
                },
            },
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(17),
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(73),
                holds: Handed,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: Reply {
                    words: GoOn,
                    ..SHORT
                },
            },
            turn(
                Handed,
                GoOn,
                Reply {
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Rewind(Place(35868)),
            Act::Restart { in_order: true },
            Act::Turn {
                words: Plain(73),
                holds: Originals,
                dialect: Dialect::Reordered,
                tries: 2,
                reply: Reply {
                    words: Plain(78),
                    calls: 2,
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::BackUp,
            Act::Turn {
                words: SummaryMark,
                holds: Originals,
                dialect: Dialect::Parts,
                tries: 3,
                reply: Reply {
                    words: Plain(16),
                    thinks: true,
                    ..SHORT
                },
            },
            Act::ChangeEngine,
            turn(
                Originals,
                GoOn,
                Reply {
                    words: GoOn,
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Empty,
                holds: Originals,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: Reply {
                    words: Plain(535),
                    thinks: true,
                    calls: 1,
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: Plain(48),
                holds: Originals,
                dialect: Dialect::Parts,
                tries: 1,
                reply: Reply {
                    words: Plain(65),
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::LoseRecord,
            Act::Turn {
                words: Empty,
                holds: Originals,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: Reply {
                    words: Plain(27),
                    thinks: true,
                    same_ids: true,
                    with_usage: true,
                    ..SHORT
                },
            },
            Act::Turn {
                words: Plain(110),
                holds: Originals,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: Reply {
                    words: Plain(90),
                    calls: 3,
                    ..SHORT
                },
            },
            turn(
                Handed,
                GoOn,
                Reply {
                    words: Plain(83),
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: GoOn,
                holds: Originals,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: Reply {
                    words: Plain(95),
                    ..SHORT
                },
            },
            Act::Turn {
                words: Empty,
                holds: Originals,
                dialect: Dialect::Strings,
                tries: 1,
                reply: Reply {
                    words: Plain(118),
                    ..SHORT
                },
            },
            Act::LoseAnswer,
            Act::PutBack,
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(17),
                Reply {
                    words: GoOn,
                    thinks: true,
                    with_usage: true,
                    ..SHORT
                },
            ),
        ],
    );
}

#[test]
fn a_summary_of_unknown_extent_is_named() {
    check(
        Wire::Anthropic,
        2000,
        &[
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(100),
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            Act::LoseStore,
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
            turn(Originals, Plain(4), SHORT),
            Act::LoseRecord,
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn messages_that_an_engine_has_under_other_ids_are_not_lost() {
    check(
        Wire::Responses,
        4000,
        &[
            turn(Originals, Plain(4), SHORT),
            Act::LoseAnswer,
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(105),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(114), Reply { calls: 3, ..SHORT }),
            Act::ChangeEngine,
            turn(Originals, Plain(62), SHORT),
            turn(Originals, Plain(112), Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(30), Reply { calls: 1, ..SHORT }),
            turn(
                Originals,
                Plain(80),
                Reply {
                    words: Plain(49),
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(63),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(59),
                Reply {
                    words: Plain(69),
                    ..SHORT
                },
            ),
            turn(Originals, Image, SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(107),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(108),
                    ..SHORT
                },
            ),
            Act::LoseRecord,
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn equal_words_are_taken_back_wherever_they_stand() {
    check(
        Wire::Chat,
        2000,
        &[
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(4), SHORT),
            Act::SendAgain(Reply {
                words: GoOn,
                thinks: true,
                calls: 3,
                ..SHORT
            }),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Empty, SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Rewind(Place(45774)),
            Act::Edit(Place(58327), GoOn),
            Act::BackUp,
            turn(
                Originals,
                Empty,
                Reply {
                    words: Plain(754),
                    ..SHORT
                },
            ),
            Act::LoseStore,
            turn(Originals, Plain(4), SHORT),
            Act::PutBack,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_cleared_result_among_others_is_not_stored() {
    check(
        Wire::Anthropic,
        4000,
        &[
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Window {
                tokens: 8000,
                at_once: false,
            },
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            turn(
                Originals,
                Plain(742),
                Reply {
                    words: Plain(793),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn an_earlier_form_that_an_engine_lacks_is_no_place() {
    let acts = [
        turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
        Act::Edit(Place(31529), Plain(40)),
        turn(
            Originals,
            Plain(4),
            Reply {
                words: ShortenedMark,
                thinks: true,
                ..SHORT
            },
        ),
        turn(Originals, Plain(4), SHORT),
        turn(
            Originals,
            Plain(4),
            Reply {
                words: Plain(105),
                ..SHORT
            },
        ),
        turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
        turn(
            Originals,
            Plain(35),
            Reply {
                words: Plain(73),
                ..SHORT
            },
        ),
        turn(
            Originals,
            Plain(39),
            Reply {
                words: Plain(42),
                thinks: true,
                calls: 3,
                ..SHORT
            },
        ),
        Act::ChangeEngine,
        turn(
            Originals,
            Plain(15),
            Reply {
                words: Plain(71),
                thinks: true,
                calls: 2,
                ..SHORT
            },
        ),
        Act::LoseStore,
        turn(Originals, GoOn, SHORT),
        Act::Restart { in_order: true },
        turn(Originals, Plain(32), SHORT),
        turn(Originals, Plain(93), SHORT),
        turn(Originals, Plain(119), SHORT),
        Act::ChangeEngine,
        turn(Handed, Plain(4), SHORT),
        turn(Originals, Plain(4), SHORT),
    ];
    // Where the compactions fall decides which messages the engine lacks when it comes back.
    for wire in [Wire::Anthropic, Wire::Chat] {
        for window in [1500, 2000, 2500] {
            check(wire, window, &acts);
        }
    }
}

#[test]
fn a_lost_record_comes_back_in_the_order_of_the_conversation() {
    check(
        Wire::Anthropic,
        8000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(813),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(57),
                Reply {
                    words: Plain(33),
                    thinks: true,
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(40),
                Reply {
                    words: Plain(26),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(25),
                Reply {
                    words: Plain(55),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(579), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(67),
                Reply {
                    words: Plain(108),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Image, SHORT),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(Originals, Chinese, SHORT),
            turn(Originals, Plain(469), SHORT),
            Act::Edit(Place(63535), Chinese),
            turn(Originals, Plain(4), SHORT),
            Act::LoseRecord,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_store_is_lost_while_an_engine_lacks_messages() {
    check(
        Wire::Chat,
        2000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::BackUp,
            Act::Insert(Place(63273), Plain(84), true),
            Act::Insert(Place(30923), Plain(17), false),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(111),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(102),
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(Originals, GoOn, SHORT),
            turn(
                Originals,
                Plain(42),
                Reply {
                    words: Plain(88),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(62),
                Reply {
                    words: Plain(88),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(72), SHORT),
            Act::PutBack,
            turn(Handed, Plain(709), SHORT),
            Act::Insert(Place(53374), Chinese, true),
            Act::LoseStore,
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn nothing_is_hidden_by_a_summary_between_neighbours() {
    check(
        Wire::Chat,
        2000,
        &[
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(Originals, Plain(678), Reply { calls: 3, ..SHORT }),
            turn(Originals, Plain(4), SHORT),
            Act::LoseStore,
            turn(Handed, Plain(4), SHORT),
            Act::LoseRecord,
            Act::SendAgain(Reply {
                words: Plain(42),
                thinks: true,
                with_usage: true,
                ..SHORT
            }),
        ],
    );
}

#[test]
fn what_has_no_answer_yet_has_just_been_said() {
    check(
        Wire::Responses,
        4000,
        &[
            turn(Originals, Plain(788), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(332),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(Originals, Plain(342), SHORT),
            turn(Originals, Plain(105), Reply { calls: 1, ..SHORT }),
            Act::LoseRecord,
            turn(Handed, Cleared, SHORT),
        ],
    );
}

#[test]
fn equal_words_are_taken_back_once_each() {
    check(
        Wire::Responses,
        2000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, GoOn, SHORT),
            Act::ChangeEngine,
            Act::Rewind(Place(356)),
            turn(Originals, GoOn, SHORT),
            Act::LoseAnswer,
            turn(Originals, GoOn, Reply { calls: 3, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(881),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(20),
                Reply {
                    words: Plain(65),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(609), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn of_two_forms_of_a_wire_message_the_whole_one_is_shown() {
    check(
        Wire::Anthropic,
        8000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(106),
                Reply {
                    words: Plain(33),
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::Window {
                tokens: 4000,
                at_once: false,
            },
            turn(Originals, Plain(110), Reply { calls: 1, ..SHORT }),
            Act::Insert(Place(3098), GoOn, true),
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(15),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(30),
                Reply {
                    words: Plain(15),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(6),
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(90),
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(
                Originals,
                Plain(25),
                Reply {
                    words: Plain(55),
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::LoseStore,
            turn(Originals, Plain(579), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(41),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: ClosedSummary,
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::Edit(Place(63535), Chinese),
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Plain(650),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(100), SHORT),
            Act::LoseRecord,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn equal_words_of_another_wire_message_are_taken_alone() {
    check(
        Wire::Anthropic,
        3000,
        &[
            turn(Originals, GoOn, SHORT),
            Act::SendAgain(Reply {
                words: Plain(49),
                told: false,
                ..SHORT
            }),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(Originals, GoOn, SHORT),
            Act::ChangeEngine,
            Act::Rewind(Place(20523)),
            turn(Originals, Empty, SHORT),
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_message_that_was_edited_under_another_engine_is_outdated() {
    check(
        Wire::Chat,
        2000,
        &[
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: GoOn,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(56),
                Reply {
                    words: Plain(106),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(26),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(78), Reply { calls: 1, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: GoOn,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            Act::Insert(Place(63564), Plain(82), false),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Rewind(Place(22880)),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(74), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(94),
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(75),
                    calls: 3,
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            Act::Edit(Place(29701), Plain(814)),
            turn(Originals, Plain(52), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn of_equal_words_the_nearest_are_taken_back() {
    check(
        Wire::Anthropic,
        2000,
        &[
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, ClosedSummary, SHORT),
            Act::LoseAnswer,
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: GoOn,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(35), SHORT),
            Act::LoseRecord,
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(473),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            Act::Edit(Place(7039), GoOn),
            turn(Originals, Plain(74), SHORT),
            turn(Handed, Plain(4), SHORT),
            Act::ChangeEngine,
            Act::SendAgain(Reply {
                words: Plain(27),
                ..SHORT
            }),
        ],
    );
}

#[test]
fn a_result_that_was_cleared_before_a_loss_does_not_stay() {
    check(
        Wire::Responses,
        8000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(337),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(118), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Window {
                tokens: 3000,
                at_once: true,
            },
            turn(Originals, Plain(4), SHORT),
            Act::Rewind(Place(22264)),
            Act::ChangeEngine,
            turn(
                Originals,
                Chinese,
                Reply {
                    words: Plain(35),
                    ..SHORT
                },
            ),
            Act::Insert(Place(47461), Plain(61), true),
            turn(
                Originals,
                Plain(118),
                Reply {
                    words: Plain(74),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(17),
                Reply {
                    words: Chinese,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            Act::SendAgain(Reply {
                words: SummaryMark,
                ..SHORT
            }),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(31),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(52), Reply { calls: 1, ..SHORT }),
            turn(Originals, Chinese, SHORT),
            Act::LoseRecord,
            Act::Rewind(Place(58233)),
            turn(Handed, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn what_stands_between_summaries_is_found_though_the_answer_was_lost() {
    check(
        Wire::Anthropic,
        3000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(Originals, Plain(838), Reply { calls: 3, ..SHORT }),
            turn(Originals, Plain(721), SHORT),
            Act::LoseRecord,
            Act::LoseAnswer,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn what_the_window_cannot_hold_is_said_each_time() {
    check(
        Wire::Anthropic,
        2000,
        &[
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(85),
                Reply {
                    words: Plain(890),
                    thinks: true,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(4),
                holds: Originals,
                dialect: Dialect::AsIs,
                tries: 3,
                reply: SHORT,
            },
        ],
    );
}

#[test]
fn a_summary_of_what_was_shown_again_is_no_longer_the_engines() {
    check(
        Wire::Chat,
        4000,
        &[
            Act::Window {
                tokens: 2000,
                at_once: false,
            },
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(78),
                Reply {
                    words: Plain(836),
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(89),
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(Originals, Plain(56), SHORT),
            turn(Originals, Plain(4), Reply { calls: 2, ..SHORT }),
            turn(Originals, Plain(84), SHORT),
            turn(Originals, Plain(94), SHORT),
            Act::LoseStore,
            turn(Handed, Plain(4), SHORT),
            turn(
                Handed,
                Plain(4),
                Reply {
                    words: Plain(87),
                    ..SHORT
                },
            ),
            turn(Handed, Plain(43), Reply { calls: 1, ..SHORT }),
            turn(Handed, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::ChangeProcess,
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn words_beside_the_results_of_tools_are_not_taken_for_the_same_words_alone() {
    let say = || turn(Originals, Plain(4), SHORT);
    check(
        Wire::Anthropic,
        2000,
        &[
            say(),
            say(),
            Act::Insert(Place(33220), GoOn, true),
            say(),
            say(),
            say(),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            Act::Edit(Place(51442), GoOn),
            turn(Originals, GoOn, SHORT),
            Act::BackUp,
            Act::LoseStore,
            say(),
            Act::PutBack,
            say(),
        ],
    );
}

#[test]
fn what_an_engine_lacks_stays_so_until_a_call_that_shows_it_succeeds() {
    let acts = [
        Act::Turn {
            words: Image,
            holds: Originals,
            dialect: Dialect::Reordered,
            tries: 1,
            reply: Reply {
                words: ClosedSummary,
                thinks: true,
                calls: 1,
                same_ids: false,
                told: true,
                with_usage: false,
            },
        },
        Act::Window {
            tokens: 2000,
            at_once: true,
        },
        Act::Turn {
            words: Plain(102),
            holds: Originals,
            dialect: Dialect::AsIs,
            tries: 1,
            reply: Reply {
                words: Image,
                thinks: true,
                calls: 0,
                same_ids: false,
                told: true,
                with_usage: true,
            },
        },
        Act::Fail(Fault {
            method: "cut",
            failure: Failure::Hang,
            works: false,
        }),
        Act::Fail(Fault {
            method: "end",
            failure: Failure::Hang,
            works: false,
        }),
        Act::Turn {
            words: Plain(16),
            holds: Handed,
            dialect: Dialect::AsIs,
            tries: 1,
            reply: Reply {
                words: Plain(51),
                thinks: true,
                calls: 0,
                same_ids: false,
                told: false,
                with_usage: true,
            },
        },
        Act::Turn {
            words: Image,
            holds: Originals,
            dialect: Dialect::Parts,
            tries: 1,
            reply: Reply {
                words: Plain(410),
                thinks: false,
                calls: 1,
                same_ids: false,
                told: true,
                with_usage: true,
            },
        },
        Act::Turn {
            words: Plain(51),
            holds: Originals,
            dialect: Dialect::AsIs,
            tries: 1,
            reply: Reply {
                words: Chinese,
                thinks: false,
                calls: 0,
                same_ids: false,
                told: true,
                with_usage: false,
            },
        },
        Act::Turn {
            words: Plain(82),
            holds: Handed,
            dialect: Dialect::Parts,
            tries: 1,
            reply: Reply {
                words: Plain(60),
                thinks: false,
                calls: 0,
                same_ids: false,
                told: true,
                with_usage: false,
            },
        },
        Act::Fail(Fault {
            method: "observe",
            failure: Failure::Error,
            works: false,
        }),
        Act::Turn {
            words: Empty,
            holds: Originals,
            dialect: Dialect::AsIs,
            tries: 2,
            reply: Reply {
                words: Plain(92),
                thinks: true,
                calls: 3,
                same_ids: false,
                told: true,
                with_usage: true,
            },
        },
        Act::Insert(Place(3811), ShortenedMark, false),
        Act::Turn {
            words: Plain(107),
            holds: Handed,
            dialect: Dialect::AsIs,
            tries: 1,
            reply: Reply {
                words: GoOn,
                thinks: false,
                calls: 0,
                same_ids: false,
                told: true,
                with_usage: false,
            },
        },
        Act::Fail(Fault {
            method: "open",
            failure: Failure::Hang,
            works: true,
        }),
        Act::Fail(Fault {
            method: "compress",
            failure: Failure::Panic,
            works: true,
        }),
        Act::Turn {
            words: GoOn,
            holds: Originals,
            dialect: Dialect::Parts,
            tries: 1,
            reply: Reply {
                words: Plain(77),
                thinks: true,
                calls: 0,
                same_ids: false,
                told: true,
                with_usage: true,
            },
        },
        Act::ChangeProcess,
        Act::Turn {
            words: Image,
            holds: Handed,
            dialect: Dialect::Strings,
            tries: 1,
            reply: Reply {
                words: Plain(105),
                thinks: true,
                calls: 0,
                same_ids: false,
                told: true,
                with_usage: true,
            },
        },
        Act::Turn {
            words: Plain(66),
            holds: Originals,
            dialect: Dialect::Reordered,
            tries: 1,
            reply: Reply {
                words: Plain(117),
                thinks: true,
                calls: 1,
                same_ids: false,
                told: true,
                with_usage: false,
            },
        },
        Act::Turn {
            words: Plain(91),
            holds: Originals,
            dialect: Dialect::AsIs,
            tries: 1,
            reply: Reply {
                words: Plain(86),
                thinks: false,
                calls: 3,
                same_ids: false,
                told: false,
                with_usage: true,
            },
        },
    ];
    check(Wire::Chat, 8_000, &acts);
}

#[test]
fn two_layer_is_done_with_a_request_at_once() {
    let say = |words, reply| turn(Originals, words, reply);
    let answer = |words| Reply { words, ..SHORT };
    let thinks = |words| Reply {
        thinks: true,
        ..answer(words)
    };
    let calls = |words, calls| Reply {
        calls,
        ..answer(words)
    };
    let acts = [
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
        Act::LoseAnswer,
        say(Plain(4), calls(Plain(87), 1)),
        say(Plain(4), thinks(Plain(91))),
        say(Plain(4), thinks(Empty)),
        say(Plain(82), SHORT),
        Act::Insert(Place(4046), Empty, false),
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), calls(Plain(99), 3)),
        say(Plain(4), SHORT),
        say(Plain(4), calls(Plain(98), 1)),
        say(Plain(4), calls(Plain(69), 2)),
        say(Plain(4), SHORT),
        Act::LoseAnswer,
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), thinks(Empty)),
        say(Plain(66), answer(Plain(43))),
        say(Plain(68), thinks(Plain(57))),
        say(Plain(4), thinks(Plain(103))),
        Act::Turn {
            words: Plain(4),
            holds: Originals,
            dialect: Dialect::AsIs,
            tries: 2,
            reply: SHORT,
        },
    ];
    check_with("two-layer", Wire::Responses, 3_000, &acts);
}

#[test]
fn a_summary_between_an_answer_and_a_call_is_applied() {
    let say = |words, reply| turn(Originals, words, reply);
    let answer = |words| Reply { words, ..SHORT };
    let thinks = |words| Reply {
        thinks: true,
        ..answer(words)
    };
    let calls = |words, calls| Reply {
        calls,
        ..answer(words)
    };
    let acts = [
        say(
            Plain(4),
            Reply {
                calls: 3,
                ..thinks(Plain(115))
            },
        ),
        say(Plain(72), SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), thinks(Plain(35))),
        say(Plain(4), calls(Plain(40), 2)),
        say(Plain(19), calls(Plain(89), 1)),
        say(Plain(4), calls(Plain(31), 1)),
        say(Plain(47), answer(Plain(68))),
        say(Plain(716), calls(Empty, 2)),
        say(GoOn, SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), calls(Plain(4), 3)),
        say(Plain(83), calls(Plain(4), 1)),
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), calls(Plain(4), 1)),
        say(Plain(4), SHORT),
        Act::Rewind(Place(35455)),
        say(Image, SHORT),
        say(Plain(4), SHORT),
        say(Plain(4), SHORT),
    ];
    check(Wire::Responses, 4_000, &acts);
}

#[test]
fn what_one_engine_lacks_another_has_in_the_copy_that_is_put_back() {
    check(
        Wire::Anthropic,
        4000,
        &[
            turn(Originals, Plain(4), SHORT),
            Act::BackUp,
            turn(Originals, Plain(4), SHORT),
            Act::Edit(Place(13954), Plain(106)),
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            Act::PutBack,
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

#[test]
fn the_words_before_an_edit_do_not_stand_for_those_that_are_lost() {
    check(
        Wire::Anthropic,
        4000,
        &[
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(Originals, Plain(4), SHORT),
            Act::BackUp,
            turn(
                Originals,
                Plain(54),
                Reply {
                    words: Plain(43),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(30),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(743), Reply { calls: 1, ..SHORT }),
            Act::Edit(Place(13954), Plain(106)),
            turn(
                Originals,
                Plain(47),
                Reply {
                    words: Plain(79),
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            Act::LoseRecord,
            turn(
                Originals,
                Plain(89),
                Reply {
                    words: Plain(343),
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            Act::Edit(Place(7095), Plain(56)),
            Act::PutBack,
            turn(Originals, Plain(93), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn text_counts_in_full_after_reports_that_count_calls_for_less() {
    check(
        Wire::Anthropic,
        8000,
        &[
            turn(
                Originals,
                Plain(68),
                Reply {
                    words: Plain(73),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(90), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(116),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(36),
                    thinks: true,
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(63),
                Reply {
                    words: Plain(115),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(84),
                Reply {
                    words: Plain(87),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(113),
                    ..SHORT
                },
            ),
            Act::Window {
                tokens: 4000,
                at_once: true,
            },
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(58),
                    calls: 3,
                    told: false,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: Plain(96),
                holds: Originals,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: Reply { calls: 3, ..SHORT },
            },
            turn(Originals, Plain(4), SHORT),
            Act::LoseRecord,
            Act::LoseAnswer,
            turn(
                Handed,
                Plain(4),
                Reply {
                    with_usage: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(92),
                    told: false,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    with_usage: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(54),
                Reply {
                    calls: 1,
                    told: false,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(69),
                Reply {
                    words: Plain(61),
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(832),
                Reply {
                    words: Plain(843),
                    with_usage: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(101),
                Reply {
                    words: Plain(558),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(487), SHORT),
        ],
    );
}

#[test]
fn an_empty_message_is_still_there_beside_a_summary() {
    check(
        Wire::Responses,
        8000,
        &[
            turn(
                Originals,
                Empty,
                Reply {
                    words: Plain(437),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(97),
                Reply {
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(61),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(117),
                Reply {
                    words: Plain(20),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(546),
                Reply {
                    words: Plain(40),
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Plain(809),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(72),
                Reply {
                    words: Plain(110),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(54),
                Reply {
                    words: SummaryMark,
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(589), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(376), SHORT),
            Act::SendAgain(Reply {
                words: Plain(26),
                with_usage: true,
                ..SHORT
            }),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(98), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            Act::Rewind(Place(27106)),
            turn(
                Originals,
                Plain(117),
                Reply {
                    words: Plain(41),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: GoOn,
                    thinks: true,
                    with_usage: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(10),
                Reply {
                    words: Plain(755),
                    with_usage: true,
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(Originals, GoOn, SHORT),
            Act::Turn {
                words: Plain(4),
                holds: Originals,
                dialect: Dialect::Reordered,
                tries: 1,
                reply: SHORT,
            },
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn some_of_the_results_in_a_message_are_told_apart() {
    check_with(
        "lcm",
        Wire::Anthropic,
        3000,
        &[
            turn(
                Originals,
                Plain(64),
                Reply {
                    words: Plain(100),
                    thinks: true,
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(Originals, Chinese, SHORT),
            Act::SendAgain(Reply {
                words: Plain(15),
                thinks: true,
                calls: 1,
                told: false,
                with_usage: true,
                ..SHORT
            }),
            turn(
                Originals,
                Plain(18),
                Reply {
                    words: ClosedSummary,
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: ShortenedMark,
                    thinks: true,
                    calls: 3,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(52),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(112), Reply { calls: 1, ..SHORT }),
            Act::Edit(Place(24892), Plain(66)),
            turn(Originals, Plain(4), SHORT),
            Act::ChangeEngine,
            Act::SendAgain(Reply {
                words: Plain(5),
                thinks: true,
                calls: 1,
                with_usage: true,
                ..SHORT
            }),
            turn(Originals, Plain(85), SHORT),
            Act::LoseAnswer,
            turn(Originals, Plain(32), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn what_stands_before_a_summary_is_told_from_the_beginning() {
    check_with(
        "lcm",
        Wire::Anthropic,
        8000,
        &[
            turn(Originals, Plain(83), SHORT),
            Act::SendAgain(Reply {
                words: Empty,
                told: false,
                with_usage: true,
                ..SHORT
            }),
            turn(
                Originals,
                Plain(854),
                Reply {
                    words: Plain(83),
                    calls: 3,
                    ..SHORT
                },
            ),
            Act::BackUp,
            turn(
                Originals,
                Plain(486),
                Reply {
                    words: GoOn,
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(
                Originals,
                Plain(111),
                Reply {
                    words: Plain(53),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(106),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(89), Reply { calls: 1, ..SHORT }),
            Act::Insert(Place(48086), Plain(76), true),
            Act::PutBack,
            Act::Turn {
                words: Plain(6),
                holds: Originals,
                dialect: Dialect::Spaced,
                tries: 1,
                reply: SHORT,
            },
            turn(Originals, Image, SHORT),
            Act::LoseAnswer,
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(45),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(54), SHORT),
            Act::ChangeEngine,
            turn(Handed, Plain(4), SHORT),
        ],
    );
}

#[test]
fn a_rewind_to_what_a_summary_covers_shows_the_users_last_words() {
    check_with(
        "lcm",
        Wire::Responses,
        3000,
        &[
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Plain(4), SHORT),
            turn(Originals, Image, SHORT),
            turn(Originals, Plain(4), Reply { calls: 1, ..SHORT }),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(82),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(804),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(481), SHORT),
            turn(
                Originals,
                Plain(112),
                Reply {
                    words: Plain(53),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), Reply { calls: 3, ..SHORT }),
            turn(
                Originals,
                Plain(22),
                Reply {
                    words: Plain(103),
                    ..SHORT
                },
            ),
            Act::ChangeEngine,
            turn(Originals, Plain(4), SHORT),
            Act::LoseRecord,
            Act::SendAgain(Reply {
                words: GoOn,
                ..SHORT
            }),
            Act::Insert(Place(51824), GoOn, true),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(78),
                    ..SHORT
                },
            ),
            turn(Originals, Plain(61), SHORT),
            turn(Originals, Plain(16), SHORT),
            Act::Rewind(Place(46354)),
            turn(Originals, Empty, SHORT),
        ],
    );
}

#[test]
fn words_beside_summarised_results_keep_their_neighbour() {
    check_with(
        "virtual-files",
        Wire::Anthropic,
        2000,
        &[
            turn(
                Originals,
                Image,
                Reply {
                    words: GoOn,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(19),
                Reply {
                    words: Plain(109),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(74),
                Reply {
                    words: GoOn,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(10),
                Reply {
                    words: GoOn,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(60),
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Plain(88),
                Reply {
                    words: Plain(38),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Plain(87),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Chinese,
                Reply {
                    words: Plain(64),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Image,
                Reply {
                    words: Plain(61),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Chinese,
                Reply {
                    words: GoOn,
                    calls: 1,
                    told: false,
                    ..SHORT
                },
            ),
            Act::Turn {
                words: GoOn,
                holds: Originals,
                dialect: Dialect::AsIs,
                tries: 3,
                reply: Reply {
                    words: Plain(79),
                    ..SHORT
                },
            },
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Plain(55),
                    thinks: true,
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                GoOn,
                Reply {
                    words: Plain(85),
                    thinks: true,
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Empty,
                Reply {
                    words: Plain(36),
                    ..SHORT
                },
            ),
            turn(
                Originals,
                Chinese,
                Reply {
                    words: Plain(66),
                    thinks: true,
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Chinese,
                Reply {
                    words: Plain(611),
                    calls: 1,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(33), SHORT),
            Act::LoseAnswer,
            turn(Originals, Plain(4), SHORT),
            turn(
                Originals,
                Plain(4),
                Reply {
                    words: Plain(59),
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(Originals, GoOn, SHORT),
            Act::Restart { in_order: false },
            Act::LoseAnswer,
            turn(
                Originals,
                Plain(813),
                Reply {
                    words: Plain(29),
                    thinks: true,
                    calls: 2,
                    ..SHORT
                },
            ),
            turn(Originals, Plain(4), SHORT),
        ],
    );
}

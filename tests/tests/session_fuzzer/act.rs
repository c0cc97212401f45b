//! What may happen in a session, one act after another.

use proptest::prelude::*;
use proptest::strategy::Union;

use serde::{Deserialize, Serialize};

use crate::flaky::{Failure, Fault, METHODS};
use crate::play::{Play, is_default};
use crate::wire::{Dialect, Wire};

/// What somebody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Words {
    /// The same two words each time.
    GoOn,
    Empty,
    Chinese,
    Image,
    /// Begins as a summary does.
    SummaryMark,
    /// A whole summary and words after it, as the host writes it where the two share a message.
    ClosedSummary,
    /// Begins as a shortened text does.
    ShortenedMark,
    /// Is what stands in place of a cleared tool output.
    Cleared,
    /// So many words.
    #[serde(untagged)]
    Plain(u16),
}

impl Default for Words {
    fn default() -> Self {
        Self::Plain(4)
    }
}

/// What a client sends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Holds {
    /// Everything as it was said.
    #[default]
    Originals,
    /// The body that the host last returned, and what came since.
    Handed,
    /// The same, but the client joins the parts of a message and neighbours of one role into one text, with an
    /// empty line, a line end, a space or nothing between them.
    JoinedByParagraph,
    JoinedByLine,
    JoinedBySpace,
    JoinedByNothing,
    /// The same, but the client joins neighbours of one role into a message of several parts.
    Listed,
}

impl Holds {
    /// The text between what the client joins into one.
    pub(crate) fn joiner(self) -> Option<&'static str> {
        match self {
            Self::JoinedByParagraph => Some("\n\n"),
            Self::JoinedByLine => Some("\n"),
            Self::JoinedBySpace => Some(" "),
            Self::JoinedByNothing => Some(""),
            Self::Originals | Self::Handed | Self::Listed => None,
        }
    }
}

/// What the model answers, and what becomes of that.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Reply {
    #[serde(rename = "reply", skip_serializing_if = "is_default")]
    pub(crate) words: Words,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) thinks: bool,
    /// So many calls of tools.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) calls: u8,
    /// With ids that earlier calls had.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) same_ids: bool,
    /// The host is not told of the answer, and sees it with the next request.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) untold: bool,
    /// The host is told what the request cost.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) usage: bool,
}

/// A place in a list, however long it is: 0 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place(pub(crate) u16);

impl Place {
    /// The place in a list of so many.
    pub(crate) fn index(self, of: usize) -> usize {
        usize::from(self.0) * of / (usize::from(u16::MAX) + 1)
    }
}

/// In a recorded play, an act is a line: its name, and its parameters if they are not the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "act",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub(crate) enum Act {
    /// The user says something, or the results of the calls in flight come in, and the model answers.
    Turn {
        #[serde(rename = "say", default, skip_serializing_if = "is_default")]
        words: Words,
        #[serde(default, skip_serializing_if = "is_default")]
        holds: Holds,
        #[serde(default, skip_serializing_if = "is_default")]
        dialect: Dialect,
        /// The same body so many times more, before the model answers.
        #[serde(default, skip_serializing_if = "is_default")]
        repeats: u8,
        #[serde(flatten)]
        reply: Reply,
    },
    /// The same body once more: the answer was lost, and the model gives another.
    SendAgain(Reply),
    /// The client never got the last answer.
    LoseAnswer,
    /// The client changes the text of an earlier message.
    Edit {
        at: Place,
        #[serde(rename = "say")]
        words: Words,
    },
    /// The client goes back to before a message of the user's.
    Rewind {
        at: Place,
    },
    /// A message of the user's, and maybe an answer, comes in before one of the user's.
    Insert {
        at: Place,
        #[serde(rename = "say")]
        words: Words,
        #[serde(default, skip_serializing_if = "is_default")]
        answered: bool,
    },
    /// The session ends, or its process is gone.
    Restart {
        #[serde(default, skip_serializing_if = "is_default")]
        in_order: bool,
    },
    ChangeProcess,
    /// The model's window is this one now.
    Window {
        tokens: u64,
        #[serde(default, skip_serializing_if = "is_default")]
        at_once: bool,
    },
    ChangeEngine,
    LoseRecord,
    LoseStore,
    BackUp,
    PutBack,
    /// A copy of the record is made, and takes its place later.
    BackUpRecord,
    RestoreRecord,
    /// The engine is going to fail.
    Fail(Fault),
}

impl Reply {
    /// It with less of this and of that.
    fn plainer(self) -> [Self; 6] {
        let Self {
            words,
            thinks,
            calls,
            same_ids,
            untold,
            usage,
        } = Self::default();
        [
            Self { words, ..self },
            Self { thinks, ..self },
            Self { calls, ..self },
            Self { same_ids, ..self },
            Self { untold, ..self },
            Self { usage, ..self },
        ]
    }
}

impl Act {
    /// The act with less of this and of that, for a session that is to be as plain as it can be.
    pub(crate) fn plainer(&self) -> Vec<Self> {
        let Self::Turn {
            words,
            holds,
            dialect,
            repeats,
            reply,
        } = *self
        else {
            return Vec::new();
        };
        let turn = |words, holds, dialect, repeats, reply| Self::Turn {
            words,
            holds,
            dialect,
            repeats,
            reply,
        };
        let plainer_holds = match holds {
            Holds::Originals | Holds::Handed => Holds::Originals,
            _ => Holds::Handed,
        };
        let mut plainer = vec![
            turn(Words::default(), holds, dialect, repeats, reply),
            turn(words, plainer_holds, dialect, repeats, reply),
            turn(words, holds, Dialect::AsIs, repeats, reply),
            turn(words, holds, dialect, 0, reply),
        ];
        let replies = reply.plainer().into_iter();
        plainer.extend(replies.map(|reply| turn(words, holds, dialect, repeats, reply)));
        plainer
    }
}

/// How often which acts are drawn: the behaviours of one property.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    /// The engine that is chosen.
    pub(crate) engine: &'static str,
    pub(crate) carrier: Carrier,
    pub(crate) holds: &'static [Holds],
    pub(crate) dialects: &'static [Dialect],
    pub(crate) edits: u32,
    pub(crate) rewinds: u32,
    pub(crate) inserts: u32,
    /// Lost answers and the same body again.
    pub(crate) repeats: u32,
    /// Ends of sessions and of processes.
    pub(crate) restarts: u32,
    pub(crate) windows: u32,
    pub(crate) engines: u32,
    pub(crate) records: u32,
    pub(crate) stores: u32,
    pub(crate) backups: u32,
    /// Texts that begin like the host's own.
    pub(crate) marks: u32,
    pub(crate) faults: u32,
}

impl Mix {
    /// A client that sends everything each time, in a process that lives as long as the session.
    pub(crate) const PLAIN: Self = Self {
        engine: "lcm",
        carrier: Carrier::Linked,
        holds: &[Holds::Originals],
        dialects: &[Dialect::AsIs],
        edits: 0,
        rewinds: 0,
        inserts: 0,
        repeats: 0,
        restarts: 0,
        windows: 0,
        engines: 0,
        records: 0,
        stores: 0,
        backups: 0,
        marks: 0,
        faults: 0,
    };
    /// A client that carries on from what it is handed.
    pub(crate) const CARRIES_ON: Self = Self {
        holds: &[Holds::Handed],
        ..Self::PLAIN
    };
    /// A client that does now this, now that.
    pub(crate) const BOTH: Self = Self {
        holds: &[Holds::Originals, Holds::Handed],
        ..Self::PLAIN
    };
    /// A client that continues the conversation and joins neighbouring messages into one.
    pub(crate) const JOINS: Self = Self {
        holds: &[
            Holds::Handed,
            Holds::JoinedByParagraph,
            Holds::JoinedByLine,
            Holds::JoinedBySpace,
            Holds::JoinedByNothing,
            Holds::Listed,
        ],
        repeats: 3,
        restarts: 1,
        ..Self::PLAIN
    };
    pub(crate) const RESPELLS: &'static [Dialect] = &[
        Dialect::AsIs,
        Dialect::AsIs,
        Dialect::AsIs,
        Dialect::Reordered,
        Dialect::Spaced,
        Dialect::Parts,
        Dialect::Strings,
    ];
    pub(crate) const ALL: Self = Self {
        engine: "lcm",
        carrier: Carrier::Linked,
        holds: &[Holds::Originals, Holds::Handed],
        dialects: Self::RESPELLS,
        edits: 1,
        rewinds: 1,
        inserts: 1,
        repeats: 2,
        restarts: 3,
        windows: 1,
        engines: 1,
        records: 1,
        stores: 1,
        backups: 1,
        marks: 1,
        faults: 0,
    };
}

/// How an engine is carried.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Carrier {
    /// Linked into the program.
    #[default]
    Linked,
    Cdylib,
    /// A cdylib in a process of its own.
    Process,
}

const WINDOWS: [u64; 4] = [2_000, 3_000, 4_000, 8_000];

/// One of these, as often as it weighs.
fn weighted<T: std::fmt::Debug + 'static>(
    mut all: Vec<(u32, BoxedStrategy<T>)>,
) -> BoxedStrategy<T> {
    all.retain(|(weight, _)| *weight > 0);
    Union::new_weighted(all).boxed()
}

fn words(mix: &Mix) -> BoxedStrategy<Words> {
    let marks = [
        Words::SummaryMark,
        Words::ClosedSummary,
        Words::ShortenedMark,
        Words::Cleared,
    ];
    weighted(vec![
        (8, (4..120_u16).prop_map(Words::Plain).boxed()),
        (1, (300..900_u16).prop_map(Words::Plain).boxed()),
        (3, Just(Words::GoOn).boxed()),
        (1, Just(Words::Empty).boxed()),
        (1, Just(Words::Chinese).boxed()),
        (1, Just(Words::Image).boxed()),
        (mix.marks, prop::sample::select(marks.to_vec()).boxed()),
    ])
}

fn reply(mix: &Mix) -> BoxedStrategy<Reply> {
    let calls = prop_oneof![3 => Just(0), 2 => Just(1), 1 => 2..4_u8];
    let flags = (
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.8),
        any::<bool>(),
    );
    (words(mix), calls, flags)
        .prop_map(|(words, calls, (thinks, same_ids, told, usage))| Reply {
            words,
            thinks,
            calls,
            same_ids,
            untold: !told,
            usage,
        })
        .boxed()
}

fn turn(mix: &Mix) -> BoxedStrategy<Act> {
    let repeats = weighted(vec![
        (12, Just(0).boxed()),
        (mix.repeats, (1..3_u8).boxed()),
    ]);
    let holds = prop::sample::select(mix.holds.to_vec());
    let dialect = prop::sample::select(mix.dialects.to_vec());
    (words(mix), holds, dialect, repeats, reply(mix))
        .prop_map(|(words, holds, dialect, repeats, reply)| Act::Turn {
            words,
            holds,
            dialect,
            repeats,
            reply,
        })
        .boxed()
}

fn fault() -> BoxedStrategy<Fault> {
    let failure = prop::sample::select(vec![Failure::Error, Failure::Panic, Failure::Hang]);
    (
        prop::sample::select(METHODS.to_vec()),
        failure,
        any::<bool>(),
    )
        .prop_map(|(method, failure, works)| Fault {
            method,
            failure,
            works,
        })
        .boxed()
}

fn act(mix: &Mix) -> BoxedStrategy<Act> {
    let at = || any::<u16>().prop_map(Place);
    let window = (prop::sample::select(WINDOWS.to_vec()), any::<bool>());
    let insert = (at(), words(mix), any::<bool>());
    weighted(vec![
        (40, turn(mix)),
        (mix.repeats, reply(mix).prop_map(Act::SendAgain).boxed()),
        (mix.repeats, Just(Act::LoseAnswer).boxed()),
        (
            mix.edits,
            (at(), words(mix))
                .prop_map(|(at, words)| Act::Edit { at, words })
                .boxed(),
        ),
        (mix.rewinds, at().prop_map(|at| Act::Rewind { at }).boxed()),
        (
            mix.inserts,
            insert
                .prop_map(|(at, words, answered)| Act::Insert {
                    at,
                    words,
                    answered,
                })
                .boxed(),
        ),
        (
            mix.restarts,
            any::<bool>()
                .prop_map(|in_order| Act::Restart { in_order })
                .boxed(),
        ),
        (mix.restarts, Just(Act::ChangeProcess).boxed()),
        (
            mix.windows,
            window
                .prop_map(|(tokens, at_once)| Act::Window { tokens, at_once })
                .boxed(),
        ),
        (mix.engines, Just(Act::ChangeEngine).boxed()),
        (mix.records, Just(Act::LoseRecord).boxed()),
        (mix.stores, Just(Act::LoseStore).boxed()),
        (mix.backups, Just(Act::BackUp).boxed()),
        (mix.backups, Just(Act::PutBack).boxed()),
        (mix.records, Just(Act::BackUpRecord).boxed()),
        (mix.records, Just(Act::RestoreRecord).boxed()),
        (mix.faults, fault().prop_map(Act::Fail).boxed()),
    ])
}

/// Sessions of at most so many acts.
pub(crate) fn plays(mix: Mix, wires: &[Wire], acts: usize) -> BoxedStrategy<Play> {
    let wire = prop::sample::select(wires.to_vec());
    let window = prop::sample::select(WINDOWS.to_vec());
    (wire, window, prop::collection::vec(act(&mix), 1..=acts))
        .prop_map(move |(wire, window, acts)| Play {
            carrier: mix.carrier,
            engine: mix.engine,
            wire,
            window,
            acts,
        })
        .boxed()
}

impl Words {
    /// The text, and the word of its own where it has one.
    pub(crate) fn text(self, serial: u32) -> (String, Option<String>) {
        let own = format!("said{serial:05}z");
        let text = match self {
            Self::Plain(words) => {
                let more = (0..words)
                    .map(|at| ["then", "the", "module", "reads", "line"][at as usize % 5]);
                format!("{own} {}", more.collect::<Vec<_>>().join(" "))
            }
            Self::GoOn => return ("go on".to_owned(), None),
            Self::Empty => return (String::new(), None),
            Self::Chinese => format!("{own} 请继续，数据库索引重建完成了 🦀🦀 “好”"),
            Self::Image => format!("{own} look at this"),
            Self::SummaryMark => format!("[CONTEXT COMPACTION] {own} is how I begin"),
            Self::ClosedSummary => format!(
                "[CONTEXT COMPACTION]\n{own} and more\n\n[END OF CONTEXT COMPACTION]\n\nwords after {own}"
            ),
            Self::ShortenedMark => format!(
                "[Shortened to save context space] {own} {}",
                "long ".repeat(30)
            ),
            Self::Cleared => {
                return (
                    "[Old tool output cleared to save context space]".to_owned(),
                    None,
                );
            }
        };
        (text, Some(own))
    }
}

//! The weights of the ranking, all in one place.

/// How much each sign counts in the ranking of a question. [`Default`] is what the engine uses; the benchmark
/// `questions` leaves each out in turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// BM25's saturation and its influence of length: the values that worked best over many collections
    /// (Trotman et al. 2014).
    pub k1: f64,
    /// See [`k1`](Self::k1).
    pub b: f64,
    /// The length of a passage in words: about two sentences. In a long text the words of a question may be far
    /// apart by chance, so such a text scores as its best passage (Callan 1994).
    pub passage: usize,
    /// Passages begin this many words apart: they overlap, so that none is cut in two.
    pub step: usize,
    /// The weight of a word for the neighbours of its message, by their distance after it: falling with the
    /// distance, as in a positional language model (Lv & Zhai 2009). Higher for messages after it: an answer
    /// follows the words it answers.
    pub around: [(i64, f64); 5],
    /// The weight of a word in a question, in the message that asks.
    pub asked: f64,
    /// The weight of a word in a question, in the answer to it.
    pub answer: f64,
    /// The weight of a word of the message before that question, in the answer: the question refers to it, often
    /// without naming it.
    pub referred: f64,
    /// A question about somebody is answered by that person nineteen times out of twenty, if half of all
    /// messages are theirs: ln (0.95 / 0.05).
    pub speaker: f64,
    /// A question of the user's about what is "mine" is mostly answered by the user.
    pub own: f64,
    /// A message from the period asked for: nine times out of ten, if half of the others are not.
    pub period: f64,
    /// The largest bonus for containing what is asked for, however rare: it may be another thing of the kind.
    pub wanted: f64,
    /// The prior of a message grows with its size (Kraaij et al. 2002), relative to the mean, between these two
    /// limits: a nod tells little, and a page no more than a passage.
    pub size: (f64, f64),
    /// What a long text loses for each ln of its size in passages: it has that many chances to contain the
    /// words together by accident.
    pub chances: f64,
    /// What a passage loses that another message, ranked higher, has already told word for word.
    pub repeated: f64,
    /// How many messages the second round reads, at most.
    pub candidates: usize,
    /// How like the question a message is in meaning, for each standard deviation above the mean of all messages. It is
    /// the same for every kind of conversation.
    pub alike: f64,
    /// How many of the messages that are most like the question the second round reads, whatever their words.
    pub alike_candidates: usize,
    /// A synonym, relative to the word itself: it may well mean something else here.
    pub synonym: f64,
    /// A pair of neighbours of a spaceless script, relative to a word: they overlap, and are about three times as
    /// many as the words.
    pub pair: f64,
    /// One thing of a kind among many, relative to the word for the kind.
    pub member: f64,
    /// Whether words that only ask are not searched for.
    pub stop_words: bool,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            k1: 0.9,
            b: 0.4,
            passage: 40,
            step: 10,
            around: [(1, 0.4), (2, 0.2), (3, 0.1), (-1, 0.3), (-2, 0.1)],
            asked: 0.4,
            answer: 0.8,
            referred: 0.6,
            speaker: 2.94,
            own: 1.0,
            period: 2.2,
            wanted: 2.0,
            size: (0.2, 3.0),
            chances: 1.0,
            repeated: 2.0,
            candidates: 300,
            alike: 1.0,
            alike_candidates: 100,
            synonym: 0.5,
            pair: 0.3,
            member: 0.4,
            stop_words: true,
        }
    }
}

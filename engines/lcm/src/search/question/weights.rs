//! The weights of the ranking, all in one place.
//!
//! A weight is taken from the literature, is a log-odds ratio, or was chosen by its effect on the
//! benchmark. The weights are public only for the benchmark `questions`, which leaves out one sign
//! at a time to measure what it contributes. The engine always uses the defaults.

/// How much each sign counts in the ranking of a question. [`Default`] is what the engine uses. The
/// benchmark `questions` leaves out each of them in turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// BM25's saturation: how quickly further occurrences of a word count less. The values of `k1`
    /// and `b` worked best over many collections (Trotman et al. 2014).
    pub k1: f64,
    /// BM25's influence of the length of a text, from 0 for none to 1. See [`k1`](Self::k1).
    pub b: f64,
    /// The length of a passage in words, about two sentences. In a long text the words of a
    /// question may be far apart by chance, so it scores as its best passage (Callan 1994).
    pub passage: usize,
    /// The number of words between the starts of passages. Passages overlap, so that no fitting one
    /// is missed.
    pub step: usize,
    /// The weight of a word for the neighbours of its message, by their distance after it. It falls
    /// with the distance, as in a positional language model (Lv & Zhai 2009), and is higher for
    /// later messages, because an answer follows the words it answers.
    pub around: [(i64, f64); 5],
    /// The weight of a word that occurs in a question, in the message that asks it. A sentence with
    /// "I" or "my" also tells something, so its words have their full weight.
    pub asked: f64,
    /// The weight of a word that occurs in a question, in the message that answers it.
    pub answer: f64,
    /// The weight of a word of the message before that question, in the answer. The question refers
    /// to that message, often without naming the subject again.
    pub referred: f64,
    /// The share that a message gets of the score of its neighbours, by their distance. Messages near
    /// a good one are more likely to answer, because a conversation stays with a subject. The share
    /// is multiplied by how much this conversation stays with the subject of the question.
    pub beside: [f64; 2],
    /// What a message loses if it ends with a question. Such a message answers half as often as
    /// others.
    pub asking: f64,
    /// The bonus for a message of whom the question is about: a participant that it names, the user if
    /// it asks about "me", or the assistant if it asks what "you" said. If half of all messages are
    /// theirs, a question about somebody is answered by that person 19 times out of 20, which is
    /// ln (0.95 / 0.05).
    pub speaker: f64,
    /// What is added to [`speaker`](Self::speaker) if the message has "I" or "my" in it, because the
    /// person then most likely tells of themselves.
    pub telling: f64,
    /// The bonus for a message from the period that the question names, if half of all messages are
    /// from there. The answer is from there nine times out of ten, which is ln (0.9 / 0.1). If fewer
    /// messages are, one of them gains more.
    pub period: f64,
    /// The largest bonus for containing what is asked for, however rare that is. The text may
    /// contain another thing of the same kind.
    pub wanted: f64,
    /// How much the rarity of a message's other words counts. A message of common words, such as a
    /// greeting, tells little.
    pub rarity: f64,
    /// The limits of the ratio between the size of a message and the mean. The prior of a message
    /// grows with its size (Kraaij et al. 2002), but a nod tells little, and a page no more than a
    /// passage.
    pub size: (f64, f64),
    /// What a long text loses for each ln of its size in passages. It has that many chances to
    /// contain the words together by accident.
    pub chances: f64,
    /// What a passage loses if a message that is ranked higher contains it word for word.
    pub repeated: f64,
    /// The maximum number of messages that the first round passes to the second by their words.
    pub candidates: usize,
    /// The score for each standard deviation by which a message is more similar to the question in
    /// meaning than the mean of all messages. It is the same for every kind of conversation.
    pub alike: f64,
    /// The share of [`alike`](Self::alike) that the similarity of the message before adds. An answer is
    /// often short, and what it is about is said before it.
    pub alike_before: f64,
    /// The maximum number of messages that the second round reads for their similarity in meaning,
    /// whatever their words.
    pub alike_candidates: usize,
    /// The weight of a synonym relative to the word itself. It may well mean something else in a
    /// text.
    pub synonym: f64,
    /// The weight of a pair of neighbouring characters in a script without spaces, relative to a
    /// word. Pairs overlap, and there are about three times as many as words.
    pub pair: f64,
    /// The weight of one thing of a kind, relative to the word for the kind. A kind has many
    /// members.
    pub member: f64,
    /// Whether words that only ask are left out of the search.
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
            beside: [1.0, 0.5],
            asking: 0.6,
            speaker: 2.94,
            telling: 0.6,
            period: 2.2,
            wanted: 2.0,
            rarity: 0.4,
            size: (0.2, 3.0),
            chances: 1.0,
            repeated: 2.0,
            candidates: 300,
            alike: 1.0,
            alike_before: 0.3,
            alike_candidates: 100,
            synonym: 0.5,
            pair: 0.3,
            member: 0.4,
            stop_words: true,
        }
    }
}

//! What a request proves of each known conversation, and what it is to it.

use std::cell::OnceCell;
use std::collections::HashSet;

use super::{Answer, KnownConversation, Lineage, LineageQuery, PastRequest, client_hash};
use crate::proof::{self, Evidence, Fingerprint};

/// If a name has more conversations than this, two short answers prove nothing. Every conversation
/// is another chance for a lucky guess.
const MAX_CONVERSATIONS_FOR_PAIRS: usize = 16;

/// What a request shows to prove that it continues a session. The order matters: later variants are
/// stronger proofs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Proof {
    /// The request and the session's first request both came with a token.
    Token,
    All,
    /// Two answers in a row, or a summary that was requested with [`Proof::All`].
    Pair,
    Secret,
}

/// What a request with a proof is to a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    /// It goes on from a line that the conversation has left.
    Left,
    /// It leaves the conversation's line: it is edited, cut or a retry, or a branch.
    Edit,
    /// It begins with the conversation's last request, or its last answer is the one to it.
    Next,
}

/// A conversation for which a request shows a proof.
#[derive(Clone, Copy)]
pub(super) struct Match<'k> {
    pub(super) one: &'k KnownConversation,
    pub(super) proof: Proof,
    pub(super) relation: Relation,
}

/// A request while it is compared with the known conversations, with its hashes and fingerprints
/// computed once.
pub(super) struct Matcher<'r> {
    query: &'r LineageQuery<'r>,
    chain: &'r [u64],
    answers: &'r [Answer],
    /// All that its messages and its answers show, and the items before a provider's compaction. Most
    /// requests begin with a former one that was a proof, and need no other.
    shown: OnceCell<HashSet<u64>>,
    /// Whether the name has so few conversations that two short answers are a proof.
    accepts_pairs: bool,
}

impl<'r> Matcher<'r> {
    pub(super) fn new(
        query: &'r LineageQuery<'r>,
        chain: &'r [u64],
        answers: &'r [Answer],
        known: &[KnownConversation],
    ) -> Self {
        Self {
            query,
            chain,
            answers,
            shown: OnceCell::new(),
            accepts_pairs: known.len() <= MAX_CONVERSATIONS_FOR_PAIRS,
        }
    }
}

impl Matcher<'_> {
    fn shows(&self, fingerprint: Fingerprint) -> bool {
        let shown = self.shown.get_or_init(|| {
            let before = self.query.identities_before.iter();
            let messages = before.chain(self.query.identities);
            let shown =
                messages.flat_map(|message| message.shown.said.iter().chain(&message.shown.ids));
            let shown = shown.chain(self.answers.iter().map(|answer| &answer.said));
            shown.map(|fingerprint| fingerprint.0).collect()
        });
        shown.contains(&fingerprint.0)
    }

    /// The longest former request that this one begins with.
    fn longest<'l>(&self, lineage: &'l Lineage) -> Option<&'l PastRequest> {
        let begun = lineage.turns.iter().filter(|turn| turn.begins(self.chain));
        begun.max_by_key(|turn| turn.count)
    }

    /// The position of the last answer in the request that is known to be the conversation's.
    fn last_known_answer(&self, lineage: &Lineage) -> Option<usize> {
        let count = self.longest(lineage).map_or(0, |turn| turn.count);
        let known = |answer: &&Answer| {
            let mut shown = answer.ids.iter().chain([&answer.said]);
            answer.at < count || shown.any(|shown| lineage.answers.contains(shown))
        };
        self.answers.iter().rfind(known).map(|answer| answer.at)
    }

    /// What the request is to the conversation, if it has a proof.
    fn relation(&self, lineage: &Lineage) -> Relation {
        let last = lineage.answers.last().filter(|_| lineage.is_answered);
        let shown = self.answers.last().map(|answer| &answer.said);
        // If the last request is a prefix of this one, this one continues it, even if the session had
        // left a longer request: the shorter one merely arrived late.
        let begins = lineage
            .turns
            .last()
            .is_none_or(|turn| turn.begins(self.chain));
        let is_next = begins || last.is_some() && shown == last;
        match self.longest(lineage) {
            _ if is_next => Relation::Next,
            Some(turn) if turn.is_left => Relation::Left,
            _ => Relation::Edit,
        }
    }

    /// The strongest proof that the request shows for a conversation, or None.
    fn proof(&self, lineage: &Lineage) -> Option<Proof> {
        let mut turns = lineage.turns.iter();
        if turns.any(|turn| turn.is_proof && turn.begins(self.chain))
            || self.shows_answers(lineage)
            || self.shows_summary(&lineage.summaries)
        {
            return Some(Proof::Secret);
        }
        // Fingerprints of a weak requester expire with the next request, so the number has to
        // match.
        let of_now =
            (lineage.summaries_of.as_ref()).filter(|(number, _)| *number == lineage.number);
        if let Some((_, summaries)) = of_now
            && self.shows_summary(summaries)
        {
            return Some(Proof::Pair);
        }
        if self.accepts_pairs && (self.shows_first_pair(lineage) || self.shows_last_pair(lineage)) {
            return Some(Proof::Pair);
        }
        if self.shows_all(lineage) {
            return Some(Proof::All);
        }
        let is_trusted = self.query.is_trusted && lineage.is_trusted;
        let is_meant = self.query.is_exact || self.relation(lineage) == Relation::Next;
        (is_trusted && is_meant && self.may_be_of(lineage)).then_some(Proof::Token)
    }

    /// Whether a request with a weak proof may belong to the conversation. A client may begin several
    /// conversations alike, even at the same time, so the request has to contain one of its answers.
    /// If there is none yet, or the agent began anew, the system prompt has to be the same.
    fn may_be_of(&self, lineage: &Lineage) -> bool {
        let is_unanswered = !lineage.is_answered && self.relation(lineage) == Relation::Next;
        self.last_known_answer(lineage).is_some()
            || (lineage.system == self.query.system && (is_unanswered || self.query.is_continued))
    }

    /// Whether the request shows enough answers of the conversation, wherever they stand.
    fn shows_answers(&self, lineage: &Lineage) -> bool {
        let mut evidence = Evidence::default();
        let shown = lineage.answers.iter().filter(|known| self.shows(**known));
        shown.for_each(|known| evidence.add_answer(*known));
        evidence.is_enough()
    }

    fn shows_summary(&self, known: &[Fingerprint]) -> bool {
        let query = self.query;
        proof::shows_summary(query.format, query.compacted, query.messages, known)
    }

    /// Whether the request begins with a former request, and contains two known answers there. The
    /// second one may directly follow the former request.
    fn shows_first_pair(&self, lineage: &Lineage) -> bool {
        let Some(count) = self.longest(lineage).map(|turn| turn.count) else {
            return false;
        };
        let follows = (self
            .query
            .identities
            .get(count..)
            .unwrap_or_default()
            .iter())
        .take_while(|message| message.is_answer)
        .count();
        let known = |answer: &&Answer| {
            answer.at < count + follows && lineage.answers.contains(&answer.said)
        };
        self.answers.iter().filter(known).count() >= 2
    }

    /// Whether the last two answers in the request are the last two of the conversation, with the
    /// same client messages between them.
    fn shows_last_pair(&self, lineage: &Lineage) -> bool {
        let (Some(last), Some(before), [.., one, other]) =
            (lineage.answers.last(), lineage.before, self.answers)
        else {
            return false;
        };
        let between = (self.query.identities)
            .get(one.at + 1..other.at)
            .unwrap_or_default();
        lineage.is_answered
            && (before, *last) == (one.said, other.said)
            && lineage.answers.contains(&before)
            && lineage.client_hash != 0
            && client_hash(between) == lineage.client_hash
    }

    /// Whether the request begins with the conversation's last request and its answer, and the
    /// conversation has only grown so far. A retry may not have that answer, but needs an earlier one of
    /// the conversation: many may send the same first request.
    fn shows_all(&self, lineage: &Lineage) -> bool {
        let Some(count) = self
            .longest(lineage)
            .filter(|turn| Some(*turn) == lineage.turns.last())
            .map(|turn| turn.count)
        else {
            return false;
        };
        let follows = self
            .query
            .identities
            .get(count..)
            .unwrap_or_default()
            .iter();
        let follows = follows.take_while(|message| message.is_answer);
        // What the client was given may be more than one message, and the client may add another.
        let mut said = follows.filter_map(|message| message.shown.said).scan(
            Fingerprint::default(),
            |all, said| {
                *all = all.and(said);
                Some(*all)
            },
        );
        let last = lineage.answers.last().filter(|_| lineage.is_answered);
        let is_known = |answer: &Answer| lineage.answers.contains(&answer.said);
        let has_answer = match last {
            Some(_) if count == self.chain.len() => self.answers.iter().any(is_known),
            Some(last) => said.any(|said| said == *last),
            None => !lineage.is_answered && self.may_be_of(lineage),
        };
        // A client that began with a token has to send it again, or show a stronger proof.
        lineage.is_plain && !lineage.is_trusted && has_answer
    }

    /// Picks the conversation to which the request belongs, among those for which it shows a proof:
    /// the one with which it begins for the longest, and whose answers go on for the longest. The
    /// system prompt tells apart those in which the same was said.
    pub(super) fn find_match<'k>(&self, known: &'k [KnownConversation]) -> Option<Match<'k>> {
        let open = known.iter().filter_map(|one| {
            let lineage = &one.lineage;
            let (proof, relation) = (self.proof(lineage)?, self.relation(lineage));
            let count = self.longest(lineage).map_or(0, |turn| turn.count);
            let is_alike = lineage.system == self.query.system;
            let answer = self.last_known_answer(lineage);
            let key = (count, answer, is_alike, proof, relation);
            Some((
                key,
                Match {
                    one,
                    proof,
                    relation,
                },
            ))
        });
        let found = open.max_by_key(|(key, _)| *key);
        found.map(|(_, found)| found)
    }

    /// The most likely session for a request that proves nothing. This is only a hint for people.
    /// None of that session's content is used.
    pub(super) fn may_follow(&self, known: &[KnownConversation]) -> Option<String> {
        let same = |one: &&KnownConversation| one.lineage.system == self.query.system;
        let begun = |one: &&KnownConversation| {
            let begun = self.longest(&one.lineage);
            begun.is_some_and(|turn| turn.count < self.chain.len())
                && (self.last_known_answer(&one.lineage).is_some() || same(one))
        };
        let found = match self.query.is_continued {
            true => known.iter().rfind(same).or(known.last()),
            false => known.iter().rfind(begun),
        };
        found.map(|one| one.session.clone())
    }
}

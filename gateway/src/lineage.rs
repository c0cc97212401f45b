//! Which of the conversations that go by one name a request goes on with, and what shows that it does. Subagents share
//! their agent's name, and some clients send none: then the history decides.
//!
//! A name alone leads nobody into a session, because a name is no secret. A request has to show one of these, too:
//!
//! 1. **What only the session has seen**: long answers of the model, an answer with the id of a call, the summary that
//!    the model wrote there at the agent's request, or the block of a compaction that the provider made there. Where in
//!    the request it stands makes no difference, so that edits and an agent's own compaction keep their session.
//! 2. **Two answers in a row**, with all that stands between or before them, at the beginning of a former request or at
//!    the end of the last one. Of short answers one alone is guessed too easily: "Done." This counts for the first
//!    [`GUESSES`] conversations of a name.
//! 3. **All there is**: a session that has only grown so far, begun by the request from the first message to the last
//!    answer. Whoever can send that has nothing to find out.
//! 4. **The token** with which the session was begun.
//!
//! The words with which agents begin a summary are none of these. A request that shows nothing begins a session of its
//! own. [`Found::follows`] names the one that it may go on with, and nothing of that is given to it.
//!
//! What is known of a conversation lies in the host's record, so that another gateway and the next start know it.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use contexture::formats::Format;
use contexture::session::{Record, RecordError};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::identity::Said;
use crate::proof::{self, Mark, Shown};
use crate::session_key::Scope;
use crate::sessions::{Reserved, Sessions};

/// How many of its last requests are known of a conversation.
const TURNS: usize = 16;
/// How many of its last answers are known of a conversation.
const ANSWERS: usize = 64;
/// How many marks of summaries are known of a conversation.
const SUMMARIES: usize = 256;
/// How long an answer waits until its request is noted.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of how many conversations of a name two short answers are a proof. Each wrong guess is another one.
const GUESSES: usize = 16;

/// The name under which it is kept with a session which other one it may go on with.
const FOLLOWS: &str = "follows";

/// The sessions that may go on with others, although nothing shows that they do; or only this one.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn follows(
    record: &Record,
    session: Option<&str>,
) -> Result<HashMap<String, String>, RecordError> {
    Ok(record.kept_as(FOLLOWS, session)?.into_iter().collect())
}

/// A request that a conversation had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    /// How many messages it had, and the hash over them.
    count: usize,
    hash: u64,
    /// Whether it showed what only the session has seen, so that another request that begins with it does, too.
    is_proof: bool,
}

/// A conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Lineage {
    /// What is hashed of the system prompt.
    system: u64,
    /// Its last requests.
    turns: Vec<Turn>,
    /// How many requests it had.
    number: u64,
    /// The answers that the model gave.
    answers: Vec<Mark>,
    /// The last answer in its last request, and what the client said after that.
    before: Option<Mark>,
    asked: u64,
    /// Whether the last request is answered: by the last of the answers.
    is_answered: bool,
    /// Whether it has only grown so far: its last request, and the answer, are all that the session holds.
    is_plain: bool,
    /// Whether it was begun with a token.
    is_trusted: bool,
    /// What the model wrote at the agent's request to sum it up.
    summaries: Vec<Mark>,
    /// The same, if whoever asked for it showed no more than [`Proof::All`]: it counts until the next request, which has the
    /// number after this one.
    summaries_of: Option<(u64, Vec<Mark>)>,
}

/// What a request looks like from here.
#[derive(Debug)]
pub(crate) struct Seen<'r> {
    pub(crate) format: Format,
    pub(crate) system: u64,
    pub(crate) messages: &'r [&'r str],
    /// What each message says.
    pub(crate) said: &'r [Said],
    /// The wire items up to a compaction of the provider's.
    pub(crate) compacted: &'r [&'r str],
    /// What those say.
    pub(crate) said_before: &'r [Said],
    /// Whether its agent began it anew with a summary, by its own account.
    pub(crate) is_continued: bool,
    /// Whether another history under the same name is an edit.
    pub(crate) is_exact: bool,
    /// Whether it came with a token.
    pub(crate) is_trusted: bool,
}

/// A conversation that was found, to be noted once the request was taken in.
#[derive(Debug)]
pub(crate) struct Found {
    owner: String,
    /// The session's id.
    pub(crate) session: String,
    /// Whether it had a request before.
    pub(crate) is_known: bool,
    /// The session that the request may go on with, although it shows nothing of it.
    pub(crate) follows: Option<String>,
    system: u64,
    turn: Turn,
    asked: u64,
    /// The answers in the request, of which the session may know another form.
    answers: Vec<(usize, Mark)>,
    chain: Vec<u64>,
    is_trusted: bool,
    /// How many requests the conversation may have had, if what this one shows is no proof once there are more.
    expected: Option<u64>,
    /// Keeps the id of a conversation that begins now from others until this request is over.
    _reserved: Option<Reserved>,
    /// The number of the request in its conversation: known once that is noted, or could not be.
    number: Mutex<Option<u64>>,
    noted: Condvar,
}

/// One thread at a time reads what is known of a conversation and writes it again.
static WRITING: Mutex<()> = Mutex::new(());

/// The hash over the first messages, for every number of them from 1.
fn chain(said: &[Said]) -> Vec<u64> {
    let mut hash = Xxh3::new();
    let link = |said: &Said| {
        hash.update(&said.identity.to_le_bytes());
        hash.digest()
    };
    said.iter().map(link).collect()
}

/// The answers in a request: where each ends, and the mark of the last of its messages that has one.
fn answers(said: &[Said]) -> Vec<(usize, Mark)> {
    let mut answers: Vec<(usize, Mark)> = Vec::new();
    let mut goes_on = false;
    for (at, one) in said.iter().enumerate() {
        if let Some(mark) = one.mark {
            match answers.last_mut().filter(|_| goes_on) {
                Some(last) => *last = (at, mark),
                None => answers.push((at, mark)),
            }
        }
        goes_on = one.is_answer && (goes_on || one.mark.is_some());
    }
    answers
}

/// What an answer says that came in these messages.
pub(crate) fn mark_of_answer(said: &[Said]) -> Option<Mark> {
    said.iter().rev().find_map(|said| said.mark)
}

/// Zero of no messages.
fn hash_of(said: &[Said]) -> u64 {
    chain(said).last().copied().unwrap_or_default()
}

/// What a client says in these messages, of which some may be the model's.
fn asked(said: &[Said]) -> u64 {
    let own: Vec<Said> = (said.iter().filter(|said| !said.is_answer))
        .copied()
        .collect();
    hash_of(&own)
}

/// Finds the conversation of a request, or begins one.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn find<L: Send + 'static>(
    record: &Record,
    sessions: &Sessions<L>,
    scope: &Scope<'_>,
    name: &str,
    seen: &Seen<'_>,
) -> Result<Found, RecordError> {
    let known = all(record, scope, name)?;
    let chain = chain(seen.said);
    let answers = answers(seen.said);
    let request = Request::new(seen, &chain, &answers, &known);
    let which = request.which(&known).filter(|(one, proof)| {
        // Its first answer is on the way to somebody, and is not known to this request.
        let is_asked = !one.lineage.is_answered && sessions.is_reserved(&one.session);
        *proof != Proof::All || !is_asked
    });
    let whole = chain.last().copied().unwrap_or_default();
    let mut expected = None;
    let found = match which {
        Some((one, proof)) => {
            // Nothing was shown but what there was until then.
            expected = (proof == Proof::All).then_some(one.lineage.number);
            Some((one.owner.clone(), one.session.clone()))
        }
        // A session of another origin, that lies here by this name.
        None if seen.is_trusted && known.is_empty() => {
            let id = scope.id(name);
            is_in(record, scope, &id)?.then(|| (scope.owner(name), id))
        }
        None => None,
    };
    let mut follows = match found {
        Some(_) => None,
        None => request.may_follow(&known),
    };
    let last_answer = answers.last().map_or(0, |(at, _)| at + 1);
    let is_known = found.is_some();
    let (owner, session, reserved) = match found {
        Some((owner, session)) => (owner, session, None),
        None => {
            let (session, reserved) = free(record, sessions, scope, name, (known.len(), whole))?;
            let id = scope.id(name);
            if known.is_empty() && session != id && is_in(record, scope, &id)? {
                follows = Some(id);
            }
            (scope.owner(name), session, Some(reserved))
        }
    };
    Ok(Found {
        follows,
        owner,
        is_known,
        system: seen.system,
        turn: Turn {
            count: chain.len(),
            hash: whole,
            is_proof: which.is_some_and(|(_, proof)| proof >= Proof::Pair),
        },
        asked: asked(seen.said.get(last_answer..).unwrap_or_default()),
        answers,
        chain,
        is_trusted: seen.is_trusted,
        expected,
        _reserved: reserved,
        number: Mutex::default(),
        noted: Condvar::new(),
        session,
    })
}

/// The session of a side call, if it shows that it belongs to one: where its answer is to be remembered.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn find_known(
    record: &Record,
    scope: &Scope<'_>,
    name: &str,
    seen: &Seen<'_>,
) -> Result<Option<Place>, RecordError> {
    let known = all(record, scope, name)?;
    let (chain, answers) = (chain(seen.said), answers(seen.said));
    let request = Request::new(seen, &chain, &answers, &known);
    let which = request.which(&known);
    Ok(which.map(|(one, proof)| Place {
        owner: one.owner.clone(),
        session: one.session.clone(),
        proof,
    }))
}

/// Where something is noted of a conversation.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    owner: String,
    session: String,
    proof: Proof,
}

/// A conversation that goes by the name, or is the session of this id.
struct Known {
    owner: String,
    session: String,
    lineage: Lineage,
}

fn all(record: &Record, scope: &Scope<'_>, name: &str) -> Result<Vec<Known>, RecordError> {
    let read = |owner: String, session: String, text: &str| {
        Some(Known {
            owner,
            session,
            lineage: serde_json::from_str(text).ok()?,
        })
    };
    let owner = scope.owner(name);
    let mut known: Vec<Known> = (record.kept(&owner)?.into_iter())
        .filter_map(|(session, text)| read(owner.clone(), session, &text))
        .collect();
    let id = scope.id(name);
    // Answers tell a session's id, and somebody may send that as its name.
    if known.is_empty() && record.delivered(&id)?.is_some() {
        let kept = record.kept_as(&id, None)?.into_iter();
        let own = kept.filter(|(owner, _)| scope.owns(owner));
        known.extend(own.filter_map(|(owner, text)| read(owner, id.clone(), &text)));
    }
    Ok(known)
}

/// Whether there is a session of this id in the scope.
fn is_in(record: &Record, scope: &Scope<'_>, id: &str) -> Result<bool, RecordError> {
    Ok(record.delivered(id)?.is_some() && record.tenant(id)?.as_deref() == scope.tenant)
}

/// An id for a conversation that begins now: of no session that is there, whoever's it is.
fn free<L: Send + 'static>(
    record: &Record,
    sessions: &Sessions<L>,
    scope: &Scope<'_>,
    name: &str,
    (known, whole): (usize, u64),
) -> Result<(String, Reserved), RecordError> {
    let (id, owner) = (scope.id(name), scope.owner(name));
    let mut candidate = id.clone();
    let mut number = 0;
    loop {
        let reserved = sessions.reserve(&candidate);
        let is_others = |tenant: String| scope.tenant != Some(&*tenant);
        let is_taken = !record.kept_as(&candidate, Some(&owner))?.is_empty()
            || record.delivered(&candidate)?.is_some()
            || record.tenant(&candidate)?.is_some_and(is_others);
        if let Some(reserved) = reserved.filter(|_| !is_taken) {
            return Ok((candidate, reserved));
        }
        // The numbers up to that of the conversations that are known are mostly taken.
        number = match number {
            0 => 1,
            1 => known.max(2),
            number => number + 1,
        };
        candidate = match number {
            1 => format!("{id}+{:08x}", whole as u32),
            number => format!("{id}+{:08x}.{number}", whole as u32),
        };
    }
}

/// How a request shows that it goes on with a session; the later, the more it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    /// It came with the token.
    Token,
    /// All that the session holds.
    All,
    /// Two answers in a row.
    Pair,
    /// What only the session has seen.
    Secret,
}

/// A request on its way to its conversation.
struct Request<'r> {
    seen: &'r Seen<'r>,
    chain: &'r [u64],
    answers: &'r [(usize, Mark)],
    /// The marks of these, and of those up to a compaction of the provider's.
    marks: HashSet<Mark>,
    may_guess: bool,
}

impl<'r> Request<'r> {
    fn new(
        seen: &'r Seen<'r>,
        chain: &'r [u64],
        answers: &'r [(usize, Mark)],
        known: &[Known],
    ) -> Self {
        let before = seen.said_before.iter().filter_map(|said| said.mark);
        Self {
            seen,
            chain,
            answers,
            marks: before
                .chain(answers.iter().map(|(_, mark)| *mark))
                .collect(),
            may_guess: known.len() <= GUESSES,
        }
    }
}

impl Request<'_> {
    /// Whether it begins with this request of a conversation.
    fn begins_with(&self, turn: &Turn) -> bool {
        let at = turn.count.checked_sub(1);
        at.and_then(|at| self.chain.get(at)) == Some(&turn.hash)
    }

    /// The longest request of a conversation that it begins with, and whether that is the last one.
    fn longest(&self, lineage: &Lineage) -> Option<(usize, bool)> {
        let found = (lineage.turns.iter().enumerate()).filter(|(_, turn)| self.begins_with(turn));
        let (at, turn) = found.max_by_key(|(_, turn)| turn.count)?;
        Some((turn.count, at + 1 == lineage.turns.len()))
    }

    /// What it shows of a conversation.
    fn proof(&self, lineage: &Lineage) -> Option<Proof> {
        let given = lineage.answers.iter().copied();
        let mut shown = Shown::default();
        given
            .filter(|mark| self.marks.contains(mark))
            .for_each(|mark| shown.add_answer(mark));
        let mut turns = lineage.turns.iter();
        if shown.is_enough()
            || turns.any(|turn| turn.is_proof && self.begins_with(turn))
            || self.shows_summary(&lineage.summaries)
        {
            return Some(Proof::Secret);
        }
        let of_now =
            (lineage.summaries_of.as_ref()).filter(|(number, _)| *number == lineage.number);
        if let Some((_, summaries)) = of_now
            && self.shows_summary(summaries)
        {
            return Some(Proof::Pair);
        }
        if self.may_guess && (self.begins_with_two(lineage) || self.ends_with_two(lineage)) {
            return Some(Proof::Pair);
        }
        if self.shows_all(lineage) {
            return Some(Proof::All);
        }
        (self.seen.is_trusted && lineage.is_trusted).then_some(Proof::Token)
    }

    fn shows_summary(&self, known: &[Mark]) -> bool {
        let seen = self.seen;
        proof::shows_summary(seen.format, seen.compacted, seen.messages, known)
    }

    /// Whether it begins as a former request did, with two answers of the model: the second may follow it.
    fn begins_with_two(&self, lineage: &Lineage) -> bool {
        let Some((count, _)) = self.longest(lineage) else {
            return false;
        };
        let follows = (self.seen.said.get(count..).unwrap_or_default().iter())
            .take_while(|said| said.is_answer)
            .count();
        let known =
            |(at, mark): &&(usize, Mark)| *at < count + follows && lineage.answers.contains(mark);
        self.answers.iter().filter(known).count() >= 2
    }

    /// Whether the last answers in it are the last two of the conversation, with what the client said between them.
    fn ends_with_two(&self, lineage: &Lineage) -> bool {
        let (Some(last), Some(before), [.., (from, one), (to, other)]) =
            (lineage.answers.last(), lineage.before, self.answers)
        else {
            return false;
        };
        let between = self.seen.said.get(from + 1..*to).unwrap_or_default();
        lineage.is_answered
            && (before, *last) == (*one, *other)
            && lineage.answers.contains(&before)
            && lineage.asked != 0
            && asked(between) == lineage.asked
    }

    /// Whether it begins with all that the session holds.
    fn shows_all(&self, lineage: &Lineage) -> bool {
        let Some((count, true)) = self.longest(lineage) else {
            return false;
        };
        let mut follows = (self.seen.said.get(count..).unwrap_or_default().iter())
            .take_while(|said| said.is_answer);
        let last = lineage.answers.last().filter(|_| lineage.is_answered);
        let has_answer = match last {
            Some(last) => follows.any(|said| said.mark == Some(*last)),
            None => !lineage.is_answered,
        };
        // Whoever began with a token may come back without one, and show more than this.
        lineage.is_plain && !lineage.is_trusted && has_answer
    }

    /// The conversation that it goes on with, and what it shows of it.
    fn which<'k>(&self, known: &'k [Known]) -> Option<(&'k Known, Proof)> {
        let open = known
            .iter()
            .filter_map(|one| Some((one, self.proof(&one.lineage)?)));
        let open: Vec<(&Known, Proof)> = open.collect();
        // Of those with which it begins the one with which it begins the longest, and of which it shows the most.
        let matched = open.iter().filter_map(|(one, proof)| {
            let (count, is_last) = self.longest(&one.lineage)?;
            Some((*one, *proof, count, is_last))
        });
        if let Some((one, proof, count, is_last)) =
            matched.max_by_key(|(_, proof, count, is_last)| (*count, *proof, *is_last))
        {
            // Where nothing but the history tells, what parts from a conversation is another one: both may go on.
            let is_again = count == self.chain.len() && count > 1;
            return (is_last || self.seen.is_exact || is_again).then_some((one, proof));
        }
        // Its early messages were changed, or its agent began anew. What it shows is that of one conversation alone.
        let shows_one = |lineage: &Lineage| {
            let mut own = self.answers.iter();
            own.any(|(_, mark)| lineage.answers.contains(mark))
        };
        let shows =
            |(one, proof): &&(&Known, Proof)| *proof > Proof::Token || shows_one(&one.lineage);
        let mut showing = open.iter().filter(shows);
        if let (Some(one), None) = (showing.next(), showing.next()) {
            return Some(*one);
        }
        let same = |(one, _): &&(&Known, Proof)| one.lineage.system == self.seen.system;
        match self.seen.is_continued {
            true => open.iter().rfind(same).copied(),
            false => None,
        }
    }

    /// The session that it may go on with, if it shows nothing of any.
    fn may_follow(&self, known: &[Known]) -> Option<String> {
        let begun = |one: &&Known| {
            let begun = self.longest(&one.lineage);
            begun.is_some_and(|(count, _)| count < self.chain.len())
        };
        let same = |one: &&Known| one.lineage.system == self.seen.system;
        let found = match self.seen.is_continued {
            true => known.iter().rfind(same).or(known.last()),
            false => known.iter().rfind(begun),
        };
        found.map(|one| one.session.clone())
    }
}

/// Changes what is known of a conversation.
fn change(
    record: &Record,
    owner: &str,
    session: &str,
    change: impl FnOnce(Option<Lineage>) -> Option<Lineage>,
) -> Result<(), RecordError> {
    let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = record.kept_as(session, Some(owner))?;
    let lineage = (kept.first()).and_then(|(_, text)| serde_json::from_str(text).ok());
    let Some(lineage) = change(lineage) else {
        return Ok(());
    };
    // Numbers and lists of them have a JSON form.
    let text = serde_json::to_string(&lineage).unwrap_or_default();
    record.keep(owner, &[(session, &text)])
}

fn keep_last<T>(all: &mut Vec<T>, most: usize) {
    if all.len() > most {
        all.drain(..all.len() - most);
    }
}

impl Found {
    /// Whether what the request shows is still a proof, now that nobody else has the session.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn still_holds(&self, record: &Record) -> Result<bool, RecordError> {
        let Some(expected) = self.expected else {
            return Ok(true);
        };
        let kept = record.kept_as(&self.session, Some(&self.owner))?;
        let lineage = kept
            .first()
            .and_then(|(_, text)| serde_json::from_str::<Lineage>(text).ok());
        // The same request may have been noted late, if it failed and is sent again.
        let is_again = |lineage: &Lineage| {
            let last = lineage.turns.last();
            last.is_some_and(|last| (last.count, last.hash) == (self.turn.count, self.turn.hash))
                && lineage.is_plain
                && !lineage.is_answered
        };
        Ok(lineage.is_some_and(|lineage| lineage.number == expected || is_again(&lineage)))
    }

    /// Notes that the conversation had this request.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn note(&self, record: &Record) -> Result<(), RecordError> {
        let mut number = 0;
        let noted = change(record, &self.owner, &self.session, |known| {
            let is_new = known.is_none();
            let mut lineage = known.unwrap_or_default();
            if is_new {
                lineage.is_plain = !self.is_known;
                lineage.is_trusted = self.is_trusted;
            }
            let last = lineage.turns.last().copied();
            let grew = |last: Turn| {
                let at = last.count.checked_sub(1);
                at.and_then(|at| self.chain.get(at)) == Some(&last.hash)
            };
            lineage.is_plain &= last.is_none_or(grew);
            // A client may have its answers in another form than they were given.
            let before = last.map_or(usize::MAX, |last| last.count);
            for (_, mark) in self.answers.iter().filter(|(at, _)| *at >= before) {
                if !lineage.answers.contains(mark) {
                    lineage.answers.push(*mark);
                }
            }
            keep_last(&mut lineage.answers, ANSWERS);
            lineage.system = self.system;
            lineage.before = self.answers.last().map(|(_, mark)| *mark);
            lineage.asked = self.asked;
            lineage.is_answered = false;
            lineage.number += 1;
            number = lineage.number;
            let turn = self.turn;
            let same = |known: &Turn| (known.count, known.hash) == (turn.count, turn.hash);
            let was_proof = lineage
                .turns
                .iter()
                .any(|known| same(known) && known.is_proof);
            lineage.turns.retain(|known| !same(known));
            lineage.turns.push(Turn {
                is_proof: turn.is_proof || was_proof,
                ..turn
            });
            keep_last(&mut lineage.turns, TURNS);
            Some(lineage)
        });
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
        self.noted.notify_all();
        noted?;
        match &self.follows {
            Some(follows) => record.keep(&self.session, &[(FOLLOWS, follows)]),
            None => Ok(()),
        }
    }

    /// Notes what the model answered, unless the conversation has had another request since. Waits until the request itself
    /// is noted, which is under way while the model answers.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn note_answer(&self, record: &Record, answer: Mark) -> Result<(), RecordError> {
        let number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = (self.noted).wait_timeout_while(number, PATIENCE, |number| number.is_none());
        let (number, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let number = *number;
        change(record, &self.owner, &self.session, |known| {
            let mut lineage = known.filter(|lineage| Some(lineage.number) == number)?;
            lineage.answers.retain(|known| *known != answer);
            lineage.answers.push(answer);
            keep_last(&mut lineage.answers, ANSWERS);
            lineage.is_answered = true;
            Some(lineage)
        })
    }
}

impl Place {
    /// Notes what the model wrote to sum the conversation up.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn note_summary(&self, record: &Record, marks: &[Mark]) -> Result<(), RecordError> {
        change(record, &self.owner, &self.session, |known| {
            let mut lineage = known?;
            if self.proof == Proof::All {
                lineage.summaries_of = Some((lineage.number, marks.to_vec()));
                return Some(lineage);
            }
            lineage.summaries.extend(marks);
            keep_last(&mut lineage.summaries, SUMMARIES);
            Some(lineage)
        })
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }
}

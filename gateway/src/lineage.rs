//! Decides which session a request continues, and what in the request proves it. A name alone opens
//! no session, because names are no secret. Besides, subagents share a name, and some clients send
//! none. So a request has to show one of these proofs:
//!
//! 1. **Secret**: long answers of the model, an answer with the id of a call, or a summary that was
//!    made in the session. Their position does not matter, so edited histories keep their session.
//! 2. **Pair**: two answers in a row with the messages between or before them. One short answer is
//!    guessed too easily. This counts only for the first conversations of
//!    a name, because every conversation is another chance for a lucky guess.
//! 3. **All**: the whole history of a session that has only grown so far, or its last request again.
//! 4. **Token**: the token with which the session was begun.
//!
//! A proof shows what the request knows, and not yet that it belongs into the session. A session
//! follows one line of requests, each of which begins with the one before it or ends with its answer.
//! A request with a proof that does neither is an edit, a cut or a retry, and the session leaves its
//! line for the new one. But if both lines go on, the request is a branch and begins its own session.
//! They do if the session's last request is still being answered, or if the request comes from a line
//! that the session has left.
//!
//! [`find`] is the entry point and returns a [`LineageMatch`]. If the request begins its own session
//! and seems to belong to another one, [`LineageMatch::follows`] names that one. Conversations are
//! kept in the host's record, so other gateways and later starts know them. The fingerprints come
//! from [`proof`](crate::proof).

mod matcher;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contexture::formats::Format;
use contexture::session::{KeptChange, KeptContent, Record, RecordError};
use serde::{Deserialize, Serialize};
use tokio::sync::SetOnce;
use xxhash_rust::xxh3::Xxh3;

use self::matcher::{Match, Matcher, Proof, Relation};
use crate::identity::MessageIdentity;
use crate::proof::Fingerprint;
use crate::session_key::Scope;
use crate::sessions::{Sessions, UnderWay};

const MAX_REQUESTS: usize = 16;
/// How many fingerprints of answers are kept for each conversation. An answer has one of what it
/// says, and one for each random word in the ids of its calls.
const MAX_ANSWERS: usize = 128;
/// How many fingerprints of summaries are kept for each conversation. A fingerprint is one line of
/// a summary.
const MAX_SUMMARY_LINES: usize = 256;
/// How long noting an answer waits until its request is noted.
const NOTE_TIMEOUT: Duration = Duration::from_secs(2);
/// The key under which a session stores the id of the session that it may continue.
const FOLLOWS: &str = "follows";

/// Maps each session to the one that it may continue without proof. If `session` is given, only
/// that session's entry is returned.
pub(crate) fn follows(
    record: &Record,
    session: Option<&str>,
) -> Result<HashMap<String, String>, RecordError> {
    Ok(record.kept_as(FOLLOWS, session)?.into_iter().collect())
}

/// A former request of a conversation. A later request that begins with the same messages continues
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct PastRequest {
    /// The number of messages, and the hash over all of them.
    count: usize,
    hash: u64,
    /// Whether it showed a strong proof. If so, a request that begins with the same messages has
    /// that proof, too.
    is_proof: bool,
    /// Whether the session has left the request's line: the last request does not begin with it.
    #[serde(default)]
    is_left: bool,
}

impl PastRequest {
    /// Whether a request with these hashes begins with all messages of this one.
    fn begins(&self, chain: &[u64]) -> bool {
        let at = self.count.checked_sub(1);
        at.and_then(|at| chain.get(at)) == Some(&self.hash)
    }
}

/// What is known of a conversation. It is stored as JSON with its session, one entry for each name.
/// All fields have defaults, so that entries of older versions can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Lineage {
    system: u64,
    /// The last requests, oldest first, at most [`MAX_REQUESTS`].
    turns: Vec<PastRequest>,
    /// How many requests the conversation had. Also identifies the last request.
    number: u64,
    /// Fingerprints of the model's answers, oldest first, at most [`MAX_ANSWERS`]. What an answer
    /// says comes after its ids.
    answers: Vec<Fingerprint>,
    /// What the last answer in the last request says, and a hash of what the client said after it.
    before: Option<Fingerprint>,
    #[serde(rename = "asked")]
    client_hash: u64,
    /// Whether the answer to the last request is noted. It is then the last of `answers`.
    is_answered: bool,
    /// Whether each request so far began with the one before it. The last request and its answer
    /// are then all that the session holds.
    is_plain: bool,
    is_trusted: bool,
    /// Fingerprints of summaries that the model wrote at the agent's request.
    summaries: Vec<Fingerprint>,
    /// Summary fingerprints whose requester proved no more than [`Proof::All`], with the request
    /// number at that time. They count only until the next request, because by then that proof has
    /// expired.
    summaries_of: Option<(u64, Vec<Fingerprint>)>,
}

impl Lineage {
    /// Adds the fingerprints of an answer as the last ones. If an id proves it, what it says does
    /// not: the call may write a file that everybody knows.
    fn add_answer(&mut self, answer: &Answer) {
        let said = match answer.ids.is_empty() {
            true => answer.said,
            false => answer.said.without_weight(),
        };
        for fingerprint in answer.ids.iter().copied().chain([said]) {
            self.answers.retain(|known| *known != fingerprint);
            self.answers.push(fingerprint);
        }
        keep_last(&mut self.answers, MAX_ANSWERS);
    }
}

/// The parts of a request that decide which conversation it continues.
#[derive(Debug)]
pub(crate) struct LineageQuery<'r> {
    pub(crate) format: Format,
    pub(crate) system: u64,
    pub(crate) messages: &'r [&'r str],
    pub(crate) identities: &'r [MessageIdentity],
    /// The wire items up to a compaction that the provider made. They are not part of `messages`.
    pub(crate) compacted: &'r [&'r str],
    pub(crate) identities_before: &'r [MessageIdentity],
    /// Whether the request begins with a summary by its agent, judged by its wording.
    pub(crate) is_continued: bool,
    /// Whether the client's name belongs to one conversation at a time. With a token, a different
    /// history under it is then an edit of the same conversation.
    pub(crate) is_exact: bool,
    /// Whether the client sent a name. Otherwise the name is made of the first message.
    pub(crate) is_named: bool,
    pub(crate) is_trusted: bool,
}

/// The conversation of a request, found or begun. [`LineageMatch::changes`] and
/// [`LineageMatch::answer_changes`] store the request and its answer after the host has accepted them.
#[derive(Debug)]
pub(crate) struct LineageMatch {
    owner: String,
    pub(crate) session: String,
    pub(crate) is_known: bool,
    /// The session that the request may continue, although it begins its own.
    pub(crate) follows: Option<Follows>,
    system: u64,
    turn: PastRequest,
    client_hash: u64,
    /// The answers in the request. The client may return an answer in another form than the session
    /// knows.
    answers: Vec<Answer>,
    chain: Vec<u64>,
    is_trusted: bool,
    /// The number of requests that a known conversation had. If it has changed, the request may be
    /// something else to the conversation.
    expected: Option<u64>,
    /// The prefix of the keys under which the calls of answers are stored, if the client sent no name.
    calls: Option<String>,
    /// Also reserves the id of a new conversation. Empty for a known one until the turn runs.
    under_way: OnceLock<UnderWay>,
    /// The number that [`LineageMatch::changes`] gave to the request in its conversation. Zero before.
    number: AtomicU64,
    /// The same number, once the changes are in the record or could not be stored.
    noted: SetOnce<u64>,
}

/// The session that a request may continue, although it begins its own. Only the status page, the log
/// and a response header name it. None of its content is used.
#[derive(Debug)]
pub(crate) struct Follows {
    pub(crate) session: String,
    /// Whether the request proves that it branches off there. Otherwise it proves nothing.
    pub(crate) is_branch: bool,
}

/// The hash over the first messages, for every count from 1. Two requests begin alike if their
/// hashes at the same count are equal.
fn chain<'i>(identities: impl IntoIterator<Item = &'i MessageIdentity>) -> Vec<u64> {
    let mut hash = Xxh3::new();
    let link = |message: &MessageIdentity| {
        hash.update(&message.identity.to_le_bytes());
        hash.digest()
    };
    identities.into_iter().map(link).collect()
}

/// An answer of the model. Consecutive messages of the model are one answer.
#[derive(Debug)]
struct Answer {
    /// The position of its last message that says something.
    at: usize,
    said: Fingerprint,
    /// The random words in the ids of its calls.
    ids: Vec<Fingerprint>,
}

/// The answers in a request.
fn answers(identities: &[MessageIdentity]) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    let mut continues = false;
    for (at, one) in identities.iter().enumerate() {
        if let Some(said) = one.shown.said {
            let ids = (one.shown.ids.iter()).filter(|id| id.is_unguessable());
            let ids = ids.copied();
            match answers.last_mut().filter(|_| continues) {
                Some(last) => {
                    last.at = at;
                    last.said = last.said.and(said);
                    last.ids.extend(ids);
                }
                None => answers.push(Answer {
                    at,
                    said,
                    ids: ids.collect(),
                }),
            }
        }
        continues = one.is_answer && (continues || one.shown.said.is_some());
    }
    answers
}

/// The hash over the client's own messages, or 0 if there are none. Messages of the model are skipped.
fn client_hash(identities: &[MessageIdentity]) -> u64 {
    let own = identities.iter().filter(|message| !message.is_answer);
    chain(own).last().copied().unwrap_or_default()
}

/// Finds the conversation of a request among those of its name, or begins a new one.
///
/// A new conversation gets a free id, which stays reserved while the result exists. Nothing is
/// written to the record until [`LineageMatch::changes`] are made.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn find(
    record: &Record,
    sessions: &Sessions,
    scope: &Scope<'_>,
    name: &str,
    query: &LineageQuery<'_>,
) -> Result<LineageMatch, RecordError> {
    // A request that ends with a compaction of the provider's is recognised by what that ends.
    let chain = chain(match query.identities {
        [] => query.identities_before,
        identities => identities,
    });
    let answers = answers(query.identities);
    let known = conversations_of(record, scope, name, query, &answers)?;
    let matcher = Matcher::new(query, &chain, &answers, &known);
    let is_under_way =
        |one: &KnownConversation| !one.lineage.is_answered && sessions.is_under_way(&one.session);
    let matched = matcher.find_match(&known).filter(|found| {
        // The session's first answer is still on its way to another client. Whoever sends the same
        // first request must not share that session.
        let is_asked = found.one.lineage.answers.is_empty() && is_under_way(found.one);
        found.proof > Proof::All || !is_asked
    });
    let is_branch = |found: &Match<'_>| {
        found.relation == Relation::Left
            || (found.relation == Relation::Edit && is_under_way(found.one))
    };
    let branch_of = matched.filter(is_branch);
    let matched = matched.filter(|found| !is_branch(found));
    let whole = chain.last().copied().unwrap_or_default();
    let found = match matched {
        Some(Match { one, .. }) => Some((one.owner.clone(), one.session.clone())),
        // The session exists, but did not come through the gateway, so it has no conversation
        // entry.
        None if query.is_trusted && known.is_empty() => {
            let id = scope.id(name);
            session_exists(record, scope, &id)?.then(|| (scope.owner(name), id))
        }
        None => None,
    };
    let mut follows = match (&found, branch_of) {
        (Some(_), _) => None,
        (None, Some(found)) => Some(Follows {
            session: found.one.session.clone(),
            is_branch: true,
        }),
        (None, None) => matcher.may_follow(&known).map(Follows::unproven),
    };
    let last_answer = answers.last().map_or(0, |answer| answer.at + 1);
    let is_known = found.is_some();
    let (owner, session, under_way) = match found {
        Some((owner, session)) => (owner, session, OnceLock::new()),
        None => {
            let (session, reserved) =
                reserve_id(record, sessions, scope, name, (known.len(), whole))?;
            let id = scope.id(name);
            if known.is_empty() && session != id && session_exists(record, scope, &id)? {
                follows = Some(Follows::unproven(id));
            }
            (scope.owner(name), session, OnceLock::from(reserved))
        }
    };
    Ok(LineageMatch {
        follows,
        owner,
        is_known,
        system: query.system,
        turn: PastRequest {
            count: chain.len(),
            hash: whole,
            is_proof: matched.is_some_and(|found| found.proof >= Proof::Pair),
            is_left: false,
        },
        client_hash: client_hash(query.identities.get(last_answer..).unwrap_or_default()),
        answers,
        chain,
        is_trusted: query.is_trusted,
        expected: matched.map(|found| found.one.lineage.number),
        calls: (!query.is_named).then(|| scope.calls()),
        under_way,
        number: AtomicU64::default(),
        noted: SetOnce::new(),
        session,
    })
}

/// Finds the session of a side call, to note its answer there. Returns None if the request shows no
/// session.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn find_known(
    record: &Record,
    scope: &Scope<'_>,
    name: &str,
    query: &LineageQuery<'_>,
) -> Result<Option<SummaryTarget>, RecordError> {
    let (chain, answers) = (chain(query.identities), answers(query.identities));
    let known = conversations_of(record, scope, name, query, &answers)?;
    let matcher = Matcher::new(query, &chain, &answers, &known);
    let found = matcher.find_match(&known);
    Ok(found.map(|found| SummaryTarget {
        owner: found.one.owner.clone(),
        session: found.one.session.clone(),
        proof: found.proof,
    }))
}

/// The conversation under which a summary is noted, and the proof that its requester showed.
#[derive(Debug, Clone)]
pub(crate) struct SummaryTarget {
    owner: String,
    session: String,
    proof: Proof,
}

/// A stored conversation with its session's id and the owner key under which it is stored.
struct KnownConversation {
    owner: String,
    session: String,
    lineage: Lineage,
}

impl KnownConversation {
    /// Reads a conversation. Returns None if its entry cannot be parsed.
    fn read(owner: String, session: String, text: &str) -> Option<Self> {
        Some(Self {
            owner,
            session,
            lineage: serde_json::from_str(text).ok()?,
        })
    }
}

/// The conversations that a request may continue: those of its name, and without a name also the one
/// of its last call. An agent that compacts or cuts its history may begin with any other message.
fn conversations_of(
    record: &Record,
    scope: &Scope<'_>,
    name: &str,
    query: &LineageQuery<'_>,
    answers: &[Answer],
) -> Result<Vec<KnownConversation>, RecordError> {
    let mut known = known_conversations(record, scope, name)?;
    let mut ids = answers.iter().rev().flat_map(|answer| answer.ids.last());
    let last = ids.next().copied();
    let Some(call) = last.filter(|_| !query.is_named) else {
        return Ok(known);
    };
    let is_known = |one: &KnownConversation| one.lineage.answers.contains(&call);
    if !known.iter().any(is_known)
        && let Some((session, owner)) = record.kept_as(&call_key(&scope.calls(), call), None)?.pop()
        && let Some(text) = record.kept_text(&session, &owner)?
    {
        known.extend(KnownConversation::read(owner, session, &text));
    }
    Ok(known)
}

/// The key under which a session stores that the model made a call in it. `calls` is the prefix, see
/// [`Scope::calls`].
fn call_key(calls: &str, call: Fingerprint) -> String {
    format!("{calls}{:016x}", call.0)
}

/// All conversations of a name in the scope. If there are none, the name may itself be a session's
/// id. Entries that cannot be parsed are skipped.
fn known_conversations(
    record: &Record,
    scope: &Scope<'_>,
    name: &str,
) -> Result<Vec<KnownConversation>, RecordError> {
    let owner = scope.owner(name);
    let mut known: Vec<KnownConversation> = (record.kept_as(&owner, None)?.into_iter())
        .filter_map(|(session, text)| KnownConversation::read(owner.clone(), session, &text))
        .collect();
    let id = scope.id(name);
    // The response headers name the session's id, and a client may send that as its name.
    if known.is_empty() && record.delivered(&id)?.is_some() {
        let kept = record.kept(&id)?.into_iter();
        let own = kept.filter(|(owner, _)| scope.owns(owner));
        known.extend(
            own.filter_map(|(owner, text)| KnownConversation::read(owner, id.clone(), &text)),
        );
    }
    Ok(known)
}

/// The sessions of all conversations of a name in the scope.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn sessions(
    record: &Record,
    scope: &Scope<'_>,
    name: &str,
) -> Result<Vec<String>, RecordError> {
    let known = known_conversations(record, scope, name)?;
    Ok(known.into_iter().map(|one| one.session).collect())
}

/// Whether the record has a session of this id that belongs to the scope's tenant.
fn session_exists(record: &Record, scope: &Scope<'_>, id: &str) -> Result<bool, RecordError> {
    Ok(record.delivered(id)?.is_some() && record.tenant(id)?.as_deref() == scope.tenant)
}

/// Picks and reserves an id for a new conversation. The name itself comes first, then the name with
/// a hash of the request, then numbered variants. Ids of existing sessions are skipped, even if
/// another tenant owns them.
fn reserve_id(
    record: &Record,
    sessions: &Sessions,
    scope: &Scope<'_>,
    name: &str,
    (known, whole): (usize, u64),
) -> Result<(String, UnderWay), RecordError> {
    let (id, owner) = (scope.id(name), scope.owner(name));
    let mut candidate = id.clone();
    let mut number = 0;
    loop {
        let reserved = sessions.reserve(&candidate);
        let is_others = |tenant: String| scope.tenant != Some(&*tenant);
        let is_taken = record.kept_text(&candidate, &owner)?.is_some()
            || record.delivered(&candidate)?.is_some()
            || record.tenant(&candidate)?.is_some_and(is_others);
        if let Some(reserved) = reserved.filter(|_| !is_taken) {
            return Ok((candidate, reserved));
        }
        // The numbers up to the count of known conversations are mostly taken, so the search starts
        // above.
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

/// A change of the entry of a conversation in the record. Nothing is written if `change` returns
/// None. An entry that cannot be parsed counts as missing.
fn update<'a>(
    owner: &'a str,
    session: &str,
    mut change: impl FnMut(Option<Lineage>) -> Option<Lineage> + 'a,
) -> KeptChange<'a> {
    KeptChange::new(session, owner, KeptContent::Exact, move |text| {
        let lineage = text.and_then(|text| serde_json::from_str(&text).ok());
        // Numbers and lists of numbers always have a JSON form.
        let text = |lineage| serde_json::to_string(&lineage).unwrap_or_default();
        let changed = change(lineage).map(text);
        let changed = changed.map(|text| (owner.to_owned(), text));
        changed.into_iter().collect()
    })
}

/// A change of the record that stores a text with a session, whatever was stored.
fn replace<'a>(session: &str, name: String, text: &str) -> KeptChange<'a> {
    let stored = (name.clone(), text.to_owned());
    KeptChange::new(session, &name, KeptContent::Exact, move |_| {
        vec![stored.clone()]
    })
}

/// Drops the oldest elements until at most `most` are left.
fn keep_last<T>(all: &mut Vec<T>, most: usize) {
    if all.len() > most {
        all.drain(..all.len() - most);
    }
}

impl Follows {
    fn unproven(session: String) -> Self {
        Self {
            session,
            is_branch: false,
        }
    }
}

impl LineageMatch {
    /// Whether the match still holds once the session is held exclusively. It does not if another
    /// request of the conversation came first.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn still_holds(&self, record: &Record) -> Result<bool, RecordError> {
        let Some(expected) = self.expected else {
            return Ok(true);
        };
        let kept = record.kept_text(&self.session, &self.owner)?;
        let lineage = kept.and_then(|text| serde_json::from_str::<Lineage>(&text).ok());
        Ok(lineage.is_some_and(|lineage| lineage.number == expected))
    }

    /// Marks the session as one that answers a request, as long as this match exists.
    pub(crate) fn begin(&self, sessions: &Sessions) {
        self.under_way.get_or_init(|| sessions.begin(&self.session));
    }

    /// The changes of the record that store this request as the last one of its conversation, and
    /// the session that it may follow. Call [`noted`](Self::noted) after they were made.
    pub(crate) fn changes(&self) -> impl Iterator<Item = KeptChange<'_>> {
        let request = update(&self.owner, &self.session, |known| {
            let is_new = known.is_none();
            let mut lineage = known.unwrap_or_default();
            if is_new {
                lineage.is_plain = !self.is_known;
                lineage.is_trusted = self.is_trusted;
            }
            let last = lineage.turns.last().copied();
            for turn in &mut lineage.turns {
                turn.is_left = !turn.begins(&self.chain);
            }
            // Once the history was edited, the last request no longer contains everything.
            lineage.is_plain &= lineage.turns.last().is_none_or(|last| !last.is_left);
            // Clients may send answers back in another form, so both forms are kept.
            let before = last.map_or(usize::MAX, |last| last.count);
            for answer in self.answers.iter().filter(|answer| answer.at >= before) {
                lineage.add_answer(answer);
            }
            lineage.system = self.system;
            lineage.before = self.answers.last().map(|answer| answer.said);
            lineage.client_hash = self.client_hash;
            lineage.is_answered = false;
            lineage.number += 1;
            self.number.store(lineage.number, Ordering::Relaxed);
            let turn = self.turn;
            let same = |known: &PastRequest| (known.count, known.hash) == (turn.count, turn.hash);
            let was_proof = lineage
                .turns
                .iter()
                .any(|known| same(known) && known.is_proof);
            lineage.turns.retain(|known| !same(known));
            lineage.turns.push(PastRequest {
                is_proof: turn.is_proof || was_proof,
                ..turn
            });
            keep_last(&mut lineage.turns, MAX_REQUESTS);
            Some(lineage)
        });
        let follows = self.follows.as_ref();
        let follows =
            follows.map(|follows| replace(&self.session, FOLLOWS.to_owned(), &follows.session));
        std::iter::once(request).chain(follows)
    }

    /// Wakes up [`LineageMatch::until_noted`], also if the request could not be stored.
    pub(crate) fn noted(&self) {
        // It fails if this was called before.
        let _ = self.noted.set(self.number.load(Ordering::Relaxed));
    }

    /// Waits up to [`NOTE_TIMEOUT`] until the request is in the record, because it is stored while
    /// the model answers.
    pub(crate) async fn until_noted(&self) {
        let _ = tokio::time::timeout(NOTE_TIMEOUT, self.noted.wait()).await;
    }

    /// The changes of the record that store the fingerprints of the model's answer. They are not stored
    /// if the request is not in the record, or if the conversation had another one in the meantime.
    /// There are none if the answer says nothing.
    pub(crate) fn answer_changes(&self, answer: &[MessageIdentity]) -> Vec<KeptChange<'_>> {
        let Some(answer) = answers(answer).pop() else {
            return Vec::new();
        };
        let call = answer.ids.last().copied();
        let number = self.noted.get().copied();
        let noted = update(&self.owner, &self.session, move |known| {
            let mut lineage = known.filter(|lineage| Some(lineage.number) == number)?;
            lineage.add_answer(&answer);
            lineage.is_answered = true;
            Some(lineage)
        });
        let call = self.calls.as_ref().zip(call);
        let call =
            call.map(|(calls, call)| replace(&self.session, call_key(calls, call), &self.owner));
        std::iter::once(noted).chain(call).collect()
    }
}

impl SummaryTarget {
    /// Stores the fingerprints of a summary that the model wrote of this conversation. If the
    /// requester proved no more than [`Proof::All`], they expire with the next request.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub(crate) fn note_summary(
        &self,
        record: &Record,
        fingerprints: &[Fingerprint],
    ) -> Result<(), RecordError> {
        let noted = update(&self.owner, &self.session, |known| {
            let mut lineage = known?;
            // A weak proof must not become a lasting one by way of a summary.
            if self.proof == Proof::All {
                lineage.summaries_of = Some((lineage.number, fingerprints.to_vec()));
                return Some(lineage);
            }
            lineage.summaries.extend(fingerprints);
            keep_last(&mut lineage.summaries, MAX_SUMMARY_LINES);
            Some(lineage)
        });
        record.make_changes(vec![noted])
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }
}

//! What a session knows of its conversation beside the text: ids and hashes, how far the engine was shown
//! them, and the compaction in force. It is what the store keeps.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{CurrentCompaction, MessageId, Observed};

use super::align::Trail;
use super::store::{Change, InForce, Logged, Place, Saved, StoreError};
use super::window::chain_link;
use crate::formats::Format;

/// A session's knowledge of its conversation.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Where it is kept; nowhere, or nowhere any more.
    place: Option<Place>,
    /// What the client sent last, and the answer to it.
    pub(super) sent: Trail,
    /// What was handed out in its place, and the answer to it; empty where that was the same.
    pub(super) handed: Trail,
    /// Every message of the conversation that the engine is to be shown, in the order of arrival.
    pub(super) log: Vec<Logged>,
    /// The last message that the engine was shown.
    pub(super) shown: Option<Observed>,
    /// Whether the engine said itself how far it has seen.
    pub(super) remembers: bool,
    /// The engine gave back another chain hash than it was given: what it says is no use.
    pub(super) distrusted: bool,
    /// A cut that the engine has yet to be told of: the last message that stays.
    pub(super) pending_cut: Option<Option<MessageId>>,
    /// What was cut off since the session was opened.
    pub(super) gone: HashSet<MessageId>,
    pub(super) in_force: Option<InForce>,
    /// It changed since it was written.
    pub(super) in_force_changed: bool,
    /// How many compactions there were.
    pub(super) compactions: u64,
    /// The format of the last request.
    pub(super) format: Option<Format>,
    /// The tools of the calls seen so far, by the call's id.
    pub(super) names: HashMap<String, String>,
    /// The history comes from the store, and the window does not hold its messages yet.
    pub(super) resumed: bool,
}

impl History {
    /// The history that the store has of a session; `engine` is the one that it runs under now.
    pub(super) fn of(place: Place, saved: Saved, engine: &str) -> Self {
        // Another engine has seen nothing.
        let same_engine = saved.engine == engine;
        Self {
            place: Some(place.under(engine)),
            resumed: !saved.sent.is_empty(),
            sent: saved.sent,
            handed: saved.handed,
            log: saved.log,
            shown: saved.shown.filter(|_| same_engine),
            remembers: saved.remembers && same_engine,
            in_force: saved.compaction,
            compactions: saved.compactions,
            ..Self::default()
        }
    }

    /// The compaction in force, for an engine that is being opened.
    pub(super) fn current_compaction(in_force: &InForce) -> CurrentCompaction {
        CurrentCompaction {
            id: in_force.number,
            engine: in_force.engine.clone(),
            through: in_force.through,
            summaries: in_force.window.summaries(),
        }
    }

    /// Whether a request carries on from what was handed out rather than from what the client sent.
    pub(super) fn carries_on(&self, raw: &[u64]) -> bool {
        if self.handed.is_empty() || self.sent.common(raw) > self.handed.raw().len() {
            return false;
        }
        let of_handed = (self.handed.shared(raw), self.handed.common(raw));
        of_handed > (self.sent.shared(raw), self.sent.common(raw))
    }

    /// Adds a message to what the engine is to be shown; it may be another form of an earlier one.
    pub(super) fn append(&mut self, id: MessageId, identity: u128, replaces: Option<MessageId>) {
        let chain = self.log.last().map_or(0, |last| last.chain);
        self.log.push(Logged {
            id,
            identity,
            chain: chain_link(chain, id, identity),
            replaces,
        });
    }

    /// Takes what was cut off out of the log: `lost` messages, in every form that they had. Answers the last
    /// message before the first of them. What came after that one and is still in `trail` (the revision of
    /// an early message, say) is shown again.
    pub(super) fn cut(&mut self, lost: &[MessageId], trail: &Trail) -> Option<MessageId> {
        let replaces: HashMap<MessageId, MessageId> = (self.log.iter())
            .filter_map(|logged| Some((logged.id, logged.replaces?)))
            .collect();
        let forms = |id: MessageId| std::iter::successors(Some(id), |id| replaces.get(id).copied());
        let first_lost = lost.iter().flat_map(|id| forms(*id)).min()?;
        let stays = self.log.partition_point(|logged| logged.id < first_lost);
        let still_there: HashSet<MessageId> =
            trail.messages().iter().map(|message| message.id).collect();
        for logged in self.log.split_off(stays) {
            if still_there.contains(&logged.id) {
                // A form in between went with the cut.
                let replaces = forms(logged.id).find(|form| *form < first_lost);
                self.append(logged.id, logged.identity, replaces);
            }
        }
        let last = stays.checked_sub(1)?;
        self.log.get(last).map(|last| last.id)
    }

    /// Those of some messages that are another form of an earlier one, each with that one.
    pub(super) fn revisions_among(
        &self,
        ids: impl Iterator<Item = MessageId>,
    ) -> Vec<(MessageId, MessageId)> {
        let logged = |id| {
            let at = self.log.binary_search_by_key(&id, |logged| logged.id);
            self.log.get(at.ok()?)
        };
        ids.filter_map(|id| Some((id, logged(id)?.replaces?)))
            .collect()
    }

    /// The end of the log.
    pub(super) fn end(&self) -> Option<Observed> {
        self.log.last().map(|last| Observed {
            last: last.id,
            chain: last.chain,
        })
    }

    /// The messages after `last`, in order.
    pub(super) fn after(&self, last: Option<MessageId>) -> &[Logged] {
        let from = last.map_or(0, |last| {
            self.log.partition_point(|logged| logged.id <= last)
        });
        self.log.get(from..).unwrap_or(&[])
    }

    /// Whether the log agrees with what an engine says that it has seen.
    pub(super) fn agrees(&self, seen: Observed) -> bool {
        self.log
            .binary_search_by_key(&seen.last, |logged| logged.id)
            .is_ok_and(|at| {
                self.log
                    .get(at)
                    .is_some_and(|logged| logged.chain == seen.chain)
            })
    }

    /// Writes what changed: the log from `log_from` on, what the client sent from `sent_from` on, and the
    /// compaction in force where a request changed it.
    pub(super) fn save(&mut self, next_id: u64, log_from: usize, sent_from: usize) -> Lost {
        let change = Change {
            next_id,
            log: &self.log,
            log_from,
            sent: &self.sent,
            sent_from,
            in_force: (self.in_force_changed).then_some(self.in_force.as_ref()),
        };
        let result = self.place.as_ref().map(|place| place.save(&change));
        self.in_force_changed = false;
        self.keep_or_lose(result)
    }

    /// Forgets the conversation, and writes that.
    pub(super) fn forget(&mut self, next_id: u64) -> Lost {
        let place = self.place.take();
        *self = Self {
            place,
            in_force_changed: true,
            compactions: self.compactions,
            // What is stored differs, so all of it is written.
            handed: std::mem::take(&mut self.handed),
            shown: self.shown,
            remembers: self.remembers,
            ..Self::default()
        };
        let lost = self.save(next_id, 0, 0);
        let lost = lost.or_else(|| self.set_handed(Trail::default()));
        lost.or_else(|| self.set_shown(None, false))
    }

    /// Replaces what was handed out, and writes it.
    pub(super) fn set_handed(&mut self, handed: Trail) -> Lost {
        let common = handed.common(self.handed.raw());
        // A message may reach over the end of the common part.
        let from = common.saturating_sub(1);
        let unchanged = handed == self.handed;
        self.handed = handed;
        if unchanged {
            return None;
        }
        let result = (self.place.as_ref()).map(|place| place.save_handed(&self.handed, from));
        self.keep_or_lose(result)
    }

    /// Sets how far the engine was shown the conversation, and writes it.
    pub(super) fn set_shown(&mut self, shown: Option<Observed>, remembers: bool) -> Lost {
        if (shown, remembers) == (self.shown, self.remembers) {
            return None;
        }
        (self.shown, self.remembers) = (shown, remembers);
        let place = self.place.as_ref();
        let result = place.map(|place| place.save_shown(shown, remembers));
        self.keep_or_lose(result)
    }

    /// Sets the compaction in force, and writes it.
    pub(super) fn set_in_force(&mut self, in_force: InForce, next_id: u64) -> Lost {
        let place = self.place.as_ref();
        let result = place.map(|place| place.save_compaction(&in_force, next_id));
        self.in_force = Some(in_force);
        self.keep_or_lose(result)
    }

    /// After a failure the session goes on without the store: a write that is tried at every turn would
    /// hold up every turn.
    fn keep_or_lose(&mut self, result: Option<Result<(), StoreError>>) -> Lost {
        let error = result?.err()?;
        self.place = None;
        Some(without_store(&error))
    }
}

/// The warning of a session that has just lost its store.
pub(super) type Lost = Option<String>;

/// What a person should know where the store cannot be used.
pub(super) fn without_store(error: &StoreError) -> String {
    format!("this session goes on in memory and will not survive a restart whole: {error}")
}

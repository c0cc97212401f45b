//! Accounts for every message of a proposal and lists the entries of the new window.
//!
//! [`Account::of`] is the first step of the check. It resolves the ids in the entries to
//! positions in the old window, and rejects a proposal that forgets a message, names one twice,
//! or changes the order. The rules about groups, texts and sizes then work on the result.
//!
//! An [`Account`] answers two questions: what happens to each old message (its
//! [`Disposition`]), and what the new window consists of (its [`WindowEntry`]s).

use std::collections::HashSet;

use contexture_engine_api::{
    Entry, MessageId, MessageKind, MessageView, Notice, Replacement, Summary,
};

use super::violation::{Ids, Violation};

/// What happens to a message of the old window. Each message has exactly one disposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    Kept,
    Replaced,
    Summarised,
    Dropped,
}

/// An entry of the new window, in the order of the proposal. Old messages are given by their
/// position in the old window.
#[derive(Debug, Clone, Copy)]
pub(super) enum WindowEntry<'a> {
    Kept(usize),
    Restored(usize),
    Replaced(usize, &'a Replacement),
    /// A summary, and the first and the last message that it covers, if it covers any.
    Summary(&'a Summary, Option<(usize, usize)>),
    Notice(&'a Notice),
    Stub {
        call: usize,
        index: usize,
        text: &'a str,
    },
}

/// A proposal in which every message is accounted for exactly once and the kept messages are in
/// their old order.
#[derive(Debug)]
pub(super) struct Account<'a> {
    pub(super) dispositions: Vec<Disposition>,
    pub(super) places: Vec<WindowEntry<'a>>,
}

impl<'a> Account<'a> {
    /// Resolves the entries of a proposal. Fails if nothing but system messages would remain,
    /// if a message is missing, unknown or named twice, if there is nothing to restore, or if
    /// the order changes.
    pub(super) fn of(
        messages: &[MessageView<'_>],
        entries: &'a [Entry],
    ) -> Result<Self, Violation> {
        // A provider reads system messages as instructions and rejects a prompt that has no
        // other messages.
        let is_system = |message: &&MessageView<'_>| message.role() == "system";
        let systems: HashSet<MessageId> = (messages.iter().filter(is_system))
            .map(MessageView::id)
            .collect();
        let only_systems = systems.len() == messages.len();
        let leaves_nothing = entries.iter().all(|entry| match entry {
            Entry::Drop(_) => true,
            Entry::Keep(id) => !only_systems && systems.contains(id),
            _ => false,
        });
        if leaves_nothing && !messages.is_empty() {
            return Err(Violation::EmptyResult);
        }
        // The ids are mostly in order already, so sorting is fast, and a binary search beats a
        // hash map even for a million messages.
        let mut positions: Vec<(MessageId, usize)> = messages
            .iter()
            .enumerate()
            .map(|(at, message)| (message.id(), at))
            .collect();
        positions.sort_unstable();
        let find = |id: MessageId| {
            let found = positions.binary_search_by_key(&id, |(id, _)| *id).ok();
            let found = found.and_then(|found| positions.get(found));
            found.map(|(_, at)| *at).ok_or(Violation::UnknownId { id })
        };
        let mut dispositions: Vec<Option<Disposition>> = vec![None; messages.len()];
        let mut settle = |id, disposition| {
            let at = find(id)?;
            match dispositions[at].replace(disposition) {
                None => Ok(at),
                Some(_) => Err(Violation::Twice { id }),
            }
        };
        let mut places = Vec::with_capacity(entries.len());
        for entry in entries {
            match entry {
                Entry::Keep(id) => places.push(WindowEntry::Kept(settle(*id, Disposition::Kept)?)),
                Entry::Restore(id) => {
                    let at = settle(*id, Disposition::Kept)?;
                    if messages[at].kind() != MessageKind::Replaced {
                        return Err(Violation::NothingToRestore { id: *id });
                    }
                    places.push(WindowEntry::Restored(at));
                }
                Entry::Replace(new) => {
                    places.push(WindowEntry::Replaced(
                        settle(new.id, Disposition::Replaced)?,
                        new,
                    ));
                }
                Entry::Summary(summary) => {
                    let mut covered: Option<(usize, usize)> = None;
                    for id in &summary.covers {
                        let at = settle(*id, Disposition::Summarised)?;
                        let (first, last) = covered.unwrap_or((at, at));
                        covered = Some((first.min(at), last.max(at)));
                    }
                    places.push(WindowEntry::Summary(summary, covered));
                }
                Entry::Notice(notice) => places.push(WindowEntry::Notice(notice)),
                Entry::StubResult(stub) => places.push(WindowEntry::Stub {
                    call: find(stub.call)?,
                    index: stub.index,
                    text: &stub.text,
                }),
                Entry::Drop(dropped) => {
                    settle(dropped.id, Disposition::Dropped)?;
                }
                // A later version of the interface may add kinds of entries that this host does
                // not know.
                unknown => {
                    let name = unknown.name().to_owned();
                    return Err(Violation::UnknownEntry { name });
                }
            }
        }
        let missing: Vec<MessageId> = messages
            .iter()
            .zip(&dispositions)
            .filter(|(_, disposition)| disposition.is_none())
            .map(|(message, _)| message.id())
            .collect();
        if !missing.is_empty() {
            return Err(Violation::Missing { ids: Ids(missing) });
        }
        let account = Self {
            dispositions: dispositions.into_iter().flatten().collect(),
            places,
        };
        account.check_order(messages)?;
        Ok(account)
    }

    /// Whether the message at this position is part of the new window, unchanged or shortened.
    /// A summarised message does not stay, although its summary does.
    pub(super) fn stays(&self, at: usize) -> bool {
        matches!(
            self.dispositions[at],
            Disposition::Kept | Disposition::Replaced
        )
    }

    pub(super) fn count(&self, disposition: Disposition) -> usize {
        self.dispositions
            .iter()
            .filter(|each| **each == disposition)
            .count()
    }

    /// Fails if a summary stands after something that is later than all that it covers. The model
    /// would take its text for news then. A summary may stand earlier, as an introduction to what is
    /// kept.
    pub(super) fn check_summaries(&self, messages: &[MessageView<'_>]) -> Result<(), Violation> {
        // The latest message with which an entry so far begins.
        let mut latest: Option<usize> = None;
        for place in &self.places {
            let Some((first, last)) = place.span() else {
                continue;
            };
            if let (WindowEntry::Summary(summary, _), Some(latest)) = (place, latest)
                && last < latest
            {
                return Err(Violation::SummaryTooLate {
                    covers: Ids(summary.covers.clone()),
                    after: messages[latest].id(),
                });
            }
            latest = latest.max(Some(first));
        }
        Ok(())
    }

    /// Fails if two messages of the new window are in another order than in the old one.
    fn check_order(&self, messages: &[MessageView<'_>]) -> Result<(), Violation> {
        let mut last: Option<usize> = None;
        for at in self.places.iter().filter_map(WindowEntry::message) {
            if let Some(last) = last.filter(|last| at < *last) {
                return Err(Violation::OrderChanged {
                    id: messages[at].id(),
                    after: messages[last].id(),
                });
            }
            last = Some(at);
        }
        Ok(())
    }
}

impl WindowEntry<'_> {
    /// The position of the old message that this entry holds, unchanged, restored or shortened.
    /// `None` if the entry is new.
    pub(super) fn message(&self) -> Option<usize> {
        match self {
            Self::Kept(at) | Self::Restored(at) | Self::Replaced(at, _) => Some(*at),
            Self::Summary(..) | Self::Notice(_) | Self::Stub { .. } => None,
        }
    }

    /// The positions of the first and the last old message that this entry holds or covers. `None`
    /// if there are none.
    fn span(&self) -> Option<(usize, usize)> {
        match self {
            Self::Summary(_, covered) => *covered,
            entry => entry.message().map(|at| (at, at)),
        }
    }
}

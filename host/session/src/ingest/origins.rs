//! Says of each message of a request which message of the conversation it is, and gives ids to those
//! that are new.

use std::cell::OnceCell;

use contexture_engine_api::{MessageId, MessageKind};
use contexture_transcript::{Fingerprint, HostText, IdMap, IdSet, Known, Origin};

use super::Ingested;
use super::compare::{Compared, Incoming};
use crate::align::Match;
use crate::history::History;

/// Gives out the ids of a request, and collects what follows from them.
pub(super) struct Origins {
    pub(super) next_id: u64,
    /// The messages to append to the history, each with the one that it replaces.
    pub(super) log: Vec<(Known, Option<MessageId>)>,
    pub(super) ingested: Ingested,
}

impl Origins {
    fn fresh(&mut self) -> MessageId {
        self.next_id += 1;
        MessageId(self.next_id - 1)
    }

    /// Sets the origins of all messages of a request. Returns how many of them are summaries that
    /// the session has no record of.
    pub(super) fn set(&mut self, history: &mut History, compared: &mut Compared) -> usize {
        self.of_messages(history, compared);
        self.of_host_texts(history, compared)
    }

    /// Sets the origins of the messages that were aligned with the conversation.
    fn of_messages(&mut self, history: &mut History, compared: &mut Compared) {
        let (incoming, alignment) = (&mut compared.incoming, &compared.alignment);
        let is_abridged = incoming.iter().any(Incoming::is_foreign_summary);
        let is_first = history.branch().is_empty();
        // The messages of the conversation by id, if some are said again in a shorter form.
        let by_id: OnceCell<IdMap<Known>> = OnceCell::new();
        let mut hidden_again = alignment.hidden_again.iter().peekable();
        // A message that no answer follows has just been written by the client, whatever it looks
        // like.
        let last_answer = incoming.iter().rposition(Incoming::is_an_answer);
        let matches = compared.aligned.iter().zip(&alignment.matches);
        for (place, (at, matched)) in matches.enumerate() {
            let Some(new) = incoming.get_mut(*at) else {
                continue;
            };
            let short = match new.origin {
                Some(Origin::Shortened(id)) => Some(id),
                _ => None,
            };
            new.origin = Some(match *matched {
                Match::Same(id) | Match::Revises(id) if short.is_some() => Origin::Shortened(id),
                Match::Same(id) => Origin::Said(id),
                // If the record was lost, a message that looks like a shorter form is one. Its form
                // is all that is left of the message. An engine that shortens without a summary
                // leaves only the seals, which a cleared result has not.
                Match::New
                    if short.is_none()
                        && new.kind == MessageKind::Replaced
                        && (is_abridged || is_first && !new.is_cleared())
                        && last_answer.is_some_and(|answer| *at < answer) =>
                {
                    let id = self.fresh();
                    self.shorten(history, id, new.fingerprint, new.fingerprint)
                }
                Match::Revises(_) | Match::New => {
                    let id = self.fresh();
                    self.ingested.new.push(id);
                    let old = match *matched {
                        Match::Revises(old) => Some(old),
                        _ => None,
                    };
                    self.ingested.revised.extend(old.map(|old| (id, old)));
                    let said_before = short.and_then(|short| {
                        let branch = || history.branch().iter().map(|known| (known.id, *known));
                        by_id.get_or_init(|| branch().collect()).get(&short)
                    });
                    match said_before {
                        // The client has only a shorter form of a message that it says again.
                        Some(before) => {
                            self.ingested.unsent_again.insert(before.id, id);
                            self.shorten(history, id, before.fingerprint, new.fingerprint)
                        }
                        None => {
                            let fingerprint = new.fingerprint;
                            self.log.push((Known { id, fingerprint }, old));
                            Origin::Said(id)
                        }
                    }
                }
            });
            while let Some((known, _)) = hidden_again.next_if(|(_, before)| *before == place) {
                let id = self.fresh();
                self.ingested.new.push(id);
                self.ingested.unsent_again.insert(known.id, id);
                self.log.push((Known { id, ..*known }, None));
            }
        }
    }

    /// Logs a new message of which the client has only a shorter form.
    fn shorten(
        &mut self,
        history: &mut History,
        id: MessageId,
        said: Fingerprint,
        short: Fingerprint,
    ) -> Origin {
        let fingerprint = said;
        self.log.push((Known { id, fingerprint }, None));
        history.write(HostText::short(id, short));
        Origin::Shortened(id)
    }

    /// Sets the origins of the host's texts that the session has no record of. Returns how many of
    /// them are summaries. These stand for the abridged messages.
    fn of_host_texts(&mut self, history: &mut History, compared: &mut Compared) -> usize {
        let (incoming, abridged) = (&mut compared.incoming, &compared.alignment.abridged);
        let renamed = &self.ingested.unsent_again;
        history.rename_covered(renamed);
        let now = |id: &MessageId| *renamed.get(id).unwrap_or(id);
        let covers: IdSet = abridged.iter().map(now).collect();
        let mut foreign = 0;
        for new in incoming.iter_mut().filter(|new| new.origin.is_none()) {
            let id = self.fresh();
            let is_notice = new.is_foreign_notice();
            foreign += usize::from(!is_notice);
            new.origin = Some(Origin::Host(id));
            history.write(HostText {
                identity: new.fingerprint.identity,
                id,
                shortens: false,
                covers: match is_notice {
                    true => IdSet::default(),
                    false => covers.clone(),
                },
            });
        }
        foreign
    }
}

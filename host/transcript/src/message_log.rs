//! The log of a conversation: every message in the order of arrival, by id and hash.
//!
//! [`Logged`] is a message in the log, with a chain hash over all messages up to it. [`branch_of`]
//! makes the conversation as it stands of a log: a list of [`Known`] messages, in which a revision
//! has taken the place of the earlier form.

use contexture_engine_api::MessageId;
use contexture_formats::Message;
use xxhash_rust::xxh3::Xxh3;

use crate::ids::IdMap;

/// The hashes by which messages are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// The hash of the message's canonical content, see [`Message::identity`].
    pub identity: u128,
    /// A hash of the role and of the call that the message answers. A revision keeps the shape of
    /// the message that it replaces.
    pub shape: u64,
}

impl Fingerprint {
    /// The fingerprint of a message that was read.
    pub fn of(message: &Message) -> Self {
        Self {
            identity: message.identity,
            shape: shape(&message.role, message.tool_call_id.as_deref()),
        }
    }

    /// Whether the message comes from the user and answers no call.
    pub fn is_of_user(&self) -> bool {
        self.shape == shape("user", None)
    }
}

fn shape(role: &str, call: Option<&str>) -> u64 {
    let mut shape = Xxh3::new();
    shape.update(role.as_bytes());
    if let Some(call) = call {
        // Keeps the role apart from the call id, so that no other pair has the same bytes.
        shape.update(&[0]);
        shape.update(call.as_bytes());
    }
    shape.digest()
}

/// A message of the conversation: its id and its fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The id that the host gave it.
    pub id: MessageId,
    /// The hashes by which it is compared.
    pub fingerprint: Fingerprint,
}

/// A message in the log: what an engine is shown, in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    /// The id that the host gave it.
    pub id: MessageId,
    /// The hashes by which it is compared.
    pub fingerprint: Fingerprint,
    /// The chain hash over all messages of the log up to this one.
    pub chain: u64,
    /// The earlier form of the same message, if this is a revision. It is in the log too.
    pub replaces: Option<MessageId>,
}

/// Builds the conversation from a log: each revision takes the place of the message that it
/// replaces.
pub fn branch_of(log: &[Logged]) -> Vec<Known> {
    let mut branch: Vec<Known> = Vec::with_capacity(log.len());
    let mut place: IdMap<usize> = IdMap::with_capacity_and_hasher(log.len(), Default::default());
    for logged in log {
        let known = Known {
            id: logged.id,
            fingerprint: logged.fingerprint,
        };
        let old = logged.replaces.and_then(|old| place.get(&old).copied());
        let at = old.unwrap_or(branch.len());
        place.insert(known.id, at);
        match branch.get_mut(at) {
            Some(old) => *old = known,
            None => branch.push(known),
        }
    }
    branch
}

/// Continues the chain hash `chain` over a message. Two logs with equal chain hashes have the same
/// messages under the same ids, so a broken link shows damage.
pub fn chain_link(chain: u64, id: MessageId, identity: u128) -> u64 {
    let mut hash = Xxh3::with_seed(chain);
    hash.update(&id.0.to_le_bytes());
    hash.update(&identity.to_le_bytes());
    hash.digest()
}

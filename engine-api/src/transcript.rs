//! Reading the conversation that the host keeps.
//!
//! The host owns the transcript: every message of a session in the order of arrival, including
//! earlier forms of messages and messages that were cut off. An engine that sets
//! [`About::reads_transcript`](crate::About::reads_transcript) needs no copy of its own. It asks
//! [`HostServices::transcript`](crate::HostServices::transcript) with a [`TranscriptRange`] and
//! gets a [`TranscriptPage`].
//!
//! If an engine has data that it cannot derive from the messages, such as a summary that a model
//! wrote, it stores that as an *artifact*: a named text that is committed together with the turn
//! and deleted with the session.

use serde::{Deserialize, Serialize};

use crate::crossing::null_as_default;
use crate::message::{MessageId, OwnedMessage};

open_struct! {
    /// The messages of a transcript to read. A range selects either the messages after a position
    /// or the messages with certain ids.
    ///
    /// ```
    /// use contexture_engine_api::{MessageId, TranscriptRange};
    ///
    /// let page = TranscriptRange::page(Some(MessageId(20))).limit(100);
    /// let two = TranscriptRange::of(vec![MessageId(3), MessageId(4)]);
    /// assert_eq!((page.limit, two.ids.len()), (100, 2));
    /// ```
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct TranscriptRange {
        /// The session to read, or `None` for the engine's own. Another session is read only if
        /// [`may_read_session`](crate::HostServices::may_read_session) allows it.
        pub session: Option<String>,
        /// Begin after this message, or at the start of the session if it is `None`.
        pub after: Option<MessageId>,
        /// Only these messages, in the order of the list. If it is empty, all messages are read.
        #[serde(deserialize_with = "null_as_default")]
        pub ids: Vec<MessageId>,
        /// Whether to include earlier forms of messages and messages that were cut off. Neither is
        /// part of the conversation any more.
        #[serde(deserialize_with = "null_as_default")]
        pub outdated: bool,
        /// Whether to leave out the messages and return only their
        /// [hashes](TranscriptPage::hashes), which of them are
        /// [outdated](TranscriptPage::outdated) and which are
        /// [revisions](TranscriptPage::revisions). No text is read then, so a long session is cheap.
        #[serde(deserialize_with = "null_as_default")]
        pub without_messages: bool,
        /// The largest number of messages to return. The host may return fewer to keep a page below
        /// a few megabytes.
        pub limit: usize,
    }
}

impl TranscriptRange {
    /// Selects up to 1,000 messages after the given one, in the order of arrival. Messages that are
    /// no longer part of the conversation are skipped.
    pub fn page(after: Option<MessageId>) -> Self {
        Self {
            after,
            limit: 1_000,
            ..Self::default()
        }
    }

    /// Selects the messages with these ids, even if they are no longer part of the conversation.
    pub fn of(ids: Vec<MessageId>) -> Self {
        Self {
            limit: ids.len(),
            ids,
            outdated: true,
            ..Self::default()
        }
    }
}

open_struct! {
    /// A page of messages from a transcript, in the order of arrival. If the range lists
    /// [`ids`](TranscriptRange::ids), the messages are in the order of that list.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct TranscriptPage {
        /// The messages, without token counts. A message is missing if it is damaged, or if it was
        /// never stored because the session ran under an engine that needs no transcript.
        pub messages: Vec<OwnedMessage>,
        /// The messages of the page that are no longer part of the conversation. Empty unless
        /// [`TranscriptRange::outdated`] asked for such messages.
        pub outdated: Vec<MessageId>,
        /// The messages of the page that are a new form of an earlier message, as pairs of the id
        /// and the id of the earlier form.
        pub revisions: Vec<(MessageId, MessageId)>,
        /// A hash of the content of each message of the page, as pairs of the id and the hash. If
        /// the session was lost, its ids may be reused for other messages, so an engine may use data
        /// that it derived from a message only if the hash is the same.
        pub hashes: Vec<(MessageId, u64)>,
        /// When messages without a time of their own were first stored, as pairs of the id and
        /// milliseconds since the Unix epoch.
        pub arrived: Vec<(MessageId, i64)>,
        /// The last message of this page if another page follows. Pass it as
        /// [`after`](TranscriptRange::after) to read that page. `None` if this is the last page.
        pub next: Option<MessageId>,
    }
}

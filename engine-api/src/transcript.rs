//! Reading the conversation that the host keeps.
//!
//! The host owns the transcript: every message of a session, in the order of arrival, with the forms that messages had
//! before and what was cut off. An engine that says [`About::reads_transcript`](crate::About::reads_transcript) needs no
//! copy of its own. What it cannot derive from the messages (a summary that a model wrote, say) it stores as an
//! *artifact*: a text under a name, which is committed together with the turn and deleted with the session.

use serde::{Deserialize, Serialize};

use crate::message::{MessageId, OwnedMessage};

open_struct! {
    /// Which messages of a transcript to read.
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
        /// The session; `None` for the engine's own. Another one is read only if
        /// [`may_read_session`](crate::HostServices::may_read_session) allows it.
        pub session: Option<String>,
        /// Begin after this message.
        pub after: Option<MessageId>,
        /// Only these messages; empty for all.
        pub ids: Vec<MessageId>,
        /// Whether to read earlier forms of messages and messages that were cut off, too. They are not part of the
        /// conversation any more.
        pub outdated: bool,
        /// At most so many messages. The host may return fewer, so that a page stays below some megabytes.
        pub limit: usize,
    }
}

impl TranscriptRange {
    /// The current messages after this one, in the order of arrival, at most 1,000.
    pub fn page(after: Option<MessageId>) -> Self {
        Self {
            after,
            limit: 1_000,
            ..Self::default()
        }
    }

    /// These messages, whether they are still part of the conversation or not.
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
    /// Messages of a transcript, in the order of arrival.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct TranscriptPage {
        /// The messages. Their tokens are not counted. A message that is not stored (because the session ran under an
        /// engine that needs no transcript at that time) or that is damaged is left out.
        pub messages: Vec<OwnedMessage>,
        /// Where the next page begins: after this message. `None` if this is the last page.
        pub next: Option<MessageId>,
    }
}

//! What summaries are made for while nobody waits, and what is done with them.

use contexture_engine_api::MessageId;

/// What a summary in the making is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The next compaction.
    Next {
        /// The summary in the window that it updates.
        previous: Option<String>,
    },
    /// To stand in for a summary that had to be made without the model.
    Redo {
        /// Its text.
        of: String,
    },
}

/// A summary that is ready for the next compaction.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) text: String,
    pub(crate) covers: Vec<MessageId>,
    pub(crate) previous: Option<String>,
}

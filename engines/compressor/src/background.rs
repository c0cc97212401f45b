//! What summaries are made for while nobody waits.

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

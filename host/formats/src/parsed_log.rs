//! A parsed session log: the items of its live branch, and those from which its agent would continue.
//!
//! [`Conversation`](super::Conversation) keeps one if its agent compacted the log, and
//! `log_history` builds conversations from it.

use std::sync::Arc;

use super::body::system_text;
use super::item_span::ItemSpan;
use super::logs::{Log, LogBody, LoggedUsage};
use super::{Format, FormatError};

/// A parsed log, from which conversations are built: the window, the whole history, or the
/// history without summaries.
#[derive(Debug)]
pub(super) struct ParsedLog {
    pub(super) document: Arc<str>,
    pub(super) source_len: usize,
    pub(super) format: Format,
    /// The items of the live branch in order, including those that a compaction removed from
    /// the window.
    pub(super) items: Vec<ItemSpan>,
    /// Whether each item merely repeats another one, so that only the window may use it.
    pub(super) copies: Vec<bool>,
    /// The indices of the items from which the agent would continue, in the order in which it
    /// would send them.
    pub(super) window: Vec<usize>,
    /// Usage that is recorded between the items, each with the number of items before it.
    pub(super) usage: Vec<(usize, LoggedUsage)>,
    pub(super) model: Option<String>,
    pub(super) system: Option<String>,
}

impl ParsedLog {
    /// Collects the contents of a log of this document. Messages that the log stores in another
    /// form are appended to a copy of the document.
    ///
    /// # Errors
    /// Fails if the log holds no message.
    pub(super) fn of(
        document: &Arc<str>,
        format: Format,
        log: Log<'_>,
    ) -> Result<Self, FormatError> {
        if log.items.is_empty() || log.window.is_empty() {
            let what = "none of its lines holds a message".to_owned();
            return Err(FormatError::NotThis { format, what });
        }
        let source_len = document.len();
        let mut made = String::new();
        let mut items = Vec::with_capacity(log.items.len());
        let mut copies = Vec::with_capacity(log.items.len());
        for item in log.items {
            let body = match item.body {
                LogBody::Found(raw) => raw.span(),
                LogBody::Made(text) => {
                    let start = source_len + made.len();
                    made.push_str(&text);
                    made.push('\n');
                    start..start + text.len()
                }
            };
            copies.push(item.is_copy);
            items.push(ItemSpan {
                outer: item.line.map_or_else(|| body.clone(), |line| line.span()),
                body,
                speaker: item.speaker,
                continues: item.continues,
                time_ms: item.time_ms,
                state: None,
            });
        }
        let document = match made.is_empty() {
            true => Arc::clone(document),
            false => [document.as_ref(), made.as_str()].concat().into(),
        };
        Ok(Self {
            document,
            source_len,
            format,
            items,
            copies,
            window: log.window,
            usage: log.usage,
            model: log.model,
            system: log.system.and_then(system_text),
        })
    }
}

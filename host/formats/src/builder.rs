//! Builds a conversation from the items that were found in a document.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::body::{is_prompt, is_setup, system_text, tools_of};
use super::calls::KnownCalls;
use super::compacted::{newest, through};
use super::conversation::{Container, Conversation};
use super::item_span::ItemSpan;
use super::json::Raw;
use super::logs::LoggedUsage;
use super::views::{Speaker, WireItem, read_items};
use super::{Format, FormatError};

/// Collects what is known of a conversation while it is read. [`finish`](Self::finish) turns it
/// into a [`Conversation`].
pub(super) struct Builder<'d> {
    document: &'d Arc<str>,
    /// The length of the part of the document that [`Conversation::document`] returns, in
    /// bytes.
    pub(super) source_len: usize,
    format: Format,
    pub(super) items: Vec<ItemSpan>,
    pub(super) system: Vec<String>,
    pub(super) tools: Option<Range<usize>>,
    pub(super) model: Option<String>,
    pub(super) logged: Vec<(usize, LoggedUsage)>,
    pub(super) warnings: Vec<String>,
}

impl<'d> Builder<'d> {
    pub(super) fn new(document: &'d Arc<str>, format: Format) -> Self {
        Self {
            document,
            source_len: document.len(),
            format,
            items: Vec::new(),
            system: Vec::new(),
            tools: None,
            model: None,
            logged: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Separates the system prompt and the provider's own compaction from the items, and reads
    /// the rest into messages. The index in an error counts all items of the list.
    pub(super) fn finish(mut self, container: Container) -> Result<Conversation, FormatError> {
        let document = self.document;
        let raw = |span: &Range<usize>| Raw::trusted(document, span.clone());
        let leading = self
            .items
            .iter()
            .take_while(|item| {
                // A log has lines of many kinds and stores its system prompt elsewhere.
                let is_request = !matches!(container, Container::Log);
                is_prompt(raw(&item.body)) || (is_request && is_setup(raw(&item.body)))
            })
            .count();
        // In the whole history of a log, a compaction item is one of the agent's own summaries.
        // Claude Code marks these in its own way.
        let is_agents = |item: &ItemSpan| item.speaker == Speaker::Agent;
        let is_claude_codes =
            matches!(container, Container::Log) && self.format == Format::ClaudeCode;
        let of_provider = match is_claude_codes || self.items.iter().any(is_agents) {
            true => 0..0,
            false => leading..self.items.len(),
        };
        let item = |at: usize| Some(raw(&self.items.get(at)?.body));
        let all = newest(of_provider, item).map_or(leading, |newest| through(newest, item));
        let items = self.items.split_off(all);
        let compacted_items = self.items.split_off(leading).into_iter();
        let compacted_items: Vec<_> = compacted_items.map(|item| item.body).collect();
        let leading = all;
        let system_items: Vec<_> = self.items.into_iter().map(|item| item.body).collect();
        let tool_items: Vec<_> = (system_items.iter())
            .filter_map(|item| tools_of(raw(item)))
            .collect();
        self.system.extend(
            system_items
                .iter()
                .filter_map(|item| system_text(raw(item))),
        );
        let wire = items.iter().map(|item| WireItem {
            raw: raw(&item.body),
            continues: item.continues,
            speaker: item.speaker,
            time_ms: item.time_ms,
        });
        // The reader counts from the first message, but users count from the first item of the
        // list.
        let mut messages = read_items(self.format, wire, &mut KnownCalls::default()).map_err(
            |error| match error {
                FormatError::Message { index, what } => FormatError::Message {
                    index: index + leading,
                    what,
                },
                other => other,
            },
        )?;
        for message in &mut messages {
            let item = items.get(message.items.start);
            let state = item.and_then(|item| document.get(item.state.clone()?));
            message.state = state.map(Arc::from);
        }
        let mut conversation = Conversation {
            document: Arc::clone(document),
            source_len: self.source_len,
            format: self.format,
            container,
            system_items,
            compacted_items,
            items,
            messages,
            scattered: HashMap::new(),
            system: (!self.system.is_empty()).then(|| self.system.join("\n\n")),
            tools: self.tools.into_iter().chain(tool_items).collect(),
            model: self.model,
            usage: Vec::new(),
            warnings: self.warnings,
            damage: None,
            history: None,
        };
        // Joined here once, because `raw` returns a borrowed text.
        conversation.scattered = conversation.gather_scattered();
        conversation.usage = conversation.gather_usage(&self.logged, leading);
        Ok(conversation)
    }
}

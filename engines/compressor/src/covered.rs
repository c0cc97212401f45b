//! What a summary is made from: the messages that leave, and the earlier summaries among them.

use std::borrow::Cow;
use std::collections::HashMap;

use contexture_engine_api::{MessageId, MessageKind, MessageView};
use contexture_summaries::{Noted, noted};

use crate::boundaries::Outline;
use crate::plan::Plan;
use contexture_summaries::body_of;

/// What a summary is made from.
pub(crate) struct Covered<'m, 'a> {
    /// The messages that leave or are cleared, earlier summaries not among them.
    pub(crate) messages: Cow<'m, [MessageView<'a>]>,
    /// For each of them that is a tool result: the message with its call, where that is known.
    callers: HashMap<MessageId, MessageView<'a>>,
    /// The earlier summaries that leave.
    pub(crate) previous: Option<String>,
    /// What a user asked for before them.
    pub(crate) task: Option<&'a str>,
}

impl<'m, 'a> Covered<'m, 'a> {
    pub(crate) fn of(
        outline: &Outline<'m, 'a>,
        plan: &Plan,
        improved: Option<&(String, String)>,
    ) -> Self {
        let mut taken: Vec<usize> = plan.split.middle().collect();
        // A cleared result loses its text as much as one that leaves; its call says what it was.
        for (at, _) in &plan.replaced {
            taken.push(*at);
            taken.extend(outline.call_of[*at]);
        }
        taken.sort_unstable();
        taken.dedup();
        let (summaries, taken): (Vec<usize>, Vec<usize>) = taken
            .into_iter()
            .partition(|at| outline.messages[*at].kind() == MessageKind::Summary);
        let previous = joined(summaries.into_iter().map(|at| {
            let body = body_of(outline.messages[at].text());
            match improved {
                Some((made_without, better)) if *made_without == body => better.clone(),
                _ => body,
            }
        }));
        Self {
            callers: taken
                .iter()
                .filter_map(|at| Some((outline.messages[*at].id(), *outline.caller(*at)?)))
                .collect(),
            messages: match (taken.first(), taken.last()) {
                (Some(first), Some(last)) if last - first + 1 == taken.len() => {
                    Cow::Borrowed(&outline.messages[*first..=*last])
                }
                _ => taken.iter().map(|at| outline.messages[*at]).collect(),
            },
            previous,
            task: outline.messages[..plan.split.head]
                .iter()
                .find(|message| message.is_real_user())
                .map(MessageView::text),
        }
    }

    /// The compact forms of the messages, as far as possible from the log.
    pub(crate) fn notes(&self, log: &[Noted]) -> Vec<Noted> {
        let with_caller = |message: &'_ MessageView<'a>| self.callers.get(&message.id());
        noted(self.messages.iter().map(|m| (m, with_caller(m))), log)
    }
}

/// Summaries as one text, where there is any.
pub(crate) fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

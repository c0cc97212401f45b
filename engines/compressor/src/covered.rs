//! Collects what a summary is made from: the messages that leave the window, and the earlier
//! summaries among them.
//!
//! [`Covered::of`] gathers the middle of a split. Results that are shortened in place are not part
//! of it: they may be taken back while the summary stays. Earlier summaries are separated from
//! ordinary messages: they are the text that the new summary updates. If the model has meanwhile
//! rewritten one that was extracted without it, the rewritten text is used. [`Covered::notes`] then
//! turns this into a task for the [`SummaryCycle`].

use std::borrow::Cow;

use contexture_digest::Readings;
use contexture_engine_api::{CompressOrder, MessageKind, MessageView, Services};
use contexture_summaries::{Notes, SummaryCycle, body_of, marked};

use crate::boundaries::{Outline, Split};
use crate::headings::HEADINGS;

/// The content of a summary: the messages that leave, the text of the earlier summaries among them,
/// and the user's first message in the protected head, which states the goal.
pub(crate) struct Covered<'m, 'a> {
    pub(crate) messages: Cow<'m, [MessageView<'a>]>,
    /// The window after the head, up to the last message that leaves. A message of the user that
    /// stays among these belongs to it, because the summary may stand after that message.
    window: &'m [MessageView<'a>],
    previous: Option<String>,
    goal: Option<&'a str>,
}

impl<'m, 'a> Covered<'m, 'a> {
    /// Collects what leaves with this split. `cycle` may know a better text for an earlier summary.
    pub(crate) fn of(outline: &Outline<'m, 'a>, split: &Split, cycle: &SummaryCycle) -> Self {
        let (summaries, taken): (Vec<usize>, Vec<usize>) = split
            .middle()
            .partition(|at| outline.messages[*at].kind() == MessageKind::Summary);
        let bodies = summaries.into_iter().map(|at| {
            let body = body_of(outline.messages[at].text());
            cycle.better(&body).unwrap_or(body)
        });
        let bodies: Vec<String> = bodies.filter(|body| !body.is_empty()).collect();
        Self {
            // The usual case is one contiguous middle, which needs no copy of the views.
            messages: match (taken.first(), taken.last()) {
                (Some(first), Some(last)) if last - first + 1 == taken.len() => {
                    Cow::Borrowed(&outline.messages[*first..=*last])
                }
                _ => taken.iter().map(|at| outline.messages[*at]).collect(),
            },
            window: match split.middle().last() {
                Some(last) => &outline.messages[split.head..=last],
                None => &[],
            },
            previous: (!bodies.is_empty()).then(|| bodies.join("\n\n")),
            goal: outline.messages[..split.head]
                .iter()
                .find(|message| message.is_real_user())
                .map(MessageView::text),
        }
    }

    /// The task for a summary of at most `tokens` tokens, including the mark that the host adds.
    /// `readings` saves scanning messages that were read when they arrived.
    pub(crate) fn notes<'t>(
        &'t self,
        readings: Option<&'t Readings>,
        tokens: u64,
        order: &'t CompressOrder,
        services: &'t Services,
    ) -> Notes<'t, 'a> {
        let tokens = tokens.saturating_sub(services.count_tokens(&marked("")));
        let mut notes = Notes::new(&self.messages, &HEADINGS, tokens, order, services);
        notes.window = self.window;
        notes.readings = readings;
        notes.previous = self.previous.as_deref();
        notes.goal = self.goal;
        notes
    }
}

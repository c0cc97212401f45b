//! What a summary is made from: the messages that leave, and the earlier summaries among them.

use std::borrow::Cow;

use contexture_digest::Readings;
use contexture_engine_api::{CompressOrder, MessageKind, MessageView, Services};
use contexture_summaries::{Notes, SummaryCycle, body_of, marked};

use crate::boundaries::{Outline, Split};
use crate::headings::HEADINGS;

/// What a summary is made from.
pub(crate) struct Covered<'m, 'a> {
    /// The messages that leave or are cleared, earlier summaries not among them.
    pub(crate) messages: Cow<'m, [MessageView<'a>]>,
    /// The earlier summaries that leave.
    previous: Option<String>,
    /// What a user asked for before them.
    goal: Option<&'a str>,
}

impl<'m, 'a> Covered<'m, 'a> {
    /// What leaves with this split, and what is `replaced` in what stays.
    pub(crate) fn of(
        outline: &Outline<'m, 'a>,
        split: &Split,
        replaced: &[(usize, String)],
        cycle: &SummaryCycle,
    ) -> Self {
        let mut taken: Vec<usize> = split.middle().collect();
        // A cleared result loses its text as much as one that leaves; its call says what it was.
        for (at, _) in replaced {
            taken.push(*at);
            taken.extend(outline.call_of[*at]);
        }
        taken.sort_unstable();
        taken.dedup();
        let (summaries, taken): (Vec<usize>, Vec<usize>) = taken
            .into_iter()
            .partition(|at| outline.messages[*at].kind() == MessageKind::Summary);
        let bodies = summaries.into_iter().map(|at| {
            let body = body_of(outline.messages[at].text());
            cycle.better(&body).map_or(body, str::to_owned)
        });
        let bodies: Vec<String> = bodies.filter(|body| !body.is_empty()).collect();
        Self {
            messages: match (taken.first(), taken.last()) {
                (Some(first), Some(last)) if last - first + 1 == taken.len() => {
                    Cow::Borrowed(&outline.messages[*first..=*last])
                }
                _ => taken.iter().map(|at| outline.messages[*at]).collect(),
            },
            previous: (!bodies.is_empty()).then(|| bodies.join("\n\n")),
            goal: outline.messages[..split.head]
                .iter()
                .find(|message| message.is_real_user())
                .map(MessageView::text),
        }
    }

    /// The summary to write, which may have so many tokens with its mark.
    pub(crate) fn notes<'t>(
        &'t self,
        readings: Option<&'t Readings>,
        tokens: u64,
        order: &'t CompressOrder,
        services: &'t Services,
    ) -> Notes<'t, 'a> {
        let tokens = tokens.saturating_sub(services.count_tokens(&marked("")));
        let mut notes = Notes::new(&self.messages, &HEADINGS, tokens, order, services);
        notes.readings = readings;
        notes.previous = self.previous.as_deref();
        notes.goal = self.goal;
        notes
    }
}

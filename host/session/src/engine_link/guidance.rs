//! What the user wants of summaries: `compression.guidance`, the layout of `compression.template`, and
//! `compression.contradicted`.
//!
//! The texts go into every request for a summary here, at the one place that all of them pass, whichever
//! engine asks: one that is linked in, a plugin, or a program in another language. An engine says
//! with [`ModelRequest::layout`] whether its answer may have another layout. Requests for anything
//! else than a summary stay as they are.
//!
//! An engine plans with the window of the summary model that it is told. [`Guidance::left_of`] takes
//! from it what is added here, so that a request which fits by the engine's count still fits.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use contexture_config::{Contradicted, Loaded};
use contexture_engine_api::ModelRequest;
use contexture_formats::tokens::TokenCounter;

/// The purpose of a request for a summary.
const SUMMARY: &str = "summary";
const WANTED: &str = "What the user wants of the summary, before anything that is said above:";
const LAID_OUT: &str = "Lay the summary out like this:";
/// The tokens of what is added around the user's texts, at most.
const AROUND_TOKENS: u64 = 40;

/// The user's texts for the requests of a session. By default there are none.
#[derive(Debug, Default)]
pub(crate) struct Guidance {
    guidance: Option<String>,
    template: Option<String>,
    /// Whether a summary that the messages contradict is extracted instead:
    /// `compression.contradicted`.
    pub(crate) extract_if_contradicted: bool,
    /// Whether the log says already that an engine has a layout of its own.
    is_told: AtomicBool,
}

impl Guidance {
    pub(crate) fn of(loaded: &Loaded) -> Self {
        Self {
            guidance: loaded.config.compression.guidance.clone(),
            template: loaded.template.clone(),
            extract_if_contradicted: loaded.config.compression.contradicted
                == Contradicted::Extract,
            is_told: AtomicBool::new(false),
        }
    }

    /// What a window of this many tokens leaves for an engine's own requests. It is at least half.
    pub(crate) fn left_of(&self, context_length: u64, counter: TokenCounter) -> u64 {
        let texts = [&self.guidance, &self.template].into_iter().flatten();
        let added = texts.map(|text| counter.count_text(text) + AROUND_TOKENS);
        context_length
            .saturating_sub(added.sum())
            .max(context_length / 2)
    }

    /// Returns the request with the user's texts in it. They stand at the end of the instructions,
    /// and of the question if it continues the agent's own prompt.
    pub(crate) fn applied<'r>(&self, request: &'r ModelRequest) -> Cow<'r, ModelRequest> {
        let is_empty = self.guidance.is_none() && self.template.is_none();
        if is_empty || request.purpose != SUMMARY {
            return Cow::Borrowed(request);
        }
        let mut request = request.clone();
        let layout = request.layout.clone();
        let in_question = request.continued.as_mut().map(|asked| &mut asked.question);
        for text in [Some(&mut request.system), in_question]
            .into_iter()
            .flatten()
        {
            self.add_to(text, layout.as_deref());
        }
        Cow::Owned(request)
    }

    fn add_to(&self, text: &mut String, layout: Option<&str>) {
        match (&self.template, layout) {
            (None, _) => {}
            (Some(template), Some("")) => text.push_str(&format!("\n\n{LAID_OUT}\n\n{template}")),
            (Some(template), Some(layout)) => *text = text.replacen(layout, template, 1),
            (Some(_), None) => self.tell_of_own_layout(),
        }
        if let Some(guidance) = &self.guidance {
            text.push_str(&format!("\n\n{WANTED}\n{guidance}"));
        }
    }

    fn tell_of_own_layout(&self) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the engine reads its summaries itself, so they keep its layout: `compression.template` is not used"
            );
        }
    }
}

#[cfg(test)]
mod tests;

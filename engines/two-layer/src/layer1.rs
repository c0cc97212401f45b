//! Layer 1, called `micro_compact` in the document: old results become placeholders, and long
//! arguments and texts are shortened.
//!
//! [`shorter_forms`] is the only entry point. It returns one optional replacement per message and
//! leaves the rest to the engine. A result in an old round loses its text. A text outside the
//! recent rounds keeps its beginning. Nothing is replaced unless the new form is smaller in
//! characters and in tokens, with the host's seal counted. If the prompt is too large for the
//! window, new results are shortened too, because otherwise no model could read them.

use contexture_digest::{cut_arguments, keep_rules};
use contexture_engine_api::{MessageKind, MessageView, Replacement, Services, ShortArguments};
use contexture_summaries::{SEAL_TOKENS, excerpt, tool_of};

use crate::outline::Outline;
use crate::settings::Settings;

/// The beginning of a shortened text, by which the engine recognises its own work.
pub(crate) const CUT_MARK: &str = "[truncated: ";
const ARGUMENT_MARK: &str = "… [truncated]";

/// The size of the seal that the host appends to a shorter form, in characters.
const SEAL_CHARS: usize = "\n[#01234567]".len();
/// The characters that are shown of a new result that the window cannot hold.
const EXCERPT_CHARS: usize = 4_000;

/// Returns the shorter form of each message, or `None` if it stays as it is. Messages for which
/// `spares` returns true are left alone. If the prompt `is_too_large`, so that no model could read
/// it, new results are shortened to excerpts too.
pub(crate) fn shorter_forms(
    outline: &Outline<'_, '_>,
    settings: &Settings,
    services: &Services,
    spares: &dyn Fn(usize) -> bool,
    is_too_large: bool,
) -> Vec<Option<Replacement>> {
    let recent = outline.recent_rounds(settings.keep_recent_tools);
    let micro = Micro {
        outline,
        settings,
        services,
        recent,
        is_too_large,
    };
    (0..outline.messages.len())
        .map(|at| {
            let is_free = !outline.is_untouchable(at) && !spares(at);
            is_free.then(|| micro.shorter(at)).flatten()
        })
        .collect()
}

struct Micro<'r, 'm, 'a> {
    outline: &'r Outline<'m, 'a>,
    settings: &'r Settings,
    services: &'r Services,
    recent: usize,
    is_too_large: bool,
}

impl Micro<'_, '_, '_> {
    fn shorter(&self, at: usize) -> Option<Replacement> {
        let message = &self.outline.messages[at];
        let is_said = matches!(
            message.kind(),
            MessageKind::Original | MessageKind::Replaced // A text that is shortened already would only lose its count of characters.
        );
        let is_cut =
            message.kind() == MessageKind::Replaced && message.text().starts_with(CUT_MARK);
        let text = match message.role() {
            _ if !is_said || is_cut => None,
            "tool" => self.result(at, message),
            "user" | "assistant" => self.text(at, message),
            _ => None,
        };
        let arguments = self.arguments(at, message);
        (text.is_some() || !arguments.is_empty()).then(|| {
            Replacement::new(message.id())
                .text(text)
                .arguments(arguments)
        })
    }

    /// Returns the placeholder of an old result. For a new result, returns an excerpt if the prompt
    /// is too large. Protected tools are left alone.
    fn result(&self, at: usize, message: &MessageView<'_>) -> Option<String> {
        let tool = tool_of(message, self.outline.caller(at));
        let round = self.outline.pairs.call_of(at).unwrap_or(at);
        let text = message.text();
        if self.settings.protects(tool) {
            return None;
        }
        if round < self.recent {
            return self.if_smaller(text, placeholder(text), SEAL_CHARS);
        }
        let is_long = self.is_too_large && text.chars().count() > EXCERPT_CHARS;
        let shown = || format!("{}\n{}", placeholder(text), excerpt(text, EXCERPT_CHARS));
        is_long
            .then(|| self.if_smaller(text, shown(), SEAL_CHARS))
            .flatten()
    }

    /// Returns a shortened text of the user or the assistant, with a mark and its beginning, and the
    /// rules that a user states in the rest. The user's last message and recent rounds are left alone.
    fn text(&self, at: usize, message: &MessageView<'_>) -> Option<String> {
        let is_recent_round = at >= self.recent && !message.tool_calls().is_empty();
        if self.outline.question == Some(at) || is_recent_round {
            return None;
        }
        let text = message.text();
        let most = self.settings.max_tool_length;
        text.char_indices().nth(most)?;
        let mark = placeholder(text);
        // The mark, a space, the ellipsis and the seal count too, so the result stays within the
        // limit.
        let room = most.saturating_sub(mark.chars().count() + 2 + SEAL_CHARS);
        let end = text
            .char_indices()
            .nth(room)
            .map_or(text.len(), |(end, _)| end);
        let cut = match room {
            0 => mark,
            _ => format!("{mark} {}…", text[..end].trim_end()),
        };
        // No summary covers the message yet, so its rules would be lost.
        self.if_smaller(text, keep_rules(message, cut), SEAL_CHARS)
    }

    /// Returns the shortened arguments of the calls in an old round. They stay valid JSON.
    fn arguments(&self, at: usize, message: &MessageView<'_>) -> Vec<ShortArguments> {
        if at >= self.recent {
            return Vec::new();
        }
        let calls = message.tool_calls().iter().enumerate();
        let calls = calls.filter(|(_, call)| !self.settings.protects(call.name()));
        calls
            .filter_map(|(index, call)| {
                let short = cut_arguments(
                    call.arguments(),
                    self.settings.max_tool_length,
                    ARGUMENT_MARK,
                )?;
                let short = self.if_smaller(call.arguments(), short, 0)?;
                Some(ShortArguments::new(index, short))
            })
            .collect()
    }

    /// Returns the new text if it is smaller than the old one, in characters and in tokens. The
    /// host appends `added` characters, which count too.
    fn if_smaller(&self, old: &str, new: String, added: usize) -> Option<String> {
        let is_smaller = new.chars().count() + added < old.chars().count()
            && self.services.count_tokens(&new) + SEAL_TOKENS < self.services.count_tokens(old);
        is_smaller.then_some(new)
    }
}

fn placeholder(text: &str) -> String {
    format!("{CUT_MARK}{} chars]", text.chars().count())
}

//! Pins: words that a user wants in the window verbatim after every compaction.
//!
//! A line `/pin WORDS` in a user's message pins the rest of the line, `/pin` alone pins all other
//! lines of the message, and `/unpin WORDS` ends a pin. The configuration may have pins, too. Once
//! the message is compacted, its pins stand in a section at the end of a summary, under
//! [`PINS_HEADING`]. If the engine makes no summary, a notice has the section.
//!
//! The host writes these sections, and engines never see one ([`without_pins`]). So a pin survives
//! every engine, the change of one, and a summary by a model. [`Pins::of`] reads them from the
//! window, [`Pins::keep_in`] writes them into a proposal, and the check of a proposal reads it again
//! and refuses one that loses a pin.
//!
//! A pin may also be made outside the text: by a program, or by the model with a tool. Until the
//! next compaction writes such a [`HeldPin`] into the window, the host holds it. Those of the model
//! stand in a section of their own, under [`MODEL_PINS_HEADING`].
//!
//! Pins take a bounded share of the window. If they have more, those of the configuration, then the
//! user's newest, and then the model's newest stay.

use std::borrow::Cow;
use std::collections::HashMap;

use contexture_engine_api::{
    Compaction, Entry, MessageId, MessageKind, MessageView, NOTICE_MARK, SUMMARY_END_MARK,
    SUMMARY_MARK,
};
use serde::{Deserialize, Serialize};

use crate::own_words;

/// The heading over the pins in a summary or a notice.
pub const PINS_HEADING: &str = "## Pinned by the user. It still holds, word for word:";

/// The heading over the model's own pins in a summary or a notice.
pub const MODEL_PINS_HEADING: &str =
    "## Pinned by the assistant itself. It still holds, word for word:";

/// The heading over pins that have ended and still stand in a summary that is kept.
const ENDED_HEADING: &str = "## No longer pinned:";

/// All headings over sections of pins, in the order of the sections.
const HEADINGS: [&str; 3] = [ENDED_HEADING, PINS_HEADING, MODEL_PINS_HEADING];

const PIN: &str = "/pin";
const UNPIN: &str = "/unpin";

/// Pins take at most one part in this many of the window, which is about a fifth of a summary.
const WINDOW_PARTS: u64 = 100;
/// The least and the most tokens that pins may take, whatever the window.
const LEAST_TOKENS: u64 = 256;
const MOST_TOKENS: u64 = 2_000;

/// The most tokens that pins may take in a window of this many, their heading included.
pub fn most_pin_tokens(context_length: u64) -> u64 {
    (context_length / WINDOW_PARTS).clamp(LEAST_TOKENS, MOST_TOKENS)
}

/// A pin that was made or ended outside the text of the conversation. It is newer than what the
/// text says of the same words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPin {
    /// The words to keep, on one line.
    pub words: String,
    /// Who pinned them, or that they are no longer pinned.
    pub by: PinnedBy,
}

/// Who pinned words outside the text of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinnedBy {
    /// The user, through a program.
    User,
    /// The model, with a tool.
    Model,
    /// Nobody any more.
    Nobody,
}

/// The pins that hold in a window, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    all: PinLists,
    /// Those that fit, which have to stay.
    fitting: PinLists,
}

impl Pins {
    /// Returns the pins of these messages, those of the configuration, and those that the host
    /// holds. Of those that do not fit into `most_tokens`, the model's are left out first, then the
    /// user's oldest, and those of the configuration last. `count` returns the tokens of a text.
    pub fn of(
        messages: &[MessageView<'_>],
        configured: &[String],
        held: &[HeldPin],
        most_tokens: u64,
        count: impl Fn(&str) -> u64,
    ) -> Self {
        let mut said = Reader::default();
        messages.iter().for_each(|message| said.read(message, None));
        for HeldPin { words, by } in held {
            match by {
                PinnedBy::User => said.pin(words, PinnedBy::User),
                PinnedBy::Model => said.pin(words, PinnedBy::Model),
                PinnedBy::Nobody => said.unpin(words),
            }
        }
        let said = said.pins;
        let mut all = Reader::default();
        let lines = configured.iter().flat_map(|pin| pin.lines());
        lines.for_each(|line| all.pin(line, PinnedBy::User));
        let mut all = all.pins;
        let is_new = |pin: &String, all: &PinLists| !all.user.contains(pin);
        let configured = all.clone();
        (all.user).extend(said.user.into_iter().filter(|pin| is_new(pin, &configured)));
        let users = all.clone();
        (all.model).extend(said.model.into_iter().filter(|pin| is_new(pin, &users)));
        let (first, later) = all.user.split_at(configured.user.len());
        let mut left = most_tokens;
        let mut fit = |heading: &str, pins: &mut dyn Iterator<Item = &String>| {
            let mut room = left.saturating_sub(count(heading));
            let fits = pins.filter(|pin| {
                let tokens = count(&format!("\n- {pin}"));
                let fits = tokens <= room;
                room -= if fits { tokens } else { 0 };
                fits
            });
            let fits: Vec<String> = fits.cloned().collect();
            left = match fits.is_empty() {
                true => left,
                false => room,
            };
            fits
        };
        let user = fit(PINS_HEADING, &mut first.iter().chain(later.iter().rev()));
        let model = fit(MODEL_PINS_HEADING, &mut all.model.iter().rev());
        let in_order = |all: &[String], fits: &[String]| {
            let fitting = all.iter().filter(|pin| fits.contains(pin));
            fitting.cloned().collect()
        };
        Self {
            fitting: PinLists {
                user: in_order(&all.user, &user),
                model: in_order(&all.model, &model),
            },
            all,
        }
    }

    /// The pins that fit and have to be in the window after a compaction.
    pub fn fitting(&self) -> &PinLists {
        &self.fitting
    }

    /// All pins, also those that do not fit.
    pub fn all(&self) -> &PinLists {
        &self.all
    }

    /// The pins that do not fit.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        let left_out = (self.all.iter()).filter(|pin| !self.fitting.contains(pin));
        left_out.map(String::as_str)
    }

    /// Writes the pins that a proposal would lose into its last summary, or into a notice before the
    /// user's last message if it has no summary. Sections that the engine wrote are removed. Returns
    /// whether anything was written.
    pub fn keep_in(&self, messages: &[MessageView<'_>], proposal: &mut Compaction) -> bool {
        for entry in &mut proposal.entries {
            let text = match entry {
                Entry::Summary(summary) => &mut summary.text,
                Entry::Notice(notice) => &mut notice.text,
                _ => continue,
            };
            let own = match without_pins(text) {
                Cow::Owned(own) => own,
                Cow::Borrowed(_) => continue,
            };
            *text = own;
        }
        let Some(section) = self.missing(messages, &proposal.entries) else {
            return false;
        };
        let mut entries = proposal.entries.iter_mut().rev();
        let summary = entries.find_map(|entry| match entry {
            Entry::Summary(summary) => Some(&mut summary.text),
            _ => None,
        });
        if let Some(text) = summary {
            *text = format!("{}\n\n{section}", text.trim_end());
        }
        // A summary that is kept may come after this one, with a pin that has ended.
        if let Some(section) = self.missing(messages, &proposal.entries) {
            let last = messages.iter().rfind(|message| message.is_real_user());
            let is_last = |entry: &Entry| last.is_some_and(|last| entry.ids() == [last.id()]);
            let at = proposal.entries.iter().position(is_last);
            (proposal.entries).insert(at.unwrap_or(0), Entry::notice(section));
        }
        true
    }

    /// The sections that these entries lack: pins that they would lose, and pins that have ended and
    /// still stand in a summary that is kept. None if nothing is missing.
    fn missing(&self, messages: &[MessageView<'_>], entries: &[Entry]) -> Option<String> {
        let after = pins_after(messages, entries);
        let without = |pins: &[String], others: &[String]| -> Vec<String> {
            let missing = pins.iter().filter(|pin| !others.contains(pin));
            missing.map(|pin| format!("- {pin}")).collect()
        };
        let mut ended = without(&after.user, &self.all.user);
        ended.extend(without(&after.model, &self.all.model));
        let user = without(&self.fitting.user, &after.user);
        let model = without(&self.fitting.model, &after.model);
        let sections = HEADINGS.into_iter().zip([ended, user, model]);
        let sections: Vec<String> = sections
            .filter(|(_, lines)| !lines.is_empty())
            .map(|(heading, lines)| format!("{heading}\n{}", lines.join("\n")))
            .collect();
        (!sections.is_empty()).then(|| sections.join("\n\n"))
    }
}

/// The words that the commands in a user's text pin or end, in order.
pub fn commanded(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    commands_in(text, |_, said| words.push(said.trim().to_owned()));
    words
}

/// Returns whether words can be pinned: they are one line, no command and no mark of the host's.
pub fn is_pinnable(words: &str) -> bool {
    // A mark of the host's would make the summary unreadable, and in a section a command would be
    // carried out.
    let marks = [SUMMARY_MARK, SUMMARY_END_MARK, NOTICE_MARK];
    let mut marks = marks.iter().chain(&HEADINGS);
    let is_marked = marks.any(|mark| words.contains(mark));
    let is_line = !words.trim().is_empty() && words.lines().count() == 1;
    is_line && !is_marked && command(words.trim()).is_none()
}

/// Returns the first of these pins that the window would not have after the proposal.
pub(super) fn lost<'p>(
    messages: &[MessageView<'_>],
    entries: &[Entry],
    pins: &'p PinLists,
) -> Option<&'p String> {
    if pins.is_empty() {
        return None;
    }
    let after = pins_after(messages, entries);
    pins.iter().find(|pin| !after.contains(pin))
}

/// Returns the text of a summary or a notice without its sections of pins. It is borrowed if it has
/// none.
pub fn without_pins(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for heading in HEADINGS {
        if let Some((before, _, after)) = section(&text, heading) {
            text = Cow::Owned(format!("{}{after}", before.trim_end()));
        }
    }
    text
}

/// The pins of the window that a proposal makes of these messages.
fn pins_after(messages: &[MessageView<'_>], entries: &[Entry]) -> PinLists {
    let by_id: HashMap<MessageId, &MessageView<'_>> = (messages.iter())
        .map(|message| (message.id(), message))
        .collect();
    let mut reader = Reader::default();
    for entry in entries {
        match entry {
            Entry::Keep(id) | Entry::Restore(id) => {
                if let Some(message) = by_id.get(id) {
                    reader.read(message, None);
                }
            }
            Entry::Replace(new) => {
                if let Some(message) = by_id.get(&new.id) {
                    reader.read(message, new.text.as_deref());
                }
            }
            Entry::Summary(summary) => reader.read_section(&summary.text),
            Entry::Notice(notice) => reader.read_section(&notice.text),
            _ => {}
        }
    }
    reader.pins
}

/// Pins by who made them, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinLists {
    /// Those of the user and of the configuration.
    pub user: Vec<String>,
    /// Those of the model. None of them is also the user's.
    pub model: Vec<String>,
}

impl PinLists {
    /// All pins, the user's first.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.user.iter().chain(&self.model)
    }

    /// Returns whether these words are pinned.
    pub fn contains(&self, words: &str) -> bool {
        self.iter().any(|pin| pin == words)
    }

    /// Returns whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.user.is_empty() && self.model.is_empty()
    }
}

/// Collects pins in the order of the window.
#[derive(Debug, Default)]
struct Reader {
    pins: PinLists,
}

impl Reader {
    /// Reads a message, or the text that takes the place of its own.
    fn read(&mut self, message: &MessageView<'_>, text: Option<&str>) {
        let text = text.unwrap_or(message.text());
        match message.kind() {
            MessageKind::Summary | MessageKind::Notice => self.read_section(text),
            _ if message.is_real_user() => commands_in(text, |name, words| match name {
                PIN => self.pin(words, PinnedBy::User),
                _ => self.unpin(words),
            }),
            _ => {}
        }
    }

    fn read_section(&mut self, text: &str) {
        for heading in HEADINGS {
            let lines = section(text, heading).map_or("", |(_, lines, _)| lines);
            for line in lines.lines().filter_map(|line| line.strip_prefix("- ")) {
                match heading {
                    ENDED_HEADING => self.unpin(line),
                    PINS_HEADING => self.pin(line, PinnedBy::User),
                    _ => self.pin(line, PinnedBy::Model),
                }
            }
        }
    }

    /// Adds a pin. What is pinned again is newer than what was pinned since. The user's pin takes
    /// the place of the model's.
    fn pin(&mut self, words: &str, by: PinnedBy) {
        let words = words.trim();
        if !is_pinnable(words)
            || (by == PinnedBy::Model && self.pins.user.iter().any(|pin| is_same_pin(pin, words)))
        {
            return;
        }
        self.unpin(words);
        let pins = match by {
            PinnedBy::Model => &mut self.pins.model,
            _ => &mut self.pins.user,
        };
        pins.push(words.to_owned());
    }

    fn unpin(&mut self, words: &str) {
        for pins in [&mut self.pins.user, &mut self.pins.model] {
            pins.retain(|pin| !is_same_pin(pin, words));
        }
    }
}

/// Returns whether these are the words of one pin. Spaces, case, and punctuation at the end do not
/// count, so that a pin ends by what a user remembers of it.
pub fn is_same_pin(words: &str, other: &str) -> bool {
    let letters = |words: &str| {
        let own = words.trim_end_matches(|c: char| c.is_whitespace() || ".!。".contains(c));
        let letters = own.chars().filter(|c| !c.is_whitespace());
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    words == other || letters(words) == letters(other)
}

/// Calls `each` with the commands in a user's text, in order. A line in a code block is no command, and
/// neither is one that a client inserted.
fn commands_in(text: &str, mut each: impl FnMut(&'static str, &str)) {
    if text.lines().all(|line| command(line).is_none()) {
        return;
    }
    let own = own_words(text);
    let mut is_code = false;
    let lines = own.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let lines: Vec<&str> = lines.collect();
    for line in &lines {
        match command(line) {
            Some((PIN, "")) => {
                let others = lines.iter().filter(|line| command(line).is_none());
                others.for_each(|line| each(PIN, line));
            }
            Some((name, words)) => each(name, words),
            None => {}
        }
    }
}

/// The command of a line, with its words. Case does not count, and any space may follow it, such as
/// the wide one of a Chinese or Japanese keyboard.
fn command(line: &str) -> Option<(&'static str, &str)> {
    [UNPIN, PIN].into_iter().find_map(|name| {
        let (said, words) = line.split_at_checked(name.len())?;
        let is_own = words.trim().is_empty() || words.starts_with(char::is_whitespace);
        (said.eq_ignore_ascii_case(name) && is_own).then(|| (name, words.trim()))
    })
}

/// The text before the section under this heading, the lines of the section, and what follows it.
fn section<'t>(text: &'t str, heading: &str) -> Option<(&'t str, &'t str, &'t str)> {
    let at = text.rfind(heading)?;
    let (before, rest) = text.split_at(at);
    let rest = rest.strip_prefix(heading)?.strip_prefix('\n')?;
    if !before.is_empty() && !before.ends_with('\n') {
        return None;
    }
    let lines = rest.split_inclusive('\n');
    let length = lines
        .take_while(|line| line.starts_with("- "))
        .map(str::len);
    let (lines, after) = rest.split_at(length.sum());
    Some((before, lines, after))
}

#[cfg(test)]
mod tests;

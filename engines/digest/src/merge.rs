//! Merges notes so that each heading occurs only once.
//!
//! A model writes its own headings, a digest writes others, and facts from the second have to go
//! into the first. [`merge`] splits both texts into blocks at their headings and matches blocks by
//! the section that a heading means, whatever its words and its language. Lines that are present
//! already are not added again. A section that the notes lack is inserted where the structure of a
//! summary has it, in the language of the notes.

use crate::language::Language;
use crate::sections::{Head, Section, heading};

/// A heading and the lines below it, up to the next heading. `title` is the heading as written. It
/// is empty for the lines above the first heading.
struct Block<'t> {
    title: &'t str,
    name: String,
    head: Option<Head>,
    lines: Vec<&'t str>,
}

impl<'t> Block<'t> {
    fn titled(title: &'t str, head: Head, lines: Vec<&'t str>) -> Self {
        Self {
            title,
            name: title.trim_start_matches('#').trim().to_lowercase(),
            head: Some(head),
            lines,
        }
    }

    fn of(text: &'t str) -> Vec<Self> {
        let mut blocks = vec![Self {
            title: "",
            name: String::new(),
            head: None,
            lines: Vec::new(),
        }];
        let mut in_code = false;
        for line in text.lines() {
            // A line that begins with `#` is a comment and no heading if it stands in a code block.
            in_code ^= line.trim_start().starts_with("```");
            match heading(line.trim()).filter(|_| !in_code) {
                Some(name) => blocks.push(Self {
                    title: line,
                    name: name.to_lowercase(),
                    head: Head::of(name),
                    lines: Vec::new(),
                }),
                None => {
                    if let Some(block) = blocks.last_mut() {
                        block.lines.push(line);
                    }
                }
            }
        }
        blocks
    }

    /// Whether both headings are the same, ignoring case. Different words for the same section do
    /// not count: a model may have written both "Done today" and "Done before" on purpose.
    fn is_again(&self, other: &Self) -> bool {
        !self.title.is_empty() && self.name == other.name
    }

    fn section(&self) -> Option<Section> {
        match self.head {
            Some(Head::Of(section)) => Some(section),
            Some(Head::Progress) | None => None,
        }
    }

    /// Whether the block is the progress heading or one of its sections.
    fn is_progress(&self) -> bool {
        self.head == Some(Head::Progress) || self.section().is_some_and(Section::is_progress)
    }

    /// Adds lines that the block does not contain yet, before the blank lines at its end. Blank
    /// lines are not added.
    fn add(&mut self, lines: &[&'t str]) {
        let end = self
            .lines
            .iter()
            .rposition(|line| !line.trim().is_empty())
            .map_or(0, |last| last + 1);
        let new = lines
            .iter()
            .filter(|line| !line.trim().is_empty() && !self.lines.contains(line));
        let new: Vec<&str> = new.copied().collect();
        self.lines.splice(end..end, new);
    }
}

/// Merges `more`, with headings as a [`Digest`](crate::Digest) writes them, into `notes` by any
/// author. Each line goes below the heading with the same meaning, whatever words `notes` use for
/// it. A heading that `notes` lack is inserted at its place in the structure. If `notes` repeat a
/// heading, it occurs once afterwards, with all of its lines.
///
/// If there is nothing to add, notes without a repeated heading are returned byte for byte.
///
/// ```
/// let notes = "## Goal\nShip it\n\n## Progress\n### Done\n- a\n\n## Next Steps\n- b";
/// let more = "## Progress\n### Done\n- c\n\n## Relevant Files\n- d.rs — edited\n";
/// assert_eq!(
///     contexture_digest::merge(notes, more),
///     "## Goal\nShip it\n\n## Progress\n### Done\n- a\n- c\n\n## Relevant Files\n- d.rs — edited\n\n## Next Steps\n- b"
/// );
/// ```
pub fn merge(notes: &str, more: &str) -> String {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_changed = false;
    for block in Block::of(notes) {
        match blocks.iter_mut().find(|known| block.is_again(known)) {
            Some(known) => {
                known.add(&block.lines);
                is_changed = true;
            }
            None => blocks.push(block),
        }
    }
    let language = Language::of_headings(notes).unwrap_or_default();
    for block in Block::of(more) {
        // A heading without lines would add nothing but itself.
        if block.lines.iter().all(|line| line.trim().is_empty()) {
            continue;
        }
        is_changed = true;
        let is_same = |known: &&mut Block<'_>| match block.section() {
            Some(section) => known.section() == Some(section),
            // If the meaning of a heading is unknown, only its words can be compared.
            None => known.name == block.name,
        };
        match blocks.iter_mut().find(is_same) {
            Some(known) => known.add(&block.lines),
            None => insert(&mut blocks, block, language),
        }
    }
    match is_changed {
        true => written(&blocks),
        false => notes.to_owned(),
    }
}

/// Inserts a block without a counterpart at its place in the structure. A block without a known
/// section goes to the end.
fn insert<'t>(blocks: &mut Vec<Block<'t>>, block: Block<'t>, language: Language) {
    let Some(section) = block.section() else {
        blocks.push(block);
        return;
    };
    let is_later = |known: &Block<'_>| match known.head {
        Some(Head::Of(other)) => other > section,
        Some(Head::Progress) => section < Section::Done,
        None => false,
    };
    let mut at = blocks.iter().position(is_later).unwrap_or(blocks.len());
    if section.is_progress() {
        let group = blocks
            .iter()
            .position(|known| known.head == Some(Head::Progress));
        match group {
            // Put it among the existing progress sections, in their order.
            Some(group) => {
                let parts = blocks[group + 1..]
                    .iter()
                    .take_while(|known| known.section().is_some_and(Section::is_progress));
                let before = parts
                    .filter(|known| known.section() < Some(section))
                    .count();
                at = group + 1 + before;
            }
            None if !blocks.iter().any(Block::is_progress) => {
                let title = language.progress();
                blocks.insert(at, Block::titled(title, Head::Progress, Vec::new()));
                at += 1;
            }
            None => {}
        }
    }
    let title = language.heading(section);
    blocks.insert(at, Block::titled(title, Head::Of(section), block.lines));
}

fn written(blocks: &[Block<'_>]) -> String {
    let mut text = String::new();
    for block in blocks {
        if !block.title.is_empty() {
            // The first progress section follows the progress heading without a blank line.
            let is_first_part = text.lines().last().is_some_and(|line| {
                heading(line).is_some_and(|name| Head::of(name) == Some(Head::Progress))
            });
            if !text.is_empty() && !is_first_part {
                text.push('\n');
            }
            text.push_str(block.title);
            text.push('\n');
        }
        let end = block
            .lines
            .iter()
            .rposition(|line| !line.trim().is_empty())
            .map_or(0, |last| last + 1);
        for line in &block.lines[..end] {
            text.push_str(line);
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests;

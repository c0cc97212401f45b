//! Finds the heading above a line of a source.
//!
//! A name is easier to understand together with the heading that it stands under, such as the
//! function or the section of a file. [`Headings`] serves one source and is queried with ascending
//! positions, so that it reads each line only once. A heading is a Markdown heading, a short line
//! that ends with a colon, or a line in bold. Definitions of functions and classes count, but other
//! statements of a programming language do not.

use crate::text::{clean_line, clip};

/// The number of lines above a position that are searched for a heading.
const LOOK_BACK: usize = 40;
const NAME_CHARS: usize = 40;

/// A heading, shortened to 40 characters, and the byte at which its line begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) name: String,
    pub(crate) start: usize,
}

/// Finds the headings above positions of one source. If the positions ascend, each line is read
/// only once.
pub(crate) struct Headings<'t> {
    text: &'t str,
    /// The last queried position, with its heading and the number of lines between them.
    place: usize,
    found: Option<(Heading, usize)>,
}

impl<'t> Headings<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        Self {
            text,
            place: 0,
            found: None,
        }
    }

    /// Returns the heading above the line that begins at byte `place`, or `None` if the 40 lines
    /// above it have none.
    pub(crate) fn over(&mut self, place: usize) -> Option<&Heading> {
        let mut end = place;
        let mut found = None;
        for above in 0..LOOK_BACK {
            // All lines above the last position were searched for that query.
            if end == self.place {
                let known = self.found.take();
                found = known
                    .map(|(heading, lines)| (heading, lines + above))
                    .filter(|(_, lines)| *lines <= LOOK_BACK);
                break;
            }
            let Some(newline) = end.checked_sub(1) else {
                break;
            };
            let start = memchr::memrchr(b'\n', &self.text.as_bytes()[..newline])
                .map_or(0, |newline| newline + 1);
            if let Some(name) = heading_name(&self.text[start..newline]) {
                found = Some((Heading { name, start }, above + 1));
                break;
            }
            end = start;
        }
        self.place = place;
        self.found = found;
        self.found.as_ref().map(|(heading, _)| heading)
    }
}

/// Returns the name in a line if the line is a heading. Names of two bytes or fewer do not count.
fn heading_name(line: &str) -> Option<String> {
    const DEFINITIONS: [&str; 4] = ["def ", "class ", "async def ", "### "];
    const STATEMENTS: [&str; 14] = [
        "if", "elif", "else", "for", "while", "with", "try", "except", "finally", "return", "case",
        "match", "default", "-",
    ];
    // A longer line is prose or code, even if it ends with a colon.
    if line.len() > 100 || !may_be_heading(line.as_bytes()) {
        return None;
    }
    let bare = line.trim_matches(|c: char| c.is_whitespace() || c.is_ascii_digit() || c == '→');
    let is_heading = bare.starts_with("# ")
        || bare.starts_with("##")
        || bare.ends_with(':')
        || bare.starts_with("**") && bare.ends_with("**");
    if !is_heading {
        return None;
    }
    let first_word = bare.split(' ').next().unwrap_or_default();
    let is_code = bare.contains(['=', ';', '{', '('])
        || STATEMENTS.contains(&first_word.trim_end_matches(':'));
    let is_definition = DEFINITIONS.iter().any(|word| bare.starts_with(word));
    if is_code && !is_definition {
        return None;
    }
    let line = clean_line(bare);
    let name = line
        .trim_end_matches(':')
        .trim_start_matches("def ")
        .trim_start_matches("class ");
    let name = name.split('(').next().unwrap_or(name).trim();
    (name.len() > 2).then(|| clip(name, NAME_CHARS).into_owned())
}

/// Whether a line begins or ends like a heading. This is a cheap test that most lines fail.
fn may_be_heading(line: &[u8]) -> bool {
    let is_margin = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_digit();
    let mut bare = line.iter().filter(|byte| !is_margin(byte));
    let first = bare.next();
    let last = bare.next_back().or(first);
    // Besides white space and digits, `→` and the spaces of other scripts count as margin, so any
    // byte of them passes.
    let may = |byte: Option<&u8>, mark: u8| byte.is_some_and(|b| *b == mark || !b.is_ascii());
    may(last, b':') || may(first, b'#') || may(first, b'*')
}

#[cfg(test)]
mod tests;

//! Finds the heading above a line of a source.

use crate::text::{clean_line, clip};

/// How many lines above a position are searched.
const LOOK_BACK: usize = 40;
/// A heading is clipped to this many characters.
const NAME_CHARS: usize = 40;

/// A heading, and the byte at which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) name: String,
    pub(crate) start: usize,
}

/// Finds the headings above positions of one source. Queried in ascending order, it looks at each line
/// once.
pub(crate) struct Headings<'t> {
    text: &'t str,
    /// The last queried position, its heading, and how many lines above it the heading is.
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

    /// The heading over the line that begins at byte `place`: a line that begins with `#`, or a short one
    /// that ends with a colon.
    pub(crate) fn over(&mut self, place: usize) -> Option<&Heading> {
        let mut end = place;
        let mut found = None;
        for above in 0..LOOK_BACK {
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

/// The name in a line, if it is a heading.
fn heading_name(line: &str) -> Option<String> {
    const DEFINITIONS: [&str; 4] = ["def ", "class ", "async def ", "### "];
    const STATEMENTS: [&str; 14] = [
        "if", "elif", "else", "for", "while", "with", "try", "except", "finally", "return", "case",
        "match", "default", "-",
    ];
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

/// Whether a line begins or ends like a heading; a cheap test that most lines fail.
fn may_be_heading(line: &[u8]) -> bool {
    let is_margin = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_digit();
    let mut bare = line.iter().filter(|byte| !is_margin(byte));
    let first = bare.next();
    let last = bare.next_back().or(first);
    // Beside white space and digits, `→` and the spaces of other scripts count as margin.
    let may = |byte: Option<&u8>, mark: u8| byte.is_some_and(|b| *b == mark || !b.is_ascii());
    may(last, b':') || may(first, b'#') || may(first, b'*')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn names(text: &str) -> Vec<Option<String>> {
        let mut headings = Headings::of(text);
        let mut place = 0;
        let mut names = Vec::new();
        for line in text.split_inclusive('\n') {
            names.push(headings.over(place).map(|heading| heading.name.clone()));
            place += line.len();
        }
        names
    }

    #[test]
    fn a_line_stands_under_the_nearest_heading() {
        let text = "intro\n## Setup\nrun it\n  12→def load(self):\n  13→    x = 1\n  14→    if x:\n  15→        y\n";
        let names = names(text);
        let names: Vec<_> = names.iter().map(Option::as_deref).collect();
        let (setup, load) = (Some("Setup"), Some("load"));
        assert_eq!(names, [None, None, setup, setup, load, load, load]);
    }

    #[test]
    fn a_heading_far_above_is_none() {
        let text = format!("Steps:\n{}", "a\n".repeat(60));
        let named = names(&text).iter().flatten().count();
        assert_eq!(named, LOOK_BACK);
    }

    proptest::proptest! {
        #[test]
        fn asked_in_order_or_alone_the_answer_is_the_same(text in "([a#:*→ 1{]{0,4}\n){0,90}") {
            let all = names(&text);
            let mut place = 0;
            for (line, expected) in text.split_inclusive('\n').zip(all) {
                let alone = Headings::of(&text).over(place).map(|heading| heading.name.clone());
                proptest::prop_assert_eq!(alone, expected);
                place += line.len();
            }
        }
    }
}

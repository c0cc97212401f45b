//! A user's own words in a message, as opposed to what a client inserted.
//!
//! Clients put more into a user's message than the user wrote: reminders, files, the output of
//! commands. [`own_words`] blanks that out, so that everything else stays byte for byte at its place:
//! text between tags, and results of tools (`results`). Pins, quotes and rules are read in what is
//! left. What a user pasted stays, except a mail.
//!
//! Project files such as `CLAUDE.md` and `AGENTS.md` arrive between tags of the client, too. They pin
//! nothing, but a user's rules may stand in them, so [`OwnWords::with_project_files`] keeps them.

mod results;

use std::collections::HashMap;
use std::ops::Range;

/// Tags between which a user's own words stand, without case, `_` and `-`. The tags are blanked, and
/// what is between them is read like any other text.
const OWN_TAGS: [&str; 24] = [
    "instructions",
    "userinstructions",
    "custominstructions",
    "projectinstructions",
    "rules",
    "userrules",
    "userquery",
    "userrequest",
    "usermessage",
    "userprompt",
    "userinput",
    "user",
    "query",
    "question",
    "request",
    "task",
    "prompt",
    "message",
    "feedback",
    "answer",
    "input",
    "important",
    "note",
    "text",
];
/// Those of them between which there is nothing but what a user wrote, also below the result of a tool.
/// So it is if the name begins with "user".
const USERS_TAGS: [&str; 2] = ["feedback", "answer"];
/// What may be between two words of a tag's name. HTML has no such tags.
const JOINTS: [char; 2] = ['_', '-'];
/// The tag of reminders, which may stand anywhere.
const REMINDER: &str = "systemreminder";
/// The tag that a client puts around the content of a file, next to the tag with its name.
const CONTENT_TAG: &str = "documentcontent";
/// Folders whose Markdown files are project files.
const PROJECT_FOLDERS: [&str; 3] = [".claude/", ".cursor/rules/", ".github/"];
const PROJECT_FILES: [&str; 8] = [
    "claude.md",
    "claude.local.md",
    "agents.md",
    "agents.override.md",
    "gemini.md",
    "copilot-instructions.md",
    "conventions.md",
    ".cursorrules",
];
/// The head of a project file is no longer than this. If a line is longer, it is a text that
/// mentions such a file.
const HEAD_BYTES: usize = 400;

/// Returns a user's message with blanks in place of what a client inserted. Line breaks and the length
/// stay.
///
/// ```
/// let text = "Fix it.\n<bash-stdout>\n/pin x\n</bash-stdout>\nThanks.";
/// let own = contexture_contract::own_words(text);
/// let words: Vec<&str> = own.split_whitespace().collect();
/// assert_eq!(words, ["Fix", "it.", "Thanks."]);
/// ```
pub fn own_words(text: &str) -> String {
    let mut page = BlankedText::new(text);
    for file in page.inserted(Parts::Message) {
        page.blank(file);
    }
    page.into_text()
}

/// A message in which the text that a client inserted is replaced with blanks, except project files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnWords {
    /// The text, with line breaks and the length of the message.
    pub text: String,
    /// Where the project files are in it.
    pub project_files: Vec<Range<usize>>,
}

impl OwnWords {
    /// Reads a user's message and the project files in it.
    pub fn with_project_files(text: &str) -> Self {
        let mut page = BlankedText::new(text);
        let project_files = page.inserted(Parts::Both);
        Self {
            text: page.into_text(),
            project_files,
        }
    }

    /// Reads the project files in a message that no user wrote. All else is blanked.
    pub fn of_project_files(text: &str) -> Self {
        let mut page = BlankedText::new(text);
        let project_files = page.inserted(Parts::ProjectFiles);
        let mut from = 0;
        for file in &project_files {
            page.blank(from..file.start);
            from = file.end;
        }
        page.blank(from..text.len());
        Self {
            text: page.into_text(),
            project_files,
        }
    }
}

/// Which parts of a text may have a user's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    Message,
    ProjectFiles,
    Both,
}

struct BlankedText<'t> {
    text: &'t str,
    bytes: Vec<u8>,
}

impl<'t> BlankedText<'t> {
    fn new(text: &'t str) -> Self {
        let bytes = text.as_bytes().to_vec();
        Self { text, bytes }
    }

    fn into_text(self) -> String {
        // Only whole characters are replaced, so the bytes are still UTF-8.
        String::from_utf8(self.bytes).unwrap_or_default()
    }

    fn blank(&mut self, range: Range<usize>) {
        for byte in &mut self.bytes[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }

    /// Blanks what stands between tags of a client or below the head of a result, and returns the
    /// ranges of project files.
    fn inserted(&mut self, parts: Parts) -> Vec<Range<usize>> {
        let text = self.text;
        // Looking for each close on its own would take quadratic time if there are none.
        let mut closes: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, _) in text.match_indices("</") {
            let rest = &text.as_bytes()[at + 2..];
            // Names of tags are short. Without the limit, a text of nothing but `</` would take
            // quadratic time.
            let length = rest.iter().take(64).position(|byte| *byte == b'>');
            if let Some(name) = length.and_then(|length| text.get(at + 2..at + 2 + length)) {
                closes.entry(name).or_default().push(at);
            }
        }
        let close_of = |name: &str, start: usize| {
            let closes = closes.get(name).map_or(&[][..], Vec::as_slice);
            let next = closes.partition_point(|at| *at < start);
            closes.get(next).copied()
        };
        let is_users_tag = |at: usize, line: &str| {
            let name = tag(line).filter(|name| close_of(name, at).is_some());
            name.is_some_and(|name| {
                let name = plain_name(name);
                let is_users = name.starts_with("user") || USERS_TAGS.contains(&name.as_str());
                is_users && OWN_TAGS.contains(&name.as_str())
            })
        };
        let mut files = Vec::new();
        let mut at = 0;
        let mut file_from = None;
        let (mut is_result, mut is_code, mut is_first) = (false, false, true);
        'lines: while at < text.len() {
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
            let line = text[at..end].trim();
            if is_result && !is_users_tag(at, line) {
                self.blank(at..end);
                is_result = !results::closes(line);
                at = end;
                continue;
            }
            is_result = parts != Parts::ProjectFiles
                && file_from.is_none()
                && !is_code
                && !is_file_head(line)
                && results::opens(line, &text[end..], is_first);
            if is_result {
                continue;
            }
            is_code ^= ["```", "~~~"].iter().any(|mark| line.starts_with(mark));
            if is_file_head(line) {
                files.extend(file_from.replace(end).map(|from| from..at));
                self.blank(at..end);
            }
            // Claude Code closes its project files with this line.
            if line.contains("this context may or may not be relevant") {
                self.blank(at..end);
            }
            for (start, name) in tags(&text[at..end]) {
                let (start, is_inline) = (at + start, !text[at..at + start].trim().is_empty());
                let until = close_of(name, start);
                let inside = start..until.map_or(text.len(), |until| until + name.len() + 3);
                let plain = plain_name(name);
                let is_own = OWN_TAGS.contains(&plain.as_str());
                if is_inline {
                    // A person may write a tag within a line, and close it again.
                    let is_clients = until.is_some_and(|until| until > end) && !is_own;
                    if is_clients || plain == REMINDER {
                        self.blank(inside.clone());
                        at = inside.end;
                        continue 'lines;
                    }
                    continue;
                }
                let has_head = |line: &str| is_file_head(line) || is_file_tag(line.trim());
                let holds_file = || text[inside.clone()].lines().take(20).any(has_head);
                let is_content = plain == CONTENT_TAG && file_from.is_some();
                if is_own || is_content || parts != Parts::Message && holds_file() {
                    let tag_end = text[start..]
                        .find('>')
                        .map_or(end, |close| start + close + 1);
                    if is_file_tag(line) {
                        files.extend(file_from.replace(tag_end).map(|from| from..start));
                    }
                    self.blank(start..tag_end);
                    if let Some(until) = until {
                        self.blank(until..until + name.len() + 3);
                    }
                    at = tag_end;
                    // Before the head of the file, the client tells what it inserts.
                    if !is_own && !is_content && !is_file_tag(line) {
                        let lines = text[tag_end..inside.end].split_inclusive('\n');
                        let before = lines.take_while(|line| !has_head(line)).map(str::len);
                        at += before.sum::<usize>();
                        self.blank(tag_end..at);
                    }
                    continue 'lines;
                }
                // A tag may have lost its end when its message was cut off. Then nothing after it is
                // the user's. A name with a joint is no HTML.
                let is_alone = line.find('>') == Some(line.len() - 1);
                let is_cut = is_alone && !is_code && name.contains(JOINTS);
                if until.is_some() || is_cut || plain == REMINDER {
                    files.extend(file_from.take().map(|from| from..start));
                    self.blank(inside.clone());
                    at = inside.end;
                    continue 'lines;
                }
            }
            if line.starts_with("</") {
                files.extend(file_from.take().map(|from| from..at));
                self.blank(at..end);
            }
            is_first &= line.is_empty();
            at = end;
        }
        files.extend(file_from.map(|from| from..text.len()));
        // This also covers `[Request interrupted by user for tool use]`.
        for (start, _) in text.match_indices("[Request interrupted by user") {
            let most = text.floor_char_boundary(start + HEAD_BYTES);
            let end = text[start..most]
                .find(']')
                .map_or(most, |end| start + end + 1);
            self.blank(start..end);
        }
        files
    }
}

/// Whether a line is the head of a project file, as clients write it.
fn is_file_head(line: &str) -> bool {
    if line.len() > HEAD_BYTES {
        return false;
    }
    let lower = line.trim().to_lowercase();
    let is_head = lower.starts_with("contents of ")
        || lower.starts_with("instructions from")
        || lower.starts_with('#') && lower.contains("instructions")
        || lower.starts_with("# ") && PROJECT_FILES.contains(&lower[2..].trim())
        || lower.starts_with("<source>");
    is_head && names_project_file(&lower)
}

/// Whether a line begins with a tag that names a project file, as in `<file path="AGENTS.md">`.
fn is_file_tag(line: &str) -> bool {
    let Some(end) = tag(line).and(line.find('>')) else {
        return false;
    };
    let tag = &line[..line.floor_char_boundary(end.min(HEAD_BYTES))];
    tag.contains('=') && names_project_file(&tag.to_lowercase())
}

fn names_project_file(lower: &str) -> bool {
    let is_in_folder = |folder: &&str| {
        let path = lower.split_once(*folder).map(|(_, path)| path);
        path.is_some_and(|path| path.contains(".md"))
    };
    PROJECT_FILES.iter().any(|file| lower.contains(file))
        || PROJECT_FOLDERS.iter().any(is_in_folder)
}

/// The name of the tag that a line begins with, if it is one.
fn tag(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('<')?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)))?;
    let is_tag = end > 1 && rest[end..].starts_with(['>', ' ']) && rest.contains('>');
    is_tag.then_some(&rest[..end])
}

/// The tags of a line, each with where it begins: the one that the line begins with, and those with a
/// joint in their name, as those of clients have.
fn tags(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let begins = line.len() - line.trim_start().len();
    line.match_indices('<').filter_map(move |(at, _)| {
        if at == begins {
            return Some((at, tag(line.trim())?));
        }
        // Without the limit, a line of nothing but `<a-b ` would take quadratic time.
        let rest = &line[at..];
        let name = tag(&rest[..rest.floor_char_boundary(HEAD_BYTES)])?;
        name.contains(JOINTS).then_some((at, name))
    })
}

/// The name of a tag in lower case and without joints.
fn plain_name(name: &str) -> String {
    name.to_lowercase().replace(JOINTS, "")
}

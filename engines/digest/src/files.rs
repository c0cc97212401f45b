//! The files of a span, and what was done to each.
//!
//! Tools name files in many ways, so a call counts as one on a file if its arguments have a path
//! and its action reads, writes or edits. [`files`] collects one [`FileUse`] per path, which
//! becomes a line of the summary such as `written, edited 3×, read (lines 95-124)`. [`changed`]
//! lists only files that were changed, and also finds those that a patch names in its text.

use hashbrown::HashMap;

use crate::language::Language;
use crate::span::Span;
use crate::tool::Action;

/// A file that tools read, wrote or edited, and how often. Failed attempts are counted apart,
/// whatever they tried.
#[derive(Debug, Default)]
pub(crate) struct FileUse {
    pub(crate) path: String,
    pub(crate) last: usize,
    written: usize,
    edited: usize,
    failed: usize,
    /// The ranges of lines that were read, such as `95-124`. An empty string stands for the whole
    /// file.
    read: Vec<String>,
}

impl FileUse {
    pub(crate) fn is_changed(&self) -> bool {
        self.written + self.edited > 0
    }

    /// Describes what was done to the file: `written, edited 3×, read (lines 95-124)`. If more than
    /// four ranges were read, they are not listed.
    pub(crate) fn note(&self, language: Language) -> String {
        let times = |what: &str, count: usize| match count {
            0 => None,
            1 => Some(what.to_owned()),
            _ => Some(format!("{what} {count}×")),
        };
        let parts: Vec<&str> = self
            .read
            .iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        let read = match (self.read.len(), parts.len()) {
            (0, _) => None,
            (_, 1..=4) => Some(language.read(Some(&parts.join(", ")))),
            _ => Some(language.read(None)),
        };
        let failed = times(language.attempt_failed(), self.failed);
        [
            times(language.written(), self.written),
            times(language.edited(), self.edited),
            read,
            failed,
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
    }
}

/// Returns the files of a span in order of first use, and for each call the index of its file.
pub(crate) fn files(span: &Span<'_>) -> (Vec<FileUse>, Vec<Option<usize>>) {
    let mut files: Vec<FileUse> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut of_call = Vec::with_capacity(span.calls.len());
    for call in &span.calls {
        let Some(path) = call.file(&span.sources) else {
            of_call.push(None);
            continue;
        };
        let index = *known.entry(path).or_insert_with(|| {
            files.push(FileUse {
                path: path.to_owned(),
                ..FileUse::default()
            });
            files.len() - 1
        });
        let file = &mut files[index];
        file.last = call.message;
        match call.action {
            // A failed call did not change the file, whatever its action was.
            _ if call.failed => file.failed += 1,
            Action::Write => file.written += 1,
            Action::Edit => file.edited += 1,
            _ => {
                let number =
                    |keys: &[&str]| call.argument(&span.sources, keys)?.parse::<u64>().ok();
                let part = match (
                    number(&["offset", "start_line", "line_start"]),
                    number(&["limit"]),
                    number(&["end_line", "line_end"]),
                ) {
                    (Some(from), Some(count), _) => {
                        format!("{from}-{}", from.saturating_add(count))
                    }
                    (Some(from), None, Some(to)) => format!("{from}-{to}"),
                    (Some(from), None, None) => format!("{from}-"),
                    _ => String::new(),
                };
                if !file.read.contains(&part) {
                    file.read.push(part);
                }
            }
        }
        of_call.push(Some(index));
    }
    (files, of_call)
}

/// Returns the files that were changed by file tools or by a patch, in order of first use. Failed
/// calls do not count.
pub(crate) fn changed(span: &Span<'_>) -> Vec<String> {
    const PATCHES: [&str; 3] = ["*** Update File: ", "*** Add File: ", "*** Move to: "];
    let (files, _) = files(span);
    let mut changed: Vec<String> = files
        .into_iter()
        .filter(FileUse::is_changed)
        .map(|file| file.path)
        .collect();
    for call in span.calls.iter().filter(|call| !call.failed) {
        for source in &span.sources[call.arguments.clone()] {
            let lines = source.text.lines();
            let patched = lines.filter_map(|line| {
                let line = line.trim();
                PATCHES.iter().find_map(|mark| line.strip_prefix(mark))
            });
            for path in patched {
                if !changed.iter().any(|known| known == path) {
                    changed.push(path.to_owned());
                }
            }
        }
    }
    changed
}

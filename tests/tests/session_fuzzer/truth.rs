//! The reference model: what was said. It knows nothing of hosts, engines or windows.

use std::collections::HashSet;

use serde_json::Value;

use crate::wire::carried;

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    User,
    Model,
    Tools,
}

/// Which message: the first one said is 1.
pub(crate) type Serial = u32;

/// A wire message that somebody said.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) serial: Serial,
    pub(crate) speaker: Speaker,
    pub(crate) bytes: String,
    pub(crate) carries: Value,
    /// A word that no other message has.
    pub(crate) word: Option<String>,
}

impl Said {
    /// Whether it has words of the user's, alone or beside the results of tools.
    pub(crate) fn is_of_user(&self) -> bool {
        let mut parts = self.carries["content"].as_array().into_iter().flatten();
        self.carries["role"] == "user"
            && parts.any(|part| part["type"] != "tool_result" && part["text"] != "")
    }
}

/// The conversation as it stands, what was said before that is no part of it any more, and which of all that
/// the store had when it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) branch: Vec<Said>,
    pub(crate) left: Vec<Said>,
    /// Those of `left` that were not cut off: the client changed their text.
    pub(crate) edited: HashSet<Serial>,
    /// Messages of which nobody can tell whether they were left.
    pub(crate) may_be_left: Vec<Said>,
    pub(crate) stored: HashSet<Serial>,
    pub(crate) ever_stored: HashSet<Serial>,
    last: Serial,
}

impl Truth {
    pub(crate) fn next_serial(&self) -> Serial {
        self.last + 1
    }

    /// A new message, not yet part of the conversation.
    pub(crate) fn make(&mut self, speaker: Speaker, message: &Value, word: Option<String>) -> Said {
        self.last += 1;
        let bytes = message.to_string();
        let carries = carried(&bytes).unwrap();
        Said {
            serial: self.last,
            speaker,
            bytes,
            carries,
            word,
        }
    }

    pub(crate) fn place(&self, serial: Serial) -> Option<usize> {
        self.branch.iter().position(|said| said.serial == serial)
    }

    /// Whether the store had it when it was last looked at before it was left.
    pub(crate) fn stored_ever(&self, serial: Serial) -> bool {
        self.ever_stored.contains(&serial)
    }

    /// Everything from this place on is no part of the conversation any more.
    pub(crate) fn cut(&mut self, from: usize) {
        let gone = self.branch.split_off(from.min(self.branch.len()));
        self.left.extend(gone);
    }

    pub(crate) fn replace(&mut self, at: usize, by: Said) {
        let old = std::mem::replace(&mut self.branch[at], by);
        self.edited.insert(old.serial);
        self.left.push(old);
    }

    /// What was ever said: nothing else may be found anywhere.
    pub(crate) fn was_said(&self, carries: &Value) -> bool {
        self.branch
            .iter()
            .chain(&self.left)
            .any(|said| said.carries == *carries || is_part(carries, &said.carries))
    }

    /// Whether it is some of the parts of a message of the conversation, in order.
    pub(crate) fn has_part(&self, carries: &Value) -> bool {
        let mut branch = self.branch.iter();
        branch.any(|said| is_part(carries, &said.carries))
    }

    /// Compares what a store exports with the conversation. Each message is there once, in order; one that is not
    /// `required` may be missing, or parts of it. Answers what is there whole, or the first thing that is wrong.
    pub(crate) fn compare(
        &self,
        export: &[Value],
        required: &HashSet<Serial>,
    ) -> Result<HashSet<Serial>, (&'static str, String)> {
        if self.branch.iter().map(|said| &said.carries).eq(export) {
            return Ok(self.branch.iter().map(|said| said.serial).collect());
        }
        let (rows, columns) = (self.branch.len(), export.len());
        let may_miss = |said: &Said| !required.contains(&said.serial);
        let is_there = |said: &Said, there: &Value| {
            said.carries == *there || (may_miss(said) && is_part(there, &said.carries))
        };
        let may_stay = |there: &Value| {
            let mut either = self.may_be_left.iter();
            either.any(|said| said.carries == *there)
        };
        // fits[i][j]: the messages from `i` on may read as the export from `j` on.
        let mut fits = vec![vec![false; columns + 1]; rows + 1];
        for i in (0..=rows).rev() {
            for j in (0..=columns).rev() {
                let (said, there) = (self.branch.get(i), export.get(j));
                let both = said.zip(there);
                fits[i][j] = (said.is_none() && there.is_none())
                    || both
                        .is_some_and(|(said, there)| is_there(said, there) && fits[i + 1][j + 1])
                    || (said.is_some_and(may_miss) && fits[i + 1][j])
                    || (there.is_some_and(may_stay) && fits[i][j + 1]);
            }
        }
        if !fits[0][0] {
            return Err((
                self.kind(export, required),
                self.difference(export, required),
            ));
        }
        let (mut there, mut i, mut j) = (HashSet::new(), 0, 0);
        while let Some(said) = self.branch.get(i) {
            let found = export.get(j).filter(|there| is_there(said, there));
            if let Some(found) = found.filter(|_| fits[i + 1][j + 1]) {
                if *found == said.carries {
                    there.insert(said.serial);
                }
                (i, j) = (i + 1, j + 1);
            } else if may_miss(said) && fits[i + 1][j] {
                i += 1;
            } else {
                j += 1;
            }
        }
        Ok(there)
    }

    /// In which way an export is wrong: the worst first.
    fn kind(&self, export: &[Value], required: &HashSet<Serial>) -> &'static str {
        let times = |carries: &Value| export.iter().filter(|there| *there == carries).count();
        let said = |carries: &Value| {
            self.branch
                .iter()
                .filter(|said| said.carries == *carries)
                .count()
        };
        let mut needed = self
            .branch
            .iter()
            .filter(|said| required.contains(&said.serial));
        if needed.any(|said| times(&said.carries) == 0) {
            "export: lost"
        } else if export.iter().any(|there| !self.was_said(there)) {
            "export: nobody said"
        } else if export.iter().any(|there| said(there) == 0) {
            "export: left and still there"
        } else if export.iter().any(|there| times(there) > said(there)) {
            "export: twice"
        } else if export.len() == self.branch.len() {
            "export: order"
        } else {
            "export: once too few"
        }
    }

    /// Both lists, short, from a little before the first place at which they differ.
    fn difference(&self, export: &[Value], required: &HashSet<Serial>) -> String {
        let same = self
            .branch
            .iter()
            .zip(export)
            .take_while(|(said, there)| said.carries == **there)
            .count();
        let from = same.saturating_sub(2);
        let name = |carries: &Value| {
            let said = self.branch.iter().find(|said| said.carries == *carries);
            let before = self.left.iter().find(|said| said.carries == *carries);
            match (said, before) {
                (Some(said), _) => format!("{}", said.serial),
                (_, Some(said)) => format!("({} which was left)", said.serial),
                _ => format!("NOBODY SAID {}", short(carries)),
            }
        };
        let expected = self.branch.iter().skip(from).take(16).map(|said| {
            let mark = if required.contains(&said.serial) {
                ""
            } else {
                "?"
            };
            format!("{}{mark}", said.serial)
        });
        let seen = export.iter().skip(from).take(16).map(name);
        format!(
            "{} messages in the conversation, {} in the store; from place {from}: said [{}], stored [{}]",
            self.branch.len(),
            export.len(),
            expected.collect::<Vec<_>>().join(" "),
            seen.collect::<Vec<_>>().join(" "),
        )
    }
}

/// Whether a wire message of several parts holds some of another's, in order, and is like it otherwise.
pub(crate) fn is_part(there: &Value, said: &Value) -> bool {
    let parts = |of: &Value| of["content"].as_array().cloned().unwrap_or_default();
    let mut rest = said.clone();
    rest["content"] = there["content"].clone();
    let of_said = parts(said);
    let mut left = of_said.iter();
    !parts(there).is_empty()
        && rest == *there
        && parts(there)
            .iter()
            .all(|part| left.any(|other| other == part))
}

pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

//! Checks the store: the structure of the file, the texts of summaries, and their lineage.
//!
//! The check reads and reports, and repairs nothing. It asks SQLite about the structure of the file
//! and about references between rows. Then it reads every summary, compares it with its hash, and
//! verifies that the window's summaries cover each message at most once. Damage is noted and the
//! check goes on, so that one run finds as much as possible.
//!
//! Start with [`Store::check`]. The search index has a check of its own, [`Store::check_index`].
//! Whether the transcript has the texts of all messages is answered by [`Store::without_text`].

use rusqlite::Connection;

use super::sessions::{SessionInfo, sessions_in};
use super::summaries::for_each_node_text;
use super::{Key, Store, query_all};
use crate::error::{StoreError, read_through};

/// The result of checking the whole store, over all of its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// A sentence for each problem of the file, of references between rows and of the lineage of
    /// summaries. It is empty if there are none.
    pub problems: Vec<String>,
    /// The number of messages that the store has rows for.
    pub messages: u64,
    /// The number of summaries that were compared with their hash.
    pub summaries: u64,
    /// The summaries that cannot be read or do not match their hash.
    pub damaged_summaries: Vec<Key>,
}

impl Check {
    /// Returns whether no problem was found. The search index is not part of this.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.damaged_summaries.is_empty()
    }

    /// Records damage as a problem and returns None, so that the check can go on. Any other failure
    /// ends the check.
    fn note<T>(
        &mut self,
        what: &str,
        result: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Damaged(why)) => {
                self.problems.push(format!("{what}: {}", why.what));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Store {
    /// Checks the structure of the file, the references in it, every summary and the lineage.
    /// Damaged parts are reported, and the check goes on. `progress` is called with the number of
    /// messages that are done and the total.
    ///
    /// # Errors
    /// Returns an error if anything other than damage stops the check, such as a failing disk or a
    /// cancellation.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Check, StoreError> {
        self.read(|connection| {
            let mut check = Check::default();
            let problems = check.note("file", file_problems(connection))?;
            check.problems.extend(problems.unwrap_or_default());
            let sessions = check.note("sessions", sessions_in(connection))?;
            let sessions = sessions.unwrap_or_default();
            let total = sessions.iter().map(|info| u64::from(info.messages)).sum();
            for info in &sessions {
                // A number and not the name, because a model may read this, and it must not learn
                // about other sessions.
                let name = format!("session number {}", info.id.0);
                check.messages += u64::from(info.messages);
                progress(check.messages, total);
                let checked = check_summaries(connection, info, &mut check);
                check.note(&name, checked)?;
                let checked = lineage_problems(connection, info);
                let problems = check.note(&name, checked)?;
                check.problems.extend(problems.unwrap_or_default());
            }
            // SQLite reports a failing disk as damage, too. Reading the file tells them apart.
            if !check.is_sound() {
                read_through(self.path())?;
            }
            Ok(check)
        })
    }
}

fn check_summaries(
    connection: &Connection,
    info: &SessionInfo,
    check: &mut Check,
) -> Result<(), StoreError> {
    for_each_node_text(connection, info.id, |key, text| {
        check.summaries += 1;
        match text {
            Ok(_) => {}
            Err(StoreError::Damaged(_)) => check.damaged_summaries.push(key),
            Err(error) => return Err(error),
        }
        Ok(())
    })
}

/// Checks that the window's summaries cover messages of the conversation, and each message at most
/// once. Returns a sentence for each problem.
fn lineage_problems(
    connection: &Connection,
    info: &SessionInfo,
) -> Result<Vec<String>, StoreError> {
    const UNDER: &str = "WITH RECURSIVE below(top, node) AS (
             SELECT node, node FROM frontier WHERE session = ?1
             UNION SELECT b.top, c.child FROM node_children c JOIN below b USING(node)),
         under(top, message) AS (SELECT top, m.id FROM below JOIN node_messages n USING(node)
             CROSS JOIN messages m ON m.id BETWEEN n.first AND n.last)";
    let questions = [
        (
            "messages under two summaries of the window",
            "SELECT count(*) FROM (SELECT 1 FROM under GROUP BY message HAVING count(DISTINCT top) > 1)",
        ),
        (
            "messages under a summary of the window that are no part of the conversation",
            "SELECT count(*) FROM under JOIN messages m ON m.id = message WHERE NOT m.is_current",
        ),
        (
            "summaries of the window without a source",
            "SELECT count(*) FROM frontier f WHERE session = ?1
                 AND NOT EXISTS(SELECT 1 FROM under WHERE top = f.node)",
        ),
        (
            "summaries at a depth that none has",
            "SELECT count(*) FROM nodes WHERE session = ?1 AND depth NOT BETWEEN 0 AND 0xffffffff",
        ),
    ];
    let mut problems = Vec::new();
    for (what, question) in questions {
        let count: i64 = connection
            .prepare_cached(&format!("{UNDER} {question}"))?
            .query_row([info.id.0], |row| row.get(0))?;
        if count > 0 {
            problems.push(format!("session number {}: {count} {what}", info.id.0));
        }
    }
    Ok(problems)
}

/// Returns the problems that SQLite finds in the file and in the references between rows.
fn file_problems(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut problems: Vec<String> =
        query_all(connection, "PRAGMA integrity_check", [], |row| row.get(0))?;
    problems.retain(|problem| problem != "ok");
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (table, id, parent): (String, Option<i64>, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let id = id.map_or_else(String::new, |id| format!(" {id}"));
        problems.push(format!(
            "row{id} of {table} refers to a missing row of {parent}"
        ));
    }
    Ok(problems)
}

//! Checks the store: the file, every message and summary, and the lineage of summaries.

use rusqlite::Connection;

use super::definitions::Column;
use super::read::{rows_after, whole};
use super::sessions::{SessionInfo, sessions_in};
use super::summaries::for_each_node_text;
use super::{Blocks, Key, Store, definitions};
use crate::error::{StoreError, read_through};
use crate::wire_items::is_whole;

/// How many rows are held at a time.
const PAGE: u32 = 1_024;

/// The result of checking the whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// Problems of the file, of references between rows and of the lineage of summaries; empty if there are
    /// none.
    pub problems: Vec<String>,
    /// The messages compared with their content hash.
    pub messages: u64,
    /// Messages that cannot be read or do not match their hash.
    pub damaged: Vec<Key>,
    /// The summaries compared with their hash.
    pub summaries: u64,
    /// Summaries that cannot be read or do not match their hash.
    pub damaged_summaries: Vec<Key>,
}

impl Check {
    /// Whether no problem was found.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.damaged.is_empty() && self.damaged_summaries.is_empty()
    }

    /// Notes damage and goes on; any other failure ends the check.
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
    /// Checks the file's structure, its references, every message, every summary and the lineage.
    /// Unreadable parts are reported, and the check goes on. `progress` is told how many messages of how
    /// many are done.
    ///
    /// # Errors
    /// A failure other than damage.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Check, StoreError> {
        self.read(|connection| {
            let mut check = Check::default();
            for problems in [file_problems, type_problems] {
                let problems = check.note("file", problems(connection))?;
                check.problems.extend(problems.unwrap_or_default());
            }
            let sessions = check.note("sessions", sessions_in(connection))?;
            let sessions = sessions.unwrap_or_default();
            let total = sessions.iter().map(|info| u64::from(info.messages)).sum();
            let mut before = 0;
            for info in &sessions {
                // Not by its name: an agent may read this, and must not learn about other sessions.
                let name = format!("session number {}", info.id.0);
                let done = &mut |messages| progress(before + messages, total);
                let checked = check_messages(connection, info, &mut check, done);
                check.note(&name, checked)?;
                before += u64::from(info.messages);
                progress(before, total);
                let checked = check_summaries(connection, info, &mut check);
                check.note(&name, checked)?;
                let checked = lineage_problems(connection, info);
                let problems = check.note(&name, checked)?;
                check.problems.extend(problems.unwrap_or_default());
            }
            if !check.is_sound() {
                read_through(self.path())?;
            }
            Ok(check)
        })
    }
}

fn check_messages(
    connection: &Connection,
    info: &SessionInfo,
    check: &mut Check,
    done: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let mut blocks = Blocks::new(connection)?;
    let mut after = None;
    let before = check.messages;
    let mut no_json = Vec::new();
    loop {
        let rows = rows_after(connection, info.id, after, PAGE)?;
        let Some((last, _)) = rows.last() else {
            if let Some(first) = no_json.first() {
                check.problems.push(format!(
                    "session number {}: the wire JSON of {} messages is not valid, the first is {first}",
                    info.id.0,
                    no_json.len(),
                ));
            }
            return Ok(());
        };
        after = Some(*last);
        for (key, row) in rows {
            match row.and_then(|row| whole(connection, &mut blocks, row)) {
                Ok(message) if blocks.intruder(connection, key)?.is_none() => {
                    if !is_whole(&message.raw) {
                        no_json.push(message.row.id);
                    }
                }
                Ok(_) | Err(StoreError::Damaged(_)) => check.damaged.push(key),
                Err(error) => return Err(error),
            }
            check.messages += 1;
        }
        done(check.messages - before);
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

/// Checks that the window's summaries cover messages of the conversation, each under one summary only.
fn lineage_problems(
    connection: &Connection,
    info: &SessionInfo,
) -> Result<Vec<String>, StoreError> {
    const UNDER: &str = "WITH RECURSIVE below(top, node) AS (
             SELECT node, node FROM frontier WHERE session = ?1
             UNION SELECT b.top, c.child FROM node_children c JOIN below b USING(node)),
         under(top, message) AS (SELECT top, message FROM node_messages JOIN below USING(node))";
    let questions = [
        (
            "messages under two summaries of the window",
            "SELECT count(*) FROM (SELECT 1 FROM under GROUP BY message HAVING count(DISTINCT top) > 1)",
        ),
        (
            "messages under a summary of the window that are no part of the conversation",
            "SELECT count(*) FROM under WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = ?1
                 AND first <= (message & 0xffffffff) AND (end IS NULL OR end > (message & 0xffffffff)))",
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

/// The problems that SQLite finds.
fn file_problems(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut problems: Vec<String> = connection
        .prepare("PRAGMA integrity_check")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
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

/// The tables with values of another type than their column's, which an engine could not read.
fn type_problems(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut problems = Vec::new();
    for table in definitions::of(connection)? {
        // SQLite's own have columns of any type.
        if table.kind != "table" || table.name.starts_with("sqlite_") {
            continue;
        }
        let columns = definitions::columns(connection, &table.name)?;
        let of_other_types = columns.iter().map(|Column { name, kind }| {
            format!("typeof({name}) NOT IN ('null', '{}')", kind.to_lowercase())
        });
        let of_other_types: Vec<String> = of_other_types.collect();
        let count: i64 = connection.query_row(
            &format!(
                "SELECT count(*) FROM {} WHERE {}",
                table.name,
                of_other_types.join(" OR ")
            ),
            [],
            |row| row.get(0),
        )?;
        if count > 0 {
            problems.push(format!(
                "{count} rows of {} hold a value of another type than their column's",
                table.name
            ));
        }
    }
    Ok(problems)
}

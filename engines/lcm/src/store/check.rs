//! Checking what is kept: the file, every message and summary, their lineage, the search index.

use rusqlite::Connection;

use super::read::{rows_after, whole};
use super::sessions::{SessionInfo, sessions_in};
use super::summaries::for_each_node_text;
use super::{Blocks, Key, SessionId, Store};
use crate::error::StoreError;
use crate::index::build;
use crate::index::corpus::Corpus;
use crate::index::segment::{segments, stored_digest};

/// Rows that are held at a time.
const PAGE: u32 = 1_024;

/// What a check of the whole file found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// What is wrong with the file, with references between rows and with the lineage of summaries; empty
    /// when it is sound.
    pub problems: Vec<String>,
    /// Messages that were read and compared with their content hash.
    pub messages: u64,
    /// Messages that cannot be read, or are not what was stored.
    pub damaged: Vec<Key>,
    /// Summaries that were read and compared with their hash.
    pub summaries: u64,
    /// Summaries that cannot be read, or are not what was stored.
    pub damaged_summaries: Vec<Key>,
}

impl Check {
    /// Whether nothing is wrong.
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
                self.problems.push(format!("{what}: {why}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// How the search index of a session stands to its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// Segments that were made anew in memory and compared.
    pub segments: u64,
    /// Runs of ordinals whose segment says something else than the messages do, or is missing.
    pub wrong: Vec<std::ops::Range<u32>>,
    /// Messages and summaries that await the index; search reads them.
    pub waiting: u32,
}

impl Store {
    /// Checks the file's structure, its references, every message, every summary and the lineage. What
    /// cannot be read is reported, and the check goes on. `progress` is told how many messages of how many
    /// are done.
    ///
    /// # Errors
    /// A store that failed in another way than by damage.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Check, StoreError> {
        self.read(|connection| {
            let mut check = Check::default();
            let found = file_problems(connection);
            let problems = check.note("file", found)?;
            check.problems.extend(problems.unwrap_or_default());
            let sessions = check.note("sessions", sessions_in(connection))?;
            let sessions = sessions.unwrap_or_default();
            let total = sessions.iter().map(|info| u64::from(info.messages)).sum();
            let mut before = 0;
            for info in &sessions {
                // Not by its name: an agent reads this, and other sessions are not its affair.
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
            Ok(check)
        })
    }

    /// Compares the search index of a session with what its messages and summaries give, as far as they can
    /// be read.
    ///
    /// # Errors
    /// A store that failed in another way than by damage to messages.
    pub fn check_index(&self, session: SessionId) -> Result<IndexCheck, StoreError> {
        self.read(|connection| {
            let mut check = IndexCheck::default();
            for corpus in Corpus::ALL {
                let mut covered = 0;
                for segment in segments(connection, session, corpus)? {
                    if segment.ordinals.start != covered {
                        check.wrong.push(covered..segment.ordinals.start);
                    }
                    covered = segment.ordinals.end;
                    let numbers = segment.ordinals.clone();
                    let (_, fresh) =
                        build::build(connection, session, corpus, numbers, usize::MAX)?;
                    let same = match stored_digest(connection, segment.id) {
                        Ok(stored) => stored == fresh.digest(),
                        Err(StoreError::Damaged(_)) => false,
                        Err(error) => return Err(error),
                    };
                    if !same {
                        check.wrong.push(segment.ordinals);
                    }
                    check.segments += 1;
                }
                let end = corpus.end(connection, session)?;
                check.waiting += end.saturating_sub(covered);
            }
            Ok(check)
        })
    }

    /// Makes the search index of a session anew from its messages and summaries, as far as they can be read.
    /// Where it is called off, what is missing follows off the caller's path.
    ///
    /// # Errors
    /// A store that failed. Search is complete either way.
    pub fn rebuild_index(&self, session: SessionId) -> Result<(), StoreError> {
        self.go_on()?;
        self.write(|transaction| build::forget(transaction, session))?;
        let made = self.index_now(session);
        if matches!(made, Err(StoreError::Cancelled)) {
            self.index_soon(session);
        }
        made
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
    loop {
        let rows = rows_after(connection, info.id, after, PAGE)?;
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        after = Some(*last);
        for (key, row) in rows {
            match row.and_then(|row| whole(connection, &mut blocks, row)) {
                Ok(_) if blocks.intruder(connection, key)?.is_none() => {}
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

/// Whether what the window shows stands over messages of the conversation, each under one summary only.
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

/// What SQLite finds wrong.
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

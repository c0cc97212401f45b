//! Keeping the store sound: checks, backup, export, deletion.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;
use serde::Serialize;
use serde_json::value::RawValue;

use super::live::{keys, live_ranges};
use super::read::{rows_in, whole};
use super::sessions::sessions_in;
use super::{Blocks, Key, SessionId, Store};
use crate::error::StoreError;
use crate::index::build;
use crate::index::corpus::Corpus;
use crate::index::segment::{segments, stored_digest};

/// Pages copied between two looks at whether somebody else wants to write.
const BACKUP_PAGES: i32 = 256;

/// What a check of the whole file found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// What SQLite finds wrong with the file and with references between rows; empty when it is sound.
    pub problems: Vec<String>,
    /// Messages that were read and compared with their content hash.
    pub messages: u64,
    /// Messages that cannot be read, or are not what was stored.
    pub damaged: Vec<Key>,
}

impl Check {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.damaged.is_empty()
    }
}

/// How the search index of a session stands to its messages and summaries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// Segments that were made anew in memory and compared.
    pub segments: u64,
    /// Runs of numbers whose segment says something else than the texts do, or is missing.
    pub wrong: Vec<std::ops::Range<u32>>,
    /// Messages and summaries that await the index; search reads them.
    pub waiting: u32,
}

/// What a session, or several, take up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Messages.
    pub messages: u64,
    /// Summaries.
    pub summaries: u64,
    /// Texts kept aside.
    pub files: u64,
    /// Bytes in the file: content, compressed, and index.
    pub bytes: u64,
}

#[derive(Serialize)]
struct Exported<'a> {
    id: u64,
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<i64>,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
}

impl Store {
    /// Checks the file's structure, its references and every message's content. `progress` is told how
    /// many messages of how many are done.
    ///
    /// # Errors
    /// A store that failed in a way that keeps it from being checked.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Check, StoreError> {
        self.read(|connection| {
            let mut check = Check {
                problems: file_problems(connection)?,
                ..Check::default()
            };
            let sessions = sessions_in(connection)?;
            let total = sessions.iter().map(|info| u64::from(info.messages)).sum();
            let mut blocks = Blocks::new(connection)?;
            for info in sessions {
                for row in rows_in(connection, info.id, &(0..info.messages))? {
                    let key = row.key;
                    match whole(connection, &mut blocks, row) {
                        Ok(_) => {}
                        Err(StoreError::Damaged(_)) => check.damaged.push(key),
                        Err(error) => return Err(error),
                    }
                    check.messages += 1;
                    progress(check.messages, total);
                }
            }
            Ok(check)
        })
    }

    /// Compares the search index of a session with what its messages give.
    ///
    /// # Errors
    /// A store that failed, or messages that cannot be read.
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

    /// Makes the search index of a session anew from its messages.
    ///
    /// # Errors
    /// A store that failed, or messages that cannot be read. Search is complete either way.
    pub fn rebuild_index(&self, session: SessionId) -> Result<(), StoreError> {
        self.write(|transaction| build::forget(transaction, session))?;
        self.index_now(session)
    }

    /// Copies the store to the file `to`, which must not exist, while it stays in use. `progress` is told
    /// how many pages of how many are done.
    ///
    /// # Errors
    /// A file that exists or cannot be written; a store that failed. A copy that is not whole is removed.
    pub fn backup(&self, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), StoreError> {
        let file_error = |source| StoreError::File {
            path: to.to_owned(),
            source,
        };
        std::fs::File::create_new(to).map_err(file_error)?;
        let copied = self.read(|source| {
            let mut target = Connection::open(to)?;
            let backup = Backup::new(source, &mut target)?;
            loop {
                let step = backup.step(BACKUP_PAGES)?;
                let state = backup.progress();
                progress(
                    (state.pagecount - state.remaining).max(0) as u64,
                    state.pagecount.max(0) as u64,
                );
                match step {
                    rusqlite::backup::StepResult::Done => return Ok(()),
                    rusqlite::backup::StepResult::More => {}
                    _ => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        });
        if copied.is_err() {
            // The copy is of no use; that it cannot be removed changes nothing in what went wrong.
            let _ = std::fs::remove_file(to);
        }
        copied
    }

    /// Writes the live messages of a session, one JSON object a line: `id`, `role`, `tool`, `at_ms`,
    /// `text`, and `message`, the original JSON byte for byte. Gives how many there were.
    ///
    /// # Errors
    /// A store that failed, or `out` did; `path` names it in the error.
    pub fn export(
        &self,
        session: SessionId,
        path: &Path,
        out: &mut dyn Write,
    ) -> Result<u64, StoreError> {
        self.read(|connection| {
            let mut blocks = Blocks::new(connection)?;
            let mut count = 0;
            for range in live_ranges(connection, session)? {
                for row in rows_in(connection, session, &range)? {
                    let message = whole(connection, &mut blocks, row)?;
                    let raw: Option<&RawValue> = serde_json::from_str(&message.raw).ok();
                    let line = Exported {
                        id: message.row.id.0,
                        role: &message.row.role,
                        tool: message.row.tool.as_deref(),
                        at_ms: message.row.at,
                        text: &message.text,
                        message: raw,
                    };
                    serde_json::to_writer(&mut *out, &line)
                        .map_err(std::io::Error::from)
                        .and_then(|()| out.write_all(b"\n"))
                        .map_err(|source| StoreError::File {
                            path: path.to_owned(),
                            source,
                        })?;
                    count += 1;
                }
            }
            Ok(count)
        })
    }

    /// What these sessions take up: what deleting them would free inside the file.
    ///
    /// # Errors
    /// A store that failed.
    pub fn size(&self, sessions: &[SessionId]) -> Result<Size, StoreError> {
        self.read(|connection| {
            let mut sum = Size::default();
            for session in sessions {
                let size = size_of(connection, *session)?;
                sum.messages += size.messages;
                sum.summaries += size.summaries;
                sum.files += size.files;
                sum.bytes += size.bytes;
            }
            Ok(sum)
        })
    }

    /// Deletes sessions with everything in them, for good. The space is used again; [`Store::shrink`]
    /// gives it back.
    ///
    /// # Errors
    /// A store that failed; nothing is deleted then.
    pub fn delete_sessions(&self, sessions: &[SessionId]) -> Result<(), StoreError> {
        self.write(|transaction| {
            for session in sessions {
                let all = keys(*session, &(0..u32::MAX));
                // In an order in which no row is left that another refers to.
                for statement in [
                    "DELETE FROM frontier WHERE session = ?1 >> 32",
                    "DELETE FROM node_messages WHERE node IN
                         (SELECT id FROM nodes WHERE session = ?1 >> 32)",
                    "DELETE FROM node_children WHERE node IN
                         (SELECT id FROM nodes WHERE session = ?1 >> 32)",
                    "DELETE FROM nodes WHERE session = ?1 >> 32",
                    "DELETE FROM segments WHERE session = ?1 >> 32",
                    "DELETE FROM messages WHERE session = ?1 >> 32",
                    "DELETE FROM payloads WHERE session = ?1 >> 32",
                    "DELETE FROM sessions WHERE id = ?1 >> 32",
                ] {
                    transaction.execute(statement, [all[0]])?;
                }
                transaction.execute("DELETE FROM blocks WHERE id >= ?1 AND id <= ?2", all)?;
            }
            Ok(())
        })
    }

    /// The bytes of the file that hold nothing, and that [`Store::shrink`] would give back.
    ///
    /// # Errors
    /// A store that failed.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            Ok((pragma("freelist_count")? * pragma("page_size")?).max(0) as u64)
        })
    }

    /// Writes the file anew without its free space. Needs as much space again while it runs.
    ///
    /// # Errors
    /// A store that failed, or is being read by another process; the file is then as it was.
    pub fn shrink(&self) -> Result<(), StoreError> {
        let writer = self.database().writer.take()?;
        writer.execute_batch("VACUUM")?;
        writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
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

fn size_of(connection: &Connection, session: SessionId) -> Result<Size, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> {
        let [first, last] = keys(session, &(0..u32::MAX));
        let value: i64 = connection
            .prepare_cached(sql)?
            .query_row([session.0, first, last], |row| row.get(0))?;
        Ok(value.max(0) as u64)
    };
    let bytes = [
        "SELECT coalesce(sum(length(data)), 0) FROM blocks WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3",
        // A row and its place in the index by host id.
        "SELECT count(*) * 70 FROM messages WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3",
        "SELECT coalesce(sum(length(c.data)), 0) FROM payload_chunks c
         JOIN payloads p ON p.id = c.payload WHERE p.session = ?1 AND ?2 <= ?3",
        "SELECT coalesce(sum(length(data)), 0) FROM nodes WHERE session = ?1 AND ?2 <= ?3",
        "SELECT coalesce(sum(length(t.terms) + length(l.data)), 0) FROM segments s
         JOIN term_chunks t ON t.segment = s.id JOIN posting_chunks l ON l.id = t.id
         WHERE s.session = ?1 AND ?2 <= ?3",
    ];
    Ok(Size {
        messages: count("SELECT count(*) FROM messages WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3")?,
        summaries: count("SELECT count(*) FROM nodes WHERE session = ?1 AND ?2 <= ?3")?,
        files: count("SELECT count(*) FROM payloads WHERE session = ?1 AND ?2 <= ?3")?,
        bytes: bytes.iter().map(|sql| count(sql)).sum::<Result<u64, _>>()?,
    })
}

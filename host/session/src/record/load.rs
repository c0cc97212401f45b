//! Reading a session from the record.

use std::collections::BTreeMap;

use contexture_engine_api::{MessageId, Observed};
use contexture_formats::Format;
use contexture_formats::prompt_cache::Pauses;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::damage::broken_link;
use super::texts::{damage_lines, damaged_artifacts, damaged_texts};
use super::units::{UNIT_BYTES, decode};
use super::{Form, InForce, Logged, ReadError, message_id};
use crate::align::Mark;
use crate::services::now_ms;
use crate::trail::Trail;
use crate::window::SavedWindow;
use crate::written::{IdSet, WrittenText};

/// What the record has of a session.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    pub(crate) next_id: u64,
    /// The engine that was shown the messages.
    pub(crate) engine: String,
    pub(crate) format: Option<Format>,
    pub(crate) shown: Option<Observed>,
    /// Whether that engine said itself how far it was shown them.
    pub(crate) remembers: bool,
    /// What each engine lacks, by its name.
    pub(crate) lacking: BTreeMap<String, IdSet>,
    pub(crate) pauses: Pauses,
    pub(crate) compactions: u64,
    /// The usage that the provider reported; empty if there is none.
    pub(crate) usage: String,
    /// The last message of those that were taken over from an engine's store.
    pub(crate) recovered: Option<MessageId>,
    pub(crate) log: Vec<Logged>,
    pub(crate) sent: Trail,
    pub(crate) handed: Trail,
    pub(crate) written: Vec<WrittenText>,
    pub(crate) compaction: Option<InForce>,
}

pub(super) fn read_session(
    connection: &mut Connection,
    id: &str,
) -> Result<(i64, Saved), ReadError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT INTO sessions (id, created_ms, next_id, engine) VALUES (?1, ?2, 1, '')
         ON CONFLICT DO NOTHING",
        params![id, now_ms()],
    )?;
    let known = read_known(&transaction, id)?;
    transaction.commit()?;
    Ok(known)
}

/// What is wrong with what is recorded of a session; none where nothing is.
pub(super) fn check_session(
    connection: &Connection,
    id: &str,
) -> Result<Option<String>, ReadError> {
    let (key, saved) = read_known(connection, id)?;
    let last = saved.log.last().map(|last| last.id);
    if last.is_some_and(|last| last.0 >= saved.next_id) {
        return Ok(Some("a message has an id that is not given yet".to_owned()));
    }
    if let Some(id) = broken_link(connection, key)? {
        let what = format!("what is recorded of {id} does not follow from the message before it");
        return Ok(Some(what));
    }
    let texts = damaged_texts(connection, key)?;
    let damaged = damage_lines(&texts, &damaged_artifacts(connection, key)?);
    Ok((!damaged.is_empty()).then(|| format!("{} cannot be read", damaged.join(" and "))))
}

/// The messages that are part of the conversation, earlier forms included, in the order of arrival.
pub(super) fn read_log(connection: &Connection, key: i64) -> rusqlite::Result<Vec<Logged>> {
    connection
        .prepare(
            "SELECT id, identity, shape, chain, replaces FROM messages WHERE session = ?1 AND NOT cut ORDER BY id",
        )?
        .query_map([key], |row| {
            Ok(Logged {
                id: message_id(row.get(0)?),
                mark: Mark {
                    identity: u128::from_le_bytes(row.get(1)?),
                    shape: row.get::<_, i64>(2)?.cast_unsigned(),
                },
                chain: row.get::<_, i64>(3)?.cast_unsigned(),
                replaces: row.get::<_, Option<i64>>(4)?.map(message_id),
            })
        })?
        .collect::<Result<_, _>>()
}

fn read_known(transaction: &Connection, id: &str) -> Result<(i64, Saved), ReadError> {
    let (key, mut saved) = transaction.query_row(
        "SELECT key, next_id, engine, shown_last, shown_chain, remembers, compactions, format, lacking,
                recovered, pauses_more, pauses_saved, usage
         FROM sessions WHERE id = ?1",
        [id],
        |row| {
            let shown: Option<i64> = row.get(3)?;
            let chain: Option<i64> = row.get(4)?;
            let saved = Saved {
                next_id: row.get::<_, i64>(1)?.cast_unsigned(),
                engine: row.get(2)?,
                shown: shown.zip(chain).map(|(last, chain)| Observed::through(message_id(last), chain.cast_unsigned())),
                remembers: row.get(5)?,
                compactions: row.get::<_, i64>(6)?.cast_unsigned(),
                format: row.get::<_, String>(7)?.parse().ok(),
                // Runs of ids that make no sense are none.
                lacking: serde_json::from_str(&row.get::<_, String>(8)?).unwrap_or_default(),
                recovered: row.get::<_, Option<i64>>(9)?.map(message_id),
                pauses: Pauses::stored(row.get(10)?, row.get(11)?),
                usage: row.get(12)?,
                ..Saved::default()
            };
            Ok((row.get::<_, i64>(0)?, saved))
        },
    )?;
    saved.log = read_log(transaction, key)?;
    saved.sent = read_trail(transaction, key, Form::Sent)?;
    saved.handed = read_trail(transaction, key, Form::Handed)?;
    saved.written = read_written(transaction, key, id)?;
    let compaction = transaction
        .query_row(
            "SELECT number, engine, entries FROM compactions WHERE session = ?1",
            [key],
            |row| {
                let in_force = InForce {
                    number: row.get::<_, i64>(0)?.cast_unsigned(),
                    engine: row.get(1)?,
                    window: SavedWindow::default(),
                };
                Ok((in_force, row.get::<_, String>(2)?))
            },
        )
        .optional()?;
    if let Some((mut in_force, entries)) = compaction {
        in_force.window = serde_json::from_str(&entries).map_err(|error| {
            ReadError::Damaged(format!("the compaction of session `{id}`: {error}"))
        })?;
        saved.compaction = Some(in_force);
    }
    Ok((key, saved))
}

/// The pauses of all sessions.
pub(super) fn read_pauses(connection: &Connection) -> rusqlite::Result<Pauses> {
    connection.query_row(
        "SELECT total(pauses_more), total(pauses_saved) FROM sessions",
        [],
        |row| {
            Ok(Pauses::stored(
                row.get::<_, f64>(0)? as i64,
                row.get::<_, f64>(1)? as i64,
            ))
        },
    )
}

pub(super) fn read_written(
    transaction: &Connection,
    key: i64,
    id: &str,
) -> Result<Vec<WrittenText>, ReadError> {
    let mut statement = transaction.prepare(
        "SELECT identity, id, shortens, covers FROM written WHERE session = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([key])?;
    let mut written = Vec::new();
    while let Some(row) = rows.next()? {
        let covers = serde_json::from_str(&row.get::<_, String>(3)?).map_err(|error| {
            ReadError::Damaged(format!("what was written in session `{id}`: {error}"))
        })?;
        written.push(WrittenText {
            identity: u128::from_le_bytes(row.get(0)?),
            id: message_id(row.get(1)?),
            shortens: row.get(2)?,
            covers,
        });
    }
    Ok(written)
}

pub(super) fn read_trail(
    transaction: &Connection,
    key: i64,
    form: Form,
) -> Result<Trail, ReadError> {
    let mut trail = Trail::default();
    let mut statement = transaction.prepare(
        "SELECT raw, messages, place FROM wire WHERE session = ?1 AND form = ?2 ORDER BY place",
    )?;
    let mut rows = statement.query(params![key, form as i64])?;
    while let Some(row) = rows.next()? {
        let raw = row.get::<_, i64>(0)?.cast_unsigned();
        let blob: Vec<u8> = row.get(1)?;
        let (records, rest) = blob.as_chunks::<UNIT_BYTES>();
        if !rest.is_empty() {
            let what = "a wire message's list of messages is cut off".to_owned();
            return Err(ReadError::Damaged(what));
        }
        if row.get::<_, i64>(2)? != trail.raw.len() as i64 {
            let what = "a wire message is missing".to_owned();
            return Err(ReadError::Damaged(what));
        }
        trail.push(&[raw], records.iter().map(decode));
    }
    Ok(trail)
}

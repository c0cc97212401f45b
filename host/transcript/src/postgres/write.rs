//! Writing rows to the tables of PostgreSQL, within a transaction that the caller commits.
//!
//! A turn is written in two steps. [`begin_commit`] checks that this process still holds the
//! session, and counts the commit. [`write_commit`] then writes what changed. [`restore_session`]
//! writes a whole session that comes from another store.
//!
//! Two rules hold for commits and copies. First, the writer holds the lease of the session, and the
//! row of the lease stays locked until the transaction ends. If another process takes the lease
//! over, it waits for that, so the numbers within a session need no other protection. Second, a
//! transaction may be run again if its answer was lost, so the count of commits in the row of the
//! session says whether it was already made.
//!
//! The log and the wire logs may be long, so they are sent as arrays, one statement for each table.
//! A statement for each row would cost a round trip each, and a turn waits for all of them.

use deadpool_postgres::Transaction;

use super::connection::Failure;
use super::read::{execute, query_one, query_opt};
use super::{Key, schema};
use crate::store::{
    ArtifactChange, Commit, CompactionRow, LogEnd, MessageRow, NewTextRow, SessionDump, TextRow,
    WireEnd, WrittenRow,
};

/// Deletes a session with everything that is stored with it. Does nothing if there is none.
pub(super) async fn delete(transaction: &Transaction<'_>, key: &Key) -> Result<(), Failure> {
    // The other tables of a session follow by their foreign keys. The row of the lease stays: if
    // the fence began at one again, a process that was stopped long ago could hold a number that is
    // valid.
    for table in ["sessions", "kept"] {
        let delete = format!("DELETE FROM contexture.{table} WHERE tenant = $1 AND session = $2");
        execute(transaction, &delete, &[&key.tenant, &key.session]).await?;
    }
    Ok(())
}

/// Stores a session that is not there. If one of this name exists, the insert fails, so the caller
/// deletes it first in the same transaction. Numbers of texts and ids of messages stay as they are,
/// since other rows refer to them.
pub(super) async fn restore_session(
    transaction: &Transaction<'_>,
    key: &Key,
    dump: &SessionDump,
) -> Result<(), Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    let sql = "INSERT INTO contexture.sessions (tenant, session, created_ms, used_ms, archived_ms, next_id, engine,
               format, shown_last, pending_cut, recovered, pauses_more, pauses_saved, compactions, usage)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
    let row = &dump.row;
    execute(
        transaction,
        sql,
        &[
            tenant, session, &dump.created_ms, &dump.used_ms, &dump.archived_ms, &row.next_id,
            &row.engine, &row.format, &row.shown_last, &row.pending_cut, &row.recovered,
            &row.pauses_more, &row.pauses_saved, &row.compactions, &row.usage,
        ],
    )
    .await?;
    let sql = "INSERT INTO contexture.messages (tenant, session, id, identity, shape, chain, replaces, cut, said_ms,
               arrived_ms, wire, part)
               SELECT $1, $2, said.* FROM unnest($3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[],
               $8::boolean[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]) AS said";
    let said = &dump.messages;
    let numbers = |number: fn(&MessageRow) -> i64| said.iter().map(number).collect::<Vec<i64>>();
    let optional =
        |number: fn(&MessageRow) -> Option<i64>| said.iter().map(number).collect::<Vec<_>>();
    let identities: Vec<&[u8]> = said.iter().map(|message| &message.identity[..]).collect();
    let cut: Vec<bool> = said.iter().map(|message| message.cut).collect();
    execute(
        transaction,
        sql,
        &[
            tenant,
            session,
            &numbers(|message| message.id),
            &identities,
            &numbers(|message| message.shape),
            &numbers(|message| message.chain),
            &optional(|message| message.replaces),
            &cut,
            &optional(|message| message.said_ms),
            &optional(|message| message.arrived_ms),
            &optional(|message| message.wire),
            &optional(|message| message.part),
        ],
    )
    .await?;
    for row in &dump.texts {
        insert_text(transaction, key, row.number, row).await?;
    }
    write_artifacts(transaction, key, &dump.artifacts).await?;
    for wires in dump.wire.chunk_by(|one, next| one.form == next.form) {
        let end = WireEnd {
            form: wires.first().map_or(0, |wire| wire.form),
            from: 0,
            wires: wires.to_vec(),
        };
        write_wires(transaction, key, &end).await?;
    }
    for text in &dump.written {
        insert_written(transaction, key, text).await?;
    }
    match &dump.compaction {
        Some(compaction) => insert_compaction(transaction, key, compaction).await,
        None => Ok(()),
    }
}

/// Whether a commit may be written, as [`begin_commit`] found out under the lock of the lease.
pub(super) enum Begun {
    /// This is the first attempt that arrived. Its rows must be written now.
    Now,
    /// It was written by an earlier attempt whose answer was lost. Nothing is left to do.
    Before,
    /// The lease was lost, or the session was deleted. Nothing may be written.
    Refused,
}

/// Whether this process still holds a session. If so, the lease cannot be taken over before the
/// transaction ends. A lease that has ended but that nobody else took still counts: its number is
/// then the highest, so nobody wrote in between.
///
/// # Errors
/// A newer program has migrated the tables since this one opened them.
pub(super) async fn has_lease(
    transaction: &Transaction<'_>,
    key: &Key,
    fence: i64,
) -> Result<bool, Failure> {
    // A statement of its own for the version would take longer.
    let sql = "SELECT fence, (SELECT coalesce(max(version), 0) FROM contexture.migrations)
               FROM contexture.leases WHERE tenant = $1 AND session = $2 FOR UPDATE";
    let Some(lease) = query_opt(transaction, sql, &[&key.tenant, &key.session]).await? else {
        return Ok(false);
    };
    schema::refuse_other(lease.try_get(1)?)?;
    Ok(lease.try_get::<_, i64>(0)? == fence)
}

/// Checks the lease and counts the commit. The lease cannot be taken over before the transaction
/// ends. `fence` is the number of the lease, and `commits` the number of commits before this one.
pub(super) async fn begin_commit(
    transaction: &Transaction<'_>,
    key: &Key,
    commit: &Commit,
    fence: i64,
    commits: i64,
) -> Result<Begun, Failure> {
    if !has_lease(transaction, key, fence).await? {
        return Ok(Begun::Refused);
    }
    let sql = "UPDATE contexture.sessions
               SET commits = commits + 1, next_id = $4, format = $5, compactions = greatest(compactions, $6),
                   recovered = $7, pauses_more = $8, pauses_saved = $9, usage = $10, used_ms = $11, archived_ms = NULL,
                   engine = CASE WHEN $12 THEN $13 ELSE engine END,
                   shown_last = CASE WHEN $12 THEN $14 ELSE shown_last END,
                   pending_cut = CASE WHEN $12 THEN $15 ELSE pending_cut END
               WHERE tenant = $1 AND session = $2 AND commits = $3";
    let row = &commit.session;
    let updated = execute(
        transaction,
        sql,
        &[
            &key.tenant, &key.session, &commits, &row.next_id, &row.format, &row.compactions,
            &row.recovered, &row.pauses_more, &row.pauses_saved, &row.usage, &commit.now_ms,
            &commit.moves_cursor, &row.engine, &row.shown_last, &row.pending_cut,
        ],
    )
    .await?;
    if updated > 0 {
        return Ok(Begun::Now);
    }
    // Nobody else can have made a commit under this lease.
    let sql = "SELECT commits FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let count = query_opt(transaction, sql, &[&key.tenant, &key.session]).await?;
    let count: Option<i64> = count.map(|row| row.try_get(0)).transpose()?;
    Ok(match count == Some(commits + 1) {
        true => Begun::Before,
        false => Begun::Refused,
    })
}

/// Writes everything of a commit but the row of the session, which [`begin_commit`] has written.
pub(super) async fn write_commit(
    transaction: &Transaction<'_>,
    key: &Key,
    commit: &Commit,
) -> Result<(), Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    // The log is written before the texts, because a text is noted in the rows of its messages.
    if let Some(log) = &commit.log {
        write_log(transaction, key, log, commit.now_ms).await?;
    }
    if let Some(dictionary) = &commit.dictionary {
        let row = TextRow::dictionary(dictionary.clone());
        insert_text(transaction, key, row.number, &row).await?;
    }
    write_texts(transaction, key, &commit.texts).await?;
    write_artifacts(transaction, key, &commit.artifacts).await?;
    for end in &commit.wires {
        write_wires(transaction, key, end).await?;
    }
    // Before the new texts, which would be deleted with the old ones otherwise.
    if commit.forgot {
        let delete = "DELETE FROM contexture.written WHERE tenant = $1 AND session = $2";
        transaction.execute(delete, &[tenant, session]).await?;
    }
    for text in &commit.written {
        insert_written(transaction, key, text).await?;
    }
    match &commit.compaction {
        None => {}
        Some(None) => {
            let delete = "DELETE FROM contexture.compactions WHERE tenant = $1 AND session = $2";
            transaction.execute(delete, &[tenant, session]).await?;
        }
        Some(Some(compaction)) => insert_compaction(transaction, key, compaction).await?,
    }
    Ok(())
}

/// Stores a text of the host. If the same text is there for the same message, it gets the new
/// extent, as when a summary comes to cover more.
async fn insert_written(
    transaction: &Transaction<'_>,
    key: &Key,
    text: &WrittenRow,
) -> Result<(), Failure> {
    let sql = "INSERT INTO contexture.written (tenant, session, identity, id, shortens, covers)
               VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT (tenant, session, identity, id)
                  DO UPDATE SET shortens = excluded.shortens, covers = excluded.covers";
    let identity = text.identity.as_slice();
    execute(
        transaction,
        sql,
        &[
            &key.tenant, &key.session, &identity, &text.id, &text.shortens, &text.covers,
        ],
    )
    .await?;
    Ok(())
}

/// Puts a compaction in force, in place of the one before. There is one row for each session:
/// earlier windows are of no use, because a window is always whole.
async fn insert_compaction(
    transaction: &Transaction<'_>,
    key: &Key,
    compaction: &CompactionRow,
) -> Result<(), Failure> {
    let sql = "INSERT INTO contexture.compactions (tenant, session, number, engine, entries)
               VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (tenant, session) DO UPDATE
                  SET number = excluded.number, engine = excluded.engine, entries = excluded.entries";
    execute(
        transaction,
        sql,
        &[
            &key.tenant, &key.session, &compaction.number, &compaction.engine, &compaction.entries,
        ],
    )
    .await?;
    Ok(())
}

/// Stored messages after the end's beginning are marked as cut, or deleted if their text is not
/// stored. Those that are still in the log are then inserted again.
///
/// Most turns only append: then there is nothing to cut, and the two statements find no rows.
async fn write_log(
    transaction: &Transaction<'_>,
    key: &Key,
    log: &LogEnd,
    now_ms: i64,
) -> Result<(), Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    for cut in [
        // Without its text, a message that was cut off is a hash that nobody can look up.
        "DELETE FROM contexture.messages WHERE tenant = $1 AND session = $2 AND id > $3 AND wire IS NULL",
        "UPDATE contexture.messages SET cut = true WHERE tenant = $1 AND session = $2 AND id > $3",
    ] {
        execute(transaction, cut, &[tenant, session, &log.kept]).await?;
    }
    if log.messages.is_empty() {
        return Ok(());
    }
    // If a message comes back, it keeps its first time of arrival. It keeps its text only if its
    // content is still the same: otherwise the transcript would show words that were not said.
    let sql = "INSERT INTO contexture.messages AS known
               (tenant, session, id, identity, shape, chain, replaces, arrived_ms)
               SELECT $1, $2, id, identity, shape, chain, replaces, $8::bigint
               FROM unnest($3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[])
               AS said (id, identity, shape, chain, replaces)
               ON CONFLICT (tenant, session, id) DO UPDATE
               SET identity = excluded.identity, shape = excluded.shape, chain = excluded.chain,
                   replaces = excluded.replaces, cut = false,
                   wire = CASE WHEN known.identity = excluded.identity THEN known.wire END";
    let said = &log.messages;
    let ids: Vec<i64> = said.iter().map(|message| message.id).collect();
    let identities: Vec<&[u8]> = said.iter().map(|message| &message.identity[..]).collect();
    let shapes: Vec<i64> = said.iter().map(|message| message.shape).collect();
    let chains: Vec<i64> = said.iter().map(|message| message.chain).collect();
    let replaces: Vec<Option<i64>> = said.iter().map(|message| message.replaces).collect();
    execute(
        transaction,
        sql,
        &[
            tenant, session, &ids, &identities, &shapes, &chains, &replaces, &now_ms,
        ],
    )
    .await?;
    Ok(())
}

/// Stores wire messages, and notes with each message which of them holds it. They are numbered from
/// the highest number on, which is safe because the session has one writer.
async fn write_texts(
    transaction: &Transaction<'_>,
    key: &Key,
    texts: &[NewTextRow],
) -> Result<(), Failure> {
    if texts.is_empty() {
        return Ok(());
    }
    let (tenant, session) = (&key.tenant, &key.session);
    let sql =
        "SELECT coalesce(max(number), 0) FROM contexture.texts WHERE tenant = $1 AND session = $2";
    let last: i64 = query_one(transaction, sql, &[tenant, session])
        .await?
        .try_get(0)?;
    let (mut ids, mut numbers, mut parts, mut said) = (vec![], vec![], vec![], vec![]);
    for (number, new) in (last + 1..).zip(texts) {
        insert_text(transaction, key, number, &new.row).await?;
        for part in &new.parts {
            ids.push(part.id);
            numbers.push(number);
            parts.push(part.part);
            said.push(part.said_ms);
        }
    }
    // A message may come again without its time, as in another client's request. The time that is
    // known stays.
    let sql = "UPDATE contexture.messages m
               SET wire = held.number, part = held.part, said_ms = coalesce(held.said_ms, m.said_ms)
               FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS held (id, number, part, said_ms)
               WHERE m.tenant = $1 AND m.session = $2 AND m.id = held.id";
    execute(
        transaction,
        sql,
        &[tenant, session, &ids, &numbers, &parts, &said],
    )
    .await?;
    Ok(())
}

/// Stores one wire message under a number that must be free.
async fn insert_text(
    transaction: &Transaction<'_>,
    key: &Key,
    number: i64,
    row: &TextRow,
) -> Result<(), Failure> {
    let sql = "INSERT INTO contexture.texts (tenant, session, number, format, tools, reading, bytes, checksum, data)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let text = &row.text;
    execute(
        transaction,
        sql,
        &[
            &key.tenant, &key.session, &number, &row.format, &row.tools, &row.reading, &text.bytes,
            &text.checksum, &text.data,
        ],
    )
    .await?;
    Ok(())
}

/// Stores artifacts in place of those with the same names, and deletes those that have no text.
/// There are few of them in a turn, so each has a statement of its own.
async fn write_artifacts(
    transaction: &Transaction<'_>,
    key: &Key,
    artifacts: &[ArtifactChange],
) -> Result<(), Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    for ArtifactChange { engine, name, text } in artifacts {
        match text {
            Some(text) => {
                let sql = "INSERT INTO contexture.artifacts (tenant, session, engine, name, bytes, checksum, data)
                           VALUES ($1, $2, $3, $4, $5, $6, $7)
                           ON CONFLICT (tenant, session, engine, name) DO UPDATE
                              SET bytes = excluded.bytes, checksum = excluded.checksum, data = excluded.data";
                let text: &[&(dyn tokio_postgres::types::ToSql + Sync)] = &[
                    tenant, session, engine, name, &text.bytes, &text.checksum, &text.data,
                ];
                execute(transaction, sql, text).await?;
            }
            None => {
                let sql = "DELETE FROM contexture.artifacts
                           WHERE tenant = $1 AND session = $2 AND engine = $3 AND name = $4";
                execute(transaction, sql, &[tenant, session, engine, name]).await?;
            }
        }
    }
    Ok(())
}

/// Writes a wire log from a place on, in place of what is stored there. What comes before that
/// place is not touched, so a turn in a long conversation writes only its end.
async fn write_wires(
    transaction: &Transaction<'_>,
    key: &Key,
    end: &WireEnd,
) -> Result<(), Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    let sql = "DELETE FROM contexture.wire WHERE tenant = $1 AND session = $2 AND form = $3 AND place >= $4";
    execute(transaction, sql, &[tenant, session, &end.form, &end.from]).await?;
    if end.wires.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO contexture.wire (tenant, session, form, place, raw, messages)
               SELECT $1, $2, $3::bigint, place, raw, messages
               FROM unnest($4::bigint[], $5::bigint[], $6::bytea[]) AS wire (place, raw, messages)";
    let places: Vec<i64> = end.wires.iter().map(|wire| wire.place).collect();
    let raw: Vec<i64> = end.wires.iter().map(|wire| wire.raw).collect();
    let messages: Vec<&[u8]> = end.wires.iter().map(|wire| &wire.messages[..]).collect();
    execute(
        transaction,
        sql,
        &[tenant, session, &end.form, &places, &raw, &messages],
    )
    .await?;
    Ok(())
}

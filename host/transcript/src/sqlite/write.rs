//! Writing to the tables of the SQLite file, within a transaction that the caller commits. What is
//! written is decided in `crate::sql`.

use rusqlite::{Connection, params_from_iter};

use crate::sql::{self, Statement, Value};
use crate::store::{Commit, SessionDump};

/// Runs statements about a session, which is known by its key, or for texts of embedders by its name.
pub(super) fn run<'a>(
    transaction: &Connection,
    key: impl Into<Value<'a>>,
    statements: impl IntoIterator<Item = Statement<'a>>,
) -> rusqlite::Result<()> {
    let key = key.into();
    for Statement { sql, values } in statements {
        let mut statement = transaction.prepare_cached(sql.of_file())?;
        statement.execute(params_from_iter(std::iter::once(key).chain(values)))?;
    }
    Ok(())
}

/// Writes a commit. If the session was deleted since it was opened, nothing is written: there is no
/// row to update, and the foreign keys refuse new rows.
pub(super) fn write_commit(
    transaction: &Connection,
    key: i64,
    commit: &Commit,
) -> rusqlite::Result<()> {
    let last_text = match commit.texts.is_empty() {
        true => 0,
        false => {
            let mut last = transaction.prepare_cached(sql::LAST_TEXT.of_file())?;
            last.query_row([key], |row| row.get(0))?
        }
    };
    run(transaction, key, sql::of_commit(commit, last_text))
}

/// Makes an empty session, unless there is one with this id.
pub(super) fn make_session(
    transaction: &Connection,
    session: &str,
    created_ms: i64,
) -> rusqlite::Result<()> {
    let values = vec![Value::from(created_ms)];
    let sql = &sql::MAKE_SESSION;
    run(transaction, session, [Statement { sql, values }])
}

/// Stores a session that is not there. It gets a new key.
pub(super) fn restore_session(
    transaction: &Connection,
    session: &str,
    dump: &SessionDump,
) -> rusqlite::Result<()> {
    make_session(transaction, session, dump.created_ms)?;
    run(
        transaction,
        transaction.last_insert_rowid(),
        sql::of_dump(dump),
    )
}

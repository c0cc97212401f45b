//! Copies the readable rows of a damaged database.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Statement, params_from_iter};

use crate::error::StoreError;
use crate::store::definitions::{Column, columns};

/// A table, its key, and an index that repeats all of its columns.
struct Table {
    name: &'static str,
    key: &'static str,
    second: Option<(&'static str, &'static str)>,
}

const fn table(name: &'static str, key: &'static str) -> Table {
    Table {
        name,
        key,
        second: None,
    }
}

/// All tables except those of the search index, which is rebuilt, and the vectors, which are made anew.
const TABLES: [Table; 10] = [
    table("sessions", "rowid"),
    table("live", "session"),
    table("payloads", "rowid"),
    table("payload_chunks", "rowid"),
    table("messages", "rowid"),
    table("blocks", "rowid"),
    table("nodes", "rowid"),
    Table {
        name: "node_messages",
        key: "node",
        second: Some(("node_messages_by_message", "message")),
    },
    Table {
        name: "node_children",
        key: "node",
        second: Some(("node_children_by_child", "child")),
    },
    table("frontier", "session"),
];

/// Copies all readable rows. Returns their number.
///
/// # Errors
/// The new database cannot be written.
pub(super) fn copy(old: &Connection, new: &Connection) -> Result<u64, StoreError> {
    let before = new.total_changes();
    for table in &TABLES {
        let columns = columns(new, table.name)?;
        Walk::copy(old, new, table.name, table.name, table.key, &columns)?;
        if let Some((index, key)) = table.second {
            let from = format!("{} INDEXED BY {index}", table.name);
            Walk::copy(old, new, table.name, &from, key, &columns)?;
        }
    }
    let copied = new.total_changes() - before;
    keep_numbers_used(old, new)?;
    Ok(copied)
}

/// Keeps the AUTOINCREMENT counters, so that numbers are not reused.
fn keep_numbers_used(old: &Connection, new: &Connection) -> Result<(), StoreError> {
    for name in ["sessions", "payloads"] {
        let used = old.query_row(
            "SELECT max(seq) FROM sqlite_sequence WHERE name = ?1",
            [name],
            |row| row.get::<_, Option<i64>>(0),
        );
        if let Ok(Some(used)) = used {
            let sql = "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1";
            if new.execute(sql, (name, used))? == 0 {
                let sql = "INSERT INTO sqlite_sequence(name, seq) VALUES(?1, ?2)";
                new.execute(sql, (name, used))?;
            }
        }
    }
    Ok(())
}

/// How a run over rows ended.
enum End {
    /// At the last row.
    Reached,
    /// At a page that cannot be read.
    Damaged,
}

/// A walk over a table in key order, approaching damaged pages from both sides.
struct Walk<'c> {
    up: Statement<'c>,
    down: Statement<'c>,
    next: Statement<'c>,
    insert: Statement<'c>,
    columns: &'c [Column],
}

impl<'c> Walk<'c> {
    fn copy(
        old: &'c Connection,
        new: &'c Connection,
        table: &str,
        from: &str,
        key: &str,
        columns: &'c [Column],
    ) -> Result<(), StoreError> {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let names = names.join(", ");
        let marks = vec!["?"; columns.len()].join(", ");
        let insert = new.prepare(&format!(
            "INSERT OR IGNORE INTO {table}({names}) VALUES({marks})"
        ))?;
        let select = format!("SELECT {key}, {names} FROM {from} WHERE {key} > ?1 AND {key} <= ?2");
        let prepared = (
            old.prepare(&format!("{select} ORDER BY {key}")),
            old.prepare(&format!("{select} ORDER BY {key} DESC")),
            old.prepare(&format!(
                "SELECT {key} FROM {from} WHERE {key} > ?1 ORDER BY {key} LIMIT 1"
            )),
        );
        // A lost table or index has no rows.
        let (Ok(up), Ok(down), Ok(next)) = prepared else {
            return Ok(());
        };
        let mut walk = Walk {
            up,
            down,
            next,
            insert,
            columns,
        };
        walk.run()
    }

    fn run(&mut self) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let end = copy_rows(
                &mut self.up,
                [after, i64::MAX],
                self.columns,
                &mut self.insert,
                &mut after,
            )?;
            if matches!(end, End::Reached) {
                return Ok(());
            }
            // Tries ever larger steps to the next reachable key.
            let mut step = 1i64;
            let beyond = loop {
                let from = after.saturating_add(step);
                match self.next.query_row([from], |row| row.get::<_, i64>(0)) {
                    // Damage may have put a smaller key there, which would loop.
                    Ok(key) if key > from => break Some(key),
                    Err(rusqlite::Error::QueryReturnedNoRows) => break None,
                    _ if step > i64::MAX / 4 => break None,
                    _ => step *= 2,
                }
            };
            // Reads the skipped rows backwards, as far as they are readable.
            let upto = beyond.unwrap_or(i64::MAX);
            copy_rows(
                &mut self.down,
                [after, upto],
                self.columns,
                &mut self.insert,
                &mut 0,
            )?;
            match beyond {
                Some(key) => after = key,
                None => return Ok(()),
            }
        }
    }
}

fn copy_rows(
    select: &mut Statement<'_>,
    bounds: [i64; 2],
    columns: &[Column],
    insert: &mut Statement<'_>,
    last: &mut i64,
) -> Result<End, StoreError> {
    let Ok(mut rows) = select.query(bounds) else {
        return Ok(End::Damaged);
    };
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(End::Reached),
            Err(_) => return Ok(End::Damaged),
        };
        let values: Option<Vec<Value>> = (1..)
            .zip(columns)
            .map(|(at, column)| value(row.get_ref(at).ok()?, &column.kind))
            .collect();
        if let Some(values) = values {
            insert.execute(params_from_iter(values))?;
        }
        if let Ok(key) = row.get::<_, i64>(0) {
            // Damage may have put rows out of order; the walk still only goes upwards.
            *last = key.max(*last);
        }
    }
}

/// A value; none for one of another type than its column's, or a text that is not valid UTF-8.
fn value(found: ValueRef<'_>, kind: &str) -> Option<Value> {
    Some(match (found, kind) {
        (ValueRef::Null, _) => Value::Null,
        (ValueRef::Integer(number), "INTEGER") => Value::Integer(number),
        (ValueRef::Text(text), "TEXT") => Value::Text(std::str::from_utf8(text).ok()?.to_owned()),
        (ValueRef::Blob(bytes), "BLOB") => Value::Blob(bytes.to_owned()),
        _ => return None,
    })
}

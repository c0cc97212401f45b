//! The rows of `sqlite_schema` about our tables: their names, root pages and definitions.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};

use super::schema;
use crate::error::StoreError;

/// The definition and the root page of a table, an index or a trigger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) table: String,
    /// None for an implicit index.
    pub(super) sql: Option<String>,
    /// The page on which it begins, from 1; 0 for a trigger.
    pub(super) root: u32,
}

impl Definition {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get("name")?,
            kind: row.get("type")?,
            table: row.get("tbl_name")?,
            sql: row.get("sql")?,
            root: row.get("rootpage")?,
        })
    }
}

/// The definitions in a file, in the order in which they must be applied.
///
/// # Errors
/// They cannot be read.
pub(super) fn of(connection: &Connection) -> Result<Vec<Definition>, StoreError> {
    let definitions = connection
        .prepare("SELECT * FROM sqlite_schema ORDER BY rowid")?
        .query_map([], Definition::read)?
        .collect::<Result<_, _>>()?;
    Ok(definitions)
}

/// A column, and the type that its table declares.
pub(super) struct Column {
    pub(super) name: String,
    /// `INTEGER`, `TEXT` or `BLOB`.
    pub(super) kind: String,
}

/// The columns of a table.
///
/// # Errors
/// They cannot be read.
pub(super) fn columns(connection: &Connection, table: &str) -> Result<Vec<Column>, StoreError> {
    let columns = connection
        .prepare("SELECT name, type FROM pragma_table_info(?1)")?
        .query_map([table], |row| {
            Ok(Column {
                name: row.get(0)?,
                kind: row.get(1)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(columns)
}

/// The definitions of a store of this version, in its two possible layouts: as created, and after `VACUUM`.
/// Releasing free pages moves none of them.
///
/// # Errors
/// Out of memory.
pub(super) fn ours() -> Result<[Vec<Definition>; 2], StoreError> {
    let mut model = Connection::open_in_memory()?;
    schema::lay_out(&mut model, Path::new(":memory:"))?;
    let made = of(&model)?;
    model.execute_batch("VACUUM")?;
    Ok([made, of(&model)?])
}

/// Whether both define the same, regardless of the layout.
pub(super) fn define_the_same(one: &[Definition], other: &[Definition]) -> bool {
    let texts = |definitions: &[Definition]| {
        let unplaced = definitions.iter().map(|definition| Definition {
            root: 0,
            ..definition.clone()
        });
        let mut unplaced: Vec<_> = unplaced.collect();
        unplaced.sort();
        unplaced
    };
    texts(one) == texts(other)
}

/// Whether the tables in the file are those of this version, whatever its header says. Read-only: no log is
/// read or created.
pub(super) fn are_in(path: &Path) -> bool {
    let read = || {
        let connection = Connection::open_with_flags(
            unchanging(path),
            OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_NO_MUTEX
                | OpenFlags::SQLITE_OPEN_URI,
        )?;
        Ok::<_, StoreError>(define_the_same(&of(&connection)?, &ours()?[0]))
    };
    read().unwrap_or(false)
}

/// The URI of a file that is opened as immutable.
fn unchanging(path: &Path) -> String {
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' => address.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(*byte)),
            byte => address.push_str(&format!("%{byte:02x}")),
        }
    }
    address + "?immutable=1"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::create::lay_down;

    #[test]
    fn a_new_file_and_one_that_was_vacuumed_lie_as_expected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a name? with#50%.sqlite3");
        lay_down(&path).unwrap();
        let [made, vacuumed] = ours().unwrap();
        assert_ne!(made, vacuumed);
        assert!(define_the_same(&made, &vacuumed));
        let connection = Connection::open(&path).unwrap();
        assert_eq!(of(&connection).unwrap(), made);
        connection.execute_batch("VACUUM").unwrap();
        assert_eq!(of(&connection).unwrap(), vacuumed);
        drop(connection);
        assert!(are_in(&path));
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("DROP INDEX frontier_by_node")
            .unwrap();
        drop(connection);
        assert!(!are_in(&path));
    }
}

//! Builds a file that is read instead of a damaged one whose schema is lost.
//!
//! Every store of a version has its tables on the same pages. So a new store, overwritten with the pages of
//! the damaged file except for the first page, which locates the tables, has the content of the damaged
//! one. The hashes verify it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;
use crate::store::create::{holds_something, lay_down, with_suffix};
use crate::store::database::connect;
use crate::store::definitions::{self, Definition, define_the_same};
use crate::store::schema::{HEADER_BYTES, PAGE_BYTES};

/// The header of an empty table leaf: its kind, no free block, no cells, and cell content starting at the
/// end of the page.
const EMPTY_LEAF: [u8; 8] = [13, 0, 0, 0, 0, (PAGE_BYTES >> 8) as u8, 0, 0];

/// The header fields that must not be copied: the list of free pages, and the auto-vacuum mode.
const NO_FREE_PAGES: std::ops::Range<usize> = 32..40;
const LARGEST_ROOT: std::ops::Range<usize> = 52..56;
const SHRINKS: std::ops::Range<usize> = 64..68;
/// The number of pages of the file.
const PAGES: std::ops::Range<usize> = 28..32;

/// Whether the file can be read directly: its size is valid, and each table is where a store of this
/// version has it; or its definitions are the same and its page size differs, so that the expected
/// positions are unknown.
pub(super) fn is_needless(damaged: &Connection, path: &Path) -> Result<bool, StoreError> {
    let Ok(found) = definitions::of(damaged) else {
        return Ok(false);
    };
    let number = |name| damaged.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (Ok(size), Ok(pages)) = (number("page_size"), number("page_count")) else {
        return Ok(false);
    };
    let ours = definitions::ours()?;
    if size != PAGE_BYTES as i64 {
        return Ok(define_the_same(&found, &ours[0]));
    }
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    Ok((pages * size) as u64 >= bytes && found == ours[0])
}

/// Makes the stand-in for the file at `path`, with its log. `found` are the table definitions in that file.
///
/// # Errors
/// A disk without room for it.
pub(super) fn make(path: &Path, stand_in: &Path, found: &[Definition]) -> Result<(), StoreError> {
    let error = |cause| StoreError::File {
        path: stand_in.to_owned(),
        cause,
    };
    lay_down(stand_in)?;
    let (header, leaves) = model(stand_in).map_err(error)?;
    lay_over(path, stand_in).map_err(error)?;
    take_log_in(path, stand_in)?;
    let [made, vacuumed] = definitions::ours()?;
    let mut layouts = vec![&made[..], &vacuumed];
    if define_the_same(found, &made) {
        layouts.push(found);
    }
    let mut best = (0, layouts[0]);
    for layout in layouts {
        let fitting = fitting(stand_in, layout, &made, &leaves).map_err(error)?;
        if fitting > best.0 {
            best = (fitting, layout);
        }
    }
    begin_anew(stand_in, header).map_err(error)?;
    define(stand_in, best.1)
}

/// The header of a new store, and the kind of each of its pages.
fn model(new: &Path) -> io::Result<([u8; HEADER_BYTES], Vec<u8>)> {
    let bytes = std::fs::read(new)?;
    let mut header = [0; HEADER_BYTES];
    bytes.as_slice().read_exact(&mut header)?;
    Ok((
        header,
        bytes.chunks(PAGE_BYTES).map(|page| page[0]).collect(),
    ))
}

/// Overwrites all pages but the first of the stand-in, and sets its size.
fn lay_over(path: &Path, stand_in: &Path) -> io::Result<()> {
    let mut to = File::options().write(true).open(stand_in)?;
    match File::open(path) {
        Ok(mut from) => {
            let first = SeekFrom::Start(PAGE_BYTES as u64);
            from.seek(first)?;
            to.seek(first)?;
            io::copy(&mut from, &mut to)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let pages = whole_pages(&to)?;
    to.seek(SeekFrom::Start(PAGES.start as u64))?;
    to.write_all(&pages)
}

/// Pads the last page; returns the number of pages, as in the header.
fn whole_pages(file: &File) -> io::Result<[u8; 4]> {
    let pages = file.metadata()?.len().div_ceil(PAGE_BYTES as u64);
    file.set_len(pages * PAGE_BYTES as u64)?;
    let pages = u32::try_from(pages).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(pages.to_be_bytes())
}

/// Applies the log to the stand-in.
fn take_log_in(path: &Path, stand_in: &Path) -> Result<(), StoreError> {
    let [from, log] = [path, stand_in].map(|path| with_suffix(path, "-wal"));
    if !holds_something(&from) {
        return Ok(());
    }
    std::fs::copy(&from, &log).map_err(|cause| StoreError::File { path: from, cause })?;
    let folded = writable(stand_in).and_then(|connection| {
        Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    });
    // A damaged log is applied as far as it is readable.
    let _ = std::fs::remove_file(log);
    let _ = std::fs::remove_file(with_suffix(stand_in, "-shm"));
    match folded {
        Err(error @ StoreError::DiskFull(_)) => Err(error),
        _ => Ok(()),
    }
}

/// How many tables and indexes begin on a page of their kind, given this layout.
fn fitting(
    stand_in: &Path,
    layout: &[Definition],
    made: &[Definition],
    leaves: &[u8],
) -> io::Result<usize> {
    let mut file = File::open(stand_in)?;
    let mut count = 0;
    for definition in layout.iter().filter(|definition| definition.root > 1) {
        let model = made.iter().find(|model| model.name == definition.name);
        let leaf = model.and_then(|model| leaves.get(model.root as usize - 1));
        let mut kind = [0];
        file.seek(SeekFrom::Start(
            (u64::from(definition.root) - 1) * PAGE_BYTES as u64,
        ))?;
        if file.read(&mut kind)? == 1 {
            // The type of an interior page is that of a leaf minus 8.
            count += usize::from(leaf.is_some_and(|leaf| [*leaf, leaf ^ 8].contains(&kind[0])));
        }
    }
    Ok(count)
}

/// Writes a first page without definitions.
fn begin_anew(stand_in: &Path, header: [u8; HEADER_BYTES]) -> io::Result<()> {
    let mut file = File::options().write(true).open(stand_in)?;
    let mut page = [0; PAGE_BYTES];
    page[..HEADER_BYTES].copy_from_slice(&header);
    page[PAGES].copy_from_slice(&whole_pages(&file)?);
    for nothing in [NO_FREE_PAGES, LARGEST_ROOT, SHRINKS] {
        page[nothing].fill(0);
    }
    page[HEADER_BYTES..HEADER_BYTES + EMPTY_LEAF.len()].copy_from_slice(&EMPTY_LEAF);
    file.write_all(&page)
}

/// Defines the tables on their existing pages; the definitions are written to the end of the file.
fn define(stand_in: &Path, layout: &[Definition]) -> Result<(), StoreError> {
    let mut connection = writable(stand_in)?;
    let transaction = connection.transaction()?;
    for definition in layout {
        transaction.execute(
            "INSERT INTO sqlite_schema(type, name, tbl_name, rootpage, sql) VALUES(?1, ?2, ?3, ?4, ?5)",
            (
                &definition.kind,
                &definition.name,
                &definition.table,
                definition.root,
                &definition.sql,
            ),
        )?;
    }
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error.into())
}

/// Opens the stand-in so that no damage prevents writing to it.
fn writable(stand_in: &Path) -> Result<Connection, StoreError> {
    let connection = connect(stand_in, OpenFlags::empty())?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    connection.execute_batch("PRAGMA writable_schema = ON; PRAGMA synchronous = OFF;")?;
    Ok(connection)
}

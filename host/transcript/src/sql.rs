//! What both backends have in common of SQL: the statements of a commit and of a copy, and the
//! columns of rows.
//!
//! The tables have the same columns, but for the key. PostgreSQL knows a session by its tenant and
//! its name, and the file by the number of its row, because that is shorter. So a [`Sql`] is written
//! for PostgreSQL, and the form for the file is derived from it.
//!
//! [`of_commit`] and [`of_dump`] return what has to be written as a list of [`Statement`]s. A backend
//! adds the key and runs them in order, in one transaction. A list of rows is written from the first
//! place that differs, and the rest of the stored list is replaced. So a turn that only appends to a
//! long conversation writes a few rows.
//!
//! Rows are read by position: [`Columns`] is a row of either backend.

use std::sync::OnceLock;

use rusqlite::types::{self, ToSqlOutput, ValueRef};

use crate::rows::message_id;
use crate::store::{
    ArtifactChange, Commit, CompactionRow, Delivered, LogEnd, MessageRow, Packed, SessionDump,
    SessionRow, SessionSummary, TextRow, WireRow, WrittenRow,
};

/// The text of a statement about one session. Its first two parameters are the tenant and the name
/// of the session.
pub(crate) struct Sql {
    of_server: &'static str,
    of_file: OnceLock<String>,
}

impl Sql {
    const fn new(of_server: &'static str) -> Self {
        Self {
            of_server,
            of_file: OnceLock::new(),
        }
    }

    /// The text for PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_server(&self) -> &'static str {
        self.of_server
    }

    /// The text for SQLite. Its first parameter is the key of the session, or the name of one that
    /// is made or whose texts of embedders are meant.
    pub(crate) fn of_file(&self) -> &str {
        self.of_file.get_or_init(|| {
            let (columns, key) = match self.of_server.contains("contexture.sessions") {
                true => ("id", "key = ?1"),
                false => ("session", "session = ?1"),
            };
            let text = (self.of_server)
                .replace("tenant = $1 AND session = $2", key)
                .replace("tenant, session", columns)
                .replace("$1, $2", "?1")
                .replace("contexture.", "");
            // From the last on, because `$1` is the beginning of `$10`.
            (3..=14).rev().fold(text, |text, at| {
                text.replace(&format!("${at}"), &format!("?{}", at - 1))
            })
        })
    }
}

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Number(i64),
    Flag(bool),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Null => ValueRef::Null,
            Self::Number(number) => ValueRef::Integer(number),
            Self::Flag(flag) => ValueRef::Integer(flag.into()),
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => bytes.into(),
        }))
    }
}

/// A statement with its values from the third parameter on.
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'static Sql,
    pub(crate) values: Vec<Value<'a>>,
}

macro_rules! statement {
    ($sql:expr $(, $value:expr)* $(,)?) => {
        Statement { sql: &$sql, values: vec![$(Value::from($value)),*] }
    };
}

/// Makes an empty session, unless it is there. The value is the time of its creation.
pub(crate) static MAKE_SESSION: Sql = Sql::new(
    "INSERT INTO contexture.sessions (tenant, session, created_ms, next_id, engine)
     VALUES ($1, $2, $3, 1, '') ON CONFLICT DO NOTHING",
);

static SAVE_SESSION: Sql = Sql::new(
    "UPDATE contexture.sessions SET next_id = $3, format = $4, recovered = $5, pauses_more = $6,
         pauses_saved = $7, usage = $8, used_ms = $9, archived_ms = $10,
         compactions = CASE WHEN compactions < $11 THEN $11 ELSE compactions END
     WHERE tenant = $1 AND session = $2",
);

static MOVE_CURSOR: Sql = Sql::new(
    "UPDATE contexture.sessions SET engine = $3, shown_last = $4, pending_cut = $5
     WHERE tenant = $1 AND session = $2",
);

/// Without its text, a message that was cut off is a hash that nobody can look up.
static DROP_CUT: Sql = Sql::new(
    "DELETE FROM contexture.messages WHERE tenant = $1 AND session = $2 AND id > $3 AND wire IS NULL",
);

static CUT: Sql = Sql::new(
    "UPDATE contexture.messages SET cut = true WHERE tenant = $1 AND session = $2 AND id > $3",
);

/// If a message comes back, it keeps its first time of arrival. It keeps its text only if its content
/// is still the same: otherwise the transcript would show words that were not said.
static LOG: Sql = Sql::new(
    "INSERT INTO contexture.messages (tenant, session, id, identity, shape, chain, replaces, arrived_ms)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
     ON CONFLICT (tenant, session, id) DO UPDATE
     SET identity = excluded.identity, shape = excluded.shape, chain = excluded.chain,
         replaces = excluded.replaces, cut = false,
         wire = CASE WHEN messages.identity = excluded.identity THEN messages.wire END",
);

static RESTORE_MESSAGE: Sql = Sql::new(
    "INSERT INTO contexture.messages (tenant, session, id, identity, shape, chain, replaces, cut, said_ms,
         arrived_ms, wire, part)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
);

/// A time that is known stays if the message comes again without one, as in another client's request.
static NOTE_TEXT: Sql = Sql::new(
    "UPDATE contexture.messages SET wire = $4, part = $5, said_ms = coalesce($6, said_ms)
     WHERE tenant = $1 AND session = $2 AND id = $3",
);

/// The number of the last wire message, or zero.
pub(crate) static LAST_TEXT: Sql = Sql::new(
    "SELECT coalesce(max(number), 0) FROM contexture.texts WHERE tenant = $1 AND session = $2",
);

static ADD_TEXT: Sql = Sql::new(
    "INSERT INTO contexture.texts (tenant, session, number, format, tools, reading, bytes, checksum, data)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
);

static PUT_ARTIFACT: Sql = Sql::new(
    "INSERT INTO contexture.artifacts (tenant, session, engine, name, bytes, checksum, data)
     VALUES ($1, $2, $3, $4, $5, $6, $7)
     ON CONFLICT (tenant, session, engine, name) DO UPDATE
     SET bytes = excluded.bytes, checksum = excluded.checksum, data = excluded.data",
);

static DELETE_ARTIFACT: Sql = Sql::new(
    "DELETE FROM contexture.artifacts WHERE tenant = $1 AND session = $2 AND engine = $3 AND name = $4",
);

static CUT_WIRE: Sql = Sql::new(
    "DELETE FROM contexture.wire WHERE tenant = $1 AND session = $2 AND form = $3 AND place >= $4",
);

static ADD_WIRE: Sql = Sql::new(
    "INSERT INTO contexture.wire (tenant, session, form, place, raw, messages)
     VALUES ($1, $2, $3, $4, $5, $6)",
);

static FORGET_WRITTEN: Sql =
    Sql::new("DELETE FROM contexture.written WHERE tenant = $1 AND session = $2");

/// If the same text is there for the same message, it gets the new extent, as when a summary comes to
/// cover more.
static PUT_WRITTEN: Sql = Sql::new(
    "INSERT INTO contexture.written (tenant, session, identity, id, shortens, covers)
     VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (tenant, session, identity, id) DO UPDATE
     SET shortens = excluded.shortens, covers = excluded.covers",
);

static FORGET_COMPACTION: Sql =
    Sql::new("DELETE FROM contexture.compactions WHERE tenant = $1 AND session = $2");

/// There is one row for each session: earlier windows are of no use, because a window is always whole.
static PUT_COMPACTION: Sql = Sql::new(
    "INSERT INTO contexture.compactions (tenant, session, number, engine, entries)
     VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (tenant, session) DO UPDATE
     SET number = excluded.number, engine = excluded.engine, entries = excluded.entries",
);

static PUT_KEPT: Sql = Sql::new(
    "INSERT INTO contexture.kept (tenant, session, name, value) VALUES ($1, $2, $3, $4)
     ON CONFLICT (tenant, session, name) DO UPDATE SET value = excluded.value",
);

/// The columns that [`session`] reads.
pub(crate) const SESSION: &str =
    "next_id, engine, format, shown_last, pending_cut, recovered, pauses_more,
    pauses_saved, compactions, usage";

/// The columns of a [`MessageRow`] but the last, which says whether it is outdated. That one is
/// expensive to find out, so each query adds it, or `false` if nobody asks.
macro_rules! message_columns {
    () => {
        "messages.id, messages.identity, messages.shape, messages.chain, messages.replaces, messages.said_ms,
         messages.arrived_ms, messages.wire, messages.part, messages.cut"
    };
}
pub(crate) const MESSAGE: &str = message_columns!();

/// Messages by a rule. Whether they are outdated is not computed.
macro_rules! messages_where {
    ($rule:literal) => {
        Sql::new(concat!(
            "SELECT ",
            message_columns!(),
            ", false FROM contexture.messages WHERE tenant = $1 AND session = $2 ",
            $rule,
            " ORDER BY id"
        ))
    };
}

/// The queries for [`Select::All`](crate::store::Select), `Log` and `WithoutText`.
pub(crate) static MESSAGES: Sql = messages_where!("");
pub(crate) static MESSAGES_OF_LOG: Sql = messages_where!("AND NOT cut");
pub(crate) static MESSAGES_WITHOUT_TEXT: Sql = messages_where!("AND NOT cut AND wire IS NULL");

pub(crate) static TEXTS: Sql = Sql::new(
    "SELECT number, format, tools, reading, bytes, checksum, data FROM contexture.texts
     WHERE tenant = $1 AND session = $2 ORDER BY number",
);

pub(crate) static ARTIFACTS: Sql = Sql::new(
    "SELECT engine, name, bytes, checksum, data FROM contexture.artifacts
     WHERE tenant = $1 AND session = $2 ORDER BY engine, name",
);

pub(crate) static WIRE: Sql = Sql::new(
    "SELECT form, place, raw, messages FROM contexture.wire
     WHERE tenant = $1 AND session = $2 ORDER BY form, place",
);

pub(crate) static WRITTEN: Sql = Sql::new(
    "SELECT identity, id, shortens, covers FROM contexture.written
     WHERE tenant = $1 AND session = $2 ORDER BY id, identity",
);

pub(crate) static COMPACTION: Sql = Sql::new(
    "SELECT number, engine, entries FROM contexture.compactions WHERE tenant = $1 AND session = $2",
);

pub(crate) static KEPT: Sql = Sql::new(
    "SELECT name, value FROM contexture.kept WHERE tenant = $1 AND session = $2 ORDER BY name",
);

/// What writes a commit. `last_text` is the number of the last wire message, from which new ones are
/// numbered on.
pub(crate) fn of_commit(commit: &Commit, last_text: i64) -> Vec<Statement<'_>> {
    let row = &commit.session;
    let mut list = vec![save_session(row, Some(commit.now_ms), None)];
    if commit.moves_cursor {
        list.push(move_cursor(row));
    }
    // The log comes before the texts, because a text is noted in the rows of its messages.
    if let Some(LogEnd { kept, messages }) = &commit.log {
        list.push(statement!(DROP_CUT, *kept));
        list.push(statement!(CUT, *kept));
        list.extend(messages.iter().map(|row| {
            statement!(
                LOG,
                row.id,
                &row.identity[..],
                row.shape,
                row.chain,
                row.replaces,
                commit.now_ms
            )
        }));
    }
    list.extend((commit.dictionary.as_ref()).map(|row| add_text(row.number, row)));
    for (number, new) in (last_text + 1..).zip(&commit.texts) {
        list.push(add_text(number, &new.row));
        let parts = new.parts.iter();
        list.extend(
            parts.map(|part| statement!(NOTE_TEXT, part.id, number, part.part, part.said_ms)),
        );
    }
    list.extend(commit.artifacts.iter().map(change_artifact));
    for end in &commit.wires {
        list.push(statement!(CUT_WIRE, end.form, end.from));
        list.extend(end.wires.iter().map(add_wire));
    }
    // Before the new texts, which would be deleted with the old ones otherwise.
    if commit.forgot {
        list.push(statement!(FORGET_WRITTEN));
    }
    list.extend(commit.written.iter().map(put_written));
    match &commit.compaction {
        None => {}
        Some(Some(compaction)) => list.push(put_compaction(compaction)),
        Some(None) => list.push(statement!(FORGET_COMPACTION)),
    }
    list
}

/// What writes everything that is stored of a session into one that was made just now. Numbers of
/// texts and ids of messages stay as they are, since other rows refer to them.
pub(crate) fn of_dump(dump: &SessionDump) -> Vec<Statement<'_>> {
    let row = &dump.row;
    let mut list = vec![
        save_session(row, dump.used_ms, dump.archived_ms),
        move_cursor(row),
    ];
    list.extend(dump.messages.iter().map(|row| {
        statement!(
            RESTORE_MESSAGE,
            row.id,
            &row.identity[..],
            row.shape,
            row.chain,
            row.replaces,
            row.cut,
            row.said_ms,
            row.arrived_ms,
            row.wire,
            row.part
        )
    }));
    list.extend(dump.texts.iter().map(|text| add_text(text.number, text)));
    list.extend(dump.artifacts.iter().map(change_artifact));
    list.extend(dump.wire.iter().map(add_wire));
    list.extend(dump.written.iter().map(put_written));
    list.extend(dump.compaction.as_ref().map(put_compaction));
    list
}

/// What stores texts of embedders, each in place of the one with its name.
pub(crate) fn of_kept(texts: &[(impl AsRef<str>, impl AsRef<str>)]) -> Vec<Statement<'_>> {
    let texts = texts.iter();
    texts
        .map(|(name, text)| statement!(PUT_KEPT, name.as_ref(), text.as_ref()))
        .collect()
}

fn save_session(row: &SessionRow, used_ms: Option<i64>, archived_ms: Option<i64>) -> Statement<'_> {
    statement!(
        SAVE_SESSION, row.next_id, &*row.format, row.recovered, row.pauses_more, row.pauses_saved,
        &*row.usage, used_ms, archived_ms, row.compactions,
    )
}

fn move_cursor(row: &SessionRow) -> Statement<'_> {
    statement!(MOVE_CURSOR, &*row.engine, row.shown_last, row.pending_cut)
}

fn add_text(number: i64, row: &TextRow) -> Statement<'_> {
    let (tools, reading, text) = (row.tools.as_deref(), row.reading.as_deref(), &row.text);
    statement!(
        ADD_TEXT, number, &*row.format, tools, reading, text.bytes, text.checksum, &*text.data
    )
}

/// Stores an artifact in place of the one with its name, or deletes it if there is no text.
fn change_artifact(artifact: &ArtifactChange) -> Statement<'_> {
    let (engine, name) = (&*artifact.engine, &*artifact.name);
    match &artifact.text {
        Some(text) => {
            statement!(
                PUT_ARTIFACT, engine, name, text.bytes, text.checksum, &*text.data
            )
        }
        None => statement!(DELETE_ARTIFACT, engine, name),
    }
}

fn add_wire(wire: &WireRow) -> Statement<'_> {
    statement!(ADD_WIRE, wire.form, wire.place, wire.raw, &*wire.messages)
}

fn put_written(text: &WrittenRow) -> Statement<'_> {
    statement!(
        PUT_WRITTEN,
        &text.identity[..],
        text.id,
        text.shortens,
        &*text.covers
    )
}

fn put_compaction(row: &CompactionRow) -> Statement<'_> {
    statement!(PUT_COMPACTION, row.number, &*row.engine, &*row.entries)
}

/// A value that both backends can read from a column.
#[cfg(feature = "postgres")]
pub(crate) trait Column:
    types::FromSql + for<'r> tokio_postgres::types::FromSql<'r>
{
}
#[cfg(feature = "postgres")]
impl<T: types::FromSql + for<'r> tokio_postgres::types::FromSql<'r>> Column for T {}

/// A value that the backend can read from a column.
#[cfg(not(feature = "postgres"))]
pub(crate) use types::FromSql as Column;

/// A row of either backend.
pub(crate) trait Columns {
    type Error;

    fn at<T: Column>(&self, at: usize) -> Result<T, Self::Error>;

    /// The 16 bytes of an identity.
    fn identity(&self, at: usize) -> Result<[u8; 16], Self::Error>;
}

impl Columns for rusqlite::Row<'_> {
    type Error = rusqlite::Error;

    fn at<T: Column>(&self, at: usize) -> rusqlite::Result<T> {
        self.get(at)
    }

    fn identity(&self, at: usize) -> rusqlite::Result<[u8; 16]> {
        self.get(at)
    }
}

/// The row of a session, from the columns [`SESSION`].
pub(crate) fn session<R: Columns>(row: &R) -> Result<SessionRow, R::Error> {
    Ok(SessionRow {
        next_id: row.at(0)?,
        engine: row.at(1)?,
        format: row.at(2)?,
        shown_last: row.at(3)?,
        pending_cut: row.at(4)?,
        recovered: row.at(5)?,
        pauses_more: row.at(6)?,
        pauses_saved: row.at(7)?,
        compactions: row.at(8)?,
        usage: row.at(9)?,
    })
}

/// A message, from the columns [`MESSAGE`] and whether it is outdated.
pub(crate) fn message<R: Columns>(row: &R) -> Result<MessageRow, R::Error> {
    Ok(MessageRow {
        id: row.at(0)?,
        identity: row.identity(1)?,
        shape: row.at(2)?,
        chain: row.at(3)?,
        replaces: row.at(4)?,
        said_ms: row.at(5)?,
        arrived_ms: row.at(6)?,
        wire: row.at(7)?,
        part: row.at(8)?,
        cut: row.at(9)?,
        is_outdated: row.at(10)?,
    })
}

/// A wire message, from the columns of [`TEXTS`].
pub(crate) fn text<R: Columns>(row: &R) -> Result<TextRow, R::Error> {
    Ok(TextRow {
        number: row.at(0)?,
        format: row.at(1)?,
        tools: row.at(2)?,
        reading: row.at(3)?,
        text: packed(row, 4)?,
    })
}

/// A text, from the columns `bytes`, `checksum` and `data` from index `at` on.
pub(crate) fn packed<R: Columns>(row: &R, at: usize) -> Result<Packed, R::Error> {
    Ok(Packed {
        bytes: row.at(at)?,
        checksum: row.at(at + 1)?,
        data: row.at(at + 2)?,
    })
}

pub(crate) fn artifact<R: Columns>(row: &R) -> Result<ArtifactChange, R::Error> {
    Ok(ArtifactChange {
        engine: row.at(0)?,
        name: row.at(1)?,
        text: Some(packed(row, 2)?),
    })
}

pub(crate) fn wire<R: Columns>(row: &R) -> Result<WireRow, R::Error> {
    Ok(WireRow {
        form: row.at(0)?,
        place: row.at(1)?,
        raw: row.at(2)?,
        messages: row.at(3)?,
    })
}

pub(crate) fn written<R: Columns>(row: &R) -> Result<WrittenRow, R::Error> {
    Ok(WrittenRow {
        identity: row.identity(0)?,
        id: row.at(1)?,
        shortens: row.at(2)?,
        covers: row.at(3)?,
    })
}

pub(crate) fn compaction<R: Columns>(row: &R) -> Result<CompactionRow, R::Error> {
    Ok(CompactionRow {
        number: row.at(0)?,
        engine: row.at(1)?,
        entries: row.at(2)?,
    })
}

/// Two texts.
pub(crate) fn pair<R: Columns>(row: &R) -> Result<(String, String), R::Error> {
    Ok((row.at(0)?, row.at(1)?))
}

/// A session in a list, from its name, its engine, when it was made, used and archived, its messages,
/// those of the conversation, its bytes, and when the latest message was said.
pub(crate) fn summary<R: Columns>(row: &R) -> Result<SessionSummary, R::Error> {
    let count = |at| row.at::<i64>(at).map(i64::cast_unsigned);
    Ok(SessionSummary {
        session: row.at(0)?,
        engine: row.at(1)?,
        created_ms: row.at(2)?,
        used_ms: row.at(3)?,
        archived_ms: row.at(4)?,
        messages: count(5)?,
        in_conversation: count(6)?,
        bytes: count(7)?,
        said_ms: row.at(8)?,
    })
}

/// What was delivered of a session, from its name, its engine, the last message, and the number of
/// messages.
pub(crate) fn delivered<R: Columns>(row: &R) -> Result<Delivered, R::Error> {
    Ok(Delivered {
        session: row.at(0)?,
        engine: row.at(1)?,
        last: row.at::<Option<i64>>(2)?.map(message_id),
        messages: row.at::<i64>(3)?.cast_unsigned(),
    })
}

//! Finds the logs of all agents, and stores what is new in them.
//!
//! [`Importer::run`] compares every log with what the database knows about it. A log that looks as
//! it did is not opened. A log of lines that grew is read from where the last import ended.
//! Anything else is read again as a whole, and what is stored already is recognised.
//!
//! Memory is bounded: a log of lines is read line by line, and a document of several conversations
//! one by one. Only a document that is a single JSON value is held at once, up to
//! [`MAX_DOCUMENT`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use contexture_engine_api::{
    has_sqlite_log, immutable_uri, make_private_folder, private_file_options,
};
use rusqlite::{Connection, OpenFlags};

use crate::FILE_NAME;
use crate::error::HistoryError;
use crate::output::{Event, Output};
use crate::places::Places;
use crate::readers::{self, Log, Read};
use crate::sources::{self, Skipped, Source, Stamp};
use crate::writer::{self, Writer};

/// The largest JSON document that is held in memory, in bytes. A larger one is skipped. Parsed, a
/// document takes several times as much.
const MAX_DOCUMENT: u64 = 256 << 20;

/// The longest line, in bytes. A longer one is skipped. Agents write pictures into their lines, so
/// the limit is generous. Without one, a file that has no line breaks would be held in memory.
const MAX_LINE: usize = 64 << 20;

/// What editors on Windows write at the beginning of a text. It is no part of it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The number of groups of entries that wait for the writer. If they are full, the reader waits.
pub(crate) const WAITING: usize = 8;

/// How far an import is, in bytes of the logs that have to be read. The total is reckoned before
/// reading begins. If an agent writes meanwhile, `done` stays at the total until the import ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The bytes that were read.
    pub done: u64,
    /// All bytes that have to be read.
    pub total: u64,
}

/// What an import did.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[non_exhaustive]
pub struct ImportReport {
    /// What was read of each agent, by name.
    pub agents: BTreeMap<String, AgentReport>,
    /// The logs, or parts of them, that could not be read.
    pub skipped: Vec<Skipped>,
    /// Whether the import was stopped before its end. The next one goes on there.
    pub stopped: bool,
}

/// What an import read of an agent.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[non_exhaustive]
pub struct AgentReport {
    /// The number of logs that exist.
    pub logs: u64,
    /// The number of logs that were read, because they are new or changed.
    pub read: u64,
    /// The bytes that were read.
    pub bytes: u64,
    /// The messages that were found in what was read. Those that were stored already are counted,
    /// too.
    pub messages: u64,
}

impl ImportReport {
    /// The number of messages in what was read.
    pub fn messages(&self) -> u64 {
        self.agents.values().map(|agent| agent.messages).sum()
    }
}

/// Imports logs into the history of a home directory. While one exists, no other process can import
/// into the same history.
pub struct Importer {
    path: PathBuf,
    db: Connection,
    redacts: bool,
    /// Holds the lock until the importer is dropped.
    _lock: File,
}

impl Importer {
    /// Opens the history in a home directory of Contexture, and creates it if it does not exist. If
    /// `redacts` is set, secrets are masked before anything is stored.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, if it was written by another version, or if another
    /// process is importing.
    pub fn open(home: &Path, redacts: bool) -> Result<Self, HistoryError> {
        make_private_folder(home).map_err(|source| HistoryError::Create {
            path: home.to_owned(),
            source,
        })?;
        let path = home.join(FILE_NAME);
        let lock_path = path.with_extension("lock");
        let lock = private_file_options()
            .create(true)
            .append(true)
            .open(&lock_path);
        let lock = lock.map_err(|source| HistoryError::Create {
            path: lock_path,
            source,
        })?;
        // Some file systems have no locks. To go on there would be a risk: if two imports ran at
        // once, both would store the same messages.
        if lock.try_lock().is_err() {
            return Err(HistoryError::Busy { path });
        }
        Ok(Self {
            db: writer::open(&path)?,
            path,
            redacts,
            _lock: lock,
        })
    }

    /// Imports what is new in the logs of all agents. If `named` has paths, only the logs there are
    /// imported, whatever they are called. `progress` is called often; if it returns false, the
    /// import stops, and what was read until then is stored.
    ///
    /// # Errors
    /// Fails if the database cannot be written. A log that cannot be read is skipped and reported.
    pub fn run(
        &mut self,
        places: &Places<'_>,
        named: &[PathBuf],
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<ImportReport, HistoryError> {
        let fail = writer::failed(&self.path);
        let known = writer::known_sources(&self.db).map_err(&fail)?;
        let mut report = ImportReport::default();
        let logs = match named.is_empty() {
            true => readers::find(places),
            false => readers::recognise_all(named, &mut report.skipped),
        };
        let mut pending = Vec::new();
        for log in logs {
            let agent = report
                .agents
                .entry(log.format.agent.to_owned())
                .or_default();
            agent.logs += 1;
            // The stamp is taken before the log is read. If the agent writes meanwhile, the stamp
            // of the next import differs, and nothing is missed.
            match Stamp::of(&log.path) {
                Ok(stamp) => {
                    let before = known.get(&*log.path.to_string_lossy()).copied();
                    if before.is_none_or(|before| before.stamp != Some(stamp)) {
                        pending.push((stamp, log, before));
                    }
                }
                Err(error) => report.skipped.push(skipped(&log, 0, &error)),
            }
        }
        // Oldest first, so that ids rise with time and a search can begin with the newest.
        pending.sort_by_key(|(stamp, ..)| stamp.changed);
        let unread = |(stamp, log, before): &(Stamp, Log, Option<Source>)| match log.format.read {
            Read::Lines { .. } => stamp
                .size
                .saturating_sub(before.map_or(0, |before| before.offset)),
            _ => stamp.size,
        };
        let total = pending.iter().map(unread).sum();
        if pending.is_empty() {
            return Ok(report);
        }
        let (sender, receiver) = sync_channel::<Vec<Event>>(WAITING);
        let db = &mut self.db;
        let redacts = self.redacts;
        let written = std::thread::scope(|scope| {
            let writing = scope.spawn(move || {
                let mut writer = Writer::new(db)?;
                for events in receiver {
                    events
                        .into_iter()
                        .try_for_each(|event| writer.write(event))?;
                }
                writer.commit()
            });
            let mut reading = Reading {
                sender: &sender,
                redacts,
                progress,
                done: 0,
                total,
            };
            for (stamp, log, before) in &pending {
                // A writer that has ended before its channel is closed has failed. Its error is
                // returned below.
                if writing.is_finished() || !reading.goes_on(0) {
                    report.stopped = true;
                    break;
                }
                reading.log(log, *stamp, *before, &mut report);
            }
            // The writer ends when the channel is closed. Without this, `join` would wait for it
            // forever.
            drop(sender);
            writing.join()
        });
        match written {
            Ok(written) => written.map_err(fail)?,
            // A panic is a bug of this program. As an error of the database it would send the user
            // looking in the wrong place.
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(report)
    }
}

fn skipped(log: &Log, parts: u64, why: &dyn std::fmt::Display) -> Skipped {
    Skipped {
        path: log.path.clone(),
        parts,
        why: why.to_string(),
    }
}

/// Reads one log from its beginning and sends what is in it, as an import does. Nothing is masked,
/// because nothing is stored. `progress` is called often; if it returns false, the reading stops.
/// Returns what could not be read.
pub(crate) fn read_log(
    log: &Log,
    sender: &SyncSender<Vec<Event>>,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Vec<Skipped> {
    let mut report = ImportReport::default();
    match Stamp::of(&log.path) {
        Ok(stamp) => {
            let mut reading = Reading {
                sender,
                redacts: false,
                progress,
                done: 0,
                total: stamp.size,
            };
            reading.log(log, stamp, None, &mut report);
        }
        Err(error) => report.skipped.push(skipped(log, 0, &error)),
    }
    report.skipped
}

/// Why a log was not read to its end.
enum Ended {
    /// The caller wants no more. What was read is stored.
    Stopped,
    /// It cannot be read.
    Unreadable(String),
}

impl<E: std::fmt::Display> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// How far a log was read, as the next import gets it back in [`Source`].
struct ReadTo {
    offset: u64,
    tail: u64,
}

/// The state of a run while it reads.
struct Reading<'a> {
    sender: &'a SyncSender<Vec<Event>>,
    redacts: bool,
    progress: &'a mut dyn FnMut(Progress) -> bool,
    done: u64,
    total: u64,
}

impl Reading<'_> {
    /// Counts bytes that were read. Returns whether the import goes on.
    fn goes_on(&mut self, bytes: u64) -> bool {
        self.done += bytes;
        (self.progress)(Progress {
            done: self.done.min(self.total),
            total: self.total,
        })
    }

    fn log(&mut self, log: &Log, stamp: Stamp, before: Option<Source>, report: &mut ImportReport) {
        let mut out = Output::new(self.sender, self.redacts);
        let done = self.done;
        let read = self.read(log, before, &mut out);
        let agent = report
            .agents
            .entry(log.format.agent.to_owned())
            .or_default();
        agent.read += 1;
        agent.messages += out.entries;
        agent.bytes += self.done - done;
        if let Some(why) = &out.damage {
            report.skipped.push(skipped(log, out.damaged, why));
        }
        // If the log was not read to its end, no event says so. It has no stamp then, and is read
        // on at the next import.
        match read {
            Ok(ReadTo { offset, tail }) => {
                out.put(Event::End {
                    stamp,
                    offset,
                    tail,
                });
            }
            Err(Ended::Stopped) => report.stopped = true,
            Err(Ended::Unreadable(why)) => report.skipped.push(skipped(log, 0, &why)),
        }
        out.flush();
    }

    fn read(
        &mut self,
        log: &Log,
        before: Option<Source>,
        out: &mut Output<'_>,
    ) -> Result<ReadTo, Ended> {
        let Log { path, format } = log;
        let whole = ReadTo { offset: 0, tail: 0 };
        let begin = |out: &mut Output<'_>, is_again| {
            out.put(Event::Source {
                path: path.to_string_lossy().into_owned(),
                agent: format.agent,
                is_again,
            });
        };
        if let Read::Lines { read, project } = &format.read {
            return self.lines(log, before, *read, project, out, begin);
        }
        // Without positions, everything in the log comes again, and the writer has to look up what
        // it has stored.
        begin(out, before.is_some());
        out.conversation(
            &session_of(path),
            (format.project_of_path)(path).as_deref(),
            None,
        );
        match &format.read {
            Read::Lines { .. } => {}
            Read::Document(read) => {
                let bytes = whole_document(path)?;
                read(path, &readers::json_of(&bytes)?, out);
                self.goes_on(bytes.len() as u64);
            }
            Read::Elements(read) => self.elements(path, *read, out)?,
            Read::Text(read) => {
                let bytes = whole_document(path)?;
                read(path, &String::from_utf8_lossy(&bytes), out);
                self.goes_on(bytes.len() as u64);
            }
            Read::Folder(read) => {
                read(path, out)?;
                self.goes_on(Stamp::of(path)?.size);
            }
            Read::Database(read) => {
                let since = before.map_or(0, |before| before.offset);
                let offset = read(&open_database(path)?, since, out)?;
                self.goes_on(Stamp::of(path)?.size);
                return Ok(ReadTo { offset, tail: 0 });
            }
        }
        Ok(whole)
    }

    /// Reads a log of lines from where the last import ended, or from its beginning if it was
    /// replaced. A last line without a line break is left for the next time if it cannot be read:
    /// the agent may be writing it.
    fn lines(
        &mut self,
        log: &Log,
        before: Option<Source>,
        read: readers::ReadLine,
        project: &str,
        out: &mut Output<'_>,
        begin: impl Fn(&mut Output<'_>, bool),
    ) -> Result<ReadTo, Ended> {
        let mut file = File::open(&log.path)?;
        let size = file.metadata()?.len();
        // A log that is shorter than what was read of it was replaced or cut off.
        let continued = before.filter(|before| before.offset <= size);
        let continued = match continued {
            Some(before)
                if before.tail != 0 && sources::tail(&mut file, before.offset)? != before.tail =>
            {
                None
            }
            other => other,
        };
        let mut offset = continued.map_or(0, |before| before.offset);
        // What follows the old end is new. If the log is continued, the writer need not load what
        // it has stored of the conversation, which may be thousands of messages.
        begin(out, before.is_some() && continued.is_none());
        out.conversation(
            &session_of(&log.path),
            project_of(&mut file, project)?
                .or_else(|| (log.format.project_of_path)(&log.path))
                .as_deref(),
            None,
        );
        file.seek(SeekFrom::Start(offset))?;
        let mut lines = Lines {
            input: BufReader::with_capacity(1 << 20, file),
            line: Vec::new(),
        };
        while let Some(line) = lines.next()? {
            let end = offset + line.bytes;
            if !line.text.trim_ascii().is_empty() {
                let at = offset;
                let result = match (line.is_too_long, std::str::from_utf8(line.text)) {
                    (true, _) => Err(format!("the line has more than {} MB", MAX_LINE >> 20)),
                    (_, Ok(text)) => read(text.trim(), out),
                    (_, Err(error)) => Err(error.to_string()),
                };
                match result {
                    Ok(()) => {}
                    Err(_) if !line.is_ended => break,
                    Err(why) => {
                        out.damaged(|| format!("the line at byte {at} cannot be read: {why}"))
                    }
                }
            }
            let bytes = line.bytes;
            offset = end;
            out.put(Event::At(offset));
            if !self.goes_on(bytes) {
                return Err(Ended::Stopped);
            }
        }
        // The hash is of the bytes before the offset, and not of those at the end of the file,
        // because the agent may have written more since.
        let mut file = lines.input.into_inner();
        Ok(ReadTo {
            offset,
            tail: sources::tail(&mut file, offset)?,
        })
    }

    /// Reads the elements of a JSON array one after the other. One that cannot be read is counted.
    fn elements(
        &mut self,
        path: &Path,
        read: readers::ReadElement,
        out: &mut Output<'_>,
    ) -> Result<(), Ended> {
        let mut elements = Elements {
            input: BufReader::with_capacity(1 << 20, File::open(path)?),
            element: Vec::new(),
            is_begun: false,
        };
        let mut number = 0;
        loop {
            let element = elements.next()?;
            match (element.ends, element.text) {
                // What comes before the damage is stored. The log counts as read, so it is not
                // tried again until it changes.
                (Ends::NoList, _) => {
                    out.damaged(|| "the rest cannot be read: it is not a list".to_owned());
                }
                (Ends::File, _) => {
                    out.damaged(|| {
                        "the rest cannot be read: the file ends inside the list".to_owned()
                    });
                }
                (_, None) => {
                    out.damaged(|| {
                        let most = MAX_DOCUMENT >> 20;
                        format!("element {number} of the list has more than {most} MB")
                    });
                }
                (_, Some(text)) if text.trim_ascii().is_empty() => {}
                (_, Some(text)) => match readers::json_of(text) {
                    Ok(value) => read(path, &value, out),
                    Err(error) => out.damaged(|| {
                        format!("element {number} of the list cannot be read: {error}")
                    }),
                },
            }
            let goes_on = self.goes_on(element.bytes);
            if element.ends != Ends::Element {
                return Ok(());
            }
            if !goes_on {
                return Err(Ended::Stopped);
            }
            number += 1;
        }
    }
}

/// What comes after an element of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Another element or the beginning of the list.
    Element,
    /// The end of the list.
    List,
    /// The end of the file.
    File,
    /// What was read is no list.
    NoList,
}

/// An element of a JSON array.
struct Element<'a> {
    /// `None` if it is longer than [`MAX_DOCUMENT`].
    text: Option<&'a [u8]>,
    /// The number of bytes that were read.
    bytes: u64,
    ends: Ends,
}

/// Splits a JSON array into its elements. It only looks at brackets and strings, so an element that
/// is not valid does not take those after it along.
struct Elements {
    input: BufReader<File>,
    element: Vec<u8>,
    /// Whether the bracket that opens the list was read.
    is_begun: bool,
}

impl Elements {
    /// Reads up to the next comma or the end of the list. At first, it reads the bracket that opens
    /// the list, and returns an empty element.
    fn next(&mut self) -> std::io::Result<Element<'_>> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        self.element.clear();
        let (mut bytes, mut depth) = (0, 0_u64);
        let (mut in_string, mut is_escaped) = (false, false);
        let mut ends = None;
        while ends.is_none() {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                ends = Some(Ends::File);
                break;
            }
            let mut length = buffer.len();
            for (at, byte) in buffer.iter().enumerate() {
                if is_first {
                    ends = match byte {
                        b' ' | b'\n' | b'\r' | b'\t' | 0xef | 0xbb | 0xbf => None,
                        b'[' => Some(Ends::Element),
                        _ => Some(Ends::NoList),
                    };
                } else if in_string {
                    in_string = is_escaped || *byte != b'"';
                    is_escaped = !is_escaped && *byte == b'\\';
                } else {
                    match byte {
                        b'"' => in_string = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' if depth > 0 => depth -= 1,
                        b'}' | b']' => ends = Some(Ends::List),
                        b',' if depth == 0 => ends = Some(Ends::Element),
                        _ => {}
                    }
                }
                if ends.is_some() {
                    length = at + 1;
                    break;
                }
            }
            bytes += length as u64;
            if bytes <= MAX_DOCUMENT && !is_first {
                let end = length - usize::from(ends.is_some());
                self.element.extend_from_slice(&buffer[..end]);
            }
            self.input.consume(length);
        }
        Ok(Element {
            text: (bytes <= MAX_DOCUMENT).then_some(&self.element),
            bytes,
            ends: ends.unwrap_or(Ends::File),
        })
    }
}

/// A line of a log.
struct LogLine<'a> {
    text: &'a [u8],
    /// The number of its bytes in the log, with its line break.
    bytes: u64,
    is_ended: bool,
    is_too_long: bool,
}

/// Reads lines with bounded memory.
struct Lines {
    input: BufReader<File>,
    line: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> std::io::Result<Option<LogLine<'_>>> {
        self.line.clear();
        let (mut bytes, mut is_ended) = (0, false);
        while !is_ended {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', buffer);
            let taken = end.map_or(buffer.len(), |end| end + 1);
            is_ended = end.is_some();
            // The rest of a line that is too long is read past and not kept, so that the next line
            // is found.
            if bytes <= MAX_LINE {
                self.line.extend_from_slice(&buffer[..taken]);
            }
            bytes += taken;
            self.input.consume(taken);
        }
        let is_too_long = bytes > MAX_LINE;
        if is_too_long {
            // This gives the memory back. The text is not empty, because empty lines are passed
            // over and this one has to be counted.
            self.line = Vec::from(&b"."[..]);
        }
        Ok((bytes > 0).then_some(LogLine {
            text: (self.line.strip_prefix(BYTE_ORDER_MARK)).unwrap_or(&self.line),
            bytes: bytes as u64,
            is_ended,
            is_too_long,
        }))
    }
}

/// The number of lines in which the project of a log is looked for. Agents name it in the first
/// line or in each message. If none of these lines does, the path of the log may tell.
const SEARCHED_LINES: usize = 100;

/// Finds the project in the first lines of a log. It has to be known before the first entry is
/// stored.
fn project_of(file: &mut File, pointer: &str) -> std::io::Result<Option<String>> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = Lines {
        // The copy shares its position with the file, so the caller has to seek before it reads on.
        input: BufReader::new(file.try_clone()?),
        line: Vec::new(),
    };
    for _ in 0..SEARCHED_LINES {
        let Some(line) = lines.next()? else { break };
        let line = std::str::from_utf8(line.text).ok();
        let found = line.and_then(|line| readers::project_in(line, pointer));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Reads a document that is held in memory. Its size is looked at before it is read, so a file that
/// is too large costs nothing.
fn whole_document(path: &Path) -> Result<Vec<u8>, Ended> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_DOCUMENT {
        let most = MAX_DOCUMENT >> 20;
        let why = format!(
            "it has {} MB, and a document of this format may have {most}",
            size >> 20
        );
        return Err(Ended::Unreadable(why));
    }
    let mut bytes = std::fs::read(path)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// The name of a conversation that has a log of its own: the name of the file or folder.
fn session_of(path: &Path) -> String {
    let name = match path.is_dir() {
        true => path.file_name(),
        false => path.file_stem(),
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Opens the database of an agent without changing anything. If no process has it open, SQLite is
/// told that nobody changes it, because it would create files beside it otherwise.
fn open_database(path: &Path) -> rusqlite::Result<Connection> {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = match has_sqlite_log(path) {
        true => Connection::open_with_flags(path, read_only)?,
        false => Connection::open_with_flags(
            immutable_uri(path),
            read_only | OpenFlags::SQLITE_OPEN_URI,
        )?,
    };
    // The agent may be writing. If it does not finish by then, the log is skipped with SQLite's
    // reason, and tried again at the next import.
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(db)
}

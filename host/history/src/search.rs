//! Questions to the history.
//!
//! [`History::search`] finds the messages that have all words of a question. It ranks the newest of
//! them by what they are, how long they are and how old: what people and the assistant said comes
//! before the output of tools, and a short message that has the words before a long one. If no
//! message has all words, it looks for those that have most of them, and says so.
//!
//! [`History::read`] returns a message with its neighbours. A tool call and its result always come
//! together.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use contexture_base::now_ms;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use crate::FILE_NAME;
use crate::entry::Kind;
use crate::error::HistoryError;
use crate::words::{self, Term};
use crate::writer;

/// The number of matching messages that are ranked, the newest ones. It bounds the time of a search
/// if a word is everywhere.
const RANKED: usize = 5_000;

/// The size of a snippet in bytes, which is about three lines of a terminal.
const SNIPPET: usize = 240;

/// The most bytes that a block of texts can have. A larger one is damaged, and must not fill the
/// memory while it is unpacked.
const MAX_BLOCK: usize = 512 << 20;

/// What to search for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Query {
    /// The words. All have to occur, in any order. Words in quotes have to follow each other, and a
    /// `*` after a word matches all words that begin with it.
    pub text: String,
    /// Only this project: its folder or the last part of it, or any part if no project is called
    /// so.
    pub project: Option<String>,
    /// Only this agent, by its name.
    pub agent: Option<String>,
    /// Only these kinds. All, if there are none.
    pub kinds: Vec<Kind>,
    /// Only what was said since then, in milliseconds since the Unix epoch. Messages without a time
    /// are left out if it is set.
    pub since_ms: Option<i64>,
    /// The most hits to return.
    pub limit: usize,
    /// Skip this many hits, to get the next page.
    pub offset: usize,
}

impl Query {
    /// A search for these words everywhere, which returns up to 20 hits.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            project: None,
            agent: None,
            kinds: Vec::new(),
            since_ms: None,
            limit: 20,
            offset: 0,
        }
    }
}

/// Parses the beginning of a time span: how long ago it was (`90m`, `12h`, `7d`, `2w`), or a date
/// or time in ISO 8601. Returns milliseconds since the Unix epoch, or `None` if it is neither or if
/// the number is too large.
pub fn parse_since(text: &str) -> Option<i64> {
    let text = text.trim();
    let minutes = match text.chars().last()? {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return contexture_formats::parse_time(text),
    };
    let count: i64 = text.get(..text.len() - 1)?.trim().parse().ok()?;
    Some(now_ms() - count.checked_mul(minutes * 60_000)?)
}

/// What a search found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Found {
    /// The best hits of the page.
    pub hits: Vec<Hit>,
    /// The number of different messages that match, at most 5,000.
    pub matches: usize,
    /// Whether `matches` is all. If not, there are older messages that were not ranked.
    pub is_complete: bool,
    /// Whether the hits have all words of the question, and not only some.
    pub has_all_words: bool,
}

/// A message that a search found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Hit {
    /// The message.
    #[serde(flatten)]
    pub message: Message,
    /// The part of its text around the words, in one line.
    pub snippet: String,
    /// Where the words are in the snippet, in bytes.
    pub matches: Vec<Range<usize>>,
    /// The number of other messages that say the same, such as copies in a session that was
    /// resumed.
    pub copies: usize,
}

/// A message, or a part of one.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Message {
    /// The id, for [`History::read`].
    pub id: String,
    /// The agent's name.
    pub agent: String,
    /// The project's folder, if the log names it.
    pub project: Option<String>,
    /// The id of the session in its agent.
    pub session: String,
    /// The title of the session, if it has one.
    pub title: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub time_ms: Option<i64>,
    /// What it is.
    pub kind: Kind,
    /// The tool's name.
    pub name: Option<String>,
    /// The text.
    #[serde(skip)]
    pub text: String,
    /// The log from which it was read. It may not exist any more.
    #[serde(skip)]
    pub log: PathBuf,
}

/// A message with its neighbours.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Excerpt {
    /// The messages in order. A result stands after its call.
    pub messages: Vec<Message>,
    /// The index of the message that was asked for.
    pub at: usize,
    /// Whether the conversation has messages before these.
    pub has_earlier: bool,
    /// Whether the conversation has messages after these.
    pub has_later: bool,
}

/// The history of a home directory, for reading. Imports may go on meanwhile, and every question
/// sees what was imported until then.
pub struct History {
    path: PathBuf,
    db: Connection,
}

/// A row of a candidate.
struct Candidate {
    id: i64,
    kind: Kind,
    time_ms: Option<i64>,
    length: i64,
    hash: i64,
    score: f64,
    copies: usize,
}

impl History {
    /// Opens the history in a home directory of Contexture. `None` if nothing was imported yet.
    ///
    /// # Errors
    /// Fails if the database cannot be read or was written by another version.
    pub fn open(home: &Path) -> Result<Option<Self>, HistoryError> {
        let path = home.join(FILE_NAME);
        Ok(writer::open_to_read(&path)?.map(|db| Self { path, db }))
    }

    /// Finds messages.
    ///
    /// # Errors
    /// Fails if the question has no words, if it names a project or an agent that the history does
    /// not have, or if the database cannot be read.
    pub fn search(&self, query: &Query) -> Result<Found, HistoryError> {
        let terms = words::terms(&query.text);
        if terms.is_empty() {
            return Err(HistoryError::NoWords(query.text.clone()));
        }
        let tags = self.tags(query)?;
        self.find(query, &terms, &tags)
            .map_err(writer::failed(&self.path))
    }

    fn find(&self, query: &Query, terms: &[Term], tags: &str) -> rusqlite::Result<Found> {
        let joined = |with: &str| {
            let terms: Vec<String> = terms.iter().map(Term::fts).collect();
            format!("text : ({}){tags}", terms.join(with))
        };
        let mut candidates = self.candidates(query, &joined(" AND "), false)?;
        let has_all_words = !candidates.is_empty() || terms.len() == 1;
        if !has_all_words {
            candidates = self.candidates(query, &joined(" OR "), true)?;
        }
        let is_complete = candidates.len() < RANKED;
        let mut places: HashMap<i64, usize> = HashMap::new();
        let mut ranked: Vec<Candidate> = Vec::new();
        // Of several copies, the first in this order is shown and the others are counted.
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
        for candidate in candidates {
            match places
                .get(&candidate.hash)
                .and_then(|at| ranked.get_mut(*at))
            {
                Some(same) => same.copies += 1,
                None => {
                    places.insert(candidate.hash, ranked.len());
                    ranked.push(candidate);
                }
            }
        }
        let matches = ranked.len();
        let mut blocks = Blocks::default();
        let page = ranked.into_iter().skip(query.offset).take(query.limit);
        let hits = page.map(|candidate| {
            let message = self.message(candidate.id, &mut blocks)?;
            let (snippet, matches) = snippet(&message, terms);
            Ok(Hit {
                message,
                snippet,
                matches,
                copies: candidate.copies,
            })
        });
        Ok(Found {
            hits: hits.collect::<rusqlite::Result<_>>()?,
            matches,
            is_complete,
            has_all_words,
        })
    }

    /// The newest messages that match an expression of FTS5, with their scores. If not all words
    /// have to match, how many and how rare they are counts first.
    fn candidates(
        &self,
        query: &Query,
        expression: &str,
        by_words: bool,
    ) -> rusqlite::Result<Vec<Candidate>> {
        // The ids rise with the time of the import, so a conversation that ended before cannot have
        // messages from then on.
        let first: i64 = match query.since_ms {
            None => 0,
            Some(since) => {
                let first = "SELECT coalesce(min(first), 9223372036854775807) FROM conversation WHERE newest >= ?1";
                self.db.query_row(first, [since], |row| row.get(0))?
            }
        };
        let now = now_ms();
        let mut candidates = Vec::new();
        for table in (writer::index_of(first)..writer::index_tables(&self.db)?).rev() {
            let word = writer::index_name(table);
            // BM25 costs a look at every match in the table, and a rare word is one that is rare
            // there. If a message has to have all words, its kind, length and age say more.
            let rank = match by_words {
                true => format!("{word}.rank"),
                false => "0.0".to_owned(),
            };
            let mut select = self.db.prepare(&format!(
                "SELECT message.id, kind, time, length, hash, {rank}
                 FROM {word} JOIN message ON message.id = {word}.rowid
                 WHERE {word} MATCH ?1 AND {word}.rowid >= ?2 AND coalesce(time >= ?3, ?3 IS NULL)
                 ORDER BY {word}.rowid DESC LIMIT ?4",
            ))?;
            let limit = (RANKED - candidates.len()) as i64;
            // The comparison with a time that is null is null, so messages without one are left out
            // if a time is asked for.
            let rows =
                select.query_map(params![expression, first, query.since_ms, limit], |row| {
                    let mut candidate = Candidate {
                        id: row.get(0)?,
                        kind: Kind::of_number(row.get(1)?),
                        time_ms: row.get(2)?,
                        length: row.get(3)?,
                        hash: row.get(4)?,
                        score: 0.0,
                        copies: 0,
                    };
                    // FTS5 ranks by BM25, and lower is better.
                    let by_words: f64 = row.get(5)?;
                    candidate.score = candidate.worth(now) - by_words;
                    Ok(candidate)
                })?;
            for candidate in rows {
                candidates.push(candidate?);
            }
            if candidates.len() == RANKED {
                break;
            }
        }
        Ok(candidates)
    }

    /// The part of the expression that selects projects, an agent and kinds.
    fn tags(&self, query: &Query) -> Result<String, HistoryError> {
        let fail = writer::failed(&self.path);
        let mut tags = String::new();
        if let Some(agent) = &query.agent {
            let known = self
                .names("SELECT DISTINCT agent FROM source ORDER BY agent")
                .map_err(&fail)?;
            if !known.contains(agent) {
                return Err(unknown("agent", agent, &known));
            }
            tags.push_str(&format!(" AND tags : \"{}\"", writer::agent_tag(agent)));
        }
        if let Some(project) = &query.project {
            let ids = self.projects(project).map_err(&fail)?;
            if ids.is_empty() {
                let known = self
                    .names("SELECT path FROM project ORDER BY id DESC")
                    .map_err(&fail)?;
                return Err(unknown("project", project, &known));
            }
            let ids: Vec<String> = ids.iter().map(|id| format!("\"p{id}\"")).collect();
            tags.push_str(&format!(" AND tags : ({})", ids.join(" OR ")));
        }
        if !query.kinds.is_empty() {
            let kinds: Vec<String> = query
                .kinds
                .iter()
                .map(|kind| format!("\"k{}\"", *kind as i64))
                .collect();
            tags.push_str(&format!(" AND tags : ({})", kinds.join(" OR ")));
        }
        Ok(tags)
    }

    fn names(&self, select: &str) -> rusqlite::Result<Vec<String>> {
        let mut names = self.db.prepare(select)?;
        let names = names.query_map([], |row| row.get(0))?;
        names.collect()
    }

    /// The ids of the projects that a name means. If a project has this folder or this last part of
    /// a folder, only these count. If none does, all whose path has the name in it count.
    fn projects(&self, name: &str) -> rusqlite::Result<Vec<i64>> {
        let mut all = self.db.prepare("SELECT id, path FROM project")?;
        let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let all: Vec<(i64, String)> = all.collect::<rusqlite::Result<_>>()?;
        let name = name.trim_end_matches(['/', '\\']).to_lowercase();
        let last = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default() == name;
        let is_named = |path: &str| path == name || last(path);
        let readings: [&dyn Fn(&str) -> bool; 2] = [&is_named, &|path| path.contains(&name)];
        let ids = |is_meant: &dyn Fn(&str) -> bool| -> Vec<i64> {
            let meant = all
                .iter()
                .filter(|(_, path)| is_meant(path.to_lowercase().trim_end_matches(['/', '\\'])));
            meant.map(|(id, _)| *id).collect()
        };
        Ok(readings
            .into_iter()
            .map(ids)
            .find(|ids| !ids.is_empty())
            .unwrap_or_default())
    }

    /// Returns a message, and up to `context` messages before and after it. The id is as a hit has
    /// it, with or without its `m`. `None` if there is no message with this id, or if it is no id.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn read(&self, id: &str, context: usize) -> Result<Option<Excerpt>, HistoryError> {
        let Ok(id) = id.trim().trim_start_matches('m').parse::<i64>() else {
            return Ok(None);
        };
        self.excerpt(id, context)
            .map_err(writer::failed(&self.path))
    }

    fn excerpt(&self, id: i64, context: usize) -> rusqlite::Result<Option<Excerpt>> {
        let own = "SELECT conversation, call FROM message WHERE id = ?1";
        let own = self
            .db
            .query_row(own, [id], |row| Ok((row.get(0)?, row.get(1)?)));
        let Some((conversation, call)): Option<(i64, Option<i64>)> = own.optional()? else {
            return Ok(None);
        };
        // One less than the maximum, because one is added to it.
        let limit = i64::try_from(context).unwrap_or(i64::MAX - 1);
        // One more than is shown tells whether there are others.
        let neighbours = |select: &str| -> rusqlite::Result<Vec<(i64, Option<i64>)>> {
            let mut select = self.db.prepare(select)?;
            let rows = select.query_map(params![conversation, id, limit + 1], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            rows.collect()
        };
        let mut before = neighbours(
            "SELECT id, call FROM message WHERE conversation = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
        )?;
        let mut after = neighbours(
            "SELECT id, call FROM message WHERE conversation = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
        )?;
        let has_earlier = before.len() > context;
        let has_later = after.len() > context;
        before.truncate(context);
        after.truncate(context);
        let mut shown: Vec<(i64, Option<i64>)> = before
            .into_iter()
            .chain([(id, call)])
            .chain(after)
            .collect();
        if let Some(call) = call {
            // Usually there is one. If an agent gives all calls the same id, the limit keeps the
            // excerpt short.
            let mut partners = self.db.prepare(
                "SELECT id FROM message WHERE conversation = ?1 AND call = ?2 ORDER BY id LIMIT 16",
            )?;
            let partners = partners.query_map([conversation, call], |row| row.get(0))?;
            for partner in partners {
                shown.push((partner?, Some(call)));
            }
        }
        shown.sort_unstable_by_key(|(id, _)| *id);
        shown.dedup_by_key(|(id, _)| *id);
        // A result stands where its call is. The map is filled from behind, so that the earliest
        // message of a call wins.
        let first: HashMap<i64, i64> = shown
            .iter()
            .rev()
            .filter_map(|(id, call)| Some(((*call)?, *id)))
            .collect();
        shown.sort_by_key(|(id, call)| {
            (
                call.and_then(|call| first.get(&call).copied())
                    .unwrap_or(*id),
                *id,
            )
        });
        let at = shown
            .iter()
            .position(|(shown, _)| *shown == id)
            .unwrap_or(0);
        let mut blocks = Blocks::default();
        let messages = shown.iter().map(|(id, _)| self.message(*id, &mut blocks));
        Ok(Some(Excerpt {
            messages: messages.collect::<rusqlite::Result<_>>()?,
            at,
            has_earlier,
            has_later,
        }))
    }

    fn message(&self, id: i64, blocks: &mut Blocks) -> rusqlite::Result<Message> {
        let mut select = self.db.prepare_cached(
            "SELECT message.kind, message.time, message.name, message.block, message.start, message.length,
                    conversation.agent, conversation.session, conversation.title, project.path, source.path
             FROM message JOIN conversation ON conversation.id = message.conversation
             JOIN source ON source.id = conversation.source LEFT JOIN project ON project.id = conversation.project
             WHERE message.id = ?1",
        )?;
        select.query_row([id], |row| {
            Ok(Message {
                id: format!("m{id}"),
                kind: Kind::of_number(row.get(0)?),
                time_ms: row.get(1)?,
                name: row.get(2)?,
                text: blocks.text(&self.db, row)?,
                agent: row.get(6)?,
                session: row.get(7)?,
                title: row.get(8)?,
                project: row.get(9)?,
                log: PathBuf::from(row.get::<_, String>(10)?),
            })
        })
    }
}

/// The error for a name that the history does not have. It lists up to 20 names that exist, so that
/// the user sees how the right one is spelt.
fn unknown(what: &'static str, name: &str, known: &[String]) -> HistoryError {
    let shown: Vec<&str> = known.iter().take(20).map(String::as_str).collect();
    let more = known.len() - shown.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    HistoryError::Unknown {
        what,
        name: name.to_owned(),
        known: match shown.is_empty() {
            true => "none yet".to_owned(),
            false => shown.join(", ") + &more,
        },
    }
}

impl Candidate {
    /// How much the message is worth to somebody who searches, between 0 and 1. The weights order
    /// messages that match equally well. If not all words have to match, BM25 is added, which
    /// outweighs them.
    fn worth(&self, now: i64) -> f64 {
        let kind = match self.kind {
            Kind::User | Kind::Assistant => 1.0,
            Kind::Summary | Kind::Attachment | Kind::ToolCall => 0.8,
            Kind::ToolResult | Kind::Thinking => 0.6,
            Kind::Note => 0.4,
        };
        // 500 bytes are a paragraph. The logarithm keeps long results from disappearing.
        let length = 1.0 / (1.0 + (1.0 + self.length as f64 / 500.0).ln());
        // A message without a time counts as a year old. If the clock went back, messages from the
        // future count as new.
        let days = self
            .time_ms
            .map_or(365.0, |time| (now - time).max(0) as f64 / 86_400_000.0);
        // Age takes at most half. An old answer that says it in a sentence is still before a new
        // log of a build.
        kind * length * (0.5 + 0.5 * (-days / 60.0).exp())
    }
}

/// Blocks of texts that were opened for a question.
#[derive(Default)]
struct Blocks(HashMap<i64, Vec<u8>>);

impl Blocks {
    /// The text of a message, whose block, start and length are in the columns 3 to 5.
    fn text(&mut self, db: &Connection, row: &Row<'_>) -> rusqlite::Result<String> {
        let block: i64 = row.get(3)?;
        let (start, length): (usize, usize) = (
            row.get::<_, i64>(4)? as usize,
            row.get::<_, i64>(5)? as usize,
        );
        if let std::collections::hash_map::Entry::Vacant(vacant) = self.0.entry(block) {
            let mut select = db.prepare_cached("SELECT text FROM block WHERE id = ?1")?;
            let packed: Vec<u8> = select.query_row([block], |row| row.get(0))?;
            let text = unpack(&packed).map_err(|error| {
                rusqlite::Error::FromSqlConversionFailure(
                    3,
                    rusqlite::types::Type::Blob,
                    Box::new(error),
                )
            })?;
            vacant.insert(text);
        }
        // A range that is not in the block is damage. An empty text keeps the other hits usable.
        let text = self
            .0
            .get(&block)
            .and_then(|text| text.get(start..start + length));
        Ok(String::from_utf8_lossy(text.unwrap_or_default()).into_owned())
    }
}

fn unpack(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed)?;
    std::io::Read::read_to_end(
        &mut std::io::Read::take(decoder, MAX_BLOCK as u64),
        &mut text,
    )?;
    Ok(text)
}

/// The part of a message that shows the most different words, in one line, and where they are in
/// it. The name of a tool stands before its text.
fn snippet(message: &Message, terms: &[Term]) -> (String, Vec<Range<usize>>) {
    let text = match &message.name {
        Some(name) => format!("{name}: {}", message.text),
        None => message.text.clone(),
    };
    let found = words::matches(&text, terms);
    // The window that begins a little before one of the matches and has the most different terms.
    let terms_from = |at: usize| {
        let Some((first, _)) = found.get(at) else {
            return 0;
        };
        // The snippet begins up to a quarter of its size before the first match, so three quarters
        // follow.
        let within = found
            .iter()
            .skip(at)
            .take_while(|(place, _)| place.end <= first.start + SNIPPET * 3 / 4);
        let mut seen: Vec<usize> = within.map(|(_, term)| *term).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len()
    };
    let best = (0..found.len()).max_by_key(|at| (terms_from(*at), Reverse(*at)));
    let first = best
        .and_then(|at| found.get(at))
        .map_or(0, |(place, _)| place.start);
    let start = text.floor_char_boundary(first.saturating_sub(SNIPPET / 4));
    let start = match start {
        0 => 0,
        // At the beginning of a word, if there is one near.
        start => text[start..first]
            .find(char::is_whitespace)
            .map_or(start, |at| start + at + 1),
    };
    let end = text.ceil_char_boundary((start + SNIPPET).min(text.len()));
    let mut line = String::new();
    let mut marks = Vec::new();
    if start > 0 {
        line.push('…');
    }
    let mut marked = found
        .iter()
        .filter(|(place, _)| place.start >= start && place.end <= end)
        .peekable();
    let mut open = None;
    for (at, c) in text[start..end].char_indices() {
        let at = start + at;
        if marked.peek().is_some_and(|(place, _)| place.start <= at) && open.is_none() {
            open = marked.next().map(|(place, _)| (line.len(), place.end));
        }
        match c.is_whitespace() || c.is_control() {
            true if line.ends_with([' ', '…']) || line.is_empty() => {}
            true => line.push(' '),
            false => line.push(c),
        }
        if let Some((from, until)) = open
            && at + c.len_utf8() >= until
        {
            marks.push(from..line.len());
            open = None;
        }
    }
    if end < text.len() {
        line.push('…');
    }
    (line, marks)
}

//! Decides at each cue whether there is a secret.
//!
//! [`scan`] goes from cue to cue and asks [`Scan`] to check the shape of the rule. Keys, key blocks
//! and credentials in URLs are checked here, and values after a name in `notation`. What a value
//! has to look like is in `value`.

use std::ops::Range;

use crate::SECRET_MASK;
use crate::charset::{BASE64, TOKEN, WORD, is_in};
use crate::cues::{self, find};
use crate::headers::{cookies, credential, credential_start};
use crate::keys::{Key, Piece, Run};
use crate::names::GAP;
use crate::rules::{RULES, Shape, Value};
use crate::scan::Scan;
use crate::steps;
use crate::value::{is_key, is_mixed, is_placeholder, is_plausible, is_secret, is_user_info};
use crate::{assigned, tables};

/// The longest user, password and host of a URL together, and the longest rest of a password after
/// a slash, in bytes.
const AUTHORITY: usize = 2_048;
const SLASHED: usize = 128;
/// The longest title of a key block, in bytes.
const TITLE: usize = 64;
const PEM: usize = 32 * 1024;
/// The largest number of parts that a key may be cut into, and the shortest length of each.
const PARTS: usize = 4;
const PART: usize = 8;
/// The longest text between two parts of a key, in bytes.
const JOIN: usize = 32;
/// The number of bytes of an `INSERT` statement that are read.
const INSERT: usize = 2_048;
/// The longest key before its cue, and the longest line of a `.pgpass` file before its cue, in
/// bytes.
const BEFORE: usize = 160;

/// Appends the positions of the secrets in `text`. They may overlap.
pub(crate) fn scan(text: &str, secrets: &mut Vec<Range<usize>>) {
    let mut scan = Scan::of(text);
    let mut from = 0;
    while let Some(at) = find(text, from) {
        let before = secrets.len();
        // Cues may overlap, so the search goes on at the next byte unless a secret was found.
        from = at + 1;
        for (which, place) in cues::at(text, at) {
            let end = scan.at(which, place, secrets);
            let last = secrets[before..].last().map_or(0, |secret| secret.end);
            if end > 0 || last > 0 {
                from = from.max(end).max(last);
                break;
            }
        }
    }
    tables::scan(text, &scan.headings, secrets);
    assigned::scan(text, secrets);
    crate::cards::scan(text, secrets);
}

/// Appends the secret in a value that stands alone, such as one in quotes. `value` says what it has
/// to look like.
pub(crate) fn in_value(text: &str, value: Value, secrets: &mut Vec<Range<usize>>) {
    match value {
        Value::Cookie => {
            cookies(text, 0..text.len(), secrets);
        }
        Value::Header => {
            let start = credential_start(text, &(0..text.len()));
            let is_part = |byte: &u8| is_in(*byte, TOKEN);
            let len = text.as_bytes()[start..]
                .iter()
                .take_while(|byte| is_part(byte));
            secrets.extend(credential(text, start..start + len.count()));
        }
        _ if is_secret(text, value, true) => secrets.push(0..text.len()),
        _ => {}
    }
}

impl Scan<'_> {
    /// Appends the secrets of a rule whose cue is at `place`. Returns the byte at which to go on if
    /// that is after all of these, or else 0.
    fn at(&mut self, which: usize, place: Range<usize>, secrets: &mut Vec<Range<usize>>) -> usize {
        let rule = &RULES[which];
        let found = match &rule.shape {
            Shape::Key(key) => {
                // If a known prefix is in another case, it is an ordinary word.
                let exact = self.bytes[place.clone()] == *rule.cue.as_bytes();
                (key.shown || exact)
                    .then(|| self.key(key, &place))
                    .flatten()
            }
            Shape::Pem => return self.pem(place, secrets),
            Shape::PemEnd => {
                secrets.extend(self.pem_end(&place));
                return 0;
            }
            Shape::Lines => {
                let number = self
                    .ahead(place.end, GAP)
                    .iter()
                    .take_while(|b| b.is_ascii_digit());
                let from = place.end + number.count();
                let end = self.key_lines(from, self.bytes.len().min(from + PEM), false);
                (end > from).then_some(from..end)
            }
            Shape::Scheme if self.begins_a_word(place.start) => {
                let end = self.run_of(place.end, TOKEN);
                let value = &self.text[place.end..end];
                (is_key(value) || is_user_info(value)).then_some(place.end..end)
            }
            Shape::Scheme => None,
            Shape::Named { value, whole } => return self.named(&place, *value, *whole, secrets),
            Shape::Authority => self.authority(place.end),
            Shape::Account => self.account(place.start),
            Shape::Login => self.login(place.end),
            Shape::Pgpass => self.pgpass(place.start),
            Shape::Option { commands, take } => self.option(&place, commands, *take),
            Shape::Piped => self.piped(&place),
            Shape::Arguments => self.arguments(place.end),
            Shape::Insert => {
                let rows = tables::insert(self.ahead(place.end, INSERT), place.end, self.text);
                secrets.extend(rows);
                return 0;
            }
            Shape::Kubernetes => return self.kubernetes(&place, secrets),
            // If encoded bytes were searched, random parts of them would look like keys.
            Shape::Encoded => return self.run_of(place.end, BASE64),
        };
        secrets.extend(found.filter(|secret| self.text[secret.clone()] != *SECRET_MASK));
        0
    }

    /// Returns the bytes of a key that is known by its form, or `None` if what is around the cue
    /// does not match.
    fn key(&mut self, key: &Key, place: &Range<usize>) -> Option<Range<usize>> {
        let mut start = place.start;
        for (at, piece) in key.before.iter().enumerate().rev() {
            start -= match piece {
                Piece::Text(text) => {
                    let is_there = self.behind(start, text.len()) == text.as_bytes();
                    is_there.then_some(text.len())?
                }
                Piece::Run(run) => {
                    let behind = self.behind(start, run.most.min(BEFORE));
                    let is_in_run = |byte: &&u8| is_in(**byte, run.set);
                    let mut len = behind.iter().rev().take_while(is_in_run).count();
                    // The text before the run may consist of the same characters, so the run must
                    // not take them.
                    if let Some(Piece::Text(text)) = at.checked_sub(1).map(|at| &key.before[at])
                        && behind[behind.len() - len..].starts_with(text.as_bytes())
                    {
                        len -= text.len();
                    }
                    (len >= run.least).then_some(len)?
                }
            };
        }
        // If a letter precedes it, the prefix is only a part of another word.
        if !key.shown && !self.begins_a_word(start) {
            return None;
        }
        let mut end = place.end;
        for (at, piece) in key.after.iter().enumerate() {
            end = match piece {
                Piece::Text(text) => {
                    let is_there = self.ahead(end, text.len()) == text.as_bytes();
                    is_there.then_some(end + text.len())?
                }
                Piece::Run(run) if at + 1 == key.after.len() => self.last_run(end, run)?,
                Piece::Run(run) => {
                    let ahead = match run.most {
                        usize::MAX => self.run_of(end, run.set) - end,
                        most => {
                            let ahead = self.ahead(end, most).iter();
                            ahead.take_while(|byte| is_in(**byte, run.set)).count()
                        }
                    };
                    (ahead >= run.least).then_some(end + ahead)?
                }
            };
        }
        // The fixed text of a key says nothing about whether the rest is only a placeholder.
        let (before, behind) = (&self.text[start..place.start], &self.text[place.end..end]);
        let from = if key.shown { place.end } else { start };
        (is_plausible(behind) || is_plausible(before)).then_some(from..end)
    }

    /// Returns the end of the last run of a key. The run may be cut into parts by line breaks.
    fn last_run(&mut self, from: usize, run: &Run) -> Option<usize> {
        let fits = |scan: &Self, parts: &[Range<usize>]| {
            let len = parts.iter().map(ExactSizeIterator::len).sum::<usize>();
            let has_piece = |part: &Range<usize>| has_piece(&scan.text[part.clone()], run.least);
            (run.least..=run.most).contains(&len) && (!run.whole || parts.iter().any(has_piece))
        };
        let first = from..self.run_of(from, run.set);
        let mut parts = Vec::from([first]);
        // If a run has no longest length, take as many parts as fit. Otherwise stop at the first
        // match.
        let mut end = fits(self, &parts).then_some(parts[0].end);
        while parts.len() < PARTS
            && (end.is_none() || run.most == usize::MAX)
            && let Some(next) = self.next_part(&parts[parts.len() - 1], run)
        {
            parts.push(next);
            if fits(self, &parts) {
                end = parts.last().map(|part| part.end);
            }
        }
        end
    }

    /// Returns the part of a key that continues it: the next line, if the part fills that line.
    fn next_part(&mut self, part: &Range<usize>, run: &Run) -> Option<Range<usize>> {
        let between = self.ahead(part.end, JOIN);
        let is_between = |byte: &&u8| byte.is_ascii_whitespace() || b">\\|".contains(byte);
        let len = between.iter().take_while(is_between).count();
        let lines = memchr::memchr_iter(b'\n', &between[..len]).count();
        if part.is_empty() || lines != 1 {
            return None;
        }
        let start = part.end + len;
        let end = self.run_of(start, run.set);
        let next = &self.text[start..end];
        let behind = self.bytes.get(end);
        let fills = matches!(
            behind,
            None | Some(b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'\\' | b';')
        );
        let looks_random = is_plausible(next)
            && (is_mixed(next.as_bytes()) || has_piece(next, PART))
            && next.bytes().any(|byte| byte.is_ascii_digit());
        (fills && end - start >= PART && looks_random).then_some(start..end)
    }

    /// Appends a key block. It ends at its closing line, or if that is missing, with the last line
    /// that looks like a key. Returns the end, or 0 if it is not the block of a private key.
    fn pem(&mut self, place: Range<usize>, secrets: &mut Vec<Range<usize>>) -> usize {
        let title = self.ahead(place.end, TITLE);
        let Some(len) = memchr::memmem::find(title, b"-----") else {
            return 0;
        };
        if !names_a_key(&title[..len]) {
            return 0;
        }
        let body = place.end + len + 5;
        // The search stops at the title of the next block, which is the next cue. So each byte is
        // searched only once.
        let next = memchr::memmem::find(&self.bytes[body..], b"-----").map(|at| body + at);
        steps::add(next.unwrap_or(self.bytes.len()) - body);
        let closing =
            next.filter(|at| at - body <= PEM && self.bytes[at + 5..].starts_with(b"END "));
        let end = match closing {
            Some(at) => {
                let from = at + "-----END ".len();
                let line = self.ahead(from, TITLE);
                memchr::memmem::find(line, b"-----").map_or(at, |dashes| from + dashes + 5)
            }
            None => self.key_lines(body, next.unwrap_or(self.bytes.len()), true),
        };
        if end > body {
            secrets.push(place.start..end);
        }
        end
    }

    /// Returns the lines of a key before the closing line of its block, for a block whose beginning
    /// is missing.
    fn pem_end(&mut self, place: &Range<usize>) -> Option<Range<usize>> {
        const LINE: usize = 128;
        let title = self.ahead(place.end, TITLE);
        let len = memchr::memmem::find(title, b"-----")?;
        names_a_key(&title[..len]).then_some(())?;
        let earliest = std::mem::replace(&mut self.block_end, place.end);
        let mut start = place.start;
        // Begin with what stands before the closing line in the same line.
        let mut at = place.start
            - (self.behind(place.start, LINE).iter().rev())
                .take_while(|byte| **byte != b'\n')
                .count();
        while at > earliest && place.start - at <= PEM {
            let before = &self.behind(at, LINE)[..at.min(LINE) - 1];
            let Some(line) = memchr::memrchr(b'\n', before)
                .map(|end| &before[end + 1..])
                .or((before.len() + 1 == at).then_some(before))
            else {
                break;
            };
            let body = &line[before_a_line(line)..];
            let len = body.iter().take_while(|byte| is_in(**byte, BASE64)).count();
            let is_first = start == place.start;
            if len < if is_first { 4 } else { 32 } {
                break;
            }
            at -= line.len() + 1;
            start = at + (line.len() - body.len());
        }
        let line = &self.text[start..place.start];
        (line.len() >= 32 && is_plausible(line)).then_some(start..place.end + len + 5)
    }

    /// Returns the end of the lines of encoded bytes between `from` and `to`. With `headers`,
    /// header lines may precede them. Returns `from` if there are none.
    fn key_lines(&mut self, from: usize, to: usize, headers: bool) -> usize {
        let mut end = from;
        let mut at = from;
        loop {
            let start = at + before_a_line(&self.bytes[at..to]);
            if headers
                && end == from
                && let Some(header) = self.pem_header(start, to)
            {
                at = header;
                continue;
            }
            let line = self.run_of(start, BASE64).min(to);
            // Only the last line of a block is shorter than the others.
            let is_last = line - start < 32;
            if line == start || (is_last && (end == from || !is_plausible(&self.text[start..line])))
            {
                return end;
            }
            end = line;
            if is_last {
                return end;
            }
            at = line;
        }
    }

    /// Returns the end of a header such as `Proc-Type: 4,ENCRYPTED` that begins at `from`, or
    /// `None` if there is none.
    fn pem_header(&mut self, from: usize, to: usize) -> Option<usize> {
        let name = self.run_of(from, WORD).min(to);
        let is_header = name > from && self.bytes[name..to].starts_with(b": ");
        is_header.then(|| {
            let line = memchr::memchr(b'\n', &self.bytes[name..to]);
            let end = line.map_or(to, |len| name + len);
            steps::add(end - name);
            end
        })
    }

    /// Returns the password, or a token without a user, before the host of a URL whose authority
    /// begins at `from`.
    fn authority(&self, from: usize) -> Option<Range<usize>> {
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`<>\\".contains(byte);
        let rest = &self.bytes[from..self.bytes.len().min(from + AUTHORITY + SLASHED)];
        let mut end = rest
            .iter()
            .take(AUTHORITY)
            .position(|byte| is_end(byte) || matches!(byte, b'/' | b'?' | b'#'))
            .unwrap_or(rest.len().min(AUTHORITY));
        steps::add(end + SLASHED);
        // A password may contain a slash. The slash belongs to the password if no host and port
        // precede it.
        if memchr::memchr(b'@', &rest[..end]).is_none()
            && let Some(colon) = memchr::memchr(b':', &rest[..end])
            && end > colon + 1
            && !rest[colon + 1..end].iter().all(u8::is_ascii_digit)
        {
            let most = &rest[..rest.len().min(end + SLASHED)];
            let line = most[end..]
                .iter()
                .position(is_end)
                .map_or(most.len(), |len| end + len);
            end = memchr::memchr(b'@', &rest[..line]).map_or(end, |at| at + 1);
        }
        let user_info = memchr::memrchr(b'@', &rest[..end])?;
        let text = &self.text[from..];
        let Some(colon) = memchr::memchr(b':', &rest[..user_info]) else {
            return is_key(&text[..user_info]).then_some(from..from + user_info);
        };
        let password = &text[colon + 1..user_info];
        (!password.is_empty() && password != SECRET_MASK && !is_placeholder(password))
            .then_some(from + colon + 1..from + user_info)
    }

    /// Returns the password before the address of a database: `user:password@tcp(host)`.
    fn account(&self, to: usize) -> Option<Range<usize>> {
        let before = self.behind(to, BEFORE);
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`<>\\/=".contains(byte);
        let start = before.iter().rposition(is_end).map_or(0, |at| at + 1);
        let colon = start + memchr::memchr(b':', &before[start..])? + 1;
        let place = to - (before.len() - colon)..to;
        let password = self.text.get(place.clone())?;
        (!password.is_empty() && !is_placeholder(password)).then_some(place)
    }

    /// Returns the password in a line of a `.pgpass` file: `host:port:database:user:password`.
    fn pgpass(&self, place: usize) -> Option<Range<usize>> {
        let before = self.behind(place, BEFORE);
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`\\=".contains(byte);
        let start = place - (before.len() - before.iter().rposition(is_end).map_or(0, |at| at + 1));
        let line = self.ahead(start, BEFORE + TITLE);
        let line = &line[..line.iter().position(is_end).unwrap_or(line.len())];
        let mut fields = line.splitn(5, |byte| *byte == b':');
        let (host, port) = (fields.next()?, fields.next()?);
        let is_port = port == b"*" || (!port.is_empty() && port.iter().all(u8::is_ascii_digit));
        let names = fields
            .by_ref()
            .take(2)
            .filter(|name| !name.is_empty())
            .count();
        let password = fields.next()?;
        let end = start + line.len();
        let place = end - password.len()..end;
        let fits = !host.is_empty() && is_port && names == 2 && password.len() >= 4;
        (fits && !is_placeholder(self.text.get(place.clone())?)).then_some(place)
    }

    /// Returns the password in `login NAME password VALUE`, of which the name begins at `from`.
    fn login(&self, from: usize) -> Option<Range<usize>> {
        let most = self
            .text
            .ceil_char_boundary(self.bytes.len().min(from + 512));
        steps::add(most - from);
        let rest = &self.text[from..most];
        let user = rest.split_whitespace().next()?;
        let behind = rest[user.len() + (rest.len() - rest.trim_start().len())..].trim_start();
        let password = behind.strip_prefix("password")?;
        let value = password.trim_start();
        // If nothing separates them, `password` is only the beginning of another word.
        if value.len() == password.len() {
            return None;
        }
        let len = value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
        let start = from + rest.len() - value.len();
        let end = start + len.unwrap_or(value.len());
        let value = &self.text[start..end];
        (value.len() >= 4 && !is_placeholder(value)).then_some(start..end)
    }
}

/// Whether the title of a block says that it contains a private key. Certificates and public keys
/// are no secrets.
fn names_a_key(title: &[u8]) -> bool {
    let titles = [&b"PRIVATE KEY"[..], b"Static key"];
    let mut titles = titles.iter();
    titles.any(|key| memchr::memmem::find(title, key).is_some())
}

/// Returns how many bytes stand before the text of a line: blank lines, a line number, and marks of
/// a quotation, a list or a diff.
fn before_a_line(bytes: &[u8]) -> usize {
    let marks = |from: usize| {
        let is_mark = |at: &usize| {
            let byte = bytes[*at];
            let next = bytes.get(at + 1).copied().unwrap_or(b'\n');
            byte.is_ascii_whitespace()
                || b"|>:*#-\"'`,\\".contains(&byte)
                || !byte.is_ascii()
                || (matches!(byte, b'+' | b'/') && matches!(next, b' ' | b'\n' | b'"' | b'/'))
        };
        from + (from..bytes.len())
            .take(GAP * 2)
            .take_while(is_mark)
            .count()
    };
    let at = marks(0);
    let number = bytes[at..]
        .iter()
        .take(7)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    match marks(at + number) {
        end if number > 0 && end > at + number => end,
        _ => at,
    }
}

/// Whether one piece has at least this many letters and digits, with some of each.
fn has_piece(body: &str, least: usize) -> bool {
    let pieces = body[..body.len().min(256)].split(|c: char| !c.is_ascii_alphanumeric());
    pieces.into_iter().any(|piece| {
        piece.len() >= least
            && piece.bytes().any(|b| b.is_ascii_digit())
            && piece.bytes().any(|b| b.is_ascii_alphabetic())
    })
}

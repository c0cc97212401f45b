//! Decides at each cue whether there is a secret. The time has to stay proportional to the length of the text, so a
//! check may look only at a bounded number of bytes around the cue ([`Scan::ahead`], [`Scan::behind`]), or at a run, a
//! value or a line whose end is cached ([`Scan::run_of`], [`Scan::value_end`], [`Scan::line_from`]). No check reads the
//! text in any other way, and tests count the bytes that these functions return.

use std::ops::Range;

use super::SECRET_MASK;
use super::cues::find;
use super::rules::{ALNUM, BASE64, DOTTED, Keeps, RULES, Shape, TOKEN, Value, WORD, is_in};
use super::value::{is_key, is_password, is_placeholder, is_short_key, is_strong, is_user_info};
use crate::steps;

/// How far from a name its value may be, and how long the rest of a name may be, in bytes.
const GAP: usize = 12;
const NAME_REST: usize = 32;
/// How far the closing quote of a value is looked for, in bytes.
const QUOTED: usize = 1_024;
/// How far back the command of an option is looked for, in bytes.
const COMMAND: usize = 400;
/// The maximum length in bytes of a URL's user, password and host together, and of the rest of a password after a
/// slash.
const AUTHORITY: usize = 2_048;
const SLASHED: usize = 128;
/// The maximum length in bytes of a key block's title.
const TITLE: usize = 64;
/// The end of a run of at least so many bytes is looked for once.
const LONG_RUN: usize = 16;
/// The longest key block, in bytes.
const PEM: usize = 32 * 1024;

/// Appends the places of the secrets in `text`; they may overlap.
pub(super) fn scan(text: &str, secrets: &mut Vec<Range<usize>>) {
    let mut scan = Scan {
        text,
        bytes: text.as_bytes(),
        runs: Vec::new(),
        value: 0..0,
        line: 0..0,
        block_end: 0,
    };
    let mut from = 0;
    while let Some((which, place)) = find(text, from) {
        from = place.end;
        let before = secrets.len();
        let end = scan.at(which, place, secrets);
        let last = secrets[before..].last().map_or(0, |secret| secret.end);
        from = from.max(end).max(last);
    }
    super::cards::scan(text, secrets);
}

/// What the value behind a name has to be like for the name to be that of a secret.
pub(super) fn named(name: &str) -> Option<Value> {
    let mut from = 0;
    let mut value = None;
    while let Some((which, place)) = find(name, from) {
        from = place.end;
        if let Shape::Named { value: of, whole } = RULES[which].shape
            && names(name, &place, name.len(), whole)
        {
            value = Some(of);
        }
    }
    value
}

pub(super) fn ends_in_the_name_of_a_secret(name: &str) -> bool {
    let mut from = 0;
    while let Some((which, place)) = find(name, from) {
        from = place.end;
        if let Shape::Named { whole, .. } = RULES[which].shape
            && place.end == name.len()
            && names(name, &place, name.len(), whole)
        {
            return true;
        }
    }
    false
}

/// The secret in a value of this kind, which stands alone, such as one in quotes.
pub(super) fn in_value(text: &str, value: Value, secrets: &mut Vec<Range<usize>>) {
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

fn is_secret(text: &str, value: Value, quoted: bool) -> bool {
    match value {
        Value::Password => is_password(text, quoted),
        Value::Key => is_key(text),
        Value::Short => is_key(text) || is_short_key(text) || is_user_info(text),
        Value::Header | Value::Cookie => false,
    }
}

/// Whether a name that ends at `end` and holds a cue at `place` is that of a value.
fn names(text: &str, place: &Range<usize>, end: usize, whole: bool) -> bool {
    let rest = &text[place.end..end];
    if whole {
        let mut before = text[..place.start].bytes().rev();
        let starts_a_word = text.as_bytes()[place.start].is_ascii_uppercase();
        return rest.is_empty()
            && match before.next() {
                Some(byte) if byte.is_ascii_lowercase() => {
                    starts_a_word || begins_behind_an_escape(text, place.start)
                }
                Some(byte) => !byte.is_ascii_alphanumeric(),
                None => true,
            };
    }
    const OF_OTHER_THINGS: [&str; 32] = [
        "length",
        "_len",
        "field",
        "input",
        "reset",
        "policy",
        "path",
        "file",
        "count",
        "strength",
        "label",
        "hint",
        "name",
        "url",
        "uri",
        "type",
        "expir",
        "less",
        "manager",
        "store",
        "stdin",
        "valid",
        "require",
        "error",
        "mismatch",
        "change",
        "forgot",
        "prompt",
        "ize",
        "endpoint",
        "authentication",
        "algo",
    ];
    let rest = rest.to_ascii_lowercase();
    !OF_OTHER_THINGS.iter().any(|other| rest.contains(other)) && !rest.ends_with("id")
}

/// Whether the word before `at` is an escape of a terminal or of a URL, rather than a word.
fn begins_behind_an_escape(text: &str, at: usize) -> bool {
    let before = &text.as_bytes()[at.saturating_sub(12)..at];
    match before {
        [.., b'%', high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        [head @ .., b'm'] => {
            let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
            let len = head.iter().rev().take_while(|byte| digits(byte)).count();
            head[..head.len() - len].ends_with(b"[")
        }
        _ => false,
    }
}

/// A scan of one text.
struct Scan<'t> {
    text: &'t str,
    bytes: &'t [u8],
    /// The last long run of each set of characters, the last value without quotes and the last line of a
    /// header. Where several cues lie in one of them, its end is looked for once.
    runs: Vec<(u16, Range<usize>)>,
    value: Range<usize>,
    line: Range<usize>,
    /// Where the last closing line of a key block ends. Text before it belongs to no later block.
    block_end: usize,
}

impl Scan<'_> {
    /// The bytes from `from` on, at most `most` of them.
    fn ahead(&self, from: usize, most: usize) -> &[u8] {
        let ahead = &self.bytes[from..self.bytes.len().min(from + most)];
        steps::add(ahead.len());
        ahead
    }

    /// The bytes before `to`, at most `most` of them.
    fn behind(&self, to: usize, most: usize) -> &[u8] {
        let behind = &self.bytes[to.saturating_sub(most)..to];
        steps::add(behind.len());
        behind
    }

    /// Appends the secrets of a rule whose cue is at `place`. Returns where to go on, if that is behind all
    /// of these.
    fn at(&mut self, which: usize, place: Range<usize>, secrets: &mut Vec<Range<usize>>) -> usize {
        let rule = &RULES[which];
        let bytes = self.bytes;
        let exact = || bytes[place.clone()] == *rule.cue.as_bytes();
        let found = match rule.shape {
            Shape::Random { of, least, most } => {
                if rule.keeps == Keeps::Nothing && !(exact() && self.begins_a_word(place.start)) {
                    return 0;
                }
                let end = self.run_of(place.end, of);
                let fits = (least..=most).contains(&(end - place.end))
                    && is_plausible(&self.text[place.end..end]);
                fits.then_some(place.end..end)
            }
            Shape::Pieced { of, piece } => {
                if !exact() || !self.begins_a_word(place.start) {
                    return 0;
                }
                let end = self.run_of(place.end, of);
                has_piece(&self.text[place.end..end], piece).then_some(place.end..end)
            }
            Shape::Jwt if exact() && self.begins_a_word(place.start) => self.jwt(place.end),
            Shape::Jwt => None,
            Shape::Pem => return self.pem(place, secrets),
            Shape::PemEnd => {
                secrets.extend(self.pem_end(&place));
                return 0;
            }
            Shape::Scheme if self.begins_a_word(place.start) => {
                let end = self.run_of(place.end, TOKEN);
                let value = &self.text[place.end..end];
                (is_key(value) || is_user_info(value)).then_some(place.end..end)
            }
            Shape::Scheme => None,
            Shape::Named { value, whole } => return self.named(&place, value, whole, secrets),
            Shape::Authority => self.authority(place.end),
            Shape::Login => self.login(place.end),
            Shape::UserOption => self.user_option(&place),
            Shape::Telegram if exact() => {
                let digits = self
                    .behind(place.start, 12)
                    .iter()
                    .rev()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                let end = self.run_of(place.end, WORD);
                let fits = (8..=10).contains(&digits) && (32..=34).contains(&(end - place.end));
                fits.then(|| place.start - digits..end)
            }
            Shape::AzureClient if exact() && place.start >= 3 => {
                let head = &self.bytes[place.start - 3..place.start];
                let is_part = |byte: &u8| is_in(*byte, DOTTED) || *byte == b'~';
                let len = self
                    .ahead(place.end, 40)
                    .iter()
                    .take_while(|byte| is_part(byte))
                    .count();
                let fits = head.iter().all(is_part) && (31..=34).contains(&len);
                fits.then(|| place.start - 3..place.end + len)
            }
            Shape::Telegram | Shape::AzureClient => None,
            Shape::Encoded => return self.run_of(place.end, BASE64),
        };
        if let Some(mut secret) = found {
            if rule.keeps == Keeps::Nothing {
                secret.start = secret.start.min(place.start);
            }
            if self.text[secret.clone()] != *SECRET_MASK {
                secrets.push(secret);
            }
        }
        0
    }

    /// The end of the characters of a set from `from` on.
    fn run_of(&mut self, from: usize, set: u16) -> usize {
        let known = self.runs.iter().position(|(of, _)| *of == set);
        if let Some(known) = known
            && self.runs[known].1.contains(&from)
        {
            return self.runs[known].1.end;
        }
        let run = self.bytes[from..]
            .iter()
            .take_while(|byte| is_in(**byte, set));
        let run = from..from + run.count();
        steps::add(run.len());
        let end = run.end;
        if run.len() >= LONG_RUN {
            match known {
                Some(known) => self.runs[known].1 = run,
                None => self.runs.push((set, run)),
            }
        }
        end
    }

    fn begins_a_word(&self, at: usize) -> bool {
        match at.checked_sub(1).map(|before| self.bytes[before]) {
            Some(byte) if byte.is_ascii_alphanumeric() => begins_behind_an_escape(self.text, at),
            _ => true,
        }
    }

    fn jwt(&mut self, from: usize) -> Option<Range<usize>> {
        let header = self.run_of(from, WORD);
        if header - from < 8 || self.bytes.get(header) != Some(&b'.') {
            return None;
        }
        let body = self.run_of(header + 1, WORD);
        if body - header < 5 {
            return None;
        }
        Some(from..self.run_of(body, DOTTED))
    }

    /// A key block: to its end where that follows, else as far as there are lines of a key.
    fn pem(&mut self, place: Range<usize>, secrets: &mut Vec<Range<usize>>) -> usize {
        let title = self.ahead(place.end, TITLE);
        let Some(len) = memchr::memmem::find(title, b"-----") else {
            return 0;
        };
        if memchr::memmem::find(&title[..len], b"PRIVATE KEY").is_none() {
            return 0;
        }
        let body = place.end + len + 5;
        // The search stops at the next block's title, which is the next cue. So each byte is searched only once.
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
            None => self.key_lines(body, next.unwrap_or(self.bytes.len())),
        };
        if end > body {
            secrets.push(place.start..end);
        }
        end
    }

    /// The lines of a key before the end of its block.
    fn pem_end(&mut self, place: &Range<usize>) -> Option<Range<usize>> {
        const LINE: usize = 128;
        let title = self.ahead(place.end, TITLE);
        let len = memchr::memmem::find(title, b"-----")?;
        memchr::memmem::find(&title[..len], b"PRIVATE KEY")?;
        let earliest = std::mem::replace(&mut self.block_end, place.end);
        let mut start = place.start;
        // What stands before the end in its own line.
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

    /// The end of the lines of encoded bytes between `from` and `to`; `from` if there are none.
    fn key_lines(&mut self, from: usize, to: usize) -> usize {
        let mut end = from;
        let mut at = from;
        loop {
            let start = at + before_a_line(&self.bytes[at..to]);
            if end == from
                && let Some(header) = self.pem_header(start, to)
            {
                at = header;
                continue;
            }
            let line = self.run_of(start, BASE64).min(to);
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

    /// The end of a header such as `Proc-Type: 4,ENCRYPTED` that begins at `from`.
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

    /// Appends the secret behind a name. Returns the end of what need not be looked at again.
    fn named(
        &mut self,
        place: &Range<usize>,
        value: Value,
        whole: bool,
        secrets: &mut Vec<Range<usize>>,
    ) -> usize {
        let rest = self.ahead(place.end, NAME_REST);
        let rest = rest.iter().take_while(|byte| is_in(**byte, WORD));
        let name_end = place.end + rest.count();
        if !names(self.text, place, name_end, whole) {
            return 0;
        }
        let Some(found) = self.value_behind(place.start, name_end) else {
            return 0;
        };
        let text = &self.text[found.place.clone()];
        if text.starts_with(SECRET_MASK) {
            return 0;
        }
        match value {
            Value::Cookie => {
                let line = self.line_from(found.place.start);
                return cookies(self.text, line, secrets);
            }
            Value::Header => {
                let line = self.line_from(found.place.start);
                let start = credential_start(self.text, &line);
                let end = self.run_of(start, TOKEN).min(line.end).max(start);
                secrets.extend(credential(self.text, start..end));
            }
            _ => {
                let fits = is_secret(text, value, found.quoted)
                    && (!found.weak || is_strong(text))
                    // `password: the user must …` is prose.
                    && (found.quoted
                        || found.assigned
                        || text.len() > QUOTED
                        || !text.bytes().all(|byte| byte.is_ascii_lowercase()));
                if fits {
                    secrets.push(found.place);
                }
            }
        }
        0
    }

    /// The rest of a header's line, or of the string that it stands in.
    fn line_from(&mut self, start: usize) -> Range<usize> {
        if !self.line.contains(&start) {
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'\\');
            let len = self.bytes[start..].iter().position(is_end);
            self.line = start..len.map_or(self.bytes.len(), |len| start + len);
            steps::add(self.line.len());
        }
        start..self.line.end
    }

    /// The value behind a name: `NAME"? = "value"`, with a colon, or as the argument of an option.
    fn value_behind(&mut self, cue: usize, name_end: usize) -> Option<Behind> {
        let rest = &self.text[name_end
            ..self
                .text
                .ceil_char_boundary(self.bytes.len().min(name_end + 4 * GAP))];
        let after_name = rest.trim_start_matches(['"', '\'', '\\', ' ', '*', '`', '\t', ']']);
        let operator = after_name.chars().next()?;
        let skipped = rest.len() - after_name.len();
        if skipped > GAP {
            return None;
        }
        let (operator_len, mut weak) = match operator {
            '=' | ':' | '：' => (operator.len_utf8(), false),
            '(' | ',' | '>' => (1, true),
            '是' | '为' | '為' => (operator.len_utf8(), true),
            'i' if after_name.starts_with("is ") && skipped == 1 => (3, true),
            // `--password value`
            _ if skipped == 1 && rest.starts_with(' ') && self.is_option(cue) => (0, false),
            _ => return None,
        };
        if after_name[operator_len..].starts_with(['=', '>'])
            && operator == '='
            && after_name.starts_with("==")
        {
            weak = true;
        }
        let value =
            after_name[operator_len..].trim_start_matches(['=', ':', '：', '>', ' ', '*', '\t']);
        let mut start = name_end + (rest.len() - value.len());
        // `b"…"` and its like.
        if let [b'b' | b'f' | b'r' | b'u', b'"' | b'\'', ..] = self.bytes[start..] {
            start += 1;
        }
        let slashes = self
            .ahead(start, GAP)
            .iter()
            .take_while(|b| **b == b'\\')
            .count();
        let quote = self.bytes.get(start + slashes).copied();
        if let Some(quote @ (b'"' | b'\'' | b'`')) = quote {
            start += slashes + 1;
            if let Some(end) = self.closing(start, quote, slashes) {
                return (end > start).then_some(Behind {
                    place: start..end,
                    quoted: true,
                    assigned: true,
                    weak,
                });
            }
        } else if matches!(operator, '(' | ',') {
            return None;
        } else if slashes > 0 {
            start += slashes;
        }
        let end = self.value_end(start);
        (end > start).then_some(Behind {
            place: start..end,
            quoted: false,
            assigned: !matches!(operator, ':' | '：'),
            weak,
        })
    }

    /// Whether the name with this cue in it is an option of a command.
    fn is_option(&self, cue: usize) -> bool {
        let before = self.behind(cue, NAME_REST);
        let name = before
            .iter()
            .rev()
            .take_while(|byte| is_in(**byte, WORD))
            .count();
        before[before.len() - name..].starts_with(b"--")
    }

    /// The quote that closes a value in quotes, which has as many backslashes before it as the opening one.
    fn closing(&self, start: usize, quote: u8, slashes: usize) -> Option<usize> {
        let within = self.ahead(start, QUOTED);
        let mut from = 0;
        while let Some(at) = memchr::memchr2(quote, b'\n', &within[from..]) {
            let at = from + at;
            if within[at] == b'\n' {
                return None;
            }
            let before = within[..at]
                .iter()
                .rev()
                .take_while(|byte| **byte == b'\\')
                .count();
            if before <= slashes {
                return Some(start + at - before);
            }
            from = at + 1;
        }
        None
    }

    /// The end of a value without quotes.
    fn value_end(&mut self, start: usize) -> usize {
        if !self.value.contains(&start) {
            let is_end = |c: char| {
                c.is_whitespace()
                    || matches!(
                        c,
                        '"' | '\''
                            | '`'
                            | ','
                            | ';'
                            | '&'
                            | '\\'
                            | '<'
                            | '|'
                            | '，'
                            | '。'
                            | '；'
                            | '、'
                    )
            };
            let len = self.text[start..]
                .find(is_end)
                .unwrap_or(self.text.len() - start);
            steps::add(len);
            let value = self.text[start..start + len].trim_end_matches([')', ']', '}', '*']);
            self.value = start..start + value.len();
            // What was trimmed ends no value but this one.
            return self.value.end;
        }
        self.value.end
    }

    fn authority(&self, from: usize) -> Option<Range<usize>> {
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`<>\\".contains(byte);
        let rest = &self.bytes[from..self.bytes.len().min(from + AUTHORITY + SLASHED)];
        let mut end = rest
            .iter()
            .take(AUTHORITY)
            .position(|byte| is_end(byte) || matches!(byte, b'/' | b'?' | b'#'))
            .unwrap_or(rest.len().min(AUTHORITY));
        steps::add(end + SLASHED);
        // A password may hold a slash, which belongs to it if no host and port are before it.
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
        if value.len() == password.len() {
            return None;
        }
        let len = value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
        let start = from + rest.len() - value.len();
        let end = start + len.unwrap_or(value.len());
        let value = &self.text[start..end];
        (value.len() >= 4 && !is_placeholder(value)).then_some(start..end)
    }

    fn user_option(&self, place: &Range<usize>) -> Option<Range<usize>> {
        let line = self.behind(place.start, COMMAND);
        let is_there = |name: &[u8]| memchr::memmem::find(line, name).is_some();
        if !is_there(b"curl") && !is_there(b"http") && !is_there(b"wget") {
            return None;
        }
        let is_before = |byte: &&u8| b"\\\"' ".contains(byte);
        let gap = self.ahead(place.end, GAP + 1).iter().take_while(is_before);
        let start = place.end + gap.count();
        if start > place.end + GAP {
            return None;
        }
        let most = self.ahead(start, QUOTED);
        let len = most
            .iter()
            .position(|byte| byte.is_ascii_whitespace() || b"\"'\\`".contains(byte))
            .unwrap_or(most.len());
        let end = self.text.floor_char_boundary(start + len);
        let colon = memchr::memchr(b':', &self.bytes[start..end])?;
        let password = &self.text[start + colon + 1..end];
        (!password.is_empty() && !is_placeholder(password)).then_some(start + colon + 1..end)
    }
}

/// A value behind a name.
struct Behind {
    place: Range<usize>,
    quoted: bool,
    /// It follows `=`, or is in quotes: no prose.
    assigned: bool,
    /// What joins them says little: the value has to look like a password.
    weak: bool,
}

/// How much stands before the text of a line: blank lines, its number, the marks of a quotation, a list or a
/// comparison.
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

/// Whether characters that follow a known beginning are those of a key rather than a placeholder or a name.
fn is_plausible(body: &str) -> bool {
    let bytes = &body.as_bytes()[..body.len().min(256)];
    let Some(first) = bytes.iter().find(|byte| is_in(**byte, ALNUM)) else {
        return false;
    };
    let varied = bytes
        .iter()
        .any(|b| is_in(*b, ALNUM) && !b.eq_ignore_ascii_case(first));
    let has = |test: fn(&u8) -> bool| bytes.iter().any(test);
    let digit = has(u8::is_ascii_digit);
    let (lower, upper) = (has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase));
    varied && (digit || upper) && !(bytes.len() < 12 && !digit && lower)
}

/// Whether there are so many letters and digits in one piece, some of each.
fn has_piece(body: &str, least: usize) -> bool {
    let pieces = body[..body.len().min(256)].split(|c: char| !c.is_ascii_alphanumeric());
    pieces.into_iter().any(|piece| {
        piece.len() >= least
            && piece.bytes().any(|b| b.is_ascii_digit())
            && piece.bytes().any(|b| b.is_ascii_alphabetic())
    })
}

/// Where the credential in a header's value begins, after its scheme.
fn credential_start(text: &str, place: &Range<usize>) -> usize {
    let value = &text[place.start..text.floor_char_boundary(place.end.min(place.start + 64))];
    let scheme = value.find(' ').map_or(0, |space| space + 1);
    place.start + scheme + value[scheme..].len() - value[scheme..].trim_start().len()
}

/// The range of a token in a header's value, if it looks like a credential.
fn credential(text: &str, place: Range<usize>) -> Option<Range<usize>> {
    let credential = &text[place.clone()];
    let fits = place.len() >= 8 && is_plausible(credential) && !is_placeholder(credential);
    fits.then_some(place)
}

/// Appends the values of the cookies in a header. Returns the end of the last that was looked at.
fn cookies(text: &str, place: Range<usize>, secrets: &mut Vec<Range<usize>>) -> usize {
    const ATTRIBUTES: [&str; 7] = [
        "path", "domain", "expires", "max-age", "samesite", "version", "priority",
    ];
    const NAME: usize = 64;
    let bytes = &text.as_bytes()[..place.end];
    let mut at = place.start;
    loop {
        at += bytes[at..]
            .iter()
            .take(NAME)
            .take_while(|byte| **byte == b' ')
            .count();
        let name = bytes[at..]
            .iter()
            .take(NAME)
            .take_while(|byte| is_in(**byte, DOTTED))
            .count();
        let name = at..at + name;
        if bytes.get(name.end) != Some(&b'=') {
            return at;
        }
        let start = name.end + 1;
        let len = bytes[start..]
            .iter()
            .take_while(|byte| !byte.is_ascii_whitespace() && **byte != b';');
        let end = start + len.count();
        steps::add(end - at);
        let value = &text[start..end];
        let is_attribute = ATTRIBUTES
            .iter()
            .any(|other| text[name.clone()].eq_ignore_ascii_case(other));
        if !is_attribute && value.len() >= 8 && !is_placeholder(value) {
            secrets.push(start..end);
        }
        at = end;
        if bytes.get(at) != Some(&b';') {
            return at;
        }
        at += 1;
    }
}

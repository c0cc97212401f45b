//! Finds the value of a name in whatever notation it is written: configuration, code, markup,
//! commands or prose.
//!
//! [`Scan::named`] tries the notations one after the other, from the most certain to the least: a
//! value right behind the name, the other half of a pair, the next element, cell or line, a
//! sentence that tells the value, and a comparison. Each returns a [`Behind`], which says how
//! certain the notation is, and `if_secret` checks the value accordingly. Options of commands,
//! piped passwords and secrets of Kubernetes have cues of their own and are at the end. All of them
//! read only a bounded number of bytes around the name.

use std::ops::Range;

use crate::SECRET_MASK;
use crate::charset::{DOTTED, TOKEN, WORD, is_in};
use crate::headers::{cookies, credential, credential_start};
use crate::names::{GAP, NAME_REST, ends_in_the_name_of_a_secret, names};
use crate::rules::{Take, Value};
use crate::scan::{Command, Scan};
use crate::steps;
use crate::value::{
    changes, is_key, is_method, is_password, is_placeholder, is_secret, is_spoken, kinds,
    looks_secret,
};

/// How far ahead the closing quote of a value may be, in bytes.
const QUOTED: usize = 1_024;
/// How many bytes after and before a name the value of its pair may be, how many bytes after it
/// that of a sentence, and how many the end of a tag.
const PAIR: usize = 240;
const PAIR_BACK: usize = 160;
const SENTENCE: usize = 96;
const TAG: usize = 160;
/// The largest number of words of a sentence between a name and its value.
const WORDS: usize = 14;
/// How many bytes after and before the kind of a Kubernetes secret its entries may be.
const KUBERNETES: usize = 1_024;
const KUBERNETES_BACK: usize = 256;

/// Words that come before a name and before a value, if both are in a pair: `name="token"
/// value="…"`.
const NAMES: [&str; 13] = [
    "name", "key", "id", "field", "variable", "parameter", "param", "option", "property", "header",
    "label", "attribute", "k",
];
const VALUES: [&str; 7] = [
    "v", "value", "val", "default", "plaintext", "secret", "string",
];

/// Whether a word says that a name follows, as in `name="token"`.
pub(crate) fn names_a_pair(word: &str) -> bool {
    NAMES.iter().any(|name| ends_in(word, name))
}

/// Whether a word says that a value follows, as in `value="…"`.
pub(crate) fn holds_the_value(word: &str) -> bool {
    VALUES.iter().any(|value| ends_in(word, value))
}

/// Whether a name ends in a word, like `OptionName` and `param-name` in `name`.
fn ends_in(name: &str, word: &str) -> bool {
    let Some(at) = name.len().checked_sub(word.len()) else {
        return false;
    };
    let (before, end) = name.as_bytes().split_at(at);
    let begins = |byte: &u8| match byte {
        b'_' | b'-' | b'.' => true,
        _ => byte.is_ascii_lowercase() && end[0].is_ascii_uppercase(),
    };
    end.eq_ignore_ascii_case(word.as_bytes()) && before.last().is_none_or(begins)
}

/// A value that was found for a name, and how certain it is that it belongs to the name.
pub(crate) struct Behind {
    place: Range<usize>,
    quoted: bool,
    /// Whether it follows `=` or is in quotes, so that it cannot be prose.
    assigned: bool,
    /// Whether what joins the name and the value says little, so that the value has to look like a
    /// password.
    weak: bool,
}

impl Behind {
    fn in_quotes(place: Range<usize>, weak: bool) -> Option<Self> {
        (place.start < place.end).then_some(Self {
            place,
            quoted: true,
            assigned: true,
            weak,
        })
    }
}

const CLOSERS: [char; 15] = [
    '"', '\'', '\\', ' ', '*', '`', '\t', ']', '”', '’', '»', '」', '』', '\u{a0}', '\u{3000}',
];

impl Scan<'_> {
    /// Appends the secret of a name. `place` is the cue in it. Returns the end of what need not be
    /// searched again, or 0.
    pub(crate) fn named(
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
        let start = place.start
            - (self.behind(place.start, NAME_REST).iter().rev())
                .take_while(|byte| is_in(**byte, WORD) || matches!(byte, b'.' | b':'))
                .count();
        let name = start..name_end;
        let found = self.value_behind(&name);
        // If a header names it, the credential reaches to the end of the line or of its string.
        if matches!(value, Value::Cookie | Value::Header) {
            let Some(found) = found else { return 0 };
            let line = self.line_from(found.place.start);
            if value == Value::Cookie {
                return cookies(self.text, line, secrets);
            }
            let start = credential_start(self.text, &line);
            let end = self.run_of(start, TOKEN).min(line.end).max(start);
            secrets.extend(credential(self.text, start..end));
            return 0;
        }
        let secret = self
            .if_secret(found, value)
            .or_else(|| {
                self.of_pair(&name)
                    .and_then(|found| self.if_secret(Some(found), value))
            })
            .or_else(|| match value {
                // If a name says little, its value has to be beside it or in a sentence.
                Value::Random => None,
                _ => self.in_layout(&name, value),
            })
            .or_else(|| self.said_behind(place, name_end, value))
            .or_else(|| self.said_before(place, &name, value))
            .or_else(|| self.compared(&name, value));
        // If no value is beside the name, it may head the column of a table.
        if secret.is_none() {
            self.note_heading(&name);
        }
        secrets.extend(secret);
        0
    }

    /// Returns the value in the next element, cell or line.
    fn in_layout(&self, name: &Range<usize>, value: Value) -> Option<Range<usize>> {
        self.if_secret(self.in_markup(name), value)
            .or_else(|| self.if_secret(self.in_row(name), value))
            .or_else(|| self.if_secret(self.below(name), value))
    }

    /// Returns the bytes of a value if it is a secret. The check is stricter if the notation is
    /// weak.
    fn if_secret(&self, found: Option<Behind>, value: Value) -> Option<Range<usize>> {
        let found = found?;
        let text = &self.text[found.place.clone()];
        let is_strong = || match value {
            Value::Password => is_spoken(text),
            Value::Short => is_spoken(text) || is_key(text),
            _ => true,
        };
        let fits = !text.starts_with(SECRET_MASK)
            && is_secret(text, value, found.quoted)
            && (!found.weak || is_strong())
            // A text such as `password: the user must …` is prose.
            && (found.quoted
                || found.assigned
                || text.len() > QUOTED
                || !text.bytes().all(|byte| byte.is_ascii_lowercase()));
        fits.then_some(found.place)
    }

    /// Returns the value that follows a name: after an equals sign or a colon, in a tag, as the
    /// argument of an option, or in the lines below.
    fn value_behind(&mut self, name: &Range<usize>) -> Option<Behind> {
        let most = self.bytes.len().min(name.end + 4 * GAP);
        let rest = &self.text[name.end..self.text.ceil_char_boundary(most)];
        let mut after_name = rest.trim_start_matches(CLOSERS);
        if after_name.starts_with("...") {
            after_name = after_name.trim_start_matches(['.', ' ']);
        }
        if let Some(size) = after_name.strip_prefix('[')
            && let Some((_, behind)) = size.split_once(']').filter(|(size, _)| size.len() < GAP)
        {
            after_name = behind.trim_start();
        }
        let operator = after_name.chars().next()?;
        let skipped = rest.len() - after_name.len();
        // If `::` follows, the name is the path of a type or a module.
        if skipped > 3 * GAP || after_name.starts_with("::") {
            return None;
        }
        // `--password value` or `ENV PASSWORD value`.
        let argument = rest.trim_start_matches([' ', '\t']);
        let is_argument = argument.len() < rest.len() && !after_name.starts_with(['=', ':']);
        if is_argument && (self.is_option(name.start) || self.is_set(name.start)) {
            let start = name.end + (rest.len() - argument.len());
            return self.value_at(start, false, '=', false);
        }
        let in_tag = self.begins_a_tag(name.start);
        // If the name is a tag, its value is the text of the element or an attribute of the tag.
        if in_tag && (operator == '>' || rest.starts_with(' ')) {
            return self
                .element(name.end)
                .or_else(|| self.element_or_attribute(name.end));
        }
        let doubled = |signs: &[&str]| signs.iter().any(|sign| after_name.starts_with(sign));
        let (operator_len, mut weak) = match operator {
            '=' | ':' | '：' | '＝' => (operator.len_utf8(), false),
            '(' | ',' | '>' => (1, true),
            '→' | '⇒' => (operator.len_utf8(), true),
            '-' if doubled(&["->", "- ", "-->"]) => (2, true),
            '<' if doubled(&["<- ", "<<<"]) => (3, true),
            '|' | '?' | '!' if doubled(&["||", "??", "?:", "!="]) => (2, true),
            _ if rest.starts_with(' ') => return self.declared(name.end, after_name),
            _ => return None,
        };
        weak |= operator == '=' && after_name.starts_with("==");
        let behind = &after_name[operator_len..];
        // `get("password", default="…")`.
        if operator == ','
            && let Some((word, literal)) = behind.split_once('=')
            && holds_the_value(word.trim())
        {
            let start = name.end + (rest.len() - literal.trim_start().len());
            return self.value_at(start, true, operator, true);
        }
        if operator == ':'
            && let Some(block) = self.block(name.end + (rest.len() - behind.len()))
        {
            return Some(block);
        }
        if matches!(operator, ':')
            && let Some(declared) = self.declared(name.end, behind)
        {
            return Some(declared);
        }
        let around = |c| "=:：＝> *\t\u{a0}\u{3000}".contains(c);
        let mut value = behind.trim_start_matches(around);
        // Skip a tag or an anchor of YAML, a comment, or the beginning of a here document.
        if operator == ':' && (value.starts_with("!!") || value.starts_with('&')) {
            let is_tag = |tag: &str| {
                let tag = tag.trim_start_matches(['!', '&']);
                tag.bytes().all(|byte| is_in(byte, WORD))
            };
            value = match value.split_once(' ') {
                Some((tag, value)) if is_tag(tag) => value,
                _ => value,
            };
        } else if value.starts_with("# ") || value.starts_with("<<") {
            value = value.find('\n').map_or(value, |at| &value[at..]);
        }
        if matches!(operator, '=' | ':' | '：')
            && let Some(below) = value
                .strip_prefix('\n')
                .or_else(|| value.strip_prefix("\r\n"))
        {
            if operator == ':'
                && let Some(mapped) = self.mapped(name.start, name.end + rest.len() - below.len())
            {
                return Some(mapped);
            }
            value = below.trim_start_matches([' ', '\t', '-']);
            value = match value.split_once(": ") {
                Some((word, value)) if holds_the_value(word) => value,
                _ => value,
            };
            weak = true;
        } else if let Some(item) = value.strip_prefix('[')
            && !weak
        {
            value = item.trim_start();
            weak = true;
        } else if let Some((call, argument)) = value.split_once('(')
            && argument.starts_with(['"', '\''])
            && !call.is_empty()
            && call.bytes().all(|byte| is_in(byte, DOTTED) || byte == b':')
        {
            // `String::from("…")` holds a value, but a call that looks something up by its name
            // does not, and neither does `password.encode("…")`.
            let is_name = ends_in_the_name_of_a_secret;
            let literal = argument[1..].split(['"', '\'']).next().unwrap_or_default();
            let object = call.rsplit_once('.').map_or("", |(object, _)| object);
            let is_variable =
                object.starts_with(|c: char| c.is_ascii_lowercase()) && is_name(object);
            if !is_name(literal) && !is_variable {
                value = argument;
                weak = true;
            }
        }
        let start = name.end + (rest.len() - value.len());
        let quotes_only = matches!(operator, '(' | ',' | '|' | '?' | '!');
        self.value_at(start, weak, operator, quotes_only)
    }

    /// Returns a value that begins at `start`, with or without quotes. `quotes_only` permits only
    /// the former.
    fn value_at(
        &mut self,
        mut start: usize,
        weak: bool,
        operator: char,
        quotes_only: bool,
    ) -> Option<Behind> {
        // `b"…"` and similar prefixes.
        if let [
            b'b' | b'f' | b'r' | b'u' | b'L' | b'R' | b'@' | b'$',
            b'"' | b'\'',
            ..,
        ] = self.bytes[start..]
        {
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
                return Behind::in_quotes(start..end, weak);
            }
        } else if let Some(place) = self.in_round_quotes(start) {
            return Behind::in_quotes(place, weak);
        } else if quotes_only {
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

    /// Returns the text in typographic quotes that open at `start`.
    fn in_round_quotes(&self, start: usize) -> Option<Range<usize>> {
        let quote = self
            .text
            .get(start..)?
            .chars()
            .next()
            .filter(|c| !c.is_ascii())?;
        let closing = match quote {
            '“' | '„' => ['”', '“'],
            '‘' => ['’'; 2],
            '«' => ['»'; 2],
            '「' => ['」'; 2],
            '『' => ['』'; 2],
            _ => return None,
        };
        let start = start + quote.len_utf8();
        let most = self.text.floor_char_boundary(start + QUOTED / 4);
        steps::add(most - start);
        let end = self.text[start..most].find(|c| closing.contains(&c) || c == '\n')?;
        Some(start..start + end)
    }

    /// Returns the password after a user, if both are strings among the arguments of a call that
    /// begin at `from`.
    pub(crate) fn arguments(&mut self, from: usize) -> Option<Range<usize>> {
        let user = self.value_at(from, false, ',', true)?;
        let rest = self.text.get(user.place.end + 1..)?;
        let value = rest.strip_prefix(',')?.trim_start();
        let value = value.strip_prefix("Some(").unwrap_or(value);
        let start = self.text.len() - value.len();
        let password = self.value_at(start, false, ',', true)?.place;
        is_password(&self.text[password.clone()], true).then_some(password)
    }

    /// Returns the value of a name with its type: `password: str = "…"` or `password string = "…"`.
    fn declared(&self, from: usize, behind: &str) -> Option<Behind> {
        let declared = behind.trim_start();
        let (of_type, value) = declared.split_once('=')?;
        let is_type = |c: char| c.is_ascii_alphanumeric() || "_<>[]?|.&' ".contains(c);
        let value = value.trim_start();
        let quote = value
            .bytes()
            .next()
            .filter(|byte| matches!(byte, b'"' | b'\''))?;
        if !of_type.starts_with(|c: char| c.is_ascii_alphabetic() || c == '&')
            || !of_type.chars().all(is_type)
        {
            return None;
        }
        let most = self
            .text
            .ceil_char_boundary(self.bytes.len().min(from + 4 * GAP));
        let start = most - value.len() + 1;
        let end = self.closing(start, quote, 0)?;
        Behind::in_quotes(start..end, false)
    }

    /// Returns the indented lines of a YAML block below `password: |`, at most eight.
    fn block(&self, from: usize) -> Option<Behind> {
        const LINES: usize = 8;
        let rest = self.ahead(from, QUOTED);
        let marks = rest
            .iter()
            .take_while(|byte| b" |>+-0123456789".contains(byte))
            .count();
        let is_block = rest[..marks].iter().find(|byte| **byte != b' ');
        if marks > GAP || !matches!(is_block, Some(b'|' | b'>')) {
            return None;
        }
        let below = rest[marks..]
            .strip_prefix(b"\r")
            .unwrap_or(&rest[marks..])
            .strip_prefix(b"\n")?;
        let mut at = rest.len() - below.len();
        let indentation = |line: &[u8]| line.iter().take_while(|byte| **byte == b' ').count();
        let first = indentation(below);
        let (start, mut end) = (from + at + first, from + at);
        for line in below.split(|byte| *byte == b'\n').take(LINES) {
            // If a line is indented less than the first, the block has ended.
            if indentation(line) < first || line.is_empty() {
                break;
            }
            end = from + at + line.trim_ascii_end().len();
            at += line.len() + 1;
        }
        let end = self.text.floor_char_boundary(end);
        (first > 0 && end > start)
            .then(|| Behind::in_quotes(start..end, false))
            .flatten()
    }

    /// Returns the value in a mapping of YAML below a name: `value: …`, in a line from `from` on that
    /// is indented more than the name, which begins at `start`.
    fn mapped(&mut self, start: usize, from: usize) -> Option<Behind> {
        let indentation = |line: &[u8]| line.len() - line.trim_ascii_start().len();
        let before = self.behind(start, NAME_REST);
        let begins = before.iter().rposition(|byte| *byte == b'\n');
        let line = &before[begins.map_or(0, |at| at + 1)..];
        let is_first = begins.is_some() || before.len() == start;
        if !is_first || !line.iter().all(|byte| b" -\"'".contains(byte)) {
            return None;
        }
        let own = indentation(line);
        let mut at = from;
        let mut end = None;
        for line in self.ahead(from, PAIR).split(|byte| *byte == b'\n') {
            if indentation(line) <= own {
                break;
            }
            let word = line.trim_ascii_start().trim_prefix_of(b"\"'");
            let len = word.iter().take_while(|byte| is_in(**byte, WORD)).count();
            if is_value(&word[..len], &word[len..]) {
                end = Some(at + line.len() - word.len() + len);
                break;
            }
            at += line.len() + 1;
        }
        let mut found = self.value_of_word(end?)?;
        // What is below a name may also describe it.
        found.weak = true;
        Some(found)
    }

    /// Whether the name that begins at `start` is the name of a tag.
    fn begins_a_tag(&self, start: usize) -> bool {
        start > 0 && self.bytes[start - 1] == b'<'
    }

    /// Returns the text of an element, given the end of its tag's name. `None` if the tag is not
    /// closed nearby or is empty.
    fn element(&self, from: usize) -> Option<Behind> {
        let tag = self.ahead(from, TAG);
        let close = tag
            .iter()
            .position(|byte| matches!(byte, b'>' | b'<' | b'\n'))?;
        // If the tag closes itself, the element has no text.
        if tag[close] != b'>' || (close > 0 && tag[close - 1] == b'/') {
            return None;
        }
        let start = from + close + 1;
        self.element_text(start)
    }

    /// Returns the text of an element that begins at `start`, also if it is wrapped in CDATA.
    fn element_text(&self, start: usize) -> Option<Behind> {
        const CDATA: &[u8] = b"<![CDATA[";
        let text = self.ahead(start, QUOTED);
        let blank = text.len() - text.trim_ascii_start().len();
        let (start, text, closing): (_, _, &[u8]) = match text[blank..].strip_prefix(CDATA) {
            Some(text) => (start + blank + CDATA.len(), text, b"]]>"),
            None => (start + blank, &text[blank..], b"<"),
        };
        let len = memchr::memmem::find(text, closing)?;
        let len = text[..len].trim_ascii_end().len();
        Behind::in_quotes(start..start + len, false)
    }

    /// Returns the value of an attribute in a tag whose name ends at `from`, if the tag has no
    /// text.
    fn element_or_attribute(&mut self, from: usize) -> Option<Behind> {
        self.value_word(from, PAIR).filter(|found| found.quoted)
    }

    /// Whether the name that begins at `start` is an option of a command.
    fn is_option(&self, start: usize) -> bool {
        let name = &self.bytes[start..self.bytes.len().min(start + 2)];
        let begins = |at: usize| at == 0 || !self.bytes[at - 1].is_ascii_alphanumeric();
        match name {
            [b'-', b'-'] => begins(start),
            [b'-', second] => second.is_ascii_alphabetic() && begins(start),
            _ => false,
        }
    }

    /// Whether a command sets the name: `ENV NAME value` or `config set NAME value`.
    fn is_set(&self, start: usize) -> bool {
        const SET: [&str; 13] = [
            "Set-Item", "set_header", "--secret", "-Path", "ENV", "ARG", "setenv", "setx",
            "config set", "configure set", "#define", "secrets set", "git config",
        ];
        let before = self.behind(start, 2 * GAP);
        let before = before.trim_ascii_end();
        SET.iter().any(|set| {
            let head = before.strip_suffix(set.as_bytes());
            head.is_some_and(|head| !head.last().is_some_and(u8::is_ascii_alphanumeric))
        })
    }

    /// Returns the value of a pair with this name, on either side of it: `{"value": …, "name":
    /// "token"}`. `None` if nothing says that the text is the name of a pair.
    fn of_pair(&mut self, name: &Range<usize>) -> Option<Behind> {
        let before = self.behind(name.start, 2 * GAP);
        let before = before.trim_ascii_end();
        let opened = before.trim_suffix_of(b"\"'\\`");
        let is_quoted = opened.len() < before.len();
        let operator = opened.trim_ascii_end();
        let named = operator.trim_suffix_of(b"=:>");
        let word = named.trim_ascii_end().trim_suffix_of(b"\"'\\`");
        let len = word
            .iter()
            .rev()
            .take_while(|byte| is_in(**byte, WORD))
            .count();
        let word = std::str::from_utf8(&word[word.len() - len..]).unwrap_or_default();
        let is_named = named.len() < operator.len() && names_a_pair(word);
        let is_variable = is_quoted && matches!(word, "variable" | "secret");
        // If neither word says that this is a pair, the next value may belong to anything.
        if !is_named && !is_variable {
            return None;
        }
        // `<entry key="password">…</entry>`.
        let most = self.bytes.len().min(name.end + GAP);
        let behind = self.bytes[name.end..most].trim_ascii_start();
        if is_quoted && matches!(behind, [b'"' | b'\'', b'>', ..]) {
            let found = self.element(name.end);
            if found.is_some() {
                return found;
            }
        }
        self.value_word(name.end, PAIR)
            .or_else(|| self.value_word_before(name.start))
    }

    /// Returns the value after a word such as `value` that follows within the same group. The group
    /// ends with its brace, a blank line or the next item of a list.
    fn value_word(&mut self, from: usize, most: usize) -> Option<Behind> {
        let ahead = self.ahead(from, most);
        let mut depth = 0_usize;
        let mut end = ahead.len();
        for (at, byte) in ahead.iter().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => end = at,
                b'}' => depth -= 1,
                b'\n' => {
                    let line = ahead[at + 1..].trim_ascii_start();
                    if line.starts_with(b"- ") || ahead[at + 1..].starts_with(b"\n") {
                        end = at;
                    }
                }
                _ => continue,
            }
            if end == at {
                break;
            }
        }
        let is_value = |word: &Range<usize>| is_value(&ahead[word.clone()], &ahead[word.end..]);
        let ends: Vec<_> = words(&ahead[..end])
            .filter(is_value)
            .map(|word| word.end)
            .collect();
        ends.into_iter()
            .find_map(|end| self.value_of_word(from + end))
    }

    /// Returns the value after such a word before the name, within the same group.
    fn value_word_before(&mut self, to: usize) -> Option<Behind> {
        let before = self.behind(to, PAIR_BACK);
        let start = to - before.len();
        let group = before
            .iter()
            .rposition(|byte| matches!(byte, b'{' | b'<'))
            .unwrap_or(0);
        let group = memchr::memmem::rfind(before, b"\n- ")
            .unwrap_or(0)
            .max(group);
        let word = words(&before[group..])
            .filter(|word| is_value(&before[group..][word.clone()], &before[group + word.end..]))
            .last()?;
        let found = self.value_of_word(start + group + word.end)?;
        (found.place.end <= to).then_some(found)
    }

    /// Returns the value of a word such as `value` that ends at `from`. It is assigned to the word,
    /// or the text of an element.
    fn value_of_word(&mut self, from: usize) -> Option<Behind> {
        let rest = &self.text[from..self
            .text
            .ceil_char_boundary(self.bytes.len().min(from + 2 * GAP))];
        let after = rest.trim_start_matches(CLOSERS);
        let value = after
            .strip_prefix(['=', ':', '>'])?
            .trim_start_matches(['=', '>', ' ']);
        let start = from + (rest.len() - value.len());
        if after.starts_with('>') {
            return self.element_text(start);
        }
        if after.starts_with(':')
            && let Some(block) = self.block(from + (rest.len() - after.len()) + 1)
        {
            return Some(block);
        }
        let mut found = self.value_at(start, false, '=', false)?;
        // If a word such as `value` announces the value, it is no prose, even after a colon.
        found.assigned = true;
        Some(found)
    }

    /// Returns the password that a sentence tells after its name: `the password of the database is
    /// now …`.
    fn said_behind(&self, cue: &Range<usize>, from: usize, value: Value) -> Option<Range<usize>> {
        let most = self
            .text
            .floor_char_boundary(self.bytes.len().min(from + SENTENCE));
        let most = most.max(from);
        steps::add(most - from);
        let is_foreign = !self.text[cue.clone()].is_ascii();
        let rest = &self.text[if is_foreign { cue.end } else { from }..most];
        // If a word has only one kind of character or is an algorithm, it may be ordinary prose.
        let is_plain = |word: &str| is_method(word) || changes(word.as_bytes()) < 2;
        let fits = |word: &str, sure: bool| match value {
            Value::Password => {
                is_password(word, false)
                    && is_spoken(word)
                    && (sure || kinds(word) > 2 || !is_plain(word))
            }
            _ => is_secret(word, value, false),
        };
        let trimmed = rest.trim_start_matches(CLOSERS);
        // Chinese, Japanese and Korean have no spaces, so the value is what follows in ASCII, and a
        // sign instead of a word links it.
        let is_eastern = self.text[..cue.end].ends_with(is_ideograph);
        if trimmed.starts_with(is_ideograph)
            || (is_eastern && !rest.starts_with(char::is_whitespace))
        {
            let gap = trimmed.find(|c: char| c.is_ascii_graphic())?;
            let linked = gap == 0 || trimmed[..gap].contains(is_link_sign);
            let ends = trimmed[..gap].contains(['，', '。', '；', '\n', '！', '？']);
            let word = trimmed[gap..].trim_start_matches(QUOTES);
            let ends_it = |c: char| !c.is_ascii_graphic() || "\"'`,".contains(c);
            let len = word.find(ends_it).unwrap_or(word.len());
            let len = word[..len].trim_end_matches(QUOTES).len();
            let start = most - word.len();
            let fits = !ends && gap <= SENTENCE / 2 && linked && fits(&word[..len], true);
            return fits.then_some(start..start + len);
        }
        if !rest.starts_with([' ', '\n', '"', '\'', '`', '*', ':', '”', '»', '’', ',', ';']) {
            return None;
        }
        let line_end = rest.find('\n').map_or(most, |at| from + at);
        let mut linked = false;
        for (at, word) in rest.split_whitespace().take(WORDS).enumerate() {
            let bare = word.trim_start_matches(QUOTES);
            let start = bare.as_ptr() as usize - self.text.as_ptr() as usize;
            let bare = bare
                .trim_end_matches(QUOTES)
                .trim_end_matches(ENDS)
                .trim_end_matches(QUOTES);
            // The value may be in the next line, but nothing else of the sentence.
            if start > line_end {
                return (linked && fits(bare, true)).then_some(start..start + bare.len());
            }
            let is_label = word.ends_with([':', '：']) && !word.starts_with(QUOTES);
            if is_among(&LINKS, bare) || (bare.is_empty() && !word.contains(',')) || is_label {
                linked = true;
                continue;
            }
            // A word right after the name has to look more like a password.
            let is_next = at == 0 && !rest.starts_with([',', ';']);
            let is_long = value == Value::Password || (bare.len() >= 20 && !is_hash(bare));
            if (linked || is_foreign || (is_next && is_long)) && fits(bare, linked || is_foreign) {
                return Some(start..start + bare.len());
            }
            // If the sentence ends here, what follows is not said about the name.
            if word.ends_with(['.', '!', '?', ';', '।', '。']) || bare.contains("](") {
                return None;
            }
            // In `password 7 …`, the digit is the kind of the password, as in the configuration of
            // a router.
            linked = (linked && is_among(&ADVERBS, bare)) || (at == 0 && is_digit(bare));
        }
        None
    }

    /// Returns the text after a name that fills an element, or that is followed by a colon inside
    /// one: `<td>password</td><td>…</td>` or `<b>Password:</b> …`.
    fn in_markup(&self, name: &Range<usize>) -> Option<Behind> {
        let ahead = self.ahead(name.end, TAG);
        let (mut at, mut tags, mut has_sign) = (0, 0, false);
        loop {
            match ahead.get(at)? {
                b':' | b'=' if !has_sign => has_sign = true,
                b' ' | b'\n' | b'\r' | b'\t' => {}
                b'<' => {
                    at += memchr::memchr(b'>', &ahead[at..])?;
                    tags += 1;
                }
                _ => break,
            }
            at += 1;
        }
        let fills = self.behind(name.start, 1) == b">" && tags >= 2;
        if tags == 0 || !(has_sign || fills) {
            return None;
        }
        self.bare_word(name.end + at, b"<")
    }

    /// Returns the value beside a name in the row of a table, or in a line of two columns: `|
    /// password | … |`.
    fn in_row(&self, name: &Range<usize>) -> Option<Behind> {
        let is_around = |byte: &&u8| matches!(byte, b' ' | b'"' | b'*' | b'`');
        let mut before = self.behind(name.start, NAME_REST).iter().rev();
        let before = before.find(|byte| !is_around(byte));
        let ahead = self.text.get(name.end..)?;
        let most = ahead.floor_char_boundary(ahead.len().min(NAME_REST));
        steps::add(most);
        let ahead = &ahead[..most];
        let cell = ahead.trim_start_matches(['"', '*', '`', ' ', '\t']);
        let gap = &ahead[..ahead.len() - cell.len()];
        let begins = before.is_none_or(|byte| matches!(byte, b'\n' | b'|' | b'\x82'));
        let value = match cell.chars().next()? {
            '|' | '│' => cell.trim_start_matches(['|', '│']),
            ',' if begins => &cell[1..],
            _ if begins && (gap.ends_with("  ") || gap.ends_with('\t')) => cell,
            _ => return None,
        };
        let value = value.trim_start_matches(['"', '*', '`', ' ']);
        let start = name.end + (ahead.len() - value.len());
        let found = self.bare_word(start, b"|,\"`*")?;
        let word = &self.text[found.place.clone()];
        // Between commas the word may just be the next item of a list.
        let is_sure = begins && !cell.starts_with(',');
        (is_sure || kinds(word) > 2 || changes(word.as_bytes()) > 1).then_some(found)
    }

    /// Returns the value in the line below a name that is a heading. Blank lines, a ruler or a code
    /// fence may be between them.
    fn below(&self, name: &Range<usize>) -> Option<Behind> {
        let line = self.behind(name.start, NAME_REST);
        let is_mark = |byte: &u8| b" #*>\t".contains(byte);
        let head = line
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let is_heading = line[head..].iter().all(is_mark);
        let ahead = self.ahead(name.end, NAME_REST * 2);
        let is_between = |byte: &&u8| b" :*#=-`\r\n\t>".contains(byte);
        let gap = ahead.iter().take_while(is_between).count();
        let lines = memchr::memchr_iter(b'\n', &ahead[..gap]).count();
        // In Python, `pass` is a statement that does nothing.
        let is_statement = &self.text[name.clone()] == "pass";
        // If the name stands within a line of prose, the next line has nothing to do with it.
        if !is_heading || is_statement || !(1..=3).contains(&lines) || gap == ahead.len() {
            return None;
        }
        let found = self.bare_word(name.end + gap, b"`")?;
        let word = &self.text[found.place.clone()];
        let rest = self.ahead(found.place.end, 2);
        let fills = rest.trim_ascii_start().is_empty() || rest.contains(&b'\n') || rest[0] == b'`';
        (fills && kinds(word) > 2).then_some(found)
    }

    /// Returns the word that begins at `start`. It ends at white space, a quote or one of these
    /// signs.
    fn bare_word(&self, start: usize, ends: &[u8]) -> Option<Behind> {
        let ahead = self.ahead(start, QUOTED / 4);
        let is_end = |byte: &u8| {
            byte.is_ascii_whitespace() || ends.contains(byte) || b"\"'\\".contains(byte)
        };
        let len = ahead.iter().position(is_end).unwrap_or(ahead.len());
        Behind::in_quotes(start..self.text.floor_char_boundary(start + len), true)
    }

    /// Returns the text that a name is compared with: `"…" == password` or `"…".equals(password)`.
    fn compared(&self, name: &Range<usize>, value: Value) -> Option<Range<usize>> {
        let before = self.behind(name.start, SENTENCE);
        let literal = ["==", "===", "!=", "!==", ".equals("]
            .iter()
            .find_map(|sign| before.trim_ascii_end().strip_suffix(sign.as_bytes()))?
            .trim_ascii_end();
        let (quote, inside) = literal
            .split_last()
            .filter(|(quote, _)| b"\"'".contains(quote))?;
        let start = inside.iter().rposition(|byte| byte == quote)? + 1;
        let from = name.start - before.len();
        let place = from + start..from + inside.len();
        let found = Behind::in_quotes(place, true);
        self.if_secret(
            found.filter(|found| self.text.get(found.place.clone()).is_some()),
            value,
        )
    }

    /// Returns the password that a sentence tells before its name: `use … as the password`.
    fn said_before(
        &self,
        cue: &Range<usize>,
        name: &Range<usize>,
        value: Value,
    ) -> Option<Range<usize>> {
        if value != Value::Password {
            return None;
        }
        let before = self.behind(name.start, SENTENCE);
        let from = self.text.ceil_char_boundary(name.start - before.len());
        let before = &self.text[from..name.start];
        // In these languages the linking word may come before the name or after it.
        if self.text[..cue.end].ends_with(is_ideograph) {
            let links = ["作为", "作為", "是", "が", "を"];
            let behind = self.text[cue.end..].strip_prefix("として").is_some();
            let said = links.iter().find_map(|link| before.strip_suffix(link));
            let said = said.or(Some(before).filter(|_| behind))?.trim_end();
            let start = said.rfind(|c: char| !c.is_ascii_graphic());
            let start = start.map_or(0, |at| said.ceil_char_boundary(at + 1));
            let place = from + start..from + said.len();
            return looks_secret(&said[start..]).then_some(place);
        }
        let mut words = before.rsplit([' ', '\n']).filter(|word| !word.is_empty());
        let mut word = words.next()?;
        for _ in 0..2 {
            if matches!(word, "as" | "is" | "als" | "como" | "comme") {
                break;
            }
            word = words.next()?;
        }
        if !matches!(word, "as" | "is" | "als" | "como" | "comme") {
            return None;
        }
        let said = words.next()?.trim_matches(QUOTES);
        let start = said.as_ptr() as usize - self.text.as_ptr() as usize;
        (is_password(said, false) && is_spoken(said)).then_some(start..start + said.len())
    }

    /// Records a name that fills a field of a line, because that line may be the first of a table.
    fn note_heading(&mut self, name: &Range<usize>) {
        // A bar, another sign, the end of a line, or two spaces.
        let sign = |byte: &u8| {
            matches!(
                byte,
                b',' | b'|' | b';' | b'\t' | b'\n' | b'\r' | 0x82 | 0xe2
            )
        };
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'"' | b'*' | b'`');
        let ends = |side: &mut dyn Iterator<Item = &u8>| {
            let mut side = side.peekable();
            let mut gap = 0;
            while let Some(byte) = side.next_if(is_blank) {
                gap += usize::from(*byte == b' ');
            }
            gap > 1 || side.next().is_none_or(sign)
        };
        let most = self.bytes.len().min(name.end + NAME_REST);
        let before = self.behind(name.start, NAME_REST);
        if ends(&mut self.bytes[name.end..most].iter()) && ends(&mut before.iter().rev()) {
            self.headings.push(name.start);
        }
    }

    /// Returns the secret part of an option's value. `None` if the command is not one of `commands`
    /// or the value is not secret.
    pub(crate) fn option(
        &mut self,
        place: &Range<usize>,
        commands: &'static str,
        take: Take,
    ) -> Option<Range<usize>> {
        if !commands.is_empty() && !self.runs_one_of(place.start, commands) {
            return None;
        }
        let is_dashed = self.text[place.clone()].contains('-');
        let mut start = place.end;
        let mut has_space = self.bytes[place.end - 1] == b' ';
        let mut others = if let Take::Word(others) = take {
            others
        } else {
            0
        };
        for words in 0.. {
            let gap = self.ahead(start, GAP);
            let gap = gap
                .iter()
                .take_while(|byte| b" =,\\\"'`".contains(byte))
                .count();
            has_space |= self.bytes[start..start + gap]
                .iter()
                .any(|byte| matches!(byte, b' ' | b'=' | b','));
            start += gap;
            // In `sqlplus -s user/password`, the option `-s` is skipped.
            let is_option = self.bytes.get(start) == Some(&b'-') && !is_dashed;
            if !is_option {
                match others.checked_sub(1) {
                    Some(fewer) => others = fewer,
                    None => break,
                }
            }
            let word = self.ahead(start, QUOTED / 4);
            (words < WORDS).then_some(())?;
            start += word
                .iter()
                .position(|byte| matches!(byte, b' ' | b',' | b'\n'))?;
        }
        let quote = self.bytes[start - 1];
        let most = self.ahead(start, QUOTED);
        let is_end = |byte: &u8| match quote {
            b'"' | b'\'' | b'`' => *byte == quote || matches!(byte, b'\n' | b'\\'),
            _ => byte.is_ascii_whitespace() || b"\"'\\`|;".contains(byte),
        };
        let len = most.iter().position(is_end).unwrap_or(most.len());
        let mut end = self.text.floor_char_boundary(start + len);
        match take {
            Take::Attached if has_space => return None,
            Take::Word(_) if !has_space && self.bytes[place.end - 1].is_ascii_alphanumeric() => {
                return None;
            }
            Take::Attached | Take::Word(_) => {}
            // This is `--user`, and not `--user-agent`.
            Take::Pair(_) if !has_space && self.bytes[place.start + 1..].starts_with(b"--") => {
                return None;
            }
            Take::Pair(signs) => {
                start += self.text[start..end].find(|c| signs.contains(c))? + 1;
                if signs == "/" {
                    let host = memchr::memchr(b'@', &self.bytes[start..end]);
                    end = host.map_or(end, |host| start + host);
                }
            }
        }
        let value = self.text.get(start..end)?;
        let least = if matches!(take, Take::Pair(_)) { 1 } else { 4 };
        // Without a dash the cue is an ordinary word, so the value has to look secret by itself.
        let is_telling = is_dashed || !matches!(take, Take::Word(_)) || looks_secret(value);
        (value.len() >= least && is_telling && !value.starts_with('-') && !is_placeholder(value))
            .then_some(start..end)
    }

    /// Whether a place belongs to one of these commands. If a command has several options, each of
    /// its words is read only once.
    fn runs_one_of(&mut self, place: usize, commands: &'static str) -> bool {
        let known = self
            .commands
            .iter()
            .position(|known| std::ptr::eq(known.names, commands));
        let known = known.unwrap_or_else(|| {
            let names = commands;
            self.commands.push(Command {
                names,
                looked_at: 0,
                is_one: false,
            });
            self.commands.len() - 1
        });
        let Command {
            looked_at, is_one, ..
        } = self.commands[known];
        let new = self.behind(place, place - looked_at.min(place));
        // What precedes the last separator belongs to another command.
        let begins = new.iter().rposition(|byte| b"\n;|&(`".contains(byte));
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        let mut words = new[begins.map_or(0, |at| at + 1)..].split(|byte| !is_part(byte));
        let is_among = |word: &[u8]| commands.split(' ').any(|name| name.as_bytes() == word);
        let is_one =
            (is_one && begins.is_none()) || words.any(|word| !word.is_empty() && is_among(word));
        self.commands[known].is_one = is_one;
        self.commands[known].looked_at = place;
        is_one
    }

    /// Returns the words that `echo` or `printf` pipe into the command at `place`.
    pub(crate) fn piped(&self, place: &Range<usize>) -> Option<Range<usize>> {
        let before = self.behind(place.start, PAIR_BACK);
        let echo = [&b"echo "[..], b"printf "];
        let said = echo
            .iter()
            .filter_map(|echo| Some(memchr::memmem::rfind(before, echo)? + echo.len()))
            .max()?;
        let mut start = place.start - before.len() + said;
        let len = before[said..]
            .iter()
            .position(|byte| matches!(byte, b'|' | b'\n'))
            .unwrap_or(before.len() - said);
        let mut words = self.text.get(start..start + len)?.trim_end();
        for skipped in ["-n ", "-e ", "'%s' ", "\"%s\" ", "%s "] {
            words = words.strip_prefix(skipped).unwrap_or(words);
        }
        words = words.trim_matches(QUOTES);
        // `chpasswd` reads lines of a user and a password, separated by a colon.
        if self.text[place.clone()].ends_with("chpasswd") {
            words = words.split_once(':')?.1;
        }
        start = words.as_ptr() as usize - self.text.as_ptr() as usize;
        let fits = words.len() >= 4 && !words.contains([' ', '\n']) && !is_placeholder(words);
        fits.then_some(start..start + words.len())
    }

    /// Appends the entries of a Kubernetes secret whose kind is at `place`. Always returns 0,
    /// because other cues may follow inside.
    pub(crate) fn kubernetes(
        &self,
        place: &Range<usize>,
        secrets: &mut Vec<Range<usize>>,
    ) -> usize {
        if self
            .bytes
            .get(place.end)
            .is_some_and(|byte| !byte.is_ascii_whitespace())
        {
            return 0;
        }
        let ahead = self.ahead(place.end, KUBERNETES);
        let ahead = &ahead[..memchr::memmem::find(ahead, b"\n---").unwrap_or(ahead.len())];
        let behind = self.behind(place.start, KUBERNETES_BACK);
        let behind = memchr::memmem::rfind(behind, b"\n---").map_or(behind, |at| &behind[at + 1..]);
        let start = place.start - behind.len();
        let document = &self.bytes[start..place.end + ahead.len()];
        let mut at = start;
        let mut in_data = false;
        for line in document.split(|byte| *byte == b'\n') {
            let indented = line.len() - line.trim_ascii_start().len();
            // If a line is not indented, it begins another part of the document.
            if indented == 0 {
                in_data = matches!(line.trim_ascii(), b"data:" | b"stringData:");
            } else if in_data && let Some(colon) = memchr::memmem::find(line, b": ") {
                let value = line[colon + 2..].trim_ascii().trim_ascii_start();
                let value = value.trim_prefix_of(b"\"'").trim_suffix_of(b"\"'");
                let from = at + (value.as_ptr() as usize - line.as_ptr() as usize);
                let place = from..from + value.len();
                if let Some(block) = self.block(at + colon + 1) {
                    secrets.push(block.place);
                } else if let Some(text) = self.text.get(place.clone())
                    && text.len() >= 4
                    && !is_placeholder(text)
                {
                    secrets.push(place);
                }
            }
            at += line.len() + 1;
        }
        0
    }
    /// Returns the position of the quote that closes a value. It has at most as many backslashes
    /// before it as the opening one.
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
            // If there are more backslashes than before the opening quote, this one is escaped.
            if before <= slashes {
                return Some(start + at - before);
            }
            from = at + 1;
        }
        None
    }
}

const QUOTES: [char; 15] = [
    '"', '\'', '`', '*', '“', '”', '‘', '’', '«', '»', '「', '」', '『', '』', '(',
];

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// Whether a sign says that a value follows, in Chinese, Japanese or Korean. These are words of one
/// character, particles and brackets.
fn is_link_sign(c: char) -> bool {
    "是为為：は（「＝がを：은는이가成".contains(c)
}

/// The signs that may end a word of a sentence.
const ENDS: [char; 12] = [
    '.', ',', '!', '?', ';', ')', '।', '。', '،', '、', ':', '：',
];

/// The words that say that a value follows, in English, German, French, Spanish, Portuguese,
/// Italian, Polish, Turkish, Russian, Ukrainian, Arabic, Hindi, Indonesian and Vietnamese.
const LINKS: [&str; 40] = [
    "is", "s", "en", "was", "are", "to", "be", "as", "=", "->", "→", "—", "–", "-", ":", "ist",
    "war", "lautet", "auf", "est", "était", "sera", "es", "era", "será", "é", "è", "jest", "это",
    "на", "це", "هي", "هو", "है", "adalah", "là", "olarak", "por", "equals", "becomes",
];

/// The words that may stand between one of these words and the value.
const ADVERBS: [&str; 20] = [
    "now", "currently", "still", "set", "changed", "just", "actually", "simply", "again",
    "temporarily", "jetzt", "nun", "ahora", "maintenant", "agora", "adesso", "теперь", "अब",
    "sekarang", "also",
];

fn is_digit(word: &str) -> bool {
    matches!(word.as_bytes(), [b'0'..=b'9'])
}

fn is_hash(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_among(words: &[&str], word: &str) -> bool {
    words.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// Returns the words in these bytes. A word begins with a letter and may contain digits, dashes and
/// underscores.
fn words(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().position(u8::is_ascii_alphabetic)?;
        let start = at;
        at += bytes[at..]
            .iter()
            .take_while(|byte| is_in(**byte, WORD))
            .count();
        Some(start..at)
    })
}

/// Whether a word is one such as `value`, and a value follows it.
fn is_value(word: &[u8], behind: &[u8]) -> bool {
    let follows = behind
        .iter()
        .find(|byte| !matches!(byte, b' ' | b'"' | b'\'' | b'\\'));
    std::str::from_utf8(word).is_ok_and(holds_the_value)
        && matches!(follows, Some(b'=' | b':' | b'>'))
}

/// Trims bytes by a set, as `str` does it with characters.
trait Trim {
    fn trim_suffix_of(&self, set: &[u8]) -> &[u8];
    fn trim_prefix_of(&self, set: &[u8]) -> &[u8];
}

impl Trim for [u8] {
    fn trim_suffix_of(&self, set: &[u8]) -> &[u8] {
        let len = self
            .iter()
            .rposition(|byte| !set.contains(byte))
            .map_or(0, |at| at + 1);
        &self[..len]
    }

    fn trim_prefix_of(&self, set: &[u8]) -> &[u8] {
        let start = self
            .iter()
            .position(|byte| !set.contains(byte))
            .unwrap_or(self.len());
        &self[start..]
    }
}

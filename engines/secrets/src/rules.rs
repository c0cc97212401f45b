//! What a secret looks like: the tables of names (`names.txt`), of the options of commands (`options.txt`) and of keys
//! that are known by how they look (`keys.txt`), and what has a shape of its own. Shapes are checked in `shape.rs`.

use std::sync::LazyLock;

use crate::keys::{self, rows};

/// One kind of secret.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The text of three bytes or more that makes a place a candidate; ASCII case is ignored.
    pub(crate) cue: String,
    pub(crate) shape: Shape,
}

/// What stands around or behind a cue if it is a secret.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// A key that is known by how it looks, around a cue in its own case.
    Key(keys::Key),
    /// A PEM block with a private key.
    Pem,
    /// The end of a PEM block with a private key, whose beginning may be missing.
    PemEnd,
    /// The lines of a key of PuTTY, behind their number.
    Lines,
    /// A credential behind the scheme of a header.
    Scheme,
    /// A value behind a name. `whole`: the cue ends the name, rather than being a part of it.
    Named { value: Value, whole: bool },
    /// A user and a password, or a token, before the host of a URL.
    Authority,
    /// `USER:PASSWORD` before the cue, as in the data source names of Go.
    Account,
    /// `login NAME password VALUE`, as in a netrc file.
    Login,
    /// The last field of a line of a `.pgpass` file.
    Pgpass,
    /// An option of one of these commands, or of any if there are none. What of its value is secret is said by `take`.
    Option { commands: &'static str, take: Take },
    /// The words that a command reads from a pipe: `echo PASSWORD | sudo -S`.
    Piped,
    /// A user and a password as the arguments of a call: `HTTPBasicAuth("bob", "…")`.
    Arguments,
    /// The rows of an `INSERT` of SQL.
    Insert,
    /// The entries of a secret of Kubernetes.
    Kubernetes,
    /// Encoded bytes: no secret, and nothing in them is one.
    Encoded,
}

/// What behind an option is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The word behind so many others.
    Word(usize),
    /// What follows in the same word.
    Attached,
    /// What follows one of these signs in the next word, behind a user.
    Pair(&'static str),
}

/// When the value behind a name is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Always, unless it is code, prose or a placeholder.
    Password,
    /// If it is long and looks random.
    Key,
    /// As a key, or a UUID.
    Api,
    /// If it is longer and looks more random: the name says little.
    Random,
    /// If it looks random, however short.
    Short,
    /// A number of a key as JSON: longer than what else has so short a name.
    Jwk,
    /// A header's: always, behind its scheme.
    Header,
    /// Each cookie's that is long enough to be a session's.
    Cookie,
}

// Sets of characters, as bits.
pub(crate) const DIGIT: u16 = 1;
const A_TO_F: u16 = 2;
const LOWER_REST: u16 = 4;
const UPPER: u16 = 8;
const UNDERSCORE: u16 = 16;
pub(crate) const DASH: u16 = 32;
pub(crate) const DOT: u16 = 64;
const BASE64_REST: u16 = 128;
const OTHER: u16 = 256;
pub(crate) const TILDE: u16 = 512;
const UPPER_A_TO_F: u16 = 1024;
const SIGN: u16 = 2048;

pub(crate) const HEX: u16 = DIGIT | A_TO_F;
pub(crate) const ANY_HEX: u16 = HEX | UPPER_A_TO_F;
pub(crate) const SMALL: u16 = HEX | LOWER_REST;
pub(crate) const CAPITALS: u16 = DIGIT | UPPER | UPPER_A_TO_F;
pub(crate) const ALNUM: u16 = SMALL | CAPITALS;
pub(crate) const WORD: u16 = ALNUM | UNDERSCORE | DASH;
pub(crate) const DOTTED: u16 = WORD | DOT;
pub(crate) const BASE64: u16 = ALNUM | BASE64_REST;
/// What tokens in headers and URLs are made of.
pub(crate) const TOKEN: u16 = DOTTED | BASE64_REST | OTHER | TILDE;
pub(crate) const SIGNS: u16 = TOKEN | SIGN;

static SETS: [u16; 256] = sets();

const fn sets() -> [u16; 256] {
    let mut sets = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        sets[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' => A_TO_F,
            b'g'..=b'z' => LOWER_REST,
            b'A'..=b'F' => UPPER_A_TO_F,
            b'G'..=b'Z' => UPPER,
            b'_' => UNDERSCORE,
            b'-' => DASH,
            b'.' => DOT,
            b'+' | b'/' | b'=' => BASE64_REST,
            b'~' => TILDE,
            b'%' | b'!' | b'$' | b':' | b'@' => OTHER,
            b'#' | b'&' | b'(' | b')' | b'*' | b',' | b';' | b'?' | b'[' | b']' | b'^' | b'|' => {
                SIGN
            }
            _ => 0,
        };
        byte += 1;
    }
    sets
}

pub(crate) fn is_in(byte: u8, set: u16) -> bool {
    SETS[usize::from(byte)] & set != 0
}

/// Every kind of secret: its cue and its shape.
pub(crate) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let keys = keys::all().map(|(cue, key)| (cue, Shape::Key(key)));
    let others = OTHERS.map(|(cue, shape)| (cue.to_owned(), shape));
    let rules = keys.chain(names()).chain(options()).chain(others);
    rules.map(|(cue, shape)| Rule { cue, shape }).collect()
});

/// The names of `names.txt`.
fn names() -> impl Iterator<Item = (String, Shape)> {
    rows(include_str!("names.txt")).flat_map(|row| {
        let mut words = row.split_whitespace();
        let value = match words.next() {
            Some("password") => Value::Password,
            Some("short") => Value::Short,
            Some("api") => Value::Api,
            Some("random") => Value::Random,
            Some("jwk") => Value::Jwk,
            Some("header") => Value::Header,
            Some("cookie") => Value::Cookie,
            _ => Value::Key,
        };
        words.flat_map(move |word| {
            let name = word.trim_start_matches('=').replace('·', " ");
            let whole = name.len() < word.len();
            let within = usize::from(name.starts_with('_'));
            let has_words = name[within..].contains('_');
            let joints = if has_words {
                &["_", "-", " ", ""][..]
            } else {
                &["_"]
            };
            joints.iter().map(move |joint| {
                let name = name[..within].to_owned() + &name[within..].replace('_', joint);
                (name, Shape::Named { value, whole })
            })
        })
    })
}

/// The options of `options.txt`.
fn options() -> impl Iterator<Item = (String, Shape)> {
    rows(include_str!("options.txt")).filter_map(|row| {
        let (cue, rest) = row.split_once(' ')?;
        let rest = rest.trim_start();
        let (take, commands) = rest.split_once(' ').unwrap_or((rest, ""));
        let take = match take {
            "next" => Take::Word(0),
            "attached" => Take::Attached,
            _ => take.parse().map_or(Take::Pair(take), Take::Word),
        };
        let commands = commands.trim_start();
        Some((cue.replace('·', " "), Shape::Option { commands, take }))
    })
}

/// What has a shape of its own.
const OTHERS: [(&str, Shape); 31] = [
    ("-----BEGIN ", Shape::Pem),
    ("-----END ", Shape::PemEnd),
    ("private-lines: ", Shape::Lines),
    ("kind: secret", Shape::Kubernetes),
    ("kind: \"secret\"", Shape::Kubernetes),
    ("bearer ", Shape::Scheme),
    ("basic ", Shape::Scheme),
    ("://", Shape::Authority),
    (" -x ", Shape::Authority),
    ("@tcp(", Shape::Account),
    ("@unix(", Shape::Account),
    ("login ", Shape::Login),
    (":5432:", Shape::Pgpass),
    (":5433:", Shape::Pgpass),
    (":6432:", Shape::Pgpass),
    (":*:", Shape::Pgpass),
    ("auth=(", Shape::Arguments),
    ("auth = (", Shape::Arguments),
    ("basicauth(", Shape::Arguments),
    ("digestauth(", Shape::Arguments),
    ("ntlmauth(", Shape::Arguments),
    ("basic_auth(", Shape::Arguments),
    ("insert into ", Shape::Insert),
    ("| sudo -s", Shape::Piped),
    ("| sudo --stdin", Shape::Piped),
    ("| chpasswd", Shape::Piped),
    ("| sudo chpasswd", Shape::Piped),
    ("-stdin", Shape::Piped),
    ("| kinit", Shape::Piped),
    ("--with-token", Shape::Piped),
    // What only looks like a secret.
    (";base64,", Shape::Encoded),
];

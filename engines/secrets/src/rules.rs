//! The rules: what a secret looks like, and by which cue it is found.
//!
//! A [`Rule`] is a cue with a [`Shape`]. The rules come from three tables, for names (`names.txt`),
//! options of commands (`options.txt`) and keys that are known by their form (`keys.txt`), and from
//! the list `OTHERS` at the end. A shape says only what to look for. The checks are in `shape` and
//! `notation`, and what a value has to look like is in `value`.

use std::sync::LazyLock;

use crate::keys::{self, rows};

/// One kind of secret, found by a cue.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The text that makes a position a candidate. It has at least three bytes, and ASCII case is
    /// ignored.
    pub(crate) cue: String,
    pub(crate) shape: Shape,
}

/// What stands around or after a cue if there is a secret.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// A key that is known by its form, with a cue that has to be in the same case.
    Key(keys::Key),
    Pem,
    PemEnd,
    /// The lines of a PuTTY key, after the number that says how many there are.
    Lines,
    /// A credential after the scheme of a header, such as `Bearer`.
    Scheme,
    /// A value after a name. If `whole` is true, the cue has to be the end of the name, not just a
    /// part of it.
    Named {
        value: Value,
        whole: bool,
    },
    /// A user and a password, or a token, before the host of a URL.
    Authority,
    /// `USER:PASSWORD` before the cue, as in the data source names of Go.
    Account,
    Login,
    Pgpass,
    /// An option of one of these commands, or of any command if the list is empty. `take` says
    /// which part of its value is secret.
    Option {
        commands: &'static str,
        take: Take,
    },
    Piped,
    Arguments,
    Insert,
    Kubernetes,
    /// Encoded bytes. They are no secret, and nothing inside them is one.
    Encoded,
}

/// Which part of an option's value is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The word after this many other words, for instance the second argument if it is 1.
    Word(usize),
    /// The rest of the word that the option begins, without a space between them.
    Attached,
    /// In the next word, everything after the first of these signs, which ends the name of a user.
    Pair(&'static str),
}

/// The condition under which the value after a name is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Password,
    Key,
    /// If it looks random as a key does, or if it is a UUID.
    Api,
    /// If it is longer and looks more random, because the name says little.
    Random,
    Short,
    /// If it is as long as a number of a JSON Web Key. Many other things have such short names.
    Jwk,
    /// Always, if it looks like a credential. The scheme of the header before it stays visible.
    Header,
    /// If it is the value of a cookie that is long enough to be that of a session.
    Cookie,
}

/// All rules, each with its cue and its shape. The index of a rule in this table identifies it.
pub(crate) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let keys = keys::all().map(|(cue, key)| (cue, Shape::Key(key)));
    let others = OTHERS.map(|(cue, shape)| (cue.to_owned(), shape));
    let rules = keys.chain(names()).chain(options()).chain(others);
    rules.map(|(cue, shape)| Rule { cue, shape }).collect()
});

/// Returns the rules for the names in `names.txt`. A name of several words also matches if the
/// words are joined by dashes or spaces, or by nothing.
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
            // If a name has several words, each notation joins them in its own way.
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

/// Returns the rules for the options in `options.txt`.
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

/// The rules that are not in a table, because each has a shape of its own.
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
    // This only looks like a secret, and the encoded text after it must be skipped.
    (";base64,", Shape::Encoded),
];

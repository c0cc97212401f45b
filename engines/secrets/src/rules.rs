//! What a secret looks like: one table. Keys that are known by how they look are in `keys.txt`. Shapes are checked in
//! `shape.rs`.

use std::borrow::Cow;
use std::sync::LazyLock;

use self::Take::{Attached, Next, Pair};
use self::Value::{Cookie, Header, Jwk, Key, Password, Short};
use crate::keys;

/// One kind of secret.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The text of three bytes or more that makes a place a candidate; ASCII case is ignored.
    pub(crate) cue: Cow<'static, str>,
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
    /// The entries of a secret of Kubernetes.
    Kubernetes,
    /// Encoded bytes: no secret, and nothing in them is one.
    Encoded,
}

/// What behind an option is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The next word.
    Next,
    /// What follows in the same word.
    Attached,
    /// What follows one of these signs in the next word, behind a user.
    Pair(&'static [u8]),
}

/// When the value behind a name is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Always, unless it is code, prose or a placeholder.
    Password,
    /// If it is long and looks random.
    Key,
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
            _ => 0,
        };
        byte += 1;
    }
    sets
}

pub(crate) fn is_in(byte: u8, set: u16) -> bool {
    SETS[usize::from(byte)] & set != 0
}

const fn rule(cue: &'static str, shape: Shape) -> Rule {
    let cue = Cow::Borrowed(cue);
    Rule { cue, shape }
}

const fn named(cue: &'static str, value: Value) -> Rule {
    let whole = false;
    rule(cue, Shape::Named { value, whole })
}

const fn named_so(cue: &'static str, value: Value) -> Rule {
    let whole = true;
    rule(cue, Shape::Named { value, whole })
}

const fn option(cue: &'static str, take: Take, commands: &'static str) -> Rule {
    rule(cue, Shape::Option { commands, take })
}

/// Every kind of secret: its cue and its shape.
pub(crate) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let keys = keys::all().map(|(cue, key)| Rule {
        cue: Cow::Owned(cue),
        shape: Shape::Key(key),
    });
    keys.chain(other_rules()).collect()
});

/// The commands that take a password behind `-p` and a space, and behind `-w`.
const NEXT_P: &str = "sshpass mongo mongosh mongodump mongorestore mongoexport mongoimport login cqlsh couchbase-cli evil-winrm useradd usermod crackmapexec netexec nxc rabbitmqadmin influx arangosh";
const LDAP: &str = "ldapsearch ldapmodify ldapadd ldapdelete ldappasswd ldapwhoami ldapcompare";

#[rustfmt::skip]
fn other_rules() -> impl Iterator<Item = Rule> {
    [
    // Blocks.
    rule("-----BEGIN ", Shape::Pem),
    rule("-----END ", Shape::PemEnd),
    rule("private-lines: ", Shape::Lines),
    rule("kind: secret", Shape::Kubernetes),
    // Headers, URLs, files.
    rule("bearer ", Shape::Scheme),
    rule("basic ", Shape::Scheme),
    named_so("authorization", Header),
    named_so("cookie", Cookie),
    rule("://", Shape::Authority),
    rule("@tcp(", Shape::Account),
    rule("@unix(", Shape::Account),
    rule("login ", Shape::Login),
    rule(":5432:", Shape::Pgpass),
    rule(":5433:", Shape::Pgpass),
    rule(":6432:", Shape::Pgpass),
    rule(":*:", Shape::Pgpass),
    // Options.
    option(" -u", Pair(b":"), "curl http https wget xh"),
    option(" --user", Pair(b":"), "curl http https wget xh"),
    option(" -u", Pair(b":,"), "lftp"),
    option(" --proxy-user", Pair(b":"), "curl wget"),
    option(" -U", Pair(b":%"), "curl smbclient rpcclient smbmap net smbget"),
    option(" -a", Pair(b":"), "http https xh"),
    option("sqlplus ", Pair(b"/"), ""),
    option("oracle:thin:", Pair(b"/"), ""),
    option(" -p", Attached, "mysql mysqldump mysqladmin mysqlimport mysqlsh mysqlcheck mariadb mariadb-dump sshpass 7z 7za 7zz rar unrar"),
    option(" -p ", Next, NEXT_P),
    option("\"-p\"", Next, NEXT_P),
    option("\"-a\"", Next, "redis-cli valkey-cli keydb-cli"),
    option("\"-w\"", Next, LDAP),
    option("\"-u\"", Pair(b":"), "curl http https wget xh"),
    option(" -P", Next, "sqlcmd bcp osql tsql zip unzip ipmitool mosquitto_pub mosquitto_sub"),
    option(" -P", Attached, "sqlcmd bcp osql"),
    option(" -a ", Next, "redis-cli valkey-cli keydb-cli"),
    option(" --pass ", Next, "redis-cli valkey-cli keydb-cli"),
    option(" -w ", Next, LDAP),
    option(" -s ", Next, "ldappasswd"),
    option(" -k ", Next, "openssl"),
    option("/p:", Attached, "xfreerdp wfreerdp"),
    option("securestring ", Next, ""),
    option("securestring -string ", Next, ""),
    rule("| sudo -s", Shape::Piped),
    rule("| chpasswd", Shape::Piped),
    rule("| sudo chpasswd", Shape::Piped),
    rule("password-stdin", Shape::Piped),
    rule("passwd --stdin", Shape::Piped),
    // Names.
    named("password", Password),
    named("passwd", Password),
    named("passphrase", Password),
    named("passcode", Password),
    named_so("pwd", Password),
    named_so("pass", Password),
    named_so("psk", Password),
    named("mot de passe", Password),
    named("passwort", Password),
    named("contraseña", Password),
    named("пароль", Password),
    named("Пароль", Password),
    named("密码", Password),
    named("密碼", Password),
    named("口令", Password),
    named("パスワード", Password),
    named("kennwort", Password),
    named_so("senha", Password),
    named("contrasena", Password),
    named("contrasinal", Password),
    named("wachtwoord", Password),
    named_so("parola", Password),
    named("hasło", Password),
    named("şifre", Password),
    named("mật khẩu", Password),
    named("kata sandi", Password),
    named("पासवर्ड", Password),
    named("পাসওয়ার্ড", Password),
    named("كلمة المرور", Password),
    named("كلمة السر", Password),
    named("گذرواژه", Password),
    named("비밀번호", Password),
    named("암호", Password),
    named("暗証番号", Password),
    named_so("storepass", Password),
    named_so("keypass", Password),
    named_so("contribsys__com", Password),
    named_so("contribsys.com", Password),
    named("secret", Short),
    named("secret_key", Short),
    named("secret-key", Short),
    named("secretkey", Short),
    named("client_secret", Short),
    named("token", Key),
    named("api_key", Key),
    named("api-key", Key),
    named("apikey", Key),
    named("api key", Key),
    named("access_key", Key),
    named("access-key", Key),
    named("accesskey", Key),
    named("access key", Key),
    named("account_key", Key),
    named("accountkey", Key),
    named("private_key", Key),
    named("privatekey", Key),
    named("signing_key", Key),
    named("signingkey", Key),
    named("encryption_key", Key),
    named("encryptionkey", Key),
    named("master_key", Key),
    named("masterkey", Key),
    named("shared_key", Key),
    named("auth_key", Key),
    named("auth-key", Key),
    named("authkey", Key),
    named("subscription-key", Key),
    named("service_role", Key),
    named("service_key", Key),
    named("servicekey", Key),
    named("client_key", Key),
    named("clientkey", Key),
    named("database_key", Key),
    named("db_key", Key),
    named("priv_key", Key),
    named("api_hash", Key),
    named("key-data", Key),
    named("key_data", Key),
    named("preshared_key", Key),
    named("presharedkey", Key),
    named("pre-shared-key", Key),
    named("pre_shared_key", Key),
    named("license_key", Key),
    named("licensekey", Key),
    named("webhook_key", Key),
    named("app_key", Key),
    named("appkey", Key),
    named("x-goog-api-key", Key),
    named_so("private key", Key),
    named_so("secret key", Key),
    named_so("_key", Key),
    named_so("ssh-key", Key),
    named_so("credential", Key),
    named_so("credentials", Key),
    named_so("session_id", Key),
    named_so("sessionid", Key),
    named_so("auth", Short),
    named_so("_auth", Short),
    named_so("\"d\"", Jwk),
    named_so("\"k\"", Jwk),
    named_so("\"p\"", Jwk),
    named_so("\"q\"", Jwk),
    named_so("\"dp\"", Jwk),
    named_so("\"dq\"", Jwk),
    named_so("\"qi\"", Jwk),
    // What only looks like a secret.
    rule(";base64,", Shape::Encoded),
    ]
    .into_iter()
}

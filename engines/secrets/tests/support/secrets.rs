//! Secrets of every kind, look-alikes that are none, and messages that hold a text in every place. All keys
//! are made at run time, so that nothing here looks like a real one.
#![allow(dead_code, unreachable_pub, missing_docs)]

mod look_alikes;
mod notations;
mod random;
mod table;

#[allow(unused_imports)]
pub use notations::{blocks, notations};
pub use random::Random;
use serde_json::{Value, json};
#[allow(unused_imports)]
pub use table::{assigned, keys};

/// A text with a secret in it.
#[derive(Debug, Clone)]
pub struct Case {
    pub kind: &'static str,
    pub text: String,
    /// What must not be left: the secret, or its lines.
    pub secrets: Vec<String>,
}

impl Random {
    /// Random characters.
    pub fn of(&mut self, set: &str, len: usize) -> String {
        let set: Vec<char> = set.chars().collect();
        (0..len)
            .map(|_| set[self.next() as usize % set.len()])
            .collect()
    }

    fn card(&mut self, prefix: &str, len: usize) -> String {
        let mut number = prefix.to_owned() + &self.of("0123456789", len - 1 - prefix.len());
        let sum: u32 = (number.bytes().rev().enumerate())
            .map(|(at, digit)| {
                let value = u32::from(digit - b'0') << ((at + 1) % 2);
                if value > 9 { value - 9 } else { value }
            })
            .sum();
        number.push(char::from(b'0' + ((10 - sum % 10) % 10) as u8));
        number
    }
}

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";

fn base64(bytes: &[u8]) -> String {
    const SET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            text.push(match at <= chunk.len() {
                true => char::from(SET[(bits >> (18 - 6 * at)) as usize & 63]),
                false => '=',
            });
        }
    }
    text
}

/// `each` secrets of every kind.
pub fn secrets(seed: u64, each: usize) -> Vec<Case> {
    let mut random = Random(seed);
    (0..each).flat_map(|_| one_of_each(&mut random)).collect()
}

fn one_of_each(random: &mut Random) -> Vec<Case> {
    let alnum = format!("{LOWER}{UPPER}{DIGITS}");
    let word = format!("{alnum}-_");
    let capitals = format!("{UPPER}{DIGITS}");
    let b64 = format!("{alnum}+/");
    let lower = format!("{LOWER}{DIGITS}");
    let mut cases = Vec::new();
    let mut add = |kind: &'static str, text: String, secret: &str| {
        cases.push(Case {
            kind,
            text,
            secrets: vec![secret.to_owned()],
        });
    };
    // Keys that are known by how they begin: the beginning, what follows, and of how many characters.
    let prefixed: [(&'static str, &[&str], &str, usize); 76] = [
        ("OpenAI", &["sk-", ""], &alnum, 48),
        ("OpenAI project", &["sk-", "proj-"], &word, 74),
        ("OpenAI service account", &["sk-", "svcacct-"], &word, 74),
        ("Anthropic", &["sk-", "ant-api03-"], &word, 93),
        ("OpenRouter", &["sk-", "or-v1-"], HEX, 64),
        ("DeepSeek", &["sk-", ""], HEX, 32),
        ("Groq", &["gs", "k_"], &alnum, 52),
        ("xAI", &["xa", "i-"], &alnum, 80),
        ("Hugging Face", &["h", "f_"], &format!("{LOWER}{UPPER}"), 34),
        ("Replicate", &["r", "8_"], &alnum, 37),
        ("Perplexity", &["ppl", "x-"], &alnum, 48),
        ("NVIDIA", &["nv", "api-"], &word, 64),
        ("LangSmith", &["lsv2", "_pt_"], HEX, 32),
        ("ElevenLabs", &["s", "k_"], HEX, 48),
        ("AWS key id", &["AK", "IA"], &capitals, 16),
        ("AWS key id without a digit", &["AK", "IA"], UPPER, 16),
        ("AWS temporary key id", &["AS", "IA"], &capitals, 16),
        ("Google API", &["AI", "za"], &word, 35),
        ("Google client secret", &["GOC", "SPX-"], &word, 28),
        ("Google access token", &["ya", "29."], &word, 120),
        ("DigitalOcean", &["dop", "_v1_"], HEX, 64),
        ("Alibaba", &["LT", "AI"], &alnum, 20),
        ("Vault", &["hv", "s."], &word, 90),
        ("Databricks", &["da", "pi"], HEX, 32),
        ("Netlify", &["nf", "p_"], &alnum, 36),
        ("Supabase", &["sb", "p_"], HEX, 40),
        ("PlanetScale", &["pscale", "_tkn_"], &word, 43),
        ("Tailscale", &["ts", "key-auth-"], &alnum, 30),
        ("Pulumi", &["pu", "l-"], HEX, 40),
        ("OpenShift", &["sha", "256~"], &word, 43),
        ("GitHub", &["gh", "p_"], &alnum, 36),
        ("GitHub OAuth", &["gh", "o_"], &alnum, 36),
        ("GitHub app", &["gh", "s_"], &alnum, 36),
        ("GitHub fine-grained", &["github", "_pat_"], &alnum, 82),
        ("GitLab", &["gl", "pat-"], &word, 20),
        ("GitLab runner", &["gl", "rt-"], &word, 20),
        ("GitLab deploy", &["gl", "dt-"], &word, 20),
        ("GitLab trigger", &["gl", "ptt-"], HEX, 40),
        ("npm", &["np", "m_"], &alnum, 36),
        ("PyPI", &["py", "pi-AgEIcHlwaS5vcmc"], &word, 120),
        ("RubyGems", &["ruby", "gems_"], HEX, 48),
        ("Docker", &["dckr", "_pat_"], &word, 27),
        ("Atlassian", &["ATA", "TT3"], &word, 180),
        ("Bitbucket", &["AT", "BB"], &alnum, 32),
        ("Artifactory", &["AK", "Cp"], &alnum, 69),
        ("Postman", &["PM", "AK-"], HEX, 59),
        ("Figma", &["fig", "d_"], &word, 40),
        ("Linear", &["lin", "_api_"], &alnum, 40),
        ("Notion", &["nt", "n_"], &alnum, 46),
        ("New Relic", &["NR", "AK-"], &capitals, 27),
        ("Grafana", &["gl", "sa_"], &alnum, 41),
        ("Sentry", &["sntr", "yu_"], HEX, 64),
        ("Doppler", &["dp", ".pt."], &alnum, 43),
        ("PostHog", &["ph", "x_"], &alnum, 43),
        ("Slack bot", &["xo", "xb-"], &alnum, 50),
        ("Slack user", &["xo", "xp-"], &alnum, 70),
        ("Slack app", &["xa", "pp-1-A0"], &lower, 60),
        ("Mailgun", &["ke", "y-"], HEX, 32),
        ("Brevo", &["xkey", "sib-"], HEX, 64),
        ("Stripe live", &["sk", "_live_"], &alnum, 24),
        ("Stripe test", &["sk", "_test_"], &alnum, 24),
        ("Stripe restricted", &["rk", "_live_"], &alnum, 24),
        ("Stripe webhook", &["wh", "sec_"], &alnum, 32),
        ("Shopify", &["shp", "at_"], HEX, 32),
        ("Shopify secret", &["shp", "ss_"], HEX, 32),
        ("Square", &["sq0", "csp-"], &word, 43),
        ("age", &["AGE-SECRET-", "KEY-1"], &capitals, 58),
        ("CircleCI", &["CCI", "PAT_"], &alnum, 60),
        ("Buildkite", &["bk", "ua_"], HEX, 40),
        ("Sourcegraph", &["sg", "p_"], HEX, 40),
        ("Pinecone", &["pc", "sk_"], &alnum, 60),
        ("Heroku", &["HR", "KU-"], &word, 60),
        ("Google refresh token", &["1/", "/0"], &word, 60),
        ("Bedrock", &["AB", "SK"], &alnum, 110),
        ("Square token", &["EA", "AA"], &alnum, 60),
        ("Jina", &["ji", "na_"], &alnum, 60),
    ];
    for (kind, prefix, set, len) in prefixed {
        let key = prefix.concat() + &random.of(set, len);
        let text = match kind.len() % 4 {
            0 => format!("use {key} for it"),
            1 => format!("{key}\nnext line"),
            2 => format!("export X={key}"),
            _ => format!("the key ({key}), as said"),
        };
        add(kind, text, &key);
    }
    let sendgrid = format!(
        "{}{}.{}",
        ["S", "G."].concat(),
        random.of(&word, 22),
        random.of(&word, 43)
    );
    add("SendGrid", format!("mail with {sendgrid}"), &sendgrid);
    let telegram = format!(
        "{}{}{}",
        random.of("123456789", 9),
        [":", "AA"].concat(),
        random.of(&word, 33)
    );
    add("Telegram", format!("bot {telegram} runs"), &telegram);
    let azure = format!(
        "{}8{}{}",
        random.of(&alnum, 3),
        ["Q", "~"].concat(),
        random.of(&alnum, 34)
    );
    add(
        "Azure client secret",
        format!("az login --service-principal -p {azure}"),
        &azure,
    );
    let account = random.of(&b64, 86) + "==";
    add(
        "Azure account key",
        format!(
            "DefaultEndpointsProtocol=https;AccountName=store;AccountKey={account};EndpointSuffix=core.windows.net"
        ),
        &account,
    );
    let sas = random.of(&alnum, 20) + "%2B" + &random.of(&alnum, 18) + "%3D";
    add(
        "Azure SAS",
        format!("https://store.blob.core.windows.net/c?sv=2022-11-02&sr=b&sig={sas}"),
        &sas,
    );
    let hook = format!(
        "T{}/B{}/{}",
        random.of(&capitals, 8),
        random.of(&capitals, 8),
        random.of(&alnum, 24)
    );
    add(
        "Slack webhook",
        format!("https://hooks.slack.com/services/{hook}"),
        &hook,
    );
    let hook = format!("{}/{}", random.of(DIGITS, 18), random.of(&word, 68));
    add(
        "Discord webhook",
        format!("https://discord.com/api/webhooks/{hook}"),
        &hook,
    );
    let jwt = format!(
        "{}{}.{}{}.{}",
        ["ey", "J"].concat(),
        random.of(&alnum, 33),
        ["ey", "J"].concat(),
        random.of(&alnum, 70),
        random.of(&word, 43)
    );
    add("JSON web token", format!("session: {jwt}"), &jwt);
    let bearer = random.of(&word, 40);
    add(
        "bearer",
        format!("-H 'Authorization: Bearer {bearer}'"),
        &bearer,
    );
    let token = random.of(HEX, 40);
    add(
        "header with a token",
        format!("Authorization: token {token}"),
        &token,
    );
    let basic = base64(format!("admin:{}", random.of(&alnum, 12)).as_bytes());
    add("basic", format!("Authorization: Basic {basic}"), &basic);
    add(
        "docker auth",
        format!(r#"{{"auths": {{"registry.io": {{"auth": "{basic}"}}}}}}"#),
        &basic,
    );
    add(
        "npmrc",
        format!("//registry.npmjs.org/:_auth={basic}"),
        &basic,
    );
    let header = random.of(&alnum, 32);
    add(
        "key in a header",
        format!("curl -H \"X-Api-Key: {header}\" https://a.example"),
        &header,
    );
    let cookie = random.of(&alnum, 32);
    add(
        "cookie",
        format!("Cookie: theme=dark; sessionid={cookie}; lang=de"),
        &cookie,
    );
    add(
        "set-cookie",
        format!("Set-Cookie: sid={cookie}; Path=/; HttpOnly"),
        &cookie,
    );
    let password = random.of(LOWER, 5) + &random.of(DIGITS, 3) + "!" + &random.of(UPPER, 2);
    add("password", format!("DB_PASSWORD={password}"), &password);
    add(
        "password in YAML",
        format!("  password: {password}"),
        &password,
    );
    add(
        "password in JSON",
        format!(r#"{{"user": "bo", "password": "{password}"}}"#),
        &password,
    );
    add(
        "password in Chinese",
        format!("密码：{password}。"),
        &password,
    );
    add(
        "password in words",
        format!("my password is {password}, keep it"),
        &password,
    );
    add(
        "password option",
        format!("tool --password {password} --verbose"),
        &password,
    );
    add(
        "password in XML",
        format!("<password>{password}</password>"),
        &password,
    );
    add(
        "password as an argument",
        format!("connect(user, password='{password}')"),
        &password,
    );
    add(
        "database URL",
        format!("postgres://app:{password}@db.internal:5432/main"),
        &password,
    );
    add(
        "Redis URL",
        format!("redis://:{password}@cache:6379/0"),
        &password,
    );
    add(
        "connection string",
        format!("Server=db;User Id=sa;Password={password};Encrypt=True"),
        &password,
    );
    add(
        "curl -u",
        format!("curl -s -u admin:{password} https://a.example/x"),
        &password,
    );
    add(
        "curl --user",
        format!("curl --user \"admin:{password}\" https://a.example/x"),
        &password,
    );
    add(
        "netrc",
        format!("machine a.example login bo password {password}"),
        &password,
    );
    add(
        "passphrase",
        format!("passphrase = \"{password}\""),
        &password,
    );
    let hex = random.of(HEX, 32);
    add("API key by name", format!("api_key = '{hex}'"), &hex);
    add("token by name", format!(r#""token": "{hex}""#), &hex);
    add(
        "API key in a URL",
        format!("https://a.example/v1?q=x&api_key={hex}&n=1"),
        &hex,
    );
    add(
        "camel case",
        format!("const clientSecret = \"{hex}\";"),
        &hex,
    );
    let aws = random.of(&b64, 40);
    add(
        "AWS secret key",
        format!("aws_secret_access_key = {aws}"),
        &aws,
    );
    let letters = random.of(&format!("{LOWER}{UPPER}"), 32);
    add("letters alone", format!("SECRET_TOKEN={letters}"), &letters);
    let git = random.of(HEX, 40);
    add(
        "token in a git URL",
        format!("git clone https://{git}@git.example/a/b.git"),
        &git,
    );
    let card = random.card("4", 16);
    add("card", format!("card {card} please"), &card);
    let card = random.card("55", 16);
    let grouped = [&card[..4], &card[4..8], &card[8..12], &card[12..]].join(" ");
    add("card in groups", format!("card: {grouped}."), &grouped);
    let card = random.card("37", 15);
    add("American Express", format!("amex {card}"), &card);
    let lines: Vec<String> = (0..6).map(|_| random.of(&b64, 64)).collect();
    let (begin, end) = (
        ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat(),
        ["-----END RSA ", "PRIVATE KEY-----"].concat(),
    );
    let body = lines.join("\n");
    cases.push(Case {
        kind: "key block",
        text: format!("{begin}\n{body}\n{end}"),
        secrets: lines.clone(),
    });
    let numbered = |lines: &[String]| -> String {
        let lines = lines.iter().enumerate();
        lines
            .map(|(at, line)| format!("{:6}→{line}\n", at + 1))
            .collect()
    };
    let each = |before: &str, after: &str| -> String {
        let lines = std::iter::once(&begin).chain(&lines);
        lines.map(|line| format!("{before}{line}{after}")).collect()
    };
    let whole = [std::slice::from_ref(&begin), &lines[..]].concat();
    for (kind, text) in [
        ("key block without its end", format!("{begin}\n{body}")),
        ("numbered key block without its end", numbered(&whole)),
        ("quoted key block without its end", each("> ", "\n")),
        ("listed key block without its end", each("    - ", "\n")),
        ("compared key block without its end", each("+", "\n")),
        ("commented key block without its end", each("# ", "\n")),
        (
            "key block without its end in joined strings",
            each("\"", "\\n\" +\n"),
        ),
        ("end of a key block", format!("{body}\n{end}")),
        (
            "quoted end of a key block",
            each("> ", "\n").replace(&begin, "") + "> " + &end,
        ),
        (
            "numbered end of a key block",
            numbered(&[&lines[..], std::slice::from_ref(&end)].concat()),
        ),
    ] {
        let secrets = lines.clone();
        cases.push(Case {
            kind,
            text,
            secrets,
        });
    }
    cases
}

/// `each` of every kind of text that looks like a secret and is none.
pub fn look_alikes(seed: u64, each: usize) -> Vec<(&'static str, String)> {
    let mut random = Random(seed);
    (0..each)
        .flat_map(|_| one_look_alike_of_each(&mut random))
        .collect()
}

fn one_look_alike_of_each(random: &mut Random) -> Vec<(&'static str, String)> {
    let alnum = format!("{LOWER}{UPPER}{DIGITS}");
    let b64 = format!("{alnum}+/");
    let hex = |random: &mut Random, len| random.of(HEX, len);
    let uuid = format!(
        "{}-{}-4{}-a{}-{}",
        hex(random, 8),
        hex(random, 4),
        hex(random, 3),
        hex(random, 3),
        hex(random, 12)
    );
    let mut all = vec![
        ("commit", format!("commit {}", hex(random, 40))),
        (
            "commit range",
            format!("Updating {}..{}", hex(random, 7), hex(random, 7)),
        ),
        (
            "git object",
            format!("100644 blob {}\tsrc/main.rs", hex(random, 40)),
        ),
        (
            "submodule",
            format!("Submodule path 'lib': checked out '{}'", hex(random, 40)),
        ),
        ("UUID", format!("session {uuid}")),
        ("UUID token", format!(r#"{{"token": "{uuid}"}}"#)),
        (
            "image",
            format!(
                "data:image/png;base64,iVBORw0KGgo{}==",
                random.of(&b64, 900)
            ),
        ),
        (
            "image in JSON",
            format!(
                r#"{{"type":"base64","data":"iVBORw0KGgo{}"}}"#,
                random.of(&b64, 900)
            ),
        ),
        (
            "npm integrity",
            format!(r#""integrity": "sha512-{}==","#, random.of(&b64, 86)),
        ),
        (
            "yarn",
            format!("  integrity sha512-{}==", random.of(&b64, 86)),
        ),
        ("cargo lock", format!("checksum = \"{}\"", hex(random, 64))),
        (
            "go.sum",
            format!("github.com/a/b v1.2.3 h1:{}=", random.of(&b64, 43)),
        ),
        ("pip hash", format!("--hash=sha256:{}", hex(random, 64))),
        (
            "docker digest",
            format!("FROM alpine@sha256:{}", hex(random, 64)),
        ),
        ("etag", format!("ETag: \"{}\"", hex(random, 32))),
        (
            "trace",
            format!("traceparent: 00-{}-{}-01", hex(random, 32), hex(random, 16)),
        ),
        (
            "address",
            format!("0x{} at 0x7ffd{}", hex(random, 40), hex(random, 8)),
        ),
        ("microseconds", format!("at 17{}", random.of(DIGITS, 14))),
        (
            "decimal",
            format!(
                "loss 0.4{} and 4.5{}",
                random.of(DIGITS, 15),
                random.of(DIGITS, 15)
            ),
        ),
        ("tool call", format!("call_{}", random.of(&alnum, 24))),
        ("message id", format!("msg_01{}", random.of(&alnum, 22))),
        ("request id", format!("req_01{}", random.of(&alnum, 22))),
        (
            "port",
            format!("http://localhost:{}/a?b=c#d", random.of("123456789", 4)),
        ),
        (
            "asset",
            format!("https://cdn.example.com/assets/main.{}.js", hex(random, 16)),
        ),
        ("cache key", format!("cache_key: npm-{}", hex(random, 64))),
        (
            "blob",
            format!("https://github.com/a/b/blob/{}/src/lib.rs", hex(random, 40)),
        ),
        (
            "duration",
            format!(
                "finished in {}.{} s, 12 passed",
                random.of("123456789", 1),
                random.of(DIGITS, 2)
            ),
        ),
    ];
    all.extend(
        [
            "def test_password_reset_token_expires_after_24_hours(self):",
            "test auth::tests::token_refresh_2024_works ... ok",
            "password: the user must choose one of at least 12 characters",
            "def login(user: str, password: str) -> Token:",
            "password=os.environ['DB_PASSWORD']",
            "password = getpass.getpass('Password: ')",
            "password=${DB_PASSWORD}",
            "PASSWORD=$DB_PASSWORD",
            "PASSWORD=<your-password>",
            "api_key=<your-key>",
            "api_key: YOUR_API_KEY_HERE",
            "api_key=sk-...",
            "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "token: xxxxxxxxxxxxxxxxxxxxxxxx",
            "Authorization: Bearer $TOKEN",
            "Authorization: Bearer ${API_TOKEN}",
            "Authorization: Bearer <token>",
            "-H \"Authorization: token ${{ secrets.GITHUB_TOKEN }}\"",
            "max_tokens: 12000, token_count=1500, tokens_per_minute=90000",
            "the tokenizer is bert-base-uncased-v2-2024",
            "task-based-risk-assessment2024-plan and disk-1234567890123456",
            "scikit-learn==1.5.2 and sk-learn-contrib-2024-compat-tests",
            "npm_config_registry_is_respected_when_set_2 and npm_lifecycle_event",
            "ghp_ and hf_hub_download and AKIA are prefixes",
            "https://example.com/a:b@c and git@github.com:org/repo.git",
            "https://user@example.com/path?x=1",
            "docker run -u 1000:1000 -v /a:/b image:tag",
            "chown -u root:wheel, curl -u \"$USER:$PASS\" https://a.example",
            "cd $(pwd) && PWD=/home/bo/src ls",
            "Cookie: the browser keeps it; see cookie=yes",
            "Basic authentication is deprecated; bearer authentication-schemes remain",
            "basic TypeScript/JavaScript knowledge",
            "grep -n 'BEGIN RSA PRIVATE' and then END",
            "-----BEGIN CERTIFICATE-----",
            "x509\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n-----END CERTIFICATE-----",
            "it then looks for\n-----END RSA PRIVATE KEY-----\nand stops",
            "if token == previous_token_of_the_session_2: return",
            "secretKeyRef: {name: db-credentials-v2, key: password}",
            "\"password\": {\"type\": \"string\", \"minLength\": 12}",
            "\"password\": \"The password of the user\"",
            "password_hash_algorithm: argon2id",
            "<input type=\"password\" name=\"new-password\">",
            "PasswordAuthentication no",
            "class PasswordResetTokenGenerator2FactorBackend(Base):",
            "getUserAccessTokenFromSessionStorageOrNull(token)",
            "order 1234567890123456 of 2024-11-22 09:15:59",
            "+1 415 555 0100, 4242 is no card",
            "sk-model and gpt-4o-2024-08-06 and claude-sonnet-4-20250514",
            "the secret of good tests is that they fail",
            "Authorization: required for every request",
            "login bo with password prompt",
        ]
        .map(|text| ("written", text.to_owned())),
    );
    all.extend(look_alikes::written(random));
    all
}

/// `text` in the seven places that a secret mostly stands in: said, the result of a tool, the arguments of a call as
/// JSON, JSON in a string of JSON, a block of code, the line of a log with colours, cut into two where it can be.
pub fn seven(case: &Case) -> Vec<(&'static str, String)> {
    let text = &case.text;
    let lines = format!("keys:\n{text}\nand so on");
    let arguments = json!({"command": "run", "stdin": lines}).to_string();
    let secret = &case.secrets[0];
    let coloured = format!("\u{1b}[1m{}\u{1b}[0m{}", &secret[..1], &secret[1..]);
    let log = text.replacen(secret, &coloured, 1);
    let mut places = vec![
        (
            "said",
            format!("Here it is, keep it to yourself.\n\n{text}"),
        ),
        ("result", format!("Exit code 0\n{text}\n\n2 lines")),
        (
            "nested JSON",
            json!({"call": {"arguments": arguments, "n": [1]}}).to_string(),
        ),
        ("arguments", arguments),
        (
            "code",
            format!("Run this:\n```sh\n{text}\n```\nthen go on."),
        ),
        (
            "log",
            format!("2026-11-25T10:00:00.123Z \u{1b}[32mINFO\u{1b}[0m app: {log}"),
        ),
    ];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if secret.len() >= 40 && secret.bytes().all(is_plain) && !text.contains(['{', '\n']) {
        let (first, second) = secret.split_at(secret.len() - 12);
        let cut =
            text.replace('"', "")
                .replacen(secret, &format!("{first}\" +\n    \"{second}"), 1);
        places.push(("cut", format!("x = \"{cut}\"")));
    } else {
        places.push(("quotation", format!("> {}", text.replace('\n', "\n> "))));
    }
    places
}

/// A message that holds a text somewhere.
#[derive(Debug, Clone)]
pub struct Placed {
    pub place: &'static str,
    pub role: &'static str,
    /// Its text, as a host reads it.
    pub text: String,
    /// The arguments of its call, if it has one.
    pub arguments: Option<String>,
    /// Its wire JSON.
    pub raw: String,
}

/// `text` in every place that a wire format has for it.
pub fn placements(text: &str) -> Vec<Placed> {
    let lines = format!("keys:\n{text}\nand so on");
    let input = json!({"command": "run", "stdin": lines});
    let arguments = input.to_string();
    let nested = json!({"body": arguments, "n": [1, 2]}).to_string();
    let result = json!({"exit": 0, "stdout": lines});
    let array = json!([[{"log": ["a", lines]}], 1.5]).to_string();
    let result_in_result = json!({"result": result.to_string()}).to_string();
    let escaped: String = lines
        .encode_utf16()
        .map(|unit| format!("\\u{unit:04x}"))
        .collect();
    let as_text = |place, role, text: &str| Placed {
        place,
        role,
        text: text.to_owned(),
        arguments: None,
        raw: json!({"role": role, "content": text}).to_string(),
    };
    let as_call = |place, arguments: &str, raw: Value| Placed {
        place,
        role: "assistant",
        text: String::new(),
        arguments: Some(arguments.to_owned()),
        raw: raw.to_string(),
    };
    let chat_call = |arguments: &str| {
        let function = json!({"name": "run", "arguments": arguments});
        json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]})
    };
    let part = json!({"type": "text", "text": lines});
    vec![
        as_text("a user's words", "user", text),
        as_text("behind a line break", "user", &lines),
        as_text("an assistant's words", "assistant", &lines),
        as_call("arguments", &arguments, chat_call(&arguments)),
        as_call("JSON in arguments", &nested, chat_call(&nested)),
        as_call("broken arguments", &arguments[..arguments.len() - 1], chat_call(&arguments[..arguments.len() - 1])),
        as_text("a result in JSON", "tool", &result.to_string()),
        as_text("a result in indented JSON", "tool", &serde_json::to_string_pretty(&result).unwrap_or_default()),
        as_text("a nested array", "tool", &array),
        as_text("JSON in a result in JSON", "tool", &result_in_result),
        as_text("words before JSON", "tool", &format!("Exit code 0\n{result}")),
        as_text("JSON lines", "tool", &format!("{result}\n{result}\n")),
        as_text("JSON cut off", "tool", &format!("{{\"a\": {result}, \"rest")),
        as_text("JSON in escapes alone", "tool", &format!("{{\"a\": \"{escaped}\"}}")),
        Placed {
            raw: json!({"role": "user", "content": [part, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}).to_string(),
            ..as_text("a part beside an image", "user", &lines)
        },
        Placed {
            raw: json!({"role": "user", "content": [{"type": "file", "file": {"filename": "a.txt", "text": lines}}]}).to_string(),
            ..as_text("a file", "user", &lines)
        },
        as_call("tool_use", &arguments, json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": input}]})),
        Placed {
            raw: json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [part]}]}).to_string(),
            ..as_text("tool_result", "tool", &lines)
        },
        as_call("function_call", &arguments, json!({"type": "function_call", "call_id": "c", "name": "run", "arguments": arguments})),
        Placed {
            raw: json!({"type": "function_call_output", "call_id": "c", "output": result.to_string()}).to_string(),
            ..as_text("function_call_output", "tool", &result.to_string())
        },
        as_call("functionCall", &arguments, json!({"role": "model", "parts": [{"functionCall": {"name": "run", "args": input}}]})),
        Placed {
            raw: json!({"role": "user", "parts": [{"functionResponse": {"name": "run", "response": result}}]}).to_string(),
            ..as_text("functionResponse", "tool", &result.to_string())
        },
        Placed {
            raw: json!({"role": "assistant", "content": "so", "reasoning_content": lines}).to_string(),
            ..as_text("thinking", "assistant", "so")
        },
        Placed {
            raw: format!("{},\n  {}", json!({"role": "assistant", "content": "one"}), json!({"role": "assistant", "content": lines})),
            ..as_text("several wire messages", "assistant", &lines)
        },
    ]
}

/// So many bytes of a secret in a row give it away.
const PIECE: usize = 8;

/// The first secret of which `text` holds a piece: the whole of a short one, or eight bytes in a row of any other,
/// be they its beginning, its end or in its middle.
pub fn leak<'c>(text: &str, cases: &'c [Case]) -> Option<&'c Case> {
    cases.iter().find(|case| {
        case.secrets.iter().any(|secret| {
            let pieces = secret.as_bytes().windows(PIECE.min(secret.len()));
            pieces
                .map(|piece| std::str::from_utf8(piece).unwrap_or(secret))
                .any(|piece| {
                    text.contains(piece)
                        || (piece.contains('/') && text.contains(&piece.replace('/', "\\/")))
                })
        })
    })
}

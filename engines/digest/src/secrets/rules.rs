//! What a secret looks like: one table. Shapes are checked in `shape.rs`.

use self::Keeps::{Cue, Nothing};
use self::Value::{Cookie, Header, Key, Password, Short};

/// One kind of secret.
#[derive(Debug)]
pub(super) struct Rule {
    /// The text of three bytes or more that makes a place a candidate; ASCII case is ignored.
    pub(super) cue: &'static str,
    pub(super) shape: Shape,
    /// What of it stays visible.
    pub(super) keeps: Keeps,
}

/// What of a secret with its cue stays visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Nothing: the cue is a part of the secret.
    Nothing,
    /// The cue, and what else says what the secret was: a name, a scheme, a user, a host.
    Cue,
}

/// What stands around or behind a cue if it is a secret.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// A number of these characters that read as random. The cue is case-sensitive and begins a word.
    Random { of: u16, least: usize, most: usize },
    /// The same, with so many letters and digits in one piece: for cues that ordinary names begin with.
    Pieced { of: u16, piece: usize },
    /// A JSON web token: two parts or more, joined by dots.
    Jwt,
    /// A PEM block with a private key.
    Pem,
    /// The end of a PEM block with a private key, whose beginning may be missing.
    PemEnd,
    /// A credential behind the scheme of a header.
    Scheme,
    /// A value behind a name. `whole`: the cue ends the name, rather than being a part of it.
    Named { value: Value, whole: bool },
    /// A user and a password, or a token, before the host of a URL.
    Authority,
    /// `login NAME password VALUE`, as in a netrc file.
    Login,
    /// `USER:PASSWORD` behind an option of curl and its kind.
    UserOption,
    /// A bot's number before the cue, 33 characters behind it.
    Telegram,
    /// Three characters before the cue, 31 to 34 behind it.
    AzureClient,
    /// Encoded bytes: no secret, and nothing in them is one.
    Encoded,
}

/// When the value behind a name is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Always, unless it is code, prose or a placeholder.
    Password,
    /// If it is long and looks random.
    Key,
    /// If it looks random, however short.
    Short,
    /// A header's: always, behind its scheme.
    Header,
    /// Each cookie's that is long enough to be a session's.
    Cookie,
}

// Sets of characters, as bits.
const DIGIT: u16 = 1;
const A_TO_F: u16 = 2;
const LOWER_REST: u16 = 4;
const UPPER: u16 = 8;
const UNDERSCORE: u16 = 16;
const DASH: u16 = 32;
const DOT: u16 = 64;
const BASE64_REST: u16 = 128;
const OTHER: u16 = 256;

const HEX: u16 = DIGIT | A_TO_F;
const CAPITALS: u16 = DIGIT | UPPER;
pub(super) const ALNUM: u16 = HEX | LOWER_REST | UPPER;
pub(super) const WORD: u16 = ALNUM | UNDERSCORE | DASH;
pub(super) const DOTTED: u16 = WORD | DOT;
pub(super) const BASE64: u16 = ALNUM | BASE64_REST;
/// What tokens in headers and URLs are made of.
pub(super) const TOKEN: u16 = DOTTED | BASE64_REST | OTHER;

static SETS: [u16; 256] = sets();

const fn sets() -> [u16; 256] {
    let mut sets = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        sets[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' => A_TO_F,
            b'g'..=b'z' => LOWER_REST,
            b'A'..=b'Z' => UPPER,
            b'_' => UNDERSCORE,
            b'-' => DASH,
            b'.' => DOT,
            b'+' | b'/' | b'=' => BASE64_REST,
            b'~' | b'%' | b'!' | b'$' | b':' | b'@' => OTHER,
            _ => 0,
        };
        byte += 1;
    }
    sets
}

pub(super) fn is_in(byte: u8, set: u16) -> bool {
    SETS[usize::from(byte)] & set != 0
}

const fn rule(cue: &'static str, shape: Shape, keeps: Keeps) -> Rule {
    Rule { cue, shape, keeps }
}

const fn random(cue: &'static str, of: u16, least: usize) -> Rule {
    let most = usize::MAX;
    rule(cue, Shape::Random { of, least, most }, Nothing)
}

const fn exactly(cue: &'static str, of: u16, len: usize) -> Rule {
    let (least, most) = (len, len);
    rule(cue, Shape::Random { of, least, most }, Nothing)
}

/// What is behind the cue is secret, the cue is not.
const fn behind(cue: &'static str, of: u16, least: usize) -> Rule {
    let most = usize::MAX;
    rule(cue, Shape::Random { of, least, most }, Cue)
}

const fn pieced(cue: &'static str, piece: usize) -> Rule {
    rule(cue, Shape::Pieced { of: WORD, piece }, Nothing)
}

const fn azure(cue: &'static str) -> Rule {
    rule(cue, Shape::AzureClient, Nothing)
}

const fn named(cue: &'static str, value: Value) -> Rule {
    let whole = false;
    rule(cue, Shape::Named { value, whole }, Cue)
}

const fn named_so(cue: &'static str, value: Value) -> Rule {
    let whole = true;
    rule(cue, Shape::Named { value, whole }, Cue)
}

/// Every kind of secret: its cue, its shape, what of it stays visible.
#[rustfmt::skip]
pub(super) static RULES: &[Rule] = &[
    // Models.
    pieced("sk-", 16),                                  // OpenAI, DeepSeek and others
    random("sk-ant-", WORD, 20),                        // Anthropic
    random("sk-proj-", WORD, 16),                       // OpenAI: project, service account, admin
    random("sk-svcacct-", WORD, 16),
    random("sk-admin-", WORD, 16),
    random("sk-or-v1-", WORD, 16),                      // OpenRouter
    random("gsk_", ALNUM, 30),                          // Groq
    random("xai-", ALNUM, 30),                          // xAI
    random("hf_", ALNUM, 30),                           // Hugging Face
    random("api_org_", ALNUM, 30),
    random("r8_", ALNUM, 30),                           // Replicate
    random("pplx-", ALNUM, 30),                         // Perplexity
    random("nvapi-", WORD, 40),                         // NVIDIA
    random("csk-", ALNUM, 30),                          // Cerebras
    random("tvly-", WORD, 20),                          // Tavily
    random("lsv2_pt_", WORD, 32),                       // LangSmith
    random("lsv2_sk_", WORD, 32),
    random("pcsk_", WORD, 40),                          // Pinecone
    random("jina_", WORD, 40),                          // Jina
    random("e2b_", HEX, 32),                            // E2B
    random("sk_", HEX, 40),                             // ElevenLabs
    pieced("fw_", 20),                                  // Fireworks
    random("ABSK", BASE64, 60),                         // Amazon Bedrock
    // Clouds.
    exactly("AKIA", CAPITALS, 16),                      // AWS key ids
    exactly("ASIA", CAPITALS, 16),
    exactly("ABIA", CAPITALS, 16),
    exactly("ACCA", CAPITALS, 16),
    random("AIza", WORD, 30),                           // Google: API key, OAuth
    random("GOCSPX-", WORD, 20),
    random("ya29.", WORD, 20),
    random("1//0", WORD, 30),
    random("dop_v1_", HEX, 40),                         // DigitalOcean
    random("doo_v1_", HEX, 40),
    random("dor_v1_", HEX, 40),
    random("LTAI", ALNUM, 16),                          // Alibaba
    random("AKID", ALNUM, 32),                          // Tencent
    azure("0Q~"), azure("1Q~"), azure("2Q~"),           // Azure: client secret; keys and SAS have names
    azure("3Q~"), azure("4Q~"), azure("5Q~"),
    azure("6Q~"), azure("7Q~"), azure("8Q~"), azure("9Q~"),
    behind("sig=", TOKEN, 20),
    behind("signature=", TOKEN, 32),
    random("FlyV1 ", TOKEN, 40),                        // Fly
    random("fo1_", WORD, 30),
    random("HRKU-", WORD, 30),                          // Heroku
    random("tskey-", WORD, 20),                         // Tailscale
    random("pul-", HEX, 40),                            // Pulumi
    random("hvs.", WORD, 20),                           // HashiCorp: Vault, Terraform
    random("hvb.", WORD, 20),
    random("hvr.", WORD, 20),
    behind(".atlasv1.", WORD, 40),
    random("dapi", HEX, 32),                            // Databricks
    random("nfp_", ALNUM, 30),                          // Netlify
    behind("vercel_blob_rw_", WORD, 20),                // Vercel
    random("sbp_", HEX, 36),                            // Supabase
    random("sb_secret_", WORD, 20),
    random("pscale_tkn_", DOTTED, 30),                  // PlanetScale
    random("pscale_pw_", DOTTED, 30),
    random("pscale_oauth_", DOTTED, 30),
    random("sha256~", WORD, 40),                        // OpenShift
    random("v1.0-", HEX, 100),                          // Cloudflare
    // Code and packages.
    random("ghp_", ALNUM, 20),                          // GitHub
    random("gho_", ALNUM, 20),
    random("ghu_", ALNUM, 20),
    random("ghs_", ALNUM, 20),
    random("ghr_", ALNUM, 20),
    random("github_pat_", WORD, 20),
    random("glpat-", DOTTED, 16),                       // GitLab
    random("glrt-", DOTTED, 16),
    random("gldt-", WORD, 16),
    random("glptt-", WORD, 16),
    random("glcbt-", WORD, 16),
    random("glft-", WORD, 16),
    random("glimt-", WORD, 16),
    random("glagent-", WORD, 16),
    random("glsoat-", WORD, 16),
    random("gloas-", WORD, 16),
    random("npm_", ALNUM, 30),                          // npm
    random("pypi-", WORD, 50),                          // PyPI
    random("rubygems_", HEX, 40),                       // RubyGems
    random("CLOJARS_", ALNUM, 40),                      // Clojars
    random("dckr_pat_", WORD, 20),                      // Docker
    random("dckr_oat_", WORD, 20),
    random("ATATT3", TOKEN, 40),                        // Atlassian
    random("ATCTT3", TOKEN, 40),
    random("ATBB", ALNUM, 28),
    random("AKCp", ALNUM, 60),                          // Artifactory
    random("sgp_", WORD, 40),                           // Sourcegraph
    random("bkua_", HEX, 40),                           // Buildkite
    random("CCIPAT_", WORD, 40),                        // CircleCI
    random("PMAK-", WORD, 50),                          // Postman
    random("figd_", WORD, 30),                          // Figma
    random("lin_api_", ALNUM, 30),                      // Linear
    random("lin_oauth_", ALNUM, 30),
    random("ntn_", ALNUM, 40),                          // Notion
    pieced("secret_", 40),
    // Monitoring.
    random("NRAK-", ALNUM, 24),                         // New Relic
    random("glc_", BASE64, 32),                         // Grafana
    random("glsa_", WORD, 32),
    random("sntrys_", TOKEN, 40),                       // Sentry
    random("sntryu_", HEX, 40),
    random("dt0c01.", DOTTED, 60),                      // Dynatrace
    random("dp.pt.", ALNUM, 36),                        // Doppler
    random("dp.st.", DOTTED, 36),
    random("phx_", ALNUM, 36),                          // PostHog
    // Messages and mail.
    random("xoxb-", WORD, 10),                          // Slack
    random("xoxp-", WORD, 10),
    random("xoxa-", WORD, 10),
    random("xoxs-", WORD, 10),
    random("xoxr-", WORD, 10),
    random("xoxc-", WORD, 10),
    random("xoxd-", TOKEN, 10),
    random("xoxe-", WORD, 10),
    random("xoxe.", DOTTED, 20),
    random("xapp-", WORD, 20),
    behind("hooks.slack.com/services/", BASE64, 20),
    behind("hooks.slack.com/workflows/", BASE64, 20),
    behind("/api/webhooks/", TOKEN, 40),                // Discord
    behind("webhook.office.com/webhookb2/", TOKEN, 40), // Teams
    rule(":AA", Shape::Telegram, Nothing),              // Telegram
    random("SG.", DOTTED, 40),                          // SendGrid
    random("key-", HEX, 32),                            // Mailgun
    random("xkeysib-", WORD, 40),                       // Brevo
    pieced("re_", 20),                                  // Resend
    // Money and trade.
    random("sk_live_", ALNUM, 10),                      // Stripe
    random("sk_test_", ALNUM, 10),
    random("rk_live_", ALNUM, 10),
    random("rk_test_", ALNUM, 10),
    random("whsec_", BASE64, 20),
    random("shpat_", HEX, 32),                          // Shopify
    random("shpca_", HEX, 32),
    random("shppa_", HEX, 32),
    random("shpss_", HEX, 32),
    random("sq0atp-", WORD, 20),                        // Square
    random("sq0csp-", WORD, 20),
    random("EAAA", WORD, 56),                           // Square, Meta
    random("EAAC", ALNUM, 56),
    // Keys of no one provider.
    random("AGE-SECRET-KEY-1", CAPITALS, 40),           // age
    rule("eyJ", Shape::Jwt, Nothing),
    rule("-----BEGIN ", Shape::Pem, Nothing),
    rule("-----END ", Shape::PemEnd, Nothing),
    // Headers, URLs, command lines.
    rule("bearer ", Shape::Scheme, Cue),
    rule("basic ", Shape::Scheme, Cue),
    named_so("authorization", Header),
    named_so("cookie", Cookie),
    rule("://", Shape::Authority, Cue),
    rule("login ", Shape::Login, Cue),
    rule(" -u ", Shape::UserOption, Cue),
    rule(" -u'", Shape::UserOption, Cue),
    rule(" -u\"", Shape::UserOption, Cue),
    rule(" --user ", Shape::UserOption, Cue),
    rule(" --user=", Shape::UserOption, Cue),
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
    named("密码", Password),
    named("密碼", Password),
    named("口令", Password),
    named("パスワード", Password),
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
    named("authkey", Key),
    named("subscription-key", Key),
    named("service_role", Key),
    named_so("credential", Key),
    named_so("credentials", Key),
    named_so("session_id", Key),
    named_so("sessionid", Key),
    named_so("auth", Short),
    named_so("_auth", Short),
    // What only looks like a secret.
    rule(";base64,", Shape::Encoded, Cue),
];

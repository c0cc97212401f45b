//! How an agent learns the address of the gateway, and where its requests went before.
//!
//! Programs take the address of a model's API from an environment variable, from the command line
//! or from a file of their own. [`Addresses`] collects the addresses that the command had been
//! given, which become the gateway's upstreams. [`Agent`] then builds the command with the
//! gateway's address in place of them, see [`Agent::told`].
//!
//! Two rules keep this safe. A variable that names another address than the upstream is left alone,
//! because its key must not reach a server that it was not meant for. The gateway's token stands in
//! for a key only if every address of that API was replaced.
//!
//! The table [`VARIABLES`] and the methods of [`Agent`] are the only places that know particular
//! programs. A new agent is added there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use contexture::config::Upstream;
use contexture::prompt_cache::{CacheProvider, provider_at};
use contexture_gateway::{Gateway, Pass, Provider};

use crate::edit::{FileFormat, value_at};
use crate::error::CliError;

/// What a program appends to an address. It decides whether the gateway's address is given with or
/// without `/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The version and the endpoint, as in `/v1/messages`.
    Root,
    /// Only the endpoint, as in `/chat/completions`.
    Versioned,
}

/// An environment variable that some programs read the address of an API from.
#[derive(Debug, Clone, Copy)]
struct Variable {
    name: &'static str,
    api: Provider,
    form: Form,
    /// Whether it is set for every command. Otherwise it is set only if it was set before, since a
    /// program may change its behaviour when it finds the variable.
    always: bool,
}

const fn variable(name: &'static str, api: Provider, form: Form, always: bool) -> Variable {
    Variable {
        name,
        api,
        form,
        always,
    }
}

/// The known variables. If several of one API are set, the first one in this list names the
/// upstream.
const VARIABLES: &[Variable] = &[
    // Anthropic's SDKs and therefore Claude Code.
    variable("ANTHROPIC_BASE_URL", Provider::Anthropic, Form::Root, true),
    // LiteLLM and therefore aider.
    variable("ANTHROPIC_API_BASE", Provider::Anthropic, Form::Root, true),
    // Zed and others.
    variable("ANTHROPIC_API_URL", Provider::Anthropic, Form::Root, false),
    // Goose.
    variable("ANTHROPIC_HOST", Provider::Anthropic, Form::Root, false),
    // OpenAI's SDKs.
    variable("OPENAI_BASE_URL", Provider::OpenAi, Form::Versioned, true),
    // LiteLLM, LangChain, aider.
    variable("OPENAI_API_BASE", Provider::OpenAi, Form::Versioned, true),
    // Open WebUI.
    variable(
        "OPENAI_API_BASE_URL",
        Provider::OpenAi,
        Form::Versioned,
        false,
    ),
    variable("OPENAI_API_URL", Provider::OpenAi, Form::Versioned, false),
    // Goose has the version in another variable.
    variable("OPENAI_HOST", Provider::OpenAi, Form::Root, false),
    // OpenHands.
    variable("LLM_BASE_URL", Provider::OpenAi, Form::Versioned, false),
    // Google's SDKs and therefore Gemini CLI.
    variable("GOOGLE_GEMINI_BASE_URL", Provider::Google, Form::Root, true),
];

/// Agents that read the address of their model's API from a variable of their own: the agent, that
/// variable, and the variable that says whose API it is. Without the latter it is OpenAI's. Such an
/// agent calls another service if its variable is not set, so it is never set for the first time.
const OWN_VARIABLES: &[(&str, &str, &str)] = &[
    (
        "copilot",
        "COPILOT_PROVIDER_BASE_URL",
        "COPILOT_PROVIDER_TYPE",
    ),
    ("grok", "GROK_MODELS_BASE_URL", ""),
    ("kimi", "KIMI_MODEL_BASE_URL", "KIMI_MODEL_PROVIDER_TYPE"),
];

/// The variables that hold the key of an API, for its SDKs and for most agents.
const KEYS: [(&str, Provider); 3] = [
    ("OPENAI_API_KEY", Provider::OpenAi),
    ("ANTHROPIC_API_KEY", Provider::Anthropic),
    ("GEMINI_API_KEY", Provider::Google),
];
/// The variable for headers that Claude Code and Anthropic's SDKs add to each request, one per
/// line.
const ANTHROPIC_HEADERS: &str = "ANTHROPIC_CUSTOM_HEADERS";
/// The variable for headers that Gemini CLI adds to each request, separated by commas.
const GEMINI_HEADERS: &str = "GEMINI_CLI_CUSTOM_HEADERS";
/// The header in which a client sends the gateway's token.
const TOKEN: &str = "x-contexture-token";
/// The variable that holds the gateway's token, for programs that know of the gateway.
pub(super) const TOKEN_VARIABLE: &str = "CONTEXTURE_GATEWAY_TOKEN";

/// An address that the command had been given before `run` replaced it.
#[derive(Debug)]
struct Given {
    /// The name of the variable, or of the setting in the agent's own configuration that `run`
    /// overrides.
    name: String,
    api: Provider,
    form: Form,
    url: String,
}

/// The addresses that requests are forwarded to. An address in Contexture's configuration counts
/// before one of the environment.
#[derive(Debug)]
pub(super) struct Addresses {
    given: Vec<Given>,
    /// The addresses in Contexture's configuration.
    config: Upstream,
    codex: Codex,
}

/// How Codex reaches its model. If the program is another one, this is [`Codex::Key`] and has no
/// effect.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Codex {
    /// Through its built-in provider, with an API key. It accepts another base URL.
    Key,
    /// Through its built-in provider, with a ChatGPT login. From version 0.169 on, it then uses the
    /// address that the account names, whatever base URL is set. Only a provider of another name
    /// uses its own base URL.
    Login,
    /// Through another provider with its own address, which `run` does not change.
    Other(String),
}

impl Codex {
    /// The name of the provider that Codex is given for a login. docs/gateway.md recommends the
    /// same name for `contexture serve`.
    const PROVIDER: &str = "contexture";

    /// Finds out how Codex reaches its model, from its command line or else its configuration.
    /// `read` returns a file of its home folder, or an empty text if there is none. `has_key` says
    /// whether the environment has a key, which counts before a login.
    fn of(arguments: &[String], read: &dyn Fn(&str) -> String, has_key: bool) -> Self {
        if arguments.iter().any(|argument| argument == "--oss") {
            return Self::Other("--oss".to_owned());
        }
        let config = read("config.toml");
        let in_profile = || {
            let chosen = options(arguments, "-p", "--profile")
                .pop()
                .map(str::to_owned);
            let name = chosen.or_else(|| toml_text(&config, &["profile"]))?;
            let own = read(&format!("{name}.config.toml"));
            toml_text(&own, &[KEY]).or_else(|| toml_text(&config, &["profiles", &name, KEY]))
        };
        const KEY: &str = "model_provider";
        let provider = override_of(arguments, KEY)
            .or_else(in_profile)
            .or_else(|| toml_text(&config, &[KEY]));
        let is_login = !has_key && is_login(&read("auth.json"));
        match provider.as_deref() {
            None | Some("openai" | Self::PROVIDER) if is_login => Self::Login,
            None | Some("openai") => Self::Key,
            Some(provider) => Self::Other(provider.to_owned()),
        }
    }

    /// Returns the settings that make Codex use the gateway at `base`, each as the value of a `-c`
    /// option. Empty if it uses a provider of its own.
    fn settings(&self, base: &str) -> Vec<String> {
        match self {
            Self::Key => vec![format!("openai_base_url=\"{base}/v1\"")],
            Self::Login => {
                let name = Self::PROVIDER;
                vec![
                    format!("model_provider=\"{name}\""),
                    format!(
                        "model_providers.{name}={{name=\"{name}\",base_url=\"{base}/backend-api/codex\",\
                         requires_openai_auth=true,wire_api=\"responses\"}}"
                    ),
                ]
            }
            Self::Other(_) => Vec::new(),
        }
    }
}

/// Returns the values of an option in any of the forms `-c x`, `-cx`, `--config x` and
/// `--config=x`. Later arguments come last, so the last value counts.
fn options<'a>(arguments: &'a [String], short: &str, long: &str) -> Vec<&'a str> {
    let values = arguments.iter().enumerate().filter_map(|(at, argument)| {
        if argument == short || argument == long {
            return arguments.get(at + 1).map(String::as_str);
        }
        match argument.strip_prefix(long) {
            Some(value) => value.strip_prefix('='),
            None => argument.strip_prefix(short),
        }
    });
    values.collect()
}

/// Returns whether an `auth.json` of Codex is that of a ChatGPT login. Older versions have no
/// `auth_mode`, so the tokens decide. A text that is not JSON is not a login.
pub(crate) fn is_login(auth: &str) -> bool {
    let auth: serde_json::Value = serde_json::from_str(auth).unwrap_or_default();
    match auth["auth_mode"].as_str() {
        Some(mode) => mode.eq_ignore_ascii_case("chatgpt"),
        None => auth["tokens"].is_object() && auth["OPENAI_API_KEY"].is_null(),
    }
}

/// Returns an address without white space around it and without slashes at its end, so that two
/// spellings compare as equal.
fn plain(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

impl Addresses {
    /// Collects the addresses that the command was given.
    ///
    /// # Errors
    /// Fails if a variable does not hold an http address. To ignore it would send requests to
    /// another place than the user wants.
    pub(super) fn of(
        config: &Upstream,
        agent: &Agent,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, CliError> {
        // An agent's own configuration comes first, because the agent prefers it to its
        // environment.
        let own = agent.configured(env).into_iter();
        let own = own.map(|(name, api, url)| (name, api, Form::Versioned, url));
        let variables = agent.variables(env).filter_map(|variable| {
            let url = env(variable.name)?;
            Some((variable.name.to_owned(), variable.api, variable.form, url))
        });
        let mut given = Vec::new();
        for (name, api, form, url) in own.chain(variables) {
            let url = plain(&url);
            if url.is_empty() {
                continue;
            }
            let is_url = ["http://", "https://"]
                .iter()
                .any(|scheme| url.starts_with(scheme));
            if !is_url {
                return Err(CliError::usage(
                    format!("{name}={url} is not an http address"),
                    "set it to the base URL of the API that receives the requests, or unset it",
                ));
            }
            given.push(Given {
                name,
                api,
                form,
                url: url.to_owned(),
            });
        }
        Ok(Self {
            given,
            config: config.clone(),
            codex: agent.codex(env),
        })
    }

    /// Returns the address that is the upstream of an API if the configuration names none.
    fn first(&self, api: Provider) -> Option<&Given> {
        self.given.iter().find(|given| given.api == api)
    }

    /// Returns the addresses of the environment as the gateway takes them.
    pub(super) fn urls(&self) -> Vec<(Provider, String)> {
        let url = |api| {
            let Given { form, url, .. } = self.first(api)?;
            let has_path = url
                .split_once("://")
                .is_some_and(|(_, rest)| rest.contains('/'));
            // A program with a variable of this form inserts `/v1` before the endpoint even if the
            // address has a path.
            let url = match (api, form) {
                (Provider::OpenAi, Form::Root) if has_path && !url.ends_with("/v1") => {
                    format!("{url}/v1")
                }
                _ => url.clone(),
            };
            Some((api, url))
        };
        Provider::ALL.into_iter().filter_map(url).collect()
    }

    /// Returns what the user should know about the upstreams: where requests go, which addresses
    /// were left alone, and whether Codex bypasses the gateway.
    pub(super) fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        for api in Provider::ALL {
            let key = api.name();
            let Some(Given { name, url, .. }) = self.first(api) else {
                continue;
            };
            told.push(match &api.section(&self.config).base_url {
                None => format!("requests are forwarded to {url} ({name})"),
                Some(named) if plain(named) == url => continue,
                Some(named) => format!(
                    "requests are forwarded to {named} (`upstream.{key}.base_url`), not to the {url} of {name}"
                ),
            });
        }
        let left = self.given.iter().filter(|given| !self.is_replaced(given));
        told.extend(left.map(|given| {
            format!(
                "{} stays {}, which is another address: requests to it are not managed",
                given.name, given.url
            )
        }));
        if let Codex::Other(provider) = &self.codex {
            told.push(format!(
                "Codex uses its provider `{provider}`, which has its own address: requests to it are not managed"
            ));
        }
        told
    }

    /// Returns whether every address of an API leads to the gateway now. Only then may the
    /// gateway's token stand in place of the API's key, since it is useless at any other server.
    fn all_are_replaced(&self, api: Provider) -> bool {
        let mut given = self.given.iter().filter(|given| given.api == api);
        given.all(|given| self.is_replaced(given))
    }

    /// Returns whether a variable that was set is replaced by the gateway's address. It is if it
    /// names the address that the gateway forwards to, so that no key is sent to an address that it
    /// was not meant for.
    fn is_replaced(&self, given: &Given) -> bool {
        let version = |url: &str| plain(url).trim_end_matches("/v1").to_owned();
        let first = self.first(given.api);
        first.is_some_and(|first| version(&first.url) == version(&given.url))
    }
}

/// Returns the folder that has the configuration and the login of Codex. None if neither
/// `CODEX_HOME` nor a home directory is set.
fn codex_folder(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = env("CODEX_HOME").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    folder.or_else(|| Some(user_home(env)?.join(".codex")))
}

fn user_home(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    contexture::user_home(&|name| env(name).map(Into::into))
}

/// Returns the text under a key of a TOML document. `None` if there is none, or if the document
/// cannot be parsed.
fn toml_text(toml: &str, path: &[&str]) -> Option<String> {
    let value = value_at(FileFormat::Toml, toml, path)?;
    value.as_str().map(str::to_owned)
}

/// Returns the text that the last `-c` option of Codex gives a key. The text may have no quotes.
fn override_of(arguments: &[String], key: &str) -> Option<String> {
    let overrides = options(arguments, "-c", "--config").into_iter().rev();
    let mut overrides = overrides.filter_map(|one| one.split_once('='));
    let (_, value) = overrides.find(|(own, _)| own.trim() == key)?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// Returns the addresses for the APIs of OpenAI and Anthropic in a configuration of OpenCode, each
/// with the name of the setting. A document that is not JSON has none.
fn opencode_base_urls(json: &str) -> Vec<(String, Provider, String)> {
    let config: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let one = |(provider, api): (&str, Provider)| {
        let url = config["provider"][provider]["options"]["baseURL"].as_str()?;
        Some((
            format!("provider.{provider} of opencode.json"),
            api,
            url.to_owned(),
        ))
    };
    [
        ("openai", Provider::OpenAi),
        ("anthropic", Provider::Anthropic),
    ]
    .into_iter()
    .filter_map(one)
    .collect()
}

/// Reads a file in the home folder of Codex. Returns an empty text if there is none.
fn read_of_codex(env: &dyn Fn(&str) -> Option<String>, name: &str) -> String {
    let text = codex_folder(env).map(|folder| std::fs::read_to_string(folder.join(name)));
    text.and_then(Result::ok).unwrap_or_default()
}

/// The program that a command runs. Its name without folder and extension decides how it is told
/// about the gateway.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) name: String,
    arguments: Vec<String>,
}

impl Agent {
    pub(super) fn of(command: &[OsString]) -> Self {
        let program = command.first().map(Path::new).and_then(Path::file_stem);
        let arguments = command.iter().skip(1);
        Self {
            name: match program.unwrap_or_default().to_string_lossy() {
                // Codex for editors, with the same settings and arguments.
                name if name == "codex-acp" => "codex".to_owned(),
                name => name.into_owned(),
            },
            arguments: arguments
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
        }
    }

    /// Returns the variable that only this agent reads, if it has one.
    fn own_variable(&self, env: &dyn Fn(&str) -> Option<String>) -> Option<Variable> {
        let mut all = OWN_VARIABLES.iter();
        let (_, name, kind) = all.find(|(agent, ..)| *agent == self.name)?;
        let (api, form) = match env(kind).unwrap_or_default().trim() {
            "anthropic" => (Provider::Anthropic, Form::Root),
            "google-genai" => (Provider::Google, Form::Root),
            "azure" => (Provider::OpenAi, Form::Root),
            _ => (Provider::OpenAi, Form::Versioned),
        };
        Some(variable(name, api, form, false))
    }

    /// Returns the variables that the agent may read an address from, its own before the others.
    fn variables(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> impl Iterator<Item = Variable> + use<> {
        let own = self.own_variable(env).into_iter();
        own.chain(VARIABLES.iter().copied())
    }

    /// Returns the command with the arguments and variables that make it use the gateway at `base`.
    pub(super) fn told(
        &self,
        command: &[OsString],
        base: &str,
        addresses: &Addresses,
        gateway: &Gateway,
    ) -> Command {
        let (program, arguments) = match command {
            [program, arguments @ ..] => (program.clone(), arguments),
            [] => (OsString::new(), command),
        };
        let versioned = format!("{base}/v1");
        let mut told = Command::new(program);
        if self.name == "codex" {
            for setting in addresses.codex.settings(base) {
                told.arg("-c").arg(setting);
            }
        }
        let pass = gateway.pass();
        // A configuration that the user passes in this variable must not be overwritten.
        if self.name == "opencode" && std::env::var_os("OPENCODE_CONFIG_CONTENT").is_none() {
            let options = |api| {
                let mut options = serde_json::json!({"baseURL": versioned});
                if let Some(token) = pass
                    .token
                    .as_deref()
                    .filter(|_| pass.is_needed || pass.keys.contains(&api))
                {
                    options["headers"] = serde_json::json!({TOKEN: token});
                }
                serde_json::json!({"options": options})
            };
            let (openai, anthropic) = (options(Provider::OpenAi), options(Provider::Anthropic));
            let config =
                serde_json::json!({"provider": {"openai": openai, "anthropic": anthropic}});
            told.env("OPENCODE_CONFIG_CONTENT", config.to_string());
        }
        told.args(arguments);
        self.give_token(&mut told, &pass, addresses);
        for variable in self.variables(&|name| std::env::var(name).ok()) {
            let mut given = addresses.given.iter();
            let given = given.find(|given| given.name == variable.name);
            let is_set = match given {
                Some(given) => addresses.is_replaced(given),
                None => variable.always,
            };
            if is_set {
                told.env(
                    variable.name,
                    match variable.form {
                        Form::Root => base,
                        Form::Versioned => &versioned,
                    },
                );
            }
        }
        // At any address but its own, Claude Code assumes that models have no window of a million
        // tokens.
        const FIRST_PARTY: &str = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL";
        match provider_at(&gateway.upstream_of_anthropic()) {
            Some(CacheProvider::Anthropic) => told.env(FIRST_PARTY, "1"),
            _ => told.env_remove(FIRST_PARTY),
        };
        told
    }

    /// Makes the agent send the gateway's token if the gateway requires it or has keys of its own.
    ///
    /// If the agent can add a header, the token is a header. Otherwise it takes the place of the
    /// API key, if the gateway has a key itself. It never stands among the arguments, which other
    /// users of the machine can see.
    fn give_token(&self, told: &mut Command, pass: &Pass, addresses: &Addresses) {
        let is_needed = pass.is_needed || !pass.keys.is_empty();
        let Some(token) = pass.token.as_deref().filter(|_| is_needed) else {
            return;
        };
        told.env(TOKEN_VARIABLE, token);
        for (variable, api, separator) in [
            (ANTHROPIC_HEADERS, Provider::Anthropic, "\n"),
            (GEMINI_HEADERS, Provider::Google, ", "),
        ] {
            if !(pass.is_needed || pass.keys.contains(&api)) || !addresses.all_are_replaced(api) {
                continue;
            }
            let header = format!("{TOKEN}: {token}");
            let given = std::env::var(variable).unwrap_or_default();
            let headers = match given.trim_end() {
                "" => header,
                given => format!("{given}{separator}{header}"),
            };
            told.env(variable, headers);
        }
        for (name, api) in KEYS {
            // Claude Code sends the header. A key that is new to it would make it ask the user for
            // consent.
            let is_header = self.name == "claude" && api == Provider::Anthropic;
            if pass.keys.contains(&api) && addresses.all_are_replaced(api) && !is_header {
                told.env(name, token);
            }
        }
        // If Codex has a login, it prefers that and sends it to another address.
        let env = |name: &str| std::env::var(name).ok();
        let is_codex = self.name == "codex" && pass.keys.contains(&Provider::OpenAi);
        if is_codex && read_of_codex(&env, "auth.json").is_empty() {
            told.env("CODEX_API_KEY", token);
        }
    }

    /// Returns a note for the user if the agent cannot send the required token, so that its
    /// requests will be refused.
    pub(super) fn told_of_token(&self, pass: &Pass) -> Option<String> {
        let sends = matches!(self.name.as_str(), "claude" | "opencode" | "gemini")
            || [Provider::OpenAi, Provider::Anthropic]
                .iter()
                .all(|api| pass.keys.contains(api));
        (pass.is_needed && !sends).then(|| {
            format!(
                "`gateway.tokens` are configured, so {} has to send the token in {TOKEN_VARIABLE} as {TOKEN}",
                self.name
            )
        })
    }

    /// Finds out how Codex reaches its model. Any other agent counts as one with an API key.
    fn codex(&self, env: &dyn Fn(&str) -> Option<String>) -> Codex {
        if self.name != "codex" {
            return Codex::Key;
        }
        let has_key = env("CODEX_API_KEY").is_some_and(|key| !key.trim().is_empty());
        Codex::of(&self.arguments, &|name| read_of_codex(env, name), has_key)
    }

    /// Returns the addresses in the agent's own configuration that [`told`](Self::told) overrides,
    /// each with the name of its setting.
    fn configured(&self, env: &dyn Fn(&str) -> Option<String>) -> Vec<(String, Provider, String)> {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        match self.name.as_str() {
            "codex" => {
                let config = read_of_codex(env, "config.toml");
                let url = toml_text(&config, &["openai_base_url"]);
                let name = "openai_base_url of Codex's config.toml".to_owned();
                url.map(|url| (name, Provider::OpenAi, url))
                    .into_iter()
                    .collect()
            }
            "opencode" => {
                let own = user_home(env).map(|home| home.join(".config/opencode/opencode.json"));
                let places = [Some(PathBuf::from("opencode.json")), own];
                let texts = places.into_iter().flatten().map(read);
                texts.flat_map(|text| opencode_base_urls(&text)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns what to do if the agent did not use the gateway's address. `base` is the URL of
    /// `contexture serve`, since a fixed address is what most agents need.
    pub(super) fn hint(&self, base: &str) -> String {
        match self.name.as_str() {
            "claude" => "an ANTHROPIC_BASE_URL under `env` in Claude Code's settings.json wins, and so do \
                         Bedrock and Vertex: remove it there, and set it as `upstream.anthropic.base_url`"
                .to_owned(),
            "codex" => format!(
                "a custom `model_provider` of Codex has its own address: run `contexture serve`, set its \
                 base_url to {base}/v1, and set the old one as `upstream.openai.base_url`"
            ),
            "opencode" => format!(
                "a custom provider in opencode.json has its own address: run `contexture serve`, and set its \
                 options.baseURL to {base}/v1"
            ),
            "hermes" => format!(
                "Hermes uses the provider of its config.yaml: run `contexture serve`, and set there `model: \
                 {{provider: custom, base_url: {base}/v1}}`, or start it with --provider custom"
            ),
            "pi" => format!(
                "pi reads addresses only from ~/.pi/agent/models.json: run `contexture serve`, and put there {{\"providers\": \
                 {{\"anthropic\": {{\"baseUrl\": \"{base}\"}}, \"openai\": {{\"baseUrl\": \"{base}/v1\"}}}}}}"
            ),
            "qwen" => format!(
                "Qwen Code uses its own service if you are logged in: choose the authentication `openai`; or run \
                 `contexture serve`, and set the baseUrl of its settings.json to {base}/v1"
            ),
            "cline" => format!(
                "Cline keeps its address with the key: run `contexture serve`, and `cline auth` with the provider \
                 OpenAI Compatible and the base URL {base}/v1"
            ),
            "gemini" => "Gemini CLI with a Google login uses a service of its own: choose an API key with /auth, or \
                         set GEMINI_API_KEY"
                .to_owned(),
            name => match OWN_VARIABLES.iter().find(|(agent, ..)| *agent == name) {
                Some((_, variable, _)) => format!(
                    "{name} calls a service of its own unless {variable} names the API of a model: set it to that address"
                ),
                None => format!(
                    "run `contexture serve`, and set the address of the model's API in its own settings: {base} for \
                     Anthropic's, {base}/v1 for OpenAI's"
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests;

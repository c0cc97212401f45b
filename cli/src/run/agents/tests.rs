#![allow(clippy::unwrap_used)]
use super::*;

fn agent(name: &str) -> Agent {
    Agent::of(&[name.into()])
}

fn openai(url: &str) -> (Provider, String) {
    (Provider::OpenAi, url.to_owned())
}

fn addresses(env: &[(&str, &str)], openai: Option<&str>) -> Addresses {
    addresses_of("claude", env, openai)
}

fn addresses_of(name: &str, env: &[(&str, &str)], openai: Option<&str>) -> Addresses {
    let mut config = Upstream::default();
    config.openai.base_url = openai.map(str::to_owned);
    Addresses::of(&config, &agent(name), &|name| {
        let found = env.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
    .unwrap()
}

#[test]
fn an_address_of_the_environment_is_the_upstream_by_each_variable() {
    for variable in VARIABLES {
        let all = addresses(&[(variable.name, "https://corp.example/llm/")], None);
        let behind = match (variable.api, variable.form) {
            (Provider::OpenAi, Form::Root) => "/v1",
            _ => "",
        };
        assert_eq!(
            all.urls(),
            [(variable.api, format!("https://corp.example/llm{behind}"))],
            "{}",
            variable.name
        );
        assert!(all.told()[0].contains(variable.name) && all.is_replaced(&all.given[0]));
    }
}

/// Of two addresses, that of the agent's own variable counts, which no other agent reads.
#[test]
fn an_agents_own_variable_comes_first() {
    for (name, variable, kind) in OWN_VARIABLES {
        for (value, api) in [
            ("", Provider::OpenAi),
            ("openai", Provider::OpenAi),
            ("azure", Provider::OpenAi),
            ("anthropic", Provider::Anthropic),
            ("google-genai", Provider::Google),
        ] {
            if kind.is_empty() && !value.is_empty() {
                continue;
            }
            let env = [
                ("OPENAI_BASE_URL", "https://a.example/v1"),
                ("ANTHROPIC_BASE_URL", "https://a.example"),
                (variable, "https://own.example/v1"),
                (kind, value),
            ];
            let own = addresses_of(name, &env, None);
            assert_eq!(own.first(api).unwrap().name, *variable, "{value}");
            assert_eq!(own.first(api).unwrap().url, "https://own.example/v1");
            let other = addresses(&env, None);
            assert!(other.given.iter().all(|given| given.name != *variable));
        }
        assert!(agent(name).hint("").contains(variable));
    }
}

/// `run` overrides these addresses, so requests must go on to them.
#[test]
fn an_address_in_an_agents_own_configuration_is_the_upstream() {
    let home = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(
        ".codex/config.toml",
        "model = \"x\"\nopenai_base_url = \"https://corp.example/v1\" # ours\n[other]\nopenai_base_url = 'https://no.example'\n",
    );
    put(
        ".config/opencode/opencode.json",
        r#"{"provider": {"anthropic": {"options": {"baseURL": "https://a.corp.example/v1"}}}}"#,
    );
    let env = |name: &str| match name {
        "HOME" => Some(home.path().display().to_string()),
        "OPENAI_BASE_URL" => Some("https://env.example/v1".to_owned()),
        _ => None,
    };
    let of = |name: &str| Addresses::of(&Upstream::default(), &agent(name), &env).unwrap();
    for codex in ["codex", "codex-acp"].map(of) {
        assert_eq!(codex.urls(), [openai("https://corp.example/v1")]);
        assert!(
            codex.told()[0].contains("config.toml")
                && codex.told()[1].contains("OPENAI_BASE_URL stays")
        );
    }
    assert_eq!(
        of("opencode").urls(),
        [
            openai("https://env.example/v1"),
            (Provider::Anthropic, "https://a.corp.example/v1".to_owned())
        ]
    );
    assert_eq!(of("claude").urls(), [openai("https://env.example/v1")]);
}

#[test]
fn codex_uses_the_provider_that_it_is_told_to_use() {
    let login = r#"{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {}}"#;
    let earlier = r#"{"OPENAI_API_KEY": null, "tokens": {"access_token": "x"}}"#;
    let key = r#"{"auth_mode": "apikey", "OPENAI_API_KEY": "x", "tokens": {}}"#;
    let of = |arguments: &str, config: &str, auth: &str, has_key| {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let read = |name: &str| match name {
            "config.toml" => config.to_owned(),
            "auth.json" => auth.to_owned(),
            "corp.config.toml" => "model_provider = \"gw\"\n".to_owned(),
            _ => String::new(),
        };
        Codex::of(&arguments, &read, has_key)
    };
    for auth in [login, earlier] {
        assert_eq!(of("exec go", "", auth, false), Codex::Login);
        assert_eq!(of("exec go", "", auth, true), Codex::Key);
    }
    for auth in [
        key,
        "",
        "{}",
        "not JSON",
        r#"{"OPENAI_API_KEY": "x", "tokens": {}}"#,
    ] {
        assert_eq!(of("exec go", "", auth, false), Codex::Key, "{auth}");
    }
    let profiles =
        "profile = \"a\"\n[profiles.a]\nmodel_provider = \"gw\"\n[profiles.b]\nmodel = \"x\"\n";
    for (arguments, config) in [
        ("", "model_provider = \"gw\" # ours\n"),
        ("", "model_provider='gw'\n"),
        ("", profiles),
        ("-p corp", ""),
        ("-p a", "[profiles.\"a\"]\nmodel_provider = \"gw\"\n"),
        ("--profile=a", "[profiles.a]\nmodel_provider = \"gw\"\n"),
        ("-p a", "profiles.a.model_provider = 'gw'\n"),
        ("-p a", "profiles = {a = {model_provider = 'gw'}}\n"),
        (
            "",
            "notes = \"\"\"\n[other]\n\"\"\"\nmodel_provider = 'gw'\n",
        ),
        ("", "model_provider = \"\"\"\ngw\"\"\"\n"),
        ("-c model_provider=gw exec go", ""),
        ("-cmodel_provider='gw'", ""),
        ("exec --config model_provider=\"gw\" go", ""),
        (
            "exec --config=model_provider=gw go",
            "model_provider = \"other\"\n",
        ),
    ] {
        let found = of(arguments, config, login, false);
        assert_eq!(
            found,
            Codex::Other("gw".to_owned()),
            "{arguments}: {config}"
        );
    }
    assert_eq!(
        of("--oss", "", login, false),
        Codex::Other("--oss".to_owned())
    );
    for (arguments, config) in [
        ("", "model_provider = \"openai\"\n"),
        ("", "model_provider = \"contexture\"\n"),
        ("-p b", profiles),
        ("-c model_provider=openai", "model_provider = \"gw\"\n"),
        ("-c model=gw", "[other]\nmodel_provider = \"gw\"\n"),
        ("", "notes = \"\"\"\nmodel_provider = 'gw'\n\"\"\"\n"),
    ] {
        assert_eq!(
            of(arguments, config, login, false),
            Codex::Login,
            "{arguments}: {config}"
        );
    }
}

#[test]
fn another_address_is_left_alone_and_the_configuration_wins() {
    let all = addresses(
        &[
            ("OPENAI_BASE_URL", "https://a.example/v1"),
            ("OPENAI_API_BASE", "https://b.example/v1"),
            ("OPENAI_HOST", "https://a.example"),
        ],
        None,
    );
    assert_eq!(all.urls(), [openai("https://a.example/v1")]);
    let replaced: Vec<bool> = all
        .given
        .iter()
        .map(|given| all.is_replaced(given))
        .collect();
    assert_eq!(replaced, [true, false, true]);
    assert!(all.told()[1].contains("OPENAI_API_BASE stays https://b.example/v1"));
    let all = addresses(
        &[("OPENAI_BASE_URL", "https://a.example/v1")],
        Some("https://c.example"),
    );
    assert!(
        all.told()[0].contains("forwarded to https://c.example"),
        "{:?}",
        all.told()
    );
    assert!(
        addresses(&[("OPENAI_BASE_URL", "  ")], None)
            .given
            .is_empty()
    );
    let refused = Addresses::of(&Upstream::default(), &agent("x"), &|name| {
        (name == "OPENAI_BASE_URL").then(|| "corp.example".to_owned())
    });
    assert!(refused.is_err());
}

#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::{OnFailure, OnMissing};
use contexture_formats::prompt_cache::CacheTtl;
use serde_json::json;
use tempfile::TempDir;

fn load(text: &str) -> (TempDir, Result<Loaded, ConfigError>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE_NAME), text).unwrap();
    let home = dir.path().to_owned();
    let loaded = Config::load(None, &|name| {
        (name == "CONTEXTURE_HOME").then(|| home.clone().into_os_string())
    });
    (dir, loaded)
}

fn loads(text: &str) -> Loaded {
    load(text).1.unwrap()
}

/// The message, without the file's name.
fn refusal(text: &str) -> String {
    let (dir, loaded) = load(text);
    let file = dir.path().join(FILE_NAME).display().to_string();
    loaded.unwrap_err().to_string().replace(&file, "F")
}

#[test]
fn the_schema_knows_every_key_and_its_defaults_are_the_structs() {
    assert_ne!(*CONFIG, Schema::default());
    assert_ne!(*COMPRESSOR, Schema::default());
    let mut defaults = serde_json::to_value(Config::default()).unwrap();
    compare(&CONFIG, &defaults, "");
    assert_eq!(CONFIG.check(&mut defaults), []);
}

fn compare(schema: &Schema, value: &Value, at: &str) {
    let Value::Object(object) = value else { return };
    let known: Vec<_> = schema.properties().map(|(key, _)| key).collect();
    if known.is_empty() {
        assert!(
            [
                ".context.engines",
                ".gateway.tokens",
                ".compression.models",
                ".prices.models"
            ]
            .contains(&at),
            "{at}: only engines' own settings, and names that a user chooses, have no list of keys"
        );
        return;
    }
    assert_eq!(known, object.keys().collect::<Vec<_>>());
    for (key, property) in schema.properties() {
        let at = format!("{at}.{key}");
        assert!(property.description.is_some(), "{at} has no description");
        compare(property, &object[key], &at);
    }
}

#[test]
fn the_price_of_a_model_is_that_of_the_most_specific_pattern() {
    let prices = loads(
        "prices:\n  models:\n    'qwen*': {input: 1, output: 4}\n    'qwen3-max': {input: 2.5}\n    'gpt-5': {output: 9}\n",
    );
    let of = |model| prices.config.prices.for_model(model)?.input;
    assert_eq!(of("openrouter/Qwen3-Coder"), Some(1.0));
    assert_eq!(of("qwen3-max"), Some(2.5));
    // Without a price of prompts, there is nothing to reckon with.
    assert_eq!(of("gpt-5"), None);
    assert_eq!(of("gpt-4o"), None);
    let message = refusal("prices:\n  models:\n    x: {input: -1}\n");
    assert!(
        message.starts_with("F:3:16: `prices.models.x.input` is -1"),
        "{message}"
    );
}

#[test]
fn an_empty_file_and_no_file_mean_the_defaults() {
    for text in ["", "# nothing\n", "compression:\nplugins:\n  dirs:\n", "{}"] {
        let loaded = loads(text);
        assert_eq!(loaded.config, Config::default(), "{text:?}");
        assert_eq!(loaded.warnings, []);
        assert!(loaded.path.is_some());
    }
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("not there yet");
    let loaded = Config::load(None, &|_| Some(home.clone().into_os_string())).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!((loaded.path, &loaded.home), (None, &home));
    assert_eq!(loaded.plugin_dirs, [home.join("plugins/context_engine")]);
}

#[test]
fn the_documented_defaults_hold() {
    let Config {
        compression,
        prompt_caching,
        context,
        auxiliary,
        ..
    } = Config::default();
    assert_eq!(
        serde_json::to_value(compression).unwrap(),
        json!({"enabled": true, "automatic": true, "timing": "safe", "threshold": 0.5, "max_threshold_tokens": null, "target_ratio": 0.2,
                "protect_last_n": 20, "wait_for_model": false, "guidance": null, "template": null, "contradicted": "mark", "pin": [], "model_tools": false, "models": {}})
    );
    assert_eq!(context.engine, "compressor");
    assert_eq!(context.on_missing, OnMissing::Fallback);
    assert_eq!(context.supervision.compress_deadline_ms, 120_000);
    assert_eq!(prompt_caching.cache_ttl, CacheTtl::FiveMinutes);
    assert_eq!(auxiliary.compression.provider, "auto");
}

#[test]
fn a_full_file_is_read() {
    let loaded = loads(
        "context:\n  engine: lcm\n  on_failure: passthrough\n  supervision: {grace_ms: 250}\n  engines:\n    \
             lcm: {leaf_tokens: 1000}\ncompression:\n  enabled: yes\n  threshold: 1\n  protect_last_n: 5\n\
             auxiliary:\n  compression: {model: null, provider: openrouter, base_url: 'https://x.example/v1'}\n\
             prompt_caching:\n  cache_ttl: 1h\nhygiene: {max_messages: 400}\n\
             model: {name: m, context_length: 200000, max_output_tokens: 8000}\n",
    );
    assert_eq!(loaded.warnings, []);
    let config = &loaded.config;
    assert_eq!(config.context.on_failure, OnFailure::Passthrough);
    assert_eq!(config.context.supervision.grace_ms, 250);
    assert_eq!(config.context.supervision.call_deadline_ms, 10_000);
    assert_eq!(config.compression.threshold, Threshold::Share(1.0));
    assert_eq!(config.prompt_caching.cache_ttl, CacheTtl::OneHour);
    assert_eq!(config.hygiene.max_messages, Some(400));
    assert_eq!(config.engine_settings("lcm"), json!({"leaf_tokens": 1000}));
    assert_eq!(config.engine_settings("other"), json!({}));
}

#[test]
fn the_compressor_gets_the_compression_section_and_its_own_settings_over_it() {
    let loaded = loads(
        "compression: {threshold: 0.6, target_ratio: 0.3}\n\
             context: {engines: {compressor: {threshold: 0.7}}}\n",
    );
    assert_eq!(
        loaded.config.engine_settings("compressor"),
        json!({"enabled": true, "threshold": 0.7, "max_threshold_tokens": null, "target_ratio": 0.3,
                "protect_last_n": 20})
    );
    assert_eq!(
        refusal("context:\n  engines:\n    compressor:\n      threshold: 7\n"),
        "F:4:18: `context.engines.compressor.threshold` is 7, but must be a share of the window above 0 and \
             up to 1, or a whole number of at least 1000 tokens such as `120k`"
    );
    // The host reads these for every engine, so they would have no effect there.
    for key in HOST_KEYS {
        let said = refusal(&format!(
            "context: {{engines: {{compressor: {{{key}: true}}}}}}"
        ));
        let wanted = format!("`context.engines.compressor.{key}` belongs in `compression`");
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn a_switch_with_the_name_of_a_key_takes_every_word_for_true_and_false() {
    for (word, is_on) in [("yes", true), ("on", true), ("no", false), ("Off", false)] {
        let loaded = loads(&format!("gateway: {{open_key: {word}}}"));
        assert_eq!(loaded.config.gateway.open_key, is_on, "{word}");
    }
}

#[test]
fn every_value_out_of_range_is_told_with_its_place() {
    assert_eq!(
        refusal("compression:\n  threshold: 1.5\n  target_ratio: 0.05\n  protect_last_n: 0\n"),
        "F:2:14: `compression.threshold` is 1.5, but must be a share of the window above 0 and up to 1, or a whole \
             number of at least 1000 tokens such as `120k`\n\
             F:3:17: `compression.target_ratio` is 0.05, but must be a number from 0.1 to 0.8\n\
             F:4:19: `compression.protect_last_n` is 0, but must be a whole number of at least 1"
    );
    assert_eq!(
        refusal("prompt_caching:\n  cache_ttl: 10m\n"),
        "F:2:14: `prompt_caching.cache_ttl` is \"10m\", but must be `5m`, `1h` or `auto`"
    );
    assert_eq!(
        refusal("auxiliary: {compression: {provider: openruter}}"),
        "F:1:37: `auxiliary.compression.provider` is \"openruter\", but must be `auto`, `openai`, \
             `anthropic`, `google`, `openrouter`, `nous`, `main` or `none`; did you mean `openrouter`?"
    );
    for (text, part) in [
        ("context: {engine: ../../x}", "lower-case letters"),
        ("context: {engine: 5}", "put it in quotes"),
        ("context: lcm", "a mapping"),
        ("context: {on_missing: passthrough}", "`fallback` or `fail`"),
        ("context: {supervision: {grace_ms: -1}}", "from 0 to 60000"),
        ("model: {name: ''}", "text that is not empty"),
        ("model: {base_url: 'ftp://x'}", "http://"),
        (
            "model: {base_url: 'https://me:letmein@x'}",
            "with a user or a key in it",
        ),
        (
            "model: {context_length: 100, max_output_tokens: 100}",
            "less than `model.context_length`",
        ),
        ("hygiene: {max_messages: 3}", "at least 4"),
        ("gateway: {tls: {key: k.pem}}", "`gateway.tls` has only one"),
        (
            "upstream: {openai: {tls: {certificate: c.pem}}}",
            "F:1:26: `upstream.openai.tls` has only one",
        ),
        ("plugins: {dirs: here}", "a list or null"),
        ("- a", "must hold a mapping"),
        ("a: [", "F:"),
    ] {
        let message = refusal(text);
        assert!(message.contains(part), "{text}: {message}");
        assert!(!message.contains("letmein"), "{message}");
    }
}

#[test]
fn a_threshold_may_be_tokens_and_nonsense_is_told_with_its_place() {
    for (written, threshold) in [
        ("0.4", Threshold::Share(0.4)),
        ("120k", Threshold::Tokens(120_000)),
        ("120000", Threshold::Tokens(120_000)),
        ("0.2M", Threshold::Tokens(200_000)),
    ] {
        let config = loads(&format!("compression: {{threshold: {written}}}")).config;
        assert_eq!(config.compression.threshold, threshold, "{written}");
        let given = &config.engine_settings("compressor")["threshold"];
        assert_eq!(Threshold::from(given.as_f64().unwrap()), threshold);
    }
    for wrong in [
        "0", "0.0", "-1", "-0.5", "1.5", "50", "120x", "120kb", "half", "'0.5'",
    ] {
        for (text, place) in [
            (
                format!("compression:\n  threshold: {wrong}\n"),
                "F:2:14: `compression.threshold` is",
            ),
            (
                format!("compression:\n  models:\n    \"gpt-6*\": {{threshold: {wrong}}}\n"),
                "F:3:27: `compression.models.gpt-6*.threshold` is",
            ),
        ] {
            let message = refusal(&text);
            assert!(message.starts_with(place), "{message}");
            assert!(
                message.contains("a whole number of at least 1000 tokens"),
                "{message}"
            );
        }
    }
}

#[test]
fn a_threshold_above_the_window_is_an_error_if_the_file_tells_the_window() {
    assert_eq!(
        refusal("compression:\n  threshold: 500k\nmodel: {name: gpt-4o}\n"),
        "F:2:14: `compression.threshold` is 500,000 tokens, but the window of `gpt-4o` has only 128,000: write \
             less, or a share of the window such as `0.8`"
    );
    for (text, line) in [
        (
            "compression:\n  threshold: 9k\nmodel: {context_length: 8k}\n",
            "F:2",
        ),
        (
            "compression:\n  models:\n    gpt-4o: {threshold: 129k}\n",
            "F:3",
        ),
        (
            "compression:\n  models:\n    'x*':\n      threshold: 9k\n      context_length: 8k\n",
            "F:4",
        ),
        (
            "context:\n  engines:\n    compressor: {threshold: 9k}\nmodel: {context_length: 8k}\n",
            "F:3",
        ),
    ] {
        let message = refusal(text);
        assert!(
            message.starts_with(line) && message.contains("has only"),
            "{message}"
        );
    }
    for text in [
        "compression: {threshold: 500k}\n",
        "compression: {threshold: 8k}\nmodel: {context_length: 8k}\n",
        "compression: {models: {'gpt-*': {threshold: 129k}}}\n",
        // The entry for the model says that its window is larger than the table knows.
        "compression: {threshold: 500k, models: {gpt-4o: {context_length: 1M}}}\nmodel: {name: gpt-4o}\n",
    ] {
        loads(text);
    }
}

#[test]
fn the_template_is_read_from_beside_the_file_and_a_wrong_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().as_os_str().to_owned();
    let template = dir.path().join("layout.md");
    let config = "compression:\n  guidance: Name every test.\n  template: layout.md\n";
    std::fs::write(dir.path().join(FILE_NAME), config).unwrap();
    let load = || Config::load(None, &|_| Some(home.clone()));
    let refusal = || load().unwrap_err().to_string();
    let missing = refusal();
    let place = format!("{FILE_NAME}:3:13: `compression.template` cannot be used");
    assert!(
        missing.contains(&place) && missing.contains("layout.md"),
        "{missing}"
    );
    std::fs::write(&template, "## Tests\n").unwrap();
    let loaded = load().unwrap();
    assert_eq!(loaded.template.as_deref(), Some("## Tests"));
    assert_eq!(
        loaded.config.compression.guidance.as_deref(),
        Some("Name every test.")
    );
    assert!(
        loaded
            .config
            .engine_settings(BUILT_IN)
            .get("guidance")
            .is_none()
    );
    for (content, says) in [
        (
            "word ".repeat(1_001).into_bytes(),
            "but may have at most 1,000: shorten it",
        ),
        (b" \n".to_vec(), "is empty"),
        (vec![0xff], "is not UTF-8 text"),
        (vec![b'x'; 1 << 20], "larger than"),
    ] {
        std::fs::write(&template, content).unwrap();
        let told = refusal();
        assert!(told.contains(says), "{told}");
    }
    let long = format!("compression:\n  guidance: {}\n", "word ".repeat(1_100));
    std::fs::write(dir.path().join(FILE_NAME), long).unwrap();
    let told = refusal();
    assert!(
        told.contains(":2:13: `compression.guidance` has 1,") && told.contains("at most 1,000"),
        "{told}"
    );
}

#[test]
fn an_unknown_key_is_a_warning_that_names_the_nearest() {
    let (dir, loaded) =
        load("compresion:\n  threshold: 9\ncontext:\n  engne: lcm\nthreshold: 0.4\n");
    let loaded = loaded.unwrap();
    let file = dir.path().join(FILE_NAME).display().to_string();
    let warnings: Vec<_> = loaded
        .warnings
        .iter()
        .map(|found| found.to_string().replace(&file, "F"))
        .collect();
    assert_eq!(
        warnings,
        [
            "F:1:1: unknown key `compresion`, did you mean `compression`?",
            "F:4:3: unknown key `context.engne`, did you mean `context.engine`?",
            "F:5:1: unknown key `threshold`; known here: context, transcript, compression, auxiliary, prompt_caching, hygiene, \
                 model, plugins, gateway, upstream, prices; there is a `compression.threshold`",
        ]
    );
    assert_eq!(loaded.config, Config::default());
}

#[test]
fn problems_have_a_json_form_for_other_programs() {
    let (_dir, loaded) = load("nonsense: 1\nmodel: {name: 5, context_length: 9}\n");
    let Err(ConfigError::Invalid(findings)) = loaded else {
        panic!("{loaded:?}");
    };
    let json = serde_json::to_value(&findings).unwrap();
    assert_eq!(json[0]["problem"]["kind"], "unknown_key");
    assert_eq!(json[1]["problem"]["kind"], "wrong");
    assert_eq!(json[1]["location"], json!({"line": 2, "column": 15}));
}

#[test]
fn an_engine_given_twice_is_an_error_with_both_lines() {
    assert_eq!(
        refusal("context:\n  engine: \"compressor\"\n  engine: \"lcm\"\n"),
        "F:3:3: `context.engine` appears twice, first in line 2; remove one"
    );
}

#[test]
fn a_key_in_the_file_is_refused_without_showing_it() {
    // Built at run time, so that no secret scanner flags this file.
    let key = format!("sk-ant-{}", "a1".repeat(20));
    let message = refusal(&format!(
        "compression: {{threshold: 9}}\nauxiliary:\n  compression:\n    api_key: {key}\n"
    ));
    assert_eq!(
        message,
        "F:4:14: `auxiliary.compression.api_key` looks like an API key or password: remove it \
             from the file and set it in the environment (for example `export ANTHROPIC_API_KEY=…`)"
    );
}

#[test]
fn a_named_file_must_exist_and_plugin_folders_are_relative_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let env = |name: &str| (name == "HOME").then(|| dir.path().join("me").into_os_string());
    let file = dir.path().join("sub/other.yaml");
    let error = Config::load(Some(&file), &env).unwrap_err();
    assert!(matches!(
        error,
        ConfigError::Document(DocumentError::Untrusted(Untrusted::Unreadable { .. }))
    ));
    assert!(error.to_string().contains("other.yaml"));

    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(&file, "plugins: {dirs: [mine, /abs, ~/theirs]}").unwrap();
    let loaded = Config::load(Some(&file), &env).unwrap();
    assert_eq!(loaded.path.as_deref(), Some(file.as_path()));
    assert_eq!(loaded.home, dir.path().join("me/.contexture"));
    assert_eq!(
        loaded.plugin_dirs,
        [
            dir.path().join("sub/mine"),
            "/abs".into(),
            dir.path().join("me/theirs")
        ]
    );
    // The default is relative to the file that was read, not to the home directory.
    std::fs::write(&file, "").unwrap();
    let loaded = Config::load(Some(&file), &env).unwrap();
    assert_eq!(
        loaded.plugin_dirs,
        [dir.path().join("sub/plugins/context_engine")]
    );

    assert!(matches!(
        Config::load(None, &|_| None),
        Err(ConfigError::NoHome)
    ));
}

#[test]
fn what_masks_the_transcript_masks_what_engines_store() {
    let declared = json!({"redact": {"type": "boolean", "default": false}});
    let schema = Schema::of_properties(declared.as_object().unwrap()).unwrap();
    for (text, host, engine) in [
        ("transcript: {redact: true}", true, true),
        ("context: {engines: {lcm: {redact: true}}}", true, true),
        ("transcript: {mode: full}", false, false),
    ] {
        let (_dir, loaded) = load(text);
        let loaded = loaded.unwrap();
        assert_eq!(loaded.config.redacts("lcm"), host, "{text}");
        let settings = loaded.engine_settings("lcm", &schema).unwrap();
        assert_eq!(settings["redact"] == true, engine, "{text}");
    }
}

#[test]
fn files_that_are_no_config_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    let refuse = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let home = dir.path().as_os_str().to_owned();
        Config::load(Some(&file), &move |_| Some(home.clone()))
            .unwrap_err()
            .to_string()
    };
    assert!(refuse(b"a: \xff").contains("not UTF-8 text from byte 3"));
    assert!(refuse(&[b'['; 10_000]).contains("recursion"));
    assert!(refuse(&vec![b'#'; 2 << 20]).contains("larger than 262,144 bytes"));
    let home = dir.path().as_os_str().to_owned();
    assert!(Config::load(Some(dir.path()), &move |_| Some(home.clone())).is_err());
}

#[test]
fn settings_are_checked_by_the_schema_of_the_engine() {
    let loaded =
        loads("context:\n  engines:\n    lcm:\n      leaf_tokens: 5\n      leaf_tokns: 1\n");
    let declared = json!({"leaf_tokens": {"type": "integer", "minimum": 100}});
    let schema = Schema::of_properties(declared.as_object().unwrap()).unwrap();
    let wrong = loaded.engine_settings("lcm", &schema).unwrap_err();
    let found: Vec<_> = wrong
        .iter()
        .map(|found| (found.location.unwrap().line, found.problem.to_string()))
        .collect();
    assert_eq!(
            found,
            [
                (
                    4,
                    "`context.engines.lcm.leaf_tokens` is 5, but must be a whole number of at least 100"
                        .into()
                ),
                (
                    5,
                    "unknown key `context.engines.lcm.leaf_tokns`, did you mean \
                     `context.engines.lcm.leaf_tokens`?"
                        .into()
                ),
            ]
        );
    assert_eq!(loaded.engine_settings("other", &schema).unwrap(), json!({}));
    // A number and a word are given as the types that the engine reads.
    let loaded = loads("context:\n  engines:\n    lcm: {leaf_tokens: 500.0}\n");
    let settings = loaded.engine_settings("lcm", &schema).unwrap();
    assert_eq!(settings.to_string(), "{\"leaf_tokens\":500}");
}

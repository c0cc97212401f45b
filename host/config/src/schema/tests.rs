#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use serde_json::json;

fn schema(value: Value) -> Schema {
    Schema::parse(&value).unwrap()
}

fn problems(schema: &Schema, mut value: Value) -> Vec<String> {
    let found = schema.check(&mut value);
    found
        .iter()
        .map(|(_, problem)| problem.to_string())
        .collect()
}

#[test]
fn each_problem_names_key_value_and_what_is_allowed() {
    let schema = schema(
        json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 1, "description": "what it is called"},
            "ratio": {"type": "number", "minimum": 0.1, "maximum": 0.8},
            "count": {"type": ["integer", "null"], "minimum": 1},
            "mode": {"enum": ["fast", "careful"]},
            "inner": {"type": "object", "properties": {"flag": {"type": "boolean"}}},
            "list": {"type": "array", "items": {"type": "string"}},
        }}),
    );
    assert_eq!(
        problems(
            &schema,
            json!({
                "name": " ", "ratio": 0.9, "count": 0, "mode": "fats", "inner": {"flag": 1, "flg": true},
                "list": ["a", 4], "flag": true, "nonsense": 1,
            })
        ),
        [
            "`name` is \" \", but must be text that is not empty",
            "`ratio` is 0.9, but must be a number from 0.1 to 0.8",
            "`count` is 0, but must be a whole number of at least 1 or null",
            "`mode` is \"fats\", but must be `fast` or `careful`; did you mean `fast`?",
            "`inner.flag` is 1, but must be true or false",
            "unknown key `inner.flg`, did you mean `inner.flag`?",
            "`list[1]` is 4, but must be text; put it in quotes",
            "unknown key `flag`; known here: name, ratio, count, mode, inner, list; there is a `inner.flag`",
            "unknown key `nonsense`; known here: name, ratio, count, mode, inner, list",
        ]
    );
    assert_eq!(
        problems(&schema, json!({})),
        ["`name` is missing: what it is called"]
    );
    assert_eq!(
        problems(
            &schema,
            json!({"name": "x", "count": null, "inner": null, "ratio": 0.1})
        ),
        [] as [&str; 0]
    );
    assert_eq!(
        problems(&schema, json!([1])),
        ["`` is [1], but must be a mapping (`key: value` lines, indented)"]
    );
}

#[test]
fn values_get_the_type_that_is_asked_for() {
    let schema = schema(json!({"type": "object", "properties": {
        "on": {"type": "boolean"}, "n": {"type": "integer"}, "word": {"type": "string"},
    }}));
    let mut value = json!({"on": "Yes", "n": 20.0, "word": "no", "x": null});
    assert_eq!(schema.check(&mut value).len(), 1); // `x`, which is unknown
    assert_eq!(value, json!({"on": true, "n": 20, "word": "no", "x": null}));
    assert_eq!(
        problems(&schema, json!({"n": 20.5})),
        ["`n` is 20.5, but must be a whole number"]
    );
    assert_eq!(
        problems(&schema, json!({"n": "20"})),
        ["`n` is \"20\", but must be a whole number; take it out of the quotes"]
    );
}

#[test]
fn a_number_of_tokens_may_have_a_unit() {
    let schema = schema(json!({"type": "object", "properties": {
        "window": {"type": ["integer", "null"], "description": "The window, in tokens.", "minimum": 1},
        "timeout_ms": {"type": "integer", "description": "How long, in ms."},
    }}));
    for (written, meant) in [
        ("200k", 200_000),
        ("64K", 64_000),
        ("1M", 1_000_000),
        ("2m", 2_000_000),
        ("1.5k", 1_500),
        ("0.2M", 200_000),
        ("1.048576M", 1_048_576),
    ] {
        let mut value = json!({"window": written});
        assert_eq!(schema.check(&mut value), []);
        assert_eq!(value, json!({"window": meant}));
    }
    for wrong in [
        json!({"window": "k"}),
        json!({"window": "-1k"}),
        json!({"window": "1.5555k"}),
        json!({"window": "1.5"}),
        json!({"window": "0k"}),
        json!({"window": "99999999999999999999k"}),
        json!({"timeout_ms": "5k"}),
    ] {
        assert_eq!(problems(&schema, wrong.clone()).len(), 1, "{wrong}");
    }
}

#[test]
fn the_name_of_a_key_does_not_make_a_number_one_of_tokens() {
    let schema = schema(json!({"type": "object", "properties": {
        "requests": {"type": "integer", "description": "How many requests of a name of `gateway.tokens`."},
        "window": {"type": "integer", "description": "At most `gateway.window`, in tokens."},
    }}));
    assert_eq!(problems(&schema, json!({"requests": "2k"})).len(), 1);
    assert_eq!(problems(&schema, json!({"window": "2k"})).len(), 0);
}

#[test]
fn a_misspelt_keyword_is_told_the_nearest_that_is_accepted() {
    for keyword in KEYWORDS {
        let unknown = |keyword: &str| {
            let parsed = Schema::parse(&json!({keyword: 1}));
            let error = parsed.err().map(|error| error.to_string());
            error.filter(|error| error.contains("unknown keyword"))
        };
        assert_eq!(unknown(keyword), None, "{keyword}");
        let told = unknown(&format!("{keyword}x")).unwrap();
        let hint = format!("did you mean `{keyword}`?");
        assert!(told.contains(&hint), "{told}");
    }
}

#[test]
fn a_schema_that_makes_no_sense_says_where() {
    let message = |value: Value| {
        let map = value.as_object().unwrap().clone();
        Schema::of_properties(&map).unwrap_err().to_string()
    };
    assert_eq!(
        message(json!({"a": {"type": "integer", "minumum": 1}})),
        "the schema at `a` is wrong: unknown keyword `minumum`, did you mean `minimum`?"
    );
    assert_eq!(
        message(json!({"a": {"type": "int"}})),
        "the schema at `a.type` is wrong: it is \"int\", but must be null, boolean, integer, number, \
             string, array or object"
    );
    assert!(message(json!({"a": 3})).contains("must be a mapping"));
    assert!(
        message(json!({"a": {"type": "integer", "minimum": 2, "default": 1}}))
            .contains("its own default is not allowed")
    );
}

//! The Gemini API: contents whose calls and results may have no ids.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_engine_api::{ShortArguments, ToolSpec};
use contexture_formats::PlanEntry::Message;
use contexture_formats::{
    BodyEdits, Conversation, Format, MediaKind, PlanEntry, RenderPlan, read, split, tool_names,
    tool_texts,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn one(document: &str) -> Conversation {
    let mut all = read(document, None).unwrap_or_else(|error| panic!("{error}\n{document}"));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].format(), Format::Gemini, "{document}");
    all.remove(0)
}

fn roles(conversation: &Conversation) -> Vec<&str> {
    let messages = conversation.messages().iter();
    messages.map(|message| message.role.as_str()).collect()
}

/// The id of each call, and of the call of each result.
fn ids(conversation: &Conversation) -> (Vec<&str>, Vec<&str>) {
    let messages = || conversation.messages().iter();
    let calls = messages().flat_map(|message| &message.calls);
    let results = messages().filter_map(|message| message.tool_call_id.as_deref());
    (calls.map(|call| &*call.id).collect(), results.collect())
}

#[test]
fn a_result_of_code_that_is_in_another_content_continues_it() {
    let code = json!({"executableCode": {"language": "PYTHON", "code": "1"}});
    let ran = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}});
    let model = |parts: &[&Value]| json!({"role": "model", "parts": parts});
    let user = json!({"role": "user", "parts": [{"text": "Run it."}]});
    for (contents, continued) in [
        (json!([user, model(&[&code, &ran])]), vec![false, false]),
        (
            json!([user, model(&[&code]), model(&[&ran])]),
            vec![false, false, true],
        ),
    ] {
        let conversation = one(&json!({ "contents": contents }).to_string());
        let messages = conversation.messages().iter();
        let continues: Vec<bool> = messages.map(|message| message.continues).collect();
        assert_eq!(continues, continued);
    }
}

#[test]
fn results_find_their_calls() {
    let call = |id: &str, name: &str| match id {
        "" => json!({"functionCall": {"name": name, "args": {}}}),
        id => json!({"function_call": {"id": id, "name": name}}),
    };
    let result = |id: &str, name: &str| match id {
        "" => json!({"functionResponse": {"name": name, "response": {"output": "r"}}}),
        id => json!({"function_response": {"id": id, "name": name, "response": {"output": "r"}}}),
    };
    type Named = [(&'static str, &'static str)];
    let cases: [(&Named, &Named, &[&str], &[&str]); 8] = [
        // Neither has ids.
        (
            &[("", "f"), ("", "g"), ("", "f")],
            &[("", "f"), ("", "g"), ("", "f")],
            &["f", "g", "f#2"],
            &["f", "g", "f#2"],
        ),
        (
            &[("", "f"), ("", "g")],
            &[("", "g"), ("", "f")],
            &["f", "g"],
            &["g", "f"],
        ),
        // Both have.
        (
            &[("a", "f"), ("b", "f")],
            &[("b", "f"), ("a", "f")],
            &["a", "b"],
            &["b", "a"],
        ),
        // The client leaves out the ids of the calls.
        (
            &[("a", "f"), ("b", "f")],
            &[("", "f"), ("", "f")],
            &["a", "b"],
            &["a", "b"],
        ),
        // The client makes ids of its own, as Gemini CLI does.
        (
            &[("", "f"), ("", "f")],
            &[("f-1", "f"), ("f-2", "f")],
            &["f", "f#2"],
            &["f", "f#2"],
        ),
        // One has an id, and the other has not.
        (
            &[("", "f"), ("b", "f")],
            &[("b", "f"), ("", "f")],
            &["f", "b"],
            &["b", "f"],
        ),
        // Results without a call.
        (&[("", "g")], &[("", "f")], &["g"], &["f"]),
        (&[("", "g")], &[("x", "f")], &["g"], &["x"]),
    ];
    for (calls, results, call_ids, result_ids) in cases {
        let calls: Vec<_> = calls.iter().map(|(id, name)| call(id, name)).collect();
        let results: Vec<_> = results.iter().map(|(id, name)| result(id, name)).collect();
        let together = vec![json!({"role": "user", "parts": results})];
        let apart: Vec<_> = (results.iter())
            .map(|result| json!({"role": "function", "parts": [result]}))
            .collect();
        for answers in [together, apart] {
            let mut contents = vec![
                json!({"parts": [{"text": "go"}]}),
                json!({"role": "model", "parts": calls}),
            ];
            contents.extend(answers);
            // What was called before has no effect.
            let twice = [&contents[..], &contents[..]].concat();
            let read = one(&json!({"contents": twice}).to_string());
            let (found, of) = ids(&read);
            assert_eq!(found, [call_ids, call_ids].concat(), "{contents:?}");
            assert_eq!(of, [result_ids, result_ids].concat(), "{contents:?}");
        }
    }
}

#[test]
fn each_part_is_read_as_what_it_is() {
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";
    let document = json!({"contents": [
        {"parts": [
            {"text": "look"},
            {"inlineData": {"mimeType": "image/png", "data": png}},
            {"file_data": {"mime_type": "audio/mp3", "file_uri": "https://example.com/a.mp3"}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/a.mp4"}},
        ]},
        {"role": "model", "parts": [
            {"text": "hm", "thought": true},
            {"text": "I see."},
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
        ]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"error": "no file"},
            "parts": [{"inlineData": {"mimeType": "image/png", "data": png}}]}}]},
        {"role": "model", "parts": [{"text": "so", "thought_signature": "c2ln"}]},
        {"role": "model"},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"lines": [1, 2], "ok": true}}}]},
    ], "system_instruction": {"parts": [{"text": "Be kind."}, {"text": "Be brief."}]}});
    let read = one(&document.to_string());
    assert_eq!(read.system(), Some("Be kind.\nBe brief."));
    assert_eq!(
        roles(&read),
        [
            "user", "assistant", "tool", "assistant", "assistant", "tool"
        ]
    );
    let [user, model, result, signed, empty, other] = read.messages() else {
        panic!()
    };
    let kinds: Vec<_> = user.media.iter().map(|media| media.kind).collect();
    assert_eq!(
        kinds,
        [MediaKind::Image, MediaKind::Audio, MediaKind::Document]
    );
    assert_eq!(read.media_data(&user.media[0]), png);
    assert_eq!(read.media_data(&user.media[1]), "https://example.com/a.mp3");
    assert_eq!((&*model.text, &*model.thinking), ("I see.", "hm"));
    assert!(model.opaque.contains("print(1)") && model.opaque.contains("OUTCOME_OK"));
    assert_eq!(model.calls[0].arguments, r#"{"a":1}"#);
    assert_eq!((&*result.text, result.is_error), ("no file", true));
    assert_eq!(read.media_data(&result.media[0]), png);
    assert!(model.has_thinking && signed.has_thinking && !user.has_thinking);
    assert_eq!((&*empty.text, empty.calls.len()), ("", 0));
    assert_eq!(other.text, r#"{"lines":[1,2],"ok":true}"#);
}

#[test]
fn a_shortened_part_keeps_what_is_beside_it() {
    let call = r#"{"thoughtSignature":"c2ln","functionCall":{"name":"f","args":{"a": 1}}}"#;
    let bare = r#"{"functionCall":{"name":"f"}}"#;
    let error = r#"{"functionResponse":{"id":"x","name":"f","response":{"error": "long"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}"#;
    let json = r#"{"functionResponse":{"name":"f","response":{"a":1,"b":2}}}"#;
    let document = format!(
        r#"{{"contents":[{{"parts":[{{"text":"go"}}]}},{{"role":"model","parts":[{call}, {bare}]}},{{"role":"user","parts":[{error},{json}]}}]}}"#
    );
    let arguments = [
        ShortArguments::new(0, r#"{"a":0}"#.to_owned()),
        ShortArguments::new(1, r#"{"b":0}"#.to_owned()),
    ];
    let short = |index| PlanEntry::Replaced {
        index,
        text: Some("short"),
        arguments: &[],
    };
    let calls = PlanEntry::Replaced {
        index: 1,
        text: None,
        arguments: &arguments,
    };
    let plan = RenderPlan {
        entries: vec![Message(0), calls, short(2), short(3)],
        ..RenderPlan::whole(0)
    };
    let expected = document
        .replace(r#"{"a": 1}"#, r#"{"a":0}"#)
        .replace(r#"{"name":"f"}"#, r#"{"name":"f","args":{"b":0}}"#)
        .replace(r#""long""#, r#""short""#)
        .replace(
            r#"[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]"#,
            "[]",
        )
        .replace(r#"{"a":1,"b":2}"#, r#"{"output":"short"}"#);
    assert_eq!(one(&document).render(&plan).unwrap(), expected);
}

#[test]
fn tools_are_listed_added_and_forbidden() {
    let contents = r#""contents":[{"parts":[{"text":"go"}]}]"#;
    let own =
        r#"{"functionDeclarations":[{"name":"ls","parameters":{"type":"OBJECT"}},{"name":"cat"}]}"#;
    let list = format!(r#"[{{"googleSearch":{{}}}},{own}]"#);
    assert_eq!(tool_names(&list), ["ls", "cat"]);
    assert_eq!(tool_texts(&list).len(), 3);
    let tool = ToolSpec::new("grep", "Search.", json!({"type": "object"}));
    let added =
        r#"{"name":"grep","description":"Search.","parametersJsonSchema":{"type":"object"}}"#;
    let written = |body: &str, tools: &[ToolSpec], denied| {
        let wire = split(body, Some(Format::Gemini)).unwrap();
        let written = wire.write(&BodyEdits::default().tools(tools, denied));
        assert_eq!(written.without_tools, None);
        written.body.into_parts().0.into_owned()
    };
    let with = |body: &str, denied| written(body, std::slice::from_ref(&tool), denied);
    // The functions of a body are in one entry.
    let body = format!(r#"{{{contents},"tools":{list}}}"#);
    let joined = format!(r#"{{"name":"cat"}},{added}]"#);
    assert_eq!(
        with(&body, false),
        body.replace(r#"{"name":"cat"}]"#, &joined)
    );
    let body = format!(r#"{{{contents},"tools":[{{"googleSearch":{{}}}}]}}"#);
    let entry = format!(r#"{{}}}},{{"functionDeclarations":[{added}]}}]"#);
    assert_eq!(with(&body, false), body.replace("{}}]", &entry));
    let none = r#""toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#;
    let body = format!("{{{contents}}}");
    let new = format!(r#"{{{contents},"tools":[{{"functionDeclarations":[{added}]}}],{none}}}"#);
    assert_eq!(with(&body, true), new);
    // A choice is replaced, and what is beside it stays. Without functions there is no choice.
    let denied = |body: &str| written(body, &[], true);
    let config = r#""tool_config":{"function_calling_config":{"mode":"ANY","allowedFunctionNames":["ls"]},"retrievalConfig":{}}"#;
    let body = format!(r#"{{{contents},"tools":[{own}],{config}}}"#);
    let forbidden = config.replace(
        r#"{"mode":"ANY","allowedFunctionNames":["ls"]}"#,
        r#"{"mode":"NONE"}"#,
    );
    assert_eq!(denied(&body), body.replace(config, &forbidden));
    let body = format!(r#"{{{contents},"tools":[{{"googleSearch":{{}}}}]}}"#);
    assert_eq!(denied(&body), body);
}

#[test]
fn tools_are_converted() {
    let chat = r#"{"messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"1 ls","description":"lists","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}},{"type":"custom","custom":{"name":"x"}}]}"#;
    let chat = read(chat, None).unwrap().remove(0);
    let whole = RenderPlan::whole(1);
    let converted = chat.convert(&whole, Format::Gemini).unwrap();
    let body: Value = serde_json::from_str(&converted.document).unwrap();
    let [declared] = body["tools"].as_array().unwrap().as_slice() else {
        panic!("{body}")
    };
    let function = &declared["functionDeclarations"][0];
    assert!(function["name"].as_str().unwrap().starts_with("_1_ls_"));
    assert_eq!(
        function["parametersJsonSchema"]["properties"]["a"]["type"],
        "string"
    );
    assert_eq!(converted.notes.len(), 2, "{:?}", converted.notes);
    let gemini = r#"{"contents":[{"parts":[{"text":"go"}]}],"tools":[{"functionDeclarations":[{"name":"ls","parameters":{"type":"OBJECT","properties":{"type":{"type":"ARRAY","items":{"type":"STRING","enum":["OBJECT"]}}}}},{"name":"cat"}]},{"googleSearch":{}}]}"#;
    let gemini = one(gemini);
    let converted = gemini.convert(&whole, Format::OpenAiChat).unwrap();
    let body: Value = serde_json::from_str(&converted.document).unwrap();
    let schema = json!({"type": "object", "properties": {"type": {"type": "array", "items": {"type": "string", "enum": ["OBJECT"]}}}});
    assert_eq!(body["tools"][0]["function"]["parameters"], schema);
    assert_eq!(body["tools"][1]["function"]["name"], "cat");
    assert_eq!(body["tools"].as_array().unwrap().len(), 2);
}

/// The calls of another model have no signatures, which Gemini insists on in the turn in progress.
#[test]
fn the_calls_of_another_model_are_marked_in_the_turn_in_progress() {
    let calls = |ids: &[&str]| {
        let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let calls: Vec<_> = ids.iter().map(call).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    };
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let user = json!({"role": "user", "content": "go"});
    let messages = json!([
        user,
        calls(&["a"]),
        result("a"),
        user,
        calls(&["b", "c"]),
        result("b"),
        result("c"),
        calls(&["d"]),
        result("d")
    ]);
    let chat = json!({"messages": messages}).to_string();
    let chat = read(chat, None).unwrap().remove(0);
    let whole = RenderPlan::whole(chat.messages().len());
    let document = chat.convert(&whole, Format::Gemini).unwrap().document;
    let body: Value = serde_json::from_str(&document).unwrap();
    let contents = body["contents"].as_array().unwrap();
    let parts = (contents.iter()).flat_map(|content| content["parts"].as_array().unwrap());
    let signed: Vec<_> = parts
        .filter(|part| part["thoughtSignature"].is_string())
        .map(|part| part["functionCall"]["id"].as_str().unwrap())
        .collect();
    assert_eq!(signed, ["b", "d"]);
}

/// Which ids the results of a turn have.
#[derive(Debug, Clone, Copy)]
enum ResultIds {
    None,
    /// That of the call, if it has one.
    Calls,
    /// One that no call has.
    Foreign,
}

/// What one turn of a conversation does. A turn with calls is the model's content and the results.
#[derive(Debug, Clone)]
enum Turn {
    User {
        picture: bool,
    },
    Answer {
        thinks: bool,
    },
    Tools {
        /// For each call, whether it has an id, and which of two tools it calls.
        calls: Vec<(bool, bool)>,
        says: bool,
        signed: bool,
        /// Whether each result has a content of its own.
        apart: bool,
        ids: ResultIds,
        /// A word of the user's behind the results.
        word: bool,
    },
}

/// What becomes of a turn.
#[derive(Debug, Clone)]
enum Fate {
    Keep,
    Drop,
    Summary,
    Shorten,
    /// These results are left out, and a stub stands in for each of them.
    Lose(Vec<bool>),
}

fn turn() -> impl Strategy<Value = Turn> {
    let calls = prop::collection::vec(any::<(bool, bool)>(), 1..4);
    let ids = prop::sample::select(vec![ResultIds::None, ResultIds::Calls, ResultIds::Foreign]);
    prop_oneof![
        1 => any::<bool>().prop_map(|picture| Turn::User { picture }),
        1 => any::<bool>().prop_map(|thinks| Turn::Answer { thinks }),
        3 => (calls, any::<[bool; 4]>(), ids).prop_map(|(calls, [says, signed, apart, word], ids)| {
            Turn::Tools { calls, says, signed, apart, ids, word }
        }),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Keep),
        1 => Just(Fate::Drop),
        1 => Just(Fate::Summary),
        1 => Just(Fate::Shorten),
        2 => prop::collection::vec(any::<bool>(), 3).prop_map(Fate::Lose),
    ]
}

/// A conversation in which the user and the model take turns, and the turn of each content.
fn contents(turns: &[Turn]) -> (Vec<Value>, Vec<usize>) {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": "m0"}]})];
    let mut of = vec![usize::MAX];
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    for (at, turn) in turns.iter().enumerate() {
        let is_model = contents.last().unwrap()["role"] == "model";
        let before = contents.len();
        match turn {
            Turn::User { picture } if is_model => {
                let mut parts = vec![json!({"text": format!("m{}", next())})];
                if *picture {
                    parts.push(json!({"inline_data": {"mime_type": "image/png", "data": "AAAA"}}));
                }
                contents.push(json!({"role": "user", "parts": parts}));
            }
            Turn::Answer { thinks } if !is_model => {
                let mut parts = vec![json!({"text": format!("m{}", next())})];
                if *thinks {
                    parts.insert(0, json!({"text": "hm", "thought": true}));
                }
                contents.push(json!({"role": "model", "parts": parts}));
            }
            Turn::Tools {
                calls,
                says,
                signed,
                apart,
                ids,
                word,
            } if !is_model => {
                let mut parts = Vec::new();
                if *says {
                    parts.push(json!({"text": format!("m{}", next())}));
                }
                let mut results = Vec::new();
                for (has_id, other) in calls {
                    let number = next();
                    let name = if *other { "cat" } else { "ls" };
                    let mut call = json!({"name": name, "args": {"n": number}});
                    let mut result =
                        json!({"name": name, "response": {"output": format!("r{number}")}});
                    if *has_id {
                        call["id"] = json!(format!("c{number}"));
                    }
                    match ids {
                        ResultIds::Calls if *has_id => result["id"] = call["id"].clone(),
                        ResultIds::Foreign => result["id"] = json!(format!("x{number}")),
                        _ => {}
                    }
                    parts.push(json!({"functionCall": call}));
                    results.push(json!({"functionResponse": result}));
                }
                if *signed {
                    parts.last_mut().unwrap()["thoughtSignature"] = json!("c2ln");
                }
                contents.push(json!({"role": "model", "parts": parts}));
                match apart {
                    true => contents.extend(
                        (results.into_iter())
                            .map(|result| json!({"role": "function", "parts": [result]})),
                    ),
                    false => {
                        if *word {
                            results.push(json!({"text": format!("m{}", next())}));
                        }
                        contents.push(json!({"role": "user", "parts": results}));
                    }
                }
            }
            _ => {}
        }
        of.extend(std::iter::repeat_n(at, contents.len() - before));
    }
    (contents, of)
}

fn parts(content: &Value) -> &[Value] {
    content["parts"].as_array().unwrap()
}

/// Checks what Google requires of contents: the user begins, the model never speaks twice, and the results of all calls
/// follow them, before anything else.
fn check(document: &str) -> Result<(), TestCaseError> {
    let body: Value = serde_json::from_str(document).unwrap();
    let contents = body["contents"].as_array().unwrap();
    prop_assert!(contents[0]["role"] != "model", "{document}");
    let is_model = |content: &Value| content["role"] == "model";
    for pair in contents.windows(2) {
        prop_assert!(!(is_model(&pair[0]) && is_model(&pair[1])), "{document}");
    }
    let count = |content: &Value, key: &str| {
        parts(content)
            .iter()
            .filter(|part| part[key].is_object())
            .count()
    };
    let mut open = 0;
    for content in contents {
        prop_assert!(!parts(content).is_empty(), "{document}");
        let results = count(content, "functionResponse");
        if is_model(content) {
            prop_assert_eq!((open, results), (0, 0), "{}", document);
            open = count(content, "functionCall");
        } else {
            prop_assert!(results > 0 || open == 0, "{document}");
            prop_assert!(results <= open, "{document}");
            let mut first = parts(content).iter().take(results);
            prop_assert!(
                first.all(|part| part["functionResponse"].is_object()),
                "{document}"
            );
            open -= results;
            prop_assert!(open == 0 || results == parts(content).len(), "{document}");
        }
    }
    prop_assert_eq!(open, 0, "{}", document);
    Ok(())
}

/// Each call has one result, which has its number.
fn check_pairs(conversation: &Conversation) -> Result<usize, TestCaseError> {
    let mut open = Vec::new();
    let mut pairs = 0;
    for message in conversation.messages() {
        if !message.calls.is_empty() {
            prop_assert!(open.is_empty(), "{:?}", conversation.messages());
            open = message.calls.iter().collect();
        }
        let Some(id) = &message.tool_call_id else {
            continue;
        };
        let place = open.iter().position(|call| call.id == *id);
        prop_assert!(place.is_some(), "no call {id}: {}", conversation.document());
        let call = open.remove(place.unwrap());
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let number = arguments["n"].as_u64().unwrap();
        let said: String = message.text.chars().filter(char::is_ascii_digit).collect();
        prop_assert_eq!(said, number.to_string(), "{}", conversation.document());
        prop_assert_eq!(message.tool_name.as_deref(), Some(&*call.name));
        pairs += 1;
    }
    prop_assert!(open.is_empty());
    Ok(pairs)
}

/// The texts, calls and results of a message, by their numbers.
fn said(message: &contexture_formats::Message) -> Vec<String> {
    let number = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    if message.is_summary() {
        return Vec::new();
    }
    if message.tool_call_id.is_some() {
        return vec![format!("r{}", number(&message.text))];
    }
    let texts = message.text.split('\n').filter(|text| !text.is_empty());
    let calls = message
        .calls
        .iter()
        .map(|call| format!("c{}", number(&call.arguments)));
    texts.map(ToOwned::to_owned).chain(calls).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is kept, lost, shortened or summarised, each result stays that of its call.
    #[test]
    fn every_window_is_valid(turns in prop::collection::vec((turn(), fate()), 1..12)) {
        let (turns, fates): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
        let (contents, of) = contents(&turns);
        let document = serde_json::to_string_pretty(&json!({"contents": contents})).unwrap();
        let conversation = one(&document);
        check(&document)?;
        let calls = check_pairs(&conversation)?;
        let whole = RenderPlan::whole(conversation.messages().len());
        prop_assert_eq!(&conversation.render(&whole).unwrap(), &document);

        let messages = conversation.messages();
        let number = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        let texts: Vec<String> = (messages.iter())
            .map(|message| format!("[Shortened to save context space] {}", number(&message.text)))
            .collect();
        let arguments: Vec<Vec<ShortArguments>> = (messages.iter())
            .map(|message| {
                let calls = message.calls.iter().enumerate();
                calls.map(|(at, call)| ShortArguments::new(at, format!("{{\"n\":{}}}", number(&call.arguments)))).collect()
            })
            .collect();
        let lost: Vec<Vec<String>> = (messages.iter())
            .map(|message| message.calls.iter().map(|call| format!("[lost {}]", number(&call.arguments))).collect())
            .collect();
        let mut entries: Vec<PlanEntry<'_>> = Vec::new();
        let (mut caller, mut results) = (0, 0);
        let mut kept: Vec<usize> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            if !message.calls.is_empty() {
                (caller, results) = (index, 0);
            }
            let is_result = message.tool_call_id.is_some();
            results += usize::from(is_result);
            let at = of[message.items.start];
            match fates.get(at).unwrap_or(&Fate::Keep) {
                Fate::Drop => {}
                Fate::Summary => {
                    if index == 0 || of[messages[index - 1].items.start] != at {
                        entries.push(PlanEntry::Summary { text: "S", in_system_role: false });
                    }
                }
                Fate::Shorten if is_result || !message.calls.is_empty() => {
                    let text = is_result.then_some(&*texts[index]);
                    entries.push(PlanEntry::Replaced { index, text, arguments: &arguments[index] });
                    kept.push(index);
                }
                Fate::Lose(which) if is_result && which[results - 1] => {
                    // Results in order answer the calls in order.
                    let call = results - 1;
                    entries.push(PlanEntry::Stub { message: caller, call, text: &lost[caller][call] });
                }
                _ => {
                    entries.push(Message(index));
                    kept.push(index);
                }
            }
        }
        let plan = RenderPlan { entries, ..RenderPlan::whole(0) };
        let out = conversation.render(&plan).unwrap();
        check(&out)?;
        let again = one(&out);
        let left = check_pairs(&again)?;
        prop_assert!(left <= calls);
        // What is kept is what it was. Contents of one role may become one message.
        let own: Vec<String> = kept.iter().flat_map(|index| said(&messages[*index])).collect();
        let found = again.messages().iter().filter(|message| !message.text.starts_with("[lost"));
        let found: Vec<String> = found.flat_map(said).collect();
        prop_assert_eq!(found, own, "{}", out);

        // The same in other formats, and back from them.
        for to in [Format::OpenAiChat, Format::OpenAiResponses, Format::Anthropic] {
            let converted = conversation.convert(&plan, to).unwrap().document;
            let other = read(converted, Some(to)).unwrap().remove(0);
            prop_assert_eq!(check_pairs(&other)?, left, "{}", other.document());
            let whole = RenderPlan::whole(other.messages().len());
            let back = other.convert(&whole, Format::Gemini).unwrap().document;
            check(&back)?;
            let back = one(&back);
            prop_assert_eq!(check_pairs(&back)?, left, "{}", back.document());
            // Results with ids may come in any order.
            let said = |conversation: &Conversation| -> Vec<String> {
                let mut all: Vec<_> = conversation.messages().iter().flat_map(said).collect();
                all.sort();
                all
            };
            prop_assert_eq!(said(&back), said(&again), "{}", back.document());
        }
    }

    /// A body that goes on like an earlier one is split like any other.
    #[test]
    fn splitting_gives_the_contents(turns in prop::collection::vec(turn(), 0..8)) {
        let (contents, _) = contents(&turns);
        let document = json!({"contents": contents, "systemInstruction": {"parts": [{"text": "s"}]}}).to_string();
        let body = split(&document, None).unwrap();
        prop_assert_eq!(body.format, Format::Gemini);
        prop_assert_eq!(body.system, Some(r#"{"parts":[{"text":"s"}]}"#));
        let messages: Vec<Value> = body.messages.iter().map(|raw| serde_json::from_str(raw).unwrap()).collect();
        prop_assert_eq!(messages, contents);
    }
}

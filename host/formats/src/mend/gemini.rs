//! Fixes contents for Google's Gemini API.
//!
//! [`mended`] fixes each content by itself first: its role, its members and its parts. It then
//! splits the contents into entries, lets `pairs` bring calls and results together, and joins the
//! entries again.
//!
//! Gemini requires the results of a content's calls in the very next content. The first content
//! must be the user's, and no two contents of the model may follow each other. It rejects contents
//! without parts, blank texts and members that it does not know.

use contexture_engine_api::MISSING_RESULT;
use serde_json::{Map, Value, json};

use super::pairs::{Entry, Forms, joined, paired};
use super::{LONGEST, NO_CALL, Notes, OPENING, drop_private, plain_name};
use crate::anatomy::contents::result_text;
use crate::calls::KnownCalls;
use crate::gemini;
use crate::json::Raw;
use crate::message::Call;

const FORMS: Forms = Forms {
    adjacent: true,
    set_calls: |content, ids| {
        let parts = content["parts"].as_array_mut().into_iter().flatten();
        let calls = parts.filter_map(|part| member_mut(part, &gemini::CALL));
        for (call, id) in calls.zip(ids) {
            set_id(call, id);
        }
    },
    set_result: |part, id| {
        if let Some(result) = member_mut(part, &gemini::RESULT) {
            set_id(result, id);
        }
    },
    stub: |content, at, id| {
        let call = calls_of(content).nth(at);
        let name = call.map_or(Value::Null, |call| call["name"].clone());
        let mut result = json!({"name": name, "response": {"output": MISSING_RESULT}});
        set_id(&mut result, id);
        json!({"functionResponse": result})
    },
    orphan: |part| {
        let json = part.to_string();
        let result = Raw::parse(&json).ok().and_then(gemini::result_in);
        let text = result.map(result_text).unwrap_or_default();
        json!({"role": "user", "parts": [{"text": format!("{NO_CALL}\n{text}")}]})
    },
};

/// How the ids begin that calls without an id get while calls and results are paired.
const NAMELESS: &str = "nameless_";

/// How the ids begin that calls without an id keep, if other calls of the same content have one. A
/// result without an id could then be that of either.
const MADE: &str = "call_made_";

/// The members of a part that tell what it is, and those that may be beside one of them.
const DATA: [&str; 7] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
];
const BESIDE: [&str; 4] = [
    "thought", "thoughtSignature", "videoMetadata", "partMetadata",
];

/// Fixes the contents of a body. Contents that say nothing are left out, and a content of the user
/// is added at the start if the first one is the model's.
pub(super) fn mended(contents: Vec<Value>, notes: &mut Notes) -> Vec<Value> {
    let mut entries = Vec::new();
    // For each entry, the index of the content that it came from.
    let mut of = Vec::new();
    let mut calls = KnownCalls::default();
    let mut nameless = 0;
    for (at, content) in contents.into_iter().enumerate() {
        let Some(mut content) = mend_content(content, notes) else {
            continue;
        };
        if content["role"] == "model" {
            let made = called(&content, &mut nameless);
            calls.learn(&made);
            calls.open(made.iter());
            let ids: Vec<String> = made.into_iter().map(|call| call.id).collect();
            let is_new =
                |(id, call): &(&String, &Value)| id.starts_with(MADE) && call["id"] != **id;
            let new = ids.iter().zip(calls_of(&content)).filter(is_new).count();
            if new > 0 {
                (FORMS.set_calls)(&mut content, &ids);
                notes.add("a call without an id got one, since others have one", new);
            }
            entries.push(match ids.is_empty() {
                true => Entry::Other(content),
                false => Entry::Calls(content, ids),
            });
        } else {
            split(content, &mut calls, &mut entries, notes);
        }
        of.resize(entries.len(), at);
    }
    let mut entries = paired(entries, &FORMS, notes);
    name_results(&mut entries, notes);
    let mut contents: Vec<Value> = Vec::new();
    for content in joined(entries, &of, "parts") {
        match contents.last_mut() {
            Some(last) if last["role"] == "model" && content["role"] == "model" => {
                notes.one(
                    "an answer was joined to the one before it, since no two may follow each other",
                );
                let parts = content["parts"].as_array().cloned().unwrap_or_default();
                if let Some(last) = last["parts"].as_array_mut() {
                    last.extend(parts);
                }
            }
            _ => contents.push(content),
        }
    }
    if contents
        .first()
        .is_some_and(|first| first["role"] == "model")
    {
        notes.one(
            "a user message was added at the beginning, since the first message must be the user's",
        );
        contents.insert(0, json!({"role": "user", "parts": [{"text": OPENING}]}));
    }
    contents
}

/// Gives each result the tool of its call. The calls come directly before their results.
fn name_results(entries: &mut [(usize, Entry)], notes: &mut Notes) {
    let mut names: Vec<(String, Value)> = Vec::new();
    for (_, entry) in entries {
        match entry {
            Entry::Calls(content, ids) => {
                let named = calls_of(content).map(|call| call["name"].clone());
                names = ids.iter().cloned().zip(named).collect();
            }
            Entry::Result(part, id) => {
                let name = names.iter().find(|(call, _)| call == id);
                let result = member_mut(part, &gemini::RESULT);
                if let (Some((_, name)), Some(result)) = (name, result)
                    && result["name"] != *name
                {
                    if result["name"].as_str().is_some_and(|old| !old.is_empty()) {
                        notes.one("the tool of a result was changed to that of its call");
                    }
                    result["name"] = name.clone();
                }
            }
            Entry::Other(_) => {}
        }
    }
}

/// The calls in a content. Those without an id get one.
fn called(content: &Value, nameless: &mut usize) -> Vec<Call> {
    let own = |call: &Value| {
        call["id"]
            .as_str()
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
    };
    let begins = match calls_of(content).any(|call| own(call).is_some()) {
        true => MADE,
        false => NAMELESS,
    };
    let call = |call: &Value| {
        let id = own(call).unwrap_or_else(|| {
            *nameless += 1;
            format!("{begins}{nameless}")
        });
        let name = call["name"].as_str().unwrap_or_default().to_owned();
        Call {
            id,
            name,
            arguments: String::new(),
        }
    };
    calls_of(content).map(call).collect()
}

/// Splits a content of the user into entries: one for each result, and one for the rest.
fn split(mut content: Value, calls: &mut KnownCalls, entries: &mut Vec<Entry>, notes: &mut Notes) {
    let parts = content["parts"].as_array().cloned().unwrap_or_default();
    let is_result = |part: &Value| member(part, &gemini::RESULT).is_some();
    let (results, rest): (Vec<Value>, Vec<Value>) = parts.iter().cloned().partition(is_result);
    if results.is_empty() {
        return entries.push(Entry::Other(content));
    }
    if !parts.is_sorted_by_key(|part| !is_result(part)) {
        notes.one("content before a result was moved after it");
    }
    for mut part in results {
        let result = member_mut(&mut part, &gemini::RESULT);
        let mut id = String::new();
        if let Some(result) = result.and_then(Value::as_object_mut) {
            let text = |key| result.get(key).and_then(Value::as_str).unwrap_or_default();
            let own = text("id").to_owned();
            id = calls.answered(own.clone(), text("name"));
            let had_one = own != id && result.shift_remove("id").is_some();
            if had_one || id.starts_with(MADE) {
                if !id.starts_with(NAMELESS) {
                    result.insert("id".to_owned(), json!(id));
                }
                notes.add(
                    "the id of a result was changed to that of its call",
                    usize::from(had_one),
                );
            }
        }
        entries.push(Entry::Result(part, id));
    }
    if !rest.is_empty() {
        content["role"] = json!("user");
        content["parts"] = Value::Array(rest);
        entries.push(Entry::Other(content));
    }
}

/// Fixes one content by itself. `None` if nothing is left of it.
fn mend_content(mut content: Value, notes: &mut Notes) -> Option<Value> {
    let members = content.as_object_mut()?;
    let role = match members.get("role").and_then(Value::as_str) {
        None | Some("user" | "function") => "user",
        Some("model") => "model",
        Some(role) => {
            notes.one("an unknown role was changed to `user`");
            let role = if role == "assistant" { "model" } else { "user" };
            members.insert("role".to_owned(), json!(role));
            role
        }
    };
    let before = members.len();
    members.retain(|key, _| key == "role" || key == "parts");
    notes.add(
        "a field that the format does not know was left out",
        before - members.len(),
    );
    let parts = members.get_mut("parts").and_then(Value::as_array_mut);
    let parts = parts.map(std::mem::take).unwrap_or_default();
    let parts = parts
        .into_iter()
        .filter_map(|part| mend_part(part, role, notes));
    let parts: Vec<Value> = parts.collect();
    if parts.is_empty() {
        notes.one("an empty message was left out");
        return None;
    }
    content["parts"] = Value::Array(parts);
    Some(content)
}

/// Fixes one part. `None` if the format cannot express it.
fn mend_part(mut part: Value, role: &str, notes: &mut Notes) -> Option<Value> {
    if let Some(text) = part.as_str() {
        part = json!({"text": text});
    }
    drop_private(&mut part, notes);
    let members = part.as_object_mut()?;
    let before = members.len();
    let is_one_of = |key: &str, known: &[&str]| known.contains(&camel_case(key).as_str());
    members.retain(|key, value| {
        !value.is_null() && (is_one_of(key, &DATA) || is_one_of(key, &BESIDE))
    });
    notes.add(
        "a field that the format does not know was left out",
        before - members.len(),
    );
    let is_signed = member(&part, &gemini::SIGNATURE).is_some_and(Value::is_string);
    if let Some(text) = part.get("text").and_then(Value::as_str)
        && text.trim().is_empty()
        && !is_signed
    {
        notes.one("a blank text was left out");
        return None;
    }
    let allowed = match role {
        "model" => member(&part, &gemini::RESULT).is_none(),
        _ => member(&part, &gemini::CALL).is_none(),
    };
    let data = (part.as_object()?.keys()).filter(|key| is_one_of(key, &DATA));
    if data.count() != 1 || !allowed {
        notes.one("a part that the format cannot express was left out");
        return None;
    }
    if let Some(call) = member_mut(&mut part, &gemini::CALL) {
        mend_name(call, notes);
        if !call["args"].is_null() && !call["args"].is_object() {
            call["args"] = json!({"arguments": call["args"].take()});
        }
    }
    if let Some(result) = member_mut(&mut part, &gemini::RESULT) {
        mend_name(result, notes);
        if !result["response"].is_object() {
            result["response"] = json!({"output": super::text_of(&result["response"])});
        }
    }
    Some(part)
}

/// Replaces a name that Gemini does not accept. It takes dots and colons, but no digit first.
pub(super) fn mend_name(holder: &mut Value, notes: &mut Notes) {
    let name = holder["name"].as_str().unwrap_or_default();
    let begins =
        |name: &str| name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_valid =
        begins(name) && name.len() <= LONGEST && super::is_plain(&name.replace(['.', ':'], "_"));
    if is_valid || name.is_empty() {
        return;
    }
    let mut new = plain_name(name);
    if !begins(&new) {
        new.truncate(LONGEST - 1);
        new.insert(0, '_');
    }
    holder["name"] = json!(new);
    notes.one(super::BAD_NAME);
}

fn set_id(holder: &mut Value, id: &str) {
    // A call that had no id needs none.
    if !id.starts_with(NAMELESS) {
        holder["id"] = json!(id);
    }
}

fn calls_of(content: &Value) -> impl Iterator<Item = &Value> {
    let parts = content["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| member(part, &gemini::CALL))
}

fn member<'v>(value: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().find_map(|name| value.get(name))
}

fn member_mut<'v>(value: &'v mut Value, names: &[&str]) -> Option<&'v mut Value> {
    let members = value.as_object_mut()?;
    let name = names.iter().find(|name| members.contains_key(**name))?;
    members.get_mut(*name)
}

/// A member's name in camelCase, from either spelling.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Fixes the tools of a body. Each function keeps its place in its entry. A function whose name
/// occurs before is left out, and so is an entry that only another provider knows.
pub(super) fn mend_tools(tools: &[Value], notes: &mut Notes) -> Vec<Value> {
    let mut names = std::collections::HashSet::new();
    let mut mended = Vec::new();
    for tool in tools {
        let mut tool = tool.clone();
        if let Some(declared) =
            member_mut(&mut tool, &gemini::DECLARATIONS).and_then(Value::as_array_mut)
        {
            declared.retain_mut(|function| {
                let is_named = function["name"]
                    .as_str()
                    .is_some_and(|name| !name.is_empty());
                if !is_named {
                    notes.one("a tool that the format cannot express was left out");
                    return false;
                }
                mend_name(function, notes);
                let name = function["name"].as_str().unwrap_or_default();
                let is_new = names.insert(name.to_owned());
                if !is_new {
                    notes.one("a repeated tool was left out");
                }
                is_new
            });
            if !declared.is_empty() {
                mended.push(tool);
            }
            continue;
        }
        // Each of Gemini's own tools is an object with the tool's name as its member.
        let is_own = |members: &Map<String, Value>| {
            !members.contains_key("name") && !members.contains_key("type")
        };
        match tool.as_object().is_some_and(is_own) {
            true => mended.push(tool),
            false => notes.one("a tool that the format cannot express was left out"),
        }
    }
    mended
}

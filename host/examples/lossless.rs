//! An agent whose history is kept whole: it talks until most of what was said has left the window, then finds
//! the one thing that it needs with the tools that the engine `lcm` gives it.
//!
//! `cargo run -p contexture --features lcm --example lossless` plays it with a model that only does as it is told.

use std::error::Error;

use contexture::{Host, HostOptions, Session, ToolCall, ToolSpec};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    // A home of its own, so that trying this leaves nothing behind; an agent would take the user's.
    let home = tempfile::tempdir()?;
    let host = Host::open(&HostOptions::in_home(home.path()))?;
    // Naming the engine here does what `context.engine: lcm` does in the configuration.
    let session = host.session("workshop").engine("lcm");
    let mut session = session
        .model("gpt-4o", 6_000)
        .max_output_tokens(600)
        .open()?;

    // The model learns of the engine's tools as of any others.
    let tools: Vec<Value> = session.tools()?.into_iter().map(openai_tool).collect();
    let mut history = vec![json!({"role": "system", "content": "You keep the workshop's books."})];
    for day in 1..=60 {
        let shelf = day * 37 % 100;
        history.push(json!({"role": "user", "content": format!(
            "Day {day}: the crate crate-{day:03} stands on shelf {shelf} now. {}",
            "Nothing else happened worth writing down. ".repeat(6)
        )}));
        turn(
            &mut session,
            &mut history,
            &tools,
            json!({"content": format!("Noted for day {day}.")}),
        )?;
    }
    let sent = session.window().len();
    println!(
        "{} messages said, {sent} places in the window",
        history.len()
    );

    // Weeks later somebody asks. The model does not have it any more, and knows where to look.
    history.push(json!({"role": "user", "content": "Where did we put crate-007?"}));
    let grep = tool_call(
        "call_1",
        "lcm_grep",
        &json!({"pattern": "crate-007", "mode": "literal", "role": "user", "sort": "oldest"}),
    );
    turn(&mut session, &mut history, &tools, grep)?;
    let found: Value = serde_json::from_str(last_content(&history))?;
    println!(
        "lcm_grep: {} of {} messages",
        found["total"], found["searched"]["messages"]
    );

    let id = found["hits"][0]["id"].clone();
    let expand = tool_call("call_2", "lcm_expand", &json!({"id": id}));
    turn(&mut session, &mut history, &tools, expand)?;
    let expanded: Value = serde_json::from_str(last_content(&history))?;
    let message = expanded["messages"][0]["message"].as_str();
    println!("lcm_expand {id}: {:.120}", message.unwrap_or_default());

    turn(
        &mut session,
        &mut history,
        &tools,
        json!({"content": "On shelf 59, since day 7."}),
    )?;
    session.end()?;
    Ok(())
}

/// One turn: the request goes through the session, the model answers, and what it calls of the engine's tools
/// the engine answers.
fn turn(
    session: &mut Session,
    history: &mut Vec<Value>,
    tools: &[Value],
    says: Value,
) -> Result<(), Box<dyn Error>> {
    let request = json!({"model": "gpt-4o", "messages": history, "tools": tools}).to_string();
    let turn = session.turn(&request)?;
    let answer = call_the_model(&turn.body, says);
    session.answer(&[&answer.to_string()], None)?;
    history.push(answer.clone());
    for call in answer["tool_calls"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let content = session.call_tool(ToolCall::new(
            text(&call["function"]["name"]),
            text(&call["function"]["arguments"]),
        ))?;
        history.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
    }
    Ok(())
}

/// Stands in for the provider: the model says what it is told to.
fn call_the_model(_body: &str, says: Value) -> Value {
    let mut answer = json!({"role": "assistant", "content": null});
    if let (Some(answer), Value::Object(says)) = (answer.as_object_mut(), says) {
        answer.extend(says);
    }
    answer
}

fn tool_call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"tool_calls": [{
        "id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()},
    }]})
}

/// A tool in OpenAI's form.
fn openai_tool(tool: ToolSpec) -> Value {
    json!({"type": "function", "function": {
        "name": tool.name, "description": tool.description, "parameters": tool.parameters,
    }})
}

fn last_content(history: &[Value]) -> &str {
    let last = history
        .last()
        .and_then(|message| message["content"].as_str());
    last.unwrap_or_default()
}

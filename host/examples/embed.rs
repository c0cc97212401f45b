//! An agent loop that embeds Contexture: each request passes through a session, which shows it to the
//! engine of the configuration, compacts when that is due, and answers the body to send.
//!
//! `cargo run -p contexture --example embed` plays it with a model that only talks.

use std::error::Error;

use contexture::config::Config;
use contexture::engines::Engines;
use contexture::providers::{configured_client, resolve_configured};
use contexture::session::{AgentWindow, Session, Store};
use contexture_engine_api::Usage;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    // A home of its own, so that trying this leaves nothing behind; an agent would take the user's.
    let home = tempfile::tempdir()?;
    let home_path = home.path().to_owned();
    let env = move |name: &str| (name == "CONTEXTURE_HOME").then(|| home_path.clone().into());
    let loaded = Config::load(None, &env)?;

    // An agent with a model of its own passes it here, and `provider: auto` summarises with it.
    let model = resolve_configured(&loaded.config, None, false, &|name| {
        std::env::var(name).ok()
    })?;
    let client = configured_client(&loaded.config, model);
    let store = Store::open(&loaded.home)?;
    let engines = Engines::new(loaded, client)?;
    let window = AgentWindow {
        model: "gpt-4o".to_owned(),
        context_length: 8_000,
        max_output_tokens: 1_000,
    };
    // The session keeps its ids and its compaction over restarts under this name.
    let mut session = Session::resume(&engines, &store, "embed-example", None, window)?;

    let mut history = vec![json!({"role": "system", "content": "You are a patient teacher."})];
    for turn in 1..=40 {
        history.push(json!({"role": "user", "content": format!("Tell me something about the number {turn}.")}));
        let request = json!({"model": "gpt-4o", "messages": history}).to_string();

        let turn = session.turn(&request, None)?;
        if let Some(report) = &turn.compaction {
            println!("turn with {} messages: {}", history.len(), report.reason);
        }
        let (answer, usage) = call_the_model(&turn.body)?;

        session.answer(&[&answer.to_string()], Some(&usage))?;
        session.turn_complete()?;
        history.push(answer);
        for warning in session.take_warnings() {
            eprintln!("warning: {warning}");
        }
    }
    println!(
        "{} messages said, {} in the window",
        history.len(),
        session.window().len()
    );
    session.end()?;
    Ok(())
}

/// Stands in for the provider.
fn call_the_model(body: &str) -> Result<(Value, Usage), Box<dyn Error>> {
    let request: Value = serde_json::from_str(body)?;
    let messages = request["messages"].as_array().map_or(0, Vec::len);
    let text = format!(
        "I was sent {messages} messages. {}",
        "Numbers are patient too. ".repeat(40)
    );
    let usage = Usage {
        input_tokens: body.len() as u64 / 4,
        output_tokens: text.len() as u64 / 4,
        ..Usage::default()
    };
    Ok((json!({"role": "assistant", "content": text}), usage))
}

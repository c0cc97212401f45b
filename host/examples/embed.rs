//! An agent loop that embeds Contexture. `cargo run -p contexture --example embed` plays it with a model that
//! only talks; put a call of your provider's API in the place of `call_the_model`.
use contexture::{Host, HostOptions, Usage};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?; // an agent takes the user's: `HostOptions::default()`
    let host = Host::open(&HostOptions::in_home(home.path()))?;
    let mut session = host.session("embed").model("gpt-4o", 8_000).open()?;
    let mut history = vec![json!({"role": "system", "content": "You are a patient teacher."})];
    for number in 1..=40 {
        let content = format!("Tell me about the number {number}.");
        history.push(json!({"role": "user", "content": content}));
        let request = json!({"model": "gpt-4o", "messages": history}).to_string();
        let turn = session.turn(&request)?;
        if let Some(report) = &turn.compaction {
            println!("{} messages said: {}", history.len(), report.reason);
        }
        let (message, usage) = call_the_model(&turn.body);
        session.answer(&[&message.to_string()], usage.as_ref())?;
        history.push(message);
    }
    Ok(session.end()?)
}

fn call_the_model(_body: &str) -> (Value, Option<Usage>) {
    let content = "Numbers are patient too. ".repeat(40);
    (json!({"role": "assistant", "content": content}), None)
}

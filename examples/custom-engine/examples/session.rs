//! An agent with the engine of this crate linked in. The model writes a note, most of the conversation leaves the
//! window, and the note is still there, in this session and after a restart.
//!
//! `cargo run -p custom-engine --example session` plays it. The agent's model is a function that only talks. With
//! `OPENAI_BASE_URL` and `OPENAI_API_KEY`, a real model (`OPENAI_MODEL`) writes the summary.

use std::error::Error;

use contexture::{Host, HostOptions, Session, ToolCall, TurnOptions};
use custom_engine as _; // without this line the linker drops the crate, and the engine with it
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    // A home of its own, so that trying this leaves nothing behind; an agent would take the user's.
    let home = tempfile::tempdir()?;
    let mut config = json!({"context": {"engine": "custom-engine"}});
    if let Ok(base_url) = std::env::var("OPENAI_BASE_URL") {
        let model = std::env::var("OPENAI_MODEL").unwrap_or_else(|_| "gpt-4o-mini".to_owned());
        config["auxiliary"]["compression"] =
            json!({"provider": "openai", "base_url": base_url, "model": model});
    }
    // JSON is YAML, too.
    std::fs::write(home.path().join("config.yaml"), config.to_string())?;
    talk(&mut open(&home)?)?;

    // A new host over the same home, as in the next process.
    let notes = open(&home)?.call_tool(ToolCall::new("notes", "{}"))?;
    println!("after a restart, `notes` answers {notes}");
    Ok(())
}

fn open(home: &tempfile::TempDir) -> Result<Session, Box<dyn Error>> {
    let host = Host::open(&HostOptions::in_home(home.path()))?;
    Ok(host.session("workshop").model("gpt-4o", 6_000).open()?)
}

/// Talks until the conversation was compacted, and prints what the model then sees first.
fn talk(session: &mut Session) -> Result<(), Box<dyn Error>> {
    let system = "You keep the workshop's books.";
    let mut history = vec![json!({"role": "system", "content": system})];
    for day in 1..=120 {
        let shelf = day * 37 % 100;
        let words = "Nothing else happened worth writing down. ".repeat(6);
        let said = format!("Day {day}: crate {day:03} stands on shelf {shelf} now. {words}");
        history.push(json!({"role": "user", "content": said}));
        let request = json!({"model": "gpt-4o", "messages": history}).to_string();
        let options = TurnOptions::default().wait_for_model(Some(true));
        let turn = session.turn_with(&request, None, &options)?;
        if turn.compaction.is_some() {
            let window: Value = serde_json::from_str(&turn.body)?;
            let sent = window["messages"].as_array().map_or(0, Vec::len);
            println!("{} messages said, {sent} sent. The page:", history.len());
            println!(
                "{}\n",
                window["messages"][1]["content"]
                    .as_str()
                    .unwrap_or_default()
            );
            return Ok(());
        }
        let answer = json!({"role": "assistant", "content": format!("Noted for day {day}.")});
        session.answer(&[&answer.to_string()], None)?;
        history.push(answer);
        if day == 1 {
            let note = json!({"text": "Crate 001 belongs to the museum."}).to_string();
            let answer = session.call_tool(ToolCall::new("note", note))?;
            println!("`note` answers {answer}");
        }
    }
    Err("nothing was compacted".into())
}

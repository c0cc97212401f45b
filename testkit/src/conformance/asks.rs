//! What is asked of an engine beside a conversation: its tools, and what sessions see of each other.

use std::collections::HashSet;

use contexture_engine_api::{
    CompressOrder, CompressRequest, ContextEngine, Delivery, EngineError, Outcome, ToolCall,
};

use super::play::opened;
use super::watch::{Panicked, Watch};
use super::{Row, Subject};
use crate::chat::views_of;
use crate::{Chat, ScriptedHost};

const WINDOW: u64 = 20_000;

pub(super) fn ask(subject: &Subject, watch: &Watch) {
    // What panicked is noted, and there is no more to ask.
    let _ = tools(subject, watch).and_then(|()| sessions(subject, watch));
}

fn tools(subject: &Subject, watch: &Watch) -> Result<(), Panicked> {
    let host = ScriptedHost::without_model();
    let Some((_factory, mut engine)) = opened(subject, watch, &host, WINDOW, None)? else {
        return Ok(());
    };
    let tools = watch.call("tools", || engine.tools())?;
    let mut names = HashSet::new();
    for tool in &tools {
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == '-';
        let is_good = !tool.name.is_empty() && tool.name.chars().all(is_name);
        watch.hold(Row::Tools, is_good && names.insert(&tool.name), || {
            format!("`{}` is no name for a tool, or two have it", tool.name)
        });
        watch.hold(Row::Tools, tool.parameters["type"] == "object", || {
            format!(
                "the arguments of `{}` have no schema of an object: {:.200}",
                tool.name, tool.parameters
            )
        });
        for wrong in ["", "[]", "{", "null", "{\"no_such_argument\": 1}"] {
            let call = ToolCall::new(tool.name.clone(), wrong);
            let answer = watch.call("call_tool", || engine.call_tool(&call))?;
            // What it takes without arguments it may answer.
            let is_object = wrong.starts_with("{\"");
            let found = match answer {
                Err(EngineError::Panicked(why)) => {
                    watch.broke(Row::Panics, format!("call_tool panicked: {why}"));
                    return Err(Panicked);
                }
                Err(EngineError::InvalidInput(why)) if !why.trim().is_empty() => Ok(()),
                Ok(_) if is_object || wrong.is_empty() => Ok(()),
                answer => Err(format!(
                    "`{}` called with `{wrong}` answers {answer:.200?}",
                    tool.name
                )),
            };
            watch.note(Row::Tools, found);
        }
    }
    let none = ToolCall::new("no_such_tool", "{}");
    let answer = watch.call("call_tool", || engine.call_tool(&none))?;
    watch.hold(Row::Tools, answer.is_err(), || {
        format!("a tool that does not exist answers {answer:.200?}")
    });
    Ok(())
}

/// Two sessions of one factory.
fn sessions(subject: &Subject, watch: &Watch) -> Result<(), Panicked> {
    let host = ScriptedHost::without_model();
    let Some((factory, mut one)) = opened(subject, watch, &host, WINDOW, None)? else {
        return Ok(());
    };
    let window = Chat::default().window(WINDOW, 0);
    let mut request = host.open_request("{}", &window);
    request.session = "another";
    let other = watch.call("open", || factory.open(&request))?;
    let mut other = match other {
        Ok(other) => other,
        Err(error) => {
            watch.broke(
                Row::Opens,
                format!("a second session does not open: {error}"),
            );
            return Ok(());
        }
    };
    let mut chats = ["inthefirst", "intheother"].map(|word| {
        let mut chat = Chat::default();
        for at in 0..40 {
            chat.user(format!("{word} {}", crate::filler(at, 1_000)));
            chat.assistant(format!("{word} {}", crate::filler(at + 3, 1_000)));
        }
        chat
    });
    let mut said = Vec::new();
    // Turn about, as two conversations go.
    for step in [1, 2] {
        let lengths = [40 * step; 2];
        for (engine, (chat, length)) in [&mut one, &mut other]
            .into_iter()
            .zip(chats.iter_mut().zip(lengths))
        {
            let new = &chat.messages[length - 40..length];
            let last = new[39].id;
            let observed = views_of(new, |views| {
                watch.call("observe", || engine.observe(&Delivery::new(views, last.0)))
            })?;
            watch.note(
                Row::Sessions,
                observed.map_err(|error| format!("observe failed: {error}")),
            );
        }
    }
    for (engine, (chat, foreign)) in [&mut one, &mut other]
        .into_iter()
        .zip(chats.iter().zip(["intheother", "inthefirst"]))
    {
        said.clear();
        let ids: Vec<_> = chat.messages.iter().map(|message| message.id).collect();
        let recalled = watch.call("recall", || engine.recall(&ids))?;
        said.extend(recalled.unwrap_or_default().into_iter().flatten());
        said.push(watch.call("status", || engine.status())?.to_string());
        said.extend(compacted(engine.as_mut(), chat, watch)?);
        let found = said.iter().find(|text| text.contains(foreign));
        watch.hold(Row::Sessions, found.is_none(), || {
            let text = found.map(String::as_str).unwrap_or_default();
            format!("a session tells what another was told: {text:.300}")
        });
    }
    Ok(())
}

/// The texts of the summaries that it proposes.
fn compacted(
    engine: &mut dyn ContextEngine,
    chat: &Chat,
    watch: &Watch,
) -> Result<Vec<String>, Panicked> {
    let order = CompressOrder::default().window(chat.window(WINDOW, 0));
    let outcome = chat.with_views(|views| {
        let request = CompressRequest::new(views, &order);
        watch.call("compress", || engine.compress(&request))
    })?;
    Ok(match outcome {
        Ok(Outcome::Compacted(proposal)) => (proposal.entries.into_iter())
            .filter_map(|entry| match entry {
                contexture_engine_api::Entry::Summary(summary) => Some(summary.text),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    })
}

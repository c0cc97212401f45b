//! Checks that need no conversation, or two of them.
//!
//! The first part asks an engine for its tools and calls each of them with wrong arguments. A tool
//! must refuse what is not an object. The second part opens two sessions of one factory, shows each
//! of them a conversation with a word of its own, and looks for that word in everything that the
//! other session returns.
//!
//! Read [`ask`] first. The conversations of a single session are played by the module `play`.

use std::collections::HashSet;

use contexture_engine_api::{
    CompressOrder, CompressRequest, ContextEngine, Delivery, EngineError, Outcome, ToolCall,
};

use super::play::opened;
use super::watch::{Panicked, Watch};
use super::{Row, Subject};
use crate::chat::views_of;
use crate::{Chat, ScriptedHost};

// Small, so that the two conversations of this check fill it and a compaction is possible.
const WINDOW: u64 = 20_000;

pub(super) fn ask(subject: &Subject, watch: &Watch) {
    // A panic is already noted, and an engine that panicked is not asked anything else.
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
            format!(
                "`{}` is not a valid tool name, or two tools have it",
                tool.name
            )
        });
        watch.hold(Row::Tools, tool.parameters["type"] == "object", || {
            format!(
                "the schema of the arguments of `{}` is not that of an object: {:.200}",
                tool.name, tool.parameters
            )
        });
        for wrong in ["{}", "[]", "{", "null", "{\"no_such_argument\": 1}"] {
            let call = ToolCall::new(tool.name.clone(), wrong);
            let answer = watch.call("call_tool", || engine.call_tool(&call))?;
            // A tool without required arguments may accept an object and ignore an argument that it
            // does not know.
            let is_object = wrong.ends_with('}');
            let found = match answer {
                Err(EngineError::Panicked(why)) => {
                    watch.broke(Row::Panics, format!("call_tool panicked: {why}"));
                    return Err(Panicked);
                }
                Err(EngineError::InvalidInput(why)) if !why.trim().is_empty() => Ok(()),
                Ok(_) if is_object => Ok(()),
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

/// Opens two sessions of one factory and checks that neither returns what the other was told,
/// through `status` or a summary.
fn sessions(subject: &Subject, watch: &Watch) -> Result<(), Panicked> {
    let host = ScriptedHost::without_model();
    let Some((factory, mut one)) = opened(subject, watch, &host, WINDOW, None)? else {
        return Ok(());
    };
    let window = Chat::default().window(WINDOW, 0);
    let mut request = host.open_request("{}", &window);
    request.session = "another";
    request.services = host.services_in("another");
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
    // Alternate between the sessions, as two conversations at the same time would.
    for step in [1, 2] {
        let lengths = [40 * step; 2];
        for ((name, engine), (chat, length)) in [("s", &mut one), ("another", &mut other)]
            .into_iter()
            .zip(chats.iter_mut().zip(lengths))
        {
            let new = &chat.messages[length - 40..length];
            let observed = views_of(new, |views| {
                let delivery = Delivery::new(views);
                host.record_in(name, &delivery);
                watch.call("observe", || engine.observe(&delivery))
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
        // Everything that a session returns counts, because any of it can reach the wrong person.
        said.push(watch.call("status", || engine.status())?.to_string());
        said.extend(compacted(engine.as_mut(), chat, watch)?);
        let found = said.iter().find(|text| text.contains(foreign));
        watch.hold(Row::Sessions, found.is_none(), || {
            let text = found.map(String::as_str).unwrap_or_default();
            format!("a session shows what another session was told: {text:.300}")
        });
    }
    Ok(())
}

/// Asks the engine to compact and returns the texts of the summaries that it proposes. Returns
/// nothing if it does not compact.
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

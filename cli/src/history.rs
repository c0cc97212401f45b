//! `contexture search` and `contexture show`: what was said in the sessions of all agents.
//!
//! Both read the history that `contexture import --all` makes. [`search`] prints a line and a
//! snippet for each hit, and [`show`] prints a message with its neighbours. The questions
//! themselves are answered by `contexture::history`, as they are for the tools of `contexture mcp`.

use std::path::Path;

use anstyle::Style;
use contexture::history::{Excerpt, Found, History, Hit, Message, Query, parse_since};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::human::counted;
use crate::{Global, OK, output, start, terminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture search \"parser error\"
  contexture search 'src/main.rs' --project shop --since 7d
  contexture search '\"never again\"' --agent claude-code --json

All words have to occur in a message, in any order. Words in quotes have to follow each other, and `conf*` finds
all words that begin with conf. Case and accents do not matter. `contexture import --all` fills the history.

Exit codes: 0 done, also if nothing was found, 2 wrong usage or no history, 3 the history cannot be read.")]
pub(crate) struct SearchArgs {
    /// The words to search for
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
    /// Only this project: its folder, the last part of it, or any part
    #[arg(long, value_name = "P")]
    project: Option<String>,
    /// Only this agent, such as claude-code
    #[arg(long, value_name = "A")]
    agent: Option<String>,
    /// Only since then: 90m, 12h, 7d, 2w, or a date
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<i64>,
    /// Show at most this many hits
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Skip this many hits, to get the next page
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture show m812
  contexture show m812 --context 10

A tool call is shown together with its result. Neighbours that are long are cut; show them by their own id.

Exit codes: 0 shown, 2 there is no such message, 3 the history cannot be read.")]
pub(crate) struct ShowArgs {
    /// The id of a message, as `contexture search` prints it
    id: String,
    /// How many messages before and after it to show
    #[arg(long, value_name = "N", default_value_t = 3)]
    context: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The number of characters of a neighbour that are shown. The message that was asked for is shown
/// whole.
const NEIGHBOUR: usize = 1_500;

fn since(text: &str) -> Result<i64, String> {
    parse_since(text).ok_or_else(|| {
        "not a time: write 90m, 12h, 7d, 2w, or a date such as 2026-01-31".to_owned()
    })
}

/// Opens the history of a home directory.
pub(crate) fn open(home: &Path) -> Result<History, CliError> {
    let opened = History::open(home).map_err(CliError::History)?;
    opened.ok_or_else(|| {
        CliError::usage(
            format!("there is no history in {}", home.display()),
            "`contexture import --all` reads the logs of the agents on this machine into it",
        )
    })
}

/// Prints what was found.
pub(crate) fn search(args: &SearchArgs, global: &Global) -> Result<u8, CliError> {
    let history = open(&start::load_config(global)?.home)?;
    let mut query = Query::new(args.words.join(" "));
    // A folder that exists is named by its whole path in the logs.
    query.project = args
        .project
        .clone()
        .map(|project| match std::fs::canonicalize(&project) {
            Ok(folder) if project.contains(['/', '.']) => folder.to_string_lossy().into_owned(),
            _ => project,
        });
    query.agent = args.agent.clone();
    query.since_ms = args.since;
    query.limit = args.limit;
    query.offset = args.offset;
    let found = history.search(&query).map_err(CliError::History)?;
    if args.json {
        output::print_json(&found)?;
        return Ok(OK);
    }
    let colors = global.color.on(output::is_terminal());
    let hits = found.hits.iter().map(|hit| shown(hit, colors));
    output::print_styled(&hits.collect::<String>())?;
    // On stderr, so that a program that reads the output gets hits alone.
    terminal::say(&format!("{}\n", summary(&found, args.offset)));
    Ok(OK)
}

/// Says how much was found, and how to get more.
fn summary(found: &Found, offset: usize) -> String {
    let all = match found.is_complete {
        true => counted(found.matches as u64, "message"),
        false => format!(
            "more than {}, of which the newest are ranked",
            counted(found.matches as u64, "message")
        ),
    };
    let mut said = match (found.matches, found.has_all_words) {
        (0, _) => return "no message matches".to_owned(),
        (_, true) => all,
        (_, false) => format!("no message has all words; {all} with some of them"),
    };
    let next = offset + found.hits.len();
    if next < found.matches {
        said.push_str(&format!("; --offset {next} shows more"));
    }
    said
}

/// A hit as two lines: where it is, and the snippet with the words in bold.
fn shown(hit: &Hit, colors: bool) -> String {
    let bold = if colors {
        Style::new().bold()
    } else {
        Style::new()
    };
    let mut snippet = String::new();
    let mut at = 0;
    for place in &hit.matches {
        // A log may have control characters. Each part is made visible on its own, because the
        // codes for bold have to stay.
        let text =
            |range| terminal::visible(hit.snippet.get(range).unwrap_or_default()).into_owned();
        snippet.push_str(&format!(
            "{}{bold}{}{bold:#}",
            text(at..place.start),
            text(place.clone())
        ));
        at = place.end;
    }
    snippet.push_str(&terminal::visible(
        hit.snippet.get(at..).unwrap_or_default(),
    ));
    let copies = match hit.copies {
        0 => String::new(),
        copies => format!("  (and {copies} more like it)"),
    };
    format!(
        "{}{}\n    {snippet}\n",
        terminal::visible(&head(&hit.message)),
        terminal::visible(&copies)
    )
}

/// Where a message is: its id, time, agent, kind and project.
pub(crate) fn head(message: &Message) -> String {
    let time = message
        .time_ms
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let time = time.map(|time| time.strftime("%Y-%m-%d %H:%MZ").to_string());
    let kind = match &message.name {
        Some(name) => format!("{} {name}", message.kind.name()),
        None => message.kind.name().to_owned(),
    };
    let parts = [
        Some(message.id.clone()),
        time,
        Some(message.agent.clone()),
        Some(kind),
        message.project.clone(),
        message
            .title
            .as_ref()
            .map(|title| format!("“{}”", terminal::one_line(title, 60))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join("  ")
}

/// Prints a message with its neighbours.
pub(crate) fn show(args: &ShowArgs, global: &Global) -> Result<u8, CliError> {
    let history = open(&start::load_config(global)?.home)?;
    let excerpt = history
        .read(&args.id, args.context)
        .map_err(CliError::History)?;
    let excerpt = excerpt.ok_or_else(|| {
        CliError::usage(
            format!("the history has no message `{}`", args.id),
            "`contexture search` shows the ids of messages, such as m12",
        )
    })?;
    if args.json {
        output::print_json(&as_json(&excerpt))?;
        return Ok(OK);
    }
    let colors = global.color.on(output::is_terminal());
    let bold = if colors {
        Style::new().bold()
    } else {
        Style::new()
    };
    let asked = excerpt.messages.get(excerpt.at);
    let mut text = String::new();
    if let Some(asked) = asked {
        let log = asked.log.display();
        text.push_str(&terminal::visible(&format!(
            "session {} in {log}\n\n",
            asked.session
        )));
    }
    for message in &excerpt.messages {
        let is_asked = asked.is_some_and(|asked| asked.id == message.id);
        let mark = if is_asked { "> " } else { "  " };
        text.push_str(&format!(
            "{bold}{mark}{}{bold:#}\n",
            terminal::visible(&head(message))
        ));
        let said = match is_asked {
            true => message.text.clone(),
            false => cut(&message.text, NEIGHBOUR),
        };
        for line in said.trim_end().lines() {
            text.push_str(&format!("    {}\n", terminal::visible(line)));
        }
        text.push('\n');
    }
    output::print_styled(&text)?;
    Ok(OK)
}

/// The beginning of a text, with the number of characters that are left out.
fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((at, _)) => {
            let rest = text[at..].chars().count();
            format!(
                "{}…\n({} more)",
                &text[..at],
                counted(rest as u64, "character")
            )
        }
    }
}

fn as_json(excerpt: &Excerpt) -> Value {
    let messages = excerpt.messages.iter().map(|message| {
        let mut value = json!(message);
        // A message leaves both out of its JSON, because a list of hits would be as long as the
        // texts in it.
        value["text"] = json!(message.text);
        value["log"] = json!(message.log);
        value
    });
    json!({
        "messages": messages.collect::<Vec<_>>(),
        "at": excerpt.at,
        "has_earlier": excerpt.has_earlier,
        "has_later": excerpt.has_later,
    })
}

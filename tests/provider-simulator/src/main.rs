//! The provider simulator as a program, to be asked by hand or to run in a separate process, see [`USAGE`].
//!
//! It simulates a coding session with this many rounds and this much text from a tool. With `--also` it calls another tool
//! as well in every so many rounds, with these arguments as JSON. With `--talk` it calls no tools and gives answers of this
//! length. It prints its address to stdout, and requests and refusals to stderr. With a
//! folder to record in, it writes each body there as `0.json`, `1.json` and so on, and what became of all requests to
//! `report.json`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use contexture_provider_simulator::{Answer, Coder, Options, Request, Simulator};
use serde_json::{Value, json};

const USAGE: &str = "contexture-provider-simulator [PORT] [WINDOW] [--rounds N] [--result BYTES] \
                     [--also EVERY NAME ARGUMENTS] [--talk BYTES] [--record FOLDER]";

fn main() {
    let mut plain = Vec::new();
    let mut coder = Coder::default();
    let (mut talk, mut folder) = (0, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok());
        match argument.as_str() {
            "--rounds" => coder.rounds = number().unwrap_or(coder.rounds),
            "--result" => coder.result = number().unwrap_or(coder.result),
            "--also" => {
                let every = number().unwrap_or(1);
                let name = arguments.next().unwrap_or_default();
                let object = arguments
                    .next()
                    .and_then(|text| serde_json::from_str(&text).ok());
                coder
                    .also
                    .push((every, name, object.unwrap_or_else(|| json!({}))));
            }
            "--talk" => talk = number().unwrap_or(0),
            "--record" => folder = arguments.next().map(PathBuf::from),
            "-h" | "--help" => return println!("{USAGE}"),
            _ => match argument.parse::<u64>() {
                Ok(number) => plain.push(number),
                Err(_) => {
                    eprintln!("cannot read `{argument}`: {USAGE}");
                    std::process::exit(2);
                }
            },
        }
    }
    let mut numbers = plain.into_iter();
    let port = numbers.next().and_then(|port| port.try_into().ok());
    let port = port.unwrap_or(0);
    let window = numbers.next();
    let provider = Simulator::with(Options {
        port,
        window,
        ..Options::default()
    });
    let words = coder.last_words();
    provider.answer_with(move |request| match talk {
        0 => coder.answer(request),
        _ => talking(request, talk),
    });
    println!("{}", provider.base_url());
    let (mut tokens, mut refused, mut reported) = (Vec::new(), 0, None);
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let requests = provider.requests();
        for request in requests.iter().skip(tokens.len()) {
            let query = request.query.as_deref().unwrap_or_default();
            eprintln!(
                "{} {} {query} {} bytes, {}",
                request.method,
                request.path,
                request.body.len(),
                request.model()
            );
            if let Some(folder) = &folder {
                write(
                    &folder.join(format!("{}.json", request.number)),
                    &request.body,
                );
            }
        }
        let new = requests.iter().skip(tokens.len());
        tokens.extend(new.map(Request::prompt_tokens).collect::<Vec<_>>());
        let all = provider.violations();
        for violation in all.iter().skip(refused) {
            eprintln!("refused: {}: {}", violation.rule.name, violation.message);
        }
        refused = all.len();
        if let Some(folder) = &folder {
            let report = report(&provider, &requests, &tokens, &words);
            if reported.as_ref() != Some(&report) {
                write(&folder.join("report.json"), report.to_string().as_bytes());
                reported = Some(report);
            }
        }
    }
}

/// A long, unique answer to `question 7.`, or to any other request.
fn talking(request: &Request, bytes: u64) -> Answer {
    let question = request.last_text();
    let number = question
        .rsplit("question ")
        .next()
        .and_then(|rest| rest.split('.').next())
        .filter(|number| number.parse::<u64>().is_ok())
        .unwrap_or("nothing");
    let line =
        |at| format!("Line {at} of the answer to {number}: grüße, and nothing new about it.\n");
    Answer::text((0..bytes / 62).map(line).collect::<String>())
}

/// What became of all requests so far.
fn report(provider: &Simulator, requests: &[Request], tokens: &[u64], words: &str) -> Value {
    let refused = |all: Vec<contexture_provider_simulator::Violation>| -> Vec<Value> {
        let one = |one: &contexture_provider_simulator::Violation| json!({"request": one.request, "rule": one.rule.name, "message": one.message});
        all.iter().map(one).collect()
    };
    let requests: Vec<Value> = requests
        .iter()
        .zip(tokens)
        .map(|(request, tokens)| {
            json!({
                "number": request.number, "method": request.method, "path": request.path,
                "api": format!("{:?}", request.api), "model": request.model(),
                "tools": request.tool_names().len(), "messages": request.messages().len(),
                "tokens": tokens, "status": request.status, "finished": request.finished,
                "encoding": request.header("content-encoding"),
            })
        })
        .collect();
    let bill = provider.bill();
    json!({
        "requests": requests,
        "violations": refused(provider.violations()),
        "overflows": refused(provider.overflows()),
        "said": provider.said().iter().map(|(number, answer)| json!([number, answer.said()])).collect::<Vec<_>>(),
        "last_words": words,
        "dollars": bill.dollars,
        "answers": bill.answers,
    })
}

/// Writes a file atomically, so that no reader sees a part of it.
fn write(path: &Path, bytes: &[u8]) {
    let scratch = path.with_extension("new");
    let written = std::fs::write(&scratch, bytes).and_then(|()| std::fs::rename(&scratch, path));
    if let Err(error) = written {
        eprintln!("{}: {error}", path.display());
    }
}

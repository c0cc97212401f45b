//! The kinds of conversations, and what is asked of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::ranking::{Message, Speaker, conversation, lines};
use crate::zip;

/// Conversations that are searched together, and the questions on them.
#[derive(Default)]
pub(crate) struct Set {
    pub(crate) sessions: Vec<Vec<Message>>,
    /// The sitting of each message; messages are numbered through all sessions.
    pub(crate) sittings: Vec<usize>,
    pub(crate) questions: Vec<Asked>,
}

pub(crate) struct Asked {
    pub(crate) text: String,
    /// Messages of which each answers it, or a part of it.
    pub(crate) evidence: Vec<u64>,
    /// Its category, or 0 if the questions of this kind have none.
    pub(crate) category: usize,
}

/// The category of LoCoMo's questions that have no answer: their evidence only looks like one.
pub(crate) const NO_ANSWER: usize = 5;

/// Every kind by its name; those of the shared data only where that is.
pub(crate) fn kinds() -> Vec<(&'static str, Vec<Set>)> {
    let mut kinds = vec![
        ("people", people()),
        ("long", vec![long_answers()]),
        ("mixed", vec![mixed()]),
        ("session", vec![one_session()]),
        ("many", vec![many_sessions()]),
    ];
    if cfg!(shared_data) {
        kinds.extend([
            ("coding", vec![coding()]),
            ("customer", vec![customers()]),
            ("chinese", vec![chinese()]),
            ("notes", notes()),
        ]);
    }
    kinds
}

/// Numbers that look random and are the same each time.
struct Seed(u64);

impl Seed {
    fn below(&mut self, end: usize) -> usize {
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn any<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn word<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn shared(path: &str) -> PathBuf {
    own("../../../shared/data").join(path)
}

const CHATS: [&str; 7] = [
    "colleagues", "friends1", "friends2", "grandmother", "neighbours", "work1", "work2",
];

/// Pauses longer than this part two sittings, in ms.
const PAUSE_MS: i64 = 6 * 3_600_000;

/// An invented chat, and its questions.
fn chat(name: &str, speaker: Speaker) -> (Vec<Message>, Vec<Asked>) {
    let folder = own("tests/questions");
    let asked = lines(&folder.join(format!("{name}.questions.jsonl")));
    let questions = asked.iter().map(|line| Asked {
        text: line["question"].as_str().unwrap().to_owned(),
        evidence: serde_json::from_value(line["evidence"].clone()).unwrap(),
        category: 0,
    });
    let messages = conversation(&folder.join(format!("{name}.jsonl")), speaker);
    (messages, questions.collect())
}

/// The sitting of each message, by the pauses.
fn sittings(messages: &[Message]) -> Vec<usize> {
    let (mut sitting, mut last) = (0, None);
    let sitting_of = |message: &Message| {
        let paused = |last: i64| message.at_ms.is_some_and(|at| at - last > PAUSE_MS);
        sitting += usize::from(last.is_some_and(paused));
        last = message.at_ms.or(last);
        sitting
    };
    messages.iter().map(sitting_of).collect()
}

impl Set {
    fn one_session(messages: Vec<Message>, questions: Vec<Asked>) -> Self {
        Self {
            sittings: vec![0; messages.len()],
            sessions: vec![messages],
            questions,
        }
    }

    /// Adds questions on messages that are yet to be added, each of them every `nth`.
    fn ask(&mut self, questions: Vec<Asked>, nth: u64) {
        let before = self.sittings.len() as u64;
        for mut asked in questions {
            asked
                .evidence
                .iter_mut()
                .for_each(|id| *id = before + *id * nth);
            self.questions.push(asked);
        }
    }
}

/// Two people who talk for months.
fn people() -> Vec<Set> {
    let by = [Speaker::Name, Speaker::InFront, Speaker::Unsaid];
    let set = |(name, speaker): (&&str, _)| {
        let (messages, questions) = chat(name, speaker);
        Set {
            sittings: sittings(&messages),
            sessions: vec![messages],
            questions,
        }
    };
    CHATS.iter().zip(by.into_iter().cycle()).map(set).collect()
}

/// A chat of so many messages: those of all chats, again and again; or each of them once.
pub(crate) fn one_chat(messages: Option<usize>) -> Set {
    let chats = CHATS.map(|name| chat(name, Speaker::Name));
    let all: Vec<Message> = (chats.iter()).flat_map(|(said, _)| said.clone()).collect();
    let questions = chats.into_iter().flat_map(|(_, questions)| questions);
    let messages = messages.unwrap_or(all.len());
    let messages = all.iter().cycle().take(messages).cloned().collect();
    Set::one_session(messages, questions.collect())
}

/// Each sitting of a chat as a session of its own, all searched: six chats, because a search may have a hundred sessions.
fn many_sessions() -> Set {
    let mut set = Set::default();
    for name in &CHATS[..6] {
        let (messages, questions) = chat(name, Speaker::Name);
        set.ask(questions, 1);
        let first = set.sessions.len();
        for (sitting, message) in sittings(&messages).into_iter().zip(messages) {
            set.sittings.push(first + sitting);
            set.sessions.resize_with(first + sitting + 1, Vec::new);
            set.sessions[first + sitting].push(message);
        }
    }
    set
}

/// The sentences of the chats that answer nothing.
fn sentences() -> Vec<String> {
    let mut sentences = Vec::new();
    for name in CHATS {
        let (messages, questions) = chat(name, Speaker::Unsaid);
        let evidence: Vec<u64> = questions
            .into_iter()
            .flat_map(|asked| asked.evidence)
            .collect();
        for (_, message) in (0..).zip(messages).filter(|(id, _)| !evidence.contains(id)) {
            let cut = message.text.split_inclusive(['.', '!', '?']);
            sentences.extend(cut.map(|sentence| sentence.trim().to_owned()));
        }
    }
    sentences.retain(|sentence| sentence.len() > 15);
    sentences
}

/// Some 500,000 tokens in one session: all chats, each message answered with a page.
fn one_session() -> Set {
    let sentences = sentences();
    let mut seed = Seed(11);
    let mut set = Set::default();
    let mut session = Vec::new();
    let mut first = 0;
    for name in CHATS {
        let (messages, questions) = chat(name, Speaker::Unsaid);
        set.ask(questions, 2);
        for (sitting, message) in sittings(&messages).into_iter().zip(messages) {
            let page: Vec<&str> = (0..14).map(|_| seed.any(&sentences).as_str()).collect();
            session.push(Message {
                role: "user".into(),
                ..message
            });
            session.push(Message::new("assistant", page.join(" ")));
            set.sittings.extend([first + sitting; 2]);
        }
        first = set.sittings.last().unwrap() + 1;
    }
    set.sessions.push(session);
    set
}

/// A fact as it is told, and as it is asked for.
struct Fact {
    /// What the line begins with: who tells it.
    role: &'static str,
    told: String,
    question: String,
    /// What it is about.
    topic: String,
}

/// The facts of a file, each line with each of its values and another one of `whom`, in a random order.
fn facts(text: &'static str, whom: &[&str], seed: &mut Seed) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (row, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split('|').collect();
        let [role, told, question, topic, values] = fields[..] else {
            panic!("a line has five fields: {line}");
        };
        for (at, value) in values.split(", ").enumerate() {
            let x = whom[(row * 5 + at) % whom.len()];
            let fill = |text: &str| {
                let text = text.replace("{x}", x).replace("{v}", value);
                let first = text.chars().next().unwrap();
                format!("{}{}", first.to_uppercase(), &text[first.len_utf8()..])
            };
            facts.push(Fact {
                role,
                told: fill(told),
                question: fill(question),
                topic: topic.replace("{x}", x),
            });
        }
    }
    for at in (1..facts.len()).rev() {
        facts.swap(at, seed.below(at + 1));
    }
    facts
}

const ADVICE: [&str; 12] = [
    "When it comes to {}, small habits matter more than big plans.",
    "Many people ask about {} at some point, so you are in good company.",
    "A good first step is to write down what you expect of {}.",
    "Experts on {} often recommend to start slowly and to review after a month.",
    "Do not forget to talk with your family about {} before you decide.",
    "There are books on {} in every library, and some of them are excellent.",
    "The cost of {} varies a lot from town to town.",
    "If your sister, brother, cousin or boss has opinions on {}, listen and decide for yourself.",
    "I would be careful with advice on {} from the internet.",
    "What matters in {} is how you feel the day after.",
    "Some say that {} is a matter of age, others that it is a matter of will.",
    "Here is a short list on {}: plan, try, rest, repeat.",
];

/// A user tells of people; the assistant answers each time with a page about the same matter.
fn long_answers() -> Set {
    let whom = [
        "my sister", "my brother", "my boss", "my cousin", "my neighbour", "my uncle",
        "my flatmate",
    ];
    let mut seed = Seed(3);
    let sentences = sentences();
    let (mut messages, mut questions) = (Vec::new(), Vec::new());
    for fact in facts(include_str!("personal.txt"), &whom, &mut seed) {
        for _ in 0..2 {
            messages.push(Message::new("user", seed.any(&sentences).as_str()));
            let page: Vec<&str> = (0..12).map(|_| seed.any(&sentences).as_str()).collect();
            messages.push(Message::new("assistant", page.join(" ")));
        }
        questions.push(Asked {
            text: fact.question,
            evidence: vec![messages.len() as u64],
            category: 0,
        });
        let told = format!("{} {}", seed.any(&sentences), fact.told);
        messages.push(Message::new(fact.role, told));
        let page = (0..14).map(|_| {
            let advice = seed.any(&ADVICE).replace("{}", &fact.topic);
            format!("{advice} {}", seed.any(&sentences))
        });
        let page: Vec<String> = page.collect();
        messages.push(Message::new("assistant", page.join(" ")));
    }
    Set::one_session(messages, questions)
}

fn names() -> Vec<&'static str> {
    include_str!("names.txt").split_whitespace().collect()
}

const MENTIONS: [&str; 10] = [
    "{} 的会议纪要我晚点发给大家。",
    "Can somebody look at {} before lunch?",
    "Wir sprechen morgen noch einmal über {}.",
    "¿Alguien ha visto los papeles de {}?",
    "On reparlera de {} la semaine prochaine.",
    "{} についてはまた後で話しましょう。",
    "今天 {} 没有什么新消息。",
    "Nothing new about {} today.",
    "{} 这件事先放一放。",
    "Danke für die Notizen zu {}!",
];

/// People of several languages at work, and chats around them.
fn mixed() -> Set {
    let (names, around) = (names(), sentences());
    let roles = ["user", "assistant"];
    let mut seed = Seed(5);
    let (mut messages, mut questions) = (Vec::new(), Vec::new());
    for fact in facts(include_str!("mixed.txt"), &names, &mut seed) {
        for _ in 0..4 {
            let mention = seed.any(&MENTIONS).replace("{}", seed.word(&names));
            messages.push(Message::new(seed.word(&roles), mention));
            let text = seed.any(&around).as_str();
            messages.push(Message::new(seed.word(&roles), text));
        }
        questions.push(Asked {
            text: fact.question,
            evidence: vec![messages.len() as u64],
            category: 0,
        });
        messages.push(Message::new(seed.word(&roles), fact.told));
    }
    Set::one_session(messages, questions)
}

/// The text of a JSON content: of its blocks, and of the results in them.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().map(|block| match &block["text"] {
                Value::String(text) => text.clone(),
                _ => text_of(&block["content"]),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Two halves of the LoCoMo conversations in a folder, in the order of their file names: those whose misses are looked
/// at, and those that are held out. Each conversation is one session, and the author is the name of a message. The caption of an image
/// follows the text that it was sent with. Questions without evidence are left out.
pub(crate) fn locomo(folder: &Path) -> Vec<(&'static str, Vec<Set>)> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "json"));
    files.sort();
    let mut sets: Vec<Set> = files.iter().map(|path| locomo_chat(&json(path))).collect();
    let held_out = sets.split_off(sets.len() / 2);
    vec![("locomo 1", sets), ("locomo 2", held_out)]
}

fn locomo_chat(chat: &Value) -> Set {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut set = Set::default();
    let (mut messages, mut ids) = (Vec::new(), BTreeMap::new());
    for sitting in 1.. {
        let Some(turns) = chat[format!("session_{sitting}")].as_array() else {
            break;
        };
        let time = text(&chat[format!("session_{sitting}_date_time")]);
        let time = DateTime::strptime("%I:%M %p on %d %B, %Y", &time).unwrap();
        let began = time.to_zoned(TimeZone::UTC).unwrap().timestamp();
        for (at, turn) in (0..).zip(turns) {
            ids.insert(text(&turn["dia_id"]), messages.len() as u64);
            let said = text(&turn["text"]);
            messages.push(Message {
                role: match turn["speaker"] == chat["speaker_a"] {
                    true => "user".into(),
                    false => "assistant".into(),
                },
                name: text(&turn["speaker"]),
                text: match turn["blip_caption"].as_str() {
                    Some(caption) => format!("{said} [{caption}]"),
                    None => said,
                },
                at_ms: Some(began.as_millisecond() + at * 30_000),
            });
            set.sittings.push(sitting);
        }
    }
    for asked in chat["qa"].as_array().unwrap() {
        // Some lists of evidence are a single text with several ids.
        let evidence = asked["evidence"].as_array().unwrap().iter();
        let evidence: Vec<u64> = evidence
            .flat_map(|listed| {
                let listed = text(listed);
                let ids = listed.split([';', ' ']).map(|id| ids.get(id).copied());
                ids.flatten().collect::<Vec<_>>()
            })
            .collect();
        let category = asked["category"].as_u64().unwrap() as usize;
        if !evidence.is_empty() {
            set.questions.push(Asked {
                text: text(&asked["question"]),
                evidence,
                category,
            });
        }
    }
    set.sessions.push(messages);
    set
}

/// The messages of real coding agents.
fn of_agents() -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in lines(&shared("claude-code/main.jsonl")) {
        let content = &line["message"]["content"];
        let is_result = content[0]["type"] == "tool_result";
        let role = if is_result {
            "tool"
        } else {
            line["type"].as_str().unwrap()
        };
        messages.push(Message::new(role, text_of(content)));
    }
    let files = std::fs::read_dir(shared("swe-agent")).unwrap();
    let mut runs: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    runs.retain(|path| path.extension().is_some_and(|end| end == "traj"));
    runs.sort();
    for run in runs {
        for message in json(&run)["history"].as_array().unwrap() {
            let role = message["role"].as_str().unwrap();
            messages.push(Message::new(role, text_of(&message["content"])));
        }
    }
    messages.retain(|message| !message.text.is_empty());
    messages
}

const STEPS: [(&str, &str); 6] = [
    (
        "assistant",
        "Let me look at {} again before I change anything.",
    ),
    (
        "tool",
        "crates/{}/src/lib.rs: 214 lines\ncrates/{}/Cargo.toml: 31 lines",
    ),
    (
        "tool",
        "Compiling {} v0.4.0\nFinished test profile in 8.1s\ntest result: ok. 38 passed; 0 failed",
    ),
    ("user", "Go on with {}, please."),
    (
        "assistant",
        "{} builds and its tests pass, so the next thing is the documentation of {}.",
    ),
    ("tool", "M crates/{}/src/lib.rs\n?? crates/{}/notes.md"),
];

/// Facts of two dozen projects among the messages of real agents.
fn coding() -> Set {
    let (names, real) = (names(), of_agents());
    let mut seed = Seed(7);
    let (mut messages, mut questions) = (Vec::new(), Vec::new());
    for fact in facts(include_str!("coding.txt"), &names, &mut seed) {
        for _ in 0..3 {
            let (role, text) = seed.any(&STEPS);
            messages.push(Message::new(role, text.replace("{}", seed.word(&names))));
            messages.push(seed.any(&real).clone());
        }
        questions.push(Asked {
            text: fact.question,
            evidence: vec![messages.len() as u64],
            category: 0,
        });
        // A tool tells it between what else it prints.
        let told = match fact.role {
            "tool" => {
                let before = seed.any(&STEPS).1.replace("{}", &fact.topic);
                let after = "Done in 0.8s. ".repeat(seed.below(30));
                format!("{before}\n{}\n{after}", fact.told)
            }
            _ => fact.told,
        };
        messages.push(Message::new(fact.role, told));
    }
    Set::one_session(messages, questions)
}

/// Questions, each with the messages that contain both of two texts.
fn ask_for(asked: BTreeMap<String, [String; 2]>, messages: &[Message]) -> Vec<Asked> {
    let has =
        |message: &Message, parts: &[String]| parts.iter().all(|part| message.text.contains(part));
    (asked.into_iter())
        .map(|(text, parts)| Asked {
            text,
            evidence: (0..)
                .zip(messages)
                .filter(|(_, message)| has(message, &parts))
                .map(|(id, _)| id)
                .collect(),
            category: 0,
        })
        .collect()
}

/// Real conversations with an airline's desk; what is asked stands in the records that it looked up.
fn customers() -> Set {
    let all = json(&shared(
        "tau2-bench/toolorchestra_airline_gpt-4.1-mini.json",
    ));
    let mut set = Set::default();
    let mut messages = Vec::new();
    for (sitting, simulation) in all["simulations"].as_array().unwrap().iter().enumerate() {
        for message in simulation["messages"].as_array().unwrap() {
            let role = message["role"].as_str().unwrap();
            messages.push(Message::new(role, text_of(&message["content"])));
            set.sittings.push(sitting);
        }
    }
    let mut asked = BTreeMap::new();
    for message in messages.iter().filter(|message| message.role == "tool") {
        let Ok(record) = serde_json::from_str::<Value>(&message.text) else {
            continue;
        };
        let field = |name: &str| record[name].as_str().map(str::to_owned);
        if let (Some(user), Some(born), Some(mail)) =
            (field("user_id"), field("dob"), field("email"))
        {
            let name = |part: &str| record["name"][part].as_str().unwrap();
            let name = format!("{} {}", name("first_name"), name("last_name"));
            let city = record["address"]["city"].as_str().unwrap().to_owned();
            asked.insert(format!("When was {name} born?"), [user.clone(), born]);
            asked.insert(
                format!("Which city does {name} live in?"),
                [user.clone(), city],
            );
            asked.insert(format!("How can we reach {name} by mail?"), [user, mail]);
        } else if let (Some(id), Some(cabin)) = (field("reservation_id"), field("cabin")) {
            if let Some(flight) = record["flights"][0]["flight_number"].as_str() {
                let parts = [id.clone(), flight.to_owned()];
                asked.insert(format!("What flight is booked under {id}?"), parts);
            }
            asked.insert(format!("In which class does {id} travel?"), [id, cabin]);
        }
    }
    set.questions = ask_for(asked, &messages);
    set.sessions.push(messages);
    set
}

/// Real Chinese dialogues with a guide; asked are the addresses and telephone numbers that it gave.
fn chinese() -> Set {
    let all: Value =
        serde_json::from_str(&zip::first_file(&shared("crosswoz/val.json.zip"))).unwrap();
    let mut set = Set::default();
    let mut messages = Vec::new();
    let mut asked = BTreeMap::new();
    for (sitting, dialogue) in all.as_object().unwrap().values().enumerate() {
        let mut place: Option<&str> = None;
        for message in dialogue["messages"].as_array().unwrap() {
            let text = message["content"].as_str().unwrap();
            let is_guide = message["role"] != "usr";
            if is_guide {
                let verbs = ["游玩", "用餐", "住宿", "，", "。"];
                place = between(text, &["推荐您去", "推荐你去"], &verbs).or(place);
                let told = |leads: &[&str]| between(text, leads, &["。", "，", ","]);
                if let (Some(place), Some(number)) = (place, told(&["电话是"])) {
                    let parts = [number.to_owned(), String::new()];
                    asked.insert(format!("打哪个号码可以联系{place}？"), parts);
                }
                if let (Some(place), Some(address)) = (place, told(&["地址是在", "地址是"]))
                {
                    let parts = [address.to_owned(), String::new()];
                    asked.insert(format!("{place}在什么路上，怎么找？"), parts);
                }
            }
            messages.push(Message::new(
                if is_guide { "assistant" } else { "user" },
                text,
            ));
            set.sittings.push(sitting);
        }
    }
    set.questions = ask_for(asked, &messages);
    set.sessions.push(messages);
    set
}

/// The text between one of `leads` and the first of `ends`.
fn between<'a>(text: &'a str, leads: &[&str], ends: &[&str]) -> Option<&'a str> {
    let from = leads
        .iter()
        .find_map(|lead| Some(text.find(lead)? + lead.len()))?;
    let rest = &text[from..];
    let end = ends.iter().filter_map(|end| rest.find(end)).min()?;
    Some(&rest[..end]).filter(|found| !found.is_empty())
}

/// What a user said over weeks, and asks for as "I": the questions that come with it, mostly in its own words, and
/// those of `notes.txt` in others (`scenario|question|of each message that answers, some of its words`).
fn notes() -> Vec<Set> {
    let file = |name: &str| lines(&shared("bfcl-memory").join(name));
    let (questions, answers) = (file("questions.jsonl"), file("answers.jsonl"));
    let said = |conversation: &Value| -> Vec<String> {
        let turns = conversation["question"].as_array().unwrap().iter();
        turns
            .flat_map(|turn| turn.as_array().unwrap())
            .map(|message| text_of(&message["content"]))
            .collect()
    };
    let mut set = Set::default();
    for scenario in ["customer", "notetaker"] {
        let first = set.sittings.len() as u64;
        let mut messages = Vec::new();
        for conversation in file(&format!("memory_{scenario}.json")) {
            let sitting = set.sittings.last().map_or(0, |last| last + 1);
            for text in said(&conversation) {
                messages.push(Message::new("user", text));
                set.sittings.push(sitting);
            }
        }
        let mut ask = |text: String, answers: &dyn Fn(&str) -> bool| {
            let messages = (first..).zip(&messages);
            let evidence = messages.filter(|(_, message)| answers(&message.text));
            let evidence: Vec<u64> = evidence.map(|(id, _)| id).collect();
            if !evidence.is_empty() {
                set.questions.push(Asked {
                    text,
                    evidence,
                    category: 0,
                });
            }
        };
        for (question, answer) in questions.iter().zip(&answers) {
            // Quoted with omissions, and with the heading of the note that it stands in.
            let source = answer["source"].as_str().unwrap().replace(": ", "...");
            let parts: Vec<&str> = (source.split("..."))
                .map(|part| part.trim_end_matches('.').trim())
                .collect();
            if question["scenario"] == scenario {
                let has = |text: &str| parts.iter().all(|part| text.contains(part));
                ask(said(question).remove(0), &has);
            }
        }
        for line in include_str!("notes.txt").lines() {
            let fields: Vec<&str> = line.split('|').collect();
            if fields[0] == scenario {
                let has = |text: &str| fields[2].split(';').any(|part| text.contains(part));
                ask(fields[1].to_owned(), &has);
            }
        }
        set.sessions.push(messages);
    }
    vec![set]
}

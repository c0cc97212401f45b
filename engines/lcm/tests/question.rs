//! How often a message that answers a question is among the first, beside SQLite's own ranking.
//!
//! The conversations in `tests/questions` are invented: `NAME.jsonl` has one message a line (`role`,
//! `name` where two people talk, `content`, `ts` in seconds), `NAME.questions.jsonl` one question a line
//! (`question`, `evidence`: which messages answer it, `kind`). `friends` and `work` are those that the
//! ranking was made on; the other three, each of some 460 messages, were written afterwards by others and
//! changed nothing in it. Another folder of the same make is measured
//! with `QUESTION_CHATS=FOLDER`, some of its conversations with `QUESTION_ONLY=NAME,NAME`;
//! `SHOW_MISSES=1` lists the questions whose answer is not among the first ten.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ingest;
mod ranking;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ranking::{Message, Ours, Speaker, Tally, conversation, floor, lines};
use serde_json::Value;

fn chats() -> (PathBuf, Vec<String>) {
    let folder = std::env::var_os("QUESTION_CHATS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/questions"),
        PathBuf::from,
    );
    let only = std::env::var("QUESTION_ONLY").ok();
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".questions.jsonl").map(str::to_owned)
        })
        .filter(|name| {
            only.as_ref()
                .is_none_or(|only| only.split(',').any(|wanted| wanted == name))
        })
        .collect();
    names.sort();
    (folder, names)
}

fn measure(speaker: Speaker) -> Tally {
    let (folder, names) = chats();
    let mut all = Tally::default();
    let mut kinds: BTreeMap<String, Tally> = BTreeMap::new();
    println!("{:<24}asked   ours @1 @3 @5 @10 @20            FTS5", "");
    for name in names {
        let messages = conversation(&folder.join(format!("{name}.jsonl")), speaker);
        let (floor, ours) = (floor(&messages), Ours::new(&messages));
        let mut tally = Tally::default();
        for line in lines(&folder.join(format!("{name}.questions.jsonl"))) {
            let question = line["question"].as_str().unwrap();
            let evidence: Vec<u64> = serde_json::from_value(line["evidence"].clone()).unwrap();
            let (found, floor) = (ours.first(question), floor(question));
            let rankings = [found.as_slice(), floor.as_slice()];
            let kind = line["kind"].as_str().unwrap();
            tally.add(rankings, &evidence);
            all.add(rankings, &evidence);
            kinds
                .entry(kind.to_owned())
                .or_default()
                .add(rankings, &evidence);
            let missed = !evidence
                .iter()
                .any(|id| found[..found.len().min(10)].contains(id));
            if missed && std::env::var_os("SHOW_MISSES").is_some() {
                println!("MISS {kind}: {question}");
                for id in evidence {
                    let place = found.iter().position(|found| *found == id);
                    println!("    {id} {place:?} {}", messages[id as usize].text);
                }
                for id in found.iter().take(3) {
                    println!("      not {id} {}", messages[*id as usize].text);
                }
            }
        }
        tally.print(&name);
    }
    for (kind, tally) in kinds {
        tally.print(&kind);
    }
    all.print("all");
    all
}

/// What has to lie between us and the floor, among the first ten.
const MARGIN: f64 = 0.25;

#[test]
fn answers_are_found_where_each_message_says_who_speaks() {
    let [ours, floor] = measure(Speaker::InFront).first_ten();
    assert!(ours >= floor + MARGIN, "{ours} {floor}");
}

#[test]
fn answers_are_found_where_each_message_carries_a_name() {
    let [ours, floor] = measure(Speaker::Name).first_ten();
    assert!(ours >= floor + MARGIN, "{ours} {floor}");
}

#[test]
fn answers_are_found_where_nothing_says_who_speaks() {
    let [ours, floor] = measure(Speaker::Unsaid).first_ten();
    assert!(ours >= floor + MARGIN, "{ours} {floor}");
}

/// The messages of a chat as a user's, each with an assistant's answer of some 4,000 characters: sentences of this chat
/// and of others, none of which answers a question.
fn answered_at_length(name: &str, asked: &[Value]) -> Vec<Message> {
    let (folder, names) = chats();
    let evidence: Vec<u64> = (asked.iter())
        .flat_map(|line| serde_json::from_value::<Vec<u64>>(line["evidence"].clone()).unwrap())
        .collect();
    let chat = |name: &String| conversation(&folder.join(format!("{name}.jsonl")), Speaker::Unsaid);
    let sentences = |name: &String| -> Vec<String> {
        let messages = (0..)
            .zip(chat(name))
            .filter(|(at, _)| !evidence.contains(at));
        let texts = messages.map(|(_, message)| message.text);
        texts
            .flat_map(|text| {
                text.split_inclusive(['.', '!', '?'])
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let own = sentences(&name.to_owned());
    let others: Vec<String> = names
        .iter()
        .filter(|other| *other != name)
        .flat_map(sentences)
        .collect();
    let mut seed = 7usize;
    let mut any = |of: &[String]| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        of[(seed >> 33) % of.len()].clone()
    };
    let mut messages = Vec::new();
    for said in chat(&name.to_owned()).into_iter().take(200) {
        let mut page = String::new();
        while page.len() < 4_000 {
            page.push_str(&any(&others));
            page.push(' ');
            if page.len().is_multiple_of(5) {
                page.push_str(&any(&own));
                page.push(' ');
            }
        }
        messages.push(Message {
            role: "user".into(),
            ..said
        });
        messages.push(Message {
            role: "assistant".into(),
            text: page,
            ..Message::default()
        });
    }
    messages
}

/// What has to lie between us and the floor where an assistant answers at length, among the first ten.
const LONG_MARGIN: f64 = 0.03;

#[test]
fn answers_are_found_between_long_ones() {
    let (folder, _) = chats();
    let mut all = Tally::default();
    for name in ["friends1", "colleagues", "neighbours"] {
        let asked = lines(&folder.join(format!("{name}.questions.jsonl")));
        let messages = answered_at_length(name, &asked);
        let (floor, ours) = (floor(&messages), Ours::new(&messages));
        let mut tally = Tally::default();
        for line in &asked {
            let question = line["question"].as_str().unwrap();
            let evidence: Vec<u64> = serde_json::from_value(line["evidence"].clone()).unwrap();
            let evidence: Vec<u64> = evidence
                .iter()
                .filter(|at| **at < 200)
                .map(|at| at * 2)
                .collect();
            if !evidence.is_empty() {
                let (found, floor) = (ours.first(question), floor(question));
                tally.add([found.as_slice(), floor.as_slice()], &evidence);
                all.add([found.as_slice(), floor.as_slice()], &evidence);
            }
        }
        tally.print(name);
    }
    all.print("all");
    let [ours, floor] = all.first_ten();
    assert!(ours >= floor + LONG_MARGIN, "{ours} {floor}");
}

/// Messages of which nothing is known but the role and the text.
fn said_by_role(said: &[(&str, &str)]) -> Vec<Message> {
    said.iter()
        .map(|(role, text)| Message {
            role: (*role).to_owned(),
            text: (*text).to_owned(),
            ..Message::default()
        })
        .collect()
}

/// The messages that a question finds in a chat of named people.
fn found_in(said: &[(&str, &str)], question: &str) -> Vec<u64> {
    let messages: Vec<Message> = said
        .iter()
        .map(|(name, text)| Message {
            role: "user".to_owned(),
            name: (*name).to_owned(),
            text: (*text).to_owned(),
            ..Message::default()
        })
        .collect();
    Ours::new(&messages).first(question)
}

#[test]
fn a_name_beside_the_text_tells_who_said_it() {
    let said = [
        (
            "ben_okoro",
            "Ana bought a blue bike, and then a second bike",
        ),
        ("Ana-Lima", "I bought one too, a bike with three wheels"),
        ("ana_ruiz", "And I bought a bike made of bamboo"),
        ("cem", "Ana: I bought a bike"),
    ];
    for (question, expected) in [
        ("Which bike did Ana Lima buy?", 1),
        ("Which bike did Ana Ruiz buy?", 2),
        ("Which bike did Ben buy?", 0),
        ("Which bike did Cem buy?", 3),
    ] {
        let found = found_in(&said, question);
        assert_eq!(found.first(), Some(&expected), "{question}");
    }
    // Either of the two whom it may mean, and nobody who only names them.
    let mut found = found_in(&said, "Which bike did Ana buy?");
    found.truncate(2);
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
}

#[test]
fn a_name_in_a_script_without_spaces_tells_who_said_it() {
    let said = [
        ("小红", "小明昨天买了自行车，红色的自行车"),
        ("小明", "我买了一辆自行车"),
        ("小红", "好的"),
    ];
    let found = found_in(&said, "小明买了什么自行车？");
    assert_eq!(found.first(), Some(&1));
}

#[test]
fn an_answer_is_found_by_what_its_question_refers_to() {
    let mut said = vec![
        ("ana", "Henning wants to give piano afternoons for children"),
        ("ben", "Lovely! Where?"),
        ("ana", "The church has offered its hall"),
    ];
    for text in [
        "Henning sold the piano",
        "I heard a piano in the afternoon",
        "Henning sleeps in the afternoons",
    ] {
        said.extend([("ben", text), ("ana", "I see"), ("ben", "So it goes")]);
    }
    let found = found_in(&said, "Where does Henning give piano afternoons?");
    assert!(found[..3].contains(&2), "{found:?}");
}

#[test]
fn who_is_asked_about_tells_it_in_the_first_person() {
    let said = [
        ("ana", "Painting is a joy, a horse above all"),
        ("ben", "You like a horse? Painting horses is hard"),
        ("ana", "Yesterday I finished my painting of a horse"),
        ("ben", "My horse dislikes every painting"),
    ];
    let found = found_in(&said, "Which painting of a horse did Ana make?");
    assert_eq!(found[..2], [2, 0]);
}

#[test]
fn what_i_told_is_before_what_others_told_me() {
    let advice = "A flight needs a budget. With a budget for the flight, a flight is no worry.";
    let said = [
        ("user", "my budget for the flight is 800 euros"),
        ("assistant", advice),
        ("tool", "flight budget: flight, budget"),
    ];
    let ours = Ours::new(&said_by_role(&said));
    let found = ours.first("What is my budget for the flight?");
    assert_eq!(found.first(), Some(&0));
}

#[test]
fn what_you_told_is_before_what_i_told() {
    let said = [
        (
            "user",
            "My budget for the flight is 800 euros, and my flight is short",
        ),
        ("assistant", "For such a flight compare prices in June"),
        (
            "user",
            "I like my budget, I like my flight, and I like to compare",
        ),
        ("assistant", "Good"),
    ];
    let ours = Ours::new(&said_by_role(&said));
    let found = ours.first("How did you recommend to plan my flight?");
    assert_eq!(found.first(), Some(&1), "{found:?}");
}

#[test]
fn a_request_tells_what_it_is_about() {
    let said = [
        (
            "user",
            "I booked a lantern workshop in Kyoto, can you help me pack?",
        ),
        ("assistant", "Sure, take a raincoat and sturdy shoes"),
        (
            "user",
            "A lantern workshop is a workshop with a lantern and some glue",
        ),
        ("assistant", "Is it so"),
        ("user", "What a day it was"),
    ];
    let found = Ours::new(&said_by_role(&said)).first("Which lantern workshop did I book?");
    assert_eq!(found.first(), Some(&0), "{found:?}");
}

#[test]
fn rare_words_tell_more_than_common_ones() {
    let mut said = vec![
        ("ana", "the concert was good, really good"),
        ("ana", "the concert featured Brahms and Dvorak"),
    ];
    for _ in 0..4 {
        said.extend([
            ("ben", "really good, after the concert"),
            ("ben", "was that good"),
        ]);
    }
    let found = found_in(&said, "How did Ana like the concert?");
    assert_eq!(found.first(), Some(&1), "{found:?}");
}

#[test]
fn what_was_said_in_a_period_is_found_without_the_words_of_the_question() {
    const DAY_MS: i64 = 86_400_000;
    // 1 December 2023
    let first = 1_701_388_800_000;
    let talk = |days: std::ops::Range<i64>| days.map(|day| (day, "a talk about the talk"));
    let other = [(10, "the kiln broke again"); 9];
    let all = talk(0..10).chain(other).chain(talk(30..60));
    let messages: Vec<Message> = all
        .map(|(day, text)| Message {
            at_ms: Some(first + day * DAY_MS),
            ..Message::new("user", text)
        })
        .collect();
    let ours = Ours::new(&messages);
    let found = ours.first("What did we talk about on 11 December?");
    // No message beside this one has a word of the question.
    assert!(found[..10].contains(&14), "{found:?}");
    // None is from there, so words alone count.
    let found = ours.first("What did we talk about in July 2022?");
    assert_eq!(found.len(), 20);
    assert!(!found.contains(&14));
}

#[test]
fn where_nothing_but_a_name_is_asked_it_is_looked_for() {
    let said = [
        ("ana", "hello everybody"),
        ("ben", "this is Ana from the bakery"),
        ("cem", "welcome"),
    ];
    assert!(found_in(&said, "Who is Ana?").contains(&1));
    // Nobody says the other words.
    assert!(found_in(&said, "What does Ana have in common with Ben?").contains(&1));
}

#[test]
fn answers_are_found_in_scripts_without_spaces() {
    let said = [
        ("user", "我最近在学弹古筝，每周三晚上上课"),
        ("assistant", "真不错！老师严格吗？"),
        ("user", "很严格，不过我妈妈说我进步很大"),
        ("user", "上个周末我和同事去杭州看了西湖"),
        ("assistant", "杭州的天气怎么样？"),
        ("user", "一直下雨，我们在茶馆里坐了三个小时"),
        ("user", "来月、大阪に引っ越すことになりました"),
        ("assistant", "新しい部屋はもう見つかりましたか？"),
        ("user", "はい、駅から五分の古いアパートです"),
        ("user", "지난주에 제주도에서 자전거를 탔어요"),
        ("assistant", "날씨는 어땠어요?"),
        ("user", "바람이 많이 불었지만 정말 즐거웠어요"),
    ];
    let ours = Ours::new(&said_by_role(&said));
    for (question, expected) in [
        ("用户在学什么乐器？古筝课是星期几？", 0),
        ("用户和谁去了杭州？", 3),
        ("在茶馆里坐了多久？", 5),
        ("いつ大阪に引っ越しますか？", 6),
        ("アパートは駅から何分ですか？", 8),
        ("제주도에서 무엇을 했나요?", 9),
    ] {
        assert_eq!(ours.first(question).first(), Some(&expected), "{question}");
    }
}

const SCENARIOS: [&str; 2] = ["customer", "notetaker"];

fn said(conversation: &Value) -> Vec<String> {
    let turns = conversation["question"].as_array().unwrap();
    turns
        .iter()
        .flat_map(|turn| turn.as_array().unwrap())
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn answers_are_found_in_the_notes_of_another_benchmark() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bfcl-memory");
    let (questions, answers) = (
        lines(&folder.join("questions.jsonl")),
        lines(&folder.join("answers.jsonl")),
    );
    let mut tally = Tally::default();
    for scenario in SCENARIOS {
        let messages: Vec<Message> = lines(&folder.join(format!("memory_{scenario}.json")))
            .iter()
            .flat_map(said)
            .map(|text| Message {
                role: "user".into(),
                text,
                ..Message::default()
            })
            .collect();
        let (floor, ours) = (floor(&messages), Ours::new(&messages));
        for (question, answer) in questions.iter().zip(&answers) {
            if question["scenario"] != scenario {
                continue;
            }
            // Quoted with omissions, and with the heading of the note that it stands in.
            let source = answer["source"].as_str().unwrap().replace(": ", "...");
            let parts: Vec<&str> = source
                .split("...")
                .map(|part| part.trim_end_matches('.'))
                .collect();
            let Some(expected) = messages
                .iter()
                .position(|message| parts.iter().all(|part| message.text.contains(part.trim())))
            else {
                continue;
            };
            let question = &said(question)[0];
            let (found, floor) = (ours.first(question), floor(question));
            tally.add([&found, &floor], &[expected as u64]);
        }
    }
    tally.print("bfcl-memory");
    assert!(tally.asked > 40);
    let [ours, floor] = tally.hits;
    assert!(
        ours.iter().zip(&floor).all(|(ours, floor)| ours >= floor),
        "{ours:?} {floor:?}"
    );
    assert!(ours.iter().sum::<usize>() > floor.iter().sum());
}
